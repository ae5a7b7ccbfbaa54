//! Orders to systemd on many units, during a restoration.
//!
//! All orders of a step are sent before the first answer is awaited. The steps are in [`super::unit_restore`]
//! and [`super::unit_stop`].

use std::time::Duration;

use super::deadline::Deadline;
use super::restore::{Extent, Restored};
use super::unit_files::UnitFiles;
use tenantd_host::systemd::{Order, Reply, UnitError, UnitManager, UnitState, carry_out_all};

/// Most readings of the files without a change, for values that systemd has accepted, and the wait between two
/// readings.
pub(super) const LOOKS: u32 = 200;
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(10);

pub(super) struct Session<'a, K> {
    pub(super) files: UnitFiles<'a, K>,
    pub(super) units: &'a mut dyn UnitManager,
    /// [`Extent::Part`] if the agent goes on, and systemd must not reload its configuration.
    pub(super) extent: Extent,
    pub(super) deadline: Deadline<'a>,
    pub(super) restored: &'a mut Restored,
}

impl<K> Session<'_, K> {
    /// Records a failure; returns only errors of the bus, which stop everything. A missing unit needs no
    /// restoring.
    pub(super) fn note<T: Default>(
        &mut self,
        outcome: Result<T, UnitError>,
    ) -> Result<Option<T>, UnitError> {
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

    pub(super) fn ask(&mut self, orders: Vec<Order>) -> Vec<Result<Reply, UnitError>> {
        let deadline = self.deadline;
        carry_out_all(self.units, orders, || deadline.for_an_order())
    }

    pub(super) fn ask_one(&mut self, order: Order) -> Result<Reply, UnitError> {
        self.ask(vec![order]).pop().unwrap_or(Ok(Reply::Done))
    }

    /// Orders a change of files; returns true if one had to be changed.
    pub(super) fn has_changed(&mut self, order: Order) -> Result<bool, UnitError> {
        Ok(self.ask_one(order)? != Reply::Unchanged)
    }

    pub(super) fn reload_if_stale(&mut self) -> Result<(), UnitError> {
        if self.restored.is_stale && self.extent == Extent::All {
            self.ask_one(Order::Reload)?;
            self.restored.is_stale = false;
        }
        Ok(())
    }

    pub(super) fn look<'u>(
        &mut self,
        units: impl Iterator<Item = &'u str>,
    ) -> Vec<Result<UnitState, UnitError>> {
        let state = |reply: Reply| match reply {
            Reply::Unit(state) => state,
            _ => UnitState::default(),
        };
        let orders = units.map(|unit| Order::Look { unit: unit.to_string() }).collect();
        self.ask(orders).into_iter().map(|outcome| outcome.map(state)).collect()
    }
}
