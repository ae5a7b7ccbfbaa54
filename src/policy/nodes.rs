//! The tree of tenants with the place of every key, for the rules that look at more than one value.

use super::amount::Amount;
use super::facts::HostFacts;
use super::keys::Tenant;
use super::read::{Draft, Located, Places};
use crate::resource::PerResource;

/// A tenant or group with the places of its keys.
#[derive(Clone, Copy)]
pub(super) struct Node<'d> {
    pub(super) tenant: &'d Tenant,
    pub(super) path: &'d str,
    pub(super) parent: Option<usize>,
    pub(super) given: &'d Places,
    /// Its guarantees in smallest units. A percentage of an unknown machine is none.
    pub(super) guarantee: PerResource<Option<u64>>,
    /// Its limits, likewise.
    pub(super) limit: PerResource<Option<u64>>,
}

/// The tree in pre-order, on a machine where it is known.
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
            let Located { path, parent, given } = first;
            let known = |amounts: &PerResource<Option<Amount>>| {
                PerResource::from_fn(|r| amounts[r]?.on(host.map(|host| host.capacity(r))))
            };
            let (guarantee, limit) = (known(&tenant.guarantee), known(&tenant.limit.amounts));
            into.push(Node { tenant, path, parent: *parent, given, guarantee, limit });
            walk(&tenant.tenants, host, located, into);
        }
    }
    let mut nodes = Vec::with_capacity(draft.located.len());
    walk(&draft.policy.tenants, host, &mut draft.located.as_slice(), &mut nodes);
    nodes
}
