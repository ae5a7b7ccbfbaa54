//! Parsers that accept the same texts as the kernel.
//!
//! Each function follows one parser of the kernel, including its leniency: a C prefix chooses the base, one
//! trailing newline is accepted, `8k` is a memory size and `cpu.max` ignores text after two numbers. The
//! agent's own parsers are separate, so that a mistake in one does not hide the same mistake in the other.

use std::collections::BTreeSet;

use nix::errno::Errno;

pub(super) type CpuSet = BTreeSet<u32>;

/// Page size; every memory file rounds down to it.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Largest value of a page counter: `PAGE_COUNTER_MAX` of a 64-bit kernel. Means `max`.
pub(super) const PAGES_MAX: u64 = i64::MAX as u64 / PAGE_BYTES;

/// `kstrtoull` with base 0. ERANGE beyond 64 bits, EINVAL for anything that is not a number.
pub(super) fn unsigned(text: &str) -> Result<u64, Errno> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, radix) = based(text);
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Err(Errno::EINVAL);
    }
    u64::from_str_radix(digits, radix).map_err(|_| Errno::ERANGE)
}

pub(super) fn signed(text: &str) -> Result<i64, Errno> {
    match text.strip_prefix('-') {
        Some(magnitude) if !magnitude.starts_with(['+', '-']) => {
            let magnitude = i64::try_from(unsigned(magnitude)?).map_err(|_| Errno::ERANGE)?;
            Ok(-magnitude)
        }
        Some(_) => Err(Errno::EINVAL),
        None => i64::try_from(unsigned(text)?).map_err(|_| Errno::ERANGE),
    }
}

/// Digits, and the base by their C prefix.
fn based(text: &str) -> (&str, u32) {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match hex {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    }
}

/// A switch that must be 0 or 1: `kstrtoint` of the stripped text, and ERANGE for any other number.
pub(super) fn switch(text: &str) -> Result<bool, Errno> {
    match signed(text.trim())? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Errno::ERANGE),
    }
}

/// `page_counter_memparse`: whole pages, rounded down, or [`PAGES_MAX`] for the word `unlimited`
/// (`max` in the unified hierarchy, `-1` in the legacy one).
pub(super) fn pages(text: &str, unlimited: &str) -> Result<u64, Errno> {
    let text = text.trim();
    if text == unlimited {
        return Ok(PAGES_MAX);
    }
    let (bytes, rest) = leading_number(text);
    let shift = match rest.chars().next().map(|c| c.to_ascii_uppercase()) {
        Some('K') => 10,
        Some('M') => 20,
        Some('G') => 30,
        Some('T') => 40,
        Some('P') => 50,
        Some('E') => 60,
        _ => 0,
    };
    if rest.len() > usize::from(shift > 0) {
        return Err(Errno::EINVAL);
    }
    let bytes = u128::from(bytes) << shift;
    Ok(u64::try_from(bytes / u128::from(PAGE_BYTES)).unwrap_or(PAGES_MAX).min(PAGES_MAX))
}

/// `simple_strtoull` with base 0: the number at the beginning of a text (0 without one) and the rest.
fn leading_number(text: &str) -> (u64, &str) {
    let (digits, radix) = based(text);
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let number = u64::from_str_radix(&digits[..end], radix).unwrap_or(match end {
        0 => 0,
        _ => u64::MAX,
    });
    (number, &digits[end..])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bandwidth {
    /// CPU time per period; `None` is `max`.
    pub(super) quota_usec: Option<u64>,
    pub(super) period_usec: u64,
}

impl Default for Bandwidth {
    fn default() -> Self {
        Bandwidth { quota_usec: None, period_usec: 100_000 }
    }
}

impl Bandwidth {
    /// Checks the bounds of `tg_set_cfs_bandwidth`: quota and period at least 1 ms, period at most 1 s.
    pub(super) fn checked(self) -> Result<Self, Errno> {
        let period_fits = (1_000..=1_000_000).contains(&self.period_usec);
        let quota_fits = self.quota_usec.is_none_or(|quota| (1_000..1 << 44).contains(&quota));
        if period_fits && quota_fits { Ok(self) } else { Err(Errno::EINVAL) }
    }

    pub(super) fn cpus(self) -> Option<f64> {
        self.quota_usec.map(|quota| quota as f64 / self.period_usec as f64)
    }

    /// `cpu_period_quota_parse`: `QUOTA [PERIOD]`; the period stays if it is not given.
    pub(super) fn parse(self, text: &str) -> Result<Self, Errno> {
        let mut words = text.split_ascii_whitespace();
        let quota = words.next().ok_or(Errno::EINVAL)?;
        let period = words.next().and_then(decimal);
        let quota_usec = match decimal(quota) {
            Some(usec) => Some(usec),
            None if quota == "max" => None,
            None => return Err(Errno::EINVAL),
        };
        Bandwidth { quota_usec, period_usec: period.unwrap_or(self.period_usec) }.checked()
    }
}

/// `sscanf("%llu")`: the decimal number at the beginning of a word.
fn decimal(word: &str) -> Option<u64> {
    let end = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    word[..end].parse().ok()
}

/// `bitmap_parselist`: ranges between commas or blanks. ERANGE from `count` on, EINVAL for anything else.
pub(super) fn cpu_list(text: &str, count: u32) -> Result<CpuSet, Errno> {
    let mut set = CpuSet::new();
    let separators = |c: char| c == ',' || c.is_ascii_whitespace();
    for region in text.split(separators).filter(|region| !region.is_empty()) {
        let (first, last) = region.split_once('-').unwrap_or((region, region));
        let number = |digits: &str| {
            let is_number = digits.bytes().all(|b| b.is_ascii_digit());
            let value = digits.parse::<u32>().ok().filter(|_| is_number);
            value.ok_or(Errno::EINVAL)
        };
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(Errno::EINVAL);
        }
        if last >= count {
            return Err(Errno::ERANGE);
        }
        set.extend(first..=last);
    }
    Ok(set)
}

/// The kernel's `%*pbl`: `0-2,5`, and nothing for the empty set.
pub(super) fn format_list(set: &CpuSet) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in set {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let shown = ranges.iter().map(|&(first, last)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    shown.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_kstrtoull_reads_them() {
        for (text, value) in [("100", 100), ("100\n", 100), ("+7", 7), ("0x10", 16), ("010", 8)] {
            assert_eq!(unsigned(text), Ok(value), "{text:?}");
        }
        for text in ["", "\n", "1 ", " 1", "1\n\n", "-1", "junk", "0x", "1e3", "++1"] {
            assert_eq!(unsigned(text), Err(Errno::EINVAL), "{text:?}");
        }
        assert_eq!(unsigned("18446744073709551616"), Err(Errno::ERANGE));
        assert_eq!(signed("-12"), Ok(-12));
        assert_eq!(signed("--12"), Err(Errno::EINVAL));
        assert_eq!(switch(" 1 \n"), Ok(true));
        assert_eq!(switch("2"), Err(Errno::ERANGE));
    }

    #[test]
    fn memory_rounds_down_to_pages() {
        for (text, value) in [("0", 0), ("4095", 0), ("100000", 24), ("8k", 2), ("1M\n", 256)] {
            assert_eq!(pages(text, "max"), Ok(value), "{text:?}");
        }
        assert_eq!(pages("max\n", "max"), Ok(PAGES_MAX));
        assert_eq!(pages("9223372036854775807", "max"), Ok(PAGES_MAX));
        assert_eq!(pages("\n", "max"), Ok(0), "the kernel reads nothing as 0");
        for text in ["junk", "-1", "1MB", "12q", "1 2", "max "] {
            let expected = if text == "max " { Ok(PAGES_MAX) } else { Err(Errno::EINVAL) };
            assert_eq!(pages(text, "max"), expected, "{text:?}");
        }
        assert_eq!(pages("-1", "-1"), Ok(PAGES_MAX));
    }

    #[test]
    fn bandwidth_keeps_an_unspecified_period() {
        let now = Bandwidth { quota_usec: None, period_usec: 50_000 };
        let both = |quota_usec, period_usec| Ok(Bandwidth { quota_usec, period_usec });
        assert_eq!(now.parse("20000\n"), both(Some(20_000), 50_000));
        assert_eq!(now.parse("max"), both(None, 50_000));
        assert_eq!(now.parse("max 100000"), both(None, 100_000));
        assert_eq!(now.parse("1000 1000000 tail"), both(Some(1000), 1_000_000));
        for text in ["", "\n", "999", "0", "-1", "junk", "1000 999", "1000 1000001", "Max"] {
            assert_eq!(now.parse(text), Err(Errno::EINVAL), "{text:?}");
        }
    }

    #[test]
    fn cpu_lists_read_and_print_as_the_kernel_does() {
        for (text, printed) in
            [("0-3", "0-3"), ("3,1,0", "0-1,3"), (" 0 , 1\n", "0-1"), ("0,,1", "0-1"), ("", "")]
        {
            let set = cpu_list(text, 4).unwrap();
            assert_eq!(format_list(&set), printed, "{text:?}");
        }
        for text in ["4", "0-4", "99"] {
            assert_eq!(cpu_list(text, 4), Err(Errno::ERANGE), "{text:?}");
        }
        for text in ["junk", "1-0", "-", "1-", "0-1-2", "+1"] {
            assert_eq!(cpu_list(text, 4), Err(Errno::EINVAL), "{text:?}");
        }
    }
}
