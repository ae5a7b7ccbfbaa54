//! Cgroups that go, and come again, under the agent's hands.

use tenantd_core::resource::CPU;
use tenantd_sim::{Load, SimKernel};

use super::story::{ADOPTED, LEGACY, MADE, Story, leave, play};
use super::world::{MOUNT, World, assert_near, assert_same, legacy, snapshot};

/// Ends every process below the cgroup `path` of every hierarchy and removes it, as its owner would.
fn remove(kernel: &mut SimKernel, path: &str) {
    for pid in kernel.pids() {
        let inside = kernel.process_cgroup(pid).is_some_and(|at| at.starts_with(path));
        if inside {
            kernel.kill(pid).unwrap();
        }
    }
    // It may not be there yet.
    let _ = kernel.remove_cgroup_at(path);
}

/// Tells `story` again and again, with `event` before each of its calls in turn.
fn with_event_at_any_call(
    story: &Story,
    stride: usize,
    event: fn(&mut SimKernel),
    check: fn(&World, &str),
) {
    let mut world = (story.begin)();
    play(&mut world);
    for call in (0..world.host.nr_calls()).step_by(stride) {
        let context = format!("{}: before call {call}", story.name);
        let mut world = (story.begin)();
        world.host.before_call(call, event);
        let born = play(&mut world);
        assert!(world.agent.is_some(), "{context}: not even started");
        world.ticks(2);
        assert_eq!(world.stop().failures, [""; 0], "{context}");
        let alive = world.host.with(|kernel| kernel.pids());
        leave(&world, &born.into_iter().filter(|pid| alive.contains(pid)).collect::<Vec<_>>());
        check(&world, &context);
        assert!(!world.state_dir().join("journal").exists(), "{context}: a journal is left");
    }
}

#[test]
fn a_made_cgroup_may_go_at_any_moment() {
    let check = |world: &World, context: &str| {
        assert_same(&snapshot(&(MADE.begin)().host), &snapshot(&world.host), context);
    };
    with_event_at_any_call(&MADE, 1, |kernel| remove(kernel, "/web"), check);
    with_event_at_any_call(
        &MADE,
        2,
        |kernel| ["/ci/nightly", "/ci/pulls", "/ci"].iter().for_each(|path| remove(kernel, path)),
        check,
    );
}

/// Someone else's cgroup in place of the one that was there.
fn replace(kernel: &mut SimKernel) {
    remove(kernel, "/machine/web");
    kernel.make_cgroup("/machine/web").unwrap();
    for (file, value) in [
        ("machine/web/cpu.weight", "555"),
        ("machine/web/memory.low", "8192"),
        ("cpu/machine/web/cpu.shares", "555"),
        ("memory/machine/web/memory.soft_limit_in_bytes", "8192"),
    ] {
        // One hierarchy has the first, the other the second.
        let _ = kernel.write_file(&format!("{MOUNT}/{file}"), value);
    }
}

#[test]
fn a_cgroup_recreated_by_another_program_keeps_its_values() {
    let unified = |world: &World, context: &str| {
        let held = ["cpu.weight", "cpu.max", "memory.low", "memory.max"]
            .map(|file| world.file(&format!("machine/web/{file}")));
        assert_eq!(held, ["555", "max 100000", "8192", "max"], "{context}");
    };
    with_event_at_any_call(&ADOPTED, 1, replace, unified);
    let legacy = |world: &World, context: &str| {
        let held = ["cpu/machine/web/cpu.shares", "memory/machine/web/memory.soft_limit_in_bytes"]
            .map(|file| world.file(file));
        assert_eq!(held, ["555", "8192"], "{context}");
    };
    with_event_at_any_call(&LEGACY, 2, replace, legacy);
}

#[test]
fn a_tenant_that_went_is_made_again_and_shares_again() {
    for (host, trees) in [(tenantd_sim::SimHost::default(), 1), (legacy(), 5)] {
        let mut world = World::on(host, "tenants: { a: {}, b: {} }");
        world.start().unwrap();
        world.tick();
        world.spawn("/b", Load::busy(4));
        world.spawn("/a", Load::busy(4));
        world.ticks(3);
        world.host.with(|kernel| remove(kernel, "/a"));
        world.ticks(2);
        world.spawn("/a", Load::busy(4));
        world.ticks(3);
        assert_near(&world.shares(&["a", "b"], 1), &[0.5, 0.5], 0.02);
        let made = world.stop().nr_cgroups;
        assert_eq!(made, 2 * trees, "each of its cgroups is removed once");
    }
}

#[test]
fn a_group_that_went_is_made_again_with_all_below_it() {
    for host in [tenantd_sim::SimHost::default(), legacy()] {
        let mut world = World::on(host, "tenants: { g: { tenants: { a: {}, b: {} } } }");
        world.start().unwrap();
        world.ticks(2);
        world.host.with(|kernel| {
            ["/g/a", "/g/b", "/g"].iter().for_each(|path| remove(kernel, path));
        });
        world.ticks(2);
        world.spawn("/g/a", Load::busy(1));
        let status = world.ticks(3);
        assert_eq!(status.findings, [""; 0]);
    }
}

#[test]
fn a_legacy_cgroup_that_went_in_one_tree_alone_is_made_again_there() {
    for tree in ["cpu", "memory"] {
        let mut world = World::on(legacy(), "tenants: { a: { weight: 300 }, b: {} }");
        world.start().unwrap();
        world.ticks(2);
        world.host.with(|kernel| {
            use tenantd_host::kernfs::KernFs;
            let root = kernel.open_dir(format!("{MOUNT}/{tree}").as_ref()).unwrap();
            kernel.remove_dir(root, "a").unwrap();
        });
        // Nobody lives there, so nothing but a look at the files every ten ticks can tell.
        world.ticks(12);
        let file = ["cpu/a/cpu.shares", "memory/a/memory.limit_in_bytes"];
        assert_eq!(file.map(|file| !world.file(file).is_empty()), [true, true]);
    }
}

#[test]
fn a_tenant_that_cannot_be_sampled_keeps_its_last_decision() {
    use nix::errno::Errno;
    use tenantd_host::kernfs::Operation;
    use tenantd_sim::Fault;
    let mut world = World::begin("tenants: { a: {}, b: {} }");
    world.spawn("/a", Load::busy(4));
    world.spawn("/b", Load { duty: 0.5, ..Load::busy(1) });
    world.ticks(12);
    let weights = |world: &World| ["a", "b"].map(|t| world.file(&format!("{t}/cpu.weight")));
    let before = weights(&world);
    world.host.inject(Fault::matching(Operation::Read, "a/cpu.stat", Errno::EIO));
    let status = world.ticks(5);
    assert_eq!(weights(&world), before);
    let a = super::world::tenant(&status, "a");
    assert_eq!(a.usage[CPU], None, "absent, never zero");
    assert_near(&[a.demand[CPU]], &[4.0], 0.05);
    assert!(status.findings.iter().any(|finding| finding.contains("a/cpu.stat")));
}
