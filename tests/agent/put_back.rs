//! What is put back at the end, where the kernel minds the order, or others were at work meanwhile.

use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use tenantd::recovery::restored::Restored;
use tenantd_host::kernfs::{KernFs, Operation};
use tenantd_sim::{Fault, Load, SimHost, SimKernel};

use super::reload::reload;
use super::world::{World, assert_same, legacy, snapshot};

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
fn nested_quotas_are_restored_in_one_pass_in_any_order() {
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
                assert_eq!(world.end(killed).failures, [""; 0], "{context}");
                assert_same(&before, &snapshot(&world.host), &context);
                assert!(!world.state_dir().join("journal").exists(), "{context}");
            }
        }
    }
}

/// What an administrator sets above or below meanwhile, where the agent's value lets it, holds afterwards.
#[test]
fn a_quota_that_others_have_bounded_since_is_fitted_and_said() {
    let free = ("ci", "100000", "-1");
    let above = [free, ("ci/a", "50000", "200000"), ("ci/b", "100000", "10000")];
    let below = [("ci", "100000", "20000"), ("ci/a", "100000", "10000"), ("ci/b", "100000", "-1")];
    let cases = [
        (
            above,
            "{ tenants: { a: { limit: { cpu: 100m } }, b: {} } }",
            ["ci", "20000", "ci/a", "10000"],
        ),
        (
            below,
            "{ limit: { cpu: 2 }, tenants: { a: {}, b: {} } }",
            ["ci/a", "60000", "ci", "60000"],
        ),
    ];
    for (values, ci, [set, quota, fitted, fits]) in cases {
        for killed in [false, true] {
            let mut world = with_quotas(values, &format!("tenants: {{ ci: {ci} }}"));
            world.start().unwrap();
            world.ticks(6);
            world.write(&format!("cpu/{set}/cpu.cfs_quota_us"), quota);
            let restored = world.end(killed);
            assert_eq!(restored.failures, [""; 0]);
            assert!(!world.state_dir().join("journal").exists());
            let pair = |path: &str| {
                ["cpu.cfs_period_us", "cpu.cfs_quota_us"]
                    .map(|file| world.file(&format!("cpu/{path}/{file}")))
            };
            let held = values.iter().find(|value| value.0 == fitted).unwrap();
            assert_eq!(pair(fitted), [held.1, fits]);
            assert_eq!(pair("ci/b"), [values[2].1, values[2].2], "what fits is back");
            let said = &restored.remarks()[..];
            let [said] = said else { panic!("{said:?}") };
            assert!(said.contains(&format!("cpu/{fitted}: the CPU quota is {fits} of")), "{said}");
        }
    }
}

/// A reload gives back a part, and the agent's own limit above stays: that is no bound of others.
#[test]
fn a_quota_below_a_limit_that_stays_in_a_reload_is_owed_until_the_stop() {
    let values =
        [("ci", "100000", "300000"), ("ci/a", "100000", "250000"), ("ci/b", "100000", "-1")];
    let policy = |a: &str| {
        format!("tenants: {{ ci: {{ limit: {{ cpu: 500m }}, tenants: {{ a: {a}, b: {{}} }} }} }}")
    };
    let mut world = with_quotas(values, &policy("{ limit: { cpu: 400m } }"));
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(6);
    assert_eq!(reload(&mut world, &policy("{}")).unwrap().len(), 1);
    world.ticks(6);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "in the end");
}

/// Where the bound is the agent's own value, which could not be given back, the old value is owed.
#[test]
fn a_quota_below_one_that_is_owed_is_owed_too() {
    let values =
        [("ci", "100000", "300000"), ("ci/a", "100000", "250000"), ("ci/b", "100000", "-1")];
    let yaml = "tenants: { ci: { limit: { cpu: 500m }, tenants: { a: { limit: { cpu: 400m } }, b: {} } } }";
    let mut world = with_quotas(values, yaml);
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(6);
    world.kill();
    world.host.inject(Fault::matching(Operation::Write, "cpu/ci/cpu.cfs_quota_us", Errno::EIO));
    let restored = world.restore();
    assert_eq!((restored.failures.len(), restored.remarks().len()), (2, 0), "{restored:?}");
    world.host.heal();
    assert_eq!(world.restore().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "in the end");
}

/// A host without systemd, with processes in `/build` and `/home` that the policy claims and `/elsewhere`.
fn with_claims(host: SimHost) -> (World, Vec<u32>) {
    let mut kernel = SimKernel::new(host);
    ["/build", "/home", "/elsewhere"].iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    let places = ["/build", "/build", "/build", "/home"];
    let pids = places.map(|path| kernel.spawn(path, Load::idle()).unwrap()).to_vec();
    let yaml = "tenants: { ci: { match: { cgroup: /build, move: true } }, home: { match: { cgroup: /home, move: true } } }";
    let mut world = World::with(kernel, yaml);
    world.options.root = Some("/tenants".into());
    world.host.without_systemd();
    (world, pids)
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

/// Moves `pid` to `path` in the trees that `trees` names by their files' prefix.
fn administrate(world: &World, trees: &[&str], path: &str, pid: u32) {
    for tree in trees {
        world.write(&format!("{tree}{path}/cgroup.procs"), &pid.to_string());
    }
}

/// A tenant makes the cgroup `name` below its own.
fn divide(world: &World, path: &str, name: &str) {
    world.host.with(|kernel| {
        let dir = kernel.open_dir(&Path::new("/sys/fs/cgroup").join(path)).unwrap();
        kernel.make_dir(dir, name).unwrap();
        kernel.close_dir(dir);
    });
}

/// Where an administrator has put a process since, there it stays.
#[test]
fn a_process_that_was_moved_since_is_not_moved_back() {
    let trees: [&[&str]; 2] = [&[""], &["cpu/", "cpuacct/", "memory/", "blkio/", "unified/"]];
    for (host, trees) in [SimHost::default(), legacy()].into_iter().zip(trees) {
        for killed in [false, true] {
            let (mut world, pids) = with_claims(host.clone());
            world.start().unwrap();
            world.ticks(2);
            let [moved, stays, inside, home] = pids[..] else { panic!("{pids:?}") };
            assert_eq!(place(&world, moved), "/tenants/ci");
            let child = world.spawn("/tenants/ci", Load::idle());
            administrate(&world, trees, "elsewhere", moved);
            administrate(&world, trees, "elsewhere", child);
            trees.iter().for_each(|tree| divide(&world, &format!("{tree}tenants/ci"), "job"));
            administrate(&world, trees, "tenants/ci/job", inside);
            let restored = world.end(killed);
            let places = [moved, child, stays, inside, home].map(|pid| place(&world, pid));
            assert_eq!(places, ["/elsewhere", "/elsewhere", "/build", "/build", "/home"]);
            assert_eq!(restored.nr_processes, 3, "{restored:?}");
        }
    }
}

/// In one tree of several, which is as far as the move went.
#[test]
fn a_process_that_was_moved_in_one_tree_is_moved_back_in_the_others() {
    let (mut world, pids) = with_claims(legacy());
    world.start().unwrap();
    world.ticks(2);
    administrate(&world, &["memory/"], "elsewhere", pids[0]);
    assert_eq!(world.stop().failures, [""; 0]);
    let holds = |path: &str| world.file(path).lines().any(|pid| pid == pids[0].to_string());
    assert!(holds("memory/elsewhere/cgroup.procs"));
    assert!(holds("cpu/build/cgroup.procs"));
}

/// How much time passes on the host while `world` comes to its end, and what comes of it.
fn timed_end(world: &mut World, killed: bool) -> (Duration, Restored) {
    let now = |world: &World| world.host.with(|kernel| kernel.now());
    let before = now(world);
    let restored = world.end(killed);
    (now(world) - before, restored)
}

/// A process that is about to end keeps the kernel from removing its cgroup, and cannot be moved.
#[test]
fn a_stop_waits_for_processes_that_are_about_to_end() {
    for host in [SimHost::default(), legacy()] {
        for killed in [false, true] {
            let (mut world, _) = with_claims(host.clone());
            let before = snapshot(&world.host);
            world.start().unwrap();
            world.ticks(2);
            let dying = |path| Fault::matching(Operation::RemoveDir, path, Errno::EBUSY).times(4);
            ["tenants/ci", "tenants/home"].iter().for_each(|path| world.host.inject(dying(path)));
            let (waited, restored) = timed_end(&mut world, killed);
            assert_eq!(restored.failures, [""; 0]);
            assert_same(&before, &snapshot(&world.host), "put back");
            assert!(!waited.is_zero() && waited < Duration::from_millis(500), "{waited:?}");
        }
    }
}

/// For all cgroups together, and then the journal knows what is left.
#[test]
fn a_stop_has_a_deadline() {
    let tenants: Vec<String> = (0..50).map(|number| format!("t{number}: {{}}")).collect();
    let mut world = World::new(&format!("tenants: {{ {} }}", tenants.join(", ")));
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(2);
    world.host.inject(Fault::matching(Operation::RemoveDir, "", Errno::EBUSY));
    let (waited, restored) = timed_end(&mut world, false);
    assert_eq!(restored.failures.len(), 50, "{:?}", restored.failures);
    assert_eq!(waited, Duration::from_secs(1));
    world.host.heal();
    assert_eq!(world.restore().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "put back");
}

/// Cgroups that a tenant made inside its own go with it, once they are empty.
#[test]
fn empty_cgroups_that_a_tenant_made_are_removed_with_its_own() {
    for killed in [false, true] {
        let mut world = World::new("tenants: { a: {} }");
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(2);
        ["a", "a/job", "a/job"].iter().zip(["job", "step", "next"]).for_each(|(path, name)| {
            divide(&world, path, name);
        });
        let (waited, restored) = timed_end(&mut world, killed);
        assert_eq!((waited, restored.failures), (Duration::ZERO, vec![]));
        assert_same(&before, &snapshot(&world.host), "put back");
    }
}

/// The trees of these two hosts, in which tenants live, by their files' prefix.
const TREES: [&[&str]; 2] = [&[""], &["cpu/", "cpuacct/", "memory/", "blkio/", "unified/"]];

/// What was never claimed, and runs in a cgroup that the tenant made, is not torn out of it: the tenant's cgroup
/// stays, without the agent's values, until a later restore finds it empty. That is no failure.
#[test]
fn a_cgroup_that_its_tenant_divided_stays_until_it_is_empty() {
    for (host, trees) in [SimHost::default(), legacy()].into_iter().zip(TREES) {
        for killed in [false, true] {
            let limits =
                "tenants: { g: { tenants: { a: { limit: { cpu: 1, memory: 1GiB } } } }, b: {} }";
            let mut world = World::on(host.clone(), limits);
            let before = snapshot(&world.host);
            world.start().unwrap();
            world.ticks(2);
            trees.iter().for_each(|tree| divide(&world, &format!("{tree}g/a"), "job"));
            let inside = world.spawn("/g/a/job", Load::idle());
            if trees.len() == 1 {
                // As a container runtime does in what it was given.
                world.write("g/a/cgroup.subtree_control", "+memory");
            }
            let beside = world.spawn("/b", Load::idle());
            world.ticks(2);
            let (waited, restored) = timed_end(&mut world, killed);
            assert_eq!((waited, &restored.failures), (Duration::ZERO, &vec![]), "{killed}");
            let said = restored.left_message().unwrap();
            assert_eq!(said.matches("g/a").count(), trees.len(), "{said}");
            assert_eq!(said.matches(" in place").count(), 1, "{said}");
            assert_eq!(place(&world, inside), "/g/a/job");
            // What the tenant made keeps the memory controller in use, and no other.
            let (limit, none) = match trees.len() {
                1 => ("g/a/memory.max", "max"),
                _ => ("cpu/g/a/cpu.cfs_quota_us", "-1"),
            };
            assert_eq!(world.file(limit), none);
            // The next agent takes it up again, and leaves it again.
            world.start().unwrap();
            world.ticks(2);
            assert_eq!(world.stop().failures, [""; 0]);
            assert_eq!(place(&world, inside), "/g/a/job");
            for pid in [inside, beside] {
                world.host.with(|kernel| kernel.kill(pid)).unwrap();
            }
            let restored = world.restore();
            assert_eq!((restored.failures, restored.left), (vec![], vec![]));
            assert_same(&before, &snapshot(&world.host), "put back");
            assert!(!world.state_dir().join("journal").exists());
        }
    }
}

/// A stop that leaves a cgroup leaves what it has for its children in the journal as well, which is older than what the next
/// agent records of the cgroups above it.
#[test]
fn controllers_are_disabled_from_below_whichever_was_recorded_first() {
    for killed in [false, true] {
        let mut kernel = SimKernel::new(SimHost::default());
        kernel.make_cgroup("/top").unwrap();
        let mut world = World::with(kernel, "tenants: { g: { tenants: { p: {} } } }");
        divide(&world, "top", "t");
        world.options.root = Some("/top/t".into());
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(2);
        divide(&world, "top/t/g/p", "n");
        let beside = world.spawn("/top/t/g/p", Load::idle());
        let inside = world.spawn("/top/t/g/p/n", Load::idle());
        assert_eq!(world.stop().left, [Path::new("/sys/fs/cgroup/top/t/g/p")]);
        world.start().unwrap();
        world.ticks(2);
        world.host.with(|kernel| kernel.kill(inside)).unwrap();
        let restored = world.end(killed);
        assert_eq!((restored.failures, restored.left), (vec![], vec![]), "{killed}");
        assert_eq!(place(&world, beside), "/top/t");
        world.host.with(|kernel| kernel.kill(beside)).unwrap();
        assert_same(&before, &snapshot(&world.host), "put back");
    }
}

/// Processes of a tenant that claims go back to where the claimed ones came from, out of cgroups that they made
/// themselves as well.
#[test]
fn what_claimed_processes_started_in_cgroups_of_their_own_goes_back_with_them() {
    for (host, trees) in [SimHost::default(), legacy()].into_iter().zip(TREES) {
        for killed in [false, true] {
            let (mut world, pids) = with_claims(host.clone());
            let before = snapshot(&world.host);
            world.start().unwrap();
            world.ticks(2);
            trees.iter().for_each(|tree| divide(&world, &format!("{tree}tenants/ci"), "job"));
            let born = world.spawn("/tenants/ci/job", Load::idle());
            administrate(&world, trees, "tenants/ci/job", pids[0]);
            let restored = world.end(killed);
            assert_eq!((&restored.failures, &restored.left), (&vec![], &vec![]));
            assert_eq!([born, pids[0], pids[1]].map(|pid| place(&world, pid)), ["/build"; 3]);
            world.host.with(|kernel| kernel.kill(born)).unwrap();
            assert_same(&before, &snapshot(&world.host), "put back");
        }
    }
}

/// The agent enables cpu, memory, pids and io; what an administrator enabled before it is not its to disable.
#[test]
fn controllers_that_someone_else_enabled_stay_enabled() {
    for killed in [false, true] {
        let mut world = World::new("tenants: { a: {} }");
        world.options.root = Some("/tenants".into());
        world.host.with(|kernel| kernel.make_cgroup("/tenants").unwrap());
        world.write("cgroup.subtree_control", "+io");
        world.write("tenants/cgroup.subtree_control", "+io");
        world.start().unwrap();
        world.tick();
        assert_eq!(world.file("tenants/cgroup.subtree_control"), "cpu io memory pids");
        assert_eq!(world.end(killed).failures, [""; 0]);
        assert_eq!(world.file("tenants/cgroup.subtree_control"), "io");
    }
}
