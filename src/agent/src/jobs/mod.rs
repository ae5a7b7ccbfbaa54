//! Admitted jobs: their clients, their processes and their cgroups.
//!
//! **Problem.** The client starts the process of a job; the cgroup of the job must exist before that process
//! executes its command. The client may vanish in every state, its pid may be reused before the move, and the
//! agent may be killed at any point.
//!
//! **Owner.** The control thread owns the queue, the records and the cgroups, without locks. Requests of
//! clients arrive as messages from the socket's thread. A submission is decided and started at once, not at the
//! next tick.
//!
//! **Start.** The agent makes the cgroup `job-N` inside the tenant's own cgroup (if systemd owns that, a scope
//! in its slice: [`scope`]), and sets its memory limit, CPUs and weight. Then it moves the process, and only
//! then answers. Before and after the move it checks that the process and its user are those that connected (by
//! pidfd, else by start time). A process moved by mistake goes back to its origin.
//!
//! **End.** A job ends when its cgroup is empty. If its first process has ended and others remain, the job
//! lingers: its slots are free, and its processes stay charged to the tenant.
//!
//! **Restart.** Running jobs are written to `jobs/` of the state directory before their processes move; the
//! queue is in `queue.json` ([`store`]). Jobs are not in the journal, because a job outlives the agent. The
//! files are not synced to disk, because no cgroup outlives the machine.
//!
//! | file | contents |
//! |---|---|
//! | `record` | all jobs with their shared state |
//! | `records` | client, process and cgroup of each job |
//! | `cgroup` | the cgroup of a job |
//! | `scope` | the same if systemd owns it |
//! | `place` | CPUs and weight of each job |
//! | `store` | the files of the state directory |
//! | `terms` | the policy of jobs in the queue's types |
//! | `reply` | answers to clients |
//! | `listing` | the jobs as readers see them |
//! | `summary` | sums of the jobs in the status |
//! | `watch` | wakes the agent while jobs run |

pub(super) mod arrival;
pub(super) mod cgroup;
pub(super) mod listing;
pub(super) mod nested;
pub(super) mod place;
pub(super) mod preempt;
pub(super) mod records;
pub(super) mod reply;
pub(super) mod room;
pub(super) mod scope;
pub(super) mod start;
pub(super) mod store;
pub(super) mod submit;
pub(super) mod summary;
pub(super) mod tend;
pub(super) mod terms;
pub(super) mod valves;
pub(super) mod watch;
