//! What can be wrong with a problem file, each with its code. A code never changes its meaning.

use std::ops::Range;
use std::sync::Arc;

use crate::policy::Report;
use crate::policy::report::{Diagnostic, Severity, Source};

/// The text is not YAML, or is more than we read.
pub(super) const TEXT: &str = "S001";
/// A key that does not belong there.
pub(super) const UNKNOWN_KEY: &str = "S002";
/// A key given twice.
pub(super) const DUPLICATE_KEY: &str = "S003";
/// A key that must be there and is not.
pub(super) const MISSING_KEY: &str = "S004";
/// A value of the wrong type.
pub(super) const WRONG_TYPE: &str = "S005";
/// A number or quantity that cannot be read, or is out of range.
pub(super) const BAD_NUMBER: &str = "S006";
/// A resource that is not in the capacity.
pub(super) const UNKNOWN_RESOURCE: &str = "S007";
/// Not exactly one of `task`, `demand` and `tenants`; or something that only goes with another of them.
pub(super) const KIND: &str = "S008";
/// A name that cannot be told apart in the answer.
pub(super) const NAME: &str = "S009";
/// A limit below the guarantee, or below what is guaranteed in the group together.
pub(super) const LIMIT_BELOW_GUARANTEE: &str = "S010";
/// More is guaranteed than there is.
pub(super) const OVERBOOKED: &str = "S011";
/// Tasks that are not whole, or too many of them, where they are granted one by one.
pub(super) const WHOLE_TASKS: &str = "S012";

/// The findings of one problem file.
#[derive(Debug)]
pub(super) struct Findings {
    source: Arc<Source>,
    found: Vec<Diagnostic>,
}

/// Findings kept until they are sorted. A file with more is not read but thrown away.
const MOST_FOUND: usize = 10_000;

impl Findings {
    pub(super) fn new(source: Arc<Source>) -> Findings {
        Findings { source, found: Vec::new() }
    }

    /// Adds a finding about some bytes of the text.
    pub(super) fn add(
        &mut self,
        code: &'static str,
        span: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) {
        let help = help.into();
        let finding = Diagnostic::new(code, Severity::Error, &self.source, message).at(span, "");
        self.push(if help.is_empty() { finding } else { finding.help(help) });
    }

    /// Adds a finding about two places, of which `span` is the one to change.
    pub(super) fn add_pair(
        &mut self,
        code: &'static str,
        (span, label): (Range<usize>, &str),
        (other, other_label): (Range<usize>, &str),
        message: String,
    ) {
        let finding = Diagnostic::new(code, Severity::Error, &self.source, message);
        self.push(finding.at(span, label).at(other, other_label));
    }

    fn push(&mut self, finding: Diagnostic) {
        if self.found.len() < MOST_FOUND {
            self.found.push(finding);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// The findings in the order of the text, each once: a scalar weight is wrong for every resource.
    pub(super) fn into_report(mut self) -> Report {
        let key = |finding: &Diagnostic| {
            (finding.labels.first().map_or(0, |label| label.span.start), finding.code)
        };
        self.found.sort_by_key(key);
        self.found.dedup_by(|a, b| key(a) == key(b) && a.message == b.message);
        let mut report = Report::default();
        self.found.into_iter().for_each(|finding| report.push(finding));
        report
    }
}
