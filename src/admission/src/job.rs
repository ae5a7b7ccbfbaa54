//! State of one job: its kind, its run, its use of CPU, and the eviction under way.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::fit::Need;
use super::types::{Cause, JobId, Request};
use tenantd_queue::indices::Indices;
use tenantd_queue::sets::{Set, Tasks};
use tenantd_queue::{TenantId, Ticket};

/// Time after which a job that uses no CPU lends its slots.
const IDLE_SECONDS: f64 = 60.0;

/// CPU use that counts as none: shells and editors wake up now and then.
const IDLE_CORES: f64 = 0.01;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Job {
    pub(super) request: Request,
    pub(super) need: Need,
    pub(super) submitted: f64,
    pub(super) state: State,
    pub(super) cpu_seconds: f64,
    /// CPU time that its slots have not used and that it pays for (`slots`).
    #[serde(default, alias = "other_seconds")]
    pub(super) unused_seconds: f64,
    #[serde(default)]
    pub(super) paid_seconds: f64,
    pub(super) used_bytes: Option<u64>,
    /// Time of the last charge, and the CPU use before it.
    #[serde(skip)]
    pub(super) charged: Option<(f64, f64)>,
    /// CPU time and time of the last use that was more than an idle job's.
    #[serde(default)]
    pub(super) busy: Option<(f64, f64)>,
    /// True if it lends its slots and its worker because it uses no CPU.
    #[serde(default)]
    pub(super) is_idle: bool,
    /// Counted resources, by index, that it has lacked at the end of a dispatch since it is a senior.
    #[serde(default)]
    pub(super) lacked_units: BTreeSet<usize>,
    #[serde(default)]
    pub(super) kind: Kind,
    /// Indices that it holds; those of a task are its set's.
    #[serde(default)]
    pub(super) indices: Indices,
}

/// A job by its place among sets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) enum Kind {
    #[default]
    Single,
    Set(SetRuns),
    /// A running task of a set.
    Task(JobId),
}

/// A set with its running tasks, each of which is a job with a number of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct SetRuns {
    pub(super) set: Set,
    pub(super) running: BTreeSet<JobId>,
    /// Time of the first start.
    pub(super) since: Option<f64>,
    /// CPU time that no task was charged with.
    pub(super) unpaid_seconds: f64,
    /// True after a restart until the starter of the tasks has reported its sums.
    pub(super) is_unsure: bool,
    /// Indices that its tasks use, as their starter has reported.
    #[serde(skip)]
    pub(super) in_use: Indices,
    /// Time before which it is not evicted again.
    #[serde(default)]
    pub(super) rests_until: Option<f64>,
    /// Reason of the last eviction.
    #[serde(default)]
    pub(super) evicted: Option<Cause>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum State {
    Waiting {
        overtaken: u32,
    },
    Running(Run),
    /// A set without an entry in the queue.
    Parked,
    Lingering {
        since: f64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) ticket: Ticket,
    pub(super) worker: u32,
    pub(super) since: f64,
    pub(super) dop: u32,
    /// Tenant whose turn it was, if not its own.
    #[serde(default)]
    pub(super) payer: Option<TenantId>,
}

impl Job {
    pub(super) fn new(request: Request, need: Need, submitted: f64) -> Job {
        let state = State::Waiting { overtaken: 0 };
        let kind = request.tasks.map_or(Kind::Single, |tasks| Kind::Set(SetRuns::new(tasks)));
        Job {
            request,
            need,
            submitted,
            state,
            cpu_seconds: 0.0,
            unused_seconds: 0.0,
            paid_seconds: 0.0,
            used_bytes: None,
            charged: None,
            busy: None,
            is_idle: false,
            lacked_units: BTreeSet::new(),
            kind,
            indices: Indices::default(),
        }
    }

    /// The set, if it is one.
    pub(super) fn set(&self) -> Option<&SetRuns> {
        if let Kind::Set(runs) = &self.kind { Some(runs) } else { None }
    }

    pub(super) fn is_task(&self) -> bool {
        matches!(self.kind, Kind::Task(_))
    }

    /// True for a set of which a task has started.
    pub(super) fn has_begun(&self) -> bool {
        self.set().is_some_and(|runs| runs.since.is_some())
    }

    pub(super) fn run(&self) -> Option<&Run> {
        match &self.state {
            State::Running(run) => Some(run),
            _ => None,
        }
    }

    /// Number of times others have overtaken it while it waits.
    pub(super) fn overtaken(&self) -> Option<u32> {
        if let State::Waiting { overtaken } = self.state { Some(overtaken) } else { None }
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Waiting { .. })
    }

    /// Slots without which others have to do.
    pub(super) fn held_slots(&self) -> u64 {
        if self.is_idle { 0 } else { self.need.floor }
    }

    /// CPU use before the last charge; 0 before the second one.
    pub(super) fn used_cores(&self) -> f64 {
        self.charged.map_or(0.0, |(_, cores)| cores)
    }

    /// Notes the use of `more` CPU time up to `now`: a job is idle after [`IDLE_SECONDS`] with less than [`IDLE_CORES`].
    pub(super) fn note_use(&mut self, more: f64, now: f64) {
        let elapsed = self.charged.map_or(0.0, |(at, _)| now - at);
        // Calls in one instant keep the last use.
        if elapsed > 0.0 || self.charged.is_none() {
            let cores = if elapsed > 0.0 { more / elapsed } else { 0.0 };
            self.charged = Some((now, cores));
        }
        let (cpu_seconds, since) = *self.busy.get_or_insert((self.cpu_seconds, now));
        if self.cpu_seconds - cpu_seconds >= IDLE_CORES * IDLE_SECONDS {
            (self.busy, self.is_idle) = (Some((self.cpu_seconds, now)), false);
        } else if now - since >= IDLE_SECONDS {
            self.is_idle = true;
        }
    }

    pub(super) fn reserved_bytes(&self) -> u64 {
        self.need.memory_bytes.max(self.used_bytes.unwrap_or(0))
    }
}

impl SetRuns {
    fn new(tasks: Tasks) -> SetRuns {
        let (set, running) = (Set::new(tasks), BTreeSet::new());
        let in_use = Indices::default();
        SetRuns {
            set,
            running,
            since: None,
            unpaid_seconds: 0.0,
            is_unsure: false,
            in_use,
            rests_until: None,
            evicted: None,
        }
    }
}

/// An eviction under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Leaving {
    pub(super) cause: Cause,
    /// Time after which the daemon ends the job itself.
    pub(super) until: f64,
}

/// Resources kept for a beneficiary.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Reservation {
    pub(super) job: JobId,
    pub(super) until: f64,
}
