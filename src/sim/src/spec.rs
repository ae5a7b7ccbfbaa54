//! The description of an interface file, in either hierarchy.

use super::controller::Controller;
use super::pressure::Resource;

/// What may be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
    ReadWrite,
}

/// Whether the root of a hierarchy has the file too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Everywhere,
    BelowRoot,
}

/// One kind of interface file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) file: File,
    /// The controller that it belongs to; `None` for files of the core.
    pub(super) controller: Option<Controller>,
    pub(super) place: Place,
    pub(super) mode: Mode,
}

/// The bounds of memory in the unified hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Min,
    Low,
    High,
    Max,
    SwapMax,
}

/// The files of the unified hierarchy, and those of the legacy one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Type,
    Procs,
    Threads,
    Controllers,
    SubtreeControl,
    Events,
    MaxDescendants,
    MaxDepth,
    Stat,
    Freeze,
    Kill,
    ShowsPressure,
    Pressure(Resource),
    CpuStat,
    CpuWeight,
    CpuMax,
    CpusetCpus,
    CpusetCpusEffective,
    CpusetMems,
    CpusetMemsEffective,
    CpusetPartition,
    IoStat,
    MemoryCurrent,
    MemoryPeak,
    MemoryBound(Bound),
    MemoryEvents,
    MemoryEventsLocal,
    MemoryStat,
    MemoryOomGroup,
    MemoryReclaim,
    MemorySwapCurrent,
    PidsCurrent,
    PidsMax,
    PidsEvents,
    Legacy(LegacyFile),
}

/// A file of the legacy hierarchies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LegacyFile {
    CpuShares,
    CpuQuota,
    CpuPeriod,
    CpuStat,
    CpuacctUsage,
    CpuacctStat,
    CpusetCpus,
    CpusetMems,
    CpusetEffectiveCpus,
    CpusetEffectiveMems,
    MemoryUsage,
    MemoryMaxUsage,
    MemoryLimit,
    MemorySoftLimit,
    MemoryFailcnt,
    MemoryOomControl,
    MemoryStat,
}
