//! Every key of a policy, once: its name, meaning, field, type, default and form.
//!
//! From these tables derive the structs of the model and their defaults, the reader with its findings and
//! hints, the outline that `diff` and `reload` compare, `policies/policy.schema.json` and the keys of
//! tenantd.policy(5). To add a key is to add a row here and to write the schema anew
//! (`tenantctl generate schema`).

use std::time::Duration;

use super::forms::{
    Amount, Count, DopForm, Interval, Keys, Number, PerResource, Structure, UpTo, VersionNumber,
    WeightNumber, Word,
};
use super::key::Flag::{Later, Leaf, Needed, Restart};
use super::key::{section, table};
use super::names::{CgroupPaths, CpusForm, Names, Root};
use super::types::*;
use super::values::{GROUPS, UNITS, USERS};
use crate::units::{Bytes, MilliCpus, Weight};

section! {
    /// A whole policy. The defaults are what an empty file means.
    pub struct Policy, POLICY {
        /// Version of the policy format.
        "version" => version: Version, VersionNumber, [Needed("begin with `version: 1`")];
        /// observe: compute and report, write nothing. enforce: write what was computed.
        "mode" => mode: Mode, Word;
        /// What is said of the machine.
        "host" => host: HostPolicy, Keys(HOST);
        /// How the shares are computed.
        "control" => control: ControlPolicy, Keys(CONTROL);
        /// How jobs are admitted.
        "admission" => admission: AdmissionPolicy, Keys(ADMISSION), [Later];
        /// Users and groups who, beside root, may reload, change the mode and restore.
        "administrators" => administrators: Accounts, Keys(ACCOUNTS);
        /// The tenants that share the machine, in the order of the file.
        "tenants" => tenants: Vec<Tenant>, Structure,
            [Needed("add `tenants:` and name one: `web: { weight: 100 }`")];
    }
}

section! {
    /// `host:` what is said of the machine.
    pub struct HostPolicy, HOST {
        /// Kept for the system, out of the tenants' reach.
        "reserve" => reserve: Reserve, Keys(RESERVE);
        /// Which cgroup hierarchy to use; simulated: a kernel in memory.
        "hierarchy" => hierarchy: HierarchyChoice, Word, [Restart];
        /// The cgroup under which tenants are made: from the mount point if it begins with a /, below the
        /// agent's own otherwise. auto: the agent's own.
        "root" => root: RootChoice, Root, [Restart];
    }
}

section! {
    /// `host.reserve`.
    #[derive(Copy, Eq)]
    pub struct Reserve, RESERVE {
        /// CPUs kept for the system.
        "cpu" => cpu: MilliCpus, Amount;
        /// Memory kept for the system.
        "memory" => memory: Bytes, Amount;
    }
}

section! {
    /// `control:` how the tick decides.
    #[derive(Copy)]
    pub struct ControlPolicy, CONTROL {
        /// Time from one decision to the next, from 100ms to 60s.
        "interval" => interval: Duration = Duration::from_secs(1), Interval;
        /// drf: weighted dominant resource fairness. max-min: each resource alone. static: by weight,
        /// whatever the demand.
        "allocation" => allocation: Allocation, Word;
        /// Slots for each CPU: how many units of parallelism are handed out.
        "oversubscription" => oversubscription: f64 = 1.0, Number { least: 0.1, most: 8.0 };
        /// restore: put back what the files held before. keep: leave the values in force at a stop; what a
        /// killed tenantd leaves is put back all the same, and `tenantd --restore` puts back what was kept.
        "on_exit" => on_exit: OnExit, Word;
        /// repair: write again what was overwritten from outside. accept: leave it, at the end as well.
        "on_drift" => on_drift: OnDrift, Word;
        /// Whether the policy is reloaded whenever its files change.
        "watch_policy" => watch_policy: bool, Word;
    }
}

section! {
    /// `admission:` how jobs are admitted.
    #[derive(Copy, Eq)]
    pub struct AdmissionPolicy, ADMISSION {
        /// Which waiting job goes next.
        "discipline" => discipline: Discipline, Word;
        /// Jobs that run at once.
        "max_running" => max_running: Option<u32>, Count { most: 100_000, auto: true };
        /// How the running jobs of one tenant share: equally, or the short ones first.
        "running" => running: RunningShares, Word;
    }
}

section! {
    /// `allow:` and `administrators:` users, and groups of users.
    #[derive(Eq)]
    pub struct Accounts, ACCOUNTS {
        /// Names or numbers of users.
        "users" => users: Vec<String>, Names(&USERS);
        /// Names or numbers of groups of users.
        "groups" => groups: Vec<String>, Names(&GROUPS);
    }
}

section! {
    /// One node of the tree: a leaf that uses resources, or a group of further nodes.
    pub struct Tenant, TENANT {
        + name: String, "Its name among its siblings; also the name of its cgroup.";
        /// Its share against its siblings, of both resources or of each; only the ratio counts. A resource
        /// that is left out has the weight that is given.
        "weight" => weight: Weights, PerResource(WEIGHT);
        /// What it gets whenever it wants it. That of a group covers at least those below it.
        "guarantee" => guarantee: Bound, Keys(GUARANTEE);
        /// What it never exceeds.
        "limit" => limit: Bound, Keys(LIMIT);
        /// Which existing processes belong to it: those that fit any of the keys.
        "match" => matches: Matches, Keys(MATCH), [Leaf];
        /// The one writer of its cgroup. direct: tenantd, below its root. systemd: a unit, or a slice made
        /// for it. auto: systemd where a unit is named.
        "owner" => owner: OwnerChoice, Word;
        /// Bounds of its degree of parallelism.
        "dop" => dop: DopPolicy, DopForm(DOP), [Leaf];
        /// Which CPUs it runs on: all, as many as its DOP, as many and its own, or a list such as 0-3,8.
        "cpus" => cpus: CpusPolicy, CpusForm, [Leaf];
        /// Users and groups who may submit jobs to it.
        "allow" => allow: Accounts, Keys(ACCOUNTS), [Later];
        /// Tenants below it, which share what it gets; that makes it a group.
        "tenants" => tenants: Vec<Tenant>, Structure;
    }
}

table! {
    WEIGHT: Weights {
        /// Against the siblings' CPU weights.
        "cpu" => cpu: Weight, WeightNumber;
        /// Against the siblings' memory weights.
        "memory" => memory: Weight, WeightNumber;
    }
}

table! {
    GUARANTEE: Bound {
        /// CPUs.
        "cpu" => cpu: Option<MilliCpus>, Amount;
        /// Memory.
        "memory" => memory: Option<Bytes>, Amount;
    }
}

table! {
    LIMIT: Bound {
        /// CPUs, at least 10m; max: no limit.
        "cpu" => cpu: Option<MilliCpus>,
            UpTo { least: MilliCpus(10), because: "10m, the kernel's smallest quota" };
        /// Memory, at least 1MiB; max: no limit.
        "memory" => memory: Option<Bytes>,
            UpTo { least: Bytes::mib(1), because: "1MiB: less holds no process" };
    }
}

section! {
    /// `match:` which existing processes belong to a tenant. A process that fits any of them is claimed.
    #[derive(Eq)]
    pub struct Matches, MATCH {
        /// The systemd unit that the tenant is: a service, slice or scope.
        "unit" => units: Vec<String>, Names(&UNITS);
        /// Cgroup paths from the mount point, each with everything below it; * and ? stand for characters
        /// within one name.
        "cgroup" => cgroups: Vec<String>, CgroupPaths;
        /// Names or numbers of users.
        "users" => users: Vec<String>, Names(&USERS);
        /// Names or numbers of groups of users.
        "groups" => groups: Vec<String>, Names(&GROUPS);
    }
}

table! {
    DOP: DopBounds {
        /// Exactly this wide.
        "manual" => manual: Option<u32>, Count { most: 8192, auto: false };
        /// At most this wide.
        "max" => max: Option<u32>, Count { most: 8192, auto: false };
    }
}
