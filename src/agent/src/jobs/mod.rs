//! Admitted jobs: their clients, their processes and their cgroups.
//!
//! **Problem.** The client starts the process of a job; the cgroup of the job must exist before that process
//! executes its command. The client may vanish in every state, its pid may be reused before the move, and the
//! agent may be killed at any point.
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
//! **Owner.** A [`JobRoom`](room::JobRoom) has the queue, the records and the cgroups of all jobs. It is part of the
//! control thread, without locks, and borrows the [tenants](crate::tenants) or only the host for each step. Requests
//! of clients arrive as messages from the socket's thread. A submission is decided and started at once, not at the
//! next tick.
//!
//! | file | contents |
//! |---|---|
//! | `room` | all jobs with their shared state |
//! | `records` | client, process and cgroup of each job |
//! | `store` | the files of the state directory |
//! | `terms` | policy and capacity in the queue's types |
//! | `credit` | credit of tenants, lent to the queue and paid at starts |
//! | `cgroup` | the cgroup of a job |
//! | `home` | where that cgroup is made, and the move into it |
//! | `scope`, `arrival` | the same if systemd owns it |
//! | `devices` | devices of counted resources, closed to other jobs |
//! | `place` | CPUs and weight of each job |
//! | `valves` | job servers |
//! | `preempt` | preemption of running jobs |
//! | `evict` | jobs that end for others and wait again |
//! | `end` | charging, end and removal |
//! | `finish_time` | counters for their finish-time fairness |
//! | `finished` | records of finished jobs |
//! | `outcome` | making these records; waits for an end; exit status |
//! | `waits` | clients that wait for the end of a job |
//! | `after` | jobs that wait for the end of others |
//! | `start` | start and adoption |
//! | `sets` | sets of tasks: turns, reports, and the restart of either side |
//! | `tend` | the steps of a tick and between ticks |
//! | `submit`, `nested` | submission, also from within a job |
//! | `pace` | rate of submissions of each user |
//! | `reply`, `listing`, `summary` | the jobs as clients and readers see them |
//! | `watch` | wakes the agent while jobs run |

mod after;
mod arrival;
mod cgroup;
mod credit;
mod devices;
mod end;
mod evict;
mod finish_time;
mod finished;
mod home;
mod listing;
mod nested;
pub(crate) mod outcome;
mod pace;
mod place;
mod preempt;
mod records;
pub(super) mod reply;
pub(super) mod room;
mod scope;
mod sets;
pub(super) mod slots;
mod start;
mod starts;
pub(super) mod store;
mod submit;
pub(super) mod summary;
mod tend;
mod terms;
mod valves;
mod waits;
pub(super) mod watch;
