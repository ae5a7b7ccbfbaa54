//! Credits in force: raised weights stand while their owners sleep, and siblings keep what they are promised.

use std::time::Duration;

use tenantd_control::report::status::Status;
use tenantd_control::why::explain;
use tenantd_policy::model::Mode;
use tenantd_sim::{Call, Load, SimHost, Trace, Workload};

use super::reload::reload;
use super::world::{World, assert_near, assert_same, legacy, snapshot};
use crate::history::twin::Twin;

const OFF: &str = "tenants: { b: { weight: 200 }, c: {}, d: {} }";
const ON: &str = "control: { credits: {} }\ntenants: { b: { weight: 200 }, c: {}, d: {} }";
const TENANTS: [&str; 3] = ["b", "c", "d"];

/// Two threads that run for one second of every four.
fn bursts() -> Workload {
    let (awake, asleep) = (Load::busy(2), Load::idle());
    let trace = Trace::Square { awake, asleep, period: Duration::from_secs(4), awake_ratio: 0.25 };
    Workload { trace, ..Workload::constant("bursts", asleep) }
}

/// Two CPUs: `b` is bursty, `c` and `d` always want everything.
fn bursty(host: SimHost, yaml: &str) -> World {
    let mut world = World::on(SimHost { cpus: 2, ..host }, yaml);
    world.start().unwrap();
    world.tick();
    world.host.with(|kernel| kernel.spawn("/b", bursts())).unwrap();
    for path in ["/c", "/d"] {
        world.spawn(path, Load::busy(4));
    }
    world
}

/// Seconds of credit and the factor of a tenant or group.
fn credit(status: &Status, name: &str) -> (f64, f64) {
    let line = status.tenants.iter().find(|it| it.name == name);
    let group = status.groups.iter().find(|it| it.name == name);
    let seconds = line.and_then(|it| it.credit_seconds).or(group.and_then(|it| it.credit_seconds));
    let factor = line.and_then(|it| it.credit_factor).or(group.and_then(|it| it.credit_factor));
    (seconds.unwrap(), factor.unwrap())
}

fn is_without(status: &Status, name: &str) -> bool {
    let (seconds, factor) = credit(status, name);
    seconds <= 0.0 && factor == 1.0
}

/// CPUs of all tenants in each second of a period.
fn period(world: &mut World) -> Vec<Vec<f64>> {
    (0..4).map(|_| world.cores(&TENANTS, 1)).collect()
}

fn weight_writes(calls: &[Call]) -> Vec<String> {
    let is_weight = |path: &String| path.ends_with("cpu.weight") || path.ends_with("cpu.shares");
    calls.iter().map(|call| call.path.display().to_string()).filter(is_weight).collect()
}

#[test]
fn a_burst_runs_as_if_alone_and_costs_no_weight() {
    for host in [SimHost::default(), legacy()] {
        let mut plain = bursty(host.clone(), OFF);
        let mut world = bursty(host, ON);
        for world in [&mut plain, &mut world] {
            world.ticks(60);
        }
        let burst = |world: &mut World| {
            let seconds = period(world);
            seconds.into_iter().max_by(|x, y| x[0].total_cmp(&y[0])).unwrap()
        };
        assert_near(&burst(&mut plain), &[1.0, 0.5, 0.5], 0.02);
        world.host.take_changes();
        assert_near(&burst(&mut world), &[1.9, 0.05, 0.05], 0.02);
        for second in period(&mut world).iter().filter(|second| second[0] < 0.5) {
            assert_near(second, &[0.0, 1.0, 1.0], 0.02);
        }
        world.ticks(60);
        let written = weight_writes(&world.host.take_changes());
        assert!(written.len() <= 2, "{written:?}");
    }
}

#[test]
fn only_the_raised_file_changes() {
    let mut world = bursty(SimHost::default(), ON);
    world.tick();
    let before = ["c", "d"].map(|name| world.file(&format!("{name}/cpu.weight")));
    world.host.take_changes();
    world.ticks(60);
    let written = weight_writes(&world.host.take_changes());
    assert!(!written.is_empty() && written.iter().all(|path| path.contains("/b/")), "{written:?}");
    let after = ["c", "d"].map(|name| world.file(&format!("{name}/cpu.weight")));
    assert_eq!(before, after);
    let [b, c]: [f64; 2] =
        ["b", "c"].map(|it| world.file(&format!("{it}/cpu.weight")).parse().unwrap());
    assert!((30.0..=100.0).contains(&(b / c)), "{b} beside {c}");
}

/// A guarantee is there during a burst, and so is the part that each sibling keeps.
#[test]
fn guarantees_hold_during_a_burst() {
    let yaml = "control: { credits: {} }\n\
                tenants: { b: {}, c: { guarantee: { cpu: 400m } }, d: {} }";
    let mut world = bursty(SimHost::default(), yaml);
    world.ticks(60);
    let mut most: f64 = 0.0;
    for _ in 0..8 {
        for second in period(&mut world) {
            assert!(second[1] >= 0.39 && second[2] >= 0.06, "{second:?}");
            most = most.max(second[0]);
        }
    }
    assert!(most > 1.0, "nothing is raised: {most}");
}

#[test]
fn heavy_tenants_have_no_credit_and_no_raised_weight() {
    let mut world = bursty(SimHost::default(), ON);
    for _ in 0..100 {
        let status = world.tick();
        for name in ["c", "d"] {
            assert!(is_without(&status, name), "{name}: {:?}", credit(&status, name));
        }
    }
}

/// Without the key banks are kept, and nothing follows from them: the decisions are those of a host without banks.
#[test]
fn without_the_key_no_value_differs() {
    let excluded = "control: { credits: {} }\n\
                    tenants: { b: { weight: 200, credits: false }, c: { credits: false }, d: { credits: false } }";
    let (mut off, mut none) =
        (bursty(SimHost::default(), OFF), bursty(SimHost::default(), excluded));
    for _ in 0..100 {
        off.tick();
        none.tick();
        let targets = |world: &World| {
            let records = &world.agent.as_ref().unwrap().trace().records;
            format!("{:?}", records.iter().map(|record| &record.target).collect::<Vec<_>>())
        };
        assert_eq!(targets(&off), targets(&none));
        assert_eq!(
            format!("{:?}", off.host.take_changes()),
            format!("{:?}", none.host.take_changes())
        );
    }
    for world in [&mut off, &mut none] {
        assert_eq!(reload(world, ON).unwrap(), [""; 0]);
    }
    let seconds = [&mut off, &mut none].map(|world| credit(&world.tick(), "b").0);
    assert!(seconds[0] > 10.0 && seconds[1] < 2.0, "{seconds:?}");
}

#[test]
fn own_cpus_and_exclusion_take_no_part() {
    for b in ["{ weight: 200, credits: false }", "{ weight: 200, cpus: dop }"] {
        let yaml = format!("control: {{ credits: {{}} }}\ntenants: {{ b: {b}, c: {{}}, d: {{}} }}");
        let mut world = bursty(SimHost::default(), &yaml);
        let status = world.ticks(60);
        assert!(is_without(&status, "b"), "{b}: {:?}", credit(&status, "b"));
    }
}

/// A group has a bank against its siblings, and its members against each other.
#[test]
fn groups_have_banks() {
    let yaml = "control: { credits: {} }\n\
                tenants: { g: { tenants: { b: {}, e: {} } }, c: {} }";
    let mut world = World::on(SimHost { cpus: 2, ..SimHost::default() }, yaml);
    world.start().unwrap();
    world.tick();
    world.host.with(|kernel| kernel.spawn("/g/b", bursts())).unwrap();
    world.spawn("/c", Load::busy(4));
    let status = world.ticks(60);
    assert!(credit(&status, "g").0 > 2.0 && is_without(&status, "c"), "{status:?}");
    let most = (0..8).map(|_| world.cores(&["g/b"], 1)[0]).fold(0.0, f64::max);
    assert!(most > 1.8, "{most}");
}

#[test]
fn weights_end_with_the_key_and_banks_stay() {
    let mut world = bursty(SimHost::default(), ON);
    world.ticks(60);
    let raised: f64 = world.file("b/cpu.weight").parse().unwrap();
    let before = credit(&world.tick(), "b").0;
    assert!(raised > 1000.0, "{raised}");
    assert_eq!(reload(&mut world, OFF).unwrap(), [""; 0]);
    world.tick();
    assert_eq!(world.file("b/cpu.weight"), "150");
    assert_eq!(reload(&mut world, ON).unwrap(), [""; 0]);
    let after = credit(&world.ticks(4), "b").0;
    assert!(after > 0.9 * before && world.file("b/cpu.weight").parse::<f64>().unwrap() > 1000.0);
    let without = "control: { credits: {} }\ntenants: { c: {}, d: {} }";
    assert_eq!(reload(&mut world, without).unwrap(), [""; 0]);
    world.tick();
    assert_eq!(reload(&mut world, ON).unwrap(), [""; 0]);
    let again = credit(&world.tick(), "b").0;
    assert!(again < 2.0, "a tenant that returns has {again} s of its earlier {before} s");
}

/// Payers get what is left to them, and no tenant is short of it.
#[test]
fn measures_count_what_is_due_after_credit() {
    let mut world = bursty(SimHost::default(), ON);
    world.ticks(60);
    for _ in 0..12 {
        let status = world.tick();
        for tenant in &status.tenants {
            let (error, reasons) = (tenant.share_error.unwrap(), &tenant.reasons);
            assert!(error <= 0.05 && reasons.is_empty(), "{}: {error} {reasons:?}", tenant.name);
        }
    }
}

#[test]
fn all_is_restored_at_the_end() {
    let mut world = World::on(SimHost { cpus: 2, ..SimHost::default() }, ON);
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.tick();
    let pids = [
        world.host.with(|kernel| kernel.spawn("/b", bursts())).unwrap(),
        world.spawn("/c", Load::busy(4)),
        world.spawn("/d", Load::busy(4)),
    ];
    world.ticks(40);
    for pid in pids {
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
    }
    world.stop();
    assert_same(&before, &snapshot(&world.host), "after a stop");
}

#[test]
fn an_explanation_names_the_credit() {
    let mut world = bursty(SimHost::default(), ON);
    let status = world.ticks(60);
    let trace = world.agent.as_ref().unwrap().trace();
    let step = explain::explain(trace, &status, "b").unwrap().weight;
    assert!(step.reason.contains("times as much by its credit"), "{}", step.reason);
    assert_eq!(step.file_value, Some(world.file("b/cpu.weight")));
}

#[test]
fn a_replay_settles_the_same_to_the_bit() {
    let before = Twin::nr_decisions();
    let mut world = bursty(SimHost::default(), ON);
    world.agent.as_mut().unwrap().record(Twin::boxed());
    world.ticks(40);
    world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    world.ticks(5);
    assert!(Twin::nr_decisions() > before);
}
