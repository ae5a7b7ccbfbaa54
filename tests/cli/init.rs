//! `tenantctl init`: what it proposes for hosts of every kind, and where it writes.

use std::fs;

use tenantctl::policy::init::{Destination, SHIPPED, destination};
use tenantctl::policy::proposal::{MOST_TENANTS, propose};
use tenantctl::policy::survey::{Survey, survey};
use tenantd_core::resource::CPU;
use tenantd_core::units::Bytes;
use tenantd_policy::accounts::Answer;
use tenantd_policy::accounts::people::People;
use tenantd_policy::report::Severity;
use tenantd_policy::{HostFacts, Policy, load_from};
use tenantd_sim::{Layout, Load, SimHost, SimKernel, Workload};

use crate::util;

const MIB: u64 = 1 << 20;

fn kernel(layout: Layout) -> SimKernel {
    SimKernel::new(SimHost { layout, ..SimHost::default() })
}

/// A process of `uid` in a cgroup that is made for it, and that holds so much.
fn run(kernel: &mut SimKernel, path: &str, uid: u32, threads: u32, mib: u64) {
    kernel.make_cgroup(path).unwrap();
    let load = Load { threads, ..Load::idle() }.with_working_set(mib * MIB);
    let load = if threads > 0 { Load::busy(threads).with_working_set(mib * MIB) } else { load };
    kernel.spawn(path, Workload::constant("load", load).owned_by(uid)).unwrap();
}

fn name(uid: u32) -> Option<String> {
    match uid {
        1000 => Some("ana".into()),
        1001 => Some("no".into()),
        1002 => Some("o'\"x: #y".into()),
        _ => None,
    }
}

fn machine() -> HostFacts {
    let find_user = |user: &str| match user {
        "ana" => Answer::Known(1000),
        "no" => Answer::Known(1001),
        _ => Answer::Missing,
    };
    let services = || {
        Some(
            ["web", "db", "cron"]
                .map(|it| format!("{it}.service"))
                .map(|it| (it.clone(), it))
                .into(),
        )
    };
    HostFacts { find_user, services, ..HostFacts::of_size(8, Bytes(16 << 30)) }
}

/// The survey and the proposal, which `check --strict` takes.
#[track_caller]
fn proposed(kernel: &mut SimKernel) -> (Survey, String, Policy) {
    kernel.advance(std::time::Duration::from_secs(20));
    let found = survey(kernel, &People::default(), name).unwrap();
    let host = machine();
    let clean = |text: &str| match load_from("proposal", text.as_bytes(), Some(&host)) {
        Ok(loaded) => (loaded.report.count(Severity::Warning) == 0).then_some(loaded.policy),
        Err(_) => None,
    };
    let text = propose(&found, |text| clean(text).is_some());
    let policy = clean(&text).unwrap_or_else(|| panic!("{text}"));
    (found, text, policy)
}

fn leaves(policy: &Policy) -> Vec<(String, String)> {
    let leaf = |(path, tenant): (String, &tenantd_policy::model::Tenant)| {
        let matches = &tenant.matches;
        (path, [&matches.units[..], &matches.users, &matches.cgroups].concat().join(" "))
    };
    policy.leaves().into_iter().map(leaf).collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect()
}

#[test]
fn the_busiest_units_and_the_people_become_tenants() {
    let mut kernel = kernel(Layout::Unified);
    run(&mut kernel, "/init.scope", 0, 0, 1);
    run(&mut kernel, "/system.slice/web.service", 33, 4, 64);
    run(
        &mut kernel,
        "/system.slice/system-postgresql.slice/postgresql@15-main.service",
        100,
        0,
        900,
    );
    run(&mut kernel, "/system.slice/cron.service", 0, 0, 1);
    run(&mut kernel, "/system.slice/systemd-journald.service", 0, 2, 900);
    run(&mut kernel, "/batch.slice/job.service", 0, 2, 10);
    run(&mut kernel, "/kubepods/pod1", 0, 1, 10);
    run(&mut kernel, "/user.slice/user-1000.slice/session-1.scope", 1000, 1, 10);
    run(&mut kernel, "/user.slice/user-0.slice/session-2.scope", 0, 1, 10);
    kernel.make_cgroup("/system.slice/empty.service").unwrap();
    let (_, text, policy) = proposed(&mut kernel);
    let expected = [
        ("web", "web.service"),
        ("batch", "batch.slice"),
        ("postgresql", "system-postgresql.slice"),
        ("people/ana", "ana"),
    ];
    let mut found = leaves(&policy);
    found.sort();
    let mut expected = owned(&expected);
    expected.sort();
    assert_eq!(found, expected, "{text}");
    assert_eq!(policy.mode, tenantd_policy::model::Mode::Observe);
    for part in ["cron.service (", "systemd-journald.service (", "/kubepods (", "user.slice"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("empty") && !text.contains("init.scope"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 120), "{text}");
}

#[test]
fn nothing_is_proposed_that_is_not_there() {
    // A service whose file is gone is a warning of `check`, and so no tenant.
    let mut kernel = kernel(Layout::Unified);
    run(&mut kernel, "/system.slice/gone.service", 0, 4, 64);
    run(&mut kernel, "/system.slice/docker-0123.scope", 0, 2, 64);
    run(&mut kernel, "/system.slice/docker-4567.scope", 0, 2, 64);
    let (found, text, policy) = proposed(&mut kernel);
    assert_eq!(found.containers.len(), 1);
    assert_eq!((&*found.containers[0].name, found.containers[0].nr_parts), ("docker-*.scope", 2));
    assert!(text.contains("gone.service ("), "{text}");
    assert_eq!(leaves(&policy), owned(&[("docker", "docker-*.scope")]), "{text}");
    assert!(!text.contains("user.slice") && !text.contains("people"), "{text}");
}

#[test]
fn where_nothing_is_busy_all_services_and_all_users_are_two_tenants() {
    let mut kernel = kernel(Layout::Unified);
    run(&mut kernel, "/system.slice/cron.service", 0, 0, 1);
    run(&mut kernel, "/user.slice/user-0.slice/session-2.scope", 0, 0, 1);
    let (_, text, policy) = proposed(&mut kernel);
    let expected = [("services", "system.slice"), ("users", "user.slice")];
    assert_eq!(leaves(&policy), owned(&expected), "{text}");
}

#[test]
fn there_are_only_so_many() {
    let mut kernel = kernel(Layout::Unified);
    for number in 0..40 {
        run(&mut kernel, &format!("/work{number}.slice"), 0, 1, 1);
    }
    run(&mut kernel, "/system.slice/cron.service", 0, 0, 1);
    let (_, text, policy) = proposed(&mut kernel);
    assert_eq!(policy.leaves().len(), MOST_TENANTS, "{text}");
    assert!(text.contains("and 21 more"), "{text}");
}

/// Names of accounts are whatever a directory service has.
#[test]
fn strange_names_are_quoted() {
    let mut kernel = kernel(Layout::Unified);
    for uid in [1000, 1001, 1002, 1003] {
        run(&mut kernel, &format!("/user.slice/user-{uid}.slice"), uid, 1, 1);
    }
    run(&mut kernel, "/system.slice/cron.service", 0, 0, 1);
    run(&mut kernel, "/a\\x2db.slice", 0, 8, 64);
    let (_, text, policy) = proposed(&mut kernel);
    assert_eq!(leaves(&policy), owned(&[("a-b", "a\\x2db.slice")]), "{text}");
    // Several people are each a tenant, whoever they are.
    let people = policy.tenants.iter().find(|tenant| tenant.name == "people").unwrap();
    let template = people.each.as_ref().unwrap();
    assert_eq!(
        (&template.matches.users[..], template.weight[CPU].get()),
        (&["*".to_string()][..], 100.0)
    );
    for name in ["ana", "no", "1003"] {
        assert!(text.contains(&format!("#   {name}, ")), "{name}: {text}");
    }
}

#[test]
fn a_name_that_is_a_word_of_yaml_is_quoted() {
    let mut kernel = kernel(Layout::Unified);
    run(&mut kernel, "/user.slice/user-1001.slice", 1001, 1, 1);
    let (_, text, policy) = proposed(&mut kernel);
    assert_eq!(leaves(&policy), owned(&[("people/no", "no")]), "{text}");
}

#[test]
fn without_units_people_are_found_by_their_processes() {
    for layout in [Layout::Legacy, Layout::Unified] {
        let mut kernel = kernel(layout);
        for _ in 0..3 {
            run(&mut kernel, "/", 1000, 1, 1);
        }
        run(&mut kernel, "/", 0, 1, 1);
        let (found, text, policy) = proposed(&mut kernel);
        assert!(!found.has_units);
        assert_eq!(leaves(&policy), owned(&[("people/ana", "ana")]), "{text}");
        assert!(text.contains("3 processes") && text.contains("are moved"), "{text}");
    }
    let (_, text, policy) = proposed(&mut kernel(Layout::Legacy));
    assert_eq!(leaves(&policy), owned(&[("jobs", "")]), "{text}");
}

#[test]
fn only_the_policy_of_the_package_is_replaced() {
    let dir = util::scratch();
    let (policies, policy) = (dir.path().join("tenantd"), dir.path().join("tenantd/policy.yaml"));
    let to = |output: Option<&str>| destination(output.map(std::path::Path::new), &policies);
    assert_eq!(to(None).unwrap(), Destination::Print, "not installed");
    fs::create_dir(&policies).unwrap();
    assert_eq!(to(None).unwrap(), Destination::New(policy.clone()));
    fs::write(&policy, SHIPPED).unwrap();
    assert_eq!(to(None).unwrap(), Destination::Replace(policy.clone()));
    assert_eq!(to(Some("-")).unwrap(), Destination::Print);
    fs::write(policies.join("notes.txt"), "").unwrap();
    assert_eq!(to(None).unwrap(), Destination::Replace(policy.clone()));
    let other = policies.join("other.yaml");
    fs::write(&other, "").unwrap();
    let refused = to(None).unwrap_err().to_string();
    assert!(refused.contains("other.yaml") && refused.contains("--output"), "{refused}");
    fs::remove_file(&other).unwrap();
    fs::write(&policy, format!("{SHIPPED}# mine\n")).unwrap();
    assert!(to(None).unwrap_err().to_string().contains("policy already"));
    let refused = to(policy.to_str()).unwrap_err().to_string();
    assert!(refused.contains("exists") && refused.contains("name another file"), "{refused}");
}

#[test]
fn the_command_writes_checks_and_refuses() {
    let dir = util::scratch();
    let path = dir.path().join("mine.yaml");
    let init = |more: &[&str]| {
        let mut command = util::tenantctl();
        command.arg("init").args(more);
        util::run(&mut command)
    };
    let ran = init(&["--output", path.to_str().unwrap()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.out.contains("valid") && ran.out.contains("mode enforce"), "{ran:?}");
    let text = fs::read_to_string(&path).unwrap();
    let mut check = util::tenantctl();
    let checked = util::run(check.args(["check", "--strict"]).arg(&path));
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let again = init(&["--output", path.to_str().unwrap()]);
    assert!(again.code == Some(1) && again.err.contains("not overwritten"), "{again:?}");
    assert_eq!(fs::read_to_string(&path).unwrap(), text);
    let printed = init(&["--output", "-"]);
    assert!(printed.out.starts_with("# Proposed") && printed.err.contains("valid"), "{printed:?}");
    let json = init(&["--output", "-", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json.out).unwrap();
    assert!(json["path"].is_null() && json["policies"][0]["valid"] == true, "{json}");
    assert!(json["policy"].as_str().is_some_and(|text| text.contains("tenants:")));
}
