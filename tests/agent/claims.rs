//! Processes that a tenant claims are moved, with all that they start, and moved back; what is in a unit of systemd
//! stays there.

use nix::errno::Errno;
use tenantd_control::report::status::Status;
use tenantd_host::kernfs::{KernFs, Operation};
use tenantd_sim::{Call, Fault, Layout, Load, SimHost, SimKernel, Workload};

use super::world::{World, assert_near, assert_same, legacy, snapshot};

fn spawn(world: &World, path: &str, uid: u32) -> u32 {
    let workload = Workload::constant("load", Load::idle()).owned_by(uid);
    world.host.with(|kernel| kernel.spawn(path, workload)).unwrap()
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

fn with_cgroups(host: SimHost, paths: &[&str], yaml: &str) -> World {
    let mut kernel = SimKernel::new(host);
    paths.iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    let mut world = World::with(kernel, yaml);
    world.options.root = Some("/tenants".into());
    world
}

/// The same on a host that systemd does not run, where users have no slices.
fn without_systemd(paths: &[&str], yaml: &str) -> World {
    let mut world = with_cgroups(SimHost::default(), paths, yaml);
    world.host.without_systemd();
    world
}

#[test]
fn users_groups_and_cgroups_are_claimed_and_go_back() {
    let mut world = without_systemd(
        &["/build/one", "/home/x", "/home/y"],
        "tenants:\n  ci: { match: { cgroup: /build, move: true } }\n  \
         ana: { match: { users: [ 1000 ], move: true } }\n  staff: { match: { groups: [ 50 ], move: true } }\n",
    );
    let processes = [
        ("/build/one", 0, "/tenants/ci"),
        ("/build/one", 1000, "/tenants/ci"),
        ("/home/x", 1000, "/tenants/ana"),
        ("/home/y", 50, "/tenants/staff"),
        ("/home/y", 1001, "/home/y"),
        ("/", 0, "/"),
    ];
    let pids = processes.map(|(path, uid, _)| spawn(&world, path, uid));
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(1);
    assert_eq!(pids.map(|pid| place(&world, pid)), processes.map(|(_, _, tenant)| tenant));
    let restored = world.stop();
    assert_eq!(restored.nr_processes, 4);
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

/// An administrator moves a process from the tenant to another cgroup that the tenant claims: there it is at home now.
#[test]
fn a_process_goes_back_to_where_it_was_claimed_last() {
    for places in [["/build/one", "/build/two"], ["/build/two", "/build/one"]] {
        let yaml = "tenants: { ci: { match: { cgroup: /build, move: true } } }";
        let mut world = without_systemd(&["/build/one", "/build/two"], yaml);
        let pid = spawn(&world, places[0], 0);
        world.start().unwrap();
        world.ticks(6);
        assert_eq!(place(&world, pid), "/tenants/ci");
        for home in [places[1], places[0], places[1]] {
            world.write(&format!("{}/cgroup.procs", &home[1..]), &pid.to_string());
            // A process that is in a tenant is rarely looked at again.
            world.ticks(60);
            assert_eq!(place(&world, pid), "/tenants/ci");
        }
        world.stop();
        assert_eq!(place(&world, pid), places[1]);
    }
}

#[test]
fn on_a_legacy_host_they_move_in_every_tree_but_the_cpusets() {
    let yaml = "tenants: { ana: { match: { users: [ 1000 ] } } }";
    let mut world = with_cgroups(legacy(), &[], yaml);
    let pid = spawn(&world, "/", 1000);
    let before = snapshot(&world.host);
    world.start().unwrap();
    world.ticks(1);
    let line = |text: &str| text.lines().any(|line| line == pid.to_string());
    for tree in ["cpu", "cpuacct", "memory", "blkio", "unified"] {
        assert!(line(&world.file(&format!("{tree}/tenants/ana/cgroup.procs"))), "{tree}");
    }
    assert!(line(&world.file("cpuset/cgroup.procs")));
    world.stop();
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

#[test]
fn a_later_process_is_claimed_within_five_ticks() {
    let mut world = without_systemd(&[], "tenants: { ana: { match: { users: [ 1000 ] } } }");
    world.start().unwrap();
    world.ticks(2);
    // Whatever its number.
    let pids: Vec<u32> = (0..10).map(|_| spawn(&world, "/", 1000)).collect();
    world.ticks(5);
    for pid in pids {
        assert_eq!(place(&world, pid), "/tenants/ana", "{pid}");
    }
}

#[test]
fn the_first_process_and_the_agent_itself_are_never_claimed() {
    let mut world = without_systemd(&[], "tenants: { admins: { match: { users: [ 0 ] } } }");
    let other = spawn(&world, "/", 0);
    world.start().unwrap();
    world.ticks(2);
    let own = world.host.with(|kernel| kernel.caller());
    assert_eq!([1, own, other].map(|pid| place(&world, pid)), ["/", "/", "/tenants/admins"]);
}

#[test]
fn a_process_forked_in_a_tenant_returns_to_the_origin_of_the_claimed_ones() {
    let mut world = with_cgroups(
        SimHost::default(),
        &["/build"],
        "tenants: { ci: { match: { cgroup: /build, move: true } } }",
    );
    spawn(&world, "/build", 0);
    world.start().unwrap();
    world.ticks(1);
    let child = spawn(&world, "/tenants/ci", 0);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(place(&world, child), "/build");
}

#[test]
fn a_process_number_that_is_used_again_is_left_alone() {
    let mut world = with_cgroups(
        SimHost::default(),
        &["/build"],
        "tenants: { ci: { match: { cgroup: /build, move: true } } }",
    );
    let pid = spawn(&world, "/build", 0);
    world.start().unwrap();
    world.ticks(1);
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    // The journal names the process by its number and by when it started.
    assert_eq!(world.stop().nr_processes, 0);
}

/// The findings of `status` in which `what` is found.
fn said<'a>(status: &'a Status, what: &str) -> Vec<&'a String> {
    status.findings.iter().filter(|finding| finding.contains(what)).collect()
}

/// A host with a service and a session, both of user 1000, and a cgroup that is no unit.
const UNITS: [&str; 4] = [
    "/system.slice/web.service/worker",
    "/user.slice/user-1000.slice/session-2.scope",
    "/user.slice/user-1000.slice/user@1000.service/app.slice/editor.service",
    "/jobs",
];

/// Systemd takes a process that left its service or session for one that has ended.
#[test]
fn no_process_is_claimed_out_of_a_service_or_session() {
    for mode in ["enforce", "observe"] {
        let yaml = format!(
            "mode: {mode}\ntenants: {{ team: {{ owner: direct, match: {{ users: [ 1000, 1001 ], groups: [ 50 ], move: true }} }} }}"
        );
        let mut world = with_cgroups(SimHost::default(), &UNITS, &yaml);
        let pids = UNITS.map(|path| spawn(&world, path, 1000));
        let more = spawn(&world, UNITS[0], 50);
        world.start().unwrap();
        let status = world.ticks(7);
        assert_eq!(pids[..3].iter().map(|pid| place(&world, *pid)).collect::<Vec<_>>(), UNITS[..3]);
        assert_eq!(place(&world, more), UNITS[0]);
        let job = if mode == "enforce" { "/tenants/team" } else { "/jobs" };
        assert_eq!(place(&world, pids[3]), job);
        for (nr_processes, unit) in [(2, "web.service"), (2, "user-1000.slice")] {
            let findings = said(&status, &format!("match: {{ unit: {unit} }}"));
            assert_eq!(findings.len(), 1, "{:?}", status.findings);
            let said = format!("team: {nr_processes} processes stay in {unit}");
            assert!(findings[0].starts_with(&said), "{findings:?}");
        }
        world.stop();
    }
}

/// Each tick searches a part of all processes; what is said of those of the other parts stands meanwhile.
#[test]
fn findings_on_claims_stand_until_their_processes_are_searched_again() {
    let yaml = "tenants: { team: { owner: direct, match: { users: [ 1000 ], move: true } } }";
    let mut world = with_cgroups(SimHost::default(), &UNITS, yaml);
    // Those of the unit are in every part, those that are refused in three of them.
    for (nr_processes, place) in [(7, UNITS[0]), (3, UNITS[3])] {
        for _ in 0..nr_processes {
            spawn(&world, place, 1000);
        }
    }
    let joined = "tenants/team/cgroup.procs";
    world.host.inject(Fault::matching(Operation::Write, joined, Errno::EACCES));
    world.start().unwrap();
    let findings = world.ticks(6).findings;
    let count = |what: &str| findings.iter().filter(|it| it.contains(what)).count();
    assert_eq!(
        (count("7 processes stay in web.service"), count(" not claimed")),
        (1, 3),
        "{findings:?}"
    );
    // Also of those that are looked at less often, which are in a tenant.
    for tick in 0..26 {
        assert_eq!(world.tick().findings, findings, "{tick} ticks later");
    }
    world.host.heal();
    let status = world.ticks(6);
    assert_eq!(said(&status, " not claimed"), [""; 0]);
    assert_eq!(said(&status, "7 processes stay in web.service").len(), 1, "{:?}", status.findings);
}

#[test]
fn a_single_user_is_weighed_as_the_slice_that_systemd_keeps() {
    let mut world = with_cgroups(
        SimHost::default(),
        &UNITS,
        "tenants: { ana: { weight: 300, match: { users: [ 1000 ] } }, \
                    bob: { match: { unit: user-1001.slice } } }",
    );
    world.host.systemd(|systemd, kernel| {
        for uid in [1000, 1001] {
            let slice = format!("user-{uid}.slice");
            systemd.add(kernel, &slice, &format!("/user.slice/{slice}"));
        }
        kernel.make_cgroup("/user.slice/user-1001.slice/session-3.scope").unwrap();
    });
    let busy = |path: &str, uid: u32| {
        let load = Workload::constant("load", Load::busy(8)).owned_by(uid);
        world.host.with(|kernel| kernel.spawn(path, load)).unwrap()
    };
    busy(UNITS[1], 1000);
    busy("/user.slice/user-1001.slice/session-3.scope", 1001);
    let pids = UNITS.map(|path| spawn(&world, path, 1000));
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(20);
    assert_eq!(pids.map(|pid| place(&world, pid)), UNITS, "a process was moved");
    let slices = ["user.slice/user-1000.slice", "user.slice/user-1001.slice"];
    assert_near(&world.shares(&slices, 20), &[0.75, 0.25], 0.01);
    assert_eq!(said(&status, "match: { unit: web.service }").len(), 1, "{:?}", status.findings);
    assert_eq!(said(&status, "in the cgroup /jobs").len(), 1, "{:?}", status.findings);
    assert_eq!(said(&status, "unit: user-1000.slice").len(), 0, "{:?}", status.findings);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_same(&before, &snapshot(&world.host), "after the stop");
}

/// Those of a group come with their first process and go with their last.
#[test]
fn several_users_are_weighed_as_the_slices_that_systemd_keeps() {
    let mut world = with_cgroups(
        SimHost::default(),
        &UNITS,
        "tenants: { team: { weight: 300, match: { users: [ 1000, 1001 ] } }, \
                    root: { match: { groups: [ 0 ] } } }",
    );
    let slices = ["1000", "1001", "0"].map(|uid| format!("user.slice/user-{uid}.slice"));
    let log_in = |world: &World, slice: &str| {
        let name = slice.rsplit('/').next().unwrap();
        world.host.systemd(|systemd, kernel| systemd.add(kernel, name, &format!("/{slice}")));
        let load = Workload::constant("load", Load::busy(8));
        world.host.with(|kernel| {
            let session = format!("/{slice}/session-9.scope");
            kernel.make_cgroup(&session).unwrap();
            kernel.spawn(&session, load).unwrap();
        });
    };
    slices[..2].iter().for_each(|slice| log_in(&world, slice));
    let outside = UNITS.map(|path| spawn(&world, path, 1000));
    world.start().unwrap();
    let status = world.ticks(20);
    assert_eq!(outside.map(|pid| place(&world, pid)), UNITS, "a process was moved");
    assert_eq!(said(&status, "in the cgroup /jobs").len(), 1, "{:?}", status.findings);
    assert_eq!(said(&status, "user-").len(), 0, "{:?}", status.findings);
    log_in(&world, &slices[2]);
    world.ticks(10);
    let shares = world.shares(&slices.each_ref().map(String::as_str), 20);
    assert_near(&shares, &[0.375, 0.375, 0.25], 0.02);
    assert_eq!(world.stop().failures, [""; 0]);
}

/// Systemd moved it, or an administrator did: it is the unit's now.
#[test]
fn a_claimed_process_that_is_found_in_a_unit_is_left_there() {
    let mut world = with_cgroups(
        SimHost::default(),
        &UNITS,
        "tenants: { team: { owner: direct, match: { users: [ 1000, 1001 ], move: true } } }",
    );
    let pid = spawn(&world, "/jobs", 1000);
    world.start().unwrap();
    world.ticks(1);
    assert_eq!(place(&world, pid), "/tenants/team");
    world.write("system.slice/web.service/worker/cgroup.procs", &pid.to_string());
    world.ticks(10);
    assert_eq!(place(&world, pid), UNITS[0]);
}

/// On a hybrid host only systemd's own tree, or the unified one, tells the unit.
#[test]
fn units_of_a_hybrid_host_are_left_alone() {
    let yaml = "tenants: { ana: { match: { users: [ 1000 ] } } }";
    let mut world = with_cgroups(legacy(), &[], yaml);
    let (inside, outside) = (spawn(&world, "/", 1000), spawn(&world, "/", 1000));
    world.host.with(|kernel| {
        kernel.make_cgroup("/system.slice/web.service").unwrap();
        let unit = "/sys/fs/cgroup/unified/system.slice/web.service";
        kernel.write_file(&format!("{unit}/cgroup.procs"), &inside.to_string()).unwrap();
    });
    world.start().unwrap();
    let status = world.ticks(6);
    let procs = world.file("cpu/tenants/ana/cgroup.procs");
    assert_eq!(procs, outside.to_string());
    assert_eq!(said(&status, "match: { unit: web.service }").len(), 1, "{:?}", status.findings);
    world.stop();
}

/// Where a process is in each tree of a legacy host that tenants live in.
fn places(world: &World, pid: u32) -> [bool; 5] {
    let line = pid.to_string();
    let holds = |path: String| world.file(&path).lines().any(|found| found == line);
    LEGACY_TREES.map(|tree| holds(format!("{tree}/tenants/ci/cgroup.procs")))
}

const LEGACY_TREES: [&str; 5] = ["cpu", "cpuacct", "memory", "blkio", "unified"];
const BUILD: &str = "tenants: { ci: { match: { cgroup: /build, move: true } }, db: {} }";

/// A child that was started while its parent was moved in one tree after the other.
#[test]
fn a_child_of_a_claim_that_was_half_done_is_claimed_in_all_trees() {
    let mut world = with_cgroups(legacy(), &["/build"], BUILD);
    world.host.without_systemd();
    let parent = spawn(&world, "/build", 0);
    world.start().unwrap();
    world.ticks(1);
    assert_eq!(places(&world, parent), [true; 5]);
    let (child, elsewhere) = (spawn(&world, "/build", 0), spawn(&world, "/build", 0));
    for tree in ["cpu", "cpuacct"] {
        world.write(&format!("{tree}/tenants/ci/cgroup.procs"), &child.to_string());
        // What an administrator put into another tenant is not torn out of it.
        world.write(&format!("{tree}/tenants/db/cgroup.procs"), &elsewhere.to_string());
    }
    world.ticks(6);
    assert_eq!(places(&world, child), [true; 5]);
    assert_eq!(
        (places(&world, elsewhere), place(&world, elsewhere)),
        ([false; 5], "/tenants/db".into())
    );
    assert_eq!(world.stop().failures, [""; 0]);
    for tree in LEGACY_TREES {
        let procs = world.file(&format!("{tree}/build/cgroup.procs"));
        assert!(procs.lines().any(|pid| pid == child.to_string()), "{tree}: {procs}");
    }
}

/// What appears while processes are moved is looked for once more, and not five ticks later.
#[test]
fn what_is_started_during_a_claim_is_claimed_with_it() {
    for host in [SimHost::default(), legacy()] {
        let begin = || {
            let mut world = with_cgroups(host.clone(), &["/build"], BUILD);
            world.host.without_systemd();
            spawn(&world, "/build", 0);
            world.start().unwrap();
            world
        };
        let is_move = |call: &Call| {
            call.operation == Operation::Write && call.path.ends_with("ci/cgroup.procs")
        };
        let mut world = begin();
        let before = world.host.nr_calls();
        world.host.take_calls();
        world.ticks(1);
        let calls = world.host.take_calls();
        let first = calls.iter().position(is_move).unwrap();
        let mut world = begin();
        world.host.before_call(before + first as u64, |kernel| {
            kernel.spawn("/build", Load::idle()).unwrap();
        });
        world.ticks(1);
        let prefix = if host.layout == Layout::Legacy { "memory/" } else { "" };
        assert_eq!(world.file(&format!("{prefix}tenants/ci/cgroup.procs")).lines().count(), 2);
        assert_eq!(world.file(&format!("{prefix}build/cgroup.procs")), "");
    }
}

/// A claim puts processes of several cgroups into one: that is said, before it is done where nothing is done, and
/// undone at the end.
#[test]
fn claims_from_several_cgroups_are_said_and_undone_one_by_one() {
    for mode in ["observe", "enforce"] {
        let yaml = format!("mode: {mode}\n{BUILD}");
        let cgroups = ["/build", "/build/one", "/build/one/two"];
        let mut world = with_cgroups(legacy(), &cgroups, &yaml);
        world.host.without_systemd();
        let pids = cgroups.map(|path| spawn(&world, path, 0));
        let before = snapshot(&world.host);
        world.start().unwrap();
        let status = world.ticks(1);
        let verb = if mode == "observe" { "would be" } else { "are" };
        let findings = said(&status, &format!("processes of 3 cgroups {verb} moved into one"));
        assert_eq!(findings.len(), 1, "{:?}", status.findings);
        world.ticks(6);
        world.stop();
        assert_eq!(pids.map(|pid| place(&world, pid)), cgroups);
        assert_same(&before, &snapshot(&world.host), "after the stop");
    }
}

/// What a policy moves is shown before it is done, and counted when it is.
#[test]
fn moves_are_planned_and_counted() {
    let yaml = "tenants: { ci: { match: { cgroup: \"/build/*\", move: true } }, ana: { match: { users: [ 1000, 1001 ], move: true } } }";
    let row = |tenant: &str, from: &str, nr: u64| {
        (tenant.to_string(), format!("/sys/fs/cgroup/{from}"), nr)
    };
    let expected = [row("ci", "build/one", 2), row("ci", "build/two", 1), row("ana", "home", 1)];
    for mode in ["observe", "enforce"] {
        let mut world = without_systemd(
            &["/build/one", "/build/two", "/home"],
            &format!("mode: {mode}\n{yaml}"),
        );
        for (path, uid) in
            [("/build/one", 0), ("/build/one", 0), ("/build/two", 0), ("/home", 1000)]
        {
            spawn(&world, path, uid);
        }
        let before = snapshot(&world.host);
        world.start().unwrap();
        let status = world.tick();
        let moves =
            status.moves.iter().map(|it| (it.tenant.clone(), it.from.clone(), it.nr_processes));
        assert_eq!(moves.collect::<Vec<_>>(), expected, "{mode}");
        assert_eq!(status.nr_moves, if mode == "enforce" { 4 } else { 0 });
        // Those that were moved are no longer outside, and those that were not still are.
        let status = world.ticks(30);
        assert_eq!(status.moves.len(), if mode == "enforce" { 0 } else { 3 });
        assert_eq!(status.nr_moves, if mode == "enforce" { 4 } else { 0 });
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), mode);
    }
}

/// Of many cgroups some are named.
#[test]
fn moves_from_many_cgroups_are_summed() {
    let paths: Vec<String> = (10..40).map(|number| format!("/build/{number}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut world =
        without_systemd(&paths, "tenants: { ci: { match: { cgroup: \"/build/*\", move: true } } }");
    let pids: Vec<u32> = paths.iter().map(|path| spawn(&world, path, 0)).collect();
    world.start().unwrap();
    let status = world.tick();
    let last = status.moves.last().unwrap();
    assert_eq!(
        (status.moves.len(), &*last.from, last.nr_processes),
        (17, "14 further cgroups", 14)
    );
    assert_eq!(status.nr_moves, pids.len() as u64);
}

/// The kernel cuts names of processes within a letter, and a process may take any name.
#[test]
fn processes_and_cgroups_with_names_that_are_not_text_are_claimed() {
    for host in [SimHost::default(), legacy()] {
        let yaml = "tenants:\n  ana: { match: { users: [ 1000 ] } }\n  \
                    ci: { match: { cgroup: \"/build/*\", move: true } }\n";
        let mut world = with_cgroups(host, &["/build/caf\\xe9"], yaml);
        world.host.without_systemd();
        let named = |name: &str, path: &str, uid: u32| {
            let workload = Workload::constant(name, Load::idle()).owned_by(uid);
            world.host.with(|kernel| kernel.spawn(path, workload)).unwrap()
        };
        let by_owner = named("\\xff\\xfe", "/", 1000);
        let in_cgroup = named("x", "/build/caf\\xe9", 0);
        let status = world.host.with(|kernel| {
            let proc = kernel.open_dir("/proc".as_ref()).unwrap();
            kernel.read_once(proc, &format!("{by_owner}/status")).unwrap().to_vec()
        });
        assert!(status.starts_with(b"Name:\t\xff\xfe\n"));
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(3);
        let places = [by_owner, in_cgroup].map(|pid| place(&world, pid));
        assert_eq!(places, ["/tenants/ana", "/tenants/ci"]);
        // A restart reads the journal back, with the name of the cgroup.
        world.kill();
        world.start().unwrap();
        world.ticks(3);
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(place(&world, in_cgroup), "/build/caf\\xe9");
        assert_same(&before, &snapshot(&world.host), "after the stop");
    }
}

#[test]
fn a_process_that_cannot_be_read_is_a_finding_and_is_claimed_later() {
    for file in ["status", "stat", "cgroup"] {
        let mut world = without_systemd(&[], "tenants: { ana: { match: { users: [ 1000 ] } } }");
        let pid = spawn(&world, "/", 1000);
        let fault = Fault::matching(Operation::Read, &format!("{pid}/{file}"), Errno::EIO);
        world.host.inject(fault);
        world.start().unwrap();
        let status = world.ticks(6);
        let finding = format!(
            "1 process could not be read, and may belong to a tenant: cannot read /proc/{pid}/{file}"
        );
        assert!(status.findings.iter().any(|it| it.starts_with(&finding)), "{:?}", status.findings);
        assert_eq!(place(&world, pid), "/");
        world.host.heal();
        let status = world.ticks(10);
        assert_eq!(status.findings, [""; 0]);
        assert_eq!(place(&world, pid), "/tenants/ana");
        world.stop();
    }
}

/// A container engine, a batch system or an init made these cgroups, and accounts and ends what is in them.
#[test]
fn processes_of_other_managers_are_not_taken_by_owner() {
    for host in [SimHost::default(), legacy()] {
        let paths = ["/engine/1", "/slurm/job_7", "/3", "/c12", "/c", "/host/agents"];
        let yaml =
            |moves: &str| format!("tenants: {{ ana: {{ match: {{ users: [ 1000 ]{moves} }} }} }}");
        let mut world = with_cgroups(host.clone(), &paths, &yaml(""));
        world.host.without_systemd();
        // The agent itself was started in a cgroup of its own.
        let own = world.host.with(|kernel| kernel.caller()).to_string();
        let is_unified = host.layout == SimHost::default().layout;
        let trees: &[&str] = if is_unified { &[""] } else { &LEGACY_TREES };
        for tree in trees {
            let prefix = if is_unified { String::new() } else { format!("{tree}/") };
            world.write(&format!("{prefix}host/agents/cgroup.procs"), &own);
        }
        let places = ["/", "/engine/1", "/slurm/job_7", "/3", "/c12", "/c", "/host/agents"];
        let pids = places.map(|path| spawn(&world, path, 1000));
        let before = snapshot(&world.host);
        world.start().unwrap();
        let status = world.ticks(6);
        // Sessions of elogind are in the unified hierarchy only, where there is one for all.
        let is_taken = |path: &str| match path {
            "/" | "/host/agents" => true,
            "/3" | "/c12" => is_unified,
            _ => false,
        };
        for (pid, path) in pids.iter().zip(places) {
            let expected = if is_taken(path) { "/tenants/ana" } else { path };
            assert_eq!(place(&world, *pid), expected);
            let finding = format!(
                "ana: 1 process stays in the cgroup {path}, which another program made and manages"
            );
            let is_told = status.findings.iter().any(|it| it.starts_with(&finding));
            assert_eq!(is_told, !is_taken(path), "{path}: {:?}", status.findings);
        }
        world.stop();
        assert_same(&before, &snapshot(&world.host), "after the stop");
        world.policy =
            crate::util::policy(&format!("version: 1\nmode: enforce\n{}", yaml(", move: true")));
        world.start().unwrap();
        let status = world.ticks(6);
        assert!(
            pids.iter().all(|pid| place(&world, *pid) == "/tenants/ana"),
            "{:?}",
            status.findings
        );
        world.stop();
        assert_same(&before, &snapshot(&world.host), "after the second stop");
    }
}

#[test]
fn a_set_user_id_program_is_of_the_user_who_started_it() {
    let yaml =
        "tenants: { ana: { match: { users: [ 1000 ] } }, bob: { match: { users: [ 1001 ] } } }";
    let mut world = without_systemd(&[], yaml);
    let pid = spawn(&world, "/", 1000);
    world.host.with(|kernel| kernel.set_users(pid, 1000, 1001)).unwrap();
    world.start().unwrap();
    world.ticks(6);
    assert_eq!(place(&world, pid), "/tenants/ana");
    world.stop();
}
