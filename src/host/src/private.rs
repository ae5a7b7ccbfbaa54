//! Files and directories that belong to the agent only, whatever the umask.
//!
//! The state directory determines writes as root: a journal names files and values. So it is used only if no
//! other user can have written to it.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use nix::unistd::geteuid;

/// Creates a file, or empties it, with mode 0600.
pub fn create(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(path)?;
    // A file of an earlier version may have another mode. A device is not the agent's.
    if file.metadata()?.is_file() {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    Ok(file)
}

/// Replaces a file by one with this content. On an error the old file stays.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let fresh = path.with_extension("new");
    create(&fresh)?.write_all(content)?;
    fs::rename(&fresh, path)
}

/// Makes a directory and its missing parents. Users pass through it to the job servers of their jobs.
pub fn make_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

/// Checks that no other user can write to the state directory.
pub fn check_dir(path: &Path) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    let own = geteuid().as_raw();
    let why = if !metadata.is_dir() {
        "it is a link: name its target".to_string()
    } else if metadata.uid() != own {
        format!(
            "it belongs to UID {}, who could have tenantd write anywhere: `chown {own}` it, or name another",
            metadata.uid()
        )
    } else if metadata.mode() & 0o022 != 0 {
        "other users can write in it, and so have tenantd write anywhere: `chmod go-w` it, or name another".to_string()
    } else {
        return Ok(());
    };
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_state_directory_of_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("above/state");
        make_dir(&path).unwrap();
        check_dir(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o022, 0);
        for mode in [0o720, 0o702, 0o777] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            assert!(check_dir(&path).unwrap_err().to_string().contains("chmod go-w"), "{mode:o}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        check_dir(&path).unwrap();
        let link = dir.path().join("link");
        symlink(&path, &link).unwrap();
        assert!(check_dir(&link).unwrap_err().to_string().contains("link"));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1000), None).unwrap();
            assert!(check_dir(&path).unwrap_err().to_string().contains("UID 1000"));
        }
    }

    #[test]
    fn files_are_of_the_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        drop(create(&path).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::read(&path).unwrap(), b"");
    }
}
