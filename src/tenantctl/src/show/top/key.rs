//! Keys and mouse as actions.

use crate::args::SortKey;

/// Action of a key or of the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Quit.
    Quit,
    /// Open the selected tenant or group, or accept an input.
    Open,
    /// Close the input, the help or the tenant that is open, or end the filter.
    Leave,
    /// Open or close the help.
    Help,
    /// Pause or continue.
    Pause,
    /// Sort by a column.
    Sort(SortKey),
    /// Show a tree or a list.
    Tree,
    /// Hide or show idle tenants.
    HideIdle,
    /// Begin the input of a filter.
    Filter,
    /// End the selected process.
    Kill,
    /// Change the nice value of the selected process.
    Renice,
    /// Add a character to the input.
    Type(char),
    /// Remove the last character of the input.
    Erase,
    /// A row up.
    Up,
    /// A row down.
    Down,
    /// Some rows up, by the mouse wheel.
    WheelUp,
    /// Some rows down, by the mouse wheel.
    WheelDown,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// Go to the first row.
    Home,
    /// Go to the last row.
    End,
    /// Click on a line of the screen, from 0: selects its row, or opens the selected one.
    Click(u16),
}

impl Key {
    /// Action of a letter in the list of tenants.
    pub fn of_letter(letter: char) -> Option<Key> {
        Some(match letter {
            'q' => Key::Quit,
            '?' | 'h' => Key::Help,
            ' ' => Key::Pause,
            '/' => Key::Filter,
            't' => Key::Tree,
            'i' => Key::HideIdle,
            'p' => Key::Sort(SortKey::Policy),
            'n' => Key::Sort(SortKey::Name),
            'c' => Key::Sort(SortKey::Cpu),
            'd' => Key::Sort(SortKey::Wanted),
            's' => Key::Sort(SortKey::ShareNow),
            'b' => Key::Sort(SortKey::ShareIfBusy),
            'm' => Key::Sort(SortKey::Memory),
            'e' => Key::Sort(SortKey::Error),
            'w' => Key::Sort(SortKey::Pressure),
            'k' => Key::Up,
            'j' => Key::Down,
            _ => return None,
        })
    }
}
