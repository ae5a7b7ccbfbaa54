//! The page, drawn on the server, so that it is whole without a script.
//!
//! The rows are those of `tenantctl status` and `top` ([`rows`]): a tree, tenants that lack something first, idle ones
//! folded. The script fetches the page again at each tick and changes the differences. Elements with an `id` keep it
//! from tick to tick, so that the focus stays.

use std::fmt::Display;
use std::time::SystemTime;

use super::figures::{MEASURES, Measure, explained, figures, time_of};
use super::html::Html;
use super::panel::{self, Panel};
use super::query::{ORDERS, Query, encoded};
use super::source::Newest;
use crate::ask::jobs;
use crate::common::rows::{Choice, Row, lacks, place_in_tree, rows};
use crate::common::stale::stale;
use crate::show::disk;
use crate::show::tenants::fold_in_words;
use tenantd_control::report::status::{Line, Status, TenantStatus};
use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_dop::cpuset::CpuSet;
use tenantd_lab::text::{self, age, cores, memory, percent};
use tenantd_lab::time::Clock;
use tenantd_policy::model::Mode;
use tenantd_varlink::jobs::ListReply;

/// Most rows of tenants, of jobs, of findings, and of writes.
const ROWS_MAX: usize = 500;
const JOBS_MAX: usize = 100;
const LINES_MAX: usize = 100;
/// Most pinned tenants, and CPUs of each.
const PINNED_MAX: usize = 64;
const CPUS_MAX: u32 = 1024;

/// Content of the page.
pub(crate) struct View<'a> {
    pub(crate) query: &'a Query,
    pub(crate) status: &'a Status,
    /// Absent if there are no jobs.
    pub(crate) jobs: Option<Newest<ListReply>>,
    /// Open tenant or group.
    pub(crate) panel: Option<Panel<'a>>,
}

/// Returns the page.
pub(crate) fn page(view: &View<'_>) -> String {
    let status = view.status;
    let stale = stale(status.time.as_deref(), status.thresholds.stale_seconds, SystemTime::now());
    let mut html = Html::default();
    let class = if stale.is_some() { "stale" } else { "live" };
    begin(&mut html, &status.host.name, class, status.interval_seconds);
    html.add(
        "<p id=\"mode\" class=\"badge {}\">{}</p>",
        &[&status.mode.word(), &status.mode.word()],
    );
    let age = stale.map_or("live".to_string(), |old| format!("stale: {} old", age(old)));
    html.add("<p id=\"age\">{} <span class=\"dot\" aria-hidden=\"true\"></span></p>", &[&age]);
    html.add("</header>\n<main>\n", &[]);
    fairness(&mut html, status);
    tenants(&mut html, view);
    for (id, title, content) in SECTIONS {
        let heading = [&id as &dyn Display, &id, &title];
        html.add("<section aria-labelledby=\"{}\">\n<h2 id=\"{}\">{}</h2>\n", &heading);
        content(&mut html, view);
        html.add("</section>\n", &[]);
    }
    html.add("</main>\n", &[]);
    footer(&mut html, Some(status));
    html.into_text()
}

/// Returns the page for a daemon that does not answer.
pub(crate) fn without_status(why: &str) -> String {
    let mut html = Html::default();
    begin(&mut html, "", "away", 1.0);
    html.add(
        "</header>\n<main>\n<p id=\"why\" class=\"alarm\" role=\"alert\">{}</p>\n</main>\n",
        &[&why],
    );
    footer(&mut html, None);
    html.into_text()
}

fn begin(html: &mut Html, host: &str, class: &str, interval: f64) {
    html.add(
        r##"<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>tenantd</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="page.css">
<script src="page.js" defer></script>
</head>
<body class="{}" data-interval="{}">
<a class="skip" href="#tenants">Skip to the tenants</a>
<p id="away" class="alarm" role="alert" hidden></p>
<header>
<h1>tenantd <span id="where">{}</span></h1>
"##,
        &[&class, &interval, &if host.is_empty() { String::new() } else { format!("on {host}") }],
    );
}

fn footer(html: &mut Html, status: Option<&Status>) {
    html.add("<footer>\n", &[]);
    if let Some(status) = status {
        let time = status.time.as_deref().and_then(|time| humantime::parse_rfc3339(time).ok());
        let time = time.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        let time = time.map_or("-".to_string(), |time| Clock::new(false).with_zone(time));
        let cost = format!(
            "every {}, {}. tenantd {}: {}, {} of CPU time since its start, {} per tick.",
            time_of(status.interval_seconds),
            status.host.hierarchy,
            status.version,
            status.agent.resident_bytes.map_or("-".into(), |bytes| memory(bytes as f64)),
            time_of(status.agent.cpu_seconds),
            time_of(status.agent.tick_seconds),
        );
        html.add(
            "<p>Tick {} at <time id=\"clock\">{}</time>, {}</p>\n",
            &[&status.tick, &time, &cost],
        );
    }
    html.add(
        "<p>Page of tenantctl {}. <a href=\"docs/using.md\">Documentation</a>, \
         <a href=\"metrics\">metrics</a> for Prometheus, <a href=\"status.json\">status.json</a>.</p>\n\
         </footer>\n</body>\n</html>\n",
        &[&env!("CARGO_PKG_VERSION")],
    );
}

// --- fairness ---

fn fairness(html: &mut Html, status: &Status) {
    let (verdict, is_good) = verdict(status);
    let class = if is_good { "good" } else { "bad" };
    html.add(
        "<section aria-labelledby=\"fair\">\n<h2 id=\"fair\">Fairness</h2>\n\
         <p id=\"verdict\" class=\"verdict {}\" aria-live=\"polite\">{}</p>\n",
        &[&class, &verdict],
    );
    let host = &status.host;
    let jain = status.jain_index.map_or("no tenant waits".into(), |jain| format!("{jain:.3}"));
    let longest = status.tenants.iter().map(|it| it.starved_seconds).fold(0.0, f64::max);
    let time = |seconds: Option<f64>| seconds.map_or("none".into(), time_of);
    let starved = time(Some(longest).filter(|it| *it > 0.0));
    let cpus = format!("{} of {}", cores(Some(host.capacity[CPU])), host.cpus);
    let bytes = [host.capacity[MEMORY], host.memory_bytes as f64].map(memory).join(" of ");
    let outside = format!("{} CPUs", cores(host.outside_cores));
    let all = [
        (
            "largest share error",
            percent(status.max_share_error),
            "Largest part of the CPUs that a tenant wants, within its share now, and does not get.",
        ),
        (
            "Jain's index",
            jain,
            "Evenness of the CPUs that tenants get of their shares now: 1 is even.",
        ),
        (
            "last convergence",
            time(status.convergence_seconds),
            "Length of the present or last time with a share error above its threshold.",
        ),
        (
            "longest starvation",
            starved,
            "Longest time in which one tenant wanted more and got less than half of its share if busy.",
        ),
        ("CPUs to divide", cpus, "CPUs of the machine less the reserve and other load."),
        ("memory to divide", bytes, "Memory of the machine less the reserve and other load."),
        ("other processes", outside, "CPUs used by processes outside all tenants."),
        (
            "values overwritten",
            status.nr_drift.to_string(),
            "Values of tenantd that other programs overwrote, since it started.",
        ),
        (
            "values left to others",
            status.nr_contested.to_string(),
            "Values now left to programs that keep overwriting them.",
        ),
        (
            "values without effect",
            status.nr_ineffective.to_string(),
            "Values that cannot take effect now; the findings have the reasons.",
        ),
    ];
    figures(html, "f", &all.map(|(name, value, tip)| (name, Some(value), tip)));
    html.add("</section>\n", &[]);
}

/// One sentence about all tenants, and whether it is good news.
fn verdict(status: &Status) -> (String, bool) {
    let all = status.tenants.iter().filter(|tenant| lacks(tenant, &status.thresholds));
    let amount = |tenant: &TenantStatus| {
        let error = tenant.share_error.unwrap_or(0.0) * status.host.capacity[CPU];
        tenant.missing[CPU].unwrap_or(0.0).max(error)
    };
    let count = all.clone().count();
    let worst = all.max_by(|a, b| amount(a).total_cmp(&amount(b)));
    let mut text = match worst {
        _ if status.tenants.is_empty() => "There are no tenants.".to_string(),
        _ if status.max_share_error.is_none() => "There is no measurement yet.".to_string(),
        None => "Every tenant gets its share, or does not want it.".to_string(),
        Some(worst) => {
            let more = match count - 1 {
                0 => ".".to_string(),
                1 => ". 1 more tenant lacks something.".to_string(),
                more => format!(". {more} more tenants lack something."),
            };
            format!("{}{more}", shortage(worst, amount(worst)).trim_end_matches('.'))
        }
    };
    if status.mode == Mode::Observe {
        text += " Nothing is enforced: tenantd only observes.";
    }
    (text, worst.is_none())
}

/// Shortage of a tenant with its reasons.
fn shortage(tenant: &TenantStatus, missing_cores: f64) -> String {
    let lacks = match text::missing(&tenant.missing) {
        Some(missing) => format!("lacks {missing} of its share"),
        None if missing_cores > 0.0 => format!("lacks {missing_cores:.2} CPUs of its share"),
        None => "is held back".to_string(),
    };
    let reasons: Vec<&str> = tenant.reasons.iter().map(|reason| reason.text.as_str()).collect();
    let why = if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) };
    format!("{} {lacks}{why}", tenant.name)
}

// --- the tenants ---

fn tenants(html: &mut Html, view: &View<'_>) {
    html.add("<section aria-labelledby=\"tenants\">\n", &[]);
    form(html, view.query);
    html.add(
        "<p class=\"legend\" aria-hidden=\"true\"><span class=\"key used\"></span> used \
         <span class=\"key wants\"></span> wanted <span class=\"key now\"></span> share now</p>\n\
         <table class=\"tenants\">\n<thead><tr>\n<th scope=\"col\" class=\"name\">tenant</th>\n",
        &[],
    );
    let heads = MEASURES.iter().flat_map(|(_, bar, all)| {
        let columns = all.iter().filter(|it| !it.class.is_empty());
        let head = |name: &'static str| name.split(" (").next().unwrap_or(name);
        std::iter::once(*bar).chain(columns.map(move |it| [it.class, head(it.name), it.tip]))
    });
    for [class, head, tip] in heads {
        html.add("<th scope=\"col\" class=\"{}\">", &[&class]);
        explained(html, &format!("h-{class}"), head, tip);
        html.add("</th>\n", &[]);
    }
    html.add("</tr></thead>\n", &[]);
    let choice = view.query.choice();
    let rows = rows(view.status, &choice);
    let shown = rows.iter().take(ROWS_MAX);
    // The open tenant may be idle, or excluded by the filter.
    let opened = view.panel.as_ref().map(|panel| panel.line);
    let is_opened = |row: &Row<'_>| match (row, opened) {
        (Row::Line(line), Some(opened)) => line.name() == opened.name(),
        _ => false,
    };
    if let Some(opened) = opened.filter(|_| !shown.clone().any(is_opened)) {
        tenant(html, view, opened);
    }
    for row in shown {
        match row {
            Row::Line(line) => tenant(html, view, *line),
            Row::Fold(fold) => {
                let opened = opened.map(|line| line.name().to_string());
                let shown = Query { has_idle: true, opened, ..view.query.clone() };
                html.add(
                    "<tbody id=\"idle-{}\" class=\"fold\"><tr><td colspan=\"10\"><a href=\"{}\">{}</a></td></tr></tbody>\n",
                    &[&encoded(fold.group), &shown.address(), &fold_in_words(fold)],
                );
            }
        }
    }
    html.add("</table>\n", &[]);
    let hidden = rows.len().saturating_sub(ROWS_MAX);
    if hidden > 0 {
        html.add("<p class=\"quiet\">{} more rows: filter by name.</p>\n", &[&hidden]);
    }
    if rows.is_empty() && !view.query.filter.is_empty() {
        html.note("No name has the text of the filter.");
    }
    if let Some(name) = view.query.opened.as_ref().filter(|_| view.panel.is_none()) {
        html.add("<p class=\"quiet\">The policy has no tenant or group {}.</p>\n", &[name]);
    }
    html.add("</section>\n", &[]);
}

fn form(html: &mut Html, query: &Query) {
    html.add(
        "<form id=\"choice\" class=\"heading\" action=\"./\" method=\"get\">\n\
         <h2 id=\"tenants\" tabindex=\"-1\">Tenants</h2>\n<label>Sort by <select name=\"sort\">\n",
        &[],
    );
    for (key, word) in ORDERS {
        html.add("<option value=\"{}\"", &[&word]);
        html.add(if key == query.sort { " selected" } else { "" }, &[]);
        html.add(">{}</option>\n", &[&word.replace('-', " ")]);
    }
    html.add(
        "</select></label>\n<label>Filter <input name=\"filter\" type=\"search\" placeholder=\"all\" size=\"12\" \
         maxlength=\"200\" value=\"{}\"></label>\n<label><input name=\"idle\" type=\"checkbox\" value=\"shown\"",
        &[&query.filter],
    );
    html.add(if query.has_idle { " checked" } else { "" }, &[]);
    html.add("> idle tenants</label>\n", &[]);
    if let Some(name) = &query.opened {
        html.add("<input name=\"tenant\" type=\"hidden\" value=\"{}\">\n", &[name]);
    }
    html.add("<noscript><button>Show</button></noscript>\n</form>\n", &[]);
}

fn tenant(html: &mut Html, view: &View<'_>, line: Line<'_>) {
    let (name, host) = (line.name(), &view.status.host);
    let (depth, last) = place_in_tree(name);
    let panel = view.panel.as_ref().filter(|panel| panel.line.name() == name);
    let is_open = panel.is_some();
    let lacking = line.tenant().filter(|tenant| lacks(tenant, &view.status.thresholds));
    let mut class = format!("depth{}", depth.min(6));
    for (holds, word) in
        [(line.tenant().is_none(), " group"), (lacking.is_some(), " lacks"), (is_open, " open")]
    {
        class += if holds { word } else { "" };
    }
    let id = encoded(name);
    let values = MEASURES.iter().flat_map(|(.., all)| *all).map(|it| (it.name, (it.value)(line)));
    let values = values.filter(|(_, value)| !value.is_empty());
    let values: Vec<String> = values.map(|(name, value)| format!("{name} {value}")).collect();
    let target = if is_open { None } else { Some(name) };
    html.add(
        "<tbody id=\"t-{}\" class=\"{}\"><tr class=\"row\"><th scope=\"row\"><a id=\"a-{}\" href=\"{}\" aria-expanded=\"{}\" \
         aria-describedby=\"w-{}\"><bdi>{}</bdi></a><span role=\"tooltip\" id=\"w-{}\">{}: {}</span></th>\n",
        &[
            &id,
            &class,
            &id,
            &view.query.opening(target),
            &is_open,
            &id,
            &last,
            &id,
            &name,
            &values.join(", "),
        ],
    );
    for (resource, [class, ..], all) in MEASURES {
        html.add("<td class=\"{}\">", &[&class]);
        bar(html, line, resource, host.capacity[resource]);
        html.add("</td>", &[]);
        for Measure { class, name, value, .. } in all.iter().filter(|it| !it.class.is_empty()) {
            html.add("<td class=\"{}\" title=\"{}\">{}</td>", &[class, name, &value(line)]);
        }
    }
    html.add("</tr>\n", &[]);
    let mut why: Vec<String> = lacking.map(|it| shortage(it, 0.0)).into_iter().collect();
    why.extend(line.tenant().and_then(waiting_job));
    for why in why {
        html.add("<tr class=\"why\"><td colspan=\"10\">{}</td></tr>\n", &[&why]);
    }
    if let Some(panel) = panel {
        html.add("<tr class=\"detail\"><td colspan=\"10\">\n", &[]);
        panel::add(html, panel, &view.query.opening(None));
        html.add("</td></tr>\n", &[]);
    }
    html.add("</tbody>\n", &[]);
}

/// Reason for which the next job of a tenant waits.
fn waiting_job(tenant: &TenantStatus) -> Option<String> {
    let jobs = tenant.jobs.as_ref()?;
    let reason = jobs.reason.as_ref()?;
    let since = jobs.longest_wait_seconds.map_or("-".to_string(), time_of);
    Some(format!("The next job of {} waits since {since}: {reason}", tenant.name))
}

/// Adds a bar of the whole capacity. The figures beside it have the same values for readers without eyes.
fn bar(html: &mut Html, line: Line<'_>, r: Resource, capacity: f64) {
    let part = |value: f64| {
        let part = if capacity > 0.0 { (value / capacity).clamp(0.0, 1.0) } else { 0.0 };
        format!("{:.1}", part * 1000.0)
    };
    let [wanted, used, now] =
        [line.demand()[r], line.usage()[r].unwrap_or(0.0), line.allocation()[r]].map(part);
    html.add(
        "<svg viewBox=\"0 0 1000 14\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" y=\"2\" \
         width=\"1000\" height=\"10\"/><rect class=\"wants\" y=\"2\" width=\"{}\" height=\"10\"/><rect class=\"used\" y=\"2\" \
         width=\"{}\" height=\"10\"/><line class=\"now\" x1=\"{}\" x2=\"{}\" y1=\"0\" y2=\"14\"/></svg>",
        &[&wanted, &used, &now, &now],
    );
}

// --- the other sections ---

/// Section below the tenants: id, title and content.
type Section = (&'static str, &'static str, fn(&mut Html, &View<'_>));

const SECTIONS: [Section; 5] = [
    ("jobs", "Jobs", job_list),
    ("cpus", "CPUs", cpus),
    ("disks", "Disks", disks),
    ("findings-title", "Findings", findings),
    ("writes", "Last writes", writes),
];

fn job_list(html: &mut Html, view: &View<'_>) {
    let list = match &view.jobs {
        None => return html.note("There are no jobs."),
        Some(Err(why)) => return html.note(why),
        Some(Ok(list)) => list,
    };
    html.note(&jobs::free(&list.pool));
    // By tenant: a look-up of accounts may take seconds.
    for (name, words) in jobs::holders(list, |held| held.tenant.clone()) {
        html.add("<p class=\"quiet held\">{}: {}</p>\n", &[&name, &words]);
    }
    if list.jobs.is_empty() {
        return;
    }
    let class = |head: &'static str| if head == "command" { "program" } else { head };
    html.add("<table class=\"jobs\">\n<thead><tr>", &[]);
    for head in jobs::HEADS {
        html.add("<th scope=\"col\" class=\"{}\">{}</th>", &[&class(head), &class(head)]);
    }
    html.add("</tr></thead>\n", &[]);
    for job in list.jobs.iter().take(JOBS_MAX) {
        html.add("<tbody id=\"job-{}\"><tr>", &[&job.id]);
        for (head, cell) in jobs::HEADS.into_iter().zip(jobs::cells(job)) {
            html.add("<td class=\"{}\"><bdi>{}</bdi></td>", &[&class(head), &cell]);
        }
        html.add("</tr>\n", &[]);
        for (verb, note) in jobs::notes(job) {
            let why = [&job.id as &dyn Display, &verb, &note];
            html.add("<tr class=\"why\"><td colspan=\"8\">Job {}{}: {}</td></tr>\n", &why);
        }
        html.add("</tbody>\n", &[]);
    }
    html.add("</table>\n", &[]);
    more(html, list.jobs.len(), JOBS_MAX, "tenantctl jobs");
}

/// Adds the number of items beyond `most`, and the command that shows them.
fn more(html: &mut Html, nr: usize, most: usize, command: &str) {
    if let Some(more @ 1..) = nr.checked_sub(most) {
        html.add("<p class=\"quiet\">{} more: <code>{}</code></p>\n", &[&more, &command]);
    }
}

fn cpus(html: &mut Html, view: &View<'_>) {
    let pinned = view.status.tenants.iter().filter_map(|tenant| {
        let list = tenant.cpus.as_deref()?;
        Some((&tenant.name, list, CpuSet::parse_within(list, CPUS_MAX).ok()?))
    });
    let pinned: Vec<_> = pinned.collect();
    if pinned.is_empty() {
        return html.note("No tenant is pinned: all tenants run on all CPUs.");
    }
    let highest = pinned.iter().filter_map(|(.., set)| set.last()).max().unwrap_or(0);
    let count = view.status.host.cpus.max(highest + 1);
    html.add("<dl class=\"strips\">\n", &[]);
    for (name, list, set) in pinned.iter().take(PINNED_MAX) {
        html.add(
            "<dt><bdi>{}</bdi></dt><dd>{} <svg viewBox=\"0 0 {} 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
             <rect class=\"track\" width=\"{}\" height=\"1\"/><path class=\"used\" d=\"{}\"/></svg></dd>\n",
            &[name, list, &count, &count, &outline(set)],
        );
    }
    html.add("</dl>\n", &[]);
    more(html, pinned.len(), PINNED_MAX, "tenantctl status --json");
    let free = view.status.tenants.iter().filter(|tenant| tenant.cpus.is_none()).count();
    if free > 0 {
        html.note(&format!("Tenants that are not pinned: {free}."));
    }
}

/// Path around each run of neighbours.
fn outline(set: &CpuSet) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in set.iter() {
        match runs.last_mut().filter(|(first, length)| first + length == cpu) {
            Some((_, length)) => *length += 1,
            None => runs.push((cpu, 1)),
        }
    }
    runs.iter().map(|(first, length)| format!("M{first} 0h{length}v1h-{length}z")).collect()
}

fn disks(html: &mut Html, view: &View<'_>) {
    let all = disk::lines(view.status, &Choice::default());
    sentences(html, "disk-list", &all, "No disk is in use.");
}

fn findings(html: &mut Html, view: &View<'_>) {
    sentences(html, "findings", &view.status.findings, "There are no findings.");
}

/// Adds sentences of `tenantctl status` as a list with this `id`, or the note that there are none.
fn sentences(html: &mut Html, id: &str, all: &[String], none: &str) {
    if all.is_empty() {
        return html.note(none);
    }
    html.add("<ul id=\"{}\" class=\"lines\">\n", &[&id]);
    for sentence in all.iter().take(LINES_MAX) {
        html.add("<li>{}</li>\n", &[sentence]);
    }
    html.add("</ul>\n", &[]);
    more(html, all.len(), LINES_MAX, "tenantctl status");
}

fn writes(html: &mut Html, view: &View<'_>) {
    let all = &view.status.actions;
    let wrote = if view.status.mode == Mode::Enforce { "wrote" } else { "would have written" };
    if all.is_empty() {
        return html.note(&format!("The last tick {wrote} nothing: every file has its value."));
    }
    html.note(&format!("The last tick {wrote}:"));
    html.add("<ul class=\"lines\">\n", &[]);
    for action in all.iter().take(LINES_MAX) {
        let file = action.path.rsplit('/').next().unwrap_or_default();
        let from = action.from.as_deref().unwrap_or("-");
        html.add(
            "<li title=\"{}\"><bdi>{}</bdi> <code>{}</code> {} → <b>{}</b>: {}</li>\n",
            &[&action.path, &action.tenant, &file, &from, &action.to, &action.reason],
        );
    }
    html.add("</ul>\n", &[]);
    more(html, all.len(), LINES_MAX, "tenantctl plan");
}
