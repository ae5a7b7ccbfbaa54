//! All changes of the host: making, enabling, moving, writing. The journal always comes first.
//!
//! Each function records its change, makes it, and checks the result. A failed record stops the change, so that
//! every change can be undone.
//!
//! | file | contents |
//! |---|---|
//! | `error` | reasons for failed changes |
//! | `enforcer` | access to change the host; making cgroups and enabling their controllers |
//! | `remedy` | remedies if another file of the cgroup makes a value invalid |
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
pub use remedy::{IDLE, remedy};
pub use write::{cpus_of, taken};
