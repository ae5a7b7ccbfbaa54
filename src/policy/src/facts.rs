//! Facts of the machine for the rules of a policy.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use procfs::Current;

use super::expand::{Found, FoundUser};
use super::installed::{Services, has_cgroup, services};
use super::unit_files::{UnitSetting, settings};
use super::unit_path::{unit_at, unit_of, user_of_slice};
use super::values::cpu_list;
use crate::accounts::people::People;
use crate::accounts::{Answer, on_this_machine};
use tenantd_core::kernel_text::mountinfo::{self, CgroupMount, cgroup_mounts};
use tenantd_core::kernel_text::proc_files::{CgroupLine, Owner, cgroup_lines, number, owner};
use tenantd_core::kernel_text::text_of;
use tenantd_core::resource::{PerResource, Resource};
use tenantd_core::units::Bytes;

/// Machine against which a policy is checked. Plain values, so that a test can describe any machine.
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
    /// Looks up a group name, likewise.
    pub find_group: fn(&str) -> Answer<u32>,
    /// All groups of a user; `None` if unknown. Called only if a policy claims both users and groups.
    pub groups_of: fn(u32) -> Option<Vec<u32>>,
    /// Cgroups of systemd on the machine.
    pub systemd: Systemd,
    /// Lists the running services and sessions, sorted; empty without systemd. It reads every process, so
    /// it is called only if a policy claims processes by owner.
    pub units: fn() -> Vec<UnitFacts>,
    /// Finds the running users, units and cgroups; `None` if unknown. Called only if a policy has templates.
    pub found: fn() -> Option<Found>,
    /// Lists the services of the machine; `None` if unknown. Called only if a policy names units.
    pub services: fn() -> Option<Services>,
    /// True if a pattern matches a cgroup now, or if that is unknown. The second argument is the remaining
    /// number of steps.
    pub has_cgroup: fn(&str, &mut usize) -> bool,
    /// True if there is a device at a path, or if that is unknown.
    pub has_device: fn(&Path) -> bool,
    /// True if the devices controller of cgroup v1 is mounted, or if that is unknown.
    pub has_devices_tree: bool,
    /// Kind of the file system at a path, as in `mountinfo`; `None` if unknown. Called only if a policy bounds or weighs disks.
    pub file_system: fn(&Path) -> Option<String>,
    /// Lists the disks with a scheduler; `None` if unknown. Called only if a policy weighs disks.
    pub disks: fn() -> Option<Vec<DiskFacts>>,
    /// True if there is a disk of this name, or if that is unknown. Called only if a policy names disks.
    pub has_disk: fn(&str) -> bool,
    /// Lists the settings in the files of a unit. Called only if a tenant is a unit.
    pub unit_settings: fn(&str) -> Vec<UnitSetting>,
}

/// A disk with a scheduler.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskFacts {
    /// Name of the device.
    pub name: String,
    /// The chosen scheduler.
    pub scheduler: String,
    /// True if `io.cost` is on.
    pub has_cost: bool,
}

/// Cgroups of systemd on a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Systemd {
    /// Unknown.
    #[default]
    Unknown,
    /// In the unified hierarchy: units and the slices of users can be tenants.
    Unified,
    /// In a legacy hierarchy.
    Legacy,
    /// Systemd does not run the machine.
    Absent,
}

/// A service, a scope or a user's slice, with the accounts of its processes. Each account is listed by name
/// and by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitFacts {
    /// Name in a policy.
    pub name: String,
    /// Users of its processes.
    pub users: BTreeSet<String>,
    /// Groups of its processes, including supplementary ones.
    pub groups: BTreeSet<String>,
    /// User of a user's slice, by name and number.
    pub user_of_slice: BTreeSet<String>,
}

/// Rules to try beside those about the text.
#[derive(Clone, Copy, Default)]
pub(super) struct Scope<'h> {
    pub(super) host: Option<&'h HostFacts>,
    pub(super) has_notes: bool,
}

impl<'h> Scope<'h> {
    pub(super) fn on(host: &'h HostFacts) -> Scope<'h> {
        Scope { host: Some(host), has_notes: false }
    }
}

impl HostFacts {
    /// Reads the facts of this machine.
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
            groups_of: |uid| on_this_machine().owner(uid).known().map(|user| user.groups),
            systemd: systemd(),
            units,
            found,
            services,
            has_cgroup,
            has_device,
            has_devices_tree: has_devices_tree(),
            file_system,
            disks,
            has_disk,
            unit_settings: settings,
        })
    }

    /// Removes account look-ups from the facts. The daemon loads policies this way and reports unknown
    /// names itself, because a look-up may take long.
    pub fn without_accounts(self) -> HostFacts {
        let (find_user, find_group) = (|_: &str| Answer::Pending, |_: &str| Answer::Pending);
        let (groups_of, units) = (|_| None, Vec::new);
        HostFacts { find_user, find_group, groups_of, units, found: || None, ..self }
    }

    /// A machine of known size, with unknown accounts, units and cgroups.
    pub fn of_size(cpus: u32, memory: Bytes) -> HostFacts {
        HostFacts {
            cpus: (0..cpus).collect(),
            memory,
            huge_pages: Bytes(0),
            find_user: |_| Answer::Pending,
            find_group: |_| Answer::Pending,
            groups_of: |_| None,
            systemd: Systemd::Unknown,
            units: Vec::new,
            found: || None,
            services: || None,
            has_cgroup: |_, _| true,
            has_device: |_| true,
            has_devices_tree: true,
            file_system: |_| None,
            disks: || None,
            has_disk: |_| true,
            unit_settings: |_| Vec::new(),
        }
    }

    /// Capacity of each resource.
    pub fn machine(&self) -> PerResource<f64> {
        PerResource::from_fn(|resource| resource.amount(self.capacity(resource)))
    }

    /// Capacity of a resource, in smallest units.
    pub fn capacity(&self, resource: Resource) -> u64 {
        match resource {
            Resource::Cpu => self.cpus.len() as u64 * 1000,
            Resource::Memory => self.memory.0,
        }
    }
}

/// Bytes of huge pages of all sizes; before Linux 4.20 of the default size alone.
pub fn huge_pages(meminfo: &procfs::Meminfo) -> u64 {
    let of_default = || Some(meminfo.hugepages_total? * meminfo.hugepagesize?);
    meminfo.hugetlb.or_else(of_default).unwrap_or(0)
}

fn online_cpus(path: &Path) -> io::Result<Vec<u32>> {
    let with_path =
        |error: &dyn std::fmt::Display| io::Error::other(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| with_path(&error))?;
    cpu_list(text.trim_end()).map_err(|help| with_path(&help))
}

fn systemd() -> Systemd {
    // The test of sd_booted(3).
    if !Path::new("/run/systemd/system").is_dir() {
        return Systemd::Absent;
    }
    match std::fs::read("/proc/self/mountinfo").map(|text| cgroup_mounts(&text)) {
        Ok(mounts) if mounts.iter().any(|mount| !mount.is_unified && mount.has("cpu")) => {
            Systemd::Legacy
        }
        Ok(mounts) if mounts.iter().any(|mount| mount.is_unified) => Systemd::Unified,
        _ => Systemd::Unknown,
    }
}

fn has_device(path: &Path) -> bool {
    let kind = std::fs::metadata(path).map(|metadata| metadata.file_type());
    kind.is_ok_and(|kind| kind.is_char_device() || kind.is_block_device())
}

fn has_devices_tree() -> bool {
    let mounts = std::fs::read("/proc/self/mountinfo").map(|text| cgroup_mounts(&text));
    let is_tree = |mount: &CgroupMount| !mount.is_unified && mount.has("devices");
    mounts.map_or(true, |mounts| mounts.iter().any(is_tree))
}

fn file_system(path: &Path) -> Option<String> {
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    Some(text_of(mountinfo::kind_at(&text, path)?))
}

/// Disks of `/sys/block` whose scheduler can be chosen: stacks, loops and disks in memory are left out.
fn disks() -> Option<Vec<DiskFacts>> {
    let costs = std::fs::read_to_string("/sys/fs/cgroup/io.cost.qos").unwrap_or_default();
    let is_on = |number: &str| {
        let mut lines = costs.lines().filter_map(|line| line.split_once(' '));
        lines.any(|(disk, rest)| disk == number && rest.split(' ').any(|word| word == "enable=1"))
    };
    let mut disks = Vec::new();
    for entry in std::fs::read_dir("/sys/block").ok()?.flatten() {
        let name = text_of(entry.file_name().as_bytes());
        let text = |file: &str| std::fs::read_to_string(entry.path().join(file)).ok();
        let is_void = ["loop", "ram", "zram", "dm-", "md"].iter().any(|it| name.starts_with(it));
        let Some(schedulers) = text("queue/scheduler").filter(|_| !is_void) else { continue };
        let chosen = schedulers.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        let Some((scheduler, _)) = chosen else { continue };
        let has_cost = text("dev").is_some_and(|number| is_on(number.trim()));
        disks.push(DiskFacts { name, scheduler: scheduler.to_string(), has_cost });
    }
    disks.sort_by(|a, b| a.name.cmp(&b.name));
    Some(disks)
}

fn has_disk(name: &str) -> bool {
    let all = Path::new("/sys/block");
    !all.is_dir() || all.join(name.replace('/', "!")).is_dir()
}

/// Units of this machine, from `/proc`, without processes that end meanwhile.
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

fn processes() -> impl Iterator<Item = (Owner, Vec<CgroupLine>)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| number(entry.file_name().as_bytes()).is_some());
    dirs.filter_map(|entry| {
        let text = |name: &str| std::fs::read(entry.path().join(name)).ok();
        Some((owner(&text("status")?)?, cgroup_lines(&text("cgroup")?)?))
    })
}

/// Cgroup of a process in the hierarchy that divides CPU time, from the mount.
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

/// Things that run on this machine, from `/proc`; empty cgroups are not found.
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
