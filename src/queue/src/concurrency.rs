//! Bounds on the splits of a task that are in the queue at once: the stage before the multilevel queue.
//!
//! # Algorithm (Trino, `TaskExecutor`)
//! Each task is first filled up to its own minimum; then tasks are filled up in turn until all together
//! reach a minimum. None has more than its maximum.
//!
//! # Properties
//! - Trino's own tests (vectors `trino_mlsq`).

/// The splits of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskLoad {
    /// Splits inside: waiting in the queue or running.
    pub inside: u32,
    /// Splits that wait outside.
    pub outside: u32,
}

/// Bounds on the splits inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drivers {
    /// Minimum of all tasks together.
    pub min: u32,
    /// Minimum of each task, filled first.
    pub min_per_task: u32,
    /// Maximum of one task.
    pub max_per_task: u32,
}

impl Drivers {
    /// Returns the number of splits of each task that enter now. O(tasks + splits that enter).
    pub fn start(&self, tasks: &[TaskLoad]) -> Vec<u32> {
        let room =
            |task: &TaskLoad| self.max_per_task.saturating_sub(task.inside).min(task.outside);
        let first = |task: &TaskLoad| room(task).min(self.min_per_task.saturating_sub(task.inside));
        let mut started: Vec<u32> = tasks.iter().map(first).collect();
        let inside: u32 = tasks.iter().zip(&started).map(|(task, more)| task.inside + more).sum();
        let mut missing = self.min.saturating_sub(inside);
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
