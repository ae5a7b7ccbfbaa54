//! Tests of `sim`.
