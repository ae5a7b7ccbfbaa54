//! Weights across the tree of cgroups.
//!
//! **Problem.** The kernel divides CPU time in every cgroup among its children. Tenants that are systemd
//! units sit in different slices, and a weight in one slice has no effect on another slice. The policy's
//! ratios must hold all the same.
//!
//! **Terms.** The cgroups of tenants and groups, and their ancestors up to the top, are *governed*.
//! *Foreign* usage of an ancestor is CPU time of processes below it that belong to no tenant.
//!
//! **Weights.** The entitlement of a cgroup is the sum over the tenants below it plus its foreign usage.
//! Weights of governed siblings are proportional to it. By induction from the top, every tenant gets its
//! entitlement while all want more. A satisfied tenant leaves its rest to its siblings until the next tick.
//! As in [`super::target`], two amounts count: the allocation of tenants that want more, and the burst of
//! tenants that may wake.
//!
//! **Foreign siblings** keep their weights. The ancestors in one parent keep their earlier sum, so an
//! administrator's weight of a slice counts; tenants beside others have the default on average. There,
//! weights stay within 1 to [`RATIO_MAX`], because the kernel's arithmetic fails beyond. The largest are
//! lowered first, so the tenants below them get less than their part
//! (`weights_a_hundredfold_apart_do_not_reach_every_division`). An ancestor without a governed sibling
//! keeps its weight.
//!
//! Busy foreign work weighs as much as a governed sibling of mean weight, as without the agent; its usage
//! settles geometrically.
//!
//! **Properties** (`tests/control/govern.rs`), over random trees and a model of the kernel's division:
//! `every_tenant_gets_its_allocation`, `busy_work_of_others_settles_and_keeps_its_part`,
//! `weights_stay_within_their_range`, `a_tenant_that_wakes_has_its_part_within_a_tick`.

use super::siblings::{self, Share};
use super::target::Target;
use super::turns::Turns;
use super::weight::{self, Entitlement, Weights};
use crate::tree::{CgroupParent, Node, Tree};
use tenantd_core::resource::CPU;

const RATIO_MAX: f64 = 100.0;
const DEFAULT_WEIGHT: f64 = 100.0;

/// Weight input of an ancestor beside the tenants below it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Foreign {
    /// CPUs used by processes below it that belong to no tenant.
    pub cores: f64,
    /// Weight before the agent; `None` if it was not read.
    pub weight_before: Option<f64>,
}

/// Weighs all governed cgroups: sets the weights of nodes and members in `targets`, and appends a target
/// for each ancestor. `foreign` has one item per ancestor. O(n log n) in the number of cgroups.
pub fn weigh(tree: &Tree, foreign: &[Foreign], turns: &Turns, targets: &mut Vec<Target>) {
    let first_ancestor = tree.first_ancestor();
    targets.resize(tree.len(), Target::default());
    let cores: Vec<f64> = foreign.iter().map(|foreign| foreign.cores).collect();
    let mut shares = shares(tree, &cores, |at| targets[at].share());
    if !turns.are_over() {
        let net = |at: usize| targets[at].net_lent_cores;
        let above = turns.lent_above(tree, net, |at| shares[at].needed_cores());
        for node in tree.all().filter(|node| !node.has_work()) {
            let at = node.at();
            shares[at].lent_cores =
                if node.is_ancestor() { above[at] } else { targets[at].lent_cores };
        }
    }
    for (at, share) in shares.iter().enumerate().skip(first_ancestor) {
        let target = &mut targets[at];
        (target.allocation[CPU], target.lent_cores) = (share.allocation_cores, share.lent_cores);
        (target.burst[CPU], target.satisfied) = (share.burst_cores, share.satisfied);
    }
    let before = |at: usize| {
        let foreign = foreign.get(at.checked_sub(first_ancestor)?)?;
        Some(foreign.weight_before.unwrap_or(DEFAULT_WEIGHT))
    };
    for (at, written, exact) in weights(tree, &shares, before, weight::weigh) {
        (targets[at].cpu_weight, targets[at].exact_cpu_weight) = (written, exact);
    }
}

/// Weights of all governed cgroups from their `shares`, as position, weight to write and exact weight: by `weigh` among
/// governed siblings, and with the sum of their weights `before` beside others.
pub(crate) fn weights(
    tree: &Tree,
    shares: &[Share],
    before: impl Fn(usize) -> Option<f64>,
    weigh: fn(&[Entitlement]) -> Weights,
) -> Vec<(usize, f64, f64)> {
    let mut all = Vec::with_capacity(tree.len());
    for (parent, members) in sets_of_siblings(tree) {
        let is_beside_others = parent.is_none_or(Node::is_shared);
        let together = members.iter().map(|at| before(*at).unwrap_or(DEFAULT_WEIGHT)).sum();
        let of_members: Vec<Share> = members.iter().map(|at| shares[*at]).collect();
        let whole = of_members.iter().map(Share::standing_cores).sum();
        let entitlements = siblings::entitlements(&of_members, whole);
        let weights = if is_beside_others {
            beside_others(&entitlements, together)
        } else {
            weigh(&entitlements)
        };
        let written = weights.written.into_iter().zip(weights.exact);
        all.extend(members.iter().zip(written).map(|(at, (written, exact))| (*at, written, exact)));
    }
    all
}

/// Positions of the ancestors with a governed sibling: only their weights matter.
pub fn weighed_ancestors(tree: &Tree) -> Vec<usize> {
    // Most hosts have none; this avoids many lists per tick.
    if tree.len() == tree.first_ancestor() {
        return Vec::new();
    }
    let sets = sets_of_siblings(tree).into_iter().filter(|(_, members)| members.len() > 1);
    let members = sets.flat_map(|(_, members)| members);
    let mut weighed: Vec<usize> = members.filter(|at| *at >= tree.first_ancestor()).collect();
    weighed.sort_unstable();
    weighed
}

/// CPUs used in each ancestor by processes that belong to nothing governed below it; `None` if its usage is
/// unknown. `used` is the usage of each node; groups have none.
pub fn foreign_cores(tree: &Tree, used: impl Fn(Node<'_>) -> Option<f64>) -> Vec<Option<f64>> {
    let first_ancestor = tree.first_ancestor();
    let mut below = vec![0.0; tree.len()];
    let mut foreign = vec![None; tree.len() - first_ancestor];
    for node in tree.from_above().rev() {
        let (own, below_it) = (used(node), below[node.at()]);
        if let Some(index) = node.at().checked_sub(first_ancestor) {
            foreign[index] = own.map(|own| (own - below_it).max(0.0));
        }
        if let Some(parent) = node.governed_parent() {
            below[parent.at()] += own.unwrap_or(0.0).max(below_it);
        }
    }
    foreign
}

/// Weight input of each governed cgroup: sums over the tenants below it, each with its `own`, and foreign usage of each
/// ancestor.
pub(crate) fn shares(tree: &Tree, foreign: &[f64], own: impl Fn(usize) -> Share) -> Vec<Share> {
    let first_ancestor = tree.first_ancestor();
    let mut shares = vec![Share { satisfied: true, ..Share::default() }; tree.len()];
    for node in tree.from_above().rev() {
        let at = node.at();
        if node.has_work() {
            shares[at] = own(at);
        } else if let Some(used) =
            at.checked_sub(first_ancestor).and_then(|index| foreign.get(index))
        {
            shares[at].allocation_cores += used;
            shares[at].burst_cores += used;
        }
        let Some(parent) = node.governed_parent() else { continue };
        let share = shares[at];
        let above = &mut shares[parent.at()];
        above.allocation_cores += share.allocation_cores;
        above.burst_cores += share.burst_cores;
        above.floor_cores += share.floor_cores;
        above.satisfied &= share.satisfied;
    }
    shares
}

/// Positions of the governed children of each parent; `None` is the top.
pub(crate) fn sets_of_siblings(tree: &Tree) -> Vec<(Option<Node<'_>>, Vec<usize>)> {
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); tree.len() + 1];
    for (at, parent) in tree.parents().iter().enumerate() {
        match parent {
            CgroupParent::Unknown | CgroupParent::Members => {}
            CgroupParent::Top => sets[tree.len()].push(at),
            CgroupParent::Governed(parent) => sets[*parent].push(at),
        }
    }
    let parents = tree.all().map(Some).chain([None]);
    parents.zip(sets).filter(|(_, members)| !members.is_empty()).collect()
}

/// Weights that keep their sum `together`, within the kernel's range.
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
