//! Handing running work to a tenant, and taking it back.
//!
//! **Rules.** An attached cgroup becomes a member of the tenant, in place, until it ends or is detached.
//! Attached processes move into the cgroup that the agent makes for the tenant. Their origin is journaled like
//! that of claimed processes; they return there if they are still where the agent put them. The cgroups of
//! another tenant, and cgroups that contain one, are refused. A process leaves its service or session only if
//! the caller asks for it: systemd then treats it as ended.
//!
//! An administrator may attach anything. Any other user may attach own processes, and cgroups without processes
//! of others, to tenants whose `allow` names that user, and may detach what the same user attached. The agent
//! checks the real and the effective user of a process right before and after the move. It keeps the `/proc`
//! directory of the process open meanwhile, so the pid cannot be reused. A pidfd would do as well, but no safe
//! interface opens one.
//!
//! The state directory lists all attached work; [`super::attached`] keeps it across restarts.
//!
//! **Properties** (`tests/agent/attach.rs`): after any restart, kill, reload and change of mode, work is where
//! it was attached; in the end everything is back at its origin.

use tracing::info;

use super::start::Agent;
use crate::backend::location::Location;
use crate::backend::on_host::Ground;
use crate::recovery::attachments::{AttachedCgroup, AttachedProcess};
use crate::recovery::restore::{self, Extent};
use tenantd_control::tree::Node;
use tenantd_control::words::finding::Finding;
use tenantd_core::kernel_text::{bytes_of, path_of, text_of_path};
use tenantd_core::node::NodeId;
use tenantd_host::cgroup::Facet;
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process::{self, Candidate};
use tenantd_policy::model::Mode;
use tenantd_policy::pattern;
use tenantd_varlink::bridge::{Caller, Work};

/// Result of attaching or detaching work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The cgroup that became a member, or into which the processes were moved; after a detach the cgroup that
    /// is no member any more, if any.
    pub cgroup: String,
    /// Processes moved.
    pub pids: Vec<u32>,
    /// Values and processes that could not be restored.
    pub failures: Vec<String>,
}

/// Reason for a refused attach or detach.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachError {
    /// The policy has no such tenant.
    #[error("the policy has no tenant `{0}`")]
    NoSuchTenant(String),
    /// The caller may not do this.
    #[error("{0}")]
    NotPermitted(String),
    /// The work cannot be attached or detached.
    #[error("{0}")]
    Refused(String),
}

pub(super) fn refused<T>(why: impl Into<String>) -> Result<T, AttachError> {
    Err(AttachError::Refused(why.into()))
}

impl From<KernError> for AttachError {
    fn from(error: KernError) -> AttachError {
        AttachError::Refused(error.to_string())
    }
}

impl<K: KernFs> Agent<K> {
    /// Attaches `work` to `tenant`. Processes leave their units only if `leaves_unit`. On an error nothing is
    /// attached.
    pub fn attach_work(
        &mut self,
        tenant: &str,
        work: &Work,
        leaves_unit: bool,
        caller: Caller,
    ) -> Result<Moved, AttachError> {
        let node = self.tenant_for(tenant, caller)?;
        match work {
            Work::Cgroup(path) => self.attach_cgroup(node, path, caller),
            Work::Processes(pids) => self.attach_processes(node, pids, leaves_unit, caller),
        }
    }

    fn tenant_for(&mut self, tenant: &str, caller: Caller) -> Result<NodeId, AttachError> {
        let node = self.control.tree().named(tenant).map(|node| (node.id(), node.at()));
        let Some((node, at)) = node else {
            return Err(AttachError::NoSuchTenant(tenant.to_string()));
        };
        let proc = self.host.proc();
        let kernel = &mut self.host.kernel;
        if caller.pid > 0 && process::start_ticks(kernel, proc, caller.pid)?.is_none() {
            return refused("the process that asked has ended");
        }
        if !self.nodes()[at].is_leaf {
            return refused(format!("{tenant} is a group: name one of the tenants in it"));
        }
        if self.mode() != Mode::Enforce {
            return refused(
                "tenantd only observes: `tenantctl mode enforce` lets it enforce, and attach",
            );
        }
        match &self.backends.locations(self.control.tree())[at] {
            Location::Unknown(why) => refused(format!("{tenant} has no cgroup: {why}")),
            _ => Ok(node),
        }
    }

    fn attach_cgroup(
        &mut self,
        node: NodeId,
        path: &str,
        caller: Caller,
    ) -> Result<Moved, AttachError> {
        let tenant = self.name_of(node);
        let path = self.path_from_mount(path)?;
        let dir = self.cpu_dir(&path);
        let inode = match self.inode(&dir) {
            Err(error) if error.is_gone() => return refused(format!("there is no cgroup {path}")),
            inode => inode?,
        };
        let known = self.keeper.attachments.cgroups().iter().find(|it| it.path == path);
        if known.is_some_and(|it| it.tenant == tenant && it.inode == inode) {
            return Ok(Moved { cgroup: path, ..Moved::default() });
        }
        if let Some(owner) = self.owner_of(&path, true, node) {
            return refused(match owner == tenant {
                true => format!("{path} is {tenant}'s already, or contains what is"),
                false => format!(
                    "{path} is {owner}'s, or contains what is: detach that, or change the policy"
                ),
            });
        }
        if let Some(user) = caller.user {
            self.keeper
                .attachments
                .check_room(&tenant, user, (1, 0))
                .map_err(AttachError::Refused)?;
            self.check_processes(&path, user)?;
        }
        let tree = self.control.tree();
        let locations = self.backends.locations(tree);
        let ground = Ground::of(&self.host.kernel, tree.nodes(), locations.iter());
        let at = match ground.settle(&self.host.layout, &path, false) {
            Ok(Location::Unit(unit)) => unit,
            Ok(_) => path.clone(),
            Err(why) => return refused(why),
        };
        let by = caller.user;
        let cgroup = AttachedCgroup { tenant: tenant.clone(), path: path.clone(), at, inode, by };
        self.keeper.attachments.add_cgroup(cgroup);
        self.settle_attached(&mut Vec::new());
        info!(tenant, action = "attach", "{path} is a member from now on");
        Ok(Moved { cgroup: path, ..Moved::default() })
    }

    fn attach_processes(
        &mut self,
        node: NodeId,
        pids: &[u32],
        leaves_unit: bool,
        caller: Caller,
    ) -> Result<Moved, AttachError> {
        if let Some(user) = caller.user {
            let tenant = self.name_of(node);
            let room = self.keeper.attachments.check_room(&tenant, user, (0, pids.len()));
            room.map_err(AttachError::Refused)?;
        }
        let mut candidates = Vec::new();
        let found = pids.iter().try_for_each(|pid| {
            candidates.extend(self.candidate(node, *pid, leaves_unit, caller)?);
            Ok(())
        });
        let moved = found.and_then(|()| self.move_all(node, &candidates, caller));
        candidates.iter().for_each(|candidate| self.host.kernel.close_dir(candidate.held));
        moved
    }

    fn move_all(
        &mut self,
        node: NodeId,
        candidates: &[Candidate],
        caller: Caller,
    ) -> Result<Moved, AttachError> {
        let tenant = self.name_of(node);
        let own = self.own_cgroup(node)?;
        let mut moved = Moved { cgroup: self.shown(own), ..Moved::default() };
        let mut attached = Vec::new();
        for candidate in candidates {
            let claim = &candidate.claim;
            if let Err(why) = self.join(own, candidate, caller.user) {
                moved.failures.push(format!("process {} is not attached: {why}", claim.pid));
                continue;
            }
            attached.push(AttachedProcess {
                tenant: tenant.clone(),
                pid: claim.pid,
                start_ticks: claim.start_ticks,
                by: caller.user,
                is_inside: true,
            });
            moved.pids.push(claim.pid);
        }
        let proc = self.host.proc();
        self.keeper.attachments.add_processes(&mut self.host.kernel, proc, attached);
        match (moved.pids.is_empty(), moved.failures.first()) {
            (true, Some(why)) => refused(why.clone()),
            _ => {
                info!(
                    tenant,
                    action = "attach",
                    "processes moved into its cgroup: {:?}",
                    moved.pids
                );
                Ok(moved)
            }
        }
    }

    fn candidate(
        &mut self,
        node: NodeId,
        pid: u32,
        leaves_unit: bool,
        caller: Caller,
    ) -> Result<Option<Candidate>, AttachError> {
        let proc = self.host.proc();
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        if pid <= 1 || process::own_pid(kernel, proc).is_ok_and(|own| own == pid) {
            return refused(format!("process {pid} cannot be moved"));
        }
        let Some(found) = process::candidate(kernel, proc, layout, pid)? else {
            return refused(format!("process {pid} has ended, or is one of the kernel's"));
        };
        let vetted = self.vet(node, &found, leaves_unit, caller);
        if !matches!(vetted, Ok(true)) {
            self.host.kernel.close_dir(found.held);
        }
        Ok(vetted?.then_some(found))
    }

    /// True if the process must move; false if it already belongs to the tenant.
    fn vet(
        &mut self,
        node: NodeId,
        found: &Candidate,
        leaves_unit: bool,
        caller: Caller,
    ) -> Result<bool, AttachError> {
        let (tenant, pid) = (self.name_of(node), found.claim.pid);
        if let Some(user) = caller.user {
            self.check_owner(pid, user).map_err(AttachError::NotPermitted)?;
        }
        let layout = &self.host.layout;
        let tree = layout.tree(Facet::Cpu).unwrap_or(0);
        let from = layout.trees[tree].path_to(&found.claim.from[tree]);
        match self.owner_of(&from, false, node) {
            Some(owner) if owner == tenant => return Ok(false),
            Some(owner) => {
                return refused(format!("process {pid} is {owner}'s, in {from}: detach it first"));
            }
            None => {}
        }
        match &found.unit {
            Some(unit) if !leaves_unit => refused(format!(
                "process {pid} is in {unit}, which systemd would take it to have left: attach its cgroup \
                 (--cgroup {from}), name the unit in the policy, or say --leave-unit"
            )),
            _ => Ok(true),
        }
    }

    fn check_owner(&mut self, pid: u32, user: u32) -> Result<(), String> {
        let proc = self.host.proc();
        match process::is_of(&mut self.host.kernel, proc, pid, user) {
            Ok(Some(true)) => Ok(()),
            Ok(_) => Err(format!("process {pid} is not yours")),
            Err(error) => Err(format!("the owner of process {pid} is not known: {error}")),
        }
    }

    pub(super) fn join(
        &mut self,
        own: NodeId,
        candidate: &Candidate,
        user: Option<u32>,
    ) -> Result<(), String> {
        let claim = &candidate.claim;
        self.check(candidate, user)?;
        self.backends.join(&mut self.host, own, claim).map_err(|error| with_causes(&error))?;
        let Err(why) = self.check(candidate, user) else { return Ok(()) };
        // The pid may have been reused: the process that was moved may be another one.
        for from in &claim.from {
            if let Ok(dir) = self.host.kernel.open_dir(from) {
                let _ = self.host.kernel.move_process(dir, claim.pid);
                self.host.kernel.close_dir(dir);
            }
        }
        Err(why)
    }

    /// Fails if the process has ended or is not the user's. A pid is not reused while its process lives, so
    /// earlier reads by pid were of this process.
    fn check(&mut self, candidate: &Candidate, user: Option<u32>) -> Result<(), String> {
        let owned = user.map_or(Ok(()), |user| self.check_owner(candidate.claim.pid, user));
        match process::is_alive(&mut self.host.kernel, candidate.held) {
            Ok(true) => owned,
            Ok(false) => Err("it has ended".to_string()),
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn own_cgroup(&mut self, node: NodeId) -> Result<NodeId, AttachError> {
        let tenant = self.name_of(node);
        let own = |agent: &Agent<K>| {
            let node = agent.control.tree().find(node)?;
            agent.backends.own(node).map(Node::id)
        };
        if own(self).is_none() {
            self.settle_own(node).map_err(AttachError::Refused)?;
        }
        let Some(own) = own(self).and_then(|own| self.control.tree().find(own)) else {
            return refused(format!("{tenant} has no cgroup of tenantd's"));
        };
        match self.backends.open_own(&mut self.host, own) {
            Ok(()) => Ok(own.id()),
            Err(finding) => refused(finding.to_string()),
        }
    }

    /// Takes `work` back from its tenant. Fails if the caller may not detach it.
    pub fn detach_work(&mut self, work: &Work, caller: Caller) -> Result<Moved, AttachError> {
        match work {
            Work::Cgroup(path) => self.detach_cgroup(path, caller),
            Work::Processes(pids) => self.detach_processes(pids, caller),
        }
    }

    fn detach_cgroup(&mut self, path: &str, caller: Caller) -> Result<Moved, AttachError> {
        let path = self.path_from_mount(path)?;
        let known = self.keeper.attachments.cgroups().iter().find(|it| it.path == path);
        let Some(known) = known else { return refused(format!("{path} is not attached")) };
        if caller.user.is_some() && known.by != caller.user {
            return Err(AttachError::NotPermitted(format!("{path} was attached by another user")));
        }
        let tenant = known.tenant.clone();
        self.keeper.attachments.retain(|it| it.path != path, |_| true);
        let mut findings = Vec::new();
        self.settle_attached(&mut findings);
        info!(tenant, action = "detach", "{path} is no member any more");
        let failures = findings.iter().map(Finding::to_string).collect();
        Ok(Moved { cgroup: path, failures, ..Moved::default() })
    }

    fn detach_processes(&mut self, pids: &[u32], caller: Caller) -> Result<Moved, AttachError> {
        let proc = self.host.proc();
        let mut found: Vec<AttachedProcess> = Vec::new();
        for pid in pids {
            let start_ticks = process::start_ticks(&mut self.host.kernel, proc, *pid)?;
            let of = |it: &&AttachedProcess| it.pid == *pid && Some(it.start_ticks) == start_ticks;
            let Some(known) = self.keeper.attachments.processes().iter().find(of) else {
                return refused(format!("process {pid} is not attached"));
            };
            if caller.user.is_some() && known.by != caller.user {
                let why = format!("process {pid} was attached by another user");
                return Err(AttachError::NotPermitted(why));
            }
            found.push(known.clone());
        }
        let is_found = |pid: u32, start_ticks: u64| {
            found.iter().any(|it| (it.pid, it.start_ticks) == (pid, start_ticks))
        };
        let concerns = |entry: &Entry| {
            matches!(entry, Entry::Moved { pid, start_ticks, .. }
            if is_found(*pid, *start_ticks))
        };
        let entries = self.host.journal.entries().iter();
        let entries: Vec<Entry> = entries.filter(|entry| concerns(entry)).cloned().collect();
        let mut restored = restore::put_back(&mut self.host.kernel, proc, &entries, Extent::Part);
        let keeps = |entry: &Entry| !concerns(entry) || restored.owes(entry);
        if let Err(error) = self.host.journal.retain(keeps) {
            restored.failures.push(with_causes(&error));
        }
        self.keeper.attachments.retain(|_| true, |it| !is_found(it.pid, it.start_ticks));
        info!(action = "detach", "processes moved back: {pids:?}");
        Ok(Moved { pids: pids.to_vec(), failures: restored.failures, ..Moved::default() })
    }

    /// Returns the path below the mount; accepts paths below the mount and paths of the file system.
    fn path_from_mount(&self, path: &str) -> Result<String, AttachError> {
        let trees = self.host.layout.trees.iter();
        let given = path_of(path);
        let below = trees.filter_map(|tree| given.strip_prefix(&tree.mount).ok());
        let text = below
            .min_by_key(|below| below.as_os_str().len())
            .map_or_else(|| text_of_path(&given), |below| format!("/{}", text_of_path(below)));
        let names = pattern::names_of(&text);
        let is_plain = |name: &&str| {
            !matches!(*name, "." | "..") && !bytes_of(name).iter().any(u8::is_ascii_control)
        };
        match text.starts_with('/') && !names.is_empty() && names.iter().all(is_plain) {
            true => Ok(format!("/{}", names.join("/"))),
            false => refused(format!(
                "`{}` is not the path of a cgroup: it begins at the mount point, as /user.slice does",
                path.escape_default()
            )),
        }
    }

    /// Returns the tenant whose cgroup contains `path`; with `both_ways` also a tenant with a cgroup below
    /// `path`. The cgroup of the rest belongs to no tenant here: any tenant may get parts of it.
    fn owner_of(&self, path: &str, both_ways: bool, to: NodeId) -> Option<String> {
        let (tree, dir) = (self.control.tree(), self.cpu_dir(path));
        let is_left =
            |node: Node<'_>| node.tenant().map(Node::id) != Some(to) && self.backends.is_rest(node);
        let is_owner = |node: &Node<'_>| {
            let home = self.backends.dir_of(&self.host, *node, Facet::Cpu);
            home.is_some_and(|home| dir.starts_with(&home) || both_ways && home.starts_with(&dir))
        };
        let mut owners = tree.tenants_and_members().filter(|it| it.has_work() && is_owner(it));
        let owner = owners.find(|node| !is_left(*node));
        let rules = self.backends.claim_rules().iter().filter(|_| both_ways);
        let mut claimed =
            rules.filter(|rule| rule.cgroups.iter().any(|it| pattern::claims(it, path)));
        let owner = owner.and_then(Node::tenant);
        owner
            .or_else(|| claimed.next().map(|rule| tree.at(rule.node)))
            .map(|it| it.name().to_string())
    }

    fn name_of(&self, node: NodeId) -> String {
        self.control.tree().find(node).map_or_else(String::new, |node| node.name().to_string())
    }

    fn shown(&self, own: NodeId) -> String {
        let (tree, layout) = (self.control.tree(), &self.host.layout);
        let own = tree.find(own);
        let dir = own.and_then(|own| self.backends.dir_of(&self.host, own, Facet::Cpu));
        let dir = dir.unwrap_or_default();
        layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)].path_to(&dir)
    }
}
