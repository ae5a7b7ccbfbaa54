//! Tenants that are units of systemd.

mod drift;
mod given_back;
mod members;
mod slices;
mod unsettled;

use std::collections::{BTreeMap, BTreeSet};

use nix::errno::Errno;
use tenantd_control::report::status::Status;
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::Operation;
use tenantd_host::systemd::{Order, Property, PropertyValue, Setting};
use tenantd_sim::{Fault, Load, SimKernel, SimUnit, UnitFault};

use super::world::{GIB, MIB, Snapshot, World, assert_near, assert_same, snapshot, tenant};

const SLICES: &str = "\
tenants:
  a: { owner: systemd, weight: 100 }
  ci:
    owner: systemd
    weight: 300
    tenants: { nightly: { weight: 1 }, pull-requests: { weight: 2, guarantee: { memory: 64MiB } } }
";

const A: &str = "tenants.slice/tenants-a.slice";
const CI: &str = "tenants.slice/tenants-ci.slice";
const NIGHTLY: &str = "tenants.slice/tenants-ci.slice/tenants-ci-nightly.slice";
const PULLS: &str = "tenants.slice/tenants-ci.slice/tenants-ci-pull\\x2drequests.slice";

const UNITS: &str = "\
tenants:
  web: { weight: 300, match: { unit: web.service }, limit: { cpu: 1, memory: 1GiB } }
  db: { match: { unit: db.service }, guarantee: { memory: 64MiB } }
";
const WEB: &str = "system.slice/web.service";
const DB: &str = "system.slice/db.service";

/// Gives a cgroup all the protection that anything below it may want.
pub(super) fn protect(kernel: &mut SimKernel, path: &str) {
    for file in ["memory.min", "memory.low"] {
        kernel.write_file(&format!("/sys/fs/cgroup/{path}/{file}"), "max").unwrap();
    }
}

pub(super) fn number(property: Property, number: u64) -> Setting {
    Setting { property, value: PropertyValue::Number(number) }
}

/// Two services, one of which its administrator has set up: in its file, and at run time.
pub(super) fn services(more: &str) -> World {
    let mut world = World::new(&format!("{more}{UNITS}"));
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.add(kernel, "db.service", "/system.slice/db.service");
        // Protection of services is void without this.
        protect(kernel, "system.slice");
        let db = systemd.units.get_mut("db.service").unwrap();
        db.file.insert(Property::CpuWeight, PropertyValue::Number(70));
        systemd.reload();
        systemd.set_property(kernel, "db.service", &number(Property::CpuWeight, 70));
        systemd.units.get_mut("db.service").unwrap().drop_ins.clear();
        systemd.set_property(kernel, "db.service", &number(Property::MemoryLow, 9 * MIB));
    });
    world.spawn(&format!("/{WEB}"), Load::busy(4).with_working_set(64 * MIB));
    world.spawn(&format!("/{DB}"), Load::busy(4).with_working_set(256 * MIB));
    world.start().unwrap();
    world
}

/// All that there is to be found of a host: its cgroups, and what systemd thinks of them.
pub(super) fn whole(world: &World) -> (Snapshot, BTreeMap<String, SimUnit>) {
    (snapshot(&world.host), world.host.systemd(|systemd, _| systemd.units.clone()))
}

#[track_caller]
pub(super) fn assert_whole(
    before: &(Snapshot, BTreeMap<String, SimUnit>),
    world: &World,
    context: &str,
) {
    let after = whole(world);
    assert_same(&before.0, &after.0, context);
    // What is not set is as good as set to what it is then.
    let set = |units: &BTreeMap<String, SimUnit>| -> BTreeMap<String, SimUnit> {
        let mut units = units.clone();
        for unit in units.values_mut() {
            unit.properties.retain(|property, value| *value != property.unset());
        }
        units
    };
    assert_eq!(set(&before.1), set(&after.1), "{context}");
}

fn said<'a>(status: &'a Status, what: &str) -> Vec<&'a String> {
    status.findings.iter().filter(|finding| finding.contains(what)).collect()
}

#[test]
fn slices_are_started_weighted_and_removed() {
    let mut world = World::new(SLICES);
    // Controllers that systemd enabled for one unit stay for the next.
    world.host.with(|kernel| kernel.make_cgroup("/system.slice").unwrap());
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(8);
    for slice in [A, NIGHTLY, PULLS] {
        world.spawn(&format!("/{slice}"), Load::busy(8).with_working_set(128 * MIB));
    }
    world.ticks(20);
    assert_near(&world.shares(&[A, NIGHTLY, PULLS], 20), &[0.25, 0.25, 0.5], 0.01);
    let low = |slice: &str| world.file(&format!("{slice}/memory.low")).parse::<f64>().unwrap();
    assert!(low(PULLS) >= (64 * MIB) as f64);
    // Protection reaches down only from above.
    assert!(low("tenants.slice") >= 0.9 * (low(A) + low(NIGHTLY) + low(PULLS)));
    assert!(low(CI) >= 0.9 * (low(NIGHTLY) + low(PULLS)));
    for slice in [A, NIGHTLY, PULLS] {
        let procs = world.file(&format!("{slice}/cgroup.procs"));
        procs.lines().for_each(|pid| world.host.with(|k| k.kill(pid.parse().unwrap()).unwrap()));
    }
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
    // Otherwise nothing could be started in a slice of that name any more.
    world.host.systemd(|systemd, _| assert_eq!(systemd.remembered, BTreeSet::new()));
}

/// One writer for each cgroup, and for those of units it is systemd.
#[test]
fn the_agent_itself_writes_no_file_of_a_unit() {
    let mut world = services("");
    world.host.take_changes();
    world.ticks(20);
    world.stop();
    assert_eq!(world.host.take_changes(), []);
}

/// Where memory has run out systemd may not get to run, and lower protection is what lets it.
#[test]
fn protection_is_lowered_though_systemd_does_not_get_to_it() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(20);
    let low = |world: &World| world.file(&format!("{DB}/memory.low")).parse::<u64>().unwrap();
    let high = low(&world);
    assert!(high > 200 * MIB, "{high}");
    let ignores = UnitFault::Ignores(Property::MemoryLow);
    world.host.systemd(|systemd, _| systemd.fault = Some(ignores));
    let pid = world.file(&format!("{DB}/cgroup.procs")).trim().parse().unwrap();
    let smaller = Load::busy(4).with_working_set(128 * MIB);
    world.host.with(|kernel| kernel.set_load(pid, smaller).unwrap());
    let status = world.ticks(60);
    let lowered = low(&world);
    assert!(lowered < high - 64 * MIB, "{lowered} after {high}");
    assert_eq!((status.findings, status.nr_drift), (vec![], 0));
    // Systemd was asked as well, so that it agrees.
    let held =
        world.host.systemd(|s, _| s.units["db.service"].properties[&Property::MemoryLow].clone());
    let PropertyValue::Number(held) = held else { panic!("{held:?}") };
    // The file has whole pages.
    assert_eq!(held / 4096, lowered / 4096);
    world.host.systemd(|systemd, _| systemd.fault = None);
    let larger = Load::busy(4).with_working_set(256 * MIB);
    world.host.with(|kernel| kernel.set_load(pid, larger).unwrap());
    world.ticks(20);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

#[test]
fn a_unit_is_set_in_one_call_and_given_back() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(20);
    let weight = world.file(&format!("{WEB}/cpu.weight"));
    let held = world.host.systemd(|s, _| s.units["web.service"].properties.clone());
    let told = PropertyValue::Number(weight.parse().unwrap());
    assert_eq!(held[&Property::CpuWeight], told);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "100000 100000");
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (1_u64 << 30).to_string());
    let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
    let first = orders.iter().find_map(|order| match order {
        Order::Set { unit, settings } if unit == "web.service" => Some(settings.len()),
        _ => None,
    });
    // Its weight and both limits; protection follows once it is known what it needs.
    assert_eq!(first, Some(3), "{orders:#?}");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

#[test]
fn a_steady_load_needs_no_action() {
    let mut world = services("");
    world.ticks(30);
    world.host.systemd(|systemd, _| systemd.orders.clear());
    let status = world.ticks(30);
    let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
    assert_eq!((orders, status.actions, status.nr_drift), (vec![], vec![], 0));
    assert_eq!(status.findings, [""; 0]);
}

#[test]
fn values_of_a_killed_agent_are_restored_whenever_it_died() {
    let life = |world: &mut World| {
        world.ticks(6);
    };
    let nr_calls = {
        let mut world = services("");
        let from = world.host.nr_calls();
        life(&mut world);
        from..world.host.nr_calls()
    };
    for call in nr_calls.step_by(7) {
        let mut world = services("");
        let before = whole(&world);
        let host = world.host.clone();
        let lived = host.until_death(call, || life(&mut world));
        assert!(lived.is_none(), "it outlived call {call}");
        world.kill();
        assert_eq!(world.restore().failures, [""; 0], "call {call}");
        assert_whole(&before, &world, &format!("killed at call {call}"));
    }
}

#[test]
fn a_populated_slice_stays_without_our_values() {
    let mut world = World::new(SLICES);
    world.start().unwrap();
    world.ticks(8);
    world.spawn(&format!("/{A}"), Load::busy(1));
    world.ticks(8);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(world.file(&format!("{A}/cpu.weight")), "100");
    assert_eq!(world.file(&format!("{A}/memory.low")), "0");
    let units = world.host.systemd(|systemd, _| systemd.units.clone());
    assert_eq!(units.keys().collect::<Vec<_>>(), ["tenants-a.slice", "tenants.slice"]);
    assert!(units.values().all(|unit| unit.drop_ins.is_empty()), "{units:#?}");
}

#[test]
fn a_unit_that_does_not_run_is_waited_for() {
    let mut world = services("");
    world.host.systemd(|systemd, kernel| systemd.stop(kernel, "web.service"));
    let status = world.ticks(3);
    assert_eq!(said(&status, "web.service does not run").len(), 1, "{:?}", status.findings);
    assert!(!world.host.systemd(|s, _| {
        s.orders.iter().any(|o| matches!(o, Order::Set { unit, .. } if unit == "web.service"))
    }));
    world.host.systemd(|systemd, kernel| systemd.start(kernel, "web.service"));
    world.spawn(&format!("/{WEB}"), Load::busy(4));
    let status = world.ticks(16);
    assert!(said(&status, "web.service").is_empty(), "{:?}", status.findings);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "100000 100000");
}

#[test]
fn a_unit_that_restarts_is_found_again() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(10);
    world.host.systemd(|systemd, kernel| {
        systemd.stop(kernel, "web.service");
        systemd.start(kernel, "web.service");
    });
    world.spawn(&format!("/{WEB}"), Load::busy(4).with_working_set(64 * MIB));
    let status = world.ticks(6);
    assert!(tenant(&status, "web").usage[CPU].is_some_and(|cores| cores > 0.5));
    assert_eq!(status.nr_drift, 0);
    assert_eq!(world.stop().failures, [""; 0]);
    let after = whole(&world).1;
    assert_eq!(before.1["web.service"].drop_ins, after["web.service"].drop_ins);
}

/// A crash loop has one finding that comes and goes, and none about the cgroup that goes with each end.
#[test]
fn a_unit_in_a_crash_loop_has_one_finding() {
    let mut world = services("");
    world.ticks(10);
    let mut all = BTreeSet::new();
    for round in 0..40 {
        world.host.systemd(|systemd, kernel| match round % 4 {
            0 => systemd.stop(kernel, "web.service"),
            2 => systemd.start(kernel, "web.service"),
            _ => {}
        });
        let status = world.tick();
        all.extend(said(&status, "web").into_iter().map(ToString::to_string));
    }
    assert_eq!(all.len(), 1, "{all:?}");
    assert!(all.first().unwrap().contains("web.service does not run"), "{all:?}");
}

/// There may be many that do not run, and one that runs again is not to wait for that.
#[test]
fn a_unit_that_stopped_is_rarely_asked_for_and_found_as_soon_as_it_is_back() {
    let mut world = services("");
    world.ticks(10);
    world.host.systemd(|systemd, kernel| {
        systemd.stop(kernel, "web.service");
        systemd.orders.clear();
    });
    world.ticks(100);
    let is_look = |order: &&Order| matches!(order, Order::Look { unit } if unit == "web.service");
    let nr_looks = world.host.systemd(|s, _| s.orders.iter().filter(is_look).count());
    assert!(nr_looks <= 8, "{nr_looks} looks in 100 ticks");
    world.host.systemd(|systemd, kernel| systemd.start(kernel, "web.service"));
    let status = world.ticks(3);
    assert!(said(&status, "web.service does not run").is_empty(), "{:?}", status.findings);
    assert!(tenant(&status, "web").cpu_weight.is_some());
}

#[test]
fn a_missing_unit_is_reported_with_a_remedy() {
    let mut world = World::new("tenants: { web: { match: { unit: no-such.service } } }");
    world.start().unwrap();
    let status = world.ticks(4);
    let findings = said(&status, "knows no unit no-such.service");
    assert!(findings[0].contains("systemctl list-units"), "{:?}", status.findings);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn an_unreachable_bus_is_reported_once_and_retried() {
    let mut world = services("");
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Away));
    let status = world.ticks(10);
    assert_eq!(status.findings.len(), 1, "{:?}", status.findings);
    assert!(status.findings[0].contains("D-Bus"), "{:?}", status.findings);
    world.host.systemd(|systemd, _| systemd.fault = None);
    let status = world.ticks(40);
    assert_eq!(status.findings, [""; 0]);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "100000 100000");
    // Away again: what is in force stays so, and measuring goes on.
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Away));
    world.write(&format!("{WEB}/cpu.weight"), "7");
    let status = world.ticks(10);
    assert_eq!(said(&status, "D-Bus").len(), 1, "{:?}", status.findings);
    assert!(tenant(&status, "web").usage[CPU].is_some_and(|cores| cores > 0.1));
}

#[test]
fn an_unreachable_bus_at_the_stop_leaves_the_journal() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(10);
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Away));
    assert_eq!(world.stop().failures.len(), 1);
    assert!(world.state_dir().join("journal").exists());
    world.host.systemd(|systemd, _| systemd.fault = None);
    assert_eq!(world.restore().failures, [""; 0]);
    assert_whole(&before, &world, "restored");
}

/// Ticks may follow each other quickly: what counts is the time since systemd has answered.
#[test]
fn a_value_is_waited_for_by_the_clock() {
    let mut world = services("control: { interval: 100ms }\n");
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Behind));
    let status = world.ticks(30);
    assert_eq!(said(&status, "systemd took"), [""; 0]);
    let status = world.ticks(10);
    assert!(!said(&status, "systemd took").is_empty(), "{:?}", status.findings);
}

#[test]
fn a_value_that_does_not_arrive_is_reported_and_retried() {
    let mut world = services("");
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Ignores(Property::CpuWeight)));
    let status = world.ticks(8);
    let findings = said(&status, "systemd took CPUWeight=");
    assert!(
        findings.iter().any(|f| f.contains("systemctl cat web.service")),
        "{:?}",
        status.findings
    );
    let asked = |world: &World| {
        let is_set =
            |order: &&Order| matches!(order, Order::Set { unit, .. } if unit == "web.service");
        world.host.systemd(|systemd, _| systemd.orders.iter().filter(is_set).count())
    };
    let before = asked(&world);
    world.ticks(60);
    assert!(asked(&world) - before <= 12, "{} orders", asked(&world) - before);
    world.host.systemd(|systemd, _| systemd.fault = None);
    let status = world.ticks(140);
    assert!(said(&status, "systemd took").is_empty(), "{:?}", status.findings);
}

#[test]
fn a_denied_peer_gets_a_remedy() {
    let mut world = services("");
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Denied));
    let status = world.ticks(4);
    assert!(said(&status, "run as root").len() == 2, "{:?}", status.findings);
}

/// What the slice above was given for all tenants together is not for us to take away.
#[test]
fn the_slice_above_keeps_what_it_was_given() {
    let mut world = World::new(SLICES);
    let low = |world: &World| world.file("tenants.slice/memory.low");
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "tenants.slice", "/tenants.slice");
        systemd.set_property(kernel, "tenants.slice", &number(Property::MemoryLow, GIB));
    });
    world.start().unwrap();
    world.ticks(8);
    let pid = world.spawn(&format!("/{A}"), Load::busy(1).with_working_set(2 * GIB));
    world.ticks(20);
    let sum: u64 = low(&world).parse().unwrap();
    assert!(sum > 2 * GIB + 128 * MIB, "{sum}");
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    world.ticks(300);
    // As far as the dead band lets it come.
    let rest: u64 = low(&world).parse().unwrap();
    assert!((GIB..GIB + 128 * MIB).contains(&rest), "{rest}");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(low(&world), GIB.to_string());
}

/// tenantd.service lives in tenants.slice, and so do the tenants that are made below it.
#[test]
fn the_slice_above_protects_the_tenants_that_we_make_in_it() {
    let own = "own: { guarantee: { memory: 64MiB } }";
    let mut world = World::new(&format!("tenants: {{ a: {{ owner: systemd }}, {own} }}"));
    let root = "tenants.slice/tenantd.service";
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "tenants.slice", "/tenants.slice");
        systemd.add(kernel, "tenantd.service", &format!("/{root}"));
    });
    world.options.root = Some(format!("/sys/fs/cgroup/{root}").into());
    world.start().unwrap();
    world.ticks(4);
    world.spawn(&format!("/{root}/own"), Load::busy(1).with_working_set(128 * MIB));
    world.ticks(8);
    let low = |path: &str| world.file(&format!("{path}/memory.low")).parse::<u64>().unwrap();
    assert!(low(&format!("{root}/own")) >= 64 * MIB);
    assert!(low("tenants.slice") * 10 >= 9 * (low(A) + low(&format!("{root}/own"))));
}

#[test]
fn an_observer_reads_and_changes_nothing() {
    let mut world = services("mode: observe\n");
    let before = whole(&world);
    let status = world.ticks(10);
    assert!(status.actions.iter().any(|action| action.path.contains("web.service/cpu.max")));
    assert!(tenant(&status, "web").usage[CPU].is_some());
    assert_whole(&before, &world, "observed");
    let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
    assert!(orders.iter().all(|order| matches!(order, Order::Look { .. })), "{orders:?}");
}

#[test]
fn a_host_without_systemd_is_reported() {
    let mut world = World::new(UNITS);
    world.host.without_systemd();
    world.start().unwrap();
    let status = world.ticks(2);
    assert_eq!(said(&status, "not run by systemd").len(), 1, "{:?}", status.findings);
}

pub(super) fn reload(world: &mut World, yaml: &str) {
    let policy = crate::util::policy(&format!("version: 1\nmode: enforce\n{yaml}"));
    let failures = world.agent.as_mut().unwrap().reload(policy, Vec::new()).unwrap();
    assert_eq!(failures, [""; 0]);
}

#[test]
fn a_reload_gives_back_the_units_that_went_and_limits_that_are_no_longer_named() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(8);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (1 << 30).to_string());
    reload(&mut world, "tenants: { web: { weight: 300, match: { unit: web.service } } }");
    world.ticks(4);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), "max");
    assert_eq!(world.file(&format!("{DB}/cpu.weight")), "70");
    assert_eq!(world.file(&format!("{DB}/memory.low")), (9 * MIB).to_string());
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

#[test]
fn reloads_leak_no_descriptor() {
    let mut world = World::new(SLICES);
    world.start().unwrap();
    let mut kept = |yaml: &str| {
        reload(&mut world, yaml);
        world.ticks(8);
        world.host.with(|kernel| kernel.nr_kept_dirs())
    };
    let none = "tenants: { web: { match: { unit: web.service } } }";
    let counts: Vec<[usize; 2]> = (0..4).map(|_| [kept(SLICES), kept(none)]).collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
}

#[test]
fn a_reload_brings_units_and_cgroups_of_ours_side_by_side() {
    let mut world = services("");
    world.ticks(8);
    reload(
        &mut world,
        "tenants: { own: {}, made: { owner: systemd }, db: { match: { unit: db.service } } }",
    );
    world.ticks(6);
    assert!(world.host.systemd(|systemd, _| systemd.units.contains_key("tenants-made.slice")));
    world.spawn("/own", Load::busy(4));
    let status = world.ticks(4);
    assert_eq!(said(&status, "own:"), [""; 0]);
    assert!(tenant(&status, "own").usage[CPU].is_some_and(|cores| cores > 0.1));
    assert!(tenant(&status, "db").cpu_weight.is_some());
    reload(&mut world, "tenants: { own: {} }");
    world.ticks(4);
    assert_eq!(world.file(&format!("{DB}/cpu.weight")), "70");
    // To stop a slice takes a reload of systemd, which there is none of while the agent runs.
    let is_there = |world: &World| {
        world.host.systemd(|systemd, _| systemd.units.contains_key("tenants-made.slice"))
    };
    let nr_reloads = |world: &World| {
        let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
        orders.iter().filter(|order| **order == Order::Reload).count()
    };
    assert_eq!((is_there(&world), nr_reloads(&world)), (true, 0));
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!((is_there(&world), nr_reloads(&world)), (false, 1));
}

#[test]
fn the_mode_may_change_with_units_too() {
    use tenantd_policy::model::Mode;
    let mut world = services("");
    let before = whole(&world);
    world.ticks(8);
    assert_eq!(world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap(), [""; 0]);
    world.ticks(3);
    assert_whole(&before, &world, "observing");
    assert_eq!(world.agent.as_mut().unwrap().set_mode(Mode::Enforce).unwrap(), [""; 0]);
    world.ticks(8);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (1 << 30).to_string());
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

#[test]
fn a_reload_without_access_to_the_root_has_no_effect() {
    let mut world = World::new("tenants: { web: { match: { unit: web.service } } }");
    world.options.root = Some("/made".into());
    world.host.systemd(|systemd, kernel| systemd.add(kernel, "web.service", &format!("/{WEB}")));
    world.start().unwrap();
    world.ticks(8);
    let before = whole(&world);
    let policy =
        "version: 1\nmode: enforce\ntenants: { web: { match: { unit: web.service } }, own: {} }";
    let take_up = |world: &mut World| {
        world.agent.as_mut().unwrap().reload(crate::util::policy(policy), Vec::new())
    };
    world.host.inject(Fault::matching(Operation::Write, "cgroup.procs", Errno::EACCES));
    for _ in 0..2 {
        let refused = take_up(&mut world).unwrap_err();
        assert!(refused.to_string().contains("not permitted"), "{refused}");
        assert_whole(&before, &world, "refused");
    }
    world.host.heal();
    assert_eq!(take_up(&mut world).unwrap(), [""; 0]);
    world.ticks(3);
    assert!(!world.file("made/own/cpu.weight").is_empty());
    assert_eq!(world.stop().failures, [""; 0]);
}
