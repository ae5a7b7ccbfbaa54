//! The steps as values, and their generator.
//!
//! A step says what happens, not to whom it happened to be: places are names, processes are numbers modulo those
//! that live. So every step can be taken in any state, where it may do nothing, and a list of steps stays one when
//! some are left out.

use nix::errno::Errno;

use super::spec::Spec;
use crate::util::Dice;

/// A value that an administrator sets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Setting {
    /// On the scale of `cpu.weight`.
    Weight(u32),
    /// Microseconds in a period; no quota.
    Quota(Option<(u32, u32)>),
    ProtectedMib(u32),
    LimitMib(Option<u32>),
    /// A list of CPUs.
    Cpus(&'static str),
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Time passes on the host and on the clock, and the agent ticks.
    Tick {
        host_millis: u32,
        clock_millis: u32,
    },
    /// Nothing happens for long.
    Settle,
    Reload(Box<Spec>),
    /// A reload that needs a restart, and so has no effect.
    ReloadRefused,
    Enforce(bool),
    Set {
        at: &'static str,
        setting: Setting,
    },
    Make(&'static str),
    /// An administrator ends all that lives there, and removes it.
    Remove(&'static str),
    Spawn {
        at: &'static str,
        load: u8,
    },
    Move {
        process: u8,
        to: &'static str,
    },
    Kill {
        process: u8,
    },
    Load {
        process: u8,
        load: u8,
    },
    Cpu {
        cpu: u8,
        is_online: bool,
    },
    Start,
    Stop,
    /// The agent is gone, as by SIGKILL.
    Crash,
    /// `tenantd --restore`, of an agent that does not run.
    Restore,
    /// The agent is killed right before this call of its next turn.
    DieAt(u16),
    /// This call of the agent's next turn fails.
    Fail {
        call: u16,
        errno: Errno,
    },
}

/// Where administrators do things, from the top of the ground: above, beside and below the root (`t`), and in the
/// tenants' own cgroups.
pub(super) const PLACES: [&str; 28] = [
    "",
    "t",
    "other",
    "other/x",
    "apps",
    "apps/one",
    "apps/two",
    "t/beside",
    "t/beside/x",
    "t/a",
    "t/b",
    "t/c",
    "t/d",
    "t/e",
    "t/g",
    "t/g/p",
    "t/g/q",
    "t/g/beside",
    "t/h",
    "t/h/r",
    "t/h/s",
    "t/a/n",
    "t/a/n/m",
    "t/b/n",
    "t/c/n",
    "t/g/p/n",
    "t/g/q/n",
    "t/h/r/n",
];

/// What a stage can do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abilities {
    /// Whether calls can fail on demand.
    pub(crate) faults: bool,
    /// Whether CPUs go and come.
    pub(crate) hotplug: bool,
    /// The interval of the policies, in milliseconds.
    pub(crate) interval_millis: u32,
}

/// `count` steps.
pub(super) fn generate(seed: u64, count: usize, abilities: Abilities) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let mut spec = Spec::first(abilities.interval_millis);
    let mut steps = vec![Step::Reload(Box::new(spec.clone())), Step::Start];
    while steps.len() < count {
        let step = match dice.below(100) {
            0..=37 => tick(&mut dice, abilities.interval_millis),
            38 => Step::Settle,
            39..=49 => {
                spec = spec.changed(&mut dice);
                Step::Reload(Box::new(spec.clone()))
            }
            50 => Step::ReloadRefused,
            51 => Step::Enforce(dice.below(3) != 0),
            52..=61 => Step::Set { at: dice.one_of(&PLACES), setting: setting(&mut dice) },
            62..=66 => Step::Make(dice.one_of(&PLACES[1..])),
            67..=69 => Step::Remove(dice.one_of(&PLACES[2..])),
            70..=76 => Step::Spawn { at: dice.one_of(&PLACES), load: dice.below(6) as u8 },
            77..=81 => Step::Move { process: dice.below(64) as u8, to: dice.one_of(&PLACES) },
            82..=84 => Step::Kill { process: dice.below(64) as u8 },
            85 => Step::Load { process: dice.below(64) as u8, load: dice.below(6) as u8 },
            86..=87 if abilities.hotplug => {
                Step::Cpu { cpu: 1 + dice.below(3) as u8, is_online: dice.below(2) == 0 }
            }
            88..=90 => Step::Start,
            91 => Step::Stop,
            92 => Step::Crash,
            93 => Step::Restore,
            94 if abilities.faults => Step::DieAt(dice.below(300) as u16),
            95..=99 if abilities.faults => {
                // Nothing that says that a thing is gone which is there: kernels do not lie.
                let errnos =
                    [Errno::EIO, Errno::ENOMEM, Errno::EACCES, Errno::EBUSY, Errno::EINVAL];
                let call = dice.below(300) as u16;
                Step::Fail { call, errno: dice.one_of(&errnos) }
            }
            _ => tick(&mut dice, abilities.interval_millis),
        };
        let ends = matches!(step, Step::Stop | Step::Crash | Step::Restore);
        steps.push(step);
        if ends && dice.below(4) != 0 {
            steps.push(Step::Start);
        }
    }
    steps.truncate(count);
    steps
}

/// Mostly in time; now and then early, late, after a suspend, or with a clock that jumped.
fn tick(dice: &mut Dice, interval: u32) -> Step {
    let (host_millis, clock_millis) = match dice.below(20) {
        0 => (1, 1),
        1 => (interval / 3, interval / 3),
        2 => (interval / 2, interval / 2),
        3 => (3 * interval, 3 * interval),
        4 => (interval, 60 * interval),
        5 => (2 * interval, interval),
        6 => (interval, 5),
        7 => (0, interval),
        _ => (interval, interval),
    };
    Step::Tick { host_millis, clock_millis }
}

fn setting(dice: &mut Dice) -> Setting {
    match dice.below(9) {
        0..=1 => Setting::Weight(dice.one_of(&[1, 7, 100, 500, 10_000])),
        2..=4 => Setting::Quota(dice.one_of(&[
            None,
            None,
            Some((20_000, 100_000)),
            Some((90_000, 50_000)),
            Some((50_000, 20_000)),
            Some((400_000, 100_000)),
        ])),
        5 => Setting::ProtectedMib(dice.one_of(&[0, 4, 64, 1024])),
        6..=7 => Setting::LimitMib(dice.one_of(&[None, None, Some(512), Some(1024)])),
        _ => Setting::Cpus(dice.one_of(&["0", "0-1", "1", "0-3", ""])),
    }
}
