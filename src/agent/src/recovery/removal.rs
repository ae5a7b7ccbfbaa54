//! Removing the cgroups that were made, children before parents.
//!
//! Processes still in them are moved out first. The kernel removes no cgroup with a process that is about to
//! end, and such a process can neither be moved nor hurried. The removal waits for it, for all cgroups together
//! no longer than [`WaitBudget`]. Empty cgroups that a tenant made inside its own are removed with it; if they
//! have processes, all stay and nothing is waited for.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::held_files::open_same;
use super::processes::{evacuate, nested, nr_nested};
use super::residents::Resident;
use super::restored::Restored;
use super::wait_budget::WaitBudget;
use tenantd_core::kernel_text::text_of_name;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{DirId, KernError, KernFs};

/// Removes them; `still_enabled` has the cgroups whose controllers the agent could not disable just now.
pub(super) fn remove_made(
    kernel: &mut impl KernFs,
    proc: DirId,
    entries: &[Entry],
    still_enabled: &BTreeSet<&Path>,
    restored: &mut Restored,
) {
    let mut budget = WaitBudget::default();
    let made = still_made(entries);
    let ours: HashSet<&Path> = made.iter().map(|(path, _)| *path).collect();
    let origins = origins(entries);
    for (path, inode) in made.iter().rev() {
        let mut above = path.ancestors().skip(1).filter(|up| !ours.contains(up)).peekable();
        // The nearest ancestor accepts no process while its children have controllers. If the agent enabled those, and could
        // not disable them just now, waiting for the next try is better than going further up.
        let waits = above.peek().is_some_and(|nearest| still_enabled.contains(nearest));
        let nr_above = if waits { 1 } else { usize::MAX };
        let claimed_from = origins.get(path).copied().into_iter();
        let refuges: Vec<&Path> = claimed_from.chain(above.take(nr_above)).collect();
        let mut removal =
            Removal { proc, path, refuges: &refuges, displaced: &mut restored.displaced };
        let outcome = match *inode {
            Some(inode) => removal.remove_made(kernel, inode, &mut budget),
            None => removal.remove_announced(kernel),
        };
        let tells = |entry: &&Entry| cgroup_of(entry) == Some(*path);
        let told = entries.iter().filter(tells);
        match outcome {
            Ok(Outcome::Stays) => restored.leave(path, told),
            outcome => restored.note(outcome.map(|_| ()), told, |r| r.nr_cgroups += 1),
        }
    }
}

/// Cgroups that were made, or at least announced, in that order, with their inode numbers if known. The last
/// record of a cgroup counts.
fn still_made(entries: &[Entry]) -> Vec<(&Path, Option<u64>)> {
    let mut last: HashMap<&Path, usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        last.extend(cgroup_of(entry).map(|path| (path, index)));
    }
    let mut indices: Vec<usize> = last.into_values().collect();
    indices.sort_unstable();
    let is_made = |index: usize| match &entries[index] {
        Entry::Making { path } => Some((path.as_path(), None)),
        Entry::Made { path, inode } => Some((path.as_path(), Some(*inode))),
        _ => None,
    };
    indices.into_iter().filter_map(is_made).collect()
}

/// Origin of the first process that was moved into each cgroup.
pub(crate) fn origins(entries: &[Entry]) -> HashMap<&Path, &Path> {
    let mut origins: HashMap<&Path, &Path> = HashMap::new();
    for entry in entries {
        let Entry::Moved { from, to, .. } = entry else { continue };
        for (to, from) in to.iter().zip(from) {
            origins.entry(to).or_insert(from);
        }
    }
    origins
}

fn cgroup_of(entry: &Entry) -> Option<&Path> {
    match entry {
        Entry::Making { path } | Entry::Made { path, .. } | Entry::NotMade { path } => Some(path),
        _ => None,
    }
}

enum Outcome {
    Gone,
    /// Processes are in cgroups that others made inside.
    Stays,
}

struct Removal<'a> {
    proc: DirId,
    path: &'a Path,
    refuges: &'a [&'a Path],
    displaced: &'a mut Vec<Resident>,
}

impl Removal<'_> {
    fn remove_made<K: KernFs>(
        &mut self,
        kernel: &mut K,
        inode: u64,
        budget: &mut WaitBudget,
    ) -> Result<Outcome, KernError> {
        let Some(dir) = open_same(kernel, self.path, inode)? else { return Ok(Outcome::Gone) };
        let outcome = loop {
            let outcome = self.try_to_remove(kernel, dir);
            let is_busy = outcome.as_ref().is_err_and(|error| error.errno == Errno::EBUSY);
            if !is_busy || !budget.wait(kernel) {
                break outcome;
            }
        };
        kernel.close_dir(dir);
        outcome
    }

    fn try_to_remove<K: KernFs>(
        &mut self,
        kernel: &mut K,
        dir: DirId,
    ) -> Result<Outcome, KernError> {
        let inside = nested(kernel, self.path)?;
        if !inside.is_empty() && nr_nested(kernel, self.path)? > 0 {
            return Ok(Outcome::Stays);
        }
        self.empty(kernel, dir)?;
        for path in inside.iter().rev().map(PathBuf::as_path).chain([self.path]) {
            match remove(kernel, path) {
                Err(error) if error.is_gone() && path != self.path => {}
                outcome => outcome?,
            }
        }
        Ok(Outcome::Gone)
    }

    /// Removes a cgroup that was announced but never confirmed, only if it is empty: it may belong to another
    /// program.
    fn remove_announced(&self, kernel: &mut impl KernFs) -> Result<Outcome, KernError> {
        let dir = kernel.open_dir(self.path)?;
        kernel.close_dir(dir);
        match remove(kernel, self.path) {
            Err(error) if error.errno != Errno::EBUSY => Err(error),
            _ => Ok(Outcome::Gone),
        }
    }

    fn empty<K: KernFs>(&mut self, kernel: &mut K, dir: DirId) -> Result<(), KernError> {
        let mut evicted = |kernel: &mut K, pid, refuge: &Path| {
            // A process that went to an origin of claimed processes is claimed again from there.
            if self.path.starts_with(refuge) {
                self.displaced.extend(Resident::of(kernel, self.proc, pid, self.path, refuge));
            }
        };
        evacuate(kernel, dir, self.refuges, &mut evicted)
    }
}

fn remove(kernel: &mut impl KernFs, path: &Path) -> Result<(), KernError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let parent = kernel.open_dir(parent)?;
    let outcome = kernel.remove_dir(parent, &text_of_name(name));
    kernel.close_dir(parent);
    outcome
}
