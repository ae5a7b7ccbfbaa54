//! `tenantctl simulate host`: its scenarios, its figures, and what it says of bad ones.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::util::{self, fits_a_terminal};

fn simulated(scenario: &str) -> String {
    let output = util::tenantctl_reads(&["simulate", "host", "-", "--json"], scenario.as_bytes());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{scenario}\n{stderr}");
    String::from_utf8(output.stdout).unwrap()
}

fn parsed(scenario: &str) -> Value {
    serde_json::from_str(&simulated(scenario)).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn scenario(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/host").join(name);
    std::fs::read_to_string(path.with_extension("yaml")).unwrap()
}

/// A scenario of a machine with four CPUs, two tenants and these further keys.
fn small(keys: &str) -> String {
    format!(
        "version: 1\nhost: {{ cpus: 4, memory: 1GiB }}\n\
         policy: {{ version: 1, tenants: {{ a: {{ weight: 100 }}, b: {{ weight: 300 }} }} }}\n{keys}"
    )
}

#[test]
fn every_scenario_of_the_repository_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/host");
    let paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(paths.len() >= 5);
    for path in paths {
        let answer = parsed(&std::fs::read_to_string(&path).unwrap());
        let shown = path.display();
        let error = |run: &str| number(&answer[run]["share_error_mean"]);
        assert!(error("tenantd") <= error("static") + 0.01, "{shown}");
        assert!(error("tenantd") <= error("none"), "{shown}");
        assert!(number(&answer["tenantd"]["jain_index"]) > 0.99, "{shown}");
        let most = number(&answer["cpus"]) * number(&answer["interval_seconds"]);
        // What passes in a step is rounded to a quarter of a nanosecond.
        let most = most * number(&answer["nr_ticks"]) * (1.0 + 1e-8);
        for run in ["tenantd", "static", "none"] {
            let done = number(&answer[run]["cpu_seconds"]);
            assert!(done <= most, "{shown}: {done}");
        }
    }
}

/// One tenant reads, one computes, one does both.
#[test]
fn a_disk_is_divided_with_the_cpus() {
    let answer = parsed(&scenario("disk"));
    let of = |tenant: usize, run: &str, key: &str| number(&answer["tenants"][tenant][run][key]);
    for (tenant, part) in [(0, 0.75), (2, 0.25)] {
        let entitled = number(&answer["tenants"][tenant]["entitled_disk_ratio"]);
        assert!((entitled - part).abs() < 1e-6, "{entitled}");
        assert!((of(tenant, "tenantd", "disk_ratio") - part).abs() < 0.02, "{answer}");
    }
    assert!((of(2, "tenantd", "usage_cores") - 2.0).abs() < 0.1, "{answer}");
    assert!(of(2, "static", "usage_cores") > 2.3, "{answer}");
    let plain = parsed(&small("ticks: 3\ntenants: { a: { threads: 1 } }\n"));
    assert_eq!(plain["tenants"][0]["entitled_disk_ratio"], Value::Null);
}

/// Tenants that a template would find are those that the scenario names.
#[test]
fn people_of_a_template_are_those_with_work() {
    let policy = "policy: { version: 1, tenants: { a: { weight: 100 }, idle: { each: { match: { unit: 'x*.scope' } } }, \
                  people: { weight: 300, each: { match: { users: '*' }, weight: 1 }, \
                  tenants: { ana: { weight: 3, match: { users: ana } } } } } }";
    let work =
        "tenants: { a: { threads: 8 }, people/ana: { threads: 8 }, people/ben: { threads: 8 } }";
    let head = "version: 1\nhost: { cpus: 4, memory: 1GiB }\nduration: 20s\n";
    let answer = parsed(&format!("{head}{policy}\n{work}\n"));
    let used = |tenant: usize| number(&answer["tenants"][tenant]["tenantd"]["usage_cores"]);
    let all = [used(1), used(2), used(0)];
    let whole: f64 = all.iter().sum();
    for (part, expected) in all.iter().zip([0.5625, 0.1875, 0.25]) {
        assert!((part / whole - expected).abs() < 0.02, "{all:?}");
    }
    let unknown =
        refused(&format!("{head}{policy}\ntenants: {{ others/ben: {{ threads: 1 }} }}\n"));
    assert!(
        unknown.iter().any(|it| it.contains("the policy has no tenant `others/ben`")),
        "{unknown:?}"
    );
}

/// All at once: what the weights say, exactly, because the simulated kernel divides exactly.
#[test]
fn hungry_tenants_get_what_they_are_entitled_to() {
    let text = small("ticks: 40\ntenants: { a: { threads: 12 }, b: { threads: 4 } }\n");
    let answer = parsed(&text);
    let cores = |tenant: usize, run: &str| number(&answer["tenants"][tenant][run]["usage_cores"]);
    for (tenant, entitled, none) in [(0, 1.0, 3.0), (1, 3.0, 1.0)] {
        assert!((number(&answer["tenants"][tenant]["entitled_cores"]) - entitled).abs() < 0.01);
        assert!((cores(tenant, "static") - entitled).abs() < 0.03, "{}", cores(tenant, "static"));
        assert!((cores(tenant, "tenantd") - entitled).abs() < 0.05, "{}", cores(tenant, "tenantd"));
        assert!((cores(tenant, "none") - none).abs() < 0.01, "{}", cores(tenant, "none"));
    }
    assert_eq!(answer["none"]["changes"][0]["fair_after_seconds"], Value::Null);
    assert!(number(&answer["tenantd"]["changes"][0]["fair_after_seconds"]) <= 2.0);
    assert_eq!(answer["series"]["seconds"].as_array().unwrap().len(), 40);
}

/// A tenant that wakes in the middle of a tick was due nothing before.
#[test]
fn what_is_due_follows_the_demand_within_a_tick() {
    let text = small("ticks: 3\ntenants: { a: { threads: 4 }, b: { from: 30s, threads: 4 } }\n")
        .replace("{ version: 1, ten", "{ version: 1, control: { interval: 20s }, ten");
    let answer = parsed(&text);
    assert!((number(&answer["tenants"][0]["entitled_cores"]) - 2.5).abs() < 0.01, "{answer}");
    assert!(number(&answer["static"]["share_error_max"]) < 0.01, "{answer}");
    assert_eq!(parsed(&small("ticks: 3\ntenants: {}"))["none"]["jain_index"], Value::Null);
}

#[test]
fn the_same_file_gives_the_same_bytes() {
    let text = small(
        "ticks: 300\nseed: 5\ntenants: { a: { threads: 8, duty: 0.5, noise: 0.4 }, \
         b: { threads: 4, on: 700ms, off: 1300ms, hot_file: 512MiB } }\n",
    );
    let answer = simulated(&text);
    assert_eq!(answer, simulated(&text));
    assert_ne!(answer, simulated(&text.replace("seed: 5", "seed: 6")));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    util::has_whole_bytes(&answer);
    let points = answer["series"]["seconds"].as_array().unwrap();
    assert!(points.len() <= 240, "{}", points.len());
    assert_eq!(points.last(), Some(&Value::from(300.0)));
    // Four threads for 35 % of the time.
    assert!((number(&answer["tenants"][1]["demand_cores"]) - 1.4).abs() < 1e-6);
}

/// Processes beyond their limit are killed, counted, and start again.
#[test]
fn kills_are_counted() {
    let text = small("duration: 20s\ntenants: { a: { working_set: 512MiB }, b: { threads: 4 } }\n")
        .replace("weight: 100", "weight: 100, limit: { memory: 128MiB }");
    let answer = parsed(&text);
    let kills = |run: &str| answer["tenants"][0][run]["nr_kills"].as_u64().unwrap();
    assert!(kills("tenantd") > 1 && kills("static") > 1, "{answer}");
    assert_eq!(kills("none"), 0);
}

#[test]
fn a_policy_may_be_a_file_beside_the_scenario_and_change() {
    let dir = util::scratch();
    let policy =
        "version: 1\nmode: observe\ntenants:\n  a: { match: { unit: a.service } }\n  b: {}\n";
    util::file(dir.path(), "one.yaml", policy);
    util::file(dir.path(), "two.yaml", policy.replace("{}", "{ weight: 300 }"));
    let text = "version: 1\nhost: { cpus: 4, memory: 1GiB }\npolicy: one.yaml\nduration: 40s\n\
                changes: [{ at: 20s, policy: two.yaml }]\n\
                tenants: { a: { threads: 4 }, b: { threads: 4 } }\n";
    let path = util::file(dir.path(), "scenario.yaml", text);
    let mut command = util::tenantctl();
    let ran = util::run(command.args(["simulate", "host", "--json"]).arg(path)).exits(0);
    let answer: Value = serde_json::from_str(&ran.out).unwrap();
    util::has_whole_bytes(&answer);
    for run in ["tenantd", "static"] {
        let cores = number(&answer["tenants"][1][run]["usage_cores"]);
        assert!((cores - 2.5).abs() < 0.06, "{run}: {cores}");
    }
    assert_eq!(answer["tenantd"]["changes"].as_array().unwrap().len(), 2);
}

/// Each with one finding.
const BAD_SCENARIOS: &[(&str, &str)] = &[
    ("", "H001 "),
    ("host: { cpus: 4, memory: 1GiB }", "H004 1:1 `version` is missing"),
    ("host: { cpus: 4 }", "H004 1:7 `memory` is missing"),
    ("ticks: 0\ntenants: {}", "H006 4:8 `0` is out of range"),
    ("ticks: 5\nduration: 5s\ntenants: {}", "H008 4:1 `ticks` and `duration` exclude each other"),
    ("tenants: {}", "H004 1:1 `duration` is missing"),
    ("ticks: 5\ntenants: { c: {} }", "H007 5:12 the policy has no tenant `c`"),
    ("ticks: 5\ntenants: { a: { threads: 0 } }", "H006 5:26 `0` is out of range"),
    ("ticks: 5\ntenants: { a: { duty: 1.5 } }", "H006 5:23 `1.5` is out of range"),
    ("ticks: 5\ntenants: { a: { duty: .nan } }", "H006 5:23 `.nan` is out of range"),
    ("ticks: 5\ntenants: { a: { hot_file: 1G } }", "P023 5:27 `1G` is not an amount of memory"),
    ("ticks: 5\ntenants: { a: { from: 15ms } }", "H006 5:23 `15ms` is no time here"),
    ("ticks: 5\ntenants: { a: { on: 1s } }", "H008 5:21 a burst has `on` and `off`"),
    ("ticks: 5\ntenants: { a: { burst: 1s } }", "H002 5:17 unknown key `burst`"),
    (
        "ticks: 5\ntenants: { a: [{ until: 3s }, { from: 2s }] }",
        "H008 5:39 this phase overlaps the one before",
    ),
    ("ticks: 5\ntenants: { a: { from: 3s, until: 2s } }", "H008 5:34 a phase ends after it begins"),
    ("ticks: 5\ntenants: { a: {}, a: {} }", "H003 5:19 `a` is given twice"),
    ("duration: 900000h\ntenants: {}", "H006 4:11 `900000h` is no time here"),
    ("duration: 20000h\ntenants: {}", "H009 4:11 72000000 simulated seconds with 2 tenants"),
    ("ticks: 5\npolicy: {}\ntenants: {}", "H003 5:1 `policy` is given twice"),
    (
        "ticks: 5\ntenants: {}\nchanges: [{ at: 2s, policy: { version: 1, tenants: { a: {} } } }]",
        "H008 6:29 this policy has other tenants than the first one",
    ),
];

#[test]
fn bad_scenarios_are_refused_with_places() {
    for (keys, expected) in BAD_SCENARIOS.iter().copied() {
        let text = if keys.is_empty() || keys.starts_with("host") {
            keys.to_string()
        } else {
            small(keys)
        };
        let findings = refused(&text);
        let is_found = findings.iter().any(|finding| finding.starts_with(expected));
        assert!(is_found, "{text}\nexpected {expected}\nfound {findings:#?}");
    }
    let policy =
        small("ticks: 5\ntenants: {}").replace("weight: 300", "weight: 0, limit: { cpu: 1m }");
    let findings = refused(&policy);
    assert!(
        findings.iter().any(|it| it.starts_with("P025 3:67 `0` is not a weight")),
        "{findings:?}"
    );
    assert_eq!(findings.len(), 2, "{findings:?}");
    let findings =
        refused(&small("ticks: 5\ntenants: {}").replace("weight: 300", "guarantee: { cpu: 9 }"));
    assert!(findings[0].starts_with("P061 3:"), "{findings:?}");
    let findings = refused(
        "version: 1\nhost: { cpus: 1, memory: 1GiB }\npolicy: missing.yaml\nticks: 1\ntenants: {}\n",
    );
    assert!(findings[0].starts_with("P001 "), "{findings:?}");
}

/// The findings of a bad scenario as `CODE line:column message`.
fn refused(scenario: &str) -> Vec<String> {
    util::refused(&["simulate", "host", "-", "--json"], scenario)
}

#[test]
fn a_person_gets_tables_and_sentences_and_a_page() {
    let dir = util::scratch();
    let page = dir.path().join("page.html");
    let args = ["simulate", "host", "-", "--report", page.to_str().unwrap()];
    let output = util::tenantctl_reads(&args, scenario("cache-beside-hog").as_bytes());
    let text = String::from_utf8(output.stdout).unwrap();
    fits_a_terminal(&text);
    for line in ["database", "share error, mean", "Files that database reads again"] {
        assert!(text.contains(line), "{line} is not in:\n{text}");
    }
    let page = std::fs::read_to_string(page).unwrap();
    assert_eq!(page.matches("<svg").count(), 6, "CPUs and memory of three machines");
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
    let links = ["href=", "src=", "@import", "url("];
    assert!(links.iter().all(|link| !page.contains(link)), "it is not self-contained");
}
