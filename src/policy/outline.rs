//! A policy as a flat list of keys and values, and the difference between two of them.
//!
//! **Problem.** A reload has to say what it changed, in the log and to whoever asked for it, and `diff` has
//! to say it before. Both compare policies that were read at different times, perhaps by programs of
//! different versions. **Answer.** What a policy says is written down as a person would write it, every key
//! with its value, keys at their defaults left out; two such outlines are compared line by line. What two
//! programs write down differently is shown as a change, never passed over.
//!
//! **Properties** (`tests/policy/outline.rs`): a policy has no difference to itself; two policies that differ
//! have one; applying the changes to the one outline gives the other.

use serde::{Deserialize, Serialize};

/// A key of a policy and its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The key, with dots between its parts: `limit.cpu`.
    pub key: String,
    /// Its value, as a person would write it.
    pub value: String,
}

/// A tenant or group of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyTenant {
    /// Its names from the top, joined by slashes.
    pub name: String,
    /// Its keys that are not left at their defaults.
    pub settings: Vec<Setting>,
}

/// A policy, flat and in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outline {
    /// What concerns no single tenant.
    pub settings: Vec<Setting>,
    /// All tenants and groups, in pre-order.
    pub tenants: Vec<PolicyTenant>,
}

/// What happened to a tenant or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It has another value.
    Changed,
}

/// A difference between two policies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What happened.
    pub kind: ChangeKind,
    /// To which tenant or group; absent where it is about the policy as a whole.
    pub tenant: Option<String>,
    /// To which key; absent where it is about the tenant as a whole.
    pub key: Option<String>,
    /// The old value; absent where it was at its default.
    pub from: Option<String>,
    /// The new value; absent where it is at its default.
    pub to: Option<String>,
}
