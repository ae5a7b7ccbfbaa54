//! From the policy's `match` to rules that know users and groups by number, and what is reported of them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nix::unistd::{Group, User};

use super::location::{self, Location, UserSlices};
use crate::control::finding::{Code, Finding, Severity};
use crate::control::tree::{self, TreeNode};
use crate::host::process::{Claim, ClaimRule, Stay, StayPlace};
use crate::policy::model::{Policy, Tenant};

/// The rules of a policy, and what could not be resolved.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// One for each tenant that claims processes, in the order of the policy.
    pub rules: Vec<ClaimRule>,
    /// Users and groups that this host does not know, as text.
    pub findings: Vec<String>,
}

/// Resolves every `match` of `policy` on this host.
pub fn rules(policy: &Policy) -> Rules {
    let nodes = tree::flatten(policy);
    let locations = location::locations(policy, UserSlices::Unknown);
    let mut resolved = Rules::default();
    for (path, tenant) in policy.leaves() {
        let node = nodes.iter().position(|node| node.path == path);
        // Nothing is moved into cgroups that systemd owns; processes of a user outside the slice are
        // reported.
        let is_meant = |node: &usize| match &locations[*node] {
            Location::Direct => true,
            Location::Unit(_) => tenant.matches.units.is_empty(),
            Location::Slice(_) | Location::Nowhere | Location::Unknown(_) => false,
        };
        if let Some(node) = node.filter(|node| is_meant(node) && claims(tenant)) {
            let rule = resolve(&path, tenant, node, &mut resolved.findings);
            resolved.rules.push(rule);
        }
    }
    resolved
}

fn claims(tenant: &Tenant) -> bool {
    let matches = &tenant.matches;
    !(matches.cgroups.is_empty() && matches.users.is_empty() && matches.groups.is_empty())
}

fn resolve(path: &str, tenant: &Tenant, node: usize, findings: &mut Vec<String>) -> ClaimRule {
    let mut numbers = |kind: &str, names: &[String], look_up: fn(&str) -> Option<u32>| {
        let mut numbers = Vec::new();
        for name in names {
            match name.parse().ok().or_else(|| look_up(name)) {
                Some(number) => numbers.push(number),
                None => findings.push(format!(
                    "{path}: this host has no {kind} `{name}`: nothing is claimed for it"
                )),
            }
        }
        numbers
    };
    let uids = numbers("user", &tenant.matches.users, |name| {
        User::from_name(name).ok().flatten().map(|user| user.uid.as_raw())
    });
    let gids = numbers("group", &tenant.matches.groups, |name| {
        Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw())
    });
    ClaimRule { node, cgroups: tenant.matches.cgroups.clone(), uids, gids, home: None }
}

/// Adds to each rule the unit of its tenant, where it is one on this host.
pub(in crate::daemon) fn settle(rules: &mut [ClaimRule], locations: &[Location]) {
    for rule in rules {
        rule.home = locations[rule.node].unit().map(str::to_string);
    }
}

/// Places of one tenant that are named in findings; the rest is counted.
const PLACES_MAX: usize = 16;

/// The finding on processes that are claimed by owner and stay where they are.
pub(super) fn describe(stays: &[Stay], nodes: &[TreeNode]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for stays in stays.chunk_by(|a, b| a.node == b.node) {
        let tenant = &nodes[stays[0].node].path;
        let said = |what: String| Finding::of(tenant, Code::NotClaimed, what);
        findings.extend(stays.iter().take(PLACES_MAX).map(|stay| {
            let processes = counted(stay.nr_processes, "process stays", "processes stay");
            match &stay.place {
                StayPlace::Unit(unit) => said(format!(
                    "{processes} in {unit}, which is systemd's: to share by it, give it a tenant \
                     with `match: {{ unit: {unit} }}`"
                )),
                StayPlace::Cgroup(cgroup) => said(format!(
                    "{processes} in the cgroup {cgroup}, outside the slice of the user: to share \
                     by it, give it a tenant with `match: {{ cgroup: {cgroup} }}`"
                )),
            }
        }));
        let rest = &stays[stays.len().min(PLACES_MAX)..];
        if !rest.is_empty() {
            let nr_processes = rest.iter().map(|stay| stay.nr_processes).sum();
            let processes = counted(nr_processes, "process stays", "processes stay");
            let units = counted(rest.len(), "further unit", "further units");
            findings.push(said(format!("{processes} in {units} of systemd's")));
        }
    }
    findings
}

/// The findings on tenants whose processes come from several cgroups: in the tenant's they are in one.
pub(super) fn flattened(
    moves: &[Claim],
    nodes: &[TreeNode],
    tree: usize,
    is_enforcing: bool,
) -> Vec<Finding> {
    let mut cgroups: BTreeMap<usize, BTreeSet<&Path>> = BTreeMap::new();
    for claim in moves.iter().filter(|claim| !claim.is_split) {
        cgroups.entry(claim.node).or_default().insert(&claim.from[tree]);
    }
    let several = cgroups.into_iter().filter(|(_, cgroups)| cgroups.len() > 1);
    several
        .map(|(node, cgroups)| {
            let named: Vec<String> =
                cgroups.iter().take(PLACES_MAX).map(|path| path.display().to_string()).collect();
            let (verb, number) = (if is_enforcing { "are" } else { "would be" }, cgroups.len());
            let what = format!(
                "processes of {number} cgroups {verb} moved into one ({}): what those set for them has no \
                 effect until they go back, and threads that were placed one by one go back together",
                named.join(", ")
            );
            Finding { severity: Severity::Note, ..Finding::of(&nodes[node].path, Code::Ineffective, what) }
        })
        .collect()
}

fn counted(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
