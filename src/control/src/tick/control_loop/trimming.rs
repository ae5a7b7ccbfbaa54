//! Weight feedback: applies [`crate::share::trim`] to the siblings in the tree of cgroups.

use std::time::Duration;

use super::ControlLoop;
use crate::share::govern;
use crate::share::trim::{self, Sibling, Trim};
use crate::state::NodeState;
use crate::tree::{Node, Tree};
use crate::words::knob::WEIGHTS;
use crate::words::knob::{Knob, Value, WEIGHT_DEAD_BAND_RATIO, WEIGHT_EXACT_WITHIN};
use tenantd_core::resource::CPU;

/// Largest ratio between trimmed siblings' weights, unless their open-loop weights are further apart.
const APART_MAX: f64 = 100.0;

impl ControlLoop {
    /// Records the last interval, trims the weights of the targets, and forgets finished trims.
    ///
    /// Learns nothing in mode observe, where weights have no effect. O(n log n) in the number of cgroups if
    /// the policy has a trim, or had one in the tick before.
    pub(crate) fn trim(&mut self, elapsed: Option<Duration>) {
        if !(self.settings.trims && self.settings.is_enforcing) {
            self.trim_window = Duration::ZERO;
            self.states.iter_mut().for_each(give_back);
            return;
        }
        self.move_weights(elapsed);
        for state in &mut self.states {
            let target = &mut state.target;
            let ratio = target.open_cpu_weight.map_or(1.0, |open| target.cpu_weight / open);
            // The part that no file can hold is reported beside the trim.
            target.exact_cpu_weight *= ratio;
        }
    }

    fn move_weights(&mut self, elapsed: Option<Duration>) {
        let (tree, states) = (&self.tree, &mut self.states);
        let sets: Vec<Vec<usize>> =
            govern::sets_of_siblings(tree).into_iter().map(|(_, members)| members).collect();
        for state in states.iter_mut() {
            let held = held(state);
            let trim = state.trim.get_or_insert_default();
            if self.trim_window.is_zero() {
                trim.begin(held);
            }
        }
        sets.iter().for_each(|members| forget_moved(members, states));
        let open: Vec<f64> = states.iter().map(|state| state.target.cpu_weight).collect();
        sets.iter().for_each(|members| apply(members, &open, states));
        let Some(elapsed) = elapsed else { return };
        let facts = facts(tree, states);
        sets.iter().for_each(|members| note(members, &facts, states, elapsed));
        self.trim_window += elapsed;
        if self.trim_window < trim::WINDOW {
            return;
        }
        let window = std::mem::take(&mut self.trim_window);
        for members in &sets {
            if learn(members, &open, states, window) {
                apply(members, &open, states);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct Facts {
    used_cores: Option<f64>,
    is_backlogged: bool,
    is_throttled: bool,
    has_cpus: bool,
}

fn held(state: &NodeState) -> Option<f64> {
    match state.observed(Knob::CpuWeight)? {
        Value::Weight(weight) => Some(*weight),
        _ => None,
    }
}

/// Returns to the open-loop weight, which is written exactly once.
fn give_back(state: &mut NodeState) {
    let held = held(state);
    let Some(trim) = &mut state.trim else { return };
    trim.factor = None;
    let (weight, is_there) = whole_unless_there(trim, held, state.target.cpu_weight);
    state.target.cpu_weight = weight;
    if is_there {
        state.trim = None;
    }
}

/// Weight of an untrimmed cgroup, and whether the dead band applies to its file.
fn whole_unless_there(trim: &Trim, held: Option<f64>, weight: f64) -> (f64, bool) {
    if !trim.is_exact {
        return (weight, true);
    }
    let whole = weight.round().clamp(*WEIGHTS.start(), *WEIGHTS.end());
    let is_there = held.is_some_and(|held| (held - whole).abs() < WEIGHT_EXACT_WITHIN);
    (whole, is_there)
}

/// Returns all siblings to their open-loop weights if the entitlement of a trimmed one changed.
fn forget_moved(members: &[usize], states: &mut [NodeState]) {
    let has_moved = |number: &usize| {
        let state = &states[*number];
        state.trim.as_ref().is_some_and(|trim| trim.has_moved(state.target.allocation[CPU]))
    };
    if members.iter().any(has_moved) {
        for number in members {
            states[*number].trim.get_or_insert_default().factor = None;
        }
    }
}

fn apply(members: &[usize], open: &[f64], states: &mut [NodeState]) {
    let is_exact = |number: &usize| states[*number].trim.as_ref().is_some_and(|it| it.is_exact);
    if !members.iter().any(is_exact) {
        return;
    }
    for &number in members {
        let state = &mut states[number];
        let held = held(state);
        let Some(trim) = &mut state.trim else { continue };
        if let Some(weight) = trim.weight(open[number], WEIGHT_DEAD_BAND_RATIO) {
            state.target.cpu_weight = weight;
            state.target.open_cpu_weight = Some(open[number]);
        } else {
            let (weight, is_there) = whole_unless_there(trim, held, open[number]);
            trim.is_exact &= !is_there;
            state.target.cpu_weight = weight;
        }
    }
    bound(members, open, states);
}

/// Limits the distance between trimmed siblings to the kernel's range.
fn bound(members: &[usize], open: &[f64], states: &mut [NodeState]) {
    let least = |of: &dyn Fn(usize) -> f64| members.iter().map(|n| of(*n)).fold(f64::MAX, f64::min);
    let most = |of: &dyn Fn(usize) -> f64| members.iter().map(|n| of(*n)).fold(0.0, f64::max);
    let apart = most(&|number| open[number]) / least(&|number| open[number]).max(1.0);
    let least = least(&|number| states[number].target.cpu_weight).max(*WEIGHTS.start());
    let largest = (apart.max(APART_MAX) * least).floor().min(*WEIGHTS.end());
    for &number in members {
        let state = &mut states[number];
        if state.trim.as_ref().is_some_and(|trim| trim.factor.is_some()) {
            let weight = &mut state.target.cpu_weight;
            *weight = weight.min(largest).max(*WEIGHTS.start());
        }
    }
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

/// Adds an interval to the window of the siblings that were backlogged. The others wait for the next window.
fn note(members: &[usize], facts: &[Facts], states: &mut [NodeState], elapsed: Duration) {
    let is_throttled = members.iter().any(|number| facts[*number].is_throttled);
    for &number in members {
        let (state, facts) = (&mut states[number], &facts[number]);
        let entitled = state.target.allocation[CPU];
        let is_left = !state.is_governed || state.leaves(Knob::CpuWeight);
        let (wanted, now) = (state.target.cpu_weight, held(state));
        let Some(trim) = &mut state.trim else { continue };
        let within = match trim.is_exact {
            true => WEIGHT_EXACT_WITHIN,
            false => (WEIGHT_DEAD_BAND_RATIO * wanted).max(WEIGHT_EXACT_WITHIN),
        };
        let is_held = |before: f64| {
            now.is_some_and(|now| {
                (now - before).abs() < WEIGHT_EXACT_WITHIN && (now - wanted).abs() <= within
            })
        };
        let takes_part = facts.is_backlogged && !is_throttled && !facts.has_cpus && !is_left;
        trim.held = trim.held.filter(|before| takes_part && entitled > 0.0 && is_held(*before));
        match facts.used_cores.filter(|_| trim.held.is_some()) {
            Some(used) => {
                let seconds = elapsed.as_secs_f64();
                trim.window.entitled += entitled * seconds;
                trim.window.used += used * seconds;
            }
            None => trim.held = None,
        }
    }
}

/// Computes new factors at the end of a window. Returns true if any factor changed.
fn learn(members: &[usize], open: &[f64], states: &mut [NodeState], window: Duration) -> bool {
    let part = |number: &usize| {
        let (trim, open) = (states[*number].trim.as_ref()?, open[*number]);
        let held = trim.held.filter(|_| open > 0.0)?;
        let factor = trim.factor.unwrap_or(1.0);
        Some((*number, Sibling { open, factor, held, share: trim.window }))
    };
    let (numbers, siblings): (Vec<usize>, Vec<Sibling>) = members.iter().filter_map(part).unzip();
    let Some(factors) = trim::factors(&siblings) else { return false };
    for (number, factor) in numbers.into_iter().zip(factors) {
        states[number].trim.get_or_insert_default().take(factor, open[number], window);
    }
    true
}
