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

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

#[test]
fn probe() {
    for host in BOTH {
        let mut world = World::on(host(), "tenants: { a: { cpus: dop }, b: { cpus: dop } }");
        world.start().unwrap();
        world.tick();
        let a = world.spawn("/a", Load::busy(8));
        world.spawn("/b", Load::busy(8));
        for tick in 0..80 {
            if tick == 20 {
                world.set_load(a, Load::idle());
            }
            if tick == 50 {
                world.set_load(a, Load::busy(8));
            }
            let status = world.tick();
            let show = |n: &str| {
                let t = tenant(&status, n);
                format!(
                    "{:?}/{:?}/{:.2}/{}",
                    t.dop,
                    t.cpus,
                    t.usage_cores.unwrap_or(-1.0),
                    cpus_file(&world, n)
                )
            };
            println!("{tick} a {} b {} {:?}", show("a"), show("b"), status.findings);
        }
        world.stop();
    }
}
