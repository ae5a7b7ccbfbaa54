//! `tenantctl metrics`: the values are those of the status, in texts that parsers accept.

use std::fs;
use std::process::Stdio;

use tenantctl::show::metrics::{METRICS, UP, openmetrics, prometheus};
use tenantd_control::report::status::{GroupStatus, Status, TenantStatus};

use super::daemon::{Daemon, nobody, status};
use super::openmetrics::read;
use crate::util;

#[test]
fn the_values_are_those_of_the_status() {
    let families = read(&openmetrics(Some(&status()))).unwrap();
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
    assert_eq!(of("tenantd_tenant_cpu_missing_cores", "analytics"), Some(0.9));
    assert_eq!(of("tenantd_tenant_starvation_episodes", "analytics"), Some(3.0));
    assert_eq!(of("tenantd_tenant_throttling_seconds", "analytics"), Some(0.0));
    assert_eq!(of("tenantd_tenant_throttling_seconds", "web"), None, "it was not counted");
    assert_eq!(one("tenantd_fairness_jain_ratio"), 0.973);
    assert_eq!(one("tenantd_fairness_share_error_max_ratio"), 0.11);
    assert_eq!(one("tenantd_fairness_convergence_seconds"), 4.0);
    assert_eq!(one("tenantd_drift"), 3.0);
    assert_eq!(one("tenantd_yields"), 2.0);
    assert_eq!(one("tenantd_contested_values"), 0.0);
    assert_eq!(one("tenantd_ineffective_values"), 1.0);
    assert_eq!(one("tenantd_findings"), 1.0);
    assert_eq!(one("tenantd_agent_cpu_seconds"), 0.4);
    assert_eq!(one("tenantd_agent_resident_bytes"), (5 << 20) as f64);
    assert_eq!(one("tenantd_agent_tick_duration_seconds"), 0.0011);
    assert_eq!(one("tenantd_agent_longest_tick_seconds"), 0.0093);
    assert_eq!(one("tenantd_agent_tick_late_seconds"), 0.0002);
    assert_eq!(one("tenantd_agent_skipped_ticks"), 6.0);
    let version = format!("{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(families["tenantd_build"].samples[&version], 1.0);
    assert_eq!(one("tenantd_last_tick_timestamp_seconds"), 1_893_553_445.678);
    assert_eq!(of("tenantd_tenant_cpu_usage_seconds", "web"), Some(310.0));
    assert_eq!(of("tenantd_tenant_cpu_pressure_seconds", "web"), Some(12.5));
    assert_eq!(of("tenantd_tenant_cpu_would_get_cores", "web"), Some(6.0));
    assert_eq!((one("tenantd_jobs_waiting"), one("tenantd_jobs_running")), (3.0, 2.0));
    assert_eq!((one("tenantd_jobs_slots"), one("tenantd_jobs_slots_free")), (8.0, 3.0));
    let waiting_for = &families["tenantd_jobs_waiting_for"].samples;
    assert_eq!(waiting_for.len(), 2);
    assert_eq!((waiting_for["{kind=\"slots\"}"], waiting_for["{kind=\"turn\"}"]), (1.0, 2.0));
    let nightly = |name: &str| of(name, "ci/nightly").unwrap();
    assert_eq!(nightly("tenantd_tenant_jobs_waiting"), 3.0);
    assert_eq!(nightly("tenantd_tenant_jobs_running"), 2.0);
    assert_eq!(nightly("tenantd_tenant_jobs_dop"), 5.0);
    assert_eq!(nightly("tenantd_tenant_jobs_longest_wait_seconds"), 61.0);
    assert_eq!(nightly("tenantd_tenant_jobs_started"), 17.0);
    assert_eq!(nightly("tenantd_tenant_jobs_wait_seconds"), 34.5);
    assert_eq!(of("tenantd_tenant_jobs_waiting", "web"), None, "it never had a job");
    let group = |name: &str| families[name].samples["{group=\"ci\"}"];
    assert_eq!(group("tenantd_group_cpu_usage_cores"), 0.9);
    assert_eq!(group("tenantd_group_cpu_allocation_cores"), 1.2);
    assert_eq!(group("tenantd_group_tenants"), 2.0);
}

#[test]
fn an_absent_value_has_no_sample() {
    let families = read(&openmetrics(Some(&status()))).unwrap();
    let unread = "{tenant=\"ci/pull-requests\"}";
    for name in ["tenantd_tenant_cpu_usage_cores", "tenantd_tenant_oom_kills", "tenantd_tenant_dop"]
    {
        assert!(!families[name].samples.contains_key(unread), "{name}");
        assert_eq!(families[name].samples.len(), 3, "{name}");
    }
    assert_eq!(families["tenantd_tenant_cpu_limit_cores"].samples.len(), 1);
    assert!(!families.contains_key("tenantd_tenant_memory_guarantee_bytes"), "no tenant has one");
    let strange =
        Status { jain_index: Some(f64::NAN), max_share_error: Some(f64::INFINITY), ..status() };
    let families = read(&openmetrics(Some(&strange))).unwrap();
    assert!(!families.contains_key("tenantd_fairness_jain_ratio"));
    assert!(!families.contains_key("tenantd_fairness_share_error_max_ratio"));
}

#[test]
fn a_name_of_any_letters_stays_one_label() {
    let tenant = TenantStatus { name: "a\"b\\c\nd".into(), ..TenantStatus::default() };
    let told = openmetrics(Some(&Status { tenants: vec![tenant], ..Status::default() }));
    let families = read(&told).unwrap();
    let labels: Vec<&String> = families["tenantd_tenant_weight"].samples.keys().collect();
    assert_eq!(labels, ["{tenant=\"a\\\"b\\\\c\\nd\"}"]);
}

#[test]
fn a_daemon_that_does_not_answer_is_a_measurement() {
    let dir = util::scratch();
    let output = dir.path().join("tenantd.prom");
    fs::write(&output, "old").unwrap();
    let mut command = util::tenantctl();
    command.args(["metrics", "--socket"]).arg(nobody(dir.path()));
    let ran = util::run(&mut command).exits(69).says("systemctl start tenantd");
    assert!(ran.out.ends_with("# TYPE tenantd_up gauge\ntenantd_up 0.0\n"), "{}", ran.out);
    assert_eq!(ran.out.lines().count(), 3, "no other metric");
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
    assert_eq!(fs::read_to_string(&output).unwrap(), prometheus(Some(&status())));
    util::run(command.args(["--format", "openmetrics"])).exits(0);
    assert_eq!(fs::read_to_string(&output).unwrap(), openmetrics(Some(&status())));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing stays beside it");
    let nowhere = dir.path().join("no-such-directory/x.prom");
    let mut command = util::tenantctl();
    command.args(["metrics", "--socket"]).arg(&daemon.socket).arg("--output").arg(nowhere);
    util::run(&mut command).exits(1).says_in_one_line("cannot write the metrics");
}

#[test]
fn every_metric_is_documented_and_no_other() {
    let text = fs::read_to_string("docs/metrics.md").unwrap();
    let documented: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| `tenantd_")).collect();
    let rows = [&UP].into_iter().chain(METRICS.iter()).map(|metric| {
        let kind = format!("{:?}", metric.kind).to_lowercase();
        format!("| `{}` | {kind} | {} | {} |", metric.full_name(), metric.label(), metric.help)
    });
    let rows: Vec<String> = rows.collect();
    assert!(documented == rows, "the table of docs/metrics.md has to be:\n{}", rows.join("\n"));
}

/// Lines of a text that are samples.
fn samples(text: &str) -> Vec<&str> {
    text.lines().filter(|line| !line.starts_with('#')).collect()
}

#[test]
fn both_formats_have_the_same_samples_with_the_names_of_their_format() {
    let (open, older) = (openmetrics(Some(&status())), prometheus(Some(&status())));
    assert_eq!(samples(&open), samples(&older));
    for (name, kind) in [
        ("tenantd_tenant_cpu_usage_seconds_total", "counter"),
        ("tenantd_tenant_cpu_usage_cores", "gauge"),
        ("tenantd_build_info", "gauge"),
    ] {
        assert!(older.contains(&format!("# TYPE {name} {kind}\n")), "{older}");
        assert!(older.contains(&format!("# HELP {name} ")), "{older}");
    }
    assert!(!older.contains("# UNIT") && !older.contains("# EOF"), "{older}");
}

/// The number of series does not grow with the users of a host.
#[test]
fn of_many_that_were_found_the_first_have_series() {
    let found = |number: usize| {
        let name = format!("people/u{number:04}");
        TenantStatus { name: name.into(), found: true, ..TenantStatus::default() }
    };
    let named = TenantStatus { name: "people/zoe".into(), ..TenantStatus::default() };
    let tenants = (0..1000).map(found).chain([named]).collect();
    let people = GroupStatus { name: "people".into(), nr_found: 1000, ..GroupStatus::default() };
    let text = openmetrics(Some(&Status { tenants, groups: vec![people], ..Status::default() }));
    let series = text.lines().filter(|line| line.starts_with("tenantd_tenant_weight{"));
    let names: Vec<&str> = series.filter_map(|line| line.split('"').nth(1)).collect();
    assert_eq!(
        (names.len(), names[0], names[99], names[100]),
        (101, "people/u0000", "people/u0099", "people/zoe")
    );
    assert!(text.contains("tenantd_group_tenants_without_series{group=\"people\"} 900"));
}

/// The reader of OpenMetrics is ours; this one is Prometheus's, where it is installed. Every output of the program
/// in its default format passes without a remark: a full tick, an empty one, and a daemon that does not answer.
#[test]
fn promtool_has_no_remark() {
    let name = TenantStatus { name: "a\"b\\c\nd".into(), ..TenantStatus::default() };
    let strange = Status { tenants: vec![name], ..Status::default() };
    for status in [Some(&status()), Some(&Status::default()), Some(&strange), None] {
        let Some(mut promtool) = util::optional("promtool", "prometheus") else { return };
        let check = promtool.args(["check", "metrics"]).stdin(Stdio::piped());
        let mut child = check.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let text = prometheus(status);
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), text.as_bytes()).unwrap();
        let ran = util::finish(child);
        assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (Some(0), "", ""), "{text}");
    }
}
