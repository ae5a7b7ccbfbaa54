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
use crate::recovery::removal;
use tenantd_control::tree::{Node, Tree, TreeNode};
use tenantd_control::words::finding::{Code, Finding};
use tenantd_core::node::NodeId;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process::{self, Candidate, Claim};
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
        let proc = self.host.proc();
        self.keeper.attachments.look(&mut self.host.kernel, proc);
    }

    /// Puts the attached work into the status of the last tick.
    pub(crate) fn tell_attached(&mut self) {
        let attached = self.keeper.attachments.statuses(self.mode() == Mode::Enforce);
        if self.reporter.status().attached != attached {
            self.reporter.amend(|status| status.attached = attached);
        }
    }

    fn missing_cgroups(&self) -> Vec<AttachedCgroup> {
        let tree = self.control.tree();
        let open = tree.members().filter(|(node, _)| self.backends.is_present(node.id()));
        let open: Vec<(&str, &str)> =
            open.map(|(_, member)| (&*tree.nodes()[member.tenant].path, &*member.at)).collect();
        let is_missing = |it: &&AttachedCgroup| !open.contains(&(&*it.tenant, &*it.at));
        self.keeper.attachments.cgroups().iter().filter(is_missing).cloned().collect()
    }

    /// Moves processes that are not in their tenant's cgroup yet. Processes whose tenant comes from a template
    /// wait for it.
    fn rejoin(&mut self, findings: &mut Vec<Finding>) {
        let tree = self.control.tree().clone();
        let node_of = |tenant: &str| tree.named(tenant);
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
            let outcome = match process::candidate(kernel, proc, layout, pid) {
                Ok(None) => continue,
                Ok(Some(found)) => self.rejoin_one(node.id(), &process, &found),
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
        node: NodeId,
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
            if tenant.is_empty() {
                return true;
            }
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
        let has_members = |node: &TreeNode| tree.named(&node.path).is_some_and(Node::has_members);
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

    fn settle_own(&mut self, node: NodeId) -> Result<(), String> {
        let tree = self.control.tree();
        let Some(at) = tree.position(node) else { return Ok(()) };
        let (nodes, locations) = (tree.shared_nodes(), self.backends.locations(tree));
        let mut locations = self.with_attached(&nodes, locations);
        let (location, path) = (locations[at].clone(), &nodes[at].path);
        let attached = match &location {
            Location::Members(sources) => sources.attached.clone(),
            _ => Vec::new(),
        };
        locations[at] = location.with_attached(path, attached, true);
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

    /// Opens the cgroup that the agent makes for the processes of a tenant, and returns its node.
    pub(crate) fn own_cgroup(&mut self, node: NodeId) -> Result<NodeId, String> {
        let own = |tenants: &Tenants<K>| {
            let node = tenants.control.tree().find(node)?;
            tenants.backends.own(node).map(Node::id)
        };
        if own(self).is_none() {
            self.settle_own(node)?;
        }
        let Some(own) = own(self).and_then(|own| self.control.tree().find(own)) else {
            return Err(format!("{} has no cgroup of tenantd's", self.name_of(node)));
        };
        let opened = self.backends.open_own(&mut self.host, own);
        opened.map(|()| own.id()).map_err(|finding| finding.to_string())
    }

    pub(crate) fn join(
        &mut self,
        own: NodeId,
        candidate: &Candidate,
        user: Option<u32>,
    ) -> Result<(), String> {
        let claim = &candidate.claim;
        check(&mut self.host, candidate, user)?;
        let origin = self.with_origin(claim);
        self.backends.join(&mut self.host, own, &origin).map_err(|error| with_causes(&error))?;
        let Err(why) = check(&mut self.host, candidate, user) else {
            return self.leave_claimed(own, claim, &origin);
        };
        // The pid may have been reused: the process that was moved may be another one.
        for from in &claim.from {
            let _ = self.move_to(from, claim.pid);
        }
        Err(why)
    }

    /// Returns the claim of a process that a `match` has moved, or of a child of such a process, with its origin
    /// instead of the cgroup of the tenant that claims it: it returns there.
    fn with_origin(&self, claim: &Claim) -> Claim {
        let entries = self.host.journal.entries();
        let origins = removal::origins(entries);
        let mut outside = claim.clone();
        for (tree, from) in self.host.layout.trees.iter().zip(&mut outside.from) {
            for entry in entries.iter().rev() {
                let Entry::Moved { pid, start_ticks, from: left, to } = entry else { continue };
                if (*pid, *start_ticks) == (claim.pid, claim.start_ticks)
                    && let Some((_, left)) =
                        to.iter().zip(left).find(|(to, _)| from.starts_with(to))
                {
                    from.clone_from(left);
                }
            }
            let is_inside = from.starts_with(&tree.root) && *from != tree.root;
            let mut above = from.ancestors().filter(|_| is_inside);
            if let Some(left) = above.find_map(|up| origins.get(up)) {
                *from = left.to_path_buf();
            }
        }
        outside
    }

    /// Moves a process out of the cgroups of the tenant that claims it, in the trees where its new tenant has none: to
    /// its origin, or else beside the tenants.
    fn leave_claimed(&mut self, own: NodeId, claim: &Claim, origin: &Claim) -> Result<(), String> {
        let trees = self.host.layout.trees.iter().map(|tree| tree.root.clone());
        let trees: Vec<PathBuf> = trees.collect();
        for (tree, (now, origin)) in claim.from.iter().zip(&origin.from).enumerate() {
            let is_inside = now.starts_with(&trees[tree]) && *now != trees[tree];
            let known = Some(origin.as_path()).filter(|origin| now != origin);
            let beside = trees[tree].parent().filter(|_| is_inside);
            if let Some(to) = known.or(beside)
                && !self.backends.has_home(&self.host, own, tree)
            {
                self.move_to(to, claim.pid).map_err(|error| error.to_string())?;
            }
        }
        Ok(())
    }

    fn move_to(&mut self, path: &Path, pid: u32) -> Result<(), KernError> {
        let dir = self.host.kernel.open_dir(path)?;
        let moved = self.host.kernel.move_process(dir, pid);
        self.host.kernel.close_dir(dir);
        moved
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
        Ok(Some(false)) => Err(process::not_of(&mut host.kernel, proc, pid, user)),
        Ok(None) => Err(format!("process {pid} has ended")),
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
