//! How wide each tenant runs, and on which CPUs, tick by tick.
//!
//! **Problem.** [`tenantd_dop`] has the rules: how slots are divided, how a width is kept stable, how widths
//! become sets of CPUs. This file applies them over time to a host in which most tenants sleep most of the
//! time and may wake at any moment.
//!
//! **Awake and asleep.** A tenant is asleep once it has used next to nothing for three ticks, and not because
//! others kept it from running. A sleeping tenant takes no part in the division, so its CPUs are lent to the
//! tenants that work; but it keeps its width and, where it is pinned, its CPUs. A narrow set would confine it
//! at the very moment it wakes up; with its own CPUs kept it shares them by weight until the others have
//! moved off them. The width it reads is that of its fair share: a program that starts now should start that
//! many threads.
//!
//! [`super::place`] turns widths into sets of CPUs.
//!
//! **Properties** (`tests/agent/width`): widths within the policy's bounds, and within the slots where all
//! demands are unlimited; over two noisy hours at most twelve changes an hour with a mean error below 10 %.

use std::time::Duration;

use crate::demand::Demand;
use crate::target::Target;
use crate::tree::TreeNode;
use crate::usage::Usage;
use tenantd_core::codec::coded;
use tenantd_core::resource::CPU;
use tenantd_dop::CpuSet;
use tenantd_dop::band::{Aim, Band};
use tenantd_dop::placement::Reason;
use tenantd_dop::tenant::{self, Claimant, Sample, Width};
use tenantd_fair::integer::{self, Claim};
use tenantd_policy::model::{CpusPolicy, DopPolicy};

/// Less than this counts as asleep: a shell that waits, a timer that ticks, a service without requests.
const ASLEEP_CORES: f64 = 0.1;
/// Ticks below that use after which a tenant counts as asleep.
const ASLEEP_TICKS: u32 = 3;
/// A tenant that uses next to nothing while some task of it waits for so much of the time is starved.
const STARVED_RATIO: f64 = 0.5;
/// The ticks after which the use of a tenant that woke up shows its demand.
const WAKING_TICKS: u32 = 3;
/// The width of one tenant between ticks.
#[derive(Clone, Debug, Default)]
pub struct WidthState {
    band: Option<Band>,
    quiet_ticks: u32,
    /// Ticks since it woke up, or since it was first seen.
    awake_ticks: u32,
    /// CPUs it is placed on; `None` where it is not pinned.
    pub(super) placed: Option<CpuSet>,
    /// When it was last placed elsewhere, or first.
    pub(super) moved: Option<Duration>,
    /// Why it did not get the CPUs that it should have when it was last placed.
    pub(super) refused: Option<Reason>,
}

impl WidthState {
    /// A tenant that was placed on `cpus` by an earlier agent.
    pub fn placed_on(cpus: CpuSet) -> WidthState {
        WidthState { placed: Some(cpus), ..WidthState::default() }
    }

    /// How many CPUs wide it should run; `None` before the first tick.
    pub fn dop(&self) -> Option<u32> {
        self.band.as_ref().map(Band::dop)
    }

    /// CPUs it is placed on; `None` where it is not pinned.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.placed.as_ref()
    }

    /// Its width state, for the trace.
    pub fn status(&self) -> WidthStatus {
        let band = self.band.as_ref();
        WidthStatus {
            dop: self.dop(),
            aim: band.and_then(Band::aim),
            outside_ticks: band.map_or(0, Band::outside_ticks),
            changed: band.and_then(Band::changed),
            asleep: self.is_asleep(),
            cpus: self.placed.clone(),
            moved: self.moved,
        }
    }

    /// It runs anywhere from now on.
    pub fn unpin(&mut self) {
        (self.placed, self.moved, self.refused) = (None, None, None);
    }

    /// Places it on `cpus`.
    pub(super) fn move_to(&mut self, cpus: CpuSet, now: Duration) {
        if self.placed.as_ref() != Some(&cpus) {
            self.placed = Some(cpus);
            self.moved = Some(now);
        }
    }

    /// Whether it is on shared CPUs because none could be its own.
    pub(super) fn lacks_own_cpus(&self) -> bool {
        matches!(self.refused, Some(Reason::Narrowed { granted: 0, .. }))
    }

    /// Whether it has used next to nothing for a while.
    pub(super) fn is_asleep(&self) -> bool {
        self.quiet_ticks >= ASLEEP_TICKS
    }

    fn is_waking(&self) -> bool {
        self.quiet_ticks == 0 && self.awake_ticks < WAKING_TICKS
    }
}

/// The width and the place of one tenant in one tick, for the trace.
#[derive(Clone, Debug, Default)]
pub struct WidthStatus {
    /// How many CPUs wide it should run; `None` before the first tick.
    pub dop: Option<u32>,
    /// What the last tick with a sample asked for.
    pub aim: Option<Aim>,
    /// For how many ticks in a row that has lain outside of the band.
    pub outside_ticks: u32,
    /// When its width last changed.
    pub changed: Option<Duration>,
    /// Whether it has used next to nothing for a while.
    pub asleep: bool,
    /// CPUs it is placed on; `None` where it is not pinned.
    pub cpus: Option<CpuSet>,
    /// When it was last placed elsewhere, or first.
    pub moved: Option<Duration>,
}

/// Why a tenant that is `dop` wide is placed on `nr_cpus`.
pub fn cpus_reason(dop: Option<u32>, nr_cpus: usize) -> String {
    match dop {
        Some(dop) if dop as usize == nr_cpus => format!("its width is {dop}"),
        Some(dop) => format!("its width is {dop}, and {nr_cpus} CPUs are its own"),
        None => "placed".to_string(),
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

/// Steps the widths of all leaves; `states[i]` belongs to `leaves[i]`.
pub fn widen(leaves: &[Leaf<'_>], states: &mut [WidthState], slots: u32, now: Duration) {
    let fair = fair_widths(leaves, slots);
    for ((leaf, state), fair) in leaves.iter().zip(states.iter_mut()).zip(fair) {
        let quiet = match leaf.usage {
            Some(usage) => is_quiet(usage),
            // Not read this time: it keeps its last state. Never read: its cgroup has no process yet.
            None => leaf.demand.is_none() || state.is_asleep(),
        };
        let woke = state.is_asleep() && !quiet;
        state.awake_ticks = if woke { 0 } else { state.awake_ticks.saturating_add(1) };
        state.quiet_ticks = if quiet { state.quiet_ticks.saturating_add(1) } else { 0 };
        match &state.band {
            None => state.band = Some(Band::new(first_width(leaf, state).unwrap_or(fair))),
            Some(band) if state.is_asleep() && band.dop() != fair => {
                state.band = Some(Band::new(fair));
            }
            Some(_) => {}
        }
    }
    let awake: Vec<usize> = (0..leaves.len()).filter(|&i| !states[i].is_asleep()).collect();
    // The share of each tenant by the published rule: the slots over the number of tenants that want some.
    let imci = (slots / awake.len().max(1) as u32).max(1);
    let wakes = awake.iter().any(|&i| states[i].is_waking());
    let claimants: Vec<Claimant> = awake
        .iter()
        .map(|&i| match (wakes, states[i].is_waking()) {
            (false, _) => claimant(&leaves[i], imci),
            (true, is_waking) => {
                expectant(claimant(&leaves[i], imci), leaves[i].fair_slots, is_waking)
            }
        })
        .collect();
    let somebody_woke = awake.iter().any(|&i| states[i].awake_ticks == 0);
    let mut bands = Vec::with_capacity(awake.len());
    for &index in &awake {
        let state = &mut states[index];
        let Some(mut band) = state.band.take() else { continue };
        if somebody_woke && state.awake_ticks > 0 {
            band.hurry(now);
        }
        bands.push(band);
    }
    tenant::tick(slots, &claimants, &mut bands, now);
    for (index, band) in awake.into_iter().zip(bands) {
        states[index].band = Some(band);
    }
}

/// Whether it uses next to nothing without waiting: a starved tenant waits, and is not asleep.
fn is_quiet(usage: &Usage) -> bool {
    let starved = match usage.wanted_cores {
        Some(wanted) => wanted >= ASLEEP_CORES,
        None => usage.cpu_some_ratio.is_some_and(|ratio| ratio >= STARVED_RATIO),
    };
    usage.cpu_cores < ASLEEP_CORES && !starved
}

/// The width that an earlier agent left this tenant, where its CPU set shows it; the first step applies the
/// policy's bounds.
fn first_width(leaf: &Leaf<'_>, state: &WidthState) -> Option<u32> {
    match leaf.node.cpus {
        CpusPolicy::Dop | CpusPolicy::Exclusive => Some(state.placed.as_ref()?.len().max(1) as u32),
        CpusPolicy::Shared | CpusPolicy::Fixed(_) => None,
    }
}

/// What each tenant's width would be if all were awake with unlimited demand, within the policy's bounds.
fn fair_widths(leaves: &[Leaf<'_>], slots: u32) -> Vec<u32> {
    let claims: Vec<Claim> = leaves
        .iter()
        .map(|leaf| {
            let (floor, most) = match leaf.node.dop {
                DopPolicy::Auto | DopPolicy::Imci => (1, slots),
                DopPolicy::AtMost(most) => (1, most.min(slots)),
                DopPolicy::Manual(dop) => (dop, dop),
            };
            let limit = limit_cpus(leaf).map_or(slots, |cpus| cpus.ceil() as u32);
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

/// CPUs that the tenant never exceeds, where the policy limits it or a group above it.
fn limit_cpus(leaf: &Leaf<'_>) -> Option<f64> {
    let listed = match &leaf.node.cpus {
        CpusPolicy::Fixed(cpus) => Some(cpus.len() as f64),
        _ => None,
    };
    [leaf.target.limit_cores, listed].into_iter().flatten().reduce(f64::min)
}

fn claimant(leaf: &Leaf<'_>, imci: u32) -> Claimant {
    let demand = leaf.demand.copied().unwrap_or(Demand::UNKNOWN);
    Claimant {
        allocation_cpus: leaf.target.allocation[CPU],
        sample: leaf.usage.map(|usage| Sample {
            used_cpus: usage.cpu_cores,
            useful_cpus: demand.amount[CPU].max(usage.cpu_cores),
            pressed: leaf.pressed,
            idle: is_quiet(usage),
        }),
        width: match leaf.node.dop {
            DopPolicy::Auto => Width::Auto,
            DopPolicy::AtMost(most) => Width::AtMost(most),
            DopPolicy::Manual(dop) => Width::Manual(dop),
            DopPolicy::Imci => Width::Manual(imci),
        },
        limit_cpus: limit_cpus(leaf),
        exclusive: leaf.node.cpus == CpusPolicy::Exclusive,
    }
}

/// A claimant while some tenant wakes up: the use in a part of a tick shows little, and one move of the
/// borrowers is better than two. So the weights divide, and a waking tenant is assumed to want its share.
fn expectant(claimant: Claimant, fair_slots: f64, is_waking: bool) -> Claimant {
    let useful_floor = if is_waking { fair_slots } else { 0.0 };
    let expect =
        |sample: Sample| Sample { useful_cpus: sample.useful_cpus.max(useful_floor), ..sample };
    Claimant { allocation_cpus: fair_slots, sample: claimant.sample.map(expect), ..claimant }
}

// --- recorded ---

coded!(struct WidthState { band, quiet_ticks, awake_ticks, placed, moved, refused });
