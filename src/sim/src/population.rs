//! Cgroups and the processes in them.

use std::time::Duration;

use super::charges::Charges;
use super::controller::Controller;
use super::host::STEP_NSEC;
use super::process::{Process, Stall, Thread};
use super::processes::ByPid;
use super::tree::{CgroupId, Tree};
use super::workload::{Load, Trace, Workload};

/// Changes since rates of CPU time were computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Changed {
    Nothing,
    /// Stalls, which only change demands.
    Stalls,
    /// Cgroups, processes, loads or CPUs.
    Everything,
}

#[derive(Debug)]
pub(super) struct Population {
    pub(super) tree: Tree,
    pub(super) processes: ByPid<Process>,
    pub(super) caller: u32,
    pub(super) changed: Changed,
    /// Time in nanoseconds since boot before which no trace changes its load.
    pub(super) steady_until_nsec: u64,
    /// Newest records of the kernel's log.
    pub(super) log: Vec<String>,
    next_pid: u32,
}

impl Population {
    pub(super) fn new(tree: Tree) -> Population {
        let (processes, changed) = (ByPid::default(), Changed::Everything);
        let log = Vec::new();
        Population { tree, processes, caller: 0, changed, steady_until_nsec: 0, log, next_pid: 1 }
    }

    /// Adds a process without threads and memory: its load is not applied yet.
    pub(super) fn start(&mut self, cgroups: Vec<CgroupId>, work: &Workload, now_nsec: u64) -> u32 {
        let pid = self.next_pid;
        for &id in &cgroups {
            self.tree[id].processes.insert(pid);
        }
        self.processes.insert(
            pid,
            Process {
                name: work.name.chars().take(15).collect(),
                uid: work.uid,
                real_uid: None,
                oom_score_adj: 0,
                gid: work.gid,
                started_nsec: now_nsec,
                trace: work.trace,
                load: Load::idle(),
                cgroups,
                threads: Vec::new(),
                user_nsec: 0.0,
                system_nsec: 0.0,
                charges: Charges::default(),
                hot_pages_seen: 0,
                cold_pages_seen: 0,
                read_bytes: 0,
                disk_read_bytes: 0,
                refault_bytes: 0,
                touched_bytes: 0.0,
                touch_remainder: [0.0; 6],
                stall: Stall::default(),
            },
        );
        pid
    }

    /// Sets the load of a process and the number of its threads.
    pub(super) fn set_load(&mut self, pid: u32, load: Load) {
        let next_pid = &mut self.next_pid;
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.load = load;
        self.steady_until_nsec = 0;
        process.threads.truncate(load.threads as usize);
        while process.threads.len() < load.threads as usize {
            let tid = if process.threads.is_empty() { pid } else { *next_pid };
            *next_pid = (*next_pid).max(tid + 1);
            process.threads.push(Thread { tid, run_nsec: 0.0, wait_nsec: 0.0 });
        }
        self.changed = Changed::Everything;
    }

    /// Loads that traces change by now, and the time before which no trace changes another.
    pub(super) fn due_loads(&self, now_nsec: u64) -> (Vec<(u32, Load)>, u64) {
        let mut changed: Vec<(u32, Load)> = Vec::new();
        let mut steady_nsec = u64::MAX;
        for (&pid, process) in self.processes.iter() {
            if matches!(process.trace, Trace::Constant(_)) {
                continue;
            }
            let age = Duration::from_nanos(now_nsec - process.started_nsec);
            let load = process.trace.at(age).clamped();
            if load != process.load {
                changed.push((pid, load));
            }
            // Edges are not exact to the nanosecond: the steps around one are taken singly.
            let before = age.saturating_sub(Duration::from_nanos(STEP_NSEC));
            let steady_for = process.trace.steady_for(before).saturating_sub(3 * STEP_NSEC);
            steady_nsec = steady_nsec.min(steady_for);
        }
        (changed, now_nsec.saturating_add(steady_nsec))
    }

    pub(super) fn end(&mut self, pid: u32) {
        let Some(process) = self.processes.remove(&pid) else { return };
        for id in &process.cgroups {
            self.tree[*id].processes.remove(&pid);
        }
        self.release(pid, &process);
        self.changed = Changed::Everything;
    }

    /// True for processes that the kernel never kills: the first one and the caller.
    pub(super) fn is_exempt(&self, pid: u32) -> bool {
        pid == 1 || pid == self.caller
    }

    pub(super) fn memory_root(&self) -> CgroupId {
        self.tree.root_of(Controller::Memory)
    }
}
