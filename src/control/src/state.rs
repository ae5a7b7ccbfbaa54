//! What the control loop knows of one node between ticks.

use std::time::Duration;

use super::contest::Contests;
use super::demand::{self, Context, Demand, MemoryBasis};
use super::fairness::Measured;
use super::fault::Faults;
use super::pids::PidsState;
use super::plan::{Action, Knob, Value};
use super::probe::Probe;
use super::reason::{Shortfall, Surroundings};
use super::sample::TenantSample;
use super::squeeze::Squeeze;
use super::steady::Steady;
use super::target::Target;
use super::trim::Trim;
use super::usage::{Kills, Totals, Usage};
use super::width::WidthState;
use tenantd_core::codec::coded;
use tenantd_core::resource::{CPU, MEMORY, PerResource};

/// A failed write is tried again after 1, 2, 4 … at most this many ticks.
const RETRY_TICKS_MAX: u64 = 64;
/// A set of CPUs is tried again sooner: it is a place to run, and wrong again whenever a CPU goes away.
const RETRY_CPUS_TICKS_MAX: u64 = 4;

/// One node between ticks.
#[derive(Clone, Debug, Default)]
pub struct NodeState {
    /// Whether any cgroup is steered for it.
    pub is_governed: bool,
    /// Whether its cgroup is there.
    pub is_present: bool,
    /// The sample before the newest, without threads.
    pub before: Option<Box<TenantSample>>,
    /// The newest sample.
    pub sample: Option<TenantSample>,
    /// When that was taken.
    pub sampled_at: Duration,
    /// What the two come to; `None` where there is no rate.
    pub usage: Option<Usage>,
    /// How many threads it had when they were counted last.
    pub nr_threads: Option<usize>,
    /// How many of them may be read in the next tick; 0 where others come first.
    pub nr_readable_threads: usize,
    /// What it could use.
    pub demand: Option<Demand>,
    /// What the demand was estimated from, where it was in this tick.
    pub context: Option<Context>,
    /// What it is entitled to.
    pub target: Target,
    /// What its files held when they were read last.
    pub observed: Vec<(Knob, Value)>,
    /// When that was, or when they were written, by the number of the knob.
    pub observed_at: [Duration; Knob::ALL.len()],
    /// Of an ancestor: what its files held before the agent.
    pub held_before: Vec<(Knob, Value)>,
    /// Of an ancestor: CPUs that work below it uses which belongs to no tenant, smoothed.
    pub foreign_cores: Option<f64>,
    /// Writes that failed.
    pub retries: Vec<Retry>,
    /// Whether its files are to be read at the next tick, because of a foreign write.
    pub is_overtaken: bool,
    /// Its degree of parallelism and its CPUs.
    pub width: WidthState,
    /// What of the CPUs that are divided it was entitled to, wanted and did not get; `None` without rates.
    pub share_error: Option<f64>,
    /// What it lacks, and why; `None` where it lacks nothing, and without rates.
    pub shortfall: Option<Box<Shortfall>>,
    /// What was found around its cgroup, because it lacked something.
    pub surroundings: Option<Box<Surroundings>>,
    /// How often and for how long it lacked something, since the agent started.
    pub faults: Faults,
    /// Processes of it that were killed for want of memory, since the agent started.
    pub oom_kills: Kills,
    /// Its processes and refused forks, where they are limited.
    pub pids: PidsState,
    /// What it used and waited in all, since the agent started.
    pub totals: Totals,
    /// What it gives back of its memory while others lack theirs; `None` where nothing is known of it.
    pub squeeze: Option<Box<Squeeze>>,
    /// How its working set is looked for; `None` where the policy has no probes.
    pub probe: Option<Box<Probe>>,
    /// How long its weight has been wanted.
    pub steady: Steady,
    /// How its weight is trimmed; `None` where the policy has no trim.
    pub trim: Option<Box<Trim>>,
    /// Knobs with a foreign value that the policy accepts.
    pub left_to_others: Vec<Knob>,
    /// Values that another program overwrites again and again.
    pub contests: Contests,
}

/// A write that failed, and when it is tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The knob that could not be written.
    pub knob: Knob,
    /// How often it failed in a row.
    pub nr_failures: u32,
    /// The tick in which it is due.
    pub at_tick: u64,
    /// Why it was not done.
    pub refusal: Refusal,
}

/// Why a write was not done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusal {
    /// What went wrong; `None` where the file is not there, which was found when the cgroup was opened.
    pub message: Option<String>,
    /// Whether it was not tried, because it would have done harm.
    pub is_deferred: bool,
    /// Whether it was skipped, because the file changed since it was read.
    pub is_overtaken: bool,
    /// Whether something was written, and could not be read back.
    pub is_unverified: bool,
    /// Whether the file held another value right after the write.
    pub is_overwritten: bool,
}

/// The result of an action: what the file holds now, or why it was not written.
pub type Outcome = (Action, Result<Value, Refusal>);

impl NodeState {
    /// Whether its threads are worth a look: some task waited in the last interval, or the kernel cannot tell.
    pub fn is_pressed(&self) -> bool {
        let allocation_cores = self.target.allocation[CPU];
        self.usage.as_ref().is_some_and(|usage| demand::is_pressed(usage, allocation_cores))
    }

    /// Estimates its demand from its usage, where there is one.
    pub(super) fn estimate(
        &mut self,
        guarantee_cores: Option<f64>,
        max: PerResource<f64>,
        elapsed: Duration,
    ) {
        let Some(usage) = &self.usage else { return };
        let killed_peak_bytes = self.oom_kills.answer().then(|| self.peak_bytes());
        let context = Context {
            allocation_cores: self.target.allocation[CPU],
            guarantee_cores: guarantee_cores.unwrap_or(0.0),
            max,
            is_bounded: self.squeeze.as_ref().is_some_and(|it| it.lowest_bytes().is_some()),
            is_probed: self.is_probed(),
            killed_peak_bytes,
            last: self.demand,
        };
        self.demand = Some(demand::estimate(usage, &context, elapsed));
        self.context = Some(context);
    }

    /// The most memory that was observed lately: what is held and was held, and what an earlier demand has kept of it.
    /// A demand after a kill is no observation.
    fn peak_bytes(&self) -> f64 {
        let samples = self.before.as_deref().into_iter().chain(&self.sample);
        let held = samples.filter_map(|sample| sample.held(MEMORY));
        let last = self.demand.filter(|last| last.memory_basis != MemoryBasis::AfterKill);
        held.chain(last.map(|last| last.amount[MEMORY])).fold(0.0, f64::max)
    }

    /// Whether a cgroup is steered for it that is there.
    pub(super) fn is_steered(&self) -> bool {
        self.is_governed && self.is_present
    }

    /// Whether its memory is bounded to find out what it needs.
    pub(super) fn is_probed(&self) -> bool {
        self.squeeze.as_ref().is_some_and(|squeeze| squeeze.probed_bytes.is_some())
    }

    /// What the last interval came to; `None` without rates.
    pub fn measured(&self) -> Option<Measured> {
        let (usage, demand) = (self.usage.as_ref()?, self.demand?);
        Some(Measured {
            used_cores: usage.cpu_cores,
            pressed: self.is_pressed(),
            demand_cores: demand.amount[CPU],
            allocation_cores: self.target.allocation[CPU],
            fair_share_cores: self.target.burst[CPU],
        })
    }

    /// What the file of `knob` held when it was read last.
    pub fn observed(&self, knob: Knob) -> Option<&Value> {
        self.observed.iter().find(|(known, _)| *known == knob).map(|(_, value)| value)
    }

    /// What the file of `knob` held before the agent.
    pub(super) fn held_before(&self, knob: Knob) -> Option<&Value> {
        self.held_before.iter().find(|(known, _)| *known == knob).map(|(_, value)| value)
    }

    /// Takes the newest sample; the one that was so far is kept without its threads, for the explanation.
    pub(super) fn take_sample(&mut self, sample: TenantSample) -> Option<TenantSample> {
        match (self.before.as_deref_mut(), self.sample.as_ref().map(without_threads)) {
            // Its place is used again: a thousand of them in every tick would fragment the heap.
            (Some(before), Some(last)) => *before = last,
            (_, last) => self.before = last.map(Box::new),
        }
        let is_same = |last: &&TenantSample| last.generation == sample.generation;
        let sample = match self.sample.as_ref().filter(is_same) {
            // The counters of an empty cgroup stand still: what they were stays true until processes come
            // again.
            Some(last) if sample.populated == Some(false) => TenantSample {
                usage_usec: sample.usage_usec.or(last.usage_usec),
                nr_throttled: sample.nr_throttled.or(last.nr_throttled),
                cpu_some_usec: sample.cpu_some_usec.or(last.cpu_some_usec),
                memory_some_usec: sample.memory_some_usec.or(last.memory_some_usec),
                memory_full_usec: sample.memory_full_usec.or(last.memory_full_usec),
                ..sample
            },
            _ => sample,
        };
        self.sample.replace(sample)
    }

    /// Its cgroup went away: what was counted and read there is void. It keeps its demand, its width and its
    /// target, because a re-created cgroup most likely runs the same work.
    pub(super) fn lose_cgroup(&mut self, keeps_left: bool) {
        let old = std::mem::take(self);
        *self = NodeState {
            is_governed: old.is_governed,
            demand: old.demand,
            width: old.width,
            target: old.target,
            faults: old.faults,
            oom_kills: old.oom_kills,
            pids: old.pids.without_sample(),
            totals: old.totals,
            left_to_others: if keeps_left { old.left_to_others } else { Vec::new() },
            ..NodeState::default()
        };
    }

    /// Its cgroup is that of a member from now on, which is what is left here: the tenant keeps what is returned.
    pub(super) fn hand_over(&mut self) -> NodeState {
        let mut tenant = self.clone();
        tenant.lose_cgroup(false);
        let (faults, oom_kills) = Default::default();
        let cpu_usec = self.totals.cpu_usec.anew();
        let totals = Totals { cpu_usec, ..Totals::default() };
        let pids = PidsState::default();
        let width = WidthState::default();
        *self = NodeState { faults, oom_kills, totals, pids, width, ..std::mem::take(self) };
        tenant
    }

    /// All values were restored: only what was counted since the agent started stays.
    pub(super) fn reset(&mut self) {
        let (faults, oom_kills, totals) = (self.faults, self.oom_kills, self.totals);
        let pids = self.pids.without_sample();
        *self = NodeState { faults, oom_kills, pids, totals, ..NodeState::default() };
    }

    /// Whether a failed write of `knob` still waits in `tick`.
    pub(super) fn waits(&self, knob: Knob, tick: u64) -> bool {
        self.retries.iter().any(|retry| retry.knob == knob && retry.at_tick > tick)
    }

    /// Whether the file of `knob` is another program's, for good or for a time.
    pub(super) fn leaves(&self, knob: Knob) -> bool {
        self.left_to_others.contains(&knob) || self.contests.has_yielded(knob)
    }

    /// Notes the result of an action in `tick`; returns whether its file is left to another program from now on.
    pub(super) fn settle(
        &mut self,
        action: &Action,
        tick: u64,
        outcome: Result<Value, Refusal>,
    ) -> bool {
        let failures = self.retries.iter().find(|r| r.knob == action.knob).map(|r| r.nr_failures);
        self.unsettle(action.knob);
        match outcome {
            Ok(found) => self.observed.push((action.knob, found)),
            Err(Refusal { is_overtaken: true, .. }) => {
                self.observed.extend(action.from.clone().map(|from| (action.knob, from)));
                self.is_overtaken = true;
            }
            Err(refusal) => {
                // What is there after a write that was not read back is unknown: the agent's own value is no drift.
                let known = action.from.clone().filter(|_| !refusal.is_unverified);
                self.observed.extend(known.map(|from| (action.knob, from)));
                // A set of CPUs may have been cut by the kernel.
                let is_lost = refusal.is_overwritten && action.knob != Knob::Cpus;
                if is_lost && self.contests.lose_round(action.knob, tick) {
                    return true;
                }
                let nr_failures = failures.unwrap_or(0).saturating_add(1);
                let pause_max = match action.knob {
                    Knob::Cpus => RETRY_CPUS_TICKS_MAX,
                    _ => RETRY_TICKS_MAX,
                };
                let pause = (1_u64 << nr_failures.min(7).saturating_sub(1)).min(pause_max);
                let at_tick = tick + pause;
                self.retries.push(Retry { knob: action.knob, nr_failures, at_tick, refusal });
            }
        }
        false
    }

    /// Forgets what the file of `knob` held, and that it could not be written.
    pub(super) fn forget(&mut self, knob: Knob) {
        self.unsettle(knob);
        self.contests.forget(knob);
    }

    fn unsettle(&mut self, knob: Knob) {
        self.retries.retain(|retry| retry.knob != knob);
        self.observed.retain(|(known, _)| *known != knob);
        self.left_to_others.retain(|known| *known != knob);
    }
}

/// A sample to keep: threads are many, and matter to the next sample only.
pub fn without_threads(sample: &TenantSample) -> TenantSample {
    TenantSample { threads: None, ..*sample }
}

// --- recorded ---

coded!(struct Refusal { message, is_deferred, is_overtaken, is_overwritten, is_unverified });
coded!(struct Retry { knob, nr_failures, at_tick, refusal });
coded!(struct NodeState {
    is_governed, is_present, before, sample, sampled_at, usage, nr_threads, nr_readable_threads, demand, context,
    target, observed, observed_at, held_before, foreign_cores, retries, is_overtaken, width, share_error, shortfall, surroundings,
    faults, oom_kills, pids, totals, squeeze, probe, steady, trim, left_to_others, contests,
});
