//! Tenants of several cgroups: sums over members, and parts for members.
//!
//! **Problem.** The policy names tenants, the kernel has cgroups. A tenant may be two services, or all
//! containers of one name; its cgroups come and go.
//!
//! **Rules.** Usage, demand, waits and memory are measured per member. The tenant's usage and demand are
//! the sums; its pressure is the maximum. The machine is divided among tenants. A tenant's amount is
//! divided among its members by max-min fairness of their demands, and so are its guarantee and limit; each
//! member gets an equal part of the rest, because it may want more at any moment. Guarantees and limits
//! move only if a member in need gains at least a twentieth: each move costs a write. A member that wakes
//! gets an equal part of the tenant's burst.
//!
//! **Changing members.** A member without a sample has no demand, and gets only its parts of the burst and
//! the rest. A tenant without members is like an empty cgroup. The counts of a lost member stay in its
//! tenant's totals.
//!
//! **Properties** (`tests/control/members.rs`): parts add up to the whole
//! (`what_a_tenant_has_is_what_its_members_have`), a tenant is treated the same in one cgroup or in several
//! (`several_cgroups_are_treated_as_one`), totals never fall (`totals_outlive_members`).
//! `tests/control/govern.rs` tests them over random trees with a model of the kernel's division.

use std::ops::Range;
use std::time::Duration;

use crate::measure::usage::Usage;
use crate::share::demand::Demand;
use crate::share::pids::PidsState;
use crate::share::target::{self, Target};
use crate::state::NodeState;
use crate::tree::{Node, Tree};
use tenantd_core::disk_rate::{DiskRate, PerRate};
use tenantd_core::resource::{CPU, MEMORY, PerResource};
use tenantd_fair::max_min::{self, Claim};

/// Least gain of a member in need for which limits and guarantees are divided anew.
const GAIN_RATIO: f64 = 1.05;

/// Part of its limit of processes or of requests above which a member needs more.
const NEAR_RATIO: f64 = 0.8;

/// Part of an equal part of a limit of requests that a member at rest needs.
const REST_RATIO: f64 = 0.25;

/// Sums the members' usage for each tenant, and adds their counts to its totals. `elapsed` is the time
/// since the last tick.
pub(crate) fn sum_up(tree: &Tree, states: &mut [NodeState], elapsed: Option<Duration>) {
    for tenant in tenants(tree) {
        let members = tenant.members();
        let of_members = &states[members.clone()];
        let usage = if members.is_empty() {
            Some(Usage::of_empty())
        } else {
            of_members.iter().filter_map(|state| state.usage).reduce(sum)
        };
        let is_present = of_members.iter().any(|state| state.is_present);
        let state = &mut states[tenant.at()];
        (state.is_governed, state.is_present, state.usage) = (true, is_present, usage);
        if let Some((usage, elapsed)) = usage.zip(elapsed) {
            state.totals.note_waits(&usage, elapsed);
            state.totals.note_disks(&usage, elapsed);
        }
        note_totals(states, tenant, members);
    }
}

/// Continues the tenants' totals from their members' current ones. Call it after members have gone.
pub(crate) fn note_all_totals(tree: &Tree, states: &mut [NodeState]) {
    for tenant in tenants(tree) {
        note_totals(states, tenant, tenant.members());
    }
}

fn note_totals(states: &mut [NodeState], tenant: Node<'_>, members: Range<usize>) {
    let of_members = &states[members];
    let cpu_usec = of_members.iter().filter_map(|state| state.totals.cpu_usec.total());
    let cpu_usec = cpu_usec.reduce(|a, b| a + b);
    let kills = of_members.iter().filter_map(|state| state.oom_kills.total());
    let kills = kills.reduce(|a, b| a + b);
    // These tallies begin at 0, so the first reading counts.
    let pids = of_members.iter().map(|state| state.pids).reduce(PidsState::and);
    let state = &mut states[tenant.at()];
    state.pids.follow(pids.unwrap_or_default());
    state.totals.cpu_usec.follow(cpu_usec.unwrap_or(0));
    state.oom_kills.follow(kills.unwrap_or(0));
}

fn sum(a: Usage, b: Usage) -> Usage {
    let add = |of: fn(&Usage) -> Option<f64>| match (of(&a), of(&b)) {
        (Some(a), Some(b)) => Some(a + b),
        (a, b) => a.or(b),
    };
    let most = |of: fn(&Usage) -> Option<f64>| match (of(&a), of(&b)) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    let either = |a: Option<bool>, b: Option<bool>| match (a, b) {
        (Some(a), Some(b)) => Some(a || b),
        (a, b) => a.or(b),
    };
    // A member whose threads were not read counts with its usage.
    let wants = |usage: &Usage| usage.wanted_cores.unwrap_or(usage.cpu_cores);
    let was_asked = a.wanted_cores.or(b.wanted_cores).is_some();
    Usage {
        cpu_cores: a.cpu_cores + b.cpu_cores,
        cpu_some_ratio: most(|usage| usage.cpu_some_ratio),
        throttled: a.throttled || b.throttled,
        wanted_cores: was_asked.then(|| wants(&a) + wants(&b)),
        sleepless_cores: add(|usage| usage.sleepless_cores),
        held: PerResource::from_fn(|r| match (a.held[r], b.held[r]) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        }),
        charged_bytes: add(|usage| usage.charged_bytes),
        unreclaimable_bytes: add(|usage| usage.unreclaimable_bytes),
        anon_bytes: add(|usage| usage.anon_bytes),
        unreclaimable_growth_bytes: add(|usage| usage.unreclaimable_growth_bytes),
        charged_growth_bytes: add(|usage| usage.charged_growth_bytes),
        stolen_bytes: add(|usage| usage.stolen_bytes),
        refaulted_bytes: add(|usage| usage.refaulted_bytes),
        memory_some_ratio: most(|usage| usage.memory_some_ratio),
        memory_full_ratio: most(|usage| usage.memory_full_ratio),
        refaults_per_sec: add(|usage| usage.refaults_per_sec),
        io_some_ratio: most(|usage| usage.io_some_ratio),
        disks: a.disks.and(&b.disks),
        reclaimed: either(a.reclaimed, b.reclaimed),
        met_limit: a.met_limit || b.met_limit,
        met_bound: either(a.met_bound, b.met_bound),
        populated: a.populated || b.populated,
    }
}

/// Sets each tenant's demand to its members' sum, within its limit and the `machine`. Unknown demands keep
/// the last one. Without members the demand is that of an empty cgroup.
pub(crate) fn sum_up_demands(
    tree: &Tree,
    states: &mut [NodeState],
    machine: PerResource<f64>,
    elapsed: Duration,
) {
    for tenant in tenants(tree) {
        let (at, members) = (tenant.at(), tenant.members());
        let node = &tree.nodes()[at];
        let max = node.at_most(machine);
        if members.is_empty() {
            states[at].estimate(node.guarantee[CPU], max, elapsed);
        } else if let Some(demand) = demand(&states[members], &max) {
            // The members' demands were raised for their OOM kills.
            states[at].oom_kills.answer();
            states[at].demand = Some(demand);
        }
    }
}

fn tenants(tree: &Tree) -> impl Iterator<Item = Node<'_>> {
    tree.policy_nodes().filter(|node| node.has_members())
}

fn demand(members: &[NodeState], max: &PerResource<f64>) -> Option<Demand> {
    let demands = || members.iter().filter_map(|state| state.demand);
    let largest = |r| {
        let by_amount = |a: &Demand, b: &Demand| a.amount[r].total_cmp(&b.amount[r]);
        demands().max_by(by_amount)
    };
    let sum = |r| demands().map(|demand| demand.amount[r]).sum::<f64>();
    let amount = PerResource::from_fn(|r| sum(r).min(max[r]));
    Some(Demand {
        amount,
        cpu_basis: largest(CPU)?.cpu_basis,
        memory_basis: largest(MEMORY)?.memory_basis,
    })
}

/// Appends the targets of all members, as parts of their tenants', to those of the nodes.
///
/// O(n log n) in the number of members.
pub fn divide(tree: &Tree, states: &[NodeState], targets: &mut Vec<Target>) {
    debug_assert_eq!(targets.len(), tree.nodes().len());
    for (tenant, members) in tree.sets_of_members() {
        let before = &states[members];
        let parts = parts(&targets[tenant], before);
        targets.extend(parts);
    }
}

fn parts(whole: &Target, members: &[NodeState]) -> Vec<Target> {
    let demands = members.iter().map(|state| state.demand.unwrap_or(Demand::UNKNOWN).amount);
    let demands: Vec<PerResource<f64>> = demands.collect();
    let divided = |r, amount: f64| part_by_part(amount, demands.iter().map(|demand| demand[r]));
    let allocation = PerResource::from_fn(|r| divided(r, whole.allocation[r]));
    let bounds = |of: fn(&Target) -> &PerResource<Option<f64>>| {
        PerResource::from_fn(|r| {
            let fresh = divided(r, of(whole)[r]?);
            let before: Option<Vec<f64>> =
                members.iter().map(|state| of(&state.target)[r]).collect();
            let kept = before.filter(|before| may_stay(before, &fresh, |index| demands[index][r]));
            Some(kept.unwrap_or(fresh))
        })
    };
    let (guarantee, limit) = (bounds(|it| &it.guarantee), bounds(|it| &it.limit));
    let pids_limit = whole.pids_limit.map(|limit| pids_parts(limit, members));
    let disk_limit = PerRate::from_fn(|r| Some(disk_parts(whole.disk_limit[r]?, r, members)));
    let nr = demands.len() as f64;
    let fair_bytes = divided(MEMORY, whole.burst[MEMORY]);
    let mut parts: Vec<Target> = Vec::with_capacity(demands.len());
    for (index, demand) in demands.iter().enumerate() {
        let allocated = PerResource::from_fn(|r| allocation[r][index]);
        let of = |parts: &PerResource<Option<Vec<f64>>>| {
            PerResource::from_fn(|r| Some(parts[r].as_ref()?[index]))
        };
        let part = allocated[CPU] / whole.allocation[CPU].max(f64::MIN_POSITIVE);
        parts.push(Target {
            allocation: allocated,
            burst: PerResource([whole.burst[CPU] / nr, fair_bytes[index]]),
            floor_cores: whole.floor_cores / nr,
            lent_cores: whole.lent_cores * part,
            net_lent_cores: whole.net_lent_cores * part,
            // Without another weighting, its siblings are those of its tenant.
            cpu_weight: (whole.cpu_weight * part).max(1.0),
            exact_cpu_weight: (whole.cpu_weight * part).max(1.0),
            guarantee: of(&guarantee),
            limit: of(&limit),
            pids_limit: pids_limit.as_ref().map(|parts| parts[index] as u32),
            disk_limit: PerRate::from_fn(|r| Some(disk_limit[r].as_ref()?[index])),
            limit_cores: whole.limit_cores,
            satisfied: target::meets(allocated[CPU], demand[CPU]),
            ..whole.clone()
        });
    }
    bound_protection(whole, &mut parts);
    parts
}

/// Divides a process limit by the members' counts.
fn pids_parts(limit: u32, members: &[NodeState]) -> Vec<u64> {
    let has = |state: &NodeState| state.pids.last.map_or(0.0, |pids| pids.nr_current as f64);
    let needs = members.iter().map(|state| has(state) / NEAR_RATIO).collect();
    let before = members.iter().map(|state| state.target.pids_limit.map(f64::from)).collect();
    whole_parts(limit.into(), needs, before)
}

/// Divides a limit on each disk by the members' rates on the disk that they use most. A member at rest keeps enough to be
/// seen when it begins.
fn disk_parts(limit: u64, rate: DiskRate, members: &[NodeState]) -> Vec<u64> {
    let of = |state: &NodeState| {
        let flows = state.usage.iter().flat_map(|usage| usage.disks.iter());
        flows.map(|(_, flow)| flow.rate(rate)).fold(0.0, f64::max)
    };
    let least = limit as f64 * REST_RATIO / members.len() as f64;
    let needs = members.iter().map(|state| (of(state) / NEAR_RATIO).max(least)).collect();
    let before = members.iter().map(|state| Some(state.target.disk_limit[rate]? as f64)).collect();
    whole_parts(limit, needs, before)
}

/// Divides a limit by needs, in whole numbers from 1; the parts of `before` stay if no member would gain. A member near its
/// part needs more.
fn whole_parts(limit: u64, needs: Vec<f64>, before: Option<Vec<f64>>) -> Vec<u64> {
    let fresh: Vec<f64> = part_by_part(limit as f64, needs.iter().copied());
    let is_whole = |parts: &Vec<f64>| {
        let lost = limit as f64 - parts.iter().sum::<f64>();
        (0.0..=parts.len() as f64).contains(&lost)
    };
    let gains = |before: &Vec<f64>| gains(before, &fresh, |index| needs[index]);
    let kept = before.filter(|before| is_whole(before) && !gains(before));
    kept.unwrap_or(fresh).into_iter().map(|part| (part.floor() as u64).max(1)).collect()
}

/// True if the earlier limits may stay: the sum is the same, and no member in need would gain much.
fn may_stay(before: &[f64], fresh: &[f64], demand: impl Fn(usize) -> f64) -> bool {
    let sum = |parts: &[f64]| parts.iter().sum::<f64>();
    (sum(before) - sum(fresh)).abs() <= sum(fresh) * 1e-6 && !gains(before, fresh, demand)
}

fn gains(before: &[f64], fresh: &[f64], demand: impl Fn(usize) -> f64) -> bool {
    let gains = |(index, (before, fresh)): (usize, (&f64, &f64))| {
        demand(index) > *before && *fresh > *before * GAIN_RATIO
    };
    before.iter().zip(fresh).enumerate().any(gains)
}

/// Divides the tenant's possible protection like its wanted protection.
fn bound_protection(whole: &Target, parts: &mut [Target]) {
    let Some(bound) = whole.bounded_protection_bytes else { return };
    let wanted: f64 = parts.iter().map(Target::wanted_protection).sum();
    for part in parts {
        let ratio = part.wanted_protection() / wanted.max(f64::MIN_POSITIVE);
        part.bounded_protection_bytes = Some(bound * ratio);
    }
}

/// Divides `amount` by max-min fairness of demands, and the rest equally.
fn part_by_part(amount: f64, demands: impl Iterator<Item = f64>) -> Vec<f64> {
    let claim = |ceiling| Claim { weight: 1.0, floor: 0.0, ceiling };
    let claims: Vec<Claim> = demands.map(claim).collect();
    let mut parts = max_min::divide(amount, &claims).allocation;
    let left = (amount - parts.iter().sum::<f64>()).max(0.0) / parts.len() as f64;
    parts.iter_mut().for_each(|part| *part += left);
    parts
}
