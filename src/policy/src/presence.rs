//! Accounts, units and cgroups of a policy, compared with the machine.
//!
//! **Problem.** One user has two names, `root` and `0`, and a unit may have an alias: two equal claims could
//! pass as different. A name without an account claims nothing, and is mostly a misspelling. Digits are a name
//! first: `"200"` is the account with that name if there is one (chown(1)); without quotes they are a number.
//! `check` warns if both are possible. **Answer.** Each name is looked up once (a look-up may ask a directory
//! service on the network), rules compare the results, and unknown names cause a warning. Slices and scopes
//! exist only while they have processes, so only services can be unknown; a missing cgroup is a note.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use super::expand::Numbers;
use super::facts::HostFacts;
use super::hint::nearest;
use super::installed::{Services, real_name};
use super::nodes::Node;
use super::pattern::has_wildcard;
use super::read::{Draft, Places};
use super::report::{Diagnostic, Report};
use super::rules;
use super::tree::Place;
use super::values::{ALL_USERS, shown};
use crate::accounts::{Answer, digits, explicit, meaning};

const MOST_ENTRIES: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct Known<'d> {
    users: HashMap<&'d str, Answer<u32>>,
    groups: HashMap<&'d str, Answer<u32>>,
    services: Option<Services>,
}

type Names<'d> = Vec<(&'d str, &'d Place)>;

impl<'d> Known<'d> {
    pub(super) fn of(draft: &'d Draft, nodes: &[Node<'d>], host: Option<&HostFacts>) -> Known<'d> {
        let Some(host) = host else { return Known::default() };
        let find = |names: Names<'d>, find: fn(&str) -> Answer<u32>| {
            let mut found: HashMap<&'d str, Answer<u32>> = HashMap::new();
            for (name, _) in names.into_iter().filter(|(name, _)| *name != ALL_USERS) {
                found.entry(name).or_insert_with(|| find(shown(name)));
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

    pub(super) fn numbers(&self) -> Numbers {
        let known = |accounts: &HashMap<&str, Answer<u32>>| {
            let number =
                |name: &str, answer: &Answer<u32>| meaning(name, |_| answer.clone()).known();
            let numbers = accounts.iter().map(|(name, answer)| (*name, number(name, answer)));
            numbers.filter_map(|(name, number)| Some((name.to_string(), number?))).collect()
        };
        Numbers { users: known(&self.users), groups: known(&self.groups) }
    }

    /// Number of a user's name, if known.
    pub(super) fn user<'n>(&self, name: &'n str) -> Cow<'n, str> {
        number(&self.users, name)
    }

    /// Number of a group's name, if known.
    pub(super) fn group<'n>(&self, name: &'n str) -> Cow<'n, str> {
        number(&self.groups, name)
    }

    /// Real name of a unit.
    pub(super) fn unit<'n>(&self, name: &'n str) -> Cow<'n, str> {
        let real = self.services.as_ref().and_then(|services| real_name(services, name));
        match real {
            Some(real) if real != name => Cow::Owned(real.to_string()),
            _ => Cow::Borrowed(name),
        }
    }
}

fn number<'n>(accounts: &HashMap<&str, Answer<u32>>, name: &'n str) -> Cow<'n, str> {
    let number = match accounts.get(name) {
        Some(answer @ (Answer::Known(_) | Answer::Missing)) => {
            meaning(name, |_| answer.clone()).known()
        }
        // Without a machine, digits can only be a number.
        _ => explicit(name).or(digits(name)),
    };
    // Root is 0 on every machine.
    let number = number.or_else(|| (name == "root").then_some(0));
    number.map_or(Cow::Borrowed(name), |number| Cow::Owned(number.to_string()))
}

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

/// Warns once of each name that is unknown or ambiguous.
pub(super) fn check(
    draft: &Draft,
    nodes: &[Node<'_>],
    known: &Known<'_>,
    host: &HostFacts,
    report: &mut Report,
) {
    let accounts = [
        ("user", "UID", users(draft, nodes), &known.users),
        ("group", "GID", groups(draft, nodes), &known.groups),
    ];
    for (what, number, names, accounts) in accounts {
        for (name, place) in once_each(names) {
            let finding = match accounts.get(name) {
                Some(answer) => about((what, number), name, answer, place),
                None => None,
            };
            finding.into_iter().for_each(|finding| report.push(finding));
        }
    }
    unknown_services(nodes, known, report);
    unknown_cgroups(nodes, host, report);
}

fn about(
    (what, number): (&str, &str),
    name: &str,
    answer: &Answer<u32>,
    place: &Place,
) -> Option<Diagnostic> {
    let digits = explicit(name).or(digits(name));
    let shown = shown(name);
    match (answer, digits) {
        (Answer::Missing, None) => {
            let message = format!("this machine has no {what} `{name}`");
            let finding = rules::UNKNOWN_ACCOUNT.at(place, message, "");
            let several = if name.contains(char::is_whitespace) {
                "; several names make a list: `[ana, bob]`"
            } else {
                ""
            };
            let people = if matches!(name, "all" | "any" | "everyone" | "everybody") {
                "; all people of the host are found by `each: { match: { users: \"*\" } }`"
            } else {
                ""
            };
            Some(finding.help(format!("it has no effect until there is one{several}{people}")))
        }
        (Answer::Unknown(why), _) if explicit(name).is_none() => {
            let message = format!("the {what} `{name}` could not be looked up: {why}");
            let finding = rules::FAILED_LOOK_UP.at(place, message, "");
            let help = "it has no effect until it is known; check the services that /etc/nsswitch.conf names";
            Some(finding.help(help))
        }
        (Answer::Known(of_name), Some(digits)) if *of_name != digits => {
            let (of_name, digits) = (format!("{number} {of_name}"), format!("{number} {digits}"));
            let (meant, help) = match explicit(name) {
                None => (
                    format!("the {what} with the name `{shown}`, {of_name}, and not {digits}"),
                    "without quotes it is the number".to_string(),
                ),
                Some(_) => (
                    format!("{digits}, and not the {what} with the name `{shown}`, {of_name}"),
                    format!("in quotes it is the name: \"{shown}\""),
                ),
            };
            let message = format!("`{shown}` stands for {meant}");
            Some(rules::NAME_OF_DIGITS.at(place, message, "").help(help))
        }
        _ => None,
    }
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
    // Templates have a note of their own.
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
