//! Groups: hierarchical dominant resource fairness, continuous.
//!
//! # Problem
//! Departments hold teams, teams hold jobs. Siblings are to be fair to each other by weighted dominant
//! share, whatever goes on inside them: every node is entitled to its weight's part of its parent, and
//! what a leaf cannot use belongs to its siblings before its cousins. Flattening the weights breaks that
//! (a blocked leaf's surplus leaks to cousins), and running DRF at each level on the plain sums of usage
//! starves groups whose members want different resources. H-DRF (Bhattacharya et al., SoCC'13) has the
//! three rules that mend it:
//!
//! 1. *Rescale.* Before the vectors of a group's members are added up, each is scaled down to the smallest
//!    share among them: a member that is ahead must not hold back the group.
//! 2. *Ignore the blocked.* A member that cannot grow has no say in that minimum, and is added as it is.
//! 3. *Ignore the saturated.* A saturated resource does not count for a group's dominant share, or a group
//!    that has much of it would never get anything else.
//!
//! The paper gives out one task at a time; this is the limit of ever smaller tasks.
//!
//! # Algorithm
//! In phases, each of which ends when a resource saturates (at most `m` of them):
//!
//! - *Up.* Children before parents, every node gets its course, the polyline of what its subtree would
//!   hold at each level ([`super::course`]). A leaf's is a ray from where it stands to where it ends; a
//!   group's folds those of its members, starting at the smallest level among the unblocked (rule 2).
//!   A node ahead of that level waits: until the others have caught up it claims the part of its vector
//!   that its siblings' level would give it (rule 1), and uses nothing more.
//! - *Across.* The courses of the nodes under the machine are walked together until a resource is used up.
//! - *Down.* Parents before children, every node is told how far it has come.
//! - The leaves that demand the saturated resource are blocked, the resource no longer counts (rule 3), which
//!   lowers the levels of groups that had much of it, and the next phase begins.
//!
//! A guarantee is not a head start: a leaf on its guarantee is counted as it is, not rescaled, so that a
//! group pays for its members' guarantees. O(m · N log N · depth · m) time for N nodes, and no recursion:
//! both directions are loops over the nodes in pre-order.
//!
//! # Properties, and the test that holds each
//! - The three rules, in an example each (`members_ahead_are_rescaled`, `blocked_members_count_as_they_are`,
//!   `saturated_resources_do_not_count`), and the jump (`a_group_catches_up_while_its_level_stands_still`).
//! - On a flat tree it is the sweep of [`super::drf`] (`a_flat_tree_is_the_sweep`).
//! - With one resource it is recursive weighted max-min, guarantees and limits included
//!   (`one_resource_is_recursive_max_min`).
//! - Capacity, bounds and Pareto efficiency (`the_tree_keeps_capacity_and_bounds`).
//! - It is the limit of the published algorithm, added up anew for every small step
//!   (`the_tree_is_the_limit_of_small_steps`), and of whole tasks (`the_tree_is_the_limit_of_small_tasks`).
//! - The first phase ends at the optimum of an integer program that may choose every group's dominant
//!   resource (`the_first_saturation_of_the_tree_is_optimal`).
//! - The share guarantee of SoCC'13, for scalar weights (`every_group_gets_its_part`).
//! - The order of siblings does not matter, bit for bit (`the_tree_ignores_the_order`).
//! - No depth is too deep (`three_thousand_groups_deep`).

use super::course::{Courses, Fold, Point, Span, Walk};
use super::drf::{self, Filling, Reservations};
use super::exact::{self, Unit};
use super::growth;
use super::problem::Problem;
use super::tree::{self, Members};

/// A resource of which no more than this part is left is used up.
const USED_UP: f64 = 1e-13;

/// Fills a problem with groups.
pub(super) fn fill(problem: &Problem, reservations: Reservations) -> Filling {
    let mut tree = Tree::new(problem, reservations);
    // Every phase but the last saturates a resource.
    for _ in 0..=problem.resources() {
        tree.saturate_used_up();
        let phase = tree.phase();
        tree.apply(&phase);
        match phase.saturates {
            Some(resource) => tree.saturated[resource] = true,
            None => break,
        }
    }
    drf::trim(problem, reservations, &mut tree.filling);
    tree.filling
}

/// The tree between two phases.
struct Tree<'a> {
    problem: &'a Problem,
    reservations: Reservations,
    members: Members,
    filling: Filling,
    saturated: Vec<bool>,
    /// What each subtree is guaranteed in full tasks, as parts of the capacity: `n × m`.
    guaranteed: Vec<f64>,
}

/// The courses of a phase, and how it ends.
struct Phase {
    courses: Courses,
    nodes: Vec<Standing>,
    /// How far the nodes under the machine come.
    ends: Point,
    saturates: Option<usize>,
}

/// Where a node stands when a phase begins.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// Its course: empty for one that cannot grow.
    course: Span,
    /// The level of what it is guaranteed.
    guaranteed_level: f64,
    /// Its own level.
    level: f64,
}

impl Standing {
    fn can_grow(&self) -> bool {
        !self.course.is_empty()
    }
}

impl<'a> Tree<'a> {
    fn new(problem: &'a Problem, reservations: Reservations) -> Self {
        let (n, m) = (problem.nodes(), problem.resources());
        let growth: Vec<_> = (0..n).map(|leaf| growth::of(problem, leaf)).collect();
        let tasks = growth.iter().map(|g| if g.rho > 0.0 { g.lo } else { 0.0 }).collect();
        let filling = Filling { tasks, growth };
        let members = tree::members(problem);
        let mut tree = Tree {
            problem,
            reservations,
            members,
            filling,
            saturated: vec![false; m],
            guaranteed: vec![0.0; n * m],
        };
        for leaf in problem.leaves() {
            for r in 0..m {
                tree.guaranteed[leaf * m + r] = tree.filling.tasks[leaf] * tree.share(leaf, r);
            }
        }
        for group in (0..n).rev().filter(|&node| !problem.is_leaf[node]) {
            for r in 0..m {
                let members = tree.members.of(Some(group)).iter();
                let terms = members.map(|&node| tree.guaranteed[node * m + r]);
                tree.guaranteed[group * m + r] = exact::sum(terms);
            }
        }
        tree
    }

    /// One task's part of the capacity.
    fn share(&self, leaf: usize, r: usize) -> f64 {
        match self.problem.capacity[r] {
            0.0 => 0.0,
            capacity => self.problem.task(leaf)[r] / capacity,
        }
    }

    /// What the leaves use of a resource, as a part of the capacity.
    fn used(&self, r: usize) -> f64 {
        let capacity = self.problem.capacity[r];
        let unit = Unit::for_terms_up_to(capacity);
        let used = self.problem.leaves().map(|leaf| {
            drf::usage(self.problem, self.reservations, leaf, r, self.filling.tasks[leaf])
        });
        1.0 + exact::excess(unit, used, capacity) / capacity
    }

    fn saturate_used_up(&mut self) {
        for r in 0..self.saturated.len() {
            let capacity = self.problem.capacity[r];
            self.saturated[r] |= capacity == 0.0 || self.used(r) >= 1.0 - USED_UP;
        }
    }

    /// The tasks at which a leaf ends as things are: all it wants, or all it holds of what is saturated.
    fn end(&self, leaf: usize) -> f64 {
        let growth = self.filling.growth[leaf];
        if growth.rho == 0.0 {
            return 0.0;
        }
        let stops = |&r: &usize| self.saturated[r] && self.problem.task(leaf)[r] > 0.0;
        let held = |r| drf::held(self.problem, self.reservations, leaf, r, growth);
        (0..self.saturated.len()).filter(stops).map(held).fold(growth.hi, f64::min)
    }

    /// Up and across.
    fn phase(&self) -> Phase {
        let (n, m) = (self.problem.nodes(), self.problem.resources());
        let live: Vec<bool> = self.saturated.iter().map(|&saturated| !saturated).collect();
        let mut courses = Courses::new(m);
        let mut nodes = vec![Standing::default(); n];
        let mut claimed = vec![0.0; n * m];
        for node in (0..n).rev() {
            match self.problem.is_leaf[node] {
                true => self.leaf(node, &mut courses, &mut nodes, &mut claimed),
                false => self.group(node, &live, &mut courses, &mut nodes, &mut claimed),
            }
        }
        let (ends, saturates) = self.across(&courses, &nodes, &live);
        Phase { courses, nodes, ends, saturates }
    }

    /// The course of a leaf: the ray it has gone, on which it waits, and the ray before it.
    fn leaf(
        &self,
        leaf: usize,
        courses: &mut Courses,
        nodes: &mut [Standing],
        claimed: &mut [f64],
    ) {
        let m = self.problem.resources();
        let (growth, tasks) = (self.filling.growth[leaf], self.filling.tasks[leaf]);
        for r in 0..m {
            claimed[leaf * m + r] = tasks * self.share(leaf, r);
        }
        let end = self.end(leaf);
        let first = courses.len();
        let (guaranteed_level, level) = (growth.rho * growth.lo, growth.rho * tasks);
        if end > tasks {
            let rate = |r: usize| self.share(leaf, r) / growth.rho;
            if level > guaranteed_level {
                let none = std::iter::repeat_n(0.0, m);
                let claims = (0..m).map(rate);
                courses.push_rise(guaranteed_level, level, Point::at(0.0), claims, none);
            }
            let mut from = tasks;
            while from < end {
                // What the leaf holds of a resource is used already; it takes more when that is used up.
                let held = |r: usize| match self.problem.task(leaf)[r] {
                    0.0 => 0.0,
                    _ => drf::held(self.problem, self.reservations, leaf, r, growth),
                };
                let to = (0..m).map(held).filter(|&held| held > from).fold(end, f64::min);
                let uses = (0..m).map(|r| if held(r) > from { 0.0 } else { rate(r) });
                let claims = (0..m).map(rate);
                let (low, high) = (growth.rho * from, growth.rho * to);
                courses.push_rise(low, high, Point::at(0.0), claims, uses);
                from = to;
            }
        }
        nodes[leaf] = Standing { course: first..courses.len(), guaranteed_level, level };
    }

    /// The course of a group, folded from those of its members.
    fn group(
        &self,
        group: usize,
        live: &[bool],
        courses: &mut Courses,
        nodes: &mut [Standing],
        claimed: &mut [f64],
    ) {
        let m = self.problem.resources();
        let members = self.members.of(Some(group));
        let growing = members.iter().filter(|&&node| nodes[node].can_grow());
        let inner = growing.clone().map(|&node| nodes[node].level).fold(f64::INFINITY, f64::min);
        let row = group * m..(group + 1) * m;
        for r in 0..m {
            let terms =
                members.iter().map(|&node| self.claim_at(&nodes[node], claimed, node, r, inner));
            claimed[group * m + r] = exact::sum(terms);
        }
        let weight = self.problem.weight(group);
        let guaranteed = &self.guaranteed[row.clone()];
        let level = Fold::level(weight, live, &claimed[row.clone()]);
        let guaranteed_level = Fold::level(weight, live, guaranteed);
        let first = courses.len();
        if inner.is_finite() {
            if level > guaranteed_level {
                let length = level - guaranteed_level;
                let rise = claimed[row.clone()].iter().zip(guaranteed);
                let claims = rise.map(|(claimed, guaranteed)| (claimed - guaranteed) / length);
                let none = std::iter::repeat_n(0.0, m);
                courses.push_rise(guaranteed_level, level, Point::at(inner), claims, none);
            }
            let here = Point::at(level);
            let mut fold = Fold { weight, live, claimed: claimed[row].to_vec(), here };
            let spans = growing.map(|&node| nodes[node].course.clone());
            let mut course = Courses::new(m);
            courses.walk(spans, inner, |step| {
                fold.fold(&mut course, step);
                Walk::GoOn
            });
            courses.append(&mut course);
        }
        nodes[group] = Standing { course: first..courses.len(), guaranteed_level, level };
    }

    /// What a member claims when its siblings are at `level`, which is not above its own (rules 1 and 2).
    fn claim_at(
        &self,
        standing: &Standing,
        claimed: &[f64],
        node: usize,
        r: usize,
        level: f64,
    ) -> f64 {
        let index = node * self.problem.resources() + r;
        let (guaranteed, claimed) = (self.guaranteed[index], claimed[index]);
        if !standing.can_grow() || level >= standing.level {
            return claimed;
        }
        let ahead = standing.level - standing.guaranteed_level;
        let part = ((level - standing.guaranteed_level) / ahead).max(0.0);
        guaranteed + (claimed - guaranteed) * part
    }

    /// Raises the nodes under the machine together until a resource is used up, and says which.
    fn across(
        &self,
        courses: &Courses,
        nodes: &[Standing],
        live: &[bool],
    ) -> (Point, Option<usize>) {
        let growing = self.members.of(None).iter().filter(|&&node| nodes[node].can_grow());
        let from = growing.clone().map(|&node| nodes[node].level).fold(f64::INFINITY, f64::min);
        let mut used: Vec<f64> = (0..live.len()).map(|r| self.used(r)).collect();
        let mut end = (Point::at(f64::INFINITY), None);
        if from.is_infinite() {
            return end;
        }
        courses.walk(growing.map(|&node| nodes[node].course.clone()), from, |step| {
            let length = step.length();
            let mut next = (length, None);
            for r in (0..live.len()).filter(|&r| live[r] && step.used[r] > 0.0) {
                let distance = ((1.0 - used[r]) / step.used[r]).max(0.0);
                if distance < next.0 {
                    next = (distance, Some(r));
                }
            }
            if next.1.is_some() {
                end = (step.after(next.0), next.1);
                return Walk::Stop;
            }
            used.iter_mut().zip(step.used).for_each(|(used, rate)| *used += rate * length);
            Walk::GoOn
        });
        end
    }

    /// Down: moves every leaf to where the phase has brought it.
    fn apply(&mut self, phase: &Phase) {
        let mut points = vec![None; phase.nodes.len()];
        for (node, standing) in phase.nodes.iter().enumerate() {
            if !standing.can_grow() {
                continue;
            }
            let above = self.problem.parent[node].map_or(Some(phase.ends), |group| points[group]);
            let Some(point) = above else { continue };
            if !self.problem.is_leaf[node] {
                points[node] = phase.courses.inner(standing.course.clone(), point);
            } else if point.level > standing.level {
                let (growth, end) = (self.filling.growth[node], self.end(node));
                let reached = point.level / growth.rho;
                let ended = point.level >= growth.rho * end;
                let tasks = &mut self.filling.tasks[node];
                *tasks = if ended { end } else { reached.clamp(*tasks, end) };
            }
        }
    }
}
