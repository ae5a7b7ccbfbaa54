//! What the core finds wrong with a problem, carried back to its place in the text.

use super::findings;
use super::read::{Reader, Resource, get};
use crate::fair::problem::{Place, QUANTITY_RANGE, Reason, WEIGHT_RANGE};
use crate::fair::{Field, ProblemError};
use crate::policy::tree::{self, Entry};

impl Reader {
    /// Carries what is wrong with a problem back to its place in the text.
    pub(super) fn judge(&mut self, file: &[Entry], entries: &[&Entry], error: &ProblemError) {
        let (span, what) = match error.place {
            Place::Capacity(resource) => {
                let capacity = get(file, "capacity");
                let amount = capacity.and_then(|entry| amount(entry, resource, &self.resources));
                (amount.or(capacity).map_or(0..0, |entry| entry.value.span()), "a capacity")
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
                    tree::Kind::Map(fields) => fields.as_slice(),
                    _ => &[],
                };
                let entry = keys.iter().find_map(|key| get(fields, key));
                let amount = entry.and_then(|entry| amount(entry, resource, &self.resources));
                let span = amount.or(entry).map(|entry| entry.value.span());
                (span.unwrap_or_else(|| entries[node].span()), what)
            }
        };
        let is_weight = matches!(error.place, Place::Node { field: Field::Weight, .. });
        let (code, message, help) = match error.reason {
            Reason::OutOfRange(0.0) => (
                findings::BAD_NUMBER,
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
                (findings::BAD_NUMBER, format!("{value} is {wrong}"), help)
            }
            Reason::LimitBelowGuarantee(guarantee) => (
                findings::LIMIT_BELOW_GUARANTEE,
                format!("the limit is below the guarantee of {guarantee}"),
                "raise the limit or lower the guarantee".to_string(),
            ),
            Reason::LimitBelowPromises(_) => (
                findings::LIMIT_BELOW_GUARANTEE,
                error.reason.to_string(),
                "raise the limit of the group, or lower the guarantees in it".to_string(),
            ),
            Reason::Overbooked { .. } => (
                findings::OVERBOOKED,
                error.reason.to_string(),
                "guarantees are kept, so they cannot exceed the capacity".to_string(),
            ),
            Reason::NoResource | Reason::Misshapen => {
                (findings::WRONG_TYPE, error.reason.to_string(), String::new())
            }
        };
        self.findings.add(code, span, message, help);
    }
}

/// The entry for a resource in the map under `entry`.
fn amount<'t>(entry: &'t Entry, resource: Option<usize>, all: &[Resource]) -> Option<&'t Entry> {
    match &entry.value.kind {
        tree::Kind::Map(amounts) => get(amounts, &all[resource?].name),
        _ => None,
    }
}
