//! The work of one tenant in a scenario file: one phase, or a list of them.

use std::time::Duration;

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

use super::codes::CONFLICT;
use super::scenario::{NOISE_INTERVAL, Phase, STEP, Work};
use tenantd_core::resource::MEMORY;
use tenantd_policy::file::{Cause, Refusal, Whole, text, within};
use tenantd_policy::hint::shortened;
use tenantd_policy::rules::BAD_MEMORY;
use tenantd_policy::tree::{Kind, Node};
use tenantd_sim::{Load, Trace};

/// The longest time of a file: some thirty years.
const LONGEST: Duration = Duration::from_secs(1_000_000_000);

/// A process with a load, for some time.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(dead_code, reason = "amounts of memory are read with their places")]
struct PhaseKeys {
    from: Option<Time<0>>,
    /// Without it, the phase ends at the beginning of the next one, or at the end.
    until: Option<Time<1>>,
    threads: Option<Whole<1, 100_000>>,
    /// The part of a CPU that each thread wants.
    duty: Option<Part>,
    /// Memory that cannot be reclaimed.
    working_set: Option<String>,
    /// Files that are read again and again.
    hot_file: Option<String>,
    /// Files that are read once.
    cache: Option<String>,
    /// Bytes of memory or of files that are touched in a second.
    touch: Option<String>,
    /// The part of the disk that it wants to read.
    disk: Option<Part>,
    /// For bursts: the time of work, and the time of sleep after it.
    on: Option<Time<1>>,
    off: Option<Time<1>>,
    /// The duty changes every second, evenly between so much less and so much more.
    noise: Option<Part>,
}

#[derive(Clone, Copy)]
struct Part(f64);

impl<'de> Deserialize<'de> for Part {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Part, D::Error> {
        within(deserializer, 0.0..=1.0, "a number from 0 to 1").map(Part)
    }
}

/// A time of at least `LEAST` steps of the simulated kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Time<const LEAST: u32>(pub(super) Duration);

impl<'de, const LEAST: u32> Deserialize<'de> for Time<LEAST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = text(deserializer, "a time such as `30s`")?;
        let range = STEP * LEAST..=LONGEST;
        let parsed = match &*text {
            "0" => Ok(Duration::ZERO),
            _ => humantime::parse_duration(&text),
        };
        let help = match parsed {
            Ok(time) if range.contains(&time) => {
                if time.as_nanos().is_multiple_of(STEP.as_nanos()) {
                    return Ok(Time(time));
                }
                "whole multiples of 10ms".to_string()
            }
            Ok(_) => {
                let least = humantime::format_duration(STEP * LEAST);
                format!("at least {least}, at most {}s", LONGEST.as_secs())
            }
            Err(_) if text.parse::<f64>().is_ok() => {
                format!("say which unit: `{text}s` or `{text}ms`")
            }
            Err(_) => "write a time as `500ms`, `30s` or `2m`".to_string(),
        };
        let message = format!("`{}` is no time here", shortened(&text));
        Err(Error::invalid_value(Unexpected::Other(&message), &help.as_str()))
    }
}

/// An amount of memory under a key, in bytes; `None` without the key.
pub(super) fn memory(map: &Node, key: &str) -> Result<Option<u64>, Refusal> {
    let Some(entry) = map.get(key) else { return Ok(None) };
    let text: String = entry.read()?;
    MEMORY.parse(&text).map(Some).map_err(|error| {
        let message = format!("`{}` is not an amount of memory", shortened(&text));
        Refusal::new(Cause::Rule(BAD_MEMORY.code), entry.value.span(), message).help(error.help)
    })
}

/// The work of the tenant with this number, in a simulation with this end and seed.
pub(super) fn works(
    node: &Node,
    (end, seed): (Duration, u64),
    number: usize,
) -> Result<Work, Refusal> {
    let items: &[Node] = match &node.kind {
        Kind::List(items) => items,
        _ => std::slice::from_ref(node),
    };
    let mut phases: Vec<Phase> = Vec::with_capacity(items.len());
    let mut is_open = false;
    for (index, item) in items.iter().enumerate() {
        let keys: PhaseKeys = item.read()?;
        let conflict = |key: &str, message: &str, help: &str| {
            let span = item.get(key).map_or(item.span(), |entry| entry.value.span());
            Refusal::new(CONFLICT, span, message).help(help)
        };
        let from = keys.from.map_or(Duration::ZERO, |from| from.0);
        if let Some(before) = phases.last_mut() {
            if is_open && before.from < from {
                before.until = from;
            } else if before.until > from {
                let help = "phases are in the order of their times, and one ends before the next";
                return Err(conflict("from", "this phase overlaps the one before", help));
            }
        }
        is_open = keys.until.is_none();
        let until = keys.until.map_or(end.max(from), |until| until.0);
        if until <= from && !is_open {
            return Err(conflict("until", "a phase ends after it begins", ""));
        }
        if keys.on.is_some() != keys.off.is_some() {
            let given = if keys.on.is_some() { "on" } else { "off" };
            let help = "as in `{ on: 2s, off: 3s }`";
            return Err(conflict(given, "a burst has `on` and `off`", help));
        }
        if keys.noise.is_some() && keys.on.is_some() {
            return Err(conflict("noise", "bursts have no `noise`", ""));
        }
        let stream = seed ^ ((number as u64) << 32 | index as u64);
        let disk = keys.disk.map_or(0.0, |disk| disk.0);
        phases.push(Phase { from, until, trace: keys.trace(item, stream)?, disk });
    }
    Ok(Work(phases))
}

impl PhaseKeys {
    fn trace(&self, item: &Node, seed: u64) -> Result<Trace, Refusal> {
        let default = Load::default();
        let load = Load {
            threads: self.threads.map_or(1, |threads| threads.0 as u32),
            duty: self.duty.map_or(1.0, |duty| duty.0),
            working_set_bytes: memory(item, "working_set")?.unwrap_or(0),
            hot_file_bytes: memory(item, "hot_file")?.unwrap_or(0),
            cache_bytes: memory(item, "cache")?.unwrap_or(0),
            touch_bytes_per_sec: memory(item, "touch")?.unwrap_or(default.touch_bytes_per_sec),
            ..default
        };
        Ok(match (self.on, self.off, self.noise) {
            (Some(on), Some(off), _) => {
                let period = on.0 + off.0;
                let awake_ratio = on.0.as_secs_f64() / period.as_secs_f64();
                // Between two steps of the kernel, so that rounding does not move the end of a burst.
                let awake_ratio = awake_ratio - STEP.as_secs_f64() / 4.0 / period.as_secs_f64();
                let asleep = Load { duty: 0.0, ..load };
                Trace::Square { awake: load, asleep, period, awake_ratio }
            }
            (_, _, Some(Part(amplitude))) if amplitude > 0.0 => {
                Trace::Noisy { base: load, amplitude, interval: NOISE_INTERVAL, seed }
            }
            _ => Trace::Constant(load),
        })
    }
}
