//! Findings that depend on the measured load, held for a while.
//!
//! **Problem.** Work outside of the tenants comes and goes within seconds. With it, the capacity crosses the sum of the
//! guarantees, and a finding about them would come and go in every other tick, in every reader of the status.
//!
//! **Rule.** Such a finding stays until it has been absent for [`HOLD`]. A change of the policy or of the mode ends it at
//! once.

use std::collections::BTreeSet;
use std::time::Duration;

use tenantd_control::words::finding::{Code, Finding};

/// Absence after which a finding ends.
const HOLD: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Held {
    /// With the time at which each was last seen.
    findings: Vec<(Finding, Duration)>,
}

impl Held {
    /// Adds the findings that were there lately to those of a tick.
    pub(super) fn settle(&mut self, findings: &mut Vec<Finding>, now: Duration) {
        for finding in findings.iter().filter(|finding| finding.code == Code::Unkeepable) {
            match self.findings.iter_mut().find(|(known, _)| known == finding) {
                Some((_, seen)) => *seen = now,
                None => self.findings.push((finding.clone(), now)),
            }
        }
        self.findings.retain(|(_, seen)| now.saturating_sub(*seen) < HOLD);
        let present: BTreeSet<&str> = self
            .findings
            .iter()
            .filter(|(_, seen)| *seen == now)
            .map(|it| subject(&it.0))
            .collect();
        let lately = self.findings.iter().filter(|(_, seen)| *seen != now);
        let lately = lately.filter(|(finding, _)| !present.contains(subject(finding)));
        findings.extend(lately.map(|(finding, _)| finding.clone()));
    }
}

/// First words of a finding: two with the same ones exclude each other.
fn subject(finding: &Finding) -> &str {
    let end = finding.message.match_indices(' ').nth(4);
    end.map_or(&*finding.message, |(end, _)| &finding.message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_about_the_load_stays_for_a_while() {
        let mut held = Held::default();
        let scaled = Finding::of_host(Code::Unkeepable, "too little CPU");
        let other = Finding::of_host(Code::Unreadable, "unreadable");
        let mut nr_changes = 0;
        let mut before = false;
        for second in 0..120 {
            let is_there = second < 60 && second % 3 == 0;
            let mut findings = if is_there { vec![scaled.clone(), other.clone()] } else { vec![] };
            held.settle(&mut findings, Duration::from_secs(second));
            assert_eq!(findings.contains(&other), is_there, "at {second} s");
            let is_shown = findings.contains(&scaled);
            assert!(findings.len() == usize::from(is_shown) + usize::from(is_there), "once");
            nr_changes += u32::from(is_shown != before);
            before = is_shown;
        }
        assert_eq!((nr_changes, before), (2, false));
    }

    #[test]
    fn two_degrees_of_one_shortage_are_not_shown_together() {
        let mut held = Held::default();
        let of = |degree: &str| Finding::of_host(Code::Unkeepable, format!("a b c d e {degree}"));
        for second in 0..20 {
            let now = of(if second % 2 == 0 { "more" } else { "less" });
            let mut findings = vec![now.clone()];
            held.settle(&mut findings, Duration::from_secs(second));
            assert_eq!(findings, [now]);
        }
    }
}
