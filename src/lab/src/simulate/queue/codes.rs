//! The codes of the errors of a scenario, and the ranges of its numbers. A code never changes its meaning.

use std::time::Duration;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

use tenantd_policy::file::{Cause, Format, Whole, text, within};
use tenantd_policy::hint::shortened;
use tenantd_policy::parse::Budget;
use tenantd_queue::Terms;

pub(super) static FORMAT: Format = Format {
    codes: ["Q001", "Q002", "Q003", "Q004", "Q005", "Q006"],
    depth: Budget::PROBLEM.depth,
    remedies: &[
        ("discipline", "add `discipline: 2dfq`, or another of them"),
        ("workers", "say how many there are: `workers: 2`"),
        ("horizon", "say when it ends, in seconds: `horizon: 60`"),
        ("tenants", "a map by name, as in `tenants: { A: { weight: 2 } }`"),
        ("backlogged", "a map from tenants to costs, as in `backlogged: { A: 1 }`"),
        ("arrivals", "time, tenant and cost of each, as in `arrivals: [[0, A, 4]]`"),
        ("generators", "as in `generators: [{ name: small, count: 50, cost: { fixed: 1 } }]`"),
        ("jobs", "as in `jobs: [{ name: map, tenant: A, cost: 2, count: 10 }]`"),
        ("capacity", "as in `capacity: { cpu: 9, memory: 18 }`"),
        ("indices", "names of `capacity`, as in `indices: [gpu]`"),
        ("below", "say what is small: `below: 5`"),
        ("credits", "as in a policy: `credits: { half_life: 10m, cap: 60s }`"),
        ("name", "name it: `name: small`"),
        ("tenant", "say whose it is: `tenant: A`"),
        ("cost", "say what a request costs: `cost: 1`"),
        ("phase", "two times, as in `phase: [10, 20]`"),
        ("uniform", "two costs, as in `uniform: [1, 10]`"),
        (
            "arrive",
            "`backlogged`, or one of `{ poisson: 5 }`, `{ load: 0.5 }`, `{ every: 0.1 }`, `{ once: 1 }`",
        ),
    ],
};

/// A tenant, resource or job that is not defined, or defined twice.
pub(super) const NAME: Cause = Cause::Rule("Q007");
/// Keys that exclude each other.
pub(super) const CONFLICT: Cause = Cause::Rule("Q008");
/// A simulation without an end in sight.
pub(super) const TOO_LONG: Cause = Cause::Rule("Q009");

macro_rules! durations {
    ($($name:ident: $seconds:expr, $words:literal;)+) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name(pub(super) Duration);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let text = text(deserializer, $words)?;
                match humantime::parse_duration(&text) {
                    Ok(duration) if ($seconds).contains(&duration.as_secs_f64()) => Ok($name(duration)),
                    _ => {
                        let given = format!("`{}`", shortened(&text));
                        Err(Error::invalid_value(Unexpected::Other(&given), &$words))
                    }
                }
            }
        }
    )+};
}

// The ranges of the keys of a policy.
durations! {
    HalfLife: 10.0..=2_592_000.0, "a duration from `10s` to `30d`";
    Cap: 1.0..=3600.0, "a duration from `1s` to `1h`";
}

macro_rules! numbers {
    ($($name:ident: $range:expr, $words:literal;)+) => {$(
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name(pub(super) f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                within(deserializer, $range, $words).map($name)
            }
        }
    )+};
}

numbers! {
    Positive: f64::MIN_POSITIVE..=1e15, "a number above 0 and at most 1e15";
    NotNegative: 0.0..=1e15, "a number from 0 to 1e15";
    Part: 0.0..=1.0, "a number from 0 to 1";
    Any: -1e15..=1e15, "a number from -1e15 to 1e15";
    Weight: Terms::WEIGHT_MIN..=Terms::WEIGHT_MAX, "a number from 1e-9 to 1e9";
    Burst: 1.0..=1e15, "a number from 1 to 1e15";
    Multiplier: 1.0..=1e3, "a number from 1 to 1000";
    Spread: 0.0..=0.999, "a number from 0 to 0.999";
}

/// Largest number of tenants, of requests of jobs, and of the like in a file.
pub(super) const COUNT_MAX: u64 = 2_000_000;
/// A seed: a whole number that a 64-bit floating-point number holds exactly.
pub(super) type Seed = Whole<0, 9_000_000_000_000_000>;
pub(super) type Count = Whole<1, COUNT_MAX>;
/// Seconds from the order to end to the end of a run, as of `run --grace`.
pub(super) type Grace = Whole<0, 3600>;
/// Number of splits.
pub(super) type Splits = Whole<0, COUNT_MAX>;
