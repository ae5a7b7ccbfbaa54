//! Limits of processes: written, restored, and reported where they stop a tenant.

use nix::errno::Errno;
use tenantd_control::report::status::Status;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_control::words::knob::Knob;
use tenantd_host::systemd::{Property, PropertyValue, Setting};
use tenantd_sim::{Controller, Layout, Load, SimHost};

use super::reload::reload;
use super::units::{assert_whole, whole};
use super::world::{World, assert_same, legacy, snapshot, tenant};

const TWO: &str = "\
tenants:
  web: { limit: { pids: 4 } }
  ci: { limit: { pids: 3 }, tenants: { nightly: {}, pulls: {} } }
";

fn reached<'a>(status: &'a Status, name: &str) -> Option<&'a Finding> {
    let is_it = |it: &&Finding| it.code == Code::LimitReached && it.tenant.as_deref() == Some(name);
    status.finding_records.iter().find(is_it)
}

/// A host on which tenants live below a root of their own.
fn rooted(host: SimHost, yaml: &str) -> World {
    let mut world = World::on(host, yaml);
    world.options.root = Some("/tenants".into());
    world
}

#[test]
fn the_limit_is_written_and_restored_on_each_hierarchy() {
    for (host, tree) in [(SimHost::default(), ""), (legacy(), "pids/")] {
        let mut world = rooted(host, TWO);
        let before = snapshot(&world.host);
        world.start().unwrap();
        let status = world.tick();
        let file =
            |world: &World, path: &str| world.file(&format!("{tree}tenants/{path}/pids.max"));
        assert_eq!((file(&world, "web"), file(&world, "ci")), ("4".into(), "3".into()));
        assert_eq!(file(&world, "ci/nightly"), "max");
        assert_eq!(tenant(&status, "web").limit_pids, Some(4));
        let action = status.actions.iter().find(|it| it.path.ends_with("web/pids.max")).unwrap();
        assert_eq!((&*action.to, &*action.reason), ("4", "the policy's limit"));
        world.write(&format!("{tree}tenants/web/pids.max"), "9");
        let status = world.ticks(12);
        assert_eq!((status.nr_drift, file(&world, "web")), (1, "4".into()), "repaired");
        reload(&mut world, &TWO.replace("limit: { pids: 4 }", "")).unwrap();
        assert_eq!(file(&world, "web"), "max", "named no longer");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), tree);
    }
}

#[test]
fn refused_forks_are_counted_and_reported() {
    let mut world = World::begin(TWO);
    let fork = |world: &World, path: &str| world.host.with(|k| k.spawn(path, Load::busy(1)));
    for _ in 0..3 {
        fork(&world, "/web").unwrap();
    }
    let status = world.tick();
    assert_eq!((tenant(&status, "web").usage_pids, reached(&status, "web")), (Some(3), None));
    fork(&world, "/web").unwrap();
    assert_eq!(fork(&world, "/web"), Err(Errno::EAGAIN));
    let status = world.tick();
    let web = tenant(&status, "web");
    assert_eq!((web.usage_pids, web.nr_refused_forks), (Some(4), Some(1)));
    let finding = reached(&status, "web").unwrap();
    assert!(finding.message.contains("its pids.max, 4"), "{finding}");
    assert!(finding.remedy.is_some());
    // The limit of a group is for all tenants in it.
    fork(&world, "/ci/nightly").unwrap();
    for _ in 0..2 {
        fork(&world, "/ci/pulls").unwrap();
    }
    assert_eq!(fork(&world, "/ci/nightly"), Err(Errno::EAGAIN));
    let status = world.tick();
    let group = &status.groups[0];
    assert_eq!((group.limit_pids, group.usage_pids), (Some(3), Some(3)));
    assert_eq!(group.nr_refused_forks, Some(1));
    assert!(reached(&status, "ci").is_some());
}

/// An older kernel counts a refused fork only where it was tried.
#[test]
fn a_full_group_is_found_on_a_legacy_host() {
    let mut world = World::on(legacy(), TWO);
    world.start().unwrap();
    world.tick();
    let fork = |world: &World, path: &str| world.host.with(|k| k.spawn(path, Load::busy(1)));
    for _ in 0..3 {
        fork(&world, "/ci/pulls").unwrap();
    }
    assert_eq!(fork(&world, "/ci/nightly"), Err(Errno::EAGAIN));
    let status = world.tick();
    assert_eq!(tenant(&status, "ci/nightly").nr_refused_forks, Some(1));
    assert!(reached(&status, "ci").is_some() && reached(&status, "ci/nightly").is_some());
}

#[test]
fn what_nobody_limits_is_left_alone() {
    let mut world = rooted(legacy(), "tenants: { web: {} }\n");
    world.start().unwrap();
    world.tick();
    let made = world.host.with(|kernel| kernel.file("/sys/fs/cgroup/pids/tenants/pids.max"));
    assert_eq!(made, Err(Errno::ENOENT));
    let mut world = World::begin("tenants: { web: {} }\n");
    world.host.take_calls();
    world.ticks(12);
    let calls = format!("{:?}", world.host.take_calls());
    assert!(calls.contains("cpu.weight") && !calls.contains("pids."), "{calls}");
}

#[test]
fn without_the_controller_it_is_ineffective() {
    let without = |host: SimHost| SimHost {
        controllers: host
            .controllers
            .iter()
            .copied()
            .filter(|it| *it != Controller::Pids)
            .collect(),
        ..host
    };
    for host in [SimHost::default(), legacy()] {
        for mode in ["observe", "enforce"] {
            let yaml = format!("mode: {mode}\n{TWO}");
            let mut world = World::on(without(host.clone()), &yaml);
            world.start().unwrap();
            let status = world.ticks(3);
            let is_it = |it: &&Finding| it.message.contains("limit.pids is ineffective");
            let finding = status.finding_records.iter().find(is_it);
            assert!(finding.is_some_and(|it| it.remedy.is_some()), "{mode}: {:?}", status.findings);
            assert_eq!(finding.unwrap().code, Code::Ineffective);
        }
    }
    // A policy that comes to limit them.
    let mut world = World::on(legacy(), "tenants: { web: {} }\n");
    world.start().unwrap();
    world.tick();
    reload(&mut world, "tenants: { web: { limit: { pids: 4 } } }\n").unwrap();
    let status = world.tick();
    let says = |it: &&String| it.contains("limit.pids is ineffective") && it.contains("restart");
    assert_eq!(status.findings.iter().filter(says).count(), 1, "{:?}", status.findings);
}

#[test]
fn systemd_limits_the_tasks_of_its_units() {
    assert_eq!(Property::of(Knob::PidsMax), Property::TasksMax);
    let number =
        |number| Setting { property: Property::TasksMax, value: PropertyValue::Number(number) };
    let policy = "tenants:\n  web: { match: { unit: web.service }, limit: { pids: 40 } }\n";
    let mut world = World::on(SimHost { layout: Layout::Unified, ..SimHost::default() }, policy);
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
        let web = systemd.units.get_mut("web.service").unwrap();
        web.file.insert(Property::TasksMax, number(500).value);
        systemd.reload();
        systemd.set_property(kernel, "web.service", &number(500));
        systemd.units.get_mut("web.service").unwrap().drop_ins.clear();
    });
    world.spawn("/system.slice/web.service", Load::busy(2));
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(8);
    let file = |world: &World| world.file("system.slice/web.service/pids.max");
    assert_eq!(file(&world), "40");
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(file(&world), "500");
    assert_whole(&before, &world, "stopped");
}
