//! What is put back between two ticks waits for systemd, but not for ever and not in silence.

use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::Duration;

use tenantd_host::notify::Notifier;
use tenantd_policy::model::Mode;

use super::units::{assert_whole, services, whole};
use super::world::World;
use crate::util;

/// How often systemd was asked since this was last looked at.
fn nr_orders(world: &World) -> usize {
    world.host.systemd(|systemd, _| std::mem::take(&mut systemd.orders).len())
}

fn supervised_by(world: &mut World, notifier: Notifier) {
    world.agent.as_mut().unwrap().supervised_by(Arc::new(notifier));
}

#[test]
fn values_past_the_deadline_stay_journaled_and_are_restored_next() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(10);
    nr_orders(&world);
    // Half the watchdog's time is all that there is: here, none.
    supervised_by(&mut world, Notifier::default().with_watchdog(Duration::ZERO));
    let failures = world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    assert!(failures.iter().any(|failure| failure.contains("units not restored")), "{failures:?}");
    assert_eq!(nr_orders(&world), 0);
    supervised_by(&mut world, Notifier::default());
    assert_eq!(world.agent.as_mut().unwrap().put_all_back().failures, [""; 0]);
    assert_whole(&before, &world, "asked for again");
}

#[test]
fn a_reload_past_its_deadline_leaves_the_rest_to_the_stop() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(10);
    supervised_by(&mut world, Notifier::default().with_watchdog(Duration::ZERO));
    let policy = util::policy("version: 1\nmode: enforce\ntenants: { own: {} }");
    let failures = world.agent.as_mut().unwrap().reload(policy, Vec::new()).unwrap();
    assert!(failures.iter().any(|failure| failure.contains("units not restored")), "{failures:?}");
    world.ticks(2);
    assert_eq!(world.stop().failures, [""; 0], "a stop takes the time that it takes");
    assert_whole(&before, &world, "stopped");
}

#[test]
fn the_watchdog_is_notified_at_every_order() {
    let dir = util::scratch();
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let mut world = services("");
    world.ticks(10);
    nr_orders(&world);
    let notifier = Notifier::to(&path).unwrap().with_watchdog(Duration::from_secs(60));
    supervised_by(&mut world, notifier);
    assert_eq!(world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap(), [""; 0]);
    let mut bytes = [0; 64];
    let mut nr_beats = 0;
    while let Ok(count) = manager.recv(&mut bytes) {
        assert_eq!(&bytes[..count], b"WATCHDOG=1");
        nr_beats += 1;
    }
    let nr_orders = nr_orders(&world);
    assert!(nr_orders > 4 && nr_beats >= nr_orders, "{nr_beats} beats, {nr_orders} orders");
}
