//! Random administration of a host whose tenants are units: services and user slices that were there before, and
//! slices that the agent starts.
//!
//! The administrator sets properties at run time, edits and masks units, stops and starts them, reloads the
//! configuration and writes files; systemd answers late, denies, is away, or does not do what it said; the agent is
//! reloaded, killed and restarted. What must hold is in [`model`].

mod model;
mod step;

use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;
use tempfile::TempDir;
use tenantd::agent::{Agent, Options};
use tenantd::backend::claims;
use tenantd::recovery::leftover;
use tenantd::recovery::restored::Restored;
use tenantd_host::systemd::Setting;
use tenantd_policy::Policy;
use tenantd_policy::model::Mode;
use tenantd_sim::{Fault, Load, SimHost, SimKernel};

use self::model::{Model, Turn};
use self::step::{Act, CI, SERVICES, Spec, Step};
use crate::agent::world::{Host, MIB, MOUNT};
use crate::history::twin::Twin;
use crate::soak::campaign::{self, Stage};
use crate::soak::decided;
use crate::soak::ground::Fate;
use crate::util;

/// How many are taken without being asked to: see [`campaign::play`].
const STEPS: usize = 300;
/// Refusals are tried again after growing pauses, the longest of which is shorter than this.
const TICKS_TO_SETTLE: u32 = 150;
const INTERVAL: Duration = Duration::from_millis(100);
/// Processes on the host at most.
const PROCESSES_MAX: usize = 16;

struct Run {
    host: Host,
    agent: Option<Agent<Host>>,
    spec: Spec,
    policy: Policy,
    state: TempDir,
    clock: Duration,
    fate: Fate,
    model: Model,
    /// Processes that run since before.
    residents: Vec<u32>,
    nr_ticks: u64,
    nr_enforcing: u64,
}

/// All of them together fit below the least limit of a policy.
fn load(number: u8) -> Load {
    match number {
        0 => Load::idle(),
        1 => Load::busy(1),
        2 => Load::busy(4).with_working_set(2 * MIB),
        _ => Load::idle().with_working_set(2 * MIB).with_cache(8 * MIB),
    }
}

impl Run {
    fn new() -> Run {
        let host = Host::new(SimKernel::new(SimHost::default()));
        host.systemd(|systemd, kernel| {
            for (unit, cgroup) in SERVICES {
                systemd.add(kernel, unit, cgroup);
            }
            systemd.add_transient(CI.0, CI.1);
            systemd.start(kernel, CI.0);
            // Protection of services is void without this.
            kernel.write_file(&format!("{MOUNT}/system.slice/memory.low"), "max").unwrap();
        });
        let state = util::scratch();
        let spec = Spec::first();
        let policy = load_policy(&state, &spec).expect("the first policy is valid");
        let residents = host.with(|kernel| kernel.pids());
        Run {
            model: Model::new(&host),
            host,
            agent: None,
            spec,
            policy,
            state,
            clock: Duration::from_secs(1),
            fate: Fate::default(),
            residents,
            nr_ticks: 0,
            nr_enforcing: 0,
        }
    }

    fn state_dir(&self) -> PathBuf {
        self.state.path().join("state")
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids = self.host.with(|kernel| kernel.pids());
        pids.retain(|pid| !self.residents.contains(pid));
        pids
    }

    // --- the administrator ---

    fn administer(&mut self, step: &Step) {
        let pids = self.pids();
        let process =
            |number: u8| (!pids.is_empty()).then(|| pids[usize::from(number) % pids.len()]);
        match step {
            Step::Unit { unit, act } => self.act(unit, act),
            Step::DaemonReload { writes } => self.host.systemd(|systemd, kernel| {
                systemd.reload();
                if *writes {
                    let units: Vec<String> = systemd.units.keys().cloned().collect();
                    units.iter().for_each(|unit| systemd.restore_files(kernel, unit));
                }
            }),
            Step::Spawn { unit, load: number } if pids.len() < PROCESSES_MAX => {
                let cgroup = self.host.systemd(|systemd, _| {
                    let known = systemd.units.get(*unit).filter(|known| known.is_active);
                    known.map(|known| known.cgroup.clone())
                });
                if let Some(cgroup) = cgroup {
                    // One with slices in it takes no processes.
                    let _: Result<u32, Errno> =
                        self.host.with(|kernel| kernel.spawn(&cgroup, load(*number)));
                }
            }
            Step::Kill { process: number } => {
                if let Some(pid) = process(*number) {
                    self.host.with(|kernel| kernel.kill(pid)).unwrap();
                }
            }
            Step::Fault(fault) => self.host.systemd(|systemd, _| systemd.fault = *fault),
            _ => {}
        }
        self.model.after_administrator(&self.host);
    }

    fn act(&mut self, unit: &'static str, act: &Act) {
        let host = self.host.clone();
        let is_loaded = host.systemd(|systemd, _| systemd.units.contains_key(unit));
        match act {
            Act::Set(setting) if is_loaded => {
                self.model.administrator_sets(unit, setting);
                host.systemd(|systemd, kernel| systemd.set_property(kernel, unit, setting));
            }
            Act::Edit(setting) if is_loaded => {
                self.model.administrator_sets(unit, setting);
                host.systemd(|systemd, _| {
                    let known = systemd.units.get_mut(unit).unwrap();
                    known.overrides.insert(setting.property, setting.value.clone());
                    systemd.reload();
                });
            }
            Act::Revert(property) if is_loaded => {
                self.model.administrator_touches(unit, *property);
                host.systemd(|systemd, _| {
                    let known = systemd.units.get_mut(unit).unwrap();
                    known.overrides.remove(property);
                    known.file.remove(property);
                    systemd.reload();
                });
            }
            Act::File(setting) if is_loaded => {
                self.model.administrator_sets(unit, setting);
                host.systemd(|systemd, _| {
                    let known = systemd.units.get_mut(unit).unwrap();
                    known.file.insert(setting.property, setting.value.clone());
                    systemd.reload();
                });
            }
            Act::Write(file, value) => {
                self.model.administrator_writes(unit);
                host.systemd(|systemd, kernel| {
                    let Some(known) = systemd.units.get(unit) else { return };
                    let path = format!("{MOUNT}{}/{file}", known.cgroup);
                    // Its cgroup may be gone.
                    let _: Result<(), Errno> = kernel.write_file(&path, value);
                });
            }
            Act::Mask(is_masked) if is_loaded => {
                self.model.administrator_writes(unit);
                host.systemd(|systemd, _| systemd.mask(unit, *is_masked));
            }
            Act::Stop => {
                self.model.administrator_writes(unit);
                host.systemd(|systemd, kernel| systemd.stop(kernel, unit));
            }
            Act::Restart => {
                self.model.administrator_writes(unit);
                host.systemd(|systemd, kernel| systemd.restart(kernel, unit));
            }
            Act::Start => {
                self.model.administrator_writes(unit);
                host.systemd(|systemd, kernel| {
                    if unit == CI.0 && !systemd.units.contains_key(unit) {
                        systemd.add_transient(CI.0, CI.1);
                    }
                    let is_stopped = systemd.units.get(unit).is_some_and(|known| !known.is_active);
                    if is_stopped {
                        systemd.start(kernel, unit);
                    }
                });
            }
            _ => {}
        }
    }

    // --- the agent ---

    /// Lets the agent act, and checks what it did.
    fn turn<T>(
        &mut self,
        turn: Turn,
        act: impl FnOnce(&mut Option<Agent<Host>>, Host) -> T,
    ) -> Option<T> {
        let fate = std::mem::take(&mut self.fate);
        let from = self.host.nr_calls();
        self.host.take_calls();
        self.host.systemd(|systemd, _| systemd.orders.clear());
        if let Some((call, errno)) = fate.fails_at {
            self.host.inject(Fault::at_call(from + call, errno));
        }
        let (agent, host) = (&mut self.agent, self.host.clone());
        let act = || act(agent, host);
        let outcome = match fate.dies_at {
            Some(call) => self.host.until_death(from + call, act),
            None => Some(act()),
        };
        self.host.heal();
        if outcome.is_none() {
            self.agent = None;
        }
        if self.agent.is_none() {
            self.close_all();
        }
        let units = [self.spec.units(), turn.units.clone()].concat();
        let is_disturbed = fate.dies_at.is_some() || fate.fails_at.is_some();
        let turn = Turn { units, is_disturbed, ..turn };
        self.model.after_agent(&self.host, &self.state_dir().join("journal"), &turn);
        outcome
    }

    /// The kernel closes what a dead agent held, and the bus forgets who listened.
    fn close_all(&self) {
        self.host.close_all();
        self.host.systemd(|systemd, _| systemd.results.clear());
    }

    fn start(&mut self) {
        if self.agent.is_some() {
            return;
        }
        let (policy, state_dir) = (self.policy.clone(), Some(self.state_dir()));
        let options = Options { state_dir, ..Options::default() };
        let started = self.turn(Turn::of("start"), |agent, kernel| {
            let rules = claims::rules(&policy);
            let started = Agent::start(kernel, policy, rules, &options);
            started.map(|mut started| {
                started.record(Twin::boxed());
                *agent = Some(started);
            })
        });
        match started {
            Some(Err(error)) => assert!(self.model.was_disturbed(), "start: {error:?}"),
            Some(Ok(())) => self.tick(INTERVAL),
            None => {}
        }
    }

    fn tick(&mut self, time: Duration) {
        let before = self.pids();
        self.host.with(|kernel| kernel.advance(time));
        assert_eq!(before, self.pids(), "a process ended by itself");
        self.clock += time;
        let Some(mode) = self.agent.as_ref().map(Agent::mode) else { return };
        self.nr_ticks += 1;
        self.nr_enforcing += u64::from(mode == Mode::Enforce);
        let now = self.clock;
        self.turn(Turn::of("tick"), |agent, _| agent.as_mut().map(|agent| agent.tick(now).tick));
        if let Some(agent) = &self.agent {
            decided::check(agent.status(), agent.trace());
        }
        let (nr_open, bound) = (self.weight().1, 40 + 8 * self.spec.units().len());
        assert!(nr_open <= bound, "{nr_open} directories are open, and {bound} would do");
    }

    /// Nothing happens for long: afterwards the limits are as the policy says.
    fn settle(&mut self) {
        self.administer(&Step::Fault(None));
        for _ in 0..TICKS_TO_SETTLE {
            self.tick(INTERVAL);
        }
        let Some(agent) = &self.agent else { return };
        let status = agent.status();
        if status.mode == Mode::Observe || self.spec.accepts_drift {
            return;
        }
        for (tenant, unit, limits) in self.spec.limits() {
            let excused = status
                .finding_records
                .iter()
                .any(|finding| finding.tenant.as_ref().is_none_or(|of| tenant.starts_with(&**of)));
            if !excused {
                self.model.check_limits(&self.host, unit, limits);
            }
        }
    }

    fn stop(&mut self) {
        if self.agent.is_none() {
            return;
        }
        let stopped = self.turn(Turn::of("stop"), |agent, _| {
            agent.take().expect("it was there").stop().map(|(restored, _)| restored)
        });
        match stopped {
            Some(Ok(restored)) => self.check_restored("stop", &restored),
            Some(Err(error)) => panic!("stop: {error}"),
            None => {}
        }
    }

    fn crash(&mut self) {
        if self.agent.take().is_some() {
            self.close_all();
        }
    }

    fn restore(&mut self) {
        let state_dir = self.state_dir();
        let restored = self.turn(Turn::of("restore"), |_, mut kernel| {
            leftover::restore_only(&mut kernel, &state_dir)
        });
        match restored {
            Some(Ok(restored)) => self.check_restored("restore", &restored),
            Some(Err(error)) => assert!(self.model.was_disturbed(), "restore: {error}"),
            None => {}
        }
    }

    /// What was not put back is said, and owed; where systemd does what it is asked for there is nothing of the kind.
    fn check_restored(&self, what: &str, restored: &Restored) {
        if self.model.was_disturbed() || self.model.was_impeded() {
            return;
        }
        assert_eq!(restored.failures, [""; 0], "{what}");
        assert!(!self.state_dir().join("journal").exists(), "{what}: {:?}", restored.left);
    }

    fn reload(&mut self, spec: &Spec) {
        let Some(policy) = load_policy(&self.state, spec) else { return };
        if self.agent.is_some() {
            let taken = policy.clone();
            let turn = Turn { units: spec.units(), ..Turn::of("reload") };
            let outcome = self.turn(turn, |agent, _| {
                let rules = claims::rules(&taken);
                agent.as_mut().expect("it runs").reload(taken, rules)
            });
            match outcome {
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    assert!(self.model.was_disturbed(), "reload: {error:?}");
                    return;
                }
                None => return,
            }
        }
        (self.spec, self.policy) = (spec.clone(), policy);
    }

    fn enforce(&mut self, is_enforcing: bool) {
        let mode = if is_enforcing { Mode::Enforce } else { Mode::Observe };
        if self.agent.is_none() {
            return;
        }
        let outcome =
            self.turn(Turn::of("mode"), |agent, _| agent.as_mut().expect("it runs").set_mode(mode));
        if let Some(Err(error)) = outcome {
            assert!(self.model.was_disturbed(), "mode: {error:?}");
        }
    }
}

fn load_policy(state: &TempDir, spec: &Spec) -> Option<Policy> {
    let path = util::file(state.path(), "policy.yaml", spec.yaml());
    tenantd_policy::load(&path).ok().map(|loaded| loaded.policy)
}

impl Stage for Run {
    type Step = Step;

    fn steps(&self, seed: u64, count: usize) -> Vec<Step> {
        step::generate(seed, count)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Tick { millis } => self.tick(Duration::from_millis(u64::from(*millis))),
            Step::Settle => self.settle(),
            Step::Reload(spec) => self.reload(spec),
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

    fn end(&mut self) {
        self.fate = Fate::default();
        self.administer(&Step::Fault(None));
        self.stop();
    }

    fn weight(&self) -> (u64, usize) {
        let journal = std::fs::metadata(self.state_dir().join("journal"));
        let nr_open = self.host.with(|kernel| kernel.nr_kept_dirs());
        (journal.map_or(0, |file| file.len()), nr_open)
    }

    fn ticks(&self) -> (u64, u64) {
        (self.nr_ticks, self.nr_enforcing)
    }
}

/// What a setting says in its file.
fn spelled(setting: &Setting) -> Option<Vec<(&'static str, String)>> {
    let value = setting.expected()?;
    let knob = setting.property.knob();
    let lines = tenantd_host::cgroup::spell_unified(knob, &value);
    Some(lines.into_iter().map(|line| (line.file, line.text)).collect())
}

#[test]
fn random_administration_of_units() {
    campaign::play("simulated, units", STEPS, || Some(Run::new()));
}
