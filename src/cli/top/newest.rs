//! The last word of the daemon, for whoever draws: a terminal that is slow, or stopped with Ctrl-S, misses ticks.
//! Kept for later they would only grow.

use std::sync::{Mutex, PoisonError};

use crate::control::status::Status;

/// What was heard of the daemon.
pub(super) enum Word {
    /// Its tick.
    Told(Box<Status>),
    /// Why it does not answer.
    Away(String),
}

/// One word, the newest.
#[derive(Default)]
pub(super) struct Newest(Mutex<Option<Word>>);

impl Newest {
    /// Puts a word in the place of the one before; returns whether that had been taken.
    pub(super) fn put(&self, word: Word) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(word).is_none()
    }

    /// The word that was put last, if it has not been taken yet.
    pub(super) fn take(&self) -> Option<Word> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_word_is_kept_and_told_of_once() {
        let newest = Newest::default();
        let told = |tick| Word::Told(Box::new(Status { tick, ..Status::default() }));
        let nr_told = (1..=1000).filter(|tick| newest.put(told(*tick))).count();
        assert_eq!(nr_told, 1);
        assert!(matches!(newest.take(), Some(Word::Told(status)) if status.tick == 1000));
        assert!(newest.take().is_none());
        assert!(newest.put(Word::Away("gone".into())));
    }
}
