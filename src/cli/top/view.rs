//! What the screen shows: the last tick, the usages before it, and what the person asked for.

use std::collections::{HashMap, VecDeque};

use crate::cli::args::SortKey;
use crate::control::status::{Status, TenantStatus};

/// Ticks that are kept for the sparklines: two minutes at one a second.
const HISTORY_TICKS: usize = 120;
/// Rows that a page moves.
const PAGE_ROWS: usize = 10;

/// What a key asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// End.
    Quit,
    /// Close the help.
    Leave,
    /// Open or close the help.
    Help,
    /// Hold the picture still, or let it move again.
    Pause,
    /// Sort by this.
    Sort(SortKey),
    /// A row up.
    Up,
    /// A row down.
    Down,
    /// Some rows up.
    PageUp,
    /// Some rows down.
    PageDown,
    /// To the first row.
    Home,
}

impl Key {
    /// What a letter asks for.
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

/// All that a picture is made of, but its size.
#[derive(Debug, Default)]
pub struct View {
    /// The tick that is shown.
    pub(super) status: Status,
    /// CPUs used by each tenant, the newest last.
    usages: HashMap<String, VecDeque<Option<f64>>>,
    /// Why the daemon does not answer, where it does not.
    pub(super) away: Option<String>,
    pub(super) sort: SortKey,
    pub(super) is_paused: bool,
    pub(super) has_help: bool,
    /// Rows of tenants that are scrolled past.
    pub(super) nr_above: usize,
    pub(super) colour: bool,
}

impl View {
    /// Before anything was told.
    pub fn new(sort: SortKey, colour: bool) -> View {
        View { sort, colour, ..View::default() }
    }

    /// Takes up a tick. A paused picture stays, and nothing is missing in its sparklines when it moves again.
    pub fn told(&mut self, status: Status) {
        self.away = None;
        if status.tick == self.status.tick && !self.usages.is_empty() {
            return;
        }
        self.usages.retain(|name, _| status.tenants.iter().any(|tenant| tenant.name == *name));
        for tenant in &status.tenants {
            let usages = self.usages.entry(tenant.name.clone()).or_default();
            usages.push_back(tenant.usage_cores);
            if usages.len() > HISTORY_TICKS {
                usages.pop_front();
            }
        }
        if !self.is_paused {
            self.status = status;
        }
    }

    /// The daemon does not answer.
    pub fn away(&mut self, why: String) {
        self.away = Some(why);
    }

    /// Does what a key asks for. [`Key::Quit`] is for whoever holds the screen.
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

    /// The screen had room for `nr_rows` tenants: it is scrolled no further than the last of them need, so that
    /// the next row up is one that is seen.
    pub fn shown(&mut self, nr_rows: usize) {
        let nr_above_max = self.status.tenants.len().saturating_sub(nr_rows.max(1));
        self.nr_above = self.nr_above.min(nr_above_max);
    }

    /// The tenants as they are sorted, each with its place in the policy.
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
            SortKey::Cpu => tenants.sort_by(descending(|tenant| tenant.usage_cores)),
            SortKey::Memory => tenants.sort_by(descending(|tenant| tenant.usage_memory_bytes)),
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
