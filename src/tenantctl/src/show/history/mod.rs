//! `tenantctl history`: the past, from the recording of a tenantd.
//!
//! The files are read in place, so it works without a running tenantd, after a crash, and on another
//! machine. They contain the inputs of the control loop; a replay ([`past`]) recomputes its decisions, so
//! that every figure and reason is the original one. The last seconds are not in a file yet; `tenantctl
//! status` shows them.
//!
//! **Damage.** The times in the head of a file have no checksum. A segment is skipped only if its time is in order
//! with those around it, so a damaged head hides nothing. Files that cannot be read are named ([`Damage`]): lost time
//! must not look like time without a recording.

pub(super) mod past;
pub(super) mod show;

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::args::{HISTORY_DIR, HistoryArgs};
use past::{Past, Window};
use tenantd::exit::Exit;
use tenantd_core::kernel_text::path_of;
use tenantd_host::recording::tape::{self, Damage, Listing, Tape, TapeError};
use tenantd_lab::json;
use tenantd_lab::text;
use tenantd_lab::time::Clock;
use tenantd_varlink::client::Endpoint;
use tenantd_varlink::interface::{Nothing, method};

const USUAL: Duration = Duration::from_secs(3600);
/// Deadline of the question for the directory: the files can be read without an answer.
const QUESTION_TIME: Duration = Duration::from_secs(2);

pub(crate) fn run(daemon: &Endpoint, args: &HistoryArgs) -> anyhow::Result<Exit> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let dir = args.dir.clone().unwrap_or_else(|| dir_of(daemon));
    if let Err(error) = std::fs::metadata(&dir) {
        return Ok(unreachable(&dir, &error));
    }
    let (segments, mut past) = readable(&dir, args)?;
    let Some((begin, last)) = segments.last() else {
        anyhow::ensure!(past.damaged.is_empty(), "{}: {}", dir.display(), all_damaged(&past));
        anyhow::bail!(
            "{}: nothing is recorded there; tenantd records with --history and a `history.max_size` above 0",
            dir.display()
        );
    };
    let clock = Clock::new(args.utc);
    let given = args.since.as_deref().map(|text| clock.parse(text, now)).transpose()?;
    let end_of = |text| clock.parse_end(text, given.unwrap_or_default(), now);
    let until = args.until.as_deref().map(end_of).transpose()?;
    let end = until.unwrap_or(Duration::MAX);
    let last = last_time(last)?.unwrap_or(*begin);
    let since = given.unwrap_or_else(|| end.min(last).saturating_sub(USUAL));
    anyhow::ensure!(
        since <= end,
        "--since {} is after --until {}: exchange them",
        clock.show(since),
        clock.show(end)
    );
    past.window = Window { since, until: end };
    play(&segments, &mut past, now)?;
    if past.nr_ticks == 0 {
        let damage = if past.damaged.is_empty() {
            String::new()
        } else {
            format!("; {}", all_damaged(&past))
        };
        anyhow::bail!(
            "no tick can be read between {} and {}; the recording is of {} to {}{damage}",
            clock.show(since),
            until.map_or("now".into(), |until| clock.show(until)),
            clock.show(segments[0].0),
            clock.with_zone(last)
        );
    }
    if let Some(name) = &args.tenant
        && past.tenants.is_empty()
    {
        anyhow::bail!(
            "no tenant `{name}` is in the recording of that time; it has {}",
            text::names(&past.others)
        );
    }
    let mut out = io::stdout().lock();
    if args.json {
        json::write_line(&mut out, &past.report())?
    } else {
        show::print(&mut out, &past, &clock)?
    }
    Ok(Exit::Ok)
}

/// Directory of the running tenantd, or the usual one with a word on standard error.
fn dir_of(daemon: &Endpoint) -> PathBuf {
    let asked = Endpoint { timeout: daemon.timeout.or(Some(QUESTION_TIME)), ..daemon.clone() };
    recorded_dir(&asked).unwrap_or_else(|why| {
        eprintln!("tenantctl: {why}; reading {HISTORY_DIR}");
        PathBuf::from(HISTORY_DIR)
    })
}

/// Directory of the running tenantd, or the reason why there is none.
pub(super) fn recorded_dir(daemon: &Endpoint) -> Result<PathBuf, String> {
    let reply = daemon.call::<method::GetPolicy>(&Nothing {}).map_err(|error| error.to_string())?;
    let dir = reply.history.map(|dir| path_of(&dir));
    dir.ok_or("the running tenantd names no recording (it records with --history)".to_string())
}

fn unreachable(dir: &Path, error: &io::Error) -> Exit {
    let dir = dir.display();
    match error.kind() {
        io::ErrorKind::NotFound => {
            // The same exit code as without a running tenantd.
            eprintln!(
                "tenantctl: {dir}: no history is there; tenantd keeps one with --history DIR"
            );
            Exit::Unavailable
        }
        io::ErrorKind::PermissionDenied => {
            eprintln!(
                "tenantctl: not permitted to read {dir}: become root, or a member of the group that owns it (see \
                 ls -ld {dir})"
            );
            Exit::NotPermitted
        }
        _ => {
            eprintln!("tenantctl: cannot read {dir}: {error}");
            Exit::Failed
        }
    }
}

/// Segments that this version can replay, with an empty past that knows the other files.
fn readable(dir: &Path, args: &HistoryArgs) -> anyhow::Result<(Vec<(Duration, PathBuf)>, Past)> {
    let Listing { segments, damaged } = tape::listing(dir)?;
    let mut past = Past::new(args.tenant.as_deref());
    past.damaged = damaged;
    let mut other = None;
    let mut kept = Vec::new();
    for segment in segments {
        match tape::check(&segment.1) {
            Ok(()) => kept.push(segment),
            Err(error @ TapeError::OtherVersion { .. }) => {
                past.nr_other_versions += 1;
                other = Some(error);
            }
            Err(error) => past.damaged.extend(Damage::of(&segment.1, &error)),
        }
    }
    match other.filter(|_| kept.is_empty() && past.damaged.is_empty()) {
        Some(error) => Err(error.into()),
        None => Ok((kept, past)),
    }
}

fn play(segments: &[(Duration, PathBuf)], past: &mut Past, now: Duration) -> anyhow::Result<()> {
    let begin = |index: usize| segments.get(index).map(|(begin, _)| *begin);
    // A clock may be stepped, and a head may be damaged.
    let is_in_order = |index: usize| {
        let before = index.checked_sub(1).and_then(begin).unwrap_or_default();
        begin(index).is_some_and(|own| {
            before <= own && own <= now && begin(index + 1).is_none_or(|next| own <= next)
        })
    };
    let Window { since, until } = past.window;
    for (index, (own, path)) in segments.iter().enumerate() {
        let ends_before =
            is_in_order(index + 1) && begin(index + 1).is_some_and(|next| next < since);
        if is_in_order(index) && (ends_before || *own > until) {
            continue;
        }
        match Tape::open(path) {
            Ok(tape) => past.play(path, tape, || true),
            Err(error) => past.damaged.extend(Damage::of(path, &error)),
        }
    }
    Ok(())
}

/// All damaged files in one sentence.
fn all_damaged(past: &Past) -> String {
    let all = past.damaged.iter().map(Damage::to_string);
    format!("{}; check the disk", text::names(all))
}

fn last_time(path: &Path) -> anyhow::Result<Option<Duration>> {
    let mut tape = match Tape::open(path) {
        Ok(tape) => tape,
        Err(TapeError::Torn(_)) => return Ok(None),
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(std::iter::from_fn(|| tape.play()).last().map(|played| played.wall))
}
