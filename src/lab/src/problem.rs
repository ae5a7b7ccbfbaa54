//! Input files of commands: reading, and reports of their errors.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use serde::Serialize;

use super::json;
use tenantd::args::{Colour, colours};
use tenantd_policy::Report;
use tenantd_policy::key::Form;
use tenantd_policy::parse::{self, Budget};
use tenantd_policy::reader::Reader;
use tenantd_policy::report::{Finding, Source, Style};
use tenantd_policy::rules::Rule;
use tenantd_policy::tree::Node;

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

/// Largest number of values that aliases may add to a text.
const ALIASED: usize = 100_000;

/// Parses the text of a problem into a tree, nested no deeper than `depth`.
///
/// # Errors
/// The text is not UTF-8, not YAML, or too large: one finding of the rule `text`.
pub fn tree(
    name: &str,
    bytes: Vec<u8>,
    depth: usize,
    text: &Rule,
) -> Result<(Arc<Source>, Node), Report> {
    let mut report = Report::default();
    let source = match String::from_utf8(bytes) {
        Ok(text) => Source::new(name, text),
        Err(error) => {
            let byte = error.utf8_error().valid_up_to();
            report.push(text.about(&Source::new(name, ""), format!("byte {byte} is not UTF-8")));
            return Err(report);
        }
    };
    // A text without aliases has no more values than bytes: an excess is an alias bomb.
    let nodes = source.text().len() + ALIASED;
    match parse::tree(source.text(), Budget { nodes, depth, ..Budget::PROBLEM }) {
        Ok(tree) => Ok((source, tree)),
        Err(unparsed) => {
            let finding = text.about(&source, unparsed.message).at(unparsed.span, "");
            report.push(match unparsed.help {
                Some(help) => finding.help(help),
                None => finding,
            });
            Err(report)
        }
    }
}

#[derive(Serialize)]
struct Refusal {
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
        let refusal = Refusal { findings, findings_left_out: report.left_out() };
        return Ok(json::write_line(&mut io::stdout().lock(), &refusal)?);
    }
    let style = Style { colour: colours(colour, &io::stderr()), ..Style::PLAIN };
    write!(io::stderr(), "{}", report.render(style))?;
    Ok(())
}

/// The form of a value that is one of some words; for types of crates without words.
pub(crate) struct OneOf<T: 'static>(pub(crate) &'static [(&'static str, T)]);

impl<T: Copy + PartialEq> Form<Option<T>> for OneOf<T> {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Option<T>) {
        *into = reader.word(node, self.0);
    }
}

/// The word of a value in such a list.
pub(crate) fn word_of<T: PartialEq>(words: &[(&'static str, T)], value: T) -> &'static str {
    words.iter().find(|(_, it)| *it == value).map_or("", |(word, _)| word)
}
