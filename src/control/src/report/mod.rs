//! Types that report a tick: status, reasons, the trace, and explanations for the wire.

pub mod disk;
pub mod explanation;
pub mod reason;
pub mod status;
pub mod trace;
