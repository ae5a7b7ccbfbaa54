//! Everything that changes the host: made, enabled, moved, written. The journal comes first, always.
//!
//! Each function here records what it is about to do, does it, and checks that it was done. A record that
//! fails stops the act, so that nothing is ever changed that could not be put back.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::control::plan::{Action, Knob, Value};
use crate::control::sample::MemorySample;
use crate::dop::CpuSet;
use crate::host::cgroup::{Cgroup, Dialect, Facet, Layout, ReadError, Tree};
use crate::host::journal::{Entry, Journal, JournalError};
use crate::host::kernfs::{DirId, KernError, KernFs};
use crate::host::process::{self, Claim};
use crate::units::{Bytes, Limit};

/// The child that the agent moves itself into where its own cgroup is the root: a unified cgroup with
/// controllers for its children must not hold processes itself.
pub const AGENT_CGROUP: &str = "tenantd.agent";

/// Kept between what cannot be reclaimed and a limit that is set: page tables, stacks and sockets in flight.
const LIMIT_MARGIN: Bytes = Bytes::mib(16);

const SUBTREE_CONTROL: &str = "cgroup.subtree_control";

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
    #[error(
        "nothing was written, because it could not be recorded first: {error}: {}",
        source_text(error)
    )]
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

fn source_text(error: &JournalError) -> String {
    std::error::Error::source(error).map(ToString::to_string).unwrap_or_default()
}

impl EnforceError {
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
        let path = path.to_path_buf();
        self.journal.record(Entry::Made { path: path.clone(), inode: None })?;
        match self.kernel.make_dir(parent, name) {
            Ok(()) => {}
            // Someone else was faster: theirs, not ours to remove.
            Err(error) if error.errno == Errno::EEXIST => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        let dir = self.kernel.open_dir(&path)?;
        let inode = self.kernel.inode(dir);
        self.kernel.close_dir(dir);
        self.journal.record(Entry::Made { path, inode: Some(inode?) })?;
        Ok(true)
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
            self.make_usable(tree, &tree.root.join(below))?;
        }
        Ok(())
    }

    /// Makes the root of `tree`, and what is missing above it.
    ///
    /// # Errors
    /// As [`Enforcer::make`].
    pub fn make_missing(&mut self, tree: &Tree) -> Result<(), EnforceError> {
        if !self.uses(tree) {
            return Ok(());
        }
        let mut missing: Vec<&Path> = Vec::new();
        for up in tree.root.ancestors().take_while(|up| up.starts_with(&tree.mount)) {
            match self.kernel.open_dir(up) {
                Ok(dir) => {
                    self.kernel.close_dir(dir);
                    break;
                }
                Err(error) if error.is_gone() => missing.push(up),
                Err(error) => return Err(error.into()),
            }
        }
        missing.into_iter().rev().try_for_each(|path| self.make_usable(tree, path))
    }

    /// Whether tenants live in `tree`: a cpuset tree of its own is joined only where somebody is pinned.
    fn uses(&self, tree: &Tree) -> bool {
        self.pins || tree.facets != [Facet::Cpuset]
    }

    /// Makes a cgroup; one of the legacy cpuset tree is given its parent's CPUs and memory nodes, without
    /// which no process may join it.
    fn make_usable(&mut self, tree: &Tree, path: &Path) -> Result<(), EnforceError> {
        let made = self.make(path)?;
        let needs_cpus =
            self.layout.dialect == Dialect::Legacy && tree.facets.contains(&Facet::Cpuset);
        let Some(parent) = path.parent().filter(|_| made && needs_cpus) else { return Ok(()) };
        let parent = self.kernel.open_dir(parent)?;
        let child = self.kernel.open_dir(path)?;
        let given = ["cpuset.cpus", "cpuset.mems"].into_iter().try_for_each(|file| {
            let list = self.kernel.read_once(parent, file)?.trim_ascii_end().to_vec();
            // Not recorded: the cgroup is ours, and goes as a whole.
            self.kernel.write(child, file, &String::from_utf8_lossy(&list))
        });
        self.kernel.close_dir(parent);
        self.kernel.close_dir(child);
        Ok(given?)
    }

    /// Enables the cpu and memory controllers, and cpuset where it is needed, for the children of `path`, as far as they are available.
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
            let write = format!("+{controller}");
            match self.kernel.write(dir, SUBTREE_CONTROL, &write) {
                Err(error) if error.errno == Errno::EBUSY && self.is_own(path) => {
                    self.step_aside(path)?;
                    self.kernel
                        .write(dir, SUBTREE_CONTROL, &write)
                        .map_err(|_| EnforceError::RootInUse(path.to_path_buf()))?;
                }
                Err(error) if error.errno == Errno::EBUSY => {
                    return Err(EnforceError::RootInUse(path.to_path_buf()));
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    fn is_own(&self, path: &Path) -> bool {
        self.layout.trees.iter().any(|tree| tree.own == path)
    }

    /// Moves the agent itself out of `root`, into a child of it.
    fn step_aside(&mut self, root: &Path) -> Result<(), EnforceError> {
        let child = root.join(AGENT_CGROUP);
        self.make(&child)?;
        let child = self.kernel.open_dir(&child)?;
        let moved = self.kernel.move_process(child, std::process::id());
        self.kernel.close_dir(child);
        Ok(moved?)
    }

    /// Moves a claimed process into the tenant's cgroup, in every tree that it has.
    ///
    /// # Errors
    /// The journal or the kernel refused. A process that ended meanwhile is no error.
    pub fn claim(&mut self, claim: &Claim, cgroup: &Cgroup) -> Result<(), EnforceError> {
        self.record_moved(claim)?;
        cgroup.dirs().try_for_each(|dir| self.move_into(dir, claim.pid))
    }

    /// Moves a process into one directory more: a tree that its tenant joined later.
    ///
    /// # Errors
    /// As [`Enforcer::claim`].
    pub fn join(&mut self, claim: &Claim, dir: DirId) -> Result<(), EnforceError> {
        self.record_moved(claim)?;
        self.move_into(dir, claim.pid)
    }

    fn record_moved(&mut self, claim: &Claim) -> Result<(), EnforceError> {
        Ok(self.journal.record(Entry::Moved {
            pid: claim.pid,
            start_ticks: claim.start_ticks,
            from: claim.from.clone(),
        })?)
    }

    /// A process that ended meanwhile needs no moving.
    fn move_into(&mut self, dir: DirId, pid: u32) -> Result<(), EnforceError> {
        match self.kernel.move_process(dir, pid) {
            Err(error) if error.errno == Errno::ESRCH => Ok(()),
            outcome => Ok(outcome?),
        }
    }

    /// Writes one action's value, checks that the file holds it, and returns what it holds.
    ///
    /// # Errors
    /// See [`EnforceError`]; the file then holds what it held, or what the message says.
    pub fn apply(
        &mut self,
        action: &Action,
        cgroup: &Cgroup,
        memory: Option<&MemorySample>,
    ) -> Result<Value, EnforceError> {
        if action.knob == Knob::MemoryMax {
            check_limit_is_safe(action, memory)?;
        }
        let dialect = self.layout.dialect;
        let dir = cgroup.knob_dir(self.layout, action.knob)?;
        for spelling in dialect.spell(action.knob, &action.to) {
            let held = self.kernel.read_once(dir, spelling.file)?.trim_ascii_end().to_vec();
            if held == spelling.text.as_bytes() {
                continue;
            }
            self.record_held(dir, spelling.file, &String::from_utf8_lossy(&held))?;
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

    /// A set of CPUs that the kernel took may still be cut down to what the cgroups above allow.
    fn check_effective(&mut self, action: &Action, cgroup: &Cgroup) -> Result<(), EnforceError> {
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

    fn record_held(&mut self, dir: DirId, file: &str, value: &str) -> Result<(), EnforceError> {
        let path = self.kernel.dir_path(dir);
        let inode = self.kernel.inode(dir)?;
        if self.journal.knows(&path, inode, file) {
            return Ok(());
        }
        let entry = Entry::Held { path, inode, file: file.to_string(), value: value.to_string() };
        Ok(self.journal.record(entry)?)
    }

    /// Drops records of processes that have ended, so that the journal does not grow with every login.
    ///
    /// # Errors
    /// The journal could not be rewritten; it is then as it was.
    pub fn forget_ended(&mut self, proc: DirId) -> Result<(), EnforceError> {
        let kernel = &mut *self.kernel;
        let mut alive =
            |pid: u32, start: u64| process::start_ticks(kernel, proc, pid) == Some(start);
        let ended: Vec<(u32, u64)> = self
            .journal
            .entries()
            .iter()
            .filter_map(|entry| match entry {
                Entry::Moved { pid, start_ticks, .. } => Some((*pid, *start_ticks)),
                _ => None,
            })
            .filter(|(pid, start)| !alive(*pid, *start))
            .collect();
        Ok(self.journal.retain(|entry| match entry {
            Entry::Moved { pid, start_ticks, .. } => !ended.contains(&(*pid, *start_ticks)),
            _ => true,
        })?)
    }
}

/// Whether a file that was told `written` and holds `found` took it: weights and pages are rounded.
fn taken(found: &Value, written: &Value) -> bool {
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

/// A limit below what cannot be reclaimed does not shrink a tenant, it kills it (on v1 it is refused).
fn check_limit_is_safe(action: &Action, memory: Option<&MemorySample>) -> Result<(), EnforceError> {
    let (Value::Memory(Limit::Finite(limit)), Some(memory)) = (&action.to, memory) else {
        return Ok(());
    };
    let needed = memory.unreclaimable_bytes().saturating_add(LIMIT_MARGIN.0);
    if memory.current_bytes <= limit.0 || needed <= limit.0 {
        return Ok(());
    }
    Err(EnforceError::Deferred(format!(
        "memory limit {limit} not set yet: {} cannot be reclaimed, and the kernel would kill for it; \
         end some of its processes, or raise the limit",
        Bytes(memory.unreclaimable_bytes()).rounded()
    )))
}
