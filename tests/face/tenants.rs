//! The table of `tenantctl status` for any number of tenants, on terminals of several widths and in a pipe.

use tenantctl::args::SortKey;
use tenantctl::common::output::Output;
use tenantctl::common::rows::{Choice, Idle};
use tenantctl::show::status::{Look, shown};
use tenantd_control::report::status::{GroupStatus, Status, TenantStatus};
use tenantd_core::resource::{CPU, MEMORY, PerResource};

use super::daemon::status;

/// Tenants with long and short names, two of three idle, in groups of ten below `users`.
fn many(count: usize) -> Status {
    let tenant = |number: usize| {
        let group = number / 10;
        let long = if number.is_multiple_of(7) {
            "-with-a-name-as-long-as-an-account-can-have_x.y"
        } else {
            ""
        };
        let cores = if number.is_multiple_of(3) { 1.25 } else { 0.0 };
        TenantStatus {
            name: format!("users/team{group}/u{number}{long}").into(),
            usage: PerResource([Some(cores), Some(3e8)]),
            demand: PerResource([cores, 3e8]),
            ..status().tenants[0].clone()
        }
    };
    let group = |name: String| GroupStatus { name: name.into(), ..status().groups[0].clone() };
    let teams = (0..count.div_ceil(10)).map(|team| format!("users/team{team}"));
    Status {
        tenants: (0..count).map(tenant).collect(),
        groups: std::iter::once("users".to_string()).chain(teams).map(group).collect(),
        jobs: None,
        ..status()
    }
}

fn terminal(columns: usize) -> Look {
    let choice = Choice { idle: Idle::Folded, ..Choice::default() };
    Look { choice, output: Output::Terminal { columns, lines: 50 }, is_verbose: false }
}

fn pipe() -> Look {
    Look { choice: Choice::default(), output: Output::Stream, is_verbose: false }
}

#[test]
fn a_table_fits_its_terminal() {
    for count in [3, 30, 300] {
        let mut status = many(count);
        status.tenants[0].memory_elsewhere_bytes = Some(23 << 20);
        for columns in [60, 80, 100, 160, 250] {
            for is_verbose in [false, true] {
                let text = shown(&status, &Look { is_verbose, ..terminal(columns) });
                for line in text.lines() {
                    assert!(line.chars().count() <= columns, "{columns}: {line}\n{text}");
                }
                for part in ["share", "now", "if busy", "3.40"] {
                    assert!(text.contains(part), "{part} at {columns}:\n{text}");
                }
                // Columns are left out before the names are shortened.
                assert_eq!(text.contains("wanted"), columns >= 100, "{columns}:\n{text}");
            }
        }
        assert!(shown(&status, &terminal(160)).contains("286MiB (+23MiB elsewhere)"));
        assert_eq!(
            shown(&status, &terminal(160)).contains("idle tenants in users/team0"),
            count > 3
        );
    }
}

#[test]
fn a_pipe_gets_all_rows_columns_and_names() {
    for count in [3, 30, 300] {
        let status = many(count);
        let text = shown(&status, &pipe());
        assert!(!text.contains('…') && !text.contains("idle tenants") && !text.contains("more"));
        for tenant in &status.tenants {
            let is_row = |line: &str| line.split_whitespace().next() == Some(tenant.name.as_str());
            assert_eq!(text.lines().filter(|line| is_row(line)).count(), 1, "{}", tenant.name);
        }
        let row = text.lines().find(|line| line.contains("u0-with")).unwrap();
        assert_eq!(row.split_whitespace().count(), 9, "{row}");
    }
    // All shortages and all tenants with jobs, too.
    let mut status = many(30);
    for tenant in &mut status.tenants {
        tenant.reasons = super::daemon::status().tenants[1].reasons.clone();
        tenant.jobs = super::daemon::status().tenants[2].jobs.clone();
    }
    status.jobs = super::daemon::status().jobs;
    let lines = |look: &Look, begin: &str| {
        shown(&status, look).lines().filter(|line| line.starts_with(begin)).count()
    };
    assert_eq!((lines(&pipe(), "! users/"), lines(&terminal(80), "! users/")), (30, 5));
    assert_eq!((lines(&pipe(), "  users/"), lines(&terminal(80), "  users/")), (30, 10));
    assert!(shown(&status, &terminal(80)).contains("25 more tenants lack something"));
}

/// The figures of both names are in the columns of these names.
#[test]
fn shares_have_their_names() {
    let mut status = status();
    status.tenants.truncate(1);
    status.groups.clear();
    let web = &mut status.tenants[0];
    (web.allocation, web.fair_share_cores) = (PerResource([1.11, 1e9]), 2.22);
    (web.fair_share_memory_bytes, web.would_get[CPU]) = (2e9, 3.33);
    let text = shown(&status, &pipe());
    let table: Vec<&str> = text.lines().skip_while(|line| !line.contains("CPUs   CPUs")).collect();
    let end_of = |line: &str, part: &str| line.find(part).unwrap() + part.len();
    for (name, figure) in [("now", "1.11"), ("if busy", "2.22")] {
        assert_eq!(end_of(table[1], name), end_of(table[2], figure), "{text}");
    }
    for gone in ["3.33", "alloc", "could", "DOP", "dominant", "entitled"] {
        assert!(!text.contains(gone), "{gone}:\n{text}");
    }
    let text = shown(&status, &Look { is_verbose: true, ..pipe() });
    for part in ["3.33", "DOP", "dominant"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn idle_tenants_fold_on_a_terminal_and_keep_their_memory_in_sight() {
    let mut status = many(12);
    let text = shown(&status, &terminal(80));
    assert!(text.contains("  6 idle tenants in users/team0, 1.7GiB\n"), "{text}");
    assert!(!text.contains("idle tenants in users/team1"), "two are too few:\n{text}");
    let all = Choice::default();
    assert!(!shown(&status, &Look { choice: all, ..terminal(80) }).contains("idle tenants"));
    // A tenant whose usage could not be read is not idle.
    status.tenants[1].usage = PerResource([None, None]);
    let text = shown(&status, &terminal(80));
    assert!(text.contains("  5 idle tenants in users/team0") && text.contains("users/team0/u1 "));
    let by_memory = Choice { sort: SortKey::Memory, idle: Idle::Folded, ..Choice::default() };
    status.tenants[9].usage[MEMORY] = Some(9e9);
    let text = shown(&status, &Look { choice: by_memory, ..terminal(80) });
    let first = text.lines().find(|line| line.starts_with("users/team0/u"));
    assert!(first.is_some_and(|line| line.starts_with("users/team0/u9")), "{text}");
}
