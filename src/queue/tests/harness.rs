//! A queue with workers and a fixed list of work, and what came of it.

use std::collections::VecDeque;

use tenantd_queue::simulation::{
    Arrival, Before, Charge, Ended, Observer, Run, Source, Work, simulate,
};
use tenantd_queue::{Discipline, Machine, Queue, Setup, TenantId, Terms};

/// One run of a queue.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) discipline: Discipline,
    pub(super) machine: Machine,
    pub(super) terms: Vec<Terms>,
    /// The cost of each endless tenant.
    pub(super) endless: Vec<(TenantId, f64)>,
    /// Time, tenant, cost.
    pub(super) arrivals: Vec<(f64, u32, f64)>,
    pub(super) horizon: f64,
    pub(super) refresh: Option<f64>,
    pub(super) quantum: Option<f64>,
    /// The banks lent at the beginning.
    pub(super) banks: Vec<f64>,
}

impl Case {
    pub(super) fn new(discipline: Discipline, workers: u32, nr_tenants: usize) -> Case {
        Case {
            discipline,
            machine: Machine { workers, rate: 1.0 },
            terms: vec![Terms::default(); nr_tenants],
            endless: Vec::new(),
            arrivals: Vec::new(),
            horizon: 30.0,
            refresh: None,
            quantum: None,
            banks: Vec::new(),
        }
    }

    /// All tenants always have work, of these costs.
    pub(super) fn backlogged(discipline: Discipline, workers: u32, costs: &[f64]) -> Case {
        let mut case = Case::new(discipline, workers, costs.len());
        case.endless = (0..).map(TenantId).zip(costs.iter().copied()).collect();
        for terms in &mut case.terms {
            terms.endless = true;
        }
        case
    }

    pub(super) fn queue(&self) -> Queue {
        let setup = Setup { discipline: self.discipline.clone(), machine: self.machine };
        let mut queue = Queue::new(setup);
        for (tenant, terms) in (0..).map(TenantId).zip(&self.terms) {
            queue.admit(tenant, terms, 0.0).unwrap();
        }
        for (tenant, bank) in (0..).map(TenantId).zip(&self.banks) {
            queue.lend(tenant, *bank);
        }
        queue
    }

    pub(super) fn run(&self) -> Trace {
        let mut queue = self.queue();
        let mut source = List {
            arrivals: self.arrivals.iter().copied().collect(),
            endless: self.endless.clone(),
        };
        let nothing = vec![0.0; self.terms.len()];
        let (served, fees) = (nothing.clone(), nothing);
        let mut trace = Trace { served, fees, ..Trace::default() };
        let run = Run {
            machine: self.machine,
            horizon: self.horizon,
            charge: self.refresh.map_or(Charge::End, Charge::Refresh),
            quantum: self.quantum,
            sample: self.horizon,
            dispatches_max: 1_000_000,
        };
        let mut before = Before::nothing(self.terms.len());
        let ended = simulate(&mut queue, run, &mut before, &mut source, &mut trace);
        assert_eq!(ended, Ended::Horizon);
        for dispatch in &trace.dispatches {
            let done = ((self.horizon - dispatch.time) * self.machine.rate).min(dispatch.cost);
            trace.served[dispatch.tenant] += done;
        }
        trace
    }
}

struct List {
    arrivals: VecDeque<(f64, u32, f64)>,
    endless: Vec<(TenantId, f64)>,
}

impl Source for List {
    fn next_arrival(&mut self) -> Option<Arrival> {
        let (time, tenant, cost) = self.arrivals.pop_front()?;
        let work = Work { cost, ..Work::default() };
        Some(Arrival { time, tenant: TenantId(tenant), work })
    }

    fn next_of(&mut self, tenant: TenantId, _: f64) -> Option<Work> {
        let (_, cost) = self.endless.iter().find(|(endless, _)| *endless == tenant).unwrap();
        Some(Work { cost: *cost, ..Work::default() })
    }

    fn endless(&self) -> Vec<(f64, TenantId)> {
        self.endless.iter().map(|(tenant, _)| (0.0, *tenant)).collect()
    }
}

/// A dispatch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Dispatch {
    pub(super) time: f64,
    pub(super) worker: u32,
    pub(super) tenant: usize,
    pub(super) number: u64,
    pub(super) cost: f64,
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub(super) struct Trace {
    pub(super) dispatches: Vec<Dispatch>,
    pub(super) served: Vec<f64>,
    /// Time, tenant, number, arrival.
    pub(super) completed: Vec<(f64, usize, u64, f64)>,
    /// Fees of each tenant for early starts.
    pub(super) fees: Vec<f64>,
}

impl Trace {
    /// The tenants in the order of their dispatches.
    pub(super) fn order(&self) -> Vec<usize> {
        self.dispatches.iter().map(|dispatch| dispatch.tenant).collect()
    }
}

impl Observer for Trace {
    fn dispatched(&mut self, time: f64, worker: u32, tenant: TenantId, number: u64, cost: f64) {
        let tenant = tenant.0 as usize;
        self.dispatches.push(Dispatch { time, worker, tenant, number, cost });
    }

    fn paid(&mut self, tenant: TenantId, fee: f64) {
        self.fees[tenant.0 as usize] += fee;
    }

    fn completed(&mut self, time: f64, tenant: TenantId, number: u64, arrived: f64) {
        self.completed.push((time, tenant.0 as usize, number, arrived));
    }
}
