//! The slow oracle: hierarchical DRF as its paper has it, a small step at a time.
//!
//! Before every step all vectors and shares are added up anew, by the three rules and nothing else; then
//! the step goes down from the machine to the member with the smallest share. It shares no code with the
//! product, and is exact to about a step.

use tenantd_fair::{Kind, Node};

/// The machine and its tenants, and how far they have come.
pub(crate) struct Filling<'a> {
    capacity: &'a [f64],
    nodes: &'a [Node],
    pub(crate) tasks: Vec<f64>,
    saturated: Vec<bool>,
    /// Whether a group has reached its limit.
    full: Vec<bool>,
    blocked: Vec<bool>,
}

/// What a node is counted with.
#[derive(Clone, Default)]
struct Count {
    guaranteed: Vec<f64>,
    vector: Vec<f64>,
    guaranteed_level: f64,
    level: f64,
    blocked: bool,
}

impl<'a> Filling<'a> {
    pub(crate) fn new(capacity: &'a [f64], nodes: &'a [Node]) -> Filling<'a> {
        let tasks = (0..nodes.len()).map(|node| bounds(&nodes[node]).0).collect();
        let blocked = vec![false; nodes.len()];
        let full = vec![false; nodes.len() * capacity.len()];
        Filling { capacity, nodes, tasks, saturated: vec![false; capacity.len()], full, blocked }
    }

    fn groups_above(&self, node: usize) -> impl Iterator<Item = usize> + use<'a> {
        let nodes = self.nodes;
        std::iter::successors(nodes[node].parent, move |&group| nodes[group].parent)
    }

    /// Whether there is more of a resource for the members of a group.
    fn is_live(&self, group: Option<usize>, r: usize) -> bool {
        let Some(group) = group else { return !self.saturated[r] };
        let full = |group: usize| self.full[group * self.capacity.len() + r];
        !self.saturated[r] && !full(group) && !self.groups_above(group).any(full)
    }

    fn used_in(&self, group: usize, r: usize) -> f64 {
        let used = |(node, it): (usize, &Node)| match &it.kind {
            Kind::Leaf(demand) if self.groups_above(node).any(|above| above == group) => {
                demand.task[r] * self.tasks[node]
            }
            _ => 0.0,
        };
        self.nodes.iter().enumerate().map(used).sum()
    }

    /// Fills in steps that raise a leaf's level by `step`.
    pub(crate) fn run(mut self, step: f64) -> Vec<f64> {
        while let Some(leaf) = self.next() {
            let Kind::Leaf(demand) = &self.nodes[leaf].kind else { unreachable!() };
            let (_, hi) = bounds(&self.nodes[leaf]);
            let more = (step / self.rho(leaf)).min(hi - self.tasks[leaf]);
            let mut fits = true;
            for (r, task) in demand.task.iter().enumerate().filter(|(_, task)| **task > 0.0) {
                if self.used(r) + more * task > self.capacity[r] * (1.0 + 1e-9) {
                    self.saturated[r] = true;
                    fits = false;
                }
                for group in self.groups_above(leaf) {
                    let Kind::Group(bounds) = &self.nodes[group].kind else { continue };
                    if self.used_in(group, r) + more * task > bounds.limit[r] * (1.0 + 1e-9) {
                        self.full[group * self.capacity.len() + r] = true;
                        fits = false;
                    }
                }
            }
            if fits {
                self.tasks[leaf] += more;
            }
            if self.tasks[leaf] >= hi * (1.0 - 1e-12) {
                self.blocked[leaf] = true;
            }
            for (node, it) in self.nodes.iter().enumerate() {
                if let Kind::Leaf(demand) = &it.kind {
                    let stuck = |r: usize| !self.is_live(it.parent, r) && demand.task[r] > 0.0;
                    self.blocked[node] |= (0..self.capacity.len()).any(stuck);
                }
            }
        }
        self.tasks
    }

    fn used(&self, r: usize) -> f64 {
        let used = |(node, tasks): (&Node, &f64)| match &node.kind {
            Kind::Leaf(demand) => demand.task[r] * tasks,
            Kind::Group(_) => 0.0,
        };
        self.nodes.iter().zip(&self.tasks).map(used).sum()
    }

    fn rho(&self, leaf: usize) -> f64 {
        let Kind::Leaf(demand) = &self.nodes[leaf].kind else { return 0.0 };
        let weight = &self.nodes[leaf].weight;
        let share = |r: usize| demand.task[r] / (self.capacity[r] * weight[r]);
        (0..self.capacity.len()).map(share).fold(0.0, f64::max)
    }

    /// Whose turn it is.
    fn next(&self) -> Option<usize> {
        let counts = self.count();
        let mut group = None;
        loop {
            let members = (0..self.nodes.len())
                .filter(|&node| self.nodes[node].parent == group && !counts[node].blocked);
            let first = members.min_by(|&a, &b| counts[a].level.total_cmp(&counts[b].level))?;
            if let Kind::Leaf(_) = self.nodes[first].kind {
                return Some(first);
            }
            group = Some(first);
        }
    }

    fn count(&self) -> Vec<Count> {
        let m = self.capacity.len();
        let mut counts = vec![Count::default(); self.nodes.len()];
        for node in (0..self.nodes.len()).rev() {
            let live = |r: &usize| self.is_live(self.nodes[node].parent, *r);
            let level = |vector: &[f64]| {
                let share = |r: usize| vector[r] / self.nodes[node].weight[r];
                (0..m).filter(live).map(share).fold(0.0, f64::max)
            };
            counts[node] = match &self.nodes[node].kind {
                Kind::Leaf(demand) => {
                    let (lo, _) = bounds(&self.nodes[node]);
                    let vector = |tasks: f64| -> Vec<f64> {
                        demand.task.iter().zip(self.capacity).map(|(d, c)| tasks * d / c).collect()
                    };
                    let rho = self.rho(node);
                    Count {
                        guaranteed: vector(lo),
                        vector: vector(self.tasks[node]),
                        guaranteed_level: rho * lo,
                        level: rho * self.tasks[node],
                        blocked: self.blocked[node] || rho == 0.0,
                    }
                }
                Kind::Group(_) => {
                    let members: Vec<&Count> = (0..self.nodes.len())
                        .filter(|&member| self.nodes[member].parent == Some(node))
                        .map(|member| &counts[member])
                        .collect();
                    let open = members.iter().filter(|member| !member.blocked);
                    let smallest = open.map(|member| member.level).fold(f64::INFINITY, f64::min);
                    let mut guaranteed = vec![0.0; m];
                    let mut vector = vec![0.0; m];
                    for member in &members {
                        let ahead = member.level - member.guaranteed_level;
                        let part = if member.blocked || smallest >= member.level {
                            1.0
                        } else {
                            ((smallest - member.guaranteed_level) / ahead).max(0.0)
                        };
                        for r in 0..m {
                            let own = member.guaranteed[r];
                            guaranteed[r] += own;
                            vector[r] += own + (member.vector[r] - own) * part;
                        }
                    }
                    Count {
                        guaranteed_level: level(&guaranteed),
                        level: level(&vector),
                        guaranteed,
                        vector,
                        blocked: smallest.is_infinite(),
                    }
                }
            };
        }
        counts
    }
}

/// The tasks a leaf is guaranteed, and those it has a use for.
fn bounds(node: &Node) -> (f64, f64) {
    let Kind::Leaf(demand) = &node.kind else { return (0.0, 0.0) };
    let demanded = || (0..demand.task.len()).filter(|&r| demand.task[r] > 0.0);
    let hi = demanded().map(|r| demand.limit[r] / demand.task[r]).fold(demand.tasks, f64::min);
    let lo = demanded().map(|r| demand.guarantee[r] / demand.task[r]).fold(hi, f64::min);
    (if demanded().next().is_some() { lo } else { 0.0 }, hi)
}
