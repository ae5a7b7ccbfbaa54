//! The house keeps its shape: arrows point downwards, pure rooms stay pure, each crate has one place.
//!
//! These tests read the sources as text. What they hold is said in ARCHITECTURE.md, "Invariants".

use std::fs;
use std::path::{Path, PathBuf};

/// The rooms from the top; each may name only rooms before it, and itself.
const ROOMS: [&str; 10] =
    ["units", "fair", "dop", "policy", "control", "host", "sim", "varlink", "daemon", "cli"];

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
const ONE_PLACE: [(&str, &[&str]); 9] = [
    ("clap", &["src/cli/args.rs", "src/bin"]),
    ("clap_complete", &["src/cli/args.rs", "src/cli/generate.rs"]),
    ("clap_mangen", &["src/cli/generate.rs"]),
    ("httparse", &["src/cli/serve/http.rs"]),
    ("prometheus_client", &["src/cli/metrics/exposition.rs"]),
    ("ratatui", &["src/cli/top.rs", "src/cli/top"]),
    ("serde_yaml", &["src/policy/parse.rs"]),
    ("annotate_snippets", &["src/policy/report.rs"]),
    ("anyhow", &["src/cli", "src/bin"]),
];

/// A file that a person can hold in the head.
const LINES_MAX: usize = 700;
/// The house's width is 100, comments go to 112; a message in one piece may be longer.
const COLUMNS_MAX: usize = 140;

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
        let is_pure = room(&path).is_some_and(|room| room < 3 || ROOMS[room] == "control");
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
fn files_stay_small_and_finished() {
    for (path, text) in sources("src").into_iter().chain(sources("tests")) {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", path.display());
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
