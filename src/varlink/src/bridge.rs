//! The connection between the control thread and the socket thread.
//!
//! **Problem.** A tick must never wait for a reader, and a reader must see one consistent tick. **Answer.** After
//! each tick the agent's end publishes one immutable value, by exchanging a pointer, and wakes the socket's end;
//! reads are answered from that value and never reach the agent. Changes and calls that concern jobs go the other way
//! through a bounded inbox, by turns of their users ([`super::inbox`]), and are carried out between two ticks; their answers
//! return with a ticket. Each end has a descriptor for the epoll of its thread.

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
use super::jobs::ListReply;
use tenantd_control::status::Status;
use tenantd_control::trace::Trace;
use tenantd_policy::accounts::Accounts;
use tenantd_policy::model::{Accounts as Names, Policy};
use tenantd_policy::outline::Outline;

/// The policy in force, for readers; replaced when the policy changes.
#[derive(Debug, Default)]
pub struct Governance {
    /// The file or directory of the policy; absent where a program made it.
    pub path: Option<String>,
    /// The policy.
    pub policy: Arc<Policy>,
    /// The accounts of the host.
    pub accounts: Accounts,
    pub(super) json: OnceLock<Arc<str>>,
    pub(super) access: Access,
}

impl Governance {
    /// The policy that was read from `path`.
    pub fn new(path: Option<String>, policy: Arc<Policy>, accounts: Accounts) -> Governance {
        Governance { path, policy, accounts, ..Governance::default() }
    }

    /// The accounts, beside root, that may change the agent.
    pub fn administrators(&self) -> &Names {
        &self.policy.administrators
    }

    /// The policy, flattened, as the JSON of its reply; serialised on the first call.
    pub fn outline_json(&self) -> &Arc<str> {
        self.json.get_or_init(|| {
            json(&PolicyReply { path: self.path.clone(), policy: Outline::of(&self.policy) })
        })
    }
}

/// The jobs, for all readers.
#[derive(Debug, Default)]
pub struct PublishedJobs {
    /// How often they were published before.
    pub sequence: u64,
    /// The jobs.
    pub list: ListReply,
    json: OnceLock<Arc<str>>,
    /// The same for users without a command of their own in it.
    public_json: OnceLock<Arc<str>>,
    /// The same for each user with one.
    own_json: Mutex<HashMap<u32, Arc<str>>>,
    owners: OnceLock<HashMap<u64, u32>>,
}

/// A reader of the list of jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    /// Root or an administrator: sees all commands.
    All,
    /// A user: sees the own commands, and the names of the programs of others.
    User(u32),
}

impl PublishedJobs {
    /// The user of the job with this number, where the list has it.
    pub fn owner(&self, id: u64) -> Option<u32> {
        let owners = || self.list.jobs.iter().map(|job| (job.id, job.uid)).collect();
        self.owners.get_or_init(owners).get(&id).copied()
    }

    /// The reply with them as JSON, serialised once for each user with a command in it, and once for all others.
    pub fn json(&self, viewer: Viewer) -> Arc<str> {
        let Viewer::User(uid) = viewer else {
            return Arc::clone(self.json.get_or_init(|| json(&self.list)));
        };
        let has_own = self.list.jobs.iter().any(|job| job.uid == uid && job.command.is_some());
        if !has_own {
            return Arc::clone(self.public_json.get_or_init(|| json(&self.list.seen_by(uid))));
        }
        let mut own = self.own_json.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(own.entry(uid).or_insert_with(|| json(&self.list.seen_by(uid))))
    }
}

/// One tick, for all readers.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Its status.
    pub status: Arc<Status>,
    /// How each value came about.
    pub trace: Arc<Trace>,
    /// The policy of the tick.
    pub governance: Arc<Governance>,
    /// The jobs, which change between ticks as well.
    pub jobs: Arc<PublishedJobs>,
    status_json: Arc<OnceLock<Arc<str>>>,
    plan_json: Arc<OnceLock<Arc<str>>>,
}

impl Published {
    /// A tick that has not been serialised yet.
    pub fn new(
        status: impl Into<Arc<Status>>,
        trace: Arc<Trace>,
        governance: Arc<Governance>,
    ) -> Published {
        Published { status: status.into(), trace, governance, ..Published::default() }
    }

    /// The status as JSON, serialised on the first call.
    pub fn status_json(&self) -> &Arc<str> {
        self.status_json.get_or_init(|| json(&*self.status))
    }

    /// The plan as the JSON of its reply.
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

/// `value` as JSON. The types of the wire have string keys and finite depth, so serialisation does not fail.
pub fn json(value: &impl Serialize) -> Arc<str> {
    serde_json::to_string(value).unwrap_or_default().into()
}

/// The answer to a command: the JSON of its reply, or an error.
pub type Answer = Result<Arc<str>, CallError>;

/// An answer on its way to a client.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) ticket: Ticket,
    /// `None` for a `oneway` call, which the agent has taken.
    pub(super) answer: Option<Answer>,
    /// Whether others follow.
    pub(super) continues: bool,
}

/// The part that both ends share.
#[derive(Debug)]
struct Shared {
    published: Mutex<Arc<Published>>,
    inbox: Mutex<Inbox>,
    stopped: AtomicBool,
    /// Wakes the socket's end.
    wake_socket: EventFd,
    /// Wakes the agent's end.
    wake_agent: EventFd,
}

impl Shared {
    fn newest(&self) -> Arc<Published> {
        // The value under this lock is replaced in one step, so a poisoned lock holds a complete one.
        Arc::clone(&self.published.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The end of the control thread.
#[derive(Debug)]
pub struct AgentEnd {
    shared: Arc<Shared>,
    answers: Sender<Delivery>,
}

/// The end of the socket thread.
#[derive(Debug)]
pub struct SocketEnd {
    shared: Arc<Shared>,
    answers: Receiver<Delivery>,
}

/// Both ends, with `first` published.
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
    // Calls that wait for an account are answered.
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
    /// Publishes a tick. The jobs stay as they were published last.
    pub fn publish(&self, mut published: Published) {
        published.jobs = Arc::clone(&self.shared.newest().jobs);
        self.replace(published);
    }

    /// Publishes the jobs. The tick stays as it was published last.
    pub fn publish_jobs(&self, list: ListReply) {
        let newest = self.shared.newest();
        let sequence = newest.jobs.sequence + 1;
        let jobs = Arc::new(PublishedJobs { sequence, list, ..PublishedJobs::default() });
        self.replace(Published { jobs, ..Published::clone(&newest) });
    }

    /// This end alone publishes, so what it replaces is what it has read.
    fn replace(&self, published: Published) {
        let published = Arc::new(published);
        let mut place = self.shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, published);
        drop(place);
        wake(&self.shared.wake_socket);
        // The last reference frees the tick, and it may be this one: not under the lock.
        drop(before);
    }

    /// Clears the wake-up; to be called before the queues are read, so that nothing is missed that arrives meanwhile.
    pub fn clear_wake(&self) {
        let _ = self.shared.wake_agent.read();
    }

    /// Wakes this end again where calls are left in the queues.
    pub fn stay_awake(&self) {
        if !self.shared.inbox().is_empty() {
            wake(&self.shared.wake_agent);
        }
    }

    /// The next command in the queue.
    pub fn next_command(&self) -> Option<(Ticket, Command)> {
        let entry = self.shared.inbox().next_command()?;
        Some(self.take(entry))
    }

    /// The next call that concerns jobs.
    pub fn next_job_call(&self) -> Option<(Ticket, JobCall)> {
        let entry = self.shared.inbox().next_call()?;
        Some(self.take(entry))
    }

    /// The ticket of a submission whose client has closed its connection.
    pub fn next_left(&self) -> Option<Ticket> {
        self.shared.inbox().next_left()
    }

    fn take<C>(&self, Entry { ticket, call, oneway }: Entry<C>) -> (Ticket, C) {
        if oneway {
            self.deliver(Delivery { ticket, answer: None, continues: false });
        }
        (ticket, call)
    }

    /// Sends the answer to a command, the last one.
    pub fn answer(&self, ticket: Ticket, answer: Answer) {
        self.deliver(Delivery { ticket, answer: Some(answer), continues: false });
    }

    /// Sends one of several answers to a call; others follow.
    pub fn tell(&self, ticket: Ticket, reply: Arc<str>) {
        self.deliver(Delivery { ticket, answer: Some(Ok(reply)), continues: true });
    }

    fn deliver(&self, delivery: Delivery) {
        // The send fails only where the socket thread has ended.
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
    ///
    /// # Errors
    /// [`CallError::Busy`]: the user has too many in the queue, or the agent has stopped.
    pub(super) fn ask(&self, uid: u32, entry: Entry<Command>) -> Result<(), CallError> {
        if self.is_stopped() || !self.shared.inbox().ask(uid, entry) {
            return Err(CallError::Busy {});
        }
        wake(&self.shared.wake_agent);
        Ok(())
    }

    /// Queues a call of user `uid` that concerns jobs. Where the agent has stopped, no answer is awaited.
    pub(super) fn call(&self, uid: u32, entry: Entry<JobCall>) {
        self.shared.inbox().call(uid, entry);
        wake(&self.shared.wake_agent);
    }

    /// The client of a submission has left. Returns whether the agent never sees the submission.
    pub(super) fn leave(&self, uid: u32, ticket: Ticket) -> bool {
        let is_withdrawn = self.shared.inbox().leave(uid, ticket);
        if !is_withdrawn {
            wake(&self.shared.wake_agent);
        }
        is_withdrawn
    }

    /// The next answer of the agent.
    pub(super) fn next_answer(&self) -> Option<Delivery> {
        self.answers.try_recv().ok()
    }

    /// Clears the wake-up; to be called before the published tick and the answers are read.
    pub fn clear_wake(&self) {
        let _ = self.shared.wake_socket.read();
    }

    /// Wakes this end again: answers may be left.
    pub(super) fn stay_awake(&self) {
        wake(&self.shared.wake_socket);
    }

    /// Whether the agent has stopped.
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
    // The write fails only where the counter is at its maximum, and then the reader is awake.
    let _ = event.write(1);
}
