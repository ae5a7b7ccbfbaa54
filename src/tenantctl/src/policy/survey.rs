//! The work on a host now: units of systemd, containers, users, and the usage of each.
//!
//! It reads the same files as the agent. Units are found as cgroups, so only running ones are found; a host
//! without units has users only, by the owners of its processes. Names and weights of tenants are not
//! decided here.

use std::collections::BTreeMap;
use std::path::Path;

use tenantd_core::kernel_text::{path_of, text_of_name};
use tenantd_host::cgroup::{Facet, Layout, LayoutError, ReadError, parse};
use tenantd_host::cgroup::{memory_sample, usage_usec};
use tenantd_host::kernfs::{DirId, KernError, KernFs};
use tenantd_host::machine::Machine;
use tenantd_host::process;
use tenantd_policy::accounts::people::People;
use tenantd_policy::model::{HierarchyChoice, RootChoice};

/// Most cgroups read; a host may have very many.
const MOST_CGROUPS: usize = 20_000;

/// Prefixes of container scopes, by engine.
const CONTAINER_SCOPES: [&str; 4] = ["docker", "libpod", "crio", "cri-containerd"];

/// Findings about a host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Survey {
    /// Online CPUs.
    pub nr_cpus: u32,
    /// Memory of the machine.
    pub memory_bytes: u64,
    /// Busy CPU time of the machine since it started.
    pub busy_usec: u64,
    /// True if systemd keeps units in a unified hierarchy, where they can be tenants.
    pub has_units: bool,
    /// Services and slices with a process.
    pub units: Vec<Found>,
    /// Scopes of containers in `system.slice`, by the pattern of their names.
    pub containers: Vec<Found>,
    /// Top-level cgroups that are not units.
    pub cgroups: Vec<Found>,
    /// People with a process, by UID.
    pub users: BTreeMap<u32, Found>,
    /// Slice of all users, if it exists.
    pub user_slice: Option<Found>,
    /// Slice of all services, if it exists.
    pub system_slice: Option<Found>,
}

/// Something that runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Unit, pattern of scopes, path, or account.
    pub name: String,
    /// CPU time since it started.
    pub usage_usec: Option<u64>,
    /// Memory without inactive file cache.
    pub memory_bytes: Option<u64>,
    /// Number of summed cgroups, or processes of a user on a host without units.
    pub nr_parts: usize,
}

/// Error of a survey.
#[derive(Debug, thiserror::Error)]
pub enum SurveyError {
    /// The host has no cgroups.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A file of the kernel could not be read.
    #[error(transparent)]
    Kernel(#[from] KernError),
    /// The machine's counters could not be read.
    #[error(transparent)]
    Machine(#[from] ReadError),
}

/// Surveys the host of `kernel`; `people` are its UIDs of people, and `user_name` is the name of an account.
///
/// # Errors
/// See [`SurveyError`]. Work that ends meanwhile is left out.
pub fn survey(
    kernel: &mut impl KernFs,
    people: &People,
    user_name: fn(u32) -> Option<String>,
) -> Result<Survey, SurveyError> {
    let mut machine = Machine::open(kernel)?;
    let proc = machine.proc();
    let mountinfo = kernel.read_once(proc, "self/mountinfo")?.to_vec();
    let own = kernel.read_once(proc, "self/cgroup")?.to_vec();
    let layout = Layout::detect(&mountinfo, &own, HierarchyChoice::Auto, &RootChoice::Auto)?;
    let host = machine.sample(kernel)?;
    let mut survey = Survey {
        nr_cpus: host.nr_cpus,
        memory_bytes: host.memory_total_bytes,
        busy_usec: host.busy_usec.unwrap_or(0),
        ..Survey::default()
    };
    if layout.is_unified() {
        let top = layout.trees[0].mount.clone();
        let mut walk = Walk { kernel, layout: &layout, people, user_name, left: MOST_CGROUPS };
        walk.top(&top, &mut survey);
    }
    if !survey.has_units {
        survey.users = users(kernel, proc, people, user_name)?;
    }
    Ok(survey)
}

fn users(
    kernel: &mut impl KernFs,
    proc: DirId,
    people: &People,
    user_name: fn(u32) -> Option<String>,
) -> Result<BTreeMap<u32, Found>, KernError> {
    let mut users: BTreeMap<u32, Found> = BTreeMap::new();
    for pid in process::all(kernel, proc)? {
        // People only.
        let uid = process::owner(kernel, proc, pid).ok().flatten().map(|owner| owner.ruid);
        let uid = uid.filter(|uid| people.includes(*uid, true));
        if let Some((uid, name)) = uid.and_then(|uid| Some((uid, user_name(uid)?))) {
            users.entry(uid).or_insert_with(|| Found { name, ..Found::default() }).nr_parts += 1;
        }
    }
    Ok(users)
}

struct Walk<'a, K> {
    kernel: &'a mut K,
    layout: &'a Layout,
    people: &'a People,
    user_name: fn(u32) -> Option<String>,
    left: usize,
}

impl<K: KernFs> Walk<'_, K> {
    fn top(&mut self, mount: &Path, survey: &mut Survey) {
        let names = self.children(mount);
        survey.has_units = names.iter().any(|name| name == "init.scope" || name == "system.slice");
        for name in names {
            let path = mount.join(path_of(&name));
            match name.as_str() {
                "init.scope" | "tenants.slice" => {}
                "user.slice" => {
                    survey.user_slice = self.found(&path, &name);
                    self.users(&path, survey);
                }
                "system.slice" => {
                    survey.system_slice = self.found(&path, &name);
                    self.services(&path, survey);
                }
                _ if name.ends_with(".slice") || name.ends_with(".service") => {
                    survey.units.extend(self.found(&path, &name));
                }
                // Mounts and swaps are units without processes, and scopes come and go.
                _ if name.contains('.') || !survey.has_units => {}
                _ => survey.cgroups.extend(self.found(&path, &format!("/{name}"))),
            }
        }
    }

    /// Finds services, and the slices in which systemd puts the instances of a template.
    fn services(&mut self, slice: &Path, survey: &mut Survey) {
        let mut containers: BTreeMap<&str, Found> = BTreeMap::new();
        for name in self.children(slice) {
            let path = slice.join(path_of(&name));
            let engine = CONTAINER_SCOPES.into_iter().find(|engine| {
                let rest = name.strip_prefix(engine).and_then(|rest| rest.strip_prefix('-'));
                rest.is_some_and(|rest| rest.ends_with(".scope"))
            });
            if let Some(engine) = engine {
                let Some(one) = self.found(&path, &name) else { continue };
                let name = format!("{engine}-*.scope");
                let sum =
                    containers.entry(engine).or_insert_with(|| Found { name, ..Found::default() });
                sum.add(&one);
            } else if name.ends_with(".service") || name.ends_with(".slice") {
                survey.units.extend(self.found(&path, &name));
            }
        }
        survey.containers.extend(containers.into_values());
    }

    fn users(&mut self, slice: &Path, survey: &mut Survey) {
        for unit in self.children(slice) {
            let uid = unit.strip_prefix("user-").and_then(|rest| rest.strip_suffix(".slice"));
            let uid =
                uid.and_then(|uid| uid.parse().ok()).filter(|uid| self.people.includes(*uid, true));
            let Some(uid) = uid else { continue };
            let name = (self.user_name)(uid).unwrap_or_else(|| uid.to_string());
            let found = self.found(&slice.join(path_of(&unit)), &name);
            survey.users.extend(found.map(|found| (uid, found)));
        }
    }

    fn children(&mut self, path: &Path) -> Vec<String> {
        let Ok(dir) = self.kernel.open_dir(path) else { return Vec::new() };
        let names = self.kernel.list_dirs(dir).unwrap_or_default();
        self.kernel.close_dir(dir);
        let mut names: Vec<String> = names.iter().map(|name| text_of_name(name)).collect();
        names.sort_unstable();
        names.truncate(self.left);
        self.left -= names.len();
        names
    }

    /// Usage of the cgroup at `path`; `None` without a process.
    fn found(&mut self, path: &Path, name: &str) -> Option<Found> {
        let dir = self.kernel.open_dir(path).ok()?;
        let events = self.kernel.read_once(dir, "cgroup.events").ok();
        let populated = events.and_then(|text| parse::keyed(text, ["populated"]).ok()?[0]);
        let memory = self
            .layout
            .tree(Facet::Memory)
            .and_then(|_| memory_sample(self.kernel, self.layout, dir).ok());
        self.kernel.close_dir(dir);
        (populated == Some(1)).then(|| Found {
            name: name.to_string(),
            usage_usec: usage_usec(self.kernel, self.layout, path),
            memory_bytes: memory.map(|memory| memory.working_set_bytes()),
            nr_parts: 1,
        })
    }
}

impl Found {
    fn add(&mut self, one: &Found) {
        let sum =
            |a: Option<u64>, b: Option<u64>| a.into_iter().chain(b).reduce(u64::saturating_add);
        self.usage_usec = sum(self.usage_usec, one.usage_usec);
        self.memory_bytes = sum(self.memory_bytes, one.memory_bytes);
        self.nr_parts += one.nr_parts;
    }
}
