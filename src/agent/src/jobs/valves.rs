//! Job servers (GNU make) of jobs: each has one token less than the width of its job.

use tracing::debug;

use super::room::JobRoom;
use super::store::Store;
use crate::backend::access::HostAccess;
use tenantd_admission::{JobId, Phase};
use tenantd_host::enforce::with_causes;
use tenantd_host::kernfs::KernFs;
use tenantd_host::valve::{Valve, ValveError};

pub(super) fn make(store: &Store, job: JobId, uid: u32) -> Result<Option<Valve>, ValveError> {
    let dir = store.valve_dir(job);
    dir.map(|dir| Valve::create(&dir, uid, 0)).transpose()
}

pub(super) fn find(store: &Store, job: JobId) -> Option<Valve> {
    let valve = Valve::open(&store.valve_dir(job)?);
    let log = |error: &ValveError| debug!("job {job} has no job server: {}", with_causes(error));
    valve.inspect_err(log).ok()
}

pub(super) fn remove(valve: Option<Valve>) {
    if let Some(Err(error)) = valve.map(Valve::remove) {
        debug!("a job server is left: {}", with_causes(&error));
    }
}

impl JobRoom {
    pub(super) fn set_valves(&mut self) {
        for view in self.admission.active() {
            let Phase::Running { dop, .. } = view.phase else { continue };
            let job = view.job;
            let home = self.records.get_mut(&job).and_then(|record| record.home.as_mut());
            let Some(valve) = home.and_then(|home| home.valve.as_mut()) else { continue };
            let tokens = dop.saturating_sub(1);
            if valve.target() != tokens
                && let Err(error) = valve.set(tokens)
            {
                debug!("the job server of job {job} keeps its width: {}", with_causes(&error));
            }
        }
    }

    /// Replaces tokens lost with clients that were killed.
    pub(super) fn audit_valves<K: KernFs>(&mut self, host: &mut HostAccess<K>) {
        let (kernel, layout) = (&mut host.kernel, &host.layout);
        for (job, record) in self.records.iter_mut() {
            let Some(home) = record.home.as_mut() else { continue };
            let Some(valve) = home.valve.as_mut() else { continue };
            // Without the number of threads the tokens in use are unknown.
            let Some(threads) = home.cgroup.nr_threads(kernel, layout) else { continue };
            if let Err(error) = valve.audit(threads) {
                debug!("the job server of job {job} is not audited: {}", with_causes(&error));
            }
        }
    }
}
