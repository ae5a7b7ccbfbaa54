//! Result of a restore: restored, failed and owed values.

use std::path::{Path, PathBuf};

use nix::errno::Errno;

use super::residents::Resident;
use tenantd_host::cgroup::ReadError;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::KernError;

/// The result of a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files with restored values.
    pub nr_files: usize,
    /// Processes that were moved back.
    pub nr_processes: usize,
    /// Cgroups that were removed.
    pub nr_cgroups: usize,
    /// Displaced processes: those that lost their cgroup and were moved above it.
    pub displaced: Vec<Resident>,
    /// Messages on quotas that differ from the old ones, because others have bounded them since.
    pub fitted: Vec<String>,
    /// Messages on disks that are gone, with settings that were not restored.
    pub gone: Vec<String>,
    /// Cgroups that stay until the processes in cgroups that the tenant made below have ended.
    pub left: Vec<PathBuf>,
    /// True if systemd has loaded units with drop-ins that were removed.
    pub is_stale: bool,
    /// Failures, each with its file and reason.
    pub failures: Vec<String>,
    /// Entries of the journal that are still to be restored.
    pub owed: Vec<Entry>,
}

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
    /// True if the kernel refused a list of CPUs that are not all there.
    pub(super) fn is_about_cpus(&self) -> bool {
        let errnos = [Errno::EINVAL, Errno::EACCES];
        matches!(self, NotBack::Kernel(error) if errnos.contains(&error.errno))
    }

    /// True if values of other cgroups do not allow it.
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
    /// Counts a success. A missing file is a success too, but is not counted. Otherwise `entries` are owed.
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

    /// Message on the cgroups that stay, if any.
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

    /// Messages on all differences that are not failures.
    pub fn remarks(&self) -> Vec<String> {
        self.fitted.iter().chain(&self.gone).cloned().chain(self.left_message()).collect()
    }

    /// Records that the cgroup at `path` stays; `entries` are owed. A cgroup that stays because of one below is
    /// not named.
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

    /// True if `entry` is still to be restored. Files of the agent's own cgroups are removed with them.
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
