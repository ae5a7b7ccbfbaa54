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
//! | [`messenger`] | a thread that waits, so that the tick need not |
//! | [`bus`] | D-Bus: the only file that names cgroups-rs and zbus |

pub mod bus;
pub mod messenger;
pub mod property;
pub mod slice_name;

pub use messenger::Messenger;
pub use property::{Property, PropertyValue, Setting};

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// One thing asked of systemd.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// What does systemd know of this unit? It is loaded where it can be; answered by [`Reply::Unit`].
    Look {
        /// The unit.
        unit: String,
    },
    /// Starts a slice; one that nobody has a file of is transient, and goes without a trace when stopped.
    StartSlice {
        /// The slice.
        unit: String,
        /// What `systemctl status` calls it.
        description: String,
    },
    /// Sets properties at run time, all in one call.
    Set {
        /// The unit.
        unit: String,
        /// The properties and their values.
        settings: Vec<Setting>,
    },
    /// Gives drop-ins of a unit that does not run, where there are any, the text that they had; see
    /// [`Order::Reload`].
    Rewrite {
        /// The unit.
        unit: String,
        /// The properties and the texts.
        drop_ins: Vec<(Property, String)>,
    },
    /// Removes the drop-ins of properties that were set at run time; see [`Order::Reload`].
    Forget {
        /// The unit.
        unit: String,
        /// The properties.
        properties: Vec<Property>,
    },
    /// Removes the drop-ins that say exactly these settings, and leaves those that say something else; see
    /// [`Order::Reload`].
    ForgetOurs {
        /// The unit.
        unit: String,
        /// The settings.
        settings: Vec<Setting>,
    },
    /// Makes systemd read its configuration again.
    Reload,
    /// Stops a unit, and with it everything that requires it; refused where one of them is about to start.
    Stop {
        /// The unit.
        unit: String,
    },
}

impl Order {
    /// The unit it concerns.
    pub fn unit(&self) -> &str {
        match self {
            Order::Look { unit }
            | Order::StartSlice { unit, .. }
            | Order::Set { unit, .. }
            | Order::Rewrite { unit, .. }
            | Order::Forget { unit, .. }
            | Order::ForgetOurs { unit, .. }
            | Order::Stop { unit } => unit,
            Order::Reload => "",
        }
    }
}

/// What a successful order gives.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// It was done, as far as systemd says; whether a value arrived, the file tells.
    Done,
    /// What systemd knows of a unit.
    Unit(UnitState),
}

/// What systemd knows of a unit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnitState {
    /// The name that systemd calls it by; it may have others, and its drop-ins are found under this one alone.
    pub id: String,
    /// Whether there is such a unit (`LoadState` is `loaded`).
    pub is_loaded: bool,
    /// Whether it runs (`ActiveState` is `active`, or on its way from or to it).
    pub is_active: bool,
    /// Whether it exists only until it is stopped.
    pub is_transient: bool,
    /// Tells one life of a transient unit from the next of the same name, and not one run from the next: what was
    /// set of it outlasts a restart, and goes when it is unloaded. Empty for a unit that has a file.
    pub life: String,
    /// Its cgroup from the mount, beginning with `/`; empty where it has none.
    pub cgroup: String,
    /// The units that stop when it stops: those in a slice are among them.
    pub required_by: Vec<String>,
    /// What its properties hold; of a unit that does not run nothing is told.
    pub held: Vec<Held>,
}

/// What one property of a unit holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The property and its value.
    pub setting: Setting,
    /// The text of its drop-in, where somebody set it at run time.
    pub drop_in: Option<String>,
}

/// An order, and what came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The order.
    pub order: Order,
    /// What systemd said.
    pub outcome: Result<Reply, UnitError>,
}

/// Why systemd did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The bus cannot be reached, or went away: try again later.
    #[error("systemd cannot be reached over D-Bus: {0}")]
    Away(String),
    /// The bus is there and nothing came back in time: whether it was done is not known.
    #[error("systemd has not answered for {} s", .0.as_secs())]
    Late(Duration),
    /// There is no such unit, or it was unloaded meanwhile.
    #[error("systemd knows no unit {0}")]
    NoSuchUnit(String),
    /// Not permitted.
    #[error("not permitted to change {unit}: {message}; run as root")]
    Denied {
        /// The unit.
        unit: String,
        /// What systemd said.
        message: String,
    },
    /// Systemd refused it for another reason.
    #[error("systemd refused for {unit}: {message}")]
    Refused {
        /// The unit.
        unit: String,
        /// What systemd said.
        message: String,
    },
}

impl UnitError {
    /// Whether it is about the bus and not about a unit: every other order would fail as well.
    pub fn is_about_the_bus(&self) -> bool {
        matches!(self, UnitError::Away(_) | UnitError::Late(_))
    }
}

/// Whoever carries out orders: systemd, or what stands in for it.
///
/// Answers come in the order of the orders, one for each.
pub trait UnitManager: fmt::Debug {
    /// Hands in an order. Never waits.
    fn submit(&mut self, order: Order);

    /// The next answer, if it comes within `patience`; with none it never waits.
    fn answer(&mut self, patience: Duration) -> Option<Answer>;
}

/// The systemd that runs this host, if one does; it is connected to with the first order.
pub fn of_this_host() -> Option<Box<dyn UnitManager>> {
    const RUN: &str = "/run/systemd";
    let recruit = || {
        let mut bus = bus::Bus::new(RUN, messenger::DEADLINE);
        move |order: &Order| bus.carry_out(order)
    };
    // As sd_booted(3) tells.
    let is_booted = Path::new(RUN).join("system").is_dir();
    is_booted.then(|| Box::new(Messenger::new(recruit, messenger::DEADLINE)) as _)
}

/// Hands in `order` and waits for its answer, at most `patience`. Answers to earlier orders are dropped.
///
/// # Errors
/// What systemd said, or [`UnitError::Late`].
pub fn carry_out(
    units: &mut dyn UnitManager,
    order: Order,
    patience: Duration,
) -> Result<Reply, UnitError> {
    let deadline = Instant::now() + patience;
    units.submit(order.clone());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match units.answer(left) {
            Some(answer) if answer.order == order => return answer.outcome,
            Some(_) => {}
            None => return Err(UnitError::Late(patience)),
        }
    }
}
