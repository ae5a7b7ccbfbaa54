//! The files that let a restarted agent go on: `jobs.json` with the jobs that run, and `queue.json` with the queue.
//!
//! The first is written whenever a job starts or ends, the second with a tick, because it is larger. Where they differ, the
//! first is right.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::admission::{Admission, JobId, Request};
use crate::daemon::recovery::boot_file::BootFile;

/// The two files; none for an agent that keeps nothing.
#[derive(Debug, Default)]
pub(in crate::daemon) struct Store {
    jobs: Option<BootFile>,
    queue: Option<BootFile>,
    /// The text of the queue that was written last.
    written: String,
    /// Whether what an earlier agent kept was taken up.
    is_taken_up: bool,
}

/// A job that runs or lingers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::daemon) struct KeptJob {
    pub(in crate::daemon) id: u64,
    pub(in crate::daemon) request: Request,
    pub(in crate::daemon) submitted: f64,
    pub(in crate::daemon) since: f64,
    pub(in crate::daemon) pid: u32,
    pub(in crate::daemon) start_ticks: u64,
    pub(in crate::daemon) command: Option<String>,
    /// Its cgroup below the root of each tree, and from the mount.
    pub(in crate::daemon) below: String,
    pub(in crate::daemon) path: String,
    pub(in crate::daemon) inode: u64,
    pub(in crate::daemon) cpus: Option<String>,
    pub(in crate::daemon) ineffective: Vec<String>,
    /// Whether its first process had ended.
    pub(in crate::daemon) lingers: bool,
}

impl KeptJob {
    pub(in crate::daemon) fn job(&self) -> JobId {
        JobId(self.id)
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptJobs {
    jobs: Vec<KeptJob>,
}

/// The queue as text: numbers as keys do not survive what a [`BootFile`] does with its content.
#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptQueue {
    queue: String,
}

impl Store {
    /// The files in `state_dir` for this boot.
    pub(in crate::daemon) fn new(state_dir: &Path, boot_id: &str) -> Store {
        Store {
            jobs: Some(BootFile::new(state_dir, "jobs.json", boot_id)),
            queue: Some(BootFile::new(state_dir, "queue.json", boot_id)),
            written: String::new(),
            is_taken_up: false,
        }
    }

    /// The directory of the job server of a job.
    pub(in crate::daemon) fn valve_dir(&self, job: JobId) -> Option<PathBuf> {
        let state_dir = self.jobs.as_ref()?.path().parent()?;
        Some(state_dir.join(format!("job-{job}")))
    }

    /// What an earlier agent kept; `None` where it was taken up before.
    pub(in crate::daemon) fn take_up(&mut self) -> Option<(Vec<KeptJob>, Option<Admission>)> {
        if std::mem::replace(&mut self.is_taken_up, true) {
            return None;
        }
        let jobs = self.jobs.as_ref().map(BootFile::load::<KeptJobs>).unwrap_or_default().jobs;
        let queue = self.queue.as_ref().map(BootFile::load::<KeptQueue>).unwrap_or_default().queue;
        Some((jobs, serde_json::from_str(&queue).ok()))
    }

    /// Keeps the jobs that run.
    pub(in crate::daemon) fn keep_jobs(&self, jobs: Vec<KeptJob>) {
        let Some(file) = &self.jobs else { return };
        let outcome = match jobs.is_empty() {
            true => file.remove(),
            false => file.write(&KeptJobs { jobs }),
        };
        if let Err(error) = outcome {
            let path = file.path().display();
            warn!("the jobs that run are not kept for the next start: {path}: {error}");
        }
    }

    /// Keeps the queue.
    pub(in crate::daemon) fn keep_queue(&mut self, admission: &Admission) {
        let Some(file) = &self.queue else { return };
        let queue = serde_json::to_string(admission).unwrap_or_default();
        if queue == self.written {
            return;
        }
        match file.write(&KeptQueue { queue: queue.clone() }) {
            Ok(()) => self.written = queue,
            Err(error) => {
                let path = file.path().display();
                warn!("the queue is not kept for the next start: {path}: {error}");
            }
        }
    }
}
