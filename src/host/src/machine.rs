//! The machine itself: CPUs, memory and load, from `/proc`.

use std::path::Path;

use procfs::{ExplicitSystemInfo, FromBufRead, FromBufReadSI, KernelStats, Meminfo};

use super::cgroup::ReadError;
use super::cgroup::parse::{self, Malformed};
use super::kernfs::{DirId, FileId, KernError, KernFs};
use tenantd_control::measure::sample::HostSample;

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
        Ok(Machine { proc, stat, meminfo, min_free, pressure })
    }

    /// The kept directory of `/proc`.
    pub fn proc(&self) -> DirId {
        self.proc
    }

    /// Reads the counters of the host. Fails if a file is unreadable or malformed: without the machine's size
    /// nothing can be divided.
    pub fn sample(&self, kernel: &mut impl KernFs) -> Result<HostSample, ReadError> {
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
        Ok(HostSample {
            nr_cpus: stat.cpu_time.len() as u32,
            busy_usec: Some(busy * USEC_PER_JIFFY),
            idle_usec: Some((total.idle + total.iowait.unwrap_or(0)) * USEC_PER_JIFFY),
            memory_total_bytes: meminfo.mem_total,
            memory_available_bytes: meminfo.mem_available,
            memory_free_bytes: Some(meminfo.mem_free),
            memory_full_usec: self.pressure.and_then(|file| {
                // EOPNOTSUPP if it is compiled in and switched off.
                parse::pressure(kernel.read(file).ok()?).ok()?.full_usec
            }),
            unreclaimable_bytes: unreclaimable_bytes(&meminfo),
            anon_bytes: meminfo.anon_pages.map(|anon| anon + meminfo.shmem.unwrap_or(0)),
            swap_free_bytes: Some(meminfo.swap_free),
            kept_free_bytes: self
                .min_free
                .and_then(|file| kept_free_bytes(kernel.read(file).ok()?)),
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

/// All memory that is neither free, nor file pages, nor reclaimable slab: anonymous and shared memory, locked
/// pages, page tables, stacks, memory of drivers. A sum of these parts would miss those without a line in
/// `meminfo`.
fn unreclaimable_bytes(meminfo: &Meminfo) -> Option<u64> {
    let cache = meminfo.active_file? + meminfo.inactive_file? + meminfo.s_reclaimable.unwrap_or(0);
    Some(meminfo.mem_total.saturating_sub(meminfo.mem_free).saturating_sub(cache))
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

    #[test]
    fn the_kernel_keeps_its_high_watermark_free() {
        assert_eq!(kept_free_bytes(b"45056\n"), Some(66 << 20));
        assert_eq!((kept_free_bytes(b""), kept_free_bytes(b"-1\n")), (None, None));
    }
}
