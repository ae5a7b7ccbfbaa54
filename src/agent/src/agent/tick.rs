//! One tick: sample, step, apply, report.
//!
//! The [`control loop`](tenantd_control::tick::control_loop) makes all decisions. This file passes it the values of
//! the host and executes its actions. A bad tenant never stops the tick: its error becomes a finding, and its
//! last decision stays in force.

use std::time::Duration;

use tracing::info;

use super::start::Agent;
use crate::backend::backends::{Backends, Events};
use crate::backend::location::Location;
use crate::report::reporter::TickReport;
use tenantd_control::measure::sample::HostSample;
use tenantd_control::report::status::Status;
use tenantd_control::share::pids;
use tenantd_control::state::NodeState;
use tenantd_control::state::step::{Decision, Input, NodeInput};
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{NodeNumber, Tree};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_control::words::knob::Action;
use tenantd_dop::Topology;
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
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
        let interval = self.control.settings().interval.as_nanos().max(1);
        let nr_missed = u64::try_from(late.as_nanos() / interval).unwrap_or(u64::MAX);
        self.reporter.count_skipped(nr_missed);
    }

    /// Ticks since the start that were missed, or came too soon after a late one and decided nothing.
    pub fn nr_skipped_ticks(&self) -> u64 {
        self.reporter.nr_skipped_ticks()
    }

    /// True if the last tick left work over.
    pub fn has_more_work(&self) -> bool {
        self.control.tick() > 0
            && (self.backends.has_more_to_write()
                || self.backends.has_more_to_attach()
                || self.backends.has_more_to_join()
                || self.keeper.is_behind()
                || self.backends.nr_owed_searches() > 0)
    }

    /// Does a step of the remaining work: writes values, attaches tenants, moves processes into cpusets, or
    /// claims them.
    pub fn continue_work(&mut self) {
        let is_enforcing = self.mode() == Mode::Enforce;
        let mut findings = Vec::new();
        let Agent { host, backends, control, keeper, reporter, .. } = self;
        let (tree, states) = (control.tree(), control.states());
        if backends.has_more_to_write() {
            let events = backends.write_more(host, tree, STEP);
            reporter.note_late(tree, events.outcomes.iter().map(|(action, _)| action));
            self.take_in(events, &mut findings);
        } else if backends.has_more_to_attach() {
            let attached = backends.attach_more(host, tree, is_enforcing, STEP);
            // An opened cgroup may be a member; the width belongs to its tenant. The next tick retries and
            // reports failures.
            let owners = attached.iter().filter_map(|number| tree.owner_of(*number));
            keeper.tell_widths(tree, states, owners, STEP);
            let mut events = Events::default();
            let observe = |number| {
                Some((number, backends.observe(host, tree, number, (&[], false), &mut events)?))
            };
            let observed: Vec<_> = attached.into_iter().filter_map(observe).collect();
            for (number, observed) in observed {
                self.control.apply(Event::ObserveFirst(number, observed));
            }
            self.take_in(events, &mut findings);
        } else if backends.has_more_to_join() {
            findings = backends.join_cpusets(host, tree, None, is_pinned(states), STEP);
        } else if keeper.is_behind() {
            let attached = with_width(tree, backends);
            keeper.tell_widths(tree, states, attached, STEP);
        } else {
            backends.claim(host, tree, is_enforcing, STEP);
        }
        self.reporter.note_late_findings(findings);
    }

    fn tick_with(&mut self, now: Duration, nr_max: usize) -> &Status {
        // Nothing is read then: one-time events would be lost.
        if self.control.is_premature(now) {
            self.reporter.count_skipped(1);
            return self.reporter.status();
        }
        self.control.apply(Event::Begin);
        let tick = self.control.tick();
        let begin = self.host.kernel.clock();
        self.backends.begin_tick(now);
        let mut findings = self.reporter.standing_findings();
        if let Err(error) = self.host.journal.compact() {
            findings.push(Finding::of_host(Code::NotKept, with_causes(&error)));
        }
        self.attach(tick, now, nr_max, &mut findings);
        let host_sample = match self.host.machine.sample(&mut self.host.kernel) {
            Ok(host_sample) => host_sample,
            Err(error) => {
                // Without the size of the machine nothing can be divided: all decisions stand.
                findings.push(Finding::of_host(Code::Unreadable, error.to_string()).as_error());
                self.reporter.skip(tick, &findings, now);
                return self.reporter.status();
            }
        };
        let sampled_at = now + self.since(begin);
        let input = self.sample(sampled_at, host_sample, &mut findings);
        let mut decision = self.control.apply(Event::step(input)).unwrap_or_default();
        findings.append(&mut decision.findings);
        self.reporter.log_drifts(&self.host, &self.control, &decision.drifts);
        self.leave_to_others(&decision, &mut findings);
        if self.mode() == Mode::Enforce {
            self.apply(tick, &decision.actions, nr_max, &mut findings);
        }
        let actions =
            self.reporter.spell_actions(&self.host, &self.backends, &self.control, &decision);
        findings.extend(self.control.findings(|knob| self.host.file(knob)));
        let trouble = self.control.witness().and_then(|witness| witness.trouble());
        findings.extend(trouble.map(|why| Finding::of_host(Code::NotKept, why)));
        let Agent { host, backends, control, reporter, .. } = self;
        reporter.publish(TickReport {
            now,
            host_sample,
            host,
            backends,
            control,
            decision,
            actions,
            findings,
        });
        reporter.status()
    }

    fn attach(&mut self, tick: u64, now: Duration, nr_max: usize, findings: &mut Vec<Finding>) {
        let is_enforcing = self.mode() == Mode::Enforce;
        self.take_names();
        let events = self.backends.poll(&mut self.host, self.control.tree(), tick, is_enforcing);
        self.take_in(events, findings);
        self.backends.discover(&mut self.host, self.control.tree(), tick);
        findings.extend(self.backends.find(&mut self.host, tick));
        self.take_found();
        self.grow(is_enforcing, findings);
        // Before another cgroup of the same name is opened.
        self.keep_attached(findings);
        let tree = self.control.tree();
        let events = self.backends.attach(&mut self.host, tree, tick, is_enforcing, nr_max);
        self.take_in(events, findings);
        self.grow(is_enforcing, findings);
        let Agent { host, backends, control, reporter, .. } = self;
        reporter.look_around(host, backends, control, now);
        findings.extend(reporter.mount_findings(host, tick).iter().cloned());
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
        backends.find_users(tick);
        if self.take_found() {
            let Agent { host, backends, control, .. } = self;
            backends.attach_more(host, control.tree(), is_enforcing, nr_max);
            backends.look_again();
            backends.claim(host, control.tree(), is_enforcing, nr_max);
        }
        let Agent { host, backends, keeper, .. } = self;
        findings.extend(self.base.findings());
        findings.extend(backends.people_findings());
        findings.extend(self.names.findings(&self.options.accounts));
        if tick % LOST_TICKS == 1 {
            keeper.look_for_lost(&mut host.kernel, &host.layout);
        }
        // These findings hold until the same processes are searched again.
        findings.extend(backends.claim_findings().cloned());
        findings.extend(keeper.damaged().iter().cloned());
        findings.extend(keeper.lost().filter(|_| is_enforcing).cloned());
    }

    fn grow(&mut self, is_enforcing: bool, findings: &mut Vec<Finding>) {
        if !self.backends.has_grown() {
            return;
        }
        let locations = self.backends.locations(self.control.tree());
        self.settle_members(&locations, is_enforcing, findings);
    }

    /// Exchanges the tree for one with the nodes at `locations`.
    pub(super) fn settle_members(
        &mut self,
        locations: &[Location],
        is_enforcing: bool,
        findings: &mut Vec<Finding>,
    ) {
        let tree = self.control.tree();
        let Some((tree, kept)) = self.backends.grown(&self.host, tree, locations) else { return };
        if is_enforcing && kept.iter().any(Option::is_none) {
            let failures = self.let_go_of_ended(&tree, &kept);
            findings
                .extend(failures.iter().map(|why| Finding::of_host(Code::NotKept, why.as_str())));
        }
        self.backends.take_grown(&mut self.host.kernel, &tree, locations, &kept);
        self.reporter.renumber_cgroups(&kept);
        self.control.take_tree(tree, &kept, |_| false);
    }

    fn take_in(&mut self, events: Events, findings: &mut Vec<Finding>) {
        findings.extend(events.findings);
        for outcome in events.outcomes {
            self.control.apply(Event::settle(outcome));
        }
        for loss in events.losses {
            self.control.apply(Event::Lose(loss.number, loss.keeps_left));
        }
    }

    fn sample(&mut self, now: Duration, host: HostSample, findings: &mut Vec<Finding>) -> Input {
        let topology = match self.backends.topology(&mut self.host) {
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
        let begin = self.host.kernel.clock();
        let nodes = (0..self.control.tree().len())
            .map(|number| self.sample_node(number, begin, &mut events))
            .collect();
        self.take_in(events, findings);
        let refreshes = self.control.wants_bounds();
        let above = self.backends.bounds_above(&mut self.host, refreshes);
        Input { now, host, nodes, topology, above }
    }

    fn since(&self, begin: Duration) -> Duration {
        let steps =
            self.host.kernel.clock().saturating_sub(begin).as_nanos() / CLOCK_STEP.as_nanos();
        CLOCK_STEP * u32::try_from(steps).unwrap_or(u32::MAX)
    }

    /// Reads one node; `begin` is the time of the first read of this sample.
    fn sample_node(&mut self, number: usize, begin: Duration, events: &mut Events) -> NodeInput {
        let sampled_after = self.since(begin);
        let Agent { host, backends, control, reporter, .. } = self;
        let tree = control.tree();
        // The values of groups, and of tenants with several cgroups, are those of the nodes below.
        let is_ancestor = tree.is_ancestor(number);
        let is_sampled = is_ancestor || tree.has_work(number);
        let mut input = NodeInput {
            is_governed: backends.is_governed(number),
            sampled_after,
            ..NodeInput::default()
        };
        if is_sampled {
            let sampling = control.sampling(number);
            let sampled = backends.sample(host, tree, number, sampling, events);
            if let Some(sampled) = sampled {
                input.nr_oom_kills = sampled.nr_oom_kills;
                input.nr_threads = sampled.nr_threads;
                input.sample = Some(sampled.sample);
            }
        }
        if pids::is_limited(tree, number) {
            input.pids = backends.pids(host, tree, number, events);
        }
        input.nr_killed_runs = backends.take_kills(number);
        input.surroundings = reporter.surroundings(number);
        if control.wants_observation(number) || backends.is_watched(number) {
            let state = &control.states()[number];
            let (known, is_bounded) = (&state.observed, state.squeeze.is_some());
            input.observed = backends.observe(host, tree, number, (known, is_bounded), events);
        }
        let observed = input.observed.as_deref().unwrap_or_default();
        input.arrivals = backends.arrivals(host, number, observed);
        if is_ancestor {
            input.held_before = backends.held_before(host, number, observed);
        }
        input.is_present = backends.is_present(number);
        if !input.is_present && backends.unmoved_of(tree, number).is_none() {
            input.sample = None;
        }
        input
    }

    fn note_topology(&mut self, topology: &Topology) {
        match self.control.topology() {
            Some(_) => info!(cpus = %topology.usable(), "the usable CPUs changed"),
            None => {
                let mut placed = self.keeper.placements(topology.usable());
                self.control.place_on(|node| placed.remove(node.path.as_str()));
            }
        }
    }

    fn leave_to_others(&mut self, decision: &Decision, findings: &mut Vec<Finding>) {
        if !self.control.settings().leaves_drift() {
            return;
        }
        for drift in &decision.drifts {
            if let Err(error) = self.backends.leave(&mut self.host, drift) {
                // Overwritten until the journal can record it.
                let name = self.control.tree().name(drift.node);
                findings.push(Finding::of(name, Code::NotKept, error.to_string()));
                self.control.apply(Event::Reclaim(drift.node, drift.knob));
            }
        }
    }

    fn apply(&mut self, tick: u64, actions: &[Action], nr_max: usize, findings: &mut Vec<Finding>) {
        let Agent { host, backends, control, keeper, .. } = self;
        let (tree, states) = (control.tree(), control.states());
        findings.extend(backends.join_cpusets(host, tree, Some(tick), is_pinned(states), nr_max));
        let attached = with_width(tree, backends);
        findings.extend(keeper.tell_widths(tree, states, attached, nr_max));
        findings.extend(keeper.keep_placement(tree.nodes(), states));
        let due: Vec<Action> =
            actions.iter().filter(|action| control.is_due(action)).cloned().collect();
        let events = backends.apply(host, tree, tick, due, nr_max);
        self.take_in(events, findings);
    }
}

fn with_width(tree: &Tree, backends: &Backends) -> impl Iterator<Item = NodeNumber> {
    let has_cgroup =
        |number: &NodeNumber| backends.is_present(number.get()) || tree.has_members(number.get());
    tree.node_numbers().filter(has_cgroup)
}

fn is_pinned(states: &[NodeState]) -> impl Fn(usize) -> bool {
    |number| states[number].width.cpus().is_some()
}
