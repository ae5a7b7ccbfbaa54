//! Recordings on disk: the inputs of the control loop, in a ring of files.
//!
//! **Problem.** "Which tenant starved at 03:00, and why?" is asked in the morning, when the counters of the
//! night are gone. A recorder must not cause notable load, fill the disk, or delay a tick, and its data must
//! survive a crash.
//!
//! **Format.** A directory of numbered *segments*, `00000017.rec`. Each begins with a copy of the whole control
//! loop, so that any segment can be replayed alone. Then follow [*events*](tenantd_control::tick::event) in *chunks*
//! of a few seconds, each compressed separately
//! ([`segment`]) after most numbers became small differences ([`rows`]). The ring drops whole segments, oldest first, as
//! soon as it is larger or older than the policy allows ([`ring`]).
//!
//! **Loss.** A complete chunk is written by one call, so a kill loses the seconds since the last one. A chunk
//! is valid only if its length and checksum agree. Readers ignore the bytes after the last valid chunk (the
//! *torn tail*), and the next recorder removes them and begins a new segment. Nothing is synced: a power
//! failure may also lose the last half a minute.
//!
//! **Failures.** A thread writes the files ([`writer`]); a tick hands over bytes and never waits. If the disk
//! is full or fails, or the thread is several chunks behind, the segment ends, a finding reports it, and a new
//! segment begins a minute later. The recording then has a gap, and never a wrong value.
//!
//! **Reading.** Files are read in place, with or without a running tenantd ([`tape`]). A segment of a version
//! whose loop has other fields is recognised by its fingerprint and skipped with its version.
//!
//! **Properties** (`tests/history/ring.rs`): every cut of a file gives a beginning of the same events; the ring
//! never exceeds its size by more than the present segment; failed writes end nothing.

pub mod recorder;
pub mod ring;
pub mod rows;
pub mod segment;
pub mod tape;
pub mod writer;
