//! Restoring everything, from the journal alone.
//!
//! A clean stop, the start after `kill -9`, and `tenantd --restore` use the same code and rely on the journal
//! only. It makes five passes, each backwards in time:
//!
//! 1. Processes return to their origin, unless they have left the cgroup that they were moved to
//!    ([`residence`](super::residence)). Files get their old values; those that the kernel refused are tried
//!    again after others ([`held_files`](super::held_files)).
//! 2. Children started meanwhile follow these processes, also out of cgroups made inside one of the agent's
//!    own, which must go.
//! 3. Controllers that were enabled for children are disabled again, innermost cgroups first.
//! 4. Processes still in cgroups that the agent made move out: to the origin of claimed ones, or else to the
//!    nearest ancestor that accepts them, where the next agent finds them (`residents`).
//! 5. These cgroups are removed, with empty ones made inside, and files refused until then are restored.
//!
//! Processes that were never claimed, in cgroups that a tenant made inside its own, stay there. The tenant's
//! cgroup then stays without the agent's values. That is reported, is not a failure, and is owed.
//!
//! Missing files and processes need no restoring. Values that cannot be restored are reported with their file,
//! and are *owed*: they stay in the journal for the next try. Nothing else stays there, because others may
//! change restored values from then on. An example of an owed value is a memory limit that the kernel could
//! meet only by killing.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::disk_settings;
use super::held_files::{HeldFiles, Refused, open_same};
use super::processes::{EVACUATIONS, ancestor, move_to, processes_at};
use super::removal::{origins, remove_made};
use super::residence::{Residence, made_inside};
pub use super::restored::Restored;
use super::scores;
use tenantd_host::cgroup::disk_limits::without_disk;
use tenantd_host::enforce::{CONTROLLERS, SUBTREE_CONTROL};
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{DirId, KernError, KernFs};
use tenantd_host::process;

/// Extent of a restoration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All: other values in the way are not the agent's.
    All,
    /// The part that a reload removes: other values of the agent stay.
    Part,
}

/// Undoes `entries` (oldest first).
pub fn put_back(
    kernel: &mut impl KernFs,
    proc: DirId,
    entries: &[Entry],
    extent: Extent,
) -> Restored {
    let (mut restored, refused) = put_contents_back(kernel, proc, entries);
    scores::put_back(kernel, proc, entries, &mut restored);
    // After the weights, whose files go with a scheduler.
    disk_settings::put_back(kernel, entries, &mut restored);
    remove_cgroups(kernel, proc, entries, (refused, extent), &mut restored);
    restored
}

/// Undoes the changes of processes and of files, except controllers: the first two passes. Also returns the
/// refused files.
pub(crate) fn put_contents_back<'a>(
    kernel: &mut impl KernFs,
    proc: DirId,
    entries: &'a [Entry],
) -> (Restored, Vec<Refused<'a>>) {
    let mut restored = Restored::default();
    let made: BTreeSet<(&Path, u64)> = entries.iter().filter_map(made).collect();
    let theirs: BTreeSet<(&Path, u64, &str)> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Theirs { path, inode, file } => Some((path.as_path(), *inode, &**file)),
            _ => None,
        })
        .collect();
    let files = HeldFiles::of(entries);
    let mut refused = Vec::new();
    let made_paths: BTreeSet<&Path> = made.iter().map(|(path, _)| *path).collect();
    let mut residence = Residence::new(&made_paths);
    for entry in entries.iter().rev() {
        match entry {
            // Such a list cannot be emptied while there are processes; it is removed with its cgroup.
            Entry::Held { path, inode, value, .. }
                if value.is_empty() && made.contains(&(path.as_path(), *inode)) => {}
            Entry::Moved { pid, start_ticks, .. } => {
                match process::birth(kernel, proc, *pid) {
                    Ok(Some(birth)) if birth.start_ticks == *start_ticks => {
                        move_back(kernel, &mut residence, entry, &mut restored);
                    }
                    // The process ended, and its pid may have been reused.
                    Ok(_) => {}
                    Err(error) => restored.fail(error.to_string(), entry),
                }
            }
            // Another program has set it since, and the agent left it alone.
            Entry::Held { path, inode, file, .. }
                if theirs.contains(&(path.as_path(), *inode, without_disk(file))) => {}
            Entry::Held { file, .. } if **file != *SUBTREE_CONTROL => {
                refused.extend(files.write_back(kernel, entry, &mut restored));
                // Processes that were moved aside are back.
                residence.forget();
            }
            _ => {}
        }
    }
    let refused = files.try_again(kernel, refused, &mut restored);
    follow_parents(kernel, proc, entries, &made_paths, &mut restored);
    (restored, refused)
}

/// Disables controllers, and removes the cgroups that were made: the other passes. Tries the `refused` files
/// again, because these cgroups may have bounded them.
pub(crate) fn remove_cgroups<'a>(
    kernel: &mut impl KernFs,
    proc: DirId,
    entries: &'a [Entry],
    (refused, extent): (Vec<Refused<'a>>, Extent),
    restored: &mut Restored,
) {
    let (mut in_use, mut still_enabled) = (Vec::new(), BTreeSet::new());
    for held in from_below(entries) {
        let outcome = disable(kernel, &held);
        if outcome.is_err() {
            still_enabled.insert(held.path);
        }
        match outcome {
            // A tenant uses them for its own cgroups, which may go with its cgroup.
            Err(error) if error.errno == Errno::EBUSY => in_use.push(held),
            outcome => restored.note(outcome, [held.entry], |restored| restored.nr_files += 1),
        }
    }
    remove_made(kernel, proc, entries, &still_enabled, restored);
    HeldFiles::of(entries).settle(kernel, refused, extent == Extent::All, restored);
    for held in in_use {
        match disable(kernel, &held) {
            Err(error)
                if error.errno == Errno::EBUSY
                    && restored.left.iter().any(|left| left.starts_with(held.path)) =>
            {
                restored.owe(held.entry);
            }
            outcome => restored.note(outcome, [held.entry], |restored| restored.nr_files += 1),
        }
    }
}

fn made(entry: &Entry) -> Option<(&Path, u64)> {
    match entry {
        Entry::Made { path, inode } => Some((path, *inode)),
        _ => None,
    }
}

/// Moves a process back if it is still in one of the agent's cgroups. Otherwise an administrator has moved it,
/// and it stays.
fn move_back<'a>(
    kernel: &mut impl KernFs,
    residence: &mut Residence<'a>,
    entry: &'a Entry,
    restored: &mut Restored,
) {
    let Entry::Moved { pid, from, to, .. } = entry else { return };
    let mut moved = false;
    for (from, to) in from.iter().zip(to) {
        let outcome = residence.lives_in(kernel, *pid, to).and_then(|lives_there| {
            if lives_there {
                move_to(kernel, from, *pid)?;
                residence.has_moved(*pid, to, from);
                moved = true;
            }
            Ok(())
        });
        restored.note(outcome, [entry], |_| ());
    }
    restored.nr_processes += usize::from(moved);
}

/// Moves the descendants of moved processes to the origin of their ancestors: without the agent they would have
/// been started there. A process whose ancestors have all ended stays, unless it is in a cgroup made inside one
/// of the agent's: it then goes to the origin of the first process of that cgroup, if that still exists.
fn follow_parents(
    kernel: &mut impl KernFs,
    proc: DirId,
    entries: &[Entry],
    made: &BTreeSet<&Path>,
    restored: &mut Restored,
) {
    let mut moves: BTreeMap<(u32, u64), Vec<(&Path, &Path)>> = BTreeMap::new();
    let mut nests: BTreeSet<&Path> = BTreeSet::new();
    let origins = origins(entries);
    for entry in entries {
        let Entry::Moved { pid, start_ticks, from, to } = entry else { continue };
        let pairs = to.iter().zip(from).map(|(to, from)| (to.as_path(), from.as_path()));
        moves.entry((*pid, *start_ticks)).or_default().extend(pairs);
        nests.extend(to.iter().map(PathBuf::as_path));
    }
    for nest in nests {
        let homes = |key: (u32, u64)| {
            let pairs = moves.get(&key)?;
            pairs.iter().find(|(to, _)| *to == nest).map(|(_, from)| *from)
        };
        let origin = origins.get(nest).copied();
        let movers = entries.iter().filter(move |entry| is_moved_to(entry, nest));
        for _ in 0..EVACUATIONS {
            let before = restored.nr_processes;
            let mut outcome =
                empty_nest(kernel, proc, nest, (&homes, None), movers.clone(), restored);
            // Processes in a cgroup that existed before stay: another program has put them there.
            for below in made_inside(kernel, made, nest).unwrap_or_default() {
                let emptied =
                    empty_nest(kernel, proc, &below, (&homes, origin), movers.clone(), restored);
                outcome = outcome.and(emptied);
            }
            restored.note(outcome, movers.clone(), |_| ());
            if restored.nr_processes == before {
                break;
            }
        }
    }
}

fn is_moved_to(entry: &Entry, nest: &Path) -> bool {
    matches!(entry, Entry::Moved { to, .. } if to.iter().any(|to| to == nest))
}

/// Moves processes of the cgroup `nest` to the old cgroup of an ancestor, if `movers` has one, or else to
/// `origin`.
fn empty_nest<'a>(
    kernel: &mut impl KernFs,
    proc: DirId,
    nest: &Path,
    (homes, origin): (&impl Fn((u32, u64)) -> Option<&'a Path>, Option<&'a Path>),
    movers: impl Iterator<Item = &'a Entry> + Clone,
    restored: &mut Restored,
) -> Result<(), KernError> {
    for pid in processes_at(kernel, nest)? {
        if let Some(home) = ancestor(kernel, proc, pid, homes)?.or(origin) {
            let outcome = move_to(kernel, home, pid);
            restored.note(outcome, movers.clone(), |restored| restored.nr_processes += 1);
        }
    }
    Ok(())
}

/// Recorded controllers that one cgroup had enabled for its children.
struct HeldControllers<'a> {
    entry: &'a Entry,
    path: &'a Path,
    inode: u64,
    before: &'a str,
}

/// Recorded controllers, innermost cgroup first: a cgroup cannot disable a controller that a child has enabled
/// for its own children. The journal is not in this order if an earlier restore has left a part of it.
fn from_below(entries: &[Entry]) -> Vec<HeldControllers<'_>> {
    let held = entries.iter().rev().filter_map(|entry| match entry {
        Entry::Held { path, inode, file, value } if **file == *SUBTREE_CONTROL => {
            Some(HeldControllers { entry, path, inode: *inode, before: value })
        }
        _ => None,
    });
    let mut held: Vec<HeldControllers<'_>> = held.collect();
    held.sort_by_key(|held| Reverse(held.path.components().count()));
    held
}

/// Disables the controllers that a cgroup enabled since, unless another program enabled them: restored by
/// difference, not by text.
fn disable(kernel: &mut impl KernFs, held: &HeldControllers<'_>) -> Result<(), KernError> {
    let Some(dir) = open_same(kernel, held.path, held.inode)? else { return Ok(()) };
    let outcome = disable_in(kernel, dir, held.before);
    kernel.close_dir(dir);
    outcome
}

fn disable_in(kernel: &mut impl KernFs, dir: DirId, before: &str) -> Result<(), KernError> {
    let now = kernel.read_once(dir, SUBTREE_CONTROL)?;
    let now = String::from_utf8_lossy(now).into_owned();
    let had = |controller: &&str| before.split_ascii_whitespace().any(|c| c == *controller);
    let mut outcome = Ok(());
    let is_ours = |controller: &&str| CONTROLLERS.contains(controller) && !had(controller);
    for controller in now.split_ascii_whitespace().filter(is_ours) {
        let disabled = kernel.write(dir, SUBTREE_CONTROL, &format!("-{controller}"));
        outcome = outcome.and(disabled);
    }
    outcome
}
