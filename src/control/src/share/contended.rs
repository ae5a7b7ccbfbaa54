//! The contended disk: the full one for which tenants wait most, and their demands for it.
//!
//! **Problem.** A machine has several disks, of which one at a time is short. The share that a tenant gets now depends on the
//! demands of the others for that one. Where the policy couples disks, a tenant with most of it gets less CPU where both are
//! short, as with any two resources of DRF. But a disk may ignore weights: then its row would take CPU from one tenant and
//! give no other a faster disk.
//!
//! **The device** stays the contended one for at least [`KEPT`], and is replaced only by one with [`CLEARLY`] times its pressure, or
//! after as long without any. The pressure of a disk is the sum over tenants of the time in which their tasks waited, by the part
//! of their work that is on this disk.
//!
//! **Demand** is a part of its time. An unpressed tenant wants its use and a tenth more. A tenant whose tasks wait while the disk
//! is full and that uses its share wants all of the disk: no counter tells how much it could use. With less than its share it
//! wants its use and the time that it waited. Waits on a disk that is not full are those of single requests, and no demand.
//!
//! **Growth** is demand over use, of the disk and of CPUs: the factor by which the demand on the other row counts as well
//! ([`super::target`]). Slices of bfq move the use by a tenth from second to second, so it is smoothed.
//!
//! **Effect.** The row counts only while the disk obeys weights: exactly one of bfq and io.cost divides it, and each cgroup has
//! its file. Parts of the disk must not contradict that: if waiting siblings of different weights get equal parts in
//! [`VOID_AFTER`] full intervals in a row, weights are void until as many in a row show them obeyed. Without the waits of cgroups
//! (cgroup v1) equal parts prove nothing: two tenants may want as much.
//!
//! **Properties** (below, and `tests/agent/disk_shares.rs`): a disk is kept over short lulls (`a_disk_is_kept`); dominant shares
//! are those of the allocation core (`three_tenants_get_their_dominant_shares`); a void disk takes no CPU
//! (`a_void_disk_counts_for_nothing`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::demand::{self, PRESSED_RATIO};
use super::govern;
use super::rows::DiskDemand;
use crate::measure::disk::Device;
use crate::measure::disks::{Disk, Disks};
use crate::measure::usage::Usage;
use crate::measure::ways::Way;
use crate::state::NodeState;
use crate::tree::Tree;
use crate::words::knob::{Knob, Value};
use tenantd_core::resource::CPU;

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
/// Half-life of the smoothed use, longer than some slices of bfq.
const USE_HALF_LIFE: Duration = Duration::from_secs(4);
/// Least use of the device or of CPUs for which the demand on the other row is scaled.
const USED_LEAST: f64 = 0.001;
const ROUNDING: f64 = 1e-9;
/// Part of the device from which a sibling takes part in a comparison.
const COMPARED_RATIO: f64 = 0.02;
/// Largest error of a prediction that fits, and least distance to the error of the other one.
const FIT: f64 = 0.08;
/// Intervals in a row that change the verdict on weights.
const VOID_AFTER: u8 = 5;
/// Part of the device that work outside tenants never takes from them.
const LEFT_RATIO: f64 = 0.1;

/// The contended device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Contended {
    chosen: Option<Chosen>,
    verdict: Verdict,
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

/// Effect of weights on the device, by the parts of tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Verdict {
    is_void: bool,
    /// Intervals in a row that contradict it.
    nr_against: u8,
}

impl Verdict {
    /// Takes an interval that shows weights without effect, or obeyed.
    fn note(&mut self, is_void: bool) {
        self.nr_against = if is_void == self.is_void { 0 } else { self.nr_against + 1 };
        if self.nr_against >= VOID_AFTER {
            *self = Verdict { is_void, nr_against: 0 };
        }
    }
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

    /// True if waiting tenants get equal parts in spite of their weights.
    pub(crate) fn is_void(&self) -> bool {
        self.verdict.is_void
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
            states.iter_mut().for_each(|state| state.disk.forget_demand());
            self.verdict = Verdict::default();
            return;
        };
        if !is_same {
            states.iter_mut().for_each(|state| state.disk.forget_demand());
            (self.verdict, self.outside_ratio) = (Verdict::default(), 0.0);
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
            let demand = demand::smooth(fresh, last, elapsed, HALF_LIFE);
            state.disk.demand = Some(demand.min(1.0));
            let (keep, cores) = (demand::kept_part(elapsed, USE_HALF_LIFE), usage.cpu_cores);
            let before = state.disk.used.unwrap_or((used, cores));
            // Without waits, a use that rises is no noise.
            let part = if is_full && waits(usage) { before.0 } else { before.0.max(used) };
            let smooth = |before: f64, now: f64| keep * before + (1.0 - keep) * now;
            state.disk.used = Some((smooth(part, used), smooth(before.1.max(cores), cores)));
        }
        if is_full {
            self.compare(tree, states, (device, &disk));
        }
    }

    /// Compares the parts of waiting siblings on a full device with their weights, and with equal parts.
    fn compare(&mut self, tree: &Tree, states: &[NodeState], (device, disk): (Device, &Disk)) {
        let contender = |at: &usize| {
            let state = &states[*at];
            let usage = state.usage.as_ref().filter(|usage| usage.io_some_ratio.is_some())?;
            let time = disk.cost.time(&usage.disks.get(device)?).filter(|_| waits(usage))?;
            let observed = [Knob::BfqWeight, Knob::DiskWeight].map(|knob| state.observed(knob));
            match observed.into_iter().flatten().next() {
                Some(Value::Weight(weight)) if time >= COMPARED_RATIO => Some((time, *weight)),
                _ => None,
            }
        };
        for (_, siblings) in govern::sets_of_siblings(tree) {
            let set: Vec<(f64, f64)> = siblings.iter().filter_map(contender).collect();
            if let Some(is_void) = is_void(&set) {
                self.verdict.note(is_void);
            }
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

/// Demand of a node for the contended device, and its growth on both rows.
pub(crate) fn demand(state: &NodeState) -> DiskDemand {
    let part = state.disk.demand.unwrap_or(0.0);
    let (used, used_cores) = state.disk.used.unwrap_or_default();
    let cores = state.demand.map_or(0.0, |demand| demand.amount[CPU]);
    DiskDemand { part, growth: growth(part, used), cpu_growth: growth(cores, used_cores) }
}

/// Demand over use. An unpressed tenant wants a tenth more than its use, and that is no growth.
fn growth(demand: f64, used: f64) -> f64 {
    let growth = if used >= USED_LEAST { demand / used } else { 1.0 };
    if growth > GROWTH * (1.0 + ROUNDING) { growth } else { 1.0 }
}

/// True if siblings with these times and weights share equally in spite of the weights, false if by weight; `None` if neither
/// is clear.
fn is_void(set: &[(f64, f64)]) -> Option<bool> {
    let [by_weight, equal] = errors(set);
    if by_weight + FIT <= equal {
        Some(false)
    } else {
        (equal <= FIT && equal + FIT <= by_weight).then_some(true)
    }
}

/// Errors of the predictions that siblings with these times and weights divide by weight, and equally: 0 ..= 1.
fn errors(set: &[(f64, f64)]) -> [f64; 2] {
    let sum = |of: fn(&(f64, f64)) -> f64| set.iter().map(of).sum::<f64>().max(f64::MIN_POSITIVE);
    let (times, weights) = (sum(|it| it.0), sum(|it| it.1));
    let nr = set.len() as f64;
    let error = |predicted: &dyn Fn(f64) -> f64| {
        let each = set.iter().map(|(time, weight)| (time / times - predicted(*weight)).abs());
        each.sum::<f64>() / 2.0
    };
    [error(&|weight| weight / weights), error(&|_| 1.0 / nr)]
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

    #[test]
    fn equal_parts_contradict_weights_of_three_to_one() {
        assert_eq!(is_void(&[(0.5, 300.0), (0.5, 100.0)]), Some(true));
        assert_eq!(is_void(&[(0.74, 300.0), (0.26, 100.0)]), Some(false));
        // A sibling that cannot use its part proves nothing, and neither do equal weights or one sibling.
        assert_eq!(is_void(&[(0.2, 300.0), (0.8, 100.0)]), None);
        assert_eq!(is_void(&[(0.5, 100.0), (0.5, 100.0)]), None);
        assert_eq!((is_void(&[(0.5, 300.0)]), is_void(&[])), (None, None));
    }

    #[test]
    fn a_verdict_changes_after_several_intervals_in_a_row() {
        let mut verdict = Verdict::default();
        let mut after = |is_void: bool, count: u8| {
            (0..count).for_each(|_| verdict.note(is_void));
            verdict.is_void
        };
        assert!(!after(true, VOID_AFTER - 1));
        assert!(!after(false, 1) && !after(true, VOID_AFTER - 1));
        assert!(after(true, 1) && after(false, VOID_AFTER - 1));
        assert!(!after(false, 1));
    }
}
