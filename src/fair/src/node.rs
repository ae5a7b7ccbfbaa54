//! The nodes of a problem and its terms, as the caller describes them.

/// One node of the tree, as the caller describes it. All vectors have one entry for each resource; a caller
/// with a fixed number of resources uses arrays, which need no allocation.
#[derive(Clone, Debug, PartialEq)]
pub struct Node<V = Vec<f64>> {
    /// Its group: an index below its own; `None` right under the machine.
    pub parent: Option<usize>,
    /// Its weight against its siblings for each resource, within [`super::problem::WEIGHT_RANGE`].
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
    pub(super) fn bounds(&self) -> (&[f64], &[f64]) {
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
