//! Which tenants give memory back while others lack what they are entitled to.
//!
//! **Problem.** Protection (`memory.low`) keeps what a tenant holds; it brings nothing back that the tenant lost or never
//! had. A tenant that streams files fills all memory that others have not touched for a moment, and reclaim with
//! generations takes from a cgroup within its protection after it has passed over it once (`mm/vmscan.c`,
//! `shrink_one`, Linux 6.12). A tenant that holds more than its allocation has to give the rest back, and only
//! `memory.high` makes a cgroup do so without a kill.
//!
//! **Terms**, in bytes. A cgroup *lacks* what of its fitting entitlement it neither holds nor is without a wish for:
//! pages that it had come back, and it holds less than it is entitled to. What is free beyond what the kernel keeps so
//! is *spare*: whoever lacks memory has it without anybody giving. The *floor* of a cgroup is what it keeps in any case:
//! what it is entitled to, its weight-fair share, and what reclaim cannot take from it with a margin. What it holds
//! beyond the floor is its *excess*. A *bound* is what its `memory.high` shall hold.
//!
//! **Why the weight-fair share.** A tenant whose files are read once is entitled to little, because it wants little.
//! Bounded there, it would stand still for a tick or two whenever it comes to want what is its own. Nothing that it holds
//! within its share belongs to others: if these are to have it, reclaim takes it, at the moment in which it is needed.
//!
//! **Algorithm.** While more is lacking than is spare, each cgroup with an excess is bounded: first at what it holds now, and
//! then lower by its part of what is lacking, in proportion to the excess, by at most a twentieth of what it holds in a
//! second. A bound is never above what is held when it falls, never more than such a step below it (a bound that could
//! not be written must not run ahead), and never below the floor. When no cgroup lacks anything any more, bounds stay
//! for a time, ten seconds at first, and then rise by a fiftieth a second until nothing is bound by them; where that much
//! is spare beyond what is lacking, at once. One whose cgroup has come to need more than it ends at once: a floor that
//! grows is followed a tick late. Where something is lacking again before that, the next time is twice as long, five
//! minutes at most: so a bound that is needed all the time is not tried all the time.
//!
//! **What a bound must not do.** A task that allocates beyond `memory.high` waits for reclaim. Where a cgroup that meets
//! its bound stands still for more than half of the time, five seconds long (PSI `memory` `full`), reclaim does not find
//! what it should, and the bound is lifted and not set again for a minute, then two, four … an hour. It is lifted as well
//! while the whole host waits for memory ([`super::memory_alarm`]), and where a counter is missing that all this rests on.
//!
//! **Properties** (tests below): no bound is below the floor (`nothing_is_taken_below_the_floor`), none falls faster
//! than a twentieth of what is held in a second, what others lack is the most that is taken in a step
//! (`no_more_is_taken_than_is_lacking`), none is bounded where none lacks anything (`without_need_nothing_happens`),
//! while memory is free (`what_is_spare_is_had_without_anybody_giving`), and every bound ends
//! (`bounds_stand_and_rise_and_end`).
//!
//! Source: the careful lowering follows `memory.high`'s use in senpai (facebookincubator) and the kernel's
//! `Documentation/admin-guide/cgroup-v2.rst`, "memory.high".

use std::time::Duration;

use tenantd_core::codec::coded;
use tenantd_core::units::{Bytes, Limit};

/// The part of what is held that a bound falls by in a second, at most.
const FALL_RATIO: f64 = 0.05;
/// The part of itself that a bound rises by in a second.
const RISE_RATIO: f64 = 0.02;
/// Kept free above what reclaim cannot take.
const MARGIN: Bytes = Bytes::mib(16);
/// The largest page: memory files count whole ones.
const PAGE_BYTES: u64 = 64 << 10;
/// A bound this far above what is held binds nothing.
const FREE_RATIO: f64 = 1.1;
/// A floor this far above the bound belongs to work that grows: a bound that followed it would hold it up in every tick.
const OUTGROWN_RATIO: f64 = 1.05;
/// How long bounds stand at first when nothing is lacking any more.
const STAND_FIRST: Duration = Duration::from_secs(10);
/// ... and at most.
const STAND_MOST: Duration = Duration::from_secs(320);
/// Standing still for more than this part of the time is futile.
const FUTILE_RATIO: f64 = 0.5;
/// ... when it lasts for so long.
const FUTILE_AFTER: Duration = Duration::from_secs(5);
/// How long a cgroup is left alone then at first.
const LEFT_FIRST: Duration = Duration::from_secs(60);
/// ... and at most.
const LEFT_MOST: Duration = Duration::from_secs(3600);

/// What one cgroup holds and may keep, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Holding {
    /// All that is charged to it.
    pub charged_bytes: f64,
    /// What it is entitled to: its allocation, or its guarantee where that is more.
    pub entitled_bytes: f64,
    /// Its weight-fair share: what it has whenever it wants it.
    pub fair_bytes: f64,
    /// What reclaim cannot take from it, with what it is growing by.
    pub inelastic_bytes: f64,
    /// What it lacks of what it is entitled to; 0 where it wants no more.
    pub lacking_bytes: f64,
    /// The part of the time in which all its tasks waited for memory, 0 ..= 1; absent without PSI.
    pub full_ratio: Option<f64>,
    /// Whether its memory reached its bound.
    pub met_bound: bool,
}

impl Holding {
    fn floor_bytes(&self) -> f64 {
        let inelastic = self.inelastic_bytes + MARGIN.0 as f64;
        self.entitled_bytes.max(self.fair_bytes).max(inelastic)
    }

    /// The most that may be taken in one step.
    fn step_bytes(&self, elapsed: Duration) -> f64 {
        FALL_RATIO * elapsed.as_secs_f64().min(1.0) * self.charged_bytes
    }

    fn excess_bytes(&self) -> f64 {
        (self.charged_bytes - self.floor_bytes()).max(0.0)
    }
}

/// One cgroup's bound between ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Squeeze {
    /// What its file held before; `None` until it was read.
    pub held: Option<Limit<u64>>,
    /// What it shall hold at most, in bytes; `None` where nothing is bound.
    pub bound_bytes: Option<f64>,
    /// What it shall hold at most because it is probed ([`super::probe`]), in bytes.
    pub probed_bytes: Option<f64>,
    /// How long nothing was lacking.
    quiet: Duration,
    /// How long bounds stand.
    stand: Duration,
    /// Whether it rises, or did.
    has_risen: bool,
    stalled: Duration,
    /// What is left of the time in which it is left alone.
    left_alone: Duration,
    next_left_alone: Duration,
    /// What the file was to hold lately, newest first, in bytes: what is read may be one of these.
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
    /// The lower of its bounds, in bytes; `None` where nothing is bound.
    pub fn lowest_bytes(&self) -> Option<f64> {
        self.bound_bytes.into_iter().chain(self.probed_bytes).reduce(f64::min)
    }

    /// What the file shall hold: the bound, and never more than it held before. `None` until that is known.
    pub fn wanted(&self) -> Option<Limit<u64>> {
        let held = self.held?;
        let Some(bound) = self.lowest_bytes().map(|bytes| bytes as u64) else { return Some(held) };
        Some(match held {
            Limit::Finite(held) => Limit::Finite(bound.min(held)),
            Limit::Max => Limit::Finite(bound),
        })
    }

    /// Whether the file was to hold that lately.
    pub fn has_wanted(&self, limit: Limit<u64>) -> bool {
        let mut wanted = self.held.iter().chain(self.wanted_lately.iter().flatten());
        wanted.any(|wanted| is_as_told(*wanted, limit))
    }

    /// Bounds it because it is probed, or no more.
    pub fn probe(&mut self, bytes: Option<f64>) {
        self.probed_bytes = bytes;
        self.note_wanted();
    }

    /// Notes what the file shall hold.
    fn note_wanted(&mut self) {
        let wanted = self.wanted();
        if wanted.is_some() && self.wanted_lately[0] != wanted {
            self.wanted_lately.rotate_right(1);
            self.wanted_lately[0] = wanted;
        }
    }

    /// Whether it is left alone, because a bound did not help.
    pub fn is_left_alone(&self) -> bool {
        !self.left_alone.is_zero()
    }

    /// Whether there is nothing to remember any more.
    pub fn is_over(&self) -> bool {
        self.lowest_bytes().is_none() && !self.is_left_alone() && self.quiet > 2 * self.stand
    }

    /// No bound from now on.
    pub fn lift(&mut self) {
        (self.bound_bytes, self.stalled, self.has_risen) = (None, Duration::ZERO, true);
    }

    /// Notes how long its tasks stand still at the bound; lifts a bound that is futile.
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

    /// Lowers the bound by `part_bytes`, or as much of that as one step takes.
    fn lower(&mut self, holding: &Holding, part_bytes: f64, elapsed: Duration) {
        if self.has_risen {
            self.stand = (2 * self.stand).min(STAND_MOST);
        }
        (self.quiet, self.has_risen) = (Duration::ZERO, false);
        let from = self.bound_bytes.unwrap_or(f64::INFINITY).min(holding.charged_bytes);
        let step_bytes = part_bytes.min(holding.step_bytes(elapsed));
        // A bound that could not be written, or is not met yet, must not run ahead of what is held.
        let least = holding.charged_bytes - holding.step_bytes(elapsed);
        self.bound_bytes = Some((from - step_bytes).max(least).max(holding.floor_bytes()));
    }

    /// It has nothing to give, or nothing is lacking: stands, then rises, then ends; and ends at once where its floor has
    /// outgrown it.
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
    /// Its bound; `None` where nothing is known of it.
    pub squeeze: &'a mut Option<Box<Squeeze>>,
    /// What it holds; `None` where it was not measured, and its bound is lifted.
    pub holding: Option<Holding>,
}

impl Cgroup<'_> {
    /// What it could give; 0 where it gives nothing.
    fn gift_bytes(&self) -> f64 {
        self.holding.filter(gives).map_or(0.0, |holding| holding.excess_bytes())
    }
}

/// What the host has to say about it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// Memory that whoever lacks some can have at once, in bytes.
    pub spare_bytes: f64,
    /// Whether all of it waits for memory: no bound stays.
    pub is_emergency: bool,
}

/// One tick: steps the bounds of all cgroups.
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

/// Whether a file that was told `told` may hold `found`: the kernel rounds down to pages.
pub fn is_as_told(told: Limit<u64>, found: Limit<u64>) -> bool {
    match (told, found) {
        (Limit::Finite(told), Limit::Finite(found)) => told.abs_diff(found) < PAGE_BYTES,
        (told, found) => told == found,
    }
}

/// Whether it has more than its floor, and lacks nothing itself.
fn gives(holding: &Holding) -> bool {
    holding.lacking_bytes == 0.0 && holding.excess_bytes() > 0.0
}

// --- recorded ---

coded!(struct Squeeze {
    held, bound_bytes, probed_bytes, quiet, stand, has_risen, stalled, left_alone, next_left_alone, wanted_lately,
});

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
        // Nothing is set before it is known what was there.
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
        // No more is given than is missing beyond it.
        assert_eq!(step(1000.0, 20.0), Some(990.0));
        assert_eq!(step(990.0, 30.0), Some(990.0));
        // It rises at once where there is that much more than anybody lacks.
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
                // It takes what it may, up to what it can use.
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
        // Needed again soon: it stands for twice as long.
        let second = run(&mut squeezes, 950.0);
        assert!((20..23).contains(&second), "{second}");
        // It is forgotten in the end.
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
        // Five seconds of stalling, a minute alone, five seconds, two minutes.
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
        // A little more is followed.
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
        // So does a counter that is missing.
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
