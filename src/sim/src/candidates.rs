//! Notes about cgroups while a reclaim divides its work among them ([`super::reclaim`]).

use super::tree::CgroupId;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Protection {
    pub(super) min: u64,
    pub(super) low: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    pub(super) id: CgroupId,
    /// Scanned amount, relative to other cgroups.
    pub(super) scanned: f64,
    pub(super) most: u64,
    pub(super) breaks_low: bool,
}

/// Lists of one reclaim, reused by the next: with little memory, each step has several reclaims.
#[derive(Debug, Default)]
pub(super) struct Candidates {
    /// Indexed like the cgroups below the target; empty if nothing is protected.
    pub(super) protections: Vec<Option<Protection>>,
    pub(super) candidates: Vec<Candidate>,
}
