//! Between the thread that ticks and the thread that talks.
//!
//! **Problem.** A tick must never wait for a reader, and a reader must see one tick whole. **Answer.** After
//! each tick the agent's end publishes one immutable value, by exchanging a pointer, and wakes the socket's end; reads are
//! answered from there and never reach the agent. Changes go the other way through a bounded queue, are made
//! between two ticks, and their answers come back with a ticket. Each end has a descriptor that its own epoll
//! waits on.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use serde::Serialize;

use super::interface::{CallError, PlanReply, PolicyReply};
use crate::control::status::Status;
use crate::control::trace::Trace;
use crate::policy::model::{Accounts, Mode, Policy};
use crate::policy::outline::Outline;

/// Changes that may wait for the agent.
const COMMANDS_MAX: usize = 16;

/// What is said of the policy in force, made anew when it changes.
#[derive(Debug, Default)]
pub struct Governance {
    /// Where the policy was read; absent where it was made up by a program.
    pub path: Option<String>,
    /// The policy.
    pub policy: Arc<Policy>,
}

impl Governance {
    /// Who, beside root, may change the agent.
    pub fn administrators(&self) -> &Accounts {
        &self.policy.administrators
    }

    /// The policy in outline, made for whoever asks: seldom, and it is large.
    pub fn outline(&self) -> PolicyReply {
        PolicyReply { path: self.path.clone(), policy: Outline::of(&self.policy) }
    }
}

/// One tick, for all who ask.
#[derive(Debug, Default)]
pub struct Published {
    /// Its status.
    pub status: Arc<Status>,
    /// How every value came about.
    pub trace: Arc<Trace>,
    /// The policy it was made by.
    pub governance: Arc<Governance>,
    status_json: OnceLock<Arc<str>>,
    plan_json: OnceLock<Arc<str>>,
}

impl Published {
    /// A tick that nobody has asked about yet.
    pub fn new(
        status: impl Into<Arc<Status>>,
        trace: Arc<Trace>,
        governance: Arc<Governance>,
    ) -> Published {
        Published { status: status.into(), trace, governance, ..Published::default() }
    }

    /// The status as JSON, made when it is first asked for.
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
                findings: status.findings.clone(),
            })
        })
    }
}

/// `value` as JSON: ours have string keys and finite depth, so there is nothing that could not be written.
pub fn json(value: &impl Serialize) -> Arc<str> {
    serde_json::to_string(value).unwrap_or_default().into()
}

/// A change that somebody asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Take up the policy again.
    Reload,
    /// Begin or end to enforce.
    SetMode(Mode),
    /// Put everything back.
    Restore,
}

/// Which connection asked, and which of its turns: a number that is never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(pub(super) u64);

/// What came of a command: the JSON of its reply, or why not.
pub type Answer = Result<Arc<str>, CallError>;

/// What both ends share.
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
        // Nothing is ever left half done under this lock.
        Arc::clone(&self.published.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The end of the thread that ticks.
#[derive(Debug)]
pub struct AgentEnd {
    shared: Arc<Shared>,
    commands: Receiver<(Ticket, Command)>,
    answers: Sender<(Ticket, Answer)>,
}

/// The end of the thread that talks.
#[derive(Debug)]
pub struct SocketEnd {
    shared: Arc<Shared>,
    commands: SyncSender<(Ticket, Command)>,
    answers: Receiver<(Ticket, Answer)>,
}

/// Two ends, with `first` published.
///
/// # Errors
/// The system has no descriptors left.
pub fn bridge(first: Published) -> std::io::Result<(AgentEnd, SocketEnd)> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let shared = Arc::new(Shared {
        published: Mutex::new(Arc::new(first)),
        stopped: AtomicBool::new(false),
        wake_socket: EventFd::from_flags(flags)?,
        wake_agent: EventFd::from_flags(flags)?,
    });
    let (ask, commands) = mpsc::sync_channel(COMMANDS_MAX);
    let (answer, answers) = mpsc::channel();
    let socket = SocketEnd { shared: Arc::clone(&shared), commands: ask, answers };
    Ok((AgentEnd { shared, commands, answers: answer }, socket))
}

impl AgentEnd {
    /// Shows a tick to all who ask from now on.
    pub fn publish(&self, published: Published) {
        let published = Arc::new(published);
        let mut place = self.shared.published.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, published);
        drop(place);
        wake(&self.shared.wake_socket);
        // The last one to hold a tick frees it, and that may be this thread: not under the lock.
        drop(before);
    }

    /// The next change that somebody asked for.
    pub fn next_command(&self) -> Option<(Ticket, Command)> {
        let command = self.commands.try_recv().ok();
        if command.is_none() {
            // Looked at before the descriptor is read, one that comes in between would be slept over.
            let _ = self.shared.wake_agent.read();
            return self.commands.try_recv().ok();
        }
        command
    }

    /// Says what came of it.
    pub fn answer(&self, ticket: Ticket, answer: Answer) {
        // Where the other end is gone, nobody waits.
        let _ = self.answers.send((ticket, answer));
        wake(&self.shared.wake_socket);
    }
}

impl AsFd for AgentEnd {
    /// Readable when there may be a command.
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

    /// Asks for a change.
    ///
    /// # Errors
    /// [`CallError::Busy`]: too many wait already, or the agent is gone.
    pub fn ask(&self, ticket: Ticket, command: Command) -> Result<(), CallError> {
        match self.commands.try_send((ticket, command)) {
            Ok(()) => {
                wake(&self.shared.wake_agent);
                Ok(())
            }
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => Err(CallError::Busy {}),
        }
    }

    /// The next answer that came back.
    pub fn next_answer(&self) -> Option<(Ticket, Answer)> {
        self.answers.try_recv().ok()
    }

    /// Forgets that it was woken; to be called before looking at what there is.
    pub fn calm(&self) {
        let _ = self.shared.wake_socket.read();
    }

    /// Whether the agent is gone.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }
}

impl AsFd for SocketEnd {
    /// Readable when there is something new to look at.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.wake_socket.as_fd()
    }
}

fn wake(event: &EventFd) {
    // Full means that it was woken more often than anybody could count: it is awake.
    let _ = event.write(1);
}
