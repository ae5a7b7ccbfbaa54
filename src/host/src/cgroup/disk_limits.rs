//! Limits of requests to disks in the files of a cgroup, which have a line for each limited disk.
//!
//! | hierarchy | file | line |
//! |---|---|---|
//! | cgroup v2 | `io.max` | `8:0 rbps=1048576 wbps=max riops=max wiops=120` |
//! | cgroup v1 | `blkio.throttle.read_bps_device` and three others | `8:0 1048576` |
//!
//! The kernel takes one line at a time; keys that are left out keep their value, and a disk without a limit has no line. The
//! journal keeps what it held as one entry for each disk and rate, under a name with a slash, which no file has: other
//! programs may limit other disks and other rates in the same file, and a reload may remove one limit of four.

use std::borrow::Cow;

use super::dialect::Spelling;
use super::mount::{Dialect, Layout};
use super::parse::{Malformed, device, number};
use crate::knobs::row_of;
use tenantd_control::measure::disk::Device;
use tenantd_control::words::knob::Knob;
use tenantd_core::disk_rate::DiskRate;
use tenantd_core::kernel_text::text_of;

/// A disk with its limit.
type DiskLimit = (Device, u64);

/// Key of a rate in `io.max`.
fn key(rate: DiskRate) -> &'static str {
    ["rbps", "wbps", "riops", "wiops"][rate as usize]
}

impl Dialect {
    /// Writes of limits, a line each.
    pub(super) fn spell_limits(
        self,
        file: &'static str,
        rate: Option<DiskRate>,
        limits: &[DiskLimit],
    ) -> Vec<Spelling> {
        let before = rate.map_or(String::new(), |rate| match self {
            Dialect::Unified => format!("{}=", key(rate)),
            Dialect::Legacy => String::new(),
        });
        let line = |(device, limit): &DiskLimit| format!("{device} {before}{limit}");
        limits.iter().map(|limit| Spelling { file, text: line(limit) }).collect()
    }

    /// Parses the limits of one rate, in the order of the disks.
    pub(super) fn read_limits(
        self,
        rate: DiskRate,
        text: &[u8],
    ) -> Result<Vec<DiskLimit>, Malformed> {
        let mut limits = Vec::new();
        let lines = text.split(|byte| *byte == b'\n').enumerate();
        for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let malformed = || Malformed {
                line: at + 1,
                text: text_of(line).to_string(),
                expected: "a disk with its limits",
            };
            let (device, limit) = self.parse(rate, line).ok_or_else(malformed)?;
            limits.extend(limit.map(|limit| (device, limit)));
        }
        limits.sort_unstable();
        Ok(limits)
    }

    /// Disk of a line, and its limit of this rate if it has one.
    fn parse(self, rate: DiskRate, line: &[u8]) -> Option<(Device, Option<u64>)> {
        let mut words = line.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        let device = device(words.next()?)?;
        let value = match self {
            Dialect::Legacy => words.next()?,
            Dialect::Unified => words
                .find_map(|word| word.strip_prefix(key(rate).as_bytes())?.strip_prefix(b"="))?,
        };
        let limit = if value == b"max" { None } else { Some(number(value)?) };
        Some((device, limit))
    }
}

impl Layout {
    /// Name under which the journal has the value of `knob`: that of its file, which some knobs share.
    pub fn journal_name(&self, knob: Knob) -> Cow<'static, str> {
        self.name_of(knob, self.file(knob))
    }

    /// The same for each file that `knob` is written to.
    pub fn journal_names(&self, knob: Knob) -> impl Iterator<Item = Cow<'static, str>> {
        self.files(knob).iter().map(move |file| self.name_of(knob, file))
    }

    fn name_of(&self, knob: Knob, file: &'static str) -> Cow<'static, str> {
        match knob.disk_rate() {
            Some(rate) if self.is_unified() => format!("{file}/{}", key(rate)).into(),
            _ => file.into(),
        }
    }
}

/// The part of a name in the journal that all disks share: `io.max/rbps` of `io.max/rbps/8:0`.
pub fn without_disk(name: &str) -> &str {
    match name.rsplit_once('/') {
        Some((before, last)) if device(last.as_bytes()).is_some() => before,
        _ => name,
    }
}

/// Line of a file as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Name of the line, as in `io.max/rbps/8:0`.
    pub name: String,
    /// Text that sets its present value.
    pub held: String,
}

/// The line of `contents` of `file` that `wanted` changes; `None` if the file has no limits of disks.
pub(crate) fn line(file: &str, wanted: &str, contents: &[u8]) -> Option<Line> {
    let has_limits = |knob: &Knob| knob.disk_rate().is_some() && row_of(*knob).is_in(file);
    Knob::ALL.iter().find(|knob| has_limits(knob))?;
    let (disk, rest) = wanted.split_once(' ')?;
    let words = |line| <[u8]>::split(line, |byte| *byte == b' ').filter(|word| !word.is_empty());
    let mut lines = contents.split(|byte| *byte == b'\n');
    let found = lines.find(|line| words(line).next() == Some(disk.as_bytes())).unwrap_or_default();
    let mut values = words(found).skip(1).map(text_of);
    let (name, value) = match rest.split_once('=') {
        Some((key, _)) => {
            let prefix = format!("{key}=");
            let value = values.find(|word| word.starts_with(&prefix));
            (format!("{file}/{key}/{disk}"), value.unwrap_or_else(|| format!("{prefix}max")))
        }
        None => (format!("{file}/{disk}"), values.next().unwrap_or_else(|| "0".to_string())),
    };
    Some(Line { name, held: format!("{disk} {value}") })
}

/// Name of the file with the line of this name in the journal; `None` if the name is that of a whole file.
pub fn file_of_line(name: &str) -> Option<&str> {
    name.split_once('/').map(|(file, _)| file)
}

/// True if `contents` of `file` have the line `held` of the journal.
pub fn holds_line(file: &str, held: &str, contents: &[u8]) -> bool {
    line(file, held, contents).is_some_and(|now| now.held == held)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::words::knob::Value;

    const SDA: Device = Device { major: 8, minor: 0 };
    const SDB: Device = Device { major: 8, minor: 16 };
    const TEXT: &[u8] =
        b"8:16 rbps=max wbps=max riops=7 wiops=max\n8:0 rbps=5 wbps=max riops=max wiops=9\n";

    #[test]
    fn limits_of_one_rate_are_read() {
        let read = |rate| Dialect::Unified.read_limits(rate, TEXT).unwrap();
        assert_eq!(read(DiskRate::Read), [(SDA, 5)]);
        assert_eq!(read(DiskRate::Write), []);
        assert_eq!(read(DiskRate::ReadIops), [(SDB, 7)]);
        assert_eq!(read(DiskRate::WriteIops), [(SDA, 9)]);
        let legacy = |text| Dialect::Legacy.read_limits(DiskRate::Write, text);
        assert_eq!(legacy(b"8:16 7\n8:0 5\n"), Ok(vec![(SDA, 5), (SDB, 7)]));
        assert_eq!(legacy(b""), Ok(vec![]));
        assert!(legacy(b"8:0\n").is_err() && legacy(b"8:0 x").is_err() && legacy(b"8 5").is_err());
        assert!(Dialect::Unified.read_limits(DiskRate::Read, b"8:0 wbps=5\n").is_err());
    }

    #[test]
    fn a_limit_is_read_as_it_was_written() {
        let knobs = Knob::ALL.into_iter().filter(|knob| knob.disk_rate().is_some());
        for (knob, dialect) in
            knobs.flat_map(|knob| [(knob, Dialect::Unified), (knob, Dialect::Legacy)])
        {
            let value = Value::Disks(vec![(SDA, 65_536), (SDB, 65_536)]);
            let texts: Vec<String> =
                dialect.spell(knob, &value).into_iter().map(|it| it.text).collect();
            let mut text = texts.join("\n");
            if dialect == Dialect::Unified {
                let rest = ["rbps=max", "wbps=max", "riops=max", "wiops=max"].join(" ");
                text = texts.iter().map(|line| format!("{line} {rest}\n")).collect();
            }
            assert_eq!(dialect.read(knob, text.as_bytes()), Ok(value), "{knob:?} {dialect:?}");
        }
    }

    #[test]
    fn the_journal_keeps_each_disk_and_rate_apart() {
        let of = |file, text: &str| {
            let line = line(file, text, TEXT).unwrap();
            (line.name, line.held)
        };
        let pair = |name: &str, held: &str| (name.to_string(), held.to_string());
        assert_eq!(of("io.max", "8:0 rbps=77"), pair("io.max/rbps/8:0", "8:0 rbps=5"));
        assert_eq!(of("io.max", "8:32 wbps=77"), pair("io.max/wbps/8:32", "8:32 wbps=max"));
        let file = "blkio.throttle.write_bps_device";
        let legacy = line(file, "8:0 77", b"8:0 5\n").unwrap();
        assert_eq!((&*legacy.name, &*legacy.held), (&*format!("{file}/8:0"), "8:0 5"));
        assert_eq!(line(file, "8:0 77", b"").unwrap().held, "8:0 0");
        assert_eq!(line("io.weight", "default 5", b"default 100\n"), None);
        assert_eq!(without_disk("io.max/rbps/8:0"), "io.max/rbps");
        assert_eq!(without_disk(&legacy.name), file);
        assert_eq!(without_disk("cpu.weight"), "cpu.weight");
        assert!(
            holds_line("io.max", "8:0 rbps=5", TEXT) && !holds_line("io.max", "8:0 rbps=6", TEXT)
        );
        assert!(holds_line("io.max", "8:32 rbps=max", TEXT));
        assert_eq!(
            (file_of_line("io.max/rbps/8:0"), file_of_line("io.max")),
            (Some("io.max"), None)
        );
    }
}
