//! Matches of pods: which tenant a pod has, and the tenants that a template makes.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tenantd_policy::expand::{Found, Numbers, expand, tenant_of_pod};
use tenantd_policy::pods::Pod;
use tenantd_policy::{Policy, check_input, load_text};

fn policy(tenants: &str) -> Policy {
    let text = format!("version: 1\ntenants:\n{tenants}");
    load_text("policy.yaml", &text).unwrap_or_else(|report| panic!("{report:?}")).policy
}

fn pod(namespace: &str, labels: &[(&str, &str)]) -> Pod {
    let labels = labels.iter().map(|(key, value)| ((*key).to_string(), (*value).to_string()));
    Pod { name: "web".into(), namespace: namespace.into(), labels: labels.collect() }
}

/// Tenants of an expanded policy.
fn expanded(policy: &Policy, pods: &[Pod]) -> BTreeSet<String> {
    let found = Found { pods: pods.iter().cloned().collect(), ..Found::default() };
    let expanded = expand(policy, &Numbers::default(), &found);
    expanded.policy.leaves().into_iter().map(|(path, _)| path).collect()
}

const ORDER: &str = "
  spaces:
    each: { match: { pod: { namespace: [shop, 'team-*'] } } }
    tenants:
      one: { match: { pod: { namespace: team-one, label: [tier=web, 'tier=db-?'] } } }
  teams: { each: { weight: 3, match: { pod: { label: ['team=*', 'app.io/squad=*'] } } } }
  core: { match: { pod: { label: team=core } } }
  both: { match: { users: [ana], pod: { namespace: other } } }
";

#[test]
fn the_first_that_fits_counts_and_templates_come_last() {
    let policy = policy(ORDER);
    for (pod, tenant) in [
        (pod("shop", &[]), Some("spaces/shop")),
        (pod("shop", &[("team", "x")]), Some("spaces/shop")),
        (pod("shop", &[("team", "core")]), Some("core")),
        (pod("team-one", &[("tier", "web")]), Some("spaces/one")),
        (pod("team-one", &[("tier", "db-1")]), Some("spaces/one")),
        // Both keys count, and the name of the tenant is taken: it is escaped.
        (pod("team-one", &[("tier", "db-10")]), Some("spaces/team-one")),
        (pod("infra", &[("tier", "web")]), None),
        (pod("infra", &[("team", "x")]), Some("teams/x")),
        (pod("infra", &[("app.io/squad", "y"), ("team", "x")]), Some("teams/x")),
        (pod("infra", &[("app.io/squad", "y")]), Some("teams/y")),
        // A value that is a name of the kernel's files, that is a pattern, that is empty.
        (pod("infra", &[("team", "cpu.max")]), Some("teams/_x63pu.max")),
        (pod("infra", &[("team", "a/b")]), Some("teams/a_x2fb")),
        (pod("infra", &[("team", "*")]), None),
        (pod("infra", &[("team", "")]), None),
        (pod("other", &[]), Some("both")),
        (pod("Shop", &[]), None),
        (Pod::default(), None),
    ] {
        assert_eq!(tenant_of_pod(&policy, &pod).as_deref(), tenant, "{pod:?}");
    }
}

#[test]
fn a_template_makes_one_tenant_of_each_name() {
    let policy = policy(ORDER);
    let pods = [
        pod("shop", &[]),
        pod("shop", &[("team", "x")]),
        pod("infra", &[("team", "x")]),
        pod("infra", &[("app.io/squad", "x")]),
        pod("infra", &[("team", "core")]),
    ];
    let all = expanded(&policy, &pods);
    assert_eq!(
        all,
        ["both", "core", "spaces/one", "spaces/shop", "teams/x"].map(String::from).into()
    );
    let found = Found { pods: pods.into(), ..Found::default() };
    let expanded = expand(&policy, &Numbers::default(), &found).policy;
    let leaves = expanded.leaves();
    let of = |name: &str| &leaves.iter().find(|(path, _)| path == name).unwrap().1.matches.pods;
    assert_eq!(of("teams/x").labels, ["app.io/squad=x", "team=x"]);
    assert_eq!(of("spaces/shop").namespaces, ["shop"]);
    assert!(leaves.iter().find(|(path, _)| path == "teams/x").unwrap().1.is_found);
}

proptest! {
    /// The tenant that the choice names is in the expansion with this pod, and another pod changes no choice.
    #[test]
    fn a_chosen_tenant_is_in_the_expansion(
        pods in proptest::collection::vec(
            ("(shop|team-one|team-[ab*]|infra|core)", "(core|[xy]|a/b|cpu.max|one|)", "(web|db-1)"), 1..12,
        ),
    ) {
        let policy = policy(ORDER);
        let pods: Vec<Pod> = pods
            .iter()
            .map(|(namespace, team, tier)| pod(namespace, &[("team", team), ("tier", tier)]))
            .collect();
        let all = expanded(&policy, &pods);
        let chosen: Vec<String> = pods.iter().filter_map(|it| tenant_of_pod(&policy, it)).collect();
        for tenant in &chosen {
            prop_assert!(all.contains(tenant), "{tenant} {all:?}");
            prop_assert!(policy.leaves().iter().any(|(path, _)| path == tenant) || policy.may_find(tenant));
        }
        let named = policy.leaves().len();
        let found: BTreeSet<&String> = chosen.iter().filter(|it| policy.may_find(it)).collect();
        let found = found.iter().filter(|it| !policy.leaves().iter().any(|(path, _)| path == **it));
        prop_assert_eq!(all.len(), named + found.count(), "nothing else is made");
    }
}

#[test]
fn facts_are_bounded() {
    let many: Vec<String> = (0..128).map(|nr| nr.to_string()).collect();
    let labels: Vec<(&str, &str)> = many.iter().map(|key| (key.as_str(), "x")).collect();
    let full = pod("a", &labels);
    assert!(full.is_bounded());
    let mut more = full.clone();
    more.labels.insert("one more".into(), String::new());
    assert!(!more.is_bounded());
    let long = Pod { name: "x".repeat(16 << 10), ..Pod::default() };
    assert!(long.is_bounded());
    assert!(!Pod { namespace: "y".into(), ..long }.is_bounded());
}

/// The order of the policy decides where neither match includes all of the other: a note, and no error.
#[test]
fn overlaps_are_errors_and_decided_orders_are_notes() {
    let report = |tenants: &str| {
        let text = format!("version: 1\ntenants:\n{tenants}");
        let checked = check_input("policy.yaml", text.as_bytes(), None);
        let report = checked.map_or_else(|report| report, |loaded| loaded.report);
        let of = |code: &str| report.findings().iter().filter(|it| it.code == code).count();
        (of("P033"), of("P073"))
    };
    let two = |a: &str, b: &str| {
        report(&format!("  a: {{ match: {{ pod: {a} }} }}\n  b: {{ match: {{ pod: {b} }} }}"))
    };
    for (a, b, expected) in [
        ("{ namespace: x }", "{ namespace: x }", (1, 0)),
        ("{ namespace: [x, y] }", "{ namespace: 'y*' }", (1, 0)),
        ("{ namespace: x }", "{ namespace: y }", (0, 0)),
        ("{ label: k=v }", "{ label: 'k=*' }", (1, 0)),
        ("{ label: k=v }", "{ label: k=v }", (1, 0)),
        ("{ label: k=v }", "{ label: k=w }", (0, 0)),
        ("{ label: k=v, namespace: x }", "{ label: k=v, namespace: y }", (0, 0)),
        ("{ label: k=v, namespace: x }", "{ label: k=v, namespace: '?' }", (1, 0)),
        ("{ label: k=v, namespace: x }", "{ namespace: y }", (0, 0)),
        ("{ label: k=v, namespace: x }", "{ namespace: x }", (0, 1)),
        ("{ label: k=v }", "{ label: other=v }", (0, 1)),
        ("{ label: k=v }", "{ namespace: x }", (0, 1)),
    ] {
        assert_eq!(two(a, b), expected, "{a} {b}");
    }
    let each = "  a: { each: { match: { pod: { namespace: 'x*' } } } }\n";
    assert_eq!(report(&format!("{each}  b: {{ match: {{ pod: {{ namespace: x1 }} }} }}")), (0, 0));
    assert_eq!(
        report(&format!("{each}  b: {{ each: {{ match: {{ pod: {{ namespace: x1 }} }} }} }}")),
        (1, 0)
    );
}
