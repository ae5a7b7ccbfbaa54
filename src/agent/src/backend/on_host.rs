//! Locations of the policy's nodes on this host, and the governed ancestors.
//!
//! A file has one writer, so a cgroup of a systemd unit is changed through systemd. Systemd writes no file
//! below a service or scope; the agent writes those of other existing cgroups. A cgroup that contains the
//! agent, or that the agent makes, is refused.

use std::collections::{BTreeSet, HashMap};

use super::ancestry::GovernedAbove;
use super::location::{Location, UserSlices, locations, rest_of};
use crate::recovery::residents::REST_CGROUP;
use tenantd_control::tree::{self, TreeNode};
use tenantd_host::cgroup::Layout;
use tenantd_host::enforce::AGENT_CGROUP;
use tenantd_host::kernfs::KernFs;
use tenantd_policy::expand::Numbers;
use tenantd_policy::model::{AncestorsChoice, OwnerChoice, Policy};
use tenantd_policy::unit_path::unit_at;

pub(crate) fn governed_above(
    kernel: &impl KernFs,
    layout: &Layout,
    policy: &Policy,
    locations: &[Location],
) -> GovernedAbove {
    let has_in_place = locations.iter().any(Location::may_be_in_place);
    match (layout.is_unified(), kernel.unit_manager().is_some()) {
        _ if policy.control.ancestors == AncestorsChoice::Leave => GovernedAbove::Nothing,
        (true, true) => GovernedAbove::Units,
        (true, false) => GovernedAbove::Cgroups,
        (false, false) if has_in_place => GovernedAbove::Cgroups,
        // Systemd owns the files of units and sets them in one tree only.
        (false, _) => GovernedAbove::Nothing,
    }
}

/// Tells if systemd runs this host, with units and user slices in the tree that the agent writes.
pub(crate) fn user_slices(kernel: &impl KernFs, layout: &Layout) -> UserSlices {
    if layout.is_unified() && kernel.unit_manager().is_some() {
        UserSlices::Kept
    } else {
        UserSlices::Unknown
    }
}

pub(crate) fn locations_on(
    kernel: &impl KernFs,
    layout: &Layout,
    policy: &Policy,
    numbers: &Numbers,
) -> Vec<Location> {
    let mut locations = locations(policy, numbers, user_slices(kernel, layout));
    settle_in_place(kernel, layout, policy, &mut locations);
    if !layout.is_unified() {
        for location in locations.iter_mut().filter(|location| location.is_of_systemd()) {
            *location = Location::Unknown(NEEDS_UNIFIED.into());
        }
        let rest = rest_of(&locations).map(|(number, _)| number);
        if let Some(number) = rest.filter(|_| kernel.unit_manager().is_some()) {
            locations[number] = Location::Unknown(REST_NEEDS_UNIFIED.into());
        }
    }
    locations
}

const NEEDS_UNIFIED: &str = "tenants that are units need the unified hierarchy: boot with \
                             systemd.unified_cgroup_hierarchy=1, or say `owner: direct`";

const REST_NEEDS_UNIFIED: &str = "where systemd runs the host, the rest is units, which need the unified hierarchy: boot \
                                  with systemd.unified_cgroup_hierarchy=1";

fn settle_in_place(
    kernel: &impl KernFs,
    layout: &Layout,
    policy: &Policy,
    locations: &mut [Location],
) {
    if !locations.iter().any(Location::may_be_in_place) {
        return;
    }
    let nodes = tree::flatten(policy);
    let ground = Ground::of(kernel, &nodes, locations.iter());
    let mut units: HashMap<String, usize> = HashMap::new();
    for (number, location) in locations.iter().enumerate() {
        units.extend(location.homes().into_iter().map(|unit| (unit, number)));
    }
    let owners: HashMap<String, OwnerChoice> =
        policy.leaves().into_iter().map(|(path, tenant)| (path, tenant.owner)).collect();
    for (number, location) in locations.iter_mut().enumerate() {
        let is_direct = owners.get(nodes[number].path.as_str()) == Some(&OwnerChoice::Direct);
        let mut settle = |path: &str| match ground.settle(layout, path, is_direct)? {
            Location::Unit(unit) => match units.insert(unit.clone(), number) {
                Some(other) if other != number => {
                    let other = &nodes[other].path;
                    Err(format!(
                        "{path} is the cgroup of {unit}, which is that of {other}: name it for one tenant only"
                    ))
                }
                _ => Ok(Location::Unit(unit)),
            },
            in_place => Ok(in_place),
        };
        match location {
            Location::InPlace(path) => {
                *location = settle(path).unwrap_or_else(Location::Unknown);
            }
            Location::Members(sources) => {
                for path in std::mem::take(&mut sources.cgroups) {
                    match settle(&path) {
                        Ok(Location::Unit(unit)) if sources.named.contains(&unit) => {}
                        Ok(Location::Unit(unit)) => sources.named.push(unit),
                        Ok(_) => sources.cgroups.push(path),
                        Err(why) => sources.refused.push(why),
                    }
                }
            }
            _ => {}
        }
    }
}

/// Cgroups of the host that tenants cannot use as they are.
#[derive(Debug)]
pub(crate) struct Ground {
    has_systemd: bool,
    /// Topmost cgroups that the agent makes below its root.
    made: BTreeSet<String>,
}

impl Ground {
    pub(crate) fn of<'a>(
        kernel: &impl KernFs,
        nodes: &[TreeNode],
        locations: impl Iterator<Item = &'a Location>,
    ) -> Ground {
        let below_root = nodes.iter().zip(locations).filter(|(_, location)| location.is_made());
        // Members of a group are in its cgroup; a member made apart from its group is named by its full path.
        let names = below_root.flat_map(|(node, _)| {
            [
                node.path.split('/').next().unwrap_or_default().to_string(),
                node.path.replace('/', ":"),
            ]
        });
        let made = names.chain([AGENT_CGROUP, REST_CGROUP].map(str::to_string)).collect();
        Ground { has_systemd: kernel.unit_manager().is_some(), made }
    }

    /// Resolves the cgroup at `path`, as a tenant or a member, to a unit or a cgroup in place.
    pub(crate) fn settle(
        &self,
        layout: &Layout,
        path: &str,
        is_direct: bool,
    ) -> Result<Location, String> {
        if let Some(why) = refusal(layout, path, &self.made) {
            return Err(why);
        }
        let Some(unit) = unit_at(path).filter(|_| self.has_systemd) else {
            return Ok(Location::InPlace(path.to_string()));
        };
        match (layout.is_unified(), is_direct) {
            // In cgroup v1 systemd writes only values that were requested, and a policy may prefer its own.
            (false, true) => Ok(Location::InPlace(path.to_string())),
            (false, false) => Err(NEEDS_UNIFIED.into()),
            (true, true) => Err(format!(
                "{path} is the cgroup of {unit}, which is changed through systemd: drop `owner: direct`"
            )),
            (true, false) => Ok(Location::Unit(unit.to_string())),
        }
    }
}

/// Reason why the cgroup `path` cannot be a tenant; `made` are the topmost cgroups that the agent makes below
/// its root.
fn refusal(layout: &Layout, path: &str, made: &BTreeSet<String>) -> Option<String> {
    for tree in &layout.trees {
        let dir = tree.dir_of(path);
        if tree.own.starts_with(&dir) || tree.root.starts_with(&dir) {
            return Some(format!(
                "{} holds the agent itself or the cgroups that it makes: name one beside it",
                dir.display()
            ));
        }
        let below = dir.strip_prefix(&tree.root).ok().and_then(|below| below.iter().next());
        let made = below.and_then(|name| name.to_str()).filter(|name| made.contains(*name));
        if let Some(name) = made {
            return Some(format!(
                "{} is in {}, which the agent makes: a tenant has no other inside",
                dir.display(),
                tree.root.join(name).display()
            ));
        }
    }
    None
}
