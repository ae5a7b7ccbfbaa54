//! Problems and scenarios: files whose types derive `Deserialize`.
//!
//! A policy reports all its errors at once; these files stop at the first. [`parse`](super::parse) turns their
//! text into a tree as for a policy, and [`Node::read`] deserializes a value of it. Unknown and repeated keys
//! are errors, and so are numbers in quotes. A rule about several values looks up their places in the tree.
//! Errors of texts, types and rules are one type, [`Refusal`].
//!
//! Types are read from the tree and not from the text: a deserializer of text calls itself for each level, and
//! the groups of a problem may nest a thousand deep. A tree is read level by level.

use std::fmt::{self, Display, Formatter};
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};

use super::hint::{listed, nearest, shortened};
use super::reader;
use super::report::{Diagnostic, Report, Severity, Source};
use super::tree::{Entry, Kind, Node};

/// Kind of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A text that is not UTF-8, not YAML, or too large.
    Text,
    /// An unknown key.
    UnknownKey,
    /// A key given twice.
    DuplicateKey,
    /// A missing key.
    MissingKey,
    /// A value of the wrong type, or a word that is not one of the choices.
    WrongType,
    /// A number out of its range.
    Number,
    /// A broken rule of the kind of file, by its code.
    Rule(&'static str),
}

/// A kind of file.
#[derive(Debug)]
pub struct Format {
    /// Codes of [`Cause`], in its order.
    pub codes: [&'static str; 6],
    /// Largest depth of collections.
    pub depth: usize,
    /// Keys, each with the remedy if it is missing or its value has the wrong type.
    pub remedies: &'static [(&'static str, &'static str)],
}

/// The first error of a file.
#[derive(Debug)]
pub struct Refusal(Box<Parts>);

#[derive(Debug)]
struct Parts {
    cause: Cause,
    /// `None` until the value is known: `Deserialize` has no places.
    span: Option<Range<usize>>,
    message: String,
    help: String,
    also: Option<(Range<usize>, &'static str)>,
    /// The expected value; the message is made of it once the value is known.
    expected: Option<String>,
    /// The missing key, or the key of the value.
    key: Option<String>,
    /// All findings of a policy in the file.
    policy: Option<Report>,
}

impl Refusal {
    fn without_place(cause: Cause, message: impl Into<String>) -> Refusal {
        let (span, message, help, also) = (None, message.into(), String::new(), None);
        let (expected, key, policy) = (None, None, None);
        Refusal(Box::new(Parts { cause, span, message, help, also, expected, key, policy }))
    }

    /// Creates an error about these bytes of the file.
    pub fn new(cause: Cause, span: Range<usize>, message: impl Into<String>) -> Refusal {
        let mut refusal = Refusal::without_place(cause, message);
        refusal.0.span = Some(span);
        refusal
    }

    /// Creates an error about a missing key of a map.
    pub fn missing(map: &Node, key: &str) -> Refusal {
        let message = format!("`{key}` is missing");
        Refusal::without_place(Cause::MissingKey, message).within(key).about(map)
    }

    /// Creates an error from the findings of a policy in the file.
    pub fn of_policy(report: Report) -> Refusal {
        let mut refusal = Refusal::without_place(Cause::Text, report.to_string());
        refusal.0.policy = Some(report);
        refusal
    }

    fn expecting(cause: Cause, expected: &dyn Expected) -> Refusal {
        let mut refusal = Refusal::without_place(cause, "");
        refusal.0.expected = Some(expected.to_string());
        refusal
    }

    /// Sets the remedy.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Refusal {
        self.0.help = help.into();
        self
    }

    /// Adds a place that explains the error.
    #[must_use]
    pub fn also(mut self, span: Range<usize>, text: &'static str) -> Refusal {
        self.0.also = Some((span, text));
        self
    }

    /// Adds the place of the value unless there is one.
    fn about(mut self, node: &Node) -> Refusal {
        let parts = &mut *self.0;
        if parts.span.is_some() {
            return self;
        }
        parts.span = Some(node.span());
        if parts.cause == Cause::MissingKey {
            parts.span = Some(node.start as usize..node.start as usize + 1);
        }
        if let Some(expected) = parts.expected.take() {
            (parts.message, parts.help) = match parts.cause {
                Cause::Number => {
                    let message = format!("{} is out of range", node.describe());
                    (message, format!("expected {expected}"))
                }
                _ => reader::mistyped(node, &expected, &parts.help),
            };
        }
        self
    }

    /// Adds the key of the value, or of the map around an unknown key.
    fn within(mut self, key: &str) -> Refusal {
        if self.0.key.is_none() {
            self.0.key = Some(key.to_string());
            if self.0.cause == Cause::UnknownKey {
                self.0.message += &format!(" in `{}`", shortened(key));
            }
        }
        self
    }

    /// The error as a finding about `source`.
    pub fn report(self, source: &Arc<Source>, format: &Format) -> Report {
        let Parts { cause, span, message, mut help, also, key, policy, .. } = *self.0;
        if let Some(report) = policy {
            return report;
        }
        let code = match cause {
            Cause::Text => format.codes[0],
            Cause::UnknownKey => format.codes[1],
            Cause::DuplicateKey => format.codes[2],
            Cause::MissingKey => format.codes[3],
            Cause::WrongType => format.codes[4],
            Cause::Number => format.codes[5],
            Cause::Rule(code) => code,
        };
        if help.is_empty() && matches!(cause, Cause::MissingKey | Cause::WrongType) {
            let remedy = format.remedies.iter().find(|(of, _)| Some(*of) == key.as_deref());
            help = remedy.map_or(help, |(_, remedy)| remedy.to_string());
        }
        let mut finding = Diagnostic::new(code, Severity::Error, source, message);
        for (span, text) in span.map(|span| (span, "")).into_iter().chain(also) {
            finding = finding.at(span, text);
        }
        let mut report = Report::default();
        report.push(if help.is_empty() { finding } else { finding.help(help) });
        report
    }
}

impl Display for Refusal {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    /// The second line of a message is the remedy.
    fn custom<T: Display>(message: T) -> Refusal {
        let message = message.to_string();
        let (message, help) = message.split_once('\n').unwrap_or((&message, ""));
        Refusal::without_place(Cause::WrongType, message).help(help)
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Refusal {
        Refusal::expecting(Cause::WrongType, expected)
    }

    /// A value with a message of its own has the remedy in place of the expected value.
    fn invalid_value(value: Unexpected<'_>, expected: &dyn Expected) -> Refusal {
        match value {
            Unexpected::Other(message) => {
                Refusal::without_place(Cause::Number, message).help(expected.to_string())
            }
            _ => Refusal::expecting(Cause::Number, expected),
        }
    }

    fn unknown_variant(text: &str, words: &'static [&'static str]) -> Refusal {
        de::Error::custom(not_a_word(text, words.iter().copied()))
    }

    fn unknown_field(key: &str, keys: &'static [&'static str]) -> Refusal {
        let unknown = reader::unknown_key(keys, key, true, None);
        let near = unknown.near.map(|near| format!("did you mean `{near}`? "));
        let help = near.unwrap_or_default() + &unknown.help;
        Refusal::without_place(Cause::UnknownKey, unknown.message).help(help)
    }

    fn missing_field(key: &'static str) -> Refusal {
        Refusal::without_place(Cause::MissingKey, format!("`{key}` is missing")).within(key)
    }
}

/// Message and remedy for a text that is not one of some words, in two lines.
fn not_a_word<'w>(text: &str, words: impl Iterator<Item = &'w str> + Clone) -> String {
    let near = nearest(text, words.clone()).map(|near| format!("did you mean `{near}`? "));
    let (text, near) = (shortened(text), near.unwrap_or_default());
    format!("`{text}` is not one of the choices\n{near}one of {}", listed(words))
}

impl Node {
    /// Deserializes the value.
    ///
    /// # Errors
    /// The first error of the value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        T::deserialize(Value(self)).map_err(|refusal| refusal.about(self))
    }

    /// Reads one of some words.
    ///
    /// # Errors
    /// Another value.
    pub fn one_of<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, Refusal> {
        one_of(Value(self), words).map_err(|refusal: Refusal| refusal.about(self))
    }

    /// Entries of a map without repeats; nothing counts as an empty map.
    ///
    /// # Errors
    /// Another value, or a repeated key.
    pub fn map(&self) -> Result<&[Entry], Refusal> {
        let entries = match &self.kind {
            Kind::Map(entries) => entries.as_slice(),
            Kind::Null => &[],
            _ => return Err(Value(self).mistyped(&"a map")),
        };
        let Some((first, again)) = reader::duplicates(entries).next() else { return Ok(entries) };
        let message = format!("`{}` is given twice", shortened(&again.key));
        let refusal = Refusal::new(Cause::DuplicateKey, again.span(), message);
        Err(refusal.also(first.span(), "first given here").help("remove one of them"))
    }
}

impl Entry {
    /// Deserializes the value of the key.
    ///
    /// # Errors
    /// The first error of the value.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        self.value.read().map_err(|refusal| refusal.within(&self.key))
    }
}

// --- types of any file ---

/// Deserializes a text, of which `expected` is a description.
///
/// # Errors
/// Another value.
pub fn text<'de, D: Deserializer<'de>>(d: D, expected: &str) -> Result<String, D::Error> {
    struct Text<'e>(&'e str);

    impl Visitor<'_> for Text<'_> {
        type Value = String;

        fn expecting(&self, f: &mut Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_string())
        }
    }
    d.deserialize_str(Text(expected))
}

/// Deserializes one of some words.
///
/// # Errors
/// Another value.
pub fn one_of<'de, D: Deserializer<'de>, T: Copy>(
    deserializer: D,
    words: &[(&str, T)],
) -> Result<T, D::Error> {
    let names = words.iter().map(|(word, _)| *word);
    let text = text(deserializer, &format!("one of {}", listed(names.clone())))?;
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| de::Error::custom(not_a_word(&text, names)))
}

/// Deserializes a number of a range, which an error names by `words`.
///
/// # Errors
/// Another value.
pub fn within<'de, D: Deserializer<'de>>(
    deserializer: D,
    range: RangeInclusive<f64>,
    words: &str,
) -> Result<f64, D::Error> {
    let number = f64::deserialize(deserializer)?;
    if range.contains(&number) {
        return Ok(number);
    }
    Err(de::Error::invalid_value(Unexpected::Float(number), &words))
}

/// A whole number of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole<const LOW: u64, const HIGH: u64>(pub u64);

impl<'de, const LOW: u64, const HIGH: u64> Deserialize<'de> for Whole<LOW, HIGH> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = f64::deserialize(deserializer)?;
        if number.fract() == 0.0 && (LOW as f64..=HIGH as f64).contains(&number) {
            return Ok(Whole(number as u64));
        }
        let expected = format!("a whole number from {LOW} to {HIGH}");
        Err(de::Error::invalid_value(Unexpected::Float(number), &expected.as_str()))
    }
}

// --- the deserializer ---

/// A value to be deserialized.
#[derive(Clone, Copy)]
struct Value<'n>(&'n Node);

impl Value<'_> {
    fn mistyped(self, expected: &dyn Expected) -> Refusal {
        Refusal::expecting(Cause::WrongType, expected).about(self.0)
    }
}

impl<'de> Deserializer<'de> for Value<'_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        let value = match &self.0.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Scalar { text, .. } => visitor.visit_str(text),
            Kind::List(items) => visitor.visit_seq(Items(items)),
            Kind::Map(_) => visitor.visit_map(Entries(self.0.map()?)),
        };
        value.map_err(|refusal| refusal.about(self.0))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_bool(self.0.one_of(&[("false", false), ("true", true)])?)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        let number = reader::number(self.0);
        visitor.visit_f64(number.map_err(|help| {
            Refusal::expecting(Cause::WrongType, &"a number").help(help).about(self.0)
        })?)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.0.kind {
            Kind::Scalar { text, .. } => visitor.visit_str(text),
            _ => Err(self.mistyped(&visitor)),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.0.kind {
            Kind::List(items) => visitor.visit_seq(Items(items)),
            _ => Err(self.mistyped(&"a list")),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match &self.0.kind {
            Kind::List(items) if items.len() != length => {
                let found = items.len();
                let message = format!("expected a list of {length} values, found one of {found}");
                Err(Refusal::without_place(Cause::WrongType, message).about(self.0))
            }
            _ => self.deserialize_seq(visitor),
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match &self.0.kind {
            Kind::Map(_) => self.deserialize_any(visitor),
            _ => Err(self.mistyped(&visitor)),
        }
    }

    /// Nothing counts as a map without keys: `host:` with every line below it commented out.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        keys: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        if let Kind::Map(_) | Kind::Null = &self.0.kind {
            let value = visitor.visit_map(Entries(self.0.map()?));
            return value.map_err(|refusal| refusal.about(self.0));
        }
        let expected = format!("a map with {}", listed(keys.iter().copied()));
        let refusal = Refusal::expecting(Cause::WrongType, &expected.as_str());
        Err(refusal.help(reader::name_the_key(self.0, keys)).about(self.0))
    }

    /// A word, or a map of one key.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match &self.0.kind {
            Kind::Scalar { text, .. } => visitor.visit_enum((**text).into_deserializer()),
            Kind::Map(entries) if entries.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(Entries(entries)))
            }
            _ => Err(self.mistyped(&format!("one of {}", listed(words.iter().copied())).as_str())),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 char bytes byte_buf unit unit_struct
        newtype_struct tuple_struct identifier
    }
}

/// The items of a list that are still to be read.
struct Items<'n>(&'n [Node]);

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Refusal;

    fn next_element_seed<T>(&mut self, seed: T) -> Result<Option<T::Value>, Refusal>
    where
        T: DeserializeSeed<'de>,
    {
        let Some((item, rest)) = self.0.split_first() else { return Ok(None) };
        self.0 = rest;
        seed.deserialize(Value(item)).map(Some).map_err(|refusal| refusal.about(item))
    }
}

/// The entries of a map that are still to be read, of the first perhaps only the value.
struct Entries<'n>(&'n [Entry]);

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Refusal;

    fn next_key_seed<K>(&mut self, seed: K) -> Result<Option<K::Value>, Refusal>
    where
        K: DeserializeSeed<'de>,
    {
        let Some(entry) = self.0.first() else { return Ok(None) };
        let key = seed.deserialize((*entry.key).into_deserializer());
        key.map(Some).map_err(|mut refusal: Refusal| {
            refusal.0.span = Some(entry.span());
            refusal
        })
    }

    fn next_value_seed<V>(&mut self, seed: V) -> Result<V::Value, Refusal>
    where
        V: DeserializeSeed<'de>,
    {
        let Some((entry, rest)) = self.0.split_first() else {
            return Err(de::Error::custom("a value without a key"));
        };
        self.0 = rest;
        let value = seed.deserialize(Value(&entry.value));
        value.map_err(|refusal| refusal.about(&entry.value).within(&entry.key))
    }
}
