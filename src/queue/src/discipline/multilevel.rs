//! Multilevel feedback, as in Presto and Trino: short work first, without starving the long.
//!
//! # Problem
//! The length of a task is unknown, and most are short. A task that has run little so far should go first;
//! a task that has run long should still get a part. And a single slice that hangs for ten minutes should
//! harm neither its task nor the others.
//!
//! # Terms
//! *Task*: here, a tenant. *Split*: a request, run in slices (*quanta*). *Level* of a task: 0 to 4, by the
//! time that all its splits have been scheduled, {0, 1, 10, 60, 300} seconds. *Level time*: the time
//! charged to a level. *Target*: level 0 should have `multiplier` times the time of level 1, that
//! `multiplier` times the time of level 2, and so on: 16:8:4:2:1.
//!
//! # Algorithm (Trino, `MultilevelSplitQueue`)
//! - *Choose* the waiting level with the largest target over level time, where the target of level 0 is the
//!   largest `time · multiplierˡ` of any level, and a level without any time has the ratio 0; the first
//!   wins ties. In it, the split with the smallest priority, then the oldest.
//! - *Charge* a slice of `q` to the level, at most 30 s of it, and to the task's priority. A slice that
//!   crosses levels is spread over them by their *widths*; the rest that no level takes goes into the new
//!   priority, above the priority at which the new level is being served.
//! - *Offer* to a level where nothing waits: its time is set to its target, up or down. An idle level saves
//!   no credit and carries no debt.
//! - A task whose level changed while a split of it waited is offered anew when that split is chosen.
//!
//! # Errata
//! A published description has the ratio "decided by `levelMinPriority`", and levels 0 to 5 at
//! 1:2:4:8:16:32. Trino uses `levelTimeMultiplier` and five levels, and the first gets the most.
//!
//! # Properties
//! - Trino's own tests (vectors `trino_mlsq`).
//! - Level shares converge to 16:8:4:2:1 when all levels are backlogged (`level_shares_converge`).
//! - A slice of ten minutes charges 30 s (`a_stall_of_ten_minutes_charges_thirty_seconds`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::super::order::{Activity, Admits, Head, Order, Running};
use super::super::types::{Request, TenantId, Terms};

/// Number of levels.
pub const LEVELS: usize = 5;

/// Seconds of scheduled time at which each level begins.
pub const THRESHOLDS_SECONDS: [u64; LEVELS] = [0, 1, 10, 60, 300];

/// The largest charge of one slice to levels.
pub const CONTRIBUTION_MAX_NANOS: u64 = 30 * NANOS;

/// Default factor of each level's time over the next level's.
pub const MULTIPLIER: f64 = 2.0;

const NANOS: u64 = 1_000_000_000;

/// The place of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Priority {
    /// Its level.
    pub level: usize,
    /// Its place within the level, in nanoseconds; smaller is sooner.
    pub nanos: u64,
}

/// The level of a task with this scheduled time.
pub fn level_of(scheduled_nanos: u64) -> usize {
    let seconds = scheduled_nanos / NANOS;
    THRESHOLDS_SECONDS.iter().skip(1).take_while(|threshold| seconds >= **threshold).count()
}

/// The times of the levels, and the waiting splits in each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Levels {
    multiplier: f64,
    times: [u64; LEVELS],
    /// The priority at which each level was last served.
    served: [Option<u64>; LEVELS],
    waiting: [BTreeSet<Split>; LEVELS],
}

/// A waiting split: its priority within the level, its age, its task.
pub type Split = (u64, u64, TenantId);

impl Levels {
    /// Creates levels without any time. `multiplier` is above 0.
    pub fn new(multiplier: f64) -> Levels {
        Levels::with_times(multiplier, [0; LEVELS])
    }

    /// Creates levels that have had some time, in nanoseconds.
    pub fn with_times(multiplier: f64, times: [u64; LEVELS]) -> Levels {
        Levels { multiplier, times, served: [None; LEVELS], waiting: Default::default() }
    }

    /// The time of each level, in nanoseconds.
    pub fn times(&self) -> [u64; LEVELS] {
        self.times
    }

    /// The target time of level 0, in nanoseconds, from the level that is furthest above its part.
    pub fn target(&self) -> u64 {
        let mut divisor = self.multiplier;
        let mut target = self.times[0];
        for time in self.times {
            divisor /= self.multiplier;
            target = target.max((time as f64 / divisor) as u64);
        }
        target
    }

    /// The level to serve next, of those with waiting splits.
    pub fn select(&self) -> Option<usize> {
        let mut target = self.target();
        let mut worst: Option<(usize, f64)> = None;
        for (level, time) in self.times.iter().enumerate() {
            if !self.waiting[level].is_empty() {
                let ratio = if *time == 0 { 0.0 } else { target as f64 / *time as f64 };
                if worst.is_none_or(|(_, worst)| ratio > worst) {
                    worst = Some((level, ratio));
                }
            }
            // To the nearest integer, halves up.
            target = (target as f64 / self.multiplier + 0.5).floor() as u64;
        }
        worst.map(|(level, _)| level)
    }

    /// Marks these levels as waiting, without a change of their times.
    pub fn fill(&mut self, levels: impl IntoIterator<Item = usize>) {
        for level in levels {
            self.waiting[level].insert((0, 0, TenantId(0)));
        }
    }

    /// Adds a waiting split to a level.
    pub fn offer(&mut self, level: usize, split: Split) {
        if self.waiting[level].is_empty() {
            self.times[level] = (self.target() as f64 / self.multiplier.powi(level as i32)) as u64;
        }
        self.waiting[level].insert(split);
    }

    fn first(&self, level: usize) -> Option<Split> {
        self.waiting[level].first().copied()
    }

    /// Removes a waiting split; returns true if it was there.
    fn remove(&mut self, level: usize, split: &Split) -> bool {
        self.waiting[level].remove(split)
    }

    /// Records the priority at which a level is served.
    fn serve(&mut self, priority: Priority) {
        self.served[priority.level] = Some(priority.nanos);
    }

    /// The priority at which a level was last served; at its first use, that of the asking task's scheduled
    /// time.
    fn served_at(&mut self, level: usize, scheduled_nanos: u64) -> u64 {
        *self.served[level].get_or_insert(scheduled_nanos)
    }

    /// Charges a slice; returns the priority of its task from now on.
    ///
    /// `scheduled_nanos` is the scheduled time of the task with the slice in it.
    pub fn charge(&mut self, old: Priority, slice_nanos: u64, scheduled_nanos: u64) -> Priority {
        let level = level_of(scheduled_nanos);
        let mut contribution = slice_nanos.min(CONTRIBUTION_MAX_NANOS);
        if level == old.level {
            self.times[level] += contribution;
            return Priority { level, nanos: old.nanos.saturating_add(slice_nanos) };
        }
        let mut rest = slice_nanos;
        for crossed in old.level..level {
            let width = THRESHOLDS_SECONDS[crossed + 1] - THRESHOLDS_SECONDS[crossed];
            let charged = contribution.min(width * NANOS);
            self.times[crossed] += charged;
            contribution -= charged;
            rest -= charged;
        }
        self.times[level] += contribution;
        let served = self.served_at(level, scheduled_nanos);
        Priority { level, nanos: served.saturating_add(rest) }
    }
}

/// Multilevel feedback over tenants.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Multilevel {
    levels: Levels,
    /// Cost units a second.
    rate: f64,
    tasks: Vec<Task>,
    splits: u64,
    /// The last answer of [`Order::next`].
    chosen: Option<(usize, Split)>,
    /// Selections of each level (Trino's `selectedLevelCounters`).
    #[serde(default)]
    selected: [u64; LEVELS],
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Task {
    scheduled_nanos: u64,
    priority: Priority,
    /// Its waiting splits and their levels, oldest first.
    splits: Vec<(usize, Split)>,
    /// True if its splits are in the levels, so that it may run.
    is_shown: bool,
}

impl Multilevel {
    pub(super) fn new(multiplier: f64, rate: f64) -> Multilevel {
        let levels = Levels::new(multiplier);
        let (tasks, selected) = (Vec::new(), [0; LEVELS]);
        Multilevel { levels, rate, tasks, splits: 0, chosen: None, selected }
    }

    pub(crate) fn selected(&self) -> [u64; LEVELS] {
        self.selected
    }

    fn remove(&mut self, tenant: TenantId, at: usize) {
        let (level, split) = self.tasks[tenant.index()].splits.remove(at);
        self.levels.remove(level, &split);
        self.chosen = None;
    }
}

impl Order for Multilevel {
    fn admit(&mut self, tenant: TenantId, _: &Terms, _: Activity, _: f64) {
        if self.tasks.len() <= tenant.index() {
            self.tasks.resize_with(tenant.index() + 1, Task::default);
        }
    }

    fn reset(&mut self, tenant: TenantId) {
        if let Some(task) = self.tasks.get_mut(tenant.index()) {
            *task = Task::default();
        }
    }

    fn arrive(&mut self, tenant: TenantId, _: &Request, was: Activity, _: f64) -> f64 {
        let task = &mut self.tasks[tenant.index()];
        if was == Activity::Idle {
            // As after a wait for input: no credit was saved meanwhile.
            let served = self.levels.served_at(task.priority.level, task.scheduled_nanos);
            task.priority.nanos = task.priority.nanos.max(served);
        }
        self.splits += 1;
        let split = (task.priority.nanos, self.splits, tenant);
        task.splits.push((task.priority.level, split));
        if task.is_shown {
            self.levels.offer(task.priority.level, split);
        }
        0.0
    }

    fn withdrawn(&mut self, tenant: TenantId, _: Activity, _: f64) {
        if let Some(last) = self.tasks[tenant.index()].splits.len().checked_sub(1) {
            self.remove(tenant, last);
        }
    }

    fn head(&mut self, tenant: TenantId, head: Option<Head<'_>>, _: f64) {
        let task = &mut self.tasks[tenant.index()];
        if task.is_shown != head.is_some() {
            task.is_shown = head.is_some();
            for (level, split) in &task.splits {
                if task.is_shown {
                    self.levels.offer(*level, *split)
                } else {
                    self.levels.remove(*level, split);
                }
            }
        }
    }

    fn next(&mut self, _: u32, _: f64, _: Admits<'_>) -> Option<TenantId> {
        loop {
            let level = self.levels.select()?;
            let split = self.levels.first(level)?;
            let (_, age, tenant) = split;
            let task = &mut self.tasks[tenant.index()];
            if task.priority.level == level {
                self.chosen = Some((level, split));
                return Some(tenant);
            }
            let renewed = (task.priority.nanos, age, tenant);
            if let Some(slot) = task.splits.iter_mut().find(|(_, other)| *other == split) {
                *slot = (task.priority.level, renewed);
            }
            self.levels.remove(level, &split);
            self.levels.offer(task.priority.level, renewed);
        }
    }

    fn dispatched(&mut self, tenant: TenantId, _: &Request, _: f64) -> f64 {
        let task = &self.tasks[tenant.index()];
        let chosen = self.chosen.filter(|(_, (_, _, of))| *of == tenant);
        let at = chosen.and_then(|chosen| task.splits.iter().position(|split| *split == chosen));
        self.levels.serve(task.priority);
        self.selected[task.priority.level] += 1;
        if !task.splits.is_empty() {
            self.remove(tenant, at.unwrap_or(0));
        }
        0.0
    }

    fn completed(&mut self, running: &Running, _: f64, _: Activity, _: f64) {
        let task = &mut self.tasks[running.tenant.index()];
        let slice_nanos = (running.used / self.rate * NANOS as f64).round() as u64;
        task.scheduled_nanos = task.scheduled_nanos.saturating_add(slice_nanos);
        task.priority = self.levels.charge(task.priority, slice_nanos, task.scheduled_nanos);
    }
}
