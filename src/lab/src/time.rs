//! Times on a command line and in tables, in the time zone of the reader; in JSON they are in UTC.

use std::time::Duration;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A time zone, in which times are read and shown. Times are given since 1970.
#[derive(Clone, Debug)]
pub struct Clock(TimeZone);

impl Clock {
    /// Returns UTC, or the zone of `TZ` or else of `/etc/localtime`; UTC if neither can be read.
    pub fn new(is_utc: bool) -> Clock {
        Clock(if is_utc { TimeZone::UTC } else { TimeZone::try_system().unwrap_or(TimeZone::UTC) })
    }

    /// Parses a time: of the last day as `03:00`, with a date as `2026-01-31 03:00`, with a zone as
    /// `2026-01-31T03:00:00Z`, or before `now` as `2h`, `-2h` or `2h ago`; also `now`, `today` and `yesterday`, which
    /// begin at midnight. A time that a change of the clocks skips is an hour later; of a time that occurs twice, the
    /// first is meant.
    ///
    /// # Errors
    /// The text has none of these forms.
    pub fn parse(&self, text: &str, now: Duration) -> anyhow::Result<Duration> {
        let text = text.trim();
        let midnight = |date: Date| self.instant(date.to_datetime(Time::midnight()));
        let today = self.zoned(now).date();
        match text {
            "now" => return Ok(now),
            "today" => return Ok(midnight(today).unwrap_or(now)),
            "yesterday" => return Ok(today.yesterday().ok().and_then(midnight).unwrap_or(now)),
            _ => {}
        }
        if let Ok(time) = text.parse::<Timestamp>() {
            return Ok(since_1970(time));
        }
        if text.contains('-')
            && let Ok(time) = text.parse::<DateTime>()
            && let Some(time) = self.instant(time)
        {
            return Ok(time);
        }
        if text.contains(':')
            && let Ok(time) = text.parse::<Time>()
            && let Some(time) = self.last(time, now)
        {
            return Ok(time);
        }
        let ago = text.strip_suffix("ago").unwrap_or(text);
        match humantime::parse_duration(ago.strip_prefix('-').unwrap_or(ago).trim()) {
            Ok(ago) => Ok(now.saturating_sub(ago)),
            Err(_) => anyhow::bail!(
                "`{text}` is no time: write `03:00`, `2026-01-31 03:00`, or a time ago such as `2h` or `-2h`"
            ),
        }
    }

    /// Parses the end of a period that begins at `since`: as [`Clock::parse`], but a time of the day may be one to come on the
    /// day of `since`.
    ///
    /// # Errors
    /// As those of [`Clock::parse`].
    pub fn parse_end(
        &self,
        text: &str,
        since: Duration,
        now: Duration,
    ) -> anyhow::Result<Duration> {
        let end = self.parse(text, now)?;
        let is_of_day = text.contains(':') && !text.contains('-');
        if end >= since || !is_of_day {
            return Ok(end);
        }
        let next = self.parse(text, since + DAY)?;
        let is_same_day = self.zoned(next).date() == self.zoned(since).date();
        Ok(if is_same_day { next } else { end })
    }

    fn instant(&self, time: DateTime) -> Option<Duration> {
        self.0.to_timestamp(time).ok().map(since_1970)
    }

    /// The last time before `now` at which the clock showed `time`.
    fn last(&self, time: Time, now: Duration) -> Option<Duration> {
        let today = self.zoned(now).date();
        let at = self.instant(today.to_datetime(time))?;
        if at <= now { Some(at) } else { self.instant(today.yesterday().ok()?.to_datetime(time)) }
    }

    fn zoned(&self, time: Duration) -> Zoned {
        timestamp(time).to_zoned(self.0.clone())
    }

    /// A time as `2026-01-31 03:00:00`.
    pub fn show(&self, time: Duration) -> String {
        self.zoned(time).strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// A time as `03:00:00`.
    pub fn of_day(&self, time: Duration) -> String {
        self.zoned(time).strftime("%H:%M:%S").to_string()
    }

    /// A time with the abbreviation of its zone, as `2026-01-31 03:00:00 CET`.
    pub fn with_zone(&self, time: Duration) -> String {
        self.zoned(time).strftime("%Y-%m-%d %H:%M:%S %Z").to_string()
    }
}

/// A time since 1970 in UTC, as `2026-01-31T03:00:00Z` (RFC 3339).
pub fn stamp(time: Duration) -> String {
    timestamp(time).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Converts a time; later times become the latest that can be written.
fn timestamp(time: Duration) -> Timestamp {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Converts a time; earlier times become 1970.
fn since_1970(time: Timestamp) -> Duration {
    Duration::try_from(time.as_duration()).unwrap_or_default()
}

/// A length as `12m 3s`.
pub fn length(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}s"),
        (0, m, s) => format!("{m}m {s}s"),
        (h, m, _) => format!("{h}h {m}m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_of_the_last_day_or_have_a_date_or_are_ago() {
        let clock = Clock::new(true);
        let now = clock.parse("2026-11-23 15:30:00", Duration::ZERO).unwrap();
        let at = |text: &str| clock.show(clock.parse(text, now).unwrap());
        assert_eq!(at("03:00"), "2026-11-23 03:00:00");
        assert_eq!(at("15:30:01"), "2026-11-22 15:30:01");
        assert_eq!(at("2026-11-20"), "2026-11-20 00:00:00");
        assert_eq!(at("2026-11-20 23:59"), "2026-11-20 23:59:00");
        assert_eq!(at("2026-11-20T23:59:59Z"), "2026-11-20 23:59:59");
        for ago in ["2h", "-2h", "2h ago", "-2h ago", "2 hours ago", "120min", " -2h "] {
            assert_eq!(at(ago), "2026-11-23 13:30:00", "{ago}");
        }
        let end = |since: &str, text: &str| {
            let since = clock.parse(since, now).unwrap();
            clock.show(clock.parse_end(text, since, now).unwrap())
        };
        assert_eq!(end("15:00", "15:10"), "2026-11-23 15:10:00");
        assert_eq!(end("15:00", "16:00"), "2026-11-23 16:00:00");
        assert_eq!(end("16:00", "15:00"), "2026-11-23 15:00:00");
        assert_eq!(end("2026-11-20 15:20", "16:00"), "2026-11-22 16:00:00");
        assert_eq!(end("15:20", "15:10"), "2026-11-23 15:10:00");
        assert_eq!(end("1h", "2h"), "2026-11-23 13:30:00");
        assert_eq!(end("15:20", "2026-11-23 15:10"), "2026-11-23 15:10:00");
        assert_eq!(at("now"), "2026-11-23 15:30:00");
        assert_eq!(at("today"), "2026-11-23 00:00:00");
        assert_eq!(at("yesterday"), "2026-11-22 00:00:00");
        for bad in [
            "",
            "3",
            "-",
            "ago",
            "--2h",
            "-3",
            "--json",
            "25:00",
            "tomorrow",
            "2026-13-01 00:00",
            "24:61",
        ] {
            assert!(clock.parse(bad, now).is_err(), "{bad}");
        }
        assert_eq!(stamp(now), "2026-11-23T15:30:00Z");
        assert_eq!(clock.with_zone(now), "2026-11-23 15:30:00 UTC");
        assert_eq!(clock.show(Duration::MAX), clock.show(Duration::from_secs(1 << 60)));
    }

    #[test]
    fn times_are_those_of_the_zone() {
        // Central European time, without a database of zones.
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let clock = Clock(zone);
        let now = Duration::from_secs(1_795_447_800); // 2026-11-23 15:30 UTC
        let at = |text: &str| stamp(clock.parse(text, now).unwrap());
        assert_eq!(at("03:00"), "2026-11-23T02:00:00Z");
        assert_eq!(at("16:30:01"), "2026-11-22T15:30:01Z", "today's is yet to come");
        assert_eq!(at("2026-07-01 03:00"), "2026-07-01T01:00:00Z");
        assert_eq!(at("2026-07-01T03:00:00Z"), "2026-07-01T03:00:00Z");
        assert_eq!(at("2026-10-25 02:30"), "2026-10-25T00:30:00Z", "the first of two");
        assert_eq!(at("2026-03-29 02:30"), "2026-03-29T01:30:00Z", "03:30 by the new clock");
        assert_eq!(clock.with_zone(now), "2026-11-23 16:30:00 CET");
        assert_eq!(clock.of_day(now), "16:30:00");
    }

    #[test]
    fn a_length_has_two_units() {
        assert_eq!(length(Duration::from_secs(59)), "59s");
        assert_eq!(length(Duration::from_secs(723)), "12m 3s");
        assert_eq!(length(Duration::from_secs(7260)), "2h 1m");
    }
}
