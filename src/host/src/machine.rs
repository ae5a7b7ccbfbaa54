//! The machine itself: CPUs, memory, disks and load, from `/proc`.

use std::path::Path;

use procfs::{ExplicitSystemInfo, FromBufRead, FromBufReadSI, KernelStats, Meminfo};

use super::cgroup::ReadError;
use super::cgroup::parse::{self, Malformed};
use super::disks::Disks;
use super::kernfs::{DirId, FileId, KernError, KernFs};
use tenantd_control::measure::disk::{Device, PerDisk};
use tenantd_control::measure::sample::HostSample;
use tenantd_policy::huge_pages;

/// The kernel reports CPU times to user space in hundredths of a second on every machine (`USER_HZ`).
const USEC_PER_JIFFY: u64 = 10_000;

/// The kept files of the machine.
#[derive(Debug)]
pub struct Machine {
    proc: DirId,
    stat: FileId,
    meminfo: FileId,
    min_free: Option<FileId>,
    /// Absent without PSI.
    pressure: Option<FileId>,
    /// Absent without ZFS when the agent started.
    arc: Option<FileId>,
    disks: Disks,
}

impl Machine {
    /// Opens `/proc`.
    pub fn open(kernel: &mut impl KernFs) -> Result<Machine, KernError> {
        let proc = kernel.open_dir(Path::new("/proc"))?;
        let stat = kernel.open_file(proc, "stat")?;
        let meminfo = kernel.open_file(proc, "meminfo")?;
        // Some Linux-like systems have no such file.
        let min_free = kernel.open_file(proc, "sys/vm/min_free_kbytes").ok();
        let pressure = kernel.open_file(proc, "pressure/memory").ok();
        let arc = kernel.open_file(proc, "spl/kstat/zfs/arcstats").ok();
        let disks = Disks::open(kernel, proc);
        Ok(Machine { proc, stat, meminfo, min_free, pressure, arc, disks })
    }

    /// The kept directory of `/proc`.
    pub fn proc(&self) -> DirId {
        self.proc
    }

    /// Devices of the last sample.
    pub fn sampled_disks(&self) -> PerDisk<()> {
        self.disks.sampled()
    }

    /// Disks of the last sample on which requests can be limited.
    pub fn leaf_disks(&self) -> &[Device] {
        self.disks.leaves()
    }

    /// Reads the counters of the host. Fails if a file is unreadable or malformed: without the machine's size
    /// nothing can be divided.
    pub fn sample(&mut self, kernel: &mut impl KernFs) -> Result<HostSample, ReadError> {
        let stat = kernel.read(self.stat)?;
        // The parser needs these facts only for values that are not used here.
        let info = ExplicitSystemInfo {
            boot_time_secs: 0,
            ticks_per_second: 100,
            page_size: 4096,
            is_little_endian: true,
        };
        let stat = KernelStats::from_buf_read(stat, &info)
            .map_err(|error| malformed("/proc/stat", &error))?;
        let total = &stat.total;
        let busy = total.user
            + total.nice
            + total.system
            + total.irq.unwrap_or(0)
            + total.softirq.unwrap_or(0)
            + total.steal.unwrap_or(0);
        let meminfo = Meminfo::from_buf_read(kernel.read(self.meminfo)?)
            .map_err(|error| malformed("/proc/meminfo", &error))?;
        let arc = self.arc.and_then(|file| arc_bytes(kernel.read(file).ok()?)).unwrap_or(0);
        let memory = memory(&meminfo, arc);
        let disks = self.disks.sample(kernel, self.proc);
        Ok(HostSample {
            nr_cpus: stat.cpu_time.len() as u32,
            busy_usec: Some(busy * USEC_PER_JIFFY),
            idle_usec: Some((total.idle + total.iowait.unwrap_or(0)) * USEC_PER_JIFFY),
            memory_total_bytes: memory.total,
            huge_pages_bytes: memory.huge_pages,
            memory_available_bytes: memory.available,
            memory_free_bytes: Some(meminfo.mem_free),
            memory_full_usec: self.pressure.and_then(|file| {
                // EOPNOTSUPP if it is compiled in and switched off.
                parse::pressure(kernel.read(file).ok()?).ok()?.full_usec
            }),
            unreclaimable_bytes: memory.unreclaimable,
            anon_bytes: meminfo.anon_pages.map(|anon| anon + meminfo.shmem.unwrap_or(0)),
            swap_free_bytes: Some(meminfo.swap_free),
            kept_free_bytes: self
                .min_free
                .and_then(|file| kept_free_bytes(kernel.read(file).ok()?)),
            disks,
        })
    }

    /// Id of this boot: values in kernel files do not outlive it.
    pub fn boot_id(&self, kernel: &mut impl KernFs) -> Result<String, KernError> {
        let text = kernel.read_once(self.proc, "sys/kernel/random/boot_id")?;
        Ok(String::from_utf8_lossy(text).trim().to_string())
    }

    /// True if the host accounts pressure.
    pub fn has_pressure(&self, kernel: &mut impl KernFs) -> bool {
        let text = kernel.read_once(self.proc, "pressure/cpu");
        text.is_ok_and(|text| parse::pressure(text).is_ok())
    }
}

/// Memory of the host, in bytes.
#[derive(Debug, PartialEq, Eq)]
struct Memory {
    total: u64,
    huge_pages: u64,
    available: Option<u64>,
    unreclaimable: Option<u64>,
}

/// Memory without huge pages. Of the rest all is unreclaimable that is neither free, nor file pages, nor reclaimable slab, nor
/// cache of ZFS (`arc`, which shrinks, and which the kernel counts as in use): anonymous and shared memory, locked pages, page
/// tables, stacks, memory of drivers. A sum of these parts would miss those without a line in `meminfo`.
fn memory(meminfo: &Meminfo, arc: u64) -> Memory {
    let huge_pages = huge_pages(meminfo);
    let total = meminfo.mem_total.saturating_sub(huge_pages);
    let cache = || {
        let file = meminfo.active_file? + meminfo.inactive_file?;
        Some(file + meminfo.s_reclaimable.unwrap_or(0) + arc)
    };
    Memory {
        total,
        huge_pages,
        available: meminfo.mem_available.map(|available| (available + arc).min(total)),
        unreclaimable: cache()
            .map(|cache| total.saturating_sub(meminfo.mem_free).saturating_sub(cache)),
    }
}

/// Part of the cache of ZFS that shrinks when memory is short, in bytes: its size above its least one.
fn arc_bytes(arcstats: &[u8]) -> Option<u64> {
    let of = |name: &str| -> Option<u64> {
        let lines = arcstats.split(|byte| *byte == b'\n');
        let words = |line: &[u8]| -> Option<Vec<String>> {
            Some(
                std::str::from_utf8(line)
                    .ok()?
                    .split_ascii_whitespace()
                    .map(str::to_string)
                    .collect(),
            )
        };
        let mut lines =
            lines.filter_map(words).filter(|words| words.first().is_some_and(|it| it == name));
        lines.next()?.get(2)?.parse().ok()
    };
    Some(of("size")?.saturating_sub(of("c_min")?))
}

/// The kernel's high watermark, up to which it reclaims: 1.5 times `vm.min_free_kbytes`. A larger
/// `vm.watermark_scale_factor` is covered by the margin of a large machine.
fn kept_free_bytes(text: &[u8]) -> Option<u64> {
    let lowest: u64 = std::str::from_utf8(text).ok()?.trim().parse().ok()?;
    Some(lowest.saturating_mul(1024).saturating_mul(3) / 2)
}

/// Reports only the kind of another crate's parse error, because its text names its own source files.
fn malformed(path: &str, error: &procfs::ProcError) -> ReadError {
    let text = match error {
        procfs::ProcError::Incomplete(_) => "cut off",
        _ => "without a field that every kernel prints",
    };
    let source = Malformed { line: 1, text: text.into(), expected: "the kernel's format" };
    ReadError::Malformed { path: path.to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 1000 kB\nMemFree: 100 kB\nMemAvailable: 150 kB\nBuffers: 0 kB\nCached: 60 kB\n\
        SwapCached: 0 kB\nActive: 0 kB\nInactive: 0 kB\nActive(file): 40 kB\nInactive(file): 20 kB\nSwapTotal: 0 kB\n\
        SwapFree: 0 kB\nDirty: 0 kB\nWriteback: 0 kB\nMapped: 0 kB\nSlab: 0 kB\nSReclaimable: 10 kB\nCommitted_AS: 0 kB\n\
        VmallocTotal: 0 kB\nVmallocUsed: 0 kB\nVmallocChunk: 0 kB\n";

    fn of(more: &str, arc: u64) -> Memory {
        let text = format!("{MEMINFO}{more}");
        memory(&Meminfo::from_buf_read(text.as_bytes()).unwrap(), arc)
    }

    /// A database or a virtual machine reserves them: the kernel counts them as in use, and no cgroup gets them.
    #[test]
    fn huge_pages_are_not_there() {
        let memory = of("HugePages_Total: 3\nHugepagesize: 200 kB\n", 0);
        assert_eq!((memory.total, memory.huge_pages), (400 << 10, 600 << 10));
        assert_eq!((memory.available, memory.unreclaimable), (Some(150 << 10), Some(230 << 10)));
        let of_all_sizes = of("HugePages_Total: 3\nHugepagesize: 200 kB\nHugetlb: 700 kB\n", 0);
        assert_eq!(of_all_sizes.huge_pages, 700 << 10);
    }

    #[test]
    fn the_cache_of_zfs_is_available() {
        let arcstats = b"9 1 0x01 147 39984 6 7\nname                            type data\nhits 4 1\nc_min                           \
            4    1024\nc_max                           4    9999\nsize                            4    301024\n";
        assert_eq!(arc_bytes(arcstats), Some(300_000));
        assert_eq!((arc_bytes(b""), arc_bytes(b"size 4 x\nc_min 4 1\n")), (None, None));
        let (without, with) = (of("", 0), of("", 300_000));
        assert_eq!(with.available, without.available.map(|it| it + 300_000));
        assert_eq!(with.unreclaimable, without.unreclaimable.map(|it| it - 300_000));
    }

    #[test]
    fn the_kernel_keeps_its_high_watermark_free() {
        assert_eq!(kept_free_bytes(b"45056\n"), Some(66 << 20));
        assert_eq!((kept_free_bytes(b""), kept_free_bytes(b"-1\n")), (None, None));
    }
}
