//! The command `tenantd`: from its command line to a running service and back.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use listenfd::ListenFd;
use rustix::mm::{MlockAllFlags, mlockall};
use tracing::level_filters::LevelFilter;
use tracing::{debug, warn};

use super::args::{Colour, Tenantd, colours};
use super::exit::Exit;
use super::log;
use crate::agent::{Agent, Options, StartError};
use crate::backend::claims;
use crate::recovery::leftover;
use crate::service::event_loop::EventLoop;
use crate::service::{PolicySource, Service};
use tenantd_host::kernfs::RealKernFs;
use tenantd_host::notify::Notifier;
use tenantd_host::recording::recorder::Recorder;
use tenantd_host::recording::ring::Bounds;
use tenantd_policy::accounts::Accounts;
use tenantd_policy::accounts::nss::Nss;
use tenantd_policy::accounts::people::People;
use tenantd_policy::model::{HierarchyChoice, Mode, OnExit, Policy};
use tenantd_policy::report::{Report, Style};
use tenantd_policy::{self as policy, HostFacts, Loaded};
use tenantd_varlink::descriptors::{self, Reserve};
use tenantd_varlink::listen::{self, Listener};

/// Longest wait at the start for accounts of local files, so that the first tick has them. Slower services are
/// not waited for.
const NAMES_AT_START: Duration = Duration::from_millis(50);

/// Runs the daemon until it is stopped.
pub fn run(args: &Tenantd) -> anyhow::Result<Exit> {
    log::start(LevelFilter::INFO);
    let Some(path) = args.policy.as_deref().filter(|_| !args.restore) else {
        return restore(args);
    };
    let Some(mut policy) = load_at_once(path, Colour::Auto) else {
        return Ok(Exit::BadConfiguration);
    };
    if policy.host.hierarchy == HierarchyChoice::Simulated {
        eprintln!(
            "tenantd: `host.hierarchy: simulated` is for `tenantctl demo --simulated`: \
             tenantd manages a real host, set it to `auto`"
        );
        return Ok(Exit::BadConfiguration);
    }
    if args.once {
        policy.control.on_exit = OnExit::Keep;
    }
    prepare_descriptors(policy.leaves().len() as u64);
    keep_in_memory();
    let interval = policy.control.interval;
    let accounts = Accounts::in_thread(Nss).context("cannot look accounts up")?;
    // Names in local files are known at once; others are applied when they arrive.
    claims::numbers(&policy, &accounts);
    accounts.settle(NAMES_AT_START);
    let rules = claims::rules_of(&policy, &claims::numbers(&policy, &accounts));
    let options = Options {
        observe: args.observe,
        root: args.root.clone(),
        state_dir: Some(args.state_dir.clone()),
        credits_of: None,
        accounts,
        people: Some(People::of_this_machine),
    };
    let passed = ListenFd::from_env().take_unix_listener(0)?;
    if let (None, Some(path), false) = (&passed, &args.socket, args.once) {
        listen::check_permission(path)?;
    }
    // Signals are handled from before the first change on.
    let mut events = EventLoop::new(interval).context("cannot make the event loop")?;
    let mut agent = Agent::start(RealKernFs::new(), policy, rules, &options)?;
    if let Some(dir) = args.history.as_deref().filter(|_| !args.once) {
        record(&mut agent, dir);
    }
    let listener = match listener(args, passed, agent.mode() == Mode::Observe) {
        Ok(listener) => listener,
        Err(error) => {
            let _reserve = Reserve::open();
            agent.stop()?;
            return Err(error);
        }
    };
    let source = PolicySource { path: path.to_path_buf(), facts: None };
    let mut service = Service::new(agent, source, Notifier::from_env());
    service.listen_to_oomd(Path::new(tenantd_varlink::prekill::DIRECTORY));
    let ran = service.run(&mut events, listener, args.once).context("the service cannot go on");
    let _reserve = Reserve::open();
    let (restored, _) = service.into_agent().stop()?;
    ran?;
    Ok(if restored.failures.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn record(agent: &mut Agent<RealKernFs>, dir: &Path) {
    let bounds = Bounds::of(&agent.policy().history);
    let host = nix::unistd::gethostname().unwrap_or_default().to_string_lossy().into_owned();
    let wall = || SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    match Recorder::start(dir, bounds, host, wall) {
        Ok(recorder) => agent.record(Some(Box::new(recorder))),
        Err(error) => {
            warn!("no history is kept: {} cannot be used: {error}", dir.display());
        }
    }
}

/// Prints the error that ended `tenantd`, and returns its exit code.
pub fn fail(error: &anyhow::Error) -> Exit {
    let exit = Exit::of(error);
    let has_remedy = error
        .chain()
        .any(|cause| matches!(cause.downcast_ref(), Some(StartError::NotPermitted { .. })));
    match exit {
        Exit::NotPermitted if !has_remedy => eprintln!(
            "tenantd: not permitted: {error:#}; run as root, or give --socket and --state-dir paths \
             that this user may write"
        ),
        _ => eprintln!("tenantd: {error:#}"),
    }
    exit
}

/// Returns the socket `passed` by systemd, or a new one. In mode observe the daemon runs without a socket if
/// none was named and none may be created.
fn listener(
    args: &Tenantd,
    passed: Option<UnixListener>,
    observes: bool,
) -> anyhow::Result<Option<Listener>> {
    if args.once {
        return Ok(None);
    }
    if let Some(passed) = passed {
        let listener = Listener::given(passed).context("cannot use the socket from systemd")?;
        return Ok(Some(listener));
    }
    let path = args.socket.clone().unwrap_or_else(|| args.state_dir.join("socket"));
    match Listener::make(&path) {
        Err(error) if observes && args.socket.is_none() && error.is_denied() => {
            warn!("running without a socket: not permitted to create {}", path.display());
            Ok(None)
        }
        made => Ok(Some(made?)),
    }
}

fn restore(args: &Tenantd) -> anyhow::Result<Exit> {
    may_look_into(&args.state_dir)?;
    let mut kernel = RealKernFs::new();
    let restored = if args.unless_kept {
        leftover::restore_unless_kept(&mut kernel, &args.state_dir)?
    } else {
        leftover::restore_only(&mut kernel, &args.state_dir)?
    };
    Ok(if restored.failures.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// Fails if the existence of a journal in `state_dir` cannot be determined, which differs from its absence.
pub fn may_look_into(state_dir: &Path) -> anyhow::Result<()> {
    let journal = state_dir.join("journal");
    journal.try_exists().with_context(|| format!("cannot look for {}", journal.display()))?;
    Ok(())
}

/// Loads the policy at `path`, with its findings on standard error; `None` if it has errors.
pub fn load(path: &Path, colour: Colour) -> Option<Policy> {
    shown(load_on_this_machine(path, |facts| facts), colour)
}

/// The same for the daemon, which waits for no account and reports unknown names itself.
fn load_at_once(path: &Path, colour: Colour) -> Option<Policy> {
    shown(load_on_this_machine(path, HostFacts::without_accounts), colour)
}

fn load_on_this_machine(
    path: &Path,
    facts: impl FnOnce(HostFacts) -> HostFacts,
) -> Result<Loaded, Report> {
    match HostFacts::of_this_machine().map(facts) {
        Ok(facts) => policy::load_with_host(path, &facts),
        // The size of the machine is unknown: the agent reports that when it samples.
        Err(_) => policy::load(path),
    }
}

fn shown(loaded: Result<Loaded, Report>, colour: Colour) -> Option<Policy> {
    match loaded {
        Ok(loaded) => {
            show(&loaded.report, colour);
            Some(loaded.policy)
        }
        Err(report) => {
            show(&report, colour);
            None
        }
    }
}

fn show(report: &Report, colour: Colour) {
    if !report.findings().is_empty() {
        let colour = colours(colour, &std::io::stderr());
        let style = Style { colour, ..Style::PLAIN };
        eprint!("{}", report.render(style));
    }
}

/// Locks the pages that the daemon has touched. Under memory pressure they would be reclaimed like others, and
/// a tick that reads them back is late just when it matters.
///
/// Without permission to lock memory the daemon runs unlocked.
fn keep_in_memory() {
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    if let Err(errno) = mlockall(all) {
        debug!("the agent's memory may be reclaimed: {errno}; LimitMEMLOCK=infinity prevents that");
    }
}

/// Most open files for the cgroup of a tenant, and for the rest of the agent.
pub const DESCRIPTORS_PER_TENANT: u64 = 18;
const DESCRIPTORS_OF_THE_REST: u64 = 200;

/// Raises the limit of descriptors and makes room in their table, and warns where the limit is too low for the tenants of the
/// policy. No thread may have been started.
fn prepare_descriptors(nr_tenants: u64) {
    let limit = match descriptors::keep_reserve() {
        Ok(limit) => limit,
        Err(errno) => return warn!("cannot raise the limit of open files: {}", errno.desc()),
    };
    let needed = DESCRIPTORS_PER_TENANT * nr_tenants + DESCRIPTORS_OF_THE_REST;
    if limit < needed {
        warn!(
            "{nr_tenants} tenants need up to {needed} open files and the limit is {limit} \
             beside the reserve for root: tenants beyond it are not measured; raise LimitNOFILE= of the service or `ulimit -Hn`"
        );
    }
    if let Err(errno) = descriptors::make_room(needed.min(limit)) {
        debug!("the table of open files grows while it is in use: {}", errno.desc());
    }
}
