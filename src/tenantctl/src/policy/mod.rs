//! Commands about policy files, and the pages that are generated from their keys.

pub mod check;
pub mod generate;
pub mod init;
mod policy_page;
pub mod proposal;
pub mod survey;
