//! Reading a recording: segments, and their events with wall-clock times.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ring;
use super::rows::Last;
use super::segment::{self, Beginning, HEAD_BYTES, Head, LAYOUT, MAGIC};
use tenantd_control::state::step::Decision;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{self, Event};
use tenantd_core::kernel_text::text_of_name;

/// Reason for a failed reading.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    /// A file or directory is unreadable.
    #[error("cannot read {path}")]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not a recording.
    #[error(
        "{0}: not a recording of tenantd, or damaged in its first bytes; name the directory of `tenantd --history`, or \
         another file of it"
    )]
    NotARecording(PathBuf),
    /// The recording has other types than this tenantd.
    #[error(
        "{path}: recorded by {recorder}, whose recorded types differ, so this version cannot read it; replay it with \
         that version"
    )]
    OtherVersion {
        /// The path.
        path: PathBuf,
        /// The recording tenantd, such as "tenantd 0.1.0".
        recorder: String,
    },
    /// The file is damaged from its beginning on.
    #[error(
        "{0}: cut off or damaged in its first chunk, so none of it can be replayed; replay other files of its directory"
    )]
    Torn(PathBuf),
}

impl TapeError {
    /// True if the ring has dropped the file since it was listed.
    pub fn is_gone(&self) -> bool {
        matches!(self, TapeError::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}

/// Files of a recording.
#[derive(Debug, Default)]
pub struct Listing {
    /// Segments with their begin, oldest first.
    pub segments: Vec<(Duration, PathBuf)>,
    /// Files with the name of a segment that are none, or cannot be read.
    pub damaged: Vec<Damage>,
}

/// Damage to one file of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Name of the file.
    pub file: String,
    /// Bytes at its end that cannot be read; `None` for the whole file.
    pub unread_bytes: Option<u64>,
    /// The damage as a sentence, without the name.
    pub text: String,
}

impl Damage {
    /// Damage that leaves nothing of the file at `path`; `None` for one that is gone or of another version.
    pub fn of(path: &Path, error: &TapeError) -> Option<Damage> {
        let text = match error {
            TapeError::OtherVersion { .. } => return None,
            _ if error.is_gone() => return None,
            TapeError::Unreadable { source, .. } => format!("cannot be read: {source}"),
            TapeError::NotARecording(_) => "damaged in its first bytes, or not a recording".into(),
            TapeError::Torn(_) => {
                "damaged or cut off before its second chunk: nothing of it can be read".into()
            }
        };
        Some(Damage { file: name_of(path), unread_bytes: None, text })
    }

    /// Damage at the end of the file at `path`, which was played to the end; `None` if there is none.
    pub fn at_end(path: &Path, tape: &Tape) -> Option<Damage> {
        let unread_bytes = tape.torn_at.map(|at| tape.file.len().saturating_sub(at) as u64)?;
        let text =
            format!("damaged, or cut off by a crash: its last {unread_bytes} bytes cannot be read");
        Some(Damage { file: name_of(path), unread_bytes: Some(unread_bytes), text })
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.text)
    }
}

fn name_of(path: &Path) -> String {
    path.file_name().map(text_of_name).unwrap_or_default()
}

/// Segments of a file or directory with their begin, oldest first.
///
/// Other files in a directory are skipped.
pub fn segments(path: &Path) -> Result<Vec<(Duration, PathBuf)>, TapeError> {
    listing(path).map(|listing| listing.segments)
}

/// Files of the recording at `path`, which is a directory or one of its files.
pub fn listing(path: &Path) -> Result<Listing, TapeError> {
    let unreadable = |source| TapeError::Unreadable { path: path.to_path_buf(), source };
    let mut listing = Listing::default();
    if !fs::metadata(path).map_err(unreadable)?.is_dir() {
        listing.segments.push((head(path)?.begin, path.to_path_buf()));
        return Ok(listing);
    }
    for (_, path) in ring::segments(path).map_err(unreadable)? {
        match head(&path) {
            Ok(head) => listing.segments.push((head.begin, path)),
            Err(error) => listing.damaged.extend(Damage::of(&path, &error)),
        }
    }
    Ok(listing)
}

/// Checks that this version can replay the segment at `path`, reading only the head if possible.
pub fn check(path: &Path) -> Result<(), TapeError> {
    if is_readable(&head(path)?) { Ok(()) } else { Tape::open(path).map(|_| ()) }
}

fn is_readable(head: &Head) -> bool {
    const FORMAT: u64 = event::format();
    head.layout == LAYOUT && head.format == FORMAT
}

fn head(path: &Path) -> Result<Head, TapeError> {
    use io::Read;
    let unreadable = |source| TapeError::Unreadable { path: path.to_path_buf(), source };
    let mut bytes = Vec::new();
    let mut file = fs::File::open(path).map_err(unreadable)?;
    file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut bytes).map_err(unreadable)?;
    head_of(&bytes, path)
}

fn head_of(file: &[u8], path: &Path) -> Result<Head, TapeError> {
    let is_begun = file.iter().zip(MAGIC).all(|(byte, wanted)| byte == wanted);
    let error = if is_begun { TapeError::Torn } else { TapeError::NotARecording };
    Head::of(file).ok_or_else(|| error(path.to_path_buf()))
}

/// A segment during its replay.
#[derive(Debug)]
pub struct Tape {
    /// Version of the recording tenantd.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// The control loop before the next event.
    pub control: ControlLoop,
    last: Last,
    file: Vec<u8>,
    at: usize,
    /// Begin of the chunk of the remaining events.
    chunk_at: usize,
    /// Remaining events of a chunk, and the time of its clock.
    events: std::vec::IntoIter<Event>,
    clock: segment::Clock,
    /// Begin of the chunk that could not be read.
    torn_at: Option<usize>,
}

/// One tick of a replay.
#[derive(Debug)]
pub struct Played {
    /// Wall-clock time, since 1970.
    pub wall: Duration,
    /// Time since the agent's fixed instant.
    pub now: Duration,
    /// The decision.
    pub decision: Decision,
}

impl Tape {
    /// Opens the segment at `path`. Fails if the file is unreadable, damaged at its beginning, or of another
    /// version.
    pub fn open(path: &Path) -> Result<Tape, TapeError> {
        let file = fs::read(path)
            .map_err(|source| TapeError::Unreadable { path: path.to_path_buf(), source })?;
        let head = head_of(&file, path)?;
        let other = |recorder| TapeError::OtherVersion { path: path.to_path_buf(), recorder };
        if head.layout != LAYOUT {
            let age = if head.layout < LAYOUT { "an older" } else { "a newer" };
            return Err(other(format!("{age} tenantd")));
        }
        let torn = || TapeError::Torn(path.to_path_buf());
        let (first, at) = segment::inflate(&file, HEAD_BYTES).ok_or_else(torn)?;
        if !is_readable(&head) {
            let version = Beginning::version(&first).map_err(|_| torn())?;
            return Err(other(format!("tenantd {version}")));
        }
        let Beginning { version, host, control } = Beginning::of(&first).map_err(|_| torn())?;
        let (last, events) = (Last::default(), Vec::new().into_iter());
        let clock = segment::Clock::default();
        Ok(Tape {
            version,
            host,
            control,
            last,
            file,
            at,
            chunk_at: at,
            events,
            clock,
            torn_at: None,
        })
    }

    /// True if the segment ended in a torn tail.
    pub fn is_torn(&self) -> bool {
        self.torn_at.is_some()
    }

    /// Returns the next event without applying it to the loop; `None` at the end of the whole chunks.
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.next() {
                if event.fits(self.control.tree().len()) {
                    return Some(event);
                }
                self.end();
                return None;
            }
            if self.at >= self.file.len() {
                return None;
            }
            self.chunk_at = self.at;
            let chunk = segment::inflate(&self.file, self.at);
            let read = chunk.and_then(|(data, end)| {
                self.at = end;
                segment::events(&data, &mut self.last)
            });
            let Some((clock, events)) = read else {
                self.end();
                return None;
            };
            (self.clock, self.events) = (clock, events.into_iter());
        }
    }

    fn end(&mut self) {
        self.torn_at = Some(self.chunk_at);
        self.at = self.file.len();
        self.events = Vec::new().into_iter();
    }

    /// Wall-clock time at the agent's time `now`.
    pub fn wall_at(&self, now: Duration) -> Duration {
        self.clock.wall_at(now)
    }

    /// Plays to the end of the next tick, which leaves the loop as after that tick; `None` at the end.
    pub fn play(&mut self) -> Option<Played> {
        loop {
            let event = self.next_event()?;
            let now = match &event {
                Event::Step(input) => input.now,
                _ => Duration::ZERO,
            };
            if let Some(decision) = self.control.apply(event) {
                return Some(Played { wall: self.wall_at(now), now, decision });
            }
        }
    }
}
