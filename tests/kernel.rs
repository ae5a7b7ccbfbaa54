//! The built programs and the seam below them on this machine's own kernel, whatever its hierarchy.
//!
//! Each test works under a root of its own, named after the test process and below our own cgroup, so that
//! runs side by side never meet, and removes it also when it fails. Nothing else of the machine is touched.
//! They are ignored unless asked for (`cargo test -- --include-ignored kernel::`), so that `cargo test` without root
//! reports them as ignored and not as passed. Asked for where no cgroup can be made, a test says in one line that it
//! is skipped; with `TENANTD_REQUIRE_KERNEL` set, as under CI, it fails instead. Nothing waits by the clock: events
//! are awaited, and shares are measured over CPU time that was really used, because the machine may be busy.

mod accounts;
mod ask;
mod background;
mod contest;
mod cpuset;
mod deaths;
mod devices;
mod disciplines;
mod disk;
mod disk_divide;
mod disk_limits;
mod disk_weights;
mod evict;
mod foreign;
mod ground;
mod hostile;
mod in_place;
mod invalid;
mod job_clients;
mod jobs;
mod kernfs;
mod life;
mod limits;
mod many_jobs;
mod me;
mod preempt;
mod rest;
mod restore;
mod run;
mod sets;
mod soak;
mod victims;
