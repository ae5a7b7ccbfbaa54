//! Accepted values of the unified hierarchy's files, and the effects of writes.
//!
//! Each errno is that of the file's `write` function in kernel/cgroup, kernel/sched/core.c and mm/memcontrol.c.

use nix::errno::Errno;

use super::kernel::SimKernel;
use super::parse::{self, PAGE_BYTES};
use super::reclaim::Reason;
use super::spec::{Bound, File, Mode, Spec};
use super::tree::CgroupId;

impl SimKernel {
    /// Writes a file. An empty write does nothing, as in the kernel.
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
        self.reschedule();
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
                self.tree.set_frozen(id, parse::switch(text)?);
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
                // Anything but 0 and 1 is EINVAL here; other switches return ERANGE.
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

    /// Moves a process with all its threads; 0 is the caller itself.
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
        for &id in self.tree.subtree(id).iter() {
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

    /// Converts the weight to shares of 1024, as the scheduler does: 1, 2 and 4 become 10, 20 and 41.
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
        // An impossible node is ERANGE, one without memory EINVAL; here every node has some.
        let mems = parse::cpu_list(text, self.host.numa_nodes.max(1)).map_err(|_| Errno::EINVAL)?;
        let was_set = !self.tree[id].cpuset.mems.is_empty();
        if mems.is_empty() && was_set && self.tree.is_populated(id) {
            return Err(Errno::ENOSPC);
        }
        self.tree[id].cpuset.mems = mems;
        Ok(())
    }

    /// Applies a lower `memory.high` or `memory.max` at once: it reclaims, and `max` kills.
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

    /// `memory.reclaim`: EAGAIN if less was reclaimed than requested.
    fn write_reclaim(&mut self, id: CgroupId, text: &str) -> Result<(), Errno> {
        let wanted = parse::pages(text, "")?;
        match self.reclaim(id, wanted, Reason::Direct) {
            reclaimed if reclaimed < wanted => Err(Errno::EAGAIN),
            _ => Ok(()),
        }
    }
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

/// `pids.max`: like `cgroup.max.*`, but EINVAL out of range.
fn pids_max(text: &str) -> Result<Option<u64>, Errno> {
    count_or_max(text).map_err(|_| Errno::EINVAL)
}
