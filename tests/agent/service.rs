//! A whole service on the simulated kernel: what is asked on its socket, and what its policy file says.

use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use tenantd::agent::{Agent, Options};
use tenantd::backend::claims;
use tenantd::service::event_loop::EventLoop;
use tenantd::service::{PolicySource, Service};
use tenantd_control::report::status::DeathCause;
use tenantd_core::units::Bytes;
use tenantd_host::notify::Notifier;
use tenantd_policy::HostFacts;
use tenantd_sim::{Load, SimHost, SimKernel};
use tenantd_varlink::listen::Listener;
use tenantd_varlink::server::Limits;

use super::world::{Host, assert_same, snapshot};
use crate::util;

const TWO: &str = "version: 1\nmode: enforce\ntenants:\n  web: { weight: 300 }\n  db: {}\n";

struct Ground {
    dir: tempfile::TempDir,
    host: Host,
    service: Service<Host>,
    now: Duration,
}

impl Ground {
    fn new() -> Ground {
        Ground::with("mode: enforce")
    }

    /// One whose policy has another mode.
    fn with(mode: &str) -> Ground {
        Ground::notifying(mode, Notifier::default())
    }

    fn notifying(mode: &str, notifier: Notifier) -> Ground {
        let dir = util::scratch();
        let path = util::file(dir.path(), "policy.yaml", TWO.replace("mode: enforce", mode));
        let facts = HostFacts::of_size(8, Bytes::gib(16));
        let source = PolicySource { path, facts: Some(facts) };
        let policy = source.load().unwrap().policy;
        let rules = claims::rules(&policy);
        let host = Host::new(SimKernel::new(SimHost::default()));
        let state_dir = Some(dir.path().join("state"));
        let options = Options { state_dir, ..Options::default() };
        let agent = Agent::start(host.clone(), policy, rules, &options).unwrap();
        let mut service = Service::new(agent, source, notifier);
        service.tick(Duration::ZERO, Duration::ZERO);
        let listener = Listener::make(&dir.path().join("socket")).unwrap();
        service.serve(listener, Limits::default()).unwrap();
        Ground { dir, host, service, now: Duration::ZERO }
    }

    fn tick(&mut self) {
        let second = Duration::from_secs(1);
        self.host.with(|kernel| kernel.advance(second));
        self.now += second;
        self.service.tick(self.now, Duration::ZERO);
    }

    /// What the status says is wrong.
    fn findings(&mut self) -> String {
        self.ask("GetStatus", json!({}))["parameters"]["status"]["findings"].to_string()
    }

    fn policy(&self) -> PathBuf {
        self.dir.path().join("policy.yaml")
    }

    /// Asks on the socket, while the service serves.
    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        let path = self.dir.path().join("socket");
        let call =
            json!({ "method": format!("io.tenantd.Manager.{method}"), "parameters": parameters });
        let asking = thread::spawn(move || {
            let mut stream = UnixStream::connect(path).unwrap();
            stream.write_all(format!("{call}\0").as_bytes()).unwrap();
            let mut answer = Vec::new();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 && byte[0] != 0 {
                answer.push(byte[0]);
            }
            serde_json::from_slice(&answer).unwrap()
        });
        util::wait_until("an answer", || {
            self.service.serve_command();
            asking.is_finished()
        });
        asking.join().unwrap()
    }
}

#[test]
fn ticks_that_come_late_or_too_soon_are_counted_as_skipped() {
    let mut ground = Ground::new();
    let skipped = |ground: &mut Ground| {
        let reply = ground.ask("GetStatus", json!({}));
        let status = &reply["parameters"]["status"];
        (status["tick"].as_u64().unwrap(), status["agent"]["nr_skipped_ticks"].as_u64().unwrap())
    };
    ground.tick();
    assert_eq!(skipped(&mut ground), (2, 0));
    // Three did not come, and the next comes too soon after it: it decides nothing.
    let late = Duration::from_millis(3700);
    ground.now += Duration::from_secs(1) + late;
    ground.service.tick(ground.now, late);
    assert_eq!(skipped(&mut ground), (3, 3));
    ground.now += Duration::from_millis(300);
    ground.service.tick(ground.now, Duration::ZERO);
    assert_eq!(skipped(&mut ground), (3, 4));
    ground.tick();
    assert_eq!(skipped(&mut ground), (4, 4));
}

#[test]
fn a_good_reload_answers_with_the_differences() {
    let mut ground = Ground::new();
    ground.tick();
    let changed = TWO.replace("300", "200").replace("  db: {}\n", "  ci: { tenants: { x: {} } }\n");
    std::fs::write(ground.policy(), changed).unwrap();
    let reply = ground.ask("Reload", json!({}));
    let changes = reply["parameters"]["changes"].as_array().unwrap();
    let said: Vec<(&str, &str)> = changes
        .iter()
        .map(|change| (change["kind"].as_str().unwrap(), change["tenant"].as_str().unwrap()))
        .collect();
    assert_eq!(said, [("removed", "db"), ("changed", "web"), ("added", "ci"), ("added", "ci/x")]);
    ground.tick();
    let policy = ground.ask("GetPolicy", json!({}));
    assert_eq!(policy["parameters"]["policy"]["tenants"].as_array().unwrap().len(), 3);
    let status = ground.ask("GetStatus", json!({}));
    let status = &status["parameters"]["status"];
    assert_eq!((&status["nr_reloads"], &status["tenants"][1]["name"]), (&json!(1), &json!("ci/x")));
}

#[test]
fn a_bad_reload_names_the_place_and_changes_nothing() {
    let mut ground = Ground::new();
    ground.tick();
    let before = snapshot(&ground.host);
    for (text, code) in [
        (TWO.replace("weight: 300", "weight: 0"), "P025"),
        (TWO.replace("web", "we b"), "P027"),
        ("version: 1\ntenants: [".to_string(), "P002"),
        (String::new(), "P005"),
    ] {
        std::fs::write(ground.policy(), &text).unwrap();
        let reply = ground.ask("Reload", json!({}));
        assert_eq!(reply["error"], "io.tenantd.Manager.BadPolicy", "{reply}");
        let parameters = &reply["parameters"];
        assert_eq!(parameters["findings"][0]["code"], code);
        let report = parameters["report"].as_str().unwrap();
        assert!(report.contains(code) && report.contains("policy.yaml"), "{report}");
        ground.tick();
        assert_same(&before, &snapshot(&ground.host), &text);
        let status = ground.ask("GetStatus", json!({}));
        let findings = status["parameters"]["status"]["findings"].to_string();
        assert!(findings.contains("policy.yaml was not taken up") && findings.contains(code));
    }
    std::fs::remove_file(ground.policy()).unwrap();
    assert_eq!(ground.ask("Reload", json!({}))["parameters"]["findings"][0]["code"], "P001");
    std::fs::write(ground.policy(), TWO).unwrap();
    assert_eq!(ground.ask("Reload", json!({}))["parameters"]["changes"], json!([]));
    ground.tick();
    let status = ground.ask("GetStatus", json!({}));
    assert!(!status["parameters"]["status"]["findings"].to_string().contains("was not taken up"));
}

#[test]
fn a_refused_reload_names_the_reason() {
    let mut ground = Ground::new();
    ground.tick();
    std::fs::write(ground.policy(), format!("{TWO}host: {{ root: /elsewhere }}\n")).unwrap();
    let reply = ground.ask("Reload", json!({}));
    assert_eq!(reply["error"], "io.tenantd.Manager.Failed", "{reply}");
    ground.tick();
    let findings = ground.findings();
    let why = "host.root cannot be changed at run time; restart tenantd";
    assert!(findings.contains(&format!("policy.yaml was not taken up: {why}")), "{findings}");
    let bad = TWO.replace("weight: 300", "weight: 0").replace("db: {}", "db: { weight: 0 }");
    std::fs::write(ground.policy(), bad).unwrap();
    ground.ask("Reload", json!({}));
    ground.tick();
    let findings = ground.findings();
    let policy = ground.policy().display().to_string();
    for word in ["P025: ", "policy.yaml:", &format!("1 more: see tenantctl check {policy}")] {
        assert!(findings.contains(word), "{word} is not in {findings}");
    }
}

#[test]
fn journal_write_errors_are_reported_with_all_causes() {
    let mut ground = Ground::with("mode: observe");
    let state = ground.dir.path().join("state");
    std::fs::create_dir_all(&state).unwrap();
    symlink("/dev/full", state.join("journal.new")).unwrap();
    let reply = ground.ask("SetMode", json!({ "mode": "enforce" }));
    let reason = reply["parameters"]["reason"].as_str().unwrap();
    assert!(reason.contains("journal: No space left"), "{reason}");
}

#[test]
fn a_mode_change_is_published_at_once() {
    let dir = util::scratch();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(util::PATIENCE)).unwrap();
    let hear = || {
        let mut bytes = [0; 256];
        let count = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let mut ground = Ground::notifying("mode: enforce", Notifier::to(&path).unwrap());
    ground.tick();
    for mode in ["observe", "enforce"] {
        ground.ask("SetMode", json!({ "mode": mode }));
        assert_eq!(hear(), format!("STATUS=2 tenants, mode {mode}"));
    }
    ground.ask("Restore", json!({}));
    assert_eq!(hear(), "STATUS=2 tenants, mode observe");
    ground.ask("SetMode", json!({ "mode": "enforce" }));
    hear();
    // No tick comes between the reload and the question.
    std::fs::write(ground.policy(), TWO.replace("enforce", "observe")).unwrap();
    ground.ask("Reload", json!({}));
    let status = ground.ask("GetStatus", json!({}));
    assert_eq!(status["parameters"]["status"]["mode"], "observe");
    assert!(hear().starts_with("RELOADING=1"));
    assert_eq!(hear(), "READY=1\nSTATUS=2 tenants, mode observe");
}

#[test]
fn modes_are_switched_and_everything_is_restored_on_request() {
    let mut ground = Ground::new();
    let enforced = snapshot(&ground.host);
    ground.tick();
    let reply = ground.ask("SetMode", json!({ "mode": "observe" }));
    assert_eq!(reply["parameters"]["before"], "enforce");
    let observed = snapshot(&ground.host);
    assert!(!observed.contains_key("/sys/fs/cgroup/web"));
    // Whoever has the answer sees the mode, without waiting for a tick.
    let status = ground.ask("GetStatus", json!({}));
    assert_eq!(status["parameters"]["status"]["mode"], "observe");
    assert_eq!(
        ground.ask("SetMode", json!({ "mode": "enforce" }))["parameters"]["before"],
        "observe"
    );
    ground.tick();
    assert_eq!(
        enforced.keys().collect::<Vec<_>>(),
        snapshot(&ground.host).keys().collect::<Vec<_>>()
    );
    let reply = ground.ask("Restore", json!({}));
    assert_eq!(
        (&reply["parameters"]["cgroups"], &reply["parameters"]["failures"]),
        (&json!(2), &json!([]))
    );
    assert_same(&observed, &snapshot(&ground.host), "restored");
}

#[test]
fn a_refusal_shows_that_a_template_may_make_the_tenant() {
    let mut ground = Ground::new();
    let text = "version: 1\nmode: enforce\ntenants:\n  jobs: { each: { match: { cgroup: '/work/run*' } } }\n";
    std::fs::write(ground.policy(), text).unwrap();
    ground.ask("Reload", json!({}));
    for path in ["/work", "/work/run1", "/other"] {
        ground.host.with(|kernel| kernel.make_cgroup(path)).unwrap();
    }
    let mut attach =
        |tenant: &str| ground.ask("Attach", json!({ "tenant": tenant, "cgroup": "/other" }));
    let early = attach("jobs/run1");
    assert_eq!(early["error"], "io.tenantd.Manager.NoSuchTenant", "{early}");
    assert_eq!(early["parameters"]["awaited"], true, "{early}");
    let never = attach("jobs/rest");
    assert_eq!(never["error"], "io.tenantd.Manager.NoSuchTenant", "{never}");
    assert_eq!(never["parameters"]["awaited"], Value::Null, "{never}");
    (0..2).for_each(|_| ground.tick());
    let reply = ground.ask("Attach", json!({ "tenant": "jobs/run1", "cgroup": "/other" }));
    assert_ne!(reply["error"], "io.tenantd.Manager.NoSuchTenant", "{reply}");
}

#[test]
fn an_explanation_is_served_over_the_socket() {
    let mut ground = Ground::new();
    ground.tick();
    let reply = ground.ask("Explain", json!({ "tenant": "web" }));
    let explanation = &reply["parameters"]["explanation"];
    assert_eq!((&explanation["tenant"], &explanation["tick"]), (&json!("web"), &json!(2)));
    assert!(explanation["values"].as_array().unwrap().len() >= 2);
    let reply = ground.ask("Explain", json!({ "tenant": "wb" }));
    assert_eq!(reply["error"], "io.tenantd.Manager.NoSuchTenant");
    assert_eq!(reply["parameters"]["tenants"][0], "web");
}

/// What the face of the agent shows beside the tenants: when, where, what version; groups; the sums that only
/// grow; what an idle tenant would get.
#[test]
fn a_status_has_time_host_version_groups_and_what_an_idle_tenant_would_get() {
    let mut ground = Ground::new();
    let text = "version: 1\nmode: enforce\ntenants:\n  web: { guarantee: { cpu: 2 } }\n  \
                ci: { tenants: { a: {}, b: {} } }\n";
    std::fs::write(ground.policy(), text).unwrap();
    ground.ask("Reload", json!({}));
    ground.tick();
    ground.tick();
    let status = ground.ask("GetStatus", json!({}));
    let status = &status["parameters"]["status"];
    let time = humantime::parse_rfc3339(status["time"].as_str().unwrap()).unwrap();
    assert!(time.elapsed().unwrap() < util::PATIENCE);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    let host_name = nix::unistd::gethostname().unwrap();
    assert_eq!(status["host"]["name"], host_name.to_str().unwrap());
    let (web, ci) = (&status["tenants"][0], &status["groups"][0]);
    // It is idle, and would get all that is divided, or its guarantee where others are hungry.
    assert_eq!((&web["name"], &web["allocation_cores"]), (&json!("web"), &json!(0.0)));
    let divided = status["host"]["capacity_cores"].as_f64().unwrap();
    assert!((web["would_get_cores"].as_f64().unwrap() - divided).abs() < 1e-6, "{web}");
    assert_eq!((&ci["name"], &ci["nr_tenants"]), (&json!("ci"), &json!(2)));
    assert!(ci["usage_cores"].is_number() && ci["allocation_cores"].is_number(), "{ci}");
    assert_eq!(status["thresholds"]["share_error_ratio"], 0.05);
}

#[test]
fn the_service_ends_with_its_socket_and_gives_the_agent_back() {
    let ground = Ground::new();
    let socket = ground.dir.path().join("socket");
    assert!(socket.exists());
    let Ground { service, dir: _dir, .. } = ground;
    let agent = service.into_agent();
    assert!(!socket.exists());
    assert!(agent.stop().unwrap().0.failures.is_empty());
}

#[test]
fn the_end_of_the_sockets_thread_ends_the_service() {
    let mut ground = Ground::new();
    let path = ground.dir.path().join("other");
    // No deadline can be that late: the thread panics at the first request that is incomplete.
    let limits = Limits { request_time: Duration::MAX, ..Limits::default() };
    ground.service.serve(Listener::make(&path).unwrap(), limits).unwrap();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"{").unwrap();
    let mut events = EventLoop::new(Duration::from_millis(20)).unwrap();
    let error = ground.service.run(&mut events, None, false).unwrap_err();
    assert!(error.to_string().contains("socket"), "{error}");
}

/// systemd-oomd announces the end of a cgroup: a death of its tenant once the cgroup is empty, with the figures of the tenant, and
/// none if the cgroup goes on. The socket is there while the policy asks for it.
#[test]
fn a_notice_of_oomd_is_a_death_once_its_cgroup_is_empty() {
    let mut ground = Ground::with("mode: enforce\nmemory: { victims: share }");
    let hooks = ground.dir.path().join("hooks");
    std::fs::create_dir(&hooks).unwrap();
    ground.service.listen_to_oomd(&hooks);
    let socket = hooks.join("io.tenantd");
    (0..11).for_each(|_| ground.tick());
    let notify = |cgroup: &str| {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let parameters = json!({ "cgroup": cgroup });
        let call = json!({ "method": "io.systemd.oom.Prekill.Notify", "parameters": parameters });
        stream.write_all(format!("{call}\0").as_bytes()).unwrap();
        let mut answer = [0; 18];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"{\"parameters\":{}}\0");
    };
    let spawn = |ground: &Ground, cgroup: &str| {
        ground.host.with(|kernel| kernel.spawn(cgroup, Load::busy(1))).unwrap()
    };
    let deaths = |ground: &mut Ground, name: &str| {
        ground.tick();
        let tenants = ground.service.agent().status().tenants.iter();
        tenants.filter(|it| it.name == name).flat_map(|it| it.deaths.clone()).collect::<Vec<_>>()
    };
    let (first, second) = (spawn(&ground, "/web"), spawn(&ground, "/db"));
    ground.tick();
    for cgroup in ["/web", "/db", "/elsewhere", "../..", ""] {
        notify(cgroup);
    }
    assert_eq!(deaths(&mut ground, "web"), [], "it still runs");
    ground.host.with(|kernel| kernel.kill(first)).unwrap();
    let of_web = deaths(&mut ground, "web");
    assert_eq!(of_web.len(), 1, "{of_web:?}");
    assert_eq!(of_web[0].cause, DeathCause::Oomd);
    assert!(of_web[0].text.contains("web used"), "{of_web:?}");
    (0..40).for_each(|_| ground.tick());
    assert_eq!(deaths(&mut ground, "web").len(), 1);
    // A kill that did not come is forgotten: the later end of the process is its own.
    ground.host.with(|kernel| kernel.kill(second)).unwrap();
    assert_eq!(deaths(&mut ground, "db"), []);
    util::file(ground.dir.path(), "policy.yaml", TWO);
    ground.service.reload().unwrap();
    ground.tick();
    util::wait_until("the socket is gone", || !socket.exists());
}
