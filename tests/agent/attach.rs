//! Running work that is handed to a tenant while the agent runs.

mod pods;

use std::collections::BTreeSet;
use std::path::Path;

use nix::errno::Errno;
use tenantd::agent::attach::{AttachError, Moved};
use tenantd::backend::claims;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain::explain;
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::{KernFs, Operation};
use tenantd_policy::model::Mode;
use tenantd_sim::{Fault, Load, SimHost, SimKernel, Workload};
use tenantd_varlink::bridge::{Caller, Work};

use super::world::{MIB, World, assert_same, legacy, snapshot, tenant};
use crate::util;

const POLICY: &str = "\
tenants:
  a: { weight: 300 }
  b: { match: { cgroup: /b } }
  group: { tenants: { c: { match: { cgroup: [ /c1, \"/c/*\" ] } }, d: {} } }
";
const ROOT: Caller = Caller { user: None, pid: 0 };

/// A host that systemd does not run, with jobs of nobody's.
fn host(sim: SimHost) -> World {
    let mut kernel = SimKernel::new(sim);
    for path in ["/jobs/1/inside", "/jobs/2", "/jobs/3", "/b", "/c1", "/c/one", "/else"] {
        kernel.make_cgroup(path).unwrap();
    }
    let mut world = World::with(kernel, POLICY);
    world.host.without_systemd();
    world.options.root = Some("/tenants".into());
    world
}

fn attach(world: &mut World, tenant: &str, work: &Work) -> Result<Moved, AttachError> {
    world.agent.as_mut().unwrap().attach_work(tenant, work, false, ROOT)
}

fn detach(world: &mut World, work: &Work) -> Result<Moved, AttachError> {
    world.agent.as_mut().unwrap().detach_work(work, ROOT)
}

fn cgroup(path: &str) -> Work {
    Work::Cgroup(path.to_string())
}

fn processes(pids: &[u32]) -> Work {
    Work::Processes(pids.to_vec())
}

fn busy(world: &World, path: &str) -> u32 {
    world.spawn(path, Load::busy(4).with_working_set(16 * MIB))
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

/// The members of a tenant, and whether each is attached.
fn members(world: &World, tenant: &str) -> Vec<(String, bool)> {
    let agent = world.agent.as_ref().unwrap();
    let explained = explain(agent.trace(), agent.status(), tenant).unwrap();
    explained.members.into_iter().map(|member| (member.cgroup, member.is_attached)).collect()
}

fn names(members: &[(String, bool)]) -> Vec<(&str, bool)> {
    members.iter().map(|(name, is_attached)| (&**name, *is_attached)).collect()
}

fn used(status: &Status, name: &str) -> f64 {
    tenant(status, name).usage[CPU].unwrap_or(0.0)
}

fn refusal(outcome: Result<Moved, AttachError>) -> String {
    outcome.unwrap_err().to_string()
}

fn reload(world: &mut World, yaml: &str) {
    let policy = util::policy(&format!("version: 1\nmode: enforce\n{yaml}"));
    let rules = claims::rules(&policy);
    assert_eq!(world.agent.as_mut().unwrap().reload(policy, rules).unwrap(), [""; 0]);
}

/// Removes a cgroup without processes, in every hierarchy.
fn remove(world: &World, path: &str) {
    let path = Path::new(path.trim_start_matches('/'));
    world.host.with(|kernel| {
        let mount = Path::new("/sys/fs/cgroup");
        let top = kernel.open_dir(mount).unwrap();
        let mut mounts = crate::util::names(kernel.list_dirs(top).unwrap());
        mounts.push(String::new());
        for tree in mounts {
            if let Ok(dir) = kernel.open_dir(&mount.join(tree).join(path.parent().unwrap())) {
                let _ = kernel.remove_dir(dir, path.file_name().unwrap().to_str().unwrap());
                kernel.close_dir(dir);
            }
        }
    });
}

#[test]
fn a_cgroup_is_weighed_where_it_is_until_it_is_detached() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = host(sim);
        let pids = ["/jobs/1/inside", "/b"].map(|path| busy(&world, path));
        world.start().unwrap();
        world.ticks(3);
        let before = snapshot(&world.host);
        for _ in 0..2 {
            let moved = attach(&mut world, "a", &cgroup("/sys/fs/cgroup/cpu/jobs/1/"))
                .or_else(|_| attach(&mut world, "a", &cgroup("/jobs/1")));
            assert_eq!(moved.unwrap().cgroup, "/jobs/1");
        }
        let status = world.ticks(12);
        assert_eq!(status.findings, [""; 0]);
        assert_eq!(names(&members(&world, "a")), [("./a", false), ("/jobs/1", true)]);
        let ratio = used(&status, "a") / used(&status, "b");
        assert!((ratio - 3.0).abs() < 0.2, "{ratio}");
        assert_eq!(pids.map(|pid| place(&world, pid)), ["/jobs/1/inside", "/b"]);
        // What is above is weighed as well, and given back with it.
        detach(&mut world, &cgroup("/jobs/1")).unwrap();
        world.ticks(3);
        let now = snapshot(&world.host);
        let of_jobs = |of: &super::world::Snapshot| -> super::world::Snapshot {
            let jobs = of.iter().filter(|(path, _)| path.contains("/jobs"));
            jobs.map(|(path, text)| (path.clone(), text.clone())).collect()
        };
        assert_same(&of_jobs(&before), &of_jobs(&now), "detached");
        assert_eq!(refusal(detach(&mut world, &cgroup("/jobs/1"))), "/jobs/1 is not attached");
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// The tenant keeps the cgroup that it had, with what is known of it.
#[test]
fn a_tenant_with_a_cgroup_of_its_own_keeps_it() {
    let mut world = host(SimHost::default());
    world.start().unwrap();
    world.ticks(2);
    let pid = busy(&world, "/tenants/a");
    let status = world.ticks(8);
    let total = tenant(&status, "a").cpu_usage_seconds.unwrap();
    assert!(used(&status, "a") > 3.0);
    world.host.take_changes();
    attach(&mut world, "a", &cgroup("/jobs/2")).unwrap();
    let status = world.tick();
    assert_eq!(names(&members(&world, "a")), [("./a", false), ("/jobs/2", true)]);
    assert!(used(&status, "a") > 3.0, "its usage is still known: {status:?}");
    assert!(tenant(&status, "a").cpu_usage_seconds.unwrap() > total);
    let changes = world.host.take_changes();
    assert!(!changes.iter().any(|call| call.operation == Operation::MakeDir), "{changes:?}");
    assert_eq!(place(&world, pid), "/tenants/a");
    let status = world.ticks(5);
    assert_eq!(status.findings, [""; 0]);
    assert!(tenant(&status, "a").cpu_usage_seconds.unwrap() < total + 40.0);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_cgroup_that_ends_is_no_member_any_more() {
    let mut world = host(SimHost::default());
    let pid = busy(&world, "/jobs/2");
    world.start().unwrap();
    attach(&mut world, "group/d", &cgroup("/jobs/2")).unwrap();
    attach(&mut world, "group/c", &cgroup("/jobs/3")).unwrap();
    world.ticks(3);
    let of_c = members(&world, "group/c");
    assert_eq!(names(&of_c), [("/c1", false), ("/jobs/3", true), ("/c/one", false)]);
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    remove(&world, "/jobs/2");
    remove(&world, "/jobs/3");
    // Another one of its name is nobody's.
    world.host.with(|kernel| kernel.make_cgroup("/jobs/3")).unwrap();
    world.ticks(4);
    assert_eq!(names(&members(&world, "group/d")), [("./group/d", false)]);
    assert_eq!(names(&members(&world, "group/c")), [("/c1", false), ("/c/one", false)]);
    assert!(!world.state_dir().join("attached.json").exists());
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn processes_are_moved_and_go_back() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = host(sim);
        let pids = ["/jobs/1/inside", "/jobs/2", "/jobs/2", "/else"].map(|path| busy(&world, path));
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(2);
        let moved = attach(&mut world, "a", &processes(&pids[..2])).unwrap();
        assert_eq!((&*moved.cgroup, &*moved.pids), ("/tenants/a", &pids[..2]));
        // One whose tenant has none of its own: one is made.
        let moved = attach(&mut world, "b", &processes(&pids[2..3])).unwrap();
        assert_eq!(moved.cgroup, "/tenants/b");
        let moved = attach(&mut world, "group/c", &processes(&pids[3..])).unwrap();
        assert_eq!(moved.cgroup, "/tenants/group:c");
        let status = world.ticks(12);
        assert_eq!(status.findings, [""; 0]);
        assert_eq!(names(&members(&world, "b")), [("./b", false), ("/b", false)]);
        let places = pids.map(|pid| place(&world, pid));
        assert_eq!(places, ["/tenants/a", "/tenants/a", "/tenants/b", "/tenants/group:c"]);
        let shares = ["a", "b", "group/c"].map(|name| used(&status, name) / 4.0);
        for (share, expected) in shares.iter().zip([0.6, 0.2, 0.2]) {
            assert!((share - expected).abs() < 0.03, "{shares:?}");
        }
        // Moved again by somebody else: it stays there.
        let elsewhere = |kernel: &mut SimKernel| {
            for tree in ["", "cpu", "cpuacct", "memory", "blkio", "unified"] {
                let path = Path::new("/sys/fs/cgroup").join(tree).join("jobs/3");
                if let Ok(dir) = kernel.open_dir(&path) {
                    let _ = kernel.move_process(dir, pids[1]);
                }
            }
        };
        world.host.with(elsewhere);
        detach(&mut world, &processes(&[pids[1], pids[2]])).unwrap();
        let places = pids.map(|pid| place(&world, pid));
        assert_eq!(places, ["/tenants/a", "/jobs/3", "/jobs/2", "/tenants/group:c"]);
        let again = refusal(detach(&mut world, &processes(&pids[2..3])));
        assert_eq!(again, format!("process {} is not attached", pids[2]));
        assert_eq!(world.stop().failures, [""; 0]);
        let places = pids.map(|pid| place(&world, pid));
        assert_eq!(places, ["/jobs/1/inside", "/jobs/3", "/jobs/2", "/else"]);
        let moved = |of: &super::world::Snapshot| -> super::world::Snapshot {
            let values = of.iter().filter(|(path, _)| !path.ends_with("cgroup.procs"));
            values.map(|(path, text)| (path.clone(), text.clone())).collect()
        };
        let _ = before.len();
        assert!(!moved(&snapshot(&world.host)).keys().any(|path| path.contains("/tenants")));
    }
}

/// A restart, a kill and a change of mode: all is where it was handed to, with what was started since.
#[test]
fn what_was_handed_over_is_taken_up_again() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = host(sim);
        let pids = ["/jobs/2", "/else"].map(|path| busy(&world, path));
        busy(&world, "/jobs/1/inside");
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(2);
        attach(&mut world, "a", &cgroup("/jobs/1")).unwrap();
        attach(&mut world, "b", &processes(&pids)).unwrap();
        world.ticks(2);
        let child = world.spawn("/tenants/b", Load::idle());
        let all = [pids[0], pids[1], child];
        for round in 0..5 {
            match round {
                0 => drop(world.stop()),
                1 => world.kill(),
                2 => {
                    world.kill();
                    assert_eq!(world.restore().failures, [""; 0]);
                    assert_eq!(all.map(|pid| place(&world, pid)), ["/jobs/2", "/else", "/jobs/2"]);
                }
                3 => {
                    let agent = world.agent.as_mut().unwrap();
                    assert_eq!(agent.set_mode(Mode::Observe).unwrap(), [""; 0]);
                    assert_eq!(all.map(|pid| place(&world, pid)), ["/jobs/2", "/else", "/jobs/2"]);
                    let why = refusal(attach(&mut world, "a", &cgroup("/jobs/3")));
                    assert!(why.contains("tenantd only observes"), "{why}");
                    world.tick();
                    let agent = world.agent.as_mut().unwrap();
                    assert_eq!(agent.set_mode(Mode::Enforce).unwrap(), [""; 0]);
                }
                _ => reload(&mut world, POLICY),
            }
            if world.agent.is_none() {
                world.start().unwrap();
            }
            let status = world.ticks(5);
            assert_eq!(status.findings, [""; 0], "round {round}");
            let places = all.map(|pid| place(&world, pid));
            assert_eq!(places, ["/tenants/b", "/tenants/b", "/tenants/b"], "round {round}");
            assert!(members(&world, "a").contains(&("/jobs/1".into(), true)), "round {round}");
        }
        // A tenant that is not in the policy any more has nothing.
        let other = POLICY.replace("  b: { match: { cgroup: /b } }\n", "");
        reload(&mut world, &other);
        world.ticks(2);
        assert_eq!(all.map(|pid| place(&world, pid)), ["/jobs/2", "/else", "/jobs/2"]);
        reload(&mut world, POLICY);
        world.ticks(2);
        assert_eq!(place(&world, pids[1]), "/else");
        world.host.with(|kernel| kernel.kill(child)).unwrap();
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

#[test]
fn what_is_not_to_be_moved_is_refused_with_its_owner() {
    let mut world = host(SimHost::default());
    let spawn = |path: &str, uid: u32| {
        let workload = Workload::constant("load", Load::idle()).owned_by(uid);
        world.host.with(|kernel| kernel.spawn(path, workload)).unwrap()
    };
    let [mine, other] =
        [("/jobs/2", 1000), ("/jobs/1/inside", 1001)].map(|(at, uid)| spawn(at, uid));
    world.start().unwrap();
    world.ticks(2);
    let begins = "it begins at the mount point, as /user.slice does";
    let no_path = |path: &str| format!("`{path}` is not the path of a cgroup: {begins}");
    let theirs =
        |what: &str| format!("{what}, or contains what is: detach that, or change the policy");
    for (tenant, work, why) in [
        ("none", cgroup("/jobs/1"), "the policy has no tenant `none`".to_string()),
        ("group", cgroup("/jobs/1"), "group is a group: name one of the tenants in it".into()),
        ("a", cgroup("/gone"), "there is no cgroup /gone".into()),
        ("a", cgroup("/b"), theirs("/b is b's")),
        ("a", cgroup("/c"), theirs("/c is group/c's")),
        ("b", cgroup("/b"), "/b is b's already, or contains what is".into()),
        ("a", cgroup("/"), no_path("/")),
        ("a", cgroup("/a/../b"), no_path("/a/../b")),
        ("a", processes(&[99999]), "process 99999 has ended, or is one of the kernel's".into()),
        ("a", processes(&[1]), "process 1 cannot be moved".into()),
    ] {
        assert_eq!(refusal(attach(&mut world, tenant, &work)), why);
    }
    let why = refusal(attach(&mut world, "a", &cgroup("/tenants")));
    assert!(why.ends_with("contains what is"), "{why}");
    // A user has what is his alone.
    let agent = world.agent.as_mut().unwrap();
    let ana = Caller { user: Some(1000), pid: mine };
    for (work, is_permitted) in [
        (processes(&[other]), false),
        (cgroup("/jobs/1"), false),
        (cgroup("/jobs"), false),
        (processes(&[mine]), true),
    ] {
        let outcome = agent.attach_work("a", &work, false, ana);
        if is_permitted {
            drop(outcome.unwrap())
        } else {
            assert!(matches!(outcome, Err(AttachError::NotPermitted(_))), "{work:?}")
        }
    }
    let empty = refusal(agent.attach_work("a", &cgroup("/jobs/3"), false, ana));
    assert!(empty.contains("only an administrator"), "{empty}");
    let gone = Caller { pid: 99999, ..ana };
    let gone = refusal(agent.attach_work("a", &cgroup("/jobs/3"), false, gone));
    assert_eq!(gone, "the process that asked has ended");
    // What an administrator handed over is not his to take back.
    agent.attach_work("a", &processes(&[other]), false, ROOT).unwrap();
    let bob = Caller { user: Some(1001), pid: 0 };
    for work in [processes(&[other]), processes(&[mine])] {
        let outcome = agent.detach_work(&work, bob);
        assert!(matches!(outcome, Err(AttachError::NotPermitted(_))), "{outcome:?}");
    }
    // Attached work is taken from no tenant, not even for root.
    let why = refusal(agent.attach_work("b", &processes(&[mine]), false, ROOT));
    let detach = format!("detach it first (tenantctl detach {mine})");
    assert_eq!(why, format!("process {mine} (load) is attached to a, in /tenants/a: {detach}"));
    agent.detach_work(&processes(&[mine]), ana).unwrap();
    assert_eq!(place(&world, mine), "/jobs/2");
    attach(&mut world, "a", &cgroup("/jobs/2")).unwrap();
    world.ticks(2);
    let why = refusal(attach(&mut world, "b", &processes(&[mine])));
    assert!(
        why.starts_with(&format!("process {mine} (load) is in /jobs/2, which is attached to a")),
        "{why}"
    );
    assert_eq!(world.stop().failures, [""; 0]);
}

/// A process that a `match` moved, or has in place, is attached elsewhere, and stays there.
#[test]
fn an_attach_outranks_a_match() {
    const YAML: &str = "\
tenants:
  a: {}
  users: { match: { users: [ 1000 ], move: true } }
  pinned: { cpus: dop, match: { cgroup: /else, move: true } }
  place: { match: { cgroup: /b } }
";
    for sim in [SimHost::default(), legacy()] {
        let mut kernel = SimKernel::new(sim);
        for path in ["/jobs/2", "/b", "/else"] {
            kernel.make_cgroup(path).unwrap();
        }
        let mut world = World::with(kernel, YAML);
        world.host.without_systemd();
        world.options.root = Some("/tenants".into());
        let spawn = |world: &World, path: &str| {
            let workload = Workload::constant("load", Load::busy(1)).owned_by(1000);
            world.host.with(|kernel| kernel.spawn(path, workload)).unwrap()
        };
        let homes = ["/jobs/2", "/else", "/b"];
        let pids = homes.map(|path| spawn(&world, path));
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(6);
        // Started by a claimed one.
        let child = spawn(&world, "/tenants/users");
        let all = [pids[0], pids[1], pids[2], child];
        let places = |world: &World| all.map(|pid| place(world, pid));
        let claimed = ["/tenants/users", "/tenants/pinned", "/b", "/tenants/users"];
        assert_eq!(places(&world), claimed);
        world.ticks(3);
        // The user of the processes, and an administrator.
        let agent = world.agent.as_mut().unwrap();
        let ana = Caller { user: Some(1000), pid: pids[0] };
        agent.attach_work("a", &processes(&all[..2]), false, ana).unwrap();
        attach(&mut world, "a", &processes(&all[2..])).unwrap();
        let status = world.agent.as_ref().unwrap().shared_status();
        assert_eq!(
            status.attached[0].to_string(),
            format!("processes {}, {}, {}, {}", all[0], all[1], all[2], all[3])
        );
        let there = ["/tenants/a"; 4];
        // In no hierarchy is one in the cgroup of the tenant that claims it.
        let hierarchies = |world: &World, pid: u32| {
            world.host.with(|kernel| kernel.file(&format!("/proc/{pid}/cgroup"))).unwrap()
        };
        for round in 0..7 {
            match round {
                0 => {}
                1 => reload(&mut world, YAML),
                2 => drop(world.stop()),
                3 => world.kill(),
                4 => {
                    world.kill();
                    assert_eq!(world.restore().failures, [""; 0]);
                    assert_eq!(places(&world)[..3], homes, "not to the tenant that claims it");
                }
                5 => {
                    let agent = world.agent.as_mut().unwrap();
                    assert_eq!(agent.set_mode(Mode::Observe).unwrap(), [""; 0]);
                    assert_eq!(places(&world)[..3], homes);
                    assert_eq!(world.tick().attached, []);
                    let agent = world.agent.as_mut().unwrap();
                    assert_eq!(agent.set_mode(Mode::Enforce).unwrap(), [""; 0]);
                }
                _ => {
                    // The tenant that claimed one goes.
                    reload(
                        &mut world,
                        &YAML.replace("  users: { match: { users: [ 1000 ], move: true } }\n", ""),
                    );
                    world.ticks(3);
                    assert_eq!(places(&world), there);
                    reload(&mut world, YAML);
                }
            }
            if world.agent.is_none() {
                world.start().unwrap();
            }
            let status = world.ticks(40);
            assert_eq!(status.findings, [""; 0], "round {round}");
            assert_eq!(places(&world), there, "round {round}");
            assert_eq!((status.attached[0].nr_processes, &*status.attached[0].tenant), (4, "a"));
            for pid in all {
                let text = hierarchies(&world, pid);
                assert!(!text.contains("/users") && !text.contains("/pinned"), "{text}");
            }
        }
        let agent = world.agent.as_ref().unwrap();
        let explained = explain(agent.trace(), agent.status(), "a").unwrap();
        assert_eq!(explained.attached.unwrap().nr_processes, 4);
        // One that has ended is not counted; the others go back to their `match`.
        world.host.with(|kernel| kernel.kill(child)).unwrap();
        assert_eq!(world.ticks(2).attached[0].nr_processes, 3);
        detach(&mut world, &processes(&pids)).unwrap();
        assert_eq!(world.tick().attached, []);
        world.ticks(1);
        assert_eq!(pids.map(|pid| place(&world, pid)), claimed[..3]);
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

/// A user cannot hand over what may be of others: a name that is not UTF-8 hides no owner, and neither does an error.
#[test]
fn work_whose_owner_is_not_known_is_refused() {
    let mut world = host(SimHost::default());
    let other = Workload::constant("\\xd0", Load::idle()).owned_by(1001);
    let other = world.host.with(|kernel| kernel.spawn("/jobs/2", other)).unwrap();
    let own = Workload::constant("own", Load::idle()).owned_by(1000);
    let own = world.host.with(|kernel| kernel.spawn("/jobs/3", own)).unwrap();
    world.start().unwrap();
    world.ticks(3);
    let ana = Caller { user: Some(1000), pid: 0 };
    let refused = |world: &mut World, work: Work| {
        let outcome = world.agent.as_mut().unwrap().attach_work("a", &work, false, ana);
        refusal(outcome)
    };
    assert!(refused(&mut world, cgroup("/jobs/2")).contains("is not yours"));
    let name = refused(&mut world, processes(&[other]));
    assert!(name.starts_with(&format!("process {other} (")), "{name}");
    assert!(name.ends_with("is not yours (UID 1000) but of UID 1001"), "{name}");
    for file in ["status", "stat", "cgroup"] {
        let suffix = format!("{own}/{file}");
        world.host.inject(Fault::matching(Operation::Read, &suffix, Errno::EIO));
        for work in [processes(&[own]), cgroup("/jobs/3")] {
            // The cgroup of a process that is in a cgroup of the user's is not asked for.
            if file == "status" || work == processes(&[own]) {
                let why = refused(&mut world, work);
                assert!(why.contains(&format!("cannot read /proc/{suffix}")), "{why}");
            }
        }
        world.host.heal();
    }
    assert_eq!(members(&world, "a").len(), 0);
    assert_eq!([own, other].map(|pid| place(&world, pid)), ["/jobs/3", "/jobs/2"]);
    assert_eq!(world.stop().failures, [""; 0]);
}

/// A process of the user's that becomes another's, or ends, at any moment.
#[test]
fn a_process_is_the_users_when_it_is_moved() {
    for ends in [false, true] {
        let mut world = host(SimHost::default());
        world.start().unwrap();
        world.ticks(3);
        let spawn = |world: &World| {
            let workload = Workload::constant("load", Load::idle()).owned_by(1000);
            world.host.with(|kernel| kernel.spawn("/jobs/2", workload)).unwrap()
        };
        let pid = spawn(&world);
        let ana = Caller { user: Some(1000), pid: 0 };
        let set =
            move |kernel: &mut SimKernel, real: u32| kernel.set_users(pid, real, 1000).unwrap();
        // A program of another user's that has hers for a while.
        world.host.with(|kernel| set(kernel, 0));
        for work in [processes(&[pid]), cgroup("/jobs/2")] {
            let outcome = world.agent.as_mut().unwrap().attach_work("a", &work, false, ana);
            assert!(matches!(outcome, Err(AttachError::NotPermitted(_))), "{outcome:?}");
        }
        let nr_dirs = |world: &World| world.host.with(|kernel| kernel.nr_kept_dirs());
        let (mut nr_taken_back, before) = (0, nr_dirs(&world));
        for call in 0.. {
            let pid = if ends { spawn(&world) } else { pid };
            world.host.with(|kernel| kernel.set_users(pid, 1000, 1000).unwrap());
            world.host.take_calls();
            let begin = world.host.nr_calls();
            world.host.before_call(begin + call, move |kernel| {
                if ends {
                    kernel.kill(pid).unwrap()
                } else {
                    kernel.set_users(pid, 1000, 0).unwrap()
                }
            });
            let outcome =
                world.agent.as_mut().unwrap().attach_work("a", &processes(&[pid]), false, ana);
            let was_moved =
                world.host.take_changes().iter().any(|it| it.path.ends_with("cgroup.procs"));
            if world.host.nr_calls() <= begin + call {
                break;
            }
            match outcome {
                Ok(_) => drop(detach(&mut world, &processes(&[pid]))),
                Err(_) => nr_taken_back += usize::from(was_moved),
            }
            if !ends {
                assert_eq!(place(&world, pid), "/jobs/2", "at call {call}");
            }
        }
        world.host.heal();
        assert!(nr_taken_back > 0 && nr_dirs(&world) <= before + 1, "{nr_taken_back}");
        world.tick();
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// Beside systemd: the cgroup of a unit is that unit, and processes leave units only where that is asked for.
#[test]
fn work_in_units_is_handed_over_as_units() {
    let yaml = "tenants: { a: { weight: 300 }, web: { match: { unit: web.service } } }";
    let mut world = World::new(yaml);
    world.options.root = Some("/tenants".into());
    world.host.systemd(|systemd, kernel| {
        for name in ["web", "job", "engine"] {
            let unit = format!("{name}.service");
            systemd.add(kernel, &unit, &format!("/system.slice/{unit}"));
        }
    });
    world.host.with(|kernel| kernel.make_cgroup("/system.slice/engine.service/box")).unwrap();
    let paths = ["web.service", "job.service", "engine.service/box"];
    let paths = paths.map(|path| format!("/system.slice/{path}"));
    let pids = paths.clone().map(|path| busy(&world, &path));
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(5);
    let why = refusal(attach(&mut world, "a", &processes(&pids[2..])));
    assert!(why.contains("--cgroup /system.slice/engine.service/box"), "{why}");
    for path in &paths[1..] {
        attach(&mut world, "a", &cgroup(path)).unwrap();
    }
    let status = world.ticks(20);
    // The root is of nobody's here.
    let said = status.findings.iter().filter(|it| !it.contains("/tenants is not protected"));
    assert_eq!(said.count(), 0, "{:?}", status.findings);
    let box_at = ("/system.slice/engine.service/box", true);
    assert_eq!(names(&members(&world, "a")), [("./a", false), box_at, ("job.service", true)]);
    let ratio = used(&status, "a") / used(&status, "web");
    assert!((ratio - 3.0).abs() < 0.3, "{ratio}");
    let changed: BTreeSet<String> =
        world.host.take_changes().iter().map(|call| call.path.display().to_string()).collect();
    assert!(!changed.iter().any(|path| path.contains("job.service")), "{changed:?}");
    // Through the list of the state directory as well.
    world.kill();
    world.start().unwrap();
    world.ticks(5);
    assert_eq!(names(&members(&world, "a")), [("./a", false), box_at, ("job.service", true)]);
    detach(&mut world, &cgroup("/system.slice/engine.service/box")).unwrap();
    let agent = world.agent.as_mut().unwrap();
    agent.attach_work("a", &processes(&pids[2..]), true, ROOT).unwrap();
    assert_eq!(place(&world, pids[2]), "/tenants/a");
    // A unit that ends is detached.
    world.host.with(|kernel| kernel.kill(pids[1])).unwrap();
    world.host.systemd(|systemd, kernel| systemd.stop(kernel, "job.service"));
    world.ticks(8);
    assert_eq!(names(&members(&world, "a")), [("./a", false)]);
    world.host.systemd(|systemd, kernel| systemd.start(kernel, "job.service"));
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(place(&world, pids[2]), paths[2]);
    let after = snapshot(&world.host);
    let of_box = |path: &&String| path.contains("engine.service");
    for path in before.keys().filter(of_box) {
        assert_eq!(before[path], after[path], "{path}");
    }
}

/// A user's attached cgroups cost the agent reads in every tick, so they are bounded; an administrator's are not.
#[test]
fn what_a_user_attaches_is_bounded() {
    let mut kernel = SimKernel::new(SimHost::default());
    let names: Vec<String> = (0..80).map(|number| format!("/many/{number}")).collect();
    let deep: Vec<String> = (0..1100).map(|number| format!("/deep/{number}")).collect();
    for path in names.iter().chain(&deep) {
        kernel.make_cgroup(path).unwrap();
    }
    let mut world = World::with(kernel, POLICY);
    world.host.without_systemd();
    world.options.root = Some("/tenants".into());
    world.start().unwrap();
    world.ticks(2);
    let user = |world: &mut World, path: &str| {
        let workload = Workload::constant("sh", Load::busy(1)).owned_by(1000);
        world.host.with(|kernel| kernel.spawn(path, workload)).unwrap();
        let caller = Caller { user: Some(1000), pid: 0 };
        world.agent.as_mut().unwrap().attach_work("a", &cgroup(path), false, caller)
    };
    let caller = Caller { user: Some(1000), pid: 0 };
    let outcome = world.agent.as_mut().unwrap().attach_work("a", &cgroup("/deep"), false, caller);
    let refusal_of_deep = refusal(outcome);
    assert!(refusal_of_deep.contains("more than 1000 cgroups"), "{refusal_of_deep}");
    // The way back of a user's process is a walk too.
    let own = Workload::constant("own", Load::idle()).owned_by(1000);
    let own = world.host.with(|kernel| kernel.spawn("/many/0", own)).unwrap();
    let agent = world.agent.as_mut().unwrap();
    agent.attach_work("a", &processes(&[own]), false, caller).unwrap();
    world.host.with(|kernel| {
        let dir = kernel.open_dir(Path::new("/sys/fs/cgroup/tenants/a")).unwrap();
        for number in 0..1100 {
            kernel.make_dir(dir, &number.to_string()).unwrap();
        }
    });
    let why = refusal(world.agent.as_mut().unwrap().detach_work(&processes(&[own]), caller));
    assert!(why.contains("more than 1000 cgroups below"), "{why}");
    detach(&mut world, &processes(&[own])).unwrap();
    let outcomes: Vec<_> = names.iter().map(|path| user(&mut world, path)).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 64);
    let last = refusal(outcomes.into_iter().next_back().unwrap());
    assert!(last.contains("64 cgroups by this user") && last.contains("detach"), "{last}");
    attach(&mut world, "a", &cgroup(names.last().unwrap())).unwrap();
}
