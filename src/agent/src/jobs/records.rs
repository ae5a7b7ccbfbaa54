//! Records of the jobs outside the queue, indexed by client and by process.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::cgroup::JobCgroup;
use super::finish_time::FinishTime;
use super::watch::is_alive;
use tenantd_admission::{Indices, JobId};
use tenantd_control::measure::death::Killer;
use tenantd_control::measure::sample::MemorySample;
use tenantd_dop::CpuSet;
use tenantd_host::devices::Device;
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::process;
use tenantd_host::valve::Valve;
use tenantd_varlink::bridge::Ticket;
use tenantd_varlink::jobs::{TaskSums, Waiting};

#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) ticket: Option<Ticket>,
    pub(crate) process: JobProcess,
    pub(crate) command: Option<String>,
    pub(crate) told: Option<Waiting>,
    pub(crate) home: Option<Home>,
    pub(crate) seen: Seen,
}

/// Observations for the record of the finished job.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Largest sample of its memory.
    pub(crate) peak_bytes: Option<u64>,
    /// Last sample of its memory that reclaim cannot take.
    pub(crate) held_bytes: Option<u64>,
    pub(crate) nr_oom_kills: Option<u64>,
    /// Cause of its last kill, where the kernel's log has it.
    pub(crate) killer: Option<Killer>,
    /// Kills in the log. A job without declared memory may have no counter of its own.
    pub(crate) nr_logged_kills: u64,
    /// True if its processes were listed for a cancellation.
    pub(crate) is_cancelled: bool,
    /// True if the daemon ended it for another job.
    pub(crate) is_evicted: bool,
    pub(crate) is_supervised: bool,
    /// Exit code or signal, as its supervisor reports it.
    pub(crate) reported: Option<(Option<u8>, Option<u8>)>,
    /// Sums of a set, as the process reports them that starts its tasks, and the indices that they use.
    pub(crate) tasks: TaskSums,
    pub(crate) in_use: Indices,
    pub(crate) finish_time: FinishTime,
}

impl Seen {
    pub(crate) fn note(&mut self, memory: Option<MemorySample>) {
        let Some(memory) = memory else { return };
        self.peak_bytes = self.peak_bytes.max(Some(memory.current_bytes));
        self.held_bytes = Some(memory.unreclaimable_bytes());
        self.nr_oom_kills = self.nr_oom_kills.max(memory.nr_oom_kills);
    }
}

#[derive(Clone, Debug)]
pub(crate) struct JobProcess {
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    /// Pidfd, if the kernel has one.
    pub(crate) handle: Option<Arc<OwnedFd>>,
}

impl JobProcess {
    /// True if the process runs, in any cgroup; true as well if that cannot be read.
    pub(crate) fn runs(&self, kernel: &mut impl KernFs, proc: DirId) -> bool {
        if let Some(handle) = &self.handle {
            return is_alive(handle);
        }
        process::birth(kernel, proc, self.pid).map_or(true, |birth| {
            birth.is_some_and(|it| it.start_ticks == self.start_ticks && !it.has_ended)
        })
    }
}

#[derive(Debug)]
pub(crate) struct Home {
    pub(crate) cgroup: JobCgroup,
    /// Below the mount.
    pub(crate) path: String,
    pub(crate) cpus: Option<CpuSet>,
    pub(crate) weight: Option<f64>,
    pub(crate) valve: Option<Valve>,
    pub(crate) ineffective: Vec<String>,
    /// True if the first process runs but the cgroup is empty or gone.
    pub(crate) is_left: bool,
    /// Tasks for which the declared memory is allowed; 1 for a single job, 0 before it is.
    pub(crate) nr_limited: u32,
    /// Indices for which its devices are set, and the devices that are closed to it.
    pub(crate) held: Indices,
    pub(crate) closed: BTreeSet<Device>,
}

impl Home {
    /// Adds a note for the user of the job, once.
    pub(super) fn add_note(&mut self, what: String) {
        if !self.ineffective.contains(&what) {
            self.ineffective.push(what);
        }
    }
}

/// All jobs by number, with indexes by client and by process.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: BTreeMap<JobId, Record>,
    of_tickets: HashMap<Ticket, JobId>,
    /// Last job of each pid.
    of_pids: HashMap<u32, JobId>,
}

impl Records {
    pub(crate) fn insert(&mut self, job: JobId, record: Record) {
        self.remove(&job);
        if let Some(ticket) = record.ticket {
            self.of_tickets.insert(ticket, job);
        }
        self.of_pids.insert(record.process.pid, job);
        self.all.insert(job, record);
    }

    pub(crate) fn remove(&mut self, job: &JobId) -> Option<Record> {
        let record = self.all.remove(job)?;
        // A later job may have reused the pid.
        if self.of_pids.get(&record.process.pid) == Some(job) {
            self.of_pids.remove(&record.process.pid);
        }
        if let Some(ticket) = record.ticket {
            self.of_tickets.remove(&ticket);
        }
        Some(record)
    }

    pub(crate) fn get_mut(&mut self, job: &JobId) -> Option<&mut Record> {
        self.all.get_mut(job)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&JobId, &mut Record)> {
        self.all.iter_mut()
    }

    pub(crate) fn of_ticket(&self, ticket: Ticket) -> Option<JobId> {
        self.of_tickets.get(&ticket).copied()
    }

    /// Sets the client of a job. Returns the former one.
    pub(crate) fn replace_ticket(&mut self, job: JobId, ticket: Ticket) -> Option<Ticket> {
        let before = self.take_ticket(job);
        if let Some(record) = self.all.get_mut(&job) {
            record.ticket = Some(ticket);
            self.of_tickets.insert(ticket, job);
        }
        before
    }

    pub(crate) fn take_ticket(&mut self, job: JobId) -> Option<Ticket> {
        let ticket = self.all.get_mut(&job)?.ticket.take()?;
        self.of_tickets.remove(&ticket);
        Some(ticket)
    }

    pub(crate) fn of_process(&self, pid: u32, start_ticks: u64) -> Option<JobId> {
        let job = *self.of_pids.get(&pid)?;
        let record = self.all.get(&job)?;
        (record.process.start_ticks == start_ticks).then_some(job)
    }

    /// Job whose first process has this number and has a cgroup.
    pub(crate) fn of_pid(&self, pid: u32) -> Option<JobId> {
        let job = *self.of_pids.get(&pid)?;
        self.all.get(&job)?.home.as_ref().map(|_| job)
    }

    pub(crate) fn has_process(&self, pid: u32, start_ticks: u64) -> bool {
        self.of_process(pid, start_ticks).is_some()
    }
}

/// Read-only, so that the two indexes stay consistent.
impl Deref for Records {
    type Target = BTreeMap<JobId, Record>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(ticket: u64, pid: u32, start_ticks: u64) -> Record {
        let process = JobProcess { pid, start_ticks, handle: None };
        let (command, told, home, seen) = (None, None, None, Seen::default());
        Record { ticket: Some(Ticket(ticket)), process, command, told, home, seen }
    }

    #[test]
    fn a_job_is_found_by_its_client_and_by_its_process() {
        let mut records = Records::default();
        records.insert(JobId(1), record(10, 7, 100));
        records.insert(JobId(2), record(11, 8, 100));
        assert_eq!(records.of_ticket(Ticket(11)), Some(JobId(2)));
        assert!(records.has_process(7, 100) && !records.has_process(7, 101));
        assert_eq!(records.take_ticket(JobId(2)), Some(Ticket(11)));
        assert_eq!((records.of_ticket(Ticket(11)), records.take_ticket(JobId(2))), (None, None));
        // The first process of a job has ended, and its pid was reused by another job.
        records.insert(JobId(3), record(12, 7, 200));
        assert!(records.has_process(7, 200));
        assert!(records.remove(&JobId(1)).is_some());
        assert!(records.has_process(7, 200), "it is not forgotten with the earlier one");
        assert!(records.remove(&JobId(3)).is_some() && records.remove(&JobId(3)).is_none());
        assert!(!records.has_process(7, 200));
        assert_eq!((records.len(), records.of_tickets.len(), records.of_pids.len()), (1, 0, 1));
    }
}
