//! Policies: YAML in, a checked and typed model out.

pub mod model;
pub mod parse;
pub mod report;

pub use model::Policy;
pub use parse::{Spanned, parse};
pub use report::Diagnostic;
