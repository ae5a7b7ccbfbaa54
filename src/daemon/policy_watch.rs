//! Noticing that the policy on disk changed.
//!
//! An editor writes a new file and renames it over the old one, a package manager replaces several; so the
//! directory is watched, never the file, and what is told is only that something there may be new. Events come
//! in bursts: whoever takes up the policy waits until there were none for [`STILL`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// How long nothing must happen before the policy is read.
pub(super) const STILL: Duration = Duration::from_millis(200);

/// A watch of the directory that a policy is in, or is.
#[derive(Debug)]
pub(super) struct PolicyWatch {
    inotify: Inotify,
    /// The one file that matters; `None` where all `*.yaml` files do.
    name: Option<std::ffi::OsString>,
}

impl PolicyWatch {
    /// Watches the policy at `path`.
    ///
    /// # Errors
    /// The directory is not there, or the system has no watches left.
    pub(super) fn new(path: &Path) -> io::Result<PolicyWatch> {
        let (dir, name) = match path.is_dir() {
            true => (path.to_path_buf(), None),
            false => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let dir = parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
                (dir, path.file_name().map(ToOwned::to_owned))
            }
        };
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let changes = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        inotify.add_watch(&dir, changes)?;
        Ok(PolicyWatch { inotify, name })
    }

    /// Reads what happened; says whether any of it concerns the policy.
    ///
    /// # Errors
    /// The system refused.
    pub(super) fn concerns_policy(&self) -> io::Result<bool> {
        let mut concerns = false;
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(concerns),
                Err(errno) => return Err(errno.into()),
            };
            // An event without a name is about the queue or the directory itself: better look.
            concerns |= events.iter().any(|event| match (&event.name, &self.name) {
                (None, _) => true,
                (Some(found), Some(name)) => found == name,
                (Some(found), None) => {
                    let found = found.to_string_lossy();
                    found.ends_with(".yaml") && !found.starts_with('.')
                }
            });
        }
    }
}

impl AsFd for PolicyWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_renamed_over_the_policy_is_seen_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.yaml");
        fs::write(&path, "").unwrap();
        let watch = PolicyWatch::new(&path).unwrap();
        assert!(!watch.concerns_policy().unwrap());
        let fresh = dir.path().join(".policy.yaml.swp");
        fs::write(&fresh, "version: 1").unwrap();
        assert!(!watch.concerns_policy().unwrap());
        fs::rename(&fresh, &path).unwrap();
        assert!(watch.concerns_policy().unwrap());
        // The new file is watched as the old one was.
        fs::write(&path, "version: 2").unwrap();
        assert!(watch.concerns_policy().unwrap());
        assert!(!watch.concerns_policy().unwrap());
    }

    #[test]
    fn of_a_directory_its_policy_files_matter() {
        let dir = tempfile::tempdir().unwrap();
        let watch = PolicyWatch::new(dir.path()).unwrap();
        fs::write(dir.path().join("notes.txt"), "").unwrap();
        fs::write(dir.path().join(".hidden.yaml"), "").unwrap();
        assert!(!watch.concerns_policy().unwrap());
        fs::write(dir.path().join("10-web.yaml"), "").unwrap();
        assert!(watch.concerns_policy().unwrap());
        fs::remove_file(dir.path().join("10-web.yaml")).unwrap();
        assert!(watch.concerns_policy().unwrap());
    }
}
