//! Inspection of a tenant or a group: its members, and the processes in them, the largest first.
//!
//! The daemon reports the members' cgroups; their processes are read here, with the permissions of the caller,
//! and only while they are shown. Everything is bounded: a tenant may have any number of cgroups and processes.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

use tenantd_control::report::explanation::{Explanation, ValueStep};
use tenantd_control::words::knob::Knob;
use tenantd_core::kernel_text::proc_files::process_numbers;
use tenantd_host::cgroup::parse;
use tenantd_host::kernfs::{DirId, KernError, KernFs};
use tenantd_host::knobs::{Row, row_of};
use tenantd_host::process;

const MOST_PROCESSES: usize = 4096;
/// Most cgroups read, of all members together.
const MOST_CGROUPS: usize = 1000;

/// Result of an inspection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Inspection {
    /// Tenant or group.
    pub name: String,
    /// Members of the tenant.
    pub members: Vec<Member>,
    /// Processes that could be read.
    pub processes: Vec<Process>,
    /// Number of existing processes that could not be read, or are beyond the bound.
    pub nr_unread: usize,
    /// Obstacle to the inspection.
    pub problem: Option<String>,
}

/// A cgroup with processes of a tenant.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Member {
    /// Tenant of the cgroup.
    pub tenant: String,
    /// Directory of the cgroup.
    pub cgroup: PathBuf,
    /// Processes in it and below it; `None` if it does not exist.
    pub nr_processes: Option<usize>,
    /// CPUs used by these.
    pub cpu_cores: Option<f64>,
    /// Memory held, including all file cache.
    pub memory_bytes: Option<u64>,
}

/// One process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Process ID.
    pub pid: u32,
    /// Start time in clock ticks, which tells it from a later process with this number.
    pub start_ticks: u64,
    /// Command line, or the name without one; without control characters.
    pub command: String,
    /// CPUs used since the last look.
    pub cpu_cores: Option<f64>,
    /// Memory held, including shared memory.
    pub resident_bytes: u64,
}

/// Cgroup of a member.
#[derive(Clone, Debug, PartialEq)]
pub struct Home {
    tenant: String,
    cgroup: PathBuf,
    memory: Option<(PathBuf, &'static str)>,
}

/// Cgroups of a tenant's members, from the paths of the files written for them.
pub fn homes(explanation: &Explanation) -> Vec<Home> {
    let members = explanation.members.iter().map(|member| &member.values);
    // A tenant of one cgroup has no list of members.
    let values: Vec<&Vec<ValueStep>> =
        if explanation.members.is_empty() { vec![&explanation.values] } else { members.collect() };
    values.into_iter().filter_map(|values| home(&explanation.tenant, values)).collect()
}

fn home(tenant: &str, values: &[ValueStep]) -> Option<Home> {
    let file_of = |row: &Row| {
        let mut files = values.iter().filter_map(|value| value.path.rsplit_once('/'));
        files.find(|(_, name)| row.is_in(name))
    };
    let (cgroup, _) = file_of(row_of(Knob::CpuWeight))?;
    let low = row_of(Knob::MemoryLow);
    let memory = file_of(low).map(|(dir, name)| {
        let is_unified = name == low.unified;
        (dir.into(), if is_unified { "memory.current" } else { "memory.usage_in_bytes" })
    });
    Some(Home { tenant: tenant.to_string(), cgroup: cgroup.into(), memory })
}

/// Repeated inspection, which gives rates.
#[derive(Debug, Default)]
pub struct Inspector {
    /// Start and CPU time of each process at the last look.
    before: HashMap<u32, (u64, f64)>,
    at: Option<Instant>,
    /// Reads no arguments of programs.
    has_names_only: bool,
}

impl Inspector {
    /// Creates an inspector that gives the name of each program instead of its command line.
    pub(crate) fn of_names() -> Inspector {
        Inspector { has_names_only: true, ..Inspector::default() }
    }

    /// Inspects the members `homes` of the tenant or group `name`.
    pub fn look(
        &mut self,
        kernel: &mut impl KernFs,
        (name, homes): (&str, &[Home]),
        now: Instant,
    ) -> Inspection {
        let elapsed = self.at.replace(now).map(|at| now.saturating_duration_since(at));
        let elapsed = elapsed.map(|elapsed| elapsed.as_secs_f64()).filter(|it| *it > 0.0);
        let before = std::mem::take(&mut self.before);
        let mut found = Inspection { name: name.to_string(), ..Inspection::default() };
        let proc = match kernel.open_dir(Path::new("/proc")) {
            Ok(proc) => proc,
            Err(error) => return Inspection { problem: Some(error.to_string()), ..found },
        };
        let mut left = MOST_CGROUPS;
        for home in homes {
            let pids = pids_below(kernel, &home.cgroup, &mut left);
            let mut cores = None;
            for pid in pids.iter().flatten() {
                let is_beyond = found.processes.len() >= MOST_PROCESSES;
                let usage = process::usage(kernel, proc, *pid).filter(|_| !is_beyond);
                let Some(usage) = usage else {
                    found.nr_unread += 1;
                    continue;
                };
                let same = before.get(pid).filter(|(start, _)| *start == usage.start_ticks);
                let used = same
                    .zip(elapsed)
                    .map(|((_, then), elapsed)| (usage.cpu_seconds - then).max(0.0) / elapsed);
                cores = cores.into_iter().chain(used).reduce(|a: f64, b| a + b);
                self.before.insert(*pid, (usage.start_ticks, usage.cpu_seconds));
                let has_line = !self.has_names_only;
                let line = has_line.then(|| process::command_line(kernel, proc, *pid)).flatten();
                found.processes.push(Process {
                    pid: *pid,
                    start_ticks: usage.start_ticks,
                    command: line.unwrap_or(usage.name),
                    cpu_cores: used,
                    resident_bytes: usage.resident_bytes,
                });
            }
            found.members.push(Member {
                tenant: home.tenant.clone(),
                cgroup: home.cgroup.clone(),
                nr_processes: pids.map(|pids| pids.len()),
                cpu_cores: cores,
                memory_bytes: memory(kernel, home),
            });
        }
        kernel.close_dir(proc);
        found
    }
}

impl Inspection {
    /// Sorts by CPU time, or by memory, the largest first.
    pub fn sort(&mut self, by_memory: bool) {
        let cpu = |it: &Process| it.cpu_cores.unwrap_or(0.0);
        self.processes.sort_by(|a, b| {
            let (by_cpu, by_size) =
                (cpu(b).total_cmp(&cpu(a)), b.resident_bytes.cmp(&a.resident_bytes));
            if by_memory { by_size.then(by_cpu) } else { by_cpu.then(by_size) }
        });
    }
}

/// Processes in a cgroup and below it; `None` if it does not exist. Cgroups may be nested more deeply than a stack is large.
fn pids_below(kernel: &mut impl KernFs, path: &Path, left: &mut usize) -> Option<Vec<u32>> {
    let mut found: Option<Vec<u32>> = None;
    let mut open = vec![path.to_path_buf()];
    while let Some(path) = open.pop().filter(|_| *left > 0) {
        *left -= 1;
        let Ok(dir) = kernel.open_dir(&path) else { continue };
        let contents = contents(kernel, dir);
        kernel.close_dir(dir);
        let Ok((pids, names)) = contents else { continue };
        found.get_or_insert_default().extend(pids);
        open.extend(names.into_iter().map(|name| path.join(name)));
    }
    found
}

fn contents(kernel: &mut impl KernFs, dir: DirId) -> Result<(Vec<u32>, Vec<OsString>), KernError> {
    let pids = process_numbers(kernel.read_once(dir, "cgroup.procs")?).collect();
    Ok((pids, kernel.list_dirs(dir)?))
}

fn memory(kernel: &mut impl KernFs, home: &Home) -> Option<u64> {
    let (path, usage) = home.memory.as_ref()?;
    let dir = kernel.open_dir(path).ok()?;
    let bytes = kernel.read_once(dir, usage).ok().map(|text| parse::single(text, "bytes"));
    kernel.close_dir(dir);
    bytes?.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_host::kernfs::RealKernFs;

    #[test]
    fn deeply_nested_cgroups_need_no_deep_stack() {
        const DEPTH: u32 = 400;
        let dir = tempfile::tempdir().unwrap();
        let mut path = dir.path().to_path_buf();
        for pid in 1..=DEPTH {
            std::fs::write(path.join("cgroup.procs"), format!("{pid}\n")).unwrap();
            path.push("c");
            std::fs::create_dir(&path).unwrap();
        }
        let root = dir.path().to_path_buf();
        let look = move |mut left| pids_below(&mut RealKernFs::new(), &root, &mut left);
        let small = std::thread::Builder::new().stack_size(128 << 10);
        let looks = move || (look(MOST_CGROUPS), look(3));
        let (all, some) = small.spawn(looks).unwrap().join().unwrap();
        assert_eq!(all, Some((1..=DEPTH).collect()));
        assert_eq!(some, Some(vec![1, 2, 3]));
    }
}
