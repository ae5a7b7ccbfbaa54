//! Switching between observe and enforce while the agent runs.
//!
//! In observe mode no value on the host is the agent's. The switch to observe restores the host as before the
//! agent started; the switch back works like a start. In observe mode the agent still samples existing cgroups
//! of the policy.

use tracing::info;

use super::start::Agent;
use crate::backend::access::HostAccess;
use crate::backend::location::Location;
use crate::backend::root;
use crate::recovery::deadline::Deadline;
use crate::recovery::leftover;
use crate::recovery::restored::Restored;
use crate::start_error::StartError;
use tenantd_control::state::step::Settings;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::TreeNode;
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::Mode;

/// Reason for a refused change; the agent goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The agent was started with `--observe`.
    #[error("tenantd was started with --observe: start it without to let it enforce")]
    OnlyObserves,
    /// The change needs a restart.
    #[error("{0} cannot be changed at run time; restart tenantd")]
    NeedsRestart(&'static str),
    /// The agent could not begin to enforce.
    #[error(transparent)]
    Start(#[from] StartError),
}

impl<K: KernFs> Agent<K> {
    /// Switches to `mode`; returns the values that could not be restored. On an error the agent goes on
    /// observing.
    pub fn set_mode(&mut self, mode: Mode) -> Result<Vec<String>, ChangeError> {
        match (self.mode(), mode) {
            (Mode::Observe, Mode::Enforce) => {
                let tree = self.control.tree();
                let (nodes, locations) = (tree.shared_nodes(), self.backends.locations(tree));
                self.begin_enforcing(&nodes, &locations, self.host.pins)?;
                self.take_up_attached();
                Ok(Vec::new())
            }
            (Mode::Enforce, Mode::Observe) => Ok(self.put_all_back().failures),
            (Mode::Enforce, Mode::Enforce) => {
                self.control.apply(Event::TryYielded);
                Ok(Vec::new())
            }
            (Mode::Observe, Mode::Observe) => Ok(Vec::new()),
        }
    }

    pub(crate) fn publish_mode(&mut self) {
        let mode = self.mode();
        self.reporter.amend(|status| status.mode = mode);
    }

    /// Restores all values and goes on observing.
    ///
    /// Values that could not be restored are in [`Restored::failures`] and stay in the journal. The agent tries
    /// them again at the next switch to observe, when it begins to enforce, and when it stops.
    pub fn put_all_back(&mut self) -> Restored {
        self.thaw_all_jobs();
        self.backends.close_all(&mut self.host.kernel);
        self.control.apply(Event::Reset);
        self.keeper.end();
        self.set_enforcing(false);
        let restored = self.put_journal_back();
        self.backends.close_root(&mut self.host.kernel);
        info!("mode observe: no value is written from now on");
        restored
    }

    fn put_journal_back(&mut self) -> Restored {
        let units = self.backends.take_manager();
        let HostAccess { kernel, machine, journal, notifier, .. } = &mut self.host;
        let deadline = Deadline::between_ticks(notifier);
        let attachments = &mut self.keeper.attachments;
        attachments.gather(kernel, machine.proc(), journal.entries());
        attachments.set_inside(|_| false);
        let owed = (journal.entries(), self.keeper.has_stale_units);
        let mut restored = leftover::put_back(kernel, machine, units, owed, deadline);
        self.keeper.has_stale_units = restored.is_stale;
        self.backends.restart_units(kernel);
        // A second restoration is harmless, so a journal that stays is only reported as a failure.
        if let Err(error) = leftover::keep_owed(journal, &restored) {
            restored.failures.push(with_causes(&error));
        }
        leftover::report(&restored, &mut self.keeper);
        restored
    }

    /// Takes the root for the tenants `nodes` at their `locations`, as at a start. On an error the agent goes
    /// on observing.
    pub(super) fn begin_enforcing(
        &mut self,
        nodes: &[TreeNode],
        locations: &[Location],
        pins: bool,
    ) -> Result<(), ChangeError> {
        if self.options.observe {
            return Err(ChangeError::OnlyObserves);
        }
        let state_dir = self.options.state_dir.as_deref();
        if !self.host.journal.is_on_disk() && state_dir.is_some() {
            let HostAccess { kernel, machine, notifier, .. } = &mut self.host;
            let deadline = Deadline::between_ticks(notifier);
            (self.host.journal, self.keeper) =
                leftover::take_up(kernel, machine, state_dir, true, deadline)?;
        }
        if !self.host.journal.entries().is_empty() {
            // As at a start: tries again the values that could not be restored at the switch to observe.
            self.put_journal_back();
        }
        if let Err(error) = self.take_root_for(nodes, locations, pins) {
            self.put_journal_back();
            return Err(error.into());
        }
        self.host.pins = pins;
        self.keeper.begin(self.options.state_dir.as_deref(), pins);
        self.set_enforcing(true);
        self.open_anew();
        info!("mode enforce: values are written from now on");
        Ok(())
    }

    /// Takes the root, unless it is taken already or the agent makes no cgroup for any node. On an error all
    /// writes so far are in the journal.
    pub(super) fn take_root_for(
        &mut self,
        nodes: &[TreeNode],
        locations: &[Location],
        pins: bool,
    ) -> Result<(), StartError> {
        if self.backends.has_root() || !locations.iter().any(Location::is_made) {
            return Ok(());
        }
        let pinned_before = std::mem::replace(&mut self.host.pins, pins);
        let taken = root::take(&mut self.host, nodes, self.keeper.displaced());
        self.host.pins = pinned_before;
        let (root, waiting) = taken?;
        self.backends.hold_root(root);
        self.keeper.replace_displaced(waiting);
        Ok(())
    }

    pub(super) fn set(&mut self, settings: Settings) {
        self.host.leaves_drift = settings.leaves_drift();
        self.control.apply(Event::Set(settings));
    }

    fn set_enforcing(&mut self, is_enforcing: bool) {
        let settings = Settings { is_enforcing, ..self.control.settings().clone() };
        self.set(settings);
        self.reporter.find_obstacles(&mut self.host, &self.backends, is_enforcing);
    }

    /// Closes every cgroup, so that the next tick makes and opens those needed by then. Samples stay.
    pub(super) fn open_anew(&mut self) {
        self.backends.close_all(&mut self.host.kernel);
        self.control.apply(Event::ForgetObserved);
    }
}
