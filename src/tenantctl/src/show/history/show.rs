//! The history as tables of a terminal.

use std::io::{self, Write};

use super::past::{Course, Episode, Past, Sums};
use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_lab::table::{self, Table};
use tenantd_lab::text;
use tenantd_lab::time::{self, Clock};

/// Most episodes in the table, those that lasted longest.
const EPISODES_MAX: usize = 12;
const NAME_CHARS: usize = 22;

pub(crate) fn print(out: &mut impl Write, past: &Past, clock: &Clock) -> io::Result<()> {
    writeln!(
        out,
        "{}, {} to {}, {} ticks",
        past.host,
        clock.show(past.first),
        clock.with_zone(past.last),
        past.nr_ticks
    )?;
    for (from, to) in &past.gaps {
        writeln!(out, "nothing is recorded from {} to {}", clock.show(*from), clock.show(*to))?;
    }
    if past.nr_other_versions > 0 {
        let many = past.nr_other_versions;
        writeln!(out, "{many} files are of other versions of tenantd and left out")?;
    }
    writeln!(out)?;
    match past.only.as_ref().and_then(|only| past.tenants.get(only)) {
        Some(course) => write!(out, "{}", table::text(&rows(course, clock)))?,
        None => write!(out, "{}", table::text(&tenants(past)))?,
    }
    let episodes = past.episodes();
    writeln!(out)?;
    if episodes.is_empty() {
        return writeln!(out, "no tenant lacked a part of its share");
    }
    let mut longest: Vec<usize> = (0..episodes.len()).collect();
    longest.sort_by_key(|index| std::cmp::Reverse(length_of(episodes[*index].1)));
    longest.truncate(EPISODES_MAX);
    longest.sort_unstable();
    for (name, episode) in longest.into_iter().map(|index| episodes[index]) {
        let did = if episode.is_starved { "starved, and lacked" } else { "lacked" };
        writeln!(
            out,
            "{}  {} {did} {} for {}",
            clock.of_day(episode.begin),
            text::shortened(name, NAME_CHARS),
            missing(episode),
            time::length(length_of(episode)),
        )?;
        if let Some(reason) = episode.reason() {
            writeln!(out, "{}", text::wrapped("          ", reason).trim_end())?;
        }
    }
    match episodes.len().saturating_sub(EPISODES_MAX) {
        0 => Ok(()),
        more => writeln!(out, "… and {more} more that were shorter; --json shows all"),
    }
}

fn length_of(episode: &Episode) -> std::time::Duration {
    episode.end.saturating_sub(episode.begin)
}

fn missing(episode: &Episode) -> String {
    let lacks = |r: &Resource| episode.missing[*r] > r.noise();
    let each: Vec<String> = Resource::ALL
        .into_iter()
        .filter(lacks)
        .map(|r| match r {
            MEMORY => format!("{} of memory", r.figure(episode.missing[r])),
            _ => r.figure(episode.missing[r]),
        })
        .collect();
    if each.is_empty() { "a part of its share".into() } else { each.join(" and ") }
}

fn figures(sums: &Sums) -> [String; 6] {
    let (used, entitled, wanted) = (sums.used(), sums.entitled(), sums.wanted());
    let time = |time: std::time::Duration| {
        if time.is_zero() { "-".to_string() } else { time::length(time) }
    };
    [
        text::short(used[CPU]),
        text::short(entitled[CPU]),
        text::short(wanted[CPU]),
        text::memory(used[MEMORY]),
        time(sums.lacking),
        time(sums.starved),
    ]
}

fn filled<'a>(first: &str, rows: impl Iterator<Item = (String, &'a Sums, u64)>) -> Table {
    let rows: Vec<_> = rows.collect();
    let has_credits = rows.iter().any(|(_, sums, _)| sums.credit().is_some());
    let mut table = table::plain();
    let mut header =
        vec![first, "CPUS", "SHARE NOW", "WANTED", "MEMORY", "LACKING", "STARVED", "KILLS"];
    header.extend(has_credits.then_some("CREDIT"));
    table.set_header(header);
    for (name, sums, kills) in rows {
        let mut cells = vec![name];
        cells.extend(figures(sums));
        cells.push(if kills == 0 { "-".into() } else { kills.to_string() });
        cells.extend(has_credits.then(|| text::credit(sums.credit())));
        table.add_row(cells);
    }
    table::align_figures(&mut table);
    table::set_gap(&mut table, 1);
    table
}

fn tenants(past: &Past) -> Table {
    let rows = past
        .tenants
        .iter()
        .map(|(name, course)| (text::shortened(name, NAME_CHARS), &course.all, course.nr_kills));
    filled("TENANT", rows)
}

fn rows(course: &Course, clock: &Clock) -> Table {
    let rows = course.rows();
    filled("FROM", rows.iter().map(|(begin, sums)| (clock.of_day(*begin), sums, 0)))
}
