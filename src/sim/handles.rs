//! Open handles: places, and the directories and files that refer to them.

use std::path::PathBuf;

use crate::host::kernfs::FileId;

use super::pressure::Resource;
use super::spec::Spec;
use super::tree::CgroupId;

/// A directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DirPlace {
    Cgroup(CgroupId),
    /// `/proc`.
    Proc,
    /// `/proc/PID`.
    Process(u32),
    /// `/proc/PID/task`.
    Tasks(u32),
    /// `/proc/PID/task/TID`.
    Task(u32, u32),
    /// `/proc/pressure`.
    ProcPressure,
    /// Any directory that holds only what stands still, by its path without the last slash.
    Still(String),
}

/// A file.
#[derive(Clone, Debug)]
pub(super) enum FilePlace {
    /// An interface file, and how often its controller had been disabled when it was opened.
    Cgroup(CgroupId, &'static Spec, u32),
    Proc(ProcFile),
    /// A file of `/sys/devices`, by its path.
    Sys(String),
}

/// A file below `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcFile {
    Stat,
    Meminfo,
    Uptime,
    Pressure(Resource),
    Mountinfo(u32),
    Cgroup(u32),
    Status(u32),
    PidStat(u32),
    Comm(u32),
    Io(u32),
    Schedstat(u32, u32),
}

/// A kept directory.
#[derive(Clone, Debug)]
pub(super) struct KeptDir {
    pub(super) place: DirPlace,
    pub(super) path: PathBuf,
    pub(super) files: Vec<FileId>,
    pub(super) is_locked: bool,
}

/// A kept file.
#[derive(Clone, Debug)]
pub(super) struct KeptFile {
    pub(super) place: FilePlace,
    pub(super) path: PathBuf,
}

/// The kept directories and files, and the one buffer of texts.
#[derive(Clone, Debug, Default)]
pub(super) struct Handles {
    pub(super) dirs: Vec<Option<KeptDir>>,
    pub(super) files: Vec<Option<KeptFile>>,
    pub(super) text: String,
}
