//! Inputs in the last line: a filter, and the confirmation of an action on a process.

use super::deed::{Deed, Target};
use super::key::Key;
use tenantd_lab::text::shortened;

/// Longest input of a filter.
const FILTER_MAX: usize = 64;
/// Longest nice value, `-20`.
const NICE_MAX: usize = 3;

/// Open input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    /// Part of a name; its text is in the choice of rows.
    Filter,
    /// Confirmation of a signal.
    Kill(Target),
    /// New nice value.
    Renice(Target, String),
}

/// Result of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The input stays open.
    Goes,
    /// The input is closed.
    Closed,
    /// The input is closed, because of an invalid value.
    Wrong(String),
    /// The action is confirmed.
    Done(Deed),
}

impl Prompt {
    /// Applies a key; `filter` is the text of [`Prompt::Filter`].
    pub(crate) fn press(&mut self, key: Key, filter: &mut String) -> Answer {
        match self {
            Prompt::Filter => edit_filter(key, filter),
            Prompt::Kill(target) => match key {
                Key::Type('y') => Answer::Done(Deed::End(target.clone())),
                Key::Type('9') => Answer::Done(Deed::Kill(target.clone())),
                _ => Answer::Closed,
            },
            Prompt::Renice(target, text) => match key {
                Key::Type(letter) => {
                    let is_part = letter.is_ascii_digit() || (letter == '-' && text.is_empty());
                    if is_part && text.len() < NICE_MAX {
                        text.push(letter);
                    }
                    Answer::Goes
                }
                Key::Erase => {
                    text.pop();
                    Answer::Goes
                }
                Key::Open => match text.parse() {
                    Ok(nice @ -20..=19) => Answer::Done(Deed::Renice(target.clone(), nice)),
                    _ => Answer::Wrong(format!("`{text}` is not a nice value from -20 to 19")),
                },
                _ => Answer::Closed,
            },
        }
    }

    /// Text of the last line, `width` characters at most.
    pub(crate) fn line(&self, filter: &str, width: usize) -> String {
        let line = match self {
            Prompt::Filter => format!("/{filter}▏  Enter keep, Esc end"),
            Prompt::Kill(target) => {
                let keys = "? y: SIGTERM, 9: SIGKILL, other keys: no";
                let room = width.saturating_sub(keys.len() + 5);
                format!("end {}{keys}", shortened(&target.words(), room.max(12)))
            }
            Prompt::Renice(target, text) => {
                let keys = format!(" nice (-20 to 19): {text}▏  Enter, Esc");
                let room = width.saturating_sub(keys.chars().count() + 1);
                format!("{}{keys}", shortened(&target.words(), room.max(12)))
            }
        };
        line.chars().take(width).collect()
    }
}

fn edit_filter(key: Key, filter: &mut String) -> Answer {
    match key {
        Key::Type(letter) => {
            if filter.chars().count() < FILTER_MAX && !letter.is_control() {
                filter.push(letter);
            }
            Answer::Goes
        }
        Key::Erase => {
            filter.pop();
            Answer::Goes
        }
        Key::Leave => {
            filter.clear();
            Answer::Closed
        }
        Key::Open => Answer::Closed,
        _ => Answer::Goes,
    }
}
