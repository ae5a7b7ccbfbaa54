//! The structure of the machine: its cores, last-level caches, NUMA nodes and packages.
//!
//! **Terms.** A *CPU* is a hardware thread, on which the kernel schedules. CPUs of one *core* are SMT
//! siblings. *LLC* is the last-level cache that several cores share, *node* a NUMA node, *package* a
//! socket. A *domain* is the CPUs of one core, LLC, node or package.
//!
//! **Shape.** Domains nest here even where hardware does not: a cache that spans two nodes (sub-NUMA
//! clustering) counts as two, a node that spans two packages (NUMA switched off) likewise. CPUs are in
//! *topology order*: by package, node, LLC, core, sibling. Every domain is therefore a range of that order,
//! and placement only needs their ends.
//!
//! Isolated CPUs (`isolcpus=`) are part of the picture but not *usable*: nothing is placed on them unless a
//! fixed list names them. Offline CPUs are not part of it; the set of their numbers is kept for messages.
//!
//! **Properties.** Domains partition the CPUs and nest (`tests/dop/topology.rs`); the order of the input
//! does not matter (same file).

use serde::{Deserialize, Serialize};
use std::ops::Range;

use super::cpuset::CpuSet;

/// Place of one CPU, as plain data.
///
/// The identifiers are any numbers that CPUs of one domain have in common; they need not be dense, and
/// those of an inner domain need to be unique only within the outer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CpuPlace {
    /// The socket, as the machine numbers it.
    pub package: u32,
    /// The NUMA node, as the kernel numbers it.
    pub node: u32,
    /// The last-level cache.
    pub llc: u32,
    /// The core.
    pub core: u32,
    /// The kernel's number of the CPU.
    pub cpu: u32,
}

/// One CPU of a [`Topology`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// Its place, in the machine's own numbers.
    pub place: CpuPlace,
    /// Its rank among the siblings of its core, from 0.
    pub sibling: u32,
    /// True if the administrator took it from the scheduler (`isolcpus=`).
    pub isolated: bool,
    /// The index of its domain on each level, innermost first.
    domains: [u32; Level::ALL.len()],
}

/// The kinds of domain, innermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// SMT siblings.
    Core,
    /// CPUs that share the last-level cache.
    Llc,
    /// CPUs of one NUMA node.
    Node,
    /// CPUs of one socket.
    Package,
}

impl Level {
    /// All levels, innermost first.
    pub const ALL: [Level; 4] = [Level::Core, Level::Llc, Level::Node, Level::Package];
}

/// The online CPUs of a machine in topology order, and the domains they form. Never without a usable CPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    cpus: Vec<Cpu>,
    /// The domains of each level, as ranges of `cpus`.
    domains: [Vec<Range<usize>>; Level::ALL.len()],
    online: CpuSet,
    usable: CpuSet,
    offline: CpuSet,
}

impl Topology {
    /// Builds the topology from the places of all online CPUs, in any order.
    ///
    /// `isolated` may name CPUs that are not online; `offline` is kept for messages.
    ///
    /// # Errors
    /// A CPU given twice or beyond [`CpuSet::MAX`]; no CPU left to use.
    pub fn try_new(
        mut places: Vec<CpuPlace>,
        isolated: &CpuSet,
        offline: CpuSet,
    ) -> Result<Self, TopologyError> {
        places.sort_unstable();
        let mut online = CpuSet::new();
        for place in &places {
            if !online.insert(place.cpu) {
                return Err(TopologyError::Duplicate(place.cpu));
            }
        }
        let usable = online.difference(isolated);
        if usable.is_empty() {
            return Err(TopologyError::NoUsableCpu);
        }
        let domains = Level::ALL.map(|level| {
            let chunks = places.chunk_by(|a, b| key(a, level) == key(b, level));
            let mut start = 0;
            chunks
                .map(|chunk| {
                    start += chunk.len();
                    start - chunk.len()..start
                })
                .collect::<Vec<_>>()
        });
        let cpus = describe(&places, &domains, isolated);
        let offline = offline.difference(&online);
        Ok(Topology { cpus, domains, online, usable, offline })
    }

    /// Builds a machine of `count` CPUs without known structure: one package, no siblings.
    ///
    /// # Errors
    /// `count` is 0 or beyond [`CpuSet::MAX`].
    pub fn flat(count: u32) -> Result<Self, TopologyError> {
        let place = |cpu| CpuPlace { package: 0, node: 0, llc: 0, core: cpu, cpu };
        Topology::try_new((0..count).map(place).collect(), &CpuSet::new(), CpuSet::new())
    }

    /// Returns the machine as a cgroup that may use only `allowed` sees it: the rest counts as offline.
    ///
    /// # Errors
    /// No usable CPU is left.
    pub fn restricted_to(&self, allowed: &CpuSet) -> Result<Self, TopologyError> {
        let isolated = self.online.difference(&self.usable);
        let places = self.cpus.iter().map(|cpu| cpu.place);
        let offline = self.offline.union(&self.online.difference(allowed));
        let kept = places.filter(|place| allowed.contains(place.cpu)).collect();
        Topology::try_new(kept, &isolated, offline)
    }

    /// The online CPUs in topology order.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The domains of a level in topology order, as ranges of [`Topology::cpus`].
    pub fn domains(&self, level: Level) -> &[Range<usize>] {
        &self.domains[level as usize]
    }

    /// The domains of the next inner level that make up `outer`, which is a domain of the level above it.
    pub fn inner(&self, level: Level, outer: &Range<usize>) -> &[Range<usize>] {
        let first = self.cpus[outer.start].domain(level);
        let last = self.cpus[outer.end - 1].domain(level);
        &self.domains[level as usize][first..=last]
    }

    /// The numbers of the online CPUs, isolated ones included.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// The numbers of the CPUs that tenants may be placed on. Never empty.
    pub fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// The numbers of possible CPUs that are not online.
    pub fn offline(&self) -> &CpuSet {
        &self.offline
    }

    /// Hardware threads of the widest core.
    pub fn threads_per_core_max(&self) -> usize {
        self.domains(Level::Core).iter().map(|core| core.len()).max().unwrap_or(1)
    }

    /// The NUMA nodes, by the kernel's numbers, of the CPUs of `set`: the legacy hierarchy needs them in
    /// `cpuset.mems` beside `cpuset.cpus`.
    pub fn nodes_of(&self, set: &CpuSet) -> CpuSet {
        let inside = self.cpus.iter().filter(|cpu| set.contains(cpu.place.cpu));
        inside.map(|cpu| cpu.place.node).collect()
    }

    /// Number of domains of `level` that the CPUs of `set` touch.
    pub fn span(&self, set: &CpuSet, level: Level) -> usize {
        let touched = |domain: &&Range<usize>| {
            self.cpus[(*domain).clone()].iter().any(|cpu| set.contains(cpu.place.cpu))
        };
        self.domains(level).iter().filter(touched).count()
    }
}

impl Cpu {
    /// The index of its domain of `level` in [`Topology::domains`].
    pub fn domain(&self, level: Level) -> usize {
        self.domains[level as usize] as usize
    }

    /// Distance of two CPUs: the innermost level they share, or `None` if they share no package.
    pub fn shared_level(&self, other: &Cpu) -> Option<Level> {
        Level::ALL.into_iter().find(|&level| self.domain(level) == other.domain(level))
    }
}

/// The identity of a domain of `level`: the identifiers from the package inwards.
fn key(place: &CpuPlace, level: Level) -> (u32, Option<u32>, Option<u32>, Option<u32>) {
    let from = |inner: Level, id: u32| (level <= inner).then_some(id);
    (
        place.package,
        from(Level::Node, place.node),
        from(Level::Llc, place.llc),
        from(Level::Core, place.core),
    )
}

fn describe(
    places: &[CpuPlace],
    domains: &[Vec<Range<usize>>; Level::ALL.len()],
    isolated: &CpuSet,
) -> Vec<Cpu> {
    let blank = |place: &CpuPlace| Cpu {
        place: *place,
        sibling: 0,
        isolated: isolated.contains(place.cpu),
        domains: [0; Level::ALL.len()],
    };
    let mut cpus: Vec<Cpu> = places.iter().map(blank).collect();
    for level in Level::ALL {
        for (index, range) in domains[level as usize].iter().enumerate() {
            for (rank, cpu) in cpus[range.clone()].iter_mut().enumerate() {
                cpu.domains[level as usize] = index as u32;
                if level == Level::Core {
                    cpu.sibling = rank as u32;
                }
            }
        }
    }
    cpus
}

/// Error in the facts about a machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// One CPU in two places, or its number is beyond [`CpuSet::MAX`].
    #[error("CPU {0} is described twice or has an impossible number")]
    Duplicate(u32),
    /// Nothing is online, or all that is online is isolated or not allowed.
    #[error("no CPU is online, allowed and not isolated")]
    NoUsableCpu,
}
