//! Access to change the host, and the making of cgroups with their controllers.
//!
//! Values of cgroup files are not written here, except the lists of a v1 cpuset tree, without which a cgroup
//! takes no process.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::error::EnforceError;
use crate::cgroup::{Facet, Layout, Tree};
use crate::journal::{Entry, Journal};
use crate::kernfs::{DirId, KernError, KernFs};
use tenantd_core::kernel_text::text_of_name;

/// Child that the agent moves itself into if its own cgroup is the root: a v2 cgroup with controllers for its
/// children must not contain processes.
pub const AGENT_CGROUP: &str = "tenantd.agent";

/// File with the controllers of the children.
pub const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Reason for which the controller cpu of the unified hierarchy cannot be enabled (kernel document `cgroup-v2.rst`, "CPU").
const RT_OUTSIDE: &str = "with CONFIG_RT_GROUP_SCHED the kernel enables it only while all real-time tasks (SCHED_FIFO, SCHED_RR) are in \
     the root cgroup: make those of `ps -eo pid,cls,comm` with FF or RR normal or stop them, or boot a kernel without it";

/// The controllers that the agent enables for children, and so the only ones that it disables again; the last one
/// where tenants are pinned.
pub const CONTROLLERS: [&str; 5] = ["cpu", "memory", "pids", "io", "cpuset"];

/// Kernel and journal, which every change of the host needs.
#[derive(Debug)]
pub struct Enforcer<'a, K> {
    /// The kernel.
    pub kernel: &'a mut K,
    /// Records needed to undo everything.
    pub journal: &'a mut Journal,
    /// Mounts and roots of the trees.
    pub layout: &'a Layout,
    /// True if any tenant is pinned to CPUs; otherwise cpusets stay untouched.
    pub pins: bool,
    /// True if a value that another writer set since it was read is left alone.
    pub leaves_drift: bool,
}

impl<K: KernFs> Enforcer<'_, K> {
    /// Makes the cgroup at `path` if it is missing; returns true if it was made.
    pub fn make(&mut self, path: &Path) -> Result<bool, EnforceError> {
        match self.kernel.open_dir(path) {
            Ok(dir) => {
                self.kernel.close_dir(dir);
                if self.journal.announces(path) {
                    // The agent could not make it, and another program has made it since.
                    self.journal.record(Entry::NotMade { path: path.to_path_buf() })?;
                }
                return Ok(false);
            }
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(false);
        };
        let parent = self.kernel.open_dir(parent)?;
        let outcome = self.make_in(parent, &text_of_name(name), path);
        self.kernel.close_dir(parent);
        outcome
    }

    fn make_in(&mut self, parent: DirId, name: &str, path: &Path) -> Result<bool, EnforceError> {
        if !self.journal.announces(path) {
            self.journal.record(Entry::Making { path: path.to_path_buf() })?;
        }
        match self.kernel.make_dir(parent, name) {
            Ok(()) => {}
            // Another program made it first, so the agent must not remove it.
            Err(error) if error.errno == Errno::EEXIST => {
                self.journal.record(Entry::NotMade { path: path.to_path_buf() })?;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        match self.confirm(path) {
            Ok(()) => Ok(true),
            Err(error) => {
                // It must not get processes while no record shows that the agent made it. If even the removal
                // fails, the announcement lets a restore remove it while it is empty.
                let _ = self.kernel.remove_dir(parent, name);
                Err(error)
            }
        }
    }

    fn confirm(&mut self, path: &Path) -> Result<(), EnforceError> {
        let dir = self.kernel.open_dir(path)?;
        let inode = self.kernel.inode(dir);
        self.kernel.close_dir(dir);
        Ok(self.journal.record(Entry::Made { path: path.to_path_buf(), inode: inode? })?)
    }

    /// Makes the node at `below` in every tree of tenants, with parents and controllers. The first failure ends
    /// it.
    pub fn make_node(&mut self, below: &str) -> Result<(), EnforceError> {
        for tree in &self.layout.trees {
            if !self.uses(tree) {
                continue;
            }
            if self.layout.is_unified() {
                let above = Path::new(below).parent().unwrap_or(Path::new(""));
                self.enable(&tree.root.join(above))?;
            }
            let path = tree.root.join(below);
            if self.make(&path)? && tree.facets.contains(&Facet::Cpuset) {
                // Claimed processes join this tree at once. A separate cpuset tree is joined later, and a
                // refusal is tried again then.
                let filled = self.fill_legacy(tree, &path);
                if tree.is_for_all() {
                    filled?;
                }
            }
        }
        Ok(())
    }

    /// Makes the root of `tree` and its missing ancestors; returns the missing ones, deepest first.
    pub fn make_missing(&mut self, tree: &Tree) -> Result<Vec<PathBuf>, EnforceError> {
        if self.uses(tree) { self.make_all(&tree.mount, &tree.root) } else { Ok(Vec::new()) }
    }

    /// Makes the cgroup at `path` and its missing ancestors below `mount`; returns the missing ones, deepest
    /// first.
    pub fn make_all(&mut self, mount: &Path, path: &Path) -> Result<Vec<PathBuf>, EnforceError> {
        let mut missing: Vec<PathBuf> = Vec::new();
        for up in path.ancestors().take_while(|up| up.starts_with(mount)) {
            match self.kernel.open_dir(up) {
                Ok(dir) => {
                    self.kernel.close_dir(dir);
                    break;
                }
                Err(error) if error.is_gone() => missing.push(up.to_path_buf()),
                Err(error) => return Err(error.into()),
            }
        }
        missing.iter().rev().try_for_each(|path| self.make(path).map(|_| ()))?;
        Ok(missing)
    }

    /// Enables controllers for the root of `tree` in the ancestors that are the agent's: below the agent's own
    /// cgroup all are delegated to it; elsewhere only those that it made (`missing`).
    pub fn enable_above(&mut self, tree: &Tree, missing: &[PathBuf]) -> Result<(), EnforceError> {
        if !self.layout.is_unified() {
            return Ok(());
        }
        let above = tree.root.ancestors().skip(1);
        let ours =
            above.take_while(|up| up.starts_with(&tree.own) || missing.iter().any(|m| m == up));
        ours.collect::<Vec<_>>().into_iter().rev().try_for_each(|up| self.enable(up))
    }

    /// True if tenants are in `tree`: a separate cpuset tree is joined only if a tenant is pinned.
    pub fn uses(&self, tree: &Tree) -> bool {
        self.pins || tree.is_for_all()
    }

    /// Gives the cgroup at `path` of a v1 cpuset tree its parent's CPUs and memory nodes if it has none,
    /// because no process can join it otherwise; likewise its ancestors below the root. Ancestors that the
    /// agent made always get all that their parent has, because the kernel does not pass on CPUs that come
    /// back.
    pub fn fill_legacy(&mut self, tree: &Tree, path: &Path) -> Result<(), EnforceError> {
        if self.layout.is_unified() {
            return Ok(());
        }
        let ours: Vec<(&Path, bool)> = path
            .ancestors()
            .take_while(|up| *up != tree.mount && up.starts_with(&tree.mount))
            .map(|up| (up, up != path && self.journal.made(up)))
            .take_while(|(up, made)| *made || up.starts_with(&tree.root))
            .collect();
        for (child, follows) in ours.into_iter().rev() {
            let Some(parent) = child.parent() else { continue };
            let parent = self.kernel.open_dir(parent)?;
            let child = self.kernel.open_dir(child);
            let outcome = child.as_ref().map_or(Ok(()), |child| self.give(parent, *child, follows));
            self.kernel.close_dir(parent);
            self.kernel.close_dir(child?);
            outcome?;
        }
        Ok(())
    }

    /// Copies the lists of `parent` to `child` if it has none, or, with `follows`, if they differ.
    fn give(&mut self, parent: DirId, child: DirId, follows: bool) -> Result<(), EnforceError> {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let list = |kernel: &mut K, dir| -> Result<String, KernError> {
                let text = kernel.read_once(dir, file)?.trim_ascii_end();
                Ok(String::from_utf8_lossy(text).into_owned())
            };
            let (has, above) = (list(self.kernel, child)?, list(self.kernel, parent)?);
            if has != above && !above.is_empty() && (has.is_empty() || follows) {
                self.record_held(child, file, &has)?;
                self.kernel.write(child, file, &above)?;
            }
        }
        Ok(())
    }

    /// Enables the available ones of cpu, memory, pids, io and (if needed) cpuset for the children of `path`. Fails
    /// with [`EnforceError::RootInUse`] if processes are in the root cgroup.
    pub fn enable(&mut self, path: &Path) -> Result<(), EnforceError> {
        let dir = self.kernel.open_dir(path)?;
        let outcome = self.enable_in(dir, path);
        self.kernel.close_dir(dir);
        outcome
    }

    fn enable_in(&mut self, dir: DirId, path: &Path) -> Result<(), EnforceError> {
        self.vacate(dir, path)?;
        let words = |text: &[u8]| String::from_utf8_lossy(text).trim_end().to_string();
        let available = words(self.kernel.read_once(dir, "cgroup.controllers")?);
        let enabled = words(self.kernel.read_once(dir, SUBTREE_CONTROL)?);
        let has = |text: &str, name: &str| text.split(' ').any(|word| word == name);
        for controller in &CONTROLLERS[..if self.pins { 5 } else { 4 }] {
            if has(&enabled, controller) || !has(&available, controller) {
                continue;
            }
            self.record_held(dir, SUBTREE_CONTROL, &enabled)?;
            match self.kernel.write(dir, SUBTREE_CONTROL, &format!("+{controller}")) {
                Err(error) if error.errno == Errno::EBUSY => {
                    return Err(EnforceError::RootInUse(path.to_path_buf()));
                }
                // No other value is invalid that the kernel lists itself.
                Err(error) if error.errno == Errno::EINVAL && *controller == "cpu" => {
                    return Err(EnforceError::Invalid { error, remedy: RT_OUTSIDE.into() });
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Ensures that no process is in `dir` itself, unless it is the top of the hierarchy.
    ///
    /// The kernel refuses domain controllers (memory) to the children of a cgroup with processes. It accepts
    /// threaded ones (cpu, cpuset), but then no process can join the children (kernel document `cgroup-v2.rst`,
    /// "Threads"). So the kernel's answer is not a sufficient check.
    fn vacate(&mut self, dir: DirId, path: &Path) -> Result<(), EnforceError> {
        // Only the top has no type, and may contain processes beside children.
        if self.kernel.read_once(dir, "cgroup.type").is_err() {
            return Ok(());
        }
        if !self.kernel.read_once(dir, "cgroup.procs")?.is_empty() && self.is_own(path) {
            self.step_aside(path)?;
        }
        if self.kernel.read_once(dir, "cgroup.procs")?.is_empty() {
            Ok(())
        } else {
            Err(EnforceError::RootInUse(path.to_path_buf()))
        }
    }

    fn is_own(&self, path: &Path) -> bool {
        self.layout.trees.iter().any(|tree| tree.own == path)
    }

    fn step_aside(&mut self, root: &Path) -> Result<(), EnforceError> {
        let child = root.join(AGENT_CGROUP);
        self.make(&child)?;
        let child = self.kernel.open_dir(&child)?;
        // Number 0 is the process that writes.
        let moved = self.kernel.move_process(child, 0);
        self.kernel.close_dir(child);
        Ok(moved?)
    }

    /// Records the value of `file` in `dir` before the agent, unless it is recorded already.
    pub(super) fn record_held(
        &mut self,
        dir: DirId,
        file: &str,
        value: &str,
    ) -> Result<(), EnforceError> {
        let path = self.kernel.dir_path(dir);
        let inode = self.kernel.inode(dir)?;
        let entry = Entry::Held { path, inode, file: file.into(), value: value.into() };
        Ok(self.journal.record(entry)?)
    }
}
