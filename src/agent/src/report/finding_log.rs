//! Findings in the log, once when they begin and once when they end.
//!
//! **Problem.** A tick repeats the findings of the last one, often with another figure ("512 MiB cannot be
//! reclaimed", then "511 MiB"), and a broken host has a thousand findings at once.
//!
//! **Rules.** Findings of one tenant, or of the host, that differ only in their figures count as one. Each is
//! logged when it appears and when it ends. One that comes and goes is damped: each time that it comes back, it must
//! stay away twice as long before it counts as ended, from two minutes to an hour, and it is logged at most once a
//! minute. Findings of one kind about one tenant whose names change all the time (cgroups of short jobs) share a budget:
//! [`BURST`] at once, and one a minute after that. A tick logs only a few new and a few ended findings; later ticks log
//! the others, and new ones are counted until then.

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::{info, warn};

use tenantd_control::words::finding::{Code, Finding};

/// A finding that comes and goes is logged at most once in this time.
const AGAIN: Duration = Duration::from_secs(60);
/// Longest absence after which a finding that came and went counts as ended.
const HOLD_MAX: Duration = Duration::from_secs(3600);
/// Time after its end in which a finding is known to have been there, at least.
const MEMORY: Duration = Duration::from_secs(600);
/// Most findings that are known and absent.
const ABSENT_MAX: usize = 1000;
const LINES_MAX: usize = 20;
/// New findings of one kind about one tenant that are logged at once; one more for each [`AGAIN`] that passes.
const BURST: f64 = 20.0;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Line {
    Appeared { tenant: Option<String>, text: String },
    Gone { tenant: Option<String>, text: String },
    Suppressed(usize),
}

#[derive(Clone, Debug, Default)]
struct Known {
    text: String,
    logged: Option<Duration>,
    /// True if it was logged as present, and not as gone since.
    told: bool,
    /// Last time at which it was present.
    seen: Duration,
    /// Absence after which it counts as ended.
    hold: Duration,
    /// True if its end was logged and it has not come back since.
    has_ended: bool,
}

impl Known {
    fn note(&mut self, text: &str, now: Duration) {
        if std::mem::take(&mut self.has_ended) {
            self.hold = (2 * self.hold).clamp(2 * AGAIN, HOLD_MAX);
        }
        self.seen = now;
        self.text.clear();
        self.text.push_str(text);
    }

    fn absence(&self, now: Duration) -> Duration {
        now.saturating_sub(self.seen)
    }

    fn is_present(&self, now: Duration) -> bool {
        self.seen == now
    }

    /// True if it was there lately, so that coming back is no news.
    fn is_recent(&self, now: Duration) -> bool {
        self.absence(now) < MEMORY.max(2 * self.hold)
    }
}

/// Identity of a finding: its tenant, and its text without figures.
type Key = (Option<String>, String);

/// Lines left for the findings of one kind about one tenant.
#[derive(Clone, Copy, Debug)]
struct Budget {
    lines: f64,
    at: Duration,
}

impl Budget {
    fn refill(&mut self, now: Duration) {
        let passed = now.saturating_sub(self.at).as_secs_f64() / AGAIN.as_secs_f64();
        (self.lines, self.at) = ((self.lines + passed).min(BURST), now);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct FindingLog {
    known: BTreeMap<Key, Known>,
    budgets: BTreeMap<(Option<String>, Code), Budget>,
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
        let mut lines = Vec::new();
        let mut nr_suppressed = 0;
        for finding in findings {
            let (key, text) = (key(finding), finding.to_string());
            let tenant = key.0.clone();
            let known = self.known.entry(key).or_default();
            known.note(&text, now);
            let is_due = known.logged.is_none_or(|logged| now.saturating_sub(logged) >= AGAIN);
            if known.told || !is_due {
                continue;
            }
            let of_kind = (tenant.clone(), finding.code);
            let full = Budget { lines: BURST, at: now };
            let budget = self.budgets.entry(of_kind).or_insert(full);
            budget.refill(now);
            if budget.lines < 1.0 {
                continue;
            }
            if lines.len() < LINES_MAX {
                (known.told, known.logged) = (true, Some(now));
                budget.lines -= 1.0;
                lines.push(Line::Appeared { tenant, text });
            } else {
                nr_suppressed += 1
            }
        }
        let room = LINES_MAX - lines.len();
        let has_ended = |known: &Known| {
            known.told && !known.is_present(now) && known.absence(now) >= known.hold
        };
        let gone = self.known.iter_mut().filter(|(_, known)| has_ended(known));
        for ((tenant, _), known) in gone.take(room) {
            (known.told, known.has_ended) = (false, true);
            lines.push(Line::Gone { tenant: tenant.clone(), text: known.text.clone() });
        }
        if nr_suppressed > 0 {
            lines.push(Line::Suppressed(nr_suppressed));
        }
        self.forget(now);
        lines
    }

    fn forget(&mut self, now: Duration) {
        self.budgets.retain(|_, budget| {
            budget.refill(now);
            budget.lines < BURST
        });
        self.known.retain(|_, known| known.is_present(now) || known.told || known.is_recent(now));
        let absent = |known: &Known| !known.is_present(now) && !known.told;
        let mut seen: Vec<Duration> =
            self.known.values().filter(|it| absent(it)).map(|it| it.seen).collect();
        if let Some(more @ 1..) = seen.len().checked_sub(ABSENT_MAX) {
            seen.sort_unstable();
            let oldest = seen[more - 1];
            self.known.retain(|_, known| !absent(known) || known.seen > oldest);
        }
    }
}

/// Text without figures, their units of bytes and the endings of plurals. A digit in a name (`user-1000.slice`, `/3`)
/// is no figure.
fn key(finding: &Finding) -> Key {
    let is_figure = |character: char| character.is_ascii_digit() || character == '.';
    let word = |word: &str| {
        let begin = word.trim_start_matches(|sign: char| !sign.is_alphanumeric() && sign != '/');
        let rest = if begin.starts_with(is_figure) {
            word.replace(is_figure, "")
        } else {
            word.to_string()
        };
        let rest = rest.trim_end_matches(|sign: char| sign.is_ascii_punctuation());
        let is_unit = ["KiB", "MiB", "GiB", "TiB"].contains(&rest);
        if is_unit { String::new() } else { rest.trim_end_matches(['e', 's']).to_string() }
    };
    let words: Vec<String> = finding.message.split(' ').map(word).collect();
    (finding.tenant.clone(), words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn digits_in_the_name_of_a_place_are_no_figure() {
        let mut log = FindingLog::default();
        let of = |count: u32, place: &str| {
            finding("team", &format!("{count} processes stay in {place}, (so {count})"))
        };
        let places = ["user-1000.slice", "user-1001.slice", "/3", "/4", "`{unit:1}`", "`{unit:2}`"];
        let told = places.map(|place| appeared("team", &of(1, place).to_string()));
        assert_eq!(log.step(&places.map(|place| of(1, place)), seconds(1)), told);
        assert_eq!(log.step(&places.map(|place| of(2, place)), seconds(2)), []);
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
        assert_eq!(nr_lines, 3, "it comes, goes, and comes back to stay");
    }

    #[test]
    fn a_finding_that_comes_and_goes_slowly_is_damped_too() {
        let flapping = [finding("", "it flaps")];
        for (away, most) in [(5, 3), (30, 3), (90, 3), (150, 5), (290, 7)] {
            let mut log = FindingLog::default();
            let nr_lines: usize = (0..3600)
                .map(|second| {
                    let is_there = second / away % 2 == 0;
                    let findings = if is_there { &flapping[..] } else { &[] };
                    log.step(findings, seconds(second)).len()
                })
                .sum();
            assert!(nr_lines <= most, "{nr_lines} lines at {away} s");
        }
    }

    #[test]
    fn a_finding_that_ends_is_forgotten_in_the_end() {
        let mut log = FindingLog::default();
        let found = [finding("", "it flaps")];
        let step = |log: &mut FindingLog, found: &[Finding], at| log.step(found, seconds(at)).len();
        let seen = [(1, true), (2, false), (62, true), (63, false), (190, false)];
        let lines = seen.map(|(at, is)| step(&mut log, if is { &found } else { &[] }, at));
        assert_eq!(lines, [1, 1, 1, 0, 1], "the second end counts after two minutes");
        assert_eq!(step(&mut log, &[], 5000), 0);
        assert!(log.known.is_empty());
        assert_eq!(
            [5001, 5002].map(|at| step(&mut log, if at == 5001 { &found } else { &[] }, at)),
            [1, 1]
        );
    }

    #[test]
    fn a_figure_of_another_size_is_no_other_finding() {
        let mut log = FindingLog::default();
        let texts = ["1 process stays, 980MiB are held", "2 processes stay, 1.2GiB are held"];
        let told = texts.map(|text| log.step(&[finding("a", text)], seconds(1)).len());
        assert_eq!(told, [1, 0]);
        let other = log.step(&[finding("a", "2 processes stay, 1.2GiB are free")], seconds(2));
        assert_eq!(other.len(), 2, "{other:?}");
    }

    #[test]
    fn names_that_change_all_the_time_share_a_budget() {
        let mut log = FindingLog::default();
        let letters = |number: u64| char::from(b'a' + (number % 26) as u8);
        let name = |second: u64| format!("{}{}", letters(second), letters(second / 26));
        let nr_lines: usize = (0..600)
            .map(|second| {
                let busy = [finding("a", &name(second)), finding("b", "unchanged")];
                log.step(&busy, seconds(second)).len()
            })
            .sum();
        assert!(nr_lines <= 1 + 2 * (20 + 10), "{nr_lines}");
        assert_eq!(
            log.step(&[finding("c", "new")], seconds(600))
                .iter()
                .filter(|line| matches!(line, Line::Appeared { .. }))
                .count(),
            1
        );
    }

    #[test]
    fn the_number_of_known_findings_is_bounded() {
        let mut log = FindingLog::default();
        for second in 0..2000 {
            let name =
                |number: u64| "x".repeat(number as usize % 50) + &"y".repeat(number as usize / 50);
            log.step(&[finding("", &name(second))], seconds(second));
        }
        assert!(log.known.len() <= ABSENT_MAX + 2, "{}", log.known.len());
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
        assert_eq!(nr_told(&mut log, &[], 500), [20, 20, 20, 20, 20, 0, 0]);
        log.step(&[], seconds(2000));
        assert!(log.known.is_empty());
    }
}
