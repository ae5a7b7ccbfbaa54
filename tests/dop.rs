//! Tests of `dop`: how wide each tenant runs, and where.

mod band;
mod command;
mod cpuset;
mod machines;
mod map;
mod placement;
mod stillness;
mod sysfs;
mod target;
mod tenant;
mod topology;
mod transition;
