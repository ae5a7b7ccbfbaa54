//! What a division costs, from ten tenants to a hundred thousand, and against two other ways to get it.
//!
//! `cargo bench --bench fair`. Bars: the sweep divides three resources among 10,000 leaves in 5 ms, and
//! takes at most 13 times as long for 100,000 (n log n is 12.5); the hierarchy takes 50 ms for 10,000 leaves
//! in groups of ten.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;
mod dice;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, criterion_group};
use microlp::{ComparisonOp, OptimizationDirection};
use tenantd_fair::{
    self, Algorithm, Bounds, Demand, Kind, Node, Problem, WorkConserving, integer, max_min,
};

use bar::{Bars, least_millis};
use dice::Dice;

const RESOURCES: usize = 3;

/// `leaves` leaves that want four thirds of the machine, a third of them guaranteed part of their demand,
/// a third of them limited; in groups of `group`, or in none.
fn problem(leaves: usize, group: Option<usize>) -> Problem {
    let mut dice = Dice(leaves as u64);
    let capacity = vec![leaves as f64 * 0.375; RESOURCES];
    let mut nodes = Vec::new();
    let mut parent = None;
    for leaf in 0..leaves {
        if group.is_some_and(|group| leaf % group == 0) {
            parent = Some(nodes.len());
            let weight = vec![1.0 + (dice.roll() * 4.0).floor(); RESOURCES];
            nodes.push(Node { parent: None, weight, kind: Kind::Group(Bounds::none(RESOURCES)) });
        }
        let mut demand = Demand::once((0..RESOURCES).map(|_| dice.roll()).collect());
        for r in 0..RESOURCES {
            match leaf % 3 {
                0 => demand.guarantee[r] = demand.task[r] * 0.25,
                1 => demand.limit[r] = demand.task[r] * 0.75,
                _ => {}
            }
        }
        let weight = vec![1.0 + (dice.roll() * 4.0).floor(); RESOURCES];
        nodes.push(Node { parent, weight, kind: Kind::Leaf(demand) });
    }
    Problem::try_new(capacity, nodes).unwrap()
}

fn drf(problem: &Problem, work_conserving: WorkConserving) -> tenantd_fair::Solution {
    tenantd_fair::allocate(problem, Algorithm::Drf, work_conserving)
}

/// Progressive filling as textbooks have it: a heap of shares, one unit of share at a time.
///
/// A unit is a thousandth of the mean share, so that the answer is right to three digits.
fn textbook(problem: &Problem) -> Vec<f64> {
    let leaves = problem.nodes();
    let unit = 1.0 / (1000.0 * leaves as f64);
    let mut left = problem.capacity().to_vec();
    let share = |leaf: usize| {
        let shares = problem.task(leaf).iter().zip(problem.capacity()).zip(problem.weight(leaf));
        shares.map(|((task, capacity), weight)| task / (capacity * weight)).fold(0.0, f64::max)
    };
    let rho: Vec<f64> = (0..leaves).map(share).collect();
    let most = |leaf: usize| {
        let limits = problem.limit(leaf).iter().zip(problem.task(leaf));
        limits.map(|(limit, task)| limit / task).fold(problem.tasks(leaf), f64::min)
    };
    let most: Vec<f64> = (0..leaves).map(most).collect();
    let mut tasks: Vec<f64> = vec![0.0; leaves];
    for leaf in 0..leaves {
        let paid = problem.guarantee(leaf).iter().zip(problem.task(leaf));
        tasks[leaf] = paid.map(|(g, task)| g / task).fold(most[leaf], f64::min);
        left.iter_mut()
            .zip(problem.task(leaf))
            .for_each(|(left, task)| *left -= tasks[leaf] * task);
    }
    let mut heap: BinaryHeap<Reverse<(u64, usize)>> =
        (0..leaves).map(|leaf| Reverse(((rho[leaf] * tasks[leaf]).to_bits(), leaf))).collect();
    while let Some(Reverse((_, leaf))) = heap.pop() {
        let more = (unit / rho[leaf]).min(most[leaf] - tasks[leaf]);
        let fits = left.iter().zip(problem.task(leaf)).all(|(left, task)| more * task <= *left);
        if !fits || more <= 0.0 {
            continue;
        }
        tasks[leaf] += more;
        left.iter_mut().zip(problem.task(leaf)).for_each(|(left, task)| *left -= more * task);
        heap.push(Reverse(((rho[leaf] * tasks[leaf]).to_bits(), leaf)));
    }
    tasks
}

/// The first saturation alone as a linear program: the highest level that all can reach together.
fn program(problem: &Problem) -> f64 {
    let mut program = microlp::Problem::new(OptimizationDirection::Maximize);
    let level = program.add_var(1.0, (0.0, f64::INFINITY));
    let mut uses = vec![Vec::new(); problem.resources()];
    for leaf in problem.leaves() {
        let tasks = program.add_var(0.0, (0.0, problem.tasks(leaf)));
        let shares = problem.task(leaf).iter().zip(problem.capacity()).zip(problem.weight(leaf));
        let rho = shares.map(|((task, capacity), weight)| task / (capacity * weight));
        let scale = problem.nodes() as f64;
        let rho = rho.fold(0.0, f64::max) * scale;
        program.add_constraint([(tasks, rho), (level, -1.0)], ComparisonOp::Ge, 0.0);
        for (r, uses) in uses.iter_mut().enumerate() {
            uses.push((tasks, problem.task(leaf)[r]));
        }
    }
    for (uses, capacity) in uses.iter().zip(problem.capacity()) {
        program.add_constraint(uses, ComparisonOp::Le, *capacity);
    }
    program.solve().unwrap().into_solution().unwrap().objective()
}

fn divisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("drf");
    for leaves in [10, 100, 1_000, 10_000, 100_000] {
        let flat = problem(leaves, None);
        group.bench_with_input(BenchmarkId::new("sweep", leaves), &flat, |bencher, problem| {
            bencher.iter(|| drf(black_box(problem), WorkConserving::No));
        });
        group.bench_with_input(
            BenchmarkId::new("two stages", leaves),
            &flat,
            |bencher, problem| {
                bencher.iter(|| drf(black_box(problem), WorkConserving::Yes));
            },
        );
        let grouped = problem(leaves, Some(10));
        group.bench_with_input(
            BenchmarkId::new("groups of 10", leaves),
            &grouped,
            |bencher, problem| {
                bencher.iter(|| drf(black_box(problem), WorkConserving::No));
            },
        );
    }
    for leaves in [10, 100, 1_000, 10_000] {
        let flat = problem(leaves, None);
        group.bench_with_input(BenchmarkId::new("textbook", leaves), &flat, |bencher, problem| {
            bencher.iter(|| textbook(black_box(problem)));
        });
    }
    for leaves in [10, 100] {
        let flat = problem(leaves, None);
        group.bench_with_input(BenchmarkId::new("program", leaves), &flat, |bencher, problem| {
            bencher.iter(|| program(black_box(problem)));
        });
    }
    group.finish();
}

fn others(criterion: &mut Criterion) {
    let mut dice = Dice(7);
    let claims: Vec<max_min::Claim> = (0..10_000)
        .map(|_| max_min::Claim {
            weight: 1.0 + dice.roll(),
            floor: 0.1,
            ceiling: 2.0 * dice.roll() + 0.1,
        })
        .collect();
    criterion.bench_function("max-min/10000", |bencher| {
        bencher.iter(|| max_min::divide(black_box(5_000.0), &claims));
    });
    let slots: Vec<integer::Claim> = claims
        .iter()
        .map(|claim| integer::Claim { weight: claim.weight, floor: 1, ceiling: 64 })
        .collect();
    criterion.bench_function("apportionment/10000", |bencher| {
        bencher.iter(|| integer::apportion(black_box(100_000), &slots));
    });
    let nodes = || -> Vec<Node> {
        (0..10_000)
            .map(|_| Node {
                parent: None,
                weight: vec![1.0; RESOURCES],
                kind: Kind::Leaf(Demand::once(vec![0.5; RESOURCES])),
            })
            .collect()
    };
    criterion.bench_function("problem/10000", |bencher| {
        bencher.iter_batched(
            nodes,
            |nodes| Problem::try_new(vec![1e4; RESOURCES], nodes),
            BatchSize::LargeInput,
        );
    });
}

fn briefly() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
}

criterion_group! { name = benches; config = briefly(); targets = divisions, others }

fn main() -> ExitCode {
    benches();
    let mut bars = Bars::default();
    let sweep = |leaves, group| {
        let problem = problem(leaves, group);
        least_millis(10, || drop(black_box(drf(black_box(&problem), WorkConserving::No))))
    };
    let flat = sweep(10_000, None);
    bars.at_most("DRF among 10,000 leaves", flat, "ms", 5.0);
    bars.at_most("DRF among 100,000 leaves", sweep(100_000, None) / flat, "x 10,000 leaves", 13.0);
    bars.at_most("DRF among 10,000 leaves in groups of 10", sweep(10_000, Some(10)), "ms", 50.0);
    let problem = problem(10_000, None);
    let filled = least_millis(10, || drop(black_box(textbook(black_box(&problem)))));
    bars.note("progressive filling among 10,000 leaves", filled / flat, "x the sweep");
    bars.verdict()
}
