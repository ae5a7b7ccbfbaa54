//! Weights that are trimmed on kernels that err: by a bias, and by run queues that are balanced by load averages.

use std::time::Duration;

use tenantd_control::share::trim::REACH;
use tenantd_control::why::explain;
use tenantd_policy::model::Mode;
use tenantd_sim::{Load, SimHost, Trace, Workload};

use super::reload::reload;
use super::world::{MOUNT, World, assert_same, legacy, snapshot};
use crate::history::twin::Twin;

const OFF: &str = "tenants: { a: {}, b: {}, c: { weight: 200 } }";
const ON: &str = "control: { trim: true }\ntenants: { a: {}, b: {}, c: { weight: 200 } }";
const TENANTS: [&str; 3] = ["a", "b", "c"];
/// What each is entitled to of the CPU time of all.
const PARTS: [f64; 3] = [0.25, 0.25, 0.5];

/// All tenants want all CPUs of four, on a kernel for which `c` weighs less than it should.
fn biased(host: SimHost, yaml: &str, ratio: f64) -> World {
    let mut world = World::on(SimHost { cpus: 4, ..host }, yaml);
    world.start().unwrap();
    world.tick();
    for tenant in TENANTS {
        world.spawn(&format!("/{tenant}"), Load::busy(8));
    }
    world.host.with(|kernel| kernel.set_bias("/c", ratio)).unwrap();
    world.ticks(5);
    world
}

/// The largest difference between what a tenant gets in ten seconds and what it is entitled to, as a part of all.
fn errors(world: &mut World) -> Vec<f64> {
    let shares = world.shares(&TENANTS, 10);
    shares.iter().zip(PARTS).map(|(share, part)| share - part).collect()
}

fn error(world: &mut World) -> f64 {
    errors(world).into_iter().map(f64::abs).fold(0.0, f64::max)
}

/// The weights in the files, those of the legacy hierarchy in the same unit.
fn weights(world: &World) -> Vec<f64> {
    let weight = |tenant: &&str| {
        let file = |name: &str| {
            let path = format!("{MOUNT}/{tenant}/{name}");
            world.host.with(|kernel| kernel.file(&path)).ok()?.trim_end().parse::<f64>().ok()
        };
        let shares = || {
            let path = format!("{MOUNT}/cpu/{tenant}/cpu.shares");
            let text = world.host.with(|kernel| kernel.file(&path)).unwrap();
            text.trim_end().parse::<f64>().unwrap() / 10.24
        };
        file("cpu.weight").unwrap_or_else(shares)
    };
    TENANTS.iter().map(weight).collect()
}

/// How many have another weight than their open-loop one.
fn nr_trimmed(world: &World) -> usize {
    let records = world.agent.as_ref().unwrap().trace().records.iter();
    records.filter(|record| record.target.open_cpu_weight.is_some()).count()
}

#[test]
fn what_the_kernel_errs_is_trimmed_away() {
    for host in [SimHost::default(), legacy()] {
        let mut world = biased(host.clone(), OFF, 0.8);
        assert!((0..6).all(|_| error(&mut world) > 0.04), "the kernel does not err");
        let mut world = biased(host, ON, 0.8);
        world.ticks(60);
        for _ in 0..6 {
            let error = error(&mut world);
            assert!(error <= 0.02, "{error} with {:?}", weights(&world));
        }
    }
}

/// The error becomes smaller from window to window, and nobody who had too little ever has too much.
#[test]
fn it_comes_to_rest() {
    let mut world = biased(SimHost::default(), ON, 0.8);
    let mut before = errors(&mut world);
    for _ in 0..12 {
        let now = errors(&mut world);
        for (before, now) in before.iter().zip(&now) {
            assert!(now.abs() <= before.abs() + 0.005, "{now} after {before}");
            assert!(now * before >= 0.0 || now.abs() < 0.005, "{now} after {before}");
        }
        before = now;
    }
    world.host.take_changes();
    world.ticks(100);
    assert_eq!(world.host.take_changes(), []);
}

/// What is beyond its reach stays so, with weights that stand still at their bounds and add up to what they were.
#[test]
fn weights_never_leave_their_bounds() {
    for ratio in [0.2, 0.5, 2.0, 5.0] {
        let mut world = biased(SimHost::default(), OFF, ratio);
        world.ticks(10);
        let open = weights(&world);
        let mut world = biased(SimHost::default(), ON, ratio);
        for _ in 0..150 {
            world.tick();
            let trimmed = weights(&world);
            for (open, trimmed) in open.iter().zip(&trimmed) {
                let reach = open / REACH - 0.5..=REACH * open + 0.5;
                assert!(reach.contains(trimmed), "{trimmed} of {open}");
            }
            let sum = |weights: &[f64]| weights.iter().sum::<f64>();
            assert!((sum(&open) - sum(&trimmed)).abs() <= 1.5, "{trimmed:?} of {open:?}");
        }
        world.host.take_changes();
        world.ticks(50);
        assert_eq!(world.host.take_changes(), [], "{ratio}");
    }
}

#[test]
fn a_kernel_that_does_not_err_is_left_alone() {
    let mut world = biased(SimHost::default(), ON, 1.0);
    world.ticks(20);
    world.host.take_changes();
    world.ticks(60);
    assert_eq!(world.host.take_changes(), []);
}

#[test]
fn a_trim_is_given_back() {
    let mut untrimmed = biased(SimHost::default(), OFF, 0.9);
    untrimmed.ticks(10);
    let open = weights(&untrimmed);
    for way in ["reload", "observe", "stop"] {
        let mut world = World::on(SimHost { cpus: 4, ..SimHost::default() }, ON);
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.tick();
        let pids = TENANTS.map(|tenant| world.spawn(&format!("/{tenant}"), Load::busy(8)));
        world.host.with(|kernel| kernel.set_bias("/c", 0.9)).unwrap();
        world.ticks(60);
        // Less than the dead band of weights: it is written all the same, and back.
        assert!(weights(&world)[2] > open[2] + 1.0, "{:?}", weights(&world));
        match way {
            "reload" => {
                assert_eq!(reload(&mut world, OFF).unwrap(), [""; 0]);
                world.ticks(2);
                assert_eq!(weights(&world), open);
                world.host.take_changes();
                world.ticks(30);
                assert_eq!(world.host.take_changes(), []);
            }
            "observe" => {
                world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
                // The controller is off again, and nothing is learned of what it does not do.
                let file = world.host.with(|kernel| kernel.file(&format!("{MOUNT}/c/cpu.weight")));
                assert!(file.is_err(), "{file:?}");
                world.ticks(30);
                assert_eq!(nr_trimmed(&world), 0);
            }
            _ => {
                for pid in pids {
                    world.host.with(|kernel| kernel.kill(pid)).unwrap();
                }
                world.stop();
                assert_same(&before, &snapshot(&world.host), way);
            }
        }
    }
}

/// Another load may have another error: what was learned is void.
#[test]
fn another_entitlement_ends_the_trim() {
    let mut world = biased(SimHost::default(), ON, 0.8);
    world.ticks(60);
    assert_eq!(nr_trimmed(&world), 3);
    world.spawn("/a", Load::busy(8));
    world.ticks(5);
    assert_eq!(nr_trimmed(&world), 3, "the same entitlements");
    assert_eq!(reload(&mut world, &ON.replace("200", "400")).unwrap(), [""; 0]);
    world.tick();
    assert_eq!(nr_trimmed(&world), 0);
}

/// Whoever is throttled, or runs on CPUs of its own, gets what it gets for another reason than its weight.
#[test]
fn nothing_is_learned_where_other_bounds_divide() {
    for (yaml, path) in [
        ("a: {}, b: { limit: { cpu: 500m } }, c: { weight: 200 }", "b: throttled"),
        ("a: {}, b: { cpus: dop }, c: { weight: 200, cpus: dop }", "b and c: pinned"),
    ] {
        let yaml = format!("control: {{ trim: true }}\ntenants: {{ {yaml} }}");
        let mut world = biased(SimHost::default(), &yaml, 0.8);
        world.ticks(40);
        assert_eq!(nr_trimmed(&world), 0, "{path}");
    }
}

/// A group is trimmed against its siblings, and the tenants in it against each other.
#[test]
fn groups_are_trimmed_like_tenants() {
    let world = |trim: bool| {
        let yaml = format!(
            "control: {{ trim: {trim} }}\ntenants: {{ g: {{ tenants: {{ x: {{}}, y: {{}} }} }}, a: {{}} }}"
        );
        let mut world = World::on(SimHost { cpus: 4, ..SimHost::default() }, &yaml);
        world.start().unwrap();
        world.tick();
        for path in ["/g/x", "/g/y", "/a"] {
            world.spawn(path, Load::busy(8));
        }
        for path in ["/g", "/g/x"] {
            world.host.with(|kernel| kernel.set_bias(path, 0.85)).unwrap();
        }
        world.ticks(60);
        world
    };
    let parts = [0.25, 0.25, 0.5];
    let error = |mut world: World| {
        let shares = world.shares(&["g/x", "g/y", "a"], 10);
        shares.iter().zip(parts).map(|(share, part)| (share - part).abs()).fold(0.0, f64::max)
    };
    let (without, with) = (error(world(false)), error(world(true)));
    assert!(without > 0.03 && with <= 0.02, "{without} {with}");
}

#[test]
fn an_explanation_tells_of_the_trim() {
    let mut world = biased(SimHost::default(), ON, 0.8);
    let status = world.ticks(60);
    let trace = world.agent.as_ref().unwrap().trace();
    let step = explain::explain(trace, &status, "c").unwrap().weight;
    assert!(step.reason.contains("trimmed by +"), "{}", step.reason);
    assert_eq!(step.file_value, Some(world.file("c/cpu.weight")));
}

#[test]
fn a_replay_trims_the_same_to_the_bit() {
    let before = Twin::nr_decisions();
    let mut world = biased(SimHost::default(), ON, 0.8);
    world.agent.as_mut().unwrap().record(Twin::boxed());
    world.ticks(45);
    reload(&mut world, OFF).unwrap();
    world.ticks(5);
    reload(&mut world, ON).unwrap();
    world.ticks(25);
    assert!(Twin::nr_decisions() - before > 70);
}

/// Two CPUs with run queues, and tenants of weights 1, 2 and 4: two busy ones beside one that mostly sleeps.
fn queued(host: &SimHost, trim: bool, threads: [u32; 2], sleeper: Trace) -> World {
    let yaml = format!(
        "control: {{ trim: {trim} }}\n\
         tenants: {{ a: {{ weight: 100 }}, b: {{ weight: 200 }}, c: {{ weight: 400 }} }}"
    );
    let host = SimHost { cpus: 2, has_run_queues: true, ..host.clone() };
    let mut world = World::on(host, &yaml);
    world.start().unwrap();
    world.tick();
    for (tenant, threads) in TENANTS.iter().zip(threads) {
        world.spawn(&format!("/{tenant}"), Load::busy(threads));
    }
    let workload = Workload { trace: sleeper, ..Workload::constant("c", Load::idle()) };
    world.host.with(|kernel| kernel.spawn("/c", workload)).unwrap();
    world.ticks(5);
    world
}

/// Largest errors of the two busy tenants over ten seconds each, as parts of all CPU time, and the writes in a minute.
fn errors_of_two(mut world: World) -> (f64, usize) {
    world.ticks(10);
    world.host.take_changes();
    let error = |_| {
        let shares = world.shares(&TENANTS, 10);
        (shares[0] - (shares[0] + shares[1]) / 3.0).abs()
    };
    let worst = (0..6).map(error).fold(0.0, f64::max);
    (worst, world.host.take_changes().len())
}

fn sleeper(duty: f64) -> Trace {
    Trace::Constant(Load { duty, ..Load::busy(1) })
}

/// A sleeper whose duty changes three times a second, at random.
fn restless(duty: f64, seed: u64) -> Trace {
    let base = Load { duty, ..Load::busy(1) };
    Trace::Noisy { base, amplitude: duty, interval: Duration::from_millis(300), seed }
}

/// A heavy sibling that mostly sleeps misleads the balance of the kernel. The trim holds where static weights err by
/// more, and it comes to rest beside a sleeper with a steady rhythm.
#[test]
fn shares_hold_beside_a_heavy_sleeper() {
    let traces = [0.05, 0.1, 0.2, 0.3].map(sleeper).into_iter().map(|trace| (trace, 20));
    let traces = traces.chain([0.1, 0.2].map(|duty| (restless(duty, 3), 60)));
    let (mut nr_worse, mut failed) = (0, Vec::new());
    for (trace, writes_max) in traces {
        for host in [SimHost::default(), legacy()] {
            for threads in [[16, 8], [8, 8], [24, 8], [8, 24]] {
                let (without, _) = errors_of_two(queued(&host, false, threads, trace));
                let (error, writes) = errors_of_two(queued(&host, true, threads, trace));
                nr_worse += u32::from(without > 0.03);
                if error > 0.03 || writes > writes_max {
                    failed.push(format!("{error} ({without}), {writes}, {threads:?}, {trace:?}"));
                }
            }
        }
    }
    assert!(nr_worse >= 8, "the kernel does not err: {nr_worse}");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The weight of a sleeper stays: it has its share in the very second in which it wakes.
#[test]
fn a_tenant_that_wakes_has_its_share_at_once() {
    let mut world = queued(&SimHost::default(), true, [16, 8], sleeper(0.3));
    world.ticks(60);
    assert!(nr_trimmed(&world) > 0);
    let before = weights(&world);
    assert!((before[2] / before.iter().sum::<f64>() - 4.0 / 7.0).abs() <= 0.03, "{before:?}");
    world.spawn("/c", Load::busy(8));
    let share = world.shares(&TENANTS, 1)[2];
    assert!((share - 4.0 / 7.0).abs() <= 0.06, "{share}");
    world.tick();
    assert_eq!(nr_trimmed(&world), 0, "the entitlements are others");
}
