//! Every change of the control loop as a value: the content of a recording.
//!
//! **Problem.** A replay needs every input of the loop: samples, results of writes, lost cgroups, new trees
//! and settings.
//!
//! **Answer.** Each change is an [`Event`]. The agent has no other way to change the loop than
//! [`Event::happen`] (`agent/recorded.rs`). A recorded state ([`tenantd_core::codec`]) and the events since
//! then reproduce the loop to the last bit.
//!
//! **Coding.** Events are encoded as differences to the last event of their kind ([`Memory`]). When nodes
//! get new numbers, the remembered events are renumbered: a new tenant costs only its own values.
//!
//! **Properties** (`tests/history/replay.rs`): over random loads, faults, reloads and changing tenants, a
//! replay decides the same as the agent; it can begin at any tick with a recorded state.

use std::fmt::Debug;
use std::time::Duration;

use super::control_loop::ControlLoop;
use crate::share::credit::Credit;
use crate::state::Outcome;
use crate::state::drift::Observation;
use crate::state::step::{Decision, Input, NodeInput, Settings};
use crate::tree::Tree;
use crate::words::knob::Knob;
use tenantd_core::codec::{self, Coded, In, Out, Torn};
use tenantd_dop::CpuSet;

/// One change of the control loop.
#[derive(Clone, Debug)]
pub enum Event {
    /// Begin of a tick.
    Begin,
    /// Input of the tick.
    Step(Box<Input>),
    /// Result of an action.
    Settle(Box<Outcome>),
    /// File contents of a node opened between two ticks.
    ObserveFirst(usize, Vec<Observation>),
    /// Withdrawn acceptance of a foreign value.
    Reclaim(usize, Knob),
    /// Loss of a node's cgroup; true if accepted foreign values outlive it.
    Lose(usize, bool),
    /// Restored value of a knob.
    Forget(usize, Knob),
    /// Reopening of all cgroups.
    ForgetObserved,
    /// Restored values of all nodes.
    Reset,
    /// End of all pauses for contested values.
    TryYielded,
    /// Placement of tenants by an earlier agent.
    PlaceOn(Vec<(usize, CpuSet)>),
    /// Credit of nodes under an earlier agent, or after a job that paid for its start.
    TakeCredits(Vec<(usize, Credit)>),
    /// New settings.
    Set(Settings),
    /// New nodes.
    TakeTree(Box<TreeChange>),
}

/// Observer of every change of a control loop.
pub trait Witness: Debug {
    /// Called before `event` changes `control`.
    fn note(&mut self, control: &ControlLoop, event: &Event);

    /// Reason why the observer cannot work at the moment, as a sentence.
    fn trouble(&self) -> Option<&str> {
        None
    }

    /// Limits the size and age of the kept data.
    fn bound(&mut self, _max_bytes: u64, _max_age: Duration) {}
}

/// Replacement of the tree.
#[derive(Clone, Debug)]
pub struct TreeChange {
    /// The new tree.
    pub tree: Tree,
    /// New number of each old node; `None` if it is gone.
    pub kept: Vec<Option<usize>>,
    /// New nodes that may run anywhere, in order.
    pub unpinned: Vec<usize>,
}

/// Last event of each kind.
#[derive(Clone, Debug)]
pub struct Memory {
    input: Input,
    outcome: Outcome,
    observed: Vec<Observation>,
    settings: Settings,
    tree: Tree,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            input: Coded::blank(),
            outcome: Coded::blank(),
            observed: Coded::blank(),
            settings: Coded::blank(),
            tree: Coded::blank(),
        }
    }
}

impl Memory {
    /// Starts with the tree of the loop.
    pub fn of(control: &ControlLoop) -> Memory {
        Memory {
            tree: control.tree().clone(),
            settings: control.settings().clone(),
            ..Memory::default()
        }
    }

    fn renumber(&mut self, kept: &[Option<usize>], nr_nodes: usize) {
        let mut nodes: Vec<NodeInput> = Vec::new();
        nodes.resize_with(nr_nodes, Coded::blank);
        for (node, new) in std::mem::take(&mut self.input.nodes).into_iter().zip(kept) {
            if let Some(place) = new.and_then(|new| nodes.get_mut(new)) {
                *place = node;
            }
        }
        self.input.nodes = nodes;
    }
}

/// First byte of an encoded event. Add new kinds at the end.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Begin,
    Step,
    Settle,
    ObserveFirst,
    Reclaim,
    Lose,
    Forget,
    ForgetObserved,
    Reset,
    PlaceOn,
    Set,
    TakeTree,
    TryYielded,
    TakeCredits,
}

impl Kind {
    const ALL: [Kind; 14] = [
        Kind::Begin,
        Kind::Step,
        Kind::Settle,
        Kind::ObserveFirst,
        Kind::Reclaim,
        Kind::Lose,
        Kind::Forget,
        Kind::ForgetObserved,
        Kind::Reset,
        Kind::PlaceOn,
        Kind::Set,
        Kind::TakeTree,
        Kind::TryYielded,
        Kind::TakeCredits,
    ];
}

impl Event {
    /// Changes the loop; returns the decision of a step.
    pub fn happen(self, control: &mut ControlLoop) -> Option<Decision> {
        match self {
            Event::Begin => {
                control.begin_tick();
            }
            Event::Step(input) => return Some(control.step(*input)),
            Event::Settle(outcome) => control.settle(*outcome),
            Event::ObserveFirst(number, observed) => control.observe_first(number, observed),
            Event::Reclaim(number, knob) => control.reclaim(number, knob),
            Event::Lose(number, keeps_left) => control.lose(number, keeps_left),
            Event::Forget(number, knob) => control.forget(number, knob),
            Event::ForgetObserved => control.forget_observed(),
            Event::Reset => control.reset(),
            Event::TryYielded => control.try_yielded(),
            Event::PlaceOn(places) => control.place_on(places),
            Event::TakeCredits(credits) => control.take_credits(credits),
            Event::Set(settings) => control.set(settings),
            Event::TakeTree(change) => {
                let TreeChange { tree, kept, unpinned } = *change;
                control.take_tree(tree, &kept, &unpinned);
            }
        }
        None
    }

    /// True if the event fits a loop with `nr_nodes` nodes. A damaged event would make a replay panic.
    pub fn fits(&self, nr_nodes: usize) -> bool {
        let is_node = |number: &usize| *number < nr_nodes;
        match self {
            Event::Begin
            | Event::ForgetObserved
            | Event::Reset
            | Event::TryYielded
            | Event::Set(_) => true,
            Event::Step(input) => input.nodes.len() == nr_nodes,
            Event::Settle(outcome) => is_node(&outcome.0.node),
            Event::ObserveFirst(number, _)
            | Event::Reclaim(number, _)
            | Event::Lose(number, _)
            | Event::Forget(number, _) => is_node(number),
            Event::PlaceOn(places) => places.iter().all(|(number, _)| is_node(number)),
            Event::TakeCredits(credits) => credits.iter().all(|(number, _)| is_node(number)),
            Event::TakeTree(change) => {
                let is_new = |new: &Option<usize>| new.is_none_or(|new| new < change.tree.len());
                change.kept.len() == nr_nodes && change.kept.iter().all(is_new)
            }
        }
    }

    /// Encodes the difference to the last event of its kind.
    pub fn put(&self, memory: &mut Memory, out: &mut Out) {
        match self {
            Event::Begin => out.byte(Kind::Begin as u8),
            Event::Step(input) => {
                out.byte(Kind::Step as u8);
                input.as_ref().put(&mut memory.input, out);
            }
            Event::Settle(outcome) => {
                out.byte(Kind::Settle as u8);
                outcome.as_ref().put(&mut memory.outcome, out);
            }
            Event::ObserveFirst(number, observed) => {
                out.byte(Kind::ObserveFirst as u8);
                out.number(*number as u64);
                observed.put(&mut memory.observed, out);
            }
            Event::Reclaim(number, knob) => put_knob(Kind::Reclaim, *number, knob, out),
            Event::Lose(number, keeps_left) => {
                out.byte(Kind::Lose as u8);
                out.number(*number as u64);
                keeps_left.put(&mut false, out);
            }
            Event::Forget(number, knob) => put_knob(Kind::Forget, *number, knob, out),
            Event::ForgetObserved => out.byte(Kind::ForgetObserved as u8),
            Event::Reset => out.byte(Kind::Reset as u8),
            Event::TryYielded => out.byte(Kind::TryYielded as u8),
            Event::PlaceOn(places) => {
                out.byte(Kind::PlaceOn as u8);
                places.put(&mut Vec::new(), out);
            }
            Event::TakeCredits(credits) => {
                out.byte(Kind::TakeCredits as u8);
                credits.put(&mut Vec::new(), out);
            }
            Event::Set(settings) => {
                out.byte(Kind::Set as u8);
                settings.put(&mut memory.settings, out);
            }
            Event::TakeTree(change) => {
                let TreeChange { tree, kept, unpinned } = change.as_ref();
                out.byte(Kind::TakeTree as u8);
                tree.put(&mut memory.tree, out);
                kept.put(&mut Vec::new(), out);
                unpinned.put(&mut Vec::new(), out);
                memory.renumber(kept, tree.len());
            }
        }
    }

    /// Decodes an event.
    ///
    /// # Errors
    /// The bytes are not an event.
    pub fn take(memory: &mut Memory, from: &mut In<'_>) -> Result<Event, Torn> {
        let kind = Kind::ALL.get(usize::from(from.byte()?)).ok_or(Torn)?;
        Ok(match kind {
            Kind::Begin => Event::Begin,
            Kind::Step => Event::Step(Box::new(Input::take(&mut memory.input, from)?)),
            Kind::Settle => Event::Settle(Box::new(Outcome::take(&mut memory.outcome, from)?)),
            Kind::ObserveFirst => {
                Event::ObserveFirst(number(from)?, Vec::take(&mut memory.observed, from)?)
            }
            Kind::Reclaim => Event::Reclaim(number(from)?, Knob::take(&mut Knob::blank(), from)?),
            Kind::Lose => Event::Lose(number(from)?, bool::take(&mut false, from)?),
            Kind::Forget => Event::Forget(number(from)?, Knob::take(&mut Knob::blank(), from)?),
            Kind::ForgetObserved => Event::ForgetObserved,
            Kind::Reset => Event::Reset,
            Kind::TryYielded => Event::TryYielded,
            Kind::PlaceOn => Event::PlaceOn(Vec::take(&mut Vec::new(), from)?),
            Kind::TakeCredits => Event::TakeCredits(Vec::take(&mut Vec::new(), from)?),
            Kind::Set => Event::Set(Settings::take(&mut memory.settings, from)?),
            Kind::TakeTree => {
                let tree = Tree::take(&mut memory.tree, from)?;
                let kept = Vec::take(&mut Vec::new(), from)?;
                let unpinned = Vec::take(&mut Vec::new(), from)?;
                memory.renumber(&kept, tree.len());
                Event::TakeTree(Box::new(TreeChange { tree, kept, unpinned }))
            }
        })
    }
}

fn put_knob(kind: Kind, number: usize, knob: &Knob, out: &mut Out) {
    out.byte(kind as u8);
    out.number(number as u64);
    knob.put(&mut Knob::blank(), out);
}

fn number(from: &mut In<'_>) -> Result<usize, Torn> {
    usize::try_from(from.number()?).map_err(|_| Torn)
}

/// Fingerprint of the recording format. Another version of tenantd may have another fingerprint.
pub fn format() -> u64 {
    let parts = [
        codec::fingerprint::<ControlLoop>(),
        codec::fingerprint::<Input>(),
        codec::fingerprint::<Outcome>(),
        codec::fingerprint::<Observation>(),
    ];
    let kinds = (Kind::ALL.len() as u64, 1);
    parts.into_iter().fold(kinds.0 << 8 | kinds.1, |all, part| all.rotate_left(7) ^ part)
}
