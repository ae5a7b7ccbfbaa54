//! The allocation: its rule, and its result.

use super::drf::{self, Filling, Reservations};
use super::exact::{self, Unit};
use super::growth::{self, Growth};
use super::hierarchy;
use super::max_min::{self, Claim};
use super::measure;
use super::nodes::{Machines, Nodes, Placed};
use super::problem::Problem;
use super::promises;
use super::second_stage;
use super::slots;
use super::tasks;
use super::tree;
use super::weights::sibling_set;

/// The rule by which a problem is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Each resource alone, by weighted max-min.
    MaxMin,
    /// Weighted dominant resource fairness, hierarchical where there are groups.
    Drf,
    /// Weighted dominant resource fairness of whole tasks, granted one at a time.
    DrfTasks,
    /// Each resource alone, as YARN's fair scheduler does: guarantees are targets
    /// ([`super::problem::Guarantees::Targets`]).
    Yarn,
}

/// Division of the resources that proportions leave idle; see [`super::allocate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkConserving {
    /// DRF as published: every allocation is a multiple of the demand.
    No,
    /// The second stage follows.
    Yes,
}

/// The result: `n` nodes, `m` resources, in the order of the problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// Amount of each node, `n × m`, row-major; for a group the sum of its leaves.
    pub allocation: Vec<f64>,
    /// The leaves, in node order.
    pub leaves: Vec<Leaf>,
    /// Rest of each resource.
    pub unallocated: Vec<f64>,
    /// True for a resource that is allocated completely, except for rounding.
    pub saturated: Vec<bool>,
    /// The leaves (as nodes) in the order of their grants, one entry for each task; whole tasks only.
    pub order: Vec<usize>,
    /// The machines of the tasks; [`allocate_on`] only.
    pub placed: Option<Placed>,
}

impl Solution {
    /// Amount of each resource that a node gets.
    pub fn allocation(&self, node: usize) -> &[f64] {
        let m = self.unallocated.len();
        &self.allocation[node * m..(node + 1) * m]
    }
}

/// The result for a leaf.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leaf {
    /// Index of the node.
    pub node: usize,
    /// Tasks it can run with its allocation: the part of its demand that is granted.
    pub fraction: f64,
    /// The resource of which its weighted share is the largest; by demand when it has nothing.
    pub dominant_resource: Option<usize>,
    /// Its part of that resource, 0 ..= 1.
    pub dominant_share: f64,
    /// Its weighted dominant share when filling stopped (of the first stage, where two follow).
    pub level: f64,
    /// Reason why it has no more.
    pub state: State,
}

/// Reason why a leaf has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It has its whole demand.
    Satisfied,
    /// It has reached its limit, or that of a group above it.
    Limited,
    /// It demands a saturated resource.
    Blocked,
    /// It demands nothing.
    NoDemand,
}

/// Shares that differ by less than this part are equal except for rounding.
const EQUAL: f64 = 1e-12;

/// A resource with less than this part left is saturated.
const SATURATED: f64 = 1e-9;

/// Divides the capacity of `problem`.
///
/// [`WorkConserving`] concerns [`Algorithm::Drf`]; the others leave nothing that a leaf wants, or allocate
/// only whole tasks.
pub fn allocate(
    problem: &Problem,
    algorithm: Algorithm,
    work_conserving: WorkConserving,
) -> Solution {
    let kept = match algorithm {
        Algorithm::Drf | Algorithm::DrfTasks => promises::to_leaves(problem),
        Algorithm::MaxMin | Algorithm::Yarn => None,
    };
    let problem = kept.as_ref().unwrap_or(problem);
    let mut division = Division::InProportion;
    let (allocation, filling) = match (algorithm, work_conserving) {
        (Algorithm::MaxMin | Algorithm::Yarn, _) => {
            division = Division::EachAlone;
            each_alone(problem)
        }
        (Algorithm::Drf, WorkConserving::No) => {
            let filling = fill(problem, Reservations::None);
            (in_proportion(problem, &filling), filling)
        }
        (Algorithm::Drf, WorkConserving::Yes) => {
            let filling = fill(problem, Reservations::Held);
            (second_stage::divide(problem, &filling), filling)
        }
        (Algorithm::DrfTasks, _) => return whole(problem, tasks::fill(problem, None)),
    };
    conclude(problem, division, allocation, &filling)
}

/// Divides machines among whole tasks, each on one machine: with `slots` slots on each machine, or by the
/// demands of the tasks ([`Algorithm::DrfTasks`]). The capacity of `problem` is that of all machines.
pub fn allocate_on(problem: &Problem, nodes: &Nodes, slots: Option<u64>) -> Solution {
    let kept = promises::to_leaves(problem);
    let problem = kept.as_ref().unwrap_or(problem);
    let (grants, placed) = match slots {
        Some(slots) => slots::fill(problem, nodes, slots),
        None => {
            let mut machines = Machines::new(problem, nodes);
            let grants = tasks::fill(problem, Some(&mut machines));
            (grants, machines.placed())
        }
    };
    Solution { placed: Some(placed), ..whole(problem, grants) }
}

fn whole(problem: &Problem, grants: tasks::Grants) -> Solution {
    let growth = |leaf: usize| Growth { hi: grants.most[leaf] as f64, ..growth::of(problem, leaf) };
    let filling = Filling {
        tasks: grants.tasks.iter().map(|&tasks| tasks as f64).collect(),
        growth: (0..problem.nodes()).map(growth).collect(),
    };
    let division = Division::WholeTasks;
    Solution { order: grants.order, ..conclude(problem, division, grants.held, &filling) }
}

/// Returns the allocation alone, for a rule that divides tasks and a problem without groups and bounds: a
/// quarter of the work.
pub(super) fn tasks_by(problem: &Problem, algorithm: Algorithm) -> Vec<f64> {
    match algorithm {
        Algorithm::MaxMin => each_alone(problem).0,
        _ => in_proportion(problem, &fill(problem, Reservations::None)),
    }
}

/// Coupling of resources by a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Division {
    /// By tasks, in the proportions of the demand.
    InProportion,
    /// By whole tasks.
    WholeTasks,
    /// Each resource by itself.
    EachAlone,
}

/// Multiplies the task of each leaf by its number of tasks.
fn in_proportion(problem: &Problem, filling: &Filling) -> Vec<f64> {
    let m = problem.resources();
    let tasks = filling.tasks.iter().flat_map(|&tasks| std::iter::repeat_n(tasks, m));
    tasks
        .zip(&problem.task)
        .map(|(tasks, task)| if *task > 0.0 { tasks * task } else { 0.0 })
        .collect()
}

fn fill(problem: &Problem, reservations: Reservations) -> Filling {
    if problem.is_flat() && problem.order.is_empty() {
        drf::fill(problem, reservations)
    } else {
        hierarchy::fill(problem, reservations)
    }
}

/// Weighted max-min of each resource alone.
fn each_alone(problem: &Problem) -> (Vec<f64>, Filling) {
    let (n, m) = (problem.nodes(), problem.resources());
    let mut allocation = vec![0.0; n * m];
    for r in 0..m {
        let claim = |node: usize| {
            let (floor, ceiling) = if problem.is_leaf[node] {
                (problem.floor(node, r), problem.ceiling(node, r))
            } else {
                (problem.guarantee(node)[r], problem.limit(node)[r])
            };
            Claim { weight: problem.weight(node)[r], floor, ceiling }
        };
        let mut claims: Vec<Claim> = (0..n).map(claim).collect();
        let shares = max_min::divide_tree(problem, problem.capacity[r], &mut claims);
        for (node, share) in shares.into_iter().enumerate() {
            allocation[node * m + r] = share;
        }
    }
    let filling = Filling {
        tasks: vec![0.0; n],
        growth: (0..n).map(|leaf| growth::of(problem, leaf)).collect(),
    };
    (allocation, filling)
}

/// Adds up groups and leftovers, and computes the state of every leaf.
fn conclude(
    problem: &Problem,
    division: Division,
    mut allocation: Vec<f64>,
    filling: &Filling,
) -> Solution {
    let m = problem.resources();
    add_up_groups(problem, &mut allocation);
    let at_limit = groups_at_limit(problem, &allocation);
    let leaves = problem.leaves().map(|leaf| {
        let row = &allocation[problem.row(leaf)];
        let mut concluded = conclude_leaf(problem, division, leaf, row, filling);
        let set = sibling_set(&problem.parent, leaf) * m;
        let is_held = |r: usize| problem.task(leaf)[r] > 0.0 && at_limit[set + r];
        if concluded.state == State::Blocked && !at_limit.is_empty() && (0..m).any(is_held) {
            concluded.state = State::Limited;
        }
        concluded
    });
    let leaves: Vec<Leaf> = leaves.collect();
    let left = |r: usize| {
        let unit = Unit::for_terms_up_to(problem.capacity[r]);
        let used = problem.leaves().map(|leaf| allocation[leaf * m + r]);
        let left = (-exact::excess(unit, used, problem.capacity[r])).max(0.0);
        if left <= problem.capacity[r] * EQUAL { 0.0 } else { left }
    };
    let unallocated: Vec<f64> = (0..m).map(left).collect();
    let saturated = (0..m).map(|r| unallocated[r] <= problem.capacity[r] * SATURATED).collect();
    Solution { allocation, leaves, unallocated, saturated, order: Vec::new(), placed: None }
}

/// Sets the allocation of every group to the sum of its members.
fn add_up_groups(problem: &Problem, allocation: &mut [f64]) {
    if problem.is_flat() {
        return;
    }
    let m = problem.resources();
    let members = tree::members(problem);
    for group in (0..problem.nodes()).rev().filter(|&node| !problem.is_leaf[node]) {
        for r in 0..m {
            let amounts = members.of(Some(group)).iter().map(|&node| allocation[node * m + r]);
            allocation[group * m + r] = exact::sum(amounts);
        }
    }
}

/// For each set of siblings, true for a resource if some group above has reached its limit. Empty if no
/// group has a limit.
fn groups_at_limit(problem: &Problem, allocation: &[f64]) -> Vec<bool> {
    let (n, m) = (problem.nodes(), problem.resources());
    let groups = || (0..n).filter(|&node| !problem.is_leaf[node]);
    if !groups().any(|group| problem.limit(group).iter().any(|limit| limit.is_finite())) {
        return Vec::new();
    }
    let mut at_limit = vec![false; (n + 1) * m];
    for group in groups() {
        let above = sibling_set(&problem.parent, group);
        for r in 0..m {
            let is_full = allocation[group * m + r] >= problem.limit(group)[r] * (1.0 - SATURATED);
            at_limit[(group + 1) * m + r] = at_limit[above * m + r] || is_full;
        }
    }
    at_limit
}

fn conclude_leaf(
    problem: &Problem,
    division: Division,
    leaf: usize,
    row: &[f64],
    filling: &Filling,
) -> Leaf {
    let growth = filling.growth[leaf];
    let wants = problem.task(leaf).iter().any(|&task| task > 0.0);
    let runs = if wants { measure::tasks_of(problem, leaf, row) } else { 0.0 };
    let filled = filling.tasks[leaf];
    // Allocation out of proportion may let it run more tasks, but rounding may not.
    let is_whole = division == Division::WholeTasks;
    let tasks = if !is_whole && runs > filled * (1.0 + EQUAL) { runs } else { filled };
    let (level, is_full) = match division {
        Division::InProportion | Division::WholeTasks => {
            (growth.rho * filled, tasks >= growth.hi * (1.0 - EQUAL))
        }
        Division::EachAlone => {
            let is_full = |r: usize| row[r] >= problem.ceiling(leaf, r) * (1.0 - EQUAL);
            let level = measure::weighted_dominant_share(problem, leaf, row);
            (level, (0..row.len()).all(is_full))
        }
    };
    let state = match (wants, is_full) {
        (false, _) => State::NoDemand,
        (true, false) => State::Blocked,
        (true, true) if is_limited(problem, leaf) => State::Limited,
        (true, true) => State::Satisfied,
    };
    let (dominant_resource, dominant_share) = measure::dominant_share(problem, leaf, row);
    Leaf { node: leaf, fraction: tasks, dominant_resource, dominant_share, level, state }
}

/// True if a limit keeps a leaf below its demand.
fn is_limited(problem: &Problem, leaf: usize) -> bool {
    let limit = problem.limit(leaf).iter();
    let mut bounds = problem.task(leaf).iter().zip(limit).filter(|(task, _)| **task > 0.0);
    bounds.any(|(task, &limit)| limit < task * problem.tasks(leaf) * (1.0 - EQUAL))
}
