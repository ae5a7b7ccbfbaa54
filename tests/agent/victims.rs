//! Work that ends when memory runs out, by the shares of its tenants.

use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tenantd_control::report::status::{Status, VictimStatus};
use tenantd_sim::{Load, SimHost, Swap};
use tenantd_varlink::jobs::SubmitParameters;

use super::reload::reload;
use super::world::{GIB, MIB, World, legacy};

const TENANTS: &str = "tenants: { a: {}, b: {} }";
const BY_SHARE: &str = "memory: { victims: share }\ntenants: { a: {}, b: {} }";

/// No swap, so that memory can run out.
fn small(host: SimHost) -> SimHost {
    SimHost { memory_bytes: 4 * GIB, swap: None, ..host }
}

fn holding(bytes: u64) -> Load {
    Load { touch_bytes_per_sec: 2 * GIB, ..Load::busy(1) }.with_working_set(bytes)
}

fn alive(world: &World, pids: &[u32]) -> usize {
    world.host.with(|kernel| kernel.pids().iter().filter(|pid| pids.contains(pid)).count())
}

fn score(world: &World, pid: u32) -> i16 {
    let text = world.host.with(|kernel| kernel.file(&format!("/proc/{pid}/oom_score_adj")));
    text.unwrap().trim().parse().unwrap()
}

fn first(status: &Status) -> (&str, Option<u64>) {
    let VictimStatus { tenant, job, .. } = status.victim.as_ref().unwrap();
    (tenant, *job)
}

/// `a` holds less than its half in one process, `b` more than its half in five.
fn greedy_beside_modest(world: &mut World) -> (u32, Vec<u32>) {
    let modest = world.spawn("/a", holding(1400 * MIB));
    let greedy = (0..5).map(|_| world.spawn("/b", holding(420 * MIB))).collect();
    (modest, greedy)
}

#[test]
fn a_greedy_tenant_loses_its_work_and_a_modest_one_does_not() {
    for host in [small(SimHost::default()), small(legacy())] {
        for (yaml, is_modest_alive) in [(BY_SHARE, 1), (TENANTS, 0)] {
            let mut world = World::on(host.clone(), yaml);
            world.start().unwrap();
            world.tick();
            let (modest, greedy) = greedy_beside_modest(&mut world);
            world.ticks(4);
            assert_eq!((alive(&world, &[modest]), alive(&world, &greedy)), (1, 5));
            world.spawn("/b", holding(900 * MIB));
            world.ticks(4);
            assert_eq!(alive(&world, &[modest]), is_modest_alive, "{yaml} on {:?}", host.layout);
        }
    }
}

#[test]
fn nobody_ends_within_its_guarantee() {
    let yaml = "memory: { victims: share }\n\
                tenants: { a: { weight: 10, guarantee: { memory: 1500MiB } }, b: { weight: 1000 } }";
    let mut world = World::on(small(SimHost::default()), yaml);
    world.start().unwrap();
    world.tick();
    let (modest, _) = greedy_beside_modest(&mut world);
    let status = world.ticks(4);
    assert_eq!(first(&status), ("b", None));
    world.spawn("/b", holding(900 * MIB));
    world.ticks(4);
    assert_eq!(alive(&world, &[modest]), 1);
}

#[test]
fn observers_name_the_victim_and_mark_nothing() {
    let mut world = World::on(small(SimHost::default()), &format!("mode: observe\n{BY_SHARE}"));
    for path in ["/a", "/b"] {
        world.host.with(|kernel| kernel.make_cgroup(path)).unwrap();
    }
    world.start().unwrap();
    world.tick();
    let (modest, greedy) = greedy_beside_modest(&mut world);
    let status = world.ticks(4);
    assert_eq!(first(&status), ("b", None));
    assert!(greedy.iter().chain([&modest]).all(|pid| score(&world, *pid) == 0));
}

/// A new process of a marked tenant is marked, one that leaves it is not any more.
#[test]
fn marks_follow_the_processes_of_a_tenant() {
    let mut world = World::on(small(SimHost::default()), BY_SHARE);
    world.start().unwrap();
    world.tick();
    let (modest, greedy) = greedy_beside_modest(&mut world);
    world.ticks(4);
    assert!(greedy.iter().all(|pid| score(&world, *pid) == 997));
    // Within its share, but nobody else's is left after `b`'s.
    assert_eq!(score(&world, modest), 747);
    let late = world.spawn("/b", holding(8 * MIB));
    world.host.with(|kernel| kernel.make_cgroup("/elsewhere")).unwrap();
    world.write("elsewhere/cgroup.procs", &greedy[0].to_string());
    world.ticks(2);
    assert_eq!((score(&world, late), score(&world, greedy[0])), (997, 0));
}

/// A way in which the marks end, and its name.
type End = (&'static str, fn(&mut World));

/// Whatever ends the marks, each process has its old value again.
#[test]
fn old_scores_come_back() {
    let ends: [End; 5] = [
        ("a stop", |world| drop(world.stop())),
        ("a kill and a restore", |world| {
            world.kill();
            world.host.close_all();
            world.restore();
        }),
        ("a kill and a start", |world| {
            world.kill();
            world.host.close_all();
            world.start().unwrap();
        }),
        ("another rule", |world| {
            reload(world, TENANTS).unwrap();
            world.ticks(3);
        }),
        ("mode observe", |world| {
            let agent = world.agent.as_mut().unwrap();
            agent.set_mode(tenantd_policy::model::Mode::Observe).unwrap();
            world.ticks(3);
        }),
    ];
    for host in [small(SimHost::default()), small(legacy())] {
        for (what, end) in ends {
            let mut world = World::on(host.clone(), BY_SHARE);
            world.start().unwrap();
            world.tick();
            let (_, greedy) = greedy_beside_modest(&mut world);
            let set = |world: &World, pid: u32, value: &str| {
                let path = format!("/proc/{pid}/oom_score_adj");
                world.host.with(|kernel| kernel.write_file(&path, value)).unwrap();
            };
            set(&world, greedy[1], "300");
            set(&world, greedy[2], "-500");
            world.ticks(4);
            let marked: Vec<i16> = greedy.iter().map(|pid| score(&world, *pid)).collect();
            assert_eq!(marked, [997, 997, -500, 997, 997]);
            end(&mut world);
            let after: Vec<i16> = greedy.iter().map(|pid| score(&world, *pid)).collect();
            assert_eq!(after, [0, 300, -500, 0, 0], "{what} on {:?}", host.layout);
        }
    }
}

fn submit(world: &mut World, tenant: &str, bytes: u64, now: f64) -> u32 {
    let parameters = SubmitParameters {
        tenant: Some(tenant.into()),
        dop: Some(1),
        ..SubmitParameters::default()
    };
    world.submit(holding(bytes), parameters, now)
}

#[test]
fn the_youngest_job_ends_first_and_as_a_whole() {
    let host = SimHost { cpus: 8, ..small(SimHost::default()) };
    let mut world = World::on(host, BY_SHARE);
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    // Controllers are enabled for jobs only where no process is directly in the cgroup of the tenant.
    world.host.with(|kernel| kernel.make_cgroup("/b/service")).unwrap();
    let service = world.spawn("/b/service", holding(1100 * MIB));
    let old = submit(&mut world, "b", 500 * MIB, 100.0);
    let young = submit(&mut world, "b", 500 * MIB, 101.0);
    let cgroup = world.host.with(|kernel| kernel.process_cgroup(young)).unwrap();
    let second = world.spawn(&cgroup, holding(8 * MIB));
    for tick in 0..4 {
        world.agent.as_mut().unwrap().tend_jobs(true, 102.0 + f64::from(tick));
        world.tick();
    }
    let status = world.tick();
    assert_eq!(first(&status), ("b", Some(2)), "{:?}", status.victim);
    assert_eq!([young, second, old].map(|pid| score(&world, pid)), [997, 997, 747]);
    assert_eq!(world.file(&format!("{}/memory.oom.group", cgroup.trim_start_matches('/'))), "1");
    world.spawn("/a", holding(2000 * MIB));
    world.ticks(3);
    assert_eq!([young, second, old, service].map(|pid| alive(&world, &[pid])), [0, 0, 1, 1]);
}

/// A tenant of which a part is in swap holds that part too: it does not hide behind the jobs of a modest one.
#[test]
fn swapped_memory_counts() {
    let swap = Some(Swap::disk(2 * GIB));
    let host = SimHost { cpus: 8, swap, ..small(SimHost::default()) };
    let mut world = World::on(host, BY_SHARE);
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    submit(&mut world, "a", 300 * MIB, 100.0);
    world.write("b/cgroup.subtree_control", "+memory");
    world.host.with(|kernel| kernel.make_cgroup("/b/inner")).unwrap();
    world.write("b/inner/memory.max", &(1500 * MIB).to_string());
    world.spawn("/b/inner", holding(2600 * MIB));
    for tick in 0..6 {
        world.agent.as_mut().unwrap().tend_jobs(true, 102.0 + f64::from(tick));
        world.tick();
    }
    let status = world.tick();
    let swapped: u64 = world.file("b/memory.swap.current").parse().unwrap();
    assert!(swapped > 600 * MIB, "{swapped}");
    let victim = status.victim.as_ref().unwrap();
    assert_eq!(first(&status), ("b", None), "{victim:?}");
}

/// The outcome of one host that runs out of memory: true if what ended is what the status named.
fn is_right(host: SimHost, weights: [u32; 3], held: [(u64, u64); 3]) -> bool {
    let [a, b, c] = weights;
    let yaml = format!(
        "memory: {{ victims: share }}\ntenants: {{ a: {{ weight: {a} }}, b: {{ weight: {b} }}, c: {{ weight: {c} }} }}"
    );
    let mut world = World::on(small(host), &yaml);
    world.start().unwrap();
    world.tick();
    let tenants: Vec<(&str, Vec<u32>)> = ["a", "b", "c"]
        .into_iter()
        .zip(held)
        .map(|(name, (nr, mib))| {
            let load = holding(mib * MIB / nr);
            (name, (0..nr).map(|_| world.spawn(&format!("/{name}"), load)).collect())
        })
        .collect();
    let named = first(&world.ticks(4)).0.to_string();
    let all: Vec<u32> = tenants.iter().flat_map(|(_, pids)| pids.clone()).collect();
    let before = alive(&world, &all);
    // Outside all tenants memory is taken until something ends.
    world.host.with(|kernel| kernel.make_cgroup("/outside")).unwrap();
    let taker = world.spawn("/outside", Load::idle());
    let has_ended = (1..400_u64).any(|step| {
        world.set_load(taker, holding(step * 16 * MIB));
        world.host.with(|kernel| kernel.advance(Duration::from_millis(10)));
        alive(&world, &all) < before || alive(&world, &[taker]) == 0
    });
    assert!(has_ended, "memory did not run out");
    let ended = tenants.iter().find(|(_, pids)| alive(&world, pids) < pids.len());
    ended.is_some_and(|(name, _)| *name == named)
}

/// A hundred hosts of which each runs out of memory.
#[test]
fn the_victim_is_the_one_of_the_rule() {
    let cases =
        (prop::array::uniform3(50..200_u32), prop::array::uniform3((1..6_u64, 300..1100_u64)));
    let mut runner = TestRunner::deterministic();
    let nr_right = (0..100)
        .filter(|round| {
            let (weights, held) = cases.new_tree(&mut runner).unwrap().current();
            is_right(if round % 2 == 0 { SimHost::default() } else { legacy() }, weights, held)
        })
        .count();
    assert!(nr_right >= 98, "{nr_right} of 100");
}
