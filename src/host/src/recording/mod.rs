//! Recordings on disk: what the control loop was given, in a ring of files.
//!
//! **Problem.** "Who starved at 03:00, and why?" is asked in the morning, when the counters of the night are gone. A
//! recorder must not be a load of its own, fill the disk, or hold up a tick; and what is recorded has to be there after a
//! crash, which is what is asked about most.
//!
//! **Form.** A directory of *segments*, `00000017.rec`, in the order of their numbers. Each begins with the whole control
//! loop as it was, so that any segment can be replayed without those before it, and goes on with [*events*](
//! tenantd_control::event) in *chunks* of a few seconds, each compressed by itself ([`segment`]). The ring drops whole
//! segments, the oldest first, as soon as it is larger or older than the policy says ([`ring`]).
//!
//! **Loss.** A chunk is written by one call when it is complete, so a kill loses the seconds since the last one. It counts
//! only where its length and its checksum agree; what follows the last such chunk is the *torn tail*, which readers leave
//! out and the next recorder cuts. A new agent begins a new segment, so nothing is ever appended to a damaged one. Nothing
//! is synced: a power failure may take the last half a minute as well, which is the kernel's interval of writing back.
//!
//! **Failures.** Files are written by a thread ([`writer`]), which a tick hands its bytes to and never waits for. Where the
//! disk is full or refuses, or the thread is behind by several chunks, the segment ends there, a finding reports it, and a
//! new segment begins a minute later. There is a gap in the recording then, and never a wrong value in it.
//!
//! **Reading.** Files are read where they are, with or without a running tenantd, by every user that may read the
//! directory ([`tape`]). A segment of another version of tenantd, whose loop has other fields, is recognised by its
//! fingerprint and left out with its version.
//!
//! **Properties** (`tests/history/ring.rs`): every cut of a file gives a beginning of the same events; the ring never
//! exceeds its size by more than the segment that is written; failed writes end nothing.

pub mod recorder;
pub mod ring;
pub mod segment;
pub mod tape;
pub mod writer;
