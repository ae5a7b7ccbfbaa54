//! The agent as a service, with its policy on disk, its socket and its service manager.
//!
//! [`Service`] runs between two sleeps of the [`EventLoop`]. It ticks and publishes, makes the changes
//! requested on the socket, reloads the policy, and notifies the service manager. It is one thread; the socket
//! has another, and only [`tenantd_varlink::bridge`] connects them.
//!
//! **Budget.** Between two looks at the event loop, which reports stops, ticks and watchdog beats first, the
//! service makes at most one change and takes one batch of calls for jobs ([`super::jobs`]). Calls wait in a
//! bounded inbox that gives users turns ([`tenantd_varlink::bridge`]). A client that requests a thousand
//! reloads delays a tick by one of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use tracing::{error, info, warn};

use super::event_loop::{EventLoop, Wake};
use super::policy_watch::{PolicyWatch, STILL};
use super::prekill::OomdHook;
use crate::agent::attach::{AttachError, Moved};
use crate::agent::{Agent, ChangeError};
use crate::backend::claims;
use tenantd_control::report::status::AgentStatus;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::cost;
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
use tenantd_host::notify::Notifier;
use tenantd_policy::expand::may_make;
use tenantd_policy::model::Mode;
use tenantd_policy::outline::{Change, ChangeKind, Outline};
use tenantd_policy::report::{Report, Severity, Style};
use tenantd_policy::{HostFacts, Loaded, load, load_with_host};
use tenantd_varlink::bridge::{self, AgentEnd, Command, Governance, Published, json};
use tenantd_varlink::descriptors::Reserve;
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::{AttachReply, DetachReply, ModeReply, ReloadReply, RestoreReply};
use tenantd_varlink::listen::Listener;
use tenantd_varlink::server::{Limits, Server};

/// Source of the policy at each load.
#[derive(Clone, Debug)]
pub struct PolicySource {
    /// A file, or a directory of files.
    pub path: PathBuf,
    /// The machine that the policy must fit; `None` for this one.
    pub facts: Option<HostFacts>,
}

impl PolicySource {
    /// Loads the policy from disk. The error has every finding.
    pub fn load(&self) -> Result<Loaded, Report> {
        let here = || HostFacts::of_this_machine().map(HostFacts::without_accounts);
        match self.facts.clone().map_or_else(here, Ok) {
            Ok(facts) => load_with_host(&self.path, &facts),
            // The size of the machine cannot be read: the agent reports that when it samples.
            Err(_) => load(&self.path),
        }
    }
}

/// Longest wait of a reload for new names in the policy. Slower answers are applied when they arrive.
const NAMES_AT_RELOAD: Duration = Duration::from_millis(50);

/// An agent with everything around it.
#[derive(Debug)]
pub struct Service<K> {
    pub(super) agent: Agent<K>,
    source: PolicySource,
    governance: Arc<Governance>,
    notifier: Arc<Notifier>,
    pub(super) socket: Option<(AgentEnd, JoinHandle<()>)>,
    watch: Option<PolicyWatch>,
    pub(super) hook: OomdHook,
    longest_tick: Duration,
    /// True if the policy's files could not be watched; tried again with the next policy.
    watch_refused: bool,
}

impl<K: KernFs> Service<K> {
    /// Makes a service of `agent`, whose policy came from `source`.
    pub fn new(mut agent: Agent<K>, source: PolicySource, notifier: Notifier) -> Service<K> {
        let notifier = Arc::new(notifier);
        agent.supervised_by(Arc::clone(&notifier));
        let governance = Arc::new(governance(&agent, &source.path));
        Service {
            agent,
            source,
            governance,
            notifier,
            socket: None,
            watch: None,
            hook: OomdHook::default(),
            longest_tick: Duration::ZERO,
            watch_refused: false,
        }
    }

    /// The agent.
    pub fn agent(&self) -> &Agent<K> {
        &self.agent
    }

    /// The agent, for a simulation that advances its kernel.
    pub fn agent_mut(&mut self) -> &mut Agent<K> {
        &mut self.agent
    }

    /// Starts serving the clients of `listener`, on a separate thread.
    pub fn serve(&mut self, listener: Listener, limits: Limits) -> io::Result<()> {
        let (agent_end, socket_end) = bridge::bridge(self.publication())?;
        let server = Server::new(listener, socket_end, limits)?;
        let run = move || {
            if let Err(error) = server.run() {
                error!("the socket is no longer served: {error}");
            }
        };
        let thread = thread::Builder::new().name("socket".into()).spawn(run)?;
        self.socket = Some((agent_end, thread));
        Ok(())
    }

    /// Runs one tick at `now`, which is `late`.
    pub fn tick(&mut self, now: Duration, late: Duration) {
        let begin = Instant::now();
        self.agent.note_delay(late);
        self.take_notices();
        self.agent.short_tick(now);
        let mount = self.agent.wants_notices();
        self.hook.tend(mount, self.agent.status().tick);
        let (cost, took) = (cost::own(), begin.elapsed());
        self.longest_tick = self.longest_tick.max(took);
        self.agent.note_cost(AgentStatus {
            cpu_seconds: cost.cpu.as_secs_f64(),
            resident_bytes: cost.resident_bytes,
            tick_seconds: took.as_secs_f64(),
            longest_tick_seconds: self.longest_tick.as_secs_f64(),
            tick_late_seconds: late.as_secs_f64(),
            nr_skipped_ticks: self.agent.nr_skipped_ticks(),
        });
        stamp(&mut self.agent);
        self.note_jobs();
        self.publish();
        self.tend_jobs(true);
    }

    /// Listens for systemd-oomd in this directory, where the policy wants its notices.
    pub fn listen_to_oomd(&mut self, directory: &Path) {
        self.hook = OomdHook::in_directory(directory);
    }

    fn publish(&mut self) {
        if self.socket.is_some() {
            let publication = self.publication();
            if let Some((bridge, _)) = &self.socket {
                bridge.publish(publication);
            }
        }
    }

    fn publication(&self) -> Published {
        let trace = Arc::clone(self.agent.trace());
        let (status, governance) = (self.agent.shared_status(), Arc::clone(&self.governance));
        Published::new(status, trace, governance).claimed_by(self.agent.claimants())
    }

    /// Handles calls from the socket: a batch of those for jobs, and one change.
    pub fn serve_socket(&mut self) {
        let Some((bridge, _)) = &self.socket else { return };
        bridge.clear_wake();
        self.serve_jobs();
        self.serve_command();
        if let Some((bridge, _)) = &self.socket {
            bridge.stay_awake();
        }
    }

    /// Makes the next change requested on the socket; false if there is none.
    pub fn serve_command(&mut self) -> bool {
        let Some((bridge, _)) = &self.socket else { return false };
        let Some((ticket, command)) = bridge.next_command() else { return false };
        // Users hand work over as well; what changes the whole agent is an administrator's.
        let is_for_all =
            matches!(command, Command::Reload | Command::SetMode(_) | Command::Restore);
        let _reserve = is_for_all.then(Reserve::open);
        let answer = match command {
            Command::Reload => self.reload().map(|reply| json(&reply)),
            Command::SetMode(mode) => self.set_mode(mode).map(|reply| json(&reply)),
            Command::Restore => Ok(json(&self.put_all_back())),
            Command::Attach(tenant, work, leaves_unit, caller) => {
                let outcome = self.agent.attach_work(&tenant, &work, leaves_unit, caller);
                let policy = self.agent.shared_policy();
                let refusal = |error| match not_attached(error) {
                    CallError::NoSuchTenant { tenant, tenants, .. } => {
                        let awaited = may_make(&policy, &tenant).then_some(true);
                        CallError::NoSuchTenant { tenant, tenants, awaited }
                    }
                    error => error,
                };
                outcome.map_err(refusal).map(|Moved { cgroup, pids, failures }| {
                    json(&AttachReply { cgroup, pids, failures })
                })
            }
            Command::AttachPod(pod, cgroup, caller) => {
                let outcome = self.agent.attach_pod(*pod, &cgroup, caller);
                outcome.map_err(not_attached).map(|Moved { cgroup, pids, failures }| {
                    json(&AttachReply { cgroup, pids, failures })
                })
            }
            Command::Detach(work, caller) => {
                let outcome = self.agent.detach_work(&work, caller);
                outcome.map_err(not_attached).map(|it| json(&DetachReply { failures: it.failures }))
            }
        };
        // A client that requests the status after its answer sees the effect.
        self.publish();
        if let Some((bridge, _)) = &self.socket {
            bridge.answer(ticket, answer);
        }
        true
    }

    /// Loads the policy from disk completely, or leaves the running one in force. Fails with
    /// [`CallError::BadPolicy`] or [`CallError::Failed`].
    pub fn reload(&mut self) -> Result<ReloadReply, CallError> {
        self.notifier.reloading();
        self.renew_watch();
        let outcome = self.try_reload();
        if let Err(error) = &outcome {
            let path = &self.source.path;
            let notice = format!("{} was not taken up: {}", path.display(), why(error, path));
            let notice = Finding::of_host(Code::PolicyRefused, notice).as_error();
            self.agent.set_notice(Some(notice));
            match error {
                CallError::BadPolicy { report, .. } => error!(action = "reload", "{report}"),
                error => error!(action = "reload", "the policy was not loaded: {error}"),
            }
        }
        self.notifier.ready(&self.summary());
        outcome
    }

    fn try_reload(&mut self) -> Result<ReloadReply, CallError> {
        let Loaded { policy, report } = self.source.load().map_err(bad_policy)?;
        let accounts = self.agent.accounts();
        claims::numbers(&policy, accounts);
        accounts.settle(NAMES_AT_RELOAD);
        let rules = claims::rules_of(&policy, &claims::numbers(&policy, accounts));
        let changes = Outline::of(self.agent.policy()).changes_to(&Outline::of(&policy));
        let failures = self.agent.reload(policy, rules).map_err(failed)?;
        failures.iter().for_each(|failure| warn!(action = "reload", "not restored: {failure}"));
        self.agent.set_notice(None);
        self.watch_refused = false;
        self.agent.publish_mode();
        self.governance = Arc::new(governance(&self.agent, &self.source.path));
        log_changes(&changes);
        let findings = report.findings().iter().map(|finding| finding.to_finding()).collect();
        Ok(ReloadReply { changes, findings })
    }

    fn set_mode(&mut self, mode: Mode) -> Result<ModeReply, CallError> {
        let before = self.agent.mode();
        let failures = self.agent.set_mode(mode).map_err(failed)?;
        self.publish_mode();
        let policy = Some(self.source.path.display().to_string());
        let policy_mode = Some(self.agent.policy().mode);
        Ok(ModeReply { before, failures, policy_mode, policy })
    }

    fn put_all_back(&mut self) -> RestoreReply {
        let restored = self.agent.put_all_back();
        self.publish_mode();
        RestoreReply {
            files: restored.nr_files as u64,
            processes: restored.nr_processes as u64,
            cgroups: restored.nr_cgroups as u64,
            left: restored.remarks(),
            failures: restored.failures,
        }
    }

    fn publish_mode(&mut self) {
        self.agent.publish_mode();
        self.notifier.status(&self.summary());
    }

    fn summary(&self) -> String {
        let tenants = self.agent.nodes().iter().filter(|node| node.is_leaf).count();
        format!("{tenants} tenants, mode {}", self.agent.mode().word())
    }

    /// Ticks and serves until a signal stops it; with `once`, until one decision is made and written.
    ///
    /// The socket is served and the service manager notified after the first tick, so that every answer comes
    /// from a tick. Fails if the socket's thread has ended.
    pub fn run(
        &mut self,
        events: &mut EventLoop,
        mut listener: Option<Listener>,
        once: bool,
    ) -> io::Result<()> {
        let start = Instant::now();
        if let Some(watchdog) = self.notifier.watchdog() {
            events.watch_every(watchdog / 2)?;
        }
        self.watch_policy(events);
        let mut interval = self.agent.policy().control.interval;
        let (mut is_open, mut is_done) = (false, false);
        loop {
            if is_done && !self.agent.has_more_work() {
                return Ok(());
            }
            let wake =
                if self.agent.has_more_work() { events.poll()? } else { Some(events.wait()?) };
            let Some(wake) = wake else {
                self.agent.continue_work();
                self.notifier.beat();
                continue;
            };
            let was_complete = !self.agent.has_more_work();
            match wake {
                Wake::Stop => {
                    info!("stopping: received a signal");
                    self.notifier.stopping();
                    return Ok(());
                }
                Wake::Tick { late } => {
                    self.tick(start.elapsed(), late);
                    if !std::mem::replace(&mut is_open, true) {
                        self.open(events, listener.take())?;
                    }
                    // A decision needs two samples, and the first tick has only one.
                    is_done |= once && was_complete && self.agent.status().tick >= 2;
                }
                Wake::Watchdog => {}
                Wake::Jobs => self.tend_jobs(false),
                Wake::Reload => {
                    // The result is logged.
                    let _ = self.reload();
                    self.publish();
                }
                Wake::Command => {
                    self.serve_socket();
                    // Tenants must be attached even if calls never end.
                    self.agent.continue_work();
                }
                Wake::Files => self.look_at_files(events)?,
                Wake::Settled => {
                    info!(action = "reload", "the policy files changed");
                    let _ = self.reload();
                    self.publish();
                }
            }
            self.check_socket()?;
            self.notifier.beat();
            let now = self.agent.policy().control.interval;
            if now != interval {
                events.tick_every(now)?;
                interval = now;
            }
            let wants_watch = self.agent.policy().control.watch_policy && !self.watch_refused;
            if wants_watch != self.watch.is_some() {
                self.watch_policy(events);
            }
        }
    }

    /// Fails if the socket's thread has ended: a service that answers no client must be restarted.
    fn check_socket(&self) -> io::Result<()> {
        match &self.socket {
            Some((_, thread)) if thread.is_finished() => {
                Err(io::Error::other("the thread that serves the socket has ended"))
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, events: &EventLoop, listener: Option<Listener>) -> io::Result<()> {
        if let Some(listener) = listener {
            self.serve(listener, Limits::default())?;
        }
        if let Some((bridge, _)) = &self.socket {
            events.add_commands(bridge)?;
            self.agent.watch_jobs(|watch| events.add_jobs(watch))?;
        }
        self.notifier.ready(&self.summary());
        Ok(())
    }

    fn watch_policy(&mut self, events: &EventLoop) {
        self.watch = None;
        if !self.agent.policy().control.watch_policy {
            return;
        }
        let watch = PolicyWatch::new(&self.source.path)
            .and_then(|watch| events.add_files(&watch).map(|()| watch));
        match watch {
            Ok(watch) => self.watch = Some(watch),
            Err(error) => {
                warn!("cannot watch {} for changes: {error}", self.source.path.display());
                self.watch_refused = true;
            }
        }
    }

    /// Watches the file or directory that has the policy's name now, so that no later change is missed.
    fn renew_watch(&mut self) {
        if let Some(Err(error)) = self.watch.as_mut().map(PolicyWatch::renew) {
            let path = self.source.path.display();
            warn!("{path} is not watched for changes until the next reload: {error}");
        }
    }

    fn look_at_files(&mut self, events: &mut EventLoop) -> io::Result<()> {
        let Some(watch) = &self.watch else { return Ok(()) };
        match watch.concerns_policy() {
            Ok(false) => Ok(()),
            Ok(true) => events.settle(STILL),
            Err(error) => {
                warn!("the policy files are no longer watched: {error}");
                self.watch = None;
                self.watch_refused = true;
                Ok(())
            }
        }
    }

    /// Ends the socket's thread and returns the agent.
    pub fn into_agent(self) -> Agent<K> {
        if let Some((bridge, thread)) = self.socket {
            // Without this end of the bridge, the other thread stops.
            drop(bridge);
            if thread.join().is_err() {
                warn!("the socket's thread had failed");
            }
        }
        self.agent
    }
}

/// Adds the present time and the host name to the status of the last tick of `agent`.
pub fn stamp<K: KernFs>(agent: &mut Agent<K>) {
    let host_name = nix::unistd::gethostname().unwrap_or_default();
    let time = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
    agent.stamp(time, &host_name.to_string_lossy());
}

fn governance<K: KernFs>(agent: &Agent<K>, path: &Path) -> Governance {
    let path = Some(path.display().to_string());
    let history = agent.history().map(str::to_string);
    let mut governance = Governance::new(path, agent.shared_policy(), agent.accounts().clone());
    governance.history = history;
    governance
}

fn bad_policy(report: Report) -> CallError {
    CallError::BadPolicy {
        report: report.render(Style::PLAIN),
        findings: report.findings().iter().map(|finding| finding.to_finding()).collect(),
    }
}

fn not_attached(error: AttachError) -> CallError {
    match error {
        AttachError::NoSuchTenant(tenant) => {
            CallError::NoSuchTenant { tenant, tenants: Vec::new(), awaited: None }
        }
        AttachError::NotPermitted(reason) => CallError::NotYours { reason },
        AttachError::Refused(reason) => CallError::Failed { reason },
    }
}

fn failed(error: ChangeError) -> CallError {
    CallError::Failed { reason: with_causes(&error) }
}

/// Reason for not loading a policy, in one line: its first error, and the command that lists the others.
fn why(error: &CallError, path: &Path) -> String {
    let CallError::BadPolicy { findings, .. } = error else { return error.to_string() };
    let mut errors = findings.iter().filter(|finding| finding.severity == Severity::Error);
    let Some(first) = errors.next() else { return error.to_string() };
    let line = first.line.map(|line| format!(":{line}")).unwrap_or_default();
    let more = match errors.count() {
        0 => String::new(),
        count => format!(", and {count} more: see tenantctl check {}", path.display()),
    };
    format!("{}: {} ({}{line}){more}", first.code, first.message, first.file)
}

fn log_changes(changes: &[Change]) {
    info!(action = "reload", "policy reloaded: {} differences", changes.len());
    for change in changes {
        let action = match change.kind {
            ChangeKind::Added => "policy-added",
            ChangeKind::Removed => "policy-removed",
            ChangeKind::Changed => "policy-changed",
        };
        info!(tenant = change.tenant.as_deref(), action, "{change}");
    }
}
