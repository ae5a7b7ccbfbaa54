//! Which processes are still in the cgroups that they were put into.
//!
//! One look at a cgroup answers for all of its processes: asking `/proc` for each of thousands of them would need
//! the layout of the hierarchies, which what puts back does not know. A process below a cgroup that the agent made
//! counts as in it: that cgroup has to go. Below one that was there before somebody has put it, and there it stays.
//! What is found is kept until it is forgotten, and follows the moves that it is told of.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::processes::{nested, processes_at};
use tenantd_host::kernfs::{KernError, KernFs};

/// The processes of the cgroups that were asked for.
#[derive(Debug)]
pub(super) struct Residence<'a> {
    /// The cgroups that the agent made.
    made: &'a BTreeSet<&'a Path>,
    known: HashMap<&'a Path, HashSet<u32>>,
}

/// The cgroups below the one at `path`, where that is one of those that the agent `made`: they have to go with it.
///
/// # Errors
/// It cannot be looked into.
pub(super) fn made_inside(
    kernel: &mut impl KernFs,
    made: &BTreeSet<&Path>,
    path: &Path,
) -> Result<Vec<PathBuf>, KernError> {
    if made.contains(path) { nested(kernel, path) } else { Ok(Vec::new()) }
}

impl<'a> Residence<'a> {
    /// Nothing is known yet; the agent made these cgroups.
    pub(super) fn new(made: &'a BTreeSet<&'a Path>) -> Self {
        Residence { made, known: HashMap::new() }
    }

    /// Whether process `pid` is in the cgroup at `path`, or, where that was made, below it. None is in one that is
    /// gone.
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
            let mut pids: HashSet<u32> = processes_at(kernel, path)?.into_iter().collect();
            for below in made_inside(kernel, self.made, path)? {
                pids.extend(processes_at(kernel, &below)?);
            }
            self.known.insert(path, pids);
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
