//! Cgroups that systemd owns, changed through systemd.
//!
//! **Problem.** On a systemd host every cgroup of a unit has one writer, and it is not us: what somebody else
//! writes into a unit's files is overwritten whenever systemd has a reason to write there (its document
//! `CGROUP_DELEGATION.md`). What systemd is told through `SetUnitProperties` stays, also over
//! `daemon-reload` and `daemon-reexec`. But D-Bus has none of the manners of a kernel file: a call can take
//! seconds, the bus can be away, a call can succeed and the file not follow.
//!
//! **Terms.** A *property* is what systemd calls a knob, a *setting* a property with its value. Properties
//! that are set at run time (`runtime = true`) are kept as *drop-ins*, small files below `/run`. An *order*
//! is one thing asked of systemd, an *answer* what came of it.
//!
//! **Shape.** [`UnitManager`] is the seam: orders go in, answers come out, in the same order, and neither
//! ever waits unless told to. It has two implementations: [`Messenger`], whose thread carries the orders to
//! the real bus, and [`crate::sim::SimUnits`], a systemd in memory on top of any kernel. What is known of the
//! units of tenants, and what is written down before anything is changed, stands in `daemon::units`.
//!
//! **How a unit is given back.** Found by experiment on systemd 252 and 257: there is no call that takes one
//! property back. A drop-in that is removed leaves the cgroup's files as they are, after `daemon-reload` too;
//! `systemctl revert` would take the administrator's drop-ins along. So: each property is set to the value
//! that it had, which brings the files back; then the drop-ins that were not there before are removed; then
//! systemd reads its configuration again, once for all units, which makes it forget the drop-ins. A unit that does
//! not run gets a cgroup when it is set, so the drop-ins that it had are written back instead. A unit that was masked,
//! or lost its file, while it runs is not loaded any more: `SetUnitProperties` refuses it, `SetProperties` of the unit
//! itself takes the value and writes no file, and neither changes when it is loaded again. No file of it is
//! written by systemd then, so what it held is written into them directly.
//!
//! | file | what it knows |
//! |---|---|
//! | [`property`] | which property each knob is, and how its value is spelled |
//! | [`slice_name`] | the slice of a tenant |
//! | `order` | what is asked, and what comes of it |
//! | `connect` | the systemd of this host |
//! | [`messenger`] | a thread that waits, so that the tick need not |
//! | [`bus`] | D-Bus: the only file that names cgroups-rs and zbus |

pub mod bus;
mod connect;
pub mod messenger;
mod order;
pub mod property;
pub mod slice_name;

pub use connect::of_this_host;
pub use messenger::Messenger;
pub use order::{Answer, Held, Order, Reply, UnitError, UnitManager, UnitState, carry_out};
pub use property::{Property, PropertyValue, Setting};
