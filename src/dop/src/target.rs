//! Elastic auto-DOP: which waiting queries or jobs start, and how wide each runs.
//!
//! **Problem.** Work waits in order for slots (units of parallelism) and memory. Start as much of it as can
//! run, and divide the slots fairly among what runs; no query waits only because those before it were given
//! more than they need.
//!
//! **Rule.** 1. *Admit* in order, while each admitted query keeps one slot (or its manual DOP) and its
//! memory. The first that does not fit ends the admission: all behind it wait too, or large queries
//! would starve. 2. *Divide* the slots by integer lexicographic max-min ([`tenantd_fair::integer`]): start
//! from one slot each; the next slot goes to the query with the smallest DOP per weight below its ceiling,
//! the earlier one first. 3. *Repeat* whenever a query starts or ends: the DOP is elastic, so no
//! estimate of the future is needed.
//!
//! **Memory.** Where memory grows with the width, `memory(d) = base + d × per_thread`, a slot is a bundle
//! (1 slot, `per_thread` memory), and step 2 is weighted DRF over (slots, memory) in whole bundles: the next
//! one goes to the query with the smallest dominant share per weight, of what is free once the bases are
//! paid; a query whose bundle does not fit any more stays as wide as it is. Memory-heavy queries then run
//! narrower instead of blocking the line (Ghodsi et al., NSDI'11 §4.2, algorithm 1). With fixed memory every
//! dominant share is one of slots, and the rule is that of step 2.
//!
//! **Properties** (`tests/dop/target.rs`): all vectors; never more than the slots and the memory; within
//! floor and ceiling; nothing idle that an admitted query could use; the head of the queue is admitted if
//! it fits at all; a `per_thread` of 0 changes nothing; no query could be raised without lowering one that has
//! no more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

use tenantd_fair::integer::{self, Claim};
use tenantd_fair::problem::WEIGHT_RANGE;

/// How wide one query may run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Width {
    /// As wide as is fair.
    #[default]
    Auto,
    /// At most this wide, from 1.
    AtMost(u64),
    /// Exactly this wide, from 1 to the slots; `max_per_query` does not bind it.
    Manual(u64),
}

/// One query, job or statement that waits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Query {
    /// How wide it may run.
    pub width: Width,
    /// What it is entitled to against the others; in [`WEIGHT_RANGE`].
    pub weight: f64,
    /// What it needs however wide it runs, in any one unit.
    pub memory: f64,
    /// What each slot needs in addition.
    pub memory_per_thread: f64,
}

impl Default for Query {
    /// Any width, weight 1, no memory.
    fn default() -> Self {
        Query { width: Width::Auto, weight: 1.0, memory: 0.0, memory_per_thread: 0.0 }
    }
}

impl Query {
    /// The memory it needs at a width.
    pub fn memory_at(&self, dop: u64) -> f64 {
        self.memory + dop as f64 * self.memory_per_thread
    }
}

/// One query that runs and keeps what it has.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Running {
    /// Its slots.
    pub dop: u64,
    /// Its memory.
    pub memory: f64,
}

/// A round of admission: what there is, what runs, what waits. Checked once, by [`Problem::try_new`].
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    slots: u64,
    max_per_query: u64,
    memory: Option<f64>,
    running: Vec<Running>,
    queue: Vec<Query>,
}

impl Problem {
    /// The most slots of a problem. Division may take a step for each of them.
    pub const SLOTS_MAX: u64 = 1 << 20;

    /// A round over `slots` slots; without `memory` there is no end of it.
    ///
    /// `max_per_query` defaults to the slots.
    ///
    /// # Errors
    /// Everything that makes no sense, each with its place, in the order of the problem.
    pub fn try_new(
        slots: u64,
        max_per_query: Option<u64>,
        memory: Option<f64>,
        running: Vec<Running>,
        queue: Vec<Query>,
    ) -> Result<Self, Vec<ProblemError>> {
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
        for (index, query) in running.iter().enumerate() {
            check(amount(query.memory), Place::Running(index), Reason::NotAnAmount);
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
            let weight = WEIGHT_RANGE.contains(&query.weight);
            check(weight, at(Field::Weight), Reason::NotAWeight);
        }
        match errors.is_empty() {
            true => {
                let max_per_query = max_per_query.unwrap_or(slots);
                Ok(Problem { slots, max_per_query, memory, running, queue })
            }
            false => Err(errors),
        }
    }

    /// All slots, used or not.
    pub fn slots(&self) -> u64 {
        self.slots
    }

    /// The widest a query may be without a manual DOP.
    pub fn max_per_query(&self) -> u64 {
        self.max_per_query
    }

    /// What runs.
    pub fn running(&self) -> &[Running] {
        &self.running
    }

    /// What waits, in order.
    pub fn queue(&self) -> &[Query] {
        &self.queue
    }

    /// Slots that nothing runs on. More may run than there are slots, after CPUs went away.
    pub fn free_slots(&self) -> u64 {
        let used = self.running.iter().fold(0_u64, |sum, query| sum.saturating_add(query.dop));
        self.slots.saturating_sub(used)
    }

    /// Memory that no running query holds.
    pub(super) fn free_memory(&self) -> Memory {
        let capacity = self.memory.unwrap_or(f64::INFINITY);
        let used: f64 = self.running.iter().map(|query| query.memory).sum();
        Memory { free: (capacity - used).max(0.0), slack: capacity * Memory::SLACK }
    }
}

/// The decision of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Admission {
    /// The DOP of each query of the queue, in its order; 0 where it is not admitted.
    pub dop: Vec<u64>,
    /// Whether the admission ended for want of memory.
    pub memory_bound: bool,
    /// Unused slots.
    pub idle_slots: u64,
}

impl Admission {
    /// How many queries start.
    pub fn admitted(&self) -> usize {
        self.dop.iter().filter(|dop| **dop > 0).count()
    }
}

/// Decides a round by the elastic rule. O((Q + S) log Q) for Q queries and S slots, O(Q log Q) where no
/// memory grows with the width.
pub fn admit(problem: &Problem) -> Admission {
    let mut free = problem.free_slots();
    let mut memory = problem.free_memory();
    let mut memory_bound = false;
    let mut admitted: Vec<Bounds> = Vec::new();
    for query in problem.queue() {
        let bounds = Bounds::of(query, problem.max_per_query());
        if bounds.floor > free {
            break;
        }
        if !memory.take(query.memory_at(bounds.floor)) {
            memory_bound = true;
            break;
        }
        free -= bounds.floor;
        admitted.push(bounds);
    }
    let queries = &problem.queue()[..admitted.len()];
    let mut dop = match queries.iter().any(|query| query.memory_per_thread > 0.0) {
        true => divide_bundles(queries, &admitted, free, memory),
        false => divide_slots(queries, &admitted, free),
    };
    let floors: u64 = admitted.iter().map(|bounds| bounds.floor).sum();
    let idle_slots = free + floors - dop.iter().sum::<u64>();
    dop.resize(problem.queue().len(), 0);
    Admission { dop, memory_bound, idle_slots }
}

/// Between what a query keeps and the most it can use.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    floor: u64,
    ceiling: u64,
}

impl Bounds {
    fn of(query: &Query, max_per_query: u64) -> Bounds {
        match query.width {
            Width::Manual(dop) => Bounds { floor: dop, ceiling: dop },
            Width::AtMost(max) => Bounds { floor: 1, ceiling: max.min(max_per_query) },
            Width::Auto => Bounds { floor: 1, ceiling: max_per_query },
        }
    }
}

/// Divides slots that need no memory. `free` is what remains beyond the floors.
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

/// Divides bundles of a slot and its memory, one at a time. `free` and `memory` are what remains beyond the
/// floors.
fn divide_bundles(queries: &[Query], bounds: &[Bounds], free: u64, memory: Memory) -> Vec<u64> {
    let mut dop: Vec<u64> = bounds.iter().map(|bounds| bounds.floor).collect();
    let mut free = free;
    let mut memory = memory;
    // What is divided: all but the bases and what manual DOPs take. Shares are of this.
    let elastic = || queries.iter().zip(bounds).filter(|(_, bounds)| bounds.floor < bounds.ceiling);
    let slots = (free + elastic().map(|(_, bounds)| bounds.floor).sum::<u64>()) as f64;
    let floors: f64 = elastic().map(|(q, b)| b.floor as f64 * q.memory_per_thread).sum();
    let bytes = memory.free + floors;
    let share = |index: usize, dop: u64| {
        let query = &queries[index];
        let of_memory = if bytes > 0.0 { query.memory_per_thread / bytes } else { 0.0 };
        Rank::of(dop as f64 * of_memory.max(1.0 / slots) / query.weight)
    };
    let can_grow = |index: usize, dop: u64| dop < bounds[index].ceiling;
    let mut waiting: BinaryHeap<Reverse<(Rank, usize)>> = (0..queries.len())
        .filter(|&index| can_grow(index, dop[index]))
        .map(|index| Reverse((share(index, dop[index]), index)))
        .collect();
    while free > 0
        && let Some(Reverse((_, index))) = waiting.pop()
    {
        // One that does not fit now never will: nothing is given back.
        if !memory.take(queries[index].memory_per_thread) {
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

/// A share to compare. Rounded to 44 bits of mantissa, so that shares that are equal on paper stay equal
/// whatever the division made of them, and the earlier query comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank(u64);

impl Rank {
    fn of(share: f64) -> Rank {
        const ROUNDED_BITS: u32 = 8;
        // Shares are not negative, and the bits of such numbers sort like the numbers.
        Rank((share.to_bits() + (1 << (ROUNDED_BITS - 1))) >> ROUNDED_BITS)
    }
}

/// A pool of memory that is taken from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    free: f64,
    slack: f64,
}

impl Memory {
    /// Rounding errors of a sum of many fractions (0.1 + 0.2 > 0.3) refuse no query.
    const SLACK: f64 = 1e-12;

    /// Takes an amount, if it is there.
    pub(super) fn take(&mut self, amount: f64) -> bool {
        let fits = amount <= self.free + if self.slack.is_finite() { self.slack } else { 0.0 };
        if fits {
            self.free = (self.free - amount).max(0.0);
        }
        fits
    }
}

/// Why a problem is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {reason}")]
pub struct ProblemError {
    /// Where.
    pub place: Place,
    /// Why.
    pub reason: Reason,
}

/// The part of a problem that is wrong. Indices count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// `slots`.
    Slots,
    /// `max_per_query`.
    MaxPerQuery,
    /// `memory`.
    Memory,
    /// A query that runs.
    Running(usize),
    /// A field of a query that waits.
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
        }
    }
}

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It has to be at least 1.
    #[error("must be at least 1")]
    Zero,
    /// More slots than any machine has.
    #[error("must be at most {}", Problem::SLOTS_MAX)]
    TooMany,
    /// A manual DOP that can never run.
    #[error("is more than the {slots} slots there are")]
    BeyondSlots {
        /// All slots.
        slots: u64,
    },
    /// A weight is a number in [`WEIGHT_RANGE`].
    #[error("must be a number from {:e} to {:e}", WEIGHT_RANGE.start(), WEIGHT_RANGE.end())]
    NotAWeight,
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
            Place::Running(index) => write!(f, "running[{index}].memory"),
            Place::Queue(index, field) => write!(f, "queue[{index}].{}", field.key()),
        }
    }
}
