//! From demands to entitlements, and from entitlements to the values that enforce them.
//!
//! **Problem.** The allocation core computes entitlements from demands. The kernel takes weights among
//! siblings, protections and limits. The mapping decides the division until the next tick.
//!
//! **Capacity** is the machine less the reserve less the usage outside every tenant, within the limits
//! above the tenants ([`crate::tree::bounds::AncestorBounds`]). Guarantees fit into the machine, but not always
//! into this capacity. Then they are scaled down together and this is reported ([`super::burst`]).
//! Otherwise tenants without a guarantee would pay for missing capacity.
//!
//! **Weights carry entitlement, not demand.** With unmet demand, a tenant's weight is proportional to its
//! allocation. A satisfied or idle tenant's weight is proportional to the larger of its allocation and its
//! *burst*, its weight-fair share within its limit: an idle tenant's weight takes nothing, and a tenant
//! that wakes between two ticks gets its fair share at once. Lent capacity would delay that. So all weights
//! by allocation are scaled down together to at most the sum of their bursts; the ratios among them stay.
//! If all are satisfied, all weights follow bursts, and changing demands cause no writes. A group is
//! weighed by the sum of its tenants.
//!
//! **Sleep.** A tenant *sleeps* if it used far less CPU time than its allocation, and the threads of it that never slept are
//! fewer than that allocation. With enough of them, the kernel held it back: Linux 7.3 gives siblings on two CPUs up to 40 % more
//! or less than their part in a second. One that sleeps is weighed like a satisfied one, even if DRF gives it less CPU time than it
//! wants because it holds memory. Its measured demand is the mean of work and rest, so its allocation is too small for its next
//! burst, and a tenant that wastes CPU time at rest would get more for the same work (up to 87 times as much in random games).
//!
//! **Floor.** A guarantee has priority over other shares but must not starve them. If guarantees take CPUs
//! that another tenant would have by weight, it keeps the weight of a tenth of them, even without an
//! allocation.
//!
//! [`super::weight`] converts weights to integers.
//!
//! **Disk.** The contended disk is a third column while it counts ([`super::contended`]). DRF raises all amounts of a tenant
//! in the ratio of its demands, so they must fit together: those that it would have if it lacked neither.
//! - CPU and disk are flows. With twice the disk, a tenant reads twice as much and computes twice as much. So the CPU demand of a
//!   tenant that waits for the disk, measured at its present part of it, counts times demand over use of the disk, at most the
//!   machine or its limit. Measured alone it would be scaled down to that part, and its weight with it. Likewise the disk
//!   demand of a tenant that waits for CPUs counts times demand over use of them.
//! - Memory is held. A tenant needs its working set at any speed of the disk, so it is not scaled, and its demand within its
//!   burst is reserved for it as a guarantee is. Otherwise a tenant that waits for the disk would lose memory to others that
//!   do not, and read it again from the same disk.
//! - A tenant that gets less of one than it wants is satisfied with the other if its allocation is within [`SLACK_RATIO`] of the
//!   measured demand: parts of a disk move by as much from second to second.
//!
//! **Memory.** Protection is the larger of the allocation and the guarantee, if something reclaimable
//! remains ([`crate::memory::protect`]). A group's is the sum of its children's, because protection below an
//! unprotected parent is void. All of it is `memory.low`, which the kernel breaks if it finds nothing else:
//! soon, against anonymous memory without swap. The guarantee is `memory.min` as well, which the kernel
//! never breaks.
//!
//! **Properties** (`tests/control.rs`): allocations never exceed the capacity; weights divide contended
//! CPUs as allocated (`weights_bring_about_the_allocation`); a waking tenant gets its fair share at once
//! (`a_tenant_that_wakes_gets_its_burst`), and guarantees below a group too (`tests/control/weights.rs`).

use crate::measure::sample::HostSample;
use crate::measure::usage::Usage;
use crate::memory::protect::{self, Need, Shortage};
use crate::share::burst;
use crate::share::demand::Demand;
use crate::share::rows::{DiskDemand, DiskRow, Rows};
use crate::share::siblings::{self, Share};
use crate::share::turns::Turns;
use crate::share::weight;
use crate::tree::bounds::AncestorBounds;
use crate::tree::{Node, Row, Tree, TreeNode};
use crate::words::finding::{Code, Finding};
use crate::words::knob::{Knob, Value};
use serde::{Deserialize, Serialize};
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};
use tenantd_core::units::{Bytes, Limit};
use tenantd_fair::{self as fair, Algorithm, Problem, WorkConserving};
use tenantd_policy::model::{Allocation, DiskLimits};

/// Unmet part of the demand below which a tenant counts as satisfied.
const SATISFIED_RATIO: f64 = 1e-6;

const PROMISE_STEPS: f64 = 16.0;

/// Used part of the CPU allocation below which a tenant sleeps, unless threads that never slept could use the allocation.
const ASLEEP_RATIO: f64 = 0.7;

/// Part of the demand for CPUs, or for a disk, that may be missing while a tenant wants more of the other.
const SLACK_RATIO: f64 = 0.1;

/// Keeps rounding of reserved memory below the limits that it fits into.
const RESERVED_RATIO: f64 = 1.0 - 1e-9;

/// Most tenants reported by name for unwritable weights; more are counted.
const MOST_REPORTED: usize = 4;

/// Allocation of the contended disk to one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DiskPart {
    /// Part of its time.
    pub allocation: f64,
    /// True if that meets the demand.
    pub is_met: bool,
    /// True if it wants more and the disk has no more.
    pub is_scarce: bool,
}

/// Entitlement and weight of one node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// Allocation of each resource.
    pub allocation: PerResource<f64>,
    /// Allocation of the contended disk; `None` if none is divided with the resources.
    pub disk: Option<DiskPart>,
    /// Weight-fair share of each resource, within its limit: available whenever it wants it.
    pub burst: PerResource<f64>,
    /// CPUs that it is weighed by among its siblings in the policy: those that it needs now or when it wakes, scaled to those
    /// of its siblings, with what is [lent](super::turns) to it.
    pub entitled_cores: f64,
    /// Weight among its siblings, in the unit of `cpu.weight`.
    pub cpu_weight: f64,
    /// Unrounded weight. It differs by more than a fortieth only if siblings are too far apart for the kernel.
    pub exact_cpu_weight: f64,
    /// Weight without the trim ([`super::trim`]); `None` if it is not trimmed.
    pub open_cpu_weight: Option<f64>,
    /// Weight without credit; `None` if credit does not change it.
    pub plain_cpu_weight: Option<f64>,
    /// CPUs due with the present demands while a sibling spends credit or is [lent](super::turns) CPUs; `None` if that is its
    /// allocation.
    pub cores_after_loans: Option<f64>,
    /// CPUs of its weight-only share that other tenants' guarantees leave.
    pub floor_cores: f64,
    /// Guaranteed amount; for a member its part.
    pub guarantee: PerResource<Option<f64>>,
    /// Upper limit; for a member its part.
    pub limit: PerResource<Option<f64>>,
    /// Limit of processes and threads; for a member its part.
    pub pids_limit: Option<u32>,
    /// Limits of requests to each disk; for a member its part.
    pub disk_limit: DiskLimits,
    /// Smaller of its own CPU limit and those of the groups above it.
    pub limit_cores: Option<f64>,
    /// Kept part of its guarantees; less than 1 if outside usage leaves too little for all of them.
    pub kept_ratio: PerResource<f64>,
    /// Row with its largest weighted share.
    pub dominant: Option<Row>,
    /// Its part of the capacity of that row, not weighted.
    pub dominant_share: f64,
    /// Ratio of that part to its weight when filling stopped: equal for all siblings limited by one resource.
    pub level: f64,
    /// True if its allocation meets its CPU demand.
    pub satisfied: bool,
    /// True if it [slept](self) in the last interval: it is weighed like a satisfied one.
    pub is_asleep: bool,
    /// CPUs that siblings which wait for slots [lend](super::turns) to its jobs.
    pub lent_cores: f64,
    /// Those of this moment less what it lends.
    pub net_lent_cores: f64,
    /// Exhausted resources that it wants more of.
    pub scarce: PerResource<bool>,
    /// True if its memory is bounded by a probe ([`crate::memory::probe`]).
    pub is_probed: bool,
    /// Protected memory in bytes, if that is less than wanted.
    pub bounded_protection_bytes: Option<f64>,
}

impl Target {
    /// Wanted protection: the larger of its allocation and its guarantee.
    pub(crate) fn wanted_protection(&self) -> f64 {
        self.allocation[MEMORY].max(self.guarantee[MEMORY].unwrap_or(0.0))
    }

    /// Kept part of its guarantee for this protection. A partial one moves in steps: unreclaimable memory
    /// changes every tick, and a guarantee is written to the byte.
    fn promised_bytes(&self, protection_bytes: f64) -> f64 {
        let promised = self.guarantee[MEMORY].unwrap_or(0.0);
        if protection_bytes >= promised {
            return promised;
        }
        let step = promised / PROMISE_STEPS;
        (protection_bytes / step).floor() * step
    }

    /// CPUs due to it: its allocation, changed by credit that is spent and CPUs that are lent.
    pub fn due_cores(&self) -> f64 {
        self.cores_after_loans.unwrap_or(self.allocation[CPU])
    }

    /// Upper limit that `knob` enforces, in the unit of the policy.
    pub(crate) fn limit_of(&self, knob: Knob) -> Option<f64> {
        match knob {
            Knob::PidsMax => self.pids_limit.map(f64::from),
            knob => match knob.disk_rate() {
                Some(rate) => Some(self.disk_limit[rate]? as f64),
                None => self.limit[knob.resource()?],
            },
        }
    }

    pub(crate) fn share(&self) -> Share {
        Share {
            allocation_cores: self.allocation[CPU],
            burst_cores: self.burst[CPU],
            floor_cores: self.floor_cores,
            lent_cores: self.lent_cores,
            satisfied: self.satisfied || self.is_asleep,
        }
    }

    /// CPUs that its jobs could use if its weight followed what is [lent](super::turns) to them at once.
    pub fn lendable_cores(&self) -> f64 {
        self.entitled_cores + (self.net_lent_cores - self.lent_cores).max(0.0)
    }

    /// True if a tenant with this target and usage [sleeps](self).
    pub(crate) fn sleeps(&self, usage: &Usage) -> bool {
        let allocation_cores = self.allocation[CPU];
        let is_held_back = usage.sleepless_cores.is_some_and(|cores| cores >= allocation_cores);
        usage.cpu_cores < ASLEEP_RATIO * allocation_cores && !is_held_back
    }
}

/// Kept part of the guarantees on each row.
#[derive(Clone, Copy, Debug)]
struct Kept {
    host: PerResource<f64>,
    disk: f64,
}

impl Kept {
    fn ratio(&self, row: Row) -> f64 {
        match row {
            Row::Host(r) => self.host[r],
            Row::Disk => self.disk,
        }
    }
}

/// Targets of all `nodes` (pre-order) for the `demands` of the leaves (same order; groups ignored).
pub fn targets(
    nodes: &[TreeNode],
    demands: &[Demand],
    capacity: impl Into<Rows>,
    rule: Allocation,
) -> Vec<Target> {
    let rows = capacity.into();
    let capacity = rows.host;
    let burst = PerResource::from_fn(|r| burst::bursts(nodes, capacity[r], r));
    let of_disk = |disk: &DiskRow| burst::kept_ratio(nodes, disk.capacity, Row::Disk);
    let kept = Kept {
        host: PerResource::from_fn(|r| burst::kept_ratio(nodes, capacity[r], r)),
        disk: rows.disk.as_ref().map_or(1.0, of_disk),
    };
    let mut targets = allocations(nodes, demands, (&rows, kept), rule, &burst);
    for (index, node) in nodes.iter().enumerate().rev() {
        targets[index].burst = PerResource::from_fn(|r| burst[r][index]);
        targets[index].kept_ratio = kept.host;
        if let Some(parent) = node.parent {
            let below = &targets[index];
            let (allocation, satisfied, disk) = (below.allocation, below.satisfied, below.disk);
            let above = &mut targets[parent];
            above.satisfied &= satisfied;
            for (resource, amount) in allocation.iter() {
                above.allocation[resource] += amount;
            }
            if let Some(part) = disk {
                let none = DiskPart { is_met: true, ..DiskPart::default() };
                let sum = above.disk.get_or_insert(none);
                sum.allocation += part.allocation;
                sum.is_met &= part.is_met;
            }
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        let above = node.parent.and_then(|parent| targets[parent].limit_cores);
        let limits = [node.limit[CPU], above].into_iter().flatten();
        let target = &mut targets[index];
        target.limit_cores = limits.reduce(f64::min);
        (target.guarantee, target.limit) = (node.guarantee, node.limit);
        (target.pids_limit, target.disk_limit) = (node.written.limit.pids, node.written.limit.disk);
        target.is_asleep = rows.asleep.get(index).is_some_and(|it| *it);
    }
    weigh(nodes, (&burst[CPU], capacity[CPU]), &rows.turns, &mut targets);
    targets
}

/// Findings about these targets: guarantees that cannot be kept, weights that cannot be written. They
/// contain no figures that change from tick to tick.
pub fn findings(nodes: &[TreeNode], targets: &[Target], host: &HostSample) -> Vec<Finding> {
    let mut findings = Vec::new();
    for r in Resource::ALL {
        let is_promised = |node: &TreeNode| node.guarantee[r].is_some_and(|it| it > 0.0);
        let broken =
            |(node, target): &(&TreeNode, &Target)| is_promised(node) && target.kept_ratio[r] < 1.0;
        if nodes.iter().zip(targets).any(|it| broken(&it)) {
            let resource = r.title();
            // `check` does not know the number of found tenants.
            let what = if nodes.iter().any(|node| node.is_found && is_promised(node)) {
                format!(
                    "there is too little {resource} for the guarantees of all that `each` found: they are \
                     scaled down together"
                )
            } else {
                format!(
                    "what is used outside of the tenants leaves too little {resource} for all guarantees: \
                     they are scaled down together"
                )
            };
            let finding = Finding::of_host(Code::Unkeepable, what);
            findings.push(if r == MEMORY && host.huge_pages_bytes > 0 {
                let huge = Bytes(host.huge_pages_bytes).rounded();
                finding.with_remedy(format!(
                    "no tenant gets the huge pages of {huge}: lower the guarantees or vm.nr_hugepages"
                ))
            } else {
                finding
            });
        }
    }
    let is_reported =
        |target: &Target| weight::is_reported(target.cpu_weight, target.exact_cpu_weight);
    let reported: Vec<(&TreeNode, &Target)> =
        nodes.iter().zip(targets).filter(|(_, target)| is_reported(target)).collect();
    for (node, target) in reported.iter().take(MOST_REPORTED) {
        let what = format!(
            "its CPU weight is {:.0} instead of {:.2}: the kernel's weights are whole numbers from 1 to 10000, \
             and its siblings are too far apart",
            target.cpu_weight, target.exact_cpu_weight
        );
        findings.push(Finding::of(&node.path, Code::Ineffective, what));
    }
    if let Some(more @ 1..) = reported.len().checked_sub(MOST_REPORTED) {
        let what = format!("the CPU weights of {more} more tenants are not what they should be");
        findings.push(Finding::of_host(Code::Ineffective, what));
    }
    findings
}

/// Allocation of each leaf by `rule`; groups stay empty.
fn allocations(
    nodes: &[TreeNode],
    demands: &[Demand],
    (rows, kept): (&Rows, Kept),
    rule: Allocation,
    burst: &PerResource<Vec<f64>>,
) -> Vec<Target> {
    let capacity = rows.host;
    let empty = || vec![Target { satisfied: true, ..Target::default() }; nodes.len()];
    let algorithm = match rule {
        Allocation::Drf => Algorithm::Drf,
        Allocation::MaxMin => Algorithm::MaxMin,
        Allocation::Static => return by_weight_alone(nodes, demands, capacity, burst, empty()),
    };
    let described = nodes.iter().zip(demands).enumerate().map(|(index, (node, demand))| {
        describe(node, demand, (rows, rows.of_disk(index)), |row| match row {
            Row::Host(MEMORY) if rows.of_disk(index).waits() => {
                let reserved = demand.amount[MEMORY].min(burst[MEMORY][index]) * RESERVED_RATIO;
                reserved.max(node.terms(row).guarantee * kept.ratio(row))
            }
            row => node.terms(row).guarantee * kept.ratio(row),
        })
    });
    let whole = Amounts::of(rows, |row| match row {
        Row::Host(r) => capacity[r],
        Row::Disk => rows.disk.as_ref().map_or(0.0, |disk| disk.capacity),
    });
    let problem = match Problem::try_new(whole.as_ref().to_vec(), described.collect()) {
        Ok(problem) => problem,
        Err(findings) => {
            // The policy was checked and demands are bounded, so this is a bug of the agent. Weights alone
            // are a safe fallback.
            debug_assert!(false, "{findings:?}");
            return by_weight_alone(nodes, demands, capacity, burst, empty());
        }
    };
    let solution = fair::allocate(&problem, algorithm, WorkConserving::Yes);
    let mut targets = empty();
    for leaf in &solution.leaves {
        let (allocation, of_disk) = (solution.allocation(leaf.node), rows.of_disk(leaf.node));
        let target = &mut targets[leaf.node];
        target.allocation = PerResource::from_fn(|r| allocation[r as usize]);
        target.dominant = leaf.dominant_resource.map(Row::at);
        target.dominant_share = leaf.dominant_share;
        target.level = leaf.level;
        target.disk = rows.disk.as_ref().map(|_| {
            let allocation = allocation[Row::DISK_AT];
            let slack = if of_disk.cpu_growth > 1.0 { SLACK_RATIO } else { 0.0 };
            let is_met = meets(allocation, of_disk.part * (1.0 - slack));
            let is_scarce = solution.saturated[Row::DISK_AT] && !is_met;
            DiskPart { allocation, is_met, is_scarce }
        });
        let lacks_disk = target.disk.is_some_and(|disk| !disk.is_met);
        let slack = |r: Resource| if r == CPU && lacks_disk { SLACK_RATIO } else { 0.0 };
        let wanted = |r: Resource| demands[leaf.node].amount[r] * (1.0 - slack(r));
        let is_met = |r| meets(target.allocation[r], wanted(r));
        target.satisfied = is_met(CPU);
        target.scarce = PerResource::from_fn(|r| solution.saturated[r as usize] && !is_met(r));
    }
    targets
}

/// Allocates by weight alone, whatever the demands, for comparison.
fn by_weight_alone(
    nodes: &[TreeNode],
    demands: &[Demand],
    capacity: PerResource<f64>,
    bursts: &PerResource<Vec<f64>>,
    mut targets: Vec<Target>,
) -> Vec<Target> {
    for (index, node) in nodes.iter().enumerate().filter(|(_, node)| node.is_leaf) {
        let target = &mut targets[index];
        target.allocation = PerResource::from_fn(|r| bursts[r][index]);
        let share = |r: Resource| target.allocation[r] / capacity[r];
        // The first resource wins a tie.
        let largest = |a: Resource, b| if share(b) > share(a) { b } else { a };
        if let Some(dominant) = Resource::ALL.into_iter().reduce(largest) {
            (target.dominant, target.dominant_share) = (Some(dominant.into()), share(dominant));
            target.level = share(dominant) / node.weight[dominant];
        }
        target.satisfied = meets(bursts[CPU][index], demands[index].amount[CPU]);
    }
    targets
}

/// True if `allocation` meets `demand`, up to rounding.
pub(crate) fn meets(allocation: f64, demand: f64) -> bool {
    allocation >= demand * (1.0 - SATISFIED_RATIO)
}

/// Amounts of one node: of each resource, and of a disk if one is divided with them.
#[derive(Clone, Copy, Debug)]
struct Amounts {
    all: [f64; Resource::ALL.len() + 1],
    nr: usize,
}

impl Amounts {
    fn of(rows: &Rows, amount: impl FnMut(Row) -> f64) -> Amounts {
        let mut amounts = Amounts { all: Default::default(), nr: 0 };
        let of_host = Resource::ALL.into_iter().map(Row::Host);
        let each = of_host.chain(rows.disk.as_ref().map(|_| Row::Disk)).map(amount);
        for (place, amount) in amounts.all.iter_mut().zip(each) {
            *place = amount;
            amounts.nr += 1;
        }
        amounts
    }
}

impl AsRef<[f64]> for Amounts {
    fn as_ref(&self) -> &[f64] {
        &self.all[..self.nr]
    }
}

/// Converts a node for the allocation core, with the kept part of its guarantees.
fn describe(
    node: &TreeNode,
    demand: &Demand,
    (rows, of_disk): (&Rows, DiskDemand),
    guarantee: impl Fn(Row) -> f64,
) -> fair::Node<Amounts> {
    let guarantee = Amounts::of(rows, guarantee);
    let limit = Amounts::of(rows, |row| node.terms(row).limit);
    let wanted = |row: Row| match row {
        Row::Host(r) if demand.amount[r] <= r.noise() => 0.0,
        Row::Host(CPU) if of_disk.waits() => {
            let whole = rows.host[CPU].min(node.terms(row).limit);
            (demand.amount[CPU] * of_disk.growth).min(whole).max(demand.amount[CPU])
        }
        Row::Host(r) => demand.amount[r],
        Row::Disk => of_disk.at_full_speed(),
    };
    let kind = if node.is_leaf {
        let task = Amounts::of(rows, wanted);
        fair::Kind::Leaf(fair::Demand { task, tasks: 1.0, guarantee, limit })
    } else {
        fair::Kind::Group(fair::Bounds { guarantee, limit })
    };
    let weight = Amounts::of(rows, |row| node.terms(row).weight);
    fair::Node { parent: node.parent, weight, kind }
}

/// Weight-fair share of `cores` for each node within its limit, with the guarantees below it: its amount if
/// all demands are unlimited.
pub(crate) fn bursts(nodes: &[TreeNode], cores: f64) -> Vec<f64> {
    fair_shares(nodes, cores, CPU)
}

/// Share of `amount` of a resource for each node while all want everything: within its limit, with the
/// guarantees below it.
pub fn fair_shares(nodes: &[TreeNode], amount: f64, row: impl Into<Row>) -> Vec<f64> {
    burst::bursts(nodes, amount, row)
}

fn weigh(
    nodes: &[TreeNode],
    (bursts, cores): (&[f64], f64),
    turns: &Turns,
    targets: &mut [Target],
) {
    let by_weight = burst::by_weight(nodes, cores, CPU);
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); nodes.len() + 1];
    for (index, node) in nodes.iter().enumerate() {
        targets[index].floor_cores = floor(bursts[index], by_weight[index]);
        sets[burst::siblings_of(node)].push(index);
    }
    let whole = |set: usize| set.checked_sub(1).map_or(cores, |parent| bursts[parent]);
    let entitlements = |targets: &[Target], set: usize| {
        let shares: Vec<Share> = sets[set].iter().map(|node| targets[*node].share()).collect();
        siblings::entitlements(&shares, whole(set))
    };
    if !turns.are_over() {
        let mut entitled = vec![0.0; nodes.len()];
        for (set, members) in sets.iter().enumerate() {
            let each = entitlements(targets, set).into_iter().zip(members);
            each.for_each(|(it, node)| entitled[*node] = it.now * whole(set));
        }
        for (target, loan) in targets.iter_mut().zip(turns.lend(nodes, &sets, &entitled)) {
            (target.lent_cores, target.net_lent_cores) = (loan.lent_cores, loan.net_cores);
        }
    }
    for (set, members) in sets.iter().enumerate().filter(|(_, members)| !members.is_empty()) {
        let entitlements = entitlements(targets, set);
        let weights = weight::weigh(&entitlements);
        let each = weights.written.iter().zip(weights.exact).zip(entitlements);
        for (&node, ((written, exact), entitlement)) in members.iter().zip(each) {
            let target = &mut targets[node];
            target.entitled_cores = entitlement.now * whole(set);
            (target.cpu_weight, target.exact_cpu_weight) = (*written, exact);
        }
    }
}

/// CPUs of a node's weight-only share that other guarantees leave.
fn floor(burst: f64, by_weight: f64) -> f64 {
    let is_squeezed = burst < by_weight * (1.0 - SATISFIED_RATIO);
    if is_squeezed { by_weight * burst::FLOOR_RATIO } else { 0.0 }
}

/// Knobs that enforce each target, if cgroups are nested like the policy.
pub fn knobs(nodes: &[TreeNode], targets: &[Target]) -> Vec<Vec<(Knob, Value)>> {
    let protections = protections(&Tree::new(nodes.into()), |node| &targets[node.at()]);
    let each = targets.iter().zip(protections);
    each.map(|(target, it)| knobs_of(target, it.low_bytes).collect()).collect()
}

pub(crate) fn knobs_of(
    target: &Target,
    protection_bytes: f64,
) -> impl Iterator<Item = (Knob, Value)> + use<> {
    let (limit, pids) = (target.limit, target.pids_limit);
    let limit = move |r: Resource| Some((Knob::limit(r), Value::amount(r, limit[r]?)));
    let weight = (Knob::CpuWeight, Value::Weight(target.cpu_weight));
    let low = (Knob::MemoryLow, Value::amount(MEMORY, protection_bytes.floor()));
    let pids = pids.map(|pids| (Knob::PidsMax, Value::Count(Limit::Finite(pids.into()))));
    Resource::ALL.into_iter().filter_map(limit).chain([weight, low]).chain(pids)
}

/// Bounds the protection of leaves by unreclaimable memory, on the host and within a memory limit above the
/// tenants. `usages` has the order of the nodes; memory of a leaf without usage counts as outside.
///
/// Returns the shortage of protection. Without memory counters of the host nothing is bounded.
pub fn protect<'a>(
    nodes: &[TreeNode],
    usages: impl Iterator<Item = Option<&'a Usage>>,
    host: &HostSample,
    above: &AncestorBounds,
    targets: &mut [Target],
) -> Option<Shortage> {
    let leaves: Vec<usize> = (0..nodes.len()).filter(|&node| nodes[node].is_leaf).collect();
    let usages = usages.enumerate().filter(|(node, _)| nodes[*node].is_leaf);
    let needs: Vec<Need> =
        usages.map(|(node, usage)| need(&nodes[node], &targets[node], usage)).collect();
    let sum = |amount: fn(&Need) -> f64| needs.iter().map(amount).sum::<f64>();
    let held = host.unreclaimable_bytes? as f64 - sum(|need| need.unreclaimable_bytes);
    let anon = host.anon_bytes.unwrap_or(0) as f64 - sum(|need| need.anon_bytes);
    let machine = protect::Memory {
        total_bytes: host.memory_total_bytes as f64,
        swap_free_bytes: host.swap_free_bytes.unwrap_or(0) as f64,
        outside_unreclaimable_bytes: held.max(0.0),
        outside_anon_bytes: anon.max(0.0),
        kept_free_bytes: host.kept_free_bytes.unwrap_or(0) as f64,
    };
    // A limit above the tenants does not include outside memory.
    let limited = above.limit[MEMORY].map(|bytes| protect::Memory {
        total_bytes: bytes.min(machine.total_bytes),
        outside_unreclaimable_bytes: 0.0,
        outside_anon_bytes: 0.0,
        kept_free_bytes: 0.0,
        ..machine
    });
    let mut shortage: Option<Shortage> = None;
    for memory in std::iter::once(machine).chain(limited) {
        let protections = protect::protect(&memory, &needs);
        for ((&leaf, need), bytes) in leaves.iter().zip(&needs).zip(&protections.bytes) {
            let before = shortage.and(targets[leaf].bounded_protection_bytes);
            let bytes = before.map_or(*bytes, |before| before.min(*bytes));
            let is_bounded = bytes < need.wanted_bytes * (1.0 - SATISFIED_RATIO);
            targets[leaf].bounded_protection_bytes = is_bounded.then_some(bytes);
        }
        let worse = |found: &Shortage| {
            shortage.is_none_or(|known| found.protected_bytes < known.protected_bytes)
        };
        shortage = protections.shortage.filter(worse).or(shortage);
    }
    shortage
}

/// Unreclaimable memory of a leaf, and its wanted protection.
fn need(node: &TreeNode, target: &Target, usage: Option<&Usage>) -> Need {
    let of = |amount: fn(&Usage) -> Option<f64>| usage.and_then(amount).unwrap_or(0.0);
    Need {
        unreclaimable_bytes: of(|usage| usage.unreclaimable_bytes),
        anon_bytes: of(|usage| usage.anon_bytes),
        growth_bytes: of(|usage| usage.unreclaimable_growth_bytes),
        limit_bytes: node.limit[MEMORY].unwrap_or(f64::INFINITY),
        wanted_bytes: target.wanted_protection(),
        guarantee_bytes: node.guarantee[MEMORY].unwrap_or(0.0),
        fair_bytes: target.burst[MEMORY],
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Protection {
    pub(crate) min_bytes: f64,
    pub(crate) low_bytes: f64,
}

/// True if the tenant of this cgroup has guaranteed memory.
pub fn is_promised(node: Node<'_>) -> bool {
    let guarantee = node.policy().filter(|_| node.has_work());
    guarantee.is_some_and(|node| node.guarantee[MEMORY].is_some_and(|bytes| bytes > 0.0))
}

/// Protection of each governed cgroup for the tenants below it, by position.
pub(crate) fn protections<'a>(
    tree: &Tree,
    target: impl Fn(Node<'_>) -> &'a Target,
) -> Vec<Protection> {
    let mut protections = vec![Protection::default(); tree.len()];
    for node in tree.from_above().rev() {
        if node.has_work() {
            let target = target(node);
            let wanted = || target.wanted_protection();
            let low_bytes = target.bounded_protection_bytes.unwrap_or_else(wanted);
            protections[node.at()] =
                Protection { min_bytes: target.promised_bytes(low_bytes), low_bytes };
        }
        if let Some(parent) = node.governed_parent().map(Node::at) {
            let Protection { min_bytes, low_bytes } = protections[node.at()];
            protections[parent].min_bytes += min_bytes;
            protections[parent].low_bytes += low_bytes;
        }
    }
    protections
}
