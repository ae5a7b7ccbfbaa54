#![no_main]

#[path = "../../tests/fuzz/targets.rs"]
#[allow(dead_code, reason = "each program has one target")]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::policy(bytes));
