//! The socket thread: all connections behind one epoll.
//!
//! **Problem.** Clients are many, slow, dead or hostile, and none of that may delay a tick. **Answer.** A
//! separate thread that never blocks on a client: it sleeps in epoll until a client connects, a request
//! arrives, a client has room for output, the agent publishes, or a deadline passes. Replies come from the last
//! published tick ([`super::bridge`]); commands go to the agent and their answers return. A call whose
//! permission depends on a look-up is kept until the account is known ([`super::peers`]), and only its client
//! waits.
//!
//! **Turns.** One call is answered between two looks at epoll. Connections with a call wait in turns of their
//! users, root first ([`super::turns`]). So a user waits for the own calls and for one call of each other user,
//! whatever the number and cost of theirs. Replies that grow with the policy are serialised once per policy or
//! tick ([`super::bridge`]).
//!
//! **Limits.**
//! - connections in total and per user, some reserved for root and for members of the group, including calls in flight of closed ones
//!   ([`super::tickets`]);
//! - the length of a request ([`super::wire`]), and the time from its first byte to its last;
//! - one call of a connection at a time, even `oneway`, so that a client with a thousand calls is read only as
//!   fast as it takes replies and the agent takes calls;
//! - the pending replies of all connections together;
//! - the time in which a client takes no byte of a reply, and the time between two calls.
//!
//! A connection that exceeds a limit is closed, the longest waiting first, and logged ([`super::limit_log`]). A
//! waiting job's connection does not count here: the queue bounds their number, per tenant and per user.
//!
//! **Watchers** get the last tick when they have room for it, with the number of skipped ticks. They have no
//! deadline: a paused pager keeps its connection. Per watcher the server holds only the frame in transit,
//! within the limit of all pending replies: all watchers share the serialised status.
//!
//! **Properties** (`tests/varlink/server.rs`, `tests/varlink/hostile.rs`): everything has a limit; clients
//! within the limits are answered however many exceed them; a tick does not wait.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use tracing::{debug, info, warn};

use tenantd_policy::accounts::ranges::Owners;

use super::answer::{self, Reply};
use super::bridge::{Command, Delivery, JobCall, SocketEnd, Submission};
use super::connection::{Connection, Turn};
use super::descriptors::Reserve;
use super::inbox::Entry;
use super::limit_log::LimitLog;
pub use super::limits::Limits;
use super::listen::Listener;
use super::peers::{self, Admit, Membership, Peer};
use super::room::{Place, Room, room};
use super::tickets::Tickets;
use super::turns::Turns;
use super::wire::Call;

/// Identifies the peer of a connection, and the account for which it is counted.
pub type Identify = fn(&UnixStream, &mut Owners) -> io::Result<(Peer, u32)>;

const LISTENER: u64 = 0;
const BRIDGE: u64 = 1;
/// First number of a connection; none is reused.
const FIRST_CONNECTION: u64 = 2;

const EVENTS_MAX: usize = 64;
const ANSWERS_MAX: usize = 64;
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
    identify: Identify,
    admit: Admit,
    owners: Owners,
    connections: HashMap<u64, Connection>,
    next_number: u64,
    ready: Turns<u64>,
    tickets: Tickets,
    accepts_again: Option<Instant>,
    accept_failed: bool,
    limit_log: LimitLog,
}

impl Server {
    /// Creates a server on `listener` for data published over `bridge`.
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
            identify: peers::identify,
            admit: peers::membership,
            owners: Owners::of(Path::new("/")),
            connections: HashMap::new(),
            next_number: FIRST_CONNECTION,
            ready: Turns::default(),
            tickets: Tickets::default(),
            accepts_again: None,
            accept_failed: false,
            limit_log: LimitLog::default(),
        })
    }

    /// Replaces the identification of peers: a test plays many users.
    #[must_use]
    pub fn identified_by(self, identify: Identify) -> Server {
        Server { identify, ..self }
    }

    /// Replaces the decision on the membership of peers, likewise.
    #[must_use]
    pub fn admitting(self, admit: Admit) -> Server {
        Server { admit, ..self }
    }

    /// Serves until the agent stops.
    ///
    /// # Errors
    /// The kernel refused epoll_wait(2).
    pub fn run(mut self) -> io::Result<()> {
        while !self.bridge.is_stopped() {
            self.turn()?;
        }
        // Delivers the answer to the last command if its client has room.
        while self.deliver_answers() {}
        Ok(())
    }

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
        self.answer_next();
        self.close_late();
        Ok(())
    }

    fn timeout(&self) -> EpollTimeout {
        if !self.ready.is_empty() {
            return EpollTimeout::ZERO;
        }
        let deadlines = self.connections.values().filter_map(|c| self.deadline(c));
        let Some(first) = deadlines.chain(self.accepts_again).min() else {
            return EpollTimeout::NONE;
        };
        let left = first.saturating_duration_since(Instant::now());
        // Rounded up: rounding down would wake the thread repeatedly before the deadline.
        let msec = u16::try_from(left.as_millis() + 1).unwrap_or(u16::MAX);
        EpollTimeout::from(msec)
    }

    fn deadline(&self, connection: &Connection) -> Option<Instant> {
        let request = connection.request_began().map(|began| began + self.limits.request_time);
        let last_taken = connection.last_taken().filter(|_| !connection.is_watching());
        let taken = last_taken.map(|last| last + self.limits.answer_time);
        let may_idle = connection.is_watching() || connection.account == 0;
        let idle = connection.idle_since().filter(|_| !may_idle);
        let idle = idle.map(|since| since + self.limits.idle_time);
        request.into_iter().chain(taken).chain(idle).min()
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
            self.close_over_limit(
                number,
                "its request, its reading of a reply or its next call took too long",
            );
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
            let mut accepted = self.listener.socket.accept();
            let is_full = |error: &io::Error| {
                matches!(error.raw_os_error().map(Errno::from_raw), Some(Errno::EMFILE))
            };
            let mut is_reserved = false;
            if accepted.as_ref().is_err_and(is_full) {
                // Clients before root in the queue are refused, so that root gets its turn.
                let _reserve = Reserve::open();
                accepted = self.listener.socket.accept();
                is_reserved = true;
            }
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(error) => {
                    // Retried ten times a second.
                    self.note_refused_accept(&error);
                    self.accepts_again = Some(Instant::now() + ACCEPT_PAUSE);
                    self.listen(EpollFlags::empty());
                    return;
                }
            };
            if is_reserved {
                if !Peer::of(&stream).is_ok_and(|peer| peer.uid == 0) {
                    self.note_refused_accept(&Errno::EMFILE.into());
                    continue;
                }
            } else if std::mem::replace(&mut self.accept_failed, false) {
                info!("connections are accepted again");
            }
            let Ok((peer, account)) = (self.identify)(&stream, &mut self.owners) else { continue };
            let membership = (self.admit)(&peer, self.listener.group);
            let is_member = membership == Membership::Member;
            match room(&self.limits, (account, is_member), &self.places()) {
                Room::Free => {}
                Room::Instead(number) => self.close_over_limit(
                    number,
                    "all places are taken, and it was idle longest of the user with the most connections",
                ),
                Room::Full => {
                    self.limit_log.record(peer, "refused a connection: too many are open");
                    continue;
                }
            }
            let number = self.next_number;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, number);
            if stream.set_nonblocking(true).is_ok() && self.epoll.add(&stream, event).is_ok() {
                self.next_number += 1;
                let (peer, max_bytes) = ((peer, membership), self.limits.request_bytes);
                let connection = Connection::new(stream, peer, account, max_bytes);
                self.connections.insert(number, connection);
            }
        }
    }

    /// Logs once that connections are refused.
    fn note_refused_accept(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.accept_failed, true) {
            warn!("cannot accept connections: {error}");
        }
    }

    /// The places that are taken: connections but for those of jobs that wait, and calls in flight of the others.
    fn places(&self) -> Vec<Place> {
        let is_job = |connection: &Connection| matches!(connection.turn, Turn::Submitted(_));
        let open = self.connections.iter().filter(|(_, connection)| !is_job(connection));
        let open = open.map(|(number, connection)| {
            let idle = connection.idle_since().map(|it| (*number, it, connection.is_watching()));
            Place { account: connection.account, idle }
        });
        let is_counted = |number| self.connections.get(&number).is_none_or(is_job);
        let in_flight = self.tickets.unanswered(is_counted);
        open.chain(in_flight.map(|account| Place { account, idle: None })).collect()
    }

    /// Forgets a connection. A job whose client has gone leaves the queue.
    fn remove(&mut self, number: u64) -> Option<Connection> {
        let connection = self.connections.remove(&number)?;
        let account = connection.account;
        if connection.is_queued {
            self.ready.remove(account, |queued| *queued == number);
        }
        match connection.turn {
            Turn::Submitted(ticket) | Turn::Parked(ticket) => {
                if self.bridge.leave(account, ticket) {
                    self.tickets.withdraw(ticket)
                } else {
                    self.tickets.close(ticket)
                }
            }
            Turn::Waiting(ticket) => self.tickets.close(ticket),
            Turn::Idle | Turn::Watching { .. } | Turn::WatchingJobs { .. } => {}
        }
        Some(connection)
    }

    fn close_over_limit(&mut self, number: u64, why: &str) {
        if let Some(connection) = self.remove(number) {
            self.limit_log.record(connection.peer, &format!("closed a connection: {why}"));
        }
    }

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
        if events.contains(EpollFlags::EPOLLIN) && connection.wants_input() {
            if let Err(error) = connection.receive() {
                return self.close(number, &error.to_string());
            }
        } else if has_hung_up {
            // Calls that arrived before the hangup are still executed.
            let has_calls = connection.is_queued || matches!(connection.turn, Turn::Waiting(_));
            if !has_calls || self.epoll.delete(connection.stream()).is_err() {
                return self.close(number, "the client hung up");
            }
            connection.interest = None;
        }
        self.advance(number);
    }

    /// Sends pending output and new frames, and queues the connection if a call of it may be complete.
    fn advance(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut outcome = connection.send();
        if outcome.is_ok() && !connection.has_output() && connection.is_watching() {
            let newest = self.bridge.newest();
            if connection.show_newer(&newest) {
                outcome = connection.send();
            }
        }
        if let Err(error) = outcome {
            return self.close(number, &error.to_string());
        }
        if connection.needs_turn() {
            connection.is_queued = true;
            self.ready.push(connection.account, number);
        }
        self.settle(number);
    }

    fn answer_next(&mut self) {
        let Some((account, number)) = self.ready.pop() else { return };
        let begin = Instant::now();
        self.answer_one(number);
        self.ready.charge(account, begin.elapsed());
    }

    fn answer_one(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        connection.is_queued = false;
        match connection.next_call() {
            Ok(Some(call)) => self.answer(number, call),
            Ok(None) if connection.has_ended() => {
                return self.close(number, "the client closed it");
            }
            Ok(None) if connection.interest.is_some() => return self.settle(number),
            Ok(None) => {
                // Its client has hung up, and epoll does not report the rest of its input.
                if let Err(error) = connection.receive() {
                    return self.close(number, &error.to_string());
                }
            }
            Err(error) => return self.close_over_limit(number, &error.to_string()),
        }
        self.advance(number);
    }

    fn answer(&mut self, number: u64, call: Call) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let newest = self.bridge.newest();
        match answer::answer(&call, &connection.peer, connection.membership, &newest) {
            Reply::Later => connection.keep_call(call),
            Reply::None => {}
            Reply::Once(message) => connection.queue(message),
            Reply::Watch => connection.show(&newest, 0),
            Reply::WatchJobs(viewer) => connection.show_jobs(&newest, viewer),
            Reply::Ask(command) => self.ask(number, command, call.oneway),
            Reply::Submit(submission) => self.submit(number, submission),
            // No client reads the end of the job.
            Reply::Job(JobCall::Wait(..)) if call.oneway => {}
            Reply::Job(job_call) => {
                let account = connection.account;
                let ticket = self.tickets.issue(number, account);
                connection.turn = match &job_call {
                    JobCall::Wait(..) => Turn::Parked(ticket),
                    _ => Turn::Waiting(ticket),
                };
                let call = Entry { ticket, call: job_call, oneway: call.oneway };
                self.bridge.call(account, call);
            }
        }
    }

    fn ask(&mut self, number: u64, command: Command, oneway: bool) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let account = connection.account;
        let ticket = self.tickets.issue(number, account);
        match self.bridge.ask(account, Entry { ticket, call: command, oneway }) {
            Ok(()) => connection.turn = Turn::Waiting(ticket),
            Err(busy) => {
                self.tickets.withdraw(ticket);
                if !oneway {
                    connection.queue(answer::refusal(&busy));
                }
            }
        }
    }

    fn submit(&mut self, number: u64, mut submission: Box<Submission>) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        if connection.interest.is_none() {
            return self.close(number, "its client hung up before the job was submitted");
        }
        match peers::process(connection.stream()) {
            Ok(process) => submission.process = process.map(Arc::new),
            Err(error) => return self.close(number, &format!("its process has ended: {error}")),
        }
        let account = connection.account;
        let ticket = self.tickets.issue(number, account);
        connection.turn = Turn::Submitted(ticket);
        self.bridge
            .call(account, Entry { ticket, call: JobCall::Submit(submission), oneway: false });
    }

    /// Updates the events of a connection, and enforces the limit of pending replies.
    fn settle(&mut self, number: u64) {
        let Some(connection) = self.connections.get_mut(&number) else { return };
        let mut interest = EpollFlags::empty();
        interest.set(EpollFlags::EPOLLIN, connection.wants_input());
        interest.set(EpollFlags::EPOLLOUT, connection.has_output());
        if connection.interest.is_some_and(|known| known != interest) {
            connection.interest = Some(interest);
            let mut event = EpollEvent::new(interest, number);
            if let Err(errno) = self.epoll.modify(connection.stream(), &mut event) {
                return self.close(number, errno.desc());
            }
        }
        while let Some(longest_waiting) = self.over_pending_limit() {
            self.close_over_limit(longest_waiting, "too many replies are pending");
        }
    }

    /// Longest waiting connection, if too many bytes are pending.
    fn over_pending_limit(&self) -> Option<u64> {
        let waiting: Vec<(&u64, &Connection)> =
            self.connections.iter().filter(|(_, connection)| connection.has_output()).collect();
        let mut texts: Vec<(usize, usize)> =
            waiting.iter().flat_map(|(_, connection)| connection.pending_texts()).collect();
        texts.sort_unstable();
        texts.dedup();
        let bytes: usize = texts.iter().map(|(_, length)| length).sum();
        let largest = texts.iter().map(|(_, length)| *length).max().unwrap_or(0);
        let longest = waiting.iter().min_by_key(|(_, connection)| connection.oldest_output())?;
        (bytes - largest > self.limits.pending_bytes).then_some(*longest.0)
    }

    // --- the agent ---

    fn handle_bridge(&mut self) {
        self.bridge.clear_wake();
        if self.deliver_answers() {
            self.bridge.stay_awake();
        }
        let watching = |c: &Connection| c.is_watching() && !c.has_output();
        let watchers: Vec<u64> =
            self.connections.iter().filter(|(_, c)| watching(c)).map(|(n, _)| *n).collect();
        for number in watchers {
            self.advance(number);
        }
        self.queue_kept_calls();
    }

    /// Queues calls that wait for an account, because an answer may have come.
    fn queue_kept_calls(&mut self) {
        let keeps = |c: &Connection| c.keeps_call() && !c.is_queued;
        for (number, connection) in self.connections.iter_mut().filter(|(_, c)| keeps(c)) {
            connection.is_queued = true;
            self.ready.push(connection.account, *number);
        }
    }

    /// Delivers answers of the agent. Returns true if there may be more.
    fn deliver_answers(&mut self) -> bool {
        for _ in 0..ANSWERS_MAX {
            let Some(delivery) = self.bridge.next_answer() else { return false };
            let Delivery { ticket, answer, continues } = delivery;
            // The connection may have been closed meanwhile.
            let Some(number) = self.tickets.answered(ticket, continues) else { continue };
            let Some(connection) = self.connections.get_mut(&number) else { continue };
            if !continues {
                connection.turn = Turn::Idle;
            }
            if let Some(answer) = answer {
                connection.queue_answer(answer, continues);
            }
            self.advance(number);
        }
        true
    }
}
