//! The hierarchy of the CPU controller on this machine, for benchmarks that use it without a daemon.

use std::fs;
use std::path::PathBuf;

use tenantd_host::cgroup::{Dialect, Facet, Layout};
use tenantd_policy::model::{HierarchyChoice, RootChoice};

/// Where the cgroup `root` is in that tree, as a daemon finds it, and how its files are called.
pub(crate) fn cpu_tree(root: &str) -> (Dialect, PathBuf) {
    let read = |path: &str| fs::read(path).unwrap();
    let root = RootChoice::Path(root.into());
    let (mounts, own) = (read("/proc/self/mountinfo"), read("/proc/self/cgroup"));
    let layout = Layout::detect(&mounts, &own, HierarchyChoice::Auto, &root).unwrap();
    (layout.dialect, layout.trees[layout.tree(Facet::Cpu).unwrap()].root.clone())
}
