//! Deaths for lack of memory: each once, with its cause.

use std::time::Duration;

use tenantd_control::report::status::{DeathCause, DeathStatus, Status};
use tenantd_host::systemd::{Property, PropertyValue, RunResult, Setting};
use tenantd_sim::{Load, SimHost};
use tenantd_varlink::jobs::{EndReason, SubmitParameters};

use super::kills::two_limited_services;
use super::world::{GIB, MIB, World, legacy, tenant};

const LIMITED: &str = "tenants: { a: { limit: { memory: 64MiB } }, b: {} }";

fn holding(bytes: u64) -> Load {
    Load { touch_bytes_per_sec: 2 * GIB, ..Load::busy(1) }.with_working_set(bytes)
}

/// The same, so slowly that a tick sees it before it ends.
fn growing(bytes: u64) -> Load {
    Load { touch_bytes_per_sec: 48 * MIB, ..holding(bytes) }
}

fn deaths<'a>(status: &'a Status, name: &str) -> &'a [DeathStatus] {
    &tenant(status, name).deaths
}

/// The only death so far, found within two ticks and not again later.
#[track_caller]
fn only(world: &mut World, name: &str) -> DeathStatus {
    let found = deaths(&world.ticks(2), name).to_vec();
    let status = world.ticks(40);
    let (all, nr_deaths) = (deaths(&status, name), tenant(&status, name).nr_deaths);
    assert_eq!((found.len(), all.len(), nr_deaths), (1, 1, 1), "{all:?}");
    assert!((40.0..43.0).contains(&all[0].age_seconds), "{all:?}");
    found[0].clone()
}

#[test]
fn a_limit_of_the_policy_is_named_in_both_hierarchies() {
    for host in [SimHost::default(), legacy()] {
        let mut world = World::on(host, LIMITED);
        world.start().unwrap();
        world.ticks(2);
        let pid = world.spawn("/a", holding(256 * MIB));
        let death = only(&mut world, "a");
        assert_eq!((death.cause, death.pid, death.nr_processes), (DeathCause::Limit, Some(pid), 1));
        assert!(death.held_bytes.is_some_and(|held| held > 60 * MIB), "{death:?}");
        let text = death.to_string();
        for words in
            ["killed: a reached its limit of 64MiB", "raise limit.memory of a", "share if busy"]
        {
            assert!(text.contains(words), "{text}");
        }
        assert_eq!(deaths(&world.tick(), "b"), []);
    }
}

#[test]
fn without_the_log_the_counters_report_a_death() {
    let mut world = World::new(LIMITED);
    world.host.without_log();
    world.start().unwrap();
    world.ticks(2);
    world.spawn("/a", growing(256 * MIB));
    let death = only(&mut world, "a");
    assert_eq!((death.cause, death.pid, death.nr_processes), (DeathCause::Unknown, None, 1));
}

#[test]
fn a_host_without_memory_is_the_cause_of_a_death() {
    let host = SimHost { memory_bytes: 4 * GIB, swap: None, ..SimHost::default() };
    let mut world = World::on(host, "tenants: { a: {}, b: {} }");
    world.start().unwrap();
    world.tick();
    world.spawn("/a", holding(GIB));
    world.ticks(3);
    world.spawn("/b", holding(6 * GIB));
    let death = only(&mut world, "b");
    assert_eq!(death.cause, DeathCause::Host);
    assert!(death.text.contains("the host had no memory left"), "{death:?}");
}

/// The cgroup of the service is gone before a tick, and systemd reports the kill as well.
#[test]
fn a_killed_service_is_reported_once() {
    let mut world = two_limited_services();
    for round in 1..=3 {
        world.spawn("/system.slice/web.service", holding(256 * MIB));
        world.host.with(|kernel| kernel.advance(Duration::from_millis(300)));
        world.host.systemd(|systemd, kernel| {
            assert_eq!(systemd.stop_killed(kernel), ["web.service"]);
            systemd.start(kernel, "web.service");
        });
        let status = world.ticks(2);
        let death = deaths(&status, "web").last().unwrap().clone();
        assert_eq!((death.cause, deaths(&status, "web").len()), (DeathCause::Limit, round));
        assert!(death.text.contains("raise MemoryMax= of web.service"), "{death:?}");
        let status = world.ticks(40);
        assert_eq!(tenant(&status, "web").nr_deaths, round as u64, "{:?}", deaths(&status, "web"));
        assert_eq!(tenant(&status, "db").nr_deaths, 0);
    }
}

/// A unit that begins and is killed between two ticks; a cgroup of the same name in a user's own unit is not that unit.
#[test]
fn a_service_that_no_tick_has_seen_is_reported_with_its_limit() {
    for (cgroup, cause) in [
        ("/system.slice/web.service", DeathCause::Limit),
        ("/user.slice/user-1000.slice/user@1000.service/web.service", DeathCause::Oomd),
    ] {
        let mut world = World::new("tenants: { web: { match: { unit: web.service } }, db: {} }");
        world.start().unwrap();
        world.ticks(6);
        let limit = PropertyValue::Number(64 * MIB);
        let limit = Setting { property: Property::MemoryMax, value: limit };
        world.host.systemd(|systemd, kernel| {
            systemd.add(kernel, "web.service", cgroup);
            systemd.set_property(kernel, "web.service", &limit);
        });
        world.spawn(cgroup, holding(256 * MIB));
        world.host.with(|kernel| kernel.advance(Duration::from_millis(300)));
        world.host.systemd(|systemd, kernel| {
            assert_eq!(systemd.stop_killed(kernel), ["web.service"]);
        });
        assert_eq!(only(&mut world, "web").cause, cause, "{cgroup}");
    }
}

#[test]
fn an_end_that_only_systemd_reports_is_of_oomd() {
    let mut world = World::new("tenants: { web: { match: { unit: web.service } } }");
    world.host.systemd(|systemd, kernel| {
        systemd.add(kernel, "web.service", "/system.slice/web.service");
    });
    world.start().unwrap();
    world.spawn("/system.slice/web.service", Load::busy(1));
    world.ticks(6);
    world.host.systemd(|systemd, _| {
        systemd.results.push(RunResult { unit: "web.service".into(), is_oom_kill: true });
    });
    let death = only(&mut world, "web");
    assert_eq!((death.cause, death.pid), (DeathCause::Oomd, None));
}

#[test]
fn a_job_above_its_declaration_is_one_death_of_all_its_processes() {
    let mut world = World::new("tenants: { a: { limit: { memory: 1GiB } } }");
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    let parameters = SubmitParameters {
        tenant: Some("a".into()),
        memory_bytes: Some(64 * MIB),
        ..SubmitParameters::default()
    };
    let pid = world.submit(Load::busy(1), parameters, 1.0);
    world.spawn("/a/job-1", Load::busy(1));
    world.ticks(2);
    world.set_load(pid, holding(256 * MIB));
    // Between two ticks, as by the end of its process.
    world.host.with(|kernel| kernel.advance(Duration::from_millis(300)));
    let agent = world.agent.as_mut().unwrap();
    agent.tend_jobs(false, 4.0);
    let job = agent.take_finished_jobs().unwrap().pop().unwrap();
    assert_eq!(
        (job.reason, job.killer),
        (EndReason::Killed, Some(DeathCause::Declared)),
        "{job:?}"
    );
    assert!(job.text.contains("run with --memory"), "{}", job.text);
    let death = only(&mut world, "a");
    assert_eq!((death.cause, death.job, death.uid), (DeathCause::Declared, Some(1), Some(1000)));
    assert_eq!(death.nr_processes, 2, "{death:?}");
    // Another user learns of the death, not of the process.
    let seen = death.seen_by(7);
    assert_eq!((seen.pid, seen.program, seen.cgroup), (None, None, None));
}

#[test]
fn a_limit_above_the_job_is_not_its_declaration() {
    let mut world = World::new("tenants: { a: { limit: { memory: 128MiB } } }");
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    let parameters = SubmitParameters { tenant: Some("a".into()), ..SubmitParameters::default() };
    let pid = world.submit(Load::busy(1), parameters, 1.0);
    world.set_load(pid, holding(256 * MIB));
    world.ticks(2);
    let agent = world.agent.as_mut().unwrap();
    agent.tend_jobs(true, 4.0);
    let job = agent.take_finished_jobs().unwrap().pop().unwrap();
    assert_eq!((job.killer, job.killer_limit.as_deref()), (Some(DeathCause::Limit), Some("a")));
    assert!(job.text.contains("a reached its memory limit"), "{}", job.text);
}

/// A cgroup whose name reads as another place.
#[test]
fn a_name_puts_no_death_on_another_tenant() {
    let mut world = World::new("tenants: { a: { limit: { memory: 64MiB } }, b: {} }");
    world.start().unwrap();
    world.ticks(2);
    world.host.with(|kernel| kernel.make_cgroup("/a/x,task_memcg=")).unwrap();
    world.host.with(|kernel| kernel.make_cgroup("/a/x,task_memcg=/b")).unwrap();
    world.spawn("/a/x,task_memcg=/b", growing(256 * MIB));
    let death = only(&mut world, "a");
    assert_eq!(death.cause, DeathCause::Unknown);
    assert_eq!(deaths(&world.tick(), "b"), []);
}
