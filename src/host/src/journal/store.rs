//! The file of a journal: created, continued, appended to, replaced as a whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::entry::{Entry, KINDS};
use crate::private;

/// Reason why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another agent has locked the state directory.
    #[error("{} is in use by another tenantd: stop it first, or give this one a --state-dir of its own", .0.display())]
    Locked(PathBuf),
    /// A file operation failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// The operation.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Error of the system.
        #[source]
        source: io::Error,
    },
    /// A journal that this version did not write.
    #[error("{} is not a journal of this version of tenantd: restore with the version that wrote it, or remove it", .0.display())]
    Foreign(PathBuf),
}

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    tenantd_journal: u32,
    boot_id: String,
    /// The kinds of entries that the version of the writer has. One that this version does not have is not skipped: its
    /// value would be lost.
    #[serde(default)]
    kinds: Vec<String>,
}

/// The part of a header that every version has.
#[derive(Debug, Deserialize)]
struct Origin {
    boot_id: String,
}

/// Extension of a journal with lines that are not understood.
const ASIDE: &str = "damaged";
/// The version of the format.
const VERSION: u32 = 1;

#[derive(Debug)]
pub(super) struct Store {
    path: PathBuf,
    boot_id: String,
    file: Option<File>,
    length_bytes: u64,
    _lock: Flock<File>,
}

impl Store {
    pub(super) fn open(state_dir: &Path, boot_id: &str) -> Result<(Store, Found), JournalError> {
        private::make_dir(state_dir).map_err(|e| failed("make directory", state_dir, e))?;
        private::check_dir(state_dir).map_err(|e| failed("use state directory", state_dir, e))?;
        let lock = lock(&state_dir.join("lock"), state_dir)?;
        let path = state_dir.join("journal");
        let found = match fs::read(&path) {
            Ok(bytes) => read_lines(&bytes, &path, boot_id)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::default(),
            Err(error) => return Err(failed("read", &path, error)),
        };
        let boot_id = boot_id.to_string();
        let length_bytes = found.length_bytes;
        let mut store = Store { path, boot_id, file: None, length_bytes, _lock: lock };
        match (length_bytes, found.damage.is_empty()) {
            (0, _) => store.replace(&found.entries)?,
            (_, true) => store.take_up()?,
            (_, false) => {
                store.keep_aside()?;
                store.replace(&found.entries)?;
            }
        }
        Ok((store, found))
    }

    /// Copies the file as it is, with the values that are not understood.
    fn keep_aside(&self) -> Result<(), JournalError> {
        let aside = self.path.with_extension(ASIDE);
        let copy = || -> io::Result<()> {
            let bytes = fs::read(&self.path)?;
            let mut file = private::create(&aside)?;
            file.write_all(&bytes)?;
            file.sync_data()
        };
        copy().map_err(|error| failed("write", &aside, error))
    }

    /// Opens the existing journal, to append after its last complete line.
    fn take_up(&mut self) -> Result<(), JournalError> {
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.set_len(self.length_bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        self.file = Some(open().map_err(|e| failed("open", &self.path, e))?);
        Ok(())
    }

    pub(super) fn append(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        let mut lines = String::new();
        for entry in entries {
            lines.push_str(&to_line(entry, &self.path)?);
        }
        let Some(file) = &mut self.file else {
            return Err(failed(
                "write",
                &self.path,
                io::Error::from_raw_os_error(Errno::EBADF as i32),
            ));
        };
        let appended = file.write_all(lines.as_bytes()).and_then(|()| file.sync_data());
        match appended {
            Ok(()) => {
                self.length_bytes += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A partial line must not be followed by a complete one.
                file.set_len(self.length_bytes).ok();
                file.seek(SeekFrom::Start(self.length_bytes)).ok();
                Err(failed("write", &self.path, error))
            }
        }
    }

    pub(super) fn replace(&mut self, entries: &[Entry]) -> Result<(), JournalError> {
        let header = Header {
            tenantd_journal: VERSION,
            boot_id: self.boot_id.clone(),
            kinds: KINDS.map(str::to_string).to_vec(),
        };
        let mut text = to_line(&header, &self.path)?;
        for entry in entries {
            text.push_str(&to_line(entry, &self.path)?);
        }
        let fresh = self.path.with_extension("new");
        let write = || -> io::Result<File> {
            let mut file = private::create(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            fs::rename(&fresh, &self.path)?;
            Ok(file)
        };
        match write() {
            Ok(file) => {
                self.file = Some(file);
                self.length_bytes = text.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Best effort: a partial new file has no effect without the rename.
                fs::remove_file(&fresh).ok();
                Err(failed("write", &self.path, error))
            }
        }
    }

    pub(super) fn remove(self) -> Result<(), JournalError> {
        fs::remove_file(&self.path).map_err(|e| failed("remove", &self.path, e))
    }
}

fn lock(path: &Path, state_dir: &Path) -> Result<Flock<File>, JournalError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .mode(0o600)
        .truncate(false)
        .open(path)
        .map_err(|e| failed("open", path, e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => JournalError::Locked(state_dir.to_path_buf()),
        _ => failed("lock", path, errno.into()),
    })
}

fn to_line(value: &impl Serialize, path: &Path) -> Result<String, JournalError> {
    let mut line = serde_json::to_string(value).map_err(|e| failed("write", path, e.into()))?;
    line.push('\n');
    Ok(line)
}

#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) entries: Vec<Entry>,
    /// Messages about a last line that was cut off, and about another boot.
    pub(super) warnings: Vec<String>,
    /// One for each line that is not understood.
    pub(super) damage: Vec<String>,
    /// The length up to which it is valid; 0 if it has to be created anew.
    length_bytes: u64,
}

fn read_lines(bytes: &[u8], path: &Path, boot_id: &str) -> Result<Found, JournalError> {
    // A byte that is not text invalidates only its own line.
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else { return Ok(Found::default()) };
    let foreign = || JournalError::Foreign(path.to_path_buf());
    let origin: Origin = match serde_json::from_slice(first) {
        Ok(origin) => origin,
        // The header is written with the file, so a partial one means that nothing was done yet.
        Err(_) if !first.ends_with(b"\n") => return Ok(Found::default()),
        Err(_) => return Err(foreign()),
    };
    // Of whatever version it is, its values have gone with its boot.
    if origin.boot_id != boot_id {
        let warning = format!(
            "{} is of another boot: its values ended with that boot; nothing to restore",
            path.display()
        );
        return Ok(Found { warnings: vec![warning], ..Found::default() });
    }
    let header: Header = serde_json::from_slice(first).map_err(|_| foreign())?;
    if header.tenantd_journal != VERSION {
        return Err(foreign());
    }
    let mut found = Found::default();
    if first.ends_with(b"\n") {
        found.length_bytes = first.len() as u64;
    }
    for (index, line) in lines {
        let is_whole = line.ends_with(b"\n");
        if is_whole {
            found.length_bytes += line.len() as u64;
        }
        let number = index + 1;
        match serde_json::from_slice(line) {
            Ok(entry) if is_whole => found.entries.push(entry),
            _ if is_whole && is_of_later_version(line, &header.kinds) => return Err(foreign()),
            _ if is_whole => found.damage.push(format!(
                "{}:{number}: this line is damaged, and its value is not restored; the file is kept as {}",
                path.display(),
                path.with_extension(ASIDE).display()
            )),
            // The change that it announces was not made.
            _ => found.warnings.push(format!(
                "{}:{number}: this line is cut off and was skipped",
                path.display()
            )),
        }
    }
    Ok(found)
}

/// True if a line that this version cannot read has a kind that its writer has and this version does not.
fn is_of_later_version(line: &[u8], kinds: &[String]) -> bool {
    let kind = match serde_json::from_slice(line) {
        Ok(Value::String(kind)) => Some(kind),
        Ok(Value::Object(entry)) => entry.into_iter().next().map(|(kind, _)| kind),
        _ => None,
    };
    kind.is_some_and(|kind| kinds.contains(&kind) && !KINDS.contains(&&*kind))
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { operation, path: path.to_path_buf(), source }
}
