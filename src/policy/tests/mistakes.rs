//! Mistakes of new administrators (`mistakes.yaml`), each with its report and its grade.
//!
//! | grade | report |
//! |---|---|
//! | A | place, value, remedy and the text to write |
//! | B | place, value and remedy |
//! | C | place and value |
//! | D | another place or another message |
//! | F | accepted without a finding |

#![allow(clippy::unwrap_used, reason = "a test asserts; it need not handle")]

use std::collections::BTreeMap;

use serde::Deserialize;
use tenantd_core::units::Bytes;
use tenantd_policy::accounts::Answer;
use tenantd_policy::file::Whole;
use tenantd_policy::parse::{Budget, tree};
use tenantd_policy::report::{Severity, Style};
use tenantd_policy::{Diagnostic, HostFacts, Report, Systemd, check_input};

const FILE: &str = include_str!("mistakes.yaml");
/// Most mistakes without a remedy.
const C_MAX: usize = 10;
const LEAST: usize = 129;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mistake {
    policy: Option<String>,
    web: Option<String>,
    bytes: Option<String>,
    at: Option<String>,
    says: String,
    right: Option<String>,
    grade: Option<String>,
    errors: Option<Whole<2, 9>>,
}

impl Mistake {
    fn text(&self) -> String {
        match (&self.policy, &self.web) {
            (Some(policy), _) => policy.clone(),
            (None, web) => {
                let lines = web.as_deref().unwrap_or_default().lines();
                let keys: String = lines.map(|line| format!("    {line}\n")).collect();
                format!("version: 1\ntenants:\n  web:\n{keys}")
            }
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let text = self.text();
        let utf_16 = |of: fn(u16) -> [u8; 2]| {
            std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(of).collect()
        };
        match self.bytes.as_deref() {
            None => text.into_bytes(),
            Some("utf-16le") => utf_16(u16::to_le_bytes),
            Some("utf-16be") => utf_16(u16::to_be_bytes),
            Some("latin-1") => text.chars().map(|c| u8::try_from(c).unwrap()).collect(),
            Some(other) => panic!("{other}"),
        }
    }

    fn grade(&self, report: &Report) -> &'static str {
        let is_there = |finding: &Diagnostic| match (&self.at, finding.to_finding().text) {
            (Some(at), Some(place)) => place.starts_with(at.as_str()),
            (at, _) => at.is_none(),
        };
        // The first of the most severe ones; of notes, which have no order, the one of the mistake.
        let worst = report.findings().iter().map(|finding| finding.severity).min();
        let mut worst = report.findings().iter().filter(|it| Some(it.severity) == worst);
        let is_it = |it: &&Diagnostic| it.severity == Severity::Note && is_there(it);
        let of_notes = worst.clone().find(is_it);
        let Some(first) = of_notes.or_else(|| worst.next()) else { return "F" };
        let is_right = |text: &str| self.right.as_ref().is_some_and(|right| text.contains(right));
        match &first.help {
            _ if !is_there(first) || !first.message.contains(&self.says) => "D",
            // One mistake is one error.
            _ if report.findings().len() - report.count(Severity::Note)
                > self.errors.map_or(1, |errors| errors.0 as usize) =>
            {
                "D"
            }
            None => "C",
            Some(help) if is_right(help) || is_right(&first.message) => "A",
            Some(_) if first.labels.iter().any(|label| is_right(&label.text)) => "A",
            Some(_) => "B",
        }
    }
}

fn machine() -> HostFacts {
    HostFacts {
        find_user: |name| match name {
            "root" => Answer::Known(0),
            "ana" => Answer::Known(2000),
            _ => Answer::Missing,
        },
        find_group: |name| match name {
            "analysts" => Answer::Known(100),
            _ => Answer::Missing,
        },
        groups_of: |uid| (uid == 2000).then(|| vec![100, 2000]),
        services: || {
            let names = ["nginx.service", "ssh.service", "cron.service"];
            Some(names.map(|name| (name.to_string(), name.to_string())).into())
        },
        systemd: Systemd::Unified,
        ..HostFacts::of_size(8, Bytes::gib(16))
    }
}

#[test]
fn every_mistake_is_answered_as_graded() {
    let file = tree(FILE, Budget::PROBLEM).unwrap();
    let kinds: BTreeMap<String, Vec<Mistake>> =
        file.read().unwrap_or_else(|refusal| panic!("{refusal}"));
    let (mut wrong, mut grades) = (Vec::new(), BTreeMap::<&str, usize>::new());
    for (kind, mistakes) in &kinds {
        for mistake in mistakes {
            let loaded = check_input("policy.yaml", &mistake.bytes()[..], Some(&machine()));
            let report = loaded.map_or_else(|report| report, |loaded| loaded.report);
            let grade = mistake.grade(&report);
            *grades.entry(grade).or_default() += 1;
            let recorded = mistake.grade.as_deref().unwrap_or("A");
            if grade != recorded {
                let (text, style) = (mistake.text(), Style { width: 100, ..Style::PLAIN });
                let Mistake { at, says, right, .. } = mistake;
                wrong.push(format!(
                    "{kind}: {grade}, not {recorded}: at {at:?} says {says:?} right {right:?}\n{text}\n{}",
                    report.render(style)
                ));
            }
        }
    }
    let nr: usize = grades.values().sum();
    assert!(wrong.is_empty(), "{}\n{grades:?} of {nr}", wrong.join("\n"));
    let of = |grade: &str| grades.get(grade).copied().unwrap_or(0);
    assert!(nr >= LEAST && of("D") + of("F") == 0 && of("C") <= C_MAX, "{grades:?}");
}
