//! Orders that were refused, answered late, or overtaken: what is recorded of a unit is what it held before it was set.

use tenantd::sim::{Load, UnitFault};

use super::{services, whole};
use crate::agent::world::World;

fn fail(world: &World, fault: Option<UnitFault>) {
    world.host.systemd(|systemd, _| systemd.fault = fault);
}

/// A question that is on its way when the agent stops may be the same as the first one of the restoration.
#[test]
fn a_bus_that_is_back_is_not_taken_for_the_one_that_was_away() {
    let mut world = services("");
    world.ticks(4);
    fail(&world, Some(UnitFault::Away));
    world.host.systemd(|systemd, kernel| systemd.restart(kernel, "web.service"));
    world.tick();
    fail(&world, None);
    assert_eq!(world.stop().failures, [""; 0]);
    assert!(whole(&world).1["web.service"].drop_ins.is_empty());
}

/// The kernel gives the children of a cgroup with processes no controllers, whoever asks for them.
#[test]
fn a_slice_below_one_with_processes_is_reported() {
    let mut world = World::new("tenants: { a: { owner: systemd, limit: { memory: 64MiB } } }");
    world.host.systemd(|systemd, kernel| systemd.add(kernel, "tenants.slice", "/tenants.slice"));
    world.spawn("/tenants.slice", Load::busy(1));
    world.start().unwrap();
    let status = world.ticks(20);
    assert!(status.findings.iter().any(|finding| finding.contains("memory.")), "{status:?}");
    assert_eq!(world.stop().failures, [""; 0]);
}
