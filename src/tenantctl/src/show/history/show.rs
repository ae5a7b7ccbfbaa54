//! The history as tables of a terminal.

use std::io::{self, Write};

use super::past::{Course, Episode, Past, Sums};
use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_host::recording::tape::Damage;
use tenantd_lab::table::{self, Table};
use tenantd_lab::text;
use tenantd_lab::time::{self, Clock};

/// Most episodes in the table, those that lasted longest.
const EPISODES_MAX: usize = 12;
const NAME_CHARS: usize = 22;

/// Most gaps and damaged files that are named.
const NOTES_MAX: usize = 5;

pub(crate) fn print(out: &mut impl Write, past: &Past, clock: &Clock) -> io::Result<()> {
    writeln!(
        out,
        "{}, {} to {}, {} ticks",
        past.host,
        clock.show(past.first),
        clock.with_zone(past.last),
        past.nr_ticks
    )?;
    let lost = if past.damaged.is_empty() { "nothing is recorded" } else { "no tick can be read" };
    let gaps = past.gaps.iter();
    let gaps =
        gaps.map(|(from, to)| format!("{lost} from {} to {}", clock.show(*from), clock.show(*to)));
    notes(out, "", gaps, "gaps")?;
    notes(out, "! ", past.damaged.iter().map(Damage::to_string), "damaged files")?;
    match past.nr_other_versions {
        0 => {}
        1 => writeln!(out, "1 file is of another version of tenantd and left out")?,
        many => writeln!(out, "{many} files are of other versions of tenantd and left out")?,
    }
    writeln!(out)?;
    episodes(out, past, clock)?;
    deaths(out, past, clock)?;
    writeln!(out)?;
    match past.only.as_ref().and_then(|only| past.tenants.get(only)) {
        Some(course) => course_table(out, course, clock),
        None => tenants_table(out, past),
    }
}

/// Prints the first lines of a list, and the number of the others.
fn notes(
    out: &mut impl Write,
    lead: &str,
    lines: impl ExactSizeIterator<Item = String>,
    noun: &str,
) -> io::Result<()> {
    let more = lines.len().saturating_sub(NOTES_MAX);
    for line in lines.take(NOTES_MAX) {
        writeln!(out, "{}", text::wrapped(lead, &line))?;
    }
    match more {
        0 => Ok(()),
        _ => writeln!(out, "{lead}and {more} more {noun}; --json shows all"),
    }
}

fn episodes(out: &mut impl Write, past: &Past, clock: &Clock) -> io::Result<()> {
    let episodes = past.episodes();
    if episodes.is_empty() {
        return match &past.only {
            Some(tenant) => {
                writeln!(out, "{} lacked no part of its share", text::visible(tenant))
            }
            None => writeln!(out, "no tenant lacked a part of its share"),
        };
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

/// Prints the last deaths.
fn deaths(out: &mut impl Write, past: &Past, clock: &Clock) -> io::Result<()> {
    let (all, nr_left) = past.deaths();
    let first = all.len().saturating_sub(EPISODES_MAX);
    for (wall, name, death) in &all[first..] {
        let lead = format!("{}  ", clock.of_day(*wall));
        let text = format!("{}: {death}", text::shortened(name, NAME_CHARS));
        writeln!(out, "{}", text::wrapped(&lead, &text))?;
    }
    match first as u64 + nr_left {
        0 => Ok(()),
        more => writeln!(out, "… and {more} more deaths; --json shows them"),
    }
}

/// Length of an episode.
pub(crate) fn length_of(episode: &Episode) -> std::time::Duration {
    episode.end.saturating_sub(episode.begin)
}

/// Amounts that an episode lacked at most.
pub(crate) fn missing(episode: &Episode) -> String {
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
        text::cores(Some(used[CPU])),
        text::cores(Some(entitled[CPU])),
        text::cores(Some(wanted[CPU])),
        text::memory(used[MEMORY]),
        time(sums.lacking),
        time(sums.starved),
    ]
}

fn filled(first: &str, rows: &[(String, &Sums, u64)]) -> Table {
    let has_credits = rows.iter().any(|(_, sums, _)| sums.credit().is_some());
    let has_disks = rows.iter().any(|(_, sums, _)| sums.disk_ratio().is_some());
    let mut table = table::plain();
    let mut header =
        vec![first, "CPUS", "SHARE NOW", "WANTED", "MEMORY", "LACKING", "STARVED", "KILLS"];
    header.extend(has_credits.then_some("CREDIT"));
    header.extend(has_disks.then_some("DISK"));
    table.set_header(header);
    for (name, sums, kills) in rows {
        let mut cells = vec![name.clone()];
        cells.extend(figures(sums));
        cells.push(if *kills == 0 { "-".into() } else { kills.to_string() });
        cells.extend(has_credits.then(|| text::credit(sums.credit())));
        cells.extend(has_disks.then(|| text::percent(sums.disk_ratio())));
        table.add_row(cells);
    }
    table::align_figures(&mut table);
    table::set_gap(&mut table, 1);
    table
}

/// Prints the means of each tenant with use, and the names of the others.
fn tenants_table(out: &mut impl Write, past: &Past) -> io::Result<()> {
    let has_use = |course: &Course| course.all.has_use() || course.nr_kills > 0;
    let (busy, idle): (Vec<_>, Vec<_>) = past.tenants.iter().partition(|(_, it)| has_use(it));
    if !busy.is_empty() {
        let rows: Vec<(String, &Sums, u64)> = busy
            .iter()
            .map(|(name, of)| (text::shortened(name, NAME_CHARS), &of.all, of.nr_kills))
            .collect();
        write!(out, "{}", table::text(&filled("TENANT", &rows)))?;
    }
    match idle.len() {
        0 => Ok(()),
        _ => {
            let idle = text::names(idle.iter().map(|(name, _)| name));
            writeln!(out, "{}", text::wrapped("used nothing: ", &idle))
        }
    }
}

/// Prints the course of one tenant in rows of equal length; those without use are left out.
fn course_table(out: &mut impl Write, course: &Course, clock: &Clock) -> io::Result<()> {
    let all = course.rows();
    let busy = all.iter().filter(|(_, sums)| sums.has_use());
    let rows: Vec<(String, &Sums, u64)> =
        busy.map(|(begin, sums)| (clock.of_day(*begin), sums, 0)).collect();
    if !rows.is_empty() {
        write!(out, "{}", table::text(&filled("FROM", &rows)))?;
    }
    match all.len() - rows.len() {
        0 => Ok(()),
        idle => writeln!(out, "left out: {idle} of {} rows, without use", all.len()),
    }
}
