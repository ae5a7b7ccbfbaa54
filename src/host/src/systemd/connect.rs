//! The systemd of this host, where one runs it.

use std::path::Path;

use super::bus::Bus;
use super::messenger::{self, Messenger};
use super::order::{Order, UnitManager};

/// The systemd that runs this host, if one does; it is connected to with the first order.
pub fn of_this_host() -> Option<Box<dyn UnitManager>> {
    const RUN: &str = "/run/systemd";
    let recruit = || {
        let mut bus = Bus::new(RUN, messenger::DEADLINE);
        move |orders: &[Order]| bus.carry_out(orders)
    };
    // As sd_booted(3) tells.
    let is_booted = Path::new(RUN).join("system").is_dir();
    is_booted.then(|| Box::new(Messenger::new(recruit, messenger::DEADLINE)) as _)
}
