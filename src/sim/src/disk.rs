//! A disk, `sda`: requests that a test makes in the name of a process, and the files that count them.
//!
//! Nothing is read or written, and no process waits: the counters are those of a disk that did the work.

/// A folder in which the disk can be found.
pub(super) const SYS_FILE: &str = "/sys/block/sda/size";
const DEVICE: &str = "8:0";
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
