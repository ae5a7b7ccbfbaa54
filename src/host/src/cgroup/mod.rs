//! Cgroups of both hierarchies, read and written through [`crate::kernfs::KernFs`].
//!
//! | file | contents |
//! |---|---|
//! | [`mount`] | the hierarchy of the machine, and the agent's place in it |
//! | [`parse`] | the text formats |
//! | [`dialect`] | spelling of knobs in each hierarchy |
//! | [`disk_limits`] | limits of disks, a line for each |
//! | [`readings`] | single readings of files that are not kept open |
//! | [`threads`] | threads of a cgroup and of those inside it |
//! | [`last`] | values of an earlier sample that are still valid |
//! | [`group`] | one cgroup with its kept files: sampling, observing, writing |

pub mod dialect;
pub mod disk_limits;
pub mod group;
pub mod last;
pub mod mount;
pub mod parse;
pub mod readings;
pub mod threads;

pub use dialect::{read_unified, spell_unified};
pub use group::Cgroup;
pub use last::{Known, Last};
pub use mount::{Facet, Layout, LayoutError, Tree};
pub use readings::{
    ReadError, memory_sample, memory_sample_of_unit, nr_throttled, observe_in, pids_sample,
    thread_samples, usage_usec,
};
pub use threads::Threads;
