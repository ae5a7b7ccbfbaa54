//! The machine that a policy has to fit, as far as the rules use it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};
use procfs::Current;
use procfs::process::Process;

use super::unit_path::unit_of;
use super::values::cpu_list;
use crate::resource::{PerResource, Resource};
use crate::units::Bytes;

/// The machine a policy is checked against. Plain values, so that a test can be any machine.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Numbers of the CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// Memory of the machine.
    pub memory: Bytes,
    /// Whether the machine has a user of this name.
    pub has_user: fn(&str) -> bool,
    /// Whether the machine has a group of this name.
    pub has_group: fn(&str) -> bool,
    /// The services and sessions that run now, in the order of their names; none on a host without systemd.
    /// Asked only where a policy claims processes by owner: it looks at every process.
    pub units: fn() -> Vec<UnitFacts>,
}

/// A service, a scope or the slice of a user, and the accounts that run something there. Each account is
/// listed by its name and by its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// Its name in a policy.
    pub name: String,
    /// The users of its processes.
    pub users: BTreeSet<String>,
    /// Their groups, supplementary ones included.
    pub groups: BTreeSet<String>,
    /// Where it is the slice of a user: that user.
    pub user_of_slice: BTreeSet<String>,
}

impl HostFacts {
    /// The facts of this machine.
    ///
    /// # Errors
    /// A file of sysfs or procfs could not be read; the error has its path.
    pub fn of_this_machine() -> io::Result<HostFacts> {
        Ok(HostFacts {
            cpus: online_cpus(Path::new("/sys/devices/system/cpu/online"))?,
            memory: Bytes(procfs::Meminfo::current().map_err(io::Error::other)?.mem_total),
            has_user,
            has_group,
            units,
        })
    }

    /// A machine of which only the size is known: every account counts as known, and nothing runs there.
    pub fn of_size(cpus: u32, memory: Bytes) -> HostFacts {
        HostFacts {
            cpus: (0..cpus).collect(),
            memory,
            has_user: |_| true,
            has_group: |_| true,
            units: Vec::new,
        }
    }

    /// All of each resource.
    pub fn machine(&self) -> PerResource<f64> {
        PerResource::from_fn(|resource| resource.amount(self.capacity(resource)))
    }

    /// All of a resource, in smallest units.
    pub fn capacity(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Cpu => self.cpus.len() as u64 * 1000,
            Resource::Memory => self.memory.0,
        }
    }
}

fn online_cpus(path: &Path) -> io::Result<Vec<u32>> {
    let with_path =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| with_path(&error))?;
    cpu_list(text.trim_end()).map_err(|help| with_path(&help))
}

/// A number is a user whether it has a name or not. A name that cannot be looked up counts as known: the
/// finding would be about the lookup and not about the policy.
fn has_user(name: &str) -> bool {
    name.parse::<u32>().is_ok() || User::from_name(name).map_or(true, |user| user.is_some())
}

fn has_group(name: &str) -> bool {
    name.parse::<u32>().is_ok() || Group::from_name(name).map_or(true, |group| group.is_some())
}

/// The units of this machine, from `/proc`. A process that ends meanwhile is left out.
fn units() -> Vec<UnitFacts> {
    // The test of sd_booted(3).
    if !Path::new("/run/systemd/system").is_dir() {
        return Vec::new();
    }
    let mut accounts: BTreeMap<String, (BTreeSet<u32>, BTreeSet<u32>)> = BTreeMap::new();
    let processes = procfs::process::all_processes().into_iter().flatten().flatten();
    for (unit, process) in processes.filter_map(|process| Some((unit(&process)?, process))) {
        let Ok(status) = process.status() else { continue };
        let (users, groups) = accounts.entry(unit).or_default();
        users.insert(status.euid);
        groups.insert(status.egid);
        groups.extend(status.groups.iter().copied());
    }
    let facts = |(name, (users, groups)): (String, (BTreeSet<u32>, BTreeSet<u32>))| UnitFacts {
        users: users.into_iter().flat_map(user_names).collect(),
        groups: groups.into_iter().flat_map(group_names).collect(),
        user_of_slice: uid_of_slice(&name).into_iter().flat_map(user_names).collect(),
        name,
    };
    accounts.into_iter().map(facts).collect()
}

fn unit(process: &Process) -> Option<String> {
    let cgroups = process.cgroups().ok()?;
    let of_systemd = cgroups.0.iter().filter(|cgroup| {
        cgroup.hierarchy == 0 || cgroup.controllers.iter().any(|name| name == "name=systemd")
    });
    of_systemd.filter_map(|cgroup| unit_of(&cgroup.pathname)).next().map(str::to_string)
}

fn uid_of_slice(unit: &str) -> Option<u32> {
    unit.strip_prefix("user-")?.strip_suffix(".slice")?.parse().ok()
}

fn user_names(uid: u32) -> Vec<String> {
    let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    name.into_iter().chain([uid.to_string()]).collect()
}

fn group_names(gid: u32) -> Vec<String> {
    let name = Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
    name.into_iter().chain([gid.to_string()]).collect()
}
