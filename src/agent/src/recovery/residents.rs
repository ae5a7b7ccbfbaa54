//! Processes of cgroups that the agent made, kept across a restart of the agent.
//!
//! **Problem.** A stop removes every cgroup that the agent made. A process in it that was not claimed is
//! *displaced*: moved to the parent. After the next start it must return to its tenant. In cgroup v2 it would
//! even prevent the start, because a cgroup with processes cannot enable controllers for its children. A reload
//! that removes a tenant displaces its processes as well, and one that adds the tenant again must bring them
//! back.
//!
//! **Algorithm.** `residents.json` in the state directory lists the displaced processes with their old and new
//! cgroups. A start (before it enables controllers) and a reload look for those processes and their descendants
//! in the new cgroups, and move them back. If the policy has no such tenant, and they would block the start,
//! they go to a cgroup beside the tenants with the kernel's default weight ([`REST_CGROUP`]). They stay listed
//! with their first cgroup, and a finding counts them. Processes of others, and those that an administrator
//! moved meanwhile, are never moved.
//!
//! The cgroups are made and journaled as usual. The file is only a hint: if it is unreadable or of another
//! boot, the processes stay, and a line is logged.
//!
//! **Properties** (`tests/agent/residents.rs`): a restart brings residents and their children back; so does a
//! reload; a tenant that left the policy does not prevent a start; processes of others stay.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::boot_file::BootFile;
use super::processes::{ancestor, processes_in};
use tenantd_control::tree::TreeNode;
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::kernel_text::path_text;
use tenantd_host::cgroup::{Facet, Layout, Tree};
use tenantd_host::enforce::{EnforceError, Enforcer};
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::process;

/// Child of the root for displaced processes whose tenant is no longer in the policy.
pub const REST_CGROUP: &str = "tenantd.rest";

/// A displaced process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resident {
    pid: u32,
    start_ticks: u64,
    #[serde(with = "path_text")]
    from: PathBuf,
    /// Cgroup that it was moved to, an ancestor of the old one.
    #[serde(with = "path_text")]
    to: PathBuf,
}

impl Resident {
    pub(crate) fn of(
        kernel: &mut impl KernFs,
        proc: DirId,
        pid: u32,
        from: &Path,
        to: &Path,
    ) -> Option<Resident> {
        let start_ticks = process::start_ticks(kernel, proc, pid).ok().flatten()?;
        Some(Resident { pid, start_ticks, from: from.to_path_buf(), to: to.to_path_buf() })
    }
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Record {
    residents: Vec<Resident>,
}

#[derive(Debug)]
pub(crate) struct ResidentStore(BootFile);

impl ResidentStore {
    pub(crate) fn new(state_dir: &Path, boot_id: &str) -> ResidentStore {
        ResidentStore(BootFile::new(state_dir, "residents.json", boot_id))
    }

    pub(crate) fn load(&self) -> Vec<Resident> {
        self.0.load::<Record>().residents
    }

    pub(crate) fn keep(&self, residents: &[Resident]) {
        let outcome = if residents.is_empty() {
            self.0.remove()
        } else {
            self.0.write(&Record { residents: residents.to_vec() })
        };
        if let Err(error) = outcome {
            let path = self.0.path().display();
            warn!(
                "the list of processes displaced from tenants' cgroups cannot be written: {path}: {error}"
            );
        }
    }
}

/// Adds `displaced` to the `known` ones. A process that is displaced again belongs to its first cgroup, and so
/// does one that such a process started in the [`REST_CGROUP`].
pub(crate) fn displace(known: &mut Vec<Resident>, displaced: &[Resident]) {
    for new in displaced {
        let same = |one: &Resident| (one.pid, one.start_ticks) == (new.pid, new.start_ticks);
        let earlier = known.iter().position(|one| same(one) && one.to == new.from);
        let mut new = new.clone();
        if let Some(earlier) = earlier {
            new.from = known.swap_remove(earlier).from;
        }
        known.retain(|one| !(same(one) && one.from == new.from));
        known.push(new);
    }
}

/// Moves back those of `residents`, and their descendants, that were not moved since; returns those without a
/// tenant. Fails if the journal cannot be written: then nothing more may be changed. A process that the kernel
/// refuses to move stays, with a line in the log.
pub(crate) fn bring_home<K: KernFs>(
    enforcer: &mut Enforcer<'_, K>,
    proc: DirId,
    nodes: &[TreeNode],
    residents: &[Resident],
) -> Result<Vec<Resident>, EnforceError> {
    let shelters: BTreeSet<&Path> = residents.iter().map(|resident| &*resident.to).collect();
    let (mut housed, mut waiting) = (BTreeSet::new(), Vec::new());
    for shelter in shelters {
        for mut resident in sheltered(enforcer.kernel, proc, shelter, residents) {
            let Some((tree, home)) = home(enforcer, nodes, &resident.from, shelter) else {
                waiting.push(resident);
                continue;
            };
            let outcome =
                if home == shelter { Ok(()) } else { house(enforcer, tree, &home, resident.pid) };
            match outcome {
                Ok(()) if home == resident.from => drop(housed.insert(resident.pid)),
                Ok(()) => {
                    resident.to = home;
                    waiting.push(resident);
                }
                Err(error @ EnforceError::Journal { .. }) => return Err(error),
                Err(error) => {
                    warn!("process {} stays in {}: {error}", resident.pid, shelter.display());
                    waiting.push(resident);
                }
            }
        }
    }
    if !housed.is_empty() {
        info!(processes = housed.len(), "moved displaced processes back to their tenants");
    }
    Ok(waiting)
}

/// Those of `residents` and their descendants that are in `shelter`, each with its old cgroup.
fn sheltered(
    kernel: &mut impl KernFs,
    proc: DirId,
    shelter: &Path,
    residents: &[Resident],
) -> Vec<Resident> {
    let here = residents.iter().filter(|resident| resident.to == shelter);
    let known: BTreeMap<(u32, u64), &Path> =
        here.map(|r| ((r.pid, r.start_ticks), &*r.from)).collect();
    // For a process started among those without a tenant, its parent's record is better than its own.
    let is_of_tenant = |from: &&Path| !from.ends_with(REST_CGROUP);
    let own = process::own_pid(kernel, proc).ok();
    let pids = processes_of(kernel, shelter);
    let lived_in = |pid: u32| {
        let of_tenant = |key| known.get(&key).copied().filter(is_of_tenant);
        let from = match ancestor(kernel, proc, pid, of_tenant).ok().flatten() {
            None => ancestor(kernel, proc, pid, |key| known.get(&key).copied()).ok().flatten(),
            found => found,
        };
        Resident::of(kernel, proc, pid, from?, shelter)
    };
    pids.into_iter().filter(|pid| Some(*pid) != own).filter_map(lived_in).collect()
}

fn processes_of(kernel: &mut impl KernFs, path: &Path) -> Vec<u32> {
    let Ok(dir) = kernel.open_dir(path) else { return Vec::new() };
    let pids = processes_in(kernel, dir).unwrap_or_default();
    kernel.close_dir(dir);
    pids
}

/// Finding on those of `residents` that are still displaced: they have no tenant.
pub(crate) fn finding(
    kernel: &mut impl KernFs,
    layout: &Layout,
    residents: &[Resident],
) -> Option<Finding> {
    let shelters: BTreeSet<&Path> = residents.iter().map(|resident| &*resident.to).collect();
    let (mut pids, mut tenants, mut places) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for shelter in shelters {
        let there: BTreeSet<u32> = processes_of(kernel, shelter).into_iter().collect();
        let here = residents.iter().filter(|r| r.to == shelter && there.contains(&r.pid));
        let before = pids.len();
        for resident in here {
            pids.insert(resident.pid);
            let tree = layout.trees.iter().find(|tree| resident.from.starts_with(&tree.root));
            let name = tree.and_then(|tree| resident.from.strip_prefix(&tree.root).ok());
            tenants.extend(name.filter(|name| *name != REST_CGROUP).map(Path::to_path_buf));
        }
        // In cgroup v1 the same processes are in a cgroup of each tree.
        if pids.len() > before {
            places.push(shelter.display().to_string());
        }
    }
    let nr_processes = match pids.len() {
        0 => return None,
        1 => "1 process has".to_string(),
        more => format!("{more} processes have"),
    };
    let tenants: Vec<String> = tenants.iter().map(|name| name.display().to_string()).collect();
    let of = if tenants.is_empty() { String::new() } else { format!(" ({})", tenants.join(", ")) };
    let what = format!(
        "{nr_processes} lost their tenant{of}: the policy has it no longer; in {}",
        places.join(" and ")
    );
    let remedy = "add the tenant again, and they are moved back, or move them elsewhere";
    Some(Finding::of_host(Code::Displaced, what).with_remedy(remedy))
}

fn home<'a, K: KernFs>(
    enforcer: &Enforcer<'a, K>,
    nodes: &[TreeNode],
    from: &Path,
    shelter: &Path,
) -> Option<(&'a Tree, PathBuf)> {
    let layout = enforcer.layout;
    let has_tenant = |tree: &&Tree| {
        let below = from.strip_prefix(&tree.root).ok().and_then(Path::to_str);
        let is_home = |node: &TreeNode| {
            // A tenant without a cgroup of the agent's has a separate one for attached processes.
            below.is_some_and(|below| node.path == below || node.path.replace('/', ":") == below)
        };
        nodes.iter().any(|node| node.is_leaf && is_home(node))
    };
    if let Some(tree) = layout.trees.iter().filter(|tree| enforcer.uses(tree)).find(has_tenant) {
        return Some((tree, from.to_path_buf()));
    }
    let is_in_the_way =
        |tree: &&Tree| tree.root == shelter || (tree.own == shelter && tree.root != tree.own);
    let tree = layout.trees.iter().find(is_in_the_way)?;
    let home = || (tree, tree.root.join(REST_CGROUP));
    layout.is_unified().then(home)
}

fn house<K: KernFs>(
    enforcer: &mut Enforcer<'_, K>,
    tree: &Tree,
    home: &Path,
    pid: u32,
) -> Result<(), EnforceError> {
    let made = enforcer.make_all(&tree.mount, home)?;
    if !made.is_empty() && tree.facets.contains(&Facet::Cpuset) {
        enforcer.fill_legacy(tree, home)?;
    }
    let dir = enforcer.kernel.open_dir(home)?;
    let outcome = enforcer.move_into(dir, pid);
    enforcer.kernel.close_dir(dir);
    outcome
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn resident(pid: u32, from: &str) -> Resident {
        Resident { pid, start_ticks: 7, from: from.into(), to: "/r".into() }
    }

    #[test]
    fn residents_are_kept_once_each_and_for_one_boot() {
        let state = tempfile::tempdir().unwrap();
        let store = ResidentStore::new(state.path(), "one");
        assert!(store.load().is_empty());
        store.keep(&[]);
        assert!(!state.path().join("residents.json").exists());
        let mut known = Vec::new();
        displace(&mut known, &[resident(1, "/r/a"), resident(2, "/r/a")]);
        displace(&mut known, &[resident(2, "/r/a"), resident(2, "/s/a")]);
        let all = [resident(1, "/r/a"), resident(2, "/r/a"), resident(2, "/s/a")];
        store.keep(&known);
        assert_eq!(store.load(), all);
        assert!(ResidentStore::new(state.path(), "two").load().is_empty());
        store.keep(&[]);
        assert!(store.load().is_empty());
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_that_is_displaced_again_belongs_where_it_was_first() {
        let mut known = vec![Resident { to: "/r/rest".into(), ..resident(1, "/r/a") }];
        displace(&mut known, &[resident(1, "/r/rest")]);
        assert_eq!(known, [resident(1, "/r/a")]);
    }

    #[test]
    fn a_damaged_file_is_passed_over() {
        let state = tempfile::tempdir().unwrap();
        let store = ResidentStore::new(state.path(), "one");
        for text in ["", "{", "[]", r#"{"boot_id":"one","residents":[{"pid":-1}]}"#] {
            fs::write(state.path().join("residents.json"), text).unwrap();
            assert!(store.load().is_empty(), "{text}");
        }
    }
}
