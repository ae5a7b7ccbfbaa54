//! Credits over whole ticks, on a kernel that divides CPU time exactly by the weights in its files.

#![allow(clippy::unwrap_used, reason = "a test asserts; it need not handle")]

use std::time::Duration;

use tenantd_control::measure::sample::{HostSample, MemorySample, TenantSample};
use tenantd_control::share::credit::Credit;
use tenantd_control::share::govern;
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::{Decision, Input, NodeInput, Settings};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{Ancestor, CgroupParent, Tree, flatten};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_fair::max_min::{self, Claim};
use tenantd_policy::Policy;

const GIB: u64 = 1 << 30;
/// Parts of a second in which the kernel divides.
const PARTS: u32 = 20;

/// CPUs that a tenant wants at a time, in seconds since the start.
type Load = fn(f64) -> f64;

/// Two threads for one of every four seconds; ticks do not begin with the load.
fn bursty(time: f64) -> f64 {
    if (time + 0.37) % 4.0 < 1.0 { 2.0 } else { 0.0 }
}

/// A load that is on and off by turns.
struct Strategy {
    /// Lengths of the turns, which repeat, the first of them on.
    turns: Vec<f64>,
    threads: f64,
}

impl Strategy {
    fn at(&self, time: f64) -> f64 {
        let mut left = time % self.turns.iter().sum::<f64>();
        for (index, turn) in self.turns.iter().enumerate() {
            if left < *turn {
                return if index % 2 == 0 { self.threads } else { 0.0 };
            }
            left -= turn;
        }
        0.0
    }

    /// A regular, a random or a whole-second one, of turns from 0.1 s to 40 s.
    fn random(random: &mut Random) -> Strategy {
        let (kind, nr_turns) = (random.below(3), [2, 12, 2][random.below(3)]);
        let turn = |random: &mut Random| {
            let seconds = 0.1 * 400_f64.powf(random.part());
            if kind == 2 { seconds.ceil() } else { seconds }
        };
        let turns = (0..nr_turns).map(|_| turn(random)).collect();
        Strategy { turns, threads: 0.5 + 3.5 * random.part() }
    }
}

/// A linear congruential generator (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn part(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, most: usize) -> usize {
        (self.part() * most as f64) as usize
    }
}

fn heavy(_: f64) -> f64 {
    4.0
}

fn asleep(_: f64) -> f64 {
    0.0
}

/// A machine of two CPUs and the control loop on it.
struct World {
    control: ControlLoop,
    loads: Vec<Load>,
    /// Loads instead of those, by number.
    strategies: Vec<(usize, Strategy)>,
    /// Of work that belongs to no tenant, with a weight of 100 at the top.
    foreign: Load,
    weights: Vec<f64>,
    used_usec: Vec<u64>,
    waited_usec: Vec<u64>,
    busy_usec: u64,
    seconds: u64,
    /// Nodes whose counters cannot be read.
    unread: Vec<usize>,
    nr_written: Vec<usize>,
}

fn policy(yaml: &str) -> Policy {
    let loaded = tenantd_policy::load_text("policy.yaml", &format!("version: 1\n{yaml}"));
    loaded.unwrap_or_else(|report| panic!("{report:?}")).policy
}

impl World {
    fn new(yaml: &str, loads: &[Load]) -> World {
        let policy = policy(yaml);
        let tree = Tree::new(flatten(&policy).into());
        World::on(tree, &policy, loads)
    }

    fn on(tree: Tree, policy: &Policy, loads: &[Load]) -> World {
        let nr = tree.len();
        World {
            control: ControlLoop::new(Settings::of(policy, false, true), tree),
            loads: loads.to_vec(),
            strategies: Vec::new(),
            foreign: asleep,
            weights: vec![100.0; nr],
            used_usec: vec![0; nr],
            waited_usec: vec![0; nr],
            busy_usec: 0,
            seconds: 0,
            unread: Vec::new(),
            nr_written: vec![0; nr],
        }
    }

    fn number(&self, name: &str) -> usize {
        let nodes = self.control.tree().nodes();
        nodes.iter().position(|node| node.path == name).unwrap()
    }

    fn credit(&self, name: &str) -> Credit {
        self.control.states()[self.number(name)].credit
    }

    fn load(&self, number: usize, time: f64) -> f64 {
        match self.strategies.iter().find(|(of, _)| *of == number) {
            Some((_, strategy)) => strategy.at(time),
            None => (self.loads[number])(time),
        }
    }

    /// CPUs that each number uses at a time.
    fn divided(&self, time: f64) -> Vec<f64> {
        let tree = self.control.tree();
        let wants =
            |number: usize| if tree.at(number).has_work() { self.load(number, time) } else { 0.0 };
        let mut wanted: Vec<f64> = (0..tree.len()).map(wants).collect();
        for node in tree.from_above().rev() {
            if let CgroupParent::Governed(parent) = node.parent() {
                wanted[parent] += wanted[node.at()];
            }
        }
        let mut used = vec![0.0; tree.len()];
        let below = |parent: Option<usize>| -> Vec<usize> {
            let is_below = |number: &usize| match tree.parents()[*number] {
                CgroupParent::Governed(above) => Some(above) == parent,
                _ => parent.is_none(),
            };
            (0..tree.len()).filter(is_below).collect()
        };
        for parent in std::iter::once(None).chain(tree.from_above().map(|node| Some(node.at()))) {
            let siblings = below(parent);
            let claim = |weight: f64, ceiling: f64| Claim { weight, floor: 0.0, ceiling };
            let mut claims: Vec<Claim> = siblings
                .iter()
                .map(|number| claim(self.weights[*number], wanted[*number]))
                .collect();
            if parent.is_none() {
                claims.push(claim(100.0, (self.foreign)(time)));
            }
            let whole = parent.map_or(2.0, |parent| used[parent]);
            let shares = max_min::divide(whole, &claims).allocation;
            for (number, share) in siblings.iter().zip(shares) {
                used[*number] = share;
            }
        }
        used
    }

    /// One second; what each number used in it, and the decision.
    fn tick(&mut self) -> (Vec<f64>, Decision) {
        let nr = self.control.tree().len();
        let mut used = vec![0.0; nr];
        for part in 0..PARTS {
            let time = self.seconds as f64 + f64::from(part) / f64::from(PARTS);
            let now = self.divided(time);
            for number in 0..nr {
                let usec = 1e6 / f64::from(PARTS);
                used[number] += now[number] / f64::from(PARTS);
                self.used_usec[number] += (now[number] * usec) as u64;
                if self.control.tree().at(number).has_work() {
                    self.busy_usec += (now[number] * usec) as u64;
                    let waits = self.load(number, time) > now[number] + 1e-3;
                    self.waited_usec[number] += if waits { usec as u64 } else { 0 };
                }
            }
            let foreign = 2.0
                - (0..nr)
                    .filter(|n| self.control.tree().at(*n).has_work())
                    .map(|n| now[n])
                    .sum::<f64>();
            self.busy_usec += (foreign.min((self.foreign)(time)) * 1e6 / f64::from(PARTS)) as u64;
        }
        self.seconds += 1;
        let input = self.input();
        self.control.apply(Event::Begin);
        let decision = self.control.apply(Event::step(input)).unwrap();
        for action in &decision.actions {
            if let (Knob::CpuWeight, Value::Weight(weight)) = (action.knob, &action.to) {
                let at = self.control.tree().position(action.node).unwrap();
                self.weights[at] = weight.round();
                self.nr_written[at] += 1;
            }
            let held = match &action.to {
                Value::Weight(weight) => Value::Weight(weight.round()),
                other => other.clone(),
            };
            self.control.apply(Event::settle((action.clone(), Ok(held))));
        }
        (used, decision)
    }

    fn input(&self) -> Input {
        let tree = self.control.tree();
        let sample = |number: usize| TenantSample {
            generation: 1,
            populated: Some(true),
            usage_usec: Some(self.used_usec[number]),
            cpu_some_usec: Some(self.waited_usec[number]),
            memory: Some(MemorySample { current_bytes: GIB / 8, ..MemorySample::default() }),
            ..TenantSample::default()
        };
        let node = |number: usize| NodeInput {
            is_governed: true,
            is_present: true,
            sample: ((tree.at(number).has_work() || tree.at(number).is_ancestor())
                && !self.unread.contains(&number))
            .then(|| sample(number)),
            observed: (self.seconds == 1).then(|| {
                let value = Value::Weight(100.0);
                vec![Observation { knob: Knob::CpuWeight, value, is_ours: false }]
            }),
            ..NodeInput::default()
        };
        let host = HostSample {
            nr_cpus: 2,
            busy_usec: Some(self.busy_usec),
            memory_total_bytes: 16 * GIB,
            memory_available_bytes: Some(8 * GIB),
            unreclaimable_bytes: Some(GIB),
            ..HostSample::default()
        };
        let now = Duration::from_secs(self.seconds);
        Input { now, host, nodes: (0..tree.len()).map(node).collect(), ..Input::default() }
    }

    fn ticks(&mut self, count: usize) {
        for _ in 0..count {
            self.tick();
        }
    }

    /// The CPUs of a period: the tick in which `number` used most, and the means of all.
    fn period(&mut self, number: usize, ticks: usize) -> (Vec<f64>, Vec<f64>) {
        let each: Vec<Vec<f64>> = (0..ticks).map(|_| self.tick().0).collect();
        let most = each.iter().max_by(|a, b| a[number].total_cmp(&b[number])).unwrap().clone();
        let mean = |n: usize| each.iter().map(|it| it[n]).sum::<f64>() / ticks as f64;
        (most, (0..each[0].len()).map(mean).collect())
    }
}

const OFF: &str = "tenants: { b: { weight: 200 }, c: {}, d: {} }";
const ON: &str = "control: { credits: {} }\ntenants: { b: { weight: 200 }, c: {}, d: {} }";
const LOADS: [Load; 3] = [bursty, heavy, heavy];

#[test]
fn a_burst_runs_as_if_alone() {
    let (mut off, mut on) = (World::new(OFF, &LOADS), World::new(ON, &LOADS));
    off.ticks(60);
    on.ticks(60);
    // The load of one second is in two ticks.
    let (_, plain) = off.period(0, 40);
    let (_, with_credit) = on.period(0, 40);
    assert!((plain[0] - 0.25).abs() < 0.01, "{plain:?}");
    assert!((with_credit[0] - 0.475).abs() < 0.01, "{with_credit:?}");
}

#[test]
fn only_the_raised_file_changes_and_rests() {
    let mut world = World::new(ON, &LOADS);
    world.ticks(2);
    let before = world.weights.clone();
    world.nr_written = vec![0; 3];
    world.ticks(60);
    assert!(world.nr_written[0] > 0 && world.nr_written[1..] == [0, 0], "{:?}", world.nr_written);
    assert_eq!(world.weights[1..], before[1..]);
    let ratio = world.weights[0] / world.weights[1];
    assert!((30.0..=100.0).contains(&ratio), "{:?}", world.weights);
    world.nr_written = vec![0; 3];
    world.ticks(300);
    assert!(world.nr_written[0] <= 10, "{:?}", world.nr_written);
}

/// Without the key banks are kept in shadow, and the decisions are those of a loop whose tenants never have one.
#[test]
fn without_the_key_nothing_is_decided_otherwise() {
    let none = "control: { credits: {} }\n\
                tenants: { b: { weight: 200, credits: false }, c: { credits: false }, d: { credits: false } }";
    let (mut off, mut none) = (World::new(OFF, &LOADS), World::new(none, &LOADS));
    for _ in 0..100 {
        let (a, b) = (off.tick().1, none.tick().1);
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
    }
    let (shadow, excluded) = (off.credit("b"), none.credit("b"));
    assert!(shadow.account.bank > 5.0 && shadow.account.factor == 1.0, "{shadow:?}");
    assert!(excluded.account.bank <= 0.0, "{excluded:?}");
}

#[test]
fn a_guarantee_and_a_tenth_are_there_during_a_burst() {
    let yaml =
        "control: { credits: {} }\ntenants: { b: {}, c: { guarantee: { cpu: 400m } }, d: {} }";
    let mut world = World::new(yaml, &LOADS);
    world.ticks(60);
    let mut most: f64 = 0.0;
    for _ in 0..40 {
        let used = world.tick().0;
        assert!(used[1] >= 0.39 && used[2] >= 0.06, "{used:?}");
        most = most.max(used[0]);
    }
    assert!(most > 0.7, "nothing is raised: {most}");
}

/// Payers have what is left to them: none of them is short, starved, or an episode of unfairness.
#[test]
fn measures_count_what_is_due_after_credit() {
    let mut world = World::new(ON, &LOADS);
    world.ticks(60);
    for _ in 0..40 {
        world.tick();
        for (number, state) in world.control.states().iter().enumerate().skip(1) {
            let error = state.share_error.unwrap();
            assert!(error <= 0.05, "{number}: {error} with {:?}", state.target);
            assert!(state.faults.starved.time() == Duration::ZERO, "{number} is starved");
        }
    }
}

#[test]
fn a_group_has_a_bank_and_so_has_each_member() {
    let yaml = "control: { credits: {} }\ntenants: { g: { tenants: { b: {}, e: {} } }, c: {} }";
    let mut world = World::new(yaml, &[asleep, bursty, heavy, heavy]);
    world.ticks(60);
    let (b, e, g) = (world.credit("g/b"), world.credit("g/e"), world.credit("g"));
    assert!(b.account.bank > 1.0 && b.account.factor > 5.0, "{b:?}");
    assert!(e.account.factor == 1.0 && g.account.factor == 1.0, "{e:?} {g:?}");
    let mut world = World::new(yaml, &[asleep, bursty, asleep, heavy]);
    world.ticks(60);
    let g = world.credit("g");
    assert!(g.account.bank > 1.0 && g.account.factor > 5.0, "{g:?}");
}

#[test]
fn a_sample_that_is_missing_once_changes_nothing_and_twice_ends_the_boost() {
    let mut world = World::new(ON, &LOADS);
    world.ticks(61);
    let before = world.credit("b");
    assert!(before.account.factor > 10.0, "{before:?}");
    world.unread = vec![0];
    world.tick();
    let once = world.credit("b");
    assert_eq!(
        (once.account.step, once.entry.earned, once.entry.charged),
        (before.account.step, 0.0, 0.0)
    );
    assert!(once.account.bank <= before.account.bank && once.account.factor > 10.0, "{once:?}");
    world.tick();
    assert_eq!(world.credit("b").account.factor, 1.0);
    assert!(world.credit("b").account.bank > 0.9 * before.account.bank);
}

/// Beside work of others the governed cgroups keep their weight together.
#[test]
fn siblings_of_others_keep_their_place() {
    let policy = policy("control: { credits: {} }\ntenants: { b: { weight: 200 }, c: {}, d: {} }");
    let ancestor = Ancestor {
        name: "work.slice".to_string(),
        cgroup: "/work.slice".to_string(),
        parent: CgroupParent::Top,
        is_unit: true,
        is_shared: true,
        has_protection: true,
    };
    let parents = vec![CgroupParent::Governed(3), CgroupParent::Top, CgroupParent::Top];
    let tree = Tree::below(flatten(&policy).into(), parents, Vec::new(), vec![ancestor]);
    let loads: [Load; 4] = [bursty, heavy, heavy, asleep];
    let mut world = World::on(tree, &policy, &loads);
    world.foreign = heavy;
    world.ticks(5);
    let before: f64 = [1, 2, 3].iter().map(|n| world.weights[*n]).sum();
    world.ticks(100);
    let after: f64 = [1, 2, 3].iter().map(|n| world.weights[*n]).sum();
    assert!((before - after).abs() <= 0.06 * before, "{before} {after}");
    assert!(world.credit("b").account.factor > 3.0, "{:?}", world.credit("b"));
    assert!(world.weights[3] > 2.0 * world.weights[1], "{:?}", world.weights);
    let written = govern::weighed_ancestors(world.control.tree());
    assert_eq!(written, [3]);
}

const EQUAL: &str = "control: { credits: {} }\ntenants: { a: {}, b: {}, c: {} }";

/// CPU seconds of each tenant of `EQUAL` in so many seconds, where those in `strategies` do not always want everything.
fn work(strategies: Vec<(usize, Strategy)>, loads: [Load; 3], seconds: usize) -> Vec<f64> {
    let mut world = World::new(EQUAL, &loads);
    world.strategies = strategies;
    let each: Vec<Vec<f64>> = (0..seconds).map(|_| world.tick().0).collect();
    (0..3).map(|number| each.iter().map(|used| used[number]).sum()).collect()
}

/// Who wants all it can get by turns comes to its weight and not beyond; the others keep theirs.
#[test]
fn ten_minutes_of_on_and_off_give_the_weight_and_no_more() {
    for turn in [2.0, 10.0] {
        let strategy = Strategy { turns: vec![turn, turn], threads: 4.0 };
        let work = work(vec![(0, strategy)], [heavy; 3], 600);
        let whole = 2.0 * 600.0;
        let shares: Vec<f64> = work.iter().map(|seconds| seconds / whole).collect();
        assert!((0.25..=1.0 / 3.0 + 0.02).contains(&shares[0]), "{turn} s: {shares:?}");
        assert!(shares[1..].iter().all(|it| *it >= 1.0 / 3.0 - 0.02), "{turn} s: {shares:?}");
    }
}

/// The most that one of so many random strategies, and a pair of so many, gets beside constant hunger.
fn best_of(nr_strategies: usize, nr_pairs: usize) -> [f64; 2] {
    let mut random = Random(7);
    let (mut one, mut two) = (0.0_f64, 0.0_f64);
    for loads in [[heavy as Load, heavy, heavy], [heavy, bursty, heavy]] {
        let honest = work(Vec::new(), loads, 300)[0];
        for _ in 0..nr_strategies / 2 {
            let strategy = Strategy::random(&mut random);
            one = one.max(work(vec![(0, strategy)], loads, 300)[0] / honest);
        }
    }
    let pair = |strategies| work(strategies, [heavy; 3], 300)[..2].iter().sum::<f64>();
    let honest = pair(Vec::new());
    for _ in 0..nr_pairs {
        let strategies = [0, 1].map(|number| (number, Strategy::random(&mut random))).into();
        two = two.max(pair(strategies) / honest);
    }
    [one, two]
}

#[test]
fn no_pattern_of_use_gains() {
    let best = best_of(16, 8);
    assert!(best.iter().all(|it| *it <= 1.02), "{best:?}");
}

#[test]
#[ignore = "takes half a minute: 200 strategies and 100 pairs"]
fn none_of_many_patterns_of_use_gains() {
    let best = best_of(200, 100);
    assert!(best.iter().all(|it| *it <= 1.02), "{best:?}");
}
