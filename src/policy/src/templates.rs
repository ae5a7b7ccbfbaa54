//! Rules about templates: the contents of an `each`, and overlaps of templates.
//!
//! A template finds one kind of thing, so that each found thing is one tenant. Named tenants come first and
//! do not overlap with a template; two templates may overlap. All rules are linear in the templates except
//! the overlap of patterns (see [`super::claims`]).

use std::collections::HashMap;

use super::claims::{self, Claim, claimed_twice, claims, overlapping_patterns, same_twice};
use super::expand::{expand, left};
use super::facts::HostFacts;
use super::nodes::Node;
use super::pattern;
use super::pod_claims;
use super::presence::Known;
use super::read::Draft;
use super::report::{Report, Severity};
use super::rules;
use super::types::CpusPolicy;
use super::unit_path::USER_SLICES;
use super::values::{ALL_USERS, shown};

/// Tries the rules about templates, and refuses tenants with a match only for templates.
pub(super) fn check(nodes: &[Node<'_>], known: &Known<'_>, report: &mut Report) {
    let (templates, tenants): (Vec<&Node<'_>>, Vec<&Node<'_>>) =
        nodes.iter().partition(|node| node.is_template());
    for claim in tenants.iter().flat_map(|node| users(node)).filter(is_all) {
        let message = "`*` is no user: only a template finds all of them";
        let help = "say it in `each: { match: { users: \"*\" } }` of a group, or name the users";
        report.push(rules::BAD_MATCH.at(claim.place, message, "").help(help));
    }
    let cgroups =
        tenants.iter().flat_map(|node| claims(node, "match.cgroup", &node.tenant.matches.cgroups));
    for claim in cgroups.filter(|claim| pattern::names_none(claim.name)) {
        let message =
            format!("`{}` claims the cgroups of all programs of the host", shown(claim.name));
        let help = "`match: rest` is the work that no tenant claims; an `each` with this match makes a tenant of each cgroup; or \
                    begin with a name, as in `/jobs/*`";
        report.push(rules::BAD_MATCH.at(claim.place, message, "").help(help));
    }
    for template in &templates {
        one_kind(template, report);
        refused_values(template, report);
    }
    overlaps(&templates, known, report);
    pod_claims::overlaps(&templates, report);
}

fn users<'d>(node: &Node<'d>) -> impl Iterator<Item = Claim<'d>> + use<'d> {
    claims(node, "match.users", &node.tenant.matches.users)
}

fn is_all(claim: &Claim<'_>) -> bool {
    claim.name == ALL_USERS
}

fn one_kind(template: &Node<'_>, report: &mut Report) {
    let matches = &template.tenant.matches;
    let kinds = [
        ("match.unit", &matches.units),
        ("match.cgroup", &matches.cgroups),
        ("match.users", &matches.users),
        ("match.groups", &matches.groups),
    ];
    let names = kinds.iter().filter(|(_, names)| !names.is_empty()).map(|(key, _)| *key);
    let pods = (!matches.pods.is_empty()).then_some("match.pod");
    let given: Vec<&str> = names.chain(pods).collect();
    let group = template.path.trim_end_matches("/*");
    let (message, help) = match given[..] {
        _ if matches.is_rest => (
            format!("the `each` of `{group}` cannot find the rest, which is one tenant"),
            "give a tenant beside it `match: rest`",
        ),
        [_] => return,
        // An empty or wrong `match` has its own finding.
        [] if template.given.key("match").is_some() => return,
        [] => (
            format!("the `each` of `{group}` does not say what to find"),
            "add its `match`, as in `{ users: \"*\" }`, `{ groups: [staff] }` or \
             `{ unit: \"docker-*.scope\" }` or `{ pod: { namespace: \"*\" } }`",
        ),
        _ => (
            format!("the `each` of `{group}` finds more than one kind of tenant"),
            "keep one key of the `match`, and make a group with an `each` of its own for the other",
        ),
    };
    let rest = template.given.key("match").filter(|_| matches.is_rest);
    let place = given.get(1).and_then(|key| template.given.key(key)).or(rest);
    let Some(place) = place.or(template.each_at) else { return };
    report.push(rules::TEMPLATE_MATCH.at(place, message, "").help(help));
}

fn refused_values(template: &Node<'_>, report: &mut Report) {
    let mut refuse = |key: &str, message: &str, help: &str| {
        if let Some(place) = template.given.value(key) {
            report.push(rules::TEMPLATE_KEY.at(place, message, "").help(help));
        }
    };
    if matches!(template.tenant.cpus, CpusPolicy::Fixed(_)) {
        let message = "a template gives the same CPUs to every tenant, and they are one tenant's";
        refuse("cpus", message, "say `cpus: dop` or `cpus: exclusive`");
    }
    let matches = &template.tenant.matches;
    let has_owners = !(matches.users.is_empty() && matches.groups.is_empty());
    if matches.moves && !(has_owners && matches.cgroups.is_empty()) {
        let message = "the cgroups that a template finds are weighed where they are";
        refuse("match.move", message, "drop `move`");
    }
}

fn overlaps(templates: &[&Node<'_>], known: &Known<'_>, report: &mut Report) {
    let of = |key: &'static str| {
        templates.iter().flat_map(move |node| {
            let matches = &node.tenant.matches;
            let names = match key {
                "match.unit" => &matches.units,
                "match.cgroup" => &matches.cgroups,
                "match.groups" => &matches.groups,
                _ => &matches.users,
            };
            claims(node, key, names)
        })
    };
    let mut units: Vec<Claim<'_>> = of("match.unit").collect();
    // Users are their slices, which a pattern of units finds too.
    if let Some(first) = of("match.users").chain(of("match.groups")).next() {
        units.push(Claim { name: USER_SLICES, ..first });
    }
    overlapping_patterns("unit", &mut units, report);
    overlapping_patterns("cgroup", &mut of("match.cgroup").collect::<Vec<_>>(), report);
    same_twice("user", of("match.users"), |name| known.user(name), report);
    same_twice("group", of("match.groups"), |name| known.group(name), report);
    let Some(all) = of("match.users").find(is_all) else { return };
    let others = of("match.users").filter(|claim| !is_all(claim)).chain(of("match.groups"));
    for other in others {
        report.push(claimed_twice(&format!("`{}`", shown(other.name)), all, other));
    }
}

const NAMES_MAX: usize = 4;

pub(super) fn found_now(
    draft: &Draft,
    nodes: &[Node<'_>],
    known: &Known<'_>,
    host: &HostFacts,
    report: &mut Report,
) {
    // Pods are known to a running tenantd alone.
    let finds_here = |node: &&Node<'_>| node.is_template() && node.tenant.matches.pods.is_empty();
    let templates: Vec<&Node<'_>> = nodes.iter().filter(finds_here).collect();
    let rest = nodes.iter().filter(|node| !node.is_template()).find_map(claims::rest);
    // A wrong template would find wrong things.
    if templates.is_empty() && rest.is_none() || report.count(Severity::Error) > 0 {
        return;
    }
    let Some(found) = (host.found)() else { return };
    let expanded = expand(&draft.policy, &known.numbers(), &found);
    let mut names: HashMap<String, Vec<&str>> = HashMap::new();
    let leaves = expanded.policy.leaves();
    for (path, _) in leaves.iter().filter(|(_, tenant)| tenant.is_found) {
        if let Some((group, name)) = path.rsplit_once('/') {
            names.entry(format!("{group}/*")).or_default().push(name);
        }
    }
    for template in templates {
        let Some(place) = template.each_at else { continue };
        if users(template).any(|claim| is_all(&claim)) {
            let failures = found.people.failures();
            failures.for_each(|why| report.push(rules::FAILED_LOOK_UP.at(place, why, "")));
        }
        let found = names.get(template.path).map_or(&[][..], Vec::as_slice);
        let mut message = match found.len() {
            0 => format!("`{}` finds nothing on this machine now", template.path),
            1 => format!("`{}` finds one tenant on this machine now", template.path),
            nr => format!("`{}` finds {nr} tenants on this machine now", template.path),
        };
        if !found.is_empty() {
            message += &format!(": {}", first_of(found));
        }
        report.push(rules::FOUND.at(place, message, ""));
    }
    if let Some(rest) = rest {
        let left = left(&expanded.policy, &known.numbers(), &found);
        let left: Vec<&str> = left.iter().map(String::as_str).collect();
        let message = if left.is_empty() {
            format!("`{}` has no cgroup on this machine now", rest.tenant)
        } else {
            format!("`{}` has on this machine now: {}", rest.tenant, first_of(&left))
        };
        report.push(rules::FOUND.at(rest.place, message, ""));
    }
}

fn first_of(names: &[&str]) -> String {
    let first = names.iter().take(NAMES_MAX).map(|name| format!("`{name}`"));
    let more = if names.len() > NAMES_MAX { " and more" } else { "" };
    format!("{}{more}", first.collect::<Vec<_>>().join(", "))
}
