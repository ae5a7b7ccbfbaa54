//! The control loop of an agent, with every change recorded.
//!
//! The wrapper allows reads, and changes by [`Event`]s only, so no change can bypass the recording. Without a
//! recorder an event is passed on at no cost.

use std::ops::Deref;

use tenantd_control::share::credit::Credit;
use tenantd_control::state::Outcome;
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::{Decision, Input, Settings, TreeChange};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, Witness};
use tenantd_control::tree::{Tree, TreeNode};
use tenantd_control::words::knob::Knob;
use tenantd_core::node::NodeId;
use tenantd_dop::CpuSet;

#[derive(Debug)]
pub(crate) struct Recorded {
    control: ControlLoop,
    witness: Option<Box<dyn Witness>>,
}

impl Deref for Recorded {
    type Target = ControlLoop;

    fn deref(&self) -> &ControlLoop {
        &self.control
    }
}

impl Recorded {
    pub(crate) fn new(control: ControlLoop) -> Recorded {
        Recorded { control, witness: None }
    }

    pub(crate) fn record(&mut self, witness: Option<Box<dyn Witness>>) {
        self.witness = witness;
    }

    pub(crate) fn witness(&mut self) -> Option<&mut (dyn Witness + 'static)> {
        self.witness.as_deref_mut()
    }

    fn happen(&mut self, event: Event) -> Option<Decision> {
        if let Some(witness) = &mut self.witness {
            witness.note(&self.control, &event);
        }
        event.happen(&mut self.control)
    }

    pub(crate) fn begin_tick(&mut self) -> u64 {
        self.happen(Event::Begin);
        self.control.tick()
    }

    pub(crate) fn step(&mut self, input: Input) -> Decision {
        self.happen(Event::Step(Box::new(input))).unwrap_or_default()
    }

    pub(crate) fn settle(&mut self, outcome: Outcome) {
        self.happen(Event::Settle(Box::new(outcome)));
    }

    pub(crate) fn observe_first(&mut self, node: NodeId, observed: Vec<Observation>) {
        self.happen(Event::ObserveFirst(node, observed));
    }

    pub(crate) fn reclaim(&mut self, node: NodeId, knob: Knob) {
        self.happen(Event::Reclaim(node, knob));
    }

    pub(crate) fn lose(&mut self, node: NodeId, keeps_left: bool) {
        self.happen(Event::Lose(node, keeps_left));
    }

    pub(crate) fn forget(&mut self, node: NodeId, knob: Knob) {
        self.happen(Event::Forget(node, knob));
    }

    pub(crate) fn forget_observed(&mut self) {
        self.happen(Event::ForgetObserved);
    }

    pub(crate) fn reset(&mut self) {
        self.happen(Event::Reset);
    }

    pub(crate) fn try_yielded(&mut self) {
        self.happen(Event::TryYielded);
    }

    pub(crate) fn place_on(&mut self, mut place: impl FnMut(&TreeNode) -> Option<CpuSet>) {
        let tree = self.control.tree();
        let nodes = tree.policy_nodes().zip(tree.nodes());
        let places = nodes.filter_map(|(node, policy)| Some((node.id(), place(policy)?))).collect();
        self.happen(Event::PlaceOn(places));
    }

    pub(crate) fn take_credits(&mut self, credits: Vec<(NodeId, Credit)>) {
        if !credits.is_empty() {
            self.happen(Event::TakeCredits(credits));
        }
    }

    pub(crate) fn set(&mut self, settings: Settings) {
        self.happen(Event::Set(settings));
    }

    pub(crate) fn take_tree(
        &mut self,
        tree: Tree,
        handed: Vec<(NodeId, NodeId)>,
        unpinned: impl Fn(&TreeNode) -> bool,
    ) {
        let nodes = tree.policy_nodes().zip(tree.nodes());
        let unpinned =
            nodes.filter(|(_, node)| unpinned(node)).map(|(node, _)| node.id()).collect();
        let change = TreeChange { tree, handed, unpinned };
        self.happen(Event::TakeTree(Box::new(change)));
    }
}
