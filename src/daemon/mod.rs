//! The shell around the pure core: one agent, its tick, and the loop that calls it.
//!
//! | file | what it does |
//! |---|---|
//! | [`agent`] | an agent on one host: start, tick, stop |
//! | [`tick`] | one tick: sample, decide, act, publish |
//! | `attach` | opening the tenants' cgroups, and noticing that one went |
//! | [`enforce`] | everything that changes the host: making, enabling, moving, writing, journal first |
//! | `seats` | where each tenant's cgroup is, and who owns it |
//! | `units` | tenants that are units of systemd |
//! | [`claims`] | from the policy's `match` to users and groups by number |
//! | `drift` | what the files hold, and who wins where someone else wrote there |
//! | [`effect`] | whether what was written can take effect |
//! | `pinning` | widths and sets of CPUs: topology, hotplug, joining a cpuset |
//! | `placement_store` | where the tenants were placed, kept over a restart |
//! | [`publish`] | telling each tenant its width |
//! | [`residents`] | who lives in the cgroups that were made, over a restart |
//! | [`restore`] | putting everything back, from the journal alone |
//! | `unit_restore` | giving units back to systemd as they were |
//! | `unpin` | emptying a list of CPUs that processes live under |
//! | [`event_loop`] | epoll, timer and signals around an agent |

pub mod agent;
mod attach;
pub mod claims;
mod drift;
pub mod effect;
pub mod enforce;
pub mod event_loop;
mod pinning;
mod placement_store;
pub mod publish;
pub mod residents;
pub mod restore;
mod seats;
pub mod tick;
mod unit_restore;
mod units;
mod unpin;
