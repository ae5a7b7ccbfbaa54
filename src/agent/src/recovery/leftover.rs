//! State that one agent leaves to the next, and to `tenantd --restore`.
//!
//! | event | effect |
//! |---|---|
//! | stop | restores everything and removes the journal |
//! | kill | the journal stays |
//! | stop with `on_exit: keep` | values and journal stay; the last line of the journal records the intent |
//! | start | restores the journal and begins a new one |
//! | `--restore` | restores the journal and exits |
//! | `--restore --unless-kept` | the same, but leaves values that were kept on purpose |
//!
//! Values that cannot be restored stay in the journal.

use std::path::Path;

use tracing::{info, warn};

use super::deadline::Deadline;
use super::dop_files::{dop_dir, remove_all};
pub(crate) use super::keeper::Keeper;
use super::restore::{self, Extent, Restored};
use super::unit_restore;
use crate::start_error::StartError;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::{Entry, Journal, JournalError};
use tenantd_host::kernfs::KernFs;
use tenantd_host::machine::Machine;
use tenantd_host::notify::Notifier;
use tenantd_host::systemd::UnitManager;

/// Restores the leftovers of an agent in `state_dir`, and does nothing else: `tenantd --restore`. Fails if the
/// journal is in use, unreadable or of another version.
pub fn restore_only(kernel: &mut impl KernFs, state_dir: &Path) -> Result<Restored, StartError> {
    restore_left(kernel, state_dir, false)
}

/// Like [`restore_only`], but leaves values that an agent kept on purpose: `tenantd --restore --unless-kept`,
/// which a service manager runs after every stop. A killed agent kept nothing on purpose.
pub fn restore_unless_kept(
    kernel: &mut impl KernFs,
    state_dir: &Path,
) -> Result<Restored, StartError> {
    restore_left(kernel, state_dir, true)
}

fn restore_left(
    kernel: &mut impl KernFs,
    state_dir: &Path,
    unless_kept: bool,
) -> Result<Restored, StartError> {
    let machine = Machine::open(kernel)?;
    if !state_dir.join("journal").exists() {
        info!(state_dir = %state_dir.display(), "nothing to restore");
        return Ok(Restored::default());
    }
    let boot_id = machine.boot_id(kernel)?;
    let (journal, leftover) = Journal::open(state_dir, &boot_id)?;
    leftover.warnings.iter().for_each(|warning| warn!("{warning}"));
    // A line that is not understood may have been the last.
    if unless_kept && leftover.is_kept() && leftover.failures.is_empty() {
        info!("nothing restored: the last tenantd kept its values on purpose (control.on_exit)");
        return Ok(Restored::default());
    }
    // The service manager runs this after every stop, with a time-out.
    let notifier = Notifier::from_env();
    let deadline = Deadline::unlimited(&notifier);
    let mut keeper = Keeper::new(state_dir, &boot_id);
    keeper.attachments.gather(kernel, machine.proc(), &leftover.entries);
    let mut restored = put_back(kernel, &machine, None, (&leftover.entries, false), deadline);
    restored.failures.extend(leftover.failures);
    remove_all(&dop_dir(state_dir));
    report(&restored, &mut keeper);
    end(journal, &restored)?;
    Ok(restored)
}

pub(crate) fn end(mut journal: Journal, restored: &Restored) -> Result<(), JournalError> {
    if restored.owed.is_empty() { journal.remove() } else { keep_owed(&mut journal, restored) }
}

/// Drops the records of restored values.
pub(crate) fn keep_owed(journal: &mut Journal, restored: &Restored) -> Result<(), JournalError> {
    match journal.retain(|entry| restored.owes(entry)) {
        Err(error) if !restored.owed.is_empty() => {
            let error = with_causes(&error);
            warn!("{error}: what is not restored yet is tried again with the rest");
            Ok(())
        }
        outcome => outcome,
    }
}

/// Restores everything in `entries`: units through `units`, the rest directly. `is_stale` is true if systemd
/// has loaded units with drop-ins that were removed before.
pub(crate) fn put_back(
    kernel: &mut impl KernFs,
    machine: &Machine,
    units: Option<Box<dyn UnitManager>>,
    (entries, is_stale): (&[Entry], bool),
    deadline: Deadline<'_>,
) -> Restored {
    let mut restored = restore::put_back(kernel, machine.proc(), entries, Extent::All);
    restored.is_stale = is_stale;
    let all = (entries, Extent::All);
    unit_restore::put_back(kernel, machine.proc(), units, all, deadline, &mut restored);
    restored
}

pub(crate) fn report(restored: &Restored, keeper: &mut Keeper) {
    keeper.keep_displaced(&restored.displaced);
    info!(
        files = restored.nr_files,
        processes = restored.nr_processes,
        cgroups = restored.nr_cgroups,
        "restored the values from before tenantd"
    );
    restored.remarks().iter().for_each(|remark| warn!("{remark}"));
    restored.failures.iter().for_each(|failure| warn!("not restored: {failure}"));
}

pub(crate) fn take_up(
    kernel: &mut impl KernFs,
    machine: &Machine,
    state_dir: Option<&Path>,
    enforcing: bool,
    deadline: Deadline<'_>,
) -> Result<(Journal, Keeper), StartError> {
    let Some(state_dir) = state_dir else {
        return Ok((Journal::in_memory(), Keeper::default()));
    };
    // An observer that never wrote anything has nothing to store, and may lack the permission.
    if !enforcing && !state_dir.join("journal").exists() {
        return Ok((Journal::in_memory(), Keeper::default()));
    }
    let boot_id = machine.boot_id(kernel)?;
    let (mut journal, leftover) = Journal::open(state_dir, &boot_id)?;
    let mut keeper = Keeper::new(state_dir, &boot_id);
    leftover.warnings.iter().for_each(|warning| warn!("{warning}"));
    remove_all(&dop_dir(state_dir));
    keeper.damaged = leftover.failures.iter().map(damage).collect();
    leftover.failures.iter().for_each(|failure| warn!("not restored: {failure}"));
    if !leftover.entries.is_empty() {
        if leftover.is_kept() {
            info!("restoring the values that the last tenantd kept, before starting");
            // After a kill from here on, the values were not left on purpose.
            journal.retain(|entry| *entry != Entry::Kept)?;
        } else {
            warn!("the last tenantd left changes on this host: restoring them first")
        }
        keeper.attachments.gather(kernel, machine.proc(), &leftover.entries);
        let restored = put_back(kernel, machine, None, (&leftover.entries, false), deadline);
        report(&restored, &mut keeper);
        keep_owed(&mut journal, &restored)?;
    }
    Ok((journal, keeper))
}

/// The finding about a line of the journal that is not understood.
fn damage(failure: &String) -> Finding {
    let remedy = "look up the old value in that file, write it, and remove the file";
    Finding::of_host(Code::Unreadable, failure).as_error().with_remedy(remedy)
}

/// Undoes an incomplete start.
pub(crate) fn give_back(
    kernel: &mut impl KernFs,
    machine: &Machine,
    journal: Journal,
    keeper: &mut Keeper,
) {
    // A start changes only the agent's own cgroups.
    let nobody = Notifier::default();
    let deadline = Deadline::unlimited(&nobody);
    let restored = put_back(kernel, machine, None, (journal.entries(), false), deadline);
    keeper.keep_displaced(&restored.displaced);
    if let Err(error) = end(journal, &restored) {
        warn!("{error}");
    }
}
