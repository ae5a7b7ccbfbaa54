//! Parts of several commands.

pub mod client;
pub mod exit;
pub mod file;
pub mod machine;
pub mod output;
pub mod rows;
