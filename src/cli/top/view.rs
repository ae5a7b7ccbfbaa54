//! The state of the screen: the last tick and its age, earlier usages, and the choices of the user.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use crate::cli::args::SortKey;
use crate::control::status::{Status, TenantStatus};
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
    /// CPUs used by each tenant, the newest last.
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
        self.usages.retain(|name, _| status.tenants.iter().any(|tenant| tenant.name == *name));
        for tenant in &status.tenants {
            let usages = self.usages.entry(tenant.name.clone()).or_default();
            usages.push_back(tenant.usage[CPU]);
            if usages.len() > HISTORY_TICKS {
                usages.pop_front();
            }
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
        let nr_above_max = self.status.tenants.len().saturating_sub(nr_rows.max(1));
        self.nr_above = self.nr_above.min(nr_above_max);
    }

    /// The sorted tenants, each with its place in the policy.
    pub(super) fn tenants(&self) -> Vec<(usize, &TenantStatus)> {
        let mut tenants: Vec<_> = self.status.tenants.iter().enumerate().collect();
        let descending = |read: fn(&TenantStatus) -> Option<f64>| {
            move |a: &(usize, &TenantStatus), b: &(usize, &TenantStatus)| {
                let value = |tenant| read(tenant).unwrap_or(f64::NEG_INFINITY);
                value(b.1).total_cmp(&value(a.1))
            }
        };
        match self.sort {
            SortKey::Policy => {}
            SortKey::Name => tenants.sort_by(|a, b| a.1.name.cmp(&b.1.name)),
            SortKey::Cpu => tenants.sort_by(descending(|tenant| tenant.usage[CPU])),
            SortKey::Memory => tenants.sort_by(descending(|tenant| tenant.usage[MEMORY])),
            SortKey::Error => tenants.sort_by(descending(|tenant| tenant.share_error)),
            SortKey::Pressure => tenants.sort_by(descending(|tenant| tenant.cpu_pressure_ratio)),
        }
        tenants
    }

    /// The last usages of a tenant, the newest last; at most `count`.
    pub(super) fn usages(&self, name: &str, count: usize) -> Vec<Option<f64>> {
        let all = self.usages.get(name);
        let from = all.map_or(0, |usages| usages.len().saturating_sub(count));
        all.into_iter().flatten().skip(from).copied().collect()
    }
}
