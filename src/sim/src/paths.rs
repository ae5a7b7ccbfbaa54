//! Paths: directories and files below `/`.

use nix::errno::Errno;

use super::handles::{DirPlace, FilePlace};
use super::kernel::SimKernel;
use super::population::Population;
use super::proc_files::proc_file;
use super::process::Process;

pub(super) enum Found {
    Dir(DirPlace),
    File(FilePlace),
}

pub(super) fn step(kernel: &SimKernel, place: &DirPlace, name: &str) -> Result<Found, Errno> {
    let tree = &kernel.live.tree;
    match place {
        DirPlace::Cgroup(id) => {
            let cgroup = tree.get(*id).ok_or(Errno::ENOENT)?;
            if let Some(&child) = cgroup.children.get(name) {
                return Ok(Found::Dir(DirPlace::Cgroup(child)));
            }
            let spec = tree.spec(*id, name).ok_or(Errno::ENOENT)?;
            Ok(Found::File(FilePlace::Cgroup(*id, spec, tree.epoch(*id, spec))))
        }
        DirPlace::Still(path) => step_still(kernel, &format!("{path}/{name}")),
        _ => step_proc(kernel, place, name),
    }
}

fn vet_alive(live: &Population, place: &DirPlace) -> Result<(), Errno> {
    match place {
        DirPlace::Process(pid) | DirPlace::Tasks(pid) | DirPlace::Task(pid, _) => {
            live.processes.get(pid).map(|_| ()).ok_or(Errno::ESRCH)
        }
        _ => Ok(()),
    }
}

fn step_proc(kernel: &SimKernel, place: &DirPlace, name: &str) -> Result<Found, Errno> {
    let live = &kernel.live;
    vet_alive(live, place)?;
    let dir = match (place, name) {
        (DirPlace::Proc, "self") => Some(DirPlace::Process(kernel.caller())),
        (DirPlace::Proc, "pressure") if kernel.host.psi => Some(DirPlace::ProcPressure),
        (DirPlace::Proc, "sys") => Some(DirPlace::ProcSys),
        (DirPlace::ProcSys, "vm") => Some(DirPlace::ProcVm),
        (DirPlace::Proc, _) => name.parse().ok().and_then(|number| process_or_thread(live, number)),
        (DirPlace::Process(pid), "task") => Some(DirPlace::Tasks(*pid)),
        (DirPlace::Tasks(pid), _) => {
            let process = live.processes.get(pid).ok_or(Errno::ESRCH)?;
            let tid = name.parse().ok();
            let tid = tid.filter(|tid| process.threads.iter().any(|t| t.tid == *tid));
            tid.map(|tid| DirPlace::Task(*pid, tid))
        }
        _ => None,
    };
    match dir {
        Some(dir) => Ok(Found::Dir(dir)),
        None => Ok(Found::File(FilePlace::Proc(proc_file(place, name)?))),
    }
}

/// `/proc/NUMBER`: a process, or one of its threads, which is not listed but can be opened.
fn process_or_thread(live: &Population, number: u32) -> Option<DirPlace> {
    if live.processes.contains_key(&number) {
        return Some(DirPlace::Process(number));
    }
    let has = |process: &Process| process.threads.iter().any(|thread| thread.tid == number);
    let owner = live.processes.iter().find(|(_, process)| has(process));
    owner.map(|(pid, _)| DirPlace::Task(*pid, number))
}

fn step_still(kernel: &SimKernel, path: &str) -> Result<Found, Errno> {
    if let Some(hierarchy) = kernel.live.tree.hierarchies.iter().find(|h| h.mount == path) {
        return Ok(Found::Dir(DirPlace::Cgroup(hierarchy.root)));
    }
    if path == "/proc" {
        return Ok(Found::Dir(DirPlace::Proc));
    }
    if kernel.sys.contains_key(path) {
        return Ok(Found::File(FilePlace::Sys(path.to_string())));
    }
    let below = format!("{path}/");
    let mut mounts = kernel.live.tree.mounts();
    let first = kernel.sys.range(below.clone()..).next();
    let has_files = first.is_some_and(|(path, _)| path.starts_with(&below));
    if has_files || mounts.any(|mount| mount.starts_with(&below)) {
        return Ok(Found::Dir(DirPlace::Still(path.to_string())));
    }
    Err(Errno::ENOENT)
}

pub(super) fn walk_from_root(kernel: &SimKernel, path: &str) -> Result<Found, Errno> {
    let below = |mount: &str| path.strip_prefix(mount).filter(|rest| rest.starts_with('/'));
    for hierarchy in &kernel.live.tree.hierarchies {
        if let Some(rest) = below(&hierarchy.mount) {
            return walk(kernel, &DirPlace::Cgroup(hierarchy.root), rest);
        }
    }
    walk(kernel, &DirPlace::Still(String::new()), path)
}

pub(super) fn walk(kernel: &SimKernel, place: &DirPlace, path: &str) -> Result<Found, Errno> {
    let mut names = path.split('/').filter(|name| !name.is_empty() && *name != ".");
    names.try_fold(Found::Dir(place.clone()), |found, name| match found {
        Found::Dir(place) => step(kernel, &place, name),
        Found::File(_) => Err(Errno::ENOTDIR),
    })
}

pub(super) fn parent_of(
    kernel: &SimKernel,
    place: &DirPlace,
    name: &str,
) -> Result<(DirPlace, String), Errno> {
    let (above, last) = name.rsplit_once('/').unwrap_or(("", name));
    match walk(kernel, place, above)? {
        Found::Dir(place) if !last.is_empty() => Ok((place, last.to_string())),
        Found::Dir(_) => Err(Errno::ENOENT),
        Found::File(_) => Err(Errno::ENOTDIR),
    }
}

pub(super) fn names_in(kernel: &SimKernel, place: &DirPlace) -> Result<Vec<String>, Errno> {
    let live = &kernel.live;
    vet_alive(live, place)?;
    let numbers = |numbers: &mut dyn Iterator<Item = u32>| numbers.map(|n| n.to_string()).collect();
    Ok(match place {
        DirPlace::Cgroup(id) => {
            let children = live.tree.get(*id).into_iter().flat_map(|cgroup| cgroup.children.keys());
            children.cloned().collect()
        }
        DirPlace::Proc => numbers(&mut live.processes.keys().copied()),
        DirPlace::Process(_) => vec!["task".into()],
        DirPlace::Tasks(pid) => {
            let process = live.processes.get(pid).ok_or(Errno::ESRCH)?;
            numbers(&mut process.threads.iter().map(|thread| thread.tid))
        }
        DirPlace::Still(path) => names_below(kernel, path),
        _ => Vec::new(),
    })
}

fn names_below(kernel: &SimKernel, path: &str) -> Vec<String> {
    let below = format!("{path}/");
    let mounts = kernel.live.tree.mounts();
    let paths = kernel.sys.keys().map(String::as_str).chain(mounts).chain(["/proc/self"]);
    let names = paths.filter_map(|path| path.strip_prefix(&below));
    let mut dirs: Vec<String> =
        names.filter_map(|rest| rest.split_once('/')).map(|(name, _)| name.into()).collect();
    let roots = kernel.live.tree.mounts().filter_map(|mount| mount.strip_prefix(&below));
    dirs.extend(roots.filter(|name| !name.contains('/')).map(String::from));
    dirs.sort_unstable();
    dirs.dedup();
    dirs
}
