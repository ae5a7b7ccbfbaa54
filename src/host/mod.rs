//! The machine: kernel files, cgroups of both hierarchies, processes, the journal.
//!
//! | file | what it knows |
//! |---|---|
//! | [`kernfs`] | the one seam: reading and writing kernel files |
//! | [`cgroup`] | cgroups of both hierarchies |
//! | [`machine`] | CPUs and memory of the host |
//! | [`process`] | processes and who claims them |
//! | [`topology`] | sockets, nodes, caches and cores, from sysfs |
//! | [`systemd`] | cgroups that systemd owns |
//! | [`journal`] | what the files held before us |

pub mod cgroup;
pub mod journal;
pub mod kernfs;
pub mod machine;
pub mod process;
pub mod systemd;
pub mod topology;
