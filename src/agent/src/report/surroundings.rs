//! Surroundings of tenants short of a resource: the largest work outside all tenants, limits of ancestors, and
//! reasons for ineffective weights.
//!
//! The control loop decides at the end of a tick which tenants are short of a resource. The next tick reads the
//! surroundings of those tenants first, as part of its input.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::binding::Bindings;
use super::competition::Competition;
use super::outsiders::Outsiders;
use super::programs::Programs;
use crate::backend::access::HostAccess;
use crate::backend::backends::Backends;
use crate::backend::bounds;
use tenantd_control::report::reason::{LimitAbove, Outsider, Surroundings};
use tenantd_control::tick::control_loop::ControlLoop;
use tenantd_control::tree::{self as control, Node};
use tenantd_control::words::finding::Finding;
use tenantd_control::words::knob::Knob;
use tenantd_core::kernel_text::text_of_path;
use tenantd_core::node::NodeId;
use tenantd_core::resource::{CPU, Resource};
use tenantd_host::cgroup::{self, Facet, Tree};
use tenantd_host::kernfs::KernFs;
use tenantd_host::knobs::row_of;

const NAMED_MAX: usize = 3;
const NAMED_CORES: f64 = 0.01;

#[derive(Debug, Default)]
pub(super) struct Neighbourhood {
    pub(super) outsiders: Outsiders,
    programs: Programs,
    bindings: Bindings,
    limits: HashMap<(PathBuf, Resource), Limit>,
    by_node: HashMap<NodeId, Surroundings>,
}

/// A limit that the policy did not set.
#[derive(Clone, Copy, Debug)]
struct Limit {
    amount: f64,
    nr_throttled: Option<u64>,
    is_binding: bool,
}

struct Large {
    path: PathBuf,
    is_direct: bool,
    cores: f64,
}

#[derive(Debug)]
pub(super) struct Scene<'a, K> {
    pub(super) host: &'a mut HostAccess<K>,
    pub(super) backends: &'a Backends,
    pub(super) control: &'a ControlLoop,
    pub(super) competition: &'a Competition,
    pub(super) foreign_scheduler: Option<&'a Finding>,
    pub(super) now: Duration,
}

impl<K: KernFs> Scene<'_, K> {
    fn homes(&self, facet: Facet) -> BTreeSet<PathBuf> {
        let tree = self.control.tree();
        let dir = |node| self.backends.dir_of(self.host, node, facet);
        tree.tenants_and_members().filter_map(dir).collect()
    }

    fn lacking(&self, facet: Facet) -> Vec<(NodeId, PathBuf)> {
        let dirs = |tenant: Node<'_>| {
            let dir = |node| self.backends.dir_of(self.host, node, facet);
            let id = tenant.id();
            let dirs: Vec<_> = tenant.cgroups().filter_map(dir).map(|dir| (id, dir)).collect();
            dirs
        };
        self.control.lacking().flat_map(dirs).collect()
    }

    fn tree(&self, facet: Facet) -> Option<&Tree> {
        self.host.layout.tree(facet).map(|tree| &self.host.layout.trees[tree])
    }
}

impl Neighbourhood {
    pub(super) fn of(&self, id: NodeId) -> Option<Box<Surroundings>> {
        self.by_node.get(&id).cloned().map(Box::new)
    }

    /// Drops the tenants that are not in `new`.
    pub(super) fn follow(&mut self, new: &control::Tree) {
        self.by_node.retain(|id, _| new.find(*id).is_some());
    }

    pub(super) fn refresh<K: KernFs>(&mut self, scene: &mut Scene<'_, K>) {
        let lacking = scene.lacking(Facet::Cpu);
        let mount = scene.tree(Facet::Cpu).map(|tree| tree.mount.clone());
        let Some(mount) = mount.filter(|_| !lacking.is_empty()) else {
            *self = Neighbourhood::default();
            return;
        };
        if self.outsiders.begins_round() {
            let places = lacking.iter().flat_map(|(_, dir)| above(dir, &mount));
            let places = places.map(Path::to_path_buf).collect();
            self.outsiders.begin_round(places, scene.homes(Facet::Cpu));
            self.read_limits(scene);
        }
        self.outsiders.refresh(scene.host, scene.now);
        self.bindings.refresh(scene.host, &lacking, scene.now);
        let largest = self.name_largest(scene, &lacking, &mount);
        let limits = self.limits_above(scene);
        self.by_node.clear();
        for (tenant, dir) in lacking {
            let around = self.by_node.entry(tenant).or_insert_with(|| {
                let void = scene.foreign_scheduler.or_else(|| scene.competition.apart(tenant));
                let void_weight = void.map(ToString::to_string);
                let binding = self.bindings.of(tenant);
                Surroundings { void_weight, binding, ..Surroundings::default() }
            });
            let found = dir.parent().and_then(|parent| largest.get(parent));
            if let Some(found) = found {
                around.outsiders = together(&around.outsiders, found);
            }
        }
        for (tenant, limit) in limits {
            if let Some(around) = self.by_node.get_mut(&tenant)
                && !around.limits.contains(&limit)
            {
                around.limits.push(limit);
            }
        }
    }

    fn name_largest<K: KernFs>(
        &mut self,
        scene: &mut Scene<'_, K>,
        lacking: &[(NodeId, PathBuf)],
        mount: &Path,
    ) -> HashMap<PathBuf, Arc<[Outsider]>> {
        let parents: BTreeSet<&Path> = lacking.iter().filter_map(|(_, dir)| dir.parent()).collect();
        let largest: Vec<(&Path, Vec<Large>)> =
            parents.into_iter().map(|parent| (parent, self.largest(parent, mount))).collect();
        let all = largest.iter().flat_map(|(_, large)| large);
        let mut named: Vec<(PathBuf, bool)> =
            all.map(|large| (large.path.clone(), large.is_direct)).collect();
        named.sort();
        named.dedup();
        self.programs.refresh(scene.host, &named, scene.now);
        let outsider = |Large { path, is_direct, cores }: Large| Outsider {
            cgroup: from_mount(&path, mount),
            is_direct,
            command: self.programs.of(&path).map(str::to_string),
            cores,
        };
        let outsiders = |(parent, large): (&Path, Vec<Large>)| {
            (parent.to_path_buf(), large.into_iter().map(outsider).collect())
        };
        largest.into_iter().map(outsiders).collect()
    }

    /// The largest outsiders in a cgroup and in all its ancestors.
    fn largest(&self, parent: &Path, mount: &Path) -> Vec<Large> {
        let places = parent.ancestors().take_while(|up| up.starts_with(mount));
        let all = places.flat_map(|place| {
            let large = self.outsiders.in_place(place, NAMED_CORES).into_iter().take(NAMED_MAX);
            large.map(move |(path, cores)| Large {
                path: path.to_path_buf(),
                is_direct: path == place,
                cores,
            })
        });
        let mut all: Vec<Large> = all.collect();
        all.sort_by(|one, other| other.cores.total_cmp(&one.cores));
        all.truncate(NAMED_MAX);
        all
    }

    /// Reads the limits of all ancestors of tenants short of a resource, except those set by the policy.
    fn read_limits<K: KernFs>(&mut self, scene: &mut Scene<'_, K>) {
        let before = std::mem::take(&mut self.limits);
        for resource in Resource::ALL {
            let knob = Knob::limit(resource);
            for path in unnamed_above(scene, knob) {
                let Some(amount) = bounds::limit_at(scene.host, &path, knob).limit[resource] else {
                    continue;
                };
                let nr_throttled = (resource == CPU)
                    .then(|| cgroup::nr_throttled(&mut scene.host.kernel, &path))
                    .flatten();
                let key = (path, resource);
                let then = before.get(&key).and_then(|limit| limit.nr_throttled);
                let is_binding = then.zip(nr_throttled).is_some_and(|(then, now)| now > then);
                self.limits.insert(key, Limit { amount, nr_throttled, is_binding });
            }
        }
    }

    fn limits_above<K: KernFs>(&self, scene: &Scene<'_, K>) -> Vec<(NodeId, LimitAbove)> {
        let mut found = Vec::new();
        if self.limits.is_empty() {
            return found;
        }
        for resource in Resource::ALL {
            let facet = row_of(Knob::limit(resource)).facet;
            let Some(mount) = scene.tree(facet).map(|tree| &tree.mount) else { continue };
            for (tenant, dir) in scene.lacking(facet) {
                found.extend(above(&dir, mount).filter_map(|path| {
                    let limit = self.limits.get(&(path.to_path_buf(), resource))?;
                    let (amount, is_binding) = (limit.amount, limit.is_binding);
                    let cgroup = from_mount(path, mount);
                    Some((tenant, LimitAbove { cgroup, resource, amount, is_binding }))
                }));
            }
        }
        found
    }
}

fn together(one: &Arc<[Outsider]>, other: &Arc<[Outsider]>) -> Arc<[Outsider]> {
    if one.is_empty() || one == other {
        return Arc::clone(other);
    }
    let mut all: Vec<Outsider> = one.to_vec();
    let is_new = |it: &&Outsider| !one.iter().any(|known| known.cgroup == it.cgroup);
    all.extend(other.iter().filter(is_new).cloned());
    all.sort_by(|one, other| other.cores.total_cmp(&one.cores));
    all.truncate(NAMED_MAX);
    all.into()
}

fn unnamed_above<K: KernFs>(scene: &Scene<'_, K>, knob: Knob) -> BTreeSet<PathBuf> {
    let facet = row_of(knob).facet;
    let Some(tree) = scene.tree(facet) else { return BTreeSet::new() };
    let homes = scene.homes(facet);
    let lacking = scene.lacking(facet);
    let ups = lacking.iter().flat_map(|(_, dir)| above(dir, &tree.mount));
    let unnamed = ups.filter(|up| !homes.contains(*up) && *up != tree.mount);
    unnamed.map(Path::to_path_buf).collect()
}

fn above<'a>(dir: &'a Path, mount: &'a Path) -> impl Iterator<Item = &'a Path> {
    dir.ancestors().skip(1).take_while(move |up| up.starts_with(mount))
}

fn from_mount(path: &Path, mount: &Path) -> String {
    format!("/{}", text_of_path(path.strip_prefix(mount).unwrap_or(path)))
}
