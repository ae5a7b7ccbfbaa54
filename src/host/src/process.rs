//! Processes: their origin, owner, place and use of the machine.
//!
//! Files of `/proc` are read as bytes ([`tenantd_core::kernel_text`]). A process is *gone* where the kernel says ENOENT or ESRCH;
//! one that could not be read is an error, and never gone.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use procfs::FromRead;
use procfs::process::{Stat, StatFlags, StatM};

use super::cgroup::{Facet, Layout, Tree};
use super::kernfs::{DirId, KernError, KernFs, Operation};
use tenantd_core::kernel_text::proc_files::{self, CgroupLine, Owner};
use tenantd_core::kernel_text::{cleaned, path_of, text_of};
use tenantd_policy::unit_path;

/// The numbers of all processes, in ascending order.
///
/// # Errors
/// `/proc` cannot be listed.
pub fn all(kernel: &mut impl KernFs, proc: DirId) -> Result<Vec<u32>, KernError> {
    let names = kernel.list_dirs(proc)?;
    let numbers = names.iter().filter_map(|name| proc_files::number(name.as_bytes()));
    let mut pids: Vec<u32> = numbers.collect();
    pids.sort_unstable();
    Ok(pids)
}

/// One process that a tenant claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Index of the tenant's node.
    pub node: usize,
    /// Process number.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Where it is now: one directory for each tree of the layout.
    pub from: Vec<PathBuf>,
    /// Whether it is below the agent's root in some of the trees.
    pub is_split: bool,
}

/// A process that a request wants to move: how it would be, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The move.
    pub claim: Claim,
    /// The unit of systemd that it would leave.
    pub unit: Option<String>,
    /// Its directory in `/proc`, open, to be closed by the caller. Like a pidfd it means this process alone: while that
    /// is alive, what is read or moved by its number is of this process.
    pub held: DirId,
}

/// Process `pid` as one to be moved for `node`, held; `None` where it is gone, or cannot be moved.
///
/// # Errors
/// It could not be read, or is in a cgroup that is not mounted here.
pub fn candidate(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    pid: u32,
    node: usize,
) -> Result<Option<Candidate>, KernError> {
    let path = kernel.dir_path(proc).join(pid.to_string());
    let Some(held) = unless_gone(kernel.open_dir(&path))? else { return Ok(None) };
    let mut read = || {
        let Some(start_ticks) = claimable_since(kernel, proc, pid)? else { return Ok(None) };
        let Some(place) = place(kernel, proc, layout, pid)? else { return Ok(None) };
        if let Some(path) = place.unmounted {
            return Err(KernError::new(Operation::Open, path_of(&path), Errno::EXDEV));
        }
        let claim = Claim { node, pid, start_ticks, from: place.dirs, is_split: false };
        Ok(is_alive(kernel, held)?.then_some(Candidate { claim, unit: place.unit, held }))
    };
    let candidate = read();
    if !matches!(candidate, Ok(Some(_))) {
        kernel.close_dir(held);
    }
    candidate
}

/// Whether the process of a directory that is held is alive.
///
/// # Errors
/// Its directory could not be read.
pub fn is_alive(kernel: &mut impl KernFs, held: DirId) -> Result<bool, KernError> {
    let stat = stat_of(kernel, held, "stat")?;
    Ok(stat.is_some_and(|stat| stat.state != ZOMBIE))
}

/// When `pid` started, where it is a process that can be moved.
pub(super) fn claimable_since(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
) -> Result<Option<u64>, KernError> {
    let stat = stat(kernel, proc, pid)?;
    let stat = stat.filter(|stat| !is_kernel_thread(stat) && stat.state != ZOMBIE);
    Ok(stat.map(|stat| stat.starttime))
}

/// When process `pid` started, in clock ticks since boot; `None` where it is gone.
///
/// # Errors
/// `/proc` could not be read: a caller that took that for the end of a process would drop a live one.
pub fn start_ticks(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
) -> Result<Option<u64>, KernError> {
    Ok(birth(kernel, proc, pid)?.map(|birth| birth.start_ticks))
}

/// Whether process `pid` is another one by now, or none, than the one that started then. One that cannot be read may be
/// the same.
pub fn has_ended(kernel: &mut impl KernFs, proc: DirId, pid: u32, started: u64) -> bool {
    start_ticks(kernel, proc, pid).is_ok_and(|found| found != Some(started))
}

/// The origin of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its parent, or the process that adopted it; `None` for processes that the kernel started.
    pub parent: Option<u32>,
    /// Whether it has ended, and waits to be reaped.
    pub has_ended: bool,
}

/// The origin of process `pid`; `None` where it is gone.
///
/// # Errors
/// `/proc` cannot be read or parsed: a caller that took that for the end of a process would leave it behind.
pub fn birth(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<Birth>, KernError> {
    let Some(stat) = stat(kernel, proc, pid)? else { return Ok(None) };
    let parent = u32::try_from(stat.ppid).ok().filter(|parent| *parent > 0);
    Ok(Some(Birth { start_ticks: stat.starttime, parent, has_ended: stat.state == ZOMBIE }))
}

/// What a process has done so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The name of its program, as the kernel keeps it: at most 15 bytes, of any kind.
    pub command: String,
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// CPU time that it has used, in clock ticks.
    pub cpu_ticks: u64,
}

/// What process `pid` has done; `None` where it is gone or cannot be read.
pub fn work(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<Work> {
    let stat = stat(kernel, proc, pid).ok().flatten()?;
    let cpu_ticks = stat.utime.saturating_add(stat.stime);
    Some(Work { command: cleaned(&stat.comm), start_ticks: stat.starttime, cpu_ticks })
}

/// The number of the calling process, as `/proc` counts them.
///
/// # Errors
/// `/proc` cannot be read.
pub fn own_pid(kernel: &mut impl KernFs, proc: DirId) -> Result<u32, KernError> {
    let text = kernel.read_once(proc, "self/stat")?;
    let number = text.split(|byte| *byte == b' ').next().and_then(proc_files::number);
    number.ok_or_else(|| KernError::new(Operation::Read, "/proc/self/stat", Errno::EINVAL))
}

fn stat(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<Stat>, KernError> {
    stat_of(kernel, proc, &format!("{pid}/stat"))
}

fn stat_of(kernel: &mut impl KernFs, dir: DirId, name: &str) -> Result<Option<Stat>, KernError> {
    parsed(kernel, dir, name, |text| Stat::from_read(text).ok())
}

/// A file of a process through `parse`; `None` where the process is gone. A text that is not understood is EINVAL.
fn parsed<T>(
    kernel: &mut impl KernFs,
    dir: DirId,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, KernError> {
    let Some(text) = unless_gone(kernel.read_once(dir, name))? else { return Ok(None) };
    if let Some(found) = parse(text) {
        return Ok(Some(found));
    }
    Err(KernError::new(Operation::Read, kernel.dir_path(dir).join(name), Errno::EINVAL))
}

/// `None` for a process that is gone. Of the errors that mean "gone" for a cgroup, ENODEV is none of `/proc`.
fn unless_gone<T>(outcome: Result<T, KernError>) -> Result<Option<T>, KernError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.errno, Errno::ENOENT | Errno::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The state of a process that has ended and was not yet waited for.
const ZOMBIE: char = 'Z';

/// Kernel threads are where the kernel put them; most cannot be moved at all.
fn is_kernel_thread(stat: &Stat) -> bool {
    stat.flags & StatFlags::PF_KTHREAD.bits() != 0
}

/// The directory that process `pid` is in, in the tree that serves `facet`; `None` where it is gone or cannot be read.
pub fn cgroup_dir(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    pid: u32,
    facet: Facet,
) -> Option<PathBuf> {
    let index = layout.tree(facet)?;
    let place = place(kernel, proc, layout, pid).ok().flatten()?;
    place.dirs.into_iter().nth(index)
}

/// What a process has used and holds.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUsage {
    /// When it started, in clock ticks since boot.
    pub start_ticks: u64,
    /// CPU time of all its threads.
    pub cpu_seconds: f64,
    /// Its resident memory, shared pages included.
    pub resident_bytes: u64,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// What process `pid` uses; `None` where it is gone or cannot be read.
pub fn usage(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<ProcessUsage> {
    let stat = stat(kernel, proc, pid).ok().flatten()?;
    Some(ProcessUsage {
        start_ticks: stat.starttime,
        cpu_seconds: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
        resident_bytes: stat.rss.saturating_mul(procfs::page_size()),
        name: cleaned(&stat.comm),
    })
}

/// Clock ticks of a process as µs.
pub fn usec(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000) / procfs::ticks_per_second()
}

/// The resident memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Its own: anonymous pages.
    pub private_bytes: u64,
    /// What others may have too: pages of files and of shared memory.
    pub shared_bytes: u64,
}

/// The resident memory of process `pid`; `None` where it is gone or cannot be read.
pub fn resident(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<ResidentMemory> {
    let pages = StatM::from_read(kernel.read_once(proc, &format!("{pid}/statm")).ok()?).ok()?;
    let bytes = |pages: u64| pages.saturating_mul(procfs::page_size());
    Some(ResidentMemory {
        private_bytes: bytes(pages.resident.saturating_sub(pages.shared)),
        shared_bytes: bytes(pages.shared),
    })
}

/// The command line of process `pid`; `None` where it has none, or cannot be read.
pub fn command_line(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<String> {
    let text = kernel.read_once(proc, &format!("{pid}/cmdline")).ok()?;
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let words: Vec<String> = text.split(|byte| *byte == 0).map(text_of).collect();
    let line = words.join(" ");
    (!line.trim().is_empty()).then_some(line)
}

/// The effective user of process `pid`; `None` where it is gone.
///
/// # Errors
/// It could not be read.
pub fn user(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<u32>, KernError> {
    Ok(owner(kernel, proc, pid)?.map(|owner| owner.euid))
}

/// Whether process `pid` is of this user alone, by its real and its effective user; `None` where it is gone.
///
/// # Errors
/// It could not be read: it may be any user's.
pub fn is_of(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
    user: u32,
) -> Result<Option<bool>, KernError> {
    let owner = owner(kernel, proc, pid)?;
    Ok(owner.map(|owner| [owner.ruid, owner.euid] == [user; 2]))
}

/// Why process `pid` may be of another user than this one; `None` where it is this user's alone, or gone.
pub fn why_not_of(kernel: &mut impl KernFs, proc: DirId, pid: u32, user: u32) -> Option<String> {
    // So the kernel lists a process that has no number in this PID namespace.
    if pid == 0 {
        return Some(
            "a process of another PID namespace has no owner that is known here".to_string(),
        );
    }
    match is_of(kernel, proc, pid, user) {
        Ok(Some(true) | None) => None,
        Ok(Some(false)) => Some(format!("process {pid} is not yours")),
        Err(error) => Some(format!("the owner of process {pid} is not known: {error}")),
    }
}

/// The owner of process `pid`; `None` where it is gone.
///
/// # Errors
/// It could not be read.
pub fn owner(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<Owner>, KernError> {
    parsed(kernel, proc, &format!("{pid}/status"), proc_files::owner)
}

/// The place of a process. Paths are texts, from the mount.
pub(super) struct Place {
    pub(super) cpu_path: String,
    /// In every tree that tenants live in.
    pub(super) below_root: bool,
    /// Its paths in the trees in which it is not below the root, where it is in others.
    pub(super) outside: Vec<String>,
    /// The unit that it is in, except for processes in the agent's root itself.
    pub(super) unit: Option<String>,
    /// Whether it is in the root cgroup of every tree that tenants live in.
    pub(super) is_at_top: bool,
    /// Its path from the root of a hierarchy of which the part with this path is not mounted.
    pub(super) unmounted: Option<String>,
    /// Its path in the first tree in which a program that manages cgroups has put it somewhere.
    pub(super) managed: Option<String>,
    pub(super) dirs: Vec<PathBuf>,
}

impl Place {
    /// Whether it is below the agent's root in some of the trees only.
    pub(super) fn is_split(&self) -> bool {
        !self.outside.is_empty()
    }
}

pub(super) fn place(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    pid: u32,
) -> Result<Option<Place>, KernError> {
    parsed(kernel, proc, &format!("{pid}/cgroup"), |text| place_in(layout, text))
}

/// The place in a text of `/proc/PID/cgroup`; `None` where that is not understood, or misses a hierarchy.
fn place_in(layout: &Layout, text: &[u8]) -> Option<Place> {
    let lines = proc_files::cgroup_lines(text)?;
    let mut dirs = Vec::with_capacity(layout.trees.len());
    let (mut cpu_path, mut in_root, mut unmounted) = (String::new(), false, None);
    let (mut is_inside, mut outside, mut is_at_top) = (false, Vec::new(), true);
    let mut managed = None;
    for tree in &layout.trees {
        let line = lines.iter().find(|line| is_line_of(tree, line))?;
        let path = tree.from_mount(&line.path).unwrap_or_else(|| {
            unmounted.get_or_insert_with(|| line.path.clone());
            line.path.clone()
        });
        let dir = tree.dir_of(&path);
        if tree.facets.contains(&Facet::Cpu) {
            cpu_path.clone_from(&path);
            in_root = dir == tree.root;
        }
        is_at_top &= path == "/" || !tree.is_for_all();
        if managed.is_none() && tree.is_for_all() && !is_of_session(tree, line, &path) {
            managed = Some(path.clone());
        }
        match dir.starts_with(&tree.root) && dir != tree.root {
            _ if !tree.is_for_all() => {}
            true => is_inside = true,
            false => outside.push(path),
        }
        dirs.push(dir);
    }
    // Systemd keeps its units in a hierarchy of its own or in the unified one, on a hybrid host in both.
    let of_systemd = lines.iter().filter(|line| line.is_of_units());
    let unit = of_systemd.filter_map(|line| unit_path::unit_of(&line.path)).next();
    let unit = unit.filter(|_| !in_root).map(str::to_string);
    let below_root = is_inside && outside.is_empty();
    if !is_inside {
        outside.clear();
    }
    Some(Place { cpu_path, below_root, outside, unit, is_at_top, unmounted, managed, dirs })
}

/// Whether the cgroup at `path`, from the mount, is a session's own: see the essay of [`super::claiming`].
fn is_of_session(tree: &Tree, line: &CgroupLine, path: &str) -> bool {
    let dir = tree.dir_of(path);
    let is_number = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    let is_of_elogind = || {
        let id = path.strip_prefix('/').map(|id| id.strip_prefix('c').unwrap_or(id));
        line.hierarchy == 0 && id.is_some_and(is_number)
    };
    tree.own.starts_with(&dir) || dir == tree.root || is_of_elogind()
}

fn is_line_of(tree: &Tree, line: &CgroupLine) -> bool {
    match tree.facets.contains(&Facet::Pressure) {
        true => line.hierarchy == 0,
        false => tree.facets.iter().any(|facet| line.has(facet.controller())),
    }
}
