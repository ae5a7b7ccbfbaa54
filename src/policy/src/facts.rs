//! The machine that a policy has to fit, as far as the rules use it.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use procfs::Current;

use super::expand::{Found, FoundUser};
use super::installed::{Services, has_cgroup, services};
use super::unit_path::{unit_at, unit_of, user_of_slice};
use super::values::cpu_list;
use crate::accounts::people::People;
use crate::accounts::{Answer, on_this_machine};
use tenantd_core::kernel_text::mountinfo::{CgroupMount, cgroup_mounts};
use tenantd_core::kernel_text::proc_files::{CgroupLine, Owner, cgroup_lines, number, owner};
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::Bytes;

/// The machine a policy is checked against. Plain values, so that a test can be any machine.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Numbers of the CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// Memory of the machine.
    pub memory: Bytes,
    /// Memory that is set aside as huge pages: no cgroup is charged for it, and it is never reclaimed.
    pub huge_pages: Bytes,
    /// The user of a name. Digits are a number and are not asked for.
    pub find_user: fn(&str) -> Answer<u32>,
    /// The group of users of a name, likewise.
    pub find_group: fn(&str) -> Answer<u32>,
    /// The services and sessions that run now, in the order of their names; none on a host without systemd.
    /// Asked only where a policy claims processes by owner: it looks at every process.
    pub units: fn() -> Vec<UnitFacts>,
    /// The users, units and cgroups that run now; none where they are not known. Asked only where a policy has
    /// templates.
    pub found: fn() -> Option<Found>,
    /// The services that the machine could run; none where they are not known. Asked only where a policy names units.
    pub services: fn() -> Option<Services>,
    /// Whether a pattern matches a cgroup now, which may take as many steps as the second argument has left; also
    /// where that is not known.
    pub has_cgroup: fn(&str, &mut usize) -> bool,
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
        let meminfo = procfs::Meminfo::current().map_err(io::Error::other)?;
        Ok(HostFacts {
            cpus: online_cpus(Path::new("/sys/devices/system/cpu/online"))?,
            memory: Bytes(meminfo.mem_total),
            huge_pages: Bytes(huge_pages(&meminfo)),
            find_user: |name| on_this_machine().user(name),
            find_group: |name| on_this_machine().group(name),
            units,
            found,
            services,
            has_cgroup,
        })
    }

    /// The same without accounts: nothing is looked up. The daemon loads policies so, and reports names and users
    /// itself, because a look-up may take long.
    pub fn without_accounts(self) -> HostFacts {
        let (find_user, find_group) = (|_: &str| Answer::Pending, |_: &str| Answer::Pending);
        HostFacts { find_user, find_group, units: Vec::new, found: || None, ..self }
    }

    /// A machine of which only the size is known: nothing is said of accounts, units and cgroups.
    pub fn of_size(cpus: u32, memory: Bytes) -> HostFacts {
        HostFacts {
            cpus: (0..cpus).collect(),
            memory,
            huge_pages: Bytes(0),
            find_user: |_| Answer::Pending,
            find_group: |_| Answer::Pending,
            units: Vec::new,
            found: || None,
            services: || None,
            has_cgroup: |_, _| true,
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

/// Bytes of huge pages of all sizes; before Linux 4.20 of the default size alone.
fn huge_pages(meminfo: &procfs::Meminfo) -> u64 {
    let of_default = || Some(meminfo.hugepages_total? * meminfo.hugepagesize?);
    meminfo.hugetlb.or_else(of_default).unwrap_or(0)
}

fn online_cpus(path: &Path) -> io::Result<Vec<u32>> {
    let with_path =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| with_path(&error))?;
    cpu_list(text.trim_end()).map_err(|help| with_path(&help))
}

/// The units of this machine, from `/proc`. A process that ends meanwhile is left out.
fn units() -> Vec<UnitFacts> {
    // The test of sd_booted(3).
    if !Path::new("/run/systemd/system").is_dir() {
        return Vec::new();
    }
    let mut accounts: BTreeMap<String, (BTreeSet<u32>, BTreeSet<u32>)> = BTreeMap::new();
    for (owner, lines) in processes() {
        let of_systemd = lines.iter().filter(|line| line.is_of_units());
        let Some(unit) = of_systemd.filter_map(|line| unit_of(&line.path)).next() else { continue };
        let (users, groups) = accounts.entry(unit.to_string()).or_default();
        users.insert(owner.ruid);
        groups.insert(owner.rgid);
        groups.extend(owner.groups);
    }
    let facts = |(name, (users, groups)): (String, (BTreeSet<u32>, BTreeSet<u32>))| UnitFacts {
        users: users.into_iter().flat_map(user_names).collect(),
        groups: groups.into_iter().flat_map(group_names).collect(),
        user_of_slice: user_of_slice(&name).into_iter().flat_map(user_names).collect(),
        name,
    };
    accounts.into_iter().map(facts).collect()
}

/// The owner and the cgroups of each process. One that ends meanwhile, or cannot be read, is left out.
fn processes() -> impl Iterator<Item = (Owner, Vec<CgroupLine>)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| number(entry.file_name().as_bytes()).is_some());
    dirs.filter_map(|entry| {
        let text = |name: &str| std::fs::read(entry.path().join(name)).ok();
        Some((owner(&text("status")?)?, cgroup_lines(&text("cgroup")?)?))
    })
}

/// The cgroup of a process, from the mount, where CPU time is divided.
fn cgroup(lines: &[CgroupLine], mounts: &[CgroupMount]) -> Option<String> {
    let of_cpu = lines.iter().find(|line| line.has("cpu"));
    let line = of_cpu.or_else(|| lines.iter().find(|line| line.hierarchy == 0))?;
    let is_its = |mount: &&CgroupMount| match line.hierarchy {
        0 => mount.is_unified,
        _ => mount.has("cpu"),
    };
    match mounts.iter().find(is_its) {
        Some(mount) => mount.from_mount(&line.path),
        None => Some(line.path.clone()),
    }
}

/// What runs on this machine, from `/proc`: what is empty is not found.
fn found() -> Option<Found> {
    let mounts = cgroup_mounts(&std::fs::read("/proc/self/mountinfo").ok()?);
    let mut found = Found { people: People::of_this_machine(), ..Found::default() };
    let mut with_slices = BTreeSet::new();
    for (owner, lines) in processes() {
        let Some(path) = cgroup(&lines, &mounts) else { continue };
        let user = found.users.entry(owner.ruid);
        user.or_insert_with(|| found_user(owner.ruid));
        let parts = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for above in parts.map(|end| &path[..end]).filter(|above| !above.is_empty()) {
            let unit = unit_at(above);
            with_slices.extend(unit.and_then(user_of_slice));
            found.units.extend(unit.map(str::to_string));
            found.cgroups.insert(above.to_string());
        }
    }
    for (uid, user) in &mut found.users {
        user.has_slice = with_slices.contains(uid);
    }
    Some(found)
}

/// The account of a user on this machine.
fn found_user(uid: u32) -> FoundUser {
    let user = on_this_machine().owner(uid).known().unwrap_or_default();
    let name = Some(user.name).filter(|name| !name.is_empty());
    FoundUser { name, groups: user.groups, has_slice: false }
}

fn user_names(uid: u32) -> Vec<String> {
    let name = on_this_machine().owner(uid).known().map(|user| user.name);
    name.into_iter().chain([uid.to_string()]).collect()
}

fn group_names(gid: u32) -> Vec<String> {
    let name = on_this_machine().group_name(gid).known();
    name.into_iter().chain([gid.to_string()]).collect()
}
