//! Rules about several values: the whole tree and the machine. [`super::claims`] has the rules about claims.
//!
//! **Problem.** Each value may be right and the policy still wrong: guarantees that no machine can keep
//! together, a limit below a guarantee. **Properties.** Every rule is tried, whatever the others found; each
//! has a fixture with the exact report (`tests/policy.rs`). Rules about the machine need its facts. All are
//! linear in the tenants.

use std::collections::HashMap;

use super::amount::Amount;
use super::bounds::too_small;
use super::claims;
use super::disk_notes;
use super::disk_shares;
use super::facts::{HostFacts, Scope, Systemd};
use super::nodes::{Node, nodes};
use super::notes;
use super::pod_claims;
use super::presence::{self, Known};
use super::read::Draft;
use super::replaced;
use super::report::{Label, Report, Severity};
use super::rules;
use super::stays;
use super::templates;
use super::tree::Place;
use super::types::{CpusPolicy, DopPolicy, Words as _};
use tenantd_core::resource::{CPU, Resource};
use tenantd_dop::{CpuSet, tenant};

/// Most places in one finding; more would bury the first.
const MOST_PLACES: usize = 4;

pub(super) fn check(draft: &Draft, scope: Scope<'_>, report: &mut Report) {
    let host = scope.host;
    let nodes = nodes(draft, host);
    let known = Known::of(draft, &nodes, host);
    check_policy(draft, &nodes, &known, host, report);
    if let Some(host) = host {
        check_host(draft, &nodes, host, report);
        presence::check(draft, &nodes, &known, host, report);
        stays::check(&nodes, &known, host, report);
        templates::found_now(draft, &nodes, &known, host, report);
    }
    if scope.has_notes && !report.has_errors() {
        notes::check(draft, &nodes, &known, host, report);
        disk_shares::notes(draft, &nodes, report);
        if let Some(host) = host {
            disk_notes::check(draft, &nodes, host, report);
            replaced::check(draft, &nodes, host, report);
        }
    }
}

fn check_policy(
    draft: &Draft,
    nodes: &[Node<'_>],
    known: &Known<'_>,
    host: Option<&HostFacts>,
    report: &mut Report,
) {
    for resource in Resource::ALL {
        for (index, owed) in owed(nodes, resource).iter().enumerate() {
            limit_below_guarantee(&nodes[index], resource, report);
            group_bounds(nodes, index, owed.below, resource, report);
        }
    }
    disk_shares::check(nodes, report);
    nodes.iter().for_each(|node| dop_beyond_limit(node, report));
    let is_leaf = |node: &&Node<'_>| !node.tenant.is_group() && !node.is_template();
    let leaves: Vec<Node<'_>> = nodes.iter().filter(is_leaf).copied().collect();
    templates::check(nodes, known, report);
    cpus_overlap(&leaves, report);
    claims::overlapping_matches(&leaves, known, report);
    pod_claims::overlaps(&leaves.iter().collect::<Vec<_>>(), report);
    claims::owners(nodes, report);
    // Unless the machine is known, users may have slices.
    let systemd = host.map_or(Systemd::Unknown, |host| notes::systemd_of(draft, host));
    let has_slices = matches!(systemd, Systemd::Unknown | Systemd::Unified);
    claims::moves(nodes, has_slices, report);
    claims::agents_own(&draft.policy.host.root, &leaves, report);
    credits_ignored(draft, report);
}

fn credits_ignored(draft: &Draft, report: &mut Report) {
    let discipline = draft.policy.admission.discipline;
    let Some(place) = draft.given.value("admission.discipline") else { return };
    if draft.policy.control.credits.is_none() || discipline.has_tags() {
        return;
    }
    let word = discipline.word();
    let message = format!("the discipline `{word}` ignores credits: no job starts earlier by them");
    let finding = rules::CREDITS_IGNORED.at(place, message, "this order has no head starts");
    let finding = match draft.given.key("control.credits") {
        Some(credits) => finding.also(credits.label("credits raise only weights then")),
        None => finding,
    };
    report.push(
        finding.help("use `2dfq-e`, or another with tags, if waiting jobs should use credits"),
    );
}

fn check_host(draft: &Draft, nodes: &[Node<'_>], host: &HostFacts, report: &mut Report) {
    for resource in Resource::ALL {
        reserve_beyond_capacity(draft, host, resource, report);
        guarantees_beyond_capacity(draft, nodes, host, resource, report);
        nodes.iter().for_each(|node| limit_too_small(node, resource, report));
    }
    for node in nodes.iter().filter(|node| !node.tenant.is_group()) {
        dop_beyond_slots(draft, node, host, report);
        no_such_cpu(node, host, report);
    }
}

impl<'d> Node<'d> {
    fn guarantee(&self, resource: Resource) -> Option<(u64, &'d Place)> {
        Some((self.guarantee[resource]?, self.given.amount("guarantee", resource)?))
    }

    fn limit(&self, resource: Resource) -> Option<(u64, &'d Place)> {
        Some((self.limit[resource]?, self.given.amount("limit", resource)?))
    }
}

/// Owed guarantee of each node: its own, or the sum below it if that is larger.
fn owed(nodes: &[Node<'_>], resource: Resource) -> Vec<Owed> {
    let mut owed = vec![Owed::default(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        let own = node.guarantee(resource).map_or(0, |(amount, _)| amount);
        owed[index].in_all = own.max(owed[index].below);
        if let Some(parent) = node.parent {
            owed[parent].below = owed[parent].below.saturating_add(owed[index].in_all);
        }
    }
    owed
}

#[derive(Clone, Copy, Default)]
struct Owed {
    in_all: u64,
    below: u64,
}

fn limit_below_guarantee(node: &Node<'_>, resource: Resource, report: &mut Report) {
    let (Some((limit, at)), Some((guarantee, promised_at))) =
        (node.limit(resource), node.guarantee(resource))
    else {
        return;
    };
    if limit < guarantee {
        let message =
            format!("the {} limit of `{}` is below its guarantee", resource.title(), node.path);
        let finding = rules::LIMIT_BELOW_GUARANTEE.at(at, message, "never more than this");
        let promise = promised_at.label(format!("{} are promised", resource.exact(guarantee)));
        report.push(finding.also(promise).help("raise the limit or lower the guarantee"));
    }
}

fn group_bounds(
    nodes: &[Node<'_>],
    group: usize,
    sum: u64,
    resource: Resource,
    report: &mut Report,
) {
    let node = &nodes[group];
    let shown = resource.exact(sum);
    let mut refuse = |rule: &rules::Rule, at: &Place, what: &str, label: String| {
        let message = format!("guarantees of {shown} below `{}` exceed its {what}", node.path);
        let mut finding = rule.at(at, message, label);
        finding.labels.extend(largest(nodes, Some(group), resource));
        let help = format!("raise the {what} of the group or lower the guarantees below it");
        report.push(finding.help(help));
    };
    match (node.limit(resource), node.guarantee(resource)) {
        (Some((limit, at)), _) if sum > limit => {
            let label = format!("never more than {}", resource.exact(limit));
            refuse(&rules::GROUP_LIMIT, at, "limit", label);
        }
        (_, Some((guarantee, at))) if sum > guarantee => {
            let label = format!("{} for all of them", resource.exact(guarantee));
            refuse(&rules::GROUP_GUARANTEE, at, "guarantee", label);
        }
        _ => {}
    }
}

/// Largest guarantees below a group, or of all tenants: those of leaves, and of groups whose guarantee
/// exceeds the sum below them.
fn largest(nodes: &[Node<'_>], group: Option<usize>, resource: Resource) -> Vec<Label> {
    let is_below = |mut index: usize| loop {
        match nodes[index].parent {
            parent if parent == group => return true,
            Some(parent) => index = parent,
            None => return false,
        }
    };
    let given = nodes.iter().enumerate().filter(|(index, _)| is_below(*index));
    let mut each: Vec<(u64, &Place, &str)> = given
        .filter_map(|(_, node)| {
            node.guarantee(resource).map(|(amount, at)| (amount, at, node.path))
        })
        .collect();
    each.sort_by_key(|(amount, ..)| std::cmp::Reverse(*amount));
    each.truncate(MOST_PLACES);
    let label = |(amount, at, path): &(u64, &Place, &str)| {
        at.label(format!("{} to `{path}`", resource.exact(*amount)))
    };
    each.iter().map(label).collect()
}

fn dop_beyond_limit(node: &Node<'_>, report: &mut Report) {
    let (Some((width, at)), Some((limit, limit_at))) = (manual_dop(node), node.limit(CPU)) else {
        return;
    };
    // Four and a half CPUs still let five threads run, each a little slower.
    if u64::from(width) > limit.div_ceil(1000) {
        let most = CPU.amount(limit);
        let message = format!("`{}` runs {width} CPUs wide and may use only {most}", node.path);
        let finding = rules::DOP_BEYOND_LIMIT.at(at, message, format!("{width} wide"));
        let limit = limit_at.label(format!("the limit is {}", CPU.notation(limit)));
        report.push(finding.also(limit).help("raise the limit or lower the DOP"));
    }
}

fn manual_dop<'d>(node: &Node<'d>) -> Option<(u32, &'d Place)> {
    match node.tenant.dop {
        DopPolicy::Manual(width) => Some((width, node.given.value("dop.manual")?)),
        _ => None,
    }
}

fn fixed_cpus<'d>(node: &Node<'d>) -> Option<(&'d [u32], &'d Place)> {
    match &node.tenant.cpus {
        CpusPolicy::Fixed(cpus) => Some((cpus, node.given.value("cpus")?)),
        _ => None,
    }
}

/// A fixed set is exclusive: two tenants that share a CPU would compete there and nowhere else.
fn cpus_overlap(leaves: &[Node<'_>], report: &mut Report) {
    let mut owners: HashMap<u32, (&Node<'_>, &Place)> = HashMap::new();
    for leaf in leaves {
        let Some((cpus, place)) = fixed_cpus(leaf) else { continue };
        // One finding for the first shared CPU; one per pair would be repetitive.
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

fn reserve_beyond_capacity(
    draft: &Draft,
    host: &HostFacts,
    resource: Resource,
    report: &mut Report,
) {
    let Some(place) = draft.given.amount("host.reserve", resource) else { return };
    if allocatable(draft, host, resource) == 0 {
        let message = format!("the reserve leaves the tenants no {}", resource.title());
        let label = format!("the machine has {}", resource.exact(host.capacity(resource)));
        let finding = rules::RESERVE_BEYOND_CAPACITY.at(place, message, label);
        report.push(finding.help("the reserve is what the system itself needs: make it smaller"));
    }
}

fn allocatable(draft: &Draft, host: &HostFacts, resource: Resource) -> u64 {
    let capacity = host.capacity(resource);
    let reserve = draft.policy.host.reserve[resource].on(Some(capacity));
    capacity.saturating_sub(reserve.unwrap_or_default())
}

/// The part of a resource that no tenant can get. It changes while the host runs, so it makes no policy invalid.
fn set_aside(host: &HostFacts, resource: Resource) -> u64 {
    match resource {
        Resource::Cpu => 0,
        Resource::Memory => host.huge_pages.0,
    }
}

fn guarantees_beyond_capacity(
    draft: &Draft,
    nodes: &[Node<'_>],
    host: &HostFacts,
    resource: Resource,
    report: &mut Report,
) {
    let owed = owed(nodes, resource);
    let top = nodes.iter().zip(&owed).filter(|(node, _)| node.parent.is_none());
    let sum = top.fold(0_u64, |sum, (_, owed)| sum.saturating_add(owed.in_all));
    let available = allocatable(draft, host, resource);
    let huge = set_aside(host, resource);
    let beside = available.saturating_sub(huge);
    let labels = largest(nodes, None, resource);
    if let (Some(first), true) = (labels.first(), sum > available) {
        let message = format!(
            "{} are guaranteed, and the tenants of the machine can have {}",
            resource.exact(sum),
            resource.exact(available)
        );
        let mut finding = rules::GUARANTEE_BEYOND_CAPACITY.about(&first.source, message);
        finding.labels = labels;
        report.push(finding.help(
            "a guarantee is what a tenant gets whenever it wants it; for a larger share while \
             others are busy, raise its weight",
        ));
    } else if let (Some(first), true) = (labels.first(), sum > beside) {
        let message = format!(
            "{} are guaranteed, and the tenants can have {} beside huge pages of {} now",
            resource.exact(sum),
            resource.exact(beside),
            resource.exact(huge)
        );
        let mut finding = rules::GUARANTEE_BEYOND_CAPACITY.about(&first.source, message);
        finding.labels = labels;
        finding.severity = Severity::Warning;
        report.push(finding.help(
            "no tenant gets memory of huge pages, and guarantees are kept in part: lower the guarantees or \
             `vm.nr_hugepages`",
        ));
    }
}

/// A percentage of a small machine may be too little to run at all.
fn limit_too_small(node: &Node<'_>, resource: Resource, report: &mut Report) {
    let Some((limit, at)) = node.limit(resource) else { return };
    let is_percent = node.tenant.limit[resource].is_some_and(Amount::is_percent);
    if let (true, Some((message, help))) = (is_percent, too_small(limit, resource)) {
        report.push(rules::OUT_OF_RANGE.at(at, message, "").help(help));
    }
}

fn dop_beyond_slots(draft: &Draft, leaf: &Node<'_>, host: &HostFacts, report: &mut Report) {
    let Some((width, at)) = manual_dop(leaf) else { return };
    let cpus = CPU.amount(allocatable(draft, host, CPU));
    let slots = tenant::slots(cpus, draft.policy.control.oversubscription);
    if width > slots {
        let message = format!("`{}` is {width} wide, and the machine has {slots} slots", leaf.path);
        let help = "slots are the CPUs less the reserve, times `control.oversubscription`";
        report.push(rules::DOP_BEYOND_SLOTS.at(at, message, "").help(help));
    }
}

fn no_such_cpu(leaf: &Node<'_>, host: &HostFacts, report: &mut Report) {
    let Some((cpus, place)) = fixed_cpus(leaf) else { return };
    if let Some(cpu) = cpus.iter().find(|cpu| host.cpus.binary_search(cpu).is_err()) {
        let message = format!("CPU {cpu} of `{}` is not online on the machine", leaf.path);
        let online: CpuSet = host.cpus.iter().copied().collect();
        let finding = rules::NO_SUCH_CPU.at(place, message, "");
        report.push(finding.help(format!("online are {online}")));
    }
}
