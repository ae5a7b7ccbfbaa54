//! The policy as the agent uses it: checked, typed, in the order of the file.
//!
//! Every [`Policy`] is valid: [`super::load()`] is the only way to get one from text, and it returns none
//! while any rule is broken. The rest of the program reads this model and does not depend on YAML. The
//! sections are declared with their keys in [`super::keys`], single values in [`super::types`].

pub use super::amount::Amount;
pub use super::keys::{
    Accounts, AdmissionPolicy, ControlPolicy, HistoryPolicy, HostPolicy, JobsPolicy, Matches,
    MemoryPolicy, Policy, Tenant,
};
pub use super::types::*;

impl Policy {
    /// Whether the processes of any tenant or group are limited.
    pub fn limits_pids(&self) -> bool {
        fn any(tenants: &[Tenant]) -> bool {
            tenants.iter().any(|tenant| {
                tenant.limit.pids.is_some() || any(&tenant.tenants) || any(tenant.template())
            })
        }
        any(&self.tenants)
    }

    /// Whether a tenant of this path may be found by the template of its group.
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

    /// The users and groups that tenants and templates claim, as they are written.
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

    /// The policy on a host where each template finds one tenant, which is called `*`.
    pub fn with_one_of_each(&self) -> Policy {
        self.with_found(&|_| vec!["*".to_string()])
    }

    /// The policy on a host where the template of each group, by its path, finds tenants of these names. What the group
    /// names comes first.
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

    /// Every leaf of the tree with its path of names (`ci/nightly`), in the order of the file.
    pub fn leaves(&self) -> Vec<(String, &Tenant)> {
        fn walk<'a>(prefix: &str, tenants: &'a [Tenant], into: &mut Vec<(String, &'a Tenant)>) {
            for tenant in tenants {
                let path = format!("{prefix}{}", tenant.name);
                match tenant.is_group() {
                    true => walk(&format!("{path}/"), &tenant.tenants, into),
                    false => into.push((path, tenant)),
                }
            }
        }
        let mut leaves = Vec::new();
        walk("", &self.tenants, &mut leaves);
        leaves
    }
}

impl Tenant {
    /// Whether this node only groups others.
    pub fn is_group(&self) -> bool {
        !self.tenants.is_empty() || self.each.is_some()
    }

    /// Its template, where it has one, as a slice.
    pub fn template(&self) -> &[Tenant] {
        self.each.as_deref().map(std::slice::from_ref).unwrap_or_default()
    }
}

impl Matches {
    /// All work that no other tenant claims.
    pub fn rest() -> Matches {
        Matches { is_rest: true, ..Matches::default() }
    }

    /// Whether no rule is given.
    pub fn is_empty(&self) -> bool {
        *self == Matches::default()
    }

    /// The cgroups that are weighed where they are, from the mount, by path or pattern: all of them, unless their
    /// processes are moved. Beside users and groups they are, and into a unit none is.
    pub fn in_place(&self) -> &[String] {
        let has_owners = !(self.users.is_empty() && self.groups.is_empty());
        match self.moves || has_owners && self.units.is_empty() {
            true => &[],
            false => &self.cgroups,
        }
    }
}
