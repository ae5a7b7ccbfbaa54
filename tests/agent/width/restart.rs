//! An agent that starts again moves nobody without need, and starts whatever its state directory holds.

use std::fs;

use tenantd_sim::Load;

use super::{HOSTS, TWO, cpus, set};
use crate::agent::world::World;

/// A host on which `b` has borrowed all CPUs from `a`, which sleeps; both cgroups are there for good.
fn borrowed(host: tenantd_sim::SimHost) -> World {
    let mut kernel = tenantd_sim::SimKernel::new(host);
    for (path, load) in [("/a", Load::idle()), ("/b", Load::busy(8))] {
        kernel.make_cgroup(path).unwrap();
        kernel.spawn(path, load).unwrap();
    }
    let mut world = World::with(kernel, TWO);
    world.start().unwrap();
    world.ticks(30);
    assert_eq!((cpus(&world, "a"), cpus(&world, "b")), (set("0-3"), set("0-7")));
    world
}

#[test]
fn a_restart_moves_no_process() {
    for host in HOSTS {
        for clean in [true, false] {
            let mut world = borrowed(host());
            if clean {
                world.stop();
            } else {
                world.kill();
            }
            world.start().unwrap();
            for _ in 0..30 {
                world.tick();
                assert_eq!((cpus(&world, "a"), cpus(&world, "b")), (set("0-3"), set("0-7")));
            }
        }
    }
}

#[test]
fn a_placement_that_cannot_be_read_or_does_not_fit_blocks_no_start() {
    for text in ["", "{", "[1]", r#"{"a":"0-99","b":"x"}"#, r#"{"a":"6-7","b":"0-9"}"#, "\0\0"] {
        let mut world = borrowed(HOSTS[0]());
        world.stop();
        let file = world.state_dir().join("placement.json");
        assert!(fs::read_to_string(&file).unwrap().contains(r#""b":"0-7""#));
        fs::write(&file, text).unwrap();
        world.start().unwrap();
        world.tick();
        for tenant in ["a", "b"] {
            let cpus = cpus(&world, tenant);
            assert!(!cpus.is_empty() && cpus.is_subset(&set("0-7")), "{text}: {tenant}: {cpus}");
        }
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(r#""a":"#), "what is in force is kept: {text}");
    }
}

#[test]
fn a_machine_that_became_smaller_blocks_no_start() {
    for host in HOSTS {
        let mut world = borrowed(host());
        world.stop();
        world.host.with(|kernel| (0..7).for_each(|cpu| kernel.set_cpu_online(cpu, false)));
        world.start().unwrap();
        let status = world.ticks(3);
        assert_eq!((cpus(&world, "a"), cpus(&world, "b")), (set("7"), set("7")));
        assert_eq!(super::cpuset_findings(&status), [""; 0]);
    }
}

#[test]
fn a_placement_that_cannot_be_saved_is_reported_and_stops_nothing() {
    let mut world = World::new(TWO);
    fs::create_dir_all(world.state_dir().join("placement.new")).unwrap();
    world.start().unwrap();
    let status = world.ticks(2);
    let said = status.findings.iter().filter(|f| f.contains("cannot keep the placement")).count();
    assert_eq!(said, 1, "{:?}", status.findings);
    assert!(!cpus(&world, "a").is_empty());
}
