//! One file of a recording: a head, then chunks.
//!
//! | head | bytes |
//! |---|---|
//! | [`MAGIC`] | 16 |
//! | fingerprint of the recorded types ([`tenantd_control::tick::event::format`]) | 8 |
//! | begin, in milliseconds since 1970 | 8 |
//!
//! A **chunk** has two parts, tokens and bits ([`tenantd_core::codec::Out`]). Each part has its compressed and
//! its inflated size, four bytes each (little endian), and then the data in zlib format with its checksum.
//!
//! The first chunk is the *beginning* ([`Beginning`]): the version of tenantd, the name of the host, and the
//! control loop. Every other chunk has the wall clock in milliseconds, the agent's own time of the same
//! instant, and events.

use std::time::Duration;

use miniz_oxide::deflate::compress_to_vec_zlib;
use miniz_oxide::inflate::decompress_to_vec_zlib_with_limit;

use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{Event, Memory};
use tenantd_core::codec::{Coded, In, Out, Torn};

/// First bytes of every file.
pub const MAGIC: &[u8; 16] = b"tenantd record \n";
/// Bytes of the head.
pub const HEAD_BYTES: usize = 32;
/// Most inflated bytes of a part: the control loop of ten thousand tenants takes a quarter of that.
const PART_BYTES_MAX: usize = 64 << 20;
const CLOCK_BYTES: usize = 20;
/// Compression level of zlib: higher ones take twice the time for almost the same size.
const LEVEL: u8 = 6;

/// The head of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Fingerprint of the recorded types.
    pub format: u64,
    /// Begin of the segment, since 1970.
    pub begin: Duration,
}

impl Head {
    /// Bytes in the file.
    pub fn bytes(&self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..16].copy_from_slice(MAGIC);
        bytes[16..24].copy_from_slice(&self.format.to_le_bytes());
        bytes[24..].copy_from_slice(&(self.begin.as_millis() as u64).to_le_bytes());
        bytes
    }

    /// Parses the head of a file; `None` if it is not a recording.
    pub fn of(bytes: &[u8]) -> Option<Head> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let number = |at: usize| Some(u64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?));
        Some(Head { format: number(0)?, begin: Duration::from_millis(number(8)?) })
    }
}

/// Contents of a chunk: tokens, which compress well, and bits, which hardly do.
pub type Parts = (Vec<u8>, Vec<u8>);

/// Compresses a chunk for the file.
pub fn chunk((tokens, bits): &Parts) -> Vec<u8> {
    let mut chunk = Vec::new();
    for part in [tokens, bits] {
        let packed = compress_to_vec_zlib(part, LEVEL);
        chunk.extend((packed.len() as u32).to_le_bytes());
        chunk.extend((part.len() as u32).to_le_bytes());
        chunk.extend(packed);
    }
    chunk
}

fn part(file: &[u8], at: usize) -> Option<(Vec<u8>, usize)> {
    let number = |at: usize| {
        let bytes = file.get(at..at.checked_add(4)?)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    let (packed, inflated) = (number(at)?, number(at.checked_add(4)?)?);
    let end = at.checked_add(8)?.checked_add(packed)?;
    (inflated <= PART_BYTES_MAX).then_some(())?;
    let bytes = decompress_to_vec_zlib_with_limit(file.get(at + 8..end)?, inflated).ok()?;
    (bytes.len() == inflated).then_some((bytes, end))
}

/// Inflates the chunk of `file` at `at`, and returns its end; `None` if the tail is torn.
pub fn inflate(file: &[u8], at: usize) -> Option<(Parts, usize)> {
    let (tokens, at) = part(file, at)?;
    let (bits, end) = part(file, at)?;
    Some(((tokens, bits), end))
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
#[derive(Clone, Debug)]
pub struct Beginning {
    /// Version of the recording tenantd.
    pub version: String,
    /// Name of the host.
    pub host: String,
    /// The control loop before the first event.
    pub control: ControlLoop,
}

impl Beginning {
    /// Contents of its chunk.
    pub fn parts(version: &str, host: &str, control: &ControlLoop) -> Parts {
        let mut out = Out::default();
        version.to_string().put(&mut String::new(), &mut out);
        host.to_string().put(&mut String::new(), &mut out);
        control.put(&mut ControlLoop::blank(), &mut out);
        out.split()
    }

    /// Reads only the version, which every tenantd can read.
    pub fn version((tokens, bits): &Parts) -> Result<String, Torn> {
        String::take(&mut String::new(), &mut In::new(tokens, bits))
    }

    /// Reads the beginning in this chunk.
    pub fn of((tokens, bits): &Parts) -> Result<Beginning, Torn> {
        let mut from = In::new(tokens, bits);
        let version = String::take(&mut String::new(), &mut from)?;
        let host = String::take(&mut String::new(), &mut from)?;
        let control = ControlLoop::take(&mut ControlLoop::blank(), &mut from)?;
        let is_whole = control.states().len() == control.tree().len() && from.left() == 0;
        is_whole.then_some(Beginning { version, host, control }).ok_or(Torn)
    }
}

/// The same instant on the wall clock and in the agent's own time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// Since 1970, in whole milliseconds.
    pub wall: Duration,
    /// Since the agent's fixed instant.
    pub now: Duration,
}

impl Clock {
    /// Wall-clock time at the agent's time `now`.
    pub fn wall_at(&self, now: Duration) -> Duration {
        (self.wall + now).saturating_sub(self.now)
    }

    fn bytes(&self) -> [u8; CLOCK_BYTES] {
        let mut bytes = [0; CLOCK_BYTES];
        bytes[..8].copy_from_slice(&(self.wall.as_millis() as u64).to_le_bytes());
        bytes[8..16].copy_from_slice(&self.now.as_secs().to_le_bytes());
        bytes[16..].copy_from_slice(&self.now.subsec_nanos().to_le_bytes());
        bytes
    }

    fn take(from: &mut In<'_>) -> Result<Clock, Torn> {
        let bytes = from.raw(CLOCK_BYTES)?;
        let number = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes);
        let nanos = bytes[16..].try_into().map(u32::from_le_bytes).map_err(|_| Torn)?;
        let (wall, seconds) = (number(0).map_err(|_| Torn)?, number(8).map_err(|_| Torn)?);
        if nanos >= 1_000_000_000 {
            return Err(Torn);
        }
        Ok(Clock { wall: Duration::from_millis(wall), now: Duration::new(seconds, nanos) })
    }
}

/// Makes a chunk of these events.
pub fn of_events(clock: Clock, out: &mut Out) -> Parts {
    let (tokens, bits) = out.split();
    ([&clock.bytes()[..], &tokens].concat(), bits)
}

/// Reads the events of a chunk.
pub fn events((tokens, bits): &Parts, memory: &mut Memory) -> Result<(Clock, Vec<Event>), Torn> {
    let mut from = In::new(tokens, bits);
    let clock = Clock::take(&mut from)?;
    let mut events = Vec::new();
    while from.left() > 0 {
        events.push(Event::take(memory, &mut from)?);
    }
    Ok((clock, events))
}
