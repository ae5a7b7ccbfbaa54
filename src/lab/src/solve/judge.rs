//! Maps an error of the core about a problem to its place in the text.

use super::codes;
use super::task::Resource;
use tenantd_fair::problem::{Place, QUANTITY_RANGE, Reason, WEIGHT_RANGE};
use tenantd_fair::{Field, ProblemError};
use tenantd_policy::file::{Cause, Refusal};
use tenantd_policy::tree::Entry;

/// Maps an error of a problem to its place: in `capacity` or in the `entries` of the nodes.
pub(super) fn judge(
    resources: &[Resource],
    capacity: &Entry,
    entries: &[&Entry],
    error: &ProblemError,
) -> Refusal {
    let amount = |entry: &Entry, resource: Option<usize>| {
        let amount = entry.value.get(&resources[resource?].name)?;
        Some(amount.value.span())
    };
    let (span, what) = match error.place {
        Place::Capacity(resource) => {
            let amount = amount(capacity, resource);
            (amount.unwrap_or(capacity.value.span()), "a capacity")
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
            let entry = keys.iter().find_map(|key| entries[node].value.get(key));
            let span = entry.map(|entry| amount(entry, resource).unwrap_or(entry.value.span()));
            (span.unwrap_or(entries[node].span()), what)
        }
    };
    let is_weight = matches!(error.place, Place::Node { field: Field::Weight, .. });
    let (cause, message, help) = match error.reason {
        Reason::OutOfRange(0.0) => (
            Cause::Number,
            "a weight of 0 would starve its tenant".to_string(),
            "leave the tenant out, or give it a `limit`".to_string(),
        ),
        Reason::NotANumber(value) | Reason::OutOfRange(value) => {
            let range = if is_weight { WEIGHT_RANGE } else { QUANTITY_RANGE };
            let (low, high) = range.into_inner();
            let or_zero = if is_weight { "" } else { "0, or " };
            let help = format!("{what} is {or_zero}a number from {low:e} to {high:e}");
            let wrong = if value < 0.0 { "negative" } else { "out of range" };
            (Cause::Number, format!("{value} is {wrong}"), help)
        }
        Reason::LimitBelowGuarantee(guarantee) => (
            Cause::Rule(codes::LIMIT_BELOW_GUARANTEE),
            format!("the limit is below the guarantee of {guarantee}"),
            "raise the limit or lower the guarantee".to_string(),
        ),
        Reason::LimitBelowPromises(_) => (
            Cause::Rule(codes::LIMIT_BELOW_GUARANTEE),
            error.reason.to_string(),
            "raise the limit of the group, or lower the guarantees in it".to_string(),
        ),
        Reason::Overbooked { .. } => (
            Cause::Rule(codes::OVERBOOKED),
            error.reason.to_string(),
            "guarantees are kept, so they cannot exceed the capacity".to_string(),
        ),
        Reason::NoResource | Reason::Misshapen => {
            (Cause::WrongType, error.reason.to_string(), String::new())
        }
    };
    Refusal::new(cause, span, message).help(help)
}
