//! Many tenants and many processes: what a tick does is counted in calls to the kernel, not in time.

use std::fmt::Write;
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain;
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::Operation;
use tenantd_policy::model::{Amount, Mode};
use tenantd_sim::{Fault, Load, SimHost, SimKernel, Workload};

use super::world::{World, assert_same, legacy, snapshot};
use crate::util;

fn crowd(nr_tenants: usize) -> World {
    let mut yaml = "tenants:\n".to_string();
    for number in 0..nr_tenants {
        writeln!(yaml, "  t{number}: {{ weight: {} }}", 100 + number % 7).unwrap();
    }
    World::new(&yaml)
}

/// Does all the work that the last tick left over.
fn finish(world: &mut World) -> usize {
    let agent = world.agent.as_mut().unwrap();
    let mut nr_steps = 0;
    while agent.has_more_work() {
        agent.continue_work();
        nr_steps += 1;
        assert!(nr_steps < 1000, "it never ends");
    }
    nr_steps
}

fn written(status: &Status) -> usize {
    status.tenants.iter().filter(|tenant| tenant.cpu_weight.is_some()).count()
}

fn dop_file(world: &World, tenant: &str) -> bool {
    world.state_dir().join("tenants").join(tenant).join("dop").exists()
}

#[test]
fn the_first_tick_of_a_service_is_as_short_with_many_tenants_as_with_few() {
    let calls = [20, 400].map(|nr_tenants| {
        let mut world = crowd(nr_tenants);
        world.start().unwrap();
        let before = world.host.nr_calls();
        world.short_tick();
        world.host.nr_calls() - before
    });
    assert_eq!(calls[0], calls[1]);
}

#[test]
fn tenants_that_are_not_attached_yet_are_not_reported_as_written() {
    let mut world = crowd(100);
    world.start().unwrap();
    let status = world.short_tick();
    let attached = written(&status);
    assert!(0 < attached && attached < 50, "{attached}");
    assert_eq!(status.findings, [""; 0]);
    assert!(
        status
            .actions
            .iter()
            .all(|action| world.host.with(|kernel| kernel.file(&action.path).is_ok()))
    );
    assert!(dop_file(&world, "t0") && !dop_file(&world, "t99"));
    let explained = |world: &World, status: &Status| {
        let trace = world.agent.as_ref().unwrap().trace();
        let explanation = explain::explain(trace, status, "t99").unwrap();
        serde_json::to_string(&explanation).unwrap()
    };
    let reason = explained(&world, &status);
    assert!(reason.contains("not opened yet"), "{reason}");
    // Some at each step, so that a signal does not wait for all of them.
    assert!(finish(&mut world) > 1);
    assert!(dop_file(&world, "t99"));
    let status = world.short_tick();
    let status = if written(&status) == 100 { status } else { world.short_tick() };
    assert_eq!((written(&status), status.findings.len()), (100, 0), "{:?}", status.findings);
    assert!(!explained(&world, &status).contains("not opened yet"));
}

#[test]
fn a_service_whose_ticks_are_always_due_attaches_all_tenants_all_the_same() {
    let mut world = crowd(100);
    world.start().unwrap();
    let written = (0..12).map(|_| written(&world.short_tick())).last();
    assert_eq!(written, Some(100));
}

#[test]
fn tenants_that_cannot_be_attached_keep_no_other_waiting() {
    let mut world = crowd(100);
    for number in 0..40 {
        let path = format!("/sys/fs/cgroup/t{number}");
        world.host.inject(Fault::matching(Operation::Open, &path, Errno::EACCES));
    }
    world.start().unwrap();
    world.short_tick();
    finish(&mut world);
    let status = (0..3).map(|_| world.short_tick()).last().unwrap();
    assert_eq!(written(&status), 60);
    assert_eq!(status.findings.iter().filter(|finding| finding.contains("EACCES")).count(), 40);
}

#[test]
fn a_stop_or_a_kill_while_tenants_are_attached_leaves_nothing() {
    for killed in [false, true] {
        for nr_steps in [0, 1, 2] {
            let mut world = crowd(100);
            let before = snapshot(&world.host);
            world.start().unwrap();
            world.short_tick();
            let agent = world.agent.as_mut().unwrap();
            (0..nr_steps).for_each(|_| agent.continue_work());
            assert!(agent.has_more_work());
            assert_eq!(world.end(killed).failures, [""; 0]);
            assert_same(&before, &snapshot(&world.host), "after the end");
        }
    }
}

/// `nr_processes` of one tenant, which claims them by their owner.
fn claimed(host: SimHost, cpus: &str, nr_processes: usize) -> World {
    let mut world = World::with(
        SimKernel::new(host),
        &format!("tenants: {{ ana: {{ {cpus} match: {{ users: [ 1000 ] }} }}, bob: {{}} }}"),
    );
    world.options.root = Some("/tenants".into());
    world.host.without_systemd();
    for _ in 0..nr_processes {
        let workload = Workload::constant("load", Load::idle()).owned_by(1000);
        world.host.with(|kernel| kernel.spawn("/", workload)).unwrap();
    }
    world
}

/// How often a tick reads where a process is.
fn nr_places(world: &mut World) -> usize {
    world.host.take_calls();
    world.tick();
    let calls = world.host.take_calls();
    calls.iter().filter(|c| c.path.starts_with("/proc") && c.path.ends_with("cgroup")).count()
}

#[test]
fn no_tick_reads_where_all_processes_are() {
    let nr_processes = 500;
    let mut world = claimed(SimHost::default(), "", nr_processes);
    world.start().unwrap();
    world.ticks(30);
    let nr_read: Vec<usize> = (0..25).map(|_| nr_places(&mut world)).collect();
    assert!(nr_read.iter().all(|nr| *nr <= nr_processes / 20), "{nr_read:?}");
    // Each of them once, in all; those that are in no tenant more often.
    let sum: usize = nr_read.iter().sum();
    assert!((nr_processes..nr_processes + 30).contains(&sum), "{sum}");
}

/// Where a journal has many records of moved processes, it is looked for those that have ended.
#[test]
fn the_journal_is_rewritten_only_where_processes_have_ended() {
    let mut world = claimed(SimHost::default(), "", 1100);
    world.start().unwrap();
    let journal = |world: &World| {
        let path = world.state_dir().join("journal");
        let inode = std::fs::metadata(&path).unwrap().ino();
        let text = std::fs::read_to_string(path).unwrap();
        (inode, text.lines().filter(|line| line.contains("start_ticks")).count())
    };
    world.tick();
    let first = journal(&world);
    assert_eq!(first.1, 1100);
    world.ticks(12);
    assert_eq!(journal(&world), first);
    let pids = world.host.with(|kernel| kernel.pids());
    let ended = pids.iter().rev().take(200);
    ended.for_each(|pid| world.host.with(|kernel| kernel.kill(*pid)).unwrap());
    // Those that live are not checked again before there are twice as many.
    for _ in 0..1150 {
        let workload = Workload::constant("late", Load::idle()).owned_by(1000);
        world.host.with(|kernel| kernel.spawn("/", workload)).unwrap();
    }
    world.ticks(7);
    let last = journal(&world);
    assert_ne!(last.0, first.0);
    assert_eq!(last.1, 1100 - 200 + 1150);
}

#[test]
fn a_process_that_comes_or_that_left_its_tenant_is_claimed() {
    let mut world = claimed(SimHost::default(), "", 50);
    world.start().unwrap();
    world.ticks(30);
    let workload = Workload::constant("late", Load::idle()).owned_by(1000);
    let late = world.host.with(|kernel| kernel.spawn("/", workload)).unwrap().to_string();
    let is_claimed = |world: &World, pid: &str| {
        world.file("tenants/ana/cgroup.procs").lines().any(|line| line == pid)
    };
    world.ticks(5);
    assert!(is_claimed(&world, &late));
    world.ticks(5);
    world.write("cgroup.procs", &late);
    assert!(!is_claimed(&world, &late));
    world.ticks(25);
    assert!(is_claimed(&world, &late));
}

#[test]
fn a_short_tick_moves_few_processes_and_the_others_follow() {
    let mut world = claimed(SimHost::default(), "", 400);
    world.start().unwrap();
    let nr_inside = |world: &World| world.file("tenants/ana/cgroup.procs").lines().count();
    world.short_tick();
    finish(&mut world);
    assert_eq!(nr_inside(&world), 400);
    for _ in 0..400 {
        let workload = Workload::constant("load", Load::idle()).owned_by(1000);
        world.host.with(|kernel| kernel.spawn("/", workload)).unwrap();
    }
    world.short_tick();
    let now = nr_inside(&world);
    assert!((401..=416).contains(&now), "{now}");
    finish(&mut world);
    assert!((470..=490).contains(&nr_inside(&world)), "the part that was begun");
    (0..4).for_each(|_| {
        world.short_tick();
        finish(&mut world);
    });
    assert_eq!(nr_inside(&world), 800);
}

#[test]
fn a_service_claims_between_its_ticks_what_is_there_when_it_starts() {
    let mut world = claimed(SimHost::default(), "", 50);
    world.start().unwrap();
    world.short_tick();
    finish(&mut world);
    assert_eq!(world.file("tenants/ana/cgroup.procs").lines().count(), 50);
}

#[test]
fn cpusets_of_their_own_are_not_compared_in_every_tick() {
    let mut world = claimed(legacy(), "cpus: dop,", 50);
    world.start().unwrap();
    world.ticks(12);
    assert_eq!(world.file("cpuset/tenants/ana/cgroup.procs").lines().count(), 50);
    let compares = |world: &mut World| {
        world.host.take_calls();
        world.tick();
        let calls = world.host.take_calls();
        let path = "/sys/fs/cgroup/cpuset/tenants/ana/cgroup.procs";
        calls.iter().any(|call| call.path.as_os_str() == path)
    };
    let nr_ticks = (0..10).filter(|_| compares(&mut world)).count();
    assert_eq!(nr_ticks, 2);
}

#[test]
fn a_change_of_mode_or_policy_is_followed_by_the_same_steps() {
    let mut world = claimed(SimHost::default(), "", 50);
    world.start().unwrap();
    world.short_tick();
    finish(&mut world);
    let agent = world.agent.as_mut().unwrap();
    for mode in [Mode::Observe, Mode::Enforce] {
        agent.set_mode(mode).unwrap();
    }
    finish(&mut world);
    assert_eq!(world.file("tenants/ana/cgroup.procs").lines().count(), 50);
    let yaml = "version: 1\nmode: enforce\ntenants: { ana: {}, bob: {}, eve: {} }";
    world.agent.as_mut().unwrap().reload(util::policy(yaml), Vec::new()).unwrap();
    finish(&mut world);
    assert_eq!(world.file("tenants/eve/cgroup.procs"), "");
    world.stop();
}

/// Tenants with limits and guarantees below two groups, all of them attached, before the first decision.
fn nested(nr_tenants: usize) -> World {
    let mut yaml = "tenants:\n".to_string();
    for group in ["ci", "web"] {
        writeln!(yaml, "  {group}:\n    limit: {{ cpu: 3 }}\n    tenants:").unwrap();
        for number in 0..nr_tenants / 2 {
            let weight = 100 + number % 7;
            writeln!(yaml, "      t{number}: {{ weight: {weight}, limit: {{ cpu: 1 }} }}").unwrap();
        }
    }
    let mut world = World::new(&yaml);
    world.start().unwrap();
    world
}

/// Halves the limits of all tenants by a reload.
fn halve_limits(world: &mut World) {
    let mut policy = world.policy.clone();
    for tenant in policy.tenants.iter_mut().flat_map(|group| &mut group.tenants) {
        let half = tenant.limit[CPU].and_then(|limit| limit.on(None)).map(|limit| limit / 2);
        tenant.limit[CPU] = half.map(Amount::Absolute);
    }
    world.agent.as_mut().unwrap().reload(policy, Vec::new()).unwrap();
    world.host.take_changes();
}

/// The files that were changed since the last call.
fn changed(world: &World) -> Vec<String> {
    world.host.take_changes().iter().map(|call| call.path.display().to_string()).collect()
}

fn reported(status: &Status) -> Vec<String> {
    status.actions.iter().map(|action| action.path.clone()).collect()
}

#[test]
fn a_short_tick_writes_few_values_and_reports_no_others_as_written() {
    let mut world = nested(200);
    (0..20).for_each(|_| drop(world.short_tick()));
    finish(&mut world);
    halve_limits(&mut world);
    let status = world.short_tick();
    let written = changed(&world);
    assert!((1..=16).contains(&written.len()), "{}", written.len());
    assert_eq!(reported(&status), written);
    let trace = world.agent.as_ref().unwrap().trace();
    let explanation = explain::explain(trace, &status, "web/t99").unwrap();
    let text = serde_json::to_string(&explanation).unwrap();
    assert!(text.contains("it is written after others"), "{text}");
    // The others follow in the order of the plan, and the next tick reports them.
    assert!(finish(&mut world) > 1);
    let late = changed(&world);
    assert_eq!(written.len() + late.len(), 200);
    assert_eq!(late.last().unwrap(), "/sys/fs/cgroup/web/t99/cpu.max");
    assert_eq!(reported(&world.short_tick()), late);
    assert_eq!(world.short_tick().actions, []);
}

#[test]
fn what_ticks_without_a_pause_leave_is_written_all_the_same() {
    let mut world = nested(400);
    (0..30).for_each(|_| drop(world.short_tick()));
    finish(&mut world);
    halve_limits(&mut world);
    let mut nr_written = || {
        world.short_tick();
        changed(&world).len()
    };
    let nr_written: Vec<usize> = (0..6).map(|_| nr_written()).collect();
    assert_eq!(nr_written, [16, 32, 64, 128, 160, 0]);
}

#[test]
fn values_that_wait_are_void_after_a_restoration() {
    let mut world = nested(200);
    (0..14).for_each(|_| drop(world.short_tick()));
    let agent = world.agent.as_mut().unwrap();
    assert!(agent.has_more_work());
    agent.put_all_back();
    world.host.take_changes();
    finish(&mut world);
    assert_eq!(world.host.take_changes(), []);
}

#[test]
fn the_files_of_a_cgroup_are_read_first_when_it_is_opened() {
    let mut world = crowd(100);
    world.start().unwrap();
    world.short_tick();
    finish(&mut world);
    world.host.take_calls();
    world.short_tick();
    let calls = world.host.take_calls();
    let read = calls.iter().map(|call| &call.path).filter(|path| path.ends_with("memory.max"));
    let read: std::collections::BTreeSet<_> = read.collect();
    // A tenth of all, as in every tick.
    assert_eq!(read.len(), 10, "{read:?}");
}

#[test]
fn cgroups_that_a_tenant_makes_below_itself_cost_no_tick_many_calls() {
    const NR_CGROUPS: usize = 300;
    for host in [SimHost::default(), legacy()] {
        let mut world = World::on(host, "tenants: { a: {}, hostile: {} }");
        world.start().unwrap();
        world.ticks(2);
        world.spawn("/a", Load::busy(4));
        world.host.with(|kernel| kernel.make_cgroup("/hostile/work")).unwrap();
        world.spawn("/hostile/work", Load::busy(4));
        let calls = |world: &mut World| -> Vec<u64> {
            let count = |world: &mut World| {
                let before = world.host.nr_calls();
                world.tick();
                world.host.nr_calls() - before
            };
            (0..25).map(|_| count(world)).collect()
        };
        world.ticks(5);
        let before = calls(&mut world).into_iter().max().unwrap();
        for number in 0..NR_CGROUPS {
            let path = format!("/hostile/{}/{number}", number % 10);
            world.host.with(|kernel| kernel.make_cgroup(&path)).unwrap();
        }
        let after = calls(&mut world);
        assert!(after.iter().all(|nr| *nr < before + 400), "{before} before, {after:?}");
    }
}
