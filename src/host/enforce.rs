//! Everything that changes the host: made, enabled, moved, written. The journal comes first, always.
//!
//! Each function here records what it is about to do, does it, and checks that it was done. A record that
//! fails stops the act, so that nothing is ever changed that could not be put back.

use std::collections::HashSet;
use std::error::Error;
use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::cgroup::dialect::{LEGACY_NO_QUOTA, LEGACY_PERIOD};
use super::cgroup::{self, Cgroup, Dialect, Facet, Layout, ReadError, Tree};
use super::journal::{Entry, Journal, JournalError};
use super::kernfs::{DirId, KernError, KernFs};
use super::process::{self, Claim};
use super::systemd::UnitError;
use crate::control::plan::{Action, Knob, Value};
use crate::control::state::Refusal;
use crate::dop::CpuSet;
use crate::units::{Bytes, Limit};

/// The child that the agent moves itself into where its own cgroup is the root: a unified cgroup with
/// controllers for its children must not hold processes itself.
pub const AGENT_CGROUP: &str = "tenantd.agent";

/// The file that tells which controllers children have.
pub(crate) const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum EnforceError {
    /// The kernel refused.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// A file could not be read before or after.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It could not be recorded, so it was not done.
    #[error("nothing was written, because it could not be recorded first: {}", with_causes(error))]
    Journal {
        /// What the journal said.
        error: JournalError,
    },
    /// It would do harm now.
    #[error("{0}")]
    Deferred(String),
    /// The kernel took the value and holds another.
    #[error("{path} holds `{found}` after `{written}` was written")]
    NotTaken {
        /// The file.
        path: String,
        /// What was written.
        written: String,
        /// What it holds.
        found: String,
    },
    /// Someone else has written there since it was read last, and the policy leaves such values alone.
    #[error("someone else wrote there since it was read: it holds {0}")]
    Overtaken(Value),
    /// Systemd did not do it.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Systemd says that it did it, and the file holds another value.
    #[error(
        "systemd took {property}={written} for {unit}, and its {file} holds {found}: look with \
         `systemctl cat {unit}` for a drop-in that says otherwise, and whether the controller is enabled there"
    )]
    NotArrived {
        /// The unit.
        unit: String,
        /// The property.
        property: &'static str,
        /// What was asked for.
        written: String,
        /// The file.
        file: &'static str,
        /// What it holds.
        found: String,
    },
    /// The root holds processes of others.
    #[error(
        "{} holds processes of others, so its children cannot be given controllers: \
         start tenantd in a cgroup of its own (Delegate=yes), or name an empty one with --root", .0.display()
    )]
    RootInUse(PathBuf),
}

impl From<JournalError> for EnforceError {
    fn from(error: JournalError) -> Self {
        EnforceError::Journal { error }
    }
}

/// An error with its causes, in one line; a cause that it tells already is not told again.
pub(crate) fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        next = cause.source();
    }
    text
}

impl EnforceError {
    /// What the control loop is told of it. A file that is not there was found when the cgroup was opened.
    pub(crate) fn refusal(&self) -> Refusal {
        Refusal {
            message: (!self.is_gone()).then(|| self.to_string()),
            is_deferred: matches!(self, EnforceError::Deferred(_)),
            is_overtaken: matches!(self, EnforceError::Overtaken(_)),
        }
    }

    /// Whether the cgroup was gone.
    pub fn is_gone(&self) -> bool {
        match self {
            EnforceError::Kernel(error) => error.is_gone(),
            EnforceError::Read(error) => error.is_gone(),
            _ => false,
        }
    }
}

/// The kernel and the journal: whoever has both may change the host.
#[derive(Debug)]
pub struct Enforcer<'a, K> {
    /// The kernel.
    pub kernel: &'a mut K,
    /// What it takes to undo everything.
    pub journal: &'a mut Journal,
    /// Where the trees are.
    pub layout: &'a Layout,
    /// Whether any tenant is pinned to CPUs; cpusets are left alone otherwise.
    pub pins: bool,
    /// Whether a value that someone else wrote since it was read is left alone.
    pub leaves_drift: bool,
}

impl<K: KernFs> Enforcer<'_, K> {
    /// Makes the cgroup at `path` unless it is there; says whether it was made.
    ///
    /// # Errors
    /// The journal or the kernel refused.
    pub fn make(&mut self, path: &Path) -> Result<bool, EnforceError> {
        match self.kernel.open_dir(path) {
            Ok(dir) => {
                self.kernel.close_dir(dir);
                if self.journal.announces(path) {
                    // We could not make it, and somebody else has made it since.
                    self.journal.record(Entry::NotMade { path: path.to_path_buf() })?;
                }
                return Ok(false);
            }
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.into()),
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(false);
        };
        let parent = self.kernel.open_dir(parent)?;
        let outcome = self.make_in(parent, &name.to_string_lossy(), path);
        self.kernel.close_dir(parent);
        outcome
    }

    fn make_in(&mut self, parent: DirId, name: &str, path: &Path) -> Result<bool, EnforceError> {
        if !self.journal.announces(path) {
            self.journal.record(Entry::Making { path: path.to_path_buf() })?;
        }
        match self.kernel.make_dir(parent, name) {
            Ok(()) => {}
            // Someone else was faster: theirs, not ours to remove.
            Err(error) if error.errno == Errno::EEXIST => {
                self.journal.record(Entry::NotMade { path: path.to_path_buf() })?;
                return Ok(false);
            }
            Err(error) => return Err(error.into()),
        }
        match self.confirm(path) {
            Ok(()) => Ok(true),
            Err(error) => {
                // It must not fill with processes while nobody could tell later that it is ours. Where even
                // this fails, the announcement still lets a restore remove it while it is empty.
                let _ = self.kernel.remove_dir(parent, name);
                Err(error)
            }
        }
    }

    /// Records the inode number of the cgroup that was just made.
    fn confirm(&mut self, path: &Path) -> Result<(), EnforceError> {
        let dir = self.kernel.open_dir(path)?;
        let inode = self.kernel.inode(dir);
        self.kernel.close_dir(dir);
        Ok(self.journal.record(Entry::Made { path: path.to_path_buf(), inode: inode? })?)
    }

    /// Makes the node at `below` in every tree that tenants live in, parents and controllers included.
    ///
    /// # Errors
    /// As [`Enforcer::make`]; the first failure ends it.
    pub fn make_node(&mut self, below: &str) -> Result<(), EnforceError> {
        for tree in &self.layout.trees {
            if !self.uses(tree) {
                continue;
            }
            if self.layout.dialect == Dialect::Unified {
                let above = Path::new(below).parent().unwrap_or(Path::new(""));
                self.enable(&tree.root.join(above))?;
            }
            let path = tree.root.join(below);
            if self.make(&path)? && tree.facets.contains(&Facet::Cpuset) {
                // Whoever is claimed joins this tree at once; a cpuset tree of its own is joined later, and
                // what was refused now is tried again then.
                let filled = self.fill_legacy(tree, &path);
                if tree.is_for_all() {
                    filled?;
                }
            }
        }
        Ok(())
    }

    /// Makes the root of `tree` and what is missing above it; returns what was, the deepest first.
    ///
    /// # Errors
    /// As [`Enforcer::make`].
    pub fn make_missing(&mut self, tree: &Tree) -> Result<Vec<PathBuf>, EnforceError> {
        match self.uses(tree) {
            true => self.make_all(&tree.mount, &tree.root),
            false => Ok(Vec::new()),
        }
    }

    /// Makes the cgroup at `path` and what is missing above it below `mount`; returns what was missing, the
    /// deepest first.
    ///
    /// # Errors
    /// As [`Enforcer::make`].
    pub fn make_all(&mut self, mount: &Path, path: &Path) -> Result<Vec<PathBuf>, EnforceError> {
        let mut missing: Vec<PathBuf> = Vec::new();
        for up in path.ancestors().take_while(|up| up.starts_with(mount)) {
            match self.kernel.open_dir(up) {
                Ok(dir) => {
                    self.kernel.close_dir(dir);
                    break;
                }
                Err(error) if error.is_gone() => missing.push(up.to_path_buf()),
                Err(error) => return Err(error.into()),
            }
        }
        missing.iter().rev().try_for_each(|path| self.make(path).map(|_| ()))?;
        Ok(missing)
    }

    /// Gives the root of `tree` controllers, where those above it are ours to ask for them: below the agent's
    /// own cgroup all is delegated to it; elsewhere only what it made (`missing`) is.
    ///
    /// # Errors
    /// As [`Enforcer::enable`].
    pub fn enable_above(&mut self, tree: &Tree, missing: &[PathBuf]) -> Result<(), EnforceError> {
        if self.layout.dialect == Dialect::Legacy {
            return Ok(());
        }
        let above = tree.root.ancestors().skip(1);
        let ours =
            above.take_while(|up| up.starts_with(&tree.own) || missing.iter().any(|m| m == up));
        ours.collect::<Vec<_>>().into_iter().rev().try_for_each(|up| self.enable(up))
    }

    /// Whether tenants live in `tree`: a cpuset tree of its own is joined only where somebody is pinned.
    pub(crate) fn uses(&self, tree: &Tree) -> bool {
        self.pins || tree.is_for_all()
    }

    /// Gives the cgroup at `path` of the legacy cpuset tree its parent's CPUs and memory nodes where it has
    /// none, for no process may join it then; likewise what is above it below the root. What the agent made
    /// above it has all that its parent has, also after CPUs came back, which the kernel gives to nobody.
    ///
    /// # Errors
    /// The journal or the kernel refused.
    pub fn fill_legacy(&mut self, tree: &Tree, path: &Path) -> Result<(), EnforceError> {
        if self.layout.dialect != Dialect::Legacy {
            return Ok(());
        }
        let made = |up: &Path| {
            self.journal
                .entries()
                .iter()
                .any(|e| matches!(e, Entry::Made { path, .. } if path == up))
        };
        let ours: Vec<(&Path, bool)> = path
            .ancestors()
            .take_while(|up| *up != tree.mount && up.starts_with(&tree.mount))
            .map(|up| (up, up != path && made(up)))
            .take_while(|(up, made)| *made || up.starts_with(&tree.root))
            .collect();
        for (child, follows) in ours.into_iter().rev() {
            let Some(parent) = child.parent() else { continue };
            let parent = self.kernel.open_dir(parent)?;
            let child = self.kernel.open_dir(child);
            let outcome = child.as_ref().map_or(Ok(()), |child| self.give(parent, *child, follows));
            self.kernel.close_dir(parent);
            self.kernel.close_dir(child?);
            outcome?;
        }
        Ok(())
    }

    /// Gives `child` the lists of `parent`: where it has none, or also where it has others and `follows`.
    fn give(&mut self, parent: DirId, child: DirId, follows: bool) -> Result<(), EnforceError> {
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let list = |kernel: &mut K, dir| -> Result<String, KernError> {
                let text = kernel.read_once(dir, file)?.trim_ascii_end();
                Ok(String::from_utf8_lossy(text).into_owned())
            };
            let (has, above) = (list(self.kernel, child)?, list(self.kernel, parent)?);
            if has != above && !above.is_empty() && (has.is_empty() || follows) {
                self.record_held(child, file, &has)?;
                self.kernel.write(child, file, &above)?;
            }
        }
        Ok(())
    }

    /// Enables the cpu and memory controllers, and cpuset where it is needed, for the children of `path`, as
    /// far as they are available.
    ///
    /// # Errors
    /// The journal or the kernel refused; [`EnforceError::RootInUse`] where processes stand in the way.
    pub fn enable(&mut self, path: &Path) -> Result<(), EnforceError> {
        let dir = self.kernel.open_dir(path)?;
        let outcome = self.enable_in(dir, path);
        self.kernel.close_dir(dir);
        outcome
    }

    fn enable_in(&mut self, dir: DirId, path: &Path) -> Result<(), EnforceError> {
        self.vacate(dir, path)?;
        let words = |text: &[u8]| String::from_utf8_lossy(text).trim_end().to_string();
        let available = words(self.kernel.read_once(dir, "cgroup.controllers")?);
        let enabled = words(self.kernel.read_once(dir, SUBTREE_CONTROL)?);
        let has = |text: &str, name: &str| text.split(' ').any(|word| word == name);
        let wanted = ["cpu", "memory", "cpuset"];
        for controller in &wanted[..if self.pins { 3 } else { 2 }] {
            if has(&enabled, controller) || !has(&available, controller) {
                continue;
            }
            self.record_held(dir, SUBTREE_CONTROL, &enabled)?;
            match self.kernel.write(dir, SUBTREE_CONTROL, &format!("+{controller}")) {
                Err(error) if error.errno == Errno::EBUSY => {
                    return Err(EnforceError::RootInUse(path.to_path_buf()));
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Sees to it that no process lives in `dir` itself, unless it is the top of the hierarchy.
    ///
    /// The kernel refuses domain controllers (memory) to the children of a cgroup with processes, but not
    /// threaded ones (cpu, cpuset): those it enables, and then no process can join the children (kernel
    /// document `cgroup-v2.rst`, "Threads"). So this is not left to its answer.
    fn vacate(&mut self, dir: DirId, path: &Path) -> Result<(), EnforceError> {
        // Only the top has no type, and may hold processes beside children.
        if self.kernel.read_once(dir, "cgroup.type").is_err() {
            return Ok(());
        }
        if !self.kernel.read_once(dir, "cgroup.procs")?.is_empty() && self.is_own(path) {
            self.step_aside(path)?;
        }
        match self.kernel.read_once(dir, "cgroup.procs")?.is_empty() {
            true => Ok(()),
            false => Err(EnforceError::RootInUse(path.to_path_buf())),
        }
    }

    fn is_own(&self, path: &Path) -> bool {
        self.layout.trees.iter().any(|tree| tree.own == path)
    }

    /// Moves the agent itself out of `root`, into a child of it.
    fn step_aside(&mut self, root: &Path) -> Result<(), EnforceError> {
        let child = root.join(AGENT_CGROUP);
        self.make(&child)?;
        let child = self.kernel.open_dir(&child)?;
        // Number 0 is whoever writes.
        let moved = self.kernel.move_process(child, 0);
        self.kernel.close_dir(child);
        Ok(moved?)
    }

    /// Moves a claimed process into the tenant's cgroup, in every tree that it has.
    ///
    /// # Errors
    /// The journal or the kernel refused. A process that ended meanwhile is no error.
    pub fn claim(&mut self, claim: &Claim, cgroup: &Cgroup) -> Result<(), EnforceError> {
        let homes: Vec<(usize, DirId)> = cgroup.homes(self.layout).collect();
        self.journal.record(Entry::Moved {
            pid: claim.pid,
            start_ticks: claim.start_ticks,
            from: homes.iter().map(|(tree, _)| claim.from[*tree].clone()).collect(),
            to: homes.iter().map(|(_, dir)| self.kernel.dir_path(*dir)).collect(),
        })?;
        homes.into_iter().try_for_each(|(_, dir)| self.move_into(dir, claim.pid))
    }

    /// Moves a process from one directory into another of the same tree: one that its tenant joined later.
    ///
    /// # Errors
    /// As [`Enforcer::claim`].
    pub fn join(
        &mut self,
        pid: u32,
        start_ticks: u64,
        from: PathBuf,
        dir: DirId,
    ) -> Result<(), EnforceError> {
        let to = vec![self.kernel.dir_path(dir)];
        self.journal.record(Entry::Moved { pid, start_ticks, from: vec![from], to })?;
        self.move_into(dir, pid)
    }

    /// A process that ended meanwhile needs no moving.
    pub(crate) fn move_into(&mut self, dir: DirId, pid: u32) -> Result<(), EnforceError> {
        match self.kernel.move_process(dir, pid) {
            Err(error) if error.errno == Errno::ESRCH => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Writes one action's value, checks that the file holds it, and returns what it holds.
    ///
    /// # Errors
    /// See [`EnforceError`]; the file then holds what it held, or what the message says.
    pub fn apply(&mut self, action: &Action, cgroup: &Cgroup) -> Result<Value, EnforceError> {
        let dialect = self.layout.dialect;
        let dir = cgroup.knob_dir(self.layout, action.knob)?;
        if let Some(from) = action.from.as_ref().filter(|_| self.leaves_drift) {
            let now = cgroup.observe(self.kernel, self.layout, action.knob)?;
            if now != *from {
                return Err(EnforceError::Overtaken(now));
            }
        }
        if let (Knob::MemoryMax, Value::Memory(Limit::Finite(limit))) = (action.knob, &action.to) {
            self.check_limit_is_safe(dir, *limit)?;
        }
        for spelling in dialect.spell(action.knob, &action.to) {
            let held = self.kernel.read_once(dir, spelling.file)?.trim_ascii_end().to_vec();
            if held == spelling.text.as_bytes() {
                continue;
            }
            self.record_held(dir, spelling.file, &String::from_utf8_lossy(&held))?;
            if spelling.file == LEGACY_PERIOD {
                self.lift_quota(dir, dialect.file(Knob::CpuMax))?;
            }
            self.kernel.write(dir, spelling.file, &spelling.text)?;
        }
        let found = cgroup.observe(self.kernel, self.layout, action.knob)?;
        self.check_effective(action, cgroup)?;
        match taken(&found, &action.to) {
            true => Ok(found),
            false => Err(EnforceError::NotTaken {
                path: self
                    .kernel
                    .dir_path(dir)
                    .join(dialect.file(action.knob))
                    .display()
                    .to_string(),
                written: action.to.to_string(),
                found: found.to_string(),
            }),
        }
    }

    /// Lifts a legacy quota for the moment in which its period changes: the old one with the new period, or the new
    /// one with the old, may be more than a parent or less than a child allows, which the kernel refuses.
    fn lift_quota(&mut self, dir: DirId, file: &'static str) -> Result<(), EnforceError> {
        let held = self.kernel.read_once(dir, file)?.trim_ascii_end().to_vec();
        if held != LEGACY_NO_QUOTA.as_bytes() {
            self.record_held(dir, file, &String::from_utf8_lossy(&held))?;
            self.kernel.write(dir, file, LEGACY_NO_QUOTA)?;
        }
        Ok(())
    }

    /// A set of CPUs that the kernel took may still be cut down to what the cgroups above allow.
    pub(crate) fn check_effective(
        &mut self,
        action: &Action,
        cgroup: &Cgroup,
    ) -> Result<(), EnforceError> {
        let Value::CpuList(wanted) = &action.to else { return Ok(()) };
        let dir = cgroup.knob_dir(self.layout, Knob::Cpus)?;
        let file = self.layout.dialect.effective_cpus();
        let found = self.kernel.read_once(dir, file)?.trim_ascii_end();
        let found = String::from_utf8_lossy(found).into_owned();
        match found.parse::<CpuSet>().is_ok_and(|effective| effective == *wanted) {
            true => Ok(()),
            false => Err(EnforceError::NotTaken {
                path: self.kernel.dir_path(dir).join(file).display().to_string(),
                written: wanted.to_string(),
                found,
            }),
        }
    }

    /// A limit below what cannot be reclaimed does not shrink a tenant, it kills it (on v1 it is refused).
    ///
    /// Looked at anew for each write: a sample may be an interval old, and groups are not sampled at all.
    pub(crate) fn check_limit_is_safe(
        &mut self,
        dir: DirId,
        limit: Bytes,
    ) -> Result<(), EnforceError> {
        let memory = cgroup::memory_sample(self.kernel, dir, self.layout.dialect)?;
        match memory.fits(limit.0) {
            true => Ok(()),
            false => Err(EnforceError::Deferred(format!(
                "memory limit {limit} not set yet: {} cannot be reclaimed, and the kernel would kill \
                 for it; end some of its processes, or raise the limit",
                Bytes(memory.unreclaimable_bytes()).rounded()
            ))),
        }
    }

    fn record_held(&mut self, dir: DirId, file: &str, value: &str) -> Result<(), EnforceError> {
        let path = self.kernel.dir_path(dir);
        let inode = self.kernel.inode(dir)?;
        if self.journal.knows(&path, inode, file) {
            return Ok(());
        }
        let entry = Entry::Held { path, inode, file: file.into(), value: value.into() };
        Ok(self.journal.record(entry)?)
    }

    /// Drops records of processes that have ended, so that the journal does not grow with every login.
    ///
    /// # Errors
    /// The journal could not be rewritten; it is then as it was.
    pub fn forget_ended(&mut self, proc: DirId) -> Result<(), EnforceError> {
        let kernel = &mut *self.kernel;
        let mut alive = |pid: u32, start: u64| match process::birth(kernel, proc, pid) {
            Ok(birth) => birth.is_some_and(|birth| birth.start_ticks == start),
            // Forgetting one that lives would leave it where it is.
            Err(_) => true,
        };
        let ended: HashSet<(u32, u64)> = self
            .journal
            .entries()
            .iter()
            .filter_map(|entry| match entry {
                Entry::Moved { pid, start_ticks, .. } => Some((*pid, *start_ticks)),
                _ => None,
            })
            .filter(|(pid, start)| !alive(*pid, *start))
            .collect();
        if ended.is_empty() {
            return Ok(());
        }
        Ok(self.journal.retain(|entry| match entry {
            Entry::Moved { pid, start_ticks, .. } => !ended.contains(&(*pid, *start_ticks)),
            _ => true,
        })?)
    }
}

/// The set of CPUs that `file` in `dir` lists; `None` where it lists none that can be understood.
pub(crate) fn cpus_of(
    kernel: &mut impl KernFs,
    dir: DirId,
    file: &str,
) -> Result<Option<CpuSet>, KernError> {
    let text = kernel.read_once(dir, file)?;
    Ok(std::str::from_utf8(text).ok().and_then(|text| text.trim_end().parse().ok()))
}

/// Whether a file that was told `written` and holds `found` took it: weights and pages are rounded.
pub(crate) fn taken(found: &Value, written: &Value) -> bool {
    match (found, written) {
        (Value::Weight(found), Value::Weight(written)) => {
            // A whole unit of cpu.weight, or of cpu.shares, whichever is coarser at this size.
            (found - written.clamp(1.0, 10_000.0)).abs() <= 1.0
        }
        (Value::Memory(Limit::Finite(found)), Value::Memory(Limit::Finite(written))) => {
            found.0.abs_diff(written.0) < 4096
        }
        (Value::Cpus(Limit::Finite(found)), Value::Cpus(Limit::Finite(written))) => {
            // The kernel takes no quota below a hundredth of a CPU.
            found.0.abs_diff(written.0.max(10)) <= 1
        }
        (found, written) => found == written,
    }
}
