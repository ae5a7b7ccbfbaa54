//! The entries of a journal: one for each change of the host.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::systemd::{Property, Setting};
use tenantd_core::kernel_text::{path_text, path_texts};

/// One change of the host, with the data to undo it.
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
    /// The cgroup was made.
    Made {
        /// Its directory.
        #[serde(with = "path_text")]
        path: PathBuf,
        /// Its inode number: a later cgroup of this name must not be removed.
        inode: u64,
    },
    /// The cgroup was not made: another program was faster, and owns it.
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
        /// Its old value, without the newline.
        value: Box<str>,
    },
    /// A process is about to be moved.
    Moved {
        /// Pid.
        pid: u32,
        /// Start time, in clock ticks since boot: distinguishes it from a later process with this pid.
        start_ticks: u64,
        /// Its old cgroup directories, one for each tree it is moved in.
        #[serde(with = "path_texts")]
        from: Vec<PathBuf>,
        /// The tenant's cgroup directories, in the same order: children started there are moved back like their
        /// parent.
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
    /// Another program set a property of a unit since; the old value is void.
    UnitTheirs {
        /// The unit.
        unit: String,
        /// The property.
        property: Property,
        /// The agent's last value: a drop-in with this value is still the agent's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ours: Option<Box<Setting>>,
    },
    /// Processes are about to be marked for the OOM killer: from now on some may have an `oom_score_adj` of the agent's.
    Marking,
    /// A process whose `oom_score_adj` is not 0 is about to be marked.
    Scored {
        /// Pid.
        pid: u32,
        /// Start time, in clock ticks since boot.
        start_ticks: u64,
        /// Its old value.
        score: i16,
    },
    /// A setting of a disk is about to be changed for the first time.
    DiskHeld(Box<DiskHeld>),
    /// The agent stopped, and the policy made it leave everything in force (`control.on_exit: keep`). Valid
    /// only as the last entry.
    Kept,
}

/// The names of all kinds, as in the file.
pub(super) const KINDS: [&str; 13] = [
    "making",
    "made",
    "not_made",
    "held",
    "moved",
    "starting",
    "unit_held",
    "theirs",
    "unit_theirs",
    "marking",
    "scored",
    "disk_held",
    "kept",
];

/// A property of one life of a unit: the names of both, as in [`UnitHeld`].
pub type UnitProperty = (String, String, Property);

/// The old value of a property of a unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitHeld {
    /// The unit.
    pub unit: String,
    /// Life of a transient unit, which is removed with its run-time settings when it is stopped: a later unit
    /// of the same name never had this value. Empty for a unit with a file.
    pub life: String,
    /// The old value.
    pub held: Setting,
    /// Text of its drop-in, if it was set at run time.
    pub drop_in: Option<String>,
}

/// The old value of a setting of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskHeld {
    /// Directory of the disk's queue in `/sys/block`.
    #[serde(with = "path_text")]
    pub queue: PathBuf,
    /// Its inode number: a later disk of this name must not be restored.
    pub inode: u64,
    /// Directory of the file: that of the queue, or the top cgroup.
    #[serde(with = "path_text")]
    pub dir: PathBuf,
    /// Name of the file.
    pub file: String,
    /// Text that sets the old value.
    pub value: String,
}

/// Identity of a cgroup, file, process, slice or property.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key<'a> {
    Made(&'a Path),
    File(&'a Path, u64, &'a str),
    /// With its destinations: a process may be moved in one tree after the other.
    Process(u32, u64, &'a [PathBuf]),
    Slice(&'a str),
    /// With the life of the unit.
    Property(&'a str, &'a str, Property),
    Marks,
    Score(u32, u64),
    Disk(&'a Path, u64, &'a str),
}

impl Entry {
    /// Updates `announced`, the cgroups whose last record is [`Entry::Making`].
    pub(super) fn announce(&self, announced: &mut HashSet<PathBuf>) {
        match self {
            Entry::Making { path } => drop(announced.insert(path.clone())),
            Entry::Made { path, .. } | Entry::NotMade { path } => drop(announced.remove(path)),
            _ => {}
        }
    }

    pub(super) fn index_key(&self) -> Option<Key<'_>> {
        match self {
            Entry::Made { path, .. } => Some(Key::Made(path)),
            _ => self.key(),
        }
    }

    /// Key of an entry of which only the first record is valid.
    pub(super) fn key(&self) -> Option<Key<'_>> {
        match self {
            Entry::Held { path, inode, file, .. } => Some(Key::File(path, *inode, file)),
            Entry::Moved { pid, start_ticks, to, .. } => Some(Key::Process(*pid, *start_ticks, to)),
            Entry::Starting { unit } => Some(Key::Slice(unit)),
            Entry::UnitHeld(was) => Some(Key::Property(&was.unit, &was.life, was.held.property)),
            Entry::Marking => Some(Key::Marks),
            Entry::Scored { pid, start_ticks, .. } => Some(Key::Score(*pid, *start_ticks)),
            Entry::DiskHeld(was) => Some(Key::Disk(&was.queue, was.inode, &was.file)),
            Entry::Making { .. }
            | Entry::Made { .. }
            | Entry::NotMade { .. }
            | Entry::Theirs { .. }
            | Entry::UnitTheirs { .. }
            | Entry::Kept => None,
        }
    }
}
