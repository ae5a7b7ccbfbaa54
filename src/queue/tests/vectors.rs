//! The vectors of fair queueing: published schedules, long-run shares, finish times of GPS, and the
//! bookkeeping of unknown costs.

use serde_json::Value;
use tenantd_queue::gps::Gps;
use tenantd_queue::virtual_time::Method;
use tenantd_queue::{Discipline, Estimator, Ledger, Rule, TenantId};

use super::harness::{Case, Trace};
use super::suite::{number, suite};

fn discipline(input: &Value) -> Discipline {
    let virtual_time = match input["vt"].as_str() {
        Some("gps") => Method::Gps,
        _ => Method::Active,
    };
    let fair = |rule| Discipline::Fair { rule, estimator: Estimator::Declared, virtual_time };
    match input["policy"].as_str().unwrap() {
        "rr" => Discipline::RoundRobin,
        "sfq" => fair(Rule::Start),
        "fq" | "wfq" => fair(Rule::Finish),
        "wf2q" => fair(Rule::Eligible),
        "2dfq" => fair(Rule::Staggered),
        other => panic!("{other}"),
    }
}

/// A vector as a case, and the names of its tenants.
fn case(input: &Value) -> (Case, Vec<String>) {
    let workers = input["workers"].as_u64().unwrap() as u32;
    let discipline = discipline(input);
    let (mut case, names) = match input["backlogged_sizes"].as_object() {
        Some(sizes) => {
            let costs: Vec<f64> = sizes.values().map(number).collect();
            (Case::backlogged(discipline, workers, &costs), sizes.keys().cloned().collect())
        }
        None => {
            let text = |name: &Value| name.as_str().unwrap().to_string();
            let names: Vec<String> =
                input["tenants"].as_array().unwrap().iter().map(text).collect();
            (Case::new(discipline, workers, names.len()), names)
        }
    };
    let index = |name: &str| names.iter().position(|other| other == name).unwrap();
    for arrival in input["arrivals"].as_array().into_iter().flatten() {
        let tenant = index(arrival[1].as_str().unwrap());
        case.arrivals.push((number(&arrival[0]), tenant as u32, number(&arrival[2])));
    }
    for (name, weight) in input["weights"].as_object().unwrap() {
        case.terms[index(name)].weight = number(weight);
    }
    case.horizon = number(&input["horizon"]);
    (case, names)
}

/// The dispatches of one worker as the vectors write them: `A2@1`.
fn written(trace: &Trace, worker: u32, names: &[String]) -> Vec<String> {
    let of_worker = trace.dispatches.iter().filter(|dispatch| dispatch.worker == worker);
    let entry =
        |d: &super::harness::Dispatch| format!("{}{}@{}", names[d.tenant], d.number, d.time);
    of_worker.map(entry).collect()
}

#[test]
fn published_schedules() {
    for vector in suite("fq_schedules") {
        let (case, names) = case(&vector["input"]);
        let trace = case.run();
        for (worker, expected) in (0..).zip(vector["expect"].as_object().unwrap().values()) {
            let expected: Vec<String> = serde_json::from_value(expected.clone()).unwrap();
            assert_eq!(written(&trace, worker, &names), expected, "{} W{worker}", vector["id"]);
        }
    }
}

#[test]
fn wf2q_stops_alternating_without_exact_virtual_time() {
    let suite = suite("fq_schedules");
    let exact = suite.iter().find(|vector| vector["id"] == "fq_schedules-11").unwrap();
    let mut input = exact["input"].clone();
    input["vt"] = "active".into();
    let (case, names) = case(&input);
    let order = written(&case.run(), 0, &names);
    let alternating: Vec<String> = serde_json::from_value(exact["expect"]["W0"].clone()).unwrap();
    let same = order.iter().zip(&alternating).take_while(|(a, b)| a == b).count();
    // After S6: from there on, S1 is taken twice in a row.
    assert_eq!(same, 11, "{order:?}");
    assert!(order[..same].last().unwrap().starts_with("S1"), "{order:?}");
}

#[test]
fn published_long_run_shares() {
    let mut nr_shares = 0;
    for vector in suite("fq_shares_gps").iter().filter(|vector| vector["input"]["policy"] != "gps")
    {
        let (case, names) = case(&vector["input"]);
        let served = case.run().served;
        let whole: f64 = served.iter().sum();
        for (name, share) in vector["expect"]["share"].as_object().unwrap() {
            let got = served[names.iter().position(|other| other == name).unwrap()] / whole;
            let tolerance = number(&vector["expect"]["tolerance"]);
            assert!((got - number(share)).abs() <= tolerance, "{} {name} {got}", vector["id"]);
            nr_shares += 1;
        }
    }
    assert!(nr_shares >= 13);
}

#[test]
fn published_finish_times_of_gps() {
    let mut nr_finished = 0;
    for vector in suite("fq_shares_gps").iter().filter(|vector| vector["input"]["policy"] == "gps")
    {
        let mut gps = Gps::recording(1.0);
        let arrivals: Vec<(f64, u32, f64)> = match vector["input"]["arrivals"].as_array() {
            Some(list) => {
                let tenant = |name: &Value| u32::from(name.as_str().unwrap().as_bytes()[0] - b'A');
                let entry = |a: &Value| (number(&a[0]), tenant(&a[1]), number(&a[2]));
                list.iter().map(entry).collect()
            }
            // Bennett and Zhang's: eleven of the first tenant, one of each other.
            None => (0..11).map(|_| (0.0, 0, 1.0)).chain((1..11).map(|t| (0.0, t, 1.0))).collect(),
        };
        let is_text = vector["input"]["arrivals"].is_string();
        for tenant in 0..11 {
            let weight = if is_text && tenant == 0 { 10.0 } else { 1.0 };
            gps.set_weight(TenantId(tenant), weight, 0.0);
        }
        for (number, (time, tenant, cost)) in (0..).zip(&arrivals) {
            gps.arrive(TenantId(*tenant), number, *cost, *time);
        }
        gps.advance(100.0);
        let mut finished = gps.take_finished();
        finished.sort_by_key(|(number, _)| *number);
        let expected = vector["expect"]["finish"].as_array().unwrap();
        assert_eq!(finished.len(), expected.len(), "{}", vector["id"]);
        for ((_, time), expected) in finished.iter().zip(expected) {
            assert!((time - number(expected)).abs() < 1e-9, "{} {time}", vector["id"]);
            nr_finished += 1;
        }
    }
    assert!(nr_finished >= 28);
}

#[test]
fn published_bookkeeping() {
    let mut nr_traces = 0;
    for vector in suite("tdfqe_bookkeeping") {
        let input = &vector["input"];
        let alpha = number(&input["alpha"]);
        let id = &vector["id"];
        if let Some(decay) = input.get("decay_to") {
            let mut ledger = Ledger::new(Estimator::Pessimistic { alpha, initial: 1.0 });
            let mut completions = 0;
            while ledger.estimate(0, 0.0) >= number(decay) {
                let credit = ledger.dispatch(0, 0.0);
                ledger.complete(0, credit, 0.0, 0.0);
                completions += 1;
            }
            assert_eq!(vector["expect"]["cheap_completions"], completions, "{id}");
            continue;
        }
        let initial = number(&input["start_Lmax"]);
        let mut ledger = Ledger::new(Estimator::Pessimistic { alpha, initial });
        let weight = number(&input["phi"]);
        let (mut credit, mut total) = (0.0, 0.0);
        let trace = vector["expect"]["trace_op_S_Lmax_credit"].as_array().unwrap();
        for (op, row) in input["ops"].as_array().unwrap().iter().zip(trace) {
            let used = op.get(1).map_or(0.0, number);
            total += used;
            match op[0].as_str().unwrap() {
                "dequeue" => {
                    total = 0.0;
                    credit = ledger.dispatch(0, 0.0);
                }
                "refresh" => credit = ledger.refresh(credit, used),
                _ => ledger.complete(0, credit, used, total),
            }
            let expected = &row.as_array().unwrap()[op.as_array().unwrap().len()..];
            let tag = ledger.charged() / weight;
            assert!((tag - number(&expected[0])).abs() < 1e-9, "{id} {op} S {tag}");
            let estimate = ledger.estimate(0, 0.0);
            assert!((estimate - number(&expected[1])).abs() < 1e-9, "{id} {op} L {estimate}");
            if !expected[2].is_null() {
                assert!((credit - number(&expected[2])).abs() < 1e-9, "{id} {op} {credit}");
            }
            nr_traces += 1;
        }
    }
    assert!(nr_traces > 10);
}
