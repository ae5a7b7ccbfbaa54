//! The codes of the errors of a scenario of a host. A code never changes its meaning.

use tenantd_policy::file::{Cause, Format};
use tenantd_policy::parse::Budget;

pub(super) static FORMAT: Format = Format {
    codes: ["H001", "H002", "H003", "H004", "H005", "H006"],
    depth: Budget::PROBLEM.depth,
    remedies: &[
        ("version", "say `version: 1`"),
        ("host", "say what there is: `host: { cpus: 4, memory: 8GiB }`"),
        ("cpus", "say how many: `cpus: 4`"),
        ("memory", "say how much: `memory: 8GiB`"),
        (
            "policy",
            "name a policy file, or write it here: `policy: { version: 1, tenants: { … } }`",
        ),
        ("changes", "as in `changes: [{ at: 60s, policy: other.yaml }]`"),
        ("at", "say when: `at: 60s`"),
        ("duration", "say how long: `duration: 60s`, or `ticks: 60`"),
        ("tenants", "say what the tenants do: `tenants: { web: { threads: 4 } }`"),
    ],
};

/// A tenant that the policy does not have.
pub(super) const NAME: Cause = Cause::Rule("H007");
/// Values that contradict one another.
pub(super) const CONFLICT: Cause = Cause::Rule("H008");
/// A simulation that would take too long.
pub(super) const TOO_LONG: Cause = Cause::Rule("H009");
