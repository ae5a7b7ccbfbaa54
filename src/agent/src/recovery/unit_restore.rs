//! Restoring units of systemd, from the journal alone.
//!
//! [`tenantd_host::systemd`] explains the reasons for these steps. Each step is ordered for all units before
//! the first answer is awaited, so a thousand units take a few seconds.
//!
//! 1. Set properties to their old values, wait for the files, and remove drop-ins that did not exist before.
//! 2. Stop slices that were started, children first, if no unit needs them (`unit_stop`).
//! 3. Reload systemd's configuration, once.
//! 4. If a property then differs, the administrator has changed it meanwhile: write that value in the same way.
//!
//! **Reloads.** A reload makes systemd write its values of *every* unit of the host, over those that container
//! runtimes wrote to their scopes without it (swap limits, device rules, CPU sets). So there is none while the
//! agent goes on ([`Extent::Part`]), and at most one in the end, if a drop-in of a loaded unit was changed or removed, or a
//! slice was stopped. Without it:
//!
//! - a unit that runs has its old values in systemd's memory and in its files, because they were set;
//! - a slice or a scope that does not run is not loaded, and systemd will load it without the drop-ins;
//! - a service that does not run may be loaded with values that no file has any more ([`Restored::is_stale`]);
//! - a slice that was started is owed until the end, because its stop needs a reload.
//!
//! **Special cases.**
//!
//! - *Waiting or refused values* stay in the journal. A limit that waits keeps its drop-in: systemd writes all
//!   values of a unit whenever one is set, and the limit would kill with the others.
//! - *A CPU set to be emptied* is first set to all possible CPUs. The kernel does not empty it while there are
//!   processes, and systemd disables the controller only if no sibling wants it. The remaining set confines no
//!   process, and is logged.
//! - *While a CPU is offline*, that set stays and is owed. Otherwise systemd might disable the controller, and
//!   Linux 6.2 and later would keep every process of the host off that CPU when it returns: the affinity of a
//!   process that moves between sets with the same CPUs is not updated, and the top set does not follow CPUs
//!   that return.
//! - *A unit that runs and is not loaded* is restored by `unit_write_back`.
//! - *A unit that does not run* has no files, and setting it would make a cgroup. Its administrator's drop-ins
//!   get back their text.
//! - *A foreign value* stays; the agent's drop-in for it, if unchanged, is removed or gets back its old text.
//! - *A transient unit that went* took its run-time settings along, and needs nothing.

use tracing::warn;

use super::all_cpus::offline_cpus;
use super::deadline::Deadline;
use super::restore::{Extent, Restored};
use super::unit_debts::{Debt, Due, Leftover, Stage, Started, debts, leftovers, started};
use super::unit_files::{UnitFiles, Waiting};
use super::unit_session::{LOOK_EVERY, LOOKS, Session};
use super::unit_write_back::write_back;
use tenantd_host::journal::{Entry, UnitHeld};
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::systemd::{Order, Property, Reply, Setting, UnitError, UnitManager, UnitState};

/// Undoes the unit changes in `entries` (oldest first); failures are owed afterwards.
///
/// `units` is the manager that the agent has used, so that no earlier order is carried out later.
pub(crate) fn put_back(
    kernel: &mut impl KernFs,
    proc: DirId,
    units: Option<Box<dyn UnitManager>>,
    (entries, extent): (&[Entry], Extent),
    deadline: Deadline<'_>,
    restored: &mut Restored,
) {
    let (mut debts, mut started) = (debts(entries), started(entries));
    let mut leftovers = leftovers(entries);
    let is_stale = restored.is_stale && extent == Extent::All;
    if debts.is_empty() && started.is_empty() && leftovers.is_empty() && !is_stale {
        return;
    }
    let units = units.or_else(|| kernel.unit_manager());
    match (units, UnitFiles::of(kernel, proc)) {
        (Some(mut units), Ok(files)) => {
            let units = &mut *units;
            let mut session = Session { files, units, extent, deadline, restored };
            if let Err(error) = session.put_back(&mut debts, &mut started, &mut leftovers) {
                restored.failures.push(format!("units not restored: {error}"));
            }
        }
        (Some(_), Err(error)) => {
            restored.failures.push(format!("units not restored: {error}"));
        }
        (None, _) => {
            restored.failures.push("units not restored: this host is not run by systemd".into());
        }
    }
    let dues = debts.iter().flat_map(|debt| &debt.dues);
    let unpaid = dues.filter(|due| due.stage != Stage::Paid).map(|due| due.entry);
    let left = started.iter().filter(|slice| !slice.is_settled).map(|slice| slice.entry);
    let unsettled = leftovers.iter().filter(|left| !left.is_settled);
    let forgotten = unsettled.flat_map(|left| left.entries.iter().copied());
    unpaid.chain(left).chain(forgotten).for_each(|entry| restored.owe(entry));
}

impl<K: KernFs> Session<'_, K> {
    /// Fails if the bus is away, or the deadline has passed. A failure of one unit does not stop the others.
    fn put_back(
        &mut self,
        debts: &mut [Debt<'_>],
        started: &mut [Started<'_>],
        leftovers: &mut [Leftover<'_>],
    ) -> Result<(), UnitError> {
        let states = self.look(leftovers.iter().map(|left| &*left.was.unit));
        for (left, state) in leftovers.iter_mut().zip(states) {
            let outcome = self.forget_ours(left, state);
            left.is_settled = self.note(outcome)?.is_some();
        }
        self.round(debts)?;
        match self.extent {
            Extent::Part => debts.iter_mut().for_each(pay),
            Extent::All => {
                self.stop_all(started)?;
                self.reload_if_stale()?;
                debts.iter_mut().for_each(pay);
                let mut changed = self.changed(debts)?;
                if !changed.is_empty() {
                    // These values are those of the configuration, so systemd need not read it again.
                    self.round(&mut changed)?;
                    self.restored.is_stale = false;
                }
            }
        }
        Ok(())
    }

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

    /// Values of systemd that differ from the restored ones: an administrator set them permanently meanwhile,
    /// or changed the unit's file. The files must agree with them.
    fn changed<'a>(&mut self, debts: &[Debt<'a>]) -> Result<Vec<Debt<'a>>, UnitError> {
        let mut changed = Vec::new();
        let states = self.look(debts.iter().map(|debt| debt.unit));
        for (debt, outcome) in debts.iter().zip(states) {
            let Some(state) = self.note(outcome)? else { continue };
            // Systemd has no values of a unit that is not loaded.
            if debt.life != state.life || !state.is_active || !state.is_loaded {
                continue;
            }
            let dues: Vec<Due<'a>> =
                debt.dues.iter().filter_map(|due| due.changed(&state)).collect();
            if !dues.is_empty() {
                changed.push(Debt { unit: debt.unit, life: debt.life, dues, may_be_loaded: true });
            }
        }
        Ok(changed)
    }

    fn set_all_back(
        &mut self,
        debts: &mut [Debt<'_>],
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), UnitError> {
        let states = self.look(debts.iter().rev().map(|debt| debt.unit));
        let (mut all_asked, mut lost) = (Vec::new(), Ok(()));
        for (debt, state) in debts.iter_mut().rev().zip(states) {
            let outcome = match state.and_then(|state| self.make_ready(debt, &state)) {
                // The unit went since it was recorded.
                Err(UnitError::NoSuchUnit(_)) => self.set_back_gone(debt).map(|()| None),
                outcome => outcome,
            };
            match self.note(outcome) {
                Ok(asked) => all_asked.extend(asked.flatten().map(|asked| (debt, asked))),
                Err(error) => lost = lost.and(Err(error)),
            }
        }
        let set = |(_, asked): &(&mut Debt<'_>, Asked)| Order::Set {
            unit: asked.unit.clone(),
            settings: asked.settings.clone(),
        };
        let outcomes = self.ask(all_asked.iter().map(set).collect());
        for ((debt, asked), outcome) in all_asked.into_iter().zip(outcomes) {
            if let Err(error) = self.asked(debt, asked, outcome, waiting) {
                lost = lost.and(Err(error));
            }
        }
        lost
    }

    fn asked(
        &mut self,
        debt: &mut Debt<'_>,
        asked: Asked,
        outcome: Result<Reply, UnitError>,
        waiting: &mut Vec<Waiting>,
    ) -> Result<(), UnitError> {
        let Asked { unit, dir, settings, is_widened } = asked;
        let Err(error) = outcome else {
            self.restored.nr_files += settings.len();
            waiting.extend(dir.map(|dir| Waiting { unit, dir, settings, is_widened }));
            return Ok(());
        };
        dir.into_iter().for_each(|dir| self.files.kernel.close_dir(dir));
        debt.advance(Stage::Set, Stage::Owed);
        let outcome = match error {
            // The unit went since the lookup.
            UnitError::NoSuchUnit(_) => self.set_back_gone(debt),
            error => Err(error),
        };
        self.note(outcome).map(drop)
    }

    /// Settings of one unit: its old values, except those that must wait.
    fn make_ready(
        &mut self,
        debt: &mut Debt<'_>,
        state: &UnitState,
    ) -> Result<Option<Asked>, UnitError> {
        if state.has_ended(debt.life) {
            debt.advance(Stage::Owed, Stage::Paid);
            return Ok(None);
        }
        if state.is_unloaded() {
            return match self.files.open(state) {
                // The unit has ended since.
                Some(Err(error)) if error.is_gone() => self.set_back_idle(debt),
                Some(Ok(dir)) => {
                    write_back(&mut self.files, debt, dir, self.restored);
                    self.rewrite_drop_ins(debt)
                }
                _ => Err(out_of_sight(state, debt.unit)),
            }
            .map(|()| None);
        }
        if !state.is_loaded || !state.is_active {
            return self.set_back_idle(debt).map(|()| None);
        }
        let dir = self.files.dir_of(state);
        for due in &mut debt.dues {
            match dir.and_then(|dir| self.files.kill(debt.unit, dir, &due.held)) {
                Some(kill) => self.restored.failures.push(kill),
                None => due.stage = Stage::Set,
            }
        }
        let mut settings = debt.set();
        let is_widened = dir.is_some_and(|dir| self.files.widen_sets(dir, &mut settings))
            && !self.leave_wide(debt, state, &mut settings);
        let unit = debt.unit.to_string();
        if settings.is_empty() {
            dir.into_iter().for_each(|dir| self.files.kernel.close_dir(dir))
        } else {
            return Ok(Some(Asked { unit, dir, settings, is_widened }));
        }
        Ok(None)
    }

    /// Leaves a widened set while a CPU is offline, and owes the rest; returns true if it did.
    fn leave_wide(
        &mut self,
        debt: &mut Debt<'_>,
        state: &UnitState,
        settings: &mut Vec<Setting>,
    ) -> bool {
        let property = Property::AllowedCpus;
        let Some(offline) = offline_cpus(self.files.kernel) else { return false };
        let dues = debt.dues.iter_mut().filter(|due| due.held.property == property);
        dues.for_each(|due| due.stage = Stage::Owed);
        let is_left = |setting: &Setting| {
            setting.property == property && state.held.iter().any(|held| held.setting == *setting)
        };
        // An earlier restore left it and logged that.
        if settings.extract_if(.., |setting| is_left(setting)).count() == 0 {
            warn!(
                unit = debt.unit,
                "its AllowedCPUs= names every possible CPU, which confines nothing, until CPU {offline} is back: \
                 without it the kernel would keep running processes off that CPU for good; then run \
                 tenantd --restore, or start tenantd, or systemctl set-property --runtime {} AllowedCPUs=",
                debt.unit
            );
        }
        true
    }

    /// A transient unit that is gone took its settings along; of another one a drop-in may be left.
    fn set_back_gone(&mut self, debt: &mut Debt<'_>) -> Result<(), UnitError> {
        if !debt.life.is_empty() {
            debt.advance(Stage::Owed, Stage::Paid);
            return Ok(());
        }
        let outcome = self.set_back_idle(debt);
        debt.may_be_loaded = false;
        match outcome {
            Err(UnitError::NoSuchUnit(_)) => {
                debt.advance(Stage::Owed, Stage::Paid);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// A unit that does not run has no files. Drop-ins that its administrator set at run time get back their
    /// text for its next run; the agent's other drop-ins are forgotten.
    fn set_back_idle(&mut self, debt: &mut Debt<'_>) -> Result<(), UnitError> {
        debt.advance(Stage::Owed, Stage::Set);
        debt.may_be_loaded = stays_loaded(debt.unit);
        self.rewrite_drop_ins(debt).inspect_err(|_| debt.advance(Stage::Set, Stage::Owed))
    }

    /// Restores the text of drop-ins, which may differ from the values that systemd had loaded.
    fn rewrite_drop_ins(&mut self, debt: &Debt<'_>) -> Result<(), UnitError> {
        let text = |due: &Due<'_>| Some((due.held.property, due.drop_in?.to_string()));
        let dues = debt.dues.iter().filter(|due| due.stage == Stage::Set);
        let drop_ins: Vec<(Property, String)> = dues.filter_map(text).collect();
        if !drop_ins.is_empty() {
            let order = Order::Rewrite { unit: debt.unit.to_string(), drop_ins };
            self.restored.is_stale |= self.has_changed(order)? && debt.may_be_loaded;
        }
        Ok(())
    }

    /// Empties the sets that were widened: in systemd's report, and in the file if the kernel allows it.
    fn empty_sets(&mut self, waiting: &[Waiting]) -> Result<(), UnitError> {
        let property = Property::AllowedCpus;
        let set = |unit: &Waiting| Order::Set {
            unit: unit.unit.clone(),
            settings: vec![Setting { property, value: property.unset() }],
        };
        let orders = waiting.iter().filter(|unit| unit.is_widened).map(set).collect();
        for outcome in self.ask(orders) {
            self.note(outcome.map(drop))?;
        }
        Ok(())
    }

    /// Restores drop-ins from before the agent, and makes systemd forget the others.
    fn forget(&mut self, debts: &mut [Debt<'_>]) -> Result<(), UnitError> {
        for debt in debts.iter_mut().rev() {
            let outcome = self.forget_new(debt).and_then(|()| self.rewrite_drop_ins(debt));
            if self.note(outcome)?.is_none() {
                debt.advance(Stage::Set, Stage::Owed);
            }
        }
        Ok(())
    }

    /// Makes systemd forget the settings of one unit that did not exist before.
    fn forget_new(&mut self, debt: &Debt<'_>) -> Result<(), UnitError> {
        let is_new = |due: &Due<'_>| due.stage == Stage::Set && due.drop_in.is_none();
        let (unit, properties) = (debt.unit.to_string(), debt.properties(is_new));
        if !properties.is_empty() {
            let order = Order::Forget { unit, properties };
            self.restored.is_stale |= self.has_changed(order)? && debt.may_be_loaded;
        }
        Ok(())
    }

    /// Removes the agent's drop-in for a property that another program has set since, or restores its text. A
    /// drop-in of a later life is not the agent's.
    fn forget_ours(
        &mut self,
        left: &Leftover<'_>,
        state: Result<UnitState, UnitError>,
    ) -> Result<(), UnitError> {
        let UnitHeld { unit, life, drop_in, .. } = left.was;
        if !life.is_empty() && state?.has_ended(life) {
            return Ok(());
        }
        let (unit, ours, before) = (unit.clone(), left.ours.clone(), drop_in.clone());
        let order = Order::ForgetOurs { unit, ours, before };
        self.restored.is_stale |= self.has_changed(order)?;
        Ok(())
    }

    /// Waits for the files: systemd writes them a moment after it has answered, and needs the drop-ins until
    /// then. A value that does not arrive is logged, and not owed: nothing more could be done for it.
    fn await_files(&mut self, waiting: &mut [Waiting]) {
        let mut nr_in_vain = 0;
        while nr_in_vain < LOOKS && self.deadline.for_an_order().is_ok() {
            let nr_before = nr_settings(waiting);
            for unit in waiting.iter_mut() {
                unit.settings.retain(|setting| !self.files.has_arrived(unit.dir, setting));
            }
            match nr_settings(waiting) {
                0 => return,
                left if left < nr_before => nr_in_vain = 0,
                _ => nr_in_vain += 1,
            }
            self.files.kernel.pause(LOOK_EVERY);
        }
        for unit in waiting.iter() {
            for setting in &unit.settings {
                let failure = self.files.not_arrived(unit, setting).to_string();
                self.restored.failures.push(failure);
            }
        }
    }
}

struct Asked {
    unit: String,
    dir: Option<DirId>,
    settings: Vec<Setting>,
    is_widened: bool,
}

/// Marks dues as paid: systemd has forgotten the settings of the unit, or will not read it again.
fn pay(debt: &mut Debt<'_>) {
    debt.advance(Stage::Set, Stage::Paid);
}

/// True if a unit may be loaded while it does not run. Services, sockets and mounts stay loaded while other
/// units refer to them; slices and scopes are referred to only by units inside.
fn stays_loaded(unit: &str) -> bool {
    !unit.ends_with(".slice") && !unit.ends_with(".scope")
}

fn nr_settings(waiting: &[Waiting]) -> usize {
    waiting.iter().map(|unit| unit.settings.len()).sum()
}

fn out_of_sight(state: &UnitState, unit: &str) -> UnitError {
    let message = format!("it is not loaded, and its cgroup {} is not there", state.cgroup);
    UnitError::Refused { unit: unit.to_string(), message }
}
