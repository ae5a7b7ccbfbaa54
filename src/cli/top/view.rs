//! The state of the screen: the last tick and its age, earlier usages, and the choices of the user.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::cli::args::SortKey;
use crate::control::status::{Line, Status};
use crate::resource::{CPU, MEMORY};

/// Ticks of the sparklines: two minutes at one a second.
const HISTORY_TICKS: usize = 120;
/// Rows per page.
const PAGE_ROWS: usize = 10;

/// The action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Quit.
    Quit,
    /// Close the help.
    Leave,
    /// Open or close the help.
    Help,
    /// Pause or continue.
    Pause,
    /// Sort by a column.
    Sort(SortKey),
    /// A row up.
    Up,
    /// A row down.
    Down,
    /// A page up.
    PageUp,
    /// A page down.
    PageDown,
    /// To the first row.
    Home,
}

impl Key {
    /// The action of a letter.
    pub fn of_letter(letter: char) -> Option<Key> {
        Some(match letter {
            'q' => Key::Quit,
            '?' | 'h' => Key::Help,
            ' ' => Key::Pause,
            'p' => Key::Sort(SortKey::Policy),
            'n' => Key::Sort(SortKey::Name),
            'c' => Key::Sort(SortKey::Cpu),
            'm' => Key::Sort(SortKey::Memory),
            'e' => Key::Sort(SortKey::Error),
            'w' => Key::Sort(SortKey::Pressure),
            'k' => Key::Up,
            'j' => Key::Down,
            _ => return None,
        })
    }
}

/// Everything that the picture depends on, except its size.
#[derive(Debug, Default)]
pub struct View {
    /// The tick that is shown.
    pub(super) status: Status,
    /// When the last tick arrived that was not the one before.
    arrived: Option<Instant>,
    /// The age of the last tick, where it is stale.
    pub(super) stale: Option<Duration>,
    /// The age beyond which a tick is stale.
    stale_after: Option<Duration>,
    /// The number of the last tick, also while paused.
    last_tick: Option<u64>,
    /// CPUs used by each tenant and group, the newest last.
    usages: HashMap<String, VecDeque<Option<f64>>>,
    /// The reason, where the daemon does not answer.
    pub(super) away: Option<String>,
    pub(super) sort: SortKey,
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
    /// Rows of tenants above the visible ones.
    pub(super) nr_above: usize,
    pub(super) colour: bool,
}

impl View {
    /// An empty view.
    pub fn new(sort: SortKey, colour: bool) -> View {
        View { sort, colour, ..View::default() }
    }

    /// Takes a tick that arrived at `now`. A paused picture does not change; its sparklines have no gap afterwards.
    pub fn update(&mut self, status: Status, now: Instant) {
        self.away = None;
        if Some(status.tick) == self.last_tick {
            return;
        }
        (self.last_tick, self.arrived, self.stale) = (Some(status.tick), Some(now), None);
        self.stale_after = Duration::try_from_secs_f64(status.thresholds.stale_seconds).ok();
        let mut before = std::mem::take(&mut self.usages);
        for line in status.lines() {
            let mut usages = before.remove(line.name()).unwrap_or_default();
            usages.push_back(line.usage()[CPU]);
            if usages.len() > HISTORY_TICKS {
                usages.pop_front();
            }
            self.usages.insert(line.name().to_string(), usages);
        }
        if !self.is_paused {
            self.status = status;
        }
    }

    /// Marks the tick as stale if it is too old at `now`.
    pub fn check_age(&mut self, now: Instant) {
        let age = self.arrived.map(|arrived| now.saturating_duration_since(arrived));
        self.stale = age.filter(|age| self.stale_after.is_some_and(|after| *age > after));
    }

    /// Whether the figures on the screen may be out of date.
    pub(super) fn is_stale(&self) -> bool {
        self.away.is_some() || self.stale.is_some()
    }

    /// Notes that the daemon does not answer, and why.
    pub fn away(&mut self, why: String) {
        self.away = Some(why);
    }

    /// Applies a key. [`Key::Quit`] is up to the caller.
    pub fn press(&mut self, key: Key) {
        match key {
            Key::Quit => {}
            Key::Leave => self.has_help = false,
            Key::Help => self.has_help = !self.has_help,
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Sort(sort) => (self.sort, self.nr_above) = (sort, 0),
            Key::Up => self.nr_above = self.nr_above.saturating_sub(1),
            Key::Down => self.nr_above += 1,
            Key::PageUp => self.nr_above = self.nr_above.saturating_sub(PAGE_ROWS),
            Key::PageDown => self.nr_above += PAGE_ROWS,
            Key::Home => self.nr_above = 0,
        }
        self.shown(1);
    }

    /// Limits scrolling to a screen with room for `nr_rows` tenants, so that each key has a visible effect.
    pub fn shown(&mut self, nr_rows: usize) {
        let nr_above_max = self.status.lines().len().saturating_sub(nr_rows.max(1));
        self.nr_above = self.nr_above.min(nr_above_max);
    }

    /// The sorted tenants and groups; a group has neither share error nor pressure of its own.
    pub(super) fn lines(&self) -> Vec<Line<'_>> {
        let mut lines = self.status.lines();
        let descending = |read: fn(Line<'_>) -> Option<f64>| {
            move |a: &Line<'_>, b: &Line<'_>| {
                let value = |line| read(line).unwrap_or(f64::NEG_INFINITY);
                value(*b).total_cmp(&value(*a))
            }
        };
        match self.sort {
            SortKey::Policy => {}
            SortKey::Name => lines.sort_by(|a, b| a.name().cmp(b.name())),
            SortKey::Cpu => lines.sort_by(descending(|line| line.usage()[CPU])),
            SortKey::Memory => lines.sort_by(descending(|line| line.usage()[MEMORY])),
            SortKey::Error => lines.sort_by(descending(|line| line.tenant()?.share_error)),
            SortKey::Pressure => {
                lines.sort_by(descending(|line| line.tenant()?.cpu_pressure_ratio));
            }
        }
        lines
    }

    /// The last usages of a tenant, the newest last; at most `count`.
    pub(super) fn usages(&self, name: &str, count: usize) -> Vec<Option<f64>> {
        let all = self.usages.get(name);
        let from = all.map_or(0, |usages| usages.len().saturating_sub(count));
        all.into_iter().flatten().skip(from).copied().collect()
    }
}
