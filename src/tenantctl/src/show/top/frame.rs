//! Common parts of all pictures: the first two lines, and colours if wanted.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;

use super::view::View;
use crate::common::rows::is_unfair;
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_lab::text::{age, cores, memory, percent, shortened};

pub(crate) fn tinted(view: &View, colour: Color) -> Style {
    if view.colour { Style::new().fg(colour) } else { Style::new() }
}

pub(crate) fn head_line(view: &View, width: usize) -> Line<'static> {
    let status = &view.status;
    let host = &status.host;
    let name = if host.name.is_empty() { "tenantd" } else { &host.name };
    let state = match &view.recorded {
        Some(time) => format!("at {time}"),
        None if view.is_paused => "paused".to_string(),
        None => status.mode.word().to_string(),
    };
    let parts = [
        format!("{} {state}", shortened(name, 20)),
        format!("{} of {} CPUs divided", cores(Some(host.capacity[CPU])), host.cpus),
        format!("{} of {}", memory(host.capacity[MEMORY]), memory(host.memory_bytes as f64)),
        format!("others use {} CPUs", cores(host.outside_cores)),
        format!("tick {}", status.tick),
    ];
    Line::styled(fitting(&parts, "  ", width), Style::new().add_modifier(Modifier::BOLD))
}

/// Joins the `parts` that fit: a truncated figure would be a wrong figure.
pub(crate) fn fitting(parts: &[String], between: &str, width: usize) -> String {
    let mut text = String::new();
    for part in parts {
        let lead = if text.is_empty() { "" } else { between };
        if text.chars().count() + lead.chars().count() + part.chars().count() > width {
            break;
        }
        text += lead;
        text += part;
    }
    text
}

/// Line of fairness, or the state and age of a stale tick.
pub(crate) fn fairness_line(view: &View, width: usize) -> Line<'static> {
    let status = &view.status;
    if view.is_stale() {
        let style = tinted(view, Color::Red).add_modifier(Modifier::BOLD);
        let age = view.stale.map(|old| format!("{} old", age(old)));
        let why = view.away.clone();
        let text = match (age, why) {
            (Some(age), Some(why)) => format!("! {age}: {why}"),
            (None, Some(why)) => format!("! {why}"),
            (age, None) => {
                format!("! {}: no tick from tenantd since", age.unwrap_or_default())
            }
        };
        return Line::styled(text, style);
    }
    let thresholds = &status.thresholds;
    let lacking = status.tenants.iter().filter(|tenant| is_unfair(tenant, thresholds)).count();
    // Outside usage is not part of the share now, but the tenants lack it all the same.
    let short = status.tenants.iter().filter(|tenant| !tenant.reasons.is_empty()).count();
    let mut parts = vec![match (lacking, status.max_share_error) {
        (0, None) => "no measurement yet".to_string(),
        (0, Some(_)) if short == 1 => "! 1 tenant lacks a part of its share (Enter: why)".into(),
        (0, Some(_)) if short > 1 => format!("! {short} tenants lack a part of their shares"),
        (0, Some(_)) => "every tenant gets its share".to_string(),
        (1, Some(error)) => format!("! 1 tenant lacks {} of the CPUs", percent(Some(error))),
        (_, error) => format!("! {lacking} tenants lack CPUs, at most {}", percent(error)),
    }];
    if let Some(jain) = status.jain_index {
        parts.push(format!("Jain {jain:.3}"));
    }
    if status.nr_drift > 0 {
        parts.push(format!("{} overwritten", status.nr_drift));
    }
    if status.nr_contested > 0 {
        parts.push(format!("{} contested", status.nr_contested));
    }
    if status.nr_ineffective > 0 {
        parts.push(format!("{} without effect", status.nr_ineffective));
    }
    parts.push(format!("tick takes {:.1} ms", status.agent.tick_seconds * 1e3));
    let colour = if lacking + short > 0 { Color::Yellow } else { Color::Green };
    Line::styled(fitting(&parts, "; ", width), tinted(view, colour))
}

pub(crate) fn jobs_line(view: &View, width: usize) -> Option<Line<'static>> {
    let jobs = view.status.jobs.as_ref()?;
    if jobs.nr_running + jobs.nr_waiting + jobs.nr_lingering == 0 {
        return None;
    }
    let mut parts = vec![
        format!("jobs  {} run, {} wait", jobs.nr_running, jobs.nr_waiting),
        format!("{} of {} slots free", jobs.free_slots, jobs.slots),
    ];
    let kinds = jobs.waiting_for.iter();
    parts.extend(kinds.map(|it| format!("{} for {}", it.nr_jobs, it.kind.replace('_', " "))));
    let held = jobs.units.iter().filter(|units| !units.held.is_empty());
    parts.extend(held.map(|it| format!("{} {}", it.name, it.in_words(|job| job.tenant.clone()))));
    Some(Line::from(fitting(&parts, "; ", width)))
}

/// Last line: an input, the result of an action, or the keys.
pub(crate) fn last_line(view: &View, width: usize, keys: &str) -> Line<'static> {
    if let Some(prompt) = &view.prompt {
        let style = Style::new().add_modifier(Modifier::BOLD);
        return Line::styled(prompt.line(&view.choice.filter, width), style);
    }
    match &view.message {
        Some(message) => Line::from(shortened(message, width)),
        None => Line::styled(keys.to_string(), Style::new().add_modifier(Modifier::DIM)),
    }
}
