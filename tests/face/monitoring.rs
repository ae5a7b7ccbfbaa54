//! The dashboard and the alert rules name existing metrics only.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tenantctl::show::metrics::{METRICS, UP};

use crate::util;

const DASHBOARD: &str = "packaging/monitoring/tenantd.dashboard.json";
const RULES: &str = "packaging/monitoring/tenantd.rules.yaml";

/// The words of a text that are names of metrics of ours.
fn named(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("tenantd_"))
        .map(str::to_string)
        .collect()
}

fn known() -> BTreeSet<String> {
    [&UP].into_iter().chain(METRICS.iter()).map(|metric| metric.full_name()).collect()
}

/// Every string below the key `key`.
fn below<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(text) if name == key => found.push(text),
                    _ => below(value, key, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| below(item, key, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_names_existing_metrics_only() {
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(DASHBOARD).unwrap()).unwrap();
    let mut queries = Vec::new();
    below(&dashboard, "expr", &mut queries);
    assert!(queries.len() > 15);
    below(&dashboard, "query", &mut queries);
    let used: BTreeSet<String> = queries.iter().flat_map(|query| named(query)).collect();
    let unknown: Vec<_> = used.difference(&known()).cloned().collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    let mut ids = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let place = &panel["gridPos"];
        assert!(place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap() <= 24, "{panel}");
    }
}

#[test]
fn the_alerts_name_existing_metrics_only() {
    for path in [RULES, "packaging/monitoring/tenantd.rules.test.yaml"] {
        let text = fs::read_to_string(path).unwrap();
        let unknown: Vec<_> = named(&text).difference(&known()).cloned().collect();
        assert!(unknown.is_empty(), "{path}: {unknown:?}");
    }
    // There is an alert for each kind of unfairness.
    let text = fs::read_to_string(RULES).unwrap();
    for metric in [
        "tenantd_up",
        "tenantd_tenant_share_error_ratio",
        "tenantd_tenant_starvation_seconds_total",
    ] {
        assert!(named(&text).contains(metric), "{metric}");
    }
}

#[test]
fn promtool_takes_the_rules_and_their_tests_pass() {
    for (what, path) in [("check", RULES), ("test", "packaging/monitoring/tenantd.rules.test.yaml")]
    {
        let Some(mut promtool) = util::optional("promtool", "prometheus") else { return };
        util::run(promtool.args([what, "rules", path])).exits(0);
    }
}

#[test]
fn every_query_of_the_dashboard_is_one() {
    let Some(mut promtool) = util::optional("promtool", "prometheus") else { return };
    let dashboard: Value = serde_json::from_str(&fs::read_to_string(DASHBOARD).unwrap()).unwrap();
    let mut queries = Vec::new();
    below(&dashboard, "expr", &mut queries);
    let rules = queries.iter().enumerate().map(|(index, query)| {
        let query = query.replace("$__rate_interval", "1m");
        format!("  - {{ record: 'q{index}', expr: '{}' }}\n", query.replace('\'', "''"))
    });
    let file = format!("groups:\n- name: q\n  rules:\n{}", rules.collect::<String>());
    let dir = util::scratch();
    let path = util::file(dir.path(), "rules.yaml", file);
    util::run(promtool.args(["check", "rules"]).arg(path)).exits(0);
}
