//! What an administrator sees and installs: metrics, the status page, `top`, generated files, packages.

mod browser;
mod daemon;
mod generate;
mod metrics;
mod monitoring;
mod openmetrics;
mod packages;
mod serve;
mod top;
