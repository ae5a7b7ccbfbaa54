//! Where the cgroups of the policy's nodes are on this host, and what is governed there.
//!
//! A file has one writer, so a cgroup that systemd made for a unit is that unit, and is changed through systemd.
//! Systemd writes no file below a service or scope; those of other cgroups that are there are written by the agent.
//! A cgroup that holds the agent, or that the agent makes, is refused.

use std::collections::HashMap;

use super::ancestry::GovernedAbove;
use super::location::{Location, UserSlices, locations};
use crate::control::tree::{self, TreeNode};
use crate::daemon::recovery::residents::REST_CGROUP;
use crate::host::cgroup::{Dialect, Layout};
use crate::host::enforce::AGENT_CGROUP;
use crate::host::kernfs::KernFs;
use crate::policy::model::{AncestorsChoice, OwnerChoice, Policy};
use crate::policy::unit_path::unit_at;

/// What is governed above tenants at these locations.
pub(in crate::daemon) fn governed_above(
    kernel: &impl KernFs,
    layout: &Layout,
    policy: &Policy,
    locations: &[Location],
) -> GovernedAbove {
    let has_in_place = locations.iter().any(|location| location.in_place().is_some());
    match (layout.dialect, kernel.unit_manager().is_some()) {
        _ if policy.control.ancestors == AncestorsChoice::Leave => GovernedAbove::Nothing,
        (Dialect::Unified, true) => GovernedAbove::Units,
        (Dialect::Unified, false) => GovernedAbove::Cgroups,
        (Dialect::Legacy, false) if has_in_place => GovernedAbove::Cgroups,
        // Files of units belong to systemd, which sets them in one tree only.
        (Dialect::Legacy, _) => GovernedAbove::Nothing,
    }
}

/// Whether systemd runs this host, with units in the tree that the agent writes.
fn has_units(kernel: &impl KernFs, layout: &Layout) -> bool {
    layout.dialect == Dialect::Unified && kernel.unit_manager().is_some()
}

/// The locations of all nodes of the policy, in pre-order: systemd sets the files of one tree only, where it has one.
pub(in crate::daemon) fn locations_on(
    kernel: &impl KernFs,
    layout: &Layout,
    policy: &Policy,
) -> Vec<Location> {
    let slices = if has_units(kernel, layout) { UserSlices::Kept } else { UserSlices::Unknown };
    let mut locations = locations(policy, slices);
    settle_in_place(kernel, layout, policy, &mut locations);
    if layout.dialect == Dialect::Legacy {
        for location in locations.iter_mut().filter(|location| location.is_of_systemd()) {
            let why = "tenants that are units need the unified hierarchy: boot with \
                       systemd.unified_cgroup_hierarchy=1, or say `owner: direct`";
            *location = Location::Unknown(why.into());
        }
    }
    locations
}

/// Decides what the cgroups that a policy names are on this host: units, cgroups in place, or neither.
fn settle_in_place(
    kernel: &impl KernFs,
    layout: &Layout,
    policy: &Policy,
    locations: &mut [Location],
) {
    if locations.iter().all(|location| location.in_place().is_none()) {
        return;
    }
    let has_systemd = kernel.unit_manager().is_some();
    let nodes = tree::flatten(policy);
    let direct = |(node, location): (&TreeNode, &Location)| {
        (*location == Location::Direct).then(|| node.path.clone())
    };
    let made: Vec<String> = nodes.iter().zip(&*locations).filter_map(direct).collect();
    let mut units: HashMap<String, usize> = HashMap::new();
    for (number, location) in locations.iter().enumerate() {
        units.extend(location.homes().into_iter().map(|unit| (unit, number)));
    }
    let owners: HashMap<String, OwnerChoice> =
        policy.leaves().into_iter().map(|(path, tenant)| (path, tenant.owner)).collect();
    for (number, location) in locations.iter_mut().enumerate() {
        let Some(path) = location.in_place() else { continue };
        let is_direct = owners.get(&nodes[number].path) == Some(&OwnerChoice::Direct);
        let unit = unit_at(path).filter(|_| has_systemd).map(str::to_string);
        *location = match (refusal(layout, path, &made), unit) {
            (Some(why), _) => Location::Unknown(why),
            (None, None) => continue,
            (None, Some(unit)) if is_direct => match layout.dialect {
                // Systemd writes what it is asked to there, and a policy may prefer its own.
                Dialect::Legacy => continue,
                Dialect::Unified => {
                    let why = format!(
                        "{path} is the cgroup of {unit}, which is changed through systemd: drop `owner: direct`"
                    );
                    Location::Unknown(why)
                }
            },
            (None, Some(unit)) => match units.insert(unit.clone(), number) {
                Some(other) => {
                    let other = &nodes[other].path;
                    let why = format!(
                        "{path} is the cgroup of {unit}, which is that of {other}: name it for one tenant only"
                    );
                    Location::Unknown(why)
                }
                None => Location::Unit(unit),
            },
        };
    }
}

/// Why the cgroup `path` cannot be a tenant; `made` are the cgroups that the agent makes below its root.
fn refusal(layout: &Layout, path: &str, made: &[String]) -> Option<String> {
    for tree in &layout.trees {
        let dir = tree.dir_of(path);
        if tree.own.starts_with(&dir) || tree.root.starts_with(&dir) {
            return Some(format!(
                "{} holds the agent itself or the cgroups that it makes: name one beside it",
                dir.display()
            ));
        }
        let mut ours = made.iter().map(String::as_str).chain([AGENT_CGROUP, REST_CGROUP]);
        if let Some(name) = ours.find(|name| dir.starts_with(tree.root.join(name))) {
            return Some(format!(
                "{} is in {}, which the agent makes: a tenant has no other inside",
                dir.display(),
                tree.root.join(name).display()
            ));
        }
    }
    None
}
