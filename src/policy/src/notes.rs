//! Notes: valid values that probably mean something else than intended, or have no effect on this machine.
//!
//! Only a person who checks a policy gets them, and not for a policy with errors, because they would stand before the
//! errors. Each kind is one finding, at its first place and with the number of the others.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::claims::{Claim, claims};
use super::facts::{HostFacts, Systemd};
use super::hint::shortened;
use super::nodes::Node;
use super::pod_claims;
use super::presence::Known;
use super::read::Draft;
use super::report::{Report, Source};
use super::rules::{self, Rule};
use super::tree::{self, Kind, Place};
use super::types::{HierarchyChoice, OwnerChoice};
use super::values::shown;
use tenantd_core::resource::{CPU, Resource};
use tenantd_core::units::Weight;

/// A tenant without a weight is noted if its siblings have at most this part of the default.
const SMALL: f64 = 0.1;

/// Notes about a policy, and about it on a machine.
pub(super) fn check(
    draft: &Draft,
    nodes: &[Node<'_>],
    known: &Known<'_>,
    host: Option<&HostFacts>,
    report: &mut Report,
) {
    default_weights(nodes, report);
    keys_without_values(nodes, report);
    limited_writes(nodes, report);
    pod_claims::note_order(nodes, report);
    if !closed_tenants(nodes, report) {
        no_submitter(draft, nodes, report);
    }
    if let Some(host) = host {
        Resource::ALL.iter().for_each(|r| limits_beyond_machine(nodes, *r, host, report));
        units_without_systemd(draft, nodes, host, report);
        devices(draft, host, report);
        claimed_through_groups(nodes, known, host, report);
    }
}

/// Cgroups of systemd for a policy on a machine.
pub(super) fn systemd_of(draft: &Draft, host: &HostFacts) -> Systemd {
    match (draft.policy.host.hierarchy, host.systemd) {
        (HierarchyChoice::Simulated, _) => Systemd::Unknown,
        (HierarchyChoice::Legacy, Systemd::Unified) => Systemd::Legacy,
        (_, systemd) => systemd,
    }
}

/// Adds one finding for all `found`, at the first of them.
pub(super) fn note(
    rule: &Rule,
    found: &[(&Place, String)],
    help: impl Into<String>,
    report: &mut Report,
) -> bool {
    let Some((place, message)) = found.first() else { return false };
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    report.push(rule.at(place, format!("{message}{more}"), "").help(help));
    true
}

fn default_weights(nodes: &[Node<'_>], report: &mut Report) {
    let mut groups: BTreeMap<Option<usize>, Vec<&Node<'_>>> = BTreeMap::new();
    for node in nodes {
        groups.entry(node.parent).or_default().push(node);
    }
    for siblings in groups.into_values() {
        let weight = |node: &&Node<'_>| node.tenant.weight[CPU].get();
        let (given, left_out): (Vec<&Node<'_>>, Vec<&Node<'_>>) =
            siblings.into_iter().partition(|node| node.given.key("weight").is_some());
        let largest = given.iter().map(weight).fold(0.0, f64::max);
        let default = Weight::default().get();
        let (Some(first), true) = (left_out.first(), largest > 0.0 && largest <= SMALL * default)
        else {
            continue;
        };
        let of_given: f64 = given.iter().map(weight).sum();
        let theirs = default * left_out.len() as f64;
        let percent = (100.0 * theirs / (theirs + of_given)).floor();
        let (have, get) = match left_out.len() {
            1 => ("has".to_string(), "it gets"),
            2 => ("and 1 other have".to_string(), "they get"),
            nr => (format!("and {} others have", nr - 1), "they get"),
        };
        let message = format!(
            "`{}` {have} the default weight, {default}, beside siblings of at most {largest}: {get} {percent} % \
             while all are busy",
            first.path
        );
        let help = format!("write its weight as well, such as `weight: {largest}`");
        report.push(rules::DEFAULT_WEIGHT.at(first.at, message, "").help(help));
    }
}

fn keys_without_values(nodes: &[Node<'_>], report: &mut Report) {
    let mut found = Vec::new();
    for node in nodes {
        for key in ["weight", "guarantee", "limit", "dop", "allow", "jobs"] {
            let is_nothing = |place: &Place| {
                let text = place.source.text().get(place.span.clone()).unwrap_or_default();
                matches!(text.trim(), "" | "~" | "null" | "Null" | "NULL")
            };
            let at = node.given.key(key).filter(|_| node.given.value(key).is_some_and(is_nothing));
            let message =
                || format!("`{key}` of `{}` has no value: the default is in force", node.path);
            found.extend(at.map(|at| (at, message())));
        }
    }
    note(&rules::NO_VALUE, &found, "give it a value, or remove the key", report);
}

/// Notes limits of writes: the kernel delays the journal and metadata of a file system behind them, too.
fn limited_writes(nodes: &[Node<'_>], report: &mut Report) {
    let found = nodes.iter().filter_map(|node| {
        let (rate, _) = node.tenant.limit.disk.limits().find(|(rate, _)| rate.is_write())?;
        let place = node.given.key(&format!("limit.disk.{}", rate.name()))?;
        let message = format!(
            "writes of `{}` to disks are limited: others may wait while its part of a file system's journal does",
            node.path
        );
        Some((place, message))
    });
    let found: Vec<(&Place, String)> = found.collect();
    let help = "limit reads alone where that suffices, or give the tenant a file system of its own; buffered writes are \
                limited only in cgroup v2, on file systems such as ext4, xfs and btrfs";
    note(&rules::LIMITED_WRITES, &found, help, report);
}

/// A node and its groups, the innermost first.
fn upwards<'n, 'd>(
    nodes: &'n [Node<'d>],
    node: &'n Node<'d>,
) -> impl Iterator<Item = &'n Node<'d>> {
    std::iter::successors(Some(node), |below| nodes.get(below.parent?))
}

/// True if users may put work into a tenant: `allow` of a group is that of its tenants.
fn is_open(nodes: &[Node<'_>], node: &Node<'_>) -> bool {
    upwards(nodes, node).any(|node| {
        let allow = &node.tenant.allow;
        !allow.users.is_empty() || !allow.groups.is_empty()
    })
}

/// True if the cgroup of a tenant is a slice of systemd, in which units can be started.
fn is_slice(nodes: &[Node<'_>], node: &Node<'_>) -> bool {
    let mut owners = upwards(nodes, node).map(|node| node.tenant.owner);
    owners.find(|owner| *owner != OwnerChoice::Auto) == Some(OwnerChoice::Systemd)
}

/// Notes tenants that nothing can enter; returns true if there is one.
fn closed_tenants(nodes: &[Node<'_>], report: &mut Report) -> bool {
    let is_closed = |node: &&Node<'_>| {
        !node.tenant.is_group()
            && !node.is_template()
            && node.tenant.matches.is_empty()
            && !is_slice(nodes, node)
            && !is_open(nodes, node)
    };
    let message = |node: &Node<'_>| {
        format!(
            "nothing can enter `{}`: it has no `match`, and no user may submit jobs to it, except root and administrators",
            node.path
        )
    };
    let closed = nodes.iter().filter(is_closed);
    let found: Vec<(&Place, String)> = closed.map(|node| (node.at, message(node))).collect();
    let help = "add a `match`, as in `match: { users: [ana] }`, or `allow: { users: [ana] }`; root can use \
                `tenantctl attach`";
    note(&rules::CLOSED, &found, help, report)
}

fn no_submitter(draft: &Draft, nodes: &[Node<'_>], report: &mut Report) {
    let has_owners = |node: &Node<'_>| {
        let matches = &node.tenant.matches;
        !matches.users.is_empty() || !matches.groups.is_empty()
    };
    let Some(place) = draft.given.key("tenants") else { return };
    if nodes.iter().any(|node| has_owners(node) || is_open(nodes, node)) {
        return;
    }
    let message =
        "no user may submit jobs (`tenantctl run`) to any tenant, except root and administrators";
    let help = "if users should, add `allow: { users: [ana], groups: [staff] }` to a tenant";
    report.push(rules::NO_SUBMITTER.at(place, message, "").help(help));
}

fn devices(draft: &Draft, host: &HostFacts, report: &mut Report) {
    let given = &draft.given;
    let at = given.value("host.resources").or_else(|| given.key("host.resources"));
    let with_devices = || draft.policy.host.resources.iter().filter(|it| !it.devices.is_empty());
    let (Some(at), Some(first)) = (at, with_devices().next()) else { return };
    let mut missing = Vec::new();
    for counted in with_devices() {
        let devices = (0..counted.count).flat_map(|index| counted.devices_of(index));
        missing.extend(devices.filter(|path| !(host.has_device)(path)).map(|path| {
            (at, format!("this machine has no device {} of `{}`", path.display(), counted.name))
        }));
    }
    let help =
        "a job that gets its index finds no device until there is one; check `count` and `devices`";
    note(&rules::NO_DEVICE, &missing, help, report);
    if systemd_of(draft, host) != Systemd::Unified && !host.has_devices_tree {
        let message =
            format!("devices of `{}` stay open to jobs that have other units", first.name);
        let help = "this machine has neither systemd with cgroup v2 nor the devices controller of cgroup v1; jobs \
                    find their indices in the variables of `env`";
        note(&rules::OPEN_DEVICES, &[(at, message)], help, report);
    }
}

fn limits_beyond_machine(
    nodes: &[Node<'_>],
    resource: Resource,
    host: &HostFacts,
    report: &mut Report,
) {
    let capacity = host.capacity(resource);
    let found = nodes.iter().filter_map(|node| {
        let limit = node.limit[resource].filter(|limit| *limit > capacity)?;
        let message = format!(
            "the {} limit of `{}`, {}, is more than the machine has, {}: it limits nothing",
            resource.title(),
            node.path,
            resource.exact(limit),
            resource.exact(capacity)
        );
        Some((node.given.amount("limit", resource)?, message))
    });
    let found: Vec<(&Place, String)> = found.collect();
    let help = format!(
        "lower it, or write a percentage, which follows the machine: `limit: {{ {}: 50% }}`",
        resource.name()
    );
    note(&rules::LIMIT_BEYOND_MACHINE, &found, help, report);
}

fn units_without_systemd(draft: &Draft, nodes: &[Node<'_>], host: &HostFacts, report: &mut Report) {
    let (why, help) = match systemd_of(draft, host) {
        Systemd::Legacy => (
            "this machine has no unified hierarchy, in which units can be tenants",
            "boot with systemd.unified_cgroup_hierarchy=1, or name its cgroup, as in `match: { cgroup: \
             /system.slice/nginx.service }` with `owner: direct`",
        ),
        Systemd::Absent => (
            "systemd does not run this machine",
            "name a `cgroup`, `users` or `groups` in its `match`",
        ),
        Systemd::Unknown | Systemd::Unified => return,
    };
    let found = nodes.iter().filter_map(|node| {
        let owner = node.given.value("owner");
        let owner = owner.filter(|_| node.tenant.owner == OwnerChoice::Systemd);
        let place = node.given.value("match.unit").or(owner)?;
        Some((place, format!("`{}` is a unit of systemd, and has no effect: {why}", node.path)))
    });
    note(&rules::NO_UNITS, &found.collect::<Vec<_>>(), help, report);
}

/// Notes users with two tenants: one by name, the other through a group.
fn claimed_through_groups(
    nodes: &[Node<'_>],
    known: &Known<'_>,
    host: &HostFacts,
    report: &mut Report,
) {
    let leaves = || nodes.iter().enumerate().filter(|(_, node)| !node.is_template());
    let mut of_groups: HashMap<u32, (usize, Claim<'_>)> = HashMap::new();
    let mut of_users: BTreeMap<u32, (usize, Claim<'_>)> = BTreeMap::new();
    let number = |text: &str| text.parse::<u32>().ok();
    for (index, node) in leaves() {
        for claim in claims(node, "match.groups", &node.tenant.matches.groups) {
            let number = number(&known.group(claim.name));
            number.map(|gid| of_groups.entry(gid).or_insert((index, claim)));
        }
        for claim in claims(node, "match.users", &node.tenant.matches.users) {
            let number = number(&known.user(claim.name));
            number.map(|uid| of_users.entry(uid).or_insert((index, claim)));
        }
    }
    let mut found: Vec<(&Place, String)> = Vec::new();
    for (uid, (index, by_name)) in &of_users {
        if of_groups.is_empty() {
            break;
        }
        let groups = (host.groups_of)(*uid).unwrap_or_default();
        let others = groups.iter().filter_map(|gid| of_groups.get(gid));
        if let Some((other, through)) = others.into_iter().find(|(other, _)| other != index) {
            let first = if index < other { by_name } else { through };
            let message = format!(
                "user `{}` is claimed by `{}`, and by `{}` through the group `{}`: `{}`, the first in the policy, gets \
                 the processes",
                shown(by_name.name),
                by_name.tenant,
                through.tenant,
                shown(through.name),
                first.tenant
            );
            found.push((through.place, message));
        }
    }
    let help = "name the user in one tenant alone, or put the tenant that is meant first";
    note(&rules::CLAIMED_TWICE, &found, help, report);
}

/// Notes about single values, whatever their keys: digits that other programs read as an octal number.
pub(super) fn of_values(source: &Arc<Source>, node: &tree::Node, report: &mut Report) {
    match &node.kind {
        Kind::Null => {}
        Kind::List(items) => items.iter().for_each(|item| of_values(source, item, report)),
        Kind::Map(entries) => {
            entries.iter().for_each(|entry| of_values(source, &entry.value, report));
        }
        Kind::Scalar { text, plain } => {
            let digits = text.strip_prefix('0').filter(|rest| {
                *plain && !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit())
            });
            let Some(digits) = digits else { return };
            if report.is_full() {
                return report.leave_out();
            }
            let place = Place { source: Arc::clone(source), span: node.span() };
            let message = format!("`{}` is decimal here, not an octal number", shortened(text));
            let decimal = Some(digits.trim_start_matches('0')).filter(|it| !it.is_empty());
            let help =
                format!("write `{}`, or quotes if it is a name", shortened(decimal.unwrap_or("0")));
            report.push(rules::LEADING_ZERO.at(&place, message, "").help(help));
        }
    }
}
