//! A round of admission: what waits, what runs, and the supply. The numbers are checked once.

use serde::{Deserialize, Serialize};

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
    pub(super) fn widest(self, most: u64, min_gain: f64) -> u64 {
        let (mut low, mut high) = (1.min(most), most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if self.is_worth(middle, min_gain) {
                low = middle;
            } else {
                high = middle - 1;
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

    /// Amount of a further resource at a width.
    pub fn resource_at(&self, resource: usize, dop: u64) -> f64 {
        let base = self.resources.get(resource).copied().unwrap_or(0.0);
        base + dop as f64 * self.per_slot(resource + 1)
    }

    /// Amount of a pool for each slot. Pools are the memory, then the further resources.
    pub(super) fn per_slot(&self, pool: usize) -> f64 {
        match pool.checked_sub(1) {
            None => self.memory_per_thread,
            Some(resource) => self.per_thread.get(resource).copied().unwrap_or(0.0),
        }
    }

    /// Amount of a pool at a width.
    pub(super) fn needs(&self, pool: usize, dop: u64) -> f64 {
        match pool.checked_sub(1) {
            None => self.memory_at(dop),
            Some(resource) => self.resource_at(resource, dop),
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
        if errors.is_empty() { Ok(Problem { supply, running, queue }) } else { Err(errors) }
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

/// Free amounts beside slots: the memory, then the further resources.
#[derive(Clone, Debug)]
pub(super) struct Pools {
    pub(super) free: Vec<f64>,
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
