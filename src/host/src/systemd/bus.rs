//! Systemd on the system bus: with its faults the only place that names cgroups-rs and zbus.
//!
//! All calls use one connection, made when needed and again after the bus went away. Calls of different orders
//! do not wait for each other: they are sent together, and the answers awaited together. Systemd handles the
//! messages of one sender in order, so later orders see the effect of earlier ones. Orders on files, and a
//! reload, wait for all calls before them.
//!
//! A look is one call. The path of a unit's object follows from its name, systemd loads the unit when the
//! object is requested, and an empty interface returns the properties of all interfaces.
//!
//! The client of cgroups-rs cannot share a connection (it makes two for each unit that is set), returns Ok for
//! a unit that is not loaded and for a bus that is away, and has no deadline. So only its constants are used.

mod fault;
mod scope;

use std::collections::HashMap;
use std::fs;
use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use cgroups_rs::systemd::Property as BusProperty;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zbus::export::futures_core::Stream;
use zbus::message::Type as MessageType;
use zbus::zvariant::{OwnedObjectPath, OwnedValue, Type, Value};
use zbus::{Connection, Error as BusError, MatchRule, Message, MessageStream, block_on};

use fault::{Fault, away, of_bus};

use super::object_path::{UNITS_PATH, object_path, unit_at};
use super::order::{Held, Order, Reply, RunResult, UnitError, UnitState};
use super::property::{Property, PropertyValue, Setting};
use tenantd_core::kernel_text::text_of;

const SYSTEMD: &str = "org.freedesktop.systemd1";
const MANAGER_PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

/// Fail rather than replace a job that another client waits for.
const MODE: &str = "fail";

/// Directories of settings made at run time: for units with a file, and for transient ones.
const DROP_INS: [&str; 2] = ["system.control", "transient"];

const RUNNING: [&str; 4] = ["active", "activating", "reloading", "deactivating"];

/// Fields of a unit in `ListUnitsByPatterns`: name, description, load state, active state, sub-state, the unit
/// that it follows, its object, and its job with type and object (org.freedesktop.systemd1(5)).
type ListedUnit =
    (String, String, String, String, String, String, OwnedObjectPath, u32, String, OwnedObjectPath);

/// Most signals kept until they are taken; further ones wait in the bus.
const SIGNALS_MAX: usize = 1024;

/// Systemd, over the system bus.
#[derive(Debug)]
pub struct Bus {
    connection: Option<Connection>,
    signals: Vec<MessageStream>,
    results: Vec<RunResult>,
    /// `/run/systemd`.
    run: PathBuf,
    timeout: Duration,
}

impl Bus {
    /// Makes a client that connects with the first order. `run` is the directory of systemd's run-time files.
    pub fn new(run: impl Into<PathBuf>, timeout: Duration) -> Bus {
        let (signals, results) = (Vec::new(), Vec::new());
        Bus { connection: None, signals, results, run: run.into(), timeout }
    }

    /// Executes orders, and waits until systemd has answered all of them. Returns the outcomes in the order of
    /// the orders.
    pub fn carry_out(&mut self, orders: &[Order]) -> Vec<Result<Reply, UnitError>> {
        let are_calls = |order: &Order, next: &Order| is_pipelined(order) && is_pipelined(next);
        let mut outcomes = Vec::with_capacity(orders.len());
        for together in orders.chunk_by(are_calls) {
            let done = self.carry_out_together(together).into_iter().zip(together);
            let begin = outcomes.len();
            outcomes
                .extend(done.map(|(done, order)| done.map_err(|fault| fault.about(order.unit()))));
            let is_lost = |outcome: &Result<Reply, UnitError>| {
                outcome.as_ref().is_err_and(UnitError::is_about_the_bus)
            };
            if outcomes[begin..].iter().any(is_lost) {
                self.connection = None;
                self.signals.clear();
            }
        }
        outcomes
    }

    fn carry_out_together(&mut self, orders: &[Order]) -> Vec<Result<Reply, Fault>> {
        let outcome = match &orders[0] {
            Order::Rewrite { unit, drop_ins } => self.rewrite(unit, drop_ins),
            Order::Forget { unit, properties } => self.forget(unit, properties),
            Order::ForgetOurs { unit, ours, before } => {
                self.forget_ours(unit, ours, before.as_deref())
            }
            Order::Watch => self.watch(),
            _ => return self.call_together(orders),
        };
        vec![outcome]
    }

    fn call_together(&mut self, orders: &[Order]) -> Vec<Result<Reply, Fault>> {
        if let Err(fault) = self.connect() {
            return orders.iter().map(|_| Err(fault.clone())).collect();
        }
        let Some(connection) = &self.connection else { return Vec::new() };
        let calls = Calls { connection, run: &self.run };
        let (signals, results) = (&mut self.signals, &mut self.results);
        // A connection reads nothing more while its queue of signals is full.
        let take = |context: &mut Context<'_>| take_results(signals, context, results);
        block_on(all_of(orders.iter().map(|order| calls.carry_out(order)), take))
    }

    fn connect(&mut self) -> Result<(), Fault> {
        if self.connection.is_none() {
            let timeout = self.timeout;
            let connection = block_on(async {
                let builder = zbus::connection::Builder::system()?;
                builder.method_timeout(timeout).build().await
            });
            self.connection = Some(connection.map_err(away)?);
        }
        Ok(())
    }

    /// Results of services since the last such order.
    fn watch(&mut self) -> Result<Reply, Fault> {
        self.connect()?;
        let Some(connection) = &self.connection else { return Ok(Reply::Done) };
        if self.signals.is_empty() {
            self.signals = block_on(subscribe(connection))?;
        }
        let (signals, results) = (&mut self.signals, &mut self.results);
        let is_over =
            block_on(poll_fn(|context| Poll::Ready(take_results(signals, context, results))));
        if is_over {
            Err(Fault::away("the connection was closed".into()))
        } else {
            Ok(Reply::Results(std::mem::take(&mut self.results)))
        }
    }

    /// Removes the files, which the next reload forgets; systemd has no call for this.
    fn forget(&self, unit: &str, properties: &[Property]) -> Result<Reply, Fault> {
        let mut is_changed = false;
        for file in properties.iter().flat_map(|property| self.drop_ins(unit, *property)) {
            is_changed |= remove(fs::remove_file(&file), &file)?;
        }
        self.remove_empty(unit, is_changed)
    }

    /// Systemd writes a new drop-in whenever the property is set, so its text identifies the writer.
    fn forget_ours(
        &self,
        unit: &str,
        ours: &Setting,
        before: Option<&str>,
    ) -> Result<Reply, Fault> {
        let mut is_changed = false;
        for file in self.drop_ins(unit, ours.property) {
            if !fs::read_to_string(&file).is_ok_and(|text| ours.is_said_by(&text)) {
                continue;
            }
            is_changed |= match before {
                Some(text) => write(&file, text)?,
                None => remove(fs::remove_file(&file), &file)?,
            };
        }
        self.remove_empty(unit, is_changed)
    }

    fn remove_empty(&self, unit: &str, is_changed: bool) -> Result<Reply, Fault> {
        for dir in DROP_INS.map(|dir| self.run.join(dir).join(format!("{unit}.d"))) {
            match fs::remove_dir(&dir) {
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => {}
                outcome => drop(remove(outcome, &dir)?),
            }
        }
        Ok(of_files(is_changed))
    }

    /// Writes the files: setting a property of a unit that does not run would make a cgroup for it (seen on
    /// 257).
    fn rewrite(&self, unit: &str, drop_ins: &[(Property, String)]) -> Result<Reply, Fault> {
        let mut is_changed = false;
        for (property, text) in drop_ins {
            for file in self.drop_ins(unit, *property).filter(|file| file.exists()) {
                is_changed |= write(&file, text)?;
            }
        }
        Ok(of_files(is_changed))
    }

    fn drop_ins(&self, unit: &str, property: Property) -> impl Iterator<Item = PathBuf> + use<> {
        drop_ins(&self.run, unit, property)
    }
}

fn drop_ins(run: &Path, unit: &str, property: Property) -> impl Iterator<Item = PathBuf> + use<> {
    let (run, file) = (run.to_path_buf(), Path::new(&format!("{unit}.d")).join(property.drop_in()));
    DROP_INS.into_iter().map(move |dir| run.join(dir).join(&file))
}

/// True if an order is a call that need not wait for the one before it.
fn is_pipelined(order: &Order) -> bool {
    matches!(
        order,
        Order::Look { .. }
            | Order::StartSlice { .. }
            | Order::StartScope { .. }
            | Order::Set { .. }
            | Order::SetDevices { .. }
            | Order::Stop { .. }
            | Order::List { .. }
    )
}

async fn all_of<F: Future>(
    futures: impl Iterator<Item = F>,
    mut also: impl FnMut(&mut Context<'_>) -> bool,
) -> Vec<F::Output> {
    let mut outputs: Vec<Option<F::Output>> = Vec::new();
    let mut futures: Vec<_> = futures.map(Box::pin).collect();
    outputs.resize_with(futures.len(), || None);
    poll_fn(|context| {
        also(context);
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(done) = future.as_mut().poll(context)
            {
                *output = Some(done);
            }
        }
        if outputs.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

async fn subscribe(connection: &Connection) -> Result<Vec<MessageStream>, Fault> {
    let mut signals = Vec::new();
    for kind in ["org.freedesktop.systemd1.Service", "org.freedesktop.systemd1.Scope"] {
        let rule = || {
            let rule = MatchRule::builder().msg_type(MessageType::Signal).sender(SYSTEMD)?;
            let rule = rule.interface(PROPERTIES)?.member("PropertiesChanged")?;
            Ok::<_, BusError>(rule.path_namespace(UNITS_PATH)?.arg(0, kind)?.build())
        };
        let rule = rule().map_err(of_bus)?;
        let stream = MessageStream::for_match_rule(rule, connection, Some(SIGNALS_MAX)).await;
        signals.push(stream.map_err(of_bus)?);
    }
    let calls = Calls { connection, run: Path::new("") };
    calls.call::<_, ()>(MANAGER_PATH, MANAGER, "Subscribe", &()).await?;
    Ok(signals)
}

fn take_results(
    signals: &mut [MessageStream],
    context: &mut Context<'_>,
    results: &mut Vec<RunResult>,
) -> bool {
    for stream in signals {
        while let Poll::Ready(message) = Pin::new(&mut *stream).poll_next(context) {
            match message {
                Some(Ok(message)) => results.extend(run_result(&message)),
                _ => return true,
            }
        }
    }
    false
}

fn run_result(message: &Message) -> Option<RunResult> {
    type Changed = (String, HashMap<String, OwnedValue>, Vec<String>);
    let unit = unit_at(message.header().path()?.as_str())?;
    let (_, mut changed, _) = message.body().deserialize::<Changed>().ok()?;
    let result = String::try_from(changed.remove("Result")?).ok()?;
    Some(RunResult { unit, is_oom_kill: result == OOM_KILL })
}

/// Result of a run that ended by an OOM kill.
const OOM_KILL: &str = "oom-kill";

struct Calls<'a> {
    connection: &'a Connection,
    run: &'a Path,
}

impl Calls<'_> {
    async fn carry_out(&self, order: &Order) -> Result<Reply, Fault> {
        match order {
            Order::Look { unit } => self.look(unit).await.map(Reply::Unit),
            Order::List { patterns } => self.list(patterns).await,
            Order::StartSlice { unit, description } => self.start_slice(unit, description).await,
            Order::StartScope { unit, slice, description, process, settings, devices } => {
                let start = async |knows_handles| {
                    let members = scope::members(process, knows_handles);
                    let mut of_all = scope::properties(slice, description, members, settings);
                    of_all.extend(devices.iter().flat_map(|it| scope::of_devices(it)));
                    self.start_transient(unit, &of_all).await
                };
                match start(true).await {
                    Err(fault) if fault.name == scope::UNKNOWN_PROPERTY => start(false).await,
                    started => started,
                }
            }
            Order::Set { unit, settings } => {
                self.set(unit, settings.iter().flat_map(scope::property).collect()).await
            }
            Order::SetDevices { unit, devices } => {
                self.set(unit, scope::of_devices(devices).into()).await
            }
            Order::Reload => {
                self.call::<_, ()>(MANAGER_PATH, MANAGER, "Reload", &()).await.map(done)
            }
            Order::Stop { unit } => self
                .call::<_, OwnedObjectPath>(MANAGER_PATH, MANAGER, "StopUnit", &(unit, MODE))
                .await
                .map(done),
            _ => Ok(Reply::Done),
        }
    }

    async fn list(&self, patterns: &[String]) -> Result<Reply, Fault> {
        let arguments = (&RUNNING[..], patterns);
        let units: Vec<ListedUnit> =
            self.call(MANAGER_PATH, MANAGER, "ListUnitsByPatterns", &arguments).await?;
        Ok(Reply::Running(units.into_iter().map(|unit| unit.0).collect()))
    }

    async fn look(&self, unit: &str) -> Result<UnitState, Fault> {
        let properties = self.call(&object_path(unit), PROPERTIES, "GetAll", &("",)).await?;
        let mut known = Properties(properties);
        let active: String = known.take("ActiveState")?;
        let mut state = UnitState {
            id: known.take("Id")?,
            is_loaded: known.take::<String>("LoadState")? == "loaded",
            is_active: RUNNING.contains(&&*active),
            is_transient: known.take("Transient")?,
            required_by: known.take("RequiredBy")?,
            is_oom_kill: known.take::<String>("Result").is_ok_and(|result| result == OOM_KILL),
            ..UnitState::default()
        };
        if state.is_transient {
            state.life = life(&known.take::<String>("FragmentPath")?);
        }
        if !state.is_active || !has_cgroup(&state.id) {
            return Ok(state);
        }
        let cgroup: String = known.take("ControlGroup")?;
        state.cgroup = text_of(cgroup.as_bytes());
        for property in Property::ALL {
            let value = match property.unset() {
                PropertyValue::Number(_) => PropertyValue::Number(known.take(property.name())?),
                PropertyValue::Mask(_) => PropertyValue::Mask(known.take(property.name())?),
                PropertyValue::Limits(_) => PropertyValue::Limits(known.take(property.name())?),
            };
            let text =
                |file: PathBuf| Some(String::from_utf8_lossy(&fs::read(file).ok()?).into_owned());
            let drop_in = drop_ins(self.run, &state.id, property).find_map(text);
            state.held.push(Held { setting: Setting { property, value }, drop_in });
        }
        Ok(state)
    }

    async fn set(&self, unit: &str, properties: Vec<BusProperty<'_>>) -> Result<Reply, Fault> {
        let arguments = (unit, true, properties);
        self.call::<_, ()>(MANAGER_PATH, MANAGER, "SetUnitProperties", &arguments).await.map(done)
    }

    async fn start_slice(&self, unit: &str, description: &str) -> Result<Reply, Fault> {
        let properties = [("Description", Value::from(description))];
        match self.start_transient(unit, &properties).await {
            // The unit has a file, or is loaded already.
            Err(fault) if fault.name == "org.freedesktop.systemd1.UnitExists" => self
                .call::<_, OwnedObjectPath>(MANAGER_PATH, MANAGER, "StartUnit", &(unit, MODE))
                .await
                .map(done),
            started => started,
        }
    }

    async fn start_transient(
        &self,
        unit: &str,
        properties: &[(&str, Value<'_>)],
    ) -> Result<Reply, Fault> {
        let nothing: [(&str, Vec<(&str, Value<'_>)>); 0] = [];
        let arguments = (unit, MODE, properties, &nothing[..]);
        self.call::<_, OwnedObjectPath>(MANAGER_PATH, MANAGER, "StartTransientUnit", &arguments)
            .await
            .map(done)
    }

    async fn call<B, R>(
        &self,
        path: &str,
        interface: &str,
        method: &str,
        body: &B,
    ) -> Result<R, Fault>
    where
        B: Serialize + Type,
        R: DeserializeOwned + Type,
    {
        let call = self.connection.call_method(Some(SYSTEMD), path, Some(interface), method, body);
        call.await.map_err(of_bus)?.body().deserialize().map_err(of_bus)
    }
}

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

fn of_files(is_changed: bool) -> Reply {
    if is_changed { Reply::Done } else { Reply::Unchanged }
}

/// Returns true if the file had another text.
fn write(file: &Path, text: &str) -> Result<bool, Fault> {
    if fs::read(file).is_ok_and(|held| held == text.as_bytes()) {
        return Ok(false);
    }
    let outcome = fs::write(file, text).map(|()| true);
    outcome.map_err(|error| Fault::new(format!("cannot write {}: {error}", file.display())))
}

/// Returns true if there was something to remove.
fn remove(outcome: io::Result<()>, path: &Path) -> Result<bool, Fault> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Fault::new(format!("cannot remove {}: {error}", path.display()))),
    }
}

/// Identity of a transient unit's file, which is made with the unit and removed when it is unloaded: it
/// distinguishes one life of the unit from the next.
fn life(fragment: &str) -> String {
    let identity =
        |file: fs::Metadata| format!("{}:{}.{}", file.ino(), file.ctime(), file.ctime_nsec());
    fs::metadata(fragment).map(identity).unwrap_or_default()
}

/// True if `unit` is of a kind whose cgroup a policy may name.
fn has_cgroup(unit: &str) -> bool {
    [".service", ".slice", ".scope"].iter().any(|kind| unit.ends_with(kind))
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
        for reply in [Reply::Done, Reply::Unchanged] {
            assert_eq!(bus.carry_out(std::slice::from_ref(&order)), [Ok(reply)]);
        }
        assert_eq!(fs::read_to_string(dir.join("50-MemoryLow.conf")).unwrap(), "theirs");
        assert!(!dir.join("50-MemoryMax.conf").exists());
    }

    #[test]
    fn a_drop_in_with_another_text_is_left() {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("system.control/web.service.d");
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("50-MemoryLow.conf"), "[Service]\nMemoryLow=7\n").unwrap();
        let mut bus = Bus::new(run.path(), Duration::ZERO);
        for (low, is_left) in [(8, true), (7, false)] {
            let setting =
                Setting { property: Property::MemoryLow, value: PropertyValue::Number(low) };
            let order =
                Order::ForgetOurs { unit: "web.service".into(), ours: setting, before: None };
            let reply = if is_left { Reply::Unchanged } else { Reply::Done };
            assert_eq!(bus.carry_out(std::slice::from_ref(&order)), [Ok(reply)]);
            assert_eq!(dir.exists(), is_left);
        }
    }

    #[test]
    fn a_drop_in_of_ours_gets_back_the_text_that_it_had() {
        let run = tempfile::tempdir().unwrap();
        let dir = run.path().join("system.control/web.service.d");
        fs::create_dir_all(&dir).unwrap();
        let file = dir.join("50-MemoryLow.conf");
        fs::write(&file, "[Service]\nMemoryLow=7\n").unwrap();
        let mut bus = Bus::new(run.path(), Duration::ZERO);
        let ours = Setting { property: Property::MemoryLow, value: PropertyValue::Number(7) };
        let before = Some("theirs".to_string());
        let order = Order::ForgetOurs { unit: "web.service".into(), ours, before };
        assert_eq!(bus.carry_out(std::slice::from_ref(&order)), [Ok(Reply::Done)]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "theirs");
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
        // A missing file counts as removed, and needs no reload.
        for reply in [Reply::Done, Reply::Unchanged] {
            assert_eq!(bus.carry_out(std::slice::from_ref(&order)), [Ok(reply)]);
        }
        assert!(!transient.exists());
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["50-MemoryHigh.conf"]);
    }
}
