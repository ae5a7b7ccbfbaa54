//! The shell around the pure core: one agent, its tick, and the loop that calls it.
//!
//! | file | what it does |
//! |---|---|
//! | [`agent`] | an agent on one host: start, tick, stop |
//! | [`tick`] | one tick: sample, decide, act, publish |
//! | `attach` | opening the tenants' cgroups, and noticing that one went |
//! | [`enforce`] | everything that changes the host: making, enabling, moving, writing, journal first |
//! | [`claims`] | from the policy's `match` to users and groups by number |
//! | [`effect`] | whether what was written can take effect |
//! | `pinning` | widths and sets of CPUs: topology, hotplug, joining a cpuset |
//! | `placement_store` | where the tenants were placed, kept over a restart |
//! | [`publish`] | telling each tenant its width |
//! | `show` | what a tick leaves for whoever asks |
//! | [`residents`] | who lives in the cgroups that were made, over a restart |
//! | [`restore`] | putting everything back, from the journal alone |
//! | `unpin` | emptying a list of CPUs that processes live under |
//! | [`event_loop`] | epoll, timer and signals around an agent |

pub mod agent;
mod attach;
pub mod claims;
pub mod effect;
pub mod enforce;
pub mod event_loop;
mod pinning;
mod placement_store;
pub mod publish;
pub mod residents;
pub mod restore;
mod show;
pub mod tick;
mod unpin;
