//! Questions about accounts, their answers, and the database that gives them.

use std::fmt;
use std::time::Duration;

/// Answer to a question about an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// The account exists.
    Known(T),
    /// The account does not exist.
    Missing,
    /// The look-up failed; the reason.
    Unknown(String),
    /// The look-up is under way.
    Pending,
}

impl<T> Answer<T> {
    /// The value, if the account is known.
    pub fn known(self) -> Option<T> {
        match self {
            Answer::Known(value) => Some(value),
            Answer::Missing | Answer::Unknown(_) | Answer::Pending => None,
        }
    }
}

/// A user by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The login name.
    pub name: String,
    /// The GIDs of all groups.
    pub groups: Vec<u32>,
}

/// A question about an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Question {
    /// The number of the user with this name.
    User(String),
    /// The number of the group with this name.
    Group(String),
    /// The user with this number.
    Owner(u32),
    /// The name of the group with this number.
    GroupName(u32),
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Question::User(name) => write!(f, "user `{name}`"),
            Question::Group(name) => write!(f, "group `{name}`"),
            Question::Owner(uid) => write!(f, "UID {uid}"),
            Question::GroupName(gid) => write!(f, "GID {gid}"),
        }
    }
}

/// The answer to a [`Question`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Number of a name.
    Number(u32),
    /// User with a number.
    User(User),
    /// Name of a group with a number.
    Name(String),
}

/// Result of a look-up: the account, `None`, or an error.
pub type Outcome<T> = Result<Option<T>, String>;

/// A database of accounts that may block, and may fail.
pub trait Directory: Send {
    /// The number of the user with this name.
    ///
    /// # Errors
    /// The look-up failed.
    fn user(&mut self, name: &str) -> Outcome<u32>;

    /// The number of the group with this name.
    ///
    /// # Errors
    /// The look-up failed.
    fn group(&mut self, name: &str) -> Outcome<u32>;

    /// The user with this number.
    ///
    /// # Errors
    /// The look-up failed.
    fn owner(&mut self, uid: u32) -> Outcome<User>;

    /// The name of the group with this number; only commands ask for it.
    ///
    /// # Errors
    /// The look-up failed.
    fn group_name(&mut self, gid: u32) -> Outcome<String> {
        let _ = gid;
        Ok(None)
    }
}

/// Purpose of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The identity of a tenant.
    Identity,
    /// A name of the policy: an unknown one is asked for again each minute.
    Policy,
    /// A permission.
    Permission,
    /// The state of the database now.
    Now,
}

/// A slow look-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The question.
    pub question: Question,
    /// Its age.
    pub age: Duration,
    /// Number of questions behind it.
    pub nr_waiting: usize,
}

/// Number written as digits, for a name that no account has.
pub fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Number written with a plus sign (`+200`), whatever accounts exist.
pub fn explicit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
