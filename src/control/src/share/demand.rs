//! Estimates a tenant's demand: its usage if it had no competition.
//!
//! **Problem.** Usage shows only the part that other tenants left. An allocator fed with usage would freeze
//! every starved tenant in its starvation. So demand is estimated apart from usage, and is not capped by the
//! current allocation.
//!
//! **Terms.** A tenant is *pressed* for CPU if a task of it waited for more than 2 % of the time (PSI `some`)
//! or if `cpu.max` throttled it. It is *at its allocation* if it uses at least four fifths of it. Without PSI a tenant at its
//! allocation is pressed, and so is one whose threads waited.
//!
//! **Algorithm** for CPU:
//! - not pressed: usage × 1.1, a margin for growth;
//! - pressed, threads read: the usage without waits (`usage::wanted_cores`). This is exact and not bound by the
//!   allocation, so nothing is added;
//! - pressed, threads too many or too short-lived: usage plus the waiting share of at least 1 CPU. At its
//!   allocation it is at least 1.2 × the allocation and at least the guarantee, so demand grows by a fifth each
//!   tick while the pressure lasts.
//!
//! The limit and the machine cap the result. Smoothing is up at once, down by half in 2 s. The decay starts at
//! the allocation at most: otherwise a tenant that sleeps after wanting every CPU would inflate the weight of
//! the slice above it. It starts at the last demand where a tenant at its allocation still waits and its threads are too
//! short-lived. The threads of a job that follows another one are not known in its first tick, and a smaller demand for CPUs would
//! let memory decide.
//!
//! **Algorithm** for memory: the working set.
//! - *Refaults.* Held pages fit only because others were evicted, so demand is the held memory plus refaults,
//!   at least the last demand, and a fifth more if tasks stall. Otherwise a tenant would lose its claim to the
//!   memory it is squeezed out of. A tenant refaults if at least a hundredth of its missing memory came back in
//!   the interval, or if tasks stall. A few pages of a file that is read again after hours do not count.
//! - *Bounds of the agent* ([`crate::memory::squeeze`], [`crate::memory::probe`]). Stalls at such a bound are caused by the
//!   agent, so they alone do not count. Refaults below a bound raise the demand as without it: otherwise the
//!   bound would confirm itself. A probe ends by itself.
//! - *Generations* (`CONFIG_LRU_GEN_ENABLED`). The kernel counts file pages as inactive however often they are
//!   read, so only reclaim shows their use. All charged memory counts until it was taken and did not come back.
//!   The demand of a file stream falls; a cache in use keeps its own. While all tasks stall (PSI `full`),
//!   nothing can refault, and reclaim is discounted.
//! - *OOM kills.* The tenant wanted more than its observed peak. Demand is a fifth above the peak, at least 100
//!   MiB above it, and halves in 2 min instead of 15 s. Repeated kills do not add up: each starts from the
//!   observed peak.
//!
//! A fast decrease costs nothing: a satisfied tenant keeps the weight of its full fair share (`target`), so an
//! underestimate never delays one that wakes up.
//!
//! **Properties.** A pressed tenant at its allocation always asks for more than it has
//! (`a_pressed_tenant_is_never_frozen`). Demand is finite, not negative, and within limit and machine
//! (`tests/control.rs`). Up is immediate, down is gradual (`fast_up_slow_down`).
//!
//! Source: borrowing by smoothed demand in Kubernetes' API priority and fairness, `max(E, a·prev + (1 − a)·E)`.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::measure::usage::Usage;
use tenantd_core::resource::{CPU, MEMORY, PerResource, Resource};
use tenantd_core::units::Bytes;

/// PSI `some` for CPU above which a tenant is pressed.
pub const PRESSED_RATIO: f64 = 0.02;
/// Growth of an unpressed tenant before the next tick, as a factor.
const GROWTH_MARGIN: f64 = 1.1;
/// Least demand of a pressed tenant at its allocation, as a factor of that allocation.
const EXPLORATION: f64 = 1.2;
/// Part of the allocation from which a tenant is at its allocation.
const AT_ALLOCATION_RATIO: f64 = 0.8;
const MEMORY_PRESSED_RATIO: f64 = 0.01;

/// Part of the missing memory that must refault in an interval for a tenant to count as refaulting.
const REFAULTING_RATIO: f64 = 0.01;
/// Excess over the measured amount, as a part of it, above which a demand is decaying.
const DECAY_RATIO: f64 = 0.01;
/// The same during a probe. A probe takes a hundredth in 6 s; a half-life of 15 s makes the demand lag by
/// 3.6 %.
const PROBED_DECAY_RATIO: f64 = 0.05;

/// Half-life of a demand after an OOM kill, long enough for a restarted process to grow back.
const KILLED_HALF_LIFE: Duration = Duration::from_secs(120);
const KILLED_RATIO: f64 = 1.2;
const KILLED_LEAST: Bytes = Bytes::mib(100);

/// Demand of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Demand {
    /// Amount of each resource.
    pub amount: PerResource<f64>,
    /// Basis of the CPU demand.
    pub cpu_basis: CpuBasis,
    /// Basis of the memory demand.
    pub memory_basis: MemoryBasis,
}

impl Demand {
    /// Demand of a tenant without a sample: counted as 0, but nothing is taken from the tenant for it.
    pub const UNKNOWN: Demand = Demand {
        amount: PerResource([0.0; Resource::ALL.len()]),
        cpu_basis: CpuBasis::Unknown,
        memory_basis: MemoryBasis::Unknown,
    };
}

/// Basis of a CPU demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuBasis {
    /// Not measured yet.
    #[default]
    Unknown,
    /// No process is in its cgroup.
    Idle,
    /// The tenant gets all it asks for.
    Unpressed,
    /// Measured from its threads.
    Threads,
    /// Estimated from the time it waited.
    Pressure,
    /// Pressed at its allocation: the demand is raised by a fifth.
    Exploring,
    /// Falling from an earlier demand.
    Decaying,
}

/// Basis of a memory demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryBasis {
    /// Not measured yet.
    #[default]
    Unknown,
    /// Working set, without refaults.
    WorkingSet,
    /// Working set during a probe, without refaults.
    Probed,
    /// Held memory plus refaults.
    Refaulting,
    /// A fifth above held memory: evicted pages refault, and tasks stall.
    Waiting,
    /// Falling from an earlier demand.
    Decaying,
    /// A fifth above the peak before an OOM kill, or falling from there.
    AfterKill,
}

/// Bounds of a demand, and its last value.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Context {
    /// CPUs allocated at the last tick.
    pub allocation_cores: f64,
    /// Guaranteed CPUs; 0 without a guarantee.
    pub guarantee_cores: f64,
    /// Smaller of the limit and the machine, per resource.
    pub max: PerResource<f64>,
    /// True if the agent bounds its memory, by a squeeze or a probe.
    pub is_bounded: bool,
    /// True if it is probed.
    pub is_probed: bool,
    /// Largest observed memory if a process was OOM-killed since the last estimate.
    pub killed_peak_bytes: Option<f64>,
    /// Demand at the last tick.
    pub last: Option<Demand>,
}

impl Context {
    fn raised_bytes(&self) -> Option<f64> {
        self.killed_peak_bytes.map(after_kill).map(|bytes| bytes.min(self.max[MEMORY]))
    }

    fn was_after_kill(&self) -> bool {
        self.last.is_some_and(|last| last.memory_basis == MemoryBasis::AfterKill)
    }
}

/// Memory demand of a tenant after an OOM kill with `peak_bytes` in use.
pub fn after_kill(peak_bytes: f64) -> f64 {
    (peak_bytes * KILLED_RATIO).max(peak_bytes + KILLED_LEAST.0 as f64)
}

/// Estimates the demand from `usage`, `elapsed` after the last estimate.
pub fn estimate(usage: &Usage, context: &Context, elapsed: Duration) -> Demand {
    let mut last = context.last.unwrap_or(Demand::UNKNOWN).amount;
    let (_, basis) = cpu(usage, context);
    let is_guessed = matches!(basis, CpuBasis::Pressure | CpuBasis::Exploring);
    if !(is_guessed && is_at_allocation(usage.cpu_cores, context.allocation_cores)) {
        last[CPU] = last[CPU].min(context.allocation_cores);
    }
    let fresh_cores = fresh_cores(usage, context);
    let held = PerResource::from_fn(|resource| match resource {
        CPU => None,
        held => self::held(held, usage, last[held], context),
    });
    let amount = PerResource::from_fn(|resource| {
        let fresh = match resource {
            CPU => Some(fresh_cores),
            MEMORY => fresh_bytes(held[MEMORY], context),
        };
        let half_life = if resource == MEMORY && usage.populated && context.was_after_kill() {
            KILLED_HALF_LIFE
        } else {
            half_life(resource)
        };
        let smoothed = |fresh| smooth(fresh, last[resource], elapsed, half_life);
        fresh.map_or(last[resource], smoothed).min(context.max[resource])
    });
    // A fall of less than a thousandth of a CPU is not worth reporting.
    let is_decaying = amount[CPU] > fresh_cores + 1e-3;
    Demand {
        amount,
        cpu_basis: if is_decaying { CpuBasis::Decaying } else { basis },
        memory_basis: memory_basis(held[MEMORY], context, amount[MEMORY]),
    }
}

/// Unsmoothed memory demand; `None` if memory could not be read.
fn fresh_bytes(held: Option<(f64, MemoryBasis)>, context: &Context) -> Option<f64> {
    let raised = context.raised_bytes();
    held.map(|(fresh, _)| fresh).into_iter().chain(raised).reduce(f64::max)
}

/// Basis of the memory demand. Unreadable memory keeps the last basis with its demand.
fn memory_basis(held: Option<(f64, MemoryBasis)>, context: &Context, demand: f64) -> MemoryBasis {
    let decay_ratio = if context.is_probed { PROBED_DECAY_RATIO } else { DECAY_RATIO };
    let last = context.last.unwrap_or(Demand::UNKNOWN);
    let is_raised = context.raised_bytes().is_some_and(|raised| demand <= raised);
    match held {
        // Refaults confirm the demand but not its basis.
        Some((fresh, MemoryBasis::Refaulting | MemoryBasis::Waiting))
            if context.was_after_kill() && fresh <= last.amount[MEMORY] =>
        {
            MemoryBasis::AfterKill
        }
        Some((fresh, _)) if demand > fresh * (1.0 + decay_ratio) => {
            let is_after_kill = is_raised || context.was_after_kill();
            if is_after_kill { MemoryBasis::AfterKill } else { MemoryBasis::Decaying }
        }
        None if is_raised => MemoryBasis::AfterKill,
        None => last.memory_basis,
        Some((_, MemoryBasis::WorkingSet)) if context.is_probed => MemoryBasis::Probed,
        Some((_, basis)) => basis,
    }
}

/// Unsmoothed CPU demand.
pub(crate) fn fresh_cores(usage: &Usage, context: &Context) -> f64 {
    cpu(usage, context).0.min(context.max[CPU])
}

/// Half-life of a demand. Memory has a longer one because it is often wanted again soon.
fn half_life(resource: Resource) -> Duration {
    Duration::from_secs(if resource == CPU { 2 } else { 15 })
}

/// True if a task of the tenant had to wait for CPU.
///
/// Without PSI a tenant that uses nearly all of its allocation counts as pressed; a look at its threads
/// then gives the exact demand. If they waited, it stays pressed with less than its allocation.
pub fn is_pressed(usage: &Usage, allocation_cores: f64) -> bool {
    let used = usage.cpu_cores;
    let waited = match usage.cpu_some_ratio {
        Some(ratio) => ratio > PRESSED_RATIO,
        None => {
            used > 0.01 && is_at_allocation(used, allocation_cores)
                || usage.wanted_cores.is_some_and(|wanted| wanted > GROWTH_MARGIN * used + 0.01)
        }
    };
    usage.populated && (waited || usage.throttled)
}

fn is_at_allocation(used_cores: f64, allocation_cores: f64) -> bool {
    used_cores >= AT_ALLOCATION_RATIO * allocation_cores
}

fn cpu(usage: &Usage, context: &Context) -> (f64, CpuBasis) {
    if !usage.populated {
        return (0.0, CpuBasis::Idle);
    }
    let used = usage.cpu_cores;
    if !is_pressed(usage, context.allocation_cores) {
        return (used * GROWTH_MARGIN, CpuBasis::Unpressed);
    }
    if let Some(wanted) = usage.wanted_cores {
        return (wanted.max(used), CpuBasis::Threads);
    }
    let waiting = usage.cpu_some_ratio.unwrap_or(1.0) * used.max(1.0);
    let floor = if is_at_allocation(used, context.allocation_cores) {
        (EXPLORATION * context.allocation_cores).max(context.guarantee_cores)
    } else {
        0.0
    };
    if used + waiting < floor {
        (floor, CpuBasis::Exploring)
    } else {
        (used + waiting, CpuBasis::Pressure)
    }
}

fn held(
    resource: Resource,
    usage: &Usage,
    last: f64,
    context: &Context,
) -> Option<(f64, MemoryBasis)> {
    let working_set = usage.used(resource)?;
    // Only memory can refault.
    let came_back = usage.refaulted_bytes.filter(|_| resource == MEMORY).unwrap_or(0.0);
    let waited = usage.memory_some_ratio.is_some_and(|ratio| ratio > MEMORY_PRESSED_RATIO);
    // The agent caused the stalls at its own bound.
    let waits = waited && !context.is_bounded;
    let is_refaulting = resource == MEMORY && is_refaulting(usage, waits, last - working_set);
    if !is_refaulting {
        let in_use =
            if resource == MEMORY { in_use(usage, working_set, context) } else { working_set };
        return Some((in_use, MemoryBasis::WorkingSet));
    }
    // Refaulted pages were in use, and so were the pages that stayed, whatever reclaim assumes.
    let resident = usage.charged_bytes.filter(|_| resource == MEMORY).unwrap_or(0.0);
    let resident = resident.max(working_set);
    let is_short = waited && !context.is_probed;
    let grown = if is_short { resident * EXPLORATION } else { resident };
    let basis = if is_short { MemoryBasis::Waiting } else { MemoryBasis::Refaulting };
    Some((grown.max(resident + came_back).max(last), basis))
}

/// Memory counted as in use without refaults; at least `working_set`.
///
/// If the kernel does not report which files are in use, all charged memory counts until reclaim took as
/// much and it did not refault.
fn in_use(usage: &Usage, working_set: f64, context: &Context) -> f64 {
    let Some((stolen, charged)) = usage.stolen_bytes.zip(usage.charged_bytes) else {
        return working_set;
    };
    let grown = usage.charged_growth_bytes.unwrap_or(0.0);
    // A stalled tenant cannot refault, so its reclaim is discounted.
    let judged_ratio = 1.0 - usage.memory_full_ratio.unwrap_or(0.0);
    let unmissed = stolen * judged_ratio;
    let counted = context.last.map_or(charged, |last| last.amount[MEMORY] + grown - unmissed);
    counted.min(charged).max(working_set)
}

/// True if reclaimed pages refault: a hundredth of the missing memory, or any while tasks stall.
pub(crate) fn is_refaulting(usage: &Usage, waits: bool, missing: f64) -> bool {
    let came_back = usage.refaulted_bytes.unwrap_or(0.0);
    came_back > 0.0 && (waits || came_back >= REFAULTING_RATIO * missing)
}

/// Smoothed demand: up at once, down by half in a half-life.
pub(crate) fn smooth(fresh: f64, last: f64, elapsed: Duration, half_life: Duration) -> f64 {
    let keep = kept_part(elapsed, half_life);
    fresh.max(keep * last + (1.0 - keep) * fresh)
}

/// Part of a smoothed value that stays.
pub(crate) fn kept_part(elapsed: Duration, half_life: Duration) -> f64 {
    0.5_f64.powf(elapsed.as_secs_f64() / half_life.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn context(allocation_cores: f64) -> Context {
        Context { allocation_cores, max: PerResource([8.0, 1e9]), ..Context::default() }
    }

    fn using(cpu_cores: f64, some: f64) -> Usage {
        Usage { cpu_cores, cpu_some_ratio: Some(some), populated: true, ..Usage::default() }
    }

    #[test]
    fn unpressed_demand_is_usage_with_a_margin() {
        let demand = estimate(&using(1.0, 0.01), &context(4.0), SECOND);
        assert_eq!((demand.amount[CPU], demand.cpu_basis), (1.1, CpuBasis::Unpressed));
    }

    #[test]
    fn a_pressed_tenant_is_never_frozen() {
        for allocation in [0.1, 1.0, 3.0] {
            let demand = estimate(&using(allocation, 0.03), &context(allocation), SECOND);
            assert!(demand.amount[CPU] > allocation, "{demand:?}");
        }
        let tiny = estimate(&using(3.0, 0.021), &context(3.0), SECOND);
        assert!((tiny.amount[CPU] - 3.6).abs() < 1e-9);
        assert_eq!(tiny.cpu_basis, CpuBasis::Exploring);
    }

    #[test]
    fn a_pressed_tenant_far_below_its_allocation_only_waits_its_turn() {
        let demand = estimate(&using(0.3, 0.1), &context(2.0), SECOND);
        assert!((demand.amount[CPU] - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_memory_demand_says_how_it_came_about() {
        let memory = |refaulted: f64, some: f64, last: f64| {
            let usage = Usage {
                held: PerResource([None, Some(1e8)]),
                charged_bytes: Some(2e8),
                refaulted_bytes: Some(refaulted),
                memory_some_ratio: Some(some),
                ..using(0.1, 0.0)
            };
            let last = Demand { amount: PerResource([0.0, last]), ..Demand::UNKNOWN };
            let demand = estimate(&usage, &Context { last: Some(last), ..context(1.0) }, SECOND);
            (demand.amount[MEMORY], demand.memory_basis)
        };
        assert_eq!(memory(0.0, 0.0, 1e8), (1e8, MemoryBasis::WorkingSet));
        assert_eq!(memory(5e7, 0.0, 1e8), (2.5e8, MemoryBasis::Refaulting));
        assert_eq!(memory(1e6, 0.5, 1e8), (2.4e8, MemoryBasis::Waiting));
        assert_eq!(memory(0.0, 0.0, 5e8).1, MemoryBasis::Decaying);
        let unread = estimate(&using(0.1, 0.0), &context(1.0), SECOND);
        assert_eq!(unread.memory_basis, MemoryBasis::Unknown);
    }

    #[test]
    fn where_no_files_count_as_in_use_all_do_until_they_are_taken_and_not_missed() {
        let mut context = context(1.0);
        let mut estimate = |grown: f64, stolen: f64, refaulted: f64| {
            let usage = Usage {
                held: PerResource([None, Some(1e8)]),
                charged_bytes: Some(5e8),
                charged_growth_bytes: Some(grown),
                stolen_bytes: Some(stolen),
                refaulted_bytes: Some(refaulted),
                ..using(0.1, 0.0)
            };
            context.last = Some(super::estimate(&usage, &context, Duration::from_secs(15)));
            context.last.unwrap().amount[MEMORY].round()
        };
        assert_eq!(estimate(0.0, 0.0, 0.0), 5e8);
        // A stream loses the pages it read, and less and less counts ...
        assert_eq!(estimate(0.0, 2e8, 0.0), 4e8);
        assert_eq!(estimate(0.0, 2e8, 0.0), 3e8);
        // ... also while it reads nothing, until something is added.
        assert_eq!(estimate(0.0, 0.0, 0.0), 3e8);
        assert_eq!(estimate(5e7, 0.0, 0.0), 3.5e8);
        // The demand can fall to the kernel's working set.
        for _ in 0..20 {
            estimate(0.0, 1e9, 0.0);
        }
        assert!((1e8..1.01e8).contains(&estimate(0.0, 1e9, 0.0)));
        // Refaulted pages were in use, and so was the rest.
        assert_eq!(estimate(0.0, 2e8, 2e8), 7e8);
        assert_eq!(estimate(0.0, 0.0, 0.0), 6e8);
    }

    #[test]
    fn what_is_taken_from_a_tenant_that_waits_says_nothing() {
        let after = |full: f64| {
            let usage = Usage {
                held: PerResource([None, Some(1e8)]),
                charged_bytes: Some(5e8),
                charged_growth_bytes: Some(0.0),
                stolen_bytes: Some(2e8),
                refaulted_bytes: Some(0.0),
                memory_full_ratio: Some(full),
                ..using(0.1, 0.0)
            };
            let last = Demand { amount: PerResource([0.0, 5e8]), ..Demand::UNKNOWN };
            let context = Context { last: Some(last), ..context(1.0) };
            estimate(&usage, &context, Duration::from_secs(900)).amount[MEMORY].round()
        };
        assert_eq!([after(0.0), after(0.5), after(1.0)], [3e8, 4e8, 5e8]);
    }

    #[test]
    fn a_bound_does_not_hide_what_it_takes() {
        let bounded = |refaulted: f64, is_probed: bool| {
            let usage = Usage {
                held: PerResource([None, Some(1e8)]),
                charged_bytes: Some(1e8),
                refaulted_bytes: Some(refaulted),
                memory_some_ratio: Some(0.5),
                ..using(0.1, 0.0)
            };
            let last = Demand { amount: PerResource([0.0, 1e8]), ..Demand::UNKNOWN };
            let context = Context { is_bounded: true, is_probed, last: Some(last), ..context(1.0) };
            let demand = estimate(&usage, &context, SECOND);
            (demand.amount[MEMORY], demand.memory_basis)
        };
        assert_eq!(bounded(5e6, false), (1.2e8, MemoryBasis::Waiting));
        // A stalled tenant that reads something new does not refault.
        assert_eq!(bounded(0.0, false), (1e8, MemoryBasis::WorkingSet));
        assert_eq!(bounded(5e6, true), (1.05e8, MemoryBasis::Refaulting));
    }

    #[test]
    fn a_demand_that_follows_a_probe_says_so() {
        let after = |last: f64, is_probed: bool| {
            let usage = Usage { held: PerResource([None, Some(1e8)]), ..using(0.1, 0.0) };
            let last = Demand { amount: PerResource([0.0, last]), ..Demand::UNKNOWN };
            let context = Context { is_probed, last: Some(last), ..context(1.0) };
            estimate(&usage, &context, SECOND).memory_basis
        };
        assert_eq!(after(1.04e8, false), MemoryBasis::Decaying);
        assert_eq!(after(1.04e8, true), MemoryBasis::Probed);
        // The fall exceeds a probe, so it has another cause.
        assert_eq!(after(2e8, true), MemoryBasis::Decaying);
    }

    #[test]
    fn demand_from_threads_is_exact() {
        let mut usage = using(0.5, 0.9);
        usage.wanted_cores = Some(3.0);
        let demand = estimate(&usage, &context(0.5), SECOND);
        assert_eq!((demand.amount[CPU], demand.cpu_basis), (3.0, CpuBasis::Threads));
    }

    /// The jobs of a tenant follow each other: the threads of the next one are not known in its first tick.
    #[test]
    fn a_demand_outlasts_a_tick_without_threads() {
        let after = |usage: &Usage| {
            let amount = PerResource([6.0, 0.0]);
            let last = Demand { amount, cpu_basis: CpuBasis::Threads, ..Demand::UNKNOWN };
            let context = Context { last: Some(last), ..context(2.0) };
            estimate(usage, &context, Duration::from_secs(1)).amount[CPU]
        };
        let half = 0.5_f64.sqrt();
        assert!((after(&using(2.0, 0.5)) - (6.0 * half + 3.0 * (1.0 - half))).abs() < 1e-9);
        // What is measured counts, and what does not wait at its allocation wants less.
        let measured = Usage { wanted_cores: Some(2.5), ..using(2.0, 0.5) };
        assert!(after(&measured) <= 2.5 && after(&using(1.0, 0.5)) <= 2.0);
        assert!(after(&using(2.0, 0.0)) <= 2.0 * GROWTH_MARGIN);
    }

    #[test]
    fn without_psi_waiting_threads_are_pressure() {
        let mut usage = Usage { cpu_some_ratio: None, ..using(0.1, 0.0) };
        assert!(!is_pressed(&usage, 0.5) && is_pressed(&usage, 0.1));
        usage.wanted_cores = Some(4.0);
        assert!(is_pressed(&usage, 0.5));
        usage.wanted_cores = Some(0.1);
        assert!(!is_pressed(&usage, 0.5));
    }

    #[test]
    fn the_machine_and_the_limit_bound_it() {
        let mut usage = using(0.5, 0.9);
        usage.wanted_cores = Some(64.0);
        assert_eq!(estimate(&usage, &context(0.5), SECOND).amount[CPU], 8.0);
    }

    #[test]
    fn fast_up_slow_down() {
        let mut context = context(1.0);
        context.last = Some(Demand { amount: PerResource([4.0, 0.0]), ..Demand::UNKNOWN });
        // The decay starts at the allocation of 1 CPU.
        let down = estimate(&using(0.0, 0.0), &context, Duration::from_secs(2));
        assert_eq!((down.amount[CPU], down.cpu_basis), (0.5, CpuBasis::Decaying));
        let up = estimate(&using(5.0, 0.0), &context, SECOND);
        assert_eq!(up.amount[CPU], 5.5);
    }

    #[test]
    fn memory_is_the_working_set_and_more_while_it_is_read_back() {
        let mut usage = using(0.0, 0.0);
        usage.held[MEMORY] = Some(100.0);
        assert_eq!(estimate(&usage, &context(1.0), SECOND).amount[MEMORY], 100.0);
        usage.refaulted_bytes = Some(8.0);
        usage.memory_some_ratio = Some(0.2);
        assert_eq!(estimate(&usage, &context(1.0), SECOND).amount[MEMORY], 120.0);
    }

    #[test]
    fn a_working_set_that_refaults_does_not_shrink() {
        let squeezed = |refaulted: f64, some: f64| Usage {
            held: PerResource([None, Some(113e6)]),
            refaulted_bytes: Some(refaulted),
            memory_some_ratio: Some(some),
            ..using(0.5, 0.0)
        };
        let mut context = context(1.0);
        for _ in 0..600 {
            let last = context.last.map_or(615e6, |last| last.amount[MEMORY]);
            context.last = Some(Demand { amount: PerResource([0.0, last]), ..Demand::UNKNOWN });
            context.last = Some(estimate(&squeezed(20e6, 0.0), &context, SECOND));
        }
        assert_eq!(context.last.unwrap().amount[MEMORY], 615e6);
        // Further refaults were wanted as well.
        assert_eq!(estimate(&squeezed(600e6, 0.0), &context, SECOND).amount[MEMORY], 713e6);
        // A few pages are not a working set, unless tasks stall on them.
        assert!(estimate(&squeezed(4e6, 0.0), &context, SECOND).amount[MEMORY] < 600e6);
        assert_eq!(estimate(&squeezed(4e6, 0.1), &context, SECOND).amount[MEMORY], 615e6);
        // The demand decays once refaults stop.
        let quiet = estimate(&squeezed(0.0, 0.0), &context, Duration::from_secs(15));
        assert_eq!(quiet.amount[MEMORY], 364e6);
    }

    #[test]
    fn memory_that_could_not_be_read_stays_what_it_was() {
        let mut context = context(1.0);
        context.last = Some(Demand { amount: PerResource([0.0, 77.0]), ..Demand::UNKNOWN });
        assert_eq!(estimate(&using(0.0, 0.0), &context, SECOND).amount[MEMORY], 77.0);
    }

    /// Demand of a tenant with this memory after the demand `after`, and perhaps after a kill.
    fn killed(bytes: f64, peak: Option<f64>, after: Option<Demand>) -> Demand {
        let usage = Usage { held: PerResource([None, Some(bytes)]), ..using(0.1, 0.0) };
        let context = Context { killed_peak_bytes: peak, last: after, ..context(1.0) };
        estimate(&usage, &context, SECOND)
    }

    #[test]
    fn a_demand_after_a_kill_is_above_what_was_seen_and_falls_slowly() {
        let raised = killed(1e7, Some(4e8), None);
        let bytes = 4e8 + KILLED_LEAST.0 as f64;
        assert_eq!((raised.amount[MEMORY], raised.memory_basis), (bytes, MemoryBasis::AfterKill));
        let mut last = raised;
        for _ in 0..120 {
            last = killed(1e7, None, Some(last));
            assert_eq!(last.memory_basis, MemoryBasis::AfterKill);
        }
        let half = (bytes + 1e7) / 2.0;
        assert!((last.amount[MEMORY] - half).abs() < 1e3, "{last:?}");
        // The kill is over when the demand is used, or when nothing runs.
        let there = killed(last.amount[MEMORY], None, Some(last));
        assert_eq!(there.memory_basis, MemoryBasis::WorkingSet);
        let context = Context { last: Some(last), ..context(1.0) };
        let empty = estimate(&Usage::of_empty(), &context, Duration::from_secs(15));
        assert!((empty.amount[MEMORY] - last.amount[MEMORY] / 2.0).abs() < 1.0, "{empty:?}");
    }

    #[test]
    fn a_demand_after_a_kill_is_within_the_limit() {
        let raised = killed(1e7, Some(9.5e8), None);
        assert_eq!((raised.amount[MEMORY], raised.memory_basis), (1e9, MemoryBasis::AfterKill));
    }

    #[test]
    fn what_comes_back_after_a_kill_does_not_make_it_fall_faster() {
        let last = Demand { memory_basis: MemoryBasis::AfterKill, ..killed(5e8, None, None) };
        let usage = Usage {
            held: PerResource([None, Some(1e8)]),
            refaulted_bytes: Some(5e7),
            ..using(0.1, 0.0)
        };
        let context = Context { last: Some(last), ..context(1.0) };
        let demand = estimate(&usage, &context, SECOND);
        assert_eq!((demand.amount[MEMORY], demand.memory_basis), (5e8, MemoryBasis::AfterKill));
    }

    #[test]
    fn an_empty_tenant_has_no_demand() {
        let demand = estimate(&Usage::default(), &context(1.0), SECOND);
        assert_eq!((demand.amount[CPU], demand.cpu_basis), (0.0, CpuBasis::Idle));
    }
}
