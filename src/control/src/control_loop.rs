//! The control loop: one tick as a function of values.
//!
//! **Problem.** What is decided in a tick depends on what was decided before it: demands are smoothed, widths
//! are held, failed writes wait. All of that state is here and nowhere else, so that a whole tick is a value:
//! the same inputs give the same decisions, bit for bit, in production, in a simulation and in a replay.
//!
//! **Terms.** An [`Input`] is all that was read from the host in a tick; a [`Decision`] is all that follows
//! from it. [`ControlLoop::step`] computes the decision: usage, demand, allocation, width, placement, plan.
//! The results of the actions are passed in afterwards ([`ControlLoop::settle`]), and count in the next tick.
//!
//! **Rules.** A node whose sample is missing keeps its last decision. A tick that comes less than half an
//! interval after the one before decides nothing and keeps the earlier samples: rates over a few milliseconds
//! are noise.
//!
//! **Properties** (`tests/control/control_loop.rs`): two loops over the same inputs decide the same;
//! allocations never exceed the capacity over any number of ticks; a loop whose values are all in place
//! writes nothing.

mod memory;
mod probing;
mod recorded;
mod results;
mod threads;
mod trimming;
mod yielding;

use std::time::Duration;

use super::bounds::AncestorBounds;
use super::capacity;
use super::demand::{self, Demand};
use super::desired;
use super::diagnosis::Scene;
use super::drift::{self, Drift, Observation};
use super::fairness::Episode;
use super::finding::{Code, Finding};
use super::govern::{self, Foreign};
use super::members;
use super::memory_alarm::Alarm;
use super::place;
use super::plan::{self, Action, Knob, Value, Wanted};
use super::sample::HostSample;
use super::shortfall;
use super::state::{NodeState, Outcome};
use super::step::{Decision, Input, NodeInput, Sampling, Settings};
use super::target;
use super::tree::Tree;
use super::usage;
use super::width::{self, Leaf, WidthState};
use tenantd_core::resource::{CPU, PerResource};
use tenantd_dop::{CpuSet, Topology, tenant};
use tenantd_policy::model::Amount;

/// Interval in ticks at which the files are read again, to detect writes by other programs.
const VERIFY_TICKS: u64 = 10;

/// Interval in ticks at which the limits above the tenants are read again.
const BOUNDS_TICKS: u64 = 4;

/// What was read of the files of one node.
struct Read {
    observed: Option<Vec<Observation>>,
    arrivals: Vec<Outcome>,
}

/// All state that decisions depend on.
#[derive(Clone, Debug)]
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
    /// How much of the present window of the trim has passed.
    trim_window: Duration,
}

impl ControlLoop {
    /// A loop that has seen nothing yet.
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
            trim_window: Duration::ZERO,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The nodes.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What is known of each node, by number.
    pub fn states(&self) -> &[NodeState] {
        &self.states
    }

    /// Ticks since the start, from 1; 0 before the first.
    pub fn tick(&self) -> u64 {
        self.tick
    }

    /// The machine's CPUs; `None` where they could not be read.
    pub fn topology(&self) -> Option<&Topology> {
        self.topology.as_ref()
    }

    /// The present or the last episode of unfairness.
    pub fn episode(&self) -> &Episode {
        &self.episode
    }

    /// How often someone else's write was found since the start.
    pub fn nr_drift(&self) -> u64 {
        self.nr_drift
    }

    /// Whether `now` is too early for a tick: rates over less than half an interval are noise. The samples and the
    /// decisions of the last tick stay.
    pub fn is_premature(&self, now: Duration) -> bool {
        let elapsed = self.last.map(|(then, _)| now.saturating_sub(then));
        elapsed.is_some_and(|elapsed| elapsed < self.settings.interval / 2)
    }

    /// Begins a tick, and counts it.
    pub fn begin_tick(&mut self) -> u64 {
        self.tick += 1;
        self.tick
    }

    /// What to read of the tenant with this number.
    pub fn sampling(&self, number: usize) -> Sampling {
        let state = &self.states[number];
        let was_empty = state.sample.as_ref().is_some_and(|last| last.populated == Some(false));
        // Processes may also come and be killed between two ticks.
        let is_due = self.is_turn_of(number);
        Sampling {
            threads: self.threads_to_read(number),
            kills_of_empty: !was_empty || is_due,
            times_of_empty: !was_empty,
            io: self
                .tree
                .node_number(number)
                .is_some_and(|node| self.states[node].shortfall.is_some()),
            all: is_due,
        }
    }

    /// Whether the files of the node with this number are to be read in this tick: those of a tenth of all
    /// nodes, because reading the values of a thousand tenants takes longer than sampling them.
    pub fn wants_observation(&self, number: usize) -> bool {
        let state = &self.states[number];
        let is_to_be_bounded = state.squeeze.as_ref().is_some_and(|it| it.held.is_none());
        self.is_turn_of(number)
            || state.observed.is_empty()
            || state.is_overtaken
            || is_to_be_bounded
    }

    fn is_turn_of(&self, number: usize) -> bool {
        (self.tick + number as u64).is_multiple_of(VERIFY_TICKS)
    }

    /// Whether this tick checks for obstacles that keep values from taking effect.
    pub fn wants_effects(&self) -> bool {
        self.tick % VERIFY_TICKS == 1
    }

    /// Whether the limits above the tenants are to be read in this tick.
    pub fn wants_bounds(&self) -> bool {
        self.tick % BOUNDS_TICKS == 1
    }

    /// The tenants that lacked something in the last tick, by number.
    pub fn lacking(&self) -> Vec<usize> {
        let lacks = |number: &usize| self.states[*number].shortfall.is_some();
        (0..self.tree.nodes().len()).filter(lacks).collect()
    }

    /// One tick. One that is premature ([`ControlLoop::is_premature`]) decides nothing, and what was read for it is
    /// lost.
    pub fn step(&mut self, input: Input) -> Decision {
        let Input { now, host, nodes, topology, above } = input;
        let elapsed = self.last.map(|(then, _)| now.saturating_sub(then));
        if self.is_premature(now) {
            return Decision { is_void: true, elapsed, ..Decision::default() };
        }
        let before = self.last.replace((now, host));
        self.tree.fit(host.machine());
        let observed = self.take_in(nodes, (now, elapsed), host.nr_cpus);
        let since = elapsed.zip(before).map(|(elapsed, (_, before))| (elapsed, before));
        if let Some(topology) = topology {
            self.topology = Some(topology);
        }
        let above = self.with_usable_cpus(above);
        let reserve = Amount::of_each(&self.settings.reserve, host.machine());
        let tenants = &self.states[..self.tree.nodes().len()];
        let capacity = capacity::measure(tenants, reserve, &above, host, since);
        self.estimate(host, elapsed);
        self.listen(host, since);
        let mut findings = self.allocate(capacity.divided, &above, host);
        self.trim(elapsed);
        for state in &mut self.states {
            state.steady.note(state.target.cpu_weight, elapsed.unwrap_or_default());
        }
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

    /// Takes in what was read of each node; returns what the files hold.
    fn take_in(
        &mut self,
        nodes: Vec<NodeInput>,
        (now, elapsed): (Duration, Option<Duration>),
        nr_cpus: u32,
    ) -> Vec<Read> {
        let take = |(state, input): (&mut NodeState, NodeInput)| {
            state.is_governed = input.is_governed;
            state.is_present = input.is_present;
            state.held_before = input.held_before;
            state.surroundings = input.surroundings;
            state.nr_threads = input.nr_threads.or(state.nr_threads);
            state.oom_kills.tell(input.nr_killed_runs);
            state.pids.note(input.pids, elapsed);
            if let Some(sample) = input.sample {
                if let Some(kills) = input.nr_oom_kills {
                    state.oom_kills.note(sample.generation, kills);
                }
                state.totals.note(&sample);
                let before = state.take_sample(sample);
                // Longer than a tick where it could not be read in the last one; and each is read when the others before
                // it are done.
                let now = now.saturating_add(input.sampled_after);
                let since = now.saturating_sub(std::mem::replace(&mut state.sampled_at, now));
                let pair = before.as_ref().zip(state.sample.as_ref());
                state.usage = pair.and_then(|(before, now)| usage::usage(before, now, since));
            }
            Read { observed: input.observed, arrivals: input.arrivals }
        };
        let read = self.states.iter_mut().zip(nodes).map(take).collect();
        members::sum_up(&self.tree, &mut self.states, elapsed);
        // Of one that could not be read now it is of an earlier tick, and CPUs may be gone since.
        for state in &mut self.states {
            state.usage = state.usage.map(|usage| usage.within(nr_cpus));
        }
        read
    }

    /// Estimates every tenant's demand; one without rates keeps its last.
    fn estimate(&mut self, host: HostSample, elapsed: Option<Duration>) {
        self.states.iter_mut().for_each(|state| state.context = None);
        let Some(elapsed) = elapsed else { return };
        let (tree, machine) = (&self.tree, host.machine());
        for number in (0..tree.first_ancestor()).filter(|number| tree.has_work(*number)) {
            let (Some(node), state) = (tree.node(number), &mut self.states[number]) else {
                continue;
            };
            let is_member = number >= tree.nodes().len();
            let guarantee = if is_member { state.target.guarantee } else { node.guarantee };
            state.estimate(guarantee[CPU], node.at_most(machine), elapsed);
        }
        members::sum_up_demands(tree, &mut self.states, machine, elapsed);
    }

    /// The limits above the tenants, with the CPUs that may be used at all.
    fn with_usable_cpus(&self, above: AncestorBounds) -> AncestorBounds {
        let nr_cpus = self.topology.as_ref().map(|topology| topology.usable().len() as u32);
        above.and(AncestorBounds { nr_cpus, ..AncestorBounds::default() })
    }

    /// Divides the machine.
    fn allocate(
        &mut self,
        capacity: PerResource<f64>,
        above: &AncestorBounds,
        host: HostSample,
    ) -> Vec<Finding> {
        let foreign = self.foreign();
        let nodes = self.tree.nodes();
        let demands: Vec<Demand> = self.states[..nodes.len()]
            .iter()
            .map(|state| state.demand.unwrap_or(Demand::UNKNOWN))
            .collect();
        let mut targets = target::targets(nodes, &demands, capacity, self.settings.allocation);
        let usages = self.states.iter().map(|state| state.usage.as_ref()).take(nodes.len());
        let shortage = target::protect(nodes, usages, &host, above, &mut targets);
        let withdrawn = self.withdraw(&mut targets);
        let shortage =
            shortage.map(|shortage| Finding::of_host(Code::Unkeepable, shortage.to_string()));
        members::divide(&self.tree, &self.states, &mut targets);
        if self.tree.is_apart() {
            govern::weigh(&self.tree, &foreign, &mut targets);
        }
        let findings = shortage
            .into_iter()
            .chain(withdrawn)
            .chain(target::findings(self.tree.nodes(), &targets));
        let findings = findings.chain(self.tree.cuts()).collect();
        for (state, target) in self.states.iter_mut().zip(targets) {
            state.target = target;
        }
        findings
    }

    /// What each ancestor is weighed by beside the tenants below it. What others use there rises at once and falls
    /// by half in a tick.
    fn foreign(&mut self) -> Vec<Foreign> {
        let used = |number: usize| Some(self.states[number].usage.as_ref()?.cpu_cores);
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

    /// Measures how far what the tenants got is from what they should have, and finds out why.
    fn judge(&mut self, scene: &Scene<'_>, elapsed: Option<Duration>) {
        let Some(elapsed) = elapsed else { return };
        let worst = shortfall::judge(&self.tree, &mut self.states, scene, elapsed);
        self.episode.step(worst, elapsed);
    }

    /// CPUs that tenants can be wide together: the machine's less the reserve.
    ///
    /// What processes outside every tenant use is not taken off: it changes from second to second, and a width
    /// that followed it would too. Weights divide the time that is there.
    fn slots(&self, nr_cpus: u32, reserve: f64) -> u32 {
        let usable = self.topology.as_ref().map_or(f64::from(nr_cpus), |t| t.usable().len() as f64);
        let allocatable = usable - reserve;
        tenant::slots(allocatable, self.settings.oversubscription)
    }

    /// Steps the widths of all tenants, and places those that are pinned.
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

    /// Takes in what the files hold; counts foreign writes, and keeps them where the policy says so.
    fn observe(&mut self, read: Vec<Read>, now: Duration) -> Vec<Drift> {
        let mut drifts = Vec::new();
        for (number, read) in read.into_iter().enumerate() {
            let state = &mut self.states[number];
            if let Some(observed) = read.observed {
                state.is_overtaken = false;
                for seen in &observed {
                    state.observed_at[seen.knob as usize] = now;
                }
                drifts.extend(drift::observe(number, state, observed));
            }
            for (action, outcome) in read.arrivals {
                match outcome {
                    // What the file holds was just read.
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
                self.states[drift.node].left_to_others.push(drift.knob);
            }
        }
        drifts
    }

    /// What every file shall hold and does hold, and the actions that bring the one to the other.
    fn plan(&self) -> (Vec<Wanted>, Vec<Action>) {
        let wanted = desired::wanted(&self.tree, &self.states);
        let online = self.topology.as_ref().map(Topology::online);
        let mut actions = plan::plan(&wanted, self.tree.depths(), online);
        let unknown = desired::unknown(&self.tree, &self.states);
        actions.retain(|action| !desired::is_premature(action, &unknown));
        for action in actions.iter_mut().filter(|action| action.reason.is_empty()) {
            action.reason = desired::reason(action, &self.tree, &self.states).unwrap_or_default();
        }
        (wanted, actions)
    }

    /// The tenants with these numbers are placed where an earlier agent had placed them.
    pub fn place_on(&mut self, places: Vec<(usize, CpuSet)>) {
        for (number, cpus) in places {
            if self.tree.nodes().get(number).is_some_and(|node| node.is_leaf) {
                self.states[number].width = WidthState::placed_on(cpus);
            }
        }
    }

    /// Other settings from the next tick on.
    pub fn set(&mut self, settings: Settings) {
        self.settings = settings;
    }

    /// Takes another tree: the node with the number `n` is the one with the number `kept[n]` from now on, and
    /// keeps what is known of it. Where a tenant was one cgroup and has members from now on, that is the number of the member
    /// with its cgroup. `unpinned` are those of the new ones that may run anywhere, in order.
    pub fn take_tree(&mut self, tree: Tree, kept: &[Option<usize>], unpinned: &[usize]) {
        let mut states = vec![NodeState::default(); tree.len()];
        // The old numbers are those of the old tree: beyond its nodes are members, however many nodes the new one has.
        let (nr_before, nr_nodes) = (self.tree.nodes().len(), tree.nodes().len());
        for (number, (mut state, new)) in
            std::mem::take(&mut self.states).into_iter().zip(kept).enumerate()
        {
            let Some(new) = *new else { continue };
            if number < nr_before && new >= nr_nodes {
                states[number] = state.hand_over();
            }
            if unpinned.binary_search(&new).is_ok() {
                state.width.unpin();
            }
            states[new] = state;
        }
        members::note_all_totals(&tree, &mut states);
        (self.tree, self.states) = (tree, states);
    }
}
