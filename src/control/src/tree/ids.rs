//! Identities of the nodes of a tree, by position, and back.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use tenantd_core::node::{NodeId, NodeMap};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Recorded", into = "Recorded")]
pub(super) struct Ids {
    by_position: Arc<[NodeId]>,
    positions: Arc<NodeMap<usize>>,
    /// Identity of the next new node.
    next: NodeId,
}

impl Ids {
    pub(super) fn first(count: usize) -> Ids {
        let mut new = NodeId::first();
        let by_position = new.by_ref().take(count).collect();
        Ids::of(by_position, new.next().unwrap_or_default())
    }

    fn of(by_position: Vec<NodeId>, next: NodeId) -> Ids {
        let positions = by_position.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        Ids { by_position: by_position.into(), positions: Arc::new(positions), next }
    }

    /// Takes the identities in `before` of the nodes that stay; `kept` has their positions here.
    pub(super) fn after(&self, before: &Ids, kept: &[Option<usize>]) -> Ids {
        let mut ids: Vec<Option<NodeId>> = vec![None; self.by_position.len()];
        for (id, new) in before.by_position.iter().zip(kept) {
            if let Some(place) = new.and_then(|new| ids.get_mut(new)) {
                place.get_or_insert(*id);
            }
        }
        let mut next = before.next;
        let mut new = || {
            let id = next;
            next = id.next();
            id
        };
        let ids = ids.into_iter().map(|id| id.unwrap_or_else(&mut new)).collect();
        Ids::of(ids, next)
    }

    pub(super) fn at(&self, position: usize) -> NodeId {
        self.by_position.get(position).copied().unwrap_or_default()
    }

    pub(super) fn position(&self, id: NodeId) -> Option<usize> {
        self.positions.get(id).copied()
    }
}

/// Recorded form: the positions follow from it.
#[derive(Serialize, Deserialize)]
struct Recorded {
    by_position: Arc<[NodeId]>,
    next: NodeId,
}

impl From<Ids> for Recorded {
    fn from(ids: Ids) -> Recorded {
        Recorded { by_position: ids.by_position, next: ids.next }
    }
}

impl From<Recorded> for Ids {
    fn from(Recorded { by_position, next }: Recorded) -> Ids {
        Ids::of(by_position.to_vec(), next)
    }
}
