//! The cgroup of a job, made, limited, read and removed without the journal (see [`super`]); or its scope,
//! which systemd makes, limits and removes ([`super::scope`]).

use std::path::{Path, PathBuf};

use nix::errno::Errno;
use tracing::debug;

use crate::recovery::processes::{listed_up_to, nested, nested_up_to};
use tenantd_control::measure::sample::TenantSample;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::kernel_text::text_of_name;
use tenantd_host::cgroup::{Cgroup, Facet, Last, Layout, Threads, Tree, pids_sample};
use tenantd_host::kernfs::{DirId, KernError, KernFs, Operation};

#[derive(Debug)]
pub(crate) struct JobCgroup {
    /// Below the root of each tree; empty for a scope.
    pub(crate) below: String,
    pub(crate) unit: Option<String>,
    /// The path of a scope from the mount, once it is there.
    at: Option<String>,
    /// Its cgroup in the devices hierarchy of cgroup v1 ([`super::devices`]).
    pub(crate) devices: Option<PathBuf>,
    held: Held,
}

#[derive(Debug)]
enum Held {
    /// A scope that systemd has not started yet, or a cgroup that was removed.
    Gone,
    /// With a descriptor for each file.
    Open(Cgroup),
    /// Without descriptors; its inode.
    Closed(u64),
}

fn gone(below: &str) -> KernError {
    KernError::new(Operation::Open, below, Errno::ENOENT)
}

/// Most cgroups inside a job's cgroup that are searched for its processes and threads.
const INSIDE_MAX: usize = 1000;
/// Processes and threads of a job that are listed.
const LISTED_MAX: usize = 16_384;

/// Largest memory usage in cgroup v2 (Linux 5.19) and v1.
const PEAK_FILES: [&str; 2] = ["memory.peak", "memory.max_usage_in_bytes"];

const CPUSET_FILES: [&str; 2] = ["cpuset.mems", "cpuset.cpus"];

impl JobCgroup {
    /// Makes the cgroup at `below` in every tree that has its parent. On an error nothing is left behind.
    pub(crate) fn make<K: KernFs>(
        kernel: &mut K,
        layout: &Layout,
        below: &str,
    ) -> Result<JobCgroup, KernError> {
        let outcome = layout.trees.iter().try_for_each(|tree| make_in(kernel, tree, below));
        let opened = outcome.and_then(|()| JobCgroup::open(kernel, layout, below));
        if opened.is_err() {
            let _ = remove(kernel, layout, below);
        }
        opened
    }

    pub(crate) fn open<K: KernFs>(
        kernel: &mut K,
        layout: &Layout,
        below: &str,
    ) -> Result<JobCgroup, KernError> {
        let held = Held::Open(Cgroup::open(kernel, layout, below)?);
        Ok(JobCgroup { below: below.to_string(), unit: None, at: None, devices: None, held })
    }

    pub(crate) fn scope(unit: String) -> JobCgroup {
        let held = Held::Gone;
        JobCgroup { below: String::new(), unit: Some(unit), at: None, devices: None, held }
    }

    /// The cgroup of a job that was removed while its first process was elsewhere.
    pub(crate) fn gone(below: &str, unit: Option<String>) -> JobCgroup {
        let held = Held::Gone;
        JobCgroup { below: below.to_string(), unit, at: None, devices: None, held }
    }

    /// Opens the cgroup of a scope at `path`, below the mount.
    pub(crate) fn open_scope<K: KernFs>(
        kernel: &mut K,
        layout: &Layout,
        unit: String,
        path: &str,
    ) -> Result<JobCgroup, KernError> {
        let held = Held::Open(Cgroup::open_from_mount(kernel, layout, path)?);
        let at = Some(path.to_string());
        Ok(JobCgroup { below: String::new(), unit: Some(unit), at, devices: None, held })
    }

    /// False for a scope that systemd has not started yet.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self.held, Held::Gone)
    }

    /// Inode number, to distinguish this cgroup from a later one of the same name.
    pub(crate) fn inode(&self) -> u64 {
        match &self.held {
            Held::Gone => 0,
            Held::Open(cgroup) => cgroup.generation(),
            Held::Closed(inode) => *inode,
        }
    }

    /// True if the job can be confined to CPUs; systemd enables the controllers of a scope itself.
    pub(crate) fn can_be_confined(&self, layout: &Layout) -> bool {
        self.unit.is_some() || self.dir(layout, Facet::Cpuset).is_some()
    }

    fn dir(&self, layout: &Layout, facet: Facet) -> Option<DirId> {
        match &self.held {
            Held::Open(cgroup) => cgroup.dir(layout, facet),
            Held::Gone | Held::Closed(_) => None,
        }
    }

    /// Closes its files. They are opened for each use from then on: for a job that lingers, which needs few.
    pub(crate) fn rest<K: KernFs>(&mut self, kernel: &mut K) {
        let inode = self.inode();
        if matches!(self.held, Held::Open(_))
            && let Held::Open(cgroup) = std::mem::replace(&mut self.held, Held::Closed(inode))
        {
            cgroup.close(kernel);
        }
    }

    /// Calls `work` with the cgroup, opened for this call where its files are closed.
    ///
    /// # Errors
    /// It is gone, another one has its name, or `work` failed.
    fn with<K: KernFs, T>(
        &self,
        kernel: &mut K,
        layout: &Layout,
        work: impl FnOnce(&mut K, &Cgroup) -> Result<T, KernError>,
    ) -> Result<T, KernError> {
        let inode = match &self.held {
            Held::Gone => return Err(gone(&self.below)),
            Held::Open(cgroup) => return work(kernel, cgroup),
            Held::Closed(inode) => *inode,
        };
        let cgroup = match &self.at {
            Some(path) => Cgroup::open_from_mount(kernel, layout, path)?,
            None => Cgroup::open(kernel, layout, &self.below)?,
        };
        let outcome = if cgroup.generation() == inode {
            work(kernel, &cgroup)
        } else {
            Err(gone(&self.below))
        };
        cgroup.close(kernel);
        outcome
    }

    /// Writes a value. Not for a scope: systemd owns its files.
    pub(crate) fn set<K: KernFs>(
        &self,
        kernel: &mut K,
        layout: &Layout,
        knob: Knob,
        value: &Value,
    ) -> Result<(), KernError> {
        self.with(kernel, layout, |kernel, cgroup| {
            let dir = cgroup.knob_dir(layout, knob)?;
            let mut spellings = layout.spell(knob, value).into_iter();
            spellings.try_for_each(|spelling| kernel.write(dir, spelling.file, &spelling.text))
        })
    }

    /// Makes the kernel end all of its processes where it ends one for lack of memory. Cgroup v1 has no such file.
    pub(crate) fn end_as_one<K: KernFs>(&self, kernel: &mut K, layout: &Layout) {
        if let Some(dir) = self.dir(layout, Facet::Memory)
            && let Err(error) = kernel.write(dir, "memory.oom.group", "1")
        {
            debug!("{error}: the kernel may end a part of this job");
        }
    }

    /// Moves a process into this cgroup, in every tree. Fails with ESRCH if the process ended.
    pub(crate) fn take<K: KernFs>(
        &self,
        kernel: &mut K,
        layout: &Layout,
        pid: u32,
    ) -> Result<(), KernError> {
        let mut homes = layout.trees.iter().filter_map(|tree| tree.facets.first().copied());
        homes.try_for_each(|facet| match self.dir(layout, facet) {
            Some(dir) => kernel.move_process(dir, pid),
            None => Ok(()),
        })
    }

    /// Reads its counters, also where it is empty; what cannot be read is absent.
    ///
    /// # Errors
    /// It is gone, or its files are closed and cannot be opened.
    pub(crate) fn sample<K: KernFs>(
        &self,
        kernel: &mut K,
        layout: &Layout,
    ) -> Result<TenantSample, KernError> {
        self.with(kernel, layout, |kernel, cgroup| {
            cgroup.sample(kernel, true, &Last::default(), &mut Vec::new())
        })
    }

    /// CPU time so far, in microseconds; `None` if it could not be read.
    pub(crate) fn usage_usec<K: KernFs>(&self, kernel: &mut K, layout: &Layout) -> Option<u64> {
        self.with(kernel, layout, |kernel, cgroup| Ok(cgroup.usage_usec(kernel))).ok().flatten()
    }

    /// Threads in the cgroup and below it; `None` if unknown.
    pub(crate) fn nr_threads<K: KernFs>(&self, kernel: &mut K, layout: &Layout) -> Option<u32> {
        let Some(dir) = self.dir(layout, Facet::Pids) else {
            return self.nr_listed_threads(kernel, layout);
        };
        let sample = pids_sample(kernel, dir, self.inode()).ok()??;
        u32::try_from(sample.nr_current).ok()
    }

    /// Threads in the cgroup and below it, all of them if at most `nr_max`; `None` if unknown.
    pub(crate) fn threads<K: KernFs>(
        &self,
        kernel: &mut K,
        layout: &Layout,
        nr_max: usize,
    ) -> Option<Threads> {
        let read = |kernel: &mut K, cgroup: &Cgroup| {
            cgroup.threads(kernel, layout, nr_max, &mut Vec::new())
        };
        self.with(kernel, layout, read).ok().flatten()
    }

    /// Counts the listed threads: in cgroup v1 a tenant is in the pids tree only if a policy limits its
    /// processes.
    fn nr_listed_threads<K: KernFs>(&self, kernel: &mut K, layout: &Layout) -> Option<u32> {
        let path = kernel.dir_path(self.dir(layout, Facet::Cpu)?);
        let inside = nested_up_to(kernel, &path, INSIDE_MAX).ok()??;
        let mut left = LISTED_MAX;
        for path in std::iter::once(path).chain(inside) {
            let list = layout.thread_list();
            left -= listed_up_to(kernel, &path, list, left).ok()??.len();
        }
        u32::try_from(LISTED_MAX - left).ok()
    }

    /// The processes in it and in what was made inside; with more than [`INSIDE_MAX`] cgroups inside only the first, and
    /// [`LISTED_MAX`] processes at most.
    pub(crate) fn processes<K: KernFs>(&self, kernel: &mut K, layout: &Layout) -> Vec<u32> {
        let path = self.with(kernel, layout, |kernel, cgroup| {
            Ok(cgroup.dir(layout, Facet::Cpu).map(|dir| kernel.dir_path(dir)))
        });
        let Ok(Some(dir)) = path else { return Vec::new() };
        let inside = nested_up_to(kernel, &dir, INSIDE_MAX).ok().flatten().unwrap_or_default();
        let mut all = Vec::new();
        for dir in std::iter::once(dir).chain(inside) {
            // A list that is too long is left out: the answer has to have a bound.
            if let Ok(Some(pids)) =
                listed_up_to(kernel, &dir, "cgroup.procs", LISTED_MAX - all.len())
            {
                all.extend(pids);
            }
        }
        all
    }

    /// Largest memory usage recorded by the kernel; `None` if it records none, or the cgroup is gone.
    pub(crate) fn peak_bytes<K: KernFs>(&self, kernel: &mut K, layout: &Layout) -> Option<u64> {
        let peak = self.with(kernel, layout, |kernel, cgroup| {
            let Some(dir) = cgroup.dir(layout, Facet::Memory) else { return Ok(None) };
            let mut read = |name: &str| {
                let text = kernel.read_once(dir, name).ok()?;
                String::from_utf8_lossy(text).trim().parse().ok()
            };
            Ok(PEAK_FILES.into_iter().find_map(&mut read))
        });
        peak.ok().flatten()
    }

    /// Processes killed for lack of memory; `None` if that is unknown.
    pub(crate) fn oom_kills<K: KernFs>(&self, kernel: &mut K, layout: &Layout) -> Option<u64> {
        let kills = |kernel: &mut K, cgroup: &Cgroup| cgroup.oom_kills(kernel, &mut Vec::new());
        self.with(kernel, layout, kills).ok().flatten()
    }

    pub(crate) fn freeze_dir(&self, layout: &Layout) -> Option<DirId> {
        self.dir(layout, Facet::Pressure)
    }

    /// Removes and closes the cgroup; returns it if it is still busy. Systemd removes a scope.
    pub(crate) fn end<K: KernFs>(self, kernel: &mut K, layout: &Layout) -> Option<JobCgroup> {
        if self.unit.is_some() {
            self.close(kernel);
            return None;
        }
        let removed = remove(kernel, layout, &self.below);
        let devices = self.devices.as_deref().map_or(Ok(()), |path| remove_at(kernel, path));
        match removed.and(devices) {
            Ok(()) => {
                self.close(kernel);
                None
            }
            Err(error) => {
                debug!("the cgroup {} is removed later: {error}", self.below);
                Some(self)
            }
        }
    }

    pub(crate) fn close<K: KernFs>(self, kernel: &mut K) {
        if let Held::Open(cgroup) = self.held {
            cgroup.close(kernel);
        }
    }
}

fn make_in<K: KernFs>(kernel: &mut K, tree: &Tree, below: &str) -> Result<(), KernError> {
    let path = tree.root.join(below);
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let above = match kernel.open_dir(above) {
        Ok(above) => above,
        // The tenant is not in this tree.
        Err(error) if error.is_gone() && !tree.is_for_all() => return Ok(()),
        Err(error) => return Err(error),
    };
    let outcome = match kernel.make_dir(above, &text_of_name(name)) {
        Err(error) if error.errno != Errno::EEXIST => Err(error),
        _ if tree.facets.contains(&Facet::Cpuset) => fill(kernel, above, &path),
        _ => Ok(()),
    };
    kernel.close_dir(above);
    outcome
}

/// Copies the CPUs and nodes of the parent to a cpuset of cgroup v1, which takes no process without them. In
/// cgroup v2 they are inherited.
fn fill<K: KernFs>(kernel: &mut K, above: DirId, path: &Path) -> Result<(), KernError> {
    let dir = kernel.open_dir(path)?;
    let is_legacy = kernel.read_once(dir, "cgroup.type").is_err();
    let outcome = CPUSET_FILES.iter().filter(|_| is_legacy).try_for_each(|file| {
        let list = String::from_utf8_lossy(kernel.read_once(above, file)?).trim().to_string();
        kernel.write(dir, file, &list)
    });
    kernel.close_dir(dir);
    outcome
}

/// Removes the cgroup at `below`, and empty ones inside it, from every tree. Fails with EBUSY if there are
/// processes in it.
pub(crate) fn remove<K: KernFs>(
    kernel: &mut K,
    layout: &Layout,
    below: &str,
) -> Result<(), KernError> {
    let mut outcome = Ok(());
    for tree in &layout.trees {
        outcome = outcome.and(remove_at(kernel, &tree.root.join(below)));
    }
    outcome
}

/// Removes a cgroup, and empty ones inside it, from one tree.
fn remove_at<K: KernFs>(kernel: &mut K, path: &Path) -> Result<(), KernError> {
    let mut removed = remove_dir(kernel, path);
    if removed.as_ref().is_err_and(|error| error.errno == Errno::EBUSY) {
        let inside = nested(kernel, path)?;
        for path in inside.iter().rev().map(PathBuf::as_path).chain([path]) {
            removed = remove_dir(kernel, path);
        }
    }
    removed
}

fn remove_dir<K: KernFs>(kernel: &mut K, path: &Path) -> Result<(), KernError> {
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let outcome = kernel.open_dir(above).and_then(|above| {
        let outcome = kernel.remove_dir(above, &text_of_name(name));
        kernel.close_dir(above);
        outcome
    });
    match outcome {
        Err(error) if !error.is_gone() => Err(error),
        _ => Ok(()),
    }
}

/// True if jobs may have CPU sets inside a tenant with its own CPUs. Not in cgroup v1: the kernel would refuse
/// to take a CPU from the tenant while a job uses it.
pub(crate) fn may_confine(layout: &Layout, is_tenant_pinned: bool) -> bool {
    layout.is_unified() || !is_tenant_pinned
}
