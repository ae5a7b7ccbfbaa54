//! Templates and what they find: names, order, precedence.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use proptest::prelude::*;
use tenantd_policy::accounts::people::People;
use tenantd_policy::expand::{Found, FoundUser, Numbers, expand};
use tenantd_policy::outline::Outline;
use tenantd_policy::{Policy, is_tenant_name, load_text};

fn policy(tenants: &str) -> Policy {
    let text = format!("version: 1\ntenants:\n{tenants}");
    load_text("policy.yaml", &text).unwrap_or_else(|report| panic!("{report:?}")).policy
}

fn users(users: &[(u32, &str)]) -> Found {
    let user = |(uid, name): &(u32, &str)| {
        let name = (!name.is_empty()).then(|| (*name).to_string());
        (*uid, FoundUser { name, groups: vec![*uid, 50], has_slice: false })
    };
    Found { users: users.iter().map(user).collect(), ..Found::default() }
}

fn texts(texts: &[&str]) -> BTreeSet<String> {
    texts.iter().map(|text| (*text).to_string()).collect()
}

fn numbers() -> Numbers {
    let users = BTreeMap::from([("ana".into(), 1001), ("root".into(), 0)]);
    Numbers { users, groups: BTreeMap::from([("staff".into(), 50)]) }
}

/// The paths of what was found.
fn found(policy: &Policy, found: &Found) -> Vec<String> {
    let expanded = expand(policy, &numbers(), found);
    let leaves = expanded.policy.leaves();
    leaves.into_iter().filter(|(_, tenant)| tenant.is_found).map(|(path, _)| path).collect()
}

const PEOPLE: &str = "
  people:
    each: { weight: 3, limit: { pids: 10 }, match: { users: '*' } }
    tenants:
      ana: { match: { users: [ana] } }
";

#[test]
fn each_that_is_found_has_the_template_and_a_match_of_its_own() {
    let policy = policy(PEOPLE);
    let here = users(&[(1002, "ben"), (1001, "ana"), (33, "www-data"), (65_534, "nobody")]);
    let expanded = expand(&policy, &numbers(), &here);
    let leaves = expanded.policy.leaves();
    let [(ana, _), (ben, tenant)] = &leaves[..] else { panic!("{leaves:?}") };
    assert_eq!((ana.as_str(), ben.as_str()), ("people/ana", "people/ben"));
    assert_eq!(tenant.matches.users, ["+1002"]);
    assert_eq!((tenant.weight.each.0[0].get(), tenant.limit.pids), (3.0, Some(10)));
    assert_eq!(expanded.origins, [Some(0), Some(1), None]);
    assert!(expanded.left_out.is_empty());
}

#[test]
fn what_is_named_anywhere_is_not_found() {
    let named = |tenant: &str| policy(&format!("{PEOPLE}\n  other: {{ {tenant} }}\n"));
    let here = users(&[(1001, "ana"), (1002, "ben")]);
    assert_eq!(found(&named(""), &here), ["people/ben"]);
    for tenant in [
        "match: { users: 1002 }",
        "match: { groups: staff }",
        "match: { unit: user-1002.slice }",
        "match: { unit: user.slice }",
        "match: { unit: 'user-10*.slice' }",
        "match: { cgroup: /user.slice/user-1002.slice }",
        "tenants: { deep: { match: { users: [1002, 1003] } } }",
    ] {
        assert_eq!(found(&named(tenant), &here), [""; 0], "{tenant}");
    }
    let root = policy(
        "
  a: { match: { users: root } }
  b: { each: { match: { users: [0, ana] } } }
",
    );
    assert_eq!(found(&root, &users(&[(0, "root"), (1001, "ana")])), ["b/ana"]);
}

#[test]
fn units_and_cgroups_are_found_beside_those_that_are_named() {
    let policy = policy(
        "
  containers: { each: { match: { unit: ['docker-*.scope', 'machine-*.slice'] } } }
  pods: { each: { match: { cgroup: '/kubepods/**/pod*' } } }
  a: { match: { unit: 'docker-a*.scope' } }
  b: { match: { unit: machine-b-c.slice } }
  c: { match: { cgroup: /kubepods/burstable/pod3/inner } }
",
    );
    let units = texts(&[
        "docker-a1.scope",
        "docker-b1.scope",
        "machine-a.slice",
        "machine-b.slice",
        "nginx.service",
    ]);
    let cgroups = texts(&[
        "/kubepods",
        "/kubepods/pod1",
        "/kubepods/burstable/pod2",
        "/kubepods/burstable/pod2/other",
        "/kubepods/burstable/pod3",
        "/kubepods/podlike",
        "/kubepods/podlike/pod4",
        "/kubepods/pod?",
        "/elsewhere/pod5",
    ]);
    let here = Found { units, cgroups, ..Found::default() };
    let expected = [
        "containers/docker-b1.scope",
        "containers/machine-a.slice",
        "pods/burstable_x2fpod2",
        "pods/pod1",
        "pods/podlike",
    ];
    assert_eq!(found(&policy, &here), expected);
}

#[test]
fn of_two_templates_the_first_takes_what_both_find() {
    let policy = policy(
        "
  staff: { each: { match: { groups: [staff] } } }
  admins: { each: { match: { groups: [1001] } } }
",
    );
    let here = users(&[(1001, "ana"), (1002, "ben")]);
    assert_eq!(found(&policy, &here), ["staff/ana", "staff/ben"]);
}

#[test]
fn a_name_that_is_taken_or_unsafe_is_escaped() {
    let policy = policy(
        "
  people:
    tenants: { ben: { match: { users: [4] } }, _x62en: {} }
    each: { match: { users: '*' } }
  services: { each: { match: { unit: '*.service' } } }
",
    );
    let mut here = users(&[(1001, "ben"), (1002, ""), (1003, "dom\\user"), (1004, "_x62en")]);
    here.units = texts(&["cpu.service", "a@b.service", "-x.service"]);
    let expected = [
        "people/1002",
        "people/_x5fx62en",
        "people/_x62_x65n",
        "people/dom_x5cuser",
        "services/_x2dx.service",
        "services/_x63pu.service",
        "services/a_x40b.service",
    ];
    assert_eq!(found(&policy, &here), expected);
}

#[test]
fn what_is_too_much_is_left_out_and_counted() {
    let policy = policy("  a: { each: { match: { cgroup: '/x/*' } } }\n");
    let long = format!("/x/{}", "y".repeat(201));
    let cgroups = (0..10_005).map(|number| format!("/x/{number}")).chain([long]).collect();
    let expanded = expand(&policy, &numbers(), &Found { cgroups, ..Found::default() });
    assert_eq!(expanded.policy.leaves().len(), 9_999);
    assert_eq!(expanded.left_out, BTreeMap::from([("a".to_string(), 7)]));
}

#[test]
fn two_templates_do_not_find_the_same() {
    let codes = |tenants: &str| -> Vec<&str> {
        let text = format!("version: 1\ntenants:\n{tenants}");
        let loaded = load_text("policy.yaml", &text);
        let report = loaded.map_or_else(|report| report, |loaded| loaded.report);
        report.findings().iter().map(|finding| finding.code).collect()
    };
    let both = |a: &str, b: &str| {
        let each = |matches: &str| format!("{{ each: {{ match: {{ {matches} }} }} }}");
        codes(&format!("  a: {}\n  b: {}\n", each(a), each(b)))
    };
    for (a, b) in [
        ("users: '*'", "users: '*'"),
        ("users: '*'", "users: [ana]"),
        ("groups: staff", "users: '*'"),
        ("groups: [a, staff]", "groups: staff"),
        ("users: '*'", "unit: 'user-*.slice'"),
        ("unit: 'docker-*.scope'", "unit: '*.scope'"),
        ("cgroup: '/a/*'", "cgroup: '/a/b'"),
        ("cgroup: '/a/**/x*'", "cgroup: '/a/b/c/xy'"),
    ] {
        assert_eq!(both(a, b), ["P033"], "{a} {b}");
    }
    for (a, b) in [
        ("users: [ben]", "users: [ana]"),
        ("users: [ben]", "groups: [staff]"),
        ("users: '*'", "unit: 'docker-*.scope'"),
        ("cgroup: '/a/**/x'", "cgroup: '/a/**/y'"),
    ] {
        assert_eq!(both(a, b), [""; 0], "{a} {b}");
    }
    assert_eq!(codes("  a: { match: { users: '*' } }\n"), ["P031"]);
    assert_eq!(codes("  a: { each: { match: { users: '*' } }, cpus: dop }\n"), ["P041"]);
}

#[test]
fn a_template_shows_in_the_outline() {
    let outline = Outline::of(&policy(PEOPLE));
    let other = PEOPLE.replace("weight: 3", "weight: 4").replace("pids: 10", "cpu: 1");
    let changes = outline.changes_to(&Outline::of(&policy(&other)));
    let changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
    let expected = [
        "people: each.limit.pids: 10 -> default",
        "people: each.weight: 3 -> 4",
        "people: each.limit.cpu: default -> 1",
    ];
    assert_eq!(changes, expected);
}

proptest! {
    /// The original can be read from the name, so two never have one name, whatever tenants are called.
    #[test]
    fn names_are_safe_and_injective(
        names in prop::collection::hash_set("[a_x25f.é/ -]{1,9}|cpu\\.[a-z]{1,3}|_x[0-9a-f]{2}|tasks", 1..60),
        taken in prop::collection::hash_set("[a_x25f]{1,3}|_x[0-9a-f]{2}|cpu", 0..20),
    ) {
        let named: String = taken
            .iter()
            .filter(|name| is_tenant_name(name))
            .map(|name| format!("      \"{name}\":\n"))
            .collect();
        let named = if named.is_empty() { "      _:\n".to_string() } else { named };
        let policy = policy(&format!(
            "  g:\n    tenants:\n{named}    each: {{ match: {{ users: '*' }} }}\n"
        ));
        let all: Vec<&String> = names.iter().collect();
        let numbered: Vec<(u32, &str)> =
            all.iter().enumerate().map(|(at, name)| (1000 + at as u32, name.as_str())).collect();
        let here = users(&numbered);
        let expanded = expand(&policy, &numbers(), &here);
        let group = &expanded.policy.tenants[0];
        // Nothing else is free where a tenant is called as all of it is escaped.
        let nr_left_out = expanded.left_out.get("g").copied().unwrap_or(0);
        let nr_all = policy.tenants[0].tenants.len() + names.len() - nr_left_out;
        prop_assert_eq!(group.tenants.len(), nr_all);
        prop_assert!(nr_left_out <= taken.iter().filter(|name| name.starts_with("_x")).count());
        let distinct: HashSet<&str> = group.tenants.iter().map(|it| it.name.as_str()).collect();
        prop_assert_eq!(distinct.len(), group.tenants.len());
        let found: Vec<_> = group.tenants.iter().filter(|tenant| tenant.is_found).collect();
        prop_assert!(found.is_sorted_by_key(|tenant| &tenant.name));
        for tenant in found {
            prop_assert!(is_tenant_name(&tenant.name), "{}", tenant.name);
            let uid: u32 = tenant.matches.users[0].parse().unwrap();
            prop_assert_eq!(unescaped(&tenant.name), all[uid as usize - 1000].as_bytes());
        }
        // What was expanded names all that is there.
        let again = expand(&expanded.policy, &numbers(), &here);
        prop_assert_eq!(again.policy, expanded.policy);
    }
}

/// What an escaped name stands for.
fn unescaped(name: &str) -> Vec<u8> {
    let (mut rest, mut bytes) = (name.as_bytes(), Vec::new());
    while let [first, after @ ..] = rest {
        let code = match rest {
            [b'_', b'x', high, low, ..] => {
                let digits = [*high, *low];
                std::str::from_utf8(&digits).ok().and_then(|it| u8::from_str_radix(it, 16).ok())
            }
            _ => None,
        };
        bytes.push(code.unwrap_or(*first));
        rest = if code.is_some() { &rest[4..] } else { after };
    }
    bytes
}

/// A client waits for a tenant only if a template may make it.
#[test]
fn a_template_may_make_what_it_finds_and_nothing_else() {
    use tenantd_policy::expand::may_make;
    let policy = policy(
        "  agents: { each: { match: { unit: ['agent-*.service', '*.scope'] } }, tenants: { shared: {} } }\n  \
         deep: { tenants: { work: { each: { match: { cgroup: '/work/*/run*' } } } } }\n  \
         people: { each: { match: { users: '*' } } }\n",
    );
    let here = Found {
        units: texts(&[
            "agent-a.service",
            "agent-b\\x2dc.service",
            "docker-1.scope",
            "cron.service",
        ]),
        cgroups: texts(&["/work/a/run1", "/work/a/rest"]),
        ..Found::default()
    };
    let names = found(&policy, &here);
    assert_eq!(names.len(), 4, "{names:?}");
    for name in &names {
        assert!(may_make(&policy, name), "{name}");
    }
    for name in [
        "agents/cron.service",
        "agents/shared",
        "agents",
        "agents/agent-a.service/x",
        "others/agent-a.service",
        "deep/work/a",
        "people/ana",
        "",
    ] {
        assert!(!may_make(&policy, name), "{name}");
    }
}

#[test]
fn people_of_directories_and_of_systemd_homed_are_found() {
    let policy = policy("  people: { each: { match: { users: '*' } } }");
    let mut all = users(&[
        (1500, "bob"),
        (60_001, "homed"),
        (574_509, "ana"),
        (600_000, ""),
        (61_184, "dynamic"),
        (999, "old"),
    ]);
    assert_eq!(found(&policy, &all), ["people/ana", "people/bob", "people/homed"]);
    all.people = People::of(b"UID_MIN 500\n", b"ana:1500:1\n");
    assert_eq!(found(&policy, &all), ["people/ana", "people/bob", "people/homed", "people/old"]);
    // A slice shows that a UID without an account is a user of the host.
    for user in all.users.values_mut() {
        user.has_slice = true;
    }
    let expanded = expand(&policy, &numbers(), &all);
    assert_eq!(expanded.outside, BTreeMap::from([("people".to_string(), vec![61_184])]));
    assert!(found(&policy, &all).contains(&"people/600000".to_string()));
}

#[test]
fn digits_in_quotes_are_the_account_with_that_name() {
    let policy = policy(
        "  a: { match: { users: [\"200\", 300, 007] } }\n  b: { match: { groups: [\"50\", 60] } }",
    );
    let look_up = |name: &str| match name {
        "200" => Some(2000),
        "50" => Some(5000),
        _ => None,
    };
    let numbers = Numbers::of(&policy, look_up, look_up);
    let user = |name: &str| numbers.user(name);
    assert_eq!(
        [user("200"), user("+300"), user("007"), user("300")],
        [Some(2000), Some(300), None, None]
    );
    assert_eq!([numbers.group("50"), numbers.group("+60")], [Some(5000), Some(60)]);
    let matches = &policy.tenants[0].matches;
    assert_eq!(matches.users, ["200", "+300", "007"]);
    let shown = format!("{:?}", Outline::of(&policy));
    assert!(shown.contains("\\\"200\\\", 300"), "{shown}");
}
