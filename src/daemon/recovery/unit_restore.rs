//! Giving units back to systemd as they were, from the journal alone.
//!
//! [`crate::host::systemd`] explains why these steps are needed. For all units: properties are set to their
//! old values, and the files are awaited; drop-ins that were not there are removed; systemd reloads its
//! configuration, once. Where systemd then has another value for a property than the one restored, the
//! administrator has set it for good meanwhile, or has changed the unit's file; that value is put into the
//! files in the same way. Then slices that were started are stopped, children first, if no unit needs them: a
//! unit that needs them may have no cgroup, and every unit in them would be stopped.
//!
//! - *What has to wait*, and what systemd refused, stays in the journal. Everything else is forgotten: others
//!   may change it afterwards. A limit that has to wait keeps its drop-in as well: systemd writes all that it
//!   knows of a unit whenever one property is set, and would kill with the rest.
//! - *A set of CPUs that is to be emptied* is first widened to all CPUs of the cgroup above. The kernel
//!   empties no set of a cgroup with processes, and systemd disables the controller only if no sibling needs
//!   it. What is left restricts no process, and is logged.
//! - *A unit that runs and is not loaded* (it was masked, or its file was removed) cannot be changed by
//!   systemd: the old values are written into its files, which nothing else writes then.
//! - *A unit that does not run* has no files, and to set it would make a cgroup for it. The drop-ins of its
//!   administrator get back their text.
//! - *A value that another program has set since* stays; a drop-in of the agent's for it is removed, if it
//!   has the agent's value.
//! - *A transient unit that is gone* took its run-time settings along, and needs nothing.

use std::path::Path;
use std::time::Duration;

use tracing::info;

use super::deadline::Deadline;
use super::restore::Restored;
use super::unit_debts::{Debt, Due, Leftover, Stage, Started, debts, leftovers, started};
use crate::control::plan::{Knob, Value};
use crate::dop::CpuSet;
use crate::host::cgroup::{self, Dialect, Layout, Tree};
use crate::host::enforce::{EnforceError, cpus_of, taken};
use crate::host::journal::Entry;
use crate::host::kernfs::{DirId, KernError, KernFs};
use crate::host::systemd::{
    Order, Property, Reply, Setting, UnitError, UnitManager, UnitState, carry_out,
};
use crate::policy::model::{HierarchyChoice, RootChoice};
use crate::units::{Bytes, Limit};

/// How often the files are read for values that systemd has accepted, and the wait between two readings.
const LOOKS: u32 = 200;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A unit that was set, and the values that its files do not hold yet.
struct Waiting {
    unit: String,
    dir: DirId,
    settings: Vec<Setting>,
    /// Whether its set of CPUs was widened, and is to be emptied next.
    is_widened: bool,
}

/// Undoes what `entries` (oldest first) record of units; what could not be undone is owed afterwards.
///
/// `units` is the manager that the agent has used, so that no earlier order is carried out later.
pub(in crate::daemon) fn put_back(
    kernel: &mut impl KernFs,
    proc: DirId,
    units: Option<Box<dyn UnitManager>>,
    entries: &[Entry],
    deadline: Deadline<'_>,
    restored: &mut Restored,
) {
    let (mut debts, mut started) = (debts(entries), started(entries));
    let mut leftovers = leftovers(entries);
    if debts.is_empty() && started.is_empty() && leftovers.is_empty() {
        return;
    }
    match units.or_else(|| kernel.unit_manager()) {
        Some(mut units) => {
            let tree = tree(kernel, proc);
            let units = &mut *units;
            let mut session = Session { kernel, units, tree, is_stale: false, deadline, restored };
            if let Err(error) = session.put_back(&mut debts, &mut started, &mut leftovers) {
                restored.failures.push(format!("units not put back: {error}"));
            }
        }
        None => {
            restored.failures.push("units not put back: this host is not run by systemd".into());
        }
    }
    let dues = debts.iter().flat_map(|debt| &debt.dues);
    let unpaid = dues.filter(|due| due.stage != Stage::Paid).map(|due| due.entry);
    let left = started.iter().filter(|slice| !slice.is_settled).map(|slice| slice.entry);
    let forgotten = leftovers.iter().filter(|left| !left.is_settled).map(|left| left.entry);
    unpaid.chain(left).chain(forgotten).for_each(|entry| restored.owe(entry));
}

/// The hierarchy; without it, nothing is known of the files of units.
fn tree(kernel: &mut impl KernFs, proc: DirId) -> Option<Tree> {
    let mountinfo = kernel.read_once(proc, "self/mountinfo").ok()?.to_vec();
    let own = kernel.read_once(proc, "self/cgroup").ok()?.to_vec();
    let layout =
        Layout::detect(&mountinfo, &own, HierarchyChoice::Unified, &RootChoice::Auto).ok()?;
    layout.trees.into_iter().next()
}

struct Session<'a, K> {
    kernel: &'a mut K,
    units: &'a mut dyn UnitManager,
    tree: Option<Tree>,
    /// Whether drop-ins differ from what systemd has loaded.
    is_stale: bool,
    deadline: Deadline<'a>,
    restored: &'a mut Restored,
}

impl<K: KernFs> Session<'_, K> {
    /// # Errors
    /// The bus is away, or the deadline has passed. A failure of one unit is noted and stops nothing.
    fn put_back(
        &mut self,
        debts: &mut [Debt<'_>],
        started: &mut [Started<'_>],
        leftovers: &mut [Leftover<'_>],
    ) -> Result<(), UnitError> {
        for left in leftovers.iter_mut() {
            let outcome = self.forget_ours(left);
            left.is_settled = self.note(outcome)?.is_some();
        }
        self.round(debts)?;
        let mut changed = self.changed(debts)?;
        if !changed.is_empty() {
            self.round(&mut changed)?;
        }
        for slice in started.iter_mut().rev() {
            let outcome = self.stop(slice.unit);
            slice.is_settled = self.note(outcome)?.is_some();
        }
        Ok(())
    }

    /// The result; only a bus that is away stops everything.
    fn note<T>(&mut self, outcome: Result<T, UnitError>) -> Result<Option<T>, UnitError> {
        match outcome {
            Err(error) if error.is_about_the_bus() => Err(error),
            Err(error) => {
                self.restored.failures.push(error.to_string());
                Ok(None)
            }
            Ok(done) => Ok(Some(done)),
        }
    }

    /// Sets the old values of units, waits for the files, and makes systemd forget that anything was set.
    fn round(&mut self, debts: &mut [Debt<'_>]) -> Result<(), UnitError> {
        let mut waiting = Vec::new();
        let outcome = self.set_all_back(debts, &mut waiting);
        self.await_files(&mut waiting);
        let outcome =
            outcome.and_then(|()| self.empty_sets(&waiting)).and_then(|()| self.forget(debts));
        for unit in waiting {
            self.tell_set(&unit);
            self.kernel.close_dir(unit.dir);
        }
        outcome
    }

    /// The values that systemd has for properties now, where they differ from the restored ones: an
    /// administrator set them for good meanwhile, or changed the unit's file. The files have to agree with
    /// that.
    fn changed<'a>(&mut self, debts: &[Debt<'a>]) -> Result<Vec<Debt<'a>>, UnitError> {
        let mut changed = Vec::new();
        for debt in debts {
            let outcome = self.look(debt.unit);
            let Some(state) = self.note(outcome)? else { continue };
            // For a unit that is not loaded systemd has no values.
            if debt.life != state.life || !state.is_active || !state.is_loaded {
                continue;
            }
            let dues: Vec<Due<'a>> =
                debt.dues.iter().filter_map(|due| due.changed(&state)).collect();
            if !dues.is_empty() {
                changed.push(Debt { unit: debt.unit, life: debt.life, dues });
            }
        }
        Ok(changed)
    }

    fn set_all_back(
        &mut self,
        debts: &mut [Debt<'_>],
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), UnitError> {
        for debt in debts.iter_mut().rev() {
            let outcome = self.set_back(debt);
            waiting.extend(self.note(outcome)?.flatten());
        }
        Ok(())
    }

    fn ask(&mut self, order: Order) -> Result<Reply, UnitError> {
        let deadline = self.deadline.for_an_order()?;
        carry_out(self.units, order, deadline)
    }

    fn look(&mut self, unit: &str) -> Result<UnitState, UnitError> {
        match self.ask(Order::Look { unit: unit.to_string() })? {
            Reply::Unit(state) => Ok(state),
            Reply::Done => Ok(UnitState::default()),
        }
    }

    /// Sets the old values of one unit, except those that have to wait.
    fn set_back(&mut self, debt: &mut Debt<'_>) -> Result<Option<Waiting>, UnitError> {
        let state = self.look(debt.unit)?;
        // A unit that runs and is not loaded has no file that identifies its life; it cannot be restarted
        // either.
        let is_unloaded = state.is_active && !state.is_loaded && !state.cgroup.is_empty();
        if !debt.life.is_empty() && debt.life != state.life && !is_unloaded {
            debt.advance(Stage::Owed, Stage::Paid);
            return Ok(None);
        }
        if is_unloaded {
            return self.write_back(debt, &state).map(|()| None);
        }
        if !state.is_loaded || !state.is_active {
            return self.set_back_idle(debt).map(|()| None);
        }
        let dir = self.dir_of(&state);
        for due in &mut debt.dues {
            if dir.is_none_or(|dir| self.is_survived(debt.unit, dir, &due.held)) {
                due.stage = Stage::Set;
            }
        }
        let mut settings = debt.set();
        let is_widened = dir.is_some_and(|dir| self.widen_sets(dir, &mut settings));
        let outcome = self.set(debt.unit, settings.clone());
        match (outcome, dir) {
            (Ok(()), dir) => Ok(dir.map(|dir| {
                let unit = debt.unit.to_string();
                Waiting { unit, dir, settings, is_widened }
            })),
            (Err(error), dir) => {
                dir.into_iter().for_each(|dir| self.kernel.close_dir(dir));
                debt.advance(Stage::Set, Stage::Owed);
                Err(error)
            }
        }
    }

    /// A unit that does not run has no files. What its administrator had set at run time has to hold for its
    /// next run again, and not the agent's value; the rest is forgotten with its drop-ins.
    fn set_back_idle(&mut self, debt: &mut Debt<'_>) -> Result<(), UnitError> {
        debt.advance(Stage::Owed, Stage::Set);
        self.rewrite_drop_ins(debt).inspect_err(|_| debt.advance(Stage::Set, Stage::Owed))
    }

    /// Restores the text of the drop-ins.
    fn rewrite_drop_ins(&mut self, debt: &Debt<'_>) -> Result<(), UnitError> {
        let text = |due: &Due<'_>| Some((due.held.property, due.drop_in?.to_string()));
        let dues = debt.dues.iter().filter(|due| due.stage == Stage::Set);
        let drop_ins: Vec<(Property, String)> = dues.filter_map(text).collect();
        if !drop_ins.is_empty() {
            self.ask(Order::Rewrite { unit: debt.unit.to_string(), drop_ins })?;
            self.is_stale = true;
        }
        Ok(())
    }

    /// Writes the old values of a unit into its files: it runs and is not loaded, so systemd accepts no
    /// settings for it and writes none of its files until it is loaded again (observed on 252 and 257).
    fn write_back(&mut self, debt: &mut Debt<'_>, state: &UnitState) -> Result<(), UnitError> {
        let unit = debt.unit;
        let Some(dir) = self.dir_of(state) else {
            let message = format!("it is not loaded, and its cgroup {} is not there", state.cgroup);
            return Err(UnitError::Refused { unit: unit.to_string(), message });
        };
        for due in debt.dues.iter_mut().filter(|due| due.stage == Stage::Owed) {
            if !self.is_survived(unit, dir, &due.held) {
                continue;
            }
            match self.write_setting(unit, dir, &due.held) {
                Ok(()) => {
                    due.stage = Stage::Set;
                    self.restored.nr_files += 1;
                }
                Err(error) => self.restored.failures.push(error.to_string()),
            }
        }
        self.kernel.close_dir(dir);
        self.rewrite_drop_ins(debt)
    }

    /// Writes one value into the files in `dir`, and verifies it.
    fn write_setting(
        &mut self,
        unit: &str,
        dir: DirId,
        setting: &Setting,
    ) -> Result<(), EnforceError> {
        let mut settings = [setting.clone()];
        let is_widened = self.widen_sets(dir, &mut settings);
        let [written] = settings;
        let (knob, Some(value)) = (written.property.knob(), written.expected()) else {
            return Ok(());
        };
        for spelling in Dialect::Unified.spell(knob, &value) {
            // Writing an empty text would write nothing: the kernel takes a newline for the empty value.
            let text = if spelling.text.is_empty() { "\n" } else { &*spelling.text };
            match self.kernel.write(dir, spelling.file, text) {
                // The controller was disabled, and the value is gone.
                Err(error) if error.is_gone() => return Ok(()),
                outcome => outcome?,
            }
        }
        let unit = Waiting { unit: unit.to_string(), dir, settings: Vec::new(), is_widened };
        self.tell_set(&unit);
        match self.has_arrived(dir, &written) {
            true => Ok(()),
            false => Err(self.not_arrived(&unit, &written)),
        }
    }

    fn set(&mut self, unit: &str, settings: Vec<Setting>) -> Result<(), UnitError> {
        let nr_files = settings.len();
        if nr_files > 0 {
            self.ask(Order::Set { unit: unit.to_string(), settings })?;
            self.restored.nr_files += nr_files;
        }
        Ok(())
    }

    fn dir_of(&mut self, state: &UnitState) -> Option<DirId> {
        let cgroup = Some(&state.cgroup).filter(|cgroup| !cgroup.is_empty())?;
        let path = self.tree.as_ref()?.dir_of(cgroup);
        self.kernel.open_dir(&path).ok()
    }

    /// Widens sets of CPUs that are to be emptied, and are not empty, to those of the cgroup above; returns
    /// whether there was any.
    fn widen_sets(&mut self, dir: DirId, settings: &mut [Setting]) -> bool {
        let is_emptied = |setting: &&mut Setting| {
            setting.property == Property::AllowedCpus && setting.value == setting.property.unset()
        };
        let Some(setting) = settings.iter_mut().find(is_emptied) else { return false };
        let Some(cpus) = self.cpus_above(dir).filter(|_| self.is_confined(dir)) else {
            return false;
        };
        *setting = Setting::of(Knob::Cpus, &Value::CpuList(cpus));
        true
    }

    fn is_confined(&mut self, dir: DirId) -> bool {
        let text = self.kernel.read_once(dir, Dialect::Unified.file(Knob::Cpus));
        text.is_ok_and(|text| !text.trim_ascii().is_empty())
    }

    fn cpus_above(&mut self, dir: DirId) -> Option<CpuSet> {
        let above = self.kernel.open_dir(self.kernel.dir_path(dir).parent()?).ok()?;
        let cpus = cpus_of(self.kernel, above, Dialect::Unified.effective_cpus());
        self.kernel.close_dir(above);
        cpus.ok()?
    }

    /// Empties the sets that were widened, in systemd, and in the file if the kernel allows it.
    fn empty_sets(&mut self, waiting: &[Waiting]) -> Result<(), UnitError> {
        let property = Property::AllowedCpus;
        for unit in waiting.iter().filter(|unit| unit.is_widened) {
            let settings = vec![Setting { property, value: property.unset() }];
            let outcome = self.ask(Order::Set { unit: unit.unit.clone(), settings });
            self.note(outcome)?;
        }
        Ok(())
    }

    /// Logs what is left of a set that was widened.
    fn tell_set(&mut self, unit: &Waiting) {
        if unit.is_widened && self.is_confined(unit.dir) {
            info!(
                unit = unit.unit,
                "its cpuset.cpus names every CPU instead of none, which is the same until CPUs come or go: \
                 the kernel empties no set that processes live under"
            );
        }
    }

    /// Makes systemd forget what was set, where no other program had set it.
    fn forget(&mut self, debts: &mut [Debt<'_>]) -> Result<(), UnitError> {
        let is_ours = |due: &Due<'_>| due.stage == Stage::Set && due.drop_in.is_none();
        for debt in debts.iter_mut().rev() {
            let (unit, properties) = (debt.unit.to_string(), debt.properties(is_ours));
            if properties.is_empty() {
                continue;
            }
            let outcome = self.ask(Order::Forget { unit, properties });
            match self.note(outcome)? {
                Some(_) => self.is_stale = true,
                None => debt.advance(Stage::Set, Stage::Owed),
            }
        }
        if self.is_stale {
            self.ask(Order::Reload)?;
            self.is_stale = false;
        }
        debts.iter_mut().for_each(|debt| debt.advance(Stage::Set, Stage::Paid));
        Ok(())
    }

    /// Removes a drop-in of the agent's for a property that another program has set since.
    fn forget_ours(&mut self, left: &Leftover<'_>) -> Result<(), UnitError> {
        let (unit, settings) = (left.unit.to_string(), vec![left.ours.clone()]);
        self.ask(Order::ForgetOurs { unit, settings })?;
        self.is_stale = true;
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

    /// Systemd writes the files a moment after it has answered; the drop-ins are needed until then. A value
    /// that does not arrive is logged, and not owed: there is nothing more to request.
    fn await_files(&mut self, waiting: &mut [Waiting]) {
        for look in 0..LOOKS {
            for unit in waiting.iter_mut() {
                unit.settings.retain(|setting| !self.has_arrived(unit.dir, setting));
            }
            if waiting.iter().all(|unit| unit.settings.is_empty()) {
                return;
            }
            if look + 1 < LOOKS {
                std::thread::sleep(LOOK_EVERY);
            }
        }
        for unit in waiting.iter() {
            for setting in &unit.settings {
                let failure = self.not_arrived(unit, setting).to_string();
                self.restored.failures.push(failure);
            }
        }
    }

    fn not_arrived(&mut self, unit: &Waiting, setting: &Setting) -> EnforceError {
        let file = Dialect::Unified.file(setting.property.knob());
        let found = self.kernel.read_once(unit.dir, file);
        let found = found.map(|text| String::from_utf8_lossy(text.trim_ascii()).into_owned());
        EnforceError::NotArrived {
            unit: unit.unit.clone(),
            property: setting.property.name(),
            written: setting.expected().map(|value| value.to_string()).unwrap_or_default(),
            file,
            found: found.unwrap_or_default(),
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
            // The controller was disabled with the last property that needed it.
            Err(_) => true,
        }
    }

    /// Stops a slice that was started for a tenant, if nothing is in it.
    fn stop(&mut self, unit: &str) -> Result<(), UnitError> {
        let state = self.look(unit)?;
        let (true, Some(tree)) = (state.is_active, &self.tree) else { return Ok(()) };
        let path = tree.dir_of(&state.cgroup);
        if !self.is_empty(&path) || self.is_needed(&state)? {
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

    /// Whether a unit runs, or is about to, that would stop with it. Not every unit has a cgroup: a socket that
    /// listens has none, nor has a service that waits to be started again.
    fn is_needed(&mut self, state: &UnitState) -> Result<bool, UnitError> {
        for unit in &state.required_by {
            if self.look(unit)?.is_active {
                return Ok(true);
            }
        }
        Ok(false)
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
