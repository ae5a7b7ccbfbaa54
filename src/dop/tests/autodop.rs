//! The vectors of `autodop.yaml`, for the crate and for the command.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct Suite<T> {
    pub(super) vectors: Vec<T>,
}

/// One vector of `autodop.yaml`.
#[derive(Debug, Deserialize)]
pub(super) struct Vector {
    pub(super) id: String,
    pub(super) input: Input,
    pub(super) expect: Expected,
}

#[derive(Debug, Deserialize)]
pub(super) struct Input {
    pub(super) max_dop: u64,
    pub(super) max_dop_one_query: u64,
    pub(super) queue: Vec<Entry>,
    pub(super) mem: Option<f64>,
    #[serde(default)]
    pub(super) running_q: u64,
    #[serde(default)]
    pub(super) running_dop: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Entry {
    pub(super) manual: Option<u64>,
    pub(super) max: Option<u64>,
    pub(super) mem: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Expected {
    pub(super) imci_published: Vec<u64>,
    pub(super) memory_bound: bool,
    pub(super) fair_integer: Vec<u64>,
}

impl Input {
    /// The running queries, one DOP for each: only their sum matters.
    pub(super) fn running(&self) -> Vec<u64> {
        let mut dops = vec![0; self.running_q as usize];
        if let Some(first) = dops.first_mut() {
            *first = self.running_dop;
        }
        dops
    }
}

/// The vectors of `autodop.yaml`.
pub(super) fn vectors() -> Vec<Vector> {
    let suite: Suite<Vector> =
        serde_yaml::from_str(include_str!("../../../tests/vectors/autodop.yaml")).unwrap();
    assert!(!suite.vectors.is_empty());
    suite.vectors
}
