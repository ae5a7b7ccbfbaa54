//! Cgroups that are there without the agent are weighed where they are, with what is above them.

mod members;
mod random;

use std::path::Path;

use tenantd::backend::claims;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain;
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::KernFs;
use tenantd_sim::{Call, Layout, Load, SimHost, SimKernel, Workload};

use super::world::{GIB, MIB, World, assert_near, assert_same, legacy, snapshot, tenant};
use crate::util;

const TWO: &str = "\
tenants:
  a: { weight: 300, limit: { memory: 2GiB }, match: { cgroup: /jobs/a } }
  b: { match: { cgroup: /jobs/b } }
";

/// A host that systemd does not run, with these cgroups.
fn host(host: SimHost, cgroups: &[&str], yaml: &str) -> World {
    let mut kernel = SimKernel::new(host);
    cgroups.iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    let mut world = World::with(kernel, yaml);
    world.host.without_systemd();
    world
}

fn unified(cgroups: &[&str], yaml: &str) -> World {
    host(SimHost::default(), cgroups, yaml)
}

fn make(world: &World, path: &str) {
    world.host.with(|kernel| kernel.make_cgroup(path)).unwrap();
}

/// Removes a cgroup, in every hierarchy.
fn remove(world: &World, path: &str) {
    let above = |mount: &str| Path::new("/sys/fs/cgroup").join(mount);
    world.host.with(|kernel| {
        let top = kernel.open_dir(&above("")).unwrap();
        let mounts = crate::util::names(kernel.list_dirs(top).unwrap());
        for mount in mounts.iter().map(String::as_str).chain([""]) {
            let path = above(mount).join(&path[1..]);
            // It may be in some of them.
            if let Ok(dir) = kernel.open_dir(path.parent().unwrap()) {
                let _ = kernel.remove_dir(dir, path.file_name().unwrap().to_str().unwrap());
                kernel.close_dir(dir);
            }
        }
        kernel.close_dir(top);
    });
}

fn reload(world: &mut World, yaml: &str) {
    let policy = util::policy(&format!("version: 1\nmode: enforce\n{yaml}"));
    let rules = claims::rules(&policy);
    assert_eq!(world.agent.as_mut().unwrap().reload(policy, rules).unwrap(), [""; 0]);
}

fn used(status: &Status) -> Vec<f64> {
    status.tenants.iter().map(|tenant| tenant.usage[CPU].unwrap_or(0.0)).collect()
}

/// The files that were written, and the cgroups that were made, since this was last asked.
fn changed(world: &World) -> Vec<String> {
    let calls: Vec<Call> = world.host.take_changes();
    calls.iter().map(|call| call.path.display().to_string()).collect()
}

/// The findings of `status` in which `what` is found.
fn said<'a>(status: &'a Status, what: &str) -> Vec<&'a String> {
    status.findings.iter().filter(|finding| finding.contains(what)).collect()
}

fn number(world: &World, file: &str) -> u64 {
    world.file(file).parse().unwrap()
}

#[test]
fn a_cgroup_is_weighed_where_it_is() {
    for (layout, weight) in
        [(Layout::Unified, "jobs/a/cpu.weight"), (Layout::Legacy, "cpu/jobs/a/cpu.shares")]
    {
        let sim = SimHost { layout, ..SimHost::default() };
        let mut world = host(sim, &["/jobs/a/inside", "/jobs/b", "/jobs/other"], TWO);
        world.options.root = Some("/tenants".into());
        world.write(weight, "50");
        let busy = Load::busy(4).with_working_set(64 * MIB);
        let at = if layout == Layout::Unified { "/jobs/a/inside" } else { "/jobs/a" };
        let pids = [at, "/jobs/b"].map(|path| world.spawn(path, busy));
        let before = snapshot(&world.host);
        world.start().unwrap();
        let status = world.ticks(10);
        assert_eq!(status.findings, [""; 0], "{layout:?}");
        let shares = used(&status);
        assert!((shares[0] / shares[1] - 3.0).abs() < 0.2, "{layout:?}: {shares:?}");
        assert_ne!(world.file(weight), "50");
        let places = pids.map(|pid| world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap());
        assert_eq!(places, [at, "/jobs/b"], "no process is moved");
        assert!(!changed(&world).iter().any(|path| path.contains("tenants")), "nothing is made");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), &format!("{layout:?}"));
    }
}

/// Two agents are killed one after the other while they hold values; `--restore` leaves all as it was.
fn is_killed_twice_and_restored(world: &mut World) {
    let before = snapshot(&world.host);
    for _ in 0..2 {
        world.start().unwrap();
        world.ticks(5);
        assert!(before != snapshot(&world.host), "nothing was written");
        world.kill();
    }
    assert_eq!(world.restore().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "restored");
}

#[test]
fn a_kill_while_values_are_held_restores_them_and_the_next_agent_begins_anew() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = host(sim, &["/jobs/a", "/jobs/b"], TWO);
        world.spawn("/jobs/a", Load::busy(4).with_working_set(64 * MIB));
        is_killed_twice_and_restored(&mut world);
    }
}

#[test]
fn a_cgroup_that_goes_and_comes_is_found_again() {
    let mut world = unified(&["/jobs/b"], TWO);
    world.start().unwrap();
    let status = world.ticks(3);
    let missing = "a: the cgroup /jobs/a is not there: it is shared with once it is";
    assert_eq!(status.findings, [missing]);
    for round in 0..3 {
        make(&world, "/jobs/a");
        let before = snapshot(&world.host);
        let pid = world.spawn("/jobs/a", Load::busy(4));
        let status = world.ticks(12);
        assert_eq!(status.findings, [""; 0], "round {round}");
        assert_eq!(world.file("jobs/a/memory.max"), (2 * GIB).to_string(), "round {round}");
        assert!(tenant(&status, "a").usage[CPU].unwrap() > 1.0, "round {round}");
        if round == 2 {
            world.host.with(|kernel| kernel.kill(pid)).unwrap();
            world.stop();
            let after = snapshot(&world.host);
            let jobs = |of: &super::world::Snapshot| -> super::world::Snapshot {
                let inside = of.iter().filter(|(path, _)| path.contains("/jobs/a"));
                inside.map(|(path, text)| (path.clone(), text.clone())).collect()
            };
            assert_same(&jobs(&before), &jobs(&after), "stopped");
            break;
        }
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
        remove(&world, "/jobs/a");
        assert_eq!(said(&world.tick(), "a: ").len(), 1);
        assert_eq!(world.ticks(2).findings, [missing]);
    }
}

#[test]
fn foreign_values_are_repaired_or_accepted() {
    for accepts in [false, true] {
        let more = if accepts { "control: { on_drift: accept }\n" } else { "" };
        let mut world = unified(&["/jobs/a", "/jobs/b"], &format!("{more}{TWO}"));
        world.write("jobs/a/cpu.weight", "70");
        world.start().unwrap();
        world.ticks(5);
        let ours = world.file("jobs/a/cpu.weight");
        world.write("jobs/a/cpu.weight", "555");
        let status = world.ticks(12);
        assert_eq!(status.nr_drift, 1);
        let held = world.file("jobs/a/cpu.weight");
        assert_eq!(held, if accepts { "555".to_string() } else { ours });
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(world.file("jobs/a/cpu.weight"), if accepts { "555" } else { "70" });
    }
}

#[test]
fn a_reload_gives_back_what_it_takes_away() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = host(sim, &["/jobs/a", "/jobs/b", "/else"], TWO);
        let whole = snapshot(&world.host);
        for path in ["/jobs/a", "/jobs/b", "/else"] {
            world.spawn(path, Load::busy(4).with_working_set(64 * MIB));
        }
        let before = snapshot(&world.host);
        let of = |part: &str, world: &World| {
            let now = snapshot(&world.host);
            let part = now.into_iter().filter(|(path, _)| path.contains(part));
            part.collect::<super::world::Snapshot>()
        };
        let jobs = of("/jobs", &world);
        world.start().unwrap();
        world.ticks(8);
        // A limit that the policy no longer names.
        let unlimited = TWO.replace("limit: { memory: 2GiB }, ", "");
        reload(&mut world, &unlimited);
        let limits = |of: &super::world::Snapshot| -> super::world::Snapshot {
            let limits = of.iter().filter(|(path, _)| {
                path.ends_with("memory.max") || path.ends_with("memory.limit_in_bytes")
            });
            limits.map(|(path, text)| (path.clone(), text.clone())).collect()
        };
        assert_same(&limits(&whole), &limits(&snapshot(&world.host)), "without a limit");
        world.ticks(3);
        // Both tenants, and with them what is above.
        reload(&mut world, "tenants: { c: { match: { cgroup: /else } } }");
        assert_same(&jobs, &of("/jobs", &world), "without the tenants");
        world.ticks(3);
        assert_same(&jobs, &of("/jobs", &world), "later");
        // A tenant that is moved from now on, and again in place.
        reload(&mut world, "tenants: { c: { match: { cgroup: /else, move: true } } }");
        world.ticks(6);
        assert!(of("/c", &world).keys().any(|path| path.ends_with("/c")));
        reload(&mut world, "tenants: { c: { match: { cgroup: /else } } }");
        world.ticks(2);
        assert!(!of("/c", &world).keys().any(|path| path.ends_with("/c")));
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

#[test]
fn an_observer_measures_and_writes_nothing() {
    let mut world = unified(&["/jobs/a", "/jobs/b"], &format!("mode: observe\n{TWO}"));
    world.spawn("/jobs/a", Load::busy(2));
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(5);
    assert!(tenant(&status, "a").usage[CPU].unwrap() > 1.5);
    let planned: Vec<&str> = status.actions.iter().map(|action| &*action.path).collect();
    assert!(planned.contains(&"/sys/fs/cgroup/jobs/a/memory.max"), "{planned:?}");
    assert_same(&before, &snapshot(&world.host), "observed");
}

/// What is in a cgroup in place is its tenant's, whoever owns the processes.
#[test]
fn no_process_is_claimed_out_of_a_cgroup_in_place() {
    let yaml = format!("{TWO}  ana: {{ match: {{ users: [ 1000, 1001 ], move: true }} }}\n");
    let mut world = unified(&["/jobs/a/inside", "/jobs/b", "/home"], &yaml);
    world.options.root = Some("/tenants".into());
    let spawn = |path: &str| {
        let workload = Workload::constant("load", Load::idle()).owned_by(1000);
        world.host.with(|kernel| kernel.spawn(path, workload)).unwrap()
    };
    let pids = ["/jobs/a/inside", "/home"].map(spawn);
    world.start().unwrap();
    let status = world.ticks(7);
    assert_eq!((status.nr_moves, status.findings), (1, vec![]));
    let places = pids.map(|pid| world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap());
    assert_eq!(places, ["/jobs/a/inside", "/tenants/ana"]);
    world.stop();
}

#[test]
fn a_cgroup_of_the_agents_own_is_refused() {
    for (path, why) in [
        ("/tenants", "holds the agent itself or the cgroups that it makes"),
        ("/tenants/made/inside", "is in /sys/fs/cgroup/tenants/made, which the agent makes"),
        ("/tenants/tenantd.agent", "is in /sys/fs/cgroup/tenants/tenantd.agent"),
    ] {
        let yaml = format!("tenants: {{ made: {{}}, a: {{ match: {{ cgroup: {path} }} }} }}");
        let mut world = unified(&[], &yaml);
        world.options.root = Some("/tenants".into());
        world.start().unwrap();
        let status = world.ticks(3);
        assert_eq!(said(&status, why).len(), 1, "{path}: {:?}", status.findings);
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

#[test]
fn sets_of_cpus_are_written_in_place_and_restored() {
    for (layout, set) in
        [(Layout::Unified, "jobs/a/cpuset.cpus"), (Layout::Legacy, "cpuset/jobs/a/cpuset.cpus")]
    {
        let sim = SimHost { cpus: 4, layout, ..SimHost::default() };
        let yaml = TWO.replace("weight: 300", "weight: 300, cpus: \"1\"");
        let mut world = host(sim, &["/jobs/a", "/jobs/b"], &yaml);
        if layout == Layout::Legacy {
            for (file, value) in [
                ("cpuset/jobs/cpuset.cpus", "0-3"),
                ("cpuset/jobs/cpuset.mems", "0"),
                ("cpuset/jobs/a/cpuset.cpus", "0-2"),
                ("cpuset/jobs/a/cpuset.mems", "0"),
            ] {
                world.write(file, value);
            }
        }
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(6);
        assert_eq!(world.file(set), "1", "{layout:?}");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), &format!("{layout:?}"));
    }
}

// --- what is above ---

const ACROSS: &str = "\
tenants:
  a: { weight: 300, match: { cgroup: /x/deep/a } }
  b: { match: { cgroup: /y/b } }
";

fn across(sim: SimHost, yaml: &str) -> World {
    let world = host(sim, &["/x/deep/a", "/x/deep/other", "/y/b", "/z"], yaml);
    for path in ["/x/deep/a", "/y/b"] {
        world.spawn(path, Load::busy(4).with_working_set(128 * MIB));
    }
    world
}

#[test]
fn what_is_above_is_weighed_and_protected_in_files() {
    let mut world = across(SimHost::default(), ACROSS);
    world.write("x/cpu.weight", "60");
    world.write("x/memory.low", &GIB.to_string());
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(20);
    assert_eq!(status.findings, [""; 0]);
    let weights = ["x/cpu.weight", "y/cpu.weight"].map(|file| number(&world, file));
    assert!((155..=165).contains(&weights.iter().sum::<u64>()), "{weights:?}");
    let shares = used(&status);
    assert!((shares[0] / shares[1] - 3.0).abs() < 0.2, "{shares:?}");
    let low = ["x/deep/a", "x/deep", "x"].map(|dir| number(&world, &format!("{dir}/memory.low")));
    assert!(low[0] > 100 * MIB && low[1] >= low[0] && low[2] >= GIB + low[0], "{low:?}");
    for file in ["z/cpu.weight", "x/deep/other/cpu.weight"] {
        assert_eq!(world.file(file), "100", "{file}");
    }
    let trace = world.agent.as_ref().unwrap().trace();
    let explained = explain::explain(trace, &status, "a").unwrap();
    let above: Vec<&str> = explained.above.iter().map(|above| &*above.unit).collect();
    assert_eq!(above, ["/x/deep", "/x"]);
    let path = "/sys/fs/cgroup/x/cpu.weight";
    assert!(explained.above[1].values.iter().any(|value| value.path == path), "{explained:#?}");
    // Somebody else sets what is above: repaired in the next tick, and never the weight before the agent.
    world.write("x/cpu.weight", "1000");
    assert_eq!(world.tick().nr_drift, 1);
    world.ticks(3);
    assert_eq!(number(&world, "x/cpu.weight"), weights[0]);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "stopped");
}

#[test]
fn a_legacy_host_weighs_what_is_above_and_protects_nothing_there() {
    let mut world = across(legacy(), ACROSS);
    world.write("cpu/x/cpu.shares", "600");
    world.write("memory/x/memory.soft_limit_in_bytes", &MIB.to_string());
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(20);
    assert_eq!(status.findings, [""; 0]);
    let shares = used(&status);
    assert!((shares[0] / shares[1] - 3.0).abs() < 0.2, "{shares:?}");
    let sum: u64 =
        ["x", "y"].map(|dir| number(&world, &format!("cpu/{dir}/cpu.shares"))).iter().sum();
    assert!((1580..=1670).contains(&sum), "{sum}");
    assert_eq!(number(&world, "cpu/z/cpu.shares"), 1024);
    let is_above = |path: &&String| {
        path.contains("soft_limit") && !path.contains("/a/") && !path.contains("/b/")
    };
    assert_eq!(changed(&world).iter().find(is_above), None);
    world.kill();
    assert_eq!(world.restore().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "restored");
}

#[test]
fn ancestors_are_left_where_the_policy_says_so() {
    let mut world =
        across(SimHost::default(), &format!("control: {{ ancestors: leave }}\n{ACROSS}"));
    world.start().unwrap();
    let status = world.ticks(12);
    for what in ["cpu weights are ineffective between a and b", "memory.low is ineffective"] {
        assert!(!said(&status, what).is_empty(), "{what}: {:?}", status.findings);
    }
    for file in ["x/cpu.weight", "x/deep/cpu.weight", "y/cpu.weight"] {
        assert_eq!(world.file(file), "100", "{file}");
    }
    assert_eq!(world.file("x/memory.low"), "0");
}

/// Tenants that the agent makes are beside one in place: the root is weighed against it.
#[test]
fn tenants_that_are_made_are_weighed_beside_one_in_place() {
    for sim in [SimHost::default(), legacy()] {
        let yaml = "tenants: { made: { weight: 300 }, b: { match: { cgroup: /y/b } } }";
        let mut world = host(sim, &["/y/b"], yaml);
        world.options.root = Some("/tenants".into());
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(3);
        let pids = ["/tenants/made", "/y/b"].map(|path| world.spawn(path, Load::busy(4)));
        let status = world.ticks(12);
        assert_eq!(status.findings, [""; 0]);
        let shares = used(&status);
        assert!((shares[0] / shares[1] - 3.0).abs() < 0.2, "{shares:?}");
        pids.into_iter().for_each(|pid| world.host.with(|kernel| kernel.kill(pid)).unwrap());
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

/// A group of two in place, at the top, has its weight and not that of two.
#[test]
fn a_group_in_place_is_weighed_as_the_policy_nests_it() {
    let yaml = "\
tenants:
  one: { match: { cgroup: /one } }
  two: { tenants: { a: { match: { cgroup: /a } }, b: { match: { cgroup: /b } } } }
";
    let mut world = unified(&["/one", "/a", "/b"], yaml);
    for path in ["/one", "/a", "/b"] {
        world.spawn(path, Load::busy(4));
    }
    world.start().unwrap();
    let status = world.ticks(10);
    let (shares, all) = (used(&status), used(&status).iter().sum::<f64>());
    let parts: Vec<f64> = shares.iter().map(|cores| cores / all).collect();
    assert_near(&parts, &[0.5, 0.25, 0.25], 0.03);
}

// --- beside systemd ---

/// One owner for each file: what systemd made is changed through systemd.
#[test]
fn a_cgroup_of_a_unit_is_that_unit() {
    let yaml = "\
tenants:
  web: { weight: 300, match: { cgroup: /system.slice/web.service } }
  box: { match: { cgroup: /system.slice/engine.service/boxes/one } }
  twice: { match: { unit: db.service } }
  again: { match: { cgroup: /system.slice/db.service } }
";
    let policy = tenantd_policy::load_text("policy.yaml", &format!("version: 1\n{yaml}"));
    assert!(policy.is_err(), "one cgroup for two tenants");
    let yaml = &yaml[..yaml.find("  twice").unwrap()];
    let mut world = World::new(yaml);
    world.host.systemd(|systemd, kernel| {
        for name in ["web", "engine", "db"] {
            let unit = format!("{name}.service");
            systemd.add(kernel, &unit, &format!("/system.slice/{unit}"));
        }
    });
    make(&world, "/system.slice/engine.service/boxes/one");
    for path in ["/system.slice/web.service", "/system.slice/engine.service/boxes/one"] {
        world.spawn(path, Load::busy(4).with_working_set(64 * MIB));
    }
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(20);
    assert_eq!(status.findings, [""; 0]);
    let shares = used(&status);
    assert!((shares[0] / shares[1] - 3.0).abs() < 0.3, "{shares:?}");
    // Those below a service are files, and those of units are changed by systemd alone.
    let written = changed(&world);
    for (path, is_ours) in [
        ("engine.service/boxes/one/memory.low", true),
        ("engine.service/boxes/memory.low", true),
        ("engine.service/cpu.weight", false),
        ("web.service/cpu.weight", false),
    ] {
        let path = format!("/sys/fs/cgroup/system.slice/{path}");
        assert_eq!(written.contains(&path), is_ours, "{path}");
        let before = &before[&path];
        assert_ne!(*before, world.host.with(|kernel| kernel.file(&path)).unwrap(), "{path}");
    }
    assert_eq!(world.stop().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "stopped");
}

/// On a legacy host a cgroup may be in some hierarchies only.
#[test]
fn a_cgroup_that_is_in_some_hierarchies_only_is_weighed_there() {
    let mut world = host(legacy(), &["/jobs/b"], TWO);
    for tree in ["cpu", "cpuacct", "unified"] {
        world.host.with(|kernel| {
            let dir =
                kernel.open_dir(&Path::new("/sys/fs/cgroup").join(tree).join("jobs")).unwrap();
            kernel.make_dir(dir, "a").unwrap();
            kernel.close_dir(dir);
        });
    }
    world.start().unwrap();
    let status = world.ticks(8);
    let what = "a: its cgroup is not in the hierarchy of memory: nothing of that is enforced; make it there as well";
    assert_eq!((status.actions, status.findings), (vec![], vec![what.to_string()]));
    assert_ne!(number(&world, "cpu/jobs/a/cpu.shares"), 1024);
}
