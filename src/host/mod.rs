//! The machine: kernel files, cgroups of both hierarchies, processes, the journal.

pub mod kernfs;
pub mod topology;
