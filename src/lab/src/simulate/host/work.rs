//! The work of one tenant in a scenario file: one phase, or a list of them.

use std::time::Duration;

use super::codes::{BAD_NUMBER, CONFLICT};
use super::scenario::{NOISE_INTERVAL, Phase, STEP, Work};
use tenantd_core::resource::MEMORY;
use tenantd_policy::bounds::Absolute;
use tenantd_policy::forms::{Count, Number};
use tenantd_policy::hint::shortened;
use tenantd_policy::key::{Fields, Form, section};
use tenantd_policy::reader::Reader;
use tenantd_policy::tree::{Kind, Node};
use tenantd_sim::{Load, Trace};

/// The longest time of a file: some thirty years.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

section! {
    /// A process with a load, for some time.
    struct PhaseKeys, PHASE {
        /// When it starts.
        "from" => from: Option<Duration>, Steps { least: Duration::ZERO };
        /// When it ends; without it, at the beginning of the next phase, or at the end.
        "until" => until: Option<Duration>, Steps { least: STEP };
        /// Threads, all alike.
        "threads" => threads: Option<u32>, Count { most: 100_000, auto: false };
        /// The part of a CPU that each thread wants.
        "duty" => duty: f64 = 1.0, Number { least: 0.0, most: 1.0 };
        /// Memory that it keeps and that cannot be reclaimed.
        "working_set" => working_set: u64, Absolute(MEMORY);
        /// Files that it reads again and again.
        "hot_file" => hot_file: u64, Absolute(MEMORY);
        /// Files that it reads once.
        "cache" => cache: u64, Absolute(MEMORY);
        /// Bytes of memory or of files that it touches in a second.
        "touch" => touch: u64 = Load::default().touch_bytes_per_sec, Absolute(MEMORY);
        /// For bursts: how long it works.
        "on" => on: Option<Duration>, Steps { least: STEP };
        /// For bursts: how long it sleeps after that, with its memory.
        "off" => off: Option<Duration>, Steps { least: STEP };
        /// The duty changes every second, evenly between so much less and so much more.
        "noise" => noise: f64, Number { least: 0.0, most: 1.0 };
    }
}

/// A time, in steps of the simulated kernel.
pub(super) struct Steps {
    pub(super) least: Duration,
}

impl Form<Option<Duration>> for Steps {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<Duration>) {
        let Some(text) = reader.text(node, "a time such as `30s`") else { return };
        let parsed = match text {
            "0" => Ok(Duration::ZERO),
            _ => humantime::parse_duration(text),
        };
        let is_whole = |time: &Duration| time.as_nanos().is_multiple_of(STEP.as_nanos());
        let help = match parsed {
            Ok(time) if (self.least..=LONGEST).contains(&time) && is_whole(&time) => {
                return *into = Some(time);
            }
            Ok(time) if (self.least..=LONGEST).contains(&time) => {
                "whole multiples of 10ms".to_string()
            }
            Ok(_) => {
                let least = humantime::format_duration(self.least);
                format!("at least {least}, at most {}s", LONGEST.as_secs())
            }
            Err(_) if text.parse::<f64>().is_ok() => {
                format!("say which unit: `{text}s` or `{text}ms`")
            }
            Err(_) => "write a time as `500ms`, `30s` or `2m`".to_string(),
        };
        let message = format!("`{}` is no time here", shortened(text));
        reader.find(&BAD_NUMBER, node, message, help);
    }
}

impl Form<Duration> for Steps {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Duration) {
        let mut time = None;
        Form::<Option<Duration>>::read(self, reader, node, &mut time);
        *into = time.unwrap_or(*into);
    }
}

/// The work of the tenant with this number, in a simulation with this end and seed.
pub(super) fn works(
    reader: &mut Reader<'_>,
    node: &Node,
    (end, seed): (Duration, u64),
    number: usize,
) -> Work {
    let items: &[Node] = match &node.kind {
        Kind::List(items) => items,
        _ => std::slice::from_ref(node),
    };
    let mut phases: Vec<Phase> = Vec::with_capacity(items.len());
    let mut is_open = false;
    for (index, item) in items.iter().enumerate() {
        let Some(fields) = reader.fields(PHASE, item) else { continue };
        let mut keys = PhaseKeys::default();
        reader.values(&fields, &mut keys);
        let from = keys.from.unwrap_or_default();
        if let Some(before) = phases.last_mut() {
            if is_open && before.from < from {
                before.until = from;
            } else if before.until > from {
                let place = fields.get("from").map_or(item, |entry| &entry.value);
                let help = "phases are in the order of their times, and one ends before the next";
                reader.find(&CONFLICT, place, "this phase overlaps the one before", help);
            }
        }
        is_open = keys.until.is_none();
        let until = keys.until.unwrap_or(end.max(from));
        if let (true, Some(entry)) = (until <= from && !is_open, fields.get("until")) {
            let message = "a phase ends after it begins";
            reader.find(&CONFLICT, &entry.value, message, "");
        }
        let stream = seed ^ ((number as u64) << 32 | index as u64);
        let trace = trace(reader, &fields, &keys, stream);
        phases.push(Phase { from, until, trace });
    }
    Work(phases)
}

fn trace(
    reader: &mut Reader<'_>,
    fields: &Fields<'_, PhaseKeys>,
    keys: &PhaseKeys,
    seed: u64,
) -> Trace {
    let load = Load {
        threads: keys.threads.unwrap_or(1),
        duty: keys.duty,
        working_set_bytes: keys.working_set,
        hot_file_bytes: keys.hot_file,
        cache_bytes: keys.cache,
        touch_bytes_per_sec: keys.touch,
        ..Load::default()
    };
    let given = |key: &str| fields.get(key);
    if let (Some(on), None) | (None, Some(on)) = (given("on"), given("off")) {
        let message = "a burst has `on` and `off`";
        reader.find(&CONFLICT, &on.value, message, "as in `{ on: 2s, off: 3s }`");
    }
    if let (Some(noise), Some(_)) = (given("noise"), given("on")) {
        reader.find(&CONFLICT, &noise.value, "bursts have no `noise`", "");
    }
    match (keys.on, keys.off) {
        (Some(on), Some(off)) => {
            let period = on + off;
            let awake_ratio = on.as_secs_f64() / period.as_secs_f64();
            // Between two steps of the kernel, so that rounding does not move the end of a burst.
            let awake_ratio = awake_ratio - STEP.as_secs_f64() / 4.0 / period.as_secs_f64();
            Trace::Square { awake: load, asleep: Load { duty: 0.0, ..load }, period, awake_ratio }
        }
        _ if keys.noise > 0.0 => {
            let (base, amplitude) = (load, keys.noise);
            Trace::Noisy { base, amplitude, interval: NOISE_INTERVAL, seed }
        }
        _ => Trace::Constant(load),
    }
}
