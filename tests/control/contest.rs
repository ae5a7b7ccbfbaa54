//! When the agent gives way: against writers that never rest, that rest, and that give up.

use proptest::prelude::*;
use tenantd_control::state::contest::{
    Contests, PAUSE_TICKS, PAUSE_TICKS_MAX, ROUNDS, WINDOW_TICKS,
};
use tenantd_control::words::knob::Knob;

const KNOB: Knob = Knob::CpuWeight;
/// Interval in ticks at which a file is read.
const READ_TICKS: u64 = 10;

/// A file, the agent that writes it, and the ticks in which another program writes it.
#[derive(Debug, Default)]
struct Fight {
    contests: Contests,
    is_ours: bool,
    nr_writes: u64,
    yielded_at: Vec<u64>,
}

impl Fight {
    fn tick(&mut self, tick: u64, is_overwritten: bool) {
        self.contests.begin_tick(tick);
        let was_ours = self.is_ours;
        self.is_ours &= !is_overwritten;
        if !tick.is_multiple_of(READ_TICKS) {
            return;
        }
        let yields = was_ours && !self.is_ours && self.contests.lose_round(KNOB, tick);
        self.yielded_at.extend(yields.then_some(tick));
        if !self.is_ours && !self.contests.has_yielded(KNOB) {
            self.is_ours = true;
            self.nr_writes += 1;
        }
    }

    fn run(is_overwritten: impl Fn(u64) -> bool, nr_ticks: u64) -> Fight {
        let mut fight = Fight::default();
        for tick in 1..=nr_ticks {
            // What it was read to hold is overwritten right before the next reading.
            fight.tick(tick, tick.is_multiple_of(READ_TICKS) && is_overwritten(tick));
        }
        fight
    }
}

#[test]
fn pauses_double_up_to_the_longest_and_each_ends_with_one_write() {
    let fight = Fight::run(|_| true, 100_000);
    let pauses: Vec<u64> = fight.yielded_at.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut expected = PAUSE_TICKS;
    for pause in pauses {
        // The write that is tried after it is read again ten ticks later.
        assert_eq!(pause, expected + READ_TICKS);
        expected = (2 * expected).min(PAUSE_TICKS_MAX);
    }
    assert_eq!(expected, PAUSE_TICKS_MAX);
    assert_eq!(fight.nr_writes, (ROUNDS + fight.yielded_at.len() - 1) as u64);
}

#[test]
fn the_agent_may_be_told_to_try_at_once() {
    let mut contests = Contests::default();
    let losses: Vec<bool> =
        (1..=ROUNDS as u64).map(|tick| contests.lose_round(KNOB, tick)).collect();
    assert_eq!(losses, [false, false, false, false, true]);
    contests.try_again(7);
    contests.begin_tick(8);
    assert!(!contests.has_yielded(KNOB));
    assert!(contests.lose_round(KNOB, 8), "one more is enough");
    assert_eq!(contests.yielded().next().unwrap().pause_ticks, 2 * PAUSE_TICKS);
    contests.forget(KNOB);
    assert_eq!(contests, Contests::default());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_writer_that_rests_long_enough_is_overwritten_every_time(
        rest in (WINDOW_TICKS / READ_TICKS).div_ceil(ROUNDS as u64 - 1)..20, offset in 0_u64..20,
    ) {
        let fight = Fight::run(|tick| tick / READ_TICKS % rest == offset % rest, 3_000);
        prop_assert_eq!(fight.yielded_at, Vec::<u64>::new());
        prop_assert!(fight.nr_writes >= 3_000 / READ_TICKS / rest - 1);
    }

    #[test]
    fn one_that_gives_up_is_noticed_within_a_pause(
        mask in prop::collection::vec(prop::bool::weighted(0.9), 20..400), seen in 0_u64..10,
    ) {
        let end = mask.len() as u64 * READ_TICKS + seen;
        let writes = |tick: u64| mask.get((tick / READ_TICKS) as usize).copied().unwrap_or(false);
        let mut fight = Fight::run(writes, end);
        let pause = fight.contests.yielded().next().map_or(0, |contest| contest.pause_ticks);
        for tick in end + 1..=end + pause + READ_TICKS {
            fight.tick(tick, false);
        }
        prop_assert!(fight.is_ours);
        for tick in 1..=2 * WINDOW_TICKS {
            fight.tick(end + pause + READ_TICKS + tick, false);
        }
        prop_assert_eq!(fight.contests, Contests::default());
    }
}
