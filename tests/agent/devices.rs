//! Indices of counted resources: for each job its own, in the answer, the list and the status, and over a restart.

use std::collections::BTreeMap;

use tenantd::agent::JobAnswer;
use tenantd_sim::Load;
use tenantd_varlink::bridge::{Caller, Submission, Ticket};
use tenantd_varlink::jobs::{
    Assigned, ListReply, ReportParameters, Started, SubmitParameters, TaskSums, Units,
};

use super::world::{MIB, World, submission};

const POLICY: &str = "\
host: { resources: { gpu: { count: 4, env: [CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES] }, licence: 2 } }
admission: { max_running: 64 }
tenants: { a: {}, b: {} }
";

fn world() -> World {
    let mut world = World::new(POLICY);
    world.add_session();
    world.start().unwrap();
    world.ticks(3);
    world
}

fn with_devices(world: &World, gpus: u32, tasks: Option<u32>) -> Submission {
    let pid = world.client(1000, Load { working_set_bytes: MIB, ..Load::busy(1) });
    let parameters = SubmitParameters {
        tenant: Some("a".into()),
        units: Some(vec![Units { name: "gpu".into(), count: gpus }]),
        tasks,
        supervised: tasks.map(|_| true),
        ..SubmitParameters::default()
    };
    submission((1000, pid), parameters)
}

/// Answers to clients about their start, by the process.
fn started(world: &mut World) -> BTreeMap<u32, Started> {
    let answers = world.agent.as_mut().unwrap().take_job_answers().into_iter();
    let started = answers.filter_map(|(ticket, answer)| match answer {
        JobAnswer::Submitted(Ok(reply)) | JobAnswer::Waits(reply) => {
            Some((ticket.0 as u32, reply.started?))
        }
        _ => None,
    });
    started.collect()
}

fn list(world: &mut World, now: f64) -> ListReply {
    world.agent.as_mut().unwrap().take_job_list(now).expect("something that changed")
}

/// Indices that each running job has in the list.
fn held(list: &ListReply) -> BTreeMap<u64, Vec<u32>> {
    let of_job =
        |assigned: &[Assigned]| assigned.iter().flat_map(|it| it.indices.clone()).collect();
    let running =
        list.jobs.iter().filter_map(|job| Some((job.id, of_job(&job.started.as_ref()?.assigned))));
    running.filter(|(_, indices): &(u64, Vec<u32>)| !indices.is_empty()).collect()
}

/// 50 clients at once; as jobs end, others get their indices, and none has one that another has.
#[test]
fn fifty_submissions_at_once_share_no_index() {
    let mut world = world();
    let all: Vec<Submission> = (0..50).map(|at| with_devices(&world, 1 + at % 2, None)).collect();
    world.submit_all(&all, 1.0);
    let mut of_process: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    let mut nr_started = 0;
    for round in 0..100 {
        let now = 2.0 + f64::from(round);
        for (pid, started) in started(&mut world) {
            let [gpu] = &started.assigned[..] else { panic!("{started:?}") };
            assert_eq!(gpu.env, ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"]);
            let others: Vec<u32> = of_process.values().flatten().copied().collect();
            assert!(
                gpu.indices.iter().all(|it| *it < 4 && !others.contains(it)),
                "{others:?} {gpu:?}"
            );
            let wanted = all.iter().find(|it| it.pid == pid).unwrap().parameters.units.clone();
            assert_eq!(gpu.indices.len() as u32, wanted.unwrap()[0].count);
            of_process.insert(pid, gpu.indices.clone());
            nr_started += 1;
        }
        let list = list(&mut world, now);
        let mut told: Vec<Vec<u32>> = held(&list).into_values().collect();
        let mut here: Vec<Vec<u32>> = of_process.values().cloned().collect();
        told.sort_unstable();
        here.sort_unstable();
        assert_eq!(told, here, "the list has what the clients were told");
        let Some((pid, _)) = of_process.pop_first() else { break };
        world.host.with(|kernel| kernel.kill(pid)).unwrap();
        world.agent.as_mut().unwrap().tend_jobs(true, now);
    }
    assert_eq!((nr_started, of_process.len()), (50, 0));
}

#[test]
fn the_status_names_the_holders_of_each_index() {
    let mut world = world();
    let all = [2, 1].map(|gpus| with_devices(&world, gpus, None));
    world.submit_all(&all, 1.0);
    let agent = world.agent.as_mut().unwrap();
    agent.note_jobs(2.0);
    let units = agent.status().jobs.clone().unwrap().units;
    assert_eq!([&*units[0].name, &*units[1].name], ["gpu", "licence"]);
    let held: Vec<(u64, u32, Vec<u32>)> =
        units[0].held.iter().map(|it| (it.job, it.uid, it.indices.clone())).collect();
    assert_eq!(held, [(1, 1000, vec![0, 1]), (2, 1000, vec![2])]);
    assert_eq!((units[0].free, units[1].free, units[1].held.len()), (1, 2, 0));
}

#[test]
fn indices_survive_a_restart_and_a_kill() {
    for is_killed in [false, true] {
        let mut world = world();
        let all = [1, 2].map(|gpus| with_devices(&world, gpus, None));
        world.submit_all(&all, 1.0);
        world.host.with(|kernel| kernel.kill(all[0].pid)).unwrap();
        world.agent.as_mut().unwrap().tend_jobs(true, 2.0);
        if is_killed {
            world.kill();
        } else {
            world.stop();
        }
        world.start().unwrap();
        world.ticks(3);
        world.agent.as_mut().unwrap().tend_jobs(true, 5.0);
        assert_eq!(held(&list(&mut world, 6.0)), [(2, vec![1, 2])].into(), "{is_killed}");
        let late = [2, 1].map(|gpus| with_devices(&world, gpus, None));
        world.submit_all(&late, 7.0);
        let indices =
            started(&mut world).into_iter().map(|(pid, it)| (pid, it.assigned[0].indices.clone()));
        assert_eq!(indices.collect::<Vec<_>>(), [(late[0].pid, vec![0, 3])], "{is_killed}");
    }
}

/// The client of a set divides the indices among its tasks, and reports those in use.
#[test]
fn a_set_gets_indices_for_its_tasks() {
    let mut world = world();
    let set = with_devices(&world, 1, Some(6));
    let ticket = Ticket(u64::from(set.pid));
    world.submit_all(std::slice::from_ref(&set), 1.0);
    let indices = |world: &mut World| started(world)[&set.pid].assigned[0].indices.clone();
    assert_eq!(indices(&mut world), [0, 1, 2, 3]);
    let report = |world: &mut World, succeeded: u32, in_use: &[u32]| {
        let tasks = Some(TaskSums { started: 4, succeeded, ..TaskSums::default() });
        let in_use =
            vec![Assigned { name: "gpu".into(), indices: in_use.to_vec(), env: Vec::new() }];
        let report =
            ReportParameters { id: 1, tasks, in_use: Some(in_use), ..ReportParameters::default() };
        let agent = world.agent.as_mut().unwrap();
        agent.report_job(ticket, report, Caller { user: Some(1000), pid: set.pid });
    };
    // Another job waits for one, and the set for more turns.
    let other = with_devices(&world, 1, None);
    world.submit_all(std::slice::from_ref(&other), 2.0);
    report(&mut world, 2, &[1, 3]);
    world.agent.as_mut().unwrap().settle_job_calls(3.0);
    let told = started(&mut world);
    let (of_set, of_other) =
        (&told[&set.pid].assigned[0].indices, &told[&other.pid].assigned[0].indices);
    assert_eq!((of_set.len(), of_other.len()), (3, 1));
    assert!(
        of_set.contains(&1) && of_set.contains(&3) && !of_set.contains(&of_other[0]),
        "{told:?}"
    );
}
