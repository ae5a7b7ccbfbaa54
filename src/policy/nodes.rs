//! The tree of tenants with the place of every key, for the rules that look at more than one value.

use super::keys::Tenant;
use super::read::{Draft, Located, Places};

/// A tenant or group with the places of its keys.
#[derive(Clone, Copy)]
pub(super) struct Node<'d> {
    pub(super) tenant: &'d Tenant,
    pub(super) path: &'d str,
    pub(super) parent: Option<usize>,
    pub(super) given: &'d Places,
}

/// The tree in pre-order.
pub(super) fn nodes(draft: &Draft) -> Vec<Node<'_>> {
    fn walk<'d>(tenants: &'d [Tenant], located: &mut &'d [Located], into: &mut Vec<Node<'d>>) {
        for tenant in tenants {
            let Some((first, rest)) = located.split_first() else { return };
            *located = rest;
            let Located { path, parent, given } = first;
            into.push(Node { tenant, path, parent: *parent, given });
            walk(&tenant.tenants, located, into);
        }
    }
    let mut nodes = Vec::with_capacity(draft.located.len());
    walk(&draft.policy.tenants, &mut draft.located.as_slice(), &mut nodes);
    nodes
}
