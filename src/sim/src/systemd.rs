//! Systemd in memory, on top of the simulated kernel: units, their properties, and its failures.
//!
//! The behaviour is that of systemd 252 and 257. A set property is held in memory and stored as a drop-in, and
//! all properties of the unit are written to its cgroup again (`unit_update_cgroup` in `src/core/cgroup.c`). A
//! reload of the configuration takes the properties from files and drop-ins, and leaves the cgroups unchanged.
//! A slice needs no file; without one it is transient and leaves nothing when it stops. Stopping a slice ends
//! everything in it, and restarting one restarts it. Masked units, and units in masked slices, do not start.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use super::host::MOUNT;
use super::kernel::SimKernel;
use tenantd_host::cgroup::spell_unified;
use tenantd_host::kernfs::KernFs;
use tenantd_host::systemd::{
    Held, Order, Property, PropertyValue, RunResult, Setting, UnitError, UnitState,
};

/// A failure of systemd, or of the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitFault {
    /// The bus cannot be reached.
    Away,
    /// No answer in time; the request is executed all the same.
    Late,
    /// Every change is denied.
    Denied,
    /// A property that is accepted but does not arrive in its file.
    Ignores(Property),
    /// Settings and scopes are accepted, but executed only by [`SimSystemd::catch_up`].
    Behind,
}

/// A unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimUnit {
    /// Its cgroup from the mount, beginning with `/`.
    pub cgroup: String,
    /// True if it runs.
    pub is_active: bool,
    /// True if it is masked, or its file was removed: systemd accepts no settings for it, and writes none
    /// of its files.
    pub is_masked: bool,
    /// True if it is removed when it is stopped.
    pub is_transient: bool,
    /// Units that it stops with, in addition to the slices above its cgroup: a socket has none.
    pub requires: BTreeSet<String>,
    /// Distinguishes a transient unit from the previous one of its name.
    pub nr_life: u32,
    /// Number of starts.
    pub nr_starts: u32,
    /// True if its last run ended by an OOM kill.
    pub is_oom_kill: bool,
    /// Settings of its file.
    pub file: BTreeMap<Property, PropertyValue>,
    /// Settings of drop-ins whose names sort after those of run-time settings, such as the `override.conf`
    /// of `systemctl edit`: they prevail at every reload.
    pub overrides: BTreeMap<Property, PropertyValue>,
    /// Settings at run time.
    pub drop_ins: BTreeMap<Property, PropertyValue>,
    /// Loaded values of its properties.
    pub properties: BTreeMap<Property, PropertyValue>,
}

impl SimUnit {
    fn value(&self, property: Property) -> Setting {
        let value = self.properties.get(&property).cloned().unwrap_or_else(|| property.unset());
        Setting { property, value }
    }
}

/// Systemd in memory.
#[derive(Clone, Debug, Default)]
pub struct SimSystemd {
    /// Loaded units, by name.
    pub units: BTreeMap<String, SimUnit>,
    /// Aliases of units.
    pub aliases: BTreeMap<String, String>,
    /// Removed transient units whose files it still looks for, as before version 258.
    pub remembered: BTreeSet<String>,
    /// Number of transient units so far.
    pub nr_lives: u32,
    /// Failure in force.
    pub fault: Option<UnitFault>,
    /// Executed or refused orders, oldest first.
    pub orders: Vec<Order>,
    /// Unread changes of results, oldest first.
    pub results: Vec<RunResult>,
    /// Settings accepted but not executed yet, oldest first.
    pub accepted: VecDeque<(String, Vec<Setting>)>,
    /// Scopes accepted but not started yet, oldest first.
    pub late_scopes: VecDeque<Order>,
}

impl SimSystemd {
    /// Adds and starts a unit with a file; its cgroup is `cgroup` from the mount. Its slices are added too.
    pub fn add(&mut self, kernel: &mut SimKernel, unit: &str, cgroup: &str) {
        if let Some((above, _)) = cgroup.rsplit_once('/')
            && let Some((_, slice)) = above.rsplit_once('/')
            && slice.ends_with(".slice")
            && !self.units.contains_key(slice)
        {
            self.add(kernel, slice, above);
        }
        let known = SimUnit { cgroup: cgroup.to_string(), ..SimUnit::default() };
        self.units.insert(unit.to_string(), known);
        self.start(kernel, unit);
    }

    /// Adds a unit without a file, not started yet.
    pub fn add_transient(&mut self, unit: &str, cgroup: &str) {
        self.nr_lives += 1;
        let (cgroup, nr_life) = (cgroup.to_string(), self.nr_lives);
        let known = SimUnit { cgroup, nr_life, is_transient: true, ..SimUnit::default() };
        self.units.insert(unit.to_string(), known);
    }

    /// Restarts a unit and those that stop with it (`Requires=` in systemd.unit(5)). A transient one keeps
    /// all its settings. Does nothing if one of them cannot be started.
    pub fn restart(&mut self, kernel: &mut SimKernel, unit: &str) {
        let Some(cgroup) = self.units.get(unit).map(|known| known.cgroup.clone()) else { return };
        let mut due = self.required_by(unit, &cgroup);
        due.insert(0, unit.to_string());
        let due = due.iter().filter_map(|name| self.units.get_key_value(name));
        let mut due: Vec<(String, SimUnit)> =
            due.map(|(name, known)| (name.clone(), known.clone())).collect();
        let needed = slices_above(&cgroup).chain(due.iter().map(|(name, _)| &**name));
        if self.masked(needed).is_some() {
            return;
        }
        due.sort_by_key(|(_, known)| known.cgroup.matches('/').count());
        self.stop(kernel, unit);
        for (name, known) in due {
            self.units.insert(name.clone(), known);
            self.start(kernel, &name);
        }
    }

    /// Starts a loaded unit and its slices. Does nothing if one of them is masked.
    pub fn start(&mut self, kernel: &mut SimKernel, unit: &str) {
        let Some(cgroup) = self.units.get(unit).map(|known| known.cgroup.clone()) else { return };
        if self.masked([unit].into_iter().chain(slices_above(&cgroup))).is_some() {
            return;
        }
        for slice in slices_above(&cgroup) {
            if self.units.get(slice).is_some_and(|known| !known.is_active) {
                self.start(kernel, slice);
            }
        }
        let Some(known) = self.units.get_mut(unit) else { return };
        known.is_active = true;
        known.nr_starts += 1;
        known.is_oom_kill = false;
        self.results.push(RunResult { unit: unit.to_string(), is_oom_kill: false });
        make_cgroup(kernel, &cgroup);
        self.write(kernel, unit);
    }

    fn masked<'u>(&self, mut units: impl Iterator<Item = &'u str>) -> Option<&'u str> {
        units.find(|unit| self.units.get(*unit).is_some_and(|known| known.is_masked))
    }

    /// Stops a unit and ends everything in it.
    pub fn stop(&mut self, kernel: &mut SimKernel, unit: &str) {
        let Some(known) = self.units.get_mut(unit) else { return };
        known.is_active = false;
        let cgroup = known.cgroup.clone();
        if known.is_transient {
            self.units.remove(unit);
            self.remembered.insert(unit.to_string());
        }
        kernel.write_file(&format!("{MOUNT}{cgroup}/cgroup.kill"), "1").ok();
        let needy = self.required_by(unit, &cgroup);
        needy.iter().for_each(|unit| self.stop(kernel, unit));
        kernel.remove_cgroup_at(&cgroup).ok();
    }

    /// Stops the services with an OOM kill, as `OOMPolicy=stop` does, and removes their cgroups.
    pub fn stop_killed(&mut self, kernel: &mut SimKernel) -> Vec<String> {
        let is_killed = |known: &SimUnit| {
            let events = kernel.file(&format!("{MOUNT}{}/memory.events", known.cgroup));
            events.is_ok_and(|events| {
                events.lines().any(|line| line.starts_with("oom_kill ") && line != "oom_kill 0")
            })
        };
        let services = self.units.iter().filter(|(name, known)| {
            name.ends_with(".service") && known.is_active && is_killed(known)
        });
        let killed: Vec<String> = services.map(|(name, _)| name.clone()).collect();
        for unit in &killed {
            self.stop(kernel, unit);
            self.results.push(RunResult { unit: unit.clone(), is_oom_kill: true });
            if let Some(known) = self.units.get_mut(unit) {
                known.is_oom_kill = true;
            }
        }
        killed
    }

    /// Running units that stop with this one, whose cgroup is `cgroup`.
    fn required_by(&self, unit: &str, cgroup: &str) -> Vec<String> {
        let inside = format!("{cgroup}/");
        let needs = |other: &SimUnit| {
            let is_inside = !cgroup.is_empty() && other.cgroup.starts_with(&inside);
            other.is_active && (is_inside || other.requires.contains(unit))
        };
        self.units.iter().filter(|(_, other)| needs(other)).map(|(name, _)| name.clone()).collect()
    }

    /// `systemctl set-property --runtime`, or an order of the agent.
    pub fn set_property(&mut self, kernel: &mut SimKernel, unit: &str, setting: &Setting) {
        self.set_properties(kernel, unit, std::slice::from_ref(setting));
    }

    /// Sets all properties of one call, and writes the files once.
    pub(super) fn set_properties(
        &mut self,
        kernel: &mut SimKernel,
        unit: &str,
        settings: &[Setting],
    ) {
        if let Some(known) = self.units.get_mut(unit) {
            for setting in settings {
                known.properties.insert(setting.property, setting.value.clone());
                known.drop_ins.insert(setting.property, setting.value.clone());
            }
        }
        self.write(kernel, unit);
    }

    /// `systemctl mask` or `systemctl unmask`, which reload the configuration.
    pub fn mask(&mut self, unit: &str, is_masked: bool) {
        if let Some(known) = self.units.get_mut(unit) {
            known.is_masked = is_masked;
        }
        self.reload();
    }

    /// `systemctl daemon-reload`.
    pub fn reload(&mut self) {
        self.remembered.clear();
        for unit in self.units.values_mut() {
            if unit.is_masked {
                unit.properties.clear();
                continue;
            }
            unit.properties = unit.file.clone();
            unit.properties.extend(unit.drop_ins.clone());
            unit.properties.extend(unit.overrides.clone());
        }
    }

    /// Writes the properties of a unit to its cgroup, as systemd 252 does whenever it reads a configuration
    /// that sets any of them.
    pub fn restore_files(&self, kernel: &mut SimKernel, unit: &str) {
        self.write(kernel, unit);
    }

    /// Writes all properties of a unit to the files of its cgroup, whichever was changed.
    fn write(&self, kernel: &mut SimKernel, unit: &str) {
        let is_written = |known: &&SimUnit| known.is_active && !known.is_masked;
        let Some(known) = self.units.get(unit).filter(is_written) else { return };
        let arrives = |property: &Property| self.fault != Some(UnitFault::Ignores(*property));
        for property in Property::ALL.into_iter().filter(arrives) {
            let Some(value) = known.value(property).expected() else { continue };
            if let Some(unlimited) = unlimited(property) {
                kernel.write_file(&format!("{MOUNT}{}/io.max", known.cgroup), unlimited).ok();
            }
            for spelling in spell_unified(property.knob(), &value) {
                let path = format!("{MOUNT}{}/{}", known.cgroup, spelling.file);
                kernel.write_file(&path, &format!("{}\n", spelling.text)).ok();
            }
            if let Some(weight) = known.value(property).for_bfq() {
                let path = format!("{MOUNT}{}/io.bfq.weight", known.cgroup);
                kernel.write_file(&path, &weight.to_string()).ok();
            }
        }
    }

    pub(super) fn id<'a>(&'a self, unit: &'a str) -> &'a str {
        self.aliases.get(unit).map_or(unit, String::as_str)
    }

    pub(super) fn refuse_masked<'u>(
        &self,
        units: impl Iterator<Item = &'u str>,
    ) -> Result<(), UnitError> {
        self.masked(units).map_or(Ok(()), |unit| {
            let (unit, message) = (unit.to_string(), format!("Unit {unit} is masked."));
            Err(UnitError::Refused { unit, message })
        })
    }

    /// Adds the missing slices above a cgroup. They need no file, and are not transient.
    pub(super) fn add_above(&mut self, kernel: &mut SimKernel, cgroup: &str) {
        for slice in slices_above(cgroup) {
            if !self.units.contains_key(slice) {
                self.add(kernel, slice, &cgroup_of(slice));
            }
        }
    }

    pub(super) fn state(&self, unit: &str) -> UnitState {
        let unit = self.id(unit);
        let Some(known) = self.units.get(unit) else {
            // Any slice name can be started.
            let (id, is_loaded) = (unit.to_string(), unit.ends_with(".slice"));
            return UnitState { id, is_loaded, ..UnitState::default() };
        };
        let held = |property: Property| Held {
            setting: known.value(property),
            drop_in: known.drop_ins.get(&property).and_then(|v| serde_json::to_string(v).ok()),
        };
        UnitState {
            id: unit.to_string(),
            is_loaded: !known.is_masked,
            is_active: known.is_active,
            is_transient: known.is_transient,
            is_oom_kill: known.is_oom_kill,
            life: if known.is_transient { known.nr_life.to_string() } else { String::new() },
            cgroup: if known.is_active { known.cgroup.clone() } else { String::new() },
            required_by: self.required_by(unit, &known.cgroup),
            held: Property::ALL.map(held).to_vec(),
        }
    }
}

/// Text that removes a limit of the disk: systemd writes all limits of a list, and none for other disks.
fn unlimited(property: Property) -> Option<&'static str> {
    match property {
        Property::IoReadBandwidthMax => Some("8:0 rbps=max"),
        Property::IoWriteBandwidthMax => Some("8:0 wbps=max"),
        Property::IoReadIopsMax => Some("8:0 riops=max"),
        Property::IoWriteIopsMax => Some("8:0 wiops=max"),
        _ => None,
    }
}

/// Makes the cgroup of a unit with every controller on the way. Below a cgroup with processes it is made
/// without controllers.
fn make_cgroup(kernel: &mut SimKernel, cgroup: &str) {
    if kernel.make_cgroup(cgroup).is_ok() {
        return;
    }
    let mut path = PathBuf::from(MOUNT);
    for name in cgroup.split('/').filter(|name| !name.is_empty()) {
        if let Ok(above) = kernel.open_dir(&path) {
            kernel.make_dir(above, name).ok();
            kernel.close_dir(above);
        }
        path.push(name);
    }
}

/// Slices above `cgroup`, the outermost first.
pub(super) fn slices_above(cgroup: &str) -> impl Iterator<Item = &str> {
    let above = cgroup.rsplit_once('/').map_or("", |(above, _)| above);
    above.split('/').filter(|name| name.ends_with(".slice"))
}

/// Cgroup of a slice: `a-b.slice` is in `a.slice`.
pub(super) fn cgroup_of(slice: &str) -> String {
    let name = slice.trim_end_matches(".slice");
    let ends = name.match_indices('-').map(|(end, _)| end).chain([name.len()]);
    ends.map(|end| format!("/{}.slice", &name[..end])).collect()
}
