//! The shell around the pure core: one agent, its tick, and the loop that calls it.
//!
//! | file | what it does |
//! |---|---|
//! | [`agent`] | an agent on one host: start, tick, stop |
//! | [`handover`] | what one agent leaves to the next, and to `--restore` |
//! | [`tick`] | one tick: sample, decide, act, publish |
//! | `planning` | what is to be written in a tick |
//! | `attach` | opening the tenants' cgroups, and noticing that one went |
//! | [`enforce`] | everything that changes the host: making, enabling, moving, writing, journal first |
//! | `seats` | where each tenant's cgroup is, and who owns it |
//! | `units` | tenants that are units of systemd |
//! | `posts` | what is known of each of those units |
//! | [`claims`] | from the policy's `match` to users and groups by number |
//! | [`service`] | the agent with its policy on disk, its socket, and whoever started it |
//! | `findings` | what is wrong, in the log, and not every second |
//! | `drift` | what the files hold, and who wins where someone else wrote there |
//! | `above` | what the cgroups above the tenants take away |
//! | [`effect`] | whether what was written can take effect |
//! | `pinning` | widths and sets of CPUs: topology, hotplug, joining a cpuset |
//! | `placement_store` | where the tenants were placed, kept over a restart |
//! | [`publish`] | telling each tenant its width |
//! | `record` | what a tick leaves so that it can be explained |
//! | `show` | what a tick leaves for whoever asks |
//! | `root` | taking the cgroup under which the tenants are made |
//! | [`reload`] | taking up another policy while the agent runs |
//! | `ready` | the part of a reload that may fail |
//! | [`switch`] | beginning and ending to enforce, while the agent runs |
//! | `policy_watch` | noticing that the policy on disk changed |
//! | [`residents`] | who lives in the cgroups that were made, over a restart |
//! | [`restore`] | putting everything back, from the journal alone |
//! | `restored` | what came of that, and what is still owed |
//! | `unit_debts` | what is still to be given back of units |
//! | `unit_restore` | giving units back to systemd as they were |
//! | `patience` | how long may be waited for systemd |
//! | `unpin` | emptying a list of CPUs that processes live under |
//! | [`event_loop`] | epoll, timer and signals around an agent |

mod above;
pub mod agent;
mod attach;
pub mod claims;
mod drift;
pub mod effect;
pub mod enforce;
pub mod event_loop;
mod findings;
pub mod handover;
mod patience;
mod pinning;
mod placement_store;
mod planning;
mod policy_watch;
mod posts;
pub mod publish;
mod ready;
mod record;
pub mod reload;
pub mod residents;
pub mod restore;
mod restored;
mod root;
mod seats;
pub mod service;
mod show;
pub mod switch;
pub mod tick;
mod unit_debts;
mod unit_restore;
mod units;
mod unpin;
