//! Why a tenant does not get what it should have, as values with one text each.
//!
//! [`super::diagnosis`] decides which of them apply; this file decides how they read.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::plan::Knob;
use tenantd_core::codec::coded;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};

/// Most characters of a path in a text.
const PATH_CHARS_MAX: usize = 48;

/// What kind of reason it is; stable, so that programs can tell them apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// Work that belongs to no tenant.
    OutsideWork,
    /// A limit or a rule of the kernel.
    KernelLimit,
    /// A limit of the policy.
    PolicyLimit,
    /// The tenant itself.
    InsideTenant,
    /// Values of the policy that are not in force.
    NotWritten,
    /// Other tenants have more than they should.
    OtherTenants,
    /// A reason of another version of tenantd.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Work that belongs to no tenant, in one cgroup and all below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outsider {
    /// The cgroup, from the mount.
    pub cgroup: String,
    /// Whether these are the processes directly in a cgroup that tenants are in as well.
    pub is_direct: bool,
    /// The name of the process that uses most; absent where none was found.
    pub command: Option<String>,
    /// CPUs used between its last two readings.
    pub cores: f64,
}

impl fmt::Display for Outsider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_direct { "processes directly in " } else { "" };
        write!(f, "{place}{}", end_of(&self.cgroup))?;
        if let Some(command) = &self.command {
            write!(f, " ({command})")?;
        }
        write!(f, " {:.2}", self.cores)
    }
}

/// The end of a path, as much as fits into a line of a terminal beside other words.
fn end_of(path: &str) -> Cow<'_, str> {
    match path.char_indices().rev().nth(PATH_CHARS_MAX - 1) {
        Some((start @ 1.., _)) => format!("…{}", &path[start..]).into(),
        _ => path.into(),
    }
}

/// A limit of a cgroup above that of a tenant, which the policy did not set.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitAbove {
    /// The cgroup, from the mount.
    pub cgroup: String,
    /// Of what.
    pub resource: Resource,
    /// How much all in it may have together.
    pub amount: f64,
    /// Whether it held them back since it was read last.
    pub is_binding: bool,
}

/// What was found around the cgroup of a tenant that lacks something.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Surroundings {
    /// The largest work of no tenant beside it and beside everything above it, the largest first.
    pub outsiders: Arc<[Outsider]>,
    /// The limits above it.
    pub limits: Vec<LimitAbove>,
    /// Why its CPU weight has no effect, where that is so.
    pub void_weight: Option<String>,
}

/// What one tenant lacks, and why.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shortfall {
    /// How much of each resource; 0 where it lacks none, or an amount that is not known.
    pub missing: PerResource<f64>,
    /// Why: at least one reason.
    pub reasons: Vec<Reason>,
}

/// Why a tenant does not get what it should have.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Work of no tenant has this much more than the reserve.
    Outside {
        /// Of what.
        resource: Resource,
        /// All of it, as far as the reserve does not cover it.
        amount: f64,
        /// The largest of it, where it was found.
        largest: Arc<[Outsider]>,
    },
    /// The kernel's limits.
    Kernel(KernelLimit),
    /// The policy's limits: its own, or that of this group.
    Policy {
        /// Of what.
        resource: Resource,
        /// How much.
        amount: f64,
        /// The group; `None` for its own.
        group: Option<String>,
    },
    /// The tenant itself.
    Inside(Inside),
    /// A value that is not in force.
    NotWritten {
        /// Which.
        knob: Knob,
        /// The group, slice or service that it is a value of; `None` for the tenant.
        of: Option<String>,
        /// Why.
        why: NotWritten,
    },
    /// Other tenants have more than they should: the largest of them, and what all have too much.
    Tenants {
        /// Of what.
        resource: Resource,
        /// The sum.
        amount: f64,
        /// Their names.
        names: Vec<String>,
    },
}

/// A limit or a rule of the kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum KernelLimit {
    /// A limit of a cgroup above it; without a name that of all tenants.
    Above {
        /// Of what.
        resource: Resource,
        /// How much all in it may have together.
        amount: f64,
        /// The cgroup.
        cgroup: Option<String>,
    },
    /// A quota of its own cgroup that is not the policy's.
    OwnQuota,
    /// Tenants may run on so many of the machine's CPUs.
    Cpus {
        /// So many.
        usable: u32,
        /// Of these.
        online: u32,
    },
    /// Its weight cannot be written exactly.
    Weight {
        /// What is written.
        written: f64,
        /// What it should be.
        exact: f64,
    },
    /// Its weight has no effect, for this reason.
    VoidWeight(String),
    /// More protected memory would leave nothing to reclaim.
    Protection,
    /// Reclaim took protected memory, because it found no other.
    Reclaim,
}

/// What a tenant does to itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inside {
    /// It is placed on so few CPUs.
    Cpus(usize),
    /// Its tasks wait while CPUs are idle.
    IdleCpus {
        /// CPUs that nothing runs on.
        idle_cores: f64,
        /// Its threads, where they were counted.
        nr_threads: Option<usize>,
        /// How many CPUs wide it was told to run.
        dop: Option<u32>,
    },
    /// Some task waits for memory for this part of the time.
    Memory(f64),
    /// Some task waits for input or output for this part of the time.
    Io(f64),
}

/// Why a value is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// Nothing is written.
    Observing,
    /// It is written in this tick, or soon after it.
    Pending,
    /// It was refused; the error.
    Failed(String),
    /// It would have done harm; why.
    Deferred(String),
    /// It was set by someone else and is left so.
    LeftToOthers,
    /// Another program keeps overwriting it, and it is left alone for a time.
    Contested,
}

impl Reason {
    /// Its kind.
    pub fn kind(&self) -> ReasonKind {
        match self {
            Reason::Outside { .. } => ReasonKind::OutsideWork,
            Reason::Kernel(_) => ReasonKind::KernelLimit,
            Reason::Policy { .. } => ReasonKind::PolicyLimit,
            Reason::Inside(_) => ReasonKind::InsideTenant,
            Reason::NotWritten { .. } => ReasonKind::NotWritten,
            Reason::Tenants { .. } => ReasonKind::OtherTenants,
        }
    }

    /// The resource that it is about.
    pub fn resource(&self) -> Resource {
        match self {
            Reason::Outside { resource, .. }
            | Reason::Policy { resource, .. }
            | Reason::Tenants { resource, .. }
            | Reason::Kernel(KernelLimit::Above { resource, .. }) => *resource,
            // A limit of processes is no reason to lack any.
            Reason::NotWritten { knob, .. } => knob.resource().unwrap_or(CPU),
            Reason::Kernel(KernelLimit::Protection | KernelLimit::Reclaim)
            | Reason::Inside(Inside::Memory(_)) => MEMORY,
            Reason::Kernel(_) | Reason::Inside(_) => CPU,
        }
    }

    /// The work of no tenant that it names.
    pub fn outsiders(&self) -> &[Outsider] {
        match self {
            Reason::Outside { largest, .. } => largest,
            _ => &[],
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Outside { resource, amount, largest } => {
                let verb = if *resource == CPU { "uses" } else { "holds" };
                let amount = resource.figure(*amount);
                write!(f, "work of no tenant {verb} {amount} beyond the reserve")?;
                if !largest.is_empty() {
                    let named: Vec<String> = largest.iter().map(ToString::to_string).collect();
                    write!(f, "; most CPUs beside it: {}", named.join(", "))?;
                }
                Ok(())
            }
            Reason::Kernel(limit) => limit.fmt(f),
            Reason::Policy { resource, amount, group } => {
                let name = resource.name();
                let amount = resource.shown(*amount);
                match group {
                    None => write!(f, "the policy limits it to {amount} (limit.{name})"),
                    Some(group) => write!(
                        f,
                        "the policy limits its group {group} to {amount} (limit.{name}), which is used up"
                    ),
                }
            }
            Reason::Inside(inside) => inside.fmt(f),
            Reason::NotWritten { knob, of, why } => {
                let value = knob.noun();
                let of = of.as_ref().map(|name| format!(" of {name}")).unwrap_or_default();
                match why {
                    NotWritten::Observing => {
                        write!(f, "its {value} is not in force: mode observe writes nothing")
                    }
                    NotWritten::Pending => write!(f, "the {value}{of} is being changed"),
                    NotWritten::Failed(error) => {
                        write!(f, "the {value}{of} is not written: {error}")
                    }
                    NotWritten::Deferred(error) => write!(f, "the {value}{of} is put off: {error}"),
                    NotWritten::LeftToOthers => write!(
                        f,
                        "the {value}{of} was set by someone else and is left so (control.on_drift)"
                    ),
                    NotWritten::Contested => write!(
                        f,
                        "the {value}{of} is left to another program that keeps overwriting it"
                    ),
                }
            }
            Reason::Tenants { resource, amount, names } => {
                let amount = resource.figure(*amount);
                let verb = if names.len() == 1 { "has" } else { "have" };
                write!(f, "{} {verb} {amount} more than allocated", names.join(", "))
            }
        }
    }
}

impl fmt::Display for KernelLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelLimit::Above { resource, amount, cgroup } => {
                let amount = resource.figure(*amount);
                match cgroup {
                    Some(cgroup) => {
                        write!(f, "{} is limited to {amount} for all in it", end_of(cgroup))
                    }
                    None => write!(f, "a limit above the tenants allows all of them {amount}"),
                }
            }
            KernelLimit::OwnQuota => f.write_str("a quota that is not the policy's holds it back"),
            KernelLimit::Cpus { usable, online } => write!(
                f,
                "tenants may run on {usable} of {online} CPUs: the others are isolated or outside of their cpuset"
            ),
            KernelLimit::Weight { written, exact } => write!(
                f,
                "its CPU weight is {written:.0} instead of {exact:.2}: the kernel's weights are whole numbers from \
                 1 to 10000"
            ),
            KernelLimit::VoidWeight(why) => f.write_str(why),
            KernelLimit::Protection => f.write_str(
                "less memory is protected than it should have: more would leave nothing to reclaim",
            ),
            KernelLimit::Reclaim => {
                f.write_str("reclaim took memory that is protected, because it found no other")
            }
        }
    }
}

impl fmt::Display for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Inside::Cpus(nr_cpus) => write!(f, "it may run on {nr_cpus} CPUs only"),
            Inside::IdleCpus { idle_cores, nr_threads, dop } => {
                write!(f, "its tasks wait while {idle_cores:.2} CPUs are idle")?;
                if let Some(nr_threads) = nr_threads {
                    write!(f, "; it has {nr_threads} threads")?;
                }
                if let Some(dop) = dop {
                    write!(f, "; its degree of parallelism is {dop}")?;
                }
                f.write_str("; they may be bound to few CPUs, or run in short bursts")
            }
            Inside::Memory(ratio) => {
                write!(f, "its tasks wait for memory {:.0} % of the time", ratio * 100.0)
            }
            Inside::Io(ratio) => {
                write!(f, "its tasks wait for input or output {:.0} % of the time", ratio * 100.0)
            }
        }
    }
}

// --- recorded ---

coded!(struct Outsider { cgroup, is_direct, command, cores });
coded!(struct LimitAbove { cgroup, resource, amount, is_binding });
coded!(struct Surroundings { outsiders, limits, void_weight });
coded!(struct Shortfall { missing, reasons });
coded!(enum Reason {
    Outside { resource: resource, amount: amount, largest: largest },
    Kernel { 0: limit },
    Policy { resource: resource, amount: amount, group: group },
    Inside { 0: inside },
    NotWritten { knob: knob, of: of, why: why },
    Tenants { resource: resource, amount: amount, names: names },
});
coded!(enum KernelLimit {
    Above { resource: resource, amount: amount, cgroup: cgroup },
    OwnQuota {},
    Cpus { usable: usable, online: online },
    Weight { written: written, exact: exact },
    VoidWeight { 0: why },
    Protection {},
    Reclaim {},
});
coded!(enum Inside {
    Cpus { 0: nr_cpus },
    IdleCpus { idle_cores: idle_cores, nr_threads: nr_threads, dop: dop },
    Memory { 0: ratio },
    Io { 0: ratio },
});
coded!(enum NotWritten { Observing {}, Pending {}, Failed { 0: error }, Deferred { 0: why }, LeftToOthers {}, Contested {} });
