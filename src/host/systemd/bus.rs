//! Systemd on the system bus: the only file that names cgroups-rs and zbus.
//!
//! Properties are set through `cgroups_rs::systemd::SystemdClient`. Five limitations of it are handled here
//! and by the callers. It returns Ok for a unit that is not loaded, and for a bus that is away (so both are
//! checked first, and the file afterwards). It has no deadline ([`super::Messenger`]). It cannot start a
//! slice without a process (so slices are started here). It stops a unit even where that cancels a start that
//! was just requested (so they are stopped here). Its masks of CPUs have the bytes in the wrong order beyond
//! CPU 7 (so they are built in [`super::property`]). It connects anew for each call; all other calls share
//! one connection, made when it is needed and again after the bus went away.

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cgroups_rs::systemd::SystemdClient;
use cgroups_rs::systemd::dbus::error::Error as ClientError;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zbus::Error as BusError;
use zbus::blocking::Connection;
use zbus::blocking::connection::Builder;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Type, Value};

use super::order::{Held, Order, Reply, UnitError, UnitState};
use super::property::{Property, PropertyValue, Setting};

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Fail rather than replace a job that another client waits for.
const MODE: &str = "fail";

/// Where systemd keeps what was set at run time: for units with a file, and for transient ones.
const DROP_INS: [&str; 2] = ["system.control", "transient"];

/// Systemd, over the system bus.
#[derive(Debug)]
pub struct Bus {
    connection: Option<Connection>,
    /// `/run/systemd`.
    run: PathBuf,
    /// How long one call may take.
    timeout: Duration,
}

impl Bus {
    /// Connects with the first order. `run` is where systemd keeps its run-time files.
    pub fn new(run: impl Into<PathBuf>, timeout: Duration) -> Bus {
        Bus { connection: None, run: run.into(), timeout }
    }

    /// Executes one order; waits until systemd has answered.
    ///
    /// # Errors
    /// What systemd said.
    pub fn carry_out(&mut self, order: &Order) -> Result<Reply, UnitError> {
        let outcome = match order {
            Order::Look { unit } => self.look(unit).map(Reply::Unit),
            Order::StartSlice { unit, description } => self.start_slice(unit, description),
            Order::Set { unit, settings } => self.set(unit, settings),
            Order::Rewrite { unit, drop_ins } => self.rewrite(unit, drop_ins),
            Order::Forget { unit, properties } => self.forget(unit, properties),
            Order::ForgetOurs { unit, settings } => self.forget_ours(unit, settings),
            Order::Reload => self.call::<_, ()>(MANAGER_PATH, MANAGER, "Reload", &()).map(done),
            Order::Stop { unit } => self
                .call::<_, OwnedObjectPath>(MANAGER_PATH, MANAGER, "StopUnit", &(unit, MODE))
                .map(done),
        };
        let outcome = outcome.map_err(|fault| fault.about(order.unit()));
        if outcome.as_ref().is_err_and(UnitError::is_about_the_bus) {
            self.connection = None;
        }
        outcome
    }

    /// Three calls for a unit that runs, and two for one that does not: there may be many of those.
    fn look(&mut self, unit: &str) -> Result<UnitState, Fault> {
        let path: OwnedObjectPath = self.call(MANAGER_PATH, MANAGER, "LoadUnit", &(unit,))?;
        let mut of_unit = self.all(&path, UNIT)?;
        let active: String = of_unit.take("ActiveState")?;
        let mut state = UnitState {
            id: of_unit.take("Id")?,
            is_loaded: of_unit.take::<String>("LoadState")? == "loaded",
            is_active: ["active", "activating", "reloading", "deactivating"].contains(&&*active),
            is_transient: of_unit.take("Transient")?,
            required_by: of_unit.take("RequiredBy")?,
            ..UnitState::default()
        };
        if state.is_transient {
            state.life = life(&of_unit.take::<String>("FragmentPath")?);
        }
        let Some(kind) = interface(&state.id).filter(|_| state.is_active) else { return Ok(state) };
        let mut of_kind = self.all(&path, kind)?;
        state.cgroup = of_kind.take("ControlGroup")?;
        for property in Property::ALL {
            let value = match property.unset() {
                PropertyValue::Number(_) => PropertyValue::Number(of_kind.take(property.name())?),
                PropertyValue::Mask(_) => PropertyValue::Mask(of_kind.take(property.name())?),
            };
            let text =
                |file: PathBuf| Some(String::from_utf8_lossy(&fs::read(file).ok()?).into_owned());
            let drop_in = self.drop_ins(&state.id, property).find_map(text);
            state.held.push(Held { setting: Setting { property, value }, drop_in });
        }
        Ok(state)
    }

    fn set(&mut self, unit: &str, settings: &[Setting]) -> Result<Reply, Fault> {
        // The client would return Ok where the unit is not loaded, and also where the bus is away.
        let _: OwnedObjectPath = self.call(MANAGER_PATH, MANAGER, "GetUnit", &(unit,))?;
        let value = |setting: &Setting| match &setting.value {
            PropertyValue::Number(number) => Value::from(*number),
            PropertyValue::Mask(mask) => Value::from(mask.clone()),
        };
        let properties: Vec<cgroups_rs::systemd::Property<'static>> =
            settings.iter().map(|setting| (setting.property.name(), value(setting))).collect();
        client(unit)?.set_properties(&properties).map_err(of_client).map(done)
    }

    fn start_slice(&mut self, unit: &str, description: &str) -> Result<Reply, Fault> {
        let properties = [("Description", Value::from(description))];
        let nothing: [(&str, Vec<(&str, Value<'_>)>); 0] = [];
        let arguments = (unit, MODE, &properties[..], &nothing[..]);
        let started: Result<OwnedObjectPath, Fault> =
            self.call(MANAGER_PATH, MANAGER, "StartTransientUnit", &arguments);
        match started {
            // There is a file for it, or it is loaded already.
            Err(fault) if fault.name == "org.freedesktop.systemd1.UnitExists" => self
                .call::<_, OwnedObjectPath>(MANAGER_PATH, MANAGER, "StartUnit", &(unit, MODE))
                .map(done),
            started => started.map(done),
        }
    }

    /// Systemd has no call for this: the files are removed, and forgotten with the next reload.
    fn forget(&self, unit: &str, properties: &[Property]) -> Result<Reply, Fault> {
        for file in properties.iter().flat_map(|property| self.drop_ins(unit, *property)) {
            remove(fs::remove_file(&file), &file)?;
        }
        self.remove_empty(unit)
    }

    /// Systemd writes a drop-in anew whenever the property is set, so its text identifies the writer.
    fn forget_ours(&self, unit: &str, settings: &[Setting]) -> Result<Reply, Fault> {
        for setting in settings {
            for file in self.drop_ins(unit, setting.property) {
                if fs::read_to_string(&file).is_ok_and(|text| setting.is_said_by(&text)) {
                    remove(fs::remove_file(&file), &file)?;
                }
            }
        }
        self.remove_empty(unit)
    }

    /// Removes the directories of a unit's drop-ins where nothing is left in them.
    fn remove_empty(&self, unit: &str) -> Result<Reply, Fault> {
        for dir in DROP_INS.map(|dir| self.run.join(dir).join(format!("{unit}.d"))) {
            match fs::remove_dir(&dir) {
                // Drop-ins of others stay.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                outcome => remove(outcome, &dir)?,
            }
        }
        Ok(Reply::Done)
    }

    /// To set a property of a unit that does not run would make a cgroup for it (seen on 257).
    fn rewrite(&self, unit: &str, drop_ins: &[(Property, String)]) -> Result<Reply, Fault> {
        for (property, text) in drop_ins {
            for file in self.drop_ins(unit, *property).filter(|file| file.exists()) {
                fs::write(&file, text).map_err(|error| {
                    Fault::new(format!("cannot write {}: {error}", file.display()))
                })?;
            }
        }
        Ok(Reply::Done)
    }

    fn drop_ins(&self, unit: &str, property: Property) -> impl Iterator<Item = PathBuf> + use<> {
        let file = Path::new(&format!("{unit}.d")).join(property.drop_in());
        let run = self.run.clone();
        DROP_INS.into_iter().map(move |dir| run.join(dir).join(&file))
    }

    fn all(&mut self, path: &OwnedObjectPath, interface: &str) -> Result<Properties, Fault> {
        self.call(path.as_str(), PROPERTIES, "GetAll", &(interface,)).map(Properties)
    }

    fn call<B, R>(
        &mut self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<R, Fault>
    where
        B: Serialize + Type,
        R: DeserializeOwned + Type,
    {
        let connection = match &self.connection {
            Some(connection) => connection,
            None => {
                let builder = Builder::system().map_err(away)?.method_timeout(self.timeout);
                self.connection.insert(builder.build().map_err(away)?)
            }
        };
        let reply = connection
            .call_method(Some(SYSTEMD), path, Some(interface), method, body)
            .map_err(of_bus)?;
        reply.body().deserialize().map_err(of_bus)
    }
}

/// The properties of one interface of a unit.
struct Properties(HashMap<String, OwnedValue>);

impl Properties {
    fn take<T>(&mut self, name: &str) -> Result<T, Fault>
    where
        T: TryFrom<OwnedValue>,
        T::Error: std::fmt::Display,
    {
        let value = self.0.remove(name).ok_or_else(|| Fault::new(format!("no {name}")))?;
        T::try_from(value).map_err(|error| Fault::new(format!("{name}: {error}")))
    }
}

fn done<T>(_: T) -> Reply {
    Reply::Done
}

fn remove(outcome: io::Result<()>, path: &Path) -> Result<(), Fault> {
    match outcome {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Fault::new(format!("cannot remove {}: {error}", path.display())))
        }
        _ => Ok(()),
    }
}

/// The file of a transient unit is made with the unit, and removed when it is unloaded: its identity
/// distinguishes one life of the unit from the next.
fn life(fragment: &str) -> String {
    let identity =
        |file: fs::Metadata| format!("{}:{}.{}", file.ino(), file.ctime(), file.ctime_nsec());
    fs::metadata(fragment).map(identity).unwrap_or_default()
}

/// The interface that has the resource properties of `unit`.
fn interface(unit: &str) -> Option<&'static str> {
    match unit.rsplit_once('.')?.1 {
        "service" => Some("org.freedesktop.systemd1.Service"),
        "slice" => Some("org.freedesktop.systemd1.Slice"),
        "scope" => Some("org.freedesktop.systemd1.Scope"),
        _ => None,
    }
}

fn client(unit: &str) -> Result<SystemdClient<'static>, Fault> {
    SystemdClient::new(unit, Vec::new()).map_err(of_client)
}

// === what went wrong ===

/// An error of the bus: its name on it, empty where it has none, and its text.
#[derive(Debug)]
struct Fault {
    name: String,
    text: String,
    is_away: bool,
}

impl Fault {
    fn new(text: String) -> Fault {
        Fault { name: String::new(), text, is_away: false }
    }

    fn about(self, unit: &str) -> UnitError {
        let (unit, message) = (unit.to_string(), self.text);
        match self.name.as_str() {
            _ if self.is_away => UnitError::Away(message),
            "org.freedesktop.systemd1.NoSuchUnit" => UnitError::NoSuchUnit(unit),
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

/// Whatever prevents a connection, systemd cannot be reached now.
fn away(error: BusError) -> Fault {
    Fault { is_away: true, ..of_bus(error) }
}

fn of_bus(error: BusError) -> Fault {
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

fn of_client(error: ClientError) -> Fault {
    match error {
        ClientError::Dbus(error) => of_bus(error),
        ClientError::InvalidProperties => Fault::new(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_ins_that_are_there_get_their_text_back() {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("system.control/web.service.d");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("50-MemoryLow.conf"), "ours").unwrap();
        let mut bus = Bus::new(run.path(), Duration::ZERO);
        let of = |property| (property, "theirs".to_string());
        let drop_ins = [Property::MemoryLow, Property::MemoryMax].map(of).to_vec();
        let order = Order::Rewrite { unit: "web.service".into(), drop_ins };
        assert_eq!(bus.carry_out(&order), Ok(Reply::Done));
        assert_eq!(fs::read_to_string(dir.join("50-MemoryLow.conf")).unwrap(), "theirs");
        assert!(!dir.join("50-MemoryMax.conf").exists());
    }

    #[test]
    fn a_drop_in_that_says_something_else_is_left() {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("system.control/web.service.d");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("50-MemoryLow.conf"), "[Service]\nMemoryLow=7\n").unwrap();
        let mut bus = Bus::new(run.path(), Duration::ZERO);
        for (low, is_left) in [(8, true), (7, false)] {
            let setting =
                Setting { property: Property::MemoryLow, value: PropertyValue::Number(low) };
            let order = Order::ForgetOurs { unit: "web.service".into(), settings: vec![setting] };
            assert_eq!(bus.carry_out(&order), Ok(Reply::Done));
            assert_eq!(dir.exists(), is_left);
        }
    }

    #[test]
    fn drop_ins_are_removed_and_those_of_others_stay() {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("system.control/web.service.d");
        let transient = run.path().join("transient/web.service.d");
        for dir in [&dir, &transient] {
            fs::create_dir_all(dir).unwrap();
            fs::write(dir.join("50-CPUQuota.conf"), "").unwrap();
        }
        fs::write(dir.join("50-MemoryHigh.conf"), "").unwrap();
        let mut bus = Bus::new(run.path(), Duration::ZERO);
        let properties = vec![Property::CpuQuotaPerSecUsec, Property::MemoryLow];
        let order = Order::Forget { unit: "web.service".into(), properties };
        // What is gone already counts as removed.
        for _ in 0..2 {
            assert_eq!(bus.carry_out(&order), Ok(Reply::Done));
        }
        assert!(!transient.exists());
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["50-MemoryHigh.conf"]);
    }
}
