//! YAML text in, typed values out. The only file that names the YAML crate.
//!
//! **Problem.** Policies and problem files are written by people, and sometimes by people who mean harm: a
//! file of a hundred bytes can stand for a billion values (aliases of aliases), or nest a hundred thousand
//! deep. Whatever the text, the answer comes in bounded time and memory: a value, or one clear finding.
//!
//! **Shape.** [`parse`] gives any deserializable type, for the problem files of `solve` and `dop`; it stops
//! at the first finding. [`tree`] gives the plain tree of a policy, repeated keys included, from which
//! every finding can be drawn at once. Both count what an alias stands for against the same [`Budget`].
//!
//! **Strictness.** A key given twice, a second document and a merge key are refused, as is a `yes` where
//! a truth value belongs: YAML 1.1 and 1.2 read those differently.

use std::collections::HashMap;
use std::ops::Range;

use serde::de::DeserializeOwned;
use serde_yaml::budget::BudgetBreach;
use serde_yaml::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, ScanError};
use serde_yaml::{Error, MergeKeyPolicy, MessageFormatter, Options, UserMessageFormatter};

pub use serde_yaml::Spanned;

use super::report::{Diagnostic, Severity, Source};
use super::tree::{Entry, Kind, Node};

/// How much a text may hold. Beyond it the text is refused with [`code::BUDGET`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Values, keys and collections, aliases counted as what they stand for.
    pub nodes: usize,
    /// Collections within collections.
    pub depth: usize,
    /// Bytes of text.
    pub bytes: usize,
}

impl Budget {
    /// For problem files: a million tenants of a dozen values each.
    pub const PROBLEM: Budget = Budget { nodes: 20_000_000, depth: 64, bytes: 1 << 30 };

    /// For policies: ten thousand tenants with everything a policy can say of each, several times over.
    pub const POLICY: Budget = Budget { nodes: 1_000_000, depth: 64, bytes: 16 << 20 };
}

/// The codes of findings in the text itself.
pub mod code {
    /// Not YAML.
    pub const SYNTAX: &str = "Y001";
    /// Too large, too deep, or an alias that stands for too much.
    pub const BUDGET: &str = "Y002";
    /// Nothing in it, or more than one document.
    pub const DOCUMENTS: &str = "Y003";
    /// A key that does not belong there.
    pub const UNKNOWN_KEY: &str = "Y004";
    /// A key given twice.
    pub const DUPLICATE_KEY: &str = "Y005";
    /// A key that must be there and is not.
    pub const MISSING_KEY: &str = "Y006";
    /// A value of the wrong type, or out of range.
    pub const VALUE: &str = "Y007";
}

/// Parses a problem file.
///
/// `source_name` is what findings call the text: a path, or `-`.
///
/// # Errors
/// The first thing that is wrong with it, with its place.
pub fn parse<T: DeserializeOwned>(source_name: &str, text: &str) -> Result<T, Diagnostic> {
    parse_within(source_name, text, Budget::PROBLEM)
}

/// Parses a text that may hold no more than `budget`.
///
/// # Errors
/// As [`parse`].
pub fn parse_within<T: DeserializeOwned>(
    source_name: &str,
    text: &str,
    budget: Budget,
) -> Result<T, Diagnostic> {
    if text.len() > budget.bytes {
        let message = format!("{} bytes are more than the {} allowed", text.len(), budget.bytes);
        let source = Source::new(source_name, "");
        return Err(Diagnostic::new(code::BUDGET, Severity::Error, &source, message));
    }
    serde_yaml::from_str_with_options(text, options(budget))
        .map_err(|error| diagnose(source_name, text, &error))
}

/// The bytes a value was read from; the alias, where it was named by one.
pub fn span<T>(value: &Spanned<T>) -> Range<usize> {
    byte_range(value.referenced)
}

fn byte_range(location: serde_yaml::Location) -> Range<usize> {
    let span = location.span();
    let start = span.byte_offset().unwrap_or(0) as usize;
    start..start + span.byte_len().unwrap_or(0) as usize
}

fn options(budget: Budget) -> Options {
    serde_yaml::options! {
        strict_booleans: true,
        with_snippet: false,
        merge_keys: MergeKeyPolicy::Error,
        // Aliases save typing in a file written by hand; beyond this they are a bomb.
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: 100_000 },
        budget: serde_yaml::budget! {
            max_nodes: budget.nodes,
            max_events: budget.nodes.saturating_mul(2),
            max_depth: budget.depth,
            // The scanner reads ahead up to 1024 characters for a key; its own limit must lie above that
            // for the depth to be what is breached, and reported.
            flow_nesting_limit: budget.depth.max(2048),
            max_total_scalar_bytes: budget.bytes,
            max_documents: 1,
        },
    }
}

/// Says in our words what the YAML crate found.
fn diagnose(source_name: &str, text: &str, error: &Error) -> Diagnostic {
    let source = Source::new(source_name, text);
    let error = error.without_snippet();
    let (code, message, help) = describe(error);
    let mut diagnostic = Diagnostic::new(code, Severity::Error, &source, message);
    if let Some(location) = error.location() {
        let mut span = byte_range(location);
        // A mapping's span is one byte, and one at the very end has nothing to underline.
        span.end = span.end.min(text.len());
        diagnostic = diagnostic.at(span.start.min(span.end)..span.end, "");
    }
    match help {
        Some(help) => diagnostic.help(help),
        None => diagnostic,
    }
}

fn describe(error: &Error) -> (&'static str, String, Option<String>) {
    match error {
        Error::AliasError { error, .. } => describe(error),
        Error::Budget { breach: BudgetBreach::Documents { .. }, .. }
        | Error::MultipleDocuments { .. } => (
            code::DOCUMENTS,
            "more than one document".into(),
            Some("keep one, without `---`".into()),
        ),
        Error::Eof { .. } => (code::DOCUMENTS, "the text ends before it is complete".into(), None),
        Error::Budget { breach, .. } => (code::BUDGET, describe_breach(breach), None),
        Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => {
            (code::BUDGET, "aliases stand for too many values".into(), None)
        }
        Error::SerdeUnknownField { field, expected, .. } => {
            let help = match nearest(field, expected.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("known here: {}", listed(expected.iter().copied())),
            };
            (code::UNKNOWN_KEY, format!("unknown key `{field}`"), Some(help))
        }
        Error::SerdeUnknownVariant { variant, expected, .. } => (
            code::VALUE,
            format!("unknown value `{variant}`"),
            Some(format!("one of {}", listed(expected.iter().copied()))),
        ),
        Error::SerdeMissingField { field, .. } => {
            (code::MISSING_KEY, format!("`{field}` is missing"), None)
        }
        Error::DuplicateMappingKey { key, .. } => {
            let key = key.as_deref().unwrap_or("?");
            (code::DUPLICATE_KEY, format!("`{key}` is given twice"), None)
        }
        Error::MergeKeyNotAllowed { .. } => (
            code::SYNTAX,
            "merge keys (`<<`) are not read".into(),
            Some("write the keys out".into()),
        ),
        Error::SerdeInvalidType { unexpected, expected, .. }
        | Error::SerdeInvalidValue { unexpected, expected, .. } => {
            (code::VALUE, format!("expected {expected}, found {unexpected}"), None)
        }
        Error::InvalidBooleanStrict { .. } => {
            (code::VALUE, "expected `true` or `false`".into(), None)
        }
        Error::Unexpected { expected, .. } => {
            // The crate reads every scalar as a string first; the reader never asked for a string.
            let expected = if *expected == "string scalar" { "a single value" } else { expected };
            (code::VALUE, format!("expected {expected}"), None)
        }
        Error::InvalidScalar { ty, .. } => (code::VALUE, format!("expected {ty}"), None),
        Error::Message { msg, .. } => (code::VALUE, msg.clone(), None),
        _ => (code::SYNTAX, UserMessageFormatter.format_message(error).into_owned(), None),
    }
}

fn describe_breach(breach: &BudgetBreach) -> String {
    match breach {
        BudgetBreach::Depth { depth } => format!("nested {depth} deep, which is too deep"),
        BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => "too many values".into(),
        BudgetBreach::ScalarBytes { .. } | BudgetBreach::InputBytes { .. } => "too large".into(),
        _ => "aliases stand for too many values".into(),
    }
}

/// `a, b, c` with each in backticks.
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = names.into_iter().map(|name| format!("`{name}`")).collect();
    quoted.join(", ")
}

/// The name that `wrong` was probably meant to be: the nearest one, if it is near at all.
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Two slips in a word of six letters are a misspelling; in a word of three they are another word.
    let reach = (wrong.chars().count() / 3).clamp(1, 3);
    let near = names.into_iter().map(|name| (edit_distance(wrong, name, reach), name));
    near.filter(|(distance, _)| *distance <= reach)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, n)| n)
}

/// Optimal string alignment distance: insertions, deletions, substitutions and swaps of neighbours.
///
/// Anything above `reach` is answered with `reach + 1`, without the work, where the lengths alone say so.
fn edit_distance(a: &str, b: &str, reach: usize) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(64).collect(), b.chars().take(64).collect());
    if a.len().abs_diff(b.len()) > reach {
        return reach + 1;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let substitution = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = substitution.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before_last[j - 2] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

/// Why a text is no tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not YAML, or YAML that is not read (tags, keys that are not scalars).
    Syntax,
    /// More than the budget.
    Budget,
    /// Nothing but blanks and comments.
    Empty,
    /// More than one document.
    Documents,
    /// An alias within the value it stands for.
    Cycle,
}

/// A text that is no tree: why, in words, where, and what to do.
#[derive(Clone, Debug)]
pub struct Unparsed {
    /// Why.
    pub fault: Fault,
    /// Why, in words.
    pub message: String,
    /// Where.
    pub span: Range<usize>,
    /// What to do.
    pub help: Option<&'static str>,
}

/// Parses a text into a tree that still holds its repeated keys.
///
/// # Errors
/// The first thing that makes it no tree; nothing after it can be told apart.
pub fn tree(text: &str, budget: Budget) -> Result<Node, Unparsed> {
    if text.len() > budget.bytes.min(u32::MAX as usize) {
        let message = format!("{} bytes are more than the {} allowed", text.len(), budget.bytes);
        return Err(Unparsed { fault: Fault::Budget, message, span: 0..0, help: None });
    }
    let mut options = granit_parser::options! {
        // One more than the budget: the budget's own message is the better one.
        block_nesting_limit: budget.depth + 1,
        flow_nesting_limit: budget.depth + 1,
    };
    options.set_emit_comments(false);
    let mut builder =
        Builder { budget, text, nodes: 0, open: Vec::new(), anchors: HashMap::new(), root: None };
    for event in Parser::new_from_str_with_options(text, options) {
        let (event, span) = event.map_err(|error| builder.scan_error(&error))?;
        let start = span.start.byte_offset().unwrap_or(0);
        let end = span.end.byte_offset().unwrap_or(start).max(start);
        builder.event(event, start..end)?;
    }
    builder.root.ok_or(Unparsed {
        fault: Fault::Empty,
        message: "there is nothing in it".into(),
        span: 0..0,
        help: None,
    })
}

/// A collection that is being read.
struct Open {
    node: Node,
    anchor: usize,
    /// The key that waits for its value.
    key: Option<(Box<str>, Range<usize>)>,
}

/// Puts events together into a tree. The stack is explicit: nesting costs no stack of ours.
struct Builder<'a> {
    budget: Budget,
    text: &'a str,
    /// Nodes and keys so far, those that aliases stand for included.
    nodes: usize,
    open: Vec<Open>,
    /// What each anchor stands for; `None` while that is still being read.
    anchors: HashMap<usize, Option<Node>>,
    root: Option<Node>,
}

impl Builder<'_> {
    fn event(&mut self, event: Event<'_>, span: Range<usize>) -> Result<(), Unparsed> {
        match event {
            Event::DocumentStart(..) if self.root.is_some() => Err(self
                .fault(Fault::Documents, "a second document begins here", span)
                .with_help("keep one document in a file; drop the `---` between them")),
            Event::Scalar(text, style, anchor, tag) => {
                self.refuse_tag(tag.is_some(), &span)?;
                let plain = style == ScalarStyle::Plain;
                let kind = match &*text {
                    "" | "~" | "null" | "Null" | "NULL" if plain => Kind::Null,
                    _ => Kind::Scalar { text: text.into(), plain },
                };
                self.complete(node(kind, span), anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), &span)?;
                self.begin(node(Kind::List(Vec::new()), span), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                self.refuse_tag(tag.is_some(), &span)?;
                self.begin(node(Kind::Map(Vec::new()), span), anchor)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(mut open) = self.open.pop() else { return Ok(()) };
                open.node.end = self.end_of_content(open.node.start, span.end);
                self.complete(open.node, open.anchor)
            }
            Event::Alias(anchor) => self.alias(anchor, span),
            _ => Ok(()),
        }
    }

    /// A block collection ends where the next token begins; what lies between says nothing.
    fn end_of_content(&self, start: u32, end: usize) -> u32 {
        let end = end.min(self.text.len());
        let content = self.text.get(start as usize..end).unwrap_or("").trim_end();
        start + content.len() as u32
    }

    fn begin(&mut self, node: Node, anchor: usize) -> Result<(), Unparsed> {
        if self.open.len() >= self.budget.depth {
            let message = format!("nested more than {} deep", self.budget.depth);
            return Err(self.fault(Fault::Budget, message, node.span()));
        }
        self.count(1, node.span())?;
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        self.open.push(Open { node, anchor, key: None });
        Ok(())
    }

    /// A whole value: puts it where it belongs.
    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Unparsed> {
        if matches!(node.kind, Kind::Null | Kind::Scalar { .. }) {
            self.count(1, node.span())?;
        }
        if anchor != 0 {
            let (nodes, _) = node.measure();
            self.count(nodes, node.span())?;
            self.anchors.insert(anchor, Some(node.clone()));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match &mut open.node.kind {
            Kind::List(items) => items.push(node),
            Kind::Map(entries) => match open.key.take() {
                Some((key, at)) => {
                    let (start, end) = (at.start as u32, at.end as u32);
                    entries.push(Entry { key, start, end, value: node });
                }
                None => {
                    let span = node.span();
                    let key = match node.kind {
                        Kind::Scalar { text, .. } => text,
                        Kind::Null => "null".into(),
                        Kind::List(_) | Kind::Map(_) => {
                            let message = "a key must be a name, not a collection";
                            return Err(self.fault(Fault::Syntax, message, span));
                        }
                    };
                    open.key = Some((key, span));
                }
            },
            Kind::Null | Kind::Scalar { .. } => debug_assert!(false, "only collections are open"),
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: Range<usize>) -> Result<(), Unparsed> {
        let node = match self.anchors.get(&anchor) {
            Some(Some(node)) => node,
            Some(None) => {
                let message = "this alias lies within the value it stands for";
                return Err(self.fault(Fault::Cycle, message, span));
            }
            None => {
                return Err(self.fault(Fault::Syntax, "this alias stands for nothing", span));
            }
        };
        let (nodes, depth) = node.measure();
        // Counted before it is copied: a bomb is refused while it is still small.
        if self.nodes + nodes > self.budget.nodes || self.open.len() + depth > self.budget.depth {
            let message = "aliases stand for too many values";
            return Err(self.fault(Fault::Budget, message, span));
        }
        let (mut node, scalar) = (node.clone(), depth == 0);
        (node.start, node.end) = (span.start as u32, span.end as u32);
        // `complete` counts a scalar itself.
        self.nodes += nodes - usize::from(scalar);
        self.complete(node, 0)
    }

    fn count(&mut self, nodes: usize, span: Range<usize>) -> Result<(), Unparsed> {
        self.nodes += nodes;
        match self.nodes > self.budget.nodes {
            true => {
                let message = format!("more than {} values", self.budget.nodes);
                Err(self.fault(Fault::Budget, message, span))
            }
            false => Ok(()),
        }
    }

    fn refuse_tag(&self, tagged: bool, span: &Range<usize>) -> Result<(), Unparsed> {
        match tagged {
            true => Err(self
                .fault(Fault::Syntax, "tags (`!name`) are not read", span.clone())
                .with_help("write the value without its tag")),
            false => Ok(()),
        }
    }

    fn fault(&self, fault: Fault, message: impl Into<String>, span: Range<usize>) -> Unparsed {
        Unparsed { fault, message: message.into(), span, help: None }
    }

    fn scan_error(&self, error: &ScanError) -> Unparsed {
        let at = error.marker().byte_offset().unwrap_or(0).min(self.text.len());
        let span = at..at + self.text[at..].chars().next().map_or(0, char::len_utf8);
        match error.kind() {
            ErrorKind::RecursionLimitExceeded => {
                let message = format!("nested more than {} deep", self.budget.depth);
                self.fault(Fault::Budget, message, span)
            }
            ErrorKind::TabNotAllowed
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation => self
                .fault(Fault::Syntax, "a tab in the indentation", span)
                .with_help("indent with spaces"),
            ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
                let code = u32::from(*character);
                let message = format!("the control character U+{code:04X} has no place in a text");
                self.fault(Fault::Syntax, message, span)
            }
            kind => self.fault(Fault::Syntax, kind.to_string(), span),
        }
    }
}

impl Unparsed {
    fn with_help(mut self, help: &'static str) -> Self {
        self.help = Some(help);
        self
    }
}

fn node(kind: Kind, span: Range<usize>) -> Node {
    Node { start: span.start as u32, end: span.end as u32, kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::report::{Style, render};

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Problem {
        capacity: Spanned<f64>,
        #[serde(default)]
        strict: bool,
    }

    fn refused(text: &str) -> Diagnostic {
        parse::<Problem>("p.yaml", text).unwrap_err()
    }

    #[test]
    fn a_value_knows_its_place() {
        let text = "strict: true\ncapacity: 9.5 # cores\n";
        let problem: Problem = parse("p.yaml", text).unwrap();
        assert_eq!((problem.capacity.value, problem.strict), (9.5, true));
        assert_eq!(&text[span(&problem.capacity)], "9.5");
    }

    #[test]
    fn json_is_read_too() {
        assert_eq!(parse::<Problem>("-", r#"{"capacity": 2}"#).unwrap().capacity.value, 2.0);
    }

    #[test]
    fn every_refusal_has_a_code_and_a_place() {
        for (text, code, position) in [
            ("capacity: 1\ncapacity: 2\n", code::DUPLICATE_KEY, Some((2, 1))),
            ("capacity: 1\nstrikt: true\n", code::UNKNOWN_KEY, Some((2, 1))),
            ("strict: true\n", code::MISSING_KEY, Some((1, 1))),
            ("capacity: many\n", code::VALUE, Some((1, 11))),
            ("capacity: 1\nstrict: yes\n", code::VALUE, Some((2, 9))),
            ("capacity: 1\n---\ncapacity: 2\n", code::DOCUMENTS, Some((2, 1))),
            ("capacity: [1, 2\n", code::VALUE, Some((1, 11))),
            ("capacity: \"1\n", code::SYNTAX, Some((1, 1))),
            ("capacity: 1\n<<: {strict: true}\n", code::SYNTAX, Some((2, 1))),
            ("", code::DOCUMENTS, Some((1, 1))),
        ] {
            let diagnostic = refused(text);
            assert_eq!(
                (diagnostic.code, diagnostic.position()),
                (code, position),
                "{text:?}\n{diagnostic}"
            );
        }
    }

    #[test]
    fn a_tree_ends_at_its_budget() {
        let budget = |nodes| Budget { nodes, ..Budget::POLICY };
        for (text, nodes) in [("a", 1), ("[a, b]", 3), ("a: [b]", 4), ("[&x [a, b], *x]", 10)] {
            assert!(tree(text, budget(nodes)).is_ok(), "{text}");
            let unparsed = tree(text, budget(nodes - 1)).unwrap_err();
            assert_eq!(unparsed.fault, Fault::Budget, "{text}");
        }
    }

    #[test]
    fn a_misspelt_key_is_answered_with_the_right_one() {
        let text = render(&refused("capactiy: 1\n"), Style::PLAIN);
        assert!(text.contains("did you mean `capacity`?"), "{text}");
        assert!(text.contains("p.yaml:1:1"), "{text}");
        assert_eq!(nearest("ci", ["cpu", "memory"]), None);
    }

    /// Nine values each: the crate's own budget ends at 250 000.
    #[test]
    fn a_large_problem_is_read() {
        let tenants: Vec<String> = (0..30_000)
            .map(|number| {
                format!("  t{number}: {{ weight: 1, demand: {{ cpu: 1, memory: 2 }} }}\n")
            })
            .collect();
        let text = format!("tenants:\n{}", tenants.concat());
        type Tenants = std::collections::HashMap<String, serde::de::IgnoredAny>;
        let problem: std::collections::HashMap<String, Tenants> = parse("p", &text).unwrap();
        assert_eq!(problem["tenants"].len(), 30_000);
    }

    #[test]
    fn nesting_and_alias_bombs_are_refused() {
        type Any = serde_json::Value;
        assert_eq!(parse::<Any>("p", &"[".repeat(100_000)).unwrap_err().code, code::BUDGET);
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for level in 1..12 {
            let previous = format!("*a{}", level - 1);
            bomb += &format!("a{level}: &a{level} [{}]\n", [previous.as_str(); 10].join(", "));
        }
        let error = parse::<Any>("p", &bomb).unwrap_err();
        assert_eq!(error.code, code::BUDGET);
    }
}
