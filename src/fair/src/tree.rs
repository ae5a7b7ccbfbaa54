//! Walking the tree of a problem without recursion.

use super::problem::Problem;

/// The members of every group, in node order, as one array with an offset for each set of siblings.
#[derive(Debug)]
pub(super) struct Members {
    nodes: Vec<usize>,
    /// The siblings under the machine start at `first[0]`, those of group `g` at `first[g + 1]`.
    first: Vec<usize>,
}

impl Members {
    /// The members of a group, or for `None` the nodes under the machine.
    pub(super) fn of(&self, group: Option<usize>) -> &[usize] {
        let set = group.map_or(0, |group| group + 1);
        &self.nodes[self.first[set]..self.first[set + 1]]
    }
}

/// Sorts the nodes by their group. O(n).
pub(super) fn members(problem: &Problem) -> Members {
    let set_of = |node: usize| problem.parent[node].map_or(0, |parent| parent + 1);
    let mut first = vec![0; problem.nodes() + 2];
    for node in 0..problem.nodes() {
        first[set_of(node) + 1] += 1;
    }
    for set in 1..first.len() {
        first[set] += first[set - 1];
    }
    let mut next = first.clone();
    let mut nodes = vec![0; problem.nodes()];
    for node in 0..problem.nodes() {
        let place = &mut next[set_of(node)];
        nodes[*place] = node;
        *place += 1;
    }
    Members { nodes, first }
}

/// The nodes under the machine, each with all below it, in node order. O(n).
pub(super) fn subtrees(problem: &Problem, members: &Members) -> Vec<Vec<usize>> {
    let tops = members.of(None);
    let mut top = vec![0; problem.nodes()];
    let mut subtrees = vec![Vec::new(); tops.len()];
    (0..).zip(tops).for_each(|(rank, &node)| top[node] = rank);
    for node in 0..problem.nodes() {
        if let Some(parent) = problem.parent[node] {
            top[node] = top[parent];
        }
        subtrees[top[node]].push(node);
    }
    subtrees
}

/// The leaves below a group, in no particular order.
pub(super) fn leaves_below(problem: &Problem, members: &Members, group: usize) -> Vec<usize> {
    let mut leaves = Vec::new();
    let mut stack = vec![group];
    while let Some(node) = stack.pop() {
        if problem.is_leaf[node] { leaves.push(node) } else { stack.extend(members.of(Some(node))) }
    }
    leaves
}
