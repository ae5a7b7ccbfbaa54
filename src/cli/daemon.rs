//! The command line of `tenantd`.

use std::path::Path;

use anyhow::Context;
use listenfd::ListenFd;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;
use tracing::warn;

use super::args::{Colour, Tenantd};
use super::exit::Exit;
use super::log;
use super::text;
use crate::daemon::agent::{Agent, Options};
use crate::daemon::backend::claims;
use crate::daemon::recovery::leftover;
use crate::daemon::service::event_loop::EventLoop;
use crate::daemon::service::{PolicySource, Service};
use crate::host::kernfs::RealKernFs;
use crate::host::notify::Notifier;
use crate::policy::model::{HierarchyChoice, Mode, OnExit, Policy};
use crate::policy::report::{Report, Style};
use crate::policy::{self, HostFacts};
use crate::varlink::listen::Listener;

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// It could not start, or could not put everything back.
pub fn run(args: &Tenantd) -> anyhow::Result<Exit> {
    log::start(LevelFilter::INFO);
    let Some(path) = args.policy.as_deref().filter(|_| !args.restore) else {
        return restore(args);
    };
    let Some(mut policy) = load(path, Colour::Auto) else { return Ok(Exit::BadConfiguration) };
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
    raise_descriptor_limit();
    let interval = policy.control.interval;
    let rules = claims::rules(&policy);
    rules.findings.iter().for_each(|finding| warn!("{finding}"));
    let options = Options {
        observe: args.observe,
        root: args.root.clone(),
        state_dir: Some(args.state_dir.clone()),
    };
    // Signals are caught before anything is changed, so that none of them finds us unprepared.
    let mut events = EventLoop::new(interval).context("cannot make the event loop")?;
    let agent = Agent::start(RealKernFs::new(), policy, rules.rules, &options)?;
    let listener = match listener(args, agent.mode() == Mode::Observe) {
        Ok(listener) => listener,
        Err(error) => {
            agent.stop()?;
            return Err(error);
        }
    };
    let source = PolicySource { path: path.to_path_buf(), facts: None };
    let mut service = Service::new(agent, source, Notifier::from_env());
    let ran = service.run(&mut events, listener, args.once).context("cannot wait for events");
    let (restored, _) = service.into_agent().stop()?;
    ran?;
    Ok(if restored.failures.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// The socket that systemd gave, or else one that is made. Whoever only observes may do so without one, where
/// none was asked for and none may be made.
fn listener(args: &Tenantd, observes: bool) -> anyhow::Result<Option<Listener>> {
    if args.once {
        return Ok(None);
    }
    if let Some(given) = ListenFd::from_env().take_unix_listener(0)? {
        let listener = Listener::given(given).context("cannot use the socket that systemd gave")?;
        return Ok(Some(listener));
    }
    let path = args.socket.clone().unwrap_or_else(|| args.state_dir.join("socket"));
    match Listener::make(&path) {
        Err(error) if observes && args.socket.is_none() && error.is_denied() => {
            warn!("nobody can ask this tenantd: not permitted to make {}", path.display());
            Ok(None)
        }
        made => Ok(Some(made?)),
    }
}

fn restore(args: &Tenantd) -> anyhow::Result<Exit> {
    let mut kernel = RealKernFs::new();
    let restored = match args.unless_kept {
        true => leftover::restore_unless_kept(&mut kernel, &args.state_dir)?,
        false => leftover::restore_only(&mut kernel, &args.state_dir)?,
    };
    Ok(if restored.failures.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// The policy at `path`, its findings on standard error; `None` where it has errors.
pub(super) fn load(path: &Path, colour: Colour) -> Option<Policy> {
    let facts = HostFacts::of_this_machine();
    let loaded = match facts {
        Ok(facts) => policy::load_with_host(path, &facts),
        // A machine that will not say how large it is: the agent will say so when it samples.
        Err(_) => policy::load(path),
    };
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
        let colour = text::colours(colour, &std::io::stderr());
        let style = Style { colour, ..Style::PLAIN };
        eprint!("{}", report.render(style));
    }
}

/// A thousand tenants are nine thousand kept descriptors; the hard limit is there to be used.
fn raise_descriptor_limit() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
        && let Err(errno) = setrlimit(Resource::RLIMIT_NOFILE, hard, hard)
    {
        warn!("cannot raise the limit of open files from {soft} to {hard}: {}", errno.desc());
    }
}
