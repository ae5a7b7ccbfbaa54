//! `tenantctl dop`: the contract of its problem files, and what it says of bad ones.

#[path = "../../src/dop/tests/autodop.rs"]
mod autodop;

use std::process::Output;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::util;
use autodop::{Entry, Vector, vectors};

fn tenantctl(args: &[&str], input: &str) -> Output {
    util::tenantctl_reads(args, input.as_bytes())
}

fn solved(problem: &str) -> Value {
    let output = tenantctl(&["dop", "-", "--json"], problem);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{problem}\n{stderr}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The findings of a bad problem as `CODE line:column message`.
fn refused(problem: &str) -> Vec<String> {
    #[derive(Deserialize)]
    struct Refusal {
        findings: Vec<Finding>,
    }
    #[derive(Deserialize)]
    struct Finding {
        code: String,
        message: String,
        line: Option<u32>,
        column: Option<u32>,
    }
    let output = tenantctl(&["dop", "-", "--json"], problem);
    assert_eq!(output.status.code(), Some(78), "{problem}");
    let refusal: Refusal = serde_json::from_slice(&output.stdout).unwrap();
    let shown = |f: &Finding| {
        let (line, column) = (f.line.unwrap_or(0), f.column.unwrap_or(0));
        format!("{} {line}:{column} {}", f.code, f.message)
    };
    refusal.findings.iter().map(shown).collect()
}

/// A vector as a problem file.
fn problem_of(vector: &Vector, algorithm: &str) -> Value {
    let entry = |entry: &Entry| {
        let mut fields = serde_json::Map::new();
        for (key, value) in [("manual", entry.manual), ("max", entry.max)] {
            if let Some(value) = value {
                fields.insert(key.into(), value.into());
            }
        }
        if let Some(memory) = entry.mem {
            fields.insert("memory".into(), memory.into());
        }
        Value::Object(fields)
    };
    let input = &vector.input;
    let running: Vec<Value> =
        input.running().into_iter().map(|dop| json!({ "dop": dop })).collect();
    let mut problem = json!({
        "algorithm": algorithm,
        "slots": input.max_dop,
        "max_per_query": input.max_dop_one_query,
        "running": running,
        "queue": input.queue.iter().map(entry).collect::<Vec<_>>(),
    });
    if let Some(memory) = input.mem {
        problem["memory"] = memory.into();
    }
    problem
}

#[test]
fn all_vectors_through_the_command() {
    for vector in vectors() {
        for (algorithm, expected) in
            [("elastic", &vector.expect.fair_integer), ("imci", &vector.expect.imci_published)]
        {
            let answer = solved(&problem_of(&vector, algorithm).to_string());
            assert_eq!(answer["dop"], json!(expected), "{} {algorithm}", vector.id);
            assert_eq!(answer["memory_bound"], json!(vector.expect.memory_bound), "{}", vector.id);
        }
    }
}

#[test]
fn the_answer_is_the_object_of_the_contract() {
    let answer = tenantctl(
        &["dop", "-", "--json"],
        "algorithm: elastic\nslots: 8\nmax_per_query: 8\nqueue: [{ manual: 4 }, { max: 1 }, {}, {}]\n",
    );
    assert_eq!(
        String::from_utf8(answer.stdout).unwrap(),
        "{\"algorithm\":\"elastic\",\"dop\":[4,1,2,1],\"admitted\":4,\"memory_bound\":false,\
         \"idle_slots\":0}\n"
    );
}

#[test]
fn every_key_of_the_contract() {
    let answer = solved(
        "algorithm: elastic      # elastic | imci
slots: 16
max_per_query: 8        # optional
memory: 32              # optional
running: [{ dop: 2 }]   # optional
queue: [{ manual: 4 }, { max: 1 }, { memory: 8, weight: 2 }, {}]
",
    );
    assert_eq!(answer["dop"], json!([4, 1, 6, 3]));
}

#[test]
fn memory_may_be_a_quantity_and_may_grow_with_the_width() {
    let answer = solved(
        "{algorithm: elastic, slots: 8, memory: 8GiB, running: [{dop: 1, memory: 1GiB}],
          queue: [{memory: 1GiB, memory_per_thread: 1GiB}, {memory: '2.5GiB'}, {memory: 1GiB}]}",
    );
    // 2.5 GiB are left over the bases: a thread of the first is 2/5 of that, a slot 1/7 of the free ones.
    assert_eq!(answer["dop"], json!([1, 3, 3]));
    assert_eq!(solved("{algorithm: imci, slots: 4.0, queue: []}")["dop"], json!([]));
}

#[test]
fn a_table_for_people() {
    let output = tenantctl(
        &["dop", "-"],
        "algorithm: elastic\nslots: 8\nqueue: [{ manual: 4 }, { max: 1, memory: 2 }, {}, {manual: 6}]\n",
    );
    assert_eq!(output.status.code(), Some(0));
    let expected = "\x20query  width      weight  memory  dop
     1  manual 4        1       -    4  ████
     2  at most 1       1       2    1  █
     3  auto            1       -    3  ███
     4  manual 6        1       -    0  waits

3 of 4 start on 8 of 8 free slots; the rest waits for slots
";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let output = tenantctl(
        &["dop", "-"],
        "algorithm: elastic\nslots: 4\nresources: { io: 90 }\n\
         queue: [{ resources: { io: 10 }, per_thread: { io: 5 } }, {}]\n",
    );
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.starts_with(" query  width  weight  memory  io  dop\n"), "{table}");
    assert!(table.contains("     1  auto        1       -  20    2  ██\n"), "{table}");
}

#[test]
fn bad_problems_are_refused_with_code_and_place() {
    let base = "algorithm: elastic\nslots: 4\n";
    for (rest, expected) in [
        ("queue: [{ manual: 5 }]", "D008 3:19 `manual` is more than the 4 slots there are"),
        ("queue: [{ manual: 2, max: 3 }]", "D007 3:22 `manual` and `max` exclude each other"),
        ("queue: [{ manual: 0 }]", "D006 3:19 `manual` must be at least 1"),
        ("queue: [{ max: 0 }]", "D006 3:16 `max` must be at least 1"),
        ("queue: [{ max: -1 }]", "D006 3:16 expected a whole number, found `-1`"),
        ("queue: [{ max: 1.5 }]", "D006 3:16 expected a whole number, found `1.5`"),
        ("queue: [{ max: many }]", "D005 3:16 expected a number, found `many`"),
        ("queue: [{ weight: 0 }]", "D006 3:19 `weight` must be a number from 1e-9 to 1e9"),
        ("queue: [{ weight: .nan }]", "D006 3:19 `weight` must be a number from 1e-9 to 1e9"),
        ("queue: [{ memory: -1 }]", "D006 3:19 `memory` must be a number that is not negative"),
        ("queue: [{ memory: .inf }]", "D006 3:19 `memory` must be a number that is not negative"),
        ("queue: [{ memory: 8G }]", "D006 3:19 expected an amount of memory, found `8G`"),
        ("queue: [{ wieght: 1 }]", "D002 3:11 unknown key `wieght` in `queue`"),
        ("queue: {}", "D005 3:8 expected a list, found a map"),
        (
            "queue: [{ speedup: 4 }]",
            "D005 3:20 expected a map with `contention`, `coherency`, found `4`",
        ),
        ("queue: []\nmemory: .nan", "D006 4:9 `memory` must be a number that is not negative"),
        ("queue: []\nmax_per_query: 0", "D006 4:16 `max_per_query` must be at least 1"),
        ("queue: []\nrunning: [{}]", "D004 4:11 `dop` is missing"),
        ("queue: []\nrunning: [{ dop: -2 }]", "D006 4:18 expected a whole number, found `-2`"),
        ("queue: []\nqueue: []", "D003 4:1 `queue` is given twice"),
        ("queue: []\nthreads: 4", "D002 4:1 unknown key `threads`"),
    ] {
        assert_eq!(refused(&format!("{base}{rest}\n")), [expected]);
    }
    for (whole, expected) in [
        ("", "D001"),
        ("[", "D001"),
        ("just a text", "D005"),
        ("algorithm: elastic\nslots: 0\nqueue: []", "D006 2:8 `slots` must be at least 1"),
        ("algorithm: elastic\nslots: 1e9\nqueue: []", "D006 2:8 `slots` must be at most 1048576"),
        (
            "algorithm: elastik\nslots: 4\nqueue: []",
            "D005 1:12 `elastik` is not one of the choices",
        ),
        ("slots: 4\nqueue: []", "D004 1:1 `algorithm` is missing"),
    ] {
        let findings = refused(whole);
        assert_eq!(findings.len(), 1, "{whole}: {findings:?}");
        assert!(findings[0].starts_with(expected), "{whole}: {findings:?}");
    }
}

/// The types are read before their values are compared, and each in the order of the text.
#[test]
fn the_first_error_is_reported_alone() {
    let mut problem =
        "slots: 4\nqueue: [{ manual: 9 }, { max: x }, { wait: 1 }]\nmemory: -3\n".to_string();
    for (expected, wrong, right) in [
        ("D005 2:31 expected a number, found `x`", "max: x", "max: 2"),
        ("D002 2:38 unknown key `wait` in `queue`", "wait: 1", "weight: 1"),
        ("D004 1:1 `algorithm` is missing", "slots:", "algorithm: elastic\nslots:"),
        ("D006 4:9 `memory` must be a number that is not negative", "-3", "3"),
        ("D008 3:19 `manual` is more than the 4 slots there are", "manual: 9", "manual: 3"),
    ] {
        assert_eq!(refused(&problem), [expected], "{problem}");
        problem = problem.replacen(wrong, right, 1);
    }
    assert_eq!(solved(&problem)["dop"], json!([3, 1, 0]));
}

#[test]
fn a_finding_shows_the_line_and_what_to_do() {
    let output = tenantctl(&["dop", "-"], "algorithm: elastic\nslots: 4\nqueue: [{ manual: 9 }]\n");
    assert_eq!(output.status.code(), Some(78));
    assert_eq!(output.stdout, b"");
    let text = String::from_utf8(output.stderr).unwrap();
    for part in ["D008", "-:3:19", "queue: [{ manual: 9 }]", "^", "lower it, or use `max`"] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
}

#[test]
fn what_is_no_text_or_not_there() {
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("problem.yaml");
    std::fs::write(&path, b"slots: \xff").unwrap();
    let output = tenantctl(&["dop", path.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(78));
    let missing = directory.path().join("missing.yaml");
    let output = tenantctl(&["dop", missing.to_str().unwrap()], "");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("missing.yaml"));
}

#[test]
fn a_hostile_problem_is_answered_in_bounded_time() {
    // Twenty thousand unknown keys, of which the first is reported.
    let keys: String = (0..20_000).map(|key| format!("k{key}: 1\n")).collect();
    assert_eq!(refused(&keys), ["D002 1:1 unknown key `k0`"]);
    // Twenty levels of ten aliases each.
    let bomb: String = (1..20)
        .map(|n| format!("k{n}: &a{n} [{}]\n", format!("*a{}, ", n - 1).repeat(10)))
        .collect();
    let findings = refused(&format!("k0: &a0 [x]\n{bomb}"));
    assert!(findings[0].starts_with("D001"), "{findings:?}");
    let wide: String = "{},".repeat(20_000);
    let answer = solved(&format!("{{algorithm: elastic, slots: 1048576, queue: [{wide}]}}"));
    assert_eq!(answer["admitted"], json!(20_000));
}
