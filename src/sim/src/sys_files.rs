//! `/sys/devices/system`: CPUs and their topology; `/sys/kernel/mm`: the state of page generations; `/sys/block`:
//! the disk; `/sys/kernel/sched_ext`: the loaded scheduler.
//!
//! CPU `c` of `n` cores runs on core `c mod n`, as firmware of x86 servers numbers them, so that the
//! siblings of 8 CPUs on 4 cores are 0 and 4. Cores are assigned to the memory nodes in contiguous runs;
//! each node is a socket with one last-level cache. Only online CPUs have a topology.

use std::collections::BTreeMap;

use super::cpu::Loaded;
use super::disk::SYS_FILE;
use super::host::SimHost;
use super::parse::{CpuSet, format_list};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";
const SCHED_EXT: &str = "/sys/kernel/sched_ext";
const GENERATIONS: &str = "/sys/kernel/mm/lru_gen";

/// State of sched_ext, which names the loaded scheduler.
pub(super) fn sched_ext_files(loaded: Option<&Loaded>) -> [(String, String); 2] {
    let state = if loaded.is_some() { "enabled\n" } else { "disabled\n" };
    let name = loaded.map_or(String::new(), |loaded| format!("{}\n", loaded.name));
    [("state", state.to_string()), ("root/ops", name)]
        .map(|(file, text)| (format!("{SCHED_EXT}/{file}"), text))
}

impl SimHost {
    pub(super) fn sys_files(&self, online: &CpuSet) -> BTreeMap<String, String> {
        let cpus = self.cpus.max(1);
        let all: CpuSet = (0..cpus).collect();
        let nodes: CpuSet = (0..self.nr_nodes()).collect();
        let mut files = BTreeMap::new();
        let mut list = |path: String, set: &CpuSet| {
            files.insert(path, format_list(set) + "\n");
        };
        list(format!("{CPU}/online"), online);
        list(format!("{CPU}/offline"), &(&all - online));
        list(format!("{CPU}/possible"), &all);
        list(format!("{CPU}/present"), &all);
        list(format!("{NODE}/online"), &nodes);
        list(format!("{NODE}/possible"), &nodes);
        for node in nodes {
            let members = online.iter().copied().filter(|&cpu| self.node_of(cpu) == node);
            list(format!("{NODE}/node{node}/cpulist"), &members.collect());
        }
        for &cpu in online {
            let sharing = |same: &dyn Fn(u32) -> bool| -> CpuSet {
                online.iter().copied().filter(|&other| same(other)).collect()
            };
            let core = sharing(&|other| self.core_of(other) == self.core_of(cpu));
            let socket = sharing(&|other| self.node_of(other) == self.node_of(cpu));
            let topology = format!("{CPU}/cpu{cpu}/topology");
            list(format!("{topology}/core_cpus_list"), &core);
            list(format!("{topology}/thread_siblings_list"), &core);
            list(format!("{topology}/package_cpus_list"), &socket);
            list(format!("{topology}/core_siblings_list"), &socket);
            list(format!("{topology}/core_id"), &CpuSet::from([self.core_of(cpu)]));
            list(format!("{topology}/physical_package_id"), &CpuSet::from([self.node_of(cpu)]));
            list(format!("{topology}/die_id"), &CpuSet::from([0]));
            let cache = format!("{CPU}/cpu{cpu}/cache/index3");
            list(format!("{cache}/level"), &CpuSet::from([3]));
            list(format!("{cache}/id"), &CpuSet::from([self.node_of(cpu)]));
            list(format!("{cache}/shared_cpu_list"), &socket);
        }
        for &cpu in online {
            files.insert(format!("{CPU}/cpu{cpu}/cache/index3/type"), "Unified\n".into());
            files.insert(format!("{CPU}/cpu{cpu}/cache/index3/size"), "32768K\n".into());
        }
        files.insert(SYS_FILE.into(), "2097152\n".into());
        files.extend(self.queue.files(self.divider));
        if self.has_generations {
            files.insert(format!("{GENERATIONS}/enabled"), "0x0007\n".into());
        }
        // The first CPU of this architecture cannot be switched off and has no such file.
        for cpu in 1..cpus {
            let online = u8::from(online.contains(&cpu));
            files.insert(format!("{CPU}/cpu{cpu}/online"), format!("{online}\n"));
        }
        files
    }

    fn nr_cores(&self) -> u32 {
        self.cpus.max(1).div_ceil(self.threads_per_core.max(1))
    }

    fn nr_nodes(&self) -> u32 {
        self.numa_nodes.clamp(1, self.nr_cores())
    }

    fn core_of(&self, cpu: u32) -> u32 {
        cpu % self.nr_cores()
    }

    fn node_of(&self, cpu: u32) -> u32 {
        let core = u64::from(self.core_of(cpu));
        (core * u64::from(self.nr_nodes()) / u64::from(self.nr_cores())) as u32
    }
}
