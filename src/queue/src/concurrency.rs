//! How many splits of a task may run at once, and which tasks start more: the stage before the multilevel
//! queue.
//!
//! # Algorithm
//! - [`Concurrency`] (Trino, `SplitConcurrencyController`): a target for each task, moved by one at most
//!   once an interval: up while the task's output is used at less than half and it runs as many as it may,
//!   down when a split finishes and the output is used at more than half. So a task runs as many splits as
//!   its consumer can take.
//! - [`Drivers`] (Trino, `TaskExecutor`): every task runs at least a minimum of its own, as far as it has
//!   splits; then tasks are filled up in turn until all together run a minimum. None runs more than its
//!   maximum, or than its user allows.
//!
//! # Properties
//! - Trino's own tests (`the_target_follows_the_utilization`, vectors `trino_mlsq`).

/// The use of a task's output at which its concurrency is right.
pub const TARGET_UTILIZATION: f64 = 0.5;

/// The target concurrency of one task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    target: u32,
    interval_nanos: u64,
    /// Thread time since the last change.
    since_nanos: u64,
}

impl Concurrency {
    /// Starts at `initial`, at least 1, and moves once in `interval_nanos` of thread time.
    pub fn new(initial: u32, interval_nanos: u64) -> Concurrency {
        Concurrency { target: initial.max(1), interval_nanos, since_nanos: 0 }
    }

    /// How many splits may run.
    pub fn target(&self) -> u32 {
        self.target
    }

    /// `nanos` of thread time have passed; `utilization` of the output is from 0 to 1, `running` splits run.
    pub fn update(&mut self, nanos: u64, utilization: f64, running: u32) {
        self.since_nanos = self.since_nanos.saturating_add(nanos);
        if self.since_nanos >= self.interval_nanos {
            self.raise(utilization, running);
        }
    }

    /// A split that took `nanos` of thread time has finished.
    pub fn finished(&mut self, nanos: u64, utilization: f64, running: u32) {
        if self.since_nanos < self.interval_nanos && self.since_nanos < nanos {
            return;
        }
        if utilization > TARGET_UTILIZATION && self.target > 1 {
            self.since_nanos = 0;
            self.target -= 1;
        } else {
            self.raise(utilization, running);
        }
    }

    fn raise(&mut self, utilization: f64, running: u32) {
        if utilization < TARGET_UTILIZATION && running >= self.target {
            self.since_nanos = 0;
            self.target += 1;
        }
    }
}

/// The splits that a task runs and could run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLoad {
    /// Splits that run.
    pub running: u32,
    /// Splits that could be started.
    pub queued: u32,
    /// The most that its user allows; `None` for no limit.
    pub user_max: Option<u32>,
}

/// Bounds on the splits that run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drivers {
    /// All tasks together are filled up to this.
    pub min: u32,
    /// Each task is filled up to this first.
    pub min_per_task: u32,
    /// The most of one task.
    pub max_per_task: u32,
}

impl Drivers {
    /// How many splits of each task to start now. O(tasks + splits started).
    pub fn start(&self, tasks: &[TaskLoad]) -> Vec<u32> {
        let room = |task: &TaskLoad| {
            let max = task.user_max.map_or(self.max_per_task, |max| max.min(self.max_per_task));
            max.saturating_sub(task.running).min(task.queued)
        };
        let first =
            |task: &TaskLoad| room(task).min(self.min_per_task.saturating_sub(task.running));
        let mut started: Vec<u32> = tasks.iter().map(first).collect();
        let running: u32 = tasks.iter().zip(&started).map(|(task, more)| task.running + more).sum();
        let mut missing = self.min.saturating_sub(running);
        let mut is_moving = true;
        while missing > 0 && is_moving {
            is_moving = false;
            for (task, more) in tasks.iter().zip(&mut started) {
                if missing > 0 && *more < room(task) {
                    *more += 1;
                    missing -= 1;
                    is_moving = true;
                }
            }
        }
        started
    }
}
