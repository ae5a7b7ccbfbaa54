//! Cgroups above and beside the tenants that weaken the effect of the tenants' values.
//!
//! Tenants may be below the agent's root, in a slice of their own, or in a unit anywhere. Protection is
//! effective only if everything above is protected, and weights count only among siblings. If the agent does
//! not govern the ancestors of the tenants, it reports both problems with the remedy, and shows them with each
//! value.
//!
//! **Siblings.** A sibling outside the policy competes with tenants by a weight that no policy sets. Most such
//! siblings sleep, like the services of `system.slice`, and their use is subtracted before resources are
//! divided. So only those are named that use more than [`FAIR_ERROR_MAX`] of the machine's CPUs while a tenant
//! beside them is short of a resource.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::effect;
use super::outsiders::Outsiders;
use crate::backend::access::HostAccess;
use crate::backend::ancestry::GovernedAbove;
use crate::backend::backends::Backends;
use tenantd_control::share::fairness::FAIR_ERROR_MAX;
use tenantd_control::tree::{Ancestor, Tree};
use tenantd_control::words::finding::Finding;
use tenantd_host::cgroup::Facet;
use tenantd_host::kernfs::KernFs;

#[derive(Debug, Default)]
pub(super) struct Competition {
    unprotected: Vec<(PathBuf, Finding)>,
    /// Findings on tenants that do not compete, and on other cgroups that do.
    findings: Vec<Finding>,
    /// Nodes whose weights do not compete with one another, by number.
    apart: HashMap<usize, Finding>,
    /// Nodes whose weights do not count against other cgroups, by number.
    beside: HashMap<usize, Finding>,
}

#[derive(Debug)]
pub(super) struct Scene<'a, K> {
    pub(super) host: &'a mut HostAccess<K>,
    pub(super) backends: &'a Backends,
    pub(super) tree: &'a Tree,
    pub(super) outsiders: &'a Outsiders,
    /// For each number, true if a tenant in or below that node is short of a resource.
    pub(super) lacking: &'a [bool],
    pub(super) nr_cpus: u32,
}

impl Competition {
    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> + '_ {
        self.unprotected.iter().map(|(_, what)| what).chain(&self.findings).cloned()
    }

    /// Reason why the weight of this node is void, if it is.
    pub(super) fn void_weight(&self, number: usize) -> Option<&Finding> {
        self.apart(number).or_else(|| self.beside.get(&number))
    }

    /// Reason why the weight of this node does not compete with those of its siblings in the policy, if so.
    pub(super) fn apart(&self, number: usize) -> Option<&Finding> {
        self.apart.get(&number)
    }

    pub(super) fn leaves_unprotected(&self) -> bool {
        !self.unprotected.is_empty()
    }

    /// Reason why protection of the cgroup `dir` is void, if it is.
    pub(super) fn void_protection(&self, dir: &Path) -> Option<&Finding> {
        let above = self.unprotected.iter().find(|(up, _)| dir.starts_with(up) && dir != up);
        above.map(|(_, what)| what)
    }

    pub(super) fn renumber(&mut self, kept: &[Option<usize>]) {
        for by_number in [&mut self.apart, &mut self.beside] {
            let old = std::mem::take(by_number).into_iter();
            *by_number = old.filter_map(|(number, what)| Some((kept[number]?, what))).collect();
        }
    }

    pub(super) fn refresh<K: KernFs>(&mut self, scene: &mut Scene<'_, K>) {
        // Cgroup v1 needs no protection of ancestors.
        let unprotected = if scene.host.layout.is_unified() {
            let dirs = parents_to_protect(scene);
            effect::void_protection(scene.host, &dirs, &governed_above(scene))
        } else {
            Vec::new()
        };
        *self = Competition { unprotected, ..Competition::default() };
        let homes = Parents::of(scene, Facet::Cpu, |_| true);
        if scene.host.governs_above == GovernedAbove::Nothing {
            self.look_apart(scene.tree, &homes);
        }
        self.look_beside(scene, &homes);
    }

    fn look_apart(&mut self, tree: &Tree, homes: &Parents) {
        let mut levels: BTreeMap<Option<usize>, Vec<(usize, &Path)>> = BTreeMap::new();
        for (number, node) in tree.nodes().iter().enumerate() {
            if let Some(parent) = homes.parent(number) {
                levels.entry(node.parent).or_default().push((number, parent));
            }
        }
        let apart = |one: (usize, &Path), other: (usize, &Path)| {
            effect::apart((tree.name(one.0), one.1), (tree.name(other.0), other.1))
        };
        for places in levels.values() {
            // Compare with the first node; the first compares with the first node elsewhere.
            let first = places[0];
            let Some(stray) = places.iter().find(|(_, place)| *place != first.1) else { continue };
            self.findings.push(apart(first, *stray));
            for node in places {
                let other = if node.1 == first.1 { *stray } else { first };
                self.apart.insert(node.0, apart(*node, other));
            }
        }
    }

    /// Finds cgroups outside the policy that keep tenants beside them from their CPUs.
    fn look_beside<K: KernFs>(&mut self, scene: &Scene<'_, K>, homes: &Parents) {
        let mut places: BTreeMap<&Path, Vec<usize>> = BTreeMap::new();
        for number in (0..scene.tree.first_ancestor()).filter(|number| scene.lacking[*number]) {
            if let Some(place) = homes.parent(number) {
                places.entry(place).or_default().push(number);
            }
        }
        let busy_cores = FAIR_ERROR_MAX * f64::from(scene.nr_cpus);
        for (place, nodes) in places {
            let busy = scene.outsiders.in_place(place, busy_cores);
            let mut busy: Vec<&Path> = busy.into_iter().map(|(path, _)| path).collect();
            // In a stable order, so that the text changes only with the set.
            busy.sort();
            let names: Vec<String> =
                nodes.iter().map(|number| scene.tree.name(*number).to_string()).collect();
            if let Some(what) = effect::beside(&names, &busy, place) {
                for number in nodes {
                    self.beside.insert(number, what.clone());
                }
                self.findings.push(what);
            }
        }
    }
}

fn governed_above<K>(scene: &Scene<'_, K>) -> BTreeSet<PathBuf> {
    let layout = &scene.host.layout;
    let tree = layout.tree(Facet::Memory).map(|tree| &layout.trees[tree]);
    let dir = |(_, above): (usize, &Ancestor)| Some(tree?.dir_of(&above.cgroup));
    scene.tree.ancestors().filter_map(dir).collect()
}

/// Parents of cgroups whose protection depends on cgroups that the agent does not own.
fn parents_to_protect<K>(scene: &Scene<'_, K>) -> BTreeSet<PathBuf> {
    let is_asked = |number| scene.backends.needs_protection_above(scene.tree, number);
    let parents = Parents::of(scene, Facet::Memory, is_asked);
    parents.places.iter().map(|place| place.to_path_buf()).collect()
}

/// Parents of cgroups. Most cgroups share few parents, so each path is stored once.
#[derive(Debug, Default)]
struct Parents {
    places: Vec<Rc<Path>>,
    /// For each number the index of its place.
    of: Vec<Option<usize>>,
}

impl Parents {
    /// Parents of the numbers for which `is_asked`, in the tree with the files of `facet`.
    fn of<K>(scene: &Scene<'_, K>, facet: Facet, is_asked: impl Fn(usize) -> bool) -> Parents {
        let mut parents = Parents::default();
        let mut known: HashMap<Rc<Path>, usize> = HashMap::new();
        let mut dir = PathBuf::new();
        let Scene { host, backends, tree, .. } = scene;
        parents.of = (0..tree.first_ancestor())
            .map(|number| {
                let is_there =
                    is_asked(number) && backends.dir_into(host, tree, (number, facet), &mut dir);
                let parent = dir.parent().filter(|_| is_there)?;
                if let Some(place) = known.get(parent) {
                    return Some(*place);
                }
                let place: Rc<Path> = parent.into();
                known.insert(Rc::clone(&place), parents.places.len());
                parents.places.push(place);
                Some(parents.places.len() - 1)
            })
            .collect();
        parents
    }

    fn parent(&self, number: usize) -> Option<&Path> {
        self.places.get((*self.of.get(number)?)?).map(Rc::as_ref)
    }
}
