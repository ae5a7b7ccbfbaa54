//! Ticks of a recording as statuses, for `top --at`.

use std::collections::VecDeque;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::bail;

use super::view::HISTORY_TICKS;
use tenantd::report::recorded;
use tenantd_control::report::status::Status;
use tenantd_control::tick::event::Event;
use tenantd_host::recording::tape::{self, Tape, TapeError};
use tenantd_lab::time::{self, Clock};

/// Longest time between two ticks without a gap in the recording.
const GAP_MIN: Duration = Duration::from_secs(60);

/// Last ticks before a time.
#[derive(Debug)]
pub(super) struct Recorded {
    /// Statuses, the newest last.
    pub(super) statuses: Vec<Status>,
    /// Time of the last one, for the reader.
    pub(super) time: String,
}

/// Reads the last ticks before the time `at`, as the user wrote it, from a directory or file.
pub(super) fn read(dir: &Path, at: &str, is_utc: bool) -> anyhow::Result<Recorded> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let clock = Clock::new(is_utc);
    let at = clock.parse(at, now)?;
    let segments = tape::segments(dir)?;
    // A segment that was torn at its beginning has nothing to play.
    let begun = segments.into_iter().filter(|(begin, _)| *begin <= at).rev();
    let mut ticks = VecDeque::new();
    for (_, path) in begun {
        match Tape::open(&path) {
            Ok(tape) => ticks = play(tape, at),
            Err(TapeError::Torn(_)) => continue,
            Err(error) => return Err(error.into()),
        }
        if !ticks.is_empty() {
            break;
        }
    }
    let Some((wall, last)) = ticks.back() else {
        bail!("{}: nothing is recorded at {} or before", dir.display(), clock.show(at));
    };
    let gap = GAP_MIN.max(Duration::try_from_secs_f64(last.interval_seconds * 3.0)?);
    if at.saturating_sub(*wall) > gap {
        bail!(
            "{}: nothing is recorded at {}; the last tick before is of {}",
            dir.display(),
            clock.show(at),
            clock.with_zone(*wall)
        );
    }
    let time = clock.with_zone(*wall);
    Ok(Recorded { statuses: ticks.into_iter().map(|(_, status)| status).collect(), time })
}

/// Last ticks of a segment until `at`, with their times.
fn play(mut tape: Tape, at: Duration) -> VecDeque<(Duration, Status)> {
    let mut ticks = VecDeque::new();
    while let Some(event) = tape.next_event() {
        let step = match &event {
            Event::Step(input) => Some((tape.wall_at(input.now), input.host)),
            _ => None,
        };
        if step.is_some_and(|(wall, _)| wall > at) {
            break;
        }
        let decision = tape.control.apply(event);
        let (Some((wall, host)), Some(decision)) = (step, decision) else { continue };
        let is_shown = !decision.is_void;
        let since = tape.control.settings().interval * HISTORY_TICKS as u32;
        if is_shown && wall + since.max(GAP_MIN) >= at {
            let name = tape.host.clone();
            let status = recorded::status(name, &tape.control, &decision, host);
            ticks.push_back((wall, Status { time: Some(time::stamp(wall)), ..status }));
            if ticks.len() > HISTORY_TICKS {
                ticks.pop_front();
            }
        }
    }
    ticks
}
