//! `tenantctl demo`: the main job, on the machine at hand, before your eyes.
//!
//! Three tenants with weights 1:2:4 and unequal appetites: `batch` takes all the CPU it can get, `cache`
//! holds much memory and wants little CPU, `web` wants both. Half way their appetites change: `cache` wants
//! CPU as well, `web` nearly falls asleep. The same agent that `tenantd` runs shares the machine among them
//! and, at the end, puts everything back.
//!
//! The verdict compares, for each tenant and each half, its share of the CPU time that the tenants used
//! with the share that weighted DRF entitles it to, given what its load really asks for, over the last part
//! of the half.

mod measure;
mod scope;
mod screen;
mod stage;

use std::time::Duration;

use nix::unistd::Uid;
use tracing::level_filters::LevelFilter;

use super::args::DemoArgs;
use super::exit::Exit;
use super::{log, machine};
use crate::control::status::Status;
use crate::daemon::agent::Agent;
use crate::policy::model::{Bound, Mode, Policy, Tenant, Weights};
use crate::sim::Load;
use crate::units::{Bytes, Weight};
use measure::{Outcome, Window, entitled_cores};
use screen::Screen;
use stage::{RealStage, SimulatedStage, Stage};

/// The memory that the demo's tenants share; the rest of the machine stays out of its reach.
const MEMORY: Bytes = Bytes::mib(512);

/// The largest error of a share that counts as fair.
const ERROR_MAX: f64 = 0.05;

/// The last part of each half, in which shares are measured: before it, the agent is still adapting.
const MEASURED_RATIO: f64 = 0.5;

/// The tenants' names and weights.
const TENANTS: [(&str, f64); 3] = [("batch", 1.0), ("cache", 2.0), ("web", 4.0)];

/// Runs the command.
///
/// # Errors
/// The host refused; everything is put back then.
pub(super) fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    log::start(LevelFilter::ERROR);
    let simulated = args.simulated || !Uid::effective().is_root();
    if simulated {
        let note = match args.simulated {
            true => "simulated kernel, as asked",
            false => "simulated kernel, because this is not root (try: sudo make demo)",
        };
        let stage = SimulatedStage::new();
        return show(stage, args, note);
    }
    if let Some(exit) = scope::enter(args)? {
        return Ok(exit);
    }
    show(RealStage::new()?, args, "this machine's kernel")
}

/// Plays the demo on `stage` and shows it.
fn show<S: Stage>(stage: S, args: &DemoArgs, note: &str) -> anyhow::Result<Exit> {
    let mut screen = Screen::new(args.json);
    let outcome = play(stage, Duration::from_secs(args.seconds), note, &mut screen)?;
    screen.verdict(&outcome, ERROR_MAX)?;
    let fair = outcome.max_share_error <= ERROR_MAX && outcome.clean && !outcome.interrupted;
    Ok(if fair { Exit::Ok } else { Exit::Failed })
}

/// What each tenant wants in each half, on a machine with `cpus` CPUs.
fn loads(cpus: u32) -> [(&'static str, [Load; 3]); 2] {
    let hungry = |memory: u64| Load::busy(hungry_threads(cpus)).with_working_set(memory);
    let light = |memory: u64| Load {
        duty: (0.1 * f64::from(cpus)).min(0.5),
        ..Load::default().with_working_set(memory)
    };
    let (small, some, most) = (8 << 20, MEMORY.0 / 16, MEMORY.0 / 4);
    [
        (
            "batch and web want all CPUs, cache holds memory",
            [hungry(small), light(most), hungry(some)],
        ),
        (
            "now cache wants CPU too, and web falls nearly asleep",
            [hungry(small), hungry(most), light(some)],
        ),
    ]
}

/// The threads of a tenant that wants every CPU, on a machine with `cpus` of them.
///
/// The kernel balances threads over CPUs by weight, to within a quarter or so, and two threads of one tenant
/// that share a CPU leave the other CPU to its neighbours. Many threads are few only where CPUs are few:
/// there, several for each CPU keep what cannot be divided small.
fn hungry_threads(cpus: u32) -> u32 {
    cpus.max((4 * cpus).min(32))
}

/// The policy of the demo on a machine with `memory` bytes.
fn policy(memory_total_bytes: u64) -> Policy {
    let tenant = |(name, weight): (&str, f64)| {
        let weight = Weight::try_new(weight).unwrap_or_default();
        Tenant {
            name: name.to_string(),
            weight: Weights { cpu: weight, memory: weight },
            guarantee: Bound::default(),
            ..Tenant::default()
        }
    };
    let mut policy =
        Policy { mode: Mode::Enforce, tenants: TENANTS.map(tenant).to_vec(), ..Policy::default() };
    policy.host.reserve.memory = Bytes(memory_total_bytes.saturating_sub(MEMORY.0));
    policy
}

/// Starts the tenants, ticks through both halves, and cleans up, whatever happens.
fn play<S: Stage>(
    mut stage: S,
    length: Duration,
    note: &str,
    screen: &mut Screen,
) -> anyhow::Result<Outcome> {
    let size = stage.size()?;
    let policy = policy(size.memory_bytes);
    let interval = policy.control.interval;
    let mut agent = stage.agent(policy)?;
    let mut phases = Vec::new();
    let halves = loads(size.cpus);
    let played = (|| -> anyhow::Result<()> {
        screen.begin(note, &agent, &size)?;
        // The first tick makes the tenants' cgroups, so that there is a place to put the load.
        agent.tick(stage.now());
        for (title, loads) in &halves {
            stage.set_loads(&mut agent, &TENANTS.map(|(name, _)| name), loads)?;
            screen.phase(title)?;
            let window = half(&mut stage, &mut agent, loads, length / 2, interval, screen)?;
            let phase = window.phase(title, agent.status());
            screen.table(&phase)?;
            screen.map(&machine::lines(agent.topology(), agent.status()))?;
            phases.push(phase);
            if stage.interrupted() {
                break;
            }
        }
        Ok(())
    })();
    let interrupted = stage.interrupted();
    let hierarchy = agent.layout().describe();
    let clean = stage.finish(agent)?;
    played?;
    Ok(Outcome::new(hierarchy, S::SIMULATED, phases, clean, interrupted))
}

/// Ticks through one half; measures its last part.
///
/// It begins when the loads hold the memory that they are to hold: filling it asks for CPU time that is no part of
/// their appetite, and takes a slow machine seconds. Whoever never gets so much is waited for as long as a half.
fn half<S: Stage>(
    stage: &mut S,
    agent: &mut Agent<S::Kernel>,
    loads: &[Load],
    length: Duration,
    interval: Duration,
    screen: &mut Screen,
) -> anyhow::Result<Window> {
    let ordered = stage.now();
    let mut begin = ordered;
    let mut window = Window::default();
    while stage.now().saturating_sub(begin) < length && !stage.interrupted() {
        stage.sleep(agent, interval);
        let now = stage.now();
        let status = agent.tick(now).clone();
        if now.saturating_sub(ordered) < length && !hold_their_memory(&status, loads) {
            begin = now;
        }
        if (now.saturating_sub(begin)).as_secs_f64() > length.as_secs_f64() * MEASURED_RATIO {
            window.add(&status, &entitled_cores(agent.nodes(), loads, &status.host));
        }
        screen.tick(&status)?;
    }
    Ok(window)
}

/// Whether every tenant uses the memory that its load works on, or nearly: the kernel charges it in batches. Where
/// nothing says how much that is, there is nothing to wait for.
fn hold_their_memory(status: &Status, loads: &[Load]) -> bool {
    status.tenants.iter().zip(loads).all(|(tenant, load)| {
        tenant.usage_memory_bytes.is_none_or(|used| used >= 0.95 * load.working_set_bytes as f64)
    })
}
