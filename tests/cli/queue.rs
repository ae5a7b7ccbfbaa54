//! `tenantctl simulate queue`: the contract of its scenario files, and what it says of bad ones.

mod entrance;
mod evictions;
mod figures;

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::{Value, json};

use super::seeds;
use crate::util;

/// The vectors of a suite of the crate `queue`, for the command.
fn suite(name: &str) -> Vec<Value> {
    let mut suite: Value = serde_yaml::from_str(&seeds::suite(name)).unwrap();
    let Value::Array(vectors) = suite["vectors"].take() else { panic!("{name} has no vectors") };
    assert!(!vectors.is_empty());
    vectors
}

fn number(value: &Value) -> f64 {
    seeds::number(value).unwrap_or_else(|| panic!("{value} is not a number"))
}

fn tenantctl(args: &[&str], input: &str) -> Output {
    util::tenantctl_reads(args, input.as_bytes())
}

pub(super) fn simulated(scenario: &str) -> Value {
    let output = tenantctl(&["simulate", "queue", "-", "--json"], scenario);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}\n{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The findings of a bad scenario as `CODE line:column message`.
pub(super) fn refused(scenario: &str) -> Vec<String> {
    util::refused(&["simulate", "queue", "-", "--json"], scenario)
}

/// A scenario of the repository.
pub(super) fn scenario(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/queue").join(name);
    std::fs::read_to_string(path.with_extension("yaml")).unwrap()
}

/// `A1@0, C1@1` of one worker.
fn schedule(answer: &Value, worker: u64) -> Vec<String> {
    let dispatches = answer["dispatches"].as_array().unwrap().iter();
    let of_worker = dispatches.filter(|dispatch| dispatch["worker"] == worker);
    let entry = |d: &Value| {
        format!("{}{}@{}", d["tenant"].as_str().unwrap(), d["request"], d["time"].as_f64().unwrap())
    };
    of_worker.map(entry).collect()
}

#[test]
fn the_answer_is_the_object_of_the_contract() {
    let answer = tenantctl(
        &["simulate", "queue", "-", "--json"],
        "discipline: wfq\nworkers: 1\ntenants: { A: { weight: 1 }, B: {} }\nbacklogged: { A: 2 }\n\
         arrivals: [[1, B, 1]]\nhorizon: 4\n",
    );
    let text = String::from_utf8(answer.stdout).unwrap();
    let dispatches = "{\"dispatches\":[\
        {\"time\":0.0,\"worker\":0,\"tenant\":\"A\",\"request\":1,\"cost\":2.0},\
        {\"time\":2.0,\"worker\":0,\"tenant\":\"B\",\"request\":1,\"cost\":1.0},\
        {\"time\":3.0,\"worker\":0,\"tenant\":\"A\",\"request\":2,\"cost\":2.0}],\
        \"tenants\":{\"A\":{\"served\":3.0,\"gps\":3.0,\"lag_mean\":";
    assert!(text.starts_with(dispatches), "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    for key in ["lag_mean", "lag_stddev", "latency_p50", "latency_p99", "longest_gap"] {
        assert!(answer["tenants"]["A"][key].is_number(), "{key}");
    }
    assert_eq!(answer["tenants"]["A"]["longest_gap"], 3.0);
    assert_eq!(answer["tenants"]["B"]["latency_p99"], 2.0);
    assert_eq!(answer["tenants"]["B"]["longest_gap"], Value::Null);
}

#[test]
fn all_schedules_through_the_command() {
    for vector in suite("fq_schedules") {
        let input = &vector["input"];
        let name = match input["policy"].as_str().unwrap() {
            "rr" => "round-robin",
            other => other,
        };
        let mut scenario = json!({
            "discipline": name,
            "workers": input["workers"],
            "virtual_time": input["vt"].as_str().unwrap_or("active"),
            "horizon": input["horizon"],
        });
        let names: Vec<String> = match input["backlogged_sizes"].as_object() {
            Some(sizes) => sizes.keys().cloned().collect(),
            None => serde_json::from_value(input["tenants"].clone()).unwrap(),
        };
        for key in ["backlogged_sizes", "arrivals"] {
            if !input[key].is_null() {
                scenario[key.trim_end_matches("_sizes")] = input[key].clone();
            }
        }
        // Written by hand: a map of JSON would put S10 before S2, and order breaks ties.
        let tenant = |name: &String| match input["weights"].get(name) {
            Some(weight) => format!("  {name}: {{ weight: {weight} }}\n"),
            None => format!("  {name}: {{}}\n"),
        };
        let tenants: String = names.iter().map(tenant).collect();
        let text: String = scenario
            .as_object()
            .unwrap()
            .iter()
            .map(|(key, value)| format!("{key}: {value}\n"))
            .collect();
        let answer = simulated(&format!("tenants:\n{tenants}{text}"));
        for (worker, expected) in (0..).zip(vector["expect"].as_object().unwrap().values()) {
            assert_eq!(json!(schedule(&answer, worker)), *expected, "{}", vector["id"]);
        }
    }
}

#[test]
fn finish_times_of_the_ideal_through_the_command() {
    let mut nr_finished = 0;
    for vector in suite("fq_shares_gps") {
        let input = &vector["input"];
        let (Some("gps"), Some(_)) = (input["policy"].as_str(), input["arrivals"].as_array())
        else {
            continue;
        };
        let scenario = json!({
            "discipline": "gps", "workers": 1, "arrivals": input["arrivals"], "horizon": 100,
        });
        let answer = simulated(&scenario.to_string());
        let finished = answer["finished"].as_array().unwrap();
        let expected = vector["expect"]["finish"].as_array().unwrap();
        assert_eq!(finished.len(), expected.len());
        for (finished, expected) in finished.iter().zip(expected) {
            assert!((number(&finished["finish"]) - number(expected)).abs() < 1e-6, "{finished}");
            nr_finished += 1;
        }
    }
    assert_eq!(nr_finished, 7);
}

/// Each with one finding.
const BAD_SCENARIOS: &[(&str, &str)] = &[
    ("workers: 1\nhorizon: 1\nbacklogged: { A: 1 }\n", "Q004 1:1 `discipline` is missing"),
    (
        "discipline: wfqq\nworkers: 1\nhorizon: 1\nbacklogged: { A: 1 }\n",
        "Q005 1:13 `wfqq` is not one of the choices",
    ),
    (
        "discipline: wfq\nworkers: 0\nhorizon: 1\nbacklogged: { A: 1 }\n",
        "Q006 2:10 `0` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 0\nbacklogged: { A: 1 }\n",
        "Q006 3:10 `0` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: .inf\nbacklogged: { A: 1 }\n",
        "Q006 3:10 `.inf` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\nbacklogged: { A: 0 }\n",
        "Q006 4:18 `0` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\nbacklogged: { A: .inf }\n",
        "Q006 4:18 `.inf` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\nbacklogged: { A: .nan }\n",
        "Q006 4:18 `.nan` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\ntenants: { A: { weight: 0 } }\n",
        "Q006 4:25 `0` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\ntenants: { A: { weight: 1e300 } }\n",
        "Q006 4:25 `1e300` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\ntenants: { A: {}, A: {} }\n",
        "Q003 4:19 `A` is given twice",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\ntenants: { Anna: {} }\narrivals: [[0, Ana, 1]]\n",
        "Q007 5:16 there is no tenant `Ana`",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\narrivals: [[0, A, .inf]]\n",
        "Q006 4:19 `.inf` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\narrivals: [[-1, A, 1]]\n",
        "Q006 4:13 `-1` is out of range",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\narrivals: [[0, A]]\n",
        "Q005 4:12 expected a list of 3 values, found one of 2",
    ),
    ("discipline: wfq\nworkers: 1\nhorizon: 1\n", "Q004 1:1 there are no tenants"),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\nbacklog: { A: 1 }\n",
        "Q002 4:1 unknown key `backlog`",
    ),
    (
        "discipline: 2dfq-e\nvirtual_time: gps\nworkers: 1\nhorizon: 1\nbacklogged: { A: 1 }\n",
        "Q008 2:15 GPS cannot be followed without knowing costs",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\nbacklogged: { A: 1 }\nrefresh: 1e-9\n",
        "Q009 5:10 `refresh` is too short",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\nbacklogged: { A: 1 }\nlist_dispatches: yes\n",
        "Q005 5:18 `yes` is not one of the choices",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\ngenerators: [{ name: a, cost: { normal: 1, fixed: 1 } }]\n",
        "Q008 4:31 which distribution?",
    ),
    (
        "discipline: wfq\nworkers: 1\nhorizon: 1\ntenants: { A: { limit: 1, reservation: 2 } }\nbacklogged: { A: 1 }\n",
        "Q008 4:24 `limit` is below `reservation`",
    ),
    ("discipline: [", "Q001 "),
    ("", "Q001 "),
];

#[test]
fn bad_scenarios_are_refused_with_places() {
    for (scenario, expected) in BAD_SCENARIOS.iter().copied() {
        let findings = refused(scenario);
        let is_found = matches!(&findings[..], [one] if one.starts_with(expected));
        assert!(is_found, "{scenario}\nexpected {expected}\nfound {findings:#?}");
    }
}

/// Costs so small that time does not move, and requests without an end: given up, with a place, in bounded
/// time.
#[test]
fn endless_simulations_are_given_up() {
    let scenario = "discipline: fifo\nworkers: 1\nrate: 1e15\nhorizon: 1\n\
                    list_dispatches: false\nbacklogged: { A: 1e-300 }\n";
    let findings = refused(scenario);
    assert!(findings[0].starts_with("Q009 4:10 "), "{findings:?}");
    assert!(findings[0].len() < 80, "a time is not written out to its last digit: {findings:?}");
}

#[test]
fn requests_of_cost_zero_are_served() {
    let answer = simulated(
        "discipline: 2dfq\nworkers: 2\nhorizon: 5\narrivals: [[1, A, 0], [1, A, 0], [1, B, 0], [2, A, 1]]\n",
    );
    assert_eq!(answer["nr_dispatched"], 4);
    assert_eq!(answer["tenants"]["A"]["served"], 1.0);
    assert_eq!(answer["tenants"]["B"]["latency_p99"], 0.0);
}

/// A hundred thousand tenants: a right answer in seconds. (A million works too: 13 s and 1.2 GB with the `dev`
/// profile, more than a test should take.)
#[test]
fn many_tenants_are_no_trap() {
    let scenario = "discipline: 2dfq\nworkers: 4\nrate: 1000\nhorizon: 2\nlist_dispatches: false\n\
                    generators: [{ name: t, count: 100000, cost: 1 }]\n";
    let answer = simulated(scenario);
    assert_eq!(answer["tenants"].as_object().unwrap().len(), 100_000);
    assert_eq!(answer["nr_dispatched"], 8000);
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let text = "discipline: 2dfq-e\nworkers: 3\nhorizon: 20\nseed: 7\nrefresh: 0.1\ngenerators:\n\
                - { name: a, count: 4, cost: { lognormal: 0.5, sigma: 1 } }\n\
                - { name: b, cost: { exponential: 0.2 }, arrive: { load: 0.5 } }\n";
    assert_eq!(simulated(text), simulated(text));
    assert_ne!(simulated(text), simulated(&text.replace("seed: 7", "seed: 8")));
}

/// With every line below it commented out, `arrive` is as if left out.
#[test]
fn an_empty_arrive_is_backlogged() {
    let text = |arrive: &str| {
        format!(
            "discipline: wfq\nworkers: 1\nhorizon: 20\ngenerators: [{{ name: a, cost: 1{arrive} }}]\n"
        )
    };
    let backlogged = simulated(&text(""));
    assert_eq!(simulated(&text(", arrive: {}")), backlogged);
    assert_eq!(simulated(&text(", arrive: null")), backlogged);
    assert_ne!(simulated(&text(", arrive: { every: 4 }")), backlogged);
}

/// The same requests under another discipline: what differs is the order.
#[test]
fn work_does_not_depend_on_the_discipline() {
    let text = "discipline: fifo\nworkers: 2\nhorizon: 1000\nseed: 3\ngenerators:\n\
                - { name: a, count: 3, cost: { exponential: 1 }, arrive: { every: 3 }, phase: [0, 300] }\n";
    let work = |discipline: &str| {
        let answer = simulated(&text.replace("fifo", discipline));
        let dispatches = answer["dispatches"].as_array().unwrap();
        let mut work: Vec<String> = dispatches
            .iter()
            .map(|d| format!("{} {} {}", d["tenant"], d["request"], d["cost"]))
            .collect();
        work.sort_unstable();
        work
    };
    let fifo = work("fifo");
    assert_eq!(fifo.len(), 300);
    for discipline in ["priority", "round-robin", "fq", "sfq", "2dfq", "wfq-e", "drf", "multilevel"]
    {
        assert_eq!(work(discipline), fifo, "{discipline}");
    }
}

#[test]
fn the_theoretical_bound_is_shown_beside_the_measured_value() {
    let answer = simulated(&scenario("2dfq-figure-6b"));
    assert_eq!(answer["lag"]["bound"], 8.0);
    assert!(number(&answer["lag"]["largest"]) <= 8.0);
    assert_eq!(answer["difference"]["bound"], 16.0);
    let largest = number(&answer["difference"]["largest"]);
    assert!(largest > 0.0 && largest <= 16.0, "{largest}");
    let fifo = scenario("2dfq-figure-6b").replace("2dfq\n", "fifo\n");
    assert_eq!(simulated(&fifo)["difference"]["bound"], Value::Null);
}

#[test]
fn scenarios_of_the_papers() {
    let figure = |name: &str, worker| schedule(&simulated(&scenario(name)), worker).join(" ");
    assert!(
        figure("2dfq-figure-1a", 1)
            .starts_with("B1@0 B2@1 B3@2 B4@3 B5@4 B6@5 B7@6 B8@7 B9@8 B10@9 D1@10 B11@20")
    );
    assert!(figure("2dfq-figure-1b", 1).starts_with("B1@0 A2@1 B2@2 A3@3 B3@4 A4@5"));
    assert_eq!(figure("2dfq-figure-5c", 0), "A1@0 A2@1 A3@2 A4@3 C1@4 A5@8 A6@9 A7@10 A8@11 C2@12");
    assert_eq!(figure("2dfq-figure-5d", 1), "B1@0 D1@1 B2@5 B3@6 B4@7 B5@8 D2@9");
    let on_one = figure("2dfq-figure-6b", 1);
    assert!(on_one.starts_with("B1@0 A2@1 B2@2 A3@3 B3@4 A4@5"), "{on_one}");
    assert!(!on_one.contains('C') && !on_one.contains('D'), "{on_one}");
    assert!(
        figure("bennett-zhang-wfq", 0)
            .starts_with("S11@0 S12@1 S13@2 S14@3 S15@4 S16@5 S17@6 S18@7 S19@8 S110@9 S21@10")
    );
    assert!(figure("bennett-zhang-wf2q", 0).starts_with("S11@0 S21@1 S12@2 S31@3 S13@4"));
    let ideal = simulated(&scenario("bennett-zhang-gps"));
    let last = ideal["finished"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| number(&f["finish"]))
        .fold(0.0, f64::max);
    assert_eq!(last, 21.0);
    let drf = simulated(&scenario("drf-example"));
    let order: Vec<&str> = drf["dispatches"]
        .as_array()
        .unwrap()
        .iter()
        .map(|d| d["tenant"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["B", "A", "A", "B", "A"]);
    let phases = simulated(&scenario("phases"));
    assert!(number(&phases["tenants"]["guest"]["served"]) <= 4.0 * 30.0 + 4.0);
    assert!(number(&phases["tenants"]["web"]["served"]) >= 10.0 * 30.0 - 10.0);
}

#[test]
fn a_stall_of_ten_minutes_does_not_stop_its_level() {
    let answer = simulated(&scenario("multilevel-stall"));
    let served = |tenant: &str| number(&answer["tenants"][tenant]["served"]);
    // One worker hangs for 600 of 700 seconds; the other goes on with A and B.
    assert!((served("A") - served("B")).abs() <= 2.0, "{} {}", served("A"), served("B"));
    assert!(served("A") + served("B") > 780.0);
    // Its next request waits behind what has really run for less.
    assert_eq!(served("stalled"), 600.0);
}

/// Every scenario of the repository runs; long ones with a nearer end.
#[test]
fn every_scenario_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/queue");
    let mut nr_scenarios = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path: PathBuf = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let near = text
            .replace("horizon: 40000", "horizon: 20")
            .replace("horizon: 200", "horizon: 1")
            .replace("horizon: 60", "horizon: 1");
        let answer = simulated(&near);
        assert!(answer["tenants"].is_object(), "{}", path.display());
        nr_scenarios += 1;
    }
    assert!(nr_scenarios >= 13);
}

#[test]
fn a_report_is_one_file_with_pictures_and_no_links() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let text =
        scenario("2dfq-figure-6b").replace("A: {}", "\"<b>A\": {}").replace("A: 1", "\"<b>A\": 1");
    let output = tenantctl(&["simulate", "queue", "-", "--report", path.to_str().unwrap()], &text);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = std::fs::read_to_string(path).unwrap();
    assert_eq!(page.matches("<svg").count(), 5, "schedule, shares, lag, latency, costs");
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    assert!(page.contains("&lt;b&gt;A") && !page.contains("<b>A"));
    let links = ["href=", "src=", "@import", "url("];
    assert!(links.iter().all(|link| !page.contains(link)), "it is not self-contained");
}

#[test]
fn a_person_gets_a_schedule_and_a_table() {
    let output = tenantctl(&["simulate", "queue", "-"], &scenario("2dfq-figure-6b"));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("W0  A1@0 C1@1 D1@5"), "{text}");
    assert!(text.contains("2DFQ theorem 1"), "{text}");
    let text = "discipline: fifo\nworkers: 1\nhorizon: 3\narrivals: [[0, t0, 1], [0, t0, 1]]\n";
    let output = tenantctl(&["simulate", "queue", "-"], text);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("W0  t0.1@0 t0.2@1"), "{text}");
}
