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

use std::fmt;

use super::weights;
pub use super::weights::WEIGHT_RANGE;

/// The smallest and the largest magnitude of a capacity, demand, guarantee or limit that is not zero.
///
/// Twenty-four powers of ten either way hold every unit of every resource from nanocores to all bytes
/// ever made, and keep every product of three of them inside `f64`.
pub const QUANTITY_RANGE: std::ops::RangeInclusive<f64> = 1e-24..=1e24;

/// Relative excess of the guarantees over the capacity that is tolerated: room for `0.1 + 0.2 > 0.3`.
const OVERBOOKING_TOLERANCE: f64 = 1e-12;

/// One node of the tree, as the caller describes it. All vectors have one entry for each resource; a caller
/// with a fixed number of resources uses arrays, which need no allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<V = Vec<f64>> {
    /// Its group: an index below its own; `None` right under the machine.
    pub parent: Option<usize>,
    /// Its weight against its siblings for each resource, within [`WEIGHT_RANGE`].
    pub weight: V,
    /// Leaf or group.
    pub kind: Kind<V>,
}

/// Leaf or group.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind<V = Vec<f64>> {
    /// Contains other nodes; may be empty.
    Group(Bounds<V>),
    /// Wants resources.
    Leaf(Demand<V>),
}

impl<V: AsRef<[f64]>> Kind<V> {
    fn bounds(&self) -> (&[f64], &[f64]) {
        match self {
            Kind::Group(bounds) => (bounds.guarantee.as_ref(), bounds.limit.as_ref()),
            Kind::Leaf(demand) => (demand.guarantee.as_ref(), demand.limit.as_ref()),
        }
    }
}

/// Guarantee and limit of a group for each resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Bounds<V = Vec<f64>> {
    /// Amount that its leaves get together whenever they want it; 0 is no guarantee. Guarantees below a
    /// group also count as guaranteed to the group.
    pub guarantee: V,
    /// Amount that its leaves never exceed together; `f64::INFINITY` is no limit.
    pub limit: V,
}

impl Bounds {
    /// Returns neither guarantee nor limit.
    pub fn none(resources: usize) -> Bounds {
        Bounds { guarantee: vec![0.0; resources], limit: vec![f64::INFINITY; resources] }
    }
}

/// Demand of a leaf: a number of tasks, each a vector of resources that are only useful together.
#[derive(Clone, Debug, PartialEq)]
pub struct Demand<V = Vec<f64>> {
    /// Amount of each resource that one task takes; zero if it takes none.
    pub task: V,
    /// Number of tasks it could run: any fraction, or `f64::INFINITY`.
    pub tasks: f64,
    /// Amount of each resource that it gets whenever it wants it; 0 is no guarantee.
    pub guarantee: V,
    /// Amount that it never exceeds; `f64::INFINITY` is no limit.
    pub limit: V,
}

impl Demand {
    /// A demand for `total` once, without guarantee or limit.
    pub fn once(total: Vec<f64>) -> Demand {
        Demand::tasks(total, 1.0)
    }

    /// A demand for `tasks` times `task`, without guarantee or limit.
    pub fn tasks(task: Vec<f64>, tasks: f64) -> Demand {
        let resources = task.len();
        Demand {
            task,
            tasks,
            guarantee: vec![0.0; resources],
            limit: vec![f64::INFINITY; resources],
        }
    }
}

/// Terms for weights and guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Meaning of per-resource weights.
    pub weights: Weights,
    /// Meaning of guarantees.
    pub guarantees: Guarantees,
}

/// Meaning of per-resource weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weights {
    /// As endowments, normalised over the siblings that demand the resource.
    #[default]
    Endowments,
    /// Used as written: the caller has normalised them.
    Normalised,
}

/// Meaning of guarantees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Guarantees {
    /// Always kept; they cannot add up to more than the capacity.
    #[default]
    Kept,
    /// Targets, like YARN's minimum shares; they may add up to more than the capacity. A weight may be 0:
    /// such a node gets its guarantee, and nothing of the rest.
    Targets,
}

/// Rule that chooses the next member of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// The member with the smallest weighted dominant share.
    #[default]
    Drf,
    /// The first member, in the order of the nodes, that can still grow.
    Fifo,
    /// The member with the smallest weighted share of this resource.
    Resource(usize),
}

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
        let mut findings = check_capacity(&capacity);
        for (index, node) in nodes.iter().enumerate() {
            check_node(index, node, &nodes, (terms, capacity.len()), &mut findings);
        }
        if findings.is_empty() && terms.guarantees == Guarantees::Kept {
            findings = overbooked(&capacity, &nodes);
        }
        if !findings.is_empty() {
            return Err(findings);
        }
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

/// One error in a problem.
#[derive(Clone, Debug, PartialEq)]
pub struct ProblemError {
    /// Place of the error.
    pub place: Place,
    /// The error.
    pub reason: Reason,
}

/// Place of an error in a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The capacity of a resource, or the list of capacities as a whole.
    Capacity(Option<usize>),
    /// A field of a node, and in it the entry of a resource.
    Node {
        /// The node.
        node: usize,
        /// Its field.
        field: Field,
        /// The resource, if the error is in one entry.
        resource: Option<usize>,
    },
}

/// A field of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields of `Node`, `Demand` and `Bounds`")]
pub enum Field {
    Parent,
    Weight,
    Task,
    Tasks,
    Guarantee,
    Limit,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Field::Parent => "parent",
            Field::Weight => "weight",
            Field::Task => "demand",
            Field::Tasks => "tasks",
            Field::Guarantee => "guarantee",
            Field::Limit => "limit",
        })
    }
}

/// Kind of error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reason {
    /// There is no resource to divide.
    NoResource,
    /// A vector does not have one entry for each resource, or a parent is not a group before its child.
    Misshapen,
    /// The number is negative or not a number.
    NotANumber(f64),
    /// The number is neither zero nor within [`QUANTITY_RANGE`], or the weight is not within
    /// [`WEIGHT_RANGE`].
    OutOfRange(f64),
    /// The limit is below this guarantee.
    LimitBelowGuarantee(f64),
    /// The limit of a group is below the sum of its leaves' guarantees, given here.
    LimitBelowPromises(f64),
    /// The guarantees for this resource add up to more than its capacity.
    Overbooked {
        /// The sum of the guarantees.
        promised: f64,
        /// The capacity.
        capacity: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::NoResource => f.write_str("there is no resource to divide"),
            Reason::Misshapen => f.write_str("does not fit the shape of the problem"),
            Reason::NotANumber(value) => write!(f, "{value} is no amount"),
            Reason::OutOfRange(value) => write!(f, "{value} is out of range"),
            Reason::LimitBelowGuarantee(guarantee) => {
                write!(f, "the limit is below the guarantee of {guarantee}")
            }
            Reason::LimitBelowPromises(promised) => {
                write!(f, "the limit is below the {promised} that are guaranteed in the group")
            }
            Reason::Overbooked { promised, capacity } => {
                write!(f, "the guarantees add up to {promised}, and there is only {capacity}")
            }
        }
    }
}

impl fmt::Display for ProblemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Place::Capacity(None) => write!(f, "capacity: {}", self.reason),
            Place::Capacity(Some(r)) => write!(f, "capacity of resource {r}: {}", self.reason),
            Place::Node { node, field, resource: None } => {
                write!(f, "node {node}: {field}: {}", self.reason)
            }
            Place::Node { node, field, resource: Some(r) } => {
                write!(f, "node {node}: {field} of resource {r}: {}", self.reason)
            }
        }
    }
}

impl std::error::Error for ProblemError {}

/// Returns the error of a quantity, if any.
fn check_quantity(value: f64) -> Option<Reason> {
    if value.is_nan() || value < 0.0 {
        Some(Reason::NotANumber(value))
    } else if value != 0.0 && !QUANTITY_RANGE.contains(&value) {
        Some(Reason::OutOfRange(value))
    } else {
        None
    }
}

/// Returns the error of a weight, if any.
fn check_weight(value: f64) -> Option<Reason> {
    if value.is_nan() || value < 0.0 {
        Some(Reason::NotANumber(value))
    } else if !WEIGHT_RANGE.contains(&value) {
        Some(Reason::OutOfRange(value))
    } else {
        None
    }
}

fn check_capacity(capacity: &[f64]) -> Vec<ProblemError> {
    if capacity.is_empty() {
        return vec![ProblemError { place: Place::Capacity(None), reason: Reason::NoResource }];
    }
    let wrong = |(resource, &value): (usize, &f64)| {
        let reason = check_quantity(value)?;
        Some(ProblemError { place: Place::Capacity(Some(resource)), reason })
    };
    capacity.iter().enumerate().filter_map(wrong).collect()
}

fn check_node<V: AsRef<[f64]>>(
    index: usize,
    node: &Node<V>,
    nodes: &[Node<V>],
    (terms, resources): (Terms, usize),
    findings: &mut Vec<ProblemError>,
) {
    let mut find = |field, resource, reason| {
        findings.push(ProblemError { place: Place::Node { node: index, field, resource }, reason });
    };
    let is_group_before = |p: usize| p < index && matches!(nodes[p].kind, Kind::Group(_));
    if node.parent.is_some_and(|parent| !is_group_before(parent)) {
        find(Field::Parent, None, Reason::Misshapen);
    }
    let mut check = |field, vector: &[f64], wrong: fn(f64) -> Option<Reason>| {
        if vector.len() != resources {
            find(field, None, Reason::Misshapen);
        }
        for (resource, &value) in vector.iter().enumerate() {
            if let Some(reason) = wrong(value) {
                find(field, Some(resource), reason);
            }
        }
    };
    let or_zero = |value| if value == 0.0 { None } else { check_weight(value) };
    let is_target = terms.guarantees == Guarantees::Targets;
    check(Field::Weight, node.weight.as_ref(), if is_target { or_zero } else { check_weight });
    let unless_infinite = |value| if value == f64::INFINITY { None } else { check_quantity(value) };
    let (guarantees, limits) = node.kind.bounds();
    if let Kind::Leaf(demand) = &node.kind {
        check(Field::Task, demand.task.as_ref(), check_quantity);
    }
    check(Field::Guarantee, guarantees, check_quantity);
    check(Field::Limit, limits, unless_infinite);
    if let Kind::Leaf(demand) = &node.kind
        && let Some(reason) = unless_infinite(demand.tasks)
    {
        find(Field::Tasks, None, reason);
    }
    for (resource, (&limit, &guarantee)) in limits.iter().zip(guarantees).enumerate() {
        if limit < guarantee {
            find(Field::Limit, Some(resource), Reason::LimitBelowGuarantee(guarantee));
        }
    }
}

/// Returns the limits that are below the guarantees in their groups, and the resources whose guarantees
/// exceed the capacity, each reported at the guarantee that exceeds it.
///
/// The guarantee that counts for a group is the larger of its own and the sum of those of its members.
fn overbooked<V: AsRef<[f64]>>(capacity: &[f64], nodes: &[Node<V>]) -> Vec<ProblemError> {
    let mut findings = Vec::new();
    for (resource, &capacity) in capacity.iter().enumerate() {
        let mut below = vec![0.0; nodes.len()];
        for (index, node) in nodes.iter().enumerate().rev() {
            let (guarantees, limits) = node.kind.bounds();
            let promised = guarantees[resource].max(below[index]);
            if limits[resource] * (1.0 + OVERBOOKING_TOLERANCE) < below[index] {
                let place =
                    Place::Node { node: index, field: Field::Limit, resource: Some(resource) };
                let reason = Reason::LimitBelowPromises(below[index]);
                findings.push(ProblemError { place, reason });
            }
            if let Some(parent) = node.parent {
                below[parent] += promised;
            }
        }
        // A group guaranteed more than its members together counts with its own guarantee.
        let mut spoken_for = vec![false; nodes.len()];
        let (mut promised, mut first_too_many) = (0.0, None);
        for (index, node) in nodes.iter().enumerate() {
            let guarantee = node.kind.bounds().0[resource];
            let above = node.parent.is_some_and(|parent| spoken_for[parent]);
            let speaks = guarantee >= below[index] && guarantee > 0.0;
            spoken_for[index] = above || speaks;
            if speaks && !above {
                promised += guarantee;
            }
            if promised > capacity * (1.0 + OVERBOOKING_TOLERANCE) {
                first_too_many = first_too_many.or(Some(index));
            }
        }
        if let Some(node) = first_too_many {
            let place = Place::Node { node, field: Field::Guarantee, resource: Some(resource) };
            findings
                .push(ProblemError { place, reason: Reason::Overbooked { promised, capacity } });
        }
    }
    findings
}
