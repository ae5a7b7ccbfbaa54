//! What the cgroups above and beside the tenants take away from the effect of the tenants' values.
//!
//! Tenants may be anywhere: below the agent's root, in a slice of their own, or wherever systemd has their
//! unit. Protection counts only as far as everything above is protected, and weights only among siblings. Where the
//! agent does not govern what is above the tenants, it reports both, with the remedy, and shows them with each value.
//!
//! **Beside.** A sibling outside the policy competes with tenants by a weight that no policy knows. Most such
//! siblings sleep, as the services of `system.slice` do, and what they use is subtracted before anything is
//! divided; so only those are named that use more than [`FAIR_ERROR_MAX`] of the machine's CPUs while a
//! tenant beside them waits. Siblings of satisfied tenants are not sampled.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::effect;
use crate::control::fairness::FAIR_ERROR_MAX;
use crate::control::finding::Finding;
use crate::control::tree::{Ancestor, Tree};
use crate::daemon::backend::access::HostAccess;
use crate::daemon::backend::ancestry::GovernedAbove;
use crate::daemon::backend::backends::Backends;
use crate::host::cgroup::{self, Dialect, Facet};
use crate::host::enforce::AGENT_CGROUP;
use crate::host::kernfs::KernFs;

/// Most siblings that are sampled in one place.
const SIBLINGS_MAX: usize = 1024;

/// The last findings above and beside the tenants.
#[derive(Debug, Default)]
pub(super) struct Competition {
    /// The topmost cgroups without protection, with the finding for each.
    unprotected: Vec<(PathBuf, Finding)>,
    /// Findings on tenants that do not compete, and on other cgroups that do.
    findings: Vec<Finding>,
    /// Why the weights of nodes are void, by number.
    weights: HashMap<usize, Finding>,
    /// When siblings were sampled, and the CPU time that each had used.
    siblings: Option<(Duration, HashMap<PathBuf, u64>)>,
}

/// The inputs of the check.
#[derive(Debug)]
pub(super) struct Scene<'a, K> {
    pub(super) host: &'a mut HostAccess<K>,
    pub(super) backends: &'a Backends,
    pub(super) tree: &'a Tree,
    /// For each number, whether a task in or below that node waits for a CPU.
    pub(super) waiting: &'a [bool],
    pub(super) nr_cpus: u32,
    pub(super) now: Duration,
}

impl Competition {
    /// All of it, as text.
    pub(super) fn findings(&self) -> impl Iterator<Item = Finding> + '_ {
        self.unprotected.iter().map(|(_, what)| what).chain(&self.findings).cloned()
    }

    /// Why the weight of the node with this number is void, if it is.
    pub(super) fn void_weight(&self, number: usize) -> Option<&Finding> {
        self.weights.get(&number)
    }

    /// Why protection of the cgroup `dir` is void, if it is.
    pub(super) fn void_protection(&self, dir: &Path) -> Option<&Finding> {
        let above = self.unprotected.iter().find(|(up, _)| dir.starts_with(up) && dir != up);
        above.map(|(_, what)| what)
    }

    /// Checks what is above and beside the tenants.
    pub(super) fn refresh<K: KernFs>(&mut self, scene: &mut Scene<'_, K>) {
        let homes: Vec<Option<PathBuf>> = (0..scene.tree.first_ancestor())
            .map(|number| scene.backends.dir_of(scene.host, scene.tree, number, Facet::Cpu))
            .collect();
        let dirs = parents_to_protect(scene);
        let unprotected = effect::void_protection(scene.host, &dirs, &governed_above(scene));
        let siblings = self.siblings.take();
        *self = Competition { unprotected, siblings, ..Competition::default() };
        if scene.host.governs_above == GovernedAbove::Nothing {
            self.look_apart(scene.tree, &homes);
        }
        self.look_beside(scene, &homes);
    }

    /// Finds the nodes of one level that have different parents.
    fn look_apart(&mut self, tree: &Tree, homes: &[Option<PathBuf>]) {
        let mut levels: BTreeMap<Option<usize>, Vec<(usize, &Path)>> = BTreeMap::new();
        for (number, (node, home)) in tree.nodes().iter().zip(homes).enumerate() {
            if let Some(parent) = home.as_deref().and_then(Path::parent) {
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
                self.weights.insert(node.0, apart(*node, other));
            }
        }
    }

    /// Finds cgroups outside the policy that keep tenants beside them from their CPUs.
    fn look_beside<K: KernFs>(&mut self, scene: &mut Scene<'_, K>, homes: &[Option<PathBuf>]) {
        let lived_in: BTreeSet<&Path> = homes.iter().flatten().map(PathBuf::as_path).collect();
        let mut places: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
        for (number, home) in homes.iter().enumerate().filter(|(n, _)| scene.waiting[*n]) {
            if let Some(parent) = home.as_deref().and_then(Path::parent) {
                places.entry(parent.to_path_buf()).or_default().push(number);
            }
        }
        let before = self.siblings.take();
        let mut used = HashMap::new();
        let busy_cores = FAIR_ERROR_MAX * f64::from(scene.nr_cpus);
        for (place, nodes) in places {
            let mut foreign = foreign_in(scene.host, &place, &lived_in);
            foreign.extend(directly_in(scene.host, &place, &foreign, &lived_in));
            let is_busy = |(path, usage): &&(PathBuf, u64)| {
                let Some((then, known)) = &before else { return false };
                let elapsed_usec = scene.now.saturating_sub(*then).as_micros() as f64;
                let grown = known.get(path).and_then(|known| usage.checked_sub(*known));
                grown.is_some_and(|usec| usec as f64 > busy_cores * elapsed_usec)
            };
            let busy: Vec<&PathBuf> =
                foreign.iter().filter(is_busy).map(|(path, _)| path).collect();
            let names: Vec<String> =
                nodes.iter().map(|number| scene.tree.name(*number).to_string()).collect();
            if let Some(what) = effect::beside(&names, &busy, &place) {
                for number in nodes {
                    self.weights.entry(number).or_insert_with(|| what.clone());
                }
                self.findings.push(what);
            }
            used.extend(foreign);
        }
        self.siblings = Some((scene.now, used));
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
    let parent = |number: usize| {
        let dir = scene.backends.dir_of(scene.host, scene.tree, number, Facet::Memory)?;
        Some(dir.parent()?.to_path_buf())
    };
    (0..scene.tree.first_ancestor())
        .filter(|number| scene.backends.needs_protection_above(scene.tree, *number))
        .filter_map(parent)
        .collect()
}

/// The CPU time that processes directly in `place` have used, as if they were a cgroup of its name: on a
/// legacy host they compete with the cgroups in it. That is what `place` has used, less what those in it
/// have.
fn directly_in<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &Path,
    foreign: &[(PathBuf, u64)],
    lived_in: &BTreeSet<&Path>,
) -> Option<(PathBuf, u64)> {
    if host.layout.dialect != Dialect::Legacy {
        return None;
    }
    let all = cgroup::usage_usec(&mut host.kernel, &host.layout, place)?;
    let children: BTreeSet<PathBuf> = lived_in
        .iter()
        .filter_map(|home| home.strip_prefix(place).ok()?.components().next())
        .map(|name| place.join(name))
        .chain([place.join(AGENT_CGROUP)])
        .collect();
    let mut inside: u64 = foreign.iter().map(|(_, usage)| usage).sum();
    for child in children {
        inside += cgroup::usage_usec(&mut host.kernel, &host.layout, &child).unwrap_or(0);
    }
    Some((place.to_path_buf(), all.saturating_sub(inside)))
}

/// The cgroups in `place` in which no node lives, with the CPU time that each has used.
fn foreign_in<K: KernFs>(
    host: &mut HostAccess<K>,
    place: &Path,
    lived_in: &BTreeSet<&Path>,
) -> Vec<(PathBuf, u64)> {
    let Ok(dir) = host.kernel.open_dir(place) else { return Vec::new() };
    let names = host.kernel.list_dirs(dir).unwrap_or_default();
    host.kernel.close_dir(dir);
    let mut foreign = Vec::new();
    for name in names.into_iter().filter(|name| name != AGENT_CGROUP).take(SIBLINGS_MAX) {
        let path = place.join(name);
        // In the order of paths, a cgroup is followed by those below it.
        let next = lived_in.range(path.as_path()..).next();
        if next.is_some_and(|home| home.starts_with(&path)) {
            continue;
        }
        // A cgroup that went away meanwhile competes with no tenant.
        if let Some(usage) = cgroup::usage_usec(&mut host.kernel, &host.layout, &path) {
            foreign.push((path, usage));
        }
    }
    foreign
}
