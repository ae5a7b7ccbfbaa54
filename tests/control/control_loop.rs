//! Whole ticks as values: what must hold over any number of them, without a kernel.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::measure::sample::{HostSample, MemorySample, TenantSample};
use tenantd_control::state::Refusal;
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::{Decision, Input, NodeInput, Settings};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{Tree, TreeNode};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_core::units::Limit;
use tenantd_policy::model::Policy;

use super::{CORES, MEMORY_BYTES, nodes};

const SECOND: Duration = Duration::from_secs(1);

/// What one tenant does in one second: the CPUs it uses, the time it waits, the memory it holds, whether it is
/// there at all, and whether its files can be written.
#[derive(Clone, Debug)]
struct Second {
    used_ratio: f64,
    waits_ratio: f64,
    memory_ratio: f64,
    is_there: bool,
    is_writable: bool,
    someone_writes: bool,
}

fn second() -> impl Strategy<Value = Second> {
    let flags = (prop::bool::weighted(0.9), prop::bool::weighted(0.9), prop::bool::weighted(0.05));
    (0.0..1.0_f64, 0.0..1.0_f64, 0.0..1.0_f64, flags).prop_map(
        |(used_ratio, waits_ratio, memory_ratio, (is_there, is_writable, someone_writes))| Second {
            used_ratio,
            waits_ratio,
            memory_ratio,
            is_there,
            is_writable,
            someone_writes,
        },
    )
}

/// Tenants, and for each second what each of up to twelve of them does.
fn story() -> impl Strategy<Value = (Vec<TreeNode>, Vec<Vec<Second>>)> {
    (nodes(), vec(vec(second(), 16), 2..20))
}

/// The cgroups of a tree, in values: counters that only grow, and files that hold what was written.
#[derive(Clone, Debug, Default)]
struct Cgroups {
    now: Duration,
    busy_usec: u64,
    usage_usec: Vec<u64>,
    some_usec: Vec<u64>,
    files: Vec<Vec<(Knob, Value)>>,
}

impl Cgroups {
    fn new(nodes: &[TreeNode]) -> Cgroups {
        Cgroups {
            usage_usec: vec![0; nodes.len()],
            some_usec: vec![0; nodes.len()],
            files: vec![Vec::new(); nodes.len()],
            ..Cgroups::default()
        }
    }

    fn pass(&mut self, control: &ControlLoop, seconds: &[Second]) -> Input {
        self.now += SECOND;
        let nodes = control.tree().nodes();
        let nr_leaves = nodes.iter().filter(|node| node.is_leaf).count() as f64;
        let mut inputs = Vec::new();
        for (number, (node, second)) in nodes.iter().zip(seconds.iter().cycle()).enumerate() {
            let used_usec = (second.used_ratio * CORES / nr_leaves * 1e6) as u64;
            let mut input = NodeInput {
                is_governed: true,
                is_present: second.is_there,
                ..NodeInput::default()
            };
            if node.is_leaf && second.is_there {
                self.usage_usec[number] += used_usec;
                self.some_usec[number] += (second.waits_ratio * 1e6) as u64;
                self.busy_usec += used_usec;
                let memory = MemorySample {
                    current_bytes: (second.memory_ratio * MEMORY_BYTES / nr_leaves) as u64,
                    ..MemorySample::default()
                };
                input.sample = Some(TenantSample {
                    generation: 1,
                    populated: Some(true),
                    usage_usec: Some(self.usage_usec[number]),
                    cpu_some_usec: Some(self.some_usec[number]),
                    memory: Some(memory),
                    ..TenantSample::default()
                });
            }
            if second.someone_writes {
                self.files[number].retain(|(knob, _)| *knob != Knob::CpuWeight);
                self.files[number].push((Knob::CpuWeight, Value::Weight(77.0)));
            }
            if second.is_there && control.wants_observation(control.tree().at(number)) {
                let observation = |(knob, value): &(Knob, Value)| Observation {
                    knob: *knob,
                    value: value.clone(),
                    is_ours: false,
                };
                input.observed = Some(self.files[number].iter().map(observation).collect());
            }
            inputs.push(input);
        }
        let host = HostSample {
            nr_cpus: CORES as u32,
            busy_usec: Some(self.busy_usec),
            memory_total_bytes: MEMORY_BYTES as u64,
            memory_available_bytes: Some(MEMORY_BYTES as u64 / 2),
            ..HostSample::default()
        };
        Input { now: self.now, host, nodes: inputs, ..Input::default() }
    }

    /// Carries out what was decided, where the files can be written.
    fn obey(&mut self, control: &mut ControlLoop, decision: &Decision, seconds: &[Second]) {
        for action in &decision.actions {
            let at = control.tree().position(action.node).unwrap();
            let second = &seconds[at % seconds.len()];
            if !second.is_there || !control.is_due(action) {
                continue;
            }
            if !second.is_writable {
                let refusal = Refusal { message: Some("busy".into()), ..Refusal::default() };
                control.apply(Event::settle((action.clone(), Err(refusal))));
                continue;
            }
            let files = &mut self.files[at];
            files.retain(|(knob, _)| *knob != action.knob);
            files.push((action.knob, action.to.clone()));
            control.apply(Event::settle((action.clone(), Ok(action.to.clone()))));
        }
    }
}

fn control_loop(nodes: &[TreeNode]) -> ControlLoop {
    let settings = Settings::of(&Policy::default(), false, true);
    ControlLoop::new(settings, Tree::new(nodes.to_vec().into()))
}

/// Plays a story; `look` sees each decision and the loop after it.
fn play(
    nodes: &[TreeNode],
    story: &[Vec<Second>],
    mut look: impl FnMut(&ControlLoop, &Decision),
) -> (ControlLoop, Cgroups) {
    let (mut control, mut cgroups) = (control_loop(nodes), Cgroups::new(nodes));
    for seconds in story {
        control.apply(Event::Begin);
        let input = cgroups.pass(&control, seconds);
        let decision = control.apply(Event::step(input)).unwrap();
        look(&control, &decision);
        cgroups.obey(&mut control, &decision, seconds);
    }
    (control, cgroups)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_same_inputs_give_the_same_decisions((nodes, story) in story()) {
        let decisions = || {
            let mut decisions = Vec::new();
            play(&nodes, &story, |_, decision| decisions.push(format!("{decision:?}")));
            decisions
        };
        prop_assert_eq!(decisions(), decisions());
    }

    #[test]
    fn allocations_fit_the_capacity_in_every_tick((nodes, story) in story()) {
        play(&nodes, &story, |control, decision| {
            for (resource, name) in [(CPU, "cpu"), (MEMORY, "memory")] {
                let leaves = control.tree().nodes().iter().zip(control.states());
                let sum: f64 = leaves
                    .filter(|(node, _)| node.is_leaf)
                    .map(|(_, state)| state.target.allocation[resource])
                    .sum();
                let capacity = decision.capacity.divided[resource];
                assert!(sum <= capacity * (1.0 + 1e-9), "{name}: {sum} of {capacity}");
            }
        });
    }

    #[test]
    fn a_steady_satisfied_load_writes_nothing((nodes, story) in story()) {
        let steady: Vec<Second> = story[0]
            .iter()
            .map(|second| Second {
                waits_ratio: 0.0,
                is_there: true,
                is_writable: true,
                someone_writes: false,
                ..second.clone()
            })
            .collect();
        let story = vec![steady; 90];
        let mut actions_of_tick = Vec::new();
        play(&nodes, &story, |_, decision| actions_of_tick.push(decision.actions.len()));
        prop_assert_eq!(&actions_of_tick[80..], [0; 10]);
    }

    #[test]
    fn a_tenant_that_is_not_read_keeps_its_last_decision((nodes, story) in story()) {
        let (mut control, mut cgroups) = play(&nodes, &story, |_, _| ());
        let demands = |control: &ControlLoop| -> Vec<_> {
            control.states().iter().map(|state| state.demand).collect()
        };
        let before = demands(&control);
        let away: Vec<Second> =
            story[0].iter().map(|second| Second { is_there: false, ..second.clone() }).collect();
        control.apply(Event::Begin);
        // The usage of the tick before is what is known last, and the demand that follows from it may still fall.
        let input = cgroups.pass(&control, &away);
        control.apply(Event::step(input));
        let known = |demands: &[Option<_>]| demands.iter().map(Option::is_some).collect::<Vec<_>>();
        prop_assert_eq!(known(&before), known(&demands(&control)));
    }
}

#[test]
fn a_premature_tick_decides_nothing() {
    let policy = Policy::default();
    let settings = Settings::of(&policy, false, true);
    let leaf = tenantd_policy::model::Tenant { name: "a".into(), ..Default::default() };
    let nodes =
        tenantd_control::tree::flatten(&Policy { tenants: vec![leaf], ..Policy::default() });
    let mut control = ControlLoop::new(settings, Tree::new(nodes.into()));
    let mut cgroups = Cgroups::new(control.tree().nodes());
    let second = Second {
        used_ratio: 0.1,
        waits_ratio: 0.0,
        memory_ratio: 0.1,
        is_there: true,
        is_writable: true,
        someone_writes: false,
    };
    let seconds = vec![second];
    for _ in 0..3 {
        control.apply(Event::Begin);
        let input = cgroups.pass(&control, &seconds);
        assert!(!control.apply(Event::step(input)).unwrap().is_void);
    }
    let usage = control.states()[0].usage;
    // A whole second of CPU time, two milliseconds after the last tick.
    control.apply(Event::Begin);
    let mut input = cgroups.pass(&control, &seconds);
    cgroups.now = cgroups.now - SECOND + Duration::from_millis(2);
    input.now = cgroups.now;
    let decision = control.apply(Event::step(input)).unwrap();
    assert!(decision.is_void && decision.actions.is_empty());
    assert_eq!(control.states()[0].usage, usage);
    // The next one counts from the last that counted, so that nothing is lost.
    control.apply(Event::Begin);
    let input = cgroups.pass(&control, &seconds);
    let decision = control.apply(Event::step(input)).unwrap();
    let elapsed = Duration::from_millis(1002);
    assert_eq!(decision.elapsed, Some(elapsed));
    let used = control.states()[0].usage.unwrap().cpu_cores;
    assert!((used - 2.0 * 0.1 * CORES / elapsed.as_secs_f64()).abs() < 1e-3, "{used}");
}

/// A loop over one tenant that uses a tenth of the machine, after three ticks.
fn steady() -> (ControlLoop, Cgroups, [Second; 1]) {
    let leaf = tenantd_policy::model::Tenant { name: "a".into(), ..Default::default() };
    let policy = Policy { tenants: vec![leaf], ..Policy::default() };
    let nodes = tenantd_control::tree::flatten(&policy);
    let (mut control, mut cgroups) = (control_loop(&nodes), Cgroups::new(&nodes));
    let seconds = [Second {
        used_ratio: 0.1,
        waits_ratio: 0.01,
        memory_ratio: 0.1,
        is_there: true,
        is_writable: true,
        someone_writes: false,
    }];
    for _ in 0..3 {
        control.apply(Event::Begin);
        let input = cgroups.pass(&control, &seconds);
        control.apply(Event::step(input));
    }
    (control, cgroups, seconds)
}

#[test]
fn a_tenant_that_could_not_be_read_for_a_while_has_the_rates_of_the_whole_time_afterwards() {
    let (mut control, mut cgroups, seconds) = steady();
    let before = control.states()[0].clone();
    for _ in 0..4 {
        control.apply(Event::Begin);
        let mut input = cgroups.pass(&control, &seconds);
        input.nodes[0].sample = None;
        control.apply(Event::step(input));
        let state = &control.states()[0];
        assert_eq!((state.usage, state.demand), (before.usage, before.demand));
        assert_eq!(state.target.allocation, before.target.allocation);
    }
    control.apply(Event::Begin);
    let input = cgroups.pass(&control, &seconds);
    control.apply(Event::step(input));
    assert_eq!(control.states()[0].usage, before.usage);
}

/// Its last rate is kept, of a time in which there were more.
#[test]
fn a_tenant_that_could_not_be_read_while_cpus_went_uses_no_more_than_are_left() {
    let (mut control, mut cgroups, seconds) = steady();
    let used = |control: &ControlLoop| control.states()[0].usage.unwrap().cpu_cores;
    assert!(used(&control) > 1.0);
    control.apply(Event::Begin);
    let mut input = cgroups.pass(&control, &seconds);
    input.nodes[0].sample = None;
    input.host.nr_cpus = 1;
    control.apply(Event::step(input));
    assert_eq!(used(&control), 1.0);
}

#[test]
fn a_clock_that_stood_still_or_was_not_asked_for_hours_gives_no_false_rates() {
    // The machine was suspended, and the clock with it: a tick that comes too soon is void, and nothing is lost.
    let (mut control, mut cgroups, seconds) = steady();
    let usage = control.states()[0].usage;
    control.apply(Event::Begin);
    let mut input = cgroups.pass(&control, &seconds);
    cgroups.now -= SECOND;
    input.now = cgroups.now;
    assert!(control.apply(Event::step(input)).unwrap().is_void);
    assert_eq!(control.states()[0].usage, usage);
    // The agent was stopped for an hour in which the tenant went on.
    let (mut control, mut cgroups, seconds) = steady();
    control.apply(Event::Begin);
    let inputs: Vec<Input> = (0..3600).map(|_| cgroups.pass(&control, &seconds)).collect();
    let decision = control.apply(Event::step(inputs.into_iter().last().unwrap())).unwrap();
    assert_eq!(decision.elapsed, Some(SECOND * 3600));
    assert_eq!(control.states()[0].usage, usage);
    // It went back: no rate, and the decision stays.
    let demand = control.states()[0].demand;
    control.apply(Event::Begin);
    let mut input = cgroups.pass(&control, &seconds);
    input.now -= SECOND * 1000;
    assert!(control.apply(Event::step(input)).unwrap().is_void);
    assert_eq!((control.states()[0].usage, control.states()[0].demand), (usage, demand));
}

/// A percentage is of the machine as it is now: CPUs and memory come and go.
#[test]
fn percentages_follow_the_machine() {
    let text = "version: 1\nhost: { reserve: { cpu: 50% } }\ntenants:\n  \
        a: { limit: { cpu: 25%, memory: 50% }, guarantee: { memory: 8GiB } }\n  b: {}\n";
    let policy = tenantd_policy::load_text("policy.yaml", text).unwrap().policy;
    let nodes = tenantd_control::tree::flatten(&policy);
    let tree = Tree::new(nodes.clone().into());
    let mut control = ControlLoop::new(Settings::of(&policy, false, true), tree);
    let mut cgroups = Cgroups::new(&nodes);
    let seconds = [Second {
        used_ratio: 0.1,
        waits_ratio: 0.0,
        memory_ratio: 0.001,
        is_there: true,
        is_writable: true,
        someone_writes: false,
    }];
    let finite = |resource, amount| Value::Amount(resource, Limit::Finite(amount));
    let mut tick = |nr_cpus: u32, gib: u64| {
        control.apply(Event::Begin);
        let mut input = cgroups.pass(&control, &seconds);
        (input.host.nr_cpus, input.host.memory_total_bytes) = (nr_cpus, gib << 30);
        let decision = control.apply(Event::step(input)).unwrap();
        cgroups.obey(&mut control, &decision, &seconds);
        let held = |knob| cgroups.files[0].iter().find(|(it, _)| *it == knob).unwrap().1.clone();
        (held(Knob::CpuMax), held(Knob::MemoryMax), decision)
    };
    let (cpu, memory, decision) = tick(16, 64);
    assert_eq!((cpu, memory), (finite(CPU, 4000), finite(MEMORY, 32 << 30)));
    assert!((decision.slots, decision.findings.len()) == (8, 0), "{decision:?}");
    // With 4 CPUs and 8 GiB the guarantee is above the limit: it is cut, and said.
    let (cpu, memory, decision) = tick(4, 8);
    assert_eq!((cpu, memory), (finite(CPU, 1000), finite(MEMORY, 4 << 30)));
    assert_eq!(decision.slots, 2);
    let said = decision.findings.iter().map(ToString::to_string).collect::<String>();
    assert!(said.contains("the guarantees are scaled down"), "{said}");
    let (cpu, memory, decision) = tick(16, 64);
    assert_eq!((cpu, memory), (finite(CPU, 4000), finite(MEMORY, 32 << 30)));
    assert!(decision.findings.is_empty(), "{:?}", decision.findings);
}
