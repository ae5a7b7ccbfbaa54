//! Restoring the settings of disks that the policy divided, from the journal alone.
//!
//! They are restored backwards in time, because choosing a scheduler resets other settings: first `io.cost`, then the
//! scheduler, its own settings, and those of the queue. A disk that is gone is reported and needs nothing: a later disk of the same
//! name or number has its own settings.

use std::path::Path;

use super::held_files::open_same;
use super::restored::Restored;
use tenantd_core::kernel_text::text_of_name;
use tenantd_host::disk_settings::is_held;
use tenantd_host::journal::{DiskHeld, Entry};
use tenantd_host::kernfs::{KernError, KernFs};

/// Restores the settings in `entries` (oldest first).
pub(crate) fn put_back(kernel: &mut impl KernFs, entries: &[Entry], restored: &mut Restored) {
    for entry in entries.iter().rev() {
        let Entry::DiskHeld(was) = entry else { continue };
        match is_same(kernel, was) {
            Ok(true) => {
                let outcome = write_back(kernel, was);
                restored.note(outcome, [entry], |restored| restored.nr_files += 1);
            }
            Ok(false) => {
                let message = format!(
                    "{} is gone, or another disk has its name: its old settings are not restored",
                    disk_of(&was.queue)
                );
                if !restored.gone.contains(&message) {
                    restored.gone.push(message);
                }
            }
            Err(error) => restored.fail(error.to_string(), entry),
        }
    }
}

/// True if the disk is the one that was changed.
fn is_same(kernel: &mut impl KernFs, was: &DiskHeld) -> Result<bool, KernError> {
    match open_same(kernel, &was.queue, was.inode) {
        Ok(Some(dir)) => {
            kernel.close_dir(dir);
            Ok(true)
        }
        Ok(None) => Ok(false),
        Err(error) if error.is_gone() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Writes a value that differs. Settings of a scheduler that is not chosen any more have no file.
fn write_back(kernel: &mut impl KernFs, was: &DiskHeld) -> Result<(), KernError> {
    let dir = kernel.open_dir(&was.dir)?;
    let held = kernel.read_once(dir, &was.file).map(|text| is_held(&was.file, text, &was.value));
    let outcome = match held {
        Ok(true) => Ok(()),
        Ok(false) => kernel.write(dir, &was.file, &was.value),
        Err(error) => Err(error),
    };
    kernel.close_dir(dir);
    outcome
}

/// Name of the disk with this queue, for a message.
pub(crate) fn disk_of(queue: &Path) -> String {
    let name = queue.parent().and_then(Path::file_name).unwrap_or_default();
    text_of_name(name).replace('!', "/")
}
