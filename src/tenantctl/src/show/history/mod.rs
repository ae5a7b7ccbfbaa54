//! `tenantctl history`: the past, from the recording of a tenantd.
//!
//! The files are read in place, so it works without a running tenantd, after a crash, and on another
//! machine. They contain the inputs of the control loop; a replay ([`past`]) recomputes its decisions, so
//! that every figure and reason is the original one. The last seconds are not in a file yet; `tenantctl
//! status` shows them.

mod past;
mod show;

use std::io;
use std::time::{Duration, SystemTime};

use crate::args::HistoryArgs;
use past::{Past, Window};
use tenantd::exit::Exit;
use tenantd_host::recording::tape::{self, Tape, TapeError};
use tenantd_lab::json;
use tenantd_lab::time::Clock;

const USUAL: Duration = Duration::from_secs(3600);

pub(crate) fn run(args: &HistoryArgs) -> anyhow::Result<Exit> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    if !args.dir.exists() {
        // The same exit code as without a running tenantd.
        eprintln!(
            "tenantctl: {}: no history is there; tenantd keeps one with --history DIR",
            args.dir.display()
        );
        return Ok(Exit::Unavailable);
    }
    let (segments, nr_other) = segments(args)?;
    let Some(last) = segments.last() else {
        anyhow::bail!(
            "{}: nothing is recorded there; tenantd records with --history and a `history.max_size` above 0",
            args.dir.display()
        );
    };
    let clock = Clock::new(args.utc);
    let until = args.until.as_deref().map(|text| clock.parse(text, now)).transpose()?;
    let end = until.unwrap_or(Duration::MAX);
    let since = match &args.since {
        Some(text) => clock.parse(text, now)?,
        None => end.min(last_time(&last.1)?.unwrap_or(last.0)).saturating_sub(USUAL),
    };
    let mut past = Past::new(Window { since, until: end }, args.tenant.as_deref());
    for (index, (_, path)) in segments.iter().enumerate() {
        let next = segments.get(index + 1).map(|(begin, _)| *begin);
        // A clock may be stepped: only segments surely outside the window are skipped.
        if next.is_none_or(|next| next >= since) && segments[index].0 <= end {
            match Tape::open(path) {
                Ok(tape) => past.play(tape),
                // The ring has dropped it meanwhile, or it is the remains of a crash.
                Err(TapeError::Unreadable { .. } | TapeError::Torn(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    if past.nr_ticks == 0 {
        let (first, last) = (segments[0].0, last_time(&last.1)?.unwrap_or(last.0));
        anyhow::bail!(
            "nothing is recorded between {} and {}; the recording is of {} to {}",
            clock.show(since),
            until.map_or("now".into(), |until| clock.show(until)),
            clock.show(first),
            clock.with_zone(last)
        );
    }
    if let Some(name) = &args.tenant
        && past.tenants.is_empty()
    {
        anyhow::bail!("no tenant `{name}` is in the recording of that time");
    }
    past.nr_other_versions = nr_other;
    let mut out = io::stdout().lock();
    if args.json {
        json::write_line(&mut out, &past.report())?
    } else {
        show::print(&mut out, &past, &clock)?
    }
    Ok(Exit::Ok)
}

/// Segments that this version can replay, and the number of others.
fn segments(args: &HistoryArgs) -> anyhow::Result<(Vec<(Duration, std::path::PathBuf)>, usize)> {
    let all = tape::segments(&args.dir)?;
    let nr_all = all.len();
    let mut last_error = None;
    let mut kept = Vec::new();
    for segment in all {
        match tape::check(&segment.1) {
            Ok(()) => kept.push(segment),
            Err(error) => last_error = Some(error),
        }
    }
    match (kept.is_empty(), last_error) {
        (true, Some(error)) => Err(error.into()),
        _ => Ok((kept.clone(), nr_all - kept.len())),
    }
}

fn last_time(path: &std::path::Path) -> anyhow::Result<Option<Duration>> {
    let mut tape = match Tape::open(path) {
        Ok(tape) => tape,
        Err(TapeError::Torn(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(std::iter::from_fn(|| tape.play()).last().map(|played| played.wall))
}
