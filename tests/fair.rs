//! Tests of `fair`.
