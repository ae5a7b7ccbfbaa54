//! SPECIFICATION.md: each promise names what fails when it is missed, and that is there.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows of the tables of promises, cell by cell.
fn promises(text: &str) -> Vec<Vec<&str>> {
    let (_, tables) = text.split_once("## Cost").unwrap();
    let rows = tables.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---"));
    let cells = rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect());
    cells.filter(|row: &Vec<&str>| row[0] != "promise").collect()
}

fn has_line(text: &str, mut says: impl FnMut(&str) -> bool) -> bool {
    text.lines().any(|line| says(line.trim_start()))
}

/// Whether there is what a cell names: `bench NAME`, `test PATH`, `vm NAME`, `make NAME`, or a file.
fn exists(check: &str) -> bool {
    match check.split_once(' ') {
        Some(("bench", name)) => {
            text("Cargo.toml").contains(&format!("[[bench]]\nname = \"{name}\"\n"))
                && root().join(format!("benches/{name}.rs")).exists()
        }
        Some(("test", path)) => {
            let mut parts: Vec<&str> = path.split("::").collect();
            let Some(name) = parts.pop() else { return false };
            // A crate has its own tests; those of several crates are below the root.
            let Some((of, rest)) = parts.split_first() else { return false };
            let own = root().join("src").join(of).join("tests");
            let places = [own.join(rest.join("/")), root().join("tests").join(parts.join("/"))];
            places.iter().any(|file| {
                let source = std::fs::read_to_string(file.with_extension("rs")).unwrap_or_default();
                has_line(&source, |line| line.starts_with(&format!("fn {name}(")))
            })
        }
        Some(("vm", name)) => {
            let Some((file, scenario)) = name.split_once('.') else { return false };
            let file = root().join(format!("tests/vm/guest/test_{file}.py"));
            let source = std::fs::read_to_string(file).unwrap_or_default();
            has_line(&source, |line| line.starts_with(&format!("def test_{scenario}(")))
        }
        Some(("make", target)) => {
            has_line(&text("Makefile"), |line| line.starts_with(&format!("{target}:")))
        }
        _ => root().join(check).is_file(),
    }
}

#[test]
fn each_promise_names_what_fails_when_it_is_missed() {
    let text = text("SPECIFICATION.md");
    let promises = promises(&text);
    assert!(promises.len() >= 50, "{}", promises.len());
    for row in promises {
        let [promise, bar, check, last] = row[..] else { panic!("four cells: {row:?}") };
        assert!(!promise.is_empty(), "{row:?}");
        if check == "not checked yet" {
            assert_eq!(last, "not measured yet", "{promise}");
            continue;
        }
        assert!(!bar.is_empty(), "{promise} has no bar");
        let named = check.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        assert!(named.is_some_and(exists), "{promise}: there is no {check}");
    }
}

#[test]
fn what_is_not_there_is_found_out() {
    for check in [
        "bench no_such",
        "test agent::converge::no_such",
        "test no::such",
        "vm shares.no_such",
        "vm shares",
        "make no_such",
        "tests/no_such.py",
        "tests",
    ] {
        assert!(!exists(check), "{check}");
    }
}

#[test]
fn each_bench_is_in_the_makefile_s_command_and_in_the_list_of_benchmarks() {
    let listed = text("BENCHMARKS.md");
    for name in text("Cargo.toml").split("[[bench]]\nname = \"").skip(1) {
        let name = name.split('"').next().unwrap();
        assert!(listed.contains(&format!("| `{name}` |")), "BENCHMARKS.md has no row for {name}");
    }
}
