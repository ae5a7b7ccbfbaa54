//! The content of a problem file.

use crate::fair::{Algorithm, Problem, WorkConserving};
use crate::policy::types::Words;

/// The content of a problem file.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) algorithm: Algorithm,
    pub(super) work_conserving: WorkConserving,
    pub(super) resources: Vec<Resource>,
    /// The path of each node: its groups and itself, joined by `/`.
    pub(super) paths: Vec<String>,
    pub(super) problem: Problem,
}

/// A resource with its name in the file.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: String,
    /// Whether its capacity was written in bytes, and its amounts are best shown so.
    pub(super) in_bytes: bool,
}

impl Words for Algorithm {
    const WORDS: &'static [(&'static str, Algorithm)] = &[
        ("max-min", Algorithm::MaxMin),
        ("drf", Algorithm::Drf),
        ("drf-tasks", Algorithm::DrfTasks),
        ("yarn", Algorithm::Yarn),
    ];
}
