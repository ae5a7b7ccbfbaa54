//! Progress of a long simulation, on a terminal.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use humantime::format_duration;

/// A bar on standard error, if that is a terminal; it is removed when dropped.
#[derive(Debug)]
pub(super) struct Bar(Instant, Option<usize>);

impl Bar {
    pub(super) fn new() -> Bar {
        Bar(Instant::now(), stderr().is_terminal().then_some(0))
    }

    pub(super) fn set(&mut self, part: f64) {
        let percent = (part.clamp(0.0, 1.0) * 100.0) as usize;
        if self.1.is_some_and(|shown| shown < percent) {
            self.1 = Some(percent);
            let (bar, seconds) = ("█".repeat(percent * 2 / 5), self.0.elapsed().as_secs_f64());
            let left = format_duration(Duration::from_secs((seconds / part - seconds) as u64));
            let _ = write!(stderr(), "\r\x1b[2K{bar:░<40} {percent:>3} %, {left} left");
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let _ = self.1.filter(|shown| *shown > 0).map(|_| write!(stderr(), "\r\x1b[2K"));
    }
}
