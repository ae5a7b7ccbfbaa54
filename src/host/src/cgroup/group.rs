//! One cgroup with its kept files, in all trees of the machine.
//!
//! In cgroup v2 a tenant is one directory; in cgroup v1 it is one directory in each tree, and each may be
//! missing or vanish on its own. [`Cgroup`] hides that: it opens the existing files, records the missing ones,
//! and returns typed samples and values. Kept descriptors distinguish a removed cgroup from a new one of the
//! same name (ENODEV), so a [`Cgroup`] always means the same cgroup.

use std::path::PathBuf;
use std::sync::Arc;

use super::last::Last;
use super::mount::{Dialect, Facet, Layout, Tree};
use super::parse::{self, Counted, Malformed};
use super::readings::{ReadError, memory_keys, observe_in};
use super::threads::{self, Threads};
use crate::kernfs::{DirId, ErrorKind, FileId, KernError, KernFs, Operation};
use crate::knobs::row_of;
use tenantd_control::measure::disk::{DiskCounts, PerDisk};
use tenantd_control::measure::sample::{MemorySample, TenantSample};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::kernel_text::proc_files::process_numbers;

/// Pages of 4 KiB, in which `memory.stat` counts events of pages.
const PAGES_PER_MIB: u64 = 256;

const UNIFIED_MEMORY: [&str; 8] = memory_keys(Dialect::Unified);
const LEGACY_MEMORY: [&str; 8] = memory_keys(Dialect::Legacy);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    CpuUsage,
    CpuThrottled,
    CpuPressure,
    MemoryCurrent,
    MemoryStat,
    MemoryEvents,
    MemoryPressure,
    Populated,
    DiskBytes,
    DiskOperations,
    DiskPressure,
}

impl Source {
    const ALL: [Source; 11] = [
        Source::CpuUsage,
        Source::CpuThrottled,
        Source::CpuPressure,
        Source::MemoryCurrent,
        Source::MemoryStat,
        Source::MemoryEvents,
        Source::MemoryPressure,
        Source::Populated,
        Source::DiskBytes,
        Source::DiskOperations,
        Source::DiskPressure,
    ];

    /// True if the cgroup may lack this file: nothing is enforced with it.
    fn is_optional(self) -> bool {
        matches!(self, Source::DiskBytes | Source::DiskOperations | Source::DiskPressure)
    }

    /// Tree and name of this file. In v2, usage and throttling are in one file, which is read once; so are bytes and
    /// operations of disks.
    fn place(self, dialect: Dialect) -> Option<(Facet, &'static str)> {
        Some(match (dialect, self) {
            (Dialect::Unified, Source::CpuUsage) => (Facet::Cpuacct, "cpu.stat"),
            (Dialect::Unified, Source::CpuThrottled) => return None,
            (Dialect::Legacy, Source::CpuUsage) => (Facet::Cpuacct, "cpuacct.usage"),
            (Dialect::Legacy, Source::CpuThrottled) => (Facet::Cpu, "cpu.stat"),
            (_, Source::CpuPressure) => (Facet::Pressure, "cpu.pressure"),
            (Dialect::Unified, Source::MemoryCurrent) => (Facet::Memory, "memory.current"),
            (Dialect::Legacy, Source::MemoryCurrent) => (Facet::Memory, "memory.usage_in_bytes"),
            (_, Source::MemoryStat) => (Facet::Memory, "memory.stat"),
            (Dialect::Unified, Source::MemoryEvents) => (Facet::Memory, "memory.events"),
            (Dialect::Legacy, Source::MemoryEvents) => (Facet::Memory, "memory.oom_control"),
            (_, Source::MemoryPressure) => (Facet::Pressure, "memory.pressure"),
            (_, Source::Populated) => (Facet::Pressure, "cgroup.events"),
            (Dialect::Unified, Source::DiskBytes) => (Facet::Io, "io.stat"),
            (Dialect::Unified, Source::DiskOperations) => return None,
            (Dialect::Legacy, Source::DiskBytes) => {
                (Facet::Io, "blkio.throttle.io_service_bytes_recursive")
            }
            (Dialect::Legacy, Source::DiskOperations) => {
                (Facet::Io, "blkio.throttle.io_serviced_recursive")
            }
            (_, Source::DiskPressure) => (Facet::Pressure, "io.pressure"),
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Population {
    Told(bool),
    /// There is no file for it, or the cgroups below are not covered.
    Untold,
    /// The file was unreadable, which is recorded as a gap.
    Unread,
}

/// One cgroup in every tree, with its files kept open.
#[derive(Debug)]
pub struct Cgroup {
    dialect: Dialect,
    has_generations: bool,
    /// One directory for each tree of the layout; `None` if the cgroup is not in that tree.
    dirs: Vec<Option<DirId>>,
    /// Directory in the cpu tree, if that is a v1 one.
    legacy_cpu: Option<DirId>,
    files: [Option<FileId>; Source::ALL.len()],
    missing: Vec<KernError>,
    generation: u64,
}

impl Cgroup {
    /// Opens the cgroup at `below` (relative to the root of each tree; empty for the root itself). Fails if it
    /// is in no tree, or not in the cpu tree.
    pub fn open(
        kernel: &mut impl KernFs,
        layout: &Layout,
        below: &str,
    ) -> Result<Cgroup, KernError> {
        Self::open_each(kernel, layout, |tree| tree.root.join(below))
    }

    /// Opens the cgroup at `path`, below the mount of each tree.
    pub fn open_from_mount(
        kernel: &mut impl KernFs,
        layout: &Layout,
        path: &str,
    ) -> Result<Cgroup, KernError> {
        Self::open_each(kernel, layout, |tree| tree.dir_of(path))
    }

    fn open_each(
        kernel: &mut impl KernFs,
        layout: &Layout,
        path_in: impl Fn(&Tree) -> PathBuf,
    ) -> Result<Cgroup, KernError> {
        let mut dirs = Vec::with_capacity(layout.trees.len());
        for tree in &layout.trees {
            match kernel.open_dir(&path_in(tree)) {
                Ok(dir) => dirs.push(Some(dir)),
                // A v1 tree without this cgroup is not used.
                Err(error) if error.is_gone() && !tree.facets.contains(&Facet::Cpu) => {
                    dirs.push(None);
                }
                Err(error) => {
                    dirs.into_iter().flatten().for_each(|dir| kernel.close_dir(dir));
                    return Err(error);
                }
            }
        }
        let mut cgroup = Cgroup {
            dialect: layout.dialect,
            has_generations: layout.has_generations,
            dirs,
            legacy_cpu: None,
            files: [None; Source::ALL.len()],
            missing: Vec::new(),
            generation: 0,
        };
        let cpu = cgroup.dir(layout, Facet::Cpu);
        cgroup.legacy_cpu = cpu.filter(|_| layout.dialect == Dialect::Legacy);
        cgroup.open_files(kernel, layout);
        let generation = cpu.map(|dir| kernel.inode(dir)).transpose();
        match generation {
            Ok(generation) => {
                cgroup.generation = generation.unwrap_or_default();
                Ok(cgroup)
            }
            Err(error) => {
                cgroup.close(kernel);
                Err(error)
            }
        }
    }

    fn open_files(&mut self, kernel: &mut impl KernFs, layout: &Layout) {
        for source in Source::ALL {
            let Some((facet, name)) = source.place(self.dialect) else { continue };
            let Some(dir) = self.dir(layout, facet) else { continue };
            match kernel.open_file(dir, name) {
                Ok(file) => self.files[source as usize] = Some(file),
                Err(error) if source.is_optional() && error.is_gone() => {}
                Err(error) => self.missing.push(error),
            }
        }
    }

    /// Directory in the tree that serves `facet`.
    pub fn dir(&self, layout: &Layout, facet: Facet) -> Option<DirId> {
        layout.tree(facet).and_then(|index| self.dirs[index])
    }

    /// Directories with this cgroup's processes, each with the index of its tree.
    pub fn homes<'a>(&'a self, layout: &'a Layout) -> impl Iterator<Item = (usize, DirId)> + 'a {
        let joined = |(index, dir): (usize, &Option<DirId>)| Some((index, (*dir)?));
        let homes = self.dirs.iter().enumerate().filter_map(joined);
        homes.filter(|(index, _)| layout.trees[*index].is_for_all())
    }

    /// Inode number in the cpu tree.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Files that should exist and do not, most often because a controller is not enabled.
    pub fn missing(&self) -> &[KernError] {
        &self.missing
    }

    /// Closes all descriptors.
    pub fn close(self, kernel: &mut impl KernFs) {
        self.dirs.into_iter().flatten().for_each(|dir| kernel.close_dir(dir));
    }

    /// Reads every counter; adds failed readings to `gaps`. Of an empty cgroup only the times are read, and
    /// only with `times_of_empty`: they include the last use of its processes. Unreadable emptiness, and the
    /// memory of a cgroup at rest, keep the values of `last` ([`super::last`]). Fails only if the cgroup is
    /// gone.
    pub fn sample(
        &self,
        kernel: &mut impl KernFs,
        times_of_empty: bool,
        last: &Last<'_>,
        gaps: &mut Vec<ReadError>,
    ) -> Result<TenantSample, KernError> {
        let mut sample = TenantSample { generation: self.generation, ..Default::default() };
        let mut reader = Reader::new(self, kernel, gaps);
        let population = reader.population(&mut sample, last)?;
        if population == Population::Told(false) {
            sample.populated = Some(false);
            // Its counters do not change, and a thousand idle tenants cost one read each. OOM kills are read
            // separately ([`Cgroup::oom_kills`]).
            if times_of_empty {
                reader.times(&mut sample, last)?;
            }
            return Ok(sample);
        }
        reader.times(&mut sample, last)?;
        sample.memory = reader.memory(&sample, last)?;
        sample.disks = reader.disks(&sample, last)?;
        sample.populated = match population {
            Population::Told(populated) => Some(populated),
            Population::Untold => None,
            Population::Unread => last.population.and_then(|it| it.kept(sample.usage_usec)),
        };
        Ok(sample)
    }

    /// CPU time since the cgroup was made, in microseconds; `None` if it could not be read.
    pub fn usage_usec(&self, kernel: &mut impl KernFs) -> Option<u64> {
        let (mut sample, mut gaps) = (TenantSample::default(), Vec::new());
        let mut reader = Reader::new(self, kernel, &mut gaps);
        reader.cpu(&mut sample, &Last::default()).ok()?;
        sample.usage_usec
    }

    /// OOM kills since the cgroup was made, also of an empty one; failed readings go to `gaps`. Fails if the
    /// cgroup is gone.
    pub fn oom_kills(
        &self,
        kernel: &mut impl KernFs,
        gaps: &mut Vec<ReadError>,
    ) -> Result<Option<u64>, KernError> {
        let mut reader = Reader::new(self, kernel, gaps);
        reader.take(Source::MemoryEvents, |text| {
            parse::keyed(text, ["oom_kill"]).map(|[kills]| kills)
        })
    }

    /// Present value of `knob`.
    pub fn observe(
        &self,
        kernel: &mut impl KernFs,
        layout: &Layout,
        knob: Knob,
    ) -> Result<Value, ReadError> {
        let dir = self.knob_dir(layout, knob)?;
        observe_in(kernel, layout, dir, knob)
    }

    /// True if this cgroup is in the tree with the files of `knob`.
    pub fn has(&self, layout: &Layout, knob: Knob) -> bool {
        self.dir(layout, row_of(knob).facet).is_some()
    }

    /// Directory with the files of `knob`. Fails if the cgroup is not in that tree.
    pub fn knob_dir(&self, layout: &Layout, knob: Knob) -> Result<DirId, KernError> {
        self.dir(layout, row_of(knob).facet).ok_or_else(|| {
            KernError::new(Operation::Open, layout.file(knob), nix::errno::Errno::EOPNOTSUPP)
        })
    }

    /// True if it still exists in every tree in which it was opened.
    pub fn is_there(&self, kernel: &mut impl KernFs, layout: &Layout) -> bool {
        let mut homes = self.homes(layout);
        homes.all(|(_, dir)| !kernel.read_once(dir, "cgroup.procs").is_err_and(|e| e.is_gone()))
    }

    /// Threads in this cgroup and below, complete up to `nr_max`; `None` for a failed reading, which goes to
    /// `gaps`. Fails if the cgroup is gone.
    pub fn threads(
        &self,
        kernel: &mut impl KernFs,
        layout: &Layout,
        nr_max: usize,
        gaps: &mut Vec<ReadError>,
    ) -> Result<Option<Threads>, KernError> {
        let Some(dir) = self.dir(layout, Facet::Cpu) else { return Ok(None) };
        match threads::find(kernel, dir, self.dialect.thread_list(), nr_max) {
            Ok(found) => Ok(Some(found)),
            // A cgroup of a threaded subtree returns EOPNOTSUPP: its demand comes from PSI.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            Err(error) if error.is_gone() => Err(error),
            Err(error) => {
                gaps.push(error.into());
                Ok(None)
            }
        }
    }

    /// Pids of the processes in this cgroup. Fails if the cgroup is gone.
    pub fn processes(
        &self,
        kernel: &mut impl KernFs,
        layout: &Layout,
    ) -> Result<Vec<u32>, KernError> {
        let Some(dir) = self.dir(layout, Facet::Cpu) else { return Ok(Vec::new()) };
        Ok(process_numbers(kernel.read_once(dir, "cgroup.procs")?)
            .filter(|pid| *pid != 0)
            .collect())
    }
}

struct Reader<'a, K> {
    cgroup: &'a Cgroup,
    kernel: &'a mut K,
    gaps: &'a mut Vec<ReadError>,
    /// False where the processes are in the cpu tree only: the unified mount counts no waits then.
    has_pressure: bool,
}

impl<'a, K: KernFs> Reader<'a, K> {
    fn new(cgroup: &'a Cgroup, kernel: &'a mut K, gaps: &'a mut Vec<ReadError>) -> Reader<'a, K> {
        Reader { cgroup, kernel, gaps, has_pressure: true }
    }

    /// Reads one file with `parse`; a failure is a gap, and a missing cgroup an error.
    fn take<T>(
        &mut self,
        source: Source,
        parse: impl FnOnce(&[u8]) -> Result<Option<T>, Malformed>,
    ) -> Result<Option<T>, KernError> {
        let Some(file) = self.cgroup.files[source as usize] else { return Ok(None) };
        let gap = match self.kernel.read(file) {
            Ok(text) => match parse(text) {
                Ok(value) => return Ok(value),
                Err(malformed) => {
                    let name = source.place(self.cgroup.dialect).map_or("", |(_, name)| name);
                    ReadError::Malformed { path: name.to_string(), source: malformed }
                }
            },
            Err(error) if error.is_gone() => return Err(error),
            Err(error) => ReadError::Kernel(error),
        };
        self.gaps.push(gap);
        Ok(None)
    }

    /// Tells if any process is in the cgroup or below. On a hybrid host the unified mount reports it, but the
    /// cpu tree decides: processes in that tree only count as well. Their list is opened again each time: an
    /// open v1 list that is read at least once a second keeps its first contents
    /// (`CGROUP_PIDLIST_DESTROY_DELAY`, `kernel/cgroup/cgroup-v1.c`). Most often the CPU time is enough to
    /// decide.
    fn population(
        &mut self,
        sample: &mut TenantSample,
        last: &Last<'_>,
    ) -> Result<Population, KernError> {
        let nr_gaps = self.gaps.len();
        let populated = self.told_population()?;
        match (populated, self.cgroup.legacy_cpu) {
            (None, _) if self.gaps.len() > nr_gaps => Ok(Population::Unread),
            (None, _) => Ok(Population::Untold),
            (Some(false), Some(dir)) => {
                self.has_pressure = false;
                if let Some(usec) = last.empty_at_usec() {
                    sample.usage_usec = self.legacy_usage()?;
                    if sample.usage_usec == Some(usec) {
                        return Ok(Population::Told(false));
                    }
                }
                self.population_in(dir)
            }
            (Some(populated), _) => Ok(Population::Told(populated)),
        }
    }

    fn told_population(&mut self) -> Result<Option<bool>, KernError> {
        self.take(Source::Populated, |text| {
            parse::keyed(text, ["populated"]).map(|[populated]| populated.map(|p| p != 0))
        })
    }

    /// The same for a cgroup without processes in the unified mount, from its directory in the cpu tree.
    fn population_in(&mut self, dir: DirId) -> Result<Population, KernError> {
        let listed =
            self.kernel.read_once(dir, "cgroup.procs").map(|text| text.trim_ascii().is_empty());
        let told = listed.and_then(|is_empty| match is_empty {
            // Population of the cgroups below is unknown.
            true if self.kernel.nr_dirs(dir)? > 0 => Ok(Population::Untold),
            is_empty => Ok(Population::Told(!is_empty)),
        });
        match told {
            Err(error) if !error.is_gone() => {
                self.gaps.push(error.into());
                Ok(Population::Unread)
            }
            told => told,
        }
    }

    fn times(&mut self, sample: &mut TenantSample, last: &Last<'_>) -> Result<(), KernError> {
        self.cpu(sample, last)?;
        if !self.has_pressure {
            return Ok(());
        }
        sample.cpu_some_usec = self.take(Source::CpuPressure, some_usec)?;
        let memory = self.take(Source::MemoryPressure, |text| parse::pressure(text).map(Some))?;
        sample.memory_some_usec = memory.map(|pressure| pressure.some_usec);
        sample.memory_full_usec = memory.and_then(|pressure| pressure.full_usec);
        if !last.disks.is_empty() {
            sample.io_some_usec = self.take(Source::DiskPressure, some_usec)?;
        }
        Ok(())
    }

    /// Reads the counts of the sampled devices; `None` if the cgroup has no such counter.
    fn disks(
        &mut self,
        times: &TenantSample,
        last: &Last<'_>,
    ) -> Result<Option<Arc<PerDisk<DiskCounts>>>, KernError> {
        if last.disks.is_empty() {
            return Ok(None);
        }
        let stands = last.disks(times);
        if stands.is_some() {
            return Ok(stands);
        }
        let none = last.disks.filter_map(|_, ()| Some(DiskCounts::default()));
        let counts = match self.cgroup.dialect {
            Dialect::Unified => {
                self.take(Source::DiskBytes, |text| parse::io_stat(text, none).map(Some))?
            }
            Dialect::Legacy => {
                let mut blkio = |source, counts, of| {
                    self.take(source, |text| parse::blkio(text, counts, of).map(Some))
                };
                match blkio(Source::DiskBytes, none, Counted::Bytes)? {
                    Some(bytes) => blkio(Source::DiskOperations, bytes, Counted::Operations)?,
                    None => None,
                }
            }
        };
        Ok(counts.map(Arc::new))
    }

    fn cpu(&mut self, sample: &mut TenantSample, last: &Last<'_>) -> Result<(), KernError> {
        match self.cgroup.dialect {
            Dialect::Unified => {
                let stat = self.take(Source::CpuUsage, |text| {
                    parse::keyed(text, ["usage_usec", "nr_throttled"]).map(Some)
                })?;
                if let Some([usage, throttled]) = stat {
                    (sample.usage_usec, sample.nr_throttled) = (usage, throttled);
                }
            }
            Dialect::Legacy => {
                sample.usage_usec = self.legacy_usage()?;
                sample.nr_throttled = match last.nr_throttled(sample.usage_usec) {
                    None => self.take(Source::CpuThrottled, |text| {
                        parse::keyed(text, ["nr_throttled"]).map(|[throttled]| throttled)
                    })?,
                    stands => stands,
                };
            }
        }
        Ok(())
    }

    fn legacy_usage(&mut self) -> Result<Option<u64>, KernError> {
        self.take(Source::CpuUsage, |text| {
            parse::single::<u64>(text, "nanoseconds").map(|nsec| Some(nsec / 1000))
        })
    }

    /// Reads all memory counters or none: a working set without its cache would be a different figure.
    fn memory(
        &mut self,
        times: &TenantSample,
        last: &Last<'_>,
    ) -> Result<Option<MemorySample>, KernError> {
        let current =
            self.take(Source::MemoryCurrent, |text| parse::single::<u64>(text, "bytes").map(Some))?;
        let stands = current.and_then(|now| last.memory(times, now));
        if stands.is_some() {
            return Ok(stands);
        }
        let stat = match self.cgroup.dialect {
            Dialect::Unified => |text: &[u8]| parse::keyed(text, UNIFIED_MEMORY).map(Some),
            Dialect::Legacy => |text: &[u8]| parse::keyed(text, LEGACY_MEMORY).map(Some),
        };
        let stat = self.take(Source::MemoryStat, stat)?;
        let events = self.take(Source::MemoryEvents, |text| {
            parse::keyed(text, ["low", "high", "max", "oom_kill"]).map(Some)
        })?;
        let Some((current_bytes, stat)) = current.zip(stat) else { return Ok(None) };
        let [inactive, active, refaults_anon, refaults_file, anon, shmem, slab, stolen] = stat;
        let Some((inactive_file_bytes, active_file_bytes)) = inactive.zip(active) else {
            return Ok(None);
        };
        // Without generations, active and inactive tell more, and history would store it in vain.
        let stolen = stolen.filter(|_| self.cgroup.has_generations);
        let [nr_low_events, nr_high_events, nr_max_events, nr_oom_kills] =
            events.unwrap_or_default();
        Ok(Some(MemorySample {
            current_bytes,
            inactive_file_bytes,
            active_file_bytes,
            anon_bytes: anon.map(|anon| anon.saturating_add(shmem.unwrap_or(0))),
            slab_reclaimable_bytes: slab,
            stolen_mib: stolen.map(|pages| pages / PAGES_PER_MIB),
            refaults: refaults_anon.zip(refaults_file).map(|(anon, file)| anon + file),
            nr_low_events,
            nr_high_events,
            nr_max_events,
            nr_oom_kills,
        }))
    }
}

fn some_usec(text: &[u8]) -> Result<Option<u64>, Malformed> {
    parse::pressure(text).map(|pressure| Some(pressure.some_usec))
}
