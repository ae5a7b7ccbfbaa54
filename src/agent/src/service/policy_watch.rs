//! Detecting changes of the policy on disk.
//!
//! An editor writes a new file and renames it over the old one; a package manager replaces several files. So
//! the watch is on the directory, never on the file, and an event only means that something may have changed.
//! Events come in bursts: the policy is read after [`STILL`] without events.
//!
//! The kernel watches a directory and not its name: a renamed directory takes the watch along, and a new one of
//! the same name is not watched. So moving or removing the directory is an event as well. The watch is renewed
//! right before the policy is read, for the directory with that name then. While there is none, the parent
//! directory is watched.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};

use tenantd_policy::is_policy_file;

/// Time without events before the policy is read.
pub(super) const STILL: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct PolicyWatch {
    inotify: Inotify,
    path: PathBuf,
    watched: Option<Watched>,
}

#[derive(Debug)]
struct Watched {
    descriptor: WatchDescriptor,
    matters: Matter,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Matter {
    Name(OsString),
    PolicyFiles,
}

impl PolicyWatch {
    /// Watches the policy at `path`. Fails if neither its directory nor the parent exists.
    pub(super) fn new(path: &Path) -> io::Result<PolicyWatch> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
        let mut watch = PolicyWatch { inotify, path: path.to_path_buf(), watched: None };
        watch.renew()?;
        Ok(watch)
    }

    /// Watches the file or directory that has the policy's name now. On an error nothing is watched.
    pub(super) fn renew(&mut self) -> io::Result<()> {
        let (dir, matters) = if self.path.is_dir() {
            (self.path.clone(), Matter::PolicyFiles)
        } else {
            named(&self.path)
        };
        let found = match self.add(&dir) {
            // If a directory is missing, its creation matters.
            Err(Errno::ENOENT) => {
                let (above, matters) = named(&dir);
                self.add(&above).map(|descriptor| Watched { descriptor, matters })
            }
            found => found.map(|descriptor| Watched { descriptor, matters }),
        };
        let before = self.watched.take();
        let (watched, outcome) = match found {
            Ok(watched) => (Some(watched), Ok(())),
            Err(errno) => (None, Err(errno.into())),
        };
        let descriptor = |watched: &Option<Watched>| watched.as_ref().map(|w| w.descriptor);
        if let Some(old) = descriptor(&before).filter(|old| Some(*old) != descriptor(&watched)) {
            // The kernel has ended the watch of a removed directory.
            let _ = self.inotify.rm_watch(old);
        }
        self.watched = watched;
        outcome
    }

    /// Watches `dir`; a directory that is watched already has the same descriptor.
    fn add(&self, dir: &Path) -> Result<WatchDescriptor, Errno> {
        let changes = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        self.inotify.add_watch(dir, changes)
    }

    /// Reads the events; returns true if any of them concerns the policy.
    pub(super) fn concerns_policy(&self) -> io::Result<bool> {
        let mut concerns = false;
        loop {
            let events = match self.inotify.read_events() {
                Ok(events) => events,
                Err(Errno::EAGAIN) => return Ok(concerns),
                Err(errno) => return Err(errno.into()),
            };
            concerns |= events.iter().any(|event| self.is_about_policy(event));
        }
    }

    fn is_about_policy(&self, event: &InotifyEvent) -> bool {
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            // Lost events may concern it.
            return true;
        }
        let Some(watched) = self.watched.as_ref().filter(|w| w.descriptor == event.wd) else {
            return false;
        };
        match (&event.name, &watched.matters) {
            // The directory itself; the end of its watch is no new information.
            (None, _) => !event.mask.contains(AddWatchFlags::IN_IGNORED),
            (Some(found), Matter::Name(name)) => found == name,
            (Some(found), Matter::PolicyFiles) => is_policy_file(&found.to_string_lossy()),
        }
    }
}

fn named(path: &Path) -> (PathBuf, Matter) {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let dir = parent.map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    (dir, Matter::Name(path.file_name().unwrap_or_default().to_owned()))
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
    #[test]
    fn a_replaced_directory_is_watched() {
        for of_file in [false, true] {
            let above = tempfile::tempdir().unwrap();
            let (dir, old) = (above.path().join("policy"), above.path().join("old"));
            fs::create_dir(&dir).unwrap();
            let path = if of_file { dir.join("web.yaml") } else { dir.clone() };
            fs::write(dir.join("web.yaml"), "").unwrap();
            let mut watch = PolicyWatch::new(&path).unwrap();
            // Replaced by another directory.
            fs::rename(&dir, &old).unwrap();
            assert!(watch.concerns_policy().unwrap());
            fs::create_dir(&dir).unwrap();
            watch.renew().unwrap();
            assert!(!watch.concerns_policy().unwrap());
            fs::write(old.join("web.yaml"), "of the old one").unwrap();
            assert!(!watch.concerns_policy().unwrap());
            fs::write(dir.join("web.yaml"), "of the new one").unwrap();
            assert!(watch.concerns_policy().unwrap());
            // Removed, and created again later.
            fs::remove_dir_all(&dir).unwrap();
            assert!(watch.concerns_policy().unwrap());
            watch.renew().unwrap();
            fs::create_dir(&dir).unwrap();
            assert!(watch.concerns_policy().unwrap());
            watch.renew().unwrap();
            fs::write(dir.join("web.yaml"), "").unwrap();
            assert!(watch.concerns_policy().unwrap());
            // Renewing the watch causes no event.
            watch.renew().unwrap();
            assert!(!watch.concerns_policy().unwrap());
        }
    }
}
