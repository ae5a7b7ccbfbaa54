//! How wide each tenant runs, and on which CPUs, tick by tick.
//!
//! **Problem.** [`crate::dop`] knows the rules: how slots are divided, how a width is kept still, how widths
//! become sets of CPUs. Here they meet the life of a host, in which most tenants sleep most of the time and
//! may wake at any moment.
//!
//! **Awake and asleep.** A tenant is asleep once it has used next to nothing for three ticks. One that is
//! asleep takes no part in the division, so its CPUs are lent to whoever works; but it keeps its width and,
//! where it is pinned, its CPUs. A narrow set would confine it at the very moment it wakes up; with its own
//! CPUs kept it shares them by weight until the others have moved off them. The width it is told is that of
//! its fair share: a program that starts now should start that many threads.
//!
//! **Placement.** Only tenants that are awake are placed; each stays where it is as far as that goes, and
//! none is placed twice within the dwell time, the first time included, unless one of its CPUs went away.
//! Tenants with exclusive CPUs are always placed: theirs are never lent. A tenant that an earlier agent
//! placed begins with the width and the CPUs that it had. When all have been still for a while, tenants that
//! were scattered over several caches or nodes are brought together, if that can be done.
//!
//! **Properties** (`tests/agent/width.rs`): widths within the policy's bounds; a sleeper's CPUs are lent and
//! it has them back; at most one change in the dwell time; no set is ever empty.

use std::ops::Range;
use std::time::Duration;

use crate::control::demand::Demand;
use crate::control::target::Target;
use crate::control::tree::{CPU, TreeNode};
use crate::control::usage::Usage;
use crate::dop::band::Band;
use crate::dop::placement::{self, Placement, Reason, Request, Want};
use crate::dop::tenant::{self, Claimant, Sample, Width};
use crate::dop::topology::Level;
use crate::dop::{CpuSet, Topology, transition};
use crate::fair::integer::{self, Claim};
use crate::policy::model::{CpusPolicy, DopPolicy};

/// Less than this counts as asleep: a shell that waits, a timer that ticks, a service that nobody asks.
const ASLEEP_CORES: f64 = 0.1;
/// For so many ticks.
const ASLEEP_TICKS: u32 = 3;

/// The ticks after which the use of a tenant that woke up tells what it wants.
const WAKING_TICKS: u32 = 3;
/// What is decided in a tick is written a moment later; on a slow machine that moment varies.
const WRITE_SLACK: Duration = Duration::from_secs(2);
/// How long after the last change of any placement, and for how long, a tidier one is looked for.
const TIDY: Range<Duration> = Duration::from_secs(20)..Duration::from_secs(25);

/// The width of one tenant between ticks.
#[derive(Clone, Debug, Default)]
pub struct Breadth {
    band: Option<Band>,
    quiet_ticks: u32,
    /// Ticks since it woke up, or since it was first seen.
    awake_ticks: u32,
    /// CPUs it is placed on; `None` where it is not pinned.
    placed: Option<CpuSet>,
    /// When it was last placed elsewhere, or first.
    moved: Option<Duration>,
}

impl Breadth {
    /// A tenant that was placed on `cpus` by an earlier agent.
    pub fn placed_on(cpus: CpuSet) -> Breadth {
        Breadth { placed: Some(cpus), ..Breadth::default() }
    }

    /// How many CPUs wide it should run; `None` before the first tick.
    pub fn dop(&self) -> Option<u32> {
        self.band.as_ref().map(Band::dop)
    }

    /// CPUs it is placed on; `None` where it is not pinned.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.placed.as_ref()
    }

    /// The width and what it takes to change it; `None` before the first tick.
    pub fn band(&self) -> Option<&Band> {
        self.band.as_ref()
    }

    /// When it was last placed elsewhere, or first.
    pub fn moved(&self) -> Option<Duration> {
        self.moved
    }

    /// Whether it has used next to nothing for a while.
    pub fn is_asleep(&self) -> bool {
        self.quiet_ticks >= ASLEEP_TICKS
    }

    fn is_waking(&self) -> bool {
        self.quiet_ticks == 0 && self.awake_ticks < WAKING_TICKS
    }
}

/// One leaf in one tick, as the width sees it.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// Its node.
    pub node: &'a TreeNode,
    /// What it is entitled to.
    pub target: &'a Target,
    /// What it could use; `None` before anything is known.
    pub demand: Option<&'a Demand>,
    /// What it used; `None` where it could not be read this time.
    pub usage: Option<&'a Usage>,
    /// Whether its threads wait for a CPU.
    pub pressed: bool,
    /// The slots that its weight alone gives it.
    pub fair_slots: f64,
}

/// Steps the widths of all leaves; `breadths[i]` belongs to `leaves[i]`.
pub fn widen(leaves: &[Leaf<'_>], breadths: &mut [Breadth], slots: u32, now: Duration) {
    let fair = fair_widths(leaves, slots);
    for ((leaf, breadth), fair) in leaves.iter().zip(breadths.iter_mut()).zip(fair) {
        let quiet = match leaf.usage {
            Some(usage) => usage.cpu_cores < ASLEEP_CORES,
            // Not read this time: whatever it was, it still is. Never read: nobody is there yet.
            None => leaf.demand.is_none() || breadth.is_asleep(),
        };
        let woke = breadth.is_asleep() && !quiet;
        breadth.awake_ticks = if woke { 0 } else { breadth.awake_ticks.saturating_add(1) };
        breadth.quiet_ticks = if quiet { breadth.quiet_ticks.saturating_add(1) } else { 0 };
        match &breadth.band {
            None => breadth.band = Some(Band::new(first_width(leaf, breadth).unwrap_or(fair))),
            Some(band) if breadth.is_asleep() && band.dop() != fair => {
                breadth.band = Some(Band::new(fair));
            }
            Some(_) => {}
        }
    }
    let awake: Vec<usize> = (0..leaves.len()).filter(|&i| !breadths[i].is_asleep()).collect();
    // What the published rule gives each of them: the slots over the number that want some.
    let imci = (slots / awake.len().max(1) as u32).max(1);
    let wakes = awake.iter().any(|&i| breadths[i].is_waking());
    let claimants: Vec<Claimant> = awake
        .iter()
        .map(|&i| match (wakes, breadths[i].is_waking()) {
            (false, _) => claimant(&leaves[i], imci),
            (true, is_waking) => {
                expectant(claimant(&leaves[i], imci), leaves[i].fair_slots, is_waking)
            }
        })
        .collect();
    let somebody_woke = awake.iter().any(|&i| breadths[i].awake_ticks == 0);
    let mut bands = Vec::with_capacity(awake.len());
    for &index in &awake {
        let breadth = &mut breadths[index];
        let Some(mut band) = breadth.band.take() else { continue };
        if somebody_woke && breadth.awake_ticks > 0 {
            band.hurry();
        }
        bands.push(band);
    }
    tenant::tick(slots, &claimants, &mut bands, now);
    for (index, band) in awake.into_iter().zip(bands) {
        breadths[index].band = Some(band);
    }
}

/// The width that an earlier agent left this tenant, where its set tells; the policy's bounds are obeyed in
/// the first step.
fn first_width(leaf: &Leaf<'_>, breadth: &Breadth) -> Option<u32> {
    match leaf.node.cpus {
        CpusPolicy::Dop | CpusPolicy::Exclusive => {
            Some(breadth.placed.as_ref()?.len().max(1) as u32)
        }
        CpusPolicy::Shared | CpusPolicy::Fixed(_) => None,
    }
}

/// What each tenant's width would be if all were awake and hungry, within the policy's bounds.
fn fair_widths(leaves: &[Leaf<'_>], slots: u32) -> Vec<u32> {
    let claims: Vec<Claim> = leaves
        .iter()
        .map(|leaf| {
            let (floor, most) = match leaf.node.dop {
                DopPolicy::Auto | DopPolicy::Imci => (1, slots),
                DopPolicy::AtMost(most) => (1, most.min(slots)),
                DopPolicy::Manual(dop) => (dop, dop),
            };
            let limit = limit_cpus(leaf.node).map_or(slots, |cpus| cpus.ceil() as u32);
            Claim {
                // A share of nothing is still a share.
                weight: leaf.fair_slots.max(1e-6),
                floor: u64::from(floor),
                ceiling: u64::from(most.min(limit).max(floor)),
            }
        })
        .collect();
    let widths = integer::apportion(u64::from(slots), &claims);
    widths.iter().zip(claims).map(|(width, claim)| (*width).max(claim.floor) as u32).collect()
}

/// CPUs that the tenant never exceeds, where the policy says so.
fn limit_cpus(node: &TreeNode) -> Option<f64> {
    let listed = match &node.cpus {
        CpusPolicy::Fixed(cpus) => Some(cpus.len() as f64),
        _ => None,
    };
    [node.limit[CPU], listed].into_iter().flatten().reduce(f64::min)
}

fn claimant(leaf: &Leaf<'_>, imci: u32) -> Claimant {
    let demand = leaf.demand.copied().unwrap_or_default();
    Claimant {
        allocation_cpus: leaf.target.allocation[CPU],
        sample: leaf.usage.map(|usage| Sample {
            used_cpus: usage.cpu_cores,
            useful_cpus: demand.cpu_cores.max(usage.cpu_cores),
            pressed: leaf.pressed,
        }),
        width: match leaf.node.dop {
            DopPolicy::Auto => Width::Auto,
            DopPolicy::AtMost(most) => Width::AtMost(most),
            DopPolicy::Manual(dop) => Width::Manual(dop),
            DopPolicy::Imci => Width::Manual(imci),
        },
        limit_cpus: limit_cpus(leaf.node),
        exclusive: leaf.node.cpus == CpusPolicy::Exclusive,
    }
}

/// A claimant while somebody is waking up: what was used in a part of a tick tells little, and those who
/// borrowed from the sleeper are better moved once than twice. So the weights divide, and whoever wakes is
/// taken to want its share.
fn expectant(claimant: Claimant, fair_slots: f64, is_waking: bool) -> Claimant {
    let useful_floor = if is_waking { fair_slots } else { 0.0 };
    let expect =
        |sample: Sample| Sample { useful_cpus: sample.useful_cpus.max(useful_floor), ..sample };
    Claimant { allocation_cpus: fair_slots, sample: claimant.sample.map(expect), ..claimant }
}

/// Whether any tenant of the policy needs a set of CPUs of its own.
pub fn pins(nodes: &[TreeNode]) -> bool {
    nodes.iter().any(|node| node.is_leaf && node.cpus != CpusPolicy::Shared)
}

/// Places all leaves that are pinned; returns what a person should know of it.
pub fn place(
    leaves: &[Leaf<'_>],
    breadths: &mut [Breadth],
    topology: &Topology,
    now: Duration,
) -> Vec<String> {
    let is_exclusive = |leaf: &Leaf<'_>| leaf.node.cpus == CpusPolicy::Exclusive;
    let exclusive = leaves.iter().any(is_exclusive);
    let takes_part = |index: &usize| {
        let (leaf, breadth) = (&leaves[*index], &breadths[*index]);
        match leaf.node.cpus {
            // Shared tenants are told to keep off exclusive CPUs; otherwise they are left alone.
            CpusPolicy::Shared => exclusive,
            CpusPolicy::Exclusive | CpusPolicy::Fixed(_) => true,
            CpusPolicy::Dop => !breadth.is_asleep() || lacks_cpus(breadth, topology),
        }
    };
    let placed: Vec<usize> = (0..leaves.len()).filter(takes_part).collect();
    // A change of exclusive CPUs changes the sets of all who share the rest, so that they move together.
    let moved_exclusive = placed
        .iter()
        .filter(|&&i| is_exclusive(&leaves[i]))
        .filter_map(|&i| breadths[i].moved)
        .max();
    let requests: Vec<Request> = placed
        .iter()
        .map(|&i| {
            let moved = if is_exclusive(&leaves[i]) { moved_exclusive } else { breadths[i].moved };
            let moved = moved.map(|moved| moved + WRITE_SLACK);
            request(&leaves[i], &breadths[i], transition::is_held(moved, now))
        })
        .collect();
    let mut placement = placement::place(topology, &requests);
    let last_moved = placed.iter().filter_map(|&i| breadths[i].moved).max();
    if last_moved.is_some_and(|moved| TIDY.contains(&now.saturating_sub(moved)))
        && let Some(tidy) = tidied(topology, requests, &placement)
    {
        placement = tidy;
    }
    for (&index, cpus) in placed.iter().zip(placement.sets) {
        let breadth = &mut breadths[index];
        if breadth.placed.as_ref() != Some(&cpus) {
            breadth.moved = Some(now);
            breadth.placed = Some(cpus);
        }
    }
    placement.refusals.iter().map(|r| refusal(leaves[placed[r.request]].node, r.reason)).collect()
}

/// A placement that keeps tenants closer together than `present` does, if there is one.
///
/// Staying comes before lying together, so CPUs that went away and came back leave tenants scattered in each
/// other's domains, where neither could get together alone. Those that are scattered are placed anew, all at
/// once; that is worth a change only where the whole then spans fewer domains.
fn tidied(
    topology: &Topology,
    mut requests: Vec<Request>,
    present: &Placement,
) -> Option<Placement> {
    let spans = |set: &CpuSet| (topology.span(set, Level::Node), topology.span(set, Level::Llc));
    let spread = |sets: &[CpuSet]| {
        sets.iter().map(spans).fold((0, 0), |sum, span| (sum.0 + span.0, sum.1 + span.1))
    };
    for (request, set) in requests.iter_mut().zip(&present.sets) {
        if spans(set) > (1, 1) {
            request.previous = None;
        }
    }
    let fresh = placement::place(topology, &requests);
    let better = fresh.overlap <= present.overlap && spread(&fresh.sets) < spread(&present.sets);
    better.then_some(fresh)
}

/// Whether a sleeper has no CPU to wake up on.
fn lacks_cpus(breadth: &Breadth, topology: &Topology) -> bool {
    breadth.placed.as_ref().is_none_or(|cpus| !cpus.is_subset(topology.usable()))
}

fn request(leaf: &Leaf<'_>, breadth: &Breadth, held: bool) -> Request {
    let dop = breadth.dop().unwrap_or(1);
    let want = match &leaf.node.cpus {
        CpusPolicy::Shared => Want::Shared,
        CpusPolicy::Dop => Want::Dop(dop),
        CpusPolicy::Exclusive => Want::Exclusive(dop),
        CpusPolicy::Fixed(cpus) => Want::Fixed(cpus.iter().copied().collect()),
    };
    Request { want, previous: breadth.placed.clone(), held }
}

fn refusal(node: &TreeNode, reason: Reason) -> String {
    match reason {
        Reason::Narrowed { wanted, granted: 0 } => format!(
            "{}: no CPU is left to be exclusive of the {wanted} it wants: it runs on the shared ones",
            node.path
        ),
        Reason::Narrowed { wanted, granted } => format!(
            "{}: only {granted} of {wanted} CPUs could be exclusive; lower `dop` or other exclusive tenants",
            node.path
        ),
        Reason::Offline => format!(
            "{}: none of the CPUs in `cpus` is online: it runs on the shared ones",
            node.path
        ),
    }
}
