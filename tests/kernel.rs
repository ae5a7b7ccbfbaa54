//! The built programs and the seam below them on this machine's own kernel, whatever its hierarchy.
//!
//! Each test works under a root of its own, named after the test process and below our own cgroup, so that
//! runs side by side never meet, and removes it also when it fails. Nothing else of the machine is touched.
//! Where this cannot be done a test says why in one line and passes; with `TENANTD_REQUIRE_KERNEL` set it
//! fails instead. Nothing waits by the clock: events are awaited, and shares are measured over CPU time
//! that was really used, because the machine may be busy with other things.

mod ask;
mod cpuset;
mod ground;
mod kernfs;
mod life;
mod restore;
