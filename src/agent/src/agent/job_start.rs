//! Start of jobs: cgroups, CPUs and moves of processes; adoption of the jobs of an earlier agent.

use std::path::Path;

use tracing::debug;

use super::job_valves::remove_valve;
use super::jobs::{is_empty, started_reply};
use super::start::Agent;
use crate::jobs::cgroup::{JobCgroup, may_confine};
use crate::jobs::listing;
use crate::jobs::place::{self, Wide};
use crate::jobs::record::Placed;
use crate::jobs::records::{Home, JobProcess, Record};
use crate::jobs::reply::JobAnswer;
use crate::jobs::store::KeptJob;
use crate::jobs::watch::is_alive;
use tenantd_admission::{JobId, Phase};
use tenantd_control::tree::Node;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::node::NodeId;
use tenantd_core::resource::MEMORY;
use tenantd_core::units::Limit;
use tenantd_dop::CpuSet;
use tenantd_host::cgroup::{Dialect, Facet};
use tenantd_host::enforce::{EnforceError, Enforcer, with_causes};
use tenantd_host::kernfs::KernFs;
use tenantd_host::process::{self, Candidate};
use tenantd_host::valve::Valve;
use tenantd_varlink::error::CallError;

impl<K: KernFs> Agent<K> {
    pub(super) fn start_jobs(&mut self, now: f64) {
        loop {
            let dispatch = self.jobs.dispatch(now);
            if dispatch.starts.is_empty() && dispatch.widths.is_empty() {
                break;
            }
            let mut started = Vec::new();
            for start in &dispatch.starts {
                match self.house(start.job) {
                    Ok(()) => started.push(start.job),
                    Err(why) => self.give_up_job(start.job, &why, now),
                }
            }
            self.place_jobs();
            self.weigh_jobs();
            self.set_valves();
            if !started.is_empty() {
                // Before the processes move: after a kill in between, the next agent finds empty cgroups.
                self.jobs.keep_changed();
            }
            for job in started {
                if self.ask_for_scope(job, now) {
                    continue;
                }
                match self.enter(job) {
                    Ok(()) => self.tell_started(job),
                    Err(why) => self.give_up_job(job, &why, now),
                }
            }
        }
        let every = self.jobs.refresh_every(now);
        if let Some(watch) = &mut self.jobs.watch {
            watch.refresh(every);
        }
    }

    pub(super) fn give_up_job(&mut self, job: JobId, why: &str, now: f64) {
        debug!("job {job} does not start: {why}");
        let reason = format!("it cannot start: {why}");
        self.jobs.answer(job, JobAnswer::Submitted(Err(CallError::Failed { reason })));
        self.end_job(job, now);
        self.jobs.keep_changed();
    }

    /// Makes the cgroup of a job; for a scope, only queues the order.
    fn house(&mut self, job: JobId) -> Result<(), String> {
        let (node, uid) = self.node_of_job(job)?;
        let (cgroup, mut ineffective) = match self.slice_of_job(node, uid) {
            Ok(Some(slice)) => (self.begin_scope(job, slice), Vec::new()),
            Ok(None) => self.make_own(job)?,
            Err(why) => self.make_instead(job, &why)?,
        };
        let valve = self.make_valve(job, uid).unwrap_or_else(|error| {
            ineffective.push(format!("there is no job server for it: {}", with_causes(&error)));
            None
        });
        self.settle_in(job, cgroup, valve, ineffective);
        Ok(())
    }

    fn node_of_job(&self, job: JobId) -> Result<(NodeId, u32), String> {
        let view = self.jobs.admission.job(job).ok_or("it is not known")?;
        let tenant = &view.request.tenant;
        let node = self.control.tree().named(tenant).map(Node::id);
        let node = node.ok_or_else(|| format!("the policy has no tenant {tenant}"))?;
        Ok((node, view.request.user))
    }

    /// Makes a cgroup of the agent's own for a job. Also returns the values that are not in force.
    pub(super) fn make_own(&mut self, job: JobId) -> Result<(JobCgroup, Vec<String>), String> {
        let (node, _) = self.node_of_job(job)?;
        let mut ineffective = Vec::new();
        let above = self.nest(node, &mut ineffective)?;
        let below = format!("{above}/job-{job}");
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let cgroup = JobCgroup::make(kernel, layout, &below).map_err(|error| error.to_string())?;
        Ok((cgroup, ineffective))
    }

    pub(super) fn settle_in(
        &mut self,
        job: JobId,
        cgroup: JobCgroup,
        valve: Option<Valve>,
        ineffective: Vec<String>,
    ) {
        let path = match &cgroup.unit {
            // The path of a scope is known only after it arrives.
            Some(unit) => unit.clone(),
            None => self.path_of(&cgroup.below),
        };
        let home =
            Home { cgroup, path, cpus: None, weight: None, valve, ineffective, is_left: false };
        match self.jobs.records.get_mut(&job) {
            Some(record) => record.home = Some(home),
            None => return home.cgroup.close(&mut self.host.kernel),
        }
        self.jobs.unkept.insert(job);
        let view = self.jobs.admission.job(job);
        let memory_bytes = view.map_or(0, |view| view.request.memory_bytes);
        if memory_bytes == 0 {
            return;
        }
        let limit = Value::Amount(MEMORY, Limit::Finite(memory_bytes));
        let Err(error) = self.set_of_job(job, Knob::MemoryMax, &limit) else { return };
        let record = self.jobs.records.get_mut(&job);
        if let Some(home) = record.and_then(|record| record.home.as_mut()) {
            home.ineffective.push(format!("no memory limit is in force: {error}"));
        }
    }

    /// Returns the tenant's cgroup for jobs, relative to the root of each tree. Enables the controllers for
    /// jobs where possible.
    fn nest(&mut self, node: NodeId, ineffective: &mut Vec<String>) -> Result<String, String> {
        let own = self.own_cgroup(node).map_err(|error| error.to_string())?;
        let own = self.control.tree().find(own);
        let dir = own.and_then(|own| self.backends.dir_of(&self.host, own, Facet::Cpu));
        let dir = dir.ok_or("its tenant has no cgroup")?;
        let cpu = &self.host.layout.trees[self.host.layout.tree(Facet::Cpu).unwrap_or(0)];
        let below = dir.strip_prefix(&cpu.root).map_err(|_| "its tenant is not below the root")?;
        let below = below.to_path_buf();
        let mut enforcer = Enforcer { pins: true, ..self.host.enforcer() };
        let prepared = match enforcer.layout.dialect {
            Dialect::Unified => enable_down_to(&mut enforcer, &below),
            Dialect::Legacy => make_cpusets(&mut enforcer, &below),
        };
        if let Err(error) = prepared {
            ineffective.push(format!("limits and CPUs of its own: {}", with_causes(&error)));
        }
        Ok(below.display().to_string())
    }

    fn path_of(&self, below: &str) -> String {
        let layout = &self.host.layout;
        let tree = &layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)];
        tree.path_to(&tree.root.join(below))
    }

    pub(super) fn place_jobs(&mut self) {
        let Some(topology) = self.control.topology().cloned() else { return };
        let dialect = self.host.layout.dialect;
        // Jobs of pinned tenants use the CPUs of their tenant only.
        let mut groups: Vec<(Option<CpuSet>, Vec<Wide>)> = Vec::new();
        for (job, home) in self.jobs.homes() {
            let Some(view) = self.jobs.admission.job(job) else { continue };
            let Phase::Running { dop, .. } = view.phase else { continue };
            let node = self.nodes().iter().position(|node| node.path == view.request.tenant);
            let of_tenant = node.and_then(|node| self.control.states()[node].width.cpus()).cloned();
            let is_confinable = home.cgroup.can_be_confined(&self.host.layout);
            if !is_confinable || !may_confine(dialect, of_tenant.is_some()) {
                continue;
            }
            let entry = Wide { job, dop, previous: home.cpus.clone() };
            match groups.iter_mut().find(|(cpus, _)| *cpus == of_tenant) {
                Some((_, jobs)) => jobs.push(entry),
                None => groups.push((of_tenant, vec![entry])),
            }
        }
        // Unless a job came, went or changed its width, all keep their CPUs.
        let placed = |(cpus, jobs): &(Option<CpuSet>, Vec<Wide>)| {
            let widths = jobs.iter().map(|wide| (wide.job, wide.dop)).collect();
            (cpus.clone().unwrap_or_else(|| topology.usable().clone()), widths)
        };
        let now: Vec<Placed> = groups.iter().map(placed).collect();
        let before = std::mem::replace(&mut self.jobs.placed, now.clone());
        for ((cpus, jobs), placed) in groups.into_iter().zip(now) {
            if before.contains(&placed) && jobs.iter().all(|wide| wide.previous.is_some()) {
                continue;
            }
            let restricted = cpus.and_then(|cpus| topology.restricted_to(&cpus).ok());
            for (job, cpus) in place::cpus(&jobs, restricted.as_ref().unwrap_or(&topology)) {
                self.confine(job, cpus);
            }
        }
    }

    fn confine(&mut self, job: JobId, cpus: CpuSet) {
        let home = self.jobs.records.get(&job).and_then(|record| record.home.as_ref());
        if home.is_none_or(|home| home.cpus.as_ref() == Some(&cpus)) {
            return;
        }
        let outcome = self.set_of_job(job, Knob::Cpus, &Value::CpuList(cpus.clone()));
        let record = self.jobs.records.get_mut(&job);
        let Some(home) = record.and_then(|record| record.home.as_mut()) else { return };
        match outcome {
            Ok(()) => {
                home.cpus = Some(cpus);
                self.jobs.unkept.insert(job);
            }
            Err(error) => {
                let what = format!("it is not confined to CPUs: {error}");
                if !home.ineffective.contains(&what) {
                    home.ineffective.push(what);
                }
            }
        }
    }

    pub(super) fn weigh_jobs(&mut self) {
        for (job, weight) in place::changed_weights(&self.jobs, self.base.written.admission.running)
        {
            // A job without the controller has no weight; the write is not tried again.
            if let Err(error) = self.set_of_job(job, Knob::CpuWeight, &Value::Weight(weight)) {
                debug!("job {job} has no weight: {error}");
            }
            let record = self.jobs.records.get_mut(&job);
            if let Some(home) = record.and_then(|record| record.home.as_mut()) {
                home.weight = Some(weight);
            }
        }
    }

    pub(super) fn enter(&mut self, job: JobId) -> Result<(), String> {
        let proc = self.host.proc();
        let pid = self.jobs.records.get(&job).ok_or("it is gone")?.process.pid;
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let found = process::candidate(kernel, proc, layout, pid);
        let Some(found) = found.map_err(|error| error.to_string())? else {
            return Err(format!("process {pid} has ended"));
        };
        let entered = self.enter_held(job, &found);
        self.host.kernel.close_dir(found.held);
        entered
    }

    /// Moves a process that is held open; its pid is not reused while it lives.
    fn enter_held(&mut self, job: JobId, found: &Candidate) -> Result<(), String> {
        let Some(record) = self.jobs.records.get(&job) else { return Err("it is gone".into()) };
        let Some(home) = &record.home else { return Err("it has no cgroup".into()) };
        let JobProcess { pid, start_ticks, handle } = &record.process;
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let gone = format!("process {pid} has ended");
        let is_there = handle.as_ref().is_none_or(|handle| is_alive(handle));
        if found.claim.start_ticks != *start_ticks || !is_there {
            return Err(gone);
        }
        let moved = home.cgroup.take(kernel, layout, *pid);
        let is_alive = process::is_alive(kernel, found.held);
        if moved.is_ok() && is_alive == Ok(true) {
            if let (Some(watch), Some(handle)) = (&self.jobs.watch, handle) {
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
        let Some(view) = self.jobs.admission.job(job) else { return };
        let Phase::Running { dop, since } = view.phase else { return };
        let tenant = view.request.tenant.clone();
        let waited = (since - view.submitted).max(0.0);
        let tally = self.jobs.tallies.entry(tenant.clone()).or_default();
        (tally.nr_started, tally.waited_seconds) =
            (tally.nr_started + 1, tally.waited_seconds + waited);
        let Some(record) = self.jobs.records.get(&job) else { return };
        let Some(home) = &record.home else { return };
        let (pid, path) = (record.process.pid, &home.path);
        debug!(tenant, action = "job", "job {job} started: process {pid} in {path}, {dop} wide");
        let answer = started_reply(job, &tenant, listing::started(home, dop));
        self.jobs.answer(job, answer);
    }

    /// Adopts a job of an earlier agent if its first process runs, or its cgroup exists and is not empty.
    pub(super) fn adopt_job(&mut self, kept: KeptJob, now: f64) {
        let proc = self.host.proc();
        let job = kept.job();
        let valve = self.find_valve(job);
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let cgroup = match &kept.unit {
            Some(unit) => JobCgroup::open_scope(kernel, layout, unit.clone(), &kept.path),
            None => JobCgroup::open(kernel, layout, &kept.below),
        };
        let first = JobProcess { pid: kept.pid, start_ticks: kept.start_ticks, handle: None };
        let runs = !kept.lingers && first.runs(kernel, proc);
        let cgroup = match cgroup {
            Ok(cgroup) if cgroup.inode() == kept.inode => cgroup,
            // The cgroup was removed with its last process, and the first process is elsewhere.
            other => {
                other.into_iter().for_each(|cgroup| cgroup.close(kernel));
                match runs {
                    true => JobCgroup::gone(&kept.below, kept.unit),
                    false => return remove_valve(valve),
                }
            }
        };
        let sample = cgroup.sample(kernel, layout);
        let is_populated = !is_empty(&sample);
        let sample = sample.ok();
        if !runs && !is_populated {
            remove_valve(valve);
            self.jobs.left.extend(cgroup.end(kernel, layout));
            return;
        }
        let lingers = !runs;
        let cpu_seconds = sample.and_then(|it| it.usage_usec).map_or(0.0, |usec| usec as f64 / 1e6);
        let times = (kept.submitted, kept.since);
        let Some(request) = kept.request else { return };
        self.jobs.admission.adopt(job, request, times, (cpu_seconds, lingers), now);
        let cpus = kept.cpus.and_then(|cpus| cpus.parse().ok());
        let (path, ineffective) = (kept.path, kept.ineffective);
        let is_left = runs && !is_populated;
        let home = Home { cgroup, path, cpus, weight: None, valve, ineffective, is_left };
        let record = Record {
            ticket: None,
            process: first,
            command: kept.command,
            told: None,
            home: Some(home),
        };
        self.jobs.records.insert(job, record);
    }
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
