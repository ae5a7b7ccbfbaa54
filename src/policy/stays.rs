//! The rule about processes that a policy claims by owner and that stay in units of systemd.
//!
//! A process of a service or session is never moved out of it, so `users` and `groups` do not reach it. Which units
//! that concerns is known only on the machine, and only for what runs now.

use super::draft::{Draft, TenantDraft, leaves};
use super::facts::{HostFacts, UnitFacts};
use super::model::OwnerChoice;
use super::report::Report;
use super::rules;
use super::tree::At;

/// Units named in one finding; the rest is counted.
const UNITS_MAX: usize = 3;

/// Warns of each account whose processes run in services or sessions that are not the tenant itself.
pub(super) fn check(draft: &Draft, host: &HostFacts, report: &mut Report) {
    let leaves: Vec<&TenantDraft> =
        leaves(&draft.tenants).into_iter().filter(|leaf| claims_by_owner(leaf)).collect();
    if leaves.is_empty() {
        return;
    }
    let units = (host.units)();
    for leaf in leaves {
        let is_slice = is_user_slice(leaf);
        for user in &leaf.matches.users {
            let runs_there = |unit: &&UnitFacts| {
                let is_home = is_slice && unit.user_of_slice.contains(&user.value);
                unit.users.contains(&user.value) && !is_home
            };
            tell(leaf, "user", user, units.iter().filter(runs_there), report);
        }
        for group in &leaf.matches.groups {
            let runs_there = |unit: &&UnitFacts| unit.groups.contains(&group.value);
            tell(leaf, "group", group, units.iter().filter(runs_there), report);
        }
    }
}

fn claims_by_owner(leaf: &TenantDraft) -> bool {
    let matches = &leaf.matches;
    matches.units.is_empty() && !(matches.users.is_empty() && matches.groups.is_empty())
}

/// Whether the tenant is the slice of its one user, on a host that keeps such slices.
fn is_user_slice(leaf: &TenantDraft) -> bool {
    let matches = &leaf.matches;
    let is_ours = leaf.owner.as_ref().is_some_and(|owner| owner.value == OwnerChoice::Direct);
    matches.users.len() == 1 && matches.groups.is_empty() && matches.cgroups.is_empty() && !is_ours
}

fn tell<'a>(
    leaf: &TenantDraft,
    what: &str,
    account: &At<String>,
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
        "processes of {what} `{}` that `{}` claims stay in units of systemd",
        account.value, leaf.path
    );
    let finding = rules::STAYS_IN_UNIT.at(&account.place, message, "");
    let help = format!(
        "they run in {named}{further}: give these a tenant with `match: {{ unit: {first} }}`"
    );
    report.push(finding.help(help));
}
