//! Values of units that an administrator sets, and those that only look so.

use std::collections::BTreeMap;

use tenantd_host::systemd::{Property, Setting};
use tenantd_sim::{Load, UnitFault};

use super::{PULLS, SLICES, UNITS, WEB, assert_whole, number, reload, said, services, whole};
use crate::agent::world::{GIB, MIB, World};

/// What systemd did too late is found in the file and taken for what it is.
#[test]
fn a_missing_answer_is_not_drift() {
    let mut world = services("");
    let before = whole(&world);
    world.ticks(2);
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Late));
    let status = world.ticks(10);
    assert_eq!(said(&status, "has not answered").len(), 1, "{:?}", status.findings);
    world.host.systemd(|systemd, _| systemd.fault = None);
    let status = world.ticks(40);
    assert_eq!((status.nr_drift, status.findings), (0, vec![]));
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

/// Systemd is asked for another value meanwhile, and still executes the one that was given up.
#[test]
fn a_value_that_arrives_after_another_was_asked_for_is_no_drift() {
    let policy = |limit: &str| UNITS.replace("1GiB", limit);
    let mut world = services("");
    world.ticks(10);
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Behind));
    for limit in ["2GiB", "3GiB", "4GiB"] {
        reload(&mut world, &policy(limit));
        world.ticks(80);
    }
    let limits: Vec<Setting> = world.host.systemd(|systemd, _| {
        let settings = systemd.accepted.iter().flat_map(|(_, settings)| settings.clone());
        settings.filter(|setting| setting.property == Property::MemoryMax).collect()
    });
    assert_eq!(limits[0], number(Property::MemoryMax, 2 * GIB));
    assert_eq!(limits[limits.len() - 1], number(Property::MemoryMax, 4 * GIB));
    while world.host.systemd(|systemd, kernel| systemd.catch_up(kernel)) {
        assert_eq!(world.tick().nr_drift, 0);
    }
    world.host.systemd(|systemd, _| systemd.fault = None);
    assert_eq!(world.ticks(80).nr_drift, 0);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (4 * GIB).to_string());
    // What was asked for before the value that has arrived is somebody else's again.
    world.host.systemd(|systemd, kernel| systemd.set_property(kernel, "web.service", &limits[0]));
    assert_eq!(world.tick().nr_drift, 1);
}

#[test]
fn drift_is_found_in_the_next_tick_and_repaired() {
    let mut world = services("");
    world.ticks(20);
    let ours = world.file(&format!("{WEB}/cpu.weight"));
    // After one more it would give way.
    for round in 1..=4 {
        let setting = number(Property::CpuWeight, 500 + round);
        world.host.systemd(|systemd, kernel| {
            systemd.set_property(kernel, "web.service", &setting);
            systemd.reload();
        });
        assert_eq!(world.tick().nr_drift, round);
        let status = world.ticks(3);
        assert_eq!(
            (world.file(&format!("{WEB}/cpu.weight")), status.nr_drift),
            (ours.clone(), round)
        );
    }
}

#[test]
fn drift_that_is_accepted_stays_also_at_the_end() {
    let mut world = services("control: { on_drift: accept }\n");
    let before = whole(&world);
    world.ticks(20);
    let theirs = number(Property::CpuWeight, 555);
    world.host.systemd(|systemd, kernel| systemd.set_property(kernel, "web.service", &theirs));
    let status = world.ticks(20);
    assert_eq!(status.nr_drift, 1);
    assert_eq!(said(&status, "set by someone else").len(), 1, "{:?}", status.findings);
    assert_eq!(world.file(&format!("{WEB}/cpu.weight")), "555");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(world.file(&format!("{WEB}/cpu.weight")), "555");
    let after = whole(&world).1;
    assert_eq!(after["web.service"].drop_ins, BTreeMap::from([(theirs.property, theirs.value)]));
    assert_eq!(after["db.service"].drop_ins, before.1["db.service"].drop_ins);
}

/// The slice above all tenants has an administrator like any other.
#[test]
fn drift_of_the_slice_above_is_repaired_or_accepted() {
    for accepts in [false, true] {
        let more = if accepts { "control: { on_drift: accept }\n" } else { "" };
        let mut world = World::new(&format!("{more}{SLICES}"));
        world.start().unwrap();
        world.ticks(8);
        world.spawn(&format!("/{PULLS}"), Load::busy(1).with_working_set(128 * MIB));
        world.ticks(20);
        let ours = world.file("tenants.slice/memory.low");
        let theirs = number(Property::MemoryLow, GIB);
        world
            .host
            .systemd(|systemd, kernel| systemd.set_property(kernel, "tenants.slice", &theirs));
        assert_eq!(world.tick().nr_drift, 1);
        let status = world.ticks(4);
        let (held, expected) = (world.file("tenants.slice/memory.low"), GIB.to_string());
        assert_eq!(held, if accepts { expected } else { ours });
        let nr_said = said(&status, "tenants.slice: its memory.low was set by someone else").len();
        assert_eq!((nr_said, status.nr_drift), (usize::from(accepts), 1), "{:?}", status.findings);
        assert_eq!(world.stop().failures, [""; 0]);
        let held = world.file("tenants.slice/memory.low");
        assert_eq!(held, if accepts { GIB.to_string() } else { "0".to_string() });
    }
}

#[test]
fn drift_is_accepted_of_our_own_cgroups_as_well() {
    let mut world =
        World::begin("control: { on_drift: accept }\ntenants: { a: {}, b: { weight: 300 } }");
    world.ticks(20);
    world.write("a/cpu.weight", "999");
    let status = world.ticks(20);
    assert_eq!((status.nr_drift, world.file("a/cpu.weight")), (1, "999".to_string()));
    assert_eq!(world.stop().failures, [""; 0]);
}

/// What was asked for in the tick before a reload arrives after it.
#[test]
fn our_own_values_are_no_drift_after_a_reload() {
    for ticks in 1..10 {
        let mut world = services("control: { on_drift: accept }\n");
        let before = whole(&world);
        world.ticks(ticks);
        let more = "  other: { match: { unit: no-such.service } }\n";
        reload(&mut world, &format!("control: {{ on_drift: accept }}\n{UNITS}{more}"));
        assert_eq!(world.ticks(6).nr_drift, 0, "a reload after {ticks} ticks");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_whole(&before, &world, &format!("a reload after {ticks} ticks"));
    }
}
