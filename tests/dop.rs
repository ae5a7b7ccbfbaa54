//! Tests of `dop`: how wide each tenant runs, and where.

mod cpuset;
mod machines;
mod placement;
mod sysfs;
mod topology;
