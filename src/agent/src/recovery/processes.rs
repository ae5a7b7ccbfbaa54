//! Moving processes from one cgroup to another.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use tenantd_core::kernel_text::proc_files::process_numbers;
use tenantd_host::enforce::SUBTREE_CONTROL;
use tenantd_host::kernfs::{DirId, ErrorKind, KernError, KernFs, Operation};
use tenantd_host::process;

/// Most tries to empty a cgroup: its processes may fork meanwhile.
pub(super) const EVACUATIONS: usize = 16;

/// Most ancestors of a process looked up.
const GENERATIONS: usize = 64;

/// Result of `known` for `pid`, or else for the nearest ancestor that has one.
pub(crate) fn ancestor<T>(
    kernel: &mut impl KernFs,
    proc: DirId,
    mut pid: u32,
    known: impl Fn((u32, u64)) -> Option<T>,
) -> Result<Option<T>, KernError> {
    for _ in 0..GENERATIONS {
        let Some(birth) = process::birth(kernel, proc, pid)? else { return Ok(None) };
        if let Some(found) = known((pid, birth.start_ticks)) {
            return Ok(Some(found));
        }
        match birth.parent.filter(|parent| *parent > 1) {
            Some(parent) => pid = parent,
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Pids in `dir`. A process of another PID namespace is listed as 0, and cannot be moved by number.
pub(crate) fn processes_in(kernel: &mut impl KernFs, dir: DirId) -> Result<Vec<u32>, KernError> {
    Ok(process_numbers(kernel.read_once(dir, "cgroup.procs")?).collect())
}

/// Pids in the cgroup at `path`. None in a missing one, and none in a threaded one, whose processes are listed
/// by its parent.
pub(crate) fn processes_at(kernel: &mut impl KernFs, path: &Path) -> Result<Vec<u32>, KernError> {
    let found = kernel.open_dir(path).and_then(|dir| {
        let pids = processes_in(kernel, dir);
        kernel.close_dir(dir);
        pids
    });
    match found {
        Err(error) if error.is_gone() || error.kind() == ErrorKind::Unsupported => Ok(Vec::new()),
        found => found,
    }
}

/// The longest line of a process or thread: `PID_MAX_LIMIT` is 4194304.
const PID_LINE_BYTES: usize = 8;

/// The numbers in `list`, a file of processes or threads of the cgroup at `path`, which users fill: `None` where there are
/// more than `max`, of which no more are read. A cgroup that is gone or threaded has none, as in [`processes_at`].
pub(crate) fn listed_up_to(
    kernel: &mut impl KernFs,
    path: &Path,
    list: &str,
    max: usize,
) -> Result<Option<Vec<u32>>, KernError> {
    let bytes = max.saturating_add(1).saturating_mul(PID_LINE_BYTES);
    let found = kernel.open_dir(path).and_then(|dir| {
        let text = kernel.read_start(dir, list, bytes);
        // A whole file of this length has more lines than `max`.
        let pids = text.map(|text| (text.len() < bytes).then(|| process_numbers(text).collect()));
        kernel.close_dir(dir);
        pids
    });
    match found {
        Ok(pids) => Ok(pids.filter(|pids: &Vec<u32>| pids.len() <= max)),
        Err(error) if error.is_gone() || error.kind() == ErrorKind::Unsupported => {
            Ok(Some(Vec::new()))
        }
        Err(error) => Err(error),
    }
}

/// The cgroups below `path`, parents before children.
pub(crate) fn nested(kernel: &mut impl KernFs, path: &Path) -> Result<Vec<PathBuf>, KernError> {
    Ok(nested_up_to(kernel, path, usize::MAX)?.unwrap_or_default())
}

/// The same, for cgroups that users may make: `None`, without reading further, if there are more than `max`.
pub(crate) fn nested_up_to(
    kernel: &mut impl KernFs,
    path: &Path,
    max: usize,
) -> Result<Option<Vec<PathBuf>>, KernError> {
    let mut all = Vec::new();
    let mut left = vec![path.to_path_buf()];
    while let Some(path) = left.pop() {
        // `all` includes the one at `path` itself.
        if all.len() + left.len() > max {
            return Ok(None);
        }
        let children = kernel.open_dir(&path).and_then(|dir| {
            let names = kernel.list_dirs(dir);
            kernel.close_dir(dir);
            names
        });
        match children {
            Ok(names) => left.extend(names.into_iter().map(|name| path.join(name))),
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error),
        }
        all.push(path);
    }
    Ok(Some(all.split_off(1)))
}

pub(crate) fn nr_nested(kernel: &mut impl KernFs, path: &Path) -> Result<usize, KernError> {
    let below = nested(kernel, path)?;
    below.iter().try_fold(0, |sum, path| Ok(sum + processes_at(kernel, path)?.len()))
}

pub(super) fn move_to(kernel: &mut impl KernFs, path: &Path, pid: u32) -> Result<(), KernError> {
    let dir = kernel.open_dir(path)?;
    let outcome = kernel.move_process(dir, pid);
    kernel.close_dir(dir);
    outcome
}

pub(super) fn evacuate<K: KernFs>(
    kernel: &mut K,
    dir: DirId,
    refuges: &[&Path],
    evicted: &mut impl FnMut(&mut K, u32, &Path),
) -> Result<(), KernError> {
    for _ in 0..EVACUATIONS {
        let pids = processes_in(kernel, dir)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in nameable(kernel, dir, pids)? {
            if let Some(refuge) = shelter(kernel, pid, refuges)? {
                evicted(kernel, pid, refuge);
            }
        }
    }
    Ok(())
}

pub(super) fn move_all(kernel: &mut impl KernFs, from: DirId, to: DirId) -> Result<(), KernError> {
    for _ in 0..EVACUATIONS {
        let pids = processes_in(kernel, from)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in nameable(kernel, from, pids)? {
            match kernel.move_process(to, pid) {
                Err(error) if error.errno != Errno::ESRCH => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Processes that can be moved by number; EBUSY if there are none. Writing 0 would move the agent itself.
fn nameable(kernel: &impl KernFs, dir: DirId, pids: Vec<u32>) -> Result<Vec<u32>, KernError> {
    let nameable: Vec<u32> = pids.into_iter().filter(|pid| *pid != 0).collect();
    if nameable.is_empty() {
        Err(KernError::new(Operation::Write, kernel.dir_path(dir), Errno::EBUSY))
    } else {
        Ok(nameable)
    }
}

fn has_controllers(kernel: &mut impl KernFs, path: &Path) -> bool {
    let Ok(dir) = kernel.open_dir(path) else { return false };
    let enabled =
        kernel.read_once(dir, SUBTREE_CONTROL).is_ok_and(|text| !text.trim_ascii().is_empty());
    kernel.close_dir(dir);
    enabled
}

fn shelter<'a>(
    kernel: &mut impl KernFs,
    pid: u32,
    refuges: &[&'a Path],
) -> Result<Option<&'a Path>, KernError> {
    let mut refused = None;
    for refuge in refuges {
        match move_to(kernel, refuge, pid) {
            Ok(()) => return Ok(Some(refuge)),
            Err(error) if error.errno == Errno::ESRCH => return Ok(None),
            // A path above the mount is no cgroup. Its absence says less than the error of a busy refuge.
            Err(error) if error.is_gone() => refused = refused.or(Some(error)),
            // A cgroup whose children have controllers must not contain processes. Without controllers it was
            // only busy for a moment: the next try may succeed, and a higher cgroup would be the wrong place.
            Err(error) if error.errno == Errno::EBUSY && has_controllers(kernel, refuge) => {
                refused = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    refused.map_or(Ok(None), Err)
}
