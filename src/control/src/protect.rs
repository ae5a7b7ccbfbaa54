//! How much memory can be protected, so that there is always something left to reclaim.
//!
//! **Problem.** A protection (`memory.low`, `memory.min`) tells the kernel what it may not take.
//! Without swap it cannot take anonymous memory, page tables or locked pages either, whether or not
//! their tenant is entitled to them. Where the two together fill the memory, reclaim finds nothing:
//! every allocation scans the whole host, the page cache that programs run from is read again and
//! again, and a host that would have survived without any protection does not respond for minutes.
//! So protected memory has to fit beside memory that cannot be reclaimed.
//!
//! **Terms**, per tenant:
//! - *inelastic*: what reclaim cannot take, whatever is protected. Everything but file cache and
//!   reclaimable slab; where there is swap, less the part of the anonymous memory for which swap
//!   has room.
//! - *kept*: the larger of the protection and the inelastic part. An anonymous page is there once,
//!   whether it is protected or not.
//! - *growth*: by how much the inelastic part is going to grow until the next values take effect.
//!
//! **Rule.** `Σ kept + what is inelastic outside every tenant + what the kernel keeps free + margin
//! ≤ memory`. Guarantees come first: they are promises. Then comes what is wanted within the weight-fair
//! shares, and last what is lent: what nobody else wants now, but may come to want. Each is scaled down by
//! one ratio for all tenants, as large as the rule allows, and nothing of what follows is protected before
//! all of it is. A protection within its tenant's inelastic part costs nothing, but where not even that
//! leaves room only guarantees are protected.
//!
//! **Guarantees give way to what is guaranteed and to what is outside of the tenants, and to nothing
//! else.** A tenant that takes anonymous memory beyond its own guarantee would otherwise take the
//! guarantees of all others with it. What it takes beyond the memory that is left is for the kernel's
//! OOM killer, which the guarantees bring about, or for a limit in the policy. Where they do not fit
//! beside what is outside, they are scaled down by one ratio.
//!
//! **The margin.** A process can take 1 GiB of memory a second, more than any controller with a
//! tick of a second can answer. Two things are done about it:
//! - a standing margin of a sixteenth of the machine, 64 MiB at least and 1 GiB at most. That is
//!   one second of such a process where memory is large enough for it to matter; on a small machine
//!   a larger margin would leave nothing to protect, and a sixteenth still holds the programs of
//!   the host. It is also more than the dead band within which a written protection is left alone.
//!   What the kernel keeps free comes on top: reclaim begins and ends there, and it can be most of
//!   a sixteenth. Growth beyond it within one tick meets `memory.low`, which the kernel breaks when
//!   it finds nothing else, and not `memory.min`.
//! - growth that has been seen goes on: what a tenant's inelastic part grew by in the last interval
//!   is expected again for each of the next two, as far as its limit lets it. What such a process
//!   takes before its growth is seen comes out of the margin; what follows is taken off the
//!   protections in advance.
//!
//! **Properties** (tests below, and `tests/control/protect.rs`): the rule holds, or nothing
//! beyond guarantees is protected (`what_is_protected_leaves_room`), no protection exceeds what is wanted, guarantees come before
//! allocations (`guarantees_are_protected_first`) and these before what is lent
//! (`what_is_lent_is_protected_last`), the ratios are the largest possible
//! (`no_more_could_be_protected`), and where everything fits nothing is changed
//! (`protection_that_fits_is_not_bounded`).

use std::fmt;

use tenantd_core::units::Bytes;

/// The part of the machine that is neither protected nor inelastic.
const MARGIN_RATIO: f64 = 1.0 / 16.0;
/// ... but so much at least.
const MARGIN_LEAST: Bytes = Bytes::mib(64);
/// ... and so much at most: what a process can take in a second.
const MARGIN_MOST: Bytes = Bytes::gib(1);

/// Intervals for which growth that was seen is expected to go on: the one that passes before the
/// values of this tick meet the next, and the one after, in which late writes and late ticks fall.
pub(super) const GROWTH_INTERVALS: f64 = 2.0;

/// What the machine has, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Memory {
    /// All of it; within a limit from above, what that leaves.
    pub total_bytes: f64,
    /// Free swap. 0 where there is none.
    pub swap_free_bytes: f64,
    /// What processes outside every tenant hold that cannot be reclaimed without swap.
    pub outside_unreclaimable_bytes: f64,
    /// The anonymous part of that.
    pub outside_anon_bytes: f64,
    /// What the kernel keeps free: it reclaims until there is so much.
    pub kept_free_bytes: f64,
}

/// What one tenant holds and wants, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Need {
    /// What cannot be reclaimed without swap.
    pub unreclaimable_bytes: f64,
    /// The part of it that swap could take: anonymous memory, shared memory included.
    pub anon_bytes: f64,
    /// What the unreclaimable part grew by in the last interval; 0 where it shrank or is not known.
    pub growth_bytes: f64,
    /// What it never exceeds; infinite without a limit.
    pub limit_bytes: f64,
    /// What is wanted to be protected, the guarantee included.
    pub wanted_bytes: f64,
    /// What was promised of it.
    pub guarantee_bytes: f64,
    /// Its weight-fair share: what it wants beyond that is lent to it.
    pub fair_bytes: f64,
}

impl Need {
    fn promised_bytes(&self) -> f64 {
        self.guarantee_bytes.min(self.wanted_bytes)
    }

    /// What it wants of what is its own: its promise, and what is within its share.
    fn own_bytes(&self) -> f64 {
        self.wanted_bytes.min(self.guarantee_bytes.max(self.fair_bytes))
    }
}

/// What is to be protected.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Protections {
    /// One for each tenant, in bytes.
    pub bytes: Vec<f64>,
    /// Why it is less than was wanted, where it is.
    pub shortage: Option<Shortage>,
}

/// Why not everything can be protected.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shortage {
    /// What was wanted to be protected, in bytes.
    pub wanted_bytes: f64,
    /// What of it is protected.
    pub protected_bytes: f64,
    /// What cannot be reclaimed: of tenants, expected growth included, and outside of them.
    pub inelastic_bytes: f64,
    /// The part of every guarantee that is protected, 0 ..= 1.
    pub guarantee_ratio: f64,
    /// The part of what is wanted beyond the guarantees and within the shares that is protected, 0 ..= 1.
    pub allocation_ratio: f64,
    /// The part of what is lent that is protected, 0 ..= 1.
    pub lent_ratio: f64,
}

impl Shortage {
    /// Whether promises are not kept.
    pub fn breaks_guarantees(&self) -> bool {
        self.guarantee_ratio < 1.0
    }
}

/// Without figures: it is said for as long as it is so, and figures change every second.
impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.breaks_guarantees() {
            true => {
                "memory that cannot be reclaimed leaves too little for the guarantees: all of them are \
                 protected in part only, so that reclaim still finds something"
            }
            false => {
                "memory that cannot be reclaimed leaves too little to protect all that is allocated: \
                 guarantees are kept, and less than the allocations is protected beyond them"
            }
        })
    }
}

/// The margin of a machine with so much memory.
pub fn margin(total_bytes: f64) -> f64 {
    (total_bytes * MARGIN_RATIO).clamp(MARGIN_LEAST.0 as f64, MARGIN_MOST.0 as f64)
}

/// Divides what can be protected. O(n log n).
pub fn protect(memory: &Memory, needs: &[Need]) -> Protections {
    let inelastic = inelastic(memory, needs);
    let outside = outside_inelastic(memory, needs);
    let room = memory.total_bytes - margin(memory.total_bytes) - memory.kept_free_bytes - outside;
    let guarantees: Vec<f64> = needs.iter().map(Need::promised_bytes).collect();
    let own: Vec<f64> = needs.iter().map(Need::own_bytes).collect();
    let wanted: Vec<f64> = needs.iter().map(|need| need.wanted_bytes).collect();
    let guarantee_ratio = guarantee_ratio(room, &inelastic, &guarantees);
    let ratio = |is_due: bool, base: &[f64], all: &[f64]| match is_due {
        true => largest_ratio(room, &inelastic, base, &beyond(all, base)),
        false => 0.0,
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

/// The part of all guarantees that fits beside what is guaranteed and held, and what is outside.
fn guarantee_ratio(room: f64, inelastic: &[f64], guarantees: &[f64]) -> f64 {
    if guarantees.iter().all(|&promised| promised == 0.0) {
        return 1.0;
    }
    let within = inelastic.iter().zip(guarantees).map(|(held, promised)| held.min(*promised));
    let nothing = vec![0.0; guarantees.len()];
    largest_ratio(room, &within.collect::<Vec<f64>>(), &nothing, guarantees)
}

/// The part of anonymous memory, of tenants and outside, for which swap has room.
fn swappable_ratio(memory: &Memory, needs: &[Need]) -> f64 {
    let anon = memory.outside_anon_bytes + needs.iter().map(|need| need.anon_bytes).sum::<f64>();
    if anon > 0.0 { (memory.swap_free_bytes / anon).min(1.0) } else { 0.0 }
}

/// What reclaim cannot take from each tenant by the time that the next values take effect.
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

/// The largest part `t` of `more`, 0 ..= 1, for which `Σ max(inelastic, base + t·more)` fits into
/// `room`; 0 where nothing does.
///
/// The sum is a rising polyline in `t`, bent where a protection begins to exceed its inelastic
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

    /// The machine that thrashed: 600 MiB of cache that is read all the time beside 1,500 MiB of
    /// anonymous memory, on 2 GiB without swap.
    #[test]
    fn anonymous_memory_cannot_be_taken_for_a_protected_tenant() {
        let memory = Memory { outside_unreclaimable_bytes: 100.0 * MIB, ..machine(2048.0) };
        let protections = protect(&memory, &[cache(600.0, 0.0), anonymous(1500.0, 1200.0)]);
        // 2048 less 128 of margin, less 100, less 1500: what is left is 320 of the 600 that are
        // wanted.
        assert_eq!(mib(&protections), [320.0, 640.0]);
        let shortage = protections.shortage.unwrap();
        assert!(!shortage.breaks_guarantees());
        assert!((shortage.allocation_ratio - 320.0 / 600.0).abs() < 1e-9, "{shortage}");
        assert!(shortage.to_string().contains("guarantees are kept"), "{shortage}");
    }

    /// A guest of 1,474 MiB kept 67 MiB of them free: with 92 MiB of margin alone, next to nothing was left to
    /// reclaim.
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
        // Whatever another tenant takes beyond its own.
        let protections = protect(&memory, &[cache(900.0, 600.0), anonymous(1900.0, 1000.0)]);
        assert_eq!(mib(&protections), [600.0, 0.0]);
        assert!(!protections.shortage.unwrap().breaks_guarantees());
        // They are scaled down together where not even they fit beside what is outside.
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
        // Less a sixteenth: 1,500, 1,350, 1,200 and 1,050.
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
