//! The machine: kernel files, cgroups of both hierarchies, processes, the journal.
//!
//! | file | contents |
//! |---|---|
//! | [`kernfs`] | the only interface to the kernel: reading and writing kernel files |
//! | [`cgroup`] | cgroups of both hierarchies |
//! | [`knobs`] | the table of knobs: files and property of each |
//! | [`disks`] | disks of the host |
//! | [`disk_settings`] | settings of a disk that the policy divides |
//! | [`machine`] | CPUs and memory of the host |
//! | [`private`] | files of the state directory, with checks of their owner |
//! | [`process`] | processes: origin, owner, place and use |
//! | [`devices`] | devices that are closed to a job |
//! | [`claiming`] | rules that claim processes, and the search by them |
//! | [`topology`] | sockets, nodes, caches and cores, from sysfs |
//! | [`systemd`] | cgroups that systemd owns |
//! | [`journal`] | the values from before the agent |
//! | [`recording`] | inputs of the control loop, in a ring of files |
//! | [`notify`] | notifications to the service manager |
//! | `enforce` | every change of the host, journal first |
//! | [`valve`] | the job server of a job, through which a build follows its width |
//! | [`cost`] | CPU time and memory of the agent itself |

#![deny(missing_docs)]

pub mod cgroup;
pub mod claiming;
pub mod cost;
pub mod devices;
pub mod disk_settings;
pub mod disks;
pub mod enforce;
pub mod journal;
pub mod kernfs;
pub mod knobs;
pub mod machine;
pub mod notify;
pub mod private;
pub mod process;
pub mod recording;
pub mod systemd;
pub mod topology;
pub mod valve;
pub mod ways;
