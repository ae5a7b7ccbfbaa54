//! State of the screen: the last tick and its age, earlier usages, and the choices of the user.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::focus::Opened;
use super::inspect::Inspection;
use crate::args::SortKey;
use crate::common::rows::{Choice, Row, rows};
use tenantd_control::report::status::{Line, Status};
use tenantd_core::resource::CPU;

/// Ticks of the sparklines: two minutes at one per second.
const HISTORY_TICKS: usize = 120;
const PAGE_ROWS: usize = 10;

/// Action of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Quit.
    Quit,
    /// Open the selected tenant or group.
    Open,
    /// Close the help, or the tenant that is open.
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
    /// Go to the first row.
    Home,
}

impl Key {
    /// Action of a letter.
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

/// State of the picture, except its size.
#[derive(Debug, Default)]
pub struct View {
    pub(crate) status: Status,
    arrived: Option<Instant>,
    pub(crate) stale: Option<Duration>,
    stale_after: Option<Duration>,
    /// Number of the last tick, even while paused.
    last_tick: Option<u64>,
    /// CPUs used by each tenant and group, the newest last.
    usages: HashMap<String, VecDeque<Option<f64>>>,
    pub(crate) away: Option<String>,
    pub(crate) sort: SortKey,
    pub(crate) is_paused: bool,
    pub(crate) has_help: bool,
    pub(crate) selected: usize,
    nr_above: usize,
    pub(crate) opened: Option<String>,
    pub(crate) inspection: Option<Inspection>,
    nr_processes_above: usize,
    pub(crate) colour: bool,
}

impl View {
    /// Creates an empty view.
    pub fn new(sort: SortKey, colour: bool) -> View {
        View { sort, colour, ..View::default() }
    }

    /// Adds a tick that arrived at `now`. A paused picture does not change; its sparklines have no gap
    /// afterwards.
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

    pub(crate) fn is_stale(&self) -> bool {
        self.away.is_some() || self.stale.is_some()
    }

    /// Records the reason why the daemon does not answer.
    pub fn away(&mut self, why: String) {
        self.away = Some(why);
    }

    /// Applies a key. [`Key::Quit`] is up to the caller.
    pub fn press(&mut self, key: Key) {
        match key {
            Key::Quit => {}
            Key::Open => self.open_selected(),
            Key::Leave if self.has_help => self.has_help = false,
            Key::Leave => self.opened = None,
            Key::Help => self.has_help = !self.has_help,
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Sort(sort) => {
                self.sort = sort;
                self.walk(|_| 0);
                self.sort_processes();
            }
            Key::Up => self.walk(|row| row.saturating_sub(1)),
            Key::Down => self.walk(|row| row + 1),
            Key::PageUp => self.walk(|row| row.saturating_sub(PAGE_ROWS)),
            Key::PageDown => self.walk(|row| row + PAGE_ROWS),
            Key::Home => self.walk(|_| 0),
        }
    }

    /// Moves the selection, or scrolls the processes of the open tenant; never beyond the end, so that each
    /// key has a visible effect.
    fn walk(&mut self, to: impl Fn(usize) -> usize) {
        let (row, nr_rows) = match (&self.opened, &self.inspection) {
            (Some(_), found) => {
                let nr_processes = found.as_ref().map_or(0, |found| found.processes.len());
                (&mut self.nr_processes_above, nr_processes)
            }
            (None, _) => (&mut self.selected, self.status.lines().len()),
        };
        *row = to(*row).min(nr_rows.saturating_sub(1));
    }

    /// Sets the number of rows on the screen, of the list or of processes.
    pub fn shown(&mut self, nr_rows: usize) {
        match self.opened {
            Some(_) => self.nr_processes_above = self.first_process(nr_rows),
            None => self.nr_above = self.first_row(nr_rows),
        }
    }

    /// First row of the list on a screen with `nr_rows` rows, the last of which may show the number of rows
    /// below: the selected one is visible.
    pub(crate) fn first_row(&self, nr_rows: usize) -> usize {
        let (nr_lines, nr_rows) = (self.status.lines().len(), nr_rows.max(1));
        let selected = self.selected.min(nr_lines.saturating_sub(1));
        let is_visible = |first: usize| {
            let has_more = nr_rows > 1 && first + nr_rows < nr_lines;
            selected < first + nr_rows - usize::from(has_more)
        };
        let from = self.nr_above.min(selected).min(nr_lines.saturating_sub(nr_rows));
        (from..=selected).find(|first| is_visible(*first)).unwrap_or(selected)
    }

    pub(crate) fn first_process(&self, nr_rows: usize) -> usize {
        let nr_processes = self.inspection.as_ref().map_or(0, |found| found.processes.len());
        self.nr_processes_above.min(nr_processes.saturating_sub(nr_rows))
    }

    // --- one tenant ---

    fn open_selected(&mut self) {
        let selected = self.lines().get(self.selected).map(|line| line.name().to_string());
        if let (None, Some(name)) = (&self.opened, selected) {
            self.open(name);
        }
    }

    /// Opens a tenant or group.
    pub fn open(&mut self, name: String) {
        (self.opened, self.inspection, self.nr_processes_above) = (Some(name), None, 0);
    }

    /// Open tenant or group.
    pub fn opened(&self) -> Option<Opened> {
        let name = self.opened.clone()?;
        let tenants = self.status.tenants_of(&name).map(|tenant| tenant.name.to_string()).collect();
        Some(Opened { name, tenants })
    }

    /// Adds an inspection, unless its tenant is closed by now, or the picture is paused.
    pub fn inspect(&mut self, found: Inspection) {
        if self.opened.as_ref() == Some(&found.name) && !self.is_paused {
            self.inspection = Some(found);
            self.sort_processes();
        }
    }

    fn sort_processes(&mut self) {
        if let Some(found) = &mut self.inspection {
            found.sort(self.sort == SortKey::Memory);
        }
    }

    /// Sorted tenants and groups.
    pub(crate) fn lines(&self) -> Vec<Line<'_>> {
        let line = |row| match row {
            Row::Line(line) => Some(line),
            Row::Fold(_) => None,
        };
        let choice = Choice { sort: self.sort, ..Choice::default() };
        rows(&self.status, &choice).into_iter().filter_map(line).collect()
    }

    pub(crate) fn usages(&self, name: &str, count: usize) -> Vec<Option<f64>> {
        let all = self.usages.get(name);
        let from = all.map_or(0, |usages| usages.len().saturating_sub(count));
        all.into_iter().flatten().skip(from).copied().collect()
    }
}
