//! Identities of nodes: tenants and groups of a policy, their cgroups, and the cgroups above them.
//!
//! **Problem.** Nodes come and go: a reload reorders tenants, a user logs in, a tenant gets a second cgroup. An
//! owner that keeps positions in the tree beyond a tick must follow each such change. If it forgets one, it
//! reports about the wrong tenant, or indexes beyond the end.
//!
//! **Rules.** A node gets its identity ([`NodeId`]) in its first tree. Each next tree takes the identities of
//! the nodes that stay; a new node gets one that no node had before in this run. State that outlives a tick is
//! kept by identity ([`NodeMap`]). After a change of the tree its owner has nothing to do but to drop the nodes
//! that ended. An identity that ended is found nowhere.
//!
//! **Positions** belong to algorithms within a tick, which go through dense arrays, parents before children.
//! Only the tree converts identities into positions.
//!
//! **Cost.** Identities grow, so a map is two arrays in their order. A new node is appended. A node is found at
//! once while no node before it has ended, else in O(log n). Ended nodes take no memory.

use serde::{Deserialize, Serialize};

/// Identity of a node, unique in a run of the agent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct NodeId(u32);

impl NodeId {
    /// Identities of the first tree, in its order.
    pub fn first() -> impl Iterator<Item = NodeId> {
        std::iter::successors(Some(NodeId::default()), |id| Some(id.next()))
    }

    /// True in one of `nr` ticks, which differs between nodes.
    pub fn is_turn(self, tick: u64, nr: u64) -> bool {
        (tick + u64::from(self.0)).is_multiple_of(nr)
    }

    /// The next new identity.
    #[must_use]
    pub fn next(self) -> NodeId {
        NodeId(self.0.wrapping_add(1))
    }
}

/// Values of nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeMap<T> {
    /// In ascending order.
    ids: Vec<NodeId>,
    values: Vec<T>,
}

impl<T> Default for NodeMap<T> {
    fn default() -> NodeMap<T> {
        NodeMap { ids: Vec::new(), values: Vec::new() }
    }
}

impl<T> NodeMap<T> {
    /// Place of a node in the arrays, or the place for it.
    fn place(&self, id: NodeId) -> Result<usize, usize> {
        // Gaps only move a node towards the front.
        let first = self.ids.first().map_or(0, |first| first.0);
        let last = (id.0.saturating_sub(first) as usize).min(self.ids.len());
        match self.ids.get(last) {
            Some(found) if *found == id => Ok(last),
            _ => self.ids[..last].binary_search(&id),
        }
    }

    /// Value of a node.
    pub fn get(&self, id: NodeId) -> Option<&T> {
        self.values.get(self.place(id).ok()?)
    }

    /// Value of a node, mutable.
    pub fn get_mut(&mut self, id: NodeId) -> Option<&mut T> {
        let place = self.place(id).ok()?;
        self.values.get_mut(place)
    }

    /// Sets the value of a node; returns the earlier one.
    pub fn insert(&mut self, id: NodeId, value: T) -> Option<T> {
        match self.place(id) {
            Ok(place) => Some(std::mem::replace(&mut self.values[place], value)),
            Err(place) => {
                self.ids.insert(place, id);
                self.values.insert(place, value);
                None
            }
        }
    }

    /// Value of a node, created if needed.
    pub fn or_default(&mut self, id: NodeId) -> &mut T
    where
        T: Default,
    {
        let place = self.place(id).unwrap_or_else(|place| {
            self.ids.insert(place, id);
            self.values.insert(place, T::default());
            place
        });
        &mut self.values[place]
    }

    /// Removes the value of a node.
    pub fn remove(&mut self, id: NodeId) -> Option<T> {
        let place = self.place(id).ok()?;
        self.ids.remove(place);
        Some(self.values.remove(place))
    }

    /// Keeps the values of the nodes for which `stays`.
    pub fn retain(&mut self, stays: impl Fn(NodeId) -> bool) {
        let mut ids = self.ids.iter();
        self.values.retain(|_| ids.next().is_some_and(|id| stays(*id)));
        self.ids.retain(|id| stays(*id));
    }

    /// Nodes with their values, in the order of their identities.
    pub fn iter(&self) -> impl Iterator<Item = (NodeId, &T)> {
        self.ids.iter().copied().zip(&self.values)
    }

    /// Nodes with their values, mutable.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (NodeId, &mut T)> {
        self.ids.iter().copied().zip(&mut self.values)
    }

    /// Values in the order of the identities.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.values.iter()
    }

    /// Values in the order of the identities, mutable.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.values.iter_mut()
    }
}

impl<T> IntoIterator for NodeMap<T> {
    type Item = (NodeId, T);
    type IntoIter = std::iter::Zip<std::vec::IntoIter<NodeId>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.ids.into_iter().zip(self.values)
    }
}

impl<T> FromIterator<(NodeId, T)> for NodeMap<T> {
    fn from_iter<I: IntoIterator<Item = (NodeId, T)>>(all: I) -> NodeMap<T> {
        let mut all: Vec<(NodeId, T)> = all.into_iter().collect();
        all.sort_by_key(|(id, _)| *id);
        all.dedup_by_key(|(id, _)| *id);
        let (ids, values) = all.into_iter().unzip();
        NodeMap { ids, values }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn values_stay_with_their_nodes_while_others_come_and_go() {
        let (mut map, mut model) = (NodeMap::default(), BTreeMap::new());
        let (mut next, mut random) = (NodeId(7), 1_u64);
        for step in 0..4000_u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let known = NodeId((random >> 33) as u32 % next.0);
            match (random >> 60) % 5 {
                0 => assert_eq!(map.remove(known), model.remove(&known)),
                1 => assert_eq!(map.insert(known, step), model.insert(known, step)),
                2 if step % 50 == 0 => {
                    let stays = |id: NodeId| !(id.0 ^ step).is_multiple_of(3);
                    map.retain(stays);
                    model.retain(|id, _| stays(*id));
                }
                _ => {
                    assert_eq!(map.insert(next, step), model.insert(next, step));
                    next = next.next();
                }
            }
            assert_eq!(map.get(known), model.get(&known));
            assert!(map.iter().eq(model.iter().map(|(id, value)| (*id, value))));
        }
        let again: NodeMap<u32> = map.iter().map(|(id, value)| (id, *value)).collect();
        assert_eq!(again, map);
    }
}
