//! Percentages of the machine: how they are read, shown and judged.

use tenantd_control::tree;
use tenantd_core::resource::{CPU, MEMORY, PerResource};
use tenantd_core::units::Bytes;
use tenantd_policy::model::{Amount, Policy};
use tenantd_policy::outline::Outline;
use tenantd_policy::{HostFacts, load_from, load_text};

/// Of eight CPUs and 16 GiB.
const PERCENT: &str = "version: 1\nhost: { reserve: { cpu: 12.5%, memory: 1GiB } }\ntenants:\n  \
    web: { guarantee: { cpu: 25%, memory: 10% }, limit: { cpu: \"50%\", memory: 75% } }\n";

fn of_size(cpus: u32, gib: u64) -> HostFacts {
    HostFacts::of_size(cpus, Bytes::gib(gib))
}

/// The codes of the findings on a machine.
fn codes(text: &str, host: &HostFacts) -> Vec<&'static str> {
    let report = match load_from("policy.yaml", text.as_bytes(), Some(host)) {
        Ok(loaded) => loaded.report,
        Err(report) => report,
    };
    let mut codes: Vec<&str> = report.findings().iter().map(|finding| finding.code).collect();
    codes.sort_unstable();
    codes
}

fn policy(text: &str) -> Policy {
    load_text("policy.yaml", text).unwrap_or_else(|report| panic!("{report}")).policy
}

#[test]
fn a_percentage_is_kept_as_written_and_resolved_for_a_machine() {
    let policy = policy(PERCENT);
    let machine = of_size(8, 16).machine();
    assert_eq!(
        Amount::of_each(&policy.host.reserve, machine),
        PerResource([1.0, (1_u64 << 30) as f64])
    );
    let nodes = tree::flatten(&policy);
    assert_eq!(nodes[0].limit, PerResource([None, None]), "resolved without a machine");
    let nodes = tree::on_machine(&policy, machine);
    assert_eq!(nodes[0].limit, PerResource([Some(4.0), Some((12_u64 << 30) as f64)]));
    assert_eq!(nodes[0].guarantee[CPU], Some(2.0));
    let shown: Vec<(&str, String)> = vec![("cpu", "50%".into()), ("memory", "75%".into())];
    let written = nodes[0].written.limit.amounts;
    let again: Vec<(&str, String)> =
        written.iter().map(|(r, amount)| (r.name(), amount.unwrap().notation(r))).collect();
    assert_eq!(again, shown);
}

#[test]
fn a_difference_shows_percentages_as_written() {
    let plain = PERCENT.replace("75%", "12GiB");
    let (from, to) = (Outline::of(&policy(PERCENT)), Outline::of(&policy(&plain)));
    let changes = from.changes_to(&to);
    let [change] = &changes[..] else { panic!("{changes:?}") };
    assert_eq!(change.to_string(), "web: limit.memory: 75% -> 12GiB");
    let settings: Vec<String> =
        from.settings.iter().map(|it| format!("{}: {}", it.key, it.value)).collect();
    assert_eq!(settings, ["host.reserve.cpu: 12.5%", "host.reserve.memory: 1GiB"]);
}

/// What the rules say of percentages depends on the machine, and only where it does.
#[test]
fn percentages_are_judged_for_the_machine() {
    let (small, large) = (of_size(1, 1), of_size(100, 1024));
    for (text, on_small, on_large) in [
        ("tenants: { a: { limit: { cpu: 0.5% } } }", vec!["P026"], vec![]),
        ("tenants: { a: { limit: { memory: 0.05% } } }", vec!["P026"], vec![]),
        (
            "tenants: { a: { guarantee: { memory: 2GiB }, limit: { memory: 75% } } }",
            vec!["P050", "P061"],
            vec![],
        ),
        (
            "tenants: { a: { guarantee: { cpu: 60% }, limit: { cpu: 50% } } }",
            vec!["P050"],
            vec!["P050"],
        ),
        (
            "tenants: { a: { guarantee: { cpu: 60% } }, b: { guarantee: { cpu: 41% } } }",
            vec!["P061"],
            vec!["P061"],
        ),
        (
            "tenants: { a: { guarantee: { cpu: 60% } }, b: { guarantee: { cpu: 40% } } }",
            vec![],
            vec![],
        ),
        (
            "tenants: { g: { guarantee: { cpu: 50% }, tenants: { a: { guarantee: { cpu: 1 } } } } }",
            vec!["P055"],
            vec![],
        ),
        (
            "tenants: { g: { limit: { cpu: 50% }, tenants: { a: { guarantee: { cpu: 1 } } } } }",
            vec!["P051"],
            vec![],
        ),
        (
            "tenants: { a: { dop: { manual: 2 }, limit: { cpu: 2% } } }",
            vec!["P053", "P062"],
            vec![],
        ),
        ("host: { reserve: { cpu: 100% } }\ntenants: { a: {} }", vec!["P060"], vec!["P060"]),
    ] {
        let text = format!("version: 1\n{text}\n");
        assert_eq!(codes(&text, &small), on_small, "{text}");
        assert_eq!(codes(&text, &large), on_large, "{text}");
        // Without a machine nothing is said that might be wrong.
        let unknown = load_text("policy.yaml", &text);
        assert!(unknown.is_ok(), "{text}: {}", unknown.unwrap_err());
    }
}

/// The machine may shrink after the policy was checked: what is guaranteed then still fits into the limits.
#[test]
fn guarantees_are_cut_to_limits_that_shrank() {
    let text = "version: 1\ntenants:\n  g:\n    limit: { memory: 50% }\n    tenants:\n      \
        a: { guarantee: { memory: 3GiB } }\n      b: { guarantee: { memory: 1GiB } }\n  c: {}\n";
    let policy = policy(text);
    let gib = |gib: f64| Some(gib * (1_u64 << 30) as f64);
    let held = |nodes: &[tree::TreeNode]| {
        let each = nodes.iter().map(|node| node.guarantee[MEMORY]);
        each.collect::<Vec<_>>()
    };
    let mut nodes = tree::flatten(&policy);
    assert_eq!(tree::fit(&mut nodes, of_size(8, 4).machine()), [0]);
    assert_eq!(held(&nodes), [None, gib(1.5), gib(0.5), None]);
    // And in full again on a machine that has the memory.
    assert_eq!(tree::fit(&mut nodes, of_size(8, 8).machine()), [0; 0]);
    assert_eq!(held(&nodes), [None, gib(3.0), gib(1.0), None]);
    assert_eq!(nodes[1].written.guarantee[MEMORY], Some(Amount::Absolute(3 << 30)));
}

/// Huge pages come and go while the host runs: a policy that was valid stays so.
#[test]
fn guarantees_that_huge_pages_leave_no_room_for_are_a_warning() {
    let text = "version: 1\ntenants:\n  db: { guarantee: { memory: 60% } }\n  rest: {}\n";
    let found = |gib: u64| {
        let host = HostFacts { huge_pages: Bytes::gib(gib), ..of_size(8, 24) };
        let loaded = load_from("policy.yaml", text.as_bytes(), Some(&host)).unwrap();
        let findings = loaded.report.findings();
        findings.iter().map(|it| (it.code, it.message.clone())).collect::<Vec<_>>()
    };
    assert_eq!(found(9), []);
    let findings = found(16);
    let [("P061", message)] = &findings[..] else { panic!("{findings:?}") };
    assert!(message.contains("8GiB beside huge pages of 16GiB"), "{message}");
}
