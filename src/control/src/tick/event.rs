//! Every change of the control loop as a value: the content of a recording.
//!
//! **Problem.** A replay needs every input of the loop: samples, results of writes, lost cgroups, new trees
//! and settings.
//!
//! **Answer.** Each change is an [`Event`], and [`ControlLoop::apply`] is the only way to change a loop. A
//! recorded loop and the events since then reproduce it to the last bit.
//!
//! **Versions.** A recording has the numbers and texts of these types without their names. [`format()`] is a
//! hash of all names and kinds (`recorded.txt`, checked by a test), so that bytes are never read as other types.
//!
//! **Properties** (`tests/history`): over random loads, faults, reloads and changing tenants, a replay
//! decides the same as the agent; it can begin at any tick with a recorded loop.

use std::fmt::Debug;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::control_loop::ControlLoop;
use crate::share::credit::Credit;
use crate::state::Outcome;
use crate::state::drift::Observation;
use crate::state::step::{Decision, Input, Settings, TreeChange};
use crate::words::knob::Knob;
use tenantd_core::node::NodeId;
use tenantd_dop::CpuSet;

/// One change of the control loop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    /// Begin of a tick.
    Begin,
    /// Input of the tick. If it is premature ([`ControlLoop::is_premature`]), nothing is decided.
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
    /// End of all pauses for contested values. One more lost round makes the agent yield again, for longer.
    TryYielded,
    /// Placement of tenants by an earlier agent.
    PlaceOn(Vec<(NodeId, CpuSet)>),
    /// Credit of nodes under an earlier agent, or after a job that paid for its start.
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

    /// Place of the kept data, as an absolute path; `None` if nothing is kept.
    fn place(&self) -> Option<&str> {
        None
    }

    /// Limits the size and age of the kept data.
    fn bound(&mut self, _max_bytes: u64, _max_age: Duration) {}
}

impl ControlLoop {
    /// Changes the loop; returns the decision of a step.
    pub fn apply(&mut self, event: Event) -> Option<Decision> {
        match event {
            Event::Begin => self.begin_tick(),
            Event::Step(input) => return Some(self.step(*input)),
            Event::Settle(outcome) => self.settle(*outcome),
            Event::ObserveFirst(node, observed) => self.observe_first(node, observed),
            Event::Reclaim(node, knob) => self.reclaim(node, knob),
            Event::Lose(node, keeps_left) => self.lose(node, keeps_left),
            Event::Forget(node, knob) => self.forget(node, knob),
            Event::ForgetObserved => self.forget_observed(),
            Event::Reset => self.reset(),
            Event::TryYielded => self.try_yielded(),
            Event::PlaceOn(places) => self.place_on(places),
            Event::TakeCredits(credits) => self.take_credits(credits),
            Event::Set(settings) => self.set(settings),
            Event::TakeTree(change) => self.take_tree(*change),
        }
        None
    }
}

impl Event {
    /// Event of this input.
    pub fn step(input: Input) -> Event {
        Event::Step(Box::new(input))
    }

    /// Event of this result.
    pub fn settle(outcome: Outcome) -> Event {
        Event::Settle(Box::new(outcome))
    }

    /// True if the event fits a loop with `nr_nodes` nodes. A damaged event would make a replay panic.
    pub fn fits(&self, nr_nodes: usize) -> bool {
        match self {
            Event::Step(input) => input.nodes.len() == nr_nodes,
            // Identities that no node has change nothing.
            _ => true,
        }
    }
}

/// Names and kinds of everything recorded, one type a line.
pub const RECORDED: &str = include_str!("recorded.txt");

/// Fingerprint of the recorded types. Another version of tenantd may have another one.
pub const fn format() -> u64 {
    // FNV-1a.
    let (mut hash, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while at < RECORDED.len() {
        hash = (hash ^ RECORDED.as_bytes()[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}
