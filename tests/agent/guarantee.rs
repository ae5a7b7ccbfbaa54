//! Guaranteed memory: `memory.min` of the tenant and of all that is above it.

use tenantd::backend::claims;
use tenantd_host::systemd::Property;
use tenantd_sim::{Load, SimHost};

use super::units::{assert_whole, whole};
use super::world::{GIB, MIB, World, legacy};
use crate::util;

const GROUPS: &str = "\
tenants:
  a: { guarantee: { memory: 64MiB } }
  ci:
    tenants: { nightly: {}, pulls: { guarantee: { memory: 32MiB } }, checks: { guarantee: { memory: 8MiB } } }
";

fn min(world: &World, path: &str) -> u64 {
    world.file(&format!("{path}/memory.min")).parse().unwrap()
}

fn reload(world: &mut World, yaml: &str) {
    let policy = util::policy(&format!("version: 1\nmode: enforce\n{yaml}"));
    let rules = claims::rules(&policy);
    assert_eq!(world.agent.as_mut().unwrap().reload(policy, rules).unwrap(), [""; 0]);
}

/// Also before any of them has done anything: the first second is theirs.
#[test]
fn what_is_guaranteed_is_kept_from_the_first_tick() {
    let mut world = World::begin(GROUPS);
    for (path, mib) in
        [("a", 64), ("ci", 40), ("ci/pulls", 32), ("ci/checks", 8), ("ci/nightly", 0)]
    {
        assert_eq!(min(&world, path), mib * MIB, "{path}");
    }
    world.spawn("/a", Load::busy(1).with_working_set(2 * GIB));
    world.ticks(20);
    assert_eq!(min(&world, "a"), 64 * MIB);
    assert!(world.file("a/memory.low").parse::<u64>().unwrap() > GIB);
    let status = world.tick();
    assert_eq!((status.findings, status.actions), (vec![], vec![]));
}

#[test]
fn what_is_guaranteed_no_more_is_given_back() {
    let mut world = World::begin(GROUPS);
    reload(
        &mut world,
        "tenants: { a: {}, ci: { tenants: { nightly: {}, pulls: {}, checks: {} } } }",
    );
    world.ticks(2);
    for path in ["a", "ci", "ci/pulls", "ci/checks"] {
        assert_eq!(min(&world, path), 0, "{path}");
    }
}

#[test]
fn a_legacy_host_has_no_such_file() {
    let mut world = World::on(legacy(), "tenants: { a: { guarantee: { memory: 64MiB } } }");
    world.start().unwrap();
    let status = world.ticks(3);
    assert!(status.findings.is_empty(), "{:?}", status.findings);
}

#[test]
fn the_units_above_keep_what_is_guaranteed_below_them() {
    let db = "match: { unit: db.service }, guarantee: { memory: 64MiB }";
    let web = "match: { unit: web.service }";
    let mut world = World::new(&format!("tenants: {{ db: {{ {db} }}, web: {{ {web} }} }}"));
    world.host.systemd(|systemd, kernel| {
        for name in ["db.service", "web.service"] {
            systemd.add(kernel, name, &format!("/system.slice/{name}"));
        }
    });
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(8);
    for path in ["system.slice/db.service", "system.slice"] {
        assert_eq!(min(&world, path), 64 * MIB, "{path}");
    }
    assert_eq!(min(&world, "system.slice/web.service"), 0);
    let units = world.host.systemd(|systemd, _| systemd.units.clone());
    assert!(units["db.service"].properties.contains_key(&Property::MemoryMin));
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

/// Without swap: the hog is ended, and what is guaranteed is not touched.
#[test]
fn a_hog_ends_before_a_guarantee_is_broken() {
    let host = SimHost { memory_bytes: 2 * GIB, ..SimHost::default() };
    let mut world = World::on(host, "tenants: { db: { guarantee: { memory: 700MiB } }, hog: {} }");
    world.start().unwrap();
    world.tick();
    let load = || Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
    world.spawn("/db", load().with_hot_file(600 * MIB));
    world.ticks(10);
    let hog = world.spawn("/hog", load().with_working_set(4 * GIB));
    let refaults = |world: &World| {
        let stat = world.file("db/memory.stat");
        let line = stat.lines().find(|line| line.starts_with("workingset_refault_file")).unwrap();
        line.split(' ').nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = refaults(&world);
    let ended = (0..60).find(|_| {
        world.tick();
        world.host.with(|kernel| kernel.process_usage(hog).is_none())
    });
    assert!(ended.is_some(), "{}", world.file("hog/memory.current"));
    assert_eq!(refaults(&world), before);
    assert_eq!(min(&world, "db"), 700 * MIB);
}

/// Each value costs a request to systemd.
#[test]
fn parts_of_a_guarantee_stay_while_demands_change_a_little() {
    let units = "match: { unit: [ one.service, two.service ] }";
    let mut world =
        World::new(&format!("tenants: {{ db: {{ {units}, guarantee: {{ memory: 256MiB }} }} }}"));
    let dirs = ["system.slice/one.service", "system.slice/two.service"];
    world.host.systemd(|systemd, kernel| {
        for name in ["one.service", "two.service"] {
            systemd.add(kernel, name, &format!("/system.slice/{name}"));
        }
    });
    let load = |mib: u64| Load::busy(1).with_working_set(mib * MIB);
    let pids = dirs.map(|dir| world.spawn(&format!("/{dir}"), load(100)));
    world.start().unwrap();
    world.ticks(10);
    let parts = |world: &World| dirs.map(|dir| min(world, dir));
    let before = parts(&world);
    assert_eq!(before.iter().sum::<u64>().div_ceil(MIB), 256, "{before:?}");
    for mib in [103, 101, 98, 104, 100] {
        world.set_load(pids[0], load(mib));
        world.ticks(2);
        assert_eq!(parts(&world), before, "{mib}");
    }
    // One that needs much more gets it.
    world.set_load(pids[0], load(200));
    world.ticks(5);
    assert!(parts(&world)[0] > before[0] + 16 * MIB, "{:?} after {before:?}", parts(&world));
}
