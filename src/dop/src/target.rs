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

use serde::{Deserialize, Serialize};

use tenantd_fair::integer::{self, Claim};
use tenantd_fair::problem::WEIGHT_RANGE;

/// Width of one query.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Width {
    /// The fair width.
    #[default]
    Auto,
    /// At most this wide, from 1.
    AtMost(u64),
    /// Exactly this wide, from 1 to the slots; `max_per_query` does not bind it.
    Manual(u64),
}

/// Speed-up of a query with its width.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Speedup {
    /// Part of the work that only one slot at a time can do.
    pub contention: f64,
    /// Cost of keeping each pair of slots in agreement.
    pub coherency: f64,
}

impl Speedup {
    /// Work done in a second, in slot-seconds.
    pub fn at(self, dop: u64) -> f64 {
        let (n, others) = (dop as f64, dop.saturating_sub(1) as f64);
        n / (1.0 + self.contention * others + self.coherency * n * others)
    }

    /// True if the slot that makes a query `dop` wide adds at least `min_gain`.
    pub(super) fn is_worth(self, dop: u64, min_gain: f64) -> bool {
        self.at(dop) - self.at(dop.saturating_sub(1)) >= min_gain - EPSILON
    }

    /// The largest width that is worth it, up to `most`. Each slot adds less than the one before, so a
    /// bisection finds it.
    fn widest(self, most: u64, min_gain: f64) -> u64 {
        let (mut low, mut high) = (1.min(most), most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            match self.is_worth(middle, min_gain) {
                true => low = middle,
                false => high = middle - 1,
            }
        }
        low
    }
}

/// Gains that differ by less are equal.
const EPSILON: f64 = 1e-12;

/// One query, job or statement that waits.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Allowed width.
    pub width: Width,
    /// Weight against the other queries; in [`WEIGHT_RANGE`].
    pub weight: f64,
    /// Memory at any width, in any one unit.
    pub memory: f64,
    /// Memory of each slot, in addition.
    pub memory_per_thread: f64,
    /// Amounts of further resources, in the order of [`Supply::resources`]; none beyond the end of the
    /// list.
    pub resources: Vec<f64>,
    /// Amounts of further resources for each slot, in addition.
    pub per_thread: Vec<f64>,
    /// Speed-up with the width.
    pub speedup: Speedup,
}

impl Default for Query {
    /// Returns any width, weight 1, no memory.
    fn default() -> Self {
        Query {
            width: Width::Auto,
            weight: 1.0,
            memory: 0.0,
            memory_per_thread: 0.0,
            resources: Vec::new(),
            per_thread: Vec::new(),
            speedup: Speedup::default(),
        }
    }
}

impl Query {
    /// Memory at a width.
    pub fn memory_at(&self, dop: u64) -> f64 {
        self.memory + dop as f64 * self.memory_per_thread
    }

    /// Amount of a pool for each slot. Pools are the memory, then the further resources.
    fn per_slot(&self, pool: usize) -> f64 {
        match pool.checked_sub(1) {
            None => self.memory_per_thread,
            Some(resource) => self.per_thread.get(resource).copied().unwrap_or(0.0),
        }
    }

    /// Amount of a pool at a width.
    pub(super) fn needs(&self, pool: usize, dop: u64) -> f64 {
        match pool.checked_sub(1) {
            None => self.memory_at(dop),
            Some(resource) => {
                let base = self.resources.get(resource).copied().unwrap_or(0.0);
                base + dop as f64 * self.per_slot(pool)
            }
        }
    }
}

/// One query that runs and keeps its slots and memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Running {
    /// Its slots.
    pub dop: u64,
    /// Its memory.
    pub memory: f64,
    /// Its further resources.
    pub resources: Vec<f64>,
}

/// Slots, memory and resources for queries.
#[derive(Clone, Debug, PartialEq)]
pub struct Supply {
    /// All slots, used or not.
    pub slots: u64,
    /// The largest width of a query without a manual DOP; all slots by default.
    pub max_per_query: Option<u64>,
    /// Memory; `None` is unlimited.
    pub memory: Option<f64>,
    /// Amounts of further resources.
    pub resources: Vec<f64>,
    /// Least gain of one more slot, as a part of the work of one.
    pub min_gain: f64,
    /// Number of queries that run or are considered in a round; all by default.
    pub users: Option<u64>,
}

impl Supply {
    /// Default of [`Supply::min_gain`].
    pub const MIN_GAIN: f64 = 0.5;

    /// Returns a supply of slots only.
    pub fn of(slots: u64) -> Supply {
        let (max_per_query, memory, users) = (None, None, None);
        Supply {
            slots,
            max_per_query,
            memory,
            resources: Vec::new(),
            min_gain: Self::MIN_GAIN,
            users,
        }
    }
}

/// A round of admission: supply, running and waiting queries. Checked once, by [`Problem::try_new`].
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    supply: Supply,
    running: Vec<Running>,
    queue: Vec<Query>,
}

impl Problem {
    /// The most slots of a problem. Division may take a step for each of them.
    pub const SLOTS_MAX: u64 = 1 << 20;

    /// Creates a round over `slots` slots; memory is unlimited without `memory`.
    ///
    /// `max_per_query` defaults to the slots.
    ///
    /// # Errors
    /// Every invalid value, each with its place, in the order of the problem.
    pub fn try_new(
        slots: u64,
        max_per_query: Option<u64>,
        memory: Option<f64>,
        running: Vec<Running>,
        queue: Vec<Query>,
    ) -> Result<Self, Vec<ProblemError>> {
        let supply = Supply { max_per_query, memory, ..Supply::of(slots) };
        Problem::try_new_with(supply, running, queue)
    }

    /// Creates a round with a full supply.
    ///
    /// # Errors
    /// As [`Problem::try_new`].
    pub fn try_new_with(
        supply: Supply,
        running: Vec<Running>,
        queue: Vec<Query>,
    ) -> Result<Self, Vec<ProblemError>> {
        let Supply { slots, max_per_query, memory, .. } = supply;
        let mut errors = Vec::new();
        let mut check = |holds: bool, place, reason| {
            if !holds {
                errors.push(ProblemError { place, reason });
            }
        };
        let amount = |value: f64| value.is_finite() && value >= 0.0;
        check(slots > 0, Place::Slots, Reason::Zero);
        check(slots <= Self::SLOTS_MAX, Place::Slots, Reason::TooMany);
        check(max_per_query != Some(0), Place::MaxPerQuery, Reason::Zero);
        check(memory.is_none_or(amount), Place::Memory, Reason::NotAnAmount);
        for (index, &resource) in supply.resources.iter().enumerate() {
            check(amount(resource), Place::Resource(index), Reason::NotAnAmount);
        }
        check((0.0..=1.0).contains(&supply.min_gain), Place::MinGain, Reason::NotAPart);
        check(supply.users != Some(0), Place::Users, Reason::Zero);
        for (index, query) in running.iter().enumerate() {
            let held = std::iter::once(&query.memory).chain(&query.resources);
            let holds = held.copied().all(amount);
            check(holds, Place::Running(index), Reason::NotAnAmount);
        }
        for (index, query) in queue.iter().enumerate() {
            let at = |field| Place::Queue(index, field);
            match query.width {
                Width::Manual(dop) => {
                    check(dop > 0, at(Field::Manual), Reason::Zero);
                    check(dop <= slots, at(Field::Manual), Reason::BeyondSlots { slots });
                }
                Width::AtMost(max) => check(max > 0, at(Field::Max), Reason::Zero),
                Width::Auto => {}
            }
            check(amount(query.memory), at(Field::Memory), Reason::NotAnAmount);
            let per_thread = amount(query.memory_per_thread);
            check(per_thread, at(Field::MemoryPerThread), Reason::NotAnAmount);
            for &needed in &query.resources {
                check(amount(needed), at(Field::Resources), Reason::NotAnAmount);
            }
            for &needed in &query.per_thread {
                check(amount(needed), at(Field::PerThread), Reason::NotAnAmount);
            }
            let Speedup { contention, coherency } = query.speedup;
            let speeds_up = amount(contention) && amount(coherency);
            check(speeds_up, at(Field::Speedup), Reason::NotAnAmount);
            let weight = WEIGHT_RANGE.contains(&query.weight);
            check(weight, at(Field::Weight), Reason::NotAWeight);
        }
        match errors.is_empty() {
            true => Ok(Problem { supply, running, queue }),
            false => Err(errors),
        }
    }

    /// All slots, used or not.
    pub fn slots(&self) -> u64 {
        self.supply.slots
    }

    /// Slots, memory and resources.
    pub fn supply(&self) -> &Supply {
        &self.supply
    }

    /// Same supply with other queries, which are known to be valid.
    pub(super) fn round(&self, running: Vec<Running>, queue: Vec<Query>) -> Problem {
        Problem { supply: self.supply.clone(), running, queue }
    }

    /// The largest width of a query without a manual DOP.
    pub fn max_per_query(&self) -> u64 {
        self.supply.max_per_query.unwrap_or(self.supply.slots)
    }

    /// Running queries.
    pub fn running(&self) -> &[Running] {
        &self.running
    }

    /// Waiting queries, in order.
    pub fn queue(&self) -> &[Query] {
        &self.queue
    }

    /// The queries of the queue that a round considers.
    pub(super) fn looked_at(&self) -> &[Query] {
        let running = self.running.len() as u64;
        let users = self.supply.users.map_or(u64::MAX, |users| users.saturating_sub(running));
        &self.queue[..self.queue.len().min(usize::try_from(users).unwrap_or(usize::MAX))]
    }

    /// Free slots. After CPUs went away, more may be used than there are: then 0.
    pub fn free_slots(&self) -> u64 {
        let used = self.running.iter().fold(0_u64, |sum, query| sum.saturating_add(query.dop));
        self.supply.slots.saturating_sub(used)
    }

    /// Free amounts of the pools.
    pub(super) fn pools(&self) -> Pools {
        let capacity = self.supply.memory.unwrap_or(f64::INFINITY);
        let held = self.running.iter().map(|query| (query.memory, &query.resources));
        let mut free: Vec<f64> = [&[capacity][..], &self.supply.resources].concat();
        for (memory, resources) in held {
            let held = std::iter::once(&memory).chain(resources);
            free.iter_mut().zip(held).for_each(|(free, held)| *free = (*free - held).max(0.0));
        }
        let slack = std::iter::once(&capacity).chain(&self.supply.resources);
        let slack = slack.map(|all| if all.is_finite() { all * Pools::SLACK } else { 0.0 });
        Pools { free, slack: slack.collect() }
    }
}

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
    let mut dop = match queries.iter().any(grows) {
        true => divide_bundles(queries, &admitted, free, pools),
        false => divide_slots(queries, &admitted, free),
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
        Bounds { floor: 1, ceiling: query.speedup.widest(max, problem.supply.min_gain) }
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

/// Free amounts beside slots: the memory, then the further resources.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    free: Vec<f64>,
    slack: Vec<f64>,
}

impl Pools {
    /// Rounding errors of a sum of many fractions (0.1 + 0.2 > 0.3) refuse no query.
    const SLACK: f64 = 1e-12;

    /// Takes an amount of each pool, if all pools have enough.
    ///
    /// # Errors
    /// The first pool that has too little.
    pub(super) fn take(&mut self, amount: impl Fn(usize) -> f64) -> Result<(), usize> {
        let lacks = |&pool: &usize| amount(pool) > self.free[pool] + self.slack[pool];
        if let Some(pool) = (0..self.free.len()).find(lacks) {
            return Err(pool);
        }
        for (pool, free) in self.free.iter_mut().enumerate() {
            *free = (*free - amount(pool)).max(0.0);
        }
        Ok(())
    }
}

/// One error in a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ProblemError {
    /// Place of the error.
    pub place: Place,
    /// The error.
    pub reason: Reason,
}

/// Place of an error in a problem. Indices count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `slots`.
    Slots,
    /// `max_per_query`.
    MaxPerQuery,
    /// `memory`.
    Memory,
    /// A further resource.
    Resource(usize),
    /// `min_gain`.
    MinGain,
    /// `users`.
    Users,
    /// A running query.
    Running(usize),
    /// A field of a waiting query.
    Queue(usize, Field),
}

/// A field of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the problem file")]
pub enum Field {
    Manual,
    Max,
    Weight,
    Memory,
    MemoryPerThread,
    Resources,
    PerThread,
    Speedup,
}

impl Field {
    /// Its name in a problem file.
    pub fn key(self) -> &'static str {
        match self {
            Field::Manual => "manual",
            Field::Max => "max",
            Field::Weight => "weight",
            Field::Memory => "memory",
            Field::MemoryPerThread => "memory_per_thread",
            Field::Resources => "resources",
            Field::PerThread => "per_thread",
            Field::Speedup => "speedup",
        }
    }
}

/// Kind of error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The value must be at least 1.
    #[error("must be at least 1")]
    Zero,
    /// More slots than any machine has.
    #[error("must be at most {}", Problem::SLOTS_MAX)]
    TooMany,
    /// A manual DOP exceeds the slots, so the query can never run.
    #[error("is more than the {slots} slots there are")]
    BeyondSlots {
        /// All slots.
        slots: u64,
    },
    /// A weight is a number in [`WEIGHT_RANGE`].
    #[error("must be a number from {:e} to {:e}", WEIGHT_RANGE.start(), WEIGHT_RANGE.end())]
    NotAWeight,
    /// A part is from 0 to 1.
    #[error("must be a number from 0 to 1")]
    NotAPart,
    /// An amount of memory is finite and not negative.
    #[error("must be a number that is not negative")]
    NotAnAmount,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Slots => f.write_str("slots"),
            Place::MaxPerQuery => f.write_str("max_per_query"),
            Place::Memory => f.write_str("memory"),
            Place::Resource(index) => write!(f, "resources[{index}]"),
            Place::MinGain => f.write_str("min_gain"),
            Place::Users => f.write_str("users"),
            Place::Running(index) => write!(f, "running[{index}].memory"),
            Place::Queue(index, field) => write!(f, "queue[{index}].{}", field.key()),
        }
    }
}
