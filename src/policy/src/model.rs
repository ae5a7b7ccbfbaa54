//! Policy model for the agent: checked, typed, in the order of the file.
//!
//! Every [`Policy`] is valid: [`super::load()`] is the only way to get one from text, and returns none
//! while any rule is broken. The rest of the program does not depend on YAML. [`super::keys`] declares the
//! sections with their keys, [`super::types`] single values.

pub use super::amount::Amount;
pub use super::counted::Counted;
pub use super::divide::{CostModel, Disks, DividedBy, DividedDisk};
pub use super::keys::{
    Accounts, AdmissionPolicy, ControlPolicy, CreditsPolicy, HistoryPolicy, HostPolicy, JobsPolicy,
    Matches, MemoryPolicy, Policy, Tenant,
};
pub use super::types::*;

impl Policy {
    /// True if a tenant or group has a process limit.
    pub fn limits_pids(&self) -> bool {
        fn any(tenants: &[Tenant]) -> bool {
            tenants.iter().any(|tenant| {
                tenant.limit.pids.is_some() || any(&tenant.tenants) || any(tenant.template())
            })
        }
        any(&self.tenants)
    }

    /// True if a limit of disks has to hold inside the cgroup that has it: of a group, or of a tenant with jobs.
    pub fn limits_disks_inside(&self) -> bool {
        fn any(tenants: &[Tenant], is_open: bool) -> bool {
            tenants.iter().any(|tenant| {
                let has_jobs = is_open || tenant.allow != Accounts::default();
                let is_limited = tenant.limit.disk.limits().next().is_some();
                let below = || any(&tenant.tenants, has_jobs) || any(tenant.template(), has_jobs);
                is_limited && (has_jobs || tenant.is_group()) || below()
            })
        }
        any(&self.tenants, false)
    }

    /// True if the template of its group may find a tenant of this path.
    pub fn may_find(&self, path: &str) -> bool {
        let mut tenants = &self.tenants;
        let mut names = path.split('/').peekable();
        while let Some(name) = names.next() {
            let Some(tenant) = tenants.iter().find(|tenant| tenant.name == name) else {
                return false;
            };
            let below = names.peek();
            let is_named = |below: &&str| tenant.tenants.iter().any(|it| it.name == **below);
            if below.is_some_and(|below| !is_named(below)) {
                return tenant.each.is_some() && names.count() == 1;
            }
            tenants = &tenant.tenants;
        }
        false
    }

    /// Users and groups that tenants and templates claim, as written.
    pub fn owners(&self) -> Vec<String> {
        fn of(tenants: &[Tenant]) -> Vec<String> {
            let of_one = |tenant: &Tenant| {
                let (users, groups) = (&tenant.matches.users, &tenant.matches.groups);
                let own = users.iter().cloned().chain(groups.iter().map(|it| format!("@{it}")));
                let below = [of(&tenant.tenants), of(tenant.template())].concat();
                own.chain(below).collect::<Vec<_>>()
            };
            tenants.iter().flat_map(of_one).collect()
        }
        of(&self.tenants)
    }

    /// The policy on a host where each template finds one tenant called `*`.
    pub fn with_one_of_each(&self) -> Policy {
        self.with_found(&|_| vec!["*".to_string()])
    }

    /// The policy on a host where the template of each group, by its path, finds tenants of these names.
    /// Named tenants come first.
    pub fn with_found(&self, names: &impl Fn(&str) -> Vec<String>) -> Policy {
        fn add(tenants: &mut [Tenant], above: &str, names: &impl Fn(&str) -> Vec<String>) {
            for tenant in tenants {
                let path = format!("{above}{}", tenant.name);
                add(&mut tenant.tenants, &format!("{path}/"), names);
                let Some(template) = tenant.each.clone() else { continue };
                for name in names(&path) {
                    if !tenant.tenants.iter().any(|known| known.name == name) {
                        tenant.tenants.push(Tenant { name, ..(*template).clone() });
                    }
                }
            }
        }
        let mut policy = self.clone();
        add(&mut policy.tenants, "", names);
        policy
    }

    /// Leaves of the tree with their paths of names (`ci/nightly`), in the order of the file.
    pub fn leaves(&self) -> Vec<(String, &Tenant)> {
        fn walk<'a>(prefix: &str, tenants: &'a [Tenant], into: &mut Vec<(String, &'a Tenant)>) {
            for tenant in tenants {
                let path = format!("{prefix}{}", tenant.name);
                if tenant.is_group() {
                    walk(&format!("{path}/"), &tenant.tenants, into)
                } else {
                    into.push((path, tenant))
                }
            }
        }
        let mut leaves = Vec::new();
        walk("", &self.tenants, &mut leaves);
        leaves
    }
}

impl Tenant {
    /// True if this node only groups others.
    pub fn is_group(&self) -> bool {
        !self.tenants.is_empty() || self.each.is_some()
    }

    /// Its template as a slice; empty without one.
    pub fn template(&self) -> &[Tenant] {
        self.each.as_deref().map(std::slice::from_ref).unwrap_or_default()
    }
}

impl Matches {
    /// Matches all processes that no other tenant claims.
    pub fn rest() -> Matches {
        Matches { is_rest: true, ..Matches::default() }
    }

    /// True if no rule is given.
    pub fn is_empty(&self) -> bool {
        *self == Matches::default()
    }

    /// Paths or patterns, from the mount, of the cgroups in place: all, unless their processes are moved.
    /// Beside users and groups they are moved; into a unit none is.
    pub fn in_place(&self) -> &[String] {
        let has_owners = !(self.users.is_empty() && self.groups.is_empty());
        if self.moves || has_owners && self.units.is_empty() { &[] } else { &self.cgroups }
    }
}
