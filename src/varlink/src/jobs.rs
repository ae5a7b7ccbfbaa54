//! The types of `io.tenantd.Jobs` on the wire. `io.tenantd.Jobs.varlink` documents each of them.

use serde::{Deserialize, Serialize};

/// The parameters of `Submit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitParameters {
    /// The path of a tenant; `None` for that of the user.
    #[serde(default)]
    pub tenant: Option<String>,
    /// Jobs of one class are expected to cost alike.
    #[serde(default)]
    pub class: Option<String>,
    /// What it will use at most.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Exactly this wide.
    #[serde(default)]
    pub dop: Option<u32>,
    /// At most this wide.
    #[serde(default)]
    pub max_dop: Option<u32>,
    /// Units of counted resources.
    #[serde(default)]
    pub units: Option<Vec<Units>>,
    /// Refuse it where it cannot start at once.
    #[serde(default)]
    pub no_wait: Option<bool>,
    /// What others see of it.
    #[serde(default)]
    pub command: Option<String>,
}

/// One of the replies of `Submit`: either `waiting` or `started`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SubmitReply {
    /// The number of the job.
    pub id: u64,
    /// The path of its tenant.
    pub tenant: String,
    /// It waits.
    pub waiting: Option<Waiting>,
    /// It has started: the last reply.
    pub started: Option<Started>,
}

/// The parameters of `Cancel`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CancelParameters {
    /// The number of the job.
    pub id: u64,
}

/// The reply of `Cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelReply {
    /// It runs, and was not touched.
    pub is_running: bool,
    /// Its processes, for the caller to signal.
    pub pids: Vec<u32>,
}

/// The reply of `List`, and one of those of `WatchJobs`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListReply {
    /// Those that run, then those that wait.
    pub jobs: Vec<Job>,
    /// What they share.
    pub pool: Pool,
}

impl ListReply {
    /// The list for user `uid`: of the jobs of others it has the name of the program in place of the command, which may
    /// contain what is no business of others.
    pub fn seen_by(&self, uid: u32) -> ListReply {
        let mut list = self.clone();
        for job in list.jobs.iter_mut().filter(|job| job.uid != uid) {
            job.command = job.command.as_deref().and_then(program).map(str::to_string);
        }
        list
    }
}

/// The name of the program of a command, without its directory and its arguments; `None` where the first word is no name.
pub fn program(command: &str) -> Option<&str> {
    let first = command.split_whitespace().next()?;
    let name = first.rsplit('/').next()?;
    // An assignment before a command, or one in quotes, may be anything.
    let is_name = |c: char| c.is_alphanumeric() || "._+-".contains(c);
    (!name.is_empty() && name.chars().all(is_name)).then_some(name)
}

/// A job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// Its number.
    pub id: u64,
    /// The path of its tenant.
    pub tenant: String,
    /// Its user.
    pub uid: u32,
    /// Its first process.
    pub pid: u32,
    /// Its class.
    pub class: Option<String>,
    /// As its caller described it.
    pub command: Option<String>,
    /// What it is doing.
    pub state: JobState,
    /// How long it waited.
    pub waited_seconds: f64,
    /// Since it started.
    pub ran_seconds: Option<f64>,
    /// CPU time that it has used.
    pub cpu_seconds: Option<f64>,
    /// Memory that it declared.
    pub memory_bytes: Option<u64>,
    /// Memory that it uses.
    pub used_memory_bytes: Option<u64>,
    /// Units of counted resources that it has, or waits for.
    pub units: Vec<Units>,
    /// Whether its processes are frozen while a guarantee of another tenant is due.
    #[serde(default)]
    pub frozen: bool,
    /// Whether its first process runs outside of its cgroup, in which nothing is left. Its width stays reserved.
    #[serde(default)]
    pub outside: bool,
    /// Absent once it has started.
    pub waiting: Option<Waiting>,
    /// Absent while it waits.
    pub started: Option<Started>,
}

/// What a job is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// It is in the queue.
    #[default]
    Waiting,
    /// Its first process runs.
    Running,
    /// Its first process has ended, and others that it started run.
    Lingering,
}

/// The state of a job that waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// Its place among all that wait, from 1.
    pub position: u64,
    /// Jobs that wait, itself included.
    pub total: u64,
    /// The one thing that limits it now.
    pub reason: WaitReason,
    /// How long it will still wait.
    pub estimate_seconds: Option<f64>,
}

/// Why a job waits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitReason {
    /// What limits it.
    pub kind: WaitKind,
    /// The same as a sentence.
    pub text: String,
    /// What it wants of that.
    pub wanted: Option<f64>,
    /// What is free of it.
    pub free: Option<f64>,
    /// What there is of it.
    pub total: Option<f64>,
    /// The counted resource.
    pub name: Option<String>,
    /// The job that goes first.
    pub job: Option<u64>,
}

/// What keeps a job from starting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// Others go first.
    #[default]
    Turn,
    /// As many jobs run as may run at once.
    Running,
    /// Too few slots are free.
    Slots,
    /// Too little of the memory of all tenants is free.
    Memory,
    /// Too little of its tenant's memory limit is free.
    TenantMemory,
    /// Too few units of a counted resource are free.
    Counted,
    /// Its tenant runs as many jobs as it may.
    TenantRunning,
    /// Its user runs as many jobs in this tenant as one user may.
    UserRunning,
    /// A job that was overtaken as often as allowed goes first.
    Overtaken,
    /// It is being started.
    Starting,
}

/// The state of a job that has started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// How many CPUs wide it is.
    pub dop: u32,
    /// The CPUs that it may run on.
    pub cpus: Option<String>,
    /// Its cgroup, from the mount.
    pub cgroup: String,
    /// Its job server.
    pub valve: Option<Valve>,
    /// What was asked for and could not be done.
    pub ineffective: Vec<String>,
}

/// The job server of GNU make.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Valve {
    /// Its path.
    pub fifo: String,
    /// Tokens in it at the start.
    pub tokens: u32,
}

/// Units of a counted resource.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Units {
    /// The resource.
    pub name: String,
    /// How many.
    pub count: u32,
}

/// What jobs share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// Jobs that may run at once.
    pub max_running: u32,
    /// Units of parallelism.
    pub slots: u32,
    /// Those that are free.
    pub free_slots: u32,
    /// Memory that jobs may declare together.
    pub memory_bytes: Option<u64>,
    /// What is free of it.
    pub free_memory_bytes: Option<u64>,
    /// Counted resources.
    pub units: Vec<Units>,
    /// What is free of them.
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
    }
}
