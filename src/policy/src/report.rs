//! Findings and their rendering.
//!
//! A [`Diagnostic`] is one finding: a code, a severity, a message, places and a remedy. [`render`] turns it
//! into text for people (the offending line, underlined, in the style of rustc) and
//! [`Diagnostic::to_finding`] into a record for programs. Only this file names the crate that draws the
//! underlines.
//!
//! Foreign texts may be hostile: one line of ten megabytes, control characters, a million findings. The
//! renderer gets only the lines of a finding, lines longer than [`LONGEST_QUOTED_LINE_BYTES`] are named and
//! not quoted, and control characters are made visible.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::renderer::DEFAULT_TERM_WIDTH;
use annotate_snippets::{
    Annotation, AnnotationKind, Element, Group, Level, Origin, Renderer, Snippet,
};
use serde::{Deserialize, Serialize};

/// Longest quoted line; a longer one is named by line and column.
pub const LONGEST_QUOTED_LINE_BYTES: usize = 1000;

const LONGEST_QUOTED_TEXT: usize = 80;

/// A text with its name as the user gave it.
#[derive(Debug)]
pub struct Source {
    name: String,
    text: String,
    /// First byte of each line: a position is found by bisection, so many findings in a large file cost no
    /// scan each.
    line_starts: Vec<usize>,
}

impl Source {
    /// Creates a source.
    pub fn new(name: impl Into<String>, text: impl Into<String>) -> Arc<Source> {
        let text = text.into();
        let after_newlines =
            text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1);
        let line_starts = std::iter::once(0).chain(after_newlines).collect();
        Arc::new(Source { name: name.into(), text, line_starts })
    }

    /// Name as the user gave it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Line and column of a byte, both from 1, the column in characters.
    pub fn position(&self, byte: usize) -> (usize, usize) {
        let byte = self.floor_char_boundary(byte);
        let line = self.line_starts.partition_point(|start| *start <= byte);
        let start = self.line_starts[line - 1];
        (line, self.text[start..byte].chars().count() + 1)
    }

    fn line_range(&self, line: usize) -> Range<usize> {
        let start = self.line_starts[line - 1];
        let next = self.line_starts.get(line).copied().unwrap_or(self.text.len());
        start..start + self.text[start..next].trim_end_matches(['\r', '\n']).len()
    }

    fn floor_char_boundary(&self, byte: usize) -> usize {
        let mut byte = byte.min(self.text.len());
        while !self.text.is_char_boundary(byte) {
            byte -= 1;
        }
        byte
    }
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The text is not acceptable.
    Error,
    /// Acceptable, but probably a mistake.
    Warning,
    /// Information.
    Note,
}

/// A place in a text, with a remark.
#[derive(Clone, Debug)]
pub struct Label {
    /// Text that contains it.
    pub source: Arc<Source>,
    /// Bytes from the beginning of the text.
    pub span: Range<usize>,
    /// Remark; may be empty.
    pub text: String,
}

/// One finding.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// Stable code such as `P011`, one per rule.
    pub code: &'static str,
    /// Severity.
    pub severity: Severity,
    /// Error in one line.
    pub message: String,
    /// Text of the finding; only its name, if it could not be read.
    pub source: Arc<Source>,
    /// Places: the first is the finding's own, the others explain it. Empty if no place can be named.
    pub labels: Vec<Label>,
    /// Remedy.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Creates a finding without a place.
    pub fn new(
        code: &'static str,
        severity: Severity,
        source: &Arc<Source>,
        message: impl Into<String>,
    ) -> Self {
        let (message, source) = (message.into(), Arc::clone(source));
        Diagnostic { code, severity, message, source, labels: Vec::new(), help: None }
    }

    /// Adds a place in the finding's own text; the first one is the finding's own place.
    #[must_use]
    pub fn at(mut self, span: Range<usize>, text: impl Into<String>) -> Self {
        let source = Arc::clone(&self.source);
        self.labels.push(Label { source, span, text: text.into() });
        self
    }

    /// Adds a place in any text.
    #[must_use]
    pub fn also(mut self, label: Label) -> Self {
        self.labels.push(label);
        self
    }

    /// Sets the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Line and column of its place, both from 1.
    pub fn position(&self) -> Option<(usize, usize)> {
        self.labels.first().map(|label| label.source.position(label.span.start))
    }

    /// Converts the finding to a record.
    pub fn to_finding(&self) -> Finding {
        let place = self.labels.first();
        let (line, column) = self.position().unzip();
        Finding {
            code: Cow::Borrowed(self.code),
            severity: self.severity,
            message: self.message.clone(),
            file: place.map_or(&self.source, |label| &label.source).name.clone(),
            line,
            column,
            text: place.map(quoted_text),
            help: self.help.clone(),
        }
    }
}

/// One line: `CODE: message (file:line:column)`, for a log or an error chain.
impl std::fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let message = annotate_snippets::normalize_untrusted_str(&self.message);
        let name = annotate_snippets::normalize_untrusted_str(&self.source.name);
        match self.position() {
            Some((line, column)) => write!(f, "{}: {message} ({name}:{line}:{column})", self.code),
            None => write!(f, "{}: {message} ({name})", self.code),
        }
    }
}

impl std::error::Error for Diagnostic {}

/// One finding as a record, for `--json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Rule, such as `P011`.
    pub code: Cow<'static, str>,
    /// `error`, `warning` or `note`.
    pub severity: Severity,
    /// Error in one line.
    pub message: String,
    /// File as the user named it.
    pub file: String,
    /// Line, from 1.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// Offending text, cut at the end of its line and after 80 characters.
    pub text: Option<String>,
    /// Remedy.
    pub help: Option<String>,
}

fn quoted_text(label: &Label) -> String {
    let start = label.source.floor_char_boundary(label.span.start);
    let end = label.source.floor_char_boundary(label.span.end).max(start);
    let text = &label.source.text[start..end];
    text.lines().next().unwrap_or("").chars().take(LONGEST_QUOTED_TEXT).collect()
}

/// Rendering options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// True for colours, on a terminal.
    pub colour: bool,
    /// Width in columns.
    pub width: usize,
    /// Most findings that are shown in full.
    pub most: usize,
}

impl Style {
    /// Style without colours, 80 columns wide, for files and pipes, with as many findings as a screen or two hold.
    pub const PLAIN: Style = Style { colour: false, width: 80, most: 10 };
}

/// Draws one finding in the style of rustc; ends with a newline.
pub fn render(diagnostic: &Diagnostic, style: Style) -> String {
    let renderer = if style.colour { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(style.width.clamp(40, DEFAULT_TERM_WIDTH));
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    // `warning[P064]: ` and `    = help: ` precede the two texts.
    let title = wrapped(&diagnostic.message, style.width.saturating_sub(15));
    let title = level.primary_title(title).id(diagnostic.code);
    let mut group = Group::with_title(title).elements(places(diagnostic));
    if let Some(help) = &diagnostic.help {
        group = group.element(Level::HELP.message(wrapped(help, style.width.saturating_sub(13))));
    }
    let mut text = renderer.render(&[group]);
    text.push('\n');
    text
}

fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_string()),
        }
    }
    lines.join("\n")
}

/// Places of a finding: neighbouring ones in one snippet, the others in one each.
fn places(diagnostic: &Diagnostic) -> Vec<Element<'_>> {
    if diagnostic.labels.is_empty() {
        return vec![Origin::path(diagnostic.source.name.as_str()).into()];
    }
    let mut elements: Vec<Element<'_>> = Vec::new();
    let mut open: Option<Window<'_>> = None;
    for (index, label) in diagnostic.labels.iter().enumerate() {
        let kind = if index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
        let (line, column) = label.source.position(label.span.start);
        let last_line = label.source.position(label.span.end.max(label.span.start)).0;
        let line_bytes = label.source.line_range(line);
        if line_bytes.len() > LONGEST_QUOTED_LINE_BYTES {
            elements.extend(open.take().map(Window::into_element));
            elements.push(Origin::path(label.source.name()).line(line).char_column(column).into());
            continue;
        }
        // A span over several lines is underlined on its first line alone.
        let end = if last_line > line { line_bytes.end } else { label.span.end };
        let span = label.span.start..end.max(label.span.start);
        let annotation = Mark { span, kind, text: &label.text };
        match open.as_mut().filter(|window| window.takes(&label.source, line)) {
            Some(window) => window.add(line, annotation),
            None => {
                elements.extend(open.take().map(Window::into_element));
                open = Some(Window {
                    source: &label.source,
                    lines: line..line + 1,
                    marks: vec![annotation],
                });
            }
        }
    }
    elements.extend(open.map(Window::into_element));
    elements
}

struct Mark<'a> {
    span: Range<usize>,
    kind: AnnotationKind,
    text: &'a str,
}

struct Window<'a> {
    source: &'a Arc<Source>,
    lines: Range<usize>,
    marks: Vec<Mark<'a>>,
}

impl<'a> Window<'a> {
    /// Distance from which lines are shown as two snippets.
    const REACH_LINES: usize = 200;

    fn takes(&self, source: &Arc<Source>, line: usize) -> bool {
        let near = line + Self::REACH_LINES >= self.lines.start
            && line <= self.lines.end + Self::REACH_LINES;
        near && Arc::ptr_eq(self.source, source)
    }

    fn add(&mut self, line: usize, mark: Mark<'a>) {
        self.lines = self.lines.start.min(line)..self.lines.end.max(line + 1);
        self.marks.push(mark);
    }

    fn into_element(self) -> Element<'a> {
        let start = self.source.line_range(self.lines.start).start;
        let end = self.source.line_range(self.lines.end - 1).end;
        let marks = self.marks.into_iter().map(|mark| {
            // A place in a line's end, such as a carriage return, is shown behind its last character.
            let begin = mark.span.start.min(end);
            let span = begin - start..mark.span.end.clamp(begin, end) - start;
            let label = (!mark.text.is_empty()).then_some(mark.text);
            mark.kind.span(span).label(label)
        });
        Snippet::source(&self.source.text[start..end])
            .path(self.source.name())
            .line_start(self.lines.start)
            .annotations(marks.collect::<Vec<Annotation<'_>>>())
            .into()
    }
}

/// All findings of a policy, in the order of its files and lines.
#[derive(Clone, Debug, Default)]
pub struct Report {
    findings: Vec<Diagnostic>,
    left_out: usize,
}

impl Report {
    /// Most findings kept: enough to read, and too few for a hostile file to fill the memory.
    pub const MOST_FINDINGS: usize = 200;

    /// Adds a finding.
    pub fn push(&mut self, finding: Diagnostic) {
        if self.findings.len() < Self::MOST_FINDINGS {
            self.findings.push(finding)
        } else {
            // An error must not be lost to earlier notes.
            self.left_out += 1;
            let note = self.findings.iter().rposition(|kept| kept.severity != Severity::Error);
            if let (Severity::Error, Some(note)) = (finding.severity, note) {
                self.findings[note] = finding;
            }
        }
    }

    /// Counts a finding without making it when the report is full, which is cheap for a file that breaks
    /// one rule a million times.
    pub(super) fn leave_out(&mut self) {
        self.left_out += 1;
    }

    /// True if further findings would be left out.
    pub fn is_full(&self) -> bool {
        self.findings.len() >= Self::MOST_FINDINGS
    }

    /// Kept findings.
    pub fn findings(&self) -> &[Diagnostic] {
        &self.findings
    }

    /// Number of findings left out.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Number of all findings, including those left out.
    pub fn total(&self) -> usize {
        self.findings.len() + self.left_out
    }

    /// Number of kept findings of this severity.
    pub fn count(&self, severity: Severity) -> usize {
        self.findings.iter().filter(|finding| finding.severity == severity).count()
    }

    /// True if a finding is an error.
    pub fn has_errors(&self) -> bool {
        self.count(Severity::Error) > 0
    }

    /// Sorts the findings by the order of the files (as in `files`) and their lines, and removes repeats.
    pub fn sort(&mut self, files: &[Arc<Source>]) {
        let key = |finding: &Diagnostic| {
            let source = finding.labels.first().map_or(&finding.source, |label| &label.source);
            let file =
                files.iter().position(|file| Arc::ptr_eq(file, source)).unwrap_or(files.len());
            (file, finding.labels.first().map_or(0, |label| label.span.start), finding.code)
        };
        self.findings.sort_by_key(key);
        // One value may have several errors of one kind, such as a weight for each resource.
        self.findings.dedup_by(|a, b| key(a) == key(b) && a.message == b.message);
    }

    /// Renders the findings, separated by empty lines: as many as the style says, errors before warnings and notes,
    /// and the number of the others.
    pub fn render(&self, style: Style) -> String {
        let mut shown: Vec<usize> = (0..self.findings.len()).collect();
        shown.sort_by_key(|index| self.findings[*index].severity);
        shown.truncate(style.most);
        shown.sort_unstable();
        let mut text: Vec<String> =
            shown.iter().map(|index| render(&self.findings[*index], style)).collect();
        match (self.findings.len() - shown.len(), self.left_out) {
            (0, 0) => {}
            (0, more) => {
                text.push(format!("… and {more} more, which are not listed: mend these first\n"))
            }
            (hidden, more) => {
                let nr = hidden + more;
                text.push(format!("… and {nr} more: `tenantctl check --all` prints them\n"));
            }
        }
        text.join("\n")
    }
}

/// One line for a log: the number of errors, and the first of them.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let errors = self.count(Severity::Error);
        match self.findings.iter().find(|finding| finding.severity == Severity::Error) {
            Some(first) if errors == 1 => write!(f, "{first}"),
            Some(first) => write!(f, "{errors} errors; the first: {first}"),
            None => write!(f, "no errors"),
        }
    }
}

impl std::error::Error for Report {}
