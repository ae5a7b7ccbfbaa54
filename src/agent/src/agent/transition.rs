//! From one layer (a policy on this host) to the next: reloads, found tenants, late names, and changes of mode.
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
//! **Templates** (`each`). The agent keeps the policy as written, for reloads and for readers. In force is its
//! expansion with the units found ([`tenantd_policy::expand`]). When a unit comes or goes, the expansion is exchanged
//! like a policy. A tenant whose unit stays keeps its state under a new name. If the exchange fails, the old tree
//! stays in force and the next tick tries again.
//!
//! **Properties** (`tests/agent/reload.rs`, `tests/agent/each.rs`): a tenant that stays is not written, moved or made
//! again; a removed one leaves nothing, and gets its processes back when it is added again; a failed reload changes
//! nothing; after any reloads, a stop restores everything. A tenant of a template exists from the tick after its
//! user arrives until its last process ends; a thousand users that log in and out at random leave nothing in the
//! tree, the journal, the states and the findings.

use std::sync::Arc;

use super::mode::{self, ChangeError};
use super::names::Names;
use super::state::Agent;
use crate::backend::ancestry;
use crate::backend::claims;
use crate::backend::location::Location;
use crate::backend::release::{Release, has_exclusive};
use crate::jobs::room::JobRoom;
use crate::recovery::deadline::Deadline;
use crate::recovery::residents;
use crate::recovery::restored::Restored;
use crate::tenants::base::{Base, Layer, identified};
use crate::tenants::state::Tenants;
use tenantd_control::state::step::Settings;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{Node, Tree, TreeNode};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::claiming::ClaimRule;
use tenantd_host::enforce::{EnforceError, with_causes};
use tenantd_host::kernfs::KernFs;
use tenantd_policy::expand::{Expanded, Found, Numbers, expand, tenant_of_pod};
use tenantd_policy::model::{CpusPolicy, Mode, Policy};

impl<K: KernFs> Agent<K> {
    /// Applies `policy`, with its claims resolved; returns the values that could not be restored. On an error
    /// the old policy stays in force.
    pub fn reload(
        &mut self,
        policy: Policy,
        claim_rules: Vec<ClaimRule>,
    ) -> Result<Vec<String>, ChangeError> {
        let Tenants { base, options, .. } = &self.tenants;
        if policy.host.root != base.written.host.root && options.root.is_none() {
            return Err(ChangeError::NeedsRestart("host.root"));
        }
        if policy.host.hierarchy != base.written.host.hierarchy {
            return Err(ChangeError::NeedsRestart("host.hierarchy"));
        }
        let numbers = claims::numbers(&policy, &options.accounts);
        self.tenants.take_up_credits();
        let failures = self.take_policy(policy, numbers, claim_rules)?;
        // A path that the old policy did not have starts without credit.
        self.tenants.keeper.drop_credits();
        self.names = Names::of(&self.tenants.base.written);
        self.tenants.reporter.count_reload();
        Ok(failures)
    }

    fn take_policy(
        &mut self,
        policy: Policy,
        numbers: Numbers,
        claim_rules: Vec<ClaimRule>,
    ) -> Result<Vec<String>, ChangeError> {
        let before = self.tenants.keeper.attachments.choose(|pod| tenant_of_pod(&policy, pod));
        let found = found(&self.tenants);
        let (base, expanded) = Base::new(policy, numbers, claim_rules, &found);
        let changed = change(&mut self.tenants, &mut self.jobs, Some(base), &expanded);
        if let (Err(_), Some(before)) = (&changed, before) {
            self.tenants.keeper.attachments.undo(before);
        }
        changed
    }

    /// Applies late numbers of names in the policy, as a reload of the same policy.
    pub(super) fn take_names(&mut self) {
        let accounts = self.tenants.options.accounts.clone();
        if !self.names.is_due(&accounts) {
            return;
        }
        self.names.look(&accounts);
        let base = &self.tenants.base;
        let numbers = claims::numbers(&base.written, &accounts);
        if numbers == base.numbers {
            self.names.failure = None;
            return;
        }
        let rules = claims::rules_of(&base.written, &numbers);
        let outcome = self.take_policy(Policy::clone(&base.written), numbers, rules);
        self.names.failure = match outcome {
            Ok(failures) => {
                self.tenants.reporter.note_late_findings(not_kept(&failures));
                None
            }
            Err(error) => {
                let what = format!(
                    "accounts that are known now are not in force: {}",
                    with_causes(&error)
                );
                Some(Finding::of_host(Code::NotAttached, what).as_error())
            }
        };
    }

    /// Applies the units found by templates if they changed; returns true if the set of tenants changed.
    pub(super) fn take_found(&mut self) -> bool {
        let Tenants { base, backends, keeper, .. } = &mut self.tenants;
        let has_new = base.has_templates
            && (backends.has_found() | keeper.attachments.has_new_pods() || base.failure.is_some());
        if !has_new {
            return false;
        }
        let found = found(&self.tenants);
        let base = &mut self.tenants.base;
        let expanded = expand(&base.written, &base.numbers, &found);
        if expanded.policy == base.expanded {
            base.note(&expanded);
            return false;
        }
        match change(&mut self.tenants, &mut self.jobs, None, &expanded) {
            Ok(failures) => {
                self.tenants.reporter.note_late_findings(not_kept(&failures));
                true
            }
            Err(error) => {
                let what = format!("what `each` found is not in force: {error}");
                let failure = Finding::of_host(Code::NotAttached, what).as_error();
                self.tenants.base.failure = Some(failure);
                false
            }
        }
    }

    /// Switches to `mode`; returns the values that could not be restored. On an error the agent goes on
    /// observing.
    pub fn set_mode(&mut self, mode: Mode) -> Result<Vec<String>, ChangeError> {
        let tenants = &mut self.tenants;
        match (tenants.mode(), mode) {
            (Mode::Observe, Mode::Enforce) => {
                let tree = tenants.control.tree();
                let (nodes, locations) = (tree.shared_nodes(), tenants.backends.locations(tree));
                let pins = tenants.host.pins;
                mode::enforce(tenants, &nodes, &locations, pins)?;
                tenants.take_up_attached();
            }
            (Mode::Enforce, Mode::Observe) => return Ok(self.put_all_back().failures),
            (Mode::Enforce, Mode::Enforce) => {
                tenants.control.apply(Event::TryYielded);
            }
            (Mode::Observe, Mode::Observe) => {}
        }
        Ok(Vec::new())
    }

    pub(crate) fn publish_mode(&mut self) {
        let mode = self.mode();
        self.tenants.reporter.amend(|status| status.mode = mode);
    }

    /// Restores all values and goes on observing.
    ///
    /// Values that could not be restored are in [`Restored::failures`] and stay in the journal. The agent tries
    /// them again at the next switch to observe, when it begins to enforce, and when it stops.
    pub fn put_all_back(&mut self) -> Restored {
        mode::observe(&mut self.tenants, &mut self.jobs)
    }
}

fn found<K>(tenants: &Tenants<K>) -> Found {
    let found = tenants.backends.found(tenants.control.tree());
    Found { pods: tenants.keeper.attachments.pods(), ..found }
}

fn not_kept(failures: &[String]) -> Vec<Finding> {
    failures.iter().map(|why| Finding::of_host(Code::NotKept, why.as_str())).collect()
}

/// Exchanges the layer for the `expanded` policy: that of `next`, or of the same base with other finds of its
/// templates. Returns the values that could not be restored. On an error the old layer stays in force.
fn change<K: KernFs>(
    tenants: &mut Tenants<K>,
    jobs: &mut JobRoom,
    next: Option<Base>,
    expanded: &Expanded,
) -> Result<Vec<String>, ChangeError> {
    let is_reload = next.is_some();
    let base = next.as_ref().unwrap_or(&tenants.base);
    let layer = resolve(tenants, base, expanded, !is_reload);
    let mode = mode_under(tenants, &base.written);
    let old_locations = tenants.backends.locations(tenants.control.tree());
    let old = (tenants.control.tree(), &old_locations[..]);
    let tree = identified(old, (layer.tree, &layer.locations));
    let layer = Layer { tree, ..layer };
    let mut failures = change_mode(tenants, jobs, mode, &layer, is_reload)?;
    let Layer { locations, claim_rules, governs_above, tree, .. } = layer;
    let has_changed = match next {
        Some(base) => take_base(tenants, base) || old_locations != locations,
        None => false,
    };
    tenants.host.governs_above = governs_above;
    forget_gone(tenants, &tree);
    let kernel = &mut tenants.host.kernel;
    let has_exclusive = has_exclusive(tree.nodes());
    let may_run_anywhere =
        |node: &TreeNode| is_reload && node.cpus == CpusPolicy::Shared && !has_exclusive;
    if is_reload {
        tenants.backends.take_tree(kernel, &tree, &locations, claim_rules);
        let is_enforcing = tenants.mode() == Mode::Enforce;
        tenants.set(Settings::of(&tenants.base.written, tenants.host.pins, is_enforcing));
    } else {
        tenants.backends.take_nodes(kernel, &tree, &locations, claim_rules);
        tenants.base.note(expanded);
    }
    tenants.reporter.follow(&tree, &[]);
    tenants.control.take_tree(tree, Vec::new(), may_run_anywhere);
    if is_reload {
        let wants = tenants.wants(&tenants.base.written);
        tenants.want(wants);
    }
    if tenants.mode() == Mode::Enforce {
        failures.extend(bring_home(tenants).err().map(|error| with_causes(&error)));
    }
    if is_reload {
        settle(tenants, has_changed);
    }
    Ok(failures)
}

/// The layer of `expanded`. With `keeps_above` the governed ancestors stay, as when members come and go.
fn resolve<K: KernFs>(
    tenants: &Tenants<K>,
    base: &Base,
    expanded: &Expanded,
    keeps_above: bool,
) -> Layer {
    let Tenants { host, backends, control, .. } = tenants;
    let before = keeps_above.then(|| control.tree());
    let attached = |nodes: &[TreeNode], at| tenants.with_attached(nodes, at);
    base.layer(expanded, (&host.kernel, &host.layout), attached, |above, nodes, at| {
        let cgroup_of = |location: &Location| backends.cgroup_of(location);
        let placed = (at, backends.members_at(at, before));
        ancestry::tree((&host.layout, above), nodes, placed, cgroup_of, before)
    })
}

/// Mode under `policy`. A mode set by hand holds until the policy's own mode changes.
fn mode_under<K>(tenants: &Tenants<K>, policy: &Policy) -> Mode {
    if policy.mode == tenants.base.written.mode {
        return tenants.mode();
    }
    if tenants.options.observe { Mode::Observe } else { policy.mode }
}

/// The part of a change that may fail, and the restoration of the values that it removes.
fn change_mode<K: KernFs>(
    tenants: &mut Tenants<K>,
    jobs: &mut JobRoom,
    to: Mode,
    layer: &Layer,
    is_reload: bool,
) -> Result<Vec<String>, ChangeError> {
    let Layer { locations, tree, pins, .. } = layer;
    let mut failures = Vec::new();
    match (tenants.mode(), to) {
        (Mode::Observe, Mode::Enforce) => mode::enforce(tenants, tree.nodes(), locations, *pins)?,
        (Mode::Enforce, Mode::Observe) => failures = mode::observe(tenants, jobs).failures,
        (Mode::Enforce, Mode::Enforce) => {
            mode::make_ready(tenants, tree.nodes(), locations, *pins)?;
            // Other finds of the same policy change nothing of the tenants that stay.
            let is_gone = |node: Node<'_>| tree.find(node.id()).is_none();
            if is_reload || tenants.control.tree().all().any(is_gone) {
                failures = release(tenants, tree, &layer.claim_rules);
            }
        }
        (Mode::Observe, Mode::Observe) => tenants.host.pins = *pins,
    }
    if !is_reload {
        tenants.host.pins = *pins;
    }
    Ok(failures)
}

/// Restores the values that the new policy removes. Returns those that could not be restored.
fn release<K: KernFs>(
    tenants: &mut Tenants<K>,
    tree: &Tree,
    claim_rules: &[ClaimRule],
) -> Vec<String> {
    let Tenants { host, backends, control, keeper, .. } = tenants;
    let notifier = Arc::clone(&host.notifier);
    let deadline = Deadline::between_ticks(&notifier);
    let mut release = Release::new((host, backends, keeper), control, tree);
    let unnamed = release.unnamed();
    release.let_go_of_cgroups(claim_rules);
    release.put_back_unnamed(&unnamed);
    release.let_go_of_units(&unnamed, deadline);
    let failures = release.failures;
    for (node, knob) in unnamed {
        control.apply(Event::Forget(node, knob));
    }
    failures
}

/// Takes another policy; returns true if its limits may meet other obstacles.
fn take_base<K>(tenants: &mut Tenants<K>, base: Base) -> bool {
    let policy = &base.written;
    let (pids, inside) = (policy.limits_pids(), policy.limits_disks_inside());
    let host = &mut tenants.host;
    let has_changed = (host.limits_pids, host.limits_disks_inside) != (pids, inside);
    (host.limits_pids, host.limits_disks_inside) = (pids, inside);
    if let Some(witness) = tenants.control.witness() {
        witness.bound(policy.history.max_size, policy.history.max_age);
    }
    tenants.base = base;
    has_changed
}

fn forget_gone<K>(tenants: &mut Tenants<K>, tree: &Tree) {
    for node in tenants.control.tree().policy_nodes() {
        if tree.find(node.id()).is_none_or(|new| new.name() != node.name()) {
            tenants.keeper.forget(node.name());
        }
    }
}

fn bring_home<K: KernFs>(tenants: &mut Tenants<K>) -> Result<(), EnforceError> {
    let Tenants { host, backends, control, keeper, .. } = tenants;
    if backends.has_root() && !keeper.displaced().is_empty() {
        let (proc, nodes) = (host.proc(), control.tree().nodes());
        let waiting = residents::bring_home(&mut host.enforcer(), proc, nodes, keeper.displaced())?;
        keeper.replace_displaced(waiting);
    }
    Ok(())
}

/// Looks again at everything that another policy may have changed.
fn settle<K: KernFs>(tenants: &mut Tenants<K>, has_changed: bool) {
    if tenants.mode() == Mode::Enforce {
        tenants.keeper.look_for_lost(&mut tenants.host.kernel, &tenants.host.layout);
    }
    if has_changed {
        tenants.find_obstacles();
    }
    tenants.take_up_attached();
    tenants.control.apply(Event::TryYielded);
}
