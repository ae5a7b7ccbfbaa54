//! The hierarchy of the CPU controller on this machine, for benchmarks that use it without a daemon.

use std::fs;
use std::path::PathBuf;

use tenantd_host::cgroup::{Facet, Layout};
use tenantd_policy::model::{HierarchyChoice, RootChoice};

/// The hierarchies with `root` as the root of the tenants, as a daemon finds them, and its place in the tree of
/// the CPU controller.
pub(crate) fn cpu_tree(root: &str) -> (Layout, PathBuf) {
    let read = |path: &str| fs::read(path).unwrap();
    let root = RootChoice::Path(root.into());
    let (mounts, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
    let layout = Layout::detect(&mounts, &own, HierarchyChoice::Auto, &root).unwrap();
    let root = layout.trees[layout.tree(Facet::Cpu).unwrap()].root.clone();
    (layout, root)
}
