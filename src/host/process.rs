//! Processes, and the rules by which a tenant claims them.
//!
//! A process is read only as far as a rule needs it: its cgroup first (one small file), its user only
//! where a rule names users. Kernel threads, process 1 and the agent itself are never claimed. A process in a
//! service or scope of systemd is claimed by its cgroup only, never by its owner: systemd takes a process that
//! left its unit for one that has ended. Such processes are counted, so that they can be reported.
//!
//! A legacy host has several trees, in which a process is moved one after the other. A child that it starts meanwhile
//! is in the tenant's cgroups in some of them only, and is claimed in the others by where it is there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use nix::errno::Errno;
use procfs::FromRead;
use procfs::process::{Stat, StatFlags, StatM};

use super::cgroup::{Facet, Layout, Tree};
use super::kernfs::{DirId, KernError, KernFs, Operation};
use crate::kernel_text::proc_files::{self, CgroupLine, Owner};
use crate::kernel_text::{cleaned, path_of, text_of};
use crate::policy::{pattern, unit_path};

/// Which processes one tenant claims.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRule {
    /// Index of the tenant's node.
    pub node: usize,
    /// Cgroup paths from the mount, with `*` and `?` within one name; what is below them is claimed too.
    pub cgroups: Vec<String>,
    /// User numbers (effective).
    pub uids: Vec<u32>,
    /// Group numbers (effective or supplementary).
    pub gids: Vec<u32>,
    /// Whether the tenant is that cgroup itself: no process is moved out of it, for whatever tenant.
    pub is_in_place: bool,
    /// The units that the tenant is, by name or pattern: their processes belong to the tenant already. Where there
    /// are any, none is moved.
    pub homes: Vec<String>,
    /// Whether the tenant has the processes in the root cgroup without another claim: the claims of others, as the
    /// policy writes them.
    pub rest_beside: Option<Vec<String>>,
}

impl ClaimRule {
    fn wants_cgroup(&self, path: &str) -> bool {
        self.cgroups.iter().any(|pattern| pattern::claims(pattern, path))
    }

    fn is_at_home(&self, unit: Option<&str>) -> bool {
        unit.is_some_and(|unit| self.homes.iter().any(|home| pattern::fits(home, unit)))
    }
}

/// The rules of all tenants, with the first for each owner.
#[derive(Clone, Debug, Default)]
pub struct ClaimRules {
    rules: Vec<ClaimRule>,
    /// The rules that name cgroups.
    of_cgroups: Vec<usize>,
    by_uid: HashMap<u32, usize>,
    by_gid: HashMap<u32, usize>,
    rest: Option<usize>,
    /// Whether users without a rule are looked for; with the child of the root whose processes have no tenant.
    pub finds_users: Option<&'static str>,
    /// The users of whom it is known whether they have a tenant, where users are looked for.
    pub known_users: BTreeSet<u32>,
}

impl ClaimRules {
    /// These rules; of those that name the same owner the first counts.
    pub fn new(rules: Vec<ClaimRule>) -> ClaimRules {
        let (mut by_uid, mut by_gid) = (HashMap::new(), HashMap::new());
        for (index, rule) in rules.iter().enumerate() {
            for uid in &rule.uids {
                by_uid.entry(*uid).or_insert(index);
            }
            for gid in &rule.gids {
                by_gid.entry(*gid).or_insert(index);
            }
        }
        let of_cgroups = (0..rules.len()).filter(|index| !rules[*index].cgroups.is_empty());
        let of_cgroups = of_cgroups.collect();
        let rest = rules.iter().position(|rule| rule.rest_beside.is_some());
        ClaimRules { rules, of_cgroups, by_uid, by_gid, rest, ..ClaimRules::default() }
    }

    /// The rules themselves.
    pub fn all(&self) -> &[ClaimRule] {
        &self.rules
    }

    /// Whether nothing is claimed or looked for.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty() && self.finds_users.is_none()
    }

    /// Whether this user has a rule.
    pub fn has_user(&self, uid: u32) -> bool {
        self.by_uid.contains_key(&uid)
    }

    fn of_place(&self, place: &Place) -> Option<&ClaimRule> {
        let is_wanted = |rule: &&ClaimRule| match place.is_split() {
            true => place.outside.iter().any(|path| rule.wants_cgroup(path)),
            false => rule.wants_cgroup(&place.cpu_path),
        };
        self.of_cgroups.iter().map(|index| &self.rules[*index]).find(is_wanted)
    }

    /// The rule for a process that no rule for owners claims.
    fn of_rest(&self, place: &Place, owner: &Owner) -> Option<&ClaimRule> {
        let is_known = |uid: u32| self.finds_users.is_none() || self.known_users.contains(&uid);
        let is_left = place.is_at_top && is_known(owner.euid);
        self.rest.filter(|_| is_left).map(|index| &self.rules[index])
    }

    fn of_owner(&self, owner: &Owner) -> Option<&ClaimRule> {
        let of_user = self.by_uid.get(&owner.euid);
        let gids = owner.groups.iter().chain([&owner.egid]);
        let of_groups = gids.filter_map(|gid| self.by_gid.get(gid));
        of_groups.chain(of_user).min().map(|index| &self.rules[*index])
    }

    fn looks_at_owners(&self) -> bool {
        self.finds_users.is_some()
            || self.rest.is_some()
            || !(self.by_uid.is_empty() && self.by_gid.is_empty())
    }
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

/// The result of `rules` for the processes that are not below the agent's root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The processes to be moved, in ascending order of their numbers.
    pub moves: Vec<Claim>,
    /// What is claimed by owner and stays where it is, by node and place.
    pub stays: Vec<Stay>,
    /// The processes that are in tenants already: below the agent's root, or in a cgroup in place.
    pub inside: Vec<u32>,
    /// The users of processes that are in no tenant, where users are looked for: with the process, where no rule
    /// claims it.
    pub users: Vec<(u32, Option<u32>)>,
    /// How many processes could not be read, with the first error.
    pub unread: Option<(usize, KernError)>,
}

impl Claims {
    fn note_unread(&mut self, error: KernError) {
        let (nr, first) = self.unread.take().unwrap_or((0, error));
        self.unread = Some((nr + 1, first));
    }
}

/// Processes of one place that are claimed by owner and are not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    /// Index of the tenant's node.
    pub node: usize,
    /// Where they are.
    pub place: StayPlace,
    /// Their number.
    pub nr_processes: usize,
}

/// A place where processes stay.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StayPlace {
    /// In this unit of systemd, which a policy can name.
    Unit(String),
    /// In this cgroup, which is no unit, while the tenant is one.
    Cgroup(String),
    /// In this cgroup, a path from the root of a hierarchy of which only another part is mounted.
    Unmounted(String),
}

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

/// What `rules` claim, of those of the processes `pids` that are not below the agent's root yet. A process
/// that ends meanwhile is left out; one that cannot be read is counted. When `nr_max` are to be moved, the rest of
/// `pids` is not taken.
pub fn claims(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    rules: &ClaimRules,
    pids: &mut impl Iterator<Item = u32>,
    nr_max: usize,
) -> Claims {
    let mut claims = Claims::default();
    let mut stays: BTreeMap<(usize, StayPlace), usize> = BTreeMap::new();
    while claims.moves.len() < nr_max
        && let Some(pid) = pids.next()
    {
        match look(kernel, proc, layout, rules, pid, &mut claims) {
            Ok(Some(Found::Move(claim))) => claims.moves.push(claim),
            Ok(Some(Found::Stay(node, place))) => *stays.entry((node, place)).or_default() += 1,
            Ok(None) => {}
            Err(error) => claims.note_unread(error),
        }
    }
    let stay = |((node, place), nr_processes)| Stay { node, place, nr_processes };
    claims.stays = stays.into_iter().map(stay).collect();
    claims
}

/// A process that a rule claims.
enum Found {
    Move(Claim),
    Stay(usize, StayPlace),
}

/// Process `pid`, if a rule claims it and it is not in its tenant. Notes in `claims` the processes in tenants, and users.
fn look(
    kernel: &mut impl KernFs,
    proc: DirId,
    layout: &Layout,
    rules: &ClaimRules,
    pid: u32,
    claims: &mut Claims,
) -> Result<Option<Found>, KernError> {
    let Some(place) = place(kernel, proc, layout, pid)? else { return Ok(None) };
    if place.below_root {
        let is_lost = |name: &str| {
            layout.trees.iter().zip(&place.dirs).any(|(tree, dir)| *dir == tree.root.join(name))
        };
        if rules.finds_users.is_some_and(is_lost) {
            claims.users.extend(user(kernel, proc, pid)?.map(|uid| (uid, None)));
        } else {
            claims.inside.push(pid);
        }
        return Ok(None);
    }
    let node = match rules.of_place(&place) {
        Some(rule) if rule.is_in_place => {
            claims.inside.push(pid);
            return Ok(None);
        }
        Some(rule) => rule.node,
        None if rules.looks_at_owners() => {
            let Some(owner) = owner(kernel, proc, pid)? else { return Ok(None) };
            let rule = rules.of_owner(&owner);
            if rules.finds_users.is_some() {
                claims.users.push((owner.euid, rule.is_none().then_some(pid)));
            }
            let rule = rule.or_else(|| rules.of_rest(&place, &owner));
            match rule.map(|rule| (rule.node, stays_at(rule, &place))) {
                None | Some((_, Stays::Home)) => return Ok(None),
                Some((node, Stays::Moved)) => node,
                Some((node, Stays::At(stay))) => {
                    let is_process = matches!(stay, StayPlace::Unit(_))
                        || claimable_since(kernel, proc, pid)?.is_some();
                    return Ok(is_process.then_some(Found::Stay(node, stay)));
                }
            }
        }
        None => return Ok(None),
    };
    let Some(start_ticks) = claimable_since(kernel, proc, pid)? else { return Ok(None) };
    let is_split = place.is_split();
    Ok(Some(match place.unmounted {
        Some(path) => Found::Stay(node, StayPlace::Unmounted(path)),
        None => Found::Move(Claim { node, pid, start_ticks, from: place.dirs, is_split }),
    }))
}

/// The result for a process that is claimed by owner.
enum Stays {
    /// It is where the tenant is.
    Home,
    /// It stays where it is.
    At(StayPlace),
    /// It is moved.
    Moved,
}

fn stays_at(rule: &ClaimRule, place: &Place) -> Stays {
    match &place.unit {
        unit if rule.is_at_home(unit.as_deref()) => Stays::Home,
        Some(_) if place.is_split() => Stays::Home,
        Some(unit) => Stays::At(StayPlace::Unit(unit.clone())),
        None if !rule.homes.is_empty() => Stays::At(StayPlace::Cgroup(place.cpu_path.clone())),
        None => Stays::Moved,
    }
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
fn claimable_since(
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

/// The owner of process `pid`; `None` where it is gone.
fn owner(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Result<Option<Owner>, KernError> {
    parsed(kernel, proc, &format!("{pid}/status"), proc_files::owner)
}

/// The place of a process. Paths are texts, from the mount.
struct Place {
    cpu_path: String,
    /// In every tree that tenants live in.
    below_root: bool,
    /// Its paths in the trees in which it is not below the root, where it is in others.
    outside: Vec<String>,
    /// The unit that it is in, except for processes in the agent's root itself.
    unit: Option<String>,
    /// Whether it is in the root cgroup of every tree that tenants live in.
    is_at_top: bool,
    /// Its path from the root of a hierarchy of which the part with this path is not mounted.
    unmounted: Option<String>,
    dirs: Vec<PathBuf>,
}

impl Place {
    fn is_split(&self) -> bool {
        !self.outside.is_empty()
    }
}

fn place(
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
    Some(Place { cpu_path, below_root, outside, unit, is_at_top, unmounted, dirs })
}

fn is_line_of(tree: &Tree, line: &CgroupLine) -> bool {
    match tree.facets.contains(&Facet::Pressure) {
        true => line.hierarchy == 0,
        false => tree.facets.iter().any(|facet| line.has(facet.controller())),
    }
}
