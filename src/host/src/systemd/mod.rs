//! Cgroups that systemd owns, changed through systemd.
//!
//! **Problem.** On a systemd host every cgroup of a unit has one writer, systemd: a value that another
//! program writes into a unit's files is overwritten whenever systemd has a reason to write there (its
//! document `CGROUP_DELEGATION.md`). Values set through `SetUnitProperties` stay, also over `daemon-reload`
//! and `daemon-reexec`. But D-Bus does not behave like a kernel file: a call can take seconds, the bus can be
//! away, a call can succeed and the file not follow.
//!
//! **Terms.** A *property* is systemd's name for a knob, a *setting* a property with its value. Properties
//! that are set at run time (`runtime = true`) are stored as *drop-ins*, small files below `/run`. An *order*
//! is one request to systemd, an *answer* its result.
//!
//! **Shape.** [`UnitManager`] is the interface: orders go in, answers come out, in the same order, and
//! neither waits unless told to. It has two implementations: [`Messenger`], whose thread carries the orders
//! to the real bus, and `tenantd_sim::SimUnits`, a systemd in memory on top of any kernel. The state of the
//! units of tenants, and what is journalled before a change, are in `tenantd::backend::systemd`.
//!
//! **How a unit is given back.** Found by experiment on systemd 252 and 257: there is no call that unsets one
//! property. Removing a drop-in leaves the cgroup's files as they are, after `daemon-reload` too; `systemctl
//! revert` also removes the administrator's drop-ins. So each property is set to its old value, which brings
//! the files back; then the drop-ins that were not there before are removed; then systemd reloads its
//! configuration, once for all units, and forgets the drop-ins. A unit that does not run gets a cgroup when
//! it is set, so the drop-ins that it had are written back instead. A unit that was masked, or lost its file,
//! while it runs is not loaded any more: `SetUnitProperties` refuses it, `SetProperties` of the unit itself
//! accepts the value and writes no file, and neither changes when it is loaded again. Systemd writes no file
//! of it then, so the old values are written directly.
//!
//! | file | contents |
//! |---|---|
//! | [`property`] | the property of each knob, and its value on the bus |
//! | [`slice_name`] | the slice of a tenant |
//! | `order` | what is asked, and what comes of it |
//! | `connect` | the systemd of this host |
//! | [`messenger`] | a thread that waits, so that the tick need not |
//! | `object_path` | the path on the bus of a unit |
//! | [`bus`] | D-Bus: the only place that names cgroups-rs and zbus |

pub mod bus;
mod connect;
pub mod messenger;
mod object_path;
mod order;
pub mod property;
pub mod slice_name;

pub use connect::of_this_host;
pub use messenger::Messenger;
pub use order::{
    Answer, Held, Order, Reply, RunResult, UnitError, UnitManager, UnitState, carry_out_all,
};
pub use property::{Property, PropertyValue, Setting};
