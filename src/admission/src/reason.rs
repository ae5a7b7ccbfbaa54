//! What keeps a job from starting, or from being taken, with its figures.

use std::fmt;

use super::types::JobId;
use tenantd_core::units::Bytes;

/// The one thing that keeps a job from starting, with its figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Others go first.
    Turn,
    /// As many jobs run as may run at once.
    Running {
        /// How many.
        max: u32,
    },
    /// Too few slots are free.
    Slots {
        /// Slots that it needs.
        wanted: u64,
        /// Slots that no running job needs.
        free: u64,
        /// All slots.
        total: u64,
    },
    /// Too little memory is free.
    Memory {
        /// What it declared.
        wanted: u64,
        /// What is neither reserved nor used outside of jobs.
        free: u64,
        /// What there is.
        total: u64,
    },
    /// Too little of its tenant's limit is free.
    TenantMemory {
        /// What it declared.
        wanted: u64,
        /// What the other jobs of the tenant leave.
        free: u64,
        /// The limit.
        total: u64,
    },
    /// Too few units of a counted resource are free.
    Units {
        /// The resource.
        name: String,
        /// Units that it needs.
        wanted: u32,
        /// Units that no job has.
        free: u32,
        /// All units.
        total: u32,
    },
    /// Its tenant runs as many jobs as it may.
    TenantRunning {
        /// How many.
        max: u32,
    },
    /// Its user runs as many jobs in this tenant as one user may.
    UserRunning {
        /// How many.
        max: u32,
    },
    /// A job that was overtaken as often as allowed goes first.
    Overtaken {
        /// Which.
        job: JobId,
        /// How often it was overtaken.
        times: u32,
    },
}

impl Reason {
    /// The name of its kind: that of `WaitKind` in `io.tenantd.Jobs`.
    pub fn kind(&self) -> &'static str {
        match self {
            Reason::Turn => "turn",
            Reason::Running { .. } => "running",
            Reason::Slots { .. } => "slots",
            Reason::Memory { .. } => "memory",
            Reason::TenantMemory { .. } => "tenant_memory",
            Reason::Units { .. } => "counted",
            Reason::TenantRunning { .. } => "tenant_running",
            Reason::UserRunning { .. } => "user_running",
            Reason::Overtaken { .. } => "overtaken",
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
            Reason::Slots { wanted: 1, free, total } => {
                write!(f, "it needs a slot, and {free} of {total} are free")
            }
            Reason::Slots { wanted, free, total } => {
                write!(f, "it needs {wanted} slots, and {free} of {total} are free")
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
            Reason::Units { name, wanted, free, total } => {
                write!(f, "it needs {wanted} of {name}, and {free} of {total} are free")
            }
            Reason::TenantRunning { max } => {
                write!(f, "its tenant runs {max} jobs, as many as it may")
            }
            Reason::UserRunning { max } => {
                write!(f, "its user runs {max} jobs in this tenant, as many as one user may")
            }
            Reason::Overtaken { job, times } => {
                write!(f, "job {job} goes first: others have overtaken it {times} times")
            }
        }
    }
}

/// Why a job is not taken.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// There is no such tenant.
    NoSuchTenant,
    /// As many jobs of the tenant wait as may.
    TenantQueueFull {
        /// How many.
        max: u32,
    },
    /// As many jobs of the user wait as may.
    UserQueueFull {
        /// How many.
        max: u32,
    },
    /// As many jobs of the user, or of the tenant, have left processes behind as may wait.
    TooManyLinger {
        /// How many.
        max: u32,
        /// All jobs of the tenant are counted, not those of the user.
        is_of_tenant: bool,
    },
    /// It could not start if no other job ran.
    NeverFits(Reason),
}
