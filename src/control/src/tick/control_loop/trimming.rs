//! Weight feedback: applies [`crate::share::trim`] to the siblings in the tree of cgroups.

use std::time::Duration;

use super::ControlLoop;
use crate::share::govern;
use crate::share::trim::{self, Sibling};
use crate::state::NodeState;
use crate::tree::{Node, Tree};
use crate::words::knob::WEIGHTS;
use crate::words::knob::{Knob, Value, WEIGHT_DEAD_BAND_RATIO, WEIGHT_EXACT_WITHIN};

/// Largest ratio between trimmed siblings' weights, unless their open-loop weights are further apart.
const APART_MAX: f64 = 100.0;

impl ControlLoop {
    /// Records the effect of the weights in the last interval, and moves those of the targets.
    ///
    /// Learns nothing in mode observe, where weights have no effect. O(n log n) in the number of cgroups.
    pub(super) fn trim(&mut self, elapsed: Option<Duration>) {
        let states = &mut self.states;
        if !(self.settings.trims && self.settings.is_enforcing) {
            for state in states.iter_mut() {
                state.trim.iter_mut().for_each(|trim| trim.forget());
                apply(state);
                state.trim = state.trim.take().filter(|trim| trim.is_exact);
            }
            return;
        }
        let facts = facts(&self.tree, states);
        for (_, members) in govern::sets_of_siblings(&self.tree) {
            note(&members, &facts, states, elapsed.unwrap_or_default());
            learn(&members, states);
            let apart = apart(&members, states);
            members.iter().for_each(|at| apply(&mut states[*at]));
            bound(&members, states, apart);
        }
    }
}

/// Last interval of a cgroup: its own, or that of the cgroups below it.
#[derive(Clone, Copy)]
struct Facts {
    used_cores: Option<f64>,
    is_backlogged: bool,
    is_throttled: bool,
    has_cpus: bool,
}

fn facts(tree: &Tree, states: &[NodeState]) -> Vec<Facts> {
    let own = |(node, state): (Node<'_>, &NodeState)| {
        let has_work = node.has_work();
        let width = &states[node.tenant().unwrap_or(node).at()].width;
        Facts {
            used_cores: state.usage.as_ref().map(|usage| usage.cpu_cores),
            is_backlogged: has_work && state.is_pressed() && !state.target.satisfied,
            is_throttled: state.usage.as_ref().is_some_and(|usage| usage.throttled),
            has_cpus: has_work && width.cpus().is_some(),
        }
    };
    let mut facts: Vec<Facts> = tree.all().zip(states).map(own).collect();
    // Groups have no sample of their own.
    let mut below: Vec<Option<f64>> = vec![None; facts.len()];
    for node in tree.from_above().rev() {
        let at = node.at();
        facts[at].used_cores = facts[at].used_cores.or(below[at]);
        let Some(parent) = node.governed_parent().map(Node::at) else { continue };
        let it = facts[at];
        below[parent] = Some(below[parent].unwrap_or(0.0) + it.used_cores.unwrap_or(0.0));
        let above = &mut facts[parent];
        above.is_backlogged |= it.is_backlogged;
        above.is_throttled |= it.is_throttled;
        above.has_cpus |= it.has_cpus;
    }
    facts
}

fn held(state: &NodeState) -> Option<f64> {
    match state.observed(Knob::CpuWeight)? {
        Value::Weight(weight) => Some(*weight),
        _ => None,
    }
}

/// Adds an interval to the windows of the siblings that were backlogged in it, and ends those of the others.
/// Returns all siblings to their open-loop weights if a trimmed one has another entitlement or is satisfied.
fn note(members: &[usize], facts: &[Facts], states: &mut [NodeState], elapsed: Duration) {
    let is_void = |at: &usize| {
        let NodeState { trim, target, .. } = &states[*at];
        trim.as_deref().is_some_and(|trim| {
            trim.has_moved(target.due_cores()) || trim.factor.is_some() && target.satisfied
        })
    };
    let is_void = members.iter().any(is_void);
    let is_throttled = members.iter().any(|at| facts[*at].is_throttled);
    for &at in members {
        let (state, facts) = (&mut states[at], &facts[at]);
        let entitled_cores = state.target.due_cores();
        let is_left = !state.is_governed || state.leaves(Knob::CpuWeight);
        // Its share is right over all turns, not in each of them.
        let is_bound = facts.has_cpus || state.has_turns() || is_left;
        let takes_part = facts.is_backlogged && !is_throttled && !is_bound;
        let held = held(state).filter(|_| takes_part && !is_void && entitled_cores > 0.0);
        if let Some((held, used_cores)) = held.zip(facts.used_cores) {
            let trim = state.trim.get_or_insert_default();
            trim.note(held, elapsed.as_secs_f64(), entitled_cores, used_cores);
        } else if let Some(trim) = &mut state.trim {
            trim.rest();
        }
        if is_void && let Some(trim) = &mut state.trim {
            trim.forget();
        }
        state.trim = state.trim.take().filter(|trim| trim.is_exact || trim.held.is_some());
    }
}

/// Moves the factors of siblings if a lag is too large.
fn learn(members: &[usize], states: &mut [NodeState]) {
    let part = |at: &usize| {
        let NodeState { trim: Some(trim), target, .. } = &states[*at] else { return None };
        let is_known = trim.window.seconds >= trim::WINDOW.as_secs_f64();
        let held = trim.held.filter(|_| is_known && target.cpu_weight > 0.0)?;
        let (open, factor) = (target.cpu_weight, trim.factor.unwrap_or(1.0));
        Some((*at, Sibling { open, factor, held, window: trim.window }))
    };
    let (numbers, siblings): (Vec<usize>, Vec<Sibling>) = members.iter().filter_map(part).unzip();
    let Some((late, errors)) = trim::largest_lag(&siblings).zip(trim::errors(&siblings)) else {
        return;
    };
    let trim = states[numbers[late]].trim.get_or_insert_default();
    if trim.is_futile(errors[late]) {
        for at in members {
            states[*at].trim.iter_mut().for_each(|trim| trim.give_up());
        }
        return;
    }
    let factors = trim::factors(&siblings);
    for (index, at) in numbers.into_iter().enumerate() {
        let trim = states[at].trim.get_or_insert_default();
        if let Some(factors) = &factors {
            trim.take(factors[index], siblings[index].open, errors[index]);
        }
        trim.restart();
    }
}

/// Replaces the open-loop weight of the target by the trimmed one. After a trim the open-loop weight is a whole
/// number until the file holds it.
fn apply(state: &mut NodeState) {
    let held = held(state);
    let NodeState { trim: Some(trim), target, .. } = state else { return };
    if !trim.is_exact {
        return;
    }
    let open = target.cpu_weight;
    let trimmed = trim.weight(open, WEIGHT_DEAD_BAND_RATIO);
    target.open_cpu_weight = trimmed.map(|_| open);
    let weight = trimmed.unwrap_or_else(|| open.round());
    target.cpu_weight = weight.clamp(*WEIGHTS.start(), *WEIGHTS.end());
    let is_there = held.is_some_and(|held| (held - weight).abs() < WEIGHT_EXACT_WITHIN);
    trim.is_exact = trimmed.is_some() || !is_there;
}

/// Ratio of the largest to the smallest weight.
fn apart(members: &[usize], states: &[NodeState]) -> f64 {
    let weights = || members.iter().map(|at| states[*at].target.cpu_weight);
    weights().fold(0.0, f64::max) / weights().fold(f64::MAX, f64::min).max(1.0)
}

/// Limits the distance between trimmed siblings, whose open-loop weights are `apart`, to the kernel's range.
fn bound(members: &[usize], states: &mut [NodeState], apart: f64) {
    let least = members.iter().map(|at| states[*at].target.cpu_weight);
    let least = least.fold(f64::MAX, f64::min).max(*WEIGHTS.start());
    let most = (apart.max(APART_MAX) * least).floor();
    for &at in members {
        let target = &mut states[at].target;
        let Some(open) = target.open_cpu_weight else { continue };
        target.cpu_weight = target.cpu_weight.min(most);
        // A weight that no file can hold is reported beside the trim.
        target.exact_cpu_weight *= target.cpu_weight / open;
    }
}
