//! CPU sets of the tenants, tick by tick.
//!
//! **Problem.** [`tenantd_dop::placement`] makes CPU sets from the widths of one instant. This file applies it
//! over time: tenants sleep and wake, CPUs come and go, and a tenant must not move too often.
//!
//! **Rules.**
//! - Only awake tenants are placed. A sleeper keeps its CPUs, and others may use them too: a narrow set would
//!   confine it when it wakes. It shares its CPUs by weight until the others have moved. A fixed list is lent
//!   in the same way.
//! - Tenants with exclusive CPUs are always placed; their CPUs are never lent.
//! - A tenant stays in place if possible, and moves at most once per dwell time unless one of its CPUs went
//!   away. A tenant placed by an earlier agent begins with its CPUs.
//! - After a stable while, tenants scattered over several caches or nodes are gathered if possible.
//!
//! **Properties** (`tests/agent/width`): a sleeper's CPUs are lent and returned; at most one change per dwell
//! time; no set is ever empty; exclusive sets are disjoint from all others; fixed lists stay as written.

use std::ops::Range;
use std::time::Duration;

use crate::tree::TreeNode;
use crate::width::{Leaf, WidthState};
use crate::words::finding::{Code, Finding};
use tenantd_dop::placement::{self, Placement, Reason, Request, Want};
use tenantd_dop::topology::Level;
use tenantd_dop::{CpuSet, Topology, transition};
use tenantd_policy::model::CpusPolicy;

/// Delay between decision and write on a slow machine.
const WRITE_SLACK: Duration = Duration::from_secs(2);
/// Time after the last placement change in which a tidier one is sought.
const TIDY: Range<Duration> = Duration::from_secs(20)..Duration::from_secs(25);

/// True if a tenant of the policy needs its own set of CPUs.
pub fn pins(nodes: &[TreeNode]) -> bool {
    nodes.iter().any(|node| node.is_leaf && node.cpus != CpusPolicy::Shared)
}

/// Places all pinned leaves (`states[i]` belongs to `leaves[i]`); returns the findings.
pub fn place(
    leaves: &[Leaf<'_>],
    states: &mut [WidthState],
    topology: &Topology,
    now: Duration,
) -> Vec<Finding> {
    let exclusive = leaves.iter().any(is_exclusive);
    let takes_part = |index: &usize| {
        let (leaf, state) = (&leaves[*index], &states[*index]);
        match &leaf.node.cpus {
            // Shared tenants are pinned only to keep them off exclusive CPUs.
            CpusPolicy::Shared => exclusive,
            CpusPolicy::Exclusive => true,
            CpusPolicy::Fixed(list) => {
                exclusive || !state.is_asleep() || !has_list(state, list, topology)
            }
            CpusPolicy::Dop => {
                // A sleeper that was just moved must not block exclusive CPUs again.
                let rests = exclusive && state.moved.is_some_and(|moved| is_held(moved, now));
                !state.is_asleep() || rests || lacks_cpus(state, topology)
            }
        }
    };
    let placed: Vec<usize> = (0..leaves.len()).filter(takes_part).collect();
    let held = held(leaves, states, &placed, now);
    let requests: Vec<Request> = placed
        .iter()
        .zip(&held)
        .map(|(&index, &held)| request(&leaves[index], &states[index], held))
        .collect();
    let mut placement = placement::place(topology, &requests);
    let last_moved = placed.iter().filter_map(|&i| states[i].moved).max();
    if last_moved.is_some_and(|moved| TIDY.contains(&now.saturating_sub(moved)))
        && let Some(tidy) = tidied(topology, requests, &placement)
    {
        placement = tidy;
    }
    let reasons = reasons(&placement, placed.len());
    let mut spots = spots(leaves, states, &placed, &held, placement);
    keep_still(&mut spots, topology.online());
    for ((&index, spot), reason) in placed.iter().zip(&spots).zip(reasons) {
        let state = &mut states[index];
        // A resting leaf has no new finding, unless it was placed all the same.
        if reason.is_some() || !spot.held || (state.lacks_own_cpus() && spot.is_own) {
            state.refused = reason;
        }
        state.move_to(spot.cpus.clone(), now);
    }
    clear_off(leaves, states, topology, &spots, now);
    let refused = leaves.iter().zip(states).filter_map(|(leaf, b)| Some((leaf, b.refused?)));
    refused.map(|(leaf, reason)| refusal(leaf.node, reason)).collect()
}

fn reasons(placement: &Placement, count: usize) -> Vec<Option<Reason>> {
    let mut reasons = vec![None; count];
    for refusal in &placement.refusals {
        reasons[refusal.request] = Some(refusal.reason);
    }
    reasons
}

fn is_exclusive(leaf: &Leaf<'_>) -> bool {
    leaf.node.cpus == CpusPolicy::Exclusive
}

fn lacks_cpus(state: &WidthState, topology: &Topology) -> bool {
    state.placed.as_ref().is_none_or(|cpus| !cpus.is_subset(topology.usable()))
}

/// True if it is on the online CPUs of its `list`.
fn has_list(state: &WidthState, list: &[u32], topology: &Topology) -> bool {
    let online = list.iter().copied().collect::<CpuSet>().intersection(topology.online());
    state.placed.as_ref() == Some(&online)
}

/// True for each of the `placed` leaves that moved too recently to move again.
fn held(leaves: &[Leaf<'_>], states: &[WidthState], placed: &[usize], now: Duration) -> Vec<bool> {
    // A change of exclusive CPUs changes the sets of all tenants on the rest, so these rest together.
    let shares = |index: usize| {
        matches!(leaves[index].node.cpus, CpusPolicy::Exclusive | CpusPolicy::Shared)
    };
    let together = placed.iter().filter(|&&i| shares(i)).filter_map(|&i| states[i].moved).max();
    let moved = |index: usize| if shares(index) { together } else { states[index].moved };
    placed.iter().map(|&i| moved(i).is_some_and(|moved| is_held(moved, now))).collect()
}

fn is_held(moved: Duration, now: Duration) -> bool {
    transition::is_held(Some(moved + WRITE_SLACK), now)
}

fn request(leaf: &Leaf<'_>, state: &WidthState, held: bool) -> Request {
    let dop = state.dop().unwrap_or(1);
    let want = match &leaf.node.cpus {
        CpusPolicy::Shared => Want::Shared,
        CpusPolicy::Dop => Want::Dop(dop),
        CpusPolicy::Exclusive => Want::Exclusive(dop),
        CpusPolicy::Fixed(cpus) => Want::Fixed(cpus.iter().copied().collect()),
    };
    if state.lacks_own_cpus() {
        Request::new(want)
    } else {
        Request { want, previous: state.placed.clone(), held }
    }
}

struct Spot {
    present: Option<CpuSet>,
    held: bool,
    was_own: bool,
    is_own: bool,
    cpus: CpuSet,
}

fn spots(
    leaves: &[Leaf<'_>],
    states: &[WidthState],
    placed: &[usize],
    held: &[bool],
    placement: Placement,
) -> Vec<Spot> {
    let spot = |((&index, &held), cpus): ((&usize, &bool), CpuSet)| Spot {
        present: states[index].placed.clone(),
        held,
        was_own: is_exclusive(&leaves[index]) && !states[index].lacks_own_cpus(),
        is_own: is_exclusive(&leaves[index]),
        cpus,
    };
    let mut spots: Vec<Spot> = placed.iter().zip(held).zip(placement.sets).map(spot).collect();
    for refusal in &placement.refusals {
        if let Reason::Narrowed { granted: 0, .. } = refusal.reason {
            spots[refusal.request].is_own = false;
        }
    }
    spots
}

/// Delays the changes of recently placed leaves where they can wait.
///
/// The placement itself holds the sets of tenants with a width. This delay covers a list whose CPUs came
/// back, the rest of the machine for shared tenants, and an exclusive tenant that now finds a CPU. It
/// leaves no tenant without a CPU, and none on an exclusive CPU of another tenant.
fn keep_still(spots: &mut [Spot], online: &CpuSet) {
    for own_first in [true, false] {
        for index in 0..spots.len() {
            let Spot { present: Some(present), held: true, was_own: false, .. } = &spots[index]
            else {
                continue;
            };
            let moves = *present != spots[index].cpus && spots[index].is_own == own_first;
            let allows = |other: usize| {
                other == index || !spots[other].is_own || spots[other].cpus.is_disjoint(present)
            };
            if moves && present.is_subset(online) && (0..spots.len()).all(allows) {
                spots[index].cpus = present.clone();
                spots[index].is_own = false;
            }
        }
    }
}

/// Moves unplaced sleepers off CPUs that became exclusive, so that they do not wake up there.
fn clear_off(
    leaves: &[Leaf<'_>],
    states: &mut [WidthState],
    topology: &Topology,
    spots: &[Spot],
    now: Duration,
) {
    let own = spots.iter().filter(|spot| spot.is_own);
    let own = own.fold(CpuSet::new(), |all, spot| all.union(&spot.cpus));
    for (leaf, state) in leaves.iter().zip(states) {
        let Some(cpus) = &state.placed else { continue };
        if leaf.node.cpus == CpusPolicy::Dop && state.is_asleep() && !cpus.is_disjoint(&own) {
            let left = cpus.difference(&own);
            let left = if left.is_empty() { topology.usable().difference(&own) } else { left };
            if !left.is_empty() {
                state.move_to(left, now);
            }
        }
    }
}

/// A placement with better locality than `present`, if there is one.
///
/// Staying has precedence over locality, so a CPU hotplug can scatter tenants over each other's domains, and no
/// single move gathers them. The scattered tenants are placed anew together, if the result spans fewer domains.
fn tidied(
    topology: &Topology,
    mut requests: Vec<Request>,
    present: &Placement,
) -> Option<Placement> {
    let spans = |set: &CpuSet| (topology.span(set, Level::Node), topology.span(set, Level::Llc));
    let spread = |sets: &[CpuSet]| {
        sets.iter().map(spans).fold((0, 0), |sum, span| (sum.0 + span.0, sum.1 + span.1))
    };
    for (request, set) in requests.iter_mut().zip(&present.sets) {
        if spans(set) > (1, 1) {
            request.previous = None;
        }
    }
    let fresh = placement::place(topology, &requests);
    let better = fresh.overlap <= present.overlap && spread(&fresh.sets) < spread(&present.sets);
    better.then_some(fresh)
}

fn refusal(node: &TreeNode, reason: Reason) -> Finding {
    let message = match reason {
        Reason::Narrowed { wanted, granted: 0 } => format!(
            "no CPU is left to be exclusive of the {wanted} it wants: it runs on the shared ones"
        ),
        Reason::Narrowed { wanted, granted } => format!(
            "only {granted} of {wanted} CPUs could be exclusive; lower `dop` or other exclusive tenants"
        ),
        Reason::Offline => {
            "none of the CPUs in `cpus` is online: it runs on the shared ones".to_string()
        }
    };
    Finding::of(&node.path, Code::NotPlaced, message)
}
