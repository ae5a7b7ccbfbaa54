//! The last hour of every tenant, from the recording of the running tenantd.
//!
//! A thread of its own replays the recording as `tenantctl history` does ([`Past`]), the newest segments first, because a
//! request must not wait for it. One replay serves all readers and tenants. **Bounds.** It lasts at most
//! [`READ_TIME`], and the next one begins [`REST`] after its end at the earliest. Segments above [`SEGMENT_MAX_BYTES`] and
//! policies of more than [`NODES_MAX`] tenants and groups are left to `tenantctl history`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{bail, ensure};

use crate::show::history::past::{Course, Past, Window};
use crate::show::history::recorded_dir;
use tenantd_host::recording::tape::{self, Tape, TapeError};
use tenantd_varlink::client::Endpoint;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Time between two points of a course.
pub(crate) const STEP: Duration = Duration::from_secs(60);
const READ_TIME: Duration = Duration::from_secs(10);
const REST: Duration = Duration::from_secs(60);
/// The same after a failure.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(5);
const SEGMENT_MAX_BYTES: u64 = 16 << 20;
const NODES_MAX: usize = 1000;

/// An hour of all tenants.
#[derive(Debug)]
pub(crate) struct Hour {
    pub(crate) since: Duration,
    pub(crate) courses: BTreeMap<String, Course>,
    /// True if the time was over before all was read.
    pub(crate) is_partial: bool,
}

/// The hour, or one sentence about the failure.
pub(crate) type Known = Result<Arc<Hour>, String>;

#[derive(Debug, Default)]
struct State {
    last: Option<(Instant, Known)>,
    is_reading: bool,
}

#[derive(Debug)]
pub(crate) struct Hours {
    daemon: Endpoint,
    state: Arc<Mutex<State>>,
}

/// A replay in progress, until it is dropped.
struct Reading(Arc<Mutex<State>>);

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Reading {
    fn drop(&mut self) {
        lock(&self.0).is_reading = false;
    }
}

impl Hours {
    pub(crate) fn new(daemon: Endpoint) -> Hours {
        Hours { daemon, state: Arc::default() }
    }

    /// The hour that was read last; `None` during the first replay. Starts the next replay if it is time.
    pub(crate) fn last(&self) -> Option<Known> {
        let mut state = lock(&self.state);
        let last = state.last.clone();
        let is_due = last.as_ref().is_none_or(|(at, known)| {
            at.elapsed() >= if known.is_ok() { REST } else { REST_AFTER_FAILURE }
        });
        let begins = is_due && !state.is_reading;
        state.is_reading |= begins;
        drop(state);
        if begins {
            let (reading, daemon) = (Reading(Arc::clone(&self.state)), self.daemon.clone());
            let replay = move || {
                let known = read(&daemon).map(Arc::new).map_err(|error| format!("{error:#}"));
                lock(&reading.0).last = Some((Instant::now(), known));
                drop(reading);
            };
            // Without a thread the next request tries again.
            let _ = thread::Builder::new().spawn(replay);
        }
        last.map(|(_, known)| known)
    }
}

fn read(daemon: &Endpoint) -> anyhow::Result<Hour> {
    let dir = recorded_dir(daemon).map_err(anyhow::Error::msg)?;
    let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().saturating_sub(HOUR);
    let deadline = Instant::now() + READ_TIME;
    let goes_on = || Instant::now() < deadline;
    let mut pasts = Vec::new();
    for (begin, path) in tape::segments(&dir)?.iter().rev().take_while(|_| goes_on()) {
        let mut past = Past::new(None);
        past.window = Window { since, until: Duration::MAX };
        past.step = Some(STEP);
        match open(path) {
            Ok(tape) => past.play(path, tape, goes_on),
            // Files of other versions and damaged ones are named by `history`.
            Err(error) if error.is::<TapeError>() => {}
            Err(error) => return Err(error),
        }
        pasts.push(past);
        if *begin <= since {
            break;
        }
    }
    let is_partial = !goes_on();
    let mut courses: BTreeMap<String, Course> = BTreeMap::new();
    for (name, course) in pasts.into_iter().rev().flat_map(|past| past.tenants) {
        let all = courses.entry(name).or_default();
        all.ticks.extend(course.ticks);
        all.episodes.extend(course.episodes);
    }
    if courses.is_empty() {
        bail!("{}: nothing of the last hour is recorded there", dir.display());
    }
    Ok(Hour { since, courses, is_partial })
}

fn open(path: &Path) -> anyhow::Result<Tape> {
    let bytes = fs::metadata(path).map_or(0, |meta| meta.len());
    ensure!(
        bytes <= SEGMENT_MAX_BYTES,
        "{}: it has {} MiB, and this page reads files of up to {} MiB: `tenantctl history` shows it",
        path.display(),
        bytes >> 20,
        SEGMENT_MAX_BYTES >> 20
    );
    let tape = Tape::open(path)?;
    let nr_nodes = tape.control.tree().len();
    ensure!(
        nr_nodes <= NODES_MAX,
        "the policy has {nr_nodes} tenants and groups, and this page shows the course of up to {NODES_MAX}: `tenantctl history \
         TENANT` shows it"
    );
    Ok(tape)
}
