//! From counters of the kernel to rates.

pub mod death;
pub mod device_time;
pub mod disk;
pub mod disks;
pub mod fault;
pub mod sample;
pub mod thread_budget;
pub mod usage;
pub mod ways;
