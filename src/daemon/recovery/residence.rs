//! Which processes are still in the cgroups that they were put into.
//!
//! One look at a cgroup answers for all of its processes: asking `/proc` for each of thousands of them would need
//! the layout of the hierarchies, which what puts back does not know. A process below the cgroup counts as in it:
//! it is the tenant's own business how it divides itself. What is found is kept until it is forgotten, and follows
//! the moves that it is told of.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::processes::processes_in;
use crate::host::kernfs::{DirId, ErrorKind, KernError, KernFs};

/// The processes of the cgroups that were asked for.
#[derive(Debug, Default)]
pub(super) struct Residence<'a> {
    known: HashMap<&'a Path, HashSet<u32>>,
}

impl<'a> Residence<'a> {
    /// Whether process `pid` is in the cgroup at `path`, or below it. None is in one that is gone.
    ///
    /// # Errors
    /// The cgroup cannot be looked into.
    pub(super) fn lives_in(
        &mut self,
        kernel: &mut impl KernFs,
        pid: u32,
        path: &'a Path,
    ) -> Result<bool, KernError> {
        if !self.known.contains_key(path) {
            let mut pids = HashSet::new();
            match look_into(kernel, path, &mut pids) {
                Err(error) if !error.is_gone() => return Err(error),
                _ => drop(self.known.insert(path, pids)),
            }
        }
        Ok(self.known.get(path).is_some_and(|pids| pids.contains(&pid)))
    }

    /// Process `pid` was moved between two cgroups.
    pub(super) fn has_moved(&mut self, pid: u32, from: &Path, to: &Path) {
        for path in from.ancestors() {
            self.known.get_mut(path).map(|pids| pids.remove(&pid));
        }
        for path in to.ancestors() {
            self.known.get_mut(path).map(|pids| pids.insert(pid));
        }
    }

    /// Processes were moved that it was not told of.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}

fn look_into(
    kernel: &mut impl KernFs,
    path: &Path,
    pids: &mut HashSet<u32>,
) -> Result<(), KernError> {
    let dir = kernel.open_dir(path)?;
    let outcome = look_below(kernel, dir, path, pids);
    kernel.close_dir(dir);
    outcome
}

fn look_below(
    kernel: &mut impl KernFs,
    dir: DirId,
    path: &Path,
    pids: &mut HashSet<u32>,
) -> Result<(), KernError> {
    pids.extend(processes_in(kernel, dir)?);
    for child in kernel.list_dirs(dir)? {
        match look_into(kernel, &path.join(child), pids) {
            // Processes that have threads below are listed above.
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) if !error.is_gone() => return Err(error),
            _ => {}
        }
    }
    Ok(())
}
