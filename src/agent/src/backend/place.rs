//! One node's cgroup: opened, sampled and observed in the same way for every owner.

use super::access::HostAccess;
use super::location::Location;
use super::nested_kills::NestedKills;
use tenantd_control::measure::disk::PerDisk;
use tenantd_control::measure::sample::TenantSample;
use tenantd_control::measure::thread_budget::{Look, PER_TENANT};
use tenantd_control::state::drift::Observation;
use tenantd_control::state::step::Sampling;
use tenantd_control::words::knob::{Knob, Value};
use tenantd_host::cgroup::{self, Cgroup, Facet, Known, Last, Layout, ReadError, Threads};
use tenantd_host::kernfs::{ErrorKind, KernError, KernFs};

#[derive(Debug)]
pub(super) struct Place {
    pub(super) location: Location,
    pub(super) cgroup: Option<Cgroup>,
    /// In cgroup v1: true if its cpuset was seen with CPUs and memory nodes.
    pub(super) has_cpus: bool,
    nested_kills: NestedKills,
    /// In cgroup v1: true if all processes that the agent put into it are in its cpuset as well.
    pub(super) is_joined: bool,
    /// Population and devices of the last sample, and true if some of its readings failed.
    population: Option<Known>,
    disks: PerDisk<()>,
    has_gaps: bool,
    /// True if samples found processes in it, and if the last one found none any more.
    was_populated: bool,
    pub(super) is_emptied: bool,
}

#[derive(Debug)]
pub(crate) struct Sampled {
    pub(crate) sample: TenantSample,
    /// OOM kills; `None` if not sampled.
    pub(crate) nr_oom_kills: Option<u64>,
    pub(crate) nr_threads: Option<usize>,
    pub(crate) gaps: Vec<ReadError>,
}

#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) values: Vec<(Knob, Value)>,
    pub(super) gone: Vec<Knob>,
    pub(super) gaps: Vec<ReadError>,
}

impl Place {
    pub(super) fn new(location: Location) -> Place {
        Place {
            location,
            cgroup: None,
            has_cpus: false,
            nested_kills: NestedKills::default(),
            is_joined: false,
            population: None,
            disks: PerDisk::default(),
            has_gaps: false,
            was_populated: false,
            is_emptied: false,
        }
    }

    pub(super) fn close(&mut self, kernel: &mut impl KernFs) {
        (self.has_cpus, self.is_joined) = (false, false);
        (self.was_populated, self.is_emptied) = (false, false);
        self.population = None;
        self.nested_kills = NestedKills::default();
        if let Some(cgroup) = self.cgroup.take() {
            cgroup.close(kernel);
        }
    }

    pub(super) fn is_populated(&self) -> bool {
        self.was_populated && !self.is_emptied
    }

    pub(super) fn has(&self, layout: &Layout, knob: Knob) -> bool {
        self.cgroup.as_ref().is_some_and(|cgroup| cgroup.has(layout, knob))
    }

    /// Reads the counters; `None` if the cgroup is not open. `last` is an earlier sample of the node, if it has one. Fails
    /// if the cgroup is gone.
    pub(super) fn sample<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        sampling: Sampling,
        last: Option<&TenantSample>,
    ) -> Option<Result<Sampled, KernError>> {
        let cgroup = self.cgroup.as_ref()?;
        let disks = host.machine.sampled_disks();
        let last = Last {
            population: self.population,
            sample: last.filter(|last| last.generation == cgroup.generation()),
            // Failed readings are tried and reported again in each tick.
            is_due: sampling.all || self.has_gaps,
            disks,
            has_other_disks: self.disks != disks,
        };
        let mut read = read_counters(cgroup, host, sampling, &last);
        if let Ok(Sampled { sample, gaps, .. }) = &read {
            (self.has_gaps, self.disks) = (!gaps.is_empty(), disks);
            let before = self.population;
            let usage_usec = sample.usage_usec.or(before.and_then(|known| known.usage_usec));
            let known = sample.populated.map(|populated| Known { populated, usage_usec });
            self.population = known.or(before);
            self.was_populated |= sample.populated == Some(true);
            self.is_emptied = self.was_populated && sample.populated == Some(false);
        }
        if !host.layout.is_unified()
            && let Ok(Sampled { nr_oom_kills: Some(kills), .. }) = &mut read
            && let Some(dir) = cgroup.dir(&host.layout, Facet::Memory)
        {
            *kills += self.nested_kills.count(&mut host.kernel, dir, sampling.all);
        }
        Some(read)
    }

    pub(super) fn observe<K: KernFs>(
        &self,
        host: &mut HostAccess<K>,
        knobs: impl Iterator<Item = Knob>,
    ) -> Option<Observed> {
        let cgroup = self.cgroup.as_ref()?;
        let mut observed = Observed::default();
        for knob in knobs {
            match cgroup.observe(&mut host.kernel, &host.layout, knob) {
                Ok(value) => observed.values.push((knob, value)),
                Err(error) if error.is_gone() => observed.gone.push(knob),
                Err(ReadError::Kernel(error)) if error.kind() == ErrorKind::Unsupported => {}
                Err(error) => observed.gaps.push(error),
            }
        }
        Some(observed)
    }

    pub(super) fn held_before<K: KernFs>(
        &self,
        host: &mut HostAccess<K>,
        knob: Knob,
    ) -> Option<Value> {
        let dir = self.cgroup.as_ref()?.knob_dir(&host.layout, knob).ok()?;
        let (path, inode) = (host.kernel.dir_path(dir), host.kernel.inode(dir).ok()?);
        let held = host.journal.held_file(&path, inode, host.file(knob))?;
        host.layout.read(knob, held.as_bytes()).ok()
    }
}

impl Observed {
    /// Converts the values; `is_ours` is true for requested values that arrived only now.
    pub(super) fn into_observations(
        self,
        is_ours: impl Fn(Knob, &Value) -> bool,
    ) -> Vec<Observation> {
        let observation = |(knob, value): (Knob, Value)| {
            let is_ours = is_ours(knob, &value);
            Observation { knob, value, is_ours }
        };
        self.values.into_iter().map(observation).collect()
    }
}

fn read_counters<K: KernFs>(
    cgroup: &Cgroup,
    host: &mut HostAccess<K>,
    sampling: Sampling,
    last: &Last<'_>,
) -> Result<Sampled, KernError> {
    let mut gaps = Vec::new();
    let proc = host.proc();
    let HostAccess { kernel, layout, .. } = host;
    let mut sample = cgroup.sample(kernel, sampling.times_of_empty, last, &mut gaps)?;
    if sample.populated == Some(false) {
        let nr_oom_kills =
            if sampling.kills_of_empty { cgroup.oom_kills(kernel, &mut gaps)? } else { None };
        return Ok(Sampled { sample, nr_oom_kills, nr_threads: None, gaps });
    }
    let found = match sampling.threads {
        Look::None => None,
        Look::Count | Look::Read(_) => cgroup.threads(kernel, layout, PER_TENANT, &mut gaps)?,
    };
    let nr_threads = found.as_ref().map(nr_at_least);
    let found = found.filter(|_| nr_threads.is_some_and(|nr| sampling.threads.reads(nr)));
    sample.threads = found.map(|found| cgroup::thread_samples(kernel, proc, &found.tids));
    let nr_oom_kills = sample.memory.and_then(|memory| memory.nr_oom_kills);
    Ok(Sampled { sample, nr_oom_kills, nr_threads, gaps })
}

/// Number of threads. If not all were found, more than are read of any tenant.
fn nr_at_least(found: &Threads) -> usize {
    let nr_found = found.tids.len();
    if found.is_whole { nr_found } else { nr_found.max(PER_TENANT + 1) }
}
