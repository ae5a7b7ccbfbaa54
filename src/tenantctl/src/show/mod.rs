//! Commands that show the course of use: the screen, the page, metrics, and history.

pub(crate) mod disk;
pub mod history;
pub mod metrics;
pub mod serve;
pub mod status;
mod tenants;
pub mod top;
