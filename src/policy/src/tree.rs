//! A parsed text without interpretation: scalars as written, every node with its place.
//!
//! Deserializing straight into types would stop at the first finding and lose the places of values. Instead
//! the text becomes this tree, and [`super::reader`] walks it key by key and reports all errors at once.

use std::ops::Range;
use std::sync::Arc;

use super::hint::{oddity, shortened};
use super::report::{Label, Source};

/// A range of bytes in one text.
#[derive(Clone, Debug)]
pub struct Place {
    /// The text.
    pub source: Arc<Source>,
    /// Bytes from its beginning.
    pub span: Range<usize>,
}

impl Place {
    /// Returns the place with a text.
    pub fn label(&self, text: impl Into<String>) -> Label {
        Label { source: Arc::clone(&self.source), span: self.span.clone(), text: text.into() }
    }
}

/// A value of the text. Files are far below 4 GiB, so 32 bits hold every position.
#[derive(Clone, Debug)]
pub struct Node {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
    /// Content.
    pub kind: Kind,
}

/// Content of a [`Node`].
#[derive(Clone, Debug)]
pub enum Kind {
    /// Nothing, `~` or `null`.
    Null,
    /// A text with resolved escapes.
    Scalar {
        /// The text.
        text: Box<str>,
        /// True if it was written without quotes, and so may be a number.
        plain: bool,
    },
    /// `[a, b]`, or one `- a` per line.
    List(Vec<Node>),
    /// Keys and values in the order of the text, with repeats.
    Map(Vec<Entry>),
}

/// A key with its value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Key; a scalar in every text that parses.
    pub key: Box<str>,
    /// First byte of the key.
    pub start: u32,
    /// One past its last byte.
    pub end: u32,
    /// The value.
    pub value: Node,
}

impl Node {
    /// True if it is this word, quoted or not.
    pub fn is_word(&self, word: &str) -> bool {
        matches!(&self.kind, Kind::Scalar { text, .. } if &**text == word)
    }

    /// True if it is nothing, or a map without keys.
    pub fn is_empty(&self) -> bool {
        matches!(&self.kind, Kind::Map(entries) if entries.is_empty())
            || matches!(self.kind, Kind::Null)
    }

    /// Entries of a map, with repeats; none of another value.
    pub fn entries(&self) -> &[Entry] {
        match &self.kind {
            Kind::Map(entries) => entries,
            _ => &[],
        }
    }

    /// First entry of a map with this key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.entries().iter().find(|entry| &*entry.key == key)
    }

    /// Items of a list; none of another value.
    pub fn list(&self) -> &[Node] {
        match &self.kind {
            Kind::List(items) => items,
            _ => &[],
        }
    }

    /// Text of the only item of a list.
    pub fn only_item(&self) -> Option<&str> {
        match self.list() {
            [Node { kind: Kind::Scalar { text, .. }, .. }] => Some(text),
            _ => None,
        }
    }

    /// Bytes of the node.
    pub fn span(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Its kind, for a message: `a list`.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "nothing".into(),
            Kind::Scalar { text, plain: true } => format!("`{}`", shortened(text)),
            Kind::Scalar { text, plain: false } => format!("the text \"{}\"", shortened(text)),
            Kind::List(_) => "a list".into(),
            Kind::Map(_) => "a map".into(),
        }
    }

    /// The remedy for characters that are wrong in any value.
    pub(super) fn oddity(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Scalar { text, .. } => oddity(text),
            _ => None,
        }
    }

    /// Number of its nodes and keys, including itself, and its depth.
    pub fn measure(&self) -> (usize, usize) {
        let children: Box<dyn Iterator<Item = (&Node, usize)>> = match &self.kind {
            Kind::Null | Kind::Scalar { .. } => return (1, 0),
            Kind::List(items) => Box::new(items.iter().map(|item| (item, 0))),
            Kind::Map(entries) => Box::new(entries.iter().map(|entry| (&entry.value, 1))),
        };
        let (mut nodes, mut depth) = (1, 0);
        for (child, keys) in children {
            let (below, deep) = child.measure();
            (nodes, depth) = (nodes + keys + below, depth.max(deep));
        }
        (nodes, depth + 1)
    }
}

impl Entry {
    /// True if YAML reads the end of a value with a comma, such as `1,5`, as this key.
    pub(super) fn is_decimals(&self) -> bool {
        self.key.starts_with(|c: char| c.is_ascii_digit()) && matches!(self.value.kind, Kind::Null)
    }

    /// Bytes of the key.
    pub fn span(&self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}
