//! Size of types and functions: methods per type, circles of a type's files through `self`, arguments per function.
//!
//! A type may have its methods in several files. The files of a type are in a circle if methods of each call methods
//! of the next through `self`, `Self::` or the name of the type. Methods of traits are left out: the trait decides
//! their number. An argument of tuple type counts as its parts, `self` as none.

use std::collections::{BTreeMap, BTreeSet};

use super::imports::{imports, is_name, longer_circle, tokens};

/// Inherent methods of one type in one file, with the names that each calls through `self`.
#[derive(Debug, Default)]
pub(super) struct Part {
    methods: BTreeSet<String>,
    called: BTreeSet<String>,
}

/// The methods of one type, by file.
pub(super) type Methods = BTreeMap<String, Part>;

/// The types of one crate with inherent methods, by the file that defines them and their name; `sources` are those of the crate (path
/// below its `src`, and text).
pub(super) fn types(sources: &[(String, String)]) -> BTreeMap<(String, String), Methods> {
    let mut definers: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    let of_files: Vec<(&str, Vec<String>)> =
        sources.iter().map(|(path, text)| (path.as_str(), tokens(text))).collect();
    for (path, tokens) in &of_files {
        for pair in tokens.windows(2).filter(|pair| ["struct", "enum"].contains(&&*pair[0])) {
            definers.entry(pair[1].clone()).or_default().insert(*path);
        }
    }
    let imports = imports(sources);
    let mut found: BTreeMap<(String, String), Methods> = BTreeMap::new();
    for (path, tokens) in &of_files {
        for (name, body) in impls(tokens) {
            let of_name = definers.get(name);
            // Several files may define a type of this name: here, or in an imported file.
            let is_meant = |file: &&&str| **file == *path || imports[*path].contains(**file);
            let here = of_name.and_then(|files| files.get(path));
            let definer = here.or_else(|| of_name?.iter().find(is_meant)).unwrap_or(path);
            let of_type = found.entry((definer.to_string(), name.to_string())).or_default();
            let part = of_type.entry(path.to_string()).or_default();
            read(body, name, part);
        }
    }
    found
}

/// The number of methods of a type over all files.
pub(super) fn nr_methods(methods: &Methods) -> usize {
    methods.values().map(|part| part.methods.len()).sum()
}

/// The files of one circle through `self`, where there is one.
pub(super) fn circle(methods: &Methods) -> Option<Vec<String>> {
    let calls = |part: &Part| {
        let others = methods.iter().filter(|(_, other)| {
            part.called.intersection(&other.methods).any(|name| !part.methods.contains(name))
        });
        others.map(|(file, _)| file.clone()).collect::<BTreeSet<String>>()
    };
    longer_circle(&methods.iter().map(|(file, part)| (file.clone(), calls(part))).collect())
}

/// The inherent implementations of a source: the name of the type, and the tokens between the braces.
fn impls(tokens: &[String]) -> impl Iterator<Item = (&str, &[String])> {
    let is_item = |at: &usize| {
        tokens[*at] == "impl" && (*at == 0 || ["}", ";", "]", "{"].contains(&&*tokens[at - 1]))
    };
    (0..tokens.len()).filter(is_item).filter_map(|at| {
        let mut next = at + 1;
        if tokens.get(next)? == "<" {
            next = behind(tokens, next);
        }
        let end = next + tokens[next..].iter().position(|token| token == "{")?;
        let mut name = None;
        while next < end && tokens[next] != "where" {
            match tokens[next].as_str() {
                "for" => return None,
                "<" => next = behind(tokens, next),
                token => {
                    name = is_name(token).then_some(token).or(name);
                    next += 1;
                }
            }
        }
        Some((name?, &tokens[end + 1..behind(tokens, end) - 1]))
    })
}

/// Adds the methods and the calls of one implementation to `part`.
fn read(body: &[String], name: &str, part: &mut Part) {
    let mut depth = 0;
    for (at, token) in body.iter().enumerate() {
        depth += usize::from(token == "{");
        depth -= usize::from(token == "}");
        let Some(next) = body.get(at + 1) else { break };
        if depth == 0 && token == "fn" {
            part.methods.insert(next.clone());
        }
        let is_through_self =
            token == "self" && next == "." || [name, "Self"].contains(&&**token) && next == "::";
        let is_call = body.get(at + 3).is_some_and(|sign| ["(", "::"].contains(&&**sign));
        if is_through_self && is_call {
            part.called.insert(body[at + 2].clone());
        }
    }
}

/// The functions of a source with their numbers of arguments.
pub(super) fn arguments(text: &str) -> Vec<(String, usize)> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for at in 0..tokens.len().saturating_sub(2) {
        if tokens[at] != "fn" || !is_name(&tokens[at + 1]) {
            continue;
        }
        let mut open = at + 2;
        if tokens[open] == "<" {
            open = behind(&tokens, open);
        }
        let parameters = parts(&tokens[open + 1..behind(&tokens, open) - 1]);
        let count = parameters.into_iter().map(|parameter| {
            let colon = parameter.iter().position(|token| token == ":");
            let pattern = &parameter[..colon.unwrap_or(parameter.len())];
            let is_self = pattern.last().is_some_and(|last| last == "self");
            if is_self { 0 } else { width(&parameter[colon.map_or(0, |colon| colon + 1)..]) }
        });
        found.push((tokens[at + 1].clone(), count.sum()));
    }
    found
}

/// The number of arguments that a type stands for: one, or the sum over the parts of a tuple.
fn width(of: &[String]) -> usize {
    let mut first = 0;
    while let Some(token) = of.get(first) {
        match token.as_str() {
            "&" | "mut" => first += 1,
            "'" => first += 2,
            "(" => {
                return parts(&of[first + 1..behind(of, first) - 1]).into_iter().map(width).sum();
            }
            _ => break,
        }
    }
    1
}

/// The parts between the commas outside of brackets.
fn parts(tokens: &[String]) -> Vec<&[String]> {
    let (mut found, mut begin, mut at) = (Vec::new(), 0, 0);
    while at < tokens.len() {
        match tokens[at].as_str() {
            "," => {
                found.push(&tokens[begin..at]);
                (begin, at) = (at + 1, at + 1);
            }
            "(" | "[" | "{" | "<" => at = behind(tokens, at),
            _ => at += 1,
        }
    }
    found.push(&tokens[begin..]);
    found.retain(|part| !part.is_empty());
    found
}

/// The place behind the bracket that closes the one at `open`. Only brackets of the same kind count.
fn behind(tokens: &[String], open: usize) -> usize {
    let opening = tokens[open].as_str();
    let closing = match opening {
        "(" => ")",
        "[" => "]",
        "{" => "}",
        _ => ">",
    };
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        // The sign of a return type is no bracket.
        let is_arrow = token == ">" && at > 0 && ["-", "="].contains(&&*tokens[at - 1]);
        depth += usize::from(token == opening);
        if token == closing && !is_arrow {
            depth -= 1;
            if depth == 0 {
                return at + 1;
            }
        }
    }
    tokens.len()
}

#[test]
fn methods_and_their_calls_are_found_over_all_files() {
    let file = |path: &str, text: &str| (path.to_string(), text.to_string());
    let sources = |last: &str| {
        [
            file(
                "a.rs",
                "pub struct T<K>(K);\nimpl<K: Fn() -> u8> T<K> {\n fn one(&self) { self.two() }\n}",
            ),
            file(
                "b.rs",
                "use crate::a::T;\nimpl<K> T<K> { fn two(&self) { let x = '{'; T::three(self) } }",
            ),
            file("c.rs", last),
            file(
                "d.rs",
                "struct T;\nimpl T { fn one(&self) {} }\nimpl Clone for T { fn clone(&self) {} }",
            ),
        ]
    };
    let of = |last: &str| {
        let mut found = types(&sources(last));
        assert_eq!(found.len(), 2);
        let other = found.remove(&("d.rs".to_string(), "T".to_string())).unwrap();
        assert_eq!((nr_methods(&other), circle(&other)), (1, None));
        found.pop_first().unwrap().1
    };
    let without = of(
        "use crate::a::T;\nimpl T<u8> where u8: Copy { fn three(&self) { self.one } fn four() {} }",
    );
    assert_eq!((nr_methods(&without), circle(&without)), (4, None));
    let with = of("use crate::a::T;\nimpl T<u8> { fn three(&self) { if x { self.one() } } }");
    let names = ["a.rs", "b.rs", "c.rs"].map(str::to_string).to_vec();
    assert_eq!((nr_methods(&with), circle(&with)), (3, Some(names)));
}

#[test]
fn tuples_count_as_their_parts() {
    let count = |text: &str| arguments(text).into_iter().map(|it| it.1).collect::<Vec<_>>();
    assert_eq!(count("fn a(&mut self, b: u8) {} fn c() {}"), [1, 0]);
    assert_eq!(
        count("fn a<F: Fn(u8, u8) -> u8>(self, (b, c): (F, &'a (u8, u8)), d: [u8; 2],) {}"),
        [4]
    );
    assert_eq!(
        count("fn a(f: impl Fn(u8, u8) -> (u8, u8), g: Vec<(u8, u8)>, h: &dyn Fn(&(u8, u8))) {}"),
        [3]
    );
    assert_eq!(count("fn a(self: Arc<Self>, b: BTreeMap<u8, (u8, u8)>, c: ()) {}"), [1]);
}
