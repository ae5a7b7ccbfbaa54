//! From the policy's `match` to rules that know users and groups by number.

use nix::unistd::{Group, User};

use super::location::{self, Location};
use crate::control::tree;
use crate::host::process::ClaimRule;
use crate::policy::model::{Policy, Tenant};

/// The rules of a policy, and what could not be resolved.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// One for each tenant that claims processes, in the order of the policy.
    pub rules: Vec<ClaimRule>,
    /// Users and groups that this host does not know, for a person.
    pub findings: Vec<String>,
}

/// Resolves every `match` of `policy` on this host.
pub fn rules(policy: &Policy) -> Rules {
    let nodes = tree::flatten(policy);
    let locations = location::locations(policy);
    let mut resolved = Rules::default();
    for (path, tenant) in policy.leaves() {
        let node = nodes.iter().position(|node| node.path == path);
        // Nothing is moved into cgroups that systemd owns.
        let is_ours = |node: &usize| locations[*node] == Location::Direct;
        if let Some(node) = node.filter(|node| is_ours(node) && claims(tenant)) {
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
    ClaimRule { node, cgroups: tenant.matches.cgroups.clone(), uids, gids }
}
