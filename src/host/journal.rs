//! What the files held before us, on disk before anything is written.
//!
//! **Problem.** The agent promises to leave no trace, also after `kill -9`, a full disk or a crash between
//! two writes. Memory does not survive that; so the old value goes to a file first, and only then the new
//! one to the kernel.
//!
//! **Shape.** One JSON object a line, appended and synced: a header with the boot, then what was done, in
//! order. Putting back is reading it backwards (`daemon::restore`). A line that was cut off by a crash is
//! the record of a write that did not happen yet, so it is dropped; kernel values do not survive a reboot,
//! so the journal of another boot is dropped whole. A journal with something in it is read and appended to,
//! never written anew, so that a disk that filled up meanwhile does not keep anything from being put back.
//!
//! **Properties.** Each file and each process is recorded once, with what was there first, however many agents
//! come and go until it is put back (`a_value_is_recorded_once`). A record that cannot be written leaves the
//! journal as it was, a full disk keeps nothing from being put back, and a damaged line costs that line alone
//! (`tests/journal.rs`). Two agents never share a state directory
//! (`two_agents_never_share_a_state_directory`).

use std::collections::{HashMap, HashSet};
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::systemd::{Property, Setting};

/// One thing that was done to the host, with what it takes to undo it.
///
/// There are thousands of the small kinds and a few of the large ones, which are boxed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A cgroup is about to be made.
    Making {
        /// Its directory.
        path: PathBuf,
    },
    /// It was made.
    Made {
        /// Its directory.
        path: PathBuf,
        /// Its inode number: a cgroup made anew under this name is not ours to remove.
        inode: u64,
    },
    /// It was not made after all: someone else was faster, and it is theirs.
    NotMade {
        /// Its directory.
        path: PathBuf,
    },
    /// A file is about to be written for the first time.
    Held {
        /// The cgroup's directory.
        path: PathBuf,
        /// The cgroup's inode number: a cgroup made anew under this name is not ours to put back.
        inode: u64,
        /// The file's name.
        file: Box<str>,
        /// What it held, without the newline.
        value: Box<str>,
    },
    /// A process is about to be moved.
    Moved {
        /// Process number.
        pid: u32,
        /// When it started, in clock ticks since boot: tells it from a later process of the same number.
        start_ticks: u64,
        /// The cgroup directories it was in, one for each tree it is moved in.
        from: Vec<PathBuf>,
        /// The tenant's cgroup directories, in the same order: who is born there belongs there no more than
        /// its parent does.
        to: Vec<PathBuf>,
    },
    /// A slice of systemd's is about to be started.
    Starting {
        /// The slice.
        unit: String,
    },
    /// A property of a unit is about to be set for the first time.
    UnitHeld(Box<UnitHeld>),
    /// Someone else wrote a file since, and the policy says that it is theirs: what it held before us is past.
    Theirs {
        /// The cgroup's directory.
        path: PathBuf,
        /// The cgroup's inode number.
        inode: u64,
        /// The file's name.
        file: Box<str>,
    },
    /// The same of a property of a unit.
    UnitTheirs {
        /// The unit.
        unit: String,
        /// The property.
        property: Property,
    },
    /// The agent stopped, and the policy told it to leave everything in force (`control.on_exit: keep`). True
    /// only as long as nothing follows.
    Kept,
}

/// A property of a unit, as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitHeld {
    /// The unit.
    pub unit: String,
    /// Which life of the unit, where it goes when it is stopped, and its run-time settings with it: a later one of
    /// the same name never had this value. Empty for a unit that has a file.
    pub life: String,
    /// What it held.
    pub held: Setting,
    /// The text of its drop-in, where somebody had set it at run time.
    pub drop_in: Option<String>,
}

/// The first line of a journal.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    tenantd_journal: u32,
    boot_id: String,
}

/// The version of the format.
const VERSION: u32 = 1;

/// Why the journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// Another agent holds the state directory.
    #[error("{} is in use by another tenantd: stop it first, or give this one a --state-dir of its own", .0.display())]
    Locked(PathBuf),
    /// A file operation failed.
    #[error("cannot {operation} {}", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On which file.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A journal that this version did not write.
    #[error("{} is not a journal of this version of tenantd: restore with the version that wrote it, or remove it", .0.display())]
    Foreign(PathBuf),
}

/// The journal of a running agent.
#[derive(Debug)]
pub struct Journal {
    store: Option<Store>,
    entries: Vec<Entry>,
    /// What must be recorded only once, and is: where among the entries, by the hash of its key. The keys
    /// themselves would be half of the memory that a journal takes.
    recorded: HashMap<u64, usize>,
    hasher: RandomState,
    /// Cgroups that are about to be made: one, or those that could not be.
    announced: HashSet<PathBuf>,
}

/// A place in a journal.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// What tells a file or a process from every other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key<'a> {
    File(&'a Path, u64, &'a str),
    /// ... and where to: a process may be moved in one tree after the other.
    Process(u32, u64, &'a [PathBuf]),
    Slice(&'a str),
    /// ... of this life of the unit.
    Property(&'a str, &'a str, Property),
}

impl Entry {
    /// Keeps `announced` true, the cgroups of which the last that was said is that they are about to be made.
    fn announce(&self, announced: &mut HashSet<PathBuf>) {
        match self {
            Entry::Making { path } => drop(announced.insert(path.clone())),
            Entry::Made { path, .. } | Entry::NotMade { path } => drop(announced.remove(path)),
            _ => {}
        }
    }

    /// The key of an entry that only its first record is true of.
    fn key(&self) -> Option<Key<'_>> {
        match self {
            Entry::Held { path, inode, file, .. } => Some(Key::File(path, *inode, file)),
            Entry::Moved { pid, start_ticks, to, .. } => Some(Key::Process(*pid, *start_ticks, to)),
            Entry::Starting { unit } => Some(Key::Slice(unit)),
            Entry::UnitHeld(was) => Some(Key::Property(&was.unit, &was.life, was.held.property)),
            Entry::Making { .. }
            | Entry::Made { .. }
            | Entry::NotMade { .. }
            | Entry::Theirs { .. }
            | Entry::UnitTheirs { .. }
            | Entry::Kept => None,
        }
    }
}

#[derive(Debug)]
struct Store {
    path: PathBuf,
    boot_id: String,
    file: Option<File>,
    length_bytes: u64,
    _lock: Flock<File>,
}

/// What an earlier agent left: its entries, and a warning for each line that could not be read.
#[derive(Debug, Default)]
pub struct Leftover {
    /// Everything that is still to be put back, oldest first.
    pub entries: Vec<Entry>,
    /// Lines that were dropped, for a person.
    pub warnings: Vec<String>,
}

impl Leftover {
    /// Whether the agent that left it was told to.
    pub fn is_kept(&self) -> bool {
        self.entries.last() == Some(&Entry::Kept)
    }
}

impl Journal {
    /// A journal that is kept in memory only, for the simulated kernel.
    pub fn in_memory() -> Journal {
        Journal::of(None, Vec::new())
    }

    /// Takes the state directory (made where missing) and reads what an earlier agent left there.
    ///
    /// The leftover entries stay in the journal until [`Journal::clear`], so that a crash while they are
    /// put back loses nothing.
    ///
    /// # Errors
    /// The directory is locked, cannot be made or read, or holds something else.
    pub fn open(state_dir: &Path, boot_id: &str) -> Result<(Journal, Leftover), JournalError> {
        fs::create_dir_all(state_dir).map_err(|e| failed("make directory", state_dir, e))?;
        let lock = lock(&state_dir.join("lock"), state_dir)?;
        let path = state_dir.join("journal");
        let found = match fs::read(&path) {
            Ok(bytes) => read_lines(&bytes, &path, boot_id)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Found::default(),
            Err(error) => return Err(failed("read", &path, error)),
        };
        let mut store = Store {
            path,
            boot_id: boot_id.to_string(),
            file: None,
            length_bytes: found.length_bytes,
            _lock: lock,
        };
        if found.length_bytes > 0 {
            store.take_up()?;
        }
        let begun = store.file.is_some();
        let mut journal = Journal::of(Some(store), found.entries.clone());
        if !begun {
            journal.rewrite()?;
        }
        Ok((journal, Leftover { entries: found.entries, warnings: found.warnings }))
    }

    /// What is in `entries` is true of whoever comes next as well: what was there first.
    fn of(store: Option<Store>, entries: Vec<Entry>) -> Journal {
        let (recorded, hasher) = (HashMap::new(), RandomState::new());
        let mut journal = Journal { store, entries, recorded, hasher, announced: HashSet::new() };
        journal.index();
        journal
    }

    fn index(&mut self) {
        self.recorded.clear();
        self.announced.clear();
        for (index, entry) in self.entries.iter().enumerate() {
            if let Some(key) = entry.key() {
                self.recorded.entry(self.hasher.hash_one(key)).or_insert(index);
            }
            entry.announce(&mut self.announced);
        }
    }

    fn has(&self, key: Key<'_>) -> bool {
        let Some(first) = self.recorded.get(&self.hasher.hash_one(key)) else { return false };
        // That two keys have one hash is next to impossible, and no reason to lose a value.
        self.entries[*first].key() == Some(key)
            || self.entries.iter().any(|entry| entry.key() == Some(key))
    }

    /// Whether it outlives this process.
    pub fn is_on_disk(&self) -> bool {
        self.store.is_some()
    }

    /// Everything recorded so far, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// How many moved processes are recorded.
    pub fn nr_moved(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, Entry::Moved { .. })).count()
    }

    /// Whether the value of this file was recorded before.
    pub fn knows(&self, path: &Path, inode: u64, file: &str) -> bool {
        self.has(Key::File(path, inode, file))
    }

    /// Whether the value of this property was recorded before, for this life of the unit.
    pub fn knows_property(&self, unit: &str, life: &str, property: Property) -> bool {
        self.has(Key::Property(unit, life, property))
    }

    /// Whether the last that is recorded of the cgroup at `path` is that it is about to be made.
    pub fn announces(&self, path: &Path) -> bool {
        self.announced.contains(path)
    }

    /// Records `entry`; when this returns, it is on disk.
    ///
    /// # Errors
    /// The disk refused. The journal is then as it was before, and the caller must not do what it asked for.
    pub fn record(&mut self, entry: Entry) -> Result<(), JournalError> {
        if entry.key().is_some_and(|key| self.has(key)) {
            return Ok(());
        }
        if let Some(store) = &mut self.store {
            store.append(&entry)?;
        }
        // What was made says all that its announcement said; on disk both stay until the next rewrite.
        if let (Entry::Made { path, .. }, Some(Entry::Making { path: announced })) =
            (&entry, self.entries.last())
            && path == announced
        {
            self.entries.pop();
        }
        if let Some(key) = entry.key() {
            self.recorded.entry(self.hasher.hash_one(key)).or_insert(self.entries.len());
        }
        entry.announce(&mut self.announced);
        if self.entries.len() == self.entries.capacity() {
            // It lives as long as the agent: an eighth to spare, and not as much again.
            self.entries.reserve_exact(self.entries.len() / 8 + 64);
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Forgets entries for which `keep` says no, and rewrites the file without them.
    ///
    /// # Errors
    /// The disk refused; nothing is forgotten then.
    pub fn retain(&mut self, keep: impl Fn(&Entry) -> bool) -> Result<(), JournalError> {
        let all = self.entries.clone();
        self.entries.retain(keep);
        self.rewrite().inspect_err(|_| self.entries = all)?;
        self.index();
        Ok(())
    }

    /// Where it stands, for [`Journal::since`] and [`Journal::forget_since`].
    pub fn mark(&self) -> Mark {
        // An announcement gives way to what comes of it, and so belongs to that.
        Mark(
            self.entries.len()
                - usize::from(matches!(self.entries.last(), Some(Entry::Making { .. }))),
        )
    }

    /// What was recorded since it stood at `mark`, oldest first.
    pub fn since(&self, mark: Mark) -> &[Entry] {
        self.entries.get(mark.0..).unwrap_or_default()
    }

    /// Forgets what was recorded since it stood at `mark`: all of it was put back.
    ///
    /// # Errors
    /// The disk refused; nothing is forgotten then.
    pub fn forget_since(&mut self, mark: Mark) -> Result<(), JournalError> {
        let since = self.since(mark).to_vec();
        self.entries.truncate(mark.0);
        self.rewrite().inspect_err(|_| self.entries.extend(since))?;
        self.index();
        Ok(())
    }

    /// Forgets everything: all of it was put back.
    ///
    /// # Errors
    /// The disk refused; nothing is forgotten then.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        self.retain(|_| false)
    }

    /// Clears the journal and removes its file: nothing is left behind.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn remove(mut self) -> Result<(), JournalError> {
        let Some(store) = self.store.take() else { return Ok(()) };
        fs::remove_file(&store.path).map_err(|e| failed("remove", &store.path, e))
    }

    /// Writes the whole journal to a new file and puts it in the old one's place.
    fn rewrite(&mut self) -> Result<(), JournalError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        let header = Header { tenantd_journal: VERSION, boot_id: store.boot_id.clone() };
        let mut text = to_line(&header, &store.path)?;
        for entry in &self.entries {
            text.push_str(&to_line(entry, &store.path)?);
        }
        let fresh = store.path.with_extension("new");
        let write = || -> io::Result<File> {
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).open(&fresh)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()?;
            fs::rename(&fresh, &store.path)?;
            Ok(file)
        };
        match write() {
            Ok(file) => {
                store.file = Some(file);
                store.length_bytes = text.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Best effort: a half-written successor means nothing without the rename.
                fs::remove_file(&fresh).ok();
                Err(failed("write", &store.path, error))
            }
        }
    }
}

impl Store {
    /// Opens the journal that is there, to append to its last whole line.
    fn take_up(&mut self) -> Result<(), JournalError> {
        let open = || -> io::Result<File> {
            let mut file = OpenOptions::new().write(true).open(&self.path)?;
            file.set_len(self.length_bytes)?;
            file.seek(SeekFrom::End(0))?;
            Ok(file)
        };
        self.file = Some(open().map_err(|e| failed("open", &self.path, e))?);
        Ok(())
    }

    fn append(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let line = to_line(entry, &self.path)?;
        let Some(file) = &mut self.file else {
            return Err(failed(
                "write",
                &self.path,
                io::Error::from_raw_os_error(Errno::EBADF as i32),
            ));
        };
        let appended = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        match appended {
            Ok(()) => {
                self.length_bytes += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A torn line must not be followed by a whole one.
                file.set_len(self.length_bytes).ok();
                file.seek(SeekFrom::Start(self.length_bytes)).ok();
                Err(failed("write", &self.path, error))
            }
        }
    }
}

fn lock(path: &Path, state_dir: &Path) -> Result<Flock<File>, JournalError> {
    let file = OpenOptions::new()
        .write(true)
        .create(true)
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

/// What a journal's text says.
#[derive(Debug, Default)]
struct Found {
    entries: Vec<Entry>,
    /// One for each line that was dropped.
    warnings: Vec<String>,
    /// How far it can be appended to; 0 where it has to be begun anew.
    length_bytes: u64,
}

fn read_lines(bytes: &[u8], path: &Path, boot_id: &str) -> Result<Found, JournalError> {
    // A byte that is no text spoils its own line and no other.
    let mut lines = bytes.split_inclusive(|byte| *byte == b'\n').enumerate();
    let Some((_, first)) = lines.next() else { return Ok(Found::default()) };
    let header: Header = match serde_json::from_slice(first) {
        Ok(header) => header,
        // The header is written with the file, so a torn one means that nothing was done yet.
        Err(_) if !first.ends_with(b"\n") => return Ok(Found::default()),
        Err(_) => return Err(JournalError::Foreign(path.to_path_buf())),
    };
    if header.tenantd_journal != VERSION {
        return Err(JournalError::Foreign(path.to_path_buf()));
    }
    if header.boot_id != boot_id {
        let warning = format!(
            "{} is of another boot: its values went with that boot, nothing to put back",
            path.display()
        );
        return Ok(Found { warnings: vec![warning], ..Found::default() });
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
        match serde_json::from_slice(line) {
            Ok(entry) if is_whole => found.entries.push(entry),
            _ => found.warnings.push(format!(
                "{}:{}: this line is cut off or damaged and was skipped",
                path.display(),
                index + 1
            )),
        }
    }
    Ok(found)
}

fn failed(operation: &'static str, path: &Path, source: io::Error) -> JournalError {
    JournalError::Io { operation, path: path.to_path_buf(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(file: &str, value: &str) -> Entry {
        Entry::Held { path: "/c".into(), inode: 7, file: file.into(), value: value.into() }
    }

    #[test]
    fn a_value_is_recorded_once() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, leftover) = Journal::open(dir.path(), "boot").unwrap();
        assert!(leftover.entries.is_empty());
        journal.record(held("cpu.weight", "100")).unwrap();
        journal.record(held("cpu.weight", "300")).unwrap();
        journal.record(held("memory.low", "0")).unwrap();
        drop(journal);
        let (journal, leftover) = Journal::open(dir.path(), "boot").unwrap();
        assert_eq!(leftover.entries, [held("cpu.weight", "100"), held("memory.low", "0")]);
        assert!(journal.knows(Path::new("/c"), 7, "cpu.weight"));
        journal.remove().unwrap();
        assert!(!dir.path().join("journal").exists());
    }

    #[test]
    fn a_torn_last_line_is_dropped_and_the_rest_kept() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path(), "boot").unwrap();
        journal.record(held("cpu.weight", "100")).unwrap();
        journal.record(held("memory.low", "0")).unwrap();
        drop(journal);
        let path = dir.path().join("journal");
        let text = fs::read_to_string(&path).unwrap();
        for cut in 0..text.len() {
            fs::write(&path, &text[..cut]).unwrap();
            let (_, leftover) = Journal::open(dir.path(), "boot").unwrap();
            let whole = text[..cut].matches('\n').count().saturating_sub(1);
            assert_eq!(leftover.entries.len(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn another_boot_or_another_format_is_not_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path(), "boot").unwrap();
        journal.record(held("cpu.weight", "100")).unwrap();
        drop(journal);
        let (_, leftover) = Journal::open(dir.path(), "next boot").unwrap();
        assert_eq!((leftover.entries.len(), leftover.warnings.len()), (0, 1));
        fs::write(dir.path().join("journal"), "not a journal\n").unwrap();
        let error = Journal::open(dir.path(), "boot").unwrap_err();
        assert!(matches!(error, JournalError::Foreign(_)), "{error}");
    }

    #[test]
    fn two_agents_never_share_a_state_directory() {
        let dir = tempfile::tempdir().unwrap();
        let first = Journal::open(dir.path(), "boot").unwrap();
        let error = Journal::open(dir.path(), "boot").unwrap_err();
        assert!(matches!(error, JournalError::Locked(_)), "{error}");
        drop(first);
        assert!(Journal::open(dir.path(), "boot").is_ok());
    }
}
