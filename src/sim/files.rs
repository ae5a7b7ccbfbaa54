//! The interface files of the unified hierarchy: which there are, what they say, what they accept.
//!
//! Source: Documentation/admin-guide/cgroup-v2.rst, and for errno and clamps the file's `write` function
//! in kernel/cgroup, kernel/sched/core.c and mm/memcontrol.c.

use nix::errno::Errno;

use super::controller::Controller;
use super::files_v1;
use super::kernel::SimKernel;
use super::memory::{Kind, MemoryEvents};
use super::parse::{self, PAGE_BYTES, PAGES_MAX};
use super::pressure::Resource;
use super::reclaim::Reason;
use super::tree::{CgroupId, Version};

/// What may be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
    ReadWrite,
}

/// Whether the root of a hierarchy has the file too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Everywhere,
    BelowRoot,
}

/// One kind of interface file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) file: File,
    /// The controller that brings it; `None` for the core's own.
    pub(super) controller: Option<Controller>,
    pub(super) place: Place,
    pub(super) mode: Mode,
}

/// The bounds of memory in the unified hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Min,
    Low,
    High,
    Max,
    SwapMax,
}

/// The files of the unified hierarchy, and those of the legacy one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Type,
    Procs,
    Threads,
    Controllers,
    SubtreeControl,
    Events,
    MaxDescendants,
    MaxDepth,
    Stat,
    Freeze,
    Kill,
    ShowsPressure,
    Pressure(Resource),
    CpuStat,
    CpuWeight,
    CpuMax,
    CpusetCpus,
    CpusetCpusEffective,
    CpusetMems,
    CpusetMemsEffective,
    CpusetPartition,
    IoStat,
    MemoryCurrent,
    MemoryPeak,
    MemoryBound(Bound),
    MemoryEvents,
    MemoryEventsLocal,
    MemoryStat,
    MemoryOomGroup,
    MemoryReclaim,
    MemorySwapCurrent,
    PidsCurrent,
    PidsMax,
    Legacy(files_v1::File),
}

const fn spec(
    name: &'static str,
    file: File,
    controller: Option<Controller>,
    place: Place,
    mode: Mode,
) -> Spec {
    Spec { name, file, controller, place, mode }
}

/// The files of the unified hierarchy, in the order of a directory listing of no particular kernel.
pub(super) const UNIFIED: &[Spec] = {
    use Controller::{Cpu, Cpuset, Io, Memory, Pids};
    use Mode::{Read, ReadWrite, Write};
    use Place::{BelowRoot, Everywhere};
    &[
        spec("cgroup.type", File::Type, None, BelowRoot, ReadWrite),
        spec("cgroup.procs", File::Procs, None, Everywhere, ReadWrite),
        spec("cgroup.threads", File::Threads, None, Everywhere, ReadWrite),
        spec("cgroup.controllers", File::Controllers, None, Everywhere, Read),
        spec("cgroup.subtree_control", File::SubtreeControl, None, Everywhere, ReadWrite),
        spec("cgroup.events", File::Events, None, BelowRoot, Read),
        spec("cgroup.max.descendants", File::MaxDescendants, None, Everywhere, ReadWrite),
        spec("cgroup.max.depth", File::MaxDepth, None, Everywhere, ReadWrite),
        spec("cgroup.stat", File::Stat, None, Everywhere, Read),
        spec("cgroup.freeze", File::Freeze, None, BelowRoot, ReadWrite),
        spec("cgroup.kill", File::Kill, None, BelowRoot, Write),
        spec("cgroup.pressure", File::ShowsPressure, None, Everywhere, ReadWrite),
        spec("cpu.pressure", File::Pressure(Resource::Cpu), None, Everywhere, ReadWrite),
        spec("memory.pressure", File::Pressure(Resource::Memory), None, Everywhere, ReadWrite),
        spec("io.pressure", File::Pressure(Resource::Io), None, Everywhere, ReadWrite),
        spec("cpu.stat", File::CpuStat, None, Everywhere, Read),
        spec("cpu.weight", File::CpuWeight, Some(Cpu), BelowRoot, ReadWrite),
        spec("cpu.max", File::CpuMax, Some(Cpu), BelowRoot, ReadWrite),
        spec("cpuset.cpus", File::CpusetCpus, Some(Cpuset), BelowRoot, ReadWrite),
        spec("cpuset.cpus.effective", File::CpusetCpusEffective, Some(Cpuset), Everywhere, Read),
        spec("cpuset.mems", File::CpusetMems, Some(Cpuset), BelowRoot, ReadWrite),
        spec("cpuset.mems.effective", File::CpusetMemsEffective, Some(Cpuset), Everywhere, Read),
        spec("cpuset.cpus.partition", File::CpusetPartition, Some(Cpuset), BelowRoot, Read),
        spec("io.stat", File::IoStat, Some(Io), Everywhere, Read),
        spec("memory.current", File::MemoryCurrent, Some(Memory), BelowRoot, Read),
        spec("memory.peak", File::MemoryPeak, Some(Memory), BelowRoot, Read),
        spec("memory.min", File::MemoryBound(Bound::Min), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.low", File::MemoryBound(Bound::Low), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.high", File::MemoryBound(Bound::High), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.max", File::MemoryBound(Bound::Max), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.events", File::MemoryEvents, Some(Memory), BelowRoot, Read),
        spec("memory.events.local", File::MemoryEventsLocal, Some(Memory), BelowRoot, Read),
        spec("memory.stat", File::MemoryStat, Some(Memory), Everywhere, Read),
        spec("memory.oom.group", File::MemoryOomGroup, Some(Memory), BelowRoot, ReadWrite),
        spec("memory.reclaim", File::MemoryReclaim, Some(Memory), Everywhere, Write),
        spec("memory.swap.current", File::MemorySwapCurrent, Some(Memory), BelowRoot, Read),
        spec(
            "memory.swap.max",
            File::MemoryBound(Bound::SwapMax),
            Some(Memory),
            BelowRoot,
            ReadWrite,
        ),
        spec("pids.current", File::PidsCurrent, Some(Pids), BelowRoot, Read),
        spec("pids.max", File::PidsMax, Some(Pids), BelowRoot, ReadWrite),
    ]
};

impl SimKernel {
    /// The interface file `name` of a cgroup, if it has one.
    pub(super) fn spec(&self, id: CgroupId, name: &str) -> Option<&'static Spec> {
        let cgroup = self.tree.get(id)?;
        let table = match self.tree.version(id) {
            Version::V2 => UNIFIED,
            Version::V1 => files_v1::LEGACY,
        };
        let spec = table.iter().find(|spec| spec.name == name)?;
        let enabled = spec.controller.is_none_or(|c| cgroup.controllers.contains(c));
        let placed = spec.place == Place::Everywhere || cgroup.parent.is_some();
        let shown = !matches!(spec.file, File::Pressure(_)) || cgroup.shows_pressure;
        (enabled && placed && shown).then_some(spec)
    }

    /// The text of a file.
    pub(super) fn show(&self, id: CgroupId, file: File) -> Result<String, Errno> {
        let cgroup = self.tree.get(id).ok_or(Errno::ENODEV)?;
        let or_max = |value: Option<u64>| value.map_or("max\n".into(), |v| format!("{v}\n"));
        Ok(match file {
            File::Type => "domain\n".into(),
            File::Procs => cgroup.processes.iter().map(|pid| format!("{pid}\n")).collect(),
            File::Threads => self.show_threads(id),
            File::Controllers => cgroup.controllers.line(),
            File::SubtreeControl => cgroup.subtree_control.line(),
            File::Events => format!(
                "populated {}\nfrozen {}\n",
                u8::from(self.tree.is_populated(id)),
                u8::from(self.tree.is_frozen(id))
            ),
            File::MaxDescendants => or_max(cgroup.max_descendants),
            File::MaxDepth => or_max(cgroup.max_depth),
            File::Stat => format!(
                "nr_descendants {}\nnr_dying_descendants 0\n",
                self.tree.subtree(id).len() - 1
            ),
            File::Freeze => format!("{}\n", u8::from(cgroup.frozen)),
            File::ShowsPressure => format!("{}\n", u8::from(cgroup.shows_pressure)),
            File::Pressure(_) if !self.host.psi => return Err(Errno::EOPNOTSUPP),
            File::Pressure(resource) => cgroup.pressure.text(resource),
            File::CpuStat => self.show_cpu_stat(id),
            File::CpuWeight => format!("{}\n", cgroup.cpu.weight),
            File::CpuMax => {
                let bandwidth = cgroup.cpu.bandwidth;
                let quota = bandwidth.quota_usec.map_or("max".into(), |quota| quota.to_string());
                format!("{quota} {}\n", bandwidth.period_usec)
            }
            File::CpusetCpus => parse::format_list(&cgroup.cpuset.cpus) + "\n",
            File::CpusetCpusEffective => {
                parse::format_list(&self.tree.effective_cpus(id, &self.online)) + "\n"
            }
            File::CpusetMems => parse::format_list(&cgroup.cpuset.mems) + "\n",
            File::CpusetMemsEffective => match cgroup.cpuset.mems.is_empty() {
                true => parse::format_list(&(0..self.host.numa_nodes.max(1)).collect()) + "\n",
                false => parse::format_list(&cgroup.cpuset.mems) + "\n",
            },
            File::CpusetPartition => "member\n".into(),
            File::IoStat => String::new(),
            File::MemoryCurrent => bytes(cgroup.memory_account.usage),
            File::MemoryPeak => bytes(cgroup.memory_account.peak),
            File::MemoryBound(bound) => match self.bound(id, bound) {
                PAGES_MAX => "max\n".into(),
                pages => bytes(pages),
            },
            File::MemoryEvents => show_events(&cgroup.memory_account.events),
            File::MemoryEventsLocal => show_events(&cgroup.memory_account.local_events),
            File::MemoryStat => self.show_memory_stat(id),
            File::MemoryOomGroup => format!("{}\n", u8::from(cgroup.memory.oom_group)),
            File::MemorySwapCurrent => "0\n".into(),
            File::PidsCurrent => format!("{}\n", self.nr_processes(id)),
            File::PidsMax => or_max(cgroup.pids_max),
            File::Legacy(file) => return self.show_legacy(id, file),
            File::Kill | File::MemoryReclaim => return Err(Errno::EINVAL),
        })
    }

    /// Writes a file. A write of nothing does nothing, as in the kernel.
    pub(super) fn store(&mut self, id: CgroupId, spec: &Spec, text: &str) -> Result<(), Errno> {
        if self.tree.get(id).is_none() {
            return Err(Errno::ENODEV);
        }
        if text.is_empty() {
            return Ok(());
        }
        if text.len() as u64 > PAGE_BYTES {
            return Err(Errno::E2BIG);
        }
        if spec.mode == Mode::Read {
            return Err(Errno::EINVAL);
        }
        self.rates = None;
        match spec.file {
            File::Procs | File::Threads => self.write_procs(id, text),
            File::SubtreeControl => self.write_subtree_control(id, text),
            File::MaxDescendants => {
                self.tree[id].max_descendants = count_or_max(text)?;
                Ok(())
            }
            File::MaxDepth => {
                self.tree[id].max_depth = count_or_max(text)?;
                Ok(())
            }
            File::PidsMax => {
                self.tree[id].pids_max = pids_max(text)?;
                Ok(())
            }
            File::Freeze => {
                self.tree[id].frozen = parse::switch(text)?;
                Ok(())
            }
            File::Kill => self.write_kill(id, text),
            File::ShowsPressure => {
                self.tree[id].shows_pressure = parse::switch(text)?;
                Ok(())
            }
            File::CpuWeight => self.write_cpu_weight(id, text),
            File::CpuMax => {
                let knobs = &mut self.tree[id].cpu;
                knobs.bandwidth = knobs.bandwidth.parse(text)?;
                Ok(())
            }
            File::CpusetCpus => self.write_cpus(id, text),
            File::CpusetMems => self.write_mems(id, text),
            File::MemoryBound(bound) => self.write_bound(id, bound, parse::pages(text, "max")?),
            File::MemoryOomGroup => {
                // Anything but 0 and 1 is EINVAL here, where other switches say ERANGE.
                let group = parse::switch(text).map_err(|_| Errno::EINVAL)?;
                self.tree[id].memory.oom_group = group;
                Ok(())
            }
            File::MemoryReclaim => self.write_reclaim(id, text),
            File::Legacy(file) => self.store_legacy(id, file, text),
            // Threaded cgroups and pressure triggers are not simulated.
            _ => Err(Errno::EINVAL),
        }
    }

    fn show_threads(&self, id: CgroupId) -> String {
        let members = self.tree[id].processes.iter().filter_map(|pid| self.processes.get(pid));
        members.flat_map(|p| &p.threads).map(|thread| format!("{}\n", thread.tid)).collect()
    }

    fn show_cpu_stat(&self, id: CgroupId) -> String {
        let cgroup = &self.tree[id];
        let account = &cgroup.cpu_account;
        let usage_usec = (account.usage_nsec / 1000.0) as u64;
        let system_usec = ((account.system_nsec / 1000.0) as u64).min(usage_usec);
        let mut text = format!(
            "usage_usec {usage_usec}\nuser_usec {}\nsystem_usec {system_usec}\n",
            usage_usec - system_usec
        );
        if cgroup.controllers.contains(Controller::Cpu) && cgroup.parent.is_some() {
            text += &format!(
                "nr_periods {}\nnr_throttled {}\nthrottled_usec {}\nnr_bursts 0\nburst_usec 0\n",
                account.nr_periods as u64,
                account.nr_throttled as u64,
                (account.throttled_nsec / 1000.0) as u64
            );
        }
        text
    }

    /// `memory.stat` in the order of `memory_stats[]` and `memcg_vm_event_stat[]` of mm/memcontrol.c.
    fn show_memory_stat(&self, id: CgroupId) -> String {
        let pages = self.pages_below(id);
        let of = |kind| pages.of(kind) * PAGE_BYTES;
        let counters = &self.tree[id].memory_account.counters;
        let scanned = counters.scan_background + counters.scan_direct;
        let stolen = counters.steal_background + counters.steal_direct;
        let lines: &[(&str, u64)] = &[
            ("anon", of(Kind::Anon)),
            ("file", pages.file() * PAGE_BYTES),
            ("kernel", of(Kind::Kernel)),
            ("kernel_stack", of(Kind::Kernel)),
            ("pagetables", 0),
            ("sec_pagetables", 0),
            ("percpu", 0),
            ("sock", 0),
            ("vmalloc", 0),
            ("shmem", 0),
            ("file_mapped", 0),
            ("file_dirty", 0),
            ("file_writeback", 0),
            ("swapcached", 0),
            ("anon_thp", 0),
            ("file_thp", 0),
            ("shmem_thp", 0),
            ("inactive_anon", 0),
            ("active_anon", of(Kind::Anon)),
            ("inactive_file", of(Kind::InactiveFile)),
            ("active_file", of(Kind::ActiveFile)),
            ("unevictable", 0),
            ("slab_reclaimable", 0),
            ("slab_unreclaimable", 0),
            ("slab", 0),
            ("workingset_refault_anon", 0),
            ("workingset_refault_file", counters.refault_file),
            ("workingset_activate_anon", 0),
            ("workingset_activate_file", counters.refault_file),
            ("workingset_restore_anon", 0),
            ("workingset_restore_file", counters.refault_file),
            ("workingset_nodereclaim", 0),
            ("pgdemote_kswapd", 0),
            ("pgdemote_direct", 0),
            ("pgdemote_khugepaged", 0),
            ("pgscan", scanned),
            ("pgsteal", stolen),
            ("pgscan_kswapd", counters.scan_background),
            ("pgscan_direct", counters.scan_direct),
            ("pgscan_khugepaged", 0),
            ("pgsteal_kswapd", counters.steal_background),
            ("pgsteal_direct", counters.steal_direct),
            ("pgsteal_khugepaged", 0),
            ("pgfault", counters.fault),
            ("pgmajfault", counters.major_fault),
            ("pgrefill", 0),
            ("pgactivate", 0),
            ("pgdeactivate", 0),
            ("pglazyfree", 0),
            ("pglazyfreed", 0),
            ("thp_fault_alloc", 0),
            ("thp_collapse_alloc", 0),
        ];
        lines.iter().map(|(name, value)| format!("{name} {value}\n")).collect()
    }

    fn bound(&self, id: CgroupId, bound: Bound) -> u64 {
        let knobs = &self.tree[id].memory;
        match bound {
            Bound::Min => knobs.min,
            Bound::Low => knobs.low,
            Bound::High => knobs.high,
            Bound::Max => knobs.max,
            Bound::SwapMax => knobs.swap_max,
        }
    }

    /// Moves a process, and with it all of its threads; 0 is the caller itself.
    pub(super) fn write_procs(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        let pid = match parse::signed(text.trim()) {
            Ok(0) => self.caller(),
            Ok(number) => u32::try_from(number).map_err(|_| Errno::EINVAL)?,
            Err(_) => return Err(Errno::EINVAL),
        };
        self.attach(id, pid)
    }

    fn write_kill(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        if !parse::switch(text)? {
            return Err(Errno::ERANGE);
        }
        for id in self.tree.subtree(id) {
            let members: Vec<u32> = self.tree[id].processes.iter().copied().collect();
            members
                .into_iter()
                .filter(|&pid| !self.is_exempt(pid))
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|pid| self.end_process(pid));
        }
        Ok(())
    }

    /// The scheduler keeps the weight as shares of 1024, so that 1, 2 and 4 become 10, 20 and 41.
    fn write_cpu_weight(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        let weight = parse::unsigned(text)?;
        if !(1..=10_000).contains(&weight) {
            return Err(Errno::ERANGE);
        }
        let knobs = &mut self.tree[id].cpu;
        knobs.weight = weight;
        knobs.shares = (weight * 1024 + 50) / 100;
        Ok(())
    }

    fn write_cpus(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        let cpus = parse::cpu_list(text, self.host.cpus.max(1))?;
        let was_set = !self.tree[id].cpuset.cpus.is_empty();
        if cpus.is_empty() && was_set && self.tree.is_populated(id) {
            return Err(Errno::ENOSPC);
        }
        self.tree[id].cpuset.cpus = cpus;
        Ok(())
    }

    fn write_mems(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        // A node beyond the possible ones is ERANGE, one without memory EINVAL; here every node has some.
        let mems = parse::cpu_list(text, self.host.numa_nodes.max(1)).map_err(|_| Errno::EINVAL)?;
        let was_set = !self.tree[id].cpuset.mems.is_empty();
        if mems.is_empty() && was_set && self.tree.is_populated(id) {
            return Err(Errno::ENOSPC);
        }
        self.tree[id].cpuset.mems = mems;
        Ok(())
    }

    /// A lower `memory.high` or `memory.max` takes effect at once: it reclaims, and `max` kills.
    pub(super) fn write_bound(
        &mut self,
        id: CgroupId,
        bound: Bound,
        pages: u64,
    ) -> Result<(), Errno> {
        let knobs = &mut self.tree[id].memory;
        match bound {
            Bound::Min => knobs.min = pages,
            Bound::Low => knobs.low = pages,
            Bound::High => knobs.high = pages,
            Bound::Max => knobs.max = pages,
            Bound::SwapMax => knobs.swap_max = pages,
        }
        let excess = |kernel: &Self| kernel.tree[id].memory_account.usage.saturating_sub(pages);
        if matches!(bound, Bound::High | Bound::Max) {
            self.reclaim(id, excess(self), Reason::Direct);
        }
        while bound == Bound::Max && excess(self) > 0 {
            let before = self.processes.len();
            self.out_of_memory(id);
            self.reclaim(id, excess(self), Reason::Direct);
            if self.processes.len() == before {
                break;
            }
        }
        Ok(())
    }

    /// `memory.reclaim`: EAGAIN where less came than was asked for.
    fn write_reclaim(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        let wanted = parse::pages(text, "")?;
        match self.reclaim(id, wanted, Reason::Direct) {
            reclaimed if reclaimed < wanted => Err(Errno::EAGAIN),
            _ => Ok(()),
        }
    }
}

/// `bytes\n` of a number of pages.
pub(super) fn bytes(pages: u64) -> String {
    format!("{}\n", pages * PAGE_BYTES)
}

fn show_events(events: &MemoryEvents) -> String {
    format!(
        "low {}\nhigh {}\nmax {}\noom {}\noom_kill {}\noom_group_kill {}\n",
        events.low, events.high, events.max, events.oom, events.oom_kill, events.oom_group_kill
    )
}

/// `cgroup.max.*`: a number that fits an `int`, or `max`.
fn count_or_max(text: &str) -> Result<Option<u64>, Errno> {
    if text.trim() == "max" {
        return Ok(None);
    }
    match parse::signed(text.trim())? {
        count @ 0..=0x7fff_ffff => Ok(Some(count as u64)),
        _ => Err(Errno::ERANGE),
    }
}

/// `pids.max`: as `cgroup.max.*`, but EINVAL for what is out of range.
fn pids_max(text: &str) -> Result<Option<u64>, Errno> {
    count_or_max(text).map_err(|_| Errno::EINVAL)
}
