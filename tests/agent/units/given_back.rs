//! Units are given back where the end is not a plain one: something has to wait, or happened meanwhile.

use std::collections::BTreeSet;

use tenantd_core::resource::CPU;
use tenantd_host::systemd::{Order, Property, Setting};
use tenantd_sim::{Load, SimUnit, UnitFault};

use super::{DB, UNITS, WEB, assert_whole, number, protect, reload, said, services, whole};
use crate::agent::world::{GIB, MIB, World};
use crate::util;

/// A policy of one tenant, that is web.service.
fn only_web(tenant: &str) -> String {
    format!("tenants: {{ web: {{ match: {{ unit: web.service }}, {tenant} }} }}")
}

/// A host with web.service, whose file says `file`, and a policy of this one tenant.
fn web(tenant: &str, file: &[Setting]) -> World {
    let world = World::new(&only_web(tenant));
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        protect(kernel, "system.slice");
        let web = systemd.units.get_mut("web.service").unwrap();
        web.file.extend(file.iter().map(|said| (said.property, said.value.clone())));
        systemd.reload();
        systemd.stop(kernel, "web.service");
        systemd.start(kernel, "web.service");
    });
    world
}

/// Systemd writes all that it knows of a unit whenever one thing of it is set: what it knows must not kill.
#[test]
fn a_deferred_limit_kills_no_process_however_often_the_rest_is_restored() {
    let mut world = web("limit: { memory: 4GiB }", &[number(Property::MemoryMax, 512 * MIB)]);
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(4);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (4 * GIB).to_string());
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    let pid = world.spawn(&format!("/{WEB}"), load.with_working_set(GIB));
    world.ticks(4);
    let mut restored = world.stop();
    for round in 0..3 {
        let said: Vec<bool> = restored.failures.iter().map(|f| f.contains("MemoryMax")).collect();
        assert_eq!(said, [true], "{round}: {:?}", restored.failures);
        assert!(world.host.with(|kernel| kernel.pids().contains(&pid)), "{round}: it was killed");
        restored = world.restore();
    }
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    assert_eq!(world.restore().failures, [""; 0]);
    assert_whole(&before, &world, "after its processes ended");
}

/// What an agent could not put back was there first also for the one that comes after it.
#[test]
fn the_first_value_survives_an_agent_that_could_not_restore_it() {
    let mut world = web("limit: { cpu: 1 }", &[number(Property::CpuQuotaPerSecUsec, 3_000_000)]);
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(4);
    world.kill();
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Away));
    assert_eq!(world.restore().failures.len(), 1);
    let other = only_web("limit: { cpu: 2 }");
    world.policy = util::policy(&format!("version: 1\nmode: enforce\n{other}"));
    world.start().unwrap();
    world.ticks(2);
    world.host.systemd(|systemd, _| systemd.fault = None);
    world.ticks(40);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "200000 100000");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

/// It may be an administrator's by then.
#[test]
fn what_was_given_back_is_not_given_back_once_more() {
    let mut world = services("");
    world.host.systemd(|systemd, kernel| {
        let web = systemd.units.get_mut("web.service").unwrap();
        web.file.insert(Property::MemoryMax, number(Property::MemoryMax, 512 * MIB).value);
        systemd.reload();
        kernel.write_file(&format!("/sys/fs/cgroup/{WEB}/memory.max"), "512M").unwrap();
    });
    world.ticks(4);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), GIB.to_string());
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    world.spawn(&format!("/{WEB}"), load.with_working_set(700 * MIB));
    world.ticks(4);
    // Both go; one has to wait for a part of it.
    let policy = util::policy("version: 1\nmode: enforce\ntenants: { other: {} }\n");
    let failures = world.agent.as_mut().unwrap().reload(policy, Vec::new()).unwrap();
    assert!(failures.len() == 1 && failures[0].contains("MemoryMax"), "{failures:?}");
    let theirs = number(Property::CpuWeight, 333);
    world.host.systemd(|systemd, kernel| systemd.set_property(kernel, "db.service", &theirs));
    world.ticks(4);
    assert_eq!(world.stop().failures.len(), 1);
    assert_eq!(world.file(&format!("{DB}/cpu.weight")), "333");
    let db = world.host.systemd(|systemd, _| systemd.units["db.service"].clone());
    assert_eq!(db.drop_ins.get(&Property::CpuWeight), Some(&theirs.value));
}

/// A socket that listens has no cgroup, and stops with the slice that it is in.
#[test]
fn a_slice_that_a_unit_without_a_cgroup_needs_stays() {
    let mut world = World::new("tenants: { a: { owner: systemd }, b: { owner: systemd } }");
    world.start().unwrap();
    world.ticks(6);
    world.host.systemd(|systemd, _| {
        let requires = BTreeSet::from(["tenants-a.slice".to_string()]);
        let socket = SimUnit { is_active: true, requires, ..SimUnit::default() };
        systemd.units.insert("a.socket".into(), socket);
    });
    assert_eq!(world.stop().failures, [""; 0]);
    let units = world.host.systemd(|systemd, _| systemd.units.clone());
    let is_active = |unit: &str| units.get(unit).is_some_and(|unit| unit.is_active);
    assert!(is_active("a.socket") && is_active("tenants-a.slice"), "{units:#?}");
    assert!(!is_active("tenants-b.slice"), "{units:#?}");
    assert!(units["tenants-a.slice"].drop_ins.is_empty(), "{units:#?}");
}

/// The kernel empties no set that processes live under: what is left must not confine them.
#[test]
fn populated_slices_that_are_no_longer_pinned_run_everywhere() {
    let tenants = |cpus: &str| {
        format!(
            "tenants: {{ a: {{ owner: systemd, cpus: {cpus} }}, b: {{ owner: systemd, cpus: {cpus} }} }}"
        )
    };
    let mut world = World::new(&tenants("dop"));
    world.start().unwrap();
    world.ticks(4);
    let slices = ["tenants-a.slice", "tenants-b.slice"];
    let sets =
        |world: &World| slices.map(|s| world.file(&format!("tenants.slice/{s}/cpuset.cpus")));
    for slice in slices {
        world.spawn(&format!("/tenants.slice/{slice}"), Load::busy(4));
    }
    world.ticks(8);
    let all = world.file("cpuset.cpus.effective");
    assert!(sets(&world).iter().all(|set| !set.is_empty() && *set != all), "{:?}", sets(&world));
    super::reload(&mut world, &tenants("shared"));
    assert_eq!(sets(&world), [all.clone(), all.clone()]);
    let status = world.ticks(4);
    assert_eq!(status.findings, [""; 0]);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(sets(&world), [all.clone(), all]);
    let units = world.host.systemd(|systemd, _| systemd.units.clone());
    for slice in slices {
        let unit = &units[slice];
        assert!(unit.drop_ins.is_empty() && !unit.properties.contains_key(&Property::AllowedCpus));
    }
}

/// What systemd took and the file does not show is said, and one wait serves all units.
#[test]
fn a_value_that_is_not_restored_is_reported() {
    let mut world = web("limit: { cpu: 1 }", &[]);
    world.start().unwrap();
    world.ticks(4);
    let fault = UnitFault::Ignores(Property::CpuQuotaPerSecUsec);
    world.host.systemd(|systemd, _| systemd.fault = Some(fault));
    let failures = world.stop().failures;
    assert!(failures.len() == 1 && failures[0].contains("CPUQuotaPerSecUSec"), "{failures:?}");
    assert!(!world.state_dir().join("journal").exists());
}

/// We had written over what its administrator set at run time, and its next run is to have that again.
#[test]
fn a_unit_that_stopped_gets_back_what_its_administrator_had_set() {
    let mut world = services("");
    let before = whole(&world).1;
    world.ticks(8);
    assert_ne!(world.file(&format!("{DB}/memory.low")), (9 * MIB).to_string());
    world.host.systemd(|systemd, kernel| systemd.stop(kernel, "db.service"));
    assert_eq!(world.stop().failures, [""; 0]);
    let after = whole(&world).1;
    assert_eq!(after["db.service"].drop_ins, before["db.service"].drop_ins);
    assert_eq!(after["db.service"].properties, before["db.service"].properties);
}

/// What was set of a transient unit outlasts its restart: its second run begins with our values.
#[test]
fn a_transient_unit_that_restarts_gets_back_what_its_first_run_held() {
    let mut world = World::new(&only_web("limit: { cpu: 1 }"));
    world.host.systemd(|systemd, kernel| {
        systemd.add_transient("web.service", "/system.slice/web.service");
        systemd.start(kernel, "web.service");
        systemd.set_property(kernel, "web.service", &number(Property::MemoryMax, 700 * MIB));
    });
    let before = whole(&world).1["web.service"].drop_ins.clone();
    world.start().unwrap();
    world.ticks(6);
    for runs in 1..3 {
        world.host.systemd(|systemd, kernel| systemd.restart(kernel, "web.service"));
        world.ticks(6);
        assert_eq!(world.file(&format!("{WEB}/cpu.max")), "100000 100000", "restart {runs}");
    }
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "max 100000");
    assert_eq!(whole(&world).1["web.service"].drop_ins, before);
}

/// One of the same name that comes after it never had our values.
#[test]
fn the_next_transient_unit_of_a_name_is_a_new_unit() {
    let mut world = World::new(&only_web("limit: { cpu: 1 }"));
    let begin = |world: &World| {
        world.host.systemd(|systemd, kernel| {
            systemd.add_transient("web.service", "/system.slice/web.service");
            systemd.start(kernel, "web.service");
        });
    };
    begin(&world);
    world.start().unwrap();
    world.ticks(6);
    world.host.systemd(|systemd, kernel| systemd.stop(kernel, "web.service"));
    world.kill();
    begin(&world);
    let theirs = number(Property::CpuQuotaPerSecUsec, 3_000_000);
    world.host.systemd(|systemd, kernel| systemd.set_property(kernel, "web.service", &theirs));
    assert_eq!(world.restore().failures, [""; 0]);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "300000 100000");
}

/// Drop-ins are kept under a unit's own name, whatever the policy calls it.
#[test]
fn a_unit_that_is_named_by_an_alias_is_given_back() {
    let mut world = World::new(
        "tenants: { web: { match: { unit: httpd.service }, limit: { cpu: 1 } }, db: { match: { unit: db.service } } }",
    );
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.add(kernel, "db.service", "/system.slice/db.service");
        systemd.aliases.insert("httpd.service".into(), "web.service".into());
        protect(kernel, "system.slice");
    });
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(6);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "100000 100000");
    super::reload(&mut world, "tenants: { db: { match: { unit: db.service } } }");
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "max 100000");
    super::reload(&mut world, "tenants: { web: { match: { unit: httpd.service } } }");
    world.ticks(6);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

#[test]
fn a_unit_that_two_tenants_name_is_the_first_ones() {
    let mut world = World::new(
        "tenants: { web: { match: { unit: web.service } }, www: { match: { unit: httpd.service } } }",
    );
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.aliases.insert("httpd.service".into(), "web.service".into());
    });
    world.start().unwrap();
    let status = world.ticks(6);
    let findings = said(&status, "httpd.service is web.service, which is that of web");
    assert_eq!(findings.len(), 1, "{:?}", status.findings);
    assert_eq!(world.stop().failures, [""; 0]);
}

/// It was written over while the agent ran; at the end file and property agree.
#[test]
fn a_persistent_value_of_an_administrator_remains_after_the_stop() {
    let mut world = web("limit: { memory: 600MiB }", &[]);
    world.start().unwrap();
    world.ticks(4);
    let theirs = number(Property::MemoryMax, 700 * MIB);
    world.host.systemd(|systemd, kernel| {
        systemd.set_property(kernel, "web.service", &theirs);
        let web = systemd.units.get_mut("web.service").unwrap();
        web.file.insert(theirs.property, theirs.value.clone());
    });
    assert_eq!(world.ticks(4).nr_drift, 1);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (600 * MIB).to_string());
    assert_eq!(world.stop().failures, [""; 0]);
    let web = world.host.systemd(|systemd, _| systemd.units["web.service"].clone());
    assert_eq!(web.properties.get(&theirs.property), Some(&theirs.value));
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (700 * MIB).to_string());
    assert!(web.drop_ins.is_empty(), "{web:#?}");
}

/// An administrator's `systemctl edit`, which wins over run-time settings whenever the configuration is read.
fn edit(world: &World, unit: &str, setting: &Setting) {
    world.host.systemd(|systemd, kernel| {
        let known = systemd.units.get_mut(unit).unwrap();
        known.overrides.insert(setting.property, setting.value.clone());
        systemd.reload();
        // Systemd 252 writes the files at once.
        systemd.restore_files(kernel, unit);
    });
}

/// Systemd falls back to what the unit held: no administrator did anything.
#[test]
fn the_previous_value_of_a_unit_after_a_daemon_reload_is_not_drift() {
    for control in ["", "control: { on_drift: accept }\n"] {
        let mut world = World::new(&format!("{control}{}", only_web("limit: { memory: 600MiB }")));
        world.host.systemd(|systemd, kernel| {
            systemd.add(kernel, "web.service", "/system.slice/web.service");
            protect(kernel, "system.slice");
        });
        edit(&world, "web.service", &number(Property::MemoryMax, 700 * MIB));
        let before = whole(&world);
        world.start().unwrap();
        world.ticks(4);
        for round in 0..3 {
            assert_eq!(world.file(&format!("{WEB}/memory.max")), (600 * MIB).to_string());
            world.host.systemd(|systemd, kernel| {
                systemd.reload();
                systemd.restore_files(kernel, "web.service");
            });
            assert_eq!(world.file(&format!("{WEB}/memory.max")), (700 * MIB).to_string());
            let status = world.ticks(3);
            assert_eq!((status.nr_drift, status.findings), (0, vec![]), "round {round}");
        }
        assert_eq!(world.stop().failures, [""; 0]);
        assert_whole(&before, &world, "stopped");
    }
}

/// What an administrator says for good is theirs; the drop-in that it wins over is ours, and goes.
#[test]
fn our_drop_in_is_removed_even_if_an_administrator_set_the_value() {
    for killed in [false, true] {
        let policy =
            format!("control: {{ on_drift: accept }}\n{}", only_web("limit: { memory: 600MiB }"));
        let mut world = World::new(&policy);
        world.host.systemd(|systemd, kernel| {
            systemd.add(kernel, "web.service", "/system.slice/web.service");
        });
        world.start().unwrap();
        world.ticks(4);
        edit(&world, "web.service", &number(Property::MemoryMax, 800 * MIB));
        let status = world.ticks(6);
        assert_eq!(status.nr_drift, 1);
        assert_eq!(said(&status, "set by someone else").len(), 1, "{:?}", status.findings);
        let ours = |world: &World| {
            let web = world.host.systemd(|systemd, _| systemd.units["web.service"].clone());
            web.drop_ins.get(&Property::MemoryMax).cloned()
        };
        assert_eq!(ours(&world), Some(number(Property::MemoryMax, 600 * MIB).value));
        let restored = world.end(killed);
        assert_eq!(restored.failures, [""; 0]);
        assert_eq!(ours(&world), None);
        assert_eq!(world.file(&format!("{WEB}/memory.max")), (800 * MIB).to_string());
        assert!(!world.state_dir().join("journal").exists());
    }
}

/// What was set at run time is kept also while a drop-in of `systemctl edit` prevails over it.
#[test]
fn a_run_time_value_that_does_not_prevail_is_given_back() {
    for killed in [false, true] {
        let mut world = World::new(&only_web("limit: { memory: 600MiB }"));
        world.host.systemd(|systemd, kernel| {
            systemd.add(kernel, "web.service", "/system.slice/web.service");
        });
        edit(&world, "web.service", &number(Property::MemoryMax, 800 * MIB));
        world.host.systemd(|systemd, kernel| {
            let theirs = number(Property::MemoryMax, 900 * MIB);
            systemd.set_property(kernel, "web.service", &theirs);
        });
        let drop_ins = |world: &World| whole(world).1["web.service"].drop_ins.clone();
        let before = drop_ins(&world);
        assert_eq!(before.len(), 1);
        world.start().unwrap();
        world.ticks(4);
        assert_ne!(drop_ins(&world), before);
        assert_eq!(world.end(killed).failures, [""; 0]);
        assert_eq!(drop_ins(&world), before, "killed: {killed}");
    }
}

/// Systemd writes all that it knows of a unit whenever one thing of it is set, and may know a lower limit again.
#[test]
fn a_quota_that_changes_does_not_bring_back_a_limit_that_kills() {
    let mut world = services("");
    edit(&world, "web.service", &number(Property::MemoryMax, 300 * MIB));
    world.ticks(4);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), GIB.to_string());
    let pid = world.spawn(&format!("/{WEB}"), Load::busy(1).with_working_set(600 * MIB));
    world.ticks(20);
    world.host.systemd(|systemd, _| systemd.reload());
    super::reload(&mut world, &super::UNITS.replace("cpu: 1", "cpu: 2"));
    world.ticks(4);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "200000 100000");
    assert_eq!(world.file(&format!("{WEB}/memory.max")), GIB.to_string());
    assert!(world.host.with(|kernel| kernel.pids().contains(&pid)), "it was killed");
}

/// A unit that is masked, or whose file is removed, runs on: systemd writes none of its files any more.
#[test]
fn a_unit_that_is_masked_while_it_runs_is_restored() {
    for killed in [false, true] {
        let mut world = services("");
        let before = whole(&world);
        world.ticks(8);
        assert_ne!(world.file(&format!("{DB}/memory.low")), (9 * MIB).to_string());
        world.host.systemd(|systemd, _| {
            ["web.service", "db.service"].iter().for_each(|unit| systemd.mask(unit, true));
        });
        let status = world.ticks(4);
        assert!(status.tenants.iter().all(|tenant| tenant.usage[CPU].is_some()));
        let restored = world.end(killed);
        assert_eq!(restored.failures, [""; 0]);
        assert!(!world.state_dir().join("journal").exists());
        world.host.systemd(|systemd, _| {
            ["web.service", "db.service"].iter().for_each(|unit| systemd.mask(unit, false));
        });
        assert_whole(&before, &world, "given back");
    }
}

/// What was not put back is said, and owed.
#[test]
fn an_unrestored_value_of_a_masked_unit_stays_journaled() {
    let mut world = web("limit: { memory: 4GiB }", &[number(Property::MemoryMax, 512 * MIB)]);
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(4);
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    let pid = world.spawn(&format!("/{WEB}"), load.with_working_set(GIB));
    world.ticks(4);
    world.host.systemd(|systemd, _| systemd.mask("web.service", true));
    let restored = world.stop();
    let said: Vec<bool> = restored.failures.iter().map(|f| f.contains("MemoryMax")).collect();
    assert_eq!(said, [true], "{:?}", restored.failures);
    assert_eq!(world.file(&format!("{WEB}/memory.max")), (4 * GIB).to_string());
    assert!(world.host.with(|kernel| kernel.pids().contains(&pid)), "it was killed");
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    assert_eq!(world.restore().failures, [""; 0]);
    world.host.systemd(|systemd, _| systemd.mask("web.service", false));
    assert_whole(&before, &world, "after its processes ended");
}

#[test]
fn an_active_unit_that_is_not_loaded_is_reported() {
    let mut world = web("limit: { cpu: 1 }", &[]);
    world.host.systemd(|systemd, _| systemd.mask("web.service", true));
    world.start().unwrap();
    let status = world.ticks(4);
    assert_eq!(said(&status, "runs and is not loaded").len(), 1, "{:?}", status.findings);
    world.host.systemd(|systemd, _| systemd.mask("web.service", false));
    world.ticks(20);
    assert_eq!(world.file(&format!("{WEB}/cpu.max")), "100000 100000");
    assert_eq!(world.stop().failures, [""; 0]);
}

/// A unit that goes while the rest is given back needs nothing, whenever it goes.
#[test]
fn units_that_vanish_during_a_stop_are_complete() {
    let begin = || {
        let mut world = services("");
        world.ticks(4);
        world
    };
    let mut world = begin();
    let living = world.host.nr_calls();
    assert_eq!(world.stop().failures, [""; 0]);
    let all = world.host.nr_calls();
    assert!(all > living + 5, "{living} to {all}");
    // A stop takes more calls where a unit is masked.
    for call in living..all + 20 {
        for is_masked in [false, true] {
            let mut world = begin();
            if is_masked {
                world.host.systemd(|systemd, _| systemd.mask("web.service", true));
            }
            world.host.units_before_call(call, |systemd, kernel| {
                systemd.stop(kernel, "web.service");
                systemd.units.remove("web.service");
            });
            let context = format!("gone before call {call}, masked: {is_masked}");
            assert_eq!(world.stop().failures, [""; 0], "{context}");
            assert!(!world.state_dir().join("journal").exists(), "{context}");
            let db = world.host.systemd(|systemd, _| systemd.units["db.service"].clone());
            assert_eq!(db.properties[&Property::CpuWeight], number(Property::CpuWeight, 70).value);
        }
    }
}

/// A CPU that is offline at the stop comes back, and what runs then may run there too. Until then the controller stays:
/// without it the kernel would not give the CPU back to any process.
#[test]
fn a_cpu_that_is_offline_at_the_stop_is_given_back_as_well() {
    for masked in [&[][..], &["db.service"], &["web.service", "db.service"]] {
        let mut world = World::new(
            "tenants: { web: { match: { unit: web.service }, cpus: dop }, \
             db: { match: { unit: db.service }, cpus: dop } }",
        );
        world.host.systemd(|systemd, kernel| {
            systemd.add(kernel, "web.service", "/system.slice/web.service");
            systemd.add(kernel, "db.service", "/system.slice/db.service");
            protect(kernel, "system.slice");
        });
        for unit in [WEB, DB] {
            world.spawn(&format!("/{unit}"), Load::busy(8));
        }
        world.start().unwrap();
        world.ticks(8);
        let all = world.file("cpuset.cpus.effective");
        let effective =
            |world: &World, unit: &str| world.file(&format!("{unit}/cpuset.cpus.effective"));
        assert!([WEB, DB].iter().all(|unit| effective(&world, unit) != all));
        let last = world.host.with(|kernel| kernel.host().cpus) - 1;
        world.host.with(|kernel| kernel.set_cpu_online(last, false));
        world.ticks(8);
        world.host.systemd(|systemd, _| {
            masked.iter().for_each(|unit| systemd.mask(unit, true));
        });
        assert_eq!(world.stop().failures, [""; 0]);
        let is_left = |world: &World, unit: &str| {
            let unit = world.host.systemd(|systemd, _| systemd.units[unit].clone());
            let left = unit.drop_ins.contains_key(&Property::AllowedCpus);
            assert_eq!(unit.properties.contains_key(&Property::AllowedCpus), left, "{unit:#?}");
            left
        };
        // What comes after every stop of a service asks for nothing more.
        world.host.systemd(|systemd, _| systemd.orders.clear());
        assert_eq!(world.restore().failures, [""; 0]);
        let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
        assert!(!orders.iter().any(|order| matches!(order, Order::Set { .. })), "{orders:?}");
        for unit in ["web.service", "db.service"] {
            assert_eq!(is_left(&world, unit), !masked.contains(&unit), "{unit}, {masked:?}");
        }
        world.host.with(|kernel| kernel.set_cpu_online(last, true));
        for unit in [WEB, DB] {
            assert_eq!(effective(&world, unit), all, "{unit}, masked: {masked:?}");
        }
        assert_eq!(world.restore().failures, [""; 0]);
        assert!(!world.state_dir().join("journal").exists());
        world.host.systemd(|systemd, _| {
            masked.iter().for_each(|unit| systemd.mask(unit, false));
        });
        for unit in ["web.service", "db.service"] {
            assert!(!is_left(&world, unit), "{unit}, masked: {masked:?}");
        }
        for unit in [WEB, DB] {
            assert_eq!(effective(&world, unit), all, "{unit}, masked: {masked:?}");
        }
    }
}

/// Systemd removes the cgroup of a service a moment after the last process: a setting would be for the next run.
#[test]
fn a_service_whose_processes_have_ended_is_not_set() {
    let mut world = services("");
    world.ticks(10);
    let is_set = |world: &World| {
        world.host.systemd(|systemd, _| {
            let orders = std::mem::take(&mut systemd.orders);
            orders.iter().any(|o| matches!(o, Order::Set { unit, .. } if unit == "web.service"))
        })
    };
    assert!(is_set(&world), "it was set while it ran");
    let procs = world.file(&format!("{WEB}/cgroup.procs"));
    world.host.with(|kernel| {
        procs.lines().for_each(|pid| kernel.kill(pid.parse().unwrap()).unwrap());
    });
    reload(&mut world, &UNITS.replace("limit: { cpu: 1,", "limit: { cpu: 2,"));
    world.ticks(3);
    assert!(!is_set(&world));
    world.spawn(&format!("/{WEB}"), Load::busy(1));
    world.ticks(3);
    assert!(is_set(&world), "it runs again");
}

/// An administrator sets a value between the agent's look at the unit and its first order.
#[test]
fn a_value_set_just_before_the_first_order_comes_back() {
    let set = number(Property::CpuWeight, 77);
    let mut nr_tried = 0;
    for nr_ticks in 1..8 {
        let mut world = services("");
        world.ticks(nr_ticks);
        let is_ordered =
            |order: &Order| matches!(order, Order::Set { unit, .. } if unit == "web.service");
        if world.host.systemd(|systemd, _| systemd.orders.iter().any(is_ordered)) {
            break;
        }
        nr_tried += 1;
        world.host.systemd(|systemd, kernel| systemd.set_property(kernel, "web.service", &set));
        world.ticks(8);
        assert_eq!(world.stop().failures, [""; 0]);
        let held = world.host.systemd(|systemd, _| systemd.units["web.service"].drop_ins.clone());
        assert_eq!(held.get(&Property::CpuWeight), Some(&set.value), "after {nr_ticks} ticks");
    }
    assert!(nr_tried > 0);
}
