//! Weights across the tree of cgroups.
//!
//! **Problem.** The kernel divides CPU time at every cgroup among those directly in it. Tenants that are units of
//! systemd are wherever systemd has them, and a weight in one slice means nothing against another slice. The policy
//! says 4 to 1 all the same.
//!
//! **Terms.** What the agent writes is *governed*: the cgroups of tenants and groups, and their ancestors up to
//! the top. The *foreign* use of an ancestor is the CPU time of work below it that belongs to no tenant.
//!
//! **Weights.** What a cgroup should have is the sum of what the tenants below it are entitled to, and of its
//! foreign use. The weights of the governed cgroups in one parent are proportional to that. By induction from the
//! top, every tenant gets what it is entitled to while all of them want more, wherever it is: the part of a parent
//! divides into the parts of its children. What a satisfied tenant leaves goes to its siblings first, until the
//! next tick divides again by the new demand, and a tenant that wakes beside a hungry one in the same slice gets the rest of
//! its part then. As for siblings of the policy ([`super::target`]), two amounts count:
//! the allocation of those that want more, and the burst of those that may wake.
//!
//! **Foreign siblings** keep their weights and their place. The ancestors in one parent have together the weight
//! that they had before, so what an administrator set on a slice counts; tenants beside others have the default in
//! the mean. There, weights stay within 1 to [`RATIO_MAX`]: further apart the kernel's own arithmetic fails. The
//! largest are lowered first, and what is below them gets less than its part: a small tenant in pieces beside a
//! slice of much work (`weights_a_hundredfold_apart_do_not_reach_every_division`). An
//! ancestor without a governed sibling is not weighed at all.
//!
//! Foreign work that is busy weighs as much as a governed sibling of mean weight, which is its place without the
//! agent; its use settles geometrically over the ticks.
//!
//! **Properties** (`tests/control/govern.rs`), over random trees and a model of the kernel's division:
//! `every_tenant_gets_its_allocation`, `busy_work_of_others_settles_and_keeps_its_part`,
//! `weights_stay_within_their_range`, `a_tenant_that_wakes_has_its_part_within_a_tick`.

use super::siblings::{self, Share};
use super::target::Target;
use super::tree::{CgroupParent, Tree};
use super::weight::{self, Entitlement, Weights};
use tenantd_core::resource::CPU;

/// How far apart the weights of siblings are at most where others are beside them.
const RATIO_MAX: f64 = 100.0;
/// The weight that a cgroup has by default.
const DEFAULT_WEIGHT: f64 = 100.0;

/// What an ancestor is weighed by, beside the tenants below it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Foreign {
    /// CPUs that work below it uses which belongs to no tenant.
    pub cores: f64,
    /// Its weight before the agent; `None` where it was not read.
    pub weight_before: Option<f64>,
}

/// Weighs all governed cgroups: sets the weights of the nodes and members in `targets`, and appends a target for each
/// ancestor.
///
/// `foreign` has one item for each ancestor.
///
/// O(n log n) in the number of cgroups.
pub fn weigh(tree: &Tree, foreign: &[Foreign], targets: &mut Vec<Target>) {
    let first_ancestor = tree.first_ancestor();
    targets.resize(tree.len(), Target::default());
    let shares = shares(tree, foreign, targets);
    for (number, share) in shares.iter().enumerate().skip(first_ancestor) {
        let target = &mut targets[number];
        target.allocation[CPU] = share.allocation_cores;
        (target.burst[CPU], target.satisfied) = (share.burst_cores, share.satisfied);
    }
    for (parent, members) in sets_of_siblings(tree) {
        let before = |&number: &usize| {
            let foreign = foreign.get(number.checked_sub(first_ancestor)?)?;
            Some(foreign.weight_before.unwrap_or(DEFAULT_WEIGHT))
        };
        let is_beside_others = parent.is_none_or(|parent| is_shared(tree, parent));
        let together = members.iter().map(|number| before(number).unwrap_or(DEFAULT_WEIGHT)).sum();
        let of_members: Vec<Share> = members.iter().map(|number| shares[*number]).collect();
        let whole = of_members.iter().map(Share::standing_cores).sum();
        let entitlements = siblings::entitlements(&of_members, whole);
        let weights = match is_beside_others {
            true => beside_others(&entitlements, together),
            false => weight::weigh(&entitlements),
        };
        for (&number, (written, exact)) in
            members.iter().zip(weights.written.iter().zip(weights.exact))
        {
            (targets[number].cpu_weight, targets[number].exact_cpu_weight) = (*written, exact);
        }
    }
}

/// The ancestors that have a governed sibling, by number: only their weights matter.
pub fn weighed_ancestors(tree: &Tree) -> Vec<usize> {
    // Most hosts have none, and a tick is no place for a thousand lists.
    if tree.len() == tree.first_ancestor() {
        return Vec::new();
    }
    let sets = sets_of_siblings(tree).into_iter().filter(|(_, members)| members.len() > 1);
    let members = sets.flat_map(|(_, members)| members);
    let mut weighed: Vec<usize> = members.filter(|number| tree.is_ancestor(*number)).collect();
    weighed.sort_unstable();
    weighed
}

/// CPUs that work in the cgroup of each ancestor uses which belongs to nothing governed below it; by the ancestor's
/// place in the tree, `None` where its use is not known. `used` is what each number uses, of groups nothing.
pub fn foreign_cores(tree: &Tree, used: impl Fn(usize) -> Option<f64>) -> Vec<Option<f64>> {
    let first_ancestor = tree.first_ancestor();
    let mut below = vec![0.0; tree.len()];
    let mut foreign = vec![None; tree.len() - first_ancestor];
    for number in tree.from_above().rev() {
        let own = used(number);
        if let Some(index) = number.checked_sub(first_ancestor) {
            foreign[index] = own.map(|own| (own - below[number]).max(0.0));
        }
        if let CgroupParent::Governed(parent) = tree.parents()[number] {
            below[parent] += own.unwrap_or(0.0).max(below[number]);
        }
    }
    foreign
}

/// What each governed cgroup is weighed by: sums over the tenants below it, and foreign use.
fn shares(tree: &Tree, foreign: &[Foreign], targets: &[Target]) -> Vec<Share> {
    let first_ancestor = tree.first_ancestor();
    let mut shares = vec![Share { satisfied: true, ..Share::default() }; tree.len()];
    for number in tree.from_above().rev() {
        if tree.has_work(number) {
            shares[number] = targets[number].share();
        } else if let Some(foreign) =
            number.checked_sub(first_ancestor).and_then(|index| foreign.get(index))
        {
            shares[number].allocation_cores += foreign.cores;
            shares[number].burst_cores += foreign.cores;
        }
        let CgroupParent::Governed(parent) = tree.parents()[number] else { continue };
        let share = shares[number];
        let above = &mut shares[parent];
        above.allocation_cores += share.allocation_cores;
        above.burst_cores += share.burst_cores;
        above.floor_cores += share.floor_cores;
        above.satisfied &= share.satisfied;
    }
    shares
}

/// Whether cgroups of others are beside those that are governed in the cgroup of this node.
fn is_shared(tree: &Tree, number: usize) -> bool {
    let ancestor = tree.ancestors().find(|(known, _)| *known == number);
    ancestor.is_some_and(|(_, ancestor)| ancestor.is_shared)
}

/// The governed cgroups of each parent that has any, by number; `None` is the top.
pub(super) fn sets_of_siblings(tree: &Tree) -> Vec<(Option<usize>, Vec<usize>)> {
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); tree.len() + 1];
    for (number, parent) in tree.parents().iter().enumerate() {
        match parent {
            CgroupParent::Unknown | CgroupParent::Members => {}
            CgroupParent::Top => sets[tree.len()].push(number),
            CgroupParent::Governed(parent) => sets[*parent].push(number),
        }
    }
    let parents = (0..tree.len()).map(Some).chain([None]);
    parents.zip(sets).filter(|(_, members)| !members.is_empty()).collect()
}

/// Weights that are `together` what they were, and so far apart at most that the kernel can express it.
fn beside_others(siblings: &[Entitlement], together: f64) -> Weights {
    let sum = siblings.iter().map(|sibling| sibling.now).sum::<f64>();
    if sum <= 0.0 {
        let each = together / siblings.len() as f64;
        return Weights { written: vec![each; siblings.len()], exact: vec![each; siblings.len()] };
    }
    let exact: Vec<f64> = siblings.iter().map(|sibling| together * sibling.now / sum).collect();
    let smallest = exact.iter().copied().fold(f64::INFINITY, f64::min).max(1.0);
    let written = exact.iter().map(|exact| exact.clamp(1.0, RATIO_MAX * smallest));
    Weights { written: written.collect(), exact }
}
