//! Widths and sets of CPUs through the whole agent: how many, which, for how long, and given back.

use tenantd::dop::CpuSet;
use tenantd::sim::{Load, SimHost};

use super::world::{World, legacy, tenant};

/// Eight CPUs on two nodes, as the reference machine of the placement has them.
fn two_nodes() -> SimHost {
    SimHost { cpus: 8, numa_nodes: 2, ..SimHost::default() }
}

fn legacy_two_nodes() -> SimHost {
    SimHost { cpus: 8, numa_nodes: 2, ..legacy() }
}

const BOTH: [fn() -> SimHost; 2] = [two_nodes, legacy_two_nodes];

/// The cgroup file `cpuset.cpus` of `tenant`, on either hierarchy.
fn cpus_file(world: &World, tenant: &str) -> CpuSet {
    let below = match world.agent.as_ref().unwrap().layout().trees.len() {
        1 => format!("{tenant}/cpuset.cpus"),
        _ => format!("cpuset/{tenant}/cpuset.cpus"),
    };
    world.file(&below).parse().unwrap()
}

/// Ticks `count` times; what the files hold at the end, for both tenants.
fn after(world: &mut World, count: usize) -> [CpuSet; 2] {
    (0..count).for_each(|_| drop(world.tick()));
    ["a", "b"].map(|name| cpus_file(world, name))
}

#[test]
fn a_sleepers_cpus_are_lent_and_it_has_them_back() {
    let nodes: [CpuSet; 2] = ["0-3", "4-7"].map(|list| list.parse().unwrap());
    for host in BOTH {
        let mut world = World::on(host(), "tenants: { a: { cpus: dop }, b: { cpus: dop } }");
        world.start().unwrap();
        world.tick();
        let a = world.spawn("/a", Load::busy(8));
        world.spawn("/b", Load::busy(8));
        assert_eq!(after(&mut world, 20), nodes, "each works on a node of its own");
        world.set_load(a, Load::idle());
        let [_, lent] = after(&mut world, 30);
        assert_eq!(lent, CpuSet::below(8), "the sleeper's CPUs are lent");
        world.set_load(a, Load::busy(8));
        assert_eq!(after(&mut world, 30), nodes, "and it has them back");
        assert_eq!(tenant(world.agent.as_ref().unwrap().status(), "a").dop, Some(4));
        world.stop();
    }
}
