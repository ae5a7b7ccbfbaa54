//! How far estimates of demand are from what the simulated tenants really want.
//!
//! The truth is what a process's trace says it wants, averaged over the tick that was measured and bounded by its
//! limit; of memory what it touches. An estimate rises at once and falls with a half-life on purpose (2 s for CPU, 15 s
//! for memory), so loads that fall do so once in several minutes here: the bar is on the estimate, not on that choice.

use std::time::Duration;

use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_sim::{Load, SimHost, Trace, Workload};

use super::world::{GIB, World, tenant};

/// An estimate may be so far from the truth, in parts of it ...
const ERROR_RATIO: f64 = 0.15;
/// ... and so far in parts of the machine where the truth is near nothing.
const ERROR_OF_MACHINE: f64 = 0.01;
/// In so many of all ticks.
const TICKS_RATIO: f64 = 0.9;
/// Ticks before the first that counts: a load that has just begun.
const WARM_UP: u32 = 10;

struct Case {
    name: &'static str,
    resource: Resource,
    yaml: &'static str,
    /// What the other tenant does all the time.
    other: Load,
    trace: Trace,
    /// How long it is watched.
    nr_ticks: u32,
    /// Where its demand ends, in the unit of the resource.
    limit: f64,
}

const BOTH: &str = "tenants: { a: {}, b: {} }";
const CAPPED: &str = "tenants: { a: { limit: { cpu: 1.5, memory: 2GiB } }, b: {} }";
const FAST: u64 = 64 * GIB;

fn busy(threads: u32, duty: f64) -> Load {
    Load { duty, touch_bytes_per_sec: FAST, ..Load::busy(threads) }
}

fn holding(bytes: u64) -> Load {
    busy(1, 0.3).with_working_set(bytes)
}

/// Awake for half of each period.
fn square(awake: Load, asleep: Load, period: u32) -> Trace {
    let period = Duration::from_secs(u64::from(period));
    Trace::Square { awake, asleep, period, awake_ratio: 0.5 }
}

fn sawtooth(from: Load, to: Load, period: u32) -> Trace {
    Trace::Sawtooth { from, to, period: Duration::from_secs(u64::from(period)) }
}

fn cases() -> Vec<Case> {
    let (hungry, modest) = (busy(4, 1.0), busy(1, 0.5));
    let cpu = |name, other, trace, nr_ticks| Case {
        name,
        resource: CPU,
        yaml: BOTH,
        other,
        trace,
        nr_ticks,
        limit: f64::INFINITY,
    };
    let memory = |name, other, trace, nr_ticks| Case {
        resource: MEMORY,
        ..cpu(name, other, trace, nr_ticks)
    };
    let steady = Trace::Constant(busy(3, 0.9));
    let bursty = square(busy(3, 1.0), busy(1, 0.1), 240);
    let noisy = Trace::Noisy {
        base: busy(3, 0.7),
        amplitude: 0.05,
        interval: Duration::from_millis(100),
        seed: 3,
    };
    let teeth = sawtooth(busy(4, 0.05), busy(4, 1.0), 120);
    let held = Trace::Constant(holding(3 * GIB));
    let bursts = square(holding(3 * GIB), holding(GIB), 1200);
    let growth = sawtooth(holding(GIB / 2), holding(3 * GIB), 600);
    let full = modest.with_working_set(4 * GIB);
    vec![
        cpu("steady CPU alone", modest, steady, 300),
        cpu("steady CPU beside a hungry tenant", hungry, steady, 300),
        cpu("noisy CPU beside a hungry tenant", hungry, noisy, 300),
        cpu("bursty CPU alone", modest, bursty, 480),
        cpu("bursty CPU beside a hungry tenant", hungry, bursty, 480),
        cpu("sawtooth CPU alone", modest, teeth, 240),
        cpu("sawtooth CPU beside a hungry tenant", hungry, teeth, 240),
        Case { yaml: CAPPED, limit: 1.5, ..cpu("capped CPU", hungry, steady, 300) },
        memory("steady memory", modest, held, 300),
        memory("steady memory on a full host", full, held, 300),
        memory("bursty memory", modest, bursts, 2400),
        memory("sawtooth memory", modest, growth, 1200),
        Case {
            yaml: CAPPED,
            limit: (2 * GIB) as f64,
            ..memory("capped memory", modest, Trace::Constant(hot(3 * GIB)), 300)
        },
    ]
}

/// Files that it keeps coming back to.
fn hot(bytes: u64) -> Load {
    Load { touch_bytes_per_sec: GIB, ..busy(1, 0.3) }.with_hot_file(bytes)
}

/// What the load wants.
fn wanted(load: &Load, resource: Resource) -> f64 {
    match resource {
        CPU => f64::from(load.threads) * load.duty,
        MEMORY => (load.working_set_bytes + load.hot_file_bytes) as f64,
    }
}

/// The same on average over the second that ends at `second`.
fn truth(case: &Case, second: u32) -> f64 {
    let begin = Duration::from_secs(u64::from(second - 1));
    let steps = 0..100;
    let at = |step: u64| case.trace.at(begin + Duration::from_millis(10 * step));
    let sum: f64 = steps.map(|step| wanted(&at(step), case.resource)).sum();
    (sum / 100.0).min(case.limit)
}

/// The part of the ticks in which the estimate is near enough.
fn accuracy(case: &Case) -> f64 {
    let mut world = World::begin(case.yaml);
    world.spawn("/b", case.other);
    let workload = Workload { trace: case.trace, ..Workload::constant("a", Load::idle()) };
    world.host.with(|kernel| kernel.spawn("/a", workload)).unwrap();
    let slack = ERROR_OF_MACHINE * SimHost::default().machine()[case.resource];
    let nr_ticks = case.nr_ticks;
    let mut nr_near = 0;
    for second in 1..=nr_ticks {
        let status = world.tick();
        let (truth, told) = (truth(case, second), tenant(&status, "a").demand[case.resource]);
        let is_near = (told - truth).abs() <= (ERROR_RATIO * truth).max(slack);
        nr_near += u32::from(is_near && second > WARM_UP);
    }
    f64::from(nr_near) / f64::from(nr_ticks - WARM_UP)
}

#[test]
fn estimates_are_near_what_tenants_want() {
    let results: Vec<(&str, f64)> =
        cases().iter().map(|case| (case.name, accuracy(case))).collect();
    for (name, near) in &results {
        println!("{name}: {:.1} % of the ticks within {:.0} %", near * 100.0, ERROR_RATIO * 100.0);
    }
    let bad: Vec<_> = results.iter().filter(|(_, near)| *near < TICKS_RATIO).collect();
    assert!(bad.is_empty(), "{bad:?} of {results:?}");
}
