//! tenantd makes one Linux machine fair for all its tenants, over CPU and memory at once.
//!
//! **Problem.** Several tenants share a machine: teams on a compute server, databases on one host, users of a
//! login node. The kernel can divide each resource by weights and limits, but their values have to come from
//! outside; and the fair values depend on what every tenant could use at the moment, of all resources
//! together. Values that are set once are wrong an hour later.
//!
//! **Function.** Once a second it reads what every tenant uses, estimates what it could use, computes by
//! weighted dominant resource fairness what it is entitled to, and writes the weights and protections that
//! make the kernel enforce that. When it stops, every file holds again what it held before.
//!
//! **The rooms**, in reading order. Arrows point only downwards in this list: a room does not depend on rooms
//! further down, and the first group does not depend on Linux at all.
//!
//! | room | what it is |
//! |---|---|
//! | [`codec`] | values as bytes, exact and compact, for recordings |
//! | [`units`] | CPUs, bytes, weights, limits, and their notation |
//! | [`resource`] | what is divided, and arrays with a value for each resource |
//! | [`fair`] | the shares: max-min, DRF, hierarchies, whole tasks, measures |
//! | [`dop`] | how wide each tenant runs, and on which CPUs |
//! | [`queue`] | which waiting request goes next |
//! | [`admission`] | which job starts next, how wide, and why the others wait |
//! | [`kernel_text`] | names and small files of the kernel, which are bytes |
//! | [`accounts`] | names and numbers of users and groups, which may be late |
//! | [`policy`] | YAML in, a checked and typed model out |
//! | [`control`] | one tick as a function: samples in, ordered actions out |
//! | [`valve`] | the job server of a job, through which a build follows its width |
//! | [`host`] | the machine: kernel files, cgroups, processes, the journal |
//! | [`sim`] | a kernel in memory behind the same interface |
//! | [`varlink`] | the socket for reading and changing the agent |
//! | [`daemon`] | the agent, its tick and the loop around it |
//! | [`cli`] | the commands |
//!
//! The one interface between the agent and the world is [`host::kernfs::KernFs`].

#![deny(missing_docs)]

pub mod accounts;
pub mod admission;
pub mod cli;
pub mod codec;
pub mod control;
pub mod daemon;
pub mod dop;
pub mod fair;
pub mod host;
pub mod kernel_text;
pub mod policy;
pub mod queue;
pub mod resource;
pub mod sim;
pub mod units;
pub mod valve;
pub mod varlink;
