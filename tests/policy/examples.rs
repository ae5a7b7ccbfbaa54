//! The policies we hand out are ones we would accept, and the schema knows what the parser knows.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::Value;
use tenantd::policy::report::Severity;
use tenantd::policy::{Diagnostic, HostFacts, SECTIONS, load, load_with_host};
use tenantd::units::Bytes;

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("policies").unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
}

/// The machine the examples are written for; it has the accounts they name.
fn server() -> HostFacts {
    HostFacts {
        cpus: (0..32).collect(),
        memory: Bytes::gib(128),
        has_user: |_| true,
        has_group: |_| true,
        units: Vec::new,
    }
}

#[test]
fn every_example_is_valid_and_says_nothing_surprising() {
    let examples = examples();
    assert!(examples.len() >= 4);
    for path in examples {
        let loaded = load_with_host(&path, &server())
            .unwrap_or_else(|report| panic!("{}: {report}", path.display()));
        assert_eq!(loaded.report.count(Severity::Warning), 0, "{}", path.display());
    }
}

/// An example is copied to machines of every size before it is read: it must be valid there as well.
#[test]
fn every_example_fits_a_small_machine() {
    let small = HostFacts { cpus: vec![0, 1], memory: Bytes::gib(4), ..server() };
    for path in examples() {
        assert!(load_with_host(&path, &small).is_ok(), "{}", path.display());
    }
}

/// At least a third of each example explains the rest.
#[test]
fn every_example_teaches() {
    for path in examples() {
        let text = std::fs::read_to_string(&path).unwrap();
        let explains = |line: &&str| line.contains("# ");
        let (comments, lines) = (text.lines().filter(explains).count(), text.lines().count());
        assert!(comments * 3 >= lines, "{}: {comments} of {lines} lines", path.display());
        let schema = "# yaml-language-server: $schema=policy.schema.json";
        assert_eq!(text.lines().next(), Some(schema), "{}", path.display());
    }
}

fn schema() -> Value {
    serde_json::from_str(&std::fs::read_to_string("policies/policy.schema.json").unwrap()).unwrap()
}

#[test]
fn the_schema_has_every_key_of_the_parser_and_no_other() {
    let schema = schema();
    for section in SECTIONS {
        let definition = match section.name {
            "policy" => &schema,
            name => &schema["$defs"][name],
        };
        let properties = definition["properties"].as_object();
        let properties = properties.unwrap_or_else(|| panic!("`{}` is not in it", section.name));
        let known: BTreeSet<&str> = section.keys.iter().copied().collect();
        let documented: BTreeSet<&str> = properties.keys().map(String::as_str).collect();
        assert_eq!(documented, known, "{}", section.name);
        assert_eq!(definition["additionalProperties"], Value::Bool(false), "{}", section.name);
        for (key, value) in properties {
            let described = value["description"].is_string();
            assert!(described, "{}.{key} has no description", section.name);
        }
    }
}

/// Each word the schema offers for a key is one that the parser takes.
#[test]
fn the_words_of_the_schema_are_the_words_of_the_parser() {
    let schema = schema();
    let words = |definition: &Value, key: &str| -> Vec<String> {
        let words = definition["properties"][key]["enum"].as_array();
        let words = words.unwrap_or_else(|| panic!("{key} has no choices"));
        words.iter().map(|word| word.as_str().unwrap().to_string()).collect()
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.yaml");
    for (section, key) in [
        ("policy", "mode"),
        ("host", "hierarchy"),
        ("control", "allocation"),
        ("control", "on_exit"),
        ("control", "on_drift"),
        ("admission", "discipline"),
        ("admission", "running"),
    ] {
        let definition = if section == "policy" { &schema } else { &schema["$defs"][section] };
        for word in words(definition, key) {
            let line = match section {
                "policy" => format!("{key}: {word}"),
                _ => format!("{section}: {{ {key}: {word} }}"),
            };
            std::fs::write(&path, format!("version: 1\n{line}\ntenants: {{ a: {{}} }}\n")).unwrap();
            assert!(load(&path).is_ok(), "{line}");
        }
        // And the parser knows no further one: its help lists them all.
        std::fs::write(
            &path,
            match section {
                "policy" => format!("version: 1\n{key}: no-such-word\ntenants: {{ a: {{}} }}\n"),
                _ => format!(
                    "version: 1\n{section}: {{ {key}: no-such-word }}\ntenants: {{ a: {{}} }}\n"
                ),
            },
        )
        .unwrap();
        let report = load(&path).unwrap_err();
        let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
        let help = report.findings().iter().find(is_error).unwrap().help.clone().unwrap();
        let listed: Vec<&str> = help.split('`').skip(1).step_by(2).collect();
        assert_eq!(listed, words(definition, key), "{section}.{key}");
    }
}
