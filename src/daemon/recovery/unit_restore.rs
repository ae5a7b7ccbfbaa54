//! Giving units back to systemd as they were, from the journal alone.
//!
//! [`crate::host::systemd`] explains why these steps are needed. For all units: properties are set to their
//! old values, and the files are awaited; drop-ins that were not there are removed; systemd reloads its
//! configuration, once. Where systemd then has another value for a property than the one restored, the
//! administrator has set it for good meanwhile, or has changed the unit's file; that value is put into the
//! files in the same way. Then slices that were started are stopped, children first, if no unit needs them: a
//! unit that needs them may have no cgroup, and every unit in them would be stopped.
//!
//! - *What has to wait*, and what systemd refused, stays in the journal; all else is forgotten, for whatever
//!   becomes of it afterwards is somebody else's doing. A limit that has to wait keeps its drop-in as well:
//!   systemd writes all that it knows of a unit whenever one thing of it is set, and would kill with the rest.
//! - *A set of CPUs that is to be emptied* is first made all that can ever be there, those that are offline
//!   included. The kernel empties none that processes live under, and systemd takes the controller away only where
//!   no sibling wants it. What is left confines no process, and is logged.
//! - *A unit that runs and is not loaded* is given back by `unit_write_back`.
//! - *A unit that goes meanwhile* needs nothing but that its drop-ins go too.
//! - *A unit that does not run* has no files, and to set it would make a cgroup for it. The drop-ins that were its
//!   administrator's get back their text.
//! - *What is someone else's by now* stays; a drop-in of ours for it is removed, if it says what we set.
//! - *A transient unit that went* took its run-time settings along, and needs nothing.

use std::time::Duration;

use tracing::info;

use super::deadline::Deadline;
use super::restore::Restored;
use super::unit_debts::{Debt, Due, Leftover, Stage, Started, debts, leftovers, started};
use super::unit_files::{UnitFiles, Waiting};
use super::unit_write_back::write_back;
use crate::host::journal::Entry;
use crate::host::kernfs::{DirId, KernFs};
use crate::host::systemd::{
    Order, Property, Reply, Setting, UnitError, UnitManager, UnitState, carry_out,
};

/// How often the files are read for values that systemd has accepted, and the wait between two readings.
const LOOKS: u32 = 200;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Undoes what `entries` (oldest first) say of units; what it could not is owed afterwards.
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
            let (files, units) = (UnitFiles::of(kernel, proc), &mut *units);
            let mut session = Session { files, units, is_stale: false, deadline, restored };
            if let Err(error) = session.put_back(&mut debts, &mut started, &mut leftovers) {
                restored.failures.push(format!("units not restored: {error}"));
            }
        }
        None => {
            restored.failures.push("units not restored: this host is not run by systemd".into());
        }
    }
    let dues = debts.iter().flat_map(|debt| &debt.dues);
    let unpaid = dues.filter(|due| due.stage != Stage::Paid).map(|due| due.entry);
    let left = started.iter().filter(|slice| !slice.is_settled).map(|slice| slice.entry);
    let forgotten = leftovers.iter().filter(|left| !left.is_settled).map(|left| left.entry);
    unpaid.chain(left).chain(forgotten).for_each(|entry| restored.owe(entry));
}

struct Session<'a, K> {
    files: UnitFiles<'a, K>,
    units: &'a mut dyn UnitManager,
    /// Whether drop-ins are not what systemd believes them to be.
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

    /// What came of it; only a bus that is away stops everything. A unit that is gone has nothing to be given back.
    fn note<T: Default>(&mut self, outcome: Result<T, UnitError>) -> Result<Option<T>, UnitError> {
        match outcome {
            Err(error) if error.is_about_the_bus() => Err(error),
            Err(UnitError::NoSuchUnit(_)) => Ok(Some(T::default())),
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
            self.files.tell_set(&unit);
            self.files.kernel.close_dir(unit.dir);
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
            let outcome = match self.set_back(debt) {
                // It went since it was looked at.
                Err(UnitError::NoSuchUnit(_)) => self.set_back_gone(debt).map(|()| None),
                outcome => outcome,
            };
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
            return match self.files.open(&state) {
                // It has ended since.
                Some(Err(error)) if error.is_gone() => self.set_back_idle(debt),
                Some(Ok(dir)) => {
                    write_back(&mut self.files, debt, dir, self.restored);
                    self.rewrite_drop_ins(debt)
                }
                _ => Err(out_of_sight(&state, debt.unit)),
            }
            .map(|()| None);
        }
        if !state.is_loaded || !state.is_active {
            return self.set_back_idle(debt).map(|()| None);
        }
        let dir = self.files.dir_of(&state);
        for due in &mut debt.dues {
            match dir.and_then(|dir| self.files.kill(debt.unit, dir, &due.held)) {
                Some(kill) => self.restored.failures.push(kill),
                None => due.stage = Stage::Set,
            }
        }
        let mut settings = debt.set();
        let is_widened = dir.is_some_and(|dir| self.files.widen_sets(dir, &mut settings));
        let outcome = self.set(debt.unit, settings.clone());
        match (outcome, dir) {
            (Ok(()), dir) => Ok(dir.map(|dir| {
                let unit = debt.unit.to_string();
                Waiting { unit, dir, settings, is_widened }
            })),
            (Err(error), dir) => {
                dir.into_iter().for_each(|dir| self.files.kernel.close_dir(dir));
                debt.advance(Stage::Set, Stage::Owed);
                Err(error)
            }
        }
    }

    /// A unit that is gone took along what was set of it, if it was transient; else a drop-in may be left.
    fn set_back_gone(&mut self, debt: &mut Debt<'_>) -> Result<(), UnitError> {
        if !debt.life.is_empty() {
            debt.advance(Stage::Owed, Stage::Paid);
            return Ok(());
        }
        match self.set_back_idle(debt) {
            Err(UnitError::NoSuchUnit(_)) => {
                debt.advance(Stage::Owed, Stage::Paid);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// A unit that does not run has no files. What its administrator had set at run time is to hold for its
    /// next run again, and not what we wrote over it; the rest is forgotten with its drop-ins.
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

    fn set(&mut self, unit: &str, settings: Vec<Setting>) -> Result<(), UnitError> {
        let nr_files = settings.len();
        if nr_files > 0 {
            self.ask(Order::Set { unit: unit.to_string(), settings })?;
            self.restored.nr_files += nr_files;
        }
        Ok(())
    }

    /// Empties the sets that were widened, for whoever asks systemd, and in the file where the kernel lets it.
    fn empty_sets(&mut self, waiting: &[Waiting]) -> Result<(), UnitError> {
        let property = Property::AllowedCpus;
        for unit in waiting.iter().filter(|unit| unit.is_widened) {
            let settings = vec![Setting { property, value: property.unset() }];
            let outcome = self.ask(Order::Set { unit: unit.unit.clone(), settings });
            self.note(outcome.map(drop))?;
        }
        Ok(())
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
            match self.note(outcome.map(drop))? {
                Some(()) => self.is_stale = true,
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

    /// Systemd writes the files a moment after it has answered; the drop-ins are needed until then. What does not
    /// arrive is said, and not owed: there is nothing more to be asked for.
    fn await_files(&mut self, waiting: &mut [Waiting]) {
        for look in 0..LOOKS {
            for unit in waiting.iter_mut() {
                unit.settings.retain(|setting| !self.files.has_arrived(unit.dir, setting));
            }
            if waiting.iter().all(|unit| unit.settings.is_empty()) {
                return;
            }
            if look + 1 < LOOKS {
                self.files.kernel.pause(LOOK_EVERY);
            }
        }
        for unit in waiting.iter() {
            for setting in &unit.settings {
                let failure = self.files.not_arrived(unit, setting).to_string();
                self.restored.failures.push(failure);
            }
        }
    }

    /// Stops a slice that was started for a tenant, if nothing is in it.
    fn stop(&mut self, unit: &str) -> Result<(), UnitError> {
        let state = self.look(unit)?;
        let path = self.files.path_of(&state).filter(|_| state.is_active);
        let Some(path) = path else { return Ok(()) };
        if !self.files.is_empty(&path) || self.is_needed(&state)? {
            info!(unit, "the slice is populated: it stays, without our values");
            return Ok(());
        }
        self.ask(Order::Stop { unit: unit.to_string() })?;
        for _ in 0..LOOKS {
            let Ok(dir) = self.files.kernel.open_dir(&path) else { break };
            self.files.kernel.close_dir(dir);
            self.files.kernel.pause(LOOK_EVERY);
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
}

/// Why a unit that is not loaded is not given back.
fn out_of_sight(state: &UnitState, unit: &str) -> UnitError {
    let message = format!("it is not loaded, and its cgroup {} is not there", state.cgroup);
    UnitError::Refused { unit: unit.to_string(), message }
}
