//! The connection between the control thread and the socket thread.
//!
//! **Problem.** A tick must never wait for a reader, and a reader must see one consistent tick. **Answer.** After
//! each tick the agent's end publishes one immutable value, by exchanging a pointer, and wakes the socket's end;
//! reads are answered from that value and never reach the agent. Changes go the other way through a bounded
//! queue and are made between two ticks; their answers return with a ticket. What concerns jobs has a queue of its own,
//! which is as long as there are connections: that a client has left must not be lost. Each end has a descriptor for
//! the epoll of its thread.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::Serialize;

use super::error::CallError;
use super::interface::{PlanReply, PolicyReply};
use super::jobs::{ListReply, SubmitParameters};
use crate::control::status::Status;
use crate::control::trace::Trace;
use crate::policy::model::{Accounts, Mode, Policy};
use crate::policy::outline::Outline;

/// Changes in the queue to the agent.
const COMMANDS_MAX: usize = 16;

/// The policy in force, for readers; replaced when the policy changes.
#[derive(Debug, Default)]
pub struct Governance {
    /// The file or directory of the policy; absent where a program made it.
    pub path: Option<String>,
    /// The policy.
    pub policy: Arc<Policy>,
}

impl Governance {
    /// The accounts, beside root, that may change the agent.
    pub fn administrators(&self) -> &Accounts {
        &self.policy.administrators
    }

    /// The policy, flattened. It is large and seldom asked for, so it is made on each call.
    pub fn outline(&self) -> PolicyReply {
        PolicyReply { path: self.path.clone(), policy: Outline::of(&self.policy) }
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
}

impl PublishedJobs {
    /// The reply with them as JSON, serialised on the first call.
    pub fn json(&self) -> &Arc<str> {
        self.json.get_or_init(|| json(&self.list))
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

/// A change that a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Load the policy again.
    Reload,
    /// Switch between observe and enforce.
    SetMode(Mode),
    /// Restore everything that was changed.
    Restore,
    /// Hand work to the tenant with this path; whether processes leave their units.
    Attach(String, Work, bool, Caller),
    /// Take it back.
    Detach(Work, Caller),
}

/// What a client asks for a job, or of jobs.
#[derive(Debug)]
pub enum JobCall {
    /// It is to wait for its turn.
    Submit(Ticket, Box<Submission>),
    /// It is to leave the queue.
    Cancel(Ticket, u64, Caller),
    /// The client of this ticket has closed its connection.
    Left(Ticket),
}

/// A job that is submitted, with the credentials of its connection as the kernel gives them.
#[derive(Clone, Debug)]
pub struct Submission {
    /// What was asked for.
    pub parameters: SubmitParameters,
    /// The user.
    pub uid: u32,
    /// The process, which is the job.
    pub pid: u32,
    /// The same as a descriptor, where the kernel has them: its number may be another process's by now.
    pub process: Option<Arc<OwnedFd>>,
    /// The tenants that it may be submitted to, beside that of the user.
    pub allowed: Allowed,
}

/// Tenants that a user may submit jobs to, beside the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Every tenant: the user may change the agent.
    All,
    /// These tenants, and those in these groups.
    These(Vec<String>),
}

/// What is handed to a tenant, or taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// A cgroup, from the mount or as a path of the file system.
    Cgroup(String),
    /// Processes.
    Processes(Vec<u32>),
}

/// The origin of a request to attach or detach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user, limited to own processes; `None` for an administrator.
    pub user: Option<u32>,
    /// The process that asks; 0 where it is not known.
    pub pid: u32,
}

/// The number of a command, unique for the life of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub u64);

/// The answer to a command: the JSON of its reply, or an error.
pub type Answer = Result<Arc<str>, CallError>;

/// An answer on its way to a client.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) ticket: Ticket,
    pub(super) answer: Answer,
    /// Whether others follow.
    pub(super) continues: bool,
}

/// The part that both ends share.
#[derive(Debug)]
struct Shared {
    published: Mutex<Arc<Published>>,
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
}

/// The end of the control thread.
#[derive(Debug)]
pub struct AgentEnd {
    shared: Arc<Shared>,
    commands: Receiver<(Ticket, Command)>,
    job_calls: Receiver<JobCall>,
    answers: Sender<Delivery>,
}

/// The end of the socket thread.
#[derive(Debug)]
pub struct SocketEnd {
    shared: Arc<Shared>,
    commands: SyncSender<(Ticket, Command)>,
    job_calls: Sender<JobCall>,
    answers: Receiver<Delivery>,
}

/// Both ends, with `first` published.
///
/// # Errors
/// The process has no descriptors left.
pub fn bridge(first: Published) -> std::io::Result<(AgentEnd, SocketEnd)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let shared = Arc::new(Shared {
        published: Mutex::new(Arc::new(first)),
        stopped: AtomicBool::new(false),
        wake_socket: EventFd::from_flags(flags)?,
        wake_agent: EventFd::from_flags(flags)?,
    });
    let (ask, commands) = mpsc::sync_channel(COMMANDS_MAX);
    let (call, job_calls) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    let socket = SocketEnd { shared: Arc::clone(&shared), commands: ask, job_calls: call, answers };
    Ok((AgentEnd { shared, commands, job_calls, answers: answer }, socket))
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
        let jobs = Arc::new(PublishedJobs { sequence, list, json: OnceLock::new() });
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

    /// Wakes this end again: something may be left in the queues.
    pub fn stay_awake(&self) {
        wake(&self.shared.wake_agent);
    }

    /// The next command in the queue.
    pub fn next_command(&self) -> Option<(Ticket, Command)> {
        self.commands.try_recv().ok()
    }

    /// The next call that concerns jobs.
    pub fn next_job_call(&self) -> Option<JobCall> {
        self.job_calls.try_recv().ok()
    }

    /// Sends the answer to a command, the last one.
    pub fn answer(&self, ticket: Ticket, answer: Answer) {
        self.deliver(Delivery { ticket, answer, continues: false });
    }

    /// Sends one of several answers to a call; others follow.
    pub fn tell(&self, ticket: Ticket, reply: Arc<str>) {
        self.deliver(Delivery { ticket, answer: Ok(reply), continues: true });
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

    /// Queues a command for the agent.
    ///
    /// # Errors
    /// [`CallError::Busy`]: the queue is full, or the agent has stopped.
    pub fn ask(&self, ticket: Ticket, command: Command) -> Result<(), CallError> {
        match self.commands.try_send((ticket, command)) {
            Ok(()) => {
                wake(&self.shared.wake_agent);
                Ok(())
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(CallError::Busy {}),
        }
    }

    /// Passes on what concerns jobs. Where the agent has stopped, no answer is awaited.
    pub fn call(&self, call: JobCall) {
        let _ = self.job_calls.send(call);
        wake(&self.shared.wake_agent);
    }

    /// The next answer of the agent.
    pub(super) fn next_answer(&self) -> Option<Delivery> {
        self.answers.try_recv().ok()
    }

    /// Clears the wake-up; to be called before the published tick and the answers are read.
    pub fn clear_wake(&self) {
        let _ = self.shared.wake_socket.read();
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
