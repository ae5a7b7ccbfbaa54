//! Taking the steps: the administrator's and the agent's.

use std::time::Duration;

use tenantd::agent::{Agent, ChangeError, Options};
use tenantd::backend::claims;
use tenantd::recovery::leftover;
use tenantd::recovery::restored::Restored;
use tenantd_control::report::status::Status;
use tenantd_policy::Policy;
use tenantd_policy::model::{Mode, RootChoice};

use super::campaign::Stage;
use super::decided;
use super::ground::{Fate, Ground};
use super::model::{Model, Turn};
use super::spec::Spec;
use super::step::{Setting, Step, generate};
use crate::history::twin::Twin;

/// The root of the tenants, from the top of the ground.
pub(super) const ROOT: &str = "t";
/// So many ticks later the agent has seen and mended whatever can be mended: it reads its files every tenth tick, and
/// waits longer and longer after refusals.
const TICKS_TO_SETTLE: u32 = 45;

/// A host, an agent on it perhaps, and what is known of both.
pub(crate) struct Run<G: Ground> {
    ground: G,
    agent: Option<Agent<G::Kernel>>,
    spec: Spec,
    policy: Policy,
    clock: Duration,
    fate: Fate,
    model: Model,
    nr_ticks: u64,
    nr_enforcing: u64,
}

impl<G: Ground> Stage for Run<G> {
    type Step = Step;

    fn steps(&self, seed: u64, count: usize) -> Vec<Step> {
        generate(seed, count, self.ground.abilities())
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Tick { host_millis, clock_millis } => self.tick(*host_millis, *clock_millis),
            Step::Settle => self.settle(),
            Step::Reload(spec) => self.reload(spec),
            Step::ReloadRefused => self.reload_refused(),
            Step::Enforce(is_enforcing) => self.enforce(*is_enforcing),
            Step::Start => self.start(),
            Step::Stop => self.stop(),
            Step::Crash => self.crash(),
            Step::Restore => {
                self.crash();
                self.restore();
            }
            Step::DieAt(call) => self.fate.dies_at = Some(u64::from(*call)),
            Step::Fail { call, errno } => self.fate.fails_at = Some((u64::from(*call), *errno)),
            _ => self.administer(step),
        }
    }

    fn weight(&self) -> (u64, usize) {
        let journal = std::fs::metadata(self.ground.state_dir().join("journal"));
        (journal.map_or(0, |file| file.len()), self.ground.nr_open())
    }

    fn ticks(&self) -> (u64, u64) {
        (self.nr_ticks, self.nr_enforcing)
    }

    fn end(&mut self) {
        self.fate = Fate::default();
        self.stop();
    }
}

impl<G: Ground> Run<G> {
    pub(crate) fn new(ground: G) -> Run<G> {
        let spec = Spec::first(ground.abilities().interval_millis);
        let policy = ground.policy(&spec.yaml(ground.top())).expect("the first policy is valid");
        let model = Model::new(ground.tops(), ground.snapshot());
        let (clock, fate) = (Duration::from_secs(1), Fate::default());
        Run { ground, agent: None, spec, policy, clock, fate, model, nr_ticks: 0, nr_enforcing: 0 }
    }

    // --- the administrator ---

    fn administer(&mut self, step: &Step) {
        let process = |ground: &G, number: u8| {
            let pids = ground.pids();
            (!pids.is_empty()).then(|| pids[usize::from(number) % pids.len()])
        };
        match step {
            Step::Set { at, setting } => self.set(at, *setting),
            Step::Make(at) => self.ground.make(at),
            Step::Remove(at) => self.ground.remove(at),
            Step::Spawn { at, load } => self.ground.spawn(at, *load),
            Step::Move { process: number, to } => {
                if let Some(pid) = process(&self.ground, *number) {
                    for top in self.ground.tops().to_vec() {
                        self.ground.write(&top.join(to).join("cgroup.procs"), &pid.to_string());
                    }
                }
            }
            Step::Kill { process: number } => {
                if let Some(pid) = process(&self.ground, *number) {
                    self.ground.kill(pid);
                }
            }
            Step::Load { process: number, load } => {
                if let Some(pid) = process(&self.ground, *number) {
                    self.ground.set_load(pid, *load);
                }
            }
            Step::Cpu { cpu, is_online } => {
                self.ground.set_cpu(u32::from(*cpu), *is_online);
                self.model.cpus_changed();
            }
            _ => unreachable!("{step:?} is the agent's"),
        }
        let now = self.ground.snapshot();
        self.model.after_administrator(now, self.nr_ticks);
    }

    fn set(&mut self, at: &str, setting: Setting) {
        let mib = |mib: u32| (u64::from(mib) << 20).to_string();
        let files: Vec<(&str, String)> = match setting {
            Setting::Weight(weight) => vec![
                ("cpu.weight", weight.to_string()),
                ("cpu.shares", (weight * 1024 / 100).max(2).to_string()),
            ],
            Setting::Quota(Some((quota, period))) => vec![
                ("cpu.max", format!("{quota} {period}")),
                ("cpu.cfs_period_us", period.to_string()),
                ("cpu.cfs_quota_us", quota.to_string()),
            ],
            Setting::Quota(None) => {
                vec![("cpu.max", "max".to_string()), ("cpu.cfs_quota_us", "-1".to_string())]
            }
            Setting::ProtectedMib(low) => {
                vec![("memory.low", mib(low)), ("memory.soft_limit_in_bytes", mib(low))]
            }
            Setting::LimitMib(Some(limit)) => {
                vec![("memory.max", mib(limit)), ("memory.limit_in_bytes", mib(limit))]
            }
            Setting::LimitMib(None) => {
                vec![("memory.max", "max".to_string()), ("memory.limit_in_bytes", "-1".to_string())]
            }
            Setting::Cpus(list) => vec![("cpuset.cpus", format!("{list}\n"))],
        };
        for top in self.ground.tops().to_vec() {
            for (file, value) in &files {
                let path = top.join(at).join(file);
                if self.model.has(&path) {
                    self.ground.write(&path, value);
                }
            }
        }
    }

    // --- the agent ---

    /// Lets the agent act, and checks what it did.
    fn turn<T>(
        &mut self,
        turn: Turn,
        act: impl FnOnce(&mut Option<Agent<G::Kernel>>, G::Kernel) -> T,
    ) -> Option<T> {
        let fate = std::mem::take(&mut self.fate);
        let kernel = self.ground.kernel();
        let agent = &mut self.agent;
        let outcome = self.ground.turn(fate, || act(agent, kernel));
        if outcome.is_none() {
            self.agent = None;
        }
        if self.agent.is_none() {
            self.ground.close_all();
        }
        let now = self.ground.snapshot();
        let is_disturbed = fate.dies_at.is_some() || fate.fails_at.is_some();
        let journal = self.ground.state_dir().join("journal");
        let paths = [self.spec.paths(), turn.paths.clone()].concat();
        let is_idle = self.agent.is_none();
        let turn = Turn {
            is_disturbed,
            paths,
            is_idle,
            claims: self.spec.claims() || turn.claims,
            ..turn
        };
        self.model.after_agent(now, &journal, &turn);
        self.model.time_passed(&self.ground.pids());
        outcome
    }

    fn start(&mut self) {
        if self.agent.is_some() {
            return;
        }
        let policy = self.policy.clone();
        let options = Options {
            root: Some(self.ground.root(ROOT)),
            state_dir: Some(self.ground.state_dir().to_path_buf()),
            ..Options::default()
        };
        let is_disturbed = self.fate.dies_at.is_some() || self.fate.fails_at.is_some();
        let started = self.turn(Turn::of("start"), |agent, kernel| {
            let rules = claims::rules(&policy);
            let started = Agent::start(kernel, policy, rules, &options);
            started.map(|mut started| {
                started.record(Twin::boxed());
                *agent = Some(started);
            })
        });
        match started {
            Some(Err(error)) if !is_disturbed => {
                let why = format!("{error:?}");
                assert!(self.model.is_root_in_use() && why.contains("RootInUse"), "start: {why}");
            }
            Some(Ok(())) => self.tick(1, 1),
            _ => {}
        }
    }

    fn stop(&mut self) {
        if self.agent.is_none() {
            return;
        }
        let stopped = self.turn(Turn::of("stop"), |agent, _| {
            let agent = agent.take().expect("it was there");
            agent.stop().map(|(restored, _)| restored)
        });
        match stopped {
            Some(Ok(restored)) => self.check_restored("stop", &restored),
            Some(Err(error)) => panic!("stop: {error}"),
            None => {}
        }
    }

    fn crash(&mut self) {
        if self.agent.take().is_some() {
            self.ground.close_all();
        }
    }

    fn restore(&mut self) {
        let state_dir = self.ground.state_dir().to_path_buf();
        let restored = self.turn(Turn::of("restore"), |_, mut kernel| {
            leftover::restore_only(&mut kernel, &state_dir)
        });
        match restored {
            Some(Ok(restored)) => self.check_restored("restore", &restored),
            // The machine itself could not be read.
            Some(Err(error)) => assert!(self.model.was_disturbed(), "restore: {error}"),
            None => {}
        }
    }

    /// What was not put back has a reason.
    fn check_restored(&mut self, what: &str, restored: &Restored) {
        if self.model.was_disturbed() {
            return;
        }
        let journal = self.ground.state_dir().join("journal");
        assert_eq!(
            journal.exists(),
            !restored.failures.is_empty() || !restored.left.is_empty(),
            "{what}: {:?}, {:?}",
            restored.failures,
            restored.left
        );
        for (file, value) in self.model.not_put_back(what, &restored.failures) {
            // An empty text is no write at all, which every file takes.
            let text = if value.is_empty() { "\n" } else { &value };
            let is_taken = self.ground.write(&file, text);
            assert!(
                !is_taken,
                "{what}: {} takes {value:?}: {:?}",
                file.display(),
                restored.failures
            );
        }
    }

    fn tick(&mut self, host_millis: u32, clock_millis: u32) {
        let millis = |millis: u32| Duration::from_millis(u64::from(millis));
        self.ground.advance(millis(host_millis));
        self.clock += millis(clock_millis);
        self.model.time_passed(&self.ground.pids());
        if self.agent.is_none() {
            return;
        }
        self.nr_ticks += 1;
        let mode = self.agent.as_ref().map(Agent::mode);
        self.nr_enforcing += u64::from(mode == Some(Mode::Enforce));
        let now = self.clock;
        self.turn(Turn::of("tick"), |agent, _| agent.as_mut().map(|agent| agent.tick(now).tick));
        if let Some(agent) = &self.agent {
            decided::check(agent.status(), agent.trace());
            // One that comes too early reads and writes nothing.
            if 2 * clock_millis >= self.ground.abilities().interval_millis {
                self.check_held(agent.status());
            }
        }
        self.check_open();
    }

    /// The status says what the files hold, except where an administrator has been since the agent last looked.
    fn check_held(&self, status: &Status) {
        if status.mode == Mode::Observe || self.model.was_disturbed() {
            return;
        }
        for tenant in &status.tenants {
            let held = self.model.weight_of(&format!("{ROOT}/{}", tenant.name), self.nr_ticks);
            if let (Some(held), Some(said)) = (held, tenant.cpu_weight) {
                assert!(
                    (held - said).abs() <= 0.01 * held,
                    "{}: says {said}, holds {held}",
                    tenant.name
                );
            }
        }
    }

    fn check_open(&self) {
        let nr_open = self.ground.nr_open();
        let bound = 24 + self.ground.tops().len() * (8 + 3 * self.spec.paths().len());
        assert!(nr_open <= bound, "{nr_open} directories are open, and {bound} would do");
    }

    /// Nothing happens for long: afterwards every value is as the policy says.
    fn settle(&mut self) {
        let interval = self.ground.abilities().interval_millis;
        for _ in 0..TICKS_TO_SETTLE {
            self.tick(interval, interval);
        }
        let Some(agent) = &self.agent else { return };
        let status = agent.status();
        if status.mode == Mode::Observe {
            return;
        }
        for tenant in &status.tenants {
            let excused = status.finding_records.iter().any(|finding| {
                finding.tenant.as_ref().is_none_or(|of| tenant.name.starts_with(&**of))
            });
            if !excused {
                let limits = self.spec.limits(&tenant.name);
                self.model.check_limits(&format!("{ROOT}/{}", tenant.name), limits);
            }
        }
        self.note_findings();
    }

    fn note_findings(&mut self) {
        if std::env::var_os("TENANTD_FINDINGS").is_none() {
            return;
        }
        if let Some(agent) = &self.agent {
            agent.status().findings.iter().for_each(|finding| eprintln!("finding: {finding}"));
        }
    }

    fn reload(&mut self, spec: &Spec) {
        let Some(policy) = self.ground.policy(&spec.yaml(self.ground.top())) else { return };
        if self.agent.is_none() {
            (self.spec, self.policy) = (spec.clone(), policy);
            return;
        }
        let before = self.before_change();
        let taken = policy.clone();
        let turn = Turn { paths: spec.paths(), claims: spec.claims(), ..Turn::of("reload") };
        let outcome = self.turn(turn, |agent, _| {
            let agent = agent.as_mut().expect("it runs");
            let rules = claims::rules(&taken);
            agent.reload(taken, rules)
        });
        match outcome {
            Some(Ok(_)) => (self.spec, self.policy) = (spec.clone(), policy),
            Some(Err(error)) => {
                let root_is_in_use = self.model.is_root_in_use();
                let reason = self.model.was_disturbed() || root_is_in_use;
                assert!(reason, "reload: {error:?}");
                self.check_unchanged("a reload that fails", before);
            }
            None => {}
        }
    }

    fn reload_refused(&mut self) {
        if self.agent.is_none() {
            return;
        }
        let mut policy = self.policy.clone();
        policy.host.hierarchy = match self.nr_ticks % 2 {
            0 => tenantd_policy::model::HierarchyChoice::Simulated,
            _ => policy.host.hierarchy,
        };
        if self.nr_ticks % 2 == 1 {
            policy.host.root = RootChoice::Path("elsewhere".into());
            // With a root from the command line the policy's does not matter.
            return;
        }
        let before = self.before_change();
        let outcome = self.turn(Turn::of("reload"), |agent, _| {
            let agent = agent.as_mut().expect("it runs");
            agent.reload(policy, Vec::new())
        });
        if let Some(outcome) = outcome {
            assert!(matches!(outcome, Err(ChangeError::NeedsRestart(_))), "{outcome:?}");
            self.check_unchanged("a refused reload", before);
        }
    }

    fn enforce(&mut self, is_enforcing: bool) {
        let mode = if is_enforcing { Mode::Enforce } else { Mode::Observe };
        if self.agent.is_none() {
            return;
        }
        let outcome =
            self.turn(Turn::of("mode"), |agent, _| agent.as_mut().expect("it runs").set_mode(mode));
        if let Some(Err(error)) = outcome {
            let reason = self.model.was_disturbed() || self.model.is_root_in_use();
            assert!(reason, "mode: {error:?}");
        }
    }

    fn before_change(&self) -> (crate::util::Snapshot, Option<Mode>) {
        (self.model.values(), self.agent.as_ref().map(Agent::mode))
    }

    fn check_unchanged(&self, what: &str, before: (crate::util::Snapshot, Option<Mode>)) {
        // What a fault kept from being put back is in the journal.
        if !self.model.was_disturbed() {
            crate::util::assert_same(&before.0, &self.model.values(), what);
        }
        assert_eq!(self.agent.as_ref().map(Agent::mode), before.1, "{what}");
    }
}
