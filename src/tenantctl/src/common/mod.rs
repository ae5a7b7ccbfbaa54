//! Parts of several commands.

pub mod client;
pub mod complete;
pub mod exit;
pub mod file;
pub mod indices;
pub mod machine;
pub mod output;
pub(crate) mod readers;
pub mod rows;
pub(crate) mod stale;
