//! Several resources, no groups: weighted Dominant Resource Fairness by one sweep.
//!
//! # Problem
//! Leaves want resources in fixed proportions: more CPU is of no use to a task without the memory that goes
//! with it. DRF (Ghodsi et al., NSDI'11 §4) applies max-min fairness to a measure that makes leaves
//! comparable: the *dominant share*, the largest part that a leaf has of any resource.
//!
//! # Terms
//! | | |
//! |---|---|
//! | `C_r` | capacity of resource `r` |
//! | `d_ir`, `w_ir` | amount of `r` that one task of leaf `i` takes; its normalised weight on `r` |
//! | `rho_i` | weighted dominant share of one task, `max_r d_ir / (C_r · w_ir)` |
//! | `lo_i`, `hi_i` | tasks that its guarantees pay for; tasks it has a use for within its limits |
//! | level | the common weighted dominant share, risen from zero |
//! | saturated, blocked | `r` is given away; `i` demands a saturated resource and stops |
//!
//! # Algorithm
//! Progressive filling, continuous. As the level rises every leaf runs `clamp(level / rho, lo, hi)` tasks.
//! The use of a resource is a rising polyline in the level, `constant + level · slope`, bent where a leaf
//! starts (`rho·lo`) or ends (`rho·hi`). These breakpoints are sorted once; between two of them the next
//! saturation is at `min_r (C_r - constant_r) / slope_r`. A resource that saturates blocks every leaf that
//! demands it. A leaf starts once and ends once, a resource saturates once: O(n log n + n·m) time, O(n·m)
//! memory.
//!
//! With *reservations* (when the second stage follows) a leaf holds its guarantee of a resource from the
//! beginning, even before it can use it: its use is `max(reserved, x·d)`, which bends once for each
//! resource instead of once, and a saturated resource blocks it only when its reservation is used up.
//! Otherwise a guarantee on the CPU alone would find the CPU given away.
//!
//! # Properties, and the test that holds each
//! - No resource is given away beyond its capacity (`drf_keeps_capacity_and_bounds`).
//! - Pareto efficient: every leaf below `hi` demands a saturated resource (`drf_is_pareto_efficient`).
//! - Bottleneck: of that resource no leaf above its `lo` has a higher level
//!   (`drf_gives_everyone_a_bottleneck`).
//! - Sharing incentive: no leaf prefers its endowment to its allocation
//!   (`drf_gives_the_sharing_incentive`).
//! - Envy-freeness and strategy-proofness with equal weights and without bounds (`drf_leaves_no_envy`,
//!   `lying_does_not_pay`).
//! - Lexicographically optimal, which is all of the above at once: the same as a sequence of linear
//!   programs (`the_sweep_is_lexicographically_optimal`).
//! - With one resource it is weighted max-min (`drf_of_one_resource_is_max_min`).
//! - More weight never gives less, for scalar weights (`more_weight_is_never_less`); a leaf without demand
//!   changes nothing (`a_tenant_without_demand_changes_no_allocation`); and where all demands are positive
//!   no leaf loses by the departure of another (`a_departure_reduces_no_share`).
//! - Neither the order of the leaves nor the unit of a resource matters, bit for bit in the first case
//!   (`drf_ignores_the_order`, `drf_ignores_the_unit`).
//!
//! Two properties do **not** hold: more of a resource can leave a tenant with less, and with demands of
//! zero a tenant's departure can do the same (`what_drf_does_not_promise` has the figures).

use super::exact::{self, Exact, Unit};
use super::growth::{self, Growth};
use super::max_min::{ROUNDING, TRIM_ROUNDS, shrinking};
use super::problem::Problem;

/// Effect of guarantees while the level rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reservations {
    /// All guarantees are held from the beginning: the second stage distributes them.
    Held,
    /// Guarantees count only in full tasks.
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

pub(super) fn fill(problem: &Problem, reservations: Reservations) -> Filling {
    let growth: Vec<Growth> = (0..problem.nodes()).map(|leaf| growth::of(problem, leaf)).collect();
    let mut sweep = Sweep::new(problem, reservations, &growth);
    let starts = sweep.start();
    sweep.run(&starts);
    let mut tasks = vec![0.0; problem.nodes()];
    for (&leaf, &reached) in sweep.leaf.iter().zip(&sweep.tasks) {
        tasks[leaf as usize] = reached;
    }
    let mut filling = Filling { tasks, growth };
    trim(problem, reservations, &mut filling);
    filling
}

/// A leaf that has used up its reservation of a resource, and takes more of it from this level on.
#[derive(Clone, Copy, Debug)]
struct Start {
    level: f64,
    rank: u32,
    resource: u32,
}

/// The state of the sweep at a level.
///
/// The leaves that can grow are ranked by the level at which they end, and their data is copied into that
/// order: visiting a hundred thousand leaves in any other order causes as many cache misses.
struct Sweep<'a> {
    problem: &'a Problem,
    reservations: Reservations,
    /// The use of each resource is `constant + level · slope`.
    constant: Vec<Exact>,
    slope: Vec<Exact>,
    whole: Vec<Exact>,
    use_unit: Vec<Unit>,
    slope_unit: Vec<Unit>,
    saturated: Vec<bool>,
    /// By rank, as all that follows: the leaf.
    leaf: Vec<u32>,
    growth: Vec<Growth>,
    task: Vec<f64>,
    tasks: Vec<f64>,
    /// True for a resource of which it takes more as the level rises.
    takes: Vec<bool>,
    /// True if it has ended or is blocked.
    done: Vec<bool>,
}

impl<'a> Sweep<'a> {
    fn new(problem: &'a Problem, reservations: Reservations, growth: &[Growth]) -> Self {
        let m = problem.resources();
        let can_grow = |growth: &Growth| growth.rho > 0.0 && growth.hi > 0.0;
        let mut ends: Vec<(f64, u32)> = (0..)
            .zip(growth)
            .filter(|(_, growth)| can_grow(growth))
            .map(|(leaf, growth)| (growth.rho * growth.hi, leaf))
            .collect();
        // Levels are not negative: their bits sort as they do, and faster.
        ends.sort_unstable_by_key(|end| end.0.to_bits());
        let leaf: Vec<u32> = ends.into_iter().map(|(_, leaf)| leaf).collect();
        let growth: Vec<Growth> = leaf.iter().map(|&leaf| growth[leaf as usize]).collect();
        let heaviest = problem.weight.iter().copied().fold(0.0, f64::max);
        let use_unit: Vec<Unit> =
            problem.capacity.iter().map(|&capacity| Unit::for_terms_up_to(capacity)).collect();
        let whole = problem.capacity.iter().zip(&use_unit).map(|(&c, unit)| unit.of(c)).collect();
        // A leaf's rate d/rho is at most C·w, by the definition of rho.
        let slope_unit = |&capacity: &f64| Unit::for_terms_up_to(capacity * heaviest);
        Sweep {
            problem,
            reservations,
            constant: vec![Exact::ZERO; m],
            slope: vec![Exact::ZERO; m],
            whole,
            use_unit,
            slope_unit: problem.capacity.iter().map(slope_unit).collect(),
            saturated: vec![false; m],
            task: leaf.iter().flat_map(|&leaf| problem.task(leaf as usize)).copied().collect(),
            tasks: growth.iter().map(|growth| growth.lo).collect(),
            takes: vec![false; leaf.len() * m],
            done: vec![false; leaf.len()],
            leaf,
            growth,
        }
    }

    /// Sets everything to level zero, and lists the starts to come, sorted.
    fn start(&mut self) -> Vec<Start> {
        let m = self.problem.resources();
        let mut starts = Vec::new();
        for rank in 0..self.leaf.len() {
            let growth = self.growth[rank];
            for r in 0..m {
                let task = self.task[rank * m + r];
                if task == 0.0 {
                    continue;
                }
                let held = self.held(rank, r);
                if held > 0.0 {
                    self.constant[r].add(self.use_unit[r].of(held * task));
                    let (rank, resource) = (rank as u32, r as u32);
                    starts.push(Start { level: growth.rho * held, rank, resource });
                } else {
                    self.takes[rank * m + r] = true;
                    self.slope[r].add(self.slope_unit[r].of(task / growth.rho));
                }
            }
        }
        starts.sort_unstable_by_key(|start| start.level.to_bits());
        starts
    }

    /// Raises the level from zero until no leaf grows.
    fn run(&mut self, starts: &[Start]) {
        let mut level: f64 = 0.0;
        let mut starts = starts;
        let mut next = 0;
        // Once every resource is saturated, unfinished leaves stay at their guarantees.
        while self.saturated.contains(&false) {
            let start = starts.first().map_or(f64::INFINITY, |start| start.level);
            let end = self.growth.get(next).map_or(f64::INFINITY, |it| it.rho * it.hi);
            let bend = start.min(end);
            if let Some((full, resource)) = self.saturation_until(bend) {
                // Rounding may have put it below the level by a last bit.
                level = level.max(full);
                self.saturate(resource, level);
                continue;
            }
            if bend.is_infinite() {
                return;
            }
            level = level.max(bend);
            // Bends at one level are passed together: otherwise the result would depend on the input order.
            // Starts come first, for a leaf may start and end at once.
            while let Some((start, rest)) = starts.split_first()
                && start.level <= bend
            {
                self.pass_start(*start, level);
                starts = rest;
            }
            while let Some(growth) = self.growth.get(next)
                && growth.rho * growth.hi <= bend
            {
                if !self.done[next] {
                    self.finish(next, growth.hi);
                }
                next += 1;
            }
        }
    }

    /// The level at which the next resource saturates, and the resource, if no bend comes before.
    fn saturation_until(&self, bend: f64) -> Option<(f64, usize)> {
        let mut next: Option<(f64, usize)> = None;
        for r in 0..self.slope.len() {
            if self.saturated[r] || !self.slope[r].is_positive() {
                continue;
            }
            let left = self.use_unit[r].to_f64(self.constant[r].rest_of(self.whole[r])).max(0.0);
            let slope = self.slope_unit[r].to_f64(self.slope[r]);
            // Most bends come first, and a product is cheaper than a quotient.
            if left > slope * bend {
                continue;
            }
            let full = left / slope;
            if next.is_none_or(|(earliest, _)| full < earliest) {
                next = Some((full, r));
            }
        }
        next
    }

    /// Blocks every leaf that takes `resource`.
    fn saturate(&mut self, resource: usize, level: f64) {
        let m = self.problem.resources();
        self.saturated[resource] = true;
        for rank in 0..self.leaf.len() {
            if self.takes[rank * m + resource] {
                self.finish(rank, self.growth[rank].at(level));
            }
        }
    }

    /// Lets a leaf take a resource, or blocks the leaf if the resource is saturated.
    fn pass_start(&mut self, start: Start, level: f64) {
        let (rank, r) = (start.rank as usize, start.resource as usize);
        if self.done[rank] {
            return;
        }
        if self.saturated[r] {
            self.finish(rank, self.growth[rank].at(level));
            return;
        }
        let m = self.problem.resources();
        let task = self.task[rank * m + r];
        let held = self.held(rank, r);
        self.constant[r].take(self.use_unit[r].of(held * task));
        self.slope[r].add(self.slope_unit[r].of(task / self.growth[rank].rho));
        self.takes[rank * m + r] = true;
    }

    /// Ends a leaf at `tasks`.
    fn finish(&mut self, rank: usize, tasks: f64) {
        let m = self.problem.resources();
        self.tasks[rank] = tasks;
        self.done[rank] = true;
        for r in 0..m {
            if std::mem::take(&mut self.takes[rank * m + r]) {
                let task = self.task[rank * m + r];
                self.slope[r].take(self.slope_unit[r].of(task / self.growth[rank].rho));
                self.constant[r].add(self.use_unit[r].of(tasks * task));
            }
        }
    }

    /// The tasks that the reservation of a leaf pays for, for one resource.
    fn held(&self, rank: usize, resource: usize) -> f64 {
        let leaf = self.leaf[rank] as usize;
        held(self.problem, self.reservations, leaf, resource, self.growth[rank])
    }
}

/// The tasks for which a leaf has a resource at any level.
pub(super) fn held(
    problem: &Problem,
    reservations: Reservations,
    leaf: usize,
    resource: usize,
    growth: Growth,
) -> f64 {
    match reservations {
        Reservations::None => growth.lo,
        // It may be more than all its tasks could use together: the second stage treats each resource alone.
        Reservations::Held => problem.floor(leaf, resource) / problem.task(leaf)[resource],
    }
}

/// Amount of a resource that a leaf uses, or holds, when it runs `tasks`.
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

/// Removes the excess of rounding above the capacity.
pub(super) fn trim(problem: &Problem, reservations: Reservations, filling: &mut Filling) {
    let leaves: Vec<usize> = problem.leaves().collect();
    for r in 0..problem.resources() {
        trim_to(problem, reservations, filling, &leaves, (r, problem.capacity[r]));
    }
}

/// Removes the excess of rounding above `whole` from some leaves' allocations of a resource: from those at
/// the common level, or else from all that are above their guarantees.
///
/// The factor is the same for all of them: equal leaves stay equal in any order.
pub(super) fn trim_to(
    problem: &Problem,
    reservations: Reservations,
    filling: &mut Filling,
    leaves: &[usize],
    (r, whole): (usize, f64),
) {
    let Filling { tasks, growth } = filling;
    let unit = Unit::for_terms_up_to(whole);
    let leaves = || leaves.iter().copied();
    for round in 0..TRIM_ROUNDS {
        let used = |leaf: usize| usage(problem, reservations, leaf, r, tasks[leaf]);
        let excess = exact::excess(unit, leaves().map(used), whole);
        if excess <= 0.0 {
            break;
        }
        let uses = |leaf: &usize| problem.task(*leaf)[r] > 0.0;
        let least = |leaf: usize| growth[leaf].lo;
        let is_above = |leaf: &usize| uses(leaf) && tasks[*leaf] > least(*leaf);
        let is_between = |leaf: &usize| is_above(leaf) && tasks[*leaf] < growth[*leaf].hi;
        let between: Vec<usize> = leaves().filter(is_between).collect();
        let above = || leaves().filter(is_above).collect();
        let loose: Vec<usize> = if between.is_empty() { above() } else { between };
        let held = exact::sum(loose.iter().map(|&leaf| used(leaf)));
        if held == 0.0 && excess > whole * ROUNDING {
            break;
        }
        let factor = shrinking(excess / if held > 0.0 { held } else { whole }, round);
        let (from, least): (Vec<usize>, bool) =
            if held > 0.0 { (loose, true) } else { (leaves().filter(uses).collect(), false) };
        for leaf in from {
            let least = if least { growth[leaf].lo } else { 0.0 };
            tasks[leaf] = (tasks[leaf] * factor).max(least);
        }
    }
}
