//! The example policies are valid, on the machines they are written for and on small ones.

use std::path::PathBuf;

use tenantd_core::units::Bytes;
use tenantd_policy::report::Severity;
use tenantd_policy::{HostFacts, load_with_host};

fn examples() -> Vec<PathBuf> {
    let entries = std::fs::read_dir("policies").unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
}

/// The machine the examples are written for; it has the accounts they name.
fn server() -> HostFacts {
    HostFacts::of_size(32, Bytes::gib(128))
}

#[test]
fn every_example_is_valid_without_unexpected_findings() {
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
    let small = HostFacts::of_size(2, Bytes::gib(4));
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
