//! Putting everything back, from the journal alone.
//!
//! The same few lines serve a clean stop, the start after `kill -9`, and `tenantd --restore`: none of them
//! trusts anything but the journal. Four passes, each backwards in time:
//!
//! 1. processes go back to where they were, and files get back what they held;
//! 2. controllers that were enabled for children are disabled again;
//! 3. cgroups that were made lose the processes that were born in them, to the nearest cgroup that was not
//!    made by us;
//! 4. and are removed.
//!
//! What is gone needs no putting back. What cannot be put back is said, with its file, and stays in the
//! journal for the next try.

use std::path::{Path, PathBuf};

use crate::host::journal::Entry;
use crate::host::kernfs::{DirId, KernError, KernFs};
use crate::host::process;

/// The file that tells which controllers children have; put back by difference, not by text.
const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// How often a cgroup is emptied again before it is given up: its processes may fork meanwhile.
const EVACUATIONS: usize = 16;

/// What came of putting things back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files that hold again what they held before.
    pub nr_files: usize,
    /// Processes that were moved back.
    pub nr_processes: usize,
    /// Cgroups that were removed.
    pub nr_cgroups: usize,
    /// What could not be put back, each with its file and reason.
    pub failures: Vec<String>,
}

/// Undoes `entries` (oldest first).
pub fn put_back(kernel: &mut impl KernFs, proc: DirId, entries: &[Entry]) -> Restored {
    let mut restored = Restored::default();
    for entry in entries.iter().rev() {
        match entry {
            Entry::Moved { pid, start_ticks, from } => {
                if process::start_ticks(kernel, proc, *pid) == Some(*start_ticks) {
                    move_back(kernel, *pid, from, &mut restored);
                }
            }
            Entry::Held { path, inode, file, value } if file != SUBTREE_CONTROL => {
                let outcome = write_back(kernel, path, *inode, file, value);
                restored.note(outcome, |restored| restored.nr_files += 1);
            }
            Entry::Held { .. } | Entry::Made { .. } => {}
        }
    }
    for entry in entries.iter().rev() {
        if let Entry::Held { path, inode, file, value } = entry
            && file == SUBTREE_CONTROL
        {
            let outcome = disable(kernel, path, *inode, value);
            restored.note(outcome, |restored| restored.nr_files += 1);
        }
    }
    remove_made(kernel, entries, &mut restored);
    restored
}

impl Restored {
    /// Counts a success; what is gone is one too, but counts for nothing.
    fn note(&mut self, outcome: Result<(), KernError>, count: impl FnOnce(&mut Restored)) {
        match outcome {
            Ok(()) => count(self),
            Err(error) if error.is_gone() => {}
            Err(error) => self.failures.push(error.to_string()),
        }
    }
}

/// Opens `path` if it is still the cgroup with this inode number.
fn open_same(
    kernel: &mut impl KernFs,
    path: &Path,
    inode: u64,
) -> Result<Option<DirId>, KernError> {
    let dir = kernel.open_dir(path)?;
    match kernel.inode(dir)? == inode {
        true => Ok(Some(dir)),
        false => {
            kernel.close_dir(dir);
            Ok(None)
        }
    }
}

fn write_back(
    kernel: &mut impl KernFs,
    path: &Path,
    inode: u64,
    file: &str,
    value: &str,
) -> Result<(), KernError> {
    let Some(dir) = open_same(kernel, path, inode)? else { return Ok(()) };
    let now = kernel.read_once(dir, file).map(|text| text.trim_ascii_end() == value.as_bytes());
    let outcome = match now {
        Ok(true) => Ok(()),
        // An empty text would be no write at all: the kernel takes a newline for "nothing".
        Ok(false) if value.is_empty() => kernel.write(dir, file, "\n"),
        Ok(false) => kernel.write(dir, file, value),
        Err(error) => Err(error),
    };
    kernel.close_dir(dir);
    outcome
}

fn move_back(kernel: &mut impl KernFs, pid: u32, from: &[PathBuf], restored: &mut Restored) {
    let mut moved = false;
    for path in from {
        let outcome = kernel.open_dir(path).and_then(|dir| {
            let outcome = kernel.move_process(dir, pid);
            kernel.close_dir(dir);
            outcome
        });
        restored.note(outcome, |_| moved = true);
    }
    restored.nr_processes += usize::from(moved);
}

/// Disables the controllers that `path` has for its children now and had not before.
fn disable(
    kernel: &mut impl KernFs,
    path: &Path,
    inode: u64,
    before: &str,
) -> Result<(), KernError> {
    let Some(dir) = open_same(kernel, path, inode)? else { return Ok(()) };
    let now = kernel.read_once(dir, SUBTREE_CONTROL)?;
    let now = String::from_utf8_lossy(now).into_owned();
    let had = |controller: &&str| before.split_ascii_whitespace().any(|c| c == *controller);
    let mut outcome = Ok(());
    for controller in now.split_ascii_whitespace().filter(|c| !had(c)) {
        let disabled = kernel.write(dir, SUBTREE_CONTROL, &format!("-{controller}"));
        outcome = outcome.and(disabled);
    }
    kernel.close_dir(dir);
    outcome
}

/// Empties and removes the cgroups that were made, children before parents.
fn remove_made(kernel: &mut impl KernFs, entries: &[Entry], restored: &mut Restored) {
    let mut made: Vec<(&Path, Option<u64>)> = Vec::new();
    for entry in entries {
        let Entry::Made { path, inode } = entry else { continue };
        // The first record announces the cgroup, the second confirms it with its inode number.
        made.retain(|(known, _)| known != path);
        made.push((path, *inode));
    }
    for (path, inode) in made.iter().rev() {
        let refuge = path.ancestors().skip(1).find(|up| made.iter().all(|(path, _)| path != up));
        let outcome = remove(kernel, path, *inode, refuge);
        restored.note(outcome, |restored| restored.nr_cgroups += 1);
    }
}

fn remove(
    kernel: &mut impl KernFs,
    path: &Path,
    inode: Option<u64>,
    refuge: Option<&Path>,
) -> Result<(), KernError> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let name = name.to_string_lossy();
    match inode {
        // Announced but never confirmed: removed only if it is empty, for it may be someone else's.
        None => {}
        Some(inode) => {
            let Some(dir) = open_same(kernel, path, inode)? else { return Ok(()) };
            let outcome = match refuge {
                Some(refuge) => evacuate(kernel, dir, refuge),
                None => Ok(()),
            };
            kernel.close_dir(dir);
            outcome?;
        }
    }
    let parent = kernel.open_dir(parent)?;
    let outcome = kernel.remove_dir(parent, &name);
    kernel.close_dir(parent);
    match outcome {
        Err(error) if inode.is_none() && !error.is_gone() => Ok(()),
        outcome => outcome,
    }
}

/// Moves every process in `dir` to `refuge`.
fn evacuate(kernel: &mut impl KernFs, dir: DirId, refuge: &Path) -> Result<(), KernError> {
    for _ in 0..EVACUATIONS {
        let text = String::from_utf8_lossy(kernel.read_once(dir, "cgroup.procs")?).into_owned();
        if text.is_empty() {
            return Ok(());
        }
        let refuge = kernel.open_dir(refuge)?;
        for pid in text.lines().filter_map(|line| line.parse().ok()) {
            match kernel.move_process(refuge, pid) {
                Err(error) if !error.is_gone() => {
                    kernel.close_dir(refuge);
                    return Err(error);
                }
                _ => {}
            }
        }
        kernel.close_dir(refuge);
    }
    Ok(())
}
