//! Requests that wait for the end of others, and the turns that they donate.
//!
//! # Problem
//! A request may have to wait until others have ended. Its tenant then has nothing to run, although its turn comes,
//! because a request of another tenant is behind many: a small request of a poor tenant holds up the chain of a rich one.
//! This is priority inversion; the known answer is that the holder inherits the priority of those that wait for it.
//!
//! # Terms
//! *Requirement*: the request that has to end first; with success, if the waiting request asks for that. *Blocked*: with a
//! requirement that has not ended. *Root*: a requirement that is not blocked itself. *Donor* of a root: a tenant with a
//! blocked request that waits for the root, directly or through other requests.
//!
//! # Rule
//! A blocked request has no entry in the queue. Instead each of its roots that waits has, beside its own entry, one entry in
//! the queue of each donor, at the place at which the blocked request came. A root so starts at the earliest turn of its
//! own tenant and of its donors: the best claim of those that wait. The tenant whose turn it was pays for the root, as for
//! a request of its own. All other limits of the root are those of its own tenant.
//!
//! # Bounds
//! - A third tenant sees no difference: the donor spends a turn that it would have spent on a request of its own. So
//!   fairness, the bound on overtaking and the absence of starvation are those of the discipline.
//! - The tenant of the root pays nothing, and loses no place: its own entry stays until the root starts.
//! - A donor has one entry for each root, however many of its requests wait for it.
//! - A requirement has a smaller number than the request that waits for it, so there is no cycle.
//! - A search visits at most [`VISITED_MAX`] requests; a donor behind more of them donates nothing, and still waits
//!   correctly.
//!
//! Properties: the tests below and `a_third_tenant_sees_no_donation` of the crate `admission`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

/// Most requests that one search visits.
pub const VISITED_MAX: usize = 2048;

/// Requirements of all blocked requests, by number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Graph {
    /// Requirements that have not ended, each with true if it has to succeed.
    after: BTreeMap<u64, BTreeMap<u64, bool>>,
    /// Requests that wait for each requirement.
    dependants: BTreeMap<u64, BTreeSet<u64>>,
}

/// Requests that an end has changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unblocked {
    /// Requests without a further requirement.
    pub ready: Vec<u64>,
    /// Requests whose requirement has failed. They have left the graph.
    pub failed: Vec<u64>,
}

impl Graph {
    /// Adds a blocked request. Requirements that are not older than it are left out.
    pub fn add(&mut self, id: u64, requirements: impl IntoIterator<Item = (u64, bool)>) {
        for (required, must_succeed) in requirements {
            if required < id {
                *self.after.entry(id).or_default().entry(required).or_default() |= must_succeed;
                self.dependants.entry(required).or_default().insert(id);
            }
        }
    }

    /// Removes a request that waits no more, with its requirements. Others may still wait for it.
    pub fn remove(&mut self, id: u64) {
        for required in self.after.remove(&id).unwrap_or_default().into_keys() {
            if let Some(dependants) = self.dependants.get_mut(&required) {
                dependants.remove(&id);
                if dependants.is_empty() {
                    self.dependants.remove(&required);
                }
            }
        }
    }

    /// Records the end of a requirement.
    pub fn ended(&mut self, required: u64, has_succeeded: bool) -> Unblocked {
        let mut unblocked = Unblocked::default();
        for id in self.dependants.remove(&required).unwrap_or_default() {
            let Some(after) = self.after.get_mut(&id) else { continue };
            if after.remove(&required) == Some(true) && !has_succeeded {
                unblocked.failed.push(id);
            } else if after.is_empty() {
                unblocked.ready.push(id);
            }
        }
        unblocked.ready.iter().chain(&unblocked.failed).for_each(|id| self.remove(*id));
        unblocked
    }

    /// True if a request is blocked.
    pub fn is_blocked(&self, id: u64) -> bool {
        self.after.contains_key(&id)
    }

    /// True if a request waits for this one.
    pub fn is_required(&self, id: u64) -> bool {
        self.dependants.contains_key(&id)
    }

    /// Requirements of a blocked request that have not ended, each with true if it has to succeed.
    pub fn requirements(&self, id: u64) -> impl Iterator<Item = (u64, bool)> {
        self.after.get(&id).into_iter().flatten().map(|(id, must_succeed)| (*id, *must_succeed))
    }

    /// All requirements that have not ended.
    pub fn required(&self) -> impl Iterator<Item = u64> {
        self.dependants.keys().copied()
    }

    /// All blocked requests.
    pub fn blocked(&self) -> impl Iterator<Item = u64> {
        self.after.keys().copied()
    }

    /// Number of blocked requests.
    pub fn nr_blocked(&self) -> usize {
        self.after.len()
    }

    /// Requests that wait for this one, directly or through others.
    pub fn waiting_for(&self, id: u64) -> BTreeSet<u64> {
        self.search(id, |it| self.dependants.get(&it).into_iter().flatten().copied().collect())
    }

    /// Roots of a blocked request.
    pub fn roots(&self, id: u64) -> Vec<u64> {
        let all = self.search(id, |it| self.requirements(it).map(|(id, _)| id).collect());
        all.into_iter().filter(|it| !self.is_blocked(*it)).collect()
    }

    fn search(&self, from: u64, next: impl Fn(u64) -> Vec<u64>) -> BTreeSet<u64> {
        let (mut found, mut open) = (BTreeSet::new(), VecDeque::from([from]));
        while let Some(id) = open.pop_front() {
            for other in next(id) {
                if found.len() >= VISITED_MAX {
                    return found;
                }
                if found.insert(other) {
                    open.push_back(other);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_request_is_ready_after_its_last_requirement() {
        let mut graph = Graph::default();
        graph.add(3, [(1, false), (2, true)]);
        graph.add(4, [(3, false), (4, true), (5, true)]);
        assert_eq!(graph.requirements(4).collect::<Vec<_>>(), [(3, false)], "older ones only");
        assert_eq!((graph.roots(4), graph.waiting_for(1)), (vec![1, 2], BTreeSet::from([3, 4])));
        assert_eq!(graph.ended(1, false), Unblocked::default(), "any end");
        assert_eq!(graph.clone().ended(2, false).failed, [3]);
        assert_eq!(graph.ended(2, true).ready, [3]);
        assert!(!graph.is_blocked(3) && graph.is_required(3));
        assert_eq!(graph.ended(3, false).ready, [4]);
        assert_eq!(graph, Graph::default(), "nothing is left");
    }

    #[test]
    fn one_that_leaves_takes_its_requirements_with_it() {
        let mut graph = Graph::default();
        graph.add(2, [(1, true)]);
        graph.add(3, [(2, false)]);
        graph.remove(2);
        assert!(!graph.is_required(1) && graph.is_blocked(3));
        assert_eq!(graph.ended(2, false).ready, [3]);
        assert_eq!(graph, Graph::default());
    }

    proptest! {
        /// Whatever waits for whatever: if requests end in any possible order, each becomes ready or fails exactly once, none
        /// waits forever, and nothing is left.
        #[test]
        fn no_request_waits_forever(
            edges in prop::collection::vec((1_u64..40, 1_u64..40, any::<bool>()), 0..120),
            fates in prop::collection::vec(any::<bool>(), 40),
            picks in prop::collection::vec(0_usize..40, 40),
        ) {
            let mut graph = Graph::default();
            for (a, b, must_succeed) in edges {
                graph.add(a.max(b), [(a.min(b), must_succeed)]);
            }
            let mut open: Vec<u64> = (1..40).filter(|id| !graph.is_blocked(*id)).collect();
            let mut failed = VecDeque::new();
            let mut settled = BTreeSet::new();
            for pick in picks.into_iter().cycle().take(400) {
                let (id, fate) = match failed.pop_front() {
                    Some(id) => (id, false),
                    None if open.is_empty() => break,
                    None => {
                        let id = open.swap_remove(pick % open.len());
                        (id, fates[id as usize])
                    }
                };
                prop_assert!(settled.insert(id), "{} twice", id);
                let unblocked = graph.ended(id, fate);
                open.extend(unblocked.ready);
                failed.extend(unblocked.failed);
            }
            prop_assert_eq!(settled.len(), 39);
            prop_assert_eq!(graph, Graph::default());
        }
    }
}
