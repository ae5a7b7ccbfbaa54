//! Rules about claims: fitting owners, and no process claimed twice.
//!
//! All are linear in the tenants except the overlap of patterns, which is quadratic in patterns with a
//! common beginning.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;

use super::nodes::Node;
use super::pattern::{self, has_wildcard};
use super::presence::Known;
use super::report::{Diagnostic, Report};
use super::rules;
use super::stays::has_user_slices;
use super::tree::Place;
use super::types::{OwnerChoice, RootChoice};
use super::values::{ALL_USERS, shown};

/// Most work for the overlap of patterns (see [`pattern::overlap`]); checking a larger policy would take
/// minutes. A thousand patterns that begin alike and end differently are within it.
const MOST_WORK: usize = 16_000_000;

#[derive(Clone, Copy)]
pub(super) struct Claim<'d> {
    pub(super) tenant: &'d str,
    pub(super) name: &'d str,
    pub(super) place: &'d Place,
}

pub(super) fn claims<'d>(
    node: &Node<'d>,
    key: &str,
    names: &'d [String],
) -> impl Iterator<Item = Claim<'d>> + use<'d> {
    let tenant = node.path;
    let places = node.given.items(key);
    names.iter().zip(places).map(move |(name, place)| Claim { tenant, name, place })
}

pub(super) fn owners(nodes: &[Node<'_>], report: &mut Report) {
    // Owner in force below each node, with the place that names it.
    let mut named: Vec<Option<(OwnerChoice, &Place)>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        let units: Vec<Claim<'_>> =
            claims(node, "match.unit", &node.tenant.matches.units).collect();
        let own = node.given.value("owner").map(|at| (node.tenant.owner, at));
        let own = own.filter(|(owner, _)| *owner != OwnerChoice::Auto);
        let above = node.parent.and_then(|parent| named[parent]);
        if let Some((owner, at)) = own {
            owner_and_match(node, owner, at, report);
            if let Some((_, above)) = above.filter(|(above, _)| *above != owner)
                && units.is_empty()
            {
                let message =
                    format!("the owner of `{}` differs from that of its group", node.path);
                let finding = rules::OWNER_CONTRADICTS.at(at, message, "");
                let help = "a group is one cgroup, and so is all below it: name the `owner` there";
                report.push(finding.also(above.label("the group's")).help(help));
            }
        }
        if let (Some(unit), Some(claim), false) =
            (units.first(), moved(node).next(), node.is_template())
        {
            let message = format!("`{}` is a unit, and claims no other processes", node.path);
            let finding =
                rules::CLAIMS_BESIDE_UNIT.at(claim.place, message, "these stay where they are");
            let help =
                "nothing is moved into systemd's cgroups: make a tenant of their own for them";
            report.push(finding.also(unit.place.label("the unit")).help(help));
        }
        named.push(own.or(above));
    }
}

/// Notes that processes are moved. On a machine with slices of users those of a user are not.
pub(super) fn moves(nodes: &[Node<'_>], has_slices: bool, report: &mut Report) {
    let mut first: Option<(&Node<'_>, Claim<'_>)> = None;
    let mut nr_tenants = 0;
    // The slices of users that a template finds are not known without the machine.
    let is_meant = |node: &&Node<'_>| !(node.tenant.is_group() || has_slices && node.is_template());
    for leaf in nodes.iter().filter(is_meant) {
        let matches = &leaf.tenant.matches;
        let names_none =
            matches.cgroups.is_empty() && matches.users.is_empty() && matches.groups.is_empty();
        let names_none = names_none && !leaf.is_template();
        if let (true, Some(at)) = (names_none, leaf.given.value("match.move")) {
            let message =
                format!("`{}` names no cgroup, user or group whose processes are moved", leaf.path);
            let finding = rules::MOVE_WITHOUT_CGROUP.at(at, message, "");
            report.push(finding.help("add the `cgroup`, `users` or `groups`, or drop `move`"));
        }
        let is_moved = matches.in_place().is_empty()
            && matches.units.is_empty()
            && leaf.tenant.owner != OwnerChoice::Systemd
            && !(has_slices && has_user_slices(leaf));
        if let Some(claim) = moved(leaf).next().filter(|_| is_moved) {
            nr_tenants += 1;
            first.get_or_insert((leaf, claim));
        }
    }
    let Some((leaf, claim)) = first else { return };
    let of_cgroup = !leaf.tenant.matches.cgroups.is_empty();
    let what = match (of_cgroup, has_slices) {
        (true, _) => "",
        (false, true) => " that are in no service and no session",
        (false, false) => ", outside of cgroups that other programs made,",
    };
    let whose = match shown(claim.name) {
        ALL_USERS => "all users".to_string(),
        name => format!("`{name}`"),
    };
    let mut message =
        format!("processes of {whose}{what} are moved into the cgroup of `{}`", leaf.path);
    if nr_tenants > 1 {
        message += &format!(" ({nr_tenants} tenants)");
    }
    let finding = rules::MOVED.at(claim.place, message, "");
    let help = "cgroups without users or groups beside them are weighed where they are; say `move: true` if \
                they are to be moved";
    let needs_help = of_cgroup && !leaf.tenant.matches.moves;
    report.push(if needs_help { finding.help(help) } else { finding });
}

/// Refuses a cgroup in place that contains the agent's root, if the policy names that root.
pub(super) fn agents_own(root: &RootChoice, leaves: &[Node<'_>], report: &mut Report) {
    let RootChoice::Path(root) = root else { return };
    for leaf in leaves {
        let in_place = leaf.tenant.matches.in_place().iter().zip(leaf.given.items("match.cgroup"));
        // Patterns are not resolved here.
        for (path, at) in in_place.filter(|(path, _)| root.starts_with(path)) {
            let message =
                format!("`{path}` holds the cgroup in which tenantd makes those of tenants");
            let help = "that is `host.root`: name a cgroup that is outside of it";
            report.push(rules::HOLDS_AGENT.at(at, message, "").help(help));
        }
    }
}

fn moved<'d>(node: &Node<'d>) -> impl Iterator<Item = Claim<'d>> {
    let matches = &node.tenant.matches;
    let of_cgroups =
        matches.in_place().is_empty().then(|| claims(node, "match.cgroup", &matches.cgroups));
    (of_cgroups.into_iter().flatten())
        .chain(claims(node, "match.users", &matches.users))
        .chain(claims(node, "match.groups", &matches.groups))
}

/// Refuses moves into systemd's cgroups, and units for the agent's own cgroups.
fn owner_and_match(node: &Node<'_>, owner: OwnerChoice, at: &Place, report: &mut Report) {
    let matches = &node.tenant.matches;
    let (claim, help) = match owner {
        _ if matches.is_rest => (rest(node), "what is left stays where it is: drop `owner`"),
        OwnerChoice::Direct => (
            claims(node, "match.unit", &matches.units).next(),
            "the cgroup of a unit is changed through systemd: drop `owner: direct`",
        ),
        _ => (
            claims(node, "match.groups", &matches.groups)
                .chain(claims(node, "match.users", &matches.users).skip(1))
                // Each user found by a template has one slice.
                .filter(|_| !node.is_template())
                .chain(claims(node, "match.cgroup", &matches.cgroups))
                .next(),
            "nothing is moved into systemd's cgroups: name a `unit`, or one user for the user's slice",
        ),
    };
    let Some(claim) = claim else { return };
    let message = format!("`{}` cannot have both this owner and this match", node.path);
    let finding = rules::OWNER_CONTRADICTS.at(at, message, "");
    report.push(finding.also(claim.place.label("matched by this")).help(help));
}

/// Refuses double claims; accounts are compared by number.
pub(super) fn overlapping_matches(leaves: &[Node<'_>], known: &Known<'_>, report: &mut Report) {
    let units = leaves.iter().flat_map(|n| claims(n, "match.unit", &n.tenant.matches.units));
    let units: Vec<Claim<'_>> = units.collect();
    nested_slices(&units, report);
    let cgroups = leaves.iter().flat_map(|n| claims(n, "match.cgroup", &n.tenant.matches.cgroups));
    let mut cgroups: Vec<Claim<'_>> = cgroups.collect();
    within_units(&units, &cgroups, known, report);
    let named = units.iter().copied().filter(|claim| !has_wildcard(claim.name));
    same_twice("unit", named, |name| known.unit(name), report);
    overlapping_patterns("unit", &mut units.clone(), report);
    let users = leaves.iter().flat_map(|n| claims(n, "match.users", &n.tenant.matches.users));
    same_twice("user", users, |name| known.user(name), report);
    let groups = leaves.iter().flat_map(|n| claims(n, "match.groups", &n.tenant.matches.groups));
    same_twice("group", groups, |name| known.group(name), report);
    overlapping_patterns("cgroup", &mut cgroups, report);
    same_twice("match", leaves.iter().filter_map(rest), Cow::Borrowed, report);
}

/// Claim on all processes without another claim.
pub(super) fn rest<'d>(node: &Node<'d>) -> Option<Claim<'d>> {
    let place = node.given.value("match").filter(|_| node.tenant.matches.is_rest)?;
    Some(Claim { tenant: node.path, name: "rest", place })
}

pub(super) fn same_twice<'d>(
    what: &str,
    claims: impl Iterator<Item = Claim<'d>>,
    identity: impl Fn(&'d str) -> Cow<'d, str>,
    report: &mut Report,
) {
    let mut first: HashMap<Cow<'d, str>, Claim<'_>> = HashMap::new();
    for claim in claims {
        match first.entry(identity(claim.name)) {
            MapEntry::Occupied(entry) => {
                let earlier = *entry.get();
                let mut message = format!("{what} `{}`", shown(claim.name));
                if claim.name != earlier.name {
                    message += &format!(", the same as `{}`,", shown(earlier.name));
                }
                report.push(claimed_twice(&message, earlier, claim));
            }
            MapEntry::Vacant(entry) => {
                entry.insert(claim);
            }
        }
    }
}

/// The slice `a-b.slice` lies within `a.slice` (systemd.slice(5)).
fn nested_slices(units: &[Claim<'_>], report: &mut Report) {
    let slices: HashMap<&str, &Claim<'_>> =
        units.iter().filter_map(|unit| Some((unit.name.strip_suffix(".slice")?, unit))).collect();
    for (name, inner) in units.iter().filter_map(|it| Some((it.name.strip_suffix(".slice")?, it))) {
        let above = name.match_indices('-').filter_map(|(dash, _)| slices.get(&name[..dash]));
        for outer in above {
            let what = format!("`{}`, which lies within `{}`,", inner.name, outer.name);
            report.push(claimed_twice(&what, **outer, *inner));
        }
    }
}

/// Finds paths within a unit, by the unit's name in the path.
fn within_units(
    units: &[Claim<'_>],
    cgroups: &[Claim<'_>],
    known: &Known<'_>,
    report: &mut Report,
) {
    let units: HashMap<Cow<'_, str>, &Claim<'_>> =
        units.iter().map(|unit| (known.unit(unit.name), unit)).collect();
    for cgroup in cgroups.iter().filter(|_| !units.is_empty()) {
        let unit = cgroup.name.split('/').find_map(|name| units.get(&known.unit(name)));
        if let Some(unit) = unit.filter(|unit| unit.tenant != cgroup.tenant) {
            let what = format!("`{}`, which lies within `{}`,", cgroup.name, unit.name);
            report.push(claimed_twice(&what, **unit, *cgroup));
        }
    }
}

/// Finds overlapping patterns. Sorted by their literal prefixes, two patterns can meet only if one prefix
/// begins the other: each is compared with the run that follows it.
pub(super) fn overlapping_patterns(what: &str, claims: &mut [Claim<'_>], report: &mut Report) {
    overlapping_among(what, claims, |_, _| true, report);
}

/// The same for those pairs that may overlap otherwise.
pub(super) fn overlapping_among(
    what: &str,
    claims: &mut [Claim<'_>],
    may_overlap: impl Fn(&Claim<'_>, &Claim<'_>) -> bool,
    report: &mut Report,
) {
    claims.sort_by_key(|claim| pattern::literal_prefix(claim.name));
    let mut work = 0;
    for (index, &earlier) in claims.iter().enumerate() {
        let prefix = pattern::literal_prefix(earlier.name);
        for &later in &claims[index + 1..] {
            let other = pattern::literal_prefix(later.name);
            if !other.starts_with(prefix) {
                break;
            }
            let both = pattern::overlap(earlier.name, later.name, &mut work);
            if work > MOST_WORK {
                let message = format!("too many {what} patterns share a prefix to be compared");
                let finding = rules::TOO_MANY_PATTERNS.at(earlier.place, message, "");
                report.push(finding.help("put the name that differs before the first `*` or `?`"));
                return;
            }
            let is_here = matches!(what, "cgroup" | "label")
                || [earlier, later].iter().any(|it| has_wildcard(it.name));
            if both && is_here && may_overlap(&earlier, &later) {
                report.push(overlapping_pair(what, earlier, later));
            }
            if report.is_full() {
                return;
            }
        }
    }
}

fn overlapping_pair(what: &str, a: Claim<'_>, b: Claim<'_>) -> Diagnostic {
    let place = |claim: &Claim<'_>| (claim.place.source.name().to_string(), claim.place.span.start);
    let (first, second) = if place(&a) <= place(&b) { (a, b) } else { (b, a) };
    let message = if a.name == b.name {
        format!("{what} `{}`", a.name)
    } else {
        format!("what is in both `{}` and `{}`", first.name, second.name)
    };
    claimed_twice(&message, first, second)
}

pub(super) fn claimed_twice(what: &str, first: Claim<'_>, second: Claim<'_>) -> Diagnostic {
    let message = if first.tenant == second.tenant {
        format!("{what} is claimed twice by `{}`", first.tenant)
    } else {
        format!("{what} is claimed by both `{}` and `{}`", first.tenant, second.tenant)
    };
    rules::OVERLAPPING_MATCH
        .at(second.place, message, "again here")
        .also(first.place.label("first here"))
        .help("a process belongs to one tenant: remove it from one of them")
}
