//! Single values and names of a problem file.

use super::codes;
use super::task::Resource;
use tenantd_core::units::{Bytes, MilliCpus};
use tenantd_policy::hint::{listed, nearest, shortened};
use tenantd_policy::reader::{Reader, without_sign_of_zero};
use tenantd_policy::tree::{Entry, Kind, Node};

/// The entry of a map under a key; the first one of duplicates.
pub(super) fn get<'t>(entries: &'t [Entry], key: &str) -> Option<&'t Entry> {
    entries.iter().find(|entry| &*entry.key == key)
}

/// The index of the resource that a key names.
pub(super) fn resource(
    reader: &mut Reader<'_>,
    resources: &[Resource],
    entry: &Entry,
) -> Option<usize> {
    let found = resources.iter().position(|resource| *resource.name == *entry.key);
    if found.is_none() {
        let names = || resources.iter().map(|resource| resource.name.as_str());
        let help = match nearest(&entry.key, names()) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the capacity has {}", listed(names())),
        };
        let message = format!("there is no resource `{}`", shortened(&entry.key));
        let finding = codes::UNKNOWN_RESOURCE.at(&reader.key_place(entry), message, "");
        reader.report.push(finding.help(help));
    }
    found
}

/// A finite number.
pub(super) fn number(reader: &mut Reader<'_>, node: &Node, help: &str) -> Option<f64> {
    let Kind::Scalar { text, .. } = &node.kind else {
        reader.wrong_type(node, "a number", "");
        return None;
    };
    match text.parse::<f64>() {
        Ok(number) if number.is_finite() => Some(without_sign_of_zero(number)),
        _ => {
            let message = format!("`{}` is no finite number", shortened(text));
            reader.find(&codes::BAD_NUMBER, node, message, help);
            None
        }
    }
}

/// A finite number, or a quantity: CPUs as `500m`, memory as `8GiB`.
pub(super) fn quantity(reader: &mut Reader<'_>, node: &Node) -> Option<f64> {
    const EXPECTED: &str = "a number, or a quantity such as `500m` or `8GiB`";
    let Kind::Scalar { text, .. } = &node.kind else {
        reader.wrong_type(node, EXPECTED, "");
        return None;
    };
    let has_unit = text.starts_with(|c: char| c.is_ascii_digit())
        && text.ends_with(|c: char| c.is_ascii_alphabetic());
    if !has_unit {
        return number(reader, node, &format!("write {EXPECTED}"));
    }
    let quantity = match text.ends_with('m') {
        true => text.parse::<MilliCpus>().map(MilliCpus::cores),
        false => text.parse::<Bytes>().map(|bytes| bytes.0 as f64),
    };
    quantity
        .map_err(|error| {
            let message = format!("`{}` is not a quantity", shortened(text));
            reader.find(&codes::BAD_NUMBER, node, message, error.help);
        })
        .ok()
}

/// A map from resources to quantities as a vector, `missing` for a resource that is not in it.
pub(super) fn amounts(
    reader: &mut Reader<'_>,
    resources: &[Resource],
    node: &Node,
    missing: f64,
) -> Vec<f64> {
    let mut vector = vec![missing; resources.len()];
    let amounts = reader.map(node, "a map such as `{ cpu: 2, memory: 4GiB }`");
    reader.duplicates(amounts);
    for entry in amounts {
        let is_unbounded = missing == f64::INFINITY && entry.value.is_word("max");
        let amount = if is_unbounded { Some(missing) } else { quantity(reader, &entry.value) };
        if let (Some(resource), Some(amount)) = (resource(reader, resources, entry), amount) {
            vector[resource] = amount;
        }
    }
    vector
}

/// A weight: one number, or one for each resource; 1 without any.
pub(super) fn weight(reader: &mut Reader<'_>, resources: &[Resource], node: &Node) -> Vec<f64> {
    const HELP: &str = "a weight is a number";
    let mut vector = vec![1.0; resources.len()];
    match &node.kind {
        Kind::Map(weights) => {
            reader.duplicates(weights);
            for entry in weights {
                let weight = number(reader, &entry.value, HELP);
                if let (Some(resource), Some(weight)) = (resource(reader, resources, entry), weight)
                {
                    vector[resource] = weight;
                }
            }
        }
        Kind::Scalar { .. } => {
            if let Some(weight) = number(reader, node, HELP) {
                vector.fill(weight);
            }
        }
        _ => reader.wrong_type(node, "a number, or a map such as `{ cpu: 2, memory: 1 }`", ""),
    }
    vector
}
