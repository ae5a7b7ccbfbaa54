//! Tenants in different slices of systemd: the slices above them are weighed and protected as well.

use tenantd_control::why::explain;
use tenantd_core::resource::CPU;
use tenantd_host::systemd::Property;
use tenantd_sim::Load;

use super::super::world::{GIB, MIB, World};
use super::{assert_whole, number, whole};

/// Ticks in which the shares follow what tenants want.
const TICKS_MAX: usize = 5;

/// The kernel weighs siblings only: the slices above are weighed by what the tenants in them should have.
#[test]
fn tenants_in_different_slices_are_weighed_across_them() {
    let mut world = World::new(
        "tenants: { web: { weight: 300, match: { unit: web.service } }, ana: { match: { unit: user-7.slice } } }",
    );
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        systemd.add(kernel, "user-7.slice", "/user.slice/user-7.slice");
        let set = number(Property::CpuWeight, 60);
        systemd.set_property(kernel, "user.slice", &set);
        let set = number(Property::MemoryLow, GIB);
        systemd.set_property(kernel, "system.slice", &set);
    });
    for cgroup in ["system.slice/web.service", "user.slice/user-7.slice"] {
        world.spawn(&format!("/{cgroup}"), Load::busy(4).with_working_set(256 * MIB));
    }
    let before = whole(&world);
    world.start().unwrap();
    let status = world.ticks(20);
    assert_eq!(status.findings, [""; 0]);
    let weight = |world: &World, slice: &str| -> u64 {
        world.file(&format!("{slice}/cpu.weight")).parse().unwrap()
    };
    // Together what they were, at the ratio of the tenants; each tenant is alone in its slice.
    let weights = ["system.slice", "user.slice"].map(|slice| weight(&world, slice));
    assert!((155..=165).contains(&weights.iter().sum::<u64>()), "{weights:?}");
    assert!(weights[0] > 2 * weights[1] && weights[0] < 4 * weights[1], "{weights:?}");
    let shares: Vec<f64> =
        status.tenants.iter().map(|tenant| tenant.usage[CPU].unwrap_or(0.0)).collect();
    assert!((shares[0] / shares[1] - 3.0).abs() < 0.2, "{shares:?}");
    // Whoever asks is told of both weights, and of their product.
    let trace = world.agent.as_ref().unwrap().trace();
    let explained = explain::explain(trace, &status, "web").unwrap();
    assert!((explained.weight.sibling_share - 0.75).abs() < 0.03, "{explained:#?}");
    assert_eq!(explained.above.len(), 1, "{explained:#?}");
    let (above, share) = (&explained.above[0], explained.above[0].sibling_share);
    assert!(above.unit == "system.slice" && (share - 0.75).abs() < 0.03, "{above:#?}");
    let path = "/sys/fs/cgroup/system.slice/cpu.weight";
    assert!(above.values.iter().any(|value| value.path == path), "{above:#?}");
    // In addition to what the slice had for others.
    let low = |world: &World, dir: &str| -> u64 {
        world.file(&format!("{dir}/memory.low")).parse().unwrap()
    };
    let (web, above) = (low(&world, "system.slice/web.service"), low(&world, "system.slice"));
    assert!(web > 200 * MIB && above >= GIB + web, "{web} below {above}");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

/// Work of four kinds, each where it lives: within five ticks each has its part, after a start, when one falls asleep
/// and when it wakes.
#[test]
fn shares_across_the_tree_follow_within_five_ticks() {
    let mut world = World::new(
        "tenants:
  db: { weight: 400, match: { unit: db.service } }
  web: { weight: 200, match: { unit: web.service } }
  ana: { match: { unit: user-7.slice } }
  box: { match: { unit: \"libpod-*.scope\" } }
",
    );
    let units = [
        "system.slice/system-db.slice/db.service",
        "system.slice/web.service",
        "user.slice/user-7.slice",
        "machine.slice/libpod-1.scope",
    ];
    world.host.systemd(|systemd, kernel| {
        for cgroup in units {
            let name = cgroup.rsplit('/').next().unwrap();
            systemd.add(kernel, name, &format!("/{cgroup}"));
        }
    });
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "other.service", "/system.slice/other.service");
    });
    let busy = Load::busy(8).with_working_set(64 * MIB);
    let pids = units.map(|cgroup| world.spawn(&format!("/{cgroup}"), busy));
    // Other work beside tenants.
    world.spawn("/system.slice/other.service", Load::busy(1).with_working_set(MIB));
    let before = whole(&world);
    world.start().unwrap();
    let settled = |world: &mut World, entitled: [f64; 4], what: &str| {
        world.ticks(TICKS_MAX);
        let shares = world.shares(&units, 1);
        let error = shares.iter().zip(entitled).map(|(share, e)| (share - e).abs());
        assert!(error.fold(0.0, f64::max) < 0.05, "{what}: {shares:?}, not {entitled:?}");
    };
    settled(&mut world, [0.5, 0.25, 0.125, 0.125], "all begin");
    for (number, entitled) in [(1, [0.667, 0.0, 0.167, 0.167]), (3, [0.571, 0.286, 0.143, 0.0])] {
        world.set_load(pids[number], Load::idle());
        settled(&mut world, entitled, "one sleeps");
        world.set_load(pids[number], busy);
        settled(&mut world, [0.5, 0.25, 0.125, 0.125], "it wakes");
    }
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}
