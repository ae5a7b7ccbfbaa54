//! What one agent leaves to the next, and to `tenantd --restore`.
//!
//! | file | what it does |
//! |---|---|
//! | [`leftover`] | what an agent left behind: taken up by the next one, or put back |
//! | `keeper` | what is kept in the state directory beside the journal |
//! | [`restore`] | putting everything back, from the journal alone |
//! | `processes` | processes on their way from one cgroup to another |
//! | `unit_restore` | giving units back to systemd as they were |
//! | `unit_debts` | what is still to be given back of units |
//! | [`restored`] | what came of that, and what is still owed |
//! | [`residents`] | processes that live in the cgroups that were made, over a restart |
//! | `placement_store` | where the tenants were placed, over a restart |
//! | [`dop_files`] | the file in which each tenant finds its degree of parallelism |
//! | `deadline` | how long systemd may be waited for |
//! | `unpin` | emptying a list of CPUs that processes run under |

pub(super) mod deadline;
pub mod dop_files;
mod keeper;
pub mod leftover;
pub(super) mod placement_store;
pub(super) mod processes;
pub mod residents;
pub mod restore;
pub mod restored;
mod unit_debts;
pub(super) mod unit_restore;
mod unpin;
