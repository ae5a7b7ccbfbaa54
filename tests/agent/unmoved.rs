//! What an observer shows of the processes that a tenant claims, and what they leave behind where they are moved.

use tenantd_control::report::status::Status;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_policy::model::Mode;
use tenantd_sim::{Load, SimHost, Workload};

use super::world::{World, assert_near, legacy, tenant};

const MIB: u64 = 1 << 20;

/// Two users on four CPUs: one has a process that wants two of them, one has two processes that want all.
fn two_users(host: SimHost) -> (World, [u32; 3]) {
    let host = SimHost { cpus: 4, ..host };
    let yaml =
        "tenants:\n  ana: { match: { users: [ 1000 ] } }\n  ben: { match: { users: [ 1001 ] } }\n";
    let mut world = World::on(host, yaml);
    world.host.without_systemd();
    let spawn = |uid, load: Load| {
        let workload = Workload::constant("load", load).owned_by(uid);
        world.host.with(|kernel| kernel.spawn("/", workload)).unwrap()
    };
    let pids = [
        spawn(1000, Load::busy(1).with_working_set(64 * MIB)),
        spawn(1001, Load::busy(1).with_working_set(16 * MIB)),
        spawn(1001, Load::busy(1).with_working_set(16 * MIB)),
    ];
    (world, pids)
}

fn used(status: &Status, name: &str) -> [f64; 2] {
    let usage = tenant(status, name).usage;
    [usage[CPU].unwrap(), usage[MEMORY].unwrap() / MIB as f64]
}

#[test]
fn an_observer_measures_what_is_claimed_where_it_is() {
    for host in [SimHost::default(), legacy()] {
        let (mut world, _) = two_users(host);
        world.options.observe = true;
        world.start().unwrap();
        let status = world.ticks(8);
        assert_near(&used(&status, "ana"), &[1.0, 64.0], 0.05);
        assert_near(&used(&status, "ben"), &[2.0, 32.0], 0.05);
        // What tenants use is nobody else's.
        assert_near(&[status.host.outside_cores.unwrap()], &[0.0], 0.05);
        let allocation = |name| tenant(&status, name).allocation[CPU];
        assert!(allocation("ben") > allocation("ana") && allocation("ana") >= 1.0);
        assert_eq!(status.moves.iter().map(|it| it.nr_processes).sum::<u64>(), 3);
        assert_eq!(world.host.take_changes(), []);
    }
}

#[test]
fn processes_that_end_or_change_leave_what_they_used() {
    let (mut world, pids) = two_users(SimHost::default());
    world.options.observe = true;
    world.start().unwrap();
    let before = world.ticks(10);
    world.host.with(|kernel| kernel.kill(pids[1])).unwrap();
    let after = world.ticks(10);
    assert_near(&used(&after, "ben"), &[1.0, 16.0], 0.05);
    let seconds = |status: &Status| tenant(status, "ben").cpu_usage_seconds.unwrap();
    let grown = seconds(&after) - seconds(&before);
    assert!((10.0..=11.1).contains(&grown), "{grown}");
    world.host.with(|kernel| kernel.kill(pids[2])).unwrap();
    let last = world.ticks(8);
    assert_near(&used(&last, "ben"), &[0.0, 0.0], 0.001);
    assert!(seconds(&last) >= seconds(&after));
}

#[test]
fn an_enforcer_goes_on_from_there_and_back() {
    let (mut world, _) = two_users(SimHost::default());
    world.options.observe = true;
    world.start().unwrap();
    world.ticks(8);
    world.options.observe = false;
    world.end(false);
    world.start().unwrap();
    // Their memory stays charged to where they were.
    let enforced = world.ticks(4);
    assert_near(&used(&enforced, "ana"), &[1.0, 0.0], 0.05);
    world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    let observed = world.ticks(8);
    assert_near(&used(&observed, "ana"), &[1.0, 64.0], 0.05);
    assert_near(&used(&observed, "ben"), &[2.0, 32.0], 0.05);
}

#[test]
fn memory_that_moved_processes_leave_behind_is_told() {
    for host in [SimHost::default(), legacy()] {
        let (mut world, pids) = two_users(host);
        world.start().unwrap();
        let told = |status: &Status, name: &str| {
            let of = |it: &&String| it.starts_with(name) && it.contains("charged to the cgroups");
            status.findings.iter().find(of).cloned()
        };
        let status = world.ticks(60);
        let ana = told(&status, "ana").unwrap();
        assert!(ana.contains("of 64MiB that 1 process") && ana.contains("restart"), "{ana}");
        assert!(tenant(&status, "ana").memory_elsewhere_bytes.is_some_and(|it| it >= 16 << 20));
        assert!(told(&status, "ben").unwrap().contains("of 32MiB that 2 processes"));
        world.host.with(|kernel| kernel.kill(pids[0])).unwrap();
        let status = world.ticks(60);
        assert_eq!(told(&status, "ana"), None);
        assert_eq!(tenant(&status, "ana").memory_elsewhere_bytes, None);
        world.stop();
    }
}
