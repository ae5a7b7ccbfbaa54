//! Marks of processes for the OOM killer: values of `/proc/PID/oom_score_adj` that identify themselves.
//!
//! A child inherits the value of its parent, so processes that the agent never saw may have a mark. The journal
//! therefore has one entry for all marks, and the old value of each marked process where that was not 0. A
//! restoration looks at every process of the host: it reads a thousand in a few milliseconds.

use std::collections::HashMap;

use super::restored::Restored;
use tenantd_control::memory::victims::SCORES;
use tenantd_core::kernel_text::proc_files::number;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{DirId, KernError, KernFs};
use tenantd_host::process;

/// Start times and old values of processes, by pid.
pub(crate) type OldScores = HashMap<u32, (u64, i16)>;

/// Value of a process; `None` if it is gone or unreadable.
pub(crate) fn score(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<i16> {
    let text = kernel.read_once(proc, &format!("{pid}/oom_score_adj")).ok()?;
    let text = text.trim_ascii();
    let digits = text.strip_prefix(b"-");
    let amount = i16::try_from(number(digits.unwrap_or(text))?).ok()?;
    Some(if digits.is_some() { -amount } else { amount })
}

pub(crate) fn set(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
    score: i16,
) -> Result<(), KernError> {
    match kernel.write(proc, &format!("{pid}/oom_score_adj"), &score.to_string()) {
        Err(error) if error.is_gone() => Ok(()),
        outcome => outcome,
    }
}

/// Old values that were not 0.
pub(crate) fn old_scores(entries: &[Entry]) -> OldScores {
    let scored = entries.iter().filter_map(|entry| match entry {
        Entry::Scored { pid, start_ticks, score } => Some((*pid, (*start_ticks, *score))),
        _ => None,
    });
    scored.collect()
}

/// Removes the mark of a process, if it has one; returns true if it had.
///
/// # Errors
/// The kernel refused the old value.
pub(crate) fn unmark(
    kernel: &mut impl KernFs,
    proc: DirId,
    pid: u32,
    old: &OldScores,
) -> Result<bool, KernError> {
    if !score(kernel, proc, pid).is_some_and(|score| SCORES.contains(&score)) {
        return Ok(false);
    }
    let known = old.get(&pid).filter(|(start_ticks, _)| {
        process::start_ticks(kernel, proc, pid).is_ok_and(|found| found == Some(*start_ticks))
    });
    set(kernel, proc, pid, known.map_or(0, |(_, score)| *score))?;
    Ok(true)
}

/// Removes the marks of all processes of the host, if there may be any.
pub(crate) fn put_back(
    kernel: &mut impl KernFs,
    proc: DirId,
    entries: &[Entry],
    restored: &mut Restored,
) {
    let Some(marking) = entries.iter().find(|entry| **entry == Entry::Marking) else { return };
    let pids = match process::all(kernel, proc) {
        Ok(pids) => pids,
        Err(error) => return restored.fail(error.to_string(), marking),
    };
    let old = old_scores(entries);
    for pid in pids {
        if let Err(error) = unmark(kernel, proc, pid, &old) {
            restored.fail(error.to_string(), marking);
        }
    }
}
