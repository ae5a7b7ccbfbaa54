//! Subjects of commits: imperative, short, without a prefix. Held for what came after the first landing.

use std::path::Path;
use std::process::Command;

use crate::util;

/// When the last commit of the first landing was written, in seconds since the epoch. Rebasing keeps this date.
const LANDED_SEC: u64 = 1795318653;
const SUBJECT_LENGTH_MAX: usize = 72;

/// Verbs that end like other forms of a verb.
const VERBS: [&str; 21] = [
    "address", "assess", "bring", "bypass", "compress", "discuss", "embed", "exceed", "express",
    "feed", "focus", "need", "pass", "process", "proceed", "seed", "shed", "speed", "succeed",
    "suppress", "dismiss",
];

/// What is wrong with a subject, if anything.
fn fault(subject: &str) -> Option<&'static str> {
    let words = || subject.split_whitespace();
    let first = words().next().unwrap_or_default();
    let lower = first.to_lowercase();
    let is_word = |sign: char| sign.is_alphabetic() || sign == '-';
    if subject.chars().count() > SUBJECT_LENGTH_MAX {
        Some("longer than 72 characters")
    } else if words()
        .any(|word| word.trim_matches(|c: char| !c.is_alphabetic()).eq_ignore_ascii_case("wip"))
    {
        Some("work in progress")
    } else if first.ends_with([':', '!']) || first.contains('(') {
        Some("a prefix")
    } else if !first.starts_with(char::is_uppercase) || !first.chars().all(is_word) {
        Some("does not begin with a capitalised verb")
    } else if subject.ends_with('.') {
        Some("a full stop at the end")
    } else if words().count() < 2 {
        Some("a single word")
    } else if VERBS.contains(&lower.as_str()) {
        None
    } else if ["ed", "ing", "s"].iter().any(|end| lower.ends_with(end)) {
        Some("does not begin with an imperative")
    } else if ["the", "a", "an", "no", "not", "when", "now", "it", "we", "i"]
        .contains(&lower.as_str())
    {
        Some("does not begin with a verb")
    } else {
        None
    }
}

#[test]
fn subjects_of_commits_are_imperative_and_short() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // A tree that was unpacked inside of another project has that project's history.
    let is_own =
        git(&["rev-parse", "--show-prefix"]).is_some_and(|prefix| prefix.trim().is_empty());
    let log = is_own.then(|| git(&["log", "--no-merges", "--format=%at %s"])).flatten();
    let Some(log) = log else {
        return util::skipped("this is no git repository that git can read");
    };
    let mut faults = Vec::new();
    for line in log.lines() {
        let Some((time, subject)) = line.split_once(' ') else { continue };
        let is_newer = time.parse::<u64>().is_ok_and(|time| time > LANDED_SEC);
        if let Some(fault) = fault(subject).filter(|_| is_newer) {
            faults.push(format!("{subject:?}: {fault}"));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn faults_of_subjects_are_found() {
    let good = [
        "Restore memory.low before memory.max",
        "Process what is left",
        "Re-read the policy when its folder changes",
    ];
    let found: Vec<_> = good.iter().filter(|subject| fault(subject).is_some()).collect();
    assert!(found.is_empty(), "{found:?}");
    let long = format!("Restore {}", "x".repeat(SUBJECT_LENGTH_MAX));
    let bad = [
        "wip",
        "Add wip: queue",
        "fix: the queue",
        "Fix(queue): it",
        "fixup! Add it",
        "Added the queue",
        "Adds the queue",
        "Adding the queue",
        "add the queue",
        "Add the queue.",
        "Queue",
        "Tests of reloads",
        "The queue",
        "",
        &long,
    ];
    let missed: Vec<_> = bad.iter().filter(|subject| fault(subject).is_none()).collect();
    assert!(missed.is_empty(), "{missed:?}");
}
