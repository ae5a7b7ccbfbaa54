//! Exchanging the policy while the agent runs.
//!
//! **Problem.** A restart would restore every file. The tenants would run without weights, protection and CPUs
//! until the next agent has sampled them twice.
//!
//! **Algorithm.** An old and a new node are the same if they have the same path and location, and are both
//! tenants or both groups. Such a node keeps its cgroup, samples, demand, width, CPUs and journal; only its
//! policy is new. Removed nodes are restored from their part of the journal, as at a stop. New nodes are made
//! at the next tick. If a node stays, values that the policy no longer names (a limit, a CPU set) are restored,
//! and so are processes claimed by a changed `match`.
//!
//! The fallible part comes first, and a failure there leaves the agent as it was. Restoration is next; failures
//! are reported and stay in the journal. Then the rest is exchanged at once. A mode set by hand holds until the
//! policy's own mode changes.
//!
//! **Properties** (`tests/agent/reload.rs`): a tenant that stays is not written, moved or made again; a removed
//! one leaves nothing, and gets its processes back when it is added again; a failed reload changes nothing;
//! after any reloads, a stop restores everything.

use std::sync::Arc;

use super::base::{Base, Layer, kept};
use super::mode::ChangeError;
use super::names::Names;
use super::start::Agent;
use crate::backend::ancestry;
use crate::backend::claims;
use crate::backend::location::Location;
use crate::backend::release::{Release, has_exclusive};
use crate::recovery::deadline::Deadline;
use crate::recovery::residents;
use tenantd_control::state::step::Settings;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{Tree, TreeNode};
use tenantd_host::claiming::ClaimRule;
use tenantd_host::enforce::{EnforceError, with_causes};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::expand::Numbers;
use tenantd_policy::model::{CpusPolicy, Mode, Policy};

impl<K: KernFs> Agent<K> {
    /// Applies `policy`, with its claims resolved; returns the values that could not be restored. On an error
    /// the old policy stays in force.
    pub fn reload(
        &mut self,
        policy: Policy,
        claim_rules: Vec<ClaimRule>,
    ) -> Result<Vec<String>, ChangeError> {
        if policy.host.root != self.base.written.host.root && self.options.root.is_none() {
            return Err(ChangeError::NeedsRestart("host.root"));
        }
        if policy.host.hierarchy != self.base.written.host.hierarchy {
            return Err(ChangeError::NeedsRestart("host.hierarchy"));
        }
        let numbers = claims::numbers(&policy, &self.options.accounts);
        let failures = self.take_policy(policy, numbers, claim_rules)?;
        self.names = Names::of(&self.base.written);
        self.reporter.count_reload();
        Ok(failures)
    }

    /// Applies `policy` with the numbers of its names; returns the values that could not be restored. On an
    /// error the old policy stays in force.
    pub(super) fn take_policy(
        &mut self,
        policy: Policy,
        numbers: Numbers,
        claim_rules: Vec<ClaimRule>,
    ) -> Result<Vec<String>, ChangeError> {
        let (base, expanded) =
            Base::new(policy, numbers, claim_rules, &self.backends.found(self.control.tree()));
        let policy = Arc::clone(&base.written);
        let (kernel, layout) = (&self.host.kernel, &self.host.layout);
        let attached = |nodes: &[TreeNode], at| self.with_attached(nodes, at);
        let layer =
            base.layer(&expanded, (kernel, layout), attached, |governs_above, nodes, locations| {
                let cgroup_of = |location: &Location| self.backends.cgroup_of(location);
                let placed = (locations, self.backends.members_at(locations, None));
                ancestry::tree((layout, governs_above), nodes, placed, cgroup_of, None)
            });
        let Layer { locations, claim_rules, governs_above, tree, pins } = layer;
        let old_locations = self.backends.locations(self.control.tree());
        let kept = kept((self.control.tree(), &old_locations), (&tree, &locations));
        let mut failures = Vec::new();
        match (self.mode(), self.mode_of(&policy)) {
            (Mode::Observe, Mode::Enforce) => {
                self.begin_enforcing(tree.nodes(), &locations, pins)?;
            }
            (Mode::Enforce, Mode::Observe) => failures = self.put_all_back().failures,
            (Mode::Enforce, Mode::Enforce) => {
                self.make_ready(tree.nodes(), &locations, pins)?;
                failures = self.release(&tree, &kept, &claim_rules);
            }
            (Mode::Observe, Mode::Observe) => self.host.pins = pins,
        }
        let limits_pids = policy.limits_pids();
        let has_changed = old_locations != locations || self.host.limits_pids != limits_pids;
        self.host.limits_pids = limits_pids;
        self.host.governs_above = governs_above;
        if let Some(witness) = self.control.witness() {
            witness.bound(policy.history.max_size, policy.history.max_age);
        }
        let wants = self.wants(&policy);
        self.base = base;
        self.install(tree, &locations, claim_rules, &kept);
        self.want(wants);
        if self.mode() == Mode::Enforce {
            failures.extend(self.bring_home().err().map(|error| with_causes(&error)));
            self.keeper.look_for_lost(&mut self.host.kernel, &self.host.layout);
        }
        if has_changed {
            let is_enforcing = self.mode() == Mode::Enforce;
            self.reporter.find_obstacles(&mut self.host, &self.backends, is_enforcing);
        }
        self.take_up_attached();
        self.control.apply(Event::TryYielded);
        Ok(failures)
    }

    /// Mode under `policy`. A mode set by hand holds until the policy's own mode changes.
    fn mode_of(&self, policy: &Policy) -> Mode {
        match (policy.mode == self.base.written.mode, self.options.observe) {
            (true, _) => self.mode(),
            (false, true) => Mode::Observe,
            (false, false) => policy.mode,
        }
    }

    /// Restores the units and cgroups of members that have ended. Returns the values that could not be
    /// restored.
    pub(super) fn let_go_of_ended(&mut self, tree: &Tree, kept: &[Option<usize>]) -> Vec<String> {
        let Agent { host, backends, control, keeper, .. } = self;
        let notifier = Arc::clone(&host.notifier);
        let deadline = Deadline::between_ticks(&notifier);
        let mut release = Release::new((host, backends, keeper), control, tree, kept);
        let claim_rules = release.backends.claim_rules().to_vec();
        release.let_go_of_cgroups(&claim_rules);
        release.let_go_of_units(&[], deadline);
        release.failures
    }

    /// Restores the values that the new policy removes. Returns those that could not be restored.
    pub(super) fn release(
        &mut self,
        tree: &Tree,
        kept: &[Option<usize>],
        claim_rules: &[ClaimRule],
    ) -> Vec<String> {
        let Agent { host, backends, control, keeper, .. } = self;
        let notifier = Arc::clone(&host.notifier);
        let deadline = Deadline::between_ticks(&notifier);
        let mut release = Release::new((host, backends, keeper), control, tree, kept);
        let unnamed = release.unnamed();
        release.let_go_of_cgroups(claim_rules);
        release.put_back_unnamed(&unnamed);
        release.let_go_of_units(&unnamed, deadline);
        let failures = release.failures;
        for (number, knob) in unnamed {
            control.apply(Event::Forget(number, knob));
        }
        failures
    }

    pub(super) fn bring_home(&mut self) -> Result<(), EnforceError> {
        if self.backends.has_root() && !self.keeper.displaced().is_empty() {
            let (proc, nodes) = (self.host.proc(), self.control.tree().nodes());
            let mut enforcer = self.host.enforcer();
            let displaced = self.keeper.displaced();
            let waiting = residents::bring_home(&mut enforcer, proc, nodes, displaced)?;
            self.keeper.replace_displaced(waiting);
        }
        Ok(())
    }

    pub(super) fn forget_gone(&mut self, tree: &Tree, kept: &[Option<usize>]) {
        for (node, new) in self.control.tree().nodes().iter().zip(kept) {
            if new.is_none_or(|new| tree.nodes()[new].path != node.path) {
                self.keeper.forget(&node.path);
            }
        }
    }

    fn install(
        &mut self,
        tree: Tree,
        locations: &[Location],
        claim_rules: Vec<ClaimRule>,
        kept: &[Option<usize>],
    ) {
        self.forget_gone(&tree, kept);
        let kernel = &mut self.host.kernel;
        self.backends.take_tree(kernel, &tree, locations, claim_rules, kept);
        self.reporter.renumber(kept);
        self.set(Settings::of(&self.base.written, self.host.pins, self.mode() == Mode::Enforce));
        let has_exclusive = has_exclusive(tree.nodes());
        let may_run_anywhere = |node: &TreeNode| node.cpus == CpusPolicy::Shared && !has_exclusive;
        self.control.take_tree(tree, kept, may_run_anywhere);
    }
}
