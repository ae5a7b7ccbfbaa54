//! One tick: sample, step, apply, report.
//!
//! The [`control loop`](tenantd_control::tick::control_loop) makes all decisions. This file passes it the values of
//! the host and executes its actions. A bad tenant never stops the tick: its error becomes a finding, and its
//! last decision stays in force.

use std::time::Duration;

use tracing::info;

use super::state::Agent;
use crate::backend::access::HostAccess;
use crate::backend::backends::{Backends, Events};
use crate::backend::backlog::Work;
use crate::jobs::slots;
use crate::report::reporter::{Reporter, TickReport};
use crate::tenants::state::Tenants;
use tenantd_control::measure::sample::HostSample;
use tenantd_control::measure::ways::Ways;
use tenantd_control::report::status::Status;
use tenantd_control::share::pids;
use tenantd_control::state::step::{Decision, Input, NodeInput};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{Node, Tree};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_control::words::knob::Action;
use tenantd_core::node::NodeId;
use tenantd_core::resource::MEMORY;
use tenantd_dop::Topology;
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
use tenantd_host::ways;
use tenantd_policy::model::Mode;

/// Most tenants attached, values written and processes moved in a short tick. A service is ready when it
/// monitors its tenants, not when the last file is written.
const SHORT_TICK: usize = 16;
/// Tenants attached, values written or processes moved per step between two ticks.
const STEP: usize = 32;
/// Resolution of the read times of counters. Reading a hundred tenants takes less, so on most hosts a recording
/// has only the times of ticks. The error of rates over one second is at most 0.4 %.
const CLOCK_STEP: Duration = Duration::from_millis(4);
const LOST_TICKS: u64 = 5;

impl<K: KernFs> Agent<K> {
    /// Runs one tick at time `now` (since any fixed instant) with all pending work; returns the decisions and
    /// their results.
    pub fn tick(&mut self, now: Duration) -> &Status {
        self.tick_with(now, usize::MAX)
    }

    /// Runs a short tick of a service: it attaches few tenants, writes few values and moves few processes.
    /// [`Agent::continue_work`] does the rest, which is reported as attached and written only then.
    pub fn short_tick(&mut self, now: Duration) -> &Status {
        self.tick_with(now, SHORT_TICK)
    }

    /// Counts the missed ticks before a tick that is `late`.
    pub fn note_delay(&mut self, late: Duration) {
        let interval = self.tenants.control.settings().interval.as_nanos().max(1);
        let nr_missed = u64::try_from(late.as_nanos() / interval).unwrap_or(u64::MAX);
        self.tenants.reporter.count_skipped(nr_missed);
    }

    /// Ticks since the start that were missed, or came too soon after a late one and decided nothing.
    pub fn nr_skipped_ticks(&self) -> u64 {
        self.tenants.reporter.nr_skipped_ticks()
    }

    /// True if the last tick left work over.
    pub fn has_more_work(&self) -> bool {
        self.tenants.control.tick() > 0 && self.tenants.backends.next_work().is_some()
    }

    /// Does a step of the remaining work: writes values, attaches tenants, moves processes into cpusets, or
    /// claims them.
    pub fn continue_work(&mut self) {
        let is_enforcing = self.mode() == Mode::Enforce;
        let mut findings = Vec::new();
        let Tenants { host, backends, control, keeper, reporter, .. } = &mut self.tenants;
        let (tree, states) = (control.tree(), control.states());
        match backends.next_work() {
            Some(Work::Write) => {
                let events = backends.write_more(host, tree, STEP);
                reporter.note_late(tree, events.outcomes.iter().map(|(action, _)| action));
                self.tenants.take_in(events, &mut findings);
            }
            Some(Work::Attach) => {
                let attached = backends.attach_more(host, tree, is_enforcing, STEP);
                // An opened cgroup may be a member; the width belongs to its tenant. The next tick retries and
                // reports failures.
                let owners = attached.iter().filter_map(|node| node.tenant());
                let (_, has_untold) = keeper.tell_widths(states, owners, STEP);
                backends.note_untold(has_untold);
                let mut events = Events::default();
                let observe = |node: Node<'_>| {
                    Some((node.id(), backends.observe(host, node, (&[], false), &mut events)?))
                };
                let observed: Vec<_> = attached.into_iter().filter_map(observe).collect();
                for (node, observed) in observed {
                    self.tenants.control.apply(Event::ObserveFirst(node, observed));
                }
                self.tenants.take_in(events, &mut findings);
            }
            Some(Work::Join) => {
                findings = backends.join_cpusets(host, tree, None, is_pinned(control), STEP);
            }
            Some(Work::Tell) => {
                let attached = with_width(tree, backends);
                let (_, has_untold) = keeper.tell_widths(states, attached, STEP);
                backends.note_untold(has_untold);
            }
            Some(Work::Search) | None => backends.claim(host, tree, is_enforcing, STEP),
        }
        self.tenants.reporter.note_late_findings(findings);
    }

    fn tick_with(&mut self, now: Duration, nr_max: usize) -> &Status {
        // Nothing is read then: one-time events would be lost.
        if self.tenants.control.is_premature(now) {
            self.tenants.reporter.count_skipped(1);
            return self.tenants.reporter.status();
        }
        self.tenants.control.apply(Event::Begin);
        let tick = self.tenants.control.tick();
        let begin = self.tenants.host.kernel.clock();
        self.tenants.backends.begin_tick(now);
        self.deaths.collect(&mut self.tenants, &mut self.jobs);
        let mut findings = self.tenants.reporter.standing_findings();
        if let Err(error) = self.tenants.host.journal.compact() {
            findings.push(Finding::of_host(Code::NotKept, with_causes(&error)));
        }
        self.attach(tick, now, nr_max, &mut findings);
        let host_sample = match self.tenants.host.machine.sample(&mut self.tenants.host.kernel) {
            Ok(host_sample) => host_sample,
            Err(error) => {
                // Without the size of the machine nothing can be divided: all decisions stand.
                findings.push(Finding::of_host(Code::Unreadable, error.to_string()).as_error());
                self.tenants.reporter.skip(tick, &findings, now);
                return self.tenants.reporter.status();
            }
        };
        self.tenants.take_up_credits();
        let sampled_at = now + since(begin, &self.tenants.host.kernel);
        let input = self.sample(sampled_at, host_sample, &mut findings);
        let mut decision = self.tenants.control.apply(Event::step(input)).unwrap_or_default();
        findings.append(&mut decision.findings);
        self.deaths.log_new(&self.tenants);
        self.tenants.reporter.log_drifts(
            &self.tenants.host,
            &self.tenants.control,
            &decision.drifts,
        );
        self.leave_to_others(&decision, &mut findings);
        if self.mode() == Mode::Enforce {
            self.apply(tick, &decision.actions, nr_max, &mut findings);
        }
        let Tenants { control, keeper, .. } = &mut self.tenants;
        let (nodes, states) = (control.tree().nodes(), control.states());
        findings.extend(keeper.keep_credits(Some(now), nodes, states));
        let actions = self.tenants.reporter.spell_actions(
            &self.tenants.host,
            &self.tenants.backends,
            &self.tenants.control,
            &decision,
        );
        findings.extend(self.tenants.control.findings(|knob| self.tenants.host.file(knob)));
        let trouble = self.tenants.control.witness().and_then(|witness| witness.trouble());
        findings.extend(trouble.map(|why| Finding::of_host(Code::NotKept, why)));
        let divided_bytes = decision.capacity.divided[MEMORY];
        let victim = self.victims.tend(&mut self.tenants, &self.jobs, divided_bytes);
        findings.extend(self.victims.finding().cloned());
        let Tenants { host, base, backends, control, reporter, .. } = &mut self.tenants;
        reporter.publish(TickReport {
            now,
            host_sample,
            host,
            backends,
            control,
            policy_mode: base.written.mode,
            decision,
            actions: actions.into_iter().chain(self.disks.actions()).collect(),
            nr_disk_drift: self.disks.nr_drift(),
            victim,
            findings,
        });
        self.tenants.tell_attached();
        self.tenants.reporter.status()
    }

    fn attach(&mut self, tick: u64, now: Duration, nr_max: usize, findings: &mut Vec<Finding>) {
        let is_enforcing = self.mode() == Mode::Enforce;
        self.take_names();
        let events = self.tenants.backends.poll(
            &mut self.tenants.host,
            self.tenants.control.tree(),
            tick,
            is_enforcing,
        );
        self.tenants.take_in(events, findings);
        self.tenants.backends.discover(&mut self.tenants.host, self.tenants.control.tree(), tick);
        findings.extend(self.tenants.backends.find(&mut self.tenants.host, tick));
        self.take_found();
        self.tenants.grow(findings);
        // Before another cgroup of the same name is opened.
        self.tenants.keep_attached(findings);
        let tree = self.tenants.control.tree();
        let events =
            self.tenants.backends.attach(&mut self.tenants.host, tree, tick, is_enforcing, nr_max);
        self.tenants.take_in(events, findings);
        self.tenants.grow(findings);
        let Tenants { host, base, backends, control, reporter, .. } = &mut self.tenants;
        reporter.look_around(host, backends, control, now);
        findings.extend(reporter.mount_findings(host, control, tick).iter().cloned());
        findings.extend(reporter.device_findings(&base.written, tick).iter().cloned());
        if is_enforcing {
            if control.wants_effects() {
                reporter.find_competition(host, backends, control);
            }
            reporter.look_for_charges(host, backends, control);
            findings.extend(reporter.effect_findings(host, backends, control));
        }
        // Tenants without a cgroup cannot claim.
        if !backends.has_more_to_attach() {
            let nr_parts =
                if nr_max == usize::MAX { backends.nr_owed_searches().max(1) } else { 1 };
            (0..nr_parts).for_each(|_| backends.claim(host, control.tree(), is_enforcing, nr_max));
        }
        backends.find_users(control.tree(), tick);
        if self.take_found() {
            let Tenants { host, backends, control, .. } = &mut self.tenants;
            backends.attach_more(host, control.tree(), is_enforcing, nr_max);
            backends.look_again();
            backends.claim(host, control.tree(), is_enforcing, nr_max);
        }
        let Tenants { host, base, backends, keeper, options, .. } = &mut self.tenants;
        findings.extend(base.findings());
        findings.extend(backends.people_findings());
        findings.extend(self.names.findings(&options.accounts));
        if tick % LOST_TICKS == 1 {
            keeper.look_for_lost(&mut host.kernel, &host.layout);
        }
        // These findings hold until the same processes are searched again.
        findings.extend(backends.claim_findings().cloned());
        findings.extend(keeper.damaged().iter().cloned());
        findings.extend(keeper.lost().filter(|_| is_enforcing).cloned());
    }

    fn sample(&mut self, now: Duration, host: HostSample, findings: &mut Vec<Finding>) -> Input {
        let topology = match self.tenants.backends.topology(&mut self.tenants.host) {
            Ok(topology) => topology,
            Err(finding) => {
                findings.push(finding);
                None
            }
        };
        if let Some(topology) = &topology {
            self.note_topology(topology);
        }
        let mut events = Events::default();
        let begin = self.tenants.host.kernel.clock();
        let Tenants { host: access, backends, control, reporter, .. } = &mut self.tenants;
        let nodes = control.tree().all().map(|node| {
            let sampled_after = since(begin, &access.kernel);
            let mut input = sample_node(access, backends, control, reporter, node, &mut events);
            input.sampled_after = sampled_after;
            input
        });
        let mut nodes: Vec<NodeInput> = nodes.collect();
        // After the counters, so that the log is never behind them.
        self.deaths.collect(&mut self.tenants, &mut self.jobs);
        self.deaths.pass_on(&self.tenants, &mut nodes);
        slots::pass_on(&self.jobs.admission, &self.tenants.control, &mut nodes);
        self.tenants.take_in(events, findings);
        // Before their ways are read.
        self.disks.tend(&mut self.tenants, findings);
        let refreshes = self.tenants.control.wants_bounds();
        let above = self.tenants.backends.bounds_above(&mut self.tenants.host, refreshes);
        let Tenants { host: access, control, .. } = &mut self.tenants;
        let ways = if control.tree().weighs_disks() {
            ways::read(&mut access.kernel, &access.layout, &host.disks)
        } else {
            Ways::default()
        };
        let leaves = if control.tree().limits_disks() {
            access.machine.leaf_disks().to_vec()
        } else {
            Vec::new()
        };
        Input { now, host, nodes, topology, above, ways, leaves }
    }

    fn note_topology(&mut self, topology: &Topology) {
        match self.tenants.control.topology() {
            Some(_) => info!(cpus = %topology.usable(), "the usable CPUs changed"),
            None => {
                let mut placed = self.tenants.keeper.placements(topology.usable());
                self.tenants.control.place_on(|node| placed.remove(node.path.as_str()));
            }
        }
    }

    fn leave_to_others(&mut self, decision: &Decision, findings: &mut Vec<Finding>) {
        if !self.tenants.control.settings().leaves_drift() {
            return;
        }
        for drift in &decision.drifts {
            if let Err(error) = self.tenants.backends.leave(&mut self.tenants.host, drift) {
                // Overwritten until the journal can record it.
                let Some(node) = self.tenants.control.tree().find(drift.node) else { continue };
                findings.push(Finding::of(node.name(), Code::NotKept, error.to_string()));
                self.tenants.control.apply(Event::Reclaim(drift.node, drift.knob));
            }
        }
    }

    fn apply(&mut self, tick: u64, actions: &[Action], nr_max: usize, findings: &mut Vec<Finding>) {
        let Tenants { host, backends, control, keeper, .. } = &mut self.tenants;
        let (tree, states) = (control.tree(), control.states());
        findings.extend(backends.join_cpusets(host, tree, Some(tick), is_pinned(control), nr_max));
        let attached = with_width(tree, backends);
        let (untold, has_untold) = keeper.tell_widths(states, attached, nr_max);
        findings.extend(untold);
        backends.note_untold(has_untold);
        findings.extend(keeper.keep_placement(tree.nodes(), states));
        let due: Vec<Action> =
            actions.iter().filter(|action| control.is_due(action)).cloned().collect();
        let events = backends.apply(host, tree, tick, due, nr_max);
        self.tenants.take_in(events, findings);
    }
}

fn with_width<'t>(tree: &'t Tree, backends: &Backends) -> impl Iterator<Item = Node<'t>> {
    tree.policy_nodes().filter(|node| backends.is_present(node.id()) || node.has_members())
}

fn is_pinned(control: &ControlLoop) -> impl Fn(NodeId) -> bool {
    |id| control.state(id).is_some_and(|state| state.width.cpus().is_some())
}

/// Time since `begin`, in steps of [`CLOCK_STEP`].
fn since(begin: Duration, kernel: &impl KernFs) -> Duration {
    let steps = kernel.clock().saturating_sub(begin).as_nanos() / CLOCK_STEP.as_nanos();
    CLOCK_STEP * u32::try_from(steps).unwrap_or(u32::MAX)
}

/// Reads one node.
fn sample_node<K: KernFs>(
    host: &mut HostAccess<K>,
    backends: &mut Backends,
    control: &ControlLoop,
    reporter: &Reporter,
    node: Node<'_>,
    events: &mut Events,
) -> NodeInput {
    let id = node.id();
    // The values of groups, and of tenants with several cgroups, are those of the nodes below.
    let is_ancestor = node.is_ancestor();
    let is_sampled = is_ancestor || node.has_work();
    let mut input = NodeInput { is_governed: backends.is_governed(id), ..NodeInput::default() };
    if is_sampled {
        let (sampling, last) =
            (control.sampling(node), control.states()[node.at()].sample.as_ref());
        let sampled = backends.sample(host, node, sampling, last, events);
        if let Some(sampled) = sampled {
            input.nr_oom_kills = sampled.nr_oom_kills;
            input.nr_threads = sampled.nr_threads;
            input.sample = Some(sampled.sample);
        }
    }
    if pids::is_limited(node) {
        input.pids = backends.pids(host, node, events);
    }
    input.nr_killed_runs = backends.take_kills(id);
    input.surroundings = reporter.surroundings(id);
    if control.wants_observation(node) || backends.is_watched(id) {
        let state = &control.states()[node.at()];
        let (known, is_bounded) = (&state.observed, state.squeeze.is_some());
        input.observed = backends.observe(host, node, (known, is_bounded), events);
    }
    let observed = input.observed.as_deref().unwrap_or_default();
    input.arrivals = backends.arrivals(host, id, observed);
    if is_ancestor {
        input.held_before = backends.held_before(host, id, observed);
    }
    (input.is_present, input.is_unit) = (backends.is_present(id), backends.is_unit(id));
    if !input.is_present && backends.unmoved_of(node).is_none() {
        input.sample = None;
    }
    input
}
