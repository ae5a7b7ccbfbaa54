//! What the cgroups above and beside the tenants take away from the effect of the tenants' values.
//!
//! Tenants may be anywhere: below the agent's root, in a slice of their own, or wherever systemd has their
//! unit. Protection counts only as far as everything above is protected, and weights only among siblings. Where the
//! agent does not govern what is above the tenants, it reports both, with the remedy, and shows them with each value.
//!
//! **Beside.** A sibling outside the policy competes with tenants by a weight that no policy knows. Most such
//! siblings sleep, as the services of `system.slice` do, and what they use is subtracted before anything is
//! divided; so only those are named that use more than [`FAIR_ERROR_MAX`] of the machine's CPUs while a
//! tenant beside them lacks something.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::effect;
use super::outsiders::Outsiders;
use crate::backend::access::HostAccess;
use crate::backend::ancestry::GovernedAbove;
use crate::backend::backends::Backends;
use tenantd_control::fairness::FAIR_ERROR_MAX;
use tenantd_control::finding::Finding;
use tenantd_control::tree::{Ancestor, Tree};
use tenantd_host::cgroup::{Dialect, Facet};
use tenantd_host::kernfs::KernFs;

/// The last findings above and beside the tenants.
#[derive(Debug, Default)]
pub(super) struct Competition {
    /// The topmost cgroups without protection, with the finding for each.
    unprotected: Vec<(PathBuf, Finding)>,
    /// Findings on tenants that do not compete, and on other cgroups that do.
    findings: Vec<Finding>,
    /// Nodes whose weights do not compete with one another, by number.
    apart: HashMap<usize, Finding>,
    /// Nodes whose weights do not count against other cgroups, by number.
    beside: HashMap<usize, Finding>,
}

/// The inputs of the check.
#[derive(Debug)]
pub(super) struct Scene<'a, K> {
    pub(super) host: &'a mut HostAccess<K>,
    pub(super) backends: &'a Backends,
    pub(super) tree: &'a Tree,
    pub(super) outsiders: &'a Outsiders,
    /// For each number, whether a tenant in or below that node lacks something.
    pub(super) lacking: &'a [bool],
    pub(super) nr_cpus: u32,
}

impl Competition {
    /// All of it, as text.
    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> + '_ {
        self.unprotected.iter().map(|(_, what)| what).chain(&self.findings).cloned()
    }

    /// Why the weight of the node with this number is void, if it is.
    pub(super) fn void_weight(&self, number: usize) -> Option<&Finding> {
        self.apart(number).or_else(|| self.beside.get(&number))
    }

    /// Why the weight of the node with this number does not count against those of others, if it does not.
    pub(super) fn apart(&self, number: usize) -> Option<&Finding> {
        self.apart.get(&number)
    }

    /// Whether some protection is void.
    pub(super) fn leaves_unprotected(&self) -> bool {
        !self.unprotected.is_empty()
    }

    /// Why protection of the cgroup `dir` is void, if it is.
    pub(super) fn void_protection(&self, dir: &Path) -> Option<&Finding> {
        let above = self.unprotected.iter().find(|(up, _)| dir.starts_with(up) && dir != up);
        above.map(|(_, what)| what)
    }

    /// The node `n` is `kept[n]` from now on.
    pub(super) fn renumber(&mut self, kept: &[Option<usize>]) {
        for by_number in [&mut self.apart, &mut self.beside] {
            let old = std::mem::take(by_number).into_iter();
            *by_number = old.filter_map(|(number, what)| Some((kept[number]?, what))).collect();
        }
    }

    /// Checks what is above and beside the tenants.
    pub(super) fn refresh<K: KernFs>(&mut self, scene: &mut Scene<'_, K>) {
        // The legacy hierarchy asks nothing of the cgroups above.
        let unprotected = match scene.host.layout.dialect {
            Dialect::Legacy => Vec::new(),
            Dialect::Unified => {
                let dirs = parents_to_protect(scene);
                effect::void_protection(scene.host, &dirs, &governed_above(scene))
            }
        };
        *self = Competition { unprotected, ..Competition::default() };
        let homes = Parents::of(scene, Facet::Cpu, |_| true);
        if scene.host.governs_above == GovernedAbove::Nothing {
            self.look_apart(scene.tree, &homes);
        }
        self.look_beside(scene, &homes);
    }

    /// Finds the nodes of one level that have different parents.
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
            // A node has a different parent than at least one of the first and the first that is elsewhere.
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
            // The same words as long as they are the same.
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

/// The cgroups above tenants that the agent protects.
fn governed_above<K>(scene: &Scene<'_, K>) -> BTreeSet<PathBuf> {
    let layout = &scene.host.layout;
    let tree = layout.tree(Facet::Memory).map(|tree| &layout.trees[tree]);
    let dir = |(_, above): (usize, &Ancestor)| Some(tree?.dir_of(&above.cgroup));
    scene.tree.ancestors().filter_map(dir).collect()
}

/// The parents of cgroups whose protection depends on cgroups that the agent does not own.
fn parents_to_protect<K>(scene: &Scene<'_, K>) -> BTreeSet<PathBuf> {
    let is_asked = |number| scene.backends.needs_protection_above(scene.tree, number);
    let parents = Parents::of(scene, Facet::Memory, is_asked);
    parents.places.iter().map(|place| place.to_path_buf()).collect()
}

/// The cgroups that others are in. Most are in few: those have their names once.
#[derive(Debug, Default)]
struct Parents {
    places: Vec<Rc<Path>>,
    /// For each number its place.
    of: Vec<Option<usize>>,
}

impl Parents {
    /// Those of the numbers for which `is_asked`, in the tree with the files of `facet`.
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

    /// The cgroup that the one with this number is in.
    fn parent(&self, number: usize) -> Option<&Path> {
        self.places.get((*self.of.get(number)?)?).map(Rc::as_ref)
    }
}
