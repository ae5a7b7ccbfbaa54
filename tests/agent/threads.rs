//! Tenants whose work is in cgroups inside theirs, as that of a slice of systemd is.

use tenantd_control::share::demand::CpuBasis;
use tenantd_core::resource::CPU;
use tenantd_sim::{Load, SimHost};

use super::world::{World, assert_near, legacy, tenant};

/// A tenant that wants three CPUs and a half beside one that wants all four.
fn pressed(host: SimHost, inside: &[String]) -> World {
    let mut world = World::on(host, "tenants: { a: {}, b: {} }");
    world.start().unwrap();
    world.tick();
    for path in inside {
        world.host.with(|kernel| kernel.make_cgroup(path)).unwrap();
    }
    let last = inside.last().unwrap();
    world.spawn(last, Load::busy(3));
    world.spawn(last, Load { duty: 0.5, ..Load::busy(1) });
    for _ in 0..4 {
        world.spawn("/b", Load::busy(4));
    }
    world
}

#[test]
fn threads_in_cgroups_inside_are_looked_at() {
    let inside = ["/a/app", "/a/app/deep", "/a/app/deep/deeper"].map(String::from);
    for host in [SimHost::default(), legacy()] {
        let mut world = pressed(host, &inside);
        let status = world.ticks(6);
        let a = tenant(&status, "a");
        assert_eq!(a.demand_basis, CpuBasis::Threads);
        assert_near(&[a.demand[CPU]], &[3.5], 0.15);
    }
}

/// Some of them tell nothing of all, and a tick does not visit more, whether they are beside or inside each other.
#[test]
fn where_there_are_many_cgroups_inside_the_pressure_is_what_counts() {
    let cost = |inside: &[String]| {
        let mut world = pressed(SimHost::default(), inside);
        let status = world.ticks(20);
        let basis = tenant(&status, "a").demand_basis;
        let before = world.host.nr_calls();
        world.ticks(10);
        (basis, world.host.nr_calls() - before)
    };
    let few = cost(&["/a/0".to_string()]);
    assert_eq!(few.0, CpuBasis::Threads);
    let beside: Vec<String> = (0..300).map(|number| format!("/a/{number}")).collect();
    let tens = (0..10).flat_map(|ten| {
        let inside = (0..10).map(move |number| format!("/a/{ten}/{number}"));
        std::iter::once(format!("/a/{ten}")).chain(inside)
    });
    for inside in [beside, tens.collect()] {
        let many = cost(&inside);
        assert!(matches!(many.0, CpuBasis::Pressure | CpuBasis::Exploring), "{many:?}");
        // It is counted in one of ten ticks.
        assert!(many.1 < few.1 + 100, "{few:?} and {many:?}");
    }
}
