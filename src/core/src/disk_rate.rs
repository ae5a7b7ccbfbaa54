//! Rates of requests to a disk that the kernel can limit, and arrays with one value for each.

use std::ops::{Index, IndexMut};

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// A rate of requests to one disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum DiskRate {
    /// Bytes read per second.
    Read,
    /// Bytes written per second.
    Write,
    /// Read operations per second.
    ReadIops,
    /// Write operations per second.
    WriteIops,
}

impl DiskRate {
    /// All rates, in the order of every [`PerRate`] and of the kernel's `io.max`.
    pub const ALL: [DiskRate; 4] =
        [DiskRate::Read, DiskRate::Write, DiskRate::ReadIops, DiskRate::WriteIops];

    /// Name in the policy and on the wire.
    pub fn name(self) -> &'static str {
        ["read", "write", "read_iops", "write_iops"][self as usize]
    }

    /// True for bytes, false for operations.
    pub fn is_bytes(self) -> bool {
        matches!(self, DiskRate::Read | DiskRate::Write)
    }

    /// True for writes.
    pub fn is_write(self) -> bool {
        matches!(self, DiskRate::Write | DiskRate::WriteIops)
    }

    /// A rate in the notation of the policy: `100MiB/s`, `3000`.
    pub fn notation(self, rate: u64) -> String {
        if self.is_bytes() { format!("{}/s", Bytes(rate)) } else { rate.to_string() }
    }

    /// A rate with its unit and direction, for a sentence: `reads 100MiB/s`, `writes 50 operations/s`.
    pub fn shown(self, rate: u64) -> String {
        let what = if self.is_write() { "writes" } else { "reads" };
        let unit = if self.is_bytes() { "" } else { " operations/s" };
        format!("{what} {}{unit}", self.notation(rate))
    }
}

/// One value for each rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PerRate<T>(pub [T; DiskRate::ALL.len()]);

impl<T> PerRate<T> {
    /// Creates the value of each rate with `of`.
    pub fn from_fn(of: impl FnMut(DiskRate) -> T) -> PerRate<T> {
        PerRate(DiskRate::ALL.map(of))
    }
}

impl PerRate<Option<u64>> {
    /// Each limited rate with its limit.
    pub fn limits(&self) -> impl Iterator<Item = (DiskRate, u64)> {
        let each = DiskRate::ALL.into_iter().zip(self.0);
        each.filter_map(|(rate, limit)| Some((rate, limit?)))
    }

    /// All limits for a sentence, as in `reads 100MiB/s, writes 50 operations/s`; empty without one.
    pub fn shown(&self) -> String {
        let each = self.limits().map(|(rate, limit)| rate.shown(limit));
        each.collect::<Vec<_>>().join(", ")
    }
}

impl<T> Index<DiskRate> for PerRate<T> {
    type Output = T;

    fn index(&self, rate: DiskRate) -> &T {
        &self.0[rate as usize]
    }
}

impl<T> IndexMut<DiskRate> for PerRate<T> {
    fn index_mut(&mut self, rate: DiskRate) -> &mut T {
        &mut self.0[rate as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_shown_with_their_units() {
        let limits = PerRate([Some(100 << 20), None, None, Some(50)]);
        assert_eq!(limits.shown(), "reads 100MiB/s, writes 50 operations/s");
        assert_eq!(PerRate::<Option<u64>>::default().shown(), "");
    }
}
