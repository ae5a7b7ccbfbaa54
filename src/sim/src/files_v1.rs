//! Interface files of the legacy hierarchies.
//!
//! Source: Documentation/admin-guide/cgroup-v1, and experiments on a 6.18 kernel: shares are clamped to 2
//! ..= 262144 instead of refused, a negative quota means none, and a limit is a number that always rounds
//! down to pages.

use nix::errno::Errno;

use super::account::{Kind, MemoryCounters, Pages};
use super::controller::Controller;
use super::disk::{self, show_blkio};
use super::kernel::SimKernel;
use super::parse::{self, Bandwidth, CpuSet, PAGE_BYTES};
use super::population::Population;
use super::reclaim::Reason;
use super::spec::{File as AnyFile, LegacyFile as File, Mode, Place, Spec, spec};
use super::tree::{Cgroup, CgroupId, CpusetKnobs, Tree, Version};

const SHARES_MIN: u64 = 2;
const SHARES_MAX: u64 = 1 << 18;

const fn file(name: &'static str, file: File, controller: Controller, mode: Mode) -> Spec {
    spec(name, AnyFile::Legacy(file), Some(controller), Place::Everywhere, mode)
}

pub(super) const LEGACY: &[Spec] = {
    use Controller::{Cpu, Cpuacct, Cpuset, Io, Memory, Pids};
    use Mode::{Read, ReadWrite};
    &[
        spec("cgroup.procs", AnyFile::Procs, None, Place::Everywhere, ReadWrite),
        spec("tasks", AnyFile::Threads, None, Place::Everywhere, ReadWrite),
        file("cpu.shares", File::CpuShares, Cpu, ReadWrite),
        file("cpu.cfs_quota_us", File::CpuQuota, Cpu, ReadWrite),
        file("cpu.cfs_period_us", File::CpuPeriod, Cpu, ReadWrite),
        file("cpu.stat", File::CpuStat, Cpu, Read),
        file("cpuacct.usage", File::CpuacctUsage, Cpuacct, Read),
        file("cpuacct.stat", File::CpuacctStat, Cpuacct, Read),
        file("cpuset.cpus", File::CpusetCpus, Cpuset, ReadWrite),
        file("cpuset.mems", File::CpusetMems, Cpuset, ReadWrite),
        file("cpuset.effective_cpus", File::CpusetEffectiveCpus, Cpuset, Read),
        file("cpuset.effective_mems", File::CpusetEffectiveMems, Cpuset, Read),
        file("memory.usage_in_bytes", File::MemoryUsage, Memory, Read),
        file("memory.max_usage_in_bytes", File::MemoryMaxUsage, Memory, Read),
        file("memory.limit_in_bytes", File::MemoryLimit, Memory, ReadWrite),
        file("memory.soft_limit_in_bytes", File::MemorySoftLimit, Memory, ReadWrite),
        file("memory.failcnt", File::MemoryFailcnt, Memory, Read),
        file("memory.oom_control", File::MemoryOomControl, Memory, Read),
        file("memory.stat", File::MemoryStat, Memory, Read),
        file("blkio.throttle.io_service_bytes_recursive", File::DiskBytes, Io, Read),
        file("blkio.throttle.io_serviced_recursive", File::DiskOperations, Io, Read),
        spec(
            "blkio.bfq.weight",
            AnyFile::Legacy(File::BfqWeight),
            Some(Io),
            Place::BelowRoot,
            ReadWrite,
        ),
        file("blkio.throttle.read_bps_device", File::Throttle(0), Io, ReadWrite),
        file("blkio.throttle.write_bps_device", File::Throttle(1), Io, ReadWrite),
        file("blkio.throttle.read_iops_device", File::Throttle(2), Io, ReadWrite),
        file("blkio.throttle.write_iops_device", File::Throttle(3), Io, ReadWrite),
        spec("pids.max", AnyFile::PidsMax, Some(Pids), Place::BelowRoot, ReadWrite),
        spec("pids.events", AnyFile::PidsEvents, Some(Pids), Place::BelowRoot, Read),
        spec("pids.current", AnyFile::PidsCurrent, Some(Pids), Place::BelowRoot, Read),
    ]
};

pub(super) fn show_legacy(kernel: &SimKernel, id: CgroupId, file: File) -> Result<String, Errno> {
    let cgroup = kernel.live.tree.get(id).ok_or(Errno::ENODEV)?;
    let is_root = cgroup.parent.is_none();
    let account = &cgroup.cpu_account;
    let bandwidth = cgroup.cpu.bandwidth;
    let bytes = |pages: u64| format!("{}\n", pages * PAGE_BYTES);
    Ok(match file {
        File::CpuShares => format!("{}\n", cgroup.cpu.shares),
        File::CpuQuota => bandwidth.quota_usec.map_or("-1\n".into(), |quota| format!("{quota}\n")),
        File::CpuPeriod => format!("{}\n", bandwidth.period_usec),
        File::CpuStat => format!(
            "nr_periods {}\nnr_throttled {}\nthrottled_time {}\nnr_bursts 0\nburst_time 0\n",
            account.nr_periods, account.nr_throttled, account.throttled_nsec as u64
        ),
        File::CpuacctUsage => format!("{}\n", account.usage_nsec as u64),
        File::CpuacctStat => {
            let ticks = |nsec: f64| (nsec / 1e7) as u64;
            let user = ticks(account.usage_nsec - account.system_nsec);
            format!("user {user}\nsystem {}\n", ticks(account.system_nsec))
        }
        File::CpusetCpus if is_root => parse::format_list(&kernel.cpu.online) + "\n",
        File::CpusetMems if is_root => parse::format_list(&kernel.host.mems()) + "\n",
        File::CpusetCpus => parse::format_list(&cgroup.cpuset.cpus) + "\n",
        File::CpusetMems => parse::format_list(&cgroup.cpuset.mems) + "\n",
        File::CpusetEffectiveCpus if is_root => parse::format_list(&kernel.cpu.online) + "\n",
        File::CpusetEffectiveCpus => {
            parse::format_list(&(&cgroup.cpuset.cpus & &kernel.cpu.online)) + "\n"
        }
        File::CpusetEffectiveMems if is_root => parse::format_list(&kernel.host.mems()) + "\n",
        File::CpusetEffectiveMems => parse::format_list(&cgroup.cpuset.mems) + "\n",
        File::MemoryUsage => bytes(cgroup.memory_account.usage),
        File::MemoryMaxUsage => bytes(cgroup.memory_account.peak),
        File::MemoryLimit => bytes(cgroup.memory.max),
        File::MemorySoftLimit => bytes(cgroup.memory.soft_limit),
        File::MemoryFailcnt => format!("{}\n", cgroup.memory_account.failcnt),
        File::MemoryOomControl => format!(
            "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
            cgroup.memory_account.local_events.oom_kill
        ),
        File::MemoryStat => show_legacy_memory_stat(&kernel.live, id),
        File::DiskBytes => show_blkio(cgroup.disk.read_bytes, cgroup.disk.written_bytes),
        File::DiskOperations => show_blkio(cgroup.disk.reads, cgroup.disk.writes),
        File::BfqWeight => format!("{}\n", cgroup.disk_knobs.bfq),
        File::Throttle(kind) => cgroup.disk_knobs.show_throttle(kind),
    })
}

pub(super) fn store_legacy(
    kernel: &mut SimKernel,
    id: CgroupId,
    file: File,
    text: &str,
) -> Result<(), Errno> {
    let tree = &mut kernel.live.tree;
    let is_root = tree[id].parent.is_none();
    let root_is_fixed = !matches!(file, File::MemorySoftLimit);
    if is_root && root_is_fixed {
        return Err(match file {
            File::CpusetCpus | File::CpusetMems => Errno::EACCES,
            _ => Errno::EINVAL,
        });
    }
    match file {
        File::CpuShares => {
            tree[id].cpu.shares = parse::unsigned(text)?.clamp(SHARES_MIN, SHARES_MAX);
        }
        File::BfqWeight => tree[id].disk_knobs.bfq = disk::weight(text, true)?,
        File::Throttle(kind) => tree[id].disk_knobs.write_throttle(kind, text)?,
        File::CpuQuota => {
            let quota_usec = u64::try_from(parse::signed(text)?).ok();
            tree.set_bandwidth(id, Bandwidth { quota_usec, ..tree[id].cpu.bandwidth })?;
        }
        File::CpuPeriod => {
            let period_usec = parse::unsigned(text)?;
            tree.set_bandwidth(id, Bandwidth { period_usec, ..tree[id].cpu.bandwidth })?;
        }
        File::CpusetCpus => {
            let cpus = parse::cpu_list(text, kernel.host.cpus.max(1))?;
            if !cpus.is_subset(&kernel.cpu.online) {
                return Err(Errno::EINVAL);
            }
            let above = tree.legacy_set(id, |c| &c.cpuset.cpus, &kernel.cpu.online).clone();
            tree.vet_legacy_set(id, &cpus, &above, |cgroup| &cgroup.cpuset.cpus)?;
            tree[id].cpuset.cpus = cpus;
        }
        File::CpusetMems => {
            let nodes = kernel.host.numa_nodes.max(1);
            let mems = parse::cpu_list(text, nodes).map_err(|_| Errno::EINVAL)?;
            let all = kernel.host.mems();
            let above = tree.legacy_set(id, |c| &c.cpuset.mems, &all).clone();
            tree.vet_legacy_set(id, &mems, &above, |cgroup| &cgroup.cpuset.mems)?;
            tree[id].cpuset.mems = mems;
        }
        File::MemoryLimit => write_limit(kernel, id, parse::pages(text, "-1")?)?,
        File::MemorySoftLimit => tree[id].memory.soft_limit = parse::pages(text, "-1")?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Refuses a limit below unreclaimable memory, where `memory.max` would kill.
fn write_limit(kernel: &mut SimKernel, id: CgroupId, pages: u64) -> Result<(), Errno> {
    let SimKernel { live, memory, .. } = kernel;
    let excess = live.tree[id].memory_account.usage.saturating_sub(pages);
    if memory.reclaim(live, id, excess, Reason::Direct) < excess {
        return Err(Errno::EBUSY);
    }
    live.tree[id].memory.max = pages;
    Ok(())
}

/// `memory.stat`: charges here, then with everything below as `total_`.
fn show_legacy_memory_stat(live: &Population, id: CgroupId) -> String {
    let account = &live.tree[id].memory_account;
    let limit = live.tree.lineage(id).map(|id| live.tree[id].memory.max).min();
    let limit = limit.unwrap_or(parse::PAGES_MAX) * PAGE_BYTES;
    let block = |prefix: &str, pages: &Pages, counters: &MemoryCounters| -> String {
        let of = |kind| pages.of(kind) * PAGE_BYTES;
        let lines = [
            ("cache", pages.file() * PAGE_BYTES),
            ("rss", of(Kind::Anon) + of(Kind::Locked)),
            ("rss_huge", 0),
            ("shmem", 0),
            ("mapped_file", 0),
            ("dirty", 0),
            ("writeback", 0),
            ("workingset_refault_anon", 0),
            ("workingset_refault_file", counters.refault_file),
            ("swap", 0),
            ("swapcached", 0),
            ("pgpgin", counters.fault),
            ("pgpgout", counters.steal_background + counters.steal_direct),
            ("pgfault", counters.fault),
            ("pgmajfault", counters.major_fault),
            ("inactive_anon", 0),
            ("active_anon", of(Kind::Anon)),
            ("inactive_file", of(Kind::InactiveFile)),
            ("active_file", of(Kind::ActiveFile)),
            ("unevictable", of(Kind::Locked)),
        ];
        lines.iter().map(|(name, value)| format!("{prefix}{name} {value}\n")).collect()
    };
    format!(
        "{}hierarchical_memory_limit {limit}\nhierarchical_memsw_limit {}\n{}",
        block("", &account.local, &account.local_counters),
        parse::PAGES_MAX * PAGE_BYTES,
        block("total_", &live.pages_below(id), &account.counters)
    )
}

impl Tree {
    /// Refuses a larger part of a CPU than the parent's (`__cfs_schedulable`).
    fn set_bandwidth(&mut self, id: CgroupId, bandwidth: Bandwidth) -> Result<(), Errno> {
        let bandwidth = bandwidth.checked()?;
        let above = self.lineage(id).skip(1).find_map(|id| self[id].cpu.bandwidth.cpus());
        let wanted = bandwidth.cpus();
        let below = |child: &CgroupId| self[*child].cpu.bandwidth.cpus();
        let children = self[id].children.values().filter_map(below);
        let exceeds = |part: f64, whole: Option<f64>| whole.is_some_and(|whole| part > whole);
        if wanted.is_some_and(|w| exceeds(w, above)) || { children }.any(|c| exceeds(c, wanted)) {
            return Err(Errno::EINVAL);
        }
        self[id].cpu.bandwidth = bandwidth;
        Ok(())
    }

    /// Fills an empty legacy cpuset with the values of its parent, because an empty one can hold no process.
    pub(super) fn inherit_legacy_cpuset(&mut self, id: CgroupId, cpus: &CpuSet, mems: &CpuSet) {
        let is_legacy = self.version(id) == Version::V1;
        if is_legacy && self[id].cpuset.cpus.is_empty() {
            let cpus = self.legacy_set(id, |c| &c.cpuset.cpus, cpus).clone();
            let mems = self.legacy_set(id, |c| &c.cpuset.mems, mems).clone();
            self[id].cpuset = CpusetKnobs { cpus, mems };
        }
    }

    /// List of the parent; `all` of the host below the root.
    fn legacy_set<'a>(
        &'a self,
        id: CgroupId,
        list: impl Fn(&Cgroup) -> &CpuSet,
        all: &'a CpuSet,
    ) -> &'a CpuSet {
        match self[id].parent.map(|parent| &self[parent]) {
            Some(parent) if parent.parent.is_some() => list(parent),
            _ => all,
        }
    }

    /// `validate_change` of a legacy cpuset: within the parent, around the children, never empty with tasks.
    fn vet_legacy_set(
        &self,
        id: CgroupId,
        wanted: &CpuSet,
        above: &CpuSet,
        list: impl Fn(&Cgroup) -> &CpuSet,
    ) -> Result<(), Errno> {
        let cgroup = &self[id];
        if cgroup.children.values().any(|&child| !list(&self[child]).is_subset(wanted)) {
            return Err(Errno::EBUSY);
        }
        if !wanted.is_subset(above) {
            return Err(Errno::EACCES);
        }
        if wanted.is_empty() && !cgroup.processes.is_empty() {
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }
}

impl Population {
    /// Removes offline CPUs from legacy lists permanently. Processes of a cgroup without CPUs move to the
    /// nearest ancestor with some (`cpuset1_hotplug_update_tasks`, kernel/cgroup/cpuset-v1.c).
    pub(super) fn shrink_legacy_cpusets(&mut self, online: &CpuSet) {
        let Some(home) = self.tree.home(Controller::Cpuset) else { return };
        let root = self.tree.hierarchies[home].root;
        if self.tree.version(root) != Version::V1 {
            return;
        }
        for &id in self.tree.subtree(root).iter().filter(|id| **id != root) {
            let left = &self.tree[id].cpuset.cpus & online;
            self.tree[id].cpuset.cpus = left;
            if !self.tree[id].cpuset.cpus.is_empty() {
                continue;
            }
            let has_cpus = |up: &CgroupId| *up == root || !self.tree[*up].cpuset.cpus.is_empty();
            let refuge = self.tree.lineage(id).find(has_cpus).unwrap_or(root);
            for pid in std::mem::take(&mut self.tree[id].processes) {
                self.tree[refuge].processes.insert(pid);
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.cgroups[home] = refuge;
                }
            }
        }
    }
}
