//! A scenario: a host, policies, the work of the tenants over time, and its length.

use std::time::Duration;

use tenantd_policy::model::Policy;
use tenantd_sim::{Load, SimHost, Trace};

/// The step in which the simulated kernel lets loads change.
pub(super) const STEP: Duration = Duration::from_millis(10);

/// Seconds for which a noisy load keeps its duty.
pub(super) const NOISE_INTERVAL: Duration = Duration::from_secs(1);

/// A host and its tenants over time.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The machine.
    pub host: SimHost,
    /// The policies, each with the time from which it is in force; the first from the beginning. All have the
    /// same tenants.
    pub(super) policies: Vec<(Duration, Policy)>,
    pub(super) nr_ticks: u32,
    /// The work of each tenant, in the order of the leaves of the policies, and then the work outside the
    /// tenants.
    pub(super) works: Vec<Work>,
}

/// The work of one tenant: phases that do not overlap, by time.
#[derive(Clone, Debug, Default)]
pub(super) struct Work(pub(super) Vec<Phase>);

/// A process with a load, for some time.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) from: Duration,
    pub(super) until: Duration,
    pub(super) trace: Trace,
    /// Part of the disk that it wants; in the sleep of bursts none.
    pub(super) disk: f64,
}

impl Scenario {
    /// The policy in force at the beginning.
    pub fn policy(&self) -> &Policy {
        &self.policies[0].1
    }

    /// Time from tick to tick.
    pub(super) fn interval(&self) -> Duration {
        self.policy().control.interval
    }

    pub(super) fn end(&self) -> Duration {
        self.interval() * self.nr_ticks
    }

    /// The load of each work at a time; `None` while it has no process.
    pub fn loads(&self, time: Duration) -> Vec<Option<Load>> {
        self.works.iter().map(|work| work.at(time)).collect()
    }

    /// Part of the disk that each work wants at a time.
    pub(super) fn disks(&self, time: Duration) -> Vec<f64> {
        self.works.iter().map(|work| work.disk_at(time)).collect()
    }

    /// True if some work reads from the disk.
    pub(super) fn has_disk(&self) -> bool {
        self.works.iter().flat_map(|work| &work.0).any(|phase| phase.disk > 0.0)
    }

    /// Times at which the demand or the policy changes, from the beginning on. The single bursts of a phase
    /// do not count.
    pub fn changes(&self) -> Vec<Duration> {
        let phases = self.works.iter().flat_map(|work| &work.0);
        let edges = phases.flat_map(|phase| [phase.from, phase.until]);
        let mut changes: Vec<Duration> = edges.chain(self.policies.iter().map(|it| it.0)).collect();
        changes.push(Duration::ZERO);
        changes.retain(|change| *change < self.end());
        changes.sort_unstable();
        changes.dedup();
        changes
    }
}

impl Work {
    /// The load at a time; `None` while no process runs.
    pub(super) fn at(&self, time: Duration) -> Option<Load> {
        let phase = self.phase(time)?;
        Some(phase.trace.at(time - phase.from))
    }

    fn disk_at(&self, time: Duration) -> f64 {
        self.phase(time).map_or(0.0, |phase| match &phase.trace {
            Trace::Square { awake, .. } if phase.trace.at(time - phase.from) != *awake => 0.0,
            _ => phase.disk,
        })
    }

    fn phase(&self, time: Duration) -> Option<&Phase> {
        self.0.iter().find(|phase| (phase.from..phase.until).contains(&time))
    }

    /// The next time after `time` at which the load can differ.
    pub(super) fn next_change(&self, time: Duration) -> Duration {
        let phases = self.0.iter().filter(|phase| phase.until > time);
        phases.map(|phase| phase.next_change(time)).min().unwrap_or(Duration::MAX)
    }
}

impl Phase {
    pub(super) fn threads(&self) -> u32 {
        self.trace.at(Duration::ZERO).threads
    }

    fn next_change(&self, time: Duration) -> Duration {
        let Some(age) = time.checked_sub(self.from) else { return self.from };
        let next = match &self.trace {
            Trace::Square { period, awake_ratio, .. } => {
                let awake = whole_steps(period.mul_f64(*awake_ratio));
                let begun = age - part_of(age, *period);
                if age < begun + awake { begun + awake } else { begun + *period }
            }
            Trace::Sawtooth { period, .. } => age - part_of(age, *period) + *period,
            Trace::Noisy { interval, .. } => age - part_of(age, *interval) + *interval,
            Trace::Constant(_) | Trace::Ramp { .. } => return self.until,
        };
        (self.from + next).min(self.until)
    }
}

fn part_of(time: Duration, period: Duration) -> Duration {
    Duration::from_nanos((time.as_nanos() % period.as_nanos().max(1)) as u64)
}

/// The nearest multiple of the kernel's step: a ratio times a period is not exactly one.
fn whole_steps(time: Duration) -> Duration {
    STEP * (time.as_secs_f64() / STEP.as_secs_f64()).round() as u32
}
