//! Policies: YAML in, a checked and typed model out.

pub mod model;

pub use model::Policy;
