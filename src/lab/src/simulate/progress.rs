//! Progress of a long simulation, on a terminal. The only file that names the crate for it.

use indicatif::{ProgressBar, ProgressStyle};

const STEPS: u64 = 1000;

/// A bar on standard error, if that is a terminal; it is removed when dropped.
#[derive(Debug)]
pub(super) struct Bar(ProgressBar);

impl Bar {
    pub(super) fn new() -> Bar {
        let bar = ProgressBar::new(STEPS);
        if let Ok(style) = ProgressStyle::with_template("{bar:40} {percent:>3} %, {eta} left") {
            bar.set_style(style);
        }
        Bar(bar)
    }

    /// Sets the finished part, from 0 to 1.
    pub(super) fn set(&self, part: f64) {
        self.0.set_position((part.clamp(0.0, 1.0) * STEPS as f64) as u64);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
