//! The open tenant or group: its figures, the last hour, its processes, and the explanation of its values.

use std::sync::Arc;
use std::time::Duration;

use super::figures::{Figure, MEASURES, figures, time_of};
use super::hour::{HOUR, Hour, Known, STEP};
use super::html::Html;
use super::opened::Details;
use crate::ask::explain::{Part, parts};
use crate::show::disk;
use crate::show::history::past::{Course, Sums};
use crate::show::history::show::{length_of, missing};
use crate::show::top::inspect::Inspection;
use tenantd_control::report::status::Line;
use tenantd_core::resource::{CPU, PerResource, Resource};
use tenantd_lab::text::{cores, credit, memory, percent, short};
use tenantd_lab::time::{Clock, length};

const PROCESSES_MAX: usize = 20;
const MEMBERS_MAX: usize = 8;
const EPISODES_MAX: usize = 5;
/// Width and height of a chart in its own unit.
const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 80.0;

/// Parts of the panel that are not in the status.
pub(crate) struct Panel<'a> {
    pub(crate) line: Line<'a>,
    pub(crate) details: Result<Arc<Details>, String>,
    /// Absent while the recording is read for the first time.
    pub(crate) hour: Option<Known>,
}

/// Adds the panel; `closing` is the address of the page without it.
pub(crate) fn add(html: &mut Html, panel: &Panel<'_>, closing: &str) {
    let (line, name) = (panel.line, panel.line.name());
    html.add(
        "<div id=\"opened\" tabindex=\"-1\" role=\"region\" aria-label=\"{}\">\n<p class=\"close\"><bdi>{}</bdi> \
         <a id=\"close\" href=\"{}\">Close</a></p>\n",
        &[&name, &name, &closing],
    );
    figures(html, "o", &figures_of(line));
    html.add("<div id=\"hour\">\n<h3>Last hour</h3>\n", &[]);
    match (line.tenant(), &panel.hour) {
        (None, _) => html.note("The recording has the tenants of this group."),
        (Some(_), None) => html.note("The recording is being read."),
        (Some(_), Some(Err(why))) => html.note(why),
        (Some(_), Some(Ok(hour))) => last_hour(html, hour, name),
    }
    html.add("</div>\n<h3>Processes</h3>\n", &[]);
    let details = match &panel.details {
        Ok(details) => details,
        Err(why) => {
            html.add("<p class=\"quiet\">{}</p>\n</div>\n", &[why]);
            return;
        }
    };
    match &details.inspection {
        Ok(found) => processes(html, found),
        Err(why) => html.note(why),
    }
    html.add("<h3>Explanation</h3>\n<dl id=\"explanation\" class=\"steps\">\n", &[]);
    for part in parts(&details.explanation) {
        match part {
            Part::Title(text) if text.is_empty() => {
                html.add("<dt class=\"title\">values in files</dt><dd></dd>\n", &[])
            }
            Part::Title(text) => html.add("<dt class=\"title\">{}</dt><dd></dd>\n", &[&text]),
            Part::Line(name, text) => {
                html.add("<dt>{}</dt><dd>{}</dd>\n", &[&name.trim_end_matches([':', ' ']), &text])
            }
        }
    }
    html.add("</dl>\n</div>\n", &[]);
}

// --- figures ---

fn figures_of(line: Line<'_>) -> Vec<Figure> {
    let (weight, guarantee, limit) = match line {
        Line::Tenant(_, it) => (it.weight, it.guarantee, it.limit),
        Line::Group(it) => (it.weight, it.guarantee, it.limit),
    };
    let (limit_disk, limit_pids, usage_pids, refused) = match line {
        Line::Tenant(_, it) => (it.limit_disk, it.limit_pids, it.usage_pids, it.nr_refused_forks),
        Line::Group(it) => (it.limit_disk, it.limit_pids, it.usage_pids, it.nr_refused_forks),
    };
    let tenant = line.tenant();
    let count = |count: Option<u64>| count.filter(|nr| *nr > 0).map(|nr| nr.to_string());
    let processes = limit_pids.map(|limit| {
        let used = usage_pids.map_or("-".to_string(), |used| used.to_string());
        format!("{used} of {limit}")
    });
    let has_credit = |(seconds, factor): &(f64, f64)| seconds.abs() >= 1.0 || *factor > 1.0;
    let credit = line.credit().filter(has_credit).map(|it| credit(Some(it)));
    let stalls = tenant.map(|it| percent(it.memory_pressure_ratio));
    let kills = count(tenant.and_then(|it| it.nr_oom_kills));
    let disk_share = tenant.and_then(|it| it.disk_share.as_ref()).map(|share| share.shown());
    let cpus = tenant.and_then(|it| it.cpus.clone());
    let jobs = tenant.and_then(|it| it.jobs.as_ref()).map(|jobs| jobs.in_words());
    let nr_tenants = match line {
        Line::Group(group) => Some(group.nr_tenants.to_string()),
        Line::Tenant(..) => None,
    };
    let all = MEASURES.iter().flat_map(|(.., all)| *all);
    let mut figures: Vec<Figure> =
        all.map(|it| (it.name, Some((it.value)(line)), it.tip)).collect();
    figures.extend([
        ("weight", Some(short(weight)), "CPU weight among its siblings in the policy."),
        ("guarantee", bounds(&guarantee), "Least share that it gets when it wants it."),
        ("limit", bounds(&limit), "Most that it may have."),
        ("processes", processes, "Processes and threads, and their limit."),
        ("refused forks", count(refused), "Forks refused at the limit, since tenantd started."),
        ("credit", credit, "CPU time left to its siblings, and the factor of its weight for it."),
        ("tenants", nr_tenants, "Tenants of the group, at any depth."),
        ("memory waits", stalls, "Part of the time in which a task waited for memory (PSI some)."),
        ("disk time", Some(disk::used(line)), "Part of the time of the disk that it uses most."),
        (
            "disk share",
            disk_share,
            "Part of the time of a disk: now, and if all tenants want all of it.",
        ),
        (
            "disk limit",
            limit_disk.map(|limit| limit.shown()),
            "Most requests and bytes in a second, on each disk.",
        ),
        ("pinned to CPUs", cpus, "CPUs that its processes run on."),
        ("OOM kills", kills, "Processes killed for lack of memory, since tenantd started."),
        ("jobs", jobs, "Its running and waiting jobs."),
    ]);
    let faults = tenant.into_iter().flat_map(|it| it.faults.each());
    figures.extend(faults.filter(|(_, fault)| fault.count > 0).map(|(name, it)| {
        let value = format!("{} ×, {}", it.count, time_of(it.seconds));
        (name, Some(value), "Number of times, and time in all, since tenantd started.")
    }));
    figures.retain(|(_, value, _)| value.as_ref().is_some_and(|value| !value.is_empty()));
    figures
}

fn bounds(bounds: &PerResource<Option<f64>>) -> Option<String> {
    let given = bounds.iter().filter_map(|(resource, amount)| Some(resource.figure((*amount)?)));
    let given: Vec<String> = given.collect();
    (!given.is_empty()).then(|| given.join(", "))
}

// --- the last hour ---

fn last_hour(html: &mut Html, hour: &Hour, name: &str) {
    let course = hour.courses.get(name).filter(|course| !course.ticks.is_empty());
    let Some(course) = course else {
        html.note("This tenant is not in the recording of the last hour.");
        return;
    };
    html.add(
        "<p class=\"legend\" aria-hidden=\"true\"><span class=\"key used\"></span> used \
         <span class=\"key share\"></span> share now <span class=\"key short\"></span> lacks a part of its share</p>\n",
        &[],
    );
    let clock = Clock::new(false);
    let ends = [clock.of_day(hour.since), clock.of_day(hour.since + HOUR)];
    for resource in Resource::ALL {
        chart(html, (course, resource), hour.since, &ends);
    }
    if hour.is_partial {
        html.add(
            "<p class=\"quiet\">A part of the hour is left out, because reading takes too long: \
             <code>tenantctl history {}</code></p>\n",
            &[&name],
        );
    }
    let skipped = course.episodes.len().saturating_sub(EPISODES_MAX);
    if !course.episodes.is_empty() {
        html.add("<ul class=\"lines\">\n", &[]);
    }
    for episode in course.episodes.iter().skip(skipped) {
        let (at, time) = (clock.of_day(episode.begin), length(length_of(episode)));
        let why = episode.reason().map_or(String::new(), |why| format!(": {why}"));
        html.add("<li>{} lacked {} for {}{}</li>\n", &[&at, &missing(episode), &time, &why]);
    }
    if !course.episodes.is_empty() {
        html.add("</ul>\n", &[]);
    }
    if skipped > 0 {
        html.add(
            "<p class=\"quiet\">{} earlier: <code>tenantctl history {}</code></p>\n",
            &[&skipped, &name],
        );
    }
}

/// Adds the course of one resource: usage as an area, the share now as a line, marks where the tenant lacked something.
fn chart(html: &mut Html, (course, r): (&Course, Resource), since: Duration, ends: &[String; 2]) {
    let value = |of: fn(&Sums) -> PerResource<f64>| {
        move |step: &(Duration, Sums)| (x_of(step.0, since), of(&step.1)[r])
    };
    let used: Vec<(f64, f64)> = course.ticks.iter().map(value(Sums::used)).collect();
    let share: Vec<(f64, f64)> = course.ticks.iter().map(value(Sums::entitled)).collect();
    let highest = |points: &[(f64, f64)]| points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let top = highest(&used).max(highest(&share)).max(r.noise());
    let nr_short = course.ticks.iter().filter(|(_, sums)| !sums.lacking.is_zero()).count();
    let name = if r == CPU { "CPUs" } else { "Memory" };
    let label = format!(
        "{name} in the last hour: used at most {}, share now at most {}; a part of the share lacked in {nr_short} of {} minutes",
        r.figure(highest(&used)),
        r.figure(highest(&share)),
        course.ticks.len()
    );
    html.add(
        "<figure><figcaption>{}, up to {}</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 600 80\" \
         preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{}\"><rect class=\"track\" width=\"600\" height=\"80\"/>",
        &[&name, &r.figure(top), &label],
    );
    let scaled = |points: &[(f64, f64)]| {
        points.iter().map(|(x, y)| (*x, HEIGHT - y / top * (HEIGHT - 2.0))).collect::<Vec<_>>()
    };
    for run in unbroken(&scaled(&used)) {
        let (first, last) = (run[0].0, run[run.len() - 1].0 + STEP_WIDTH);
        let area = format!("M{first:.1} {HEIGHT}{}L{last:.1} {HEIGHT}Z", path(run, 'L'));
        html.add("<path class=\"used\" d=\"{}\"/>", &[&area]);
    }
    for run in unbroken(&scaled(&share)) {
        html.add("<path class=\"share\" d=\"{}\"/>", &[&path(run, 'M')]);
    }
    for (wall, _) in course.ticks.iter().filter(|(_, sums)| !sums.lacking.is_zero()) {
        let x = format!("{:.1}", x_of(*wall, since));
        html.add("<rect class=\"short\" x=\"{}\" y=\"76\" width=\"10\" height=\"4\"/>", &[&x]);
    }
    html.add(
        "</svg>\n<p class=\"ends\"><span>{}</span><span>{}</span></p></figure>\n",
        &[&ends[0], &ends[1]],
    );
}

const STEP_WIDTH: f64 = WIDTH * STEP.as_secs() as f64 / HOUR.as_secs() as f64;

fn x_of(wall: Duration, since: Duration) -> f64 {
    let part = wall.saturating_sub(since).as_secs_f64() / HOUR.as_secs_f64();
    (part * WIDTH).min(WIDTH - STEP_WIDTH)
}

/// Runs of points without a gap in the recording between them.
fn unbroken(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    points.chunk_by(|(a, _), (b, _)| b - a < 2.5 * STEP_WIDTH)
}

/// Steps as a path that begins with `command`.
fn path(run: &[(f64, f64)], command: char) -> String {
    let mut text = String::new();
    let ends = run.iter().skip(1).map(|(x, _)| *x).chain(run.last().map(|(x, _)| x + STEP_WIDTH));
    for (index, ((x, y), end)) in run.iter().zip(ends).enumerate() {
        let command = if index == 0 { command } else { 'L' };
        text += &format!("{command}{x:.1} {y:.1}H{end:.1}");
    }
    text
}

// --- processes ---

fn processes(html: &mut Html, found: &Inspection) {
    if let Some(problem) = &found.problem {
        html.note(problem);
    }
    for member in found.members.iter().take(MEMBERS_MAX) {
        let processes = match member.nr_processes {
            None => "is not there".to_string(),
            Some(1) => "1 process".to_string(),
            Some(nr) => format!("{nr} processes"),
        };
        html.add(
            "<p class=\"quiet\"><code>{}</code>: {}</p>\n",
            &[&member.cgroup.display(), &processes],
        );
    }
    let more = found.members.len().saturating_sub(MEMBERS_MAX);
    if more > 0 {
        html.add("<p class=\"quiet\">{} more cgroups</p>\n", &[&more]);
    }
    if !found.processes.is_empty() {
        html.add(
            "<table id=\"processes\" class=\"processes\">\n<thead><tr><th scope=\"col\">process</th><th scope=\"col\">CPUs</th>\
             <th scope=\"col\">memory</th><th scope=\"col\" class=\"program\">program</th></tr></thead>\n<tbody>\n",
            &[],
        );
        for process in found.processes.iter().take(PROCESSES_MAX) {
            let (cpus, held) = (cores(process.cpu_cores), memory(process.resident_bytes as f64));
            html.add(
                "<tr><td>{}</td><td>{}</td><td>{}</td><td class=\"program\"><bdi>{}</bdi></td></tr>\n",
                &[&process.pid, &cpus, &held, &process.command],
            );
        }
        html.add("</tbody></table>\n", &[]);
    }
    let more = found.processes.len().saturating_sub(PROCESSES_MAX);
    if more > 0 {
        html.add(
            "<p class=\"quiet\">{} more processes: <code>tenantctl top {}</code></p>\n",
            &[&more, &found.name],
        );
    }
    if found.nr_unread > 0 {
        html.add("<p class=\"quiet\">{} processes could not be read.</p>\n", &[&found.nr_unread]);
    }
}
