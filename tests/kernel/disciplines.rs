//! Two hundred jobs of five tenants through each discipline: all of them run, no more at a time than may, and where the
//! discipline promises parts of the CPU time by weight, tenants get these while all of them have jobs that wait.

use std::process::{Child, Stdio};

use serde_json::json;
use tenantd_host::cgroup::Facet;
use tenantd_queue::discipline::Name;

use super::ask::Asked;
use super::ground::Ground;
use super::jobs::{Client, command, has_no_job_cgroups, is_empty, jobs};
use crate::util::wait_until;

/// A tenant, its weight, its jobs, and the CPU time that each of them uses, in seconds: as much in all as its weight says.
/// With parts by weight all tenants are done at the same time, and with any others some are done early.
const TENANTS: [(&str, f64, usize, f64); 5] = [
    ("a", 1.0, 20, 0.030),
    ("b", 1.0, 10, 0.060),
    ("c", 2.0, 60, 0.020),
    ("d", 2.0, 50, 0.024),
    ("e", 4.0, 60, 0.040),
];
const NR_WORKERS: usize = 2;
/// What a job without a history is charged when it starts, in CPU seconds; more than any of these uses.
const CHARGE: f64 = 0.1;
/// The part of a CPU that a job is charged for at least while it holds a worker.
const WORKER_CORES: f64 = 0.05;

/// Whether a discipline promises CPU time by weight: those that go by tags, which charges divided by the weight move. The
/// others go by arrival, by priority, by turns, by what jobs hold now, or by levels of what jobs have used.
fn is_weighted(discipline: Name) -> bool {
    !matches!(
        discipline,
        Name::Fifo | Name::Priority | Name::RoundRobin | Name::Drf | Name::Multilevel
    )
}

/// What one job has written: when it began and ended, and what each tenant had used when it began, in seconds.
#[derive(Debug)]
struct Record {
    tenant: usize,
    begin: f64,
    end: f64,
    used: [f64; 5],
}

impl Record {
    fn of(line: &str) -> Record {
        let mut words = line.split(' ');
        let tenant = words.next().unwrap();
        let mut numbers = words.map(|word| word.parse().unwrap());
        let mut next = || numbers.next().unwrap();
        let tenant = TENANTS.iter().position(|(name, ..)| *name == tenant).unwrap();
        Record { tenant, begin: next(), end: next(), used: std::array::from_fn(|_| next()) }
    }
}

/// The jobs of all tenants, each tenant's from a process of its own. A job uses so many times the CPU time of its tenant.
fn submit(asked: &Asked, times: f64) -> Vec<Child> {
    let log = asked.ground.scratch.path().join("jobs").display().to_string();
    let file = if asked.ground.layout.is_unified() { "cpu.stat" } else { "cpuacct.usage" };
    let path = |tenant: &str| asked.ground.dir(Facet::Cpuacct, tenant).join(file);
    let paths = TENANTS.map(|(tenant, ..)| path(tenant).display().to_string());
    let of = |(tenant, _, count, seconds): &(&str, f64, usize, f64)| {
        let (count, seconds) = (count.to_string(), (seconds * times).to_string());
        let mut arguments = vec!["--each", &count, "burn", &seconds, &log, tenant];
        arguments.extend(paths.iter().map(String::as_str));
        let mut all = command(asked, &json!({ "tenant": tenant }), &arguments);
        all.stdout(Stdio::piped()).spawn().unwrap()
    };
    TENANTS.iter().map(of).collect()
}

/// Runs all jobs, from a queue in which all of them wait. Returns what they wrote in the order in which they began, and
/// what the tenants had used before.
fn run(asked: &Asked, times: f64) -> (Vec<Record>, [f64; 5]) {
    let gate = || Client::submit(asked, &json!({ "tenant": "gate" }), &["cat"]);
    let mut gates: Vec<Client> = (0..NR_WORKERS).map(|_| gate()).collect();
    gates.iter_mut().for_each(|gate| drop(gate.starts()));
    let all = submit(asked, times);
    let nr_jobs: usize = TENANTS.iter().map(|(_, _, count, _)| count).sum();
    wait_until("all jobs", || jobs(asked).len() == NR_WORKERS + nr_jobs);
    let before = TENANTS.map(|(tenant, ..)| asked.ground.used_sec(tenant));
    gates.into_iter().for_each(Client::end);
    for one in all {
        let said = String::from_utf8(one.wait_with_output().unwrap().stdout).unwrap();
        assert_eq!(said.lines().last(), Some("failed 0"), "{said}");
    }
    let log = std::fs::read_to_string(asked.ground.scratch.path().join("jobs")).unwrap();
    let mut records: Vec<Record> = log.lines().map(Record::of).collect();
    assert_eq!(records.len(), nr_jobs);
    records.sort_by(|a, b| a.begin.total_cmp(&b.begin));
    for (at, record) in records.iter().enumerate() {
        let nr_others = records[..at].iter().filter(|other| other.end > record.begin).count();
        assert!(nr_others < NR_WORKERS, "{nr_others} others run beside {record:?}");
    }
    (records, before)
}

/// The CPU time of the tenants when each job began that was sure to find all of them with jobs that wait.
///
/// A job that is chosen may begin late, but no more than the workers are: when one begins, at most one of those that begin
/// later was chosen already.
fn while_all_wait(records: &[Record], before: [f64; 5]) -> Vec<(&Record, [f64; 5])> {
    let all_wait = |at: usize| {
        let later = |tenant| records[at + 1..].iter().filter(move |it| it.tenant == tenant);
        (0..TENANTS.len()).all(|tenant| later(tenant).count() >= NR_WORKERS)
    };
    let had = |record: &Record| std::array::from_fn(|tenant| record.used[tenant] - before[tenant]);
    let judged = (0..records.len()).filter(|at| all_wait(*at));
    judged.map(|at| (&records[at], had(&records[at]))).collect()
}

/// What tenants may at most be charged beyond the CPU time that they use, up to a time: where the machine gives a job less
/// than a twentieth of a CPU, it pays for the worker. One that had ten times that pays nothing for the time that is seen.
fn unseen_charges(records: &[Record], until: f64) -> f64 {
    let since = records[0].begin;
    let is_quick = |it: &&Record| {
        it.end < until && (it.end - it.begin) * 2.0 * WORKER_CORES < TENANTS[it.tenant].3
    };
    let seen: f64 = records.iter().filter(is_quick).map(|it| it.end - it.begin).sum();
    (NR_WORKERS as f64 * (until - since) - seen).max(0.0) * WORKER_CORES
}

/// Each tenant has at most its part of what all have had, and what follows from jobs that are not divided.
///
/// Let `S` be what a tenant was charged over its weight `w`, of `n` tenants with the sum of weights `W`, on `N` workers, and no
/// job be charged more than `c`, in advance or in fact. One is chosen only if its `S` is at most `c / w'` above the `S'` of each
/// other: `w'·S ≤ w'·S' + c`. The sum over all, with what the `N − 1` others that run were charged in advance, is
/// `W·S ≤ had + (N − 1)·c + (n − 1)·c`; and since it was chosen, it has used at most `c` more than `w·S`.
fn assert_divided(name: &str, records: &[Record], (record, had): &(&Record, [f64; 5])) {
    let (all, weights): (f64, f64) = (had.iter().sum(), TENANTS.iter().map(|it| it.1).sum());
    let unseen = unseen_charges(records, record.begin);
    for ((tenant, weight, ..), had) in TENANTS.iter().zip(had) {
        let part = weight / weights;
        let others = (NR_WORKERS - 1 + TENANTS.len() - 1) as f64;
        let most = part * (all + unseen + others * CHARGE) + CHARGE;
        assert!(*had <= most, "{name}: {tenant} has {had:.3} of {all:.3} s, and {most:.3} at most");
    }
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn two_hundred_jobs_of_five_tenants_in_each_discipline() {
    let Some(mut ground) = Ground::take() else { return };
    let tenants = TENANTS.map(|(tenant, weight, ..)| format!("{tenant}: {{ weight: {weight} }}"));
    for (name, discipline) in Name::ALL {
        // The gate holds the workers until all wait. Virtual time passes as it pays for them, the slower the heavier it is.
        let policy = format!(
            "admission: {{ max_running: {NR_WORKERS}, discipline: {name} }}\n\
             tenants: {{ gate: {{ weight: 10000 }}, {} }}",
            tenants.join(", ")
        );
        let asked = Asked::on(ground, &policy);
        // Where nothing is promised, how much a job costs does not matter.
        let times = if is_weighted(discipline) { 1.0 } else { 0.2 };
        let (records, before) = run(&asked, times);
        let judged = while_all_wait(&records, before);
        let (_, had) = judged.last().expect("a time when all had jobs that wait");
        let all: f64 = had.iter().sum();
        println!("{name:12} {:.3?} of {all:.2} s", had.map(|had| had / all));
        if is_weighted(discipline) {
            judged.iter().for_each(|one| assert_divided(name, &records, one));
        }
        for (tenant, _, count, seconds) in TENANTS {
            let used = asked.ground.used_sec(tenant);
            assert!(
                used >= 0.9 * count as f64 * seconds * times,
                "{name}: {tenant} has used {used} s"
            );
        }
        wait_until("no job", || is_empty(&asked));
        wait_until("no cgroup", || TENANTS.iter().all(|it| has_no_job_cgroups(&asked, it.0)));
        let Asked { ground: taken, daemon, .. } = asked;
        daemon.stop();
        ground = taken;
        std::fs::remove_file(ground.scratch.path().join("jobs")).unwrap();
    }
}
