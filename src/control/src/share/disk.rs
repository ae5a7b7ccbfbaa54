//! Weights of tenants on disks.
//!
//! **Problem.** The kernel divides the time of a disk among sibling cgroups by weight, if the disk's scheduler is bfq or
//! if its `io.cost` is on. Tenants in different slices must get the policy's ratios all the same, an idle sibling of one
//! must not cost it a part, and the values must stay the same while the load only changes.
//!
//! **Weights.** The weights of the policy give each tenant two parts of a disk: one among all tenants, and one among the
//! *active* tenants, those with a request in the last [`REST`](crate::state::disk::REST). As for CPU time, an active tenant
//! is weighed by the second part and a resting one by the first, so that it has its share as soon as it wakes; and
//! [`super::govern`] adds both up in the cgroups above tenants, with the use by other work below them. Among tenants in one
//! cgroup the two give the same ratios, and nothing is written when loads come and go. Several cgroups of a tenant have
//! equal parts of it, or of its second part the active ones.
//!
//! A guarantee is a floor of both parts. The contended disk may be divided together with CPU and memory
//! ([`super::contended`]): then its allocations are the second part, of tenants that want more than theirs.
//!
//! **Values** are whole numbers from 1 to [`MOST`]. The largest of siblings that are all governed is [`TOP`] if the smallest
//! is then still exact enough, because systemd writes smaller numbers to bfq for those above it. They are computed once a
//! second at most.
//!
//! **Properties** (`tests/agent/disk_weights.rs`): tenants that want more get the ratios of the policy
//! (`the_disk_is_divided_by_the_weights_of_the_policy`), and in slices of their own too, also beside one at rest
//! (`a_unit_at_rest_costs_its_neighbour_nothing`).

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::disk::{Device, DiskFlow, DiskName};
use crate::measure::disks::{Disk, Disks};
use crate::measure::ways::{UsedDisks, Ways};
use crate::share::burst;
use crate::share::contended::{self, Contended};
use crate::share::govern;
use crate::share::rows::DiskRow;
use crate::share::siblings::Share;
use crate::share::target::DiskPart;
use crate::share::weight::{Entitlement, Weights};
use crate::share::would_get::would_get;
use crate::state::NodeState;
use crate::state::drift::Observation;
use crate::tree::{Node, Row, Tree, TreeNode};
use crate::words::finding::{Code, Finding};
use crate::words::knob::{Knob, Purpose, Value};

/// Least time between two computations.
const PAUSE: Duration = Duration::from_secs(1);
/// Largest weight that bfq takes.
pub const MOST: f64 = 1000.0;
/// Largest weight that systemd writes to bfq as it is.
pub const TOP: f64 = 100.0;
/// Smallest weight whose rounding error is within a fortieth.
const EXACT: f64 = 20.0;
/// Ticks in which files may be new: that of the change, and the next, in which all are read.
const FRESH: u8 = 2;
/// Weight of a new cgroup.
const NEW: f64 = 100.0;
/// Most tenants reported by name for void guarantees.
const MOST_REPORTED: usize = 4;
/// Part of a disk that other work never takes from the weights of tenants.
const LEFT_RATIO: f64 = 0.1;

/// Disks and the last computation of weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Weighing {
    ways: Ways,
    used: UsedDisks,
    /// [`FRESH`] after the ways changed, so that files may have come or gone; then less by one in each tick.
    fresh: u8,
    age: Duration,
    contended: Contended,
}

impl Weighing {
    /// True if the files of all cgroups have to be read again: a scheduler makes and removes them.
    pub fn has_changed(&self) -> bool {
        self.fresh == FRESH
    }

    /// Marks the weights of new files, which have the kernel's default, as no drift.
    pub(crate) fn excuse(&self, observed: &mut [Observation]) {
        let is_new = |seen: &Observation| {
            seen.knob.purpose() == Purpose::Share && seen.value == Value::Weight(NEW)
        };
        let new = observed.iter_mut().filter(|seen| self.fresh > 0 && is_new(seen));
        new.for_each(|seen| seen.is_ours = true);
    }

    /// Findings on the disks that tenants use and that divide badly or not at all, and on cgroups, guarantees and a coupling
    /// without effect.
    pub(crate) fn findings(
        &self,
        (tree, states): (&Tree, &[NodeState]),
        disks: &Disks,
        couples: bool,
    ) -> Vec<Finding> {
        let name = |device| disks.iter().find(|(it, _)| *it == device).map(|(_, disk)| disk.name);
        let mut findings = self.used.findings(&self.ways, name);
        findings.extend(without_files(tree, states).filter(|_| self.fresh == 0));
        findings.extend(self.void_guarantees((tree, states), disks));
        findings.extend(self.void_coupling((tree, states), disks).filter(|_| couples));
        findings
    }

    /// The contended device as a row of the division of CPU and memory; `None` unless weights take effect on it.
    pub(crate) fn row(
        &self,
        (tree, states): (&Tree, &[NodeState]),
        disks: &Disks,
    ) -> Option<DiskRow> {
        let (device, _) = self.contended.disk(disks)?;
        let obeys = self.obeys(device) && self.fresh == 0 && !self.contended.is_void();
        (obeys && without_files(tree, states).is_none()).then(|| {
            let tenants = states.iter().take(tree.nodes().len());
            let demands = tenants.map(contended::demand).collect();
            DiskRow { capacity: self.contended.capacity(), demands }
        })
    }

    /// Name of the contended device; `None` if none is contended, or if its speed is unknown.
    pub fn contended(&self, disks: &Disks) -> Option<DiskName> {
        self.contended.disk(disks).map(|(_, disk)| disk.name)
    }

    /// Way in which a device divides its time by weights; `None` if it does not, or if that is unknown.
    pub fn divider(&self, device: Device) -> Option<&'static str> {
        self.ways.0.get(device)?.divider()
    }

    /// True if a device is known to divide its time by weights; false as well if that is unknown.
    pub fn obeys(&self, device: Device) -> bool {
        self.ways.0.get(device).is_some_and(|way| contended::obeys(&way))
    }

    /// Finding on a coupling that does not count.
    fn void_coupling(
        &self,
        nodes @ (tree, states): (&Tree, &[NodeState]),
        disks: &Disks,
    ) -> Option<Finding> {
        let (device, disk) = self.contended.disk(disks).filter(|_| self.fresh == 0)?;
        if !tree.weighs_disks() || self.row(nodes, disks).is_some() {
            return None;
        }
        let (why, remedy) = if self.obeys(device) && without_files(tree, states).is_none() {
            (
                "tenants that wait for it get equal parts in spite of their weights",
                "with io.cost, lower its rates to those of the disk (io.cost.model), or use bfq instead; or set control.couple: \
                 [cpu, memory]",
            )
        } else {
            (
                "its weights are ineffective",
                "let one scheduler divide it (bfq, or io.cost), or set control.couple: [cpu, memory]",
            )
        };
        let name = disk.name;
        let what = format!(
            "{name} does not count for the division of CPU and memory, against control.couple: {why}"
        );
        Some(Finding::of_host(Code::Ineffective, what).with_remedy(remedy))
    }

    /// Findings on tenants with a guarantee that is void on the disk that they use most.
    fn void_guarantees(
        &self,
        (tree, states): (&Tree, &[NodeState]),
        disks: &Disks,
    ) -> Vec<Finding> {
        let void = |(node, state): (&TreeNode, &NodeState)| {
            let guarantee = node.disk?.guarantee;
            let usage = state.usage.as_ref().filter(|_| guarantee > 0.0)?;
            let used = usage.disks.iter().max_by(|a, b| a.1.bytes().total_cmp(&b.1.bytes()));
            let (device, _) = used.filter(|(_, flow)| has_requests(*flow))?;
            self.ways.0.get(device).filter(|way| !contended::obeys(way))?;
            let (_, disk) = disks.iter().find(|(it, _)| *it == device)?;
            let what = format!(
                "its guarantee of {:.0} % of {} is void: weights are ineffective there",
                guarantee * 100.0,
                disk.name
            );
            let remedy = "let one scheduler divide the disk by weights (bfq, or io.cost)";
            Some(Finding::of(&node.path, Code::Ineffective, what).with_remedy(remedy))
        };
        tree.nodes().iter().zip(states).filter_map(void).take(MOST_REPORTED).collect()
    }

    /// Takes the ways found in this tick, and the use of the disks since the last.
    pub(crate) fn prepare(
        &mut self,
        (tree, states): (&Tree, &mut [NodeState]),
        ways: Ways,
        disks: &Disks,
        elapsed: Duration,
    ) {
        self.fresh = if self.ways == ways { self.fresh.saturating_sub(1) } else { FRESH };
        self.ways = ways;
        self.age = self.age.saturating_add(elapsed);
        for state in &mut *states {
            let usage = state.usage.as_ref();
            let is_active =
                usage.is_some_and(|it| it.disks.iter().any(|(_, flow)| has_requests(flow)));
            state.disk.note(is_active, elapsed);
        }
        let tenants = &states[..tree.nodes().len()];
        let usages = || tenants.iter().filter_map(|state| state.usage.as_ref());
        let is_used = |device| usages().any(|it| it.disks.get(device).is_some_and(has_requests));
        self.used.note(&self.ways, is_used, elapsed);
        if tree.weighs_disks() {
            self.contended.step((tree, states), disks, elapsed);
        }
    }

    /// Computes the parts and weights of all nodes, after the resources were allocated.
    pub(crate) fn weigh(&mut self, (tree, states): (&Tree, &mut [NodeState]), disks: &Disks) {
        if !tree.weighs_disks() || !self.ways.obey() {
            states.iter_mut().for_each(|state| state.disk.weight = None);
        } else if self.has_changed()
            || self.age >= PAUSE
            || states.iter().all(|state| state.disk.weight.is_none())
        {
            self.age = Duration::ZERO;
            weigh(tree, states, disks);
        }
        if self.contended.disk(disks).is_some() {
            let now = would_get(
                tree.nodes(),
                &demands(tree, states),
                self.contended.capacity(),
                Row::Disk,
            );
            for (state, now) in states.iter_mut().zip(now) {
                state.disk.now_ratio = now;
            }
        }
    }
}

/// Demand of each node of the policy for the contended disk.
fn demands(tree: &Tree, states: &[NodeState]) -> Vec<f64> {
    states.iter().take(tree.nodes().len()).map(|state| state.disk.demand.unwrap_or(0.0)).collect()
}

/// Finding on cgroups that other programs made, and that have no file for the weight that they should have.
fn without_files(tree: &Tree, states: &[NodeState]) -> Option<Finding> {
    let is_void = |(node, state): &(Node<'_>, &NodeState)| {
        let has_file = || state.observed.iter().any(|(it, _)| it.purpose() == Purpose::Share);
        let is_own = node.tenant().is_some() && !node.has_members();
        // Systemd enables the controller for a unit.
        let is_there = state.is_governed && state.is_present && !state.is_unit;
        is_own
            && is_there
            && !state.observed.is_empty()
            && state.disk.weight.is_some()
            && !has_file()
    };
    let mut void = tree.all().zip(states).filter(is_void);
    let (first, _) = void.next()?;
    let more = match void.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let what = format!(
        "disk weights are ineffective for {}{more}: the controller of disks is not enabled for its cgroup",
        first.name()
    );
    let remedy = "write +io to cgroup.subtree_control of the cgroup above it (in cgroup v1: make it in the tree of blkio)";
    Some(Finding::of_host(Code::Ineffective, what).with_remedy(remedy))
}

fn has_requests(flow: DiskFlow) -> bool {
    flow.operations() > 0.0
}

fn weigh(tree: &Tree, states: &mut [NodeState], disks: &Disks) {
    let foreign = foreign(tree, states, disks);
    let is_active: Vec<bool> = states.iter().map(|state| state.disk.is_active()).collect();
    let whole = (1.0 - foreign.iter().sum::<f64>()).max(LEFT_RATIO);
    let [standing, now] = parts(tree, &is_active, whole);
    let coupled = coupled(tree, states, &is_active);
    let own = |at: usize| Share {
        allocation_cores: coupled[at].map_or(now[at], |part| part.allocation),
        burst_cores: standing[at],
        satisfied: coupled[at].map_or(!is_active[at], |part| part.is_met),
        ..Share::default()
    };
    let shares = govern::shares(tree, &foreign, own);
    let weights = govern::weights(tree, &shares, |at| before(states.get(at)?), weights);
    for (at, written, _) in weights {
        states[at].disk.weight = Some(written.round().clamp(1.0, MOST));
    }
    for (at, state) in states.iter_mut().enumerate() {
        (state.disk.standing_ratio, state.disk.now_ratio) =
            (standing[at], now[at].max(standing[at]));
    }
}

/// Part of the contended disk of each node and member, where it is divided together with CPU and memory. The active members of
/// a tenant have equal parts.
fn coupled(tree: &Tree, states: &[NodeState], is_active: &[bool]) -> Vec<Option<DiskPart>> {
    let mut parts: Vec<Option<DiskPart>> = states.iter().map(|state| state.target.disk).collect();
    for (_, members) in tree.sets_of_members() {
        let nr = members.clone().filter(|member| is_active[*member]).count().max(1) as f64;
        for at in members {
            if let Some(part) = &mut parts[at] {
                let allocation = if is_active[at] { part.allocation / nr } else { 0.0 };
                *part = DiskPart { allocation, is_met: part.is_met || !is_active[at], ..*part };
            }
        }
    }
    parts
}

/// Weight of an ancestor before the agent.
fn before(state: &NodeState) -> Option<f64> {
    let of = |knob| match state.held_before(knob)? {
        Value::Weight(weight) => Some(*weight),
        _ => None,
    };
    of(Knob::DiskWeight).or_else(|| of(Knob::BfqWeight))
}

/// Part of the busiest disk that foreign work below each ancestor uses; it rises at once and halves in a computation.
fn foreign(tree: &Tree, states: &mut [NodeState], disks: &Disks) -> Vec<f64> {
    let work = |(_, disk): &(Device, Disk)| disk.time_ratio().unwrap_or(disk.busy_ratio);
    let busiest = disks.iter().max_by(|a, b| work(a).total_cmp(&work(b)));
    let used = |node: Node<'_>| {
        let (device, disk) = busiest?;
        let flow: DiskFlow = states[node.at()].usage.as_ref()?.disks.get(device)?;
        Some(disk.cost.part(&flow, &disk.flow) * disk.time_ratio().unwrap_or(disk.busy_ratio))
    };
    let found = govern::foreign_cores(tree, used);
    let ancestors = states[tree.first_ancestor()..].iter_mut();
    let smooth = |(state, now): (&mut NodeState, Option<f64>)| {
        let before = state.disk.foreign_ratio;
        let now = now.map_or(before, |now| now.max((now + before) / 2.0)).min(1.0);
        state.disk.foreign_ratio = now;
        now
    };
    ancestors.zip(found).map(smooth).collect()
}

/// Parts of `whole` of each node of the policy and each member: among all, and among the active ones.
fn parts(tree: &Tree, is_active: &[bool], whole: f64) -> [Vec<f64>; 2] {
    let nodes = tree.nodes();
    let mut is_awake = is_active.to_vec();
    for (at, node) in nodes.iter().enumerate().rev() {
        if let Some(parent) = node.parent {
            is_awake[parent] |= is_awake[at];
        }
    }
    let among = |counts: &dyn Fn(usize) -> bool| {
        let mut parts = burst::divided(nodes, whole, Row::Disk, counts);
        parts.resize(is_active.len(), 0.0);
        for (tenant, members) in tree.sets_of_members() {
            let nr = members.clone().filter(|member| counts(*member)).count().max(1) as f64;
            members.filter(|member| counts(*member)).for_each(|at| parts[at] = parts[tenant] / nr);
        }
        parts
    };
    [among(&|_| true), among(&|at| is_awake[at])]
}

/// Weights of siblings that are all governed.
fn weights(siblings: &[Entitlement]) -> Weights {
    let standing = || siblings.iter().map(|sibling| sibling.standing);
    let largest = standing().fold(f64::MIN_POSITIVE, f64::max);
    let smallest = standing().filter(|part| *part > 0.0).fold(largest, f64::min);
    let scale = (TOP / largest).max(EXACT / smallest).min(MOST / largest);
    let exact: Vec<f64> = siblings.iter().map(|sibling| scale * sibling.now).collect();
    Weights { written: exact.clone(), exact }
}
