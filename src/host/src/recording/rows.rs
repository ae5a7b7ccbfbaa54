//! Rows of bytes as few bytes: numbers of a row as differences to an earlier row of the same node.
//!
//! **Problem.** Most numbers of a tick repeat or grow by little, but their bytes differ, and a constant between
//! two noisy numbers costs a compressor more than either.
//!
//! **Answer.** A *row* is a serialised value with a *key*, the node it is about. The bytes of numbers in
//! postcard's format are groups of 7 bits that continue while the top bit is set. Any bytes can be read so: a
//! row is a list of *numbers*, whatever its type ([`numbers`]). Each number is subtracted from its counterpart in
//! the last row with the same key and the same count of numbers ([`Last`]). Rows of equal count are written
//! column by column, so that like numbers are side by side.
//!
//! **Exactness.** Reading bytes as numbers is one to one, so every byte of a row is restored.
//!
//! **Limits.** Writer and reader forget all earlier rows at the same row, as soon as these have more than
//! [`NUMBERS_MAX`] numbers.

use std::collections::{BTreeMap, HashMap};
use std::iter::repeat;

use serde::{Deserialize, Serialize};

/// Most numbers of earlier rows, 16 MiB: a few rows each of ten thousand tenants.
const NUMBERS_MAX: usize = 1 << 21;
/// Most bytes of a number. The last of so many has 8 bits, and none follows it.
const BYTES_MAX: usize = 8;

/// Serialised values with their keys.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    keys: Vec<u32>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Rows {
    /// True without a row.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of all rows.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the row of `value`.
    pub fn push<T: Serialize>(&mut self, key: u32, value: &T) -> postcard::Result<()> {
        self.bytes = postcard::to_extend(value, std::mem::take(&mut self.bytes))?;
        self.keys.push(key);
        self.ends.push(self.bytes.len());
        Ok(())
    }

    /// Keys and bytes of the rows, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        let bytes = begins.zip(&self.ends).map(|(begin, end)| &self.bytes[begin..*end]);
        self.keys.iter().copied().zip(bytes)
    }
}

/// Numbers of the last row of each key and count.
#[derive(Clone, Debug, Default)]
pub struct Last {
    rows: HashMap<(u32, usize), Vec<u64>>,
    nr_numbers: usize,
}

impl Last {
    fn replace(&mut self, key: u32, numbers: Vec<u64>) {
        let count = numbers.len();
        if self.nr_numbers + count > NUMBERS_MAX {
            *self = Last::default();
        }
        if self.rows.insert((key, count), numbers).is_none() {
            self.nr_numbers += count;
        }
    }

    fn row(&self, key: u32, count: usize) -> &[u64] {
        self.rows.get(&(key, count)).map_or(&[], Vec::as_slice)
    }
}

/// Rows as differences, column by column.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Columns {
    keys: Vec<u32>,
    /// Count of the numbers of each row.
    counts: Vec<u32>,
    /// All columns of the rows with the smallest count, then those of the next count.
    differences: Vec<i64>,
}

impl Columns {
    /// Converts rows, which are then the last ones.
    pub fn of(rows: &Rows, last: &mut Last) -> Columns {
        let (mut counts, mut of_counts) = (Vec::new(), BTreeMap::<usize, Vec<Vec<i64>>>::new());
        for (key, bytes) in rows.iter() {
            let row = numbers(bytes);
            let before = last.row(key, row.len()).iter().chain(repeat(&0));
            let differences =
                row.iter().zip(before).map(|(now, before)| now.wrapping_sub(*before) as i64);
            let differences = differences.collect();
            counts.push(row.len() as u32);
            of_counts.entry(row.len()).or_default().push(differences);
            last.replace(key, row);
        }
        let columns = |(count, rows): (usize, Vec<Vec<i64>>)| {
            (0..count).flat_map(move |at| rows.iter().map(|row| row[at]).collect::<Vec<_>>())
        };
        let differences = of_counts.into_iter().flat_map(columns).collect();
        Columns { keys: rows.keys.clone(), counts, differences }
    }

    /// Restores the rows, of at most `bytes_max` bytes; `None` if these are not columns of any rows.
    pub fn rows(&self, last: &mut Last, bytes_max: usize) -> Option<Rows> {
        let mut nr_rows = BTreeMap::<usize, usize>::new();
        for count in &self.counts {
            *nr_rows.entry(usize::try_from(*count).ok()?).or_default() += 1;
        }
        // Where the columns of a count begin, and how many of its rows were taken.
        let (mut begin, mut begins) = (0_usize, BTreeMap::new());
        for (count, nr_rows) in &nr_rows {
            begins.insert(*count, (begin, 0));
            begin = begin.checked_add(count.checked_mul(*nr_rows)?)?;
        }
        if begin != self.differences.len() || self.keys.len() != self.counts.len() {
            return None;
        }
        let mut rows = Rows::default();
        for (key, count) in self.keys.iter().zip(&self.counts) {
            let count = *count as usize;
            let (begin, taken) = begins.get_mut(&count)?;
            let difference = |at: usize| self.differences[*begin + at * nr_rows[&count] + *taken];
            let before = last.row(*key, count).iter().chain(repeat(&0));
            let numbers = (0..count).map(difference).zip(before);
            let row: Vec<u64> =
                numbers.map(|(more, before)| before.wrapping_add(more as u64)).collect();
            *taken += 1;
            append(&row, &mut rows.bytes)?;
            rows.keys.push(*key);
            rows.ends.push(rows.bytes.len());
            last.replace(*key, row);
            if rows.bytes.len() > bytes_max {
                return None;
            }
        }
        Some(rows)
    }
}

/// Reads bytes, and a zero after them, as numbers of 1 to [`BYTES_MAX`] bytes. A number of more bytes is larger
/// than each of less bytes, so that no two runs of bytes are the same number.
fn numbers(bytes: &[u8]) -> Vec<u64> {
    let mut numbers = Vec::with_capacity(bytes.len() + 1);
    let (mut number, mut at) = (0_u64, 0);
    for byte in bytes.iter().chain([&0]) {
        let is_full = at + 1 == BYTES_MAX;
        let bits = if is_full { *byte } else { *byte & 0x7f };
        number += (u64::from(bits) + u64::from(at > 0)) << (7 * at);
        at += 1;
        if is_full || *byte < 0x80 {
            numbers.push(std::mem::take(&mut number));
            at = 0;
        }
    }
    // The zero ended a number of its own, or the last one.
    numbers
}

/// Appends the bytes of these numbers without the zero after them; `None` if they are not numbers of any bytes.
fn append(numbers: &[u64], bytes: &mut Vec<u8>) -> Option<()> {
    for number in numbers {
        let (mut rest, mut at) = (*number, 1);
        while rest >= 0x80 && at < BYTES_MAX {
            bytes.push(rest as u8 | 0x80);
            rest = (rest >> 7) - 1;
            at += 1;
        }
        bytes.push(u8::try_from(rest).ok()?);
    }
    (bytes.pop()? == 0 && !numbers.is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(all: &[(u32, &[u8])]) -> Rows {
        let mut rows = Rows::default();
        for (key, bytes) in all {
            rows.bytes.extend_from_slice(bytes);
            rows.keys.push(*key);
            rows.ends.push(rows.bytes.len());
        }
        rows
    }

    fn all(rows: &Rows) -> Vec<(u32, Vec<u8>)> {
        rows.iter().map(|(key, bytes)| (key, bytes.to_vec())).collect()
    }

    /// A generator with one number of state (splitmix64).
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 27)
    }

    #[test]
    fn any_bytes_come_back() {
        let mut state = 1;
        let (mut writing, mut reading) = (Last::default(), Last::default());
        for _ in 0..200 {
            let mut row = || {
                let length = next(&mut state) % 30;
                let of = [0xff, 0x80, 0x7f, 0x83][next(&mut state) as usize % 4];
                let byte = |_| {
                    if next(&mut state).is_multiple_of(3) { next(&mut state) as u8 } else { of }
                };
                (0..length).map(byte).collect::<Vec<u8>>()
            };
            let some: Vec<Vec<u8>> = (0..20).map(|_| row()).collect();
            let keyed: Vec<(u32, &[u8])> =
                some.iter().enumerate().map(|(at, row)| (at as u32 % 7, &row[..])).collect();
            let before = rows(&keyed);
            let columns = Columns::of(&before, &mut writing);
            let after = columns.rows(&mut reading, 1 << 20).unwrap();
            assert_eq!(all(&after), all(&before));
        }
    }

    #[test]
    fn a_counter_costs_its_growth_and_a_constant_nothing() {
        let mut last = Last::default();
        let row = |counter: u64| {
            let mut rows = Rows::default();
            rows.push(3, &(7_u32, counter, "text", 0.1)).unwrap();
            rows
        };
        Columns::of(&row(1 << 40), &mut last);
        let columns = Columns::of(&row((1 << 40) + 5), &mut last);
        let changed: Vec<&i64> = columns.differences.iter().filter(|it| **it != 0).collect();
        assert_eq!(changed, [&5]);
    }

    #[test]
    fn columns_that_do_not_fit_are_refused() {
        let whole = Columns::of(&rows(&[(1, &[1, 2]), (1, &[3])]), &mut Last::default());
        let refused = |columns: Columns| columns.rows(&mut Last::default(), 100).is_none();
        assert!(!refused(whole.clone()));
        let (mut keys, mut counts, mut short) = (whole.clone(), whole.clone(), whole.clone());
        keys.keys.pop();
        counts.counts[0] = u32::MAX;
        short.differences.pop();
        let none = Columns { keys: vec![1], counts: vec![0], differences: Vec::new() };
        let large = Columns { keys: vec![1], counts: vec![2], differences: vec![i64::MAX, 0] };
        assert!([keys, counts, short, none, large].into_iter().all(refused));
        assert!(whole.rows(&mut Last::default(), 2).is_none(), "more bytes than allowed");
    }

    #[test]
    fn both_sides_forget_at_the_same_row() {
        let (mut writing, mut reading) = (Last::default(), Last::default());
        let long = vec![1; NUMBERS_MAX / 3];
        for key in 0..8 {
            let before = rows(&[(key, &long[key as usize..]), (0, &[9])]);
            let columns = Columns::of(&before, &mut writing);
            let after = columns.rows(&mut reading, 8 << 20).unwrap();
            assert!(all(&after) == all(&before));
            assert!(writing.nr_numbers <= NUMBERS_MAX && writing.nr_numbers == reading.nr_numbers);
        }
    }
}
