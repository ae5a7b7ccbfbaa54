//! Cgroups of jobs: made in the cgroup of the tenant or ordered as a scope, set, and entered by the process.

use std::collections::BTreeSet;
use std::path::Path;

use tracing::debug;

use super::cgroup::JobCgroup;
use super::devices;
use super::listing;
use super::records::{Home, JobProcess};
use super::reply::JobAnswer;
use super::room::JobRoom;
use super::scope::{Starting, unit_of};
use super::sets;
use super::watch::is_alive;
use crate::backend::access::HostAccess;
use crate::backend::location::{Location, Sources};
use crate::tenants::state::Tenants;
use tenantd_admission::{Indices, JobId, Phase};
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::node::NodeId;
use tenantd_core::resource::MEMORY;
use tenantd_core::units::Limit;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_host::enforce::{EnforceError, Enforcer, with_causes};
use tenantd_host::kernfs::KernFs;
use tenantd_host::process::{self, Candidate};
use tenantd_host::systemd::{Property, Setting};
use tenantd_host::valve::Valve;
use tenantd_policy::model::Victims;
use tenantd_policy::unit_path::slice_of_user;
use tenantd_varlink::jobs::SubmitReply;

impl JobRoom {
    pub(super) fn node_of<K: KernFs>(
        &self,
        tenants: &Tenants<K>,
        job: JobId,
    ) -> Result<(NodeId, u32), String> {
        let view = self.admission.job(job).ok_or("it is not known")?;
        let tenant = &view.request.tenant;
        let node = tenants.id_of(tenant);
        let node = node.ok_or_else(|| format!("the policy has no tenant {tenant}"))?;
        Ok((node, view.request.user))
    }

    /// Queues a scope for a job, to be started once all its settings are known.
    pub(super) fn begin_scope<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
        slice: String,
    ) -> JobCgroup {
        let starting = Starting { slice, ..Starting::default() };
        self.scopes.starting.insert(job, starting);
        // Systemd's default TasksMax is meant for sessions; jobs are bounded by the limit of the tenant.
        let property = Property::TasksMax;
        self.scopes.set(&host.kernel, job, Setting { property, value: property.unset() });
        JobCgroup::scope(unit_of(job))
    }

    /// Makes a cgroup of the agent's own for a job. Also returns the values that are not in force.
    pub(super) fn make_own<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        job: JobId,
    ) -> Result<(JobCgroup, Vec<String>), String> {
        let (node, _) = self.node_of(tenants, job)?;
        let mut ineffective = Vec::new();
        let above = nest(tenants, node, &mut ineffective)?;
        let below = format!("{above}/job-{job}");
        let (kernel, layout) = (&mut tenants.host.kernel, &tenants.host.layout);
        let cgroup = JobCgroup::make(kernel, layout, &below).map_err(|error| error.to_string())?;
        Ok((cgroup, ineffective))
    }

    /// Makes a cgroup of the agent's own for a job of a slice. Also returns the values that are not in force.
    pub(super) fn make_instead<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        job: JobId,
        why: &str,
    ) -> Result<(JobCgroup, Vec<String>), String> {
        let (cgroup, mut ineffective) = self.make_own(tenants, job)?;
        ineffective.push(format!("it is not in the slice of its tenant: {why}"));
        Ok((cgroup, ineffective))
    }

    pub(super) fn settle_in<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
        cgroup: JobCgroup,
        valve: Option<Valve>,
        ineffective: Vec<String>,
    ) {
        let path = match &cgroup.unit {
            // The path of a scope is known only after it arrives.
            Some(unit) => unit.clone(),
            None => path_of(&host.layout, &cgroup.below),
        };
        let home = Home {
            cgroup,
            path,
            cpus: None,
            weight: None,
            valve,
            ineffective,
            is_left: false,
            nr_limited: 0,
            held: Indices::default(),
            closed: BTreeSet::new(),
        };
        match self.records.get_mut(&job) {
            Some(record) => record.home = Some(home),
            None => return home.cgroup.close(&mut host.kernel),
        }
        self.unkept.insert(job);
        end_as_one(self, host, job);
        self.limit_memory(host, job);
        devices::close(self, host, job);
    }

    /// Limits a job to its declared memory, a set to that of the most tasks that have run at once: a limit that follows
    /// the number down would take memory from the running ones.
    pub(super) fn limit_memory<K: KernFs>(&mut self, host: &mut HostAccess<K>, job: JobId) {
        let Some(view) = self.admission.job(job) else { return };
        let memory_bytes = view.request.memory_bytes;
        let nr_tasks = view.set.map_or(1, |set| set.running().max(1));
        let record = self.records.get_mut(&job);
        let Some(home) = record.and_then(|record| record.home.as_mut()) else { return };
        if memory_bytes == 0 || nr_tasks <= home.nr_limited {
            return;
        }
        home.nr_limited = nr_tasks;
        let limit = Limit::Finite(memory_bytes.saturating_mul(nr_tasks.into()));
        let limit = Value::Amount(MEMORY, limit);
        let Err(error) = self.set(host, job, Knob::MemoryMax, &limit) else { return };
        let record = self.records.get_mut(&job);
        if let Some(home) = record.and_then(|record| record.home.as_mut()) {
            let what = format!("no memory limit is in force: {error}");
            if !home.ineffective.contains(&what) {
                home.ineffective.push(what);
            }
        }
    }

    /// Writes a value of a job, or orders it from systemd. An error of systemd arrives later.
    pub(super) fn set<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
        knob: Knob,
        value: &Value,
    ) -> Result<(), String> {
        let home = self.records.get(&job).and_then(|record| record.home.as_ref());
        let Some(home) = home else { return Err("it has no cgroup".to_string()) };
        if home.cgroup.unit.is_some() {
            self.scopes.set(&host.kernel, job, Setting::of(knob, value));
            return Ok(());
        }
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        home.cgroup.set(kernel, layout, knob, value).map_err(|error| error.to_string())
    }

    pub(super) fn enter<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
    ) -> Result<(), String> {
        let proc = host.proc();
        let pid = self.records.get(&job).ok_or("it is gone")?.process.pid;
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        let found = process::candidate(kernel, proc, layout, pid);
        let Some(found) = found.map_err(|error| error.to_string())? else {
            return Err(format!("process {pid} has ended"));
        };
        let entered = self.enter_held(host, job, &found);
        if entered.is_ok() {
            devices::enter(self, host, job, &found);
        }
        host.kernel.close_dir(found.held);
        entered
    }

    /// Moves a process that is held open; its pid is not reused while it lives.
    fn enter_held<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        job: JobId,
        found: &Candidate,
    ) -> Result<(), String> {
        let Some(record) = self.records.get(&job) else { return Err("it is gone".into()) };
        let Some(home) = &record.home else { return Err("it has no cgroup".into()) };
        let JobProcess { pid, start_ticks, handle } = &record.process;
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        let gone = format!("process {pid} has ended");
        let is_there = handle.as_ref().is_none_or(|handle| is_alive(handle));
        if found.claim.start_ticks != *start_ticks || !is_there {
            return Err(gone);
        }
        let moved = home.cgroup.take(kernel, layout, *pid);
        let is_alive = process::is_alive(kernel, found.held);
        if moved.is_ok() && is_alive == Ok(true) {
            if let (Some(watch), Some(handle)) = (&self.watch, handle) {
                // If this fails, the next refresh detects the end of the job.
                let _ = watch.add(handle);
            }
            return Ok(());
        }
        // The pid may have been reused and another process moved; or the move succeeded only in some trees.
        for from in &found.claim.from {
            if let Ok(dir) = kernel.open_dir(from) {
                let _ = kernel.move_process(dir, *pid);
                kernel.close_dir(dir);
            }
        }
        let failed = moved.err().or(is_alive.err());
        Err(failed.map_or(gone, |error| error.to_string()))
    }

    pub(super) fn tell_started(&mut self, job: JobId) {
        let Some(view) = self.admission.job(job) else { return };
        let Phase::Running { dop, since } = view.phase else { return };
        let tenant = view.request.tenant.clone();
        let waited = (since - view.submitted).max(0.0);
        let tally = self.tallies.entry(tenant.clone()).or_default();
        (tally.nr_started, tally.waited_seconds) =
            (tally.nr_started + 1, tally.waited_seconds + waited);
        let Some(record) = self.records.get(&job) else { return };
        let Some(home) = &record.home else { return };
        let (pid, path) = (record.process.pid, &home.path);
        debug!(tenant, action = "job", "job {job} started: process {pid} in {path}, {dop} wide");
        if view.set.is_some() {
            return sets::tell_granted(self, job);
        }
        let answer = started_reply(job, &tenant, listing::started(self, &view, home, dop));
        self.answer(job, answer);
    }
}

/// Returns the slice in which jobs of this user and tenant become scopes; `None` if they get cgroups of the
/// agent's own. Fails while the agent has not started the slice. Systemd would start it for the scope and
/// it would stay: only units that the agent starts are in the journal.
pub(super) fn slice_of<K: KernFs>(
    tenants: &Tenants<K>,
    node: NodeId,
    uid: u32,
) -> Result<Option<String>, String> {
    if !tenants.host.layout.is_unified() {
        return Ok(None);
    }
    let tree = tenants.control.tree();
    let mut locations = tenants.backends.locations(tree);
    let Some(node) = tree.find(node) else { return Ok(None) };
    let member = |unit: &str| {
        let mut members = tree.members().filter(|(_, member)| member.tenant == node.at());
        members.find(|(_, member)| member.at == unit).map(|(member, _)| member)
    };
    let (node, slice) = match locations.swap_remove(node.at()) {
        Location::Slice(slice) => (Some(node), slice),
        Location::Members(Sources { slice: Some(slice), .. }) => (member(&slice), slice),
        // Systemd itself stops the slice of a user (`StopWhenUnneeded`).
        Location::Unit(unit) if unit.ends_with(".slice") => return Ok(Some(unit)),
        Location::Members(_) => {
            let of_user = slice_of_user(uid);
            return Ok(member(&of_user).map(|_| of_user));
        }
        _ => return Ok(None),
    };
    let dir = node.and_then(|node| tenants.backends.dir_of(&tenants.host, node, Facet::Cpu));
    dir.map(|_| Some(slice.clone())).ok_or_else(|| format!("{slice} is not there yet"))
}

/// Returns the tenant's cgroup for jobs, relative to the root of each tree. Enables the controllers for jobs where
/// possible.
fn nest<K: KernFs>(
    tenants: &mut Tenants<K>,
    node: NodeId,
    ineffective: &mut Vec<String>,
) -> Result<String, String> {
    let own = tenants.own_cgroup(node)?;
    let own = tenants.control.tree().find(own);
    let dir = own.and_then(|own| tenants.backends.dir_of(&tenants.host, own, Facet::Cpu));
    let dir = dir.ok_or("its tenant has no cgroup")?;
    let cpu = &tenants.host.layout.trees[tenants.host.layout.tree(Facet::Cpu).unwrap_or(0)];
    let below = dir.strip_prefix(&cpu.root).map_err(|_| "its tenant is not below the root")?;
    let below = below.to_path_buf();
    let mut enforcer = Enforcer { pins: true, ..tenants.host.enforcer() };
    let prepared = if enforcer.layout.is_unified() {
        enable_down_to(&mut enforcer, &below)
    } else {
        make_cpusets(&mut enforcer, &below)
    };
    if let Err(error) = prepared {
        ineffective.push(format!("limits and CPUs of its own: {}", with_causes(&error)));
    }
    Ok(below.display().to_string())
}

fn path_of(layout: &Layout, below: &str) -> String {
    let tree = &layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)];
    tree.path_to(&tree.root.join(below))
}

fn enable_down_to<K: KernFs>(
    enforcer: &mut Enforcer<'_, K>,
    below: &Path,
) -> Result<(), EnforceError> {
    let layout = enforcer.layout;
    for tree in &layout.trees {
        let path = tree.root.join(below);
        let mut above: Vec<&Path> =
            path.ancestors().take_while(|up| up.starts_with(&tree.root)).collect();
        above.reverse();
        above.into_iter().try_for_each(|up| enforcer.enable(up))?;
    }
    Ok(())
}

/// Makes the cgroup `below` in the cpuset tree of cgroup v1, which tenants without pinning do not join.
fn make_cpusets<K: KernFs>(
    enforcer: &mut Enforcer<'_, K>,
    below: &Path,
) -> Result<(), EnforceError> {
    let layout = enforcer.layout;
    for tree in layout.trees.iter().filter(|tree| !tree.is_for_all()) {
        let path = tree.root.join(below);
        enforcer.make_all(&tree.mount, &path)?;
        enforcer.fill_legacy(tree, &path)?;
    }
    Ok(())
}

/// The reply that a job has started.
pub(super) fn started_reply(
    job: JobId,
    tenant: &str,
    started: tenantd_varlink::jobs::Started,
) -> JobAnswer {
    let reply = SubmitReply {
        id: job.0,
        tenant: tenant.to_string(),
        started: Some(started),
        ..SubmitReply::default()
    };
    JobAnswer::Submitted(Ok(reply))
}

/// Makes the kernel end the whole job where it ends one of its processes for lack of memory: a job that exceeds its
/// declared memory, and each one where work ends by share. Not a set: its other tasks go on.
pub(super) fn end_as_one<K: KernFs>(room: &JobRoom, host: &mut HostAccess<K>, job: JobId) {
    let Some(view) = room.admission.job(job) else { return };
    if view.set.is_some()
        || view.request.memory_bytes == 0 && room.policy.memory.victims == Victims::Kernel
    {
        return;
    }
    if let Some(home) = room.records.get(&job).and_then(|record| record.home.as_ref()) {
        home.cgroup.end_as_one(&mut host.kernel, &host.layout);
    }
}
