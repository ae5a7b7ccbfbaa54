//! What a dispatch costs: the order of thousands of backlogged tenants, and the papers' setting from end to
//! end.
//!
//! `cargo bench --bench queue`. A dispatch is one pick, one completion and the arrival of the tenant's next
//! request. Bars, at 10,000 backlogged tenants and 32 workers: at most 5 µs under every discipline; for FQ,
//! WFQ and WF²Q no faster growth than log n from 1,000 to 100,000 tenants (to be read beside that of a bare search
//! tree, which pays for the same misses of the cache); 2DFQ at least 20 times as fast
//! as a scan of all tenants in the same run; a dispatch of a job beside 1,000 that wait for another one in at most 1 ms.
//! The setting of 2DFQ's figure 8 (60 simulated seconds, 100
//! tenants, 16 workers) in at most a second.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;
mod dice;

use std::collections::BTreeSet;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use criterion::{BenchmarkId, Criterion, criterion_group};
use tenantd_admission::{
    Admission, Capacity, Measured, Request as JobRequest, Requirement, Rules, Terms as JobTerms,
};
use tenantd_queue::simulation::{Arrival, Before, Charge, Observer, Run, Source, Work, simulate};
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{
    Discipline, Estimator, Machine, Pick, Queue, Request, Rule, Setup, TenantId, Terms, Ticket,
    Ties,
};

use bar::Bars;
use dice::Dice;

/// Dispatches by a scan that are measured.
const SCANS: u32 = 500;
const WORKERS: u32 = 32;

/// From 1 to 1,000, as many between 1 and 10 as between 100 and 1,000.
fn cost(dice: &mut Dice) -> f64 {
    1000_f64.powf(dice.roll())
}

fn disciplines() -> Vec<(&'static str, Discipline)> {
    let fair = |rule, estimator| {
        let virtual_time = Method::Active;
        Discipline::Fair { rule, estimator, virtual_time }
    };
    let pessimistic = Estimator::Pessimistic { alpha: 0.99, initial: 1.0 };
    let average = Estimator::MovingAverage { alpha: 0.99, initial: 1.0 };
    vec![
        ("fifo", Discipline::Fifo),
        ("priority", Discipline::Priority { ageing: 0.1 }),
        ("round-robin", Discipline::RoundRobin),
        ("sfq", Discipline::fair(Rule::Start)),
        ("wfq", Discipline::fair(Rule::Finish)),
        ("wf2q", Discipline::fair(Rule::Eligible)),
        ("2dfq", Discipline::fair(Rule::Staggered)),
        ("wfq-e", fair(Rule::Finish, average)),
        ("wf2q-e", fair(Rule::Eligible, average)),
        ("2dfq-e", fair(Rule::Staggered, pessimistic)),
        ("drf", Discipline::Drf { capacity: vec![64.0], ties: Ties::Turn }),
        ("multilevel", Discipline::Multilevel { multiplier: 2.0 }),
    ]
}

/// A queue in its steady state: every tenant backlogged, every worker busy.
struct Steady {
    queue: Queue,
    costs: Vec<f64>,
    /// When each worker ends, and with what.
    busy: Vec<(f64, Ticket, f64)>,
    now: f64,
}

impl Steady {
    fn new(discipline: Discipline, nr_tenants: usize) -> Steady {
        let machine = Machine { workers: WORKERS, rate: 1000.0 };
        let mut queue = Queue::new(Setup { discipline, machine });
        let mut dice = Dice(nr_tenants as u64);
        let costs: Vec<f64> = (0..nr_tenants).map(|_| cost(&mut dice)).collect();
        for (tenant, cost) in (0..).map(TenantId).zip(&costs) {
            let weight = 1.0 + (dice.roll() * 4.0).floor();
            queue.admit(tenant, &Terms { weight, endless: true, ..Terms::default() }, 0.0).unwrap();
            queue.enqueue(tenant, Request::new(0, *cost), 0.0);
        }
        let mut steady = Steady { queue, costs, busy: Vec::new(), now: 0.0 };
        for worker in 0..WORKERS {
            let begun = steady.begin(worker);
            steady.busy.push(begun);
        }
        for _ in 0..4 * nr_tenants {
            steady.dispatch();
        }
        steady
    }

    fn begin(&mut self, worker: u32) -> (f64, Ticket, f64) {
        let Pick::Run(picked) = self.queue.pick(worker, self.now) else { panic!("nothing waits") };
        let cost = self.costs[picked.tenant.0 as usize];
        self.queue.enqueue(picked.tenant, Request::new(0, cost), self.now);
        (self.now + cost / 1000.0, picked.ticket, cost)
    }

    /// The next worker to end, ends and begins another request.
    fn dispatch(&mut self) {
        let ends = self.busy.iter().enumerate();
        let worker = ends.min_by(|a, b| a.1.0.total_cmp(&b.1.0)).unwrap().0;
        let (end, ticket, cost) = self.busy[worker];
        self.now = end;
        self.queue.complete(ticket, cost, end);
        self.busy[worker] = self.begin(worker as u32);
    }
}

/// 2DFQ as its definition says: all tenants are looked at for each dispatch.
struct Scan {
    tenants: Vec<ScanTenant>,
    busy: Vec<f64>,
    now: f64,
    weights: f64,
}

#[derive(Clone, Copy)]
struct ScanTenant {
    start: f64,
    finish: f64,
    cost: f64,
    weight: f64,
}

impl Scan {
    fn new(nr_tenants: usize) -> Scan {
        let mut dice = Dice(nr_tenants as u64);
        let costs: Vec<f64> = (0..nr_tenants).map(|_| cost(&mut dice)).collect();
        let mut tenants = Vec::new();
        for cost in costs {
            let weight = 1.0 + (dice.roll() * 4.0).floor();
            tenants.push(ScanTenant { start: 0.0, finish: cost / weight, cost, weight });
        }
        let weights = tenants.iter().map(|tenant| tenant.weight).sum();
        let mut scan = Scan { tenants, busy: vec![0.0; WORKERS as usize], now: 0.0, weights };
        (0..4 * nr_tenants).for_each(|_| scan.dispatch());
        scan
    }

    fn dispatch(&mut self) {
        let ends = self.busy.iter().enumerate();
        let (worker, end) = ends.min_by(|a, b| a.1.total_cmp(b.1)).unwrap();
        self.now = *end;
        let v = self.now * 1000.0 * f64::from(WORKERS) / self.weights;
        let ratio = worker as f64 / f64::from(WORKERS);
        let (mut first, mut least) = (None, None);
        let (mut finish, mut key) = (f64::INFINITY, (f64::INFINITY, f64::INFINITY));
        for (index, tenant) in self.tenants.iter().enumerate() {
            let eligibility = tenant.start - ratio * tenant.cost;
            if eligibility <= v && tenant.finish < finish {
                (first, finish) = (Some(index), tenant.finish);
            }
            if (eligibility, tenant.finish) < key {
                (least, key) = (Some(index), (eligibility, tenant.finish));
            }
        }
        let tenant = &mut self.tenants[first.or(least).unwrap()];
        tenant.start = tenant.finish;
        tenant.finish += tenant.cost / tenant.weight;
        self.busy[worker] = self.now + tenant.cost / 1000.0;
    }
}

fn dispatch(c: &mut Criterion) {
    let mut group = c.benchmark_group("dispatch");
    for (name, discipline) in disciplines() {
        for nr_tenants in [100, 1_000, 10_000, 100_000] {
            let mut steady = Steady::new(discipline.clone(), nr_tenants);
            group.bench_function(BenchmarkId::new(name, nr_tenants), |b| {
                b.iter(|| steady.dispatch());
            });
            black_box(steady.now);
        }
    }
    for nr_tenants in [1_000, 10_000] {
        let mut scan = Scan::new(nr_tenants);
        group.bench_function(BenchmarkId::new("2dfq by a scan", nr_tenants), |b| {
            b.iter(|| scan.dispatch());
        });
        black_box(scan.now);
    }
    group.finish();
}

/// What any queue of this order must do for a dispatch, and nothing else: the smallest tag leaves a search tree, one
/// record of its tenant is read, and its next tag goes into the tree.
struct Bare {
    tags: BTreeSet<(u64, u32)>,
    /// As long as a line of the cache.
    tenants: Vec<[u64; 8]>,
}

impl Bare {
    fn new(nr_tenants: usize) -> Bare {
        let mut dice = Dice(nr_tenants as u64);
        let length = |_| [(cost(&mut dice) * 1000.0) as u64; 8];
        let tenants: Vec<[u64; 8]> = (0..nr_tenants).map(length).collect();
        let tags = (0..).zip(&tenants).map(|(tenant, [length, ..])| (*length, tenant)).collect();
        let mut bare = Bare { tags, tenants };
        (0..4 * nr_tenants).for_each(|_| bare.dispatch());
        bare
    }

    fn dispatch(&mut self) {
        let Some((tag, tenant)) = self.tags.pop_first() else { return };
        let [length, ..] = self.tenants[tenant as usize];
        self.tags.insert((tag + length, tenant));
    }
}

/// How long a dispatch takes, in nanoseconds: the least of several runs, for other work takes the shared cache.
fn nanos(mut dispatch: impl FnMut()) -> f64 {
    const DISPATCHES: u32 = 20_000;
    let run = |_| {
        let start = Instant::now();
        (0..DISPATCHES).for_each(|_| dispatch());
        start.elapsed().as_nanos() as f64 / f64::from(DISPATCHES)
    };
    (0..20).map(run).fold(f64::INFINITY, f64::min)
}

/// How much longer a dispatch takes among 100,000 tenants than among 1,000, beside a bare search tree: the state of
/// 100,000 tenants is in no core's own cache, and tags visit it in no order.
fn growth(_: &mut Criterion) {
    let print = |name: &str, few: f64, many: f64| {
        let factor = many / few;
        println!("growth/{name:<12} {few:6.0} ns to {many:6.0} ns: {factor:.2} times, log n 1.67");
    };
    let bare = |nr_tenants| {
        let mut bare = Bare::new(nr_tenants);
        nanos(|| bare.dispatch())
    };
    print("a bare tree", bare(1_000), bare(100_000));
    for (name, discipline) in disciplines() {
        let of = |nr_tenants: usize| {
            let mut steady = Steady::new(discipline.clone(), nr_tenants);
            nanos(|| steady.dispatch())
        };
        print(name, of(1_000), of(100_000));
    }
}

/// Half of the tenants with requests of about 1, half with requests of about 1,000.
struct Figure8(Vec<Dice>);

impl Source for Figure8 {
    fn next_arrival(&mut self) -> Option<Arrival> {
        None
    }

    fn next_of(&mut self, tenant: TenantId, _: f64) -> Option<Work> {
        let near = 0.8 + 0.4 * self.0[tenant.0 as usize].roll();
        let cost = if tenant.0 < 50 { near } else { near * 1000.0 };
        Some(Work { cost, ..Work::default() })
    }

    fn endless(&self) -> Vec<(f64, TenantId)> {
        (0..100).map(|tenant| (0.0, TenantId(tenant))).collect()
    }
}

struct Silent;

impl Observer for Silent {}

fn figure_8(c: &mut Criterion) {
    let mut group = c.benchmark_group("60 s of figure 8");
    group.sample_size(10);
    for (name, rule) in [("wf2q", Rule::Eligible), ("2dfq", Rule::Staggered)] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let machine = Machine { workers: 16, rate: 1000.0 };
                let discipline = Discipline::fair(rule);
                let mut queue = Queue::new(Setup { discipline, machine });
                for tenant in 0..100 {
                    let terms = Terms { endless: true, ..Terms::default() };
                    queue.admit(TenantId(tenant), &terms, 0.0).unwrap();
                }
                let (charge, quantum, dispatches_max) = (Charge::End, None, u64::MAX);
                let (horizon, sample) = (60.0, 0.1);
                let run = Run { machine, horizon, charge, quantum, sample, dispatches_max };
                let mut source = Figure8((0..100).map(Dice).collect());
                let mut before = Before::nothing(100);
                simulate(&mut queue, run, &mut before, &mut source, &mut Silent)
            });
        });
    }
    group.finish();
}

/// Seconds for the end of a job and the next dispatch, beside 1,000 jobs in ten tenants that wait for another one.
fn beside_dependants() -> f64 {
    const ROUNDS: u32 = 1_000;
    let rules = Rules { max_waiting_per_user: 10_000, ..Rules::default() };
    let mut admission = Admission::new(rules, Capacity { slots: 2, ..Capacity::default() });
    let terms = (0..10).map(|tenant| JobTerms::new(format!("t{tenant}"), 1.0)).collect();
    admission.policy(rules, terms, 0.0);
    let submit = |admission: &mut Admission, number: u32, after: Vec<Requirement>| {
        let request = JobRequest { after, ..JobRequest::new(format!("t{}", number % 10), 7) };
        admission.submit(request, 0.0).unwrap()
    };
    let first = submit(&mut admission, 0, Vec::new());
    admission.dispatch(Measured::default(), 0.0);
    let after = || vec![Requirement { job: first, must_succeed: false }];
    for number in 0..1_000 {
        let _ = submit(&mut admission, number, after());
    }
    for number in 0..ROUNDS + 2 {
        let _ = submit(&mut admission, number, Vec::new());
    }
    let begin = Instant::now();
    for round in 0..ROUNDS {
        let now = f64::from(round);
        for start in black_box(admission.dispatch(Measured::default(), now)).starts {
            admission.ended(start.job, now);
            admission.requirement_ended(start.job, true, now);
        }
    }
    begin.elapsed().as_secs_f64() / f64::from(ROUNDS)
}

criterion_group!(benches, dispatch, growth, figure_8);

fn main() -> ExitCode {
    benches();
    let mut bars = Bars::default();
    let bare = {
        let mut bare = Bare::new(10_000);
        nanos(|| bare.dispatch())
    };
    let mut staggered = f64::INFINITY;
    for (name, discipline) in disciplines() {
        let mut steady = Steady::new(discipline, 10_000);
        let taken = nanos(|| steady.dispatch());
        bars.at_most(format!("a dispatch under {name} among 10,000"), taken / 1e3, "us", 5.0);
        bars.note(
            format!("a dispatch under {name} among 10,000"),
            taken / bare,
            "x a bare search tree",
        );
        if name == "2dfq" {
            staggered = taken;
        }
    }
    let taken = beside_dependants();
    bars.at_most("a dispatch beside 1,000 jobs that wait for another", taken * 1e3, "ms", 1.0);
    let mut scan = Scan::new(10_000);
    let begin = Instant::now();
    (0..SCANS).for_each(|_| scan.dispatch());
    let scanned = begin.elapsed().as_nanos() as f64 / f64::from(SCANS);
    bars.at_least("a scan of 10,000 tenants", scanned / staggered, "x a dispatch under 2dfq", 20.0);
    bars.verdict()
}
