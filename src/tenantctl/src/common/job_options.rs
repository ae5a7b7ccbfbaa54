//! Values of options of `run`: indices of a set of tasks, memory, and counted resources.

use tenantd_core::units::{Bytes, QuantityError};
use tenantd_varlink::jobs::{GRACE_MAX_SECONDS, MEMORY_MIN_BYTES, TASKS_MAX, Units};

/// Time between SIGTERM and SIGKILL of an eviction where none is given, in seconds.
pub const GRACE_SECONDS: u32 = 30;

/// Indices of a set of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indices {
    /// The first index.
    pub first: u64,
    /// Number of indices.
    pub count: u32,
    /// Most tasks at a time.
    pub at_once: Option<u32>,
}

/// Parses `FIRST-LAST[%N]`.
///
/// # Errors
/// The remedy, in words.
pub fn indices(text: &str) -> Result<Indices, String> {
    let wrong = || "write FIRST-LAST, or FIRST-LAST%N for at most N at a time".to_string();
    let number = |text: &str| {
        let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| is_plain).ok_or_else(wrong)
    };
    let (range, at_once) = match text.split_once('%') {
        Some((range, most)) => (range, Some(u32::try_from(number(most)?).map_err(|_| wrong())?)),
        None => (text, None),
    };
    let (first, last) = range.split_once('-').unwrap_or((range, range));
    let (first, last) = (number(first)?, number(last)?);
    if last < first {
        return Err(format!("{first} is after {last}: write the smaller index first"));
    }
    if at_once == Some(0) {
        return Err("no task could run: %N is at least 1".to_string());
    }
    let count = (last - first).checked_add(1).and_then(|count| u32::try_from(count).ok());
    let count = count.filter(|count| *count <= TASKS_MAX);
    let count = count.ok_or_else(|| format!("more than {TASKS_MAX} tasks: split the set"))?;
    Ok(Indices { first, count, at_once })
}

/// Parses the time between SIGTERM and SIGKILL, in whole seconds.
///
/// # Errors
/// The range, in words.
pub fn grace(text: &str) -> Result<u32, String> {
    let seconds = text.parse::<u64>().ok();
    let parsed = humantime::parse_duration(text).ok().filter(|time| time.subsec_nanos() == 0);
    let seconds = seconds.or(parsed.map(|time| time.as_secs()));
    let seconds = seconds.and_then(|seconds| u32::try_from(seconds).ok());
    let in_range = seconds.filter(|seconds| *seconds <= GRACE_MAX_SECONDS);
    in_range
        .ok_or_else(|| "must be whole seconds, as in `30s` or `5min`, up to an hour".to_string())
}

/// Parses an amount of memory of a job.
///
/// # Errors
/// The remedy, in words.
pub fn memory(text: &str) -> Result<Bytes, String> {
    let memory: Bytes = text.parse().map_err(|error: QuantityError| error.to_string())?;
    if (1..MEMORY_MIN_BYTES).contains(&memory.0) {
        let least = Bytes(MEMORY_MIN_BYTES);
        let gib = Some(memory.0).filter(|it| *it <= 1024);
        let meant =
            gib.map(|it| format!("; a number alone is bytes: `{it}GiB`?")).unwrap_or_default();
        return Err(format!("no process fits into less than {least}{meant}"));
    }
    Ok(memory)
}

/// Parses `NAME=COUNT`, a counted resource.
///
/// # Errors
/// The form, in words.
pub fn units(text: &str) -> Result<Units, String> {
    let parsed = text.split_once('=').and_then(|(name, count)| {
        let count = count.parse().ok().filter(|count| *count > 0)?;
        (!name.is_empty()).then(|| Units { name: name.to_string(), count })
    });
    parsed.ok_or_else(|| "must be a name and a whole number above 0, as in `gpu=2`".to_string())
}
