//! Groups: hierarchical dominant resource fairness, continuous.
//!
//! # Problem
//! Departments hold teams, teams hold jobs. Siblings are to be fair to each other by weighted dominant share,
//! whatever their subtrees contain: every node is entitled to its weight's part of its parent, and what a
//! leaf cannot use belongs to its siblings before its cousins. Flattening the weights breaks that (a blocked
//! leaf's surplus leaks to cousins), and running DRF at each level on the plain sums of usage starves groups
//! whose members want different resources. H-DRF (Bhattacharya et al., SoCC'13) has three rules against this:
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
//! In phases, each of which ends when a resource saturates (at most `m` of them), or at the limit of a group:
//!
//! - *Up.* Children before parents, every node gets its course, the polyline of what its subtree would
//!   hold at each level ([`super::course`]). A leaf's is a ray from where it stands to where it ends; a
//!   group's folds those of its members, starting at the smallest level among the unblocked (rule 2).
//!   A node ahead of that level waits: until the others have caught up it claims the part of its vector
//!   that its siblings' level would give it (rule 1), and uses nothing more.
//! - *Across.* The courses of the nodes under the machine are walked together until a resource is used up.
//! - *Down.* Parents before children, every node gets its point on its course.
//! - The leaves that demand the saturated resource are blocked, the resource no longer counts (rule 3), which
//!   lowers the levels of groups that had much of it, and the next phase begins.
//!
//! A group that reaches a limit of its own ends like a leaf that is satisfied. Where everything
//! that can grow below it needs the resource, its course ends there. Leaves directly below it that
//! do not need it go on. Where groups below it could go on, the phase ends, because the resource no
//! longer counts for their levels (rule 3, within the group).
//!
//! A guarantee is not a head start: a leaf on its guarantee is counted as it is, not rescaled, so that a
//! group pays for its members' guarantees. O(p · N log N · depth · m) time for N nodes and p phases: at most
//! one for each resource, and one for each group whose limit ends a phase. No recursion: both directions are
//! loops over the nodes in pre-order.
//!
//! # Properties, and the test that holds each
//! - The three rules, in an example each (`members_ahead_are_rescaled`, `blocked_members_count_as_they_are`,
//!   `saturated_resources_do_not_count`), and the jump (`a_group_catches_up_while_its_level_is_constant`).
//! - On a flat tree it is the sweep of [`super::drf`] (`a_flat_tree_is_the_sweep`).
//! - Limits of groups hold, exactly, and what they leave is used by others (`bounds_of_groups_are_kept`);
//!   small steps come to the same (`bounded_groups_are_the_limit_of_small_steps`).
//! - With one resource it is recursive weighted max-min, guarantees and limits included
//!   (`one_resource_is_recursive_max_min`).
//! - Capacity, bounds and Pareto efficiency (`the_tree_keeps_capacity_and_bounds`).
//! - It is the limit of the published algorithm, added up anew for every small step
//!   (`the_tree_is_the_limit_of_small_steps`), and of whole tasks (`the_tree_is_the_limit_of_small_tasks`).
//! - The first phase ends at the optimum of an integer program that may choose every group's dominant
//!   resource (`the_first_saturation_of_the_tree_is_optimal`).
//! - The share guarantee of SoCC'13, for scalar weights (`every_group_gets_its_part`).
//! - The order of siblings does not matter, bit for bit (`the_tree_ignores_the_order`).
//! - Depth is unlimited (`three_thousand_groups_deep`).

use super::course::{Courses, Fold, Point, Span, Step, Walk};
use super::drf::{self, Filling, Reservations};
use super::exact::{self, Unit};
use super::growth;
use super::limits::{Limits, first_used_up};
use super::problem::Problem;
use super::tree::{self, Members};
use super::weights::sibling_set;

/// A resource of which no more than this part is left is used up.
const USED_UP: f64 = 1e-13;

/// Fills a problem with groups.
pub(super) fn fill(problem: &Problem, reservations: Reservations) -> Filling {
    let mut tree = Tree::new(problem, reservations);
    // Every phase but the last uses up a resource: of the machine, or of a group with a limit.
    for _ in 0..=problem.resources() * (1 + tree.limits.limited().len()) {
        tree.mark_used_up();
        let phase = tree.phase();
        tree.apply(&phase);
        match phase.ended {
            Ended::Saturated(resource) => tree.limits.use_up(None, resource),
            Ended::GroupFull => {}
            Ended::Everywhere => break,
        }
    }
    tree.trim();
    tree.filling
}

/// The tree between two phases.
struct Tree<'a> {
    problem: &'a Problem,
    reservations: Reservations,
    members: Members,
    filling: Filling,
    /// What is used up, and what the limits of groups leave.
    limits: Limits,
    /// What each subtree is guaranteed in full tasks, as parts of the capacity: `n × m`.
    guaranteed: Vec<f64>,
}

/// The courses of a phase, and how it ends.
struct Phase {
    courses: Courses,
    nodes: Vec<Standing>,
    /// How far the nodes under the machine come.
    ends: Point,
    ended: Ended,
    /// The tasks at which each leaf ends, whatever comes; less where its group reaches its limit.
    leaf_ends: Vec<f64>,
}

/// Why a phase ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The machine has no more of a resource.
    Saturated(usize),
    /// A group has reached its limit, and leaves in it can still grow without that resource.
    GroupFull,
    /// Nothing can grow any further.
    Everywhere,
}

/// The state of a node when a phase begins.
#[derive(Clone, Debug, Default)]
struct Standing {
    /// Its course: empty for one that cannot grow.
    course: Span,
    /// The level of what it is guaranteed.
    guaranteed_level: f64,
    /// Its own level.
    level: f64,
    /// The resource of which the node has reached its limit where its course ends.
    fills: Option<usize>,
    /// Whether the phase must end where the course ends.
    stops: bool,
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
        let (members, limits) = (tree::members(problem), Limits::new(problem));
        let mut tree =
            Tree { problem, reservations, members, filling, limits, guaranteed: vec![0.0; n * m] };
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

    fn mark_used_up(&mut self) {
        for r in 0..self.problem.resources() {
            let capacity = self.problem.capacity[r];
            if capacity == 0.0 || self.used(r) >= 1.0 - USED_UP {
                self.limits.use_up(None, r);
            }
        }
        let (problem, reservations) = (self.problem, self.reservations);
        let tasks = &self.filling.tasks;
        self.limits
            .count(problem, |leaf, r| drf::usage(problem, reservations, leaf, r, tasks[leaf]));
    }

    /// What is live for the siblings of a node.
    fn live(&self, node: usize) -> &[bool] {
        self.limits.live(sibling_set(&self.problem.parent, node))
    }

    /// Takes back what rounding gave away beyond the limits and the capacity.
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

    /// The tasks at which a leaf ends in the present state: all it wants, or all it holds of what is
    /// saturated.
    fn end(&self, leaf: usize) -> f64 {
        let growth = self.filling.growth[leaf];
        if growth.rho == 0.0 {
            return 0.0;
        }
        let live = self.live(leaf);
        let stops = |&r: &usize| !live[r] && self.problem.task(leaf)[r] > 0.0;
        let held = |r| drf::held(self.problem, self.reservations, leaf, r, growth);
        (0..live.len()).filter(stops).map(held).fold(growth.hi, f64::min)
    }

    /// Up and across.
    fn phase(&self) -> Phase {
        let (n, m) = (self.problem.nodes(), self.problem.resources());
        let mut phase = Phase {
            courses: Courses::new(m),
            nodes: vec![Standing::default(); n],
            ends: Point::at(f64::INFINITY),
            ended: Ended::Everywhere,
            leaf_ends: vec![0.0; n],
        };
        let mut claimed = vec![0.0; n * m];
        for node in (0..n).rev() {
            match self.problem.is_leaf[node] {
                true => self.leaf(node, &mut phase, &mut claimed),
                false => self.group(node, &mut phase, &mut claimed),
            }
        }
        self.across(&mut phase);
        phase
    }

    /// The course of a leaf: the ray it has gone, on which it waits, and the ray before it.
    fn leaf(&self, leaf: usize, phase: &mut Phase, claimed: &mut [f64]) {
        let courses = &mut phase.courses;
        let m = self.problem.resources();
        let (growth, tasks) = (self.filling.growth[leaf], self.filling.tasks[leaf]);
        for r in 0..m {
            claimed[leaf * m + r] = tasks * self.share(leaf, r);
        }
        let end = self.end(leaf);
        phase.leaf_ends[leaf] = end;
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
        let course = first..courses.len();
        phase.nodes[leaf] = Standing { course, guaranteed_level, level, ..Standing::default() };
    }

    /// The course of a group, folded from those of its members.
    fn group(&self, group: usize, phase: &mut Phase, claimed: &mut [f64]) {
        let m = self.problem.resources();
        let (members, live) = (self.members.of(Some(group)), self.live(group));
        let nodes = &phase.nodes;
        let growing = members.iter().filter(|&&node| nodes[node].can_grow());
        let inner = growing.map(|&node| nodes[node].level).fold(f64::INFINITY, f64::min);
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
        let first = phase.courses.len();
        let mut standing = Standing { guaranteed_level, level, ..Standing::default() };
        if inner.is_finite() {
            if level > guaranteed_level {
                let length = level - guaranteed_level;
                let rise = claimed[row.clone()].iter().zip(guaranteed);
                let claims = rise.map(|(claimed, guaranteed)| (claimed - guaranteed) / length);
                let none = std::iter::repeat_n(0.0, m);
                let inner = Point::at(inner);
                phase.courses.push_rise(guaranteed_level, level, inner, claims, none);
            }
            let here = Point::at(level);
            let mut fold = Fold { weight, live, claimed: claimed[row].to_vec(), here };
            let (mut course, fills, stops) = self.fold(group, inner, &mut fold, phase);
            phase.courses.append(&mut course);
            (standing.fills, standing.stops) = (fills, stops);
        }
        standing.course = first..phase.courses.len();
        phase.nodes[group] = standing;
    }

    /// Folds the courses of a group's members from their level `inner` on, as far as its limit lets them.
    ///
    /// Returns the course, the resource of which the group reaches its limit where the course ends, and
    /// whether the phase must end there.
    fn fold(
        &self,
        group: usize,
        inner: f64,
        fold: &mut Fold<'_>,
        phase: &mut Phase,
    ) -> (Courses, Option<usize>, bool) {
        let (m, members) = (self.problem.resources(), self.members.of(Some(group)));
        let growing = members.iter().copied().filter(|&node| phase.nodes[node].can_grow());
        let mut spans: Vec<(usize, Span)> =
            growing.map(|node| (node, phase.nodes[node].course.clone())).collect();
        let stop = self.first_stop(phase, spans.iter().map(|(node, _)| *node));
        let mut room =
            self.limits.room(group).map_or_else(|| vec![f64::INFINITY; m], <[f64]>::to_vec);
        let (mut course, mut from) = (Courses::new(m), inner);
        loop {
            let (mut hit, mut stopped) = (None, false);
            let courses = &phase.courses;
            courses.walk(spans.iter().map(|(_, span)| span.clone()), from, |step| {
                let (length, used_up) = first_used_up(&room, step.used, step.length());
                let to = if used_up.is_some() { step.after(length) } else { step.to };
                fold.fold(&mut course, &Step { to, ..*step });
                room.iter_mut().zip(step.used).for_each(|(room, rate)| {
                    if *rate > 0.0 {
                        *room -= rate * length;
                    }
                });
                hit = used_up.map(|resource| (to, resource));
                stopped = stop.is_some_and(|stop| to >= stop);
                if hit.is_some() || stopped { Walk::Stop } else { Walk::GoOn }
            });
            let Some((point, resource)) = hit else { return (course, None, stopped) };
            if !spans.iter().all(|&(node, _)| self.problem.is_leaf[node]) {
                return (course, Some(resource), self.can_go_on(group, resource, phase));
            }
            // The level of a leaf does not depend on what is live: leaves that take of the resource stop, and
            // the others go on.
            room[resource] = f64::INFINITY;
            for (leaf, span) in &mut spans {
                self.stop_at(*leaf, span, (point.level, resource), phase);
            }
            from = point.level;
        }
    }

    /// Where the first of some nodes ends the phase.
    fn first_stop(&self, phase: &Phase, nodes: impl Iterator<Item = usize>) -> Option<Point> {
        let stops = nodes.map(|node| &phase.nodes[node]).filter(|standing| standing.stops);
        let ends = stops.filter_map(|standing| phase.courses.end(standing.course.clone()));
        ends.min_by(|a, b| a.total_cmp(*b))
    }

    /// Ends the course of a leaf where it would take of a resource that is used up from a level on.
    fn stop_at(&self, leaf: usize, span: &mut Span, at: (f64, usize), phase: &mut Phase) {
        let ((level, resource), growth) = (at, self.filling.growth[leaf]);
        if self.problem.task(leaf)[resource] == 0.0 {
            return;
        }
        let held = drf::held(self.problem, self.reservations, leaf, resource, growth);
        let end = &mut phase.leaf_ends[leaf];
        *end = end.min(held.max(level / growth.rho));
        let last = level.max(growth.rho * held);
        *span = phase.courses.until(span.clone(), last);
    }

    /// Whether any leaf below a group could grow on when the group has used up a resource.
    fn can_go_on(&self, group: usize, resource: usize, phase: &Phase) -> bool {
        let goes_on = |leaf: usize| {
            let growth = self.filling.growth[leaf];
            let takes = self.problem.task(leaf)[resource] > 0.0;
            let holds = || drf::held(self.problem, self.reservations, leaf, resource, growth);
            phase.nodes[leaf].can_grow() && (!takes || holds() > self.filling.tasks[leaf])
        };
        tree::leaves_below(self.problem, &self.members, group).into_iter().any(goes_on)
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

    /// Raises the nodes under the machine together until a resource is used up, or until a group has to stop
    /// that could go on without it.
    fn across(&self, phase: &mut Phase) {
        let nodes = &phase.nodes;
        let growing = || self.members.of(None).iter().copied().filter(|&it| nodes[it].can_grow());
        let from = growing().map(|node| nodes[node].level).fold(f64::INFINITY, f64::min);
        if from.is_infinite() {
            return;
        }
        let stop = self.first_stop(phase, growing());
        let live = self.limits.live(0);
        let left = |r: usize| if live[r] { 1.0 - self.used(r) } else { f64::INFINITY };
        let mut room: Vec<f64> = (0..live.len()).map(left).collect();
        let mut end = (phase.ends, phase.ended);
        let spans = growing().map(|node| nodes[node].course.clone());
        phase.courses.walk(spans, from, |step| {
            let (length, used_up) = first_used_up(&room, step.used, step.length());
            if let Some(resource) = used_up {
                end = (step.after(length), Ended::Saturated(resource));
                return Walk::Stop;
            }
            if stop.is_some_and(|stop| step.to >= stop) {
                end = (step.to, Ended::GroupFull);
                return Walk::Stop;
            }
            room.iter_mut().zip(step.used).for_each(|(room, rate)| {
                if *rate > 0.0 {
                    *room -= rate * length;
                }
            });
            Walk::GoOn
        });
        (phase.ends, phase.ended) = end;
    }

    /// Down: moves every leaf to where the phase has brought it, and marks the groups that are full.
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
                let end = phase.courses.end(standing.course.clone());
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
