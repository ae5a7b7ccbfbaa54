//! Single values of a problem file.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

use super::task::{PLACEMENTS, Rule};
use tenantd_core::units::{Bytes, MilliCpus};
use tenantd_fair::Placement;
use tenantd_policy::file::{one_of, text};
use tenantd_policy::hint::shortened;
use tenantd_policy::reader::without_sign_of_zero;
use tenantd_policy::types::Words;

pub(super) fn rule<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Rule, D::Error> {
    one_of(deserializer, Rule::WORDS)
}

pub(super) fn placement<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Placement, D::Error> {
    one_of(deserializer, PLACEMENTS)
}

fn not_a_number<E: Error>(text: &str, expected: &str, help: &str) -> E {
    let message = format!("`{}` is not {expected}", shortened(text));
    E::invalid_value(Unexpected::Other(&message), &help)
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $holds:expr, $expected:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name(pub(super) f64);

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                let text = text(deserializer, "a number")?;
                let holds: fn(f64) -> bool = $holds;
                match text.parse::<f64>() {
                    Ok(number) if number.is_finite() && holds(number) => {
                        Ok($name(without_sign_of_zero(number)))
                    }
                    _ => Err(not_a_number(&text, $expected, concat!("write ", $expected))),
                }
            }
        }
    };
}

number!(Number, |_| true, "a finite number");
number!(Positive, |number| number > 0.0, "a number above 0");
number!(
    Count,
    |number| (0.0..=1e15).contains(&number) && number.fract() == 0.0,
    "a whole number from 0 to 1e15"
);

/// An amount of a resource.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) amount: f64,
    /// True if it is written in bytes.
    pub(super) in_bytes: bool,
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Amount, D::Error> {
        let text = text(deserializer, "a number, or a quantity such as `500m` or `8GiB`")?;
        Ok(Amount { amount: amount(&text)?, in_bytes: text.ends_with("iB") })
    }
}

/// A finite number, or a quantity: CPUs as `500m`, memory as `8GiB`.
fn amount<E: Error>(text: &str) -> Result<f64, E> {
    let has_unit = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_alphabetic());
    if !has_unit {
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        let help = "write a number, or a quantity such as `500m` or `8GiB`";
        let number = number.ok_or_else(|| not_a_number(text, "a finite number", help))?;
        return Ok(without_sign_of_zero(number));
    }
    let quantity = if text.ends_with('m') {
        text.parse::<MilliCpus>().map(MilliCpus::cores)
    } else {
        text.parse::<Bytes>().map(|bytes| bytes.0 as f64)
    };
    quantity.map_err(|error| not_a_number(text, "a quantity", &error.help))
}

/// A limit: an amount, or `max` for none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(pub(super) f64);

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Limit, D::Error> {
        let text = text(deserializer, "a number, a quantity such as `500m` or `8GiB`, or `max`")?;
        match &*text {
            "max" => Ok(Limit(f64::INFINITY)),
            _ => Ok(Limit(amount(&text)?)),
        }
    }
}
