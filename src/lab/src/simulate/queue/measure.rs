//! The results of a scenario: service beside the ideal, latency, gaps, and differences beside their bounds.

use super::credits::{Accounts, Credit};
use super::evictions::{Evictions, Unstarted};
use super::generate::Generator;
use super::hosted;
use super::indices::Held;
use super::moments::Moments;
use super::pairs::Pairs;
use super::scenario::{Job, Kind, Scenario};
use tenantd_queue::entrance::Entrance;
use tenantd_queue::gps::Gps;
use tenantd_queue::indices::Indices;
use tenantd_queue::operations::{Course, Operations};
use tenantd_queue::simulation::{
    Before, Ended, Instance, Left, Observer, Run, Scheduler, Source, State, Work, simulate,
};
use tenantd_queue::{Discipline, Queue, Rule, Setup, TenantId, multilevel};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dispatch {
    pub(super) time: f64,
    pub(super) worker: u32,
    pub(super) tenant: TenantId,
    pub(super) request: u64,
    pub(super) cost: f64,
    pub(super) indices: Indices,
    /// True if it ended for another request before its end.
    pub(super) is_evicted: bool,
}

/// A request that GPS has finished.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Finished {
    pub(super) tenant: TenantId,
    pub(super) request: u64,
    pub(super) cost: f64,
    pub(super) arrival: f64,
    pub(super) finish: f64,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    /// Cost units done before the horizon, by the queue and by GPS.
    pub(super) served: f64,
    pub(super) gps: f64,
    /// `(gps − served) / fair rate`, in seconds; positive is behind.
    pub(super) lag: Moments,
    /// From arrival to completion, in seconds, sorted.
    pub(super) latencies: Vec<f64>,
    /// The longest time in seconds between the beginnings of two requests in a row.
    pub(super) longest_gap: Option<f64>,
    /// The largest number of its requests that ran at the same time.
    pub(super) most_running: u32,
    pub(super) dropped: u64,
    pub(super) timed_out: u64,
    /// Its charges and its estimate at the end, if costs are estimated.
    pub(super) charged: Option<(f64, f64)>,
    /// With credits.
    pub(super) credit: Option<Credit>,
    /// If some requests may be evicted.
    pub(super) evictions: Option<Evictions>,
    begun: Option<f64>,
    /// Cost units dispatched so far.
    dispatched: f64,
}

impl Figures {
    /// The latency that this part of the requests does not exceed.
    pub(super) fn latency(&self, part: f64) -> Option<f64> {
        quantile(&self.latencies, part)
    }

    pub(super) fn latency_mean(&self) -> Option<f64> {
        mean(&self.latencies)
    }
}

/// The number that this part of some sorted numbers does not exceed.
pub(super) fn quantile(sorted: &[f64], part: f64) -> Option<f64> {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

/// A request that used more than it held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Killed {
    pub(super) time: f64,
    pub(super) tenant: TenantId,
    pub(super) request: u64,
    pub(super) resource: usize,
}

/// A measurement beside its theoretical bound.
#[derive(Clone, Debug, Default)]
pub(super) struct Bounded {
    pub(super) largest: f64,
    /// The tenants concerned.
    pub(super) tenants: Vec<TenantId>,
    /// The bound, and its theorem.
    pub(super) bound: Option<(f64, &'static str)>,
}

/// The service of the tenants watched by some time, cost units.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) time: f64,
    pub(super) got: Vec<f64>,
    /// In GPS.
    pub(super) ideal: Vec<f64>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) dispatches: Vec<Dispatch>,
    pub(super) nr_dispatched: u64,
    pub(super) finished: Vec<Finished>,
    pub(super) tenants: Vec<Figures>,
    /// The largest difference of service by weight of two tenants while both are backlogged.
    pub(super) difference: Bounded,
    /// The largest lead of GPS over a tenant, in cost units.
    pub(super) lag: Bounded,
    /// Seconds that workers spent with tasks of each level, under the multilevel discipline.
    pub(super) levels: Option<[f64; multilevel::LEVELS]>,
    /// Selections of each level, under the multilevel discipline.
    pub(super) level_selected: Option<[u64; multilevel::LEVELS]>,
    /// Costs of all requests that arrived, sorted.
    pub(super) costs: Vec<f64>,
    pub(super) killed: Vec<Killed>,
    /// Charges of running requests.
    pub(super) nr_charged: u64,
    pub(super) jobs: Vec<Course>,
    /// Some tenants, spread over all.
    pub(super) watched: Vec<TenantId>,
    /// Of the tenants watched, by time.
    pub(super) series: Vec<Sample>,
}

impl Outcome {
    /// Mean and maximum of the latencies of all tenants.
    pub(super) fn latency(&self) -> Option<(f64, f64)> {
        let all = || self.tenants.iter().flat_map(|figures| &figures.latencies);
        let count = all().count();
        let longest = all().copied().reduce(f64::max)?;
        Some((all().sum::<f64>() / count as f64, longest))
    }

    fn sorted(mut self) -> Outcome {
        self.costs.sort_by(f64::total_cmp);
        for figures in &mut self.tenants {
            figures.latencies.sort_by(f64::total_cmp);
        }
        self
    }
}

/// Reason for the lack of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TooMany {
    /// More dispatches than [`Scenario::DISPATCHES_MAX`] by this time.
    Dispatches(f64),
    /// More dispatches than can be listed.
    Listed,
}

/// Largest number of tenants whose differences are measured in pairs.
const PAIRED_MAX: usize = 256;
/// Largest number of tenants that are sampled at each event, not only at samples.
const EXACT_MAX: usize = 16;
/// Largest number of tenants whose service over time is kept.
pub(super) const SERIES_MAX: usize = 8;

/// Runs a scenario; `progress` receives the finished part, from 0 to 1.
///
/// # Errors
/// The simulation has too many dispatches.
pub(super) fn run(scenario: &Scenario, progress: &mut dyn FnMut(f64)) -> Result<Outcome, TooMany> {
    match &scenario.kind {
        Kind::Queue(name, discipline) if scenario.is_hosted => {
            let mut host = |evicts: bool, from: f64| {
                let mut scheduler = hosted::scheduler(scenario, *name, evicts);
                let mut half = |part: f64| progress(from + part / 2.0);
                play(scenario, discipline, &mut scheduler, &mut half)
            };
            let (mut outcome, without) = (host(true, 0.0)?, host(false, 0.5)?);
            for (figures, other) in outcome.tenants.iter_mut().zip(without.tenants) {
                if let (Some(of), Some(other)) = (&mut figures.evictions, other.evictions) {
                    of.waits_without = other.waits;
                }
            }
            Ok(outcome)
        }
        Kind::Queue(_, discipline) => run_queue(scenario, discipline, progress),
        Kind::Gps => Ok(ideal(scenario)),
    }
}

fn run_queue(
    scenario: &Scenario,
    discipline: &Discipline,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, TooMany> {
    let setup = Setup { discipline: discipline.clone(), machine: scenario.machine };
    let mut queue = Queue::new(setup).reserving(scenario.reserve);
    if let Some(capacity) = &scenario.capacity {
        queue = queue.within(capacity.clone());
    }
    for (tenant, member) in (0..).map(TenantId).zip(&scenario.tenants) {
        // Terms were checked when they were read.
        let admitted = queue.admit(tenant, &member.terms, 0.0);
        debug_assert_eq!(admitted, Ok(()));
    }
    let mut outcome = play(scenario, discipline, &mut queue, progress)?;
    outcome.level_selected = queue.level_selected();
    if discipline.estimates() {
        for (tenant, figures) in (0..).map(TenantId).zip(&mut outcome.tenants) {
            let ledger = queue.ledger(tenant);
            figures.charged =
                ledger.map(|ledger| (ledger.charged_in_all(), ledger.largest_estimate()));
        }
    }
    Ok(outcome)
}

/// Runs the work of a scenario under a scheduler with its tenants.
fn play(
    scenario: &Scenario,
    discipline: &Discipline,
    scheduler: &mut dyn Scheduler,
    progress: &mut dyn FnMut(f64),
) -> Result<Outcome, TooMany> {
    let mut meter = Meter::new(scenario, progress);
    let has_levels = matches!(discipline, Discipline::Multilevel { .. }) && !scenario.is_hosted;
    meter.outcome.levels = has_levels.then_some([0.0; multilevel::LEVELS]);
    for (tenant, member) in (0..).map(TenantId).zip(&scenario.tenants) {
        meter.gps.set_weight(tenant, member.terms.weight, 0.0);
    }
    let run = Run {
        machine: scenario.machine,
        horizon: scenario.horizon,
        charge: scenario.charge,
        quantum: scenario.quantum,
        sample: scenario.sample(),
        dispatches_max: Scenario::DISPATCHES_MAX,
    };
    let mut source = Generator::new(scenario);
    let gates = scenario.tenants.iter().map(|tenant| tenant.gate);
    let work = |job: &Job| {
        let request = scenario.tenants[job.tenant.0 as usize].request(job.cost);
        (job.tenant, Work { grace: job.grace, ..request })
    };
    let mut before = Before {
        entrance: Entrance::new(gates, scenario.splits),
        operations: Operations::new(scenario.jobs.iter().map(|job| job.plan.clone()).collect()),
        works: scenario.jobs.iter().map(work).collect(),
        donates: scenario.donates,
    };
    match simulate(scheduler, run, &mut before, &mut source, &mut meter) {
        Ended::TooMany { time } => return Err(TooMany::Dispatches(time)),
        Ended::Horizon if meter.is_overfull => return Err(TooMany::Listed),
        Ended::Horizon => {}
    }
    let mut outcome = meter.outcome(discipline);
    outcome.jobs = before.operations.courses().to_vec();
    Ok(outcome)
}

/// The result of the ideal: nothing is dispatched, all tenants are served at once.
fn ideal(scenario: &Scenario) -> Outcome {
    let mut gps = Gps::recording(scenario.machine.speed());
    for (tenant, member) in (0..).map(TenantId).zip(&scenario.tenants) {
        gps.set_weight(tenant, member.terms.weight, 0.0);
    }
    let mut source = Generator::new(scenario);
    for (time, tenant) in source.endless() {
        gps.set_endless(tenant, time);
    }
    let mut requests = vec![0; scenario.tenants.len()];
    let (mut finished, mut costs) = (Vec::new(), Vec::new());
    while let Some(arrival) = source.next_arrival().filter(|next| next.time < scenario.horizon) {
        let (tenant, cost) = (arrival.tenant, arrival.work.cost);
        requests[tenant.0 as usize] += 1;
        costs.push(cost);
        let request = requests[tenant.0 as usize];
        gps.arrive(tenant, finished.len() as u64, cost, arrival.time);
        let (arrival, finish) = (arrival.time, f64::INFINITY);
        finished.push(Finished { tenant, request, cost, arrival, finish });
    }
    gps.advance(scenario.horizon);
    for (number, time) in gps.take_finished() {
        finished[number as usize].finish = time;
    }
    let mut tenants = vec![Figures::default(); scenario.tenants.len()];
    for (tenant, figures) in (0..).map(TenantId).zip(&mut tenants) {
        figures.served = gps.service(tenant);
        figures.gps = figures.served;
    }
    finished.retain(|finished| finished.finish.is_finite());
    for done in &finished {
        tenants[done.tenant.0 as usize].latencies.push(done.finish - done.arrival);
    }
    Outcome { finished, tenants, costs, ..Outcome::default() }.sorted()
}

/// At most [`SERIES_MAX`] tenants, evenly spread.
fn watched(nr_tenants: usize) -> Vec<TenantId> {
    let count = nr_tenants.min(SERIES_MAX);
    let place =
        |index: usize| index * nr_tenants.saturating_sub(1) / count.saturating_sub(1).max(1);
    (0..count).map(|index| TenantId(place(index) as u32)).collect()
}

struct Meter<'a> {
    progress: &'a mut dyn FnMut(f64),
    scenario: &'a Scenario,
    rates: Vec<f64>,
    gps: Gps,
    outcome: Outcome,
    services: Vec<f64>,
    pairs: Pairs,
    credits: Option<Accounts>,
    longest: f64,
    is_overfull: bool,
    held: Held,
    unstarted: Unstarted,
}

impl<'a> Meter<'a> {
    fn new(scenario: &'a Scenario, progress: &'a mut dyn FnMut(f64)) -> Meter<'a> {
        let nr_tenants = scenario.tenants.len();
        let evictions = scenario.is_hosted.then(Evictions::default);
        let tenants = vec![Figures { evictions, ..Figures::default() }; nr_tenants];
        let rates = scenario.fair_rates();
        let is_endless = || scenario.tenants.iter().map(|it| it.terms.endless).collect();
        let accounts =
            |terms| Accounts::new(terms, scenario.machine, &rates, is_endless(), scenario.horizon);
        Meter {
            progress,
            scenario,
            credits: scenario.credits.map(accounts),
            rates,
            gps: Gps::new(scenario.machine.speed()),
            outcome: Outcome { tenants, watched: watched(nr_tenants), ..Outcome::default() },
            services: Vec::new(),
            pairs: Pairs::new(nr_tenants.min(PAIRED_MAX)),
            longest: 0.0,
            held: Held::default(),
            unstarted: Unstarted::default(),
            is_overfull: false,
        }
    }

    fn outcome(mut self, discipline: &Discipline) -> Outcome {
        let workers = f64::from(self.scenario.machine.workers);
        let weight = |index: &usize| self.scenario.tenants[*index].terms.weight;
        let lightest =
            (0..self.scenario.tenants.len()).map(|i| weight(&i)).fold(f64::MAX, f64::min);
        let work = workers * self.longest;
        // The theorems cover only whole requests and plain weights.
        let is_plain =
            self.scenario.quantum.is_none()
                && !self.scenario.is_hosted
                && self.scenario.credits.is_none()
                && self.scenario.reserve.is_none()
                && self.scenario.tenants.iter().all(|tenant| {
                    tenant.terms.reservation == 0.0 && tenant.terms.limit.is_infinite()
                });
        let theory = match discipline {
            _ if !is_plain => None,
            Discipline::Fair { rule, estimator: tenantd_queue::Estimator::Declared, .. } => {
                Some(*rule)
            }
            _ => None,
        };
        let difference = match theory {
            Some(Rule::Start) => Some((2.0 * work / lightest, "VTC, 2·N·Lmax by weight")),
            Some(Rule::Staggered) => Some((2.0 * work / lightest, "2·N·Lmax by weight")),
            _ => None,
        };
        let lag = match theory {
            Some(Rule::Finish | Rule::Eligible) => Some((work, "MSFQ, N·Lmax")),
            Some(Rule::Staggered) => Some((work, "2DFQ theorem 1, N·Lmax")),
            _ => None,
        };
        self.outcome.difference = Bounded {
            largest: self.pairs.largest,
            tenants: self.pairs.widest.map_or(Vec::new(), |(a, b)| vec![a, b]),
            bound: difference,
        };
        self.outcome.lag.bound = lag;
        for (tenant, arrived) in self.unstarted.rest() {
            if let Some(of) = &mut self.outcome.tenants[tenant.0 as usize].evictions {
                of.waits.add(self.scenario.horizon - arrived);
            }
        }
        if let Some(credits) = &self.credits {
            for (figures, credit) in self.outcome.tenants.iter_mut().zip(credits.credits()) {
                figures.credit = Some(credit);
            }
        }
        self.outcome.sorted()
    }

    fn sample(&mut self, time: f64) {
        let counts = time > self.scenario.warmup;
        for (index, service) in self.services.iter().enumerate() {
            let tenant = TenantId(index as u32);
            let figures = &mut self.outcome.tenants[index];
            figures.served = *service;
            figures.gps = self.gps.service(tenant);
            let lag = figures.gps - figures.served;
            if counts {
                figures.lag.add(lag / self.rates[index]);
            }
            if lag > self.outcome.lag.largest {
                self.outcome.lag.largest = lag;
                self.outcome.lag.tenants = vec![tenant];
            }
        }
        let watched = &self.outcome.watched;
        let got = watched.iter().map(|tenant| self.services[tenant.0 as usize]).collect();
        let ideal = watched.iter().map(|tenant| self.gps.service(*tenant)).collect();
        self.outcome.series.push(Sample { time, got, ideal });
        (self.progress)(time / self.scenario.horizon);
    }
}

impl Observer for Meter<'_> {
    fn dispatched(&mut self, time: f64, worker: u32, tenant: TenantId, request: u64, cost: f64) {
        self.outcome.nr_dispatched += 1;
        self.longest = self.longest.max(cost);
        let arrived = self.unstarted.take(tenant, request);
        let figures = &mut self.outcome.tenants[tenant.0 as usize];
        if let Some(before) = figures.begun.replace(time)
            && before >= self.scenario.warmup
        {
            figures.longest_gap = Some(figures.longest_gap.unwrap_or(0.0).max(time - before));
        }
        if let (Some(of), Some(arrived)) = (&mut figures.evictions, arrived) {
            of.waits.add(time - arrived);
        }
        let rate = self.scenario.machine.rate;
        let scheduled_nanos = (figures.dispatched / rate * 1e9) as u64;
        figures.dispatched += cost;
        if let Some(levels) = self.outcome.levels.as_mut().filter(|_| time >= self.scenario.warmup)
        {
            levels[multilevel::level_of(scheduled_nanos)] += cost / rate;
        }
        let indices = self.held.start(self.scenario, tenant, request);
        if self.scenario.lists_dispatches {
            self.is_overfull |= self.outcome.dispatches.len() >= Scenario::LISTED_MAX;
            if !self.is_overfull {
                let is_evicted = false;
                let dispatch =
                    Dispatch { time, worker, tenant, request, cost, indices, is_evicted };
                self.outcome.dispatches.push(dispatch);
            }
        }
    }

    fn arrived(&mut self, time: f64, tenant: TenantId, number: u64, work: &Work) {
        self.outcome.costs.push(work.cost);
        if self.scenario.is_hosted && time >= self.scenario.warmup {
            self.unstarted.arrive(tenant, number, time);
        }
    }

    fn evicted(&mut self, _: f64, worker: u32, tenant: TenantId, request: u64, seconds: f64) {
        self.held.end(tenant, request);
        let mut dispatches = self.outcome.dispatches.iter_mut().rev();
        if let Some(last) = dispatches.find(|dispatch| dispatch.worker == worker) {
            (last.cost, last.is_evicted) = (seconds * self.scenario.machine.rate, true);
        }
        let of_tenant = &self.scenario.tenants[tenant.0 as usize];
        if let Some(of) = &mut self.outcome.tenants[tenant.0 as usize].evictions {
            of.count += 1;
            of.lost_cpu_seconds += seconds * hosted::cpus(self.scenario, of_tenant);
        }
    }

    fn entered(&mut self, time: f64, tenant: TenantId, number: u64, cost: f64) {
        if self.scenario.tenants[tenant.0 as usize].terms.endless {
            self.gps.set_endless(tenant, time);
        }
        self.gps.arrive(tenant, number, cost, time);
    }

    fn left(&mut self, time: f64, tenant: TenantId, request: u64, why: Left) {
        self.unstarted.take(tenant, request);
        let figures = &mut self.outcome.tenants[tenant.0 as usize];
        match why {
            Left::Dropped => figures.dropped += 1,
            Left::TimedOut => figures.timed_out += 1,
            Left::Killed(resource) => {
                self.held.end(tenant, request);
                self.outcome.killed.push(Killed { time, tenant, request, resource });
            }
        }
    }

    fn ended(&mut self, time: f64, tenant: TenantId) {
        self.gps.set_finite(tenant, time);
    }

    fn completed(&mut self, time: f64, tenant: TenantId, request: u64, arrived: f64) {
        self.held.end(tenant, request);
        if arrived >= self.scenario.warmup {
            self.outcome.tenants[tenant.0 as usize].latencies.push(time - arrived);
        }
    }

    fn lends_at(&self) -> f64 {
        self.credits.as_ref().map_or(f64::INFINITY, Accounts::next)
    }

    fn lend(&mut self, time: f64, state: &State) -> Vec<f64> {
        let Some(credits) = &mut self.credits else { return Vec::new() };
        let mut services = Vec::new();
        state.services(time, &mut services);
        credits.pass(time, state);
        credits.settle(time, &services)
    }

    fn paid(&mut self, tenant: TenantId, fee: f64) {
        if let Some(credits) = &mut self.credits {
            credits.pay(tenant, fee);
        }
    }

    fn instant(&mut self, time: f64, kind: Instance, state: &State) {
        if let Some(credits) = &mut self.credits {
            credits.pass(time, state);
        }
        let nr_tenants = self.scenario.tenants.len();
        if kind == Instance::Event && nr_tenants > EXACT_MAX {
            return;
        }
        let mut services = std::mem::take(&mut self.services);
        state.services(time, &mut services);
        self.services = services;
        self.gps.advance(time);
        let scenario = self.scenario;
        self.pairs.add(
            |tenant| {
                self.services[tenant.0 as usize] / scenario.tenants[tenant.0 as usize].terms.weight
            },
            |tenant| state.is_backlogged(tenant),
        );
        if kind == Instance::Sample {
            self.sample(time);
            self.outcome.nr_charged = state.nr_charged();
            for (tenant, figures) in (0..).map(TenantId).zip(&mut self.outcome.tenants) {
                figures.most_running = state.most_running(tenant);
            }
        }
    }
}
