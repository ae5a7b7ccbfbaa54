//! A disk, `sda`: requests that a test makes in the name of a process, the files that count them, and those with weights
//! and limits.
//!
//! Nothing is read or written, and no process waits: the counters are those of a disk that did the work. Processes that
//! want all of the disk get it by the weights of its scheduler (`contend`).

use std::collections::BTreeMap;

use nix::errno::Errno;

use super::parse;

/// A folder in which the disk can be found.
pub(super) const SYS_FILE: &str = "/sys/block/sda/size";
pub(super) const QUEUE: &str = "/sys/block/sda/queue";
/// Settings of the chosen scheduler, a new directory after each choice.
pub(super) const SETTINGS: &str = "/sys/block/sda/queue/iosched";
pub(super) const DEFAULT_WEIGHT: u64 = 100;
const BFQ_WEIGHT_MAX: u64 = 1000;
const COST_WEIGHT_MAX: u64 = 10_000;
pub(super) const DEVICE: &str = "8:0";
const SECTOR_BYTES: u64 = 512;

/// Requests to the disk, and their times in the disk and in its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskWork {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Read operations.
    pub reads: u64,
    /// Write operations.
    pub writes: u64,
    /// Time with a request, in ms.
    pub busy_msec: u64,
    /// Sum of the times of all requests, in ms.
    pub queued_msec: u64,
}

impl DiskWork {
    /// A second of a disk that does so many reads of 64 KiB, with this sum of waits in milliseconds.
    pub const fn reads(count: u64, queued_msec: u64) -> DiskWork {
        DiskWork {
            reads: count,
            read_bytes: count * (64 << 10),
            busy_msec: 1000,
            queued_msec,
            written_bytes: 0,
            writes: 0,
        }
    }

    /// Part of it, with counts rounded.
    pub fn part(&self, part: f64) -> DiskWork {
        let of = |count: u64| (count as f64 * part).round() as u64;
        DiskWork {
            read_bytes: of(self.read_bytes),
            written_bytes: of(self.written_bytes),
            reads: of(self.reads),
            writes: of(self.writes),
            busy_msec: of(self.busy_msec),
            queued_msec: of(self.queued_msec),
        }
    }

    pub(super) fn add(&mut self, other: &DiskWork) {
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.reads += other.reads;
        self.writes += other.writes;
        self.busy_msec += other.busy_msec;
        self.queued_msec += other.queued_msec;
    }
}

/// `/proc/diskstats`.
pub(super) fn show_diskstats(work: &DiskWork) -> String {
    let DiskWork { read_bytes, written_bytes, reads, writes, busy_msec, queued_msec } = *work;
    let (read, written) = (read_bytes / SECTOR_BYTES, written_bytes / SECTOR_BYTES);
    format!(
        "   8       0 sda {reads} 0 {read} 0 {writes} 0 {written} 0 0 {busy_msec} {queued_msec} 0 0 0 0 0 0\n   \
         8       1 sda1 {reads} 0 {read} 0 {writes} 0 {written} 0 0 {busy_msec} {queued_msec} 0 0 0 0 0 0\n"
    )
}

/// `io.stat`.
pub(super) fn show_io_stat(work: &DiskWork) -> String {
    let DiskWork { read_bytes, written_bytes, reads, writes, .. } = *work;
    if *work == DiskWork::default() {
        return String::new();
    }
    format!(
        "{DEVICE} rbytes={read_bytes} wbytes={written_bytes} rios={reads} wios={writes} dbytes=0 dios=0\n"
    )
}

/// `blkio.throttle.io_service_bytes_recursive` and `blkio.throttle.io_serviced_recursive`.
pub(super) fn show_blkio(read: u64, written: u64) -> String {
    let total = read + written;
    let lines = [("Read", read), ("Write", written), ("Sync", total), ("Async", 0), ("Discard", 0)];
    let lines: String =
        lines.iter().map(|(name, count)| format!("{DEVICE} {name} {count}\n")).collect();
    if total == 0 {
        "Total 0\n".into()
    } else {
        format!("{lines}{DEVICE} Total {total}\nTotal {total}\n")
    }
}

/// Scheduler of the disk, and `io.cost`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divider {
    /// True if the scheduler is bfq, else it is mq-deadline. Its files exist only then, as if the module were loaded for it.
    pub is_bfq: bool,
    /// True if the disk has no scheduler.
    pub is_none: bool,
    /// True if `io.cost` is on.
    pub has_cost: bool,
    /// True if bfq serves one request at a time.
    pub is_strict: bool,
    /// True if weights have no effect, as those of `io.cost` with rates above the disk's.
    pub is_void: bool,
    /// Number of choices of a scheduler.
    pub nr_choices: u64,
}

/// Limit of each kind: bytes and operations per second, reads and writes; `None` if there is none.
pub(super) type Limits = [Option<u64>; 4];
const LIMITS: [&str; 4] = ["rbps", "wbps", "riops", "wiops"];

/// `io.*` and `blkio.*` as written.
#[derive(Clone, Debug)]
pub(super) struct DiskKnobs {
    pub(super) weight: u64,
    pub(super) bfq: u64,
    limits: BTreeMap<String, Limits>,
}

impl Default for DiskKnobs {
    fn default() -> Self {
        DiskKnobs { weight: DEFAULT_WEIGHT, bfq: DEFAULT_WEIGHT, limits: BTreeMap::new() }
    }
}

impl DiskKnobs {
    /// `io.max`.
    pub(super) fn show_max(&self) -> String {
        let line = |(device, limits): (&String, &Limits)| {
            let each = LIMITS.iter().zip(limits).map(|(key, limit)| {
                format!(" {key}={}", limit.map_or("max".into(), |limit| limit.to_string()))
            });
            format!("{device}{}\n", each.collect::<String>())
        };
        self.limits.iter().map(line).collect()
    }

    pub(super) fn write_max(&mut self, text: &str) -> Result<(), Errno> {
        let mut words = text.split_ascii_whitespace();
        let device = vet(words.next())?;
        let mut limits = self.limits.get(device).copied().unwrap_or_default();
        for word in words {
            let (key, value) = word.split_once('=').ok_or(Errno::EINVAL)?;
            let at = LIMITS.iter().position(|known| *known == key).ok_or(Errno::EINVAL)?;
            limits[at] = if value == "max" { None } else { Some(parse::unsigned(value)?) };
            if limits[at] == Some(0) {
                return Err(Errno::ERANGE);
            }
        }
        self.set(device, limits);
        Ok(())
    }

    /// `blkio.throttle.read_bps_device` and the like, by the place of the kind.
    pub(super) fn show_throttle(&self, kind: usize) -> String {
        let lines = self
            .limits
            .iter()
            .filter_map(|(device, limits)| Some(format!("{device} {}\n", limits[kind]?)));
        lines.collect()
    }

    pub(super) fn write_throttle(&mut self, kind: usize, text: &str) -> Result<(), Errno> {
        let mut words = text.split_ascii_whitespace();
        let device = vet(words.next())?;
        let limit = parse::unsigned(words.next().ok_or(Errno::EINVAL)?)?;
        let mut limits = self.limits.get(device).copied().unwrap_or_default();
        limits[kind] = Some(limit).filter(|limit| *limit > 0);
        self.set(device, limits);
        Ok(())
    }

    fn set(&mut self, device: &str, limits: Limits) {
        if limits == Limits::default() {
            self.limits.remove(device);
        } else {
            self.limits.insert(device.to_string(), limits);
        }
    }
}

pub(super) fn vet(device: Option<&str>) -> Result<&str, Errno> {
    device.filter(|device| *device == DEVICE).ok_or(Errno::ENODEV)
}

/// Parses a weight for all disks, which may begin with `default`; those of single disks are not simulated.
pub(super) fn weight(text: &str, is_bfq: bool) -> Result<u64, Errno> {
    let text = text.trim();
    let weight = parse::unsigned(text.strip_prefix("default ").unwrap_or(text))?;
    let most = if is_bfq { BFQ_WEIGHT_MAX } else { COST_WEIGHT_MAX };
    if (1..=most).contains(&weight) { Ok(weight) } else { Err(Errno::ERANGE) }
}
