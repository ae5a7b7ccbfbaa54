//! Accepted values of the unified hierarchy's files, and the effects of writes.
//!
//! Each errno is that of the file's `write` function in kernel/cgroup, kernel/sched/core.c and mm/memcontrol.c.

use nix::errno::Errno;

use super::disk;
use super::files_v1::store_legacy;
use super::kernel::SimKernel;
use super::parse::{self, CpuSet, PAGE_BYTES};
use super::population::{Changed, Population};
use super::reclaim::Reason;
use super::spec::{Bound, File, Mode, Spec};
use super::tree::{CgroupId, CpuKnobs, Tree};

/// Writes a file. An empty write does nothing, as in the kernel.
pub(super) fn store(
    kernel: &mut SimKernel,
    id: CgroupId,
    spec: &Spec,
    text: &str,
) -> Result<(), Errno> {
    if kernel.live.tree.get(id).is_none() {
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
    kernel.live.changed = Changed::Everything;
    let tree = &mut kernel.live.tree;
    match spec.file {
        File::Procs | File::Threads => write_procs(kernel, id, text)?,
        File::SubtreeControl => kernel.live.write_subtree_control(id, text)?,
        File::MaxDescendants => tree[id].max_descendants = count_or_max(text)?,
        File::MaxDepth => tree[id].max_depth = count_or_max(text)?,
        // Out of range is EINVAL here.
        File::PidsMax => tree[id].pids_max = count_or_max(text).map_err(|_| Errno::EINVAL)?,
        File::Freeze => tree.set_frozen(id, parse::switch(text)?),
        File::Kill => write_kill(&mut kernel.live, id, text)?,
        File::ShowsPressure => tree[id].shows_pressure = parse::switch(text)?,
        File::CpuWeight => write_cpu_weight(&mut tree[id].cpu, text)?,
        File::IoWeight => tree[id].disk_knobs.weight = disk::weight(text, false)?,
        File::IoBfqWeight => tree[id].disk_knobs.bfq = disk::weight(text, true)?,
        File::IoCostModel => kernel.host.queue.write_model(text)?,
        File::IoCostQos => kernel.write_qos(text)?,
        File::IoMax => tree[id].disk_knobs.write_max(text)?,
        File::CpuIdle => {
            let cpu = &mut tree[id].cpu;
            cpu.is_idle = parse::switch(text)?;
            // `sched_group_set_idle` in kernel/sched/fair.c.
            (cpu.weight, cpu.shares) = if cpu.is_idle { (0, 3) } else { (100, 1024) };
        }
        File::CpuMax => tree[id].cpu.bandwidth = tree[id].cpu.bandwidth.parse(text)?,
        File::CpusetCpus => {
            let cpus = parse::cpu_list(text, kernel.host.cpus.max(1))?;
            vet_set(tree, id, &cpus, &tree[id].cpuset.cpus)?;
            tree[id].cpuset.cpus = cpus;
        }
        File::CpusetMems => {
            // An impossible node is ERANGE, one without memory EINVAL; here every node has some.
            let nodes = kernel.host.numa_nodes.max(1);
            let mems = parse::cpu_list(text, nodes).map_err(|_| Errno::EINVAL)?;
            vet_set(tree, id, &mems, &tree[id].cpuset.mems)?;
            tree[id].cpuset.mems = mems;
        }
        File::MemoryBound(bound) => write_bound(kernel, id, bound, parse::pages(text, "max")?),
        // Anything but 0 and 1 is EINVAL here; other switches return ERANGE.
        File::MemoryOomGroup => {
            tree[id].memory.oom_group = parse::switch(text).map_err(|_| Errno::EINVAL)?;
        }
        File::MemoryReclaim => {
            let wanted = parse::pages(text, "")?;
            if kernel.memory.reclaim(&mut kernel.live, id, wanted, Reason::Direct) < wanted {
                return Err(Errno::EAGAIN);
            }
        }
        File::Legacy(file) => store_legacy(kernel, id, file, text)?,
        // Threaded cgroups and pressure triggers are not simulated.
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Moves a process with all its threads; 0 is the caller itself.
fn write_procs(kernel: &mut SimKernel, id: CgroupId, text: &str) -> Result<(), Errno> {
    let pid = match parse::signed(text.trim()) {
        Ok(0) => kernel.caller(),
        Ok(number) => u32::try_from(number).map_err(|_| Errno::EINVAL)?,
        Err(_) => return Err(Errno::EINVAL),
    };
    kernel.live.attach(id, pid)
}

fn write_kill(live: &mut Population, id: CgroupId, text: &str) -> Result<(), Errno> {
    if !parse::switch(text)? {
        return Err(Errno::ERANGE);
    }
    for &id in live.tree.subtree(id).iter() {
        for pid in live.tree[id].processes.clone() {
            if !live.is_exempt(pid) {
                live.end(pid);
            }
        }
    }
    Ok(())
}

/// Converts the weight to shares of 1024, as the scheduler does: 1, 2 and 4 become 10, 20 and 41.
fn write_cpu_weight(knobs: &mut CpuKnobs, text: &str) -> Result<(), Errno> {
    let weight = parse::unsigned(text)?;
    if !(1..=10_000).contains(&weight) {
        return Err(Errno::ERANGE);
    }
    if knobs.is_idle {
        return Err(Errno::EINVAL);
    }
    knobs.weight = weight;
    knobs.shares = (weight * 1024 + 50) / 100;
    Ok(())
}

/// Refuses an empty cpuset in place of another one, with processes in it.
fn vet_set(tree: &Tree, id: CgroupId, wanted: &CpuSet, known: &CpuSet) -> Result<(), Errno> {
    let is_lost = wanted.is_empty() && !known.is_empty() && tree.is_populated(id);
    if is_lost { Err(Errno::ENOSPC) } else { Ok(()) }
}

/// Applies a lower `memory.high` or `memory.max` at once: it reclaims, and `max` kills.
fn write_bound(kernel: &mut SimKernel, id: CgroupId, bound: Bound, pages: u64) {
    let SimKernel { live, memory, .. } = kernel;
    *live.tree[id].memory.bound_mut(bound) = pages;
    let excess = |live: &Population| live.tree[id].memory_account.usage.saturating_sub(pages);
    if matches!(bound, Bound::High | Bound::Max) {
        memory.reclaim(live, id, excess(live), Reason::Direct);
    }
    while bound == Bound::Max && excess(live) > 0 {
        let before = live.processes.len();
        live.out_of_memory(id, memory.total_pages + memory.swap_slots());
        memory.reclaim(live, id, excess(live), Reason::Direct);
        if live.processes.len() == before {
            break;
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
