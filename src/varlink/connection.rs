//! One connection: its input, its output, and whose turn it is.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use nix::sys::epoll::EpollFlags;

use super::answer::{self, Message};
use super::bridge::{Published, Ticket};
use super::peers::Peer;
use super::wire::{Call, Framer, WireError};

/// Bytes read before other connections are served.
const READ_MAX_BYTES: usize = 16 << 10;
/// Pieces in one write.
const PIECES_MAX: usize = 8;

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// The client can call.
    Idle,
    /// The agent has to answer.
    Waiting,
    /// The client gets every tick.
    Watching {
        /// The tick of the last frame.
        seen: u64,
    },
    /// The client gets each change of the jobs.
    WatchingJobs {
        /// The sequence of the last frame.
        seen: u64,
    },
    /// The client is a job that waits.
    Submitted(Ticket),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: UnixStream,
    pub(super) peer: Peer,
    pub(super) turn: Turn,
    /// The events that epoll reports for it.
    pub(super) interest: EpollFlags,
    framer: Framer,
    output: VecDeque<Arc<str>>,
    /// Bytes of the first piece that are sent already.
    sent_bytes: usize,
    /// When the client last took a byte of the output, or when the output was queued.
    last_taken: Instant,
    queued_at: Instant,
    /// When the first byte of an incomplete request arrived.
    request_began: Option<Instant>,
    /// The client has closed its side.
    ended: bool,
}

impl Connection {
    pub(super) fn new(stream: UnixStream, peer: Peer, request_max_bytes: usize) -> Connection {
        let now = Instant::now();
        Connection {
            stream,
            peer,
            turn: Turn::Idle,
            interest: EpollFlags::EPOLLIN,
            framer: Framer::new(request_max_bytes),
            output: VecDeque::new(),
            sent_bytes: 0,
            last_taken: now,
            queued_at: now,
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

    /// The next complete call.
    pub(super) fn next_call(&mut self) -> Result<Option<Call>, WireError> {
        if let Some(message) = self.framer.next_message()? {
            let call = Call::parse(message)?;
            // The time of the next request begins when this one is answered.
            self.request_began = None;
            return Ok(Some(call));
        }
        match self.framer.is_within_message() {
            true => self.request_began = Some(self.request_began.unwrap_or_else(Instant::now)),
            false => self.request_began = None,
        }
        Ok(None)
    }

    /// When the first byte of an incomplete request arrived.
    pub(super) fn request_began(&self) -> Option<Instant> {
        self.request_began
    }

    /// When the client last took a byte of the pending output.
    pub(super) fn last_taken(&self) -> Option<Instant> {
        self.has_output().then_some(self.last_taken)
    }

    pub(super) fn queued_at(&self) -> Instant {
        self.queued_at
    }

    /// Whether the client gets what is published.
    pub(super) fn is_watching(&self) -> bool {
        matches!(self.turn, Turn::Watching { .. } | Turn::WatchingJobs { .. })
    }

    /// Whether no more calls will arrive.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether input is read now.
    pub(super) fn wants_input(&self) -> bool {
        self.turn == Turn::Idle && !self.has_output() && !self.ended
    }

    pub(super) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Queues a message.
    pub(super) fn queue(&mut self, message: Message) {
        self.queued_at = Instant::now();
        self.last_taken = self.queued_at;
        self.output.extend(message);
    }

    /// Queues a frame with the jobs.
    pub(super) fn show_jobs(&mut self, newest: &Published) {
        self.turn = Turn::WatchingJobs { seen: newest.jobs.sequence };
        self.queue(answer::several(newest.jobs.json()));
    }

    /// Queues a frame with the last tick.
    pub(super) fn show(&mut self, newest: &Published, nr_lost: u64) {
        self.turn = Turn::Watching { seen: newest.status.tick };
        self.queue(answer::frame(newest, nr_lost));
    }

    /// Sends as much as the client takes.
    pub(super) fn send(&mut self) -> io::Result<()> {
        while !self.output.is_empty() {
            let pieces = self.output.iter().take(PIECES_MAX).enumerate().map(|(index, piece)| {
                IoSlice::new(&piece.as_bytes()[if index == 0 { self.sent_bytes } else { 0 }..])
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
            && self.sent_bytes >= first.len()
        {
            self.sent_bytes -= first.len();
            self.output.pop_front();
        }
    }

    /// The pending texts, each by its address in memory and its length.
    pub(super) fn pending_texts(&self) -> impl Iterator<Item = (usize, usize)> {
        self.output.iter().map(|piece| (piece.as_ptr() as usize, piece.len()))
    }
}

fn is_transient(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
