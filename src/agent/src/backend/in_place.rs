//! Cgroups that exist without the agent and are controlled in place.
//!
//! **Rules.** The agent writes and restores the files of such a cgroup. It neither makes nor removes the
//! cgroup, moves none of its processes, and leaves the cgroups inside alone. A missing one is opened when it
//! appears, and closed when it goes.

use super::access::HostAccess;
use super::place::Place;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::cgroup::Cgroup;
use tenantd_host::kernfs::KernFs;

/// Opens the cgroup of `place` at `path`, below the mount.
pub(super) fn attach<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &mut Place,
    path: &str,
    name: &str,
) -> Result<(), Finding> {
    let opened = Cgroup::open_from_mount(&mut host.kernel, &host.layout, path);
    let cgroup = opened.map_err(|error| {
        if error.is_gone() {
            let what = format!("the cgroup {path} is not there: it is shared with once it is");
            Finding::of(name, Code::CgroupMissing, what)
        } else {
            Finding::of(name, Code::NotAttached, error.to_string())
        }
    })?;
    place.cgroup = Some(cgroup);
    Ok(())
}
