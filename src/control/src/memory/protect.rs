//! Upper limit of protected memory, so that reclaim always finds something.
//!
//! **Problem.** `memory.low` and `memory.min` forbid reclaim. Without swap the kernel cannot take anonymous
//! memory, page tables or locked pages either. If the two fill the memory, every allocation scans the whole
//! host, the page cache of running programs is read again and again, and the host does not respond for
//! minutes. So protected memory must fit beside unreclaimable memory.
//!
//! **Terms**, per tenant:
//! - *inelastic*: memory that reclaim cannot take. Everything but file cache and reclaimable slab, less the
//!   anonymous memory for which swap has room.
//! - *kept*: the larger of the protection and the inelastic part, because they overlap.
//! - *growth*: expected growth of the inelastic part until the next values take effect.
//!
//! **Rule.** `Σ kept + inelastic outside every tenant + watermarks of the kernel + margin ≤ memory`.
//! Guarantees come first, then wanted memory within the weight-fair shares, then lent memory (unwanted by
//! its owners now). One ratio per class scales all tenants, as large as the rule allows; a class is
//! protected only if the previous one is complete. A protection within the inelastic part costs nothing. If
//! even that leaves no room, only guarantees are protected.
//!
//! **Guarantees yield only to other guarantees and to outside memory.** Otherwise one tenant with too much
//! anonymous memory would take the guarantees of all others. Its excess is a matter for the OOM killer or
//! for a limit in the policy. If guarantees do not fit beside outside memory, one ratio scales them down.
//!
//! **Margin.** A process can take 1 GiB/s, faster than a controller with a tick of 1 s. Hence:
//! - a standing margin of a sixteenth of the machine, 64 MiB to 1 GiB: one second of such a process on a
//!   large machine, and the programs of a small host. It exceeds the dead band of a written protection. The
//!   kernel's watermarks come on top, because reclaim begins and ends there. Growth beyond it within a tick
//!   meets `memory.low`, which the kernel breaks if it finds nothing else, but not `memory.min`;
//! - extrapolated growth: the growth of the last interval is expected in each of the next two, within the
//!   limit. Memory taken before the growth is seen comes out of the margin; later growth is subtracted from
//!   the protections in advance.
//!
//! **Properties** (tests below, and `tests/control/protect.rs`): the rule holds, or only guarantees are
//! protected (`what_is_protected_leaves_room`); no protection exceeds the wanted one; guarantees come
//! before allocations (`guarantees_are_protected_first`) and these before lent memory
//! (`what_is_lent_is_protected_last`); the ratios are the largest possible (`no_more_could_be_protected`);
//! nothing changes if everything fits (`protection_that_fits_is_not_bounded`).

use std::fmt;

use tenantd_core::units::Bytes;

const MARGIN_RATIO: f64 = 1.0 / 16.0;
const MARGIN_LEAST: Bytes = Bytes::mib(64);
/// Largest margin: memory that a process can take in a second.
const MARGIN_MOST: Bytes = Bytes::gib(1);

/// Intervals for which observed growth continues: the one until this tick's values apply, and one for late
/// writes and late ticks.
pub(crate) const GROWTH_INTERVALS: f64 = 2.0;

/// Memory of the machine, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// Total memory, within the limits above the tenants.
    pub total_bytes: f64,
    /// Free swap; 0 without swap.
    pub swap_free_bytes: f64,
    /// Outside memory that cannot be reclaimed without swap.
    pub outside_unreclaimable_bytes: f64,
    /// Anonymous part of it.
    pub outside_anon_bytes: f64,
    /// Memory that the kernel keeps free by reclaim.
    pub kept_free_bytes: f64,
}

/// Memory of one tenant, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Need {
    /// Memory that cannot be reclaimed without swap.
    pub unreclaimable_bytes: f64,
    /// Part of it that swap could take: anonymous and shared memory.
    pub anon_bytes: f64,
    /// Growth of the unreclaimable part in the last interval; 0 if it shrank or is unknown.
    pub growth_bytes: f64,
    /// Limit; infinite without one.
    pub limit_bytes: f64,
    /// Wanted protection, the guarantee included.
    pub wanted_bytes: f64,
    /// Guaranteed part of it.
    pub guarantee_bytes: f64,
    /// Weight-fair share; wanted memory beyond it is lent.
    pub fair_bytes: f64,
}

impl Need {
    fn promised_bytes(&self) -> f64 {
        self.guarantee_bytes.min(self.wanted_bytes)
    }

    fn own_bytes(&self) -> f64 {
        self.wanted_bytes.min(self.guarantee_bytes.max(self.fair_bytes))
    }
}

/// Possible protection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Protections {
    /// Protection of each tenant, in bytes.
    pub bytes: Vec<f64>,
    /// Shortage, if not everything can be protected.
    pub shortage: Option<Shortage>,
}

/// Incomplete protection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// Wanted protection, in bytes.
    pub wanted_bytes: f64,
    /// Possible protection, in bytes.
    pub protected_bytes: f64,
    /// Unreclaimable memory of tenants (with expected growth) and outside, in bytes.
    pub inelastic_bytes: f64,
    /// Protected part of every guarantee, 0 ..= 1.
    pub guarantee_ratio: f64,
    /// Protected part of wanted memory beyond guarantees and within shares, 0 ..= 1.
    pub allocation_ratio: f64,
    /// Protected part of lent memory, 0 ..= 1.
    pub lent_ratio: f64,
}

impl Shortage {
    /// True if guarantees are broken.
    pub fn breaks_guarantees(&self) -> bool {
        self.guarantee_ratio < 1.0
    }
}

/// Without figures: the text must stay the same while the shortage lasts, and figures change every second.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.breaks_guarantees() {
            "memory that cannot be reclaimed leaves too little for the guarantees: all of them are \
                 protected in part only, so that reclaim still finds something"
        } else {
            "memory that cannot be reclaimed leaves too little to protect all that is allocated: \
                 guarantees are kept, and less than the allocations is protected beyond them"
        })
    }
}

/// Margin of a machine with this memory.
pub fn margin(total_bytes: f64) -> f64 {
    (total_bytes * MARGIN_RATIO).clamp(MARGIN_LEAST.0 as f64, MARGIN_MOST.0 as f64)
}

/// Divides the possible protection. O(n log n).
pub fn protect(memory: &Memory, needs: &[Need]) -> Protections {
    let inelastic = inelastic(memory, needs);
    let outside = outside_inelastic(memory, needs);
    let room = memory.total_bytes - margin(memory.total_bytes) - memory.kept_free_bytes - outside;
    let guarantees: Vec<f64> = needs.iter().map(Need::promised_bytes).collect();
    let own: Vec<f64> = needs.iter().map(Need::own_bytes).collect();
    let wanted: Vec<f64> = needs.iter().map(|need| need.wanted_bytes).collect();
    let guarantee_ratio = guarantee_ratio(room, &inelastic, &guarantees);
    let ratio = |is_due: bool, base: &[f64], all: &[f64]| {
        if is_due { largest_ratio(room, &inelastic, base, &beyond(all, base)) } else { 0.0 }
    };
    let allocation_ratio = ratio(guarantee_ratio == 1.0, &guarantees, &own);
    let lent_ratio = ratio(allocation_ratio == 1.0, &own, &wanted);
    let bytes = guarantees.iter().zip(&own).zip(&wanted).map(|((promised, own), wanted)| {
        guarantee_ratio * promised
            + allocation_ratio * (own - promised)
            + lent_ratio * (wanted - own)
    });
    let bytes: Vec<f64> = bytes.collect();
    let (wanted_bytes, protected_bytes) =
        (needs.iter().map(|need| need.wanted_bytes).sum::<f64>(), bytes.iter().sum());
    let shortage = (protected_bytes < wanted_bytes * (1.0 - 1e-9)).then(|| Shortage {
        wanted_bytes,
        protected_bytes,
        inelastic_bytes: outside + inelastic.iter().sum::<f64>(),
        guarantee_ratio,
        allocation_ratio,
        lent_ratio,
    });
    Protections { bytes, shortage }
}

fn beyond(all: &[f64], base: &[f64]) -> Vec<f64> {
    all.iter().zip(base).map(|(all, base)| all - base).collect()
}

/// Part of all guarantees that fits beside guaranteed inelastic memory and outside memory.
fn guarantee_ratio(room: f64, inelastic: &[f64], guarantees: &[f64]) -> f64 {
    if guarantees.iter().all(|&promised| promised == 0.0) {
        return 1.0;
    }
    let within = inelastic.iter().zip(guarantees).map(|(held, promised)| held.min(*promised));
    let nothing = vec![0.0; guarantees.len()];
    largest_ratio(room, &within.collect::<Vec<f64>>(), &nothing, guarantees)
}

/// Part of all anonymous memory for which swap has room.
fn swappable_ratio(memory: &Memory, needs: &[Need]) -> f64 {
    let anon = memory.outside_anon_bytes + needs.iter().map(|need| need.anon_bytes).sum::<f64>();
    if anon > 0.0 { (memory.swap_free_bytes / anon).min(1.0) } else { 0.0 }
}

fn inelastic(memory: &Memory, needs: &[Need]) -> Vec<f64> {
    let swappable = swappable_ratio(memory, needs);
    let of = |need: &Need| {
        let grown = need.unreclaimable_bytes + need.growth_bytes.max(0.0) * GROWTH_INTERVALS;
        let bound = grown.min(need.limit_bytes.max(need.unreclaimable_bytes));
        (bound - swappable * need.anon_bytes).max(0.0)
    };
    needs.iter().map(of).collect()
}

fn outside_inelastic(memory: &Memory, needs: &[Need]) -> f64 {
    let swappable = swappable_ratio(memory, needs) * memory.outside_anon_bytes;
    (memory.outside_unreclaimable_bytes - swappable).max(0.0)
}

/// Largest part `t` of `more`, 0 ..= 1, for which `Σ max(inelastic, base + t·more)` fits into `room`; 0 if
/// none does. The sum is a rising polyline in `t`, bent where a protection begins to exceed its inelastic
/// part: one sweep over the bends.
fn largest_ratio(room: f64, inelastic: &[f64], base: &[f64], more: &[f64]) -> f64 {
    let each =
        || inelastic.iter().zip(base).zip(more).map(|((held, base), more)| (*held, *base, *more));
    let kept = |ratio: f64| -> f64 {
        each().map(|(held, base, more)| held.max(base + ratio * more)).sum()
    };
    if kept(1.0) <= room {
        return 1.0;
    }
    if kept(0.0) > room {
        return 0.0;
    }
    let bend = |(held, base, more): (f64, f64, f64)| ((held - base) / more).clamp(0.0, 1.0);
    let growing = each().filter(|(_, _, more)| *more > 0.0);
    let mut bends: Vec<(f64, f64)> = growing.map(|it| (bend(it), it.2)).collect();
    bends.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut sum, mut slope, mut at) = (kept(0.0), 0.0, 0.0);
    for (ratio, more) in bends {
        let there = sum + slope * (ratio - at);
        if there > room {
            break;
        }
        (sum, at) = (there, ratio);
        slope += more;
    }
    if slope > 0.0 { (at + (room - sum) / slope).clamp(0.0, 1.0) } else { at }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: f64 = (1_u64 << 20) as f64;

    fn machine(mib: f64) -> Memory {
        Memory { total_bytes: mib * MIB, ..Memory::default() }
    }

    fn cache(wanted: f64, guarantee: f64) -> Need {
        Need {
            wanted_bytes: wanted * MIB,
            guarantee_bytes: guarantee * MIB,
            fair_bytes: f64::INFINITY,
            limit_bytes: f64::INFINITY,
            ..Need::default()
        }
    }

    fn anonymous(held: f64, wanted: f64) -> Need {
        Need { unreclaimable_bytes: held * MIB, anon_bytes: held * MIB, ..cache(wanted, 0.0) }
    }

    fn mib(protections: &Protections) -> Vec<f64> {
        protections.bytes.iter().map(|bytes| (bytes / MIB).round()).collect()
    }

    #[test]
    fn protection_that_fits_is_not_bounded() {
        let protections =
            protect(&machine(4096.0), &[cache(600.0, 200.0), anonymous(1500.0, 1600.0)]);
        assert_eq!((mib(&protections), protections.shortage), (vec![600.0, 1600.0], None));
    }

    /// A machine that thrashed: 600 MiB of busy cache beside 1,500 MiB of anonymous memory, on 2 GiB
    /// without swap.
    #[test]
    fn anonymous_memory_cannot_be_taken_for_a_protected_tenant() {
        let memory = Memory { outside_unreclaimable_bytes: 100.0 * MIB, ..machine(2048.0) };
        let protections = protect(&memory, &[cache(600.0, 0.0), anonymous(1500.0, 1200.0)]);
        // 2048 less 128 of margin, 100 and 1500 leaves 320 of the wanted 600.
        assert_eq!(mib(&protections), [320.0, 640.0]);
        let shortage = protections.shortage.unwrap();
        assert!(!shortage.breaks_guarantees());
        assert!((shortage.allocation_ratio - 320.0 / 600.0).abs() < 1e-9, "{shortage}");
        assert!(shortage.to_string().contains("guarantees are kept"), "{shortage}");
    }

    /// A guest of 1,474 MiB kept 67 MiB free: a margin of 92 MiB alone left almost nothing to reclaim.
    #[test]
    fn what_the_kernel_keeps_free_is_not_there() {
        let memory = Memory { kept_free_bytes: 67.0 * MIB, ..machine(1472.0) };
        let protections = protect(&memory, &[cache(442.0, 0.0), anonymous(1176.0, 0.0)]);
        assert_eq!(mib(&protections)[0], 137.0);
    }

    #[test]
    fn guarantees_are_protected_first() {
        let memory = machine(2048.0);
        let protections = protect(&memory, &[cache(900.0, 400.0), anonymous(1300.0, 1200.0)]);
        assert_eq!(mib(&protections)[0], 620.0);
        // Guarantees hold whatever another tenant takes.
        let protections = protect(&memory, &[cache(900.0, 600.0), anonymous(1900.0, 1000.0)]);
        assert_eq!(mib(&protections), [600.0, 0.0]);
        assert!(!protections.shortage.unwrap().breaks_guarantees());
        // If they do not fit beside outside memory, they are scaled down together.
        let memory = Memory { outside_unreclaimable_bytes: 1520.0 * MIB, ..machine(2048.0) };
        let protections = protect(&memory, &[cache(900.0, 600.0), cache(900.0, 200.0)]);
        assert_eq!(mib(&protections), [300.0, 100.0]);
        let shortage = protections.shortage.unwrap();
        assert!((shortage.guarantee_ratio - 0.5).abs() < 1e-9 && shortage.breaks_guarantees());
    }

    #[test]
    fn what_is_lent_is_protected_last() {
        let swap = |mib: f64| Memory { swap_free_bytes: 4096.0 * MIB, ..machine(mib) };
        let lent = Need { fair_bytes: 700.0 * MIB, ..anonymous(900.0, 1000.0) };
        let protect = |mib| {
            let protections = protect(&swap(mib), &[cache(500.0, 100.0), lent]);
            (super::tests::mib(&protections), protections.shortage.map(|it| it.lent_ratio))
        };
        // The capacities less a sixteenth: 1,500, 1,350, 1,200 and 1,050.
        assert_eq!(protect(1600.0), (vec![500.0, 1000.0], None));
        assert_eq!(protect(1440.0), (vec![500.0, 850.0], Some(0.5)));
        assert_eq!(protect(1280.0), (vec![500.0, 700.0], Some(0.0)));
        assert_eq!(protect(1120.0).1, Some(0.0));
        let less = protect(1120.0).0;
        assert!(less[0] < 500.0 && less[1] < 700.0 && less[0] + less[1] > 1040.0, "{less:?}");
    }

    #[test]
    fn observed_growth_continues_up_to_the_limit() {
        let growing = |growth, limit| Need {
            growth_bytes: growth * MIB,
            limit_bytes: limit * MIB,
            ..anonymous(400.0, 400.0)
        };
        let protect = |hog| mib(&protect(&machine(2048.0), &[cache(1520.0, 0.0), hog]))[0];
        assert_eq!(protect(growing(0.0, f64::INFINITY)), 1520.0);
        assert_eq!(protect(growing(300.0, f64::INFINITY)), 920.0);
        assert_eq!(protect(growing(300.0, 500.0)), 1420.0);
        assert_eq!(protect(growing(1024.0, f64::INFINITY)), 0.0);
    }

    #[test]
    fn what_swap_has_room_for_can_be_taken() {
        let swap = |free: f64| Memory { swap_free_bytes: free * MIB, ..machine(2048.0) };
        let tenants = [cache(900.0, 0.0), anonymous(1600.0, 0.0)];
        let protect = |free| mib(&protect(&swap(free), &tenants))[0];
        assert_eq!((protect(0.0), protect(400.0), protect(4096.0)), (320.0, 720.0, 900.0));
    }

    #[test]
    fn without_reclaimable_memory_only_guarantees_are_protected() {
        let protect = |promised| {
            protect(&machine(2048.0), &[cache(600.0, promised), anonymous(2000.0, 100.0)])
        };
        for promised in [0.0, 300.0] {
            let protections = protect(promised);
            assert_eq!(mib(&protections), [promised, 0.0]);
            assert!(protections.shortage.is_some_and(|shortage| !shortage.breaks_guarantees()));
        }
        assert_eq!(super::protect(&machine(2048.0), &[]), Protections::default());
    }
}
