//! Stopping slices that were started for tenants, if no unit needs them.
//!
//! A unit that needs a slice may have no cgroup, and every unit in the slice would be stopped with it.
//!
//! Before version 258 systemd remembers the file of a transient slice. Once the slice and its file are gone, no
//! unit that names the slice can be started until systemd reloads its configuration
//! (github.com/systemd/systemd/issues/35190). So the agent orders a reload.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};

use tracing::info;

use super::unit_debts::Started;
use super::unit_session::{LOOK_EVERY, LOOKS, Session};
use tenantd_host::kernfs::KernFs;
use tenantd_host::systemd::{Order, UnitError, UnitState};

impl<K: KernFs> Session<'_, K> {
    pub(super) fn stop_all(&mut self, started: &mut [Started<'_>]) -> Result<(), UnitError> {
        let depth = |slice: &&mut Started<'_>| slice.unit.matches('-').count();
        let mut slices: Vec<&mut Started<'_>> = started.iter_mut().collect();
        slices.sort_by_key(|slice| Reverse(depth(slice)));
        slices.chunk_by_mut(|a, b| depth(a) == depth(b)).try_for_each(|level| self.stop(level))
    }

    fn stop(&mut self, slices: &mut [&mut Started<'_>]) -> Result<(), UnitError> {
        let states = self.look(slices.iter().map(|slice| slice.unit));
        let mut empty: Vec<(&mut Started<'_>, PathBuf, UnitState)> = Vec::new();
        for (slice, outcome) in slices.iter_mut().zip(states) {
            let Some(state) = self.note(outcome)? else { continue };
            let Some(path) = self.files.path_of(&state).filter(|_| state.is_active) else {
                settle(slice, false);
                continue;
            };
            match self.files.is_empty(&path) {
                Ok(true) => empty.push((slice, path, state)),
                Ok(false) => settle(slice, true),
                Err(error) => self.restored.failures.push(error.to_string()),
            }
        }
        let mut needed = self.needed(empty.iter().map(|(_, _, state)| state))?.into_iter();
        let mut stopped = Vec::new();
        for (slice, path, _) in empty {
            match needed.next().flatten() {
                Some(false) => stopped.push((slice, path)),
                Some(true) => settle(slice, true),
                None => {}
            }
        }
        let stop =
            |(slice, _): &(&mut Started<'_>, PathBuf)| Order::Stop { unit: slice.unit.to_string() };
        let outcomes = self.ask(stopped.iter().map(stop).collect());
        for ((slice, path), outcome) in stopped.into_iter().zip(outcomes) {
            if self.note(outcome.map(drop))?.is_some() {
                self.await_end(&path);
                slice.is_settled = true;
                self.restored.is_stale = true;
                self.restored.nr_cgroups += 1;
            }
        }
        Ok(())
    }

    fn await_end(&mut self, path: &Path) {
        for _ in 0..LOOKS {
            let Ok(dir) = self.files.kernel.open_dir(path) else { break };
            self.files.kernel.close_dir(dir);
            self.files.kernel.pause(LOOK_EVERY);
        }
    }

    /// For each of these units, true if another unit that would stop with it runs or is about to; `None` if
    /// unknown. Not every unit has a cgroup: a listening socket has none, nor has a service that waits for its
    /// restart.
    fn needed<'s>(
        &mut self,
        states: impl Iterator<Item = &'s UnitState>,
    ) -> Result<Vec<Option<bool>>, UnitError> {
        let required_by: Vec<&[String]> = states.map(|state| &*state.required_by).collect();
        let units = required_by.iter().flat_map(|units| units.iter().map(String::as_str));
        let mut outcomes = self.look(units).into_iter();
        let mut needed = Vec::new();
        for units in required_by {
            let mut is_needed = Some(false);
            for outcome in outcomes.by_ref().take(units.len()) {
                match self.note(outcome)? {
                    Some(state) => is_needed = is_needed.map(|needed| needed || state.is_active),
                    None => is_needed = None,
                }
            }
            needed.push(is_needed);
        }
        Ok(needed)
    }
}

/// Settles a slice; `stays` if something is in it.
fn settle(slice: &mut Started<'_>, stays: bool) {
    if stays {
        info!(unit = slice.unit, "the slice is populated: it stays, without our values");
    }
    slice.is_settled = true;
}
