//! Hosts that lack something: one clear line each, and nothing written.

use std::path::Path;

use nix::errno::Errno;
use tenantd::agent::StartError;
use tenantd_control::report::status::Status;
use tenantd_core::resource::{CPU, MEMORY, PerResource};
use tenantd_host::cgroup::LayoutError;
use tenantd_host::kernfs::{KernFs, Operation};
use tenantd_policy::model::HierarchyChoice;
use tenantd_sim::{Access, Controller, Fault, Load, SimHost};

use super::world::{GIB, World, assert_same, legacy, snapshot, tenant};

const ONE: &str = "tenants: { a: { weight: 300 }, b: {} }";

#[test]
fn without_the_memory_controller_cpu_is_still_shared() {
    for layout in [SimHost::default(), legacy()] {
        let controllers = vec![Controller::Cpu, Controller::Cpuacct, Controller::Cpuset];
        let mut world = World::on(SimHost { controllers, ..layout }, ONE);
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.tick();
        let pids = ["/a", "/b"].map(|path| world.spawn(path, Load::busy(4)));
        let status = world.ticks(4);
        super::world::assert_near(&world.shares(&["a", "b"], 1), &[0.75, 0.25], 0.02);
        let said = status.findings.iter().any(|finding| finding.contains("memory controller"));
        assert!(said, "{:?}", status.findings);
        assert_eq!(world.stop().failures, [""; 0]);
        super::story::leave(&world, &pids);
        assert_same(&before, &snapshot(&world.host), "without memory");
    }
}

#[test]
fn without_any_controller_the_agent_does_not_start() {
    let host = SimHost { controllers: vec![Controller::Pids], ..SimHost::default() };
    let mut world = World::on(host, ONE);
    world.options.root = Some("/tenants".into());
    let before = snapshot(&world.host);
    let error = world.start().unwrap_err();
    assert!(matches!(error, StartError::NoControllers(_)), "{error}");
    assert_same(&before, &snapshot(&world.host), "without controllers");
}

#[test]
fn a_root_with_foreign_processes_is_refused() {
    let mut kernel = tenantd_sim::SimKernel::new(SimHost::default());
    kernel.make_cgroup("/session").unwrap();
    let caller = kernel.caller().to_string();
    kernel.write_file("/sys/fs/cgroup/session/cgroup.procs", &caller).unwrap();
    kernel.spawn("/session", Load::idle()).unwrap();
    let mut world = World::with(kernel, ONE);
    world.options.root = Some("tenants".into());
    let before = snapshot(&world.host);
    let error = world.start().unwrap_err().to_string();
    assert!(error.contains("/session holds processes of others"), "{error}");
    assert_same(&before, &snapshot(&world.host), "in a session");
}

#[test]
fn missing_write_permission_is_reported_at_once() {
    for access in [Access::Unprivileged, Access::ReadOnlyMount] {
        for host in [SimHost::default(), legacy()] {
            for root in [None, Some("/tenants".into())] {
                let mut world = World::on(host.clone(), ONE);
                world.options.root = root;
                world.host.with(|kernel| kernel.set_access(access));
                let before = snapshot(&world.host);
                let error = world.start().unwrap_err();
                assert!(error.is_denied(), "{access:?}: {error}");
                assert_eq!(error.to_string().lines().count(), 1);
                assert_same(&before, &snapshot(&world.host), "not permitted");
                assert!(!world.state_dir().join("journal").exists());
            }
        }
    }
}

#[test]
fn without_write_permission_the_agent_can_observe() {
    let mut world = World::on(SimHost { access: Access::Unprivileged, ..SimHost::default() }, ONE);
    world.options.observe = true;
    world.start().unwrap();
    assert_eq!(world.ticks(3).tick, 3);
}

#[test]
fn a_hierarchy_that_is_not_mounted_is_an_error_with_a_remedy() {
    let mut world = World::new(ONE);
    world.policy.host.hierarchy = HierarchyChoice::Legacy;
    let error = world.start().unwrap_err();
    let not_mounted = matches!(error, StartError::Layout(LayoutError::NotMounted { .. }));
    assert!(not_mounted && error.to_string().contains("auto"), "{error}");
}

#[test]
fn cpus_and_memory_that_come_and_go_are_divided_at_the_next_tick() {
    let mut world = World::begin("tenants: { a: {}, b: { weight: 300 } }");
    for path in ["/a", "/b"] {
        world.spawn(path, Load::busy(4).with_working_set(4 * GIB));
    }
    world.ticks(30);
    let divided = |status: &Status| {
        let of = |name| tenant(status, name).allocation;
        let sums = PerResource::from_fn(|resource| of("a")[resource] + of("b")[resource]);
        (status.host.cpus, sums[CPU], sums[MEMORY] / GIB as f64)
    };
    let (cpus, cores, gib) = divided(&world.tick());
    assert!(cpus == 4 && cores > 3.0 && gib > 5.0, "{cpus} CPUs, {cores} of them, {gib} GiB");
    world.host.with(|kernel| {
        (2..4).for_each(|cpu| kernel.set_cpu_online(cpu, false));
        kernel.set_memory(4 * GIB);
    });
    let (cpus, cores, gib) = divided(&world.tick());
    assert!(cpus == 2 && cores <= 2.0 && gib <= 4.0, "{cpus} CPUs, {cores} of them, {gib} GiB");
    world.host.with(|kernel| {
        (2..4).for_each(|cpu| kernel.set_cpu_online(cpu, true));
        kernel.set_memory(8 * GIB);
    });
    let (cpus, cores, _) = divided(&world.tick());
    assert!(cpus == 4 && cores > 3.0, "{cpus} CPUs, {cores} of them");
}

#[test]
fn a_controller_that_is_disabled_behind_the_agent_is_enabled_again() {
    let mut world = World::new(ONE);
    world.start().unwrap();
    world.ticks(3);
    world.write("cgroup.subtree_control", "-memory");
    let status = world.ticks(12);
    assert_eq!(world.file("cgroup.subtree_control"), "cpu io memory pids");
    assert_eq!((world.file("a/memory.low").as_str(), status.findings), ("0", vec![]));
}

/// A busy process that is put into `below` in the legacy trees: the unified mount of a hybrid host knows nothing of it.
fn spawn_in_legacy_trees(world: &World, below: &str) -> u32 {
    let pid = world.spawn("/", Load::busy(1));
    for tree in ["cpu", "cpuacct", "memory", "blkio"] {
        let root = format!("/sys/fs/cgroup/{tree}");
        world.host.with(|kernel| {
            let dir = kernel.open_dir(Path::new(&root)).unwrap();
            if below != "a" {
                kernel.make_dir(dir, below).unwrap();
            }
            kernel.write(dir, &format!("{below}/cgroup.procs"), &pid.to_string()).unwrap();
        });
    }
    pid
}

#[test]
fn processes_in_the_legacy_trees_alone_are_seen_when_they_come_and_go() {
    for below in ["a", "a/nested"] {
        let mut world = World::on(legacy(), "tenants: { a: {} }");
        world.start().unwrap();
        let is_idle = |world: &mut World| tenant(&world.ticks(3), "a").usage[CPU] == Some(0.0);
        assert!(is_idle(&mut world));
        let pid = spawn_in_legacy_trees(&world, below);
        assert!(!is_idle(&mut world), "{below}");
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
        assert!(is_idle(&mut world), "{below}");
    }
}

/// Neither a list of processes that cannot be read nor a directory that cannot be looked at says that it is empty.
#[test]
fn a_legacy_cgroup_whose_processes_cannot_be_read_is_as_it_was() {
    let unread = [
        ("a", Fault::matching(Operation::Read, "cpu/a/cgroup.procs", Errno::EIO)),
        ("a/nested", Fault::matching(Operation::Open, "cpu/a", Errno::EIO)),
    ];
    for (below, fault) in unread {
        let mut world = World::on(legacy(), "tenants: { a: {}, b: {} }");
        world.start().unwrap();
        let is_told = |status: &Status| status.findings.iter().any(|it| it.contains("cpu/a"));
        assert!(!is_told(&world.ticks(3)));
        world.spawn("/b", Load::busy(4));
        // An empty one stays so. It is looked at in one of ten ticks, and in each one once that has failed ...
        world.host.inject(fault.clone());
        world.ticks(10);
        let status = world.tick();
        let a = tenant(&status, "a");
        assert_eq!((a.usage, a.demand[CPU]), (PerResource::all(Some(0.0)), 0.0), "{below}");
        assert!(is_told(&status), "{below}: {:?}", status.findings);
        // ... until it uses CPU time.
        let pid = spawn_in_legacy_trees(&world, below);
        assert!(tenant(&world.ticks(3), "a").demand[CPU] > 0.5, "{below}");
        // And one with processes is not empty.
        world.host.heal();
        world.ticks(3);
        world.host.inject(fault);
        let status = world.ticks(3);
        assert!(tenant(&status, "a").demand[CPU] > 0.5, "{below}");
        assert!(is_told(&status), "{below}: {:?}", status.findings);
        world.host.heal();
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
        let status = world.ticks(3);
        assert_eq!(tenant(&status, "a").usage[CPU], Some(0.0), "{below}");
        assert!(!is_told(&status), "{below}: {:?}", status.findings);
    }
}
