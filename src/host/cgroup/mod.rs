//! Cgroups of both hierarchies, read and written through [`crate::host::kernfs::KernFs`].
//!
//! | file | what it knows |
//! |---|---|
//! | [`mount`] | which hierarchy the machine has and where the agent stands in it |
//! | [`parse`] | the text formats |
//! | [`dialect`] | how a knob is spelled in each hierarchy |
//! | [`readings`] | single readings of files that are not kept open |
//! | [`group`] | one cgroup with its kept files: sampling, observing, writing |

pub mod dialect;
pub mod group;
pub mod mount;
pub mod parse;
pub mod readings;

pub use group::Cgroup;
pub use mount::{Dialect, Facet, Layout, LayoutError, Tree};
pub use readings::{ReadError, memory_sample, observe_in, thread_samples, usage_usec};
