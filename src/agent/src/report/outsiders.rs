//! CPU use outside all tenants, by cgroup.
//!
//! **Terms.** A *place* is an ancestor (up to the mount) of a tenant's cgroup, if that tenant is short of a
//! resource. An *outsider* is a cgroup in a place without a node of the policy, with everything below it. In
//! cgroup v1, and at the top of any hierarchy, the processes directly in a place compete with its cgroups: they
//! are an outsider as well, under the name of the place.
//!
//! **Cost.** A place is read as a whole, so that the sums are of one instant. After a place with n cgroups the
//! next one waits for n / [`READS_PER_TICK`] ticks; in between only the largest outsiders are read again.
//! Nothing is read while no tenant is short of a resource.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::access::HostAccess;
use tenantd_host::cgroup::{self, Facet};
use tenantd_host::enforce::AGENT_CGROUP;
use tenantd_host::kernfs::KernFs;

const SIBLINGS_MAX: usize = 1024;
/// Cgroups read per tick, on average.
const READS_PER_TICK: usize = 32;
/// Number of the largest outsiders, which are read in each tick.
const FOLLOWED_MAX: usize = 8;

#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Duration,
    usage_usec: u64,
    /// CPUs used between the last two readings; `None` after the first.
    cores: Option<f64>,
}

#[derive(Debug, Default)]
pub(super) struct Outsiders {
    seen: HashMap<PathBuf, HashMap<PathBuf, Seen>>,
    round: Vec<PathBuf>,
    homes: BTreeSet<PathBuf>,
    /// Ticks before the next place is read.
    rest: usize,
}

impl Outsiders {
    /// True if the next [`Outsiders::refresh`] begins a round, and needs the places and the cgroups of nodes.
    pub(super) fn begins_round(&self) -> bool {
        self.rest == 0 && self.round.is_empty()
    }

    /// Begins a round over `places`; `homes` are the cgroups of all nodes.
    pub(super) fn begin_round(&mut self, places: BTreeSet<PathBuf>, homes: BTreeSet<PathBuf>) {
        self.seen.retain(|place, _| places.contains(place));
        self.round = places.into_iter().collect();
        self.homes = homes;
    }

    pub(super) fn refresh<K: KernFs>(&mut self, host: &mut HostAccess<K>, now: Duration) {
        let mut nr_read = 0;
        if let Some(rest) = self.rest.checked_sub(1) {
            self.rest = rest;
        } else {
            while nr_read < READS_PER_TICK
                && let Some(place) = self.round.pop()
            {
                nr_read += self.read_place(host, place, now);
            }
            self.rest = (nr_read / READS_PER_TICK).saturating_sub(1);
        }
        self.follow_largest(host, now);
    }

    /// Outsiders in `place` that use at least `cores`, with their CPUs, largest first.
    pub(super) fn in_place(&self, place: &Path, cores: f64) -> Vec<(&Path, f64)> {
        let seen = self.seen.get(place).into_iter().flatten();
        let using = seen.filter_map(|(path, seen)| Some((path.as_path(), seen.cores?)));
        let mut large: Vec<(&Path, f64)> = using.filter(|(_, used)| *used >= cores).collect();
        large.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(other.0)));
        large
    }

    fn read_place<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        place: PathBuf,
        now: Duration,
    ) -> usize {
        let mut before = self.seen.remove(&place).unwrap_or_default();
        let Ok(dir) = host.kernel.open_dir(&place) else { return 1 };
        let names = host.kernel.list_dirs(dir).unwrap_or_default();
        host.kernel.close_dir(dir);
        let (mut found, mut inside_usec, mut nr_read) = (HashMap::new(), 0, 1);
        let counts_direct = names.len() <= SIBLINGS_MAX && has_processes(host, &place);
        for name in names.into_iter().take(SIBLINGS_MAX) {
            let is_agent = name == AGENT_CGROUP;
            let path = place.join(name);
            let is_outsider = !is_agent && !self.is_lived_in(&path);
            if !is_outsider && !counts_direct {
                continue;
            }
            nr_read += 1;
            // A cgroup that went away meanwhile competes with no tenant.
            let Some(usec) = cgroup::usage_usec(&mut host.kernel, &host.layout, &path) else {
                continue;
            };
            inside_usec += usec;
            if is_outsider {
                let seen = Seen::after(before.remove(&path), usec, now);
                found.insert(path, seen);
            }
        }
        if counts_direct {
            let all = cgroup::usage_usec(&mut host.kernel, &host.layout, &place);
            if let Some(usec) = all.map(|all| all.saturating_sub(inside_usec)) {
                found.insert(place.clone(), Seen::after(before.remove(&place), usec, now));
            }
        }
        self.seen.insert(place, found);
        nr_read
    }

    /// Reads the largest outsiders that this tick has not read yet.
    fn follow_largest<K: KernFs>(&mut self, host: &mut HostAccess<K>, now: Duration) {
        let each = self.seen.iter_mut().flat_map(|(place, seen)| {
            // The processes directly in a place are a difference of many readings.
            seen.iter_mut().filter(move |(path, _)| *path != place)
        });
        let mut all: Vec<(&PathBuf, &mut Seen)> = each.collect();
        all.sort_by(|one, other| {
            other.1.cores.unwrap_or(0.0).total_cmp(&one.1.cores.unwrap_or(0.0))
        });
        for (path, seen) in all.into_iter().take(FOLLOWED_MAX).filter(|(_, seen)| seen.at != now) {
            match cgroup::usage_usec(&mut host.kernel, &host.layout, path) {
                Some(usec) => *seen = Seen::after(Some(*seen), usec, now),
                None => seen.cores = None,
            }
        }
    }

    fn is_lived_in(&self, path: &Path) -> bool {
        // In path order, a cgroup is followed by those below it.
        self.homes.range(path.to_path_buf()..).next().is_some_and(|home| home.starts_with(path))
    }
}

impl Seen {
    fn after(before: Option<Seen>, usage_usec: u64, now: Duration) -> Seen {
        let cores = before.and_then(|before| {
            let elapsed_usec = now.checked_sub(before.at)?.as_micros() as f64;
            let used = usage_usec.checked_sub(before.usage_usec)? as f64;
            (elapsed_usec > 0.0).then_some(used / elapsed_usec)
        });
        Seen { at: now, usage_usec, cores }
    }
}

fn has_processes<K>(host: &HostAccess<K>, place: &Path) -> bool {
    let tree = host.layout.tree(Facet::Cpu).map(|tree| &host.layout.trees[tree]);
    !host.layout.is_unified() || tree.is_some_and(|tree| tree.mount == place)
}
