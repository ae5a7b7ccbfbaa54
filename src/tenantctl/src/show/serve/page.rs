//! The page, drawn on the server, so that it is whole without a script.
//!
//! The rows are those of `tenantctl status` and `top` ([`rows`]): a tree, tenants that lack something first, idle ones
//! folded. The script fetches the page again at each tick and changes the differences. Elements with an `id` keep it
//! from tick to tick, so that the focus stays.

use std::time::SystemTime;

use super::html::Html;
use super::panel::{self, Panel};
use super::query::{ORDERS, Query, encoded};
use super::source::Newest;
use crate::ask::jobs;
use crate::common::rows::{Row, lacks, place_in_tree, rows};
use crate::common::stale::stale;
use crate::show::tenants::{fold_in_words, memory_used};
use tenantd_control::report::status::{Line, Status, TenantStatus};
use tenantd_core::resource::{CPU, MEMORY};
use tenantd_dop::cpuset::CpuSet;
use tenantd_lab::text::{self, age, cores, memory, percent};
use tenantd_lab::time::Clock;
use tenantd_varlink::jobs::ListReply;

/// Most rows of tenants, of jobs, of findings, and of writes.
const ROWS_MAX: usize = 500;
const JOBS_MAX: usize = 100;
const LINES_MAX: usize = 100;
/// Most pinned tenants, and CPUs of each.
const PINNED_MAX: usize = 64;
const CPUS_MAX: u32 = 1024;

pub(crate) const SHARE_NOW_TIP: &str =
    "Share now: with the present demands and other load. It is 0 for a tenant that wants nothing.";
pub(crate) const SHARE_IF_BUSY_TIP: &str = "Share if busy: if all tenants want everything.";
pub(crate) const WAITS_TIP: &str =
    "Part of the time in which a task was ready to run and waited for a CPU (PSI some).";

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
    if let Some(list) = &view.jobs {
        jobs_section(&mut html, status, list);
    }
    cpus(&mut html, status);
    findings(&mut html, status);
    writes(&mut html, status);
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
        let time = time.map_or(String::new(), |time| Clock::new(false).with_zone(time));
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

/// Seconds in the unit that suits them.
pub(crate) fn time_of(seconds: f64) -> String {
    match std::time::Duration::try_from_secs_f64(seconds) {
        Ok(time) if time.as_secs() >= 10 => age(time),
        Ok(_) if seconds >= 0.0995 => format!("{seconds:.1} s"),
        _ => text::seconds(seconds),
    }
}

// --- figures ---

/// Adds a figure of a list of figures, with its explanation for the mouse and the keyboard.
pub(crate) fn figure(html: &mut Html, (id, name): (&str, &str), value: &str, tip: &str) {
    html.add(
        "<div><dt>{}</dt><dd><span class=\"tip\" tabindex=\"0\" aria-describedby=\"{}\">{}</span>\
         <span role=\"tooltip\" id=\"{}\">{}</span></dd></div>\n",
        &[&name, &id, &value, &id, &tip],
    );
}

/// Figure of the whole host.
struct Overall {
    id: &'static str,
    name: &'static str,
    tip: &'static str,
    of: fn(&Status) -> String,
}

const OVERALL: [Overall; 10] = [
    Overall {
        id: "f-error",
        name: "Largest share error",
        tip: "Largest part of the divided CPUs that a tenant wants, within its share now, and does not get.",
        of: |status| percent(status.max_share_error),
    },
    Overall {
        id: "f-jain",
        name: "Jain's index",
        tip: "Evenness of the delivered parts of the shares now: 1 if all tenants that want more get the same part.",
        of: |status| {
            status.jain_index.map_or("no tenant waits".into(), |jain| format!("{jain:.3}"))
        },
    },
    Overall {
        id: "f-convergence",
        name: "Last convergence",
        tip: "Length of the present or last time in which a share error was above its threshold.",
        of: |status| status.convergence_seconds.map_or("none".into(), time_of),
    },
    Overall {
        id: "f-starvation",
        name: "Longest starvation",
        tip: "Longest time of one tenant with less than half of its share if busy while it wanted more, since tenantd started.",
        of: |status| {
            let longest = status.tenants.iter().map(|it| it.starved_seconds).fold(0.0, f64::max);
            if longest > 0.0 { time_of(longest) } else { "none".into() }
        },
    },
    Overall {
        id: "f-cpus",
        name: "CPUs to divide",
        tip: "CPUs divided among the tenants: those of the machine less the reserve and other load.",
        of: |status| format!("{} of {}", cores(Some(status.host.capacity[CPU])), status.host.cpus),
    },
    Overall {
        id: "f-memory",
        name: "Memory to divide",
        tip: "Memory divided among the tenants: that of the machine less the reserve and other load.",
        of: |status| {
            let [part, all] = [status.host.capacity[MEMORY], status.host.memory_bytes as f64];
            format!("{} of {}", memory(part), memory(all))
        },
    },
    Overall {
        id: "f-outside",
        name: "Other processes",
        tip: "CPUs used by processes outside all tenants.",
        of: |status| format!("{} CPUs", cores(status.host.outside_cores)),
    },
    Overall {
        id: "f-drift",
        name: "Values overwritten",
        tip: "Values of tenantd that other programs overwrote, since it started.",
        of: |status| status.nr_drift.to_string(),
    },
    Overall {
        id: "f-contested",
        name: "Values left to others",
        tip: "Values now left to programs that keep overwriting them.",
        of: |status| status.nr_contested.to_string(),
    },
    Overall {
        id: "f-ineffective",
        name: "Values without effect",
        tip: "Values that cannot take effect now; the findings have the reasons.",
        of: |status| status.nr_ineffective.to_string(),
    },
];

fn fairness(html: &mut Html, status: &Status) {
    let (verdict, is_good) = verdict(status);
    let class = if is_good { "good" } else { "bad" };
    html.add(
        "<section aria-labelledby=\"fair\">\n<h2 id=\"fair\">Fairness</h2>\n\
         <p id=\"verdict\" class=\"verdict {}\" aria-live=\"polite\">{}</p>\n<dl class=\"figures\">\n",
        &[&class, &verdict],
    );
    for Overall { id, name, tip, of } in &OVERALL {
        figure(html, (id, name), &of(status), tip);
    }
    html.add("</dl>\n</section>\n", &[]);
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
    if status.mode.word() == "observe" {
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

/// Columns behind the name: class, title and explanation.
const COLUMNS: [(&str, &str, &str); 9] = [
    ("bar", "CPUs", "CPUs of the machine that are divided: used, wanted, and the share now."),
    ("used", "CPUs used", "CPUs used since the last tick."),
    ("now", "share now", SHARE_NOW_TIP),
    ("busy", "share if busy", SHARE_IF_BUSY_TIP),
    ("waits", "CPU waits", WAITS_TIP),
    ("memory-bar", "memory", "Memory that is divided: used, wanted, and the share now."),
    ("memory", "memory used", "Memory in use. Memory of moved processes may be charged elsewhere."),
    ("memory-now", "share now", SHARE_NOW_TIP),
    ("memory-busy", "share if busy", SHARE_IF_BUSY_TIP),
];

fn tenants(html: &mut Html, view: &View<'_>) {
    html.add("<section aria-labelledby=\"tenants\">\n", &[]);
    form(html, view.query);
    html.add(
        "<p class=\"legend\" aria-hidden=\"true\"><span class=\"key used\"></span> used \
         <span class=\"key wants\"></span> wanted <span class=\"key now\"></span> share now</p>\n\
         <table class=\"tenants\">\n<thead><tr>\n<th scope=\"col\" class=\"name\">tenant</th>\n",
        &[],
    );
    for (class, title, tip) in COLUMNS {
        let id = format!("h-{class}");
        html.add(
            "<th scope=\"col\" class=\"{}\"><span class=\"tip\" tabindex=\"0\" aria-describedby=\"{}\">{}</span>\
             <span role=\"tooltip\" id=\"{}\">{}</span></th>\n",
            &[&class, &id, &title, &id, &tip],
        );
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
                let shown = Query { has_idle: true, ..view.query.clone() };
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
        html.add("<p class=\"quiet\">No name has the text of the filter.</p>\n", &[]);
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
    for (key, word, name) in ORDERS {
        let is_chosen = key == query.sort;
        let markup = match is_chosen {
            true => "<option value=\"{}\" selected>{}</option>\n",
            false => "<option value=\"{}\">{}</option>\n",
        };
        html.add(markup, &[&word, &name]);
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
    let (used, now, busy) = (line.usage(), line.allocation(), line.share_if_busy());
    let waits = line.tenant().map_or_else(String::new, |it| percent(it.cpu_pressure_ratio));
    let [used_cores, now_cores, busy_cores] =
        [used[CPU], Some(now[CPU]), Some(busy[CPU])].map(cores);
    let [now_memory, busy_memory] = [now[MEMORY], busy[MEMORY]].map(memory);
    let held = memory_used(line);
    let words = format!(
        "{name}: {used_cores} CPUs used, {} wanted, share now {now_cores}, share if busy {busy_cores}; memory: {held} used, {} \
         wanted, share now {now_memory}, share if busy {busy_memory}",
        cores(Some(line.demand()[CPU])),
        memory(line.demand()[MEMORY]),
    );
    let target = if is_open { None } else { Some(name) };
    html.add(
        "<tbody id=\"t-{}\" class=\"{}\"><tr class=\"row\"><th scope=\"row\"><a id=\"a-{}\" href=\"{}\" aria-expanded=\"{}\" \
         aria-describedby=\"w-{}\"><bdi>{}</bdi></a><span role=\"tooltip\" id=\"w-{}\">{}</span></th>\n<td class=\"bar\">",
        &[&id, &class, &id, &view.query.opening(target), &is_open, &id, &last, &id, &words],
    );
    bar(html, (used[CPU], line.demand()[CPU], now[CPU]), host.capacity[CPU]);
    html.add(
        "</td><td class=\"used\" title=\"CPUs used\">{}</td><td class=\"now\" title=\"share now, in CPUs\">{}</td>\
         <td class=\"busy\" title=\"share if busy, in CPUs\">{}</td><td class=\"waits\" title=\"CPU waits\">{}</td>\n\
         <td class=\"memory-bar\">",
        &[&used_cores, &now_cores, &busy_cores, &waits],
    );
    bar(html, (used[MEMORY], line.demand()[MEMORY], now[MEMORY]), host.capacity[MEMORY]);
    html.add(
        "</td><td class=\"memory\" title=\"memory used\">{}</td><td class=\"memory-now\" title=\"share now, of memory\">{}</td>\
         <td class=\"memory-busy\" title=\"share if busy, of memory\">{}</td></tr>\n",
        &[&held, &now_memory, &busy_memory],
    );
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
fn bar(html: &mut Html, (used, wanted, now): (Option<f64>, f64, f64), capacity: f64) {
    let part = |value: f64| {
        let part = if capacity > 0.0 { (value / capacity).clamp(0.0, 1.0) } else { 0.0 };
        format!("{:.1}", part * 1000.0)
    };
    html.add(
        "<svg viewBox=\"0 0 1000 14\" preserveAspectRatio=\"none\" aria-hidden=\"true\"><rect class=\"track\" y=\"2\" \
         width=\"1000\" height=\"10\"/><rect class=\"wants\" y=\"2\" width=\"{}\" height=\"10\"/><rect class=\"used\" y=\"2\" \
         width=\"{}\" height=\"10\"/><line class=\"now\" x1=\"{}\" x2=\"{}\" y1=\"0\" y2=\"14\"/></svg>",
        &[&part(wanted), &part(used.unwrap_or(0.0)), &part(now), &part(now)],
    );
}

// --- the other sections ---

fn jobs_section(html: &mut Html, status: &Status, list: &Newest<ListReply>) {
    html.add("<section aria-labelledby=\"jobs\">\n<h2 id=\"jobs\">Jobs</h2>\n", &[]);
    let list = match list {
        Ok(list) => list,
        Err(why) => {
            html.add("<p class=\"quiet\">{}</p>\n</section>\n", &[why]);
            return;
        }
    };
    let nr_lingering = status.jobs.as_ref().map_or(0, |jobs| jobs.nr_lingering);
    let lingering =
        if nr_lingering > 0 { format!("; {nr_lingering} left daemons") } else { String::new() };
    html.add("<p class=\"quiet\">{}{}</p>\n", &[&jobs::free(&list.pool), &lingering]);
    if list.jobs.is_empty() {
        html.add("</section>\n", &[]);
        return;
    }
    html.add("<table class=\"jobs\">\n<thead><tr>", &[]);
    for head in jobs::HEADS {
        let head = if head == "command" { "program" } else { head };
        html.add("<th scope=\"col\" class=\"{}\">{}</th>", &[&head, &head]);
    }
    html.add("</tr></thead>\n", &[]);
    for job in list.jobs.iter().take(JOBS_MAX) {
        html.add("<tbody id=\"job-{}\"><tr>", &[&job.id]);
        for (head, cell) in jobs::HEADS.iter().zip(jobs::cells(job)) {
            let class = if *head == "command" { "program" } else { head };
            html.add("<td class=\"{}\"><bdi>{}</bdi></td>", &[&class, &cell]);
        }
        html.add("</tr>\n", &[]);
        if let Some(waiting) = &job.waiting {
            let why = jobs::reason(waiting);
            html.add("<tr class=\"why\"><td colspan=\"8\">Waits: {}</td></tr>\n", &[&why]);
        }
        html.add("</tbody>\n", &[]);
    }
    html.add("</table>\n", &[]);
    more(html, list.jobs.len(), JOBS_MAX, "tenantctl jobs");
    html.add("</section>\n", &[]);
}

/// Adds the number of items beyond `most`, and the command that shows them.
fn more(html: &mut Html, nr: usize, most: usize, command: &str) {
    if let Some(more @ 1..) = nr.checked_sub(most) {
        html.add("<p class=\"quiet\">{} more: <code>{}</code></p>\n", &[&more, &command]);
    }
}

fn cpus(html: &mut Html, status: &Status) {
    html.add("<section aria-labelledby=\"cpus\">\n<h2 id=\"cpus\">CPUs</h2>\n", &[]);
    let pinned = status.tenants.iter().filter_map(|tenant| {
        let set = CpuSet::parse_within(tenant.cpus.as_deref()?, CPUS_MAX).ok()?;
        Some((tenant, set))
    });
    let pinned: Vec<(&TenantStatus, CpuSet)> = pinned.collect();
    if pinned.is_empty() {
        html.add("<p class=\"quiet\">No tenant is pinned: all tenants run on all CPUs.</p>\n</section>\n", &[]);
        return;
    }
    let highest = pinned.iter().filter_map(|(_, set)| set.last()).max().unwrap_or(0);
    let count = status.host.cpus.max(highest + 1);
    html.add("<dl class=\"strips\">\n", &[]);
    for (tenant, set) in pinned.iter().take(PINNED_MAX) {
        let list = tenant.cpus.as_deref().unwrap_or_default();
        let noun = if set.len() == 1 { "CPU" } else { "CPUs" };
        html.add(
            "<dt><bdi>{}</bdi></dt><dd>{} {} <svg viewBox=\"0 0 {} 1\" preserveAspectRatio=\"none\" aria-hidden=\"true\">\
             <rect class=\"track\" width=\"{}\" height=\"1\"/>",
            &[&tenant.name, &noun, &list, &count, &count],
        );
        for (first, length) in runs(set) {
            html.add(
                "<rect class=\"used\" x=\"{}\" width=\"{}\" height=\"1\"/>",
                &[&first, &length],
            );
        }
        html.add("</svg></dd>\n", &[]);
    }
    html.add("</dl>\n", &[]);
    more(html, pinned.len(), PINNED_MAX, "tenantctl status --json");
    let free = status.tenants.len() - pinned.len();
    if free > 0 {
        let verb = if free == 1 { "tenant is" } else { "tenants are" };
        html.add("<p class=\"quiet\">{} {} not pinned.</p>\n", &[&free, &verb]);
    }
    html.add("</section>\n", &[]);
}

/// First CPU and length of each run of neighbours.
fn runs(set: &CpuSet) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for cpu in set.iter() {
        match runs.last_mut().filter(|(first, length)| first + length == cpu) {
            Some((_, length)) => *length += 1,
            None => runs.push((cpu, 1)),
        }
    }
    runs
}

fn findings(html: &mut Html, status: &Status) {
    html.add(
        "<section aria-labelledby=\"findings-title\">\n<h2 id=\"findings-title\">Findings</h2>\n",
        &[],
    );
    if status.findings.is_empty() {
        html.add("<p class=\"quiet\">No findings.</p>\n</section>\n", &[]);
        return;
    }
    html.add("<ul id=\"findings\" class=\"lines\">\n", &[]);
    for finding in status.findings.iter().take(LINES_MAX) {
        html.add("<li>{}</li>\n", &[finding]);
    }
    html.add("</ul>\n", &[]);
    more(html, status.findings.len(), LINES_MAX, "tenantctl status");
    html.add("</section>\n", &[]);
}

fn writes(html: &mut Html, status: &Status) {
    html.add("<section aria-labelledby=\"writes\">\n<h2 id=\"writes\">Last writes</h2>\n", &[]);
    let wrote = if status.mode.word() == "enforce" { "wrote" } else { "would have written" };
    let nr = status.actions.len();
    let what = match nr {
        0 => "nothing: every file has its value".to_string(),
        1 => "1 value".to_string(),
        nr => format!("{nr} values"),
    };
    html.add("<p class=\"quiet\">The last tick {} {}.</p>\n", &[&wrote, &what]);
    if nr > 0 {
        html.add("<ul class=\"lines\">\n", &[]);
    }
    for action in status.actions.iter().take(LINES_MAX) {
        let file = action.path.rsplit('/').next().unwrap_or_default();
        let from = action.from.as_deref().unwrap_or("-");
        html.add(
            "<li title=\"{}\"><bdi>{}</bdi> <code>{}</code> {} → <b>{}</b>: {}</li>\n",
            &[&action.path, &action.tenant, &file, &from, &action.to, &action.reason],
        );
    }
    if nr > 0 {
        html.add("</ul>\n", &[]);
    }
    more(html, nr, LINES_MAX, "tenantctl plan");
    html.add("</section>\n", &[]);
}
