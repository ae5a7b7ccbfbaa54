//! Quantities of the agent, and their notation.
//!
//! A policy file has `500m` and `8GiB`; the kernel uses microseconds and bytes; the allocation core uses
//! plain `f64`. Each quantity has a type of its own here, so that no two of them can be swapped, and each
//! is parsed in exactly one place.
//!
//! Decimal memory suffixes (`16G`, `16GB`) are refused on purpose: systemd reads `MemoryMax=16G` as 16 GiB,
//! most other tools as 16·10⁹ bytes, and a limit that is 7 % off is worse than an error.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of CPUs in thousandths: `MilliCpus(1500)` is one and a half CPUs.
///
/// Written `2`, `1.5` or `500m`. Range: `0 ..= 1_000_000_000` (a million CPUs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliCpus(pub u64);

impl MilliCpus {
    /// Largest count that parses: a million CPUs.
    pub const MAX: MilliCpus = MilliCpus(1_000_000_000);

    /// Quantity in whole CPUs, the unit of the allocation core and the JSON.
    pub fn cores(self) -> f64 {
        self.0 as f64 / 1000.0
    }
}

impl fmt::Display for MilliCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}

impl FromStr for MilliCpus {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let malformed = || QuantityError::new(text, cpus_help(text));
        let milli = match text.strip_suffix('m') {
            Some(digits) => decimal(digits, 1),
            None => decimal(text, 1000),
        };
        let milli = milli.ok_or_else(malformed)?;
        let cpus = MilliCpus(milli);
        if cpus > MilliCpus::MAX {
            return Err(QuantityError::new(text, "no machine has more than a million CPUs"));
        }
        Ok(cpus)
    }
}

/// An amount of memory in bytes.
///
/// Written as plain bytes or with `KiB`, `MiB`, `GiB`, `TiB`, or `Ki` to `Ti` for short. Range:
/// `0 ..= 2^63 - 1`, the largest value the kernel's page counters take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

/// Binary suffixes, largest first: the first that divides a value is printed.
const BINARY_SUFFIXES: [(&str, u64); 4] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

impl Bytes {
    /// Largest amount that parses.
    pub const MAX: Bytes = Bytes(i64::MAX as u64);

    /// `n` mebibytes.
    pub const fn mib(n: u64) -> Bytes {
        Bytes(n << 20)
    }

    /// `n` gibibytes.
    pub const fn gib(n: u64) -> Bytes {
        Bytes(n << 30)
    }

    /// Rounded form for tables, at most six characters wide: `1.5GiB`, `512MiB`, `0`.
    pub fn rounded(self) -> String {
        for (suffix, size) in BINARY_SUFFIXES {
            if self.0 >= size {
                let value = self.0 as f64 / size as f64;
                let decimals = usize::from(value < 9.95);
                return format!("{value:.decimals$}{suffix}");
            }
        }
        self.0.to_string()
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (suffix, size) in BINARY_SUFFIXES {
            if self.0 >= size && self.0.is_multiple_of(size) {
                return write!(f, "{}{suffix}", self.0 / size);
            }
        }
        write!(f, "{}", self.0)
    }
}

impl FromStr for Bytes {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
        let (digits, suffix) = text.split_at(split);
        let digits = digits.trim_end();
        let size = match suffix {
            "" => 1,
            // Kubernetes' `8Gi` is the same binary unit.
            _ => match BINARY_SUFFIXES
                .iter()
                .find(|(name, _)| *name == suffix || name.strip_suffix('B') == Some(suffix))
            {
                Some((_, size)) => *size,
                None => return Err(QuantityError { text: text.into(), help: suffix_help(text) }),
            },
        };
        let bytes = decimal(digits, size).ok_or_else(|| {
            let percent = if text.ends_with('%') { "; a percentage has no place here" } else { "" };
            let help = format!("write memory as bytes or as `512MiB`, `1.5GiB`, `2TiB`{percent}");
            QuantityError { text: text.into(), help }
        })?;
        if bytes > Bytes::MAX.0 {
            return Err(QuantityError::new(text, "the kernel counts memory in 63 bits"));
        }
        Ok(Bytes(bytes))
    }
}

fn cpus_help(text: &str) -> String {
    const FORMS: &str = "write CPUs as `2`, `1.5` or `500m`";
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = (&text[..end], text[end..].trim());
    match digits.parse::<f64>() {
        Ok(_) if unit.is_empty() && digits.contains('.') => {
            "CPUs have at most three decimals".to_string()
        }
        Ok(number) if unit == "%" => {
            format!("{FORMS}; {digits}% of one CPU is `{}m`", number * 10.0)
        }
        Ok(_) if unit == "M" => format!("{FORMS}: say `{digits}m`"),
        Ok(_) if unit.chars().all(char::is_alphabetic) && unit != "m" && !unit.is_empty() => {
            format!("{FORMS}: say `{digits}`")
        }
        _ => FORMS.to_string(),
    }
}

fn suffix_help(text: &str) -> String {
    let split = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(split);
    let letter = suffix.chars().next().map(|c| c.to_ascii_uppercase());
    let is_binary = suffix.len() > 1 && suffix[1..].to_ascii_lowercase().starts_with('i');
    match letter {
        Some(letter @ ('K' | 'M' | 'G' | 'T')) if is_binary => {
            format!("the unit is written `{letter}iB`: say `{}{letter}iB`", digits.trim_end())
        }
        Some(letter @ ('K' | 'M' | 'G' | 'T')) => format!(
            "`{suffix}` is read as a power of ten by some tools and of two by others: say `{digits}{letter}iB`",
            digits = digits.trim_end()
        ),
        _ => "memory is written in bytes or with KiB, MiB, GiB, TiB".to_string(),
    }
}

/// A part of the machine, in thousandths of a percent: `12500` is an eighth of it.
///
/// Written `75%` or `12.5%`. Range: above 0 and up to all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percent(u32);

impl Percent {
    const WHOLE: u32 = 100_000;

    /// Computes this part of `whole`, rounded to the nearest.
    pub fn of(self, whole: u64) -> u64 {
        let (part, all) = (u128::from(self.0), u128::from(Percent::WHOLE));
        ((u128::from(whole) * part + all / 2) / all) as u64
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 1000.0)
    }
}

impl FromStr for Percent {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const RANGE: &str = "a percentage of the machine is above 0% and at most 100%";
        const FORM: &str = "write a percentage of the machine as `75%` or `12.5%`";
        let Some(digits) = text.strip_suffix('%') else {
            return Err(QuantityError::new(text, FORM));
        };
        match decimal(digits, 1000).map(u32::try_from) {
            Some(Ok(part @ 1..=Percent::WHOLE)) => Ok(Percent(part)),
            Some(Ok(0)) => Err(QuantityError::new(text, format!("{RANGE}: leave the key out"))),
            Some(_) => Err(QuantityError::new(text, RANGE)),
            None => {
                let number = digits.trim();
                let help = match number.parse::<f64>() {
                    Ok(negative) if negative < 0.0 => RANGE.to_string(),
                    Ok(_) if number != digits => format!("write `{number}%`, without a space"),
                    Ok(_) if number.contains('.') => {
                        "a percentage has at most three decimals".to_string()
                    }
                    _ => FORM.to_string(),
                };
                Err(QuantityError::new(text, help))
            }
        }
    }
}

/// A positive weight: a tenant with weight 2 is entitled to twice as much as its sibling with weight 1.
///
/// Only ratios among siblings matter. Range: `0.001 ..= 1_000_000`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Weight(f64);

impl Weight {
    /// The smallest weight.
    pub const MIN: f64 = 0.001;
    /// The largest weight.
    pub const MAX: f64 = 1_000_000.0;

    /// Creates a weight, if `value` is within the range.
    ///
    /// # Errors
    /// Zero (a tenant that gets nothing is a limit, not a weight), negative, not a number, or out of range.
    pub fn try_new(value: f64) -> Result<Self, QuantityError> {
        if value == 0.0 {
            return Err(QuantityError::new(
                "0",
                "a weight of 0 would starve the tenant: use a limit, or leave the tenant out",
            ));
        }
        if !(Self::MIN..=Self::MAX).contains(&value) {
            return Err(QuantityError::new(
                value.to_string(),
                "a weight is a number from 0.001 to 1000000",
            ));
        }
        Ok(Weight(value))
    }

    /// The weight as a number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Default for Weight {
    /// 100, the kernel's default for `cpu.weight`.
    fn default() -> Self {
        Weight(100.0)
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A bound that may be absent, as in `memory.max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Limit<T> {
    /// A finite bound.
    Finite(T),
    /// No bound: the kernel's word is `max`.
    Max,
}

impl<T: fmt::Display> fmt::Display for Limit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Limit::Finite(value) => value.fmt(f),
            Limit::Max => f.write_str("max"),
        }
    }
}

impl<T: FromStr> FromStr for Limit<T> {
    type Err = T::Err;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "max" => Ok(Limit::Max),
            _ => text.parse().map(Limit::Finite),
        }
    }
}

/// Parse error of a quantity, with the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid quantity: {help}")]
pub struct QuantityError {
    /// The invalid text.
    pub text: String,
    /// The correction.
    pub help: String,
}

impl QuantityError {
    fn new(text: impl Into<String>, help: impl Into<String>) -> Self {
        QuantityError { text: text.into(), help: help.into() }
    }
}

/// `digits × unit` as an exact integer; `None` unless `digits` is a plain decimal whose product is whole.
///
/// Exact on purpose: through `f64`, `0.1` × 1000 would be luck and 2^60 + 1 bytes would be lost.
fn decimal(digits: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let dangling = digits.contains('.') && (whole.is_empty() || fraction.is_empty());
    if whole.is_empty() || dangling || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    if fraction.len() > 18 {
        return None;
    }
    let scale = 10_u128.pow(fraction.len() as u32);
    let joined: u128 = format!("{whole}{fraction}").parse().ok()?;
    let product = joined.checked_mul(u128::from(unit))?;
    if !product.is_multiple_of(scale) {
        return None;
    }
    u64::try_from(product / scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_parse_and_print() {
        for (text, milli) in [("2", 2000), ("1.5", 1500), ("500m", 500), ("0", 0), ("0.001", 1)] {
            assert_eq!(text.parse(), Ok(MilliCpus(milli)), "{text}");
        }
        for text in ["", "m", ".5", "1.", "-1", "1e3", "1.0005", "2 m", "1000001", "NaN", "1,5"] {
            assert!(text.parse::<MilliCpus>().is_err(), "{text}");
        }
        for (text, hint) in [("50%", "500m"), ("12.5%", "125m"), ("2 cores", "say `2`")] {
            let error = text.parse::<MilliCpus>().unwrap_err();
            assert!(error.help.contains(hint), "{text}: {error}");
        }
        assert_eq!(MilliCpus(2000).to_string(), "2");
        assert_eq!(MilliCpus(1500).to_string(), "1500m");
    }

    #[test]
    fn memory_parses_exactly() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("8GiB", 8 << 30),
            ("1.5GiB", 3 << 29),
            ("2TiB", 2 << 40),
            ("512 MiB", 512 << 20),
            ("512Mi", 512 << 20),
            ("1.5 Gi", 3 << 29),
            ("9223372036854775807", i64::MAX as u64),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
        for text in ["", "GiB", "-1", "1e9", "8EiB", "9223372036854775808", "0.3", "8gib"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn decimal_suffixes_are_refused_with_the_binary_one_named() {
        for (text, hint) in
            [("16G", "16GiB"), ("16GB", "16GiB"), ("5 k", "5KiB"), ("1m", "1MiB"), ("8gib", "8GiB")]
        {
            let error = text.parse::<Bytes>().unwrap_err();
            assert!(error.help.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn a_printed_quantity_reads_back() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, (1 << 30) + 1, 3 << 29] {
            assert_eq!(Bytes(bytes).to_string().parse(), Ok(Bytes(bytes)));
        }
        assert_eq!(Bytes(3 << 29).rounded(), "1.5GiB");
        assert_eq!(Bytes::mib(512).rounded(), "512MiB");
        assert_eq!("max".parse(), Ok(Limit::<Bytes>::Max));
        assert_eq!(Limit::Finite(Bytes::gib(1)).to_string(), "1GiB");
    }

    #[test]
    fn percentages_are_parts_of_the_machine() {
        for (text, of_8000) in [("75%", 6000), ("12.5%", 1000), ("100%", 8000), ("0.01%", 1)] {
            let percent: Percent = text.parse().unwrap();
            assert_eq!((percent.of(8000), percent.to_string().as_str()), (of_8000, text));
        }
        assert_eq!("100%".parse::<Percent>().unwrap().of(u64::MAX), u64::MAX);
        for (text, hint) in [
            ("0%", "leave the key out"),
            ("101%", "at most 100%"),
            ("99999999999%", "at most 100%"),
            ("-5%", "at most 100%"),
            ("50 %", "`50%`, without a space"),
            (" 50%", "`50%`, without a space"),
            ("12.3456%", "three decimals"),
            ("50", "`75%` or `12.5%`"),
            ("%", "`75%` or `12.5%`"),
            ("half%", "`75%` or `12.5%`"),
            ("1e1%", "`75%` or `12.5%`"),
        ] {
            let error = text.parse::<Percent>().unwrap_err();
            assert!(error.help.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn weights_are_positive_and_bounded() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 0.0001, 1e7] {
            assert!(Weight::try_new(value).is_err(), "{value}");
        }
        assert_eq!(Weight::try_new(300.0).map(Weight::get), Ok(300.0));
    }
}
