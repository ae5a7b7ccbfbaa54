//! Parts of several commands.

pub mod client;
pub mod exit;
pub mod file;
pub mod machine;
pub(crate) mod readers;
pub(crate) mod stale;
pub mod output;
pub mod rows;
