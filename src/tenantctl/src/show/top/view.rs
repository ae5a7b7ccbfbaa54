//! State of the screen: the last tick and its age, earlier usages, and the choices of the user.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use super::deed::{Deed, Target};
use super::focus::Opened;
use super::inspect::Inspection;
pub use super::key::Key;
use super::prompt::{Answer, Prompt};
use crate::args::SortKey;
use crate::common::rows::{Choice, Idle, Row, rows};
use tenantd_control::report::status::{Line, Status};
use tenantd_core::resource::CPU;

/// Ticks of the sparklines: two minutes at one per second.
pub(crate) const HISTORY_TICKS: usize = 120;
const PAGE_ROWS: usize = 10;
/// Rows that a turn of the mouse wheel passes.
const WHEEL_ROWS: usize = 3;

/// Rows on the drawn screen: of the list, or of processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Line of the first row.
    pub top: u16,
    /// Number of rows.
    pub nr_rows: usize,
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
    /// Time of a tick from a recording.
    pub(crate) recorded: Option<String>,
    pub(crate) choice: Choice,
    pub(crate) is_paused: bool,
    pub(crate) has_help: bool,
    pub(crate) selected: usize,
    nr_above: usize,
    shown: Shown,
    pub(crate) opened: Option<String>,
    pub(crate) inspection: Option<Inspection>,
    pub(crate) selected_process: usize,
    nr_processes_above: usize,
    pub(crate) prompt: Option<Prompt>,
    /// Result of the last action, until the next key.
    pub(crate) message: Option<String>,
    deed: Option<Deed>,
    /// True if the user may end and renice processes.
    pub(crate) is_root: bool,
    pub(crate) colour: bool,
}

impl View {
    /// Creates an empty view.
    pub fn new(sort: SortKey, colour: bool) -> View {
        View { choice: Choice { sort, ..Choice::default() }, colour, ..View::default() }
    }

    /// Lets the user end and renice processes.
    pub fn permit_deeds(&mut self) {
        self.is_root = true;
    }

    /// Marks the picture as one of a recording, of `time` in words.
    pub fn set_recorded(&mut self, time: String) {
        self.recorded = Some(time);
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

    // --- keys ---

    /// Action of a letter now: an input takes all of them, and a process has its own.
    pub fn key_of(&self, letter: char) -> Option<Key> {
        match letter {
            _ if self.prompt.is_some() => Some(Key::Type(letter)),
            'k' if self.opened.is_some() => Some(Key::Kill),
            'r' if self.opened.is_some() => Some(Key::Renice),
            '/' | 't' | 'i' if self.opened.is_some() => None,
            _ => Key::of_letter(letter),
        }
    }

    /// Applies a key. [`Key::Quit`] is up to the caller.
    pub fn press(&mut self, key: Key) {
        self.message = None;
        if self.prompt.is_some() && !self.answer(key) {
            return;
        }
        match key {
            Key::Quit | Key::Type(_) | Key::Erase => {}
            Key::Open => self.open_selected(),
            Key::Leave => self.leave(),
            Key::Help => self.has_help = !self.has_help,
            Key::Pause => self.is_paused = !self.is_paused,
            Key::Sort(sort) => {
                self.choice.sort = sort;
                self.walk(|_| 0);
                self.sort_processes();
            }
            Key::Tree => self.choice.is_tree = !self.choice.is_tree,
            Key::HideIdle => {
                let is_hidden = self.choice.idle == Idle::Hidden;
                self.choice.idle = if is_hidden { Idle::Shown } else { Idle::Hidden };
                self.walk(|row| row);
            }
            Key::Filter => self.prompt = Some(Prompt::Filter),
            Key::Kill => self.ask(Prompt::Kill),
            Key::Renice => self.ask(|target| Prompt::Renice(target, String::new())),
            Key::Up => self.walk(|row| row.saturating_sub(1)),
            Key::Down => self.walk(|row| row + 1),
            Key::WheelUp => self.walk(|row| row.saturating_sub(WHEEL_ROWS)),
            Key::WheelDown => self.walk(|row| row + WHEEL_ROWS),
            Key::PageUp => self.walk(|row| row.saturating_sub(PAGE_ROWS)),
            Key::PageDown => self.walk(|row| row + PAGE_ROWS),
            Key::Home => self.walk(|_| 0),
            Key::End => self.walk(|_| usize::MAX),
            Key::Click(line) => self.click(line),
        }
    }

    /// Applies a key to the input; returns true if the key has its usual effect as well.
    fn answer(&mut self, key: Key) -> bool {
        let Some(mut prompt) = self.prompt.take() else { return true };
        match prompt.press(key, &mut self.choice.filter) {
            Answer::Goes => {
                self.prompt = Some(prompt);
                self.walk(|row| row);
                return matches!(key, Key::Up | Key::Down | Key::PageUp | Key::PageDown);
            }
            Answer::Closed => self.walk(|row| row),
            Answer::Wrong(message) => self.message = Some(message),
            Answer::Done(deed) => self.deed = Some(deed),
        }
        false
    }

    fn leave(&mut self) {
        if self.has_help {
            self.has_help = false;
        } else if self.opened.is_some() {
            self.opened = None;
        } else {
            self.choice.filter.clear();
        }
    }

    /// Asks what to do with the selected process, if the user may.
    fn ask(&mut self, prompt: impl FnOnce(Target) -> Prompt) {
        let found = self.inspection.as_ref();
        let process = found.and_then(|found| found.processes.get(self.selected_process));
        match process {
            Some(_) if !self.is_root => {
                self.message =
                    Some("only root may end and renice processes of tenants".to_string());
            }
            Some(process) => self.prompt = Some(prompt(Target::of(process))),
            None => self.message = Some("no process is selected".to_string()),
        }
    }

    /// Returns the confirmed action on a process, once.
    pub fn take_deed(&mut self) -> Option<Deed> {
        self.deed.take()
    }

    /// Shows a message until the next key.
    pub fn tell(&mut self, message: String) {
        self.message = Some(message);
    }

    // --- the list ---

    /// Moves the selection; never beyond the end, so that each key has a visible effect.
    fn walk(&mut self, to: impl Fn(usize) -> usize) {
        let nr_rows = match self.opened {
            Some(_) => self.nr_processes(),
            None => self.lines().len(),
        };
        let row =
            if self.opened.is_some() { &mut self.selected_process } else { &mut self.selected };
        *row = to(*row).min(nr_rows.saturating_sub(1));
    }

    fn click(&mut self, line: u16) {
        let Some(row) = line.checked_sub(self.shown.top).map(usize::from) else { return };
        if row >= self.shown.nr_rows || self.has_help {
            return;
        }
        if self.opened.is_some() {
            let row = row + self.first_process(self.shown.nr_rows);
            if row < self.nr_processes() {
                self.selected_process = row;
            }
            return;
        }
        let row = row + self.first_row(self.shown.nr_rows);
        if row >= self.lines().len() {
            return;
        }
        if row == self.selected { self.open_selected() } else { self.selected = row }
    }

    /// Sets the rows on the screen, of the list or of processes.
    pub fn shown(&mut self, shown: Shown) {
        self.shown = shown;
        match self.opened {
            Some(_) => self.nr_processes_above = self.first_process(shown.nr_rows),
            None => self.nr_above = self.first_row(shown.nr_rows),
        }
    }

    /// First row of the list on a screen with `nr_rows` rows, the last of which may show the number of rows
    /// below: the selected one is visible.
    pub(crate) fn first_row(&self, nr_rows: usize) -> usize {
        first(self.nr_above, self.selected, self.lines().len(), nr_rows, true)
    }

    pub(crate) fn first_process(&self, nr_rows: usize) -> usize {
        let (above, selected) = (self.nr_processes_above, self.selected_process);
        first(above, selected, self.nr_processes(), nr_rows, false)
    }

    fn nr_processes(&self) -> usize {
        self.inspection.as_ref().map_or(0, |found| found.processes.len())
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
        (self.opened, self.inspection) = (Some(name), None);
        (self.selected_process, self.nr_processes_above) = (0, 0);
    }

    /// Open tenant or group.
    pub fn opened(&self) -> Option<Opened> {
        let name = self.opened.clone()?;
        let tenants = self.status.tenants_of(&name).map(|tenant| tenant.name.to_string()).collect();
        Some(Opened { name, tenants })
    }

    /// Adds an inspection, unless its tenant is closed by now, or the picture is paused. The selected process
    /// stays selected.
    pub fn inspect(&mut self, found: Inspection) {
        if self.opened.as_ref() == Some(&found.name) && !self.is_paused {
            let before = self.inspection.as_ref();
            let pid = before.and_then(|it| Some(it.processes.get(self.selected_process)?.pid));
            self.inspection = Some(found);
            self.sort_processes();
            let found = self.inspection.iter().flat_map(|found| &found.processes);
            // The cursor on the first row follows the largest, not the process.
            let at = pid
                .filter(|_| self.selected_process > 0)
                .and_then(|pid| found.clone().position(|process| process.pid == pid));
            self.selected_process = at.unwrap_or(self.selected_process);
            self.walk(|row| row);
        }
    }

    fn sort_processes(&mut self) {
        if let Some(found) = &mut self.inspection {
            found.sort(self.choice.sort == SortKey::Memory);
        }
    }

    /// Chosen and sorted tenants and groups.
    pub(crate) fn lines(&self) -> Vec<Line<'_>> {
        let line = |row| match row {
            Row::Line(line) => Some(line),
            Row::Fold(_) => None,
        };
        rows(&self.status, &self.choice).into_iter().filter_map(line).collect()
    }

    pub(crate) fn usages(&self, name: &str, count: usize) -> Vec<Option<f64>> {
        let all = self.usages.get(name);
        let from = all.map_or(0, |usages| usages.len().saturating_sub(count));
        all.into_iter().flatten().skip(from).copied().collect()
    }
}

/// First visible row, of `nr_rows` visible ones: near `above`, with the `selected` one visible. The last one may
/// show the number of rows below.
fn first(above: usize, selected: usize, nr_all: usize, nr_rows: usize, counts_rest: bool) -> usize {
    let nr_rows = nr_rows.max(1);
    let selected = selected.min(nr_all.saturating_sub(1));
    let is_visible = |first: usize| {
        let has_more = counts_rest && nr_rows > 1 && first + nr_rows < nr_all;
        selected < first + nr_rows - usize::from(has_more)
    };
    let from = above.min(selected).min(nr_all.saturating_sub(nr_rows));
    (from..=selected).find(|first| is_visible(*first)).unwrap_or(selected)
}
