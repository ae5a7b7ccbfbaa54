//! Rate of submissions: `admission.max_submissions_per_user` in the policy.
//!
//! The queue bounds the jobs that wait, not the rate of jobs that start and end at once: a loop around `tenantctl run -- true`
//! costs the daemon as much as a queue of a thousand jobs. Each user has a bucket of tokens, one for each submission. A full
//! bucket has those of a minute, so a burst passes. A set of tasks is one submission; commands inside a job, and
//! jobs that return after a restart, take no token.

use std::collections::HashMap;

/// Users with buckets that are not full, roughly; more are looked through for full ones.
const USERS_MAX: usize = 1024;
const MINUTE: f64 = 60.0;

#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Tokens of each user, at a time in seconds.
    of_users: HashMap<u32, (f64, f64)>,
}

impl Pace {
    /// Takes a token of `user`, who gets `per_minute` of them. Returns the seconds until the next one if there is none.
    pub(crate) fn take(&mut self, user: u32, per_minute: u32, now: f64) -> Result<(), f64> {
        let (most, rate) = (f64::from(per_minute), f64::from(per_minute) / MINUTE);
        let refilled = |(tokens, at): (f64, f64)| (tokens + (now - at).max(0.0) * rate).min(most);
        if self.of_users.len() >= USERS_MAX {
            self.of_users.retain(|_, bucket| refilled(*bucket) < most);
        }
        let bucket = self.of_users.entry(user).or_insert((most, now));
        let tokens = refilled(*bucket);
        let outcome = if tokens >= 1.0 { Ok(()) } else { Err((1.0 - tokens) / rate) };
        *bucket = (tokens - f64::from(u8::from(outcome.is_ok())), now);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut pace = Pace::default();
        assert!((0..30).all(|_| pace.take(7, 30, 100.0).is_ok()));
        let wait = pace.take(7, 30, 100.0).unwrap_err();
        assert!((wait - 2.0).abs() < 1e-9, "{wait}");
        assert!(pace.take(8, 30, 100.0).is_ok(), "another user");
        assert!(pace.take(7, 30, 101.9).is_err());
        assert!(pace.take(7, 30, 102.1).is_ok() && pace.take(7, 30, 102.1).is_err());
        // An hour later a minute's worth, not an hour's.
        assert_eq!((0..60).filter(|_| pace.take(7, 30, 3700.0).is_ok()).count(), 30);
        // A clock that steps back gives nothing away.
        assert!(pace.take(7, 30, 10.0).is_err());
    }

    #[test]
    fn full_buckets_are_forgotten() {
        let mut pace = Pace::default();
        for user in 0..10_000 {
            assert!(pace.take(user, 60, f64::from(user)).is_ok());
        }
        assert!(pace.of_users.len() <= USERS_MAX, "{}", pace.of_users.len());
    }
}
