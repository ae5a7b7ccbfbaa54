//! Tenants in which nothing runs: they cost little, and what happens to them is seen.

use tenantd_core::resource::{CPU, MEMORY};
use tenantd_sim::{Load, SimHost};

use super::world::{MIB, World, assert_near, legacy, tenant};

const AB: &str = "tenants: { a: {}, b: {} }";

/// A tenant that sleeps with memory, and one that works.
fn sleeper_and_worker(host: SimHost) -> (World, u32) {
    let mut world = World::on(host, AB);
    world.start().unwrap();
    world.tick();
    let sleeper = world.spawn("/a", Load::idle().with_working_set(100 * MIB));
    world.spawn("/b", Load::busy(1).with_working_set(100 * MIB));
    world.ticks(30);
    (world, sleeper)
}

/// How often the files with this name were read in ten ticks, of the sleeper and of the worker.
fn nr_read(world: &mut World, file: &str) -> [usize; 2] {
    world.host.take_calls();
    world.ticks(10);
    let calls = world.host.take_calls();
    ["a", "b"].map(|tenant| {
        let path = format!("{tenant}/{file}");
        calls.iter().filter(|call| call.path.ends_with(&path)).count()
    })
}

#[test]
fn the_dear_files_of_a_tenant_at_rest_are_read_in_its_turn() {
    for host in [SimHost::default(), legacy()] {
        let (mut world, _) = sleeper_and_worker(host);
        assert_eq!(nr_read(&mut world, "memory.stat"), [1, 10]);
        // What shows that it is at rest.
        assert_eq!(nr_read(&mut world, "cpu.pressure"), [10, 10]);
    }
}

#[test]
fn what_is_charged_to_a_tenant_at_rest_is_seen_at_once() {
    for host in [SimHost::default(), legacy()] {
        let (mut world, sleeper) = sleeper_and_worker(host);
        for mib in [300, 200, 250] {
            let load = Load { touch_bytes_per_sec: u64::MAX, ..Load::idle() };
            world.set_load(sleeper, load.with_working_set(mib * MIB));
            let status = world.tick();
            let used = tenant(&status, "a").usage[MEMORY].unwrap();
            assert_near(&[used / MIB as f64], &[mib as f64], 1.0);
        }
    }
}

/// A list has to be opened anew for each look, and an empty tenant of a legacy host has nothing else to be read.
#[test]
fn the_list_of_an_empty_tenant_is_opened_in_its_turn_and_when_something_ran() {
    let mut world = World::on(legacy(), AB);
    world.start().unwrap();
    world.ticks(20);
    assert_eq!(nr_read(&mut world, "cgroup.procs"), [1, 1]);
    world.spawn("/a", Load::busy(1));
    let status = world.ticks(2);
    assert_near(&[tenant(&status, "a").usage[CPU].unwrap()], &[1.0], 0.01);
}
