//! A simulated host that outlives its agents, and an agent on it.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use nix::errno::Errno;
use tempfile::TempDir;
use tenantd::agent::{Agent, Options, StartError};
use tenantd::backend::claims;
use tenantd::recovery::leftover;
use tenantd::recovery::restored::Restored;
use tenantd_control::report::status::{Status, TenantStatus};
use tenantd_core::kernel_text::path_of;
use tenantd_host::kernfs::{DirId, FileId, KernError, KernFs, KernelLog, Operation};
use tenantd_host::systemd::UnitManager;
use tenantd_policy::Policy;
use tenantd_sim::{
    Call, Fault, Faulty, Layout, Load, SimHost, SimKernel, SimSystemd, SimUnits, Workload,
};
use tenantd_varlink::bridge::{Allowed, Submission, Ticket};
use tenantd_varlink::jobs::SubmitParameters;

use crate::util::{self, CGROUP_FILES};

pub(super) use crate::util::{Snapshot, assert_same};

pub(super) const MOUNT: &str = "/sys/fs/cgroup";
pub(super) const GIB: u64 = 1 << 30;
pub(super) const MIB: u64 = 1 << 20;

/// A handle of a kernel that several can hold: an agent, the one that comes after it, and the test.
#[derive(Clone, Debug)]
pub(super) struct Host {
    kernel: Rc<RefCell<Faulty<SimKernel>>>,
    events: Rc<RefCell<Events>>,
    /// Whoever runs the host's units, if anybody does.
    systemd: Option<Rc<RefCell<SimSystemd>>>,
    has_log: bool,
    /// What the last read found: the kernel itself is borrowed only while it is asked.
    text: Vec<u8>,
}

/// A process of a user as a job, in any tenant.
pub(super) fn submission((uid, pid): (u32, u32), parameters: SubmitParameters) -> Submission {
    Submission { parameters, uid, pid, process: None, allowed: Allowed::All }
}

/// Something done to the kernel.
type Deed = Box<dyn FnOnce(&mut SimKernel)>;

/// What happens to the host beside what the agent does.
#[derive(Default)]
struct Events {
    /// Done to the kernel right before the call with this number.
    before_call: Option<(u64, Deed)>,
    /// The agent dies right before the call with this number.
    death: Option<u64>,
    /// Another program that writes this value right after each write of the agent to the file with this end.
    overwrites: Option<(String, String)>,
    boot: u32,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

/// The reason for which a dying agent unwinds.
struct Death;

impl Host {
    pub(super) fn new(kernel: SimKernel) -> Host {
        Host {
            kernel: Rc::new(RefCell::new(Faulty::new(kernel))),
            events: Rc::default(),
            systemd: Some(Rc::default()),
            has_log: true,
            text: Vec::new(),
        }
    }

    /// Looks at, or changes, the kernel behind the agent's back.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut SimKernel) -> T) -> T {
        act(self.kernel.borrow_mut().inner_mut())
    }

    /// Looks at, or changes, the units and their kernel behind the agent's back.
    pub(super) fn systemd<T>(&self, act: impl FnOnce(&mut SimSystemd, &mut SimKernel) -> T) -> T {
        let systemd = self.systemd.as_ref().unwrap();
        self.with(|kernel| act(&mut systemd.borrow_mut(), kernel))
    }

    /// Nobody runs units here.
    pub(super) fn without_systemd(&mut self) {
        self.systemd = None;
    }

    /// The kernel's log may not be read here.
    pub(super) fn without_log(&mut self) {
        self.has_log = false;
    }

    pub(super) fn inject(&self, fault: Fault) {
        self.kernel.borrow_mut().inject(fault);
    }

    pub(super) fn heal(&self) {
        self.kernel.borrow_mut().heal();
        *self.events.borrow_mut() = Events::default();
    }

    pub(super) fn nr_calls(&self) -> u64 {
        self.kernel.borrow().nr_calls()
    }

    /// The calls since the log was last emptied.
    pub(super) fn take_calls(&self) -> Vec<Call> {
        let calls = self.kernel.borrow().calls().to_vec();
        self.kernel.borrow_mut().clear_calls();
        calls
    }

    /// The calls since the log was last emptied that would have changed the host.
    pub(super) fn take_changes(&self) -> Vec<Call> {
        let changes = self.kernel.borrow().changes().cloned().collect();
        self.kernel.borrow_mut().clear_calls();
        changes
    }

    /// Does `act` to the kernel right before call number `call`.
    pub(super) fn before_call(&self, call: u64, act: impl FnOnce(&mut SimKernel) + 'static) {
        self.events.borrow_mut().before_call = Some((call, Box::new(act)));
    }

    /// The same to the units and their kernel.
    pub(super) fn units_before_call(
        &self,
        call: u64,
        act: impl FnOnce(&mut SimSystemd, &mut SimKernel) + 'static,
    ) {
        let systemd = Rc::clone(self.systemd.as_ref().unwrap());
        self.before_call(call, move |kernel| act(&mut systemd.borrow_mut(), kernel));
    }

    /// Another program writes `value` right after each write of the agent to the file that ends in `path`.
    pub(super) fn overwrite_writes(&self, path: &str, value: &str) {
        self.events.borrow_mut().overwrites = Some((path.to_string(), value.to_string()));
    }

    /// Runs `act`, in which the agent dies before call number `call`, as by SIGKILL: nothing of it runs any
    /// more, and the kernel closes what it held. `None` where it died.
    pub(super) fn until_death<T>(&self, call: u64, act: impl FnOnce() -> T) -> Option<T> {
        self.events.borrow_mut().death = Some(call);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(act));
        self.events.borrow_mut().death = None;
        match outcome {
            Ok(value) => Some(value),
            Err(cause) if cause.is::<Death>() => None,
            Err(cause) => std::panic::resume_unwind(cause),
        }
    }

    /// The kernel closes what an agent held that is gone.
    pub(super) fn close_all(&self) {
        self.kernel.borrow_mut().close_all();
    }

    /// The machine boots: for the agent, another one that happens to look the same.
    pub(super) fn reboot(&self) {
        self.events.borrow_mut().boot += 1;
    }

    fn before(&self) {
        let number = self.nr_calls();
        let due = |events: &mut Events| match events.before_call.take() {
            Some((call, act)) if call == number => Some(act),
            later => {
                events.before_call = later;
                None
            }
        };
        let act = due(&mut self.events.borrow_mut());
        if let Some(act) = act {
            self.with(act);
        }
        if self.events.borrow().death == Some(number) {
            std::panic::resume_unwind(Box::new(Death));
        }
    }
}

impl KernFs for Host {
    fn open_dir(&mut self, path: &Path) -> Result<DirId, KernError> {
        self.before();
        self.kernel.borrow_mut().open_dir(path)
    }

    fn close_dir(&mut self, dir: DirId) {
        self.kernel.borrow_mut().close_dir(dir);
    }

    fn dir_path(&self, dir: DirId) -> PathBuf {
        self.kernel.borrow().dir_path(dir)
    }

    fn inode(&mut self, dir: DirId) -> Result<u64, KernError> {
        self.before();
        self.kernel.borrow_mut().inode(dir)
    }

    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError> {
        self.before();
        self.kernel.borrow_mut().nr_dirs(dir)
    }

    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError> {
        self.before();
        self.kernel.borrow_mut().open_file(dir, name)
    }

    fn read(&mut self, file: FileId) -> Result<&[u8], KernError> {
        self.before();
        self.text = self.kernel.borrow_mut().read(file)?.to_vec();
        Ok(&self.text)
    }

    fn read_once(&mut self, dir: DirId, name: &str) -> Result<&[u8], KernError> {
        self.before();
        // The simulated kernel has no boots to tell apart.
        if name == "sys/kernel/random/boot_id" {
            self.text = format!("{}\n", self.events.borrow().boot).into_bytes();
        } else {
            self.text = self.kernel.borrow_mut().read_once(dir, name)?.to_vec();
        }
        Ok(&self.text)
    }

    fn write(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        self.before();
        self.kernel.borrow_mut().write(dir, name, value)?;
        let path = self.dir_path(dir).join(name);
        let overwritten = self.events.borrow().overwrites.clone();
        if let Some((_, theirs)) = overwritten.filter(|(end, _)| path.ends_with(end)) {
            self.with(|kernel| kernel.write_file(&path.to_string_lossy(), &theirs)).unwrap();
        }
        Ok(())
    }

    fn make_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        self.before();
        self.kernel.borrow_mut().make_dir(dir, name)
    }

    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        self.before();
        self.kernel.borrow_mut().remove_dir(dir, name)
    }

    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<OsString>, KernError> {
        self.before();
        self.kernel.borrow_mut().list_dirs(dir)
    }

    fn clock(&self) -> Duration {
        self.kernel.borrow().clock()
    }

    fn pause(&mut self, time: Duration) {
        self.kernel.borrow_mut().pause(time);
    }

    fn kernel_log(&self) -> Result<Box<dyn KernelLog>, KernError> {
        if !self.has_log {
            return Err(KernError::new(Operation::Open, "/dev/kmsg", Errno::EPERM));
        }
        self.with(SimKernel::take_log);
        Ok(Box::new(Log(self.clone())))
    }

    fn unit_manager(&self) -> Option<Box<dyn UnitManager>> {
        let (systemd, host) = (Rc::clone(self.systemd.as_ref()?), self.clone());
        Some(Box::new(SimUnits::new(move |order| {
            host.with(|kernel| systemd.borrow_mut().carry_out(kernel, order))
        })))
    }
}

/// The kernel's log since it was opened.
#[derive(Debug)]
struct Log(Host);

impl KernelLog for Log {
    fn read(&mut self, take: &mut dyn FnMut(&[u8])) -> bool {
        self.0.with(SimKernel::take_log).iter().for_each(|record| take(record.as_bytes()));
        true
    }
}

/// The snapshot of all hierarchies of `host`.
pub(super) fn snapshot(host: &Host) -> Snapshot {
    fn walk(kernel: &mut SimKernel, path: &str, into: &mut Snapshot) {
        let dir = kernel.open_dir(&path_of(path)).unwrap();
        let children = util::names(kernel.list_dirs(dir).unwrap());
        let inode = kernel.inode(dir).unwrap();
        into.insert(path.to_string(), inode.to_string());
        kernel.close_dir(dir);
        for file in CGROUP_FILES.map(|name| format!("{path}/{name}")) {
            if let Ok(text) = kernel.file(&file) {
                into.insert(file, text);
            }
        }
        children.iter().for_each(|name| walk(kernel, &format!("{path}/{name}"), into));
    }
    let mut found = Snapshot::new();
    host.with(|kernel| walk(kernel, MOUNT, &mut found));
    found
}

/// A host, a policy, and perhaps an agent.
pub(super) struct World {
    pub(super) host: Host,
    pub(super) policy: Policy,
    pub(super) options: Options,
    pub(super) agent: Option<Agent<Host>>,
    /// How much time passes from tick to tick, where that is not the policy's interval.
    pub(super) step: Option<Duration>,
    now: Duration,
    state_dir: TempDir,
}

/// Session of an ordinary user, from which jobs are submitted.
pub(super) const SESSION: &str = "/user.slice/user-1000.slice/session-1.scope";

impl World {
    /// A default host and the policy `version: 1`, `mode: enforce` and what `yaml` adds.
    pub(super) fn new(yaml: &str) -> World {
        World::on(SimHost::default(), yaml)
    }

    /// The same on another host.
    pub(super) fn on(host: SimHost, yaml: &str) -> World {
        World::with(SimKernel::new(host), yaml)
    }

    /// Starts the scope of [`SESSION`].
    pub(super) fn add_session(&mut self) {
        self.host.systemd(|systemd, kernel| systemd.add(kernel, "session-1.scope", SESSION));
    }

    /// A process of a user in [`SESSION`].
    pub(super) fn client(&self, uid: u32, load: Load) -> u32 {
        let workload = Workload::constant("sh", load).owned_by(uid);
        self.host.with(|kernel| kernel.spawn(SESSION, workload)).unwrap()
    }

    /// Submits processes as jobs, together; the ticket of each is its pid.
    pub(super) fn submit_all(&mut self, all: &[Submission], now: f64) {
        let agent = self.agent.as_mut().unwrap();
        for submission in all {
            agent.submit_job(Ticket(u64::from(submission.pid)), submission, now);
        }
        agent.settle_job_calls(now);
    }

    /// Submits a new process of user 1000 as a job; its pid.
    pub(super) fn submit(&mut self, load: Load, parameters: SubmitParameters, now: f64) -> u32 {
        let pid = self.client(1000, load);
        self.submit_all(&[submission((1000, pid), parameters)], now);
        pid
    }

    /// The same on a kernel that something was done to already.
    pub(super) fn with(kernel: SimKernel, yaml: &str) -> World {
        let mode = if yaml.contains("mode:") { "" } else { "mode: enforce\n" };
        let state_dir = util::scratch();
        let options =
            Options { state_dir: Some(state_dir.path().join("state")), ..Options::default() };
        World {
            host: Host::new(kernel),
            policy: util::policy(&format!("version: 1\n{mode}{yaml}")),
            options,
            agent: None,
            step: None,
            now: Duration::ZERO,
            state_dir,
        }
    }

    /// Starts an agent; nothing is touched before its first tick.
    pub(super) fn start(&mut self) -> Result<(), StartError> {
        let rules = claims::rules(&self.policy);
        let kernel = self.host.clone();
        self.agent = Some(Agent::start(kernel, self.policy.clone(), rules, &self.options)?);
        Ok(())
    }

    /// Starts an agent and lets it make the tenants' cgroups.
    pub(super) fn begin(yaml: &str) -> World {
        let mut world = World::new(yaml);
        world.start().unwrap();
        world.tick();
        world
    }

    /// An interval passes, and the agent ticks.
    pub(super) fn tick(&mut self) -> Status {
        self.pass();
        self.turn()
    }

    /// An interval passes.
    pub(super) fn pass(&mut self) {
        let interval = self.step.unwrap_or(self.policy.control.interval);
        self.host.with(|kernel| kernel.advance(interval));
        self.now += interval;
    }

    /// The same, while `time` passes before call number `call` of the tick, counted from zero.
    pub(super) fn tick_with_pause(&mut self, call: u64, time: Duration) -> Status {
        self.pass();
        let call = self.host.nr_calls() + call;
        self.host.before_call(call, move |kernel| kernel.advance(time));
        let status = self.turn();
        self.now += time;
        status
    }

    /// The agent ticks.
    pub(super) fn turn(&mut self) -> Status {
        self.agent.as_mut().unwrap().tick(self.now).clone()
    }

    /// The same as a service ticks: work that takes long is left over.
    pub(super) fn short_tick(&mut self) -> Status {
        self.pass();
        self.agent.as_mut().unwrap().short_tick(self.now).clone()
    }

    /// Several ticks; the status of the last.
    pub(super) fn ticks(&mut self, count: usize) -> Status {
        (0..count).map(|_| self.tick()).last().unwrap()
    }

    /// Stops the agent as a signal does.
    pub(super) fn stop(&mut self) -> Restored {
        self.agent.take().unwrap().stop().unwrap().0
    }

    /// The agent is gone, as after SIGKILL.
    pub(super) fn kill(&mut self) {
        self.agent = None;
    }

    /// `tenantd --restore`.
    pub(super) fn restore(&mut self) -> Restored {
        let state_dir = self.state_dir();
        leftover::restore_only(&mut self.host, &state_dir).unwrap()
    }

    /// The two ways in which a life ends: a stop, or a kill and `tenantd --restore` after it.
    pub(super) fn end(&mut self, killed: bool) -> Restored {
        if !killed {
            return self.stop();
        }
        self.kill();
        self.restore()
    }

    /// `tenantd --restore --unless-kept`, which systemd runs after every stop.
    pub(super) fn restore_unless_kept(&mut self) -> Restored {
        let state_dir = self.state_dir();
        leftover::restore_unless_kept(&mut self.host, &state_dir).unwrap()
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        self.state_dir.path().join("state")
    }

    /// Starts a process with this load in the cgroup `path` from the mount.
    pub(super) fn spawn(&self, path: &str, load: Load) -> u32 {
        self.host.with(|kernel| kernel.spawn(path, load)).unwrap()
    }

    pub(super) fn set_load(&self, pid: u32, load: Load) {
        self.host.with(|kernel| kernel.set_load(pid, load)).unwrap();
    }

    /// The text of `path` below the mount, without its newline.
    pub(super) fn file(&self, path: &str) -> String {
        let text = self.host.with(|kernel| kernel.file(&format!("{MOUNT}/{path}")));
        text.unwrap_or_else(|errno| panic!("{path}: {errno}")).trim_end().to_string()
    }

    /// Someone else writes `path` below the mount.
    pub(super) fn write(&self, path: &str, value: &str) {
        self.host.with(|kernel| kernel.write_file(&format!("{MOUNT}/{path}"), value)).unwrap();
    }

    /// What part of the CPU time that `tenants` use together each of them uses while `ticks` pass.
    pub(super) fn shares(&mut self, tenants: &[&str], ticks: usize) -> Vec<f64> {
        let used = self.cores(tenants, ticks);
        let sum: f64 = used.iter().sum();
        used.iter().map(|cores| cores / sum).collect()
    }

    /// How many CPUs each of `tenants` uses while `ticks` pass.
    pub(super) fn cores(&mut self, tenants: &[&str], ticks: usize) -> Vec<f64> {
        let usage = |world: &World| -> Vec<u64> {
            world.host.with(|kernel| {
                tenants.iter().map(|t| kernel.usage_usec(&format!("/{t}")).unwrap()).collect()
            })
        };
        let before = usage(self);
        self.ticks(ticks);
        let usec = self.policy.control.interval.as_micros() as f64 * ticks as f64;
        usage(self).iter().zip(before).map(|(now, then)| (now - then) as f64 / usec).collect()
    }
}

/// The tenant `name` of a status.
pub(super) fn tenant<'a>(status: &'a Status, name: &str) -> &'a TenantStatus {
    status.tenants.iter().find(|tenant| tenant.name == name).unwrap()
}

/// A legacy host like the default one.
pub(super) fn legacy() -> SimHost {
    SimHost { layout: Layout::Legacy, ..SimHost::default() }
}

/// Fails unless each of `measured` lies within `tolerance` of what was expected.
#[track_caller]
pub(super) fn assert_near(measured: &[f64], expected: &[f64], tolerance: f64) {
    let far = measured.iter().zip(expected).any(|(m, e)| (m - e).abs() > tolerance);
    assert!(!far && measured.len() == expected.len(), "{measured:?} is not {expected:?}");
}
