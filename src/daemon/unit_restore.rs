//! Giving units back to systemd as they were, from the journal alone.
//!
//! Why it takes these steps stands in [`crate::host::systemd`]. For all units: properties are set to what they
//! held, and the files are waited for; drop-ins that were not there are removed; systemd reads its
//! configuration again, once; slices that were started are stopped, children first, where nothing is in them.
//!
//! A unit that does not run is not set: that would make a cgroup for it, and reading the configuration again
//! does as well. One that went, with its run-time settings, needs nothing. A slice that others live in stays,
//! without anything of ours in it: stopping it would end them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tracing::info;

use super::enforce::taken;
use super::restore::Restored;
use crate::control::plan::{Knob, Value};
use crate::host::cgroup::{self, Dialect, Layout};
use crate::host::journal::Entry;
use crate::host::kernfs::{DirId, KernError, KernFs};
use crate::host::systemd::{
    Order, Property, Reply, Setting, UnitError, UnitManager, UnitState, carry_out, messenger,
};
use crate::policy::model::{HierarchyChoice, RootChoice};
use crate::units::{Bytes, Limit};

/// How often the files are looked at for a value that systemd has taken, and how long is waited between.
const LOOKS: u32 = 100;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What is to be put back of one unit.
struct Debt<'a> {
    unit: &'a str,
    invocation: &'a str,
    /// What each property held, and whether a drop-in said so.
    held: Vec<(&'a Setting, bool)>,
}

/// Undoes what `entries` (oldest first) say of units.
///
/// `units` is whoever the agent asked until now, so that nothing asked for earlier comes later.
pub(super) fn put_back(
    kernel: &mut impl KernFs,
    proc: DirId,
    units: Option<Box<dyn UnitManager>>,
    entries: &[Entry],
    restored: &mut Restored,
) {
    let debts = debts(entries);
    let started: Vec<&str> = entries
        .iter()
        .filter_map(|entry| match entry {
            Entry::Starting { unit } => Some(unit.as_str()),
            _ => None,
        })
        .collect();
    if debts.is_empty() && started.is_empty() {
        return;
    }
    let Some(mut units) = units.or_else(|| kernel.unit_manager()) else {
        restored.failures.push("units not put back: this host is not run by systemd".into());
        return;
    };
    let mount = mount(kernel, proc);
    let mut session = Session { kernel, units: &mut *units, mount, restored };
    if let Err(error) = session.put_back(&debts, &started) {
        session.restored.failures.push(format!("units not put back: {error}"));
    }
}

/// What was recorded of each unit, less what is someone else's by now.
fn debts(entries: &[Entry]) -> Vec<Debt<'_>> {
    let is_theirs = |of: &str, property: Property| {
        entries.iter().any(
            |entry| matches!(entry, Entry::UnitTheirs { unit, property: p } if unit == of && *p == property),
        )
    };
    let mut debts: Vec<Debt<'_>> = Vec::new();
    for entry in entries {
        let Entry::UnitHeld { unit, invocation, held, is_dropped_in } = entry else { continue };
        if is_theirs(unit, held.property) {
            continue;
        }
        let known = debts.iter_mut().find(|d| d.unit == unit && d.invocation == invocation);
        match known {
            Some(debt) => debt.held.push((held, *is_dropped_in)),
            None => debts.push(Debt { unit, invocation, held: vec![(held, *is_dropped_in)] }),
        }
    }
    debts
}

/// Where the hierarchy is mounted; without it, nothing is known of the files of units.
fn mount(kernel: &mut impl KernFs, proc: DirId) -> Option<PathBuf> {
    let mountinfo = kernel.read_once(proc, "self/mountinfo").ok()?.to_vec();
    let own = kernel.read_once(proc, "self/cgroup").ok()?.to_vec();
    let layout =
        Layout::detect(&mountinfo, &own, HierarchyChoice::Unified, &RootChoice::Auto).ok()?;
    layout.trees.into_iter().next().map(|tree| tree.mount)
}

struct Session<'a, K> {
    kernel: &'a mut K,
    units: &'a mut dyn UnitManager,
    mount: Option<PathBuf>,
    restored: &'a mut Restored,
}

impl<K: KernFs> Session<'_, K> {
    /// # Errors
    /// The bus is away. What is the matter with one unit is noted and stops nothing.
    fn put_back(&mut self, debts: &[Debt<'_>], started: &[&str]) -> Result<(), UnitError> {
        let mut anything_forgotten = false;
        for debt in debts.iter().rev() {
            match self.pay(debt) {
                Ok(forgotten) => anything_forgotten |= forgotten,
                Err(error) if error.is_about_the_bus() => return Err(error),
                Err(error) => self.restored.failures.push(error.to_string()),
            }
        }
        if anything_forgotten {
            self.ask(Order::Reload)?;
        }
        for unit in started.iter().rev() {
            match self.stop(unit) {
                Err(error) if error.is_about_the_bus() => return Err(error),
                Err(error) => self.restored.failures.push(error.to_string()),
                Ok(()) => {}
            }
        }
        Ok(())
    }

    fn ask(&mut self, order: Order) -> Result<Reply, UnitError> {
        carry_out(self.units, order, messenger::DEADLINE)
    }

    fn look(&mut self, unit: &str) -> Result<UnitState, UnitError> {
        match self.ask(Order::Look { unit: unit.to_string() })? {
            Reply::Unit(state) => Ok(state),
            Reply::Done => Ok(UnitState::default()),
        }
    }

    /// Puts back what one unit held; says whether a drop-in was removed.
    fn pay(&mut self, debt: &Debt<'_>) -> Result<bool, UnitError> {
        let state = self.look(debt.unit)?;
        if !debt.invocation.is_empty() && debt.invocation != state.invocation {
            return Ok(false);
        }
        if state.is_loaded && state.is_active {
            self.set_back(debt, &state)?;
        }
        let no_drop_in = debt.held.iter().filter(|(_, is_dropped_in)| !is_dropped_in);
        let properties: Vec<Property> = no_drop_in.map(|(held, _)| held.property).collect();
        if properties.is_empty() {
            return Ok(false);
        }
        self.ask(Order::Forget { unit: debt.unit.to_string(), properties })?;
        Ok(true)
    }

    fn set_back(&mut self, debt: &Debt<'_>, state: &UnitState) -> Result<(), UnitError> {
        let unit = debt.unit.to_string();
        let dir = match &self.mount {
            Some(mount) => {
                let path = mount.join(state.cgroup.trim_start_matches('/'));
                self.kernel.open_dir(&path).ok()
            }
            None => None,
        };
        let mut settings: Vec<Setting> =
            debt.held.iter().map(|(held, _)| (*held).clone()).collect();
        if let Some(dir) = dir {
            settings.retain(|setting| self.is_survived(&unit, dir, setting));
        }
        let outcome = self.ask(Order::Set { unit, settings: settings.clone() });
        if let Some(dir) = dir {
            if outcome.is_ok() {
                self.await_files(dir, &settings);
            }
            self.kernel.close_dir(dir);
        }
        outcome?;
        self.restored.nr_files += settings.len();
        Ok(())
    }

    /// Whether the kernel could meet this setting without killing; noted where it could not.
    fn is_survived(&mut self, unit: &str, dir: DirId, setting: &Setting) -> bool {
        let (Knob::MemoryMax, Some(Value::Memory(Limit::Finite(limit)))) =
            (setting.property.knob(), setting.expected())
        else {
            return true;
        };
        let Ok(memory) = cgroup::memory_sample(self.kernel, dir, Dialect::Unified) else {
            return true;
        };
        if !memory.fits(limit.0) {
            self.restored.failures.push(format!(
                "{unit}: MemoryMax not put back to {} yet: {} cannot be reclaimed, and the kernel would kill \
                 for it; end some of its processes, then run tenantd --restore",
                limit.rounded(),
                Bytes(memory.unreclaimable_bytes()).rounded()
            ));
        }
        memory.fits(limit.0)
    }

    /// Systemd writes the files a moment after it has answered; the drop-ins are needed until then.
    fn await_files(&mut self, dir: DirId, settings: &[Setting]) {
        for _ in 0..LOOKS {
            if settings.iter().all(|setting| self.has_arrived(dir, setting)) {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn has_arrived(&mut self, dir: DirId, setting: &Setting) -> bool {
        let (knob, Some(expected)) = (setting.property.knob(), setting.expected()) else {
            return true;
        };
        match self.kernel.read_once(dir, Dialect::Unified.file(knob)) {
            Ok(text) => {
                Dialect::Unified.read(knob, text).is_ok_and(|found| taken(&found, &expected))
            }
            // The controller went with the last property that wanted it.
            Err(_) => true,
        }
    }

    /// Stops a slice that was started for a tenant, if nothing is in it.
    fn stop(&mut self, unit: &str) -> Result<(), UnitError> {
        let state = self.look(unit)?;
        let (true, Some(mount)) = (state.is_active, &self.mount) else { return Ok(()) };
        let path = mount.join(state.cgroup.trim_start_matches('/'));
        if !self.is_empty(&path) {
            info!(unit, "something lives in this slice: it stays, without anything of ours");
            return Ok(());
        }
        self.ask(Order::Stop { unit: unit.to_string() })?;
        for _ in 0..LOOKS {
            let Ok(dir) = self.kernel.open_dir(&path) else { break };
            self.kernel.close_dir(dir);
            std::thread::sleep(LOOK_EVERY);
        }
        self.restored.nr_cgroups += 1;
        Ok(())
    }

    /// Whether neither a process nor a unit is in the cgroup at `path`; one that is gone is.
    fn is_empty(&mut self, path: &Path) -> bool {
        let mut look = || -> Result<bool, KernError> {
            let dir = self.kernel.open_dir(path)?;
            let events = self.kernel.read_once(dir, "cgroup.events").map(|text| text.to_vec());
            let children = self.kernel.list_dirs(dir);
            self.kernel.close_dir(dir);
            let is_populated = events?.split(|byte| *byte == b'\n').any(|l| l == b"populated 1");
            Ok(!is_populated && children?.is_empty())
        };
        look().unwrap_or_else(|error| error.is_gone())
    }
}
