//! The difference between two policies.

use tenantd::policy::load_text;
use tenantd::policy::outline::{Change, ChangeKind, Outline};

fn outline(text: &str) -> Outline {
    let text = format!("version: 1\n{text}");
    let loaded = load_text("test", &text).unwrap_or_else(|report| panic!("{report}"));
    Outline::of(&loaded.policy)
}

fn lines(old: &str, new: &str) -> Vec<String> {
    outline(old).changes_to(&outline(new)).iter().map(Change::to_string).collect()
}

#[test]
fn a_policy_has_no_difference_to_itself() {
    for path in ["ci-runner", "compute-server", "database-host", "login-node"] {
        let text = std::fs::read_to_string(format!("policies/{path}.yaml")).unwrap();
        let loaded = load_text(path, &text).unwrap_or_else(|report| panic!("{report}"));
        let outline = Outline::of(&loaded.policy);
        assert_eq!(outline.changes_to(&outline), []);
    }
}

#[test]
fn every_difference_is_one_line() {
    let old = "control: { on_exit: keep }
tenants:
  web: { weight: 300, limit: { cpu: 2 } }
  batch: {}
  ci: { tenants: { nightly: { dop: { max: 4 } } } }
";
    let new = "mode: enforce
tenants:
  ci: { tenants: { nightly: { dop: { max: 8 } }, pulls: { weight: 3, cpus: \"0,2-3\" } } }
  web: { weight: 200, limit: { memory: 1GiB } }
";
    assert_eq!(
        lines(old, new),
        [
            "control.on_exit: keep -> default",
            "mode: default -> enforce",
            "batch: removed",
            "ci/nightly: dop: at most 4 -> at most 8",
            "ci/pulls: added (weight: 3, cpus: 0,2-3)",
            "web: limit.cpu: 2 -> default",
            "web: weight: 300 -> 200",
            "web: limit.memory: default -> 1GiB",
        ]
    );
    assert_eq!(lines(new, new), Vec::<String>::new());
}

/// Every key of the policy that can be given shows where it is given.
#[test]
fn no_key_is_passed_over() {
    let plain = "tenants: { a: {} }";
    for (key, text) in [
        ("mode", "mode: enforce"),
        ("host.reserve.cpu", "host: { reserve: { cpu: 1 } }"),
        ("host.reserve.memory", "host: { reserve: { memory: 1GiB } }"),
        ("host.hierarchy", "host: { hierarchy: legacy }"),
        ("host.root", "host: { root: /x }"),
        ("control.interval", "control: { interval: 500ms }"),
        ("control.allocation", "control: { allocation: static }"),
        ("control.oversubscription", "control: { oversubscription: 2 }"),
        ("control.on_exit", "control: { on_exit: keep }"),
        ("control.watch_policy", "control: { watch_policy: true }"),
        ("admission.discipline", "admission: { discipline: fifo }"),
        ("admission.max_running", "admission: { max_running: 3 }"),
        ("admission.running", "admission: { running: equal }"),
        ("administrators.users", "administrators: { users: ana }"),
        ("administrators.groups", "administrators: { groups: [ops, 4] }"),
    ] {
        let changes = outline(plain).changes_to(&outline(&format!("{text}\n{plain}")));
        let [change] = &changes[..] else { panic!("{text}: {changes:?}") };
        assert_eq!((change.kind, change.key.as_deref()), (ChangeKind::Added, Some(key)));
        assert!(change.to.is_some() && change.from.is_none());
    }
    for (key, text) in [
        ("weight", "weight: 3"),
        ("guarantee.cpu", "guarantee: { cpu: 1 }"),
        ("guarantee.memory", "guarantee: { memory: 1GiB }"),
        ("limit.cpu", "limit: { cpu: 1 }"),
        ("limit.memory", "limit: { memory: 1GiB }"),
        ("match.unit", "match: { unit: a.service }"),
        ("match.cgroup", "match: { cgroup: /a }"),
        ("match.users", "match: { users: ana }"),
        ("match.groups", "match: { groups: ops }"),
        ("dop", "dop: { manual: 2 }"),
        ("cpus", "cpus: exclusive"),
        ("allow.users", "allow: { users: ana }"),
        ("allow.groups", "allow: { groups: ops }"),
    ] {
        let with = format!("tenants: {{ a: {{ {text} }} }}");
        let changes = outline(&with).changes_to(&outline(plain));
        let [change] = &changes[..] else { panic!("{text}: {changes:?}") };
        assert_eq!((change.kind, change.key.as_deref()), (ChangeKind::Removed, Some(key)));
        assert_eq!(change.tenant.as_deref(), Some("a"));
    }
}
