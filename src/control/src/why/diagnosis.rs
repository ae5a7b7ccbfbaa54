//! Reasons for a tenant's shortfall, from the data of one tick.
//!
//! **Problem.** Missing time and memory are somewhere: with outside work, with other tenants, behind a limit,
//! or idle. Several of these can be true at once.
//!
//! **Rules.** Certain reasons are always named: a limit on the tenant, a value not in force, a weight without
//! effect, a stall. The rest is a balance of outside usage beyond the reserve, limits above the tenants, excess
//! of other tenants, and idle time. A part of the balance is named if it is at least a quarter of the
//! shortfall. Without any other reason the largest part is named, so every shortfall has a reason.
//!
//! O(n + m·d) for n nodes with m shortfalls at depth d.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::report::reason::{self, Binding, Inside, KernelLimit, NotWritten, Outsider, Reason};
use crate::share::weight;
use crate::state::capacity::Capacity;
use crate::state::{NodeState, Refusal};
use crate::tree::bounds::AncestorBounds;
use crate::tree::{Node, Tree};
use crate::words::knob::{Action, Knob};
use tenantd_core::node::NodeId;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};

/// Smallest part of a shortfall that counts as a reason.
const PART_RATIO: f64 = 0.25;
/// PSI `some` from which a tenant stalls.
const STALL_RATIO: f64 = 0.1;
const NAMED_MAX: usize = 3;

/// Data of a tick beside the nodes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) capacity: Capacity,
    pub(crate) above: AncestorBounds,
    pub(crate) machine: PerResource<f64>,
    pub(crate) is_enforcing: bool,
    pub(crate) actions: &'a [Action],
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lack {
    pub(crate) missing: PerResource<f64>,
    /// True if the quota of its own cgroup throttled it.
    pub(crate) is_throttled: bool,
    /// Node whose policy limit holds the tenant back: itself or a group above it.
    pub(crate) limiting: PerResource<Option<usize>>,
    pub(crate) is_reclaimed: bool,
    pub(crate) met_limit: bool,
}

impl Lack {
    pub(crate) fn of(&self) -> PerResource<bool> {
        let is_held_back = PerResource([self.is_throttled, self.is_reclaimed || self.met_limit]);
        PerResource::from_fn(|r| {
            self.missing[r] > 0.0 || is_held_back[r] || self.limiting[r].is_some()
        })
    }
}

/// Reasons for each of `lacks`. `due` holds the CPUs due to each node, by position.
pub(crate) fn reasons(
    tree: &Tree,
    states: &[NodeState],
    scene: &Scene<'_>,
    due: &[f64],
    lacks: &[(Node<'_>, Lack)],
) -> Vec<Vec<Reason>> {
    let balance = Balance::new(tree, states, scene, due);
    let reasons = |(node, lack): &(Node<'_>, Lack)| {
        let case = Case { node: *node, states, scene, balance: &balance, due, lack };
        case.reasons()
    };
    lacks.iter().map(reasons).collect()
}

/// Distribution of the machine's resources, and pending changes.
struct Balance<'a> {
    /// Excess of leaves over their due amount, largest first, and the sum.
    excess: PerResource<(Vec<(f64, Node<'a>)>, f64)>,
    idle_cores: f64,
    raised: BTreeSet<(NodeId, Knob)>,
}

impl<'a> Balance<'a> {
    fn new(tree: &'a Tree, states: &[NodeState], scene: &Scene<'_>, due: &[f64]) -> Balance<'a> {
        let used = |node: Node<'_>, r| states[node.at()].usage.and_then(|usage| usage.used(r));
        let due = |node: Node<'_>, r| match r {
            CPU => due[node.at()],
            held => states[node.at()].target.allocation[held],
        };
        let leaves = || tree.policy_nodes().filter(|node| tree.nodes()[node.at()].is_leaf);
        let excess = PerResource::from_fn(|r| {
            let excess = |node| Some((used(node, r)? - due(node, r), node));
            let mut all: Vec<(f64, Node<'_>)> =
                leaves().filter_map(excess).filter(|(excess, _)| *excess > r.noise()).collect();
            all.sort_by(|one, other| other.0.total_cmp(&one.0));
            let sum = all.iter().map(|(excess, _)| excess).sum();
            (all, sum)
        });
        let raised = scene.actions.iter().filter(|action| !action.shrinks());
        Balance {
            excess,
            idle_cores: scene.capacity.idle_cores.unwrap_or(0.0),
            raised: raised.map(|action| (action.node, action.knob)).collect(),
        }
    }
}

struct Case<'a> {
    node: Node<'a>,
    states: &'a [NodeState],
    scene: &'a Scene<'a>,
    balance: &'a Balance<'a>,
    due: &'a [f64],
    lack: &'a Lack,
}

impl Case<'_> {
    fn state(&self) -> &NodeState {
        &self.states[self.node.at()]
    }

    fn cgroups(&self) -> &[NodeState] {
        &self.states[self.node.places()]
    }

    fn reasons(&self) -> Vec<Reason> {
        let mut all = Vec::new();
        for (resource, _) in self.lack.of().iter().filter(|(_, lacks)| **lacks) {
            let mut reasons: Vec<Reason> = self.limits(resource);
            reasons.extend(self.not_written(resource));
            match resource {
                CPU => reasons.extend(self.weight().chain(self.inside())),
                _ => reasons.extend(self.reclaim()),
            }
            let parts = self.parts(resource, &reasons);
            reasons.extend(parts);
            all.extend(reasons);
        }
        all
    }

    fn limits(&self, resource: Resource) -> Vec<Reason> {
        let nodes = self.node.tree().nodes();
        let mut reasons = Vec::new();
        match self.lack.limiting[resource] {
            Some(node) => reasons.push(Reason::Policy {
                resource,
                amount: nodes[node].limit[resource].unwrap_or_default(),
                group: (node != self.node.at()).then(|| nodes[node].path.to_string()),
            }),
            None if resource == CPU && self.lack.is_throttled => {
                reasons.push(Reason::Kernel(KernelLimit::OwnQuota));
            }
            None => {}
        }
        let due = match resource {
            CPU => self.due[self.node.at()],
            held => self.state().target.allocation[held],
        };
        let limits = self.state().surroundings.iter().flat_map(|around| &around.limits);
        let binds = limits
            .filter(|limit| limit.resource == resource && (limit.is_binding || limit.amount < due));
        reasons.extend(binds.map(|limit| {
            let (amount, cgroup) = (limit.amount, Some(limit.cgroup.clone()));
            Reason::Kernel(KernelLimit::Above { resource, amount, cgroup })
        }));
        reasons
    }

    fn not_written(&self, resource: Resource) -> Vec<Reason> {
        let mut reasons = Vec::new();
        for node in self.upwards() {
            let state = &self.states[node.at()];
            let retry = |knob: Knob| state.retries.iter().find(|retry| retry.knob == knob);
            for knob in Knob::ALL.into_iter().filter(|knob| knob.resource() == Some(resource)) {
                let why = match retry(knob) {
                    Some(retry) => refused(&retry.refusal),
                    None if state.left_to_others.contains(&knob) => NotWritten::LeftToOthers,
                    None if state.contests.has_yielded(knob) => NotWritten::Contested,
                    None if !self.balance.raised.contains(&(node.id(), knob)) => continue,
                    None if self.scene.is_enforcing => NotWritten::Pending,
                    None => NotWritten::Observing,
                };
                let of = (node.at() != self.node.at()).then(|| node.name().to_string());
                reasons.push(Reason::NotWritten { knob, of, why });
            }
        }
        reasons.truncate(NAMED_MAX);
        reasons
    }

    /// The tenant, its cgroups, and every group and governed cgroup above them.
    fn upwards(&self) -> Vec<Node<'_>> {
        let mut all: Vec<Node<'_>> = self.node.upwards().collect();
        for node in self.node.cgroups().flat_map(Node::cgroups_above) {
            if all.iter().all(|known| known.at() != node.at()) {
                all.push(node);
            }
        }
        all
    }

    fn weight(&self) -> impl Iterator<Item = Reason> {
        let weights = self.cgroups().iter().map(|state| &state.target);
        let weights = weights.map(|target| (target.cpu_weight, target.exact_cpu_weight));
        let inexact = weights.filter(|(written, exact)| weight::is_reported(*written, *exact));
        let inexact = inexact.map(|(written, exact)| KernelLimit::Weight { written, exact }).next();
        let around = &self.state().surroundings;
        let void = around.as_ref().and_then(|around| around.void_weight.clone());
        inexact.into_iter().chain(void.map(KernelLimit::VoidWeight)).map(Reason::Kernel)
    }

    fn inside(&self) -> impl Iterator<Item = Reason> {
        let state = self.state();
        let nr_cpus = state.width.cpus().map(|cpus| cpus.len());
        let is_narrow = |nr_cpus: &usize| (*nr_cpus as f64) < self.due[self.node.at()];
        let stalls = |ratio: &f64| *ratio >= STALL_RATIO;
        let usage = state.usage.unwrap_or_default();
        let cpus = nr_cpus.filter(is_narrow).map(Inside::Cpus);
        let binding = state.surroundings.as_ref().and_then(|around| around.binding.clone());
        let is_bound = |binding: &Binding| {
            let machine =
                self.scene.above.nr_cpus.map_or(self.scene.machine[CPU] as usize, |it| it as usize);
            let bound = binding.nr_cpus as usize;
            is_narrow(&bound) && bound < nr_cpus.unwrap_or(machine)
        };
        let bound = binding.filter(is_bound).map(Inside::Bound);
        let memory = usage.memory_some_ratio.filter(stalls).map(Inside::Memory);
        let io = usage.io_some_ratio.filter(stalls).map(Inside::Io);
        cpus.into_iter().chain(bound).chain(memory).chain(io).map(Reason::Inside)
    }

    fn reclaim(&self) -> impl Iterator<Item = Reason> {
        let is_bounded = self.state().target.bounded_protection_bytes.is_some();
        let bounded = is_bounded.then_some(KernelLimit::Protection);
        let reclaimed = self.lack.is_reclaimed.then_some(KernelLimit::Reclaim);
        bounded.into_iter().chain(reclaimed).map(Reason::Kernel)
    }

    /// Holders of the missing amount; `others` are the certain reasons.
    fn parts(&self, resource: Resource, others: &[Reason]) -> Vec<Reason> {
        let missing = self.lack.missing[resource];
        let counts = |part: f64| missing > 0.0 && part >= PART_RATIO * missing;
        let bound = self.bound(resource);
        // A limit that holds a tenant back explains the idle time.
        let is_limited = bound.as_ref().is_some_and(|(part, _)| counts(*part))
            || others.iter().any(|reason| {
                use Reason::{Inside as In, Kernel, Policy};
                matches!(reason, Policy { .. } | Kernel(_) | In(Inside::Cpus(_) | Inside::Bound(_)))
            });
        // Idle time was not taken by others.
        let idle = if resource == CPU { self.balance.idle_cores } else { 0.0 };
        let taken = (missing - idle).max(0.0);
        let at_most = |(part, reason): (f64, Reason)| (part.min(taken), reason);
        let parts = [
            Some(at_most(self.outside(resource))),
            bound,
            self.tenants(resource).map(at_most),
            (resource == CPU && !is_limited).then(|| self.idle()),
            (resource == MEMORY).then(|| self.waits()),
        ];
        let mut parts: Vec<(f64, Reason)> = parts.into_iter().flatten().collect();
        parts.sort_by(|one, other| other.0.total_cmp(&one.0));
        let nr_counting = parts.iter().filter(|(part, _)| counts(*part)).count();
        let nr_named = nr_counting.max(usize::from(others.is_empty()));
        let is_seen = |(part, _): &(f64, Reason)| *part >= reason::SEEN_CORES_MIN;
        if resource == CPU
            && nr_counting == 0
            && nr_named > 0
            && !parts.first().is_some_and(is_seen)
        {
            return vec![self.idle().1];
        }
        parts.into_iter().take(nr_named).map(|(_, reason)| reason).collect()
    }

    fn outside(&self, resource: Resource) -> (f64, Reason) {
        let amount = self.scene.capacity.outside[resource];
        let around = self.state().surroundings.as_ref().filter(|_| resource == CPU);
        let largest: Arc<[Outsider]> =
            around.map(|around| Arc::clone(&around.outsiders)).unwrap_or_default();
        (amount, Reason::Outside { resource, amount, largest })
    }

    fn bound(&self, resource: Resource) -> Option<(f64, Reason)> {
        let AncestorBounds { limit, nr_cpus } = self.scene.above;
        let most = self.scene.above.most()[resource];
        let part = self.scene.capacity.promised[resource] - most;
        let online = self.scene.machine[CPU] as u32;
        let reason = match nr_cpus.filter(|usable| resource == CPU && f64::from(*usable) <= most) {
            Some(usable) => KernelLimit::Cpus { usable, online },
            None => KernelLimit::Above { resource, amount: limit[resource]?, cgroup: None },
        };
        (part > 0.0).then_some((part, Reason::Kernel(reason)))
    }

    fn tenants(&self, resource: Resource) -> Option<(f64, Reason)> {
        let (all, sum) = &self.balance.excess[resource];
        let others = || all.iter().filter(|(_, node)| node.at() != self.node.at());
        // A tenant with an excess can still have a shortfall: reclaim took protected memory.
        let own = all.iter().find(|(_, node)| node.at() == self.node.at());
        let amount = sum - own.map_or(0.0, |(excess, _)| *excess);
        let name = |(_, node): &(f64, Node<'_>)| node.name().to_string();
        let names: Vec<String> = others().take(NAMED_MAX).map(name).collect();
        (!names.is_empty()).then_some((amount, Reason::Tenants { resource, amount, names }))
    }

    fn idle(&self) -> (f64, Reason) {
        let (idle_cores, dop) = (self.balance.idle_cores, self.state().width.dop());
        let samples = self.cgroups().iter().map(|state| state.sample.as_ref()?.threads.as_ref());
        let nr_threads = samples.map(|threads| threads.map(Vec::len)).sum();
        (idle_cores, Reason::Inside(Inside::IdleCpus { idle_cores, nr_threads, dop }))
    }

    fn waits(&self) -> (f64, Reason) {
        let ratio = self.state().usage.and_then(|usage| usage.memory_some_ratio).unwrap_or(0.0);
        // Only if nothing else is known.
        (f64::MIN_POSITIVE, Reason::Inside(Inside::Memory(ratio)))
    }
}

fn refused(refusal: &Refusal) -> NotWritten {
    match (&refusal.message, refusal.is_deferred) {
        (Some(message), true) => NotWritten::Deferred(message.clone()),
        (Some(message), false) => NotWritten::Failed(message.clone()),
        (None, _) => NotWritten::Failed("there is no such file".to_string()),
    }
}
