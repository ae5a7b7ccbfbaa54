//! The rules that look at more than one value: at siblings, at the whole tree, at the machine.
//!
//! **Problem.** Each value may be right and the policy still wrong: guarantees that no machine can keep
//! together, a limit below what was promised, one process claimed by two tenants. **Properties.** Every rule
//! is tried whatever the others found; each has a fixture with the exact report (`tests/policy.rs`). Rules
//! about the machine are tried only where its facts are given. All are linear in the tenants but for the
//! overlap of patterns, which is quadratic in patterns that begin alike.

use std::collections::{HashMap, HashSet};

use super::draft::{BoundDraft, Draft, TenantDraft, all, leaves};
use super::facts::HostFacts;
use super::model::{CpusPolicy, DopPolicy, OwnerChoice};
use super::pattern;
use super::report::{Diagnostic, Label, Report};
use super::rules::{self, NOT_YET_EFFECTIVE_KEYS};
use super::stays;
use super::tree::{At, Place};
use crate::units::{Bytes, MilliCpus};

/// Places named in one finding; more would bury the first.
const MOST_PLACES: usize = 4;

/// Work spent on telling patterns apart (see [`pattern::overlap`]); a policy that needs more is refused,
/// lest a check take minutes. A thousand patterns that begin alike and end differently are within it.
const MOST_WORK: usize = 16_000_000;

/// What a tenant claims, and where it says so.
type Claim<'a> = (&'a TenantDraft, &'a At<String>);

/// Tries every rule that concerns the policy alone.
pub(super) fn check(draft: &Draft, report: &mut Report) {
    for tenant in all(&draft.tenants) {
        limit_below_guarantee(tenant, report);
        group_limit(tenant, report);
        dop_beyond_limit(tenant, report);
    }
    let leaves = leaves(&draft.tenants);
    cpus_overlap(&leaves, report);
    overlapping_matches(&leaves, report);
    draft.tenants.iter().for_each(|tenant| owners(tenant, None, report));
    not_yet_effective(draft, report);
}

/// Tries every rule that concerns the policy on this machine.
pub(super) fn check_host(draft: &Draft, host: &HostFacts, report: &mut Report) {
    let leaves = leaves(&draft.tenants);
    reserve_beyond_capacity(draft, host, report);
    guarantees_beyond_capacity(draft, &leaves, host, report);
    for leaf in &leaves {
        dop_beyond_slots(draft, leaf, host, report);
        no_such_cpu(leaf, host, report);
    }
    unknown_accounts(draft, host, report);
    stays::check(draft, host, report);
}

/// A resource that tenants are promised and limited in, so that each rule is written once.
struct Resource {
    name: &'static str,
    /// The amount in the resource's own unit, and its place.
    of: fn(&BoundDraft) -> Option<(u64, &Place)>,
    /// What the machine has.
    capacity: fn(&HostFacts) -> u64,
    /// An amount as a person reads it.
    show: fn(u64) -> String,
}

const RESOURCES: [Resource; 2] = [
    Resource {
        name: "CPU",
        of: |bound| bound.cpu.as_ref().map(|at| (at.value.0, &at.place)),
        capacity: |host| host.cpu_capacity().0,
        show: |milli| match milli {
            1000 => "1 CPU".into(),
            _ => format!("{} CPUs", MilliCpus(milli).cores()),
        },
    },
    Resource {
        name: "memory",
        of: |bound| bound.memory.as_ref().map(|at| (at.value.0, &at.place)),
        capacity: |host| host.memory.0,
        show: |bytes| match Bytes(bytes).to_string() {
            exact if exact.len() <= 8 => exact,
            _ => Bytes(bytes).rounded(),
        },
    },
];

fn limit_below_guarantee(tenant: &TenantDraft, report: &mut Report) {
    for resource in &RESOURCES {
        let (limit, guarantee) = ((resource.of)(&tenant.limit), (resource.of)(&tenant.guarantee));
        let (Some((limit, at)), Some((guarantee, promised_at))) = (limit, guarantee) else {
            continue;
        };
        if limit < guarantee {
            let message =
                format!("the {} limit of `{}` is below its guarantee", resource.name, tenant.path);
            let finding = rules::LIMIT_BELOW_GUARANTEE.at(at, message, "never more than this");
            let promise = format!("{} are promised", (resource.show)(guarantee));
            report.push(
                finding
                    .also(promised_at.label(promise))
                    .help("raise the limit or lower the guarantee"),
            );
        }
    }
}

/// What the leaves below are guaranteed must fit under the limit of each group above them.
fn group_limit(group: &TenantDraft, report: &mut Report) {
    if !group.is_group() {
        return;
    }
    for resource in &RESOURCES {
        let Some((limit, at)) = (resource.of)(&group.limit) else { continue };
        let promises = Promises::of(&leaves(&group.tenants), resource);
        if promises.sum > limit {
            let message = format!(
                "guarantees of {} below `{}` exceed its limit",
                (resource.show)(promises.sum),
                group.path
            );
            let label = format!("never more than {}", (resource.show)(limit));
            let mut finding = rules::GROUP_LIMIT.at(at, message, label);
            finding.labels.extend(promises.largest(MOST_PLACES));
            report.push(finding.help("raise the limit or lower the guarantees"));
        }
    }
}

/// What some leaves are guaranteed of one resource.
struct Promises<'a> {
    resource: &'a Resource,
    sum: u64,
    /// Largest first.
    each: Vec<(u64, &'a Place, &'a str)>,
}

impl<'a> Promises<'a> {
    fn of(leaves: &[&'a TenantDraft], resource: &'a Resource) -> Self {
        let promise = |leaf: &&'a TenantDraft| {
            let (amount, place) = (resource.of)(&leaf.guarantee)?;
            Some((amount, place, leaf.path.as_str()))
        };
        let mut each: Vec<_> = leaves.iter().filter_map(promise).collect();
        each.sort_by_key(|(amount, ..)| std::cmp::Reverse(*amount));
        let sum = each.iter().fold(0_u64, |sum, (amount, ..)| sum.saturating_add(*amount));
        Promises { resource, sum, each }
    }

    fn largest(&self, count: usize) -> Vec<Label> {
        let show = self.resource.show;
        let label = |(amount, place, path): &(u64, &Place, &str)| {
            place.label(format!("{} to `{path}`", show(*amount)))
        };
        self.each.iter().take(count).map(label).collect()
    }
}

fn dop_beyond_limit(tenant: &TenantDraft, report: &mut Report) {
    let Some((width, dop)) = manual_dop(tenant) else { return };
    let Some(limit) = &tenant.limit.cpu else { return };
    // Half a CPU more than four still lets five threads run, each a little slower.
    let whole_cpus = limit.value.0.div_ceil(1000);
    if u64::from(width) > whole_cpus {
        let message = format!(
            "`{}` runs {width} CPUs wide and may use only {}",
            tenant.path,
            limit.value.cores()
        );
        let finding = rules::DOP_BEYOND_LIMIT.at(&dop.place, message, format!("{width} wide"));
        let limit = limit.place.label(format!("the limit is {}", limit.value));
        report.push(finding.also(limit).help("raise the limit or lower the DOP"));
    }
}

fn manual_dop(tenant: &TenantDraft) -> Option<(u32, &At<DopPolicy>)> {
    match tenant.dop.as_ref() {
        Some(dop @ At { value: DopPolicy::Manual(width), .. }) => Some((*width, dop)),
        _ => None,
    }
}

fn fixed_cpus(tenant: &TenantDraft) -> Option<(&[u32], &Place)> {
    match tenant.cpus.as_ref() {
        Some(At { value: CpusPolicy::Fixed(cpus), place }) => Some((cpus, place)),
        _ => None,
    }
}

/// A fixed set is its tenant's own: two that share a CPU would compete there and nowhere else.
fn cpus_overlap(leaves: &[&TenantDraft], report: &mut Report) {
    let mut owners: HashMap<u32, (&TenantDraft, &Place)> = HashMap::new();
    for &leaf in leaves {
        let Some((cpus, place)) = fixed_cpus(leaf) else { continue };
        // One finding for each pair would repeat itself: the first shared CPU says enough.
        if let Some((cpu, (owner, first))) =
            cpus.iter().find_map(|cpu| owners.get(cpu).map(|owner| (cpu, *owner)))
        {
            let message =
                format!("CPU {cpu} is given to both `{}` and `{}`", owner.path, leaf.path);
            let finding = rules::CPUS_OVERLAP.at(place, message, "given again here");
            report.push(
                finding
                    .also(first.label("first given here"))
                    .help("give each its own CPUs, or leave the choice to `cpus: dop`"),
            );
        }
        for cpu in cpus {
            owners.entry(*cpu).or_insert((leaf, place));
        }
        if report.is_full() {
            return;
        }
    }
}

/// Whether each tenant can have the owner it says, and the cgroup it is given.
fn owners<'a>(tenant: &'a TenantDraft, above: Option<&'a At<OwnerChoice>>, report: &mut Report) {
    let said = tenant.owner.as_ref().filter(|owner| owner.value != OwnerChoice::Auto);
    if let [first, second, ..] = &tenant.matches.units[..] {
        let message = format!("`{}` is more than one unit", tenant.path);
        let finding = rules::SEVERAL_UNITS.at(&second.place, message, "one too many");
        report.push(
            finding.also(first.place.label("the first")).help(
                "a unit is one cgroup: put the units into a slice of their own and name that",
            ),
        );
    }
    if let Some(owner) = said {
        owner_and_match(tenant, owner, report);
        if let Some(above) = above.filter(|above| above.value != owner.value)
            && tenant.matches.units.is_empty()
        {
            let message = format!("`{}` has another owner than its group", tenant.path);
            let finding = rules::OWNER_CONTRADICTS.at(&owner.place, message, "");
            report.push(
                finding
                    .also(above.place.label("the group's"))
                    .help("a group is one cgroup, and so is all below it: say `owner` there"),
            );
        }
    }
    claims_beside_unit(tenant, report);
    tenant.tenants.iter().for_each(|below| owners(below, said.or(above), report));
}

/// Systemd's cgroups take no processes from us, and ours are no units.
fn owner_and_match(tenant: &TenantDraft, owner: &At<OwnerChoice>, report: &mut Report) {
    let matches = &tenant.matches;
    let (claim, help) = match owner.value {
        OwnerChoice::Direct => (
            matches.units.first(),
            "what a unit's cgroup holds is changed through systemd: drop `owner: direct`",
        ),
        _ => {
            let further_users = matches.users.get(1);
            let moved = matches.cgroups.first().or(matches.groups.first()).or(further_users);
            (
                moved,
                "nothing is moved into systemd's cgroups: name a `unit`, or one of `users` for his slice",
            )
        }
    };
    let Some(claim) = claim else { return };
    let message = format!("`{}` cannot be matched by this and have this owner", tenant.path);
    let finding = rules::OWNER_CONTRADICTS.at(&owner.place, message, "");
    report.push(finding.also(claim.place.label("matched by this")).help(help));
}

fn claims_beside_unit(tenant: &TenantDraft, report: &mut Report) {
    let matches = &tenant.matches;
    let Some(unit) = matches.units.first() else { return };
    let claims = matches.cgroups.iter().chain(&matches.users).chain(&matches.groups);
    for claim in claims.take(1) {
        let message = format!("`{}` is a unit, and claims no other processes", tenant.path);
        let finding =
            rules::CLAIMS_BESIDE_UNIT.at(&claim.place, message, "these stay where they are");
        report.push(
            finding
                .also(unit.place.label("the unit"))
                .help("nothing is moved into systemd's cgroups: give them a tenant of their own"),
        );
    }
}

fn overlapping_matches(leaves: &[&TenantDraft], report: &mut Report) {
    let of = |pick: fn(&TenantDraft) -> &[At<String>]| {
        leaves.iter().flat_map(move |leaf| pick(leaf).iter().map(|at| (*leaf, at)))
    };
    same_twice("unit", of(|leaf| &leaf.matches.units), report);
    same_twice("user", of(|leaf| &leaf.matches.users), report);
    same_twice("group", of(|leaf| &leaf.matches.groups), report);
    let mut cgroups: Vec<Claim<'_>> = of(|leaf| &leaf.matches.cgroups).collect();
    overlapping_patterns(&mut cgroups, report);
}

fn same_twice<'a>(what: &str, claims: impl Iterator<Item = Claim<'a>>, report: &mut Report) {
    let mut first: HashMap<&str, Claim<'_>> = HashMap::new();
    for claim @ (_, name) in claims {
        match first.get(name.value.as_str()) {
            Some(earlier) => {
                let message = format!("{what} `{}`", name.value);
                report.push(claimed_twice(&message, *earlier, claim));
            }
            None => {
                first.insert(&name.value, claim);
            }
        }
    }
}

/// Sorted by what stands before the first wildcard, two patterns can meet only while the first one's
/// literal part begins the other's: each is compared with the run that follows it.
fn overlapping_patterns(claims: &mut [Claim<'_>], report: &mut Report) {
    claims.sort_by_key(|(_, pattern)| pattern::literal_prefix(&pattern.value));
    let mut work = 0;
    for (index, &earlier) in claims.iter().enumerate() {
        let prefix = pattern::literal_prefix(&earlier.1.value);
        for &later in &claims[index + 1..] {
            let other = pattern::literal_prefix(&later.1.value);
            if !other.starts_with(prefix) {
                break;
            }
            let both = pattern::overlap(&earlier.1.value, &later.1.value, &mut work);
            if work > MOST_WORK {
                let message = "too many cgroup patterns begin alike to be told apart";
                let finding = rules::TOO_MANY_PATTERNS.at(&earlier.1.place, message, "");
                report.push(finding.help("put the name that differs before the first `*` or `?`"));
                return;
            }
            if both {
                report.push(overlapping_pair(earlier, later));
            }
            if report.is_full() {
                return;
            }
        }
    }
}

fn overlapping_pair(a: Claim<'_>, b: Claim<'_>) -> Diagnostic {
    let (first, second) = match is_before(&a.1.place, &b.1.place) {
        true => (a, b),
        false => (b, a),
    };
    let message = match a.1.value == b.1.value {
        true => format!("cgroup `{}`", a.1.value),
        false => format!("what is in both `{}` and `{}`", first.1.value, second.1.value),
    };
    claimed_twice(&message, first, second)
}

fn is_before(a: &Place, b: &Place) -> bool {
    (a.source.name(), a.span.start) <= (b.source.name(), b.span.start)
}

fn claimed_twice(
    what: &str,
    (first, earlier): Claim<'_>,
    (second, later): Claim<'_>,
) -> Diagnostic {
    let message = match first.path == second.path {
        true => format!("{what} is claimed twice by `{}`", first.path),
        false => format!("{what} is claimed by both `{}` and `{}`", first.path, second.path),
    };
    rules::OVERLAPPING_MATCH
        .at(&later.place, message, "again here")
        .also(earlier.place.label("first here"))
        .help("a process belongs to one tenant: drop one of the two")
}

fn not_yet_effective(draft: &Draft, report: &mut Report) {
    for (not_yet, places) in NOT_YET_EFFECTIVE_KEYS.iter().zip(&draft.not_yet) {
        let Some((first, further)) = places.split_first() else { continue };
        let key = not_yet.key.trim_start_matches("policy.");
        let mut message = format!("`{key}` is read and checked, and has no effect yet");
        if !further.is_empty() {
            message += &format!(" ({} places)", places.len());
        }
        report.push(rules::NOT_YET_EFFECTIVE.at(first, message, ""));
    }
}

fn reserve_beyond_capacity(draft: &Draft, host: &HostFacts, report: &mut Report) {
    for resource in &RESOURCES {
        let Some((reserve, place)) = (resource.of)(&draft.reserve) else { continue };
        let capacity = (resource.capacity)(host);
        if reserve >= capacity {
            let message = format!("the reserve leaves the tenants no {}", resource.name);
            let label = format!("this machine has {}", (resource.show)(capacity));
            let finding = rules::RESERVE_BEYOND_CAPACITY.at(place, message, label);
            report.push(finding.help("the reserve is what the system itself needs: say less"));
        }
    }
}

/// What the tenants can have of a resource: the machine less the reserve.
fn allocatable(draft: &Draft, host: &HostFacts, resource: &Resource) -> u64 {
    let reserve = (resource.of)(&draft.reserve).map_or(0, |(amount, _)| amount);
    (resource.capacity)(host).saturating_sub(reserve)
}

fn guarantees_beyond_capacity(
    draft: &Draft,
    leaves: &[&TenantDraft],
    host: &HostFacts,
    report: &mut Report,
) {
    for resource in &RESOURCES {
        let promises = Promises::of(leaves, resource);
        let available = allocatable(draft, host, resource);
        if promises.sum > available {
            let message = format!(
                "{} are guaranteed, and the tenants of this machine can have {}",
                (resource.show)(promises.sum),
                (resource.show)(available)
            );
            let labels = promises.largest(MOST_PLACES);
            let Some(first) = labels.first() else { continue };
            let mut finding = rules::GUARANTEE_BEYOND_CAPACITY.about(&first.source, message);
            finding.labels = labels;
            report.push(finding.help(
                "a guarantee is what a tenant gets whenever it wants it; for a larger share while \
                 others are busy, raise its weight",
            ));
        }
    }
}

fn dop_beyond_slots(draft: &Draft, leaf: &TenantDraft, host: &HostFacts, report: &mut Report) {
    let Some((width, dop)) = manual_dop(leaf) else { return };
    let cpus = MilliCpus(allocatable(draft, host, &RESOURCES[0])).cores();
    let slots = (cpus * draft.control.oversubscription).floor();
    if f64::from(width) > slots {
        let message =
            format!("`{}` is {width} wide, and this machine has {slots} slots", leaf.path);
        let finding = rules::DOP_BEYOND_SLOTS.at(&dop.place, message, "");
        report.push(
            finding.help("slots are the CPUs less the reserve, times `control.oversubscription`"),
        );
    }
}

fn no_such_cpu(leaf: &TenantDraft, host: &HostFacts, report: &mut Report) {
    let Some((cpus, place)) = fixed_cpus(leaf) else { return };
    if let Some(cpu) = cpus.iter().find(|cpu| host.cpus.binary_search(cpu).is_err()) {
        let message = format!("CPU {cpu} of `{}` is not online on this machine", leaf.path);
        let finding = rules::NO_SUCH_CPU.at(place, message, "");
        report.push(finding.help(format!("online are {}", shown_cpus(&host.cpus))));
    }
}

/// CPU numbers as the kernel prints them: `0-3,8`.
pub(super) fn shown_cpus(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let show = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(show).collect::<Vec<_>>().join(",")
}

/// Warns of each unknown name once: a lookup may ask a directory service on the network.
fn unknown_accounts(draft: &Draft, host: &HostFacts, report: &mut Report) {
    let mut users = vec![&draft.administrators.users];
    let mut groups = vec![&draft.administrators.groups];
    for tenant in all(&draft.tenants) {
        users.extend([&tenant.matches.users, &tenant.allow.users]);
        groups.extend([&tenant.matches.groups, &tenant.allow.groups]);
    }
    for (lists, what, is_known) in
        [(users, "user", host.has_user), (groups, "group", host.has_group)]
    {
        let mut asked: HashSet<&str> = HashSet::new();
        for name in lists.into_iter().flatten() {
            if asked.insert(&name.value) && !is_known(&name.value) {
                let message = format!("this machine knows no {what} `{}`", name.value);
                let finding = rules::UNKNOWN_ACCOUNT.at(&name.place, message, "");
                report.push(finding.help("it has no effect until there is one"));
            }
        }
    }
}
