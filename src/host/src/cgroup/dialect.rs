//! Spelling of each knob in the files of each hierarchy.
//!
//! The names of the files are in [`crate::knobs`]. The texts follow from the unit of the values:
//!
//! | unit | cgroup v2 | cgroup v1 |
//! |---|---|---|
//! | weight | 1 ..= 10,000 | shares = weight × 1024 / 100, 2 ..= 262,144 |
//! | weight on disks | `default` and a weight, before lines of single disks | a weight |
//! | CPUs | quota and period in µs, or `max` and a period | a period, then a quota, which may be -1 |
//! | memory | bytes or `max` | bytes or -1 |
//! | count | a number or `max` | a number or `max` |
//! | set of CPUs | a list | a list |
//! | limits of disks | a line for each disk, with the limits of all knobs | a line for each disk ([`super::disk_limits`]) |
//!
//! Other modules ask a [`Layout`], which knows its hierarchy. Units have files in cgroup v2 only
//! ([`spell_unified`], [`read_unified`]).
//!
//! The map from weight to shares is systemd's (`cgroup_weight_to_shares`, `src/core/cgroup.c`). Unlike the
//! quadratic one of some container runtimes it keeps ratios among siblings, which is all that the agent
//! promises. The soft limit of v1 is no protection but an order of reclaim: under pressure, cgroups above their
//! soft limit are reclaimed first. v1 has nothing closer to protection.

use super::mount::{Dialect, Layout};
use super::parse::{self, Malformed};
use crate::knobs::{LEGACY_PERIOD, row_of};
use tenantd_control::words::knob::{Knob, Unit, Value};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_core::units::Limit;

/// The CFS period that the agent sets with a quota: the kernel's default.
const PERIOD_USEC: u64 = 100_000;

/// The v1 text for "no quota".
pub const LEGACY_NO_QUOTA: &str = "-1";

/// The smallest quota that the kernel takes (`min_cfs_quota_period`, `kernel/sched/core.c`).
const QUOTA_MIN_USEC: u64 = 1_000;

/// v1 rounds "no limit" down to whole pages, so values from here on mean it.
const V1_MEMORY_MAX_BYTES: u64 = i64::MAX as u64 - 0xffff;

/// The largest weight of bfq; that of io.cost is 10,000.
const DISK_WEIGHT_MAX: u64 = 1000;

/// Memory files count whole pages and round down.
const PAGE_BYTES: u64 = 4096;

/// File of a cgroup v2 with the CPUs on which it may effectively run.
pub const EFFECTIVE_CPUS: &str = "cpuset.cpus.effective";

/// The same file in v1.
pub const LEGACY_EFFECTIVE_CPUS: &str = "cpuset.effective_cpus";

/// One file with its desired text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spelling {
    /// Name of the file within the cgroup.
    pub file: &'static str,
    /// Text without a newline.
    pub text: String,
}

impl Layout {
    /// True for cgroup v2: one tree, in which controllers are enabled from the top.
    pub fn is_unified(&self) -> bool {
        self.dialect == Dialect::Unified
    }

    /// True if this hierarchy has a file for `knob`.
    pub fn has_file(&self, knob: Knob) -> bool {
        self.is_unified() || !row_of(knob).legacy.is_empty()
    }

    /// File with the value of `knob`.
    pub fn file(&self, knob: Knob) -> &'static str {
        self.dialect.file(knob)
    }

    /// All files that `knob` is written to.
    pub fn files(&self, knob: Knob) -> &'static [&'static str] {
        self.dialect.files(knob)
    }

    /// Index of the tree with the files of `knob`, if any.
    pub fn tree_of(&self, knob: Knob) -> Option<usize> {
        self.tree(row_of(knob).facet)
    }

    /// Writes that set `knob` to `value`, in order; the value is clamped to the file's range.
    pub fn spell(&self, knob: Knob, value: &Value) -> Vec<Spelling> {
        self.dialect.spell(knob, value)
    }

    /// Function that returns a value as its file spells it.
    pub fn text_of(&self) -> fn(Knob, &Value) -> String {
        match self.dialect {
            Dialect::Unified => |knob, value| Dialect::Unified.text(knob, value),
            Dialect::Legacy => |knob, value| Dialect::Legacy.text(knob, value),
        }
    }

    /// Parses the text of the file of `knob`; a v1 quota has the agent's own period.
    pub fn read(&self, knob: Knob, text: &[u8]) -> Result<Value, Malformed> {
        self.dialect.read(knob, text)
    }

    /// File in the cpu tree that lists the threads of a cgroup.
    pub fn thread_list(&self) -> &'static str {
        self.dialect.thread_list()
    }

    /// File with the CPUs on which a cgroup may effectively run.
    pub fn effective_cpus(&self) -> &'static str {
        if self.is_unified() { EFFECTIVE_CPUS } else { LEGACY_EFFECTIVE_CPUS }
    }
}

/// Writes that set `knob` of a unit, or of another cgroup of v2, to `value`.
pub fn spell_unified(knob: Knob, value: &Value) -> Vec<Spelling> {
    Dialect::Unified.spell(knob, value)
}

/// Parses the text of the file of `knob` of a unit.
pub fn read_unified(knob: Knob, text: &[u8]) -> Result<Value, Malformed> {
    Dialect::Unified.read(knob, text)
}

impl Dialect {
    /// File in the cpu tree that lists the threads of a cgroup.
    pub(super) fn thread_list(self) -> &'static str {
        match self {
            Dialect::Unified => "cgroup.threads",
            Dialect::Legacy => "tasks",
        }
    }

    /// All files that `knob` is written to; the last one has the value. A plan for v1 has no value of a knob
    /// without a file there, which has the name of v2 in messages.
    fn files(self, knob: Knob) -> &'static [&'static str] {
        let row = row_of(knob);
        match (self, row.legacy) {
            (Dialect::Unified, _) | (_, []) => std::slice::from_ref(&row.unified),
            (Dialect::Legacy, files) => files,
        }
    }

    /// File with the value of `knob`.
    pub(super) fn file(self, knob: Knob) -> &'static str {
        self.files(knob).last().copied().unwrap_or_default()
    }

    fn text(self, knob: Knob, value: &Value) -> String {
        let texts: Vec<String> = self.spell(knob, value).into_iter().map(|it| it.text).collect();
        match (texts.last(), value) {
            (Some(_), Value::Disks(_)) => texts.join(", "),
            (Some(last), _) => last.clone(),
            (None, _) => value.to_string(),
        }
    }

    /// Writes that set `knob` to `value`, in order.
    ///
    /// The value is clamped to the file's range, never refused: a weight below the kernel's smallest becomes
    /// the smallest.
    pub(super) fn spell(self, knob: Knob, value: &Value) -> Vec<Spelling> {
        let file = self.file(knob);
        let text = match (self, value) {
            (_, Value::Weight(w)) if knob.unit() == Unit::DiskWeight => {
                let weight = (w.round() as u64).clamp(1, DISK_WEIGHT_MAX);
                if self == Dialect::Unified {
                    format!("default {weight}")
                } else {
                    weight.to_string()
                }
            }
            (Dialect::Unified, Value::Weight(w)) => (w.round() as u64).clamp(1, 10_000).to_string(),
            (Dialect::Legacy, Value::Weight(w)) => {
                ((w * 1024.0 / 100.0).round() as u64).clamp(2, 262_144).to_string()
            }
            (Dialect::Unified, Value::Amount(CPU, limit)) => match limit {
                Limit::Finite(milli) => format!("{} {PERIOD_USEC}", quota_usec(*milli)),
                Limit::Max => format!("max {PERIOD_USEC}"),
            },
            (Dialect::Legacy, Value::Amount(CPU, limit)) => {
                let quota = match limit {
                    Limit::Finite(milli) => quota_usec(*milli).to_string(),
                    Limit::Max => LEGACY_NO_QUOTA.to_string(),
                };
                let period = Spelling { file: LEGACY_PERIOD, text: PERIOD_USEC.to_string() };
                return vec![period, Spelling { file, text: quota }];
            }
            (_, Value::Amount(MEMORY, Limit::Finite(bytes))) => {
                (bytes / PAGE_BYTES * PAGE_BYTES).to_string()
            }
            (Dialect::Legacy, Value::Amount(MEMORY, Limit::Max)) => "-1".to_string(),
            (_, Value::Amount(_, limit) | Value::Count(limit)) => limit.to_string(),
            (_, Value::CpuList(cpus)) => cpus.to_string(),
            (_, Value::Disks(limits)) => return self.spell_limits(file, knob.disk_rate(), limits),
        };
        vec![Spelling { file, text }]
    }

    /// Parses the text of [`Dialect::file`].
    pub(super) fn read(self, knob: Knob, text: &[u8]) -> Result<Value, Malformed> {
        match (self, knob.unit()) {
            (Dialect::Unified, Unit::Weight) => parse::single(text, "a weight").map(Value::Weight),
            (Dialect::Legacy, Unit::Weight) => {
                let shares: f64 = parse::single(text, "shares")?;
                Ok(Value::Weight(shares * 100.0 / 1024.0))
            }
            (_, Unit::DiskWeight) => {
                let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
                let weight = first.strip_prefix(b"default ").unwrap_or(first);
                parse::single(weight, "a weight").map(Value::Weight)
            }
            (Dialect::Unified, Unit::Amount(CPU)) => cpu_max(text),
            (Dialect::Legacy, Unit::Amount(CPU)) => {
                let quota: i64 = parse::single(text, "a quota or -1")?;
                Ok(match u64::try_from(quota) {
                    Ok(quota) => cpus_of(quota, PERIOD_USEC),
                    Err(_) => Value::Amount(CPU, Limit::Max),
                })
            }
            (_, Unit::Amount(MEMORY)) => {
                let limit = match parse::limit(text)? {
                    Limit::Finite(bytes) if bytes >= V1_MEMORY_MAX_BYTES => Limit::Max,
                    limit => limit,
                };
                Ok(Value::Amount(MEMORY, limit))
            }
            (_, Unit::Count(_)) => parse::limit(text).map(Value::Count),
            (_, Unit::PerDisk(rate)) => self.read_limits(rate, text).map(Value::Disks),
            (_, Unit::Cpus) => {
                let list: String = parse::single(text, "a list of CPUs")?;
                let malformed =
                    || Malformed { line: 1, text: list.clone(), expected: "a list of CPUs" };
                list.parse().map(Value::CpuList).map_err(|_| malformed())
            }
        }
    }

    /// Converts a v1 quota with this period; [`Dialect::read`] assumes the agent's own period.
    pub(super) fn with_period(self, value: Value, period: &[u8]) -> Result<Value, Malformed> {
        let period_usec: u64 = parse::single(period, "a period")?;
        Ok(match value {
            Value::Amount(CPU, Limit::Finite(milli)) => {
                cpus_of(milli * (PERIOD_USEC / 1000), period_usec)
            }
            other => other,
        })
    }
}

fn quota_usec(milli_cpus: u64) -> u64 {
    (milli_cpus * (PERIOD_USEC / 1000)).max(QUOTA_MIN_USEC)
}

fn cpus_of(quota_usec: u64, period_usec: u64) -> Value {
    let milli_cpus = quota_usec.saturating_mul(1000) / period_usec.max(1);
    Value::Amount(CPU, Limit::Finite(milli_cpus))
}

fn cpu_max(text: &[u8]) -> Result<Value, Malformed> {
    let line: String = parse::single(text, "a quota and a period")?;
    let malformed = || Malformed { line: 1, text: line.clone(), expected: "a quota and a period" };
    let (quota, period) = line.split_once(' ').ok_or_else(malformed)?;
    let period: u64 = period.parse().map_err(|_| malformed())?;
    let quota: Limit<u64> = quota.parse().map_err(|_| malformed())?;
    Ok(match quota {
        Limit::Finite(quota) => cpus_of(quota, period),
        Limit::Max => Value::Amount(CPU, Limit::Max),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::words::knob::{Wanted, WeightBand};
    use tenantd_core::node::NodeId;

    const BOTH: [Dialect; 2] = [Dialect::Unified, Dialect::Legacy];

    fn texts(dialect: Dialect, knob: Knob, value: Value) -> Vec<String> {
        dialect.spell(knob, &value).into_iter().map(|s| s.text).collect()
    }

    #[test]
    fn weights_keep_their_ratio_on_both() {
        let spelled = |dialect| {
            [43.0, 86.0, 171.0, 0.2, 1e9]
                .map(|w| texts(dialect, Knob::CpuWeight, Value::Weight(w)).concat())
        };
        assert_eq!(spelled(Dialect::Unified), ["43", "86", "171", "1", "10000"]);
        assert_eq!(spelled(Dialect::Legacy), ["440", "881", "1751", "2", "262144"]);
    }

    #[test]
    fn limits_are_spelled_as_the_kernel_reads_them() {
        let cpus = Value::Amount(CPU, Limit::Finite(1500));
        assert_eq!(texts(Dialect::Unified, Knob::CpuMax, cpus.clone()), ["150000 100000"]);
        assert_eq!(texts(Dialect::Legacy, Knob::CpuMax, cpus), ["100000", "150000"]);
        let max = Value::Amount(MEMORY, Limit::Max);
        assert_eq!(texts(Dialect::Unified, Knob::MemoryMax, max.clone()), ["max"]);
        assert_eq!(texts(Dialect::Legacy, Knob::MemoryMax, max), ["-1"]);
        let odd = Value::Amount(MEMORY, Limit::Finite(8191));
        assert_eq!(texts(Dialect::Unified, Knob::MemoryLow, odd), ["4096"]);
        let tiny = Value::Amount(CPU, Limit::Finite(1));
        assert_eq!(texts(Dialect::Unified, Knob::CpuMax, tiny), ["1000 100000"]);
    }

    #[test]
    fn what_is_spelled_reads_back() {
        let values = [
            (Knob::CpuWeight, Value::Weight(300.0)),
            (Knob::CpuMax, Value::Amount(CPU, Limit::Finite(2500))),
            (Knob::CpuMax, Value::Amount(CPU, Limit::Max)),
            (Knob::MemoryLow, Value::Amount(MEMORY, Limit::Finite(64 << 20))),
            (Knob::MemoryMax, Value::Amount(MEMORY, Limit::Finite(2 << 30))),
            (Knob::PidsMax, Value::Count(Limit::Finite(4096))),
            (Knob::PidsMax, Value::Count(Limit::Max)),
            (Knob::Cpus, Value::CpuList([0, 1, 2, 8].into_iter().collect())),
        ];
        for dialect in BOTH {
            for (knob, value) in values.clone() {
                let text = texts(dialect, knob, value.clone()).pop().unwrap();
                assert_eq!(dialect.read(knob, text.as_bytes()), Ok(value), "{dialect:?} {knob:?}");
            }
        }
    }

    /// A written value is never written again: the plan compares with the value after the file's rounding.
    #[test]
    fn what_a_file_holds_of_a_written_value_is_settled() {
        let weights = (1..=10_000).map(f64::from).chain((1..2000).map(|n| f64::from(n) / 7.0));
        let weights = weights.chain([0.01, 0.5, 9_999.6]).map(Value::Weight);
        let quotas = (0..3000).map(|milli| Value::Amount(CPU, Limit::Finite(milli)));
        let bytes = (0..3000).map(|n: u64| Value::Amount(MEMORY, Limit::Finite(n * n * 1777)));
        let counts = (1..100).map(|n| Value::Count(Limit::Finite(n)));
        let of = |knob, values: Vec<Value>| values.into_iter().map(move |value| (knob, value));
        let all: Vec<(Knob, Value)> = of(Knob::CpuWeight, weights.collect())
            .chain(of(Knob::CpuMax, quotas.collect()))
            .chain(of(Knob::MemoryMax, bytes.collect()))
            .chain(of(Knob::PidsMax, counts.collect()))
            .collect();
        for dialect in BOTH {
            for (knob, value) in &all {
                let text = texts(dialect, *knob, value.clone()).pop().unwrap();
                let held = [(*knob, dialect.read(*knob, text.as_bytes()).unwrap())];
                for band in [WeightBand::Moving, WeightBand::Steady, WeightBand::Exact] {
                    let desired = (*knob, value.clone(), String::new());
                    let wanted = Wanted::new(NodeId::default(), desired, &held, band);
                    assert!(wanted.is_settled, "{dialect:?} {band:?}: {value:?} as {text}");
                }
            }
        }
    }

    #[test]
    fn a_legacy_quota_counts_with_its_period() {
        let quota = Dialect::Legacy.read(Knob::CpuMax, b"50000\n").unwrap();
        let cpus = |period: &[u8]| Dialect::Legacy.with_period(quota.clone(), period).unwrap();
        assert_eq!(cpus(b"20000\n"), Value::Amount(CPU, Limit::Finite(2500)));
        assert_eq!(cpus(b"100000\n"), Value::Amount(CPU, Limit::Finite(500)));
        let none = Value::Amount(CPU, Limit::Max);
        assert_eq!(Dialect::Legacy.with_period(none.clone(), b"20000\n"), Ok(none));
        assert!(Dialect::Legacy.with_period(quota, b"often\n").is_err());
    }

    #[test]
    fn what_v1_prints_for_no_limit_is_max() {
        let text = b"9223372036854771712\n";
        let max = Ok(Value::Amount(MEMORY, Limit::Max));
        assert_eq!(Dialect::Legacy.read(Knob::MemoryMax, text), max);
        assert_eq!(Dialect::Legacy.read(Knob::CpuMax, b"-1\n"), Ok(Value::Amount(CPU, Limit::Max)));
        assert!(Dialect::Unified.read(Knob::CpuMax, b"100000\n").is_err());
    }
}
