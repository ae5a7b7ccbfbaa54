//! The tenants of a scenario while it is read.

use std::collections::HashMap;
use std::ops::Range;

use super::codes::{NAME, NotNegative};
use super::scenario::{Named, Tenant};
use crate::problem::by_name;
use tenantd_policy::file::Refusal;
use tenantd_policy::hint::{nearest, shortened};
use tenantd_policy::tree::Node;
use tenantd_queue::TenantId;

/// The tenants so far, and the values of the file that theirs depend on.
pub(super) struct Reading {
    pub(super) discipline: Named,
    pub(super) resources: Vec<String>,
    /// Holdings of tenants without `holds`.
    pub(super) defaults: Box<[f64]>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) names: HashMap<Box<str>, TenantId>,
    /// True if the file does not define tenants, so that a name defines one.
    pub(super) is_open: bool,
    /// True if the admission of a host decides.
    pub(super) is_hosted: bool,
}

impl Reading {
    /// Finds a tenant by its name; adds it if the file does not define tenants.
    pub(super) fn tenant(&mut self, name: &str, span: Range<usize>) -> Result<TenantId, Refusal> {
        if let Some(known) = self.names.get(name) {
            return Ok(*known);
        }
        if self.is_open {
            let tenant = Tenant { holds: self.defaults.clone(), ..Tenant::plain(name) };
            return self.add_tenant(tenant, span);
        }
        let names = self.tenants.iter().map(|tenant| tenant.name.as_str());
        let near = nearest(name, names).map(|near| format!("did you mean `{near}`?"));
        let message = format!("there is no tenant `{}`", shortened(name));
        let help = near.unwrap_or("define it under `tenants`".to_string());
        Err(Refusal::new(NAME, span, message).help(help))
    }

    pub(super) fn add_tenant(
        &mut self,
        tenant: Tenant,
        span: Range<usize>,
    ) -> Result<TenantId, Refusal> {
        let id = TenantId(self.tenants.len() as u32);
        if self.names.insert(tenant.name.as_str().into(), id).is_some() {
            let message = format!("there are two tenants `{}`", shortened(&tenant.name));
            return Err(Refusal::new(NAME, span, message));
        }
        self.tenants.push(tenant);
        Ok(id)
    }

    /// The amounts of resources under a key, 0 for a resource without one.
    pub(super) fn amounts(&self, map: &Node, key: &str) -> Result<Box<[f64]>, Refusal> {
        let unknown = (NAME, "say how much there is under `capacity`");
        let names = self.resources.iter().map(String::as_str);
        let amounts = by_name(map.get(key), names, unknown, 0.0, |amount: NotNegative| amount.0);
        amounts.map(Vec::into)
    }
}

/// The items of the list under a key.
pub(super) fn items<'t>(tree: &'t Node, key: &str) -> &'t [Node] {
    tree.get(key).map_or(&[], |entry| entry.value.list())
}
