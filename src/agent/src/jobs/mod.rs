//! Admitted jobs: their clients, their processes and their cgroups.
//!
//! **Problem.** A job is a process that its client started, in a cgroup that has to be there before it executes its
//! command. Its client may vanish in every state; its number may be another process's by the time it is moved; the
//! agent may be killed at any point.
//!
//! **Owner.** The control thread owns the queue, the records and the cgroups. What clients ask comes as messages of
//! the socket's thread and is answered with messages; nothing is locked. A submission is decided and started at once,
//! not in the next tick.
//!
//! **Start.** The cgroup `job-N` is made inside the tenant's own cgroup (where systemd owns that, a scope in its slice:
//! [`scope`]) and gets its memory limit, its CPUs and its weight;
//! then the process is moved, and only then the client is told. That the process is the one that connected, and its
//! user the one that it had then, is checked before the move (by its descriptor where the kernel has one, else by when
//! it started) and again after it: a process that was moved in its place goes back to where it came from.
//!
//! **End.** A job has ended when its cgroup is empty. Where its first process has ended and others are left, it lingers:
//! its slots come back, and its processes stay accounted to the tenant.
//!
//! **Restart.** The running jobs are in `jobs/` of the state directory before their processes are moved, the state of
//! the queue in `queue.json` ([`store`]). They are not in the journal: a job outlives the agent, is not moved back, and its
//! cgroup has no use once it is empty. Neither file is synced to disk: no cgroup outlives the machine.
//!
//! | file | contents |
//! |---|---|
//! | `record` | the state of the room |
//! | `records` | what is known of each job beside the queue |
//! | `cgroup` | the cgroup of a job |
//! | `scope` | the same where systemd owns it |
//! | `place` | which CPUs each job runs on, and its weight |
//! | `store` | the files of the state directory |
//! | `terms` | what the policy says of jobs |
//! | `reply` | what clients are told |
//! | `listing` | the jobs as readers see them |
//! | `summary` | their sums in the status |
//! | `watch` | what wakes the agent while jobs run |

pub(super) mod cgroup;
pub(super) mod listing;
pub(super) mod place;
pub(super) mod record;
pub(super) mod records;
pub(super) mod reply;
pub(super) mod scope;
pub(super) mod store;
pub(super) mod summary;
pub(super) mod terms;
pub(super) mod watch;
