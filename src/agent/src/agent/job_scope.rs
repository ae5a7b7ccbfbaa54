//! Jobs in systemd slices: the agent asks for a scope, watches for its arrival, and uses a cgroup of its own if
//! systemd refuses. [`crate::jobs::scope`] describes the protocol.

use tracing::{debug, warn};

use super::start::Agent;
use crate::backend::location::{Location, Sources};
use crate::jobs::cgroup::JobCgroup;
use crate::jobs::scope::{PATIENCE_SECONDS, Starting, job_of, unit_of};
use crate::jobs::watch::is_alive;
use tenantd_admission::JobId;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::node::NodeId;
use tenantd_host::cgroup::{Dialect, Facet};
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;
use tenantd_host::systemd::{Answer, Order, Property, Setting, UnitError};
use tenantd_policy::unit_path::{slice_of_user, unit_at};
use tenantd_varlink::jobs::program;

impl<K: KernFs> Agent<K> {
    /// Returns the slice in which jobs of this user and tenant become scopes; `None` if they get cgroups of the
    /// agent's own. Fails while the agent has not started the slice. Systemd would start it for the scope and
    /// it would stay: only units that the agent starts are in the journal.
    pub(super) fn slice_of_job(&self, node: NodeId, uid: u32) -> Result<Option<String>, String> {
        if self.host.layout.dialect != Dialect::Unified {
            return Ok(None);
        }
        let tree = self.control.tree();
        let mut locations = self.backends.locations(tree);
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
        let dir = node.and_then(|node| self.backends.dir_of(&self.host, node, Facet::Cpu));
        dir.map(|_| Some(slice.clone())).ok_or_else(|| format!("{slice} is not there yet"))
    }

    /// Queues a scope for a job, to be started once all its settings are known.
    pub(super) fn begin_scope(&mut self, job: JobId, slice: String) -> JobCgroup {
        let starting = Starting { slice, ..Starting::default() };
        self.jobs.scopes.starting.insert(job, starting);
        // Systemd's default TasksMax is meant for sessions; jobs are bounded by the limit of the tenant.
        let property = Property::TasksMax;
        self.set_in_scope(job, Setting { property, value: property.unset() });
        JobCgroup::scope(unit_of(job))
    }

    fn set_in_scope(&mut self, job: JobId, setting: Setting) {
        self.jobs.scopes.set(&self.host.kernel, job, setting);
    }

    /// Writes a value of a job, or orders it from systemd. An error of systemd arrives later.
    pub(super) fn set_of_job(
        &mut self,
        job: JobId,
        knob: Knob,
        value: &Value,
    ) -> Result<(), String> {
        let home = self.jobs.records.get(&job).and_then(|record| record.home.as_ref());
        let Some(home) = home else { return Err("it has no cgroup".to_string()) };
        if home.cgroup.unit.is_some() {
            self.set_in_scope(job, Setting::of(knob, value));
            return Ok(());
        }
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        home.cgroup.set(kernel, layout, knob, value).map_err(|error| error.to_string())
    }

    pub(super) fn ask_for_scope(&mut self, job: JobId, now: f64) -> bool {
        let Some(starting) = self.jobs.scopes.starting.get_mut(&job) else { return false };
        starting.asked = Some(now);
        let Some(record) = self.jobs.records.get(&job) else { return false };
        let (slice, settings) = (starting.slice.clone(), std::mem::take(&mut starting.settings));
        // Only the program name: every user of the host can read the description of a unit.
        let program = record.command.as_deref().and_then(program).unwrap_or("a command");
        let view = self.jobs.admission.job(job);
        let tenant = view.map_or("", |view| view.request.tenant.as_str());
        let order = Order::StartScope {
            unit: unit_of(job),
            slice,
            description: format!("tenantd job {job} of {tenant}: {program}"),
            pids: vec![record.process.pid],
            settings,
        };
        if !self.jobs.scopes.ask(&self.host.kernel, order) {
            self.go_without_scope(job, "this host is not run by systemd", now);
        }
        true
    }

    /// Processes the answers of systemd, and the jobs that arrived in their scopes.
    pub(super) fn settle_scopes(&mut self, now: f64) {
        for Answer { order, outcome } in self.jobs.scopes.answers() {
            let (Some(job), Err(error)) = (job_of(order.unit()), outcome) else { continue };
            match order {
                // Systemd may still start the scope, and then move the process.
                Order::StartScope { .. } if matches!(error, UnitError::Late(_)) => {}
                Order::StartScope { .. } => self.go_without_scope(job, &error.to_string(), now),
                Order::Set { settings, .. } => {
                    self.note_refused(job, &settings, &error.to_string())
                }
                _ => {}
            }
        }
        let starting: Vec<(JobId, f64)> = self
            .jobs
            .scopes
            .starting
            .iter()
            .filter_map(|(job, starting)| Some((*job, starting.asked?)))
            .collect();
        for (job, asked) in starting {
            match self.arrive(job) {
                Ok(true) => {
                    self.jobs.scopes.starting.remove(&job);
                    self.jobs.keep_changed();
                    self.tell_started(job);
                }
                Ok(false) if now - asked < PATIENCE_SECONDS => {}
                Ok(false) => {
                    let why = format!("systemd has not started its scope for {PATIENCE_SECONDS} s");
                    self.give_up_job(job, &why, now);
                }
                Err(why) => self.give_up_job(job, &why, now),
            }
        }
    }

    /// True if the process of a job is in its scope; opens the scope then.
    fn arrive(&mut self, job: JobId) -> Result<bool, String> {
        let proc = self.host.proc();
        let record = self.jobs.records.get_mut(&job).ok_or("it is gone")?;
        let process = &record.process;
        let gone = format!("process {} has ended", process.pid);
        let (kernel, layout) = (&mut self.host.kernel, &self.host.layout);
        let found = process::candidate(kernel, proc, layout, process.pid);
        let found = found.map_err(|error| error.to_string())?;
        let Some(found) = found else { return Err(gone) };
        kernel.close_dir(found.held);
        let is_there = process.handle.as_ref().is_none_or(|handle| is_alive(handle));
        if found.claim.start_ticks != process.start_ticks || !is_there {
            return Err(gone);
        }
        let tree = &layout.trees[layout.tree(Facet::Cpu).unwrap_or(0)];
        let unit = unit_of(job);
        let below = found.claim.from.iter().filter(|dir| dir.starts_with(&tree.mount));
        let mut paths = below.map(|dir| tree.path_to(dir));
        // A cgroup of that name inside a user's delegated cgroups is no unit.
        let Some(path) = paths.find(|path| unit_at(path) == Some(&unit)) else { return Ok(false) };
        let cgroup = JobCgroup::open_scope(kernel, layout, unit, &path);
        let cgroup = cgroup.map_err(|error| error.to_string())?;
        if let (Some(watch), Some(handle)) = (&self.jobs.watch, &process.handle) {
            // If this fails, the next refresh detects the end of the job.
            let _ = watch.add(handle);
        }
        if let Some(home) = &mut record.home {
            (home.cgroup, home.path) = (cgroup, path);
        }
        self.jobs.unkept.insert(job);
        Ok(true)
    }

    fn go_without_scope(&mut self, job: JobId, why: &str, now: f64) {
        if self.jobs.scopes.starting.remove(&job).is_none() {
            return;
        }
        warn!("job {job} is not in the slice of its tenant: {why}");
        let entered = self.house_in_own(job, why).and_then(|()| {
            self.place_jobs();
            self.weigh_jobs();
            self.jobs.keep_changed();
            self.enter(job)
        });
        match entered {
            Ok(()) => self.tell_started(job),
            Err(why) => self.give_up_job(job, &why, now),
        }
    }

    fn house_in_own(&mut self, job: JobId, why: &str) -> Result<(), String> {
        let record = self.jobs.records.get_mut(&job).ok_or("it is gone")?;
        let valve = record.home.take().and_then(|home| home.valve);
        let (cgroup, ineffective) = self.make_instead(job, why)?;
        self.settle_in(job, cgroup, valve, ineffective);
        Ok(())
    }

    /// Makes a cgroup of the agent's own for a job of a slice. Also returns the values that are not in force.
    pub(super) fn make_instead(
        &mut self,
        job: JobId,
        why: &str,
    ) -> Result<(JobCgroup, Vec<String>), String> {
        let (cgroup, mut ineffective) = self.make_own(job)?;
        ineffective.push(format!("it is not in the slice of its tenant: {why}"));
        Ok((cgroup, ineffective))
    }

    fn note_refused(&mut self, job: JobId, settings: &[Setting], why: &str) {
        debug!("systemd changes nothing of the scope of job {job}: {why}");
        let record = self.jobs.records.get_mut(&job);
        let Some(home) = record.and_then(|record| record.home.as_mut()) else { return };
        let is_of_cpus = |setting: &Setting| setting.property == Property::AllowedCpus;
        let what = format!("it is not confined to CPUs: {why}");
        if settings.iter().any(is_of_cpus) && !home.ineffective.contains(&what) {
            home.ineffective.push(what);
        }
    }
}
