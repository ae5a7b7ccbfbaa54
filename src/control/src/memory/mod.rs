//! Memory: possible protection, bounds that follow the demand, and stalls of the whole host.

pub mod alarm;
pub mod probe;
pub mod protect;
pub mod squeeze;
pub mod victims;
