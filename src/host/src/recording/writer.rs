//! The thread that writes a recording, so that no tick waits for a disk.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::ring::{Bounds, Ring};
use super::segment::{Head, Parts};

/// Chunks that may wait: half a minute of a disk that stands still.
const WAITING_MAX: usize = 8;
/// How long an end waits for the disk.
const END_TIME: Duration = Duration::from_secs(2);

/// What the thread is to do.
#[derive(Debug)]
enum Order {
    Begin(Head, Parts),
    Append(Parts),
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
    /// Starts to write to `dir`.
    ///
    /// # Errors
    /// The directory cannot be made or listed, or there are no threads left.
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

    /// Begins a segment; whether that is taken up.
    pub fn begin(&self, head: Head, first: Parts) -> bool {
        self.send(Order::Begin(head, first))
    }

    /// Appends a chunk; whether that is taken up. A chunk that is not ends the segment: no other may follow it.
    pub fn append(&self, chunk: Parts) -> bool {
        self.send(Order::Append(chunk))
    }

    /// Other bounds.
    pub fn bound(&self, bounds: Bounds) -> bool {
        self.send(Order::Bound(bounds))
    }

    /// What failed since this was asked last.
    pub fn take_trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Bytes of the segment that is written.
    pub fn segment_bytes(&self) -> u64 {
        self.segment_bytes.load(Ordering::Relaxed)
    }

    /// Waits until all of this is written, for a bounded time.
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

/// What the thread tells: what failed, and how large the segment is.
type Told = (Arc<Mutex<Option<String>>>, Arc<AtomicU64>);

fn work(mut ring: Ring, orders: &Receiver<Order>, (trouble, size): &Told, dir: &str) {
    while let Ok(order) = orders.recv() {
        let done = match order {
            Order::Begin(head, first) => ring.begin(head, &first),
            Order::Append(chunk) => ring.append(&chunk),
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
