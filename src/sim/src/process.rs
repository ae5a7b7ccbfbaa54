//! Processes: identity, cgroups, and usage.

use super::account::{Kind, Pages};
use super::charges::Charges;
use super::parse::PAGE_BYTES;
use super::rates::{quarters, whole_and_rest};
use super::tree::CgroupId;
use super::workload::{Load, Trace};

#[derive(Clone, Copy, Debug)]
pub(super) struct Thread {
    pub(super) tid: u32,
    pub(super) run_nsec: f64,
    pub(super) wait_nsec: f64,
}

#[derive(Clone, Debug)]
pub(super) struct Process {
    pub(super) name: String,
    pub(super) uid: u32,
    /// Real user, if it differs.
    pub(super) real_uid: Option<u32>,
    pub(super) gid: u32,
    /// Thousandths of the memory that the OOM killer adds to its pages, -1000 ..= 1000.
    pub(super) oom_score_adj: i16,
    pub(super) started_nsec: u64,
    pub(super) trace: Trace,
    pub(super) load: Load,
    pub(super) cgroups: Vec<CgroupId>,
    pub(super) threads: Vec<Thread>,
    pub(super) user_nsec: f64,
    pub(super) system_nsec: f64,
    /// Its pages by the charged cgroup: they stay there when the process moves.
    pub(super) charges: Charges,
    /// Hot file pages read at least once; reading them again is a refault.
    pub(super) hot_pages_seen: u64,
    /// Pages already read of the files that it reads once.
    pub(super) cold_pages_seen: u64,
    /// Bytes read from files: all, and those from disk.
    pub(super) read_bytes: u64,
    pub(super) disk_read_bytes: u64,
    /// Part of the latter that it had read before.
    pub(super) refault_bytes: u64,
    /// Memory touched repeatedly: its work, if bound by memory.
    pub(super) touched_bytes: f64,
    pub(super) touch_remainder: [f64; 6],
    pub(super) stall: Stall,
}

/// Usage of a process since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessUsage {
    /// CPU time of all its threads.
    pub run_nsec: f64,
    /// Time that its threads waited for a CPU, summed.
    pub wait_nsec: f64,
    /// Memory held now, including file pages.
    pub memory_bytes: u64,
    /// Bytes read again from disk or swap.
    pub refault_bytes: u64,
    /// Bytes of its anonymous memory and hot files that it touched repeatedly: its work, if bound by memory.
    pub touched_bytes: f64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Stall {
    /// Outstanding sleep for memory: throttling at `memory.high`, reclaim, refaults.
    pub(super) memory_sec: f64,
    pub(super) io_sec: f64,
    /// Part of each thread's time spent on memory in this step, 0 ..= 1.
    pub(super) memory_ratio: f64,
    /// Part of each thread's time spent on files; the two sum to at most 1.
    pub(super) io_ratio: f64,
    awake_ratio: f64,
}

impl Default for Stall {
    fn default() -> Self {
        Stall { memory_sec: 0.0, io_sec: 0.0, memory_ratio: 0.0, io_ratio: 0.0, awake_ratio: 1.0 }
    }
}

impl Stall {
    pub(super) fn awake_ratio(&self) -> f64 {
        self.awake_ratio
    }

    pub(super) fn is_over(&self) -> bool {
        [self.memory_sec, self.io_sec, self.memory_ratio, self.io_ratio] == [0.0; 4]
    }

    /// Pays outstanding sleep for up to `dt_sec`, with all threads at once.
    pub(super) fn pay(&mut self, dt_sec: f64, threads: u32) {
        let owed = self.memory_sec + self.io_sec;
        if owed == 0.0 {
            *self = Stall::default();
            return;
        }
        let paid = owed.min(dt_sec * f64::from(threads));
        let part = paid / owed;
        let per_thread = part / (dt_sec * f64::from(threads));
        self.memory_ratio = self.memory_sec * per_thread;
        self.io_ratio = self.io_sec * per_thread;
        self.awake_ratio = (1.0 - self.memory_ratio - self.io_ratio).max(0.0);
        self.memory_sec *= 1.0 - part;
        self.io_sec *= 1.0 - part;
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Lack {
    pub(super) locked: bool,
    /// In memory and in swap together.
    pub(super) anon: bool,
    /// Pages in swap or of files.
    pub(super) other: bool,
}

impl Process {
    pub(super) fn pages(&self) -> Pages {
        self.charges.pages()
    }

    /// Missing memory of its load, or memory to release.
    #[inline]
    pub(super) fn lack(&self) -> Lack {
        let (pages, load) = (self.pages(), &self.load);
        let anon = pages.of(Kind::Anon) + pages.of(Kind::Swapped);
        Lack {
            locked: pages.of(Kind::Locked) != load.locked_bytes / PAGE_BYTES,
            anon: anon != load.working_set_bytes / PAGE_BYTES,
            other: pages.of(Kind::Swapped) > 0
                || pages.of(Kind::ActiveFile) < load.hot_file_bytes / PAGE_BYTES
                || self.cold_pages_seen < load.cache_bytes / PAGE_BYTES,
        }
    }

    /// Number of pages of one kind that it touches in `dt_sec`; `ratio` of the accesses meet a missing one.
    pub(super) fn touched(&mut self, kind: Kind, dt_sec: f64, ratio: f64) -> u64 {
        let speed = self.load.touch_bytes_per_sec as f64 / PAGE_BYTES as f64;
        let remainder = &mut self.touch_remainder[kind as usize];
        let pages = speed * dt_sec * ratio * self.stall.awake_ratio() + *remainder;
        let (whole, rest) = whole_and_rest(pages);
        *remainder = rest;
        whole
    }

    /// Counts the touched bytes of its memory and its hot files in `nr_steps` of `dt_nsec`.
    pub(super) fn go_over(&mut self, dt_nsec: u64, nr_steps: u64) {
        let has_hot_files = self.load.hot_file_bytes >= PAGE_BYTES;
        if self.load.working_set_bytes == 0 && self.load.hot_file_bytes == 0 {
            return;
        }
        let speed = self.load.touch_bytes_per_sec as f64 * self.stall.awake_ratio();
        let reach = speed * (dt_nsec as f64 * 1e-9);
        self.touched_bytes += quarters(reach) * nr_steps as f64;
        if has_hot_files {
            self.read_bytes += whole_and_rest(reach).0 * nr_steps;
        }
    }

    pub(super) fn usage(&self) -> ProcessUsage {
        ProcessUsage {
            run_nsec: self.user_nsec + self.system_nsec,
            wait_nsec: self.threads.iter().map(|thread| thread.wait_nsec).sum(),
            memory_bytes: self.pages().resident() * PAGE_BYTES,
            refault_bytes: self.refault_bytes,
            touched_bytes: self.touched_bytes,
        }
    }

    /// CPUs that all threads want together while memory and disk permit work.
    pub(super) fn cpu_demand(&self) -> f64 {
        f64::from(self.load.threads) * self.load.duty * self.stall.awake_ratio()
    }
}
