//! One small file per tenant with its width, for programs to read and watch.
//!
//! `DIR/NAME/dop` contains the degree of parallelism as a number and a newline (`ci/nightly` is in
//! `DIR/ci/nightly/dop`). It is replaced by renaming, so a reader sees the old or the new number, and a watcher
//! gets one event for each change. It exists while an agent enforces; files of a killed agent are removed with
//! its other leftovers. A program that can resize at run time watches the directory for IN_MOVED_TO
//! (inotify(7)) and reads the file again.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tracing::warn;

/// Name of the file.
pub const FILE: &str = "dop";

pub(super) fn dop_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("tenants")
}

/// Writes the tenants' files, each only when its number changes.
#[derive(Debug)]
pub struct DopFiles {
    dir: PathBuf,
    told: HashMap<String, u32>,
}

/// Removes the files of an earlier agent below `dir`: it no longer manages any tenant.
pub(crate) fn remove_all(dir: &Path) {
    if let Err(error) = DopFiles::new(dir.to_path_buf()).remove() {
        warn!("cannot remove the published DOP files: {}: {error}", dir.display());
    }
}

impl DopFiles {
    /// Writes below `dir`, which is created when needed.
    pub fn new(dir: PathBuf) -> DopFiles {
        DopFiles { dir, told: HashMap::new() }
    }

    /// True if the file of `tenant` contains this width.
    pub fn holds(&self, tenant: &str, dop: u32) -> bool {
        self.told.get(tenant) == Some(&dop)
    }

    /// Writes the width of `tenant` (a path of names). On an error it has the old number.
    pub fn tell(&mut self, tenant: &str, dop: u32) -> io::Result<()> {
        if self.holds(tenant, dop) {
            return Ok(());
        }
        let dir = self.dir.join(tenant);
        self.make_readable(&dir)?;
        let fresh = dir.join(".dop.new");
        fs::write(&fresh, format!("{dop}\n"))?;
        // The users of the tenant must be able to read it, whatever the umask of the service.
        fs::set_permissions(&fresh, Permissions::from_mode(0o644))?;
        fs::rename(&fresh, dir.join(FILE))?;
        self.told.insert(tenant.to_string(), dop);
        Ok(())
    }

    /// Creates `dir`, and makes new directories below the agent's own readable by all users.
    fn make_readable(&self, dir: &Path) -> io::Result<()> {
        let is_ours = |up: &&Path| up.starts_with(&self.dir) && !up.exists();
        let missing: Vec<&Path> = dir.ancestors().take_while(is_ours).collect();
        fs::create_dir_all(dir)?;
        let readable = |ours: &&Path| fs::set_permissions(ours, Permissions::from_mode(0o755));
        missing.iter().try_for_each(readable)
    }

    /// Removes the file of `tenant`.
    pub fn forget(&mut self, tenant: &str) -> io::Result<()> {
        if self.told.remove(tenant).is_none() {
            return Ok(());
        }
        let dir = self.dir.join(tenant);
        match fs::remove_file(dir.join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // The directories above it may belong to other tenants.
        for up in dir.ancestors().take_while(|up| *up != self.dir) {
            if fs::remove_dir(up).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Removes all written files.
    pub fn remove(&mut self) -> io::Result<()> {
        self.told.clear();
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_replaced_whole_and_readable_by_all() {
        let state = tempfile::tempdir().unwrap();
        let mut files = DopFiles::new(state.path().join("tenants"));
        files.tell("ci/nightly", 3).unwrap();
        let file = state.path().join("tenants/ci/nightly/dop");
        assert_eq!(fs::read_to_string(&file).unwrap(), "3\n");
        files.tell("ci/nightly", 4).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "4\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o644);
        assert_eq!(mode(&state.path().join("tenants/ci")), 0o755);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
        files.remove().unwrap();
        assert!(!state.path().join("tenants").exists());
    }

    #[test]
    fn what_did_not_change_is_not_written_again() {
        let state = tempfile::tempdir().unwrap();
        let mut files = DopFiles::new(state.path().join("tenants"));
        files.tell("web", 2).unwrap();
        let file = state.path().join("tenants/web/dop");
        fs::remove_file(&file).unwrap();
        files.tell("web", 2).unwrap();
        assert!(!file.exists());
    }
}
