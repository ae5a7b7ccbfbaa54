//! The tree while it is filled, and the way up: from the state of the leaves to the courses of all nodes.
//!
//! [`super::hierarchy`] has the problem and the whole algorithm; this file is its first step, for the whole
//! tree at the beginning of a phase, and for one subtree after a limit was reached in it.

use super::course::{Courses, Fold, Point, Span, Step, Walk};
use super::drf::{self, Filling, Reservations};
use super::exact::{self, Unit};
use super::front::Member;
use super::growth;
use super::limits::{Limits, first_used_up, spend};
use super::problem::{Order, Problem};
use super::tree::{self, Members};
use super::weights::sibling_set;

pub(super) struct Tree<'a> {
    pub(super) problem: &'a Problem,
    pub(super) reservations: Reservations,
    pub(super) members: Members,
    /// The nodes under the machine by rank, each with all below it.
    pub(super) subtrees: Vec<Vec<usize>>,
    pub(super) filling: Filling,
    /// Used up resources, and the room of the groups with limits.
    pub(super) limits: Limits,
    /// Guarantees of each subtree in full tasks, as parts of the capacity: `n × m`.
    guaranteed: Vec<f64>,
    /// Number of courses built: the measure of work in tests.
    #[cfg(test)]
    pub(super) built: usize,
}

pub(super) struct Phase {
    /// By the rank of the node under the machine.
    pub(super) courses: Vec<Courses>,
    /// By the same rank: the front of a node under the machine, and the point at which it joined.
    pub(super) front: Vec<usize>,
    pub(super) joined: Vec<Point>,
    /// By node, as all that follows.
    pub(super) nodes: Vec<Standing>,
    /// The largest number of tasks of each leaf; less if its group reaches its limit.
    pub(super) leaf_ends: Vec<f64>,
    /// The vector that each node claims at the start of its course: `n × m`.
    claimed: Vec<f64>,
    /// The vector that each node holds then, as parts of the capacity: `n × m`; empty if all orders are
    /// those of DRF.
    held: Vec<f64>,
    /// Point of each group's members, while the tree is walked down.
    pub(super) points: Vec<Option<Point>>,
}

impl Phase {
    pub(super) fn member(&self, rank: usize, subtrees: &[Vec<usize>]) -> Member<'_> {
        let standing = &self.nodes[subtrees[rank][0]];
        Member {
            node: rank,
            courses: &self.courses[rank],
            course: standing.course.clone(),
            stops: standing.stops,
            joined: self.joined[rank],
        }
    }
}

/// The state of a node when a phase begins.
#[derive(Clone, Debug, Default)]
pub(super) struct Standing {
    /// Its course: empty for one that cannot grow.
    pub(super) course: Span,
    /// The same course by its place in line, if its group does not raise all members together.
    pub(super) line: Option<Span>,
    /// The level of its guarantee.
    guaranteed_level: f64,
    pub(super) level: f64,
    /// The resource of which the node has reached its limit at the end of its course.
    pub(super) fills: Option<usize>,
    /// True if the node has to stop at the end of its course, for a new one.
    stops: bool,
}

impl Standing {
    pub(super) fn can_grow(&self) -> bool {
        !self.course.is_empty()
    }
}

impl<'a> Tree<'a> {
    pub(super) fn new(problem: &'a Problem, reservations: Reservations) -> Self {
        let (n, m) = (problem.nodes(), problem.resources());
        let growth: Vec<_> = (0..n).map(|leaf| growth::of(problem, leaf)).collect();
        let tasks = growth.iter().map(|g| if g.rho > 0.0 { g.lo } else { 0.0 }).collect();
        let filling = Filling { tasks, growth };
        let (members, limits) = (tree::members(problem), Limits::new(problem));
        let mut tree = Tree {
            problem,
            reservations,
            subtrees: tree::subtrees(problem, &members),
            members,
            filling,
            limits,
            guaranteed: vec![0.0; n * m],
            #[cfg(test)]
            built: 0,
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

    /// Usage of a resource by all leaves, as a part of the capacity.
    pub(super) fn used(&self, r: usize) -> f64 {
        let capacity = self.problem.capacity[r];
        let unit = Unit::for_terms_up_to(capacity);
        let used = self.problem.leaves().map(|leaf| {
            drf::usage(self.problem, self.reservations, leaf, r, self.filling.tasks[leaf])
        });
        1.0 + exact::excess(unit, used, capacity) / capacity
    }

    /// Counts the room below the limits of a subtree.
    pub(super) fn count(&mut self, rank: usize) {
        let (problem, reservations) = (self.problem, self.reservations);
        let tasks = &self.filling.tasks;
        let usage = |leaf, r| drf::usage(problem, reservations, leaf, r, tasks[leaf]);
        self.limits.count(problem, &self.subtrees[rank], usage);
    }

    /// Live resources of the siblings of a node.
    fn live(&self, node: usize) -> &[bool] {
        self.limits.live(sibling_set(&self.problem.parent, node))
    }

    /// The number of tasks at which a leaf ends in the present state: its demand, or its reservation of a
    /// saturated resource.
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

    /// Up: the courses of all nodes.
    pub(super) fn phase(&mut self) -> Phase {
        let (n, m, tops) = (self.problem.nodes(), self.problem.resources(), self.subtrees.len());
        let mut phase = Phase {
            courses: (0..tops).map(|_| Courses::new(m)).collect(),
            front: vec![0; tops],
            joined: vec![Point::at(0.0); tops],
            nodes: vec![Standing::default(); n],
            leaf_ends: vec![0.0; n],
            claimed: vec![0.0; n * m],
            held: vec![0.0; if self.problem.order.is_empty() { 0 } else { n * m }],
            points: vec![None; n],
        };
        (0..tops).for_each(|rank| self.build(rank, &mut phase));
        phase
    }

    /// Up, in one subtree.
    pub(super) fn build(&mut self, rank: usize, phase: &mut Phase) {
        let mut courses = std::mem::take(&mut phase.courses[rank]);
        courses.clear();
        self.hold(rank, phase);
        for &node in self.subtrees[rank].iter().rev() {
            if self.problem.is_leaf[node] {
                self.leaf(node, phase, &mut courses)
            } else {
                self.group(node, phase, &mut courses)
            }
        }
        phase.courses[rank] = courses;
        #[cfg(test)]
        {
            self.built += self.subtrees[rank].len();
        }
    }

    /// The course of a leaf: the ray behind it, on which it waits, and the ray before it.
    fn leaf(&self, leaf: usize, phase: &mut Phase, courses: &mut Courses) {
        let m = self.problem.resources();
        let (growth, tasks) = (self.filling.growth[leaf], self.filling.tasks[leaf]);
        for r in 0..m {
            phase.claimed[leaf * m + r] = tasks * self.share(leaf, r);
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
                // The leaf's reservation of a resource counts as used; it takes more when that is used up.
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
    fn group(&self, group: usize, phase: &mut Phase, courses: &mut Courses) {
        let m = self.problem.resources();
        let (members, live) = (self.members.of(Some(group)), self.live(group));
        let order = self.problem.order(Some(group));
        let growing: Vec<usize> =
            members.iter().copied().filter(|&node| phase.nodes[node].can_grow()).collect();
        if order != Order::Drf {
            growing.iter().for_each(|&node| self.line_up(node, group, order, phase, courses));
        }
        let nodes = &phase.nodes;
        let begins = |&node: &usize| match &nodes[node].line {
            Some(line) => courses.start(line.clone()).map_or(f64::INFINITY, |start| start.level),
            None => nodes[node].level,
        };
        let inner = growing.iter().map(begins).fold(f64::INFINITY, f64::min);
        let row = group * m..(group + 1) * m;
        for r in 0..m {
            let claims = &phase.claimed;
            let terms =
                members.iter().map(|&node| self.claim_at(&nodes[node], claims, node, r, inner));
            let sum =
                if order == Order::Drf { exact::sum(terms) } else { phase.held[group * m + r] };
            phase.claimed[group * m + r] = sum;
        }
        let claimed = phase.claimed[row.clone()].to_vec();
        let weight = self.problem.weight(group);
        let guaranteed = &self.guaranteed[row];
        let level = Fold::level(weight, live, &claimed);
        let guaranteed_level = Fold::level(weight, live, guaranteed);
        let first = courses.len();
        let mut standing = Standing { guaranteed_level, level, ..Standing::default() };
        if inner.is_finite() {
            if level > guaranteed_level {
                let length = level - guaranteed_level;
                let rise = claimed.iter().zip(guaranteed);
                let claims = rise.map(|(claimed, guaranteed)| (claimed - guaranteed) / length);
                let none = std::iter::repeat_n(0.0, m);
                let inner = Point::at(inner);
                courses.push_rise(guaranteed_level, level, inner, claims, none);
            }
            let here = Point::at(level);
            let mut fold = Fold { weight, live, claimed, here };
            let (mut course, fills, stops) = self.fold((group, inner), &mut fold, phase, courses);
            courses.append(&mut course);
            (standing.fills, standing.stops) = (fills, stops);
        }
        standing.course = first..courses.len();
        phase.nodes[group] = standing;
    }

    /// Folds the courses of a group's members from their level `inner` up to the group's limit.
    ///
    /// Returns the course, the resource of which the group reaches its limit at the end, and true if the
    /// phase must end there.
    fn fold(
        &self,
        (group, inner): (usize, f64),
        fold: &mut Fold<'_>,
        phase: &mut Phase,
        courses: &Courses,
    ) -> (Courses, Option<usize>, bool) {
        let (m, members) = (self.problem.resources(), self.members.of(Some(group)));
        let growing = members.iter().copied().filter(|&node| phase.nodes[node].can_grow());
        let course = |node: usize| match &phase.nodes[node] {
            Standing { line: Some(line), .. } => line.clone(),
            standing => standing.course.clone(),
        };
        let mut spans: Vec<(usize, Span)> = growing.map(|node| (node, course(node))).collect();
        let stops = spans.iter().filter(|(node, _)| phase.nodes[*node].stops);
        let stop = stops.filter_map(|(_, span)| courses.end(span.clone())).min();
        let rises_together = self.problem.order(Some(group)) == Order::Drf;
        let mut room =
            self.limits.room(group).map_or_else(|| vec![f64::INFINITY; m], <[f64]>::to_vec);
        let (mut course, mut from) = (Courses::new(m), inner);
        loop {
            let (mut hit, mut stopped) = (None, false);
            courses.walk(spans.iter().map(|(_, span)| span.clone()), from, |step| {
                let (length, used_up) = first_used_up(&room, step.used, step.length());
                let to = if used_up.is_some() { step.after(length) } else { step.to };
                fold.fold(&mut course, &Step { to, ..*step });
                spend(&mut room, step.used, length);
                hit = used_up.map(|resource| (to, resource));
                stopped = stop.is_some_and(|stop| to >= stop);
                if hit.is_some() || stopped { Walk::Stop } else { Walk::GoOn }
            });
            let Some((point, resource)) = hit else { return (course, None, stopped) };
            if !rises_together || !spans.iter().all(|&(node, _)| self.problem.is_leaf[node]) {
                return (course, Some(resource), self.can_go_on(group, resource, phase));
            }
            // The level of a leaf does not depend on live resources: leaves that take the resource stop,
            // and the others go on.
            room[resource] = f64::INFINITY;
            for (leaf, span) in &mut spans {
                self.stop_at(*leaf, span, (point.level, resource), (&mut *phase, courses));
            }
            from = point.level;
        }
    }

    /// Sums the vectors that the nodes of a subtree hold, if an order needs them.
    fn hold(&self, rank: usize, phase: &mut Phase) {
        let m = self.problem.resources();
        if phase.held.is_empty() {
            return;
        }
        for &node in self.subtrees[rank].iter().rev() {
            for r in 0..m {
                let below = self.members.of(Some(node)).iter();
                phase.held[node * m + r] = match self.problem.capacity[r] {
                    0.0 => 0.0,
                    _ if !self.problem.is_leaf[node] => {
                        exact::sum(below.map(|&member| phase.held[member * m + r]))
                    }
                    capacity => {
                        let tasks = self.filling.tasks[node];
                        drf::usage(self.problem, self.reservations, node, r, tasks) / capacity
                    }
                };
            }
        }
    }

    /// Gives a member of a group its place in line: its course again, by the coordinate in which the
    /// group's members take their turns. The level of a [`Order::Fifo`] member is its rank, and all of its
    /// growth a jump there, so that one follows the other. By the order of a resource it is the weighted
    /// share of that; members that take none of it always have the smallest, and come before all others.
    /// Usage counts, not claims: no member waits here.
    fn line_up(
        &self,
        node: usize,
        group: usize,
        order: Order,
        phase: &mut Phase,
        courses: &mut Courses,
    ) {
        let (m, standing) = (self.problem.resources(), &phase.nodes[node]);
        let members = self.members.of(Some(group));
        let rank = members.partition_point(|&member| member < node) as f64;
        let row = node * m..(node + 1) * m;
        let (weight, held) = (self.problem.weight(node), &phase.held[row]);
        let mut live = vec![false; m];
        let start = match order {
            Order::Resource(r) if courses.uses(standing.course.clone(), r) => {
                live[r] = true;
                held[r] / weight[r]
            }
            Order::Resource(_) => rank - members.len() as f64,
            Order::Fifo | Order::Drf => rank,
        };
        let here = Point::at(start);
        let mut fold = Fold { weight, live: &live, claimed: held.to_vec(), here };
        let mut course = Courses::new(m);
        courses.walk(std::iter::once(standing.course.clone()), standing.level, |step| {
            let step = Step { claimed: step.used, ..*step };
            if live.contains(&true) {
                fold.fold(&mut course, &step)
            } else {
                fold.jump(&mut course, &step)
            }
            Walk::GoOn
        });
        let first = courses.len();
        courses.append(&mut course);
        phase.nodes[node].line = Some(first..courses.len());
    }

    /// Ends the course of a leaf at the level from which it would take a used up resource.
    fn stop_at(
        &self,
        leaf: usize,
        span: &mut Span,
        (level, resource): (f64, usize),
        (phase, courses): (&mut Phase, &Courses),
    ) {
        let growth = self.filling.growth[leaf];
        if self.problem.task(leaf)[resource] == 0.0 {
            return;
        }
        let held = drf::held(self.problem, self.reservations, leaf, resource, growth);
        let end = &mut phase.leaf_ends[leaf];
        *end = end.min(held.max(level / growth.rho));
        let last = level.max(growth.rho * held);
        *span = courses.until(span.clone(), last);
    }

    /// True if any leaf below a group could grow on when the group has used up a resource.
    fn can_go_on(&self, group: usize, resource: usize, phase: &Phase) -> bool {
        let goes_on = |leaf: usize| {
            let growth = self.filling.growth[leaf];
            let takes = self.problem.task(leaf)[resource] > 0.0;
            let holds = || drf::held(self.problem, self.reservations, leaf, resource, growth);
            phase.nodes[leaf].can_grow() && (!takes || holds() > self.filling.tasks[leaf])
        };
        tree::leaves_below(self.problem, &self.members, group).into_iter().any(goes_on)
    }

    /// The claim of a member when its siblings are at `level`, which is not above its own (rules 1 and 2).
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
}
