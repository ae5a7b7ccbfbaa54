//! Jobs on this machine's kernel: real processes that submit themselves to a real daemon.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tenantd_host::cgroup::Facet;

use super::ask::{Asked, as_nobody};
use super::ground::Ground;
use crate::util::{self, assert_same, wait_until};

const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/submit.py");
const MIB: u64 = 1 << 20;

/// A process that submits itself.
pub(super) struct Client {
    pub(super) child: Child,
    replies: BufReader<std::process::ChildStdout>,
}

pub(super) fn command(asked: &Asked, parameters: &Value, arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(CLIENT).arg(asked.socket()).arg(parameters.to_string()).args(arguments);
    command
}

impl Client {
    fn of(mut command: Command) -> Client {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let replies = BufReader::new(child.stdout.take().unwrap());
        Client { child, replies }
    }

    pub(super) fn submit(asked: &Asked, parameters: &Value, arguments: &[&str]) -> Client {
        Client::of(command(asked, parameters, arguments))
    }

    /// The next line that it says, as JSON where it is.
    pub(super) fn says(&mut self) -> Value {
        let mut line = String::new();
        self.replies.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or(json!(line.trim_end()))
    }

    /// What it is told when it starts.
    pub(super) fn starts(&mut self) -> Value {
        loop {
            let reply = self.says();
            let started = &reply["parameters"]["started"];
            if started.is_object() {
                return reply["parameters"].clone();
            }
            assert!(reply["parameters"]["waiting"].is_object(), "{reply}");
        }
    }

    /// Lets a `cat` end, and waits for it.
    pub(super) fn end(mut self) {
        drop(self.child.stdin.take());
        util::ended(&mut self.child);
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls a method of the socket that has one reply. The user may have so many connections, and those of clients count:
/// one that is closed is tried again.
pub(super) fn call(socket: &Path, method: &str, parameters: Value) -> Value {
    let call = json!({ "method": format!("io.tenantd.Jobs.{method}"), "parameters": parameters });
    let try_call = || -> std::io::Result<Value> {
        let mut stream = UnixStream::connect(socket)?;
        stream.write_all(format!("{call}\0").as_bytes())?;
        let mut reply = Vec::new();
        BufReader::new(stream).read_until(0, &mut reply)?;
        reply.pop();
        Ok(serde_json::from_slice(&reply)?)
    };
    let mut reply = None;
    wait_until("a reply", || {
        reply = try_call().ok();
        reply.is_some()
    });
    reply.unwrap()
}

pub(super) fn jobs(asked: &Asked) -> Vec<Value> {
    let listed = call(&asked.socket(), "List", json!({}));
    listed["parameters"]["jobs"].as_array().unwrap_or_else(|| panic!("{listed}")).clone()
}

pub(super) fn is_empty(asked: &Asked) -> bool {
    jobs(asked).is_empty()
}

/// Whether there is no cgroup inside that of a tenant.
pub(super) fn has_no_job_cgroups(asked: &Asked, tenant: &str) -> bool {
    let inside = std::fs::read_dir(asked.ground.dir(Facet::Cpu, tenant)).unwrap();
    inside.filter(|entry| entry.as_ref().unwrap().path().is_dir()).count() == 0
}

/// The descriptors of the daemon.
pub(super) fn nr_open_files(asked: &Asked) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", asked.daemon.pid())).unwrap().count()
}

const TWO: &str = "admission: { max_running: 2 }\ntenants: { a: {}, b: { weight: 200 } }";

/// A job is in a cgroup of its own, with the limit that it declared, before it executes its command; the cgroup goes
/// with it.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_job_runs_in_a_cgroup_of_its_own() {
    let Some(ground) = Ground::take() else { return };
    let before = ground.snapshot();
    let asked = Asked::on(ground, TWO);
    let parameters = json!({ "tenant": "a", "memory_bytes": 64 * MIB, "command": "cat" });
    let mut client = Client::submit(&asked, &parameters, &["cat", "/proc/self/cgroup", "-"]);
    let started = client.starts();
    assert_eq!(started["started"]["ineffective"], json!([]), "{started}");
    let below = format!("a/job-{}", started["id"]);
    let memory = asked.ground.dir(Facet::Memory, &below);
    let limit =
        if asked.ground.layout.is_unified() { "memory.max" } else { "memory.limit_in_bytes" };
    let limit = std::fs::read_to_string(memory.join(limit)).unwrap();
    assert_eq!(limit.trim(), (64 * MIB).to_string());
    assert!(
        client.says().as_str().unwrap().ends_with(&below) || asked.ground.pids(&below).len() == 1
    );
    let [job] = &jobs(&asked)[..] else { panic!() };
    assert_eq!((&job["state"], &job["command"]), (&json!("running"), &json!("cat")));
    assert_eq!(job["pid"], json!(client.child.id()));
    client.end();
    wait_until("the end of the job", || is_empty(&asked));
    wait_until("its cgroup removed", || !memory.exists());
    let Asked { ground, daemon, .. } = asked;
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "after the stop");
}

/// As many run as may; the others wait, are told why, and start or leave when they should.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn jobs_wait_for_their_turn() {
    let Some(asked) = Asked::begin(TWO) else { return };
    let submit = |tenant: &str| Client::submit(&asked, &json!({ "tenant": tenant }), &["cat"]);
    let (mut first, mut second) = (submit("a"), submit("a"));
    first.starts();
    second.starts();
    let mut third = submit("a");
    let waits = third.says();
    assert_eq!(waits["parameters"]["waiting"]["position"], 1, "{waits}");
    let reason = &waits["parameters"]["waiting"]["reason"];
    assert!(["running", "slots"].contains(&reason["kind"].as_str().unwrap()), "{reason}");
    let refused =
        Client::submit(&asked, &json!({ "tenant": "b", "no_wait": true }), &["cat"]).says();
    assert_eq!(refused["error"], "io.tenantd.Jobs.WouldWait", "{refused}");
    // One that is killed while it waits leaves the queue.
    let fourth = submit("b");
    wait_until("two that wait", || jobs(&asked).len() == 4);
    drop(fourth);
    wait_until("one that waits", || jobs(&asked).len() == 3);
    let id = waits["parameters"]["id"].clone();
    // One that runs is left to its caller.
    let [one, ..] = &jobs(&asked)[..] else { panic!() };
    let reply = call(&asked.socket(), "Cancel", json!({ "id": one["id"] }));
    assert_eq!(reply["parameters"], json!({ "is_running": true, "pids": [one["pid"]] }));
    first.end();
    assert_eq!(third.starts()["id"], id);
    let mut fifth = submit("b");
    let fifth_id = fifth.says()["parameters"]["id"].clone();
    let reply = call(&asked.socket(), "Cancel", json!({ "id": fifth_id }));
    assert_eq!(reply["parameters"], json!({ "is_running": false, "pids": [] }));
    loop {
        let reply = fifth.says();
        if reply["error"] == "io.tenantd.Jobs.Cancelled" {
            break;
        }
        assert!(reply["parameters"]["waiting"].is_object(), "{reply}");
    }
    let reply = call(&asked.socket(), "Cancel", json!({ "id": 999 }));
    assert_eq!(reply["error"], "io.tenantd.Jobs.NoSuchJob");
    second.end();
    third.end();
    wait_until("no job", || is_empty(&asked));
    asked.daemon.stop();
}

/// What a job leaves behind is still accounted, and its slots are free.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn daemons_of_a_job_linger() {
    let Some(asked) = Asked::begin("admission: { max_running: 1 }\ntenants: { a: {} }") else {
        return;
    };
    let script = "sleep 1000 <&- >&- 2>&- & echo $!";
    let mut client = Client::submit(&asked, &json!({}), &["sh", "-c", script]);
    // Root is no tenant here, and the policy names nobody.
    let refused = client.says();
    assert_eq!(refused["error"], "io.tenantd.Jobs.NoOwnTenant");
    assert_eq!(refused["parameters"]["tenants"], json!(["a"]));
    let mut client = Client::submit(&asked, &json!({ "tenant": "a" }), &["sh", "-c", script]);
    client.starts();
    let daemon: i32 = client.says().as_i64().unwrap() as i32;
    util::ended(&mut client.child);
    wait_until("a job that lingers", || jobs(&asked).iter().any(|job| job["state"] == "lingering"));
    let mut next = Client::submit(&asked, &json!({ "tenant": "a" }), &["cat"]);
    next.starts();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(daemon), Signal::SIGKILL).unwrap();
    wait_until("the end of the first", || jobs(&asked).len() == 1);
    next.end();
    wait_until("no job", || is_empty(&asked));
    asked.daemon.stop();
}

/// A daemon that is killed and started again finds the jobs that run, and counts them; those that waited are gone.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn jobs_outlive_the_daemon() {
    let Some(ground) = Ground::take() else { return };
    let before = ground.snapshot();
    let asked = Asked::on(ground, TWO);
    let submit =
        |asked: &Asked, tenant: &str| Client::submit(asked, &json!({ "tenant": tenant }), &["cat"]);
    let (mut first, mut second) = (submit(&asked, "a"), submit(&asked, "b"));
    let mut ids = [first.starts()["id"].clone(), second.starts()["id"].clone()];
    ids.sort_by_key(Value::as_u64);
    let mut third = submit(&asked, "b");
    third.says();
    let Asked { ground, daemon, .. } = asked;
    daemon.signal(Signal::SIGKILL);
    // Its connection is closed.
    assert!(util::ended(&mut third.child).code().is_some());
    let asked = Asked::on(ground, TWO);
    let found = || -> Vec<Value> {
        let Ok(_) = UnixStream::connect(asked.socket()) else { return Vec::new() };
        jobs(&asked).iter().map(|job| job["id"].clone()).collect()
    };
    wait_until("both jobs", || found() == ids);
    let mut fourth = submit(&asked, "a");
    assert!(fourth.says()["parameters"]["waiting"].is_object());
    first.end();
    let started = fourth.starts();
    assert!(started["id"].as_u64() > ids[1].as_u64(), "{started}");
    second.end();
    fourth.end();
    wait_until("no job", || is_empty(&asked));
    let Asked { ground, daemon, .. } = asked;
    daemon.stop();
    assert_same(&before, &ground.snapshot(), "after the stop");
}

/// A Python that every user can run: the first in the path may be one of root's own.
fn python() -> &'static str {
    let debian = "/usr/bin/python3";
    if Path::new(debian).exists() { debian } else { "python3" }
}

/// A user submits to a tenant that allows it, and to no other; nobody cancels the jobs of others.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_user_submits_where_he_may() {
    let policy = "tenants: { a: { allow: { users: 65534 } }, b: {} }";
    let Some(asked) = Asked::begin(policy) else { return };
    let scratch = asked.ground.scratch.path().to_path_buf();
    std::fs::set_permissions(scratch, std::fs::Permissions::from_mode(0o755)).unwrap();
    let client = util::file(
        Path::new("/tmp"),
        &format!("{}.py", asked.ground.name),
        std::fs::read(CLIENT).unwrap(),
    );
    std::fs::set_permissions(&client, std::fs::Permissions::from_mode(0o644)).unwrap();
    let submit = |parameters: Value| {
        let mut command = Command::new(python());
        command.arg(&client).arg(asked.socket()).arg(parameters.to_string()).arg("cat");
        as_nobody(&command).map(Client::of)
    };
    let Some(mut refused) = submit(json!({ "tenant": "b" })) else { return };
    assert_eq!(refused.says()["error"], "org.varlink.service.PermissionDenied");
    let mut of_root = Client::submit(&asked, &json!({ "tenant": "b" }), &["cat"]);
    let of_root_id = of_root.starts()["id"].clone();
    let mut own = submit(json!({})).unwrap();
    let started = own.starts();
    assert_eq!(started["tenant"], "a");
    assert_eq!(jobs(&asked).len(), 2);
    let mut cancel = Command::new(python());
    cancel.arg("-c").arg(CANCEL).arg(asked.socket()).arg(of_root_id.to_string());
    let denied = as_nobody(&cancel).unwrap().output().unwrap();
    assert!(String::from_utf8_lossy(&denied.stdout).contains("PermissionDenied"), "{denied:?}");
    own.end();
    of_root.end();
    std::fs::remove_file(client).unwrap();
    asked.daemon.stop();
}

const CANCEL: &str = r#"
import json, socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(json.dumps({"method": "io.tenantd.Jobs.Cancel", "parameters": {"id": int(sys.argv[2])}}).encode() + b"\0")
print(s.recv(4096))
"#;

/// Two hundred that are submitted at once and together declare ten times the memory all run, and never more at a time
/// than what they declare allows.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn two_hundred_submissions_at_once() {
    let policy = "admission: { max_running: 100 }\ntenants: { a: { limit: { memory: 1GiB } } }";
    let Some(asked) = Asked::begin(policy) else { return };
    let parameters = json!({ "tenant": "a", "memory_bytes": 51 * MIB });
    let arguments = ["--each", "200", "sleep", "0.05"];
    let mut all = command(&asked, &parameters, &arguments);
    let mut all = all.stdout(Stdio::piped()).spawn().unwrap();
    let (mut most, mut largest) = (0, 0);
    wait_until("all of them", || {
        let running = jobs(&asked).into_iter().filter(|job| job["state"] == "running");
        let declared: Vec<u64> = running.map(|job| job["memory_bytes"].as_u64().unwrap()).collect();
        (most, largest) = (most.max(declared.len()), largest.max(declared.iter().sum()));
        all.try_wait().unwrap().is_some()
    });
    let mut said = String::new();
    all.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said.lines().last(), Some("failed 0"));
    assert!(largest <= 1 << 30, "{largest} declared by {most}");
    wait_until("no job", || is_empty(&asked));
    wait_until("no cgroup", || has_no_job_cgroups(&asked, "a"));
    // Nothing of the processes that were jobs is kept open.
    wait_until("no process held", || {
        let open = std::fs::read_dir(format!("/proc/{}/fd", asked.daemon.pid())).unwrap();
        let of = open.filter_map(|file| std::fs::read_link(file.unwrap().path()).ok());
        // The kernel says ` (deleted)` of one that has ended.
        let is_process = |path: &std::path::PathBuf| {
            let rest = path.strip_prefix("/proc").ok().and_then(|rest| rest.to_str());
            rest.is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
        };
        of.filter(is_process).count() == 0
    });
    asked.daemon.stop();
}

/// One user who floods the queue is refused, and others are served.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_flood_of_submissions_is_refused() {
    let policy = "admission: { max_running: 1, max_waiting_per_user: 20 }\ntenants: { a: {} }";
    let Some(asked) = Asked::begin(policy) else { return };
    let mut first = Client::submit(&asked, &json!({ "tenant": "a" }), &["cat"]);
    first.starts();
    let mut all = command(&asked, &json!({ "tenant": "a" }), &["--each", "100", "true"]);
    let all = all.stdout(Stdio::piped()).spawn().unwrap();
    wait_until("a full queue", || jobs(&asked).len() == 21);
    first.end();
    let output = all.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let refused = said.matches("QueueFull").count();
    // Some may have come when the first had made room.
    assert!((1..=80).contains(&refused), "{refused}: {said}");
    assert_eq!(said.lines().last(), Some(&*format!("failed {refused}")));
    wait_until("no job", || is_empty(&asked));
    asked.daemon.stop();
}
