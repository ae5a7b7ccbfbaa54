//! Attached work in every tick and across restarts, reloads and changes of mode.
//!
//! The list of attached work outlives the agent ([`Attachments`](crate::recovery::attachments::Attachments)).
//! The agent attaches it again at its start and when it begins to enforce. Cgroups that have ended and tenants
//! that a reload removed are dropped from the list. A tenant that has members because of attached work keeps
//! its members: going back to a single cgroup would lose the readings of its own cgroup.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tracing::warn;

use super::state::Tenants;
use crate::backend::access::HostAccess;
use crate::backend::location::Location;
use crate::backend::on_host;
use crate::recovery::attachments::{AttachedCgroup, AttachedProcess};
use tenantd_control::tree::{Tree, TreeNode};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process::{self, Candidate};
use tenantd_policy::model::Mode;

impl<K: KernFs> Tenants<K> {
    /// Attaches the work of an earlier agent, or of this one in another mode.
    pub(crate) fn take_up_attached(&mut self) {
        if self.keeper.attachments.is_empty() {
            return;
        }
        let tree = self.control.tree().clone();
        self.detach_unknown(&tree);
        let mut findings = Vec::new();
        self.settle_attached(&mut findings);
        findings.iter().for_each(|finding| warn!("{finding}"));
    }

    /// Drops cgroups that have ended, and moves the processes of an earlier agent's list into their cgroups.
    pub(crate) fn keep_attached(&mut self, findings: &mut Vec<Finding>) {
        if self.keeper.attachments.is_empty() {
            return;
        }
        let missing: Vec<AttachedCgroup> = self.missing_cgroups();
        let mut ended = Vec::new();
        for cgroup in missing {
            let dir = cpu_dir(&self.host.layout, &cgroup.path);
            match inode(&mut self.host.kernel, &dir) {
                Ok(inode) if inode == cgroup.inode => {}
                Err(error) if !error.is_gone() => {}
                _ => ended.push(cgroup),
            }
        }
        if !ended.is_empty() {
            self.keeper.attachments.retain(|it| !ended.contains(it), |_| true);
            self.settle_attached(findings);
        }
        if self.mode() == Mode::Enforce {
            self.rejoin(findings);
        }
    }

    fn missing_cgroups(&self) -> Vec<AttachedCgroup> {
        let tree = self.control.tree();
        let open = tree.members().filter(|(number, _)| self.backends.is_present(*number));
        let open: Vec<(&str, &str)> =
            open.map(|(_, member)| (&*tree.nodes()[member.tenant].path, &*member.at)).collect();
        let is_missing = |it: &&AttachedCgroup| !open.contains(&(&*it.tenant, &*it.at));
        self.keeper.attachments.cgroups().iter().filter(is_missing).cloned().collect()
    }

    /// Moves processes that are not in their tenant's cgroup yet. Processes whose tenant comes from a template
    /// wait for it.
    fn rejoin(&mut self, findings: &mut Vec<Finding>) {
        let nodes = self.control.tree().shared_nodes();
        let node_of = |tenant: &str| nodes.iter().position(|node| node.path == tenant);
        let attachments = &mut self.keeper.attachments;
        attachments.set_inside(|it| it.is_inside && node_of(&it.tenant).is_some());
        let waiting = attachments.processes().iter().filter(|it| !it.is_inside);
        let waiting: Vec<AttachedProcess> = waiting.cloned().collect();
        let (mut ended, mut unread) = (Vec::new(), BTreeSet::new());
        for process in waiting {
            let (proc, pid) = (self.host.proc(), process.pid);
            let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
            let Some(node) = node_of(&process.tenant) else {
                let has_ended = process::has_ended(kernel, proc, pid, process.start_ticks);
                ended.extend(has_ended.then_some(process));
                continue;
            };
            let outcome = match process::candidate(kernel, proc, layout, pid, node) {
                Ok(None) => continue,
                Ok(Some(found)) => self.rejoin_one(node, &process, &found),
                Err(error) => {
                    unread.insert((pid, process.start_ticks));
                    Err(error.to_string())
                }
            };
            if let Err(why) = outcome {
                let what = format!("process {pid} is not attached again: {why}");
                findings.push(Finding::of(&process.tenant, Code::NotClaimed, what));
            }
        }
        let attachments = &mut self.keeper.attachments;
        let is_unread = |it: &AttachedProcess| unread.contains(&(it.pid, it.start_ticks));
        attachments
            .set_inside(|it| it.is_inside || node_of(&it.tenant).is_some() && !is_unread(it));
        if !ended.is_empty() {
            attachments.retain(|_| true, |it| !ended.contains(it));
        }
    }

    fn rejoin_one(
        &mut self,
        node: usize,
        process: &AttachedProcess,
        found: &Candidate,
    ) -> Result<(), String> {
        let outcome = if found.claim.start_ticks == process.start_ticks {
            self.own_cgroup(node).and_then(|own| self.join(own, found, process.by))
        } else {
            Err("it has ended".to_string())
        };
        self.host.kernel.close_dir(found.held);
        outcome
    }

    /// Detaches the work of tenants that are not in `tree` and that no template can find; restores its cgroups.
    fn detach_unknown(&mut self, tree: &Tree) {
        let is_there = |tenant: &str| {
            let is_it = |node: &TreeNode| node.is_leaf && node.path == tenant;
            let is_known = tree.nodes().iter().any(is_it) || self.base.written.may_find(tenant);
            if !is_known {
                warn!(
                    tenant,
                    action = "detach",
                    "what was attached is given back: the policy has no such tenant"
                );
            }
            is_known
        };
        self.keeper.attachments.retain(|it| is_there(&it.tenant), |it| is_there(&it.tenant));
    }

    /// Adds attached work to the locations of `nodes`. A tenant that has members because of attached work keeps
    /// them.
    pub(crate) fn with_attached(
        &self,
        nodes: &[TreeNode],
        locations: Vec<Location>,
    ) -> Vec<Location> {
        let (tree, attachments) = (self.control.tree(), &self.keeper.attachments);
        let has_members = |node: &TreeNode| {
            let old = tree.nodes().iter().position(|old| old.path == node.path);
            old.is_some_and(|old| tree.has_members(old))
        };
        let with = |(node, location): (&TreeNode, Location)| {
            let cgroups = attachments.cgroups().iter().filter(|it| it.tenant == node.path);
            let cgroups: Vec<String> = cgroups.map(|it| it.at.clone()).collect();
            let has_processes = attachments.processes().iter().any(|it| it.tenant == node.path);
            let needs_own = has_processes && !location.is_made();
            if node.is_leaf && (!cgroups.is_empty() || needs_own || has_members(node)) {
                location.with_attached(&node.path, cgroups, has_processes)
            } else {
                location
            }
        };
        nodes.iter().zip(locations).map(with).collect()
    }

    pub(crate) fn settle_attached(&mut self, findings: &mut Vec<Finding>) {
        let tree = self.control.tree();
        let (nodes, locations) = (tree.shared_nodes(), self.backends.locations(tree));
        let locations = self.with_attached(&nodes, locations);
        self.settle_at(&nodes, &locations, findings);
    }

    fn settle_own(&mut self, node: usize) -> Result<(), String> {
        let tree = self.control.tree();
        let (nodes, locations) = (tree.shared_nodes(), self.backends.locations(tree));
        let mut locations = self.with_attached(&nodes, locations);
        let (location, path) = (locations[node].clone(), &nodes[node].path);
        let attached = match &location {
            Location::Members(sources) => sources.attached.clone(),
            _ => Vec::new(),
        };
        locations[node] = location.with_attached(path, attached, true);
        let mut findings = Vec::new();
        self.settle_at(&nodes, &locations, &mut findings);
        findings.first().map_or(Ok(()), |finding| Err(finding.to_string()))
    }

    fn settle_at(
        &mut self,
        nodes: &[TreeNode],
        locations: &[Location],
        findings: &mut Vec<Finding>,
    ) {
        let is_enforcing = self.mode() == Mode::Enforce;
        if is_enforcing && let Err(error) = self.take_root_for(nodes, locations, self.host.pins) {
            let what = format!("nothing is attached: {}", with_causes(&error));
            findings.push(Finding::of_host(Code::NotAttached, what));
            return;
        }
        let (kernel, layout) = (&self.host.kernel, &self.host.layout);
        self.host.governs_above =
            on_host::governed_above(kernel, layout, &self.base.written, locations);
        self.settle_members(locations, findings);
    }

    /// Returns the number of the cgroup that the agent makes for the processes of a tenant, and opens it.
    pub(crate) fn own_cgroup(&mut self, node: usize) -> Result<usize, String> {
        if self.backends.own(self.control.tree(), node).is_none() {
            self.settle_own(node)?;
        }
        let Some(own) = self.backends.own(self.control.tree(), node) else {
            return Err(format!("{} has no cgroup of tenantd's", self.nodes()[node].path));
        };
        let opened = self.backends.open_own(&mut self.host, self.control.tree(), own);
        opened.map(|()| own).map_err(|finding| finding.to_string())
    }

    pub(crate) fn join(
        &mut self,
        own: usize,
        candidate: &Candidate,
        user: Option<u32>,
    ) -> Result<(), String> {
        let claim = &candidate.claim;
        check(&mut self.host, candidate, user)?;
        self.backends.join(&mut self.host, own, claim).map_err(|error| with_causes(&error))?;
        let Err(why) = check(&mut self.host, candidate, user) else { return Ok(()) };
        // The pid may have been reused: the process that was moved may be another one.
        for from in &claim.from {
            if let Ok(dir) = self.host.kernel.open_dir(from) {
                let _ = self.host.kernel.move_process(dir, claim.pid);
                self.host.kernel.close_dir(dir);
            }
        }
        Err(why)
    }
}

/// Fails if the process has ended or is not the user's. A pid is not reused while its process lives, so earlier
/// reads by pid were of this process.
fn check<K: KernFs>(
    host: &mut HostAccess<K>,
    candidate: &Candidate,
    user: Option<u32>,
) -> Result<(), String> {
    let owned = user.map_or(Ok(()), |user| check_owner(host, candidate.claim.pid, user));
    match process::is_alive(&mut host.kernel, candidate.held) {
        Ok(true) => owned,
        Ok(false) => Err("it has ended".to_string()),
        Err(error) => Err(error.to_string()),
    }
}

pub(crate) fn check_owner<K: KernFs>(
    host: &mut HostAccess<K>,
    pid: u32,
    user: u32,
) -> Result<(), String> {
    let proc = host.proc();
    match process::is_of(&mut host.kernel, proc, pid, user) {
        Ok(Some(true)) => Ok(()),
        Ok(_) => Err(format!("process {pid} is not yours")),
        Err(error) => Err(format!("the owner of process {pid} is not known: {error}")),
    }
}

/// Directory of a cgroup in the cpu hierarchy; `path` is below the mount.
pub(crate) fn cpu_dir(layout: &Layout, path: &str) -> PathBuf {
    layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)].dir_of(path)
}

pub(crate) fn inode(kernel: &mut impl KernFs, dir: &Path) -> Result<u64, KernError> {
    let dir = kernel.open_dir(dir)?;
    let inode = kernel.inode(dir);
    kernel.close_dir(dir);
    inode
}
