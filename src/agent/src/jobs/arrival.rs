//! Jobs in systemd slices: the agent asks for a scope, watches for its arrival, and uses a cgroup of its own if
//! systemd refuses. [`super::scope`] describes the protocol.

use tracing::{debug, warn};

use super::cgroup::JobCgroup;
use super::home::end_as_one;
use super::room::JobRoom;
use super::scope::{PATIENCE_SECONDS, job_of, unit_of};
use super::watch::is_alive;
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::JobId;
use tenantd_host::cgroup::Facet;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;
use tenantd_host::systemd::{Answer, Order, Property, ScopeProcess, Setting, UnitError};
use tenantd_policy::unit_path::unit_at;
use tenantd_varlink::jobs::program;

impl JobRoom {
    pub(super) fn ask_for_scope<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        job: JobId,
        now: f64,
    ) -> bool {
        let Some(starting) = self.scopes.starting.get_mut(&job) else { return false };
        starting.asked = Some(now);
        let Some(record) = self.records.get(&job) else { return false };
        let (slice, settings) = (starting.slice.clone(), std::mem::take(&mut starting.settings));
        let devices = starting.devices.take();
        // Only the program name: every user of the host can read the description of a unit.
        let program = record.command.as_deref().and_then(program).unwrap_or("a command");
        let view = self.admission.job(job);
        let tenant = view.map_or("", |view| view.request.tenant.as_str());
        let order = Order::StartScope {
            unit: unit_of(job),
            slice,
            description: format!("tenantd job {job} of {tenant}: {program}"),
            process: ScopeProcess {
                pid: record.process.pid,
                handle: record.process.handle.clone(),
            },
            settings,
            devices,
        };
        if !self.scopes.ask(&tenants.host.kernel, order) {
            self.go_without_scope(tenants, job, "this host is not run by systemd", now);
        }
        true
    }

    /// Processes the answers of systemd, and the jobs that arrived in their scopes.
    pub(super) fn settle_scopes<K: KernFs>(&mut self, tenants: &mut Tenants<K>, now: f64) {
        for Answer { order, outcome } in self.scopes.answers() {
            let (Some(job), Err(error)) = (job_of(order.unit()), outcome) else { continue };
            match order {
                // Systemd may still start the scope, and then move the process.
                Order::StartScope { .. } if matches!(error, UnitError::Late(_)) => {}
                Order::StartScope { .. } => {
                    self.go_without_scope(tenants, job, &error.to_string(), now)
                }
                Order::Set { settings, .. } => {
                    self.note_refused(job, &settings, &error.to_string())
                }
                Order::SetDevices { .. } => debug!("the devices of job {job} stay: {error}"),
                _ => {}
            }
        }
        let starting: Vec<(JobId, f64)> = self
            .scopes
            .starting
            .iter()
            .filter_map(|(job, starting)| Some((*job, starting.asked?)))
            .collect();
        for (job, asked) in starting {
            match self.arrive(&mut tenants.host, job) {
                Ok(true) => {
                    self.scopes.starting.remove(&job);
                    self.keep_changed();
                    self.tell_started(job);
                }
                Ok(false) if now - asked < PATIENCE_SECONDS => {}
                Ok(false) => {
                    let why = format!("systemd has not started its scope for {PATIENCE_SECONDS} s");
                    self.give_up(&mut tenants.host, job, &why, now);
                }
                Err(why) => self.give_up(&mut tenants.host, job, &why, now),
            }
        }
    }

    /// True if the process of a job is in its scope; opens the scope then.
    fn arrive<K: KernFs>(&mut self, host: &mut HostAccess<K>, job: JobId) -> Result<bool, String> {
        let proc = host.proc();
        let record = self.records.get_mut(&job).ok_or("it is gone")?;
        let process = &record.process;
        let gone = format!("process {} has ended", process.pid);
        let (kernel, layout) = (&mut host.kernel, &host.layout);
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
        if let (Some(watch), Some(handle)) = (&self.watch, &process.handle) {
            // If this fails, the next refresh detects the end of the job.
            let _ = watch.add(handle);
        }
        if let Some(home) = &mut record.home {
            (home.cgroup, home.path) = (cgroup, path);
        }
        end_as_one(self, host, job);
        self.unkept.insert(job);
        Ok(true)
    }

    fn go_without_scope<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        job: JobId,
        why: &str,
        now: f64,
    ) {
        if self.scopes.starting.remove(&job).is_none() {
            return;
        }
        warn!("job {job} is not in the slice of its tenant: {why}");
        let entered = self.house_in_own(tenants, job, why).and_then(|()| {
            self.place(tenants);
            self.weigh(tenants);
            self.keep_changed();
            self.enter(&mut tenants.host, job)
        });
        match entered {
            Ok(()) => self.tell_started(job),
            Err(why) => self.give_up(&mut tenants.host, job, &why, now),
        }
    }

    fn house_in_own<K: KernFs>(
        &mut self,
        tenants: &mut Tenants<K>,
        job: JobId,
        why: &str,
    ) -> Result<(), String> {
        let record = self.records.get_mut(&job).ok_or("it is gone")?;
        let valve = record.home.take().and_then(|home| home.valve);
        let (cgroup, ineffective) = self.make_instead(tenants, job, why)?;
        self.settle_in(&mut tenants.host, job, cgroup, valve, ineffective);
        Ok(())
    }

    fn note_refused(&mut self, job: JobId, settings: &[Setting], why: &str) {
        debug!("systemd changes nothing of the scope of job {job}: {why}");
        let record = self.records.get_mut(&job);
        let Some(home) = record.and_then(|record| record.home.as_mut()) else { return };
        let is_of_cpus = |setting: &Setting| setting.property == Property::AllowedCpus;
        let what = format!("it is not confined to CPUs: {why}");
        if settings.iter().any(is_of_cpus) && !home.ineffective.contains(&what) {
            home.ineffective.push(what);
        }
    }
}
