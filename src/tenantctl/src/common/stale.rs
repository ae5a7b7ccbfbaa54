//! Age of a published tick.

use std::time::{Duration, SystemTime};

/// Age at `now` of a tick that was published at `time`, if it is above `stale_seconds`. A clock that was set back gives
/// `None`.
pub(crate) fn stale(time: Option<&str>, stale_seconds: f64, now: SystemTime) -> Option<Duration> {
    let time = humantime::parse_rfc3339(time?).ok()?;
    let age = now.duration_since(time).ok()?;
    (age.as_secs_f64() > stale_seconds).then_some(age)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_is_stale_above_its_threshold() {
        let stamp = |second| format!("2030-01-01T00:00:{second:02}Z");
        let (time, at) = (stamp(10), |second| humantime::parse_rfc3339(&stamp(second)).unwrap());
        let stale = |second| stale(Some(&time), 11.0, at(second));
        assert_eq!((stale(21), stale(22)), (None, Some(Duration::from_secs(12))));
        assert_eq!(stale(5), None, "the clock of the reader is behind");
        assert_eq!(super::stale(None, 11.0, SystemTime::now()), None, "an older daemon");
    }
}
