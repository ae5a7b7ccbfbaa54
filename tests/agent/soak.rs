//! Random administration on the simulated kernel, of both hierarchies.

mod units;

use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use tempfile::TempDir;
use tenantd_host::kernfs::KernFs;
use tenantd_sim::{Controller, Fault, Layout, Load, SimHost, SimKernel};

use super::world::{Host, MIB};
use crate::soak::campaign;
use crate::soak::ground::{Fate, Ground};
use crate::soak::run::Run;
use crate::soak::step::Abilities;
use crate::util::{self, Snapshot};

const MOUNT: &str = "/sys/fs/cgroup";
/// The top of the ground.
const TOP: &str = "/top";
/// How many are taken without being asked to: see [`campaign::play`].
const STEPS: usize = 500;

struct SimGround {
    host: Host,
    layout: Layout,
    tops: Vec<PathBuf>,
    /// In a directory of its own, so that the policy lies beside it.
    state_dir: PathBuf,
    /// Removed at the end.
    _scratch: TempDir,
    /// Processes that run since before.
    residents: Vec<u32>,
}

impl SimGround {
    fn new(layout: Layout) -> SimGround {
        use Controller::{Cpu, Cpuacct, Cpuset, Memory};
        let controllers = vec![Cpuset, Cpu, Cpuacct, Memory];
        let mut kernel = SimKernel::new(SimHost { layout, controllers, ..SimHost::default() });
        for path in ["/top/other", "/top/apps/one"] {
            kernel.make_cgroup(path).unwrap();
        }
        let tops = match layout {
            Layout::Unified => vec![PathBuf::from(format!("{MOUNT}{TOP}"))],
            Layout::Legacy => ["cpu", "cpuacct", "cpuset", "memory", "unified"]
                .map(|tree| PathBuf::from(format!("{MOUNT}/{tree}{TOP}")))
                .to_vec(),
        };
        let residents = kernel.pids();
        let (host, scratch) = (Host::new(kernel), util::scratch());
        let state_dir = scratch.path().join("state");
        std::fs::create_dir(&state_dir).unwrap();
        SimGround { host, layout, tops, state_dir, _scratch: scratch, residents }
    }

    fn below(&self, below: &str) -> String {
        format!("{TOP}/{below}")
    }
}

/// All of them together fit below the least limit of a policy: the kernel ends none of them.
fn load(number: u8) -> Load {
    match number {
        0 | 1 => Load::idle(),
        2 => Load::busy(1),
        3 => Load::busy(4).with_working_set(2 * MIB),
        4 => Load { duty: 0.3, ..Load::busy(2) },
        _ => Load::idle().with_working_set(2 * MIB).with_cache(16 * MIB),
    }
}

impl Ground for SimGround {
    type Kernel = Host;

    fn abilities(&self) -> Abilities {
        Abilities { faults: true, hotplug: true, interval_millis: 100 }
    }

    fn kernel(&self) -> Host {
        self.host.clone()
    }

    fn tops(&self) -> &[PathBuf] {
        &self.tops
    }

    fn top(&self) -> &str {
        TOP
    }

    fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn snapshot(&self) -> Snapshot {
        fn walk(kernel: &mut SimKernel, path: &str, files: &[&str], into: &mut Snapshot) {
            let dir = kernel.open_dir(Path::new(path)).unwrap();
            let children = crate::util::names(kernel.list_dirs(dir).unwrap());
            into.insert(path.to_string(), kernel.inode(dir).unwrap().to_string());
            kernel.close_dir(dir);
            for file in files.iter().map(|name| format!("{path}/{name}")) {
                if let Ok(text) = kernel.file(&file) {
                    into.insert(file, text);
                }
            }
            children.iter().for_each(|name| walk(kernel, &format!("{path}/{name}"), files, into));
        }
        let mut found = Snapshot::new();
        for top in &self.tops {
            let top = top.display().to_string();
            let files = util::CGROUP_FILES.iter().copied().filter(|file| {
                let is_of = |tree: &str| file.starts_with(&format!("{tree}."));
                match top.strip_prefix(MOUNT).and_then(|rest| rest.split('/').nth(1)) {
                    _ if *file == "cgroup.procs" => true,
                    Some("cpu" | "cpuset" | "memory") if self.layout == Layout::Legacy => {
                        ["cpu", "cpuset", "memory"]
                            .iter()
                            .any(|tree| top.starts_with(&format!("{MOUNT}/{tree}/")) && is_of(tree))
                    }
                    Some("cpuacct" | "unified") => false,
                    _ => true,
                }
            });
            let files: Vec<&str> = files.collect();
            self.host.with(|kernel| walk(kernel, &top, &files, &mut found));
        }
        found
    }

    fn advance(&mut self, time: Duration) {
        self.host.with(|kernel| kernel.advance(time));
    }

    fn turn<T>(&mut self, fate: Fate, act: impl FnOnce() -> T) -> Option<T> {
        let from = self.host.nr_calls();
        self.host.take_calls();
        if let Some((call, errno)) = fate.fails_at {
            self.host.inject(Fault::at_call(from + call, errno));
        }
        let outcome = match fate.dies_at {
            Some(call) => self.host.until_death(from + call, act),
            None => Some(act()),
        };
        self.host.heal();
        outcome
    }

    fn close_all(&mut self) {
        self.host.close_all();
    }

    fn nr_open(&self) -> usize {
        self.host.with(|kernel| kernel.nr_kept_dirs())
    }

    fn write(&mut self, file: &Path, value: &str) -> bool {
        self.host.with(|kernel| kernel.write_file(&file.display().to_string(), value)).is_ok()
    }

    fn make(&mut self, below: &str) {
        let path = self.below(below);
        if self.layout == Layout::Legacy || !below.starts_with('t') {
            // A process may be in the way.
            let _: Result<(), Errno> = self.host.with(|kernel| kernel.make_cgroup(&path));
            return;
        }
        // Without controllers, as by mkdir.
        let top = &self.tops[0];
        let mut dir = top.clone();
        for name in Path::new(below).components() {
            let made = self.host.with(|kernel| {
                let above = kernel.open_dir(&dir)?;
                let outcome = kernel.make_dir(above, &name.as_os_str().to_string_lossy());
                kernel.close_dir(above);
                outcome
            });
            dir.push(name);
            // It may be there already.
            drop(made);
        }
    }

    fn remove(&mut self, below: &str) {
        let path = self.below(below);
        self.host.with(|kernel| {
            let inside = format!("{path}/");
            for pid in kernel.pids() {
                let is_in = kernel
                    .process_cgroup(pid)
                    .is_some_and(|at| at == path || at.starts_with(&inside));
                if is_in && !self.residents.contains(&pid) {
                    kernel.kill(pid).unwrap();
                }
            }
            // What others divided, or live in, stays.
            let _: Result<(), Errno> = kernel.remove_cgroup_at(&path);
        });
    }

    fn spawn(&mut self, below: &str, number: u8) {
        // No more than a small machine takes.
        if self.pids().len() < 24 {
            let path = self.below(below);
            // The cgroup may not be there, or take no process.
            let _: Result<u32, Errno> = self.host.with(|kernel| kernel.spawn(&path, load(number)));
        }
    }

    fn set_load(&mut self, pid: u32, number: u8) {
        self.host.with(|kernel| kernel.set_load(pid, load(number))).unwrap();
    }

    fn kill(&mut self, pid: u32) {
        self.host.with(|kernel| kernel.kill(pid)).unwrap();
    }

    fn set_cpu(&mut self, cpu: u32, is_online: bool) {
        self.host.with(|kernel| kernel.set_cpu_online(cpu, is_online));
    }

    fn pids(&self) -> Vec<u32> {
        let mut pids = self.host.with(|kernel| kernel.pids());
        pids.retain(|pid| !self.residents.contains(pid));
        pids
    }
}

#[test]
fn random_administration_of_a_unified_host() {
    campaign::play("simulated, unified", STEPS, || Some(Run::new(SimGround::new(Layout::Unified))));
}

#[test]
fn random_administration_of_a_legacy_host() {
    campaign::play("simulated, legacy", STEPS, || Some(Run::new(SimGround::new(Layout::Legacy))));
}
