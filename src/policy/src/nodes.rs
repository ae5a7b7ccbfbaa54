//! Tree of tenants with the place of every key, for rules about several values.

use super::amount::Amount;
use super::facts::HostFacts;
use super::keys::Tenant;
use super::read::{Draft, Located, Places};
use super::tree::Place;
use tenantd_core::resource::PerResource;

#[derive(Clone, Copy)]
pub(super) struct Node<'d> {
    pub(super) tenant: &'d Tenant,
    /// Path of names; a template has its group's and `*`.
    pub(super) path: &'d str,
    /// Its name, or the key of a template.
    pub(super) at: &'d Place,
    pub(super) each_at: Option<&'d Place>,
    pub(super) parent: Option<usize>,
    pub(super) given: &'d Places,
    /// Guarantees in smallest units. A percentage of an unknown machine is `None`.
    pub(super) guarantee: PerResource<Option<u64>>,
    /// Limits, likewise.
    pub(super) limit: PerResource<Option<u64>>,
}

impl Node<'_> {
    pub(super) fn is_template(&self) -> bool {
        self.each_at.is_some()
    }
}

/// Nodes in pre-order, the template of a group behind its tenants, on a machine if it is known.
pub(super) fn nodes<'d>(draft: &'d Draft, host: Option<&HostFacts>) -> Vec<Node<'d>> {
    fn walk<'d>(
        tenants: &'d [Tenant],
        host: Option<&HostFacts>,
        located: &mut &'d [Located],
        into: &mut Vec<Node<'d>>,
    ) {
        for tenant in tenants {
            let Some((first, rest)) = located.split_first() else { return };
            *located = rest;
            let Located { path, parent, at, given, each_at } = first;
            let known = |amounts: &PerResource<Option<Amount>>| {
                PerResource::from_fn(|r| amounts[r]?.on(host.map(|host| host.capacity(r))))
            };
            let (guarantee, limit) =
                (known(&tenant.guarantee.amounts), known(&tenant.limit.amounts));
            let (parent, each_at) = (*parent, each_at.as_ref());
            into.push(Node { tenant, path, at, each_at, parent, given, guarantee, limit });
            walk(&tenant.tenants, host, located, into);
            walk(tenant.template(), host, located, into);
        }
    }
    let mut nodes = Vec::with_capacity(draft.located.len());
    walk(&draft.policy.tenants, host, &mut draft.located.as_slice(), &mut nodes);
    nodes
}
