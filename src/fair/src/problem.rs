//! The problem: the capacity, the nodes that share it, and the terms.
//!
//! A [`Problem`] is a tree. Its leaves want resources; its groups contain leaves and groups and may bound
//! their sum. A group with no node above it is a root of its own, and all nodes without a parent are
//! siblings under the machine. The nodes are in pre-order, every parent before its children, so that one
//! pass up or down the tree is one loop over an array and no depth can overflow the stack.
//!
//! [`Problem::try_new`] checks all numbers once, and reports all errors in one list. After that the
//! functions of the core are total: they take a valid problem and return an allocation.
//!
//! # Entitlements
//!
//! A *scalar* weight (the same for every resource) is used as it is written: this is DRF as published. Once
//! some sibling carries different weights for different resources, the weights are endowments in the sense
//! of Parkes, Procaccia and Shah: each resource's weights are divided by their sum over the siblings that
//! demand it. Without the division a tenant may get less than its own part of the machine would have given
//! it (test `endowments_are_normalised`). Why not always divide? Because with demands of zero the sums
//! differ from resource to resource, and equal scalar weights would no longer give the allocation that
//! every paper prints (test `scalar_weights_are_used_as_written`). Where all demands are positive both
//! rules agree.

use super::check::check;
pub use super::check::{Field, Place, ProblemError, QUANTITY_RANGE, Reason};
pub use super::node::{Bounds, Demand, Guarantees, Kind, Node, Order, Terms, Weights};
use super::weights;
pub use super::weights::WEIGHT_RANGE;

/// A valid problem: `n` nodes and `m` resources, the matrices row-major, a row for each node.
#[derive(Clone, Debug)]
pub struct Problem {
    pub(super) capacity: Vec<f64>,
    pub(super) parent: Vec<Option<usize>>,
    pub(super) is_leaf: Vec<bool>,
    /// Normalised weights (see the essay above).
    pub(super) weight: Vec<f64>,
    /// For each set of siblings, true if its weights are scalar ([`super::weights::sibling_set`]).
    pub(super) scalar: Vec<bool>,
    /// Zero rows for groups, and for leaves that want no task.
    pub(super) task: Vec<f64>,
    pub(super) tasks: Vec<f64>,
    pub(super) guarantee: Vec<f64>,
    pub(super) limit: Vec<f64>,
    /// The order of each set of siblings; empty where all are [`Order::Drf`].
    pub(super) order: Vec<Order>,
}

impl Problem {
    /// The problem of dividing `capacity` among the leaves of `nodes`, on the usual terms.
    ///
    /// # Errors
    /// Every finding, in the order of the nodes; see [`Reason`].
    pub fn try_new<V: AsRef<[f64]>>(
        capacity: Vec<f64>,
        nodes: Vec<Node<V>>,
    ) -> Result<Problem, Vec<ProblemError>> {
        Problem::try_new_on(Terms::default(), capacity, nodes)
    }

    /// Same as [`Problem::try_new`], on given terms.
    ///
    /// # Errors
    /// As [`Problem::try_new`].
    pub fn try_new_on<V: AsRef<[f64]>>(
        terms: Terms,
        capacity: Vec<f64>,
        nodes: Vec<Node<V>>,
    ) -> Result<Problem, Vec<ProblemError>> {
        check(terms, &capacity, &nodes)?;
        let mut problem = Problem::flatten(capacity, &nodes);
        problem.scalar = match terms.weights {
            Weights::Endowments => {
                weights::normalise(&problem.parent, &problem.task, &mut problem.weight)
            }
            Weights::Normalised => vec![false; problem.nodes() + 1],
        };
        Ok(problem)
    }

    /// Lays checked nodes out as matrices.
    fn flatten<V: AsRef<[f64]>>(capacity: Vec<f64>, nodes: &[Node<V>]) -> Problem {
        let (n, m) = (nodes.len(), capacity.len());
        let matrix = || Vec::with_capacity(n * m);
        let mut problem = Problem {
            capacity,
            parent: Vec::with_capacity(n),
            is_leaf: Vec::with_capacity(n),
            weight: matrix(),
            scalar: Vec::new(),
            task: matrix(),
            tasks: Vec::with_capacity(n),
            guarantee: matrix(),
            limit: matrix(),
            order: Vec::new(),
        };
        for node in nodes {
            problem.parent.push(node.parent);
            problem.weight.extend_from_slice(node.weight.as_ref());
            problem.push(&node.kind);
        }
        // A negative zero sorts behind everything else.
        let Problem { capacity, weight, task, tasks, guarantee, limit, .. } = &mut problem;
        for amounts in [capacity, weight, task, tasks, guarantee, limit] {
            amounts.iter_mut().for_each(|amount| *amount += 0.0);
        }
        problem
    }

    /// Appends the rows of a node. A group, and a leaf without tasks, demand nothing themselves; the bounds
    /// of such a leaf have no effect.
    fn push<V: AsRef<[f64]>>(&mut self, kind: &Kind<V>) {
        let m = self.resources();
        let (guarantee, limit) = kind.bounds();
        let is_leaf = matches!(kind, Kind::Leaf(_));
        let tasks = if let Kind::Leaf(demand) = kind { demand.tasks } else { 0.0 };
        self.is_leaf.push(is_leaf);
        self.tasks.push(tasks);
        match kind {
            Kind::Leaf(demand) if tasks > 0.0 => {
                self.task.extend_from_slice(demand.task.as_ref());
            }
            Kind::Leaf(_) | Kind::Group(_) => self.task.extend(std::iter::repeat_n(0.0, m)),
        }
        if is_leaf && tasks == 0.0 {
            self.guarantee.extend(std::iter::repeat_n(0.0, m));
            self.limit.extend(std::iter::repeat_n(f64::INFINITY, m));
        } else {
            self.guarantee.extend_from_slice(guarantee);
            self.limit.extend_from_slice(limit);
        }
    }

    /// Sets the order of the nodes under the machine, and of the members of each group.
    #[must_use]
    pub fn ordered(mut self, machine: Order, group: impl Fn(usize) -> Order) -> Problem {
        let orders = std::iter::once(machine).chain((0..self.nodes()).map(group));
        self.order = orders.collect();
        if self.order.iter().all(|order| *order == Order::Drf) {
            self.order.clear();
        }
        self
    }

    /// The order of the members of a group, or for `None` of the nodes under the machine.
    pub(super) fn order(&self, group: Option<usize>) -> Order {
        self.order.get(group.map_or(0, |group| group + 1)).copied().unwrap_or_default()
    }

    /// Number of resources: `m`.
    pub fn resources(&self) -> usize {
        self.capacity.len()
    }

    /// Number of nodes: `n`.
    pub fn nodes(&self) -> usize {
        self.parent.len()
    }

    /// Capacity of each resource.
    pub fn capacity(&self) -> &[f64] {
        &self.capacity
    }

    /// The group of a node.
    pub fn parent(&self, node: usize) -> Option<usize> {
        self.parent[node]
    }

    /// The leaves, in node order.
    pub fn leaves(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.nodes()).filter(|&node| self.is_leaf[node])
    }

    /// True if there are no groups.
    pub fn is_flat(&self) -> bool {
        self.parent.iter().all(Option::is_none) && self.is_leaf.iter().all(|&leaf| leaf)
    }

    /// The normalised weights of a node.
    pub fn weight(&self, node: usize) -> &[f64] {
        &self.weight[self.row(node)]
    }

    /// Demand of one task of a leaf; zeros for a group.
    pub fn task(&self, leaf: usize) -> &[f64] {
        &self.task[self.row(leaf)]
    }

    /// Number of tasks that a leaf could run.
    pub fn tasks(&self, leaf: usize) -> f64 {
        self.tasks[leaf]
    }

    /// The guarantees of a node.
    pub fn guarantee(&self, node: usize) -> &[f64] {
        &self.guarantee[self.row(node)]
    }

    /// The limits of a node.
    pub fn limit(&self, node: usize) -> &[f64] {
        &self.limit[self.row(node)]
    }

    /// The groups whose limits apply to a node, from the nearest up.
    pub fn groups_above(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(self.parent[node], |&group| self.parent[group])
    }

    /// Range of a node's row in the matrices.
    pub(super) fn row(&self, node: usize) -> std::ops::Range<usize> {
        let m = self.resources();
        node * m..(node + 1) * m
    }

    /// The largest amount of one resource that a leaf could use: its demand within its limit.
    pub(super) fn ceiling(&self, leaf: usize, resource: usize) -> f64 {
        match self.task(leaf)[resource] {
            0.0 => 0.0,
            task => (task * self.tasks[leaf]).min(self.limit(leaf)[resource]),
        }
    }

    /// The guarantee of a leaf for one resource, at most its demand.
    pub(super) fn floor(&self, leaf: usize, resource: usize) -> f64 {
        self.guarantee(leaf)[resource].min(self.ceiling(leaf, resource))
    }
}
