//! The command line of `tenantd`.

use std::io::IsTerminal;
use std::path::Path;

use anyhow::Context;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing::level_filters::LevelFilter;
use tracing::warn;

use super::args::Tenantd;
use super::exit::Exit;
use super::log;
use crate::daemon::agent::{self, Agent, Options};
use crate::daemon::claims;
use crate::daemon::event_loop::{self, EventLoop};
use crate::host::kernfs::RealKernFs;
use crate::policy::model::{HierarchyChoice, OnExit, Policy};
use crate::policy::report::{Report, Style};
use crate::policy::{self, HostFacts};

/// Runs the daemon until it is told to stop.
///
/// # Errors
/// It could not start, or could not put everything back.
pub fn run(args: &Tenantd) -> anyhow::Result<Exit> {
    log::start(LevelFilter::INFO);
    let Some(path) = args.policy.as_deref().filter(|_| !args.restore) else {
        return restore(&args.state_dir);
    };
    let Some(mut policy) = load(path) else { return Ok(Exit::BadConfiguration) };
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
    let mut agent = Agent::start(RealKernFs::new(), policy, rules.rules, &options)?;
    let ran = event_loop::run(&mut agent, &mut events, args.once).context("cannot wait for events");
    let (restored, _) = agent.stop()?;
    ran?;
    Ok(if restored.failures.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn restore(state_dir: &Path) -> anyhow::Result<Exit> {
    let restored = agent::restore_only(&mut RealKernFs::new(), state_dir)?;
    Ok(if restored.failures.is_empty() { Exit::Ok } else { Exit::Failed })
}

/// The policy at `path`, its findings on standard error; `None` where it has errors.
pub(super) fn load(path: &Path) -> Option<Policy> {
    let facts = HostFacts::of_this_machine();
    let loaded = match facts {
        Ok(facts) => policy::load_with_host(path, &facts),
        // A machine that will not say how large it is: the agent will say so when it samples.
        Err(_) => policy::load(path),
    };
    match loaded {
        Ok(loaded) => {
            show(&loaded.report);
            Some(loaded.policy)
        }
        Err(report) => {
            show(&report);
            None
        }
    }
}

fn show(report: &Report) {
    if !report.findings().is_empty() {
        let style = Style { colour: std::io::stderr().is_terminal(), ..Style::PLAIN };
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
