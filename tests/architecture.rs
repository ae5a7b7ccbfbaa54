//! The structure of the code: imports point one way, pure modules stay pure, each crate has one place, files and
//! functions stay small, and commits have readable subjects.
//!
//! These tests read the sources and the history as text. The rules are in ARCHITECTURE.md, "Invariants", and in
//! CONTRIBUTING.md. Exceptions that exist are listed; a list may shrink and never grow, and an entry that is no
//! longer needed fails the test that reads it.

mod commits;
mod imports;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from the top; each may name only rooms before it, and itself.
const ROOMS: [&str; 17] = [
    "codec",
    "kernel_text",
    "units",
    "resource",
    "fair",
    "dop",
    "queue",
    "admission",
    "accounts",
    "policy",
    "control",
    "valve",
    "host",
    "sim",
    "varlink",
    "daemon",
    "cli",
];

/// What pure rooms never name: the machine, the clock, and whoever talks to them.
const IMPURE: [&str; 11] = [
    "std::fs",
    "std::env",
    "std::process",
    "std::net",
    "std::thread",
    "Instant",
    "SystemTime",
    " nix::",
    "procfs::",
    "tracing::",
    "serde_yaml",
];

/// Crates that may be named only below these paths.
const ONE_PLACE: [(&str, &[&str]); 15] = [
    ("clap", &["src/cli/args.rs", "src/bin"]),
    ("clap_complete", &["src/cli/args.rs", "src/cli/generate.rs"]),
    ("clap_mangen", &["src/cli/generate.rs"]),
    ("httparse", &["src/cli/serve/http.rs"]),
    ("miniz_oxide", &["src/host/recording/segment.rs"]),
    ("prometheus_client", &["src/cli/metrics/exposition.rs"]),
    ("ratatui", &["src/cli/top.rs", "src/cli/top"]),
    ("serde_yaml", &["src/policy/parse.rs"]),
    ("annotate_snippets", &["src/policy/report.rs"]),
    ("anyhow", &["src/cli", "src/bin"]),
    ("indicatif", &["src/cli/simulate/progress.rs"]),
    ("plotters", &["src/cli/simulate/report"]),
    ("rand", &["src/cli/simulate/queue/distribution.rs"]),
    ("rand_distr", &["src/cli/simulate/queue/distribution.rs"]),
    ("rand_pcg", &["src/cli/simulate/queue/distribution.rs"]),
];

/// Files that make text of bytes without [`tenantd::kernel_text`], because these cannot be a name that a user chose: the
/// values in files of cgroups and sysfs, policy files, drop-ins, messages of systemd. This list may only shrink.
const TEXT_PLACES: [&str; 25] = [
    "src/accounts/nss.rs",
    "src/accounts/people.rs",
    "src/daemon/agent/ready.rs",
    "src/daemon/agent/start.rs",
    "src/daemon/backend/root.rs",
    "src/daemon/jobs/cgroup.rs",
    "src/daemon/recovery/fitted_quota.rs",
    "src/daemon/recovery/held_files.rs",
    "src/daemon/recovery/restore.rs",
    "src/daemon/recovery/unit_files.rs",
    "src/daemon/report/effect.rs",
    "src/daemon/service/policy_watch.rs",
    "src/daemon/service/run.rs",
    "src/host/cgroup/mount.rs",
    "src/host/cgroup/parse.rs",
    "src/host/cgroup/readings.rs",
    "src/host/enforce/enforcer.rs",
    "src/host/enforce/remedy.rs",
    "src/host/enforce/write.rs",
    "src/host/machine.rs",
    "src/host/notify.rs",
    "src/host/systemd/bus.rs",
    "src/host/systemd/object_path.rs",
    "src/host/topology.rs",
    "src/policy/load.rs",
];

/// Lines of a file, all counted.
const FILE_LINES_MAX: usize = 700;
/// Lines of code of a file, without its unit tests.
const FILE_CODE_LINES_MAX: usize = 400;
/// Lines of code of a function, its signature and its last brace included.
const FUNCTION_CODE_LINES_MAX: usize = 70;
/// The width is 100, comments go to 112; a message in one piece may be longer.
const COLUMNS_MAX: usize = 140;

/// Files of `src` that exceed [`FILE_CODE_LINES_MAX`]. This list may only shrink.
const LONG_FILES: [&str; 0] = [];
/// Functions of `src` that exceed [`FUNCTION_CODE_LINES_MAX`]. This list may only shrink.
const LONG_FUNCTIONS: [&str; 0] = [];
/// Pairs of files below `src` that import each other, one pair a line. This list may only shrink.
const CIRCLES: &str = include_str!("architecture/circles.txt");

fn sources(below: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(below)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(root).unwrap().to_path_buf(), text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources below {below}");
    found
}

/// The code of a source: without comments, and without the unit tests at its end.
fn code(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

fn room(path: &Path) -> Option<usize> {
    let name = path.components().nth(1)?.as_os_str().to_str()?;
    ROOMS.iter().position(|room| *room == name.trim_end_matches(".rs"))
}

#[test]
fn arrows_point_downwards() {
    for (path, text) in sources("src") {
        let Some(here) = room(&path) else { continue };
        for (there, name) in ROOMS.iter().enumerate().skip(here + 1) {
            let named = code(&text).contains(&format!("crate::{name}"));
            assert!(
                !named,
                "{}: {} names {name}, which stands below it",
                path.display(),
                ROOMS[here]
            );
            assert!(there > here);
        }
    }
}

#[test]
fn pure_rooms_name_no_machine_and_no_clock() {
    for (path, text) in sources("src") {
        let is_pure = room(&path).is_some_and(|room| room < 8 || ROOMS[room] == "control");
        for word in IMPURE.iter().filter(|_| is_pure) {
            assert!(!code(&text).contains(word), "{} names {word}", path.display());
        }
    }
}

#[test]
fn each_crate_has_one_place() {
    for (path, text) in sources("src") {
        for (name, places) in ONE_PLACE {
            let allowed = places.iter().any(|place| path.starts_with(place));
            let named = code(&text).contains(&format!("{name}::"));
            assert!(allowed || !named, "{} names {name}", path.display());
        }
    }
}

#[test]
fn text_from_the_kernel_becomes_text_in_listed_files() {
    let words = ["from_utf8", "to_string_lossy", "into_string("];
    let mut found = Vec::new();
    for (path, text) in sources("src") {
        let path = path.display().to_string();
        // Rooms that read no kernel, and the one place where names become text.
        let is_other = path.starts_with("src/cli/")
            && !path.starts_with("src/cli/top/")
            && !path.starts_with("src/cli/init");
        let is_exempt = is_other
            || ["src/kernel_text", "src/codec", "src/sim/", "src/varlink/"]
                .iter()
                .any(|room| path.starts_with(room));
        if !is_exempt && words.iter().any(|word| code(&text).contains(word)) {
            found.push((path, 1));
        }
    }
    are_the_exceptions(&TEXT_PLACES, &found, "places where bytes become text");
}

#[test]
fn files_stay_small_and_finished() {
    for (path, text) in sources("src").into_iter().chain(sources("tests")) {
        let lines = text.lines().count();
        assert!(lines <= FILE_LINES_MAX, "{} has {lines} lines", path.display());
        for (index, line) in text.lines().enumerate() {
            let place = format!("{}:{}", path.display(), index + 1);
            assert!(line.chars().count() <= COLUMNS_MAX, "{place} is too wide");
            let unfinished = ["TO", "FIX", "XX"].iter().zip(["DO", "ME", "X"]);
            for (begin, end) in unfinished {
                assert!(!line.contains(&format!("{begin}{end}")), "{place} is not finished");
            }
        }
    }
}

#[test]
fn files_and_functions_hold_little_code() {
    let (mut files, mut functions) = (Vec::new(), Vec::new());
    for (path, text) in sources("src") {
        let lines = code_lines(code(&text).lines());
        if lines > FILE_CODE_LINES_MAX {
            files.push((path.display().to_string(), lines));
        }
        for (name, lines) in functions_of(&code(&text)) {
            if lines > FUNCTION_CODE_LINES_MAX {
                functions.push((format!("{} {name}", path.display()), lines));
            }
        }
    }
    are_the_exceptions(&LONG_FILES, &files, "lines of code in a file");
    are_the_exceptions(&LONG_FUNCTIONS, &functions, "lines of code in a function");
}

/// Fails unless what was `found` to be too long is what `allowed` lists.
#[track_caller]
fn are_the_exceptions(allowed: &[&str], found: &[(String, usize)], what: &str) {
    let too_long: Vec<_> =
        found.iter().filter(|(name, _)| !allowed.contains(&name.as_str())).collect();
    assert!(too_long.is_empty(), "too many {what}: {too_long:?}");
    let done: Vec<_> =
        allowed.iter().filter(|name| !found.iter().any(|(one, _)| one == *name)).collect();
    assert!(done.is_empty(), "no longer too many {what}, take it off the list: {done:?}");
}

/// The lines that are not blank; comments are no code.
fn code_lines<'a>(lines: impl Iterator<Item = &'a str>) -> usize {
    lines.filter(|line| !line.trim().is_empty()).count()
}

/// The functions of a formatted source without comments, with their lines of code. A function ends at the brace
/// under its first word.
fn functions_of(code: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = code.lines().map(str::trim_end).collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let ends = |line: &&str| line.trim_start() == "}" && line.len() == indent + 1;
        // A declaration without a body ends with its signature.
        let signature = lines[at..].iter().position(|line| line.ends_with(['{', '}', ';']));
        let Some(signature) = signature.map(|offset| at + offset) else { continue };
        let last = match lines[signature].ends_with('{') {
            true => lines[signature..].iter().position(ends).map_or(signature, |n| signature + n),
            false => signature,
        };
        found.push((name.to_string(), code_lines(lines[at..=last].iter().copied())));
    }
    found
}

/// The name of the function whose signature begins in this line.
fn function_name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let modifiers = before.split_whitespace();
    let is_modifier = |word: &str| word.starts_with("pub") || ["const", "async"].contains(&word);
    if !modifiers.clone().all(is_modifier) {
        return None;
    }
    after.split(|sign: char| !sign.is_alphanumeric() && sign != '_').next()
}

#[test]
fn lines_of_functions_are_counted() {
    let source = "impl A {\n    pub(super) fn one(\n        &self,\n    ) -> u8 {\n        1\n\n    }\n\n    fn two() {}\n}\n\
                  trait B {\n    fn three(&self)\n    -> u8;\n}\nfn four() {\n    if x {\n        y\n    }\n}\n";
    let found = functions_of(source);
    let expected = [("one", 5), ("two", 1), ("three", 2), ("four", 5)];
    assert_eq!(found, expected.map(|(name, lines)| (name.to_string(), lines)));
}

#[test]
fn no_two_files_import_each_other() {
    let below_src = |(path, text): (PathBuf, String)| {
        (path.strip_prefix("src").unwrap().display().to_string(), text)
    };
    let sources: Vec<(String, String)> = sources("src").into_iter().map(below_src).collect();
    let mut imports = imports::imports(&sources);
    let found = imports::circles(&imports);
    let pair = |line: &str| line.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string()));
    let listed = CIRCLES.lines().filter(|line| !line.starts_with('#'));
    let allowed: BTreeSet<(String, String)> = listed.map(|line| pair(line).unwrap()).collect();
    let new: Vec<_> = found.difference(&allowed).collect();
    assert!(new.is_empty(), "these files import each other: {new:#?}");
    let gone: Vec<_> = allowed.difference(&found).map(|(a, b)| format!("{a} {b}")).collect();
    assert!(gone.is_empty(), "take these lines out of circles.txt:\n{}", gone.join("\n"));
    // Nothing may run in a larger circle either.
    for (one, other) in &allowed {
        imports.get_mut(one).unwrap().remove(other);
        imports.get_mut(other).unwrap().remove(one);
    }
    assert_eq!(imports::longer_circle(&imports), None, "files that import each other in turn");
}
