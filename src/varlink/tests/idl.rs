//! The `.varlink` files are the documentation, so they must be right: each is parsed here, and every type,
//! method, access and error in it is compared with the Rust type that goes over the wire.
//!
//! A definition is a deserializer: the Rust type reads an example from it, with every field and no null, and writes
//! it again. A field that is missing in Rust is lost, a field that is missing in the definition appears, and a type
//! that differs is refused. An enum of Rust asks for its words, which are those of the definition.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test asserts; it need not handle")]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::str::SplitWhitespace;

use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer};
use serde::{Serialize, de, forward_to_deserialize_any};
use serde_json::{Value, json};
use tenantd_varlink::error::CallError;
use tenantd_varlink::interface::*;

#[derive(Clone, Debug, PartialEq)]
enum Type {
    Bool,
    Int,
    Float,
    String,
    Named(String),
    Array(Box<Type>),
    Map(Box<Type>),
    Nullable(Box<Type>),
    Enum(Vec<String>),
    Struct(Vec<(String, Type)>),
}

/// The parts of one definition file that the tests compare.
#[derive(Debug, Default)]
struct Interface {
    name: String,
    types: BTreeMap<String, Type>,
    methods: BTreeMap<String, (Type, Type)>,
    errors: BTreeMap<String, Type>,
    /// The words of the enums that Rust has asked for.
    asked: RefCell<BTreeSet<Vec<String>>>,
}

type Tokens<'a> = Peekable<SplitWhitespace<'a>>;

fn ty(tokens: &mut Tokens) -> Type {
    match tokens.next().unwrap() {
        "(" => fields(tokens),
        "?" => Type::Nullable(Box::new(ty(tokens))),
        "[]" => Type::Array(Box::new(ty(tokens))),
        "[string]" => Type::Map(Box::new(ty(tokens))),
        "bool" => Type::Bool,
        "int" => Type::Int,
        "float" => Type::Float,
        "string" => Type::String,
        name => Type::Named(name.to_string()),
    }
}

/// `a: int, b: string)`, or `a, b)`.
fn fields(tokens: &mut Tokens) -> Type {
    let (mut fields, mut words) = (Vec::new(), Vec::new());
    while tokens.next_if_eq(&")").is_none() {
        let name = tokens.next().unwrap().to_string();
        match tokens.next_if_eq(&":") {
            Some(_) => fields.push((name, ty(tokens))),
            None => words.push(name),
        }
        let is_last = tokens.next_if_eq(&",").is_none();
        assert_eq!(is_last, tokens.peek() == Some(&")"), "a comma before each but the first");
    }
    assert!(fields.is_empty() || words.is_empty());
    if words.is_empty() { Type::Struct(fields) } else { Type::Enum(words) }
}

fn parse(text: &str) -> Interface {
    let code: Vec<&str> = text.lines().map(|line| line.split('#').next().unwrap()).collect();
    let mut code = code
        .join("\n")
        .replace("[]", " [] ")
        .replace("[string]", " [string] ")
        .replace("->", " -> ");
    for mark in ["(", ")", ",", ":", "?"] {
        code = code.replace(mark, &format!(" {mark} "));
    }
    let tokens = &mut code.split_whitespace().peekable();
    assert_eq!(tokens.next(), Some("interface"));
    let mut interface = Interface { name: tokens.next().unwrap().into(), ..Interface::default() };
    while let Some(kind) = tokens.next() {
        let name = tokens.next().unwrap().to_string();
        assert!(name.starts_with(|c: char| c.is_ascii_uppercase()), "{name}");
        let first = ty(tokens);
        let before = match kind {
            "type" => interface.types.insert(name.clone(), first).is_some(),
            "error" => interface.errors.insert(name.clone(), first).is_some(),
            "method" => {
                assert_eq!(tokens.next(), Some("->"));
                interface.methods.insert(name.clone(), (first, ty(tokens))).is_some()
            }
            other => panic!("`{other}` begins no definition"),
        };
        assert!(!before, "{name} is defined twice");
    }
    interface
}

/// One reading of a definition.
#[derive(Default)]
struct Reading {
    /// Picks the word of each enum.
    choice: usize,
    /// Number of a field that is null.
    hole: Option<usize>,
    /// The fields that were read, and whether they may be null.
    fields: RefCell<Vec<(String, bool)>>,
}

/// A place in a definition, as a deserializer of examples.
#[derive(Clone, Copy)]
struct Place<'a> {
    interface: &'a Interface,
    ty: &'a Type,
    reading: &'a Reading,
    is_null: bool,
}

impl<'a> Place<'a> {
    fn of(self, ty: &'a Type) -> Place<'a> {
        let ty = if let Type::Named(name) = ty { &self.interface.types[name] } else { ty };
        Place { ty, is_null: false, ..self }
    }

    fn field(self, (name, ty): &'a (String, Type)) -> (&'a str, Place<'a>) {
        let mut fields = self.reading.fields.borrow_mut();
        let is_null = self.reading.hole == Some(fields.len());
        fields.push((name.clone(), matches!(ty, Type::Nullable(_))));
        (name, Place { is_null, ..self.of(ty) })
    }
}

impl<'de> IntoDeserializer<'de, Error> for Place<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Place<'_> {
    type Error = Error;

    fn deserialize_any<V: de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.ty {
            _ if self.is_null => visitor.visit_unit(),
            Type::Bool => visitor.visit_bool(true),
            Type::Int => visitor.visit_u64(7),
            Type::Float => visitor.visit_f64(0.5),
            Type::String => visitor.visit_str("text"),
            Type::Named(_) => self.of(self.ty).deserialize_any(visitor),
            Type::Nullable(of) => visitor.visit_some(self.of(of)),
            Type::Array(of) => visitor.visit_seq(SeqDeserializer::new([self.of(of)].into_iter())),
            Type::Map(of) => {
                visitor.visit_map(MapDeserializer::new([("key", self.of(of))].into_iter()))
            }
            Type::Enum(words) => visitor.visit_str(&words[self.reading.choice % words.len()]),
            Type::Struct(fields) => {
                visitor.visit_map(MapDeserializer::new(fields.iter().map(|it| self.field(it))))
            }
        }
    }

    fn deserialize_enum<V: de::Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.ty {
            Type::Enum(words) if !self.is_null && words == variants => {
                self.interface.asked.borrow_mut().insert(words.clone());
                let word = words[self.reading.choice % words.len()].as_str();
                visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(word))
            }
            _ => Err(Error::custom(format!("{name} is {variants:?}, not {:?}", self.ty))),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl Interface {
    fn read<T: DeserializeOwned>(&self, ty: &Type, reading: &Reading) -> Result<T, Error> {
        let interface = self;
        T::deserialize(Place { interface, ty, reading, is_null: false }.of(ty))
    }

    fn compare<T: Serialize + DeserializeOwned>(&self, ty: &Type) {
        for choice in 0..24 {
            let reading = Reading { choice, ..Reading::default() };
            let read: T = self.read(ty, &reading).unwrap_or_else(|e| panic!("{}: {e}", self.name));
            let example: Value = self.read(ty, &reading).unwrap();
            assert_eq!(serde_json::to_value(read).unwrap(), example);
        }
        // What may be absent is what Rust takes a null for.
        let whole = Reading::default();
        self.read::<Value>(ty, &whole).unwrap();
        for (number, (field, nullable)) in whole.fields.take().into_iter().enumerate() {
            let holed = Reading { hole: Some(number), ..Reading::default() };
            assert_eq!(self.read::<T>(ty, &holed).is_ok(), nullable, "{}: {field}", self.name);
        }
    }
}

/// Compares the parameters and the reply of each method of the table with its definition.
struct Signatures([Interface; 3]);

impl Visitor for Signatures {
    fn method<S: Signature>(&mut self) {
        let (interface, name) = S::METHOD.names();
        let defined = self.0.iter().find(|defined| defined.name == interface).unwrap();
        let (takes, gives) = &defined.methods[name];
        defined.compare::<S::Parameters>(takes);
        defined.compare::<S::Reply>(gives);
    }
}

#[test]
fn each_method_matches_its_definition() {
    let mut signatures = Signatures([SERVICE_IDL, MANAGER_IDL, JOBS_IDL].map(parse));
    Method::visit(&mut signatures);
    for interface in signatures.0 {
        for (name, ty) in &interface.types {
            let is_asked = |words| interface.asked.borrow().contains(words);
            assert!(!matches!(ty, Type::Enum(words) if !is_asked(words)), "{name} is not in Rust");
        }
    }
}

#[test]
fn every_method_is_defined_and_every_definition_is_a_method() {
    let mut defined = Vec::new();
    for text in [SERVICE_IDL, MANAGER_IDL, JOBS_IDL] {
        let interface = parse(text);
        let methods = interface.methods.keys().map(|name| format!("{}.{name}", interface.name));
        defined.extend(methods);
    }
    let mut known: Vec<String> = Method::ALL.iter().map(|method| method.full_name()).collect();
    known.sort_unstable();
    defined.sort_unstable();
    assert_eq!(known, defined);
    for method in Method::ALL {
        assert_eq!(Method::find(&method.full_name()), Ok(*method));
    }
}

/// The comment above each method names its access, and it is the access that is enforced.
#[test]
fn the_documented_access_is_the_enforced_one() {
    for method in Method::ALL {
        let (interface, name) = method.names();
        let text = definition(interface).unwrap();
        let (before, _) = text.split_once(&format!("\nmethod {name}(")).unwrap();
        let access = match method.access() {
            Access::Open => "# Access: open.",
            Access::Read => "# Access: read.",
            Access::Change => "# Access: change.",
            Access::Own => "# Access: own.",
        };
        assert_eq!(before.lines().last(), Some(access), "{name}");
    }
}

#[test]
fn every_error_is_defined_and_every_definition_is_an_error() {
    let mut defined = Vec::new();
    for text in [SERVICE_IDL, MANAGER_IDL, JOBS_IDL] {
        let interface = parse(text);
        for (name, parameters) in &interface.errors {
            let full_name = format!("{}.{name}", interface.name);
            let example: Value = interface.read(parameters, &Reading::default()).unwrap();
            let message = json!({ "error": full_name, "parameters": example });
            let error: CallError = serde_json::from_value(message.clone()).unwrap();
            assert_eq!(serde_json::to_value(error).unwrap(), message);
            defined.push(full_name);
        }
    }
    let unknown = json!({ "error": "zz", "parameters": {} });
    let error = serde_json::from_value::<CallError>(unknown).unwrap_err().to_string();
    let mut known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
    known.sort_unstable();
    defined.sort_unstable();
    assert_eq!(known, defined);
}
