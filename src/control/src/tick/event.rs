//! Every change of the control loop as a value: the content of a recording.
//!
//! **Problem.** A replay needs every input of the loop: samples, results of writes, lost cgroups, new trees
//! and settings.
//!
//! **Answer.** Each change is an [`Event`]. The agent has no other way to change the loop than
//! [`Event::happen`] (`agent/recorded.rs`). A recorded state ([`tenantd_core::codec`]) and the events since
//! then reproduce the loop to the last bit.
//!
//! **Coding.** Events are encoded as differences to the last event of their kind ([`Memory`]). The
//! remembered input follows a new tree: a new tenant costs only its own values.
//!
//! **Properties** (`tests/history/replay.rs`): over random loads, faults, reloads and changing tenants, a
//! replay decides the same as the agent; it can begin at any tick with a recorded state.

use std::fmt::Debug;
use std::time::Duration;

use super::control_loop::ControlLoop;
use crate::share::credit::Credit;
use crate::state::Outcome;
use crate::state::drift::Observation;
use crate::state::step::{Decision, Input, NodeInput, Settings, TreeChange};
use crate::tree::Tree;
use crate::words::knob::Knob;
use tenantd_core::codec::{self, Coded, In, Out, Torn};
use tenantd_core::node::NodeId;
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
    ObserveFirst(NodeId, Vec<Observation>),
    /// Withdrawn acceptance of a foreign value.
    Reclaim(NodeId, Knob),
    /// Loss of a node's cgroup; true if accepted foreign values outlive it.
    Lose(NodeId, bool),
    /// Restored value of a knob.
    Forget(NodeId, Knob),
    /// Reopening of all cgroups.
    ForgetObserved,
    /// Restored values of all nodes.
    Reset,
    /// End of all pauses for contested values.
    TryYielded,
    /// Placement of tenants by an earlier agent.
    PlaceOn(Vec<(NodeId, CpuSet)>),
    /// Credit of nodes under an earlier agent.
    TakeCredits(Vec<(NodeId, Credit)>),
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

    fn follow(&mut self, before: &Tree, tree: &Tree) {
        let mut nodes: Vec<NodeInput> = Vec::new();
        nodes.resize_with(tree.len(), Coded::blank);
        for (old, input) in before.all().zip(std::mem::take(&mut self.input.nodes)) {
            if let Some(place) = tree.position(old.id()).and_then(|at| nodes.get_mut(at)) {
                *place = input;
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
            Event::ObserveFirst(node, observed) => control.observe_first(node, observed),
            Event::Reclaim(node, knob) => control.reclaim(node, knob),
            Event::Lose(node, keeps_left) => control.lose(node, keeps_left),
            Event::Forget(node, knob) => control.forget(node, knob),
            Event::ForgetObserved => control.forget_observed(),
            Event::Reset => control.reset(),
            Event::TryYielded => control.try_yielded(),
            Event::PlaceOn(places) => control.place_on(places),
            Event::TakeCredits(credits) => control.take_credits(credits),
            Event::Set(settings) => control.set(settings),
            Event::TakeTree(change) => control.take_tree(*change),
        }
        None
    }

    /// True if the event fits a loop with `nr_nodes` nodes. A damaged event would make a replay panic.
    pub fn fits(&self, nr_nodes: usize) -> bool {
        match self {
            Event::Step(input) => input.nodes.len() == nr_nodes,
            // Identities that no node has change nothing.
            _ => true,
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
            Event::ObserveFirst(node, observed) => {
                out.byte(Kind::ObserveFirst as u8);
                node.put(&mut NodeId::blank(), out);
                observed.put(&mut memory.observed, out);
            }
            Event::Reclaim(node, knob) => put_knob(Kind::Reclaim, *node, knob, out),
            Event::Lose(node, keeps_left) => {
                out.byte(Kind::Lose as u8);
                node.put(&mut NodeId::blank(), out);
                keeps_left.put(&mut false, out);
            }
            Event::Forget(node, knob) => put_knob(Kind::Forget, *node, knob, out),
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
                let TreeChange { tree, handed, unpinned } = change.as_ref();
                let before = memory.tree.clone();
                out.byte(Kind::TakeTree as u8);
                tree.put(&mut memory.tree, out);
                handed.put(&mut Vec::new(), out);
                unpinned.put(&mut Vec::new(), out);
                memory.follow(&before, tree);
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
                Event::ObserveFirst(node(from)?, Vec::take(&mut memory.observed, from)?)
            }
            Kind::Reclaim => Event::Reclaim(node(from)?, Knob::take(&mut Knob::blank(), from)?),
            Kind::Lose => Event::Lose(node(from)?, bool::take(&mut false, from)?),
            Kind::Forget => Event::Forget(node(from)?, Knob::take(&mut Knob::blank(), from)?),
            Kind::ForgetObserved => Event::ForgetObserved,
            Kind::Reset => Event::Reset,
            Kind::TryYielded => Event::TryYielded,
            Kind::PlaceOn => Event::PlaceOn(Vec::take(&mut Vec::new(), from)?),
            Kind::TakeCredits => Event::TakeCredits(Vec::take(&mut Vec::new(), from)?),
            Kind::Set => Event::Set(Settings::take(&mut memory.settings, from)?),
            Kind::TakeTree => {
                let before = memory.tree.clone();
                let tree = Tree::take(&mut memory.tree, from)?;
                let handed = Vec::take(&mut Vec::new(), from)?;
                let unpinned = Vec::take(&mut Vec::new(), from)?;
                memory.follow(&before, &tree);
                Event::TakeTree(Box::new(TreeChange { tree, handed, unpinned }))
            }
        })
    }
}

fn put_knob(kind: Kind, node: NodeId, knob: &Knob, out: &mut Out) {
    out.byte(kind as u8);
    node.put(&mut NodeId::blank(), out);
    knob.put(&mut Knob::blank(), out);
}

fn node(from: &mut In<'_>) -> Result<NodeId, Torn> {
    NodeId::take(&mut NodeId::blank(), from)
}

/// Fingerprint of the recording format. Another version of tenantd may have another fingerprint.
pub fn format() -> u64 {
    let parts = [
        codec::fingerprint::<ControlLoop>(),
        codec::fingerprint::<Input>(),
        codec::fingerprint::<Outcome>(),
        codec::fingerprint::<Observation>(),
    ];
    let kinds = (Kind::ALL.len() as u64, 2);
    parts.into_iter().fold(kinds.0 << 8 | kinds.1, |all, part| all.rotate_left(7) ^ part)
}
