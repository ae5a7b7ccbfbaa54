//! Single readings of cgroups and threads whose files are not kept open.

use std::path::{Path, PathBuf};

use super::mount::{Dialect, Facet, Layout};
use super::parse::{self, Malformed};
use crate::kernfs::{DirId, KernError, KernFs};
use crate::knobs::LEGACY_PERIOD;
use tenantd_control::measure::sample::{MemorySample, PidsSample, ThreadSample};
use tenantd_control::words::knob::{Knob, Value};

/// Dropped bits of a thread's nanosecond count.
const FINER_NSEC: u64 = 0xfff;

/// Reason for a failed reading of a kernel file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// The text differs from the kernel's documentation.
    #[error("cannot understand {path}: {source}")]
    Malformed {
        /// The file.
        path: String,
        /// The parse error.
        source: Malformed,
    },
}

impl ReadError {
    /// True if the cgroup is gone.
    pub fn is_gone(&self) -> bool {
        matches!(self, ReadError::Kernel(error) if error.is_gone())
    }
}

/// Value of `knob` in the cgroup that is open as `dir`, in the tree of its files.
pub fn observe_in(
    kernel: &mut impl KernFs,
    layout: &Layout,
    dir: DirId,
    knob: Knob,
) -> Result<Value, ReadError> {
    let (dialect, name) = (layout.dialect, layout.file(knob));
    let value = dialect.read(knob, kernel.read_once(dir, name)?);
    let value = value.map_err(|source| malformed(kernel, dir, name, source))?;
    if !layout.files(knob).contains(&LEGACY_PERIOD) {
        return Ok(value);
    }
    // The value of a quota depends on its period.
    let period = kernel.read_once(dir, LEGACY_PERIOD)?;
    let value = dialect.with_period(value, period);
    value.map_err(|source| malformed(kernel, dir, LEGACY_PERIOD, source))
}

/// Run and wait times of `tids` from `/proc/TID/schedstat`, without threads that ended.
///
/// `proc` is a kept directory of `/proc`. The file counts time on a CPU and time waiting for one, in ns, and
/// the number of runs (kernel document `scheduler/sched-stats.rst`).
///
/// Rounded to 4 µs: the two are read at slightly different times, and finer digits would be half of a
/// recording.
pub fn thread_samples(kernel: &mut impl KernFs, proc: DirId, tids: &[u32]) -> Vec<ThreadSample> {
    let mut samples = Vec::with_capacity(tids.len());
    for &tid in tids {
        let Ok(text) = kernel.read_once(proc, &format!("{tid}/schedstat")) else { continue };
        let Ok(text) = std::str::from_utf8(text) else { continue };
        let mut numbers = text.split_ascii_whitespace().map(str::parse::<u64>);
        if let (Some(Ok(run_nsec)), Some(Ok(wait_nsec))) = (numbers.next(), numbers.next()) {
            let [run_nsec, wait_nsec] = [run_nsec, wait_nsec].map(|nsec| nsec & !FINER_NSEC);
            samples.push(ThreadSample { tid, run_nsec, wait_nsec });
        }
    }
    samples
}

/// CPU time of the cgroup at `path`, in the cpu tree, since it was made, in µs; `None` if it is gone, or its
/// counter is unreadable or malformed.
pub fn usage_usec(kernel: &mut impl KernFs, layout: &Layout, path: &Path) -> Option<u64> {
    let name = match layout.dialect {
        Dialect::Unified => "cpu.stat",
        Dialect::Legacy => "cpuacct.usage",
    };
    let path = accounted(layout, path)?;
    let dir = kernel.open_dir(&path).ok()?;
    let usage_usec = kernel.read_once(dir, name).ok().and_then(|text| match layout.dialect {
        Dialect::Unified => parse::keyed(text, ["usage_usec"]).ok()?[0],
        Dialect::Legacy => parse::single::<u64>(text, "nanoseconds").ok().map(|nsec| nsec / 1000),
    });
    kernel.close_dir(dir);
    usage_usec
}

/// Directory that counts the CPU time of the cgroup at `path`: in cgroup v1 it may be in another tree.
fn accounted(layout: &Layout, path: &Path) -> Option<PathBuf> {
    let tree = |facet: Facet| layout.tree(facet).map(|index| &layout.trees[index]);
    let (weights, counters) = (tree(Facet::Cpu)?, tree(Facet::Cpuacct)?);
    let of_root = path.strip_prefix(&weights.root).ok().map(|below| counters.root.join(below));
    // Cgroups above the agent's root have the same name in both.
    let of_mount =
        || path.strip_prefix(&weights.mount).ok().map(|below| counters.mount.join(below));
    of_root.or_else(of_mount)
}

/// Number of periods in which a quota throttled the cgroup at `path`, in the cpu tree; `None` if it is gone, or
/// its counter is unreadable or malformed.
pub fn nr_throttled(kernel: &mut impl KernFs, path: &Path) -> Option<u64> {
    let dir = kernel.open_dir(path).ok()?;
    let text = kernel.read_once(dir, "cpu.stat").ok();
    let found = text.and_then(|text| parse::keyed(text, ["nr_throttled"]).ok());
    kernel.close_dir(dir);
    found?[0]
}

/// Memory counters of the cgroup in `dir` right now, from files opened for this, without events. Cache that the
/// kernel does not list separately counts as zero.
pub fn memory_sample(
    kernel: &mut impl KernFs,
    layout: &Layout,
    dir: DirId,
) -> Result<MemorySample, ReadError> {
    memory_in(kernel, dir, layout.dialect)
}

/// Memory counters of the unit in `dir`, which is a cgroup of v2.
pub fn memory_sample_of_unit(
    kernel: &mut impl KernFs,
    dir: DirId,
) -> Result<MemorySample, ReadError> {
    memory_in(kernel, dir, Dialect::Unified)
}

fn memory_in(
    kernel: &mut impl KernFs,
    dir: DirId,
    dialect: Dialect,
) -> Result<MemorySample, ReadError> {
    let current = match dialect {
        Dialect::Unified => "memory.current",
        Dialect::Legacy => "memory.usage_in_bytes",
    };
    let stat = "memory.stat";
    let text = kernel.read_once(dir, current)?;
    let current_bytes = parse::single::<u64>(text, "bytes");
    let current_bytes = current_bytes.map_err(|source| malformed(kernel, dir, current, source))?;
    let found = parse::keyed(kernel.read_once(dir, stat)?, cache_keys(dialect));
    let found = found.map_err(|source| malformed(kernel, dir, stat, source))?;
    let [inactive_file_bytes, active_file_bytes] = found.map(Option::unwrap_or_default);
    Ok(MemorySample { current_bytes, inactive_file_bytes, active_file_bytes, ..Default::default() })
}

/// Process counters of the cgroup `generation` in `dir`; `None` if the controller is not enabled there.
pub fn pids_sample(
    kernel: &mut impl KernFs,
    dir: DirId,
    generation: u64,
) -> Result<Option<PidsSample>, ReadError> {
    let (current, events) = ("pids.current", "pids.events");
    let nr_current = match kernel.read_once(dir, current) {
        Ok(text) => parse::single::<u64>(text, "a number of processes"),
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let nr_current = nr_current.map_err(|source| malformed(kernel, dir, current, source))?;
    let nr_refused = match kernel.read_once(dir, events) {
        Ok(text) => parse::keyed(text, ["max"]),
        Err(error) if error.is_gone() => Ok([None]),
        Err(error) => return Err(error.into()),
    };
    let [nr_refused] = nr_refused.map_err(|source| malformed(kernel, dir, events, source))?;
    Ok(Some(PidsSample { generation, nr_current, nr_refused }))
}

const fn cache_keys(dialect: Dialect) -> [&'static str; 2] {
    match dialect {
        Dialect::Unified => ["inactive_file", "active_file"],
        Dialect::Legacy => ["total_inactive_file", "total_active_file"],
    }
}

/// Keys of `memory.stat` in a sample: inactive and active file cache; refaults of anonymous memory and of
/// files; anonymous and shared memory; reclaimable slab; reclaimed pages.
pub(super) const fn memory_keys(dialect: Dialect) -> [&'static str; 8] {
    let [inactive, active] = cache_keys(dialect);
    let [refault_anon, refault_file, anon, shmem] = match dialect {
        Dialect::Unified => ["workingset_refault_anon", "workingset_refault_file", "anon", "shmem"],
        // Without `total_` the v1 counters exclude nested cgroups.
        Dialect::Legacy => [
            "total_workingset_refault_anon",
            "total_workingset_refault_file",
            "total_rss",
            "total_shmem",
        ],
    };
    // The v1 file has no slab, so that part of the charge counts as not reclaimable, and no reclaimed pages.
    [inactive, active, refault_anon, refault_file, anon, shmem, "slab_reclaimable", "pgsteal"]
}

pub(super) fn malformed(
    kernel: &impl KernFs,
    dir: DirId,
    name: &str,
    source: Malformed,
) -> ReadError {
    let path = kernel.dir_path(dir).join(name).display().to_string();
    ReadError::Malformed { path, source }
}
