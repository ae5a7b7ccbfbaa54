//! Types of `io.tenantd.Jobs` on the wire. `io.tenantd.Jobs.varlink` documents each of them.

use serde::{Deserialize, Serialize};

use tenantd_control::report::status::DeathCause;

/// Least memory of a job, in bytes: no process fits into less.
pub const MEMORY_MIN_BYTES: u64 = 1 << 20;

/// Most tasks of a set.
pub const TASKS_MAX: u32 = 1_000_000;
/// Most jobs that one job waits for.
pub const AFTER_MAX: usize = 64;
/// Longest time between SIGTERM and SIGKILL of an eviction, in seconds.
pub const GRACE_MAX_SECONDS: u32 = 3600;

/// Parameters of `Submit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitParameters {
    /// Path of a tenant; `None` for that of the user.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Class of jobs with similar expected costs.
    #[serde(default)]
    pub class: Option<String>,
    /// Largest memory usage.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Fixed width.
    #[serde(default)]
    pub dop: Option<u32>,
    /// Largest width.
    #[serde(default)]
    pub max_dop: Option<u32>,
    /// Units of counted resources.
    #[serde(default)]
    pub units: Option<Vec<Units>>,
    /// True to refuse the job if it cannot start at once.
    #[serde(default)]
    pub no_wait: Option<bool>,
    /// Command for other viewers.
    #[serde(default)]
    pub command: Option<String>,
    /// True if a process of the user waits for the command and will report its exit status.
    #[serde(default)]
    pub supervised: Option<bool>,
    /// Number of tasks: the calling process starts the tasks of a set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Most tasks of a set that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_at_once: Option<u32>,
    /// Number that the job had before tenantd restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// True if the job is a set that the calling process had begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<bool>,
    /// Jobs that have to end first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<u64>>,
    /// Jobs that have to succeed first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ok: Option<Vec<u64>>,
    /// Time between SIGTERM and SIGKILL of a job that may be ended and wait again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_grace_seconds: Option<u32>,
}

/// One of the replies of `Submit`: either `waiting` or `started`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubmitReply {
    /// Number of the job.
    pub id: u64,
    /// Path of its tenant.
    pub tenant: String,
    /// State of a waiting job.
    pub waiting: Option<Waiting>,
    /// State of a started job: the last reply.
    pub started: Option<Started>,
    /// True if the command is part of the job with this number, from within which it was submitted.
    #[serde(default)]
    pub inside: bool,
    /// Turns of a set since its beginning: so many of its tasks may have started.
    #[serde(default)]
    pub granted: Option<u32>,
    /// The run of this job ends now, and it waits again.
    #[serde(default)]
    pub eviction: Option<Eviction>,
}

/// The end of a run for another job, or for a guarantee.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Eviction {
    /// Waiting job that starts in its place; absent if a guarantee is due.
    pub job: Option<u64>,
    /// Path of the tenant of that job, or of the tenant or group with the guarantee.
    pub tenant: String,
    /// Time between SIGTERM and SIGKILL.
    pub grace_seconds: u32,
    /// True while the run ends.
    pub ending: bool,
    /// The same as a sentence.
    pub text: String,
}

/// Beneficiary of an eviction in a sentence: a job, or a guarantee.
pub fn beneficiary(job: Option<u64>, tenant: &str) -> String {
    match job {
        Some(job) => format!("job {job} of {tenant}"),
        None => format!("the guarantee of {tenant}"),
    }
}

/// Parameters of `Cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelParameters {
    /// Number of the job.
    pub id: u64,
}

/// Reply of `Cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelReply {
    /// True if it runs, and was left alone.
    pub is_running: bool,
    /// Its processes, for the caller to signal.
    pub pids: Vec<u32>,
}

/// Reply of `List`, and one of those of `WatchJobs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListReply {
    /// Running jobs, then waiting ones.
    pub jobs: Vec<Job>,
    /// Shared resources.
    pub pool: Pool,
    /// True if the caller may see own jobs only, and others may exist.
    #[serde(default)]
    pub own_only: bool,
}

impl ListReply {
    /// List for user `uid`, who may not see jobs of others.
    pub fn only_of(&self, uid: u32) -> ListReply {
        let jobs = self.jobs.iter().filter(|job| job.uid == uid).cloned().collect();
        ListReply { jobs, pool: self.pool.clone(), own_only: true }
    }

    /// List for user `uid`: jobs of others show the name of the program instead of the command, which may
    /// contain private data.
    pub fn seen_by(&self, uid: u32) -> ListReply {
        let mut list = self.clone();
        for job in list.jobs.iter_mut().filter(|job| job.uid != uid) {
            job.command = job.command.as_deref().and_then(program).map(str::to_string);
        }
        list
    }
}

/// Parameters of `Finished`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FinishedParameters {
    /// Number of one job; `None` for a list.
    #[serde(default)]
    pub id: Option<u64>,
}

/// Reply of `Finished`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FinishedReply {
    /// Finished jobs in the order of their ends.
    pub jobs: Vec<FinishedJob>,
}

/// Parameters of `Wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitParameters {
    /// Number of the job.
    pub id: u64,
}

/// Reply of `Wait`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitReply {
    /// The finished job.
    pub job: FinishedJob,
}

/// Parameters of `Report`: a code or a signal, the sums of a set, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReportParameters {
    /// Number of the job.
    pub id: u64,
    /// Exit code of its command.
    #[serde(default)]
    pub exit_code: Option<u8>,
    /// Signal that ended its command.
    #[serde(default)]
    pub exit_signal: Option<u8>,
    /// Sums of a set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<TaskSums>,
    /// Indices that the running tasks of a set use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use: Option<Vec<Assigned>>,
}

/// Sums over the tasks of a set since its beginning, as the process has them that starts the tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskSums {
    /// Started tasks.
    pub started: u32,
    /// Tasks that ended with exit code 0.
    pub succeeded: u32,
    /// Tasks that ended otherwise, or could not be executed.
    pub failed: u32,
    /// True if no further task is to start.
    pub closed: bool,
}

/// Tasks of a set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tasks {
    /// All tasks.
    pub count: u32,
    /// Most tasks that run at once.
    pub at_once: Option<u32>,
    /// Running tasks.
    pub running: u32,
    /// Tasks that ended with exit code 0.
    pub succeeded: u32,
    /// Tasks that ended otherwise.
    pub failed: u32,
}

impl Tasks {
    /// Tasks that have not started.
    pub fn waiting(&self) -> u32 {
        self.count.saturating_sub(self.running + self.succeeded + self.failed)
    }
}

/// Reply of `Report`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportReply {}

/// A finished job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FinishedJob {
    /// Number of the job.
    pub id: u64,
    /// Path of its tenant.
    pub tenant: String,
    /// Its user.
    pub uid: u32,
    /// Its class.
    pub class: Option<String>,
    /// Command as described by its caller.
    pub command: Option<String>,
    /// Time of its submission, since 1970.
    pub submitted_unix_seconds: f64,
    /// Time of its start; absent if it never started.
    pub started_unix_seconds: Option<f64>,
    /// Time at which its first process ended, or it left the queue.
    pub ended_unix_seconds: f64,
    /// Time that it waited.
    pub waited_seconds: f64,
    /// Time from its start to its end.
    pub ran_seconds: Option<f64>,
    /// CPU time used.
    pub cpu_seconds: Option<f64>,
    /// Largest memory usage.
    pub peak_memory_bytes: Option<u64>,
    /// Declared memory.
    pub memory_bytes: Option<u64>,
    /// Its last width in CPUs.
    pub dop: Option<u32>,
    /// Units of counted resources that it had.
    pub units: Vec<Units>,
    /// Processes that the kernel killed for lack of memory.
    pub nr_oom_kills: Option<u64>,
    /// Cause of the last of these kills; absent where the kernel's log does not have it.
    #[serde(default)]
    pub killer: Option<DeathCause>,
    /// Cgroup, tenant or group whose memory limit was reached.
    #[serde(default)]
    pub killer_limit: Option<String>,
    /// Advice for its class, if that exceeds its declared memory again and again.
    #[serde(default)]
    pub hint: Option<String>,
    /// Exit code of its first process, if that is known.
    pub exit_code: Option<u8>,
    /// Signal that ended its first process, if that is known.
    pub exit_signal: Option<u8>,
    /// True if a process of the user waited for the command.
    pub supervised: bool,
    /// Kind of its end.
    pub reason: EndReason,
    /// End as a sentence, with figures and remedy.
    pub text: String,
    /// Tasks of a set. Running ones were left behind.
    #[serde(default)]
    pub tasks: Option<Tasks>,
    /// Runs of a job that could be evicted.
    #[serde(default)]
    pub run: Option<u32>,
    /// Finish-time fairness: the time in the queue and of the run, over the time alone at the tenant's share of the CPUs.
    #[serde(default)]
    pub rho: Option<f64>,
    /// Reason for the lack of it.
    #[serde(default)]
    pub rho_unknown: Option<String>,
}

impl FinishedJob {
    /// Record for user `uid`: the command of another user is reduced to the name of the program.
    pub fn seen_by(&self, uid: u32) -> FinishedJob {
        let mut job = self.clone();
        if job.uid != uid {
            job.command = job.command.as_deref().and_then(program).map(str::to_string);
        }
        job
    }

    /// True if the exit status of its first process is known.
    pub fn has_status(&self) -> bool {
        self.exit_code.is_some() || self.exit_signal.is_some()
    }
}

/// Kind of a job's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Its first process has ended; the exit status is not known.
    #[default]
    Ended,
    /// Its first process exited with a code.
    Exited,
    /// A signal ended its first process.
    Signalled,
    /// The kernel killed a process of it for lack of memory.
    Killed,
    /// Its user or an administrator cancelled it.
    Cancelled,
    /// Its client left while it waited.
    Withdrawn,
    /// Its turn came, and it could not start.
    StartFailed,
    /// Its tenant left the policy while it waited.
    TenantGone,
    /// It waited while tenantd restarted; its client submits it again under another number.
    Requeued,
    /// A job that had to succeed first did not.
    RequirementFailed,
    /// tenantd ended it for another job, because its client did not in time.
    Evicted,
}

/// Program name of a command, without its directory and its arguments; `None` if the first word is not a name.
pub fn program(command: &str) -> Option<&str> {
    let first = command.split_whitespace().next()?;
    let name = first.rsplit('/').next()?;
    // An assignment before a command, or a quoted one, may be anything.
    let is_name = |c: char| c.is_alphanumeric() || "._+-".contains(c);
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Number of the job.
    pub id: u64,
    /// Path of its tenant.
    pub tenant: String,
    /// Its user.
    pub uid: u32,
    /// Its first process.
    pub pid: u32,
    /// Its class.
    pub class: Option<String>,
    /// Command as described by its caller.
    pub command: Option<String>,
    /// State of the job.
    pub state: JobState,
    /// Time that it waited.
    pub waited_seconds: f64,
    /// Time since it started.
    pub ran_seconds: Option<f64>,
    /// CPU time used.
    pub cpu_seconds: Option<f64>,
    /// Declared memory.
    pub memory_bytes: Option<u64>,
    /// Used memory.
    pub used_memory_bytes: Option<u64>,
    /// Units of counted resources that it has, or waits for.
    pub units: Vec<Units>,
    /// True if its processes are frozen while a guarantee of another tenant is due.
    #[serde(default)]
    pub frozen: bool,
    /// True if it has used no CPU for a minute, and lends its slots until the next job ends.
    #[serde(default)]
    pub idle: bool,
    /// True if its first process runs outside its cgroup, which is empty. Its width stays reserved.
    #[serde(default)]
    pub outside: bool,
    /// Absent once it has started; of a set also while its next task waits.
    pub waiting: Option<Waiting>,
    /// Absent while it waits.
    pub started: Option<Started>,
    /// Tasks of a set.
    #[serde(default)]
    pub tasks: Option<Tasks>,
    /// Jobs whose end it waits for.
    #[serde(default)]
    pub after: Vec<Requirement>,
    /// Finish-time fairness: the time in the queue and of the run, over the time alone at the tenant's share of the CPUs.
    #[serde(default)]
    pub rho: Option<f64>,
    /// Reason for the lack of it.
    #[serde(default)]
    pub rho_unknown: Option<String>,
    /// Remaining time of a running job, from the history of its class.
    #[serde(default)]
    pub ends: Option<Forecast>,
    /// Number of the present or next run of a job that may be evicted, from 1.
    #[serde(default)]
    pub run: Option<u32>,
    /// Present eviction, or the last one.
    #[serde(default)]
    pub eviction: Option<Eviction>,
}

/// Estimated time with an interval that holds for four of five jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// One of ten is earlier.
    pub low_seconds: f64,
    /// Half of them are earlier.
    pub likely_seconds: f64,
    /// One of ten is later.
    pub high_seconds: f64,
    /// Earlier runs behind the estimate; of a start those of the class with the fewest.
    pub nr_jobs: u64,
}

/// A job that has to end before another one starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Requirement {
    /// Number of the job.
    pub id: u64,
    /// True if it has to succeed, false for any end.
    pub must_succeed: bool,
}

/// State of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// The job is in the queue.
    #[default]
    Waiting,
    /// Its first process runs.
    Running,
    /// Its first process has ended, and others that it started run.
    Lingering,
}

/// State of a waiting job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Position among all waiting jobs, from 1.
    pub position: u64,
    /// Number of waiting jobs, including this one.
    pub total: u64,
    /// Present obstacle.
    pub reason: WaitReason,
    /// Estimated remaining wait.
    pub estimate_seconds: Option<f64>,
    /// The same with an interval, from the history of the classes of the jobs that run or start before; in lists alone.
    #[serde(default)]
    pub starts: Option<Forecast>,
}

/// Reason for a job's wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitReason {
    /// Kind of the obstacle.
    pub kind: WaitKind,
    /// Reason as a sentence.
    pub text: String,
    /// Wanted amount.
    pub wanted: Option<f64>,
    /// Free amount.
    pub free: Option<f64>,
    /// Total amount.
    pub total: Option<f64>,
    /// Counted resource, or the tenant to whose guarantee slots are left.
    pub name: Option<String>,
    /// Job that goes first.
    pub job: Option<u64>,
}

/// Obstacle to a job's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// Other jobs go first.
    #[default]
    Turn,
    /// The maximum number of jobs is running.
    Running,
    /// Too few slots are free.
    Slots,
    /// Too little of all tenants' memory is free.
    Memory,
    /// Too little of its tenant's memory limit is free.
    TenantMemory,
    /// Too few units of a counted resource are free.
    Counted,
    /// Its tenant runs the allowed number of jobs.
    TenantRunning,
    /// Its user runs the allowed number of jobs in this tenant.
    UserRunning,
    /// A job that was overtaken as often as allowed goes first.
    Overtaken,
    /// The job is being started.
    Starting,
    /// Other jobs have to end first.
    After,
    /// Another job ends for it, or for one that goes first.
    Evicting,
    /// The rest of the workers and slots is kept for short jobs.
    Reserve,
}

/// State of a started job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Width in CPUs.
    pub dop: u32,
    /// CPUs that it may run on.
    pub cpus: Option<String>,
    /// Cgroup, from the mount.
    pub cgroup: String,
    /// Job server.
    pub valve: Option<Valve>,
    /// Requests that could not be met.
    pub ineffective: Vec<String>,
    /// Indices of counted resources; of a set those of all its running tasks.
    #[serde(default)]
    pub assigned: Vec<Assigned>,
}

/// Indices of a counted resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
    /// Name of the resource.
    pub name: String,
    /// Indices of the units, from 0, ascending.
    pub indices: Vec<u32>,
    /// Variables of the environment that get them, where they are not set.
    #[serde(default)]
    pub env: Vec<String>,
}

impl Assigned {
    /// The indices as text, as in `0,2`.
    pub fn list(&self) -> String {
        self.indices.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
    }
}

/// The job server of GNU make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Valve {
    /// Path of the FIFO.
    pub fifo: String,
    /// Tokens at the start.
    pub tokens: u32,
}

/// Units of a counted resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// Name of the resource.
    pub name: String,
    /// Number of units.
    pub count: u32,
}

/// Resources shared by jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Jobs that may run at once.
    pub max_running: u32,
    /// Slots in all.
    pub slots: u32,
    /// Free slots.
    pub free_slots: u32,
    /// Memory that jobs may declare together.
    pub memory_bytes: Option<u64>,
    /// Free part of that memory.
    pub free_memory_bytes: Option<u64>,
    /// Counted resources.
    pub units: Vec<Units>,
    /// Free units of these resources.
    pub free_units: Vec<Units>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_see_the_program_of_a_command_alone() {
        for (command, seen) in [
            ("/usr/bin/mysql --password=hunter2", Some("mysql")),
            ("make -j16", Some("make")),
            ("g++ x.cc", Some("g++")),
            ("TOKEN=hunter2 make", None),
            ("'my program' hunter2", None),
            ("", None),
            ("  ", None),
            ("dir/ hunter2", None),
        ] {
            assert_eq!(program(command), seen, "{command}");
        }
        let job = |uid| Job { uid, command: Some("a --hunter2".into()), ..Job::default() };
        let list = ListReply { jobs: vec![job(7), job(8)], ..ListReply::default() };
        let seen: Vec<_> = list.seen_by(7).jobs.into_iter().map(|job| job.command).collect();
        assert_eq!(seen, [Some("a --hunter2".to_string()), Some("a".to_string())]);
        let own = list.only_of(7);
        assert_eq!((own.jobs, own.own_only), (vec![job(7)], true));
        assert!(list.only_of(9).jobs.is_empty());
    }
}
