//! The picture of one tenant or group: its figures, its shortfall with reasons, its members, its processes.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

use super::frame::{fairness_line, fitting, head_line, last_line};
use super::inspect::Inspection;
use super::view::{Shown, View};
use crate::show::tenants::memory_used;
use tenantd_control::report::reason::Outsider;
use tenantd_control::report::status::{Line as Row, Status};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_lab::text::{SHARE_NOW, cores, lacks, memory, shortened, visible, wrapped_at};

const MEMBERS_MAX: usize = 8;

/// Draws the screen; returns the rows for processes.
pub(crate) fn screen(frame: &mut Frame<'_>, view: &View, name: &str) -> Shown {
    let area = frame.area();
    let width = usize::from(area.width);
    let why = why_rows(&view.status, name, width);
    let members = view.inspection.as_ref().map_or_else(Vec::new, |it| member_rows(it, width));
    let figures_rows = packed(&figures_of(&view.status, name), width);
    let figures_height = (figures_rows.len() as u16).clamp(1, 3);
    let room = area.height.saturating_sub(5 + figures_height);
    let why_height = (why.len() as u16).min(room / 3);
    let members_height = (members.len() as u16).min((room - why_height) / 2);
    let [head, fair, figures, why_area, members_area, title, processes, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(figures_height),
        Constraint::Length(why_height),
        Constraint::Length(members_height),
        Constraint::Length(1),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(head_line(view, width), head);
    frame.render_widget(fairness_line(view, width), fair);
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let lines = |rows: Vec<String>| -> Vec<Line<'_>> { rows.into_iter().map(Line::from).collect() };
    frame.render_widget(Paragraph::new(lines(figures_rows)).style(bold), figures);
    frame.render_widget(Paragraph::new(lines(why)), why_area);
    frame.render_widget(Paragraph::new(lines(members)), members_area);
    let underlined = bold.add_modifier(Modifier::UNDERLINED);
    frame.render_widget(Line::styled(process_title(), underlined), title);
    let rows = rows(view, width);
    let height = usize::from(processes.height);
    let shown = rows.iter().skip(view.first_process(height)).take(height);
    let mut lines: Vec<Line<'_>> = shown.map(|row| Line::from(row.as_str())).collect();
    if view.is_stale() {
        let dim = Style::new().add_modifier(Modifier::DIM);
        lines = lines.into_iter().map(|line| line.style(dim)).collect();
    }
    frame.render_widget(Paragraph::new(lines), processes);
    let mut parts = vec!["Esc back", "q quit", "? help", "↑ ↓ select", "c m sort by CPU, memory"];
    parts.extend(view.is_root.then_some("k end  r renice"));
    let parts: Vec<String> = parts.into_iter().map(String::from).collect();
    frame.render_widget(last_line(view, width, &fitting(&parts, "  ", width)), keys);
    Shown { top: processes.y, nr_rows: height }
}

fn rows(view: &View, width: usize) -> Vec<String> {
    if view.recorded.is_some() {
        return vec!["processes are not in the recording".to_string()];
    }
    let Some(found) = &view.inspection else { return vec!["reading its processes".to_string()] };
    let mut rows = process_rows(found, width);
    let has_selected = found.problem.is_none() && view.selected_process < found.processes.len();
    if let Some(row) = rows.get_mut(view.selected_process).filter(|_| has_selected) {
        row.replace_range(..1, "›");
    }
    rows
}

/// Figures, members and the largest processes as text, for an output that is not a terminal.
pub(crate) fn text(status: &Status, found: &Inspection, (width, most): (usize, usize)) -> String {
    let mut lines = packed(&figures_of(status, &found.name), width);
    lines.push(String::new());
    for rows in [why_rows(status, &found.name, width), member_rows(found, width)] {
        let is_some = !rows.is_empty();
        lines.extend(rows);
        lines.extend(is_some.then(String::new));
    }
    let rows = process_rows(found, width);
    let more = rows.len().saturating_sub(most);
    if !found.processes.is_empty() {
        lines.push(process_title());
    }
    lines.extend(rows.into_iter().take(most));
    if more > 0 {
        lines.push(format!("… and {more} more"));
    }
    lines.join("\n") + "\n"
}

/// Parts in lines, none broken if it fits into one.
fn packed(parts: &[String], width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in parts {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + part.chars().count() <= width => {
                *line += "  ";
                *line += part;
            }
            _ => lines.push(part.clone()),
        }
    }
    lines
}

fn figures_of(status: &Status, name: &str) -> Vec<String> {
    let Some(row) = status.lines().into_iter().find(|row| row.name() == name) else {
        return vec![format!("{name}: the policy has no such tenant any more")];
    };
    let (limit, usage_pids, limit_pids, limit_disk) = match row {
        Row::Tenant(_, it) => (it.limit, it.usage_pids, it.limit_pids, it.limit_disk),
        Row::Group(it) => (it.limit, it.usage_pids, it.limit_pids, it.limit_disk),
    };
    let (usage, allocation, busy) = (row.usage(), row.allocation(), row.share_if_busy());
    let limited = |limit: Option<String>| limit.map_or(String::new(), |it| format!(", limit {it}"));
    let limit_cores = limited(limit[CPU].map(|limit| cores(Some(limit))));
    let limit_memory = limited(limit[MEMORY].map(memory));
    let mut figures = vec![
        name.to_string(),
        format!(
            "{} CPUs, {SHARE_NOW} {}, if busy {}{limit_cores}",
            cores(usage[CPU]),
            cores(Some(allocation[CPU])),
            cores(Some(busy[CPU]))
        ),
        format!(
            "{}, {SHARE_NOW} {}, if busy {}{limit_memory}",
            memory_used(row),
            memory(allocation[MEMORY]),
            memory(busy[MEMORY])
        ),
    ];
    let words = row.tenant().and_then(|tenant| Some(tenant.jobs.as_ref()?.in_words()));
    figures.extend(words.filter(|words| !words.is_empty()).map(|words| format!("jobs: {words}")));
    if let Some(limit) = limit_pids {
        let used = usage_pids.map_or("-".to_string(), |used| used.to_string());
        figures.push(format!("{used} of {limit} processes"));
    }
    figures.extend(limit_disk.map(|limit| format!("limit on each disk: {}", limit.shown())));
    figures
}

/// Shortfalls of the selected tenants with reasons, and the largest outside work if that is a reason.
fn why_rows(status: &Status, name: &str, width: usize) -> Vec<String> {
    let mut rows = Vec::new();
    let mut outsiders: Vec<&Outsider> = Vec::new();
    for tenant in status.tenants_of(name).filter(|tenant| !tenant.reasons.is_empty()) {
        let lacks = lacks(&tenant.missing);
        for reason in &tenant.reasons {
            let lead = format!("! {} {lacks}: ", tenant.name);
            rows.extend(wrapped_at(width, &lead, &reason.text).lines().map(String::from));
            for outsider in &reason.outsiders {
                let is_known = outsiders.iter().any(|it| it.cgroup == outsider.cgroup);
                outsiders.extend((!is_known).then_some(outsider));
            }
        }
    }
    for tenant in status.tenants_of(name) {
        if let Some(why) = tenant.jobs.as_ref().and_then(|jobs| jobs.reason.as_ref()) {
            let lead = format!("jobs of {} wait: ", tenant.name);
            rows.extend(wrapped_at(width, &lead, &visible(why)).lines().map(String::from));
        }
    }
    if !outsiders.is_empty() {
        rows.push(format!("{:>7}  work of no tenant", "CPUs"));
    }
    outsiders.sort_by(|a, b| b.cores.total_cmp(&a.cores));
    rows.extend(outsiders.into_iter().map(|outsider| {
        let place = if outsider.is_direct { "directly in " } else { "" };
        let command = outsider.command.as_ref().map_or(String::new(), |it| format!(" ({it})"));
        let row = format!("{place}{}{command}", outsider.cgroup);
        format!("{:>7}  {}", cores(Some(outsider.cores)), shortened(&row, width.saturating_sub(9)))
    }));
    rows
}

fn member_rows(found: &Inspection, width: usize) -> Vec<String> {
    if found.members.is_empty() {
        return Vec::new();
    }
    let mut members: Vec<_> = found.members.iter().collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.memory_bytes));
    let mut rows = vec![format!("{:>7} {:>8} {:>6}  member", "CPUs", "memory", "procs")];
    for member in members.iter().take(MEMBERS_MAX) {
        let count = member.nr_processes.map_or("-".to_string(), |count| count.to_string());
        let held = member.memory_bytes.map_or("-".to_string(), |bytes| memory(bytes as f64));
        let place = member.cgroup.display().to_string();
        let missing = if member.nr_processes.is_none() { " (not there)" } else { "" };
        let room = width.saturating_sub(25 + missing.len()).max(10);
        let place = shortened(&place, room);
        let used = cores(member.cpu_cores);
        rows.push(format!("{used:>7} {held:>8} {count:>6}  {place}{missing}"));
    }
    if let Some(more @ 1..) = members.len().checked_sub(MEMBERS_MAX) {
        rows.push(format!("{:>25}… and {more} more", ""));
    }
    rows
}

fn process_title() -> String {
    format!("{:>8} {:>7} {:>8}  command", "pid", "CPUs", "memory")
}

fn process_rows(found: &Inspection, width: usize) -> Vec<String> {
    if let Some(problem) = &found.problem {
        return vec![problem.clone()];
    }
    let row = |process: &super::inspect::Process| {
        let (used, held) = (cores(process.cpu_cores), memory(process.resident_bytes as f64));
        let room = width.saturating_sub(27).max(8);
        let cut: String = process.command.chars().take(room).collect();
        format!("{:>8} {used:>7} {held:>8}  {cut}", process.pid)
    };
    let mut rows: Vec<String> = found.processes.iter().map(row).collect();
    if found.nr_unread > 0 {
        rows.push(format!(
            "{} more processes ended meanwhile, or could not be read",
            found.nr_unread
        ));
    }
    if rows.is_empty() {
        rows.push("no process runs in it".to_string());
    }
    rows
}
