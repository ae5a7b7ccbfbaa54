//! One thread that sleeps until it is time, or until it is told to stop.
//!
//! Reads and writes of kernel files are synchronous whatever runtime calls them, so there is nothing to gain
//! from more than epoll: a timer for the tick, and a socket pair that signal handlers write to. The timer is
//! monotonic and absolute, so ticks do not drift; ticks that were missed (a suspended machine) are not made
//! up for.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing::info;

use super::agent::Agent;
use crate::host::kernfs::KernFs;

const TIMER: u64 = 0;
const SIGNAL: u64 = 1;

/// What woke the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// It is time for a tick.
    Tick,
    /// SIGTERM, SIGINT or SIGHUP came.
    Stop,
}

/// The timer and the signals, behind one epoll.
#[derive(Debug)]
pub struct EventLoop {
    epoll: Epoll,
    timer: TimerFd,
    signals: UnixStream,
}

impl EventLoop {
    /// A loop that wakes at once and then every `interval`.
    ///
    /// # Errors
    /// The system has no descriptors or memory left.
    pub fn new(interval: Duration) -> io::Result<EventLoop> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        let first = TimeSpec::from_duration(Duration::from_nanos(1));
        let every = TimeSpec::from_duration(interval);
        timer.set(Expiration::IntervalDelayed(first, every), TimerSetTimeFlags::empty())?;
        let (signals, writer) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        for signal in [SIGTERM, SIGINT, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        epoll.add(&signals, EpollEvent::new(EpollFlags::EPOLLIN, SIGNAL))?;
        Ok(EventLoop { epoll, timer, signals })
    }

    /// Sleeps until something happens. A signal is seen before a tick that is due at the same time.
    ///
    /// # Errors
    /// The system refused to wait.
    pub fn wait(&mut self) -> io::Result<Wake> {
        loop {
            let mut events = [EpollEvent::empty(); 2];
            let count = match self.epoll.wait(&mut events, EpollTimeout::NONE) {
                Ok(count) => count,
                Err(nix::errno::Errno::EINTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            let woken = |token| events[..count].iter().any(|event| event.data() == token);
            if woken(SIGNAL) {
                let mut bytes = [0; 16];
                // Only that a signal came matters; more of them say nothing new.
                let _ = self.signals.read(&mut bytes);
                return Ok(Wake::Stop);
            }
            if woken(TIMER) {
                match self.timer.wait() {
                    Ok(()) => return Ok(Wake::Tick),
                    // The clock was read by an earlier wake: sleep on.
                    Err(nix::errno::Errno::EAGAIN) => {}
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
    }
}

/// Ticks until a signal says stop, or once.
///
/// # Errors
/// The system refused to wait.
pub fn run<K: KernFs>(agent: &mut Agent<K>, events: &mut EventLoop, once: bool) -> io::Result<()> {
    let start = Instant::now();
    loop {
        match events.wait()? {
            Wake::Stop => {
                info!("told to stop");
                return Ok(());
            }
            Wake::Tick => {
                agent.tick(start.elapsed());
                // The first tick has only one sample: it takes a second one to decide anything.
                if once && agent.status().tick >= 2 {
                    return Ok(());
                }
            }
        }
    }
}
