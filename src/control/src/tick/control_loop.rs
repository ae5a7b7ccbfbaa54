//! The control loop: one tick as a function of values.
//!
//! **Problem.** A tick depends on earlier ticks: demands are smoothed, widths are held, failed writes wait.
//! All of that state is in [`ControlLoop`]. So the same inputs give the same decisions, bit for bit, in
//! production, in a simulation and in a replay.
//!
//! **Terms.** An [`Input`] is everything read from the host in a tick; a [`Decision`] is the result.
//! [`Event::Step`] computes usage, demand, allocation, width, placement and plan. [`Event::Settle`] has the
//! result of an action, which counts in the next tick.
//!
//! **Rules.** A node without a sample keeps its last decision. A tick less than half an interval after the
//! previous one decides nothing and keeps the earlier samples, because rates over a few milliseconds are
//! noise.
//!
//! [`Event::Step`]: super::event::Event::Step
//! [`Event::Settle`]: super::event::Event::Settle
//!
//! **Properties** (`tests/control/control_loop.rs`): two loops over the same inputs decide the same;
//! allocations never exceed the capacity; a loop whose values are all in place writes nothing.

mod crediting;
mod deaths;
mod memory;
mod probing;
mod results;
mod threads;
mod trimming;
mod yielding;

use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;

use crate::measure::disk::Device;
use crate::measure::disks::Disks;
use crate::measure::sample::HostSample;
use crate::measure::usage;
use crate::memory::alarm::Alarm;
use crate::share::credit::Credit;
use crate::share::demand::{self, Demand};
use crate::share::disk::Weighing;
use crate::share::fairness::Episode;
use crate::share::govern::{self, Foreign};
use crate::share::rows::Rows;
use crate::share::target;
use crate::share::turns::{Turn, Turns};
use crate::state::capacity;
use crate::state::drift::{self, Drift, Observation};
use crate::state::members;
use crate::state::step::{Decision, Input, NodeInput, Sampling, Settings, TreeChange};
use crate::state::{NodeState, Outcome};
use crate::tree::bounds::AncestorBounds;
use crate::tree::{Node, Tree};
use crate::why::diagnosis::Scene;
use crate::why::shortfall;
use crate::width::place;
use crate::width::{self, Leaf, WidthState};
use crate::words::finding::{Code, Finding};
use crate::words::knob::{Action, Knob, Value, Wanted};
use crate::write::desired;
use crate::write::plan;
use tenantd_core::node::NodeId;
use tenantd_core::resource::{CPU, PerResource};
use tenantd_dop::{CpuSet, Topology, tenant};
use tenantd_policy::model::Amount;

/// Ticks between two readings of a file, to detect writes by other programs.
const VERIFY_TICKS: u64 = 10;

/// Ticks between two readings of the limits above the tenants.
const BOUNDS_TICKS: u64 = 4;

struct Read {
    observed: Option<Vec<Observation>>,
    arrivals: Vec<Outcome>,
}

/// All state that decisions depend on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ControlLoop {
    settings: Settings,
    tree: Tree,
    states: Vec<NodeState>,
    tick: u64,
    last: Option<(Duration, HostSample)>,
    topology: Option<Topology>,
    episode: Episode,
    nr_drift: u64,
    nr_yields: u64,
    alarm: Alarm,
    disks: Disks,
    weighing: Weighing,
    leaves: Vec<Device>,
}

/// Devices of the machine in the last interval.
pub fn disks_of(control: &ControlLoop) -> &Disks {
    &control.disks
}

/// Division of the disks in the last interval.
pub fn weighing_of(control: &ControlLoop) -> &Weighing {
    &control.weighing
}

impl ControlLoop {
    /// Creates a loop without samples.
    pub fn new(settings: Settings, tree: Tree) -> ControlLoop {
        let states = vec![NodeState::default(); tree.len()];
        ControlLoop {
            settings,
            tree,
            states,
            tick: 0,
            last: None,
            topology: None,
            episode: Episode::default(),
            nr_drift: 0,
            nr_yields: 0,
            alarm: Alarm::default(),
            disks: Disks::default(),
            weighing: Weighing::default(),
            leaves: Vec::new(),
        }
    }

    /// Settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Tree of nodes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// State of each node, by position.
    pub fn states(&self) -> &[NodeState] {
        &self.states
    }

    /// State of a node; `None` if it has ended.
    pub fn state(&self, id: NodeId) -> Option<&NodeState> {
        self.states.get(self.tree.position(id)?)
    }

    fn state_mut(&mut self, id: NodeId) -> Option<&mut NodeState> {
        self.states.get_mut(self.tree.position(id)?)
    }

    /// Ticks since the start, from 1; 0 before the first.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// CPUs of the machine; `None` if they could not be read.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// Current or last episode of unfairness.
    pub fn episode(&self) -> &Episode {
        &self.episode
    }

    /// Foreign writes found since the start.
    pub fn nr_drift(&self) -> u64 {
        self.nr_drift
    }

    /// True if less than half an interval has passed since the last tick, so that rates would be noise. The
    /// last samples and decisions then stay.
    pub fn is_premature(&self, now: Duration) -> bool {
        let elapsed = self.last.map(|(then, _)| now.saturating_sub(then));
        elapsed.is_some_and(|elapsed| elapsed < self.settings.interval / 2)
    }

    pub(crate) fn begin_tick(&mut self) {
        self.tick += 1;
    }

    /// Files to sample for a node of its tree.
    pub fn sampling(&self, node: Node<'_>) -> Sampling {
        let state = &self.states[node.at()];
        let was_empty = state.sample.as_ref().is_some_and(|last| last.populated == Some(false));
        // Processes may also start and be killed between two ticks.
        let is_due = self.is_turn_of(node);
        Sampling {
            threads: self.threads_to_read(node),
            kills_of_empty: !was_empty || is_due,
            times_of_empty: !was_empty,
            all: is_due,
        }
    }

    /// True if the files of this node are due in this tick. Only a tenth of all nodes is due, because
    /// reading the values of a thousand tenants takes longer than sampling them.
    pub fn wants_observation(&self, node: Node<'_>) -> bool {
        let state = &self.states[node.at()];
        let is_to_be_bounded = state.squeeze.as_ref().is_some_and(|it| it.held.is_none());
        self.is_turn_of(node)
            || state.observed.is_empty()
            || state.is_overtaken
            || is_to_be_bounded
            || self.weighing.has_changed()
    }

    fn is_turn_of(&self, node: Node<'_>) -> bool {
        node.id().is_turn(self.tick, VERIFY_TICKS)
    }

    /// True if this tick checks for obstacles that keep values from taking effect.
    pub fn wants_effects(&self) -> bool {
        self.tick % VERIFY_TICKS == 1
    }

    /// True if the limits above the tenants are due in this tick.
    pub fn wants_bounds(&self) -> bool {
        self.tick % BOUNDS_TICKS == 1
    }

    /// Tenants with a shortfall in the last tick.
    pub fn lacking(&self) -> impl Iterator<Item = Node<'_>> {
        self.tree.policy_nodes().filter(|node| self.states[node.at()].shortfall.is_some())
    }

    pub(crate) fn step(&mut self, input: Input) -> Decision {
        let Input { now, host, nodes, topology, above, ways, leaves } = input;
        let elapsed = self.last.map(|(then, _)| now.saturating_sub(then));
        if self.is_premature(now) {
            return Decision { is_void: true, elapsed, ..Decision::default() };
        }
        let before = self.last.replace((now, host));
        self.tree.fit(host.machine());
        let observed = self.take_in(nodes, (now, elapsed), host.nr_cpus);
        let since = elapsed.zip(before).map(|(elapsed, (_, before))| (elapsed, before));
        if let Some((elapsed, before)) = since {
            self.disks.note(&before, &host, elapsed);
        }
        if let Some(topology) = topology {
            self.topology = Some(topology);
        }
        let above = self.with_usable_cpus(above);
        let reserve = Amount::of_each(&self.settings.reserve, host.machine());
        let tenants = &self.states[..self.tree.nodes().len()];
        let capacity = capacity::measure(tenants, reserve, &above, host, since);
        self.estimate(host, elapsed);
        self.listen(host, since);
        let nodes = (&self.tree, &mut self.states[..]);
        self.weighing.prepare(nodes, ways, &self.disks, elapsed.unwrap_or_default());
        let mut findings =
            self.allocate(capacity.divided, &above, host, elapsed.unwrap_or_default());
        self.credit(capacity.divided[CPU], elapsed);
        self.trim(elapsed);
        for state in &mut self.states {
            state.steady.note(state.target.cpu_weight, elapsed.unwrap_or_default());
        }
        if !leaves.is_empty() {
            self.leaves = leaves;
        }
        self.weighing.weigh((&self.tree, &mut self.states), &self.disks);
        let couples = self.settings.couples_disk;
        findings.extend(self.weighing.findings((&self.tree, &self.states), &self.disks, couples));
        let slots = self.slots(host.nr_cpus, reserve[CPU]);
        findings.extend(self.widen(slots, now));
        self.resume();
        let drifts = self.observe(observed, now);
        self.squeeze(&host, elapsed);
        self.probe(now, &host, elapsed);
        let (mut wanted, mut actions) = self.plan();
        self.contest(&drifts, &mut wanted, &mut actions);
        let (machine, is_enforcing) = (host.machine(), self.settings.is_enforcing);
        let scene = Scene { capacity, above, machine, is_enforcing, actions: &actions };
        self.judge(&scene, elapsed);
        self.spend_threads();
        Decision { is_void: false, elapsed, capacity, slots, wanted, actions, drifts, findings }
    }

    /// Stores the samples of each node; returns the file contents.
    fn take_in(
        &mut self,
        nodes: Vec<NodeInput>,
        (now, elapsed): (Duration, Option<Duration>),
        nr_cpus: u32,
    ) -> Vec<Read> {
        let mut kills = HashMap::new();
        let take = |(at, (state, input)): (usize, (&mut NodeState, NodeInput))| {
            if !input.kills.is_empty() {
                kills.insert(at, input.kills);
            }
            state.is_governed = input.is_governed;
            (state.is_present, state.is_unit) = (input.is_present, input.is_unit);
            state.held_before = input.held_before;
            state.surroundings = input.surroundings;
            state.slots = input.slots;
            state.nr_threads = input.nr_threads.or(state.nr_threads);
            state.oom_kills.tell(input.nr_killed_runs);
            state.pids.note(input.pids, elapsed);
            if let Some(sample) = input.sample {
                if let Some(kills) = input.nr_oom_kills {
                    state.oom_kills.note(sample.generation, kills);
                }
                state.totals.note(&sample);
                let before = state.take_sample(sample);
                // Longer than a tick after a failed reading. Nodes are read one after another, each at its
                // own time.
                let now = now.saturating_add(input.sampled_after);
                let since = now.saturating_sub(std::mem::replace(&mut state.sampled_at, now));
                let pair = before.as_ref().zip(state.sample.as_ref());
                state.usage = pair.and_then(|(before, now)| usage::usage(before, now, since));
                if let Some(usage) = &state.usage {
                    state.totals.note_disks(usage, since);
                }
            }
            Read { observed: input.observed, arrivals: input.arrivals }
        };
        let read = self.states.iter_mut().zip(nodes).enumerate().map(take).collect();
        members::sum_up(&self.tree, &mut self.states, elapsed);
        deaths::note(&self.tree, &mut self.states, kills, now);
        // Usage kept from an earlier tick may exceed the CPUs left after a hot-unplug.
        let usages = self.states.iter_mut().filter_map(|state| state.usage.as_mut());
        usages.for_each(|usage| usage.cap(nr_cpus));
        read
    }

    fn estimate(&mut self, host: HostSample, elapsed: Option<Duration>) {
        self.states.iter_mut().for_each(|state| state.context = None);
        let Some(elapsed) = elapsed else { return };
        let (tree, machine) = (&self.tree, host.machine());
        for node in tree.tenants_and_members().filter(|node| node.has_work()) {
            let is_member = node.at() >= tree.nodes().len();
            let (Some(node), state) = (node.policy(), &mut self.states[node.at()]) else {
                continue;
            };
            let guarantee = if is_member { state.target.guarantee } else { node.guarantee };
            state.estimate(guarantee[CPU], node.at_most(machine), elapsed);
        }
        members::sum_up_demands(tree, &mut self.states, machine, elapsed);
    }

    fn with_usable_cpus(&self, above: AncestorBounds) -> AncestorBounds {
        let nr_cpus = self.topology.as_ref().map(|topology| topology.usable().len() as u32);
        above.and(AncestorBounds { nr_cpus, ..AncestorBounds::default() })
    }

    fn allocate(
        &mut self,
        capacity: PerResource<f64>,
        above: &AncestorBounds,
        host: HostSample,
        elapsed: Duration,
    ) -> Vec<Finding> {
        let foreign = self.foreign();
        let nodes = self.tree.nodes();
        let demands: Vec<Demand> = self.states[..nodes.len()]
            .iter()
            .map(|state| state.demand.unwrap_or(Demand::UNKNOWN))
            .collect();
        let couples = self.settings.couples_disk;
        let disk = couples.then(|| self.weighing.row((&self.tree, &self.states), &self.disks));
        let sleeps = |state: &NodeState| {
            state.usage.as_ref().is_some_and(|usage| state.target.sleeps(usage))
        };
        let turn = |state: &NodeState| Turn {
            slots: state.slots,
            used_cores: state.usage.as_ref().map_or(0.0, |usage| usage.cpu_cores),
            lent_cores: state.target.lent_cores,
        };
        let asleep = self.states[..nodes.len()].iter().map(sleeps).collect();
        let turns = Turns { each: self.states.iter().map(turn).collect(), elapsed };
        let rows = Rows { host: capacity, disk: disk.flatten(), asleep, turns: turns.clone() };
        let mut targets = target::targets(nodes, &demands, rows, self.settings.allocation);
        let usages = self.states.iter().map(|state| state.usage.as_ref()).take(nodes.len());
        let shortage = target::protect(nodes, usages, &host, above, &mut targets);
        let withdrawn = self.withdraw(&mut targets);
        let shortage =
            shortage.map(|shortage| Finding::of_host(Code::Unkeepable, shortage.to_string()));
        members::divide(&self.tree, &self.states, &mut targets);
        if self.tree.is_apart() {
            govern::weigh(&self.tree, &foreign, &turns, &mut targets);
        }
        let findings = shortage.into_iter().chain(withdrawn).chain(target::findings(
            self.tree.nodes(),
            &targets,
            &host,
        ));
        let findings = findings.chain(self.tree.cuts()).collect();
        for (state, target) in self.states.iter_mut().zip(targets) {
            state.target = target;
        }
        findings
    }

    /// Weight input for each ancestor beside its tenants: usage by others, which rises at once and halves
    /// in a tick.
    fn foreign(&mut self) -> Vec<Foreign> {
        let used = |node: Node<'_>| Some(self.states[node.at()].usage.as_ref()?.cpu_cores);
        let cores = govern::foreign_cores(&self.tree, used);
        let ancestors = self.states[self.tree.first_ancestor()..].iter_mut();
        let foreign = |(state, now): (&mut NodeState, Option<f64>)| {
            let before = state.foreign_cores.unwrap_or(0.0);
            let cores = now.map_or(before, |now| now.max((now + before) / 2.0));
            state.foreign_cores = Some(cores);
            let weight_before = match state.held_before(Knob::CpuWeight) {
                Some(Value::Weight(weight)) => Some(*weight),
                _ => None,
            };
            Foreign { cores, weight_before }
        };
        ancestors.zip(cores).map(foreign).collect()
    }

    /// Measures the distance between received and fair amounts, and diagnoses it.
    fn judge(&mut self, scene: &Scene<'_>, elapsed: Option<Duration>) {
        let Some(elapsed) = elapsed else { return };
        let worst = shortfall::judge(&self.tree, &mut self.states, scene, elapsed);
        self.episode.step(worst, elapsed);
    }

    /// CPUs available for the widths of all tenants: the usable CPUs less the reserve.
    ///
    /// Outside usage is not subtracted: it changes from second to second, and widths would follow it.
    /// Weights divide the time that is left.
    fn slots(&self, nr_cpus: u32, reserve: f64) -> u32 {
        let usable = self.topology.as_ref().map_or(f64::from(nr_cpus), |t| t.usable().len() as f64);
        let allocatable = usable - reserve;
        tenant::slots(allocatable, self.settings.oversubscription)
    }

    fn widen(&mut self, slots: u32, now: Duration) -> Vec<Finding> {
        let fair = target::bursts(self.tree.nodes(), f64::from(slots));
        let mut widths: Vec<WidthState> = Vec::with_capacity(self.states.len());
        let mut leaves: Vec<Leaf<'_>> = Vec::with_capacity(self.states.len());
        let nodes = self.tree.nodes().iter().zip(&mut self.states).zip(fair);
        for ((node, state), fair_slots) in nodes.filter(|((node, _), _)| node.is_leaf) {
            widths.push(std::mem::take(&mut state.width));
            leaves.push(Leaf {
                node,
                target: &state.target,
                demand: state.demand.as_ref(),
                usage: state.usage.as_ref(),
                pressed: state
                    .usage
                    .as_ref()
                    .is_some_and(|usage| demand::is_pressed(usage, state.target.allocation[CPU])),
                fair_slots,
            });
        }
        width::widen(&leaves, &mut widths, slots, now);
        let findings = match &self.topology {
            Some(topology) if self.settings.pins => {
                place::place(&leaves, &mut widths, topology, now)
            }
            _ => Vec::new(),
        };
        let nodes = self.tree.nodes().iter().zip(&mut self.states).filter(|(node, _)| node.is_leaf);
        for ((_, state), width) in nodes.zip(widths) {
            state.width = width;
        }
        findings
    }

    /// Compares file contents with known values; counts foreign writes, and accepts them by the policy.
    fn observe(&mut self, read: Vec<Read>, now: Duration) -> Vec<Drift> {
        let mut drifts = Vec::new();
        for ((node, read), state) in self.tree.all().zip(read).zip(&mut self.states) {
            if let Some(mut observed) = read.observed {
                state.is_overtaken = false;
                self.weighing.excuse(&mut observed);
                state.observed.iter_mut().for_each(|(_, value)| value.retain_disks(&self.leaves));
                for seen in &mut observed {
                    seen.value.retain_disks(&self.leaves);
                    state.observed_at[seen.knob as usize] = now;
                }
                drifts.extend(drift::observe(node.id(), state, observed));
            }
            for (action, outcome) in read.arrivals {
                match outcome {
                    // The value in the file was read above.
                    Ok(_) => state.retries.retain(|retry| retry.knob != action.knob),
                    Err(refusal) => {
                        let yields = state.settle(&action, self.tick, Err(refusal));
                        self.nr_yields += u64::from(yields);
                    }
                }
            }
        }
        self.nr_drift += drifts.len() as u64;
        if self.settings.leaves_drift() {
            for drift in &drifts {
                if let Some(state) = self.state_mut(drift.node) {
                    state.left_to_others.push(drift.knob);
                }
            }
        }
        drifts
    }

    fn plan(&self) -> (Vec<Wanted>, Vec<Action>) {
        let wanted = desired::wanted(&self.tree, &self.states, &self.leaves);
        let online = self.topology.as_ref().map(Topology::online);
        let depth = |id| self.tree.find(id).map_or(0, Node::depth);
        let mut actions = plan::plan(&wanted, depth, online);
        let unknown = desired::unknown(&self.tree, &self.states);
        actions.retain(|action| !desired::is_premature(action, &self.tree, &unknown));
        for action in actions.iter_mut().filter(|action| action.reason.is_empty()) {
            action.reason = desired::reason(action, &self.tree, &self.states).unwrap_or_default();
        }
        (wanted, actions)
    }

    /// Restores the placement that an earlier agent gave to these tenants.
    pub(crate) fn place_on(&mut self, places: Vec<(NodeId, CpuSet)>) {
        for (id, cpus) in places {
            let is_leaf = self.tree.find(id).and_then(Node::policy).is_some_and(|it| it.is_leaf);
            if let Some(state) = self.state_mut(id).filter(|_| is_leaf) {
                state.width = WidthState::placed_on(cpus);
            }
        }
    }

    /// Sets the credit of these nodes: that under an earlier agent, or after a job that paid for its start.
    pub(crate) fn take_credits(&mut self, credits: Vec<(NodeId, Credit)>) {
        for (id, credit) in credits {
            let nr_nodes = self.tree.nodes().len();
            if let Some(at) = self.tree.position(id).filter(|at| *at < nr_nodes) {
                self.states[at].credit = credit;
            }
        }
    }

    pub(crate) fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Replaces the tree. Nodes that stay keep their states.
    pub(crate) fn take_tree(&mut self, change: TreeChange) {
        let TreeChange { tree, handed, unpinned } = change;
        let credits = self.credits();
        let mut states = vec![NodeState::default(); tree.len()];
        for (old, state) in self.tree.all().zip(std::mem::take(&mut self.states)) {
            if let Some(at) = tree.position(old.id()) {
                states[at] = state;
            }
        }
        for (tenant, member) in handed {
            if let (Some(tenant), Some(member)) = (tree.position(tenant), tree.position(member)) {
                let mut state = std::mem::take(&mut states[tenant]);
                states[tenant] = state.hand_over();
                states[member] = state;
            }
        }
        for at in unpinned.into_iter().filter_map(|id| tree.position(id)) {
            states[at].width.unpin();
        }
        members::note_all_totals(&tree, &mut states);
        self.keep_credits(&tree, credits, &mut states);
        (self.tree, self.states) = (tree, states);
    }
}
