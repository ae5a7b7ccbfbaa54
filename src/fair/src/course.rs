//! The course of a node: the resources that its whole subtree would hold at each level, as one polyline.
//!
//! A leaf's course is a ray: at level `s` it holds `s / rho` tasks. A group's course is made from those of
//! its members: they rise together, their vectors add up, and the group's own level is the largest weighted
//! share of the sum. To its parent a group is thus a leaf whose demand vector changes direction at some
//! points, and a tree of any depth is folded bottom-up, one group at a time.
//!
//! # Terms
//! | | |
//! |---|---|
//! | level | weighted dominant share of a node, the coordinate of its course |
//! | inner level | the common level of a group's members, on *their* courses |
//! | claimed | the vector that counts for levels; a member that waits is counted at its siblings' level |
//! | used | the vector that is really taken from the machine |
//! | rise | a stretch on which the level rises |
//! | jump | a stretch on which the group grows although its level stands still |
//!
//! Jumps follow from the definition. When a member is at its limit, the group's largest share may belong to
//! it and be frozen; the other members then catch up while the level of the group, and of all its siblings,
//! is constant. A point of a course therefore has two coordinates, the level and, within one level, the
//! progress of the jump: the growth of the fastest share since the jump began. Groups that jump at the same
//! level advance side by side in it.

use std::cmp::Ordering;

use super::exact::{Exact, Unit};

/// A point of a course. Points are ordered by level, then by the progress of the jump at that level; the
/// order is total even for NaN.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) level: f64,
    pub(super) jump: f64,
}

impl Ord for Point {
    fn cmp(&self, other: &Point) -> Ordering {
        self.level.total_cmp(&other.level).then(self.jump.total_cmp(&other.jump))
    }
}

impl PartialOrd for Point {
    fn partial_cmp(&self, other: &Point) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Eq for Point {}

impl PartialEq for Point {
    fn eq(&self, other: &Point) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Point {
    /// The first point of a level.
    pub(super) fn at(level: f64) -> Point {
        Point { level, jump: 0.0 }
    }

    /// The point after a move by `distance`. A level that does not move keeps the progress of its jump.
    fn plus(self, moves: Move, distance: f64) -> Point {
        match moves {
            Move::Rise if self.level + distance > self.level => Point::at(self.level + distance),
            Move::Rise => self,
            Move::Jump => Point { level: self.level, jump: self.jump + distance },
        }
    }
}

/// The coordinate that moves on a stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Rise,
    Jump,
}

/// A straight stretch of a course. Its rates are in [`Courses`].
#[derive(Clone, Copy, Debug)]
struct Stretch {
    moves: Move,
    from: Point,
    /// Infinite for an open course.
    to: Point,
    /// Points of the members at both ends; unused for a leaf.
    inner_from: Point,
    inner_to: Point,
    /// The moving coordinate of the members and its rate; 0 while they wait.
    inner_moves: Move,
    inner_rate: f64,
}

impl Stretch {
    /// True if the stretch ends at or before `point`.
    fn is_behind(&self, point: Point) -> bool {
        match self.moves {
            Move::Rise => self.to.level <= point.level,
            Move::Jump => self.to <= point,
        }
    }

    /// Point of the members when the node is at `point`, no further than the end of the stretch.
    fn inner(&self, point: Point) -> Point {
        let progress = match self.moves {
            Move::Rise => point.level - self.from.level,
            Move::Jump if point.level > self.from.level => return self.inner_to,
            Move::Jump if point.level < self.from.level => 0.0,
            Move::Jump => point.jump - self.from.jump,
        };
        let moved = progress.max(0.0) * self.inner_rate;
        let point = self.inner_from.plus(self.inner_moves, moved);
        point.min(self.inner_to)
    }
}

/// The courses of many nodes, one after the other, with `m` rates of either kind for each stretch.
#[derive(Debug, Default)]
pub(super) struct Courses {
    resources: usize,
    stretches: Vec<Stretch>,
    /// Growth of the claimed vector for each unit of the moving coordinate.
    claimed: Vec<f64>,
    /// The same for the used vector.
    used: Vec<f64>,
}

/// The stretches of one node's course.
pub(super) type Span = std::ops::Range<usize>;

impl Courses {
    pub(super) fn new(resources: usize) -> Courses {
        Courses { resources, stretches: Vec::new(), claimed: Vec::new(), used: Vec::new() }
    }

    pub(super) fn clear(&mut self) {
        self.stretches.clear();
        self.claimed.clear();
        self.used.clear();
    }

    /// Number of stretches so far: the start of the next course.
    pub(super) fn len(&self) -> usize {
        self.stretches.len()
    }

    /// Adds a rise on which the members, if there are any, stay at `inner`.
    pub(super) fn push_rise(
        &mut self,
        from: f64,
        to: f64,
        inner: Point,
        claimed: impl Iterator<Item = f64>,
        used: impl Iterator<Item = f64>,
    ) {
        let (from, to) = (Point::at(from), Point::at(to));
        self.stretches.push(Stretch {
            moves: Move::Rise,
            from,
            to,
            inner_from: inner,
            inner_to: inner,
            inner_moves: Move::Rise,
            inner_rate: 0.0,
        });
        self.claimed.extend(claimed);
        self.used.extend(used);
    }

    /// Appends the course of one more node.
    pub(super) fn append(&mut self, course: &mut Courses) {
        self.stretches.append(&mut course.stretches);
        self.claimed.append(&mut course.claimed);
        self.used.append(&mut course.used);
    }

    /// Point of a group's members when the group is at `point` of its course.
    pub(super) fn inner(&self, span: Span, point: Point) -> Option<Point> {
        let course = &self.stretches[span];
        let passed = course.partition_point(|stretch| stretch.is_behind(point));
        match course.get(passed) {
            Some(stretch) => Some(stretch.inner(point)),
            None => course.last().map(|stretch| stretch.inner_to),
        }
    }

    /// First point of a course; `None` for one without stretches.
    pub(super) fn start(&self, span: Span) -> Option<Point> {
        self.stretches[span].first().map(|stretch| stretch.from)
    }

    /// True if anything on a course uses a resource.
    pub(super) fn uses(&self, mut span: Span, resource: usize) -> bool {
        span.any(|stretch| self.used[stretch * self.resources + resource] > 0.0)
    }

    /// Last point of a course; `None` for one without stretches.
    pub(super) fn end(&self, span: Span) -> Option<Point> {
        self.stretches[span].last().map(|stretch| stretch.to)
    }

    /// The stretches of a leaf's course that end at or below a level.
    pub(super) fn until(&self, span: Span, level: f64) -> Span {
        let course = &self.stretches[span.clone()];
        span.start..span.start + course.partition_point(|stretch| stretch.to.level <= level)
    }

    fn rates(rates: &[f64], resources: usize, stretch: usize) -> &[f64] {
        &rates[stretch * resources..(stretch + 1) * resources]
    }

    /// Walks along several courses at once, from a level on, and shows every straight step to `visit`.
    pub(super) fn walk(
        &self,
        spans: impl Iterator<Item = Span> + Clone,
        from: f64,
        mut visit: impl FnMut(&Step<'_>) -> Walk,
    ) {
        let mut turns: Vec<Turn> = self.turns(spans.clone(), Point::at(from)).collect();
        turns.sort_unstable();
        let mut largest = vec![0.0; self.resources];
        self.largest(spans, &mut largest);
        let mut rates = Rates::new(&largest);
        let mut here = Point::at(from);
        let mut rest = turns.as_slice();
        loop {
            let together = rest.iter().take_while(|turn| turn.at <= here).count();
            for turn in &rest[..together] {
                rates.turn(self, turn);
            }
            rest = &rest[together..];
            let there = match rest.first() {
                Some(turn) if turn.at.level > here.level => Point::at(turn.at.level),
                Some(turn) => turn.at,
                None if rates.rises() => Point::at(f64::INFINITY),
                None => return,
            };
            let walk = visit(&rates.step(here, there));
            if walk == Walk::Stop || there.level.is_infinite() || there.jump.is_infinite() {
                return;
            }
            here = there;
        }
    }

    /// Begins and ends of the stretches of some courses, from a point on.
    pub(super) fn turns(
        &self,
        spans: impl Iterator<Item = Span>,
        start: Point,
    ) -> impl Iterator<Item = Turn> {
        let left = spans.flatten().filter(move |&stretch| self.stretches[stretch].to > start);
        left.flat_map(move |index| {
            let (stretch, Stretch { from, to, .. }) = (index as u32, self.stretches[index]);
            let begin = Turn { at: from.max(start), stretch, begins: true };
            let end = Turn { at: to, stretch, begins: false };
            std::iter::once(begin).chain(to.level.is_finite().then_some(end))
        })
    }

    /// Raises `largest` to the largest claimed rate of each resource on some courses.
    pub(super) fn largest(&self, spans: impl Iterator<Item = Span>, largest: &mut [f64]) {
        let m = self.resources;
        for rates in spans.flat_map(|span| self.claimed[span.start * m..span.end * m].chunks(m)) {
            largest.iter_mut().zip(rates).for_each(|(largest, &rate)| *largest = largest.max(rate));
        }
    }
}

#[derive(Debug)]
pub(super) struct Step<'a> {
    pub(super) moves: Move,
    pub(super) from: Point,
    /// Infinite for the last step of open courses.
    pub(super) to: Point,
    /// Growth of all claimed vectors together for each unit of the moving coordinate.
    pub(super) claimed: &'a [f64],
    /// The same for the used vectors.
    pub(super) used: &'a [f64],
}

impl Step<'_> {
    /// Distance of the moving coordinate.
    pub(super) fn length(&self) -> f64 {
        match self.moves {
            Move::Rise => self.to.level - self.from.level,
            Move::Jump => self.to.jump - self.from.jump,
        }
    }

    pub(super) fn after(&self, length: f64) -> Point {
        if length >= self.length() { self.to } else { self.from.plus(self.moves, length) }
    }
}

/// Answer of a visitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    GoOn,
    Stop,
}

/// The beginning or the end of a stretch. Turns are ordered by their points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn {
    pub(super) at: Point,
    pub(super) stretch: u32,
    pub(super) begins: bool,
}

/// The sums of the rates of the stretches that are being walked, by kind.
#[derive(Debug)]
pub(super) struct Rates {
    /// One for each resource: a group that waits may claim a saturated one at any rate.
    units: Vec<Unit>,
    /// Rising claimed and used, jumping claimed and used: `m` of each.
    sums: Vec<Exact>,
    /// Number of rising stretches. Negative for a moment if a stretch of length zero ends before it begins.
    rising: i64,
    current: Vec<f64>,
}

impl Rates {
    /// Returns empty sums for courses with these largest claims; the used amount never exceeds the claim.
    pub(super) fn new(largest: &[f64]) -> Rates {
        let m = largest.len();
        Rates {
            units: largest.iter().copied().map(Unit::for_terms_up_to).collect(),
            sums: vec![Exact::ZERO; 4 * m],
            rising: 0,
            current: vec![0.0; 2 * m],
        }
    }

    pub(super) fn turn(&mut self, courses: &Courses, turn: &Turn) {
        let m = courses.resources;
        let stretch = turn.stretch as usize;
        let moves = courses.stretches[stretch].moves;
        let first = if moves == Move::Rise { 0 } else { 2 * m };
        let claimed = Courses::rates(&courses.claimed, m, stretch);
        let used = Courses::rates(&courses.used, m, stretch);
        let units = self.units.iter().chain(&self.units);
        let rates = claimed.iter().chain(used).zip(units);
        for (sum, (&rate, unit)) in self.sums[first..].iter_mut().zip(rates) {
            let term = unit.of(rate);
            if turn.begins { sum.add(term) } else { sum.take(term) }
        }
        match (moves, turn.begins) {
            (Move::Jump, _) => {}
            (Move::Rise, true) => self.rising += 1,
            (Move::Rise, false) => self.rising -= 1,
        }
    }

    pub(super) fn rises(&self) -> bool {
        self.rising > 0
    }

    pub(super) fn step(&mut self, from: Point, to: Point) -> Step<'_> {
        let moves = if to.level > from.level { Move::Rise } else { Move::Jump };
        let (claimed, used) = self.current(moves);
        Step { moves, from, to, claimed, used }
    }

    /// The sums for a step of this kind: claimed and used.
    fn current(&mut self, moves: Move) -> (&[f64], &[f64]) {
        let m = self.current.len() / 2;
        let first = if moves == Move::Rise { 0 } else { 2 * m };
        let units = self.units.iter().chain(&self.units);
        for ((current, &sum), unit) in self.current.iter_mut().zip(&self.sums[first..]).zip(units) {
            *current = unit.to_f64(sum);
        }
        self.current.split_at(m)
    }
}

/// Folds the steps of a group's members into the course of the group.
#[derive(Debug)]
pub(super) struct Fold<'a> {
    pub(super) weight: &'a [f64],
    /// The resources that count for its level: those not saturated.
    pub(super) live: &'a [bool],
    /// The vector it claims at the present end of the fold, as parts of the capacity.
    pub(super) claimed: Vec<f64>,
    /// Its point on its own course.
    pub(super) here: Point,
}

/// A level that grows this much slower than the fastest share counts as constant.
const STANDSTILL: f64 = 1e-13;

impl Fold<'_> {
    /// The level of a claimed vector: its largest weighted share of a live resource.
    pub(super) fn level(weight: &[f64], live: &[bool], claimed: &[f64]) -> f64 {
        let shares = claimed.iter().zip(weight).zip(live);
        shares.filter(|(_, live)| **live).map(|((c, w), _)| c / w).fold(0.0, f64::max)
    }

    /// Appends `step` to the group's course, cut wherever another share becomes the largest.
    pub(super) fn fold(&mut self, courses: &mut Courses, step: &Step<'_>) {
        let mut left = step.length();
        let mut done = 0.0;
        let mut top = self.largest(step);
        while let Some(resource) = top
            && left > 0.0
        {
            let (distance, next) = self.next_largest(step, resource);
            let length = distance.min(left);
            if length > 0.0 {
                let rate = step.claimed[resource] / self.weight[resource];
                self.emit(courses, step, done, length, rate);
            }
            left -= length;
            done += length;
            top = if distance.is_finite() { next } else { None };
        }
    }

    /// Appends `step` as one jump: the level stays constant.
    pub(super) fn jump(&mut self, courses: &mut Courses, step: &Step<'_>) {
        self.emit(courses, step, 0.0, step.length(), 0.0);
    }

    /// The live resource of the largest weighted share; among equals the one that grows the fastest.
    fn largest(&self, step: &Step<'_>) -> Option<usize> {
        let share = |r: usize| self.claimed[r] / self.weight[r];
        let rate = |r: usize| step.claimed[r] / self.weight[r];
        let order = |&a: &usize, &b: &usize| {
            share(a).total_cmp(&share(b)).then(rate(a).total_cmp(&rate(b))).then(b.cmp(&a))
        };
        (0..self.live.len()).filter(|&r| self.live[r]).max_by(order)
    }

    /// Distance after which a faster growing share overtakes that of `top`, and its resource.
    fn next_largest(&self, step: &Step<'_>, top: usize) -> (f64, Option<usize>) {
        let share = |r: usize| self.claimed[r] / self.weight[r];
        let rate = |r: usize| step.claimed[r] / self.weight[r];
        let mut next = (f64::INFINITY, None);
        for r in (0..self.live.len()).filter(|&r| self.live[r] && rate(r) > rate(top)) {
            let distance = ((share(top) - share(r)) / (rate(r) - rate(top))).max(0.0);
            if distance < next.0 {
                next = (distance, Some(r));
            }
        }
        next
    }

    /// Appends one stretch: `length` of `step`, on which the level grows at `rate`.
    fn emit(&mut self, courses: &mut Courses, step: &Step<'_>, done: f64, length: f64, rate: f64) {
        let fastest = |live_only: bool| {
            let rates = step.claimed.iter().zip(self.weight).zip(self.live);
            let counted = rates.filter(|(_, live)| !live_only || **live);
            counted.map(|((claimed, weight), _)| claimed / weight).fold(0.0, f64::max)
        };
        // Within a reservation a member may grow on saturated resources alone.
        let fastest = if fastest(true) > 0.0 { fastest(true) } else { fastest(false) };
        if fastest == 0.0 {
            return;
        }
        let from = self.here;
        let level = from.level + rate * length;
        let rises = rate > fastest * STANDSTILL && level > from.level;
        let (moves, rate) = if rises { (Move::Rise, rate) } else { (Move::Jump, fastest) };
        let to = match moves {
            Move::Rise => Point::at(level),
            Move::Jump => Point { level: from.level, jump: from.jump + rate * length },
        };
        courses.stretches.push(Stretch {
            moves,
            from,
            to,
            inner_from: step.after(done),
            inner_to: step.after(done + length),
            inner_moves: step.moves,
            inner_rate: rate.recip(),
        });
        courses.claimed.extend(step.claimed.iter().map(|claimed| claimed / rate));
        courses.used.extend(step.used.iter().map(|used| used / rate));
        self.here = to;
        if length.is_finite() {
            for (sum, claimed) in self.claimed.iter_mut().zip(step.claimed) {
                *sum += claimed * length;
            }
        }
    }
}
