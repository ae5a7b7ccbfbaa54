//! From demands to entitlements, and from entitlements to the values that enforce them.
//!
//! **Problem.** The allocation core says how much of each resource each tenant is entitled to, given what it
//! could use. The kernel does not take entitlements: it takes weights among siblings, protections and
//! limits. The map between the two decides what happens in the second until the next tick.
//!
//! **Capacity** is what the machine has, less the reserve, less what processes outside every tenant really
//! use; never less than the guarantees, which were promised.
//!
//! **Weights carry entitlement, not demand.** The weight of a tenant whose demand is not met is
//! proportional to its allocation. The weight of one that is satisfied or idle is proportional to the larger
//! of its allocation and its *burst*, its weight-fair share of the CPUs within its limit: an idle tenant's
//! weight costs nobody anything, and when it wakes between two ticks it gets its fair share at once, not a
//! tick later. What others were lent of it would stand in its way, so all that are weighed by allocation are
//! scaled down together until they weigh no more than their own bursts: the ratios among them, which are
//! what divides the CPUs now, stay. Where all are satisfied, all are weighed by their bursts, and demands
//! that move write nothing. A group is weighed in the same way, by the sum of what is below it.
//!
//! **Scale.** Only ratios among siblings matter, but a weight is an integer from 1 to 10,000, and siblings
//! that are not ours sit at 100. Weights are scaled so that a sibling's mean is 100, or so that the smallest
//! fair share is still 10 where that is more. The scale comes from the policy alone: one that followed the
//! demand would rewrite every file whenever one tenant changed its mind.
//!
//! **Memory.** Protection is the larger of the allocation and the guarantee, as far as that leaves something to
//! reclaim ([`super::protect`]); a group's is the sum of its children's, because protection below an unprotected
//! parent is void.
//!
//! **Properties** (`tests/control.rs`): allocations never exceed the capacity; weights divide contended CPUs
//! as allocated (`weights_bring_about_the_allocation`); whoever wakes has its fair share at once
//! (`a_tenant_that_wakes_gets_its_burst`).

use crate::control::demand::Demand;
use crate::control::plan::{Knob, Value};
use crate::control::protect::{self, Need, Shortage};
use crate::control::sample::HostSample;
use crate::control::tree::{CPU, MEMORY, TreeNode};
use crate::control::usage::Usage;
use crate::fair::{self, Algorithm, Problem, WorkConserving};
use crate::policy::model::Allocation;
use crate::units::{Bytes, Limit, MilliCpus};

/// A tenant whose allocation lacks less than this part of its demand counts as satisfied.
const SATISFIED_RATIO: f64 = 1e-6;

/// The mean weight of siblings: the kernel's default, so that foreign siblings keep their place.
const WEIGHT_MEAN: f64 = 100.0;
/// The weight that the smallest fair share gets at least, so that rounding to integers stays under 5 %.
const WEIGHT_SMALLEST: f64 = 10.0;
/// The largest weight that the kernel takes.
const WEIGHT_MAX: f64 = 10_000.0;

/// What one node of the tree is entitled to, and how it is weighed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Target {
    /// CPUs and bytes.
    pub allocation: [f64; 2],
    /// Its weight-fair share of the CPUs, within its limit.
    pub burst_cores: f64,
    /// Its weight among its siblings, in the unit of `cpu.weight`.
    pub cpu_weight: f64,
    /// The resource of which it is allocated the largest weighted share.
    pub dominant: Option<usize>,
    /// The part of the capacity that this is, not weighted.
    pub dominant_share: f64,
    /// That part over its weight when filling stopped: equal for all siblings that one resource holds back.
    pub level: f64,
    /// Whether it is allocated all the CPU that it could use.
    pub satisfied: bool,
    /// The resources that it wants more of and that are used up.
    pub scarce: [bool; 2],
    /// How much of its memory is protected, in bytes, where that is less than it should be.
    pub bounded_protection_bytes: Option<f64>,
}

/// What can be divided: the machine less `reserve` less `outside`, but at least the guarantees.
pub fn capacity(
    machine: [f64; 2],
    reserve: [f64; 2],
    outside: [f64; 2],
    nodes: &[TreeNode],
) -> [f64; 2] {
    [CPU, MEMORY].map(|r| {
        let promised: f64 = nodes.iter().filter_map(|node| node.guarantee[r]).sum();
        // A machine whose reserve or neighbours take all of it still has something to divide by weight.
        let least = machine[r] * 0.01;
        (machine[r] - reserve[r] - outside[r]).max(promised).max(least).min(machine[r])
    })
}

/// The targets of all `nodes` (pre-order) for the `demands` of the leaves (same order; groups ignored).
pub fn targets(
    nodes: &[TreeNode],
    demands: &[Demand],
    capacity: [f64; 2],
    rule: Allocation,
) -> Vec<Target> {
    let burst = bursts(nodes, capacity[CPU]);
    let mut targets = allocations(nodes, demands, capacity, rule, &burst);
    for (index, node) in nodes.iter().enumerate().rev() {
        targets[index].burst_cores = burst[index];
        if let Some(parent) = node.parent {
            let (allocation, satisfied) = (targets[index].allocation, targets[index].satisfied);
            let above = &mut targets[parent];
            above.satisfied &= satisfied;
            above.allocation[CPU] += allocation[CPU];
            above.allocation[MEMORY] += allocation[MEMORY];
        }
    }
    weigh(nodes, &burst, capacity[CPU], &mut targets);
    targets
}

/// What the allocation core gives each leaf, by `rule`; groups are left empty.
fn allocations(
    nodes: &[TreeNode],
    demands: &[Demand],
    capacity: [f64; 2],
    rule: Allocation,
    burst: &[f64],
) -> Vec<Target> {
    let empty = || vec![Target { satisfied: true, ..Target::default() }; nodes.len()];
    let algorithm = match rule {
        Allocation::Drf => Algorithm::Drf,
        Allocation::MaxMin => Algorithm::MaxMin,
        Allocation::Static => return by_weight_alone(nodes, demands, capacity, burst, empty()),
    };
    let described =
        nodes.iter().zip(demands).map(|(node, demand)| describe(node, demand)).collect();
    let problem = match Problem::try_new(capacity.to_vec(), described) {
        Ok(problem) => problem,
        Err(findings) => {
            // The policy was checked and demands are bounded, so this is a mistake of ours; the weights
            // alone are a safe answer to it.
            debug_assert!(false, "{findings:?}");
            return by_weight_alone(nodes, demands, capacity, burst, empty());
        }
    };
    let solution = fair::allocate(&problem, algorithm, WorkConserving::Yes);
    let mut targets = empty();
    for leaf in &solution.leaves {
        let allocation = solution.allocation(leaf.node);
        let target = &mut targets[leaf.node];
        target.allocation = [allocation[CPU], allocation[MEMORY]];
        target.dominant = leaf.dominant_resource;
        target.dominant_share = leaf.dominant_share;
        target.level = leaf.level;
        target.satisfied = satisfied(&demands[leaf.node], allocation[CPU]);
        let demand = [demands[leaf.node].cpu_cores, demands[leaf.node].memory_bytes];
        target.scarce =
            [CPU, MEMORY].map(|r| solution.saturated[r] && !meets(allocation[r], demand[r]));
    }
    targets
}

/// Each its weight's part of each resource, whatever it demands: for comparison.
fn by_weight_alone(
    nodes: &[TreeNode],
    demands: &[Demand],
    capacity: [f64; 2],
    burst: &[f64],
    mut targets: Vec<Target>,
) -> Vec<Target> {
    let memory = fair_shares(nodes, capacity[MEMORY], MEMORY);
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.is_leaf) {
        let target = &mut targets[index];
        target.allocation = [burst[index], memory[index]];
        let shares = [CPU, MEMORY].map(|r| target.allocation[r] / capacity[r]);
        let dominant = if shares[CPU] >= shares[MEMORY] { CPU } else { MEMORY };
        target.dominant = Some(dominant);
        target.dominant_share = shares[dominant];
        target.level = shares[dominant] / node.weight[dominant];
        target.satisfied = satisfied(&demands[index], burst[index]);
    }
    targets
}

fn satisfied(demand: &Demand, allocation_cores: f64) -> bool {
    meets(allocation_cores, demand.cpu_cores)
}

/// Whether `allocation` is all of `demand`, but for rounding.
pub(crate) fn meets(allocation: f64, demand: f64) -> bool {
    allocation >= demand * (1.0 - SATISFIED_RATIO)
}

/// A node as the allocation core takes it.
fn describe(node: &TreeNode, demand: &Demand) -> fair::Node {
    // Less than a millionth of a CPU or a single byte is noise of the smoothing, not a demand.
    let vector = [(demand.cpu_cores, 1e-6), (demand.memory_bytes, 1.0)]
        .map(|(amount, noise)| if amount > noise { amount } else { 0.0 });
    let kind = match node.is_leaf {
        true => fair::Kind::Leaf(fair::Demand {
            guarantee: node.guarantee.map(|amount| amount.unwrap_or(0.0)).to_vec(),
            limit: node.limit.map(|amount| amount.unwrap_or(f64::INFINITY)).to_vec(),
            ..fair::Demand::once(vector.to_vec())
        }),
        false => fair::Kind::Group(fair::Bounds {
            guarantee: node.guarantee.map(|amount| amount.unwrap_or(0.0)).to_vec(),
            limit: node.limit.map(|amount| amount.unwrap_or(f64::INFINITY)).to_vec(),
        }),
    };
    fair::Node { parent: node.parent, weight: node.weight.to_vec(), kind }
}

/// The weight-fair share of the CPUs of each node, within its limit: what it gets when all are hungry.
pub(crate) fn bursts(nodes: &[TreeNode], cores: f64) -> Vec<f64> {
    fair_shares(nodes, cores, CPU)
}

/// The weight-fair share of `amount` of a resource for each node, at least its guarantee, within its limit.
fn fair_shares(nodes: &[TreeNode], amount: f64, resource: usize) -> Vec<f64> {
    let totals = sibling_weights(nodes, resource);
    let mut shares = vec![0.0; nodes.len()];
    for (index, node) in nodes.iter().enumerate() {
        let (above, total) = match node.parent {
            Some(parent) => (shares[parent], totals[parent + 1]),
            None => (amount, totals[0]),
        };
        let fair: f64 = above * node.weight[resource] / total;
        let promised = node.guarantee[resource].unwrap_or(0.0);
        shares[index] = fair.max(promised).min(node.limit[resource].unwrap_or(f64::INFINITY));
    }
    shares
}

/// The sum of the weights below each parent; index 0 is the top, index `p + 1` is node `p`.
fn sibling_weights(nodes: &[TreeNode], resource: usize) -> Vec<f64> {
    let mut totals = vec![0.0; nodes.len() + 1];
    for node in nodes {
        totals[node.parent.map_or(0, |parent| parent + 1)] += node.weight[resource];
    }
    totals
}

/// Sets the weight of each node among its siblings.
fn weigh(nodes: &[TreeNode], bursts: &[f64], cores: f64, targets: &mut [Target]) {
    let set_of = |node: &TreeNode| node.parent.map_or(0, |parent| parent + 1);
    let whole_of =
        |node: &TreeNode| node.parent.map_or(cores, |parent| bursts[parent]).max(f64::MIN_POSITIVE);
    let mut sets = vec![Siblings::default(); nodes.len() + 1];
    for ((node, burst), target) in nodes.iter().zip(bursts).zip(&*targets) {
        let set = &mut sets[set_of(node)];
        set.count += 1.0;
        set.smallest = set.smallest.min(burst / whole_of(node));
        let share = [target.allocation[CPU], *burst];
        match target.satisfied {
            false => set.unmet.push(share),
            true if share[0] > share[1] => set.borrowers.push(share),
            true => {}
        }
    }
    let ratios: Vec<f64> = sets.iter_mut().map(Siblings::own_ratio).collect();
    for (node, target) in nodes.iter().zip(targets) {
        let set = set_of(node);
        let by_allocation = target.allocation[CPU] * ratios[set];
        let entitled = match target.satisfied {
            true => by_allocation.max(target.burst_cores),
            false => by_allocation,
        };
        target.cpu_weight = (sets[set].scale() * entitled / whole_of(node)).clamp(1.0, WEIGHT_MAX);
    }
}

/// The children of one node, or the top level, as far as their weights depend on each other.
#[derive(Clone, Debug)]
struct Siblings {
    count: f64,
    /// The smallest burst, as a part of what the siblings have together.
    smallest: f64,
    /// Allocation and burst of those whose demand is not met.
    unmet: Vec<[f64; 2]>,
    /// ... and of those that are satisfied with more than their burst.
    borrowers: Vec<[f64; 2]>,
}

impl Default for Siblings {
    fn default() -> Self {
        let (unmet, borrowers) = (Vec::new(), Vec::new());
        Siblings { count: 0.0, smallest: f64::INFINITY, unmet, borrowers }
    }
}

impl Siblings {
    fn scale(&self) -> f64 {
        let smallest = self.smallest.max(f64::MIN_POSITIVE);
        (WEIGHT_MEAN * self.count).max((WEIGHT_SMALLEST / smallest).min(WEIGHT_MAX))
    }

    /// What an allocation is worth as a weight, where a burst is worth 1: so much that those who are weighed
    /// by their allocations weigh no more together than by their bursts.
    ///
    /// Where somebody's demand is not met, a borrower needs weight for what it has beyond its burst, unless
    /// that scaled down is no more than its burst. Leaving such a one out lowers the ratio, so they leave in
    /// the order of what they borrow, the smallest part first, until nobody has to.
    fn own_ratio(&mut self) -> f64 {
        if self.unmet.is_empty() {
            return 0.0;
        }
        let mut sum = [0.0, 0.0];
        for [allocation, burst] in self.unmet.iter().chain(&self.borrowers) {
            sum = [sum[0] + allocation, sum[1] + burst];
        }
        let ratio = |[allocation, burst]: [f64; 2]| burst / allocation.max(f64::MIN_POSITIVE);
        self.borrowers.sort_unstable_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
        while let Some(&[allocation, burst]) = self.borrowers.last()
            && ratio([allocation, burst]) >= ratio(sum)
        {
            self.borrowers.pop();
            sum = [sum[0] - allocation, sum[1] - burst];
        }
        ratio(sum).min(1.0)
    }
}

/// The knobs that enforce each target, with the reason for each value.
pub fn knobs(nodes: &[TreeNode], targets: &[Target]) -> Vec<Vec<(Knob, Value, String)>> {
    let protection = protections(nodes, targets);
    let of = |(index, node): (usize, &TreeNode)| {
        let target = &targets[index];
        let mut knobs = Vec::with_capacity(4);
        if let Some(cores) = node.limit[CPU] {
            let limit = Limit::Finite(MilliCpus((cores * 1000.0).round() as u64));
            knobs.push((Knob::CpuMax, Value::Cpus(limit), "the policy's limit".to_string()));
        }
        if let Some(bytes) = node.limit[MEMORY] {
            let limit = Value::Memory(Limit::Finite(Bytes(bytes as u64)));
            knobs.push((Knob::MemoryMax, limit, "the policy's limit".to_string()));
        }
        knobs.push((Knob::CpuWeight, Value::Weight(target.cpu_weight), weight_reason(target)));
        let low = Value::Memory(Limit::Finite(Bytes(protection[index] as u64)));
        knobs.push((Knob::MemoryLow, low, low_reason(node, target, protection[index])));
        knobs
    };
    nodes.iter().enumerate().map(of).collect()
}

/// Bounds what is protected of the leaves' memory by what cannot be reclaimed on this host. `usages` are in the
/// order of the nodes; of a leaf without usage what it holds counts as held outside.
///
/// Returns why not everything that should be is protected. Where the host tells nothing of its memory, nothing
/// is bounded.
pub fn protect<'a>(
    nodes: &[TreeNode],
    usages: impl Iterator<Item = Option<&'a Usage>>,
    host: &HostSample,
    targets: &mut [Target],
) -> Option<Shortage> {
    let mut memory = protect::Memory {
        total_bytes: host.memory_total_bytes as f64,
        swap_free_bytes: host.swap_free_bytes.unwrap_or(0) as f64,
        outside_unreclaimable_bytes: host.unreclaimable_bytes? as f64,
        outside_anon_bytes: host.anon_bytes.unwrap_or(0) as f64,
    };
    let need = |(index, usage): (usize, Option<&Usage>)| {
        let of = |amount: fn(&Usage) -> Option<f64>| usage.and_then(amount).unwrap_or(0.0);
        Need {
            unreclaimable_bytes: of(|usage| usage.unreclaimable_bytes),
            anon_bytes: of(|usage| usage.anon_bytes),
            growth_bytes: of(|usage| usage.unreclaimable_growth_bytes),
            limit_bytes: nodes[index].limit[MEMORY].unwrap_or(f64::INFINITY),
            wanted_bytes: wanted_protection(&nodes[index], &targets[index]),
            guarantee_bytes: nodes[index].guarantee[MEMORY].unwrap_or(0.0),
        }
    };
    let leaves: Vec<usize> = (0..nodes.len()).filter(|&node| nodes[node].is_leaf).collect();
    let needs: Vec<Need> =
        usages.enumerate().filter(|(node, _)| nodes[*node].is_leaf).map(need).collect();
    let sum = |amount: fn(&Need) -> f64| needs.iter().map(amount).sum::<f64>();
    let (held, anon) = (sum(|need| need.unreclaimable_bytes), sum(|need| need.anon_bytes));
    memory.outside_unreclaimable_bytes = (memory.outside_unreclaimable_bytes - held).max(0.0);
    memory.outside_anon_bytes = (memory.outside_anon_bytes - anon).max(0.0);
    let protections = protect::protect(&memory, &needs);
    for ((&leaf, need), bytes) in leaves.iter().zip(&needs).zip(&protections.bytes) {
        let is_bounded = *bytes < need.wanted_bytes * (1.0 - SATISFIED_RATIO);
        targets[leaf].bounded_protection_bytes = is_bounded.then_some(*bytes);
    }
    protections.shortage
}

/// What should be protected of a leaf's memory: its allocation or its guarantee, whichever is more.
fn wanted_protection(node: &TreeNode, target: &Target) -> f64 {
    target.allocation[MEMORY].max(node.guarantee[MEMORY].unwrap_or(0.0))
}

/// Why a knob of a node shall hold `wanted`.
pub fn reason(knob: Knob, wanted: &Value, node: &TreeNode, target: &Target) -> String {
    match (knob, wanted) {
        (Knob::CpuWeight, _) => weight_reason(target),
        (Knob::MemoryLow, Value::Memory(Limit::Finite(bytes))) => {
            low_reason(node, target, bytes.0 as f64)
        }
        _ => "the policy's limit".to_string(),
    }
}

/// The memory protection of each node; that of a group is the sum of those below.
fn protections(nodes: &[TreeNode], targets: &[Target]) -> Vec<f64> {
    let mut protection = vec![0.0; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        if node.is_leaf {
            let wanted = wanted_protection(node, &targets[index]);
            protection[index] = targets[index].bounded_protection_bytes.unwrap_or(wanted);
        }
        if let Some(parent) = node.parent {
            protection[parent] += protection[index];
        }
    }
    protection
}

fn weight_reason(target: &Target) -> String {
    let (allocation, burst) = (target.allocation[CPU], target.burst_cores);
    match target.satisfied {
        true if allocation > burst => {
            format!("satisfied with {allocation:.2} CPUs, {:.2} of them lent", allocation - burst)
        }
        true => format!("satisfied: keeps the weight of its fair share, {burst:.2} CPUs"),
        false => format!("wants more than its {allocation:.2} CPUs: weighed by them"),
    }
}

fn low_reason(node: &TreeNode, target: &Target, protection: f64) -> String {
    let shown = Bytes(protection as u64).rounded();
    if target.bounded_protection_bytes.is_some() && node.is_leaf {
        let wanted = Bytes(wanted_protection(node, target) as u64).rounded();
        return format!("{shown} of {wanted}: more would leave nothing to reclaim");
    }
    match (node.is_leaf, protection > target.allocation[MEMORY]) {
        (false, _) => format!("what is protected below it, {shown}"),
        (true, true) => format!("guaranteed {shown}"),
        (true, false) => format!("allocated {shown}"),
    }
}
