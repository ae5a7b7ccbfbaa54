//! `tenantctl run` through a real daemon: jobs in cgroups of their own, as wide as they are told.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tenantd_host::cgroup::Facet;
use tenantd_host::valve::Valve;

use super::ground::{Daemon, Ground};
use crate::util::{self, wait_until};
use crate::valve::works::Works;

/// Two tenants, and twice as many slots as the machine has CPUs.
const POLICY: &str = "
control: { interval: 100ms, oversubscription: 2.0 }
tenants: { ci: { weight: 100 }, nightly: { weight: 100 } }
";

/// A daemon in mode enforce with this policy.
pub(super) fn daemon(ground: &Ground) -> Daemon {
    daemon_with(ground, POLICY)
}

fn daemon_with(ground: &Ground, policy: &str) -> Daemon {
    let policy = format!("version: 1\nmode: enforce\n{policy}");
    let policy = util::file(ground.scratch.path(), "policy.yaml", policy);
    let mut command = ground.tenantd();
    let daemon = Daemon::start(command.arg("--policy").arg(policy).arg("--root").arg(&ground.name));
    let mut status = util::tenantctl();
    status.arg("--socket").arg(ground.state_dir().join("socket")).arg("status");
    wait_until("the daemon to answer", || status.output().unwrap().status.success());
    daemon
}

/// `tenantctl run` with these arguments in front of those of the command.
fn run(ground: &Ground, arguments: &[&str]) -> Command {
    let mut command = util::tenantctl();
    command.arg("--socket").arg(ground.state_dir().join("socket")).arg("run").args(arguments);
    for name in ["MAKEFLAGS", "MFLAGS", "MAKELEVEL", "OMP_NUM_THREADS"] {
        command.env_remove(name);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn slots() -> u32 {
    2 * std::thread::available_parallelism().unwrap().get() as u32
}

/// What is left of jobs in the state directory.
fn job_servers(ground: &Ground) -> Vec<PathBuf> {
    let entries = fs::read_dir(ground.state_dir()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.is_dir() && path.to_string_lossy().contains("/job-")).collect()
}

#[test]
#[ignore = "makes cgroups"]
fn a_job_runs_in_a_cgroup_of_its_own_and_leaves_nothing() {
    let Some(ground) = Ground::take() else { return };
    let daemon = daemon(&ground);
    let script = "echo $TENANTD_DOP; grep -c '/ci/job-' /proc/self/cgroup; echo $MAKEFLAGS; exit 7";
    let ran = util::run(&mut run(&ground, &["--tenant", "ci", "--", "sh", "-c", script])).exits(7);
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], slots().to_string());
    assert!(lines[1].parse::<u32>().unwrap() >= 1, "{lines:?}");
    assert!(lines[2].contains("--jobserver-auth=fifo:"), "{lines:?}");
    assert_eq!(ran.err, "");
    wait_until("the job server to be removed", || job_servers(&ground).is_empty());
    let tenant = ground.dir(Facet::Cpu, "ci");
    let jobs =
        || fs::read_dir(&tenant).unwrap().filter(|it| it.as_ref().unwrap().path().is_dir()).count();
    wait_until("the cgroup to be removed", || jobs() == 0);
    daemon.stop();
}

/// Commands of a build. Where the daemon gets little of the CPU, a make is faster than it and begins hundreds before
/// the daemon has taken a token.
const NR_COMMANDS: usize = 2000;

/// A makefile of commands that wait for leave.
fn makefile(dir: &Path, works: &Works) {
    let targets: Vec<String> = (0..NR_COMMANDS).map(|number| format!("t{number}")).collect();
    let all = targets.join(" ");
    let text = format!("all: {all}\n.PHONY: {all}\n{all}:\n\t@{}\n", works.command());
    util::file(dir, "Makefile", text);
}

/// A make with such commands as a job; it runs as many as there are slots.
fn build(ground: &Ground, works: &mut Works) -> Child {
    makefile(ground.scratch.path(), works);
    let dir = ground.scratch.path().to_str().unwrap();
    let build = run(ground, &["--tenant", "ci", "--", "make", "-C", dir]).spawn().unwrap();
    works.wait_for(slots());
    build
}

/// A job of another tenant that runs until its input ends.
fn other(ground: &Ground) -> Child {
    let mut command = run(ground, &["--tenant", "nightly", "--", "sh", "-c", "echo runs; cat"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let mut runs = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut runs).unwrap();
    child
}

/// Lets commands end until no more than `count` run, as the total of tokens says.
fn narrow_to(ground: &Ground, works: &mut Works, count: u32) {
    let servers = job_servers(ground);
    let tokens = || {
        let of = |path: &PathBuf| fs::read_to_string(path.join("tokens")).ok()?.trim().parse().ok();
        servers.iter().filter_map(of).max().unwrap_or(0_u32)
    };
    works.end_until_none("tokens", || tokens().saturating_sub(count - 1));
    works.wait_for(count);
}

#[test]
#[ignore = "makes cgroups"]
fn a_build_gets_narrower_and_wider_as_others_come_and_go() {
    let Some(ground) = Ground::take() else { return };
    if util::optional("make", "make").is_none() {
        return;
    }
    let daemon = daemon(&ground);
    let mut works = Works::new(ground.scratch.path());
    let build = build(&ground, &mut works);
    let other = other(&ground);
    narrow_to(&ground, &mut works, slots() / 2);
    // Its end gives the slots back.
    util::finish(other).exits(0);
    works.wait_for(slots());
    works.finish();
    util::finish(build).exits(0);
    daemon.stop();
}

/// A make that is killed with all its commands takes every token with it. They are replaced, and the next one in the same job
/// is as wide as the job.
#[test]
#[ignore = "makes cgroups"]
fn a_killed_make_takes_no_width_with_it() {
    let Some(ground) = Ground::take() else { return };
    if util::optional("make", "make").is_none() {
        return;
    }
    let daemon = daemon(&ground);
    let places = ["first", "second"].map(|name| ground.scratch.path().join(name));
    let mut works = places.each_ref().map(|place| {
        fs::create_dir(place).unwrap();
        let works = Works::new(place);
        makefile(place, &works);
        works
    });
    let script = "make -C $0; read line; exec make -C $1";
    let [first, second] = places.each_ref().map(|place| place.to_str().unwrap());
    let arguments = ["--tenant", "ci", "--", "sh", "-c", script, first, second];
    let mut child = run(&ground, &arguments).stdin(Stdio::piped()).spawn().unwrap();
    works[0].wait_for(slots());
    let job = fs::read_to_string(format!("/proc/{}/cgroup", child.id())).unwrap();
    let job =
        job.lines().find_map(|line| line.rsplit_once("/ci/").map(|(_, job)| format!("ci/{job}")));
    let job = job.expect("a cgroup of the job");
    wait_until("the shell alone", || {
        let others = ground.pids(&job).into_iter().filter(|pid| *pid != child.id());
        let others: Vec<u32> = others.collect();
        for pid in &others {
            let _ = kill(Pid::from_raw(*pid as i32), Signal::SIGKILL);
        }
        others.is_empty()
    });
    let [server] = &job_servers(&ground)[..] else { panic!("no job server, or several") };
    let valve = Valve::open(server).unwrap();
    wait_until("all tokens", || valve.free().unwrap() == slots() - 1);
    drop(valve);
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    works[1].wait_for(slots());
    works[1].finish();
    util::finish(child).exits(0);
    wait_until("the job server to be removed", || job_servers(&ground).is_empty());
    daemon.stop();
}

#[test]
#[ignore = "makes cgroups"]
fn a_build_outlives_the_daemon_and_follows_the_next() {
    let Some(ground) = Ground::take() else { return };
    if util::optional("make", "make").is_none() {
        return;
    }
    let first = daemon(&ground);
    let mut works = Works::new(ground.scratch.path());
    let build = build(&ground, &mut works);
    first.signal(Signal::SIGKILL);
    works.end(1);
    works.wait_for(slots());
    let second = daemon(&ground);
    let other = other(&ground);
    narrow_to(&ground, &mut works, slots() / 2);
    util::finish(other).exits(0);
    works.wait_for(slots());
    works.finish();
    util::finish(build).exits(0);
    wait_until("the job server to be removed", || job_servers(&ground).is_empty());
    second.stop();
}

/// The first command of a tenant that a template makes comes before the tick that makes it.
#[test]
#[ignore = "makes cgroups"]
fn the_first_command_of_a_found_tenant_waits_for_its_tick() {
    let Some(ground) = Ground::take() else { return };
    ground.make("work");
    let tree = &ground.layout.trees[ground.layout.tree(Facet::Cpu).unwrap()];
    let work = ground.dir(Facet::Cpu, "work");
    let work = work.strip_prefix(&tree.mount).unwrap().display();
    let policy = format!(
        "control: {{ interval: 2s }}\ntenants: {{ jobs: {{ each: {{ match: {{ cgroup: \"/{work}/run*\" }} }} }} }}\n"
    );
    let daemon = daemon_with(&ground, &policy);
    ground.make("work/run1");
    let script = "grep -c /job- /proc/self/cgroup";
    let arguments = ["--tenant", "jobs/run1", "--", "sh", "-c", script];
    let ran = util::run(&mut run(&ground, &arguments)).exits(0);
    assert_ne!(ran.out.trim(), "0");
    util::run(&mut run(&ground, &["--tenant", "jobs/never", "--", "true"]))
        .exits(1)
        .says("no tenant `jobs/never`");
    daemon.stop();
}

#[test]
#[ignore = "makes cgroups"]
fn a_job_that_never_starts_has_the_exit_code_of_the_reason() {
    let Some(ground) = Ground::take() else { return };
    let daemon = daemon(&ground);
    for larger in [["--memory", "4096TiB"], ["--dop", "100000"]] {
        let arguments = [&["--tenant", "ci"][..], &larger, &["--", "true"]].concat();
        util::run(&mut run(&ground, &arguments)).exits(65);
    }
    // One that waits, because another job has all slots, loses its tenant.
    let all = slots().to_string();
    let exact = |tenant| {
        run(&ground, &["--tenant", tenant, "--dop", &all, "--", "sh", "-c", "echo runs; cat"])
    };
    let mut first = exact("nightly").stdin(Stdio::piped()).spawn().unwrap();
    std::io::Read::read_exact(first.stdout.as_mut().unwrap(), &mut [0; 5]).unwrap();
    let second = exact("ci").stdin(Stdio::null()).spawn().unwrap();
    let ask = |arguments: &[&str]| {
        let mut command = util::tenantctl();
        command.arg("--socket").arg(ground.state_dir().join("socket")).args(arguments);
        util::run(&mut command).exits(0).out
    };
    wait_until("the second job in the queue", || {
        ask(&["jobs", "--json"]).contains("\"waiting\":{")
    });
    let left = POLICY.replace("ci: { weight: 100 }, ", "");
    let policy = ground.scratch.path().join("policy.yaml");
    fs::write(policy, format!("version: 1\nmode: enforce\n{left}")).unwrap();
    ask(&["reload"]);
    util::finish(second).exits(67).says("`ci` has left the policy");
    util::finish(first).exits(0);
    daemon.stop();
}

/// Jobs of two tenants are as wide as the machine: while one works, the other waits, and its part would go to a third tenant. A
/// busy session of a tenant with jobs counts as well: it would have the turns of its jobs on top of its share.
#[test]
#[ignore = "makes cgroups"]
fn tenants_with_jobs_in_turns_and_beside_them_have_their_shares() {
    let Some(mut ground) = Ground::take() else { return };
    let daemon = daemon_with(&ground, "tenants: { a: {}, b: {}, c: {} }");
    let cpus = slots() / 2;
    let (is_over, all) = (ground.scratch.path().join("over"), cpus.to_string());
    let spin =
        format!("for i in $(seq {cpus}); do timeout 2 sh -c 'while :; do :; done' & done; wait");
    // Two at a time for each tenant, so that one of its jobs waits while another one works.
    let submit = |tenant: &str| {
        let job = run(&ground, &["--tenant", tenant, "--dop", &all, "--", "sh", "-c", &spin]);
        let mut again = Command::new("sh");
        again.args(["-c", "while [ ! -e \"$0\" ]; do \"$@\" || exit 1; done"]).arg(&is_over);
        again.arg(job.get_program()).args(job.get_args()).stdin(Stdio::null());
        again.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let queues = ["a", "b", "a", "b"].map(submit);
    let busy = format!("threads={}", 2 * cpus);
    ground.load("c", &busy);
    let parts = |ground: &Ground| {
        let used = || ["a", "b", "c"].map(|tenant| ground.used_sec(tenant));
        let sum = || used().iter().sum::<f64>();
        let until = |seconds| {
            let end = sum() + seconds * f64::from(cpus);
            wait_until("CPU time to pass", || sum() > end);
        };
        // Until what is lent has settled.
        until(10.0);
        let before = used();
        until(12.0);
        let used = [0, 1, 2].map(|at| used()[at] - before[at]);
        used.map(|seconds| seconds / used.iter().sum::<f64>())
    };
    let without = parts(&ground);
    ground.load("a", &busy);
    let with = parts(&ground);
    println!("parts of the CPU time {without:.3?}, with a session of a {with:.3?}");
    // Between two jobs all CPUs belong to c. Without lending it has more than a half.
    assert!((0.25..0.45).contains(&without[2]), "{without:?}");
    // A session that did not count would leave a fifth to b.
    assert!(with[0] < 0.42 && with[1] > 0.24, "{with:?}");
    fs::write(is_over, "").unwrap();
    queues.into_iter().for_each(|queue| drop(util::finish(queue).exits(0)));
    daemon.stop();
}
