//! What it costs to look: sampling 1,000 tenants on this machine's own cgroups, and the whole tick around it.
//!
//! Every tenant holds one sleeping process, so that all of its files are read; the tenants are cgroups made
//! below this process's own, and gone at the end. As root; elsewhere it says so and measures nothing.
//!
//! Bars: sampling at most 1.05 times a bare loop of `pread` over the same files, in the same run; of the tick's CPU
//! time at most 15 % outside system calls at 1,000 tenants, and no more for each tenant with a thousand of them than
//! with a hundred.

#![allow(clippy::expect_used, reason = "without a host there is nothing to measure")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use tenantd::daemon::agent::{Agent, Options};
use tenantd::host::cgroup::{Cgroup, Layout};
use tenantd::host::kernfs::{DirId, FileId, KernError, KernFs, RealKernFs};
use tenantd::policy::model::{HierarchyChoice, Policy, RootChoice, Tenant};

const TENANTS: [usize; 2] = [100, 1_000];
const ROUNDS: usize = 31;
/// Tenants whose files are open at once while sampling is measured.
const CHUNK: usize = 250;
const TICKS: usize = 200;

/// The real kernel, and the paths of the files that were opened to be kept.
struct Noting {
    kernel: RealKernFs,
    kept: Vec<PathBuf>,
}

impl KernFs for Noting {
    fn open_dir(&mut self, path: &Path) -> Result<DirId, KernError> {
        self.kernel.open_dir(path)
    }
    fn close_dir(&mut self, dir: DirId) {
        self.kernel.close_dir(dir);
    }
    fn dir_path(&self, dir: DirId) -> PathBuf {
        self.kernel.dir_path(dir)
    }
    fn inode(&mut self, dir: DirId) -> Result<u64, KernError> {
        self.kernel.inode(dir)
    }
    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError> {
        let file = self.kernel.open_file(dir, name)?;
        // Read of an empty tenant only, and none is.
        if name == "cgroup.procs" {
            return Ok(file);
        }
        self.kept.push(self.kernel.dir_path(dir).join(name));
        Ok(file)
    }
    fn read(&mut self, file: FileId) -> Result<&[u8], KernError> {
        self.kernel.read(file)
    }
    fn read_once(&mut self, dir: DirId, name: &str) -> Result<&[u8], KernError> {
        self.kernel.read_once(dir, name)
    }
    fn write(&mut self, dir: DirId, name: &str, value: &str) -> Result<(), KernError> {
        self.kernel.write(dir, name, value)
    }
    fn make_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        self.kernel.make_dir(dir, name)
    }
    fn remove_dir(&mut self, dir: DirId, name: &str) -> Result<(), KernError> {
        self.kernel.remove_dir(dir, name)
    }
    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<String>, KernError> {
        self.kernel.list_dirs(dir)
    }
}

/// Cgroups with a sleeper each, in every tree; ended and removed when dropped.
struct Crowd {
    layout: Layout,
    dirs: Vec<PathBuf>,
    sleepers: Vec<Child>,
}

impl Crowd {
    fn gather(root: &str, size: usize) -> std::io::Result<Crowd> {
        let mountinfo = fs::read("/proc/self/mountinfo")?;
        let own = fs::read("/proc/self/cgroup")?;
        let root = RootChoice::Path(root.into());
        let layout = Layout::detect(&mountinfo, &own, HierarchyChoice::Auto, &root)
            .map_err(std::io::Error::other)?;
        let mut crowd = Crowd { layout, dirs: Vec::new(), sleepers: Vec::new() };
        let trees: Vec<PathBuf> = crowd.layout.trees.iter().map(|tree| tree.root.clone()).collect();
        for tree in &trees {
            crowd.make(tree.clone())?;
        }
        for name in (0..size).map(|tenant| format!("t{tenant}")) {
            let sleeper = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn()?;
            let pid = sleeper.id().to_string();
            crowd.sleepers.push(sleeper);
            for (tree, root) in trees.iter().enumerate() {
                crowd.make(root.join(&name))?;
                if crowd.layout.trees[tree].is_for_all() {
                    fs::write(root.join(&name).join("cgroup.procs"), &pid)?;
                }
            }
        }
        Ok(crowd)
    }

    fn make(&mut self, path: PathBuf) -> std::io::Result<()> {
        fs::create_dir(&path)?;
        self.dirs.push(path);
        Ok(())
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        for sleeper in &mut self.sleepers {
            let _ = sleeper.kill();
            let _ = sleeper.wait();
        }
        for dir in self.dirs.iter().rev() {
            // The kernel lets go of a cgroup a moment after its last process.
            let until = Instant::now() + Duration::from_secs(5);
            while fs::remove_dir(dir).is_err() && Instant::now() < until {
                std::thread::yield_now();
            }
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn time(act: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    act();
    begin.elapsed()
}

/// Sampling against the bare loop, in turns; of so many tenants at a time that the files of both fit into the limit on
/// open files.
fn sampling(crowd: &Crowd, size: usize) {
    let (mut bare, mut ours, mut nr_files) = (Duration::ZERO, Duration::ZERO, 0);
    for first in (0..size).step_by(CHUNK) {
        let part = sample_part(crowd, first..size.min(first + CHUNK));
        (bare, ours, nr_files) = (bare + part.0, ours + part.1, nr_files + part.2);
    }
    println!(
        "sampling {size} tenants ({nr_files} files): {ours:.2?}, a bare loop of pread {bare:.2?}: x{:.2}",
        ours.as_secs_f64() / bare.as_secs_f64()
    );
}

/// The medians of the bare loop and of sampling, and the number of files.
fn sample_part(crowd: &Crowd, tenants: std::ops::Range<usize>) -> (Duration, Duration, usize) {
    let mut kernel = Noting { kernel: RealKernFs::new(), kept: Vec::new() };
    let open = |tenant: usize| Cgroup::open(&mut kernel, &crowd.layout, &format!("t{tenant}"));
    let cgroups: Vec<Cgroup> = tenants.map(open).collect::<Result<_, _>>().expect("made above");
    let open = |path: &PathBuf| File::open(path).expect("opened above");
    let files: Vec<File> = kernel.kept.iter().map(open).collect();
    let mut buffer = vec![0; 16 << 10];
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        bare.push(time(|| {
            for file in &files {
                file.read_at(&mut buffer, 0).expect("readable");
            }
        }));
        ours.push(time(|| {
            let mut gaps = Vec::new();
            for cgroup in &cgroups {
                cgroup.sample(&mut kernel, false, &mut gaps).expect("still there");
            }
            assert!(gaps.is_empty(), "{:?}", gaps.first());
        }));
    }
    (median(bare), median(ours), files.len())
}

/// User and system time of this thread.
fn cpu_times() -> (Duration, Duration) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("a thread's own usage");
    let usec = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(time.num_microseconds().unsigned_abs())
    };
    (usec(usage.user_time()), usec(usage.system_time()))
}

/// The whole tick of an observer.
fn tick(root: &str, size: usize) {
    let tenant = |number: usize| Tenant { name: format!("t{number}"), ..Tenant::default() };
    let policy = Policy { tenants: (0..size).map(tenant).collect(), ..Policy::default() };
    let options = Options { root: Some(root.into()), observe: true, ..Options::default() };
    let mut agent =
        Agent::start(RealKernFs::new(), policy, Vec::new(), &options).expect("an observer");
    for second in 1..=3 {
        agent.tick(Duration::from_secs(second));
    }
    let before = cpu_times();
    for second in 0..TICKS as u64 {
        agent.tick(Duration::from_secs(4 + second));
    }
    let after = cpu_times();
    let (user, system) = (after.0 - before.0, after.1 - before.1);
    let ticks = TICKS as u32;
    println!(
        "a tick with {size} tenants: {:.2?} of CPU, {:.0} % of it outside system calls ({:.2?} a tenant)",
        (user + system) / ticks,
        100.0 * user.as_secs_f64() / (user + system).as_secs_f64(),
        user / ticks / size as u32
    );
}

fn main() {
    // All files of a thousand tenants, twice. Root may go beyond the hard limit.
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let enough = hard.max(1 << 16);
        let _ = setrlimit(Resource::RLIMIT_NOFILE, enough, enough);
    }
    for size in TENANTS {
        let root = format!("tenantd-bench-{}-{size}", std::process::id());
        match Crowd::gather(&root, size) {
            Ok(crowd) => {
                sampling(&crowd, size);
                tick(&root, size);
            }
            Err(error) => return println!("nothing is measured: no cgroups can be made: {error}"),
        }
    }
}
