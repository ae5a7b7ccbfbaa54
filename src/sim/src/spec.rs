//! Description of an interface file, in either hierarchy.

use super::controller::Controller;
use super::pressure::Resource;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    Write,
    ReadWrite,
}

/// Presence of the file in the root of a hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Everywhere,
    BelowRoot,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Spec {
    pub(super) name: &'static str,
    pub(super) file: File,
    pub(super) controller: Option<Controller>,
    pub(super) place: Place,
    pub(super) mode: Mode,
}

pub(super) const fn spec(
    name: &'static str,
    file: File,
    controller: Option<Controller>,
    place: Place,
    mode: Mode,
) -> Spec {
    Spec { name, file, controller, place, mode }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    Min,
    Low,
    High,
    Max,
    SwapMax,
}

/// Files of the unified hierarchy, and those of the legacy one.
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
    CpuIdle,
    CpusetCpus,
    CpusetCpusEffective,
    CpusetMems,
    CpusetMemsEffective,
    CpusetPartition,
    IoStat,
    IoWeight,
    IoBfqWeight,
    IoMax,
    IoCostModel,
    IoCostQos,
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
    DiskBytes,
    DiskOperations,
    BfqWeight,
    /// By the place of the kind in `io.max`.
    Throttle(usize),
}
