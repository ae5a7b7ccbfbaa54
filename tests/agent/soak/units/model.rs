//! What a host with units must hold, and who changed what.
//!
//! The model never asks the agent. It compares the units and the processes before and after each of its turns:
//!
//! - the agent ends no process, stops only slices that it started, and starts only slices of tenants;
//! - it changes units of its policy only, or gives back what it changed before;
//! - it writes no file of a unit that systemd writes, except for protection of memory;
//! - what the first of its turns replaced in a unit is the original, which is in the journal until it is back, and what
//!   is in the journal is the original;
//! - what an administrator set at run time meanwhile may be there in its place, and never a value of the agent's.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tenantd_host::journal::{Entry, UnitHeld};
use tenantd_host::knobs::row_of;
use tenantd_host::systemd::{Property, PropertyValue, Setting};
use tenantd_sim::{SimUnit, UnitFault};

use super::spelled;
use super::step::Limits;
use crate::agent::world::{Host, MOUNT};

/// A journal is smaller, whatever happens.
const JOURNAL_BYTES_MAX: u64 = 1 << 20;

type Units = BTreeMap<String, SimUnit>;

/// A turn of the agent.
#[derive(Clone, Debug, Default)]
pub(super) struct Turn {
    pub(super) what: &'static str,
    /// The units of the policies before and after it.
    pub(super) units: Vec<&'static str>,
    /// Whether a call failed or the agent died.
    pub(super) is_disturbed: bool,
}

impl Turn {
    pub(super) fn of(what: &'static str) -> Turn {
        Turn { what, ..Turn::default() }
    }
}

/// What the journal says.
#[derive(Clone, Debug, Default)]
struct Recorded {
    /// The first record of each property, of each life of its unit.
    held: BTreeMap<(String, Property), Vec<UnitHeld>>,
    starting: BTreeSet<String>,
}

/// What was set at run time before the agent.
#[derive(Clone, Debug)]
struct Original {
    nr_life: u32,
    drop_in: Option<PropertyValue>,
    /// An administrator has set the property since.
    is_touched: bool,
}

#[derive(Debug)]
pub(super) struct Model {
    units: Units,
    pids: Vec<u32>,
    /// What the files of each property hold.
    shown: BTreeMap<(String, Property), Vec<String>>,
    /// Properties that administrators have set since the agent's last turn while the files stayed as they were.
    unseen: BTreeSet<(String, Property)>,
    originals: BTreeMap<(String, Property), Original>,
    /// All that administrators ever set.
    given: BTreeMap<(String, Property), Vec<PropertyValue>>,
    /// Units whose files may differ from what systemd has.
    written: BTreeSet<String>,
    /// Slices that the agent started.
    started: BTreeSet<String>,
    /// Those of which the journal says so.
    starting: BTreeSet<String>,
    was_disturbed: bool,
    was_impeded: bool,
}

fn is_populated(host: &Host, unit: &SimUnit) -> bool {
    let events = format!("{MOUNT}{}/cgroup.events", unit.cgroup);
    host.with(|kernel| kernel.file(&events)).is_ok_and(|events| events.contains("populated 1"))
}

fn units_of(host: &Host) -> Units {
    host.systemd(|systemd, _| systemd.units.clone())
}

/// What the files of each property of the units that run hold.
fn shown(host: &Host, units: &Units) -> BTreeMap<(String, Property), Vec<String>> {
    let mut shown = BTreeMap::new();
    for (name, unit) in units.iter().filter(|(_, unit)| unit.is_active) {
        for property in Property::ALL {
            let text = |file: &str| {
                let text =
                    host.with(|kernel| kernel.file(&format!("{MOUNT}{}/{file}", unit.cgroup)));
                text.ok().map(|text| text.trim_end().to_string())
            };
            let texts = text(row_of(property.knob()).unified).into_iter().collect();
            shown.insert((name.clone(), property), texts);
        }
    }
    shown
}

impl Model {
    pub(super) fn new(host: &Host) -> Model {
        Model {
            units: units_of(host),
            pids: host.with(|kernel| kernel.pids()),
            shown: BTreeMap::new(),
            unseen: BTreeSet::new(),
            originals: BTreeMap::new(),
            given: BTreeMap::new(),
            written: BTreeSet::new(),
            started: BTreeSet::new(),
            starting: BTreeSet::new(),
            was_disturbed: false,
            was_impeded: false,
        }
    }

    // --- the administrator ---

    pub(super) fn administrator_sets(&mut self, unit: &str, setting: &Setting) {
        let key = (unit.to_string(), setting.property);
        self.given.entry(key).or_default().push(setting.value.clone());
        self.administrator_touches(unit, setting.property);
    }

    pub(super) fn administrator_touches(&mut self, unit: &str, property: Property) {
        if let Some(original) = self.originals.get_mut(&(unit.to_string(), property)) {
            original.is_touched = true;
        }
        self.administrator_writes(unit);
    }

    pub(super) fn administrator_writes(&mut self, unit: &str) {
        self.written.insert(unit.to_string());
    }

    pub(super) fn after_administrator(&mut self, host: &Host) {
        let now = units_of(host);
        let files = shown(host, &now);
        for (name, unit) in &now {
            let before = self.units.get(name).map(|before| &before.drop_ins);
            for property in Property::ALL {
                let key = (name.clone(), property);
                let was = before.and_then(|drop_ins| drop_ins.get(&property));
                if was != unit.drop_ins.get(&property) && self.shown.get(&key) == files.get(&key) {
                    self.unseen.insert(key);
                }
            }
        }
        self.units = now;
        self.pids = host.with(|kernel| kernel.pids());
        self.shown = files;
        let units = &self.units;
        let is_same = |unit: &str, nr_life: u32| {
            units.get(unit).is_some_and(|known| known.nr_life == nr_life)
        };
        self.originals.retain(|(unit, _), original| is_same(unit, original.nr_life));
    }

    // --- the agent ---

    /// Notes what was there before the agent first changed it.
    fn note_originals(&mut self, name: &str, unit: &SimUnit) {
        // One that has just been started had nothing.
        let unset = SimUnit::default();
        let before = self.units.get(name).unwrap_or(&unset);
        let drop_in = |unit: &SimUnit, property| unit.drop_ins.get(&property).cloned();
        for property in Property::ALL {
            let was = drop_in(before, property);
            if was != drop_in(unit, property) {
                let original = Original { nr_life: unit.nr_life, drop_in: was, is_touched: false };
                self.originals.entry((name.to_string(), property)).or_insert(original);
            }
        }
    }

    pub(super) fn after_agent(&mut self, host: &Host, journal: &Path, turn: &Turn) {
        let (now, what) = (units_of(host), turn.what);
        assert_eq!(self.pids, host.with(|kernel| kernel.pids()), "{what}: processes ended");
        let fault = host.systemd(|systemd, _| systemd.fault);
        self.was_disturbed = turn.is_disturbed;
        self.was_impeded = fault.is_some();
        let recorded = read(journal);
        self.check_calls(host, &now, turn);
        self.note_started(&now, &recorded.starting);
        self.check_presence(&now, turn);
        self.check_changes(&now, turn);
        self.check_recorded(&now, &recorded.held, turn, fault.as_ref());
        self.check_originals(&now, &recorded.held, turn, fault.as_ref());
        self.unseen.clear();
        self.shown = shown(host, &now);
        self.units = now;
        self.check_started(host, &recorded.starting, turn.what);
    }

    /// Every cgroup has one writer.
    fn check_calls(&self, host: &Host, now: &Units, turn: &Turn) {
        for call in host.take_changes() {
            let path = call.path.display().to_string();
            let Some((dir, file)) = path.rsplit_once('/') else { continue };
            let of = |(_, unit): &(&String, &SimUnit)| format!("{MOUNT}{}", unit.cgroup) == dir;
            let Some((name, unit)) = now.iter().find(of) else { continue };
            let is_allowed = matches!(file, "memory.min" | "memory.low") || unit.is_masked;
            assert!(is_allowed, "{}: {name}: the agent writes {call:?}", turn.what);
        }
    }

    /// A slice that did not run when the agent looked is the agent's to stop once it has recorded that it starts it, though
    /// an administrator may have started it in between.
    fn note_started(&mut self, now: &Units, starting: &BTreeSet<String>) {
        let is_active = |name: &&String| now.get(*name).is_some_and(|unit| unit.is_active);
        let new = starting.difference(&self.starting).filter(is_active);
        self.started.extend(new.cloned());
        self.starting.clone_from(starting);
    }

    /// Units that came and went.
    fn check_presence(&mut self, now: &Units, turn: &Turn) {
        for (name, unit) in now {
            let was_active = self.units.get(name).is_some_and(|before| before.is_active);
            if unit.is_active && !was_active {
                let is_tenants = turn.units.contains(&name.as_str()) && name.starts_with("tenants");
                assert!(is_tenants, "{}: {name} was started", turn.what);
                self.started.insert(name.clone());
            }
        }
        for (name, before) in self.units.iter().filter(|(_, before)| before.is_active) {
            if !now.get(name).is_some_and(|unit| unit.is_active) {
                assert!(self.started.remove(name), "{}: {name} was stopped", turn.what);
                assert!(before.requires.is_empty(), "{}: {name} was needed", turn.what);
            }
        }
    }

    fn check_changes(&mut self, now: &Units, turn: &Turn) {
        let unset = SimUnit::default();
        for (name, unit) in now {
            let before = self.units.get(name).unwrap_or(&unset);
            let is_ours = turn.units.contains(&name.as_str());
            for property in Property::ALL {
                let (was, is) = (before.drop_ins.get(&property), unit.drop_ins.get(&property));
                let is_known = self.originals.contains_key(&(name.clone(), property));
                assert!(
                    was == is || is_ours || is_known,
                    "{}: {name}: the drop-in of {property:?} was {was:?}, and is {is:?}",
                    turn.what
                );
            }
            let settings = [(&before.file, &unit.file), (&before.overrides, &unit.overrides)];
            assert!(
                settings.iter().all(|(was, is)| was == is),
                "{}: {name}: {settings:?}",
                turn.what
            );
            self.note_originals(name, unit);
        }
    }

    /// What the journal says was there before the agent, also where it was recorded and not set: systemd did not answer,
    /// or the agent died, and whether it was set is not known. What an administrator sets from then on is set
    /// meanwhile.
    fn check_recorded(
        &mut self,
        now: &Units,
        recorded: &BTreeMap<(String, Property), Vec<UnitHeld>>,
        turn: &Turn,
        fault: Option<&UnitFault>,
    ) {
        let unset = SimUnit::default();
        for (key, records) in recorded {
            let Some(unit) = now.get(&key.0) else { continue };
            let life = if unit.is_transient { unit.nr_life.to_string() } else { String::new() };
            let Some(record) = records.iter().find(|record| record.life == life) else { continue };
            let before = self.units.get(&key.0).unwrap_or(&unset);
            let (nr_life, drop_in) = (unit.nr_life, before.drop_ins.get(&key.1).cloned());
            let original = Original { nr_life, drop_in, is_touched: false };
            let original = self.originals.entry(key.clone()).or_insert(original);
            let said = record.drop_in.as_ref().map(|text| serde_json::from_str(text).unwrap());
            // The reading is that of the tick before; what is set since is seen in the file. What does not show there is
            // missed: the value that the unit has anyway, one that does not arrive, and one that another drop-in overrides.
            let held = spelled(&record.held).map(|lines| lines.into_iter().map(|(_, text)| text));
            let shown = self.shown.get(key).map_or(&[][..], Vec::as_slice);
            let is_same = original.drop_in.as_ref() == Some(&record.held.value)
                || shown.is_empty()
                || self.unseen.contains(key)
                || held.is_some_and(|held| held.eq(shown.iter().cloned()));
            if is_same || fault == Some(&UnitFault::Ignores(key.1)) {
                original.is_touched |= original.drop_in != said;
                original.drop_in = said.clone();
            }
            assert!(
                original.drop_in == said || original.is_touched,
                "{}: {}: the journal says that {:?} had the drop-in {said:?}, which was {:?}; it held {:?}, and the file {shown:?}",
                turn.what,
                key.0,
                key.1,
                original.drop_in,
                record.held.value
            );
        }
    }

    /// What is not in the journal any more is back.
    fn check_originals(
        &mut self,
        now: &Units,
        recorded: &BTreeMap<(String, Property), Vec<UnitHeld>>,
        turn: &Turn,
        fault: Option<&UnitFault>,
    ) {
        let given = &self.given;
        self.originals.retain(|key, original| {
            if recorded.contains_key(key) {
                return true;
            }
            let unit = now.get(&key.0).filter(|unit| unit.nr_life == original.nr_life);
            let Some(unit) = unit else { return false };
            let drop_in = unit.drop_ins.get(&key.1);
            let was_given = drop_in.is_none_or(|value| {
                given.get(key).is_some_and(|given| given.contains(value))
            });
            let is_back = drop_in == original.drop_in.as_ref() || (original.is_touched && was_given);
            assert!(
                is_back,
                "{}: {}: {:?} has the drop-in {drop_in:?}, had {:?} before the agent, and is not in the journal ({fault:?})",
                turn.what, key.0, key.1, original.drop_in
            );
            false
        });
    }

    // --- what is asked ---

    pub(super) fn was_disturbed(&self) -> bool {
        self.was_disturbed
    }

    /// Whether systemd did not do all that it was asked for.
    pub(super) fn was_impeded(&self) -> bool {
        self.was_impeded
    }

    /// A slice that the agent started is gone, or in the journal, unless something is in it: then it stays.
    fn check_started(&mut self, host: &Host, starting: &BTreeSet<String>, what: &str) {
        let settled: Vec<String> = self.started.difference(starting).cloned().collect();
        for name in &settled {
            // An administrator may have ended it meanwhile, and started it again; it is the agent's to stop all the same.
            let Some(unit) = self.units.get(name).filter(|unit| unit.is_active) else {
                self.started.remove(name);
                continue;
            };
            let is_populated = is_populated(host, unit);
            let inside = format!("{}/", unit.cgroup);
            let is_above = self
                .units
                .values()
                .any(|other| other.is_active && other.cgroup.starts_with(&inside));
            assert!(is_populated || is_above, "{what}: {name} is left: {unit:?}");
            self.started.remove(name);
        }
    }

    /// Fails unless the files of a unit that runs hold these limits: thousandths of a CPU, and MiB.
    pub(super) fn check_limits(&self, host: &Host, unit: &str, (millis, mib): Limits) {
        let is_set = |known: &&SimUnit| known.is_active && !known.is_masked;
        let Some(known) = self.units.get(unit).filter(is_set) else { return };
        // A service whose processes have ended is about to end, as far as the agent can see: what was set of it then
        // would be left as drop-ins. There is nothing in it that could be limited.
        if unit.ends_with(".service") && !is_populated(host, known) {
            return;
        }
        let number = |property, number| Setting { property, value: PropertyValue::Number(number) };
        let quota = millis.map(|m| number(Property::CpuQuotaPerSecUsec, 1000 * u64::from(m)));
        let limit = mib.map(|mib| number(Property::MemoryMax, u64::from(mib) << 20));
        for setting in quota.into_iter().chain(limit) {
            for (file, text) in spelled(&setting).unwrap_or_default() {
                let held = host.with(|k| k.file(&format!("{MOUNT}{}/{file}", known.cgroup)));
                assert_eq!(held.as_deref().map(str::trim_end), Ok(text.as_str()), "{unit}: {file}");
            }
        }
    }
}

fn read(journal: &Path) -> Recorded {
    let text = std::fs::read_to_string(journal).unwrap_or_default();
    assert!(text.len() as u64 <= JOURNAL_BYTES_MAX, "the journal has {} bytes", text.len());
    let mut recorded = Recorded::default();
    for line in text.lines().skip(1) {
        match serde_json::from_str::<Entry>(line).unwrap() {
            Entry::UnitHeld(was) => {
                let key = (was.unit.clone(), was.held.property);
                recorded.held.entry(key).or_default().push(*was);
            }
            Entry::Starting { unit } => drop(recorded.starting.insert(unit)),
            _ => {}
        }
    }
    recorded
}
