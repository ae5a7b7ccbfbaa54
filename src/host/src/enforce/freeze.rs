//! Freezing all processes of a cgroup for a while, and thawing them.
//!
//! The journal has the record to thaw them before they are frozen. A stop, the start after a kill and a restore
//! thaw frozen cgroups, in the same way as they restore other values.

use std::path::Path;

use super::enforcer::Enforcer;
use super::error::EnforceError;
use crate::journal::{Entry, JournalError};
use crate::kernfs::{DirId, KernFs};

/// A cgroup v2 file: on a hybrid host it is in the tree that accounts pressure.
const FREEZE: &str = "cgroup.freeze";
const THAWED: &str = "0";
const FROZEN: &str = "1";

impl<K: KernFs> Enforcer<'_, K> {
    /// Freezes the processes of the cgroup `dir`. Returns false if it was frozen before; it is then not thawed
    /// later. Fails if the kernel has no such file.
    pub fn freeze(&mut self, dir: DirId) -> Result<bool, EnforceError> {
        if self.kernel.read_once(dir, FREEZE)?.trim_ascii() != THAWED.as_bytes() {
            return Ok(false);
        }
        self.record_held(dir, FREEZE, THAWED)?;
        self.kernel.write(dir, FREEZE, FROZEN)?;
        Ok(true)
    }

    /// Thaws the processes of the cgroup `dir` that the agent froze. On an error the record stays: thawing
    /// again is harmless.
    pub fn thaw(&mut self, dir: DirId) -> Result<(), EnforceError> {
        let path = self.kernel.dir_path(dir);
        self.kernel.write(dir, FREEZE, THAWED)?;
        Ok(self.forget_frozen(&path)?)
    }

    /// Drops the record of a frozen cgroup at `path`, which is thawed or gone.
    pub fn forget_frozen(&mut self, path: &Path) -> Result<(), JournalError> {
        self.journal.retain(|entry| match entry {
            Entry::Held { path: held, file, .. } => held != path || **file != *FREEZE,
            _ => true,
        })
    }
}
