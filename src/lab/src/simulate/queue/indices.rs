//! Indices of units in a simulation, assigned by the code that assigns those of real jobs.

use std::collections::{BTreeMap, BTreeSet};

use super::codes::{CONFLICT, NAME};
use super::scenario::{Scenario, Tenant};
use tenantd_policy::file::Refusal;
use tenantd_policy::tree::Node;
use tenantd_queue::TenantId;
use tenantd_queue::indices::Indices;

/// Largest capacity whose units are numbered.
const UNITS_MAX: f64 = 100_000.0;

/// Resources under `indices`, by their position in `resources`.
pub(super) fn numbered(
    names: &[String],
    tree: &Node,
    (resources, capacity): (&[String], &[f64]),
    tenants: &[Tenant],
) -> Result<Vec<usize>, Refusal> {
    let Some(entry) = tree.get("indices") else { return Ok(Vec::new()) };
    let items = entry.value.list();
    let mut numbered = Vec::new();
    for (name, item) in names.iter().zip(items) {
        let Some(at) = resources.iter().position(|it| it == name) else {
            let unknown = Refusal::new(NAME, item.span(), "a resource that is not in `capacity`");
            return Err(unknown.help("name one of those in `capacity`"));
        };
        let is_whole = |amount: f64| amount.fract() == 0.0 && amount <= UNITS_MAX;
        let held = tenants.iter().filter_map(|tenant| tenant.holds.get(at));
        if !capacity.get(at).copied().is_some_and(is_whole) || !held.copied().all(is_whole) {
            let message = "units are numbered where the capacity and all holdings are whole";
            let refusal = Refusal::new(CONFLICT, item.span(), message);
            return Err(
                refusal.help(format!("write whole numbers of `{name}`, at most {UNITS_MAX}"))
            );
        }
        numbered.push(at);
    }
    Ok(numbered)
}

/// Indices that running requests hold.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<(TenantId, u64), Indices>);

impl Held {
    /// Gives a request that starts the lowest free indices.
    pub(super) fn start(&mut self, scenario: &Scenario, tenant: TenantId, request: u64) -> Indices {
        let mut own = Indices::default();
        let Some(capacity) = &scenario.capacity else { return own };
        for at in &scenario.numbered {
            let (name, units) = (&scenario.resources[*at], capacity[*at] as u32);
            let wanted =
                scenario.tenants[tenant.0 as usize].holds.get(*at).map_or(0, |it| *it as u32);
            let held: BTreeSet<u32> = self.0.values().flat_map(|it| it.of(name)).collect();
            own.take(name, wanted, units, &held);
        }
        if !own.is_empty() {
            self.0.insert((tenant, request), own.clone());
        }
        own
    }

    /// Releases the indices of a request.
    pub(super) fn end(&mut self, tenant: TenantId, request: u64) {
        self.0.remove(&(tenant, request));
    }
}
