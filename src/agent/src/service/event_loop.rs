//! One thread that sleeps until the next tick or event.
//!
//! Kernel files are read and written synchronously in any runtime, so epoll is enough: a timer for the tick,
//! socket pairs for signal handlers, the descriptor of the socket's thread, and the policy's directory. The
//! timer of the tick is monotonic and absolute, so ticks do not drift. Missed ticks (a suspended machine) are
//! not repeated.
//!
//! Urgent events come first: stop, then tick, then changes. A queue of changes thus delays a tick by at most
//! one change of each kind. If ticks take longer than the interval, a tick is always due; so events deferred
//! for one tick are handled once before the next.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Event that woke the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// SIGTERM or SIGINT arrived.
    Stop,
    /// A tick is due.
    Tick {
        /// Delay of the tick.
        late: Duration,
    },
    /// SIGHUP arrived.
    Reload,
    /// A change was requested on the socket.
    Command,
    /// The policy's directory changed.
    Files,
    /// The policy's files have not changed for a while after an event.
    Settled,
    /// The watchdog of the service manager must be notified.
    Watchdog,
    /// Jobs need attention.
    Jobs,
}

/// A source of events, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
enum Token {
    Stop,
    Tick,
    Watchdog,
    Jobs,
    Reload,
    Command,
    Files,
    Settled,
}

impl Token {
    const ALL: [Token; 8] = [
        Token::Stop,
        Token::Tick,
        Token::Watchdog,
        Token::Jobs,
        Token::Reload,
        Token::Command,
        Token::Files,
        Token::Settled,
    ];
}

/// Timers and signals, behind one epoll.
#[derive(Debug)]
pub struct EventLoop {
    epoll: Epoll,
    tick: TimerFd,
    watchdog: TimerFd,
    settled: TimerFd,
    stop: UnixStream,
    reload: UnixStream,
    turns: Turns,
    interval: Duration,
    due: Instant,
}

#[derive(Debug, Default)]
struct Turns {
    owed: VecDeque<Token>,
}

impl Turns {
    /// Returns the most urgent of the `ready` and the deferred events; `None` if there is none.
    fn next(&mut self, ready: &[Token]) -> Option<Token> {
        if ready.first() == Some(&Token::Stop) {
            return Some(Token::Stop);
        }
        if let Some(token) = self.owed.pop_front() {
            return Some(token);
        }
        let token = *ready.first()?;
        if token == Token::Tick {
            self.owed.extend(&ready[1..]);
        }
        Some(token)
    }
}

impl EventLoop {
    /// Makes a loop that wakes at once and then every `interval`.
    pub fn new(interval: Duration) -> io::Result<EventLoop> {
        let stop = on_signals(&[SIGTERM, SIGINT])?;
        let reload = on_signals(&[SIGHUP])?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let (tick, watchdog, settled) = (timer()?, timer()?, timer()?);
        add(&epoll, &stop, Token::Stop)?;
        add(&epoll, &tick, Token::Tick)?;
        add(&epoll, &watchdog, Token::Watchdog)?;
        add(&epoll, &reload, Token::Reload)?;
        add(&epoll, &settled, Token::Settled)?;
        let due = Instant::now();
        let turns = Turns::default();
        let mut events =
            EventLoop { epoll, tick, watchdog, settled, stop, reload, turns, interval, due };
        events.tick_every(interval)?;
        Ok(events)
    }

    /// Ticks at once, and then every `interval`.
    pub fn tick_every(&mut self, interval: Duration) -> io::Result<()> {
        set_interval(&self.tick, Duration::from_nanos(1), interval)?;
        self.interval = interval;
        self.due = Instant::now();
        Ok(())
    }

    /// Wakes with [`Wake::Watchdog`] every `interval`.
    pub fn watch_every(&mut self, interval: Duration) -> io::Result<()> {
        set_interval(&self.watchdog, interval, interval)
    }

    /// Wakes with [`Wake::Settled`] once, `after` from now; replaces an earlier call.
    pub fn settle(&mut self, after: Duration) -> io::Result<()> {
        let once = Expiration::OneShot(TimeSpec::from_duration(after));
        Ok(self.settled.set(once, TimerSetTimeFlags::empty())?)
    }

    /// Wakes with [`Wake::Command`] while `descriptor` is readable.
    pub fn add_commands(&self, descriptor: &impl AsFd) -> io::Result<()> {
        add(&self.epoll, descriptor, Token::Command)
    }

    /// Wakes with [`Wake::Jobs`] while `descriptor` is readable.
    pub fn add_jobs(&self, descriptor: &impl AsFd) -> io::Result<()> {
        add(&self.epoll, descriptor, Token::Jobs)
    }

    /// Wakes with [`Wake::Files`] while `descriptor` is readable. Closing the descriptor ends the watch.
    pub fn add_files(&self, descriptor: &impl AsFd) -> io::Result<()> {
        add(&self.epoll, descriptor, Token::Files)
    }

    /// Sleeps until an event, and returns the most urgent one.
    pub fn wait(&mut self) -> io::Result<Wake> {
        loop {
            let timeout =
                if self.turns.owed.is_empty() { EpollTimeout::NONE } else { EpollTimeout::ZERO };
            if let Some(wake) = self.next(timeout)? {
                return Ok(wake);
            }
        }
    }

    /// Returns the most urgent pending event; `None` if there is none.
    pub fn poll(&mut self) -> io::Result<Option<Wake>> {
        self.next(EpollTimeout::ZERO)
    }

    fn next(&mut self, timeout: EpollTimeout) -> io::Result<Option<Wake>> {
        let ready = self.ready(timeout)?;
        self.turns.next(&ready).map_or(Ok(None), |token| self.woken_by(token))
    }

    fn ready(&self, timeout: EpollTimeout) -> io::Result<Vec<Token>> {
        let mut events = [EpollEvent::empty(); Token::ALL.len()];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let is_ready =
            |token: &Token| events[..count].iter().any(|event| event.data() == *token as u64);
        Ok(Token::ALL.into_iter().filter(is_ready).collect())
    }

    fn woken_by(&mut self, token: Token) -> io::Result<Option<Wake>> {
        Ok(match token {
            Token::Stop => {
                drain(&mut self.stop);
                Some(Wake::Stop)
            }
            Token::Reload => {
                drain(&mut self.reload);
                Some(Wake::Reload)
            }
            Token::Tick => expired(&self.tick)?.then(|| Wake::Tick { late: self.be_due() }),
            Token::Watchdog => expired(&self.watchdog)?.then_some(Wake::Watchdog),
            Token::Settled => expired(&self.settled)?.then_some(Wake::Settled),
            Token::Command => Some(Wake::Command),
            Token::Jobs => Some(Wake::Jobs),
            Token::Files => Some(Wake::Files),
        })
    }

    /// Returns the delay of the tick that begins now, and sets the time of the next.
    fn be_due(&mut self) -> Duration {
        let late = self.due.elapsed();
        let missed = late.as_nanos() / self.interval.as_nanos().max(1);
        self.due += self.interval * (u32::try_from(missed).unwrap_or(u32::MAX - 1) + 1);
        late
    }
}

/// Stream that becomes readable when one of `signals` arrives.
fn on_signals(signals: &[i32]) -> io::Result<UnixStream> {
    let (reader, writer) = UnixStream::pair()?;
    reader.set_nonblocking(true)?;
    for signal in signals {
        signal_hook::low_level::pipe::register(*signal, writer.try_clone()?)?;
    }
    Ok(reader)
}

fn timer() -> io::Result<TimerFd> {
    let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
    Ok(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?)
}

fn set_interval(timer: &TimerFd, first: Duration, every: Duration) -> io::Result<()> {
    let (first, every) = (TimeSpec::from_duration(first), TimeSpec::from_duration(every));
    Ok(timer.set(Expiration::IntervalDelayed(first, every), TimerSetTimeFlags::empty())?)
}

fn add(epoll: &Epoll, descriptor: &impl AsFd, token: Token) -> io::Result<()> {
    Ok(epoll.add(descriptor, EpollEvent::new(EpollFlags::EPOLLIN, token as u64))?)
}

/// The number of signals does not matter.
fn drain(stream: &mut UnixStream) {
    let mut bytes = [0; 64];
    while matches!(stream.read(&mut bytes), Ok(count) if count > 0) {}
}

fn expired(timer: &TimerFd) -> io::Result<bool> {
    match timer.wait() {
        Ok(()) => Ok(true),
        Err(Errno::EAGAIN) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Token::{Command, Files, Reload, Settled, Stop, Tick};

    #[test]
    fn permanently_due_ticks_starve_no_event() {
        let mut turns = Turns::default();
        let mut next = |ready: &[Token]| turns.next(ready).unwrap();
        let ready = [Tick, Reload, Command, Settled];
        let taken: Vec<Token> = (0..9).map(|_| next(&ready)).collect();
        let round = [Tick, Reload, Command, Settled];
        assert_eq!(taken, [&round[..], &round[..], &[Tick]].concat());
        // Events after the tick wait for the next one.
        assert_eq!([next(&[Tick, Files]), next(&[Tick, Files])], [Reload, Command]);
        assert_eq!([next(&[Tick, Files]), next(&[Tick, Files])], [Settled, Tick]);
        // A stop is never deferred.
        assert_eq!(next(&[Stop, Tick]), Stop);
        assert_eq!([next(&[Tick]), next(&[Tick])], [Files, Tick]);
        assert_eq!(turns.next(&[]), None);
    }

    #[test]
    fn urgent_events_precede_ticks_that_are_not_due() {
        let mut turns = Turns::default();
        for _ in 0..3 {
            assert_eq!(turns.next(&[Reload, Files]), Some(Reload));
        }
        assert_eq!(turns.next(&[Files]), Some(Files));
    }
}
