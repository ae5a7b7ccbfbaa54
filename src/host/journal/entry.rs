//! What a journal says: one entry for each thing that was done to the host.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::host::systemd::{Property, Setting};

/// One thing that was done to the host, with what it takes to undo it.
///
/// There are thousands of the small kinds and a few of the large ones, which are boxed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A cgroup is about to be made.
    Making {
        /// Its directory.
        path: PathBuf,
    },
    /// It was made.
    Made {
        /// Its directory.
        path: PathBuf,
        /// Its inode number: a cgroup made anew under this name is not ours to remove.
        inode: u64,
    },
    /// It was not made after all: someone else was faster, and it is theirs.
    NotMade {
        /// Its directory.
        path: PathBuf,
    },
    /// A file is about to be written for the first time.
    Held {
        /// The cgroup's directory.
        path: PathBuf,
        /// The cgroup's inode number: a cgroup made anew under this name is not ours to put back.
        inode: u64,
        /// The file's name.
        file: Box<str>,
        /// What it held, without the newline.
        value: Box<str>,
    },
    /// A process is about to be moved.
    Moved {
        /// Process number.
        pid: u32,
        /// When it started, in clock ticks since boot: tells it from a later process of the same number.
        start_ticks: u64,
        /// The cgroup directories it was in, one for each tree it is moved in.
        from: Vec<PathBuf>,
        /// The tenant's cgroup directories, in the same order: who is born there belongs there no more than
        /// its parent does.
        to: Vec<PathBuf>,
    },
    /// A slice of systemd's is about to be started.
    Starting {
        /// The slice.
        unit: String,
    },
    /// A property of a unit is about to be set for the first time.
    UnitHeld(Box<UnitHeld>),
    /// Someone else wrote a file since, and the policy says that it is theirs: what it held before us is past.
    Theirs {
        /// The cgroup's directory.
        path: PathBuf,
        /// The cgroup's inode number.
        inode: u64,
        /// The file's name.
        file: Box<str>,
    },
    /// The same of a property of a unit.
    UnitTheirs {
        /// The unit.
        unit: String,
        /// The property.
        property: Property,
        /// What we had set it to last: a drop-in that says so is ours still.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ours: Option<Box<Setting>>,
    },
    /// The agent stopped, and the policy told it to leave everything in force (`control.on_exit: keep`). True
    /// only as long as nothing follows.
    Kept,
}

/// A property of a unit, as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitHeld {
    /// The unit.
    pub unit: String,
    /// Which life of the unit, where it goes when it is stopped, and its run-time settings with it: a later one of
    /// the same name never had this value. Empty for a unit that has a file.
    pub life: String,
    /// What it held.
    pub held: Setting,
    /// The text of its drop-in, where somebody had set it at run time.
    pub drop_in: Option<String>,
}

/// What tells a file or a process from every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key<'a> {
    File(&'a Path, u64, &'a str),
    /// ... and where to: a process may be moved in one tree after the other.
    Process(u32, u64, &'a [PathBuf]),
    Slice(&'a str),
    /// ... of this life of the unit.
    Property(&'a str, &'a str, Property),
}

impl Entry {
    /// Keeps `announced` true, the cgroups of which the last that was said is that they are about to be made.
    pub(super) fn announce(&self, announced: &mut HashSet<PathBuf>) {
        match self {
            Entry::Making { path } => drop(announced.insert(path.clone())),
            Entry::Made { path, .. } | Entry::NotMade { path } => drop(announced.remove(path)),
            _ => {}
        }
    }

    /// The key of an entry that only its first record is true of.
    pub(super) fn key(&self) -> Option<Key<'_>> {
        match self {
            Entry::Held { path, inode, file, .. } => Some(Key::File(path, *inode, file)),
            Entry::Moved { pid, start_ticks, to, .. } => Some(Key::Process(*pid, *start_ticks, to)),
            Entry::Starting { unit } => Some(Key::Slice(unit)),
            Entry::UnitHeld(was) => Some(Key::Property(&was.unit, &was.life, was.held.property)),
            Entry::Making { .. }
            | Entry::Made { .. }
            | Entry::NotMade { .. }
            | Entry::Theirs { .. }
            | Entry::UnitTheirs { .. }
            | Entry::Kept => None,
        }
    }
}
