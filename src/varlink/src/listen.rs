//! Listening socket: created here, or passed by systemd.
//!
//! A socket created here belongs to root and the group `tenantd`. Its mode is 0666: every process may connect, and each
//! call is checked ([`super::peers`]). The group of the socket file is the group of readers, also for a socket of the
//! service manager; root's group is not. A socket file without a listener is the remains of a killed daemon, and is replaced. A
//! socket file with a listener belongs to a running daemon, and is an error.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, Group, access};

/// Group whose members may read.
pub const GROUP: &str = "tenantd";

/// Error of the listening socket.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another daemon listens there.
    #[error("another tenantd listens on {}: stop it first, or name another socket with --socket", .0.display())]
    Taken(PathBuf),
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket: remove it, or name another path with --socket", .0.display())]
    NoSocket(PathBuf),
    /// The kernel refused.
    #[error("cannot listen on {}", path.display())]
    Io {
        /// Path of the socket.
        path: PathBuf,
        /// Cause of the error.
        source: io::Error,
    },
}

impl ListenError {
    /// True if the cause is a missing permission.
    pub fn is_denied(&self) -> bool {
        match self {
            ListenError::Io { source, .. } => source.kind() == io::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

/// A listening socket, and the files to remove with it.
#[derive(Debug)]
pub struct Listener {
    /// The socket, non-blocking.
    pub socket: UnixListener,
    /// Group of the socket file, whose members may read; `None` for that of root.
    pub group: Option<u32>,
    made: Option<PathBuf>,
    /// Directory of the file, if it was created here.
    made_dir: Option<PathBuf>,
}

impl Listener {
    /// Takes over a socket of the service manager, which also removes its file.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub fn given(socket: UnixListener) -> io::Result<Listener> {
        socket.set_nonblocking(true)?;
        let group = group_of(&socket);
        Ok(Listener { socket, group, made: None, made_dir: None })
    }

    /// Creates the socket `path`, and its directory if missing.
    ///
    /// # Errors
    /// See [`ListenError`].
    pub fn make(path: &Path) -> Result<Listener, ListenError> {
        clear(path)?;
        let error = |source| ListenError::Io { path: path.to_path_buf(), source };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists());
        if let Some(dir) = dir {
            fs::create_dir_all(dir).map_err(error)?;
        }
        let (socket, group) = bind(path).map_err(error)?;
        let made_dir = dir.map(Path::to_path_buf);
        Ok(Listener { socket, group, made: Some(path.to_path_buf()), made_dir })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // It may have been removed already.
            let _ = fs::remove_file(path);
        }
        if let Some(dir) = &self.made_dir {
            // A directory with other files in it stays.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Checks the permission to create a socket at `path`, before anything else is done.
///
/// # Errors
/// [`ListenError::Io`]: the closest existing directory is not writable.
pub fn check_permission(path: &Path) -> Result<(), ListenError> {
    let error = |errno: Errno| ListenError::Io { path: path.to_path_buf(), source: errno.into() };
    let absolute = std::path::absolute(path).map_err(|_| error(Errno::ENOENT))?;
    let mut directories = absolute.ancestors().skip(1);
    let Some(existing) = directories.find(|dir| dir.exists()) else { return Ok(()) };
    access(existing, AccessFlags::W_OK | AccessFlags::X_OK).map_err(error)
}

pub(super) fn clear(path: &Path) -> Result<(), ListenError> {
    let error = |source| ListenError::Io { path: path.to_path_buf(), source };
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            return Err(ListenError::NoSocket(path.to_path_buf()));
        }
        Ok(_) => {}
        Err(absent) if absent.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(error(source)),
    }
    match UnixStream::connect(path) {
        Err(dead) if dead.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(error)
        }
        // A full queue (EAGAIN) means that a listener exists, and is busy.
        Err(busy) if busy.kind() != io::ErrorKind::WouldBlock => Err(error(busy)),
        _ => Err(ListenError::Taken(path.to_path_buf())),
    }
}

/// Group of the file of `socket`; `None` for root's group, and for a socket without a file.
fn group_of(socket: &UnixListener) -> Option<u32> {
    let address = socket.local_addr().ok()?;
    let metadata = fs::metadata(address.as_pathname()?).ok()?;
    Some(metadata.gid()).filter(|group| *group != 0)
}

/// Binds a socket with its group, if the group of readers exists and may be set.
fn bind(path: &Path) -> io::Result<(UnixListener, Option<u32>)> {
    // No umask: it would be that of all threads. An early client is checked at each call, as all others are.
    let socket = UnixListener::bind(path)?;
    socket.set_nonblocking(true)?;
    let group = Group::from_name(GROUP).ok().flatten().map(|group| group.gid.as_raw());
    // A daemon of an ordinary user cannot set it. The file then has that user's group, which is no group of readers.
    let group = group.filter(|group| chown(path, None, Some(*group)).is_ok());
    fs::set_permissions(path, fs::Permissions::from_mode(0o666))?;
    Ok((socket, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/socket");
        let live = Listener::make(&path).unwrap();
        let refused = Listener::make(&path).unwrap_err();
        assert!(matches!(refused, ListenError::Taken(_)), "{refused}");
        // A killed daemon leaves its file.
        let left = dir.path().join("left");
        fs::hard_link(&path, &left).unwrap();
        drop(live);
        assert!(!path.exists());
        Listener::make(&left).unwrap();
    }

    #[test]
    fn a_file_that_is_not_a_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("precious");
        fs::write(&path, "data").unwrap();
        assert!(matches!(Listener::make(&path), Err(ListenError::NoSocket(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "data");
    }

    #[test]
    fn every_process_can_connect_and_the_group_of_the_file_reads() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let live = Listener::make(&path).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o777, 0o666);
        assert!(live.group.is_none_or(|group| group == metadata.gid()));
        // The service manager makes the socket with any group.
        let given = dir.path().join("given");
        let socket = UnixListener::bind(&given).unwrap();
        if chown(&given, None, Some(777)).is_ok() {
            assert_eq!(Listener::given(socket).unwrap().group, Some(777));
        }
    }
}
