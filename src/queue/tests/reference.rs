//! Each discipline against a slow reference that does what its definition says: lists, linear scans, and
//! nothing kept that could be computed anew.

use std::cmp::Ordering;

use proptest::prelude::*;
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{Discipline, Estimator, Rule, TenantId};

use super::harness::Case;

/// Which rule the reference follows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Plain {
    Fifo,
    RoundRobin,
    Priority(f64),
    Fair(Rule, Method),
}

struct Waits {
    number: u64,
    arrival: usize,
    time: f64,
    cost: f64,
    start: f64,
}

#[derive(Default)]
struct Tenant {
    weight: f64,
    priority: f64,
    waiting: Vec<Waits>,
    running: usize,
    /// The finish tag of the last request that arrived.
    last: f64,
    number: u64,
    /// Work that GPS has not done.
    fluid: f64,
    endless: Option<f64>,
}

/// The order of two numbers; what differs by rounding is equal.
fn near(a: f64, b: f64) -> Ordering {
    if (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs())) {
        Ordering::Equal
    } else {
        a.total_cmp(&b)
    }
}

struct Reference {
    plain: Plain,
    speed: f64,
    tenants: Vec<Tenant>,
    now: f64,
    v: f64,
    arrivals: usize,
    last_served: Option<usize>,
}

impl Reference {
    fn is_active(&self, tenant: &Tenant) -> bool {
        match self.plain {
            Plain::Fair(_, Method::Gps) => tenant.fluid > 1e-9,
            _ => tenant.running > 0 || !tenant.waiting.is_empty(),
        }
    }

    fn advance(&mut self, to: f64) {
        while self.now < to {
            let active: Vec<usize> =
                (0..self.tenants.len()).filter(|t| self.is_active(&self.tenants[*t])).collect();
            let weights: f64 = active.iter().map(|t| self.tenants[*t].weight).sum();
            if active.is_empty() {
                self.now = to;
                return;
            }
            let mut dv = (to - self.now) * self.speed / weights;
            let is_fluid = matches!(self.plain, Plain::Fair(_, Method::Gps));
            let drains = active.iter().map(|t| self.tenants[*t].fluid / self.tenants[*t].weight);
            let first = drains.fold(f64::INFINITY, f64::min);
            let is_whole = !is_fluid || first > dv - 1e-12;
            if !is_whole {
                dv = first;
            }
            self.v += dv;
            self.now = if is_whole { to } else { self.now + dv * weights / self.speed };
            for t in active {
                self.tenants[t].fluid -= dv * self.tenants[t].weight;
            }
        }
    }

    fn arrive(&mut self, t: usize, cost: f64) {
        let v = self.v;
        let arrival = self.arrivals;
        self.arrivals += 1;
        let is_idle = self.tenants[t].running == 0 && self.tenants[t].waiting.is_empty();
        let time = self.now;
        let tenant = &mut self.tenants[t];
        // An endless tenant's requests have all arrived with its first.
        let start =
            if tenant.endless.is_none() || is_idle { tenant.last.max(v) } else { tenant.last };
        tenant.last = start + cost / tenant.weight;
        tenant.number += 1;
        tenant.fluid += if tenant.endless.is_some() { 1e12 } else { cost };
        tenant.waiting.push(Waits { number: tenant.number, arrival, time, cost, start });
    }

    fn choose(&mut self, worker: u32, workers: u32) -> Option<usize> {
        let waiting = |t: &usize| !self.tenants[*t].waiting.is_empty();
        let heads: Vec<usize> = (0..self.tenants.len()).filter(waiting).collect();
        let head = |t: usize| &self.tenants[t].waiting[0];
        let finish = |t: usize| head(t).start + head(t).cost / self.tenants[t].weight;
        let least = |keys: &dyn Fn(usize) -> [f64; 2], among: &[usize]| {
            let order = |a: &usize, b: &usize| {
                let (a, b) = (keys(*a), keys(*b));
                near(a[0], b[0]).then(near(a[1], b[1]))
            };
            among.iter().copied().min_by(order)
        };
        match self.plain {
            Plain::Fifo => heads.into_iter().min_by_key(|t| head(*t).arrival),
            Plain::RoundRobin => {
                let after = self.last_served.map_or(0, |last| last + 1);
                let next = heads.iter().find(|t| **t >= after).or(heads.first()).copied();
                self.last_served = next.or(self.last_served);
                next
            }
            Plain::Priority(ageing) => least(
                &|t| {
                    let waited = self.now - head(t).time;
                    [-(self.tenants[t].priority + ageing * waited), head(t).arrival as f64]
                },
                &heads,
            ),
            Plain::Fair(Rule::Start, _) => least(&|t| [head(t).start, finish(t)], &heads),
            Plain::Fair(rule, _) => {
                let part = match rule {
                    Rule::Staggered => f64::from(worker) / f64::from(workers),
                    _ => 0.0,
                };
                let key = |t: usize| head(t).start - part * head(t).cost;
                let is_free = rule == Rule::Finish;
                let eligible: Vec<usize> = heads
                    .iter()
                    .copied()
                    .filter(|t| is_free || near(key(*t), self.v).is_le())
                    .collect();
                if eligible.is_empty() {
                    least(&|t| [key(t), finish(t)], &heads)
                } else {
                    least(&|t| [finish(t), 0.0], &eligible)
                }
            }
        }
    }
}

/// The schedule: time, worker, tenant, number.
fn schedule(plain: Plain, case: &Case) -> Vec<(f64, u32, usize, u64)> {
    let workers = case.machine.workers;
    let mut tenants: Vec<Tenant> = Vec::new();
    for (index, terms) in case.terms.iter().enumerate() {
        let endless = case.endless.iter().find(|(t, _)| t.0 as usize == index).map(|(_, c)| *c);
        let (weight, priority) = (terms.weight, terms.priority);
        tenants.push(Tenant { weight, priority, endless, ..Tenant::default() });
    }
    let speed = case.machine.speed();
    let (now, v, arrivals, last_served) = (0.0, 0.0, 0, None);
    let mut it = Reference { plain, speed, tenants, now, v, arrivals, last_served };
    let mut busy: Vec<Option<(f64, usize)>> = vec![None; workers as usize];
    let mut pending = case.arrivals.clone();
    let mut begun = false;
    let mut schedule = Vec::new();
    loop {
        let ends = busy.iter().flatten().map(|(end, _)| *end);
        let times = ends.chain(pending.iter().map(|(time, _, _)| *time));
        let start = if begun { f64::INFINITY } else { 0.0 };
        let now = times.fold(start, f64::min);
        if now >= case.horizon - 1e-9 {
            return schedule;
        }
        it.advance(now);
        for slot in &mut busy {
            if let Some((_, t)) = slot.take_if(|(end, _)| near(*end, now).is_le()) {
                it.tenants[t].running -= 1;
            }
        }
        if !begun {
            begun = true;
            for (tenant, cost) in &case.endless {
                it.arrive(tenant.0 as usize, *cost);
            }
        }
        while pending.first().is_some_and(|(time, _, _)| near(*time, now).is_le()) {
            let (_, tenant, cost) = pending.remove(0);
            it.arrive(tenant as usize, cost);
        }
        for worker in 0..workers {
            if busy[worker as usize].is_some() {
                continue;
            }
            let Some(t) = it.choose(worker, workers) else { break };
            let head = it.tenants[t].waiting.remove(0);
            it.tenants[t].running += 1;
            schedule.push((now, worker, t, head.number));
            busy[worker as usize] = Some((now + head.cost / case.machine.rate, t));
            if let (Some(cost), true) = (it.tenants[t].endless, it.tenants[t].waiting.is_empty()) {
                it.arrive(t, cost);
            }
        }
    }
}

/// Weight, priority, and the cost of one that is endless.
type Member = (u32, i32, Option<u32>);

/// Small whole costs and weights: ties are frequent.
fn cases() -> impl Strategy<Value = (u32, Vec<Member>, Vec<(u32, u32, u32)>)> {
    let tenant = (1_u32..5, -2_i32..3, prop::option::weighted(0.5, 1_u32..9));
    (1_u32..5, prop::collection::vec(tenant, 1..7)).prop_flat_map(|(workers, tenants)| {
        let arrival = (0_u32..40, 0..tenants.len() as u32, 1_u32..7);
        let arrivals = prop::collection::vec(arrival, 0..30);
        (Just(workers), Just(tenants), arrivals)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn each_discipline_equals_its_slow_reference((workers, tenants, mut arrivals) in cases()) {
        arrivals.sort_by_key(|(time, _, _)| *time);
        let rules = [Rule::Start, Rule::Finish, Rule::Eligible, Rule::Staggered];
        let fair = rules.into_iter().flat_map(|rule| {
            [Method::Active, Method::Gps].map(|virtual_time| {
                let estimator = Estimator::Declared;
                let discipline = Discipline::Fair { rule, estimator, virtual_time };
                (Plain::Fair(rule, virtual_time), discipline)
            })
        });
        let plain = [
            (Plain::Fifo, Discipline::Fifo),
            (Plain::RoundRobin, Discipline::RoundRobin),
            (Plain::Priority(0.25), Discipline::Priority { ageing: 0.25 }),
        ];
        for (plain, discipline) in plain.into_iter().chain(fair) {
            let mut case = Case::new(discipline, workers, tenants.len());
            for (index, (weight, priority, endless)) in tenants.iter().enumerate() {
                case.terms[index].weight = f64::from(*weight);
                case.terms[index].priority = f64::from(*priority);
                if let Some(cost) = endless {
                    case.terms[index].endless = true;
                    case.endless.push((TenantId(index as u32), f64::from(*cost)));
                }
            }
            let is_endless = |t: u32| case.terms[t as usize].endless;
            case.arrivals = arrivals.iter().filter(|(_, t, _)| !is_endless(*t))
                .map(|(time, t, cost)| (f64::from(*time) / 2.0, *t, f64::from(*cost))).collect();
            let got: Vec<(f64, u32, usize, u64)> = case.run().dispatches.iter()
                .map(|d| (d.time, d.worker, d.tenant, d.number)).collect();
            let expected = schedule(plain, &case);
            for (got, expected) in got.iter().zip(&expected) {
                let same = near(got.0, expected.0).is_eq()
                    && (got.1, got.2, got.3) == (expected.1, expected.2, expected.3);
                prop_assert!(same, "{:?}: {:?} instead of {:?}", plain, got, expected);
            }
            prop_assert_eq!(got.len(), expected.len(), "{:?}", plain);
        }
    }
}
