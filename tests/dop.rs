//! Tests of `dop`.
