//! The difference between two policies.

use tenantd_policy::load_text;
use tenantd_policy::outline::{Change, Outline};

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
