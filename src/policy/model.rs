//! The policy as the agent knows it: checked, typed, in the order of the file.
//!
//! A [`Policy`] that exists is a valid one: [`super::load()`] is the only way to get one from text, and it
//! hands out nothing while any rule is broken. Everything below the parser reads this model; nothing else
//! of the program knows that policies are YAML.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::units::{Bytes, MilliCpus, Weight};

/// A whole policy. The defaults are what an empty file means.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    /// Whether values are written or only computed.
    pub mode: Mode,
    /// What is said of the machine.
    pub host: HostPolicy,
    /// How the tick decides.
    pub control: ControlPolicy,
    /// How jobs are admitted.
    pub admission: AdmissionPolicy,
    /// Who, beside root, may change the running agent.
    pub administrators: Accounts,
    /// The top level of the tree of tenants, in the order of the file.
    pub tenants: Vec<Tenant>,
}

impl Policy {
    /// Every leaf of the tree with its path of names (`ci/nightly`), in the order of the file.
    pub fn leaves(&self) -> Vec<(String, &Tenant)> {
        fn walk<'a>(prefix: &str, tenants: &'a [Tenant], into: &mut Vec<(String, &'a Tenant)>) {
            for tenant in tenants {
                let path = match prefix {
                    "" => tenant.name.clone(),
                    _ => format!("{prefix}/{}", tenant.name),
                };
                match tenant.is_group() {
                    true => walk(&path, &tenant.tenants, into),
                    false => into.push((path, tenant)),
                }
            }
        }
        let mut leaves = Vec::new();
        walk("", &self.tenants, &mut leaves);
        leaves
    }
}

/// Whether the agent acts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Read, compute, report; write nothing.
    #[default]
    Observe,
    /// Write what was computed.
    Enforce,
}

impl Mode {
    /// The word of the policy.
    pub fn word(self) -> &'static str {
        match self {
            Mode::Observe => "observe",
            Mode::Enforce => "enforce",
        }
    }
}

/// `host:` what is said of the machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostPolicy {
    /// Kept for the system, out of the tenants' reach. Zero where absent.
    pub reserve: Reserve,
    /// Which cgroup hierarchy to use.
    pub hierarchy: HierarchyChoice,
    /// Under which cgroup direct tenants live.
    pub root: RootChoice,
}

/// `host.reserve`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reserve {
    /// CPUs kept for the system.
    pub cpu: MilliCpus,
    /// Memory kept for the system.
    pub memory: Bytes,
}

/// `host.hierarchy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HierarchyChoice {
    /// Whatever the machine has.
    #[default]
    Auto,
    /// cgroup v2.
    Unified,
    /// cgroup v1, alone or beside an empty unified mount (hybrid).
    Legacy,
    /// The kernel in memory.
    Simulated,
}

/// `host.root`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RootChoice {
    /// The agent's own cgroup, for each controller.
    #[default]
    Auto,
    /// This cgroup: from the mount point where it starts with `/`, below the agent's own otherwise.
    Path(PathBuf),
}

/// `control:` how the tick decides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ControlPolicy {
    /// Time from tick to tick; 100 ms to 60 s.
    pub interval: Duration,
    /// Which rule divides the machine.
    pub allocation: Allocation,
    /// Slots for each allocatable CPU; 0.1 to 8.
    pub oversubscription: f64,
    /// What happens to the written values when the agent stops.
    pub on_exit: OnExit,
    /// Whether the policy is taken up again whenever its files change.
    pub watch_policy: bool,
    /// Who wins where someone else writes a value of ours.
    pub on_drift: OnDrift,
}

impl Default for ControlPolicy {
    fn default() -> Self {
        ControlPolicy {
            interval: Duration::from_secs(1),
            allocation: Allocation::Drf,
            oversubscription: 1.0,
            on_exit: OnExit::Restore,
            watch_policy: false,
            on_drift: OnDrift::Repair,
        }
    }
}

/// `control.allocation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Allocation {
    /// Weighted dominant resource fairness, then what is left by max-min.
    #[default]
    Drf,
    /// Weighted max-min of each resource alone.
    MaxMin,
    /// By weight alone, whatever the demand: for comparison.
    Static,
}

/// `control.on_exit`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Put back what the files held before.
    #[default]
    Restore,
    /// Leave the written values in force.
    Keep,
}

/// `control.on_drift`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDrift {
    /// The agent writes its value again.
    #[default]
    Repair,
    /// The other one's value stands until the agent starts anew, and is not put back at the end.
    Accept,
}

/// `admission:` how jobs are admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdmissionPolicy {
    /// Who goes next.
    pub discipline: Discipline,
    /// Jobs that run at once; `None` is `auto`.
    pub max_running: Option<u32>,
    /// How running jobs of one tenant share.
    pub running: RunningShares,
}

/// `admission.discipline`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the field's own")]
pub enum Discipline {
    Fifo,
    Priority,
    RoundRobin,
    Fq,
    Wfq,
    Wf2q,
    TwoDfq,
    #[default]
    TwoDfqE,
    Drf,
}

/// `admission.running`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RunningShares {
    /// Equal weights.
    Equal,
    /// Multilevel feedback by consumed CPU time.
    #[default]
    Multilevel,
}

/// One node of the tree: a leaf that uses resources, or a group of further nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tenant {
    /// Its name among its siblings; also the name of its cgroup.
    pub name: String,
    /// Its weight against its siblings, for each resource.
    pub weight: Weights,
    /// What it gets whenever it wants it. Leaves only.
    pub guarantee: Bound,
    /// What it never exceeds.
    pub limit: Bound,
    /// Which existing processes belong to it. Leaves only.
    pub matches: Matches,
    /// Who owns its cgroup.
    pub owner: OwnerChoice,
    /// Bounds of its degree of parallelism. Leaves only.
    pub dop: DopPolicy,
    /// Which CPUs it runs on. Leaves only.
    pub cpus: CpusPolicy,
    /// Who may submit jobs to it.
    pub allow: Accounts,
    /// The nodes below it, in the order of the file; empty for a leaf.
    pub tenants: Vec<Tenant>,
}

impl Tenant {
    /// Whether this node only groups others.
    pub fn is_group(&self) -> bool {
        !self.tenants.is_empty()
    }
}

/// `owner:` who owns the cgroup of a tenant, and is the only one to write its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerChoice {
    /// Systemd where the tenant names a unit; whoever owns the group above it otherwise, and at the top us.
    #[default]
    Auto,
    /// Us: the cgroup is made below the agent's root.
    Direct,
    /// Systemd: the tenant is the unit it names, the slice of its user, or a slice made for it.
    Systemd,
}

/// A weight for each resource; `weight: 300` sets both.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// Against the siblings' CPU weights.
    pub cpu: Weight,
    /// Against the siblings' memory weights.
    pub memory: Weight,
}

/// A guarantee or a limit: some of the resources, or none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bound {
    /// CPUs.
    pub cpu: Option<MilliCpus>,
    /// Memory.
    pub memory: Option<Bytes>,
}

/// `match:` which existing processes belong to a tenant. A process that fits any of them is claimed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matches {
    /// The systemd unit that the tenant is; one at most.
    pub units: Vec<String>,
    /// Cgroup paths from the mount point, each beginning with `/`; `*` and `?` stand for characters
    /// within one name. A path stands for that cgroup and everything below it: see
    /// [`super::pattern::claims`].
    pub cgroups: Vec<String>,
    /// Names or numbers of users. Where systemd runs a unified host, a single user is the slice of that user. What is in
    /// a service or scope of systemd is never moved for its user.
    pub users: Vec<String>,
    /// Names or numbers of groups; the same holds.
    pub groups: Vec<String>,
}

impl Matches {
    /// Whether no rule is given.
    pub fn is_empty(&self) -> bool {
        *self == Matches::default()
    }
}

/// `dop:` bounds of the degree of parallelism.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DopPolicy {
    /// As wide as the allocation says.
    #[default]
    Auto,
    /// At most this wide.
    AtMost(u32),
    /// Exactly this wide.
    Manual(u32),
    /// As the published IMCI rule says.
    Imci,
}

/// `cpus:` which CPUs a tenant runs on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CpusPolicy {
    /// All of them; the degree of parallelism is only told.
    #[default]
    Shared,
    /// As many as its degree of parallelism, disjoint while they last.
    Dop,
    /// As many as its degree of parallelism, always disjoint.
    Exclusive,
    /// These, in the kernel's list format, sorted and without repeats (`0-3,8`).
    Fixed(Vec<u32>),
}

/// `allow:` and `administrators:` users, and groups of users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Accounts {
    /// Names or numbers of users.
    pub users: Vec<String>,
    /// Names or numbers of groups.
    pub groups: Vec<String>,
}
