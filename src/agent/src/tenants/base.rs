//! A policy resolved on this host: the locations of its tenants and its claim rules.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::backend::ancestry::{self, GovernedAbove};
use crate::backend::claims;
use crate::backend::location::Location;
use crate::backend::on_host;
use tenantd_control::tree::{self, Tree, TreeNode};
use tenantd_control::width::place;
use tenantd_control::words::finding::{Code, Finding, Severity};
use tenantd_host::cgroup::Layout;
use tenantd_host::claiming::ClaimRule;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::expand::{Expanded, Found, Numbers, expand};
use tenantd_policy::model::{CpusPolicy, Policy, Tenant};
use tenantd_varlink::own_view::Claimants;

const UIDS_MAX: usize = 5;

#[derive(Debug)]
pub(crate) struct Base {
    pub(crate) numbers: Numbers,
    claim_rules: Vec<ClaimRule>,
    pub(crate) has_templates: bool,
    /// True if any template pins its tenants to CPUs.
    pins: bool,
    pub(crate) written: Arc<Policy>,
    /// The policy after its templates are expanded; unused without templates.
    pub(crate) expanded: Policy,
    /// First leaf of the policy in force that names each user or group. Rebuilt when the policy or the set of users
    /// changes.
    pub(crate) claimants: Arc<Claimants>,
    /// Number of found candidates that are not tenants, by group.
    left_out: BTreeMap<String, usize>,
    /// UIDs with slices that are system accounts, by group.
    outside: BTreeMap<String, Vec<u32>>,
    pub(crate) failure: Option<Finding>,
}

#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) locations: Vec<Location>,
    pub(crate) claim_rules: Vec<ClaimRule>,
    pub(crate) governs_above: GovernedAbove,
    pub(crate) tree: Tree,
    pub(crate) pins: bool,
}

impl Base {
    pub(crate) fn new(
        policy: Policy,
        numbers: Numbers,
        claim_rules: Vec<ClaimRule>,
        found: &Found,
    ) -> (Base, Expanded) {
        let mut base = Base {
            numbers,
            claim_rules,
            has_templates: any_template(&policy.tenants, &|_| true),
            pins: any_template(&policy.tenants, &|template| template.cpus != CpusPolicy::Shared),
            written: Arc::new(policy),
            expanded: Policy::default(),
            claimants: Arc::default(),
            left_out: BTreeMap::new(),
            outside: BTreeMap::new(),
            failure: None,
        };
        let expanded = expand(&base.written, &base.numbers, found);
        base.note(&expanded);
        (base, expanded)
    }

    pub(crate) fn in_force(&self) -> &Policy {
        if self.has_templates { &self.expanded } else { &self.written }
    }

    pub(crate) fn note(&mut self, expanded: &Expanded) {
        if self.has_templates {
            self.expanded.clone_from(&expanded.policy);
        }
        self.left_out.clone_from(&expanded.left_out);
        self.outside.clone_from(&expanded.outside);
        self.failure = None;
        self.index_claimants();
    }

    fn index_claimants(&mut self) {
        let mut claimants = Claimants::default();
        for (path, tenant) in self.in_force().leaves() {
            let users = tenant.matches.users.iter().filter_map(|name| self.numbers.user(name));
            for uid in users {
                claimants.users.entry(uid).or_insert_with(|| path.clone());
            }
            let groups = tenant.matches.groups.iter().filter_map(|name| self.numbers.group(name));
            for gid in groups {
                claimants.groups.entry(gid).or_insert_with(|| path.clone());
            }
        }
        self.claimants = Arc::new(claimants);
    }

    pub(crate) fn tenant_of_user(&self, uid: u32) -> Option<&str> {
        self.claimants.users.get(&uid).map(String::as_str)
    }

    pub(crate) fn layer<K: KernFs>(
        &self,
        expanded: &Expanded,
        (kernel, layout): (&K, &Layout),
        attached: impl FnOnce(&[TreeNode], Vec<Location>) -> Vec<Location>,
        tree: impl FnOnce(GovernedAbove, Arc<[TreeNode]>, &[Location]) -> Tree,
    ) -> Layer {
        let Expanded { policy, origins, .. } = expanded;
        let nodes: Arc<[TreeNode]> = tree::flatten(policy).into();
        let locations = on_host::locations_on(kernel, layout, policy, &self.numbers);
        let locations = attached(&nodes, locations);
        let claim_rules = claims::expanded(&self.claim_rules, policy, origins, &locations);
        let governs_above = on_host::governed_above(kernel, layout, policy, &locations);
        let tree = tree(governs_above, nodes, &locations);
        // Tenants found later must not need a controller that was not enabled so far.
        let pins = self.pins || place::pins(tree.nodes());
        Layer { locations, claim_rules, governs_above, tree, pins }
    }

    pub(crate) fn findings(&self) -> impl Iterator<Item = Finding> + '_ {
        let left_out = self.left_out.iter().map(|(group, nr)| {
            let what = format!(
                "{nr} that `each` found are no tenants: their names would be too long, or there are too many"
            );
            Finding::of(group, Code::NotAttached, what)
        });
        let outside = self.outside.iter().map(|(group, uids)| {
            let first: Vec<String> = uids.iter().take(UIDS_MAX).map(u32::to_string).collect();
            let more = if uids.len() > UIDS_MAX { " and others" } else { "" };
            let what = format!(
                "UID {}{more} with a slice of its own is not among the people of `users: \"*\"`, and no tenant",
                first.join(", ")
            );
            let remedy = "name these users in a `match`, or lower UID_MIN in /etc/login.defs";
            Finding {
                severity: Severity::Note,
                ..Finding::of(group, Code::NotAttached, what).with_remedy(remedy)
            }
        });
        left_out.chain(outside).chain(self.failure.clone())
    }
}

fn any_template(tenants: &[Tenant], holds: &impl Fn(&Tenant) -> bool) -> bool {
    tenants
        .iter()
        .any(|tenant| tenant.template().iter().any(holds) || any_template(&tenant.tenants, holds))
}

/// Gives the nodes that stay their identities in the `old` tree. A user tenant is also matched by its unit,
/// because its name changes when its account becomes known.
pub(crate) fn identified(
    (old, old_locations): (&Tree, &[Location]),
    (new, new_locations): (Tree, &[Location]),
) -> Tree {
    let by_path: HashMap<&str, usize> =
        new.nodes().iter().enumerate().map(|(index, node)| (node.path.as_str(), index)).collect();
    let by_unit: HashMap<&str, usize> = new_locations
        .iter()
        .enumerate()
        .filter_map(|(index, it)| Some((it.unit()?, index)))
        .collect();
    let mut kept: Vec<Option<usize>> = Vec::with_capacity(old.len());
    for (node, location) in old.nodes().iter().zip(old_locations) {
        let is_below_kept = node.parent.is_none_or(|parent| kept[parent].is_some());
        let renamed = || {
            let at = *by_unit.get(location.unit().filter(|_| node.is_found)?)?;
            let parent = node.parent.map(|parent| kept[parent]);
            (new.nodes()[at].parent.map(Some) == parent).then_some(at)
        };
        let same = by_path.get(node.path.as_str()).copied().or_else(renamed);
        let is_same = |at: &usize| {
            is_below_kept
                && new.nodes()[*at].is_leaf == node.is_leaf
                && new_locations[*at].is_same_as(location)
        };
        kept.push(same.filter(is_same));
    }
    kept.extend(ancestry::kept(old, &new));
    new.after(old, &kept)
}
