//! The contended disk: the full one for which tenants wait most, and their demands for it.
//!
//! **Problem.** A machine has several disks, of which one at a time is short. The share that a tenant gets now depends on the
//! demands of the others for that one.
//!
//! **The device** stays the contended one for at least [`KEPT`], and is replaced only by one with [`CLEARLY`] times its pressure, or
//! after as long without any. The pressure of a disk is the sum over tenants of the time in which their tasks waited, by the part
//! of their work that is on this disk.
//!
//! **Demand** is a part of its time. An unpressed tenant wants its use and a tenth more. A tenant whose tasks wait while the disk
//! is full and that uses its share wants all of the disk: no counter tells how much it could use. With less than its share it
//! wants its use and the time that it waited. Waits on a disk that is not full are those of single requests, and no demand.
//!
//! **Properties** (below, and `tests/agent/disk_shares.rs`): a disk is kept over short lulls (`a_disk_is_kept`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::demand::PRESSED_RATIO;
use crate::measure::disk::Device;
use crate::measure::disks::{Disk, Disks};
use crate::measure::usage::Usage;
use crate::measure::ways::Way;
use crate::state::NodeState;
use crate::tree::Tree;

/// Least time for which a device is the contended one.
pub const KEPT: Duration = Duration::from_secs(60);
/// Pressure of another device that replaces it, as a factor.
const CLEARLY: f64 = 1.5;
/// Part of a device's time from which it is full.
const FULL_RATIO: f64 = 0.9;
/// Growth of an unpressed tenant before the next tick, as a factor.
const GROWTH: f64 = 1.1;
/// Part of its share from which a tenant is at its share.
const AT_SHARE_RATIO: f64 = 0.8;
const HALF_LIFE: Duration = Duration::from_secs(2);
/// Part of the device that work outside tenants never takes from them.
const LEFT_RATIO: f64 = 0.1;

/// The contended device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contended {
    chosen: Option<Chosen>,
    /// Smoothed part of its time used by work outside tenants.
    outside_ratio: f64,
}

/// A device, and the time since it was chosen and since tenants last waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Chosen {
    device: Device,
    held: Duration,
    calm: Duration,
}

impl Contended {
    /// The device and its last interval; `None` if none is contended, or if its speed is unknown.
    pub(crate) fn disk(&self, disks: &Disks) -> Option<(Device, Disk)> {
        let device = self.chosen?.device;
        let (_, disk) = disks.iter().find(|(it, _)| *it == device)?;
        disk.time_ratio().map(|_| (device, disk))
    }

    /// Part of its time that tenants can get.
    pub(crate) fn capacity(&self) -> f64 {
        (1.0 - self.outside_ratio).max(LEFT_RATIO)
    }

    /// Chooses the device, and estimates the demands of tenants for it.
    pub(crate) fn step(
        &mut self,
        (tree, states): (&Tree, &mut [NodeState]),
        disks: &Disks,
        elapsed: Duration,
    ) {
        let nr_nodes = tree.nodes().len();
        let before = self.chosen.map(|chosen| chosen.device);
        let tenants = states.iter().take(nr_nodes);
        let usages: Vec<Usage> = tenants.filter_map(|state| state.usage).collect();
        let each = disks.iter().map(|(device, disk)| {
            let pressure = usages.iter().map(|usage| pressure(usage, device, &disk, disks)).sum();
            (device, pressure)
        });
        self.choose(&each.collect::<Vec<_>>(), elapsed);
        let is_same = before.is_some() && before == self.chosen.map(|chosen| chosen.device);
        let Some((device, disk)) = self.disk(disks) else {
            states.iter_mut().for_each(|state| state.disk.demand = None);
            return;
        };
        if !is_same {
            states.iter_mut().for_each(|state| state.disk.demand = None);
            self.outside_ratio = 0.0;
        }
        let time = |usage: &Usage| usage.disks.get(device).and_then(|flow| disk.cost.time(&flow));
        let whole = disk.time_ratio().unwrap_or(0.0);
        let of_tenants: f64 = usages.iter().filter_map(time).sum();
        let outside = (whole - of_tenants).max(0.0);
        self.outside_ratio = outside.max((outside + self.outside_ratio) / 2.0).min(1.0);
        let is_full = whole >= FULL_RATIO;
        for (_, state) in tree.nodes().iter().zip(&mut *states).filter(|(node, _)| node.is_leaf) {
            let Some(usage) = &state.usage else { continue };
            let used = time(usage).unwrap_or(0.0);
            let share = state.disk.now_ratio;
            let fresh = fresh(used, usage, is_full, share);
            let last = state.disk.demand.unwrap_or(0.0);
            // A tenant that stops would otherwise keep the demand for a whole disk for seconds.
            let last = if is_full && waits(usage) { last } else { last.min(share) };
            let keep = 0.5_f64.powf(elapsed.as_secs_f64() / HALF_LIFE.as_secs_f64());
            state.disk.demand = Some(fresh.max(keep * last + (1.0 - keep) * fresh).min(1.0));
        }
    }

    /// Takes the pressure on each device in an interval.
    fn choose(&mut self, each: &[(Device, f64)], elapsed: Duration) {
        let most = each.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
        let most = most.filter(|(_, pressure)| *pressure > 0.0);
        let begin = |(device, _)| Chosen { device, held: Duration::ZERO, calm: Duration::ZERO };
        let now = self.chosen.and_then(|chosen| {
            let (_, pressure) = each.iter().find(|(device, _)| *device == chosen.device)?;
            let held = chosen.held.saturating_add(elapsed);
            let calm =
                if *pressure > 0.0 { Duration::ZERO } else { chosen.calm.saturating_add(elapsed) };
            let is_worse = |(_, other): &(Device, f64)| *other > CLEARLY * pressure;
            let is_replaced = held >= KEPT && most.as_ref().is_some_and(is_worse);
            (calm < KEPT && !is_replaced).then_some(Chosen { held, calm, ..chosen })
        });
        self.chosen = now.or(most.map(begin));
    }
}

/// True if exactly one scheduler divides the device by weights.
pub(crate) fn obeys(way: &Way) -> bool {
    way.is_bfq() != way.has_cost
}

/// True if tasks of the tenant waited for disks, or if that is unknown.
fn waits(usage: &Usage) -> bool {
    usage.io_some_ratio.is_none_or(|ratio| ratio > PRESSED_RATIO)
}

/// Part of the interval in which tasks of a tenant waited for a full device.
fn pressure(usage: &Usage, device: Device, disk: &Disk, disks: &Disks) -> f64 {
    let is_full = disk.time_ratio().is_some_and(|time| time >= FULL_RATIO);
    let Some(flow) = usage.disks.get(device).filter(|flow| is_full && flow.operations() > 0.0)
    else {
        return 0.0;
    };
    let of = |device: Device, disk: &Disk| {
        usage.disks.get(device).map_or(0.0, |flow| disk.cost.part(&flow, &disk.flow))
    };
    let all: f64 = disks.iter().map(|(device, disk)| of(device, &disk)).sum();
    let part = disk.cost.part(&flow, &disk.flow) / all.max(f64::MIN_POSITIVE);
    let waited = usage.io_some_ratio.unwrap_or(1.0);
    if waits(usage) { waited * part } else { 0.0 }
}

/// Unsmoothed demand of a tenant with this `used` part of the device and this `share`.
fn fresh(used: f64, usage: &Usage, is_full: bool, share: f64) -> f64 {
    if used <= 0.0 || !is_full || !waits(usage) {
        used * GROWTH
    } else if used >= AT_SHARE_RATIO * share {
        1.0
    } else {
        used * (1.0 + usage.io_some_ratio.unwrap_or(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDA: Device = Device { major: 8, minor: 0 };
    const SDB: Device = Device { major: 8, minor: 16 };

    fn after(contended: &mut Contended, seconds: u64, pressures: [f64; 2]) -> Option<Device> {
        let each = [(SDA, pressures[0]), (SDB, pressures[1])];
        (0..seconds).for_each(|_| contended.choose(&each, Duration::from_secs(1)));
        contended.chosen.map(|chosen| chosen.device)
    }

    #[test]
    fn a_disk_is_kept() {
        let mut contended = Contended::default();
        assert_eq!(after(&mut contended, 9, [0.0, 0.0]), None);
        assert_eq!(after(&mut contended, 1, [0.5, 0.4]), Some(SDA));
        assert_eq!(after(&mut contended, 59, [0.1, 0.9]), Some(SDA), "within its minute");
        assert_eq!(after(&mut contended, 1, [0.1, 0.9]), Some(SDB));
        assert_eq!(after(&mut contended, 600, [0.5, 0.4]), Some(SDB), "not clearly more");
        assert_eq!(after(&mut contended, 59, [0.0, 0.0]), Some(SDB), "a lull");
        assert_eq!(after(&mut contended, 1, [0.0, 0.0]), None);
    }

    #[test]
    fn a_waiting_tenant_wants_more_than_its_share_of_a_full_disk() {
        let usage = |some| Usage { io_some_ratio: Some(some), ..Usage::default() };
        assert_eq!(fresh(0.25, &usage(0.9), false, 0.25), 0.25 * GROWTH);
        assert_eq!(fresh(0.25, &usage(0.01), true, 0.25), 0.25 * GROWTH);
        assert_eq!(fresh(0.25, &usage(0.1), true, 0.25), 1.0);
        assert_eq!(fresh(0.1, &usage(0.5), true, 0.25), 0.1 * 1.5, "its own bound");
        assert_eq!(fresh(0.0, &usage(0.5), true, 0.25), 0.0);
    }
}
