//! `tenantctl check` for other machines, from standard input, and strict.

use std::io::Write;
use std::process::{Command, Output, Stdio};

const PERCENT: &str =
    "version: 1\ntenants:\n  web: { limit: { cpu: 25%, memory: 8GiB } }\n  ci: {}\n";
/// Ends with a warning: the second file of the directory is not read.
const WARNED: &str = "tests/fixtures/policy/p009-ignored-file";
/// Ends with a note.
const NOTED: &str = "tests/fixtures/policy/p029-partial-weight.yaml";

fn check(arguments: &[&str], input: &str) -> (Option<i32>, String) {
    let mut command = Command::new(crate::programs::path("tenantctl"));
    command.arg("check").args(arguments).stdin(Stdio::piped());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // The command may end before it reads all of it.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = [stdout, stderr].concat();
    (status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn a_policy_is_checked_for_another_machine() {
    let (code, text) = check(&["--host", "cpus=64,memory=256GiB", "-"], PERCENT);
    assert_eq!(code, Some(0), "{text}");
    for part in [
        "standard input: valid, 1 note\n",
        "16 CPUs (25%), 8GiB",
        "a machine with",
        "64 CPUs and 256GiB",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let guaranteed = PERCENT.replace("ci: {}", "ci: { guarantee: { cpu: 3 } }");
    let (code, text) = check(&["--host", "memory=1GiB,cpus=2", "-"], &guaranteed);
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("the machine can have") && text.contains("standard input:4"), "{text}");
    // Accounts of another machine are not those of this one.
    let accounts = "version: 1\ntenants: { a: { match: { users: [no-such-user-here] } } }\n";
    let (code, text) = check(&["--strict", "--host", "cpus=1,memory=1GiB", "-"], accounts);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(check(&["--strict", "-"], accounts).0, Some(78));
}

#[test]
fn one_tenant_of_each_template_is_shown() {
    let each = "version: 1\ntenants:\n  a: {}\n  people:\n    weight: 300\n    \
                tenants: { ana: { weight: 300, match: { users: 7 } } }\n    each: { match: { users: '*' } }\n";
    let (code, text) = check(&["--host", "cpus=16,memory=64GiB", "-"], each);
    assert_eq!(code, Some(0), "{text}");
    let share = |name: &str| {
        let row = text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
        row.split_whitespace().rev().nth(2).unwrap().parse::<f64>().unwrap()
    };
    assert_eq!([share("people"), share("ana"), share("*")], [12.0, 9.0, 3.0], "{text}");
}

#[test]
fn the_size_of_a_machine_is_whole() {
    for (size, said) in [
        ("cpus=64", "name both"),
        ("", "is not `cpus=N`"),
        ("cpus=0,memory=1GiB", "a whole number from 1 to 8192"),
        ("cpus=8193,memory=1GiB", "a whole number from 1 to 8192"),
        ("cpus=1.5,memory=1GiB", "a whole number from 1 to 8192"),
        ("cpus=4,memory=16G", "say `16GiB`"),
        ("cpus=4,memory=0", "name both"),
        ("cpus=4,cpus=8,memory=1GiB", "each once"),
        ("cpus=4,ram=1GiB", "`ram=1GiB` is not"),
    ] {
        let (code, text) = check(&["--host", size, "-"], PERCENT);
        assert_eq!(code, Some(2), "{size}: {text}");
        assert!(text.contains(said), "{size}: {text}");
    }
}

#[test]
fn standard_input_is_a_policy_among_others() {
    let bad = "tests/fixtures/policy/p010-unknown-key.yaml";
    for (arguments, input, code) in [
        (vec!["-"], PERCENT, 0),
        (vec![WARNED, "-"], PERCENT, 0),
        (vec!["-", bad], PERCENT, 78),
        (vec!["-", "-"], PERCENT, 2),
        (vec!["-"], "", 78),
        (vec!["-"], "\u{0}", 78),
    ] {
        let (found, text) = check(&arguments, input);
        assert_eq!(found, Some(code), "{arguments:?}: {text}");
    }
    let (_, text) = check(&["--json", "--host", "cpus=3,memory=1GiB", "-", WARNED], PERCENT);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["policies"][0]["path"], "-");
    let findings = json["policies"][1]["findings"].as_array().unwrap();
    assert!(findings.iter().any(|finding| finding["code"] == "P009"), "{findings:?}");
    assert_eq!(json["host"]["cpus"], 3);
}

#[test]
fn strict_fails_for_warnings_and_not_for_notes() {
    for (policy, plain, strict) in [(WARNED, 0, 78), (NOTED, 0, 0)] {
        assert_eq!(check(&[policy], "").0, Some(plain), "{policy}");
        let (code, text) = check(&["--strict", policy], "");
        assert_eq!(code, Some(strict), "{text}");
        assert_eq!(text.contains("a failure with --strict"), strict != 0, "{text}");
    }
}
