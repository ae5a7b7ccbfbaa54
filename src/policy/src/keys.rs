//! The table of policy keys: name, meaning, field, type, default and form of each.
//!
//! From these tables derive the structs of the model and their defaults, the reader with its findings and
//! hints, the outline that `diff` and `reload` compare, `policies/policy.schema.json` and the keys of
//! tenantd.policy(5). To add a key, add a row here and regenerate the schema
//! (`tenantctl generate schema`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::amount::Amount;
use super::bounds::{AmountOf, Processes, UpTo};
use super::counted::{Counted, Counts};
use super::coupling::Coupled;
use super::credits::{self, Optional};
use super::disk_limits::{Operations, PartOfDisks, Throughput};
use super::divide::{Disks, DisksForm};
use super::durations::{AGE, Bound, CAP, HALF_LIFE, INTERVAL, SHORT_TIME};
use super::forms::{
    Count, DisciplineWord, DopForm, Keys, KeysOr, Number, OneOrEach, SomeKeys, Structure, Template,
    VersionNumber, WeightNumber, Word,
};
use super::key::Flag::{Group, Leaf, Needed, Restart};
use super::key::{section, table};
use super::names::{CgroupPaths, CpusForm, Names, Root};
use super::retention::Size;
use super::types::*;
use super::values::{GROUPS, LABELS, MATCHED_USERS, NAMESPACES, UNITS, USERS};
use tenantd_core::disk_rate::DiskRate;
use tenantd_core::resource::{CPU, MEMORY, PerResource};
use tenantd_core::units::{Percent, Weight};
use tenantd_queue::discipline::Name;

section! {
    /// A whole policy. The defaults are what an empty file means.
    pub struct Policy, POLICY {
        /// Version of the policy format.
        "version" => version: Version, VersionNumber, [Needed("begin with `version: 1`")];
        /// observe: compute and report, write nothing. enforce: write what was computed.
        "mode" => mode: Mode, Word;
        /// The machine: what is reserved, which cgroups are used.
        "host" => host: HostPolicy, Keys(HOST);
        /// How and how often the agent decides.
        "control" => control: ControlPolicy, Keys(CONTROL);
        /// How the agent treats memory beyond dividing it.
        "memory" => memory: MemoryPolicy, Keys(PROBING);
        /// The admission of jobs (tenantctl run).
        "admission" => admission: AdmissionPolicy, Keys(ADMISSION);
        /// What a service keeps of the past (tenantctl history, tenantctl plan --replay).
        "history" => history: HistoryPolicy, Keys(HISTORY);
        /// Users and groups that may reload, change the mode and restore, in addition to root.
        "administrators" => administrators: Accounts, Keys(ACCOUNTS);
        /// The tenants that share the machine, in the order of the file.
        "tenants" => tenants: Vec<Tenant>, Structure,
            [Needed("add `tenants:` and name one: `web: { weight: 100 }`")];
    }
}

section! {
    /// `host:` the machine.
    pub struct HostPolicy, HOST {
        /// What is kept for the system and not divided among tenants.
        "reserve" => reserve: PerResource<Amount>, Keys(RESERVE);
        /// Which cgroup hierarchy to use; simulated: a kernel in memory.
        "hierarchy" => hierarchy: HierarchyChoice, Word, [Restart];
        /// The cgroup below which tenants are created: relative to the mount point if it starts with /,
        /// else to the agent's own cgroup. auto: the agent's own cgroup.
        "root" => root: RootChoice, Root, [Restart];
        /// Counted resources that jobs ask for and the kernel does not divide: how many units there are of each, as in
        /// `{ gpu: 2 }`, or `{ gpu: { count: 2, env: [CUDA_VISIBLE_DEVICES], devices: ["/dev/nvidia{}"] } }`. A job gets the
        /// lowest free indices; `env` are variables that get them, and `devices` are closed to other jobs.
        "resources" => resources: Vec<Counted>, Counts;
        /// leave: disks are measured, and nothing is written for them. weigh: tenants have weights on disks whose scheduler
        /// obeys weights (bfq, or io.cost); no setting of a disk is changed. `{ divide: { sda: bfq } }`: the same, and the named
        /// disks get the scheduler bfq, or io.cost with a measured model, as in `{ divide: { nvme0n1: { cost: { read: 1500MiB/s,
        /// read_iops: 200000, latency: 2ms } } } }`. Their old settings are restored when tenantd stops.
        "disks" => disks: Disks, DisksForm;
    }
}

table! {
    RESERVE: PerResource<Amount> {
        /// CPUs kept for the system, or a percentage of the machine's.
        "cpu" => [CPU]: Amount, AmountOf(CPU);
        /// Memory kept for the system, or a percentage of the machine's.
        "memory" => [MEMORY]: Amount, AmountOf(MEMORY);
    }
}

section! {
    /// `control:` how and how often the agent decides.
    #[derive(Copy)]
    pub struct ControlPolicy, CONTROL {
        /// Time from one decision to the next, from 100ms to 60s.
        "interval" => interval: Duration = Duration::from_secs(1), INTERVAL;
        /// drf: weighted dominant resource fairness. max-min: each resource alone. static: by weight,
        /// whatever the demand.
        "allocation" => allocation: Allocation, Word;
        /// Slots per CPU; a slot is one unit of parallelism.
        "oversubscription" => oversubscription: f64 = 1.0, Number { least: 0.1, most: 8.0 };
        /// Resources that are divided together: a tenant with a large part of one gets less of the others where these are
        /// short. [cpu, memory], or [cpu, memory, disk] unless `host.disks` is leave.
        "couple" => couple: Coupling, Coupled;
        /// restore: restore the previous values at a stop. keep: leave the written values in force;
        /// `tenantd --restore` restores them later. After a kill, the next start restores in both cases.
        "on_exit" => on_exit: OnExit, Word;
        /// What happens to a value that another program overwrites. repair: write it again, with growing pauses where
        /// that is overwritten every time. accept: leave it, also at a stop.
        "on_drift" => on_drift: OnDrift, Word;
        /// Weights and protection of the slices, services and other cgroups above tenants. manage: set as the
        /// tenants below need it. leave: leave them, and report what cannot take effect.
        "ancestors" => ancestors: AncestorsChoice, Word;
        /// In mode enforce: whether weights are corrected, by up to a factor of 2.5, where the kernel divides CPU time among
        /// busy siblings otherwise than their weights say.
        "trim" => trim: bool, Word;
        /// CPU time that a tenant leaves to busy siblings is returned to it later as weight, so that short bursts run as if
        /// alone, and as earlier starts of its jobs. `{}`: on with the defaults. Left out: off.
        "credits" => credits: Option<CreditsPolicy>,
            Optional {
                keys: CREDITS,
                words: [
                    "a map with `half_life`, `cap` and `keep`",
                    "write `credits: {}` for the defaults, or leave `credits` out to turn it off",
                ],
                lengths: |it: &CreditsPolicy| Some([it.half_life, it.cap]),
            };
        /// Whether to reload the policy when its files change.
        "watch_policy" => watch_policy: bool, Word;
    }
}

section! {
    /// `credits:` CPU time that a tenant leaves to its siblings, and gets back.
    #[derive(Copy, Serialize, Deserialize)]
    pub struct CreditsPolicy, CREDITS {
        /// Time in which unused credit falls to half, from 10s to 30d.
        "half_life" => half_life: Duration = Duration::from_secs(600), HALF_LIFE;
        /// Largest credit, in time of the tenant's own fair share, from 1s to 1h; at most the half-life.
        "cap" => cap: Duration = Duration::from_secs(60), CAP;
        /// Part of its fair share that each sibling keeps during a burst, from 1% to 90%.
        "keep" => keep: f64 = 0.1, credits::Percent { least: 1.0, most: 90.0 };
    }
}

section! {
    /// `memory:` how the agent treats memory beyond dividing it.
    #[derive(Copy, Eq)]
    pub struct MemoryPolicy, PROBING {
        /// In mode enforce, on hosts with swap on solid-state disks or in compressed memory: whether memory is taken from
        /// tenants, a hundredth at a time, as long as they hardly wait for it, so that their demand is what they need and
        /// not what they hold.
        "probe" => probe: bool, Word;
        /// Which work ends when memory runs out. kernel: the largest process. share: that of the tenants that hold most
        /// beyond their share, jobs before other work, the youngest job first, and none within its guarantee.
        "victims" => victims: Victims, Word;
    }
}

section! {
    /// `admission:` the admission of jobs.
    #[derive(Copy, Eq)]
    pub struct AdmissionPolicy, ADMISSION {
        /// The order in which waiting jobs start.
        "discipline" => discipline: Name, DisciplineWord;
        /// The number of jobs that run at the same time. auto: as many as slots.
        "max_running" => max_running: Option<u32>, Count { most: 100_000, auto: true };
        /// The number of jobs of one tenant that wait. auto: 1000.
        "max_waiting" => max_waiting: Option<u32>, Count { most: 100_000, auto: true };
        /// The number of jobs of one user that wait. auto: 250.
        "max_waiting_per_user" => max_waiting_per_user: Option<u32>, Count { most: 100_000, auto: true };
        /// The number of jobs that one user submits within a minute. auto: no limit.
        "max_submissions_per_user" => max_submissions_per_user: Option<u32>, Count { most: 100_000, auto: true };
        /// How often other jobs start before one whose turn it is and that lacks memory, slots or units. auto: 16.
        "overtakes" => overtakes: Option<u32>, Count { most: 100_000, auto: true };
        /// How the running jobs of a tenant share it. equal: equally. multilevel: short jobs first.
        "running" => running: RunningShares, Word;
        /// How long a job is frozen at most while a CPU guarantee of another tenant is due, and narrower jobs do not
        /// suffice; then it runs at least as long. off: never.
        "freeze" => freeze: Option<Duration>, Bound;
        /// Workers, and as many slots, that only short jobs get: they idle beside waiting long ones. `{}`: on with the
        /// defaults. Left out: off.
        "short_jobs" => short_jobs: Option<ShortPolicy>,
            Optional {
                keys: SHORT,
                words: [
                    "a map with `workers` and `below`",
                    "write `short_jobs: { workers: 1, below: 30s }`, or leave `short_jobs` out to turn it off",
                ],
                lengths: |_: &ShortPolicy| None,
            };
    }
}

section! {
    /// `short_jobs:` workers for short jobs.
    #[derive(Copy, Eq)]
    pub struct ShortPolicy, SHORT {
        /// The number of workers. One long job may always run.
        "workers" => workers: Option<u32> = Some(1), Count { most: 4096, auto: false };
        /// A job is short if nine of ten jobs of its class (tenantctl run --class) took less, from 1s to 1h.
        "below" => below: Duration = Duration::from_secs(30), SHORT_TIME;
    }
}

section! {
    /// `history:` what a service keeps of the past.
    #[derive(Copy, Eq)]
    pub struct HistoryPolicy, HISTORY {
        /// The most that is kept, the oldest goes first. 0: nothing is kept.
        "max_size" => max_size: u64 = 96 << 20, Size;
        /// What is older is not kept.
        "max_age" => max_age: Duration = Duration::from_secs(24 * 3600), AGE;
    }
}

section! {
    /// `allow:` and `administrators:` users and user groups.
    #[derive(Eq)]
    pub struct Accounts, ACCOUNTS {
        /// User names or UIDs: digits in quotes are a name first, without quotes a UID.
        "users" => users: Vec<String>, Names(&USERS);
        /// Group names or GIDs.
        "groups" => groups: Vec<String>, Names(&GROUPS);
    }
}

section! {
    /// A node of the tree: a tenant, or a group of tenants.
    pub struct Tenant, TENANT {
        + name: String, "The name, unique among siblings; also the name of its cgroup.";
        + is_found: bool, "Whether `each` found it.";
        /// Its weight relative to its siblings, for all resources or for each; only ratios count. A
        /// resource that is left out has the first weight that is given.
        "weight" => weight: Weights, OneOrEach { keys: WEIGHT, quiet: &["disk"] };
        /// What it gets whenever it has the demand. A group's guarantee is at least the sum of its tenants'.
        "guarantee" => guarantee: Guarantees, Keys(GUARANTEE);
        /// What it never exceeds.
        "limit" => limit: Limits, Keys(LIMIT);
        /// Which existing processes belong to it: those that match any of the keys. rest: all work that no other
        /// tenant claims, for one tenant of the policy; services, sessions and other cgroups stay where they are.
        "match" => matches: Matches, KeysOr(MATCH, "rest", Matches::rest), [Leaf];
        /// Who writes its cgroup. direct: tenantd, below its root. systemd: systemd, through a unit or a
        /// slice created for it. auto: systemd if a unit is matched, else direct.
        "owner" => owner: OwnerChoice, Word;
        /// Whether it takes part in `control.credits`. false: it earns no credit and spends none; so do the tenants in it.
        "credits" => credits: bool = true, Word;
        /// Bounds of its degree of parallelism (DOP).
        "dop" => dop: DopPolicy, DopForm(DOP), [Leaf];
        /// The CPUs it runs on. shared: all. dop: as many as its DOP. exclusive: as many as its DOP, shared
        /// with no tenant. Or a list such as 0-3,8.
        "cpus" => cpus: CpusPolicy, CpusForm, [Leaf];
        /// Users and groups that may submit jobs to it or to the tenants in it (tenantctl run), and hand processes of
        /// their own and cgroups with no others to it (tenantctl attach).
        "allow" => allow: Accounts, Keys(ACCOUNTS);
        /// Bounds of its jobs.
        "jobs" => jobs: JobsPolicy, Keys(JOBS), [Leaf];
        /// Its tenants, which share what it gets; a tenant with this key is a group.
        "tenants" => tenants: Vec<Tenant>, Structure, [Group];
        /// A template with the keys of a tenant: each user, unit or cgroup that its match finds and that no
        /// tenant names is a tenant of this group, which comes and goes with it.
        "each" => each: Option<Box<Tenant>>, Template(TENANT), [Group];
    }
}

section! {
    /// `jobs:` bounds of the jobs of a tenant.
    #[derive(Copy, Eq)]
    pub struct JobsPolicy, JOBS {
        /// The number of its jobs that run at the same time. auto: no bound of its own.
        "max_running" => max_running: Option<u32>, Count { most: 100_000, auto: true };
        /// The same for the jobs of one user. auto: no bound of its own.
        "max_running_per_user" => max_running_per_user: Option<u32>, Count { most: 100_000, auto: true };
    }
}

table! {
    WEIGHT: Weights {
        /// CPU weight, relative to its siblings.
        "cpu" => [CPU]: Weight, WeightNumber;
        /// Memory weight, relative to its siblings.
        "memory" => [MEMORY]: Weight, WeightNumber;
        /// Weight on disks, relative to its siblings, under `host.disks: weigh`.
        "disk" => disk: Weight, WeightNumber;
    }
}

table! {
    GUARANTEE: Guarantees {
        /// CPUs, or a percentage of the machine's.
        "cpu" => [CPU]: Option<Amount>, AmountOf(CPU);
        /// Memory, or a percentage of the machine's.
        "memory" => [MEMORY]: Option<Amount>, AmountOf(MEMORY);
        /// A percentage of the time of each disk that obeys weights, under `host.disks: weigh`; at most 80% for all tenants.
        "disk" => disk: Option<Percent>, PartOfDisks;
    }
}

table! {
    LIMIT: Limits {
        /// CPUs, at least 10m, or a percentage of the machine's. max: no limit.
        "cpu" => [CPU]: Option<Amount>, UpTo(CPU);
        /// Memory, at least 1MiB, or a percentage of the machine's. max: no limit.
        "memory" => [MEMORY]: Option<Amount>, UpTo(MEMORY);
        /// Processes and threads together. max: no limit.
        "pids" => pids: Option<u32>, Processes;
        /// Requests to each disk that is no part of another: reads of files, and writes that the kernel charges to the tenant.
        "disk" => disk: DiskLimits, Keys(DISK_LIMIT);
    }
}

table! {
    DISK_LIMIT: DiskLimits {
        /// Bytes read per second from each disk, at least 64KiB/s. max: no limit.
        "read" => [DiskRate::Read]: Option<u64>, Throughput;
        /// Bytes written per second to each disk, at least 64KiB/s. max: no limit.
        "write" => [DiskRate::Write]: Option<u64>, Throughput;
        /// Read operations per second on each disk, at least 10. max: no limit.
        "read_iops" => [DiskRate::ReadIops]: Option<u64>, Operations;
        /// Write operations per second on each disk, at least 10. max: no limit.
        "write_iops" => [DiskRate::WriteIops]: Option<u64>, Operations;
    }
}

section! {
    /// `match:` which existing processes belong to a tenant. A process that matches any key is claimed.
    #[derive(Eq)]
    pub struct Matches, MATCH {
        + is_rest: bool, "Whether all work that no other tenant claims belongs to it.";
        /// Units of systemd: services, slices or scopes, by name or with * and ?. Together, and with the cgroups,
        /// they are the tenant.
        "unit" => units: Vec<String>, Names(&UNITS);
        /// Cgroup paths from the mount point, each with its descendants; * and ? match characters within
        /// one path component, ** any number of components. They are weighed where they are.
        "cgroup" => cgroups: Vec<String>, CgroupPaths;
        /// Whether the processes of these cgroups are moved into a cgroup of tenantd's. Beside users or groups they
        /// always are; there it says that processes are taken out of cgroups that other programs made, too.
        "move" => moves: bool, Word;
        /// User names or UIDs: digits in quotes are a name first, without quotes a UID. In `each`, \"*\" finds all people
        /// of the host.
        "users" => users: Vec<String>, Names(&MATCHED_USERS);
        /// Group names or GIDs.
        "groups" => groups: Vec<String>, Names(&GROUPS);
        /// Pods of containerd, as tenantd-nri reports them. A pod has one tenant: the first in the policy that fits, and that of
        /// an `each` only if no other tenant fits.
        "pod" => pods: PodMatch, SomeKeys(Keys(POD), "name a `namespace` or a `label`, or drop `pod`");
    }
}

section! {
    /// `match: { pod: … }`: pods by namespace and label. A pod fits if it has one of the namespaces and one of the labels, or
    /// one of the only kind that is given.
    #[derive(Eq)]
    pub struct PodMatch, POD {
        /// Namespaces, with * and ?. Without labels beside them, an `each` makes a tenant of each namespace.
        "namespace" => namespaces: Vec<String>, Names(&NAMESPACES);
        /// Labels, as in team=core, with * and ? in the value. An `each` makes a tenant of each value. Anyone who may create
        /// a pod chooses its labels.
        "label" => labels: Vec<String>, Names(&LABELS);
    }
}

table! {
    DOP: DopBounds {
        /// Exactly this DOP.
        "manual" => manual: Option<u32>, Count { most: 8192, auto: false };
        /// At most this DOP.
        "max" => max: Option<u32>, Count { most: 8192, auto: false };
    }
}
