//! Everything that changes the host: made, enabled, moved, written. The journal comes first, always.
//!
//! Each function here records what it is about to do, does it, and checks that it was done. A record that
//! fails stops the act, so that nothing is ever changed that could not be put back.
//!
//! | file | what it does |
//! |---|---|
//! | `error` | why a change was not made |
//! | `enforcer` | what may change the host; making cgroups and enabling their controllers |
//! | `remedy` | what helps where another file of the cgroup makes a value invalid |
//! | `write` | writing values, with the checks before and after |
//! | `freeze` | freezing the processes of a cgroup, and thawing them |
//! | `moves` | moving processes, and forgetting those that have ended |

mod enforcer;
mod error;
mod freeze;
mod moves;
mod remedy;
mod write;

pub use enforcer::{AGENT_CGROUP, Enforcer};
pub use enforcer::{CONTROLLERS, SUBTREE_CONTROL};
pub use error::EnforceError;
pub use error::with_causes;
pub use remedy::remedy;
pub use write::{cpus_of, taken};
