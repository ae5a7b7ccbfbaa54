//! Suites of vectors, for the tests of this crate and of `queue`.

use std::path::Path;

use serde_json::{Map, Value};

/// The vectors of a suite.
pub(super) fn suite(name: &str) -> Vec<Value> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../tests/vectors/{name}.yaml"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut suite: Map<String, Value> = serde_yaml::from_str(&text).unwrap();
    let Value::Array(vectors) = suite["vectors"].take() else { panic!("{name} has no vectors") };
    assert!(!vectors.is_empty());
    vectors
}

/// A number, or a rational written as `"p/q"`.
pub(super) fn number(value: &Value) -> f64 {
    match value {
        Value::Number(number) => number.as_f64().unwrap(),
        Value::String(text) => {
            let (p, q) = text.split_once('/').unwrap_or((text, "1"));
            p.parse::<f64>().unwrap() / q.parse::<f64>().unwrap()
        }
        other => panic!("{other} is no number"),
    }
}
