//! Admission of jobs: choice of the next job, widths of the running jobs, and reasons of the waiting ones.
//!
//! # Problem
//! Users submit hundreds of commands to one machine. Fairness in the kernel begins once a command runs; the
//! order and width of starts have the greater effect. A job needs a worker, slots, memory, and perhaps
//! units of a counted resource; some jobs declare their needs and most do not. 200 jobs submitted at once
//! all find the memory free, because none has used any yet. Small jobs pass a large one forever if nothing
//! bounds it.
//!
//! # Terms
//! - *Job*: one command.
//! - *Worker*: the right of one job to run; there are `max_running`, by default as many as slots.
//! - *Slot*: a unit of parallelism; a job holds its DOP in slots, at least its *floor* (one, or its manual
//!   DOP).
//! - *Declared* memory: the job's own bound. *Reserved*: the larger of declared and used memory. *Outside*:
//!   memory used by everything that is not a job.
//! - *Unit*: of a counted resource, such as a GPU. Each has an *index* ([`tenantd_queue::indices`]).
//! - *Turn*: the choice of the [`Queue`](tenantd_queue::Queue).
//! - *Overtaken*: the job's turn had come, it lacked something, and another job started that takes of its
//!   lacks then or since.
//! - *Senior*: a job that was overtaken as often as allowed.
//!
//! # Rules
//! 1. *Order.* The discipline of the policy chooses among tenants; within a tenant the first comes first.
//! 2. *Fit.* A job starts if there are a worker, slots for its floor, units, and memory: outside memory and
//!    all reservations, including its own, stay within the capacity, and those of its tenant within the
//!    tenant's limit. Declared memory is reserved at the start, so a second job in the same moment finds it
//!    taken. Its tenant and its user run fewer jobs than allowed.
//! 3. *Pass over.* A tenant whose job does not fit offers its next one that fits; without one, the next
//!    tenant has its turn. So no worker idles beside a job that could run.
//! 4. *Bounded overtaking.* A job overtaken [`Rules::overtakes_max`] times becomes a senior. No job that
//!    takes any of a senior's lacks starts before it. Units that it has lacked are kept for it once they
//!    are free, so that two resources that are free in turn do not delay it without bound; its tenant's
//!    limits are not kept. Seniors have the order in which they became seniors, and only junior ones wait,
//!    so two never wait for each other. A senior that could not start on an empty machine delays no other
//!    job.
//! 5. *Width.* At each start and end the slots are divided anew among the running jobs, by integer max-min:
//!    none below its floor, a tenant's weight in equal parts to its jobs. If memory keeps jobs from
//!    starting, running jobs use their slots and are narrowed when they start.
//! 6. *Pay.* A job is charged for its CPU time while it runs, and for the rest at its end, whatever the
//!    estimate was; but at least for a twentieth of a CPU while it holds a worker, and for what its slots could have used
//!    of its tenant's CPUs (`slots`). Virtual time passes as jobs are charged, so a slow machine does not change the order.
//! 7. *Preemption.* While a guarantee is due to a tenant, the jobs of others get narrower and do not start
//!    beyond the rest ([`Preemption`]). One job may always run.
//! 8. *Lend.* A job that has used no CPU for a minute is *idle*: its slots and its worker count as free. Once it
//!    is busy again they count as taken, so that it gets them back with the next job that ends.
//! 9. *Sets.* A set of tasks has one entry in the queue, and each start of a task pays for its own turn
//!    ([`tenantd_queue::sets`]). A running task holds what a job holds.
//! 10. *Dependencies.* A job waits for the end, or the success, of older ones. A job that others wait for starts at the
//!     earliest turn among those of its tenant and of theirs ([`tenantd_queue::donation`]).
//! 11. *Credit.* A tenant with credit starts earlier after a pause, and pays for it at the start ([`Admission::lend`]).
//! 12. *Eviction.* A job that asked for it ends for a due guarantee or for a job whose turn it is, and waits again
//!     (`evict`). No other job is ended.
//! 13. *Reserve.* Some workers, and as many slots, are kept for jobs of classes with a short estimate ([`Reserve`]); off
//!     by default. It is the one rule that lets a worker idle beside a job that fits. One long job may always run, and
//!     long jobs alone wait for a long senior, so a stream of short ones delays a long job by its turn only.
//!
//! A job whose first process has ended while others remain *lingers*: its worker and slots are released, and
//! the remaining processes count as outside usage and stay in their tenant. Its units stay with it: a process
//! that was left behind may still use the device.
//!
//! The start of a waiting job can be foreseen from the run times of earlier jobs of its class and of those before it (`foresee`).
//!
//! # State
//! [`Admission`] is a value. It reads no clock (`now` is an argument, in seconds of a clock that does not
//! stop between two agents) and knows no process. It can be copied, compared and stored: a restarted agent
//! continues from the stored value, without the waiting jobs, whose clients are gone.
//!
//! # Properties (`tests/admission/`)
//! - Reservations never exceed the capacity for jobs, nor those of a tenant its limit; the same for slots
//!   and units (`nothing_is_promised_twice_and_nothing_idles`).
//! - No worker idles beside a job that fits and may go before the seniors
//!   (the same test), but for the reserve (`reserve`).
//! - A job that could ever start is overtaken a bounded number of times (`overtaking_is_bounded`); a manual
//!   DOP of all slots starts beside a stream of narrow jobs (`a_wide_job_is_not_starved`); so does a job
//!   with two needs that are never free together, beside streams of jobs with one of them (`seniors`).
//! - An index is held by one job at a time, also over a restart (`units`).
//! - Widths are within floors and ceilings, and fill the slots (the same test).
//! - An eviction lets its beneficiary start, and ends only jobs that asked for it, a bounded number of times
//!   (`evictions`).
//! - A restored value makes the same decisions, to the last bit (`a_restored_queue_decides_the_same`).
//! - A job of a late tenant starts with the next free worker, whatever CPU time other jobs get
//!   (`a_slow_machine_holds_no_newcomer_up`).
//! - Slots that a tenant does not use are paid for like used ones, and its weight counts once (`slots`).
//! - The same calls give the same decisions (`two_runs_are_the_same`).

#![deny(missing_docs)]

mod account;
mod after;
mod credit;
mod dispatch;
mod evict;
mod explain;
mod fit;
mod foresee;
mod gone;
mod job;
mod names;
mod nested;
mod preempt;
mod query;
mod reason;
mod senior;
mod share;
mod simulated;
mod slots;
mod state;
mod tasks;
mod types;
mod units;
mod width;

pub use evict::{Eviction, FORCE_SECONDS, RESERVED_SECONDS, REST_SECONDS, RUN_SECONDS, RUNS_MAX};
pub use explain::Outlook;
pub use foresee::PastRun;
pub use nested::is_in_group;
pub use preempt::{
    Claim, Consent, FREEZE_AFTER_SECONDS, HOLD_SECONDS, Orders, PATIENCE_SECONDS, Preemption,
    Running,
};
pub use reason::{Reason, Refusal};
pub use share::weights;
pub use simulated::{Holding, Host};
pub use slots::{Cores, SlotUse};
pub use state::Admission;
pub use tenantd_queue::indices::Indices;
pub use tenantd_queue::sets::{Set, Sums, Tasks};
pub use types::{
    Capacity, Cause, Dispatch, Guarantee, JobId, JobView, Measured, Owed, Phase, Request, Requeue,
    Requirement, Reserve, Rules, Start, Terms,
};
