//! Working sets that are found by a gentle squeeze (`memory: { probe: true }`).

use tenantd_control::report::status::Status;
use tenantd_control::share::demand::MemoryBasis;
use tenantd_control::why::explain;
use tenantd_core::resource::MEMORY;
use tenantd_policy::model::Mode;
use tenantd_sim::{Load, SimHost, Swap};

use super::reload::reload;
use super::world::{GIB, MIB, World, snapshot, tenant};
use crate::history::twin::Twin;

const OFF: &str = "tenants: { a: {}, b: {} }";
const ON: &str = "memory: { probe: true }\ntenants: { a: {}, b: {} }";
const HOT: u64 = 100 * MIB;
const COLD: u64 = 900 * MIB;

fn host() -> SimHost {
    SimHost { memory_bytes: 4 * GIB, swap: Some(Swap::zram(2 * GIB)), ..SimHost::default() }
}

fn begin(host: SimHost, yaml: &str) -> World {
    let mut world = World::on(host, yaml);
    world.start().unwrap();
    world.tick();
    world
}

/// In `a` one process touches `HOT` all the time, and another one has touched `COLD` once. Returns the first.
fn fill(world: &mut World) -> u32 {
    let load = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
    let cold = world.spawn("/a", Load { duty: 0.0, ..load }.with_working_set(COLD));
    let hot = world.spawn("/a", load.with_working_set(HOT));
    world.ticks(3);
    let asleep = Load { touch_bytes_per_sec: 0, ..Load::idle() };
    world.set_load(cold, asleep.with_working_set(COLD));
    hot
}

fn held(world: &World) -> u64 {
    world.file("a/memory.current").parse().unwrap()
}

/// What `memory.high` of `a` holds; `None` for no bound.
fn bound(world: &World) -> Option<u64> {
    world.file("a/memory.high").parse().ok()
}

fn demand(status: &Status) -> f64 {
    tenant(status, "a").demand[MEMORY]
}

fn touched(world: &World, pid: u32) -> f64 {
    world.host.with(|kernel| kernel.process_usage(pid)).unwrap().touched_bytes
}

/// How often `memory.high` of any tenant was written since the changes were taken last.
fn nr_bounds(world: &World) -> usize {
    let changes = world.host.take_changes();
    changes.iter().filter(|change| change.path.ends_with("memory.high")).count()
}

#[test]
fn what_is_not_used_is_taken_and_demand_follows() {
    let [off, on] = [OFF, ON].map(|yaml| {
        let mut world = begin(host(), yaml);
        let hot = fill(&mut world);
        let before = touched(&world, hot);
        let mut status = world.tick();
        let mut is_probed = false;
        for _ in 0..900 {
            status = world.tick();
            is_probed |= tenant(&status, "a").memory_demand_basis == MemoryBasis::Probed;
        }
        (is_probed, held(&world) as f64, demand(&status), touched(&world, hot) - before)
    });
    assert_eq!((off.0, on.0), (false, true));
    assert!(on.1 < 0.8 * off.1 && on.1 > HOT as f64, "holds {} of {}", on.1, off.1);
    assert!(on.2 < 0.85 * off.2, "wants {} of {}", on.2, off.2);
    assert!(on.3 > 0.98 * off.3, "works {} of {}", on.3, off.3);
}

#[test]
fn what_is_in_use_stays() {
    let worked = [OFF, ON].map(|yaml| {
        let host = SimHost { swap: Some(Swap::disk(2 * GIB)), ..host() };
        let mut world = begin(host, yaml);
        let load = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
        let pid = world.spawn("/a", load.with_working_set(600 * MIB));
        world.ticks(10);
        let before = touched(&world, pid);
        let mut least = u64::MAX;
        for _ in 0..600 {
            world.tick();
            least = least.min(held(&world));
        }
        assert!(least > 570 * MIB, "{least}");
        touched(&world, pid) - before
    });
    assert!(worked[1] > 0.98 * worked[0], "{worked:?}");
}

/// Swap has room, and a tenant may not use it: the little that its bound takes costs it next to nothing.
#[test]
fn what_may_not_be_swapped_stays() {
    let worked = [OFF, ON].map(|yaml| {
        let mut world = begin(host(), yaml);
        world.write("a/memory.swap.max", "0");
        let load = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
        let pid = world.spawn("/a", load.with_working_set(600 * MIB));
        world.ticks(10);
        let before = touched(&world, pid);
        let mut is_tried = false;
        for _ in 0..600 {
            world.tick();
            is_tried |= bound(&world).is_some();
            assert!(held(&world) >= 600 * MIB, "{}", held(&world));
        }
        assert_eq!(is_tried, yaml == ON);
        touched(&world, pid) - before
    });
    assert!(worked[1] > 0.98 * worked[0], "{worked:?}");
}

/// A bound gives way to what a tenant begins to use.
#[test]
fn growth_lifts_the_bound() {
    let mut world = begin(host(), ON);
    let hot = fill(&mut world);
    world.ticks(300);
    assert!(bound(&world).is_some());
    let load = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
    world.set_load(hot, load.with_working_set(HOT + GIB));
    world.ticks(5);
    assert_eq!(bound(&world), None);
    assert!(held(&world) > HOT + GIB, "{}", held(&world));
}

#[test]
fn nothing_is_probed_without_room_in_swap() {
    for swap in [None, Some(Swap::zram(100 * MIB))] {
        let mut world = begin(SimHost { swap, ..host() }, ON);
        fill(&mut world);
        world.host.take_changes();
        world.ticks(200);
        assert_eq!(nr_bounds(&world), 0, "{swap:?}");
    }
}

#[test]
fn nothing_is_probed_unless_the_policy_says_so() {
    for yaml in [OFF.to_string(), format!("mode: observe\n{ON}")] {
        let mut world = World::on(host(), &yaml);
        for dir in ["/a", "/b"] {
            world.host.with(|kernel| kernel.make_cgroup(dir)).unwrap();
        }
        world.start().unwrap();
        world.tick();
        fill(&mut world);
        world.host.take_changes();
        world.ticks(200);
        assert_eq!(nr_bounds(&world), 0, "{yaml}");
    }
}

#[test]
fn a_guarantee_is_never_touched() {
    let yaml = "memory: { probe: true }\ntenants: { a: { guarantee: { memory: 800MiB } }, b: {} }";
    let mut world = begin(host(), yaml);
    fill(&mut world);
    for _ in 0..600 {
        world.tick();
        assert!(bound(&world).is_none_or(|bytes| bytes >= 900 * MIB), "{:?}", bound(&world));
    }
    assert!(bound(&world).is_some() && held(&world) > 880 * MIB, "{}", held(&world));
}

/// Where memory runs short, who gives is decided by what each is entitled to.
#[test]
fn contention_ends_all_probes() {
    let mut world = begin(SimHost { has_generations: true, ..host() }, ON);
    fill(&mut world);
    world.ticks(200);
    assert!(bound(&world).is_some_and(|bytes| bytes < 1000 * MIB));
    let load = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
    world.spawn("/b", load.with_hot_file(6 * GIB));
    let mut status = world.ticks(60);
    for _ in 0..60 {
        status = world.tick();
        let basis = tenant(&status, "a").memory_demand_basis;
        assert!(basis != MemoryBasis::Probed || bound(&world).is_some(), "{basis:?}");
    }
    assert!(demand(&status) > HOT as f64);
}

#[test]
fn what_was_there_comes_back() {
    for way in ["reload", "observe", "stop", "kill"] {
        let mut world = World::on(host(), ON);
        for dir in ["/a", "/b"] {
            world.host.with(|kernel| kernel.make_cgroup(dir)).unwrap();
        }
        world.write("a/memory.high", &(3 * GIB).to_string());
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.tick();
        fill(&mut world);
        world.ticks(200);
        assert!(bound(&world).is_some_and(|bytes| bytes < 1000 * MIB), "{way}");
        match way {
            "reload" => {
                assert_eq!(reload(&mut world, OFF).unwrap(), [""; 0]);
                world.ticks(2);
            }
            "observe" => {
                world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
                world.ticks(200);
            }
            _ => {
                world.end(way == "kill");
            }
        }
        assert_eq!(bound(&world), Some(3 * GIB), "{way}");
        let pids = world.host.with(|kernel| kernel.pids());
        let nr_before = before.len();
        assert!(way == "reload" || nr_before == snapshot(&world.host).len(), "{way} {pids:?}");
    }
}

#[test]
fn an_explanation_tells_of_the_probe() {
    let mut world = begin(host(), ON);
    fill(&mut world);
    let mut status = world.ticks(150);
    for _ in 0..120 {
        if tenant(&status, "a").memory_demand_basis == MemoryBasis::Probed {
            break;
        }
        status = world.tick();
    }
    let trace = world.agent.as_ref().unwrap().trace();
    let explanation = explain::explain(trace, &status, "a").unwrap();
    let wants = &explanation.demand.as_ref().unwrap().reason[MEMORY];
    assert!(wants.contains("not missed"), "{wants}");
    let mut values = explanation.values.iter();
    assert!(values.any(|value| value.reason.contains("probed: some is taken")), "{explanation:?}");
}

#[test]
fn a_replay_probes_the_same_to_the_bit() {
    let before = Twin::nr_decisions();
    let mut world = begin(host(), ON);
    world.agent.as_mut().unwrap().record(Twin::boxed());
    fill(&mut world);
    world.ticks(120);
    reload(&mut world, OFF).unwrap();
    world.ticks(5);
    assert!(Twin::nr_decisions() - before > 120);
}
