//! Tests of `policy`: every rule by its fixture, the example policies, hostile files, `tenantctl check`.
//!
//! A fixture `tests/fixtures/policy/pNNN-*` breaks rule PNNN and no other; its exact report stands beside
//! it as `.txt`. After a change of wording, `UPDATE_SNAPSHOTS=1 cargo test policy` writes them anew: read
//! the difference before you commit it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

mod amounts;
mod command;
mod examples;
mod expand;
mod hostile;
pub(crate) mod keys;
mod model;
mod names;
mod outline;
mod pattern;
mod pods;
mod rest;
mod syntax;
mod values;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tenantd_core::units::Bytes;
use tenantd_policy::accounts::Answer;
use tenantd_policy::expand::{Found, FoundUser};
use tenantd_policy::outline::Outline;
use tenantd_policy::report::Style;
use tenantd_policy::rules::{CLOSED, MOVED, NO_SUBMITTER, REPLACED_SETTING, RULES, VOID_DISKS};
use tenantd_policy::{
    DiskFacts, HostFacts, Report, Systemd, UnitFacts, UnitSetting, check_input, check_path,
    load_from, load_text,
};

const FIXTURES: &str = "tests/fixtures/policy";

/// A machine that is the same wherever the tests run: CPUs 0-7, 16 GiB, users ana and root, group analysts. User
/// 4242 is logged in, and runs four services beside. User ana is an analyst.
fn machine() -> HostFacts {
    HostFacts {
        find_user: |name| {
            account(&[("root", 0), ("ana", 2000), ("700", 2700), ("702", 2702)], name)
        },
        find_group: |name| match name {
            "huge" => Answer::Unknown("Result too large".into()),
            name => account(&[("analysts", 100)], name),
        },
        groups_of: |uid| (uid == 2000).then(|| vec![100]),
        systemd: Systemd::Unified,
        services: || {
            let names = ["a.service", "nginx.service", "php-fpm.service", "getty@.service"];
            let own = names.map(|name| (name.to_string(), name.to_string()));
            Some(own.into_iter().chain([("www.service".into(), "nginx.service".into())]).collect())
        },
        found: || {
            let user = |name: &str| FoundUser {
                name: Some(name.into()),
                groups: vec![100],
                has_slice: false,
            };
            let users = [(2000, "ana"), (2001, "ben"), (2002, "carla"), (33, "www-data")];
            let users = users.into_iter().map(|(uid, name)| (uid, user(name))).collect();
            let slices =
                ["/user.slice", "/user.slice/user-2000.slice", "/user.slice/user-4242.slice"];
            let services = ["/system.slice", "/system.slice/a.service", "/"];
            let cgroups = slices.iter().chain(&services).map(|path| path.to_string()).collect();
            Some(Found {
                users,
                units: BTreeSet::from(["a.service".into()]),
                cgroups,
                ..Found::default()
            })
        },
        has_cgroup: |pattern, _| !pattern.starts_with("/gone"),
        has_device: |path| !path.starts_with("/gone"),
        has_devices_tree: false,
        has_disk: |name| name != "sdz",
        file_system: |path| {
            let kind = match path.to_str() {
                Some("/home") => "nfs4",
                Some("/srv") => "zfs",
                _ => "ext4",
            };
            Some(kind.to_string())
        },
        disks: || {
            let disk = |(name, scheduler): (&str, &str)| DiskFacts {
                name: name.into(),
                scheduler: scheduler.into(),
                has_cost: name == "sdc",
            };
            Some([("sda", "mq-deadline"), ("sdb", "bfq"), ("sdc", "none")].map(disk).to_vec())
        },
        unit_settings: |unit| {
            let of = |file: &str, key: &str, value: &str| UnitSetting {
                file: file.into(),
                key: key.into(),
                value: value.into(),
            };
            let drop_in = "/etc/systemd/system/php-fpm.service.d/io.conf";
            let all = [
                of("/usr/lib/systemd/system/php-fpm.service", "CPUWeight", "50"),
                of(drop_in, "IOWeight", "500"),
                of(drop_in, "IOReadBandwidthMax", "/var 10M"),
                of(drop_in, "IOWriteIOPSMax", "/var 100"),
            ];
            if unit == "php-fpm.service" { all.to_vec() } else { Vec::new() }
        },
        units: || {
            let names = ["a.service", "b.service", "c.service", "d.service", "user-4242.slice"];
            names.map(unit_of_4242).to_vec()
        },
        ..HostFacts::of_size(8, Bytes::gib(16))
    }
}

fn account(names: &[(&str, u32)], name: &str) -> Answer<u32> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map_or(Answer::Missing, |(_, number)| Answer::Known(*number))
}

fn unit_of_4242(name: &str) -> UnitFacts {
    let user = || BTreeSet::from(["4242".to_string()]);
    UnitFacts {
        name: name.to_string(),
        users: user(),
        groups: BTreeSet::from(["4243".to_string()]),
        user_of_slice: if name.ends_with(".slice") { user() } else { BTreeSet::new() },
    }
}

fn report_of(path: &Path) -> Report {
    match check_path(path, Some(&machine())) {
        Ok(loaded) => loaded.report,
        Err(report) => report,
    }
}

fn codes(report: &Report) -> Vec<&'static str> {
    report.findings().iter().map(|finding| finding.code).collect()
}

fn fixtures() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(FIXTURES).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_none_or(|e| e != "txt")).collect();
    paths.sort();
    paths
}

fn code_of(fixture: &Path) -> String {
    let name = fixture.file_name().unwrap().to_str().unwrap();
    name.split('-').next().unwrap().to_uppercase()
}

#[test]
fn every_rule_has_one_fixture_and_every_fixture_a_rule() {
    let rules: BTreeSet<&str> = RULES.iter().map(|rule| rule.code).collect();
    assert_eq!(rules.len(), RULES.len(), "a code stands for two rules");
    let of_fixtures: Vec<String> = fixtures().iter().map(|path| code_of(path)).collect();
    let distinct: BTreeSet<&str> = of_fixtures.iter().map(String::as_str).collect();
    assert_eq!(distinct, rules);
    assert_eq!(distinct.len(), of_fixtures.len(), "a rule has two fixtures");
}

#[test]
fn every_report_is_as_recorded() {
    let update = std::env::var_os("UPDATE_SNAPSHOTS").is_some();
    let mut wrong = Vec::new();
    for fixture in fixtures() {
        let report = report_of(&fixture);
        let text = report.render(Style::PLAIN);
        let snapshot = fixture.with_extension("txt");
        if update {
            std::fs::write(&snapshot, &text).unwrap();
        }
        let recorded = std::fs::read_to_string(&snapshot).unwrap_or_default();
        if recorded != text {
            wrong.push(format!("{}\n--- recorded\n{recorded}\n--- now\n{text}", fixture.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_fixture_breaks_its_own_rule_and_no_other() {
    for fixture in fixtures() {
        let report = report_of(&fixture);
        let own = code_of(&fixture);
        let found = codes(&report);
        assert!(found.contains(&&*own), "{}: {found:?}", fixture.display());
        // These are noted whatever else is.
        let always = [MOVED, CLOSED, NO_SUBMITTER, VOID_DISKS].map(|rule| rule.code);
        let other = found.iter().find(|code| **code != own && !always.contains(code));
        assert_eq!(other, None, "{}", fixture.display());
    }
}

#[test]
fn reports_are_readable_at_80_columns() {
    for fixture in fixtures() {
        let text = report_of(&fixture).render(Style::PLAIN);
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{}: {line}", fixture.display());
        }
    }
}

#[test]
fn the_table_of_rules_is_the_one_in_the_readme() {
    let readme = std::fs::read_to_string("policies/README.md").unwrap();
    let documented: Vec<&str> = readme.lines().filter(|line| line.starts_with("| P")).collect();
    let rules: Vec<String> = RULES
        .iter()
        .map(|rule| {
            let severity = format!("{:?}", rule.severity).to_lowercase();
            format!("| {} | {severity} | {} |", rule.code, rule.title)
        })
        .collect();
    assert_eq!(documented, rules);
}

#[test]
fn the_rules_about_the_machine_need_the_machine() {
    for code in ["p060", "p061", "p062", "p063", "p064", "p066", "p067"] {
        let fixture =
            fixtures().into_iter().find(|path| code_of(path) == code.to_uppercase()).unwrap();
        assert!(tenantd_policy::load(&fixture).is_ok(), "{}", fixture.display());
    }
}

#[test]
fn only_the_first_ten_findings_are_printed_and_errors_before_notes() {
    let wrong: String = (0..30).map(|nr| format!("  t{nr}: {{ wieght: {nr} }}\n")).collect();
    let noted = "  a: { match: { cgroup: /gone/1 } }\n  b: { match: { cgroup: /gone/2 } }\n";
    let text = format!("version: 1\ntenants:\n{noted}{wrong}");
    let report = check_input("p.yaml", text.as_bytes(), Some(&machine())).unwrap_err();
    assert_eq!((codes(&report).len(), codes(&report)[0]), (32, "P067"));
    let text = report.render(Style::PLAIN);
    assert_eq!(text.matches("error[P010]").count(), 10, "{text}");
    assert!(!text.contains("P067"), "{text}");
    assert!(text.ends_with("… and 22 more: `tenantctl check --all` prints them\n"), "{text}");
    let all = report.render(Style { most: usize::MAX, ..Style::PLAIN });
    assert_eq!((all.matches("error[").count(), all.matches("note[").count()), (30, 2), "{all}");
}

#[test]
fn guarantees_of_disks_fit_and_need_weights() {
    let codes_of = |text: &str| {
        let text = format!("version: 1\n{text}");
        let report = match check_input("p.yaml", text.as_bytes(), Some(&machine())) {
            Ok(loaded) => loaded.report,
            Err(report) => report,
        };
        let codes = codes(&report).into_iter().filter(|code| !["P046", "P047"].contains(code));
        codes.map(str::to_string).collect::<Vec<_>>()
    };
    let weigh = "host: { disks: weigh }\n";
    // Of the machine: file systems and a scheduler that ignore weights.
    let usual = ["P078"; 3];
    let tenants = |of: &str| {
        format!(
            "{weigh}tenants: {{ a: {{ guarantee: {{ disk: {of} }} }}, b: {{ guarantee: {{ disk: 30% }} }} }}"
        )
    };
    assert_eq!(codes_of(&tenants("50%")), usual);
    assert_eq!(codes_of(&tenants("51%")), ["P061"]);
    for wrong in ["81%", "0%", "20", "a"] {
        assert_eq!(codes_of(&tenants(wrong)), ["P026"], "{wrong}");
    }
    let group = "tenants: { g: { guarantee: { disk: 20% }, tenants: { a: { guarantee: { disk: 21% } } } } }";
    assert_eq!(codes_of(&format!("{weigh}{group}")), ["P055"]);
    let left = "tenants: { a: { guarantee: { disk: 20% } } }";
    assert_eq!(codes_of(left), ["P078"]);
}

#[test]
fn disks_to_divide_are_named_with_a_way() {
    let report_of = |disks: &str| {
        let text = format!("version: 1\nhost: {{ disks: {disks} }}\ntenants: {{ a: {{}} }}");
        match check_input("p.yaml", text.as_bytes(), Some(&machine())) {
            Ok(loaded) => (loaded.report, Some(Outline::of(&loaded.policy))),
            Err(report) => (report, None),
        }
    };
    let codes_of = |disks: &str| {
        let codes = codes(&report_of(disks).0).into_iter();
        codes
            .filter(|code| !["P046", "P047"].contains(code))
            .map(str::to_string)
            .collect::<Vec<_>>()
    };
    // File systems, and schedulers of disks that are not named.
    let usual = |more: usize| vec!["P078"; 2 + more];
    assert_eq!(
        codes_of("{ divide: { sda: bfq } }"),
        usual(0),
        "sda is the only one that ignores weights"
    );
    assert_eq!(codes_of("{ divide: { loop7: bfq } }"), usual(1));
    assert_eq!(codes_of("{ divide: { sda: bfq, sdz: bfq } }"), usual(1), "there is no sdz");
    let cost = "{ divide: { sda: { cost: { read: 1GiB/s, read_iops: 200000, latency: 500us } } } }";
    assert_eq!(codes_of(cost), usual(0));
    let plain = Outline::of(&load_text("p.yaml", "version: 1\ntenants: { a: {} }").unwrap().policy);
    let changes = plain.changes_to(&report_of(cost).1.unwrap());
    assert_eq!(changes[0].to.as_deref(), Some(cost), "as it is written");
    for (wrong, code) in [
        ("divide", "P058"),
        ("{}", "P058"),
        ("{ divide: {} }", "P058"),
        ("{ divide: { md0: bfq } }", "P058"),
        ("{ divide: [sda] }", "P020"),
        ("{ divide: { sda: {} } }", "P020"),
        ("{ divide: { sda: { cost: { read: 1GiB/s } } } }", "P020"),
        ("{ divide: { sda: { cost: { read: 1GB/s, read_iops: 5 } } } }", "P020"),
        ("{ divide: { sda: { cost: { read: 1GiB/s, read_iops: 5, latency: 2s } } } }", "P024"),
        ("{ divide: { sda: kyber } }", "P021"),
        ("devide", "P021"),
        ("{ divide: { sda: bfq, sda: bfq } }", "P011"),
        ("{ weigh: { sda: bfq } }", "P010"),
    ] {
        assert_eq!(codes_of(wrong), [code], "{wrong}");
    }
}

#[test]
fn a_coupling_has_known_resources_and_needs_weights() {
    let codes_of = |text: &str| {
        let report = match check_input("p.yaml", text.as_bytes(), Some(&machine())) {
            Ok(loaded) => loaded.report,
            Err(report) => report,
        };
        let of_keys = |code: &&str| !["P046", "P047"].contains(code);
        codes(&report).into_iter().filter(of_keys).map(str::to_string).collect::<Vec<_>>()
    };
    let with = |host: &str, control: &str| {
        let tenants = "tenants: { a: { guarantee: { disk: 20% } } }";
        codes_of(&format!("version: 1\n{host}control: {{ {control} }}\n{tenants}"))
    };
    let weigh = "host: { disks: weigh }\n";
    // Of the machine: file systems and a scheduler that ignore weights.
    let usual = ["P078"; 3];
    assert_eq!(with(weigh, "couple: [disk, memory, cpu]"), usual);
    assert_eq!(with(weigh, "couple: [cpu, memory, disk], allocation: max-min"), ["P078"; 4]);
    assert_eq!(with(weigh, "couple: [cpu, memory], allocation: max-min"), usual);
    // Of the guarantee, too.
    assert_eq!(with("", "couple: [cpu, memory, disk]"), ["P078"; 2]);
    for wrong in ["[cpu]", "[cpu, memory, net]", "[cpu, memory, memory]", "[]"] {
        assert_eq!(with("", &format!("couple: {wrong}")), ["P021"], "{wrong}");
    }
    assert_eq!(with("", "couple: disk"), ["P020"]);
}

#[test]
fn settings_of_disks_in_unit_files_are_noted_where_the_policy_has_its_own() {
    let message_of = |host: &str, limit: &str| {
        let php = format!("php: {{ {limit}match: {{ unit: php-fpm.service }} }}");
        let text = format!("version: 1\n{host}tenants: {{ {php} }}\n");
        let loaded = check_input("p.yaml", text.as_bytes(), Some(&machine())).unwrap();
        let findings = loaded.report.findings();
        let noted = findings.iter().find(|it| it.code == REPLACED_SETTING.code);
        noted.unwrap().message.clone()
    };
    let of_cpu = "`php-fpm.service` has CPUWeight=50 in /usr/lib/systemd/system/php-fpm.service, and the weight of `php` in \
                  this policy replaces it";
    assert_eq!(message_of("", ""), of_cpu);
    assert_eq!(message_of("host: { disks: weigh }\n", ""), format!("{of_cpu} (and 1 more)"));
    let limit = "limit: { disk: { read: 10MiB/s } }, ";
    assert_eq!(message_of("", limit), format!("{of_cpu} (and 1 more)"));
    assert_eq!(message_of("host: { disks: weigh }\n", limit), format!("{of_cpu} (and 2 more)"));
}

/// Notes are for a person who checks a policy: the daemon logs none of them at each start.
#[test]
fn only_check_gives_notes_about_a_valid_policy() {
    let text = "version: 1\ntenants: { web: { weight: 1 }, ci: { limit: { cpu: 64 } } }\n";
    let checked = check_input("p.yaml", text.as_bytes(), Some(&machine())).unwrap();
    assert_eq!(codes(&checked.report), ["P046", "P057", "P072"]);
    let loaded = load_from("p.yaml", text.as_bytes(), Some(&machine())).unwrap();
    assert_eq!(codes(&loaded.report), [""; 0]);
}

#[test]
fn keys_for_anchors_are_not_read() {
    let text = "version: 1\nx-team: &team { weight: 3, match: { users: [ana] } }\nx-: 0\ntenants: { web: *team }\n";
    let loaded = check_input("p.yaml", text.as_bytes(), Some(&machine())).unwrap();
    assert_eq!(codes(&loaded.report), [""; 0]);
    assert_eq!(loaded.policy.tenants[0].matches.users, ["ana"]);
    // Only at the top.
    let text = "version: 1\ntenants: { web: { x-a: 1 } }\n";
    let report = check_input("p.yaml", text.as_bytes(), None).unwrap_err();
    assert_eq!(codes(&report), ["P010"]);
}

/// Without slices of users, a claim by owner moves processes.
#[test]
fn moves_are_noted_on_a_machine_without_slices_of_users() {
    let text = "version: 1\ntenants:\n  ana: { match: { users: [ana] } }\n  people: { each: { match: { users: \"*\" } } }\n";
    let found = |systemd: Systemd| {
        let host = HostFacts { systemd, ..machine() };
        let loaded = load_from("p.yaml", text.as_bytes(), Some(&host)).unwrap();
        let moved = loaded.report.findings().iter().find(|it| it.code == MOVED.code);
        moved.map(|it| it.message.clone())
    };
    assert_eq!([found(Systemd::Unified), found(Systemd::Unknown)], [None, None]);
    for systemd in [Systemd::Legacy, Systemd::Absent] {
        let message = found(systemd).unwrap();
        assert!(message.contains("`ana`") && message.ends_with("(2 tenants)"), "{message}");
    }
}
