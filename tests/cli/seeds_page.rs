//! Pages with outputs: each command prints the output below it, and each scenario of the five sources is in `docs/seeds.md`.
//!
//! `docs/papers.py --outputs` makes the outputs again after a change of what commands print.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::seeds::{SUITES, suite, vectors};
use crate::{programs, util};

/// Scenarios of the sources: one for each file of the table of claims.
const NR_SCENARIOS: usize = 77;

/// A command of the page, and its output as printed there.
struct Shown {
    command: String,
    output: String,
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    std::fs::read_to_string(root().join("docs/seeds.md")).unwrap()
}

/// All pages of `docs/`, one after the other.
fn pages() -> String {
    let entries = std::fs::read_dir(root().join("docs")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

/// Commands of the fenced blocks: lines that begin with `$ `, each with the lines up to the next.
fn shown(page: &str) -> Vec<Shown> {
    let fenced = page.split("```console\n").skip(1).map(|rest| rest.split_once("```").unwrap().0);
    let mut found: Vec<Shown> = Vec::new();
    for line in fenced.flat_map(str::lines) {
        match line.strip_prefix("$ ") {
            Some(command) => {
                found.push(Shown { command: command.to_string(), output: String::new() });
            }
            None => {
                let last = found.last_mut().unwrap();
                last.output.push_str(line);
                last.output.push('\n');
            }
        }
    }
    found
}

/// The output of a command in a shell that finds the built `tenantctl` first.
fn output(command: &str) -> String {
    let folder = Path::new(programs::path("tenantctl")).parent().unwrap();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(command).current_dir(root()).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{path}", folder.display())).env("COLUMNS", "80").env("TZ", "UTC");
    let ran = util::run(&mut shell).exits(0);
    assert_eq!(ran.err, "", "{command}");
    ran.out
}

/// Lines without blanks at their ends and without empty lines at the end, which separate commands on the page.
fn lines(text: &str) -> Vec<&str> {
    text.trim_end().lines().map(str::trim_end).collect()
}

/// The difference between the page and a command, if there is one.
fn difference(shown: &Shown) -> Option<String> {
    let got = output(&shown.command);
    let is_same = lines(&got) == lines(&shown.output);
    (!is_same).then(|| {
        format!("$ {}\n{}\ninstead of\n{}", shown.command, got.trim_end(), shown.output.trim_end())
    })
}

/// Two at a time, because some simulate minutes of a busy machine.
#[test]
fn commands_of_the_pages_print_what_they_show() {
    let all = shown(&pages());
    assert!(all.len() >= NR_SCENARIOS + 20, "{} commands", all.len());
    let differences: Vec<String> = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let own: Vec<&Shown> = all.iter().skip(half).step_by(2).collect();
            scope.spawn(move || own.into_iter().filter_map(difference).collect::<Vec<String>>())
        });
        halves.into_iter().flat_map(|half| half.join().unwrap()).collect()
    });
    let count = differences.len();
    assert!(differences.is_empty(), "{count} differences:\n{}", differences.join("\n\n"));
}

/// The vectors hold the figures of each file, so a file that differs from all of them shows something that is not held.
#[test]
fn scenarios_of_the_sources_are_on_the_page_and_are_vectors() {
    let all = SUITES.iter().flat_map(|(name, _)| vectors(&suite(name)));
    let inputs: Vec<Value> = all.map(|(vector, _)| vector["input"].clone()).collect();
    let page = page();
    let mut nr_scenarios = 0;
    for entry in std::fs::read_dir(root().join("scenarios/seeds")).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let place = path.strip_prefix(root()).unwrap().display().to_string();
        assert!(text.starts_with("# "), "{place} does not begin with what it shows");
        assert!(page.contains(&place), "{place} is not in docs/seeds.md");
        let input: Value = serde_yaml::from_str(&text).unwrap();
        assert!(inputs.contains(&input), "{place} is not the input of a vector");
        nr_scenarios += 1;
    }
    assert_eq!(nr_scenarios, NR_SCENARIOS);
}
