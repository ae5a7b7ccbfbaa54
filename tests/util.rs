//! What several tests need: policies from text, the built programs, and waiting for an event.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tenantd_policy::{self as policy, Policy};

/// So long a test waits for what must come, before it fails. A bound of nothing: machines are slow at times.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// The files of a cgroup that anyone can write, in both hierarchies, and who is in it.
pub(crate) const CGROUP_FILES: [&str; 28] = [
    "cgroup.procs",
    "cgroup.subtree_control",
    "cgroup.max.depth",
    "cgroup.max.descendants",
    "cgroup.freeze",
    "cpu.weight",
    "cpu.max",
    "cpu.shares",
    "cpu.cfs_quota_us",
    "cpu.cfs_period_us",
    "cpuset.cpus",
    "cpuset.mems",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.oom.group",
    "memory.limit_in_bytes",
    "memory.soft_limit_in_bytes",
    "pids.max",
    "io.weight",
    "io.bfq.weight",
    "io.max",
    "blkio.bfq.weight",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
];

/// What every cgroup of a host holds: for each its inode number and its [`CGROUP_FILES`], by path.
pub(crate) type Snapshot = BTreeMap<String, String>;

/// Fails with what differs, and not with two whole hosts.
#[track_caller]
pub(crate) fn assert_same(before: &Snapshot, after: &Snapshot, context: &str) {
    let keys = before.keys().chain(after.keys());
    let differing: BTreeMap<&String, (Option<&String>, Option<&String>)> = keys
        .filter(|key| before.get(*key) != after.get(*key))
        .map(|key| (key, (before.get(key), after.get(key))))
        .collect();
    assert!(differing.is_empty(), "{context}: left behind (before, after): {differing:#?}");
}

/// The policy that `yaml` says, in the words of a policy file.
pub(crate) fn policy(yaml: &str) -> Policy {
    let dir = scratch();
    let path = dir.path().join("policy.yaml");
    std::fs::write(&path, yaml).unwrap();
    match policy::load(&path) {
        Ok(loaded) => loaded.policy,
        Err(report) => panic!("{report:?}"),
    }
}

/// An empty directory that goes with the test; in memory where the machine has a place for it, because a
/// journal is synced after every line.
pub(crate) fn scratch() -> tempfile::TempDir {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => dir,
        Err(_) => tempfile::tempdir().unwrap(),
    }
}

/// The built `tenantd`.
pub(crate) fn tenantd() -> Command {
    program(crate::programs::path("tenantd"))
}

/// The built `tenantctl`.
pub(crate) fn tenantctl() -> Command {
    program(crate::programs::path("tenantctl"))
}

/// What `tenantctl` says with these arguments and this standard input.
pub(crate) fn tenantctl_reads(args: &[&str], input: &[u8]) -> Output {
    let mut command = tenantctl();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // It may answer before it has read all, or refuse its arguments and read nothing.
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// A program in the plain environment of a person who has set nothing.
fn program(path: &str) -> Command {
    let mut command = Command::new(path);
    for variable in ["RUST_BACKTRACE", "TENANTD_LOG", "JOURNAL_STREAM"] {
        command.env_remove(variable);
    }
    command.env("COLUMNS", "80").env("TZ", "UTC").stdin(Stdio::null());
    command
}

/// The findings of a bad file on standard input, each as `CODE line:column message`.
#[track_caller]
pub(crate) fn refused(args: &[&str], text: &str) -> Vec<String> {
    let output = tenantctl_reads(args, text.as_bytes());
    assert_eq!(output.status.code(), Some(78), "{text}");
    let refusal: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let shown = |finding: &serde_json::Value| {
        let place = |key: &str| finding[key].as_u64().unwrap_or(0);
        let (code, message) = (finding["code"].as_str(), finding["message"].as_str());
        format!("{} {}:{} {}", code.unwrap(), place("line"), place("column"), message.unwrap())
    };
    refusal["findings"].as_array().unwrap().iter().map(shown).collect()
}

/// Says that the running test cannot judge anything on this machine, and why.
///
/// libtest knows no such outcome and prints `ok`; `tests/all.sh` counts these lines and takes them off what passed.
/// Not by `eprintln!`, which libtest keeps back while a test passes.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    let line = format!("skipped {}: {reason}\n", thread.name().unwrap_or("?"));
    // Where standard error is closed there is nobody to tell.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Whether a variable of the environment is set to something; set and empty is not set.
pub(crate) fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// A program that not every machine has; `None`, and the test skipped, where it is missing.
///
/// # Panics
/// It is missing under CI, where everything that can be tested is.
pub(crate) fn optional(name: &str, package: &str) -> Option<Command> {
    let there = std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(name).is_file()));
    if !there {
        assert!(!is_set("CI"), "{name} is not there (Debian: {package})");
        skipped(&format!("{name} is not there (Debian: {package})"));
        return None;
    }
    let mut command = Command::new(name);
    command.stdin(Stdio::null());
    Some(command)
}

/// How a program ended and what it said.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Runs `command` to its end, which it must reach by itself.
pub(crate) fn run(command: &mut Command) -> Ran {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    finish(child)
}

/// Waits for a program that was started with both outputs piped.
pub(crate) fn finish(child: std::process::Child) -> Ran {
    let pid = child.id();
    let (done, ended) = std::sync::mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let output = child.wait_with_output();
        // Nobody listens any more where the wait below gave up.
        let _ = done.send(());
        output
    });
    if ended.recv_timeout(PATIENCE).is_err() {
        let pid = nix::unistd::Pid::from_raw(pid as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        panic!("still running after {PATIENCE:?}: {:?}", waiter.join());
    }
    let Output { status, stdout, stderr } = waiter.join().unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code(), out: text(stdout), err: text(stderr) }
}

impl Ran {
    /// Fails unless the program ended with `code` and spoke as to a person: no panic, no backtrace, no
    /// source file of ours or of a dependency.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "\nstdout: {}\nstderr: {}", self.out, self.err);
        for text in [&self.out, &self.err] {
            for never in ["panicked", "RUST_BACKTRACE", "backtrace", ".rs:", "/src/", ".cargo"] {
                assert!(!text.contains(never), "{never:?} in:\n{text}");
            }
        }
        self
    }

    /// Fails unless all that was said is one line on standard error, which holds `words`.
    #[track_caller]
    pub(crate) fn says_in_one_line(self, words: &str) -> Ran {
        assert_eq!((self.err.lines().count(), self.out.as_str()), (1, ""), "{}", self.err);
        self.says(words)
    }

    /// Fails unless standard error holds `words`.
    #[track_caller]
    pub(crate) fn says(self, words: &str) -> Ran {
        assert!(self.err.contains(words), "{words:?} is not in:\n{}", self.err);
        self
    }
}

/// Fails unless every line of `text` fits a terminal of 80 columns.
#[track_caller]
pub(crate) fn fits_a_terminal(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{} columns: {line}", line.chars().count());
    }
}

/// Panics if a field in bytes has a fraction, at any depth.
pub(crate) fn has_whole_bytes(value: &serde_json::Value) {
    use serde_json::Value;
    let is_whole = |value: &Value| !value.is_f64();
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let is_bytes = name.ends_with("bytes");
                let each = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                assert!(!is_bytes || each.iter().all(is_whole), "{name}: {value}");
                has_whole_bytes(value);
            }
        }
        Value::Array(all) => all.iter().for_each(has_whole_bytes),
        _ => {}
    }
}

/// Waits until `is_so`, looking often; fails with what it was waiting for when that never comes.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The status of a program that ends by itself, or for a signal that it handles.
#[track_caller]
pub(crate) fn ended(child: &mut std::process::Child) -> std::process::ExitStatus {
    let mut status = None;
    wait_until(&format!("process {} to end", child.id()), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

/// Writes `text` to the new file `name` in `dir`.
pub(crate) fn file(dir: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().write_all(text.as_ref()).unwrap();
    path
}

/// Makes a program of a file. Another process writes it: a file that this one has open for writing is open in every child that
/// another thread forks just then, and until that child executes its own program the kernel refuses to execute the file.
pub(crate) fn install(from: &Path, to: &Path) {
    let status = Command::new("install").args(["-m", "755"]).args([from, to]).status().unwrap();
    assert!(status.success(), "{}", to.display());
}

/// Makes a program of a script, as the file `name` in `dir`.
pub(crate) fn script(dir: &Path, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    install(&file(dir, &format!("{name}.text"), text), &path);
    path
}

/// A generator whose whole state is one number (Vigna's splitmix64): the same seed gives the same numbers for ever.
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.roll() % bound.max(1)
    }

    /// A position in something of length `len`; 0 where that is empty.
    pub(crate) fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    pub(crate) fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.index(of.len())].clone()
    }
}

/// A number from the environment, if it is set.
pub(crate) fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|error| panic!("{variable}={text}: {error}")))
}

/// `TENANTD_SEED`; otherwise 1, because a usual run is the same every day, and for a long run the time.
pub(crate) fn first_seed(is_long: bool) -> u64 {
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    number("TENANTD_SEED").unwrap_or_else(|| if is_long { clock() } else { 1 })
}

/// Names of directories, as text.
pub(crate) fn names(dirs: Vec<std::ffi::OsString>) -> Vec<String> {
    dirs.iter().map(|name| tenantd_core::kernel_text::text_of_name(name)).collect()
}
