//! A list of CPUs that confines no process.

use std::path::Path;

use tenantd_dop::CpuSet;
use tenantd_host::cgroup::Dialect;
use tenantd_host::enforce::cpus_of;
use tenantd_host::kernfs::{DirId, KernError, KernFs};

/// Where the CPUs of the machine are listed.
const CPUS: &str = "/sys/devices/system/cpu";

/// Gives the unified cgroup `dir` a list that confines no process, also not to the CPUs that are online now.
pub(crate) fn unconfine(kernel: &mut impl KernFs, dir: DirId) -> Result<(), KernError> {
    match all_cpus(kernel, dir) {
        Some(cpus) => kernel.write(dir, "cpuset.cpus", &cpus.to_string()),
        None => Ok(()),
    }
}

/// The CPUs of the machine that are offline now and may come back; none where the machine does not tell.
pub(super) fn offline_cpus(kernel: &mut impl KernFs) -> Option<CpuSet> {
    let dir = kernel.open_dir(Path::new(CPUS)).ok()?;
    let mut list = |file| cpus_of(kernel, dir, file).ok().flatten();
    let offline = list("present").zip(list("online"));
    kernel.close_dir(dir);
    let offline = offline.map(|(present, online)| present.difference(&online));
    offline.filter(|offline| !offline.is_empty())
}

/// All CPUs that can ever come online: on the unified hierarchy a cgroup with this list runs wherever the one above
/// does, whichever CPUs come and go. Where the machine does not tell, those of the cgroup above `dir` today.
pub(super) fn all_cpus(kernel: &mut impl KernFs, dir: DirId) -> Option<CpuSet> {
    let path = kernel.dir_path(dir);
    let above = path.parent().map(|above| (above, Dialect::Unified.effective_cpus()));
    let places = [Some((Path::new(CPUS), "possible")), above];
    places.into_iter().flatten().find_map(|(path, file)| {
        let dir = kernel.open_dir(path).ok()?;
        let cpus = cpus_of(kernel, dir, file).ok().flatten();
        kernel.close_dir(dir);
        cpus.filter(|cpus| !cpus.is_empty())
    })
}
