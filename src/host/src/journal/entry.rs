//! The entries of a journal: one for each change of the host.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::systemd::{Property, Setting};
use tenantd_core::kernel_text::{path_text, path_texts};

/// One change of the host, with what is needed to undo it.
///
/// There are thousands of the small kinds and a few of the large ones, which are boxed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A cgroup is about to be made.
    Making {
        /// Its directory.
        #[serde(with = "path_text")]
        path: PathBuf,
    },
    /// It was made.
    Made {
        /// Its directory.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Its inode number: a later cgroup of this name must not be removed.
        inode: u64,
    },
    /// It was not made after all: another program was faster, and owns it.
    NotMade {
        /// Its directory.
        #[serde(with = "path_text")]
        path: PathBuf,
    },
    /// A file is about to be written for the first time.
    Held {
        /// The cgroup's directory.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// The cgroup's inode number: a later cgroup of this name must not be restored.
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
        /// When it started, in clock ticks since boot: distinguishes it from a later process of the same
        /// number.
        start_ticks: u64,
        /// The cgroup directories it was in, one for each tree it is moved in.
        #[serde(with = "path_texts")]
        from: Vec<PathBuf>,
        /// The tenant's cgroup directories, in the same order: children that are started there are moved back
        /// like their parent.
        #[serde(with = "path_texts")]
        to: Vec<PathBuf>,
    },
    /// A slice of systemd's is about to be started.
    Starting {
        /// The slice.
        unit: String,
    },
    /// A property of a unit is about to be set for the first time.
    UnitHeld(Box<UnitHeld>),
    /// Another program wrote a file since, and the policy leaves its value in place: the old value is void.
    Theirs {
        /// The cgroup's directory.
        #[serde(with = "path_text")]
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
        /// The value that the agent set last: a drop-in with this value is still the agent's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ours: Option<Box<Setting>>,
    },
    /// The agent stopped, and the policy told it to leave everything in force (`control.on_exit: keep`). True
    /// only as long as nothing follows.
    Kept,
}

/// The names of all kinds, as in the file.
pub(super) const KINDS: [&str; 10] = [
    "making",
    "made",
    "not_made",
    "held",
    "moved",
    "starting",
    "unit_held",
    "theirs",
    "unit_theirs",
    "kept",
];

/// A property of one life of a unit: the names of both, as in [`UnitHeld`].
pub type UnitProperty = (String, String, Property);

/// A property of a unit, as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitHeld {
    /// The unit.
    pub unit: String,
    /// The life of a unit that is removed when it is stopped, with its run-time settings: a later unit of the
    /// same name never had this value. Empty for a unit that has a file.
    pub life: String,
    /// What it held.
    pub held: Setting,
    /// The text of its drop-in, where it had been set at run time.
    pub drop_in: Option<String>,
}

/// The identity of a cgroup, file, process, slice or property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key<'a> {
    Made(&'a Path),
    File(&'a Path, u64, &'a str),
    /// ... and where to: a process may be moved in one tree after the other.
    Process(u32, u64, &'a [PathBuf]),
    Slice(&'a str),
    /// ... of this life of the unit.
    Property(&'a str, &'a str, Property),
}

impl Entry {
    /// Updates `announced`, the cgroups whose last record says that they are about to be made.
    pub(super) fn announce(&self, announced: &mut HashSet<PathBuf>) {
        match self {
            Entry::Making { path } => drop(announced.insert(path.clone())),
            Entry::Made { path, .. } | Entry::NotMade { path } => drop(announced.remove(path)),
            _ => {}
        }
    }

    /// The key by which an entry is found.
    pub(super) fn index_key(&self) -> Option<Key<'_>> {
        match self {
            Entry::Made { path, .. } => Some(Key::Made(path)),
            _ => self.key(),
        }
    }

    /// The key of an entry of which only the first record is valid.
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
