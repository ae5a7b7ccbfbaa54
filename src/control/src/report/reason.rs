//! Reasons for a shortfall, as values with one text each. [`crate::why::diagnosis`] chooses them; this file
//! words them.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::words::knob::Knob;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};

const PATH_CHARS_MAX: usize = 48;
/// Text between the amount of outside work and its largest parts.
const LARGEST: &str = "; most CPUs beside it: ";

const OTHERS: &str = "other tenants";

/// Text of a reason for users who may not read about other tenants: as if the reason named none of them, and no
/// program or cgroup outside all tenants.
pub fn without_names(kind: ReasonKind, text: &str) -> Cow<'_, str> {
    match kind {
        ReasonKind::OutsideWork => text.split(LARGEST).next().unwrap_or_default().into(),
        ReasonKind::OtherTenants => {
            // Names of tenants have no spaces.
            let parts = text.rsplit_once(" have ").or_else(|| text.rsplit_once(" has "));
            let excess = parts.map_or("more than allocated", |(_, excess)| excess);
            format!("{OTHERS} have {excess}").into()
        }
        ReasonKind::KernelLimit
        | ReasonKind::PolicyLimit
        | ReasonKind::InsideTenant
        | ReasonKind::NotWritten
        | ReasonKind::Unknown => text.into(),
    }
}
/// Least CPUs that a figure with two decimals shows.
pub const SEEN_CORES_MIN: f64 = 0.005;

/// Kind of a reason; stable, so that programs can match it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonKind {
    /// Processes that belong to no tenant.
    OutsideWork,
    /// A limit or a rule of the kernel.
    KernelLimit,
    /// A limit of the policy.
    PolicyLimit,
    /// The tenant itself.
    InsideTenant,
    /// Values of the policy that are not in force.
    NotWritten,
    /// Other tenants with an excess.
    OtherTenants,
    /// A reason from another version of tenantd.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Outside work: processes of no tenant, in one cgroup and all below it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outsider {
    /// Path of the cgroup from the mount.
    pub cgroup: String,
    /// True for processes directly in a cgroup that also contains tenants.
    pub is_direct: bool,
    /// Name of the process with the largest usage; absent if none was found.
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

/// Shortens a path to its end, to fit into a line of a terminal.
fn end_of(path: &str) -> Cow<'_, str> {
    match path.char_indices().rev().nth(PATH_CHARS_MAX - 1) {
        Some((start @ 1.., _)) => format!("…{}", &path[start..]).into(),
        _ => path.into(),
    }
}

/// Limit of a cgroup above a tenant's, not set by the policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LimitAbove {
    /// Path of the cgroup from the mount.
    pub cgroup: String,
    /// Limited resource.
    pub resource: Resource,
    /// Limit of all processes in the cgroup.
    pub amount: f64,
    /// True if the limit was reached since its last reading.
    pub is_binding: bool,
}

/// Findings around the cgroup of a tenant with a shortfall.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Surroundings {
    /// Outside work beside it and beside its ancestors, largest first.
    pub outsiders: Arc<[Outsider]>,
    /// Limits above it.
    pub limits: Vec<LimitAbove>,
    /// Obstacle to the effect of its CPU weight.
    pub void_weight: Option<String>,
    /// CPUs of its running threads, if known.
    pub binding: Option<Binding>,
}

/// CPUs on which the running threads of a tenant may run, by their affinity and their cpusets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// The CPUs, as a list of the kernel.
    pub cpus: String,
    /// Their number.
    pub nr_cpus: u32,
}

/// Shortfall of one tenant, with reasons.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shortfall {
    /// Missing amount of each resource; 0 without a shortfall or if the amount is unknown.
    pub missing: PerResource<f64>,
    /// Reasons, at least one.
    pub reasons: Vec<Reason>,
}

/// Reason for a tenant's shortfall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reason {
    /// Outside work uses more than the reserve.
    Outside {
        /// Affected resource.
        resource: Resource,
        /// Outside usage beyond the reserve.
        amount: f64,
        /// Largest outside work, if found.
        largest: Arc<[Outsider]>,
    },
    /// A limit of the kernel.
    Kernel(KernelLimit),
    /// A limit of the policy: the tenant's own, or its group's.
    Policy {
        /// Limited resource.
        resource: Resource,
        /// The limit.
        amount: f64,
        /// Group with the limit; `None` for the tenant's own.
        group: Option<String>,
    },
    /// A cause inside the tenant.
    Inside(Inside),
    /// A value that is not in force.
    NotWritten {
        /// Knob of the value.
        knob: Knob,
        /// Group, slice or service of the value; `None` for the tenant.
        of: Option<String>,
        /// Reason for the delay.
        why: NotWritten,
    },
    /// Other tenants with an excess.
    Tenants {
        /// Affected resource.
        resource: Resource,
        /// Sum of the excesses.
        amount: f64,
        /// Names of the tenants with the largest excesses.
        names: Vec<String>,
    },
}

/// A limit or a rule of the kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum KernelLimit {
    /// A limit of a cgroup above the tenant, or of all tenants.
    Above {
        /// Limited resource.
        resource: Resource,
        /// Limit of all processes in the cgroup.
        amount: f64,
        /// The cgroup; `None` for all tenants.
        cgroup: Option<String>,
    },
    /// A quota of its own cgroup, not set by the policy.
    OwnQuota,
    /// Tenants may use only a part of the machine's CPUs.
    Cpus {
        /// Number of CPUs that tenants may use.
        usable: u32,
        /// Number of online CPUs.
        online: u32,
    },
    /// Its weight cannot be written exactly.
    Weight {
        /// Written weight.
        written: f64,
        /// Exact weight.
        exact: f64,
    },
    /// Its weight has no effect; the cause.
    VoidWeight(String),
    /// More protected memory would leave nothing to reclaim.
    Protection,
    /// Reclaim took protected memory, because it found no other.
    Reclaim,
}

/// Causes inside the tenant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Inside {
    /// Its placement has only this number of CPUs.
    Cpus(usize),
    /// Its running threads are bound to these CPUs, not by the agent.
    Bound(Binding),
    /// Its tasks wait while CPUs are idle.
    IdleCpus {
        /// Idle CPUs.
        idle_cores: f64,
        /// Number of its threads, if counted.
        nr_threads: Option<usize>,
        /// Published width.
        dop: Option<u32>,
    },
    /// PSI `some` for memory.
    Memory(f64),
    /// PSI `some` for IO.
    Io(f64),
}

/// Reason why a value is not in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotWritten {
    /// Mode observe: nothing is written.
    Observing,
    /// The write is done in this tick or soon.
    Pending,
    /// The write failed; the error.
    Failed(String),
    /// The write would have done harm; the reason.
    Deferred(String),
    /// A foreign value is left in place.
    LeftToOthers,
    /// Another program keeps overwriting it, and it is left alone for a time.
    Contested,
}

impl Reason {
    /// Kind of the reason.
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

    /// Resource of the reason.
    pub fn resource(&self) -> Resource {
        match self {
            Reason::Outside { resource, .. }
            | Reason::Policy { resource, .. }
            | Reason::Tenants { resource, .. }
            | Reason::Kernel(KernelLimit::Above { resource, .. }) => *resource,
            // A process limit does not cause a shortfall.
            Reason::NotWritten { knob, .. } => knob.resource().unwrap_or(CPU),
            Reason::Kernel(KernelLimit::Protection | KernelLimit::Reclaim)
            | Reason::Inside(Inside::Memory(_)) => MEMORY,
            Reason::Kernel(_) | Reason::Inside(_) => CPU,
        }
    }

    /// Outside work named in the reason.
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
                    write!(f, "{LARGEST}{}", named.join(", "))?;
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
                match &names[..] {
                    [] => write!(f, "{OTHERS} have {amount} more than allocated"),
                    [name] => write!(f, "{name} has {amount} more than allocated"),
                    names => write!(f, "{} have {amount} more than allocated", names.join(", ")),
                }
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
            Inside::Bound(Binding { cpus, nr_cpus }) => {
                let (cpu, is) = if *nr_cpus == 1 { ("CPU", "is") } else { ("CPUs", "are") };
                write!(
                    f,
                    "its running threads are bound to {cpu} {cpus}, which {is} {nr_cpus}: by taskset or a cpuset of its own, not \
                     by tenantd; `taskset -acp LIST PID` or a larger cpuset.cpus inside it gives them more"
                )
            }
            Inside::IdleCpus { idle_cores, .. } if *idle_cores < SEEN_CORES_MIN => f.write_str(
                "no CPU is idle, and no other work has more than its share: its tasks may be bound to few CPUs \
                 (`taskset -cp PID` prints them), or the kernel's balance of load over CPUs is uneven",
            ),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_names_is_that_of_a_reason_that_names_none() {
        let outsider = |command: &str| Outsider {
            cgroup: "/system.slice/secret have 1".into(),
            command: Some(command.into()),
            ..Outsider::default()
        };
        let outside = |largest: Vec<Outsider>| Reason::Outside {
            resource: CPU,
            amount: 1.5,
            largest: largest.into(),
        };
        let tenants = |resource, names: &[&str]| Reason::Tenants {
            resource,
            amount: 2e9,
            names: names.iter().map(|name| name.to_string()).collect(),
        };
        for (reason, named) in [
            (outside(vec![]), outside(vec![outsider("mysqld"), outsider(LARGEST)])),
            (tenants(CPU, &[]), tenants(CPU, &["web"])),
            (tenants(MEMORY, &[]), tenants(MEMORY, &["ci/has", "have", "db"])),
        ] {
            let (kind, text) = (named.kind(), named.to_string());
            assert_eq!(without_names(kind, &text), reason.to_string());
            assert_eq!(without_names(kind, &reason.to_string()), reason.to_string());
        }
        let own = Reason::Policy { resource: CPU, amount: 2.0, group: Some("ci".into()) };
        assert_eq!(without_names(own.kind(), &own.to_string()), own.to_string());
    }
}
