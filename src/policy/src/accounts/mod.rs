//! Accounts of a host: names and numbers of users and groups.
//!
//! **Problem.** The C library looks names up, possibly in a directory on the network. It may answer in
//! microseconds, in seconds, never, with an error, or with "no such account" during a restart. A tick, the
//! readiness of the service and the answer to a client must not depend on it.
//!
//! **Answer.** One thread asks one question after another. The control thread and the socket thread read a
//! book of answers ([`book`]) and never wait: a question without an answer is queued and is
//! [`Answer::Pending`]. A question is queued once, and the book is bounded, so the queue is bounded. An
//! answer wakes a waiting caller ([`Accounts::wake_on_answers`]), or the caller looks again in the next
//! tick.
//!
//! | event | effect |
//! |---|---|
//! | an answer | in use for [`book::KEPT`], then asked for again; it stays in use meanwhile |
//! | "no such account" | asked for again after 30 s, doubling to 10 min, while it is asked for |
//! | "no such account" after a good answer | asked for again after 30 s; only the second one counts |
//! | an error | no answer: the last good one stays in use, else [`Answer::Unknown`] with the reason |
//! | no answer for [`book::PATIENCE`] | the same as an error, and one finding ([`Accounts::stall`]) |
//!
//! **Permissions** need a recent answer ([`Need::Permission`]): one older than [`book::RECENT`] is asked
//! for again and awaited, and a single "no such account" counts. If the service fails, the last good answer
//! stays in use; without one the permission is refused.
//!
//! **Names of digits.** As with chown(1), digits are a name first, and a number if no account has that
//! name. `200` never means the UID 200 because a look-up failed. `+200` is the number ([`explicit`]); a
//! policy reads digits without quotes as that.
//!
//! **Programs without a thread** (commands, simulations, tests) use [`Accounts::direct`], where the caller
//! itself asks. `tenantctl check` uses [`on_this_machine`], with a time limit.
//!
//! **Properties** (`tests/agent/accounts.rs`, and the tests of [`book`]): ticks go on while a look-up
//! hangs; a user is a tenant under the number until the name arrives; an error changes nothing; answers
//! expire.

mod answer;
pub mod book;
pub mod nss;
pub mod people;
pub mod ranges;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use answer::{
    Answer, Directory, Need, Outcome, Question, Record, Stall, User, digits, explicit,
};
use book::Book;

type Clock = dyn Fn() -> Duration + Send + Sync;
type Waker = dyn Fn() + Send + Sync;

struct Shared {
    book: Mutex<Book>,
    has_questions: Condvar,
    has_answers: Condvar,
    clock: Box<Clock>,
    generation: AtomicU64,
    wakers: Mutex<Vec<Box<Waker>>>,
    is_closed: AtomicBool,
    /// Database, if the callers ask themselves.
    direct: Option<Mutex<Box<dyn Directory>>>,
}

impl Shared {
    fn new(clock: Box<Clock>, direct: Option<Box<dyn Directory>>) -> Arc<Shared> {
        Arc::new(Shared {
            book: Mutex::default(),
            has_questions: Condvar::new(),
            has_answers: Condvar::new(),
            clock,
            generation: AtomicU64::new(0),
            wakers: Mutex::default(),
            is_closed: AtomicBool::new(false),
            direct: direct.map(Mutex::new),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // Each change of the book is complete before anything in it can panic, so a poisoned lock is usable.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        (self.clock)()
    }

    fn note(&self, question: &Question, outcome: Outcome<Record>) {
        let now = self.now();
        if self.book().note(question, outcome, now) {
            self.generation.fetch_add(1, Ordering::Release);
        }
        self.has_answers.notify_all();
        let wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.iter().for_each(|wake| wake());
    }
}

/// Accounts of a host. Copies share one book.
#[derive(Clone)]
pub struct Accounts {
    shared: Arc<Shared>,
    _open: Arc<Open>,
}

impl fmt::Debug for Accounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Accounts").finish_non_exhaustive()
    }
}

impl Default for Accounts {
    /// Accounts of this machine; the caller asks.
    fn default() -> Accounts {
        Accounts::direct(nss::Nss)
    }
}

/// Ends the thread when the last copy of the accounts is dropped.
struct Open(Arc<Shared>);

impl Drop for Open {
    fn drop(&mut self) {
        // Under the lock, so that the thread cannot miss it between its check and its sleep.
        let book = self.0.book();
        self.0.is_closed.store(true, Ordering::Release);
        self.0.has_questions.notify_all();
        drop(book);
    }
}

/// The asking side of a book.
pub struct Desk {
    shared: Arc<Shared>,
}

impl Accounts {
    /// Creates accounts whose callers ask `directory` themselves, for programs that may wait.
    pub fn direct(directory: impl Directory + 'static) -> Accounts {
        Accounts::of(Shared::new(since_start(), Some(Box::new(directory))))
    }

    /// Creates accounts whose questions the [`Desk`] answers, by the time of `clock`.
    pub fn with_desk(clock: impl Fn() -> Duration + Send + Sync + 'static) -> (Accounts, Desk) {
        let shared = Shared::new(Box::new(clock), None);
        (Accounts::of(Arc::clone(&shared)), Desk { shared })
    }

    /// Creates accounts with a thread that asks `directory`.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn in_thread(directory: impl Directory + 'static) -> std::io::Result<Accounts> {
        let (accounts, desk) = Accounts::with_desk(since_start());
        thread::Builder::new().name("accounts".into()).spawn(move || desk.serve(directory))?;
        Ok(accounts)
    }

    fn of(shared: Arc<Shared>) -> Accounts {
        let open = Arc::new(Open(Arc::clone(&shared)));
        Accounts { shared, _open: open }
    }

    /// Number of the user with this name; digits are a name here.
    pub fn user(&self, name: &str, need: Need) -> Answer<u32> {
        number(self.look_up(Question::User(name.to_string()), need))
    }

    /// Number of the group with this name, likewise.
    pub fn group(&self, name: &str, need: Need) -> Answer<u32> {
        number(self.look_up(Question::Group(name.to_string()), need))
    }

    /// The user with a number.
    pub fn owner(&self, uid: u32, need: Need) -> Answer<User> {
        user(self.look_up(Question::Owner(uid), need))
    }

    fn look_up(&self, question: Question, need: Need) -> Answer<Record> {
        let answer = self.shared.book().look_up(&question, need, self.shared.now());
        let Some(directory) = &self.shared.direct else {
            // Even if others are queued: a notification costs nothing while the thread is busy.
            self.shared.has_questions.notify_one();
            return answer;
        };
        let mut directory = directory.lock().unwrap_or_else(PoisonError::into_inner);
        let mut has_asked = false;
        while let Some(question) = self.next_question() {
            self.shared.note(&question, ask(&mut **directory, &question));
            has_asked = true;
        }
        if has_asked {
            self.shared.book().answer(&question, need, self.shared.now())
        } else {
            answer
        }
    }

    fn next_question(&self) -> Option<Question> {
        self.shared.book().next(self.shared.now())
    }

    /// Number of changed answers: while it stays the same, so do all answers.
    pub fn generation(&self) -> u64 {
        self.shared.generation.load(Ordering::Acquire)
    }

    /// Time by which answers expire.
    pub fn now(&self) -> Duration {
        self.shared.now()
    }

    /// The look-up that has taken longer than [`book::PATIENCE`], if any.
    pub fn stall(&self) -> Option<Stall> {
        self.shared.book().stall(self.shared.now())
    }

    /// Calls `wake` after each answer, in the thread that asked.
    pub fn wake_on_answers(&self, wake: impl Fn() + Send + Sync + 'static) {
        let mut wakers = self.shared.wakers.lock().unwrap_or_else(PoisonError::into_inner);
        wakers.push(Box::new(wake));
    }

    /// Waits until no question is open, at most `limit`.
    pub fn settle(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let mut book = self.shared.book();
        while book.is_waiting() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.shared.has_answers.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn wait_for(&self, question: &Question, limit: Duration) -> Answer<Record> {
        let first = self.look_up(question.clone(), Need::Now);
        if first != Answer::Pending {
            return first;
        }
        let end = Instant::now() + limit;
        let mut book = self.shared.book();
        loop {
            let answer = book.answer(question, Need::Now, self.shared.now());
            let left = end.saturating_duration_since(Instant::now());
            if answer != Answer::Pending || left.is_zero() {
                return answer;
            }
            let waited = self.shared.has_answers.wait_timeout(book, left);
            book = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Desk {
    /// Takes the next question; `None` if there is none.
    pub fn next(&self) -> Option<Question> {
        self.shared.book().next(self.shared.now())
    }

    /// Answers a question.
    pub fn answer(&self, question: &Question, outcome: Outcome<Record>) {
        self.shared.note(question, outcome);
    }

    /// Asks `directory` the next question; returns true if there was one.
    pub fn serve_one(&self, directory: &mut dyn Directory) -> bool {
        let Some(question) = self.next() else { return false };
        let outcome = ask(directory, &question);
        self.answer(&question, outcome);
        true
    }

    fn serve(self, mut directory: impl Directory) {
        loop {
            while self.serve_one(&mut directory) {}
            let book = self.shared.book();
            if self.shared.is_closed.load(Ordering::Acquire) {
                return;
            }
            if !book.has_question() {
                drop(self.shared.has_questions.wait(book));
            }
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}

fn ask(directory: &mut dyn Directory, question: &Question) -> Outcome<Record> {
    match question {
        Question::User(name) => Ok(directory.user(name)?.map(Record::Number)),
        Question::Group(name) => Ok(directory.group(name)?.map(Record::Number)),
        Question::Owner(uid) => Ok(directory.owner(*uid)?.map(Record::User)),
        Question::GroupName(gid) => Ok(directory.group_name(*gid)?.map(Record::Name)),
    }
}

fn number(answer: Answer<Record>) -> Answer<u32> {
    narrowed(answer, |record| match record {
        Record::Number(number) => Some(number),
        _ => None,
    })
}

fn user(answer: Answer<Record>) -> Answer<User> {
    narrowed(answer, |record| match record {
        Record::User(user) => Some(user),
        _ => None,
    })
}

/// Converts an answer to one kind. The record has the kind of its question.
fn narrowed<T>(answer: Answer<Record>, kind: impl FnOnce(Record) -> Option<T>) -> Answer<T> {
    match answer {
        Answer::Known(record) => kind(record).map_or(Answer::Missing, Answer::Known),
        Answer::Missing => Answer::Missing,
        Answer::Unknown(why) => Answer::Unknown(why),
        Answer::Pending => Answer::Pending,
    }
}

fn since_start() -> Box<Clock> {
    let start = Instant::now();
    Box::new(move || start.elapsed())
}

/// Number for a name of a policy, by the rules of chown(1); `look_up` asks for the account.
pub fn meaning(name: &str, look_up: impl FnOnce(&str) -> Answer<u32>) -> Answer<u32> {
    if let Some(number) = explicit(name) {
        return Answer::Known(number);
    }
    match look_up(name) {
        Answer::Missing => digits(name).map_or(Answer::Missing, Answer::Known),
        answer => answer,
    }
}

/// Longest wait of a command for one look-up.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);

/// Accounts of this machine for a command, which waits for answers with a time limit.
#[derive(Debug)]
pub struct OnThisMachine(Result<Accounts, String>);

/// Accounts of this machine, asked by a thread of their own.
pub fn on_this_machine() -> &'static OnThisMachine {
    static ACCOUNTS: OnceLock<OnThisMachine> = OnceLock::new();
    ACCOUNTS.get_or_init(|| {
        OnThisMachine(Accounts::in_thread(nss::Nss).map_err(|error| error.to_string()))
    })
}

impl OnThisMachine {
    fn ask(&self, question: &Question) -> Answer<Record> {
        let accounts = match &self.0 {
            Ok(accounts) => accounts,
            Err(error) => return Answer::Unknown(error.clone()),
        };
        // Does not wait again for a hanging service.
        let limit = if accounts.stall().is_some() { Duration::ZERO } else { COMMAND_PATIENCE };
        match accounts.wait_for(question, limit) {
            Answer::Pending => Answer::Unknown(book::no_answer(COMMAND_PATIENCE)),
            answer => answer,
        }
    }

    /// The number of the user with this name.
    pub fn user(&self, name: &str) -> Answer<u32> {
        number(self.ask(&Question::User(name.to_string())))
    }

    /// The number of the group with this name.
    pub fn group(&self, name: &str) -> Answer<u32> {
        number(self.ask(&Question::Group(name.to_string())))
    }

    /// The user with this number.
    pub fn owner(&self, uid: u32) -> Answer<User> {
        user(self.ask(&Question::Owner(uid)))
    }

    /// The name of the group with this number.
    pub fn group_name(&self, gid: u32) -> Answer<String> {
        narrowed(self.ask(&Question::GroupName(gid)), |record| match record {
            Record::Name(name) => Some(name),
            _ => None,
        })
    }
}
