//! On hosts where users have no slices they are found by their processes, and each gets a cgroup.

use std::collections::BTreeSet;

use tenantd_policy::accounts::User;
use tenantd_sim::{Load, SimHost, SimKernel, Workload};

use super::super::accounts::Fake;
use super::super::world::{World, assert_near, assert_same, legacy, snapshot};
use super::{Dice, accounts, people};

const PEOPLE: &str = "\
tenants:
  people:
    each: { match: { users: '*', move: true }, weight: 1 }
    tenants: { ana: { weight: 3, match: { users: [1001], move: true } } }
";

fn world(host: SimHost, yaml: &str) -> World {
    let mut kernel = SimKernel::new(host);
    kernel.make_cgroup("/home").unwrap();
    let mut world = World::with(kernel, yaml);
    world.host.without_systemd();
    world.options.root = Some("/tenants".into());
    world.options.accounts = accounts().direct();
    world
}

fn hosts() -> [SimHost; 2] {
    [SimHost::default(), legacy()]
}

fn spawn(world: &World, uid: u32, load: Load) -> u32 {
    let workload = Workload::constant("load", load).owned_by(uid);
    world.host.with(|kernel| kernel.spawn("/home", workload)).unwrap()
}

fn place(world: &World, pid: u32) -> String {
    world.host.with(|kernel| kernel.process_cgroup(pid)).unwrap()
}

#[test]
fn a_user_is_a_tenant_in_the_tick_after_the_first_process() {
    for host in hosts() {
        let mut world = world(host, PEOPLE);
        world.start().unwrap();
        assert_eq!(people(&world.ticks(3)), ["people/ana"]);
        let ana = spawn(&world, 1001, Load::busy(8));
        let bens = [spawn(&world, 1002, Load::busy(8)), spawn(&world, 1002, Load::busy(8))];
        spawn(&world, 33, Load::idle());
        assert_eq!(people(&world.tick()), ["people/ana", "people/u1002"]);
        for ben in bens {
            assert_eq!(place(&world, ben), "/tenants/people/u1002");
        }
        world.ticks(6);
        assert_eq!(place(&world, ana), "/tenants/people/ana");
        let used =
            |world: &World, pid: u32| world.host.with(|k| k.process_usage(pid)).unwrap().run_nsec;
        let begin = [ana, bens[0]].map(|pid| used(&world, pid));
        world.ticks(10);
        let end = [ana, bens[0]].map(|pid| used(&world, pid));
        assert_near(&[(end[0] - begin[0]) / (end[1] - begin[1]) / 6.0], &[1.0], 0.05);
        for pid in bens {
            world.host.with(|kernel| kernel.kill(pid)).unwrap();
        }
        assert_eq!(people(&world.ticks(4)), ["people/ana", "people/u1002"]);
        assert_eq!(people(&world.ticks(10)), ["people/ana"]);
        let is_there = world.host.with(|kernel| kernel.make_cgroup("/tenants/people/u1002"));
        assert!(is_there.is_ok(), "its cgroup is gone");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_eq!(place(&world, ana), "/home");
    }
}

#[test]
fn an_observer_finds_users_and_moves_none() {
    let mut world = world(SimHost::default(), &format!("mode: observe\n{PEOPLE}"));
    let ben = spawn(&world, 1002, Load::busy(8));
    let before = snapshot(&world.host);
    world.start().unwrap();
    let status = world.ticks(40);
    assert_eq!(people(&status), ["people/ana", "people/u1002"]);
    assert_eq!(place(&world, ben), "/home");
    assert!(status.moves.iter().any(|moved| moved.tenant == "people/u1002"));
    world.stop();
    assert_same(&before, &snapshot(&world.host), "observed");
}

#[test]
fn after_a_kill_or_a_stop_everybody_is_back_in_the_next_life() {
    for host in hosts() {
        for killed in [false, true] {
            let mut world = world(host.clone(), PEOPLE);
            let ben = spawn(&world, 1002, Load::busy(1));
            let before = snapshot(&world.host);
            world.start().unwrap();
            world.ticks(3);
            // Started where the tenant is, it was never claimed from anywhere.
            let workload = Workload::constant("child", Load::idle()).owned_by(1002);
            let child = world.host.with(|k| k.spawn("/tenants/people/u1002", workload)).unwrap();
            world.ticks(3);
            assert_eq!(world.end(killed).failures, [""; 0]);
            assert_eq!(place(&world, ben), "/home");
            world.start().unwrap();
            world.ticks(8);
            assert_eq!(place(&world, ben), "/tenants/people/u1002");
            assert_eq!(place(&world, child), "/tenants/people/u1002", "killed: {killed}");
            world.host.with(|kernel| kernel.kill(child)).unwrap();
            world.ticks(3);
            world.end(killed);
            assert_same(&before, &snapshot(&world.host), "the second end");
        }
    }
}

#[test]
fn a_group_of_users_is_found_by_number_and_by_name() {
    let yaml = "tenants:\n  staff: { each: { match: { groups: [staff] } } }\n";
    let mut world = world(legacy(), yaml);
    let owner = |uid: u32| Some(User { name: uid.to_string(), groups: vec![uid % 100] });
    world.options.accounts = Fake { owner, ..accounts() }.direct();
    spawn(&world, 1050, Load::idle());
    spawn(&world, 1051, Load::idle());
    world.start().unwrap();
    let status = world.ticks(8);
    let names: Vec<&str> = status.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["staff/1050"]);
    world.stop();
}

#[test]
fn a_thousand_users_without_slices_leave_nothing() {
    for host in hosts() {
        let mut world = world(host, PEOPLE);
        let before = snapshot(&world.host);
        world.start().unwrap();
        let quiet = world.ticks(20).findings.clone();
        let inside = snapshot(&world.host);
        let (mut dice, mut here, mut seen) = (Dice(11), Vec::new(), BTreeSet::new());
        let mut next = 2000;
        while next < 3000 || !here.is_empty() {
            for _ in 0..dice.below(40).min(here.len() as u64) {
                let pid = here.swap_remove(dice.below(here.len() as u64) as usize);
                world.host.with(|kernel| kernel.kill(pid)).unwrap();
            }
            for _ in 0..dice.below(30).min(3000 - next) {
                here.push(spawn(&world, next as u32, Load::idle()));
                next += 1;
            }
            let status = world.tick();
            for pid in &here {
                assert!(place(&world, *pid).starts_with("/tenants/people/u"));
            }
            seen.extend(people(&status).iter().map(|name| name.to_string()));
        }
        assert_eq!(seen.len(), 1001);
        let status = world.ticks(20);
        assert_eq!(people(&status), ["people/ana"]);
        assert_eq!(status.findings, quiet);
        assert_eq!(world.agent.as_ref().unwrap().nodes().len(), 2);
        assert_same(&inside, &snapshot(&world.host), "all are gone");
        assert_eq!(world.stop().failures, [""; 0]);
        assert_same(&before, &snapshot(&world.host), "stopped");
    }
}
