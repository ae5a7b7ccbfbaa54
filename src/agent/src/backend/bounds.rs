//! Limits above the tenants that the agent makes: quotas and memory limits of their root and its ancestors.

use std::path::Path;

use super::access::HostAccess;
use tenantd_control::tree::bounds::AncestorBounds;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::resource::Resource;
use tenantd_core::units::Limit;
use tenantd_host::cgroup;
use tenantd_host::kernfs::KernFs;

/// Least of all limits of the root and its ancestors. An unreadable limit counts as none: the top has no such
/// files.
pub(super) fn read<K: KernFs>(host: &mut HostAccess<K>) -> AncestorBounds {
    let mut bounds = AncestorBounds::default();
    for knob in Resource::ALL.map(Knob::limit) {
        let Some(tree) = host.layout.tree_of(knob) else { continue };
        let tree = host.layout.trees[tree].clone();
        let ups = tree.root.ancestors().take_while(|up| up.starts_with(&tree.mount));
        for up in ups.take_while(|up| *up != tree.mount) {
            bounds = bounds.and(limit_at(host, up, knob));
        }
    }
    bounds
}

pub(crate) fn limit_at<K: KernFs>(
    host: &mut HostAccess<K>,
    path: &Path,
    knob: Knob,
) -> AncestorBounds {
    let mut bounds = AncestorBounds::default();
    let Ok(dir) = host.kernel.open_dir(path) else { return bounds };
    let value = cgroup::observe_in(&mut host.kernel, &host.layout, dir, knob);
    host.kernel.close_dir(dir);
    if let Ok(Value::Amount(resource, Limit::Finite(limit))) = value {
        bounds.limit[resource] = Some(resource.amount(limit));
    }
    bounds
}
