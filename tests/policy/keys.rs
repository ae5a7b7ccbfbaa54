//! The table of keys: what derives from it covers each key, and no key is listed here.

use std::fs;

use serde_json::Value;
use tenantd_policy::key::{Flag, Row, rows};
use tenantd_policy::keys::{POLICY, TENANT};
use tenantd_policy::load_text;
use tenantd_policy::outline::{Change, Outline};
use tenantd_policy::report::Severity;
use tenantd_policy::schema::schema;

/// A key that has values of its own, and a policy in which nothing but it differs from the default.
pub(crate) struct Changed {
    pub(crate) path: String,
    pub(crate) flags: Vec<Flag>,
    pub(crate) yaml: String,
    words: Vec<String>,
    of_tenant: bool,
}

/// Texts of which some value of each kind is one.
const SAMPLES: [&str; 22] = [
    "2",
    "1GiB",
    "500ms",
    "30s",
    "7d",
    "true",
    "false",
    "/x",
    "a.service",
    "ana",
    "\"0-1\"",
    "3",
    "20%",
    "imci",
    "dop",
    "rest",
    "[b, c]",
    "{ gpu: 2 }",
    "50",
    "team=core",
    "[cpu, memory, disk]",
    "{ divide: { sda: bfq } }",
];

/// A policy with one key, of the whole or of the tenant `a`.
fn policy_with(path: &str, of_tenant: bool, value: &str) -> String {
    let mut parts: Vec<&str> = path.split('.').collect();
    let last = parts.pop().unwrap();
    let mut inner = format!("{last}: {value}");
    for part in parts.iter().rev() {
        inner = format!("{part}: {{ {inner} }}");
    }
    if of_tenant {
        format!("version: 1\ntenants: {{ a: {{ {inner} }} }}\n")
    } else {
        format!("version: 1\n{inner}\ntenants: {{ a: {{}} }}\n")
    }
}

fn outline(yaml: &str) -> Option<Outline> {
    load_text("policy.yaml", yaml).ok().map(|loaded| Outline::of(&loaded.policy))
}

fn changes(yaml: &str) -> Option<Vec<Change>> {
    let plain = outline("version: 1\ntenants: { a: {} }\n").unwrap();
    Some(plain.changes_to(&outline(yaml)?))
}

/// Every key with a value of its own that differs from its default.
pub(crate) fn changed() -> Vec<Changed> {
    fn walk(
        prefix: &str,
        above: &[Flag],
        of_tenant: bool,
        rows: Vec<Row>,
        into: &mut Vec<Changed>,
    ) {
        for row in rows {
            let path = format!("{prefix}{}", row.name);
            let flags: Vec<Flag> = above.iter().chain(row.flags).copied().collect();
            let words = row.words();
            let has_values = !row.schema["const"].is_number() && row.schema["$ref"].is_null();
            if has_values && (row.rows.is_empty() || !row.schema["anyOf"].is_null()) {
                let candidates = words.iter().map(String::as_str).chain(SAMPLES);
                let yaml = candidates
                    .map(|value| policy_with(&path, of_tenant, value))
                    .find(|yaml| changes(yaml).is_some_and(|changes| !changes.is_empty()))
                    .unwrap_or_else(|| panic!("no value of `{path}` shows as a difference"));
                let (path, flags) = (path.clone(), flags.clone());
                into.push(Changed { path, flags, yaml, words, of_tenant });
            }
            walk(&format!("{path}."), &flags, of_tenant, row.rows, into);
        }
    }
    let mut changed = Vec::new();
    walk("", &[], false, rows(POLICY), &mut changed);
    walk("", &[], true, rows(TENANT), &mut changed);
    assert!(changed.len() > 20);
    changed
}

/// `diff` and `reload` compare outlines: a key that is missing there is a change that is not shown.
#[test]
fn changing_any_key_shows_as_one_difference() {
    for Changed { path, yaml, of_tenant, .. } in changed() {
        let changes = changes(&yaml).unwrap();
        let [change] = &changes[..] else { panic!("{path}: {changes:?}") };
        let key = change.key.as_deref().unwrap();
        // A map with one entry may be shown as one value: `dop: at most 2` for `dop.max`.
        assert!(path == key || path.starts_with(&format!("{key}.")), "{path} shown as {key}");
        assert_eq!(change.tenant.as_deref(), of_tenant.then_some("a"), "{path}");
        assert!(change.to.is_some() && change.from.is_none(), "{path}: {change:?}");
    }
}

#[test]
fn the_reader_takes_every_word_of_the_table_and_lists_them_all() {
    let with_words = changed().into_iter().filter(|key| !key.words.is_empty());
    for Changed { path, words, of_tenant, .. } in with_words {
        for word in &words {
            let yaml = policy_with(&path, of_tenant, word);
            assert!(outline(&yaml).is_some(), "{yaml}");
        }
        let report =
            load_text("policy.yaml", &policy_with(&path, of_tenant, "no-such-word")).unwrap_err();
        let error = report.findings().iter().find(|finding| finding.severity == Severity::Error);
        let help = error.unwrap().help.clone().unwrap();
        let listed: Vec<&str> = help.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed, words, "{path}");
    }
}

#[test]
fn a_key_of_leaves_is_refused_in_a_group() {
    for Changed { path, flags, yaml, of_tenant, .. } in changed() {
        if of_tenant {
            let group = yaml.replace(" } }\n", ", tenants: { b: {} } } }\n");
            let is_refused = load_text("policy.yaml", &group).is_err();
            assert_eq!(is_refused, flags.contains(&Flag::Leaf), "{path}: {group}");
        }
    }
}

/// Every key at the top and of a tenant is needed, or has a default that a text may leave out.
#[test]
fn a_missing_key_is_reported_if_it_is_needed() {
    let whole = [("version", "version: 1\n"), ("tenants", "tenants: { a: {} }\n")];
    for row in rows(POLICY) {
        let rest: String =
            whole.iter().filter(|(key, _)| *key != row.name).map(|(_, text)| *text).collect();
        let report = load_text("policy.yaml", &rest);
        let is_needed = row.flags.iter().any(|flag| matches!(flag, Flag::Needed(_)));
        assert_eq!(report.is_err(), is_needed, "{}", row.name);
    }
}

/// `tenantctl generate schema` wrote the file; after a change of the table, do it again.
#[test]
fn the_schema_of_the_examples_is_the_generated_one() {
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    let path = "policies/policy.schema.json";
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        fs::write(path, &text).unwrap();
    }
    assert_eq!(fs::read_to_string(path).unwrap(), text, "run `tenantctl generate schema > {path}`");
}

#[test]
fn the_schema_describes_every_key_and_takes_no_other() {
    fn holds(definition: &Value, rows: &[Row]) {
        let properties = definition["properties"].as_object().unwrap();
        assert_eq!(properties.len(), rows.len());
        assert_eq!(definition["additionalProperties"], Value::Bool(false));
        for row in rows {
            let property = &properties[row.name];
            assert!(property["description"].as_str().unwrap().ends_with('.'), "{}", row.name);
            if !row.rows.is_empty() {
                let alternatives = property["anyOf"].as_array().into_iter().flatten();
                let map = alternatives.chain([property]).find(|it| it["properties"].is_object());
                holds(map.unwrap(), &row.rows);
            }
        }
    }
    let schema = schema();
    holds(&schema, &rows(POLICY));
    holds(&schema["$defs"]["tenant"], &rows(TENANT));
}
