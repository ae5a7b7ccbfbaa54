//! One tick as a function.
