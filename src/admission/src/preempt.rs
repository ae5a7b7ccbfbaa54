//! Preemption: concessions of running jobs while the guarantee of another tenant is due.
//!
//! # Problem
//! Weights and protection give a tenant its guarantee within a tick or two, if the kernel can follow. It cannot
//! if jobs hold the CPUs of a cpuset, if there are so many that latency suffers, or if a build forks faster
//! than it is weighed. A job can give up width without harm, and time at a price.
//!
//! # Terms
//! A guarantee is *due* to a tenant that wants it: `min(guarantee, demand)` CPUs. The tenant *lacks* the
//! missing part of it. Both also apply to a group with a guarantee and all its tenants. *Others* are the jobs
//! of tenants without a due guarantee, of their own or of a group around them; for a tenant with its own claim
//! in such a group, the group's other tenants are others too (`nested`).
//!
//! # Rules
//! 1. *Cause.* A lack counts up to the CPUs that the jobs of others use: narrower jobs cannot help against
//!    work outside jobs.
//! 2. *Patience.* Nothing happens before a tenant has lacked for [`PATIENCE_SECONDS`]: the weights come first.
//! 3. *Narrow.* Then the others together get at most the slots left after all due guarantees, down to their
//!    floors, and none of them starts beyond that. This lasts until the tenant has not lacked for
//!    [`HOLD_SECONDS`], or wants nothing any more; the withheld slots follow its demand.
//! 4. *Evict.* If a tenant still lacks [`FREEZE_AFTER_SECONDS`] later, the youngest of the others that asked for it
//!    ([`Consent`]) end and wait again, until their width covers the lack.
//! 5. *Freeze*, only if the policy has a bound: the youngest that did not ask for it, for the rest of the lack.
//! 6. *Thaw.* A job is frozen for at most the bound, and then runs at least as long before the next time; it is
//!    thawed at once when no guarantee is due.
//!
//! # Properties (`tests/admission/preempt.rs`)
//! - No job is frozen longer than the bound, or again before it has run as long, and without a bound none is
//!   frozen; a job of a tenant with a due guarantee is never frozen (`a_job_is_frozen_for_a_bounded_time`).
//! - When nothing is due any more, nothing is withheld and no job is frozen
//!   (the same test).
//! - Nothing is withheld for a lack that jobs do not cause (`a_lack_that_jobs_do_not_cause_withholds_nothing`).
//! - Withheld slots narrow the others to their floors at most, and never a job of a tenant with a due guarantee
//!   (`the_others_are_narrowed_and_nobody_else`).

use std::collections::BTreeMap;

use super::nested::{Forest, is_in_group};
use super::types::{JobId, Owed};

/// Time in seconds for which a tenant lacks its guarantee before jobs of others are narrowed.
pub const PATIENCE_SECONDS: f64 = 2.0;
/// Time in seconds for which they stay narrow after the last lack.
pub const HOLD_SECONDS: f64 = 10.0;
/// Time in seconds of a lack with narrow jobs before some are frozen.
pub const FREEZE_AFTER_SECONDS: f64 = 3.0;

/// A tenant or a group with a guarantee, in one tick.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Path of the tenant or group.
    pub tenant: String,
    /// Guaranteed CPUs that it wants.
    pub due_cores: f64,
    /// CPUs of these that other tenants use; 0 without a lack.
    pub lacking_cores: f64,
}

/// A running job.
#[derive(Clone, Debug, PartialEq)]
pub struct Running {
    /// The job.
    pub job: JobId,
    /// Its tenant.
    pub tenant: String,
    /// Time of its start, in seconds.
    pub since: f64,
    /// Its width in CPUs.
    pub dop: u32,
    /// CPUs that it uses.
    pub used_cores: f64,
    /// Consent to an eviction.
    pub consent: Consent,
}

/// Consent of a running job to end and wait again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Consent {
    /// It may not be ended, or not now.
    #[default]
    No,
    /// It may be evicted now.
    Evictable,
    /// It is about to end.
    Leaving,
}

/// Concessions of a tick.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Orders {
    /// Tenants and groups with a due guarantee, to which the jobs of others leave CPUs.
    pub withheld: BTreeMap<String, Owed>,
    /// Jobs to freeze.
    pub freeze: Vec<JobId>,
    /// Jobs to thaw.
    pub thaw: Vec<JobId>,
    /// Jobs to evict, each with the tenant or group whose guarantee is due.
    pub evict: Vec<(JobId, String)>,
}

/// State between two ticks.
#[derive(Clone, Debug, Default)]
pub struct Preemption {
    due: BTreeMap<String, Due>,
    frozen: BTreeMap<JobId, f64>,
    /// Thawed jobs, and the end of their protected run.
    rests: BTreeMap<JobId, f64>,
}

#[derive(Clone, Copy, Debug)]
struct Due {
    lacking_since: Option<f64>,
    lacked_at: f64,
    /// Begin of narrowing jobs of others for it.
    narrow_since: Option<f64>,
}

impl Preemption {
    /// Computes one tick: `freeze_seconds` is the longest time for which a job may be frozen, `None` for never.
    pub fn step(
        &mut self,
        claims: &[Claim],
        running: &[Running],
        freeze_seconds: Option<f64>,
        now: f64,
    ) -> Orders {
        let claims = &self.caused(claims, running)[..];
        self.note(claims, now);
        let is_narrow = |it: &&Claim| {
            it.due_cores > 0.0
                && self.due.get(&it.tenant).is_some_and(|due| due.narrow_since.is_some())
        };
        let narrow: Vec<&Claim> = claims.iter().filter(is_narrow).collect();
        let owed = |it: &&Claim| Owed { due_cores: it.due_cores, lacking_cores: it.lacking_cores };
        let withheld: BTreeMap<String, Owed> =
            narrow.iter().map(|it| (it.tenant.clone(), owed(it))).collect();
        let is_there = |job: &JobId| running.iter().any(|it| it.job == *job);
        self.frozen.retain(|job, _| is_there(job));
        self.rests.retain(|job, until| is_there(job) && *until > now);
        let forest = Forest::new(withheld.keys().map(String::as_str));
        let thaw = self.thaw(&forest, running, freeze_seconds, now);
        let mut lacking = self.lasting(&narrow, &forest, now);
        let evict = evict(running, &forest, &mut lacking);
        let freeze = match freeze_seconds {
            Some(_) => self.freeze(running, &forest, &mut lacking, now),
            None => Vec::new(),
        };
        Orders { withheld, freeze, thaw, evict }
    }

    /// Thaws the jobs that have been frozen for the longest allowed time, between two ticks.
    pub fn overdue(&mut self, freeze_seconds: Option<f64>, now: f64) -> Vec<JobId> {
        let bound = freeze_seconds.unwrap_or(0.0);
        let is_over = |(job, since): (&JobId, &f64)| (now - since >= bound).then_some(*job);
        let over: Vec<JobId> = self.frozen.iter().filter_map(is_over).collect();
        over.iter().for_each(|job| self.rest(*job, now + bound));
        over
    }

    /// Ends all concessions when the control stops. Returns the jobs that were frozen.
    pub fn end(&mut self) -> Vec<JobId> {
        std::mem::take(self).frozen.into_keys().collect()
    }

    /// True if a job is frozen.
    pub fn is_frozen(&self, job: JobId) -> bool {
        self.frozen.contains_key(&job)
    }

    /// Forgets an ended job. Returns true if it was frozen.
    pub fn ended(&mut self, job: JobId) -> bool {
        self.rests.remove(&job);
        self.frozen.remove(&job).is_some()
    }

    /// Records that a job could not be frozen: it is left alone for as long as a frozen one would rest.
    pub fn failed(&mut self, job: JobId, freeze_seconds: f64, now: f64) {
        self.rest(job, now + freeze_seconds);
    }

    /// Thaws a job, and protects it until `until`.
    fn rest(&mut self, job: JobId, until: f64) {
        self.frozen.remove(&job);
        self.rests.insert(job, until);
    }

    /// The claims, with the part of each lack that jobs cause: those of others by their use, and its own if they
    /// are frozen.
    fn caused(&self, claims: &[Claim], running: &[Running]) -> Vec<Claim> {
        let caused = |claim: &Claim| {
            let (own, others): (Vec<&Running>, Vec<&Running>) =
                running.iter().partition(|it| is_in_group(&it.tenant, &claim.tenant));
            if own.iter().any(|it| self.frozen.contains_key(&it.job)) {
                return claim.clone();
            }
            let by_others: f64 = others.iter().map(|it| it.used_cores).sum();
            Claim { lacking_cores: claim.lacking_cores.min(by_others), ..claim.clone() }
        };
        claims.iter().map(caused).collect()
    }

    /// Records the lacking tenants, and those for which others were narrowed.
    fn note(&mut self, claims: &[Claim], now: f64) {
        self.due
            .retain(|tenant, _| claims.iter().any(|it| it.tenant == *tenant && it.due_cores > 0.0));
        for claim in claims.iter().filter(|it| it.due_cores > 0.0) {
            let lacks = claim.lacking_cores > 0.0;
            if !lacks && !self.due.contains_key(&claim.tenant) {
                continue;
            }
            let new = Due { lacking_since: None, lacked_at: now, narrow_since: None };
            let due = self.due.entry(claim.tenant.clone()).or_insert(new);
            if lacks {
                let since = *due.lacking_since.get_or_insert(now);
                due.lacked_at = now;
                if now - since >= PATIENCE_SECONDS {
                    due.narrow_since.get_or_insert(now);
                }
            } else {
                due.lacking_since = None;
            }
        }
        self.due.retain(|_, due| now - due.lacked_at < HOLD_SECONDS);
    }

    fn thaw(
        &mut self,
        forest: &Forest,
        running: &[Running],
        freeze_seconds: Option<f64>,
        now: f64,
    ) -> Vec<JobId> {
        let gives_way = |job: JobId| {
            running.iter().any(|it| it.job == job && forest.is_above_any(forest.level(&it.tenant)))
        };
        let bound = freeze_seconds.unwrap_or(0.0);
        let is_over = |(job, since): (&JobId, &f64)| {
            (!gives_way(*job) || now - since >= bound).then_some(*job)
        };
        let thaw: Vec<JobId> = self.frozen.iter().filter_map(is_over).collect();
        thaw.iter().for_each(|job| self.rest(*job, now + bound));
        thaw
    }

    /// Lack of each claim that has lasted although others are narrow.
    fn lasting(&self, narrow: &[&Claim], forest: &Forest, now: f64) -> Vec<f64> {
        let is_long = |it: &&Claim| {
            let Some(due) = self.due.get(&it.tenant) else { return false };
            let is_past = |since: f64| now - since >= FREEZE_AFTER_SECONDS;
            due.narrow_since.is_some_and(is_past) && due.lacking_since.is_some_and(is_past)
        };
        let lacking = |path: &String| {
            let claim = narrow.iter().copied().find(|it| it.tenant == *path);
            claim.filter(is_long).map_or(0.0, |it| it.lacking_cores)
        };
        forest.paths().iter().map(lacking).collect()
    }

    /// Freezes the youngest of the others, until their width covers the lack.
    fn freeze(
        &mut self,
        running: &[Running],
        forest: &Forest,
        lacking: &mut [f64],
        now: f64,
    ) -> Vec<JobId> {
        let may_freeze = |it: &&Running| {
            it.consent == Consent::No
                && !self.frozen.contains_key(&it.job)
                && !self.rests.contains_key(&it.job)
        };
        let others = youngest(running.iter().filter(may_freeze));
        let freeze: Vec<JobId> =
            others.into_iter().filter_map(|it| pay(it, forest, lacking).map(|_| it.job)).collect();
        self.frozen.extend(freeze.iter().map(|job| (*job, now)));
        freeze
    }
}

/// Evicts the youngest of the others that asked for it, until their width covers the lack. Those that are about to end count.
fn evict(running: &[Running], forest: &Forest, lacking: &mut [f64]) -> Vec<(JobId, String)> {
    for leaving in running.iter().filter(|it| it.consent == Consent::Leaving) {
        pay(leaving, forest, lacking);
    }
    let mut evict = Vec::new();
    for other in youngest(running.iter().filter(|it| it.consent == Consent::Evictable)) {
        if let Some(claim) = pay(other, forest, lacking) {
            evict.push((other.job, forest.paths()[claim].clone()));
        }
    }
    evict
}

fn youngest<'a>(running: impl Iterator<Item = &'a Running>) -> Vec<&'a Running> {
    let mut running: Vec<&Running> = running.collect();
    running.sort_by(|a, b| b.since.total_cmp(&a.since).then(b.job.cmp(&a.job)));
    running
}

/// Subtracts the width of a job from the lacks of the claims to which it leaves slots. Returns the first of these with a
/// lack; `None` if there is none.
fn pay(job: &Running, forest: &Forest, lacking: &mut [f64]) -> Option<usize> {
    let (level, still) = (forest.level(&job.tenant), forest.summed(lacking));
    let claim = forest.below(level).find(|claim| still[*claim] > 0.0)?;
    forest.pay(level, f64::from(job.dop.max(1)), lacking);
    Some(claim)
}
