//! The agent of one host: sample, step, apply, report.
//!
//! | file | contents |
//! |---|---|
//! | [`state`] | the parts of an agent, and what others read of them |
//! | `start` | start and stop |
//! | `tick` | one tick |
//! | [`attach`] | attaching running work to tenants |
//! | [`mode`] | beginning and ending to enforce |
//! | `deaths` | kills for lack of memory, with their causes |
//! | `names` | numbers of the names in the policy, which may arrive late |
//! | `divide` | settings of disks that the policy divides |
//! | `victims` | marks of the work that ends first when memory runs out |
//! | `transition` | exchanging the policy, its found tenants and the mode |

pub mod attach;
mod deaths;
mod divide;
pub mod mode;
mod names;
mod start;
pub mod state;
mod tick;
mod transition;
mod victims;

pub use crate::jobs::reply::JobAnswer;
pub use crate::start_error::StartError;
pub use crate::tenants::state::Options;
pub use mode::ChangeError;
pub use state::Agent;
