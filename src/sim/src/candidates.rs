//! What a reclaim notes about cgroups while it divides its work among them ([`super::reclaim`]).

use super::tree::CgroupId;

/// Effective `memory.min` and `memory.low`, in pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Protection {
    pub(super) min: u64,
    pub(super) low: u64,
}

/// A cgroup in one round of a reclaim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: CgroupId,
    /// How much of it is looked at, beside that of others.
    pub(super) scanned: f64,
    /// What can be taken.
    pub(super) most: u64,
    pub(super) breaks_low: bool,
}

/// The lists of one reclaim, kept for the next one: where memory is short, each step has several.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// By place among the cgroups below the target; empty where nothing is protected.
    pub(super) protections: Vec<Option<Protection>>,
    pub(super) candidates: Vec<Candidate>,
}
