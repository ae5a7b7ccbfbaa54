//! Faults on the way to systemd and back.

use cgroups_rs::systemd::NO_SUCH_UNIT;
use zbus::Error as BusError;

use crate::systemd::order::UnitError;

/// An error of the bus, with its name there (empty if it has none) and its text.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) name: String,
    text: String,
    is_away: bool,
}

impl Fault {
    pub(super) fn away(text: String) -> Fault {
        Fault { is_away: true, ..Fault::new(text) }
    }

    pub(super) fn new(text: String) -> Fault {
        Fault { name: String::new(), text, is_away: false }
    }

    pub(super) fn about(self, unit: &str) -> UnitError {
        let (unit, message) = (unit.to_string(), self.text);
        match self.name.as_str() {
            _ if self.is_away => UnitError::Away(message),
            NO_SUCH_UNIT => UnitError::NoSuchUnit(unit),
            "org.freedesktop.DBus.Error.AccessDenied"
            | "org.freedesktop.DBus.Error.InteractiveAuthorizationRequired" => {
                UnitError::Denied { unit, message }
            }
            _ => UnitError::Refused { unit, message },
        }
    }
}

/// Errors of the bus itself: systemd cannot be reached at the moment.
const AWAY: [&str; 6] = [
    "org.freedesktop.DBus.Error.Disconnected",
    "org.freedesktop.DBus.Error.NameHasNoOwner",
    "org.freedesktop.DBus.Error.NoReply",
    "org.freedesktop.DBus.Error.ServiceUnknown",
    "org.freedesktop.DBus.Error.Timeout",
    "org.freedesktop.DBus.Error.TimedOut",
];

/// Any failure to connect means that systemd cannot be reached now.
pub(super) fn away(error: BusError) -> Fault {
    Fault { is_away: true, ..of_bus(error) }
}

pub(super) fn of_bus(error: BusError) -> Fault {
    match &error {
        BusError::MethodError(name, message, _) => {
            let name = name.to_string();
            let text = message.clone().unwrap_or_else(|| name.clone());
            Fault { is_away: AWAY.contains(&&*name), name, text }
        }
        BusError::Connection(..)
        | BusError::InputOutput(_)
        | BusError::Handshake(_)
        | BusError::Address(_) => Fault { is_away: true, ..Fault::new(error.to_string()) },
        _ => Fault::new(error.to_string()),
    }
}
