//! Tenants of several cgroups in place, by path and by pattern, which come and go.

use tenantd_control::why::explain::explain;
use tenantd_host::kernfs::Operation;
use tenantd_policy::pattern;

use super::super::world::Snapshot;
use super::*;

const POLICY: &str = "\
tenants:
  batch: { weight: 300, limit: { memory: 2GiB }, match: { cgroup: [ /jobs/named, \"/jobs/run-*\" ] } }
  other: { match: { cgroup: /other } }
";

fn busy(world: &World, path: &str) -> u32 {
    world.spawn(path, Load::busy(8).with_working_set(64 * MIB))
}

fn kill(world: &World, pid: u32) {
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

fn journal_lines(world: &World) -> usize {
    std::fs::read_to_string(world.state_dir().join("journal")).unwrap().lines().count()
}

fn members(world: &World, tenant: &str) -> Vec<String> {
    let agent = world.agent.as_ref().unwrap();
    let explained = explain(agent.trace(), agent.status(), tenant).unwrap();
    explained.members.into_iter().map(|member| member.cgroup).collect()
}

fn limits(world: &World, dirs: &[&str]) -> Vec<u64> {
    dirs.iter().map(|dir| number(world, &format!("{dir}/memory.max"))).collect()
}

/// The snapshot of what is below `dir` in any hierarchy.
fn below(dir: &str, of: &Snapshot) -> Snapshot {
    let inside = of.iter().filter(|(path, _)| path.contains(dir));
    inside.map(|(path, text)| (path.clone(), text.clone())).collect()
}

#[test]
fn several_cgroups_have_one_share_where_they_are() {
    for sim in [SimHost::default(), legacy()] {
        let is_unified = sim.layout == Layout::Unified;
        let paths = ["/jobs/named", "/jobs/run-1", "/jobs/run-2/inside", "/jobs/not", "/other"];
        let mut world = host(sim, &paths, POLICY);
        let load = |path: &&str| if path.ends_with("not") { Load::idle() } else { Load::busy(8) };
        let pids: Vec<u32> = paths
            .iter()
            .map(|path| world.spawn(path, load(path).with_working_set(64 * MIB)))
            .collect();
        let before = snapshot(&world.host);
        world.start().unwrap();
        let status = world.ticks(20);
        assert_eq!(status.findings, [""; 0]);
        assert_eq!(members(&world, "batch"), ["/jobs/named", "/jobs/run-1", "/jobs/run-2"]);
        let [batch, other] = used(&status)[..] else { panic!("{status:?}") };
        // Beside them is one that is nobody's.
        assert!((batch / other - 3.0).abs() < 0.2, "{batch} {other}");
        if is_unified {
            let limits = limits(&world, &["jobs/named", "jobs/run-1", "jobs/run-2"]);
            assert_eq!(limits.iter().sum::<u64>() / MIB, 2047, "{limits:?}");
        }
        let places: Vec<String> = pids.iter().map(|pid| place(&world, *pid)).collect();
        assert_eq!((places, status.nr_moves), (paths.map(str::to_string).to_vec(), 0));
        for made in changed(&world) {
            assert!(!made.contains("inside") && !made.contains("/not/"), "{made}");
        }
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

#[test]
fn cgroups_come_and_go_without_a_reload() {
    let mut world = unified(&["/jobs", "/other"], POLICY);
    busy(&world, "/other");
    world.start().unwrap();
    let status = world.ticks(3);
    let missing = "the cgroup /jobs/named is not there: it is shared with once it is";
    assert_eq!(status.findings, [format!("batch[/jobs/named]: {missing}")]);
    make(&world, "/jobs/run-1");
    let pid = busy(&world, "/jobs/run-1");
    // It is opened in the tick in which it is found.
    world.tick();
    assert_eq!(members(&world, "batch"), ["/jobs/named", "/jobs/run-1"]);
    let status = world.ticks(8);
    assert!(tenant(&status, "batch").usage[CPU].unwrap() > 2.5, "{status:?}");
    assert_eq!(limits(&world, &["jobs/run-1"]), [GIB]);
    // A named one comes, and shares the limit with it.
    make(&world, "/jobs/named");
    busy(&world, "/jobs/named");
    world.ticks(12);
    assert_eq!(limits(&world, &["jobs/named", "jobs/run-1"]), [GIB, GIB]);
    let used = tenant(&world.tick(), "batch").cpu_usage_seconds.unwrap();
    kill(&world, pid);
    remove(&world, "/jobs/run-1");
    // Whoever ends a job is told nothing of it; what it used counts.
    let status = world.ticks(5);
    assert_eq!(status.findings, [""; 0]);
    let status = world.ticks(40);
    assert_eq!(members(&world, "batch"), ["/jobs/named"]);
    assert!(tenant(&status, "batch").cpu_usage_seconds.unwrap() > used);
    assert_eq!(limits(&world, &["jobs/named"]), [2 * GIB]);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_kill_leaves_what_the_next_agent_restores() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = host(sim, &["/jobs/named", "/jobs/run-1", "/other"], POLICY);
        busy(&world, "/jobs/run-1");
        is_killed_twice_and_restored(&mut world);
    }
}

#[test]
fn a_reload_gives_back_what_is_no_member_any_more() {
    for sim in [SimHost::default(), legacy()] {
        let mut world = host(sim, &["/jobs/named", "/jobs/run-1", "/jobs/run-2", "/other"], POLICY);
        let paths = ["/jobs/named", "/jobs/run-1", "/jobs/run-2", "/other"];
        world.options.root = Some("/tenants".into());
        let pids = paths.map(|path| busy(&world, path));
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(8);
        let other = POLICY.replace("[ /jobs/named, \"/jobs/run-*\" ]", "[ \"/jobs/run-2*\" ]");
        reload(&mut world, &other);
        world.ticks(40);
        let now = snapshot(&world.host);
        for dir in ["/jobs/named/", "/jobs/run-1/"] {
            assert_same(&below(dir, &before), &below(dir, &now), dir);
        }
        assert!(below("/jobs/run-2/", &before) != below("/jobs/run-2/", &now));
        // Moved from now on, and again in place.
        reload(&mut world, &other.replace("] } }", "], move: true } }"));
        world.ticks(6);
        assert_eq!(place(&world, pids[2]), "/tenants/batch");
        reload(&mut world, POLICY);
        world.ticks(6);
        assert_eq!(pids.map(|pid| place(&world, pid)), paths);
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

/// What is below a match belongs to it, at any depth.
#[test]
fn any_number_of_names_is_between_two() {
    let yaml = "tenants: { pods: { match: { cgroup: \"/pods/**/pod*\" } } }";
    let mut world =
        unified(&["/pods/pod1", "/pods/burst/pod2/pod3", "/pods/a/b/pod4", "/pod5"], yaml);
    world.start().unwrap();
    world.ticks(2);
    assert_eq!(members(&world, "pods"), ["/pods/a/b/pod4", "/pods/burst/pod2", "/pods/pod1"]);
    assert_eq!(world.stop().failures, [""; 0]);
}

/// Beside systemd a pattern finds units where systemd made the cgroup, and units and cgroups are one tenant.
#[test]
fn units_and_cgroups_are_one_tenant() {
    let yaml = "\
tenants:
  ci:
    weight: 300
    match:
      unit: ci.service
      cgroup:
        - /ci.slice/runner@*.service
        - /ci.slice/ci.service/jobs/*
        - /ci.slice/engine.service/box-*
  web: { match: { unit: web.service } }
";
    let mut world = World::new(yaml);
    world.host.systemd(|systemd, kernel| {
        for name in ["ci", "runner@1", "runner@2", "engine", "web"] {
            let unit = format!("{name}.service");
            systemd.add(kernel, &unit, &format!("/ci.slice/{unit}"));
        }
    });
    make(&world, "/ci.slice/engine.service/box-1");
    make(&world, "/ci.slice/ci.service/jobs/1");
    for path in ["runner@1.service", "engine.service/box-1", "ci.service/jobs/1", "web.service"] {
        busy(&world, &format!("/ci.slice/{path}"));
    }
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(20);
    assert_eq!(status.findings, [""; 0]);
    let expected =
        ["ci.service", "runner@1.service", "runner@2.service", "/ci.slice/engine.service/box-1"];
    // What is inside of a member is part of it.
    assert_eq!(members(&world, "ci"), expected);
    let shares = used(&status);
    assert!((shares[0] / shares[1] - 3.0).abs() < 0.3, "{shares:?}");
    // Files of units are systemd's.
    let written = changed(&world);
    for (path, is_ours) in [
        ("engine.service/box-1/memory.low", true),
        ("engine.service/memory.low", false),
        ("runner@1.service/memory.low", false),
    ] {
        let path = format!("/sys/fs/cgroup/ci.slice/{path}");
        assert_eq!(written.contains(&path), is_ours, "{path}");
        assert_ne!(before[&path], world.host.with(|kernel| kernel.file(&path)).unwrap(), "{path}");
    }
    assert_eq!(world.stop().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "stopped");
}

#[test]
fn what_cannot_be_a_member_is_reported_and_the_others_are() {
    let holds = "/sys/fs/cgroup/tenants holds the agent itself or the cgroups that it makes: name one beside it";
    let is_in = "/sys/fs/cgroup/tenants/made/x is in /sys/fs/cgroup/tenants/made, which the agent makes: a tenant has \
                 no other inside";
    for (path, why) in [("/ten*", holds), ("/tenants/made/x", is_in)] {
        let matched = format!("match: {{ cgroup: [ \"/top-*\", \"{path}\" ] }}");
        let yaml = format!("tenants: {{ made: {{}}, all: {{ {matched} }} }}");
        let mut world = unified(&["/top-1"], &yaml);
        world.options.root = Some("/tenants".into());
        world.start().unwrap();
        let status = world.ticks(3);
        assert_eq!(said(&status, "all:"), [&format!("all: {why}")]);
        assert_eq!(members(&world, "all"), ["/top-1"]);
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// A name that would change the contents of a terminal is shown with escapes.
#[test]
fn hostile_names_are_escaped() {
    let mut world = unified(&["/jobs/named", "/other"], POLICY);
    for name in ["run-\u{1b}[2J", "run-\u{7}", "run-\u{9b}1m", "run-ok"] {
        make(&world, &format!("/jobs/{name}"));
    }
    world.start().unwrap();
    world.ticks(2);
    let escaped = ["/jobs/run-\\x07", "/jobs/run-\\x1b[2J", "/jobs/run-\\xc2\\x9b1m"];
    let [bell, clear, csi] = escaped;
    assert_eq!(members(&world, "batch"), ["/jobs/named", bell, clear, csi, "/jobs/run-ok"]);
    assert_eq!(world.stop().failures, [""; 0]);
}

/// Jobs that come and go leave nothing behind: no member, no cgroup above, no line in the journal.
#[test]
fn a_thousand_jobs_leave_nothing() {
    let yaml = "tenants: { jobs: { match: { cgroup: \"/jobs/*/job\" } }, other: {} }";
    let mut world = unified(&["/jobs"], yaml);
    world.options.root = Some("/tenants".into());
    world.start().unwrap();
    world.ticks(40);
    let (status, before) = (world.tick(), journal_lines(&world));
    for round in 0..100 {
        let paths: Vec<String> = (0..10).map(|n| format!("/jobs/{round}-{n}/job")).collect();
        paths.iter().for_each(|path| make(&world, path));
        world.ticks(2);
        assert!(members(&world, "jobs").contains(&paths[9]), "{round}");
        for path in paths {
            remove(&world, &path);
            remove(&world, path.strip_suffix("/job").unwrap());
        }
    }
    world.ticks(70);
    assert_eq!(members(&world, "jobs"), [""; 0]);
    let agent = world.agent.as_ref().unwrap();
    // That of the tenants which are made.
    assert_eq!(agent.trace().tree.ancestors().count(), 1, "{:?}", agent.trace().tree);
    let after = world.tick();
    assert_eq!((&after.findings, after.actions.len()), (&status.findings, 0));
    let lines = journal_lines(&world);
    assert!(lines < before + 300, "{before} {lines}");
    assert_eq!(world.stop().failures, [""; 0]);
}

/// Makes `nr` cgroups in each of `nr` cgroups.
fn make_many(world: &World, nr: usize) {
    for n in 0..nr {
        make(world, &format!("/pods/{n}"));
        (0..nr).for_each(|m| make(world, &format!("/pods/{n}/{m}")));
    }
}

/// Many cgroups of one tenant are looked through a few at a time, and those of others are found meanwhile.
#[test]
fn the_work_of_a_tick_is_bounded() {
    let yaml = "\
tenants:
  pods: { match: { cgroup: \"/pods/**/pod*\" } }
  other: { match: { cgroup: \"/other/*\" } }
";
    let mut world = unified(&["/pods", "/other"], yaml);
    make_many(&world, 30);
    let lists = |world: &World| {
        let calls = world.host.take_calls();
        calls.iter().filter(|call| call.operation == Operation::List).count()
    };
    world.start().unwrap();
    world.host.take_calls();
    let mut nr_all = 0;
    for tick in 0..50 {
        if tick == 3 {
            make(&world, "/other/a");
            make(&world, "/pods/29/29/pod1");
        }
        world.tick();
        let nr = lists(&world);
        // The processes are listed as well.
        assert!(nr <= 64 + 2, "{nr} in tick {tick}");
        nr_all += nr;
        if tick == 3 {
            assert_eq!(members(&world, "other"), ["/other/a"]);
        }
    }
    assert!(nr_all > 930, "{nr_all}");
    assert_eq!(members(&world, "pods"), ["/pods/29/29/pod1"]);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn a_pattern_has_a_thousand_members_at_most() {
    let yaml = "tenants: { all: { match: { cgroup: \"/pods/*/*\" } } }";
    let mut world = unified(&["/pods"], yaml);
    make_many(&world, 32);
    world.start().unwrap();
    let status = world.tick();
    assert_eq!((members(&world, "all").len(), status.findings), (64, vec![]));
    let status = world.ticks(17);
    assert_eq!(members(&world, "all").len(), 1000);
    let said = said(&status, "/pods/*/* matches 24 cgroups more than 1000");
    assert_eq!(said.len(), 1, "{:?}", status.findings);
    assert_eq!(world.stop().failures, [""; 0]);
}

#[test]
fn patterns_with_any_number_of_names_claim_and_overlap() {
    for (pattern, path, expected) in [
        ("/a/**/b", "/a/b", true),
        ("/a/**/b", "/a/x/y/b/c", true),
        ("/a/**/b", "/a/x/y", false),
        ("/**/b*/c", "/b/b1/c", true),
        ("/a/**/b/**/c", "/a/b/x/b/c", true),
    ] {
        assert_eq!(pattern::claims(pattern, path), expected, "{pattern} {path}");
    }
    for (a, b, expected) in [
        ("/a", "/a/**/b", true),
        ("/a/*", "/a/**/b", true),
        ("/a/x/y", "/a/**/b", false),
        ("/a/**/x*", "/a/**/*y", true),
        ("/a/**/x*", "/a/**/y*", false),
        ("/a/**/x", "/b/**/x", false),
        ("/a/**/b/c", "/a/x/y/b/c", true),
        ("/**/b", "/a/b", true),
    ] {
        assert_eq!(pattern::overlap(a, b, &mut 0), expected, "{a} {b}");
        assert_eq!(pattern::overlap(b, a, &mut 0), expected, "{b} {a}");
    }
}
