//! Who lives in the cgroups that the agent made is still there after a restart.

use nix::errno::Errno;

use super::world::{World, assert_same, snapshot};
use crate::util;
use tenantd::backend::claims;
use tenantd_control::report::status::Status;
use tenantd_host::kernfs::Operation;
use tenantd_sim::{Fault, Layout, Load, SimHost, SimKernel};

const SERVICE: &str = "/system/tenantd";
const POLICY: &str = "\
tenants:
  web: { weight: 300 }
  ci: { tenants: { nightly: {} } }
";

/// A host on which the agent starts in a delegated cgroup of its own.
fn world(layout: Layout) -> World {
    let mut kernel = SimKernel::new(SimHost { layout, ..SimHost::default() });
    kernel.make_cgroup(SERVICE).unwrap();
    let caller = kernel.caller().to_string();
    let trees: &[&str] = match layout {
        Layout::Unified => &[""],
        _ => &["cpu/", "cpuacct/", "memory/", "blkio/"],
    };
    for tree in trees {
        let procs = format!("/sys/fs/cgroup/{tree}{}/cgroup.procs", &SERVICE[1..]);
        let _ = kernel.write_file(&procs, &caller);
    }
    World::with(kernel, POLICY)
}

fn begin(world: &mut World) {
    world.start().unwrap();
    world.ticks(2);
}

/// The processes in the cgroup `path`, of the tree that CPU weights are written in.
fn processes(world: &World, tree: &str, path: &str) -> Vec<u32> {
    let text = world.file(&format!("{tree}{}/cgroup.procs", path.trim_start_matches('/')));
    text.lines().map(|line| line.parse().unwrap()).collect()
}

fn live_on(layout: Layout, tree: &str) {
    let mut world = world(layout);
    let before = snapshot(&world.host);
    begin(&mut world);
    let web = world.spawn(&format!("{SERVICE}/web"), Load::busy(2));
    let nightly = world.spawn(&format!("{SERVICE}/ci/nightly"), Load::busy(1));
    world.ticks(2);
    assert_eq!(world.stop().failures, [""; 0]);
    let root = processes(&world, tree, SERVICE);
    assert!(root.contains(&web) && root.contains(&nightly), "{root:?}");

    for _ in 0..2 {
        begin(&mut world);
        assert_eq!(processes(&world, tree, &format!("{SERVICE}/web")), [web]);
        assert_eq!(processes(&world, tree, &format!("{SERVICE}/ci/nightly")), [nightly]);
        assert!(!world.state_dir().join("residents.json").exists());
        // Killed this time: the restore keeps them as a clean stop does.
        world.kill();
        assert_eq!(world.restore().failures, [""; 0]);
    }
    for pid in [web, nightly] {
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
    }
    assert_same(&before, &snapshot(&world.host), "after the last restore");
}

#[test]
fn a_restart_brings_residents_back() {
    live_on(Layout::Unified, "");
}

#[test]
fn a_restart_brings_residents_back_on_a_legacy_host() {
    live_on(Layout::Legacy, "cpu/");
}

#[test]
fn a_removed_tenant_does_not_prevent_a_start() {
    let mut world = world(Layout::Unified);
    begin(&mut world);
    let web = world.spawn(&format!("{SERVICE}/web"), Load::busy(2));
    world.stop();
    world.policy = util::policy("version: 1\nmode: enforce\ntenants: { db: {} }\n");
    begin(&mut world);
    assert_eq!(processes(&world, "", &format!("{SERVICE}/tenantd.rest")), [web]);
    assert_eq!(world.stop().failures, [""; 0]);
    assert!(processes(&world, "", SERVICE).contains(&web));
}

/// Takes up the policy `yaml`.
fn reload(world: &mut World, yaml: &str) {
    let policy = util::policy(&format!("version: 1\nmode: enforce\n{yaml}"));
    let rules = claims::rules(&policy);
    assert_eq!(world.agent.as_mut().unwrap().reload(policy.clone(), rules).unwrap(), [""; 0]);
    world.policy = policy;
}

/// The findings on processes without a tenant.
fn lost(status: &Status) -> Vec<&String> {
    status.findings.iter().filter(|finding| finding.contains("lost their tenant")).collect()
}

/// A name that is misspelt in a policy takes a tenant away, and the mended policy adds it again.
#[test]
fn a_tenant_that_comes_back_has_its_processes_back() {
    let without_web = "tenants: { wbe: { weight: 300 } }";
    for (layout, tree) in [(Layout::Unified, ""), (Layout::Legacy, "cpu/")] {
        let mut world = world(layout);
        let before = snapshot(&world.host);
        begin(&mut world);
        let web = world.spawn(&format!("{SERVICE}/web"), Load::busy(2));
        let nightly = world.spawn(&format!("{SERVICE}/ci/nightly"), Load::busy(1));
        let home = |world: &World| {
            let homes = ["web", "ci/nightly"];
            homes.map(|path| processes(world, tree, &format!("{SERVICE}/{path}")))
        };
        world.ticks(2);
        for restarts in [false, true] {
            reload(&mut world, without_web);
            let status = world.ticks(2);
            let findings = lost(&status);
            assert_eq!(findings.len(), 1, "{:?}", status.findings);
            let said = "2 processes have lost their tenant (ci/nightly, web)";
            assert!(findings[0].starts_with(said), "{findings:?}");
            if restarts {
                // Displaced a second time, to where the agent itself is.
                assert_eq!(world.stop().failures, [""; 0]);
                begin(&mut world);
            }
            reload(&mut world, POLICY);
            assert_eq!(home(&world), [[web], [nightly]]);
            assert!(lost(&world.ticks(6)).is_empty());
            assert_eq!(home(&world), [[web], [nightly]]);
            assert!(!world.state_dir().join("residents.json").exists());
        }
        assert_eq!(world.stop().failures, [""; 0]);
        for pid in [web, nightly] {
            world.host.with(|kernel| kernel.kill(pid)).unwrap();
        }
        assert_same(&before, &snapshot(&world.host), "after the stop");
    }
}

/// Where it was claimed from is where it belongs, however often its tenant goes and comes.
#[test]
fn a_claimed_process_keeps_its_origin_while_its_tenant_goes_and_comes() {
    let mut world = world(Layout::Unified);
    world.host.with(|kernel| kernel.make_cgroup("/build")).unwrap();
    let pid = world.spawn("/build", Load::idle());
    let policy = "tenants: { ci: { match: { cgroup: /build, move: true } } }";
    world.policy = util::policy(&format!("version: 1\nmode: enforce\n{policy}"));
    begin(&mut world);
    assert_eq!(processes(&world, "", &format!("{SERVICE}/ci")), [pid]);
    for _ in 0..2 {
        reload(&mut world, "tenants: { other: {} }");
        assert!(lost(&world.ticks(6)).is_empty());
        assert_eq!(processes(&world, "", "/build"), [pid]);
        reload(&mut world, policy);
        world.ticks(6);
        assert_eq!(processes(&world, "", &format!("{SERVICE}/ci")), [pid]);
    }
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(processes(&world, "", "/build"), [pid]);
}

#[test]
fn a_process_without_a_tenant_that_ends_is_forgotten() {
    let mut world = world(Layout::Unified);
    begin(&mut world);
    let web = world.spawn(&format!("{SERVICE}/web"), Load::busy(2));
    reload(&mut world, "tenants: { db: {} }");
    assert_eq!(lost(&world.tick()).len(), 1);
    world.host.with(|kernel| kernel.kill(web)).unwrap();
    assert!(lost(&world.ticks(6)).is_empty());
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_process_of_another_user_is_not_moved() {
    let mut world = world(Layout::Unified);
    begin(&mut world);
    let web = world.spawn(&format!("{SERVICE}/web"), Load::busy(2));
    world.stop();
    let other = world.spawn(SERVICE, Load::idle());
    // An agent in observe mode moves nobody at all.
    world.options.observe = true;
    world.start().unwrap();
    world.ticks(2);
    world.stop();
    assert!(processes(&world, "", SERVICE).contains(&web));
    world.options.observe = false;
    world.start().unwrap();
    let status = world.ticks(2);
    assert!(processes(&world, "", SERVICE).contains(&other));
    let refused = status.findings.iter().any(|f| f.contains("holds processes of others"));
    assert!(refused, "{:?}", status.findings);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn one_that_was_moved_meanwhile_is_left_there() {
    let mut world = world(Layout::Unified);
    begin(&mut world);
    let web = world.spawn(&format!("{SERVICE}/web"), Load::busy(2));
    world.stop();
    world.host.with(|kernel| kernel.make_cgroup("/elsewhere")).unwrap();
    world.write("elsewhere/cgroup.procs", &web.to_string());
    begin(&mut world);
    assert_eq!(processes(&world, "", "/elsewhere"), [web]);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(processes(&world, "", "/elsewhere"), [web]);
}

/// Another program enabled the controllers of the cgroup above the agent's: no try would find it open to processes.
#[test]
fn a_cgroup_that_others_closed_to_processes_is_passed_by() {
    let mut kernel = SimKernel::new(SimHost::default());
    kernel.make_cgroup("/top/other").unwrap();
    for above in ["", "top/"] {
        let file = format!("/sys/fs/cgroup/{above}cgroup.subtree_control");
        kernel.write_file(&file, "+cpu +memory").unwrap();
    }
    let mut world = World::with(kernel, "tenants: { a: {} }");
    world.options.root = Some("/top/t".into());
    begin(&mut world);
    world.host.with(|kernel| kernel.make_cgroup("/top/t/theirs")).unwrap();
    reload(&mut world, "tenants: { a: {}, theirs: { weight: 300 } }");
    let resident = world.spawn("/top/t/a", Load::busy(1));
    world.spawn("/top/t/theirs", Load::busy(1));
    world.ticks(3);
    assert_ne!(world.file("top/t/theirs/cpu.weight"), "100");
    world.host.inject(Fault::matching(Operation::Write, "theirs/cpu.weight", Errno::EINVAL));
    // The value is refused, and goes with the controller.
    assert_eq!(world.stop().failures, [""; 0]);
    assert!(processes(&world, "", "/").contains(&resident));
    assert!(world.host.with(|kernel| kernel.file("/sys/fs/cgroup/top/t/a/cpu.weight")).is_err());
}
