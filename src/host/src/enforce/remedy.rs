//! Remedies if the kernel refuses a value (EINVAL) because of another file of the cgroup, which its answer does
//! not name.

use nix::errno::Errno;

use crate::cgroup::Dialect;
use crate::kernfs::{DirId, KernError, KernFs};
use tenantd_control::plan::Knob;
use tenantd_core::units::Bytes;

/// Marks a cgroup that runs only on otherwise idle CPUs (`sched_group_set_shares` in `kernel/sched/fair.c`).
const IDLE: &str = "cpu.idle";
/// The v1 limit of memory and swap together (`mem_cgroup_resize_max` in `mm/memcontrol-v1.c`).
const BOTH: &str = "memory.memsw.limit_in_bytes";

/// Cause and remedy of `error`, with which the kernel refused `text` for `file` of the cgroup in `dir`; `None`
/// if unknown.
pub fn remedy(
    kernel: &mut impl KernFs,
    dir: DirId,
    (file, text): (&str, &str),
    error: &KernError,
) -> Option<String> {
    if error.errno != Errno::EINVAL {
        return None;
    }
    let is_of = |knob| file == Dialect::Unified.file(knob) || file == Dialect::Legacy.file(knob);
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
