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
use tenantd_control::tree::{Ancestor, Node, Tree};
use tenantd_control::words::finding::Finding;
use tenantd_core::node::NodeId;
use tenantd_host::cgroup::Facet;
use tenantd_host::kernfs::KernFs;

#[derive(Debug, Default)]
pub(super) struct Competition {
    unprotected: Vec<(PathBuf, Finding)>,
    /// Nodes whose protection does not reach the cgroups inside theirs.
    shallow: HashMap<NodeId, Finding>,
    /// Findings on tenants that do not compete, and on other cgroups that do.
    findings: Vec<Finding>,
    /// Nodes whose weights do not compete with one another.
    apart: HashMap<NodeId, Finding>,
    /// Nodes whose weights do not count against other cgroups.
    beside: HashMap<NodeId, Finding>,
}

#[derive(Debug)]
pub(super) struct Scene<'a, K> {
    pub(super) host: &'a mut HostAccess<K>,
    pub(super) backends: &'a Backends,
    pub(super) tree: &'a Tree,
    pub(super) outsiders: &'a Outsiders,
    /// Obstacle to protection of cgroups inside a tenant's.
    pub(super) unprotected: Option<&'a Finding>,
    /// For each position, true if a tenant in or below that node is short of a resource.
    pub(super) lacking: &'a [bool],
    pub(super) nr_cpus: u32,
}

impl Competition {
    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> + '_ {
        self.unprotected.iter().map(|(_, what)| what).chain(&self.findings).cloned()
    }

    /// Reason why the weight of this node is void, if it is.
    pub(super) fn void_weight(&self, id: NodeId) -> Option<&Finding> {
        self.apart(id).or_else(|| self.beside.get(&id))
    }

    /// Reason why the weight of this node does not compete with those of its siblings in the policy, if so.
    pub(super) fn apart(&self, id: NodeId) -> Option<&Finding> {
        self.apart.get(&id)
    }

    pub(super) fn leaves_unprotected(&self) -> bool {
        !(self.unprotected.is_empty() && self.shallow.is_empty())
    }

    /// Reason why protection of this node in the cgroup `dir` is void, if it is.
    pub(super) fn void_protection(&self, id: NodeId, dir: &Path) -> Option<&Finding> {
        let above = self.unprotected.iter().find(|(up, _)| dir.starts_with(up) && dir != up);
        above.map(|(_, what)| what).or_else(|| self.shallow.get(&id))
    }

    /// Drops the nodes that are not in `tree`; the tenants `handed` give their cgroups to a member.
    pub(super) fn follow(&mut self, tree: &Tree, handed: &[(NodeId, NodeId)]) {
        for by_node in [&mut self.apart, &mut self.beside, &mut self.shallow] {
            for (tenant, member) in handed {
                let what = by_node.remove(tenant);
                by_node.extend(what.map(|what| (*member, what)));
            }
            by_node.retain(|id, _| tree.find(*id).is_some());
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
        *self = Competition { unprotected, shallow: shallow(scene), ..Competition::default() };
        let homes = Parents::of(scene, Facet::Cpu, |_| true);
        self.findings = effect::idle_above(scene.host, &homes.all());
        if scene.host.governs_above == GovernedAbove::Nothing {
            self.look_apart(scene.tree, &homes);
        }
        self.look_beside(scene, &homes);
    }

    fn look_apart(&mut self, tree: &Tree, homes: &Parents) {
        let mut levels: BTreeMap<Option<usize>, Vec<(Node<'_>, &Path)>> = BTreeMap::new();
        for node in tree.policy_nodes() {
            if let Some(parent) = homes.parent(node) {
                levels.entry(node.group().map(Node::at)).or_default().push((node, parent));
            }
        }
        let apart = |one: (Node<'_>, &Path), other: (Node<'_>, &Path)| {
            effect::apart((one.0.name(), one.1), (other.0.name(), other.1))
        };
        for places in levels.values() {
            // Compare with the first node; the first compares with the first node elsewhere.
            let first = places[0];
            let Some(stray) = places.iter().find(|(_, place)| *place != first.1) else { continue };
            self.findings.push(apart(first, *stray));
            for node in places {
                let other = if node.1 == first.1 { *stray } else { first };
                self.apart.insert(node.0.id(), apart(*node, other));
            }
        }
    }

    /// Finds cgroups outside the policy that keep tenants beside them from their CPUs.
    fn look_beside<K: KernFs>(&mut self, scene: &Scene<'_, K>, homes: &Parents) {
        let mut places: BTreeMap<&Path, Vec<Node<'_>>> = BTreeMap::new();
        for node in scene.tree.tenants_and_members().filter(|node| scene.lacking[node.at()]) {
            if let Some(place) = homes.parent(node) {
                places.entry(place).or_default().push(node);
            }
        }
        let busy_cores = FAIR_ERROR_MAX * f64::from(scene.nr_cpus);
        for (place, nodes) in places {
            let busy = scene.outsiders.in_place(place, busy_cores);
            let mut busy: Vec<&Path> = busy.into_iter().map(|(path, _)| path).collect();
            // In a stable order, so that the text changes only with the set.
            busy.sort();
            let names: Vec<String> = nodes.iter().map(|node| node.name().to_string()).collect();
            if let Some(what) = effect::beside(&names, &busy, place) {
                for node in nodes {
                    self.beside.insert(node.id(), what.clone());
                }
                self.findings.push(what);
            }
        }
    }
}

/// Nodes with cgroups inside, whose protection ends at their own cgroup.
fn shallow<K: KernFs>(scene: &mut Scene<'_, K>) -> HashMap<NodeId, Finding> {
    let Some(what) = scene.unprotected else { return HashMap::new() };
    let (tree, backends, host) = (scene.tree, scene.backends, &mut *scene.host);
    let has_inside = |node: &Node<'_>| {
        let Some(path) = backends.dir_of(host, *node, Facet::Memory) else { return false };
        let Ok(dir) = host.kernel.open_dir(&path) else { return false };
        let nr_dirs = host.kernel.nr_dirs(dir);
        host.kernel.close_dir(dir);
        nr_dirs.is_ok_and(|nr_dirs| nr_dirs > 0)
    };
    let shallow = tree.tenants_and_members().filter(has_inside);
    shallow.map(|node| (node.id(), what.clone())).collect()
}

fn governed_above<K>(scene: &Scene<'_, K>) -> BTreeSet<PathBuf> {
    let layout = &scene.host.layout;
    let tree = layout.tree(Facet::Memory).map(|tree| &layout.trees[tree]);
    let dir = |(_, above): (Node<'_>, &Ancestor)| Some(tree?.dir_of(&above.cgroup));
    scene.tree.ancestors().filter_map(dir).collect()
}

/// Parents of cgroups whose protection depends on cgroups that the agent does not own.
fn parents_to_protect<K>(scene: &Scene<'_, K>) -> BTreeSet<PathBuf> {
    let is_asked = |node: Node<'_>| scene.backends.needs_protection_above(node);
    let parents = Parents::of(scene, Facet::Memory, is_asked);
    parents.all()
}

/// Parents of cgroups. Most cgroups share few parents, so each path is stored once.
#[derive(Debug, Default)]
struct Parents {
    places: Vec<Rc<Path>>,
    /// For each position the index of its place.
    of: Vec<Option<usize>>,
}

impl Parents {
    /// Parents of the nodes for which `is_asked`, in the tree with the files of `facet`.
    fn of<K>(scene: &Scene<'_, K>, facet: Facet, is_asked: impl Fn(Node<'_>) -> bool) -> Parents {
        let mut parents = Parents::default();
        let mut known: HashMap<Rc<Path>, usize> = HashMap::new();
        let mut dir = PathBuf::new();
        let Scene { host, backends, tree, .. } = scene;
        parents.of = tree
            .tenants_and_members()
            .map(|node| {
                let is_there = is_asked(node) && backends.dir_into(host, node, facet, &mut dir);
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

    fn all(&self) -> BTreeSet<PathBuf> {
        self.places.iter().map(|place| place.to_path_buf()).collect()
    }

    fn parent(&self, node: Node<'_>) -> Option<&Path> {
        self.places.get((*self.of.get(node.at())?)?).map(Rc::as_ref)
    }
}
