//! Figures of the page, each with its explanation.

use std::time::Duration;

use super::html::Html;
use crate::show::tenants::memory_used;
use tenantd_control::report::status::Line;
use tenantd_core::resource::{CPU, MEMORY, Resource};
use tenantd_lab::text::{self, age, cores, memory, percent};

/// Name, value and explanation; a figure without a value is left out.
pub(crate) type Figure = (&'static str, Option<String>, &'static str);

/// Adds figures, each with its explanation for the mouse and the keyboard; `id` is the beginning of their ids.
pub(crate) fn figures(html: &mut Html, id: &str, figures: &[Figure]) {
    html.add("<dl class=\"figures\">\n", &[]);
    for (name, value, tip) in figures {
        let Some(value) = value else { continue };
        let id = format!("{id}-{}", name.replace(' ', "-"));
        html.add("<div><dt>{}</dt><dd>", &[name]);
        explained(html, &id, value, tip);
        html.add("</dd></div>\n", &[]);
    }
    html.add("</dl>\n", &[]);
}

/// Adds a text with its explanation, which has this `id`.
pub(crate) fn explained(html: &mut Html, id: &str, text: &str, tip: &str) {
    html.add(
        "<span class=\"tip\" tabindex=\"0\" aria-describedby=\"{}\">{}</span><span role=\"tooltip\" id=\"{}\">{}</span>",
        &[&id, &text, &id, &tip],
    );
}

/// Seconds in the unit that suits them.
pub(crate) fn time_of(seconds: f64) -> String {
    match Duration::try_from_secs_f64(seconds) {
        Ok(time) if time.as_secs() >= 10 => age(time),
        Ok(_) if seconds >= 0.0995 => format!("{seconds:.1} s"),
        _ => text::seconds(seconds),
    }
}

// --- figures of tenants and groups ---

/// Figure of a tenant or group.
pub(crate) struct Measure {
    /// Class of its column; empty if only an open tenant shows it.
    pub(crate) class: &'static str,
    /// Head of its column, and behind it the resource in brackets.
    pub(crate) name: &'static str,
    pub(crate) tip: &'static str,
    pub(crate) value: fn(Line<'_>) -> String,
}

const fn measure(
    class: &'static str,
    name: &'static str,
    tip: &'static str,
    value: fn(Line<'_>) -> String,
) -> Measure {
    Measure { class, name, tip, value }
}

const CPUS_USED: &str = "CPUs used since the last tick.";
const MEMORY_USED: &str = "Memory in use. Memory of moved processes may be charged elsewhere.";
const WANTED: &str = "Amount that it could use now, measured from its waits and its use.";
const NOW: &str =
    "Share now: with the present demands and other load. It is 0 for a tenant that wants nothing.";
const IF_BUSY: &str = "Share if busy: if all tenants want everything.";
const WAITS: &str =
    "Part of the time in which a task was ready to run and waited for a CPU (PSI some).";

const OF_CPU: [Measure; 5] = [
    measure("used", "CPUs used", CPUS_USED, |it| cores(it.usage()[CPU])),
    measure("", "CPUs wanted", WANTED, |it| cores(Some(it.demand()[CPU]))),
    measure("now", "share now (CPUs)", NOW, |it| cores(Some(it.allocation()[CPU]))),
    measure("busy", "share if busy (CPUs)", IF_BUSY, |it| cores(Some(it.share_if_busy()[CPU]))),
    measure("waits", "CPU waits", WAITS, |it| {
        it.tenant().map_or_else(String::new, |it| percent(it.cpu_pressure_ratio))
    }),
];
const OF_MEMORY: [Measure; 4] = [
    measure("memory", "memory used", MEMORY_USED, memory_used),
    measure("", "memory wanted", WANTED, |it| memory(it.demand()[MEMORY])),
    measure("memory-now", "share now (memory)", NOW, |it| memory(it.allocation()[MEMORY])),
    measure("memory-busy", "share if busy (memory)", IF_BUSY, |it| {
        memory(it.share_if_busy()[MEMORY])
    }),
];

/// Figures of each resource, behind a bar: its class, head and explanation.
pub(crate) const MEASURES: [(Resource, [&str; 3], &[Measure]); 2] = [
    (
        CPU,
        ["bar", "CPUs", "CPUs of the machine that are divided: used, wanted, and the share now."],
        &OF_CPU,
    ),
    (
        MEMORY,
        ["memory-bar", "memory", "Memory that is divided: used, wanted, and the share now."],
        &OF_MEMORY,
    ),
];
