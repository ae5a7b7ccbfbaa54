//! Amounts of resources, for people and for programs.

use serde::ser::{Serialize, Serializer};

use super::task::Resource;
use tenantd_core::units::Bytes;

/// An amount, at most four digits after the point.
pub(super) fn shown(amount: f64, resource: &Resource) -> String {
    if resource.in_bytes { Bytes(amount.round() as u64).rounded() } else { rounded(amount) }
}

pub(super) fn rounded(amount: f64) -> String {
    if amount != 0.0 && !(1e-3..1e9).contains(&amount) {
        return format!("{amount:.3e}");
    }
    let text = format!("{amount:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// An amount of each resource, by name.
pub(super) struct Amounts<'a> {
    pub(super) resources: &'a [Resource],
    pub(super) amounts: &'a [f64],
}

impl Serialize for Amounts<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let names = self.resources.iter().map(|resource| &resource.name);
        serializer.collect_map(names.zip(self.amounts))
    }
}
