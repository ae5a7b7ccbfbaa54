//! The systemd of this host, if it runs the host.

use std::path::Path;

use super::bus::Bus;
use super::messenger::{self, Messenger};
use super::order::{Order, UnitManager};

/// Manager of the systemd that runs this host, if any; it connects with the first order.
pub fn of_this_host() -> Option<Box<dyn UnitManager>> {
    const RUN: &str = "/run/systemd";
    let recruit = || {
        let mut bus = Bus::new(RUN, messenger::DEADLINE);
        move |orders: &[Order]| bus.carry_out(orders)
    };
    // The test of sd_booted(3).
    let is_booted = Path::new(RUN).join("system").is_dir();
    is_booted.then(|| Box::new(Messenger::new(recruit, messenger::DEADLINE)) as _)
}
