//! Groups: hierarchical dominant resource fairness, continuous.
//!
//! # Problem
//! Departments hold teams, teams hold jobs. Siblings are to be fair to each other by weighted dominant
//! share, whatever their subtrees contain. Every node is entitled to its weight's part of its parent, and
//! the surplus of a leaf goes to its siblings before its cousins. Flattening the weights breaks that (a
//! blocked leaf's surplus leaks to cousins), and running DRF at each level on the plain sums of usage
//! starves groups whose members want different resources. H-DRF (Bhattacharya et al., SoCC'13) has three
//! rules against this:
//!
//! 1. *Rescale.* Before the vectors of a group's members are added up, each is scaled down to the smallest
//!    share among them: a member that is ahead must not hold back the group.
//! 2. *Ignore the blocked.* A member that cannot grow is left out of that minimum, and is added as it is.
//! 3. *Ignore the saturated.* A saturated resource does not count for a group's dominant share, or a group
//!    that has much of it would never get anything else.
//!
//! The paper gives out one task at a time; this is the limit of ever smaller tasks.
//!
//! # Algorithm
//! In phases, each of which ends when a resource of the machine saturates (at most `m` of them):
//!
//! - *Up.* Children before parents, every node gets its course, the polyline of its subtree's resources at
//!   each level ([`super::course`]). A leaf's is a ray from its present point to its end; a group's folds
//!   those of its members, starting at the smallest level among the unblocked (rule 2). A node ahead of
//!   that level waits: until the others have caught up it claims the part of its vector that its siblings'
//!   level would give it (rule 1), and uses nothing more.
//! - *Across.* The courses of the nodes under the machine are walked together until a resource is used up.
//! - *Down.* Parents before children, every node gets its point on its course.
//! - The leaves that demand the saturated resource are blocked, the resource no longer counts (rule 3),
//!   which lowers the levels of groups that had much of it, and the next phase begins.
//!
//! A group that reaches a limit of its own ends like a leaf that is satisfied. Where everything that can
//! grow below it needs the resource, its course ends there. Leaves directly below it that do not need it go
//! on. Where groups below it could go on, the resource no longer counts for their levels (rule 3, within
//! the group). All courses from there up to the node under the machine end, and only that subtree gets new
//! ones. Its level is lower then: it rises alone until it has caught up with the others, which go on along
//! the courses that they have ([`super::front`]).
//!
//! A group whose order is not DRF's ([`Order`]) gives each member a line: its course once more, by the
//! coordinate in which members take their turns, the rank or the share of a resource. Its own course is
//! folded from the lines, and the used vector takes the place of the claimed one, since nothing is rescaled
//! there. On the way down a line leads from the group's point to the member's. An order of the nodes under
//! the machine is that of one group around them.
//!
//! A guarantee is not a head start: a leaf on its guarantee is counted as it is, not rescaled, so that a
//! group pays for its members' guarantees. O(m · N log N · depth · m) time for N nodes, and as much again
//! with the size of its subtree under the machine for N, for each limit that is reached while groups below
//! it go on. That is linear in the number of subtrees, and quadratic within one. No recursion: both
//! directions are loops over the nodes in pre-order.
//!
//! # Properties, and the test that holds each
//! - The three rules, in an example each (`members_ahead_are_rescaled`,
//!   `blocked_members_count_as_they_are`, `saturated_resources_do_not_count`), and the jump
//!   (`a_group_catches_up_while_its_level_is_constant`).
//! - On a flat tree it is the sweep of [`super::drf`] (`a_flat_tree_is_the_sweep`).
//! - Limits of groups hold, exactly, and others use the rest (`bounds_of_groups_are_kept`); small steps
//!   give the same result (`bounded_groups_are_the_limit_of_small_steps`).
//! - With one resource it is recursive weighted max-min, guarantees and limits included
//!   (`one_resource_is_recursive_max_min`).
//! - Capacity, bounds and Pareto efficiency (`the_tree_keeps_capacity_and_bounds`).
//! - It is the limit of the published algorithm, added up anew for every small step
//!   (`the_tree_is_the_limit_of_small_steps`), and of whole tasks (`the_tree_is_the_limit_of_small_tasks`,
//!   with other orders `ordered_trees_are_the_limit_of_small_tasks`).
//! - The first phase ends at the optimum of an integer program that may choose every group's dominant
//!   resource (`the_first_saturation_of_the_tree_is_optimal`).
//! - The share guarantee of SoCC'13, for scalar weights (`every_group_gets_its_part`).
//! - The order of siblings does not matter, bit for bit (`the_tree_ignores_the_order`).
//! - Depth is unlimited (`three_thousand_groups_deep`).
//! - The cost of a limit depends on its department, not on the tree
//!   (`a_limit_costs_its_own_department_only`).

use super::course::Point;
use super::drf::{self, Filling, Reservations};
use super::front::Front;
use super::limits::{first_used_up, spend};
use super::phase::{Phase, Tree};
use super::problem::{Order, Problem};
use super::tree;

/// A resource of which no more than this part is left is used up.
const USED_UP: f64 = 1e-13;

pub(super) fn fill(problem: &Problem, reservations: Reservations) -> Filling {
    if problem.order(None) != Order::Drf {
        let mut filling = fill(&in_a_group(problem), reservations);
        filling.tasks.remove(0);
        filling.growth.remove(0);
        return filling;
    }
    let mut tree = Tree::new(problem, reservations);
    tree.fill();
    tree.filling
}

/// The same problem with all nodes under the machine in one group, which has their order.
fn in_a_group(problem: &Problem) -> Problem {
    let m = problem.resources();
    let row = |first: f64, rows: &[f64]| [&vec![first; m][..], rows].concat();
    let below = |parent: &Option<usize>| Some(parent.map_or(0, |parent| parent + 1));
    let grouped = Problem {
        capacity: problem.capacity.clone(),
        parent: std::iter::once(None).chain(problem.parent.iter().map(below)).collect(),
        is_leaf: [&[false], &problem.is_leaf[..]].concat(),
        weight: row(1.0, &problem.weight),
        scalar: [&[true], &problem.scalar[..]].concat(),
        task: row(0.0, &problem.task),
        tasks: [&[0.0], &problem.tasks[..]].concat(),
        guarantee: row(0.0, &problem.guarantee),
        limit: row(f64::INFINITY, &problem.limit),
        order: Vec::new(),
    };
    grouped.ordered(Order::Drf, |node| problem.order(node.checked_sub(1)))
}

impl Tree<'_> {
    fn fill(&mut self) {
        // Every phase but the last uses up a resource of the machine.
        for _ in 0..=self.problem.resources() {
            self.mark_used_up();
            let mut phase = self.phase();
            let Some(resource) = self.rise(&mut phase) else { break };
            self.limits.use_up(None, resource);
        }
        self.trim();
    }

    fn mark_used_up(&mut self) {
        for r in 0..self.problem.resources() {
            let capacity = self.problem.capacity[r];
            if capacity == 0.0 || self.used(r) >= 1.0 - USED_UP {
                self.limits.use_up(None, r);
            }
        }
        (0..self.subtrees.len()).for_each(|rank| self.count(rank));
    }

    /// Removes the excess of rounding above the limits and the capacity.
    fn trim(&mut self) {
        let (problem, reservations) = (self.problem, self.reservations);
        for &group in self.limits.limited().iter().rev() {
            let leaves = tree::leaves_below(problem, &self.members, group);
            for r in 0..problem.resources() {
                let limit = problem.limit(group)[r];
                if limit < problem.capacity[r] {
                    drf::trim_to(problem, reservations, &mut self.filling, &leaves, (r, limit));
                }
            }
        }
        drf::trim(problem, reservations, &mut self.filling);
    }

    /// Across and down: raises the nodes under the machine together until a resource is used up, and
    /// returns that resource; `None` if no node can grow any further.
    fn rise(&mut self, phase: &mut Phase) -> Option<usize> {
        let live = self.limits.live(0);
        let left = |r: usize| if live[r] { 1.0 - self.used(r) } else { f64::INFINITY };
        let mut room: Vec<f64> = (0..live.len()).map(left).collect();
        let mut fronts = Vec::new();
        self.push_front(phase, &mut fronts, (0..self.subtrees.len()).collect());
        let mut nr_stops = self.problem.resources() * self.limits.limited().len();
        let saturated = loop {
            let depth = fronts.len() - 1;
            let goal = depth.checked_sub(1).map_or(f64::INFINITY, |other| fronts[other].here.level);
            let front = &mut fronts[depth];
            if depth > 0 && front.here.level >= goal {
                self.join(phase, &mut fronts);
                continue;
            }
            let stopped = front.pass(|rank| &phase.courses[rank]);
            if !stopped.is_empty() && nr_stops > 0 {
                nr_stops = nr_stops.saturating_sub(stopped.len());
                self.restart(phase, &mut fronts, stopped);
                continue;
            }
            let Some(step) = front.step(goal) else {
                front.here = Point::at(goal);
                if depth == 0 { break None } else { continue }
            };
            let (length, used_up) = first_used_up(&room, step.used, step.length());
            let here = if used_up.is_some() { step.after(length) } else { step.to };
            spend(&mut room, step.used, length);
            front.here = here;
            if used_up.is_some() || here.level.is_infinite() {
                break used_up;
            }
        };
        for rank in 0..self.subtrees.len() {
            let here = fronts[phase.front[rank]].here;
            let point = phase.member(rank, &self.subtrees).own(here);
            self.apply(rank, point, phase);
        }
        saturated
    }

    /// Adds a front of those nodes that can grow, at the point of the first of them.
    fn push_front(&self, phase: &mut Phase, fronts: &mut Vec<Front>, ranks: Vec<usize>) {
        let standing = |rank: usize| &phase.nodes[self.subtrees[rank][0]];
        let growing: Vec<usize> =
            ranks.into_iter().filter(|&rank| standing(rank).can_grow()).collect();
        let level = |rank: &usize| standing(*rank).level;
        let from = Point::at(growing.iter().map(level).fold(f64::INFINITY, f64::min));
        for &rank in &growing {
            (phase.front[rank], phase.joined[rank]) = (fronts.len(), from);
        }
        let members = growing.iter().map(|&rank| phase.member(rank, &self.subtrees));
        fronts.push(Front::new(self.problem.resources(), from, growing.clone(), members));
    }

    /// Gives new courses to nodes that have stopped, and raises those that have fallen behind until they
    /// catch up.
    fn restart(&mut self, phase: &mut Phase, fronts: &mut Vec<Front>, stopped: Vec<usize>) {
        let (depth, here) = (fronts.len() - 1, fronts[fronts.len() - 1].here);
        for &rank in &stopped {
            let course = phase.nodes[self.subtrees[rank][0]].course.clone();
            let end = phase.courses[rank].end(course).unwrap_or(here);
            self.apply(rank, end, phase);
            self.count(rank);
            self.build(rank, phase);
        }
        let is_behind = |rank: &usize| phase.nodes[self.subtrees[*rank][0]].level < here.level;
        let (behind, beside): (Vec<usize>, Vec<usize>) = stopped.into_iter().partition(is_behind);
        for rank in beside {
            self.enter(phase, &mut fronts[depth], rank);
        }
        if !behind.is_empty() {
            self.push_front(phase, fronts, behind);
        }
    }

    /// Merges the last front into the one that it has caught up with.
    fn join(&self, phase: &mut Phase, fronts: &mut Vec<Front>) {
        let depth = fronts.len() - 1;
        let (Some(front), Some(other)) = (fronts.pop(), fronts.last_mut()) else { return };
        for rank in front.members {
            if phase.front[rank] == depth {
                phase.front[rank] = depth - 1;
                self.enter(phase, other, rank);
            }
        }
    }

    /// Adds a node under the machine to a front.
    fn enter(&self, phase: &mut Phase, front: &mut Front, rank: usize) {
        phase.joined[rank] = front.here;
        let member = phase.member(rank, &self.subtrees);
        if front.fits(&member) {
            front.add(&member);
            return;
        }
        let depth = phase.front[rank];
        let members = std::mem::take(&mut front.members);
        let present: Vec<usize> =
            members.iter().copied().filter(|&rank| phase.front[rank] == depth).collect();
        let present = present.iter().map(|&rank| phase.member(rank, &self.subtrees));
        *front = Front::new(self.problem.resources(), front.here, members, present);
    }

    /// Down: moves every leaf of a subtree to the point of its top, and marks the groups that are full.
    fn apply(&mut self, rank: usize, top: Point, phase: &mut Phase) {
        let courses = &phase.courses[rank];
        for &node in &self.subtrees[rank] {
            let standing = &phase.nodes[node];
            phase.points[node] = None;
            if !standing.can_grow() {
                continue;
            }
            let above = self.problem.parent[node].map_or(Some(top), |group| phase.points[group]);
            let own = above.and_then(|above| match &standing.line {
                Some(line) => courses.inner(line.clone(), above),
                None => Some(above),
            });
            let Some(point) = own else { continue };
            if !self.problem.is_leaf[node] {
                phase.points[node] = courses.inner(standing.course.clone(), point);
                let end = courses.end(standing.course.clone());
                if let Some(resource) = standing.fills
                    && end.is_some_and(|end| point >= end)
                {
                    self.limits.use_up(Some(node), resource);
                }
            } else if point.level > standing.level {
                let (growth, end) = (self.filling.growth[node], phase.leaf_ends[node]);
                let reached = point.level / growth.rho;
                let ended = point.level >= growth.rho * end;
                let tasks = &mut self.filling.tasks[node];
                *tasks = if ended { end.max(*tasks) } else { reached.clamp(*tasks, end) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::problem::{Bounds, Demand, Kind, Node};
    use super::*;

    /// Departments with a limit on the first resource, of teams with a limit, of a leaf that needs it and one
    /// that does not. Each limit is reached at a level of its own.
    fn departments(count: usize) -> Problem {
        let mut nodes = Vec::new();
        let group = |nodes: &mut Vec<Node>, parent, limit| {
            let bounds = Bounds { limit: vec![limit, f64::INFINITY], ..Bounds::none(2) };
            nodes.push(Node { parent, weight: vec![1.0; 2], kind: Kind::Group(bounds) });
            nodes.len() - 1
        };
        for department in 0..count {
            let part = (department + 1) as f64 / count as f64;
            let top = group(&mut nodes, None, 0.2 * part);
            for team in [0.15, 0.3] {
                let parent = Some(group(&mut nodes, Some(top), team * part));
                for task in [[1.0, 0.5], [0.0, 1.0]] {
                    let kind = Kind::Leaf(Demand::tasks(task.to_vec(), f64::INFINITY));
                    nodes.push(Node { parent, weight: vec![1.0; 2], kind });
                }
            }
        }
        Problem::try_new(vec![count as f64; 2], nodes).unwrap()
    }

    fn built(count: usize) -> usize {
        let problem = departments(count);
        let mut tree = Tree::new(&problem, Reservations::None);
        tree.fill();
        tree.built
    }

    #[test]
    fn a_limit_costs_its_own_department_only() {
        let (few, many) = (built(50), built(500));
        assert!(few > 2 * departments(50).nodes(), "no limit ends a course: {few}");
        assert!(many <= 11 * few, "{few} courses for 50 departments, {many} for 500");
    }
}
