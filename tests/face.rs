//! What an administrator sees and installs: metrics, the status page, `top`, generated files, packages.

mod blocks;
mod browser;
mod colours;
mod daemon;
mod documents;
mod generate;
mod inside;
mod keys;
mod metrics;
mod monitoring;
mod openmetrics;
mod packages;
mod page;
mod serve;
mod specification;
mod tenants;
pub(crate) mod terminal;
mod top;
