//! Obstacles to a job's start or admission, with figures.

use std::fmt;
use std::time::Duration;

use super::types::{JobId, Owed};
use tenantd_core::units::Bytes;

/// Obstacle to a job's start, with figures.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// Other jobs go first.
    Turn,
    /// The maximum number of jobs is running.
    Running {
        /// Allowed number.
        max: u32,
    },
    /// The free workers or slots are kept for short jobs.
    Reserve {
        /// Workers kept.
        kept: u32,
        /// All workers.
        total: u32,
        /// Upper bound of the estimate of a short job.
        below: Duration,
        /// Estimate of this job; `None` without one.
        expected: Option<Duration>,
    },
    /// Too few slots are free.
    Slots {
        /// Needed slots.
        wanted: u64,
        /// Slots that no running job needs.
        free: u64,
        /// All slots.
        total: u64,
        /// Tenant or group whose guarantee is due, if the slots that are free are left to it.
        left_to: Option<(String, Owed)>,
    },
    /// Too little memory is free.
    Memory {
        /// Declared memory.
        wanted: u64,
        /// Memory that is neither reserved nor used outside jobs.
        free: u64,
        /// All memory.
        total: u64,
    },
    /// Too little of its tenant's limit is free.
    TenantMemory {
        /// Declared memory.
        wanted: u64,
        /// Rest beside the other jobs of the tenant.
        free: u64,
        /// Limit of the tenant.
        total: u64,
    },
    /// Too few units of a counted resource are free.
    Units {
        /// Name of the resource.
        name: String,
        /// Needed units.
        wanted: u32,
        /// Units that no job has.
        free: u32,
        /// All units.
        total: u32,
    },
    /// Its tenant runs the allowed number of jobs.
    TenantRunning {
        /// Allowed number.
        max: u32,
    },
    /// Its user runs the allowed number of jobs in this tenant.
    UserRunning {
        /// Allowed number.
        max: u32,
    },
    /// It waits for the end of others.
    After {
        /// The first of them.
        job: JobId,
        /// Number of all of them.
        count: u32,
        /// True if the first one has to succeed.
        must_succeed: bool,
    },
    /// A job that was overtaken as often as allowed goes first.
    Overtaken {
        /// The other job.
        job: JobId,
        /// Number of times it was overtaken.
        times: u32,
    },
    /// Another job ends for it, or for one that goes first.
    Evicting {
        /// The job that ends, or the one that goes first.
        job: JobId,
        /// Tenant of that job.
        tenant: String,
        /// True if the job ends for this one.
        is_own: bool,
    },
}

impl Reason {
    /// Name of its kind: that of `WaitKind` in `io.tenantd.Jobs`.
    pub fn kind(&self) -> &'static str {
        match self {
            Reason::Turn => "turn",
            Reason::Running { .. } => "running",
            Reason::Reserve { .. } => "reserve",
            Reason::Slots { .. } => "slots",
            Reason::Memory { .. } => "memory",
            Reason::TenantMemory { .. } => "tenant_memory",
            Reason::Units { .. } => "counted",
            Reason::TenantRunning { .. } => "tenant_running",
            Reason::UserRunning { .. } => "user_running",
            Reason::After { .. } => "after",
            Reason::Overtaken { .. } => "overtaken",
            Reason::Evicting { .. } => "evicting",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |bytes: &u64| Bytes(*bytes).rounded();
        match self {
            Reason::Turn => write!(f, "others go first"),
            Reason::Running { max } => {
                write!(f, "{max} jobs run, as many as may (admission.max_running)")
            }
            Reason::Reserve { kept, total, below, expected } => {
                f.write_str(&kept_for_short((*kept, *total), *below, *expected))
            }
            Reason::Slots { wanted, free, total, left_to } => {
                if *wanted == 1 {
                    write!(f, "it needs a slot, and {free} of {total} are free")?;
                } else {
                    write!(f, "it needs {wanted} slots, and {free} of {total} are free")?;
                }
                let Some((tenant, owed)) = left_to else { return Ok(()) };
                let Owed { due_cores, lacking_cores } = owed;
                let has = (due_cores - lacking_cores).max(0.0);
                write!(
                    f,
                    ": jobs leave the others to {tenant}, which has {has:.2} of its guaranteed {due_cores:.2} CPUs"
                )
            }
            Reason::Memory { wanted, free, total } => write!(
                f,
                "it needs {} of memory, and {} of {} are free",
                bytes(wanted),
                bytes(free),
                bytes(total)
            ),
            Reason::TenantMemory { wanted, free, total } => write!(
                f,
                "it needs {} of memory, and {} of its tenant's limit of {} are free",
                bytes(wanted),
                bytes(free),
                bytes(total)
            ),
            Reason::Units { name, total: 0, .. } => write!(
                f,
                "the policy has no resource {name}: an administrator can declare how many there are in \
                 `host.resources`"
            ),
            Reason::Units { name, wanted, free, total } => {
                write!(f, "it needs {wanted} of {name}, and {free} of {total} are free")
            }
            Reason::TenantRunning { max } => {
                write!(f, "its tenant runs {max} jobs, as many as it may")
            }
            Reason::UserRunning { max } => {
                write!(f, "its user runs {max} jobs in this tenant, as many as one user may")
            }
            Reason::After { job, count, must_succeed } => {
                f.write_str(&waits_for(*job, *count, *must_succeed))
            }
            Reason::Overtaken { job, times } => {
                write!(f, "job {job} goes first: others have overtaken it {times} times")
            }
            Reason::Evicting { job, tenant, is_own: true } => {
                write!(f, "job {job} of {tenant} ends for it, and waits again")
            }
            Reason::Evicting { job, tenant, is_own: false } => {
                write!(f, "job {job} of {tenant} goes first: others end for it")
            }
        }
    }
}

fn kept_for_short(
    (kept, total): (u32, u32),
    below: Duration,
    expected: Option<Duration>,
) -> String {
    let (are, below) = (if kept == 1 { "is" } else { "are" }, below.as_secs());
    let kept =
        format!("{kept} of {total} workers {are} kept for short jobs (admission.short_jobs)");
    match expected.map(|it| it.as_secs()) {
        Some(expected) => {
            format!(
                "{kept}: jobs of its class take up to {expected} s, short ones less than {below} s"
            )
        }
        None => format!(
            "{kept}: a job is short if nine of ten of its class (--class) took less than {below} s"
        ),
    }
}

fn waits_for(job: JobId, count: u32, must_succeed: bool) -> String {
    let what = if must_succeed { "success" } else { "end" };
    let first = format!("it waits for the {what} of job {job}");
    match count.saturating_sub(1) {
        0 => first,
        1 => format!("{first} and of 1 other job"),
        others => format!("{first} and of {others} other jobs"),
    }
}

/// Reason for refusing a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// The tenant does not exist.
    NoSuchTenant,
    /// The allowed number of the tenant's jobs is waiting.
    TenantQueueFull {
        /// Allowed number.
        max: u32,
    },
    /// The allowed number of the user's jobs is waiting.
    UserQueueFull {
        /// Allowed number.
        max: u32,
    },
    /// Too many ended jobs of the user or the tenant have left processes behind.
    TooManyLinger {
        /// Allowed number.
        max: u32,
        /// True if all jobs of the tenant are counted, false for those of the user.
        is_of_tenant: bool,
    },
    /// The job could not start even if no other ran.
    NeverFits(Reason),
    /// It is to wait for a job that is not older.
    NotOlder(JobId),
}
