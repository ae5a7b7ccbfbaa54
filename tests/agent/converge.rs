//! From loads to shares: everyone gets what the policy entitles it to, and soon.

use std::time::Duration;

use tenantd_control::share::demand::CpuBasis;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_sim::{Load, SimHost};

use super::world::{GIB, MIB, World, assert_near, legacy, tenant};

const THREE: &str = "tenants: { a: { weight: 100 }, b: { weight: 200 }, c: { weight: 400 } }";
const ABC: [&str; 3] = ["a", "b", "c"];

/// Three hungry tenants of weight 1:2:4.
fn three_hungry(host: SimHost) -> (World, Vec<u32>) {
    let mut world = World::on(host, THREE);
    world.start().unwrap();
    world.tick();
    let pids = ABC.map(|name| world.spawn(&format!("/{name}"), Load::busy(4))).to_vec();
    (world, pids)
}

#[test]
fn hungry_tenants_share_by_weight_within_three_ticks() {
    for host in [SimHost::default(), legacy(), SimHost { psi: false, ..SimHost::default() }] {
        let (mut world, _) = three_hungry(host);
        world.ticks(3);
        assert_near(&world.shares(&ABC, 1), &[1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0], 0.02);
    }
}

#[test]
fn after_a_change_of_load_shares_converge_within_five_ticks() {
    let (mut world, pids) = three_hungry(SimHost::default());
    world.ticks(5);
    world.set_load(pids[2], Load { duty: 0.5, ..Load::busy(1) });
    world.ticks(5);
    assert_near(&world.cores(&ABC, 1), &[3.5 / 3.0, 7.0 / 3.0, 0.5], 0.02 * 4.0);
    world.set_load(pids[2], Load::busy(4));
    world.ticks(5);
    assert_near(&world.shares(&ABC, 1), &[1.0 / 7.0, 2.0 / 7.0, 4.0 / 7.0], 0.02);
}

#[test]
fn a_tenant_that_wakes_between_two_ticks_gets_its_fair_share_at_once() {
    let (mut world, pids) = three_hungry(SimHost::default());
    world.set_load(pids[2], Load::idle());
    world.ticks(20);
    world.set_load(pids[2], Load::busy(4));
    // The agent sees nothing of this before its next tick.
    let used = |world: &World| world.host.with(|kernel| kernel.usage_usec("/c").unwrap());
    let before = used(&world);
    world.host.with(|kernel| kernel.advance(Duration::from_millis(500)));
    let cores = (used(&world) - before) as f64 / 500_000.0;
    assert_near(&[cores], &[4.0 * 4.0 / 7.0], 0.05 * 4.0);
}

#[test]
fn unused_capacity_is_redistributed() {
    let (mut world, pids) = three_hungry(SimHost::default());
    world.set_load(pids[0], Load::idle());
    world.set_load(pids[1], Load::idle());
    world.ticks(3);
    let alone = world.cores(&["c"], 1);
    assert_near(&alone, &[4.0], 0.01);
}

#[test]
fn a_guarantee_holds_at_any_weights() {
    let mut world = World::begin(
        "tenants: { big: { weight: 1000 }, small: { weight: 10, guarantee: { cpu: 1500m } } }",
    );
    world.spawn("/big", Load::busy(8));
    world.spawn("/small", Load::busy(8));
    world.ticks(3);
    let cores = world.cores(&["big", "small"], 2);
    assert!(cores[1] > 1.5 * 0.95, "{cores:?}");
    assert_near(&[cores.iter().sum()], &[4.0], 0.01);
}

/// A guarantee below a light group, asleep beside a heavy tenant that has taken both CPUs.
#[test]
fn a_nested_guarantee_is_there_in_the_first_second() {
    let mut world = World::on(
        SimHost { cpus: 2, ..SimHost::default() },
        "tenants:\n  g: { weight: 1, tenants: { x: { guarantee: { cpu: 680m } } } }\n  b: { weight: 99 }\n",
    );
    world.start().unwrap();
    world.tick();
    world.spawn("/b", Load::busy(4));
    world.ticks(6);
    world.spawn("/g/x", Load::busy(4));
    let first = world.cores(&["g/x", "b"], 1);
    assert!(first[0] > 0.64, "{first:?}");
    let later = world.cores(&["g/x", "b"], 5);
    assert!(later[0] > 0.64 && later[1] > 1.25, "{later:?}");
}

#[test]
fn a_guaranteed_amount_of_memory_is_protected_even_unused() {
    let mut world = World::begin("tenants: { a: { guarantee: { memory: 1GiB } }, b: {} }");
    world.ticks(3);
    assert_eq!(world.file("a/memory.low"), GIB.to_string());
}

#[test]
fn limits_are_written_and_hold() {
    let yaml = "tenants: { a: { limit: { cpu: 500m, memory: 1GiB } }, b: {} }";
    for (host, files) in [
        (SimHost::default(), [("a/cpu.max", "50000 100000"), ("a/memory.max", "1073741824")]),
        (
            legacy(),
            [("cpu/a/cpu.cfs_quota_us", "50000"), ("memory/a/memory.limit_in_bytes", "1073741824")],
        ),
    ] {
        let mut world = World::on(host, yaml);
        world.start().unwrap();
        world.tick();
        world.spawn("/a", Load::busy(4));
        world.ticks(3);
        for (path, text) in files {
            assert_eq!(world.file(path), text, "{path}");
        }
        assert_near(&world.cores(&["a"], 2), &[0.5], 0.01);
    }
}

#[test]
fn groups_compete_with_groups_and_siblings_with_siblings() {
    let mut world = World::begin(
        "tenants:\n  web: { weight: 100 }\n  ci:\n    weight: 100\n    tenants:\n      \
         nightly: { weight: 1 }\n      pulls: { weight: 3 }\n",
    );
    let leaves = ["web", "ci/nightly", "ci/pulls"];
    leaves.iter().for_each(|leaf| {
        world.spawn(&format!("/{leaf}"), Load::busy(4));
    });
    world.ticks(3);
    assert_near(&world.shares(&leaves, 1), &[0.5, 0.125, 0.375], 0.02);
}

#[test]
fn a_group_s_limit_holds_for_all_below_it() {
    let mut world = World::begin(
        "tenants:\n  web: {}\n  ci:\n    limit: { cpu: 1 }\n    tenants: { a: {}, b: {} }\n",
    );
    ["web", "ci/a", "ci/b"].iter().for_each(|leaf| {
        world.spawn(&format!("/{leaf}"), Load::busy(4));
    });
    world.ticks(4);
    assert_near(&world.cores(&["web", "ci/a", "ci/b"], 2), &[3.0, 0.5, 0.5], 0.06);
}

#[test]
fn each_resource_has_its_own_weight() {
    let mut world = World::begin(
        "control: { allocation: max-min }\n\
         tenants: { a: { weight: { cpu: 300, memory: 100 } }, b: { weight: { cpu: 100, memory: 100 } } }",
    );
    for name in ["a", "b"] {
        let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(4) };
        world.spawn(&format!("/{name}"), load.with_working_set(3 * GIB));
    }
    let status = world.ticks(5);
    assert_near(&world.shares(&["a", "b"], 1), &[0.75, 0.25], 0.02);
    let memory = ["a", "b"].map(|name| tenant(&status, name).allocation[MEMORY]);
    assert_near(&[memory[0] / memory[1]], &[1.0], 0.01);
}

/// Two tenants of equal weight: `a` wants all CPUs, `b` half of them and three quarters of the memory.
fn cpu_and_memory(allocation: &str) -> World {
    let mut world = World::begin(&format!(
        "control: {{ allocation: {allocation} }}\ntenants: {{ a: {{}}, b: {{}} }}"
    ));
    world.spawn("/a", Load::busy(4));
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(2) };
    world.spawn("/b", load.with_working_set(6 * GIB));
    world.ticks(6);
    world
}

#[test]
fn drf_evens_dominant_shares_where_max_min_evens_each_resource() {
    let mut drf = cpu_and_memory("drf");
    let status = drf.ticks(20);
    // At the common level L: 4 L of CPU for a, and for b, whose memory takes m of the capacity, 2 L / m.
    let memory = tenant(&status, "b").demand[MEMORY] / status.host.capacity[MEMORY];
    let cores = status.host.capacity[CPU];
    let level = cores / (cores + 2.0 / memory);
    assert_near(&drf.cores(&["a", "b"], 2), &[cores * level, 2.0 * level / memory], 0.025 * 4.0);
    let shares = ["a", "b"].map(|name| tenant(&status, name).dominant_share);
    assert_near(&[shares[0]], &[shares[1]], 0.02);
    assert_eq!(tenant(&status, "b").dominant_resource.as_deref(), Some("memory"));

    let mut max_min = cpu_and_memory("max-min");
    assert_near(&max_min.cores(&["a", "b"], 2), &[2.0, 2.0], 0.02 * 4.0);
}

#[test]
fn static_allocation_never_looks_at_demand() {
    let mut world = World::begin(
        "control: { allocation: static }\ntenants: { a: { weight: 100 }, b: { weight: 300 } }",
    );
    let weights = |world: &World| ["a", "b"].map(|t| world.file(&format!("{t}/cpu.weight")));
    let idle = weights(&world);
    world.spawn("/a", Load::busy(4));
    world.ticks(5);
    assert_eq!(weights(&world), idle);
    world.spawn("/b", Load::busy(4));
    world.ticks(1);
    assert_near(&world.shares(&["a", "b"], 2), &[0.25, 0.75], 0.02);
}

#[test]
fn a_pressed_tenant_s_demand_is_what_its_threads_want() {
    let mut world = World::begin("tenants: { a: {}, b: {} }");
    world.spawn("/a", Load::busy(4));
    world.spawn("/b", Load { duty: 0.6, ..Load::busy(3) });
    let status = world.ticks(6);
    let [a, b] = ["a", "b"].map(|name| tenant(&status, name));
    assert_eq!((a.demand_basis, a.satisfied), (CpuBasis::Threads, false));
    assert_near(&[a.demand[CPU]], &[4.0], 0.05);
    assert!(b.demand[CPU] >= 1.8 * 0.99 && b.demand[CPU] < 2.3, "{b:?}");
}

#[test]
fn many_threads_are_judged_by_pressure() {
    let mut world = World::begin("tenants: { a: {}, b: {} }");
    world.spawn("/a", Load::busy(300));
    world.spawn("/b", Load::busy(4));
    let status = world.ticks(8);
    let a = tenant(&status, "a");
    assert!(matches!(a.demand_basis, CpuBasis::Pressure | CpuBasis::Exploring), "{a:?}");
    assert_near(&world.shares(&["a", "b"], 1), &[0.5, 0.5], 0.02);
}

#[test]
fn without_psi_demand_comes_from_threads_and_a_finding_reports_it() {
    let mut world =
        World::on(SimHost { psi: false, ..SimHost::default() }, "tenants: { a: {}, b: {} }");
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(3));
    world.spawn("/b", Load::busy(3));
    world.ticks(3);
    assert_near(&world.shares(&["a", "b"], 1), &[0.5, 0.5], 0.02);
    let status = world.ticks(20);
    assert_eq!(tenant(&status, "a").demand_basis, CpuBasis::Threads);
    let told = status.findings.iter().filter(|finding| finding.contains("psi=1")).count();
    assert_eq!(told, 1, "{:?}", status.findings);
}

#[test]
fn memory_low_is_the_allocation() {
    let mut world = World::begin("tenants: { a: {}, b: {} }");
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    world.spawn("/a", load.with_working_set(2 * GIB).with_cache(GIB));
    let status = world.ticks(6);
    let a = tenant(&status, "a");
    let low: f64 = world.file("a/memory.low").parse().unwrap();
    assert!(low >= 2.0 * GIB as f64, "{low}");
    assert_near(&[low / a.allocation[MEMORY]], &[1.0], 0.05);
    // Pages read once are no working set.
    assert!(a.usage[MEMORY].unwrap() < (2 * GIB + 64 * MIB) as f64, "{a:?}");
}

#[test]
fn protection_reaches_down_to_the_leaves_of_a_group() {
    let mut world = World::begin("tenants:\n  g: { tenants: { a: {}, b: {} } }\n");
    let load = Load { touch_bytes_per_sec: 64 * GIB, ..Load::busy(1) };
    world.spawn("/g/a", load.with_working_set(GIB));
    world.spawn("/g/b", load.with_working_set(GIB));
    world.ticks(6);
    let low = |path: &str| world.file(&format!("{path}/memory.low")).parse::<u64>().unwrap();
    assert!(low("g/a") >= GIB && low("g/b") >= GIB);
    assert!(low("g") + 8 * MIB >= low("g/a") + low("g/b"));
}

#[test]
fn work_outside_every_tenant_is_not_divided() {
    let mut world = World::begin("tenants: { a: {}, b: {} }");
    world.spawn("/", Load::busy(1));
    world.spawn("/a", Load::busy(4));
    world.spawn("/b", Load::busy(4));
    let status = world.ticks(6);
    let outside = status.host.outside_cores.unwrap();
    assert!(outside > 0.1, "{status:?}");
    assert_near(&[status.host.capacity[CPU] + outside], &[4.0], 0.05);
    assert_near(&world.shares(&["a", "b"], 1), &[0.5, 0.5], 0.02);
}

#[test]
fn two_hundred_tenants_share_evenly() {
    let names: Vec<String> = (0..200).map(|i| format!("t{i}")).collect();
    let tenants: Vec<String> = names.iter().map(|name| format!("{name}: {{}}")).collect();
    let mut world = World::begin(&format!("tenants: {{ {} }}", tenants.join(", ")));
    for name in &names[..20] {
        world.spawn(&format!("/{name}"), Load::busy(1));
    }
    world.ticks(3);
    let busy: Vec<&str> = names[..20].iter().map(String::as_str).collect();
    assert_near(&world.shares(&busy, 1), &[0.05; 20], 0.005);
}
