//! Taking up another policy while the agent runs.
//!
//! **Problem.** A restart would put every file back, and the tenants would live without weights, protection
//! and CPUs until the next agent has seen them twice. **Answer.** Nodes of the old and the new tree that have
//! the same path, and are both tenants or both groups, are the same node: it keeps its cgroup, samples,
//! demand, width, place and journal, and only what the policy says of it is new. Nodes that went are put back
//! as at a stop, from their part of the journal; those that came are made at the next tick. Of a node that
//! stays, what the policy no longer names (a limit, a CPU set) is put back, and so are processes that it was
//! given by a `match` that changed.
//!
//! What may fail comes first, and leaves the agent as it was; what is put back comes next, and what of it
//! fails is told and stays in the journal; then everything else is exchanged at once.
//!
//! A mode that was set by hand holds until the policy's own mode changes.
//!
//! **Properties** (`tests/agent/reload.rs`): a tenant that stays is not written, not moved and not made anew;
//! one that went leaves nothing; a reload that fails changes nothing; whatever reloads came before, a stop
//! puts everything back.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tracing::warn;

use super::agent::{self, Agent, Slot};
use super::enforce::{EnforceError, with_causes};
use super::handover;
use super::patience::Patience;
use super::residents::REST_CGROUP;
use super::restore::{self, Restored, processes_in};
use super::seats::Seat;
use super::switch::ChangeError;
use super::unit_restore;
use crate::control::place;
use crate::control::plan::{Action, Knob, Value};
use crate::control::tree::{self, CPU, MEMORY, TreeNode};
use crate::dop::CpuSet;
use crate::host::cgroup::Dialect;
use crate::host::journal::{Entry, Journal};
use crate::host::kernfs::{DirId, KernError, KernFs};
use crate::host::process::ClaimRule;
use crate::host::systemd::{Property, slice_name};
use crate::policy::model::{CpusPolicy, Mode, Policy};
use crate::units::Limit;

impl<K: KernFs> Agent<K> {
    /// Takes up `policy`, with its claims resolved; returns what could not be put back.
    ///
    /// # Errors
    /// The policy asks for what a running agent cannot do; it goes on with the old one.
    pub fn reload(
        &mut self,
        policy: Policy,
        claim_rules: Vec<ClaimRule>,
    ) -> Result<Vec<String>, ChangeError> {
        if policy.host.root != self.policy.host.root && self.options.root.is_none() {
            return Err(ChangeError::NeedsRestart("host.root"));
        }
        if policy.host.hierarchy != self.policy.host.hierarchy {
            return Err(ChangeError::NeedsRestart("host.hierarchy"));
        }
        let nodes: Arc<[TreeNode]> = tree::flatten(&policy).into();
        let pins = place::pins(&nodes);
        let seats = agent::seats_on(&self.layout, &policy);
        let kept = kept(&self.nodes, &self.seats, &nodes, &seats);
        let mut failures = Vec::new();
        match (self.mode(), self.mode_of(&policy)) {
            (Mode::Observe, Mode::Enforce) => self.begin_enforcing(&nodes, &seats, pins)?,
            (Mode::Enforce, Mode::Observe) => failures = self.put_all_back().failures,
            (Mode::Enforce, Mode::Enforce) => {
                self.make_ready(&nodes, &seats, pins)?;
                let changed = changed_claims(&self.nodes, &self.claim_rules, &nodes, &claim_rules);
                self.let_go(&kept, &changed, &mut failures);
                self.put_back_unnamed(&kept, &nodes, &mut failures);
                self.let_go_of_units(&kept, &nodes, &seats, &mut failures);
            }
            (Mode::Observe, Mode::Observe) => self.pins = pins,
        }
        self.install(policy, nodes, &kept);
        self.units.reseat(&mut self.kernel, &seats, &kept);
        if self.seats != seats {
            self.seats = seats;
            self.look_for_obstacles();
        }
        self.claim_rules = claim_rules;
        self.nr_reloads += 1;
        Ok(failures)
    }

    /// The mode under `policy`: one that was set by hand holds until the policy's own changes.
    fn mode_of(&self, policy: &Policy) -> Mode {
        match (policy.mode == self.policy.mode, self.options.observe) {
            (true, _) => self.mode(),
            (false, true) => Mode::Observe,
            (false, false) => policy.mode,
        }
    }

    /// Exchanges the policy; nodes that stay keep what is known of them.
    fn install(&mut self, policy: Policy, nodes: Arc<[TreeNode]>, kept: &[Option<usize>]) {
        let mut slots: Vec<Slot> = nodes.iter().map(|_| Slot::default()).collect();
        let has_exclusive = has_exclusive(&nodes);
        let old = std::mem::take(&mut self.slots);
        for ((mut slot, old_node), new) in old.into_iter().zip(self.nodes.iter()).zip(kept) {
            match new {
                Some(new) => {
                    if nodes[*new].cpus == CpusPolicy::Shared && !has_exclusive {
                        slot.breadth.unpin();
                    }
                    slots[*new] = slot;
                }
                None => {
                    if let Some(cgroup) = slot.cgroup {
                        cgroup.close(&mut self.kernel);
                    }
                    if let Some(publisher) = &mut self.publisher
                        && let Err(error) = publisher.forget(&old_node.path)
                    {
                        warn!(tenant = old_node.path, "cannot remove what it was told: {error}");
                    }
                }
            }
        }
        (self.policy, self.nodes, self.slots) = (Arc::new(policy), nodes, slots);
    }

    // --- what is put back ---

    /// Puts back the nodes that went, and the processes of claims that changed.
    fn let_go(
        &mut self,
        kept: &[Option<usize>],
        changed_claims: &[usize],
        failures: &mut Vec<String>,
    ) {
        let is_ours = |index: &usize| self.seats[*index] == Seat::Direct;
        let gone = (0..kept.len()).filter(|index| kept[*index].is_none()).filter(is_ours);
        let dirs: Vec<PathBuf> = gone.flat_map(|index| self.dirs_of(index)).collect();
        let unclaimed: Vec<PathBuf> =
            changed_claims.iter().flat_map(|index| self.dirs_of(*index)).collect();
        if dirs.is_empty() && unclaimed.is_empty() {
            return;
        }
        for (slot, _) in self.slots.iter_mut().zip(kept).filter(|(_, kept)| kept.is_none()) {
            if let Some(cgroup) = slot.cgroup.take() {
                cgroup.close(&mut self.kernel);
            }
        }
        let is_below = |path: &Path| dirs.iter().any(|dir| path.starts_with(dir));
        let concerns = |entry: &Entry| match entry {
            Entry::Making { path }
            | Entry::Made { path, .. }
            | Entry::NotMade { path }
            | Entry::Held { path, .. }
            | Entry::Theirs { path, .. } => is_below(path),
            Entry::Moved { to, .. } => {
                to.iter().any(|to| is_below(to) || unclaimed.iter().any(|dir| dir == to))
            }
            Entry::UnitHeld(_)
            | Entry::UnitTheirs { .. }
            | Entry::Starting { .. }
            | Entry::Kept => false,
        };
        let (cgroups, contents): (Vec<Entry>, Vec<Entry>) = self
            .journal
            .entries()
            .iter()
            .filter(|entry| concerns(entry))
            .cloned()
            .partition(is_of_cgroup);
        let made: Vec<&Path> = cgroups.iter().filter_map(made_path).collect();
        // What a cgroup held that was made here goes with it.
        let lasting: Vec<Entry> = contents
            .into_iter()
            .filter(|entry| !matches!(entry, Entry::Held { path, .. } if made.contains(&&**path)))
            .collect();
        let proc = self.machine.proc();
        let mut restored = restore::put_back(&mut self.kernel, proc, &lasting);
        self.rehouse(&made, &mut restored);
        let removed = restore::put_back(&mut self.kernel, proc, &cgroups);
        restored.nr_cgroups += removed.nr_cgroups;
        restored.homeless.extend(removed.homeless);
        restored.failures.extend(removed.failures);
        restored.owed.extend(removed.owed);
        handover::report(&restored, self.residents.as_ref());
        forget(&mut self.journal, concerns, restored, failures);
    }

    /// Finds a place for processes that live in cgroups which are about to be removed, where those above them
    /// take nobody: beside the tenants, never above the root.
    fn rehouse(&mut self, made: &[&Path], restored: &mut Restored) {
        if self.layout.dialect != Dialect::Unified {
            return;
        }
        for path in made.iter().rev() {
            if let Err(error) = self.rehouse_from(path)
                && !error.is_gone()
            {
                restored.failures.push(error.to_string());
            }
        }
    }

    fn rehouse_from(&mut self, path: &Path) -> Result<(), EnforceError> {
        let dir = self.kernel.open_dir(path)?;
        let pids = processes_in(&mut self.kernel, dir);
        self.kernel.close_dir(dir);
        let pids = pids?;
        if pids.is_empty() {
            return Ok(());
        }
        let tree = &self.layout.trees[0];
        let (mount, rest) = (tree.mount.clone(), tree.root.join(REST_CGROUP));
        let mut enforcer = self.enforcer();
        enforcer.make_all(&mount, &rest)?;
        let dir = enforcer.kernel.open_dir(&rest)?;
        let outcome = pids.into_iter().try_for_each(|pid| enforcer.move_into(dir, pid));
        enforcer.kernel.close_dir(dir);
        outcome
    }

    /// Puts back the values of nodes that stay which the policy no longer names.
    fn put_back_unnamed(
        &mut self,
        kept: &[Option<usize>],
        nodes: &[TreeNode],
        failures: &mut Vec<String>,
    ) {
        let has_exclusive = has_exclusive(nodes);
        for (index, new) in kept.iter().enumerate() {
            let Some(new) = new else { continue };
            let (old, new) = (&self.nodes[index], &nodes[*new]);
            let is_free = new.cpus == CpusPolicy::Shared && !has_exclusive;
            let is_unpinned = is_free && self.slots[index].breadth.cpus().is_some();
            for knob in unnamed(old, new, is_unpinned) {
                let slot = &mut self.slots[index];
                slot.observed.retain(|(known, _)| *known != knob);
                slot.retries.retain(|retry| retry.knob != knob);
                self.units.forget(index, knob);
                if self.seats[index] == Seat::Direct {
                    self.put_back_value(index, knob, failures);
                }
            }
        }
    }

    /// Gives back units that went, and of those that stay what the policy no longer names.
    fn let_go_of_units(
        &mut self,
        kept: &[Option<usize>],
        nodes: &[TreeNode],
        seats: &[Seat],
        failures: &mut Vec<String>,
    ) {
        let has_exclusive = has_exclusive(nodes);
        let mut properties: Vec<(String, Property)> = Vec::new();
        let mut gone: Vec<String> = Vec::new();
        for (index, new) in kept.iter().enumerate() {
            let Some(unit) = self.units.unit(index).map(str::to_string) else { continue };
            let Some(new) = new else {
                gone.push(unit);
                continue;
            };
            let new = &nodes[*new];
            let is_free = new.cpus == CpusPolicy::Shared && !has_exclusive;
            let is_unpinned = is_free && self.slots[index].breadth.cpus().is_some();
            let unnamed = unnamed(&self.nodes[index], new, is_unpinned);
            properties.extend(unnamed.map(|knob| (unit.clone(), Property::of(knob))));
        }
        if !seats.iter().any(|seat| matches!(seat, Seat::Slice(_))) {
            gone.push(slice_name::TOP.to_string());
        }
        let is_concerned = |unit: &String, property| {
            gone.contains(unit) || properties.contains(&(unit.clone(), property))
        };
        let concerns = |entry: &Entry| match entry {
            Entry::Starting { unit } => gone.contains(unit),
            Entry::UnitHeld(was) => is_concerned(&was.unit, was.held.property),
            Entry::UnitTheirs { unit, property } => is_concerned(unit, *property),
            _ => false,
        };
        let entries: Vec<Entry> =
            self.journal.entries().iter().filter(|entry| concerns(entry)).cloned().collect();
        if entries.is_empty() {
            return;
        }
        let manager = self.units.take_manager();
        let mut restored = Restored::default();
        let proc = self.machine.proc();
        let patience = Patience::between_ticks(&self.notifier);
        unit_restore::put_back(&mut self.kernel, proc, manager, &entries, patience, &mut restored);
        forget(&mut self.journal, concerns, restored, failures);
    }

    fn put_back_value(&mut self, index: usize, knob: Knob, failures: &mut Vec<String>) {
        let dialect = self.layout.dialect;
        let Some(tree) = self.layout.tree(dialect.facet(knob)) else { return };
        let dir = self.layout.trees[tree].root.join(&self.nodes[index].path);
        let is_made = |entry: &Entry| made_path(entry) == Some(&*dir);
        if knob == Knob::Cpus && self.journal.entries().iter().any(is_made) {
            // Once set, a list cannot be emptied where processes are: it becomes all that there is above.
            if let Err(error) = self.widen_to_parent(index, &dir) {
                failures.push(format!("{}: {error}", self.nodes[index].path));
            }
            return;
        }
        let files: Vec<&str> =
            dialect.spell(knob, &nothing(knob)).into_iter().map(|spelling| spelling.file).collect();
        let concerns = |entry: &Entry| match entry {
            Entry::Held { path, file, .. } => *path == dir && files.contains(&&**file),
            _ => false,
        };
        let held: Vec<Entry> =
            self.journal.entries().iter().filter(|entry| concerns(entry)).cloned().collect();
        let restored = restore::put_back(&mut self.kernel, self.machine.proc(), &held);
        forget(&mut self.journal, concerns, restored, failures);
    }

    fn widen_to_parent(&mut self, index: usize, dir: &Path) -> Result<(), EnforceError> {
        let Some(parent) = dir.parent() else { return Ok(()) };
        let above = self.kernel.open_dir(parent)?;
        let cpus = cpus_of(&mut self.kernel, above, self.layout.dialect.effective_cpus());
        self.kernel.close_dir(above);
        let Some(cpus) = cpus? else { return Ok(()) };
        let Some(cgroup) = self.slots[index].cgroup.take() else { return Ok(()) };
        let action = Action {
            node: index,
            knob: Knob::Cpus,
            from: None,
            to: Value::CpuList(cpus),
            reason: "the policy pins it no longer".to_string(),
        };
        let outcome = self.enforcer().apply(&action, &cgroup);
        self.slots[index].cgroup = Some(cgroup);
        outcome.map(|_| ())
    }

    /// The directories of a node, one in each tree.
    fn dirs_of(&self, index: usize) -> Vec<PathBuf> {
        let path = &self.nodes[index].path;
        self.layout.trees.iter().map(|tree| tree.root.join(path)).collect()
    }
}

/// Forgets the entries that something `concerns`, less those that are owed.
fn forget(
    journal: &mut Journal,
    concerns: impl Fn(&Entry) -> bool,
    mut restored: Restored,
    failures: &mut Vec<String>,
) {
    if let Err(error) = journal.retain(|entry| !concerns(entry) || restored.owes(entry)) {
        // All of it is put back once more at the end.
        restored.failures.push(with_causes(&error));
    }
    failures.append(&mut restored.failures);
}

/// The knobs of which the policy said something for `old` and says nothing for `new`.
fn unnamed(
    old: &TreeNode,
    new: &TreeNode,
    is_unpinned: bool,
) -> impl Iterator<Item = Knob> + use<> {
    let is_unlimited =
        |resource: usize| old.limit[resource].is_some() && new.limit[resource].is_none();
    [
        (Knob::CpuMax, is_unlimited(CPU)),
        (Knob::MemoryMax, is_unlimited(MEMORY)),
        (Knob::Cpus, is_unpinned),
    ]
    .into_iter()
    .filter_map(|(knob, is_unnamed)| is_unnamed.then_some(knob))
}

/// For each old node the index of the new one that it is, where it stays.
fn kept(
    old: &[TreeNode],
    old_seats: &[Seat],
    new: &[TreeNode],
    new_seats: &[Seat],
) -> Vec<Option<usize>> {
    let by_path: HashMap<&str, usize> =
        new.iter().enumerate().map(|(index, node)| (node.path.as_str(), index)).collect();
    let mut kept: Vec<Option<usize>> = Vec::with_capacity(old.len());
    for (node, seat) in old.iter().zip(old_seats) {
        let is_below_kept = node.parent.is_none_or(|parent| kept[parent].is_some());
        let same = by_path.get(node.path.as_str()).copied();
        let is_same = |new_index: &usize| {
            is_below_kept
                && new[*new_index].is_leaf == node.is_leaf
                && new_seats[*new_index] == *seat
        };
        kept.push(same.filter(is_same));
    }
    kept
}

/// The old nodes that claim other processes from now on.
fn changed_claims(
    old_nodes: &[TreeNode],
    old: &[ClaimRule],
    new_nodes: &[TreeNode],
    new: &[ClaimRule],
) -> Vec<usize> {
    let says = |rule: &ClaimRule| (rule.cgroups.clone(), rule.uids.clone(), rule.gids.clone());
    let is_same = |rule: &&ClaimRule| {
        let path = &old_nodes[rule.node].path;
        let twin = new.iter().find(|new| new_nodes[new.node].path == *path);
        twin.is_some_and(|twin| says(twin) == says(rule))
    };
    old.iter().filter(|rule| !is_same(rule)).map(|rule| rule.node).collect()
}

fn has_exclusive(nodes: &[TreeNode]) -> bool {
    nodes.iter().any(|node| node.is_leaf && node.cpus == CpusPolicy::Exclusive)
}

fn is_of_cgroup(entry: &Entry) -> bool {
    matches!(entry, Entry::Making { .. } | Entry::Made { .. } | Entry::NotMade { .. })
}

fn made_path(entry: &Entry) -> Option<&Path> {
    match entry {
        Entry::Made { path, .. } => Some(path),
        _ => None,
    }
}

/// Any value of `knob`: its files are the same for all.
fn nothing(knob: Knob) -> Value {
    match knob {
        Knob::CpuWeight => Value::Weight(1.0),
        Knob::CpuMax => Value::Cpus(Limit::Max),
        Knob::MemoryLow | Knob::MemoryMax => Value::Memory(Limit::Max),
        Knob::Cpus => Value::CpuList(CpuSet::new()),
    }
}

pub(super) fn cpus_of(
    kernel: &mut impl KernFs,
    dir: DirId,
    file: &str,
) -> Result<Option<CpuSet>, KernError> {
    let text = kernel.read_once(dir, file)?;
    Ok(std::str::from_utf8(text).ok().and_then(|text| text.trim_end().parse().ok()))
}
