//! The tenants of the policy in force on this host.
//!
//! | file | contents |
//! |---|---|
//! | `base` | a policy resolved on this host |
//! | `recorded` | the control loop with the recorder of its events |
//! | `attached` | attached work across restarts |

pub(crate) mod attached;
pub(crate) mod base;
pub(crate) mod recorded;
