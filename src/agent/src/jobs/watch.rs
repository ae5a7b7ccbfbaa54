//! Wake-ups of the agent while jobs run: the end of their first processes, and a timer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// Time between two charges of running jobs; also the delay to detect the end of a job without pidfd.
pub(crate) const REFRESH: Duration = Duration::from_millis(100);
/// Time between two checks for the arrival of a process in its scope.
pub(crate) const ARRIVAL: Duration = Duration::from_millis(2);

const TIMER: u64 = 0;
const PROCESS: u64 = 1;

/// One descriptor that becomes readable when jobs need attention.
#[derive(Debug)]
pub(crate) struct Watch {
    epoll: Epoll,
    timer: TimerFd,
    ticks_every: Option<Duration>,
}

impl Watch {
    pub(crate) fn new() -> nix::Result<Watch> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?;
        epoll.add(&timer, EpollEvent::new(EpollFlags::EPOLLIN, TIMER))?;
        Ok(Watch { epoll, timer, ticks_every: None })
    }

    /// Wakes when this process ends; until [`Watch::forget`].
    pub(crate) fn add(&self, process: &OwnedFd) -> nix::Result<()> {
        self.epoll.add(process, EpollEvent::new(EpollFlags::EPOLLIN, PROCESS))
    }

    pub(crate) fn forget(&self, process: &OwnedFd) {
        // A process that was not added is harmless.
        let _ = self.epoll.delete(process);
    }

    pub(crate) fn refresh(&mut self, every: Option<Duration>) {
        if every == self.ticks_every {
            return;
        }
        let outcome = match every.map(TimeSpec::from_duration) {
            Some(every) => self.timer.set(Expiration::Interval(every), TimerSetTimeFlags::empty()),
            None => self.timer.unset(),
        };
        self.ticks_every = every.filter(|_| outcome.is_ok());
    }

    /// Clears the timer's wake-up. Returns true if a process has ended.
    pub(crate) fn clear(&self) -> bool {
        let mut events = [EpollEvent::empty(); 2];
        let _ = self.epoll.wait(&mut events, nix::sys::epoll::EpollTimeout::ZERO);
        if events.iter().any(|event| event.data() == TIMER) && self.ticks_every.is_some() {
            let _ = self.timer.wait();
        }
        events.iter().any(|event| event.data() == PROCESS)
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

/// True if the process runs, or if that is unknown.
pub(crate) fn is_alive(process: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(process.as_fd(), PollFlags::POLLIN)];
    !matches!(poll(&mut fds, PollTimeout::ZERO), Ok(ready) if ready > 0)
}
