//! Cgroups that systemd owns, changed through systemd.
//!
//! **Problem.** On a systemd host every cgroup of a unit has one writer, systemd, which overwrites foreign
//! values (its document `CGROUP_DELEGATION.md`). Values set through `SetUnitProperties` stay, even over
//! `daemon-reload` and `daemon-reexec`. But D-Bus differs from a kernel file: a call can take seconds, the bus
//! can be away, and a call can succeed while the file does not follow.
//!
//! **Terms.** A *property* is systemd's name for a knob, a *setting* a property with its value. Properties set
//! at run time are stored as *drop-ins*, small files below `/run`. An *order* is one request to systemd, an
//! *answer* its result.
//!
//! **Interface.** [`UnitManager`] takes orders and returns answers in the same order, without waiting. It has
//! two implementations: [`Messenger`], whose thread executes the orders on the real bus, and
//! `tenantd_sim::SimUnits`, a systemd in memory. The state of the tenants' units is in the agent's
//! `backend::systemd`.
//!
//! **Restoring a unit** (by experiment on systemd 252 and 257). No call unsets one property. Removing a drop-in
//! does not change the cgroup's files, even after `daemon-reload`; `systemctl revert` also removes the
//! administrator's drop-ins. So:
//!
//! 1. Set each property to its old value, which restores the files.
//! 2. Remove the drop-ins that were not there before.
//! 3. Reload systemd's configuration, once for all units, which forgets the drop-ins.
//!
//! Setting a unit that does not run makes a cgroup for it, so its old drop-ins are written instead. A unit that
//! was masked or lost its file while it runs is not loaded any more, and systemd refuses its settings or writes
//! no file. So its old values are written directly.
//!
//! | file | contents |
//! |---|---|
//! | [`property`] | the value of a property on the bus |
//! | [`slice_name`] | the slice of a tenant |
//! | `order` | orders to systemd and their answers |
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
    Answer, Held, Order, Reply, RunResult, ScopeProcess, UnitError, UnitManager, UnitState,
    carry_out_all,
};
pub use property::{Property, PropertyValue, Setting};
