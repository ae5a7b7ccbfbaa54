//! Handing running work to a tenant, and taking it back.
//!
//! **Rules.** An attached cgroup becomes a member of the tenant, in place, until it ends or is detached.
//! Attached processes move into the cgroup that the agent makes for the tenant. Their origin is journaled like
//! that of claimed processes; they return there if they are still where the agent put them. The cgroups of
//! another tenant, and cgroups that contain one, are refused. A process leaves its service or session only if
//! the caller asks for it: systemd then treats it as ended.
//!
//! An attach outranks a `match`: a process of another tenant is moved, and its origin stays the one from before the
//! `match` moved it. Work that was attached before, and processes of jobs, are refused.
//!
//! A cgroup may come with facts about its pod instead of a tenant. The policy chooses the tenant then, and chooses anew with
//! every other policy. Facts are taken from administrators only: a user would choose a tenant by them.
//!
//! An administrator may attach anything. Any other user may attach own processes, and cgroups without processes
//! of others, to tenants whose `allow` names that user, and may detach what the same user attached. The agent
//! checks the real and the effective user of a process right before and after the move. It keeps the `/proc`
//! directory of the process open meanwhile, so the pid cannot be reused. A pidfd would do as well, but no safe
//! interface opens one.
//!
//! The state directory lists all attached work; [`crate::tenants::attached`] keeps it across restarts.
//!
//! **Properties** (`tests/agent/attach.rs`): after any restart, kill, reload and change of mode, work is where
//! it was attached; in the end everything is back at its origin.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tracing::info;

use super::state::Agent;
use crate::backend::access::HostAccess;
use crate::backend::location::Location;
use crate::backend::on_host::Ground;
use crate::jobs::room::JobRoom;
use crate::recovery::attachments::{AttachedCgroup, AttachedProcess};
use crate::recovery::processes::{listed_up_to, nested_up_to};
use crate::recovery::restore::{self, Extent};
use crate::tenants::attached::{check_owner, cpu_dir, inode};
use crate::tenants::state::Tenants;
use tenantd_control::tree::Node;
use tenantd_control::words::finding::Finding;
use tenantd_core::kernel_text::{bytes_of, cleaned, path_of, text_of_path};
use tenantd_core::node::NodeId;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::enforce::with_causes;
use tenantd_host::journal::Entry;
use tenantd_host::kernfs::{KernError, KernFs};
use tenantd_host::process::{self, Candidate};
use tenantd_policy::expand::tenant_of_pod;
use tenantd_policy::model::Mode;
use tenantd_policy::pattern;
use tenantd_policy::pods::Pod;
use tenantd_varlink::bridge::{Caller, Work};

/// Bounds on cgroups below, and processes in, a cgroup that a user attaches. Beyond them nothing is read.
const NESTED_MAX: usize = 1000;
const CHECKED_MAX: usize = 4096;

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

fn refused<T>(why: impl Into<String>) -> Result<T, AttachError> {
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
        let tenants = &mut self.tenants;
        let node = tenant_for(tenants, tenant, caller)?;
        let to = Target { node, leaves_unit, caller, jobs: &self.jobs };
        let moved = match work {
            Work::Cgroup(path) => {
                let to = To { node: Some(node), tenant, caller, pod: None };
                attach_cgroup(tenants, to, path)
            }
            Work::Processes(pids) => attach_processes(tenants, &to, pids),
        };
        tenants.tell_attached();
        moved
    }

    /// Attaches the cgroup of a pod to the tenant that the policy has for it; a template makes that tenant at once. On an
    /// error the cgroup is not attached.
    pub fn attach_pod(
        &mut self,
        pod: Pod,
        path: &str,
        caller: Caller,
    ) -> Result<Moved, AttachError> {
        let Some(tenant) = tenant_of_pod(&self.tenants.base.written, &pod) else {
            return refused(format!(
                "no `match: {{ pod: … }}` of the policy fits this pod of the namespace `{}`: add one if it should have a tenant",
                cleaned(&pod.namespace)
            ));
        };
        let node = if self.tenants.id_of(&tenant).is_some() {
            Some(tenant_for(&mut self.tenants, &tenant, caller)?)
        } else {
            check_caller(&mut self.tenants, caller)?;
            check_mode(&self.tenants)?;
            None
        };
        let by_policy = To { node, tenant: &tenant, caller, pod: Some(pod) };
        let moved = attach_cgroup(&mut self.tenants, by_policy, path)?;
        if node.is_none() {
            self.take_found();
        }
        self.tenants.settle_attached(&mut Vec::new());
        self.tenants.tell_attached();
        if self.tenants.id_of(&tenant).is_some() {
            return Ok(moved);
        }
        self.tenants.keeper.attachments.retain(|it| it.path != moved.cgroup, |_| true);
        let why = self.tenants.base.failure.as_ref().map(Finding::to_string);
        refused(why.unwrap_or_else(|| format!("there are too many tenants for {tenant}")))
    }

    /// Takes `work` back from its tenant. Fails if the caller may not detach it.
    pub fn detach_work(&mut self, work: &Work, caller: Caller) -> Result<Moved, AttachError> {
        let tenants = &mut self.tenants;
        let moved = match work {
            Work::Cgroup(path) => detach_cgroup(tenants, path, caller),
            Work::Processes(pids) => detach_processes(tenants, pids, caller),
        };
        tenants.tell_attached();
        moved
    }
}

/// Tenant that processes are attached to, with the terms of the caller.
#[derive(Clone, Copy, Debug)]
struct Target<'a> {
    node: NodeId,
    leaves_unit: bool,
    caller: Caller,
    jobs: &'a JobRoom,
}

fn tenant_for<K: KernFs>(
    tenants: &mut Tenants<K>,
    tenant: &str,
    caller: Caller,
) -> Result<NodeId, AttachError> {
    let node = tenants.control.tree().named(tenant).map(|node| (node.id(), node.at()));
    let Some((node, at)) = node else { return Err(AttachError::NoSuchTenant(tenant.to_string())) };
    check_caller(tenants, caller)?;
    if !tenants.nodes()[at].is_leaf {
        return refused(format!("{tenant} is a group: name one of the tenants in it"));
    }
    check_mode(tenants)?;
    match &tenants.backends.locations(tenants.control.tree())[at] {
        Location::Unknown(why) => refused(format!("{tenant} has no cgroup: {why}")),
        _ => Ok(node),
    }
}

fn check_caller<K: KernFs>(tenants: &mut Tenants<K>, caller: Caller) -> Result<(), AttachError> {
    let proc = tenants.host.proc();
    let kernel = &mut tenants.host.kernel;
    if caller.pid > 0 && process::start_ticks(kernel, proc, caller.pid)?.is_none() {
        return refused("the process that asked has ended");
    }
    Ok(())
}

fn check_mode<K>(tenants: &Tenants<K>) -> Result<(), AttachError> {
    if tenants.mode() == Mode::Enforce {
        return Ok(());
    }
    refused("tenantd only observes: `tenantctl mode enforce` lets it enforce, and attach")
}

/// Tenant that a cgroup is attached to.
#[derive(Debug)]
struct To<'a> {
    /// Absent until a template makes the tenant.
    node: Option<NodeId>,
    tenant: &'a str,
    caller: Caller,
    /// Set if the policy chose the tenant.
    pod: Option<Pod>,
}

fn attach_cgroup<K: KernFs>(
    tenants: &mut Tenants<K>,
    to: To<'_>,
    path: &str,
) -> Result<Moved, AttachError> {
    let To { node, caller, pod, .. } = to;
    let tenant = to.tenant.to_string();
    let path = path_from_mount(&tenants.host.layout, path)?;
    let dir = cpu_dir(&tenants.host.layout, &path);
    let inode = match inode(&mut tenants.host.kernel, &dir) {
        Err(error) if error.is_gone() => return refused(format!("there is no cgroup {path}")),
        inode => inode?,
    };
    let known = tenants.keeper.attachments.cgroups().iter().find(|it| it.path == path);
    let is_listed = known.is_some();
    let known = known.filter(|it| it.inode == inode);
    let is_same = |it: &Option<Pod>| pod.is_none() || it.is_none() || *it == pod;
    if known.is_some_and(|it| it.tenant == tenant && is_same(&it.pod)) {
        return Ok(Moved { cgroup: path, ..Moved::default() });
    }
    // Other facts about a pod may choose another tenant. What was attached by hand stays.
    let chosen = known.filter(|it| pod.is_some() && it.pod.is_some()).map(|it| it.tenant.clone());
    let owner = owner_of(tenants, &path, true, node);
    if let Some(owner) = owner.filter(|owner| chosen.as_ref() != Some(owner)) {
        return refused(if owner == tenant {
            format!("{path} is {tenant}'s already, or contains what is")
        } else {
            format!("{path} is {owner}'s, or contains what is: detach that, or change the policy")
        });
    }
    if let Some(user) = caller.user {
        tenants
            .keeper
            .attachments
            .check_room(&tenant, user, (1, 0))
            .map_err(AttachError::Refused)?;
        check_processes(&mut tenants.host, &path, user)?;
    }
    let tree = tenants.control.tree();
    let locations = tenants.backends.locations(tree);
    let ground = Ground::of(&tenants.host.kernel, tree.nodes(), locations.iter());
    let at = match ground.settle(&tenants.host.layout, &path, false) {
        Ok(Location::Unit(unit)) => unit,
        Ok(_) => path.clone(),
        Err(why) => return refused(why),
    };
    let by = caller.user;
    if is_listed {
        tenants.keeper.attachments.retain(|it| it.path != path, |_| true);
    }
    let cgroup = AttachedCgroup { tenant: tenant.clone(), path: path.clone(), at, inode, by, pod };
    tenants.keeper.attachments.add_cgroup(cgroup);
    tenants.settle_attached(&mut Vec::new());
    info!(tenant, action = "attach", "{path} is a member from now on");
    Ok(Moved { cgroup: path, ..Moved::default() })
}

fn attach_processes<K: KernFs>(
    tenants: &mut Tenants<K>,
    to: &Target<'_>,
    pids: &[u32],
) -> Result<Moved, AttachError> {
    if let Some(user) = to.caller.user {
        let tenant = tenants.name_of(to.node);
        let room = tenants.keeper.attachments.check_room(&tenant, user, (0, pids.len()));
        room.map_err(AttachError::Refused)?;
    }
    let mut candidates = Vec::new();
    let found = pids.iter().try_for_each(|pid| {
        candidates.extend(candidate(tenants, to, *pid)?);
        Ok(())
    });
    let moved = found.and_then(|()| move_all(tenants, to.node, &candidates, to.caller));
    candidates.iter().for_each(|candidate| tenants.host.kernel.close_dir(candidate.held));
    moved
}

fn move_all<K: KernFs>(
    tenants: &mut Tenants<K>,
    node: NodeId,
    candidates: &[Candidate],
    caller: Caller,
) -> Result<Moved, AttachError> {
    let tenant = tenants.name_of(node);
    let own = tenants.own_cgroup(node).map_err(AttachError::Refused)?;
    let mut moved = Moved { cgroup: shown(tenants, own), ..Moved::default() };
    let mut attached = Vec::new();
    for candidate in candidates {
        let claim = &candidate.claim;
        if let Err(why) = tenants.join(own, candidate, caller.user) {
            moved.failures.push(format!("process {} is not attached: {why}", claim.pid));
            continue;
        }
        attached.push(AttachedProcess {
            tenant: tenant.clone(),
            pid: claim.pid,
            start_ticks: claim.start_ticks,
            by: caller.user,
            is_inside: true,
            has_ended: false,
        });
        moved.pids.push(claim.pid);
    }
    let proc = tenants.host.proc();
    tenants.keeper.attachments.add_processes(&mut tenants.host.kernel, proc, attached);
    match (moved.pids.is_empty(), moved.failures.first()) {
        (true, Some(why)) => refused(why.clone()),
        _ => {
            info!(tenant, action = "attach", "processes moved into its cgroup: {:?}", moved.pids);
            Ok(moved)
        }
    }
}

fn candidate<K: KernFs>(
    tenants: &mut Tenants<K>,
    to: &Target<'_>,
    pid: u32,
) -> Result<Option<Candidate>, AttachError> {
    let proc = tenants.host.proc();
    let (kernel, layout) = (&mut tenants.host.kernel, &tenants.host.layout);
    if pid <= 1 || process::own_pid(kernel, proc).is_ok_and(|own| own == pid) {
        return refused(format!("process {pid} cannot be moved"));
    }
    let Some(found) = process::candidate(kernel, proc, layout, pid)? else {
        return refused(format!("process {pid} has ended, or is one of the kernel's"));
    };
    let vetted = vet(tenants, to, &found);
    if !matches!(vetted, Ok(true)) {
        tenants.host.kernel.close_dir(found.held);
    }
    Ok(vetted?.then_some(found))
}

/// True if the process must move; false if it already belongs to the tenant.
fn vet<K: KernFs>(
    tenants: &mut Tenants<K>,
    to: &Target<'_>,
    found: &Candidate,
) -> Result<bool, AttachError> {
    let (tenant, pid) = (tenants.name_of(to.node), found.claim.pid);
    if let Some(user) = to.caller.user {
        check_owner(&mut tenants.host, pid, user).map_err(AttachError::NotPermitted)?;
    }
    let layout = &tenants.host.layout;
    let tree = layout.tree(Facet::Cpu).unwrap_or(0);
    let from = layout.trees[tree].path_to(&found.claim.from[tree]);
    let owner = owner_of(tenants, &from, false, Some(to.node));
    if owner.as_ref().is_some_and(|owner| *owner == tenant) {
        return Ok(false);
    }
    let held = owner.and_then(|owner| held_by(tenants, to.jobs, found, &from, &owner));
    let in_unit = found.unit.as_ref().filter(|_| !to.leaves_unit).map(|unit| {
        format!(
            "is in {unit}, which systemd would take it to have left: attach its cgroup (--cgroup {from}), name the \
             unit in the policy, or say --leave-unit"
        )
    });
    let Some(why) = held.or(in_unit) else { return Ok(true) };
    let proc = tenants.host.proc();
    refused(format!("{} {why}", process::named(&mut tenants.host.kernel, proc, pid)))
}

/// Reason why a process may not be taken from the tenant `owner` whose cgroup at `from` contains it: a `match` does
/// not hold it, but earlier attached work and jobs do.
fn held_by<K: KernFs>(
    tenants: &Tenants<K>,
    jobs: &JobRoom,
    found: &Candidate,
    from: &str,
    owner: &str,
) -> Option<String> {
    let (pid, attachments) = (found.claim.pid, &tenants.keeper.attachments);
    if let Some(known) = attachments.process(pid, found.claim.start_ticks) {
        let tenant = &known.tenant;
        return Some(format!(
            "is attached to {tenant}, in {from}: detach it first (tenantctl detach {pid})"
        ));
    }
    let is_around = |path: &str| Path::new(from).starts_with(path);
    if let Some(cgroup) = attachments.cgroups().iter().find(|it| is_around(&it.path)) {
        let path = &cgroup.path;
        return Some(format!(
            "is in {from}, which is attached to {owner} with {path}: detach that first (tenantctl detach --cgroup \
             {path})"
        ));
    }
    let mut homes = jobs.homes().filter(|(_, home)| home.cgroup.is_there());
    let (job, _) = homes.find(|(_, home)| is_around(&home.path))?;
    Some(format!(
        "is part of job {job} of {owner}, in {from}: cancel the job (tenantctl cancel {job})"
    ))
}

fn detach_cgroup<K: KernFs>(
    tenants: &mut Tenants<K>,
    path: &str,
    caller: Caller,
) -> Result<Moved, AttachError> {
    let path = path_from_mount(&tenants.host.layout, path)?;
    let known = tenants.keeper.attachments.cgroups().iter().find(|it| it.path == path);
    let Some(known) = known else { return refused(format!("{path} is not attached")) };
    if caller.user.is_some() && known.by != caller.user {
        return Err(AttachError::NotPermitted(format!(
            "{path} was attached by another user: ask that user or an administrator to detach it"
        )));
    }
    let tenant = known.tenant.clone();
    tenants.keeper.attachments.retain(|it| it.path != path, |_| true);
    let mut findings = Vec::new();
    tenants.settle_attached(&mut findings);
    info!(tenant, action = "detach", "{path} is no member any more");
    let failures = findings.iter().map(Finding::to_string).collect();
    Ok(Moved { cgroup: path, failures, ..Moved::default() })
}

fn detach_processes<K: KernFs>(
    tenants: &mut Tenants<K>,
    pids: &[u32],
    caller: Caller,
) -> Result<Moved, AttachError> {
    let proc = tenants.host.proc();
    let mut found: Vec<AttachedProcess> = Vec::new();
    for pid in pids {
        let start_ticks = process::start_ticks(&mut tenants.host.kernel, proc, *pid)?;
        let of = |it: &&AttachedProcess| it.pid == *pid && Some(it.start_ticks) == start_ticks;
        let Some(known) = tenants.keeper.attachments.processes().iter().find(of) else {
            return refused(format!("process {pid} is not attached"));
        };
        if caller.user.is_some() && known.by != caller.user {
            let named = process::named(&mut tenants.host.kernel, proc, *pid);
            let why = format!(
                "{named} was attached by another user: ask that user or an administrator to detach it"
            );
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
    let entries = tenants.host.journal.entries().iter();
    let entries: Vec<Entry> = entries.filter(|entry| concerns(entry)).cloned().collect();
    if caller.user.is_some() {
        check_walk(&mut tenants.host.kernel, &entries)?;
    }
    let mut restored = restore::put_back(&mut tenants.host.kernel, proc, &entries, Extent::Part);
    let keeps = |entry: &Entry| !concerns(entry) || restored.owes(entry);
    if let Err(error) = tenants.host.journal.retain(keeps) {
        restored.failures.push(with_causes(&error));
    }
    tenants.keeper.attachments.retain(|_| true, |it| !is_found(it.pid, it.start_ticks));
    // A `match` may claim them.
    tenants.backends.look_for(pids);
    info!(action = "detach", "processes moved back: {pids:?}");
    Ok(Moved { pids: pids.to_vec(), failures: restored.failures, ..Moved::default() })
}

/// Fails if the way back of a user's processes needs a walk through more cgroups than a user may cause.
fn check_walk(kernel: &mut impl KernFs, entries: &[Entry]) -> Result<(), AttachError> {
    let homes = entries.iter().filter_map(|entry| match entry {
        Entry::Moved { to, .. } => Some(to),
        _ => None,
    });
    let homes: BTreeSet<&PathBuf> = homes.flatten().collect();
    for home in homes {
        if nested_up_to(kernel, home, NESTED_MAX)?.is_none() {
            return refused(format!(
                "{} has more than {NESTED_MAX} cgroups below: only an administrator detaches from it",
                text_of_path(home)
            ));
        }
    }
    Ok(())
}

/// Returns the path below the mount; accepts paths below the mount and paths of the file system.
fn path_from_mount(layout: &Layout, path: &str) -> Result<String, AttachError> {
    let trees = layout.trees.iter();
    let given = path_of(path);
    let below = trees.filter_map(|tree| given.strip_prefix(&tree.mount).ok());
    let text = below
        .min_by_key(|below| below.as_os_str().len())
        .map_or_else(|| text_of_path(&given), |below| format!("/{}", text_of_path(below)));
    let names = pattern::names_of(&text);
    let is_plain = |name: &&str| {
        !matches!(*name, "." | "..") && !bytes_of(name).iter().any(u8::is_ascii_control)
    };
    if text.starts_with('/') && !names.is_empty() && names.iter().all(is_plain) {
        return Ok(format!("/{}", names.join("/")));
    }
    refused(format!(
        "`{}` is not the path of a cgroup: it begins at the mount point, as /user.slice does",
        path.escape_default()
    ))
}

/// Returns the tenant whose cgroup contains `path`; with `both_ways` also a tenant with a cgroup below
/// `path`. The cgroup of the rest belongs to no tenant here: any tenant may get parts of it.
fn owner_of<K: KernFs>(
    tenants: &Tenants<K>,
    path: &str,
    both_ways: bool,
    to: Option<NodeId>,
) -> Option<String> {
    let (tree, dir) = (tenants.control.tree(), cpu_dir(&tenants.host.layout, path));
    let is_left =
        |node: Node<'_>| node.tenant().map(Node::id) != to && tenants.backends.is_rest(node);
    let is_owner = |node: &Node<'_>| {
        let home = tenants.backends.dir_of(&tenants.host, *node, Facet::Cpu);
        home.is_some_and(|home| dir.starts_with(&home) || both_ways && home.starts_with(&dir))
    };
    let mut owners = tree.tenants_and_members().filter(|it| it.has_work() && is_owner(it));
    let owner = owners.find(|node| !is_left(*node));
    let rules = tenants.backends.claim_rules().iter().filter(|_| both_ways);
    let mut claimed = rules.filter(|rule| rule.cgroups.iter().any(|it| pattern::claims(it, path)));
    let owner = owner.and_then(Node::tenant);
    owner.or_else(|| claimed.next().map(|rule| tree.at(rule.node))).map(|it| it.name().to_string())
}

fn shown<K: KernFs>(tenants: &Tenants<K>, own: NodeId) -> String {
    let (own, layout) = (tenants.control.tree().find(own), &tenants.host.layout);
    let dir = own.and_then(|own| tenants.backends.dir_of(&tenants.host, own, Facet::Cpu));
    let dir = dir.unwrap_or_default();
    layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)].path_to(&dir)
}

/// Fails unless all processes in the cgroup at `path` from the mounts are of this user, and the tree that divides the
/// CPUs has one. Each legacy tree may have other processes there.
fn check_processes<K: KernFs>(
    host: &mut HostAccess<K>,
    path: &str,
    user: u32,
) -> Result<(), AttachError> {
    let cpu = cpu_dir(&host.layout, path);
    let mut dirs: Vec<PathBuf> = host.layout.trees.iter().map(|tree| tree.dir_of(path)).collect();
    dirs.sort();
    dirs.dedup();
    let mut left = CHECKED_MAX;
    for dir in &dirs {
        let before = left;
        check_processes_in(host, dir, user, &mut left)?;
        if *dir == cpu && left == before {
            return refused(format!(
                "{} has no process: only an administrator hands it over",
                text_of_path(dir)
            ));
        }
    }
    Ok(())
}

/// The same for one tree, in which `left` processes are looked at.
fn check_processes_in<K: KernFs>(
    host: &mut HostAccess<K>,
    dir: &Path,
    user: u32,
    left: &mut usize,
) -> Result<(), AttachError> {
    let (proc, kernel) = (host.proc(), &mut host.kernel);
    let Some(below) = nested_up_to(kernel, dir, NESTED_MAX)? else {
        return refused(format!(
            "{} has more than {NESTED_MAX} cgroups below: only an administrator hands it over",
            text_of_path(dir)
        ));
    };
    for dir in std::iter::once(dir).chain(below.iter().map(PathBuf::as_path)) {
        let Some(pids) = listed_up_to(kernel, dir, "cgroup.procs", *left)? else {
            return refused(format!(
                "{} has more than {CHECKED_MAX} processes: only an administrator hands it over",
                text_of_path(dir)
            ));
        };
        *left -= pids.len();
        for pid in pids {
            if let Some(why) = process::why_not_of(kernel, proc, pid, user) {
                let why = format!("{why} (in {})", text_of_path(dir));
                return Err(AttachError::NotPermitted(why));
            }
        }
    }
    Ok(())
}
