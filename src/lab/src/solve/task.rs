//! The content of a problem file.

use tenantd_fair::{Algorithm, Problem, WorkConserving};

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

/// The rules by the words of a problem file.
pub(super) const ALGORITHMS: &[(&str, Algorithm)] = &[
    ("max-min", Algorithm::MaxMin),
    ("drf", Algorithm::Drf),
    ("drf-tasks", Algorithm::DrfTasks),
    ("yarn", Algorithm::Yarn),
];
