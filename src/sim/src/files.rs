//! Interface files of the unified hierarchy, and the place of each.
//!
//! Source: Documentation/admin-guide/cgroup-v2.rst. [`super::show`] has their texts, [`super::store`] the
//! accepted values.

use super::controller::Controller;
use super::files_v1;
use super::pressure::Resource;
use super::spec::{Bound, File, LegacyFile, Mode, Place, Spec, spec};
use super::tree::{CgroupId, Tree, Version};

/// Files of the unified hierarchy, in arbitrary order.
pub(super) const UNIFIED: &[Spec] = {
    use Bound::SwapMax;
    use Controller::{Cpu, Cpuset, Io, Memory, Pids};
    use Mode::{Read, ReadWrite, Write};
    use Place::{BelowRoot, Everywhere};
    &[
        spec("cgroup.type", File::Type, None, BelowRoot, ReadWrite),
        spec("cgroup.procs", File::Procs, None, Everywhere, ReadWrite),
        spec("cgroup.threads", File::Threads, None, Everywhere, ReadWrite),
        spec("cgroup.controllers", File::Controllers, None, Everywhere, Read),
        spec("cgroup.subtree_control", File::SubtreeControl, None, Everywhere, ReadWrite),
        spec("cgroup.events", File::Events, None, BelowRoot, Read),
        spec("cgroup.max.descendants", File::MaxDescendants, None, Everywhere, ReadWrite),
        spec("cgroup.max.depth", File::MaxDepth, None, Everywhere, ReadWrite),
        spec("cgroup.stat", File::Stat, None, Everywhere, Read),
        spec("cgroup.freeze", File::Freeze, None, BelowRoot, ReadWrite),
        spec("cgroup.kill", File::Kill, None, BelowRoot, Write),
        spec("cgroup.pressure", File::ShowsPressure, None, Everywhere, ReadWrite),
        spec("cpu.pressure", File::Pressure(Resource::Cpu), None, Everywhere, ReadWrite),
        spec("memory.pressure", File::Pressure(Resource::Memory), None, Everywhere, ReadWrite),
        spec("io.pressure", File::Pressure(Resource::Io), None, Everywhere, ReadWrite),
        spec("cpu.stat", File::CpuStat, None, Everywhere, Read),
        spec("cpu.weight", File::CpuWeight, Some(Cpu), BelowRoot, ReadWrite),
        spec("cpu.max", File::CpuMax, Some(Cpu), BelowRoot, ReadWrite),
        spec("cpu.idle", File::CpuIdle, Some(Cpu), BelowRoot, ReadWrite),
        spec("cpuset.cpus", File::CpusetCpus, Some(Cpuset), BelowRoot, ReadWrite),
        spec("cpuset.cpus.effective", File::CpusetCpusEffective, Some(Cpuset), Everywhere, Read),
        spec("cpuset.mems", File::CpusetMems, Some(Cpuset), BelowRoot, ReadWrite),
        spec("cpuset.mems.effective", File::CpusetMemsEffective, Some(Cpuset), Everywhere, Read),
        spec("cpuset.cpus.partition", File::CpusetPartition, Some(Cpuset), BelowRoot, Read),
        spec("io.stat", File::IoStat, Some(Io), Everywhere, Read),
        spec("io.weight", File::IoWeight, Some(Io), BelowRoot, ReadWrite),
        spec("io.bfq.weight", File::IoBfqWeight, Some(Io), BelowRoot, ReadWrite),
        spec("io.max", File::IoMax, Some(Io), BelowRoot, ReadWrite),
        spec("io.cost.model", File::IoCostModel, Some(Io), Everywhere, ReadWrite),
        spec("io.cost.qos", File::IoCostQos, Some(Io), Everywhere, ReadWrite),
        spec("memory.current", File::MemoryCurrent, Some(Memory), BelowRoot, Read),
        spec("memory.peak", File::MemoryPeak, Some(Memory), BelowRoot, Read),
        spec("memory.min", File::MemoryBound(Bound::Min), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.low", File::MemoryBound(Bound::Low), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.high", File::MemoryBound(Bound::High), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.max", File::MemoryBound(Bound::Max), Some(Memory), BelowRoot, ReadWrite),
        spec("memory.events", File::MemoryEvents, Some(Memory), BelowRoot, Read),
        spec("memory.events.local", File::MemoryEventsLocal, Some(Memory), BelowRoot, Read),
        spec("memory.stat", File::MemoryStat, Some(Memory), Everywhere, Read),
        spec("memory.oom.group", File::MemoryOomGroup, Some(Memory), BelowRoot, ReadWrite),
        spec("memory.reclaim", File::MemoryReclaim, Some(Memory), Everywhere, Write),
        spec("memory.swap.current", File::MemorySwapCurrent, Some(Memory), BelowRoot, Read),
        spec("memory.swap.max", File::MemoryBound(SwapMax), Some(Memory), BelowRoot, ReadWrite),
        spec("pids.current", File::PidsCurrent, Some(Pids), BelowRoot, Read),
        spec("pids.max", File::PidsMax, Some(Pids), BelowRoot, ReadWrite),
        spec("pids.events", File::PidsEvents, Some(Pids), BelowRoot, Read),
    ]
};

impl Tree {
    pub(super) fn spec(&self, id: CgroupId, name: &str) -> Option<&'static Spec> {
        self.get(id)?;
        let table = match self.version(id) {
            Version::V2 => UNIFIED,
            Version::V1 => files_v1::LEGACY,
        };
        table.iter().find(|spec| spec.name == name).filter(|spec| self.has_file(id, spec))
    }

    pub(super) fn has_file(&self, id: CgroupId, spec: &Spec) -> bool {
        let Some(cgroup) = self.get(id) else { return false };
        let enabled = spec.controller.is_none_or(|c| cgroup.controllers.contains(c));
        let placed = spec.place == Place::Everywhere || cgroup.parent.is_some();
        let shown = match spec.file {
            File::Pressure(_) => cgroup.shows_pressure,
            File::IoBfqWeight | File::Legacy(LegacyFile::BfqWeight) => self.has_bfq,
            File::IoCostModel | File::IoCostQos => cgroup.parent.is_none(),
            _ => true,
        };
        enabled && placed && shown
    }

    /// Number of disablings of the controller of a file: a kept file of an earlier one is dead.
    pub(super) fn epoch(&self, id: CgroupId, spec: &Spec) -> u32 {
        let known = self.get(id).zip(spec.controller);
        known.map_or(0, |(cgroup, controller)| cgroup.epochs[controller as usize])
    }
}
