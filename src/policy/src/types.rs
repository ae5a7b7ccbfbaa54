//! Types of single values of a policy. The words of an enumeration are beside its variants.

use std::ops::{Index, IndexMut};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use tenantd_core::disk_rate::PerRate;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::{Percent, Weight};
use tenantd_queue::discipline::Name;

/// A type whose values are words of the policy.
pub trait Words: Copy + PartialEq + 'static {
    /// Every word with its value, in the order of offering.
    const WORDS: &'static [(&'static str, Self)];

    /// Word of the value.
    fn word(self) -> &'static str {
        Self::WORDS.iter().find(|(_, it)| *it == self).map_or("", |(word, _)| word)
    }
}

impl Words for bool {
    const WORDS: &'static [(&'static str, bool)] = &[("false", false), ("true", true)];
}

impl Words for Name {
    const WORDS: &'static [(&'static str, Name)] = &Name::ALL;
}

macro_rules! words {
    ($(
        $(#[$meta:meta])*
        $name:ident { $( $(#[$of_variant:meta])* $variant:ident = $word:literal, )+ }
    )+) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $name { $( $(#[$of_variant])* $variant, )+ }

        impl Words for $name {
            const WORDS: &'static [(&'static str, Self)] = &[$( ($word, $name::$variant) ),+];
        }

        impl $name {
            /// Word of the policy.
            pub fn word(self) -> &'static str {
                Words::word(self)
            }
        }
    )+};
}

words! {
    /// `mode:` permission to write values.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Mode {
        /// Reads, computes and reports; writes nothing.
        #[default]
        Observe = "observe",
        /// Writes the computed values.
        Enforce = "enforce",
    }

    /// `version:` version of the format.
    Version {
        /// The only version.
        #[default]
        One = "1",
    }

    /// `host.hierarchy`.
    HierarchyChoice {
        /// The hierarchy of the machine.
        #[default]
        Auto = "auto",
        /// cgroup v2.
        Unified = "unified",
        /// cgroup v1, alone or beside an empty unified mount (hybrid).
        Legacy = "legacy",
        /// A simulated kernel in memory.
        Simulated = "simulated",
    }

    /// `control.allocation`.
    #[derive(Serialize, Deserialize)]
    Allocation {
        /// Weighted dominant resource fairness, then max-min of the rest.
        #[default]
        Drf = "drf",
        /// Weighted max-min of each resource alone.
        MaxMin = "max-min",
        /// By weight alone, whatever the demand: for comparison.
        Static = "static",
    }

    /// `control.on_exit`.
    OnExit {
        /// Restores the earlier values.
        #[default]
        Restore = "restore",
        /// Leaves the written values in force.
        Keep = "keep",
    }

    /// `control.on_drift`.
    #[derive(Serialize, Deserialize)]
    OnDrift {
        /// The agent writes its value again.
        #[default]
        Repair = "repair",
        /// The foreign value stays until the agent restarts, and is not restored at the end.
        Accept = "accept",
    }

    /// `memory.victims`.
    Victims {
        /// The kernel ends the largest process.
        #[default]
        Kernel = "kernel",
        /// Work of the tenants that hold most beyond their share ends first.
        Share = "share",
    }

    /// `control.ancestors`.
    AncestorsChoice {
        /// The agent sets their values, so that the policy takes effect in any place.
        #[default]
        Manage = "manage",
        /// Their values stay, and ineffective values are reported.
        Leave = "leave",
    }

    /// `admission.running`.
    RunningShares {
        /// Equal weights.
        Equal = "equal",
        /// Multilevel feedback by consumed CPU time.
        #[default]
        Multilevel = "multilevel",
    }

    /// `owner:` the only writer of the files of a tenant's cgroup.
    OwnerChoice {
        /// systemd where the tenant names a unit; otherwise the owner of the group above, and at the top
        /// the agent.
        #[default]
        Auto = "auto",
        /// The agent: the cgroup is made below its root.
        Direct = "direct",
        /// systemd: the tenant is the unit that it names, the slice of its user, or a slice made for it.
        Systemd = "systemd",
    }
}

/// `host.root`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RootChoice {
    /// The agent's own cgroup, for each controller.
    #[default]
    Auto,
    /// A given cgroup: from the mount point if it starts with `/`, else below the agent's own.
    Path(PathBuf),
}

/// `control.couple:` resources that are divided together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Coupling {
    /// CPU and memory; disks are divided by themselves.
    #[default]
    Host,
    /// The contended disk as well.
    WithDisk,
}

/// `weight:` weights of a tenant relative to its siblings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// Weights for the divided resources.
    pub each: PerResource<Weight>,
    /// Weight on disks.
    pub disk: Weight,
}

impl From<PerResource<Weight>> for Weights {
    fn from(each: PerResource<Weight>) -> Weights {
        Weights { each, disk: each[Resource::Cpu] }
    }
}

impl Index<Resource> for Weights {
    type Output = Weight;

    fn index(&self, resource: Resource) -> &Weight {
        &self.each[resource]
    }
}

impl IndexMut<Resource> for Weights {
    fn index_mut(&mut self, resource: Resource) -> &mut Weight {
        &mut self.each[resource]
    }
}

/// `guarantee:` amounts that a tenant gets whenever it has the demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guarantees {
    /// Amounts of the divided resources.
    pub amounts: PerResource<Option<Amount>>,
    /// Part of the time of each disk.
    pub disk: Option<Percent>,
}

impl Guarantees {
    /// Guaranteed part of each disk, 0 ..= 0.8; 0 without a guarantee.
    pub fn disk_ratio(&self) -> f64 {
        const WHOLE: u64 = 1_000_000;
        self.disk.map_or(0.0, |part| part.of(WHOLE) as f64 / WHOLE as f64)
    }
}

impl From<PerResource<Option<Amount>>> for Guarantees {
    fn from(amounts: PerResource<Option<Amount>>) -> Guarantees {
        Guarantees { amounts, disk: None }
    }
}

impl Index<Resource> for Guarantees {
    type Output = Option<Amount>;

    fn index(&self, resource: Resource) -> &Option<Amount> {
        &self.amounts[resource]
    }
}

impl IndexMut<Resource> for Guarantees {
    fn index_mut(&mut self, resource: Resource) -> &mut Option<Amount> {
        &mut self.amounts[resource]
    }
}

/// `limit:` upper limits of a tenant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Limits of the divided resources.
    pub amounts: PerResource<Option<Amount>>,
    /// Limit of processes and threads.
    pub pids: Option<u32>,
    /// Limits of requests to each disk.
    pub disk: DiskLimits,
}

/// `limit.disk:` bytes and operations per second, for each disk.
pub type DiskLimits = PerRate<Option<u64>>;

impl From<PerResource<Option<Amount>>> for Limits {
    fn from(amounts: PerResource<Option<Amount>>) -> Limits {
        Limits { amounts, ..Limits::default() }
    }
}

impl Index<Resource> for Limits {
    type Output = Option<Amount>;

    fn index(&self, resource: Resource) -> &Option<Amount> {
        &self.amounts[resource]
    }
}

impl IndexMut<Resource> for Limits {
    fn index_mut(&mut self, resource: Resource) -> &mut Option<Amount> {
        &mut self.amounts[resource]
    }
}

/// `dop:` bounds of the degree of parallelism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DopPolicy {
    /// The width follows the allocation.
    #[default]
    Auto,
    /// Largest width.
    AtMost(u32),
    /// Fixed width.
    Manual(u32),
    /// The width follows the published IMCI rule.
    Imci,
}

/// `dop:` written as a map, with at most one of the two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DopBounds {
    /// Fixed width.
    pub manual: Option<u32>,
    /// Largest width.
    pub max: Option<u32>,
}

/// `cpus:` CPUs of a tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpusPolicy {
    /// All CPUs; the degree of parallelism is only published.
    #[default]
    Shared,
    /// A number equal to its degree of parallelism, disjoint while CPUs last.
    Dop,
    /// A number equal to its degree of parallelism, always disjoint.
    Exclusive,
    /// These, in the kernel's list format, sorted and without repeats (`0-3,8`).
    Fixed(Vec<u32>),
}
