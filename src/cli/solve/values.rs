//! Single values, keys and names of a problem file: each is a value, or a finding.

use std::collections::HashMap;

use super::findings;
use super::read::Reader;
use crate::policy::hint::{listed, nearest, shortened};
use crate::policy::tree::{self, Entry};
use crate::units::{Bytes, MilliCpus};

impl Reader {
    pub(super) fn map<'t>(&mut self, node: &'t tree::Node, expected: &str) -> Option<&'t [Entry]> {
        match &node.kind {
            tree::Kind::Map(entries) => Some(entries),
            _ => {
                self.wrong_type(node, expected);
                None
            }
        }
    }

    pub(super) fn wrong_type(&mut self, node: &tree::Node, expected: &str) {
        let message = format!("expected {expected}, found {}", node.describe());
        self.findings.add(findings::WRONG_TYPE, node.span(), message, "");
    }

    pub(super) fn resource(&mut self, entry: &Entry) -> Option<usize> {
        let found = self.resources.iter().position(|resource| *resource.name == *entry.key);
        if found.is_none() {
            let names = || self.resources.iter().map(|resource| resource.name.as_str());
            let help = match nearest(&entry.key, names()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("the capacity has {}", listed(names())),
            };
            let message = format!("there is no resource `{}`", shortened(&entry.key));
            self.findings.add(findings::UNKNOWN_RESOURCE, entry.span(), message, help);
        }
        found
    }

    /// A finite number.
    pub(super) fn number(&mut self, node: &tree::Node, help: &str) -> Option<f64> {
        let tree::Kind::Scalar { text, .. } = &node.kind else {
            self.wrong_type(node, "a number");
            return None;
        };
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Some(number),
            _ => {
                let message = format!("`{}` is no finite number", shortened(text));
                self.findings.add(findings::BAD_NUMBER, node.span(), message, help);
                None
            }
        }
    }

    /// A finite number, or a quantity: CPUs as `500m`, memory as `8GiB`.
    pub(super) fn quantity(&mut self, node: &tree::Node) -> Option<f64> {
        let tree::Kind::Scalar { text, .. } = &node.kind else {
            self.wrong_type(node, "a number, or a quantity such as `500m` or `8GiB`");
            return None;
        };
        let has_unit = text.starts_with(|c: char| c.is_ascii_digit())
            && text.ends_with(|c: char| c.is_ascii_alphabetic());
        if !has_unit {
            return self.number(node, "write a number, or a quantity such as `500m` or `8GiB`");
        }
        let quantity = match text.ends_with('m') {
            true => text.parse::<MilliCpus>().map(MilliCpus::cores),
            false => text.parse::<Bytes>().map(|bytes| bytes.0 as f64),
        };
        match quantity {
            Ok(quantity) => Some(quantity),
            Err(error) => {
                let message = format!("`{}` is not a quantity", shortened(text));
                self.findings.add(findings::BAD_NUMBER, node.span(), message, error.help);
                None
            }
        }
    }

    /// Reports keys that are not known here, and keys given twice.
    pub(super) fn check_keys(&mut self, entries: &[Entry], known: &[&str]) {
        for entry in entries.iter().filter(|entry| !known.contains(&&*entry.key)) {
            let help = match nearest(&entry.key, known.iter().copied()) {
                Some(name) => format!("did you mean `{name}`?"),
                None => format!("known here: {}", listed(known.iter().copied())),
            };
            let message = format!("unknown key `{}`", shortened(&entry.key));
            self.findings.add(findings::UNKNOWN_KEY, entry.span(), message, help);
        }
        self.check_duplicates(entries);
    }

    pub(super) fn check_duplicates(&mut self, entries: &[Entry]) {
        // Most maps are small, and a hash map for each of a million tenants would be felt.
        const FEW: usize = 8;
        let mut again: Vec<(&Entry, &Entry)> = Vec::new();
        if entries.len() <= FEW {
            for (index, entry) in entries.iter().enumerate() {
                let first = entries[..index].iter().find(|first| first.key == entry.key);
                again.extend(first.map(|first| (first, entry)));
            }
        } else {
            let mut seen: HashMap<&str, &Entry> = HashMap::with_capacity(entries.len());
            for entry in entries {
                let first = *seen.entry(&entry.key).or_insert(entry);
                if !std::ptr::eq(first, entry) {
                    again.push((first, entry));
                }
            }
        }
        for (first, entry) in again {
            self.findings.add_pair(
                findings::DUPLICATE_KEY,
                (entry.span(), "given again here"),
                (first.span(), "first given here"),
                format!("`{}` is given twice", shortened(&entry.key)),
            );
        }
    }

    pub(super) fn check_name(&mut self, entry: &Entry) {
        if entry.key.is_empty() || entry.key.contains('/') {
            let message = "a name has at least one character, and no `/`";
            let help = "the answer names what is in a group `group/name`";
            self.findings.add(findings::NAME, entry.span(), message, help);
        }
    }
}
