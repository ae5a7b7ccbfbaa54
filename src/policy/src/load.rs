//! From a path to a policy: files, contents, and all errors.
//!
//! **Problem.** A policy path comes from a command line or a unit file; it may be missing, a directory, a
//! pipe, or half a policy with an unreadable other half. **Answer.** All findings at once, and a
//! [`Policy`] only if none of them is an error (`tests/policy/hostile.rs`).
//!
//! A path is opened without blocking and must be an ordinary file or a directory: a FIFO or a device could
//! block the caller, or never end. The size is bounded before anything is read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::OFlag;

use super::check;
use super::facts::{HostFacts, Scope};
use super::keys::{POLICY, Policy};
use super::notes;
use super::parse::{self, Budget, Fault, Unparsed};
use super::read::Draft;
use super::report::{Diagnostic, Report, Source};
use super::rules::{self, Rule};
use super::tree::{Kind, Node, Place};

const MOST_FILES: usize = 1000;

/// A policy without errors, and its other findings.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The policy.
    pub policy: Policy,
    /// Its warnings and notes.
    pub report: Report,
}

/// Loads the policy of a file, or of a directory's `*.yaml` files merged in the order of their names.
///
/// Hidden files are skipped: editors keep their own there.
///
/// # Errors
/// Every finding, at least one of them an error.
pub fn load(path: &Path) -> Result<Loaded, Report> {
    load_and_check(path, Scope::default())
}

/// Loads a policy as [`load`] does and tries the rules about the machine as well.
///
/// # Errors
/// Every finding, at least one of them an error.
pub fn load_with_host(path: &Path, host: &HostFacts) -> Result<Loaded, Report> {
    load_and_check(path, Scope::on(host))
}

/// Loads a policy as [`load`] does, for a person who checks it: with notes about values that probably mean something
/// else than intended, and the rules about the machine if it is known.
///
/// # Errors
/// Every finding, at least one of them an error.
pub fn check_path(path: &Path, host: Option<&HostFacts>) -> Result<Loaded, Report> {
    load_and_check(path, Scope { host, has_notes: true })
}

/// Loads a policy from `input`, which findings call `name`, for a person who checks it.
///
/// # Errors
/// Every finding, at least one of them an error.
pub fn check_input(
    name: &str,
    input: impl Read,
    host: Option<&HostFacts>,
) -> Result<Loaded, Report> {
    from_input(name, input, Scope { host, has_notes: true })
}

/// Loads a policy from a text that findings call `name`, for policies made by a program.
///
/// # Errors
/// Every finding, at least one of them an error.
pub fn load_text(name: &str, text: &str) -> Result<Loaded, Report> {
    check_sources(vec![Source::new(name, text)], Scope::default(), Report::default())
}

/// Loads a policy that is a value within a larger text, and tries the rules about a machine.
///
/// # Errors
/// Every finding, at least one of them an error.
pub fn load_value(source: &Arc<Source>, value: &Node, host: &HostFacts) -> Result<Loaded, Report> {
    let sources = std::slice::from_ref(source);
    check_trees(sources, &[(source, value)], Scope::on(host), Report::default())
}

/// Loads a policy from `input`, which findings call `name`.
///
/// # Errors
/// Every finding, at least one of them an error.
pub fn load_from(name: &str, input: impl Read, host: Option<&HostFacts>) -> Result<Loaded, Report> {
    from_input(name, input, Scope { host, has_notes: false })
}

fn from_input(name: &str, input: impl Read, scope: Scope<'_>) -> Result<Loaded, Report> {
    let mut report = Report::default();
    let most = Budget::POLICY.bytes;
    let source = source(name.to_string(), read_bounded(input, most), most, &mut report);
    check_sources(source.into_iter().collect(), scope, report)
}

fn load_and_check(path: &Path, scope: Scope<'_>) -> Result<Loaded, Report> {
    let mut report = Report::default();
    // One budget for all files of a directory.
    let mut bytes_left = Budget::POLICY.bytes;
    let mut sources = Vec::new();
    for file in files_of(path, &mut report) {
        let (name, bytes) = (file.display().to_string(), read_file(&file, bytes_left));
        if let Some(source) = source(name, bytes, bytes_left, &mut report) {
            bytes_left -= source.text().len();
            sources.push(source);
        }
    }
    check_sources(sources, scope, report)
}

/// Checks the texts; `report` has the findings from reading them.
fn check_sources(
    sources: Vec<Arc<Source>>,
    scope: Scope<'_>,
    mut report: Report,
) -> Result<Loaded, Report> {
    let mut budget = Budget::POLICY;
    let mut trees = Vec::new();
    for source in &sources {
        match parse::tree(source.text(), budget) {
            Ok(tree) => {
                budget.nodes = budget.nodes.saturating_sub(tree.measure().0);
                trees.push((source, tree));
            }
            Err(unparsed) => report.push(finding_of(&unparsed, source)),
        }
    }
    let trees: Vec<(&Arc<Source>, &Node)> =
        trees.iter().map(|(source, tree)| (*source, tree)).collect();
    check_trees(&sources, &trees, scope, report)
}

/// Checks the values of these texts; `report` has the findings from reading the texts.
fn check_trees(
    sources: &[Arc<Source>],
    trees: &[(&Arc<Source>, &Node)],
    scope: Scope<'_>,
    mut report: Report,
) -> Result<Loaded, Report> {
    // If a file could not be read, the rules about the whole policy would report the wrong file.
    let is_whole = !report.has_errors();
    let mut draft = Draft::default();
    for (source, tree) in trees {
        draft.file(source, tree, &mut report);
    }
    let is_map = |(_, tree): &(&Arc<Source>, &Node)| matches!(tree.kind, Kind::Map(_) | Kind::Null);
    if let Some((source, tree)) = trees.first().filter(|_| is_whole && trees.iter().all(is_map)) {
        check_presence(&draft, source, tree, &mut report);
    }
    check::check(&draft, scope, &mut report);
    if scope.has_notes && !report.has_errors() {
        trees.iter().for_each(|(source, tree)| notes::of_values(source, tree, &mut report));
    }
    report.sort(sources);
    if report.has_errors() { Err(report) } else { Ok(Loaded { policy: draft.policy, report }) }
}

/// Checks the required keys of all files; the first file is shown for a missing one.
fn check_presence(draft: &Draft, source: &Arc<Source>, tree: &Node, report: &mut Report) {
    let place = Place { source: Arc::clone(source), span: tree.span() };
    for (key, help) in POLICY.iter().filter_map(|key| Some((key.name, key.needed()?))) {
        // A misspelt key is one finding, not two.
        if draft.given.key(key).is_none() && !draft.misspelt.contains(&key) {
            let rule = if key == "tenants" { rules::NO_TENANTS } else { rules::NO_VERSION };
            let finding = rule.at(&place, format!("the policy has no `{key}`"), "");
            report.push(finding.help(help));
        }
    }
}

fn files_of(path: &Path, report: &mut Report) -> Vec<PathBuf> {
    // Any other path is reported when it is opened.
    if !path.is_dir() {
        return vec![path.to_path_buf()];
    }
    let source = Source::new(path.display().to_string(), "");
    let names = match names_in(path) {
        Ok(names) => names,
        Err(error) => {
            report.push(rules::UNREADABLE.about(&source, cannot_read(&error)));
            return Vec::new();
        }
    };
    let (files, others): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| is_policy_file(name));
    for name in others.iter().filter(|name| name.ends_with(".yml") || name.ends_with(".json")) {
        let ignored = Source::new(path.join(name).display().to_string(), "");
        let finding = rules::IGNORED_FILE.about(&ignored, "this file is not read");
        report.push(finding.help("only files named `*.yaml` are part of the policy"));
    }
    if files.is_empty() {
        let finding = rules::EMPTY_DIRECTORY.about(&source, "there is no policy in this directory");
        report.push(finding.help("a policy is made of files named `*.yaml`"));
    }
    if files.len() > MOST_FILES {
        let message = format!("more than {MOST_FILES} files in one directory");
        report.push(rules::TOO_LARGE.about(&source, message));
        return Vec::new();
    }
    files.iter().map(|name| path.join(name)).collect()
}

/// True if a file of this name in a directory is part of its policy. Hidden files belong to editors.
pub fn is_policy_file(name: &str) -> bool {
    name.ends_with(".yaml") && !name.starts_with('.')
}

/// Sorted names in a directory, without hidden ones and those that are not UTF-8.
fn names_in(path: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(path)? {
        match entry?.file_name().into_string() {
            Ok(name) if !name.starts_with('.') => names.push(name),
            _ => {}
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn source(
    name: String,
    bytes: io::Result<Vec<u8>>,
    most_bytes: usize,
    report: &mut Report,
) -> Option<Arc<Source>> {
    let mut refuse = |rule: &Rule, message: String, help: Option<&str>| {
        let mut finding = rule.about(&Source::new(&*name, ""), message);
        finding.help = help.map(str::to_string);
        report.push(finding);
        None
    };
    let bytes = match bytes {
        Ok(bytes) => bytes,
        Err(error) => return refuse(&rules::UNREADABLE, cannot_read(&error), help_for(&error)),
    };
    if bytes.len() > most_bytes {
        let message = format!("the policy is larger than {} MiB", Budget::POLICY.bytes >> 20);
        return refuse(&rules::TOO_LARGE, message, None);
    }
    match String::from_utf8(bytes) {
        Ok(text) => Some(Source::new(name, text)),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            // A byte order mark, which no text in UTF-8 begins with.
            let is_utf_16 = matches!(bytes[..], [0xff, 0xfe, ..] | [0xfe, 0xff, ..]);
            let (message, from) = if is_utf_16 {
                ("the file is UTF-16, not UTF-8".to_string(), "UTF-16")
            } else {
                (format!("byte {valid} (0x{:02x}) is not UTF-8", bytes[valid]), "LATIN1")
            };
            bytes.truncate(valid);
            let source = Source::new(name, String::from_utf8_lossy(&bytes));
            let finding =
                rules::ENCODING.about(&source, message).at(valid..valid, "the text ends here");
            let help = format!("save the file as UTF-8, or convert it: `iconv -f {from} -t UTF-8`");
            report.push(finding.help(help));
            None
        }
    }
}

fn read_file(path: &Path, most_bytes: usize) -> io::Result<Vec<u8>> {
    // Opening a FIFO without a writer would block.
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
    let file: File = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    let kind = file.metadata()?.file_type();
    if kind.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if !kind.is_file() {
        return Err(io::Error::other("it is not an ordinary file"));
    }
    read_bounded(file, most_bytes)
}

/// Reads at most one byte more than `most_bytes`, so that the caller detects a larger text.
fn read_bounded(input: impl Read, most_bytes: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most_bytes as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn cannot_read(error: &io::Error) -> String {
    // The message of the operating system, without the number that Rust appends.
    let text = error.to_string();
    let words = text.split(" (os error").next().unwrap_or(&text);
    format!("cannot be read: {}", words.to_lowercase())
}

fn help_for(error: &io::Error) -> Option<&'static str> {
    match error.kind() {
        io::ErrorKind::NotFound => Some("name a policy file, or a directory of `*.yaml` files"),
        io::ErrorKind::PermissionDenied => Some("run as a user who may read it"),
        io::ErrorKind::IsADirectory => Some("subdirectories are not read: move its files up"),
        _ => None,
    }
}

fn finding_of(unparsed: &Unparsed, source: &Arc<Source>) -> Diagnostic {
    let rule = match unparsed.fault {
        Fault::Syntax => rules::SYNTAX,
        Fault::Budget => rules::TOO_LARGE,
        Fault::Empty => rules::EMPTY,
        Fault::Documents => rules::DOCUMENTS,
        Fault::Cycle => rules::ALIAS_CYCLE,
    };
    let finding = rule.about(source, unparsed.message.as_str());
    if unparsed.fault == Fault::Empty {
        return finding.help(
            "begin with `version: 1`, and name tenants below `tenants:`; `tenantctl init` proposes a policy",
        );
    }
    let mut finding = finding.at(unparsed.span.clone(), "");
    finding.help = unparsed.help.clone();
    finding
}
