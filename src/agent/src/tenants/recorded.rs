//! The control loop of an agent, with every change recorded.
//!
//! The wrapper allows reads, and changes by [`Event`]s only, so no change can bypass the recording. Without a
//! recorder an event is passed on at no cost.

use std::ops::Deref;

use tenantd_control::state::step::{Decision, TreeChange};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, Witness};
use tenantd_control::tree::{Tree, TreeNode};
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

    /// Place of the recording, if there is one.
    pub(crate) fn place(&self) -> Option<&str> {
        self.witness.as_deref().and_then(Witness::place)
    }

    /// Records the event and changes the loop; returns the decision of a step.
    pub(crate) fn apply(&mut self, event: Event) -> Option<Decision> {
        if let Some(witness) = &mut self.witness {
            witness.note(&self.control, &event);
        }
        self.control.apply(event)
    }

    pub(crate) fn place_on(&mut self, mut place: impl FnMut(&TreeNode) -> Option<CpuSet>) {
        let tree = self.control.tree();
        let nodes = tree.policy_nodes().zip(tree.nodes());
        let places = nodes.filter_map(|(node, policy)| Some((node.id(), place(policy)?))).collect();
        self.apply(Event::PlaceOn(places));
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
        self.apply(Event::TakeTree(Box::new(change)));
    }
}
