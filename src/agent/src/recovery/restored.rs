//! The result of a restore: what was restored, what was not, and what is therefore still owed.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::residents::Resident;
use tenantd_host::cgroup::ReadError;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::KernError;

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files that have their old values again.
    pub nr_files: usize,
    /// Processes that were moved back.
    pub nr_processes: usize,
    /// Cgroups that were removed.
    pub nr_cgroups: usize,
    /// Displaced processes: those that lost their cgroup and were moved above it.
    pub displaced: Vec<Resident>,
    /// Quotas that have another value than before the agent, because others have bounded them since: what is said of each.
    pub fitted: Vec<String>,
    /// Cgroups that stay until processes have ended that are in cgroups which the tenant made below them.
    pub left: Vec<PathBuf>,
    /// Whether systemd has units in its memory with drop-ins that are not there any more.
    pub is_stale: bool,
    /// What could not be restored, each with its file and reason.
    pub failures: Vec<String>,
    /// The entries of the journal that are still to be restored.
    pub owed: Vec<Entry>,
}

/// Why something was not restored.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotBack {
    #[error(transparent)]
    Kernel(#[from] KernError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(
        "{path} not put back to {limit} yet: {needed} cannot be reclaimed, and the kernel would kill for it; \
         end some of its processes, then run tenantd --restore"
    )]
    WouldKill { path: String, limit: String, needed: String },
}

impl NotBack {
    /// Whether the kernel says that it is a list of CPUs which are not all there.
    pub(super) fn is_about_cpus(&self) -> bool {
        let errnos = [Errno::EINVAL, Errno::EACCES];
        matches!(self, NotBack::Kernel(error) if errnos.contains(&error.errno))
    }

    /// Whether the kernel says that others' values do not allow it.
    pub(super) fn is_invalid(&self) -> bool {
        matches!(self, NotBack::Kernel(error) if error.errno == Errno::EINVAL)
    }

    pub(super) fn is_gone(&self) -> bool {
        match self {
            NotBack::Kernel(error) => error.is_gone(),
            NotBack::Read(error) => error.is_gone(),
            NotBack::WouldKill { .. } => false,
        }
    }
}

impl Restored {
    /// Counts a success. What is gone is a success too, but is not counted. Otherwise `entries` are owed.
    pub(crate) fn note<'a, E: Into<NotBack>>(
        &mut self,
        outcome: Result<(), E>,
        entries: impl IntoIterator<Item = &'a Entry>,
        count: impl FnOnce(&mut Restored),
    ) {
        match outcome.map_err(Into::into) {
            Ok(()) => count(self),
            Err(error) if error.is_gone() => {}
            Err(error) => {
                self.failures.push(error.to_string());
                entries.into_iter().for_each(|entry| self.owe(entry));
            }
        }
    }

    /// What is said of the cgroups that stay, where any does.
    pub fn left_message(&self) -> Option<String> {
        let paths: Vec<String> = self.left.iter().map(|path| path.display().to_string()).collect();
        (!paths.is_empty()).then(|| {
            format!(
                "left in place, without values of tenantd, because processes are in cgroups that were made \
                 inside: {}; once these have ended, the next start or `tenantd --restore` removes it",
                paths.join(", ")
            )
        })
    }

    /// What is said of all that is not as it was, and is no failure.
    pub fn remarks(&self) -> Vec<String> {
        self.fitted.iter().cloned().chain(self.left_message()).collect()
    }

    /// Notes that the cgroup at `path` stays; `entries` are owed. One that stays because of a cgroup below
    /// that stays too is not named.
    pub(super) fn leave<'a>(&mut self, path: &Path, entries: impl Iterator<Item = &'a Entry>) {
        if !self.left.iter().any(|left| left.starts_with(path)) {
            self.left.push(path.to_path_buf());
        }
        entries.for_each(|entry| self.owe(entry));
    }

    pub(crate) fn fail(&mut self, failure: String, entry: &Entry) {
        self.failures.push(failure);
        self.owe(entry);
    }

    pub(crate) fn owe(&mut self, entry: &Entry) {
        if !self.owed.contains(entry) {
            self.owed.push(entry.clone());
        }
    }

    /// Whether `entry` is still to be restored. Files of the agent's own cgroups are removed with them.
    pub(crate) fn owes(&self, entry: &Entry) -> bool {
        let is_inside = |path: &Path| {
            let mut owed = self.owed.iter();
            owed.any(|owed| matches!(owed, Entry::Made { path: made, .. } if made == path))
        };
        let is_held = match entry {
            Entry::Held { path, .. } | Entry::Theirs { path, .. } => is_inside(path),
            _ => false,
        };
        is_held || self.owed.contains(entry)
    }
}
