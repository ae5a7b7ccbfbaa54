//! The thread that talks: every connection, behind one epoll.
//!
//! **Problem.** Readers are many, slow, dead or hostile, and none of that may reach the tick. **Answer.** A
//! thread of its own, which waits for no reader: it sleeps in epoll until somebody connects, a request comes, a
//! reader has room, the agent has published, or somebody's time is over. What it tells it takes from the last
//! published tick ([`super::bridge`]); what changes the agent goes there and comes back. One thing it does wait
//! for is the machine's account database ([`super::peers`]): where somebody else than root asks for a change
//! and the policy names administrators, readers wait as long as that takes, and no tick does.
//!
//! **Limits.** Connections in all and for each user, some of them kept for root; the length of a request
//! ([`super::wire`]); the time from its first byte to its last; one call of a connection at a time, so that
//! whoever sends a thousand calls is read only as fast as it takes the answers; the answers that wait to be
//! taken, all together; the time in which somebody takes nothing of an answer. Who is over a limit is closed, the
//! longest waiting first, and named in the log ([`super::complaints`]).
//!
//! **Watchers** get the newest tick when they have room for it, and in it the number of those left out, however
//! long that takes: a pager that nobody scrolls is no reason to end the conversation. Nothing is kept for them but
//! the frame that they are taking, within the limit of all that wait: the serialised status is one for all.
//!
//! **Properties** (`tests/varlink/server.rs`, `tests/varlink/hostile.rs`): a limit for everything; whoever
//! keeps to them is answered however many do not; a tick does not wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tracing::{debug, info, warn};

use super::answer::{self, Reply};
use super::bridge::{SocketEnd, Ticket};
use super::complaints::Complaints;
use super::connection::{Connection, Turn};
use super::interface::CallError;
use super::listen::Listener;
use super::peers::Peer;
use super::wire::REQUEST_MAX_BYTES;

/// What a server allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in all.
    pub connections: usize,
    /// Of these, how many root has for itself.
    pub kept_for_root: usize,
    /// Connections of one user.
    pub connections_per_user: usize,
    /// Bytes of one request.
    pub request_bytes: usize,
    /// From the first byte of a request to its last.
    pub request_time: Duration,
    /// An answer of which nobody takes a byte for so long is not going to be taken. Not for watchers.
    pub answer_time: Duration,
    /// Bytes of answers that wait to be taken; one that is shared counts once, and the largest not at all.
    pub waiting_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 128,
            kept_for_root: 32,
            connections_per_user: 32,
            request_bytes: REQUEST_MAX_BYTES,
            request_time: Duration::from_secs(5),
            answer_time: Duration::from_secs(30),
            waiting_bytes: 4 << 20,
        }
    }
}

const LISTENER: u64 = 0;
const BRIDGE: u64 = 1;
/// Connections have numbers from here on; none is used twice.
const FIRST_CONNECTION: u64 = 2;

/// Events taken from epoll at once.
const EVENTS_MAX: usize = 64;
/// Connections accepted before others are served again.
const ACCEPTS_MAX: usize = 64;
/// Without a descriptor left, accepting rests for so long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket and all who are connected to it.
#[derive(Debug)]
pub struct Server {
    epoll: Epoll,
    listener: Listener,
    bridge: SocketEnd,
    limits: Limits,
    connections: HashMap<u64, Connection>,
    next_number: u64,
    next_ticket: u64,
    /// Who waits for what came of a command.
    tickets: HashMap<Ticket, u64>,
    accepts_again: Option<Instant>,
    /// Whether the last connection could not be accepted.
    is_refused: bool,
    complaints: Complaints,
}

impl Server {
    /// A server of what comes over `bridge`, for all who connect to `listener`.
    ///
    /// # Errors
    /// The system has no descriptors left.
    pub fn new(listener: Listener, bridge: SocketEnd, limits: Limits) -> io::Result<Server> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        epoll.add(&listener.socket, EpollEvent::new(EpollFlags::EPOLLIN, LISTENER))?;
        epoll.add(bridge.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, BRIDGE))?;
        Ok(Server {
            epoll,
            listener,
            bridge,
            limits,
            connections: HashMap::new(),
            next_number: FIRST_CONNECTION,
            next_ticket: 0,
            tickets: HashMap::new(),
            accepts_again: None,
            is_refused: false,
            complaints: Complaints::default(),
        })
    }

    /// Serves until the agent is gone.
    ///
    /// # Errors
    /// The system refused to wait.
    pub fn run(mut self) -> io::Result<()> {
        while !self.bridge.is_stopped() {
            self.turn()?;
        }
        // Whoever waits for what came of the last command still gets it, if there is room.
        self.pass_on_answers();
        Ok(())
    }

    /// Sleeps until something happens, and sees to it.
    fn turn(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS_MAX];
        let count = match self.epoll.wait(&mut events, self.timeout()) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        for event in &events[..count] {
            match event.data() {
                LISTENER => self.accept(),
                BRIDGE => self.look_at_agent(),
                number => self.serve(number, event.events()),
            }
        }
        self.close_late();
        Ok(())
    }

    /// How long to sleep: until the first deadline.
    fn timeout(&self) -> EpollTimeout {
        let deadlines = self.connections.values().filter_map(|c| self.deadline(c));
        let Some(first) = deadlines.chain(self.accepts_again).min() else {
            return EpollTimeout::NONE;
        };
        let left = first.saturating_duration_since(Instant::now());
        // A millisecond late is not a millisecond early, over and over.
        let msec = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        EpollTimeout::from(msec)
    }

    /// When the time of `connection` is over.
    fn deadline(&self, connection: &Connection) -> Option<Instant> {
        let request = connection.request_began().map(|began| began + self.limits.request_time);
        let is_watching = matches!(connection.turn, Turn::Watching { .. });
        let last_taken = connection.last_taken().filter(|_| !is_watching);
        let taken = last_taken.map(|last| last + self.limits.answer_time);
        request.into_iter().chain(taken).min()
    }

    fn close_late(&mut self) {
        let now = Instant::now();
        let is_late = |c: &Connection| self.deadline(c).is_some_and(|deadline| deadline <= now);
        let late: Vec<u64> = self
            .connections
            .iter()
            .filter(|(_, c)| is_late(c))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            self.expel(number, "its request did not end, or its answer was not taken, in time");
        }
        if self.accepts_again.is_some_and(|again| again <= now) {
            self.accepts_again = None;
            self.listen(EpollFlags::EPOLLIN);
        }
    }

    fn listen(&mut self, interest: EpollFlags) {
        let mut event = EpollEvent::new(interest, LISTENER);
        if let Err(errno) = self.epoll.modify(&self.listener.socket, &mut event) {
            warn!("cannot go on listening: {}", errno.desc());
        }
    }

    // --- connections ---

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_MAX {
            let stream = match self.listener.socket.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // Tried again ten times a second, told once.
                    if !std::mem::replace(&mut self.is_refused, true) {
                        warn!("cannot accept connections: {error}");
                    }
                    self.accepts_again = Some(Instant::now() + ACCEPT_PAUSE);
                    self.listen(EpollFlags::empty());
                    return;
                }
            };
            if std::mem::replace(&mut self.is_refused, false) {
                info!("connections are accepted again");
            }
            let Ok(peer) = Peer::of(&stream) else { continue };
            if !self.has_room_for(peer) {
                self.complaints.tell(peer, "refused a connection: there are too many");
                continue;
            }
            let number = self.next_number;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
            if stream.set_nonblocking(true).is_ok() && self.epoll.add(&stream, event).is_ok() {
                self.next_number += 1;
                let connection = Connection::new(stream, peer, self.limits.request_bytes);
                self.connections.insert(number, connection);
            }
        }
    }

    fn has_room_for(&self, peer: Peer) -> bool {
        let of_user = self.connections.values().filter(|c| c.peer.uid == peer.uid).count();
        let all = match peer.uid {
            0 => self.limits.connections,
            _ => self.limits.connections.saturating_sub(self.limits.kept_for_root),
        };
        of_user < self.limits.connections_per_user && self.connections.len() < all
    }

    /// Closes a connection that is over a limit.
    fn expel(&mut self, number: u64, why: &str) {
        if let Some(connection) = self.connections.remove(&number) {
            self.complaints.tell(connection.peer, &format!("closed a connection: {why}"));
        }
    }

    /// Closes one that is done, or gone.
    fn close(&mut self, number: u64, why: &str) {
        if let Some(connection) = self.connections.remove(&number) {
            debug!(uid = connection.peer.uid, pid = connection.peer.pid, "closed: {why}");
            // Closing the descriptor takes it out of the epoll as well: it has no second one.
        }
    }

    fn serve(&mut self, number: u64, events: EpollFlags) {
        // It may have been closed by an event before this one.
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let is_gone = events.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        match events.contains(EpollFlags::EPOLLIN) {
            // What it sent before it went is still worth reading.
            true => {
                if let Err(error) = connection.receive() {
                    return self.close(number, &error.to_string());
                }
            }
            false if is_gone => return self.close(number, "the other end is gone"),
            false => {}
        }
        self.proceed(number);
    }

    /// Sends what waits, and takes the next calls as far as their answers can be sent.
    fn proceed(&mut self, number: u64) {
        loop {
            let Some(connection) = self.connections.get_mut(&number) else { return };
            if let Err(error) = connection.send() {
                return self.close(number, &error.to_string());
            }
            if connection.has_output() {
                break;
            }
            if let Turn::Watching { seen } = connection.turn {
                match self.bridge.newest() {
                    newest if newest.status.tick > seen => {
                        connection.show(&newest, newest.status.tick - seen - 1);
                        continue;
                    }
                    _ => break,
                }
            }
            if connection.turn != Turn::Idle {
                break;
            }
            let call = match connection.next_call() {
                Ok(Some(call)) => call,
                Ok(None) if connection.has_ended() => return self.close(number, "it is done"),
                Ok(None) => break,
                Err(error) => return self.expel(number, &error.to_string()),
            };
            let newest = self.bridge.newest();
            let reply = answer::answer(&call, &connection.peer, &newest);
            match reply {
                Reply::None => {}
                Reply::Once(message) => connection.queue(message),
                Reply::Watch => {
                    connection.turn = Turn::Watching { seen: newest.status.tick };
                    connection.show(&newest, 0);
                }
                Reply::Ask(command) => self.ask(number, command, call.oneway),
            }
        }
        self.settle(number);
    }

    /// Passes a command on; its connection waits for the answer.
    fn ask(&mut self, number: u64, command: super::bridge::Command, oneway: bool) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match self.bridge.ask(ticket, command) {
            Ok(()) if oneway => {}
            Ok(()) => {
                connection.turn = Turn::Waiting;
                self.tickets.insert(ticket, number);
            }
            Err(_) if oneway => {}
            Err(busy) => connection.queue(answer::refusal(&busy)),
        }
    }

    /// Tells epoll what a connection waits for, and keeps the waiting answers within their limit.
    fn settle(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut interest = EpollFlags::empty();
        interest.set(EpollFlags::EPOLLIN, connection.wants_input());
        interest.set(EpollFlags::EPOLLOUT, connection.has_output());
        if connection.interest != interest {
            connection.interest = interest;
            let mut event = EpollEvent::new(interest, number);
            if let Err(errno) = self.epoll.modify(connection.stream(), &mut event) {
                return self.close(number, errno.desc());
            }
        }
        while let Some(longest_waiting) = self.beyond_waiting_limit() {
            self.expel(longest_waiting, "too many answers wait to be taken");
        }
    }

    /// The connection that waits longest, where too much waits.
    fn beyond_waiting_limit(&self) -> Option<u64> {
        let waiting: Vec<(&u64, &Connection)> =
            self.connections.iter().filter(|(_, connection)| connection.has_output()).collect();
        let mut texts: Vec<(usize, usize)> =
            waiting.iter().flat_map(|(_, connection)| connection.waiting_texts()).collect();
        texts.sort_unstable();
        texts.dedup();
        let bytes: usize = texts.iter().map(|(_, length)| length).sum();
        let largest = texts.iter().map(|(_, length)| *length).max().unwrap_or(0);
        let longest = waiting.iter().min_by_key(|(_, connection)| connection.queued_at())?;
        (bytes - largest > self.limits.waiting_bytes).then_some(*longest.0)
    }

    // --- the agent ---

    fn look_at_agent(&mut self) {
        self.bridge.calm();
        self.pass_on_answers();
        let watching = |c: &Connection| matches!(c.turn, Turn::Watching { .. }) && !c.has_output();
        let watchers: Vec<u64> =
            self.connections.iter().filter(|(_, c)| watching(c)).map(|(n, _)| *n).collect();
        for number in watchers {
            self.proceed(number);
        }
    }

    fn pass_on_answers(&mut self) {
        while let Some((ticket, answer)) = self.bridge.next_answer() {
            let Some(number) = self.tickets.remove(&ticket) else { continue };
            // Whoever asked may have gone meanwhile.
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            connection.turn = Turn::Idle;
            connection.queue(match answer {
                Ok(parameters) => answer::once(&parameters),
                Err(error) => answer::refusal(&error),
            });
            self.proceed(number);
        }
    }
}

/// An error that is worth a reply and no more.
impl From<CallError> for Reply {
    fn from(error: CallError) -> Reply {
        Reply::Once(answer::refusal(&error))
    }
}
