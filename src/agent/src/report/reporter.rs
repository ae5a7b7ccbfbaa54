//! Reports after each tick: status, trace and log.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::absent::Absent;
use super::charged::Charged;
use super::competition::{self, Competition};
use super::engine::Engine;
use super::finding_log::FindingLog;
use super::held::Held;
use super::mounts::Mounts;
use super::surroundings::{self, Neighbourhood};
use super::{effect, status, trace};
use crate::backend::access::HostAccess;
use crate::backend::backends::Backends;
use tenantd_control::measure::sample::HostSample;
use tenantd_control::report::reason::Surroundings;
use tenantd_control::report::status::{ActionStatus, AgentStatus, Status, VictimStatus};
use tenantd_control::report::trace::{Outcome, Record, Spelling, Trace};
use tenantd_control::state::drift::Drift;
use tenantd_control::state::step::Decision;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tree::{Node, Tree};
use tenantd_control::words::finding::Finding;
use tenantd_control::words::knob::{Action, Knob};
use tenantd_core::node::NodeId;
use tenantd_core::resource::MEMORY;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::model::{CpusPolicy, Mode, Policy};

#[derive(Debug)]
pub(crate) struct Reporter {
    status: Arc<Status>,
    trace: Arc<Trace>,
    spelling: Spelling,
    log: FindingLog,
    held: Held,
    notice: Option<Finding>,
    /// Obstacles that affect every tenant alike.
    standing: Vec<Finding>,
    engine: Engine,
    competition: Competition,
    around: Neighbourhood,
    charged: Charged,
    mounts: Mounts,
    absent: Absent,
    nr_reloads: u64,
    /// Ticks that were missed or decided nothing.
    nr_skipped_ticks: u64,
    /// Actions and findings since the last tick, published with the next.
    late_actions: Vec<ActionStatus>,
    late_findings: Vec<Finding>,
    /// Findings of the last tick with a decision, while later ticks decide nothing.
    decided: Option<Vec<Finding>>,
}

#[derive(Debug)]
pub(crate) struct TickReport<'a, K> {
    pub(crate) now: Duration,
    pub(crate) host_sample: HostSample,
    pub(crate) host: &'a HostAccess<K>,
    pub(crate) backends: &'a Backends,
    pub(crate) control: &'a ControlLoop,
    pub(crate) policy_mode: Mode,
    pub(crate) decision: Decision,
    /// The executed actions, spelled as before their execution.
    pub(crate) actions: Vec<ActionStatus>,
    /// Values of disk settings that other programs wrote over the agent's.
    pub(crate) nr_disk_drift: u64,
    /// The work that ends first when memory runs out.
    pub(crate) victim: Option<VictimStatus>,
    pub(crate) findings: Vec<Finding>,
}

impl Reporter {
    pub(crate) fn new<K>(host: &HostAccess<K>) -> Reporter {
        Reporter {
            status: Arc::default(),
            trace: Arc::default(),
            spelling: trace::spelling(&host.layout, HashMap::new()),
            log: FindingLog::default(),
            held: Held::default(),
            notice: None,
            standing: Vec::new(),
            engine: Engine::default(),
            competition: Competition::default(),
            around: Neighbourhood::default(),
            charged: Charged::default(),
            mounts: Mounts::default(),
            absent: Absent::default(),
            nr_reloads: 0,
            nr_skipped_ticks: 0,
            late_actions: Vec::new(),
            late_findings: Vec::new(),
            decided: None,
        }
    }

    /// Findings on mounts, which are read where it is time.
    pub(crate) fn mount_findings<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        control: &ControlLoop,
        tick: u64,
    ) -> &[Finding] {
        self.mounts.refresh(host, control, tick);
        self.mounts.findings()
    }

    /// Findings on devices of counted resources that do not exist.
    pub(crate) fn device_findings(&mut self, policy: &Arc<Policy>, tick: u64) -> &[Finding] {
        self.absent.look(policy, tick)
    }

    /// The status of the last tick.
    pub(crate) fn status(&self) -> &Arc<Status> {
        &self.status
    }

    pub(crate) fn trace(&self) -> &Arc<Trace> {
        &self.trace
    }

    pub(crate) fn amend(&mut self, change: impl FnOnce(&mut Status)) {
        change(Arc::make_mut(&mut self.status));
    }

    pub(crate) fn set_notice(&mut self, notice: Option<Finding>) {
        self.notice = notice;
    }

    pub(crate) fn count_skipped(&mut self, nr: u64) {
        self.nr_skipped_ticks = self.nr_skipped_ticks.saturating_add(nr);
    }

    pub(crate) fn nr_skipped_ticks(&self) -> u64 {
        self.nr_skipped_ticks
    }

    pub(crate) fn count_reload(&mut self) {
        // The new policy may claim other processes.
        self.charged = Charged::default();
        self.held = Held::default();
        self.nr_reloads += 1;
    }

    /// Looks for obstacles that affect every tenant alike; they depend on the mode.
    pub(crate) fn find_obstacles<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        backends: &Backends,
        is_enforcing: bool,
    ) {
        self.standing = effect::standing(host, is_enforcing && backends.has_direct());
        self.engine.forget();
        self.competition = Competition::default();
        self.around = Neighbourhood::default();
        self.charged = Charged::default();
        self.held = Held::default();
        self.late_actions.clear();
    }

    /// Drops the nodes that are not in `tree`; the tenants `handed` give their cgroups to a member.
    pub(crate) fn follow(&mut self, tree: &Tree, handed: &[(NodeId, NodeId)]) {
        self.competition.follow(tree, handed);
        self.around.follow(tree);
        self.charged.follow(tree);
    }

    pub(crate) fn look_around<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        backends: &Backends,
        control: &ControlLoop,
        now: Duration,
    ) {
        if control.settings().is_enforcing {
            self.engine.refresh(&mut host.kernel);
        }
        let (competition, foreign_scheduler) = (&self.competition, self.engine.void_weight());
        self.around.refresh(&mut surroundings::Scene {
            host,
            backends,
            control,
            competition,
            foreign_scheduler,
            now,
        });
    }

    pub(crate) fn surroundings(&self, id: NodeId) -> Option<Box<Surroundings>> {
        self.around.of(id)
    }

    pub(crate) fn find_competition<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        backends: &Backends,
        control: &ControlLoop,
    ) {
        let (tree, nr_cpus) = (control.tree(), self.status.host.cpus);
        let lacking: Vec<usize> = control.lacking().map(Node::at).collect();
        let lacks = |tenant: Node<'_>| lacking.binary_search(&tenant.at()).is_ok();
        let lacking = &tree.any_below(|node| node.tenant().is_some_and(lacks));
        let (outsiders, unprotected) = (&self.around.outsiders, self.mounts.unprotected());
        let mut scene =
            competition::Scene { host, backends, tree, outsiders, unprotected, lacking, nr_cpus };
        self.competition.refresh(&mut scene);
    }

    pub(crate) fn look_for_charges<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        backends: &Backends,
        control: &ControlLoop,
    ) {
        self.charged.look(host, backends, control);
    }

    /// Findings that every tick begins with.
    pub(crate) fn standing_findings(&mut self) -> Vec<Finding> {
        let standing = self.standing.iter().chain(&self.notice).cloned();
        standing.chain(self.late_findings.drain(..)).collect()
    }

    pub(crate) fn effect_findings<K>(
        &self,
        host: &HostAccess<K>,
        backends: &Backends,
        control: &ControlLoop,
    ) -> Vec<Finding> {
        let tree = control.tree();
        let missing = |node: Node<'_>| {
            // Groups are located with their tenants, which are checked themselves.
            let knobs: &[Knob] = match node.policy().filter(|policy| policy.is_leaf) {
                None => &[],
                Some(policy) if policy.cpus == CpusPolicy::Shared => &[Knob::MemoryLow],
                Some(_) => &[Knob::MemoryLow, Knob::Cpus],
            };
            let files = effect::missing_files(node.name(), backends.missing_files(node.id()));
            let trees = backends.lacks(host, node.id(), knobs);
            files.into_iter().chain(effect::missing_trees(node.name(), &trees))
        };
        let missing = tree.tenants_and_members().flat_map(missing);
        let charged = self.charged.findings().cloned();
        self.competition.findings().chain(missing).chain(charged).collect()
    }

    pub(crate) fn note_late<'a>(&mut self, tree: &Tree, actions: impl Iterator<Item = &'a Action>) {
        self.late_actions.extend(status::action_statuses(tree, &self.spelling, actions));
    }

    pub(crate) fn note_late_findings(&mut self, findings: Vec<Finding>) {
        self.late_findings.extend(findings);
    }

    /// Actions executed since the last tick and in this one, as text. In mode observe the whole decision.
    pub(crate) fn spell_actions<K>(
        &mut self,
        host: &HostAccess<K>,
        backends: &Backends,
        control: &ControlLoop,
        decision: &Decision,
    ) -> Vec<ActionStatus> {
        let tree = control.tree();
        let home = |node: Node<'_>| {
            let home = backends.home_outside(node.id())?;
            Some((node.name().to_string(), home.to_string()))
        };
        let homes: HashMap<String, String> = tree.all().filter_map(home).collect();
        if !homes.is_empty() {
            self.spelling = trace::spelling(&host.layout, homes);
        }
        let unwritten = backends.unwritten();
        // A later tick opens, plans and writes the cgroups that are still to be opened.
        let actions = decision.actions.iter().filter(|action| {
            let has_file =
                !backends.is_present(action.node) || backends.has(host, action.node, action.knob);
            has_file
                && !tree.find(action.node).is_some_and(|node| backends.is_pending(node))
                && !unwritten.contains(&(action.node, action.knob))
        });
        let mut all = std::mem::take(&mut self.late_actions);
        all.extend(status::action_statuses(control.tree(), &self.spelling, actions));
        all
    }

    pub(crate) fn log_drifts<K>(
        &self,
        host: &HostAccess<K>,
        control: &ControlLoop,
        drifts: &[Drift],
    ) {
        for Drift { node, knob, before, now } in drifts {
            let (tenant, file) =
                (control.tree().find(*node).map_or("", Node::name), host.file(*knob));
            let (resource, action) = (knob.subject(), "drift");
            warn!(
                tenant,
                resource, action, "someone else wrote here: {file} holds {now} instead of {before}"
            );
        }
    }

    /// Publishes a tick without a decision: the last decision and its findings stay in force.
    pub(crate) fn skip(&mut self, tick: u64, findings: &[Finding], now: Duration) {
        let decided = self.decided.get_or_insert_with(|| self.status.finding_records.clone());
        let mut all = decided.clone();
        all.extend(findings.iter().filter(|new| !decided.contains(new)).cloned());
        self.log.tell(&all, now);
        let status = Arc::make_mut(&mut self.status);
        status.tick = tick;
        status.findings = all.iter().map(ToString::to_string).collect();
        status.finding_records = all;
        status.actions.clear();
    }

    pub(crate) fn publish<K>(&mut self, report: TickReport<'_, K>) {
        let TickReport { now, host_sample, host, backends, control, .. } = report;
        let TickReport { policy_mode, mut decision, actions, victim, mut findings, .. } = report;
        let nr_disk_drift = report.nr_disk_drift;
        self.engine.judge(control);
        findings.extend(self.engine.finding().cloned());
        self.held.settle(&mut findings, now);
        self.decided = None;
        let scene = trace::Scene {
            host,
            backends,
            control,
            competition: &self.competition,
            foreign_scheduler: self.engine.void_weight(),
            unwritten: backends.unwritten(),
        };
        let settings = control.settings();
        let mut trace = Trace {
            now,
            elapsed: decision.elapsed,
            machine: host_sample.machine(),
            capacity: decision.capacity.divided,
            rule: settings.allocation,
            credits: settings.credits,
            slots: decision.slots,
            tree: control.tree().clone(),
            spelling: self.spelling.clone(),
            ..Trace::default()
        };
        scene.record(&mut decision, &mut trace);
        self.trace = Arc::new(trace);
        self.log.tell(&findings, now);
        let host_name = self.status.host.name.clone();
        let hierarchy = host.layout.describe();
        let host = status::host_status(host_name, hierarchy, host_sample, decision.capacity);
        self.status = Arc::new(Status {
            version: env!("CARGO_PKG_VERSION").into(),
            policy_mode: Some(policy_mode),
            actions,
            victim,
            moves: backends.moves(control.tree()),
            nr_drift: control.nr_drift() + nr_disk_drift,
            nr_ineffective: nr_ineffective(&self.trace),
            nr_moves: backends.nr_moves(),
            nr_reloads: self.nr_reloads,
            agent: self.status.agent,
            findings: findings.iter().map(ToString::to_string).collect(),
            finding_records: findings,
            // The agent's jobs fill in theirs.
            ..status::decided(control, &decision, host, &self.charged)
        });
        if self.competition.leaves_unprotected() {
            let void = void_guarantees(control, &self.trace);
            self.amend(|status| {
                for tenant in status.tenants.iter_mut().filter(|it| it.guarantee[MEMORY].is_some())
                {
                    tenant.memory_guarantee_void = void.contains(&*tenant.name);
                }
            });
        }
    }

    pub(crate) fn note_cost(&mut self, cost: AgentStatus) {
        self.amend(|status| status.agent = cost);
    }
}

/// Names of tenants with memory protection that has no effect.
fn void_guarantees<'a>(control: &'a ControlLoop, trace: &Trace) -> HashSet<&'a str> {
    let is_void = |record: &Record| {
        let mut values = trace.values[record.values.clone()].iter();
        values.any(|it| it.knob.is_protection() && it.outcome == Outcome::Ineffective)
    };
    let void = control.tree().all().zip(&trace.records).filter(|(_, record)| is_void(record));
    void.filter_map(|(node, _)| Some(node.tenant()?.name())).collect()
}

fn nr_ineffective(trace: &Trace) -> u64 {
    let values = trace.values.iter();
    values.filter(|value| value.outcome == Outcome::Ineffective).count() as u64
}
