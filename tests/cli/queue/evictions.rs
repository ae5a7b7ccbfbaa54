//! Evictable requests through the command: sets, dependencies and held resources, figures, and refused files.

use serde_json::{Value, json};

use super::{refused, scenario, simulated};
use crate::util;

const SETS: &str = "discipline: fifo\nworkers: 4\nhorizon: 5000\ncapacity: { cpu: 8, gpu: 2 }\nindices: [gpu]\n\
                    defaults: { cpu: 2, gpu: 1 }\ntenants: { a: {}, b: {} }\njobs:\n\
                    - { name: set, tenant: a, cost: 1000, count: 3, at_once: 2, requeue: true, grace: 10 }\n\
                    - { name: then, tenant: a, cost: 100, after: [set] }\n\
                    - { name: urgent, tenant: b, cost: 50, at: 200 }\n";

/// All dispatches as `a1@0–210`, with the unit.
fn schedule(answer: &Value) -> Vec<String> {
    let entry = |d: &Value| {
        let (name, time) = (d["tenant"].as_str().unwrap(), d["time"].as_f64().unwrap());
        let end = time + d["cost"].as_f64().unwrap();
        let mark = if d["evicted"] == true { "–" } else { " to " };
        format!("{name}{}@{time}{mark}{end} {}", d["request"], d["indices"]["gpu"])
    };
    answer["dispatches"].as_array().unwrap().iter().map(entry).collect()
}

/// The youngest task of a set ends after its grace for a job of another tenant, runs again from the start, and keeps its
/// place: the set has at most two tasks, and the job that waits for it starts after the third.
#[test]
fn tasks_of_a_set_are_evicted_and_run_again() {
    let answer = simulated(SETS);
    let expected = [
        "a1@0 to 1000 [0]",
        "a2@0–210 [1]",
        "b1@210 to 260 [1]",
        "a2@260 to 1260 [1]",
        "a3@1000 to 2000 [0]",
        "a4@2000 to 2100 [0]",
    ];
    assert_eq!(schedule(&answer), expected);
    let figures = &answer["tenants"]["a"]["evictions"];
    assert_eq!((&figures["count"], &figures["lost_cpu_seconds"]), (&json!(1), &json!(420.0)));
    let figures = &answer["tenants"]["b"]["evictions"];
    let waits = ["wait_mean", "wait_max", "wait_mean_without"].map(|key| figures[key].clone());
    assert_eq!(waits, [json!(10.0), json!(10.0), json!(800.0)]);
    assert_eq!(answer["jobs"][1]["started"], 2000.0);
    let table = util::tenantctl_reads(&["simulate", "queue", "-"], SETS.as_bytes());
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("a2@0–210[1]"), "{table}");
    assert!(table.contains("CPU time lost"), "{table}");
}

/// A request without consent ends at its own end, and a scenario without evictable ones has no figures of evictions.
#[test]
fn only_requests_with_consent_are_evicted() {
    let without = simulated(&SETS.replace("requeue: true, grace: 10", "requeue: false"));
    assert!(schedule(&without).contains(&"b1@1000 to 1050 [0]".to_string()), "{without}");
    assert_eq!(without["tenants"]["a"]["evictions"], Value::Null);
    let other = simulated(
        &SETS
            .replace("b: {}", "b: { requeue: true }")
            .replace("requeue: true, grace: 10", "requeue: false"),
    );
    assert_eq!(other["tenants"]["a"]["evictions"]["count"], 0, "{other}");
}

#[test]
fn a_guarantee_has_others_end() {
    // By turns alone `a` with its weight loses one of its four.
    let text = "discipline: fifo\nworkers: 4\nhorizon: 300\ncapacity: { cpu: 4 }\ndefaults: { cpu: 1 }\n\
                tenants: { a: { weight: 100, requeue: true, grace: 0 }, b: { guarantee: { cpu: 2 } } }\n\
                arrivals: [[0, a, 400], [0, a, 400], [0, a, 400], [0, a, 400], [100, b, 400], [100, b, 400], [100, b, 400]]\n";
    let count = |text: &str| simulated(text)["tenants"]["a"]["evictions"]["count"].clone();
    assert_eq!(count(text), 2, "the third is beyond the guarantee");
    assert_eq!(count(&text.replace(" guarantee: { cpu: 2 } ", "")), 1);
}

#[test]
fn keys_that_a_host_would_ignore_are_refused() {
    let first = "discipline: 2dfq\nworkers: 2\nhorizon: 9\ncapacity: { gpu: 2, cpu: 4 }\n";
    let refusal = |keys: &str, member: &str| {
        refused(&format!("{first}{keys}generators: [{{ name: a, cost: 1, {member} }}]\n")).remove(0)
    };
    let asked = "requeue: true";
    let cases = [
        ("ageing: 1\n", asked, "Q008 5:9 with `requeue` waiting counts as on a host"),
        ("quantum: 1\n", asked, "Q008 5:10 a job of a host runs in one piece"),
        ("donation: true\n", asked, "Q008 5:11 `requeue` is simulated without donated turns"),
        ("", "requeue: true, limit: 1", "Q008 5:56 the admission of a host limits no CPU time"),
        (
            "",
            "grace: 1",
            "Q008 4:11 only `drf`, `fifo` and scenarios with `requeue` obey a capacity",
        ),
        (
            "",
            "requeue: true, holds: { gpu: 0.5 }",
            "Q008 4:18 with `requeue` all amounts of `gpu` are whole numbers",
        ),
        (
            "",
            "requeue: true, holds: { gpu: 3 }",
            "Q008 4:18 a request of `a` holds more `gpu` than there is",
        ),
        ("", "requeue: true, guarantee: { gpu: 1 }", "Q008 4:18 `a` has a guarantee of `gpu`"),
    ];
    let grace = refused(&SETS.replace("requeue: true, ", ""));
    assert!(grace[0].contains("`grace` is the time in which"), "{grace:?}");
    for (keys, member, expected) in cases {
        let finding = refusal(keys, member);
        assert!(finding.starts_with(expected), "{finding}");
    }
}

/// The scenario of `docs/run.md`: jobs without consent wait for less than 2 minutes instead of hours.
#[test]
fn evictions_shorten_the_wait_of_others() {
    let answer = simulated(&scenario("requeue"));
    for tenant in ["class", "lab"] {
        let figures = &answer["tenants"][tenant]["evictions"];
        assert!(figures["wait_max"].as_f64() <= Some(120.0), "{figures}");
        assert!(figures["wait_mean_without"].as_f64() > Some(3600.0), "{figures}");
        assert_eq!(figures["count"], 0);
    }
    assert!(answer["tenants"]["train"]["evictions"]["count"].as_u64() > Some(10), "{answer}");
}
