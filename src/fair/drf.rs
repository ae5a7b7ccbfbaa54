//! Several resources, no groups: weighted Dominant Resource Fairness by one sweep.
//!
//! # Problem
//! Leaves want resources in fixed proportions: more CPU is of no use to a task without the memory that
//! goes with it. DRF (Ghodsi et al., NSDI'11 §4) makes max-min fair what they can be compared by: the
//! *dominant share*, the largest part that a leaf has of any resource.
//!
//! # Terms
//! | | |
//! |---|---|
//! | `C_r` | capacity of resource `r` |
//! | `d_ir`, `w_ir` | what one task of leaf `i` takes of `r`; its normalised weight on `r` |
//! | `rho_i` | weighted dominant share of one task, `max_r d_ir / (C_r · w_ir)` |
//! | `lo_i`, `hi_i` | tasks that its guarantees pay for; tasks it has a use for within its limits |
//! | level | the common weighted dominant share, risen from zero |
//! | saturated, blocked | `r` is given away; `i` demands a saturated resource and stops |
//!
//! # Algorithm
//! Progressive filling, continuous. As the level rises every leaf runs `clamp(level / rho, lo, hi)` tasks.
//! The use of a resource is a rising polyline in the level, `constant + level · slope`, bent where a leaf
//! starts (`rho·lo`) or ends (`rho·hi`). These breakpoints are sorted once; between two of them the next
//! saturation is at `min_r (C_r - constant_r) / slope_r`. A resource that saturates blocks every leaf
//! that demands it. A leaf starts once and ends once, a resource saturates once:
//! O(n log n + n·m) time, O(n·m) memory.
//!
//! With *reservations* (when the second stage follows) a leaf holds what it is guaranteed of a resource
//! from the beginning, whether or not it can put it to use yet: its use is `max(reserved, x·d)`, which
//! bends once for each resource instead of once, and a saturated resource blocks it only when its
//! reservation is used up. Otherwise a guarantee on the CPU alone would find the CPU given away.
//!
//! # Properties, and the test that holds each
//! - No resource is given away beyond its capacity (`drf_keeps_capacity_and_bounds`).
//! - Pareto efficient: whoever is below `hi` demands a saturated resource (`drf_is_pareto_efficient`).
//! - Bottleneck: of that resource nobody above his `lo` has a higher level
//!   (`drf_gives_everyone_a_bottleneck`).
//! - Sharing incentive: nobody would rather have his endowment (`drf_gives_the_sharing_incentive`).
//! - Envy-freeness and strategy-proofness with equal weights and without bounds
//!   (`drf_leaves_no_envy`, `lying_does_not_pay`).
//! - With one resource it is weighted max-min (`drf_of_one_resource_is_max_min`).
//! - Neither the order of the leaves nor the unit of a resource matters, bit for bit in the first case
//!   (`drf_ignores_the_order`, `drf_ignores_the_unit`).
//!
//! What does **not** hold, and must not be relied on: more of a resource can leave a tenant with less,
//! and with demands of zero a tenant's departure can, too (`what_drf_does_not_promise` has the figures).

use super::exact::{self, Exact, Unit};
use super::growth::{self, Growth};
use super::max_min::{ROUNDING, TRIM_ROUNDS, shrinking};
use super::problem::Problem;

/// What guarantees mean while the level rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservations {
    /// Whatever is guaranteed is held from the beginning: the second stage will hand it out.
    Held,
    /// Only what guarantees pay for in full tasks counts.
    None,
}

/// The tasks of every leaf after a sweep; 0 for groups.
#[derive(Clone, Debug)]
pub(super) struct Filling {
    /// By node.
    pub(super) tasks: Vec<f64>,
    /// By node.
    pub(super) growth: Vec<Growth>,
}

/// Fills a flat problem. O(n log n + n·m).
pub(super) fn fill(problem: &Problem, reservations: Reservations) -> Filling {
    let mut sweep = Sweep::new(problem, reservations);
    let bends = sweep.start();
    sweep.run(&bends);
    let mut filling = Filling { tasks: sweep.tasks, growth: sweep.growth };
    trim(problem, reservations, &mut filling);
    filling
}

/// Where the use of some resource bends, in the order of the sweep.
#[derive(Clone, Copy, Debug)]
struct Bend {
    level: f64,
    leaf: u32,
    what: What,
}

/// What happens at a bend. The order matters at one level: a leaf starts before it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// The leaf has used up what it holds of a resource, and takes more of it from now on.
    Starts(u32),
    /// The leaf has all it has a use for.
    Ends,
}

/// The state of the sweep at a level.
struct Sweep<'a> {
    problem: &'a Problem,
    reservations: Reservations,
    growth: Vec<Growth>,
    /// The use of each resource is `constant + level · slope`.
    constant: Vec<Exact>,
    slope: Vec<Exact>,
    whole: Vec<Exact>,
    use_unit: Vec<Unit>,
    slope_unit: Vec<Unit>,
    saturated: Vec<bool>,
    /// Whether a leaf takes more of a resource as the level rises: `n × m`.
    takes: Vec<bool>,
    /// Whether a leaf has ended or is blocked.
    done: Vec<bool>,
    tasks: Vec<f64>,
}

impl<'a> Sweep<'a> {
    fn new(problem: &'a Problem, reservations: Reservations) -> Self {
        let (n, m) = (problem.nodes(), problem.resources());
        let heaviest = problem.weight.iter().copied().fold(0.0, f64::max);
        let use_unit: Vec<Unit> =
            problem.capacity.iter().map(|&capacity| Unit::for_terms_up_to(capacity)).collect();
        let whole = problem.capacity.iter().zip(&use_unit).map(|(&c, unit)| unit.of(c)).collect();
        // A leaf's rate d/rho is at most C·w, by the definition of rho.
        let slope_unit = |&capacity: &f64| Unit::for_terms_up_to(capacity * heaviest);
        Sweep {
            problem,
            reservations,
            growth: (0..n).map(|leaf| growth::of(problem, leaf)).collect(),
            constant: vec![Exact::ZERO; m],
            slope: vec![Exact::ZERO; m],
            whole,
            use_unit,
            slope_unit: problem.capacity.iter().map(slope_unit).collect(),
            saturated: vec![false; m],
            takes: vec![false; n * m],
            done: vec![false; n],
            tasks: vec![0.0; n],
        }
    }

    /// Sets everything to level zero, and lists the bends to come, sorted.
    fn start(&mut self) -> Vec<Bend> {
        let mut bends = Vec::with_capacity(self.growth.len());
        for leaf in 0..self.growth.len() {
            let growth = self.growth[leaf];
            if growth.rho == 0.0 || growth.hi == 0.0 {
                self.done[leaf] = true;
                continue;
            }
            self.tasks[leaf] = growth.lo;
            for r in 0..self.problem.resources() {
                let task = self.problem.task(leaf)[r];
                if task == 0.0 {
                    continue;
                }
                let held = held(self.problem, self.reservations, leaf, r, growth);
                if held > 0.0 {
                    self.constant[r].add(self.use_unit[r].of(held * task));
                    let (level, what) = (growth.rho * held, What::Starts(r as u32));
                    bends.push(Bend { level, leaf: leaf as u32, what });
                } else {
                    self.takes[leaf * self.problem.resources() + r] = true;
                    self.slope[r].add(self.slope_unit[r].of(task / growth.rho));
                }
            }
            if growth.hi.is_finite() {
                let level = growth.rho * growth.hi;
                bends.push(Bend { level, leaf: leaf as u32, what: What::Ends });
            }
        }
        bends.sort_unstable_by(|a, b| a.level.total_cmp(&b.level).then(a.what.cmp(&b.what)));
        bends
    }

    /// Raises the level from zero until nobody grows.
    fn run(&mut self, bends: &[Bend]) {
        let mut level: f64 = 0.0;
        let mut rest = bends;
        loop {
            let bend = rest.first().map_or(f64::INFINITY, |bend| bend.level);
            let (full, resource) = self.next_saturation();
            if full <= bend && full.is_finite() {
                // Rounding may have put it a last bit behind us.
                level = level.max(full);
                self.saturate(resource, level);
                continue;
            }
            if rest.is_empty() {
                return;
            }
            level = level.max(bend);
            // Bends at one level are passed together: between them the order would be the input's.
            let together = rest.partition_point(|other| other.level <= bend);
            for bend in &rest[..together] {
                self.pass(*bend, level);
            }
            rest = &rest[together..];
        }
    }

    /// The level at which the next resource saturates if nothing bends before, and which it is.
    fn next_saturation(&self) -> (f64, usize) {
        let mut next = (f64::INFINITY, 0);
        for r in 0..self.slope.len() {
            if self.saturated[r] || !self.slope[r].is_positive() {
                continue;
            }
            let left = self.use_unit[r].to_f64(self.constant[r].rest_of(self.whole[r]));
            let full = left.max(0.0) / self.slope_unit[r].to_f64(self.slope[r]);
            if full < next.0 {
                next = (full, r);
            }
        }
        next
    }

    /// Blocks whoever takes of `resource`.
    fn saturate(&mut self, resource: usize, level: f64) {
        let m = self.problem.resources();
        self.saturated[resource] = true;
        for leaf in 0..self.growth.len() {
            if self.takes[leaf * m + resource] {
                self.finish(leaf, self.growth[leaf].at(level));
            }
        }
    }

    /// Does what a bend says, unless its leaf is done.
    fn pass(&mut self, bend: Bend, level: f64) {
        let leaf = bend.leaf as usize;
        if self.done[leaf] {
            return;
        }
        let growth = self.growth[leaf];
        match bend.what {
            What::Ends => self.finish(leaf, growth.hi),
            What::Starts(r) if self.saturated[r as usize] => self.finish(leaf, growth.at(level)),
            What::Starts(r) => {
                let r = r as usize;
                let task = self.problem.task(leaf)[r];
                let held = held(self.problem, self.reservations, leaf, r, growth);
                self.constant[r].take(self.use_unit[r].of(held * task));
                self.slope[r].add(self.slope_unit[r].of(task / growth.rho));
                self.takes[leaf * self.problem.resources() + r] = true;
            }
        }
    }

    /// Lets a leaf end with `tasks`.
    fn finish(&mut self, leaf: usize, tasks: f64) {
        let m = self.problem.resources();
        self.tasks[leaf] = tasks;
        self.done[leaf] = true;
        for r in 0..m {
            if std::mem::take(&mut self.takes[leaf * m + r]) {
                let task = self.problem.task(leaf)[r];
                self.slope[r].take(self.slope_unit[r].of(task / self.growth[leaf].rho));
                self.constant[r].add(self.use_unit[r].of(tasks * task));
            }
        }
    }
}

/// The tasks up to which a leaf has what they take of a resource, whatever the level.
pub(super) fn held(
    problem: &Problem,
    reservations: Reservations,
    leaf: usize,
    resource: usize,
    growth: Growth,
) -> f64 {
    match reservations {
        Reservations::None => growth.lo,
        // It may be more than all its tasks could use together: the second stage is for each alone.
        Reservations::Held => problem.floor(leaf, resource) / problem.task(leaf)[resource],
    }
}

/// What a leaf uses, or holds, of a resource when it runs `tasks`.
pub(super) fn usage(
    problem: &Problem,
    reservations: Reservations,
    leaf: usize,
    resource: usize,
    tasks: f64,
) -> f64 {
    let used = tasks * problem.task(leaf)[resource];
    match reservations {
        Reservations::None => used,
        Reservations::Held => used.max(problem.floor(leaf, resource)),
    }
}

/// Takes what rounding gave away beyond the capacity back: from those who stand at the common level, or
/// else from all who are above their guarantees.
///
/// The factor is the same for all of them: equal leaves stay equal, whatever their order.
pub(super) fn trim(problem: &Problem, reservations: Reservations, filling: &mut Filling) {
    let Filling { tasks, growth } = filling;
    for r in 0..problem.resources() {
        let capacity = problem.capacity[r];
        let unit = Unit::for_terms_up_to(capacity);
        for round in 0..TRIM_ROUNDS {
            let used = |leaf: usize| usage(problem, reservations, leaf, r, tasks[leaf]);
            let excess = exact::excess(unit, problem.leaves().map(used), capacity);
            if excess <= 0.0 {
                break;
            }
            let uses = |leaf: &usize| problem.task(*leaf)[r] > 0.0;
            let least = |leaf: usize| growth[leaf].lo;
            let is_above = |leaf: &usize| uses(leaf) && tasks[*leaf] > least(*leaf);
            let is_between = |leaf: &usize| is_above(leaf) && tasks[*leaf] < growth[*leaf].hi;
            let between: Vec<usize> = problem.leaves().filter(is_between).collect();
            let above = || problem.leaves().filter(is_above).collect();
            let loose: Vec<usize> = if between.is_empty() { above() } else { between };
            let held = exact::sum(loose.iter().map(|&leaf| used(leaf)));
            if held == 0.0 && excess > capacity * ROUNDING {
                break;
            }
            let factor = shrinking(excess / if held > 0.0 { held } else { capacity }, round);
            let (from, least): (Vec<usize>, bool) = match held > 0.0 {
                true => (loose, true),
                false => (problem.leaves().filter(uses).collect(), false),
            };
            for leaf in from {
                let least = if least { growth[leaf].lo } else { 0.0 };
                tasks[leaf] = (tasks[leaf] * factor).max(least);
            }
        }
    }
}
