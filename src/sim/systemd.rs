//! Systemd in memory, on top of the simulated kernel: units, their properties, and how it can fail.
//!
//! Its manners are those that were seen on systemd 252 and 257. A property that is set is held in memory,
//! kept as a drop-in and written to the unit's cgroup. Reading the configuration again makes the properties
//! what files and drop-ins say, and leaves the cgroups as they are. A slice needs no file; one that was
//! started without is transient and leaves nothing when it stops. Stopping a slice ends what is in it.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::kernel::{MOUNT, SimKernel};
use crate::host::cgroup::Dialect;
use crate::host::systemd::{
    Answer, Held, Order, Property, PropertyValue, Reply, Setting, UnitError, UnitManager, UnitState,
};

/// What is wrong with systemd, or with the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFault {
    /// The bus cannot be reached.
    Away,
    /// Nothing comes back in time; what was asked for is done all the same.
    Late,
    /// Nobody may change anything.
    Denied,
    /// This property is taken and does not arrive in its file.
    Ignores(Property),
}

/// One unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimUnit {
    /// Its cgroup from the mount, beginning with `/`.
    pub cgroup: String,
    /// Whether it runs.
    pub is_active: bool,
    /// Whether it goes when it is stopped.
    pub is_transient: bool,
    /// How often it was started.
    pub nr_starts: u32,
    /// What its file says.
    pub file: BTreeMap<Property, PropertyValue>,
    /// What was set at run time.
    pub drop_ins: BTreeMap<Property, PropertyValue>,
    /// What systemd takes its properties for.
    pub properties: BTreeMap<Property, PropertyValue>,
}

/// Systemd in memory.
#[derive(Clone, Debug, Default)]
pub struct SimSystemd {
    /// All units that are loaded, by name.
    pub units: BTreeMap<String, SimUnit>,
    /// What is wrong.
    pub fault: Option<UnitFault>,
    /// Orders that were carried out, or refused, oldest first.
    pub orders: Vec<Order>,
}

impl SimSystemd {
    /// Gives the host a unit with a file, and starts it: its cgroup is `cgroup` from the mount.
    pub fn add(&mut self, kernel: &mut SimKernel, unit: &str, cgroup: &str) {
        let known = SimUnit { cgroup: cgroup.to_string(), ..SimUnit::default() };
        self.units.insert(unit.to_string(), known);
        self.start(kernel, unit);
    }

    /// Starts a unit that is loaded.
    pub fn start(&mut self, kernel: &mut SimKernel, unit: &str) {
        let Some(known) = self.units.get_mut(unit) else { return };
        known.is_active = true;
        known.nr_starts += 1;
        // Every controller on the way, as where others have resource settings.
        kernel.make_cgroup(&known.cgroup).ok();
        let properties = known.properties.clone();
        for (property, value) in properties {
            self.write(kernel, unit, &Setting { property, value });
        }
    }

    /// Stops a unit: everything in it ends.
    pub fn stop(&mut self, kernel: &mut SimKernel, unit: &str) {
        let Some(known) = self.units.get_mut(unit) else { return };
        known.is_active = false;
        let cgroup = known.cgroup.clone();
        if known.is_transient {
            self.units.remove(unit);
        }
        kernel.write_file(&format!("{MOUNT}{cgroup}/cgroup.kill"), "1").ok();
        let in_it = |other: &&String| {
            self.units[*other].cgroup.starts_with(&format!("{cgroup}/"))
                && self.units[*other].is_active
        };
        let inside: Vec<String> = self.units.keys().filter(in_it).cloned().collect();
        inside.iter().for_each(|unit| self.stop(kernel, unit));
        kernel.remove_cgroup_at(&cgroup).ok();
    }

    /// `systemctl set-property --runtime`, or what the agent asks for.
    pub fn set_property(&mut self, kernel: &mut SimKernel, unit: &str, setting: &Setting) {
        if let Some(known) = self.units.get_mut(unit) {
            known.properties.insert(setting.property, setting.value.clone());
            known.drop_ins.insert(setting.property, setting.value.clone());
        }
        self.write(kernel, unit, setting);
    }

    /// `systemctl daemon-reload`.
    pub fn reload(&mut self) {
        for unit in self.units.values_mut() {
            unit.properties = unit.file.clone();
            unit.properties.extend(unit.drop_ins.clone());
        }
    }

    /// Writes what a property means to the file of its knob.
    fn write(&self, kernel: &mut SimKernel, unit: &str, setting: &Setting) {
        let Some(known) = self.units.get(unit).filter(|known| known.is_active) else { return };
        if self.fault == Some(UnitFault::Ignores(setting.property)) {
            return;
        }
        let Some(value) = setting.expected() else { return };
        for spelling in Dialect::Unified.spell(setting.property.knob(), &value) {
            let path = format!("{MOUNT}{}/{}", known.cgroup, spelling.file);
            kernel.write_file(&path, &format!("{}\n", spelling.text)).ok();
        }
    }

    /// Carries out one order.
    ///
    /// # Errors
    /// As the real one, or as its fault says.
    pub fn carry_out(&mut self, kernel: &mut SimKernel, order: &Order) -> Result<Reply, UnitError> {
        let unit = order.unit().to_string();
        match self.fault {
            Some(UnitFault::Away) => return Err(UnitError::Away("Connection refused".into())),
            Some(UnitFault::Denied) if !matches!(order, Order::Look { .. }) => {
                let message = "Interactive authentication required.".into();
                return Err(UnitError::Denied { unit, message });
            }
            _ => {}
        }
        self.orders.push(order.clone());
        let outcome = self.done(kernel, order);
        match self.fault {
            Some(UnitFault::Late) => Err(UnitError::Late(Duration::from_secs(30))),
            _ => outcome,
        }
    }

    fn done(&mut self, kernel: &mut SimKernel, order: &Order) -> Result<Reply, UnitError> {
        match order {
            Order::Look { unit } => return Ok(Reply::Unit(self.state(unit))),
            Order::StartSlice { unit, .. } => {
                self.start_above(kernel, unit);
                self.units.entry(unit.clone()).or_insert_with(|| SimUnit {
                    cgroup: cgroup_of(unit),
                    is_transient: true,
                    ..SimUnit::default()
                });
                self.start(kernel, unit);
            }
            Order::Set { unit, settings } => {
                if !self.units.contains_key(unit) {
                    return Err(UnitError::NoSuchUnit(unit.clone()));
                }
                settings.iter().for_each(|setting| self.set_property(kernel, unit, setting));
            }
            Order::Forget { unit, properties } => {
                if let Some(known) = self.units.get_mut(unit) {
                    known.drop_ins.retain(|property, _| !properties.contains(property));
                }
            }
            Order::Reload => self.reload(),
            Order::Stop { unit } => self.stop(kernel, unit),
        }
        Ok(Reply::Done)
    }

    /// A slice starts those above it, which are not transient.
    fn start_above(&mut self, kernel: &mut SimKernel, unit: &str) {
        let name = unit.trim_end_matches(".slice");
        for (end, _) in name.match_indices('-') {
            let above = format!("{}.slice", &name[..end]);
            if !self.units.contains_key(&above) {
                let cgroup = cgroup_of(&above);
                self.add(kernel, &above, &cgroup);
            }
        }
    }

    fn state(&self, unit: &str) -> UnitState {
        let Some(known) = self.units.get(unit) else {
            // Any name is that of a slice that could be started.
            return UnitState { is_loaded: unit.ends_with(".slice"), ..UnitState::default() };
        };
        let held = |property: Property| Held {
            setting: Setting {
                property,
                value: known.properties.get(&property).cloned().unwrap_or_else(|| property.unset()),
            },
            is_dropped_in: known.drop_ins.contains_key(&property),
        };
        UnitState {
            is_loaded: true,
            is_active: known.is_active,
            is_transient: known.is_transient,
            invocation: known.nr_starts.to_string(),
            cgroup: if known.is_active { known.cgroup.clone() } else { String::new() },
            held: Property::ALL.map(held).to_vec(),
        }
    }
}

/// `a-b.slice` lives in `a.slice`.
fn cgroup_of(slice: &str) -> String {
    let name = slice.trim_end_matches(".slice");
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}

/// A [`UnitManager`] that carries out each order as it comes, and answers when it is asked.
pub struct SimUnits<F> {
    carry_out: F,
    answers: VecDeque<Answer>,
}

impl<F> SimUnits<F>
where
    F: FnMut(&Order) -> Result<Reply, UnitError>,
{
    /// Orders go to `carry_out`.
    pub fn new(carry_out: F) -> SimUnits<F> {
        SimUnits { carry_out, answers: VecDeque::new() }
    }
}

impl<F> fmt::Debug for SimUnits<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimUnits").field("answers", &self.answers).finish_non_exhaustive()
    }
}

impl<F> UnitManager for SimUnits<F>
where
    F: FnMut(&Order) -> Result<Reply, UnitError>,
{
    fn submit(&mut self, order: Order) {
        let outcome = (self.carry_out)(&order);
        self.answers.push_back(Answer { order, outcome });
    }

    fn answer(&mut self, _patience: Duration) -> Option<Answer> {
        self.answers.pop_front()
    }
}
