//! Open handles: places, and the directories and files that refer to them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use tenantd_host::kernfs::{DirId, FileId, KernError, Operation};

use super::pressure::Resource;
use super::spec::Spec;
use super::tree::CgroupId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DirPlace {
    Cgroup(CgroupId),
    Proc,
    Process(u32),
    Tasks(u32),
    Task(u32, u32),
    ProcPressure,
    ProcSys,
    ProcVm,
    /// A directory with only constant files, by its path without the last slash.
    Still(String),
}

#[derive(Clone, Debug)]
pub(super) enum FilePlace {
    /// An interface file, and its controller's count of disablings when it was opened.
    Cgroup(CgroupId, &'static Spec, u32),
    Proc(ProcFile),
    Sys(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcFile {
    Stat,
    Meminfo,
    Devices,
    Uptime,
    Pressure(Resource),
    MinFree,
    Diskstats,
    Mountinfo(u32),
    Cgroup(u32),
    Status(u32),
    PidStat(u32),
    Statm(u32),
    Comm(u32),
    Io(u32),
    OomScoreAdj(u32),
    Schedstat(u32, u32),
}

#[derive(Clone, Debug)]
pub(super) struct KeptDir {
    pub(super) place: DirPlace,
    pub(super) path: PathBuf,
    pub(super) files: Vec<FileId>,
    pub(super) is_locked: bool,
}

#[derive(Clone, Debug)]
pub(super) struct KeptFile {
    pub(super) place: FilePlace,
    pub(super) path: PathBuf,
    /// Time and content of the last reading, if the kernel keeps that for the next one.
    pub(super) listed: Option<(Duration, String)>,
}

/// Open items by number. No number is reused, so that a dead handle stays dead.
#[derive(Clone, Debug)]
pub(super) struct Open<T> {
    items: BTreeMap<u32, T>,
    next: u32,
}

// Not derived: that would require a default item.
impl<T> Default for Open<T> {
    fn default() -> Self {
        Open { items: BTreeMap::new(), next: 0 }
    }
}

impl<T> Open<T> {
    pub(super) fn open(&mut self, item: T) -> u32 {
        let number = self.next;
        self.next += 1;
        self.items.insert(number, item);
        number
    }

    pub(super) fn close(&mut self, number: u32) -> Option<T> {
        self.items.remove(&number)
    }

    pub(super) fn close_all(&mut self) {
        self.items.clear();
    }

    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.items.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.items.get_mut(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.items.iter().map(|(number, item)| (*number, item))
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Handles {
    pub(super) dirs: Open<KeptDir>,
    pub(super) files: Open<KeptFile>,
    pub(super) text: Vec<u8>,
}

impl Handles {
    pub(super) fn dir(&self, dir: DirId) -> Result<&KeptDir, KernError> {
        let closed = || KernError::new(Operation::Open, "(closed directory)", Errno::EBADF);
        self.dirs.get(dir.0).ok_or_else(closed)
    }
}
