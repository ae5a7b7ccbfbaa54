//! The checks of a problem, and its possible errors.

use std::fmt;

use super::node::{Guarantees, Kind, Node, Terms};
use super::weights::WEIGHT_RANGE;

/// The smallest and the largest magnitude of a capacity, demand, guarantee or limit that is not zero.
///
/// Twenty-four powers of ten either way hold every unit of every resource from nanocores to all bytes
/// ever made, and keep every product of three of them inside `f64`.
pub const QUANTITY_RANGE: std::ops::RangeInclusive<f64> = 1e-24..=1e24;

/// Relative excess of the guarantees over the capacity that is tolerated: room for `0.1 + 0.2 > 0.3`.
const OVERBOOKING_TOLERANCE: f64 = 1e-12;

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

/// Checks all numbers of a problem.
///
/// # Errors
/// Every finding, in the order of the nodes; see [`Reason`].
pub(super) fn check<V: AsRef<[f64]>>(
    terms: Terms,
    capacity: &[f64],
    nodes: &[Node<V>],
) -> Result<(), Vec<ProblemError>> {
    let mut findings = check_capacity(capacity);
    for (index, node) in nodes.iter().enumerate() {
        check_node(index, node, nodes, (terms, capacity.len()), &mut findings);
    }
    if findings.is_empty() && terms.guarantees == Guarantees::Kept {
        findings = overbooked(capacity, nodes);
    }
    if findings.is_empty() { Ok(()) } else { Err(findings) }
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
