//! Orders that were refused, answered late, or overtaken: what is recorded of a unit is what it held before it was set.

use tenantd::sim::UnitFault;

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
