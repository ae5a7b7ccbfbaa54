//! What is wrong, in the log: when it begins and when it is over, and not every second in between.
//!
//! A tick finds again what the tick before found, often with another figure in it ("512 MiB cannot be
//! reclaimed", then 511), and a sick host finds a thousand things at once. So findings that differ only in
//! their figures count as one; each is logged when it appears and when it is gone; one that comes and goes is
//! logged at most once a minute; and no tick logs more than a few. What was not logged is counted, and told
//! with the next line.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{info, warn};

/// A finding that comes and goes is logged at most once in this time.
const AGAIN: Duration = Duration::from_secs(60);
/// The most lines of one tick.
const LINES_MAX: usize = 20;

/// A line for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    /// It is there now.
    Appeared(String),
    /// It was logged, and is there no longer.
    Gone(String),
    /// More than could be logged.
    Suppressed(usize),
}

/// What is known of one finding.
#[derive(Clone, Debug)]
struct Known {
    text: String,
    logged: Option<Duration>,
    /// Whether whoever reads the log believes that it is there.
    told: bool,
    present: bool,
}

/// The findings of the ticks so far.
#[derive(Clone, Debug, Default)]
pub(super) struct FindingLog {
    known: BTreeMap<String, Known>,
}

impl FindingLog {
    /// Logs what is new and what is over; `nodes` are the paths that a finding may begin with.
    pub(super) fn tell<'a>(
        &mut self,
        findings: &[String],
        now: Duration,
        nodes: impl Iterator<Item = &'a str> + Clone,
    ) {
        for line in self.step(findings, now) {
            let text = match &line {
                Line::Appeared(text) | Line::Gone(text) => text.as_str(),
                Line::Suppressed(_) => "",
            };
            let tenant = text.split_once(": ").map(|(tenant, _)| tenant);
            let tenant = tenant.filter(|tenant| nodes.clone().any(|node| node == *tenant));
            match &line {
                Line::Appeared(text) => warn!(tenant, action = "finding", "{text}"),
                Line::Gone(text) => info!(tenant, action = "finding-gone", "no longer: {text}"),
                Line::Suppressed(count) => warn!("{count} more findings: see tenantctl status"),
            }
        }
    }

    fn step(&mut self, findings: &[String], now: Duration) -> Vec<Line> {
        self.known.values_mut().for_each(|known| known.present = false);
        let mut lines = Vec::new();
        let mut nr_suppressed = 0;
        for finding in findings {
            let known = self.known.entry(kind(finding)).or_insert_with(|| Known {
                text: String::new(),
                logged: None,
                told: false,
                present: false,
            });
            known.present = true;
            known.text.clone_from(finding);
            let is_due = known.logged.is_none_or(|logged| now.saturating_sub(logged) >= AGAIN);
            if known.told || !is_due {
                continue;
            }
            match lines.len() < LINES_MAX {
                true => {
                    (known.told, known.logged) = (true, Some(now));
                    lines.push(Line::Appeared(finding.clone()));
                }
                false => nr_suppressed += 1,
            }
        }
        for known in self.known.values_mut().filter(|known| !known.present && known.told) {
            known.told = false;
            lines.push(Line::Gone(known.text.clone()));
        }
        if nr_suppressed > 0 {
            lines.push(Line::Suppressed(nr_suppressed));
        }
        let is_recent = |logged: Duration| now.saturating_sub(logged) < AGAIN;
        self.known.retain(|_, known| known.present || known.logged.is_some_and(is_recent));
        lines
    }
}

/// A finding without its figures.
fn kind(finding: &str) -> String {
    finding.chars().filter(|character| !character.is_ascii_digit() && *character != '.').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn appeared(text: &str) -> Line {
        Line::Appeared(text.to_string())
    }

    #[test]
    fn a_finding_is_told_when_it_comes_and_when_it_goes() {
        let mut log = FindingLog::default();
        let finding = vec!["web: 512 MiB cannot be reclaimed".to_string()];
        let later = vec!["web: 511.5 MiB cannot be reclaimed".to_string()];
        assert_eq!(log.step(&finding, seconds(1)), [appeared(&finding[0])]);
        assert_eq!(log.step(&later, seconds(2)), []);
        assert_eq!(log.step(&[], seconds(3)), [Line::Gone(later[0].clone())]);
        assert_eq!(log.step(&[], seconds(4)), []);
    }

    #[test]
    fn one_that_comes_and_goes_is_told_once_a_minute() {
        let mut log = FindingLog::default();
        let finding = ["it flaps".to_string()];
        let mut nr_lines = 0;
        for second in 0..120 {
            let findings = if second % 2 == 0 { &finding[..] } else { &[] };
            nr_lines += log.step(findings, seconds(second)).len();
        }
        assert_eq!(nr_lines, 4, "two minutes, each with its coming and its going");
    }

    #[test]
    fn a_sick_host_does_not_fill_the_log() {
        let mut log = FindingLog::default();
        let name = |i: u32| char::from_u32(0x4e00 + i).map(|c| format!("{c}: is gone"));
        let findings: Vec<String> = (0..1000).filter_map(name).collect();
        let lines = log.step(&findings, seconds(1));
        assert_eq!(lines.len(), LINES_MAX + 1);
        assert_eq!(lines.last(), Some(&Line::Suppressed(1000 - LINES_MAX)));
        // What was not told yet is told later, a few at a time.
        assert_eq!(log.step(&findings, seconds(2)).len(), LINES_MAX + 1);
    }
}
