//! Beginning and ending to enforce, while the agent runs.
//!
//! To observe is to have written nothing: whoever switches to it finds the host as it was before the agent
//! came, and whoever switches back begins as at a start. In between the agent goes on sampling whatever
//! cgroups of the policy's names are there.

use tracing::{info, warn};

use super::above::Above;
use super::agent::{Agent, Slot, StartError};
use super::effect;
use super::enforce::{Enforcer, with_causes};
use super::handover;
use super::patience::Patience;
use super::placement_store::PlacementStore;
use super::publish::Publisher;
use super::residents::ResidentStore;
use super::restore::Restored;
use super::root;
use super::seats::Seat;
use crate::control::tree::TreeNode;
use crate::host::kernfs::KernFs;
use crate::policy::model::Mode;

/// Why a running agent was not changed; it goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// It was started so.
    #[error("tenantd was started with --observe: start it without to let it enforce")]
    OnlyObserves,
    /// What was decided at the start.
    #[error("{0} is another than at the start: restart tenantd for that")]
    NeedsRestart(&'static str),
    /// It could not begin to enforce.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl<K: KernFs> Agent<K> {
    /// Begins or ends to enforce; returns what could not be put back.
    ///
    /// # Errors
    /// It could not begin, and goes on observing.
    pub fn set_mode(&mut self, mode: Mode) -> Result<Vec<String>, ChangeError> {
        match (self.mode(), mode) {
            (Mode::Observe, Mode::Enforce) => {
                let (nodes, seats) = (self.nodes.clone(), self.seats.clone());
                self.begin_enforcing(&nodes, &seats, self.pins)?;
                Ok(Vec::new())
            }
            (Mode::Enforce, Mode::Observe) => Ok(self.put_all_back().failures),
            _ => Ok(Vec::new()),
        }
    }

    /// Puts everything back and goes on observing.
    ///
    /// What could not be put back is in [`Restored::failures`]; it stays in the journal, and is tried again
    /// when this is asked for again, when the agent begins to enforce, and when it stops.
    pub fn put_all_back(&mut self) -> Restored {
        for slot in &mut self.slots {
            let (starved, oom_kills) = (slot.starved, slot.oom_kills);
            let slot = std::mem::replace(slot, Slot { starved, oom_kills, ..Slot::default() });
            if let Some(cgroup) = slot.cgroup {
                cgroup.close(&mut self.kernel);
            }
        }
        if let Some(Err(error)) = self.publisher.take().map(|mut publisher| publisher.remove()) {
            warn!("cannot remove what the tenants were told: {error}");
        }
        self.placements = None;
        self.enforcing = false;
        self.look_for_obstacles();
        let restored = self.put_journal_back();
        if let Some(root) = self.root.take() {
            self.kernel.close_dir(root);
        }
        info!("observing from now on");
        restored
    }

    /// Puts back all that the journal tells of, and empties it.
    fn put_journal_back(&mut self) -> Restored {
        let units = self.units.take_manager();
        let entries = self.journal.entries();
        let patience = Patience::between_ticks(&self.notifier);
        let mut restored =
            handover::put_back(&mut self.kernel, &self.machine, units, entries, patience);
        self.units.restart(&mut self.kernel, &self.seats);
        // What is put back once more does no harm: a journal that stays is a failure to be told, and no more.
        if let Err(error) = handover::keep_owed(&mut self.journal, &restored) {
            restored.failures.push(with_causes(&error));
        }
        handover::report(&restored, self.residents.as_ref());
        restored
    }

    /// Takes the root for the tenants `nodes` at their `seats`, as at a start.
    ///
    /// # Errors
    /// The host refused; the agent goes on observing.
    pub(super) fn begin_enforcing(
        &mut self,
        nodes: &[TreeNode],
        seats: &[Seat],
        pins: bool,
    ) -> Result<(), ChangeError> {
        if self.options.observe {
            return Err(ChangeError::OnlyObserves);
        }
        if !self.journal.is_on_disk() && self.options.state_dir.is_some() {
            let patience = Patience::between_ticks(&self.notifier);
            let (kernel, machine, options) = (&mut self.kernel, &self.machine, &self.options);
            (self.journal, self.residents) =
                handover::take_up(kernel, machine, options, true, patience)?;
        }
        if !self.journal.entries().is_empty() {
            // As at a start: what could not be put back when the agent began to observe is tried once more.
            self.put_journal_back();
        }
        if let Err(error) = self.take_root_for(nodes, seats, pins) {
            self.put_journal_back();
            return Err(error.into());
        }
        if let Some(residents) = &self.residents {
            residents.forget();
        }
        self.pins = pins;
        self.enforcing = true;
        let state_dir = self.options.state_dir.as_deref();
        self.publisher = state_dir.map(|dir| Publisher::new(handover::told_in(dir)));
        self.placements = state_dir.filter(|_| pins).map(PlacementStore::new);
        self.look_for_obstacles();
        self.attach_anew();
        info!("enforcing from now on");
        Ok(())
    }

    /// Takes the root, unless it is taken, or nobody has a cgroup of ours.
    ///
    /// # Errors
    /// The host refused; what was done is in the journal.
    pub(super) fn take_root_for(
        &mut self,
        nodes: &[TreeNode],
        seats: &[Seat],
        pins: bool,
    ) -> Result<(), StartError> {
        if self.root.is_some() || !seats.contains(&Seat::Direct) {
            return Ok(());
        }
        let homeless = self.residents.as_ref().map(ResidentStore::load).unwrap_or_default();
        let proc = self.machine.proc();
        let mut enforcer = Enforcer {
            kernel: &mut self.kernel,
            journal: &mut self.journal,
            layout: &self.layout,
            pins,
        };
        self.root = Some(root::take(&mut enforcer, proc, nodes, &homeless)?);
        Ok(())
    }

    /// What stands in the way of every tenant alike depends on whether anything is written.
    pub(super) fn look_for_obstacles(&mut self) {
        let (kernel, layout) = (&mut self.kernel, &self.layout);
        let needs_root = self.enforcing && self.seats.contains(&Seat::Direct);
        self.standing = effect::standing(kernel, &self.machine, layout, needs_root);
        self.foreign_scheduler = effect::foreign_scheduler(kernel).filter(|_| self.enforcing);
        self.above = Above::default();
    }

    /// Lets go of every cgroup, so that the next tick makes and opens what is needed by now. Samples stay.
    pub(super) fn attach_anew(&mut self) {
        for slot in &mut self.slots {
            if let Some(cgroup) = slot.cgroup.take() {
                cgroup.close(&mut self.kernel);
            }
            slot.observed.clear();
            slot.retries.clear();
        }
    }
}
