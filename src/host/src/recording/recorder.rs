//! Conversion of events to chunks on the thread of the tick, with little work and without waiting.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::ring::Bounds;
use super::rows::Rows;
use super::segment::{self, Beginning, Clock, EVENTS_BYTES_MAX, Head, LAYOUT};
use super::writer::Writer;
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tick::event::{self, Event, Witness};
use tenantd_core::kernel_text::text_of_path;

/// Age of a chunk at which it is written; a kill loses the events after it.
const CHUNK_TIME: Duration = Duration::from_secs(10);
/// Size at which a chunk is written earlier: reloads of a thousand tenants, ticks without a pause.
const CHUNK_BYTES: usize = 1 << 20;
const PAUSE: Duration = Duration::from_secs(60);

/// Records the events of one control loop.
pub struct Recorder {
    writer: Writer,
    /// The directory, as an absolute path.
    place: String,
    bounds: Bounds,
    host: String,
    wall: Box<dyn FnMut() -> Duration + Send>,
    segment: Option<Open>,
    clock: Clock,
    paused_until: Option<Duration>,
    trouble: Option<String>,
}

struct Open {
    begun: Duration,
    rows: Rows,
    chunk_begun: Duration,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("writer", &self.writer).finish_non_exhaustive()
    }
}

impl Recorder {
    /// Starts recording to `dir`; `wall` is the wall clock.
    pub fn start(
        dir: &Path,
        bounds: Bounds,
        host: String,
        wall: impl FnMut() -> Duration + Send + 'static,
    ) -> io::Result<Recorder> {
        let writer = Writer::start(dir, bounds)?;
        let place = text_of_path(&std::path::absolute(dir)?);
        let (wall, clock) = (Box::new(wall), Clock::default());
        let (segment, paused_until, trouble) = (None, None, None);
        Ok(Recorder { writer, place, bounds, host, wall, segment, clock, paused_until, trouble })
    }

    /// Sets other bounds.
    pub fn bound(&mut self, bounds: Bounds) {
        self.bounds = bounds;
        self.writer.bound(bounds);
        if bounds.max_bytes == 0 {
            self.hand_on(true);
            self.segment = None;
        }
    }

    fn begin(&mut self, control: &ControlLoop) {
        const FORMAT: u64 = event::format();
        let head = Head { layout: LAYOUT, format: FORMAT, begin: (self.wall)() };
        let first = match Beginning::data(env!("CARGO_PKG_VERSION"), &self.host, control) {
            Ok(first) => first,
            Err(error) => return self.fail(unrecordable(error)),
        };
        if !self.writer.begin(head, first) {
            return self.fail("the disk does not keep up with the history".into());
        }
        self.segment = Some(Open {
            begun: self.clock.now,
            rows: Rows::default(),
            chunk_begun: self.clock.now,
        });
    }

    fn hand_on(&mut self, in_any_case: bool) {
        let Some(open) = &mut self.segment else { return };
        let is_due =
            open.rows.len() >= CHUNK_BYTES || self.clock.now >= open.chunk_begun + CHUNK_TIME;
        if open.rows.is_empty() || !(is_due || in_any_case) {
            return;
        }
        let rows = std::mem::take(&mut open.rows);
        let is_full = self.writer.segment_bytes() >= self.bounds.segment_bytes()
            || self.clock.now >= open.begun + self.bounds.segment_time();
        if !self.writer.append(self.clock, rows) {
            self.fail("the disk does not keep up with the history".into());
        } else if is_full {
            self.segment = None;
        }
    }

    fn fail(&mut self, why: String) {
        self.segment = None;
        self.paused_until = Some(self.clock.now + PAUSE);
        self.trouble = Some(why);
    }

    /// Waits for a bounded time until all complete chunks are written.
    pub fn catch_up(&self) {
        self.writer.finish();
    }

    /// Writes the remaining events, and waits for a bounded time.
    pub fn finish(&mut self) {
        self.hand_on(true);
        self.catch_up();
    }
}

fn unrecordable(error: postcard::Error) -> String {
    format!("the tenants cannot be recorded, so the history has a gap: {error}")
}

impl Witness for Recorder {
    fn note(&mut self, control: &ControlLoop, event: &Event) {
        if let Event::Step(input) = event {
            self.clock = Clock { wall: (self.wall)(), now: input.now };
        }
        // Only between two ticks, so that the events of one tick stay together.
        if let Event::Begin = event {
            if let Some(why) = self.writer.take_trouble() {
                self.fail(why);
            }
            self.hand_on(false);
            if self.paused_until.is_some_and(|until| self.clock.now >= until) {
                (self.paused_until, self.trouble) = (None, None);
            }
            if self.segment.is_none() && self.paused_until.is_none() && self.bounds.max_bytes > 0 {
                self.begin(control);
            }
        }
        let Some(open) = &mut self.segment else { return };
        if open.rows.is_empty() {
            open.chunk_begun = self.clock.now;
        }
        if let Err(error) = segment::put(event, &mut open.rows) {
            self.fail(unrecordable(error));
        } else if open.rows.len() > EVENTS_BYTES_MAX {
            self.fail(unrecordable(postcard::Error::SerializeBufferFull));
        }
    }

    fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    fn place(&self) -> Option<&str> {
        Some(&self.place)
    }

    fn bound(&mut self, max_bytes: u64, max_age: Duration) {
        Recorder::bound(self, Bounds { max_bytes, max_age });
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.finish();
    }
}
