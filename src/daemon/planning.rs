//! What is to be written in a tick: from what every node is entitled to, and what its files hold.
//!
//! The plan itself is pure ([`crate::control::plan`]). Here is what only the agent knows: which nodes have a cgroup
//! at all, which values are left to somebody else, whose needs are not known yet, so that nothing is taken from
//! them, and what the slice above the tenants of systemd has to keep for them.

use super::agent::{Agent, Slot};
use super::seats::Seat;
use crate::control::plan::{self, Action, Knob, NodeKnobs, Value};
use crate::control::target;
use crate::control::tree::TreeNode;
use crate::dop::CpuSet;
use crate::host::cgroup::Facet;
use crate::host::journal::Entry;
use crate::host::kernfs::KernFs;
use crate::host::systemd::slice_name::TOP;
use crate::units::{Bytes, Limit};

impl<K: KernFs> Agent<K> {
    /// What every node's files shall hold and do hold, the actions that bring the one to the other, and what
    /// of it concerns the slice above the tenants.
    pub(super) fn plan(&self) -> (Vec<NodeKnobs>, Vec<Action>, Option<Action>) {
        let targets: Vec<target::Target> =
            self.slots.iter().map(|slot| slot.target.clone()).collect();
        let mut desired = target::knobs(&self.nodes, &targets);
        for (knobs, cpus) in desired.iter_mut().zip(self.desired_cpus()) {
            knobs.extend(cpus);
        }
        for ((knobs, seat), slot) in desired.iter_mut().zip(&self.seats).zip(&self.slots) {
            let is_somewhere = !matches!(seat, Seat::Nowhere | Seat::Unknown(_));
            knobs.retain(|(knob, ..)| is_somewhere && !slot.theirs.contains(knob));
        }
        let known = self.known();
        let top = self.plan_top(&desired).filter(|a| known.iter().all(|k| *k) || !a.shrinks());
        let knobs: Vec<NodeKnobs> = self
            .nodes
            .iter()
            .zip(&self.slots)
            .zip(&mut desired)
            .map(|((node, slot), desired)| NodeKnobs {
                depth: node.depth,
                desired: std::mem::take(desired),
                observed: slot.observed.clone(),
            })
            .collect();
        let online = self.topology.as_ref().map(|topology| topology.online().clone());
        let mut actions = plan::plan(&knobs, &online.unwrap_or_default());
        // Nobody loses protection before it is known what it needs.
        actions.retain(|action| {
            action.knob != Knob::MemoryLow || known[action.node] || !action.shrinks()
        });
        (knobs, actions, top)
    }

    /// The slice above the tenants is protected by what is protected in it; the action is that of the node
    /// behind the last.
    fn plan_top(&self, desired: &[Vec<(Knob, Value, String)>]) -> Option<Action> {
        let slot = self.units.top()?;
        if slot.theirs.contains(&Knob::MemoryLow) {
            return None;
        }
        let observed = slot.observed.clone();
        // Those that we make may be in it too: in a service that lives there.
        let is_root_in_it = self.is_root_below_top();
        let is_in_it = |seat: &Seat| match seat {
            Seat::Slice(_) => true,
            Seat::Direct => is_root_in_it,
            Seat::Unit(_) | Seat::Nowhere | Seat::Unknown(_) => false,
        };
        let in_it = self.nodes.iter().zip(&self.seats).zip(desired);
        let in_it = in_it.filter(|((node, seat), _)| node.depth == 0 && is_in_it(seat));
        let low = |(knob, value, _): &(Knob, Value, String)| match (knob, value) {
            (Knob::MemoryLow, Value::Memory(Limit::Finite(bytes))) => Some(bytes.0),
            _ => None,
        };
        let sum = Bytes(in_it.flat_map(|(_, desired)| desired.iter().filter_map(low)).sum());
        let mut reason = format!("what is protected below it, {}", sum.rounded());
        let mut wanted = Limit::Finite(sum);
        if let Some(before) = self.top_before().filter(|before| *before > wanted) {
            reason = format!("its own, which is more than {}", reason);
            wanted = before;
        }
        let desired = vec![(Knob::MemoryLow, Value::Memory(wanted), reason)];
        let knobs = [NodeKnobs { depth: 0, desired, observed }];
        let action = plan::plan(&knobs, &CpuSet::new()).pop()?;
        Some(Action { node: self.nodes.len(), ..action })
    }

    /// How much of the slice above the tenants was protected before any of us: by its file, or by its
    /// administrator.
    fn top_before(&self) -> Option<Limit<Bytes>> {
        let unit = self.units.unit(self.nodes.len())?;
        let recorded = |entry: &Entry| match entry {
            Entry::UnitHeld(was) if was.unit == unit => was.held.expected(),
            _ => None,
        };
        let observed = || self.units.top()?.observed.first().map(|(_, value)| value.clone());
        match self.journal.entries().iter().find_map(recorded).or_else(observed)? {
            Value::Memory(low) => Some(low),
            _ => None,
        }
    }

    /// Whether the tenants that we make live in the slice above those of systemd's.
    fn is_root_below_top(&self) -> bool {
        let Some(tree) = self.layout.tree(Facet::Memory).map(|tree| &self.layout.trees[tree])
        else {
            return false;
        };
        tree.root.starts_with(tree.mount.join(TOP))
    }

    /// Whether the demands of each node, and of all below it, were ever estimated.
    fn known(&self) -> Vec<bool> {
        let is_known = |(node, slot): (&TreeNode, &Slot)| !node.is_leaf || slot.demand.is_some();
        let mut known: Vec<bool> = self.nodes.iter().zip(&self.slots).map(is_known).collect();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                known[parent] &= known[index];
            }
        }
        known
    }
}
