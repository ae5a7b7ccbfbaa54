//! A piece of this machine's cgroup hierarchies for one test.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tenantd_host::cgroup::{Facet, Layout, Tree};
use tenantd_policy::model::{HierarchyChoice, RootChoice};

use crate::util::{self, CGROUP_FILES, Snapshot};

/// Numbers the pieces of one process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// A root in every tree of this machine, removed with all that is in it at the end.
pub(super) struct Ground {
    pub(super) name: String,
    pub(super) layout: Layout,
    pub(super) scratch: TempDir,
    loads: Vec<Child>,
}

impl Ground {
    /// Makes the root; `None`, and the test skipped, where that is not possible.
    pub(super) fn take() -> Option<Ground> {
        match Ground::try_take() {
            Ok(ground) => Some(ground),
            Err(reason) => {
                let required = util::is_set("TENANTD_REQUIRE_KERNEL");
                assert!(!required, "skipped, and must not be: {reason}");
                util::skipped(&reason);
                None
            }
        }
    }

    fn try_take() -> Result<Ground, String> {
        if !nix::unistd::Uid::effective().is_root() {
            return Err("making cgroups needs root".into());
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tenantd-test-{}-{number}", std::process::id());
        let read = |path: &str| fs::read(path).map_err(|error| format!("{path}: {error}"));
        let (mounts, own) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let root = RootChoice::Path(PathBuf::from(&name));
        let layout = Layout::detect(&mounts, &own, HierarchyChoice::Auto, &root);
        let layout = layout.map_err(|error| error.to_string())?;
        layout.trees.iter().filter_map(|tree| tree.root.parent()).for_each(sweep);
        let ground = Ground { name, layout, scratch: util::scratch(), loads: Vec::new() };
        ground.try_make("")?;
        Ok(ground)
    }

    /// Makes the cgroup `below` the root in every tree, as an administrator would.
    pub(super) fn make(&self, below: &str) {
        self.try_make(below).unwrap();
    }

    fn try_make(&self, below: &str) -> Result<(), String> {
        for tree in self.layout.trees.iter().filter(|tree| tree.is_for_all()) {
            let path = join(&tree.root, below);
            if self.layout.is_unified() {
                let control = path.parent().unwrap().join("cgroup.subtree_control");
                if !below.is_empty() {
                    fs::write(&control, "+cpu +memory").map_err(|error| error.to_string())?;
                }
                // Our own cgroup is not ours to change.
                let enabled = fs::read_to_string(&control).unwrap_or_default();
                if !["cpu", "memory"].iter().all(|name| enabled.contains(name)) {
                    return Err(format!("{} lacks cpu or memory", control.display()));
                }
            }
            fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }

    /// The cgroup `below` the root in the tree that serves `facet`.
    pub(super) fn dir(&self, facet: Facet, below: &str) -> PathBuf {
        join(&self.layout.trees[self.layout.tree(facet).unwrap()].root, below)
    }

    /// The path of the file that holds the CPU weight of `below`.
    pub(super) fn weight_file(&self, below: &str) -> PathBuf {
        let name = if self.layout.is_unified() { "cpu.weight" } else { "cpu.shares" };
        self.dir(Facet::Cpu, below).join(name)
    }

    /// Whether the weight of `below` was written by an agent: it is not the kernel's default.
    pub(super) fn is_weighed(&self, below: &str) -> bool {
        let default = if self.layout.is_unified() { 100.0 } else { 1024.0 };
        self.weight(below).is_some_and(|weight| weight != default)
    }

    /// The number in that file.
    pub(super) fn weight(&self, below: &str) -> Option<f64> {
        fs::read_to_string(self.weight_file(below)).ok()?.trim().parse().ok()
    }

    /// How many times the CPU time of the first cgroup the second gets, over three seconds of both together once their
    /// load runs.
    pub(super) fn ratio_of_use(&self, both: [&str; 2]) -> f64 {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let used = || both.map(|below| self.used_sec(below));
        let sum = || used().iter().sum::<f64>();
        let settled = sum() + 0.5 * cpus as f64;
        util::wait_until("the load to run", || sum() > settled);
        let (begin, end) = (used(), sum() + 3.0);
        util::wait_until("three seconds of CPU time", || sum() > end);
        let end = used();
        (end[1] - begin[1]) / (end[0] - begin[0])
    }

    /// CPU time that `below` has used, in seconds.
    pub(super) fn used_sec(&self, below: &str) -> f64 {
        let dir = self.dir(Facet::Cpuacct, below);
        if self.layout.is_unified() {
            let text = fs::read_to_string(dir.join("cpu.stat")).unwrap();
            let usec = text.lines().find_map(|line| line.strip_prefix("usage_usec "));
            usec.unwrap().parse::<f64>().unwrap() * 1e-6
        } else {
            let text = fs::read_to_string(dir.join("cpuacct.usage")).unwrap();
            text.trim().parse::<f64>().unwrap() * 1e-9
        }
    }

    /// Values that no kernel gives a new cgroup, and that a policy will want to be others.
    pub(super) fn give_values(&self, below: &str) {
        let values: &[(Facet, &str, &str)] = if self.layout.is_unified() {
            &[
                (Facet::Cpu, "cpu.weight", "77"),
                (Facet::Cpu, "cpu.max", "90000 50000"),
                (Facet::Memory, "memory.low", "1048576"),
                (Facet::Memory, "memory.max", "536870912"),
            ]
        } else {
            &[
                (Facet::Cpu, "cpu.shares", "77"),
                (Facet::Cpu, "cpu.cfs_period_us", "50000"),
                (Facet::Cpu, "cpu.cfs_quota_us", "90000"),
                (Facet::Memory, "memory.soft_limit_in_bytes", "1048576"),
                (Facet::Memory, "memory.limit_in_bytes", "536870912"),
            ]
        };
        for (facet, name, value) in values {
            fs::write(self.dir(*facet, below).join(name), value).unwrap();
        }
    }

    /// Starts a load with these orders in the cgroup `below`; more orders can be written to its input.
    pub(super) fn load(&mut self, below: &str, orders: &str) -> u32 {
        let mut load = util::tenantctl();
        load.arg("load").stdin(Stdio::piped());
        let pid = self.spawn(below, load);
        // Only now: what is touched before the move is charged to where it came from.
        self.say(pid, orders);
        pid
    }

    /// The trees in which every tenant has a cgroup: a legacy one for processes alone is joined only where a policy
    /// limits these.
    pub(super) fn homes(&self) -> impl Iterator<Item = &Tree> {
        let trees = self.layout.trees.iter();
        trees.filter(|tree| tree.is_for_all() && tree.facets != [Facet::Pids])
    }

    /// Starts `command` and moves it into the cgroup `below` in every tree.
    pub(super) fn spawn(&mut self, below: &str, mut command: Command) -> u32 {
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        self.loads.push(child);
        self.put(pid, below);
        pid
    }

    /// Moves a process into the cgroup `below` in every tree that has it: where nothing limits processes, the agent
    /// makes none in a legacy tree for these alone. A tenant's cgroups appear one tree after the other, so each is
    /// waited for.
    pub(super) fn put(&self, pid: u32, below: &str) {
        for tree in self.layout.trees.iter().filter(|tree| tree.is_for_all()) {
            let dir = join(&tree.root, below);
            if tree.facets == [Facet::Pids] && !dir.exists() {
                continue;
            }
            util::wait_until(&format!("{}", dir.display()), || dir.exists());
            fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }

    /// Says `line` to the process `pid` that [`Ground::spawn`] started.
    pub(super) fn say(&mut self, pid: u32, line: &str) {
        let child = self.loads.iter_mut().find(|child| child.id() == pid).unwrap();
        writeln!(child.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Ends the process `pid` that [`Ground::spawn`] started.
    pub(super) fn end(&mut self, pid: u32) {
        let index = self.loads.iter().position(|child| child.id() == pid).unwrap();
        let mut child = self.loads.remove(index);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// A policy of a short interval that says `yaml`.
    pub(super) fn policy(&self, yaml: &str) -> PathBuf {
        let head = "version: 1\nmode: enforce\ncontrol: { interval: 100ms }\n";
        util::file(self.scratch.path(), "policy.yaml", format!("{head}{yaml}"))
    }

    pub(super) fn state_dir(&self) -> PathBuf {
        self.scratch.path().join("state")
    }

    /// `tenantd` with a state directory of its own.
    pub(super) fn tenantd(&self) -> Command {
        let mut command = util::tenantd();
        command.arg("--state-dir").arg(self.state_dir());
        command
    }

    /// `tenantd` with this policy on this ground.
    pub(super) fn enforce(&self, yaml: &str) -> Command {
        let mut command = self.tenantd();
        command.arg("--policy").arg(self.policy(yaml)).arg("--root").arg(&self.name);
        command
    }

    /// What every cgroup of this ground holds.
    pub(super) fn snapshot(&self) -> Snapshot {
        let mut found = BTreeMap::new();
        self.layout.trees.iter().for_each(|tree| look(&tree.root, &mut found));
        found
    }

    /// The processes in the cgroup `below`.
    pub(super) fn pids(&self, below: &str) -> Vec<u32> {
        pids(&self.dir(Facet::Cpu, below))
    }

    /// Ends all that lives in the cgroup `below` and removes it, as its owner might.
    pub(super) fn remove(&self, below: &str) {
        for tree in self.layout.trees.iter().filter(|tree| tree.is_for_all()) {
            clear(&join(&tree.root, below));
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for child in &mut self.loads {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        self.layout.trees.iter().for_each(|tree| clear(&tree.root));
    }
}

/// `path` below `dir`, without the slash that joining nothing would add.
fn join(dir: &Path, below: &str) -> PathBuf {
    if below.is_empty() { dir.to_path_buf() } else { dir.join(below) }
}

fn look(dir: &Path, into: &mut Snapshot) {
    use std::os::unix::fs::MetadataExt;
    let Ok(metadata) = fs::metadata(dir) else { return };
    into.insert(dir.display().to_string(), metadata.ino().to_string());
    for path in CGROUP_FILES.map(|name| dir.join(name)) {
        if let Ok(text) = fs::read_to_string(&path) {
            into.insert(path.display().to_string(), text);
        }
    }
    below(dir).iter().for_each(|child| look(child, into));
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let is_dir = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    entries.flatten().filter(is_dir).map(|entry| entry.path()).collect()
}

/// Process of the test that made this cgroup; `None` for cgroups of others.
fn maker(dir: &Path) -> Option<u32> {
    let name = dir.file_name()?.to_str()?.strip_prefix("tenantd-test-")?;
    let (pid, number) = name.split_once('-')?;
    number.parse::<u32>().ok().and(pid.parse().ok())
}

/// Removes what tests that had to be killed have left in `dir`: cgroups whose makers are gone. The kernel keeps every cgroup with
/// a process.
fn sweep(dir: &Path) {
    fn remove(dir: &Path) {
        below(dir).iter().for_each(|child| remove(child));
        let _ = fs::remove_dir(dir);
    }
    let is_gone = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
    let left = below(dir).into_iter().filter(|dir| maker(dir).is_some_and(is_gone));
    left.for_each(|dir| remove(&dir));
}

/// Cgroups of a test that was killed are removed by the next one; those of others, of live tests and with processes stay.
#[test]
#[ignore = "makes cgroups"]
fn what_a_killed_test_has_left_is_swept() {
    let Some(ground) = Ground::take() else { return };
    let mut ended = Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let names = |pid: u32| [format!("tenantd-test-{pid}-0"), format!("tenantd-test-{pid}-x")];
    let ([left, other], [live, _]) = (names(ended.id()), names(std::process::id()));
    let all = [format!("{left}/inner"), other.clone(), format!("{live}/inner")];
    let dir = ground.dir(Facet::Memory, "");
    let made = |name: &String| dir.join(name).exists();
    all.iter().for_each(|name| fs::create_dir_all(dir.join(name)).unwrap());
    let busy = format!("tenantd-test-{}-1", ended.id());
    fs::create_dir(dir.join(&busy)).unwrap();
    let mut process = Command::new("sleep").arg("1000").spawn().unwrap();
    fs::write(dir.join(&busy).join("cgroup.procs"), process.id().to_string()).unwrap();
    sweep(&dir);
    assert!(!made(&left));
    assert!([&other, &live, &busy].into_iter().all(made));
    process.kill().unwrap();
    process.wait().unwrap();
}

fn pids(dir: &Path) -> Vec<u32> {
    let text = fs::read_to_string(dir.join("cgroup.procs")).unwrap_or_default();
    text.lines().map(|line| line.parse().unwrap()).collect()
}

/// Kills everything in a cgroup and below, and removes all of it. Only ever called on what a test made.
fn clear(dir: &Path) {
    assert!(dir.to_string_lossy().contains("/tenantd-test-"), "{}", dir.display());
    below(dir).iter().for_each(|child| clear(child));
    util::wait_until("a cgroup to be removed", || {
        for pid in pids(dir) {
            // The process may have ended already; it is gone from the list when it is reaped.
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGKILL);
        }
        !dir.exists() || fs::remove_dir(dir).is_ok()
    });
}

/// A daemon that runs beside the test, killed with it.
pub(super) struct Daemon {
    child: Child,
    said: Arc<Mutex<String>>,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Daemon {
    pub(super) fn start(command: &mut Command) -> Daemon {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&said);
        let listener = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = stderr.read(&mut bytes) {
                into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
            }
        });
        Daemon { child, said, listener: Some(listener) }
    }

    /// Its process number.
    pub(super) fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    /// All that it said so far.
    pub(super) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    /// Waits until it has said `words`.
    #[track_caller]
    pub(super) fn says(&self, words: &str) {
        util::wait_until(&format!("{words:?} in {:?}", self.said()), || {
            self.said().contains(words)
        });
    }

    /// Sends a signal and waits for the end.
    pub(super) fn signal(mut self, signal: Signal) -> (ExitStatus, String) {
        kill(Pid::from_raw(self.child.id() as i32), signal).unwrap();
        let status = util::ended(&mut self.child);
        self.listener.take().unwrap().join().unwrap();
        (status, self.said())
    }

    /// Sends SIGTERM, after which it must end well.
    #[track_caller]
    pub(super) fn stop(self) -> String {
        let (status, said) = self.signal(Signal::SIGTERM);
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
