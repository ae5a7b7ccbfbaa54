//! Running containers, and the attachments that tenantd has not made yet.
//!
//! Containerd waits for the reply to each event, so an event only changes this table; a thread of its own calls tenantd
//! ([`super::attach`]). A container stays here until it ends. Ended cgroups are dropped by tenantd itself.
//!
//! **Bound.** At most [`CONTAINERS_MAX`] containers; more are not attached, and the log reports it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::warn;

use tenantd_varlink::interface::Pod;

/// Most containers. A kubelet runs 110 pods by default.
pub const CONTAINERS_MAX: usize = 16_384;

/// A cgroup, and its tenant or pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Path from the mount.
    pub cgroup: String,
    /// Path of the tenant; `None` if the policy chooses it by the pod.
    pub tenant: Option<String>,
    /// The pod.
    pub pod: Pod,
}

/// The table; see above.
#[derive(Debug, Default)]
pub struct Table {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    containers: HashMap<Vec<u8>, Row>,
    is_closed: bool,
}

#[derive(Debug)]
struct Row {
    place: Place,
    /// Time of the next call; `None` once it is attached.
    due: Option<Instant>,
}

impl Table {
    /// Adds a container.
    pub fn start(&self, id: &[u8], place: Place) {
        let mut inner = self.lock();
        if inner.containers.len() < CONTAINERS_MAX || inner.containers.contains_key(id) {
            inner.add(id, place);
        } else {
            warn!(
                "{} is not attached: there are {CONTAINERS_MAX} containers already",
                place.cgroup
            );
        }
        self.changed.notify_all();
    }

    /// Removes a container.
    pub fn end(&self, id: &[u8]) {
        self.lock().containers.remove(id);
    }

    /// Replaces all containers; those that stay in the same place keep their state.
    pub fn replace(&self, mut all: Vec<(Vec<u8>, Place)>) {
        if all.len() > CONTAINERS_MAX {
            let nr = all.len() - CONTAINERS_MAX;
            warn!("{nr} containers are not attached: there are more than {CONTAINERS_MAX}");
            all.truncate(CONTAINERS_MAX);
        }
        let mut inner = self.lock();
        let mut old = std::mem::take(&mut inner.containers);
        for (id, place) in all {
            if let Some(row) = old.remove(&id) {
                inner.containers.insert(id.clone(), row);
            }
            inner.add(&id, place);
        }
        self.changed.notify_all();
    }

    /// Number of containers.
    pub fn count(&self) -> usize {
        self.lock().containers.len()
    }

    /// Ends [`Table::next_due`].
    pub fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Waits until an attachment is due, and returns the longest due one; `None` when the table is closed.
    pub fn next_due(&self) -> Option<(Vec<u8>, Place)> {
        let mut inner = self.lock();
        while !inner.is_closed {
            let rows = inner.containers.iter();
            let first =
                rows.filter_map(|(id, row)| Some((row.due?, id, row))).min_by_key(|it| it.0);
            let Some((due, id, row)) = first else {
                inner = self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some((id.clone(), row.place.clone()));
            }
            let waited = self.changed.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    /// Waits for `time`, or until the table is closed.
    pub fn pause(&self, time: Duration) {
        let is_open = |inner: &mut Inner| !inner.is_closed;
        drop(self.changed.wait_timeout_while(self.lock(), time, is_open));
    }

    /// Sets the time of the next call for a container that is still in this place; `None` if it is attached.
    pub fn settle(&self, id: &[u8], place: &Place, due: Option<Instant>) {
        if let Some(row) = self.lock().containers.get_mut(id).filter(|row| row.place == *place) {
            row.due = due;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock; a poisoned table would still be a whole one.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn add(&mut self, id: &[u8], place: Place) {
        let row = Row { place, due: Some(Instant::now()) };
        match self.containers.entry(id.to_vec()) {
            Entry::Occupied(old) if old.get().place == row.place => {}
            Entry::Occupied(mut old) => drop(old.insert(row)),
            Entry::Vacant(vacant) => drop(vacant.insert(row)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(cgroup: &str) -> Place {
        Place { cgroup: cgroup.to_string(), ..Place::default() }
    }

    #[test]
    fn a_container_that_stays_keeps_its_state() {
        let table = Table::default();
        table.start(b"1", place("/a"));
        table.start(b"2", place("/b"));
        for id in [b"1", b"2"] {
            let cgroup = if id == b"1" { "/a" } else { "/b" };
            table.settle(id, &place(cgroup), None);
        }
        table.replace(vec![(b"1".to_vec(), place("/a")), (b"2".to_vec(), place("/c"))]);
        assert_eq!(table.next_due(), Some((b"2".to_vec(), place("/c"))));
        // An answer about the old place does not settle the new one.
        table.settle(b"2", &place("/b"), None);
        assert_eq!(table.next_due(), Some((b"2".to_vec(), place("/c"))));
        table.end(b"2");
        table.close();
        assert_eq!(table.next_due(), None);
    }

    #[test]
    fn containers_are_bounded() {
        let table = Table::default();
        let id = |nr: usize| nr.to_be_bytes().to_vec();
        let many = (0..CONTAINERS_MAX + 5).map(|nr| (id(nr), place("/a"))).collect();
        table.replace(many);
        assert_eq!(table.count(), CONTAINERS_MAX);
        table.start(b"one more", place("/a"));
        assert_eq!(table.count(), CONTAINERS_MAX);
        table.start(&id(3), place("/b"));
        table.end(&id(4));
        table.start(b"one more", place("/a"));
        assert_eq!(table.count(), CONTAINERS_MAX);
    }
}
