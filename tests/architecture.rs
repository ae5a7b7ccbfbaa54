//! Structure of the code that cargo does not check: pure crates stay pure, each third-party crate has one place,
//! types and functions stay small, no files import each other, and texts and commit subjects are readable.
//!
//! These tests read the sources and the history as text. The rules are in ARCHITECTURE.md, "Invariants", and in
//! CONTRIBUTING.md. Exceptions that exist are listed; a list may shrink and never grow, and an entry that is no
//! longer needed fails the test that reads it.

mod commits;
mod imports;
mod methods;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates from the bottom; each may depend only on crates before it.
const CRATES: [&str; 14] = [
    "core",
    "fair",
    "dop",
    "queue",
    "admission",
    "policy",
    "control",
    "host",
    "sim",
    "varlink",
    "nri",
    "agent",
    "lab",
    "tenantctl",
];
/// Those of them that name no machine and no clock.
const PURE: [&str; 6] = ["core", "fair", "dop", "queue", "admission", "control"];

/// What pure crates never name: the machine, the clock, and programs that talk to them.
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
const ONE_PLACE: [(&str, &[&str]); 16] = [
    (
        "clap",
        &[
            "src/agent/src/args.rs",
            "src/agent/src/main.rs",
            "src/lab/src/args.rs",
            "src/nri/src/args.rs",
            "src/nri/src/main.rs",
            "src/tenantctl/src/args.rs",
            "src/tenantctl/src/common/complete.rs",
            "src/tenantctl/src/main.rs",
        ],
    ),
    ("clap_complete", &["src/tenantctl/src/args.rs", "src/tenantctl/src/common/complete.rs"]),
    ("clap_mangen", &["src/tenantctl/src/policy/generate.rs"]),
    ("httparse", &["src/tenantctl/src/show/serve/http.rs"]),
    ("miniz_oxide", &["src/host/src/recording/segment.rs"]),
    ("postcard", &["src/host/src/recording"]),
    ("prometheus_client", &["src/tenantctl/src/show/metrics/exposition.rs"]),
    ("prost", &["src/nri/src/messages.rs", "src/nri/src/session.rs"]),
    ("ratatui", &["src/tenantctl/src/show/top"]),
    ("serde_yaml", &["src/policy/src/parse.rs"]),
    ("annotate_snippets", &["src/policy/src/report.rs"]),
    (
        "anyhow",
        &["src/agent/src/command.rs", "src/agent/src/exit.rs", "src/lab/src", "src/tenantctl/src"],
    ),
    ("plotters", &["src/lab/src/simulate/report"]),
    ("rand", &["src/lab/src/simulate/queue/distribution.rs"]),
    ("rand_distr", &["src/lab/src/simulate/queue/distribution.rs"]),
    ("rand_pcg", &["src/lab/src/simulate/queue/distribution.rs"]),
];
/// What `tenantd`, which runs as root, is built without: terminals, pictures, chance and HTTP.
const NOT_IN_TENANTD: [&str; 8] = [
    "prost",
    "ratatui",
    "crossterm",
    "plotters",
    "rand",
    "indicatif",
    "prometheus-client",
    "httparse",
];

/// Files that make text of bytes without [`tenantd_core::kernel_text`], because these cannot be a name that a user chose: the
/// values in files of cgroups and sysfs, policy files, drop-ins, messages of systemd. This list may only shrink.
const TEXT_PLACES: [&str; 25] = [
    "src/agent/src/agent/mode.rs",
    "src/agent/src/agent/start.rs",
    "src/agent/src/backend/root.rs",
    "src/agent/src/command.rs",
    "src/agent/src/jobs/cgroup.rs",
    "src/agent/src/recovery/fitted_quota.rs",
    "src/agent/src/recovery/held_files.rs",
    "src/agent/src/recovery/restore.rs",
    "src/agent/src/recovery/unit_files.rs",
    "src/agent/src/report/effect.rs",
    "src/agent/src/service/policy_watch.rs",
    "src/agent/src/service/run.rs",
    "src/host/src/cgroup/mount.rs",
    "src/host/src/cgroup/parse.rs",
    "src/host/src/cgroup/readings.rs",
    "src/host/src/enforce/enforcer.rs",
    "src/host/src/enforce/remedy.rs",
    "src/host/src/enforce/write.rs",
    "src/host/src/machine.rs",
    "src/host/src/notify.rs",
    "src/host/src/systemd/bus.rs",
    "src/host/src/systemd/object_path.rs",
    "src/host/src/topology.rs",
    "src/policy/src/accounts/nss.rs",
    "src/policy/src/load.rs",
];

/// Lines of a file, all counted.
const FILE_LINES_MAX: usize = 700;
/// Lines of code of a function, its signature and its last brace included.
const FUNCTION_CODE_LINES_MAX: usize = 70;
/// The width is 100, comments go to 112; a message in one piece may be longer.
const COLUMNS_MAX: usize = 140;

/// Functions of `src` that exceed [`FUNCTION_CODE_LINES_MAX`]. This list may only shrink.
const LONG_FUNCTIONS: [&str; 0] = [];
/// Methods of a type over all files, without those of traits.
const METHODS_MAX: usize = 60;
/// Arguments of a function; those packed into a tuple count each.
const ARGUMENTS_MAX: usize = 7;
/// Types that exceed [`METHODS_MAX`], by crate, file and name. This list may only shrink.
const MANY_METHODS: [&str; 2] =
    ["admission/state.rs Admission", "agent/backend/backends.rs Backends"];
/// Types with files that call each other through `self` in a circle. This list may only shrink.
const CIRCLES_THROUGH_SELF: [&str; 3] = [
    "admission/state.rs Admission",
    "agent/backend/systemd.rs Systemd",
    "control/tick/control_loop.rs ControlLoop",
];
/// Functions that exceed [`ARGUMENTS_MAX`]. This list may only shrink.
const MANY_ARGUMENTS: [&str; 1] = ["agent/backend/discovery.rs take_in"];
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

/// The sources of the crates, without their tests and benchmarks.
fn sources_of_crates() -> Vec<(PathBuf, String)> {
    let mut sources = sources("src");
    sources
        .retain(|(path, _)| path.components().nth(2).is_some_and(|part| part.as_os_str() == "src"));
    sources
}

/// The crate that holds a file.
fn crate_of(path: &Path) -> &str {
    path.components().nth(1).and_then(|part| part.as_os_str().to_str()).unwrap()
}

#[test]
fn crates_depend_only_on_those_before() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let names = CRATES.map(|name| match name {
        "agent" => "tenantd".to_string(),
        "tenantctl" => "tenantctl".to_string(),
        name => format!("tenantd-{name}"),
    });
    assert_eq!(fs::read_dir(&root).unwrap().count(), CRATES.len(), "crates below src");
    for (here, name) in CRATES.iter().enumerate() {
        let manifest = fs::read_to_string(root.join(name).join("Cargo.toml")).unwrap();
        for later in &names[here + 1..] {
            let named = manifest.contains(&format!("\n{later}.workspace"));
            assert!(!named, "{name} depends on {later}, which stands after it");
        }
    }
}

#[test]
fn tenantd_is_built_without_what_only_tenantctl_needs() {
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args([
        "tree",
        "--locked",
        "--offline",
        "-p",
        "tenantd",
        "-e",
        "normal",
        "--prefix",
        "none",
    ]);
    let tree = cargo.current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    let tree = String::from_utf8(tree.stdout).unwrap();
    let names: BTreeSet<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(names.contains("tenantd-host"), "{tree}");
    for name in NOT_IN_TENANTD {
        let found: Vec<_> = names
            .iter()
            .filter(|one| **one == name || one.starts_with(&format!("{name}_")))
            .collect();
        assert!(found.is_empty(), "tenantd depends on {found:?}");
    }
}

#[test]
fn pure_crates_name_no_machine_and_no_clock() {
    for (path, text) in sources_of_crates() {
        let is_pure = PURE.contains(&crate_of(&path));
        for word in IMPURE.iter().filter(|_| is_pure) {
            assert!(!code(&text).contains(word), "{} names {word}", path.display());
        }
    }
}

/// A node crosses a signature as its identity or as a node of a tree; a position is a local of an algorithm.
#[test]
fn no_signature_takes_the_position_of_a_node() {
    let of_nodes = ["number: usize", "node: usize", "tenant: usize", "kept: &[Option<usize>]"];
    let is_ours = |path: &Path| ["control", "host", "agent"].contains(&crate_of(path));
    let mut found = Vec::new();
    for (path, text) in sources_of_crates().into_iter().filter(|(path, _)| is_ours(path)) {
        // The tree itself takes over the identities of the nodes that stay.
        let is_of_tree = path.starts_with("src/control/src/tree");
        let code = code(&text);
        let lines =
            code.lines().filter(|line| !is_of_tree && !line.trim_start().starts_with("pub "));
        let named = lines.filter(|line| of_nodes.iter().any(|it| line.contains(it)));
        found.extend(named.map(|line| format!("{}: {}", path.display(), line.trim())));
    }
    assert_eq!(found, [""; 0], "take a NodeId or a Node");
}

#[test]
fn each_crate_has_one_place() {
    for (path, text) in sources_of_crates() {
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
    for (path, text) in sources_of_crates() {
        let path = path.display().to_string();
        // What reads no kernel, and the one place where names become text.
        let is_of_a_person = path.starts_with("src/tenantctl/")
            && ![
                "src/tenantctl/src/show/top",
                "src/tenantctl/src/policy/init",
                "src/tenantctl/src/policy/survey",
            ]
            .iter()
            .any(|it| path.starts_with(it));
        let is_exempt = is_of_a_person
            || ["src/core/src/kernel_text", "src/sim/", "src/varlink/", "src/lab/"]
                .iter()
                .any(|place| path.starts_with(place));
        if !is_exempt && words.iter().any(|word| code(&text).contains(word)) {
            found.push((path, 1));
        }
    }
    are_the_exceptions(&TEXT_PLACES, &found, "places where bytes become text");
}

#[test]
fn files_stay_small_and_finished() {
    for (path, text) in sources_of_crates().into_iter().chain(sources("tests")) {
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
fn functions_hold_little_code() {
    let mut functions = Vec::new();
    for (path, text) in sources_of_crates() {
        for (name, lines) in functions_of(&code(&text)) {
            if lines > FUNCTION_CODE_LINES_MAX {
                functions.push((format!("{} {name}", path.display()), lines));
            }
        }
    }
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
        let last = if lines[signature].ends_with('{') {
            lines[signature..].iter().position(ends).map_or(signature, |n| signature + n)
        } else {
            signature
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

/// The sources of one crate, each with its path below the crate's `src`.
fn sources_of(name: &str) -> Vec<(String, String)> {
    let below = format!("src/{name}/src");
    let of_crate = |(path, text): (PathBuf, String)| {
        (path.strip_prefix(&below).unwrap().display().to_string(), text)
    };
    sources(&below).into_iter().map(of_crate).collect()
}

#[test]
fn types_and_functions_are_small() {
    let (mut many, mut circles, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
    for name in CRATES {
        let sources = sources_of(name);
        for ((file, of), methods) in methods::types(&sources) {
            let (of, count) = (format!("{name}/{file} {of}"), methods::nr_methods(&methods));
            if count > METHODS_MAX {
                many.push((of.clone(), count));
            }
            if let Some(files) = methods::circle(&methods) {
                circles.push((of, files.len()));
            }
        }
        for (file, text) in &sources {
            let all = methods::arguments(text).into_iter();
            let long = all.filter(|(_, count)| *count > ARGUMENTS_MAX);
            arguments.extend(long.map(|(of, count)| (format!("{name}/{file} {of}"), count)));
        }
    }
    are_the_exceptions(&MANY_METHODS, &many, "methods of a type");
    are_the_exceptions(
        &CIRCLES_THROUGH_SELF,
        &circles,
        "files of a type in a circle through `self`",
    );
    are_the_exceptions(&MANY_ARGUMENTS, &arguments, "arguments of a function");
}

#[test]
fn no_two_files_import_each_other() {
    let mut imports = BTreeMap::new();
    for name in CRATES {
        let sources = sources_of(name);
        let full = |path: String| format!("{name}/{path}");
        imports.extend(imports::imports(&sources).into_iter().map(|(from, to)| {
            (full(from), to.into_iter().map(full).collect::<BTreeSet<String>>())
        }));
    }
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
