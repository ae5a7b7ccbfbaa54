//! Where tenants live, behind one set of verbs: attach, sample, observe, apply, release.
//!
//! A tenant's cgroup is either made by the agent and written directly, or it belongs to a unit of systemd and
//! is changed over the bus. The rest of the daemon uses only [`backends::Backends`]: no other room asks who
//! owns a cgroup.
//!
//! | file | what it does |
//! |---|---|
//! | [`access`] | the kernel, its layout and the journal: all that it takes to change the host and to undo it |
//! | [`location`] | where each node's cgroup is, and who owns it |
//! | `on_host` | the same on one host, and what is governed there |
//! | `ancestry` | where those cgroups are in the kernel's tree, and what is above them |
//! | [`claims`] | from the policy's `match` to users and groups by number |
//! | `discovery` | the cgroups that match patterns now |
//! | `members` | the units and cgroups that a tenant of several has now |
//! | `rest` | the cgroups that no tenant claims |
//! | `found` | what the templates of the policy look for, and what they found |
//! | `place` | one node's cgroup: opened, sampled, observed |
//! | `nested_kills` | kills for want of memory inside of a tenant's cgroup, on a legacy host |
//! | `direct` | cgroups that the agent makes and writes itself |
//! | `in_place` | cgroups that are there without it and are written where they are |
//! | `unit_state` | what is known of one unit of systemd |
//! | `systemd` | cgroups of units: finding them, and how the bus is doing |
//! | `unit_orders` | asking systemd for changes of units, and believing only the file |
//! | `bounds` | the limits above the tenants that the agent makes |
//! | `cpusets` | the CPUs of the machine, and what it takes to join a cpuset |
//! | `root` | taking the cgroup under which the direct ones are made |
//! | [`backends`] | what is known of the places, and how it lasts over reloads |
//! | `find` | looking for it |
//! | `attach` | opening cgroups, and letting go of those that went |
//! | `read` | sampling, observing, and what came of orders to systemd |
//! | `backlog` | values that were decided and are not written yet |
//! | `write` | moving processes, and writing values or asking for them |
//! | `release` | putting back what a reload takes away |

pub(super) mod access;
pub(super) mod ancestry;
mod attach;
pub(super) mod backends;
mod backlog;
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
