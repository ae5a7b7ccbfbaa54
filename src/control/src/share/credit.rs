//! Credit: CPU time that a tenant left to its siblings on a busy machine, returned to it later as weight.
//!
//! **Problem.** Weights are fair at each instant and remember nothing. A tenant that sleeps three of four seconds
//! lends its share and gets no more than its share in the fourth. On two CPUs with half of the weights, a burst of
//! 1 CPU-second takes 1.0 s; alone on the machine it takes 0.5 s. Over the four seconds the tenant used a quarter of
//! its share. An agent that ticks once a second cannot react to such a burst. It need not: the weight of a sleeping
//! tenant costs its siblings nothing, so the weight is raised in advance and stays until a burst has spent the credit.
//!
//! **Terms.** `C` is the number of CPUs that are divided, `T` the length of a tick in seconds.
//!
//! | term | meaning |
//! |---|---|
//! | standing share `B` | CPUs that weights, guarantees and limits give a node if all are hungry ([`super::burst`]) |
//! | peak | highest recent demand in CPUs; it halves in each half-life |
//! | fair share `φ` | weighted max-min of the siblings' CPUs by `B`, with ceilings min(limit, peak) |
//! | lent | unused part of `φ`, for the part of the tick in which the node neither waited nor was held |
//! | short | unused part of `φ` while the node waited for a CPU |
//! | excess `X` | use beyond `φ` |
//! | bank `b` | credit in share-seconds: 1 is the whole machine for one second |
//! | step `q` | part of the full boost that the bank covers: 0, or a power of two from 2^−10 to 1 |
//! | factor | multiplier of the node's weight, at least 1 |
//!
//! The ceiling at the peak keeps long-idle nodes out: they have no share to lend and take none from others.
//!
//! **Settlement** (`settle.rs`). A node earns only what its siblings used beyond their own fair shares, in proportion to
//! its part of all that was lent, and only on a machine that is at least nine tenths busy. It pays for its use beyond its
//! fair share while another sibling waits. Use that delays no sibling is free. A node without a raised weight pays
//! at most its bank, so heavy use makes no debt. A bank fades by half in each half-life and holds at most `cap` seconds
//! of the fair share. A debt (from use between two ticks) does not fade; its only effect is that the node is not raised.
//!
//! **Boost** (`boost.rs`). A node with credit gets the weight that lets it run as if it were alone, except that every
//! sibling keeps its guarantee and the part `keep` of its fair share. Nodes with credit divide that room by their fair
//! shares. The step and a dead band on the factor keep the number of writes low. The weights of siblings without
//! credit are never changed: only the raised file is written.
//!
//! **Groups.** A group has a bank against its siblings, and each of its members has a bank against the others in the
//! group. Use and demand of a group are sums; its waiting and held times are the largest below it. A group is *over*
//! if a member is, and *apart* if all its members are. So idle members do not raise a busy member against its own
//! siblings.
//!
//! **Memory** is neither earned nor paid: it cannot be returned for a second. But a node that holds more than its share
//! of scarce memory (*over*) earns nothing and is not raised.
//!
//! **Jobs** ([`jobs`]). A tenant whose first job comes after a pause starts earlier by its bank, and pays at the start.
//!
//! **Apart** are nodes without a sample, with CPUs of their own, with idle weight, or with jobs in turns: what one of these
//! leaves while it waits for slots is lent already ([`super::turns`]). They earn and pay nothing.
//!
//! # Bounds
//!
//! Let `u` be the use of a node, in CPUs, and `κ` the part of a tick in which a sibling waited.
//!
//! 1. **A token bucket.** In a tick the bank falls by `T/C·κ·X` and rises by at most `T/C·(φ − u)⁺`. Adding this over a
//!    window that starts with the bank `b`, contended use is at most `Σ φ·T + C·(b + o)`, where `o` is the overdraft of
//!    one tick, at most `T`. So no pattern of use raises the contended part of a long window above the fair share. In
//!    `W` seconds the gain over constant hunger is at most `(cap + T·C/φ)/W`.
//! 2. **Credit is backed.** `L = min(Σ lent, (Σ X − Σ short)⁺)` is divided among the lenders. So
//!    `Σ earned ≤ T/C·Σ X`: credit exists only where siblings used more than their shares at that time.
//! 3. **Siblings keep a floor.** Let `l` be the larger of `keep·λ0` and every `g/B` of siblings that are not raised, where
//!    `λ0` is the level of the fair shares (`φ = min(hi, λ0·B)`). The raised nodes get together at most
//!    `W − Σ max(g, min(φ, l·B))` over the others. The level `λ1` of the others solves
//!    `Σ max(g, min(max(g, hi), λ1·B)) = W − Σ (φ + e·C)`, whose right side is at least that sum, and at `λ1 = l` both
//!    sums agree term by term: where `φ < l·B ≤ λ0·B`, `φ` is `hi`. So `λ1 ≥ l`, and every sibling keeps
//!    `max(g, keep·λ0·B)` if it wants it.
//! 4. **The loss is bounded.** `Σ φ ≤ C` and each bank is at most `cap·φ/C`, so all banks of a set hold at most `cap`
//!    seconds of the machine. Over `N` half-lives an always hungry node has its fair share except for
//!    `cap/(N·half_life·φ/C)` and one tick.
//! 5. If all siblings have credit there is no room to divide, and no weight is raised.
//!
//! The tests in `tests/credits.rs` check the published vectors and these bounds on random trees.

mod boost;
pub mod jobs;
mod level;
mod settle;

pub use settle::BUSY_RATIO;

use serde::{Deserialize, Serialize};
use std::time::Duration;

use super::burst;
use crate::tree::TreeNode;
use tenantd_core::resource::CPU;
use tenantd_fair::max_min::{self, Claim};
use tenantd_policy::model::CreditsPolicy;

/// A difference of this part of an amount comes from rounding.
const ROUNDING: f64 = 1e-11;

/// Largest ratio of a raised weight to the smallest plain weight among its siblings: beyond it the kernel's arithmetic
/// fails.
const RATIO_MAX: f64 = 100.0;

/// Entitlement of a node, independent of its use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// Index of the node above it; nodes are in pre-order.
    pub parent: Option<usize>,
    /// CPUs that it gets if all are hungry.
    pub share_cores: f64,
    /// CPUs that are guaranteed to it, or below it.
    pub promise_cores: f64,
    /// CPUs that it never exceeds.
    pub limit_cores: f64,
}

impl Standing {
    /// The standing of each of `nodes` (pre-order) where `cores` CPUs are divided.
    pub fn of_nodes(nodes: &[TreeNode], cores: f64) -> Vec<Standing> {
        let shares = burst::bursts(nodes, cores, CPU);
        let promises = burst::promised(nodes, CPU);
        let standing = |((node, share), promise): ((&TreeNode, f64), f64)| Standing {
            parent: node.parent,
            share_cores: share,
            promise_cores: promise,
            limit_cores: node.limit[CPU].unwrap_or(f64::INFINITY),
        };
        nodes.iter().zip(shares).zip(promises).map(standing).collect()
    }

    /// The part of its guarantee that weights can give it.
    fn kept_cores(&self) -> f64 {
        self.promise_cores.min(self.share_cores)
    }
}

/// Use of a leaf in one tick. That of groups follows from the leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Conduct {
    /// CPUs that it used on average.
    pub used_cores: f64,
    /// CPUs that it could have used, at most its limit.
    pub wanted_cores: f64,
    /// Part of the tick in which a task of it waited for a CPU, without throttling by its own limit.
    pub waited: f64,
    /// Part of the tick in which it was frozen, throttled by its own limit, or stalled at a memory bound of the agent.
    pub held: f64,
    /// True if it holds more than its share of scarce memory.
    pub is_over: bool,
    /// True if it takes no part.
    pub is_apart: bool,
    /// True if its counters were not read in this tick: it earns and pays nothing, and its step stays.
    pub is_unread: bool,
}

/// Credit of a node between ticks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Account {
    /// Credit in share-seconds; negative after an overdraft.
    pub bank: f64,
    /// Highest recent demand in CPUs; 0 for groups.
    pub peak_cores: f64,
    /// Part of the full boost that the bank covers.
    pub step: f64,
    /// Multiplier of its weight.
    pub factor: f64,
}

impl Default for Account {
    fn default() -> Account {
        Account { bank: 0.0, peak_cores: 0.0, step: 0.0, factor: 1.0 }
    }
}

impl Account {
    /// Fades by the time that passed without a tick.
    pub fn fade(&mut self, elapsed: Duration, half_life: Duration) {
        let part = kept_part(elapsed.as_secs_f64(), half_life);
        self.peak_cores *= part;
        if self.bank > 0.0 {
            self.bank *= part;
        }
    }
}

/// Part that is left after `seconds`.
fn kept_part(seconds: f64, half_life: Duration) -> f64 {
    (-seconds / half_life.as_secs_f64().max(f64::MIN_POSITIVE)).exp2()
}

/// Length of one tick and what it divides.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tick {
    /// CPUs that are divided.
    pub cores: f64,
    /// Seconds since the tick before.
    pub seconds: f64,
    /// Seconds of these that count for earning: less where a tick came late.
    pub earning_seconds: f64,
}

/// Movements of one account in one tick.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// CPUs that are its fair share now.
    pub fair_cores: f64,
    /// Share-seconds that it earned.
    pub earned: f64,
    /// Share-seconds that it paid, before the cap.
    pub charged: f64,
    /// Its credit in seconds of its own fair share.
    pub bank_seconds: f64,
    /// CPUs beyond its fair share that its raised weight gives it if it is hungry.
    pub extra_cores: f64,
    /// Level of its siblings without credit during a burst, as a part of the level of their fair shares.
    pub others_level: f64,
    /// Factor that its bank gives. Unlike the factor of its account it is also known where the policy has no credits.
    pub offered_factor: f64,
}

/// Credit of a node as the control loop keeps it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Credit {
    /// Account.
    pub account: Account,
    /// Movements in the last tick.
    pub entry: Entry,
    /// True if its counters were not read in the last tick.
    pub is_missed: bool,
}

impl Credit {
    /// Fades by the time that passed without a tick.
    pub fn fade(&mut self, elapsed: Duration, half_life: Duration) {
        self.account.fade(elapsed, half_life);
        if self.entry.bank_seconds > 0.0 {
            self.entry.bank_seconds *= kept_part(elapsed.as_secs_f64(), half_life);
        }
    }
}

/// Use and waiting of one node in a tick, with sums for groups.
#[derive(Clone, Copy, Debug)]
struct Node {
    standing: Standing,
    conduct: Conduct,
    /// CPUs that it can use at most: its limit or its recent demand; of a group the sum below.
    ceiling_cores: f64,
    fair_cores: f64,
}

/// One tick: settles the accounts of all nodes (pre-order, as `conducts`, whose entries of groups are ignored), and
/// computes their factors.
///
/// O(n log n).
pub fn tick(
    standings: &[Standing],
    conducts: &[Conduct],
    tick: &Tick,
    terms: &CreditsPolicy,
    accounts: &mut [Account],
) -> Vec<Entry> {
    let fading = kept_part(tick.seconds, terms.half_life);
    let mut nodes = with_sums(standings, conducts, fading, accounts);
    let sets = sets_of_siblings(standings);
    divide(&mut nodes, &sets, tick.cores);
    let used: f64 = nodes
        .iter()
        .filter(|it| it.standing.parent.is_none())
        .map(|it| it.conduct.used_cores)
        .sum();
    let is_busy = tick.cores > 0.0 && used >= settle::BUSY_RATIO * tick.cores * (1.0 - ROUNDING);
    let mut entries = vec![Entry::default(); nodes.len()];
    for (entry, node) in entries.iter_mut().zip(&nodes) {
        entry.fair_cores = node.fair_cores;
        entry.others_level = 1.0;
    }
    for set in sets.iter().filter(|_| tick.cores > 0.0) {
        settle::settle(&nodes, set, (tick, terms), is_busy, accounts, &mut entries);
        boost::boost(&nodes, set, (tick, terms), accounts, &mut entries);
    }
    entries
}

/// The nodes with the sums of groups, and their new peaks. Fair shares are not known yet.
fn with_sums(
    standings: &[Standing],
    conducts: &[Conduct],
    fading: f64,
    accounts: &mut [Account],
) -> Vec<Node> {
    let nothing = Conduct { is_apart: true, is_unread: true, ..Conduct::default() };
    let blank = |standing: &Standing| Node {
        standing: *standing,
        conduct: nothing,
        ceiling_cores: 0.0,
        fair_cores: 0.0,
    };
    let mut nodes: Vec<Node> = standings.iter().map(blank).collect();
    let mut is_group = vec![false; nodes.len()];
    for parent in standings.iter().filter_map(|standing| standing.parent) {
        is_group[parent] = true;
    }
    for index in (0..nodes.len()).rev() {
        if !is_group[index] {
            let (conduct, account) = (conducts[index], &mut accounts[index]);
            account.peak_cores = conduct.wanted_cores.max(account.peak_cores * fading);
            (nodes[index].conduct, nodes[index].ceiling_cores) = (conduct, account.peak_cores);
        }
        let limit = nodes[index].standing.limit_cores;
        nodes[index].ceiling_cores = nodes[index].ceiling_cores.min(limit);
        let Some(parent) = standings[index].parent else { continue };
        let (below, ceiling) = (nodes[index].conduct, nodes[index].ceiling_cores);
        nodes[parent].ceiling_cores += ceiling;
        let above = &mut nodes[parent].conduct;
        above.used_cores += below.used_cores;
        above.wanted_cores += below.wanted_cores;
        above.waited = above.waited.max(below.waited);
        above.held = above.held.max(below.held);
        above.is_over |= below.is_over;
        above.is_apart &= below.is_apart;
        above.is_unread &= below.is_unread;
    }
    nodes
}

/// Sets of siblings, each with the node above it; from the top.
fn sets_of_siblings(standings: &[Standing]) -> Vec<Vec<usize>> {
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); standings.len() + 1];
    for (index, standing) in standings.iter().enumerate() {
        sets[standing.parent.map_or(0, |parent| parent + 1)].push(index);
    }
    sets.retain(|set| !set.is_empty());
    sets
}

/// Sets the fair share of each node: weighted max-min by standing shares, within ceilings.
fn divide(nodes: &mut [Node], sets: &[Vec<usize>], cores: f64) {
    for set in sets {
        let above = set.first().and_then(|first| nodes[*first].standing.parent);
        let whole = above.map_or(cores, |above| nodes[above].fair_cores);
        let claim = |&index: &usize| Claim {
            weight: nodes[index].standing.share_cores,
            floor: 0.0,
            ceiling: nodes[index].ceiling_cores,
        };
        // A node without a standing share has no claim.
        let (claiming, without): (Vec<usize>, Vec<usize>) =
            set.iter().partition(|index| nodes[**index].standing.share_cores > 0.0);
        let claims: Vec<Claim> = claiming.iter().map(claim).collect();
        let shares = max_min::divide(whole, &claims).allocation;
        claiming.iter().zip(shares).for_each(|(index, share)| nodes[*index].fair_cores = share);
        without.iter().for_each(|index| nodes[*index].fair_cores = 0.0);
    }
}

/// A plain weight with its factor, where `least` is the smallest plain weight among its siblings.
pub fn raised(plain: f64, factor: f64, least: f64) -> f64 {
    (plain * factor).min(RATIO_MAX * least).max(plain)
}
