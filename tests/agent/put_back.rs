//! What is put back at the end, where the kernel minds the order, or others were at work meanwhile.

use tenantd::daemon::recovery::restored::Restored;
use tenantd::sim::SimKernel;

use super::world::{World, assert_same, legacy, snapshot};

/// The two ways in which a life ends.
fn end(world: &mut World, killed: bool) -> Restored {
    match killed {
        true => {
            world.kill();
            world.restore()
        }
        false => world.stop(),
    }
}

/// A legacy host on which the cgroup `ci` with two children has these periods and quotas.
fn with_quotas(values: [(&str, &str, &str); 3], yaml: &str) -> World {
    let mut kernel = SimKernel::new(legacy());
    for (path, period, quota) in values {
        kernel.make_cgroup(&format!("/{path}")).unwrap();
        for (file, value) in [("cpu.cfs_period_us", period), ("cpu.cfs_quota_us", quota)] {
            kernel.write_file(&format!("/sys/fs/cgroup/cpu/{path}/{file}"), value).unwrap();
        }
    }
    World::with(kernel, yaml)
}

/// The kernel takes no quota above a parent's or below a child's.
#[test]
fn nested_quotas_are_put_back_at_once_whatever_they_were() {
    let rising = [("ci", "100000", "50000"), ("ci/a", "100000", "40000"), ("ci/b", "100000", "-1")];
    let falling =
        [("ci", "100000", "300000"), ("ci/a", "100000", "250000"), ("ci/b", "100000", "200000")];
    let periods = [("ci", "20000", "60000"), ("ci/a", "10000", "25000"), ("ci/b", "50000", "5000")];
    let tight = [("ci", "200000", "20000"), ("ci/a", "1000000", "50000"), ("ci/b", "5000", "-1")];
    let limits = [("3", "2", "2.5"), ("500m", "400m", "300m"), ("2", "100m", "2")];
    for values in [rising, falling, periods, tight] {
        for (ci, a, b) in limits {
            for killed in [false, true] {
                let yaml = format!(
                    "tenants: {{ ci: {{ limit: {{ cpu: {ci} }}, tenants: {{ \
                     a: {{ limit: {{ cpu: {a} }} }}, b: {{ limit: {{ cpu: {b} }} }} }} }} }}"
                );
                let mut world = with_quotas(values, &yaml);
                let before = snapshot(&world.host);
                world.start().unwrap();
                world.ticks(6);
                let context = format!("{values:?} under {yaml}");
                assert_ne!(snapshot(&world.host), before, "{context}");
                assert_eq!(end(&mut world, killed).failures, [""; 0], "{context}");
                assert_same(&before, &snapshot(&world.host), &context);
                assert!(!world.state_dir().join("journal").exists(), "{context}");
            }
        }
    }
}
