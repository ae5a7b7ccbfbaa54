//! Tenants of several cgroups, over whole ticks.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::measure::sample::{HostSample, MemorySample, TenantSample};
use tenantd_control::share::target::Target;
use tenantd_control::state::NodeState;
use tenantd_control::state::step::{Input, NodeInput, Settings, TreeChange};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::Event;
use tenantd_control::tree::{CgroupParent, Member, Tree, TreeNode};
use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_policy::model::Policy;

use super::weights::siblings;

const CORES: u32 = 8;
const GIB: u64 = 1 << 30;

/// What one cgroup does in a second: CPUs used, time waited, memory held.
#[derive(Clone, Copy, Debug)]
struct Work {
    used: f64,
    waits: f64,
    held: u64,
}

fn work() -> impl Strategy<Value = Work> {
    (0.0..1.0_f64, prop_oneof![Just(0.0), Just(0.8)], 0..GIB / 4)
        .prop_map(|(used, waits, held)| Work { used, waits, held })
}

/// A tree of tenants with so many members each, at the top.
fn tree(nodes: &[TreeNode], nr_members: &[usize]) -> Tree {
    let member = |tenant: usize, n: usize| {
        let (at, parent) = (format!("{n}.service"), CgroupParent::Top);
        let name = format!("{}[{at}]", nodes[tenant].path);
        Member { tenant, name, at, is_attached: false, parent }
    };
    let tenants = nr_members.iter().enumerate();
    let members = tenants.flat_map(|(tenant, nr)| (0..*nr).map(move |n| member(tenant, n)));
    Tree::below(
        nodes.into(),
        vec![CgroupParent::Members; nodes.len()],
        members.collect(),
        Vec::new(),
    )
}

/// A host whose cgroups do what they are told.
#[derive(Debug, Default)]
struct Host {
    now: Duration,
    busy_usec: u64,
    /// By number: time used and waited.
    counters: Vec<(u64, u64)>,
}

impl Host {
    /// One second, in which the cgroup with a number does `of(number)`.
    fn pass(&mut self, tree: &Tree, of: impl Fn(usize) -> Work) -> Input {
        self.now += Duration::from_secs(1);
        self.counters.resize(self.counters.len().max(tree.len()), (0, 0));
        let nodes = (0..tree.len()).map(|number| {
            let mut input =
                NodeInput { is_governed: true, is_present: true, ..NodeInput::default() };
            if tree.at(number).has_work() {
                let (work, counters) = (of(number), &mut self.counters[number]);
                counters.0 += (work.used * 1e6) as u64;
                counters.1 += (work.waits * 1e6) as u64;
                self.busy_usec += (work.used * 1e6) as u64;
                let memory = MemorySample { current_bytes: work.held, ..MemorySample::default() };
                input.sample = Some(TenantSample {
                    generation: 1,
                    populated: Some(true),
                    usage_usec: Some(counters.0),
                    cpu_some_usec: Some(counters.1),
                    memory: Some(memory),
                    ..TenantSample::default()
                });
            }
            input
        });
        let nodes = nodes.collect();
        let host = HostSample {
            nr_cpus: CORES,
            busy_usec: Some(self.busy_usec),
            memory_total_bytes: 16 * GIB,
            memory_available_bytes: Some(8 * GIB),
            unreclaimable_bytes: Some(GIB),
            ..HostSample::default()
        };
        Input { now: self.now, host, nodes, ..Input::default() }
    }
}

fn control(tree: Tree) -> ControlLoop {
    ControlLoop::new(Settings::of(&Policy::default(), false, true), tree)
}

/// Tenants with limits and guarantees, how many cgroups each has, and what each of these does over some seconds.
fn story() -> impl Strategy<Value = (Vec<TreeNode>, Vec<usize>, Vec<Vec<Work>>)> {
    let bounds = (prop::option::of(0.5..4.0_f64), prop::option::of(0.0..0.5_f64));
    let tenants = vec((1.0..10.0_f64, bounds, 0..5_usize), 1..5);
    (tenants, vec(vec(work(), 20), 2..8)).prop_map(|(tenants, seconds)| {
        let weights: Vec<f64> = tenants.iter().map(|(weight, ..)| *weight).collect();
        let mut nodes = siblings(&weights);
        for (node, (_, (limit, guarantee), _)) in nodes.iter_mut().zip(&tenants) {
            node.limit[CPU] = *limit;
            node.guarantee[CPU] = *guarantee;
            node.written.limit.pids = limit.map(|_| 100);
            node.limit[MEMORY] = limit.map(|limit| limit * GIB as f64);
            node.guarantee[MEMORY] = guarantee.map(|guarantee| guarantee * GIB as f64);
        }
        (nodes, tenants.iter().map(|(_, _, nr)| *nr).collect(), seconds)
    })
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * (1.0 + a.abs())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn what_a_tenant_has_is_what_its_members_have((nodes, nr_members, seconds) in story()) {
        let mut control = control(tree(&nodes, &nr_members));
        let mut host = Host::default();
        for works in &seconds {
            let input = host.pass(control.tree(), |number| works[number % works.len()]);
            control.apply(Event::step(input));
            let (tree, states) = (control.tree(), control.states());
            for (tenant, members) in tree.sets_of_members() {
                let members = &states[members];
                let sum = |of: &dyn Fn(&Target) -> f64| members.iter().map(|it| of(&it.target)).sum::<f64>();
                let whole = &states[tenant].target;
                for r in Resource::ALL {
                    let parts = sum(&|target| target.allocation[r]);
                    prop_assert!(near(whole.allocation[r], parts), "{whole:?} {parts}");
                    if let Some(limit) = whole.limit[r] {
                        prop_assert!(near(limit, sum(&|target| target.limit[r].unwrap())));
                    }
                    if let Some(guarantee) = whole.guarantee[r] {
                        prop_assert!(near(guarantee, sum(&|target| target.guarantee[r].unwrap())));
                    }
                }
                if let Some(limit) = whole.pids_limit {
                    let parts: Vec<u32> = members.iter().map(|it| it.target.pids_limit.unwrap()).collect();
                    let sum: u32 = parts.iter().sum();
                    prop_assert!(sum <= limit && sum + parts.len() as u32 >= limit && !parts.contains(&0), "{parts:?}");
                }
                if let Some(bytes) = whole.bounded_protection_bytes {
                    let parts = sum(&|target| target.bounded_protection_bytes.unwrap());
                    prop_assert!(near(bytes, parts) || parts == 0.0, "{bytes} {parts}");
                }
                let used = |state: &NodeState| state.usage.map_or(0.0, |usage| usage.cpu_cores);
                prop_assert!(near(used(&states[tenant]), members.iter().map(used).sum()));
            }
        }
    }

    /// Whatever is done in one cgroup, or in several with equal parts of it.
    #[test]
    fn several_cgroups_are_treated_as_one(
        weights in vec(1.0..10.0_f64, 2..5),
        nr_members in 1..6_usize,
        seconds in vec(vec(work(), 5), 2..8),
    ) {
        let nodes = siblings(&weights);
        // Waits are of the whole: each member waits as long as its tenant.
        let part = |work: Work| Work { used: work.used / nr_members as f64, held: work.held / nr_members as u64, ..work };
        let mut one = control(Tree::new(nodes.clone().into()));
        let mut several = control(tree(&nodes, &vec![nr_members; nodes.len()]));
        let (mut host, mut other) = (Host::default(), Host::default());
        for works in &seconds {
            // Nobody waits: what a waiting cgroup wants is estimated, and not a sum.
            let calm = |tenant: usize| Work { waits: 0.0, ..works[tenant] };
            let input = host.pass(one.tree(), calm);
            one.apply(Event::step(input));
            let tenant_of = |number: usize| several.tree().at(number).tenant().unwrap().at();
            let input = other.pass(several.tree(), |number| part(calm(tenant_of(number))));
            several.apply(Event::step(input));
            for (a, b) in one.states().iter().zip(several.states()).take(nodes.len()) {
                let (a, b) = (&a.target.allocation, &b.target.allocation);
                prop_assert!((a[CPU] - b[CPU]).abs() < 1e-3, "{a:?} {b:?}");
                prop_assert!((a[MEMORY] - b[MEMORY]).abs() < 4096.0, "{a:?} {b:?}");
            }
        }
    }
}

/// Replaces the tree; `kept` has the new position of each node that stays.
fn replace(control: &mut ControlLoop, tree: Tree, kept: &[Option<usize>]) {
    let tree = tree.after(control.tree(), kept);
    let change = TreeChange { tree, handed: Vec::new(), unpinned: Vec::new() };
    control.apply(Event::TakeTree(Box::new(change)));
}

#[test]
fn totals_outlive_members() {
    let nodes = siblings(&[1.0]);
    let mut control = control(tree(&nodes, &[3]));
    let mut host = Host::default();
    let busy = Work { used: 1.0, waits: 0.5, held: 0 };
    for _ in 0..4 {
        let input = host.pass(control.tree(), |_| busy);
        control.apply(Event::step(input));
    }
    let total = |control: &ControlLoop| control.states()[0].totals.cpu_usec.total().unwrap();
    let waited = |control: &ControlLoop| control.states()[0].totals.cpu_some_usec.total().unwrap();
    assert_eq!((total(&control), waited(&control)), (9_000_000, 1_500_000));
    // Two of them go, and one comes.
    replace(&mut control, tree(&nodes, &[2]), &[Some(0), Some(2), None, None]);
    assert_eq!(total(&control), 9_000_000);
    for _ in 0..2 {
        let input =
            host.pass(control.tree(), |number| Work { used: f64::from(number as u32), ..busy });
        control.apply(Event::step(input));
    }
    // The one that stayed used twice 2 CPUs; the first second of the other is not known.
    assert_eq!(total(&control), 9_000_000 + 4_000_000 + 1_000_000);
    replace(&mut control, tree(&nodes, &[0]), &[Some(0), None, None]);
    let input = host.pass(control.tree(), |_| busy);
    control.apply(Event::step(input));
    assert_eq!(total(&control), 14_000_000);
    assert!(control.states()[0].usage.is_some_and(|usage| usage.cpu_cores == 0.0));
}
