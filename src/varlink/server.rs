//! The socket thread: all connections behind one epoll.
//!
//! **Problem.** Clients are many, slow, dead or hostile, and none of that may delay a tick. **Answer.** A thread
//! of its own that never blocks on a client: it sleeps in epoll until a client connects, a request arrives, a
//! client has room for output, the agent publishes, or a deadline passes. Replies come from the last published
//! tick ([`super::bridge`]); commands go to the agent and their answers return. The thread does wait for the
//! account database ([`super::peers`]): where a user other than root asks for a change and the policy names
//! administrators, all clients wait for that lookup. Ticks never do.
//!
//! **Limits.** Connections in total and per user, some reserved for root; the length of a request
//! ([`super::wire`]); the time from its first byte to its last; one call of a connection at a time, so that a
//! client that sends a thousand calls is read only as fast as it takes the replies; the pending replies of all
//! connections together; the time in which a client takes no byte of a reply. A connection that exceeds a limit
//! is closed, the longest waiting first, and logged ([`super::limit_log`]). A connection whose client is a job that
//! waits counts for nothing here: the queue bounds their number, for each tenant and each user.
//!
//! **Watchers** get the last tick when they have room for it, with the number of ticks that were skipped. They
//! have no deadline: a paused pager keeps its connection. Per watcher the server holds only the frame in
//! transit, within the limit of all pending replies: the serialised status is shared by all.
//!
//! **Properties** (`tests/varlink/server.rs`, `tests/varlink/hostile.rs`): everything has a limit; clients within
//! the limits are answered however many exceed them; a tick does not wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tracing::{debug, info, warn};

use super::answer::{self, Reply};
use super::bridge::{Delivery, JobCall, SocketEnd, Submission, Ticket};
use super::connection::{Connection, Turn};
use super::limit_log::LimitLog;
use super::listen::Listener;
use super::peers::{self, Peer};
use super::wire::REQUEST_MAX_BYTES;

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections in total.
    pub connections: usize,
    /// Connections of the total that are reserved for root.
    pub kept_for_root: usize,
    /// Connections per user.
    pub connections_per_user: usize,
    /// Bytes of one request.
    pub request_bytes: usize,
    /// Time from the first byte of a request to its last.
    pub request_time: Duration,
    /// Time in which a client must take a byte of its reply. Watchers are exempt.
    pub answer_time: Duration,
    /// Bytes of pending replies; a shared text counts once, and the largest does not count.
    pub pending_bytes: usize,
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
            pending_bytes: 4 << 20,
        }
    }
}

const LISTENER: u64 = 0;
const BRIDGE: u64 = 1;
/// Connections have numbers from here on; none is reused.
const FIRST_CONNECTION: u64 = 2;

/// Events taken from epoll in one call.
const EVENTS_MAX: usize = 64;
/// Connections accepted before other events are handled.
const ACCEPTS_MAX: usize = 64;
/// Pause before the next accept when the process has no descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket and its connections.
#[derive(Debug)]
pub struct Server {
    epoll: Epoll,
    listener: Listener,
    bridge: SocketEnd,
    limits: Limits,
    connections: HashMap<u64, Connection>,
    next_number: u64,
    next_ticket: u64,
    /// The connections that wait for the answer to a command.
    tickets: HashMap<Ticket, u64>,
    accepts_again: Option<Instant>,
    /// Whether the last accept failed.
    accept_failed: bool,
    limit_log: LimitLog,
}

impl Server {
    /// A server on `listener` of what is published over `bridge`.
    ///
    /// # Errors
    /// The process has no descriptors left.
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
            accept_failed: false,
            limit_log: LimitLog::default(),
        })
    }

    /// Serves until the agent stops.
    ///
    /// # Errors
    /// The kernel refused epoll_wait(2).
    pub fn run(mut self) -> io::Result<()> {
        while !self.bridge.is_stopped() {
            self.turn()?;
        }
        // The answer to the last command is still delivered, if its client has room.
        self.deliver_answers();
        Ok(())
    }

    /// Waits for events and handles them.
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
                BRIDGE => self.handle_bridge(),
                number => self.serve(number, event.events()),
            }
        }
        self.close_late();
        Ok(())
    }

    /// The time to the first deadline.
    fn timeout(&self) -> EpollTimeout {
        let deadlines = self.connections.values().filter_map(|c| self.deadline(c));
        let Some(first) = deadlines.chain(self.accepts_again).min() else {
            return EpollTimeout::NONE;
        };
        let left = first.saturating_duration_since(Instant::now());
        // Rounded up: rounding down would wake the thread repeatedly before the deadline.
        let msec = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        EpollTimeout::from(msec)
    }

    /// The deadline of `connection`.
    fn deadline(&self, connection: &Connection) -> Option<Instant> {
        let request = connection.request_began().map(|began| began + self.limits.request_time);
        let last_taken = connection.last_taken().filter(|_| !connection.is_watching());
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
            self.close_over_limit(number, "its request or its reading of a reply took too long");
        }
        if self.accepts_again.is_some_and(|again| again <= now) {
            self.accepts_again = None;
            self.listen(EpollFlags::EPOLLIN);
        }
    }

    fn listen(&mut self, interest: EpollFlags) {
        let mut event = EpollEvent::new(interest, LISTENER);
        if let Err(errno) = self.epoll.modify(&self.listener.socket, &mut event) {
            warn!("cannot change what is polled on the listening socket: {}", errno.desc());
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
                    // Retried ten times a second, logged once.
                    if !std::mem::replace(&mut self.accept_failed, true) {
                        warn!("cannot accept connections: {error}");
                    }
                    self.accepts_again = Some(Instant::now() + ACCEPT_PAUSE);
                    self.listen(EpollFlags::empty());
                    return;
                }
            };
            if std::mem::replace(&mut self.accept_failed, false) {
                info!("connections are accepted again");
            }
            let Ok(peer) = Peer::of(&stream) else { continue };
            if !self.has_room_for(peer) {
                self.limit_log.record(peer, "refused a connection: too many are open");
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
        let is_counted = |c: &&Connection| !matches!(c.turn, Turn::Submitted(_));
        let (mut nr_open, mut of_user) = (0, 0);
        for connection in self.connections.values().filter(is_counted) {
            nr_open += 1;
            of_user += usize::from(connection.peer.uid == peer.uid);
        }
        let all = match peer.uid {
            0 => self.limits.connections,
            _ => self.limits.connections.saturating_sub(self.limits.kept_for_root),
        };
        of_user < self.limits.connections_per_user && nr_open < all
    }

    /// Forgets a connection. A job whose client has gone leaves the queue.
    fn remove(&mut self, number: u64) -> Option<Connection> {
        let connection = self.connections.remove(&number)?;
        if let Turn::Submitted(ticket) = connection.turn {
            self.tickets.remove(&ticket);
            self.bridge.call(JobCall::Left(ticket));
        }
        Some(connection)
    }

    /// Closes a connection that exceeds a limit, and logs it.
    fn close_over_limit(&mut self, number: u64, why: &str) {
        if let Some(connection) = self.remove(number) {
            self.limit_log.record(connection.peer, &format!("closed a connection: {why}"));
        }
    }

    /// Closes a connection that has ended.
    fn close(&mut self, number: u64, why: &str) {
        if let Some(connection) = self.remove(number) {
            debug!(uid = connection.peer.uid, pid = connection.peer.pid, "closed: {why}");
            // Closing the only descriptor also removes it from the epoll.
        }
    }

    fn serve(&mut self, number: u64, events: EpollFlags) {
        // An earlier event of this turn may have closed it.
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let has_hung_up = events.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        match events.contains(EpollFlags::EPOLLIN) {
            // Calls that arrived before the hangup are still answered.
            true => {
                if let Err(error) = connection.receive() {
                    return self.close(number, &error.to_string());
                }
            }
            false if has_hung_up => return self.close(number, "the client hung up"),
            false => {}
        }
        self.proceed(number);
    }

    /// Sends pending output, and answers calls until output is pending.
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
            if let Turn::WatchingJobs { seen } = connection.turn {
                match self.bridge.newest() {
                    newest if newest.jobs.sequence > seen => {
                        connection.show_jobs(&newest);
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
                Ok(None) if connection.has_ended() => {
                    return self.close(number, "the client closed it");
                }
                Ok(None) => break,
                Err(error) => return self.close_over_limit(number, &error.to_string()),
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
                Reply::WatchJobs => connection.show_jobs(&newest),
                Reply::Ask(command) => self.ask(number, command, call.oneway),
                Reply::Submit(submission) => self.submit(number, submission),
                Reply::Cancel(id, caller) => {
                    let ticket = self.ticket();
                    if !call.oneway {
                        self.wait_for(number, ticket, Turn::Waiting);
                    }
                    self.bridge.call(JobCall::Cancel(ticket, id, caller));
                }
            }
        }
        self.settle(number);
    }

    /// Queues a command; its connection waits for the answer.
    fn ask(&mut self, number: u64, command: super::bridge::Command, oneway: bool) {
        let ticket = self.ticket();
        match self.bridge.ask(ticket, command) {
            _ if oneway => {}
            Ok(()) => self.wait_for(number, ticket, Turn::Waiting),
            Err(busy) => {
                if let Some(connection) = self.connections.get_mut(&number) {
                    connection.queue(answer::refusal(&busy));
                }
            }
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// The connection waits for the answer to `ticket`.
    fn wait_for(&mut self, number: u64, ticket: Ticket, turn: Turn) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.turn = turn;
            self.tickets.insert(ticket, number);
        }
    }

    /// Submits the client as a job; its connection gets the answers.
    fn submit(&mut self, number: u64, mut submission: Box<Submission>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        match peers::process(connection.stream()) {
            Ok(process) => submission.process = process.map(Arc::new),
            Err(error) => return self.close(number, &format!("its process has ended: {error}")),
        }
        let ticket = self.ticket();
        self.wait_for(number, ticket, Turn::Submitted(ticket));
        self.bridge.call(JobCall::Submit(ticket, submission));
    }

    /// Updates the events of a connection, and enforces the limit of pending replies.
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
        while let Some(longest_waiting) = self.over_pending_limit() {
            self.close_over_limit(longest_waiting, "too many replies are pending");
        }
    }

    /// The connection that waits longest, where too many bytes are pending.
    fn over_pending_limit(&self) -> Option<u64> {
        let waiting: Vec<(&u64, &Connection)> =
            self.connections.iter().filter(|(_, connection)| connection.has_output()).collect();
        let mut texts: Vec<(usize, usize)> =
            waiting.iter().flat_map(|(_, connection)| connection.pending_texts()).collect();
        texts.sort_unstable();
        texts.dedup();
        let bytes: usize = texts.iter().map(|(_, length)| length).sum();
        let largest = texts.iter().map(|(_, length)| *length).max().unwrap_or(0);
        let longest = waiting.iter().min_by_key(|(_, connection)| connection.queued_at())?;
        (bytes - largest > self.limits.pending_bytes).then_some(*longest.0)
    }

    // --- the agent ---

    fn handle_bridge(&mut self) {
        self.bridge.clear_wake();
        self.deliver_answers();
        let watching = |c: &Connection| c.is_watching() && !c.has_output();
        let watchers: Vec<u64> =
            self.connections.iter().filter(|(_, c)| watching(c)).map(|(n, _)| *n).collect();
        for number in watchers {
            self.proceed(number);
        }
    }

    fn deliver_answers(&mut self) {
        while let Some(Delivery { ticket, answer, continues }) = self.bridge.next_answer() {
            let Some(number) = self.tickets.get(&ticket).copied() else { continue };
            if !continues {
                self.tickets.remove(&ticket);
            }
            // The connection may have been closed meanwhile.
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            if !continues {
                connection.turn = Turn::Idle;
            }
            connection.queue(match answer {
                Ok(parameters) if continues => answer::several(&parameters),
                Ok(parameters) => answer::once(&parameters),
                Err(error) => answer::refusal(&error),
            });
            self.proceed(number);
        }
    }
}
