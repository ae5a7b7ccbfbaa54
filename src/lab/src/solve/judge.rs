//! Maps the findings of the core about a problem to their places in the text.

use super::codes;
use super::task::Resource;
use super::values::get;
use tenantd_fair::problem::{Place, QUANTITY_RANGE, Reason, WEIGHT_RANGE};
use tenantd_fair::{Field, ProblemError};
use tenantd_policy::reader::Reader;
use tenantd_policy::tree::{Entry, Kind};

/// Maps the errors of a problem to their places in the text: of `capacity` and of the `entries` of the
/// nodes.
pub(super) fn judge(
    reader: &mut Reader<'_>,
    resources: &[Resource],
    capacity: &Entry,
    entries: &[&Entry],
    error: &ProblemError,
) {
    let (place, what) = match error.place {
        Place::Capacity(resource) => {
            let amount = amount(capacity, resource, resources).unwrap_or(capacity);
            (reader.place(&amount.value), "a capacity")
        }
        Place::Node { node, field, resource } => {
            let (keys, what): (&[&str], &str) = match field {
                Field::Weight => (&["weight"], "a weight"),
                Field::Task => (&["task", "demand"], "a demand"),
                Field::Tasks => (&["tasks"], "a number of tasks"),
                Field::Guarantee => (&["guarantee"], "a guarantee"),
                Field::Limit => (&["limit"], "a limit"),
                Field::Parent => (&[], "a group"),
            };
            let fields = match &entries[node].value.kind {
                Kind::Map(fields) => fields.as_slice(),
                _ => &[],
            };
            let entry = keys.iter().find_map(|key| get(fields, key));
            let amount = entry.and_then(|entry| amount(entry, resource, resources));
            let place = amount.or(entry).map(|entry| reader.place(&entry.value));
            (place.unwrap_or_else(|| reader.key_place(entries[node])), what)
        }
    };
    let is_weight = matches!(error.place, Place::Node { field: Field::Weight, .. });
    let (rule, message, help) = match error.reason {
        Reason::OutOfRange(0.0) => (
            codes::BAD_NUMBER,
            "a weight of 0 would starve its tenant".to_string(),
            "leave the tenant out, or give it a `limit`".to_string(),
        ),
        Reason::NotANumber(value) | Reason::OutOfRange(value) => {
            let (low, high) = match is_weight {
                true => (*WEIGHT_RANGE.start(), *WEIGHT_RANGE.end()),
                false => (*QUANTITY_RANGE.start(), *QUANTITY_RANGE.end()),
            };
            let or_zero = if is_weight { "" } else { "0, or " };
            let help = format!("{what} is {or_zero}a number from {low:e} to {high:e}");
            let wrong = if value < 0.0 { "negative" } else { "out of range" };
            (codes::BAD_NUMBER, format!("{value} is {wrong}"), help)
        }
        Reason::LimitBelowGuarantee(guarantee) => (
            codes::LIMIT_BELOW_GUARANTEE,
            format!("the limit is below the guarantee of {guarantee}"),
            "raise the limit or lower the guarantee".to_string(),
        ),
        Reason::LimitBelowPromises(_) => (
            codes::LIMIT_BELOW_GUARANTEE,
            error.reason.to_string(),
            "raise the limit of the group, or lower the guarantees in it".to_string(),
        ),
        Reason::Overbooked { .. } => (
            codes::OVERBOOKED,
            error.reason.to_string(),
            "guarantees are kept, so they cannot exceed the capacity".to_string(),
        ),
        Reason::NoResource | Reason::Misshapen => {
            (codes::WRONG_TYPE, error.reason.to_string(), String::new())
        }
    };
    let finding = rule.at(&place, message, "");
    reader.report.push(if help.is_empty() { finding } else { finding.help(help) });
}

/// The entry for a resource in the map under `entry`.
fn amount<'t>(entry: &'t Entry, resource: Option<usize>, all: &[Resource]) -> Option<&'t Entry> {
    match &entry.value.kind {
        Kind::Map(amounts) => get(amounts, &all[resource?].name),
        _ => None,
    }
}
