//! Files that mean harm, or are no files: each is answered with findings, in bounded time and memory.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tempfile::TempDir;
use tenantd_policy::report::{Severity, Style};
use tenantd_policy::{Report, load};

use super::codes;
use crate::util;

fn written(content: impl AsRef<[u8]>) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.yaml");
    fs::write(&path, content).unwrap();
    (directory, path)
}

fn refused(content: impl AsRef<[u8]>) -> Report {
    let (_directory, path) = written(content);
    load(&path).unwrap_err()
}

/// The one finding of a text that is no policy at all.
fn only_finding(content: impl AsRef<[u8]>) -> (&'static str, String) {
    let report = refused(content);
    assert_eq!(report.findings().len(), 1, "{report}");
    (report.findings()[0].code, report.to_string())
}

/// Ten levels of ten aliases each: 10^10 values in half a kilobyte.
fn alias_bomb() -> String {
    let mut text = String::from("version: 1\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for level in 1..10 {
        let previous = format!("*a{}", level - 1);
        text += &format!("a{level}: &a{level} [{}]\n", [previous.as_str(); 10].join(", "));
    }
    text
}

#[test]
fn deep_nesting_is_refused() {
    for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000)] {
        assert_eq!(only_finding(text).0, "P004");
    }
    let stairs: String = (0..2000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect();
    assert_eq!(only_finding(stairs).0, "P004");
}

#[test]
fn an_alias_bomb_is_refused() {
    let (code, message) = only_finding(alias_bomb());
    assert_eq!(code, "P004");
    assert!(message.contains("aliases stand for too many values"), "{message}");
}

#[test]
fn chained_aliases_cannot_nest_beyond_the_depth() {
    let mut text = String::from("a0: &a0 [x]\n");
    for level in 1..200 {
        text += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
    }
    assert_eq!(only_finding(text).0, "P004");
}

#[test]
fn an_honest_policy_of_ten_megabytes_is_accepted() {
    let mut text = String::from("version: 1\ntenants:\n");
    for number in 0..10_000 {
        text += &format!("  # {}\n", "x".repeat(900));
        text += &format!(
            "  t{number}: {{ weight: {}, limit: {{ cpu: 1, memory: 1GiB }},\n",
            number % 9 + 1
        );
        text += &format!("    match: {{ users: [u{number}], cgroup: /teams/t{number}/* }} }}\n");
    }
    assert!(text.len() > 10_000_000);
    let (_directory, path) = written(text);
    assert_eq!(load(&path).unwrap().policy.leaves().len(), 10_000);
}

#[test]
fn what_is_larger_still_is_refused_before_it_is_parsed() {
    let comment = format!("# {}\n", "x".repeat(9 << 20));
    assert_eq!(only_finding(format!("version: 1\n{comment}{comment}")).0, "P004");
    // The files of a directory are one policy.
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("10.yaml"), format!("version: 1\n{comment}")).unwrap();
    fs::write(directory.path().join("20.yaml"), format!("tenants: {{ web: {{}} }}\n{comment}"))
        .unwrap();
    assert_eq!(codes(&load(directory.path()).unwrap_err()), ["P004"]);
}

#[test]
fn ever_so_many_findings_become_two_hundred_and_a_count() {
    let keys: String = (0..20_000).map(|number| format!("k{number}: 1\n")).collect();
    let report = refused(format!("version: 1\ntenants: {{ web: {{}} }}\n{keys}"));
    assert_eq!(report.findings().len(), Report::MOST_FINDINGS);
    assert_eq!(report.findings().len() + report.left_out(), 20_000);
}

#[test]
fn an_error_is_not_lost_behind_warnings() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..300 {
        fs::write(directory.path().join(format!("{number}.yml")), "").unwrap();
    }
    fs::write(directory.path().join("a.yaml"), "version: 1\ntenants: { web: { weight: 0 } }\n")
        .unwrap();
    let report = load(directory.path()).unwrap_err();
    assert_eq!(report.count(Severity::Error), 1);
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let all_bytes: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    assert_eq!(only_finding(all_bytes).0, "P003");
    assert_eq!(only_finding("version: 1\ntenants:\n  a\0b: {}\n").0, "P002");
    assert_eq!(only_finding("version: 1\n\u{1b}[31mred: {}\n").0, "P002");
    // To a parser that ends its own buffers with NUL, these texts end early and are whole.
    for text in [
        "version: 1\ntenants: { web: {} }\n\0",
        "version: 1\ntenants: { web: {} }\n\0# x\n",
        "version: 1\ntenants: { web: {} } # \0\n  ci: {}\n",
    ] {
        assert_eq!(only_finding(text).0, "P002", "{text:?}");
    }
    // UTF-16, as some editors of another system save it.
    let utf16: Vec<u8> = "version: 1".encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(only_finding([&[0xff, 0xfe][..], &utf16].concat()).0, "P003");
}

#[test]
fn files_of_other_systems_are_read() {
    let (_directory, path) = written("\u{feff}version: 1\r\ntenants:\r\n  web: {}\r\n");
    assert!(load(&path).is_ok());
    let text =
        refused("version: 1\r\nmode: enforced\r\ntenants: { a: {} }\r\n").render(Style::PLAIN);
    assert!(text.contains("\n2 | mode: enforced\n"), "{text}");
}

#[test]
fn one_line_of_a_megabyte_is_named_and_not_quoted() {
    let tenants: Vec<String> =
        (0..9000).map(|number| format!("t{number}: {{ wight: 1 }}")).collect();
    let report = refused(format!("version: 1\ntenants: {{ {} }}\n", tenants.join(", ")));
    let text = report.render(Style::PLAIN);
    assert!(text.contains(":2:18"), "{}", &text[..300]);
    assert!(!text.contains("wight: 1"), "{}", &text[..300]);
}

#[test]
fn control_characters_do_not_reach_the_terminal() {
    let report = refused("version: 1\ntenants:\n  \"a\\e[31mb\": {}\n  \"\\u202ex\": {}\n");
    let text = report.render(Style::PLAIN);
    assert_eq!(codes(&report), ["P027", "P027"]);
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
    assert!(!text.contains('\u{202e}'), "{text:?}");
}

#[test]
fn what_is_not_a_file_is_refused_without_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("policy.yaml");
    mkfifo(&fifo, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
    for path in [fifo.as_path(), directory.path(), Path::new("/dev/zero"), Path::new("/dev/tty")] {
        let (answer, answered) = mpsc::channel();
        let owned = path.to_path_buf();
        std::thread::spawn(move || answer.send(load(&owned).map(drop)));
        // Not a measure of speed: an open that waits for a writer would wait for ever.
        let result = answered.recv_timeout(util::PATIENCE).expect("an answer");
        assert_eq!(codes(&result.unwrap_err()), ["P001"], "{}", path.display());
    }
}

#[test]
fn a_missing_file_is_reported_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let dangling = directory.path().join("dangling.yaml");
    symlink("nowhere", &dangling).unwrap();
    let circle = directory.path().join("circle.yaml");
    symlink("circle.yaml", &circle).unwrap();
    for path in [dangling, circle, directory.path().join("missing.yaml")] {
        let report = load(&path).unwrap_err();
        assert_eq!(codes(&report), ["P001"], "{}", path.display());
        assert!(report.to_string().contains("cannot be read: "), "{report}");
    }
}

#[test]
fn one_bad_file_of_a_directory_leaves_the_others_checked() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("10.yaml"), "version: 1\ntenants: [\n").unwrap();
    fs::write(directory.path().join("20.yaml"), "tenants:\n  web: { weight: 0 }\n").unwrap();
    fs::write(directory.path().join(".30.yaml.swp"), "hidden").unwrap();
    let report = load(directory.path()).unwrap_err();
    // Neither the version nor the tenants of the first file are missed: they may well be in it.
    assert_eq!(codes(&report), ["P002", "P025"]);
}

#[test]
fn a_file_without_permission_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let (_directory, path) = written("version: 1\ntenants: { web: {} }\n");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    match fs::File::open(&path) {
        Err(_) => {
            let report = load(&path).unwrap_err();
            assert!(report.to_string().contains("permission denied"), "{report}");
        }
        // The superuser may read everything; another user is asked instead.
        Ok(_) => as_nobody(&path),
    }
}

/// Runs `tenantctl check` as the user nobody, who has no permission.
fn as_nobody(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    const NOBODY: u32 = 65534;
    // Where the build lies nobody may be unable to look: the program goes where the file is.
    let directory = path.parent().unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
    let program = directory.join("tenantctl");
    util::install(crate::programs::path("tenantctl").as_ref(), &program);
    let output =
        Command::new(&program).arg("check").arg(path).uid(NOBODY).gid(NOBODY).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(78), "{text}");
    assert!(text.contains("error[P001]: cannot be read: permission denied"), "{text}");
}
