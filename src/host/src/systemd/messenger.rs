//! A thread that waits for systemd, so that the tick does not have to.
//!
//! **Problem.** A call over D-Bus has no deadline: systemd may be reading its configuration, or hang.
//!
//! **Algorithm.** Orders go to one thread, which executes a few at a time; answers are collected when they are
//! ready. An order without an answer in time is given up, with those behind it, and its thread is left waiting.
//! A new thread starts only after the old one has returned, so that a systemd that hangs for a day costs one
//! thread instead of a thousand.
//!
//! The thread starts with the first order: if no tenant is a unit, there is none.

use std::collections::VecDeque;
use std::fmt;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::order::{Answer, Order, Reply, UnitError, UnitManager};

/// Longest duration of an order. It may come during a daemon-reload, which took 34 s on an emulated host with a
/// thousand units.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Orders executed at once; the bus allows one client 128 calls without an answer.
pub const ORDERS_AT_ONCE: usize = 32;

type CarryOut = dyn FnMut(&[Order]) -> Vec<Result<Reply, UnitError>>;

/// Creates the executor of orders, in its thread; a new one for each thread.
type Recruit = dyn Fn() -> Box<CarryOut> + Send + Sync;

/// A [`UnitManager`] with a thread.
pub struct Messenger {
    recruit: std::sync::Arc<Recruit>,
    deadline: Duration,
    thread: Option<Thread>,
    waiting: VecDeque<Order>,
    /// Time at which the oldest of them became the oldest.
    since: Instant,
    lost: Option<JoinHandle<()>>,
}

struct Thread {
    orders: Sender<Order>,
    outcomes: Receiver<Result<Reply, UnitError>>,
    handle: JoinHandle<()>,
}

impl fmt::Debug for Messenger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messenger").field("waiting", &self.waiting).finish_non_exhaustive()
    }
}

impl Messenger {
    /// Makes a messenger whose orders are executed by the result of `recruit`, each within `deadline`.
    pub fn new<C>(recruit: impl Fn() -> C + Send + Sync + 'static, deadline: Duration) -> Messenger
    where
        C: FnMut(&[Order]) -> Vec<Result<Reply, UnitError>> + 'static,
    {
        Messenger {
            recruit: std::sync::Arc::new(move || Box::new(recruit())),
            deadline,
            thread: None,
            waiting: VecDeque::new(),
            since: Instant::now(),
            lost: None,
        }
    }

    /// True if the thread can accept an order; starts it if there is none.
    fn is_manned(&mut self) -> bool {
        if self.lost.as_ref().is_some_and(|lost| !lost.is_finished()) {
            return false;
        }
        self.lost = None;
        if self.thread.is_none() {
            self.thread = start(std::sync::Arc::clone(&self.recruit));
        }
        self.thread.is_some()
    }

    /// Gives up the thread, which ends by itself when its call returns.
    fn give_up(&mut self) {
        self.lost = self.thread.take().map(|thread| thread.handle);
    }

    fn answered(&mut self, outcome: Result<Reply, UnitError>) -> Option<Answer> {
        self.since = Instant::now();
        self.waiting.pop_front().map(|order| Answer { order, outcome })
    }
}

fn start(recruit: std::sync::Arc<Recruit>) -> Option<Thread> {
    let (orders, inbox) = mpsc::channel::<Order>();
    let (outbox, outcomes) = mpsc::channel();
    let work = move || {
        let mut carry_out = recruit();
        while let Ok(first) = inbox.recv() {
            let others = inbox.try_iter().take(ORDERS_AT_ONCE - 1);
            let orders: Vec<Order> = std::iter::once(first).chain(others).collect();
            for outcome in carry_out(&orders) {
                if outbox.send(outcome).is_err() {
                    return;
                }
            }
        }
    };
    let handle = thread::Builder::new().name("systemd".into()).spawn(work).ok()?;
    Some(Thread { orders, outcomes, handle })
}

impl UnitManager for Messenger {
    fn submit(&mut self, order: Order) {
        // Behind orders that were not accepted, this one is refused as they are.
        let is_manned = if self.waiting.is_empty() {
            self.since = Instant::now();
            self.is_manned()
        } else {
            self.thread.is_some()
        };
        self.waiting.push_back(order.clone());
        if is_manned
            && let Some(thread) = &self.thread
            && thread.orders.send(order).is_err()
        {
            self.give_up();
        }
    }

    fn nr_unanswered(&self) -> usize {
        self.waiting.len()
    }

    fn answer(&mut self, timeout: Duration) -> Option<Answer> {
        if self.waiting.is_empty() {
            return None;
        }
        let Some(thread) = &self.thread else {
            // No thread was there to accept it.
            return self.answered(Err(UnitError::Late(self.deadline)));
        };
        let overdue_in = self.deadline.saturating_sub(self.since.elapsed());
        match thread.outcomes.recv_timeout(timeout.min(overdue_in)) {
            Ok(outcome) => self.answered(outcome),
            Err(RecvTimeoutError::Timeout) if timeout < overdue_in => None,
            Err(_) => {
                self.give_up();
                self.answered(Err(UnitError::Late(self.deadline)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Barrier, Mutex};

    fn look(unit: &str) -> Order {
        Order::Look { unit: unit.into() }
    }

    #[test]
    fn answers_arrive_in_the_order_of_the_orders() {
        let done = || |orders: &[Order]| orders.iter().map(|_| Ok(Reply::Done)).collect();
        let mut messenger = Messenger::new(done, DEADLINE);
        assert_eq!(messenger.answer(Duration::ZERO), None);
        for unit in ["a", "b", "c"] {
            messenger.submit(look(unit));
        }
        for unit in ["a", "b", "c"] {
            let answer = messenger.answer(DEADLINE).unwrap();
            assert_eq!((answer.order, answer.outcome), (look(unit), Ok(Reply::Done)));
        }
        assert_eq!(messenger.answer(Duration::ZERO), None);
    }

    /// Calls for a thousand units do not wait for each other.
    #[test]
    fn what_waits_is_executed_together() {
        let (begun, gate) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
        let sizes = Arc::new(Mutex::new(Vec::new()));
        let theirs = (Arc::clone(&begun), Arc::clone(&gate), Arc::clone(&sizes));
        let count = move || {
            let (begun, gate, sizes) = theirs.clone();
            move |orders: &[Order]| {
                sizes.lock().unwrap().push(orders.len());
                if orders[0].unit() == "first" {
                    begun.wait();
                    gate.wait();
                }
                orders.iter().map(|_| Ok(Reply::Done)).collect()
            }
        };
        let mut messenger = Messenger::new(count, DEADLINE);
        messenger.submit(look("first"));
        begun.wait();
        let units: Vec<String> = (0..40).map(|number| number.to_string()).collect();
        units.iter().for_each(|unit| messenger.submit(look(unit)));
        gate.wait();
        for unit in std::iter::once("first").chain(units.iter().map(String::as_str)) {
            assert_eq!(messenger.answer(DEADLINE).unwrap().order, look(unit));
        }
        assert_eq!(*sizes.lock().unwrap(), [1, ORDERS_AT_ONCE, 8]);
    }

    #[test]
    fn a_hanging_call_blocks_nothing_and_is_not_repeated_until_it_returns() {
        let gate = Arc::new(Barrier::new(2));
        let hung = Arc::clone(&gate);
        let hang = move || {
            let gate = Arc::clone(&hung);
            move |orders: &[Order]| {
                if orders.iter().any(|order| order.unit() == "hangs") {
                    gate.wait();
                }
                orders.iter().map(|_| Ok(Reply::Done)).collect()
            }
        };
        let deadline = Duration::from_millis(20);
        let mut messenger = Messenger::new(hang, deadline);
        messenger.submit(look("hangs"));
        messenger.submit(look("behind"));
        assert_eq!(messenger.answer(Duration::ZERO), None, "waited");
        let late = Err(UnitError::Late(deadline));
        for _ in 0..2 {
            assert_eq!(messenger.answer(DEADLINE).unwrap().outcome, late);
        }
        messenger.submit(look("later"));
        assert_eq!(messenger.answer(Duration::ZERO).unwrap().outcome, late);
        gate.wait();
        let lost = messenger.lost.take().unwrap();
        lost.join().unwrap();
        messenger.submit(look("again"));
        assert_eq!(messenger.answer(DEADLINE).unwrap().outcome, Ok(Reply::Done));
    }
}
