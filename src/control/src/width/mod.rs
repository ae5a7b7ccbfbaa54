//! Widths of the tenants, tick by tick.
//!
//! **Problem.** [`tenantd_dop`] divides slots, keeps widths stable, and turns widths into CPU sets. This
//! file applies its rules over time to a host where most tenants sleep and may wake at any moment.
//!
//! **Awake and asleep.** A tenant is asleep after three ticks with almost no usage, unless others kept it
//! from running. A sleeping tenant takes no part in the division, so its CPUs are lent; but it keeps its
//! width and its pinned CPUs. A narrow set would confine it when it wakes; with its own CPUs it shares them
//! by weight until the others have moved. The width it reads is that of its fair share: a program that
//! starts now should start that many threads.
//!
//! [`crate::width::place`] turns widths into CPU sets.
//!
//! **Properties** (`tests/agent/width`): widths are within the policy's bounds, and within the slots if all
//! demands are unlimited; over two noisy hours at most twelve changes per hour with a mean error below 10
//! %.

pub mod place;

use serde::{Deserialize, Serialize};
use std::time::Duration;

use crate::measure::usage::Usage;
use crate::share::demand::Demand;
use crate::share::target::Target;
use crate::tree::TreeNode;
use tenantd_core::resource::CPU;
use tenantd_dop::CpuSet;
use tenantd_dop::band::{Aim, Band};
use tenantd_dop::placement::Reason;
use tenantd_dop::tenant::{self, Claimant, Sample, Width};
use tenantd_fair::integer::{self, Claim};
use tenantd_policy::model::{CpusPolicy, DopPolicy};

/// Usage below which a tenant counts as asleep: a waiting shell, a timer, an idle service.
const ASLEEP_CORES: f64 = 0.1;
const ASLEEP_TICKS: u32 = 3;
const STARVED_RATIO: f64 = 0.5;
/// Ticks after which the usage of a woken tenant shows its demand.
const WAKING_TICKS: u32 = 3;
/// Width of one tenant between ticks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WidthState {
    band: Option<Band>,
    quiet_ticks: u32,
    awake_ticks: u32,
    pub(crate) placed: Option<CpuSet>,
    pub(crate) moved: Option<Duration>,
    /// Reason why its last placement lacked CPUs.
    pub(crate) refused: Option<Reason>,
}

impl WidthState {
    /// State of a tenant that an earlier agent placed on `cpus`.
    pub fn placed_on(cpus: CpuSet) -> WidthState {
        WidthState { placed: Some(cpus), ..WidthState::default() }
    }

    /// Width in CPUs; `None` before the first tick.
    pub fn dop(&self) -> Option<u32> {
        self.band.as_ref().map(Band::dop)
    }

    /// CPUs it is placed on; `None` if it is not pinned.
    pub fn cpus(&self) -> Option<&CpuSet> {
        self.placed.as_ref()
    }

    /// State for the trace.
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

    /// Removes the placement: it may run anywhere.
    pub fn unpin(&mut self) {
        (self.placed, self.moved, self.refused) = (None, None, None);
    }

    pub(crate) fn move_to(&mut self, cpus: CpuSet, now: Duration) {
        if self.placed.as_ref() != Some(&cpus) {
            self.placed = Some(cpus);
            self.moved = Some(now);
        }
    }

    /// True if it is on shared CPUs because none could be its own.
    pub(crate) fn lacks_own_cpus(&self) -> bool {
        matches!(self.refused, Some(Reason::Narrowed { granted: 0, .. }))
    }

    pub(crate) fn is_asleep(&self) -> bool {
        self.quiet_ticks >= ASLEEP_TICKS
    }

    fn is_waking(&self) -> bool {
        self.quiet_ticks == 0 && self.awake_ticks < WAKING_TICKS
    }
}

/// Width and placement of one tenant in one tick, for the trace.
#[derive(Clone, Debug, Default)]
pub struct WidthStatus {
    /// Width in CPUs; `None` before the first tick.
    pub dop: Option<u32>,
    /// Aim of the last tick with a sample.
    pub aim: Option<Aim>,
    /// Consecutive ticks with the aim outside the band.
    pub outside_ticks: u32,
    /// Time of its last width change.
    pub changed: Option<Duration>,
    /// True if it has been nearly idle for a while.
    pub asleep: bool,
    /// CPUs it is placed on; `None` if it is not pinned.
    pub cpus: Option<CpuSet>,
    /// Time of its first or last placement change.
    pub moved: Option<Duration>,
}

/// Reason for placing a tenant of width `dop` on `nr_cpus` CPUs.
pub fn cpus_reason(dop: Option<u32>, nr_cpus: usize) -> String {
    match dop {
        Some(dop) if dop as usize == nr_cpus => format!("its width is {dop}"),
        Some(dop) => format!("its width is {dop}, and {nr_cpus} CPUs are its own"),
        None => "placed".to_string(),
    }
}

/// One leaf in one tick, input of the width.
#[derive(Clone, Copy, Debug)]
pub struct Leaf<'a> {
    /// The node.
    pub node: &'a TreeNode,
    /// Entitlement and weights.
    pub target: &'a Target,
    /// Demand; `None` before it is known.
    pub demand: Option<&'a Demand>,
    /// Usage; `None` if unreadable this time.
    pub usage: Option<&'a Usage>,
    /// True if its threads wait for a CPU.
    pub pressed: bool,
    /// Slots by its weight alone.
    pub fair_slots: f64,
}

/// Steps the widths of all leaves; `states[i]` belongs to `leaves[i]`.
pub fn widen(leaves: &[Leaf<'_>], states: &mut [WidthState], slots: u32, now: Duration) {
    let fair = fair_widths(leaves, slots);
    for ((leaf, state), fair) in leaves.iter().zip(states.iter_mut()).zip(fair) {
        let quiet = match leaf.usage {
            Some(usage) => is_quiet(usage),
            // A leaf not read this time keeps its state. A leaf never read has no process yet.
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
    // Share by the published rule: slots over the number of tenants that want some.
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

/// True if it is nearly idle without waiting. A starved tenant waits, and is not asleep.
fn is_quiet(usage: &Usage) -> bool {
    let starved = match usage.wanted_cores {
        Some(wanted) => wanted >= ASLEEP_CORES,
        None => usage.cpu_some_ratio.is_some_and(|ratio| ratio >= STARVED_RATIO),
    };
    usage.cpu_cores < ASLEEP_CORES && !starved
}

/// Width from an earlier agent, if the CPU set shows it; the first step applies the policy's bounds.
fn first_width(leaf: &Leaf<'_>, state: &WidthState) -> Option<u32> {
    match leaf.node.cpus {
        CpusPolicy::Dop | CpusPolicy::Exclusive => Some(state.placed.as_ref()?.len().max(1) as u32),
        CpusPolicy::Shared | CpusPolicy::Fixed(_) => None,
    }
}

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
                // Keeps the weight positive.
                weight: leaf.fair_slots.max(1e-6),
                floor: u64::from(floor),
                ceiling: u64::from(most.min(limit).max(floor)),
            }
        })
        .collect();
    let widths = integer::apportion(u64::from(slots), &claims);
    widths.iter().zip(claims).map(|(width, claim)| (*width).max(claim.floor) as u32).collect()
}

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

/// Claim while a tenant wakes: usage in a part of a tick shows little, and one move of the borrowers is
/// better than two. So weights divide, and a waking tenant is assumed to want its share.
fn expectant(claimant: Claimant, fair_slots: f64, is_waking: bool) -> Claimant {
    let useful_floor = if is_waking { fair_slots } else { 0.0 };
    let expect =
        |sample: Sample| Sample { useful_cpus: sample.useful_cpus.max(useful_floor), ..sample };
    Claimant { allocation_cpus: fair_slots, sample: claimant.sample.map(expect), ..claimant }
}
