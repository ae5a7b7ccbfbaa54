//! A mailbox of size one between a thread that watches something and the thread that draws.
//!
//! A terminal that is slow, or stopped with Ctrl-S, skips ticks; a queue of them would grow without bound.

use std::sync::{Mutex, PoisonError};

use tenantd_control::report::status::Status;

pub(crate) enum Message {
    Tick(Box<Status>),
    Away(String),
}

pub(crate) struct Newest<T>(Mutex<Option<T>>);

impl<T> Default for Newest<T> {
    fn default() -> Self {
        Newest(Mutex::default())
    }
}

impl<T> Newest<T> {
    /// Replaces the message; returns true if the previous one had been taken.
    pub(crate) fn put(&self, message: T) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(message).is_none()
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_message_is_kept() {
        let newest = Newest::default();
        let message = |tick| Message::Tick(Box::new(Status { tick, ..Status::default() }));
        let nr_wakeups = (1..=1000).filter(|tick| newest.put(message(*tick))).count();
        assert_eq!(nr_wakeups, 1);
        assert!(matches!(newest.take(), Some(Message::Tick(status)) if status.tick == 1000));
        assert!(newest.take().is_none());
        assert!(newest.put(Message::Away("gone".into())));
    }
}
