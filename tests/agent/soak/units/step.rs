//! The steps as values, their generator, and the random policies.

use nix::errno::Errno;
use tenantd_host::systemd::{Property, PropertyValue, Setting};
use tenantd_sim::UnitFault;

use crate::agent::world::MIB;
use crate::soak::spec::Node;
use crate::util::Dice;

/// Units with files that run before the agent, and their cgroups.
pub(super) const SERVICES: [(&str, &str); 3] = [
    ("web.service", "/system.slice/web.service"),
    ("db.service", "/system.slice/db.service"),
    ("user-7.slice", "/user.slice/user-7.slice"),
];
/// A unit without a file.
pub(super) const CI: (&str, &str) = ("ci.service", "/system.slice/ci.service");

/// The tenants that there may be, each with its unit: those that name one, and those that are slices.
const NAMED: [(&str, &str); 4] =
    [("web", "web.service"), ("db", "db.service"), ("ana", "user-7.slice"), ("ci", CI.0)];
const SLICES: [(&str, &str); 4] = [
    ("a", "tenants-a.slice"),
    ("b", "tenants-b.slice"),
    ("g/p", "tenants-g-p.slice"),
    ("g/q", "tenants-g-q.slice"),
];
const GROUP: (&str, &str) = ("g", "tenants-g.slice");
/// The slice above all slices of tenants.
pub(super) const ABOVE: &str = "tenants.slice";
/// The slices above the units that are named.
const ABOVE_NAMED: [&str; 2] = ["system.slice", "user.slice"];

/// Thousandths of a CPU, and MiB.
pub(super) type Limits = (Option<u32>, Option<u32>);

/// A policy.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spec {
    is_enforcing: bool,
    pub(super) accepts_drift: bool,
    named: [Option<Node>; 4],
    slices: [Option<Node>; 4],
}

impl Spec {
    pub(super) fn first() -> Spec {
        let node = || Some(Node::any(&mut Dice::new(7)));
        Spec {
            is_enforcing: true,
            accepts_drift: false,
            named: [node(), None, None, None],
            slices: [node(), None, None, None],
        }
    }

    fn changed(&self, dice: &mut Dice) -> Spec {
        let mut next = self.clone();
        for _ in 0..1 + dice.below(3) {
            let number = dice.index(4);
            let nodes = if dice.below(2) == 0 { &mut next.named } else { &mut next.slices };
            match dice.below(10) {
                0..=3 => nodes[number] = Some(Node::any(dice)),
                4..=5 => nodes[number] = None,
                6..=7 => nodes[number].iter_mut().for_each(|node| node.change(dice)),
                8 => next.accepts_drift = dice.below(3) == 0,
                _ => next.is_enforcing = dice.below(4) != 0,
            }
        }
        if next.named.iter().chain(&next.slices).all(Option::is_none) {
            next.named[0] = Some(Node::any(dice));
        }
        next
    }

    fn nodes(&self) -> impl Iterator<Item = (&'static str, &'static str, &Node)> {
        let named = NAMED.iter().zip(&self.named);
        let all = named.chain(SLICES.iter().zip(&self.slices));
        all.filter_map(|((name, unit), node)| Some((*name, *unit, node.as_ref()?)))
    }

    /// Units whose values are the agent's.
    pub(super) fn units(&self) -> Vec<&'static str> {
        let mut units: Vec<&str> = self.nodes().map(|(_, unit, _)| unit).collect();
        units.extend([GROUP.1, ABOVE]);
        units.extend(ABOVE_NAMED);
        units
    }

    /// The name, the unit and the limits of each tenant.
    pub(super) fn limits(&self) -> Vec<(&'static str, &'static str, Limits)> {
        self.nodes().map(|(name, unit, node)| (name, unit, node.limits())).collect()
    }

    pub(super) fn yaml(&self) -> String {
        let mut text = format!(
            "version: 1\nmode: {}\nhost: {{ reserve: {{ cpu: 0, memory: 64MiB }} }}\n\
             control: {{ interval: 100ms, on_drift: {} }}\ntenants:\n",
            if self.is_enforcing { "enforce" } else { "observe" },
            if self.accepts_drift { "accept" } else { "repair" },
        );
        let mut below = String::new();
        for (name, unit, node) in self.nodes() {
            let keys = node.keys().join(", ");
            match name.split_once('/') {
                Some((_, name)) => below += &format!("      {name}: {{ {keys} }}\n"),
                None if unit.starts_with("tenants-") => {
                    text += &format!("  {name}: {{ owner: systemd, {keys} }}\n");
                }
                None => text += &format!("  {name}: {{ match: {{ unit: {unit} }}, {keys} }}\n"),
            }
        }
        if !below.is_empty() {
            text += &format!("  {}:\n    owner: systemd\n    tenants:\n{below}", GROUP.0);
        }
        text
    }
}

/// What an administrator does to a unit.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    /// `systemctl set-property --runtime`.
    Set(Setting),
    /// `systemctl edit`, and back.
    Edit(Setting),
    Revert(Property),
    /// A change of its file, and `systemctl daemon-reload`.
    File(Setting),
    /// Past systemd, into a file of its cgroup.
    Write(&'static str, String),
    Mask(bool),
    Stop,
    Start,
    Restart,
}

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Tick {
        millis: u32,
    },
    /// Nothing happens for long, and systemd does all that it is asked for.
    Settle,
    Reload(Box<Spec>),
    Enforce(bool),
    Unit {
        unit: &'static str,
        act: Act,
    },
    /// `systemctl daemon-reload`, which on some versions writes the files too.
    DaemonReload {
        writes: bool,
    },
    Spawn {
        unit: &'static str,
        load: u8,
    },
    Kill {
        process: u8,
    },
    Fault(Option<UnitFault>),
    Start,
    Stop,
    Crash,
    Restore,
    DieAt(u16),
    Fail {
        call: u16,
        errno: Errno,
    },
}

/// `count` steps.
pub(super) fn generate(seed: u64, count: usize) -> Vec<Step> {
    let mut dice = Dice::new(seed);
    let mut spec = Spec::first();
    let mut steps = vec![Step::Reload(Box::new(spec.clone())), Step::Start];
    let mut units: Vec<&str> = SERVICES.iter().map(|(unit, _)| *unit).collect();
    units.extend([CI.0, GROUP.1, ABOVE]);
    units.extend(SLICES.iter().map(|(_, unit)| *unit));
    while steps.len() < count {
        let step = match dice.below(100) {
            38 => Step::Settle,
            39..=48 => {
                spec = spec.changed(&mut dice);
                Step::Reload(Box::new(spec.clone()))
            }
            49 => Step::Enforce(dice.below(3) != 0),
            50..=66 => Step::Unit { unit: dice.one_of(&units), act: act(&mut dice) },
            67..=69 => Step::DaemonReload { writes: dice.below(2) == 0 },
            70..=77 => Step::Spawn { unit: dice.one_of(&units), load: dice.below(4) as u8 },
            78..=80 => Step::Kill { process: dice.below(64) as u8 },
            81..=82 => Step::Fault(Some(fault(&mut dice))),
            83..=86 => Step::Fault(None),
            87..=89 => Step::Start,
            90..=91 => Step::Stop,
            92 => Step::Crash,
            93 => Step::Restore,
            94 => Step::DieAt(dice.below(300) as u16),
            95..=96 => {
                let errnos = [Errno::EIO, Errno::ENOMEM, Errno::EACCES, Errno::EBUSY];
                Step::Fail { call: dice.below(300) as u16, errno: dice.one_of(&errnos) }
            }
            _ => Step::Tick { millis: dice.one_of(&[100, 100, 100, 100, 30, 300]) },
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

fn fault(dice: &mut Dice) -> UnitFault {
    dice.one_of(&[
        UnitFault::Away,
        UnitFault::Late,
        UnitFault::Denied,
        UnitFault::Ignores(Property::CpuWeight),
        UnitFault::Ignores(Property::MemoryMax),
    ])
}

fn act(dice: &mut Dice) -> Act {
    match dice.below(20) {
        0..=5 => Act::Set(setting(dice)),
        6..=7 => Act::Edit(setting(dice)),
        8 => Act::File(setting(dice)),
        9 => Act::Revert(dice.one_of(&Property::ALL)),
        10..=11 => {
            let (file, value) = dice.one_of(&[
                ("cpu.weight", "321"),
                ("cpu.max", "70000 100000"),
                ("memory.low", "12582912"),
                ("memory.max", "805306368"),
                ("cpuset.cpus", "0-1"),
            ]);
            Act::Write(file, value.to_string())
        }
        12 => Act::Mask(true),
        13 => Act::Mask(false),
        14 => Act::Stop,
        15..=17 => Act::Start,
        _ => Act::Restart,
    }
}

fn setting(dice: &mut Dice) -> Setting {
    let number = |property, number| Setting { property, value: PropertyValue::Number(number) };
    match dice.below(5) {
        0 => number(Property::CpuWeight, dice.one_of(&[20, 100, 555, 10_000])),
        1 => number(Property::CpuQuotaPerSecUsec, dice.one_of(&[500_000, 3_000_000, u64::MAX])),
        2 => number(Property::MemoryLow, dice.one_of(&[0, 8 * MIB, 1024 * MIB])),
        3 => number(Property::MemoryMax, dice.one_of(&[512 * MIB, 900 * MIB, u64::MAX])),
        _ => {
            let value = PropertyValue::Mask(dice.one_of(&[vec![], vec![1], vec![3]]));
            Setting { property: Property::AllowedCpus, value }
        }
    }
}
