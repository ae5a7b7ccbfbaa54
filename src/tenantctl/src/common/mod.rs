//! Parts of several commands.

pub(crate) mod awaited;
pub mod complete;
pub mod exit;
pub mod file;
pub mod host_size;
pub mod job_options;
pub mod machine;
pub mod output;
pub(crate) mod readers;
pub mod rows;
pub(crate) mod stale;
