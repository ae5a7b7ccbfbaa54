//! Makes tenants release memory while others are short of their entitlement.
//!
//! **Problem.** Protection (`memory.low`) keeps held memory; it brings no lost memory back. A tenant that
//! streams files fills all memory that others have not touched for a moment, and reclaim with generations
//! takes from protected cgroups after one pass (`mm/vmscan.c`, `shrink_one`, Linux 6.12). A tenant with
//! more than its allocation must release the rest, and only `memory.high` does so without a kill.
//!
//! **Terms**, in bytes.
//! - A cgroup *lacks* memory if it refaults while it holds less than its entitlement (the part that fits).
//! - *Spare* memory is free memory above the kernel's watermarks; no cgroup needs to release it.
//! - The *floor* of a cgroup is the largest of its entitlement, its weight-fair share, and its
//!   unreclaimable memory with a margin.
//! - The *excess* is held memory above the floor.
//! - A *bound* is the desired value of `memory.high`.
//!
//! **Weight-fair share.** A tenant that reads files once has a small entitlement because it wants little.
//! Bounded there, it would stall for a tick or two whenever it wants its own share. Memory within its share
//! belongs to no other tenant; if others need it, reclaim takes it at that moment.
//!
//! **Algorithm.** While more is lacking than spare, each cgroup with an excess is bounded: first at its
//! held memory, then lower in proportion to its excess, by at most a twentieth of its held memory per
//! second. A falling bound is never above the held memory, never more than one step below it (an unwritten
//! bound must not run ahead), and never below the floor.
//!
//! When nothing is lacking, bounds stand for 10 s at first and then rise by a fiftieth per second until
//! they bind nothing; they rise at once if spare memory covers a step beyond the lack. A bound ends at once
//! if its cgroup's floor outgrows it, because the bound would follow a tick late. A new lack during the
//! rise doubles the standing time, up to 5 min, so that a permanent need is not retried all the time.
//!
//! **Safety.** A task that allocates beyond `memory.high` waits for reclaim. If a cgroup at its bound
//! stalls for more than half of 5 s (PSI `memory` `full`), reclaim does not find enough: the bound is
//! lifted for 1, 2, 4 … 60 min. Bounds are also lifted while the whole host stalls on memory
//! ([`super::alarm`]), and if a needed counter is missing.
//!
//! **Properties** (tests below): no bound is below the floor (`nothing_is_taken_below_the_floor`) or falls
//! faster than a twentieth per second; a step takes at most the lack (`no_more_is_taken_than_is_lacking`);
//! nothing is bounded without a lack (`without_need_nothing_happens`) or while memory is free
//! (`what_is_spare_is_had_without_anybody_giving`); every bound ends (`bounds_stand_and_rise_and_end`).
//!
//! Source: `memory.high` in senpai (facebookincubator) and in the kernel's
//! `Documentation/admin-guide/cgroup-v2.rst`.

use serde::{Deserialize, Serialize};
use std::time::Duration;

use tenantd_core::units::{Bytes, Limit};

const FALL_RATIO: f64 = 0.05;
const RISE_RATIO: f64 = 0.02;
const MARGIN: Bytes = Bytes::mib(16);
/// Largest page size: memory files count whole pages.
const PAGE_BYTES: u64 = 64 << 10;
/// Ratio to the held memory from which a bound binds nothing.
const FREE_RATIO: f64 = 1.1;
/// Ratio of floor to bound from which the cgroup grows: a bound that followed would hold it up in every tick.
const OUTGROWN_RATIO: f64 = 1.05;
const STAND_FIRST: Duration = Duration::from_secs(10);
const STAND_MOST: Duration = Duration::from_secs(320);
/// Time in which all tasks of the tenant stall, as a part of the interval, from which a bound is lifted.
pub const FUTILE_RATIO: f64 = 0.5;
const FUTILE_AFTER: Duration = Duration::from_secs(5);
const LEFT_FIRST: Duration = Duration::from_secs(60);
const LEFT_MOST: Duration = Duration::from_secs(3600);

/// Memory of one cgroup, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holding {
    /// Charged memory.
    pub charged_bytes: f64,
    /// Entitlement: the larger of its allocation and its guarantee.
    pub entitled_bytes: f64,
    /// Weight-fair share.
    pub fair_bytes: f64,
    /// Unreclaimable memory, with its expected growth.
    pub inelastic_bytes: f64,
    /// Missing part of its entitlement; 0 if it wants no more.
    pub lacking_bytes: f64,
    /// PSI `full` for memory, 0 ..= 1; absent without PSI.
    pub full_ratio: Option<f64>,
    /// True if its memory reached its bound.
    pub met_bound: bool,
}

impl Holding {
    fn floor_bytes(&self) -> f64 {
        let inelastic = self.inelastic_bytes + MARGIN.0 as f64;
        self.entitled_bytes.max(self.fair_bytes).max(inelastic)
    }

    fn step_bytes(&self, elapsed: Duration) -> f64 {
        FALL_RATIO * elapsed.as_secs_f64().min(1.0) * self.charged_bytes
    }

    fn excess_bytes(&self) -> f64 {
        (self.charged_bytes - self.floor_bytes()).max(0.0)
    }
}

/// State of one cgroup's bound between ticks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Squeeze {
    /// Value of its file before the bound; `None` until it was read.
    pub held: Option<Limit<u64>>,
    /// Bound in bytes; `None` if nothing is bound.
    pub bound_bytes: Option<f64>,
    /// Bound of its probe ([`super::probe`]), in bytes.
    pub probed_bytes: Option<f64>,
    quiet: Duration,
    stand: Duration,
    /// True if the bound rises or has risen.
    has_risen: bool,
    stalled: Duration,
    left_alone: Duration,
    next_left_alone: Duration,
    /// Recently desired values, newest first, in bytes: a reading may return one of these.
    wanted_lately: [Option<Limit<u64>>; 4],
}

impl Default for Squeeze {
    fn default() -> Self {
        Squeeze {
            held: None,
            bound_bytes: None,
            probed_bytes: None,
            quiet: Duration::ZERO,
            stand: STAND_FIRST,
            has_risen: false,
            stalled: Duration::ZERO,
            left_alone: Duration::ZERO,
            next_left_alone: LEFT_FIRST,
            wanted_lately: [None; 4],
        }
    }
}

impl Squeeze {
    /// Lower of its bounds, in bytes; `None` if nothing is bound.
    pub fn lowest_bytes(&self) -> Option<f64> {
        self.bound_bytes.into_iter().chain(self.probed_bytes).reduce(f64::min)
    }

    /// Desired value: the bound, but never more than the earlier value. `None` until that is known.
    pub fn wanted(&self) -> Option<Limit<u64>> {
        let held = self.held?;
        let Some(bound) = self.lowest_bytes().map(|bytes| bytes as u64) else { return Some(held) };
        Some(match held {
            Limit::Finite(held) => Limit::Finite(bound.min(held)),
            Limit::Max => Limit::Finite(bound),
        })
    }

    /// True if `limit` was desired recently.
    pub fn has_wanted(&self, limit: Limit<u64>) -> bool {
        let mut wanted = self.held.iter().chain(self.wanted_lately.iter().flatten());
        wanted.any(|wanted| is_as_told(*wanted, limit))
    }

    /// Sets or removes the bound of its probe.
    pub fn probe(&mut self, bytes: Option<f64>) {
        self.probed_bytes = bytes;
        self.note_wanted();
    }

    fn note_wanted(&mut self) {
        let wanted = self.wanted();
        if wanted.is_some() && self.wanted_lately[0] != wanted {
            self.wanted_lately.rotate_right(1);
            self.wanted_lately[0] = wanted;
        }
    }

    /// True while it is left alone after a futile bound.
    pub fn is_left_alone(&self) -> bool {
        !self.left_alone.is_zero()
    }

    /// True if no state is left to remember.
    pub fn is_over(&self) -> bool {
        self.lowest_bytes().is_none() && !self.is_left_alone() && self.quiet > 2 * self.stand
    }

    /// Removes the bound.
    pub fn lift(&mut self) {
        (self.bound_bytes, self.stalled, self.has_risen) = (None, Duration::ZERO, true);
    }

    /// Measures the stall at the bound; lifts a futile bound.
    fn judge(&mut self, holding: &Holding, elapsed: Duration) {
        self.left_alone = self.left_alone.saturating_sub(elapsed);
        let is_stalled = self.bound_bytes.is_some()
            && holding.met_bound
            && holding.full_ratio.is_some_and(|ratio| ratio > FUTILE_RATIO);
        self.stalled = if is_stalled { self.stalled + elapsed } else { Duration::ZERO };
        if self.stalled >= FUTILE_AFTER {
            self.lift();
            self.left_alone = self.next_left_alone;
            self.next_left_alone = (2 * self.next_left_alone).min(LEFT_MOST);
        }
    }

    /// Lowers the bound by `part_bytes`, at most by one step.
    fn lower(&mut self, holding: &Holding, part_bytes: f64, elapsed: Duration) {
        if self.has_risen {
            self.stand = (2 * self.stand).min(STAND_MOST);
        }
        (self.quiet, self.has_risen) = (Duration::ZERO, false);
        let from = self.bound_bytes.unwrap_or(f64::INFINITY).min(holding.charged_bytes);
        let step_bytes = part_bytes.min(holding.step_bytes(elapsed));
        // A bound that could not be written or is not met yet must not run ahead of the held memory.
        let least = holding.charged_bytes - holding.step_bytes(elapsed);
        self.bound_bytes = Some((from - step_bytes).max(least).max(holding.floor_bytes()));
    }

    /// Steps a bound that is not lowered: it stands, then rises, then ends. It ends at once if its floor
    /// has outgrown it.
    fn rise(&mut self, holding: &Holding, spare_bytes: f64, elapsed: Duration) {
        self.quiet += elapsed;
        let Some(bound) = &mut self.bound_bytes else { return };
        if holding.floor_bytes() > OUTGROWN_RATIO * *bound {
            return self.lift();
        }
        let least = holding.charged_bytes - holding.step_bytes(elapsed);
        *bound = bound.max(least).max(holding.floor_bytes());
        let rise_bytes = RISE_RATIO * elapsed.as_secs_f64() * *bound;
        if self.quiet <= self.stand && rise_bytes > spare_bytes {
            return;
        }
        self.has_risen = true;
        *bound += rise_bytes;
        if *bound > FREE_RATIO * holding.charged_bytes {
            self.lift();
        }
    }
}

/// One cgroup in a tick.
#[derive(Debug)]
pub struct Cgroup<'a> {
    /// State of its bound; `None` without one.
    pub squeeze: &'a mut Option<Box<Squeeze>>,
    /// Its memory; `None` if it was not measured, which lifts its bound.
    pub holding: Option<Holding>,
}

impl Cgroup<'_> {
    fn gift_bytes(&self) -> f64 {
        self.holding.filter(gives).map_or(0.0, |holding| holding.excess_bytes())
    }
}

/// State of the host.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Free memory above the kernel's watermarks, in bytes.
    pub spare_bytes: f64,
    /// True while the whole host stalls on memory: no bound stays.
    pub is_emergency: bool,
}

/// Steps the bounds of all cgroups in one tick.
pub fn step(cgroups: &mut [Cgroup<'_>], host: Host, elapsed: Duration) {
    let Host { spare_bytes, is_emergency } = host;
    let measured = cgroups.iter().filter_map(|cgroup| cgroup.holding);
    let lacking = measured.map(|holding| holding.lacking_bytes).sum::<f64>() - spare_bytes;
    let excess: f64 = cgroups.iter().map(Cgroup::gift_bytes).sum();
    let is_needed = lacking > 0.0 && excess > 0.0 && !is_emergency;
    for Cgroup { squeeze, holding } in cgroups {
        let Some(holding) = holding else {
            squeeze.iter_mut().for_each(|squeeze| squeeze.lift());
            continue;
        };
        if let Some(squeeze) = squeeze.as_mut() {
            squeeze.judge(holding, elapsed);
            if is_emergency {
                squeeze.lift();
            }
        }
        if is_needed && gives(holding) {
            let own = squeeze.get_or_insert_default();
            let part = lacking.min(excess) * holding.excess_bytes() / excess;
            if own.held.is_some() && !own.is_left_alone() {
                own.lower(holding, part, elapsed);
            }
        } else if let Some(own) = squeeze.as_mut() {
            own.rise(holding, -lacking, elapsed);
        }
        squeeze.iter_mut().for_each(|squeeze| squeeze.note_wanted());
    }
}

/// True if a file told `told` may hold `found`: the kernel rounds down to pages.
pub fn is_as_told(told: Limit<u64>, found: Limit<u64>) -> bool {
    match (told, found) {
        (Limit::Finite(told), Limit::Finite(found)) => told.abs_diff(found) < PAGE_BYTES,
        (told, found) => told == found,
    }
}

fn gives(holding: &Holding) -> bool {
    holding.lacking_bytes == 0.0 && holding.excess_bytes() > 0.0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const MIB: f64 = (1_u64 << 20) as f64;

    fn step(
        squeezes: &mut [Option<Box<Squeeze>>],
        holdings: &[Option<Holding>],
        is_emergency: bool,
        elapsed: Duration,
    ) {
        assert_eq!(squeezes.len(), holdings.len());
        let both = squeezes.iter_mut().zip(holdings);
        let mut cgroups: Vec<Cgroup<'_>> =
            both.map(|(squeeze, holding)| Cgroup { squeeze, holding: *holding }).collect();
        let host = Host { is_emergency, ..Host::default() };
        super::step(&mut cgroups, host, elapsed);
    }

    fn held() -> Option<Box<Squeeze>> {
        Some(Box::new(Squeeze { held: Some(Limit::Max), ..Squeeze::default() }))
    }

    fn giver(charged: f64, entitled: f64) -> Holding {
        let (charged_bytes, entitled_bytes) = (charged * MIB, entitled * MIB);
        Holding { charged_bytes, entitled_bytes, ..Holding::default() }
    }

    fn lacking(mib: f64) -> Holding {
        Holding { lacking_bytes: mib * MIB, ..giver(100.0, 100.0 + mib) }
    }

    fn bound(squeeze: &Option<Box<Squeeze>>) -> Option<f64> {
        Some((squeeze.as_ref()?.bound_bytes? / MIB).round())
    }

    #[test]
    fn the_one_above_its_allocation_gives_and_the_others_do_not() {
        let mut squeezes = [held(), None, None];
        let holdings = [giver(1000.0, 600.0), lacking(300.0), giver(50.0, 60.0)].map(Some);
        step(&mut squeezes, &holdings, false, SECOND);
        assert_eq!(squeezes.each_ref().map(bound), [Some(950.0), None, None]);
        // Nothing is set before the earlier value is known.
        assert_eq!((&squeezes[1], &squeezes[2]), (&None, &None));
    }

    #[test]
    fn nobody_gives_of_its_weight_fair_share() {
        let mut squeezes = [held(), held(), None];
        let fair = |charged| Holding { fair_bytes: 600.0 * MIB, ..giver(charged, 50.0) };
        for _ in 0..60 {
            let holdings = [fair(590.0), fair(610.0), lacking(300.0)].map(Some);
            step(&mut squeezes, &holdings, false, SECOND);
        }
        assert_eq!(squeezes.each_ref().map(bound), [None, Some(600.0), None]);
    }

    #[test]
    fn what_is_spare_is_had_without_anybody_giving() {
        let mut squeeze = held();
        let mut step = |charged: f64, spare: f64| {
            let mut cgroups = [
                Cgroup { squeeze: &mut squeeze, holding: Some(giver(charged, 600.0)) },
                Cgroup { squeeze: &mut None, holding: Some(lacking(30.0)) },
            ];
            let host = Host { spare_bytes: spare * MIB, ..Host::default() };
            super::step(&mut cgroups, host, SECOND);
            bound(&squeeze)
        };
        assert_eq!(step(1000.0, 30.0), None);
        // No more is released than is missing beyond spare memory.
        assert_eq!(step(1000.0, 20.0), Some(990.0));
        assert_eq!(step(990.0, 30.0), Some(990.0));
        // It rises at once if spare memory covers a step beyond the lack.
        assert_eq!(step(990.0, 40.0), Some(990.0));
        assert_eq!(step(990.0, 50.0), Some(1010.0));
    }

    #[test]
    fn what_was_there_is_read_first_and_comes_back() {
        let mut squeezes = [None, None];
        let holdings = [giver(1000.0, 600.0), lacking(300.0)].map(Some);
        step(&mut squeezes, &holdings, false, SECOND);
        assert_eq!(squeezes[0].as_ref().and_then(|it| it.wanted()), None);
        squeezes[0].as_mut().unwrap().held = Some(Limit::Finite(700 << 20));
        step(&mut squeezes, &holdings, false, SECOND);
        let own = squeezes[0].as_mut().unwrap();
        assert_eq!(own.wanted(), Some(Limit::Finite(700 << 20)), "the lower of the two");
        own.lift();
        assert_eq!(own.wanted(), Some(Limit::Finite(700 << 20)));
    }

    #[test]
    fn without_need_nothing_happens() {
        let mut squeezes = [held(), held()];
        step(&mut squeezes, &[giver(1000.0, 10.0), giver(7.0, 9.0)].map(Some), false, SECOND);
        assert_eq!(squeezes.each_ref().map(bound), [None, None]);
    }

    #[test]
    fn bounds_stand_and_rise_and_end() {
        let mut squeezes = [held()];
        let run = |squeezes: &mut [Option<Box<Squeeze>>; 1], mut charged: f64| {
            step(&mut [held(), None], &[giver(1.0, 0.0), lacking(9.0)].map(Some), false, SECOND);
            let mut squeeze = [squeezes[0].take(), None];
            step(&mut squeeze, &[giver(1000.0, 600.0), lacking(300.0)].map(Some), false, SECOND);
            let set = bound(&squeeze[0]).unwrap();
            let mut nr_standing = 0;
            let mut nr_ticks = 0;
            while bound(&squeeze[0]).is_some() {
                // It grows to its bound, up to its need.
                charged = bound(&squeeze[0]).unwrap().min(1000.0).max(charged.min(set));
                nr_standing += usize::from(bound(&squeeze[0]) == Some(set));
                nr_ticks += 1;
                assert!(nr_ticks < 1000, "it never ends");
                step(&mut squeeze, &[Some(giver(charged, 600.0)), None], false, SECOND);
            }
            squeezes[0] = squeeze[0].take();
            nr_standing
        };
        let first = run(&mut squeezes, 950.0);
        assert!((10..13).contains(&first), "{first}");
        // A new need soon after doubles the standing time.
        let second = run(&mut squeezes, 950.0);
        assert!((20..23).contains(&second), "{second}");
        for _ in 0..60 {
            step(&mut squeezes, &[Some(giver(1000.0, 600.0))], false, SECOND);
        }
        assert!(squeezes[0].as_ref().unwrap().is_over());
    }

    #[test]
    fn a_futile_bound_is_lifted_and_left_alone() {
        let mut squeezes = [held(), None];
        let stalled = Holding { met_bound: true, full_ratio: Some(0.8), ..giver(1000.0, 600.0) };
        let mut left_alone = Vec::new();
        for tick in 0..400 {
            step(&mut squeezes, &[stalled, lacking(300.0)].map(Some), false, SECOND);
            left_alone.extend(squeezes[0].as_ref().unwrap().is_left_alone().then_some(tick));
        }
        // 5 s of stalling, 1 min alone, 5 s, 2 min.
        assert_eq!(left_alone[0], 5);
        let pauses: Vec<i32> =
            left_alone.windows(2).map(|w| w[1] - w[0]).filter(|d| *d > 1).collect();
        assert_eq!(pauses.len(), 2, "{left_alone:?}");
    }

    #[test]
    fn a_bound_that_is_outgrown_is_lifted_and_not_dragged_along() {
        let mut squeezes = [held(), None];
        let lacks = lacking(300.0);
        step(&mut squeezes, &[giver(1000.0, 600.0), lacks].map(Some), false, SECOND);
        assert_eq!(bound(&squeezes[0]), Some(950.0));
        // A small growth is followed.
        step(&mut squeezes, &[giver(950.0, 980.0), lacks].map(Some), false, SECOND);
        assert_eq!(bound(&squeezes[0]), Some(980.0));
        let grows = Holding { inelastic_bytes: 1100.0 * MIB, ..giver(980.0, 600.0) };
        step(&mut squeezes, &[grows, lacks].map(Some), false, SECOND);
        assert_eq!(bound(&squeezes[0]), None);
    }

    #[test]
    fn an_emergency_lifts_all() {
        let mut squeezes = [held(), None];
        let holdings = [giver(1000.0, 600.0), lacking(300.0)].map(Some);
        step(&mut squeezes, &holdings, false, SECOND);
        assert!(bound(&squeezes[0]).is_some());
        step(&mut squeezes, &holdings, true, SECOND);
        assert_eq!(bound(&squeezes[0]), None);
        // A missing counter lifts the bound too.
        step(&mut squeezes, &holdings, false, SECOND);
        step(&mut squeezes, &[None, holdings[1]], false, SECOND);
        assert_eq!(bound(&squeezes[0]), None);
    }

    fn holdings() -> impl Strategy<Value = Vec<Option<Holding>>> {
        let one = (
            0.0..2000.0,
            0.0..1500.0,
            0.0..500.0,
            0.0..1500.0,
            0.0..400.0,
            0.0..1.0_f64,
            any::<bool>(),
        );
        let one =
            one.prop_map(|(charged, entitled, fair, inelastic, lack, full, met_bound)| Holding {
                fair_bytes: fair * MIB,
                inelastic_bytes: f64::min(inelastic, charged) * MIB,
                lacking_bytes: if lack < 200.0 { 0.0 } else { lack * MIB },
                full_ratio: Some(full),
                met_bound,
                ..giver(charged, entitled)
            });
        proptest::collection::vec(proptest::option::weighted(0.9, one), 5)
    }

    proptest! {
        #[test]
        fn nothing_is_taken_below_the_floor(ticks in proptest::collection::vec(holdings(), 1..60)) {
            let mut squeezes: Vec<_> = (0..5).map(|_| held()).collect();
            for holdings in ticks {
                let before: Vec<_> = squeezes.iter().map(|it| it.as_ref().and_then(|it| it.bound_bytes)).collect();
                step(&mut squeezes, &holdings, false, SECOND);
                for ((squeeze, holding), before) in squeezes.iter_mut().zip(&holdings).zip(before) {
                    let bound = squeeze.get_or_insert_with(|| held().unwrap()).bound_bytes;
                    let Some(bound) = bound else { continue };
                    let holding = holding.as_ref().unwrap();
                    prop_assert!(bound >= holding.floor_bytes() - 1.0);
                    let from = before.unwrap_or(f64::INFINITY).min(holding.charged_bytes);
                    prop_assert!(bound >= from - 0.05 * holding.charged_bytes - 1.0);
                }
                squeezes.iter_mut().flatten().for_each(|it| it.held = Some(Limit::Max));
            }
        }

        #[test]
        fn no_more_is_taken_than_is_lacking(holdings in holdings()) {
            let mut squeezes: Vec<_> = (0..5).map(|_| held()).collect();
            step(&mut squeezes, &holdings, false, SECOND);
            let taken: f64 = squeezes.iter().zip(&holdings).filter_map(|(squeeze, holding)| {
                Some(holding.as_ref()?.charged_bytes - squeeze.as_ref()?.bound_bytes?)
            }).sum();
            let lacking: f64 = holdings.iter().flatten().map(|it| it.lacking_bytes).sum();
            prop_assert!(taken <= lacking + 1.0, "{taken} of {lacking}");
        }
    }
}
