//! Random administration of cgroups of this kernel.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tenantd_host::kernfs::RealKernFs;

use super::ground::Ground as Piece;
use crate::soak::campaign;
use crate::soak::ground::{Fate, Ground};
use crate::soak::run::Run;
use crate::soak::step::Abilities;
use crate::util::{self, Snapshot};

const STEPS: usize = 200;
/// Time on the host passes so much faster than a clock: nothing here depends on how long a tick takes.
const HASTE: u32 = 50;

struct KernelGround {
    piece: Piece,
    tops: Vec<PathBuf>,
    /// As the kernel names it, from the mount points.
    top: String,
    state_dir: PathBuf,
    children: Vec<Child>,
}

impl KernelGround {
    fn take() -> Option<KernelGround> {
        let piece = Piece::take()?;
        piece.make("other");
        piece.make("apps");
        let tops = piece.layout.trees.iter().map(|tree| tree.root.clone()).collect();
        let (top, state_dir) = (format!("/{}", piece.name), piece.state_dir());
        fs::create_dir(&state_dir).unwrap();
        Some(KernelGround { piece, tops, top, state_dir, children: Vec::new() })
    }

    fn dirs(&self, below: &str) -> Vec<PathBuf> {
        let trees = self.piece.homes();
        trees.map(|tree| tree.root.join(below)).collect()
    }
}

/// The processes in `dir` and below it.
fn inside(dir: &Path, into: &mut Vec<u32>) {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    into.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            inside(&entry.path(), into);
        }
    }
}

impl Ground for KernelGround {
    type Kernel = RealKernFs;

    fn abilities(&self) -> Abilities {
        Abilities { faults: false, hotplug: false, interval_millis: 100 }
    }

    fn kernel(&self) -> RealKernFs {
        RealKernFs::new()
    }

    fn tops(&self) -> &[PathBuf] {
        &self.tops
    }

    fn top(&self) -> &str {
        &self.top
    }

    fn root(&self, below: &str) -> PathBuf {
        // Below our own cgroup.
        Path::new(&self.piece.name).join(below)
    }

    fn state_dir(&self) -> &Path {
        &self.state_dir
    }

    fn snapshot(&self) -> Snapshot {
        self.piece.snapshot()
    }

    fn advance(&mut self, time: Duration) {
        std::thread::sleep(time / HASTE);
    }

    fn turn<T>(&mut self, _fate: Fate, act: impl FnOnce() -> T) -> Option<T> {
        Some(act())
    }

    fn close_all(&mut self) {}

    fn nr_open(&self) -> usize {
        0
    }

    fn write(&mut self, file: &Path, value: &str) -> bool {
        fs::write(file, value).is_ok()
    }

    fn make(&mut self, below: &str) {
        for dir in self.dirs(below) {
            // It may be there already, or its own parent may not.
            let _ = fs::create_dir_all(dir);
        }
    }

    fn remove(&mut self, below: &str) {
        let dirs = self.dirs(below);
        let mut pids = Vec::new();
        dirs.iter().for_each(|dir| inside(dir, &mut pids));
        pids.into_iter().for_each(|pid| self.kill(pid));
        for dir in dirs {
            // What has cgroups of its own stays.
            let is_busy = |dir: &Path| {
                fs::remove_dir(dir).is_err_and(|error| {
                    let has_children = fs::read_dir(dir).into_iter().flatten().flatten();
                    let mut kinds = has_children.map(|entry| entry.file_type());
                    let is_divided = kinds.any(|kind| kind.is_ok_and(|kind| kind.is_dir()));
                    error.raw_os_error() == Some(nix::errno::Errno::EBUSY as i32) && !is_divided
                })
            };
            util::wait_until("an empty cgroup to be removed", || !is_busy(&dir));
        }
    }

    fn spawn(&mut self, below: &str, load: u8) {
        let dirs = self.dirs(below);
        if self.children.len() >= 24 || !dirs.iter().all(|dir| dir.is_dir()) {
            return;
        }
        let mut command = match load {
            2 => util::tenantctl(),
            _ => Command::new("sleep"),
        };
        match load {
            2 => command.arg("load").stdin(Stdio::piped()),
            _ => command.arg("1000000").stdin(Stdio::null()),
        };
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        for dir in dirs {
            self.write(&dir.join("cgroup.procs"), &child.id().to_string());
        }
        self.children.push(child);
    }

    fn set_load(&mut self, _pid: u32, _load: u8) {}

    fn kill(&mut self, pid: u32) {
        let Some(index) = self.children.iter().position(|child| child.id() == pid) else { return };
        let mut child = self.children.swap_remove(index);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn set_cpu(&mut self, _cpu: u32, _is_online: bool) {}

    fn pids(&self) -> Vec<u32> {
        let mut pids: Vec<u32> = self.children.iter().map(Child::id).collect();
        pids.sort_unstable();
        pids
    }
}

impl Drop for KernelGround {
    fn drop(&mut self) {
        self.pids().into_iter().for_each(|pid| self.kill(pid));
    }
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn random_administration_of_this_kernel() {
    campaign::play("this kernel", STEPS, || KernelGround::take().map(Run::new));
}
