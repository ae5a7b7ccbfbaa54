//! The cgroups of tenants, behind one set of operations: attach, sample, observe, apply, release.
//!
//! The agent makes a tenant's cgroup and writes it directly, or the cgroup belongs to a unit of systemd and is
//! changed over the bus. The rest of the agent uses only [`backends::Backends`] and does not ask for the owner
//! of a cgroup.
//!
//! | file | contents |
//! |---|---|
//! | [`access`] | kernel, layout and journal: the handles to change the host and to undo it |
//! | [`location`] | location and owner of each node's cgroup |
//! | `on_host` | locations on one host, and the governed ancestors there |
//! | `ancestry` | the cgroups in the kernel's tree, and their ancestors |
//! | [`claims`] | the policy's `match` by user and group numbers, and the search for claimed processes |
//! | `discovery` | cgroups that match patterns now |
//! | `members` | units and cgroups of tenants with several |
//! | `rest` | cgroups that no tenant claims |
//! | `found` | targets and finds of the policy's templates |
//! | `place` | one node's cgroup: opened, sampled, observed |
//! | `nested_kills` | OOM kills inside a tenant's cgroup in cgroup v1 |
//! | `direct` | cgroups that the agent makes and writes itself |
//! | `in_place` | cgroups that exist without it and are written in place |
//! | `unit_state` | state of one unit of systemd |
//! | `systemd` | cgroups of units, and state of the bus |
//! | `unit_orders` | orders to set properties of units, confirmed by the files only |
//! | `bounds` | limits above the tenants that the agent makes |
//! | `cpusets` | CPUs of the machine, and moves into cpusets |
//! | `root` | taking the cgroup under which the direct ones are made |
//! | [`backends`] | state of the places across reloads |
//! | `find` | searching for templates |
//! | `attach` | opening cgroups, and closing those that went |
//! | `read` | sampling, observing, and results of orders to systemd |
//! | `backlog` | work left for the time until the next tick |
//! | `write` | moving processes, and writing or ordering values |
//! | `release` | restoring the values that a reload removes |

pub(super) mod access;
pub(super) mod ancestry;
mod attach;
pub(super) mod backends;
pub(crate) mod backlog;
pub(super) mod bounds;
mod claim_findings;
pub mod claims;
mod cpusets;
mod direct;
mod discovery;
mod find;
pub(super) mod found;
mod in_place;
pub(super) mod location;
pub(super) mod members;
mod nested_kills;
pub(super) mod on_host;
mod place;
mod read;
pub(super) mod release;
mod rest;
pub(super) mod root;
mod systemd;
mod unit_orders;
mod unit_state;
mod unmoved;
mod write;
