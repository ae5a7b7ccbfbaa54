//! The accounts, units and cgroups that a policy names, as the machine knows them.
//!
//! **Problem.** One user has two names, `root` and `0`, and a unit may have an alias: two tenants that claim the same
//! would pass for two that do not. And a name that nothing has claims nothing, which is mostly a misspelling.
//! **Answer.** Each name is looked up once (a lookup may ask a directory service on the network), rules compare what
//! it stands for, and unknown names are warned of. Slices and scopes exist only while something runs in them, so only
//! services can be unknown; a cgroup that is not there is a note.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::expand::Numbers;
use super::facts::{Account, HostFacts};
use super::hint::nearest;
use super::installed::{Services, real_name};
use super::nodes::Node;
use super::pattern::has_wildcard;
use super::read::{Draft, Places};
use super::report::Report;
use super::rules;
use super::tree::Place;
use super::values::ALL_USERS;

/// Entries of directories that are looked at for all patterns together.
const MOST_ENTRIES: usize = 100_000;

/// What the names of a policy stand for.
#[derive(Debug, Default)]
pub(super) struct Known<'d> {
    users: HashMap<&'d str, Account>,
    groups: HashMap<&'d str, Account>,
    services: Option<Services>,
}

/// Names with their places.
type Names<'d> = Vec<(&'d str, &'d Place)>;

impl<'d> Known<'d> {
    /// Looks up every name of the policy, where the machine is known.
    pub(super) fn of(draft: &'d Draft, nodes: &[Node<'d>], host: Option<&HostFacts>) -> Known<'d> {
        let Some(host) = host else { return Known::default() };
        let find = |names: Names<'d>, find: fn(&str) -> Account| {
            let mut found: HashMap<&'d str, Account> = HashMap::new();
            for (name, _) in names.into_iter().filter(|(name, _)| *name != ALL_USERS) {
                found.entry(name).or_insert_with(|| find(name));
            }
            found
        };
        let names_units = nodes.iter().any(|node| !node.tenant.matches.units.is_empty());
        Known {
            users: find(users(draft, nodes), host.find_user),
            groups: find(groups(draft, nodes), host.find_group),
            services: if names_units { (host.services)() } else { None },
        }
    }

    /// The numbers of all accounts that are known.
    pub(super) fn numbers(&self) -> Numbers {
        let known = |accounts: &HashMap<&str, Account>| {
            let numbers = accounts.iter().filter_map(|(name, account)| match account {
                Account::Number(number) => Some((name.to_string(), *number)),
                Account::Missing | Account::Unknown => None,
            });
            numbers.collect()
        };
        Numbers { users: known(&self.users), groups: known(&self.groups) }
    }

    /// What a user's name stands for: its number, where it is known.
    pub(super) fn user<'n>(&self, name: &'n str) -> Cow<'n, str> {
        number(&self.users, name)
    }

    /// What the name of a group of users stands for.
    pub(super) fn group<'n>(&self, name: &'n str) -> Cow<'n, str> {
        number(&self.groups, name)
    }

    /// The name that a unit goes by.
    pub(super) fn unit<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let real = self.services.as_ref().and_then(|services| real_name(services, name));
        match real {
            Some(real) if real != name => Cow::Owned(real.to_string()),
            _ => Cow::Borrowed(name),
        }
    }
}

fn number<'n>(accounts: &HashMap<&str, Account>, name: &'n str) -> Cow<'n, str> {
    // Digits are a number, whether an account has it or not.
    let number = name.parse().ok().or_else(|| match accounts.get(name) {
        Some(Account::Number(number)) => Some(*number),
        // It is 0 on every machine.
        _ => (name == "root").then_some(0),
    });
    number.map_or(Cow::Borrowed(name), |number: u32| Cow::Owned(number.to_string()))
}

/// The users that the policy names.
fn users<'d>(draft: &'d Draft, nodes: &[Node<'d>]) -> Names<'d> {
    let top = (&draft.policy.administrators.users, &draft.given, "administrators.users");
    let of_tenants = nodes.iter().flat_map(|Node { tenant, given, .. }| {
        [
            (&tenant.matches.users, *given, "match.users"),
            (&tenant.allow.users, *given, "allow.users"),
        ]
    });
    placed(std::iter::once(top).chain(of_tenants))
}

/// The groups of users that it names.
fn groups<'d>(draft: &'d Draft, nodes: &[Node<'d>]) -> Names<'d> {
    let top = (&draft.policy.administrators.groups, &draft.given, "administrators.groups");
    let of_tenants = nodes.iter().flat_map(|Node { tenant, given, .. }| {
        [
            (&tenant.matches.groups, *given, "match.groups"),
            (&tenant.allow.groups, *given, "allow.groups"),
        ]
    });
    placed(std::iter::once(top).chain(of_tenants))
}

fn placed<'d>(
    lists: impl Iterator<Item = (&'d Vec<String>, &'d Places, &'static str)>,
) -> Names<'d> {
    let pairs = |(names, given, key): (&'d Vec<String>, &'d Places, &str)| {
        names.iter().map(String::as_str).zip(given.items(key))
    };
    lists.flat_map(pairs).collect()
}

/// Warns of each unknown name once.
pub(super) fn check(
    draft: &Draft,
    nodes: &[Node<'_>],
    known: &Known<'_>,
    host: &HostFacts,
    report: &mut Report,
) {
    let accounts = [
        ("user", users(draft, nodes), &known.users),
        ("group", groups(draft, nodes), &known.groups),
    ];
    for (what, names, accounts) in accounts {
        let is_missing = |name: &str| {
            name.parse::<u32>().is_err() && accounts.get(name) == Some(&Account::Missing)
        };
        for (name, place) in once_each(names).filter(|(name, _)| is_missing(name)) {
            let message = format!("this machine has no {what} `{name}`");
            let finding = rules::UNKNOWN_ACCOUNT.at(place, message, "");
            report.push(finding.help("it has no effect until there is one"));
        }
    }
    unknown_services(nodes, known, report);
    unknown_cgroups(nodes, host, report);
}

fn once_each<'d>(names: Names<'d>) -> impl Iterator<Item = (&'d str, &'d Place)> {
    let mut seen: HashSet<&str> = HashSet::new();
    names.into_iter().filter(move |(name, _)| seen.insert(name))
}

fn unknown_services(nodes: &[Node<'_>], known: &Known<'_>, report: &mut Report) {
    let Some(services) = &known.services else { return };
    let units = nodes.iter().map(|node| (&node.tenant.matches.units, node.given, "match.unit"));
    for (name, place) in once_each(placed(units)) {
        if !has_wildcard(name) && real_name(services, name).is_none() {
            let message = format!("this machine has no service `{name}`");
            let near = nearest(name, services.keys().map(String::as_str));
            let label = near.map(|near| format!("did you mean `{near}`?")).unwrap_or_default();
            let finding = rules::UNKNOWN_SERVICE.at(place, message, label);
            report.push(finding.help("it has no effect until there is one"));
        }
    }
}

fn unknown_cgroups(nodes: &[Node<'_>], host: &HostFacts, report: &mut Report) {
    let mut budget = MOST_ENTRIES;
    // What templates find is noted by itself.
    let tenants = nodes.iter().filter(|node| !node.is_template());
    let cgroups = tenants.map(|node| (&node.tenant.matches.cgroups, node.given, "match.cgroup"));
    for (pattern, place) in once_each(placed(cgroups)) {
        if report.is_full() || (host.has_cgroup)(pattern, &mut budget) {
            continue;
        }
        let message = format!("no cgroup of this machine matches `{pattern}` now");
        let finding = rules::UNKNOWN_CGROUP.at(place, message, "");
        report.push(finding.help("it has no effect until there is one"));
    }
}
