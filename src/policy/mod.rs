//! Policies: YAML in, a checked and typed model out.

pub mod check;
mod draft;
mod facts;
mod fields;
mod load;
pub mod model;
pub mod parse;
pub mod pattern;
mod read;
pub mod report;
pub mod rules;
pub mod tree;
pub mod values;

pub use facts::HostFacts;
pub use load::{Loaded, load, load_with_host};
pub use model::Policy;
pub use parse::{Spanned, parse};
pub use read::{SECTIONS, Section};
pub use report::{Diagnostic, Report};
