//! The picture: a pure function of the [`View`] and the size of the screen.
//!
//! From the top: the machine, fairness, the tenants, jobs, the map of the CPUs, findings, keys. On a small
//! screen the map and the findings are left out first, then the sparkline and the memory of each tenant, and
//! last the waits and the shares beside the bars. Every size is drawn (`tests/face/top.rs`, from 1×1 to 300×100). A name may
//! lose its middle; a figure never loses a digit: its column is as wide as the widest figure, or is left out.
//!
//! Colour never carries meaning alone: a tenant below its share is marked with `!`, the parts of a bar are
//! different characters, CPUs have the letter of their tenant. Stale figures are dimmed, and the second line
//! shows their age. The thresholds come from the status.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph, Wrap};

use super::bars::{self, Cell};
use super::frame::{fairness_line, fitting, head_line, jobs_line, last_line, tinted};
use super::inside;
use super::view::{Shown, View};
use crate::args::SortKey;
use crate::common::rows::{Idle, is_unfair, place_in_tree};
use crate::show::disk;
use crate::show::tenants::{memory_used, name_of};
use tenantd_control::report::status::Line as Row;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_dop::cpuset::CpuSet;
use tenantd_lab::text::{self, SHARE_HEADS, cores, percent, shortened};

const HUES: [Color; 6] =
    [Color::Cyan, Color::Yellow, Color::Green, Color::Magenta, Color::Blue, Color::Red];
const FINDINGS_MAX: u16 = 3;
/// Width from which the degree of parallelism is shown.
const DOP_MIN: usize = 120;
/// Largest number of CPUs of a kernel.
const CPUS_MAX: u32 = 8192;

/// Draws the screen; returns the rows for tenants, or for the processes of the open one.
pub fn screen(frame: &mut Frame<'_>, view: &View) -> Shown {
    let shown = match &view.opened {
        Some(name) => inside::screen(frame, view, name),
        None => list(frame, view),
    };
    if view.has_help {
        help(frame, view);
    }
    shown
}

fn list(frame: &mut Frame<'_>, view: &View) -> Shown {
    let area = frame.area();
    let width = usize::from(area.width);
    let map = map_lines(view, width);
    let findings = view.status.findings.len().min(usize::from(FINDINGS_MAX)) as u16;
    // The first lines, three rows of tenants and the keys take precedence over the map and the findings.
    let spare = area.height.saturating_sub(9);
    let map_height = (map.len() as u16).min(spare / 2);
    let findings_height = findings.min(spare.saturating_sub(map_height) / 2);
    let jobs = jobs_line(view, width);
    let jobs_height = u16::from(jobs.is_some() && area.height >= 10);
    let [head, fair, title, tenants, jobs_area, map_area, findings_area, keys] =
        Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(if area.height >= 10 { 2 } else { 1 }),
            Constraint::Min(1),
            Constraint::Length(jobs_height),
            Constraint::Length(map_height),
            Constraint::Length(findings_height),
            Constraint::Length(1),
        ])
        .areas(area);
    let columns = Columns::for_width(width, &view.status.lines(), view.choice.is_tree);
    frame.render_widget(head_line(view, width), head);
    frame.render_widget(fairness_line(view, width), fair);
    for (line, area) in columns.title(view.choice.sort).into_iter().rev().zip(title.rows().rev()) {
        frame.render_widget(line, area);
    }
    let mut rows = Paragraph::new(rows(view, &columns, usize::from(tenants.height)));
    if view.is_stale() {
        rows = rows.style(Style::new().add_modifier(Modifier::DIM));
    }
    frame.render_widget(rows, tenants);
    frame.render_widget(jobs.unwrap_or_default(), jobs_area);
    frame.render_widget(Paragraph::new(map), map_area);
    let notes = view.status.findings.iter().take(usize::from(findings_height));
    let notes = notes.map(|note| Line::from(shortened(&format!("note: {note}"), width)));
    frame.render_widget(Paragraph::new(notes.collect::<Vec<_>>()), findings_area);
    frame.render_widget(last_line(view, width, &keys_line(view, width)), keys);
    Shown { top: tenants.y, nr_rows: usize::from(tenants.height) }
}

/// Widths of the columns; 0 leaves one out.
#[derive(Clone, Copy, Debug)]
struct Columns {
    name: usize,
    used: usize,
    now: usize,
    busy: usize,
    cpu_bar: usize,
    memory: usize,
    memory_bar: usize,
    waits: usize,
    /// 0 also where the policy has no credits.
    credit: usize,
    sparkline: usize,
    dop: usize,
    /// 0 also where no tenant uses a disk.
    disk: usize,
    is_tree: bool,
}

impl Columns {
    /// Columns that fit into `width`; the rest of it goes to the bars.
    fn for_width(width: usize, rows: &[Row<'_>], is_tree: bool) -> Columns {
        let longest = rows.iter().map(|row| name(*row, is_tree).chars().count()).max().unwrap_or(0);
        let name_max = (width / 5).max(10);
        // The letter, the mark, a blank and the name.
        let mut columns = Columns {
            name: 3 + longest.clamp(7, name_max),
            used: 0,
            now: 0,
            busy: 0,
            cpu_bar: 0,
            memory: 0,
            memory_bar: 0,
            waits: 0,
            credit: 0,
            sparkline: 0,
            dop: 0,
            disk: 0,
            is_tree,
        };
        let mut left = width.saturating_sub(columns.name);
        let mut take = |column: &mut usize, wanted: usize| {
            if left > wanted {
                *column = wanted;
                left -= wanted + 1;
            }
        };
        let widest = |least: usize, text: fn(Row<'_>) -> String| {
            rows.iter().map(|row| text(*row).chars().count()).fold(least, usize::max)
        };
        take(&mut columns.cpu_bar, 10);
        take(&mut columns.used, widest(5, used));
        take(&mut columns.now, widest(5, now));
        take(&mut columns.busy, widest(8, busy));
        take(&mut columns.waits, widest(5, waits));
        if rows.iter().any(|row| row.credit().is_some()) {
            take(&mut columns.credit, widest(6, credit));
        }
        if rows.iter().any(|row| row.tenant().is_some_and(|it| !it.disks.is_empty())) {
            take(&mut columns.disk, widest(5, disk::used));
        }
        take(&mut columns.memory, widest(6, memory_used));
        take(&mut columns.memory_bar, 7);
        take(&mut columns.sparkline, 7);
        if width >= DOP_MIN {
            take(&mut columns.dop, widest(3, dop));
        }
        let shares =
            [(&mut columns.cpu_bar, 3), (&mut columns.memory_bar, 2), (&mut columns.sparkline, 2)];
        let (spare, parts) = (left, 7);
        for (column, part) in shares.into_iter().filter(|(column, _)| **column > 0) {
            *column += spare * part / parts;
        }
        columns.sparkline = columns.sparkline.min(60);
        columns
    }

    /// Head of the columns in two lines.
    fn title(&self, sort: SortKey) -> [Line<'static>; 2] {
        let [[share, now], [_, busy]] = SHARE_HEADS;
        let columns = [
            (self.used, ["CPUs", "used"], Some(SortKey::Cpu)),
            (self.now, [share, now], Some(SortKey::ShareNow)),
            (self.busy, [share, busy], Some(SortKey::ShareIfBusy)),
            (self.cpu_bar, ["", "used┃now"], Some(SortKey::Error)),
            (self.memory, ["memory", "used"], Some(SortKey::Memory)),
            (self.memory_bar, ["", "┃now"], None),
            (self.waits, ["CPU", "wait"], Some(SortKey::Pressure)),
            (self.disk, ["disk", "time"], None),
            (self.credit, ["", "credit"], None),
            (self.sparkline, ["", "history"], None),
            (self.dop, ["", "DOP"], None),
        ];
        let mark = |key: Option<SortKey>, title: &str| {
            if key == Some(sort) { format!("{title}▼") } else { title.to_string() }
        };
        let name = mark(Some(SortKey::Name), "   tenant");
        let mut lines = [format!("{:<width$}", "", width = self.name), String::new()];
        lines[1] = format!("{name:<width$}", width = self.name);
        for (width, heads, key) in columns.into_iter().filter(|(width, ..)| *width > 0) {
            let is_bar = heads[0].is_empty();
            for (line, title) in lines.iter_mut().zip([heads[0].to_string(), mark(key, heads[1])]) {
                let cut: String = title.chars().take(width).collect();
                *line +=
                    &if is_bar { format!(" {cut:<width$}") } else { format!(" {cut:>width$}") };
            }
        }
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let [first, second] = lines;
        [Line::styled(first, bold), Line::styled(second, bold.add_modifier(Modifier::UNDERLINED))]
    }

    fn row(&self, view: &View, row: Row<'_>, is_selected: bool) -> Line<'static> {
        let host = &view.status.host;
        let lacks = row.tenant().is_some_and(|it| is_unfair(it, &view.status.thresholds));
        let mark = if lacks { '!' } else { ' ' };
        let name = shortened(&name(row, self.is_tree), self.name - 3);
        let cursor = if is_selected { '›' } else { ' ' };
        // A group has no CPUs of its own on the map.
        let (letter, hue) = match row {
            Row::Tenant(place, _) => (bars::letter(place), tinted(view, HUES[place % HUES.len()])),
            Row::Group(_) => (' ', Style::new()),
        };
        let mut spans = vec![
            Span::styled(letter.to_string(), hue),
            Span::styled(mark.to_string(), tinted(view, Color::Yellow)),
            Span::raw(format!("{cursor}{name:<width$}", width = self.name - 3)),
        ];
        let figures = |spans: &mut Vec<Span<'static>>, width: usize, text: String| {
            if width > 0 {
                spans.push(Span::raw(format!(" {text:>width$}")));
            }
        };
        figures(&mut spans, self.used, used(row));
        figures(&mut spans, self.now, now(row));
        figures(&mut spans, self.busy, busy(row));
        let bar = |spans: &mut Vec<Span<'static>>, width, resource, is_lacking| {
            if width > 0 {
                let used = row.usage()[resource].unwrap_or(0.0);
                let (wants, share) = (row.demand()[resource], row.allocation()[resource]);
                let cells = bars::bar(used, wants, share, host.capacity[resource], width);
                add_bar(spans, view, &cells, is_lacking);
            }
        };
        bar(&mut spans, self.cpu_bar, CPU, lacks);
        figures(&mut spans, self.memory, memory_used(row));
        bar(&mut spans, self.memory_bar, MEMORY, false);
        if self.waits > 0 {
            let text = format!(" {:>width$}", waits(row), width = self.waits);
            let ratio = row.tenant().and_then(|tenant| tenant.cpu_pressure_ratio);
            let is_pressed =
                ratio.is_some_and(|ratio| ratio > view.status.thresholds.pressure_ratio);
            let style = if is_pressed { tinted(view, Color::Yellow) } else { Style::new() };
            spans.push(Span::styled(text, style));
        }
        figures(&mut spans, self.disk, disk::used(row));
        figures(&mut spans, self.credit, credit(row));
        if self.sparkline > 0 {
            let usages = view.usages(row.name(), self.sparkline);
            let line = bars::sparkline(&usages, host.capacity[CPU]);
            let style = tinted(view, Color::Blue);
            spans.push(Span::styled(format!(" {line:>width$}", width = self.sparkline), style));
        }
        figures(&mut spans, self.dop, dop(row));
        Line::from(spans)
    }
}

/// Name; in a tree without its groups, and indented below them.
fn name(row: Row<'_>, is_tree: bool) -> String {
    let name = name_of(row);
    let (depth, last) = place_in_tree(row.name());
    if is_tree { "  ".repeat(depth) + &name[row.name().len() - last.len()..] } else { name }
}

fn used(row: Row<'_>) -> String {
    cores(row.usage()[CPU])
}

fn now(row: Row<'_>) -> String {
    cores(Some(row.allocation()[CPU]))
}

fn busy(row: Row<'_>) -> String {
    cores(Some(row.share_if_busy()[CPU]))
}

fn dop(row: Row<'_>) -> String {
    let Some(tenant) = row.tenant() else { return String::new() };
    tenant.dop.map_or("-".to_string(), |dop| dop.to_string())
}

fn waits(row: Row<'_>) -> String {
    row.tenant().map_or_else(String::new, |tenant| percent(tenant.cpu_pressure_ratio))
}

fn credit(row: Row<'_>) -> String {
    text::credit(row.credit())
}

fn add_bar(spans: &mut Vec<Span<'static>>, view: &View, cells: &[Cell], is_lacking: bool) {
    spans.push(Span::raw(" "));
    for cell in cells {
        let style = match cell {
            Cell::Used(_) if is_lacking => tinted(view, Color::Yellow),
            Cell::Used(_) => tinted(view, Color::Blue),
            Cell::Entitled => Style::new().add_modifier(Modifier::BOLD),
            Cell::Wanted | Cell::Free => tinted(view, Color::DarkGray),
        };
        spans.push(Span::styled(cell.symbol().to_string(), style));
    }
}

fn rows(view: &View, columns: &Columns, height: usize) -> Vec<Line<'static>> {
    let rows = view.lines();
    let above = view.first_row(height);
    let below = rows.len().saturating_sub(above + height);
    let shown = rows.iter().enumerate().skip(above).take(height);
    let line = |(index, row): (usize, &Row<'_>)| columns.row(view, *row, index == view.selected);
    let mut lines: Vec<Line<'static>> = shown.map(line).collect();
    if rows.is_empty() {
        let why = match (view.status.tenants.is_empty(), view.choice.filter.is_empty()) {
            (true, _) => "the policy has no tenants",
            (false, true) => "all tenants are idle (i shows them)",
            (false, false) => "no name has the filter's text (Esc ends the filter)",
        };
        lines.push(Line::from(why));
    }
    if below > 0 && height > 1 {
        lines.pop();
        lines.push(Line::from(format!("   … {} more below (↓)", below + 1)));
    }
    lines
}

/// Map of the CPUs: a character for each, the letter of its tenant, or `+` for several tenants.
fn map_lines(view: &View, width: usize) -> Vec<Line<'static>> {
    let status = &view.status;
    let placed = status.tenants.iter().enumerate().filter_map(|(place, tenant)| {
        let set = CpuSet::parse_within(tenant.cpus.as_deref()?, CPUS_MAX).ok()?;
        Some((place, set.iter().map(|cpu| cpu as usize).collect::<Vec<_>>()))
    });
    let placed: Vec<(usize, Vec<usize>)> = placed.collect();
    if placed.is_empty() {
        return vec![Line::from("CPUs  no tenant is pinned: all tenants run on all CPUs")];
    }
    let map = bars::map(status.host.cpus as usize, &placed);
    let per_line = (width.saturating_sub(6) / 8 * 8).max(8);
    let lines = map.chunks(per_line).enumerate().map(|(row, cpus)| {
        let mut spans = vec![Span::raw(match row {
            0 => "CPUs  ".to_string(),
            _ => format!("{:>5} ", row * per_line),
        })];
        spans.extend(cpus.iter().map(|tenants| match tenants.as_slice() {
            [] => Span::styled("·", tinted(view, Color::DarkGray)),
            [place] => {
                let hue = tinted(view, HUES[place % HUES.len()]);
                Span::styled(bars::letter(*place).to_string(), hue)
            }
            _ => Span::styled("+", tinted(view, Color::Yellow)),
        }));
        Line::from(spans)
    });
    lines.collect()
}

fn sort_word(sort: SortKey) -> &'static str {
    match sort {
        SortKey::Policy => "policy",
        SortKey::Lacking => "lack",
        SortKey::Name => "name",
        SortKey::Cpu => "CPU",
        SortKey::Wanted => "CPUs wanted",
        SortKey::ShareNow => "share now",
        SortKey::ShareIfBusy => "share if busy",
        SortKey::Memory => "memory",
        SortKey::Error => "share error",
        SortKey::Pressure => "pressure",
    }
}

fn keys_line(view: &View, width: usize) -> String {
    let mut parts = vec!["q quit".to_string(), "? help".to_string(), "Enter open".to_string()];
    if !view.choice.filter.is_empty() {
        parts.push(format!("Esc ends /{}", shortened(&view.choice.filter, 20)));
    }
    let hidden = if view.choice.idle == Idle::Hidden { "i show idle" } else { "i hide idle" };
    parts.extend(["/ filter", "t tree", hidden, "space pause"].map(String::from));
    parts.push(format!("by {}: c m e w n p", sort_word(view.choice.sort)));
    fitting(&parts, "  ", width)
}

/// At most 21 lines: more would hide the news below them on 24 rows.
const HELP: [&str; 21] = [
    "q, Ctrl-C   quit          space  pause, continue",
    "?           open and close this help",
    "↑ ↓ k j     select; Page Up, Page Down, Home, End, mouse",
    "Enter, Esc  open the selected one, and go back",
    "k, r        in an open one: end or renice a process (root)",
    "/           filter by name; Esc ends it",
    "t, i        tree or list, hide or show idle tenants",
    "",
    "sort by     c CPUs used     m memory used   w waits",
    "            d CPUs wanted   e share error   n name",
    "            s share now     b share if busy p policy",
    "",
    "share now   with the present demands and other load",
    "if busy     share if all tenants want everything",
    "█ used  ░ wanted, not used  ┃ share now  · free",
    "!     share error above its threshold",
    "wait  part of the time a task waits for a CPU",
    "disk  part of the time of its busiest disk",
    "credit CPU time left to others, factor of weight",
    "map   tenant of each CPU: + several, · any",
    "More about a value: tenantctl explain TENANT",
];

fn help(frame: &mut Frame<'_>, view: &View) {
    let area = frame.area();
    let width = area.width.min(62);
    let height = area.height.min(HELP.len() as u16);
    let middle = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> = HELP.iter().map(|line| Line::from(format!("  {line}"))).collect();
    let style = if view.colour {
        Style::new().fg(Color::White).bg(Color::DarkGray)
    } else {
        Style::new().add_modifier(Modifier::REVERSED)
    };
    frame.render_widget(Clear, middle);
    frame.render_widget(Paragraph::new(lines).style(style).wrap(Wrap { trim: false }), middle);
}
