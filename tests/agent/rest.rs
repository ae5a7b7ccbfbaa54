//! One tenant has all that no other claims.

use tenantd::backend::claims;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain::explain;
use tenantd_core::resource::CPU;
use tenantd_host::kernfs::Operation;
use tenantd_policy::accounts::{Accounts, User};
use tenantd_sim::{Layout, Load, SimHost, SimKernel, Workload};
use tenantd_varlink::bridge::{Caller, Work};

use super::accounts::Fake;
use super::units::{assert_whole, whole};
use super::world::{MIB, World, assert_near, assert_same, legacy, snapshot, tenant};
use crate::util;

const SERVICES: &str = "\
tenants:
  db: { weight: 300, match: { unit: db.service } }
  web: { weight: 100, match: { unit: 'web*.service' } }
  others: { weight: 100, match: rest }
";

/// A host that systemd runs, with a few services and two people.
fn services(yaml: &str) -> World {
    let world = World::new(yaml);
    for (unit, cgroup) in [
        ("init.scope", "/init.scope"),
        ("db.service", "/system.slice/db.service"),
        ("cron.service", "/system.slice/cron.service"),
        ("ssh.service", "/system.slice/ssh.service"),
        ("user-1001.slice", "/user.slice/user-1001.slice"),
        ("session-1.scope", "/user.slice/user-1001.slice/session-1.scope"),
        ("user-1002.slice", "/user.slice/user-1002.slice"),
        ("session-2.scope", "/user.slice/user-1002.slice/session-2.scope"),
    ] {
        world.host.systemd(|systemd, kernel| systemd.add(kernel, unit, cgroup));
    }
    world.host.with(|kernel| kernel.make_cgroup("/system.slice/boot.mount")).unwrap();
    world
}

fn parts(world: &World, name: &str) -> Vec<String> {
    let agent = world.agent.as_ref().unwrap();
    let explained = explain(agent.trace(), agent.status(), name).unwrap();
    explained.members.into_iter().map(|member| member.cgroup).collect()
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

fn reload(world: &mut World, yaml: &str) {
    let policy = util::policy(&format!("version: 1\nmode: enforce\n{yaml}"));
    let rules = claims::rules(&policy);
    assert_eq!(world.agent.as_mut().unwrap().reload(policy, rules).unwrap(), [""; 0]);
}

fn add(world: &World, name: &str, cgroup: &str) {
    world.host.systemd(|systemd, kernel| {
        systemd.add_transient(name, cgroup);
        systemd.start(kernel, name);
    });
}

/// Accounts that are called after their numbers.
fn numbered() -> Accounts {
    let owner = |uid: u32| Some(User { name: format!("u{uid}"), groups: vec![] });
    Fake { owner, ..Fake::empty() }.direct()
}

#[test]
fn what_no_tenant_claims_is_one_tenant_where_it_is() {
    let mut world = services(SERVICES);
    let [db, cron, session] = [
        "/system.slice/db.service",
        "/system.slice/cron.service",
        "/user.slice/user-1001.slice/session-1.scope",
    ];
    let pids = [db, cron, session].map(|path| world.spawn(path, Load::busy(8)));
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(8);
    assert_eq!(parts(&world, "others"), ["cron.service", "ssh.service", "user.slice"]);
    let status = world.ticks(30);
    assert_eq!(status.findings, [""; 0]);
    assert_eq!(parts(&world, "others"), ["cron.service", "ssh.service", "user.slice"]);
    let paths = [&db[1..], &cron[1..], "user.slice"];
    assert_near(&world.shares(&paths, 20), &[0.75, 0.125, 0.125], 0.02);
    let status = world.tick();
    assert_near(&[tenant(&status, "others").usage[CPU].unwrap()], &[1.0], 0.1);
    assert_eq!(status.nr_moves, 0);
    for (pid, path) in pids.iter().zip([db, cron, session]) {
        assert_eq!(place(&world, *pid), path);
    }
    // Nothing in sessions is touched, nor the first process, nor what systemd has for mounts.
    for untouched in ["init.scope", "system.slice/boot.mount", &session[1..]] {
        assert_eq!(world.file(&format!("{untouched}/cpu.weight")), "100", "{untouched}");
    }
    pids.iter().for_each(|pid| world.host.with(|kernel| kernel.kill(*pid)).unwrap());
    assert_eq!(world.stop().failures, [""; 0]);
    assert_eq!(before.1, whole(&world).1);
}

#[test]
fn parts_come_and_go_without_a_reload() {
    let mut world = services(SERVICES);
    world.spawn("/system.slice/db.service", Load::busy(8));
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(20);
    // A unit of another tenant is no part, in no tick.
    add(&world, "web1.service", "/system.slice/web1.service");
    for _ in 0..15 {
        world.tick();
        assert!(!parts(&world, "others").contains(&"web1.service".to_string()));
    }
    assert_eq!(parts(&world, "web"), ["web1.service"]);
    // What ends soon is not weighed.
    add(&world, "run-1.service", "/system.slice/run-1.service");
    world.ticks(5);
    assert!(!parts(&world, "others").contains(&"run-1.service".to_string()));
    world.ticks(10);
    assert!(parts(&world, "others").contains(&"run-1.service".to_string()));
    let stop = |world: &World, unit: &str| {
        world.host.systemd(|systemd, kernel| systemd.stop(kernel, unit));
    };
    stop(&world, "run-1.service");
    let status = world.ticks(3);
    assert_eq!(status.findings, [""; 0]);
    world.ticks(320);
    assert_eq!(parts(&world, "others"), ["cron.service", "ssh.service", "user.slice"]);
    // A slice in which another tenant gets something is divided, and given back.
    reload(
        &mut world,
        &SERVICES.replace("  others", "  ana: { match: { users: [1001] } }\n  others"),
    );
    world.ticks(20);
    assert_eq!(parts(&world, "others"), ["cron.service", "ssh.service", "user-1002.slice"]);
    reload(&mut world, SERVICES);
    world.ticks(20);
    assert_eq!(parts(&world, "others"), ["cron.service", "ssh.service", "user.slice"]);
    stop(&world, "web1.service");
    world.ticks(40);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

/// People who log in and are tenants divide the slice of all users, which stays so.
#[test]
fn templates_come_before_the_rest() {
    let yaml = "\
tenants:
  people: { each: { match: { users: '*' } } }
  others: { match: rest }
";
    let mut world = services(yaml);
    world.options.accounts = numbered();
    let before = whole(&world);
    world.start().unwrap();
    let status = world.ticks(20);
    let names: Vec<&str> = status.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["people/u1001", "people/u1002", "others"]);
    assert_eq!(parts(&world, "others"), ["system.slice"]);
    add(&world, "user-999.slice", "/user.slice/user-999.slice");
    add(&world, "user-1003.slice", "/user.slice/user-1003.slice");
    for _ in 0..20 {
        let status = world.tick();
        // The user of a system account has a slice and is no person.
        let others = status.findings.iter().filter(|finding| !finding.contains("999"));
        assert_eq!(others.count(), 0, "{:?}", status.findings);
        assert!(!parts(&world, "others").contains(&"user-1003.slice".to_string()));
    }
    assert_eq!(parts(&world, "others"), ["system.slice", "user-999.slice"]);
    for unit in ["user-999.slice", "user-1003.slice"] {
        world.host.systemd(|systemd, kernel| systemd.stop(kernel, unit));
    }
    world.ticks(340);
    assert_eq!(parts(&world, "others"), ["system.slice"]);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

const CGROUPS: &str = "\
tenants:
  jobs: { weight: 300, match: { cgroup: '/jobs/run-*' } }
  ana: { match: { users: [1001] } }
  others: { match: rest }
";

/// A host that systemd does not run.
fn cgroups(host: SimHost, yaml: &str) -> World {
    let mut kernel = SimKernel::new(host);
    for path in ["/jobs/run-1", "/jobs/keep", "/apps/a", "/apps/b"] {
        kernel.make_cgroup(path).unwrap();
    }
    let mut world = World::with(kernel, yaml);
    world.host.without_systemd();
    world.options.root = Some("/tenants".into());
    world
}

fn hosts() -> [SimHost; 2] {
    [SimHost::default(), legacy()]
}

fn spawn(world: &World, uid: u32, path: &str) -> u32 {
    let workload =
        Workload::constant("load", Load::busy(8).with_working_set(8 * MIB)).owned_by(uid);
    world.host.with(|kernel| kernel.spawn(path, workload)).unwrap()
}

#[test]
fn without_systemd_cgroups_stay_and_processes_of_the_root_are_claimed() {
    for sim in hosts() {
        for killed in [false, true] {
            let is_legacy = sim.layout == Layout::Legacy;
            let mut world = cgroups(sim.clone(), CGROUPS);
            let [job, keep, app] =
                ["/jobs/run-1", "/jobs/keep", "/apps/a"].map(|path| spawn(&world, 0, path));
            let [loose, anas] = [33, 1001].map(|uid| spawn(&world, uid, "/"));
            let before = snapshot(&world.host);
            world.start().unwrap();
            let status = world.ticks(20);
            assert_eq!(status.findings, [""; 0], "{is_legacy}");
            assert_eq!(parts(&world, "others"), ["./others", "/apps", "/jobs/keep"]);
            let places = [job, keep, app, loose, anas].map(|pid| place(&world, pid));
            let expected =
                ["/jobs/run-1", "/jobs/keep", "/apps/a", "/tenants/others", "/tenants/ana"];
            assert_eq!(places, expected);
            let used = |status: &Status, name: &str| tenant(status, name).usage[CPU].unwrap();
            let status = world.ticks(10);
            let [jobs, ana, others] = ["jobs", "ana", "others"].map(|name| used(&status, name));
            assert_near(&[jobs / ana, others / ana], &[3.0, 1.0], 0.2);
            // A child of a claimed process goes back with it.
            let child = spawn(&world, 33, "/tenants/others");
            world.host.with(|kernel| kernel.kill(child)).unwrap();
            assert_eq!(world.end(killed).failures, [""; 0]);
            assert_eq!(place(&world, loose), "/");
            assert_same(&before, &snapshot(&world.host), "ended");
        }
    }
}

#[test]
fn what_is_left_may_be_claimed_later() {
    for sim in hosts() {
        let mut world = cgroups(sim, CGROUPS);
        let [bens, other] = [1002, 33].map(|uid| spawn(&world, uid, "/"));
        world.start().unwrap();
        world.ticks(12);
        assert_eq!(place(&world, bens), "/tenants/others");
        // A job divides the cgroup of others, and the last one leaves it whole.
        world.host.with(|kernel| kernel.make_cgroup("/apps/b/inside")).unwrap();
        reload(&mut world, &CGROUPS.replace("'/jobs/run-*'", "['/jobs/run-*', /apps/a]"));
        world.ticks(12);
        assert_eq!(parts(&world, "others"), ["./others", "/apps/b", "/jobs/keep"]);
        // Another user is named, who is no part of the rest any more.
        reload(&mut world, &CGROUPS.replace("[1001]", "[1001, 1002]"));
        world.ticks(12);
        assert_eq!(parts(&world, "others"), ["./others", "/apps", "/jobs/keep"]);
        assert_eq!(
            [bens, other].map(|pid| place(&world, pid)),
            ["/tenants/ana", "/tenants/others"]
        );
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!([bens, other].map(|pid| place(&world, pid)), ["/", "/"]);
    }
}

/// A user without a slice who is found by a process becomes a tenant, and never a part of the rest.
#[test]
fn processes_of_people_who_are_found_are_theirs() {
    let yaml = "\
tenants:
  people: { each: { match: { users: '*' } } }
  others: { match: rest }
";
    for sim in hosts() {
        let mut world = cgroups(sim, yaml);
        world.options.accounts = numbered();
        world.start().unwrap();
        world.ticks(8);
        let [ben, daemon] = [1002, 33].map(|uid| spawn(&world, uid, "/"));
        for _ in 0..15 {
            world.tick();
            assert_ne!(place(&world, ben), "/tenants/others");
        }
        assert_eq!(
            [ben, daemon].map(|pid| place(&world, pid)),
            ["/tenants/people/u1002", "/tenants/others"]
        );
        assert_eq!(world.stop().failures, [""; 0]);
    }
}

/// What is left may be handed to any tenant, and comes back.
#[test]
fn work_of_the_rest_may_be_attached() {
    let root = Caller { user: None, pid: 0 };
    for sim in hosts() {
        let mut world = cgroups(sim, &CGROUPS.replace("  ana", "  batch: {}\n  ana"));
        let [loose, stays] = [33, 33].map(|uid| spawn(&world, uid, "/"));
        let app = spawn(&world, 33, "/apps/a");
        let before = snapshot(&world.host);
        world.start().unwrap();
        world.ticks(12);
        assert_eq!(place(&world, loose), "/tenants/others");
        let attach = |world: &mut World, work: &Work| {
            world.agent.as_mut().unwrap().attach_work("batch", work, false, root).unwrap()
        };
        attach(&mut world, &Work::Cgroup("/apps/a".into()));
        attach(&mut world, &Work::Processes(vec![loose]));
        let orphan = spawn(&world, 33, "/tenants/others");
        world.ticks(12);
        let of_both = ["batch", "others"].map(|name| parts(&world, name));
        assert_eq!(of_both[0], ["./batch", "/apps/a"]);
        assert_eq!(of_both[1], ["./others", "/apps/b", "/jobs/keep"]);
        world.kill();
        world.start().unwrap();
        world.ticks(12);
        let places = [loose, stays, orphan, app].map(|pid| place(&world, pid));
        assert_eq!(places, ["/tenants/batch", "/tenants/others", "/tenants/others", "/apps/a"]);
        world.host.with(|kernel| kernel.kill(orphan)).unwrap();
        let detached =
            world.agent.as_mut().unwrap().detach_work(&Work::Processes(vec![loose]), root);
        assert_eq!(detached.unwrap().failures, [""; 0]);
        // It was in a tenant, and is looked at less often.
        world.ticks(30);
        assert_eq!(place(&world, loose), "/tenants/others");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!([loose, stays].map(|pid| place(&world, pid)), ["/", "/"]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}

#[test]
fn an_observer_measures_the_rest_and_changes_nothing() {
    let mut world = cgroups(SimHost::default(), &format!("mode: observe\n{CGROUPS}"));
    spawn(&world, 33, "/");
    spawn(&world, 33, "/apps/a");
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(20);
    assert_near(&[tenant(&status, "others").usage[CPU].unwrap()], &[4.0], 0.2);
    let moves: Vec<(&str, u64)> =
        status.moves.iter().map(|moved| (moved.tenant.as_str(), moved.nr_processes)).collect();
    assert_eq!(moves, [("others", 1)]);
    world.stop();
    assert_same(&before, &snapshot(&world.host), "observed");
}

#[test]
fn the_search_is_bounded_and_so_are_the_parts() {
    let mut world = cgroups(SimHost::default(), CGROUPS);
    (0..1300).for_each(|n| world.host.with(|k| k.make_cgroup(&format!("/jobs/{n}"))).unwrap());
    world.start().unwrap();
    world.host.take_calls();
    for tick in 0..40 {
        world.tick();
        let calls = world.host.take_calls();
        let count = |of: Operation| calls.iter().filter(|call| call.operation == of).count();
        assert!(count(Operation::List) <= 70, "{} in tick {tick}", count(Operation::List));
    }
    assert_eq!(parts(&world, "others").len(), 1001);
    let status = world.tick();
    let said = status.findings.iter().filter(|it| it.contains("cgroups beyond 1000")).count();
    assert_eq!(said, 1, "{:?}", status.findings);
    assert_eq!(world.stop().failures, [""; 0]);
}
