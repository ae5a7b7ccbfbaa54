//! Imports among the files of one crate: from the `use` trees and the paths that start with `crate::`, `self::`,
//! `super::` or the name of a child module.
//!
//! A path belongs to the file of the deepest module that it names, so `crate::cgroup::mount::Layout` is an
//! import of `cgroup/mount.rs`, and `crate::cgroup::Layout` one of `cgroup/mod.rs`, whatever file the re-export comes from. A
//! declaration (`mod drf;`) is no import. Comments, string literals and unit tests are left out.

use std::collections::{BTreeMap, BTreeSet};

/// A module path from the root of the crate; the root itself is empty.
type Module = Vec<String>;

/// The imports among `sources` (path below the `src` of the crate, and text): for each file the files that it imports.
pub(super) fn imports(sources: &[(String, String)]) -> BTreeMap<String, BTreeSet<String>> {
    // An exported macro stands at the root of its crate, whatever file it is in.
    let of_macros = sources.iter().flat_map(|(path, text)| {
        exported_macros(text).map(|name| (vec![name.to_string()], path.as_str()))
    });
    let of_modules = sources.iter().map(|(path, _)| (module(path), path.as_str()));
    let files: BTreeMap<Module, &str> = of_macros.chain(of_modules).collect();
    let mut found = BTreeMap::new();
    for (path, text) in sources {
        let here = module(path);
        let named = paths(&tokens(text));
        let there = named.iter().filter_map(|named| resolve(&files, &here, named));
        let others = there.filter(|file| *file != path).map(str::to_string).collect();
        found.insert(path.clone(), others);
    }
    found
}

/// The pairs of files that import each other, each pair once and in order.
pub(super) fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<(String, String)> {
    let mut pairs = BTreeSet::new();
    for (from, to) in imports.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
        if from < to && imports.get(to).is_some_and(|back| back.contains(from)) {
            pairs.insert((from.clone(), to.clone()));
        }
    }
    pairs
}

/// The files of one circle of imports, however long, where there is one.
pub(super) fn longer_circle(imports: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    // What imports nothing that is left is in no circle: it is taken away until nothing changes.
    let mut left: BTreeSet<&String> = imports.keys().collect();
    loop {
        let in_a_circle = |file: &&String| imports[*file].iter().any(|to| left.contains(to));
        let next: BTreeSet<&String> = left.iter().copied().filter(in_a_circle).collect();
        if next.len() == left.len() {
            break;
        }
        left = next;
    }
    // From any file that is left the way leads on for ever, so it comes back to itself.
    let mut way = vec![*left.first()?];
    loop {
        let next = imports[way[way.len() - 1]].iter().find(|to| left.contains(to))?;
        if let Some(begin) = way.iter().position(|file| *file == next) {
            return Some(way[begin..].iter().map(ToString::to_string).collect());
        }
        way.push(next);
    }
}

/// The names of the macros that a source gives to other crates.
fn exported_macros(text: &str) -> impl Iterator<Item = &str> {
    let after = text.split("#[macro_export]\nmacro_rules! ").skip(1);
    after.filter_map(|text| text.split_whitespace().next())
}

/// The module that a file holds.
fn module(path: &str) -> Module {
    let stem = path.trim_end_matches(".rs");
    let stem = stem.strip_suffix("/mod").unwrap_or(stem);
    let parts = stem.split('/').filter(|part| *part != "lib" && *part != "mod");
    parts.map(str::to_string).collect()
}

/// The file of the deepest module that `path`, as written in the module `here`, names.
fn resolve<'a>(
    files: &BTreeMap<Module, &'a str>,
    here: &[String],
    path: &[String],
) -> Option<&'a str> {
    let mut module = here.to_vec();
    let mut rest = path;
    match path.first()?.as_str() {
        "crate" => (module, rest) = (Module::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                module.pop()?;
                rest = &rest[1..];
            }
        }
        child => {
            module.push(child.to_string());
            rest = &path[1..];
        }
    }
    for part in rest {
        module.push(part.clone());
        if !files.contains_key(&module) {
            module.pop();
            break;
        }
    }
    files.get(&module).copied()
}

/// All paths of two parts and more that `tokens` hold, those of `use` trees written out.
fn paths(tokens: &[String]) -> Vec<Module> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        // `use<'_>` captures lifetimes and imports nothing.
        if tokens[at] == "use" && tokens.get(at + 1).is_none_or(|next| next != "<") {
            at = tree(tokens, at + 1, &[], &mut found);
        } else if is_name(&tokens[at]) {
            let mut path = vec![tokens[at].clone()];
            // The scope of a visibility (`pub(in crate::daemon)`) imports nothing.
            let is_scope = at > 0 && tokens[at - 1] == "in" && at > 1 && tokens[at - 2] == "(";
            at += 1;
            while at + 1 < tokens.len() && tokens[at] == "::" && is_name(&tokens[at + 1]) {
                path.push(tokens[at + 1].clone());
                at += 2;
            }
            if path.len() > 1 && !is_scope {
                found.push(path);
            }
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one `use` tree below `stem` from `at`; returns the place behind it.
fn tree(tokens: &[String], mut at: usize, stem: &[String], found: &mut Vec<Module>) -> usize {
    let mut path = stem.to_vec();
    while at < tokens.len() {
        match tokens[at].as_str() {
            "{" => {
                at += 1;
                while at < tokens.len() && tokens[at] != "}" {
                    at = tree(tokens, at, &path, found);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            "," | "}" | ";" => break,
            // The name that it is given here.
            "as" => at += 2,
            "self" if !path.is_empty() => at += 1,
            name if is_name(name) => {
                path.push(name.to_string());
                at += 1;
            }
            _ => at += 1,
        }
    }
    found.push(path);
    at
}

pub(super) fn is_name(token: &str) -> bool {
    token.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Names, `::` and single signs; without comments, string literals, and the unit tests at the end.
pub(super) fn tokens(text: &str) -> Vec<String> {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            found.push("::".to_string());
            2
        } else if first == '"' {
            string_length(rest)
        } else if rest.starts_with("r\"") || rest.starts_with("r#\"") {
            let end = if rest.starts_with("r\"") { "\"" } else { "\"#" };
            let begin = end.len() + 1;
            rest[begin..].find(end).map_or(rest.len(), |at| begin + at + end.len())
        } else if let Some(length) = character_length(rest) {
            length
        } else if first.is_alphanumeric() || first == '_' {
            let is_part = |sign: char| sign.is_alphanumeric() || sign == '_';
            let length = rest.find(|sign: char| !is_part(sign)).unwrap_or(rest.len());
            found.push(rest[..length].to_string());
            length
        } else {
            if !first.is_whitespace() {
                found.push(first.to_string());
            }
            first.len_utf8()
        };
        rest = &rest[length..];
    }
    found
}

/// The length of the character literal that `text` begins with; `None` for a lifetime.
fn character_length(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let mut signs = inside.char_indices().skip(1);
    if inside.starts_with('\\') {
        signs.next();
        return signs.find(|(_, sign)| *sign == '\'').map(|(at, _)| at + 2);
    }
    signs.next().filter(|(_, sign)| *sign == '\'').map(|(at, _)| at + 2)
}

/// The length of the string literal that `text` begins with, its quotation marks included.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, sign) in text.char_indices().skip(1) {
        match sign {
            '\\' if !is_escaped => is_escaped = true,
            '"' if !is_escaped => return at + 1,
            _ => is_escaped = false,
        }
    }
    text.len()
}

#[test]
fn imports_are_found_in_every_spelling() {
    let file = |path: &str, text: &str| (path.to_string(), text.to_string());
    let sources = [
        file("lib.rs", "pub mod a;\npub mod b;"),
        file("a/mod.rs", "mod one;\nmod two;\nmod three;\npub use one::One;\nfn f() { two::go() }"),
        file("a/one.rs", "use super::{two::{self, Two}, Shape as S};\npub struct One;"),
        file("a/two.rs", "// crate::b::x\nconst T: &str = \"crate::b::x \\\" super::one::y\";"),
        file(
            "a/three.rs",
            "fn f(x: char) -> bool { x == '\"' && crate::b::y(super::super::b::Z) }",
        ),
        file("b.rs", "pub(in crate::a) fn y() -> impl T + use<'_> {}\nuse crate::{a::three, c};"),
    ];
    let found = imports(&sources);
    let of = |path: &str| found[path].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("lib.rs"), [""; 0]);
    assert_eq!(of("a/mod.rs"), ["a/one.rs", "a/two.rs"]);
    assert_eq!(of("a/one.rs"), ["a/mod.rs", "a/two.rs"]);
    assert_eq!(of("a/two.rs"), [""; 0]);
    assert_eq!(of("a/three.rs"), ["b.rs"]);
    assert_eq!(of("b.rs"), ["a/three.rs", "lib.rs"]);
    let circles: Vec<_> = circles(&found).into_iter().collect();
    let pair = |one: &str, other: &str| (one.to_string(), other.to_string());
    assert_eq!(circles, [pair("a/mod.rs", "a/one.rs"), pair("a/three.rs", "b.rs")]);
}

#[test]
fn circles_of_three_are_found() {
    let file = |path: &str, text: &str| (path.to_string(), text.to_string());
    let round = |last: &str| {
        imports(&[
            file("a.rs", "use crate::b;"),
            file("b.rs", "use crate::c::C;"),
            file("c.rs", last),
            file("d.rs", "use crate::a;"),
        ])
    };
    let names = ["a.rs", "b.rs", "c.rs"].map(str::to_string).to_vec();
    assert_eq!(longer_circle(&round("use super::a;")), Some(names));
    assert_eq!(longer_circle(&round("struct C;")), None);
}
