//! Disks of the machine in one interval, and the work of tenants on them.
//!
//! The unit is *device time*: [`super::device_time`] learns the cost of an operation and of a byte. Before that, a
//! tenant has only a part of the work of all.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::device_time::DeviceTime;
use super::disk::{Device, DiskFlow, DiskName, DiskSample, PerDisk};
use super::sample::HostSample;
use super::usage::Usage;

/// A device in one interval, and its learned cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disk {
    /// Its name.
    pub name: DiskName,
    /// Work of all programs.
    pub flow: DiskFlow,
    /// Part of the interval with a request.
    pub busy_ratio: f64,
    /// Cost of its work.
    pub cost: DeviceTime,
}

/// Devices of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Disks {
    each: PerDisk<Disk>,
}

impl Disks {
    /// Takes the work of an interval between two samples, and learns from it. A device without two readings, or whose
    /// counters went backwards, keeps its cost.
    pub fn note(&mut self, before: &HostSample, now: &HostSample, elapsed: Duration) {
        let known = self.each;
        self.each = now.disks.filter_map(|device, sample| {
            let same = |name| name == sample.name;
            let last = known.get(device).filter(|last| same(last.name));
            let mut disk =
                Disk { name: sample.name, ..last.map_or_else(Disk::default, Disk::at_rest) };
            let before = before.disks.get(device).filter(|it| same(it.name));
            if let Some((flow, busy_ratio, depth)) =
                before.and_then(|before| between(&before, &sample, elapsed))
            {
                (disk.flow, disk.busy_ratio) = (flow, busy_ratio);
                disk.cost.learn(&flow, busy_ratio, depth);
            }
            Some(disk)
        });
    }

    /// Each device.
    pub fn iter(&self) -> impl Iterator<Item = (Device, Disk)> {
        self.each.iter()
    }

    /// Work of a tenant on each device that it used, the largest part first.
    pub fn of(&self, usage: &Usage) -> Vec<DiskUse> {
        let of = |(device, flow): (Device, DiskFlow)| {
            let disk = self.each.get(device).filter(|_| flow.operations() > 0.0)?;
            Some(DiskUse {
                name: disk.name,
                flow,
                time_ratio: disk.cost.time(&flow),
                part_ratio: disk.cost.part(&flow, &disk.flow),
            })
        };
        let mut uses: Vec<DiskUse> = usage.disks.iter().filter_map(of).collect();
        uses.sort_by(|a, b| b.part_ratio.total_cmp(&a.part_ratio));
        uses
    }
}

impl Disk {
    fn at_rest(self) -> Disk {
        Disk { flow: DiskFlow::default(), busy_ratio: 0.0, ..self }
    }

    /// Part of its time in use, 0 ..= 1; `None` until its cost is learned.
    pub fn time_ratio(&self) -> Option<f64> {
        self.cost.time(&self.flow)
    }
}

/// Work, part of the time with a request, and mean number of requests at a time, between two samples.
fn between(
    before: &DiskSample,
    now: &DiskSample,
    elapsed: Duration,
) -> Option<(DiskFlow, f64, f64)> {
    let flow = now.counts.flow(&before.counts, elapsed)?;
    let ratio = |before: u64, now: u64| {
        // 32 bits, which overflow after 49 days.
        let msec = (now as u32).wrapping_sub(before as u32);
        f64::from(msec) / 1000.0 / elapsed.as_secs_f64()
    };
    let busy_ratio = ratio(before.busy_msec, now.busy_msec).min(1.0);
    Some((flow, busy_ratio, ratio(before.queued_msec, now.queued_msec)))
}

/// Work of a tenant on one device in one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DiskUse {
    /// Name of the device.
    pub name: DiskName,
    /// Its requests.
    pub flow: DiskFlow,
    /// Part of the device's time, 0 ..= 1; `None` until its cost is learned.
    pub time_ratio: Option<f64>,
    /// Part of the work of all programs on the device, 0 ..= 1.
    pub part_ratio: f64,
}

impl DiskUse {
    /// Part of the device's time, or of its work until the cost is learned.
    pub fn ratio(&self) -> f64 {
        self.time_ratio.unwrap_or(self.part_ratio)
    }
}
