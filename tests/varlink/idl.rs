//! The `.varlink` files are the documentation, so they must be right: each is parsed here, and every type,
//! method, access and error in it is compared with the Rust type that goes over the wire.
//!
//! The comparison is a round trip: an example is made from a definition, with every field and no null; the Rust
//! type reads it and writes it again. A field that is missing in Rust is lost, a field that is missing in the
//! definition appears, and a type that differs is refused.

use std::collections::BTreeMap;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenantd_control::report::status::Status;
use tenantd_control::why::explain::Explanation;
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
    Nullable(Box<Type>),
    Enum(Vec<String>),
    Struct(Vec<(String, Type)>),
}

/// One definition file, as far as the tests ask about it.
#[derive(Debug, Default)]
struct Interface {
    name: String,
    types: BTreeMap<String, Type>,
    methods: BTreeMap<String, (Type, Type)>,
    errors: BTreeMap<String, Type>,
}

struct Tokens(Vec<String>);

impl Tokens {
    fn of(text: &str) -> Tokens {
        let mut tokens = Vec::new();
        for line in text.lines() {
            let code = line.split('#').next().unwrap();
            let mut word = String::new();
            for character in code.chars().chain([' ']) {
                let is_word = character.is_ascii_alphanumeric() || "._-".contains(character);
                // `->` is two of them, which nothing here minds.
                if is_word && character != '-' {
                    word.push(character);
                    continue;
                }
                if !word.is_empty() {
                    tokens.push(std::mem::take(&mut word));
                }
                if !character.is_whitespace() {
                    tokens.push(character.to_string());
                }
            }
        }
        tokens.reverse();
        Tokens(tokens)
    }

    fn next(&mut self) -> String {
        self.0.pop().expect("more text")
    }

    fn peek(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    fn expect(&mut self, token: &str) {
        assert_eq!(self.next(), token);
    }

    fn ty(&mut self) -> Type {
        match self.peek() {
            "(" => self.fields(),
            "?" => {
                self.next();
                Type::Nullable(Box::new(self.ty()))
            }
            "[" => {
                self.next();
                self.expect("]");
                Type::Array(Box::new(self.ty()))
            }
            _ => match self.next().as_str() {
                "bool" => Type::Bool,
                "int" => Type::Int,
                "float" => Type::Float,
                "string" => Type::String,
                name => Type::Named(name.to_string()),
            },
        }
    }

    /// `(a: int, b: string)`, or `(a, b)`.
    fn fields(&mut self) -> Type {
        self.expect("(");
        let (mut fields, mut words) = (Vec::new(), Vec::new());
        while self.peek() != ")" {
            let name = self.next();
            if self.peek() == ":" {
                self.next();
                fields.push((name, self.ty()));
            } else {
                words.push(name);
            }
            if self.peek() == "," {
                self.next();
                assert_ne!(self.peek(), ")", "a comma before the end");
            }
        }
        self.expect(")");
        assert!(fields.is_empty() || words.is_empty());
        if words.is_empty() { Type::Struct(fields) } else { Type::Enum(words) }
    }
}

fn parse(text: &str) -> Interface {
    let mut tokens = Tokens::of(text);
    let mut interface = Interface::default();
    tokens.expect("interface");
    interface.name = tokens.next();
    while !tokens.peek().is_empty() {
        let (kind, name) = (tokens.next(), tokens.next());
        assert!(name.starts_with(|c: char| c.is_ascii_uppercase()), "{name}");
        let before = match kind.as_str() {
            "type" => interface.types.insert(name.clone(), tokens.ty()).is_some(),
            "error" => interface.errors.insert(name.clone(), tokens.fields()).is_some(),
            "method" => {
                let takes = tokens.fields();
                tokens.expect("-");
                tokens.expect(">");
                let gives = tokens.fields();
                interface.methods.insert(name.clone(), (takes, gives)).is_some()
            }
            other => panic!("`{other}` begins no definition"),
        };
        assert!(!before, "{name} is defined twice");
    }
    interface
}

impl Interface {
    /// An example of `ty` with nothing left out; `choice` picks the word of each enum.
    fn example(&self, ty: &Type, choice: usize) -> Value {
        match ty {
            Type::Bool => json!(true),
            Type::Int => json!(7),
            Type::Float => json!(0.5),
            Type::String => json!("text"),
            Type::Named(name) => self.example(&self.types[name], choice),
            Type::Array(of) => json!([self.example(of, choice)]),
            Type::Nullable(of) => self.example(of, choice),
            Type::Enum(words) => json!(words[choice % words.len()]),
            Type::Struct(fields) => {
                fields.iter().map(|(name, ty)| (name.clone(), self.example(ty, choice))).collect()
            }
        }
    }

    fn compare<T: Serialize + DeserializeOwned>(&self, ty: &Type) {
        for choice in 0..12 {
            let example = self.example(ty, choice);
            let read: T = serde_json::from_value(example.clone())
                .unwrap_or_else(|error| panic!("{}: {error} in {example}", self.name));
            assert_eq!(serde_json::to_value(read).unwrap(), example);
        }
        // What may be absent is what Rust takes a null for.
        self.compare_nulls::<T>(ty, &self.example(ty, 0), &mut Vec::new());
    }

    /// Sets each field in turn to null: exactly the nullable ones are taken.
    fn compare_nulls<T: DeserializeOwned>(&self, ty: &Type, whole: &Value, at: &mut Vec<String>) {
        match ty {
            Type::Named(name) => self.compare_nulls::<T>(&self.types[name], whole, at),
            Type::Nullable(of) => self.compare_nulls::<T>(of, whole, at),
            Type::Array(of) => {
                at.push("0".into());
                self.compare_nulls::<T>(of, whole, at);
                at.pop();
            }
            Type::Struct(fields) => {
                for (name, ty) in fields {
                    at.push(name.clone());
                    let mut holed = whole.clone();
                    *holed.pointer_mut(&format!("/{}", at.join("/"))).unwrap() = Value::Null;
                    let taken = serde_json::from_value::<T>(holed).is_ok();
                    let nullable = matches!(ty, Type::Nullable(_));
                    assert_eq!(taken, nullable, "{}: {}", self.name, at.join("."));
                    self.compare_nulls::<T>(ty, whole, at);
                    at.pop();
                }
            }
            _ => {}
        }
    }

    /// The words that Rust knows, from what it says of one that it does not know.
    fn compare_words<T: DeserializeOwned + std::fmt::Debug>(&self, name: &str) {
        let error = serde_json::from_value::<T>(json!("zz")).unwrap_err().to_string();
        let known: Vec<&str> = error.split('`').skip(3).step_by(2).collect();
        let Type::Enum(words) = &self.types[name] else { panic!("{name} is no enum") };
        assert_eq!(&known, words, "{name}: {error}");
    }
}

#[test]
fn the_types_of_the_manager_are_those_of_rust() {
    use tenantd_control::{share::demand::CpuBasis, why::explain};
    use tenantd_policy::{model::Mode, outline::ChangeKind, report::Severity};
    let manager = parse(MANAGER_IDL);
    assert_eq!(manager.name, MANAGER);
    manager.compare::<Status>(&Type::Named("Status".into()));
    manager.compare::<Explanation>(&Type::Named("Explanation".into()));
    manager.compare_words::<Mode>("Mode");
    manager.compare_words::<CpuBasis>("CpuBasis");
    manager.compare_words::<explain::AllocationBound>("AllocationBound");
    manager.compare_words::<explain::Outcome>("Outcome");
    manager.compare_words::<ChangeKind>("ChangeKind");
    manager.compare_words::<Severity>("Severity");
}

#[test]
fn the_types_of_jobs_are_those_of_rust() {
    use tenantd_varlink::jobs::{EndReason, JobState, WaitKind};
    let jobs = parse(JOBS_IDL);
    assert_eq!(jobs.name, JOBS);
    jobs.compare_words::<JobState>("JobState");
    jobs.compare_words::<WaitKind>("WaitKind");
    jobs.compare_words::<EndReason>("EndReason");
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
    Method::visit(&mut Signatures([SERVICE_IDL, MANAGER_IDL, JOBS_IDL].map(parse)));
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
            let example = interface.example(parameters, 0);
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
