//! The admission as the scheduler of a simulation ([`tenantd_queue::simulation`]).
//!
//! Each request is a job of a fixed width: one worker, slots, memory and units by its holdings. One with a grace asked to be
//! evicted, as a job of `run --requeue`: each run is a task of its set. A cost unit is one second of a worker at rate 1, and
//! a job is charged for the CPU time of all its slots. Starts, evictions, old places and charges are those of
//! [`Admission`]; nothing of its rules is repeated here.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use super::evict::RUNS_MAX;
use super::state::Admission;
use super::types::{JobId, Measured, Request, Requeue};
use tenantd_dop::target::Width;
use tenantd_queue::sets::{Sums, Tasks};
use tenantd_queue::simulation::{Entry, Leave, Scheduler};
use tenantd_queue::{Pick, Picked, TenantId, Ticket};

/// Meaning of one of the resources that requests hold, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holding {
    /// Slots, at least one for each request.
    Slots,
    /// Memory, in bytes or any other unit.
    Memory,
    /// Units of this counted resource.
    Units(String),
}

/// A host in a simulation.
#[derive(Clone, Debug)]
pub struct Host {
    admission: Admission,
    /// Paths of the tenants, by their numbers in the simulation.
    paths: Vec<String>,
    holdings: Vec<Holding>,
    /// Cost units that a worker does in a second.
    rate: f64,
    evicts: bool,
    entries: BTreeMap<JobId, Known>,
    of_request: BTreeMap<u64, JobId>,
    /// Jobs that have started and have no worker of the simulation yet.
    started: VecDeque<JobId>,
    running: HashMap<Ticket, JobId>,
    nr_tickets: u32,
    waiting: Vec<usize>,
}

#[derive(Clone, Debug)]
struct Known {
    tenant: TenantId,
    request: tenantd_queue::Request,
    slots: u64,
    /// CPU time of all runs, in seconds.
    cpu_seconds: f64,
    /// Set while it runs.
    ticket: Option<Ticket>,
}

impl Host {
    /// Creates a scheduler around an admission without jobs. Without `evicts` no job is evicted, for a comparison.
    pub fn new(
        admission: Admission,
        paths: Vec<String>,
        holdings: Vec<Holding>,
        rate: f64,
        evicts: bool,
    ) -> Host {
        let waiting = vec![0; paths.len()];
        Host {
            admission,
            paths,
            holdings,
            rate,
            evicts,
            entries: BTreeMap::new(),
            of_request: BTreeMap::new(),
            started: VecDeque::new(),
            running: HashMap::new(),
            nr_tickets: 0,
            waiting,
        }
    }

    /// True while resources may be free for a job for which others end.
    pub fn is_reserving(&self) -> bool {
        self.admission.reservation.is_some()
    }

    /// CPUs of a request while it runs.
    pub fn slots_of(holdings: &[Holding], holds: &[f64]) -> u64 {
        let held = holdings.iter().zip(holds).find(|(of, _)| **of == Holding::Slots);
        held.map_or(1, |(_, amount)| (*amount as u64).max(1))
    }

    fn request(&self, tenant: TenantId, entry: &Entry) -> Option<Request> {
        let Entry { request, grace } = entry;
        let path = self.paths.get(tenant.0 as usize)?;
        let mut job = Request::new(path.clone(), tenant.0);
        job.width = Width::Manual(Host::slots_of(&self.holdings, &request.holds));
        for (holding, amount) in self.holdings.iter().zip(&request.holds) {
            match holding {
                Holding::Slots => {}
                Holding::Memory => job.memory_bytes = *amount as u64,
                Holding::Units(name) => job.units.push((name.clone(), *amount as u32)),
            }
        }
        job.expected = Duration::try_from_secs_f64(request.cost / self.rate).ok();
        if let Some(grace_seconds) = *grace {
            job.requeue = Some(Requeue { grace_seconds });
            job.tasks = Some(Tasks { count: RUNS_MAX, at_once: Some(1) });
        }
        Some(job)
    }

    /// Ends the run of a job.
    fn stop(&mut self, ticket: Ticket, used: f64, now: f64) -> Option<JobId> {
        let job = self.running.remove(&ticket)?;
        self.use_up(job, used, now);
        if let Some(known) = self.entries.get_mut(&job) {
            known.ticket = None;
        }
        Some(job)
    }

    fn use_up(&mut self, job: JobId, used: f64, now: f64) {
        let Some(known) = self.entries.get_mut(&job) else { return };
        known.cpu_seconds += used / self.rate * known.slots as f64;
        self.admission.charge(job, known.cpu_seconds, None, now);
    }

    fn forget(&mut self, job: JobId) {
        if let Some(known) = self.entries.remove(&job) {
            self.of_request.remove(&known.request.id);
        }
    }

    /// Gives a job that has started to a worker.
    fn begin(&mut self, job: JobId) -> Option<Picked> {
        let ticket = Ticket::from(self.nr_tickets);
        let known = self.entries.get_mut(&job)?;
        known.ticket = Some(ticket);
        let (tenant, request) = (known.tenant, known.request.clone());
        self.nr_tickets = self.nr_tickets.wrapping_add(1);
        self.running.insert(ticket, job);
        self.count(tenant, -1);
        Some(Picked { ticket, tenant, request })
    }

    fn count(&mut self, tenant: TenantId, change: isize) {
        if let Some(waiting) = self.waiting.get_mut(tenant.0 as usize) {
            *waiting = waiting.saturating_add_signed(change);
        }
    }
}

impl Scheduler for Host {
    /// False for a request that could never start: it is not kept.
    fn enqueue(&mut self, tenant: TenantId, entry: Entry, now: f64) -> bool {
        let Some(job) = self.request(tenant, &entry) else { return false };
        let slots = Host::slots_of(&self.holdings, &entry.request.holds);
        let Ok(id) = self.admission.submit(job, now) else { return false };
        self.of_request.insert(entry.request.id, id);
        self.count(tenant, 1);
        let request = entry.request;
        let known = Known { tenant, request, slots, cpu_seconds: 0.0, ticket: None };
        self.entries.insert(id, known);
        true
    }

    fn withdraw(&mut self, tenant: TenantId, id: u64, now: f64) {
        let Some(job) = self.of_request.get(&id).copied() else { return };
        if self.admission.cancel(job, now) {
            self.count(tenant, -1);
            self.forget(job);
        }
    }

    fn pick(&mut self, _worker: u32, now: f64) -> Pick {
        if self.started.is_empty() {
            let starts = self.admission.dispatch(Measured::default(), now).starts;
            self.started.extend(starts.into_iter().map(|start| start.job));
        }
        let begun = self.started.pop_front().and_then(|job| self.begin(job));
        begun.map_or(Pick::Nothing, Pick::Run)
    }

    fn charge(&mut self, ticket: Ticket, used: f64, now: f64) {
        if let Some(job) = self.running.get(&ticket).copied() {
            self.use_up(job, used, now);
        }
    }

    fn complete(&mut self, ticket: Ticket, used: f64, now: f64) {
        let Some(job) = self.stop(ticket, used, now) else { return };
        self.admission.ended(job, now);
        self.forget(job);
    }

    fn waiting_of(&self, tenant: TenantId) -> usize {
        self.waiting.get(tenant.0 as usize).copied().unwrap_or(0)
    }

    fn lend(&mut self, tenant: TenantId, bank: f64) {
        if let Some(path) = self.paths.get(tenant.0 as usize) {
            let workers = f64::from(self.admission.workers());
            self.admission.lend(path, bank / (workers * self.rate));
        }
    }

    fn fees(&mut self, _now: f64) -> Vec<(TenantId, f64)> {
        let speed = f64::from(self.admission.workers()) * self.rate;
        let fees = self.admission.take_fees().into_iter();
        let by_number = fees.filter_map(|(path, seconds)| {
            let at = self.paths.iter().position(|it| *it == path)?;
            Some((TenantId(at as u32), seconds * speed))
        });
        by_number.collect()
    }

    fn evict(&mut self, now: f64) -> Vec<Leave> {
        if !self.evicts {
            return Vec::new();
        }
        let evictions = self.admission.evict(now).into_iter();
        let leave = evictions.filter_map(|it| {
            let ticket = self.entries.get(&it.job)?.ticket?;
            Some(Leave { ticket, grace_seconds: it.grace_seconds })
        });
        leave.collect()
    }

    fn evicted(&mut self, ticket: Ticket, used: f64, now: f64) {
        let Some(job) = self.stop(ticket, used, now) else { return };
        let Some(set) = self.admission.job(job).and_then(|view| view.set) else { return };
        let nr_runs = set.granted();
        let sums = Sums { started: nr_runs, ended: nr_runs, is_closed: false };
        self.admission.report_tasks(job, sums, now);
        if let Some(tenant) = self.entries.get(&job).map(|known| known.tenant) {
            self.count(tenant, 1);
        }
    }
}
