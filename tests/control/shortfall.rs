//! Whoever wants something and does not get it has a reason, and nobody else.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::measure::sample::{HostSample, MemorySample, TenantSample};
use tenantd_control::report::reason::{
    Binding, Inside, KernelLimit, LimitAbove, NotWritten, Outsider, Reason, Surroundings,
};
use tenantd_control::state::step::{Input, NodeInput, Settings};
use tenantd_control::state::{NodeState, Refusal};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::bounds::AncestorBounds;
use tenantd_control::tree::{self, Tree, TreeNode};
use tenantd_core::resource::{CPU, MEMORY, PerResource};

use super::{CORES, MEMORY_BYTES, nodes};

const SECOND: Duration = Duration::from_secs(1);

/// What one tenant does in one second.
#[derive(Clone, Debug, Default)]
struct Second {
    used_cores: f64,
    /// Parts of the time in which some task waits for a CPU, for memory, and for input or output.
    waits: [f64; 3],
    throttled: bool,
    reclaimed: bool,
    met_limit: bool,
    held_bytes: f64,
    refaults: u64,
    surroundings: Option<Surroundings>,
}

/// A machine of so many CPUs, in values, on which all that is decided is written.
struct World {
    control: ControlLoop,
    now: Duration,
    nr_cpus: u32,
    busy_usec: u64,
    idle_usec: u64,
    above: AncestorBounds,
    samples: Vec<TenantSample>,
    /// What the kernel says to writes.
    refusal: Option<Refusal>,
}

impl World {
    fn new(nodes: Vec<TreeNode>, nr_cpus: u32, is_enforcing: bool) -> World {
        let settings = Settings::of(&Default::default(), false, is_enforcing);
        let sample = TenantSample {
            generation: 1,
            populated: Some(true),
            usage_usec: Some(0),
            nr_throttled: Some(0),
            cpu_some_usec: Some(0),
            memory_some_usec: Some(0),
            io_some_usec: Some(0),
            memory: Some(MemorySample {
                refaults: Some(0),
                nr_low_events: Some(0),
                nr_max_events: Some(0),
                ..MemorySample::default()
            }),
            ..TenantSample::default()
        };
        World {
            samples: vec![sample; nodes.len()],
            control: ControlLoop::new(settings, Tree::new(nodes.into())),
            now: Duration::ZERO,
            nr_cpus,
            busy_usec: 0,
            idle_usec: 0,
            above: AncestorBounds::default(),
            refusal: None,
        }
    }

    fn of(policy: &str, nr_cpus: u32) -> World {
        let text = format!("version: 1\ntenants:\n{policy}");
        let policy = tenantd_policy::load_text("policy.yaml", &text).unwrap().policy;
        World::new(tree::flatten(&policy), nr_cpus, true)
    }

    /// A second in which the leaves do what `seconds` say, and others use `outside_cores`.
    fn pass(&mut self, seconds: &[Second], outside_cores: f64) {
        self.now += SECOND;
        let busy_usec = self.busy_usec;
        self.busy_usec += (outside_cores * 1e6) as u64;
        let tree = self.control.tree().clone();
        let mut seconds = seconds.iter().cycle();
        let mut inputs = Vec::new();
        for (node, sample) in tree.nodes().iter().zip(&mut self.samples) {
            let mut input =
                NodeInput { is_governed: true, is_present: true, ..NodeInput::default() };
            if node.is_leaf {
                let second = seconds.next().unwrap();
                let add =
                    |count: &mut Option<u64>, more: f64| *count.as_mut().unwrap() += more as u64;
                add(&mut sample.usage_usec, second.used_cores * 1e6);
                add(&mut sample.nr_throttled, f64::from(second.throttled));
                add(&mut sample.cpu_some_usec, second.waits[0] * 1e6);
                add(&mut sample.memory_some_usec, second.waits[1] * 1e6);
                add(&mut sample.io_some_usec, second.waits[2] * 1e6);
                let memory = sample.memory.as_mut().unwrap();
                memory.current_bytes = second.held_bytes as u64;
                add(&mut memory.refaults, second.refaults as f64);
                add(&mut memory.nr_low_events, f64::from(second.reclaimed));
                add(&mut memory.nr_max_events, f64::from(second.met_limit));
                self.busy_usec += (second.used_cores * 1e6) as u64;
                input.sample = Some(sample.clone());
                input.surroundings = second.surroundings.clone().map(Box::new);
            }
            inputs.push(input);
        }
        let all_usec = u64::from(self.nr_cpus) * 1_000_000;
        self.idle_usec += all_usec.saturating_sub(self.busy_usec - busy_usec);
        let host = HostSample {
            nr_cpus: self.nr_cpus,
            busy_usec: Some(self.busy_usec),
            idle_usec: Some(self.idle_usec),
            memory_total_bytes: MEMORY_BYTES as u64,
            memory_available_bytes: Some(MEMORY_BYTES as u64 / 2),
            ..HostSample::default()
        };
        self.control.apply(Event::Begin);
        let (now, nodes, above) = (self.now, inputs, self.above);
        let input = Input { now, host, nodes, above, ..Input::default() };
        let decision = self.control.apply(Event::step(input)).unwrap();
        for action in decision.actions {
            if self.control.settings().is_enforcing && self.control.is_due(&action) {
                let outcome = self.refusal.clone().map_or(Ok(action.to.clone()), Err);
                self.control.apply(Event::settle((action, outcome)));
            }
        }
    }

    fn passes(&mut self, count: usize, seconds: &[Second], outside_cores: f64) {
        (0..count).for_each(|_| self.pass(seconds, outside_cores));
    }

    fn state(&self, name: &str) -> &NodeState {
        let nodes = self.control.tree().nodes();
        &self.control.states()[nodes.iter().position(|node| node.path == name).unwrap()]
    }

    fn reasons(&self, name: &str) -> Vec<Reason> {
        self.state(name).shortfall.as_ref().map_or_else(Vec::new, |it| it.reasons.clone())
    }

    /// The reasons of a tenant as text, one in a line.
    fn said(&self, name: &str) -> String {
        self.reasons(name).iter().map(|reason| format!("{reason}\n")).collect()
    }
}

/// A tenant that uses so many CPUs while its tasks wait all the time.
fn hungry(used_cores: f64) -> Second {
    Second { used_cores, waits: [1.0, 0.0, 0.0], ..Second::default() }
}

fn idle() -> Second {
    Second::default()
}

fn second() -> impl Strategy<Value = Second> {
    let ratio = || prop_oneof![2 => Just(0.0), 1 => 0.0..1.0_f64];
    let flag = || prop::bool::weighted(0.1);
    let flags = (flag(), flag(), flag());
    let amounts = (0.0..1.0_f64, 0.0..1.0_f64, 0..3_u64);
    (amounts, [ratio(), ratio(), ratio()], flags).prop_map(
        |((used, held, refaults), waits, (throttled, reclaimed, met_limit))| Second {
            used_cores: used * CORES / 4.0,
            held_bytes: held * MEMORY_BYTES / 12.0,
            waits,
            throttled,
            reclaimed,
            met_limit,
            refaults: refaults * 100_000,
            surroundings: None,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn who_wants_and_does_not_get_has_a_reason_and_who_gets_has_none(
        nodes in nodes(),
        story in vec((vec(second(), 12), 0.0..CORES), 2..12),
        is_enforcing in any::<bool>(),
        quota in prop::option::of(0.5..CORES),
    ) {
        let mut world = World::new(nodes, CORES as u32, is_enforcing);
        world.above.limit[CPU] = quota;
        for (number, (seconds, outside_cores)) in story.iter().enumerate() {
            world.pass(seconds, *outside_cores);
            if number == 0 {
                continue;
            }
            let leaves = world.control.tree().nodes().iter().zip(world.control.states());
            let leaves = leaves.filter(|(node, _)| node.is_leaf).zip(seconds.iter().cycle());
            for ((node, state), second) in leaves {
                let shortfall = state.shortfall.as_deref();
                let (usage, demand) = (state.usage.unwrap(), state.demand.unwrap());
                let waits = second.waits.map(|ratio| ratio > 0.02);
                let is_wanting = state.share_error.unwrap() > 0.05
                    || second.throttled
                    || second.reclaimed
                    || state.measured().unwrap().is_starved()
                    || (second.met_limit && waits[1]);
                prop_assert!(!is_wanting || shortfall.is_some(), "{}: {second:?}", node.path);
                let is_content = !second.throttled && !second.reclaimed && !waits[1]
                    && (!waits[0] || usage.cpu_cores >= demand.amount[CPU]);
                prop_assert!(!is_content || shortfall.is_none(), "{}: {shortfall:?}", node.path);
                if let Some(shortfall) = shortfall {
                    prop_assert!(!shortfall.reasons.is_empty(), "{}: {second:?}", node.path);
                    prop_assert!(shortfall.missing.0.iter().all(|it| it.is_finite() && *it >= 0.0));
                }
            }
        }
    }
}

#[test]
fn work_of_no_tenant_is_named_with_its_largest() {
    let mut world = World::of("  a: {}\n  b: {}\n", 2);
    let around = Surroundings {
        outsiders: [
            Outsider {
                cgroup: "/x.slice".into(),
                command: Some("hog".into()),
                cores: 1.9,
                ..Default::default()
            },
            Outsider { cgroup: "/".into(), is_direct: true, cores: 0.05, ..Default::default() },
        ]
        .into(),
        ..Surroundings::default()
    };
    let a = Second { surroundings: Some(around), ..hungry(0.1) };
    world.passes(8, &[a, idle()], 1.9);
    assert_eq!(
        world.said("a"),
        "work of no tenant uses 1.90 CPUs beyond the reserve; most CPUs beside it: /x.slice (hog) 1.90, \
         processes directly in / 0.05\n"
    );
    // It would have all that the other one leaves.
    let shortfall = world.state("a").shortfall.as_ref().unwrap();
    assert!((shortfall.missing[CPU] - 1.0).abs() < 0.01, "{shortfall:?}");
    assert_eq!(world.reasons("b"), []);
    // It is no reason where it fits into what the tenant leaves.
    world.passes(8, &[Second { waits: [0.1, 0.0, 0.0], ..hungry(0.1) }, idle()], 0.2);
    assert!(!world.said("a").contains("work of no tenant"), "{}", world.said("a"));
}

/// No figure of 0.00 CPUs is a reason: the tenant's own tasks do not get to the CPUs.
#[test]
fn a_tenant_without_competitors_may_be_bound_to_few_cpus() {
    let mut world = World::of("  a: {}\n  b: {}\n", 2);
    for _ in 0..8 {
        let idle_usec = world.idle_usec;
        world.pass(&[hungry(0.4), idle()], 0.0);
        // Nothing is idle either.
        world.idle_usec = idle_usec;
    }
    assert_eq!(world.reasons("a").len(), 1, "{}", world.said("a"));
    assert!(world.said("a").contains("taskset -cp PID"), "{}", world.said("a"));
}

/// The CPUs of an affinity that the agent did not set are named, where they are fewer than the tenant is due.
#[test]
fn an_affinity_of_its_own_is_a_reason() {
    let mut world = World::of("  a: {}\n  b: {}\n", 4);
    let bound = |cpus: &str, nr_cpus| {
        let binding = Some(Binding { cpus: cpus.into(), nr_cpus });
        Second { surroundings: Some(Surroundings { binding, ..Default::default() }), ..hungry(1.0) }
    };
    world.passes(8, &[bound("2", 1), idle()], 0.0);
    let said = world.said("a");
    assert!(
        said.starts_with("its running threads are bound to CPU 2, which is 1: by taskset"),
        "{said}"
    );
    assert_eq!(world.reasons("a").len(), 1, "{said}");
    world.passes(8, &[bound("0-3", 4), idle()], 0.0);
    assert!(!world.said("a").contains("bound to CPUs 0-3"), "{}", world.said("a"));
    // The limit of an ancestor is not the tenant's own doing.
    world.above = AncestorBounds { nr_cpus: Some(1), ..AncestorBounds::default() };
    world.passes(8, &[bound("2", 1), idle()], 0.0);
    assert!(!world.said("a").contains("are bound to CPU"), "{}", world.said("a"));
}

#[test]
fn a_limit_of_the_kernel_is_a_reason() {
    let mut world = World::of("  a: {}\n  b: {}\n", 4);
    world.above.limit[CPU] = Some(1.0);
    world.passes(6, &[hungry(0.5), hungry(0.5)], 0.0);
    assert_eq!(world.said("b"), "a limit above the tenants allows all of them 1.00 CPUs\n");
    world.above = AncestorBounds { nr_cpus: Some(1), ..AncestorBounds::default() };
    world.pass(&[hungry(0.5), hungry(0.5)], 0.0);
    let cpus = Reason::Kernel(KernelLimit::Cpus { usable: 1, online: 4 });
    assert!(world.reasons("b").contains(&cpus), "{}", world.said("b"));
    // One that is above this tenant alone, as of a slice.
    world.above = AncestorBounds::default();
    let limit = LimitAbove { cgroup: "/s".into(), resource: CPU, amount: 3.0, is_binding: true };
    let slice = Surroundings { limits: vec![limit], ..Surroundings::default() };
    let a = Second { surroundings: Some(slice), ..hungry(0.5) };
    world.passes(6, &[a, hungry(2.0)], 0.0);
    assert_eq!(world.said("a"), "/s is limited to 3.00 CPUs for all in it\n");
}

#[test]
fn a_limit_of_the_policy_is_a_reason() {
    let mut world = World::of(
        "  a: { limit: { cpu: 500m } }\n  g: { limit: { cpu: 1 }, tenants: { x: {}, y: {} } }\n  u: {}\n",
        4,
    );
    let throttled = |used| Second { throttled: true, ..hungry(used) };
    world.passes(6, &[throttled(0.5), hungry(0.5), hungry(0.5), throttled(1.0)], 0.0);
    assert_eq!(
        world.said("a"),
        "the policy limits it to 500m (limit.cpu)\n".replace("500m", "0.5 CPUs")
    );
    assert_eq!(
        world.said("g/x"),
        "the policy limits its group g to 1 CPU (limit.cpu), which is used up\n"
    );
    // A quota that the policy knows nothing of.
    assert!(world.reasons("u").contains(&Reason::Kernel(KernelLimit::OwnQuota)));
}

#[test]
fn values_that_are_not_in_force_are_a_reason() {
    let mut world = World::of("  a: { weight: 900 }\n  b: {}\n", 2);
    let seconds = [hungry(1.0), hungry(1.0)];
    let refusal = Refusal { message: Some("busy".into()), ..Refusal::default() };
    world.refusal = Some(refusal.clone());
    world.passes(6, &seconds, 0.0);
    assert!(
        world.said("a").starts_with("the CPU weight is not written: busy\n"),
        "{}",
        world.said("a")
    );
    assert!(world.said("a").contains("b has 0.80 CPUs more than allocated"), "{}", world.said("a"));
    assert_eq!(world.reasons("b"), [], "it has more than its share");
    world.refusal = Some(Refusal { is_deferred: true, ..refusal });
    world.passes(70, &seconds, 0.0);
    let why = NotWritten::Deferred("busy".into());
    let deferred =
        |reason: &Reason| matches!(reason, Reason::NotWritten { why: it, .. } if *it == why);
    assert!(world.reasons("a").iter().any(deferred), "{}", world.said("a"));
    let nodes = world.control.tree().nodes().to_vec();
    let mut observing = World::new(nodes, 2, false);
    observing.passes(6, &seconds, 0.0);
    assert!(
        observing
            .said("a")
            .starts_with("its CPU weight is not in force: mode observe writes nothing\n"),
        "{}",
        observing.said("a")
    );
}

#[test]
fn what_a_tenant_does_to_itself_is_a_reason() {
    let mut world = World::of("  a: {}\n  b: {}\n", 4);
    let a = Second { waits: [0.9, 0.3, 0.5], ..hungry(0.4) };
    world.passes(6, &[a, idle()], 0.0);
    let reasons = world.reasons("a");
    assert_eq!(
        reasons[..2],
        [Reason::Inside(Inside::Memory(0.3)), Reason::Inside(Inside::Io(0.5))]
    );
    let Reason::Inside(Inside::IdleCpus { idle_cores, .. }) = reasons[2] else {
        panic!("{reasons:?}")
    };
    assert!((idle_cores - 3.6).abs() < 0.01);
    assert_eq!(reasons.len(), 3);
}

#[test]
fn memory_that_is_taken_is_a_reason() {
    let mut world = World::of("  a: { guarantee: { memory: 32GiB } }\n  b: {}\n", 4);
    let part = |ratio: f64| Second { held_bytes: ratio * MEMORY_BYTES, ..Second::default() };
    world.passes(3, &[part(0.4), part(0.1)], 0.0);
    let squeezed =
        Second { waits: [0.0, 0.4, 0.0], refaults: 1_000_000, reclaimed: true, ..part(0.1) };
    world.passes(2, &[squeezed, part(0.3)], 0.0);
    let reclaimed = Reason::Kernel(KernelLimit::Reclaim);
    assert!(world.reasons("a").contains(&reclaimed), "{}", world.said("a"));
    assert!(world.state("a").shortfall.as_ref().unwrap().missing[MEMORY] > 0.0);
    assert_eq!(world.reasons("b"), []);
}

#[test]
fn faults_are_counted_in_episodes_and_seconds() {
    let mut world = World::of("  a: { limit: { cpu: 1 } }\n  b: {}\n", 4);
    world.passes(2, &[idle(), idle()], 0.0);
    let throttled = Second { throttled: true, ..hungry(1.0) };
    let reclaimed = Second { reclaimed: true, ..idle() };
    for (count, a) in [(3, &throttled), (2, &idle()), (4, &throttled), (1, &reclaimed)] {
        world.passes(count, &[a.clone(), hungry(0.1)], 0.0);
    }
    let counts = |name: &str| {
        let faults = world.state(name).faults;
        [faults.throttled, faults.reclaimed, faults.starved, faults.short[CPU]]
            .map(|fault| (fault.nr_episodes().unwrap(), fault.time().as_secs()))
    };
    assert_eq!(counts("a")[..3], [(2, 7), (1, 1), (0, 0)]);
    let b = counts("b");
    assert_eq!(b[..2], [(0, 0), (0, 0)]);
    assert!(b[2] == (1, 10) && b[3] == (1, 10), "{b:?}");
}

#[test]
fn a_fault_that_the_kernel_does_not_count_is_absent() {
    let mut world = World::of("  a: {}\n  b: {}\n", 4);
    for sample in &mut world.samples {
        sample.memory.as_mut().unwrap().nr_low_events = Some(0);
    }
    world.passes(2, &[idle(), idle()], 0.0);
    assert_eq!(world.state("a").faults.reclaimed.nr_episodes(), Some(0));
    let before: PerResource<_> = world.state("a").faults.short;
    assert_eq!(before[MEMORY].nr_episodes(), Some(0));
}
