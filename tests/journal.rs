//! The journal in trouble: torn, damaged, of another boot, on a disk that is full.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use tenantd_host::journal::{DiskHeld, Entry, Journal, JournalError, UnitHeld};
use tenantd_host::systemd::{Property, PropertyValue, Setting};

use crate::util;

const BOOT: &str = "b";

fn held(number: usize) -> Entry {
    Entry::Held {
        path: format!("/sys/fs/cgroup/tenants/t{number}").into(),
        inode: number as u64,
        file: "cpu.weight".into(),
        value: number.to_string().into(),
    }
}

/// One entry of each kind.
fn every_kind() -> Vec<Entry> {
    vec![
        Entry::Making { path: "/c/a".into() },
        Entry::Made { path: "/c/a".into(), inode: 7 },
        Entry::Held {
            path: "/c/a".into(),
            inode: 7,
            file: "cpu.max".into(),
            value: "max 100000".into(),
        },
        Entry::Moved {
            pid: 12,
            start_ticks: 99,
            from: vec!["/c/x y".into()],
            to: vec!["/c/a".into()],
        },
        Entry::Making { path: "/c/\"quoted\"\n".into() },
        Entry::NotMade { path: "/c/\"quoted\"\n".into() },
        Entry::Starting { unit: "tenants-a.slice".into() },
        Entry::UnitHeld(Box::new(UnitHeld {
            unit: "a.service".into(),
            life: String::new(),
            held: Setting { property: Property::CpuWeight, value: PropertyValue::Number(100) },
            drop_in: None,
        })),
        Entry::Theirs { path: "/c/a".into(), inode: 7, file: "cpu.max".into() },
        Entry::UnitTheirs { unit: "a.service".into(), property: Property::CpuWeight, ours: None },
        Entry::Marking,
        Entry::Scored { pid: 12, start_ticks: 99, score: 200 },
        Entry::DiskHeld(Box::new(DiskHeld {
            queue: "/sys/block/sda/queue".into(),
            inode: 7,
            dir: "/c".into(),
            file: "io.cost.qos".to_string(),
            value: "8:0 enable=0 ctrl=auto".to_string(),
        })),
        Entry::Kept,
    ]
}

/// A journal with `entries` that its agent left behind.
fn left(dir: &Path, entries: &[Entry]) {
    let (mut journal, _) = Journal::open(dir, BOOT).unwrap();
    entries.iter().for_each(|entry| journal.record(entry.clone()).unwrap());
}

fn entries(dir: &Path) -> (Vec<Entry>, Vec<String>) {
    let (_, leftover) = Journal::open(dir, BOOT).unwrap();
    (leftover.entries, leftover.warnings)
}

/// What an older agent of the same format left is put back by a newer one.
#[test]
fn the_format_matches_its_declaration() {
    let dir = util::scratch();
    left(dir.path(), &every_kind());
    let text = fs::read_to_string(dir.path().join("journal")).unwrap();
    let kinds = [
        "making",
        "made",
        "not_made",
        "held",
        "moved",
        "starting",
        "unit_held",
        "theirs",
        "unit_theirs",
        "marking",
        "scored",
        "disk_held",
        "kept",
    ];
    let format = r#"{"tenantd_journal":1,"boot_id":"b","kinds":[KINDS]}
{"making":{"path":"/c/a"}}
{"made":{"path":"/c/a","inode":7}}
{"held":{"path":"/c/a","inode":7,"file":"cpu.max","value":"max 100000"}}
{"moved":{"pid":12,"start_ticks":99,"from":["/c/x y"],"to":["/c/a"]}}
{"making":{"path":"/c/\"quoted\"\\x0a"}}
{"not_made":{"path":"/c/\"quoted\"\\x0a"}}
{"starting":{"unit":"tenants-a.slice"}}
{"unit_held":{"unit":"a.service","life":"","held":{"property":"CPUWeight","value":{"number":100}},"drop_in":null}}
{"theirs":{"path":"/c/a","inode":7,"file":"cpu.max"}}
{"unit_theirs":{"unit":"a.service","property":"CPUWeight"}}
"marking"
{"scored":{"pid":12,"start_ticks":99,"score":200}}
{"disk_held":{"queue":"/sys/block/sda/queue","inode":7,"dir":"/c","file":"io.cost.qos","value":"8:0 enable=0 ctrl=auto"}}
"kept"
"#;
    assert_eq!(text, format.replace("[KINDS]", &serde_json::to_string(&kinds).unwrap()));
}

#[test]
fn every_kind_of_entry_reads_back() {
    let dir = util::scratch();
    left(dir.path(), &every_kind());
    assert_eq!(entries(dir.path()), (every_kind(), vec![]));
}

#[test]
fn a_truncated_journal_continues_after_its_last_complete_line() {
    let dir = util::scratch();
    left(dir.path(), &every_kind());
    let path = dir.path().join("journal");
    let whole = fs::read(&path).unwrap();
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let lines = whole[..cut].iter().filter(|byte| **byte == b'\n').count();
        let kept = &every_kind()[..lines.saturating_sub(1)];
        let (mut journal, leftover) = Journal::open(dir.path(), BOOT).unwrap();
        assert_eq!(leftover.entries, kept, "cut at {cut}");
        let torn = lines > 0 && !whole[..cut].ends_with(b"\n");
        assert_eq!(leftover.warnings.len(), usize::from(torn), "cut at {cut}");
        journal.record(held(1)).unwrap();
        drop(journal);
        let expected: Vec<Entry> = kept.iter().cloned().chain([held(1)]).collect();
        assert_eq!(entries(dir.path()), (expected, vec![]), "cut at {cut}, then appended");
    }
}

#[test]
fn a_damaged_line_costs_that_line_alone() {
    let dir = util::scratch();
    left(dir.path(), &[held(0), held(1), held(2)]);
    let path = dir.path().join("journal");
    let whole = fs::read(&path).unwrap();
    let line = whole.windows(2).position(|pair| pair == b"t1").unwrap();
    for damage in [&b"\xff\xfe"[..], b"\0\0", b"\"\""] {
        let mut text = whole.clone();
        text[line..line + 2].copy_from_slice(damage);
        fs::write(&path, &text).unwrap();
        let (_, leftover) = Journal::open(dir.path(), BOOT).unwrap();
        assert_eq!(leftover.entries, [held(0), held(2)], "{damage:?}");
        let failures = leftover.failures;
        assert!(failures[0].contains("journal:3: this line is damaged"), "{failures:?}");
        // Its value is not lost, and is not reported again.
        assert_eq!(fs::read(dir.path().join("journal.damaged")).unwrap(), text);
        let (_, leftover) = Journal::open(dir.path(), BOOT).unwrap();
        assert_eq!((leftover.entries.len(), leftover.failures.len()), (2, 0));
    }
}

/// A downgrade after a kill: values that only the later version can restore are not dropped.
#[test]
fn a_kind_of_a_later_version_is_left_to_it() {
    let dir = util::scratch();
    left(dir.path(), &[held(0)]);
    let path = dir.path().join("journal");
    let whole = fs::read_to_string(&path).unwrap();
    for (kind, line) in [("later", "{\"later\":{\"path\":\"/c\"}}"), ("over", "\"over\"")] {
        let text = whole.replace("\"kept\"]", &format!("\"kept\",\"{kind}\"]")) + line + "\n";
        fs::write(&path, &text).unwrap();
        let error = Journal::open(dir.path(), BOOT).unwrap_err();
        assert!(matches!(error, JournalError::Foreign(_)), "{kind}: {error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    // Of a kind that its writer did not have, it is damaged.
    fs::write(&path, whole.clone() + "{\"latex\":{}}\n").unwrap();
    let (_, leftover) = Journal::open(dir.path(), BOOT).unwrap();
    assert_eq!((leftover.entries, leftover.failures.len()), (vec![held(0)], 1));
}

/// Of whatever format it is, its values have gone with the boot.
#[test]
fn a_later_format_of_another_boot_keeps_no_daemon_from_starting() {
    let dir = util::scratch();
    left(dir.path(), &[held(0)]);
    let path = dir.path().join("journal");
    let later = "{\"tenantd_journal\":2,\"boot_id\":\"b\"}\n[2]\n";
    fs::write(&path, later).unwrap();
    let error = Journal::open(dir.path(), BOOT).unwrap_err();
    assert!(matches!(error, JournalError::Foreign(_)), "{error}");
    let (_, leftover) = Journal::open(dir.path(), "another boot").unwrap();
    assert_eq!((leftover.entries.len(), leftover.warnings.len()), (0, 1));
}

#[test]
fn any_byte_may_be_damaged_without_a_panic() {
    let dir = util::scratch();
    left(dir.path(), &every_kind());
    let path = dir.path().join("journal");
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut text = whole.clone();
        text[at] ^= 0x15;
        fs::write(&path, &text).unwrap();
        // Either it is understood, or its first line is not and it is left alone.
        if let Err(error) = Journal::open(dir.path(), BOOT) {
            assert!(matches!(error, JournalError::Foreign(_)), "byte {at}: {error}");
            assert_eq!(fs::read(&path).unwrap(), text);
        }
    }
}

#[test]
fn the_journal_of_another_boot_is_discarded() {
    let dir = util::scratch();
    left(dir.path(), &[held(0)]);
    let (mut journal, leftover) = Journal::open(dir.path(), "another boot").unwrap();
    assert_eq!((leftover.entries.len(), leftover.warnings.len()), (0, 1));
    journal.record(held(1)).unwrap();
    drop(journal);
    let (_, leftover) = Journal::open(dir.path(), "another boot").unwrap();
    assert_eq!((leftover.entries, leftover.warnings), (vec![held(1)], vec![]));
}

#[test]
fn forgetting_is_all_or_nothing() {
    let dir = util::scratch();
    let (mut journal, _) = Journal::open(dir.path(), BOOT).unwrap();
    (0..4).for_each(|number| journal.record(held(number)).unwrap());
    // The successor is written beside the journal; here it goes where every write says that it is full.
    symlink("/dev/full", dir.path().join("journal.new")).unwrap();
    let error = journal.retain(|entry| *entry == held(3)).unwrap_err();
    assert!(std::error::Error::source(&error).unwrap().to_string().contains("No space left"));
    assert_eq!(journal.entries().len(), 4);
    symlink("/dev/full", dir.path().join("journal.new")).unwrap();
    journal.clear().unwrap_err();
    assert_eq!(journal.entries().len(), 4, "what could not be forgotten is not forgotten");
    journal.record(held(4)).unwrap();
    journal.retain(|entry| *entry != held(0)).unwrap();
    journal.record(held(0)).unwrap();
    drop(journal);
    assert_eq!(entries(dir.path()).0, [held(1), held(2), held(3), held(4), held(0)]);
}

#[test]
fn a_journal_that_cannot_be_begun_is_an_error_and_no_file() {
    let dir = util::scratch();
    symlink("/dev/full", dir.path().join("journal.new")).unwrap();
    let error = Journal::open(dir.path(), BOOT).unwrap_err();
    assert!(matches!(error, JournalError::Io { .. }), "{error}");
    assert!(!dir.path().join("journal").exists());
}

/// A file system of two pages, which only this thread sees; `None`, with the reason said, where it cannot be
/// mounted.
fn tiny_disk(at: &Path) -> Option<()> {
    if !nix::unistd::Uid::effective().is_root() {
        util::skipped("mounting a tiny disk needs root");
        return None;
    }
    let run = |arguments: &[&str]| {
        let output = Command::new("mount").args(arguments).arg(at).output();
        output.is_ok_and(|output| output.status.success())
    };
    // The namespace is this thread's alone, and goes with it.
    if unshare(CloneFlags::CLONE_NEWNS).is_err()
        || !Command::new("mount").args(["--make-rprivate", "/"]).status().is_ok_and(|s| s.success())
        || !run(&["-t", "tmpfs", "-o", "size=8k,mode=755", "tmpfs"])
    {
        util::skipped("no mount namespace can be made");
        return None;
    }
    Some(())
}

#[test]
fn a_full_disk_refuses_a_record_and_keeps_the_others() {
    let dir = util::scratch();
    if tiny_disk(dir.path()).is_none() {
        return;
    }
    let (mut journal, _) = Journal::open(dir.path(), BOOT).unwrap();
    let mut number = 0;
    let error = loop {
        match journal.record(held(number)) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
        assert!(number < 1000, "two pages hold no thousand entries");
    };
    assert!(
        std::error::Error::source(&error).unwrap().to_string().contains("No space left"),
        "{error:?}"
    );
    let recorded: Vec<Entry> = (0..number).map(held).collect();
    assert_eq!(journal.entries(), recorded);
    assert!(!journal.knows("/sys/fs/cgroup/tenants/t0".as_ref(), number as u64, "cpu.weight"));
    // Again and again: what was torn never stays in the way.
    (0..3).for_each(|_| drop(journal.record(held(number)).unwrap_err()));
    drop(journal);
    let (journal, leftover) = Journal::open(dir.path(), BOOT).unwrap();
    assert_eq!((leftover.entries, leftover.warnings), (recorded, vec![]), "read on the full disk");
    journal.remove().unwrap();
}

#[test]
fn several_entries_are_recorded_together_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = Journal::open(dir.path(), BOOT).unwrap();
    journal.record(held(1)).unwrap();
    let other = Entry::Held {
        path: "/sys/fs/cgroup/tenants/t2".into(),
        inode: 2,
        file: "cpu.weight".into(),
        value: "later".into(),
    };
    journal.record_all(vec![held(1), held(2), other, held(3)]).unwrap();
    let expected = [held(1), held(2), held(3)];
    assert_eq!(journal.entries(), expected);
    drop(journal);
    let (journal, leftover) = Journal::open(dir.path(), BOOT).unwrap();
    assert_eq!(leftover.entries, expected);
    assert!(leftover.warnings.is_empty());
    drop(journal);
}

#[test]
fn what_the_agent_made_is_known() {
    let mut journal = Journal::in_memory();
    for number in 0..2_000 {
        let path = format!("/c/{number}");
        journal.record(Entry::Making { path: path.clone().into() }).unwrap();
        journal.record(Entry::Made { path: path.into(), inode: number }).unwrap();
        journal.record(held(number as usize)).unwrap();
    }
    let made = |journal: &Journal, path: &str| journal.made(Path::new(path));
    assert!(made(&journal, "/c/0") && made(&journal, "/c/1999") && !made(&journal, "/c"));
    let is_kept = |entry: &Entry| !matches!(entry, Entry::Made { inode: 7, .. });
    journal.retain(is_kept).unwrap();
    assert!(!made(&journal, "/c/7") && made(&journal, "/c/8"));
    assert!(journal.knows(Path::new("/sys/fs/cgroup/tenants/t7"), 7, "cpu.weight"));
}
