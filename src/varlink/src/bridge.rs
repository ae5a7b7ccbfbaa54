//! Connection between the control thread and the socket thread.
//!
//! **Problem.** A tick must never wait for a reader, and a reader must see one consistent tick. **Answer.**
//! After each tick the agent's end publishes one immutable value by exchanging a pointer, and wakes the
//! socket's end; reads are answered from that value and never reach the agent. Changes and calls about jobs
//! go the other way through a bounded inbox, in turns of their users ([`super::inbox`]), and are executed
//! between two ticks; answers return with a ticket. Each end has a descriptor for the epoll of its thread.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::Serialize;

use super::access::Access;
pub use super::calls::{Allowed, Caller, Command, JobCall, Submission, Ticket, Work};
use super::error::CallError;
use super::inbox::{Entry, Inbox};
use super::interface::{PlanReply, PolicyReply};
use super::jobs::{FinishedJob, FinishedReply, ListReply};
use super::own_view::Claimants;
use tenantd_control::report::status::Status;
use tenantd_control::report::trace::Trace;
use tenantd_policy::accounts::Accounts;
use tenantd_policy::model::{Accounts as Names, Policy};
use tenantd_policy::outline::Outline;

/// Policy in force, for readers; replaced when the policy changes.
#[derive(Debug, Default)]
pub struct Governance {
    /// File or directory of the policy; absent if a program made it.
    pub path: Option<String>,
    /// Directory of the recording; absent if nothing is recorded.
    pub history: Option<String>,
    /// The policy.
    pub policy: Arc<Policy>,
    /// The accounts of the host.
    pub accounts: Accounts,
    pub(super) json: OnceLock<Arc<str>>,
    pub(super) access: Access,
}

impl Governance {
    /// Creates the value for a policy read from `path`.
    pub fn new(path: Option<String>, policy: Arc<Policy>, accounts: Accounts) -> Governance {
        Governance { path, policy, accounts, ..Governance::default() }
    }

    /// Accounts, beside root, that may change the agent.
    pub fn administrators(&self) -> &Names {
        &self.policy.administrators
    }

    /// Flattened policy as the JSON of its reply; serialised on the first call.
    pub fn outline_json(&self) -> &Arc<str> {
        self.json.get_or_init(|| {
            let (path, history) = (self.path.clone(), self.history.clone());
            json(&PolicyReply { path, policy: Outline::of(&self.policy), history })
        })
    }
}

/// Jobs for all readers.
#[derive(Debug, Default)]
pub struct PublishedJobs {
    /// Number of earlier publications.
    pub sequence: u64,
    /// The list of jobs.
    pub list: ListReply,
    json: OnceLock<Arc<str>>,
    public_json: OnceLock<Arc<str>>,
    empty_json: OnceLock<Arc<str>>,
    own_json: Mutex<HashMap<Viewer, Arc<str>>>,
    owners: OnceLock<HashMap<u64, u32>>,
}

/// A reader of the list of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Viewer {
    /// Root or an administrator, who sees all commands.
    All,
    /// A user who may read, and sees own commands, and only program names of others.
    User(u32),
    /// Any other user, who sees own jobs only.
    Own(u32),
}

impl PublishedJobs {
    /// User of the job with this number; `None` if it is not in the list.
    pub fn owner(&self, id: u64) -> Option<u32> {
        let owners = || self.list.jobs.iter().map(|job| (job.id, job.uid)).collect();
        self.owners.get_or_init(owners).get(&id).copied()
    }

    /// JSON of the reply, serialised once for each user with a job in the list, and once for all others.
    pub fn json(&self, viewer: Viewer) -> Arc<str> {
        let has_own = |uid| self.list.jobs.iter().any(|job| job.uid == uid);
        let made = |place: &OnceLock<Arc<str>>, list: &dyn Fn() -> ListReply| {
            Arc::clone(place.get_or_init(|| json(&list())))
        };
        let own = |list: &dyn Fn() -> ListReply| {
            let mut own = self.own_json.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(own.entry(viewer).or_insert_with(|| json(&list())))
        };
        match viewer {
            Viewer::All => Arc::clone(self.json.get_or_init(|| json(&self.list))),
            Viewer::User(uid) if has_own(uid) => own(&|| self.list.seen_by(uid)),
            Viewer::User(uid) => made(&self.public_json, &|| self.list.seen_by(uid)),
            Viewer::Own(uid) if has_own(uid) => own(&|| self.list.only_of(uid)),
            Viewer::Own(uid) => made(&self.empty_json, &|| self.list.only_of(uid)),
        }
    }
}

/// Finished jobs for all readers, in the order of their ends.
#[derive(Debug, Default)]
pub struct PublishedFinished {
    jobs: Vec<Arc<FinishedJob>>,
    json: OnceLock<Arc<str>>,
}

impl PublishedFinished {
    /// Creates the value for these jobs.
    pub fn new(jobs: Vec<Arc<FinishedJob>>) -> PublishedFinished {
        PublishedFinished { jobs, json: OnceLock::new() }
    }

    /// JSON of the reply: the job with number `id`, or the jobs of the viewer. `None` if there is no such job.
    pub fn json(&self, viewer: Viewer, id: Option<u64>) -> Option<Arc<str>> {
        let seen = |job: &Arc<FinishedJob>| match viewer {
            Viewer::All => FinishedJob::clone(job),
            Viewer::User(uid) | Viewer::Own(uid) => job.seen_by(uid),
        };
        let reply = |jobs: Vec<FinishedJob>| json(&FinishedReply { jobs });
        match (id, viewer) {
            (Some(id), _) => {
                let is_shown =
                    |job: &FinishedJob| !matches!(viewer, Viewer::Own(uid) if job.uid != uid);
                let job = self.jobs.iter().find(|job| job.id == id && is_shown(job))?;
                Some(reply(vec![seen(job)]))
            }
            (None, Viewer::All) => {
                let all = || reply(self.jobs.iter().map(seen).collect());
                Some(Arc::clone(self.json.get_or_init(all)))
            }
            (None, Viewer::User(uid) | Viewer::Own(uid)) => {
                let own = self.jobs.iter().filter(|job| job.uid == uid);
                Some(reply(own.map(seen).collect()))
            }
        }
    }
}

/// One tick, for all readers.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Status of the tick.
    pub status: Arc<Status>,
    /// Trace for explanations.
    pub trace: Arc<Trace>,
    /// The policy of the tick.
    pub governance: Arc<Governance>,
    /// Jobs, which change between ticks as well.
    pub jobs: Arc<PublishedJobs>,
    /// Finished jobs.
    pub finished: Arc<PublishedFinished>,
    /// Claims of the policy on users and groups.
    pub claimants: Arc<Claimants>,
    status_json: Arc<OnceLock<Arc<str>>>,
    plan_json: Arc<OnceLock<Arc<str>>>,
}

impl Published {
    /// Creates a tick that is not serialised yet.
    pub fn new(
        status: impl Into<Arc<Status>>,
        trace: Arc<Trace>,
        governance: Arc<Governance>,
    ) -> Published {
        Published { status: status.into(), trace, governance, ..Published::default() }
    }

    /// The same tick with these claims on users and groups.
    #[must_use]
    pub fn claimed_by(self, claimants: Arc<Claimants>) -> Published {
        Published { claimants, ..self }
    }

    /// Status as JSON, serialised on the first call.
    pub fn status_json(&self) -> &Arc<str> {
        self.status_json.get_or_init(|| json(&*self.status))
    }

    /// Plan as the JSON of its reply.
    pub fn plan_json(&self) -> &Arc<str> {
        self.plan_json.get_or_init(|| {
            let status = &self.status;
            json(&PlanReply {
                tick: status.tick,
                mode: status.mode,
                actions: status.actions.clone(),
                moves: status.moves.clone(),
                findings: status.findings.clone(),
            })
        })
    }
}

/// Converts `value` to JSON. The types of the wire have string keys and finite depth, so serialisation does
/// not fail.
pub fn json(value: &impl Serialize) -> Arc<str> {
    serde_json::to_string(value).unwrap_or_default().into()
}

/// Answer to a command: the JSON of its reply, or an error.
pub type Answer = Result<Arc<str>, CallError>;

#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) ticket: Ticket,
    /// `None` for a `oneway` call that the agent has taken.
    pub(super) answer: Option<Answer>,
    pub(super) continues: bool,
}

#[derive(Debug)]
struct Shared {
    published: Mutex<Arc<Published>>,
    inbox: Mutex<Inbox>,
    stopped: AtomicBool,
    wake_socket: EventFd,
    wake_agent: EventFd,
}

impl Shared {
    fn newest(&self) -> Arc<Published> {
        // The value under this lock is replaced in one step, so a poisoned lock has a complete one.
        Arc::clone(&self.published.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// End of the control thread.
#[derive(Debug)]
pub struct AgentEnd {
    shared: Arc<Shared>,
    answers: Sender<Delivery>,
}

/// End of the socket thread.
#[derive(Debug)]
pub struct SocketEnd {
    shared: Arc<Shared>,
    answers: Receiver<Delivery>,
}

/// Creates both ends, with `first` published.
///
/// # Errors
/// The process has no descriptors left.
pub fn bridge(first: Published) -> std::io::Result<(AgentEnd, SocketEnd)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let accounts = first.governance.accounts.clone();
    let shared = Arc::new(Shared {
        published: Mutex::new(Arc::new(first)),
        inbox: Mutex::default(),
        stopped: AtomicBool::new(false),
        wake_socket: EventFd::from_flags(flags)?,
        wake_agent: EventFd::from_flags(flags)?,
    });
    // Wakes the socket thread to answer calls that wait for an account.
    let waker = Arc::downgrade(&shared);
    accounts.wake_on_answers(move || {
        if let Some(shared) = waker.upgrade() {
            wake(&shared.wake_socket);
        }
    });
    let (answer, answers) = mpsc::channel();
    let socket = SocketEnd { shared: Arc::clone(&shared), answers };
    Ok((AgentEnd { shared, answers: answer }, socket))
}

impl AgentEnd {
    /// Publishes a tick. The published jobs stay.
    pub fn publish(&self, mut published: Published) {
        let newest = self.shared.newest();
        published.jobs = Arc::clone(&newest.jobs);
        published.finished = Arc::clone(&newest.finished);
        self.replace(published);
    }

    /// Publishes the jobs. The published tick stays.
    pub fn publish_jobs(&self, list: ListReply) {
        let newest = self.shared.newest();
        let sequence = newest.jobs.sequence + 1;
        let jobs = Arc::new(PublishedJobs { sequence, list, ..PublishedJobs::default() });
        self.replace(Published { jobs, ..Published::clone(&newest) });
    }

    /// Publishes the finished jobs.
    pub fn publish_finished(&self, jobs: Vec<Arc<FinishedJob>>) {
        let finished = Arc::new(PublishedFinished::new(jobs));
        self.replace(Published { finished, ..Published::clone(&self.shared.newest()) });
    }

    /// Only this end publishes, so it replaces the value that it has read.
    fn replace(&self, published: Published) {
        let published = Arc::new(published);
        let mut place = self.shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, published);
        drop(place);
        wake(&self.shared.wake_socket);
        // The last reference frees the tick, possibly here: not under the lock.
        drop(before);
    }

    /// Clears the wake-up; call it before reading the queues, so that no arrival is missed.
    pub fn clear_wake(&self) {
        let _ = self.shared.wake_agent.read();
    }

    /// Wakes this end again if calls are left in the queues.
    pub fn stay_awake(&self) {
        if !self.shared.inbox().is_empty() {
            wake(&self.shared.wake_agent);
        }
    }

    /// Takes the next command from the queue.
    pub fn next_command(&self) -> Option<(Ticket, Command)> {
        let entry = self.shared.inbox().next_command()?;
        Some(self.take(entry))
    }

    /// Takes the next call about jobs.
    pub fn next_job_call(&self) -> Option<(Ticket, JobCall)> {
        let entry = self.shared.inbox().next_call()?;
        Some(self.take(entry))
    }

    /// Takes the ticket of a submission or of a wait whose client has closed its connection.
    pub fn next_left(&self) -> Option<Ticket> {
        self.shared.inbox().next_left()
    }

    fn take<C>(&self, Entry { ticket, call, oneway }: Entry<C>) -> (Ticket, C) {
        if oneway {
            self.deliver(Delivery { ticket, answer: None, continues: false });
        }
        (ticket, call)
    }

    /// Sends the last answer to a call.
    pub fn answer(&self, ticket: Ticket, answer: Answer) {
        self.deliver(Delivery { ticket, answer: Some(answer), continues: false });
    }

    /// Sends one of several answers to a call; others follow.
    pub fn tell(&self, ticket: Ticket, reply: Arc<str>) {
        self.deliver(Delivery { ticket, answer: Some(Ok(reply)), continues: true });
    }

    fn deliver(&self, delivery: Delivery) {
        // The send fails only after the socket thread has ended.
        let _ = self.answers.send(delivery);
        wake(&self.shared.wake_socket);
    }
}

impl AsFd for AgentEnd {
    /// Readable when a command may be in the queue.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake_agent.as_fd()
    }
}

impl Drop for AgentEnd {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Release);
        wake(&self.shared.wake_socket);
    }
}

impl SocketEnd {
    /// The last tick.
    pub fn newest(&self) -> Arc<Published> {
        self.shared.newest()
    }

    /// Queues a command of user `uid` for the agent.
    pub(super) fn ask(&self, uid: u32, entry: Entry<Command>) -> Result<(), CallError> {
        if self.is_stopped() || !self.shared.inbox().ask(uid, entry) {
            return Err(CallError::Busy {});
        }
        wake(&self.shared.wake_agent);
        Ok(())
    }

    pub(super) fn call(&self, uid: u32, entry: Entry<JobCall>) {
        self.shared.inbox().call(uid, entry);
        wake(&self.shared.wake_agent);
    }

    /// Handles a submission or a wait whose client has left. Returns true if the agent never sees the call.
    pub(super) fn leave(&self, uid: u32, ticket: Ticket) -> bool {
        let is_withdrawn = self.shared.inbox().leave(uid, ticket);
        if !is_withdrawn {
            wake(&self.shared.wake_agent);
        }
        is_withdrawn
    }

    pub(super) fn next_answer(&self) -> Option<Delivery> {
        self.answers.try_recv().ok()
    }

    /// Clears the wake-up; call it before reading the published tick and the answers.
    pub fn clear_wake(&self) {
        let _ = self.shared.wake_socket.read();
    }

    /// Wakes this end again, because answers may be left.
    pub(super) fn stay_awake(&self) {
        wake(&self.shared.wake_socket);
    }

    /// True if the agent has stopped.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }
}

impl AsFd for SocketEnd {
    /// Readable when there is a new tick or answer, or the agent has stopped.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake_socket.as_fd()
    }
}

fn wake(event: &EventFd) {
    // The write fails only if the counter is at its maximum, and then the reader is awake.
    let _ = event.write(1);
}
