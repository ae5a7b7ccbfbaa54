//! Order in which work ends when memory runs out: `memory: { victims: share }`.
//!
//! **Problem.** The OOM killer ends the process that holds most (`oom_badness`, mm/oom_kill.c). So a tenant within
//! its share loses its one large process to another that holds a multiple of its share in many small ones.
//!
//! **Terms.**
//! - *unit*: what ends together, a job or all other work of a tenant.
//! - *held*: memory that reclaim cannot take, and swapped memory.
//! - *share*: the weight-fair share of the divided memory, within the limit of the tenant and with its guarantee.
//! - *excess*: memory held over share.
//!
//! **Rule.** A tenant that holds no more than its guarantee is never chosen. Nor is a unit that holds less than a
//! hundredth of the divided memory: its end would not help. The others end in this order:
//!
//! 1. units of tenants above their share, before those of tenants within it;
//! 2. jobs before other work;
//! 3. those of the tenant with the largest excess;
//! 4. the job that started last.
//!
//! The agent raises `oom_score_adj` of the first few units only ([`SCORES`]). The kernel adds as many thousandths of
//! the memory to the size of a process, so the first unit ends before any work without a mark. Nothing is ever
//! lowered below its old value: a protected process that forks would hand its protection on.
//!
//! **Dead band.** Excess moves with every tick. A unit that is marked counts a twentieth more, so that two of nearly
//! equal excess do not take turns.
//!
//! **Properties** (tests below): no unit within a guarantee is chosen; the order is total and does not depend on the
//! order of the units; more held memory never moves a tenant's units back.

use std::cmp::Ordering;

/// Values of `oom_score_adj` for the first units in the order. No program is likely to have one of them: they also
/// identify the marks of an agent that was killed.
pub const SCORES: [i16; 4] = [997, 747, 497, 247];

/// Least part of the divided memory that a unit must hold.
const HELD_RATIO: f64 = 0.01;

/// Factor of the excess of a unit that is marked.
const MARKED_RATIO: f64 = 1.05;

/// Memory of a tenant, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holding {
    /// Memory that reclaim cannot take, and swapped memory.
    pub held_bytes: f64,
    /// Weight-fair share.
    pub share_bytes: f64,
    /// Guarantee; 0 without one.
    pub guarantee_bytes: f64,
}

impl Holding {
    /// Memory held over share; infinite without a share.
    pub fn excess(&self) -> f64 {
        self.held_bytes / self.share_bytes.max(0.0)
    }
}

/// Work that ends together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Unit {
    /// Memory of its tenant.
    pub tenant: Holding,
    /// Memory of its own that reclaim cannot take, in bytes.
    pub held_bytes: f64,
    /// Start of a job, in seconds of any clock; `None` for the other work of a tenant.
    pub started: Option<f64>,
    /// True if it has a mark.
    pub is_marked: bool,
}

impl Unit {
    fn may_end(&self, divided_bytes: f64) -> bool {
        self.tenant.held_bytes > self.tenant.guarantee_bytes
            && self.held_bytes >= divided_bytes * HELD_RATIO
    }

    fn excess(&self) -> f64 {
        let excess = self.tenant.excess();
        if self.is_marked { excess * MARKED_RATIO } else { excess }
    }

    /// Less for a unit that ends earlier.
    fn compare(&self, other: &Unit) -> Ordering {
        let is_within = |unit: &Unit| unit.excess() <= 1.0;
        let is_other_work = |unit: &Unit| unit.started.is_none();
        is_within(self)
            .cmp(&is_within(other))
            .then(is_other_work(self).cmp(&is_other_work(other)))
            .then(other.excess().total_cmp(&self.excess()))
            .then(other.started.unwrap_or(0.0).total_cmp(&self.started.unwrap_or(0.0)))
    }
}

/// Positions of the `units` that may end, in the order in which they end; `divided_bytes` is the divided memory. Of
/// equal ones the first comes first.
pub fn order(units: &[Unit], divided_bytes: f64) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..units.len()).filter(|&at| units[at].may_end(divided_bytes)).collect();
    order.sort_by(|&a, &b| units[a].compare(&units[b]));
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: f64 = (1_u64 << 30) as f64;

    fn unit(held: f64, share: f64, guarantee: f64, own: f64, started: Option<f64>) -> Unit {
        let tenant = Holding {
            held_bytes: held * GIB,
            share_bytes: share * GIB,
            guarantee_bytes: guarantee * GIB,
        };
        Unit { tenant, held_bytes: own * GIB, started, is_marked: false }
    }

    #[test]
    fn the_small_processes_of_a_greedy_tenant_end_before_the_large_one_of_a_modest_tenant() {
        let modest = unit(3.0, 4.0, 0.0, 3.0, None);
        let greedy = unit(5.0, 4.0, 0.0, 5.0, None);
        assert_eq!(order(&[modest, greedy], 8.0 * GIB), [1, 0]);
    }

    #[test]
    fn jobs_end_before_services_and_the_youngest_first() {
        let service = unit(6.0, 2.0, 0.0, 2.0, None);
        let old = unit(6.0, 2.0, 0.0, 2.0, Some(10.0));
        let young = unit(6.0, 2.0, 0.0, 2.0, Some(20.0));
        let modest_job = unit(1.0, 2.0, 0.0, 1.0, Some(30.0));
        assert_eq!(order(&[service, old, young, modest_job], 8.0 * GIB), [2, 1, 0, 3]);
    }

    #[test]
    fn no_tenant_ends_within_its_guarantee_and_nothing_that_holds_little() {
        let within = unit(3.0, 1.0, 3.0, 3.0, None);
        let small = unit(5.0, 1.0, 0.0, 0.05, Some(1.0));
        assert_eq!(order(&[within, small], 8.0 * GIB), [0_usize; 0]);
    }

    #[test]
    fn a_marked_unit_stays_first_while_the_excess_is_nearly_equal() {
        let marked = Unit { is_marked: true, ..unit(5.0, 4.0, 0.0, 5.0, None) };
        assert_eq!(order(&[unit(5.1, 4.0, 0.0, 5.1, None), marked], 16.0 * GIB), [1, 0]);
        assert_eq!(order(&[unit(5.5, 4.0, 0.0, 5.5, None), marked], 16.0 * GIB), [0, 1]);
    }

    prop_compose! {
        fn any_unit()(
            held in 0.0..8.0, share in 0.0..4.0, guarantee in 0.0..4.0, part in 0.0..1.0,
            started in prop::option::of(0.0..100.0), is_marked: bool,
        ) -> Unit {
            Unit { is_marked, ..unit(held, share, guarantee, held * part, started) }
        }
    }

    proptest! {
        #[test]
        fn no_unit_within_a_guarantee_is_chosen(units in prop::collection::vec(any_unit(), 0..12)) {
            for at in order(&units, 8.0 * GIB) {
                prop_assert!(units[at].tenant.held_bytes > units[at].tenant.guarantee_bytes);
            }
        }

        #[test]
        fn the_order_does_not_depend_on_that_of_the_units(
            units in prop::collection::vec(any_unit(), 0..12),
        ) {
            let reversed: Vec<Unit> = units.iter().rev().copied().collect();
            let shown = |units: &[Unit]| -> Vec<Unit> {
                order(units, 8.0 * GIB).into_iter().map(|at| units[at]).collect()
            };
            for (one, other) in shown(&units).iter().zip(shown(&reversed)) {
                prop_assert_eq!(one.compare(&other), Ordering::Equal);
            }
        }

        #[test]
        fn more_memory_moves_no_unit_back(
            units in prop::collection::vec(any_unit(), 1..12),
            who in any::<prop::sample::Index>(),
            more in 0.0..4.0,
        ) {
            let who = who.index(units.len());
            let place = |units: &[Unit]| order(units, 8.0 * GIB).iter().position(|&at| at == who);
            let before = place(&units);
            let mut units = units;
            units[who].tenant.held_bytes += more * GIB;
            units[who].held_bytes += more * GIB;
            let after = place(&units);
            prop_assert!(before.is_none() || after.is_some_and(|after| Some(after) <= before));
        }
    }
}
