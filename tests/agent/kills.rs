//! Who was killed for want of memory is counted, also where that was the last one.

use std::time::Duration;

use tenantd_control::report::status::Status;
use tenantd_control::share::demand::MemoryBasis;
use tenantd_control::why::explain;
use tenantd_core::resource::MEMORY;
use tenantd_host::systemd::{Property, PropertyValue, Setting};
use tenantd_sim::{Layout, Load, SimHost};

use super::world::{MIB, World, legacy, tenant};

const LIMITED: &str = "tenants: { a: { limit: { memory: 64MiB } }, b: {} }";

fn kills(world: &mut World, name: &str) -> Option<u64> {
    tenant(&world.ticks(3), name).nr_oom_kills
}

/// More than the limit allows: the kernel kills it, after a tick has seen it.
fn too_large() -> Load {
    let load = Load { touch_bytes_per_sec: 48 * MIB, ..Load::busy(1) };
    load.with_working_set(256 * MIB)
}

#[test]
fn the_kill_of_a_tenant_s_only_process_is_counted() {
    for mut world in [World::new(LIMITED), World::on(legacy(), LIMITED)] {
        world.start().unwrap();
        assert_eq!(kills(&mut world, "a"), Some(0));
        let pid = world.spawn("/a", too_large());
        assert_eq!((kills(&mut world, "a"), kills(&mut world, "b")), (Some(1), Some(0)));
        assert!(!world.host.with(|kernel| kernel.pids().contains(&pid)));
        world.spawn("/a", too_large());
        assert_eq!(kills(&mut world, "a"), Some(2));
    }
}

/// What is held after a kill is what the kill left; whoever comes next wants what was missing.
#[test]
fn a_kill_raises_the_demand_for_memory_within_the_limit() {
    let mut world = World::begin("tenants: { a: { limit: { memory: 180MiB } }, b: {} }");
    world.host.with(|kernel| kernel.make_cgroup("/a/job")).unwrap();
    world.write("a/job/memory.max", &(100 * MIB).to_string());
    world.host.with(|kernel| kernel.make_cgroup("/a/idle")).unwrap();
    world.spawn("/a/idle", Load::idle());
    world.spawn("/a/job", too_large());
    let of = |status: &Status| {
        let tenant = tenant(status, "a");
        (tenant.demand[MEMORY], tenant.memory_demand_basis, tenant.nr_oom_kills)
    };
    let seen = of(&world.ticks(2));
    assert_eq!((seen.1, seen.2), (MemoryBasis::WorkingSet, Some(0)));
    let (raised, basis, nr_kills) = of(&world.tick());
    assert_eq!((basis, nr_kills), (MemoryBasis::AfterKill, Some(1)));
    assert_eq!(raised, 180.0 * MIB as f64, "{seen:?}");
    let status = world.ticks(120);
    let (left, basis, _) = of(&status);
    assert_eq!(basis, MemoryBasis::AfterKill);
    assert!((0.5..0.55).contains(&(left / raised)), "{left} of {raised}");
    let trace = world.agent.as_ref().unwrap().trace();
    let demand = explain::explain(trace, &status, "a").unwrap().demand.unwrap();
    assert!(demand.reason[MEMORY].contains("since a process was killed"), "{demand:?}");
    // It is killed again: what was estimated is no peak.
    world.spawn("/a/job", Load { touch_bytes_per_sec: 1024 * MIB, ..too_large() });
    let (again, ..) = of(&world.tick());
    assert!(again <= left.max(101.0 * MIB as f64), "{again}, {left}");
}

/// Who comes and is killed between two ticks is found too, but not at the price of a second read a tick.
#[test]
fn a_kill_that_no_tick_saw_is_found_later() {
    let mut world = World::begin(LIMITED);
    world.ticks(3);
    let load = Load { touch_bytes_per_sec: 1024 * MIB, ..Load::busy(1) };
    world.spawn("/a", load.with_working_set(256 * MIB));
    world.host.take_calls();
    let status = world.ticks(10);
    assert_eq!(tenant(&status, "a").nr_oom_kills, Some(1));
    let calls = world.host.take_calls();
    let events = calls.iter().filter(|call| format!("{call:?}").contains("memory.events"));
    assert_eq!(events.count(), 2, "one for each of the two, in ten ticks");
}

/// A legacy hierarchy counts a kill in the victim's own cgroup alone, and forgets it with that cgroup.
#[test]
fn kills_in_cgroups_that_a_tenant_made_are_counted() {
    for host in [SimHost::default(), legacy()] {
        let tree = if host.layout == Layout::Legacy { "memory/" } else { "" };
        let mut world = World::on(host, LIMITED);
        world.start().unwrap();
        assert_eq!(kills(&mut world, "a"), Some(0));
        world.host.with(|kernel| kernel.make_cgroup("/a/job/step")).unwrap();
        world.host.with(|kernel| kernel.make_cgroup("/a/idle")).unwrap();
        world.spawn("/a/idle", Load::idle());
        world.ticks(11);
        for nr_killed in 1..=2 {
            world.spawn("/a/job/step", too_large());
            assert_eq!(kills(&mut world, "a"), Some(nr_killed), "{tree}");
        }
        world.host.with(|kernel| kernel.remove_cgroup_at("/a/job/step")).unwrap();
        assert_eq!(kills(&mut world, "a"), Some(2), "{tree}");
        world.host.with(|kernel| kernel.make_cgroup("/a/job/step")).unwrap();
        assert_eq!(kills(&mut world, "a"), Some(2), "{tree}");
        world.spawn("/a/job/step", too_large());
        assert_eq!(kills(&mut world, "a"), Some(3), "{tree}");
    }
}

#[test]
fn kills_add_up_over_the_restarts_of_a_unit() {
    let mut world = World::new("tenants: { web: { match: { unit: web.service } } }");
    let limit = Setting { property: Property::MemoryMax, value: PropertyValue::Number(64 * MIB) };
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.set_property(kernel, "web.service", &limit);
    });
    world.start().unwrap();
    world.ticks(6);
    for nr_killed in 1..=3 {
        world.spawn("/system.slice/web.service", too_large());
        assert_eq!(kills(&mut world, "web"), Some(nr_killed));
        world.host.systemd(|systemd, kernel| {
            systemd.stop(kernel, "web.service");
            systemd.start(kernel, "web.service");
            systemd.set_property(kernel, "web.service", &limit);
        });
        let status = world.ticks(8);
        assert_eq!(tenant(&status, "web").nr_oom_kills, Some(nr_killed), "{:?}", status.findings);
    }
}

/// Tenants `web` and `db`, each a service of systemd with a limit of 64 MiB.
pub(super) fn two_limited_services() -> World {
    let both =
        "tenants: { web: { match: { unit: web.service } }, db: { match: { unit: db.service } } }";
    let mut world = World::new(both);
    let limit = Setting { property: Property::MemoryMax, value: PropertyValue::Number(64 * MIB) };
    world.host.systemd(|systemd, kernel| {
        for unit in ["web.service", "db.service"] {
            systemd.add(kernel, unit, &format!("/system.slice/{unit}"));
            systemd.set_property(kernel, unit, &limit);
        }
    });
    world.start().unwrap();
    world.ticks(6);
    world
}

/// Systemd removes the cgroup of a service that lost a process so, and starts it again, all before the next tick.
#[test]
fn kills_are_counted_where_systemd_removes_the_cgroup_before_a_tick() {
    let mut world = two_limited_services();
    // Between two ticks; the counter of the third of three runs is read by a tick as well.
    let run = |world: &World, is_seen: bool| {
        let load = Load { touch_bytes_per_sec: 1024 * MIB, ..Load::busy(1) };
        world.spawn("/system.slice/web.service", load.with_working_set(256 * MIB));
        if is_seen {
            return;
        }
        world.host.with(|kernel| kernel.advance(Duration::from_millis(300)));
        world.host.systemd(|systemd, kernel| {
            assert_eq!(systemd.stop_killed(kernel), ["web.service"]);
            systemd.start(kernel, "web.service");
        });
    };
    for round in 1..=3 {
        run(&world, false);
        run(&world, false);
        world.ticks(8);
        run(&world, true);
        assert_eq!(tenant(&world.ticks(10), "web").nr_oom_kills, Some(3 * round));
        world.host.systemd(|systemd, kernel| {
            assert_eq!(systemd.stop_killed(kernel), ["web.service"]);
            systemd.start(kernel, "web.service");
        });
        let status = world.ticks(8);
        assert_eq!(tenant(&status, "web").nr_oom_kills, Some(3 * round), "{:?}", status.findings);
        assert_eq!(tenant(&status, "db").nr_oom_kills, Some(0));
    }
}

/// A service that was killed before the agent came is no kill of its time, whatever systemd says of it later.
#[test]
fn a_kill_before_the_agent_is_not_counted() {
    let mut world = World::new("tenants: { web: { match: { unit: web.service } } }");
    let limit = Setting { property: Property::MemoryMax, value: PropertyValue::Number(64 * MIB) };
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.set_property(kernel, "web.service", &limit);
    });
    world.spawn("/system.slice/web.service", too_large());
    world.host.with(|kernel| kernel.advance(Duration::from_secs(4)));
    world.host.systemd(|systemd, kernel| {
        assert_eq!(systemd.stop_killed(kernel), ["web.service"]);
        systemd.results.clear();
    });
    world.start().unwrap();
    world.ticks(6);
    world.host.systemd(|systemd, kernel| {
        let again = systemd.units["web.service"].is_oom_kill;
        let unit = "web.service".to_string();
        systemd.results.push(tenantd_host::systemd::RunResult { unit, is_oom_kill: again });
        systemd.start(kernel, "web.service");
    });
    let status = world.ticks(8);
    assert!(matches!(tenant(&status, "web").nr_oom_kills, None | Some(0)), "{:?}", status.tenants);
}
