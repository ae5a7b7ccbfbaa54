//! What a step of the control loop costs: ten thousand cgroups, once as tenants and once as members of a thousand.
//!
//! `cargo bench --bench step`. Bar: a thousand tenants with ten members each cost no more than ten thousand tenants of
//! one cgroup, in the same run.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;
mod dice;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bar::Bars;
use dice::Dice;
use tenantd_control::measure::sample::{HostSample, MemorySample, TenantSample};
use tenantd_control::state::step::{Input, NodeInput, Settings};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{self, CgroupParent, Member, Tree};
use tenantd_policy::model::{Policy, Tenant};

const CGROUPS: usize = 10_000;
const MEMBERS: usize = 10;
const CORES: u32 = 64;
const GIB: u64 = 1 << 30;
const STEPS: u32 = 40;

fn tenants(nr: usize) -> Tree {
    let tenant = |n| Tenant { name: format!("t{n}"), ..Tenant::default() };
    let tenants = (0..nr).map(tenant).collect();
    Tree::new(tree::flatten(&Policy { tenants, ..Policy::default() }).into())
}

/// The same with so many members each, all in one cgroup.
fn with_members(nr: usize, each: usize) -> Tree {
    let nodes = tenants(nr).shared_nodes();
    let member = |tenant: usize, n: usize| {
        let at = format!("{tenant}-{n}.service");
        let name = format!("{}[{at}]", nodes[tenant].path);
        Member { tenant, at, name, is_attached: false, parent: CgroupParent::Top }
    };
    let members = (0..nr).flat_map(|tenant| (0..each).map(move |n| member(tenant, n)));
    Tree::below(nodes.clone(), vec![CgroupParent::Members; nr], members.collect(), Vec::new())
}

/// One second in which a tenth of the cgroups work.
fn second(tree: &Tree, dice: &mut Dice, counters: &mut [u64], tick: u32) -> Input {
    let mut busy_usec = 0;
    let nodes = (0..tree.len()).map(|number| {
        let mut input = NodeInput { is_governed: true, is_present: true, ..NodeInput::default() };
        if tree.at(number).has_work() {
            let used = if dice.roll() < 0.1 { (dice.roll() * 60_000.0) as u64 } else { 0 };
            counters[number] += used;
            busy_usec += used;
            let memory = MemorySample { current_bytes: GIB / 100, ..MemorySample::default() };
            input.sample = Some(TenantSample {
                generation: 1,
                populated: Some(true),
                usage_usec: Some(counters[number]),
                cpu_some_usec: Some(0),
                memory: Some(memory),
                ..TenantSample::default()
            });
        }
        input
    });
    let nodes = nodes.collect();
    let host = HostSample {
        nr_cpus: CORES,
        busy_usec: Some(u64::from(tick) * busy_usec),
        memory_total_bytes: 512 * GIB,
        memory_available_bytes: Some(256 * GIB),
        unreclaimable_bytes: Some(GIB),
        ..HostSample::default()
    };
    Input { now: Duration::from_secs(u64::from(tick)), host, nodes, ..Input::default() }
}

/// The least time of a step, in milliseconds: other work on the machine only adds.
fn least_millis(tree: Tree) -> f64 {
    let mut counters = vec![0; tree.len()];
    let mut dice = Dice(7);
    let mut control = ControlLoop::new(Settings::of(&Policy::default(), false, true), tree);
    let step = |tick| {
        let input = second(control.tree(), &mut dice, &mut counters, tick);
        let start = Instant::now();
        let decision = control.apply(Event::step(input)).unwrap();
        let elapsed = start.elapsed().as_secs_f64() * 1000.0;
        decision.actions.into_iter().for_each(|action| {
            let held = action.to.clone();
            control.apply(Event::settle((action, Ok(held))));
        });
        elapsed
    };
    (1..=STEPS).map(step).skip(2).fold(f64::INFINITY, f64::min)
}

fn main() -> ExitCode {
    let mut bars = Bars::default();
    let plain = least_millis(tenants(CGROUPS));
    let members = least_millis(with_members(CGROUPS / MEMBERS, MEMBERS));
    println!("step/{CGROUPS} tenants          {plain:6.2} ms");
    let tenants = CGROUPS / MEMBERS;
    println!("step/{tenants} tenants of {MEMBERS} members {members:6.2} ms");
    let name = format!("a step with {tenants} tenants of {MEMBERS} members");
    bars.at_most(name, members / plain, "x as many tenants of one cgroup", 1.0);
    bars.verdict()
}
