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
//! | [`notify`] | telling the service manager how it goes |
//! | `enforce` | everything that changes the host, journal first |
//! | [`cost`] | what the agent itself uses |

pub mod cgroup;
pub mod cost;
pub mod enforce;
pub mod journal;
pub mod kernfs;
pub mod machine;
pub mod notify;
pub mod process;
pub mod systemd;
pub mod topology;
