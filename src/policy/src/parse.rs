//! YAML text in, a tree of its values out. The only file that names the YAML crate.
//!
//! **Problem.** Policies and problem files are written by people, and some are hostile: a file of a hundred
//! bytes can expand to a billion values (aliases of aliases), or nest a hundred thousand deep. Any text
//! gives, in bounded time and memory, a tree or one clear finding.
//!
//! **Shape.** [`tree`] keeps repeated keys and all places, so that every finding can be drawn from it at
//! once. The expansion of an alias counts against the same [`Budget`] as written text.
//!
//! **Strictness.** A second document, a tag and a key that is not a scalar are refused.

use std::collections::HashMap;
use std::ops::Range;

use serde_yaml::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, ScanError};

use super::hint::{VARIABLES, shortened};
use super::syntax::{self, Mistake, Trouble};
use super::tree::{Entry, Kind, Node};

/// Limits of a text. A larger text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Values, keys and collections, with aliases counted as their expansion.
    pub nodes: usize,
    /// Nesting depth of collections.
    pub depth: usize,
    /// Bytes of text.
    pub bytes: usize,
}

impl Budget {
    /// Budget of problem files: a million tenants of a dozen values each.
    pub const PROBLEM: Budget = Budget { nodes: 20_000_000, depth: 64, bytes: 1 << 30 };

    /// Budget of policies: ten thousand tenants with every key, several times over.
    pub const POLICY: Budget = Budget { nodes: 1_000_000, depth: 64, bytes: 16 << 20 };
}

/// Kind of a parse error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not YAML, or unsupported YAML (tags, keys that are not scalars).
    Syntax,
    /// More than the budget.
    Budget,
    /// Only blanks and comments.
    Empty,
    /// More than one document.
    Documents,
    /// An alias within its own value.
    Cycle,
}

/// A parse error: kind, reason, place and remedy.
#[derive(Clone, Debug)]
pub struct Unparsed {
    /// Kind of the error.
    pub fault: Fault,
    /// Reason, as text.
    pub message: String,
    /// Place of the error.
    pub span: Range<usize>,
    /// Remedy.
    pub help: Option<String>,
}

/// Parses a text into a tree that still has its repeated keys.
///
/// # Errors
/// The first error; the text after it cannot be parsed.
pub fn tree(text: &str, budget: Budget) -> Result<Node, Unparsed> {
    if text.len() > budget.bytes.min(u32::MAX as usize) {
        let message = format!("{} bytes are more than the {} allowed", text.len(), budget.bytes);
        return Err(Unparsed { fault: Fault::Budget, message, span: 0..0, help: None });
    }
    let mut options = granit_parser::options! {
        // One more than the budget, because the budget has the better message.
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
    let root = builder.root.take().ok_or(Unparsed {
        fault: Fault::Empty,
        message: "there is nothing in it".into(),
        span: 0..0,
        help: None,
    })?;
    match builder.other_format().filter(|_| matches!(root.kind, Kind::Scalar { .. })) {
        Some(unparsed) => Err(unparsed),
        None => Ok(root),
    }
}

struct Open {
    node: Node,
    anchor: usize,
    key: Option<(Box<str>, Range<usize>)>,
}

/// Assembles events into a tree. The stack is explicit: nesting uses no call stack.
struct Builder<'a> {
    budget: Budget,
    text: &'a str,
    /// Nodes and keys so far, with the expansion of aliases.
    nodes: usize,
    open: Vec<Open>,
    /// Value of each anchor; `None` while it is being read.
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

    /// End of a block collection's content: YAML ends it where the next token begins.
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
                            let fault = self.fault(Fault::Syntax, message, span.clone());
                            // `{{ name }}` of a template language.
                            let before = self.text.get(..span.start).unwrap_or_default();
                            return Err(fault.with_help(if before.ends_with('{') {
                                VARIABLES
                            } else {
                                "write the key as a text, in quotes"
                            }));
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
                let message = "this alias lies within its own anchor";
                return Err(self.fault(Fault::Cycle, message, span));
            }
            None => {
                return Err(self.fault(Fault::Syntax, "this alias has no anchor", span));
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
        if self.nodes > self.budget.nodes {
            let message = format!("more than {} values", self.budget.nodes);
            Err(self.fault(Fault::Budget, message, span))
        } else {
            Ok(())
        }
    }

    fn refuse_tag(&self, tagged: bool, span: &Range<usize>) -> Result<(), Unparsed> {
        if tagged {
            Err(self
                .fault(Fault::Syntax, "tags (`!name`) are not read", span.clone())
                .with_help("write the value without its tag"))
        } else {
            Ok(())
        }
    }

    fn fault(&self, fault: Fault, message: impl Into<String>, span: Range<usize>) -> Unparsed {
        Unparsed { fault, message: message.into(), span, help: None }
    }

    fn other_format(&self) -> Option<Unparsed> {
        let (format, span) = syntax::other_format(self.text)?;
        let unparsed = self.fault(Fault::Syntax, format!("this is {format}, and not YAML"), span);
        Some(unparsed.with_help("write a `key: value` on each line"))
    }

    fn scan_error(&self, error: &ScanError) -> Unparsed {
        if let Some(unparsed) = self.other_format() {
            return unparsed;
        }
        let at = error.marker().byte_offset().unwrap_or(0).min(self.text.len());
        let span = at..at + self.text[at..].chars().next().map_or(0, char::len_utf8);
        let syntax = |message: String| self.fault(Fault::Syntax, message, span.clone());
        let trouble = match error.kind() {
            ErrorKind::RecursionLimitExceeded => {
                let message = format!("nested more than {} deep", self.budget.depth);
                return self.fault(Fault::Budget, message, span);
            }
            ErrorKind::TabNotAllowed
            | ErrorKind::TabInBlockIndentation
            | ErrorKind::TabInIndentation => {
                return syntax("a tab in the indentation".into()).with_help("indent with spaces");
            }
            ErrorKind::UnexpectedCharacter { character } if character.is_control() => {
                let code = u32::from(*character);
                let help = match code {
                    0 => "remove it; if the file is UTF-16, convert it: `iconv -f UTF-16 -t UTF-8`",
                    _ => "remove it",
                };
                return syntax(format!("the control character U+{code:04X} is not allowed"))
                    .with_help(help);
            }
            ErrorKind::UnexpectedCharacter { character } => {
                return syntax(format!("a value cannot begin with `{character}`"))
                    .with_help(quoted(&self.text[at..]));
            }
            ErrorKind::UnknownAnchor | ErrorKind::MissingAnchorOrAliasName => {
                return syntax("`*` and `&` begin the name of an alias here".into())
                    .with_help(quoted_or_anchored(&self.text[at..]));
            }
            ErrorKind::UnclosedQuotedScalar => {
                return syntax("this quote is not closed".into())
                    .with_help("close it on the same line");
            }
            ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
                let right = if *open == '{' { '}' } else { ']' };
                return syntax(format!("this `{open}` is closed by `{close}`"))
                    .with_help(format!("close it with `{right}` before the `{close}`"));
            }
            ErrorKind::MappingValueNotAllowed | ErrorKind::InvalidColonPlacement => Trouble::Colon,
            ErrorKind::SimpleKeyExpected => Trouble::Key,
            ErrorKind::ExpectedBlockMappingKey | ErrorKind::InvalidIndentation => {
                Trouble::Indentation
            }
            ErrorKind::ExpectedFlowMappingSeparator
            | ErrorKind::ExpectedFlowSequenceSeparator
            | ErrorKind::MisplacedFlowCollectionEnd
            | ErrorKind::UnexpectedEofImplicitFlowMapping
            | ErrorKind::UnclosedFlowCollection { .. } => Trouble::Bracket,
            _ => Trouble::Other,
        };
        // An unclosed bracket is reported at its own place.
        let is_never_closed = matches!(error.kind(), ErrorKind::UnclosedFlowCollection { .. });
        let at = if is_never_closed { self.text.len() } else { at };
        match syntax::mistake(self.text, at, trouble) {
            Some(Mistake { message, span, help }) => {
                self.fault(Fault::Syntax, message, span).with_help(help)
            }
            None => syntax(error.kind().to_string()),
        }
    }
}

/// Remedy for the unquoted text at the beginning of `rest`, which may be an alias.
fn quoted_or_anchored(rest: &str) -> String {
    let end = rest.find(|c: char| c.is_whitespace() || ",]}".contains(c));
    let name = rest[..end.unwrap_or(rest.len())].strip_prefix('*').filter(|name| is_word(name));
    let anchor = name
        .map(|name| format!(", or write the anchor `&{}` before a value above", shortened(name)));
    quoted(rest) + &anchor.unwrap_or_default()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_alphanumeric() || c == '_' || c == '-')
}

/// Quoted form of the unquoted text at the beginning of `rest`.
fn quoted(rest: &str) -> String {
    let end = rest.find([',', '}', ']', '\n', '#']).unwrap_or(rest.len());
    format!("put the text into quotes: `\"{}\"`", shortened(rest[..end].trim()))
}

impl Unparsed {
    fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

fn node(kind: Kind, span: Range<usize>) -> Node {
    Node { start: span.start as u32, end: span.end as u32, kind }
}
