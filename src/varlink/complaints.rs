//! Who is over a limit, in the log: enough to find him, and not as often as he likes.
//!
//! Whoever is closed or refused is told "see its log" by `tenantctl`, and an administrator wants to know whose
//! program it was and why. But he who is over a limit may be so a thousand times a second. So each user is
//! named at most once a minute, with the number of times since; and a bounded number of users is kept in
//! mind, beyond which those who are new are not named.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tracing::{debug, warn};

use super::peers::Peer;

/// A user is named once in this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Users that are kept in mind.
const USERS_MAX: usize = 256;

/// Whom the log has named lately.
#[derive(Debug, Default)]
pub(super) struct Complaints {
    told: HashMap<u32, Told>,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    /// How often he was over a limit since, without being named.
    nr_since: u64,
}

impl Complaints {
    /// Says what was done to `peer` and why, or counts it.
    pub(super) fn tell(&mut self, peer: Peer, what: &str) {
        let (uid, pid) = (peer.uid, peer.pid);
        match self.due(uid, Instant::now()) {
            Some(0) => warn!(uid, pid, "{what}"),
            Some(before) => warn!(uid, pid, "{what}; and {before} times like this before"),
            None => debug!(uid, pid, "{what}"),
        }
    }

    /// Whether `uid` is to be named at `now`, with the times that he was not.
    fn due(&mut self, uid: u32, now: Instant) -> Option<u64> {
        let is_old = |told: &Told| now.saturating_duration_since(told.at) >= AGAIN;
        if let Some(told) = self.told.get_mut(&uid) {
            if !is_old(told) {
                told.nr_since += 1;
                return None;
            }
            return Some(std::mem::replace(told, Told { at: now, nr_since: 0 }).nr_since);
        }
        if self.told.len() >= USERS_MAX {
            self.told.retain(|_, told| !is_old(told));
        }
        if self.told.len() >= USERS_MAX {
            return None;
        }
        self.told.insert(uid, Told { at: now, nr_since: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_once_a_minute_with_the_times_between() {
        let (mut complaints, begin) = (Complaints::default(), Instant::now());
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(complaints.due(7, at(0)), Some(0));
        for second in 1..60 {
            assert_eq!(complaints.due(7, at(second)), None);
        }
        assert_eq!(complaints.due(8, at(30)), Some(0), "another one is named at once");
        assert_eq!(complaints.due(7, at(60)), Some(59));
        assert_eq!(complaints.due(7, at(61)), None);
        assert_eq!(complaints.due(7, at(200)), Some(1));
    }

    #[test]
    fn no_more_users_are_kept_in_mind_than_can_be() {
        let (mut complaints, begin) = (Complaints::default(), Instant::now());
        let nr_named = (0..1000).filter(|uid| complaints.due(*uid, begin).is_some()).count();
        assert_eq!((nr_named, complaints.told.len()), (USERS_MAX, USERS_MAX));
        assert_eq!(complaints.due(5000, begin + AGAIN), Some(0), "those of long ago are forgotten");
        assert_eq!(complaints.told.len(), 1);
    }
}
