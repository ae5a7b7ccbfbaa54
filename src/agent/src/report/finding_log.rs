//! Findings in the log, once when they begin and once when they end.
//!
//! **Problem.** A tick repeats the findings of the last one, often with another figure ("512 MiB cannot be
//! reclaimed", then "511 MiB"), and a broken host has a thousand findings at once.
//!
//! **Rules.** Findings of one tenant, or of the host, that differ only in their figures count as one. Each is
//! logged when it appears and when it ends. A finding that comes and goes is logged at most once a minute. A
//! tick logs only a few new and a few ended findings; later ticks log the others, and new ones are counted
//! until then.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{info, warn};

use tenantd_control::words::finding::Finding;

/// A finding that comes and goes is logged at most once in this time.
const AGAIN: Duration = Duration::from_secs(60);
const LINES_MAX: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Appeared { tenant: Option<String>, text: String },
    Gone { tenant: Option<String>, text: String },
    Suppressed(usize),
}

#[derive(Clone, Debug)]
struct Known {
    text: String,
    logged: Option<Duration>,
    /// True if it was logged as present, and not as gone since.
    told: bool,
    present: bool,
}

/// Identity of a finding: its tenant, and its text without figures.
type Key = (Option<String>, String);

#[derive(Clone, Debug, Default)]
pub(super) struct FindingLog {
    known: BTreeMap<Key, Known>,
}

impl FindingLog {
    pub(super) fn tell(&mut self, findings: &[Finding], now: Duration) {
        for line in self.step(findings, now) {
            match line {
                Line::Appeared { tenant, text } => warn!(tenant, action = "finding", "{text}"),
                Line::Gone { tenant, text } => {
                    info!(tenant, action = "finding-gone", "resolved: {text}");
                }
                Line::Suppressed(count) => warn!("{count} more findings: see tenantctl status"),
            }
        }
    }

    fn step(&mut self, findings: &[Finding], now: Duration) -> Vec<Line> {
        self.known.values_mut().for_each(|known| known.present = false);
        let mut lines = Vec::new();
        let mut nr_suppressed = 0;
        for finding in findings {
            let (key, text) = (key(finding), finding.to_string());
            let tenant = key.0.clone();
            let known = self.known.entry(key).or_insert_with(|| Known {
                text: String::new(),
                logged: None,
                told: false,
                present: false,
            });
            known.present = true;
            known.text.clone_from(&text);
            let is_due = known.logged.is_none_or(|logged| now.saturating_sub(logged) >= AGAIN);
            if known.told || !is_due {
                continue;
            }
            if lines.len() < LINES_MAX {
                (known.told, known.logged) = (true, Some(now));
                lines.push(Line::Appeared { tenant, text });
            } else {
                nr_suppressed += 1
            }
        }
        let room = LINES_MAX - lines.len();
        let gone = self.known.iter_mut().filter(|(_, known)| !known.present && known.told);
        for ((tenant, _), known) in gone.take(room) {
            known.told = false;
            lines.push(Line::Gone { tenant: tenant.clone(), text: known.text.clone() });
        }
        if nr_suppressed > 0 {
            lines.push(Line::Suppressed(nr_suppressed));
        }
        let is_recent = |logged: Duration| now.saturating_sub(logged) < AGAIN;
        self.known
            .retain(|_, known| known.present || known.told || known.logged.is_some_and(is_recent));
        lines
    }
}

fn key(finding: &Finding) -> Key {
    let is_text = |character: &char| !character.is_ascii_digit() && *character != '.';
    (finding.tenant.clone(), finding.message.chars().filter(is_text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_control::words::finding::Code;

    fn finding(tenant: &str, text: &str) -> Finding {
        match tenant {
            "" => Finding::of_host(Code::Unreadable, text),
            tenant => Finding::of(tenant, Code::Unreadable, text),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn of(tenant: &str, text: &str) -> (Option<String>, String) {
        (Some(tenant.to_string()).filter(|tenant| !tenant.is_empty()), text.to_string())
    }

    fn appeared(tenant: &str, text: &str) -> Line {
        let (tenant, text) = of(tenant, text);
        Line::Appeared { tenant, text }
    }

    fn gone(tenant: &str, text: &str) -> Line {
        let (tenant, text) = of(tenant, text);
        Line::Gone { tenant, text }
    }

    fn sick(count: usize) -> Vec<Finding> {
        (0..count).map(|index| finding(&format!("web{index}"), "is gone")).collect()
    }

    #[test]
    fn a_finding_is_logged_when_it_appears_and_when_it_is_resolved() {
        let mut log = FindingLog::default();
        let first = [finding("web", "512 MiB cannot be reclaimed")];
        let later = [finding("web", "511.5 MiB cannot be reclaimed")];
        assert_eq!(log.step(&first, seconds(1)), [appeared("web", &first[0].to_string())]);
        assert_eq!(log.step(&later, seconds(2)), []);
        assert_eq!(log.step(&[], seconds(3)), [gone("web", &later[0].to_string())]);
        assert_eq!(log.step(&[], seconds(4)), []);
    }

    #[test]
    fn digits_in_a_tenants_name_are_no_figure() {
        let mut log = FindingLog::default();
        let of = |name: &str, mib: u32| finding(name, &format!("{mib} MiB cannot be reclaimed"));
        let findings = ["web1", "web2", "1", "2"].map(|name| of(name, 7));
        let told = ["web1", "web2", "1", "2"].map(|name| appeared(name, &of(name, 7).to_string()));
        assert_eq!(log.step(&findings, seconds(1)), told);
        let later = ["web1", "1", "2"].map(|name| of(name, 8));
        assert_eq!(log.step(&later, seconds(2)), [gone("web2", &of("web2", 7).to_string())]);
    }

    #[test]
    fn a_flapping_finding_is_logged_once_a_minute() {
        let mut log = FindingLog::default();
        let flapping = [finding("", "it flaps")];
        let mut nr_lines = 0;
        for second in 0..120 {
            let findings = if second % 2 == 0 { &flapping[..] } else { &[] };
            nr_lines += log.step(findings, seconds(second)).len();
        }
        assert_eq!(nr_lines, 4, "two minutes, each with its coming and its going");
    }

    #[test]
    fn a_failing_host_does_not_fill_the_log() {
        let mut log = FindingLog::default();
        let findings = sick(1000);
        let lines = log.step(&findings, seconds(1));
        assert_eq!(lines.len(), LINES_MAX + 1);
        assert_eq!(lines.last(), Some(&Line::Suppressed(1000 - LINES_MAX)));
        // Findings not logged yet follow later, a few at a time.
        assert_eq!(log.step(&findings, seconds(2)).len(), LINES_MAX + 1);
    }

    #[test]
    fn a_host_that_recovers_does_not_fill_the_log_either() {
        let mut log = FindingLog::default();
        let findings = sick(100);
        let nr_told = |log: &mut FindingLog, findings: &[Finding], from: u64| -> Vec<usize> {
            let lines = (from..from + 7).map(|at| log.step(findings, seconds(at)));
            lines
                .map(|lines| lines.iter().filter(|l| !matches!(l, Line::Suppressed(_))).count())
                .collect()
        };
        assert_eq!(nr_told(&mut log, &findings, 1), [20, 20, 20, 20, 20, 0, 0]);
        // Long after they appeared, so that only logged ones are still known.
        assert_eq!(nr_told(&mut log, &[], 500), [20, 20, 20, 20, 20, 0, 0]);
        assert!(log.known.is_empty());
    }
}
