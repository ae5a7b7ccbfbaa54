//! Questions about accounts, their answers, and the database that gives them.

use std::fmt;
use std::time::Duration;

/// The knowledge of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// It exists.
    Known(T),
    /// There is no such account.
    Missing,
    /// It could not be looked up, for this reason.
    Unknown(String),
    /// It is being looked up.
    Pending,
}

impl<T> Answer<T> {
    /// The value, where the account is known.
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
    /// To a question about a name.
    Number(u32),
    /// To a question about the number of a user.
    User(User),
    /// To a question about the number of a group.
    Name(String),
}

/// The result of a look-up: the account, none, or why neither is known.
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

/// A look-up that has taken long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The question.
    pub question: Question,
    /// Its age.
    pub age: Duration,
    /// Questions behind it.
    pub nr_waiting: usize,
}

/// The number that a text of digits is where no account has it as its name.
pub fn digits(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// The number that a text with a plus sign names, whatever accounts there are: `+200`.
pub fn explicit(text: &str) -> Option<u32> {
    let digits = text.strip_prefix('+')?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}
