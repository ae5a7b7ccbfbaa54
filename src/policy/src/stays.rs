//! Rule about processes that a policy claims by owner but that stay in units of systemd.
//!
//! A process of a service or session is never moved out of it, so `users` and `groups` do not apply to it.
//! The affected units are known only on the machine, and only for running processes.

use std::collections::BTreeSet;

use super::facts::{HostFacts, UnitFacts};
use super::nodes::Node;
use super::presence::Known;
use super::report::Report;
use super::rules;
use super::tree::Place;
use super::types::OwnerChoice;
use super::values::shown;
use crate::accounts::digits;

const UNITS_MAX: usize = 3;

/// Warns of each account with processes in services or sessions that are not the tenant itself.
pub(super) fn check(nodes: &[Node<'_>], known: &Known<'_>, host: &HostFacts, report: &mut Report) {
    let leaves: Vec<&Node<'_>> = nodes.iter().filter(|node| claims_by_owner(node)).collect();
    if leaves.is_empty() {
        return;
    }
    let units = (host.units)();
    for leaf in leaves {
        let (matches, is_slice) = (&leaf.tenant.matches, has_user_slices(leaf));
        for (user, place) in matches.users.iter().zip(leaf.given.items("match.users")) {
            let number = known.user(user);
            let is_among = |users: &BTreeSet<String>| is_listed(users, user, &number);
            let runs_there = |unit: &&UnitFacts| {
                let is_home = is_slice && is_among(&unit.user_of_slice);
                is_among(&unit.users) && !is_home
            };
            find(leaf, ("user", shown(user), place), units.iter().filter(runs_there), report);
        }
        for (group, place) in matches.groups.iter().zip(leaf.given.items("match.groups")) {
            let number = known.group(group);
            let runs_there = |unit: &&UnitFacts| {
                let is_home = is_slice && !unit.user_of_slice.is_empty();
                is_listed(&unit.groups, group, &number) && !is_home
            };
            find(leaf, ("group", shown(group), place), units.iter().filter(runs_there), report);
        }
    }
}

/// True if an account is among these names and numbers. Digits are compared by their number.
fn is_listed(all: &BTreeSet<String>, name: &str, number: &str) -> bool {
    all.contains(number) || digits(name).is_none() && all.contains(name)
}

fn claims_by_owner(node: &Node<'_>) -> bool {
    let matches = &node.tenant.matches;
    let is_some = !node.is_template() && matches.units.is_empty();
    is_some && !(matches.users.is_empty() && matches.groups.is_empty())
}

/// True if the tenant consists of its users' slices, on a host with such slices.
pub(super) fn has_user_slices(node: &Node<'_>) -> bool {
    node.tenant.matches.cgroups.is_empty() && node.tenant.owner != OwnerChoice::Direct
}

fn find<'a>(
    node: &Node<'_>,
    (what, account, place): (&str, &str, &Place),
    units: impl Iterator<Item = &'a UnitFacts>,
    report: &mut Report,
) {
    let names: Vec<&str> = units.map(|unit| &*unit.name).collect();
    let Some(first) = names.first() else { return };
    let named = names[..names.len().min(UNITS_MAX)].join(", ");
    let further = match names.len().saturating_sub(UNITS_MAX) {
        0 => String::new(),
        further => format!(" and {further} more"),
    };
    let message = format!(
        "processes of {what} `{account}` that `{}` claims stay in units of systemd",
        node.path
    );
    let finding = rules::STAYS_IN_UNIT.at(place, message, "");
    let help = format!(
        "they run in {named}{further}: give these a tenant with `match: {{ unit: {first} }}`"
    );
    report.push(finding.help(help));
}
