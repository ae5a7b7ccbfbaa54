//! Work that was attached to tenants, kept across restarts of the agent.
//!
//! **Problem.** A cgroup or process is attached once, when it is started. A stop of the agent restores it, and
//! so does the start after a kill. The next agent must attach it again, with the processes started since.
//!
//! **Format.** The list is `attached.json` in the state directory. A cgroup counts while it exists with the
//! same inode number, a process while it runs. Before the journal is undone, processes that attached ones have
//! started in the tenant's cgroup are added to the list, because they go back with them
//! ([`Attachments::gather`]).
//!
//! **Pods.** A cgroup whose tenant the policy chose is kept with the facts about its pod, so that each later policy and agent
//! chooses anew. It stays in the list while no tenant fits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::boot_file::BootFile;
use super::processes::{ancestor, listed_up_to, nested_up_to};
use tenantd_control::report::status::{ATTACHED_MAX, AttachedStatus};
use tenantd_core::kernel_text::cleaned;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_host::process;
use tenantd_policy::pods::Pod;

/// Number of processes above which ended ones are dropped, each time that the list has doubled.
const PROCESSES_MAX: usize = 256;

/// Most cgroups inside a tenant's that are searched for children of attached processes.
const GATHERED_MAX: usize = 4096;
/// Most processes inside a tenant's cgroup among which children of attached ones are searched.
const GATHERED_PROCESSES_MAX: usize = 32_768;
/// Most cgroups and processes attached by one user, and by all users to one tenant.
const OF_USER_MAX: usize = 64;
const PROCESSES_OF_USER_MAX: usize = 1024;
const OF_TENANT_MAX: usize = 256;
const PROCESSES_OF_TENANT_MAX: usize = 4096;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachedCgroup {
    pub(crate) tenant: String,
    pub(crate) path: String,
    /// Its name as a member: a unit, or the same path.
    pub(crate) at: String,
    pub(crate) inode: u64,
    /// User who attached it; absent for an administrator.
    pub(crate) by: Option<u32>,
    /// Set if the policy chooses the tenant of this pod. `tenant` is then empty while the policy has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Pod>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachedProcess {
    pub(crate) tenant: String,
    pub(crate) pid: u32,
    pub(crate) start_ticks: u64,
    pub(crate) by: Option<u32>,
    #[serde(skip)]
    pub(crate) is_inside: bool,
    /// True if it was seen to have ended. It stays in the list: what it started may run.
    #[serde(skip)]
    pub(crate) has_ended: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Record {
    cgroups: Vec<AttachedCgroup>,
    processes: Vec<AttachedProcess>,
}

#[derive(Debug, Default)]
pub(crate) struct Attachments {
    file: Option<BootFile>,
    record: Record,
    forget_at: usize,
    /// Next process to look at.
    next: usize,
    /// True if pods came or went since the last call of [`Attachments::has_new_pods`].
    has_new_pods: bool,
}

/// Processes that a tick looks at, because they may have ended.
const LOOKS: usize = 16;

impl Attachments {
    pub(super) fn load(state_dir: &Path, boot_id: &str) -> Attachments {
        let file = BootFile::new(state_dir, "attached.json", boot_id);
        let record: Record = file.load();
        let has_new_pods = record.cgroups.iter().any(|it| it.pod.is_some());
        Attachments { file: Some(file), record, forget_at: PROCESSES_MAX, has_new_pods, next: 0 }
    }

    /// Pods whose tenant the policy chooses.
    pub(crate) fn pods(&self) -> BTreeSet<Pod> {
        self.record.cgroups.iter().filter_map(|it| it.pod.clone()).collect()
    }

    pub(crate) fn has_new_pods(&mut self) -> bool {
        std::mem::take(&mut self.has_new_pods)
    }

    /// Chooses the tenants of all pods anew. Returns the list before the change, if any, for [`Attachments::undo`].
    pub(crate) fn choose(
        &mut self,
        tenant_of: impl Fn(&Pod) -> Option<String>,
    ) -> Option<Vec<AttachedCgroup>> {
        let mut new = self.record.cgroups.clone();
        for cgroup in &mut new {
            if let Some(pod) = &cgroup.pod {
                cgroup.tenant = tenant_of(pod).unwrap_or_default();
            }
        }
        (new != self.record.cgroups).then(|| {
            let old = std::mem::replace(&mut self.record.cgroups, new);
            self.save();
            old
        })
    }

    pub(crate) fn undo(&mut self, before: Vec<AttachedCgroup>) {
        self.record.cgroups = before;
        self.has_new_pods = true;
        self.save();
    }

    pub(crate) fn cgroups(&self) -> &[AttachedCgroup] {
        &self.record.cgroups
    }

    pub(crate) fn processes(&self) -> &[AttachedProcess] {
        &self.record.processes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.record.cgroups.is_empty() && self.record.processes.is_empty()
    }

    /// Process `pid` with this start time, if it is attached.
    pub(crate) fn process(&self, pid: u32, start_ticks: u64) -> Option<&AttachedProcess> {
        let mut all = self.record.processes.iter();
        all.find(|it| (it.pid, it.start_ticks) == (pid, start_ticks))
    }

    /// Looks at some processes in turn, and notes those that have ended.
    pub(crate) fn look(&mut self, kernel: &mut impl KernFs, proc: DirId) {
        let all = &mut self.record.processes;
        for _ in 0..LOOKS.min(all.len()) {
            self.next = (self.next + 1) % all.len();
            let it = &mut all[self.next];
            it.has_ended |= process::has_ended(kernel, proc, it.pid, it.start_ticks);
        }
    }

    /// Attached work by tenant, for the status. Without `has_processes` these are at their origin.
    pub(crate) fn statuses(&self, has_processes: bool) -> Vec<AttachedStatus> {
        let mut all: BTreeMap<&str, AttachedStatus> = BTreeMap::new();
        fn of<'m, 'a>(
            all: &'m mut BTreeMap<&'a str, AttachedStatus>,
            tenant: &'a str,
        ) -> &'m mut AttachedStatus {
            let new = || AttachedStatus { tenant: tenant.to_string(), ..Default::default() };
            all.entry(tenant).or_insert_with(new)
        }
        for cgroup in self.record.cgroups.iter().filter(|it| !it.tenant.is_empty()) {
            let status = of(&mut all, &cgroup.tenant);
            status.nr_cgroups += 1;
            if status.cgroups.len() < ATTACHED_MAX {
                status.cgroups.push(cgroup.path.clone());
                let pod = cgroup.pod.iter();
                status.pods.extend(pod.map(|it| cleaned(&format!("{}/{}", it.namespace, it.name))));
            }
        }
        let is_there = |it: &&AttachedProcess| has_processes && it.is_inside && !it.has_ended;
        for process in self.record.processes.iter().filter(is_there) {
            let status = of(&mut all, &process.tenant);
            status.nr_processes += 1;
            if status.processes.len() < ATTACHED_MAX {
                status.processes.push(process.pid);
            }
        }
        all.into_values().collect()
    }

    /// Fails if this many more cgroups and processes exceed the bound of `user` or of the tenant. Each cgroup
    /// costs the agent descriptors and reads in every tick. Administrators have no bound.
    pub(crate) fn check_room(
        &self,
        tenant: &str,
        user: u32,
        (cgroups, processes): (usize, usize),
    ) -> Result<(), String> {
        let of_user = |by: Option<u32>| by == Some(user);
        let (all, listed) = (&self.record.cgroups, &self.record.processes);
        let own = all.iter().filter(|it| of_user(it.by)).count() + cgroups;
        let own_processes = listed.iter().filter(|it| of_user(it.by)).count() + processes;
        let to = |of: &str, by: Option<u32>| of == tenant && by.is_some();
        let there = all.iter().filter(|it| to(&it.tenant, it.by)).count() + cgroups;
        let there_processes = listed.iter().filter(|it| to(&it.tenant, it.by)).count() + processes;
        for (count, max, what) in [
            (own, OF_USER_MAX, "cgroups by this user"),
            (own_processes, PROCESSES_OF_USER_MAX, "processes by this user"),
            (there, OF_TENANT_MAX, "cgroups by users to this tenant"),
            (there_processes, PROCESSES_OF_TENANT_MAX, "processes by users to this tenant"),
        ] {
            if count > max {
                return Err(format!(
                    "{max} {what} may be attached at once: detach some, or ask an administrator to attach it"
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn add_cgroup(&mut self, cgroup: AttachedCgroup) {
        self.has_new_pods |= cgroup.pod.is_some();
        self.record.cgroups.push(cgroup);
        self.save();
    }

    pub(crate) fn add_processes(
        &mut self,
        kernel: &mut impl KernFs,
        proc: DirId,
        processes: impl IntoIterator<Item = AttachedProcess>,
    ) {
        let all = &mut self.record.processes;
        for new in processes {
            all.retain(|old| (old.pid, old.start_ticks) != (new.pid, new.start_ticks));
            all.push(new);
        }
        if all.len() > self.forget_at.max(PROCESSES_MAX) {
            all.retain(|it| !process::has_ended(kernel, proc, it.pid, it.start_ticks));
            self.forget_at = 2 * all.len();
        }
        self.save();
    }

    /// Keeps the entries for which the functions are true; returns true if any was dropped.
    pub(crate) fn retain(
        &mut self,
        is_cgroup: impl FnMut(&AttachedCgroup) -> bool,
        is_process: impl FnMut(&AttachedProcess) -> bool,
    ) -> bool {
        let nr_before = (self.record.cgroups.len(), self.record.processes.len());
        let nr_pods = |all: &[AttachedCgroup]| all.iter().filter(|it| it.pod.is_some()).count();
        let nr_pods_before = nr_pods(&self.record.cgroups);
        self.record.cgroups.retain(is_cgroup);
        self.has_new_pods |= nr_pods(&self.record.cgroups) != nr_pods_before;
        self.record.processes.retain(is_process);
        let has_changed = nr_before != (self.record.cgroups.len(), self.record.processes.len());
        if has_changed {
            self.save();
        }
        has_changed
    }

    pub(crate) fn set_inside(&mut self, is_inside: impl Fn(&AttachedProcess) -> bool) {
        for process in &mut self.record.processes {
            process.is_inside = is_inside(process);
        }
    }

    /// Adds the processes that attached ones have started: all in the same cgroups that were not started by
    /// claimed ones. To be called before `entries` are undone. Those of a
    /// cgroup with too many processes are not added, and stay where they came from.
    pub(crate) fn gather(&mut self, kernel: &mut impl KernFs, proc: DirId, entries: &[Entry]) {
        let processes = &self.record.processes;
        let attached: BTreeMap<(u32, u64), &AttachedProcess> =
            processes.iter().map(|it| ((it.pid, it.start_ticks), it)).collect();
        let (mut home_of, mut claimed) = (BTreeMap::new(), BTreeSet::new());
        for entry in entries {
            let Entry::Moved { pid, start_ticks, to, .. } = entry else { continue };
            let key = (*pid, *start_ticks);
            // A process that was claimed before it was attached has several entries.
            match to.first().filter(|_| attached.contains_key(&key)) {
                Some(home) => drop(home_of.insert(key, home)),
                None => drop(claimed.insert(key)),
            }
        }
        let homes: BTreeMap<&PathBuf, &AttachedProcess> =
            home_of.into_iter().map(|(key, home)| (home, attached[&key])).collect();
        let is_claimed = |key: (u32, u64)| claimed.contains(&key).then_some(());
        let mut found = Vec::new();
        for (home, of) in homes {
            let below = nested_up_to(kernel, home, GATHERED_MAX).ok().flatten().unwrap_or_default();
            let mut left = GATHERED_PROCESSES_MAX;
            for dir in std::iter::once(home).chain(&below) {
                let pids = listed_up_to(kernel, dir, "cgroup.procs", left).ok().flatten();
                let pids = pids.unwrap_or_default();
                left -= pids.len();
                for pid in pids {
                    let start_ticks = process::start_ticks(kernel, proc, pid).ok().flatten();
                    let is_known = start_ticks.is_none_or(|it| attached.contains_key(&(pid, it)));
                    if !is_known && let Ok(None) = ancestor(kernel, proc, pid, is_claimed) {
                        let start_ticks = start_ticks.unwrap_or_default();
                        found.push(AttachedProcess {
                            pid,
                            start_ticks,
                            has_ended: false,
                            ..of.clone()
                        });
                    }
                }
            }
        }
        if !found.is_empty() {
            self.record.processes.extend(found);
            self.save();
        }
    }

    fn save(&self) {
        let Some(file) = &self.file else { return };
        let outcome = if self.is_empty() { file.remove() } else { file.write(&self.record) };
        if let Err(error) = outcome {
            let path = file.path().display();
            warn!("what is attached to tenants is not kept for the next start: {path}: {error}");
        }
    }
}
