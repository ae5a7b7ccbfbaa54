//! Policies: YAML in, a checked and typed model out.
//!
//! **Problem.** A policy is written by hand, once, and then rules a machine. Whoever writes it should learn
//! everything that is wrong with it at once and where, and whoever runs it must never get half of one: a
//! policy is accepted whole or not at all.
//!
//! **Path of a text.** [`load()`] opens what a path means, bounded and without waiting. [`mod@parse`] makes a
//! plain [`tree`] of it that still knows every place and every repeated key. `read` and `fields` walk the
//! tree key by key into a draft, going on after each finding; `values` says what single values may look like. [`check`]
//! tries the rules that look at several values, or at the machine ([`HostFacts`]). Only then does the draft
//! become a [`Policy`]. [`rules`] has one line for each rule; [`report`] shows what broke them.
//!
//! **Properties.** Every rule has a code, one fixture that breaks it and no other, and the exact report
//! (`tests/policy.rs`). Whatever the bytes, the answer comes in bounded time and memory
//! (`tests/policy/hostile.rs`). No unknown or repeated key passes; what is accepted means what it says
//! (`tests/policy/model.rs`). The examples and the schema are what the parser takes (`tests/policy/examples.rs`).
//!
//! The YAML crate is named in [`mod@parse`] alone and the one that draws underlines in [`report`] alone.

pub mod check;
mod facts;
pub(crate) mod forms;
pub mod hint;
pub mod key;
pub mod keys;
mod load;
pub mod model;
pub mod outline;
pub mod parse;
pub mod pattern;
mod read;
pub mod reader;
pub mod report;
pub mod rules;
pub mod schema;
mod syntax;
pub mod tree;
pub mod types;
mod values;

pub use facts::HostFacts;
pub(crate) use load::is_policy_file;
pub use load::{Loaded, load, load_text, load_with_host};
pub use model::Policy;
pub use read::MOST_TENANTS;
pub use report::{Diagnostic, Report};
