//! Rate-limited logging of clients that exceed a limit.
//!
//! `tenantctl` refers a disconnected or refused client to the log, and an administrator needs the user and
//! the reason. A client can exceed a limit a thousand times a second, so the log names each user at most
//! once a minute, with the number of repetitions. The number of users in memory is bounded; beyond it, new
//! users are not logged.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::peers::Peer;

/// Time between two log lines about a user.
const REPEAT_INTERVAL: Duration = Duration::from_secs(60);
const USERS_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct LimitLog {
    entries: HashMap<u32, Entry>,
}

#[derive(Debug)]
struct Entry {
    logged_at: Instant,
    nr_since: u64,
}

impl LimitLog {
    /// Logs the action against `peer` and its reason, or counts it.
    pub(super) fn record(&mut self, peer: Peer, what: &str) {
        let (uid, pid) = (peer.uid, peer.pid);
        match self.due(uid, Instant::now()) {
            Some(0) => warn!(uid, pid, "{what}"),
            Some(before) => warn!(uid, pid, "{what}; {before} more since the last message"),
            None => debug!(uid, pid, "{what}"),
        }
    }

    /// Number of unlogged violations of `uid`, if a line is due at `now`.
    fn due(&mut self, uid: u32, now: Instant) -> Option<u64> {
        let is_old =
            |entry: &Entry| now.saturating_duration_since(entry.logged_at) >= REPEAT_INTERVAL;
        if let Some(entry) = self.entries.get_mut(&uid) {
            if !is_old(entry) {
                entry.nr_since += 1;
                return None;
            }
            return Some(std::mem::replace(entry, Entry { logged_at: now, nr_since: 0 }).nr_since);
        }
        if self.entries.len() >= USERS_MAX {
            self.entries.retain(|_, entry| !is_old(entry));
        }
        if self.entries.len() >= USERS_MAX {
            return None;
        }
        self.entries.insert(uid, Entry { logged_at: now, nr_since: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_logged_once_a_minute_with_the_count_of_repetitions() {
        let (mut log, begin) = (LimitLog::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(log.due(7, at(0)), Some(0));
        for second in 1..60 {
            assert_eq!(log.due(7, at(second)), None);
        }
        assert_eq!(log.due(8, at(30)), Some(0), "another user is logged at once");
        assert_eq!(log.due(7, at(60)), Some(59));
        assert_eq!(log.due(7, at(61)), None);
        assert_eq!(log.due(7, at(200)), Some(1));
    }

    #[test]
    fn the_number_of_users_in_memory_is_bounded() {
        let (mut log, begin) = (LimitLog::default(), Instant::now());
        let nr_logged = (0..1000).filter(|uid| log.due(*uid, begin).is_some()).count();
        assert_eq!((nr_logged, log.entries.len()), (USERS_MAX, USERS_MAX));
        assert_eq!(log.due(5000, begin + REPEAT_INTERVAL), Some(0), "old entries are dropped");
        assert_eq!(log.entries.len(), 1);
    }
}
