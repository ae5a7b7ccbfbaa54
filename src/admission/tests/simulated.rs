//! The admission as the scheduler of a simulation: what a course of requests holds, loses and waits for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use tenantd_admission::{
    Admission, Capacity, Guarantee, Holding, Host, REST_SECONDS, RUN_SECONDS, RUNS_MAX, Rules,
    Terms,
};
use tenantd_queue::discipline::Name;
use tenantd_queue::simulation::{
    Arrival, Before, Charge, Ended, Entry, Leave, Observer, Run, Scheduler, Source, Work, simulate,
};
use tenantd_queue::{Machine, Pick, Request, TenantId, Ticket};

const WORKERS: u32 = 3;
/// Slots, memory and units.
const CAPACITY: [f64; 3] = [4.0, 10.0, 2.0];
const TENANTS: [&str; 3] = ["a", "b", "c"];

fn host(rules: Rules, guarantees: [f64; 3]) -> Host {
    let rules = Rules { max_running: Some(WORKERS), ..rules };
    let capacity = Capacity {
        slots: CAPACITY[0] as u32,
        memory_bytes: Some(CAPACITY[1] as u64),
        units: vec![("gpu".to_string(), CAPACITY[2] as u32)],
    };
    let mut admission = Admission::new(rules, capacity);
    let terms = TENANTS.iter().zip(guarantees).map(|(path, cores)| Terms {
        guarantee: Guarantee { cores, memory_bytes: 0 },
        ..Terms::new(*path, 1.0)
    });
    admission.policy(rules, terms.collect(), 0.0);
    let holdings = vec![Holding::Slots, Holding::Memory, Holding::Units("gpu".to_string())];
    Host::new(admission, TENANTS.map(String::from).to_vec(), holdings, 1.0, true)
}

/// A host that checks each decision.
struct Checked {
    host: Host,
    /// True if a free worker takes any request that fits.
    conserves: bool,
    running: BTreeMap<u64, (Ticket, Request)>,
    waiting: BTreeMap<u64, Request>,
    evictable: BTreeSet<u64>,
    leaving: BTreeSet<u64>,
    /// Start of each run, and time of the last eviction.
    since: BTreeMap<u64, f64>,
    evicted: BTreeMap<u64, (u32, f64)>,
}

impl Checked {
    fn new(host: Host, conserves: bool) -> Checked {
        Checked {
            host,
            conserves,
            running: BTreeMap::new(),
            waiting: BTreeMap::new(),
            evictable: BTreeSet::new(),
            leaving: BTreeSet::new(),
            since: BTreeMap::new(),
            evicted: BTreeMap::new(),
        }
    }

    fn held(&self) -> [f64; 3] {
        let mut sums = [0.0; 3];
        for (_, request) in self.running.values() {
            sums.iter_mut().zip(&request.holds).for_each(|(sum, held)| *sum += held);
        }
        sums
    }

    fn fits(&self, request: &Request) -> bool {
        let sums = self.held().into_iter().zip(&request.holds).zip(CAPACITY);
        self.running.len() < WORKERS as usize && sums.into_iter().all(|((a, b), c)| a + b <= c)
    }

    fn stopped(&mut self, ticket: Ticket) -> Request {
        let mut running = self.running.iter();
        let id = *running.find(|(_, (of, _))| *of == ticket).expect("it runs").0;
        self.leaving.remove(&id);
        self.running.remove(&id).unwrap().1
    }
}

impl Scheduler for Checked {
    fn enqueue(&mut self, tenant: TenantId, entry: Entry, now: f64) -> bool {
        let request = entry.request.clone();
        if entry.grace.is_some() {
            self.evictable.insert(request.id);
        }
        self.waiting.insert(request.id, request);
        self.host.enqueue(tenant, entry, now)
    }

    fn withdraw(&mut self, _: TenantId, _: u64, _: f64) {
        panic!("no request has a bound on its wait");
    }

    fn pick(&mut self, worker: u32, now: f64) -> Pick {
        let pick = self.host.pick(worker, now);
        match &pick {
            Pick::Run(picked) => {
                let request = self.waiting.remove(&picked.request.id).expect("it waits");
                assert!(self.fits(&request), "{request:?} beside {:?}", self.running);
                self.since.insert(request.id, now);
                self.running.insert(request.id, (picked.ticket, request));
            }
            _ if self.conserves && !self.host.is_reserving() => {
                let idle = self.waiting.values().find(|it| self.fits(it));
                assert_eq!(idle, None, "a worker idles at {now}: {:?}", self.running);
            }
            _ => {}
        }
        pick
    }

    fn charge(&mut self, ticket: Ticket, used: f64, now: f64) {
        self.host.charge(ticket, used, now);
    }

    fn complete(&mut self, ticket: Ticket, used: f64, now: f64) {
        self.stopped(ticket);
        self.host.complete(ticket, used, now);
    }

    fn waiting_of(&self, tenant: TenantId) -> usize {
        self.host.waiting_of(tenant)
    }

    fn lend(&mut self, _: TenantId, _: f64) {}

    fn fees(&mut self, _: f64) -> Vec<(TenantId, f64)> {
        Vec::new()
    }

    fn evict(&mut self, now: f64) -> Vec<Leave> {
        let leave = self.host.evict(now);
        for Leave { ticket, grace_seconds } in &leave {
            let (id, _) = self.running.iter().find(|(_, (of, _))| of == ticket).expect("it runs");
            assert!(self.evictable.contains(id), "it asked for it");
            assert!(self.leaving.insert(*id), "once a run");
            assert!(now - self.since[id] >= RUN_SECONDS);
            let (count, last) = self.evicted.entry(*id).or_insert((0, f64::NEG_INFINITY));
            assert!(now - *last >= REST_SECONDS + f64::from(*grace_seconds), "it rests");
            (*count, *last) = (*count + 1, now);
            assert!(*count < RUNS_MAX);
        }
        leave
    }

    fn evicted(&mut self, ticket: Ticket, used: f64, now: f64) {
        let request = self.stopped(ticket);
        self.waiting.insert(request.id, request);
        self.host.evicted(ticket, used, now);
    }
}

struct List(VecDeque<Arrival>);

impl Source for List {
    fn next_arrival(&mut self) -> Option<Arrival> {
        self.0.pop_front()
    }

    fn next_of(&mut self, _: TenantId, _: f64) -> Option<Work> {
        None
    }

    fn endless(&self) -> Vec<(f64, TenantId)> {
        Vec::new()
    }
}

/// Starts, completions and lost time by tenant and number.
#[derive(Default)]
struct Trace {
    started: Vec<(f64, u32, u64)>,
    completed: BTreeMap<(u32, u64), f64>,
    lost: Vec<(u32, u64, f64)>,
}

impl Observer for Trace {
    fn dispatched(&mut self, time: f64, _: u32, tenant: TenantId, number: u64, _: f64) {
        self.started.push((time, tenant.0, number));
    }

    fn evicted(&mut self, _: f64, _: u32, tenant: TenantId, number: u64, lost_seconds: f64) {
        self.lost.push((tenant.0, number, lost_seconds));
    }

    fn completed(&mut self, time: f64, tenant: TenantId, number: u64, _: f64) {
        self.completed.insert((tenant.0, number), time);
    }
}

fn run(scheduler: &mut dyn Scheduler, arrivals: Vec<Arrival>, horizon: f64) -> Trace {
    let run = Run {
        machine: Machine { workers: WORKERS, rate: 1.0 },
        horizon,
        charge: Charge::Refresh(5.0),
        quantum: None,
        sample: horizon,
        dispatches_max: 1_000_000,
    };
    let (mut trace, mut before) = (Trace::default(), Before::nothing(TENANTS.len()));
    let mut source = List(arrivals.into());
    let ended = simulate(scheduler, run, &mut before, &mut source, &mut trace);
    assert_eq!(ended, Ended::Horizon);
    trace
}

fn arrival(time: f64, tenant: u32, cost: f64, holds: [f64; 3], grace: Option<u32>) -> Arrival {
    let work = Work { cost, holds: holds.into(), grace, ..Work::default() };
    Arrival { time, tenant: TenantId(tenant), work }
}

#[test]
fn an_evicted_request_waits_at_its_old_place_and_runs_again_from_the_start() {
    // `a` holds everything; `b` comes at 100 s and needs one unit for 50 s. Its turn comes with the next charge of `a`.
    let arrivals = vec![
        arrival(0.0, 0, 1000.0, [1.0, 0.0, 2.0], Some(30)),
        arrival(1.0, 0, 10.0, [1.0, 0.0, 2.0], None),
        arrival(100.0, 1, 50.0, [1.0, 0.0, 1.0], None),
    ];
    let trace = run(&mut host(Rules::default(), [0.0; 3]), arrivals, 5000.0);
    assert_eq!(trace.started, [(0.0, 0, 1), (135.0, 1, 1), (185.0, 0, 1), (1185.0, 0, 2)]);
    assert_eq!(trace.lost, [(0, 1, 135.0)], "the work of the grace is lost, too");
    assert_eq!(trace.completed[&(0, 1)], 1185.0);
}

#[test]
fn a_request_without_consent_runs_to_its_end() {
    let arrivals = vec![
        arrival(0.0, 0, 1000.0, [1.0, 0.0, 2.0], None),
        arrival(100.0, 1, 50.0, [1.0, 0.0, 1.0], None),
    ];
    let trace = run(&mut host(Rules::default(), [0.0; 3]), arrivals, 5000.0);
    assert_eq!((trace.started, trace.lost), (vec![(0.0, 0, 1), (1000.0, 1, 1)], vec![]));
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let holds = (1..=4_u32, 0..=10_u32, 0..=2_u32)
        .prop_map(|(slots, memory, units)| [slots, memory, units].map(f64::from));
    let grace = prop_oneof![Just(None), (0..60_u32).prop_map(Some)];
    let one = (0.0..400.0, 0..3_u32, 1.0..900.0, holds, grace);
    prop::collection::vec(one, 1..25).prop_map(|mut all| {
        all.sort_by(|a: &(f64, u32, f64, [f64; 3], Option<u32>), b| a.0.total_cmp(&b.0));
        all.into_iter()
            .map(|(time, tenant, cost, holds, grace)| arrival(time, tenant, cost, holds, grace))
            .collect()
    })
}

fn discipline() -> impl Strategy<Value = Name> {
    prop::sample::select(Name::ALL.map(|(_, name)| name).to_vec())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Never more is held than there is, only requests with consent are evicted, a bounded number of times, and all end.
    #[test]
    fn evicted_requests_end_and_nothing_is_held_twice(
        arrivals in arrivals(),
        discipline in discipline(),
        guarantees in prop::array::uniform3(prop_oneof![Just(0.0), Just(1.0), Just(2.0)]),
    ) {
        let rules = Rules { discipline, ..Rules::default() };
        let mut checked = Checked::new(host(rules, guarantees), false);
        let count = arrivals.len();
        let trace = run(&mut checked, arrivals, 60_000.0);
        prop_assert_eq!(trace.completed.len(), count);
        prop_assert!(checked.waiting.is_empty() && checked.running.is_empty());
        let counted: u32 = checked.evicted.values().map(|(count, _)| count).sum();
        prop_assert_eq!(counted as usize, trace.lost.len());
        prop_assert_eq!(trace.started.len(), count + trace.lost.len());
    }

    /// Without seniors a worker idles beside a request that fits only while resources are kept for a beneficiary.
    #[test]
    fn workers_idle_for_beneficiaries_only(arrivals in arrivals(), discipline in discipline()) {
        let rules = Rules { discipline, overtakes_max: u32::MAX, ..Rules::default() };
        run(&mut Checked::new(host(rules, [0.0; 3]), true), arrivals, 60_000.0);
    }
}
