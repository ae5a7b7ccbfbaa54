//! YARN's fair scheduler: its fair shares, and its order of queues.
//!
//! # Fair shares
//! For each resource alone YARN looks for the ratio `R` at which `clamp(R·weight, min, max)` adds up to the
//! capacity (`ComputeFairShares`): weighted max-min, where minimum shares are targets that may add up to
//! more than the capacity, and a maximum is stronger than a minimum. It doubles `R` from 1 until that is
//! enough, bisects 25 times, and cuts to whole units; [`fair_shares`] does the same, to the unit. The exact
//! answer is that of [`super::max_min`], which [`super::Algorithm::Yarn`] returns; they differ by as many
//! units as there are queues, at most (test `published_shares_are_near_the_exact_ones`), and the published
//! ones may even add up to more than the capacity: three queues get 4 each of 10.
//!
//! [`compare`] orders two queues or jobs (`DominantResourceFairnessPolicy`). Those that lack their minimum
//! share of the resource they use most of come first, the neediest of them by `usage / min`; then the
//! smallest weighted share, compared resource by resource from the most used down; then the earlier, then
//! the name. Weights do not count among the needy. The vectors `yarn_drf_comparator` are those of Hadoop's
//! own tests.

use std::cmp::Ordering;

/// A queue as an input of `ComputeFairShares`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Queue {
    /// Its weight; at 0 it gets its minimum and no more.
    pub weight: f64,
    /// Its minimum share, in whole units.
    pub min: u64,
    /// Its maximum share; stronger than the minimum.
    pub max: u64,
}

impl Queue {
    /// Its share at a ratio, cut to whole units.
    fn share(&self, ratio: f64) -> u64 {
        // A cast saturates, so that the largest maximum does not overflow.
        ((self.weight * ratio) as u64).max(self.min).min(self.max)
    }
}

/// Number of bisections: 25 bits of the ratio are right.
const BISECTIONS: u32 = 25;

/// YARN's instantaneous fair shares of `total` units. O(n), with a factor of at most 150.
pub fn fair_shares(total: u64, queues: &[Queue]) -> Vec<u64> {
    let is_fixed = |queue: &Queue| queue.max == 0 || queue.weight <= 0.0;
    let fixed = |queue: &Queue| queue.min.min(queue.max);
    let taken: u128 = queues.iter().filter(|q| is_fixed(q)).map(|q| u128::from(fixed(q))).sum();
    let open = || queues.iter().filter(|queue| !is_fixed(queue));
    let wanted: u128 = open().map(|queue| u128::from(queue.max)).sum();
    let whole = u128::from(total).saturating_sub(taken).min(wanted);
    let used = |ratio: f64| open().map(|queue| u128::from(queue.share(ratio))).sum::<u128>();
    let mut high = 1.0;
    while used(high) < whole && high < f64::MAX / 2.0 {
        high *= 2.0;
    }
    let mut low = 0.0;
    for _ in 0..BISECTIONS {
        let middle = (low + high) / 2.0;
        match used(middle).cmp(&whole) {
            Ordering::Less => low = middle,
            Ordering::Greater => high = middle,
            Ordering::Equal => {
                high = middle;
                break;
            }
        }
    }
    queues.iter().map(|q| if is_fixed(q) { fixed(q) } else { q.share(high) }).collect()
}

/// A queue or a job as an input of the comparator; the vectors have an entry for each resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Schedulable<'a> {
    /// Usage of each resource.
    pub usage: &'a [f64],
    /// Its minimum share; 0 for none.
    pub min_share: &'a [f64],
    /// Its weight, positive.
    pub weight: f64,
    /// Start time, in any unit.
    pub start_time: u64,
    /// Its name, the last resort.
    pub name: &'a str,
}

/// Compares two in a cluster of this size: `Less` means that `a` comes first.
pub fn compare(cluster: &[f64], a: &Schedulable<'_>, b: &Schedulable<'_>) -> Ordering {
    let (of_a, of_b) = (cluster_shares(cluster, a), cluster_shares(cluster, b));
    let needy = match (is_needy(&of_a, a), is_needy(&of_b, b)) {
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (true, true) => {
            let ratios = |shares: &[f64], it: &Schedulable<'_>| {
                by_dominance(shares, &min_share_ratios(it.usage, it.min_share))
            };
            compare_ratios(&ratios(&of_a, a), &ratios(&of_b, b))
        }
        (false, false) => {
            let ratios = |shares: &[f64], it: &Schedulable<'_>| {
                let fair: Vec<f64> = shares.iter().map(|share| share / it.weight).collect();
                by_dominance(shares, &fair)
            };
            compare_ratios(&ratios(&of_a, a), &ratios(&of_b, b))
        }
    };
    needy.then(a.start_time.cmp(&b.start_time)).then_with(|| a.name.cmp(b.name))
}

/// `usage / cluster`; a resource the cluster does not have is used in full as soon as it is used at all.
fn cluster_shares(cluster: &[f64], it: &Schedulable<'_>) -> Vec<f64> {
    let share = |(&usage, &whole): (&f64, &f64)| if usage == 0.0 { 0.0 } else { usage / whole };
    it.usage.iter().zip(cluster).map(share).collect()
}

/// True if it has less than its minimum share of the resource it uses most of, by the cluster's measure.
fn is_needy(cluster_shares: &[f64], it: &Schedulable<'_>) -> bool {
    let mut dominant: Option<usize> = None;
    for (r, share) in cluster_shares.iter().enumerate() {
        if dominant.is_none_or(|largest| *share > cluster_shares[largest]) {
            dominant = Some(r);
        }
    }
    dominant.is_some_and(|r| it.usage[r] < it.min_share[r])
}

/// `usage / min` for each resource: below 1 it is needy; infinite without a minimum.
pub fn min_share_ratios(usage: &[f64], min_share: &[f64]) -> Vec<f64> {
    let ratio = |(&usage, &min): (&f64, &f64)| if min > 0.0 { usage / min } else { f64::INFINITY };
    usage.iter().zip(min_share).map(ratio).collect()
}

/// The entries of `ratios` in the order of falling `shares`.
pub fn by_dominance(shares: &[f64], ratios: &[f64]) -> Vec<f64> {
    let mut rows: Vec<(f64, f64)> = shares.iter().copied().zip(ratios.iter().copied()).collect();
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    rows.into_iter().map(|(_, ratio)| ratio).collect()
}

/// Entry by entry, the first that differs decides.
pub fn compare_ratios(a: &[f64], b: &[f64]) -> Ordering {
    let differing = a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|order| order.is_ne());
    differing.unwrap_or(Ordering::Equal)
}
