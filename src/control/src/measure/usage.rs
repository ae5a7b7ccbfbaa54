//! Rates from two samples and the time between them.
//!
//! A rate needs two readings of a counter of the same cgroup. If the cgroup was re-created, or if a counter
//! went backwards or was absent, the rate is `None`, never zero or negative. The tenant then keeps its last
//! decision.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::disk::{self, DiskCounts, DiskFlow, PerDisk};
use super::sample::{HostSample, MemorySample, TenantSample, ThreadSample};
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::Bytes;

/// Part of a tenant's CPU time that its long-lived threads must have used to represent it.
const SEEN_RATIO: f64 = 0.9;

/// Part of the waiting time that the threads' waits must account for. A wait is added to a thread's account
/// only when it ends (`sched_info_arrive` in `kernel/sched/stats.h`), so a wait longer than the interval is
/// missing.
const WAITED_RATIO: f64 = 0.1;

/// Part of the interval that a thread without sleep ran or waited; the wait at its end is not in the account yet.
const SLEEPLESS_RATIO: f64 = 0.9;

/// Smallest page size of Linux. On larger pages refaults are underestimated.
const PAGE_BYTES: f64 = 4096.0;

/// Usage of one tenant between two samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// CPUs used on average.
    pub cpu_cores: f64,
    /// PSI `some` for CPU, 0 ..= 1; absent without PSI.
    pub cpu_some_ratio: Option<f64>,
    /// True if `cpu.max` throttled it.
    pub throttled: bool,
    /// CPUs its threads would use without waits; absent if threads were not read.
    pub wanted_cores: Option<f64>,
    /// CPUs that threads which never slept could use: one each; absent if threads were not read.
    pub sleepless_cores: Option<f64>,
    /// Amount held of each resource such as memory: all memory but inactive file cache. Absent if unreadable.
    pub held: PerResource<Option<f64>>,
    /// All charged memory, in bytes.
    pub charged_bytes: Option<f64>,
    /// Unreclaimable memory, in bytes.
    pub unreclaimable_bytes: Option<f64>,
    /// Part of it that swap could take, in bytes.
    pub anon_bytes: Option<f64>,
    /// Growth of unreclaimable memory since the last sample, in bytes; 0 if it shrank.
    pub unreclaimable_growth_bytes: Option<f64>,
    /// Growth of charged memory since the last sample, in bytes; 0 if it shrank.
    pub charged_growth_bytes: Option<f64>,
    /// Reclaimed memory since the last sample, in bytes; only if the kernel does not report which files are
    /// in use ([`MemorySample::stolen_mib`]).
    pub stolen_bytes: Option<f64>,
    /// Refaults since the last sample, in bytes.
    pub refaulted_bytes: Option<f64>,
    /// PSI `some` for memory, 0 ..= 1; absent without PSI.
    pub memory_some_ratio: Option<f64>,
    /// PSI `full` for memory, 0 ..= 1; absent without PSI.
    pub memory_full_ratio: Option<f64>,
    /// Refaulted pages per second.
    pub refaults_per_sec: Option<f64>,
    /// PSI `some` for IO, 0 ..= 1; absent without PSI.
    pub io_some_ratio: Option<f64>,
    /// Requests to each device; without those that were not counted.
    pub disks: PerDisk<DiskFlow>,
    /// True if reclaim took protected memory; absent if the kernel does not count that.
    pub reclaimed: Option<bool>,
    /// True if an allocation met its memory limit, or that of a cgroup below it.
    pub met_limit: bool,
    /// True if an allocation met its memory bound; absent if the kernel has none.
    pub met_bound: Option<bool>,
    /// True if it has a process, or if the kernel does not report that.
    pub populated: bool,
}

impl Usage {
    /// Usage of an empty cgroup.
    pub fn of_empty() -> Usage {
        Usage {
            held: PerResource::all(Some(0.0)),
            unreclaimable_bytes: Some(0.0),
            ..Usage::default()
        }
    }

    /// Usage of a resource.
    pub fn used(&self, resource: Resource) -> Option<f64> {
        match resource {
            Resource::Cpu => Some(self.cpu_cores),
            held => self.held[held],
        }
    }

    /// Caps the usage at the machine's CPUs: clocks are read a little apart, so a rate could exceed them.
    pub fn cap(&mut self, nr_cpus: u32) {
        self.cpu_cores = self.cpu_cores.min(f64::from(nr_cpus));
    }
}

/// Sum of a kernel counter since the agent first saw it, over re-created cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    total: u64,
    /// Last cgroup and its count.
    last: Option<(u64, u64)>,
}

impl Tally {
    /// Adds the count of the cgroup `generation`. The first cgroup's count before the agent saw it is left
    /// out; all counts of later cgroups are new.
    pub fn note(&mut self, generation: u64, count: u64) {
        self.total += match self.last {
            None => 0,
            Some((known, before)) if known == generation => count.saturating_sub(before),
            Some(_) => count,
        };
        self.last = Some((generation, count));
    }

    /// Follows a count that began at 0 when the agent started. It is a sum, and falls when some of its
    /// parts go.
    pub fn follow(&mut self, count: u64) {
        let before = self.last.map_or(0, |(_, before)| before);
        self.total += count.saturating_sub(before);
        self.last = Some((0, count));
    }

    /// Returns the tally with its total reset.
    pub fn anew(self) -> Self {
        Self { total: 0, ..self }
    }

    /// Adds `by` to the total.
    pub fn grow(&mut self, by: u64) {
        self.total += by;
        self.last = self.last.or(Some((0, 0)));
    }

    /// The sum; `None` if nothing was ever read.
    pub fn total(&self) -> Option<u64> {
        self.last.map(|_| self.total)
    }
}

/// OOM kills since the agent started, from two sources: the counter of the cgroup, and systemd's result of
/// a unit's run.
///
/// A service with an OOM kill is stopped, and its cgroup is removed with its counter before the next tick;
/// then only systemd reports the kill. If a tick has read the counter, both sources report the same kill.
/// So the larger of the two counts for each cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kills {
    before: u64,
    /// Last cgroup and its count.
    last: Option<(u64, u64)>,
    nr_read: u64,
    /// Runs reported since this cgroup was first read.
    nr_told: u64,
    /// Kills for which the demand has been raised.
    nr_answered: u64,
}

impl Kills {
    /// Adds the count of the cgroup `generation`. The first cgroup's count before the agent saw it is left
    /// out; all counts of later cgroups are new.
    pub fn note(&mut self, generation: u64, count: u64) {
        let new = match self.last {
            None => 0,
            Some((known, before)) if known == generation => count.saturating_sub(before),
            Some(_) => {
                self.before += self.nr_read.max(self.nr_told);
                (self.nr_read, self.nr_told) = (0, 0);
                count
            }
        };
        self.nr_read += new;
        self.last = Some((generation, count));
    }

    /// Follows a count that began at 0 when the agent started. It is a sum, and falls when some of its
    /// parts go.
    pub fn follow(&mut self, count: u64) {
        let before = self.last.map_or(0, |(_, before)| before);
        self.nr_read += count.saturating_sub(before);
        self.last = Some((0, count));
    }

    /// Adds runs that ended by an OOM kill since the last call.
    pub fn tell(&mut self, nr_runs: u64) {
        self.nr_told += nr_runs;
    }

    /// True if there were any kills since the last call.
    pub(crate) fn answer(&mut self) -> bool {
        let total = self.sum();
        std::mem::replace(&mut self.nr_answered, total) < total
    }

    /// The sum; `None` if nothing was ever reported.
    pub fn total(&self) -> Option<u64> {
        let total = self.sum();
        (self.last.is_some() || total > 0).then_some(total)
    }

    fn sum(&self) -> u64 {
        self.before + self.nr_read.max(self.nr_told)
    }
}

/// Cumulative counters of a tenant since the agent first sampled it, over re-created cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// CPU time used, in microseconds.
    pub cpu_usec: Tally,
    /// Time in which a task waited for a CPU, in microseconds.
    pub cpu_some_usec: Tally,
    /// Time in which a task stalled on memory, in microseconds.
    pub memory_some_usec: Tally,
    /// Time in which a task stalled on IO, in microseconds.
    pub io_some_usec: Tally,
    /// Requests to all devices; `None` before the first rate of one.
    pub disk: Option<DiskCounts>,
}

impl Totals {
    /// Adds the waits of an interval with this `usage`.
    pub fn note_waits(&mut self, usage: &Usage, elapsed: Duration) {
        for (total, ratio) in [
            (&mut self.cpu_some_usec, usage.cpu_some_ratio),
            (&mut self.memory_some_usec, usage.memory_some_ratio),
            (&mut self.io_some_usec, usage.io_some_ratio),
        ] {
            if let Some(ratio) = ratio {
                total.grow((ratio * elapsed.as_micros() as f64) as u64);
            }
        }
    }

    /// Adds the requests of an interval with this `usage`.
    pub fn note_disks(&mut self, usage: &Usage, elapsed: Duration) {
        if !usage.disks.is_empty() {
            self.disk.get_or_insert_default().add(usage.disks.counts(elapsed));
        }
    }

    /// Adds the counts of `sample` since the last one. Absent counters stay.
    pub fn note(&mut self, sample: &TenantSample) {
        for (total, count) in [
            (&mut self.cpu_usec, sample.usage_usec),
            (&mut self.cpu_some_usec, sample.cpu_some_usec),
            (&mut self.memory_some_usec, sample.memory_some_usec),
            (&mut self.io_some_usec, sample.io_some_usec),
        ] {
            if let Some(count) = count {
                total.note(sample.generation, count);
            }
        }
    }
}

/// Rates of one tenant between two samples `elapsed` apart.
///
/// `None` if the samples are of different cgroups, the CPU counter is absent or went backwards, or no time
/// passed.
pub fn usage(before: &TenantSample, now: &TenantSample, elapsed: Duration) -> Option<Usage> {
    let elapsed_usec = elapsed.as_micros() as f64;
    if before.generation != now.generation || elapsed_usec <= 0.0 {
        return None;
    }
    let rate = |before: Option<u64>, now: Option<u64>| {
        Some(now?.checked_sub(before?)? as f64 / elapsed_usec)
    };
    if now.populated == Some(false) {
        return Some(Usage {
            // Usage of its last processes before they ended.
            cpu_cores: rate(before.usage_usec, now.usage_usec).unwrap_or(0.0),
            ..Usage::of_empty()
        });
    }
    let cpu_cores = rate(before.usage_usec, now.usage_usec)?;
    let cpu_some_ratio = rate(before.cpu_some_usec, now.cpu_some_usec).map(|r| r.min(1.0));
    let threads = before.threads.as_ref().zip(now.threads.as_ref()).map(|(before, now)| {
        thread_demand(before, now, elapsed, cpu_cores, cpu_some_ratio.unwrap_or(0.0))
    });
    let memory = now.memory;
    let held = |sample: &TenantSample| sample.memory.map(|memory| memory.unreclaimable_bytes());
    let charged = |sample: &TenantSample| sample.memory.map(|memory| memory.current_bytes);
    let stolen = |sample: &TenantSample| sample.memory.and_then(|memory| memory.stolen_mib);
    let refaults = |sample: &TenantSample| sample.memory.and_then(|memory| memory.refaults);
    let rose = |count: fn(&MemorySample) -> Option<u64>| {
        Some(count(&now.memory?)? > count(&before.memory?)?)
    };
    Some(Usage {
        cpu_cores,
        cpu_some_ratio,
        throttled: rate(before.nr_throttled, now.nr_throttled).is_some_and(|r| r > 0.0),
        wanted_cores: threads.and_then(|threads| threads.wanted_cores),
        sleepless_cores: threads.map(|threads| threads.sleepless_cores),
        held: PerResource::from_fn(|resource| now.held(resource)),
        charged_bytes: memory.map(|m| m.current_bytes as f64),
        unreclaimable_bytes: memory.map(|m| m.unreclaimable_bytes() as f64),
        anon_bytes: memory.and_then(|m| m.anon_bytes).map(|bytes| bytes as f64),
        unreclaimable_growth_bytes: held(before)
            .zip(held(now))
            .map(|(before, now)| now.saturating_sub(before) as f64),
        charged_growth_bytes: charged(before)
            .zip(charged(now))
            .map(|(before, now)| now.saturating_sub(before) as f64),
        stolen_bytes: stolen(before)
            .zip(stolen(now))
            .and_then(|(before, now)| now.checked_sub(before))
            .map(|mib| Bytes::mib(mib).0 as f64),
        refaulted_bytes: refaults(before)
            .zip(refaults(now))
            .and_then(|(before, now)| now.checked_sub(before))
            .map(|pages| pages as f64 * PAGE_BYTES),
        memory_some_ratio: rate(before.memory_some_usec, now.memory_some_usec).map(|r| r.min(1.0)),
        memory_full_ratio: rate(before.memory_full_usec, now.memory_full_usec).map(|r| r.min(1.0)),
        refaults_per_sec: rate(refaults(before), refaults(now)).map(|r| r * 1e6),
        io_some_ratio: rate(before.io_some_usec, now.io_some_usec).map(|r| r.min(1.0)),
        disks: disk::flows(before.disks.as_deref(), now.disks.as_deref(), elapsed),
        reclaimed: rose(|memory| memory.nr_low_events),
        met_limit: rose(|memory| memory.nr_max_events).unwrap_or(false),
        met_bound: rose(|memory| memory.nr_high_events),
        populated: now.populated.unwrap_or(true),
    })
}

/// Demand of a tenant's threads that were seen twice.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ThreadDemand {
    /// CPUs that they would use without waits; `None` if they do not represent the tenant.
    wanted_cores: Option<f64>,
    /// CPUs that those which never slept could use: one each.
    sleepless_cores: f64,
}

/// Computes the demand of a tenant's threads.
///
/// A thread runs for a part `r` of the interval, waits runnable for a part `w`, and sleeps for the rest.
/// Without waits it would run `r / (1 − w)` of the time: 1 for a thread that never sleeps, and `r` for one
/// that never waits. This lies between the usage and the number of runnable threads `r + w`, which
/// overstates a thread that ran late. `wanted_cores` is `None` if the threads seen twice did not use nearly all of the
/// `used_cores`, as in a build with many short processes; and `None` if their waits do not account for
/// `some_ratio`, as when no task has run at all.
fn thread_demand(
    before: &[ThreadSample],
    now: &[ThreadSample],
    elapsed: Duration,
    used_cores: f64,
    some_ratio: f64,
) -> ThreadDemand {
    let elapsed_nsec = elapsed.as_nanos() as f64;
    let (mut wanted, mut seen_cores, mut waited, mut sleepless_cores) = (0.0, 0.0, 0.0, 0.0);
    for thread in now {
        let Ok(index) = before.binary_search_by_key(&thread.tid, |t| t.tid) else { continue };
        let run = thread.run_nsec.checked_sub(before[index].run_nsec);
        let wait = thread.wait_nsec.checked_sub(before[index].wait_nsec);
        let (Some(run), Some(wait)) = (run, wait) else { continue };
        let run = (run as f64 / elapsed_nsec).min(1.0);
        let wait = (wait as f64 / elapsed_nsec).min(1.0);
        // Clocks of different CPUs are read a little apart; the rest of the interval is never negative.
        let awake = (1.0 - wait).max(run).max(f64::EPSILON);
        let thread_wants = if run > 0.0 { run / awake } else { wait };
        wanted += thread_wants.min(1.0);
        seen_cores += run;
        waited += wait;
        if run + wait >= SLEEPLESS_RATIO {
            sleepless_cores += 1.0;
        }
    }
    let tells = seen_cores >= SEEN_RATIO * used_cores && waited >= WAITED_RATIO * some_ratio;
    ThreadDemand { wanted_cores: tells.then_some(wanted), sleepless_cores }
}

/// CPUs used by processes outside every tenant: the host's busy time less `tenants_cores`.
///
/// `None` without two readings of the host. Never negative: counters are read one after another, so a
/// tenant may have run between them.
pub fn outside_cores(
    before: &HostSample,
    now: &HostSample,
    elapsed: Duration,
    tenants_cores: f64,
) -> Option<f64> {
    let busy_usec = now.busy_usec?.checked_sub(before.busy_usec?)? as f64;
    let elapsed_usec = elapsed.as_micros() as f64;
    (elapsed_usec > 0.0).then(|| (busy_usec / elapsed_usec - tenants_cores).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn cpu(generation: u64, usage_usec: u64) -> TenantSample {
        TenantSample { generation, usage_usec: Some(usage_usec), ..Default::default() }
    }

    fn thread(tid: u32, run_msec: u64, wait_msec: u64) -> ThreadSample {
        ThreadSample { tid, run_nsec: run_msec * 1_000_000, wait_nsec: wait_msec * 1_000_000 }
    }

    #[test]
    fn a_kill_is_counted_once_whoever_tells_of_it() {
        let mut kills = Kills::default();
        assert_eq!(kills.total(), None);
        kills.note(1, 5);
        assert_eq!(kills.total(), Some(0), "before the agent");
        kills.note(1, 6);
        kills.tell(1);
        assert_eq!(kills.total(), Some(1), "read and told");
        kills.tell(2);
        assert_eq!(kills.total(), Some(3), "two runs that no tick saw");
        kills.note(2, 0);
        kills.tell(1);
        assert_eq!(kills.total(), Some(4), "told and not read");
        kills.note(2, 1);
        assert_eq!(kills.total(), Some(4), "told and then read");
        kills.note(3, 2);
        assert_eq!(kills.total(), Some(6), "read and not told");
    }

    #[test]
    fn a_total_continues_over_recreated_cgroups_and_never_falls() {
        let mut kills = Tally::default();
        assert_eq!(kills.total(), None);
        for (generation, count, total) in [(1, 5, 0), (1, 7, 2), (1, 7, 2), (2, 1, 3), (2, 0, 3)] {
            kills.note(generation, count);
            assert_eq!(kills.total(), Some(total), "{count} in {generation}");
        }
    }

    #[test]
    fn totals_grow_over_a_recreated_cgroup_and_over_gaps() {
        let mut totals = Totals::default();
        assert_eq!(totals.cpu_usec.total(), None);
        for (generation, usage_usec, total) in
            [(1, Some(500), 0), (1, Some(900), 400), (1, None, 400), (2, Some(50), 450)]
        {
            totals.note(&TenantSample { generation, usage_usec, ..TenantSample::default() });
            assert_eq!(totals.cpu_usec.total(), Some(total), "{usage_usec:?} in {generation}");
        }
        assert_eq!(totals.cpu_some_usec.total(), None);
    }

    #[test]
    fn a_rate_is_a_difference_over_time() {
        let rates = usage(&cpu(1, 500_000), &cpu(1, 2_000_000), SECOND).unwrap();
        assert_eq!(rates.cpu_cores, 1.5);
        assert_eq!((rates.cpu_some_ratio, rates.used(Resource::Memory)), (None, None));
    }

    #[test]
    fn no_rate_for_a_recreated_cgroup_or_an_absent_counter() {
        assert_eq!(usage(&cpu(1, 500_000), &cpu(2, 2_000_000), SECOND), None);
        assert_eq!(usage(&cpu(1, 2_000_000), &cpu(1, 500_000), SECOND), None);
        assert_eq!(usage(&cpu(1, 1), &cpu(1, 1), Duration::ZERO), None);
        let absent = TenantSample { generation: 1, ..Default::default() };
        assert_eq!(usage(&absent, &cpu(1, 1), SECOND), None);
    }

    #[test]
    fn an_empty_cgroup_has_zero_usage() {
        let empty = TenantSample { generation: 1, populated: Some(false), ..Default::default() };
        let rates = usage(&cpu(1, 5), &empty, SECOND).unwrap();
        assert_eq!((rates.cpu_cores, rates.populated), (0.0, false));
    }

    #[test]
    fn a_spinning_thread_demands_a_whole_cpu() {
        let wants = |run, wait| {
            let used_cores = run as f64 / 1000.0;
            thread_demand(&[thread(1, 0, 0)], &[thread(1, run, wait)], SECOND, used_cores, 0.0)
                .wanted_cores
        };
        assert_eq!(wants(1000, 0), Some(1.0));
        assert!((wants(10, 990).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(wants(300, 0), Some(0.3));
        assert!((wants(300, 200).unwrap() - 0.375).abs() < 1e-9);
        assert_eq!(wants(0, 0), Some(0.0));
        assert_eq!(wants(0, 1000), Some(1.0));
    }

    #[test]
    fn threads_that_ran_or_waited_all_the_time_are_sleepless() {
        let before = [1, 2, 3].map(|tid| thread(tid, 0, 0));
        let now = [thread(1, 300, 690), thread(2, 1000, 0), thread(3, 500, 300)];
        assert_eq!(thread_demand(&before, &now, SECOND, 1.8, 0.5).sleepless_cores, 2.0);
    }

    #[test]
    fn short_lived_threads_give_no_demand() {
        let before = [thread(1, 0, 0), thread(2, 500, 0)];
        let now = [thread(2, 700, 0), thread(9, 900, 0)];
        assert!(
            (thread_demand(&before, &now, SECOND, 0.2, 0.0).wanted_cores.unwrap() - 0.2).abs()
                < 1e-9
        );
        assert_eq!(thread_demand(&before, &now, SECOND, 1.1, 0.0).wanted_cores, None);
        assert_eq!(thread_demand(&[], &now, SECOND, 0.9, 0.0).wanted_cores, None);
    }

    #[test]
    fn threads_that_have_not_run_give_no_waiting_time() {
        let asked = |wait, some| {
            thread_demand(&[thread(1, 5, 0)], &[thread(1, 5, wait)], SECOND, 0.0, some).wanted_cores
        };
        assert_eq!((asked(0, 1.0), asked(0, 0.0)), (None, Some(0.0)));
        assert_eq!(asked(1000, 1.0), Some(1.0));
    }

    #[test]
    fn the_working_set_leaves_out_cold_cache() {
        let memory = MemorySample {
            current_bytes: 100,
            inactive_file_bytes: 30,
            active_file_bytes: 20,
            ..Default::default()
        };
        assert_eq!((memory.working_set_bytes(), memory.unreclaimable_bytes()), (70, 50));
    }

    #[test]
    fn outside_use_is_what_the_tenants_did_not() {
        let host = |busy_usec| HostSample { busy_usec: Some(busy_usec), ..Default::default() };
        assert_eq!(outside_cores(&host(0), &host(1_500_000), SECOND, 1.0), Some(0.5));
        assert_eq!(outside_cores(&host(0), &host(1_000_000), SECOND, 1.01), Some(0.0));
        assert_eq!(outside_cores(&HostSample::default(), &host(1), SECOND, 0.0), None);
    }
}
