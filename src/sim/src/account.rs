//! Counters of one cgroup: CPU time, and pages by kind.

/// Counters of `cpu.stat`, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CpuAccount {
    pub(super) usage_nsec: f64,
    pub(super) system_nsec: f64,
    pub(super) nr_periods: u64,
    pub(super) nr_throttled: u64,
    pub(super) throttled_nsec: f64,
    /// Time since the current period of its quota began.
    pub(super) period_elapsed_nsec: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Anon,
    ActiveFile,
    InactiveFile,
    Kernel,
    /// Locked into memory (`mlock`): never reclaimed.
    Locked,
    /// Anonymous pages in swap, which hold no memory.
    Swapped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pages([u64; 6]);

impl Pages {
    pub(super) fn of(&self, kind: Kind) -> u64 {
        self.0[kind as usize]
    }

    pub(super) fn file(&self) -> u64 {
        self.of(Kind::ActiveFile) + self.of(Kind::InactiveFile)
    }

    /// Memory that a process cannot do without: anonymous pages, in memory or in swap, and locked pages.
    pub(super) fn anonymous(&self) -> u64 {
        self.of(Kind::Anon) + self.of(Kind::Locked) + self.of(Kind::Swapped)
    }

    pub(super) fn resident(&self) -> u64 {
        self.0.iter().sum::<u64>() - self.of(Kind::Swapped)
    }

    pub(super) fn add(&mut self, other: &Pages) {
        self.0.iter_mut().zip(other.0).for_each(|(mine, theirs)| *mine += theirs);
    }

    pub(super) fn of_mut(&mut self, kind: Kind) -> &mut u64 {
        &mut self.0[kind as usize]
    }
}

/// `memory.events`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryEvents {
    pub(super) low: u64,
    pub(super) high: u64,
    pub(super) max: u64,
    pub(super) oom: u64,
    pub(super) oom_kill: u64,
    pub(super) oom_group_kill: u64,
}

/// Growing counters of `memory.stat`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemoryCounters {
    pub(super) refault_file: u64,
    /// Pages read back from swap.
    pub(super) refault_anon: u64,
    pub(super) swap_out: u64,
    pub(super) fault: u64,
    pub(super) major_fault: u64,
    pub(super) scan_background: u64,
    pub(super) scan_direct: u64,
    pub(super) steal_background: u64,
    pub(super) steal_direct: u64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct MemoryAccount {
    /// Charged here and not below.
    pub(super) local: Pages,
    /// Part of `local` without a living process: file pages of processes that ended.
    pub(super) orphans: Pages,
    /// Processes with charges here, ascending.
    pub(super) chargers: Vec<u32>,
    /// Pages charged here and below: `memory.current`.
    pub(super) usage: u64,
    pub(super) peak: u64,
    /// Pages in swap, here and below: `memory.swap.current`.
    pub(super) swapped: u64,
    pub(super) events: MemoryEvents,
    pub(super) local_events: MemoryEvents,
    pub(super) counters: MemoryCounters,
    pub(super) local_counters: MemoryCounters,
    /// Charges that the legacy limit refused.
    pub(super) failcnt: u64,
}
