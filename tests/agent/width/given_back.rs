//! Sets that were there before the agent are there again after it.

use tenantd_host::kernfs::KernFs;
use tenantd_sim::{Load, SimKernel};

use super::{HOSTS, TWO, cpus, cpuset, set};
use crate::agent::world::{World, assert_same, snapshot};
use crate::util;

/// A host on which somebody has made the cgroups `a` and `b` and keeps them busy, and no agent yet.
fn lived_in(host: tenantd_sim::SimHost) -> World {
    let mut kernel = SimKernel::new(host);
    for path in ["/a", "/b"] {
        kernel.make_cgroup(path).unwrap();
        kernel.spawn(path, Load::busy(8)).unwrap();
    }
    World::with(kernel, TWO)
}

#[test]
fn a_list_that_was_empty_is_empty_again_although_processes_live_there() {
    let mut world = lived_in(HOSTS[0]());
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(5);
    assert_eq!((cpus(&world, "a"), cpus(&world, "b")), (set("0-3"), set("4-7")));
    // They fork meanwhile.
    let born = world.spawn("/a", Load::busy(1));
    assert_eq!(world.stop().failures, [""; 0]);
    world.host.with(|kernel| kernel.kill(born)).unwrap();
    assert_same(&before, &snapshot(&world.host), "unified");
}

#[test]
fn a_list_that_was_set_is_set_again() {
    for host in HOSTS {
        for clean in [true, false] {
            let mut world = lived_in(host());
            world.write(&cpuset(&world, "a", "cpus"), "1,6");
            world.write(&cpuset(&world, "b", "cpus"), "2-3,7");
            let before = snapshot(&world.host);
            world.start().unwrap();
            world.ticks(5);
            assert_eq!((cpus(&world, "a").len(), cpus(&world, "b").len()), (4, 4));
            let restored = if clean {
                world.stop()
            } else {
                world.kill();
                world.restore()
            };
            assert_eq!(restored.failures, [""; 0]);
            assert_same(&before, &snapshot(&world.host), "put back");
        }
    }
}

#[test]
fn a_legacy_cpuset_that_was_empty_is_filled_and_emptied_again() {
    let mut world = World::on(HOSTS[1](), TWO);
    for tree in ["cpu", "cpuset", "memory"] {
        let dir = std::path::PathBuf::from(format!("/sys/fs/cgroup/{tree}"));
        world.host.with(|kernel| {
            let dir = kernel.open_dir(&dir).unwrap();
            kernel.make_dir(dir, "a").unwrap();
        });
    }
    let before = snapshot(&world.host);
    assert_eq!(world.file("cpuset/a/cpuset.mems"), "");
    world.start().unwrap();
    world.tick();
    let pid = world.spawn("/a", Load::busy(8));
    world.ticks(3);
    assert_eq!(world.file("cpuset/a/cgroup.procs"), pid.to_string(), "it follows");
    assert_eq!((world.file("cpuset/a/cpuset.mems"), cpus(&world, "a")), ("0-1".into(), set("0-3")));
    // Born there: the journal does not know it.
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    let born = world.spawn("/a", Load::busy(8));
    assert_eq!(world.stop().failures, [""; 0]);
    world.host.with(|kernel| kernel.kill(born)).unwrap();
    assert_same(&before, &snapshot(&world.host), "legacy");
}

#[test]
fn an_adopted_list_with_an_offline_cpu_does_not_prevent_a_start() {
    let mut world = lived_in(HOSTS[0]());
    world.write("a/cpuset.cpus", "5-6");
    world.write("b/cpuset.cpus", "2,5");
    world.host.with(|kernel| [5, 6].map(|cpu| kernel.set_cpu_online(cpu, false)));
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(3);
    assert_eq!(super::cpuset_findings(&status), [""; 0]);
    for tenant in ["a", "b"] {
        assert!(cpus(&world, tenant).is_subset(&set("0-4,7")), "{tenant}");
    }
    assert_eq!(world.stop().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "offline CPUs");
}

#[test]
fn a_stop_that_was_cut_short_while_processes_stood_aside_is_made_good() {
    let world = || {
        let mut world = lived_in(HOSTS[0]());
        world.start().unwrap();
        world.ticks(3);
        world
    };
    let before = snapshot(&lived_in(HOSTS[0]()).host);
    let mut clean = world();
    let living = clean.host.nr_calls();
    clean.stop();
    let all = clean.host.nr_calls();
    for call in living..all {
        let mut world = world();
        let host = world.host.clone();
        let agent = world.agent.take().unwrap();
        if host.until_death(call, || agent.stop().unwrap()).is_none() {
            host.heal();
            assert_eq!(world.restore().failures, [""; 0], "died before call {call}");
        }
        assert_same(&before, &snapshot(&host), &format!("died before call {call}"));
    }
}

/// A legacy kernel takes a CPU that goes offline out of all lists for good, and no list in which it still is.
#[test]
fn a_legacy_list_is_restored_without_the_offline_cpus() {
    for is_seen in [false, true] {
        let mut world = lived_in(HOSTS[1]());
        world.write(&cpuset(&world, "a", "cpus"), "1,6");
        world.write(&cpuset(&world, "b", "cpus"), "2-3,7");
        world.start().unwrap();
        world.ticks(5);
        world.host.with(|kernel| [3, 6].map(|cpu| kernel.set_cpu_online(cpu, false)));
        if is_seen {
            world.ticks(5);
        }
        assert_eq!(world.stop().failures, [""; 0]);
        assert!(!world.state_dir().join("journal").exists());
        assert_eq!((cpus(&world, "a"), cpus(&world, "b")), (set("1"), set("2,7")));
    }
}

/// The kernel empties no list of a cgroup with populated children: it must not confine them either.
#[test]
fn a_list_that_cannot_be_emptied_confines_no_process() {
    let mut world = lived_in(HOSTS[0]());
    world.start().unwrap();
    world.ticks(5);
    world.host.with(|kernel| {
        let dir = kernel.open_dir(std::path::Path::new("/sys/fs/cgroup/a")).unwrap();
        kernel.make_dir(dir, "job").unwrap();
        kernel.spawn("/a/job", Load::busy(1)).unwrap();
        kernel.set_cpu_online(7, false);
    });
    let failures = world.stop().failures;
    assert!(failures.iter().any(|failure| failure.contains("cpuset.cpus")), "{failures:?}");
    assert_eq!((cpus(&world, "a"), world.file("b/cpuset.cpus")), (set("0-7"), String::new()));
}

#[test]
fn a_tenant_that_is_pinned_no_longer_runs_on_cpus_that_come_back() {
    for (host, then) in [(HOSTS[0](), "0-7"), (HOSTS[1](), "0-6")] {
        let mut world = World::on(host, TWO);
        world.start().unwrap();
        world.tick();
        for path in ["/a", "/b"] {
            world.spawn(path, Load::busy(8));
        }
        world.ticks(5);
        world.host.with(|kernel| kernel.set_cpu_online(7, false));
        world.ticks(2);
        let policy = util::policy("version: 1\nmode: enforce\ntenants: { a: {}, b: {} }");
        let failures = world.agent.as_mut().unwrap().reload(policy, Vec::new()).unwrap();
        assert_eq!(failures, [""; 0]);
        // A legacy kernel takes no CPU that is offline.
        assert_eq!([cpus(&world, "a"), cpus(&world, "b")], [set(then), set(then)]);
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// A legacy list cannot be emptied while a cgroup below has one, as those have that the agent made.
#[test]
fn a_legacy_list_of_a_group_is_emptied_once_the_cgroups_below_it_are_gone() {
    for killed in [false, true] {
        let yaml = "tenants: { g: { tenants: { p: { cpus: dop }, q: { cpus: dop } } } }";
        let mut world = World::on(HOSTS[1](), yaml);
        for tree in ["cpu", "cpuset", "memory"] {
            let dir = std::path::PathBuf::from(format!("/sys/fs/cgroup/{tree}"));
            world.host.with(|kernel| {
                let dir = kernel.open_dir(&dir).unwrap();
                kernel.make_dir(dir, "g").unwrap();
            });
        }
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(5);
        assert!(!cpus(&world, "g").is_empty() && !cpus(&world, "g/p").is_empty());
        assert_eq!(world.end(killed).failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "legacy");
        assert!(!world.state_dir().join("journal").exists());
    }
}
