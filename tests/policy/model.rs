//! What a policy means once it is accepted, and what `tenantctl check` says of it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use tempfile::TempDir;
use tenantd_core::disk_rate::PerRate;
use tenantd_core::resource::PerResource;
use tenantd_core::units::Weight;
use tenantd_policy::hint::listed;
use tenantd_policy::keys::{HOST, PodMatch};
use tenantd_policy::model::*;
use tenantd_policy::report::Severity;
use tenantd_policy::{load, load_text, load_with_host};
use tenantd_queue::discipline::Name;

use super::{codes, machine};

fn written(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn policy(text: &str) -> Policy {
    load_text("policy.yaml", text).unwrap_or_else(|report| panic!("{report}")).policy
}

fn weight(value: f64) -> Weight {
    Weight::try_new(value).unwrap()
}

fn leaf(name: &str, value: f64) -> Tenant {
    let weight = PerResource::all(weight(value));
    Tenant { name: name.into(), weight: weight.into(), ..Tenant::default() }
}

/// A policy with values of every kind, none at its default. `keys.rs` tries each key.
const VALUES: &str = r#"
version: 1
mode: enforce
host:
  reserve: { cpu: 500m, memory: 1GiB }
  hierarchy: unified
  root: /machine
control:
  interval: 500ms
  allocation: max-min
  oversubscription: 1.5
  on_exit: keep
  watch_policy: true
  on_drift: accept
  trim: true
  credits: { half_life: 20m, cap: 90s, keep: 12.5% }
memory: { probe: true }
admission:
  discipline: wf2q
  max_running: 12
  running: equal
administrators: { users: [root, 1000], groups: wheel }
tenants:
  web:
    weight: 300
    guarantee: { cpu: 2, memory: 4GiB }
    limit: { cpu: 8, memory: 32GiB }
    match:
      unit: nginx.service
      cgroup: [web.slice, /jobs/web-*/]
      users: 33
      groups: [www]
      pod: { namespace: shop, label: [team=core, a/b=*] }
  analytics:
    weight: { cpu: 100, memory: 50 }
    limit: { cpu: max, memory: 8GiB, pids: 4096, disk: { read: 100MiB/s, write: max, write_iops: 500 } }
    dop: { max: 16 }
    cpus: dop
    allow: { users: [ana], groups: [analysts] }
  batch: { dop: { manual: 4 }, cpus: "8,0-3,2", owner: systemd }
  idle: { credits: false }
  ci:
    weight: 100
    tenants:
      nightly: { weight: 1, dop: imci }
      pull-requests: { weight: 3, cpus: exclusive }
"#;

#[test]
#[allow(clippy::needless_update, reason = "a new key is no concern of this test")]
fn sections_have_the_values_of_the_text() {
    let policy = policy(VALUES);
    assert_eq!(policy.mode, Mode::Enforce);
    assert_eq!(
        policy.host,
        HostPolicy {
            reserve: PerResource([Amount::Absolute(500), Amount::Absolute(1 << 30)]),
            hierarchy: HierarchyChoice::Unified,
            root: RootChoice::Path(PathBuf::from("/machine")),
            ..HostPolicy::default()
        }
    );
    assert_eq!(
        policy.control,
        ControlPolicy {
            interval: Duration::from_millis(500),
            allocation: Allocation::MaxMin,
            oversubscription: 1.5,
            on_exit: OnExit::Keep,
            watch_policy: true,
            on_drift: OnDrift::Accept,
            trim: true,
            credits: Some(CreditsPolicy {
                half_life: Duration::from_secs(1200),
                cap: Duration::from_secs(90),
                keep: 0.125,
            }),
            ..ControlPolicy::default()
        }
    );
    assert_eq!(policy.memory, MemoryPolicy { probe: true, ..MemoryPolicy::default() });
    assert_eq!(policy.administrators.users, ["root", "+1000"]);
    assert_eq!(policy.administrators.groups, ["wheel"]);
    assert_eq!(
        policy.admission,
        AdmissionPolicy {
            discipline: Name::Wf2q,
            max_running: Some(12),
            running: RunningShares::Equal,
            ..AdmissionPolicy::default()
        }
    );
}

#[test]
fn tenants_have_the_values_of_the_text() {
    let absolute = |amount| Some(Amount::Absolute(amount));
    let texts = |texts: &[&str]| texts.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    let web = Tenant {
        guarantee: PerResource([absolute(2000), absolute(4 << 30)]).into(),
        limit: PerResource([absolute(8000), absolute(32 << 30)]).into(),
        matches: Matches {
            units: texts(&["nginx.service"]),
            cgroups: texts(&["/web.slice", "/jobs/web-*"]),
            users: texts(&["+33"]),
            groups: texts(&["www"]),
            pods: PodMatch { namespaces: texts(&["shop"]), labels: texts(&["team=core", "a/b=*"]) },
            moves: false,
            is_rest: false,
        },
        ..leaf("web", 300.0)
    };
    let analytics = Tenant {
        weight: PerResource([weight(100.0), weight(50.0)]).into(),
        limit: Limits {
            amounts: PerResource([None, absolute(8 << 30)]),
            pids: Some(4096),
            disk: PerRate([Some(100 << 20), None, None, Some(500)]),
        },
        dop: DopPolicy::AtMost(16),
        cpus: CpusPolicy::Dop,
        allow: Accounts { users: texts(&["ana"]), groups: texts(&["analysts"]) },
        ..leaf("analytics", 100.0)
    };
    let batch = Tenant {
        dop: DopPolicy::Manual(4),
        cpus: CpusPolicy::Fixed(vec![0, 1, 2, 3, 8]),
        owner: OwnerChoice::Systemd,
        ..leaf("batch", 100.0)
    };
    let nightly = Tenant { dop: DopPolicy::Imci, ..leaf("nightly", 1.0) };
    let pull_requests = Tenant { cpus: CpusPolicy::Exclusive, ..leaf("pull-requests", 3.0) };
    let ci = Tenant { tenants: vec![nightly, pull_requests], ..leaf("ci", 100.0) };
    let idle = Tenant { credits: false, ..leaf("idle", 100.0) };
    assert_eq!(policy(VALUES).tenants, [web, analytics, batch, idle, ci]);
}

#[test]
fn unspecified_keys_have_the_documented_default() {
    let shortest = policy("version: 1\ntenants: { web: }\n");
    let expected = Policy { tenants: vec![leaf("web", 100.0)], ..Policy::default() };
    assert_eq!(shortest, expected);
    // Sections whose every line is commented out are sections left out.
    let commented = policy("version: 1\nhost:\ncontrol:\nadmission:\ntenants: { web: {} }\n");
    assert_eq!(commented, expected);
    assert_eq!(expected.control.interval, Duration::from_secs(1));
}

#[test]
fn words_for_the_default_mean_the_default() {
    let spelt_out = policy(
        "version: 1\nmode: observe\nhost: { hierarchy: auto, root: auto }\n\
         control: { interval: 1s, allocation: drf, oversubscription: 1.0, on_exit: restore }\n\
         admission: { discipline: 2dfq-e, max_running: auto, running: multilevel }\n\
         tenants: { web: { weight: 100, cpus: shared, dop: auto } }\n",
    );
    assert_eq!(spelt_out, Policy { tenants: vec![leaf("web", 100.0)], ..Policy::default() });
}

#[test]
fn aliases_resolve_to_their_anchors() {
    let policy = policy(
        "version: 1\ntenants:\n  web: &team { weight: 7, limit: { cpu: 2 } }\n  ci: *team\n",
    );
    assert_eq!(policy.tenants[0].limit, policy.tenants[1].limit);
    assert_eq!(policy.tenants[1], Tenant { limit: policy.tenants[0].limit, ..leaf("ci", 7.0) });
}

#[test]
fn a_directory_is_merged_in_the_order_of_names() {
    let directory = written(&[
        ("20-ci.yaml", "tenants:\n  ci: {}\n"),
        ("10-base.yaml", "version: 1\nmode: enforce\ntenants:\n  web: {}\n"),
        ("README", "not read"),
        (".30-hidden.yaml", "tenants: ["),
    ]);
    let loaded = load(directory.path()).unwrap();
    let names: Vec<&str> = loaded.policy.tenants.iter().map(|tenant| &*tenant.name).collect();
    assert_eq!((names, loaded.policy.mode), (vec!["web", "ci"], Mode::Enforce));
    assert!(loaded.report.findings().is_empty());
}

#[test]
fn a_conflict_of_two_files_is_shown_in_both() {
    let directory = written(&[
        ("10.yaml", "version: 1\nmode: enforce\ntenants:\n  web: {}\n"),
        ("20.yaml", "version: 1\nmode: observe\ntenants:\n  ci: {}\n  web: {}\n"),
    ]);
    let report = load(directory.path()).unwrap_err();
    assert_eq!(codes(&report), ["P011", "P011", "P012"]);
    for finding in report.findings() {
        let files: Vec<&str> = finding
            .labels
            .iter()
            .map(|label| label.source.name().rsplit('/').next().unwrap())
            .collect();
        assert_eq!(files, ["20.yaml", "10.yaml"]);
    }
}

/// What is equal is within bounds: one case for each rule that compares.
#[test]
fn bounds_include_their_ends() {
    let text = "version: 1\nhost: { reserve: { cpu: 1 } }\ntenants:\n  \
                web: { guarantee: { cpu: 2, memory: 1GiB }, limit: { cpu: 2, memory: 1GiB } }\n  \
                ci:\n    limit: { cpu: 3 }\n    tenants:\n      \
                a: { guarantee: { cpu: 1 } }\n      b: { guarantee: { cpu: 2 } }\n  \
                wide: { dop: { manual: 7 }, limit: { cpu: 6500m } }\n  \
                least: { limit: { cpu: 10m, memory: 1MiB }, weight: 0.001 }\n";
    let directory = written(&[("policy.yaml", text)]);
    let loaded = load_with_host(&directory.path().join("policy.yaml"), &machine());
    assert!(loaded.is_ok(), "{}", loaded.unwrap_err());
    for interval in ["100ms", "60s", "1m"] {
        policy(&format!("version: 1\ncontrol: {{ interval: {interval} }}\ntenants: {{ a: }}\n"));
    }
}

/// One step beyond each bound, and what only looks like a value.
#[test]
fn what_lies_beyond_a_bound_is_refused() {
    for (section, code) in [
        ("control: { interval: 99ms }", "P024"),
        ("control: { interval: 60001ms }", "P024"),
        ("control: { interval: 1 month }", "P024"),
        ("control: { oversubscription: 0.09 }", "P026"),
        ("control: { oversubscription: 8.1 }", "P026"),
        ("control: { oversubscription: .nan }", "P026"),
        ("control: { oversubscription: nan }", "P020"),
        ("admission: { max_running: 0 }", "P026"),
        ("admission: { max_running: 100001 }", "P026"),
        ("admission: { max_running: 1.5 }", "P026"),
        ("admission: { max_running: many }", "P020"),
        ("host: { reserve: { cpu: 1000001 } }", "P022"),
        ("host: { root: /a* }", "P031"),
    ] {
        refused(&format!("version: 1\n{section}\ntenants: {{ a: }}\n"), code);
    }
    for (tenant, code) in [
        ("weight: .inf", "P025"),
        ("weight: -.inf", "P025"),
        ("weight: inf", "P020"),
        ("weight: 1000000.5", "P025"),
        ("weight: 0.0009", "P025"),
        ("limit: { cpu: 9m }", "P026"),
        ("limit: { memory: 1048575 }", "P026"),
        ("limit: { pids: 0 }", "P026"),
        ("limit: { pids: 4194305 }", "P026"),
        ("limit: { pids: 50% }", "P020"),
        ("guarantee: { pids: 5 }", "P010"),
        ("guarantee: { cpu: max }", "P022"),
        ("dop: { manual: 0 }", "P026"),
        ("dop: { max: 8193 }", "P026"),
        ("dop: widest", "P021"),
        ("cpus: 4", "P028"),
        ("cpus: sharde", "P021"),
        ("cpus: 8192-8193", "P028"),
    ] {
        refused(&format!("version: 1\ntenants: {{ a: {{ {tenant} }} }}\n"), code);
    }
}

fn refused(text: &str, code: &str) {
    let report = load_text("policy.yaml", text).expect_err(text);
    let errors: Vec<&str> = report
        .findings()
        .iter()
        .filter(|f| f.severity == Severity::Error)
        .map(|f| f.code)
        .collect();
    assert_eq!(errors, [code], "{text}");
}

#[test]
fn groups_may_nest_sixteen_deep() {
    let mut nested = "{ leaf: {} }".to_string();
    for level in (1..16).rev() {
        nested = format!("{{ g{level}: {{ tenants: {nested} }} }}");
    }
    let policy = policy(&format!("version: 1\ntenants: {nested}\n"));
    assert_eq!(policy.leaves()[0].0.split('/').count(), 16);
}

#[test]
fn guarantees_that_exactly_fill_the_machine_are_kept() {
    let text = |milli: u32| {
        format!(
            "version: 1\nhost: {{ reserve: {{ cpu: 500m }} }}\ntenants:\n  \
             a: {{ guarantee: {{ cpu: 7 }} }}\n  b: {{ guarantee: {{ cpu: {milli}m }} }}\n"
        )
    };
    let directory = written(&[("fits.yaml", &text(500)), ("over.yaml", &text(501))]);
    assert!(load_with_host(&directory.path().join("fits.yaml"), &machine()).is_ok());
    let report = load_with_host(&directory.path().join("over.yaml"), &machine()).unwrap_err();
    assert_eq!(codes(&report), ["P061"]);
}

#[test]
fn slots_follow_oversubscription() {
    let text = |factor: &str| {
        format!(
            "version: 1\ncontrol: {{ oversubscription: {factor} }}\n\
             tenants: {{ a: {{ dop: {{ manual: 12 }} }} }}\n"
        )
    };
    let directory = written(&[("fits.yaml", &text("1.5")), ("over.yaml", &text("1.4"))]);
    assert!(load_with_host(&directory.path().join("fits.yaml"), &machine()).is_ok());
    assert!(load_with_host(&directory.path().join("over.yaml"), &machine()).is_err());
}

fn check(arguments: &[&str]) -> Output {
    let mut command = Command::new(crate::programs::path("tenantctl"));
    command.arg("check").args(arguments).output().unwrap()
}

#[test]
fn check_draws_the_tree_with_each_fair_share() {
    let directory = written(&[(
        "policy.yaml",
        "version: 1\ntenants:\n  web: { weight: 300 }\n  ci:\n    weight: 100\n    tenants:\n      \
         nightly: { weight: 1 }\n      pulls: { weight: 3, limit: { memory: 64GiB } }\n",
    )]);
    let path = directory.path().join("policy.yaml");
    let output = check(&[path.to_str().unwrap()]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{text}");
    for (name, weight) in
        [("    web", "300"), ("    ci", "100"), ("      nightly", "1"), ("      pulls", "3")]
    {
        let row = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
        assert_eq!(row.split_whitespace().nth(1), Some(weight), "{text}");
        assert!(row.contains(" CPUs, "), "{text}");
    }
    assert!(text.contains(": valid, "), "{text}");
}

/// What a limit leaves over goes to the others, in the table of `check` and in the weights of the agent.
#[test]
fn check_and_the_agent_mean_the_same_by_a_fair_share() {
    use tenantd_control::share::target::{fair_shares, targets};
    use tenantd_control::{share::demand::Demand, tree};
    let text = "version: 1\ntenants: { a: { limit: { cpu: 10m } }, b: {} }\n";
    let nodes = tree::flatten(&policy(text));
    let idle = vec![Demand::UNKNOWN; nodes.len()];
    let targets = targets(&nodes, &idle, PerResource([2.0, 1e9]), Allocation::Drf);
    let bursts: Vec<f64> =
        targets.iter().map(|target| target.burst[tenantd_core::resource::CPU]).collect();
    assert_eq!(bursts, fair_shares(&nodes, 2.0, tenantd_core::resource::CPU));
    assert!((bursts[1] - 1.99).abs() < 1e-9, "{bursts:?}");
    let directory = written(&[("policy.yaml", text)]);
    let output = check(&[directory.path().to_str().unwrap()]);
    let table = String::from_utf8(output.stdout).unwrap();
    let cpus = fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
    let cpus: tenantd_dop::CpuSet = cpus.trim().parse().unwrap();
    let share = format!(" {:.2} CPUs", cpus.iter().count() as f64 - 0.01);
    let row = table.lines().find(|line| line.starts_with("    b ")).unwrap();
    assert!(row.contains(&share), "{table}");
}

#[test]
fn check_answers_each_policy_and_exits_with_the_worst() {
    let good = "policies/compute-server.yaml";
    let bad = "tests/fixtures/policy/p010-unknown-key.yaml";
    for (arguments, code) in
        [(vec![bad], 78), (vec![good, bad], 78), (vec![], 2), (vec!["--jsn", bad], 2)]
    {
        assert_eq!(check(&arguments).status.code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn check_answers_a_program_in_json() {
    let bad = "tests/fixtures/policy/p010-unknown-key.yaml";
    let output = check(&["--json", bad, "tests/fixtures/policy/p009-ignored-file"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let policy = &json["policies"][0];
    assert_eq!(output.status.code(), Some(78));
    assert_eq!((policy["path"].as_str(), policy["valid"].as_bool()), (Some(bad), Some(false)));
    assert_eq!(
        policy["findings"][0],
        serde_json::json!({
            "code": "P010",
            "severity": "error",
            "message": "unknown key `rezerve` in `host`",
            "file": bad,
            "line": 3,
            "column": 3,
            "text": "rezerve",
            "help": format!("keys here: {}", listed(HOST.iter().map(|key| key.name))),
        })
    );
    assert!(
        json["host"]["cpus"].as_u64() > Some(0) && json["host"]["memory_bytes"].as_u64() > Some(0)
    );
    let directory = &json["policies"][1];
    assert_eq!(
        (directory["valid"].as_bool(), directory["tenants"].as_u64()),
        (Some(true), Some(1))
    );
    let findings = directory["findings"].as_array().unwrap();
    let warning = findings.iter().find(|it| it["severity"] == "warning").unwrap();
    assert_eq!(warning["line"], serde_json::Value::Null);
}
