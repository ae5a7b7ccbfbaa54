//! From targets to ordered writes.

pub(crate) mod desired;
pub mod plan;
pub mod value_reason;
