//! Recordings: exact, complete, bounded, whole after a kill, and replayed bit for bit.

mod recorded;
mod ring;
mod size;
pub(crate) mod twin;
