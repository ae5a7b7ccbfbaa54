//! The thread that writes a recording, so that no tick waits for a disk.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::ring::{Bounds, Ring};
use super::rows::{Last, Rows};
use super::segment::{self, Clock, Head};

/// Most waiting chunks: half a minute of a stalled disk.
const WAITING_MAX: usize = 8;
const END_TIME: Duration = Duration::from_secs(2);

#[derive(Debug)]
enum Order {
    Begin(Head, Vec<u8>),
    Append(Clock, Rows),
    Bound(Bounds),
    Tell(SyncSender<()>),
}

/// The near end of the thread, which ends with it.
#[derive(Debug)]
pub struct Writer {
    orders: SyncSender<Order>,
    trouble: Arc<Mutex<Option<String>>>,
    segment_bytes: Arc<AtomicU64>,
}

impl Writer {
    /// Starts a thread that writes to `dir`.
    pub fn start(dir: &Path, bounds: Bounds) -> io::Result<Writer> {
        let ring = Ring::open(dir, bounds)?;
        let (orders, received) = mpsc::sync_channel(WAITING_MAX);
        let (trouble, segment_bytes) = (Arc::default(), Arc::default());
        let told = (Arc::clone(&trouble), Arc::clone(&segment_bytes));
        let dir = dir.display().to_string();
        thread::Builder::new()
            .name("history".into())
            .spawn(move || work(ring, &received, &told, &dir))?;
        Ok(Writer { orders, trouble, segment_bytes })
    }

    /// Begins a segment; returns false if the queue is full.
    pub fn begin(&self, head: Head, first: Vec<u8>) -> bool {
        self.send(Order::Begin(head, first))
    }

    /// Appends a chunk; returns false if the queue is full. That ends the segment: no other chunk may follow.
    pub fn append(&self, clock: Clock, rows: Rows) -> bool {
        self.send(Order::Append(clock, rows))
    }

    /// Sets other bounds; returns false if the queue is full.
    pub fn bound(&self, bounds: Bounds) -> bool {
        self.send(Order::Bound(bounds))
    }

    /// Takes the last failure.
    pub fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Bytes of the present segment.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Waits for a bounded time until everything is written.
    pub fn finish(&self) {
        let (told, done) = mpsc::sync_channel(1);
        if self.send(Order::Tell(told)) {
            let _ = done.recv_timeout(END_TIME);
        }
    }

    fn send(&self, order: Order) -> bool {
        match self.orders.try_send(order) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

/// Shared results of the thread: the last failure, and the size of the segment.
type Told = (Arc<Mutex<Option<String>>>, Arc<AtomicU64>);

fn work(mut ring: Ring, orders: &Receiver<Order>, (trouble, size): &Told, dir: &str) {
    let mut last = Last::default();
    while let Ok(order) = orders.recv() {
        let done = match order {
            Order::Begin(head, first) => {
                last = Last::default();
                ring.begin(head, &first)
            }
            Order::Append(clock, rows) => segment::data(clock, &rows, &mut last)
                .map_err(io::Error::other)
                .and_then(|data| ring.append(&data)),
            Order::Bound(bounds) => {
                ring.bound(bounds);
                Ok(())
            }
            Order::Tell(told) => {
                let _ = told.send(());
                Ok(())
            }
        };
        size.store(ring.segment_bytes(), Ordering::Relaxed);
        if let Err(error) = done {
            let what = format!("the history in {dir} cannot be written: {error}");
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
        }
    }
}
