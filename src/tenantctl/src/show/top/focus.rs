//! The open tenant on the screen, for the inspecting thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The open tenant or group, and its tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// Path of names.
    pub name: String,
    /// The tenant itself, or the tenants of the group.
    pub tenants: Vec<String>,
}

#[derive(Default)]
pub(crate) struct Focus {
    opened: Mutex<Option<Opened>>,
    changed: Condvar,
}

impl Focus {
    fn lock(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set(&self, opened: Option<Opened>) {
        let mut now = self.lock();
        if *now != opened {
            *now = opened;
            self.changed.notify_all();
        }
    }

    pub(crate) fn wait(&self) -> Opened {
        let mut now = self.lock();
        loop {
            if let Some(opened) = &*now {
                return opened.clone();
            }
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits for `time`, or until a tenant other than `known` is open.
    pub(crate) fn pause(&self, known: &Opened, time: Duration) {
        let is_same = |now: &mut Option<Opened>| now.as_ref() == Some(known);
        drop(self.changed.wait_timeout_while(self.lock(), time, is_same));
    }
}
