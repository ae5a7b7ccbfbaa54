//! Remedies where the kernel refuses a value (EINVAL, EBUSY) because of what another file of the cgroup, or of one inside it,
//! holds: its answer does not name that file. A move of a real-time process fails in the same way.

use std::path::Path;

use nix::errno::Errno;

use crate::kernfs::{DirId, KernError, KernFs};
use crate::knobs::row_of;
use tenantd_control::words::knob::Knob;
use tenantd_core::kernel_text::text_of_path;
use tenantd_core::units::Bytes;
use tenantd_dop::CpuSet;

/// Marks a cgroup that runs only on otherwise idle CPUs (`sched_group_set_shares` in `kernel/sched/fair.c`).
pub const IDLE: &str = "cpu.idle";
/// The v1 limit of memory and swap together (`mem_cgroup_resize_max` in `mm/memcontrol-v1.c`).
const BOTH: &str = "memory.memsw.limit_in_bytes";

/// Time per period for the real-time tasks of a legacy cgroup, in a kernel with CONFIG_RT_GROUP_SCHED: 0 in a new cgroup.
const RT_RUNTIME: &str = "cpu.rt_runtime_us";

/// True if the kernel refused to move a process into the cgroup in `dir` because a task of it is a real-time one and the cgroup
/// has no time for these (`sched_rt_can_attach` in `kernel/sched/rt.c`).
pub(super) fn lacks_rt_runtime(kernel: &mut impl KernFs, dir: DirId, error: &KernError) -> bool {
    let text = match error.errno {
        Errno::EINVAL => kernel.read_once(dir, RT_RUNTIME),
        _ => return false,
    };
    text.is_ok_and(|text| text.trim_ascii() == b"0")
}

/// Reason for which `file` of the cgroup in `dir` does not take `text`, which the kernel answered with `error`, and what helps; `None`
/// where that is not known.
pub fn remedy(
    kernel: &mut impl KernFs,
    dir: DirId,
    (file, text): (&str, &str),
    error: &KernError,
) -> Option<String> {
    let is_of = |knob| row_of(knob).is_in(file);
    if error.errno == Errno::EBUSY && is_of(Knob::Cpus) {
        return wider_inside(kernel, dir, file, text);
    }
    if error.errno != Errno::EINVAL {
        return None;
    }
    let mut holds = |file: &str| {
        let text = kernel.read_once(dir, file).ok()?.trim_ascii();
        std::str::from_utf8(text).ok()?.parse::<u64>().ok()
    };
    if is_of(Knob::CpuWeight) && holds(IDLE)? == 1 {
        return Some(format!(
            "{IDLE} is 1 there, and the kernel gives such a cgroup no weight: write 0 to it, or leave the cgroup out of \
             the policy"
        ));
    }
    let limit: u64 = text.trim().parse().unwrap_or(u64::MAX);
    let both = holds(BOTH).filter(|both| is_of(Knob::MemoryMax) && *both < limit)?;
    Some(format!(
        "{BOTH} is {} there, which no limit of memory may exceed: raise it first",
        Bytes(both)
    ))
}

/// Most cgroups inside that are searched for a cpuset that stands against a change.
const INSIDE_MAX: usize = 256;

/// Remedy for a legacy cpuset that has to stay around those inside it (`validate_change` in `kernel/cgroup/cpuset-v1.c`).
fn wider_inside(kernel: &mut impl KernFs, dir: DirId, file: &str, text: &str) -> Option<String> {
    let wanted: CpuSet = text.trim().parse().ok()?;
    let above = kernel.dir_path(dir);
    let names = kernel.list_dirs(dir).ok()?;
    let (path, cpus) = names.into_iter().take(INSIDE_MAX).find_map(|name| {
        let path = above.join(name);
        let cpus = cpus_at(kernel, &path, file)?;
        (!cpus.is_subset(&wanted)).then_some((path, cpus))
    })?;
    Some(format!(
        "the cpuset {} inside it has CPUs {cpus}, and the kernel takes none of them away: write a part of {wanted} to its {file}, or \
         remove it; until then the tenant keeps the CPUs that it has",
        text_of_path(&path)
    ))
}

fn cpus_at(kernel: &mut impl KernFs, path: &Path, file: &str) -> Option<CpuSet> {
    let dir = kernel.open_dir(path).ok()?;
    let text = kernel.read_once(dir, file);
    let cpus = text.ok().and_then(|text| std::str::from_utf8(text).ok()?.trim().parse().ok());
    kernel.close_dir(dir);
    cpus
}
