//! Book of answers about accounts, with their ages and the next questions.
//!
//! A pure state machine: the time is an argument. The table of [`super`] has the rules.
//!
//! **Bound.** The book has at most [`ENTRIES_MAX`] entries. Entries unused for [`FORGOTTEN`] make room for
//! new ones; if all are in use, a new question is [`Answer::Unknown`].

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use super::answer::{Answer, Need, Outcome, Question, Record, Stall};

/// Age at which an answer is asked for again.
pub const KEPT: Duration = Duration::from_secs(300);
/// Age at which a permission needs another answer.
pub const RECENT: Duration = Duration::from_secs(30);
/// Age of an open question from which it counts as failed.
pub const PATIENCE: Duration = Duration::from_secs(5);
/// First and longest time after which a missing account is asked for again.
const MISSING_FIRST: Duration = Duration::from_secs(30);
const MISSING_MOST: Duration = Duration::from_secs(600);
/// Time after which a name of the policy is asked for again.
const POLICY_AGAIN: Duration = Duration::from_secs(60);
const FAILED_AGAIN: Duration = Duration::from_secs(30);
const FORGOTTEN: Duration = Duration::from_secs(1200);
/// Most entries of the book.
pub const ENTRIES_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct Entry {
    /// Last valid answer and its time; `None` is "no such account".
    good: Option<(Option<Record>, Duration)>,
    /// True after one "no such account" for a known account.
    is_doubted: bool,
    nr_missing: u32,
    failure: Option<String>,
    ended: Duration,
    asked: Option<Duration>,
    used: Duration,
}

impl Entry {
    fn is_due(&self, need: Need, now: Duration) -> bool {
        if self.asked.is_some() {
            return false;
        }
        let since = now.saturating_sub(self.ended);
        let missing = || {
            let doubled =
                MISSING_FIRST * 2_u32.saturating_pow(self.nr_missing.saturating_sub(1).min(8));
            doubled.min(if need == Need::Policy { POLICY_AGAIN } else { MISSING_MOST })
        };
        let after = match (&self.good, &self.failure, need) {
            (None, None, _) | (_, _, Need::Now) => Duration::ZERO,
            (_, Some(_), _) => FAILED_AGAIN,
            _ if self.is_doubted => MISSING_FIRST,
            (Some(_), None, Need::Permission) => RECENT,
            (Some((None, _)), None, _) => missing(),
            (Some((Some(_), _)), None, _) => KEPT,
        };
        since >= after
    }

    fn answer(&self, need: Need, now: Duration) -> Answer<Record> {
        let waited = self.asked.map(|asked| now.saturating_sub(asked));
        let is_pending = waited.is_some_and(|waited| waited < PATIENCE);
        let is_old = |at: Duration| match need {
            Need::Identity | Need::Policy => false,
            Need::Permission => now.saturating_sub(at) >= RECENT,
            Need::Now => true,
        };
        match &self.good {
            Some((_, at)) if is_pending && is_old(*at) => Answer::Pending,
            Some((Some(_), _))
                if self.is_doubted && matches!(need, Need::Permission | Need::Now) =>
            {
                Answer::Missing
            }
            Some(_) if need == Need::Now && self.failure.is_some() => self.failed(waited),
            Some((Some(record), _)) => Answer::Known(record.clone()),
            Some((None, _)) => Answer::Missing,
            None if is_pending && (self.failure.is_none() || need == Need::Now) => Answer::Pending,
            None => self.failed(waited),
        }
    }

    fn failed(&self, waited: Option<Duration>) -> Answer<Record> {
        let why = self.failure.clone();
        Answer::Unknown(why.unwrap_or_else(|| no_answer(waited.unwrap_or_default())))
    }
}

pub(super) fn no_answer(waited: Duration) -> String {
    format!("the account service has not answered for {} s", waited.as_secs())
}

/// Book of answers and open questions.
#[derive(Debug, Default)]
pub struct Book {
    entries: HashMap<Question, Entry>,
    queue: VecDeque<Question>,
    asking: Option<(Question, Duration)>,
}

impl Book {
    /// Returns the answer so far; queues a question without one.
    pub fn look_up(&mut self, question: &Question, need: Need, now: Duration) -> Answer<Record> {
        if !self.entries.contains_key(question) {
            if self.entries.len() >= ENTRIES_MAX {
                self.entries.retain(|_, it| it.asked.is_some() || now < it.used + FORGOTTEN);
            }
            if self.entries.len() >= ENTRIES_MAX {
                return Answer::Unknown(format!("more than {ENTRIES_MAX} accounts are in use"));
            }
            self.entries.insert(question.clone(), Entry::default());
        }
        let Some(entry) = self.entries.get_mut(question) else { return Answer::Pending };
        entry.used = now;
        if entry.is_due(need, now) {
            entry.asked = Some(now);
            self.queue.push_back(question.clone());
        }
        entry.answer(need, now)
    }

    /// Returns the answer so far, and queues nothing.
    pub fn answer(&self, question: &Question, need: Need, now: Duration) -> Answer<Record> {
        self.entries.get(question).map_or(Answer::Pending, |entry| entry.answer(need, now))
    }

    /// Takes the next question, which is under way from now on.
    pub fn next(&mut self, now: Duration) -> Option<Question> {
        let question = self.queue.pop_front()?;
        self.asking = Some((question.clone(), now));
        Some(question)
    }

    /// True if a question is queued.
    pub fn has_question(&self) -> bool {
        !self.queue.is_empty()
    }

    /// True if a question is queued or under way.
    pub fn is_waiting(&self) -> bool {
        self.asking.is_some() || self.has_question()
    }

    /// Records the result of a look-up; returns true if an answer has changed.
    pub fn note(&mut self, question: &Question, outcome: Outcome<Record>, now: Duration) -> bool {
        if self.asking.as_ref().is_some_and(|(asked, _)| asked == question) {
            self.asking = None;
        }
        let Some(entry) = self.entries.get_mut(question) else { return false };
        let had_failed = entry.failure.take().is_some() | entry.good.is_none();
        (entry.asked, entry.ended) = (None, now);
        match outcome {
            Ok(Some(record)) => {
                let is_same = matches!(&entry.good, Some((Some(known), _)) if *known == record);
                (entry.nr_missing, entry.is_doubted) = (0, false);
                entry.good = Some((Some(record), now));
                had_failed || !is_same
            }
            Ok(None) => {
                let was_known = matches!(entry.good, Some((Some(_), _)));
                if was_known && !entry.is_doubted {
                    entry.is_doubted = true;
                    // Permissions end with the first one.
                    return true;
                }
                entry.is_doubted = false;
                entry.nr_missing = entry.nr_missing.saturating_add(1);
                entry.good = Some((None, now));
                had_failed || was_known
            }
            Err(why) => {
                entry.failure = Some(why);
                true
            }
        }
    }

    /// The look-up that has taken longer than [`PATIENCE`].
    pub fn stall(&self, now: Duration) -> Option<Stall> {
        let (question, since) = self.asking.as_ref()?;
        let age = now.saturating_sub(*since);
        let nr_waiting = self.queue.len();
        (age >= PATIENCE).then(|| Stall { question: question.clone(), age, nr_waiting })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accounts::User;

    const S: Duration = Duration::from_secs(1);

    fn ana() -> Question {
        Question::User("ana".into())
    }

    fn known() -> Outcome<Record> {
        Ok(Some(Record::Number(1500)))
    }

    fn after(outcomes: &[Outcome<Record>], need: Need) -> (Book, Duration) {
        let (mut book, mut now) = (Book::default(), Duration::ZERO);
        for outcome in outcomes {
            while book.next(now).is_none() {
                now += S;
                book.look_up(&ana(), need, now);
            }
            book.note(&ana(), outcome.clone(), now);
        }
        (book, now)
    }

    /// Time until the question is asked again while it is in use.
    fn asked_after(book: &mut Book, need: Need, now: Duration) -> u32 {
        (0..5000)
            .find(|n| {
                book.look_up(&ana(), need, now + S * *n);
                book.has_question()
            })
            .unwrap()
    }

    #[test]
    fn a_question_is_asked_once() {
        let mut book = Book::default();
        for _ in 0..5 {
            assert_eq!(book.look_up(&ana(), Need::Identity, S), Answer::Pending);
        }
        assert_eq!((book.next(S), book.next(S)), (Some(ana()), None));
        assert_eq!(book.look_up(&ana(), Need::Identity, S * 5), Answer::Pending);
        assert!(book.stall(S * 5).is_none());
        let late = book.look_up(&ana(), Need::Identity, S * 6);
        assert_eq!(late, Answer::Unknown("the account service has not answered for 5 s".into()));
        assert_eq!(
            book.stall(S * 7).map(|stall| (stall.question, stall.age)),
            Some((ana(), S * 6))
        );
        assert!(!book.has_question());
        assert!(book.note(&ana(), known(), S * 9));
        assert_eq!(
            book.look_up(&ana(), Need::Identity, S * 9),
            Answer::Known(Record::Number(1500))
        );
    }

    #[test]
    fn answers_expire_by_their_kind() {
        let (mut book, now) = after(&[known()], Need::Identity);
        assert_eq!(asked_after(&mut book, Need::Identity, now), 300);
        let (mut book, now) = after(&[known()], Need::Permission);
        assert_eq!(asked_after(&mut book, Need::Permission, now), 30);
        for (nr, seconds) in [(1, 30), (2, 60), (3, 120), (5, 480), (6, 600), (40, 600)] {
            let (mut book, now) = after(&vec![Ok(None); nr], Need::Identity);
            assert_eq!(asked_after(&mut book, Need::Identity, now), seconds, "after {nr}");
        }
        let (mut book, now) = after(&vec![Ok(None); 6], Need::Policy);
        assert_eq!(asked_after(&mut book, Need::Policy, now), 60);
        let (mut book, now) = after(&[Err("down".into())], Need::Identity);
        assert_eq!(asked_after(&mut book, Need::Identity, now), 30);
    }

    #[test]
    fn an_error_is_not_an_answer() {
        let (mut book, now) = after(&[Err("down".into())], Need::Identity);
        assert_eq!(book.look_up(&ana(), Need::Identity, now), Answer::Unknown("down".into()));
        let (mut book, now) = after(&[known(), Err("down".into())], Need::Identity);
        for need in [Need::Identity, Need::Policy] {
            assert_eq!(book.look_up(&ana(), need, now), Answer::Known(Record::Number(1500)));
        }
        assert_eq!(
            book.look_up(&ana(), Need::Permission, now),
            Answer::Known(Record::Number(1500))
        );
        assert_eq!(book.answer(&ana(), Need::Now, now), Answer::Unknown("down".into()));
    }

    #[test]
    fn one_missing_answer_after_a_good_one_ends_permissions_only() {
        let (mut book, now) = after(&[known(), Ok(None)], Need::Identity);
        assert_eq!(book.look_up(&ana(), Need::Identity, now), Answer::Known(Record::Number(1500)));
        assert_eq!(book.look_up(&ana(), Need::Permission, now), Answer::Missing);
        assert_eq!(asked_after(&mut book, Need::Identity, now), 30);
        let (mut book, now) = after(&[known(), Ok(None), Ok(None)], Need::Identity);
        assert_eq!(book.look_up(&ana(), Need::Identity, now), Answer::Missing);
    }

    #[test]
    fn permissions_wait_for_a_recent_answer_and_not_for_ever() {
        let (mut book, now) = after(&[known()], Need::Permission);
        let old = now + S * 40;
        assert_eq!(book.look_up(&ana(), Need::Identity, old), Answer::Known(Record::Number(1500)));
        assert_eq!(book.look_up(&ana(), Need::Permission, old), Answer::Pending);
        let hung = old + PATIENCE;
        assert_eq!(
            book.look_up(&ana(), Need::Permission, hung),
            Answer::Known(Record::Number(1500))
        );
    }

    #[test]
    fn the_book_is_bounded_and_forgets_what_is_not_used() {
        let mut book = Book::default();
        for uid in 0..ENTRIES_MAX as u32 {
            book.look_up(&Question::Owner(uid), Need::Identity, S);
            let question = book.next(S).unwrap();
            book.note(&question, Ok(Some(Record::User(User::default()))), S);
        }
        let one_more = Question::Owner(u32::MAX);
        assert!(matches!(book.look_up(&one_more, Need::Identity, S), Answer::Unknown(_)));
        assert_eq!(book.look_up(&one_more, Need::Identity, S + FORGOTTEN), Answer::Pending);
        assert_eq!(book.entries.len(), 1);
    }
}
