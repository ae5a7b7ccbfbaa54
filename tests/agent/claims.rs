//! Processes that a tenant claims are moved, with all that they start, and moved back.

use tenantd::sim::{Load, SimHost, SimKernel, Workload};

use super::world::{World, assert_same, legacy, snapshot};

fn spawn(world: &World, path: &str, uid: u32) -> u32 {
    let workload = Workload::constant("load", Load::idle()).owned_by(uid);
    world.host.with(|kernel| kernel.spawn(path, workload)).unwrap()
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

fn with_cgroups(host: SimHost, paths: &[&str], yaml: &str) -> World {
    let mut kernel = SimKernel::new(host);
    paths.iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    let mut world = World::with(kernel, yaml);
    world.options.root = Some("/tenants".into());
    world
}

#[test]
fn users_groups_and_cgroups_are_claimed_and_go_back() {
    let mut world = with_cgroups(
        SimHost::default(),
        &["/build/one", "/home/x", "/home/y"],
        "tenants:\n  ci: { match: { cgroup: /build } }\n  \
         ana: { match: { users: [ 1000 ] } }\n  staff: { match: { groups: [ 50 ] } }\n",
    );
    let processes = [
        ("/build/one", 0, "/tenants/ci"),
        ("/build/one", 1000, "/tenants/ci"),
        ("/home/x", 1000, "/tenants/ana"),
        ("/home/y", 50, "/tenants/staff"),
        ("/home/y", 1001, "/home/y"),
        ("/", 0, "/"),
    ];
    let pids = processes.map(|(path, uid, _)| spawn(&world, path, uid));
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(1);
    assert_eq!(pids.map(|pid| place(&world, pid)), processes.map(|(_, _, tenant)| tenant));
    let restored = world.stop();
    assert_eq!(restored.nr_processes, 4);
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

#[test]
fn on_a_legacy_host_they_move_in_every_tree_but_the_cpusets() {
    let yaml = "tenants: { ana: { match: { users: [ 1000 ] } } }";
    let mut world = with_cgroups(legacy(), &[], yaml);
    let pid = spawn(&world, "/", 1000);
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(1);
    let line = |text: &str| text.lines().any(|line| line == pid.to_string());
    for tree in ["cpu", "cpuacct", "memory", "unified"] {
        assert!(line(&world.file(&format!("{tree}/tenants/ana/cgroup.procs"))), "{tree}");
    }
    assert!(line(&world.file("cpuset/cgroup.procs")));
    world.stop();
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

#[test]
fn who_comes_later_is_claimed_within_five_ticks() {
    let mut world =
        with_cgroups(SimHost::default(), &[], "tenants: { ana: { match: { users: [ 1000 ] } } }");
    world.start().unwrap();
    world.ticks(2);
    let pid = spawn(&world, "/", 1000);
    world.ticks(5);
    assert_eq!(place(&world, pid), "/tenants/ana");
}

#[test]
fn the_first_process_and_the_agent_itself_are_never_claimed() {
    let mut world =
        with_cgroups(SimHost::default(), &[], "tenants: { admins: { match: { users: [ 0 ] } } }");
    let other = spawn(&world, "/", 0);
    world.start().unwrap();
    world.ticks(2);
    let own = world.host.with(|kernel| kernel.caller());
    assert_eq!([1, own, other].map(|pid| place(&world, pid)), ["/", "/", "/tenants/admins"]);
}

#[test]
fn one_that_was_born_in_a_tenant_that_was_made_goes_where_others_were_claimed_from() {
    let mut world = with_cgroups(
        SimHost::default(),
        &["/build"],
        "tenants: { ci: { match: { cgroup: /build } } }",
    );
    spawn(&world, "/build", 0);
    world.start().unwrap();
    world.ticks(1);
    let child = spawn(&world, "/tenants/ci", 0);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(place(&world, child), "/build");
}

#[test]
fn a_process_number_that_is_used_again_is_left_alone() {
    let mut world = with_cgroups(
        SimHost::default(),
        &["/build"],
        "tenants: { ci: { match: { cgroup: /build } } }",
    );
    let pid = spawn(&world, "/build", 0);
    world.start().unwrap();
    world.ticks(1);
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    // The journal names the process by its number and by when it started.
    assert_eq!(world.stop().nr_processes, 0);
}
