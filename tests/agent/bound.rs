//! Memory that comes back from whoever holds more than the allocation, by `memory.high`, where `memory.low` is not kept.

use tenantd_policy::model::Mode;
use tenantd_sim::{Layout, Load, SimHost};

use super::world::{GIB, MIB, World, snapshot};

const HOT: u64 = 600 * MIB;
const TWO: &str = "tenants: { cache: {}, reader: {} }";

fn host() -> SimHost {
    SimHost { memory_bytes: 2 * GIB, has_generations: true, ..SimHost::default() }
}

/// An agent with its tenants' cgroups.
fn begin_on(host: SimHost, policy: &str) -> World {
    let mut world = World::on(host, policy);
    world.start().unwrap();
    world.tick();
    world
}

/// The cgroups of the tenants, as somebody else made them.
fn make_cgroups(world: &World) {
    for dir in ["/cache", "/reader"] {
        world.host.with(|kernel| kernel.make_cgroup(dir)).unwrap();
    }
}

/// An agent whose tenants have cgroups that somebody else made: they stay.
fn begin_found(policy: &str) -> World {
    let mut world = World::on(host(), policy);
    make_cgroups(&world);
    world.start().unwrap();
    world.tick();
    world
}

fn number(world: &World, file: &str) -> f64 {
    world.file(file).parse().unwrap_or(f64::INFINITY)
}

/// One comes back to 600 MiB of a file all the time, and another to 4 GiB. Returns the first.
fn contend(world: &World) -> u32 {
    let load = Load { touch_bytes_per_sec: GIB, ..Load::busy(1) };
    world.spawn("/reader", load.with_hot_file(4 * GIB));
    world.spawn("/cache", load.with_hot_file(HOT))
}

/// What of its file the first one has in memory after a while, at the least of a minute.
fn kept(world: &mut World) -> f64 {
    contend(world);
    world.ticks(120);
    let least = |least: f64, _| {
        world.tick();
        least.min(number(world, "cache/memory.current"))
    };
    (0..60).fold(f64::INFINITY, least) / HOT as f64
}

#[test]
fn who_holds_more_than_the_allocation_gives_it_back() {
    let observing = kept(&mut begin_found(&format!("mode: observe\n{TWO}")));
    let enforcing = kept(&mut begin_on(host(), TWO));
    assert!(enforcing > 0.95 && enforcing > observing + 0.1, "{enforcing} against {observing}");
}

#[test]
fn a_bound_is_never_far_below_what_is_held() {
    let mut world = begin_on(host(), TWO);
    contend(&world);
    let mut nr_bounded = 0;
    for _ in 0..180 {
        let held = number(&world, "reader/memory.current");
        world.tick();
        let bound = number(&world, "reader/memory.high");
        let now = number(&world, "reader/memory.current");
        assert!(bound > 0.9 * held.min(now), "{bound} for {held}, {now}");
        assert!(bound > 600e6, "{bound}");
        nr_bounded += usize::from(bound.is_finite());
        assert_eq!(world.file("cache/memory.high"), "max");
    }
    assert!(nr_bounded > 60, "{nr_bounded}");
}

#[test]
fn a_bound_ends_with_the_need_for_it() {
    let mut world = begin_on(host(), TWO);
    let cache = contend(&world);
    world.ticks(60);
    assert!(number(&world, "reader/memory.high").is_finite());
    world.host.with(|kernel| kernel.kill(cache)).unwrap();
    world.ticks(900);
    assert_eq!(world.file("reader/memory.high"), "max");
    // Of what is over, nothing is left to write.
    world.host.take_changes();
    world.ticks(30);
    let written = world.host.take_changes();
    assert!(!written.iter().any(|call| format!("{call:?}").contains("memory.high")), "{written:?}");
}

#[test]
fn what_was_there_is_the_most_and_comes_back_however_it_ends() {
    for killed in [false, true] {
        let mut world = World::on(host(), TWO);
        make_cgroups(&world);
        let own = 1800 * MIB;
        world.write("reader/memory.high", &own.to_string());
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.tick();
        contend(&world);
        for _ in 0..60 {
            world.tick();
            assert!(number(&world, "reader/memory.high") <= own as f64);
        }
        assert!(number(&world, "reader/memory.high") < own as f64);
        world.end(killed);
        assert_eq!(world.file("reader/memory.high"), own.to_string(), "killed: {killed}");
        assert_eq!(before.len(), snapshot(&world.host).len());
    }
}

#[test]
fn no_bound_outlives_an_agent_that_keeps_its_values() {
    let mut world = begin_on(host(), &format!("control: {{ on_exit: keep }}\n{TWO}"));
    contend(&world);
    world.ticks(60);
    assert!(number(&world, "reader/memory.high").is_finite());
    let low = world.file("cache/memory.low");
    world.stop();
    assert_eq!(
        (world.file("reader/memory.high").as_str(), world.file("cache/memory.low")),
        ("max", low)
    );
}

#[test]
fn an_observer_bounds_nothing_and_a_change_of_mode_lifts_bounds() {
    let mut world = begin_found(TWO);
    contend(&world);
    world.ticks(60);
    assert!(number(&world, "reader/memory.high").is_finite());
    world.agent.as_mut().unwrap().set_mode(Mode::Observe).unwrap();
    assert_eq!(world.file("reader/memory.high"), "max");
    world.ticks(60);
    assert_eq!(world.file("reader/memory.high"), "max");
}

#[test]
fn another_writer_of_the_bound_is_heard() {
    let mut world = begin_found(TWO);
    contend(&world);
    world.ticks(60);
    // As systemd does when it sets any other value of the unit.
    world.write("reader/memory.high", "max");
    let status = world.ticks(12);
    assert!(number(&world, "reader/memory.high").is_finite());
    assert!(status.nr_drift <= 1);
    world.stop();
    assert_eq!(world.file("reader/memory.high"), "max");
}

#[test]
fn a_legacy_host_has_no_such_bound() {
    let legacy = SimHost { layout: Layout::Legacy, has_generations: false, ..host() };
    let mut world = begin_on(legacy, TWO);
    contend(&world);
    world.host.take_changes();
    let status = world.ticks(60);
    assert!(!status.findings.iter().any(|finding| finding.contains("memory.high")));
    let written = world.host.take_changes();
    assert!(!written.iter().any(|call| format!("{call:?}").contains("memory.high")), "{written:?}");
}
