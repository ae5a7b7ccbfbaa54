//! CPUs to which tenants short of CPU have bound themselves, by `taskset` or by a cpuset of their own.
//!
//! **Rule.** The running threads of a tenant decide: those that sleep need no CPU. Jobs are left out, because the agent places
//! them. **Bounds.** A tenant is looked at once in [`AGAIN_AFTER`], and a tick reads about [`THREADS_MAX`] threads; a
//! tenant with more threads is left out, because a part of them tells nothing about all.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use super::programs::numbers_in;
use crate::backend::access::HostAccess;
use tenantd_control::report::reason::Binding;
use tenantd_core::kernel_text::proc_files::running_on;
use tenantd_core::node::NodeId;
use tenantd_dop::CpuSet;
use tenantd_host::kernfs::KernFs;

const AGAIN_AFTER: Duration = Duration::from_secs(5);
const THREADS_MAX: usize = 128;

/// The CPUs of each tenant that was looked at, with the time of that.
#[derive(Debug, Default)]
pub(super) struct Bindings {
    known: HashMap<NodeId, (Duration, Option<Binding>)>,
}

impl Bindings {
    /// Reads the threads in the cgroups of tenants that are due; drops the tenants that are not in `lacking`.
    pub(super) fn refresh<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        lacking: &[(NodeId, PathBuf)],
        now: Duration,
    ) {
        self.known.retain(|tenant, _| lacking.iter().any(|(id, _)| id == tenant));
        let mut cgroups: HashMap<NodeId, Vec<&PathBuf>> = HashMap::new();
        for (tenant, dir) in lacking {
            cgroups.entry(*tenant).or_default().push(dir);
        }
        let is_due = |tenant: &NodeId| {
            self.known.get(tenant).is_none_or(|(at, _)| now.saturating_sub(*at) >= AGAIN_AFTER)
        };
        cgroups.retain(|tenant, _| is_due(tenant));
        let mut nr_read = 0;
        for (tenant, dirs) in cgroups {
            if nr_read >= THREADS_MAX {
                break;
            }
            let list = host.layout.thread_list();
            let threads = dirs.into_iter().flat_map(|dir| numbers_in(host, dir, list, is_no_job));
            let threads: Vec<u32> = threads.collect();
            let binding = (threads.len() <= THREADS_MAX).then(|| {
                nr_read += threads.len();
                usable(host, &threads)
            });
            self.known.insert(tenant, (now, binding.flatten()));
        }
    }

    pub(super) fn of(&self, tenant: NodeId) -> Option<Binding> {
        self.known.get(&tenant)?.1.clone()
    }
}

/// The CPUs that those of `threads` that run may use together; `None` if none runs, or one is not known.
fn usable<K: KernFs>(host: &mut HostAccess<K>, threads: &[u32]) -> Option<Binding> {
    let proc = host.proc();
    let mut all = CpuSet::new();
    for tid in threads {
        let status = match host.kernel.read_once(proc, &format!("{tid}/status")) {
            Ok(status) => status,
            // It ended meanwhile.
            Err(_) => continue,
        };
        let Some(list) = running_on(status) else { continue };
        let cpus: CpuSet = list.parse().ok()?;
        all.extend(&cpus);
    }
    let nr_cpus = all.len() as u32;
    (nr_cpus > 0).then(|| Binding { cpus: all.to_string(), nr_cpus })
}

/// True unless a cgroup has the name of a job's.
fn is_no_job(name: &[u8]) -> bool {
    !name.starts_with(b"job-") && !name.starts_with(b"tenantd-job-")
}
