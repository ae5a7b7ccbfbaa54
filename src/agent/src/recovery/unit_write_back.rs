//! Restoring units that run and are not loaded: they were masked, or their file was removed.
//!
//! Systemd accepts no settings for such a unit and writes none of its files until it is loaded again (seen on
//! 252 and 257). So the old values are written to its files here, which nothing else writes then.

use super::restore::Restored;
use super::unit_debts::{Debt, Stage};
use super::unit_files::{UnitFiles, Waiting};
use tenantd_host::cgroup::spell_unified;
use tenantd_host::enforce::EnforceError;
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::systemd::Setting;

/// Writes the old values of a unit to its files in `dir`, closes `dir`, and records failures.
pub(super) fn write_back<K: KernFs>(
    files: &mut UnitFiles<'_, K>,
    debt: &mut Debt<'_>,
    dir: DirId,
    restored: &mut Restored,
) {
    let unit = debt.unit;
    for due in debt.dues.iter_mut().filter(|due| due.stage == Stage::Owed) {
        if let Some(kill) = files.kill(unit, dir, &due.held) {
            restored.failures.push(kill);
            continue;
        }
        match write_setting(files, unit, dir, &due.held) {
            Ok(()) => {
                due.stage = Stage::Set;
                restored.nr_files += 1;
            }
            Err(error) => restored.failures.push(error.to_string()),
        }
    }
    files.kernel.close_dir(dir);
}

fn write_setting<K: KernFs>(
    files: &mut UnitFiles<'_, K>,
    unit: &str,
    dir: DirId,
    setting: &Setting,
) -> Result<(), EnforceError> {
    let mut settings = [setting.clone()];
    let is_widened = files.widen_sets(dir, &mut settings);
    let [written] = settings;
    let (knob, Some(value)) = (written.property.knob(), written.expected()) else {
        return Ok(());
    };
    for spelling in spell_unified(knob, &value) {
        // An empty text would be no write at all: the kernel takes a newline for "nothing".
        let text = if spelling.text.is_empty() { "\n" } else { &*spelling.text };
        match files.kernel.write(dir, spelling.file, text) {
            // The controller went, and the value with it.
            Err(error) if error.is_gone() => return Ok(()),
            outcome => outcome?,
        }
    }
    let unit = Waiting { unit: unit.to_string(), dir, settings: Vec::new(), is_widened };
    files.tell_set(&unit);
    if files.has_arrived(dir, &written) { Ok(()) } else { Err(files.not_arrived(&unit, &written)) }
}
