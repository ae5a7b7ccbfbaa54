//! A test double of the daemon: a Varlink socket that answers with a given status.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::json;
use tenantd_control::report::explanation::{Explanation, ValueStep};
use tenantd_control::report::reason::{Outsider, ReasonKind};
use tenantd_control::report::status::{
    ActionStatus, AgentStatus, FaultStatus, FaultsStatus, GroupStatus, HostStatus, ReasonStatus,
    Status, TenantStatus, Thresholds,
};
use tenantd_control::words::jobs::{JobsStatus, TenantJobs, WaitCount};
use tenantd_core::resource::PerResource;
use tenantd_policy::model::Mode;
use tenantd_varlink::interface::PolicyReply;
use tenantd_varlink::jobs::{Job, JobState, ListReply, Pool, Started, WaitReason, Waiting};

/// A status with tenants of every kind: below its share, pinned, satisfied, not measured.
pub(crate) fn status() -> Status {
    let tenant = |name: &str, weight, used: f64, wants, entitled| TenantStatus {
        name: name.into(),
        weight,
        usage: PerResource([Some(used), Some((used + 0.2) * 1e9)]),
        cpu_pressure_ratio: Some(if wants > entitled { 0.42 } else { 0.0 }),
        memory_pressure_ratio: Some(0.0),
        demand: PerResource([wants, (used + 0.3) * 1e9]),
        allocation: PerResource([entitled, (used + 0.5) * 1e9]),
        fair_share_cores: entitled,
        dominant_resource: Some("cpu".into()),
        dominant_share: entitled / 7.5,
        level: 0.3,
        satisfied: wants <= entitled,
        share_error: Some(0.0),
        nr_oom_kills: Some(0),
        would_get: PerResource([entitled.max(wants), 0.0]),
        cpu_usage_seconds: Some(used * 100.0),
        cpu_pressure_seconds: Some(12.5),
        memory_pressure_seconds: Some(0.0),
        dop: Some(entitled.ceil() as u32),
        cpu_weight: Some(weight),
        ..TenantStatus::default()
    };
    let status = Status {
        tick: 42,
        mode: Mode::Enforce,
        policy_mode: Some(Mode::Enforce),
        interval_seconds: 1.0,
        time: Some("2030-01-02T03:04:05.678Z".into()),
        version: env!("CARGO_PKG_VERSION").into(),
        victim: None,
        host: HostStatus {
            name: "stage".into(),
            hierarchy: "unified, owner direct".into(),
            cpus: 8,
            memory_bytes: 16 << 30,
            huge_pages_bytes: 0,
            capacity: PerResource([7.5, 15e9]),
            outside_cores: Some(0.31),
            disks: Vec::new(),
        },
        tenants: vec![
            TenantStatus { cpus: Some("0-3".into()), ..tenant("web", 300.0, 3.1, 6.0, 3.4) },
            TenantStatus {
                share_error: Some(0.11),
                missing: PerResource([Some(0.9), Some(0.0)]),
                reasons: vec![ReasonStatus {
                    kind: ReasonKind::OutsideWork,
                    resource: "cpu".into(),
                    text:
                        "work of no tenant uses 3.10 CPUs beyond the reserve; most CPUs beside it: \
                           /user.slice (stress-ng) 3.00"
                            .into(),
                    outsiders: vec![Outsider {
                        cgroup: "/user.slice".into(),
                        command: Some("stress-ng".into()),
                        cores: 3.0,
                        ..Outsider::default()
                    }],
                }],
                faults: FaultsStatus {
                    cpu_starved: Some(FaultStatus { count: 3, seconds: 12.0 }),
                    cpu_throttled: Some(FaultStatus { count: 0, seconds: 0.0 }),
                    ..FaultsStatus::default()
                },
                starved_seconds: 12.0,
                nr_oom_kills: Some(2),
                cpus: Some("4-6".into()),
                ..tenant("analytics", 200.0, 1.4, 8.0, 2.3)
            },
            TenantStatus {
                jobs: Some(Box::new(TenantJobs {
                    nr_waiting: 3,
                    nr_running: 2,
                    dop: 5,
                    longest_wait_seconds: Some(61.0),
                    reason: Some("it needs 4 slots, and 3 of 8 are free".into()),
                    nr_started: 17,
                    waited_seconds: 34.5,
                    ..TenantJobs::default()
                })),
                limit: PerResource([Some(4.0), None]),
                ..tenant("ci/nightly", 25.0, 0.9, 0.9, 1.2)
            },
            TenantStatus {
                usage: PerResource([None, None]),
                cpu_pressure_ratio: None,
                share_error: None,
                nr_oom_kills: None,
                cpu_usage_seconds: None,
                cpu_pressure_seconds: None,
                memory_pressure_seconds: None,
                dop: None,
                ..tenant("ci/pull-requests", 75.0, 0.0, 0.0, 0.0)
            },
        ],
        groups: vec![GroupStatus {
            name: "ci".into(),
            weight: 100.0,
            nr_tenants: 2,
            usage: PerResource([Some(0.9), Some(1.1e9)]),
            demand: PerResource([0.9, 0.0]),
            allocation: PerResource([1.2, 1.9e9]),
            would_get: PerResource([2.4, 0.0]),
            fair_share_cores: 1.2,
            satisfied: true,
            limit: PerResource([Some(4.0), None]),
            limit_pids: Some(4096),
            usage_pids: Some(17),
            nr_refused_forks: Some(3),
            cpu_weight: Some(100.0),
            ..GroupStatus::default()
        }],
        thresholds: Thresholds::for_interval(1.0),
        actions: vec![ActionStatus {
            tenant: "web".into(),
            path: "/sys/fs/cgroup/system.slice/tenantd.service/web/cpu.weight".into(),
            from: Some("100".into()),
            to: "171".into(),
            reason: "its share of what the busy tenants get".into(),
        }],
        findings: vec!["ci/pull-requests: cpu.stat cannot be read: its last decision stays".into()],
        finding_records: Vec::new(),
        nr_drift: 3,
        nr_yields: 2,
        nr_contested: 0,
        nr_ineffective: 1,
        attached: Vec::new(),
        moves: Vec::new(),
        nr_moves: 0,
        jobs: Some(JobsStatus {
            nr_waiting: 3,
            nr_running: 2,
            slots: 8,
            free_slots: 3,
            waiting_for: vec![
                WaitCount { kind: "slots".into(), nr_jobs: 1 },
                WaitCount { kind: "turn".into(), nr_jobs: 2 },
            ],
            ..JobsStatus::default()
        }),
        nr_reloads: 2,
        jain_index: Some(0.973),
        max_share_error: Some(0.11),
        convergence_seconds: Some(4.0),
        agent: AgentStatus {
            cpu_seconds: 0.4,
            resident_bytes: Some(5 << 20),
            tick_seconds: 0.0011,
            longest_tick_seconds: 0.0093,
            tick_late_seconds: 0.0002,
            nr_skipped_ticks: 6,
        },
    };
    // As it arrives: bytes are whole numbers on the socket.
    serde_json::from_value(serde_json::to_value(status).unwrap()).unwrap()
}

/// A running and a waiting job, with commands that have arguments.
pub(crate) fn job_list() -> ListReply {
    let job = |id, command: &str| Job {
        id,
        tenant: "ci/nightly".into(),
        command: Some(command.into()),
        waited_seconds: 61.0,
        ..Job::default()
    };
    let reason = WaitReason {
        text: "it needs 4 slots, and 3 of 8 are free".into(),
        ..WaitReason::default()
    };
    let waiting = Waiting { position: 1, total: 1, reason, ..Waiting::default() };
    let running = Job {
        state: JobState::Running,
        ran_seconds: Some(90.0),
        cpu_seconds: Some(150.0),
        used_memory_bytes: Some(3 << 30),
        started: Some(Started { dop: 2, ..Started::default() }),
        ..job(7, "/usr/bin/make --token=secret")
    };
    let pool = Pool { slots: 8, free_slots: 3, ..Pool::default() };
    ListReply {
        jobs: vec![running, Job { waiting: Some(waiting), ..job(8, "pytest") }],
        pool,
        own_only: false,
    }
}

/// Answers of a daemon.
#[derive(Clone, Debug, Default)]
struct Answers {
    status: Status,
    jobs: ListReply,
    /// The directory of its recording.
    history: Option<String>,
}

/// A daemon on a socket of its own, until it is dropped.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) socket: PathBuf,
    answers: Arc<Mutex<Answers>>,
    /// What it says the cgroup of every tenant is.
    pub(crate) home: PathBuf,
    _dir: tempfile::TempDir,
}

impl Daemon {
    /// One that answers with `status`.
    pub(crate) fn with(status: Status) -> Daemon {
        let dir = crate::util::scratch();
        let socket = dir.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        let answers = Arc::new(Mutex::new(Answers { status, ..Answers::default() }));
        let shared = Arc::clone(&answers);
        let home = dir.path().to_path_buf();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), shared) = (stream, Arc::clone(&shared)) else { return };
                // A conversation that breaks off is over.
                let home = home.clone();
                std::thread::spawn(move || converse(stream, &shared, &home).ok());
            }
        });
        Daemon { socket, answers, home: dir.path().to_path_buf(), _dir: dir }
    }

    /// From now on it says `status`.
    pub(crate) fn say(&self, status: Status) {
        self.answers.lock().unwrap().status = status;
    }

    /// From now on it has these jobs.
    pub(crate) fn list(&self, jobs: ListReply) {
        self.answers.lock().unwrap().jobs = jobs;
    }

    /// From now on it records to `dir`.
    pub(crate) fn record(&self, dir: &Path) {
        self.answers.lock().unwrap().history = Some(dir.display().to_string());
    }

    /// Removes the socket.
    pub(crate) fn leave(&self) {
        std::fs::remove_file(&self.socket).unwrap();
    }
}

/// What it explains of a tenant whose cgroup is `home`.
pub(crate) fn explanation(tenant: &str, home: &Path) -> Explanation {
    let file = |name: &str| ValueStep {
        path: home.join(name).display().to_string(),
        ..ValueStep::default()
    };
    let values = ["cpu.weight", "memory.low"].map(file).into();
    let findings = vec![format!("{tenant}: <b>a finding</b> & \"quotes\"")];
    Explanation { tenant: tenant.to_string(), values, findings, ..Explanation::default() }
}

fn converse(mut stream: UnixStream, answers: &Mutex<Answers>, home: &Path) -> std::io::Result<()> {
    loop {
        let mut call = Vec::new();
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte)?;
            if byte[0] == 0 {
                break;
            }
            call.push(byte[0]);
        }
        let call: serde_json::Value = serde_json::from_slice(&call).unwrap();
        let method = call["method"].as_str().unwrap().rsplit('.').next().unwrap();
        loop {
            let Answers { status, jobs, history } = answers.lock().unwrap().clone();
            let answer = match method {
                "Watch" => {
                    json!({ "continues": true, "parameters": { "status": status, "lost": 0 } })
                }
                "Explain" => {
                    let name = call["parameters"]["tenant"].as_str().unwrap();
                    json!({ "parameters": { "explanation": explanation(name, home) } })
                }
                "List" => json!({ "parameters": jobs }),
                "GetPolicy" => {
                    json!({ "parameters": PolicyReply { history, ..PolicyReply::default() } })
                }
                _ => json!({ "parameters": { "status": status } }),
            };
            stream.write_all(format!("{answer}\0").as_bytes())?;
            if method != "Watch" {
                break;
            }
            // The tick of this daemon.
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
    }
}

/// A socket path without a listener.
pub(crate) fn nobody(dir: &Path) -> PathBuf {
    dir.join("nobody")
}
