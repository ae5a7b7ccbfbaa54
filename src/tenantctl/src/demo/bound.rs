//! Memory bound of the demo's loads, so that they compete with each other and never with the host.
//!
//! On a systemd host the demo's scope is bounded. Elsewhere the demo makes the root of its tenants before
//! the agent does, in the tree that accounts for memory, and limits it. If neither is possible, the loads
//! stay small and memory is not contended.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::scene::MEMORY;
use super::scope;
use crate::demo::load;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_policy::model::{HierarchyChoice, RootChoice};

/// Files that limit a cgroup's memory, in both hierarchies.
const LIMITS: [&str; 2] = ["memory.max", "memory.limit_in_bytes"];

/// A cgroup with a memory limit; dropping the value removes it if the demo made it.
#[derive(Debug)]
pub(crate) struct Bound {
    /// Cgroup for the loads' processes; `None` if they start in it.
    made: Option<PathBuf>,
}

impl Bound {
    /// Bounds the memory below the demo's root. `record` is written before anything is made, for the
    /// cleanup after a killed demo.
    pub(crate) fn make(record: &Path) -> Result<Bound, String> {
        if !load::has_disk() {
            return Err("the files of the loads would not be on a disk".to_string());
        }
        let root = memory_root().map_err(|error| format!("{error:#}"))?;
        if scope::root().is_none() {
            let unlimited = || "the demo's scope has no limit on its memory".to_string();
            return is_bounded(&root).then_some(Bound { made: None }).ok_or_else(unlimited);
        }
        if root.exists() {
            return Err(format!("{} is there already", root.display()));
        }
        let failed = |error: std::io::Error| format!("{}: {error}", root.display());
        fs::write(record, root.as_os_str().as_encoded_bytes()).map_err(failed)?;
        fs::create_dir(&root).map_err(failed)?;
        let bound = Bound { made: Some(root.clone()) };
        for name in LIMITS.iter().filter(|name| root.join(name).exists()) {
            // On cgroup v1 a limit covered the cgroups below it only with this switch.
            let is_for_all_below = fs::read_to_string(root.join("memory.use_hierarchy"))
                .is_ok_and(|text| text.trim() == "1");
            if *name == "memory.max" || is_for_all_below {
                fs::write(root.join(name), MEMORY.0.to_string()).map_err(failed)?;
            }
        }
        let unavailable = || "the memory controller is not available to the demo".to_string();
        is_bounded(&root).then_some(bound).ok_or_else(unavailable)
    }

    /// Moves the process `pid` into the bounded cgroup.
    pub(crate) fn enter(&self, pid: u32) -> anyhow::Result<()> {
        let Some(root) = &self.made else { return Ok(()) };
        let file = root.join("cgroup.procs");
        fs::write(&file, pid.to_string())
            .with_context(|| format!("cannot move a load into {}", root.display()))
    }

    pub(crate) fn made(&self) -> Option<&Path> {
        self.made.as_deref()
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            // A killed load goes away when the kernel has reaped it; otherwise the cgroup is reported.
            let _ = fs::remove_dir(made);
        }
    }
}

fn memory_root() -> anyhow::Result<PathBuf> {
    let read = |path: &str| fs::read(path).with_context(|| path.to_string());
    let root = scope::root().map_or(RootChoice::Auto, RootChoice::Path);
    let layout = Layout::detect(
        &read("/proc/self/mountinfo")?,
        &read("/proc/self/cgroup")?,
        HierarchyChoice::Auto,
        &root,
    )?;
    let tree = layout.tree(Facet::Memory).context("no hierarchy accounts for memory")?;
    Ok(layout.trees[tree].root.clone())
}

fn is_bounded(dir: &Path) -> bool {
    LIMITS.iter().any(|name| {
        let text = fs::read_to_string(dir.join(name)).unwrap_or_default();
        text.trim().parse::<u64>().is_ok_and(|limit| limit <= 2 * MEMORY.0)
    })
}
