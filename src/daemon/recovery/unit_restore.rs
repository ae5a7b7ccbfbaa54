//! Giving units back to systemd as they were, from the journal alone.
//!
//! Why it takes these steps stands in [`crate::host::systemd`]. For all units: properties are set to what they
//! held, and the files are waited for; drop-ins that were not there are removed; systemd reads its
//! configuration again, once. Where it then takes a property for something else than was put back, the
//! administrator has set it for good meanwhile, or has changed the unit's file; that is put into the files in the
//! same manner. Then slices that were started are stopped, children first, where no unit needs them: not each
//! that does has a cgroup, and all of them would end.
//!
//! - *What has to wait*, and what systemd refused, stays in the journal; all else is forgotten, for whatever
//!   becomes of it afterwards is somebody else's doing. A limit that has to wait keeps its drop-in as well:
//!   systemd writes all that it knows of a unit whenever one thing of it is set, and would kill with the rest.
//! - *A set of CPUs that is to be emptied* is first made all that there are above. The kernel empties none that
//!   processes live under, and systemd takes the controller away only where no sibling wants it. What is left
//!   confines nobody, and is logged.
//! - *A unit that runs and is not loaded* (it was masked, or its file was removed) is not systemd's to change: what it
//!   held is written into its files, which nothing else writes then.
//! - *A unit that does not run* has no files, and to set it would make a cgroup for it. The drop-ins that were its
//!   administrator's get back their text.
//! - *What is someone else's by now* stays; a drop-in of ours for it is removed, if it says what we set.
//! - *A transient unit that went* took its run-time settings along, and needs nothing.

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

/// How often the files are looked at for values that systemd has taken, and how long is waited between.
const LOOKS: u32 = 200;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A unit that was set, and what of it is not seen in its files yet.
struct Waiting {
    unit: String,
    dir: DirId,
    settings: Vec<Setting>,
    /// Whether its set of CPUs was widened, and is to be emptied then.
    is_widened: bool,
}

/// Undoes what `entries` (oldest first) say of units; what it could not is owed afterwards.
///
/// `units` is whoever the agent asked until now, so that nothing asked for earlier comes later.
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
    /// Whether drop-ins are not what systemd believes them to be.
    is_stale: bool,
    deadline: Deadline<'a>,
    restored: &'a mut Restored,
}

impl<K: KernFs> Session<'_, K> {
    /// # Errors
    /// The bus is away, or the time is over. What is the matter with one unit is noted and stops nothing.
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

    /// What came of it; only a bus that is away stops everything.
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

    /// Sets what units held, waits for the files, and makes systemd forget that anything was set.
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

    /// What systemd takes properties for by now, where that is not what was put back: an administrator set
    /// them for good while they were ours, or changed the unit's file. The files are to agree with that.
    fn changed<'a>(&mut self, debts: &[Debt<'a>]) -> Result<Vec<Debt<'a>>, UnitError> {
        let mut changed = Vec::new();
        for debt in debts {
            let outcome = self.look(debt.unit);
            let Some(state) = self.note(outcome)? else { continue };
            // Of a unit that is not loaded systemd knows no values.
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

    /// Sets what one unit held, but for what has to wait.
    fn set_back(&mut self, debt: &mut Debt<'_>) -> Result<Option<Waiting>, UnitError> {
        let state = self.look(debt.unit)?;
        // A unit that runs and is not loaded has no file to tell its life by; it cannot be started anew either.
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

    /// A unit that does not run has no files. What its administrator had set at run time is to hold for its
    /// next run again, and not what we wrote over it; the rest is forgotten with its drop-ins.
    fn set_back_idle(&mut self, debt: &mut Debt<'_>) -> Result<(), UnitError> {
        debt.advance(Stage::Owed, Stage::Set);
        self.rewrite_drop_ins(debt).inspect_err(|_| debt.advance(Stage::Set, Stage::Owed))
    }

    /// Gives the drop-ins of what is set the text that they had.
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

    /// Writes what a unit held into its files: it runs and is not loaded, so systemd takes no settings of it and
    /// writes none of its files until it is loaded again (seen on 252 and 257).
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

    /// Writes one value into the files in `dir`, and looks whether it is there.
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
            // An empty text would be no write at all: the kernel takes a newline for "nothing".
            let text = if spelling.text.is_empty() { "\n" } else { &*spelling.text };
            match self.kernel.write(dir, spelling.file, text) {
                // The controller went, and the value with it.
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

    /// Makes sets of CPUs that are to be emptied, and are not empty, all that there are above; says whether there
    /// was any.
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

    /// Empties the sets that were widened, for whoever asks systemd, and in the file where the kernel lets it.
    fn empty_sets(&mut self, waiting: &[Waiting]) -> Result<(), UnitError> {
        let property = Property::AllowedCpus;
        for unit in waiting.iter().filter(|unit| unit.is_widened) {
            let settings = vec![Setting { property, value: property.unset() }];
            let outcome = self.ask(Order::Set { unit: unit.unit.clone(), settings });
            self.note(outcome)?;
        }
        Ok(())
    }

    /// Says what is left of a set that was widened.
    fn tell_set(&mut self, unit: &Waiting) {
        if unit.is_widened && self.is_confined(unit.dir) {
            info!(
                unit = unit.unit,
                "its cpuset.cpus names every CPU instead of none, which is the same until CPUs come or go: \
                 the kernel empties no set that processes live under"
            );
        }
    }

    /// Makes systemd forget what was set, where nobody else had set it.
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

    /// Removes a drop-in that we made for a property that is someone else's by now.
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

    /// Systemd writes the files a moment after it has answered; the drop-ins are needed until then. What does not
    /// arrive is said, and not owed: there is nothing more to be asked for.
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
            // The controller went with the last property that wanted it.
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

    /// Whether a unit runs, or is about to, that would stop with it. Not each has a cgroup: a socket that
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
