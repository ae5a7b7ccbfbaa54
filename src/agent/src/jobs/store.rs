//! Files in the state directory with which a restarted agent continues its jobs.
//!
//! | file | contents | written |
//! |---|---|---|
//! | `jobs/N.json` | job N, running or lingering | at its start, new placement and end; with the sums of a set once a tick |
//! | `queue.json` | the queue with the past use of each tenant | after changes, less often if it is large |
//! | `finished.json` | finished jobs | after changes, at most every few seconds, and at a stop |
//! | `numbers.json` | a number that no job has | once for a thousand jobs |
//!
//! The amount written depends on the changes, not on the number of jobs. A queue file older than the jobs is
//! harmless: the job files are right, and their use is charged after the restart.

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::finished::FinishedJobs;
use crate::recovery::boot_file::BootFile;
use tenantd_admission::{Admission, Indices, JobId, Request};
use tenantd_varlink::jobs::{FinishedJob, TaskSums};

const JOBS: &str = "jobs";
/// Job numbers set aside by one write.
const NUMBERS: u64 = 1000;
/// Highest average rate of writing the queue.
const QUEUE_BYTES_PER_SECOND: f64 = 65536.0;
/// Least time between two writes of the finished jobs.
const FINISHED_PAUSE: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub(crate) struct Store {
    kept: Option<Files>,
    is_taken_up: bool,
}

#[derive(Debug)]
struct Files {
    state_dir: PathBuf,
    boot_id: String,
    queue: PacedFile,
    finished: PacedFile,
    numbers: BootFile,
    set_aside: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptJob {
    pub(crate) id: u64,
    /// `None` in a file of another boot.
    pub(crate) request: Option<Request>,
    pub(crate) submitted: f64,
    pub(crate) since: f64,
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) command: Option<String>,
    /// The cgroup, below the root of each tree and below the mount.
    pub(crate) below: String,
    pub(crate) path: String,
    pub(crate) unit: Option<String>,
    pub(crate) inode: u64,
    pub(crate) cpus: Option<String>,
    pub(crate) ineffective: Vec<String>,
    pub(crate) lingers: bool,
    pub(crate) supervised: bool,
    pub(crate) tasks: TaskSums,
    pub(crate) indices: Indices,
    /// Its cgroup in the devices hierarchy.
    pub(crate) devices: Option<PathBuf>,
}

impl KeptJob {
    pub(crate) fn job(&self) -> JobId {
        JobId(self.id)
    }
}

/// The queue as text: numeric map keys do not survive the JSON of a [`BootFile`].
#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptQueue {
    queue: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptFinished<T> {
    jobs: Vec<T>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct KeptNumbers {
    next: u64,
}

impl Store {
    pub(crate) fn new(state_dir: &Path, boot_id: &str) -> Store {
        let kept = Some(Files {
            state_dir: state_dir.to_path_buf(),
            boot_id: boot_id.to_string(),
            queue: PacedFile::new(BootFile::new(state_dir, "queue.json", boot_id)),
            finished: PacedFile::new(BootFile::new(state_dir, "finished.json", boot_id)),
            numbers: BootFile::new(state_dir, "numbers.json", boot_id),
            set_aside: 0,
        });
        Store { kept, is_taken_up: false }
    }

    pub(crate) fn valve_dir(&self, job: JobId) -> Option<PathBuf> {
        Some(self.kept.as_ref()?.state_dir.join(format!("job-{job}")))
    }

    /// Returns the jobs and the queue of an earlier agent, and the first unused number; `None` after the first
    /// call.
    pub(crate) fn take_up(&mut self) -> Option<(Vec<KeptJob>, Option<Admission>, u64)> {
        if std::mem::replace(&mut self.is_taken_up, true) {
            return None;
        }
        let Some(files) = &self.kept else { return Some((Vec::new(), None, 0)) };
        let queue = files.queue.file.load::<KeptQueue>().queue;
        let numbers = files.numbers.load::<KeptNumbers>();
        Some((files.jobs(), serde_json::from_str(&queue).ok(), numbers.next))
    }

    /// Finished jobs of an earlier agent. A damaged file is set aside, so that the next write does not replace it.
    pub(crate) fn load_finished(&self) -> Vec<FinishedJob> {
        let Some(files) = &self.kept else { return Vec::new() };
        match files.finished.file.try_load::<KeptFinished<FinishedJob>>() {
            Ok(kept) => kept.unwrap_or_default().jobs,
            Err(error) => {
                let path = files.finished.file.path();
                let aside = path.with_extension("damaged");
                let moved = fs::rename(path, &aside).map_or_else(
                    |error| format!("it is replaced at the next end of a job ({error})"),
                    |()| format!("it is now {}", aside.display()),
                );
                warn!(
                    "the finished jobs are lost: {} is damaged: {error}; {moved}",
                    path.display()
                );
                Vec::new()
            }
        }
    }

    /// Writes the finished jobs if they have changed: now for the last time, or when the last write is old enough.
    pub(crate) fn keep_finished(&mut self, finished: &FinishedJobs, is_last: bool) {
        let Some(files) = &mut self.kept else { return };
        let changes = finished.nr_changes();
        if files.finished.is_due(changes, is_last) {
            let content = KeptFinished { jobs: finished.list() };
            files.finished.write(changes, &content, FINISHED_PAUSE, "the list of finished jobs");
        }
    }

    pub(crate) fn keep_job(&self, job: &KeptJob) {
        let Some(files) = &self.kept else { return };
        let file = files.file_of(job.job());
        // Commands of users are private.
        let mut dir = fs::DirBuilder::new();
        let made = dir.recursive(true).mode(0o700).create(files.state_dir.join(JOBS));
        let outcome = made.and_then(|()| file.write(job));
        warn_of("a job that runs", &file, outcome);
    }

    pub(crate) fn forget_job(&self, job: JobId) {
        let Some(files) = &self.kept else { return };
        let file = files.file_of(job);
        warn_of("the end of a job", &file, file.remove());
    }

    /// Sets numbers aside, so that no later agent uses a number below `next` for a new job.
    pub(crate) fn keep_numbers(&mut self, next: u64) {
        let Some(files) = self.kept.as_mut().filter(|files| next >= files.set_aside) else {
            return;
        };
        let numbers = KeptNumbers { next: next + NUMBERS };
        let outcome = files.numbers.write(&numbers);
        if outcome.is_ok() {
            files.set_aside = numbers.next;
        }
        warn_of("the numbers of jobs", &files.numbers, outcome);
    }

    pub(crate) fn keep_queue(&mut self, admission: &Admission) {
        let Some(files) = &mut self.kept else { return };
        let changes = admission.nr_changes();
        if files.queue.is_due(changes, false) {
            let queue = serde_json::to_string(admission).unwrap_or_default();
            let pause = Duration::from_secs_f64(queue.len() as f64 / QUEUE_BYTES_PER_SECOND);
            files.queue.write(changes, &KeptQueue { queue }, pause, "the queue");
        }
    }
}

/// A file that is written after changes, but not too often.
#[derive(Debug)]
struct PacedFile {
    file: BootFile,
    /// Change number in the last write, and the earliest time of the next write.
    written: u64,
    next: Option<Instant>,
}

impl PacedFile {
    fn new(file: BootFile) -> PacedFile {
        PacedFile { file, written: 0, next: None }
    }

    /// True if there are changes to write, and it is not too early or the last time.
    fn is_due(&self, changes: u64, is_last: bool) -> bool {
        let is_early = self.next.is_some_and(|next| Instant::now() < next);
        changes != self.written && (is_last || !is_early)
    }

    /// Writes the content with this change number; the next write is due after `pause`.
    fn write(&mut self, changes: u64, content: &impl Serialize, pause: Duration, what: &str) {
        let outcome = self.file.write(content);
        self.next = Some(Instant::now() + pause);
        if outcome.is_ok() {
            self.written = changes;
        }
        warn_of(what, &self.file, outcome);
    }
}

impl Files {
    fn file_of(&self, job: JobId) -> BootFile {
        BootFile::new(&self.state_dir.join(JOBS), &format!("{job}.json"), &self.boot_id)
    }

    fn jobs(&self) -> Vec<KeptJob> {
        let entries = match fs::read_dir(self.state_dir.join(JOBS)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
            Err(error) => {
                let path = self.state_dir.join(JOBS);
                warn!("the jobs of the last tenantd are not found: {}: {error}", path.display());
                return Vec::new();
            }
        };
        let number = |entry: fs::DirEntry| {
            entry.file_name().to_str()?.strip_suffix(".json")?.parse::<u64>().ok()
        };
        let mut numbers: Vec<u64> = entries.flatten().filter_map(number).collect();
        numbers.sort_unstable();
        let mut jobs = Vec::new();
        for number in numbers {
            let file = self.file_of(JobId(number));
            let job: KeptJob = file.load();
            if job.request.is_some() && job.id == number {
                jobs.push(job)
            } else {
                warn_of("the end of a job", &file, file.remove())
            }
        }
        jobs
    }
}

fn warn_of(what: &str, file: &BootFile, outcome: io::Result<()>) {
    if let Err(error) = outcome {
        warn!("{what} is not kept for the next start: {}: {error}", file.path().display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_admission::{Capacity, Rules};

    fn kept(id: u64) -> KeptJob {
        KeptJob { id, request: Some(Request::new("a", 1)), pid: 7, ..KeptJob::default() }
    }

    #[test]
    fn jobs_are_kept_one_by_one_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path(), "boot");
        [3, 12, 4].iter().for_each(|id| store.keep_job(&kept(*id)));
        store.keep_job(&KeptJob { pid: 8, ..kept(4) });
        store.forget_job(JobId(12));
        store.forget_job(JobId(13));
        let mut next = Store::new(dir.path(), "boot");
        let (jobs, _, _) = next.take_up().unwrap();
        assert_eq!(jobs, [kept(3), KeptJob { pid: 8, ..kept(4) }]);
        assert!(next.take_up().is_none());
        // Another boot knows none of the jobs, and removes their files.
        let (jobs, _, _) = Store::new(dir.path(), "later").take_up().unwrap();
        assert_eq!((jobs.len(), fs::read_dir(dir.path().join(JOBS)).unwrap().count()), (0, 0));
    }

    #[test]
    fn finished_jobs_are_found_again_after_a_restart_of_the_same_boot() {
        let dir = tempfile::tempdir().unwrap();
        let mut finished = FinishedJobs::default();
        let mut store = Store::new(dir.path(), "boot");
        let job = FinishedJob {
            id: 7,
            exit_code: Some(3),
            ended_unix_seconds: 1.7e9 + 0.1,
            ..FinishedJob::default()
        };
        finished.insert(job.clone());
        store.keep_finished(&finished, false);
        // The next write is too early, unless the agent stops.
        finished.insert(FinishedJob { id: 8, ..FinishedJob::default() });
        store.keep_finished(&finished, false);
        assert_eq!(Store::new(dir.path(), "boot").load_finished(), [job]);
        store.keep_finished(&finished, true);
        assert_eq!(Store::new(dir.path(), "boot").load_finished().len(), 2);
        assert_eq!(Store::new(dir.path(), "later").load_finished(), []);
    }

    #[test]
    fn a_damaged_list_of_finished_jobs_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("finished.json");
        let whole = r#"{"boot_id":"boot","jobs":[{"id":7}]}"#;
        for text in ["", "{", "[]", whole, r#"{"boot_id":"boot","jobs":7}"#, "\u{0}\u{1}"] {
            fs::write(&path, text).unwrap();
            assert_eq!(Store::new(dir.path(), "boot").load_finished(), [], "{text}");
            assert!(!path.exists(), "{text}");
            assert_eq!(fs::read_to_string(path.with_extension("damaged")).unwrap(), text);
        }
    }

    #[test]
    fn no_number_is_given_twice_and_few_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::new(dir.path(), "boot");
        let path = dir.path().join("numbers.json");
        store.keep_numbers(2);
        let written = fs::read(&path).unwrap();
        for next in 3..1000 {
            store.keep_numbers(next);
            assert_eq!(fs::read(&path).unwrap(), written);
        }
        store.keep_numbers(1002);
        let (_, _, number) = Store::new(dir.path(), "boot").take_up().unwrap();
        assert!(number > 1002, "{number}");
    }

    #[test]
    fn a_queue_that_did_not_change_is_not_written() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = Store::new(dir.path(), "boot");
        let mut admission = Admission::new(Rules::default(), Capacity::default());
        let path = dir.path().join("queue.json");
        store.keep_queue(&admission);
        assert!(!path.exists(), "nothing has changed yet");
        admission.policy(Rules::default(), vec![tenantd_admission::Terms::new("a", 1.0)], 0.0);
        store.keep_queue(&admission);
        fs::remove_file(&path).unwrap();
        store.keep_queue(&admission);
        assert!(!path.exists(), "nothing has changed since");
        let (_, queue, _) = Store::new(dir.path(), "boot").take_up().unwrap();
        assert!(queue.is_none());
    }
}
