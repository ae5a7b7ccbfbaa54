//! Input files of commands: reading, and reports of their errors.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::json;
use tenantd::args::{Colour, colours};
use tenantd_policy::Report;
use tenantd_policy::file::{Cause, Format, Refusal};
use tenantd_policy::hint::{nearest, shortened};
use tenantd_policy::parse::{Budget, tree};
use tenantd_policy::report::{Finding, Source, Style};
use tenantd_policy::tree::{Entry, Node};

/// The largest file that is read.
const LONGEST_BYTES: u64 = 1 << 30;

/// The name of a problem in findings, and its bytes. `-` is standard input.
///
/// # Errors
/// The file does not exist, is not readable, or is too long.
pub fn read(path: &Path) -> anyhow::Result<(String, Vec<u8>)> {
    let name = path.display().to_string();
    let mut bytes = Vec::new();
    // One byte beyond the bound distinguishes a file that is too long from one that just fits.
    let read = match name.as_str() {
        "-" => io::stdin().lock().take(LONGEST_BYTES + 1).read_to_end(&mut bytes),
        _ => std::fs::File::open(path)
            .and_then(|file| file.take(LONGEST_BYTES + 1).read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {name}"))?;
    anyhow::ensure!(bytes.len() as u64 <= LONGEST_BYTES, "{name} is longer than a gibibyte");
    Ok((name, bytes))
}

#[derive(Serialize)]
struct Findings {
    findings: Vec<Finding>,
    findings_left_out: usize,
}

/// Reports the errors of a problem: on standard error for people, as records on standard output for programs.
///
/// # Errors
/// The output could not be written.
pub fn refuse(report: &Report, json: bool, colour: Colour) -> anyhow::Result<()> {
    if json {
        let findings = report.findings().iter().map(|finding| finding.to_finding()).collect();
        let refusal = Findings { findings, findings_left_out: report.left_out() };
        return Ok(json::write_line(&mut io::stdout().lock(), &refusal)?);
    }
    let style = Style { colour: colours(colour, &io::stderr()), ..Style::PLAIN };
    write!(io::stderr(), "{}", report.render(style))?;
    Ok(())
}

/// Parses a file, and turns its tree into a value by `of_tree`.
///
/// # Errors
/// The first error.
pub(crate) fn parse<T>(
    name: &str,
    bytes: Vec<u8>,
    format: &Format,
    of_tree: impl FnOnce(&Arc<Source>, &Node) -> Result<T, Refusal>,
) -> Result<T, Report> {
    /// Largest number of values that aliases may add to a text.
    const ALIASED: usize = 100_000;
    let text = String::from_utf8(bytes).map_err(|error| {
        let message = format!("byte {} is not UTF-8", error.utf8_error().valid_up_to());
        Refusal::new(Cause::Text, 0..0, message).report(&Source::new(name, ""), format)
    })?;
    // A text without aliases has no more values than bytes: an excess is an alias bomb.
    let budget = Budget { nodes: text.len() + ALIASED, depth: format.depth, ..Budget::PROBLEM };
    let source = Source::new(name, text);
    let tree = tree(source.text(), budget).map_err(|unparsed| {
        let refusal = Refusal::new(Cause::Text, unparsed.span, unparsed.message);
        refusal.help(unparsed.help.unwrap_or_default())
    });
    let value = tree.and_then(|tree| of_tree(&source, &tree));
    value.map_err(|refusal| refusal.report(&source, format))
}

/// The amounts of a map as a vector in the order of `names`, `missing` for a name that is not in it.
///
/// # Errors
/// Another value, or an unknown name: an error of this cause, with this remedy unless it is misspelt.
pub(crate) fn by_name<'n, T: DeserializeOwned>(
    map: Option<&Entry>,
    names: impl Iterator<Item = &'n str> + Clone,
    (cause, help): (Cause, &str),
    missing: f64,
    of: impl Fn(T) -> f64,
) -> Result<Vec<f64>, Refusal> {
    let mut vector: Vec<f64> = names.clone().map(|_| missing).collect();
    let Some(map) = map else { return Ok(vector) };
    for entry in map.value.map()? {
        let Some(place) = names.clone().position(|name| *name == *entry.key) else {
            let near = nearest(&entry.key, names).map(|near| format!("did you mean `{near}`?"));
            let message = format!("there is no resource `{}`", shortened(&entry.key));
            let unknown = Refusal::new(cause, entry.span(), message);
            return Err(unknown.help(near.unwrap_or(help.to_string())));
        };
        vector[place] = of(entry.read()?);
    }
    Ok(vector)
}

/// Refuses a key of a map, if it is given, by the rule with this code.
pub(crate) fn refuse_key(
    map: &Node,
    key: &str,
    code: &'static str,
    message: impl Into<String>,
    help: impl Into<String>,
) -> Result<(), Refusal> {
    let refused =
        map.get(key).map(|entry| Refusal::new(Cause::Rule(code), entry.span(), message).help(help));
    refused.map_or(Ok(()), Err)
}

/// The word of a value in a list.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, it)| *it == value).map_or("", |(word, _)| word)
}
