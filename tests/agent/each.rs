//! Templates: a tenant for each user, unit or cgroup that comes, until it goes.

mod attached;
mod processes;

use std::collections::BTreeSet;

use tenantd::agent::JobAnswer;
use tenantd_control::report::status::Status;
use tenantd_control::why::explain;
use tenantd_core::resource::CPU;
use tenantd_host::systemd::Order;
use tenantd_policy::accounts::User;
use tenantd_sim::{Load, UnitFault};
use tenantd_varlink::bridge::{Allowed, Submission, Ticket};
use tenantd_varlink::error::CallError;
use tenantd_varlink::jobs::SubmitParameters;

use super::accounts::Fake;
use super::units::{assert_whole, whole};
use super::world::{MIB, World, assert_near};

const PEOPLE: &str = "\
tenants:
  people:
    limit: { memory: 75% }
    each:
      match: { users: '*' }
      weight: 1
      limit: { cpu: 50%, pids: 100 }
    tenants:
      ana: { weight: 3, match: { users: [ana] } }
  batch: { match: { unit: batch.service } }
";

/// The accounts of a host: ana is 1001, and every other regular user is `uNUMBER` and in group 50.
fn accounts() -> Fake {
    Fake {
        user: |name| (name == "ana").then_some(1001),
        group: |name| (name == "staff").then_some(50),
        owner: |uid| {
            let name = if uid == 1001 { "ana".to_string() } else { format!("u{uid}") };
            Some(User { name, groups: vec![50] })
        },
    }
}

pub(super) fn world(yaml: &str) -> World {
    let mut world = World::new(yaml);
    world.options.accounts = accounts().direct();
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "batch.service", "/system.slice/batch.service");
        systemd.add(kernel, "user.slice", "/user.slice");
    });
    // Systemd leaves controllers enabled where there were users.
    let pid = log_in(&world, 1999, Load::idle());
    log_out(&world, 1999, pid);
    world
}

pub(super) fn slice(uid: u32) -> String {
    format!("/user.slice/user-{uid}.slice")
}

/// A user logs in: the slice, and a session in it.
pub(super) fn log_in(world: &World, uid: u32, load: Load) -> u32 {
    world.host.systemd(|systemd, kernel| {
        let name = format!("user-{uid}.slice");
        systemd.add_transient(&name, &slice(uid));
        systemd.start(kernel, &name);
    });
    world.spawn(&slice(uid), load)
}

pub(super) fn log_out(world: &World, uid: u32, pid: u32) {
    world.host.with(|kernel| kernel.kill(pid)).unwrap();
    world.host.systemd(|systemd, kernel| systemd.stop(kernel, &format!("user-{uid}.slice")));
}

pub(super) fn people(status: &Status) -> Vec<&str> {
    let names = status.tenants.iter().map(|tenant| tenant.name.as_str());
    names.filter(|name| name.starts_with("people/")).collect()
}

/// How often systemd was told to reload its configuration.
fn nr_reloads_of(world: &World) -> usize {
    let orders = world.host.systemd(|systemd, _| systemd.orders.clone());
    orders.iter().filter(|order| **order == Order::Reload).count()
}

/// A reload makes systemd write over what container runtimes have written without it.
#[test]
fn log_outs_make_systemd_reload_nothing_and_a_stop_once_at_most() {
    let mut world = world(PEOPLE);
    let before = whole(&world);
    world.start().unwrap();
    for round in 0..20 {
        let uid = 2000 + round % 3;
        let pid = log_in(&world, uid, Load::busy(8));
        world.ticks(6);
        assert!(world.file(&format!("{}/pids.max", &slice(uid)[1..])) == "100", "{round}");
        log_out(&world, uid, pid);
        world.ticks(40);
        assert_eq!(people(&world.tick()), ["people/ana"], "{round}");
    }
    assert_eq!(nr_reloads_of(&world), 0);
    let drop_ins = world.host.systemd(|systemd, _| {
        let of_users = systemd.units.iter().filter(|(name, _)| name.starts_with("user-20"));
        of_users.map(|(_, unit)| unit.drop_ins.len()).sum::<usize>()
    });
    assert_eq!(drop_ins, 0);
    assert_eq!(world.stop().failures, [""; 0]);
    assert!(nr_reloads_of(&world) <= 1);
    assert_whole(&before, &world, "stopped");
}

#[test]
fn users_are_tenants_from_the_tick_after_they_come_until_they_go() {
    let mut world = world(PEOPLE);
    let before = whole(&world);
    world.start().unwrap();
    assert_eq!(people(&world.tick()), ["people/ana"]);
    let ana = log_in(&world, 1001, Load::busy(8));
    let ben = log_in(&world, 1002, Load::busy(8));
    assert_eq!(people(&world.tick()), ["people/ana", "people/u1002"]);
    world.ticks(6);
    assert_near(&world.shares(&[&slice(1001)[1..], &slice(1002)[1..]], 10), &[0.75, 0.25], 0.02);
    let status = world.tick();
    let trace = world.agent.as_ref().unwrap().trace();
    let explained = explain::explain(trace, &status, "people/u1002").unwrap();
    assert!(explained.values.iter().any(|value| value.path.contains("user-1002.slice")));
    log_out(&world, 1002, ben);
    // A user may come back at once.
    assert_eq!(people(&world.ticks(10)), ["people/ana", "people/u1002"]);
    assert_eq!(people(&world.ticks(25)), ["people/ana"]);
    log_out(&world, 1001, ana);
    world.ticks(40);
    assert_eq!(world.stop().failures, [""; 0]);
    assert_whole(&before, &world, "stopped");
}

#[test]
fn a_refusal_shows_that_a_user_is_about_to_become_a_tenant() {
    let mut world = world(PEOPLE);
    world.start().unwrap();
    world.tick();
    let logged_in = log_in(&world, 1002, Load::idle());
    let elsewhere = world.spawn("/system.slice/batch.service", Load::idle());
    let refusal = |world: &mut World, uid, pid| {
        let allowed = Allowed::These(Vec::new());
        let parameters = SubmitParameters::default();
        let submission = Submission { parameters, uid, pid, process: None, allowed };
        let agent = world.agent.as_mut().unwrap();
        agent.submit_job(Ticket(u64::from(uid)), &submission, 1.0);
        let mut answers = agent.take_job_answers();
        match answers.pop() {
            Some((_, JobAnswer::Submitted(Err(error)))) => Some(error),
            _ => None,
        }
    };
    let none = |awaited| Some(CallError::NoOwnTenant { tenants: Vec::new(), awaited });
    assert_eq!(refusal(&mut world, 1002, logged_in), none(Some(true)));
    assert_eq!(refusal(&mut world, 1003, elsewhere), none(None));
    world.tick();
    let after = refusal(&mut world, 1002, logged_in);
    assert!(!matches!(after, Some(CallError::NoOwnTenant { .. })), "{after:?}");
}

#[test]
fn limits_of_the_template_are_in_force_and_given_back() {
    let mut world = world(PEOPLE);
    let pid = log_in(&world, 1002, Load::busy(8).with_working_set(64 * MIB));
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(8);
    let file = |world: &World, name: &str| world.file(&format!("{}/{name}", &slice(1002)[1..]));
    assert_eq!(file(&world, "pids.max"), "100");
    assert_ne!(file(&world, "cpu.max"), "max 100000");
    world.kill();
    world.start().unwrap();
    world.ticks(8);
    assert_eq!(file(&world, "pids.max"), "100");
    assert_eq!(world.end(true).failures, [""; 0]);
    assert_whole(&before, &world, "killed");
    log_out(&world, 1002, pid);
}

#[test]
fn another_template_changes_those_that_stay_and_moves_none() {
    let mut world = world(PEOPLE);
    let pid = log_in(&world, 1002, Load::busy(8));
    log_in(&world, 1003, Load::busy(8));
    world.start().unwrap();
    world.ticks(8);
    let changed = PEOPLE.replace("pids: 100", "pids: 200");
    let policy = crate::util::policy(&format!("version: 1\nmode: enforce\n{changed}"));
    world.agent.as_mut().unwrap().reload(policy.clone(), Vec::new()).unwrap();
    // It speaks of the policy as it was written.
    assert_eq!(world.agent.as_ref().unwrap().policy(), &policy);
    let status = world.ticks(6);
    assert_eq!(people(&status), ["people/ana", "people/u1002", "people/u1003"]);
    assert_eq!(world.file(&format!("{}/pids.max", &slice(1003)[1..])), "200");
    assert!(world.file(&format!("{}/cgroup.procs", &slice(1002)[1..])).contains(&pid.to_string()));
    let named = PEOPLE
        .replace("each:\n", "each:\n      owner: auto\n")
        .replace("  batch:", "  other: { match: { groups: [staff] } }\n  batch:");
    let policy = crate::util::policy(&format!("version: 1\nmode: enforce\n{named}"));
    world.agent.as_mut().unwrap().reload(policy, Vec::new()).unwrap();
    let status = world.ticks(3);
    assert_eq!(people(&status), ["people/ana"]);
    assert!(status.tenants.iter().any(|tenant| tenant.name == "other"));
}

#[test]
fn units_that_fit_are_tenants_each() {
    let mut world = world(
        "\
tenants:
  containers: { each: { match: { unit: 'docker-*.scope' } } }
  named: { match: { unit: docker-a.scope } }
",
    );
    let add = |world: &World, name: &str| {
        world.host.systemd(|systemd, kernel| {
            let (unit, cgroup) =
                (format!("docker-{name}.scope"), format!("/system.slice/docker-{name}.scope"));
            systemd.add_transient(&unit, &cgroup);
            systemd.start(kernel, &unit);
        });
        world.spawn(&format!("/system.slice/docker-{name}.scope"), Load::busy(8));
    };
    add(&world, "a");
    add(&world, "b");
    world.start().unwrap();
    world.ticks(2);
    add(&world, "c");
    let status = world.ticks(2);
    let names: Vec<&str> = status.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    let expected = ["containers/docker-b.scope", "containers/docker-c.scope", "named"];
    assert_eq!(names, expected);
    world.ticks(6);
    let used = [
        "system.slice/docker-a.scope",
        "system.slice/docker-b.scope",
        "system.slice/docker-c.scope",
    ];
    assert_near(&world.shares(&used, 10), &[0.5, 0.25, 0.25], 0.02);
    world.stop();
}

#[test]
fn units_are_found_where_no_tenant_is_a_unit_yet() {
    let mut world = world("tenants:\n  agents: { each: { match: { unit: 'agent-*.service' } } }\n");
    world.start().unwrap();
    world.ticks(2);
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "agent-a.service", "/system.slice/agent-a.service");
    });
    world.spawn("/system.slice/agent-a.service", Load::busy(8));
    let status = world.ticks(4);
    let names: Vec<&str> = status.tenants.iter().map(|tenant| tenant.name.as_str()).collect();
    assert_eq!(names, ["agents/agent-a.service"]);
    world.stop();
}

#[test]
fn cgroups_that_fit_are_tenants_each_where_they_are() {
    let pattern = "/kubepods.slice/**/kubepods*-pod*.slice";
    let yaml = format!(
        "tenants:\n  pods: {{ each: {{ match: {{ cgroup: '{pattern}' }} }} }}\n  \
         jobs: {{ each: {{ weight: 2, match: {{ cgroup: [/jobs/a, '/jobs/b*'] }} }} }}\n"
    );
    let mut world = world(&yaml);
    let burstable = "/kubepods.slice/kubepods-burstable.slice";
    let pod = |name: &str| format!("{burstable}/kubepods-burstable-pod{name}.slice");
    let add = |world: &World, name: &str| {
        world.host.systemd(|systemd, kernel| {
            systemd.add(kernel, &format!("kubepods-burstable-pod{name}.slice"), &pod(name));
        });
        world.spawn(&pod(name), Load::busy(8));
    };
    add(&world, "1");
    for job in ["a", "b1", "c"] {
        world.host.with(|kernel| kernel.make_cgroup(&format!("/jobs/{job}"))).unwrap();
    }
    world.start().unwrap();
    world.tick();
    add(&world, "2");
    let names = |status: &Status| -> Vec<String> {
        status.tenants.iter().map(|tenant| tenant.name.to_string()).collect()
    };
    let pods = ["1", "2"]
        .map(|name| format!("pods/kubepods-burstable.slice_x2fkubepods-burstable-pod{name}.slice"));
    let all = [&pods[..], &["jobs/a", "jobs/b1"].map(str::to_string)].concat();
    assert_eq!(names(&world.ticks(2)), all);
    world.spawn("/jobs/b1", Load::busy(8));
    world.ticks(8);
    let used = [pod("1"), pod("2"), "/jobs/b1".to_string()];
    let used: Vec<&str> = used.iter().map(|path| &path[1..]).collect();
    assert_near(&world.shares(&used, 10), &[0.25, 0.25, 0.5], 0.03);
    world.stop();
}

/// A small generator, so that the same users come and go in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[test]
fn a_thousand_users_who_come_and_go_leave_nothing() {
    let mut world = world(PEOPLE);
    let before = whole(&world);
    world.start().unwrap();
    world.ticks(40);
    let quiet = world.tick().findings.clone();
    let (mut dice, mut here, mut seen) = (Dice(7), Vec::new(), BTreeSet::new());
    let mut next = 2000;
    while next < 3000 || !here.is_empty() {
        for _ in 0..dice.below(40).min(here.len() as u64) {
            let (uid, pid) = here.swap_remove(dice.below(here.len() as u64) as usize);
            log_out(&world, uid, pid);
        }
        for _ in 0..dice.below(30).min(3000 - next) {
            let uid = next as u32;
            next += 1;
            here.push((uid, log_in(&world, uid, Load::idle())));
        }
        let status = world.tick();
        let names: BTreeSet<String> = people(&status).iter().map(|name| name.to_string()).collect();
        for (uid, _) in &here {
            assert!(names.contains(&format!("people/u{uid}")), "{uid}");
        }
        seen.extend(names);
    }
    assert_eq!(seen.len(), 1001);
    let status = world.ticks(70);
    assert_eq!(people(&status), ["people/ana"]);
    assert_eq!(status.findings, quiet);
    assert_eq!(world.agent.as_ref().unwrap().nodes().len(), 3);
    // The slice above them stays governed.
    let journal = std::fs::read_to_string(world.state_dir().join("journal")).unwrap();
    assert!(!journal.contains("user-") && journal.lines().count() < 10, "{journal}");
    let nr_reloads = nr_reloads_of(&world);
    assert_eq!(nr_reloads, 0, "of systemd");
    assert_eq!(world.stop().failures, [""; 0]);
    assert!(nr_reloads_of(&world) <= 1);
    assert_whole(&before, &world, "stopped");
}

/// The policy cannot know how many there will be.
#[test]
fn guarantees_of_many_are_scaled_down_together() {
    let mut world = world(
        "\
tenants:
  people: { each: { match: { users: '*' }, guarantee: { cpu: 1, memory: 1GiB } } }
  batch: { match: { unit: batch.service } }
",
    );
    for uid in 2000..2030 {
        log_in(&world, uid, Load::busy(8));
    }
    world.spawn("/system.slice/batch.service", Load::busy(8));
    world.start().unwrap();
    let status = world.ticks(10);
    let said = "for the guarantees of all that `each` found";
    assert!(status.findings.iter().any(|finding| finding.contains(said)), "{:?}", status.findings);
    let people: Vec<f64> =
        status.tenants.iter().filter(|it| it.found).map(|it| it.allocation[CPU]).collect();
    assert_eq!(people.len(), 30);
    assert!(people.iter().all(|cores| (cores - people[0]).abs() < 1e-6), "{people:?}");
    let all: f64 = status.tenants.iter().map(|tenant| tenant.allocation[CPU]).sum();
    assert!(all <= status.host.capacity[CPU] + 1e-6 && people[0] > 0.1, "{all} {people:?}");
    let slices: Vec<String> = (2000..2030).map(|uid| slice(uid)[1..].to_string()).collect();
    let slices: Vec<&str> = slices.iter().map(String::as_str).collect();
    assert_near(&world.shares(&slices, 10), &[1.0 / 30.0; 30], 0.005);
    world.stop();
}

/// Without the bus nothing can be given back: it stays recorded.
#[test]
fn users_come_and_go_while_the_bus_is_away() {
    let mut world = world(PEOPLE);
    world.start().unwrap();
    let ben = log_in(&world, 1002, Load::busy(8));
    world.ticks(8);
    world.host.systemd(|systemd, _| systemd.fault = Some(UnitFault::Away));
    log_in(&world, 1003, Load::busy(8));
    log_out(&world, 1002, ben);
    let status = world.ticks(60);
    // Slices are seen without the bus.
    assert_eq!(people(&status), ["people/ana", "people/u1003"]);
    assert!(!status.findings.is_empty());
    world.host.systemd(|systemd, _| systemd.fault = None);
    let status = world.ticks(80);
    assert_eq!(people(&status), ["people/ana", "people/u1003"]);
    let file = format!("{}/pids.max", &slice(1003)[1..]);
    assert_eq!(world.file(&file), "100");
    assert_eq!(world.stop().failures, [""; 0]);
    let journal = world.state_dir().join("journal");
    assert!(!journal.exists() || std::fs::read_to_string(journal).unwrap().lines().count() < 2);
}
