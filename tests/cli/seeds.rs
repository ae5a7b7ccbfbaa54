//! Vectors of the five sources: each is a command, its standard input, and values that its answer must have.
//!
//! A suite is a file `tests/vectors/seeds_*.yaml` and a line in [`every_vector_holds`]. A vector names its command in `run`,
//! the problem in `input`, and either `refused` or `expect` and `schedule`; [`compare`] defines what they mean.

use std::path::Path;

use serde_json::Value;

use crate::util;

/// Suites, each with the command whose vectors are run.
pub(super) const SUITES: &[(&str, &str)] = &[
    ("seeds_audit", "solve"),
    ("seeds_basics", "solve"),
    ("seeds_deadline", "solve"),
    ("seeds_dop", "dop"),
    ("seeds_exact", "solve"),
    ("seeds_fifo_nodes", "solve"),
    ("seeds_mesos", "solve"),
    ("seeds_pools", "solve"),
    ("seeds_queue", "simulate"),
    ("seeds_slots", "solve"),
    ("seeds_steps", "solve"),
    ("seeds_yarn_order", "solve"),
    ("seeds_yt", "solve"),
];

/// Deviation of a figure that is allowed, as a part of it where it is above 1.
const TOLERANCE: f64 = 1e-6;

/// Deviation where whole tasks are exact.
const EXACT: f64 = 1e-9;

/// Endings of the codes for an unknown key, a missing key, and a wrong type or word. No rule is shown by them.
const FORM: [&str; 3] = ["002", "004", "005"];

/// The text of a suite.
pub(crate) fn suite(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/vectors/{name}.yaml"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The vectors of a suite, each with its input as text: the order of tenants counts, and a map would lose it.
pub(crate) fn vectors(text: &str) -> Vec<(Value, String)> {
    let mut suite: Value = serde_yaml::from_str(text).unwrap();
    let Value::Array(vectors) = suite["vectors"].take() else { panic!("a suite has vectors") };
    let inputs: Vec<String> = text.split("\n  input:\n").skip(1).map(block).collect();
    assert_eq!(vectors.len(), inputs.len(), "each vector has an input");
    assert!(!vectors.is_empty());
    vectors.into_iter().zip(inputs).collect()
}

/// The indented block at the beginning of a text, without its indentation.
fn block(text: &str) -> String {
    let lines = text.lines().map_while(|line| line.strip_prefix("    "));
    lines.map(|line| format!("{line}\n")).collect()
}

/// A number; of a string, the number or the rational `p/q` that it says.
pub(crate) fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => match text.split_once('/') {
            Some((p, q)) => Some(p.parse::<f64>().ok()? / q.parse::<f64>().ok()?),
            None => text.parse().ok(),
        },
        _ => value.as_f64(),
    }
}

/// Differences of an answer from what is wanted of it, each with its path.
///
/// Numbers agree within `tolerance`. A map needs the wanted keys and may have others. A list is compared whole, but for
/// `{$prefix: [...]}`, which wants its beginning. `{$ge: x, $le: y}` bounds a number.
pub(crate) fn compare(path: &str, wanted: &Value, got: &Value, tolerance: f64) -> Vec<String> {
    let differs = || vec![format!("{path}: {got} instead of {wanted}")];
    let list = |wanted: &[Value], got: &[Value]| -> Vec<String> {
        let pairs = wanted.iter().zip(got).enumerate();
        pairs.flat_map(|(i, (w, g))| compare(&format!("{path}[{i}]"), w, g, tolerance)).collect()
    };
    match (wanted, got) {
        (Value::Object(bounds), _) if bounds.contains_key("$ge") || bounds.contains_key("$le") => {
            let bound = |key: &str| bounds.get(key).map(|bound| number(bound).unwrap());
            let within = got.as_f64().is_some_and(|got| {
                bound("$ge").is_none_or(|low| got >= low)
                    && bound("$le").is_none_or(|high| got <= high)
            });
            if within { Vec::new() } else { differs() }
        }
        (Value::Object(map), Value::Array(got)) if map.contains_key("$prefix") => {
            match map["$prefix"].as_array() {
                Some(wanted) if wanted.len() <= got.len() => list(wanted, got),
                _ => differs(),
            }
        }
        (Value::Object(wanted), Value::Object(got)) => {
            let missing = Value::String("nothing".into());
            let each = wanted.iter().map(|(key, wanted)| (key, wanted, got.get(key)));
            each.flat_map(|(key, wanted, got)| {
                compare(&format!("{path}.{key}"), wanted, got.unwrap_or(&missing), tolerance)
            })
            .collect()
        }
        (Value::Array(wanted), Value::Array(got)) if wanted.len() == got.len() => list(wanted, got),
        (_, Value::Number(_)) => match (number(wanted), got.as_f64()) {
            (Some(w), Some(g)) if (w - g).abs() <= tolerance * w.abs().max(1.0) => Vec::new(),
            _ => differs(),
        },
        _ if wanted == got => Vec::new(),
        _ => differs(),
    }
}

/// The dispatches of an answer as `TENANT REQUEST @ TIME : W WORKER`, without the blanks, the time rounded.
fn schedule(answer: &Value) -> Vec<(String, f64, u64)> {
    let dispatches = answer["dispatches"].as_array().unwrap();
    let shown = |it: &Value| {
        let name = format!("{}{}", it["tenant"].as_str().unwrap(), it["request"]);
        (name, it["time"].as_f64().unwrap(), it["worker"].as_u64().unwrap())
    };
    dispatches.iter().map(shown).collect()
}

/// An entry of `schedule`.
fn dispatch(text: &str) -> (String, f64, u64) {
    let (request, rest) = text.split_once('@').unwrap();
    let (time, worker) = rest.split_once(":W").unwrap();
    let time = number(&Value::String(time.to_string())).unwrap();
    (request.to_string(), time, worker.parse().unwrap())
}

/// What is wrong with the answer to one vector.
fn judge(vector: &Value, input: &str, tolerance: f64) -> Vec<String> {
    let run: Vec<&str> =
        vector["run"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let output = util::tenantctl_reads(&[&run[..], &["-", "--json"]].concat(), input.as_bytes());
    let stderr = String::from_utf8_lossy(&output.stderr);
    let Ok(answer) = serde_json::from_slice::<Value>(&output.stdout) else {
        return vec![format!("no answer: {stderr}")];
    };
    if let Some(code) = vector["refused"].as_str() {
        let findings = answer["findings"].as_array().map_or(&[][..], Vec::as_slice);
        let codes: Vec<&str> = findings.iter().map(|it| it["code"].as_str().unwrap()).collect();
        let is_form = |found: &str| FORM.iter().any(|form| found.ends_with(form));
        let fits = |found: &&str| **found == *code || found.starts_with(code) && !is_form(found);
        let is_refused = output.status.code() == Some(78) && codes.iter().any(fits);
        return if is_refused {
            Vec::new()
        } else {
            vec![format!("not refused by {code}: {codes:?}")]
        };
    }
    if output.status.code() != Some(0) {
        return vec![format!("{:?}: {answer}", output.status)];
    }
    let mut found = compare("", &vector["expect"], &answer, tolerance);
    if let Some(wanted) = vector["schedule"].as_array() {
        let wanted: Vec<_> = wanted.iter().map(|it| dispatch(it.as_str().unwrap())).collect();
        let got = schedule(&answer);
        let agree = |(w, g): (&(String, f64, u64), &(String, f64, u64))| {
            (&w.0, w.2) == (&g.0, g.2) && (w.1 - g.1).abs() <= TOLERANCE
        };
        if wanted.len() != got.len() || !wanted.iter().zip(&got).all(agree) {
            found.push(format!("schedule: {got:?} instead of {wanted:?}"));
        }
    }
    found
}

#[test]
fn every_vector_holds() {
    let mut failed = Vec::new();
    for (name, command) in SUITES {
        let tolerance = if *name == "seeds_exact" { EXACT } else { TOLERANCE };
        let all = vectors(&suite(name));
        let own: Vec<_> = all.iter().filter(|(it, _)| it["run"][0] == *command).collect();
        assert!(!own.is_empty(), "{name} has no vector for {command}");
        for (vector, input) in own {
            let found = judge(vector, input, tolerance);
            failed.extend(found.into_iter().map(|found| format!("{} {found}", vector["id"])));
        }
    }
    assert!(failed.is_empty(), "{} failures:\n{}", failed.len(), failed.join("\n"));
}
