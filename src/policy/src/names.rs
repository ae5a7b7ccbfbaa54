//! Forms of names, cgroup paths and lists of CPUs: reading, showing, describing.

use std::path::PathBuf;

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::Form;
use super::reader::Reader;
use super::rules;
use super::tree::{Kind, Node};
use super::types::*;
use super::values::{
    NameKind, ONE_OR_SEVERAL, PathRefusal, account, cgroup_path, cpu_list, notation,
};
use tenantd_dop::CpuSet;

/// Reads one name or a list of at least one, none of them empty.
fn items<'n>(reader: &mut Reader<'_>, node: &'n Node, what: &str) -> Vec<(&'n Node, &'n str)> {
    let texts: Vec<(&Node, &str)> = match &node.kind {
        Kind::List(items) => {
            items.iter().filter_map(|item| Some((item, reader.text(item, what)?))).collect()
        }
        _ => {
            let text = reader.text(node, &format!("{what} or a list of them"));
            text.map(|text| (node, text)).into_iter().collect()
        }
    };
    let is_empty_list = matches!(&node.kind, Kind::List(items) if items.is_empty());
    if is_empty_list || texts.iter().any(|(_, text)| text.trim().is_empty()) {
        let message = format!("an empty text is not {what}");
        let message = if is_empty_list { "this list names nothing".to_string() } else { message };
        reader.find(&rules::EMPTY_MATCH, node, message, "name at least one, or remove the key");
        return Vec::new();
    }
    texts
}

fn names_schema() -> Value {
    let name = json!({ "type": ["string", "integer"] });
    json!({ "anyOf": [name, { "type": "array", "minItems": 1, "items": name }] })
}

fn show_names(names: &[String]) -> Option<String> {
    (!names.is_empty()).then(|| names.join(", "))
}

pub(super) struct Names(pub(super) &'static NameKind);

impl Form<Vec<String>> for Names {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Vec<String>) {
        for (item, name) in items(reader, node, self.0.what) {
            let is_plain = matches!(item.kind, Kind::Scalar { plain: true, .. });
            let is_split = is_plain && self.0.has_numbers && name.contains(char::is_whitespace);
            let quoted = if is_split { Err(ONE_OR_SEVERAL.to_string()) } else { Ok(()) };
            match (self.0.check)(name).and(quoted) {
                Ok(()) => {
                    into.push(account(name, is_plain && self.0.has_numbers));
                    reader.accept(item);
                }
                Err(help) => {
                    let message = format!("`{}` cannot be {}", shortened(name), self.0.what);
                    reader.find(&rules::BAD_MATCH, item, message, help);
                }
            }
        }
    }

    fn show(&self, value: &Vec<String>) -> Option<String> {
        if self.0.has_numbers {
            show_names(&value.iter().map(|name| notation(name)).collect::<Vec<_>>())
        } else {
            show_names(value)
        }
    }

    fn schema(&self) -> Value {
        names_schema()
    }
}

fn refuse_path(reader: &mut Reader<'_>, node: &Node, path: &str, refusal: PathRefusal) {
    let path = shortened(path);
    let (rule, message, help) = match refusal {
        PathRefusal::Escapes(help) => {
            (rules::PATH_ESCAPE, format!("`{path}` leaves the cgroup hierarchy"), help)
        }
        PathRefusal::Malformed(help) => {
            (rules::BAD_MATCH, format!("`{path}` is not the path of a cgroup"), help)
        }
    };
    reader.find(&rule, node, message, help);
}

pub(super) struct CgroupPaths;

impl Form<Vec<String>> for CgroupPaths {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Vec<String>) {
        for (item, path) in items(reader, node, "a cgroup path") {
            match cgroup_path(path, true) {
                Ok(normal) => {
                    into.push(normal);
                    reader.accept(item);
                }
                Err(refusal) => refuse_path(reader, item, path, refusal),
            }
        }
    }

    fn show(&self, value: &Vec<String>) -> Option<String> {
        show_names(value)
    }

    fn schema(&self) -> Value {
        names_schema()
    }
}

pub(super) struct Root;

impl Form<RootChoice> for Root {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut RootChoice) {
        match reader.text(node, "a cgroup path") {
            None | Some("auto") => {}
            Some(path) => match cgroup_path(path, false) {
                Ok(normal) => {
                    let begin = usize::from(!path.starts_with('/'));
                    *into = RootChoice::Path(PathBuf::from(&normal[begin..]));
                }
                Err(refusal) => refuse_path(reader, node, path, refusal),
            },
        }
    }

    fn show(&self, value: &RootChoice) -> Option<String> {
        Some(match value {
            RootChoice::Auto => "auto".to_string(),
            RootChoice::Path(path) => path.display().to_string(),
        })
    }

    fn schema(&self) -> Value {
        json!({ "type": "string" })
    }
}

pub(super) struct CpusForm;

const CPUS_WORDS: &[(&str, CpusPolicy)] = &[
    ("shared", CpusPolicy::Shared),
    ("dop", CpusPolicy::Dop),
    ("exclusive", CpusPolicy::Exclusive),
];

impl Form<CpusPolicy> for CpusForm {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut CpusPolicy) {
        const EXPECTED: &str = "`shared`, `dop`, `exclusive` or a list of CPUs";
        let (text, plain) = match &node.kind {
            Kind::Scalar { text, plain } => (&**text, *plain),
            Kind::List(items) => {
                let numbers = items.iter().map(|item| match &item.kind {
                    Kind::Scalar { text, .. } => text.parse::<u32>().ok(),
                    _ => None,
                });
                let numbers: Option<CpuSet> =
                    numbers.collect::<Option<Vec<u32>>>().map(|cpus| cpus.into_iter().collect());
                let list = numbers.map_or("0-3,8".to_string(), |cpus| cpus.to_string());
                let help = format!("write the list as a text: `cpus: \"{list}\"`");
                return reader.wrong_type(node, EXPECTED, &help);
            }
            _ => {
                let help = "a number of CPUs is `dop: { max: 4 }`, or `limit: { cpu: 4 }`";
                return reader.wrong_type(node, EXPECTED, help);
            }
        };
        if let Some((_, word)) = CPUS_WORDS.iter().find(|(word, _)| *word == text) {
            *into = word.clone();
        } else if plain && !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
            let message = format!("`cpus: {text}` could be CPU {text}, or {text} CPUs");
            let help = format!(
                "say `cpus: \"{text}\"` for CPU {text}, or `dop: {{ max: {text} }}` for that many"
            );
            reader.find(&rules::BAD_CPU_LIST, node, message, help);
        } else if text.starts_with(|c: char| c.is_alphabetic()) {
            let words = CPUS_WORDS.iter().map(|(word, _)| *word);
            reader.unknown_word(node, text, words, " or a list such as `0-3,8`");
        } else {
            match cpu_list(text) {
                Ok(cpus) => *into = CpusPolicy::Fixed(cpus),
                Err(help) => {
                    let message = format!("`{}` is not a list of CPUs", shortened(text));
                    // Docker's `cpus: 1.5` is a number of CPUs.
                    let is_number = text.parse::<f64>().is_ok();
                    let number = is_number.then(|| {
                        format!("; that many CPUs at most are `limit: {{ cpu: {text} }}`")
                    });
                    let help = help + &number.unwrap_or_default();
                    reader.find(&rules::BAD_CPU_LIST, node, message, help);
                }
            }
        }
    }

    fn show(&self, value: &CpusPolicy) -> Option<String> {
        let word = CPUS_WORDS.iter().find(|(_, it)| it == value).map(|(word, _)| word.to_string());
        Some(match value {
            CpusPolicy::Fixed(cpus) => cpus.iter().copied().collect::<CpuSet>().to_string(),
            _ => word.unwrap_or_default(),
        })
    }

    fn schema(&self) -> Value {
        json!({ "type": "string" })
    }
}
