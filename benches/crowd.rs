//! Tenants on this kernel, for benchmarks of the tick: cgroups that are made below this process's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};
use nix::sys::time::TimeValLike;
use tenantd::agent::{Agent, Options};
use tenantd_host::cgroup::Layout;
use tenantd_host::kernfs::{DirId, FileId, KernError, KernFs, RealKernFs};
use tenantd_policy::model::{HierarchyChoice, Policy, RootChoice, Tenant};

/// The real kernel, and the paths of the files that were opened to be kept.
#[allow(dead_code, reason = "not every benchmark asks")]
pub(crate) struct Noting {
    pub(crate) kernel: RealKernFs,
    pub(crate) kept: Vec<PathBuf>,
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
    fn nr_dirs(&mut self, dir: DirId) -> Result<u64, KernError> {
        self.kernel.nr_dirs(dir)
    }
    fn open_file(&mut self, dir: DirId, name: &str) -> Result<FileId, KernError> {
        let file = self.kernel.open_file(dir, name)?;
        self.kept.push(self.kernel.dir_path(dir).join(name));
        Ok(file)
    }
    fn read(&mut self, file: FileId) -> Result<&[u8], KernError> {
        self.kernel.read(file)
    }
    fn clock(&self) -> Duration {
        self.kernel.clock()
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
    fn list_dirs(&mut self, dir: DirId) -> Result<Vec<std::ffi::OsString>, KernError> {
        self.kernel.list_dirs(dir)
    }
}

/// Cgroups in every tree, one in so many with a sleeping process; ended and removed when dropped.
pub(crate) struct Crowd {
    pub(crate) layout: Layout,
    dirs: Vec<PathBuf>,
    sleepers: Vec<Child>,
}

impl Crowd {
    pub(crate) fn gather(root: &str, size: usize, one_in: usize) -> std::io::Result<Crowd> {
        let mut crowd =
            Crowd { layout: Crowd::layout(root)?, dirs: Vec::new(), sleepers: Vec::new() };
        let trees: Vec<PathBuf> = crowd.layout.trees.iter().map(|tree| tree.root.clone()).collect();
        for tree in &trees {
            crowd.make(tree.clone())?;
        }
        for tenant in 0..size {
            let name = format!("t{tenant}");
            let mut pid = None;
            if tenant % one_in == 0 {
                let sleeper = Command::new("sleep").arg("3600").stdin(Stdio::null()).spawn()?;
                pid = Some(sleeper.id().to_string());
                crowd.sleepers.push(sleeper);
            }
            for (tree, root) in trees.iter().enumerate() {
                crowd.make(root.join(&name))?;
                if let Some(pid) = &pid
                    && crowd.layout.trees[tree].is_for_all()
                {
                    fs::write(root.join(&name).join("cgroup.procs"), pid)?;
                }
            }
        }
        Ok(crowd)
    }

    /// Where the cgroup `root` is in every tree.
    pub(crate) fn layout(root: &str) -> std::io::Result<Layout> {
        let mountinfo = fs::read("/proc/self/mountinfo")?;
        let own = fs::read("/proc/self/cgroup")?;
        let root = RootChoice::Path(root.into());
        Layout::detect(&mountinfo, &own, HierarchyChoice::Auto, &root)
            .map_err(std::io::Error::other)
    }

    /// The root of the first tree, from its mount on.
    #[allow(dead_code, reason = "not every benchmark asks")]
    pub(crate) fn below_mount(&self) -> Option<PathBuf> {
        let root = &self.layout.trees.first()?.root;
        let under = root.strip_prefix("/sys/fs/cgroup").ok()?;
        // On a legacy host the first name is the hierarchy's.
        let is_legacy = self.layout.trees.len() > 1;
        let inside: PathBuf = under.components().skip(usize::from(is_legacy)).collect();
        Some(Path::new("/").join(inside))
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

/// Lets this process keep so many files open, where it may. Root may go beyond the hard limit.
#[allow(dead_code, reason = "not every benchmark has a thousand tenants")]
pub(crate) fn allow_files(least: u64) {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let enough = hard.max(least);
        let _ = setrlimit(Resource::RLIMIT_NOFILE, enough, enough);
    }
}

/// User and system time of this thread.
#[allow(dead_code, reason = "not every benchmark asks")]
pub(crate) fn cpu_times() -> (Duration, Duration) {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("a thread's own usage");
    let usec = |time: nix::sys::time::TimeVal| {
        Duration::from_micros(time.num_microseconds().unsigned_abs())
    };
    (usec(usage.user_time()), usec(usage.system_time()))
}

/// An agent that observes the tenants of a crowd.
#[allow(dead_code, reason = "not every benchmark asks")]
pub(crate) fn observer(root: &str, size: usize) -> Agent<RealKernFs> {
    agent(root, size, Policy::default())
}

/// An agent for the tenants of a crowd, under a policy without tenants.
pub(crate) fn agent(root: &str, size: usize, mut policy: Policy) -> Agent<RealKernFs> {
    let tenant = |number: usize| Tenant { name: format!("t{number}"), ..Tenant::default() };
    policy.tenants = (0..size).map(tenant).collect();
    let options = Options { root: Some(root.into()), ..Options::default() };
    Agent::start(RealKernFs::new(), policy, Vec::new(), &options).expect("an agent")
}
