//! State of the queue of one host, and its changes.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::fit::Need;
use super::job::{Job, Kind, Leaving, Reservation, Run, State};
use super::names::{ClassNumbers, TenantNumbers};
use super::nested::Withheld;
use super::reason::{Reason, Refusal};
use super::types::{Capacity, JobId, Measured, Request, Rules, Terms};
use tenantd_dop::target::Width;
use tenantd_queue::discipline::{Name, Parameters, Ties, multilevel};
use tenantd_queue::donation::Graph;
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{self as queue, Estimator, Machine, Queue, Setup, TenantId};

/// Assumed cost of a job of an unknown class, in CPU seconds: about its possible usage before the first
/// charge. A larger value would make unknown jobs wait behind jobs that are known to be small.
const COST_SECONDS: f64 = 0.1;

/// Least CPU usage that a job with a worker pays for. A job that only waits would otherwise be free, and
/// its tenant would always go before newer ones.
const WORKER_CORES: f64 = 0.05;

/// Part of the mean duration that stays when a job ends.
const PACE_KEPT: f64 = 0.9;

/// Factor of the machine's size for the order of DRF, which chooses tenants but never tests whether a job
/// fits: that is decided here, so that a job that does not fit is reported. It leaves the order of the
/// shares unchanged.
const ROOMY: f64 = 1024.0;

/// The queue of jobs of one host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Admission {
    pub(super) rules: Rules,
    pub(super) capacity: Capacity,
    /// Measured anew with each dispatch.
    #[serde(skip)]
    pub(super) measured: Measured,
    /// Slots that jobs of others leave to tenants and groups; decided anew with each tick.
    #[serde(skip)]
    pub(super) withheld: Withheld,
    pub(super) queue: Queue,
    /// By number in the queue; `None` for a tenant that has left the policy.
    pub(super) tenants: Vec<Option<Terms>>,
    #[serde(flatten)]
    pub(super) numbers: TenantNumbers,
    pub(super) jobs: BTreeMap<JobId, Job>,
    /// Jobs that do not wait.
    pub(super) active: BTreeSet<JobId>,
    pub(super) waiting_of_users: BTreeMap<u32, u32>,
    pub(super) free_workers: BTreeSet<u32>,
    /// Jobs that were overtaken as often as allowed, in the order in which they became seniors.
    pub(super) seniors: Vec<JobId>,
    #[serde(default, rename = "class_names")]
    pub(super) classes: ClassNumbers,
    /// Jobs that wait for others.
    #[serde(default)]
    pub(super) graph: Graph,
    /// Tenants with an entry for a job that theirs wait for.
    #[serde(default)]
    pub(super) donors: BTreeMap<JobId, BTreeSet<TenantId>>,
    pub(super) next_job: u64,
    /// Tasks of sets that have started, for their numbers.
    #[serde(default)]
    pub(super) nr_tasks: u64,
    /// Jobs that end for others.
    #[serde(default)]
    pub(super) leaving: BTreeMap<JobId, Leaving>,
    #[serde(default)]
    pub(super) reservation: Option<Reservation>,
    /// Mean duration of jobs, in seconds; `None` before any has ended.
    pub(super) pace_seconds: Option<f64>,
    #[serde(skip)]
    pub(super) accounts: BTreeMap<TenantId, Account>,
    #[serde(skip)]
    pub(super) nr_changes: u64,
    /// Fees for early starts that were not taken yet, in seconds of the whole machine.
    #[serde(skip)]
    pub(super) fees: Vec<(String, f64)>,
}

impl Admission {
    /// Creates an empty queue without tenants.
    pub fn new(rules: Rules, capacity: Capacity) -> Admission {
        let queue = Queue::new(setup(&rules, &capacity));
        let mut admission = Admission {
            rules,
            capacity,
            measured: Measured::default(),
            withheld: Withheld::default(),
            queue,
            tenants: Vec::new(),
            numbers: TenantNumbers::default(),
            jobs: BTreeMap::new(),
            active: BTreeSet::new(),
            waiting_of_users: BTreeMap::new(),
            free_workers: BTreeSet::new(),
            seniors: Vec::new(),
            classes: ClassNumbers::default(),
            graph: Graph::default(),
            donors: BTreeMap::new(),
            next_job: 1,
            nr_tasks: 0,
            leaving: BTreeMap::new(),
            reservation: None,
            pace_seconds: None,
            accounts: BTreeMap::new(),
            nr_changes: 0,
            fees: Vec::new(),
        };
        admission.free_workers = (0..admission.workers()).collect();
        admission
    }

    // --- the policy and the machine ---

    /// Applies a policy. Returns the waiting jobs of removed tenants, which have left the queue. Running
    /// jobs go on, and so do the running tasks of a set.
    pub fn policy(&mut self, rules: Rules, tenants: Vec<Terms>, now: f64) -> Vec<JobId> {
        let has_changed = std::mem::replace(&mut self.rules, rules) != rules;
        self.nr_changes += 1;
        self.tenants.iter_mut().for_each(|known| *known = None);
        for terms in tenants {
            let number = self.numbers.number(&terms.path);
            if self.tenants.len() <= number as usize {
                self.tenants.resize(number as usize + 1, None);
            }
            self.admit(TenantId(number), &terms, now);
            self.tenants[number as usize] = Some(terms);
        }
        let is_open = |job: &Job| match job.set() {
            Some(runs) if job.state == State::Parked => !runs.set.is_closed(),
            _ => job.is_waiting(),
        };
        let is_gone = |job: &Job| is_open(job) && self.terms(job.need.tenant).is_none();
        let gone: Vec<JobId> =
            self.jobs.iter().filter(|(_, job)| is_gone(job)).map(|(id, _)| *id).collect();
        for job in &gone {
            if !self.close(*job, now) {
                self.cancel(*job, now);
            }
        }
        self.forget_gone(now);
        if has_changed {
            self.reform(now);
        }
        self.renew_needs();
        gone
    }

    /// Applies the capacity of the machine.
    pub fn capacity(&mut self, capacity: Capacity, now: f64) {
        if capacity == self.capacity {
            return;
        }
        let is_of_order =
            self.rules.discipline == Name::Drf || capacity.slots != self.capacity.slots;
        if capacity.units != self.capacity.units {
            self.jobs.values_mut().for_each(|job| job.lacked_units.clear());
        }
        self.capacity = capacity;
        self.nr_changes += 1;
        if is_of_order {
            self.reform(now);
        }
        self.renew_needs();
    }

    fn admit(&mut self, tenant: TenantId, terms: &Terms, now: f64) {
        let weight = terms.weight.clamp(queue::Terms::WEIGHT_MIN, queue::Terms::WEIGHT_MAX);
        let terms = queue::Terms { weight, priority: weight, ..queue::Terms::default() };
        let outcome = self.queue.admit(tenant, &terms, now);
        debug_assert!(outcome.is_ok(), "{outcome:?}");
    }

    /// Begins a queue of another discipline or size with the same jobs: running ones are charged for their
    /// usage, waiting ones keep their places, and tenants their turns.
    fn reform(&mut self, now: f64) {
        let turns = self.queue.turns();
        self.queue = Queue::new(setup(&self.rules, &self.capacity));
        for number in 0..self.tenants.len() as u32 {
            let terms = self.tenants[number as usize].clone();
            let terms = terms.unwrap_or_else(|| Terms::new("", queue::Terms::WEIGHT_MIN));
            self.admit(TenantId(number), &terms, now);
        }
        let jobs: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in &jobs {
            let Some(Job { state: State::Running(run), .. }) = self.jobs.get(id) else { continue };
            let (run, paid_seconds) = (*run, self.jobs[id].paid_seconds);
            let payer = run.payer.unwrap_or(self.jobs[id].need.tenant);
            self.enqueue_for(*id, payer, now);
            let Some(picked) = self.queue.take(payer, now) else { continue };
            self.queue.charge(picked.ticket, paid_seconds, now);
            if let Some(job) = self.jobs.get_mut(id) {
                job.state = State::Running(Run { ticket: picked.ticket, ..run });
            }
        }
        self.donors.clear();
        for id in jobs {
            if self.jobs[&id].is_waiting() && !self.graph.is_blocked(id.0) {
                self.enqueue(id, now);
            }
        }
        self.queue.resume_turns(&turns, now);
        let taken: BTreeSet<u32> = self.runs().map(|(_, run)| run.worker).collect();
        self.free_workers = (0..self.workers()).filter(|worker| !taken.contains(worker)).collect();
    }

    fn renew_needs(&mut self) {
        let ids: Vec<JobId> = self.jobs.keys().copied().collect();
        for id in ids {
            let job = &self.jobs[&id];
            let need = self.need(job.need.tenant, job.need.class, &job.request);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.need = need;
            }
        }
    }

    // --- jobs ---

    /// Submits a job, which waits until a dispatch starts it.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn submit(&mut self, request: Request, now: f64) -> Result<JobId, Refusal> {
        let id = JobId(self.next_job);
        self.submit_as(id, request, now)?;
        self.next_job += 1;
        Ok(id)
    }

    /// Submits a job under a number that it had before, and that no job has.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn submit_as(&mut self, id: JobId, request: Request, now: f64) -> Result<(), Refusal> {
        let tenant = self.numbers.get(&request.tenant).map(TenantId);
        let tenant = tenant.filter(|tenant| self.terms(*tenant).is_some());
        let Some(tenant) = tenant else { return Err(Refusal::NoSuchTenant) };
        let class = self.classes.get(tenant.0, request.class.as_deref());
        let need = self.need(tenant, class, &request);
        if let Some(reason) = self.never_fits(&need, &request) {
            return Err(Refusal::NeverFits(reason));
        }
        let of_user = self.waiting_of_users.get(&request.user).copied().unwrap_or(0);
        if self.waiting_of(tenant) >= self.rules.max_waiting as usize {
            return Err(Refusal::TenantQueueFull { max: self.rules.max_waiting });
        }
        if of_user >= self.rules.max_waiting_per_user {
            return Err(Refusal::UserQueueFull { max: self.rules.max_waiting_per_user });
        }
        if let Some(refusal) = self.too_many_linger(tenant, request.user) {
            return Err(refusal);
        }
        if let Some(late) = request.after.iter().find(|it| it.job >= id) {
            return Err(Refusal::NotOlder(late.job));
        }
        self.nr_changes += 1;
        self.waits(request.user);
        self.classes.note(tenant.0, request.class.as_deref());
        let after: Vec<(u64, bool)> =
            request.after.iter().map(|it| (it.job.0, it.must_succeed)).collect();
        let job = Job::new(request, need, now);
        self.jobs.insert(id, job);
        self.graph.add(id.0, after);
        if self.graph.is_blocked(id.0) {
            self.donate_for(id, now);
        } else {
            self.enqueue(id, now);
        }
        Ok(())
    }

    /// Adds the entry of a job to the queue of its tenant, and those of its donors.
    pub(super) fn enqueue(&mut self, id: JobId, now: f64) {
        self.enqueue_for(id, self.jobs[&id].need.tenant, now);
        self.renew_donors(id, now);
    }

    /// Adds an entry for a job to the queue of a tenant.
    pub(super) fn enqueue_for(&mut self, id: JobId, tenant: TenantId, now: f64) {
        let need = &self.jobs[&id].need;
        // Costs are estimated for each class of each tenant; a donor does not know those of others.
        let class = if tenant == need.tenant { need.class } else { 0 };
        let memory = need.memory_bytes as f64;
        let units = need.units.iter().map(|count| f64::from(*count));
        let holds = [need.floor as f64, memory].into_iter().chain(units).collect();
        let request = queue::Request { id: id.0, cost: COST_SECONDS, class, holds };
        let waits = self.queue.enqueue(tenant, request, now);
        debug_assert!(waits, "a job of a tenant that was not admitted");
    }

    /// Removes a waiting job from the queue. Returns true if it waited; false for a set of which a task has started.
    pub fn cancel(&mut self, id: JobId, now: f64) -> bool {
        if self.jobs.get(&id).is_none_or(Job::has_begun) || !self.leave_queue(id, now) {
            return false;
        }
        self.jobs.remove(&id);
        true
    }

    /// Takes the entry of a job out of the queue. Returns true if it had one.
    pub(super) fn leave_queue(&mut self, id: JobId, now: f64) -> bool {
        let Some(job) = self.jobs.get(&id).filter(|job| job.is_waiting()) else { return false };
        self.queue.withdraw(job.need.tenant, id.0, now);
        self.waits_no_more(id);
        self.seniors.retain(|senior| *senior != id);
        let roots = self.graph.roots(id.0);
        self.graph.remove(id.0);
        for tenant in self.donors.remove(&id).unwrap_or_default() {
            self.queue.withdraw(tenant, id.0, now);
        }
        roots.into_iter().for_each(|root| self.renew_donors(JobId(root), now));
        true
    }

    pub(super) fn waits(&mut self, user: u32) {
        *self.waiting_of_users.entry(user).or_default() += 1;
    }

    /// Counts a job as not waiting. A set is parked until another task may start.
    pub(super) fn waits_no_more(&mut self, id: JobId) {
        self.nr_changes += 1;
        let user = self.jobs[&id].request.user;
        if let Some(job) = self.jobs.get_mut(&id).filter(|job| job.set().is_some()) {
            job.state = State::Parked;
        }
        if let Some(count) = self.waiting_of_users.get_mut(&user) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.waiting_of_users.remove(&user);
            }
        }
    }

    /// Charges a running job for its CPU time since it started, and records its memory usage.
    ///
    /// The use of a set is divided equally among its running tasks.
    pub fn charge(&mut self, id: JobId, cpu_seconds: f64, used_bytes: Option<u64>, now: f64) {
        if self.jobs.get(&id).is_some_and(|job| job.set().is_some()) {
            return self.charge_set(id, cpu_seconds, used_bytes, now);
        }
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.used_bytes = used_bytes.or(job.used_bytes);
        // A counter that could not be read, or began anew, takes nothing back.
        self.nr_changes += u64::from(cpu_seconds > job.cpu_seconds);
        let more = (cpu_seconds - job.cpu_seconds).max(0.0);
        job.cpu_seconds += more;
        if job.run().is_none() {
            return;
        }
        let was_idle = job.is_idle;
        job.note_use(more, now);
        self.nr_changes += u64::from(job.is_idle != was_idle);
        if let Some(account) = self.accounts.get_mut(&job.need.tenant) {
            account.note_use(more);
        }
        self.pay(id, now);
    }

    /// Charges a running job for what it has not paid yet.
    pub(super) fn pay(&mut self, id: JobId, now: f64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let State::Running(run) = job.state else { return };
        let due = (job.cpu_seconds + job.unused_seconds).max((now - run.since) * WORKER_CORES);
        let more = due - job.paid_seconds;
        if more > 0.0 {
            job.paid_seconds = due;
            self.nr_changes += 1;
            self.queue.charge(run.ticket, more, now);
        }
    }

    /// Removes an ended job, after its last charge. Returns true if it existed.
    pub fn ended(&mut self, id: JobId, now: f64) -> bool {
        self.release_all(id, now);
        self.leave_queue(id, now);
        self.active.remove(&id);
        self.jobs.remove(&id).is_some()
    }

    /// Marks a running job as lingering: its first process has ended, and others remain. Those of a set were its tasks.
    pub fn left_daemons(&mut self, id: JobId, now: f64) {
        let since = self.release_all(id, now);
        self.leave_queue(id, now);
        if let (Some(job), Some(since)) = (self.jobs.get_mut(&id), since) {
            job.state = State::Lingering { since };
        }
    }

    /// Releases the resources of a running job, or those of all tasks of a set. Returns the time of its start.
    fn release_all(&mut self, id: JobId, now: f64) -> Option<f64> {
        self.leaving.remove(&id);
        let Some(runs) = self.jobs.get(&id)?.set() else { return self.release(id, now) };
        let since = runs.since;
        for task in runs.running.clone() {
            self.end_task(id, task, now);
        }
        since
    }

    /// Releases the resources of a running job. Returns the time of its start.
    pub(super) fn release(&mut self, id: JobId, now: f64) -> Option<f64> {
        let run = *self.jobs.get(&id)?.run()?;
        self.note_end(id, now);
        self.nr_changes += 1;
        self.queue.complete(run.ticket, 0.0, now);
        if run.worker < self.workers() {
            self.free_workers.insert(run.worker);
        }
        let ran = (now - run.since).max(0.0);
        let mean = |pace: f64| PACE_KEPT * pace + (1.0 - PACE_KEPT) * ran;
        self.pace_seconds = Some(self.pace_seconds.map_or(ran, mean));
        Some(run.since)
    }

    /// Adds a running or lingering job of an earlier agent, as if this one had started it. `times` are
    /// those of its submission and start.
    pub fn adopt(
        &mut self,
        id: JobId,
        request: Request,
        times: (f64, f64),
        (cpu_seconds, lingers): (f64, bool),
        now: f64,
    ) {
        self.cancel(id, now);
        self.leave_queue(id, now);
        self.next_job = self.next_job.max(id.0 + 1);
        if !self.jobs.contains_key(&id) {
            self.take_in(id, request, times, now);
        }
        self.charge(id, cpu_seconds, None, now);
        if lingers {
            self.left_daemons(id, now);
        }
    }

    fn take_in(&mut self, id: JobId, request: Request, (submitted, since): (f64, f64), now: f64) {
        let number = self.numbers.number(&request.tenant);
        if self.tenants.len() <= number as usize {
            // It has left the policy.
            self.tenants.resize(number as usize + 1, None);
            let terms = Terms::new(&*request.tenant, queue::Terms::WEIGHT_MIN);
            self.admit(TenantId(number), &terms, now);
        }
        let class = self.classes.get(number, request.class.as_deref());
        self.classes.note(number, request.class.as_deref());
        let need = self.need(TenantId(number), class, &request);
        let mut job = Job::new(request, need, submitted);
        if let Kind::Set(runs) = &mut job.kind {
            (runs.since, runs.is_unsure, job.state) = (Some(since), true, State::Parked);
            self.active.insert(id);
            self.jobs.insert(id, job);
            return;
        }
        self.jobs.insert(id, job);
        self.run_at_once(id, since, now);
    }

    /// Lets a job that has just been inserted run out of turn.
    pub(super) fn run_at_once(&mut self, id: JobId, since: f64, now: f64) {
        let tenant = self.jobs[&id].need.tenant;
        self.enqueue(id, now);
        self.queue.promote(tenant, id.0, now);
        let Some(picked) = self.queue.take(tenant, now) else { return };
        // There may be fewer workers than jobs: it runs nevertheless.
        let worker = self.next_worker();
        self.free_workers.remove(&worker);
        self.active.insert(id);
        self.nr_changes += 1;
        if let Some(job) = self.jobs.get_mut(&id) {
            let (ticket, payer) = (picked.ticket, None);
            job.state = State::Running(Run { ticket, worker, since, dop: 0, payer });
        }
    }

    /// Continues after an earlier agent: waiting jobs have left the queue, and sets start no task before their
    /// starters have reported.
    pub fn resume(&mut self, now: f64) {
        let waiting = self.jobs.iter().filter(|(_, job)| job.is_waiting());
        let waiting: Vec<JobId> = waiting.map(|(id, _)| *id).collect();
        for id in waiting {
            if !self.cancel(id, now) {
                self.leave_queue(id, now);
            }
        }
        for job in self.jobs.values_mut() {
            if let Kind::Set(runs) = &mut job.kind {
                runs.is_unsure = true;
            }
        }
    }

    fn need(&self, tenant: TenantId, class: u32, request: &Request) -> Need {
        let most = u64::from(self.widest());
        let dop_max = self.terms(tenant).and_then(|terms| terms.dop_max);
        let widest = dop_max.map_or(most, |max| u64::from(max).clamp(1, most));
        let (floor, ceiling) = match request.width {
            Width::Auto => (1, widest),
            Width::AtMost(max) => (1, max.clamp(1, widest)),
            Width::Manual(dop) => (dop.max(1), dop.max(1)),
        };
        let count = |name: &String| {
            let wanted = request.units.iter().filter(|(of, _)| of == name);
            wanted.map(|(_, count)| *count).fold(0, u32::saturating_add)
        };
        let units = self.capacity.units.iter().map(|(name, _)| count(name)).collect();
        let (user, memory_bytes) = (request.user, request.memory_bytes);
        let is_long = self.rules.reserve.is_some_and(|reserve| !reserve.is_short(request));
        Need { tenant, user, class, floor, ceiling, memory_bytes, units, is_long }
    }

    /// Obstacle to a job's start even if no other ran.
    fn never_fits(&self, need: &Need, request: &Request) -> Option<Reason> {
        let known = |name: &String| self.capacity.units.iter().any(|(of, _)| of == name);
        let unknown = request.units.iter().find(|(name, count)| *count > 0 && !known(name));
        if let Some((name, count)) = unknown {
            return Some(Reason::Units { name: name.clone(), wanted: *count, free: 0, total: 0 });
        }
        let empty = self.free_of_empty();
        self.lack(need, &empty).map(|lack| self.reason_of(lack, need, &empty))
    }
}

pub(super) fn workers(rules: &Rules, capacity: &Capacity) -> u32 {
    rules.max_running.unwrap_or(capacity.slots).max(1)
}

fn setup(rules: &Rules, capacity: &Capacity) -> Setup {
    let workers = workers(rules, capacity);
    let memory = capacity.memory_bytes.unwrap_or(1).max(1) as f64;
    let units = capacity.units.iter().map(|(_, count)| f64::from((*count).max(1)));
    let all = [f64::from(capacity.slots.max(workers)), memory].into_iter().chain(units);
    let parameters = Parameters {
        ageing: 1.0,
        alpha: Estimator::ALPHA,
        initial: COST_SECONDS,
        // The machine's delivered CPU time may be less than its capacity.
        virtual_time: Method::Served,
        capacity: all.map(|amount| amount * ROOMY).collect(),
        ties: Ties::Turn,
        multiplier: multilevel::MULTIPLIER,
    };
    let machine = Machine { workers, rate: f64::from(capacity.slots.max(1)) / f64::from(workers) };
    Setup { discipline: rules.discipline.with(&parameters), machine }
}
