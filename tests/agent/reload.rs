//! Another policy under a running agent: what stays is not touched, what went leaves nothing.

use std::os::unix::fs::symlink;

use nix::errno::Errno;
use tenantd::agent::ChangeError;
use tenantd::agent::{Agent, Options, StartError};
use tenantd::backend::claims;
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::Operation;
use tenantd_policy::key::Flag;
use tenantd_policy::model::Mode;
use tenantd_sim::{Controller, Fault, Layout, Load, SimHost, SimKernel, Workload};

use super::world::{World, assert_same, legacy, snapshot, tenant};
use crate::util;

/// Takes up `yaml` in place of the policy in force.
pub(super) fn reload(world: &mut World, yaml: &str) -> Result<Vec<String>, ChangeError> {
    let mode = if yaml.contains("mode:") { "" } else { "mode: enforce\n" };
    let policy = util::policy(&format!("version: 1\n{mode}{yaml}"));
    let rules = claims::rules(&policy);
    let outcome = world.agent.as_mut().unwrap().reload(policy.clone(), rules);
    if outcome.is_ok() {
        world.policy = policy;
    }
    outcome
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

fn exists(world: &World, path: &str) -> bool {
    world.host.with(|kernel| kernel.file(&format!("/sys/fs/cgroup/{path}/cgroup.procs"))).is_ok()
}

/// A host on which tenants live below a root of their own.
fn rooted(host: SimHost, yaml: &str) -> World {
    let mut world = World::on(host, yaml);
    world.options.root = Some("/tenants".into());
    world
}

#[test]
fn a_tenant_that_stays_is_not_touched() {
    let two = "tenants:\n  a: { weight: 300 }\n  b: {}\n";
    let mut world = rooted(SimHost::default(), two);
    world.start().unwrap();
    world.tick();
    let pid = world.spawn("/tenants/a", Load::busy(2));
    let before = world.ticks(8);
    let inode = snapshot(&world.host)["/sys/fs/cgroup/tenants/a"].clone();
    world.host.take_changes();
    let changed = "tenants:\n  c: {}\n  a: { weight: 300 }\n";
    assert_eq!(reload(&mut world, changed).unwrap(), [""; 0]);
    let after = world.tick();
    let touched: Vec<_> = world
        .host
        .take_changes()
        .into_iter()
        .filter(|call| format!("{call:?}").contains("tenants/a"))
        .collect();
    assert!(touched.is_empty(), "{touched:?}");
    assert_eq!(snapshot(&world.host)["/sys/fs/cgroup/tenants/a"], inode);
    assert_eq!(place(&world, pid), "/tenants/a");
    let (before, after_a) = (tenant(&before, "a"), tenant(&after, "a"));
    assert!(after_a.usage[CPU].is_some(), "its samples go on");
    assert_eq!((before.dop, before.demand[CPU]), (after_a.dop, after_a.demand[CPU]));
    assert_eq!((after.nr_reloads, after.tenants.len()), (1, 2));
    assert!(exists(&world, "tenants/c") && !exists(&world, "tenants/b"));
}

#[test]
fn a_removed_tenant_leaves_no_cgroup_and_its_processes_stay_below_the_root() {
    for (host, tree, refuge) in
        [(SimHost::default(), "", "/tenants/tenantd.rest"), (legacy(), "cpu/", "/tenants")]
    {
        let mut world = rooted(host, "tenants:\n  a: {}\n  ci: { tenants: { x: {}, y: {} } }\n");
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(2);
        let pid = world.spawn("/tenants/ci/x", Load::idle());
        world.ticks(2);
        assert_eq!(reload(&mut world, "tenants: { a: {} }").unwrap(), [""; 0]);
        world.ticks(2);
        for gone in ["ci", "ci/x", "ci/y"] {
            assert!(!exists(&world, &format!("{tree}tenants/{gone}")), "{gone}");
        }
        assert_eq!(place(&world, pid), refuge);
        assert_eq!(world.stop().failures, [""; 0]);
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
        assert_same(&before, &snapshot(&world.host), "after the stop");
    }
}

#[test]
fn removed_tenants_are_restored() {
    let limits = "tenants:\n  a: { limit: { cpu: 1, memory: 1GiB } }\n  b: {}\n";
    let mut world = World::begin(limits);
    assert_eq!(world.file("a/cpu.max"), "100000 100000");
    assert_eq!(world.file("a/memory.max"), (1_u64 << 30).to_string());
    assert_eq!(reload(&mut world, "tenants: { a: {}, b: {} }").unwrap(), [""; 0]);
    assert_eq!(
        (world.file("a/cpu.max"), world.file("a/memory.max")),
        ("max 100000".into(), "max".into())
    );
    world.ticks(20);
    assert_eq!(world.file("a/cpu.max"), "max 100000");
    // And what is named again is written again.
    reload(&mut world, limits).unwrap();
    world.tick();
    assert_eq!(world.file("a/cpu.max"), "100000 100000");
}

/// It was left to that writer, and not only for as long as the policy has a limit.
#[test]
fn what_was_left_to_another_writer_stays_when_the_policy_no_longer_names_it() {
    let accepting = "control: { on_drift: accept }\ntenants: { a: ";
    for (host, file, value) in [
        (SimHost::default(), "tenants/a/cpu.max", "30000 100000"),
        (legacy(), "cpu/tenants/a/cpu.cfs_quota_us", "30000"),
    ] {
        let mut world = rooted(host, &format!("{accepting} {{ limit: {{ cpu: 1 }} }} }}"));
        world.host.with(|kernel| kernel.make_cgroup("/tenants/a").unwrap());
        world.start().unwrap();
        world.ticks(2);
        world.write(file, value);
        world.ticks(12);
        assert_eq!(reload(&mut world, &format!("{accepting} {{}} }}")).unwrap(), [""; 0]);
        assert_eq!(world.file(file), value);
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(world.file(file), value);
    }
}

#[test]
fn tenants_are_pinned_and_let_go_again() {
    for host in [SimHost::default(), legacy()] {
        let tree = if host.layout == Layout::Legacy { "cpuset/" } else { "" };
        let mut world = rooted(host, "tenants: { a: {}, b: {} }");
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.tick();
        let pid = world.spawn("/tenants/a", Load::busy(8));
        world.ticks(3);
        reload(&mut world, "tenants: { a: { cpus: dop }, b: {} }").unwrap();
        world.ticks(3);
        let file = format!("{tree}tenants/a/cpuset.cpus");
        assert!(!world.file(&file).is_empty(), "pinned");
        assert_eq!(reload(&mut world, "tenants: { a: {}, b: {} }").unwrap(), [""; 0]);
        world.ticks(3);
        let all = world.host.with(|kernel| kernel.file("/sys/devices/system/cpu/online")).unwrap();
        let held = world.file(&file);
        assert!(held.is_empty() || held == all.trim_end(), "{held} is not all");
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "after the stop");
    }
}

#[test]
fn processes_of_a_changed_claim_return_to_their_origin() {
    let mut kernel = SimKernel::new(SimHost::default());
    kernel.make_cgroup("/home/x").unwrap();
    let ana = "tenants: { a: { match: { users: [ 1000 ], move: true } }, b: {} }";
    let mut world = World::with(kernel, ana);
    world.host.without_systemd();
    world.options.root = Some("/tenants".into());
    let workload = Workload::constant("load", Load::idle()).owned_by(1000);
    let pid = world.host.with(|kernel| kernel.spawn("/home/x", workload)).unwrap();
    world.start().unwrap();
    world.ticks(2);
    assert_eq!(place(&world, pid), "/tenants/a");
    assert_eq!(reload(&mut world, "tenants: { a: {}, b: {} }").unwrap(), [""; 0]);
    assert_eq!(place(&world, pid), "/home/x");
    world.ticks(6);
    assert_eq!(place(&world, pid), "/home/x");
    let bob = "tenants: { a: {}, b: { match: { users: [ 1000 ], move: true } } }";
    reload(&mut world, bob).unwrap();
    world.ticks(6);
    assert_eq!(place(&world, pid), "/tenants/b");
    world.stop();
    assert_eq!(place(&world, pid), "/home/x");
}

#[test]
fn a_tenant_may_become_a_group_and_a_group_a_tenant() {
    let mut world = rooted(SimHost::default(), "tenants: { a: {}, b: { tenants: { x: {} } } }");
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.tick();
    let pids = [world.spawn("/tenants/a", Load::idle()), world.spawn("/tenants/b/x", Load::idle())];
    world.ticks(2);
    let swapped = "tenants: { a: { tenants: { x: {} } }, b: {} }";
    assert_eq!(reload(&mut world, swapped).unwrap(), [""; 0]);
    let status = world.ticks(2);
    let is_of_tenant = |finding: &&String| finding.starts_with("a") || finding.starts_with("b");
    assert_eq!(status.findings.iter().find(is_of_tenant), None);
    assert!(exists(&world, "tenants/a/x") && !exists(&world, "tenants/b/x"));
    world.stop();
    for pid in pids {
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
    }
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

#[test]
fn a_root_that_changes_takes_a_restart() {
    let mut world = World::begin("tenants: { a: {} }");
    world.host.take_changes();
    let refused = reload(&mut world, "host: { root: /elsewhere }\ntenants: { b: {} }").unwrap_err();
    assert!(matches!(refused, ChangeError::NeedsRestart("host.root")), "{refused}");
    assert!(world.host.take_changes().is_empty());
    assert_eq!(world.tick().tenants[0].name, "a");
}

#[test]
fn an_observer_writes_no_file() {
    let policy = "tenants:\n  a: { weight: 300, limit: { memory: 1GiB } }\n  b: {}\n";
    let mut world = rooted(SimHost::default(), policy);
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(3);
    assert!(world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap().is_empty());
    assert_same(&before, &snapshot(&world.host), "while observing");
    assert_eq!(world.ticks(3).mode, Mode::Observe);
    assert_same(&before, &snapshot(&world.host), "after observing");
    world.agent.as_mut().unwrap().set_mode(Mode::Enforce).unwrap();
    assert_eq!(world.ticks(3).mode, Mode::Enforce);
    assert_ne!(before, snapshot(&world.host));
    // The policy's mode did not change, so that what was said by hand holds.
    world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    reload(&mut world, "tenants: { a: {} }").unwrap();
    assert_eq!(world.tick().mode, Mode::Observe);
    reload(&mut world, "mode: observe\ntenants: { a: {} }").unwrap();
    reload(&mut world, "mode: enforce\ntenants: { a: {} }").unwrap();
    assert_eq!(world.tick().mode, Mode::Enforce);
    reload(&mut world, "mode: observe\ntenants: { a: {} }").unwrap();
    assert_same(&before, &snapshot(&world.host), "by the policy");
    world.stop();
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

#[test]
fn an_agent_started_to_observe_observes() {
    let mut world = World::new("mode: observe\ntenants: { a: {} }");
    world.options.observe = true;
    world.start().unwrap();
    world.tick();
    let refused = world.agent.as_mut().unwrap().set_mode(Mode::Enforce).unwrap_err();
    assert!(matches!(refused, ChangeError::OnlyObserves), "{refused}");
    reload(&mut world, "mode: enforce\ntenants: { a: {} }").unwrap();
    assert_eq!(world.tick().mode, Mode::Observe);
}

#[test]
fn an_observer_may_begin_to_enforce_and_be_refused() {
    let mut world = rooted(SimHost::default(), "mode: observe\ntenants: { a: {} }");
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.tick();
    world.host.inject(Fault::matching(Operation::Write, "cgroup.procs", Errno::EACCES));
    assert!(reload(&mut world, "mode: enforce\ntenants: { b: {} }").is_err());
    world.host.heal();
    assert_same(&before, &snapshot(&world.host), "refused");
    let status = world.tick();
    assert_eq!((status.mode, &*status.tenants[0].name), (Mode::Observe, "a"));
    reload(&mut world, "mode: enforce\ntenants: { b: {} }").unwrap();
    world.ticks(2);
    assert!(exists(&world, "tenants/b"));
    world.stop();
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

#[test]
fn a_journal_that_cannot_be_emptied_does_not_prevent_mode_changes() {
    let limited = "tenants: { a: { limit: { cpu: 1 } }, b: {} }";
    let mut world = rooted(SimHost::default(), limited);
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(3);
    let enforced = snapshot(&world.host);
    // The journal's successor is written beside it: here, to where every disk is full.
    symlink("/dev/full", world.state_dir().join("journal.new")).unwrap();
    let failures = world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    assert!(failures.len() == 1 && failures[0].contains("No space left"), "{failures:?}");
    assert_eq!(world.tick().mode, Mode::Observe);
    assert_same(&before, &snapshot(&world.host), "while observing");
    assert!(world.agent.as_mut().unwrap().set_mode(Mode::Enforce).unwrap().is_empty());
    world.ticks(3);
    let names = |snapshot: &super::world::Snapshot| snapshot.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&enforced), names(&snapshot(&world.host)));
    assert_eq!(world.file("tenants/a/cpu.max"), "100000 100000");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

#[test]
fn a_refused_agent_does_not_hold_the_root() {
    let host = SimHost { controllers: vec![Controller::Pids], ..SimHost::default() };
    let mut kernel = SimKernel::new(host);
    kernel.make_cgroup("/tenants").unwrap();
    let options = Options { root: Some("/tenants".into()), ..Options::default() };
    let policy = util::policy("version: 1\ntenants: { a: {} }");
    let mut agent = Agent::start(kernel, policy, Vec::new(), &options).unwrap();
    for _ in 0..3 {
        let refused = agent.set_mode(Mode::Enforce).unwrap_err();
        let no_controllers = matches!(refused, ChangeError::Start(StartError::NoControllers(_)));
        assert!(no_controllers, "{refused}");
    }
}

#[test]
fn a_reload_that_cannot_pin_has_no_effect() {
    for (host, fault) in [
        (
            SimHost::default(),
            Fault::matching(Operation::Write, "made/cgroup.subtree_control", Errno::EACCES),
        ),
        (legacy(), Fault::matching(Operation::MakeDir, "cpuset/made/tenants", Errno::EACCES)),
    ] {
        let mut world = World::on(host, "tenants: { a: {} }");
        world.options.root = Some("/made/tenants".into());
        world.start().unwrap();
        world.ticks(2);
        let before = snapshot(&world.host);
        world.host.inject(fault);
        assert!(reload(&mut world, "tenants: { a: { cpus: dop } }").is_err());
        world.host.heal();
        assert_same(&before, &snapshot(&world.host), "refused");
        reload(&mut world, "tenants: { a: { cpus: dop } }").unwrap();
        world.ticks(3);
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// A life with reloads in it; its calls are counted by the first run and fail one by one in the others.
fn live(world: &mut World) {
    let policies = [
        "tenants:\n  a: { limit: { cpu: 1 } }\n  c: { cpus: dop }\n  g: { tenants: { x: {} } }\n",
        "mode: observe\ntenants: { a: {} }\n",
        "tenants:\n  a: { cpus: dop }\n  b: { tenants: { y: {} } }\n",
        "tenants: { a: {} }\n",
    ];
    world.ticks(2);
    for policy in policies {
        let _ = reload(world, policy);
        world.ticks(2);
    }
}

#[test]
fn any_call_may_fail_in_a_reload() {
    for host in [SimHost::default(), legacy()] {
        let begin = || {
            let mut world = rooted(host.clone(), "tenants:\n  a: { weight: 300 }\n  b: {}\n");
            let before = snapshot(&world.host);
            world.start().unwrap();
            (world, before)
        };
        let (mut world, _) = begin();
        let first = world.host.nr_calls();
        live(&mut world);
        let last = world.host.nr_calls();
        assert!(last - first > 300);
        for call in (first..last).step_by(3) {
            let (mut world, before) = begin();
            let errno =
                [Errno::EACCES, Errno::EBUSY, Errno::EIO, Errno::ENOSPC][(call % 4) as usize];
            world.host.inject(Fault::at_call(call, errno));
            live(&mut world);
            world.host.heal();
            let stopped = world.agent.take().unwrap().stop().unwrap().0;
            if !stopped.failures.is_empty() {
                assert_eq!(world.restore().failures, [""; 0], "call {call} answers {errno}");
            }
            let context = format!("call {call} answers {errno}");
            assert_same(&before, &snapshot(&world.host), &context);
        }
    }
}

/// The table of keys says which keys a running agent cannot change.
#[test]
fn a_reload_refuses_exactly_the_keys_that_need_a_restart() {
    for key in crate::policy::keys::changed().into_iter().filter(|key| key.path.contains('.')) {
        let mut world = World::on(SimHost::default(), "tenants: { a: {} }\n");
        world.start().unwrap();
        let policy = util::policy(&key.yaml);
        let rules = claims::rules(&policy);
        let refused = match world.agent.as_mut().unwrap().reload(policy, rules) {
            Err(ChangeError::NeedsRestart(path)) => Some(path),
            _ => None,
        };
        let expected = key.flags.contains(&Flag::Restart).then_some(&*key.path);
        assert_eq!(refused, expected, "{}", key.path);
    }
}
