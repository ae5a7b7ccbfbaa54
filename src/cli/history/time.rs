//! Times on a command line and in tables, in UTC as everywhere in tenantd.

use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// A time since 1970: of the last day as `03:00`, with a date as `2026-01-31 03:00`, or before `now` as `2h`.
///
/// # Errors
/// It is none of these.
pub(in crate::cli) fn parse(text: &str, now: Duration) -> anyhow::Result<Duration> {
    let text = text.trim();
    let instant = |text: &str| {
        let time = humantime::parse_rfc3339_weak(text).ok()?;
        time.duration_since(SystemTime::UNIX_EPOCH).ok()
    };
    let full = |time: &str| match time.matches(':').count() {
        1 => format!("{time}:00"),
        _ => time.to_string(),
    };
    if let Some(time) = text
        .split_once([' ', 'T'])
        .and_then(|(day, time)| instant(&format!("{day}T{}Z", full(time.trim_end_matches('Z')))))
    {
        return Ok(time);
    }
    if text.contains(':') && !text.contains('-') {
        let today = show(now);
        let at = |text: &str| instant(&format!("{}T{}Z", &today[..10], full(text)));
        if let Some(time) = at(text) {
            return Ok(if time > now { time.saturating_sub(DAY) } else { time });
        }
    }
    match humantime::parse_duration(text) {
        Ok(ago) => Ok(now.saturating_sub(ago)),
        Err(_) => anyhow::bail!(
            "`{text}` is no time: write `03:00`, `2026-01-31 03:00` or a time ago such as `2h`, all in UTC"
        ),
    }
}

/// A time since 1970 as `2026-01-31 03:00:00`.
pub(in crate::cli) fn show(time: Duration) -> String {
    let latest = Duration::from_secs(253_402_300_799);
    let text = humantime::format_rfc3339_seconds(SystemTime::UNIX_EPOCH + time.min(latest));
    text.to_string().trim_end_matches('Z').replace('T', " ")
}

/// A time since 1970 as `03:00:00`.
pub(in crate::cli) fn of_day(time: Duration) -> String {
    show(time).split_off(11)
}

/// A length as `12m 3s`.
pub(in crate::cli) fn length(time: Duration) -> String {
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
        let now = parse("2026-11-23 15:30:00", Duration::ZERO).unwrap();
        let at = |text: &str| show(parse(text, now).unwrap());
        assert_eq!(at("03:00"), "2026-11-23 03:00:00");
        assert_eq!(at("15:30:01"), "2026-11-22 15:30:01");
        assert_eq!(at("2026-11-20T23:59:59Z"), "2026-11-20 23:59:59");
        assert_eq!(at("2h"), "2026-11-23 13:30:00");
        for bad in ["", "3", "25:00", "tomorrow", "2026-13-01 00:00", "24:61"] {
            assert!(parse(bad, now).is_err(), "{bad}");
        }
        assert_eq!(length(Duration::from_secs(59)), "59s");
        assert_eq!(length(Duration::from_secs(723)), "12m 3s");
        assert_eq!(length(Duration::from_secs(7260)), "2h 1m");
    }
}
