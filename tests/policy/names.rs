//! Names are compared by what they stand for: on a machine as far as it knows, without one as far as the text tells.

use tenantd_policy::rules::MOVED;
use tenantd_policy::{load_from, load_text};

use super::machine;

/// The findings about two tenants that claim this, as `(code, message)`.
fn found(first: &str, second: &str, on_machine: bool) -> Vec<(&'static str, String)> {
    let text = format!(
        "version: 1\ntenants:\n  a: {{ match: {{ {first} }} }}\n  b: {{ match: {{ {second} }} }}\n"
    );
    let loaded = if on_machine {
        load_from("policy.yaml", text.as_bytes(), Some(&machine()))
    } else {
        load_text("policy.yaml", &text)
    };
    let report = loaded.map_or_else(|report| report, |loaded| loaded.report);
    // That processes are moved is said whatever else is.
    let findings = report.findings().iter().filter(|it| it.code != MOVED.code);
    findings.map(|it| (it.code, it.message.clone())).collect()
}

#[test]
fn what_has_two_names_is_one() {
    for (first, second, message) in [
        ("users: root", "users: 0", "user `0`, the same as `root`,"),
        ("users: [ana]", "users: [2000]", "user `2000`, the same as `ana`,"),
        ("groups: 100", "groups: analysts", "group `analysts`, the same as `100`,"),
        (
            "unit: nginx.service",
            "unit: www.service",
            "unit `www.service`, the same as `nginx.service`,",
        ),
        ("users: 7", "users: \"007\"", "user `007`, the same as `7`,"),
        ("users: ana", "users: ana", "user `ana`"),
        (
            "unit: user.slice",
            "unit: user-1000.slice",
            "`user-1000.slice`, which lies within `user.slice`,",
        ),
    ] {
        let message = format!("{message} is claimed by both `a` and `b`");
        assert_eq!(found(first, second, true), [("P033", message)], "{first} {second}");
    }
    // A user and a group of one number are two; so are slices whose names only begin alike.
    for (first, second) in [
        ("users: 100", "groups: 100"),
        ("users: ana", "users: root"),
        ("unit: user.slice", "unit: users.slice"),
        ("unit: a-b.slice", "unit: a-c.slice"),
    ] {
        assert_eq!(found(first, second, true), [], "{first} {second}");
    }
}

#[test]
fn without_a_machine_only_the_text_counts() {
    assert_eq!(found("users: root", "users: 0", false).len(), 1);
    assert_eq!(found("users: ana", "users: 2000", false), []);
    assert_eq!(found("unit: nginx.service", "unit: www.service", false), []);
    assert_eq!(found("users: 7", "users: \"007\"", false).len(), 1);
    assert_eq!(found("unit: user.slice", "unit: user-1000.slice", false).len(), 1);
}

#[test]
fn an_unknown_name_is_reported_once() {
    let codes = |first: &str, second: &str| {
        let found = found(first, second, true);
        found.into_iter().map(|(code, _)| code).collect::<Vec<_>>()
    };
    assert_eq!(codes("users: [nobdy, ana]", "groups: nobdy"), ["P064", "P064"]);
    assert_eq!(codes("unit: no.service", "unit: no.scope"), ["P066"]);
    assert_eq!(codes("cgroup: /gone/a", "cgroup: /here"), ["P067"]);
}
