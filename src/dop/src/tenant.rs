//! The width of every tenant, each tick, from its allocation.
//!
//! **Problem.** The allocation is CPU time, but programs need a number of threads. Divide the slots of the
//! machine among the tenants in whole numbers, none below one and none above the tenant's demand.
//!
//! **Rule.** Integer lexicographic max-min of the slots with the allocations as weights: floor 1 (or the
//! manual width), ceiling the smallest of `dop.max`, the CPU limit, the fixed list and the *useful
//! parallelism*, the CPUs a tenant could keep busy now. Then the [`band`](super::band) keeps it steady.
//!
//! Two refinements make that work on a host, where most tenants sleep most of the time:
//! - A tenant that can use no more than one CPU is one wide but takes only its allocation out of the slots.
//!   A thousand sleepers would otherwise hold every slot of the machine while two tenants work. If all of
//!   them together take at most a quarter of a slot, the others lose none, and their sets overlap:
//!   otherwise four fifths of a CPU would be idle beside a tenant that may use one fifth. A tenant with
//!   exclusive CPUs takes the whole of its CPU.
//! - The real-valued division is rounded so that a tenant that has the larger of its two possible whole
//!   numbers keeps it. Otherwise 8 / 3 would turn between 3,3,2 and 2,3,3 with the last digit of a sample.
//!
//! A tenant without a sample keeps its present width within the policy: it takes that out of the slots, and
//! its band is not stepped. The band of an idle tenant is not stepped either: a pause does not show the
//! width of its work, and a tenant that was narrowed on its way to sleep would wake up confined.
//!
//! **Properties** (`tests/dop/tenant.rs`): bounds; the widths of those wider than one fit into the slots;
//! all slots are given while some tenant can use more; a width differs from the real-valued ideal by less
//! than one; a present width within that is kept; tenants that sleep cost the others nothing.

use std::cmp::Reverse;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::band::{Band, Observation, Supply};
use tenantd_fair::max_min;

/// Smaller differences are rounding errors of the allocation.
const EPSILON: f64 = 1e-6;

/// The part of a slot that may be lent to tenants of width one and given to the others as well.
const SHARED_SLOT: f64 = 0.25;

/// The slots of a machine: allocatable CPUs × oversubscription, rounded to the nearest whole number, at least 1.
///
/// Rounding down would take a whole CPU of two from jobs for a reserve of a tenth.
pub fn slots(allocatable_cpus: f64, oversubscription: f64) -> u32 {
    // Float-to-integer casts saturate.
    ((allocatable_cpus * oversubscription + 0.5 + EPSILON) as u32).max(1)
}

/// The policy for a tenant's width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Width {
    /// As wide as the allocation.
    #[default]
    Auto,
    /// At most this wide.
    AtMost(u32),
    /// Exactly this wide, within the slots.
    Manual(u32),
}

/// A tenant's CPU use in one tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// CPUs used, averaged over the tick.
    pub used_cpus: f64,
    /// CPUs it could keep busy: its demand, bounded by its runnable threads.
    pub useful_cpus: f64,
    /// True if threads wait for a CPU.
    pub pressed: bool,
    /// True if it used next to nothing and did not wait: it may be falling asleep.
    pub idle: bool,
}

/// One tenant in one tick.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claimant {
    /// CPUs it is entitled to: its weight in the division.
    pub allocation_cpus: f64,
    /// `None` if it could not be sampled.
    pub sample: Option<Sample>,
    /// The policy for its width.
    pub width: Width,
    /// Limit in CPUs: the smaller of its CPU limit and the length of its fixed list.
    pub limit_cpus: Option<f64>,
    /// True if its CPUs are exclusive, so that each of them is one less for the others.
    pub exclusive: bool,
}

/// The best width of a tenant.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The width.
    pub dop: u32,
    /// The same before rounding.
    pub ideal: f64,
    /// Widths that the policy allows.
    pub allowed: RangeInclusive<u32>,
}

/// One tick of all tenants: steps every band and returns the widths now in force. `bands[i]` belongs to
/// `claimants[i]`.
pub fn tick(slots: u32, claimants: &[Claimant], bands: &mut [Band], now: Duration) -> Vec<u32> {
    let present: Vec<u32> = bands.iter().map(Band::dop).collect();
    let targets = targets(slots, claimants, &present);
    let supply = supply(slots, claimants, &present);
    let tenants = claimants.iter().zip(bands).zip(&targets);
    tenants
        .map(|((claimant, band), target)| {
            let Some(sample) = claimant.sample.filter(|sample| !sample.idle) else {
                return band.obey(&target.allowed, now);
            };
            let seen = Observation {
                target: target.dop,
                used_cpus: sample.used_cpus,
                pressed: sample.pressed,
                supply,
                allowed: target.allowed.clone(),
            };
            band.step(&seen, now)
        })
        .collect()
}

/// The best widths now. `present[i]` is the width of `claimants[i]`, 0 if it has none yet.
pub fn targets(slots: u32, claimants: &[Claimant], present: &[u32]) -> Vec<Target> {
    let terms: Vec<Terms> =
        claimants.iter().zip(present).map(|(c, present)| Terms::of(c, *present, slots)).collect();
    let lent: f64 = terms.iter().map(|terms| terms.lent).sum();
    let whole = f64::from(slots) - (lent - SHARED_SLOT - EPSILON).ceil().max(0.0);
    let claims: Vec<max_min::Claim> = terms
        .iter()
        .map(|terms| max_min::Claim {
            weight: terms.weight,
            floor: f64::from(terms.floor),
            ceiling: f64::from(terms.ceiling),
        })
        .collect();
    let floors: f64 = claims.iter().map(|claim| claim.floor).sum();
    // With more floors than slots every tenant is at its floor, and the sets overlap.
    let ideals = max_min::divide(whole.max(floors), &claims).allocation;
    let rounded = round(&ideals, present, &terms);
    terms
        .into_iter()
        .zip(ideals)
        .zip(rounded)
        .map(|((terms, ideal), dop)| match terms.ceiling {
            0 => Target { dop: 1, ideal: 1.0, allowed: terms.allowed },
            _ => Target { dop, ideal, allowed: terms.allowed },
        })
        .collect()
}

/// A tenant's part in the division.
#[derive(Clone, Debug)]
struct Terms {
    weight: f64,
    /// Least and largest number of whole slots in the division; both 0 if it only borrows a part of one.
    floor: u32,
    ceiling: u32,
    /// The part of a slot that it borrows.
    lent: f64,
    allowed: RangeInclusive<u32>,
}

impl Terms {
    fn of(claimant: &Claimant, present: u32, slots: u32) -> Terms {
        let limit = claimant.limit_cpus.map_or(slots, |limit| whole_cpus(limit).min(slots));
        let allowed = match claimant.width {
            Width::Auto => 1..=limit,
            Width::AtMost(max) => 1..=max.clamp(1, limit),
            Width::Manual(dop) => {
                let dop = dop.clamp(1, slots);
                dop..=dop
            }
        };
        let (low, high) = (*allowed.start(), *allowed.end());
        let (floor, ceiling) = match claimant.sample {
            None => (present.clamp(low, high), present.clamp(low, high)),
            Some(sample) => (low, whole_cpus(sample.useful_cpus).clamp(low, high)),
        };
        let weight = claimant.allocation_cpus.max(EPSILON);
        if ceiling == 1 && !claimant.exclusive {
            let useful = claimant.sample.map_or(1.0, |sample| sample.useful_cpus);
            let lent = useful.min(claimant.allocation_cpus).clamp(0.0, 1.0);
            Terms { weight, floor: 0, ceiling: 0, lent, allowed }
        } else {
            Terms { weight, floor, ceiling, lent: 0.0, allowed }
        }
    }
}

/// CPUs rounded up, at least 1.
fn whole_cpus(cpus: f64) -> u32 {
    ((cpus - EPSILON).ceil() as u32).max(1)
}

/// Rounds a division to whole numbers with the same sum, each the next below or above its ideal.
///
/// The rest after rounding down goes first to those that have the larger number already, then to the
/// smallest share per weight, like in [`tenantd_fair::integer`]; ties to the earlier.
fn round(ideals: &[f64], present: &[u32], terms: &[Terms]) -> Vec<u32> {
    let mut whole: Vec<u32> = ideals.iter().map(|ideal| (ideal + EPSILON) as u32).collect();
    let total: f64 = ideals.iter().sum();
    let given: u32 = whole.iter().sum();
    let left = ((total + EPSILON) as u32).saturating_sub(given) as usize;
    let mut waiting: Vec<usize> =
        (0..ideals.len()).filter(|&i| ideals[i] > f64::from(whole[i]) + EPSILON).collect();
    let per_weight = |index: usize| f64::from(whole[index]) / terms[index].weight;
    waiting.sort_by(|&a, &b| {
        let has = |index: usize| Reverse(present[index] > whole[index]);
        has(a).cmp(&has(b)).then(per_weight(a).total_cmp(&per_weight(b)))
    });
    for index in waiting.into_iter().take(left) {
        whole[index] += 1;
    }
    whole
}

/// Compares the present widths with the slots; tenants of width one count with the amount they really take.
fn supply(slots: u32, claimants: &[Claimant], present: &[u32]) -> Supply {
    let (mut taken, mut lent) = (0.0, 0.0);
    for (claimant, &present) in claimants.iter().zip(present) {
        let terms = Terms::of(claimant, present, slots);
        lent += terms.lent;
        taken += match terms.ceiling {
            0 => f64::from(present.saturating_sub(1)) + terms.lent,
            _ => f64::from(present),
        };
    }
    if (taken - lent.min(SHARED_SLOT) - EPSILON).ceil() > f64::from(slots) {
        Supply::Short
    } else {
        Supply::Enough
    }
}
