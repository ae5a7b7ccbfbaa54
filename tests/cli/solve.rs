//! `tenantctl solve`: the contract of its answers, and problems that mean harm.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use super::seeds::compare;
use crate::util;

/// Solves a text given on standard input.
fn run(text: &[u8], arguments: &[&str]) -> Output {
    util::tenantctl_reads(&[&["solve", "-"], arguments].concat(), text)
}

/// The answer to a problem that has one.
pub(crate) fn solve(text: &str) -> Value {
    let output = run(text.as_bytes(), &["--json"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}\n{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The findings on a problem that has none: code, line and column of each.
fn refused(text: &str) -> Vec<(String, u64, u64)> {
    let output = run(text.as_bytes(), &["--json"]);
    assert_eq!(output.status.code(), Some(78), "{text}");
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = answer["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    let place = |finding: &Value| {
        assert!(!finding["message"].as_str().unwrap().is_empty());
        let number = |key: &str| finding[key].as_u64().unwrap_or(0);
        (finding["code"].as_str().unwrap().to_string(), number("line"), number("column"))
    };
    findings.iter().map(place).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn assert_number(value: &Value, expected: f64) {
    assert!((number(value) - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{value}");
}

#[test]
fn the_answer_is_as_the_contract_has_it() {
    let output = run(
        b"algorithm: drf\ncapacity: { cpu: 9, memory: 18 }\nwork_conserving: false\ntenants:\n  \
          a: { task: { cpu: 1, memory: 4 } }\n  b: { task: { cpu: 3, memory: 1 } }\n",
        &["--json"],
    );
    let expected = concat!(
        r#"{"algorithm":"drf","tenants":{"#,
        r#""a":{"allocation":{"cpu":3.0,"memory":12.0},"fraction":3.0,"dominant_resource":"memory","#,
        r#""dominant_share":0.6666666666666666,"level":0.6666666666666666,"state":"blocked"},"#,
        r#""b":{"allocation":{"cpu":6.0,"memory":2.0},"fraction":2.0,"dominant_resource":"cpu","#,
        r#""dominant_share":0.6666666666666666,"level":0.6666666666666666,"state":"blocked"}},"#,
        r#""unallocated":{"cpu":0.0,"memory":4.0},"saturated":["cpu"]}"#,
        "\n"
    );
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
}

#[test]
fn states_quantities_and_paths() {
    let answer = solve(
        "algorithm: drf
capacity: { cpu: 8, memory: 16GiB }
tenants:
  satisfied: { demand: { cpu: 500m, memory: 1GiB } }
  limited: { demand: { cpu: 4, memory: 1GiB }, limit: { cpu: 1, memory: max } }
  idle: { demand: { cpu: 0 } }
  some: { task: { cpu: 1 }, tasks: 0.5 }
  group:
    weight: { cpu: 2, memory: 1 }
    tenants:
      inner: { tenants: { blocked: { task: { cpu: 1, memory: 1GiB } } } }
      empty: { tenants: {} }
",
    );
    let tenants = &answer["tenants"];
    let state = |name: &str| tenants[name]["state"].as_str().unwrap();
    assert_eq!(state("satisfied"), "satisfied");
    assert_eq!(state("limited"), "limited");
    assert_eq!(state("idle"), "no-demand");
    assert_eq!(state("some"), "satisfied");
    assert_eq!(state("group/inner/blocked"), "blocked");
    assert_number(&tenants["satisfied"]["allocation"]["memory"], f64::from(1 << 30));
    assert_number(&tenants["limited"]["fraction"], 0.25);
    assert_number(&tenants["some"]["fraction"], 0.5);
    assert_number(&tenants["group/inner/blocked"]["allocation"]["cpu"], 6.0);
    assert_eq!(tenants["idle"]["dominant_resource"], Value::Null);
    assert_eq!(tenants.as_object().unwrap().len(), 5);
}

#[test]
fn each_algorithm_answers() {
    let answer = |head: &str| {
        solve(&format!(
            "{head}\ncapacity: {{ cpu: 9, memory: 18 }}\ntenants:\n  \
             b: {{ task: {{ cpu: 3, memory: 1 }} }}\n  a: {{ task: {{ cpu: 1, memory: 4 }} }}\n"
        ))
    };
    let tasks = answer("algorithm: drf-tasks");
    assert_eq!(tasks["order"], serde_json::json!(["b", "a", "a", "b", "a"]));
    assert_eq!(tasks["tenants"]["a"]["fraction"], 3.0);
    for algorithm in ["max-min", "yarn"] {
        let alone = answer(&format!("algorithm: {algorithm}"));
        assert_eq!(
            alone["tenants"]["a"]["allocation"],
            serde_json::json!({"cpu": 4.5, "memory": 9.0})
        );
        assert_eq!(alone["tenants"]["a"]["fraction"], 2.25);
        assert_eq!(alone["tenants"]["a"]["level"], 0.5);
        assert!(alone.get("order").is_none());
    }
    let second = answer("algorithm: drf\nwork_conserving: true");
    assert_eq!(
        second["tenants"]["b"]["allocation"],
        serde_json::json!({"cpu": 6.0, "memory": 6.0})
    );
    assert_eq!(second["saturated"], serde_json::json!(["cpu", "memory"]));
}

#[test]
fn yarn_takes_minimum_shares_as_targets() {
    let answer = solve(
        "algorithm: yarn\ncapacity: { memory: 2147483647 }\ntenants:\n  \
         a: { task: { memory: 1 }, guarantee: { memory: 2147483647 } }\n  \
         b: { task: { memory: 1 }, guarantee: { memory: 2147483647 } }\n",
    );
    assert_eq!(answer["tenants"]["a"]["allocation"]["memory"], 2147483647.0);
    let answer = solve(
        "algorithm: yarn\ncapacity: { memory: 45 }\ntenants:\n  \
         a: { weight: 2, task: { memory: 1 }, limit: { memory: 10 } }\n  \
         b: { demand: { memory: 11 } }\n  c: { task: { memory: 1 }, tasks: 30 }\n  \
         d: { weight: 0.5, task: { memory: 1 }, limit: { memory: 20 } }\n",
    );
    let memory = |name: &str| &answer["tenants"][name]["allocation"]["memory"];
    for (name, expected) in [("a", 10.0), ("b", 11.0), ("c", 16.0), ("d", 8.0)] {
        assert_number(memory(name), expected);
    }
}

/// Queues that are to be emptied have a weight of 0 and a minimum there.
#[test]
fn a_queue_of_weight_0_gets_its_minimum_from_yarn_alone() {
    let problem = |algorithm: &str, b: &str| {
        format!(
            "algorithm: {algorithm}\ncapacity: {{ units: 45 }}\ntenants:\n  \
             a: {{ weight: 2, demand: {{ units: 100 }} }}\n  b: {{ {b}, demand: {{ units: 100 }} }}\n"
        )
    };
    for weight in ["weight: 0", "weight: { units: 0 }", "weight: 0.0, limit: { units: 40 }"] {
        let answer = solve(&problem("yarn", &format!("{weight}, guarantee: {{ units: 15 }}")));
        let units = |name: &str| &answer["tenants"][name]["allocation"]["units"];
        assert_number(units("a"), 30.0);
        assert_number(units("b"), 15.0);
    }
    for (algorithm, b) in [
        ("max-min", "weight: 0, guarantee: { units: 15 }"),
        ("drf", "weight: 0, guarantee: { units: 15 }"),
    ] {
        let output = run(problem(algorithm, b).as_bytes(), &[]);
        assert_eq!(output.status.code(), Some(78), "{algorithm}: {b}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("S006"), "{algorithm}: {b}");
    }
}

#[test]
fn a_table_marks_what_dominates() {
    let text = b"algorithm: drf\ncapacity: { cpu: 9, memory: 18GiB }\ntenants:\n  a: { task: \
                 { cpu: 1, memory: 4GiB } }\n  g: { tenants: { b: { task: { cpu: 3, memory: 1GiB } } } }\n";
    let output = run(text, &[]);
    let table = String::from_utf8(output.stdout).unwrap();
    let row = |name: &str| table.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(row("a ").contains("66.7%*  █████▍"), "{table}");
    assert!(row("b ").contains("6  66.7%*"), "{table}");
    assert!(row("g ").contains("group"), "{table}");
    assert!(table.contains("left: cpu none, memory 4.0GiB"), "{table}");
}

/// Lines fit a terminal: bars and parts give way to amounts, grants wrap, and alike machines share a line.
#[test]
fn wide_answers_fit_a_terminal() {
    let shown = |text: &str, arguments: &[&str]| {
        let output = run(text.as_bytes(), arguments);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        let shown = String::from_utf8(output.stdout).unwrap();
        util::fits_a_terminal(&shown);
        shown
    };
    let tenant = |index: usize| {
        format!(
            "  a-tenant-{index}: {{ task: {{ cpu: 1, memory: {index}, disk: 1, network: 2 }} }}\n"
        )
    };
    let tenants: String = (1..=9).map(tenant).collect();
    let text = format!(
        "algorithm: drf-tasks\nnodes: [{{ count: 100, cpu: 2, memory: 9, disk: 30, network: 40 }}, \
         {{ name: last, cpu: 2, memory: 1, disk: 1, network: 2 }}]\ntenants:\n{tenants}"
    );
    let answer = shown(&text, &["--steps"]);
    assert!(answer.contains("\n       a-tenant-"), "{answer}");
    let alike = "algorithm: fifo\nnodes: [{ count: 100, cpu: 8 }, { name: big, cpu: 9 }]\n\
                 tenants: { a: { task: { cpu: 8 } } }\n";
    assert!(
        shown(alike, &[]).contains("\n node-1 … node-100 (100 nodes)"),
        "{}",
        shown(alike, &[])
    );
    assert!(shown(alike, &[]).contains("\n big "), "{}", shown(alike, &[]));
}

/// The code of a finding, its line and its column.
type Found = (&'static str, u64, u64);

/// What is wrong, in a problem that is right but for one line, and what is to be found.
const WRONG: &[(&str, &[Found])] = &[
    ("a: { weight: 0, demand: { cpu: 1 } }", &[("S006", 4, 16)]),
    ("a: { weight: -1, demand: { cpu: 1 } }", &[("S006", 4, 16)]),
    ("a: { weight: .nan, demand: { cpu: 1 } }", &[("S006", 4, 16)]),
    ("a: { weight: nan, demand: { cpu: 1 } }", &[("S006", 4, 16)]),
    ("a: { weight: 1e300, demand: { cpu: 1 } }", &[("S006", 4, 16)]),
    ("a: { weight: { cpu: 1, memory: 0 }, demand: { cpu: 1 } }", &[("S006", 4, 34)]),
    ("a: { weight: [1], demand: { cpu: 1 } }", &[("S005", 4, 16)]),
    ("a: { demand: { cpu: 1e300 } }", &[("S006", 4, 23)]),
    ("a: { demand: { cpu: -1 } }", &[("S006", 4, 23)]),
    ("a: { demand: { cpu: 1e400 } }", &[("S006", 4, 23)]),
    ("a: { demand: { cpu: 16G } }", &[("S006", 4, 23)]),
    ("a: { demand: { cpu: } }", &[("S005", 4, 21)]),
    ("a: { demand: { gpu: 1 } }", &[("S007", 4, 18)]),
    ("a: { demand: { cpu: 1, cpu: 2 } }", &[("S003", 4, 26)]),
    ("a: { demand: { cpu: 1 }, guarantee: { cpu: 9 } }", &[("S011", 4, 46)]),
    ("a: { demand: { cpu: 1 }, guarantee: { cpu: 2 }, limit: { cpu: 1 } }", &[("S010", 4, 65)]),
    ("a: { demand: { cpu: 1 }, tasks: 3 }", &[("S008", 4, 28)]),
    ("a: { task: { cpu: 1 }, tasks: -3 }", &[("S006", 4, 33)]),
    ("a: { task: { cpu: 1 }, demand: { cpu: 1 } }", &[("S008", 4, 26)]),
    ("a: { weight: 1 }", &[("S008", 4, 3)]),
    ("a: { tenants: {}, tasks: 1 }", &[("S008", 4, 21)]),
    ("a: { tenants: {}, guarantee: { cpu: 2 }, limit: { cpu: 1 } }", &[("S010", 4, 58)]),
    (
        "a: { limit: { cpu: 1 }, tenants: { b: { demand: { cpu: 1 }, guarantee: { cpu: 2 } } } }",
        &[("S010", 4, 22)],
    ),
    (
        "a: { guarantee: { cpu: 9 }, tenants: { b: { demand: { cpu: 1 }, guarantee: { cpu: 2 } } } }",
        &[("S011", 4, 26)],
    ),
    ("a: { limit: { gpu: 1 }, tenants: {} }", &[("S007", 4, 17)]),
    ("a: 3", &[("S005", 4, 6)]),
    ("a: { wight: 2, demand: { cpu: 1 } }", &[("S002", 4, 8)]),
    ("a/b: { demand: { cpu: 1 } }", &[("S009", 4, 3)]),
    ("a: { weight: 0, demand: { gpu: 1, cpu: x } }", &[("S007", 4, 29)]),
    ("a: { demand: { gpu: 1, cpu: x } }", &[("S007", 4, 18)]),
    ("a: [", &[("S001", 4, 6)]),
];

#[test]
fn whatever_is_wrong_is_shown_in_its_place() {
    for (wrong, expected) in WRONG {
        let text =
            format!("algorithm: drf\ncapacity: {{ cpu: 8, memory: 16 }}\ntenants:\n  {wrong}\n");
        let found = refused(&text);
        let found: Vec<(&str, u64, u64)> =
            found.iter().map(|(code, line, column)| (code.as_str(), *line, *column)).collect();
        assert_eq!(&found, expected, "{wrong}");
        // For people it is drawn on standard error, and nothing is answered.
        let output = run(text.as_bytes(), &[]);
        let drawn = String::from_utf8(output.stderr).unwrap();
        assert!(output.stdout.is_empty() && drawn.contains("^") && drawn.contains(expected[0].0));
    }
}

#[test]
fn a_file_without_its_parts_is_refused() {
    let codes = |text: &str| -> Vec<String> {
        refused(text).into_iter().map(|(code, _, _)| code).collect()
    };
    assert_eq!(codes(""), ["S001"]);
    assert_eq!(codes("[]"), ["S005"]);
    assert_eq!(codes("{}"), ["S004"]);
    assert_eq!(codes("algorithm: drf"), ["S004"]);
    assert_eq!(codes("algorithm: drf\ncapacity: { cpu: 1 }"), ["S004"]);
    assert_eq!(codes("algorithm: drx\ncapacity: {}\ntenants: {}"), ["S005"]);
    assert_eq!(codes("algorithm: drf\ncapacity: {}\ntenants: {}"), ["S004"]);
    assert_eq!(codes("algorithm: drf\ncapacity: { cpu: -1 }\ntenants: {}"), ["S006"]);
    assert_eq!(
        codes("algorithm: drf\ncapacity: { cpu: 1 }\ntenants: {}\nwork_conserving: 1"),
        ["S005"]
    );
    assert_eq!(codes("algorithm: drf\ncapacity: { cpu: 1 }\ntenants: []"), ["S005"]);
    assert_eq!(
        codes(
            "algorithm: drf-tasks\ncapacity: { cpu: 1 }\ntenants: { a: { task: { cpu: 1 }, tasks: 1.5 } }"
        ),
        ["S012"]
    );
    assert_eq!(
        codes(
            "algorithm: drf-tasks\ncapacity: { cpu: 1 }\ntenants: { a: { task: { cpu: 1e-12 } } }"
        ),
        ["S012"]
    );
    let twice = "algorithm: drf\ncapacity: { cpu: 1 }\ntenants:\n  a: { demand: { cpu: 1 } }\n  a: { demand: { cpu: 1 } }\n";
    assert_eq!(refused(twice), [("S003".to_string(), 5, 3)]);
    assert_eq!(run(&[0xff, 0xfe, b'a'], &[]).status.code(), Some(78));
    assert_eq!(run(b"", &["--nonsense"]).status.code(), Some(2));
    let missing =
        Command::new(crate::programs::path("tenantctl")).args(["solve", "/no/such/file"]).output();
    assert_eq!(missing.unwrap().status.code(), Some(1));
}

#[test]
fn what_is_odd_but_right_is_answered() {
    let nobody = solve("algorithm: drf\ncapacity: { cpu: 0 }\ntenants: {}\n");
    assert_eq!(nobody["tenants"], serde_json::json!({}));
    assert_eq!(nobody["saturated"], serde_json::json!(["cpu"]));
    let nothing =
        solve("algorithm: drf\ncapacity: { cpu: 0 }\ntenants: { a: { task: { cpu: 1 } } }");
    assert_eq!(nothing["tenants"]["a"]["state"], "blocked");
    for algorithm in ["max-min", "drf", "drf-tasks", "yarn"] {
        let extreme = solve(&format!(
            "{{\"algorithm\": \"{algorithm}\", \"capacity\": {{\"cpu\": 1e24, \"gpu\": 1e-24}}, \"tenants\": \
             {{\"a\": {{\"weight\": 1e9, \"task\": {{\"cpu\": 1e24}}}}, \"b\": {{\"weight\": 1e-9, \
             \"task\": {{\"gpu\": 1e-24}}}}, \"c\": {{\"demand\": {{}}}}, \"g\": {{\"tenants\": {{}}}}}}}}"
        ));
        assert_number(&extreme["tenants"]["a"]["fraction"], 1.0);
        assert_number(&extreme["tenants"]["b"]["fraction"], 1.0);
    }
}

#[test]
fn a_hundred_groups_deep_and_far_too_deep() {
    let nested = |depth: usize| {
        let mut text =
            r#"{"algorithm":"drf","capacity":{"cpu":8,"memory":16},"tenants":"#.to_string();
        for _ in 0..depth {
            text += r#"{"l":{"task":{"cpu":1}},"g":{"tenants":"#;
        }
        text += r#"{"x":{"task":{"memory":1}}}"#;
        text + &"}}".repeat(depth) + "}"
    };
    for depth in [100, 1000] {
        let answer = solve(&nested(depth));
        assert_number(&answer["tenants"]["l"]["fraction"], 4.0);
        assert_number(&answer["tenants"][&("g/".repeat(depth) + "x")]["fraction"], 16.0);
    }
    assert_eq!(refused(&nested(100_000))[0].0, "S001");
}

#[test]
fn aliases_save_typing_but_are_no_bomb() {
    let answer = solve(
        "algorithm: drf\ncapacity: { cpu: 8 }\ntenants:\n  a: &it { task: { cpu: 1 } }\n  b: *it\n",
    );
    assert_number(&answer["tenants"]["b"]["fraction"], 4.0);
    let mut bomb =
        "algorithm: drf\ncapacity: { cpu: 8 }\ntenants:\n  a0: &a0 { task: { cpu: 1 } }\n"
            .to_string();
    for level in 1..12 {
        let below = level - 1;
        let members: String = (0..10).map(|i| format!("m{i}: *a{below}, ")).collect();
        bomb += &format!("  a{level}: &a{level} {{ tenants: {{ {members} }} }}\n");
    }
    // It stands for a hundred billion tenants: whoever expanded it would never come here.
    assert_eq!(refused(&bomb)[0].0, "S001");
}

/// A terminal obeys control characters, and whoever wrote the file is not whoever looks at it.
#[test]
fn no_name_sends_control_sequences_to_the_terminal() {
    let text = "algorithm: drf-tasks\ncapacity: { \"c\\e[2Jpu\": 8, \"f\\e]0;ree\": 9 }\ntenants:\n  \
                \"a\\e[31m\": { task: { \"c\\e[2Jpu\": 4 } }\n";
    let output = run(text.as_bytes(), &[]);
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(shown.contains("order: a\u{fffd}[31m a\u{fffd}[31m"), "{shown}");
    assert!(!shown.contains('\x1b'), "{shown:?}");
}

#[test]
fn a_million_tenants() {
    const TENANTS: usize = 1_000_000;
    let mut text = "algorithm: drf\ncapacity: { cpu: 1000000 }\ntenants:\n".to_string();
    for tenant in 0..TENANTS {
        // Every other one wants no more than half of its share.
        let tasks = if tenant % 2 == 0 { ", tasks: 0.5" } else { "" };
        text += &format!(" t{tenant}: {{task: {{cpu: 1}}{tasks}}}\n");
    }
    let output = run(text.as_bytes(), &["--json"]);
    assert_eq!(output.status.code(), Some(0));
    let answer = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answer.matches(r#""fraction":0.5,"#).count(), TENANTS / 2);
    assert_eq!(answer.matches(r#""state":"blocked""#).count(), TENANTS / 2);
    assert!(
        answer.ends_with("\"unallocated\":{\"cpu\":0.0},\"saturated\":[\"cpu\"]}\n"),
        "{}",
        &answer[answer.len() - 200..]
    );
    assert!(
        answer.contains(r#""t999999":{"allocation":{"cpu":1.5"#)
            || answer.contains(r#""t999999":{"allocation":{"cpu":1.49999999"#)
    );
}

/// A quantity has one zero: what is written with a sign gives the answer of the other, or the same findings.
#[test]
fn a_negative_zero_is_zero() {
    let fields = [
        ("capacity: { cpu: 8, memory: ZERO }", "demand: { cpu: 5 }"),
        ("capacity: { cpu: 8, memory: 4 }", "demand: { cpu: ZERO, memory: 3 }"),
        ("capacity: { cpu: 8, memory: 4 }", "demand: { cpu: 5, memory: ZERO }"),
        ("capacity: { cpu: 8, memory: 4 }", "demand: { cpu: 5 }, guarantee: { cpu: ZERO }"),
        ("capacity: { cpu: 8, memory: 4 }", "demand: { cpu: 5 }, limit: { cpu: ZERO }"),
        ("capacity: { cpu: 8, memory: 4 }", "demand: { cpu: 5 }, weight: ZERO"),
        ("capacity: { cpu: 8, memory: 4 }", "task: { cpu: 1, memory: ZERO }, tasks: 3"),
        ("capacity: { cpu: 8, memory: 4 }", "task: { cpu: 1 }, tasks: ZERO"),
    ];
    for algorithm in ["drf", "max-min", "drf-tasks", "yarn"] {
        for (capacity, tenant) in fields {
            let answers = ["0", "-0", "-0.0", "-0e3"].map(|zero| {
                let text = format!(
                    "algorithm: {algorithm}\n{capacity}\ntenants: {{ a: {{ {tenant} }}, b: {{ demand: {{ cpu: 6 }} }} }}\n"
                );
                let output = run(text.replace("ZERO", zero).as_bytes(), &["--json"]);
                let text = String::from_utf8(output.stdout).unwrap();
                let answer: Value = serde_json::from_str(&text).unwrap();
                // A finding may quote the text.
                let codes = answer["findings"].as_array().map(|all| {
                    all.iter().map(|finding| finding["code"].to_string()).collect::<Vec<_>>()
                });
                (output.status.code(), codes.is_none().then_some(text), codes)
            });
            let same = answers.iter().all(|answer| *answer == answers[0]);
            assert!(same, "{algorithm}: {capacity} {tenant}: {answers:#?}");
        }
    }
}

/// Bounds of groups, from files through the program.
#[test]
fn bounds_of_groups() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/group_bounds.yaml");
    let suite: Value = serde_yaml::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let vectors = suite["vectors"].as_array().unwrap();
    assert!(!vectors.is_empty());
    for vector in vectors {
        for (algorithm, work_conserving) in [("drf", false), ("drf", true), ("max-min", false)] {
            let mut input = vector["input"].clone();
            input["algorithm"] = algorithm.into();
            input["work_conserving"] = work_conserving.into();
            let answer = solve(&input.to_string());
            for (name, expected) in vector["expect"].as_object().unwrap() {
                let got = &answer["tenants"][name]["allocation"];
                let found = compare(name, expected, got, 1e-9);
                assert!(
                    found.is_empty(),
                    "{} {algorithm} {work_conserving}: {found:?}",
                    vector["id"]
                );
            }
        }
    }
}
