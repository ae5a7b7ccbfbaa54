//! `tenantctl metrics`: what is told is what the status holds, in a text that parsers take.

use std::collections::BTreeSet;
use std::fs;
use std::process::Stdio;

use tenantd::cli::metrics::{METRICS, UP, exposition};
use tenantd::control::status::{Status, TenantStatus};

use super::daemon::{Daemon, nobody, status};
use super::openmetrics::read;
use crate::util;

#[test]
fn what_is_told_is_what_the_status_holds() {
    let families = read(&exposition(Some(&status()))).unwrap();
    let one = |name: &str| families[name].samples[""];
    let of = |name: &str, tenant: &str| {
        families[name].samples.get(&format!("{{tenant=\"{tenant}\"}}")).copied()
    };
    assert_eq!(one("tenantd_up"), 1.0);
    assert_eq!(one("tenantd_enforcing"), 1.0);
    assert_eq!(one("tenantd_ticks"), 42.0);
    assert_eq!(one("tenantd_host_cpu_outside_cores"), 0.31);
    assert_eq!(of("tenantd_tenant_cpu_usage_cores", "web"), Some(3.1));
    assert_eq!(of("tenantd_tenant_cpu_demand_cores", "web"), Some(6.0));
    assert_eq!(of("tenantd_tenant_cpu_allocation_cores", "web"), Some(3.4));
    assert_eq!(of("tenantd_tenant_weight", "ci/nightly"), Some(25.0));
    assert_eq!(of("tenantd_tenant_dop", "analytics"), Some(3.0));
    assert_eq!(of("tenantd_tenant_share_error_ratio", "analytics"), Some(0.11));
    assert_eq!(of("tenantd_tenant_starvation_seconds", "analytics"), Some(12.0));
    assert_eq!(of("tenantd_tenant_oom_kills", "analytics"), Some(2.0));
    assert_eq!(one("tenantd_fairness_jain_ratio"), 0.973);
    assert_eq!(one("tenantd_fairness_share_error_max_ratio"), 0.11);
    assert_eq!(one("tenantd_fairness_convergence_seconds"), 4.0);
    assert_eq!(one("tenantd_drift"), 3.0);
    assert_eq!(one("tenantd_ineffective_values"), 1.0);
    assert_eq!(one("tenantd_findings"), 1.0);
    assert_eq!(one("tenantd_agent_cpu_seconds"), 0.4);
    assert_eq!(one("tenantd_agent_resident_bytes"), (5 << 20) as f64);
    assert_eq!(one("tenantd_agent_tick_duration_seconds"), 0.0011);
    assert_eq!(one("tenantd_agent_tick_late_seconds"), 0.0002);
}

#[test]
fn what_could_not_be_read_has_no_sample() {
    let families = read(&exposition(Some(&status()))).unwrap();
    let unread = "{tenant=\"ci/pull-requests\"}";
    for name in ["tenantd_tenant_cpu_usage_cores", "tenantd_tenant_oom_kills", "tenantd_tenant_dop"]
    {
        assert!(!families[name].samples.contains_key(unread), "{name}");
        assert_eq!(families[name].samples.len(), 3, "{name}");
    }
    assert_eq!(families["tenantd_tenant_cpu_limit_cores"].samples.len(), 1);
    assert!(!families.contains_key("tenantd_tenant_memory_guarantee_bytes"), "nobody has one");
    let strange =
        Status { jain_index: Some(f64::NAN), max_share_error: Some(f64::INFINITY), ..status() };
    let families = read(&exposition(Some(&strange))).unwrap();
    assert!(!families.contains_key("tenantd_fairness_jain_ratio"));
    assert!(!families.contains_key("tenantd_fairness_share_error_max_ratio"));
}

#[test]
fn a_name_of_any_letters_stays_one_label() {
    let tenant = TenantStatus { name: "a\"b\\c\nd".into(), ..TenantStatus::default() };
    let told = exposition(Some(&Status { tenants: vec![tenant], ..Status::default() }));
    let families = read(&told).unwrap();
    let labels: Vec<&String> = families["tenantd_tenant_weight"].samples.keys().collect();
    assert_eq!(labels, ["{tenant=\"a\\\"b\\\\c\\nd\"}"]);
}

#[test]
fn a_daemon_that_is_away_is_a_measurement() {
    let dir = util::scratch();
    let output = dir.path().join("tenantd.prom");
    fs::write(&output, "old").unwrap();
    let mut command = util::tenantctl();
    command.args(["metrics", "--socket"]).arg(nobody(dir.path()));
    let ran = util::run(&mut command).exits(69).says("systemctl start tenantd");
    let families = read(&ran.out).unwrap();
    assert_eq!((families.len(), families["tenantd_up"].samples[""]), (1, 0.0));
    util::run(command.arg("--output").arg(&output)).exits(69);
    assert_eq!(fs::read_to_string(&output).unwrap(), ran.out, "no old figure outlives the daemon");
}

#[test]
fn a_file_is_replaced_in_one_step() {
    let daemon = Daemon::with(status());
    let dir = util::scratch();
    let output = dir.path().join("tenantd.prom");
    let mut command = util::tenantctl();
    command.args(["metrics", "--socket"]).arg(&daemon.socket).arg("--output").arg(&output);
    util::run(&mut command).exits(0);
    assert_eq!(read(&fs::read_to_string(&output).unwrap()).unwrap()["tenantd_up"].samples[""], 1.0);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing stays beside it");
    let nowhere = dir.path().join("no-such-directory/x.prom");
    let mut command = util::tenantctl();
    command.args(["metrics", "--socket"]).arg(&daemon.socket).arg("--output").arg(nowhere);
    util::run(&mut command).exits(1).says_in_one_line("cannot write the metrics");
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let documented: BTreeSet<String> = fs::read_to_string("docs/metrics.md")
        .unwrap()
        .lines()
        .filter_map(|line| line.strip_prefix("| `tenantd_")?.strip_suffix(" |"))
        .map(|row| format!("tenantd_{}", row.replace('`', "")))
        .collect();
    let all = [&UP].into_iter().chain(METRICS).map(|metric| {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        let labels = if metric.is_per_tenant() { "tenant" } else { "" };
        format!("{} | {kind} | {labels} | {}", metric.full_name(), metric.help)
    });
    let all: BTreeSet<String> = all.collect();
    let lacking: Vec<_> = all
        .difference(&documented)
        .map(|row| format!("| `{}` |", row.replacen(" |", "` |", 1).trim_end_matches('`')))
        .collect();
    let wrong: Vec<_> = documented.difference(&all).collect();
    assert!(
        lacking.is_empty() && wrong.is_empty(),
        "lacking:\n{}\nwrong: {wrong:#?}",
        lacking.join("\n")
    );
}

/// The reader above is ours; this one is Prometheus's, where it is installed.
#[test]
fn promtool_takes_the_text() {
    let Some(mut promtool) = util::optional("promtool", "prometheus") else { return };
    let mut child = promtool
        .args(["check", "metrics", "--extended"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(
        &mut child.stdin.take().unwrap(),
        exposition(Some(&status())).as_bytes(),
    )
    .unwrap();
    let ran = util::finish(child);
    // It reads the older text format, in which the name of a counter's family has `_total` at its end.
    let serious: Vec<&str> = ran
        .err
        .lines()
        .filter(|line| !line.contains("no help text") && !line.contains("should have \"_total\""))
        .collect();
    assert!(serious.is_empty() && ran.out.contains("tenantd_up"), "{}{}", ran.out, ran.err);
}
