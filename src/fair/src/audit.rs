//! The properties of a division, checked on one problem: sharing incentive, envy, waste and false claims.
//!
//! # Problem
//! The papers prove the properties of a rule for all problems. The audit shows them for one problem, and
//! the gains that tenants could make if the rule lacks a property.
//!
//! # Properties that are checked
//! | | holds if |
//! |---|---|
//! | sharing incentive | every tenant runs as many tasks as with its weight's part of every resource |
//! | envy-freeness | no tenant would run more tasks with the bundle of another, scaled by their weights |
//! | Pareto efficiency | no tenant that wants more could still grow with the unallocated rest (whole tasks: the next one does not fit) |
//! | strategy-proofness | no tenant runs more of its true tasks by a false claim |
//! | no collusion | no two can claim so that one gains and the other does not lose |
//!
//! # Algorithm
//! Claims are tried on a grid: {0, ¼, ⅓, ½, ⅔, ¾, 1} of the capacity of each resource, the largest 1, as
//! any number of tasks; and the truth. Three resources make 128 claims for a tenant and 16,384 for a pair,
//! so six tenants need a quarter of a million divisions. Among equal claims the truth is reported, then the
//! earlier claim.
//!
//! # Properties of the audit
//! In random problems, DRF has the properties that NSDI'11 proves (`an_audit_of_drf_finds_no_lie`). Max-min
//! lacks the properties that NSDI'11 shows it to lack (vectors `seeds_audit`).

use super::problem::Problem;
use super::solution::{Algorithm, Solution, WorkConserving, allocate, tasks_by};
use super::{Nodes, measure};

/// Largest number of tenants in an audit.
pub const MOST_TENANTS: usize = 6;
/// Largest number of resources in an audit.
pub const MOST_RESOURCES: usize = 3;

/// The claims of one resource, as parts of its capacity.
const GRID: [f64; 7] = [0.0, 0.25, 1.0 / 3.0, 0.5, 2.0 / 3.0, 0.75, 1.0];

/// Smaller gains come from rounding.
const NOTHING: f64 = 1e-9;

/// The findings of an audit. Tenants are leaves of a flat problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Audit {
    /// Tasks of each tenant: with its own part of the machine, and in this division.
    pub sharing: Vec<(f64, f64)>,
    /// Pairs of tenants; the first envies the second.
    pub envies: Vec<(usize, usize)>,
    /// Tenants that want more and could have it.
    pub wasted: Vec<usize>,
    /// Gains by false claims; `None` if they were not tried.
    pub lies: Option<Lies>,
}

/// Gains by false claims.
#[derive(Clone, Debug, PartialEq)]
pub struct Lies {
    /// The best claim of each tenant.
    pub alone: Vec<Lie>,
    /// The best claims of each pair that gains.
    pub pairs: Vec<Collusion>,
}

/// The best claim of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Lie {
    /// Tasks with the truth.
    pub honest: f64,
    /// Tasks with the best claim.
    pub best: f64,
    /// The best claim.
    pub claim: Vec<f64>,
}

/// The best claims of two tenants together.
#[derive(Clone, Debug, PartialEq)]
pub struct Collusion {
    /// The pair.
    pub tenants: [usize; 2],
    /// Their claims.
    pub claims: [Vec<f64>; 2],
    /// Their tasks with the truth.
    pub honest: [f64; 2],
    /// Their tasks with the claims.
    pub useful: [f64; 2],
    /// The larger gain.
    pub gain: f64,
}

impl Audit {
    /// The tenants that would rather have their own part of the machine.
    pub fn leavers(&self) -> impl Iterator<Item = usize> + '_ {
        let sharing = self.sharing.iter().enumerate();
        sharing.filter(|(_, (alone, shared))| shared + NOTHING < *alone).map(|(tenant, _)| tenant)
    }
}

impl Lies {
    /// The tenants that gain by a lie of their own.
    pub fn liars(&self) -> impl Iterator<Item = usize> + '_ {
        let lies = self.alone.iter().enumerate();
        lies.filter(|(_, lie)| lie.best > lie.honest + NOTHING).map(|(tenant, _)| tenant)
    }
}

/// Audits a division of a flat problem: whole tasks or fractions, on `nodes` if there are several machines.
pub fn audit(problem: &Problem, solution: &Solution, whole: bool, nodes: Option<&Nodes>) -> Audit {
    let tenants = problem.nodes();
    let cut = |tasks: f64| if whole { (tasks * (1.0 + 1e-12)).floor() } else { tasks };
    let here = |tenant: usize| match (&solution.placed, nodes) {
        (Some(placed), Some(nodes)) => placed.useful(nodes, tenant),
        _ => solution.leaves[tenant].fraction,
    };
    let alone = measure::alone(problem);
    let sharing = (0..tenants).map(|tenant| (cut(alone[tenant]), here(tenant))).collect();
    let pairs = (0..tenants).flat_map(|one| (0..tenants).map(move |other| (one, other)));
    let envies = pairs.filter(|&(one, other)| {
        let envied = measure::tasks_with_bundle_of(problem, one, other, &solution.allocation);
        one != other && wants(problem, one) && cut(envied) > here(one) * (1.0 + NOTHING) + NOTHING
    });
    let wasted = (0..tenants).filter(|&tenant| {
        let task = problem.task(tenant);
        let more = solution.leaves[tenant].fraction + if whole { 1.0 } else { NOTHING };
        let fits = match (&solution.placed, nodes, whole) {
            (Some(placed), Some(nodes), _) => placed.fits(nodes, task),
            (_, _, true) => {
                let mut left = solution.unallocated.iter().zip(task).zip(&problem.capacity);
                left.all(|((left, task), has)| *task <= left + has * 1e-12)
            }
            (_, _, false) => {
                let mut needs = task.iter().zip(&solution.saturated).filter(|it| *it.0 > 0.0);
                needs.all(|(_, full)| !full)
            }
        };
        wants(problem, tenant) && more <= problem.tasks(tenant) && fits
    });
    let (envies, wasted) = (envies.collect(), wasted.collect());
    Audit { sharing, envies, wasted, lies: None }
}

fn wants(problem: &Problem, tenant: usize) -> bool {
    problem.task(tenant).iter().any(|&task| task > 0.0)
}

/// Tries the claims of every tenant and of every pair under a rule that divides tasks.
pub fn lies(problem: &Problem, algorithm: Algorithm) -> Lies {
    let tenants = problem.nodes();
    let honest = allocate(problem, algorithm, WorkConserving::No);
    let honest: Vec<f64> = honest.leaves.iter().map(|leaf| leaf.fraction).collect();
    let grid = grid(problem);
    let mut trial = Trial { truth: problem, claimed: problem.clone(), algorithm };
    let alone = (0..tenants).map(|tenant| {
        let mut best = Lie {
            honest: honest[tenant],
            best: honest[tenant],
            claim: problem.task(tenant).to_vec(),
        };
        for claim in &grid {
            trial.claim(tenant, Some(claim));
            let useful = trial.useful(&[tenant])[0];
            if useful > best.best + NOTHING {
                best = Lie { best: useful, claim: claim.clone(), ..best };
            }
        }
        trial.claim(tenant, None);
        best
    });
    let alone = alone.collect();
    let pairs = (0..tenants).flat_map(|one| (one + 1..tenants).map(move |other| [one, other]));
    let pairs = pairs.filter_map(|pair| trial.collude(pair, &honest, &grid)).collect();
    Lies { alone, pairs }
}

/// All claims of the grid, as the demand of one task.
fn grid(problem: &Problem) -> Vec<Vec<f64>> {
    let mut claims: Vec<Vec<f64>> = vec![Vec::new()];
    for capacity in problem.capacity() {
        let longer = |claim: &Vec<f64>| GRID.map(|part| [&claim[..], &[part * capacity]].concat());
        claims = claims.iter().flat_map(longer).collect();
    }
    let is_whole = |claim: &Vec<f64>| {
        claim.iter().zip(problem.capacity()).any(|(it, all)| it == all && *all > 0.0)
    };
    claims.retain(is_whole);
    claims
}

/// A problem with some claims in place of the truth.
struct Trial<'a> {
    truth: &'a Problem,
    claimed: Problem,
    algorithm: Algorithm,
}

impl Trial<'_> {
    /// Replaces the demand of a tenant by any number of such tasks, or by the truth.
    fn claim(&mut self, tenant: usize, claim: Option<&Vec<f64>>) {
        let row = self.truth.row(tenant);
        let (task, tasks) = match claim {
            Some(claim) => (&claim[..], f64::INFINITY),
            None => (self.truth.task(tenant), self.truth.tasks(tenant)),
        };
        self.claimed.task[row].copy_from_slice(task);
        self.claimed.tasks[tenant] = tasks;
    }

    /// The true tasks that some tenants run with the allocation of their claims.
    fn useful<const N: usize>(&self, tenants: &[usize; N]) -> [f64; N] {
        let rows = tasks_by(&self.claimed, self.algorithm);
        tenants.map(|tenant| {
            let row = &rows[self.truth.row(tenant)];
            if wants(self.truth, tenant) { measure::tasks_of(self.truth, tenant, row) } else { 0.0 }
        })
    }

    /// The best claims of a pair, if any of them pays.
    fn collude(
        &mut self,
        tenants: [usize; 2],
        honest: &[f64],
        grid: &[Vec<f64>],
    ) -> Option<Collusion> {
        let honest = tenants.map(|tenant| honest[tenant]);
        let mut best: Option<Collusion> = None;
        let claims = || std::iter::once(None).chain(grid.iter().map(Some));
        for one in claims() {
            self.claim(tenants[0], one);
            for other in claims() {
                self.claim(tenants[1], other);
                let useful = self.useful(&tenants);
                let gains = [useful[0] - honest[0], useful[1] - honest[1]];
                let gain = gains[0].max(gains[1]);
                let least = best.as_ref().map_or(0.0, |best| best.gain);
                if gain > least + NOTHING && gains[0].min(gains[1]) >= -NOTHING {
                    let claimed = |index: usize| self.claimed.task(tenants[index]).to_vec();
                    let claims = [claimed(0), claimed(1)];
                    best = Some(Collusion { tenants, claims, honest, useful, gain });
                }
            }
        }
        tenants.iter().for_each(|&tenant| self.claim(tenant, None));
        best
    }
}
