//! Everything that changes the host: made, enabled, moved, written. The journal comes first, always.
//!
//! Each function here records what it is about to do, does it, and checks that it was done. A record that
//! fails stops the act, so that nothing is ever changed that could not be put back.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use crate::control::plan::{Action, Knob, Value};
use crate::host::cgroup::{self, Cgroup, Dialect, Layout, ReadError};
use crate::host::journal::{Entry, Journal, JournalError};
use crate::host::kernfs::{DirId, KernError, KernFs};
use crate::host::process::{self, Claim};
use crate::units::{Bytes, Limit};

/// The child that the agent moves itself into where its own cgroup is the root: a unified cgroup with
/// controllers for its children must not hold processes itself.
pub const AGENT_CGROUP: &str = "tenantd.agent";

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
        for tree in self.layout.trees.iter().filter(|tree| tree.is_for_all()) {
            if self.layout.dialect == Dialect::Unified {
                let above = Path::new(below).parent().unwrap_or(Path::new(""));
                self.enable(&tree.root.join(above))?;
            }
            self.make(&tree.root.join(below))?;
        }
        Ok(())
    }

    /// Enables the cpu and memory controllers for the children of `path`, as far as they are available.
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
        for controller in ["cpu", "memory"] {
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
        for (_, dir) in homes {
            match self.kernel.move_process(dir, claim.pid) {
                Err(error) if error.errno == Errno::ESRCH => return Ok(()),
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Writes one action's value, checks that the file holds it, and returns what it holds.
    ///
    /// # Errors
    /// See [`EnforceError`]; the file then holds what it held, or what the message says.
    pub fn apply(&mut self, action: &Action, cgroup: &Cgroup) -> Result<Value, EnforceError> {
        let dialect = self.layout.dialect;
        let dir = cgroup.knob_dir(self.layout, action.knob)?;
        if let (Knob::MemoryMax, Value::Memory(Limit::Finite(limit))) = (action.knob, action.to) {
            self.check_limit_is_safe(dir, limit)?;
        }
        for spelling in dialect.spell(action.knob, action.to) {
            let held = self.kernel.read_once(dir, spelling.file)?.trim_ascii_end().to_vec();
            if held == spelling.text.as_bytes() {
                continue;
            }
            self.record_held(dir, spelling.file, &String::from_utf8_lossy(&held))?;
            self.kernel.write(dir, spelling.file, &spelling.text)?;
        }
        let found = cgroup.observe(self.kernel, self.layout, action.knob)?;
        match taken(found, action.to) {
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

    /// A limit below what cannot be reclaimed does not shrink a tenant, it kills it (on v1 it is refused).
    ///
    /// Looked at anew for each write: a sample may be an interval old, and groups are not sampled at all.
    fn check_limit_is_safe(&mut self, dir: DirId, limit: Bytes) -> Result<(), EnforceError> {
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
fn taken(found: Value, written: Value) -> bool {
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
