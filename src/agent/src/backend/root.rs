//! Taking the root: the cgroup under which one agent makes the tenants.
//!
//! The agent makes a missing root, enables controllers in the ancestors that it owns, and locks the root.
//! Before that, displaced processes return to the tenants' cgroups. The first tick thus knows that the root can
//! be written and enforced. After a refusal all changes are in the journal and the lock is released.

use std::path::Path;

use super::access::HostAccess;
use crate::recovery::residents::{self, Resident};
use crate::start_error::StartError;
use tenantd_control::tree::TreeNode;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::enforce::EnforceError;
use tenantd_host::kernfs::{DirId, ErrorKind, KernError, KernFs};

/// Makes the root if it is missing, moves `displaced` back into it, locks it for this agent, and checks that
/// limits can be enforced there. Returns the root, and those of `displaced` without a tenant.
pub(crate) fn take<K: KernFs>(
    host: &mut HostAccess<K>,
    nodes: &[TreeNode],
    displaced: &[Resident],
) -> Result<(DirId, Vec<Resident>), StartError> {
    let proc = host.proc();
    let mut enforcer = host.enforcer();
    let layout = enforcer.layout;
    let mut missing = Vec::new();
    for tree in &layout.trees {
        missing.extend(enforcer.make_missing(tree).map_err(not_permitted)?);
    }
    let waiting = residents::bring_home(&mut enforcer, proc, nodes, displaced)?;
    for tree in &layout.trees {
        enforcer.enable_above(tree, &missing).map_err(not_permitted)?;
    }
    let kernel = &mut *enforcer.kernel;
    for tree in layout.trees.iter().filter(|tree| tree.is_for_all()) {
        try_writing(kernel, &tree.root).map_err(|error| not_permitted(error.into()))?;
    }
    let cpu = &layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)].root;
    let root = kernel.open_dir(cpu)?;
    match hold(kernel, layout, root, cpu) {
        Ok(()) => Ok((root, waiting)),
        Err(error) => {
            // Releases the lock; otherwise the next try would find it taken.
            kernel.close_dir(root);
            Err(error)
        }
    }
}

/// Locks the open `root` for this agent, if limits can be enforced below it.
fn hold(
    kernel: &mut impl KernFs,
    layout: &Layout,
    root: DirId,
    path: &Path,
) -> Result<(), StartError> {
    kernel.lock_dir(root).map_err(|error| match error.kind() {
        ErrorKind::Rejected => StartError::RootTaken(path.to_path_buf()),
        _ => error.into(),
    })?;
    if has_controllers(kernel, layout, root) {
        Ok(())
    } else {
        Err(StartError::NoControllers(path.to_path_buf()))
    }
}

fn has_controllers(kernel: &mut impl KernFs, layout: &Layout, root: DirId) -> bool {
    !layout.is_unified()
        || kernel.read_once(root, "cgroup.controllers").is_ok_and(|text| {
            let text = String::from_utf8_lossy(text);
            text.split_ascii_whitespace().any(|name| name == "cpu" || name == "memory")
        })
}

/// Checks once, before the first tick, that cgroups below `root` may be changed.
fn try_writing(kernel: &mut impl KernFs, root: &Path) -> Result<(), KernError> {
    let dir = kernel.open_dir(root)?;
    // An empty write changes nothing, but needs write permission to open the file.
    let outcome = kernel.write(dir, "cgroup.procs", "");
    kernel.close_dir(dir);
    outcome
}

fn not_permitted(error: EnforceError) -> StartError {
    match error {
        EnforceError::Kernel(error) if error.kind() == ErrorKind::Denied => {
            StartError::NotPermitted { path: error.path, errno: error.errno }
        }
        other => other.into(),
    }
}
