//! Commands that call the daemon: their output, and their messages where it does not answer.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

use serde_json::{Value, json};
use tenantd_control::report::reason::{Outsider, Reason};
use tenantd_control::report::status::{
    FaultStatus, FaultsStatus, ReasonStatus, Status, TenantStatus,
};
use tenantd_control::why::explain::{
    AllocationStep, Counter, DemandStep, Explanation, Outcome, PlacementStep, UsageStep, ValueStep,
    WeightStep, WidthStep,
};
use tenantd_core::resource::{CPU, PerResource};

use super::{GOOD, as_nobody, open_scratch};
use crate::util::{self, fits_a_terminal};

/// A server that answers its first call with a prepared message.
pub(super) struct Oracle {
    dir: tempfile::TempDir,
    thread: JoinHandle<Value>,
}

impl Oracle {
    pub(super) fn says(answer: &str) -> Oracle {
        Oracle::closing(0, answer)
    }

    fn closing(nr_closed: usize, answer: &str) -> Oracle {
        let dir = util::scratch();
        let listener = UnixListener::bind(dir.path().join("socket")).unwrap();
        let answer = answer.to_string();
        let thread = std::thread::spawn(move || {
            (0..nr_closed).for_each(|_| drop(listener.accept().unwrap()));
            let (mut stream, _) = listener.accept().unwrap();
            let mut call = Vec::new();
            BufReader::new(&stream).read_until(0, &mut call).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            serde_json::from_slice(&call[..call.len() - 1]).unwrap()
        });
        Oracle { dir, thread }
    }

    /// One that first closes connections without an answer, as a daemon does beyond its limit for one user.
    fn answers_after(nr_closed: usize, parameters: &Value) -> Oracle {
        Oracle::closing(nr_closed, &format!("{}\0", json!({ "parameters": parameters })))
    }

    pub(super) fn answers(parameters: &Value) -> Oracle {
        Oracle::says(&format!("{}\0", json!({ "parameters": parameters })))
    }

    pub(super) fn refuses(error: &str, parameters: &Value) -> Oracle {
        Oracle::says(&format!("{}\0", json!({ "error": error, "parameters": parameters })))
    }

    pub(super) fn ask(&self, arguments: &[&str]) -> util::Ran {
        util::run(&mut asking(&self.dir.path().join("socket"), arguments))
    }

    /// What it was asked.
    fn was_asked(self) -> Value {
        self.thread.join().unwrap()
    }
}

fn asking(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = util::tenantctl();
    command.args(arguments).arg("--socket").arg(socket);
    command
}

pub(super) fn good_policy(dir: &Path) -> PathBuf {
    util::file(dir, "policy.yaml", GOOD)
}

/// Every command that needs a daemon.
fn commands(policy: &Path) -> Vec<Vec<&str>> {
    let policy = policy.to_str().unwrap();
    vec![
        vec!["status"],
        vec!["status", "--json"],
        vec!["watch"],
        vec!["explain", "web"],
        vec!["plan"],
        vec!["diff", policy],
        vec!["reload"],
        vec!["mode", "observe"],
    ]
}

#[test]
fn errors_repeat_no_long_word_of_the_command_line() {
    let number = "9".repeat(300);
    for arguments in
        [&["wait", &number][..], &["run", "--memory", &number, "x"], &["mode", &number]]
    {
        let ran = util::run(util::tenantctl().args(arguments)).exits(2);
        assert!(ran.err.lines().all(|line| line.len() < 220), "{}", ran.err);
        assert!(ran.err.contains("999…999") && ran.err.contains("--help"), "{}", ran.err);
    }
    util::run(util::tenantctl().args(["wait", "9x"])).exits(2).says("'9x'");
}

/// A daemon with too many connections of one user closes the others; their calls come later.
#[test]
fn calls_without_a_change_are_made_again() {
    let cancelled = json!({ "is_running": false, "pids": [] });
    let oracle = Oracle::answers_after(3, &cancelled);
    let said = oracle.ask(&["cancel", "7"]).exits(0).out;
    assert!(said.contains("job 7 has left the queue"), "{said}");
    assert_eq!(oracle.was_asked()["parameters"]["id"], 7);
    // A change may have been made before the connection was closed.
    let oracle = Oracle::answers_after(1, &json!({ "failures": [] }));
    oracle.ask(&["mode", "observe"]).exits(69).says("closed the connection");
}

#[test]
fn without_a_daemon_the_message_has_a_remedy() {
    let dir = util::scratch();
    let policy = good_policy(dir.path());
    for arguments in commands(&policy) {
        let ran = util::run(&mut asking(&dir.path().join("socket"), &arguments)).exits(69);
        ran.says_in_one_line("does not answer on").says("systemctl start tenantd");
    }
    // A socket that a dead daemon left is no other case.
    drop(UnixListener::bind(dir.path().join("dead")).unwrap());
    util::run(&mut asking(&dir.path().join("dead"), &["status"])).exits(69).says("does not answer");
    // A restore needs none: it works from the journal.
    let mut restore = asking(&dir.path().join("socket"), &["restore"]);
    let ran = util::run(restore.arg("--state-dir").arg(dir.path().join("state"))).exits(0);
    assert!(ran.out.starts_with("restored: 0 files"), "{}", ran.out);
}

#[test]
fn a_connection_that_is_not_permitted_exits_with_77() {
    let dir = open_scratch();
    let socket = dir.path().join("socket");
    let _live = UnixListener::bind(&socket).unwrap();
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600)).unwrap();
    let policy = good_policy(dir.path());
    for arguments in commands(&policy) {
        let Some(mut command) = as_nobody(&asking(&socket, &arguments)) else { return };
        util::run(&mut command).exits(77).says_in_one_line("not permitted to connect to");
    }
}

#[test]
fn each_refusal_of_the_daemon_has_its_exit_code() {
    let none = json!({});
    let denied = Oracle::refuses("org.varlink.service.PermissionDenied", &none);
    denied.ask(&["reload"]).exits(77).says_in_one_line("Reload requires root");
    let old = json!({ "method": "io.tenantd.Manager.Explain" });
    let old = Oracle::refuses("org.varlink.service.MethodNotFound", &old);
    old.ask(&["explain", "web"]).exits(69).says_in_one_line("older than this program");
    let busy = Oracle::refuses("io.tenantd.Manager.Busy", &none);
    busy.ask(&["mode", "enforce"]).exits(75).says_in_one_line("try again");
    let failed = json!({ "reason": "the disk is full" });
    let failed = Oracle::refuses("io.tenantd.Manager.Failed", &failed);
    failed.ask(&["mode", "enforce"]).exits(1).says_in_one_line("the disk is full");
    let bad = json!({ "report": "error[P025]: no\n", "findings": [] });
    let bad = Oracle::refuses("io.tenantd.Manager.BadPolicy", &bad);
    bad.ask(&["reload"])
        .exits(78)
        .says("error[P025]: no")
        .says("the running policy stays in force");
    let missing = json!({ "tenant": "wbe", "tenants": ["web", "db"] });
    let missing = Oracle::refuses("io.tenantd.Manager.NoSuchTenant", &missing);
    missing
        .ask(&["explain", "wbe"])
        .exits(1)
        .says("no tenant `wbe`")
        .says("similar names: web, db");
    let unknown = Oracle::refuses("io.tenantd.Manager.New", &none);
    unknown.ask(&["status"]).exits(69).says_in_one_line("is not understood");
    Oracle::says("garbage\0").ask(&["status"]).exits(69).says_in_one_line("is not understood");
    Oracle::says("").ask(&["status"]).exits(69).says_in_one_line("closed the connection");
    Oracle::answers(&json!({ "status": 7 })).ask(&["status"]).exits(69).says("is not understood");
}

#[test]
fn the_call_has_the_parameters_of_the_command_line() {
    let mode = Oracle::answers(&json!({ "before": "observe", "failures": [] }));
    let ran = mode.ask(&["mode", "enforce"]).exits(0);
    assert_eq!(ran.out, "mode enforce, was observe\n");
    let asked = mode.was_asked();
    assert_eq!(asked["method"], "io.tenantd.Manager.SetMode");
    assert_eq!(asked["parameters"], json!({ "mode": "enforce" }));
    let restore =
        json!({ "files": 3, "processes": 2, "cgroups": 1, "failures": ["/x/memory.max: busy"] });
    let restore = Oracle::answers(&restore);
    let ran = restore.ask(&["restore"]).exits(1).says("not restored: /x/memory.max: busy");
    assert!(ran.out.contains("3 files, 2 processes; removed: 1 cgroups"), "{}", ran.out);
    util::run(util::tenantctl().args(["mode", "maybe"])).exits(2);
}

/// A status as busy as can be.
fn status() -> Status {
    let tenant = |index: usize| TenantStatus {
        name: format!("customers/a-rather-long-name-{index}/nightly").into(),
        usage: PerResource([Some(127.5), Some(1.5e12)]),
        demand: PerResource([128.0, 0.0]),
        allocation: PerResource([100.25, 2e12]),
        fair_share_cores: 112.75,
        fair_share_memory_bytes: 3e12,
        would_get: PerResource([113.25, 0.0]),
        dominant_resource: Some("memory".into()),
        dominant_share: 1.0,
        dop: Some(128),
        cpu_pressure_ratio: Some(1.0),
        ..TenantStatus::default()
    };
    Status {
        tick: 1_000_000,
        tenants: (0..3).map(tenant).collect(),
        findings: vec!["a finding with many words ".repeat(8)],
        max_share_error: Some(0.5),
        jain_index: Some(0.5),
        nr_drift: 7,
        nr_ineffective: 3,
        ..Status::default()
    }
}

#[test]
fn a_status_fits_a_terminal_and_is_json_on_request() {
    let reply = json!({ "status": status() });
    let ran = Oracle::answers(&reply).ask(&["status"]).exits(0);
    let row = "customers/a-rather-long-name-2/nightly 127.50 128.00 100.25  112.75 1.4TiB";
    for words in [row, "2.7TiB", "note: a finding", "7 values overwritten"] {
        assert!(ran.out.contains(words), "{words} is not in:\n{}", ran.out);
    }
    assert!(!ran.out.contains('\x1b') && !ran.out.contains("DOP"));
    let ran = Oracle::answers(&reply).ask(&["status", "--verbose"]).exits(0);
    for words in ["memory 100%", "113.25", "128", "DOP"] {
        assert!(ran.out.contains(words), "{words} is not in:\n{}", ran.out);
    }
    let ran = Oracle::answers(&reply).ask(&["status", "--json"]).exits(0);
    let told: Status = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told, status());
    // A daemon that is a little older says less, and a newer one more.
    let other = json!({ "status": { "tick": 5, "tenants": [{ "name": "web", "colour": "red" }] } });
    let ran = Oracle::answers(&other).ask(&["status"]).exits(0);
    assert!(ran.out.contains("web") && ran.out.contains("tick 5"), "{}", ran.out);
}

#[test]
fn a_status_of_some_tenants_is_chosen_and_sorted() {
    let mut all = status();
    all.tenants[1].share_error = Some(0.2);
    all.tenants[2].usage[CPU] = Some(200.0);
    let reply = json!({ "status": all });
    let names = |arguments: &[&str]| -> Vec<String> {
        let ran = Oracle::answers(&reply).ask(&[&["status"], arguments].concat()).exits(0);
        let rows = ran.out.lines().filter_map(|line| line.strip_prefix("customers/"));
        rows.map(|row| row["a-rather-long-name-".len()..].chars().take(1).collect()).collect()
    };
    assert_eq!(names(&[]), ["0", "1", "2"]);
    assert_eq!(names(&["--sort", "cpu"]), ["2", "0", "1"]);
    assert_eq!(names(&["--sort", "share-if-busy"]), ["0", "1", "2"]);
    assert_eq!(names(&["--lacking"]), ["1"]);
    let one = "customers/a-rather-long-name-2/nightly";
    assert_eq!(names(&[one]), ["2"]);
    let ran = Oracle::answers(&reply).ask(&["status", one, "--json"]).exits(0);
    let told: Status = serde_json::from_str(&ran.out).unwrap();
    assert_eq!(told.tenants, [all.tenants[2].clone()]);
    let ran = Oracle::answers(&reply).ask(&["status", "wen"]).exits(1);
    ran.says_in_one_line("no tenant or group `wen`: `tenantctl status` lists them");
    let fair = json!({ "status": status() });
    let ran = Oracle::answers(&fair).ask(&["status", "--lacking"]).exits(0);
    assert!(ran.out.ends_with("no tenant lacks a part of its share\n"), "{}", ran.out);
    util::run(util::tenantctl().args(["status", "--sort", "colour"])).exits(2);
}

/// Two reasons, the first with names of cgroups that are longer than a line.
fn reasons() -> Vec<ReasonStatus> {
    let outsider = Outsider {
        cgroup: format!("/kubepods.slice/{}/cri.scope", "very-long-name".repeat(8)),
        command: Some("stress-ng-cpu".into()),
        cores: 12.25,
        ..Outsider::default()
    };
    let outside = Reason::Outside {
        resource: CPU,
        amount: 99.5,
        largest: [outsider.clone(), outsider.clone(), outsider].into(),
    };
    let limit = Reason::Policy { resource: CPU, amount: 2.0, group: Some("ci".into()) };
    let status = |reason: &Reason| ReasonStatus {
        kind: reason.kind(),
        resource: "cpu".into(),
        text: reason.to_string(),
        outsiders: reason.outsiders().to_vec(),
    };
    [outside, limit].iter().map(status).collect()
}

#[test]
fn tenants_that_lack_something_are_listed_with_the_reason() {
    let mut lacking = status();
    for tenant in &mut lacking.tenants[..2] {
        tenant.missing = PerResource([Some(27.5), Some(0.0)]);
        tenant.reasons = reasons();
    }
    lacking.tenants[1].missing = PerResource::all(Some(0.0));
    let reply = json!({ "status": lacking });
    let ran = Oracle::answers(&reply).ask(&["status", "--lacking"]).exits(0);
    assert!(ran.out.contains("(limit.cpu)") && !ran.out.contains("more reasons"), "{}", ran.out);
    let ran = Oracle::answers(&reply).ask(&["status"]).exits(0);
    let text = ran.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "! customers/a-rather-long-name-0/nightly lacks 27.50 CPUs: work of no tenant uses 99.50 CPUs",
        "-name/cri.scope (stress-ng-cpu) 12.25, …",
        "; more reasons: tenantctl explain customers/a-rather-long-name-0/nightly",
        "! customers/a-rather-long-name-1/nightly is held back: work of no tenant",
    ] {
        assert!(text.contains(words), "{words} is not in:\n{}", ran.out);
    }
    let of_one = |tenant: &TenantStatus| Explanation {
        tenant: tenant.name.to_string(),
        missing: tenant.missing,
        reasons: tenant.reasons.clone(),
        faults: FaultsStatus {
            cpu_starved: Some(FaultStatus { count: 3, seconds: 12.0 }),
            cpu_throttled: Some(FaultStatus { count: 1, seconds: 2.0 }),
            memory_short: Some(FaultStatus::default()),
            ..FaultsStatus::default()
        },
        nr_oom_kills: Some(2),
        ..Explanation::default()
    };
    let reply = json!({ "explanation": of_one(&lacking.tenants[0]) });
    let ran = Oracle::answers(&reply).ask(&["explain", "x"]).exits(0);
    fits_a_terminal(&ran.out);
    for words in [
        "lacks       27.50 CPUs\nbecause     work of no tenant uses 99.50 CPUs",
        "            the policy limits its group ci to 2 CPUs (limit.cpu), which is used",
        "faults      starved 3 times, 12 s; throttled once, 2 s; 2 processes killed",
    ] {
        assert!(ran.out.contains(words), "{words} is not in:\n{}", ran.out);
    }
}

#[test]
fn a_watch_ends_after_its_count_of_ticks() {
    let frame = |tick: u64| {
        let status = Status { tick, ..status() };
        let parameters = json!({ "status": status, "lost": tick - 1 });
        format!("{}\0", json!({ "parameters": parameters, "continues": true }))
    };
    let both = frame(1) + &frame(2);
    let oracle = Oracle::says(&both);
    let ran = oracle.ask(&["watch", "--json", "--count", "2"]).exits(0);
    let frames: Vec<Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&frames[1]["tick"], &frames[1]["lost"]), (&json!(2), &json!(1)));
    assert_eq!(oracle.was_asked()["more"], true);
    let ran = Oracle::says(&both).ask(&["watch", "--count", "2"]).exits(0);
    assert_eq!(ran.out.matches("mode observe").count(), 2);
    // A daemon that ends is no reason to go on quietly.
    Oracle::says(&frame(1)).ask(&["watch"]).exits(69).says("closed the connection");
}

/// A tenant with everything: groups above it, a guarantee, both limits, pinned CPUs, and every counter of the
/// kernel.
fn explanation() -> Explanation {
    const GIB: f64 = (1_u64 << 30) as f64;
    let value = |file: &str, held: &str, wanted: &str, reason: &str, detail: &str| ValueStep {
        path: format!("/sys/fs/cgroup/system.slice/tenantd.service/ci/nightly/{file}"),
        held: Some(held.into()),
        held_seconds: None,
        wanted: wanted.into(),
        outcome: if detail.starts_with("written") { Outcome::Written } else { Outcome::Settled },
        reason: reason.into(),
        detail: detail.into(),
    };
    let counter = |name: &'static str, before: u64, now: u64| Counter {
        name: name.into(),
        before: Some(before),
        now: Some(now),
    };
    let weighed = "wants more than its 112.50 CPUs: weighed by them";
    let close = "close enough: within the dead band of 5.0 % or 16MiB";
    Explanation {
        tenant: "customers/acme/ci/nightly".into(),
        tick: 1_000_812,
        elapsed_seconds: Some(1.0),
        sample: vec![
            counter("populated", 1, 1),
            counter("usage_usec", 912_345_678_901, 912_473_199_123),
            counter("nr_throttled", 812, 822),
            counter("cpu_some_usec", 812_345_678, 813_345_678),
            counter("memory_current_bytes", 812_345_678_901, 813_868_901_000),
            counter("inactive_file_bytes", 12_345_678_901, 13_868_901_000),
            counter("refaults", 12_345, 13_868),
            counter("memory_some_usec", 812_345_678, 813_345_678),
            counter("nr_oom_kills", 1, 2),
        ],
        usage: Some(UsageStep {
            cpu_cores: 127.52,
            working_set_bytes: Some(755.0 * GIB),
            reason: "pressed: some task waited 100.0 % of the time".into(),
            ..UsageStep::default()
        }),
        demand: Some(DemandStep {
            amount: PerResource([256.0, 906.0 * GIB]),
            reason: PerResource([
                "what its threads would use if none had to wait".into(),
                "1.2 times its working set: it refaults under memory pressure".into(),
            ]),
            ..DemandStep::default()
        }),
        allocation: AllocationStep {
            amount: PerResource([112.5, 755.0 * GIB]),
            capacity: PerResource([255.5, 1007.0 * GIB]),
            fair_share_cores: 112.5,
            guarantee: PerResource([Some(12.5), Some(100.0 * GIB)]),
            limit: PerResource([Some(128.5), Some(800.0 * GIB)]),
            dominant_resource: Some("memory".into()),
            dominant_share: 1.0,
            level: 0.0333,
            reason: "held back: cpu and memory are used up at a level of 0.0333".into(),
            ..AllocationStep::default()
        },
        weight: WeightStep {
            policy_weight: 300.0,
            policy_share: 0.4286,
            cpu_weight: 10_000.0,
            sibling_share: 1.0,
            file_value: Some("9800".into()),
            reason: weighed.into(),
        },
        width: Some(WidthStep {
            dop: Some(112),
            slots: 255,
            claim: Some(112),
            floor: Some(1),
            ceiling: Some(128),
            utilisation_ratio: Some(1.125),
            reason: "112 would be right, but it changed less than 10 s ago".into(),
            ..WidthStep::default()
        }),
        placement: Some(PlacementStep {
            cpus: Some("0-55,128-183".into()),
            reason: "cpus: dop, as many as its DOP, close together".into(),
            ..PlacementStep::default()
        }),
        values: vec![
            value(
                "cpu.weight",
                "9800",
                "10000",
                weighed,
                "close enough: within the dead band of 5.0 %",
            ),
            value(
                "cpu.max",
                "12850000 100000",
                "12850000 100000",
                "the policy's limit",
                "the file holds it",
            ),
            value(
                "memory.max",
                "858993459200",
                "858993459200",
                "the policy's limit",
                "the file holds it",
            ),
            value("memory.low", "810001354752", "810675077120", "allocated 755GiB", close),
            value(
                "cpuset.cpus",
                "0-127",
                "0-55,128-183",
                "its width is 112",
                "written in this tick",
            ),
        ],
        ..Explanation::default()
    }
}

#[test]
fn an_explanation_fits_a_screen() {
    let reply = json!({ "explanation": explanation() });
    let ran = Oracle::answers(&reply).ask(&["explain", "ci/nightly"]).exits(0);
    fits_a_terminal(&ran.out);
    // The prompt below it takes a line of its own.
    assert!(ran.out.lines().count() <= 23, "{} lines:\n{}", ran.out.lines().count(), ran.out);
    for words in [
        "usage_usec +127520222",
        "inactive_file 13GiB",
        "held back: cpu",
        "limit 128.5 CPUs and 800GiB",
        "CPUs 0-55,128-183",
        "policy 300 (42.9%) -> computed 10000.0 (100.0%) -> file 9800",
        "0-127 -> 0-55,128-183: written in this tick; its width",
    ] {
        assert!(ran.out.contains(words), "{words} is not in:\n{}", ran.out);
    }
    let ran = Oracle::answers(&reply).ask(&["explain", "ci/nightly", "--json"]).exits(0);
    assert_eq!(serde_json::from_str::<Explanation>(&ran.out).unwrap(), explanation());
}

#[test]
fn a_diff_prints_each_difference() {
    let dir = util::scratch();
    let policy = good_policy(dir.path());
    let policy = policy.to_str().unwrap();
    let setting = |key: &str, value: &str| json!({ "key": key, "value": value });
    let running = json!({
        "path": "/etc/tenantd",
        "policy": {
            "settings": [setting("mode", "enforce")],
            "tenants": [
                { "name": "web", "settings": [setting("weight", "200")] },
                { "name": "old", "settings": [] },
            ],
        },
    });
    let ran = Oracle::answers(&running).ask(&["diff", policy]).exits(0);
    assert_eq!(ran.out, "- old: removed\n~ web: weight: 200 -> 300\n+ db: added\n");
    let ran = Oracle::answers(&running).ask(&["diff", policy, "--color", "always"]).exits(0);
    assert!(ran.out.contains("\x1b[31m- old: removed\x1b[0m"), "{}", ran.out);
    let ran = Oracle::answers(&running).ask(&["diff", policy, "--json"]).exits(0);
    let told: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&told["equal"], &told["changes"][0]["kind"]), (&json!(false), &json!("removed")));
    let bad = util::file(dir.path(), "bad.yaml", "version: 1\n");
    util::run(&mut asking(dir.path(), &["diff", bad.to_str().unwrap()])).exits(78);
}

/// The recording is where the daemon says, and otherwise in the usual place, with a word.
#[test]
fn history_asks_the_daemon_for_its_directory() {
    let nowhere = util::scratch().path().join("elsewhere").display().to_string();
    let answer =
        json!({ "path": null, "policy": { "settings": [], "tenants": [] }, "history": nowhere });
    let oracle = Oracle::answers(&answer);
    let ran = oracle.ask(&["history"]).exits(69);
    assert!(ran.err.contains(&format!("{nowhere}: no history is there")), "{}", ran.err);
    assert_eq!(oracle.was_asked()["method"], "io.tenantd.Manager.GetPolicy");
    // A daemon that records nothing, an older one, and none.
    let usual = "reading /var/lib/tenantd/history";
    for history in [json!({ "history": null }), json!({})] {
        let mut answer = json!({ "policy": { "settings": [], "tenants": [] } });
        answer.as_object_mut().unwrap().extend(history.as_object().unwrap().clone());
        let ran = Oracle::answers(&answer).ask(&["history"]);
        assert!(
            ran.err.contains(&format!("names no recording (it records with --history); {usual}")),
            "{}",
            ran.err
        );
    }
    let scratch = util::scratch();
    let ran = util::run(&mut asking(&scratch.path().join("socket"), &["history"]));
    assert!(ran.err.contains("tenantd does not answer") && ran.err.contains(usual), "{}", ran.err);
    // One that is named is not asked for.
    let socket = scratch.path().join("socket");
    let ran = util::run(&mut asking(&socket, &["history", "--dir", &nowhere])).exits(69);
    ran.says_in_one_line("no history is there");
}
