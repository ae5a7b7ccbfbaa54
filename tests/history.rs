//! Recordings: exact, complete, bounded, whole after a kill, and replayed bit for bit.

mod codec;
pub(crate) mod twin;
