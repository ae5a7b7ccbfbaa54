//! The form of the list of resources that are divided together.

use serde_json::{Value, json};

use super::hint::shortened;
use super::key::Form;
use super::reader::Reader;
use super::rules;
use super::tree::{Kind, Node};
use super::types::Coupling;

/// A list of resources, in any order.
pub(super) struct Coupled;

impl Coupled {
    const CHOICES: [(&'static [&'static str], Coupling); 2] =
        [(&["cpu", "memory"], Coupling::Host), (&["cpu", "memory", "disk"], Coupling::WithDisk)];
}

impl Form<Coupling> for Coupled {
    fn read(&self, reader: &mut Reader<'_>, node: &Node, into: &mut Coupling) {
        const HELP: &str = "write `[cpu, memory]` or `[cpu, memory, disk]`";
        let Kind::List(items) = &node.kind else {
            return reader.wrong_type(node, "a list of resources", HELP);
        };
        let mut names = Vec::with_capacity(items.len());
        for item in items {
            let Some(name) = reader.text(item, "the name of a resource") else { return };
            names.push(name);
        }
        let is_same = |known: &[&str]| {
            names.len() == known.len() && known.iter().all(|name| names.contains(name))
        };
        match Coupled::CHOICES.iter().find(|(known, _)| is_same(known)) {
            Some((_, coupling)) => *into = *coupling,
            None => {
                let message = format!("`[{}]` cannot be coupled", shortened(&names.join(", ")));
                reader.find(&rules::UNKNOWN_WORD, node, message, HELP);
            }
        }
    }

    fn show(&self, value: &Coupling) -> Option<String> {
        let (names, _) = Coupled::CHOICES.iter().find(|(_, it)| it == value)?;
        Some(format!("[{}]", names.join(", ")))
    }

    fn schema(&self) -> Value {
        json!({ "enum": Coupled::CHOICES.map(|(names, _)| names) })
    }
}
