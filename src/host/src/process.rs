//! Processes: their origin, owner, place and resource use.
//!
//! Files of `/proc` are read as bytes ([`tenantd_core::kernel_text`]). A process is *gone* only if the kernel
//! returns ENOENT or ESRCH. Any other failed reading is an error.

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

/// Pids of all processes, in ascending order.
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
    /// Position of the tenant of its rule; 0 for a candidate, which no rule claims.
    pub node: usize,
    /// Pid.
    pub pid: u32,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Present cgroups: one directory for each tree of the layout.
    pub from: Vec<PathBuf>,
    /// True if it is below the agent's root in only some of the trees.
    pub is_split: bool,
}

/// A process that a request wants to move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The move.
    pub claim: Claim,
    /// The systemd unit that it would leave.
    pub unit: Option<String>,
    /// Its directory in `/proc`, open; the caller closes it. Like a pidfd it means this process only: while the
    /// process lives, its pid is not reused.
    pub held: DirId,
}

/// Opens process `pid` as a candidate to move; `None` if it is gone, or cannot be moved. Fails if
/// the process is unreadable, or in a cgroup that is not mounted here.
pub fn candidate(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    pid: u32,
) -> Result<Option<Candidate>, KernError> {
    let path = kernel.dir_path(proc).join(pid.to_string());
    let Some(held) = unless_gone(kernel.open_dir(&path))? else { return Ok(None) };
    let mut read = || {
        let Some(start_ticks) = claimable_since(kernel, proc, pid)? else { return Ok(None) };
        let Some(place) = place(kernel, proc, layout, pid)? else { return Ok(None) };
        if let Some(path) = place.unmounted {
            return Err(KernError::new(Operation::Open, path_of(&path), Errno::EXDEV));
        }
        let claim = Claim { node: 0, pid, start_ticks, from: place.dirs, is_split: false };
        Ok(is_alive(kernel, held)?.then_some(Candidate { claim, unit: place.unit, held }))
    };
    let candidate = read();
    if !matches!(candidate, Ok(Some(_))) {
        kernel.close_dir(held);
    }
    candidate
}

/// True if the process of an open `/proc` directory is alive.
pub fn is_alive(kernel: &mut impl KernFs, held: DirId) -> Result<bool, KernError> {
    let stat = stat_of(kernel, held, "stat")?;
    Ok(stat.is_some_and(|stat| stat.state != ZOMBIE))
}

pub(super) fn claimable_since(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
) -> Result<Option<u64>, KernError> {
    let stat = stat(kernel, proc, pid)?;
    let stat = stat.filter(|stat| !is_kernel_thread(stat) && stat.state != ZOMBIE);
    Ok(stat.map(|stat| stat.starttime))
}

/// Start time of process `pid`, in clock ticks since boot; `None` if it is gone. A caller must not treat an
/// error as the end of the process.
pub fn start_ticks(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
) -> Result<Option<u64>, KernError> {
    Ok(birth(kernel, proc, pid)?.map(|birth| birth.start_ticks))
}

/// True if process `pid` is gone, or is not the one with this start time. An unreadable one may be the same.
pub fn has_ended(kernel: &mut impl KernFs, proc: DirId, pid: u32, started: u64) -> bool {
    start_ticks(kernel, proc, pid).is_ok_and(|found| found != Some(started))
}

/// The origin of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Birth {
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// Its parent, or the process that adopted it; `None` for processes that the kernel started.
    pub parent: Option<u32>,
    /// True if it has ended, and waits to be reaped.
    pub has_ended: bool,
}

/// Origin of process `pid`; `None` if it is gone. A caller must not treat an error as the end of the process.
pub fn birth(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<Birth>, KernError> {
    let Some(stat) = stat(kernel, proc, pid)? else { return Ok(None) };
    let parent = u32::try_from(stat.ppid).ok().filter(|parent| *parent > 0);
    Ok(Some(Birth { start_ticks: stat.starttime, parent, has_ended: stat.state == ZOMBIE }))
}

/// CPU use of a process so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Program name in the kernel: at most 15 bytes, of any value.
    pub command: String,
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// CPU time used, in clock ticks.
    pub cpu_ticks: u64,
}

/// CPU use of process `pid`; `None` if it is gone or unreadable.
pub fn work(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<Work> {
    let stat = stat(kernel, proc, pid).ok().flatten()?;
    let cpu_ticks = stat.utime.saturating_add(stat.stime);
    Some(Work { command: cleaned(&stat.comm), start_ticks: stat.starttime, cpu_ticks })
}

/// Pid of the calling process in the PID namespace of `/proc`.
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

/// Parses a file of a process; `None` if the process is gone. A malformed text is EINVAL.
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

/// Returns `None` for a process that is gone. ENODEV, which means "gone" for a cgroup, does not occur in
/// `/proc`.
fn unless_gone<T>(outcome: Result<T, KernError>) -> Result<Option<T>, KernError> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if matches!(error.errno, Errno::ENOENT | Errno::ESRCH) => Ok(None),
        Err(error) => Err(error),
    }
}

/// State of a process that has ended and was not reaped.
const ZOMBIE: char = 'Z';

/// Kernel threads stay in the kernel's cgroups; most cannot be moved at all.
fn is_kernel_thread(stat: &Stat) -> bool {
    stat.flags & StatFlags::PF_KTHREAD.bits() != 0
}

/// Directory of process `pid` in the tree that serves `facet`; `None` if it is gone or unreadable.
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

/// CPU and memory of a process.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessUsage {
    /// Start time, in clock ticks since boot.
    pub start_ticks: u64,
    /// CPU time of all its threads.
    pub cpu_seconds: f64,
    /// Resident memory, including shared pages.
    pub resident_bytes: u64,
    /// Its name, at most 15 bytes.
    pub name: String,
}

/// CPU and memory of process `pid`; `None` if it is gone or unreadable.
pub fn usage(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<ProcessUsage> {
    let stat = stat(kernel, proc, pid).ok().flatten()?;
    Some(ProcessUsage {
        start_ticks: stat.starttime,
        cpu_seconds: (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64,
        resident_bytes: stat.rss.saturating_mul(procfs::page_size()),
        name: cleaned(&stat.comm),
    })
}

/// Converts clock ticks of a process to µs.
pub fn usec(ticks: u64) -> u64 {
    ticks.saturating_mul(1_000_000) / procfs::ticks_per_second()
}

/// The resident memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentMemory {
    /// Private memory: anonymous pages.
    pub private_bytes: u64,
    /// Memory that may be shared: pages of files and of shared memory.
    pub shared_bytes: u64,
}

/// Resident memory of process `pid`; `None` if it is gone or unreadable.
pub fn resident(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<ResidentMemory> {
    let pages = StatM::from_read(kernel.read_once(proc, &format!("{pid}/statm")).ok()?).ok()?;
    let bytes = |pages: u64| pages.saturating_mul(procfs::page_size());
    Some(ResidentMemory {
        private_bytes: bytes(pages.resident.saturating_sub(pages.shared)),
        shared_bytes: bytes(pages.shared),
    })
}

/// Command line of process `pid`; `None` if it has none, or is unreadable.
pub fn command_line(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<String> {
    let text = kernel.read_once(proc, &format!("{pid}/cmdline")).ok()?;
    let text = text.strip_suffix(&[0]).unwrap_or(text);
    let words: Vec<String> = text.split(|byte| *byte == 0).map(text_of).collect();
    let line = words.join(" ");
    (!line.trim().is_empty()).then_some(line)
}

/// Effective user of process `pid`; `None` if it is gone.
pub fn user(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<u32>, KernError> {
    Ok(owner(kernel, proc, pid)?.map(|owner| owner.euid))
}

/// True if both the real and the effective user of process `pid` are `user`; `None` if it is gone. After an
/// error it may belong to any user.
pub fn is_of(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
    user: u32,
) -> Result<Option<bool>, KernError> {
    let owner = owner(kernel, proc, pid)?;
    Ok(owner.map(|owner| [owner.ruid, owner.euid] == [user; 2]))
}

/// Reason why process `pid` may belong to another user; `None` if it belongs to `user` only, or is gone.
pub fn why_not_of(kernel: &mut impl KernFs, proc: DirId, pid: u32, user: u32) -> Option<String> {
    // The kernel lists a process as 0 if it has no number in this PID namespace.
    if pid == 0 {
        return Some(
            "a process of another PID namespace has no owner that is known here".to_string(),
        );
    }
    match is_of(kernel, proc, pid, user) {
        Ok(Some(true) | None) => None,
        Ok(Some(false)) => Some(not_of(kernel, proc, pid, user)),
        Err(error) => Some(format!("the owner of process {pid} is not known: {error}")),
    }
}

/// Text for a process that does not belong to `user`.
pub fn not_of(kernel: &mut impl KernFs, proc: DirId, pid: u32, user: u32) -> String {
    let of = match owner(kernel, proc, pid) {
        Ok(Some(owner)) if owner.ruid == owner.euid => format!(" but of UID {}", owner.euid),
        Ok(Some(owner)) => format!(" but of UID {}, with the rights of {}", owner.ruid, owner.euid),
        _ => String::new(),
    };
    format!("{} is not yours (UID {user}){of}", named(kernel, proc, pid))
}

/// Process `pid` with its name, for a text.
pub fn named(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> String {
    match work(kernel, proc, pid) {
        Some(work) => format!("process {pid} ({})", work.command),
        None => format!("process {pid}"),
    }
}

/// Owner of process `pid`; `None` if it is gone.
pub fn owner(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<Owner>, KernError> {
    parsed(kernel, proc, &format!("{pid}/status"), proc_files::owner)
}

/// Cgroups of a process. Paths are texts, below the mount.
pub(super) struct Place {
    pub(super) cpu_path: String,
    /// In every tree of tenants.
    pub(super) below_root: bool,
    /// Paths in the trees in which it is not below the root, if it is below it in others.
    pub(super) outside: Vec<String>,
    /// Its unit, except for processes in the agent's root itself.
    pub(super) unit: Option<String>,
    /// True if it is in the root cgroup of every tree of tenants.
    pub(super) is_at_top: bool,
    /// Path from the root of a hierarchy, if that part of the hierarchy is not mounted.
    pub(super) unmounted: Option<String>,
    /// Path in the first tree in which another program manages its cgroup.
    pub(super) managed: Option<String>,
    pub(super) dirs: Vec<PathBuf>,
}

impl Place {
    /// True if it is below the agent's root in only some of the trees.
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

/// Parses a text of `/proc/PID/cgroup`; `None` if it is malformed, or lacks a hierarchy.
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
        if tree.is_for_all() {
            if dir.starts_with(&tree.root) && dir != tree.root {
                is_inside = true
            } else {
                outside.push(path)
            }
        }
        dirs.push(dir);
    }
    // Units are in systemd's own hierarchy or in the unified one, on a hybrid host in both.
    let of_systemd = lines.iter().filter(|line| line.is_of_units());
    let unit = of_systemd.filter_map(|line| unit_path::unit_of(&line.path)).next();
    let unit = unit.filter(|_| !in_root).map(str::to_string);
    let below_root = is_inside && outside.is_empty();
    if !is_inside {
        outside.clear();
    }
    Some(Place { cpu_path, below_root, outside, unit, is_at_top, unmounted, managed, dirs })
}

/// Path below the mount, in `tree`, of a process with these lines; `None` if that part of the hierarchy is not mounted.
pub fn path_in(tree: &Tree, lines: &[CgroupLine]) -> Option<String> {
    tree.from_mount(&lines.iter().find(|line| is_line_of(tree, line))?.path)
}

/// True if the cgroup at `path`, below the mount, is one of a session; see [`super::claiming`].
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
    if tree.facets.contains(&Facet::Pressure) {
        line.hierarchy == 0
    } else {
        tree.facets.iter().any(|facet| line.has(facet.of_legacy()))
    }
}
