//! The rule of [`crate::share::credit`] applied to the nodes of the policy and to the tree of cgroups.
//!
//! **Banks** are kept in each tick. A policy without credits keeps them with the default terms, and no weight is raised.
//!
//! **Weights.** A raised weight is the plain one times the factor of the node, at most 100 times the least among its
//! siblings. The plain weights of siblings stay, so only the raised file is written. Where cgroups of others are
//! siblings, the governed ones keep their sum, and all of them are written. An ancestor has the mean factor of the work
//! below it. A node whose cgroup is not in that of its group has the factor of the group as well.
//!
//! **Due CPUs.** While a raised node wants more than its allocation, or jobs of a node hold slots that others wait for
//! ([`crate::share::turns`]), it and its siblings are due what these weights give them. Shares, starvation and the trim are
//! measured against that.

use std::collections::HashMap;
use std::time::Duration;

use super::ControlLoop;
use crate::share::credit::{self, Account, Conduct, Credit, Standing, Tick};
use crate::share::{burst, demand, govern};
use crate::state::NodeState;
use crate::tree::{CgroupParent, Node, Tree};
use crate::words::knob::WEIGHTS;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_fair::max_min::{self, Claim};

/// Intervals that a late tick can earn for; it pays for all of its time.
const EARNING_INTERVALS: u32 = 2;
/// PSI `some` from which a task waited for all of the interval. Counters are read a little apart, and the rest would be
/// credit for a tenant that always waits.
const ALWAYS_RATIO: f64 = 0.95;

impl ControlLoop {
    /// Settles the credit of the last interval where `cores` CPUs are divided, and raises the weights of the targets.
    ///
    /// O(n log n) in the number of cgroups.
    pub(super) fn credit(&mut self, cores: f64, elapsed: Option<Duration>) {
        if let Some(elapsed) = elapsed {
            self.settle_credit(cores, elapsed);
        }
        let factor = |state: &NodeState| state.credit.account.factor;
        let is_on = self.settings.credits.is_some();
        let is_raised = is_on && self.states.iter().any(|state| factor(state) > 1.0);
        if is_raised || self.states.iter().any(|state| state.target.net_lent_cores > 0.0) {
            divide_due(&self.tree, &mut self.states);
        }
        if is_raised {
            raise(&self.tree, &mut self.states);
        }
    }

    /// Credit of each node, by position.
    pub(super) fn credits(&self) -> Vec<Credit> {
        self.states[..self.tree.nodes().len()].iter().map(|state| state.credit).collect()
    }

    /// Gives the nodes of the new `tree` the `credits` of the old nodes with the same paths, wherever their cgroups are.
    pub(super) fn keep_credits(&self, tree: &Tree, credits: Vec<Credit>, states: &mut [NodeState]) {
        let paths = self.tree.nodes().iter().map(|node| node.path.as_str());
        let mut credits: HashMap<&str, Credit> = paths.zip(credits).collect();
        for (node, state) in tree.nodes().iter().zip(states) {
            state.credit = credits.remove(node.path.as_str()).unwrap_or_default();
        }
    }

    fn settle_credit(&mut self, cores: f64, elapsed: Duration) {
        let nodes = self.tree.nodes();
        let promises = burst::promised(nodes, CPU);
        let standing = |(at, promise): (usize, f64)| Standing {
            parent: nodes[at].parent,
            share_cores: self.states[at].target.burst[CPU],
            promise_cores: promise,
            limit_cores: nodes[at].limit[CPU].unwrap_or(f64::INFINITY),
        };
        let standings: Vec<Standing> = promises.into_iter().enumerate().map(standing).collect();
        let (conducts, missed) = self.conducts();
        let mut accounts: Vec<Account> =
            self.states[..nodes.len()].iter().map(|state| state.credit.account).collect();
        let earning = elapsed.min(self.settings.interval * EARNING_INTERVALS);
        let (seconds, earning_seconds) = (elapsed.as_secs_f64(), earning.as_secs_f64());
        let tick = Tick { cores, seconds, earning_seconds };
        let terms = self.settings.credits.unwrap_or_default();
        let entries = credit::tick(&standings, &conducts, &tick, &terms, &mut accounts);
        let is_on = self.settings.credits.is_some();
        let each = self.states.iter_mut().zip(accounts).zip(entries).zip(missed);
        for (((state, mut account), entry), is_missed) in each {
            if !is_on {
                (account.step, account.factor) = (0.0, 1.0);
            }
            state.credit = Credit { account, entry, is_missed };
        }
    }

    /// Use of each tenant in the last interval, and whether its counters were not read.
    fn conducts(&self) -> (Vec<Conduct>, Vec<bool>) {
        let nodes = self.tree.nodes();
        let now = self.last.map_or(Duration::ZERO, |(now, _)| now);
        let is_scarce = |state: &NodeState| state.target.scarce[MEMORY];
        let nr_scarce = self.states[..nodes.len()].iter().filter(|state| is_scarce(state)).count();
        let of = |at: usize| {
            let (node, state) = (&nodes[at], &self.states[at]);
            let cgroups = &self.states[self.tree.at(at).places()];
            let is_read = cgroups.iter().any(|it| it.sampled_at >= now);
            let is_bound = state.width.cpus().is_some() || state.has_turns();
            let is_out = !node.has_credit || !state.is_steered() || is_bound;
            let others_scarce = nr_scarce > usize::from(is_scarce(state));
            let mut conduct = conduct(state, cgroups);
            conduct.is_over &= others_scarce;
            conduct.is_apart =
                is_out || state.usage.is_none() || !is_read && state.credit.is_missed;
            conduct.is_unread = !is_read;
            (conduct, node.is_leaf && !is_read)
        };
        (0..nodes.len()).map(of).unzip()
    }
}

/// Use of a tenant with these cgroups by its counters. It is over if it holds more memory than its share.
fn conduct(state: &NodeState, cgroups: &[NodeState]) -> Conduct {
    let Some(usage) = &state.usage else { return Conduct::default() };
    let is_pressed = demand::is_pressed(usage, state.target.allocation[CPU]);
    let some = usage.cpu_some_ratio.unwrap_or(if is_pressed { 1.0 } else { 0.0 });
    let some = if some >= ALWAYS_RATIO { 1.0 } else { some };
    // The kernel counts throttled time as waiting.
    let (waited, throttled) = if usage.throttled { (0.0, some) } else { (some, 0.0) };
    let is_bounded =
        |it: &NodeState| it.squeeze.as_ref().is_some_and(|it| it.lowest_bytes().is_some());
    let stalled =
        if cgroups.iter().any(is_bounded) { usage.memory_full_ratio.unwrap_or(0.0) } else { 0.0 };
    Conduct {
        used_cores: usage.cpu_cores,
        wanted_cores: state.demand.map_or(usage.cpu_cores, |demand| demand.amount[CPU]),
        waited,
        held: (throttled + stalled).min(1.0),
        is_over: usage.held[MEMORY].is_some_and(|held| held > state.target.burst[MEMORY]),
        is_apart: false,
        is_unread: false,
    }
}

fn needed(state: &NodeState) -> f64 {
    state.target.share().needed_cores()
}

/// Sets the due CPUs of siblings while raised ones want more than their allocations, or have CPUs lent to them.
fn divide_due(tree: &Tree, states: &mut [NodeState]) {
    let nodes = tree.nodes();
    let mut wanted: Vec<f64> = vec![0.0; nodes.len()];
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); nodes.len() + 1];
    for (at, node) in nodes.iter().enumerate().rev() {
        if node.is_leaf {
            wanted[at] = states[at].demand.map_or(0.0, |demand| demand.amount[CPU]);
        }
        wanted[at] = wanted[at].min(node.limit[CPU].unwrap_or(f64::INFINITY));
        sets[burst::siblings_of(node)].push(at);
        if let Some(parent) = node.parent {
            wanted[parent] += wanted[at];
        }
    }
    for (set, members) in sets.iter().enumerate().filter(|(_, members)| members.len() > 1) {
        let spends = |at: &usize| {
            let state = &states[*at];
            state.target.net_lent_cores > 0.0 || state.spends_credit()
        };
        let above = set.checked_sub(1);
        let is_other = above.is_some_and(|above| states[above].target.cores_after_loans.is_some());
        if !is_other && !members.iter().any(spends) {
            continue;
        }
        let allocated = || members.iter().map(|at| states[*at].target.allocation[CPU]).sum();
        let whole: f64 = above.map_or_else(allocated, |above| states[above].target.due_cores());
        let entitled = |at: usize| states[at].target.entitled_cores;
        let least = members.iter().map(|at| entitled(*at)).fold(f64::INFINITY, f64::min);
        let claim = |at: &usize| {
            let (plain, factor) = (entitled(*at), states[*at].credit.account.factor);
            let weight = credit::raised(plain, factor, least).max(SMALLEST_WEIGHT);
            Claim { weight, floor: 0.0, ceiling: wanted[*at] }
        };
        let claims: Vec<Claim> = members.iter().map(claim).collect();
        let due = max_min::divide(whole, &claims).allocation;
        for (at, due) in members.iter().zip(due) {
            states[*at].target.cores_after_loans = Some(due);
        }
    }
}

/// Smallest weight of a claim: a node that needs almost nothing still has one.
const SMALLEST_WEIGHT: f64 = 1e-9;

/// Raises the weights of the targets.
fn raise(tree: &Tree, states: &mut [NodeState]) {
    let factors = factors(tree, states);
    for (parent, members) in govern::sets_of_siblings(tree) {
        let smallest = members.iter().map(|at| factors[*at]).fold(f64::INFINITY, f64::min);
        let is_raised = |at: &usize| factors[*at] > smallest * (1.0 + 1e-9);
        if !members.iter().any(is_raised) {
            continue;
        }
        let plain = |at: usize| states[at].target.cpu_weight;
        let least = members.iter().map(|at| plain(*at)).fold(f64::INFINITY, f64::min);
        let most = *WEIGHTS.end();
        let weight = |at: &usize| {
            credit::raised(plain(*at), factors[*at] / smallest, least).min(most.max(plain(*at)))
        };
        let weights: Vec<f64> = members.iter().map(weight).collect();
        let is_beside_others = tree.is_apart() && parent.is_none_or(|parent| parent.is_shared());
        let scale = if is_beside_others {
            members.iter().map(|at| plain(*at)).sum::<f64>()
                / weights.iter().sum::<f64>().max(f64::MIN_POSITIVE)
        } else {
            1.0
        };
        for (at, weight) in members.iter().zip(weights) {
            let target = &mut states[*at].target;
            let (plain, weight) = (target.cpu_weight, (weight * scale).max(*WEIGHTS.start()));
            if weight != plain {
                target.plain_cpu_weight = Some(plain);
                // A weight that no file can hold is reported beside the credit.
                target.exact_cpu_weight *= weight / plain.max(f64::MIN_POSITIVE);
                target.cpu_weight = weight;
            }
        }
    }
}

/// Factor of each governed cgroup against its siblings in the kernel's tree.
fn factors(tree: &Tree, states: &[NodeState]) -> Vec<f64> {
    let own = |at: usize| states[at].credit.account.factor;
    let mut factors = vec![1.0; tree.len()];
    let is_apart = tree.is_apart();
    for node in tree.tenants_and_members() {
        let Some(tenant) = node.tenant() else { continue };
        // The factor of a group applies to its cgroup, or to what is outside of it.
        let groups = tenant.upwards().skip(1);
        let is_outside =
            |group: &Node<'_>| is_apart && node.cgroups_above().all(|it| it.at() != group.at());
        let outside = groups.filter(is_outside).map(|group| own(group.at()));
        factors[node.at()] = own(tenant.at()) * outside.product::<f64>();
    }
    let mut sums = vec![[0.0; 2]; tree.len()];
    for node in tree.from_above().rev() {
        let at = node.at();
        if node.is_ancestor() {
            let [raised, plain] = sums[at];
            let foreign = (states[at].foreign_cores.unwrap_or(0.0)).max(0.0);
            let plain = plain + foreign;
            factors[at] = if plain > 0.0 { (raised + foreign) / plain } else { 1.0 };
        }
        if let CgroupParent::Governed(parent) = node.parent() {
            let needed = needed(&states[at]);
            sums[parent][0] += needed * factors[at];
            sums[parent][1] += needed;
        }
    }
    factors
}
