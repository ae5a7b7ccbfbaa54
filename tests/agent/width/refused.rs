//! The kernel refuses writes of cpusets, once or for ever: no panic, one clear line, tried again, put back.

use std::path::Path;

use nix::errno::Errno;
use tenantd_host::enforce::remedy;
use tenantd_host::kernfs::{KernFs, Operation};
use tenantd_sim::{Fault, Load, SimHost};

use super::{HOSTS, TWO, Watch, cpuset_findings, set};
use crate::agent::world::{MOUNT, World, assert_same, snapshot};

const ERRNOS: [Errno; 3] = [Errno::EBUSY, Errno::ENOSPC, Errno::EINVAL];

/// A host with two tenants at work and no agent yet. On a legacy one they are in no cpuset.
fn at_work(host: SimHost) -> (World, [u32; 2]) {
    let world = World::on(host, TWO);
    let trees: &[&str] = if super::is_legacy(&world) {
        &["cpu", "cpuacct", "memory", "blkio", "unified"]
    } else {
        &["."]
    };
    let pids = ["a", "b"].map(|name| {
        world.host.with(|kernel| {
            for tree in trees {
                let dir = kernel.open_dir(&Path::new(MOUNT).join(tree)).unwrap();
                kernel.make_dir(dir, name).unwrap();
            }
            kernel.spawn(&format!("/{name}"), Load::busy(8)).unwrap()
        })
    });
    (world, pids)
}

/// One of them sleeps for a while, and a CPU goes and comes, so that sets are written again and again.
fn live(world: &mut World, pids: [u32; 2]) {
    world.start().unwrap();
    for tick in 0..60 {
        match tick {
            10 => world.set_load(pids[0], Load::idle()),
            30 => world.host.with(|kernel| kernel.set_cpu_online(5, false)),
            34 => world.set_load(pids[0], Load::busy(8)),
            45 => world.host.with(|kernel| kernel.set_cpu_online(5, true)),
            _ => {}
        }
        let status = world.tick();
        assert!(status.tenants.iter().all(|tenant| tenant.cpus.as_deref() != Some("")));
        for finding in cpuset_findings(&status) {
            assert_eq!(finding.lines().count(), 1, "{finding:?}");
            assert!(finding.contains("cpuset.") && finding.len() < 200, "{finding}");
        }
    }
}

fn written(world: &World) -> Vec<u64> {
    let calls = world.host.take_calls();
    let is_set = |path: &std::path::Path| path.to_string_lossy().contains("/cpuset.");
    let numbered = (0..).zip(&calls);
    numbered
        .filter(|(_, call)| call.operation == Operation::Write && is_set(&call.path))
        .map(|(number, _)| number)
        .collect()
}

/// A legacy cpuset has to stay around those that the tenant's own programs made in it.
#[test]
fn a_cpuset_inside_that_stands_against_a_change_is_named() {
    let mut world = World::on(HOSTS[1](), TWO);
    world.start().unwrap();
    world.tick();
    world.spawn("/a", Load::busy(8));
    world.ticks(5);
    world.host.with(|kernel| {
        let dir = kernel.open_dir(&Path::new(MOUNT).join("cpuset/a")).unwrap();
        kernel.make_dir(dir, "inner").unwrap();
    });
    let all = world.file("cpuset/a/cpuset.cpus");
    world.write("cpuset/a/inner/cpuset.cpus", &all);
    let said = world.host.with(|kernel| {
        let dir = kernel.open_dir(&Path::new(MOUNT).join("cpuset/a")).unwrap();
        let error = kernel.write(dir, "cpuset.cpus", "0").unwrap_err();
        assert_eq!(error.errno, Errno::EBUSY);
        remedy(kernel, dir, ("cpuset.cpus", "0"), &error).unwrap()
    });
    assert!(said.contains(&format!("cpuset/a/inner inside it has CPUs {all}")), "{said}");
}

#[test]
fn every_write_of_a_set_may_be_refused_once() {
    for host in HOSTS {
        let (mut clean, pids) = at_work(host());
        live(&mut clean, pids);
        let writes = written(&clean);
        assert!(writes.len() >= 5, "{writes:?}");
        let each = writes.iter().flat_map(|call| ERRNOS.map(|errno| (*call, errno)));
        for (call, errno) in each {
            let (mut world, pids) = at_work(host());
            let before = snapshot(&world.host);
            world.host.inject(Fault::at_call(call, errno));
            live(&mut world, pids);
            let context = format!("call {call} answers {errno}");
            // It was tried again: after a minute all is as without the trouble.
            for tenant in ["a", "b"] {
                let cpus = super::cpus(&world, tenant);
                assert_eq!(cpus, super::cpus(&clean, tenant), "{context}: {tenant}");
            }
            assert_eq!(world.stop().failures, [""; 0], "{context}");
            assert_same(&before, &snapshot(&world.host), &context);
        }
    }
}

#[test]
fn every_write_of_a_set_may_be_refused_permanently() {
    for host in HOSTS {
        for errno in ERRNOS {
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let (mut world, pids) = at_work(host());
                let before = snapshot(&world.host);
                world.host.inject(Fault::matching(Operation::Write, file, errno));
                live(&mut world, pids);
                let shares = world.shares(&["a", "b"], 2);
                crate::agent::world::assert_near(&shares, &[0.5, 0.5], 0.03);
                world.host.heal();
                world.ticks(8);
                for tenant in ["a", "b"] {
                    let cpus = super::cpus(&world, tenant);
                    assert!(cpus.len() >= 4, "{file} {errno}: {tenant} has {cpus}");
                }
                assert_eq!(world.stop().failures, [""; 0], "{file} {errno}");
                assert_same(&before, &snapshot(&world.host), &format!("{file} {errno}"));
            }
        }
    }
}

#[test]
fn a_refused_write_is_reported_once_with_the_file() {
    let mut watch = Watch::begin(HOSTS[0](), &[], TWO);
    watch.world.host.inject(Fault::matching(Operation::Write, "a/cpuset.cpus", Errno::EBUSY));
    watch.world.host.with(|kernel| kernel.write_file("/sys/fs/cgroup/a/cpuset.cpus", "7")).unwrap();
    let status = watch.ticks(12);
    let said = cpuset_findings(&status);
    assert_eq!(said.len(), 1, "{said:?}");
    let expected = "a: cannot write /sys/fs/cgroup/a/cpuset.cpus with `0-3`: ";
    assert!(said[0].starts_with(expected), "{said:?}");
    watch.world.host.heal();
    watch.ticks(5);
    assert_eq!(watch.cpus("a"), set("0-3"));
}
