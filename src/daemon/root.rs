//! Taking the root: the cgroup under which the tenants are made, for one agent alone.
//!
//! It is made where it is missing, given controllers as far as what is above it is ours, and locked; who lived in
//! the tenants' cgroups is back in them before that. Whether anything can be written and enforced there is known
//! before the first tick. What was done up to a refusal is in the journal; the lock is nobody's then.

use std::path::Path;

use super::agent::StartError;
use super::effect;
use super::enforce::{EnforceError, Enforcer};
use super::residents::{self, Resident};
use crate::control::tree::TreeNode;
use crate::host::cgroup::{Facet, Layout};
use crate::host::kernfs::{DirId, ErrorKind, KernError, KernFs};

/// Makes the root where it is missing, brings `homeless` back into it, takes it for this agent, and checks
/// that it can enforce anything.
pub(super) fn take<K: KernFs>(
    enforcer: &mut Enforcer<'_, K>,
    proc: DirId,
    nodes: &[TreeNode],
    homeless: &[Resident],
) -> Result<DirId, StartError> {
    let layout = enforcer.layout;
    let mut missing = Vec::new();
    for tree in &layout.trees {
        missing.extend(enforcer.make_missing(tree).map_err(not_permitted)?);
    }
    residents::bring_home(enforcer, proc, nodes, homeless)?;
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
        Ok(()) => Ok(root),
        Err(error) => {
            // With it goes the lock, or the next try would meet this one.
            kernel.close_dir(root);
            Err(error)
        }
    }
}

/// Takes the open `root` for this agent, where anything can be enforced below it.
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
    match effect::has_controllers(kernel, layout, root) {
        true => Ok(()),
        false => Err(StartError::NoControllers(path.to_path_buf())),
    }
}

/// Whether anything below `root` may be changed: known before the first tick, and not from each of its writes.
fn try_writing(kernel: &mut impl KernFs, root: &Path) -> Result<(), KernError> {
    let dir = kernel.open_dir(root)?;
    // Writing nothing does nothing, but the file has to be opened for it.
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
