//! How many simulated seconds of ten tenants pass in a second: the kernel, its reclaim, and a whole tick of the agent.
//!
//! `cargo bench --bench simulated`. Bar: 10,000 ticks a second on an idle host. What the kernel takes alone is told
//! beside it: the rest is the agent. Where memory is short, pages are read and reclaimed in every step of 10 ms. Ten
//! million random scenarios are affordable only if a tick is.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bar::Bars;
use tenantd::agent::{Agent, Options};
use tenantd_sim::{Load, SimHost, SimKernel, Trace, Workload};

const NR_TENANTS: u64 = 10;
const NR_TICKS: u32 = 2_000;
/// In a second.
const TICKS_BAR: f64 = 10_000.0;
const ROUNDS: u32 = 5;
const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// Half of the tenants work all the time and the others now and then; all hold memory, and files of `hot_mib` each.
fn spawn(kernel: &mut SimKernel, hot_mib: u64) {
    for tenant in 0..NR_TENANTS {
        let awake = Load::busy(1 + tenant as u32 % 3)
            .with_working_set((50 + 30 * tenant) * MIB)
            .with_hot_file(hot_mib * MIB)
            .with_cache(300 * MIB);
        let asleep = Load { duty: 0.05, ..awake };
        let period = SECOND * (20 + tenant as u32);
        let trace = match tenant % 2 {
            0 => Trace::Constant(awake),
            _ => Trace::Square { awake, asleep, period, awake_ratio: 0.5 },
        };
        let workload = Workload { trace, ..Workload::constant("load", awake) };
        kernel.spawn(&format!("/t{tenant}"), workload).unwrap();
    }
}

fn host() -> SimHost {
    SimHost { memory_bytes: 4 << 30, ..SimHost::default() }
}

/// The least time of a tick, in microseconds: other work on the machine only adds.
fn least_usec(mut tick: impl FnMut()) -> f64 {
    let round = |_| {
        let begin = Instant::now();
        (0..NR_TICKS).for_each(|_| tick());
        begin.elapsed().as_secs_f64() * 1e6 / f64::from(NR_TICKS)
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

fn kernel_alone(hot_mib: u64) -> f64 {
    let mut kernel = SimKernel::new(host());
    (0..NR_TENANTS).for_each(|tenant| kernel.make_cgroup(&format!("/t{tenant}")).unwrap());
    spawn(&mut kernel, hot_mib);
    least_usec(|| kernel.advance(SECOND))
}

fn with_agent(hot_mib: u64) -> f64 {
    let tenants: Vec<String> = (0..NR_TENANTS).map(|tenant| format!("t{tenant}: {{}}")).collect();
    let text = format!("version: 1\nmode: enforce\ntenants: {{ {} }}\n", tenants.join(", "));
    let policy = tenantd_policy::load_text("policy.yaml", &text).unwrap().policy;
    let kernel = SimKernel::new(host());
    let mut agent = Agent::start(kernel, policy, Vec::new(), &Options::default()).unwrap();
    let mut now = Duration::ZERO;
    let mut tick = |agent: &mut Agent<SimKernel>| {
        agent.kernel_mut().advance(SECOND);
        now += SECOND;
        agent.tick(now);
    };
    tick(&mut agent);
    spawn(agent.kernel_mut(), hot_mib);
    least_usec(|| tick(&mut agent))
}

fn main() -> ExitCode {
    let mut bars = Bars::default();
    for (what, hot_mib) in [("enough", 100), ("short", 300)] {
        let (alone, both) = (kernel_alone(hot_mib), with_agent(hot_mib));
        println!("simulated/memory {what:6}/kernel alone   {alone:7.1} us a second");
        println!("simulated/memory {what:6}/with the agent {both:7.1} us a second");
        let name = format!("a tick of kernel and agent, {what} memory");
        bars.note(&name, both / alone, "x the simulated kernel alone");
        let name = format!("simulated ticks of ten tenants, {what} memory");
        bars.at_least(&name, 1e6 / both, "a second", TICKS_BAR);
    }
    bars.verdict()
}
