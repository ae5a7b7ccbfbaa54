//! Which job starts next, how wide it and the others run, and why the rest waits.
//!
//! # Problem
//! People submit commands to one machine, hundreds at a time. Fairness in the kernel begins once a command runs; the
//! greater effect is to decide which job starts next, and how wide. A job needs a worker, slots, memory, and perhaps units of
//! something that is counted; some declare what they need and most do not. 200 jobs that are submitted at once all find
//! the memory free, because none of them has used any yet. A job that needs much is passed by those that need little,
//! for ever if nothing bounds it.
//!
//! # Terms
//! *Job*: one command. *Worker*: the right of one job to run; there are `max_running`, by default as many as slots.
//! *Slot*: a unit of parallelism; a job holds its DOP in slots, at least its *floor* (one, or its manual DOP).
//! *Declared* memory: what a job says it will use. *Reserved*: the larger of what it declared and what it uses.
//! *Outside* memory: used by everything that is no job. *Unit*: of a counted resource, such as a GPU. *Turn*: the
//! [`Queue`](tenantd_queue::Queue) chose it. *Overtaken*: its turn had come, it lacked something, and another job started
//! that takes of what it lacked, or of what it lacks since. *Senior*: it has been overtaken as often as allowed.
//!
//! # Rules
//! 1. *Order.* The discipline of the policy chooses among tenants; within a tenant the first comes first.
//! 2. *Fit.* A job starts if there are a worker, slots for its floor, units, and memory: outside memory and all
//!    reservations, its own included, stay within the capacity, and those of its tenant within the tenant's limit. What a
//!    job declares is reserved at its start, so a second job that starts in the same moment finds it taken. Its
//!    tenant and its user run fewer jobs than they may.
//! 3. *Pass over.* The tenant whose job does not fit offers its next one that fits; where it has none, the next tenant
//!    has its turn. So no worker idles beside a job that could run.
//! 4. *Bounded overtaking.* A job that has been overtaken [`Rules::overtakes_max`] times becomes a senior. No job that takes
//!    of what a senior lacks starts before it, be it the first thing that it lacks or another. Units that it has lacked
//!    are kept for it once they are free, so that two things which are free in turn do not keep it waiting without bound;
//!    what its tenant may run is not kept, and goes on being used while the units are held elsewhere. Seniors are in the
//!    order in which they became it, and only the junior ones wait, so two never wait for each other. A senior that could
//!    not start if all jobs ended delays no other.
//! 5. *Width.* Whenever a job starts or ends, the slots are divided anew among the running ones, by integer max-min: none
//!    below its floor, a tenant's weight in equal parts to its jobs. Where memory keeps jobs from starting, the slots
//!    that they would have had go to those that run; when they start, the running ones are narrowed.
//! 6. *Pay.* A job is charged for the CPU time that it uses while it runs, and for the rest at its end, whatever the estimate
//!    was; but at least for a twentieth of a CPU as long as it holds a worker. Virtual time passes as jobs are charged, so
//!    a machine that gives them less than it could has no effect on the order.
//!
//! 7. *Give way.* Where a guarantee is due to a tenant, the jobs of others get narrower and none of them starts beyond what
//!    is left, without any being ended: [`Preemption`] says when and by how much.
//!
//! A job whose first process has ended and that leaves others behind *lingers*: its worker, slots and units come back,
//! and what the others use is outside of the jobs and stays their tenant's.
//!
//! # State
//! [`Admission`] is a value. It reads no clock (`now` is an argument, in seconds of a clock that does not stop between two
//! agents) and knows no process. It can be copied, compared and stored: an agent that is restarted goes on with the
//! stored value, without the jobs that waited, whose clients are gone.
//!
//! # Properties (`tests/admission/`)
//! - Reservations never exceed what jobs may declare together, nor those of a tenant its limit; the same for slots and
//!   units (`nothing_is_promised_twice_and_nothing_idles`).
//! - No worker idles beside a job that fits and may go before the seniors (the same test).
//! - A job that could ever start is overtaken a bounded number of times (`overtaking_is_bounded`), and a manual DOP of all
//!   slots starts beside a stream of narrow jobs (`a_wide_job_is_not_starved`), and a job that needs two things which are
//!   never free together beside streams of jobs that need one of them (`seniors`).
//! - Widths are within floors and ceilings, and fill the slots (the same test).
//! - A stored and restored value makes the same decisions, to the last bit (`a_restored_queue_decides_the_same`).
//! - A job of a tenant that comes later starts with the next free worker, whatever CPU time the jobs of others get
//!   (`a_slow_machine_holds_no_newcomer_up`).
//! - The same calls give the same decisions (`two_runs_are_the_same`).

#![deny(missing_docs)]

mod dispatch;
mod explain;
mod fit;
mod gone;
mod names;
mod nested;
mod preempt;
mod query;
mod reason;
mod senior;
mod share;
mod state;
mod types;
mod width;

pub use explain::Outlook;
pub use nested::is_in_group;
pub use preempt::{
    Claim, FREEZE_AFTER_SECONDS, HOLD_SECONDS, Orders, PATIENCE_SECONDS, Preemption, Running,
};
pub use reason::{Reason, Refusal};
pub use share::weights;
pub use state::Admission;
pub use types::{
    Capacity, Dispatch, JobId, JobView, Measured, Phase, Request, Rules, Start, Terms,
};
