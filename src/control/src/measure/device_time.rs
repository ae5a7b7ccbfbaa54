//! Device time: the cost of the work of a disk as a part of all that the disk can do.
//!
//! **Problem.** A limit or a share in bytes favours small requests, one in operations large ones: beside a stream of 1 MiB
//! requests, a reader of 4 KiB gets a hundredth of the bytes of one head. Neither is the scarce thing. The scarce thing is
//! the time of the device.
//!
//! **Model.** The linear model of the kernel's `io.cost`: time = `per_byte` × bytes + `per_operation` × operations. The
//! capacity of a device is 1 second per second. Reads and writes count alike.
//!
//! **Learning.** The kernel does not report the two costs. In a *full* interval the device had a request all the time, and
//! others waited beside it: its whole time went into the measured work. So each full interval is a *point* (bytes/s,
//! operations/s) whose cost is 1, if the device worked as fast as it can. The learned costs are those for which
//! no point costs more than 1, and all together as much as possible: the best of a linear program in two variables. If
//! several are best (all points have one request size), it is their mean: bytes and operations then cost half each. Taking
//! the largest bytes/s and the largest operations/s of different intervals would be wrong: a single request size would
//! cost 2.
//!
//! **Points.** One for each power of two of the request size, the fastest seen ([`DeviceTime::learn`]). An interval that
//! costs more than 1 is a point even if it was not full: the device did it. A point moves down by a part of the
//! difference with each full interval of its size, because a volume may lose its burst, and a cache fills.
//!
//! **Properties** (here and in `tests/device_time.rs`): no full interval costs more than 1.5, and the fastest of a size at
//! most 1; a device that is linear is learned exactly from two sizes; a device that is twice as fast halves all costs; the
//! cost of two tenants is the sum of their costs; an idle or half-used device teaches nothing.

use serde::{Deserialize, Serialize};

use super::disk::DiskFlow;

/// Request sizes that are told apart: powers of two from 1 KiB.
const SIZES: usize = 12;
/// Part of the time with a request from which an interval is full.
const FULL_RATIO: f64 = 0.95;
/// Mean number of requests at a time from which some waited.
const WAITING_DEPTH: f64 = 1.5;
/// Fewest operations per second of a point: one slow request would be all of a device.
const LEAST_OPERATIONS: f64 = 8.0;
/// Part of the difference by which a point falls in a full interval.
const FALL_RATIO: f64 = 1.0 / 32.0;
/// Rounding of costs.
const EPSILON: f64 = 1e-9;

/// Bytes and operations per second.
type Point = (f64, f64);

/// Learned cost of the work of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceTime {
    /// Fastest full interval of each request size.
    points: [Option<Point>; SIZES],
    /// Seconds per byte and per operation; `None` before the first full interval.
    cost: Option<(f64, f64)>,
}

impl DeviceTime {
    /// Takes an interval with this work, a request for `busy_ratio` of the time, and `depth` requests at a time.
    pub fn learn(&mut self, flow: &DiskFlow, busy_ratio: f64, depth: f64) {
        let now = (flow.bytes(), flow.operations());
        if now.1 < LEAST_OPERATIONS {
            return;
        }
        let is_full = busy_ratio >= FULL_RATIO && depth >= WAITING_DEPTH;
        let is_above = self.cost.is_some_and(|cost| cost_of(cost, now) > 1.0 + EPSILON);
        if !is_full && !is_above {
            return;
        }
        let point = &mut self.points[size_of(now)];
        let next = match *point {
            Some(best) if speed(now) <= speed(best) => toward(best, now),
            _ => now,
        };
        if point.replace(next) != Some(next) {
            self.cost = fitted(&self.points);
        }
    }

    /// Part of the device's time, 0 ..= 1; `None` before the first full interval.
    pub fn time(&self, flow: &DiskFlow) -> Option<f64> {
        Some(cost_of(self.cost?, (flow.bytes(), flow.operations())).min(1.0))
    }

    /// Part of the work `all`, 0 ..= 1.
    pub fn part(&self, flow: &DiskFlow, all: &DiskFlow) -> f64 {
        let times = self.time(flow).zip(self.time(all)).filter(|(_, all)| *all > 0.0);
        times.map_or_else(|| flow.part_of(all), |(time, all)| (time / all).min(1.0))
    }

    /// Largest bytes per second and operations per second, each alone; infinite where these cost nothing. `None` before
    /// the first full interval.
    pub fn speeds(&self) -> Option<(f64, f64)> {
        self.cost.map(|(byte, operation)| (1.0 / byte, 1.0 / operation))
    }
}

fn cost_of((byte, operation): (f64, f64), (bytes, operations): Point) -> f64 {
    byte * bytes + operation * operations
}

/// Order of points of about one size.
fn speed((bytes, operations): Point) -> f64 {
    bytes.max(1.0) * operations
}

fn toward(best: Point, now: Point) -> Point {
    let step = |best: f64, now: f64| best + (now - best) * FALL_RATIO;
    (step(best.0, now.0), step(best.1, now.1))
}

fn size_of((bytes, operations): Point) -> usize {
    let kib = (bytes / operations / 1024.0).max(1.0);
    (kib.log2() as usize).min(SIZES - 1)
}

/// Costs of a byte and of an operation at which no point costs more than 1, and all points together most.
fn fitted(points: &[Option<Point>; SIZES]) -> Option<(f64, f64)> {
    let points: Vec<Point> = points.iter().flatten().copied().collect();
    // In units of the largest rates, so that both costs are near 1.
    let largest = |of: fn(&Point) -> f64| points.iter().map(of).fold(0.0, f64::max).max(1.0);
    let unit = (largest(|it| it.0), largest(|it| it.1));
    let scaled: Vec<Point> = points.iter().map(|it| (it.0 / unit.0, it.1 / unit.1)).collect();
    let total = |cost| scaled.iter().map(|point| cost_of(cost, *point)).sum::<f64>();
    let corners: Vec<(f64, f64)> = corners(&scaled)
        .filter(|cost| scaled.iter().all(|point| cost_of(*cost, *point) <= 1.0 + EPSILON))
        .collect();
    let most = corners.iter().map(|cost| total(*cost)).fold(0.0, f64::max);
    let mut best: Vec<(f64, f64)> =
        corners.into_iter().filter(|cost| total(*cost) >= most * (1.0 - EPSILON)).collect();
    // Points on one line meet in one corner several times.
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, last) = (best.first()?, best.last()?);
    let cost = ((first.0 + last.0) / 2.0, (first.1 + last.1) / 2.0);
    Some((cost.0 / unit.0, cost.1 / unit.1))
}

/// Corners of the region in which no point costs more than 1, and of some others.
fn corners(points: &[Point]) -> impl Iterator<Item = (f64, f64)> {
    let inverse = |rate: f64| (rate > EPSILON).then(|| 1.0 / rate);
    let on_axes = points.iter().flat_map(move |(bytes, operations)| {
        let (byte, operation) = (inverse(*bytes), inverse(*operations));
        [byte.map(|byte| (byte, 0.0)), operation.map(|operation| (0.0, operation))]
    });
    let crossing = |(a, b): (&Point, &Point)| {
        let determinant = a.0 * b.1 - b.0 * a.1;
        let cost = ((b.1 - a.1) / determinant, (a.0 - b.0) / determinant);
        (determinant.abs() > EPSILON && cost.0 >= 0.0 && cost.1 >= 0.0).then_some(cost)
    };
    let pairs = points.iter().enumerate();
    let pairs = pairs.flat_map(|(at, a)| points[at + 1..].iter().map(move |b| (a, b)));
    on_axes.flatten().chain(pairs.filter_map(crossing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(size: f64, operations: f64) -> DiskFlow {
        DiskFlow { read_bytes: size * operations, reads: operations, ..DiskFlow::default() }
    }

    fn learned(flows: &[DiskFlow]) -> DeviceTime {
        let mut device = DeviceTime::default();
        flows.iter().for_each(|flow| device.learn(flow, 1.0, 8.0));
        device
    }

    /// One measurement as both terms would cost 2, and lose half of the device.
    #[test]
    fn one_request_size_costs_one_device() {
        let stream = reads(65536.0, 800.0);
        let device = learned(&[stream]);
        assert!((device.time(&stream).unwrap() - 1.0).abs() < 1e-9);
        let (bytes, operations) = device.speeds().unwrap();
        assert!((bytes - 2.0 * 65536.0 * 800.0).abs() < 1.0 && (operations - 1600.0).abs() < 1e-6);
    }

    #[test]
    fn only_a_full_interval_teaches() {
        let mut device = DeviceTime::default();
        let half = reads(4096.0, 100.0);
        for (busy_ratio, depth) in [(0.5, 8.0), (1.0, 1.0)] {
            device.learn(&half, busy_ratio, depth);
            assert_eq!(device, DeviceTime::default());
        }
        device.learn(&reads(4096.0, 2.0), 1.0, 8.0);
        assert_eq!(device.time(&half), None, "two slow requests are not a device");
        device.learn(&half, 1.0, 8.0);
        assert_eq!(device.time(&half), Some(1.0));
    }

    #[test]
    fn a_lost_burst_is_forgotten() {
        let (burst, base) = (reads(16384.0, 3000.0), reads(16384.0, 500.0));
        let mut device = learned(&[burst]);
        assert!(device.time(&base).unwrap() < 0.2);
        (0..300).for_each(|_| device.learn(&base, 1.0, 8.0));
        assert!(device.time(&base).unwrap() > 0.95);
        device.learn(&burst, 0.5, 1.0);
        assert!((device.time(&burst).unwrap() - 1.0).abs() < 1e-9, "it did it, so it can");
    }

    #[test]
    fn the_part_of_an_unknown_device_is_that_of_bytes_and_operations() {
        let (small, large) = (reads(4096.0, 300.0), reads(1048576.0, 100.0));
        let device = DeviceTime::default();
        let all = small.and(large);
        let parts = [device.part(&small, &all), device.part(&large, &all)];
        assert!((parts[0] + parts[1] - 1.0).abs() < 1e-9);
        assert!(parts[0] > 0.37 && parts[0] < 0.40, "{parts:?}");
        assert_eq!(device.part(&small, &DiskFlow::default()), 0.0);
    }
}
