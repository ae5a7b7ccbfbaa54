//! Disks of the machine: the leaves of its block devices, and the busiest of them.
//!
//! `/proc/diskstats` has a line for each device and partition that the kernel knows: disks, and what is stacked on them.
//! The kernel counts a request at each level of a stack, and weights and limits act at its end. So only *leaves* are
//! sampled: whole devices of drivers that do not stack devices (`/sys/block/NAME`). A disk in memory (ram, zram) is not a
//! disk. A loop device is a file on another disk, unless that file is in a file system of the network or of a program
//! (FUSE): then the loop is the only device of its requests.
//!
//! A machine may have a hundred leaves. The [`DISKS_MAX`] with the most work of the last minute are sampled, for the machine
//! and for each tenant. Which devices are leaves is looked up again each minute, because stacks are built and removed
//! while the agent runs.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cgroup::parse::number;
use crate::kernfs::{DirId, FileId, KernFs};
use tenantd_control::measure::disk::{
    DISKS_MAX, Device, DiskCounts, DiskName, DiskSample, PerDisk,
};
use tenantd_core::kernel_text::mountinfo;

/// Samples between two looks at the stacks.
const LOOK_SAMPLES: u32 = 60;
/// Part of the earlier work that counts in the next sample: half in 42 s.
const KEPT_RATIO: f64 = 0.983_6;
/// Bytes with about the work of an operation, to order devices.
const BYTES_PER_OPERATION: f64 = 65_536.0;
/// Bytes of a sector in every counter of the kernel.
const SECTOR_BYTES: u64 = 512;
const RAM_MAJOR: u32 = 1;
/// Folders that the drivers with a device below their own make for each.
const STACKS: [&str; 3] = ["dm", "md", "bcache"];
/// File systems without a block device of this machine; those of programs are `fuse` or `fuse.NAME`.
const OFF_DISK: [&[u8]; 8] =
    [b"fuse", b"nfs", b"nfs4", b"9p", b"cifs", b"smb3", b"ceph", b"glusterfs"];

/// Kept file of all devices, and their recent work.
#[derive(Debug)]
pub struct Disks {
    /// Absent on a kernel without block devices.
    file: Option<FileId>,
    leaves: BTreeMap<Device, Leaf>,
    nr_samples: u32,
    sampled: PerDisk<()>,
    present: Vec<Device>,
}

/// A device that was looked up.
#[derive(Debug)]
struct Leaf {
    name: Vec<u8>,
    is_leaf: bool,
    counts: DiskCounts,
    /// Operations of the last minute, with large ones as several.
    work: f64,
}

impl Disks {
    /// Opens the file in `/proc`, which is open as `proc`.
    pub fn open(kernel: &mut impl KernFs, proc: DirId) -> Disks {
        let file = kernel.open_file(proc, "diskstats").ok();
        let (leaves, sampled, present) = Default::default();
        Disks { file, leaves, nr_samples: 0, sampled, present }
    }

    /// Devices of the last sample, of which the counters of cgroups are read.
    pub fn sampled(&self) -> PerDisk<()> {
        self.sampled
    }

    /// All leaves of the last sample that ever had a request, in the order of their numbers.
    pub fn leaves(&self) -> &[Device] {
        &self.present
    }

    /// Counters of the busiest leaves; empty if they cannot be read.
    pub fn sample(&mut self, kernel: &mut impl KernFs, proc: DirId) -> PerDisk<DiskSample> {
        let Some(file) = self.file else { return PerDisk::default() };
        let Ok(text) = kernel.read(file) else { return PerDisk::default() };
        let lines: Vec<Line> = text.split(|byte| *byte == b'\n').filter_map(line).collect();
        if self.nr_samples.is_multiple_of(LOOK_SAMPLES) {
            let is_there =
                |device: &Device, leaf: &Leaf| lines.iter().any(|it| it.is(*device, &leaf.name));
            self.leaves.retain(|device, leaf| leaf.is_leaf && is_there(device, leaf));
            let leaves = self.leaves.values_mut();
            leaves.for_each(|leaf| leaf.is_leaf = is_leaf(kernel, proc, &leaf.name));
        }
        self.nr_samples = self.nr_samples.wrapping_add(1);
        let mut busiest: Vec<(f64, &Line)> = Vec::new();
        for line in &lines {
            let is_same = self.leaves.get(&line.device).is_some_and(|it| it.name == line.name);
            if !is_same {
                let is_leaf = !is_in_memory(line) && is_leaf(kernel, proc, &line.name);
                let (name, counts) = (line.name.clone(), line.sample.counts);
                self.leaves.insert(line.device, Leaf { name, is_leaf, counts, work: 0.0 });
            }
            let Some(leaf) = self.leaves.get_mut(&line.device).filter(|it| it.is_leaf) else {
                continue;
            };
            leaf.note(line.sample.counts);
            busiest.push((leaf.work, line));
        }
        self.present = busiest.iter().map(|(_, line)| line.device).collect();
        self.present.sort_unstable();
        busiest.sort_by(|a, b| b.0.total_cmp(&a.0));
        let of = |(_, line): &(f64, &Line)| (line.device, line.sample);
        let samples = PerDisk::of(busiest.iter().take(DISKS_MAX).map(of));
        self.sampled = samples.filter_map(|_, _| Some(()));
        samples
    }
}

impl Leaf {
    fn note(&mut self, now: DiskCounts) {
        let before = std::mem::replace(&mut self.counts, now);
        let new = |before: u64, now: u64| now.saturating_sub(before) as f64;
        let bytes =
            new(before.read_bytes, now.read_bytes) + new(before.written_bytes, now.written_bytes);
        let operations = new(before.reads, now.reads) + new(before.writes, now.writes);
        self.work = self.work * KEPT_RATIO + operations + bytes / BYTES_PER_OPERATION;
    }
}

/// A line of `/proc/diskstats` of a device that was used.
#[derive(Debug, PartialEq)]
struct Line {
    device: Device,
    name: Vec<u8>,
    sample: DiskSample,
}

impl Line {
    fn is(&self, device: Device, name: &[u8]) -> bool {
        self.device == device && self.name == name
    }
}

/// Parses a line; `None` if the device was never used, and for partitions before Linux 2.6.25, which have fewer numbers.
/// Later kernels append numbers. A merged request counts as one, as in the counters of a cgroup.
fn line(text: &[u8]) -> Option<Line> {
    let mut words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut part = || u32::try_from(number(words.next()?)?).ok();
    let device = Device { major: part()?, minor: part()? };
    let name = words.next()?.to_vec();
    let mut numbers = [0; 11];
    for number_of in &mut numbers {
        *number_of = number(words.next()?)?;
    }
    let [reads, merged_reads, read, _, writes, merged_writes, written, _, _, busy, queued] =
        numbers;
    let counts = DiskCounts {
        read_bytes: read.saturating_mul(SECTOR_BYTES),
        written_bytes: written.saturating_mul(SECTOR_BYTES),
        reads: reads.saturating_add(merged_reads),
        writes: writes.saturating_add(merged_writes),
    };
    let sample =
        DiskSample { name: DiskName::of(&name), counts, busy_msec: busy, queued_msec: queued };
    (counts != DiskCounts::default()).then_some(Line { device, name, sample })
}

fn is_in_memory(line: &Line) -> bool {
    line.device.major == RAM_MAJOR || line.name.starts_with(b"zram")
}

/// True for a whole device without a device below it. A partition has no folder of its own in `/sys/block`.
fn is_leaf(kernel: &mut impl KernFs, proc: DirId, name: &[u8]) -> bool {
    let name: Vec<u8> = name.iter().map(|byte| if *byte == b'/' { b'!' } else { *byte }).collect();
    let path = Path::new("/sys/block").join(OsStr::from_bytes(&name));
    let Ok(dir) = kernel.open_dir(&path) else { return false };
    let backing = kernel.read_once(dir, "loop/backing_file").ok();
    let backing = backing.map(|text| PathBuf::from(OsStr::from_bytes(text.trim_ascii_end())));
    kernel.close_dir(dir);
    if let Some(backing) = backing {
        return is_off_disk(kernel, proc, &backing);
    }
    let stacks = |folder: &str| match kernel.open_dir(&path.join(folder)) {
        Ok(dir) => {
            kernel.close_dir(dir);
            true
        }
        Err(_) => false,
    };
    !STACKS.into_iter().any(stacks)
}

/// True if the file at `path` is in a file system without a block device of this machine.
fn is_off_disk(kernel: &mut impl KernFs, proc: DirId, path: &Path) -> bool {
    let Ok(mounts) = kernel.read_once(proc, "self/mountinfo") else { return false };
    let kind = mountinfo::kind_at(mounts, path);
    kind.is_some_and(|kind| kind.starts_with(b"fuse.") || OFF_DISK.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b" 254       0 vda 90 10 400 7 5 3 88 6 0 1000 2000 1 1 1 1 1 1\n\
        254       1 vda1 1 0 8 0 0 0 0 0 0 0 0\n   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0\n\
        9 9 x\xffy 1 2 3\n\n  8 0 s\xffda 1 0 8 0 0 0 0 0 0 0 0\nnonsense\n";

    #[test]
    fn lines_of_used_devices_are_read() {
        let lines: Vec<Line> = TEXT.split(|byte| *byte == b'\n').filter_map(line).collect();
        let names: Vec<String> = lines.iter().map(|it| it.sample.name.to_string()).collect();
        assert_eq!(names, ["vda", "vda1", "s\\xffda"]);
        let counts =
            DiskCounts { read_bytes: 400 * 512, written_bytes: 88 * 512, reads: 100, writes: 8 };
        assert_eq!(lines[0].sample.counts, counts);
        assert_eq!((lines[0].sample.busy_msec, lines[0].sample.queued_msec), (1000, 2000));
    }

    #[test]
    fn recent_work_orders_devices() {
        let mut leaf =
            Leaf { name: Vec::new(), is_leaf: true, counts: DiskCounts::default(), work: 0.0 };
        leaf.note(DiskCounts { reads: 100, read_bytes: 655_360, ..DiskCounts::default() });
        assert_eq!(leaf.work, 110.0);
        (0..42).for_each(|_| leaf.note(leaf.counts));
        assert!((leaf.work - 55.0).abs() < 0.5, "half in 42 s: {}", leaf.work);
    }
}
