//! The tenants in force on this host.
//!
//! | file | contents |
//! |---|---|
//! | `base` | a policy resolved on this host |
//! | `recorded` | the control loop with the recorder of its events |
//! | `state` | policy, decisions, cgroups and journal of the tenants |
//! | `settle` | the root and the cgroups of members, as members come and go |
//! | `attached` | attached work across restarts |

pub(crate) mod attached;
pub(crate) mod base;
pub(crate) mod recorded;
mod settle;
pub(crate) mod state;
