//! The requests that worker `i` may begin, ordered by finish tag: the index of 2DFQ.
//!
//! # Problem
//! On worker `i` of `n`, 2DFQ takes the smallest finish tag among the tenants with `S − (i/n)·L ≤ v`. The
//! eligible set differs between workers and changes with `v` between any two calls, and it is not a prefix
//! of any one order: of two tenants with the same finish tag, the one with the larger cost is eligible
//! earlier, and the more so the larger `i` is. A scan of all tenants costs O(n tenants) for each dispatch.
//! A heap for each worker would have to be updated `n` times for each dispatch.
//!
//! # Algorithm
//! All heads are in one list, sorted by finish tag and cut into blocks. For each worker and each block the
//! index keeps a lower bound of the eligibility keys `S − (i/n)·L` in it. Worker `i` searches for the first
//! block whose bound is at most `v`, and in it for the first such entry. Nothing has to happen when `v`
//! passes a key.
//!
//! An insertion lowers the bounds of its block where its keys are lower. A removal leaves them: a bound
//! that is too low costs one search in vain, by one worker, after which that worker's bound of that block
//! is exact. Most are not read again before the block is gone.
//!
//! With N heads, n workers and blocks of about √(N/n), a search reads the bounds of up to √(N·n) blocks,
//! which are neighbours in memory, and one block; an insertion touches n bounds. So a dispatch takes
//! **O(√(N·n))** steps, and an insertion can cause at most n searches in vain of √(N/n) steps, which is the
//! same again. At N = 10,000 and n = 32 that is a run of some five hundred numbers at worst; a search
//! usually ends at one of the first blocks.
//!
//! # Errata
//! Printed descriptions have the rule as `S ≤ v − L·i/n`. That sign makes high workers begin later than GPS
//! would, breaks the precondition of the lag bound, and leaves most dispatches without an eligible request.
//! `S − (i/n)·L ≤ v`, implemented here, is the paper's §4.
//!
//! # Properties
//! - The same answer as a scan (`the_index_equals_a_scan`, `each_discipline_equals_its_slow_reference`).

use serde::{Deserialize, Serialize};

use super::super::tag::{STEP, Tag};
use super::super::types::TenantId;

/// Blocks are not cut below this size.
const BLOCK_MIN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) finish: Tag,
    pub(super) tenant: TenantId,
    /// Start tag, unrounded.
    pub(super) start: f64,
    /// Estimated cost, `L`.
    pub(super) length: f64,
}

impl Entry {
    /// The same request with tags that are `by` later.
    pub(super) fn later(self, by: f64) -> Entry {
        let finish = Tag::rounded(self.finish.value() + by);
        Entry { finish, start: self.start + by, ..self }
    }

    fn place(&self) -> (Tag, TenantId) {
        (self.finish, self.tenant)
    }

    /// Its eligibility key `S − ratio·L`, reduced by the possible rounding error of `S`: a key of 0 that
    /// came out as 4·10⁻¹⁶ is reached at `v = 0`.
    fn key(&self, ratio: f64) -> f64 {
        self.start - self.start * STEP - ratio * self.length
    }
}

/// Heads in blocks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Staggered {
    /// `i/n` for each worker.
    ratios: Vec<f64>,
    blocks: Vec<Vec<Entry>>,
    /// The first entry of each block.
    firsts: Vec<(Tag, TenantId)>,
    /// A lower bound of the keys in each block, a row for each worker.
    bounds: Vec<Vec<f64>>,
    len: usize,
}

impl Staggered {
    pub(super) fn new(workers: u32) -> Staggered {
        Staggered {
            ratios: (0..workers).map(|worker| f64::from(worker) / f64::from(workers)).collect(),
            blocks: Vec::new(),
            firsts: Vec::new(),
            bounds: vec![Vec::new(); workers as usize],
            len: 0,
        }
    }

    /// Returns the smallest finish tag among the admitted entries that `worker` may begin at virtual time
    /// `v`. Without one, returns the admitted entry with the smallest key, so that no worker idles.
    pub(super) fn first(
        &mut self,
        worker: u32,
        v: f64,
        admits: impl Fn(TenantId) -> bool,
    ) -> Option<TenantId> {
        // An unknown worker is treated as the last one.
        let worker = (worker as usize).min(self.ratios.len() - 1);
        let eligible = self.first_below(worker, v + v.abs() * STEP, &admits);
        eligible.or_else(|| {
            let mut least = self.least_key(worker)?;
            // No start tag is above the last finish tag, so no rounding error is larger than this. Leads can make tags
            // negative.
            let rounding = 2.0 * STEP * self.blocks.last()?.last()?.finish.value().abs();
            let first = self.first_below(worker, least + rounding, &admits);
            first.or_else(|| {
                // The entry with the smallest key is not admitted: a scan finds the smallest of those that are.
                let ratio = self.ratios[worker];
                let admitted = self.blocks.iter().flatten().filter(|entry| admits(entry.tenant));
                least = admitted.map(|entry| entry.key(ratio)).reduce(f64::min)?;
                self.first_below(worker, least + rounding, &admits)
            })
        })
    }

    /// The first admitted entry whose key for a worker is at most `highest`.
    fn first_below(
        &mut self,
        worker: usize,
        highest: f64,
        admits: &impl Fn(TenantId) -> bool,
    ) -> Option<TenantId> {
        let ratio = self.ratios[worker];
        let row = &mut self.bounds[worker];
        let mut from = 0;
        while let Some(at) = row[from..].iter().position(|bound| *bound <= highest) {
            let block = from + at;
            let entries = &self.blocks[block];
            let mut below = entries.iter().filter(|entry| entry.key(ratio) <= highest).peekable();
            if below.peek().is_none() {
                row[block] = least(entries, ratio);
            } else if let Some(entry) = below.find(|entry| admits(entry.tenant)) {
                return Some(entry.tenant);
            }
            from = block + 1;
        }
        None
    }

    /// The smallest key for a worker.
    fn least_key(&mut self, worker: usize) -> Option<f64> {
        let ratio = self.ratios[worker];
        let row = &mut self.bounds[worker];
        loop {
            let (block, bound) = row.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1))?;
            let exact = least(&self.blocks[block], ratio);
            if exact <= *bound {
                return Some(exact);
            }
            row[block] = exact;
        }
    }

    pub(super) fn insert(&mut self, entry: Entry) {
        if self.blocks.is_empty() {
            self.insert_block(0, vec![entry]);
        } else {
            let block = self.block_of(entry.place());
            let entries = &mut self.blocks[block];
            let at = entries.partition_point(|other| other.place() < entry.place());
            entries.insert(at, entry);
            self.firsts[block] = entries[0].place();
            for (row, ratio) in self.bounds.iter_mut().zip(&self.ratios) {
                row[block] = row[block].min(entry.key(*ratio));
            }
        }
        self.len += 1;
        let block = self.block_of(entry.place());
        if self.blocks[block].len() > self.block_max() {
            let half = self.blocks[block].len() / 2;
            let rest = self.blocks[block].split_off(half);
            self.recompute(block);
            self.insert_block(block + 1, rest);
        }
    }

    /// Removes an entry that is present.
    pub(super) fn remove(&mut self, entry: &Entry) {
        if self.blocks.is_empty() {
            return;
        }
        let block = self.block_of(entry.place());
        let entries = &mut self.blocks[block];
        let at = entries.partition_point(|other| other.place() < entry.place());
        if entries.get(at).is_none_or(|other| other.place() != entry.place()) {
            debug_assert!(false, "an entry was removed that is not there");
            return;
        }
        entries.remove(at);
        self.len -= 1;
        if entries.is_empty() {
            self.remove_block(block);
            return;
        }
        self.firsts[block] = entries[0].place();
        self.merge(block);
    }

    /// Joins a block with its neighbour if both together are small.
    fn merge(&mut self, block: usize) {
        let neighbour = if block + 1 < self.blocks.len() { block + 1 } else { block.max(1) };
        let (left, right) = (neighbour - 1, neighbour);
        let fits = |index: usize| self.blocks.get(index).map_or(usize::MAX / 2, Vec::len);
        if fits(left) + fits(right) <= self.block_max() / 2 {
            for row in &mut self.bounds {
                row[left] = row[left].min(row[right]);
            }
            let mut rest = self.remove_block(right);
            self.blocks[left].append(&mut rest);
        }
    }

    /// The length at which reading the bounds of all blocks takes as long as reading a block for each
    /// worker.
    fn block_max(&self) -> usize {
        BLOCK_MIN.max(2 * (self.len / self.ratios.len()).isqrt())
    }

    /// The block of a place, present or not.
    fn block_of(&self, place: (Tag, TenantId)) -> usize {
        self.firsts.partition_point(|first| *first <= place).saturating_sub(1)
    }

    fn insert_block(&mut self, at: usize, entries: Vec<Entry>) {
        self.firsts.insert(at, entries[0].place());
        for (row, ratio) in self.bounds.iter_mut().zip(&self.ratios) {
            row.insert(at, least(&entries, *ratio));
        }
        self.blocks.insert(at, entries);
    }

    fn remove_block(&mut self, at: usize) -> Vec<Entry> {
        self.firsts.remove(at);
        self.bounds.iter_mut().for_each(|row| {
            row.remove(at);
        });
        self.blocks.remove(at)
    }

    fn recompute(&mut self, block: usize) {
        self.firsts[block] = self.blocks[block][0].place();
        for (row, ratio) in self.bounds.iter_mut().zip(&self.ratios) {
            row[block] = least(&self.blocks[block], *ratio);
        }
    }
}

/// The smallest key of some entries.
fn least(entries: &[Entry], ratio: f64) -> f64 {
    let smaller = |least: f64, key: f64| if key < least { key } else { least };
    entries.iter().map(|entry| entry.key(ratio)).fold(f64::INFINITY, smaller)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reproducible stream of numbers in 0 .. 1 (splitmix64).
    struct Dice(u64);

    impl Dice {
        fn roll(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    fn scan(entries: &[Entry], ratio: f64, v: f64) -> Option<TenantId> {
        // Keys are multiples of 1/5: closer ones are equal.
        let key = |entry: &Entry| ((entry.start - ratio * entry.length) * 1e6).round();
        let by_place = |a: &&Entry, b: &&Entry| a.place().cmp(&b.place());
        let eligible = entries.iter().filter(|entry| key(entry) <= (v * 1e6).round());
        let least =
            |a: &&Entry, b: &&Entry| key(a).total_cmp(&key(b)).then(a.place().cmp(&b.place()));
        let found = eligible.min_by(by_place).or_else(|| entries.iter().min_by(least));
        found.map(|entry| entry.tenant)
    }

    #[test]
    fn the_index_equals_a_scan() {
        for seed in 0..20 {
            let mut dice = Dice(seed);
            let mut index = Staggered::new(5);
            let mut entries: Vec<Entry> = Vec::new();
            for step in 0..4_000_u32 {
                let grows = if step < 2_500 { 0.7 } else { 0.2 };
                if dice.roll() < grows || entries.is_empty() {
                    let (start, length) =
                        ((dice.roll() * 64.0).floor(), (dice.roll() * 16.0).ceil());
                    let finish = Tag::rounded(start + length);
                    let entry = Entry { finish, tenant: TenantId(step), start, length };
                    index.insert(entry);
                    entries.push(entry);
                } else {
                    let at = (dice.roll() * entries.len() as f64) as usize;
                    index.remove(&entries.swap_remove(at));
                }
                let worker = step % 5;
                let v = (dice.roll() * 200.0).floor() / 5.0 - 10.0;
                let expected = scan(&entries, f64::from(worker) / 5.0, v);
                assert_eq!(
                    index.first(worker, v, |_| true),
                    expected,
                    "seed {seed} step {step} v {v}"
                );
            }
        }
    }
}
