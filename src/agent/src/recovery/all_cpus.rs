//! A list of CPUs that confines no process.

use std::path::Path;

use tenantd_dop::CpuSet;
use tenantd_host::cgroup::dialect::EFFECTIVE_CPUS;
use tenantd_host::enforce::cpus_of;
use tenantd_host::kernfs::{DirId, KernError, KernFs};

const CPUS: &str = "/sys/devices/system/cpu";

/// Writes to the cgroup v2 `dir` a list that confines no process, and includes CPUs that are offline now.
pub(crate) fn unconfine(kernel: &mut impl KernFs, dir: DirId) -> Result<(), KernError> {
    match all_cpus(kernel, dir) {
        Some(cpus) => kernel.write(dir, "cpuset.cpus", &cpus.to_string()),
        None => Ok(()),
    }
}

/// Offline CPUs of the machine that may come back; `None` if unreadable.
pub(super) fn offline_cpus(kernel: &mut impl KernFs) -> Option<CpuSet> {
    let dir = kernel.open_dir(Path::new(CPUS)).ok()?;
    let mut list = |file| cpus_of(kernel, dir, file).ok().flatten();
    let offline = list("present").zip(list("online"));
    kernel.close_dir(dir);
    let offline = offline.map(|(present, online)| present.difference(&online));
    offline.filter(|offline| !offline.is_empty())
}

/// All CPUs that can ever come online. A v2 cgroup with this list runs on all CPUs of its parent, whichever
/// come and go. If the machine's list is unreadable: the present CPUs of the parent of `dir`.
pub(super) fn all_cpus(kernel: &mut impl KernFs, dir: DirId) -> Option<CpuSet> {
    let path = kernel.dir_path(dir);
    let above = path.parent().map(|above| (above, EFFECTIVE_CPUS));
    let places = [Some((Path::new(CPUS), "possible")), above];
    places.into_iter().flatten().find_map(|(path, file)| {
        let dir = kernel.open_dir(path).ok()?;
        let cpus = cpus_of(kernel, dir, file).ok().flatten();
        kernel.close_dir(dir);
        cpus.filter(|cpus| !cpus.is_empty())
    })
}
