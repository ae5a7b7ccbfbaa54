//! `tenantctl demo`: tenantd's main function, on the machine at hand.
//!
//! Three tenants have weights 1:2:4 and unequal demands: `batch` takes all the CPU it can get and scans a large
//! file, `cache` holds much memory, rereads the same files and wants little CPU, `web` wants CPU. First they
//! run as ordinary processes. Then the agent of `tenantd` shares the machine among them. Half way their demands
//! change: `cache` wants CPU as well, `web` nearly falls asleep. At the end everything is restored.
//!
//! The verdict compares, for each tenant and half, its measured share of CPU time with its share under weighted
//! DRF by the true demand of its load, over the last part of the half. With contended memory it also checks the
//! part of its files that `cache` finds in memory.

mod bound;
pub(crate) mod load;
mod measure;
mod reading;
mod real;
mod scene;
mod scope;
mod screen;
mod simulated;
mod stage;

use std::time::Duration;

use nix::unistd::Uid;
use tracing::level_filters::LevelFilter;

use super::args::DemoArgs;
use crate::common::machine;
use crate::demo::load::Want;
use measure::{Outcome, Phase, Played, Window, Without, entitled_cores};
use real::RealStage;
use scene::Half;
use screen::Screen;
use simulated::SimulatedStage;
use stage::Stage;
use tenantd::agent::Agent;
use tenantd::exit::Exit;
use tenantd::log;
use tenantd_control::report::status::Status;
use tenantd_core::resource::MEMORY;

/// Smallest part of its files that the tenant `cache` must find in memory.
const CACHED_MIN: f64 = 0.9;

/// Measured last part of each half: before it, the agent is still adapting.
const MEASURED_RATIO: f64 = 0.5;

/// Time without an agent, as a part of the time with it.
const WITHOUT_RATIO: f64 = 1.0 / 3.0;

const LOOK: Duration = Duration::from_secs(1);

pub(crate) fn run(args: &DemoArgs) -> anyhow::Result<Exit> {
    log::start(LevelFilter::ERROR);
    let simulated = args.simulated || !Uid::effective().is_root();
    if simulated {
        let note = if args.simulated {
            "a simulated kernel, as asked"
        } else {
            "a simulated kernel, because this is not root (try: sudo make demo)"
        };
        return show(SimulatedStage::new(!args.json)?, args, note);
    }
    if let Some(exit) = scope::enter(args)? {
        return Ok(exit);
    }
    show(RealStage::new()?, args, "this machine's kernel")
}

fn show<S: Stage>(stage: S, args: &DemoArgs, note: &str) -> anyhow::Result<Exit> {
    let mut screen = Screen::new(args)?;
    let played = play(stage, Duration::from_secs(args.seconds), note, &mut screen)?;
    let error_max = played.error_max;
    let outcome = Outcome::new(played);
    screen.outcome(&outcome, error_max, CACHED_MIN)?;
    let is_excused = outcome.is_measured() && outcome.no_verdict.is_some() && !args.strict;
    let is_cached = outcome.cached_ratio.is_none_or(|ratio| ratio >= CACHED_MIN);
    let is_ok = (outcome.fair || is_excused) && outcome.clean && !outcome.interrupted;
    Ok(if is_ok && is_cached { Exit::Ok } else { Exit::Failed })
}

/// Runs the loads without an agent and then with one, and always cleans up.
fn play<S: Stage>(
    mut stage: S,
    length: Duration,
    note: &str,
    screen: &mut Screen,
) -> anyhow::Result<Played> {
    let mut kernel = stage.kernel();
    let size = stage.size(&mut kernel)?;
    let scenario = scene::scenario()?;
    let halves = scene::halves(&scenario, &size);
    screen.begin(note, &size, length.mul_f64(1.0 + WITHOUT_RATIO))?;
    let mut played = Played { cpus: size.cpus, simulated: S::SIMULATED, ..Played::default() };
    let without =
        without(&mut stage, &mut kernel, &halves[0], length.mul_f64(WITHOUT_RATIO), screen)?;
    played.without = without;
    let mut agent = stage.agent(kernel, scene::policy(scenario.policy(), &size))?;
    played.hierarchy = agent.layout().describe();
    let shown = (|| -> anyhow::Result<Vec<Phase>> {
        let mut phases = Vec::new();
        screen.agent(&agent)?;
        // The first tick makes the tenants' cgroups, which the loads need.
        agent.tick(stage.now());
        for half in &halves {
            if stage.interrupted() {
                break;
            }
            stage.set_loads(&mut agent, half)?;
            screen.phase("with tenantd", half.title)?;
            let window = play_half(&mut stage, &mut agent, &half.wants, length / 2, screen)?;
            let phase = window.phase(half.title, agent.status());
            screen.details(&phase, &machine::lines(agent.topology(), agent.status()))?;
            phases.push(phase);
        }
        Ok(phases)
    })();
    played.error_max = agent.status().thresholds.share_error_ratio;
    played.interrupted = stage.interrupted();
    played.clean = stage.finish(agent)?;
    played.phases = shown?;
    played.has_findings = screen.has_findings();
    Ok(played)
}

/// Runs the loads of `half` without an agent for about `length`; measures the last part of it.
fn without<S: Stage>(
    stage: &mut S,
    kernel: &mut S::Kernel,
    half: &Half,
    length: Duration,
    screen: &mut Screen,
) -> anyhow::Result<Option<Without>> {
    screen.phase("without tenantd", half.title)?;
    stage.start_plain(kernel, half)?;
    let begin = stage.now();
    let mut before = (begin, stage.readings(kernel));
    let mut first = None;
    while stage.now().saturating_sub(begin) < length && !stage.interrupted() {
        stage.sleep(kernel, LOOK);
        let now = (stage.now(), stage.readings(kernel));
        let seconds = now.0.saturating_sub(before.0).as_secs_f64();
        screen.plain(&Without::new(seconds, &before.1, &now.1))?;
        let has_run = now.0.saturating_sub(begin).as_secs_f64();
        if first.is_none() && has_run > length.as_secs_f64() * MEASURED_RATIO {
            first = Some(before);
        }
        before = now;
    }
    stage.end_loads(kernel)?;
    Ok(first.map(|(at, readings)| {
        Without::new(before.0.saturating_sub(at).as_secs_f64(), &readings, &before.1)
    }))
}

/// Ticks through one half; measures its last part.
///
/// The measurement begins when the loads have their memory: filling it needs CPU time beyond their demand,
/// and takes seconds on a slow machine. This wait ends at the latest after the length of a half.
fn play_half<S: Stage>(
    stage: &mut S,
    agent: &mut Agent<S::Kernel>,
    wants: &[Want],
    length: Duration,
    screen: &mut Screen,
) -> anyhow::Result<Window> {
    let interval = agent.policy().control.interval;
    let ordered = stage.now();
    let mut begin = ordered;
    let mut window = Window::default();
    while stage.now().saturating_sub(begin) < length && !stage.interrupted() {
        stage.sleep(agent.kernel_mut(), interval);
        let now = stage.now();
        let status = agent.tick(now).clone();
        if now.saturating_sub(ordered) < length && !hold_their_memory(&status, wants) {
            begin = now;
        }
        if (now.saturating_sub(begin)).as_secs_f64() > length.as_secs_f64() * MEASURED_RATIO {
            let entitled = entitled_cores(agent.nodes(), wants, &status.host);
            window.add(&status, &entitled, stage.readings(agent.kernel_mut()));
        }
        screen.tick(&status)?;
    }
    Ok(window)
}

/// True if every tenant uses nearly the memory of its load: the kernel charges it in batches. An unknown
/// amount counts as complete.
fn hold_their_memory(status: &Status, wants: &[Want]) -> bool {
    status.tenants.iter().zip(wants).all(|(tenant, want)| {
        tenant.usage[MEMORY].is_none_or(|used| used >= 0.95 * want.memory_bytes as f64)
    })
}
