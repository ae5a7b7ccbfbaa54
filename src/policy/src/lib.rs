//! Policies: YAML in, a checked and typed model out.
//!
//! **Problem.** A policy is written by hand, once, and then governs a machine. All errors must be reported
//! at once, each with its place, and the agent must never run half of a policy.
//!
//! **One table.** [`keys`] declares every key once. The structs of the model, their defaults, the reader,
//! the outline that `diff` compares ([`outline`]), the JSON schema ([`schema`]) and the manual derive from
//! it. [`key`] defines a row; `forms`, `bounds` and `names` read and show values of each kind.
//!
//! **Path of a text.** [`load()`] opens a path, bounded and without blocking. [`mod@parse`] turns the text
//! into a plain [`tree`] with every place and every repeated key; `syntax` finds the line of a mistake if
//! that fails. `read` walks the tree by the table into a model and the places of its values, and goes on
//! after each finding; `words` knows the words of other programs. `check`, `claims` and `presence` try the
//! rules about several values or about the machine ([`HostFacts`]), `notes` those about valid values; `amount`
//! keeps percentages until a machine is known. [`rules`] has one line for
//! each rule; [`report`] shows the violations.
//!
//! **Properties.** Every rule has a code, a fixture that breaks only that rule, and the exact report
//! (`tests/policy.rs`). Any bytes are answered in bounded time and memory (`tests/policy/hostile.rs`). No
//! unknown or repeated key passes (`tests/policy/model.rs`). Each key of the table is read, described, and
//! shows as a difference (`tests/policy/keys.rs`). A mistake is reported at its line with a remedy
//! (`tests/policy/syntax.rs`); `tests/mistakes.yaml` grades the reports of a new administrator's mistakes.
//!
//! Only [`mod@parse`] names the YAML crate, and only [`report`] the one that draws underlines.

#![deny(missing_docs)]

pub mod accounts;
pub mod amount;
pub mod bounds;
mod check;
mod claims;
pub mod counted;
mod coupling;
mod credits;
mod disk_limits;
mod disk_notes;
mod disk_shares;
pub mod divide;
mod durations;
pub mod expand;
mod facts;
pub mod file;
pub mod forms;
pub mod hint;
mod installed;
pub mod key;
pub mod keys;
pub mod load;
pub mod model;
mod names;
mod nodes;
mod notes;
pub mod outline;
pub mod parse;
pub mod pattern;
mod pod_claims;
pub mod pods;
mod presence;
mod read;
pub mod reader;
mod replaced;
pub mod report;
pub mod rest;
mod retention;
pub mod rules;
pub mod schema;
mod stays;
mod syntax;
mod templates;
pub mod tree;
pub mod types;
mod unit_files;
pub mod unit_path;
mod values;
mod words;

pub use facts::{DiskFacts, HostFacts, Systemd, UnitFacts, huge_pages};
pub use installed::Services;
pub use load::is_policy_file;
pub use load::{
    Loaded, check_input, check_path, load, load_from, load_text, load_value, load_with_host,
};
pub use model::Policy;
pub use read::MOST_TENANTS;
pub use report::{Diagnostic, Report};
pub use unit_files::UnitSetting;

/// True if a tenant can have this name.
pub fn is_tenant_name(name: &str) -> bool {
    values::safe_name(name).is_ok()
}
