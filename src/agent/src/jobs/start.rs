//! Start of jobs, and adoption of the jobs of an earlier agent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tracing::info;

use super::after;
use super::cgroup::JobCgroup;
use super::credit;
use super::devices;
use super::end::is_empty;
use super::home::slice_of;
use super::outcome;
use super::records::{Home, JobProcess, Record, Seen};
use super::room::JobRoom;
use super::sets;
use super::store::KeptJob;
use super::valves;
use super::waits::Expected;
use crate::backend::access::HostAccess;
use crate::tenants::state::Tenants;
use tenantd_admission::{JobId, JobView, Phase};
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;

impl JobRoom {
    pub(super) fn start<K: KernFs>(&mut self, tenants: &mut Tenants<K>, now: f64) {
        loop {
            after::settle_ends(self, now);
            let dispatch = self.dispatch(now);
            if dispatch.starts.is_empty() && dispatch.widths.is_empty() {
                break;
            }
            credit::pay_fees(&mut self.admission, tenants);
            let has_followed = devices::follow(self, &mut tenants.host);
            let mut started = Vec::new();
            let mut continued = BTreeSet::new();
            for job in dispatch.starts.iter().map(|start| start.job) {
                if self.records.get(&job).is_some_and(|record| record.home.is_some()) {
                    continued.insert(job);
                    continue;
                }
                match self.house(tenants, job) {
                    Ok(()) => started.push(job),
                    Err(why) => self.give_up(&mut tenants.host, job, &why, now),
                }
            }
            self.place(tenants);
            self.weigh(tenants);
            self.set_valves();
            if !started.is_empty() || has_followed {
                // Before the processes move: after a kill in between, the next agent finds empty cgroups.
                self.keep_changed();
            }
            for job in &continued {
                self.limit_memory(&mut tenants.host, *job);
                // A set of which the first task has just started is told below.
                if !started.contains(job) {
                    sets::tell_granted(self, *job);
                }
            }
            for job in started {
                if self.ask_for_scope(tenants, job, now) {
                    continue;
                }
                match self.enter(&mut tenants.host, job) {
                    Ok(()) => self.tell_started(job),
                    Err(why) => self.give_up(&mut tenants.host, job, &why, now),
                }
            }
        }
        let every = self.refresh_every(now);
        if let Some(watch) = &mut self.watch {
            watch.refresh(every);
        }
    }

    /// Makes the cgroup of a job; for a scope, only queues the order.
    fn house<K: KernFs>(&mut self, tenants: &mut Tenants<K>, job: JobId) -> Result<(), String> {
        let (node, uid) = self.node_of(tenants, job)?;
        let (cgroup, mut ineffective) = match slice_of(tenants, node, uid) {
            Ok(Some(slice)) => (self.begin_scope(&mut tenants.host, job, slice), Vec::new()),
            Ok(None) => self.make_own(tenants, job)?,
            Err(why) => self.make_instead(tenants, job, &why)?,
        };
        let is_set = self.admission.job(job).is_some_and(|view| view.set.is_some());
        let valve = if is_set { Ok(None) } else { valves::make(&self.store, job, uid) };
        let valve = valve.unwrap_or_else(|error| {
            ineffective.push(format!("there is no job server for it: {}", with_causes(&error)));
            None
        });
        self.settle_in(&mut tenants.host, job, cgroup, valve, ineffective);
        Ok(())
    }

    pub(super) fn adopt_all<K: KernFs>(&mut self, tenants: &mut Tenants<K>, now: f64) {
        let Some((kept, queue, number)) = self.store.take_up() else { return };
        let is_waiting = |view: &JobView<'_>| matches!(view.phase, Phase::Waiting { .. });
        self.expected = Expected::new(BTreeMap::new(), (1, number), now);
        if let Some(mut queue) = queue {
            let waiting = queue.jobs().filter(is_waiting);
            let waiting = waiting.map(|view| (view.job, view.request.user)).collect();
            self.expected = Expected::new(waiting, (queue.next_number(), number), now);
            queue.resume(now);
            self.admission = queue;
            self.nodes = Arc::from([]);
            self.renew_terms(tenants, now);
        }
        self.admission.skip_numbers(number);
        self.measure(tenants, now);
        let nr_kept = kept.len();
        self.unkept.extend(kept.iter().map(|job| job.job()));
        for job in kept {
            self.adopt(&mut tenants.host, job, now);
        }
        let unknown = self.admission.jobs().filter(|view| !self.records.contains_key(&view.job));
        let unknown: Vec<JobId> = unknown.map(|view| view.job).collect();
        for job in unknown {
            self.admission.ended(job, now);
        }
        self.admission.complete_indices();
        if nr_kept > 0 {
            let nr_found = self.records.len();
            info!(action = "start", "{nr_found} of {nr_kept} jobs of the last tenantd run on");
            self.keep_changed();
        }
    }

    /// Adopts a job of an earlier agent if its first process runs, or its cgroup exists and is not empty.
    pub(super) fn adopt<K: KernFs>(&mut self, host: &mut HostAccess<K>, kept: KeptJob, now: f64) {
        let proc = host.proc();
        let job = kept.job();
        let valve = valves::find(&self.store, job);
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        let cgroup = match &kept.unit {
            Some(unit) => JobCgroup::open_scope(kernel, layout, unit.clone(), &kept.path),
            None => JobCgroup::open(kernel, layout, &kept.below),
        };
        let first = JobProcess { pid: kept.pid, start_ticks: kept.start_ticks, handle: None };
        let runs = !kept.lingers && first.runs(kernel, proc);
        let mut cgroup = match cgroup {
            Ok(cgroup) if cgroup.inode() == kept.inode => cgroup,
            // The cgroup was removed with its last process, and the first process is elsewhere.
            other => {
                other.into_iter().for_each(|cgroup| cgroup.close(kernel));
                if !runs {
                    let mut gone = JobCgroup::gone(&kept.below, None);
                    gone.devices = kept.devices.clone();
                    outcome::record_missed(self, host, &kept, &gone, now);
                    self.left.extend(gone.end(&mut host.kernel, &host.layout));
                    return valves::remove(valve);
                }
                JobCgroup::gone(&kept.below, kept.unit.clone())
            }
        };
        cgroup.devices.clone_from(&kept.devices);
        let sample = cgroup.sample(kernel, layout);
        let is_populated = !is_empty(&sample);
        let sample = sample.ok();
        if !runs && !is_populated {
            outcome::record_missed(self, host, &kept, &cgroup, now);
            valves::remove(valve);
            self.left.extend(cgroup.end(&mut host.kernel, &host.layout));
            return;
        }
        let lingers = !runs;
        if lingers {
            outcome::record_missed(self, host, &kept, &cgroup, now);
        }
        let cpu_seconds = sample.and_then(|it| it.usage_usec).map_or(0.0, |usec| usec as f64 / 1e6);
        let times = (kept.submitted, kept.since);
        let Some(request) = kept.request else { return };
        self.admission.adopt(job, request, times, (cpu_seconds, lingers), now);
        let (closed, _) = devices::closed(&self.policy.host.resources, &kept.indices);
        self.admission.hold_indices(job, kept.indices.clone());
        let cpus = kept.cpus.and_then(|cpus| cpus.parse().ok());
        let (path, ineffective) = (kept.path, kept.ineffective);
        let is_left = runs && !is_populated;
        let home = Home {
            cgroup,
            path,
            cpus,
            weight: None,
            valve,
            ineffective,
            is_left,
            nr_limited: 0,
            held: kept.indices,
            closed,
        };
        let record = Record {
            ticket: None,
            process: first,
            command: kept.command,
            told: None,
            home: Some(home),
            seen: Seen { is_supervised: kept.supervised, tasks: kept.tasks, ..Seen::default() },
        };
        self.records.insert(job, record);
    }
}
