//! Limits of requests to disks: written for each disk, by systemd for units, and restored line by line.

use tenantd_control::report::status::Status;
use tenantd_host::systemd::{Property, PropertyValue, Setting};
use tenantd_sim::{DiskWork, Load, SimHost};

use super::units;
use super::world::{World, assert_same, legacy, snapshot, tenant};

const POLICY: &str = "\
tenants:
  a: { limit: { disk: { read: 10MiB/s, write_iops: 50 } } }
  b: {}
";

/// A second of a disk that does 160 reads of 64 KiB.
const SECOND: DiskWork = DiskWork::reads(160, 4000);

/// Files of `a` with its limits.
fn limits(world: &World) -> String {
    let is_legacy = world.host.with(|kernel| kernel.file("/sys/fs/cgroup/blkio/a/tasks").is_ok());
    if !is_legacy {
        return world.file("a/io.max").trim_end().to_string();
    }
    let kinds = ["read_bps", "write_bps", "read_iops", "write_iops"];
    let of = |kind: &str| world.file(&format!("blkio/a/blkio.throttle.{kind}_device"));
    kinds.map(|kind| of(kind).trim_end().to_string()).join("|")
}

const OURS: [&str; 2] = ["8:0 rbps=10485760 wbps=max riops=max wiops=50", "8:0 10485760|||8:0 50"];

fn worlds(policy: &str) -> [(World, &'static str); 2] {
    let [unified, v1] = OURS;
    [(SimHost::default(), unified), (legacy(), v1)].map(|(host, ours)| {
        let world = World::on(host, policy);
        let pid = world.spawn("/", Load::busy(1));
        world.host.with(|kernel| kernel.use_disk(pid, SECOND)).unwrap();
        (world, ours)
    })
}

fn ticks(world: &mut World, count: usize) -> Status {
    (0..count).map(|_| world.tick()).last().unwrap_or_default()
}

#[test]
fn limits_are_written_once_and_restored() {
    for (mut world, ours) in worlds(POLICY) {
        world.host.with(|kernel| kernel.make_cgroup("/a").unwrap());
        let before = snapshot(&world.host);
        world.start().unwrap();
        let status = ticks(&mut world, 2);
        assert_eq!(
            (limits(&world).as_str(), status.findings.len()),
            (ours, 0),
            "{:?}",
            status.findings
        );
        let limit = tenant(&status, "a").limit_disk.unwrap();
        assert_eq!(
            (limit.read_bytes_per_second, limit.writes_per_second),
            (Some(10 << 20), Some(50))
        );
        assert_eq!(tenant(&status, "b").limit_disk, None);
        world.host.take_changes();
        ticks(&mut world, 25);
        let changes = world.host.take_changes();
        let is_of_disk = |path: String| path.contains("/io.") || path.contains("/blkio.");
        let written = changes.iter().filter(|it| is_of_disk(it.path.display().to_string()));
        assert_eq!(written.count(), 0, "{changes:?}");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

/// Before a disk was used, nothing can be limited on it.
#[test]
fn a_disk_is_limited_once_it_is_used() {
    for host in [SimHost::default(), legacy()] {
        let mut world = World::on(host, POLICY);
        world.start().unwrap();
        ticks(&mut world, 2);
        assert!(!limits(&world).contains("8:0"));
        let pid = world.spawn("/a", Load::busy(1));
        world.host.with(|kernel| kernel.use_disk(pid, SECOND)).unwrap();
        let status = ticks(&mut world, 2);
        assert!(OURS.contains(&&*limits(&world)), "{}", limits(&world));
        assert_eq!((status.nr_drift, status.findings), (0, vec![]));
    }
}

/// The four limits of a disk are in one line of cgroup v2.
#[test]
fn limits_of_another_program_stay() {
    for (mut world, _) in worlds(POLICY) {
        let set = |kernel: &mut tenantd_sim::SimKernel, text: &str, limit: &str| {
            let path = "/sys/fs/cgroup/a/io.max";
            let v1 = "/sys/fs/cgroup/blkio/a/blkio.throttle.write_bps_device";
            if kernel.write_file(path, &format!("8:0 wbps={text}")).is_err() {
                kernel.write_file(v1, &format!("8:0 {limit}")).unwrap();
            }
        };
        world.host.with(|kernel| {
            kernel.make_cgroup("/a").unwrap();
            set(kernel, "777", "777");
        });
        let before = limits(&world);
        assert!(before.contains("777"));
        world.start().unwrap();
        let status = ticks(&mut world, 2);
        assert!(limits(&world).contains("777") && limits(&world).contains("10485760"));
        world.host.with(|kernel| set(kernel, "888", "888"));
        let status = (0..12).map(|_| world.tick()).last().unwrap_or(status);
        assert_eq!((status.nr_drift, status.findings), (0, vec![]), "its own limit");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(limits(&world), before.replace("777", "888"));
    }
}

#[test]
fn a_foreign_value_is_drift_and_is_repaired() {
    for (mut world, ours) in worlds(POLICY) {
        world.start().unwrap();
        ticks(&mut world, 3);
        world.host.with(|kernel| {
            let v1 = "/sys/fs/cgroup/blkio/a/blkio.throttle.read_bps_device";
            if kernel.write_file("/sys/fs/cgroup/a/io.max", "8:0 rbps=5").is_err() {
                kernel.write_file(v1, "8:0 5").unwrap();
            }
        });
        assert_eq!(ticks(&mut world, 11).nr_drift, 1);
        assert_eq!(limits(&world), ours);
    }
}

#[test]
fn a_reload_removes_one_limit_and_keeps_the_other() {
    for (mut world, _) in worlds(POLICY) {
        world.start().unwrap();
        ticks(&mut world, 3);
        let (policy, left) = (POLICY.replace("read: 10MiB/s, ", ""), |text: &str| {
            text.contains("50") && !text.contains("10485760")
        });
        units::reload(&mut world, &policy);
        assert!(left(&limits(&world)), "{}", limits(&world));
        let status = ticks(&mut world, 12);
        assert!(left(&limits(&world)), "{}", limits(&world));
        assert_eq!((status.nr_drift, status.findings), (0, vec![]));
        units::reload(&mut world, &POLICY.replace("10MiB", "20MiB"));
        ticks(&mut world, 2);
        assert!(limits(&world).contains("20971520"));
    }
}

#[test]
fn a_reached_limit_explains_the_disk() {
    for (mut world, _) in worlds(POLICY) {
        world.start().unwrap();
        ticks(&mut world, 2);
        let pid = world.spawn("/a", Load::busy(1));
        for _ in 0..3 {
            world.host.with(|kernel| kernel.use_disk(pid, SECOND)).unwrap();
            world.tick();
        }
        world.host.with(|kernel| kernel.use_disk(pid, SECOND)).unwrap();
        let status = world.tick();
        let reached = |name: &str| {
            let tenant = tenant(&status, name);
            tenant.limit_disk.zip(tenant.disks.first()).and_then(|(it, of)| it.reached(&of.rates))
        };
        assert_eq!(reached("a").as_deref(), Some("reads 10MiB/s"));
        assert_eq!(reached("b"), None);
    }
}

const UNITS: &str = "\
tenants:
  web: { match: { unit: web.service }, limit: { disk: { read: 10MiB/s, read_iops: 300 } } }
  two: { match: { unit: [one.service, two.service] }, limit: { disk: { write: 4MiB/s } } }
";

fn unit_limits(world: &World, name: &str) -> String {
    world.file(&format!("system.slice/{name}.service/io.max")).trim_end().to_string()
}

#[test]
fn units_are_limited_by_systemd() {
    let mut world = World::new(UNITS);
    world.host.systemd(|systemd, kernel| {
        for name in ["web", "one", "two"] {
            systemd.add(
                kernel,
                &format!("{name}.service"),
                &format!("/system.slice/{name}.service"),
            );
        }
        let value = PropertyValue::Limits(vec![("/dev/block/8:0".to_string(), 9 << 20)]);
        let setting = Setting { property: Property::IoReadBandwidthMax, value };
        systemd.set_property(kernel, "web.service", &setting);
    });
    let pids = ["web", "one"]
        .map(|name| world.spawn(&format!("/system.slice/{name}.service"), Load::busy(1)));
    world.host.with(|kernel| kernel.use_disk(pids[0], SECOND)).unwrap();
    let before = unit_limits(&world, "web");
    assert_eq!(before, "8:0 rbps=9437184 wbps=max riops=max wiops=max");
    world.start().unwrap();
    ticks(&mut world, 6);
    assert_eq!(unit_limits(&world, "web"), "8:0 rbps=10485760 wbps=max riops=300 wiops=max");
    for name in ["one", "two"] {
        assert_eq!(unit_limits(&world, name), "8:0 rbps=max wbps=2097152 riops=max wiops=max");
    }
    // A member near its part gets more of the limit, and one at rest keeps some.
    let writes = DiskWork { written_bytes: 2 << 20, writes: 32, reads: 0, read_bytes: 0, ..SECOND };
    for _ in 0..4 {
        world.host.with(|kernel| kernel.use_disk(pids[1], writes)).unwrap();
        world.tick();
    }
    assert!(
        unit_limits(&world, "one") > unit_limits(&world, "two"),
        "{}",
        unit_limits(&world, "one")
    );
    for round in 0..5 {
        world.host.systemd(|systemd, kernel| {
            let tasks = units::number(Property::TasksMax, 500 + round);
            systemd.set_property(kernel, "web.service", &tasks);
        });
        world.tick();
    }
    let status = ticks(&mut world, 2);
    assert_eq!((status.nr_drift, status.findings), (0, vec![]));
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(unit_limits(&world, "web"), before);
    assert_eq!((unit_limits(&world, "one"), unit_limits(&world, "two")), Default::default());
}

/// The kernel of cgroup v1 applies a limit to the processes of one cgroup alone.
#[test]
fn limits_that_do_not_hold_inside_are_reported() {
    let group = "tenants: { lab: { limit: { disk: { read: 1MiB/s } }, tenants: { a: {} } } }";
    let jobs = POLICY.replace("a: { ", "a: { allow: { users: [root] }, ");
    for (policy, expected) in [(POLICY, 0), (group, 1), (&*jobs, 1)] {
        for (host, is_legacy) in [(SimHost::default(), false), (legacy(), true)] {
            let mut world = World::on(host, policy);
            world.start().unwrap();
            let status = ticks(&mut world, 2);
            let what = "limit.disk is ineffective for jobs and for groups";
            let found = status.findings.iter().filter(|finding| finding.contains(what)).count();
            assert_eq!(found, if is_legacy { expected } else { 0 }, "{policy}");
        }
    }
}
