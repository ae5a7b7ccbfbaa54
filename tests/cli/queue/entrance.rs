//! What comes before the queue and beside it, through the command: rates, bounds, sets of requests, reserved workers,
//! capacities, kills and charges.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{number, refused, scenario, simulated};
use crate::util;

/// All dispatches as `A1@0:W0`.
fn schedule(answer: &Value) -> Vec<String> {
    let entry = |d: &Value| {
        let (name, time) = (d["tenant"].as_str().unwrap(), d["time"].as_f64().unwrap());
        format!("{name}{}@{time}:W{}", d["request"], d["worker"])
    };
    answer["dispatches"].as_array().unwrap().iter().map(entry).collect()
}

fn of(answer: &Value, tenant: &str, key: &str) -> f64 {
    number(&answer["tenants"][tenant][key])
}

#[test]
fn the_example_runs() {
    for what in ["queue", "host"] {
        let example = util::tenantctl_reads(&["simulate", what, "--example"], b"");
        assert!(example.status.success());
        let output = util::tenantctl_reads(&["simulate", what, "-", "--json"], &example.stdout);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let answer = simulated(&scenario("example"));
    assert!(of(&answer, "batch", "completed") > 0.0, "{answer}");
    assert!(answer["jobs"][1]["started"].as_f64() >= answer["jobs"][0]["finished"].as_f64());
}

/// Units are numbered from 0: the lowest free ones at a start, each held once, and a file that cannot be numbered is refused.
#[test]
fn units_are_numbered() {
    let text = "discipline: fifo\nworkers: 4\nhorizon: 9\ncapacity: { cpu: 8, gpu: 4 }\nindices: [gpu]\n\
                tenants: { A: { holds: { cpu: 1, gpu: 2 } }, B: { holds: { cpu: 1, gpu: 1 } }, C: { holds: { cpu: 1 } } }\n\
                arrivals: [[0, A, 3], [0, B, 1], [0, C, 1], [0, B, 2], [1, B, 4], [2, A, 1]]\n";
    let answer = simulated(text);
    let held = |d: &Value| {
        let (tenant, time) = (d["tenant"].as_str().unwrap(), d["time"].as_f64().unwrap());
        let indices = d["indices"]["gpu"]
            .as_array()
            .map(|all| all.iter().map(|it| it.as_u64().unwrap()).collect());
        (format!("{tenant}@{time}"), indices.unwrap_or_default())
    };
    let all: Vec<(String, Vec<u64>)> =
        answer["dispatches"].as_array().unwrap().iter().map(held).collect();
    let expected = [
        ("A@0", vec![0, 1]),
        ("B@0", vec![2]),
        ("C@0", vec![]),
        ("B@0", vec![3]),
        ("B@1", vec![2]),
        ("A@3", vec![0, 1]),
    ];
    assert_eq!(all, expected.map(|(name, indices)| (name.to_string(), indices)));
    for (before, after, code) in [
        ("indices: [gpu]", "indices: [tpu]", "Q007"),
        ("gpu: 4 }", "gpu: 4.5 }", "Q008"),
        ("gpu: 2 }", "gpu: 0.5 }", "Q008"),
        ("horizon: 9", "horizon: 9\nquantum: 1", "Q008"),
    ] {
        let errors = refused(&text.replace(before, after));
        assert!(errors.len() == 1 && errors[0].starts_with(code), "{after}: {errors:?}");
    }
}

/// Jobs of a tenant with pauses start earlier by what it left to the others, and it pays for that.
#[test]
fn credits_are_played() {
    let file = std::fs::read_to_string("scenarios/queue/credits.yaml").unwrap();
    let plain: String = file
        .lines()
        .filter(|line| !line.starts_with("credits"))
        .fold(String::new(), |text, line| text + line + "\n");
    let (plain, credited) = (simulated(&plain), simulated(&file));
    for part in ["latency_p50", "latency_p99"] {
        let (before, after) = (of(&plain, "a", part), of(&credited, "a", part));
        assert!(after < 0.8 * before, "{part} {before} {after}");
    }
    // 20 jobs of 20 seconds on 4 workers; a bank is at most 60 s of a third of the machine.
    let (fee, bank) = (of(&credited, "a", "fee"), of(&credited, "a", "bank"));
    assert!(fee > 20.0 && fee <= 100.0 && bank > 0.0 && bank <= 20.0, "{fee} {bank}");
    for name in ["b", "c"] {
        assert_eq!(of(&credited, name, "fee"), 0.0);
        let (before, after) = (of(&plain, name, "served"), of(&credited, name, "served"));
        assert!((after - before).abs() < 0.01 * before, "{before} {after}");
    }
    assert!(plain["tenants"]["a"].get("bank").is_none(), "{plain}");
}

const PLAIN: &str = "workers: 2\nhorizon: 20\narrivals: [[0, A, 1]]\n";

/// A key is obeyed or refused.
#[test]
fn keys_that_a_discipline_does_not_obey_are_refused() {
    let capacity = "capacity: { cpu: 4 }\n";
    let cases = [
        ("fq", "tenants: { A: { weight: 1 } }", "Q008"),
        ("fq", "generators: [{ name: b, cost: 1, weight: 2 }]", "Q008"),
        ("sfq", "capacity: { cpu: 4 }", "Q008"),
        ("wfq", "tenants: { A: { holds: { cpu: 1 } } }", "Q008"),
        ("priority", "capacity: { cpu: 4 }\ndefaults: { cpu: 1 }", "Q008"),
        ("gps", "capacity: { cpu: 4 }", "Q008"),
        ("fifo", "defaults: { cpu: 1 }", "Q008"),
        ("drf", "tenants: { A: { uses: { cpu: 1 } } }", "Q008"),
        ("fifo", "capacity: { cpu: 4 }\ntenants: { A: { guarantee: { cpu: 1 } } }", "Q008"),
        ("wfq", "charge: timer", "Q008"),
        ("wfq-e", "charge: refresh", "Q008"),
        ("wfq-e", "charge: timer\nrefresh: 1", "Q008"),
        ("drf", "reserve: { workers: 1, below: 1 }", "Q008"),
        ("multilevel", "reserve: { workers: 1, below: 1 }", "Q008"),
        ("gps", "reserve: { workers: 1, below: 1 }", "Q008"),
        ("fifo", "reserve: { workers: 3, below: 1 }", "Q008"),
        ("fifo", "reserve: { workers: 1 }", "Q004"),
        ("fifo", "credits: {}", "Q008"),
        ("round-robin", "credits: {}", "Q008"),
        ("drf", "credits: {}", "Q008"),
        ("multilevel", "credits: {}", "Q008"),
        ("gps", "credits: {}", "Q008"),
        ("wfq", "credits: { half_life: 0s }", "Q006"),
        ("wfq", "credits: { cap: 60 }", "Q006"),
        ("wfq", "credits: { half_life: 1m, cap: 2m }", "Q008"),
        ("wfq", "credits: { keep: 10% }", "Q002"),
        ("fifo", "splits: { min: 4 }", "Q008"),
        ("gps", "jobs: [{ tenant: A, cost: 1 }]", "Q008"),
        ("gps", "tenants: { A: { rate: 1 } }", "Q008"),
        ("fifo", "tenants: { A: { burst: 2 } }", "Q008"),
        ("fifo", "tenants: { A: { rate: 1, burst: 0.5 } }", "Q006"),
        ("fifo", "tenants: { A: { queue_max: 0 } }", "Q006"),
        ("fifo", "tenants: { A: { timeout: 0 } }", "Q006"),
        ("fifo", "jobs: [{ name: a, tenant: A, cost: 1, after: [a] }]", "Q007"),
        ("fifo", "jobs: [{ tenant: A, cost: 1, after: ['2'] }, { tenant: A, cost: 1 }]", "Q007"),
        (
            "fifo",
            "jobs: [{ name: x, tenant: A, cost: 1 }, { name: x, tenant: A, cost: 1 }]",
            "Q007",
        ),
        ("fifo", "jobs: [{ tenant: A, cost: 1, count: 0 }]", "Q006"),
        ("fifo", "jobs: [{ tenant: A }]", "Q004"),
        ("fifo", "backlogged: { B: 1 }\njobs: [{ tenant: B, cost: 1 }]", "Q008"),
    ];
    for (discipline, keys, code) in cases {
        let text = format!("discipline: {discipline}\n{PLAIN}{keys}\n");
        let findings = refused(&text);
        assert!(findings.iter().any(|it| it.starts_with(code)), "{text}\n{findings:?}");
    }
    let obeyed = format!("discipline: fifo\n{PLAIN}{capacity}");
    assert_eq!(of(&simulated(&obeyed), "A", "completed"), 1.0);
}

/// A tenant that always has a request has one in front of the queue too, and time goes on.
#[test]
fn endless_tenants_wait_for_tokens_and_places() {
    let text = "discipline: fifo\nworkers: 1\nhorizon: 10\ntenants: { A: { rate: 0.5, timeout: 1 }, B: {} }\n\
                backlogged: { A: 1 }\n";
    let answer = simulated(text);
    // A request leaves after a second, and its successor gets the token.
    assert_eq!(of(&answer, "A", "completed"), 5.0);
    assert_eq!(of(&answer, "A", "timed_out"), 5.0);
    let text = "discipline: multilevel\nworkers: 4\nhorizon: 10\nquantum: 1\nbacklogged: { A: 2, B: 2 }\n\
                splits: { min: 3, min_per_task: 1, max_per_task: 2 }\n";
    let answer = simulated(text);
    // Three run at once in all; either of the two may have the second place.
    assert!(["A", "B"].iter().all(|name| of(&answer, name, "most_running") <= 2.0), "{answer}");
    let served = of(&answer, "A", "served") + of(&answer, "B", "served");
    assert!((20.0..=30.0).contains(&served), "{answer}");
}

#[test]
fn a_request_that_is_not_served_ends_its_job() {
    let text = "discipline: fifo\nworkers: 1\nhorizon: 20\ntenants: { A: { queue_max: 1 }, B: { timeout: 2 }, C: {} }\n\
                jobs:\n- { name: a, tenant: A, cost: 3, count: 4 }\n- { name: b, tenant: B, cost: 1, at: 0.5 }\n\
                - { tenant: C, cost: 1, after: [a, b, a] }\n";
    let answer = simulated(text);
    assert_eq!((of(&answer, "A", "dropped"), of(&answer, "B", "timed_out")), (3.0, 1.0));
    let jobs = json!([
        { "name": "a", "ready": 0.0, "started": 0.0, "finished": 3.0 },
        { "name": "b", "ready": 0.5, "started": null, "finished": 2.5 },
        { "name": "3", "ready": 3.0, "started": 3.0, "finished": 4.0 },
    ]);
    assert_eq!(answer["jobs"], jobs);
}

/// Whatever decides, the reserved worker takes small requests only and the others take all.
#[test]
fn each_discipline_keeps_a_worker_for_small_requests() {
    let names = ["fifo", "priority", "round-robin", "fq", "sfq", "wfq", "wf2q", "2dfq", "2dfq-e"];
    for name in names {
        let text = format!(
            "discipline: {name}\nworkers: 2\nhorizon: 60\nreserve: {{ workers: 1, below: 5 }}\n\
             estimator: {{ initial: 10 }}\narrivals: [[0, L, 10], [0, L, 10], [0, M, 10], [1, S, 1], [12, S, 1]]\n"
        );
        let answer = simulated(&text);
        let large = |d: &&Value| d["worker"] == 1 && number(&d["cost"]) >= 5.0;
        let on_one = answer["dispatches"].as_array().unwrap().iter().filter(large).count();
        assert_eq!(on_one, 0, "{name}");
        let small = of(&answer, "S", "latency_mean");
        // An estimate of 10 keeps the small tenant off the worker until it is known to be small.
        assert!(name == "2dfq-e" || small == 1.0, "{name} {small}");
        assert_eq!(of(&answer, "L", "completed") + of(&answer, "M", "completed"), 3.0, "{name}");
    }
}

/// The earliest request that fits, and no more than there is.
#[test]
fn fifo_passes_over_what_does_not_fit() {
    let text = "discipline: fifo\nworkers: 3\nhorizon: 20\ncapacity: { memory: 4 }\ndefaults: { memory: 1 }\n\
                tenants: { A: { holds: { memory: 3 } }, B: { holds: { memory: 2 } }, C: {} }\n\
                arrivals: [[0, A, 2], [0, B, 2], [0, C, 3], [0, C, 1]]\n";
    let order = schedule(&simulated(text));
    assert_eq!(order, ["A1@0:W0", "C1@0:W1", "B1@2:W0", "C2@2:W2"]);
}

#[test]
fn use_grows_with_work_in_slices_too() {
    let text = "discipline: fifo\nworkers: 2\nhorizon: 20\nquantum: 1\ncapacity: { cpu: 4, memory: 8 }\n\
                tenants: { A: { holds: { cpu: 1, memory: 2 }, uses: { cpu: 2, memory: 3 } }, \
                B: { holds: { cpu: 1 }, uses: { memory: 1 } }, C: { holds: { cpu: 1 }, uses: { cpu: 1 } } }\n\
                arrivals: [[0, A, 5], [0, B, 5], [0, C, 5]]\n";
    let answer = simulated(text);
    let killed = json!([
        { "tenant": "B", "request": 1, "time": 0.0, "resource": "memory", "declared": 0.0, "wanted": 1.0 },
        { "tenant": "A", "request": 1, "time": 2.5, "resource": "cpu", "declared": 1.0, "wanted": 2.0 },
    ]);
    assert_eq!(answer["killed"], killed);
    assert_eq!(of(&answer, "C", "completed"), 1.0);
    let output = util::tenantctl_reads(&["simulate", "queue", "-"], text.as_bytes());
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(
        shown.contains("A: request 1 was killed at 2.5 s")
            && shown.contains("declare `holds: { cpu: 2 }`")
    );
}

/// However a request is charged, its tenant has paid its cost at the end.
#[test]
fn every_way_of_charging_charges_the_cost() {
    for discipline in ["wfq-e", "wf2q-e", "2dfq-e"] {
        for charge in ["end", "timer", "refresh\nrefresh: 0.3"] {
            let text = format!(
                "discipline: {discipline}\nworkers: 3\nhorizon: 4000\nseed: 5\nlist_dispatches: false\n\
                 charge: {charge}\nestimator: {{ initial: 0.5, alpha: 0.9 }}\ngenerators:\n\
                 - {{ name: a, count: 3, weight: 2, cost: {{ lognormal: 2, sigma: 2, max: 90 }}, phase: [0, 300], \
                 arrive: {{ every: 2 }} }}\n- {{ name: b, cost: 0.1, phase: [0, 300], arrive: {{ poisson: 2 }} }}\n"
            );
            let answer = simulated(&text);
            for tenant in ["a-1", "a-2", "a-3", "b"] {
                let (charged, served) =
                    (of(&answer, tenant, "charged"), of(&answer, tenant, "served"));
                assert!(
                    served > 0.0 && (charged - served).abs() < 1e-6 * served,
                    "{text} {tenant}"
                );
            }
            let nr_charged = number(&answer["nr_charged"]);
            assert_eq!(nr_charged > 0.0, charge != "end", "{discipline} {charge}");
        }
    }
    // An estimate of nothing cannot double.
    let text = format!("discipline: 2dfq-e\n{PLAIN}charge: timer\nestimator: {{ initial: 0 }}\n");
    assert_eq!(number(&simulated(&text)["nr_charged"]), 0.0);
}

/// A set has one entry: each of its requests runs once, and no more at a time than may.
#[test]
fn a_set_is_played_as_one_entry() {
    for (at_once, nr_workers) in [("", 4), (", at_once: 2", 3)] {
        let answer = simulated(&format!(
            "discipline: wfq\nworkers: 4\nhorizon: 100\ntenants: {{ A: {{}} }}\narrivals: [[0.5, A, 1]]\n\
             jobs: [{{ tenant: A, cost: 1, count: 20{at_once} }}]\n"
        ));
        let dispatches = answer["dispatches"].as_array().unwrap();
        let workers: BTreeSet<u64> =
            dispatches.iter().map(|it| it["worker"].as_u64().unwrap()).collect();
        // Beside two of the set, the single request.
        assert_eq!((dispatches.len(), workers.len()), (21, nr_workers), "{at_once}");
    }
}

/// A small request of a poor tenant starts at the turn of the rich one that waits for it, if turns are donated.
#[test]
fn donated_turns_are_played() {
    let finished = |donation: bool| {
        let answer = simulated(&format!(
            "discipline: wfq\nworkers: 1\nhorizon: 1000\ndonation: {donation}\n\
             tenants: {{ rich: {{ weight: 100 }}, poor: {{ weight: 0.01 }}, other: {{}} }}\n\
             arrivals: [{}]\n\
             jobs: [{{ name: held, tenant: poor, cost: 1 }}, {{ tenant: rich, cost: 1, after: [held] }}]\n",
            vec!["[0, other, 1]"; 100].join(", ")
        ));
        answer["jobs"][1]["finished"].as_f64().unwrap()
    };
    assert!(finished(true) <= 4.0, "{}", finished(true));
    assert!(finished(false) > 50.0, "{}", finished(false));
}
