//! Sets of CPUs (and of NUMA nodes) of any width, in the kernel's list format.
//!
//! **Problem.** `cpuset.cpus`, `cpuset.mems`, `/sys/devices/system/cpu/online` and the policy's `cpus:` all
//! use the list format of the kernel's `bitmap_parselist` (`0-3,8-11`). `cpu_set_t` and its wrappers end at
//! 1,024 CPUs; machines do not, and the numbers have holes.
//!
//! **Format.** Regions separated by commas or white space, empty ones allowed: a number, a range `a-b`, a
//! range of which only a part is used, `a-b:used/group` (of every `group` numbers the first `used`), and,
//! where the width is known, the words `all` and `N` (the last number). Printing uses numbers and ranges
//! only, ascending, as `%*pbl` does; the empty set prints as the empty text. Source: `lib/bitmap-str.c`,
//! kernel 6.12. One deviation: text after the first line is refused, where the kernel stops reading.
//!
//! **Properties.** The algebra agrees with `BTreeSet` and a printed set reads back as itself
//! (`tests/dop/cpuset.rs`). Equal sets compare equal: no trailing zero word is kept.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

const WORD_BITS: u32 = u64::BITS;

/// A set of CPU numbers, `0 ..= CpuSet::MAX`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CpuSet {
    /// Bit `c % 64` of word `c / 64`; the last word is never zero.
    words: Vec<u64>,
}

impl CpuSet {
    /// The largest number a set can hold. The kernel supports at most 8,192 CPUs; the bound makes a
    /// mistyped `0-4294967295` an error instead of half a gigabyte.
    pub const MAX: u32 = (1 << 20) - 1;

    /// The empty set.
    pub fn new() -> Self {
        CpuSet::default()
    }

    /// The numbers `0 .. count`, up to [`CpuSet::MAX`].
    pub fn below(count: u32) -> Self {
        let count = count.min(Self::MAX + 1);
        let mut words = vec![u64::MAX; (count / WORD_BITS) as usize];
        if !count.is_multiple_of(WORD_BITS) {
            words.push((1 << (count % WORD_BITS)) - 1);
        }
        CpuSet { words }
    }

    /// Parses the list format where the width is known, so that `N` (the last number) and `all` mean
    /// something: `0-N` of `nr_cpus` = 8 is `0-7`.
    ///
    /// # Errors
    /// A region that is not a number or range, a range that runs backwards, a number at or beyond `nr_cpus`.
    pub fn parse_within(text: &str, nr_cpus: u32) -> Result<Self, ParseCpuSetError> {
        parse(text, Some(nr_cpus.min(Self::MAX + 1)))
    }

    /// Adds a number; returns true if it was new. A number beyond [`CpuSet::MAX`] is never added.
    pub fn insert(&mut self, cpu: u32) -> bool {
        if cpu > Self::MAX {
            return false;
        }
        let index = (cpu / WORD_BITS) as usize;
        if index >= self.words.len() {
            self.words.resize(index + 1, 0);
        }
        let bit = 1 << (cpu % WORD_BITS);
        let new = self.words[index] & bit == 0;
        self.words[index] |= bit;
        new
    }

    /// Removes a number; returns true if it was in the set.
    pub fn remove(&mut self, cpu: u32) -> bool {
        let there = self.contains(cpu);
        if there {
            self.words[(cpu / WORD_BITS) as usize] &= !(1 << (cpu % WORD_BITS));
            self.trim();
        }
        there
    }

    /// True if the number is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        let word = self.words.get((cpu / WORD_BITS) as usize).copied().unwrap_or(0);
        word >> (cpu % WORD_BITS) & 1 == 1
    }

    /// Number of CPUs in the set.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The smallest number.
    pub fn first(&self) -> Option<u32> {
        self.iter().next()
    }

    /// The largest number.
    pub fn last(&self) -> Option<u32> {
        let last = self.words.last()?;
        Some((self.words.len() as u32 - 1) * WORD_BITS + (WORD_BITS - 1 - last.leading_zeros()))
    }

    /// The numbers in ascending order.
    pub fn iter(&self) -> Iter<'_> {
        Iter { words: &self.words, index: 0, rest: self.words.first().copied().unwrap_or(0) }
    }

    /// The numbers in either set.
    #[must_use]
    pub fn union(&self, other: &CpuSet) -> CpuSet {
        self.zip(other, |a, b| a | b)
    }

    /// The numbers in both sets.
    #[must_use]
    pub fn intersection(&self, other: &CpuSet) -> CpuSet {
        self.zip(other, |a, b| a & b)
    }

    /// The numbers in this set and not in the other.
    #[must_use]
    pub fn difference(&self, other: &CpuSet) -> CpuSet {
        self.zip(other, |a, b| a & !b)
    }

    /// True if every number of this set is in the other.
    pub fn is_subset(&self, other: &CpuSet) -> bool {
        let word = |index: usize| other.words.get(index).copied().unwrap_or(0);
        self.words.iter().enumerate().all(|(index, &mine)| mine & !word(index) == 0)
    }

    /// True if no number is in both sets.
    pub fn is_disjoint(&self, other: &CpuSet) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    fn zip(&self, other: &CpuSet, combine: impl Fn(u64, u64) -> u64) -> CpuSet {
        let length = self.words.len().max(other.words.len());
        let word = |set: &CpuSet, index: usize| set.words.get(index).copied().unwrap_or(0);
        let words = (0..length).map(|i| combine(word(self, i), word(other, i))).collect();
        let mut set = CpuSet { words };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

impl Extend<u32> for CpuSet {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, cpus: I) {
        for cpu in cpus {
            self.insert(cpu);
        }
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let mut set = CpuSet::new();
        set.extend(cpus);
        set
    }
}

impl<'a> IntoIterator for &'a CpuSet {
    type Item = u32;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// The numbers of a [`CpuSet`] in ascending order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    words: &'a [u64],
    index: usize,
    /// The bits of the present word that are still to come.
    rest: u64,
}

impl Iterator for Iter<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        while self.rest == 0 {
            self.index += 1;
            self.rest = *self.words.get(self.index)?;
        }
        let bit = self.rest.trailing_zeros();
        self.rest &= self.rest - 1;
        Some(self.index as u32 * WORD_BITS + bit)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(start) = cpus.next() {
            let mut end = start;
            while cpus.next_if_eq(&(end + 1)).is_some() {
                end += 1;
            }
            if start == end {
                write!(f, "{separator}{start}")?
            } else {
                write!(f, "{separator}{start}-{end}")?
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text, None)
    }
}

/// A region of a CPU list that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{region}` in a CPU list: {reason}")]
pub struct ParseCpuSetError {
    /// The region as found.
    pub region: String,
    /// The error.
    pub reason: &'static str,
}

fn parse(text: &str, nr_cpus: Option<u32>) -> Result<CpuSet, ParseCpuSetError> {
    let line = text.strip_suffix('\n').unwrap_or(text);
    let mut set = CpuSet::new();
    // The kernel ends the text at a newline, so a newline is never a separator.
    let is_separator = |c: char| c == ',' || (c.is_ascii_whitespace() && c != '\n');
    for region in line.split(is_separator).filter(|region| !region.is_empty()) {
        let refused = |reason| ParseCpuSetError { region: region.to_string(), reason };
        let range = Region::parse(region, nr_cpus).map_err(refused)?;
        for group in (range.start..=range.end).step_by(range.group as usize) {
            let used = range.used.min(range.end - group + 1);
            set.extend(group..group + used);
        }
    }
    Ok(set)
}

/// `start-end:used/group`.
struct Region {
    start: u32,
    end: u32,
    used: u32,
    group: u32,
}

impl Region {
    fn parse(text: &str, nr_cpus: Option<u32>) -> Result<Region, &'static str> {
        let (span, pattern) = match text.split_once(':') {
            Some((span, pattern)) => (span, Some(pattern)),
            None => (text, None),
        };
        let (start, end) = if span.eq_ignore_ascii_case("all") {
            (0, number("N", nr_cpus)?)
        } else if let Some((start, end)) = span.split_once('-') {
            (number(start, nr_cpus)?, number(end, nr_cpus)?)
        } else if pattern.is_some() {
            return Err("only a range can be thinned out with `:used/group`");
        } else {
            let only = number(span, nr_cpus)?;
            (only, only)
        };
        if start > end {
            return Err("the range runs backwards");
        }
        if end > nr_cpus.map_or(CpuSet::MAX, |count| count.saturating_sub(1)) || nr_cpus == Some(0)
        {
            return Err("there is no such CPU");
        }
        let (used, group) = match pattern {
            None => (end - start + 1, end - start + 1),
            Some(pattern) => {
                let (used, group) =
                    pattern.split_once('/').ok_or("the pattern is written `:used/group`")?;
                (number(used, nr_cpus)?, number(group, nr_cpus)?)
            }
        };
        if group == 0 || used > group {
            return Err("of each group at least none and at most all can be used");
        }
        Ok(Region { start, end, used, group })
    }
}

fn number(text: &str, nr_cpus: Option<u32>) -> Result<u32, &'static str> {
    if text == "N" {
        let count = nr_cpus.ok_or("`N` and `all` mean nothing where the width is not known")?;
        return Ok(count.saturating_sub(1));
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("write CPUs as `0-3,8`");
    }
    text.parse().map_err(|_| "the number is too large")
}
