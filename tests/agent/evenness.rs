//! Jain's index says how even the division is, by what tenants really got.

use tenantd_sim::Load;

use super::world::World;

/// The policy of the README, on cgroups of the agent's own: no two tenants with the same share.
const NESTED: &str = "\
host: { reserve: { cpu: 500m, memory: 1GiB } }
tenants:
  web: { weight: 300, guarantee: { cpu: 2, memory: 4GiB } }
  ci:
    weight: 100
    tenants: { nightly: { weight: 1 }, pull-requests: { weight: 3 } }
";

#[test]
fn a_division_as_decided_is_even_whatever_the_weights() {
    let mut world = World::begin(NESTED);
    for tenant in ["web", "ci/nightly", "ci/pull-requests"] {
        world.spawn(&format!("/{tenant}"), Load::busy(8));
    }
    let status = world.ticks(10);
    assert!(status.jain_index.unwrap() >= 0.99, "{:?}", status.jain_index);
    assert!(status.max_share_error.unwrap() <= 0.02, "{:?}", status.max_share_error);
}

#[test]
fn persistent_uneven_use_is_detected() {
    let mut world = World::new("mode: observe\ntenants: { a: {}, b: {} }");
    for (tenant, weight) in [("a", "900"), ("b", "100")] {
        world.host.with(|kernel| kernel.make_cgroup(&format!("/{tenant}")).unwrap());
        world.spawn(&format!("/{tenant}"), Load::busy(8));
        world.write(&format!("{tenant}/cpu.weight"), weight);
    }
    world.start().unwrap();
    let status = world.ticks(10);
    // Nine to one: (9 + 1)² / (2 · (9² + 1²)).
    assert!((status.jain_index.unwrap() - 100.0 / 164.0).abs() < 0.02, "{:?}", status.jain_index);
}

#[test]
fn without_unmet_demand_nothing_is_balanced() {
    let mut world = World::begin("tenants: { a: {}, b: {} }");
    world.spawn("/a", Load { duty: 0.5, ..Load::busy(1) });
    assert_eq!(world.ticks(10).jain_index, None);
}
