//! Text formats of cgroup files (kernel document `admin-guide/cgroup-v2.rst`, "Interface Files").
//!
//! Three formats cover all files that the agent reads. Pressure files have a separate parser, because kernels
//! before 5.13 print no `full` line for CPU, which the common parsers require.

use std::str::{FromStr, from_utf8};

use tenantd_control::measure::disk::{Device, DiskCounts, PerDisk};
use tenantd_core::units::Limit;

/// A parse error: the line, and the text expected there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is `{text}`, expected {expected}")]
pub struct Malformed {
    /// Line number from 1.
    pub line: usize,
    /// The line as found, shortened.
    pub text: String,
    /// Description of the expected text.
    pub expected: &'static str,
}

impl Malformed {
    fn new(line: usize, text: &str, expected: &'static str) -> Self {
        Malformed { line, text: text.chars().take(60).collect(), expected }
    }

    fn of(line: usize, text: &[u8], expected: &'static str) -> Self {
        Malformed::new(line, &String::from_utf8_lossy(text), expected)
    }
}

fn utf8(text: &[u8]) -> Result<&str, Malformed> {
    from_utf8(text).map_err(|_| Malformed::new(1, "(binary)", "text"))
}

/// Parses a file with a single value: `memory.current`, `cpu.weight`.
pub fn single<T: FromStr>(text: &[u8], expected: &'static str) -> Result<T, Malformed> {
    let text = utf8(text)?.trim_end();
    text.parse().map_err(|_| Malformed::new(1, text, expected))
}

/// Parses a file with a number or `max`: `memory.max`, `memory.low`.
pub fn limit(text: &[u8]) -> Result<Limit<u64>, Malformed> {
    let text = utf8(text)?.trim_end();
    text.parse().map_err(|_| Malformed::new(1, text, "a number or `max`"))
}

/// Numbers of `keys` in a flat keyed file (`cpu.stat`, `memory.stat`, `memory.events`); `None` for a missing
/// line. Lines of other keys are skipped unparsed: there are dozens of them in every sample.
///
/// Inlined, so that constant keys are compared without loops.
#[inline(always)]
pub fn keyed<const N: usize>(text: &[u8], keys: [&str; N]) -> Result<[Option<u64>; N], Malformed> {
    let mut found = [None; N];
    let mut missing = N;
    for (index, line) in lines(text).enumerate() {
        // The space is in another place in nearly every other line, which saves most comparisons.
        let is_of =
            |key: &&str| line.get(key.len()) == Some(&b' ') && line.starts_with(key.as_bytes());
        let Some(at) = keys.iter().position(is_of) else { continue };
        let malformed = || Malformed::of(index + 1, line, "a key and a number");
        let value = number(&line[keys[at].len() + 1..]).ok_or_else(malformed)?;
        if found[at].replace(value).is_none() {
            missing -= 1;
        }
        if missing == 0 {
            break;
        }
    }
    Ok(found)
}

/// Lines of a text, without their ends; the last one may have none.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let line = &rest[..line_bytes(rest)];
        rest = rest.get(line.len() + 1..).unwrap_or_default();
        Some(line)
    })
}

/// Length of the first line. Lines are short: the call of a search with wider registers costs more than the search.
fn line_bytes(text: &[u8]) -> usize {
    const EACH: u64 = u64::MAX / 255;
    let mut at = 0;
    while let Some(eight) = text[at..].first_chunk() {
        // Newlines become zeroes; the lowest bit set is the top bit of the first zero.
        let apart = u64::from_le_bytes(*eight) ^ (EACH * u64::from(b'\n'));
        let zeroes = apart.wrapping_sub(EACH) & !apart & (EACH << 7);
        if zeroes != 0 {
            return at + zeroes.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + text[at..].iter().take_while(|byte| **byte != b'\n').count()
}

/// Parses a decimal number.
pub(crate) fn number(digits: &[u8]) -> Option<u64> {
    from_utf8(digits).ok()?.parse().ok()
}

/// The `total` counters of a pressure file, in µs (kernel document `accounting/psi.rst`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// Time in which at least one task was stalled.
    pub some_usec: u64,
    /// Time in which all tasks were stalled at once; absent for CPU before Linux 5.13.
    pub full_usec: Option<u64>,
}

/// Parses a pressure file: `cpu.pressure`, `/proc/pressure/memory`.
pub fn pressure(text: &[u8]) -> Result<Pressure, Malformed> {
    let expected = "`some` or `full` with `total=`";
    let (mut some_usec, mut full_usec) = (None, None);
    for (index, line) in lines(text).enumerate() {
        let malformed = || Malformed::of(index + 1, line, expected);
        let at = memchr::memrchr(b'=', line).filter(|at| line[..*at].ends_with(b" total"));
        let total = at.and_then(|at| number(&line[at + 1..])).ok_or_else(malformed)?;
        match line.get(..5) {
            Some(b"some ") => some_usec = Some(total),
            Some(b"full ") => full_usec = Some(total),
            _ => return Err(malformed()),
        }
    }
    let some_usec = some_usec.ok_or_else(|| Malformed::new(1, "", expected))?;
    Ok(Pressure { some_usec, full_usec })
}

/// Meaning of the numbers in a v1 file of requests to disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Bytes.
    Bytes,
    /// Operations.
    Operations,
}

/// Counts in `io.stat` of the devices in `counts`, each with a line `8:0 rbytes=1 wbytes=2 rios=3 wios=4 …`. A device
/// without a line was never used. Other devices and keys are skipped.
pub fn io_stat(
    text: &[u8],
    mut counts: PerDisk<DiskCounts>,
) -> Result<PerDisk<DiskCounts>, Malformed> {
    for (index, line) in lines(text).enumerate() {
        let mut words = line.split(|byte| *byte == b' ');
        let device = words.next().and_then(device);
        let Some(counts) = device.and_then(|device| counts.get_mut(device)) else { continue };
        for word in words {
            let Some(at) = memchr::memchr(b'=', word) else { continue };
            let count = match &word[..at] {
                b"rbytes" => &mut counts.read_bytes,
                b"wbytes" => &mut counts.written_bytes,
                b"rios" => &mut counts.reads,
                b"wios" => &mut counts.writes,
                _ => continue,
            };
            let malformed = || Malformed::of(index + 1, line, "a device with `rbytes=`");
            *count = number(&word[at + 1..]).ok_or_else(malformed)?;
        }
    }
    Ok(counts)
}

/// Counts in a v1 file of the devices in `counts`, in lines such as `8:0 Read 1`. A device without a line is left out:
/// newer kernels (6.18 was tried) count no request to a device before the first limit on it, so that nothing is known.
pub fn blkio(
    text: &[u8],
    mut counts: PerDisk<DiskCounts>,
    of: Counted,
) -> Result<PerDisk<DiskCounts>, Malformed> {
    let mut seen = Vec::new();
    for (index, line) in lines(text).enumerate() {
        let mut words = line.split(|byte| *byte == b' ');
        let Some(device) = words.next().and_then(device) else { continue };
        let Some(counts) = counts.get_mut(device) else { continue };
        let count = match (words.next(), of) {
            (Some(b"Read"), Counted::Bytes) => &mut counts.read_bytes,
            (Some(b"Write"), Counted::Bytes) => &mut counts.written_bytes,
            (Some(b"Read"), Counted::Operations) => &mut counts.reads,
            (Some(b"Write"), Counted::Operations) => &mut counts.writes,
            _ => continue,
        };
        let malformed = || Malformed::of(index + 1, line, "a device, an operation and a number");
        *count = words.next().and_then(number).ok_or_else(malformed)?;
        seen.push(device);
    }
    Ok(counts.filter_map(|device, counts| seen.contains(&device).then_some(counts)))
}

/// Parses `MAJOR:MINOR`.
pub(crate) fn device(word: &[u8]) -> Option<Device> {
    let at = memchr::memchr(b':', word)?;
    let part = |digits: &[u8]| u32::try_from(number(digits)?).ok();
    Some(Device { major: part(&word[..at])?, minor: part(&word[at + 1..])? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_with_and_without_a_full_line() {
        let both = b"some avg10=0.00 avg60=0.00 avg300=0.13 total=1712162\n\
                     full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(pressure(both), Ok(Pressure { some_usec: 1712162, full_usec: Some(7) }));
        let old = b"some avg10=0.00 avg60=0.00 avg300=0.13 total=5\n";
        assert_eq!(pressure(old), Ok(Pressure { some_usec: 5, full_usec: None }));
        for bad in [&b""[..], b"some avg10=0.00\n", b"none total=1\n", b"some total=x\n", b"\xff"] {
            assert!(pressure(bad).is_err(), "{bad:?}");
        }
    }

    fn sda() -> PerDisk<DiskCounts> {
        PerDisk::of([(Device { major: 8, minor: 0 }, DiskCounts::default())])
    }

    const SDA: DiskCounts =
        DiskCounts { read_bytes: 4096, written_bytes: 512, reads: 3, writes: 1 };

    #[test]
    fn requests_to_the_sampled_devices() {
        let counts = |text: &[u8]| io_stat(text, sda()).map(|it| it.iter().next().unwrap().1);
        let text = b"8:16 rbytes=x\n253:0 \n8:0 rbytes=4096 wbytes=512 rios=3 wios=1 dbytes=0 dios=0 cost.usage=9\n\xff:0 a\n8:0x\n";
        assert_eq!(counts(text), Ok(SDA));
        assert_eq!(counts(b""), Ok(DiskCounts::default()), "never used");
        assert_eq!(counts(b"8:0 later rbytes=7 new=\xff\n").unwrap().read_bytes, 7);
        for bad in [&b"8:0 rbytes=\n"[..], b"8:0 rios=-1\n", b"8:0 wbytes=\xff\n"] {
            assert_eq!(counts(bad).unwrap_err().line, 1);
        }
    }

    #[test]
    fn requests_in_two_files_of_v1() {
        let bytes = b"8:0 Read 4096\n8:0 Write 512\n8:0 Sync 4608\n8:16 Read 9\n8:0 Total 4608\nTotal 4617\n";
        let operations = b"8:0 Read 3\n8:0 Write 1\n8:0 Discard 0\nTotal 4\n";
        let counts = blkio(bytes, sda(), Counted::Bytes).unwrap();
        let counts = blkio(operations, counts, Counted::Operations).unwrap();
        assert_eq!(counts.iter().next().unwrap().1, SDA);
        assert!(blkio(b"8:16 Read 9\nTotal 9\n", sda(), Counted::Bytes).unwrap().is_empty());
        for bad in [&b"8:0 Read\n"[..], b"8:0 Write x\n"] {
            assert_eq!(blkio(bad, sda(), Counted::Bytes).unwrap_err().line, 1);
        }
    }

    #[test]
    fn flat_keyed_files() {
        let text = b"usage_usec 12\nuser_usec 7\nnr_periods 0\n";
        assert_eq!(keyed(text, ["nr_periods", "usage_usec"]), Ok([Some(0), Some(12)]));
        // A key that is a prefix or suffix of another one does not match it.
        assert_eq!(keyed(text, ["usage", "usec"]), Ok([None, None]));
        assert_eq!(keyed(b"a 1\na 2\nb 3\n", ["a", "b"]), Ok([Some(2), Some(3)]));
        assert_eq!(keyed(b"", ["a"]), Ok([None]));
        for bad in [&b"a 1\nb -1\n"[..], b"a 1\nb \n", b"a 1\nb x"] {
            let error = keyed(bad, ["a", "b"]).unwrap_err();
            assert_eq!((error.line, error.expected), (2, "a key and a number"));
        }
    }

    #[test]
    fn single_values_and_limits() {
        assert_eq!(single::<u64>(b"4096\n", "a number"), Ok(4096));
        assert!(single::<u64>(b"", "a number").is_err());
        assert!(single::<u64>(b"max\n", "a number").is_err());
        assert_eq!(limit(b"max\n"), Ok(Limit::Max));
        assert_eq!(limit(b"0\n"), Ok(Limit::Finite(0)));
        assert!(limit(b"-1\n").is_err());
    }
}
