//! Processes still in the cgroups that they were moved to.
//!
//! One list of a cgroup answers for all of its processes. Asking `/proc` for each of thousands would need the
//! layout of the hierarchies, which a restoration does not have. A process below a cgroup that the agent made
//! counts as in it, because that cgroup must go. Below a cgroup that existed before, an administrator has put
//! it, and it stays. Lists are cached until [`Residence::forget`], and updated by [`Residence::has_moved`].

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::processes::{nested, processes_at};
use tenantd_host::kernfs::{KernError, KernFs};

#[derive(Debug)]
pub(super) struct Residence<'a> {
    made: &'a BTreeSet<&'a Path>,
    known: HashMap<&'a Path, HashSet<u32>>,
}

/// Cgroups below the one at `path`, if the agent `made` that: they have to go with it.
pub(super) fn made_inside(
    kernel: &mut impl KernFs,
    made: &BTreeSet<&Path>,
    path: &Path,
) -> Result<Vec<PathBuf>, KernError> {
    if made.contains(path) { nested(kernel, path) } else { Ok(Vec::new()) }
}

impl<'a> Residence<'a> {
    pub(super) fn new(made: &'a BTreeSet<&'a Path>) -> Self {
        Residence { made, known: HashMap::new() }
    }

    /// True if process `pid` is in the cgroup at `path`, or below it if the agent made it. False if the cgroup
    /// is gone.
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

    pub(super) fn has_moved(&mut self, pid: u32, from: &Path, to: &Path) {
        for path in from.ancestors() {
            self.known.get_mut(path).map(|pids| pids.remove(&pid));
        }
        for path in to.ancestors() {
            self.known.get_mut(path).map(|pids| pids.insert(pid));
        }
    }

    /// Empties the cache, after moves that it was not informed of.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }
}
