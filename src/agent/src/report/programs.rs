//! The main program of a cgroup outside all tenants: the process that uses most CPU time.
//!
//! Reading processes is expensive, so it is done only for the few named cgroups, and twice for each: the
//! difference shows the main program. It is repeated after [`AGAIN_AFTER`]. A tick reads at most about
//! [`PROCESSES_MAX`] processes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::backend::access::HostAccess;
use tenantd_core::kernel_text::proc_files::process_numbers;
use tenantd_host::kernfs::KernFs;
use tenantd_host::process;

const AGAIN_AFTER: Duration = Duration::from_secs(10);
const CGROUPS_MAX: usize = 64;
const PROCESSES_MAX: usize = 1024;

#[derive(Debug, Default)]
struct Program {
    command: Option<String>,
    at: Duration,
    /// CPU time of each process, in ticks, by pid and start.
    used: HashMap<(u32, u64), u64>,
    /// True if the last reading had one before it.
    is_compared: bool,
}

#[derive(Debug, Default)]
pub(super) struct Programs {
    known: HashMap<PathBuf, Program>,
}

impl Programs {
    /// Reads the processes of those of the `cgroups` that are due; forgets others after a while. The flag of a
    /// cgroup is true if only processes directly in it count.
    pub(super) fn refresh<K: KernFs>(
        &mut self,
        host: &mut HostAccess<K>,
        cgroups: &[(PathBuf, bool)],
        now: Duration,
    ) {
        let is_named = |known: &PathBuf| cgroups.iter().any(|(path, _)| path == known);
        self.known.retain(|known, program| {
            is_named(known) || now.saturating_sub(program.at) < AGAIN_AFTER
        });
        let is_due = |path: &PathBuf| match self.known.get(path) {
            Some(known) if known.is_compared => now.saturating_sub(known.at) >= AGAIN_AFTER,
            _ => true,
        };
        let due: Vec<&(PathBuf, bool)> = cgroups.iter().filter(|(path, _)| is_due(path)).collect();
        let mut nr_read = 0;
        for (path, is_direct) in due {
            if nr_read >= PROCESSES_MAX {
                break;
            }
            let pids = numbers_in(host, path, "cgroup.procs", |_| !is_direct);
            nr_read += pids.len();
            self.known.entry(path.clone()).or_default().compare(host, &pids, now);
        }
    }

    pub(super) fn of(&self, cgroup: &Path) -> Option<&str> {
        self.known.get(cgroup)?.command.as_deref()
    }
}

impl Program {
    fn compare<K: KernFs>(&mut self, host: &mut HostAccess<K>, pids: &[u32], now: Duration) {
        let proc = host.proc();
        let before = std::mem::take(&mut self.used);
        let mut largest: Option<(u64, String)> = None;
        for &pid in pids {
            let Some(work) = process::work(&mut host.kernel, proc, pid) else { continue };
            let key = (pid, work.start_ticks);
            // All time of a process that started in between counts.
            let used = work.cpu_ticks.saturating_sub(before.get(&key).copied().unwrap_or(0));
            self.used.insert(key, work.cpu_ticks);
            if used > 0 && largest.as_ref().is_none_or(|(most, _)| used > *most) {
                largest = Some((used, work.command));
            }
        }
        (self.at, self.is_compared) = (now, !before.is_empty());
        if self.is_compared {
            self.command = largest.map(|(_, command)| command);
        }
    }
}

/// Numbers in `list` of a cgroup, and of those inside whose names pass: about [`PROCESSES_MAX`] at most.
pub(super) fn numbers_in<K: KernFs>(
    host: &mut HostAccess<K>,
    cgroup: &Path,
    list: &str,
    passes: impl Fn(&[u8]) -> bool,
) -> Vec<u32> {
    let (mut pids, mut nr_read) = (Vec::new(), 0);
    let mut left = vec![cgroup.to_path_buf()];
    while let Some(path) = left.pop()
        && nr_read < CGROUPS_MAX
        && pids.len() < PROCESSES_MAX
    {
        nr_read += 1;
        let Ok(dir) = host.kernel.open_dir(&path) else { continue };
        // A threaded cgroup does not list its processes; its parent does.
        if let Ok(text) = host.kernel.read_once(dir, list) {
            pids.extend(process_numbers(text));
        }
        let names = host.kernel.list_dirs(dir).unwrap_or_default();
        let names = names.into_iter().filter(|name| passes(name.as_encoded_bytes()));
        left.extend(names.take(CGROUPS_MAX).map(|name| path.join(name)));
        host.kernel.close_dir(dir);
    }
    pids.truncate(PROCESSES_MAX);
    pids
}
