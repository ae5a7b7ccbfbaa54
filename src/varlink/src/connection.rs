//! One connection: its input, its output, and its turn.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::epoll::EpollFlags;

use super::answer::{self, Message};
use super::bridge::{Answer, Published, Ticket, Viewer};
use super::peers::{Membership, Peer};
use super::wire::{Call, Framer, WireError};

/// Most bytes read before other connections are served.
const READ_MAX_BYTES: usize = 16 << 10;
const PIECES_MAX: usize = 8;

/// Side with the next move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    Idle,
    /// The agent has to answer, or to take a `oneway` call.
    Waiting(Ticket),
    Watching {
        seen: u64,
    },
    WatchingJobs {
        seen: u64,
        viewer: Viewer,
    },
    Submitted(Ticket),
    /// The agent answers at the end of a job, unless the client leaves before.
    Parked(Ticket),
}

#[derive(Debug)]
struct Piece {
    text: Arc<str>,
    queued_at: Instant,
}

#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    pub(super) peer: Peer,
    pub(super) membership: Membership,
    /// User for whom it is counted.
    pub(super) account: u32,
    pub(super) turn: Turn,
    /// Events that epoll reports for it; `None` once its client has hung up, so that epoll does not report
    /// that again and again while its last calls are executed.
    pub(super) interest: Option<EpollFlags>,
    /// True while a possibly complete call waits for its turn.
    pub(super) is_queued: bool,
    framer: Framer,
    kept_call: Option<Call>,
    output: VecDeque<Piece>,
    sent_bytes: usize,
    /// Time at which the client last took a byte, or the oldest piece was queued.
    last_taken: Instant,
    last_used: Instant,
    /// Arrival of the first byte of an incomplete request.
    request_began: Option<Instant>,
    ended: bool,
}

impl Connection {
    pub(super) fn new(
        stream: UnixStream,
        (peer, membership): (Peer, Membership),
        account: u32,
        request_max_bytes: usize,
    ) -> Connection {
        let now = Instant::now();
        Connection {
            stream,
            peer,
            membership,
            account,
            turn: Turn::Idle,
            interest: Some(EpollFlags::EPOLLIN),
            is_queued: false,
            framer: Framer::new(request_max_bytes),
            kept_call: None,
            output: VecDeque::new(),
            sent_bytes: 0,
            last_taken: now,
            last_used: now,
            request_began: None,
            ended: false,
        }
    }

    pub(super) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// Reads at most one piece, so that other connections get their turn.
    pub(super) fn receive(&mut self) -> io::Result<()> {
        let mut bytes = [0; READ_MAX_BYTES];
        match self.stream.read(&mut bytes) {
            Ok(0) => {
                self.ended = true;
                Ok(())
            }
            Ok(count) => {
                self.framer.push(&bytes[..count]);
                Ok(())
            }
            Err(error) if is_transient(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn keep_call(&mut self, call: Call) {
        self.kept_call = Some(call);
    }

    pub(super) fn keeps_call(&self) -> bool {
        self.kept_call.is_some()
    }

    pub(super) fn next_call(&mut self) -> Result<Option<Call>, WireError> {
        if let Some(call) = self.kept_call.take() {
            return Ok(Some(call));
        }
        if let Some(message) = self.framer.next_message()? {
            let call = Call::parse(message)?;
            // The time of the next request begins with this answer.
            self.request_began = None;
            self.last_used = Instant::now();
            return Ok(Some(call));
        }
        if self.framer.is_within_message() {
            self.request_began = Some(self.request_began.unwrap_or_else(Instant::now))
        } else {
            self.request_began = None
        }
        Ok(None)
    }

    pub(super) fn request_began(&self) -> Option<Instant> {
        self.request_began
    }

    pub(super) fn last_taken(&self) -> Option<Instant> {
        self.has_output().then_some(self.last_taken)
    }

    pub(super) fn oldest_output(&self) -> Option<Instant> {
        self.output.front().map(|piece| piece.queued_at)
    }

    pub(super) fn is_watching(&self) -> bool {
        matches!(self.turn, Turn::Watching { .. } | Turn::WatchingJobs { .. })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Begin of its idle time, or of its watch; `None` while a call or a reply is pending.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.may_call() && !self.is_queued;
        (is_idle || self.is_watching()).then_some(self.last_used)
    }

    pub(super) fn wants_input(&self) -> bool {
        self.may_call() && !self.is_queued && !self.ended
    }

    /// True if its next call would be answered: it takes the replies.
    fn may_call(&self) -> bool {
        self.turn == Turn::Idle && !self.has_output() && !self.keeps_call()
    }

    /// True if there is something for its next turn.
    pub(super) fn needs_turn(&self) -> bool {
        let has_input = self.framer.is_within_message() || self.ended || self.interest.is_none();
        self.may_call() && !self.is_queued && has_input
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    pub(super) fn queue(&mut self, message: Message) {
        let now = Instant::now();
        self.last_used = now;
        if self.output.is_empty() {
            self.last_taken = now;
        }
        self.output.extend(message.into_iter().map(|text| Piece { text, queued_at: now }));
    }

    /// Queues an answer of the agent. If it `continues`, others follow, and each replaces unread ones.
    pub(super) fn queue_answer(&mut self, answer: Answer, continues: bool) {
        match answer {
            Ok(parameters) if continues => {
                // The first piece may be sent in part.
                self.output.truncate(1);
                self.queue(answer::several(&parameters));
            }
            Ok(parameters) => self.queue(answer::once(&parameters)),
            Err(error) => self.queue(answer::refusal(&error)),
        }
    }

    /// Queues a newer frame for a watcher that has room.
    pub(super) fn show_newer(&mut self, newest: &Published) -> bool {
        match self.turn {
            Turn::Watching { seen } if newest.status.tick > seen => {
                self.show(newest, newest.status.tick - seen - 1);
            }
            Turn::WatchingJobs { seen, viewer } if newest.jobs.sequence > seen => {
                self.show_jobs(newest, viewer);
            }
            _ => return false,
        }
        true
    }

    pub(super) fn show_jobs(&mut self, newest: &Published, viewer: Viewer) {
        self.turn = Turn::WatchingJobs { seen: newest.jobs.sequence, viewer };
        self.queue(answer::several(&newest.jobs.json(viewer)));
    }

    pub(super) fn show(&mut self, newest: &Published, nr_lost: u64) {
        self.turn = Turn::Watching { seen: newest.status.tick };
        self.queue(answer::frame(newest, nr_lost));
    }

    pub(super) fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let pieces = self.output.iter().take(PIECES_MAX).enumerate().map(|(index, piece)| {
                IoSlice::new(&piece.text.as_bytes()[if index == 0 { self.sent_bytes } else { 0 }..])
            });
            let pieces: Vec<IoSlice<'_>> = pieces.collect();
            match (&self.stream).write_vectored(&pieces) {
                Ok(count) => self.take_off(count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_off(&mut self, count: usize) {
        self.last_taken = Instant::now();
        self.sent_bytes += count;
        while let Some(first) = self.output.front()
            && self.sent_bytes >= first.text.len()
        {
            self.sent_bytes -= first.text.len();
            self.output.pop_front();
        }
    }

    /// Pending texts, each by its address in memory and its length.
    pub(super) fn pending_texts(&self) -> impl Iterator<Item = (usize, usize)> {
        self.output.iter().map(|piece| (piece.text.as_ptr() as usize, piece.text.len()))
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
