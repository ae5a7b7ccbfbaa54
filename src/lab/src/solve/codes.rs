//! The codes of the errors of a problem file. A code never changes its meaning.

use tenantd_policy::file::Format;

pub(super) static FORMAT: Format = Format {
    codes: ["S001", "S002", "S003", "S004", "S005", "S006"],
    // Two for each group, so about two thousand groups.
    depth: 4096,
    remedies: &[
        ("algorithm", "add `algorithm: drf`, or another of them"),
        ("capacity", "say what there is: `capacity: { cpu: 8, memory: 32GiB }`"),
        ("nodes", "a list such as `nodes: [{ count: 4, cpu: 8 }]`"),
        ("tenants", "name what shares it: `tenants: { a: { task: { cpu: 1 } } }`"),
        ("slots", "say how many a machine has: `slots: 4`"),
    ],
};

/// A resource that is not in the capacity.
pub(super) const UNKNOWN_RESOURCE: &str = "S007";
/// Not exactly one of task, demand, usage and tenants.
pub(super) const KIND: &str = "S008";
/// A name that is ambiguous in the answer.
pub(super) const NAME: &str = "S009";
/// A limit below the guarantee, or below the guarantees in the group.
pub(super) const LIMIT_BELOW_GUARANTEE: &str = "S010";
/// Guarantees beyond the capacity.
pub(super) const OVERBOOKED: &str = "S011";
/// Tasks that are not whole, or too many of them to list.
pub(super) const WHOLE_TASKS: &str = "S012";
/// Keys that do not go together.
pub(super) const CONFLICT: &str = "S013";
/// A question that this problem has no answer to.
pub(super) const UNAUDITED: &str = "S014";
