//! One file of a recording: a head, then chunks.
//!
//! | head | bytes |
//! |---|---|
//! | [`MAGIC`] | 15 |
//! | [`LAYOUT`] | 1 |
//! | fingerprint of the recorded types ([`tenantd_control::tick::event::format`]) | 8 |
//! | begin, in milliseconds since 1970 | 8 |
//!
//! A **chunk** has its compressed and its inflated size, four bytes each (little endian), and then the data in
//! zlib format with its checksum. The data are values in postcard's format.
//!
//! The first chunk is the *beginning* ([`Beginning`]): the version of tenantd, the name of the host, and the
//! control loop. Every other chunk has the wall clock, the agent's own time of the same instant, and events.
//! An event is a [row](super::rows) with the key [`EVENT`]. The nodes of an input are rows of their own that follow
//! it; their keys are their numbers, from 1.

use std::time::Duration;

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;
use serde::{Deserialize, Serialize};

use super::rows::{Columns, Last, Rows};
use tenantd_control::state::step::NodeInput;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;

/// First bytes of every file.
pub const MAGIC: &[u8; 15] = b"tenantd record ";
/// Layout of the chunks; a newline until 2026.
pub const LAYOUT: u8 = b'2';
/// Bytes of the head.
pub const HEAD_BYTES: usize = 32;
/// Most inflated bytes of the beginning: the control loop of ten thousand tenants takes a quarter of that.
const BEGINNING_BYTES_MAX: usize = 64 << 20;
/// Most inflated bytes of another chunk, and most bytes of its rows: a reader needs some forty times as much.
pub const EVENTS_BYTES_MAX: usize = 16 << 20;
/// Compression level of zlib: higher ones take twice the time for almost the same size.
const LEVEL: u8 = 6;
/// Key of an event's row.
pub const EVENT: u32 = 0;

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Layout of the chunks.
    pub layout: u8,
    /// Fingerprint of the recorded types.
    pub format: u64,
    /// Begin of the segment, since 1970.
    pub begin: Duration,
}

impl Head {
    /// Bytes in the file.
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..15].copy_from_slice(MAGIC);
        bytes[15] = self.layout;
        bytes[16..24].copy_from_slice(&self.format.to_le_bytes());
        bytes[24..].copy_from_slice(&(self.begin.as_millis() as u64).to_le_bytes());
        bytes
    }

    /// Parses the head of a file; `None` if it is not a recording.
    pub fn of(bytes: &[u8]) -> Option<Head> {
        let (layout, rest) = bytes.strip_prefix(MAGIC)?.split_first()?;
        let number = |at: usize| Some(u64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?));
        Some(Head { layout: *layout, format: number(0)?, begin: Duration::from_millis(number(8)?) })
    }
}

/// Compresses the data of a chunk for the file.
pub fn chunk(data: &[u8]) -> Vec<u8> {
    let packed = compress_to_vec_zlib(data, LEVEL);
    let mut chunk = Vec::with_capacity(packed.len() + 8);
    chunk.extend((packed.len() as u32).to_le_bytes());
    chunk.extend((data.len() as u32).to_le_bytes());
    chunk.extend(packed);
    chunk
}

/// Inflates the chunk of `file` at `at`, and returns its end; `None` if the tail is torn.
pub fn inflate(file: &[u8], at: usize) -> Option<(Vec<u8>, usize)> {
    let number = |at: usize| {
        let bytes = file.get(at..at.checked_add(4)?)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let (packed, inflated) = (number(at)?, number(at.checked_add(4)?)?);
    let end = at.checked_add(8)?.checked_add(packed)?;
    let most = if at == HEAD_BYTES { BEGINNING_BYTES_MAX } else { EVENTS_BYTES_MAX };
    (inflated <= most).then_some(())?;
    let bytes = decompress_to_vec_zlib_with_limit(file.get(at + 8..end)?, inflated).ok()?;
    (bytes.len() == inflated).then_some((bytes, end))
}

/// Number of bytes of `file` up to the end of the last whole chunk.
pub fn whole_bytes(file: &[u8]) -> usize {
    if Head::of(file).is_none() {
        return 0;
    }
    let mut at = HEAD_BYTES;
    while let Some((_, end)) = inflate(file, at) {
        at = end;
    }
    at
}

/// First chunk of a segment.
#[derive(Clone, Debug, Deserialize)]
pub struct Beginning {
    /// Version of the recording tenantd.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// The control loop before the first event.
    pub control: ControlLoop,
}

impl Beginning {
    /// Data of its chunk. Fails if they are more than a reader takes.
    pub fn data(version: &str, host: &str, control: &ControlLoop) -> postcard::Result<Vec<u8>> {
        let data = postcard::to_allocvec(&(version, host, control))?;
        if data.len() > BEGINNING_BYTES_MAX {
            return Err(postcard::Error::SerializeBufferFull);
        }
        Ok(data)
    }

    /// Reads only the version, which every tenantd can read.
    pub fn version(data: &[u8]) -> postcard::Result<String> {
        postcard::take_from_bytes(data).map(|(version, _)| version)
    }

    /// Reads the beginning in this chunk.
    pub fn of(data: &[u8]) -> postcard::Result<Beginning> {
        let (beginning, rest): (Beginning, _) = postcard::take_from_bytes(data)?;
        let control = &beginning.control;
        let is_whole = control.states().len() == control.tree().len() && rest.is_empty();
        is_whole.then_some(beginning).ok_or(postcard::Error::DeserializeBadEncoding)
    }
}

/// The same instant on the wall clock and in the agent's own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// Since 1970.
    pub wall: Duration,
    /// Since the agent's fixed instant.
    pub now: Duration,
}

impl Clock {
    /// Wall-clock time at the agent's time `now`.
    pub fn wall_at(&self, now: Duration) -> Duration {
        self.wall.saturating_add(now).saturating_sub(self.now)
    }
}

/// Appends the rows of an event.
pub fn put(event: &Event, rows: &mut Rows) -> postcard::Result<()> {
    rows.push(EVENT, event)?;
    if let Event::Step(input) = event {
        for (key, node) in (EVENT + 1..).zip(&input.nodes) {
            rows.push(key, node)?;
        }
    }
    Ok(())
}

/// Data of a chunk of these rows.
pub fn data(clock: Clock, rows: &Rows, last: &mut Last) -> postcard::Result<Vec<u8>> {
    postcard::to_allocvec(&(clock, Columns::of(rows, last)))
}

/// Reads the events of a chunk.
pub fn events(data: &[u8], last: &mut Last) -> Option<(Clock, Vec<Event>)> {
    let ((clock, columns), rest): ((Clock, Columns), _) = postcard::take_from_bytes(data).ok()?;
    let rows = columns.rows(last, EVENTS_BYTES_MAX).filter(|_| rest.is_empty())?;
    let mut events = Vec::new();
    for (key, bytes) in rows.iter() {
        if key == EVENT {
            events.push(value(bytes)?);
            continue;
        }
        let Some(Event::Step(input)) = events.last_mut() else { return None };
        input.nodes.push(value::<NodeInput>(bytes)?);
    }
    Some((clock, events))
}

fn value<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Option<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}
