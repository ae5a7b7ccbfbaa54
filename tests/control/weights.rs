//! Weights as files hold them, guarantees in groups, and what is above the tenants.

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::measure::sample::HostSample;
use tenantd_control::share::burst;
use tenantd_control::share::demand::Demand;
use tenantd_control::share::rows::{DiskDemand, DiskRow, Rows};
use tenantd_control::share::target::{self, Target};
use tenantd_control::state::capacity;
use tenantd_control::tree::bounds::AncestorBounds;
use tenantd_control::tree::{self, TreeNode};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::resource::{CPU, MEMORY, PerResource};
use tenantd_core::units::Weight;
use tenantd_host::cgroup::Layout;
use tenantd_policy::model::{Allocation, HierarchyChoice, Policy, RootChoice, Tenant};

use crate::util;

const CORES: f64 = 16.0;
const GIB: f64 = (1_u64 << 30) as f64;

pub(super) fn siblings(weights: &[f64]) -> Vec<TreeNode> {
    tree::flatten(&Policy { tenants: leaves(weights), ..Policy::default() })
}

/// Groups of one weight with leaves of these weights, in pre-order.
pub(super) fn grouped(groups: &[&[f64]]) -> Vec<TreeNode> {
    let group = |(i, weights): (usize, &&[f64])| {
        let name = format!("g{i}");
        Tenant { name, tenants: leaves(weights), ..Tenant::default() }
    };
    let tenants = groups.iter().enumerate().map(group).collect();
    tree::flatten(&Policy { tenants, ..Policy::default() })
}

fn leaves(weights: &[f64]) -> Vec<Tenant> {
    let leaf = |(i, weight): (usize, &f64)| {
        let weight = Weight::try_new(*weight).unwrap();
        let weight = PerResource::all(weight);
        Tenant { name: format!("t{i}"), weight: weight.into(), ..Tenant::default() }
    };
    weights.iter().enumerate().map(leaf).collect()
}

fn hungry(nodes: &[TreeNode], cores: f64) -> Vec<Demand> {
    vec![Demand { amount: PerResource([cores, 0.0]), ..Demand::UNKNOWN }; nodes.len()]
}

fn unified() -> Layout {
    layout("30 20 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", "0::/")
}

fn legacy() -> Layout {
    layout("30 20 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", "4:cpu:/")
}

fn layout(mountinfo: &str, own: &str) -> Layout {
    let (hierarchy, root) = (HierarchyChoice::Auto, RootChoice::Auto);
    Layout::detect(mountinfo.as_bytes(), own.as_bytes(), hierarchy, &root).unwrap()
}

/// The number that a file of this hierarchy holds.
fn written(layout: &Layout, target: &Target) -> f64 {
    let spelling = layout.spell(Knob::CpuWeight, &Value::Weight(target.cpu_weight));
    spelling[0].text.parse().unwrap()
}

/// Checks the written weights of siblings against what each is entitled to; returns how many were
/// reported.
fn check_ratios(nodes: &[TreeNode], targets: &[Target], entitled: &[f64]) -> usize {
    let findings = target::findings(nodes, targets, &HostSample::default());
    let reported = |index: usize| {
        let name = format!("{}: its CPU weight is", nodes[index].path);
        findings.iter().any(|finding| finding.to_string().starts_with(&name))
    };
    let is_off = |index: &usize| {
        let exact = targets[*index].exact_cpu_weight;
        let legacy = written(&legacy(), &targets[*index]) / 10.24;
        let files = [written(&unified(), &targets[*index]), legacy];
        files.iter().any(|file| (file - exact).abs() > 0.025 * exact)
    };
    let off: Vec<usize> = (0..nodes.len()).filter(is_off).collect();
    assert!(off.iter().take(4).all(|index| reported(*index)), "{findings:?}");
    assert_eq!(off.is_empty(), findings.is_empty(), "{findings:?}");
    // Only small weights may be off: none is cut to the kernel's largest.
    assert!(off.iter().all(|&index| targets[index].exact_cpu_weight < 20.0), "{findings:?}");
    // The smallest and the largest error of one make the largest of any two.
    for layout in [unified(), legacy()] {
        let errors = (0..nodes.len())
            .filter(|index| !off.contains(index))
            .map(|index| written(&layout, &targets[index]) / entitled[index]);
        let (least, most) =
            errors.fold((f64::INFINITY, 0.0_f64), |(a, b), error| (a.min(error), b.max(error)));
        assert!(most <= least * 1.0513, "{}: {}", layout.describe(), most / least);
    }
    off.len()
}

/// Weights of siblings: from alike to as far apart as policies allow, few and many.
fn many_weights() -> impl Strategy<Value = Vec<f64>> {
    let near = 1.0..20.0_f64;
    let far = (0.0..4.0_f64).prop_map(|power| 10_f64.powf(power));
    let few = prop_oneof![20 => Just(1.0), 1 => 500.0..10_000.0_f64];
    prop_oneof![
        vec(near.clone(), 1..40),
        vec(near, 400..3000),
        vec(far.clone(), 1..20),
        vec(far, 100..1000),
        vec(few, 100..3000),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(60) })]

    #[test]
    fn written_weights_keep_their_ratio(weights in many_weights(), idle: bool) {
        let nodes = siblings(&weights);
        let demands = hungry(&nodes, if idle { 0.0 } else { CORES });
        let targets = target::targets(&nodes, &demands, PerResource([CORES, GIB]), Allocation::Drf);
        let off = check_ratios(&nodes, &targets, &weights);
        // Only weights out of the kernel's reach are reported.
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let smallest = weights.iter().copied().fold(f64::INFINITY, f64::min);
        prop_assert!(off == 0 || largest / smallest > 475.0, "{off} of {weights:?}");
    }

    #[test]
    fn bursts_fit_into_their_parent(
        weights in vec((1.0..100.0_f64, 0.0..0.3_f64), 2..8),
        amount in 0.1..20.0_f64,
    ) {
        let mut nodes = siblings(&weights.iter().map(|(weight, _)| *weight).collect::<Vec<f64>>());
        for (node, (_, guarantee)) in nodes.iter_mut().zip(&weights) {
            node.guarantee[CPU] = Some(guarantee * 10.0);
        }
        let bursts = burst::bursts(&nodes, amount, CPU);
        let ratio = burst::kept_ratio(&nodes, amount, CPU);
        prop_assert!((bursts.iter().sum::<f64>() - amount).abs() < 1e-9 * amount, "{bursts:?}");
        let floors = burst::by_weight(&nodes, amount, CPU);
        for ((node, burst), floor) in nodes.iter().zip(&bursts).zip(floors) {
            let promised = node.guarantee[CPU].unwrap_or(0.0) * ratio;
            prop_assert!(*burst >= promised * (1.0 - 1e-9), "{burst} of {promised}");
            prop_assert!(ratio == 1.0 || *burst >= floor * burst::FLOOR_RATIO * (1.0 - 1e-9));
        }
    }
}

/// What was measured at 52 : 48: two heavy siblings beside a thousand light ones.
#[test]
fn a_thousand_light_siblings_leave_the_heavy_ones_their_ratio() {
    let mut weights = vec![3000.0, 1000.0];
    weights.extend([1.0; 1000]);
    let nodes = siblings(&weights);
    let targets =
        target::targets(&nodes, &hungry(&nodes, CORES), PerResource([CORES, GIB]), Allocation::Drf);
    assert_eq!(check_ratios(&nodes, &targets, &weights), 0);
    let file = |layout, index: usize| written(&layout, &targets[index]);
    assert_eq!([0, 1, 2].map(|i| file(unified(), i)), [9000.0, 3000.0, 3.0]);
    assert_eq!([0, 1, 2].map(|i| file(legacy(), i)), [92160.0, 30720.0, 31.0]);
}

#[test]
fn what_the_kernel_cannot_express_is_reported() {
    let nodes = siblings(&[10_000.0, 10_000.0, 1.0, 1.4]);
    let targets =
        target::targets(&nodes, &hungry(&nodes, CORES), PerResource([CORES, GIB]), Allocation::Drf);
    let findings = target::findings(&nodes, &targets, &HostSample::default());
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(
        findings[0].to_string().starts_with("t3: its CPU weight is 1 instead of 1.40"),
        "{findings:?}"
    );
}

fn nodes(yaml: &str) -> Vec<TreeNode> {
    tree::flatten(&util::policy(&format!("version: 1\n{yaml}")))
}

/// What each of some siblings gets of the CPUs when all of them are hungry.
fn shares(targets: &[Target], siblings: &[usize]) -> Vec<f64> {
    let sum: f64 = siblings.iter().map(|&index| targets[index].cpu_weight.round()).sum();
    siblings.iter().map(|&index| targets[index].cpu_weight.round() / sum).collect()
}

/// Two CPUs; a tenant with a guarantee of 0.68 in a light group, which sleeps, beside a hungry one
/// of weight 99.
#[test]
fn a_nested_guarantee_is_available_when_its_tenant_wakes() {
    let nodes = nodes(
        "tenants: { g: { weight: 1, tenants: { x: { guarantee: { cpu: 680m } } } }, b: { weight: 99 } }",
    );
    let [g, x, b] = [0, 1, 2];
    for awake in [false, true] {
        let mut demands = hungry(&nodes, 2.0);
        demands[x].amount[CPU] = if awake { 2.0 } else { 0.0 };
        let targets = target::targets(&nodes, &demands, PerResource([2.0, GIB]), Allocation::Drf);
        // In the second in which it wakes, before anybody decides anew, and after it.
        let share = 2.0 * shares(&targets, &[g, b])[0];
        assert!(share > 0.66, "{share} of 0.68 CPUs, awake {awake}: {targets:?}");
        assert_eq!(targets[x].kept_ratio[CPU], 1.0);
    }
}

/// The same where processes outside leave 0.7 and then 0.4 of the two CPUs.
#[test]
fn a_guarantee_does_not_starve_others_when_the_outside_takes_the_cpus() {
    let nodes = nodes(
        "tenants: { g: { weight: 1, tenants: { x: { guarantee: { cpu: 680m } } } }, b: { weight: 99 } }",
    );
    for (cores, kept) in [(0.7, 0.68), (0.4, 0.3604)] {
        let machine = PerResource([2.0, GIB]);
        let outside = PerResource([2.0 - cores, 0.0]);
        let capacity =
            capacity::capacity(machine, PerResource::all(0.0), outside, &AncestorBounds::default());
        assert!((capacity[CPU] - cores).abs() < 1e-9, "{capacity:?}");
        let targets = target::targets(&nodes, &hungry(&nodes, 2.0), capacity, Allocation::Drf);
        assert!((targets[1].allocation[CPU] - kept).abs() < 1e-6, "{targets:?}");
        assert_eq!(
            target::findings(&nodes, &targets, &HostSample::default()).is_empty(),
            cores == 0.7,
            "{targets:?}"
        );
        // At least half of a tenth of what its weight alone would give it, and nowhere near the
        // kernel's least.
        let shares_file = written(&legacy(), &targets[2]);
        assert!(shares_file >= 50.0, "cpu.shares {shares_file}");
        let share = shares(&targets, &[0, 2])[1];
        assert!(share >= 0.05, "{share}: {targets:?}");
    }
}

/// A guarantee that takes all of its group leaves the group's other members the weight of a tenth
/// of their part.
#[test]
fn a_guarantee_does_not_starve_its_own_group() {
    let nodes = nodes(
        "tenants: { g: { weight: 1, tenants: { x: { weight: 1, guarantee: { cpu: 1500m } }, z: { weight: 99 } } }, b: { weight: 9 } }",
    );
    let targets =
        target::targets(&nodes, &hungry(&nodes, 2.0), PerResource([2.0, GIB]), Allocation::Drf);
    assert!((targets[1].allocation[CPU] - 1.5).abs() < 1e-6, "{targets:?}");
    assert!(targets[2].allocation[CPU] < 1e-6, "{targets:?}");
    let inner = shares(&targets, &[1, 2]);
    assert!(inner[0] > 0.95 && inner[1] > 0.01, "{inner:?}");
    assert!(written(&legacy(), &targets[2]) > 100.0, "{targets:?}");
}

/// A group with a limit beside a hungry tenant: the other tenant gets what the group cannot use,
/// and the group's tenant is not entitled to more than the limit.
#[test]
fn a_limit_on_a_group_is_part_of_the_division() {
    let nodes = nodes("tenants: { g: { limit: { cpu: 200m }, tenants: { x: {} } }, b: {} }");
    let targets =
        target::targets(&nodes, &hungry(&nodes, 2.0), PerResource([2.0, GIB]), Allocation::Drf);
    let cpus: Vec<f64> = targets.iter().map(|target| target.allocation[CPU]).collect();
    for (got, expected) in cpus.iter().zip([0.2, 0.2, 1.8]) {
        assert!((got - expected).abs() < 1e-9, "{cpus:?}");
    }
    assert!((targets[1].burst[CPU] - 0.2).abs() < 1e-9);
}

#[test]
fn limits_above_the_tenants_are_capacity() {
    let machine = PerResource([2.0, 23.0 * GIB]);
    let slice = AncestorBounds { limit: PerResource([None, Some(1.0 * GIB)]), nr_cpus: Some(1) };
    let root = AncestorBounds { limit: PerResource([Some(0.5), Some(0.3 * GIB)]), nr_cpus: None };
    let above = slice.and(root);
    assert_eq!((above.limit, above.nr_cpus), (PerResource([Some(0.5), Some(0.3 * GIB)]), Some(1)));
    let capacity = |outside| capacity::capacity(machine, PerResource([0.1, GIB]), outside, &above);
    assert_eq!(capacity(PerResource::all(0.0)).0, [0.5, 0.3 * GIB]);
    // What others use counts against the machine, not against our limit.
    assert_eq!(capacity(PerResource([1.0, 0.0]))[CPU], 0.5);
    assert!((capacity(PerResource([1.7, 22.5 * GIB]))[CPU] - 0.2).abs() < 1e-9);
    assert_eq!(capacity(PerResource([9.0, 99.0 * GIB])).0, [0.005, 0.3 * GIB * 0.01]);
    let free = capacity::capacity(
        machine,
        PerResource::all(0.0),
        PerResource::all(0.0),
        &AncestorBounds::default(),
    );
    assert_eq!((free, slice.most()[MEMORY]), (machine, GIB));
    assert_eq!(slice.and(AncestorBounds::default()).most()[CPU], 1.0);
}

/// The vectors of `tenantd-fair`'s `collusion.rs` on CPU, memory and a disk, as demands of a tick: A uses a third of the disk for
/// nothing of its own. With the rest divided as well, B still gains at most 4 % and C loses at most 12 %.
#[test]
fn a_lie_about_the_disk_moves_little() {
    let nodes = siblings(&[100.0; 4]);
    let demand = |cores: f64, memory: f64| Demand {
        amount: PerResource([cores * CORES, memory * GIB]),
        ..Demand::UNKNOWN
    };
    let demands = [demand(1.0, 0.0), demand(0.0, 1.0), demand(0.0, 1.0 / 3.0), demand(1.0, 0.0)];
    let targets = |of_a: f64, growth: f64| {
        let of_disk = [(of_a, 1.0), (0.0, 1.0), (1.0, growth), (1.0 / 3.0, 1.0)];
        let demands_of_disk =
            of_disk.map(|(part, growth)| DiskDemand { part, growth, cpu_growth: 1.0 });
        let disk = Some(DiskRow { capacity: 1.0, demands: demands_of_disk.to_vec() });
        let rows = Rows { disk, ..Rows::from(PerResource([CORES, GIB])) };
        target::targets(&nodes, &demands, rows, Allocation::Drf)
    };
    let tasks = |targets: &[Target]| {
        let disk = |at: usize| targets[at].disk.unwrap().allocation;
        let memory = |at: usize| targets[at].allocation[MEMORY] / GIB;
        let cores = |at: usize| targets[at].allocation[CPU] / CORES;
        [cores(0), memory(1), (memory(2) * 3.0).min(disk(2)), cores(3).min(disk(3) * 3.0)]
    };
    let near = |found: [f64; 4], expected: [f64; 4]| {
        let is_near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(is_near, "{found:?} instead of {expected:?}");
    };
    let (honest, lie) = (tasks(&targets(0.0, 1.0)), tasks(&targets(1.0 / 3.0, 1.0)));
    near(honest, [0.5, 0.75, 0.75, 0.5]);
    near(lie, [0.5, 7.0 / 9.0, 2.0 / 3.0, 0.5]);
    assert!(lie[1] <= 1.04 * honest[1] && lie[2] >= 0.88 * honest[2]);
    // If C waits for the disk, its memory is reserved, and B gains nothing.
    let waiting = tasks(&targets(1.0 / 3.0, 1.5));
    assert!(waiting[1] <= 0.75 + 1e-6 && waiting[2] > 0.66, "{waiting:?}");
}
