//! The values from before the agent, on disk before any write.
//!
//! **Problem.** The agent promises to leave no trace, even after `kill -9`, a full disk or a crash between two
//! writes. So the old value goes to a file first, and only then the new one to the kernel.
//!
//! **Format.** One JSON object per line, appended and synced: a header with the boot, then every change in
//! order. A restore reads it backwards (`recovery::restore` of the agent). A line that a crash cut off is the
//! record of a write that did not happen, so it is dropped, and so is the whole journal of another boot. A
//! journal with entries is appended to at a start, not rewritten, so that a full disk does not prevent a
//! restore.
//!
//! **Compaction.** A path has one cgroup at a time, so a record of a later cgroup proves that the earlier one
//! is gone. After enough growth such records are dropped and the file is replaced as a whole.
//!
//! **Properties.** Each file and each process is recorded once, with its first value, even over several agents
//! (`a_value_is_recorded_once`). A failed record leaves the journal unchanged, a full disk prevents no restore,
//! and a damaged line loses only itself (`tests/journal.rs`). Two agents never share a state directory
//! (`two_agents_never_share_a_state_directory`).

mod entry;
mod store;

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};

use self::entry::Key;
pub use self::entry::{DiskHeld, Entry, UnitHeld, UnitProperty};
pub use self::store::JournalError;
use self::store::{Found, Store};
use super::systemd::{Property, Setting};

/// The journal of a running agent.
#[derive(Debug)]
pub struct Journal {
    store: Option<Store>,
    entries: Vec<Entry>,
    /// Index of the first entry with each key, by the hash of the key. The keys would take half of the memory
    /// of a journal.
    recorded: HashMap<u32, u32>,
    hasher: RandomState,
    announced: HashSet<PathBuf>,
    compact_at: usize,
    nr_moved: usize,
}

/// Entries of growth before the journal is compacted.
const COMPACT_MIN: usize = 1024;

/// A place in a journal.
#[derive(Clone, Copy, Debug)]
pub struct Mark(usize);

/// Leftovers of an earlier agent: its entries, and a warning for each unreadable line.
#[derive(Debug, Default)]
pub struct Leftover {
    /// Entries still to be restored, oldest first.
    pub entries: Vec<Entry>,
    /// Messages about lines that were dropped.
    pub warnings: Vec<String>,
    /// Lines that are not understood, whose values cannot be restored.
    pub failures: Vec<String>,
}

impl Leftover {
    /// True if the agent left it on purpose.
    pub fn is_kept(&self) -> bool {
        self.entries.last() == Some(&Entry::Kept)
    }
}

impl Journal {
    /// Makes a journal in memory, for the simulated kernel.
    pub fn in_memory() -> Journal {
        Journal::of(None, Vec::new())
    }

    /// Locks the state directory (created if missing) and reads the leftovers of an earlier agent.
    ///
    /// They stay in the journal until [`Journal::clear`], so that a crash during their restoration loses
    /// nothing. Fails if the directory is locked, or contains something else.
    pub fn open(state_dir: &Path, boot_id: &str) -> Result<(Journal, Leftover), JournalError> {
        let (store, found) = Store::open(state_dir, boot_id)?;
        let journal = Journal::of(Some(store), found.entries.clone());
        let Found { entries, warnings, damage: failures, .. } = found;
        Ok((journal, Leftover { entries, warnings, failures }))
    }

    /// Old entries count for the next agent too: their values are from before both.
    fn of(store: Option<Store>, entries: Vec<Entry>) -> Journal {
        let (recorded, hasher) = (HashMap::new(), RandomState::new());
        let (announced, compact_at) = (HashSet::new(), entries.len() + COMPACT_MIN);
        let nr_moved = 0;
        let mut journal =
            Journal { store, entries, recorded, hasher, announced, compact_at, nr_moved };
        journal.index();
        journal
    }

    fn index(&mut self) {
        self.recorded.clear();
        self.announced.clear();
        self.nr_moved = 0;
        for index in 0..self.entries.len() {
            self.index_entry(index);
        }
    }

    fn index_entry(&mut self, index: usize) {
        let entry = &self.entries[index];
        if let Some(key) = entry.index_key() {
            self.recorded.entry(self.hash(key)).or_insert(index as u32);
        }
        entry.announce(&mut self.announced);
        self.nr_moved += usize::from(matches!(entry, Entry::Moved { .. }));
    }

    /// Half of a hash is enough: entries with equal hashes are searched.
    fn hash(&self, key: Key<'_>) -> u32 {
        self.hasher.hash_one(key) as u32
    }

    fn has(&self, key: Key<'_>) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: Key<'_>) -> Option<&Entry> {
        let first = &self.entries[*self.recorded.get(&self.hash(key))? as usize];
        let is_it = |entry: &&Entry| entry.index_key() == Some(key);
        // Two keys with the same hash are rare, but must not lose a value.
        Some(first).filter(is_it).or_else(|| self.entries.iter().find(is_it))
    }

    /// True if the journal outlives this process.
    pub fn is_on_disk(&self) -> bool {
        self.store.is_some()
    }

    /// All entries, oldest first.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Number of recorded moves of processes.
    pub fn nr_moved(&self) -> usize {
        self.nr_moved
    }

    /// True if the agent made the cgroup at `path`.
    pub fn made(&self, path: &Path) -> bool {
        self.has(Key::Made(path))
    }

    /// True if a value of this file is recorded.
    pub fn knows(&self, path: &Path, inode: u64, file: &str) -> bool {
        self.has(Key::File(path, inode, file))
    }

    /// Value of this file before it was first written.
    pub fn held_file(&self, path: &Path, inode: u64, file: &str) -> Option<&str> {
        match self.find(Key::File(path, inode, file))? {
            Entry::Held { value, .. } => Some(value),
            _ => None,
        }
    }

    /// True if a value of this property is recorded for this life of the unit.
    pub fn knows_property(&self, unit: &str, life: &str, property: Property) -> bool {
        self.has(Key::Property(unit, life, property))
    }

    /// Value of this property before it was first set in this life of the unit.
    pub fn held_property(&self, unit: &str, life: &str, property: Property) -> Option<&Setting> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::UnitHeld(was)
                if was.unit == unit && was.life == life && was.held.property == property =>
            {
                Some(&was.held)
            }
            _ => None,
        })
    }

    /// Drops the records of properties that systemd refused to set. They have their old values, and others may
    /// change them until they are set. On an error nothing is forgotten.
    pub fn forget_unset(&mut self, unset: &HashSet<UnitProperty>) -> Result<(), JournalError> {
        let is_unset = |was: &UnitHeld| {
            unset.contains(&(was.unit.clone(), was.life.clone(), was.held.property))
        };
        if unset.is_empty() {
            Ok(())
        } else {
            self.retain(|entry| !matches!(entry, Entry::UnitHeld(was) if is_unset(was)))
        }
    }

    /// True if the last record of the cgroup at `path` is [`Entry::Making`].
    pub fn announces(&self, path: &Path) -> bool {
        self.announced.contains(path)
    }

    /// Records `entry`, which is on disk when this returns. On an error the journal is unchanged, and the
    /// caller must not make the change.
    pub fn record(&mut self, entry: Entry) -> Result<(), JournalError> {
        self.record_all(vec![entry])
    }

    /// Records a few `entries`, in one write. On an error none of them is recorded.
    pub fn record_all(&mut self, mut entries: Vec<Entry>) -> Result<(), JournalError> {
        entries.retain(|entry| !entry.key().is_some_and(|key| self.has(key)));
        let mut new: Vec<Entry> = Vec::with_capacity(entries.len());
        for entry in entries {
            if entry.key().is_none() || new.iter().all(|other| other.key() != entry.key()) {
                new.push(entry);
            }
        }
        if let Some(store) = &mut self.store
            && !new.is_empty()
        {
            store.append(&new)?;
        }
        new.into_iter().for_each(|entry| self.take_in(entry));
        Ok(())
    }

    fn take_in(&mut self, entry: Entry) {
        // The `Made` record replaces its announcement; on disk both stay until the next rewrite.
        if let (Entry::Made { path, .. }, Some(Entry::Making { path: announced })) =
            (&entry, self.entries.last())
            && path == announced
        {
            self.entries.pop();
        }
        if self.entries.len() == self.entries.capacity() {
            // The list lives as long as the agent: grow by an eighth instead of doubling.
            self.entries.reserve_exact(self.entries.len() / 8 + 64);
        }
        self.entries.push(entry);
        self.index_entry(self.entries.len() - 1);
    }

    /// Drops the record with the key of `entry` if it differs, because it is no longer true. On an error
    /// nothing is forgotten.
    pub fn supersede(&mut self, entry: &Entry) -> Result<(), JournalError> {
        let is_known = entry.key().is_some_and(|key| self.has(key));
        if is_known && !self.entries.contains(entry) {
            self.retain(|known| known.key() != entry.key())
        } else {
            Ok(())
        }
    }

    /// Drops entries for which `keep` returns false, and rewrites the file without them. On an error nothing is
    /// forgotten.
    pub fn retain(&mut self, keep: impl Fn(&Entry) -> bool) -> Result<(), JournalError> {
        let all = self.entries.clone();
        self.entries.retain(keep);
        self.rewrite().inspect_err(|_| self.entries = all)?;
        self.index();
        Ok(())
    }

    /// Drops entries of cgroups and units that are permanently gone, after enough growth since the last time: a
    /// path has one cgroup at a time, so a record of a later one proves that the earlier one is gone. On an
    /// error nothing is dropped.
    pub fn compact(&mut self) -> Result<(), JournalError> {
        if self.entries.len() < self.compact_at {
            return Ok(());
        }
        let mut newest: HashMap<&Path, u64> = HashMap::new();
        let mut newest_life: HashMap<&str, &str> = HashMap::new();
        let mut last_made: HashMap<&Path, usize> = HashMap::new();
        for (index, entry) in self.entries.iter().enumerate() {
            match entry {
                Entry::Made { path, inode } => {
                    newest.insert(path, *inode);
                    last_made.insert(path, index);
                }
                Entry::Making { path } | Entry::NotMade { path } => {
                    last_made.insert(path, index);
                }
                Entry::Held { path, inode, .. } | Entry::Theirs { path, inode, .. } => {
                    newest.insert(path, *inode);
                }
                Entry::UnitHeld(was) => drop(newest_life.insert(&was.unit, &was.life)),
                _ => {}
            }
        }
        let is_live = |(index, entry): (usize, &Entry)| match entry {
            Entry::Made { path, .. } | Entry::Making { path } | Entry::NotMade { path } => {
                last_made.get(path.as_path()) == Some(&index)
            }
            Entry::Held { path, inode, .. } | Entry::Theirs { path, inode, .. } => {
                newest.get(path.as_path()) == Some(inode)
            }
            Entry::UnitHeld(was) => newest_life.get(&*was.unit) == Some(&&*was.life),
            _ => true,
        };
        let live: Vec<bool> = self.entries.iter().enumerate().map(is_live).collect();
        let nr_live = live.iter().filter(|live| **live).count();
        self.compact_at = 2 * nr_live + COMPACT_MIN;
        if nr_live == self.entries.len() {
            return Ok(());
        }
        let all = self.entries.clone();
        let mut live = live.into_iter();
        self.entries.retain(|_| live.next().unwrap_or(true));
        self.rewrite().inspect_err(|_| self.entries = all)?;
        self.entries.shrink_to_fit();
        self.index();
        Ok(())
    }

    /// The present end, for [`Journal::since`] and [`Journal::forget_since`].
    pub fn mark(&self) -> Mark {
        // An announcement is replaced by its result, so it belongs after the mark.
        Mark(
            self.entries.len()
                - usize::from(matches!(self.entries.last(), Some(Entry::Making { .. }))),
        )
    }

    /// Entries recorded since `mark`, oldest first.
    pub fn since(&self, mark: Mark) -> &[Entry] {
        self.entries.get(mark.0..).unwrap_or_default()
    }

    /// Drops the entries recorded since `mark`, after all of them were restored. On an error nothing is
    /// forgotten.
    pub fn forget_since(&mut self, mark: Mark) -> Result<(), JournalError> {
        let since = self.since(mark).to_vec();
        self.entries.truncate(mark.0);
        self.rewrite().inspect_err(|_| self.entries.extend(since))?;
        self.index();
        Ok(())
    }

    /// Drops all entries, after all of them were restored. On an error nothing is forgotten.
    pub fn clear(&mut self) -> Result<(), JournalError> {
        self.retain(|_| false)
    }

    /// Removes the journal with its file.
    pub fn remove(self) -> Result<(), JournalError> {
        self.store.map_or(Ok(()), Store::remove)
    }

    fn rewrite(&mut self) -> Result<(), JournalError> {
        match &mut self.store {
            Some(store) => store.replace(&self.entries),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
    fn a_torn_last_line_is_dropped_and_the_others_are_kept() {
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
    fn a_journal_of_another_boot_or_format_is_not_restored() {
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

    fn recreate(journal: &mut Journal, inodes: std::ops::Range<u64>) {
        for inode in inodes {
            let path = || PathBuf::from("/root/web");
            journal.record(Entry::Making { path: path() }).unwrap();
            journal.record(Entry::Made { path: path(), inode }).unwrap();
            let (file, value) = ("cpu.weight".into(), "100".into());
            journal.record(Entry::Held { path: path(), inode, file, value }).unwrap();
            journal.compact().unwrap();
            assert!(journal.entries().len() <= COMPACT_MIN + 8, "{inode}");
        }
    }

    #[test]
    fn cgroups_that_are_made_again_and_again_leave_it_flat() {
        recreate(&mut Journal::in_memory(), 0..1_000_000);
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, _) = Journal::open(dir.path(), "boot").unwrap();
        journal.record(held("cpu.weight", "100")).unwrap();
        recreate(&mut journal, 0..600);
        let last = Entry::Made { path: "/root/web".into(), inode: 599 };
        assert!(journal.entries().contains(&last));
        assert!(journal.entries().contains(&held("cpu.weight", "100")), "that of another cgroup");
        drop(journal);
        let (_, leftover) = Journal::open(dir.path(), "boot").unwrap();
        assert!(leftover.entries.len() <= COMPACT_MIN, "{}", leftover.entries.len());
        assert!(leftover.entries.contains(&last));
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
