//! The machine that a policy has to fit, as far as the rules use it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User, getgrouplist};
use procfs::Current;

use super::expand::{Found, FoundUser, Numbers};
use super::installed::{Services, has_cgroup, services};
use super::keys::Policy;
use super::unit_path::{unit_at, unit_of, user_of_slice};
use super::values::cpu_list;
use crate::kernel_text::mountinfo::{CgroupMount, cgroup_mounts};
use crate::kernel_text::proc_files::{CgroupLine, Owner, cgroup_lines, number, owner};
use crate::resource::{PerResource, Resource};
use crate::units::Bytes;

/// The machine a policy is checked against. Plain values, so that a test can be any machine.
#[derive(Clone, Debug)]
pub struct HostFacts {
    /// Numbers of the CPUs that are online, ascending.
    pub cpus: Vec<u32>,
    /// Memory of the machine.
    pub memory: Bytes,
    /// The user of a name. Digits are a number and are not asked for.
    pub find_user: fn(&str) -> Account,
    /// The group of users of a name, likewise.
    pub find_group: fn(&str) -> Account,
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

/// What the machine knows of the name of a user or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account {
    /// It has this number.
    Number(u32),
    /// There is none of this name.
    Missing,
    /// It could not be looked up: a finding would be about the lookup and not about the policy.
    Unknown,
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
            find_user,
            find_group,
            units,
            found,
            services,
            has_cgroup,
        })
    }

    /// A machine of which only the size is known: nothing is said of accounts, units and cgroups.
    pub fn of_size(cpus: u32, memory: Bytes) -> HostFacts {
        HostFacts {
            cpus: (0..cpus).collect(),
            memory,
            find_user: |_| Account::Unknown,
            find_group: |_| Account::Unknown,
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

fn online_cpus(path: &Path) -> io::Result<Vec<u32>> {
    let with_path =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| with_path(&error))?;
    cpu_list(text.trim_end()).map_err(|help| with_path(&help))
}

fn find_user(name: &str) -> Account {
    account(User::from_name(name).map(|user| user.map(|user| user.uid.as_raw())))
}

fn find_group(name: &str) -> Account {
    account(Group::from_name(name).map(|group| group.map(|group| group.gid.as_raw())))
}

fn account(number: nix::Result<Option<u32>>) -> Account {
    match number {
        Ok(Some(number)) => Account::Number(number),
        Ok(None) => Account::Missing,
        Err(_) => Account::Unknown,
    }
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
    let mut found = Found::default();
    for (owner, lines) in processes() {
        let Some(path) = cgroup(&lines, &mounts) else { continue };
        let user = found.users.entry(owner.ruid);
        user.or_insert_with(|| found_user(owner.ruid));
        let parts = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        for above in parts.map(|end| &path[..end]).filter(|above| !above.is_empty()) {
            found.units.extend(unit_at(above).map(str::to_string));
            found.cgroups.insert(above.to_string());
        }
    }
    Some(found)
}

/// The account database of a host.
#[derive(Clone, Copy, Debug)]
pub struct Accounts {
    /// The user of a name.
    pub find_user: fn(&str) -> Account,
    /// The group of users of a name.
    pub find_group: fn(&str) -> Account,
    /// The name and the groups of a user.
    pub user: fn(u32) -> FoundUser,
}

impl Default for Accounts {
    /// That of this machine.
    fn default() -> Accounts {
        Accounts { find_user, find_group, user: found_user }
    }
}

impl Accounts {
    /// The numbers of all accounts that `policy` matches.
    pub fn numbers(&self, policy: &Policy) -> Numbers {
        let known = |account: Account| match account {
            Account::Number(number) => Some(number),
            Account::Missing | Account::Unknown => None,
        };
        let user = |name: &str| known((self.find_user)(name));
        Numbers::of(policy, user, |name| known((self.find_group)(name)))
    }
}

/// What the account database says of a user.
fn found_user(uid: u32) -> FoundUser {
    let Some(user) = User::from_uid(Uid::from_raw(uid)).ok().flatten() else {
        return FoundUser::default();
    };
    let name = CString::new(user.name.as_str()).ok();
    let groups = name.and_then(|name| getgrouplist(&name, user.gid).ok());
    let groups = groups.into_iter().flatten().map(Gid::as_raw).collect();
    FoundUser { name: Some(user.name), groups }
}

fn user_names(uid: u32) -> Vec<String> {
    let name = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    name.into_iter().chain([uid.to_string()]).collect()
}

fn group_names(gid: u32) -> Vec<String> {
    let name = Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
    name.into_iter().chain([gid.to_string()]).collect()
}
