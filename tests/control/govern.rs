//! Weights across the tree of cgroups: random trees, and a model of how the kernel divides among them.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenantd_control::share::demand::Demand;
use tenantd_control::share::govern::{self, Foreign};
use tenantd_control::share::rows::Rows;
use tenantd_control::share::target::{self, Target};
use tenantd_control::share::turns::{Slots, Turn, Turns};
use tenantd_control::state::NodeState;
use tenantd_control::state::members;
use tenantd_control::tree::{Ancestor, CgroupParent, Member, Node, Tree, TreeNode};
use tenantd_core::resource::{CPU, PerResource};
use tenantd_policy::model::Allocation;

use super::weights::siblings;

const CORES: f64 = 8.0;
const MEMORY: f64 = 1e9;
/// How far from its allocation a tenant may be, in CPUs: a fiftieth of the machine.
const NEAR: f64 = 0.02 * CORES;

/// Slices, the tenants and other services in them, all at random places.
#[derive(Clone, Debug)]
struct Host {
    /// Of each slice the one that it is in, an earlier one; `None` at the top.
    slices: Vec<Option<usize>>,
    /// The weights of the tenants.
    weights: Vec<f64>,
    /// The cgroups of the tenants, by tenant.
    units: Vec<Unit>,
    others: Vec<Unit>,
}

/// A cgroup without others in it.
#[derive(Clone, Copy, Debug)]
struct Unit {
    slice: Option<usize>,
    /// Whose it is.
    tenant: usize,
    wants: f64,
}

/// The weight of work that nobody governs.
const OTHER_WEIGHT: f64 = 100.0;

fn hosts(others_want: impl Strategy<Value = f64> + 'static) -> impl Strategy<Value = Host> {
    let slices = vec(any::<prop::sample::Index>(), 1..8).prop_map(|picks| {
        let mut slices: Vec<Option<usize>> = Vec::new();
        for pick in picks {
            let at = pick.index(slices.len() + 1);
            let depth = std::iter::successors(at.checked_sub(1), |up| slices[*up]).count();
            slices.push(at.checked_sub(1).filter(|_| depth < 4));
        }
        slices
    });
    let weight = prop::sample::select(vec![1.0, 2.0, 4.0, 8.0]);
    let units = prop_oneof![3 => 1..2_usize, 2 => 2..5_usize];
    let units = units.prop_flat_map(|nr| vec(any::<prop::sample::Index>(), nr));
    let tenants = vec((units, weight), 2..6);
    let others = vec((any::<prop::sample::Index>(), others_want), 0..5);
    (slices, tenants, others).prop_map(|(slices, tenants, others)| {
        // A slice, or the top.
        let at = |pick: &prop::sample::Index| pick.index(slices.len() + 1).checked_sub(1);
        let units = tenants.iter().enumerate().flat_map(|(tenant, (picks, _))| {
            let unit = move |pick| Unit { slice: at(pick), tenant, wants: CORES };
            picks.iter().map(unit)
        });
        let other =
            |(pick, wants): &(_, f64)| Unit { slice: at(pick), tenant: usize::MAX, wants: *wants };
        Host {
            units: units.collect(),
            others: others.iter().map(other).collect(),
            weights: tenants.iter().map(|(_, weight)| *weight).collect(),
            slices,
        }
    })
}

impl Host {
    /// The units of a tenant.
    fn units_of(&self, tenant: usize) -> impl Iterator<Item = &Unit> {
        self.units.iter().filter(move |unit| unit.tenant == tenant)
    }

    /// The number of each unit: that of its tenant, or of a member where there are several.
    fn numbers(&self) -> Vec<usize> {
        let mut next = self.weights.len();
        let number = |unit: &Unit| match self.units_of(unit.tenant).count() {
            1 => unit.tenant,
            _ => {
                next += 1;
                next - 1
            }
        };
        self.units.iter().map(number).collect()
    }

    fn tree(&self) -> Tree {
        let nodes: Vec<TreeNode> = siblings(&self.weights);
        let numbers = self.numbers();
        let nr_members = numbers.iter().filter(|number| **number >= nodes.len()).count();
        // Only slices with a tenant somewhere in them are governed.
        let above = |slice: Option<usize>| std::iter::successors(slice, |up| self.slices[*up]);
        let is_governed =
            |slice: &usize| self.units.iter().any(|unit| above(unit.slice).any(|up| up == *slice));
        let governed: Vec<usize> = (0..self.slices.len()).filter(is_governed).collect();
        let parent = |slice: Option<usize>| match slice {
            None => CgroupParent::Top,
            Some(slice) => {
                let index = governed.iter().position(|known| *known == slice).unwrap();
                CgroupParent::Governed(nodes.len() + nr_members + index)
            }
        };
        let ancestors = governed.iter().map(|slice| Ancestor {
            name: slice.to_string(),
            cgroup: slice.to_string(),
            parent: parent(self.slices[*slice]),
            is_unit: true,
            is_shared: true,
            has_protection: true,
        });
        let ancestors = ancestors.collect();
        let mut parents = vec![CgroupParent::Members; nodes.len()];
        let mut members = Vec::new();
        for (unit, number) in self.units.iter().zip(numbers) {
            let parent = parent(unit.slice);
            match parents.get_mut(number) {
                Some(of_node) => *of_node = parent,
                None => {
                    let (tenant, at) = (unit.tenant, number.to_string());
                    members.push(Member {
                        tenant,
                        name: at.clone(),
                        at,
                        is_attached: false,
                        parent,
                    });
                }
            }
        }
        Tree::below(nodes.into(), parents, members, ancestors)
    }

    /// What each slice, unit of a tenant and other service gets, as the kernel divides: among those directly in one cgroup, by
    /// weight, and what one does not want goes to its siblings.
    fn divide(
        &self,
        slice_weights: &[f64],
        unit_weights: &[f64],
    ) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let mut wants = vec![0.0; self.slices.len()];
        for unit in self.units.iter().chain(&self.others) {
            std::iter::successors(unit.slice, |up| self.slices[*up])
                .for_each(|up| wants[up] += unit.wants);
        }
        let mut got =
            (vec![0.0; wants.len()], vec![0.0; self.units.len()], vec![0.0; self.others.len()]);
        for place in std::iter::once(None).chain((0..wants.len()).map(Some)) {
            let amount = place.map_or(CORES, |slice| got.0[slice]);
            let mut claims: Vec<(usize, usize, f64, f64)> = Vec::new();
            for (n, up) in self.slices.iter().enumerate().filter(|(_, up)| **up == place) {
                let _ = up;
                claims.push((0, n, slice_weights[n], wants[n]));
            }
            for (n, unit) in self.units.iter().enumerate().filter(|(_, it)| it.slice == place) {
                claims.push((1, n, unit_weights[n], unit.wants));
            }
            for (n, unit) in self.others.iter().enumerate().filter(|(_, it)| it.slice == place) {
                claims.push((2, n, OTHER_WEIGHT, unit.wants));
            }
            for ((kind, n, ..), amount) in claims.iter().zip(fill(&claims, amount)) {
                let all = [&mut got.0, &mut got.1, &mut got.2];
                all[*kind][*n] = amount;
            }
        }
        got
    }
}

/// Weighted max-min, the plain way: whoever wants less than its part gets it, and the rest is divided again.
fn fill(claims: &[(usize, usize, f64, f64)], amount: f64) -> Vec<f64> {
    let mut got = vec![0.0; claims.len()];
    let mut open: Vec<usize> = (0..claims.len()).collect();
    let mut left = amount;
    loop {
        let weights: f64 = open.iter().map(|n| claims[*n].2).sum();
        let part = |n: usize| left * claims[n].2 / weights;
        let (met, unmet): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|n| claims[**n].3 <= part(**n));
        if met.is_empty() {
            unmet.iter().for_each(|n| got[*n] = part(*n));
            return got;
        }
        for n in met {
            got[n] = claims[n].3;
            left -= claims[n].3;
        }
        open = unmet;
    }
}

/// What the agent knows and has written.
#[derive(Debug)]
struct Agent {
    tree: Tree,
    targets: Vec<Target>,
    foreign: Vec<f64>,
    outside: f64,
    slice_weights: Vec<f64>,
    unit_weights: Vec<f64>,
    /// Of each unit.
    numbers: Vec<usize>,
    turns: Turns,
}

impl Agent {
    fn new(host: &Host) -> Agent {
        let tree = host.tree();
        let mut agent = Agent {
            targets: Vec::new(),
            foreign: vec![0.0; tree.ancestors().count()],
            outside: 0.0,
            slice_weights: vec![100.0; host.slices.len()],
            unit_weights: vec![100.0; host.units.len()],
            numbers: host.numbers(),
            turns: Turns::default(),
            tree,
        };
        agent.look(host);
        agent
    }

    fn look(&mut self, host: &Host) {
        let (slices, units, others) = host.divide(&self.slice_weights, &self.unit_weights);
        self.outside = others.iter().sum();
        let used = |node: Node<'_>| {
            if node.is_ancestor() {
                slices.get(self.slice(node.at())).copied()
            } else {
                let unit = self.numbers.iter().position(|known| *known == node.at());
                unit.map(|unit| units[unit])
            }
        };
        let foreign = govern::foreign_cores(&self.tree, used);
        for (known, now) in self.foreign.iter_mut().zip(foreign) {
            let now = now.unwrap();
            *known = now.max((*known + now) / 2.0);
        }
    }

    fn slice(&self, ancestor: usize) -> usize {
        self.tree.at(ancestor).name().parse().unwrap()
    }

    /// One tick; returns what the tenants get after it.
    fn tick(&mut self, host: &Host) -> Vec<f64> {
        let demand = |wants: f64| Demand { amount: PerResource([wants, 0.0]), ..Demand::UNKNOWN };
        let demands = (0..host.weights.len()).map(|tenant| {
            let wants: f64 = host.units_of(tenant).map(|unit| unit.wants).sum();
            demand(wants.min(CORES))
        });
        let demands: Vec<Demand> = demands.collect();
        let divided = PerResource([(CORES - self.outside).max(0.01 * CORES), MEMORY]);
        let rows = Rows { turns: self.turns.clone(), ..Rows::from(divided) };
        self.targets = target::targets(self.tree.nodes(), &demands, rows, Allocation::Drf);
        let mut states = vec![NodeState::default(); self.tree.len()];
        for (unit, number) in host.units.iter().zip(&self.numbers) {
            states[*number].demand = Some(demand(unit.wants));
        }
        members::divide(&self.tree, &states, &mut self.targets);
        let foreign: Vec<Foreign> = self
            .foreign
            .iter()
            .map(|cores| Foreign { cores: *cores, weight_before: None })
            .collect();
        govern::weigh(&self.tree, &foreign, &self.turns, &mut self.targets);
        for (weight, number) in self.unit_weights.iter_mut().zip(&self.numbers) {
            *weight = self.targets[*number].cpu_weight.round();
        }
        for number in govern::weighed_ancestors(&self.tree) {
            let slice = self.slice(number);
            self.slice_weights[slice] = self.targets[number].cpu_weight.round();
        }
        let (_, units, _) = host.divide(&self.slice_weights, &self.unit_weights);
        self.look(host);
        let got = |tenant| {
            let units = host.units.iter().zip(&units).filter(|(unit, _)| unit.tenant == tenant);
            units.map(|(_, got)| got).sum()
        };
        (0..host.weights.len()).map(got).collect()
    }

    /// What the governed cgroups beside a service should have in the mean; nothing where there are none.
    fn mean_beside(&self, host: &Host, other: &Unit) -> f64 {
        let unit = |number: usize| self.numbers.iter().position(|known| *known == number);
        let is_beside = |number: &usize| match unit(*number) {
            Some(unit) => host.units[unit].slice == other.slice,
            None => {
                self.tree.at(*number).is_ancestor()
                    && host.slices[self.slice(*number)] == other.slice
            }
        };
        let beside: Vec<usize> = (0..self.tree.len()).filter(is_beside).collect();
        let all: f64 = beside.iter().map(|number| self.targets[*number].allocation[CPU]).sum();
        all / beside.len().max(1) as f64
    }

    /// How far the tenant that lacks the most is from its allocation, in CPUs.
    fn error(&self, got: &[f64]) -> f64 {
        (0..got.len()).map(|tenant| self.lack(got, tenant)).fold(0.0, f64::max)
    }

    /// What a tenant lacks, in CPUs.
    fn lack(&self, got: &[f64], tenant: usize) -> f64 {
        self.targets[tenant].allocation[CPU] - got[tenant]
    }

    /// Whether a cgroup would weigh more, were weights not bounded.
    fn is_lowered(&self, number: usize) -> bool {
        let target = &self.targets[number];
        target.cpu_weight < 0.999 * target.exact_cpu_weight
    }

    /// How many times the weight of its least sibling a cgroup has.
    fn ratio(&self, number: usize) -> f64 {
        let parents = self.tree.parents();
        let beside = (0..self.tree.len()).filter(|other| parents[*other] == parents[number]);
        let least = beside.map(|other| self.targets[other].cpu_weight).fold(f64::MAX, f64::min);
        self.targets[number].cpu_weight / least
    }

    /// Whether a service is in a slice that has been lowered, or below one.
    fn is_below_lowered(&self, host: &Host, other: &Unit) -> bool {
        std::iter::successors(other.slice, |up| host.slices[*up]).any(|above| {
            let mut ancestors = self.tree.ancestors().map(|(node, _)| node.at());
            ancestors.any(|number| self.slice(number) == above && self.is_lowered(number))
        })
    }

    /// Whether a cgroup of this tenant, or one above it, has been lowered.
    fn is_held_back(&self, host: &Host, tenant: usize) -> bool {
        let parent = |number: &usize| match self.tree.parents()[*number] {
            CgroupParent::Governed(parent) => Some(parent),
            _ => None,
        };
        let units = host.units.iter().zip(&self.numbers);
        units.filter(|(unit, _)| unit.tenant == tenant).any(|(_, number)| {
            std::iter::successors(Some(*number), parent).any(|above| self.is_lowered(above))
        })
    }
}

/// A tenant two slices deep beside busy services, and a small one in four pieces at the top: the outer slice should weigh 152
/// times as much as a piece. It weighs 100 times as much, and the tenant in it lacks more than a fiftieth of the machine. No
/// weights that are no further apart give each tenant its part.
#[test]
fn weights_a_hundredfold_apart_do_not_reach_every_division() {
    let unit = |slice, tenant| Unit { slice, tenant, wants: CORES };
    let other = |slice, wants| Unit { slice: Some(slice), tenant: usize::MAX, wants };
    let host = Host {
        slices: vec![None, None, Some(0), None, None],
        weights: vec![1.0, 4.0, 8.0],
        units: vec![
            unit(None, 0),
            unit(Some(1), 0),
            unit(None, 0),
            unit(Some(1), 0),
            unit(Some(4), 1),
            unit(Some(2), 2),
        ],
        others: vec![other(0, CORES), other(2, CORES), other(0, CORES), other(0, 0.2)],
    };
    let mut agent = Agent::new(&host);
    let mut got = Vec::new();
    (0..12).for_each(|_| got = agent.tick(&host));
    let outer =
        (0..agent.tree.len()).find(|n| agent.tree.at(*n).is_ancestor() && agent.slice(*n) == 0);
    let outer = outer.unwrap();
    assert!(agent.is_lowered(outer) && (agent.ratio(outer) - 100.0).abs() < 0.1);
    let held_back = [0, 1, 2].map(|tenant| agent.is_held_back(&host, tenant));
    assert_eq!(held_back, [false, false, true]);
    assert!(agent.lack(&got, 0) <= 0.0 && agent.lack(&got, 1) <= 0.0, "{got:?}");
    assert!(agent.lack(&got, 2) > 1.5 * NEAR, "{got:?}");
    // The outer slice has the most, what the small tenant has the least, and the other tenant anything between.
    for weight in 1..=100 {
        let slice_weights = [100.0, 1.0, 100.0, 100.0, f64::from(weight)];
        let (_, units, _) = host.divide(&slice_weights, &[1.0, 100.0, 1.0, 100.0, 100.0, 100.0]);
        let lacks_most = agent
            .lack(&[CORES, units[4], units[5]], 1)
            .max(agent.lack(&[CORES, units[4], units[5]], 2));
        assert!(lacks_most > 1.5 * NEAR, "{weight}: {units:?}");
    }
}

/// Two slices, each with a tenant whose job waits. The slot of one of them moves to the other slice.
#[test]
fn what_waiting_tenants_lend_leaves_their_slices() {
    let unit = |slice, tenant, wants| Unit { slice: Some(slice), tenant, wants };
    let host = |wants: [f64; 4]| Host {
        slices: vec![None, None],
        weights: vec![1.0; 4],
        units: [0, 1, 2, 3].map(|tenant| unit(tenant / 2, tenant, wants[tenant])).to_vec(),
        others: Vec::new(),
    };
    let mut agent = Agent::new(&host([0.0; 4]));
    // The last tenant works without jobs.
    for (holder, expected) in [(0, [6.0, 0.0, 0.0, 2.0]), (2, [0.0, 0.0, 6.0, 2.0])] {
        let is_awake = |tenant| tenant == holder || tenant == 3;
        let host = host([0, 1, 2, 3].map(|tenant| if is_awake(tenant) { CORES } else { 0.0 }));
        let mut got = Vec::new();
        for _ in 0..30 {
            let mut each = vec![Turn::default(); agent.tree.len()];
            for (tenant, number) in agent.numbers.iter().enumerate() {
                let held = if tenant == holder { CORES as u32 } else { 0 };
                let slots = Slots { held, are_awaited: tenant != 3, were_held: held > 0 };
                let used_cores = if is_awake(tenant) { CORES / 4.0 } else { 0.0 };
                each[*number] = Turn { slots, used_cores, lent_cores: 0.0 };
            }
            for (turn, target) in each.iter_mut().zip(&agent.targets) {
                turn.lent_cores = target.lent_cores;
            }
            agent.turns = Turns { each, elapsed: Duration::from_secs(1) };
            got = agent.tick(&host);
        }
        let is_near = |(got, expected): (&f64, f64)| (got - expected).abs() <= NEAR;
        assert!(got.iter().zip(expected).all(is_near), "{got:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn every_tenant_gets_its_allocation(host in hosts(Just(0.0))) {
        let mut agent = Agent::new(&host);
        let got = agent.tick(&host);
        prop_assert!(agent.error(&got) <= NEAR, "{got:?} of {:#?}", agent.targets);
    }

    #[test]
    fn bounded_work_of_others_delays_it_by_ticks(host in hosts(0.0..0.4_f64)) {
        let mut agent = Agent::new(&host);
        let mut got = Vec::new();
        (0..4).for_each(|_| got = agent.tick(&host));
        prop_assert!(agent.error(&got) <= NEAR, "{got:?} of {:#?}", agent.targets);
    }

    #[test]
    fn busy_work_of_others_settles_and_keeps_its_part(host in hosts(prop::sample::select(vec![0.2, CORES]))) {
        let mut agent = Agent::new(&host);
        let (_, _, before) = host.divide(&agent.slice_weights, &agent.unit_weights);
        let mut got = Vec::new();
        (0..12).for_each(|_| got = agent.tick(&host));
        // What is below a cgroup that can have no larger weight gets less than its part.
        let open = (0..got.len()).filter(|tenant| !agent.is_held_back(&host, *tenant));
        let error = open.map(|tenant| agent.lack(&got, tenant)).fold(0.0, f64::max);
        prop_assert!(error <= 1.5 * NEAR, "{got:?} of {:#?}", agent.targets);
        for number in 0..agent.tree.len() {
            prop_assert!(!agent.is_lowered(number) || agent.ratio(number) >= 99.9, "{number} of {:#?}", agent.targets);
        }
        let (_, _, after) = host.divide(&agent.slice_weights, &agent.unit_weights);
        for (other, (before, after)) in host.others.iter().zip(before.iter().zip(&after)) {
            // Its place is that of one more governed cgroup of mean weight beside it.
            let place = agent.mean_beside(&host, other);
            let is_held_back = agent.is_below_lowered(&host, other);
            prop_assert!(is_held_back || *after >= before.min(place) * 0.9, "{other:?}: {before} -> {after}, of {place}");
        }
    }

    #[test]
    fn weights_stay_within_their_range(host in hosts(Just(CORES))) {
        let mut agent = Agent::new(&host);
        (0..3).for_each(|_| drop(agent.tick(&host)));
        for number in govern::weighed_ancestors(&agent.tree) {
            let parent = agent.tree.parents()[number];
            let beside = (0..agent.tree.len()).filter(|n| agent.tree.parents()[*n] == parent);
            let weights: Vec<f64> = beside.map(|n| agent.targets[n].cpu_weight).collect();
            let (least, most) = (weights.iter().copied().fold(f64::MAX, f64::min), weights.iter().copied().fold(0.0, f64::max));
            prop_assert!(least >= 1.0 && most <= 100.0 * least * 1.001, "{weights:?}");
            prop_assert!(weights.iter().sum::<f64>() <= 100.0 * weights.len() as f64 * 1.001, "{weights:?}");
        }
    }

    #[test]
    fn a_tenant_that_wakes_has_its_part_within_a_tick(host in hosts(Just(0.0)), sleeper: prop::sample::Index) {
        let sleeper = sleeper.index(host.weights.len());
        let mut asleep = host.clone();
        asleep.units.iter_mut().filter(|unit| unit.tenant == sleeper).for_each(|unit| unit.wants = 0.0);
        let mut agent = Agent::new(&asleep);
        (0..3).for_each(|_| drop(agent.tick(&asleep)));
        let got = agent.tick(&host);
        let part = CORES * host.weights[sleeper] / host.weights.iter().sum::<f64>();
        prop_assert!(got[sleeper] >= part - NEAR, "{} of {part}: {:#?}", got[sleeper], agent.targets);
    }

    /// A unit that sleeps leaves its part to the others of its tenant, and to nobody else.
    #[test]
    fn a_tenant_keeps_its_part_while_some_of_its_units_sleep(host in hosts(Just(0.0)), sleepers: u8) {
        let mut asleep = host.clone();
        for (bit, unit) in asleep.units.iter_mut().enumerate().filter(|(_, unit)| host.units_of(unit.tenant).count() > 1) {
            if sleepers >> (bit % 8) & 1 == 1 {
                unit.wants = 0.0;
            }
        }
        let mut agent = Agent::new(&asleep);
        let got = agent.tick(&asleep);
        prop_assert!(agent.error(&got) <= NEAR, "{got:?} of {:#?}", agent.targets);
    }
}
