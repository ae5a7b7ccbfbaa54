//! State of one node between ticks.

pub mod capacity;
pub mod contest;
pub mod disk;
pub mod drift;
pub mod members;
pub mod step;

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::width::WidthState;
use crate::measure::death::Deaths;
use crate::measure::fault::Faults;
use crate::measure::sample::TenantSample;
use crate::measure::usage::{Kills, Totals, Usage};
use crate::memory::probe::Probe;
use crate::memory::squeeze::Squeeze;
use crate::report::reason::{Shortfall, Surroundings};
use crate::share::credit::Credit;
use crate::share::demand::{self, Context, Demand, MemoryBasis};
use crate::share::fairness::Measured;
use crate::share::pids::PidsState;
use crate::share::steady::Steady;
use crate::share::target::Target;
use crate::share::trim::Trim;
use crate::share::turns::Slots;
use crate::state::contest::Contests;
use crate::state::disk::DiskState;
use crate::words::knob::{Action, Knob, Purpose, Value};
use tenantd_core::resource::{CPU, MEMORY, PerResource};

/// Longest pause between retries of a failed write, in ticks: 1, 2, 4 … this.
const RETRY_TICKS_MAX: u64 = 64;
/// The same for a CPU set, which is retried sooner: it is invalid again whenever a CPU goes away.
const RETRY_CPUS_TICKS_MAX: u64 = 4;

/// State of one node between ticks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeState {
    /// True if the agent governs a cgroup for it.
    pub is_governed: bool,
    /// True if its cgroup exists.
    pub is_present: bool,
    /// Previous sample, without threads.
    pub before: Option<Box<TenantSample>>,
    /// Newest sample.
    pub sample: Option<TenantSample>,
    /// Time of the newest sample.
    pub sampled_at: Duration,
    /// Usage between the two; `None` without a rate.
    pub usage: Option<Usage>,
    /// Last thread count.
    pub nr_threads: Option<usize>,
    /// Threads that may be read in the next tick; 0 if others come first.
    pub nr_readable_threads: usize,
    /// Demand.
    pub demand: Option<Demand>,
    /// Context of the demand, if it was estimated in this tick.
    pub context: Option<Context>,
    /// Entitlement and weights.
    pub target: Target,
    /// Last observed values of its files.
    pub observed: Vec<(Knob, Value)>,
    /// Time of the last reading or writing, by the number of the knob.
    pub observed_at: [Duration; Knob::ALL.len()],
    /// Values before the agent; only for an ancestor.
    pub held_before: Vec<(Knob, Value)>,
    /// Smoothed CPU usage of foreign work below it; only for an ancestor.
    pub foreign_cores: Option<f64>,
    /// Failed writes.
    pub retries: Vec<Retry>,
    /// True if a foreign write requires reading its files in the next tick.
    pub is_overtaken: bool,
    /// Its part of the queue.
    pub slots: Slots,
    /// Degree of parallelism and CPUs.
    pub width: WidthState,
    /// Share error; `None` without rates.
    pub share_error: Option<f64>,
    /// Shortfall with reasons; `None` without a shortfall or without rates.
    pub shortfall: Option<Box<Shortfall>>,
    /// Findings around its cgroup during a shortfall.
    pub surroundings: Option<Box<Surroundings>>,
    /// Fault counters since the agent started.
    pub faults: Faults,
    /// OOM kills since the agent started.
    pub oom_kills: Kills,
    /// Deaths with their causes; only for a tenant.
    pub deaths: Deaths,
    /// Processes and refused forks, if they are limited.
    pub pids: PidsState,
    /// Cumulative usage and waits since the agent started.
    pub totals: Totals,
    /// State of its memory bound; `None` without one.
    pub squeeze: Option<Box<Squeeze>>,
    /// State of its probe; `None` if the policy has no probes.
    pub probe: Option<Box<Probe>>,
    /// Credit against its siblings.
    pub credit: Credit,
    /// Age of its desired weight.
    pub steady: Steady,
    /// State of its trim; `None` if the policy has no trim.
    pub trim: Option<Box<Trim>>,
    /// State on disks.
    pub disk: DiskState,
    /// True for a unit of systemd.
    pub is_unit: bool,
    /// Knobs with accepted foreign values.
    pub left_to_others: Vec<Knob>,
    /// Values that another program keeps overwriting.
    pub contests: Contests,
}

/// A failed write and its next attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// The knob that could not be written.
    pub knob: Knob,
    /// Consecutive failures.
    pub nr_failures: u32,
    /// Tick of the next attempt.
    pub at_tick: u64,
    /// Reason for the failure.
    pub refusal: Refusal,
}

/// Reason for a write that was not done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Error message; `None` if the file does not exist, which was found when the cgroup was opened.
    pub message: Option<String>,
    /// True if it was not tried because it would have done harm.
    pub is_deferred: bool,
    /// True if it was skipped because the file changed since it was read.
    pub is_overtaken: bool,
    /// True if a written value could not be read back.
    pub is_unverified: bool,
    /// True if the file held another value right after the write.
    pub is_overwritten: bool,
}

/// Result of an action: the file's value, or the reason for a failure.
pub type Outcome = (Action, Result<Value, Refusal>);

impl NodeState {
    /// True if its threads should be read: a task waited in the last interval, or the kernel has no PSI.
    pub fn is_pressed(&self) -> bool {
        let allocation_cores = self.target.allocation[CPU];
        self.usage.as_ref().is_some_and(|usage| demand::is_pressed(usage, allocation_cores))
    }

    pub(crate) fn estimate(
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

    /// Largest memory observed recently, from both samples and an earlier demand. A demand after an OOM
    /// kill is not an observation.
    fn peak_bytes(&self) -> f64 {
        let samples = self.before.as_deref().into_iter().chain(&self.sample);
        let held = samples.filter_map(|sample| sample.held(MEMORY));
        let last = self.demand.filter(|last| last.memory_basis != MemoryBasis::AfterKill);
        held.chain(last.map(|last| last.amount[MEMORY])).fold(0.0, f64::max)
    }

    pub(crate) fn is_steered(&self) -> bool {
        self.is_governed && self.is_present
    }

    /// True if its jobs wait for slots, or hold those that others wait for.
    pub(crate) fn has_turns(&self) -> bool {
        self.slots.are_awaited || self.target.lent_cores != 0.0
    }

    /// True if credit raises its weight and it wants more than its allocation.
    pub fn spends_credit(&self) -> bool {
        self.credit.account.factor > 1.0 && !self.target.satisfied
    }

    pub(crate) fn is_probed(&self) -> bool {
        self.squeeze.as_ref().is_some_and(|squeeze| squeeze.probed_bytes.is_some())
    }

    /// Measurements of the last interval; `None` without rates.
    pub fn measured(&self) -> Option<Measured> {
        let (usage, demand) = (self.usage.as_ref()?, self.demand?);
        // While siblings spend credit, less than its share is no starvation.
        let spent = self.target.cores_after_loans.unwrap_or(f64::INFINITY);
        Some(Measured {
            used_cores: usage.cpu_cores,
            pressed: self.is_pressed(),
            demand_cores: demand.amount[CPU],
            allocation_cores: self.target.due_cores(),
            fair_share_cores: self.target.burst[CPU].min(spent),
        })
    }

    /// Last observed value of `knob`.
    pub fn observed(&self, knob: Knob) -> Option<&Value> {
        self.observed.iter().find(|(known, _)| *known == knob).map(|(_, value)| value)
    }

    /// CPUs that it is placed on, or, if their write failed, those that its file holds; `None` if it has none of its own.
    pub fn cpus_in_force(&self) -> Option<String> {
        let is_refused = self.retries.iter().any(|retry| retry.knob == Knob::Cpus);
        match self.observed(Knob::Cpus) {
            // Of the unified hierarchy, an empty file leaves a cgroup on the CPUs of its parent.
            Some(held) if is_refused => Some(held.to_string()).filter(|list| !list.is_empty()),
            _ => self.width.cpus().map(ToString::to_string),
        }
    }

    pub(crate) fn held_before(&self, knob: Knob) -> Option<&Value> {
        self.held_before.iter().find(|(known, _)| *known == knob).map(|(_, value)| value)
    }

    /// Stores the newest sample; the last one is kept without threads, for the explanation.
    pub(crate) fn take_sample(&mut self, sample: TenantSample) -> Option<TenantSample> {
        match (self.before.as_deref_mut(), self.sample.as_ref().map(without_threads)) {
            // Reuses the allocation: a thousand new ones per tick would fragment the heap.
            (Some(before), Some(last)) => *before = last,
            (_, last) => self.before = last.map(Box::new),
        }
        let is_same = |last: &&TenantSample| last.generation == sample.generation;
        let sample = match self.sample.as_ref().filter(is_same) {
            // The counters of an empty cgroup stand still, so the last ones stay valid.
            Some(last) if sample.populated == Some(false) => TenantSample {
                usage_usec: sample.usage_usec.or(last.usage_usec),
                nr_throttled: sample.nr_throttled.or(last.nr_throttled),
                cpu_some_usec: sample.cpu_some_usec.or(last.cpu_some_usec),
                memory_some_usec: sample.memory_some_usec.or(last.memory_some_usec),
                memory_full_usec: sample.memory_full_usec.or(last.memory_full_usec),
                io_some_usec: sample.io_some_usec.or(last.io_some_usec),
                disks: sample.disks.or_else(|| last.disks.clone()),
                ..sample
            },
            _ => sample,
        };
        self.sample.replace(sample)
    }

    /// Discards the counters and values of a lost cgroup. Demand, width and target stay, because a
    /// re-created cgroup most likely runs the same work.
    pub(crate) fn lose_cgroup(&mut self, keeps_left: bool) {
        let old = std::mem::take(self);
        *self = NodeState {
            is_governed: old.is_governed,
            demand: old.demand,
            width: old.width,
            target: old.target,
            faults: old.faults,
            oom_kills: old.oom_kills,
            deaths: old.deaths,
            pids: old.pids.without_sample(),
            totals: old.totals,
            credit: old.credit,
            left_to_others: if keeps_left { old.left_to_others } else { Vec::new() },
            ..NodeState::default()
        };
    }

    /// Turns this state into a member's, which takes over the cgroup; returns the rest, for the tenant.
    pub(crate) fn hand_over(&mut self) -> NodeState {
        let mut tenant = self.clone();
        tenant.lose_cgroup(false);
        let (faults, oom_kills, deaths) = Default::default();
        let cpu_usec = self.totals.cpu_usec.anew();
        let totals = Totals { cpu_usec, ..Totals::default() };
        let pids = PidsState::default();
        let (width, credit) = Default::default();
        let old = std::mem::take(self);
        *self = NodeState { faults, oom_kills, deaths, totals, pids, width, credit, ..old };
        tenant
    }

    /// Resets the state after all values were restored; cumulative counts and credit stay.
    pub(crate) fn reset(&mut self) {
        let (faults, oom_kills, totals) = (self.faults, self.oom_kills, self.totals);
        let (pids, credit) = (self.pids.without_sample(), self.credit);
        let deaths = std::mem::take(&mut self.deaths);
        *self =
            NodeState { faults, oom_kills, deaths, pids, totals, credit, ..NodeState::default() };
    }

    pub(crate) fn waits(&self, knob: Knob, tick: u64) -> bool {
        self.retries.iter().any(|retry| retry.knob == knob && retry.at_tick > tick)
    }

    /// True if the file of `knob` is left to another program, permanently or for a time.
    pub(crate) fn leaves(&self, knob: Knob) -> bool {
        self.left_to_others.contains(&knob) || self.contests.has_yielded(knob)
    }

    /// Records the result of an action. Returns true if its file is left to another program from now on.
    pub(crate) fn settle(
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
                // The file's value after an unverified write is unknown: the agent's own value must not
                // count as drift.
                let known = action.from.clone().filter(|_| !refusal.is_unverified);
                self.observed.extend(known.map(|from| (action.knob, from)));
                // The kernel may have cut a CPU set.
                let is_placement = action.knob.purpose() == Purpose::Placement;
                let is_lost = refusal.is_overwritten && !is_placement;
                if is_lost && self.contests.lose_round(action.knob, tick) {
                    return true;
                }
                let nr_failures = failures.unwrap_or(0).saturating_add(1);
                let pause_max = if is_placement { RETRY_CPUS_TICKS_MAX } else { RETRY_TICKS_MAX };
                let pause = (1_u64 << nr_failures.min(7).saturating_sub(1)).min(pause_max);
                let at_tick = tick + pause;
                self.retries.push(Retry { knob: action.knob, nr_failures, at_tick, refusal });
            }
        }
        false
    }

    pub(crate) fn forget(&mut self, knob: Knob) {
        self.unsettle(knob);
        self.contests.forget(knob);
    }

    fn unsettle(&mut self, knob: Knob) {
        self.retries.retain(|retry| retry.knob != knob);
        self.observed.retain(|(known, _)| *known != knob);
        self.left_to_others.retain(|known| *known != knob);
    }
}

/// Returns the sample without threads, which are many and matter only for the next sample.
pub fn without_threads(sample: &TenantSample) -> TenantSample {
    TenantSample { threads: None, disks: sample.disks.clone(), ..*sample }
}
