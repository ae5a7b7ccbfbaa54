//! Elastic auto-DOP: the waiting queries or jobs that start, and the width of each.
//!
//! **Problem.** Work waits in order for slots (units of parallelism) and memory. Start as many queries as
//! can run, and divide the slots fairly among them; no query waits only because earlier queries have more
//! than they need.
//!
//! **Rule.** 1. *Admit* in order, while each admitted query keeps one slot (or its manual DOP) and its
//! memory. The first that does not fit ends the admission: all behind it wait too, or large queries would
//! starve. 2. *Divide* the slots by integer lexicographic max-min ([`tenantd_fair::integer`]): start from
//! one slot each; the next slot goes to the query with the smallest DOP per weight below its ceiling, the
//! earlier one first. 3. *Repeat* whenever a query starts or ends: the DOP is elastic, so no estimate of
//! the future is needed.
//!
//! **Other resources** are treated like memory, under names of their own: a base from start to end, and an
//! amount for each slot.
//!
//! **Speed-up.** A query of width n does S(n) = n / (1 + contention·(n−1) + coherency·n·(n−1)) slots' worth
//! of work (Gunther's universal scalability law). If it is known, no query is wider than the last n whose
//! slot adds at least `min_gain`.
//!
//! **Memory.** Where memory grows with the width, `memory(d) = base + d × per_thread`, a slot is a bundle
//! (1 slot, `per_thread` memory), and step 2 is weighted DRF over (slots, memory) in whole bundles: the
//! next one goes to the query with the smallest dominant share per weight, of the amount that is free
//! beside the bases; a query whose bundle does not fit any more stays as wide as it is. Memory-heavy
//! queries then run narrower instead of blocking the line (Ghodsi et al., NSDI'11 §4.2, algorithm 1). With
//! fixed memory every dominant share is one of slots, and the rule is that of step 2.
//!
//! **Properties** (`tests/dop/target.rs`): all vectors; never more than the slots and the memory; within
//! floor and ceiling; nothing idle that an admitted query could use; the head of the queue is admitted if
//! it fits at all; a `per_thread` of 0 changes nothing; no query could be raised without lowering one that
//! has no more than it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::problem::Pools;
pub use super::problem::{
    Field, Place, Problem, ProblemError, Query, Reason, Running, Speedup, Supply, Width,
};
use tenantd_fair::integer::{self, Claim};

/// The decision of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The DOP of each query of the queue, in its order; 0 if it is not admitted.
    pub dop: Vec<u64>,
    /// True if the admission ended for lack of memory.
    pub memory_bound: bool,
    /// The further resource whose lack ended the admission.
    pub bound_by: Option<usize>,
    /// Unused slots.
    pub idle_slots: u64,
}

impl Admission {
    /// Creates a decision; `bound` is the pool whose lack ended the admission.
    pub(super) fn new(dop: Vec<u64>, bound: Option<usize>, idle_slots: u64) -> Admission {
        let bound_by = bound.and_then(|pool| pool.checked_sub(1));
        Admission { dop, memory_bound: bound == Some(0), bound_by, idle_slots }
    }

    /// Number of queries that start.
    pub fn admitted(&self) -> usize {
        self.dop.iter().filter(|dop| **dop > 0).count()
    }
}

/// Decides a round by the elastic rule. O((Q + S) log Q) for Q queries and S slots, O(Q log Q) if no memory
/// grows with the width.
pub fn admit(problem: &Problem) -> Admission {
    let mut free = problem.free_slots();
    let mut pools = problem.pools();
    let mut bound = None;
    let mut admitted: Vec<Bounds> = Vec::new();
    for query in problem.looked_at() {
        let bounds = Bounds::of(query, problem);
        if bounds.floor > free {
            break;
        }
        if let Err(pool) = pools.take(|pool| query.needs(pool, bounds.floor)) {
            bound = Some(pool);
            break;
        }
        free -= bounds.floor;
        admitted.push(bounds);
    }
    let queries = &problem.queue()[..admitted.len()];
    let grows = |query: &Query| (0..pools.free.len()).any(|pool| query.per_slot(pool) > 0.0);
    let mut dop = if queries.iter().any(grows) {
        divide_bundles(queries, &admitted, free, pools)
    } else {
        divide_slots(queries, &admitted, free)
    };
    let floors: u64 = admitted.iter().map(|bounds| bounds.floor).sum();
    let idle_slots = free + floors - dop.iter().sum::<u64>();
    dop.resize(problem.queue().len(), 0);
    Admission::new(dop, bound, idle_slots)
}

/// Least and largest width of a query.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    floor: u64,
    ceiling: u64,
}

impl Bounds {
    fn of(query: &Query, problem: &Problem) -> Bounds {
        let max = match query.width {
            Width::Manual(dop) => return Bounds { floor: dop, ceiling: dop },
            Width::AtMost(max) => max.min(problem.max_per_query()),
            Width::Auto => problem.max_per_query(),
        };
        Bounds { floor: 1, ceiling: query.speedup.widest(max, problem.supply().min_gain) }
    }
}

/// Divides slots that need no memory. `free` is the rest beyond the floors.
fn divide_slots(queries: &[Query], bounds: &[Bounds], free: u64) -> Vec<u64> {
    let claim = |(query, bounds): (&Query, &Bounds)| Claim {
        weight: query.weight,
        floor: bounds.floor,
        ceiling: bounds.ceiling,
    };
    let claims: Vec<Claim> = queries.iter().zip(bounds).map(claim).collect();
    let floors: u64 = bounds.iter().map(|bounds| bounds.floor).sum();
    integer::apportion(free + floors, &claims)
}

/// Divides bundles of a slot and its memory and resources, one at a time. `free` and `pools` are the rest
/// beyond the floors.
fn divide_bundles(queries: &[Query], bounds: &[Bounds], free: u64, mut pools: Pools) -> Vec<u64> {
    let mut dop: Vec<u64> = bounds.iter().map(|bounds| bounds.floor).collect();
    let mut free = free;
    // Shares are parts of the divided amount: all but the bases and the needs of manual DOPs.
    let elastic = || queries.iter().zip(bounds).filter(|(_, bounds)| bounds.floor < bounds.ceiling);
    let slots = (free + elastic().map(|(_, bounds)| bounds.floor).sum::<u64>()) as f64;
    let whole = |pool: usize| -> f64 {
        let floors = elastic().map(|(q, b)| b.floor as f64 * q.per_slot(pool)).sum::<f64>();
        pools.free[pool] + floors
    };
    let whole: Vec<f64> = (0..pools.free.len()).map(whole).collect();
    let share = |index: usize, dop: u64| {
        let query = &queries[index];
        let parts = whole.iter().enumerate().filter(|(_, whole)| **whole > 0.0);
        let parts = parts.map(|(pool, whole)| query.per_slot(pool) / whole);
        Rank::of(dop as f64 * parts.fold(1.0 / slots, f64::max) / query.weight)
    };
    let can_grow = |index: usize, dop: u64| dop < bounds[index].ceiling;
    let mut waiting: BinaryHeap<Reverse<(Rank, usize)>> = (0..queries.len())
        .filter(|&index| can_grow(index, dop[index]))
        .map(|index| Reverse((share(index, dop[index]), index)))
        .collect();
    while free > 0
        && let Some(Reverse((_, index))) = waiting.pop()
    {
        // One that does not fit now never will: no amount is returned to a pool.
        if pools.take(|pool| queries[index].per_slot(pool)).is_err() {
            continue;
        }
        free -= 1;
        dop[index] += 1;
        if can_grow(index, dop[index]) {
            waiting.push(Reverse((share(index, dop[index]), index)));
        }
    }
    dop
}

/// A share to compare. Rounded to 44 bits of mantissa, so that shares that are equal on paper stay equal in
/// spite of rounding, and the earlier query comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u64);

impl Rank {
    fn of(share: f64) -> Rank {
        const ROUNDED_BITS: u32 = 8;
        // Shares are not negative, and the bits of such numbers sort like the numbers.
        Rank((share.to_bits() + (1 << (ROUNDED_BITS - 1))) >> ROUNDED_BITS)
    }
}
