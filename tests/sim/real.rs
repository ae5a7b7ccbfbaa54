//! The same questions put to the simulated kernel and to the one below us: they must answer alike.
//!
//! As root this makes one cgroup in each hierarchy that is mounted, below our own and named after the
//! test process, and removes it. Of the unified hierarchy it asks what the controllers there allow; where
//! a hierarchy is missing or may not be written it says so and asks the others.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use nix::errno::Errno;
use tenantd_host::kernfs::{KernError, KernFs, RealKernFs};

use crate::util::{self, names};
use tenantd_sim::{Controller, Layout, Load, SimHost, SimKernel};

/// A write, or for no value a read.
type Question = (&'static str, Option<&'static str>);

/// Questions about the core of the unified hierarchy. A write is answered by what is read afterwards.
const CORE: &[Question] = &[
    ("cgroup.type", None),
    ("cgroup.controllers", None),
    ("cgroup.events", None),
    ("cgroup.procs", None),
    ("cgroup.threads", None),
    ("cgroup.nothing", None),
    ("cgroup.type", Some("junk")),
    ("cgroup.max.descendants", Some("7")),
    ("cgroup.max.descendants", Some("-1")),
    ("cgroup.max.descendants", Some("junk")),
    ("cgroup.max.descendants", Some("")),
    ("cgroup.max.descendants", Some("max")),
    ("cgroup.max.depth", Some("99999999999")),
    ("cgroup.freeze", Some("2")),
    ("cgroup.freeze", Some("junk")),
    ("cgroup.freeze", Some("0\n")),
    ("cgroup.events", Some("1")),
    ("cpu.stat", Some("1")),
    ("cgroup.procs", Some("junk")),
    ("cgroup.procs", Some("-1")),
    ("cgroup.procs", Some("\n")),
    ("cgroup.procs", Some("4194303")),
    ("cgroup.subtree_control", Some("junk")),
    ("cgroup.subtree_control", Some("+")),
    ("cgroup.subtree_control", Some("memory")),
    ("cgroup.subtree_control", Some("-memory")),
    ("cgroup.subtree_control", Some("")),
];

const UNIFIED: &[(Controller, &[Question])] = &[
    (
        Controller::Cpu,
        &[
            ("cpu.weight", Some("1")),
            ("cpu.weight", Some("10001")),
            ("cpu.weight", Some("0")),
            ("cpu.weight", Some("0x20\n")),
            ("cpu.weight", Some("junk")),
            ("cpu.weight", Some("-1")),
            ("cpu.weight", Some("5 ")),
            ("cpu.max", Some("50000")),
            ("cpu.max", Some("max 20000")),
            ("cpu.max", Some("999")),
            ("cpu.max", Some("1000 1000001")),
            ("cpu.max", Some("junk")),
            ("cpu.max", Some("2000 1000 tail")),
        ],
    ),
    (
        Controller::Memory,
        &[
            ("memory.low", Some("100000")),
            ("memory.low", Some("8k\n")),
            ("memory.low", Some("max")),
            ("memory.low", Some("-1")),
            ("memory.low", Some("1MB")),
            ("memory.max", Some("1G")),
            ("memory.high", Some("junk")),
            ("memory.high", Some("9223372036854775807")),
            ("memory.oom.group", Some("2")),
            ("memory.current", Some("1")),
            ("memory.min", Some("\n")),
        ],
    ),
    (
        Controller::Cpuset,
        &[
            ("cpuset.cpus", None),
            ("cpuset.cpus", Some("0")),
            ("cpuset.cpus.effective", None),
            ("cpuset.cpus", Some("junk")),
            ("cpuset.cpus", Some("1-0")),
            ("cpuset.cpus", Some("\n")),
            ("cpuset.mems", Some("junk")),
        ],
    ),
];

const LEGACY: &[(Controller, &[Question])] = &[
    (
        Controller::Cpu,
        &[
            ("cpu.shares", None),
            ("cpu.shares", Some("0")),
            ("cpu.shares", Some("300000")),
            ("cpu.shares", Some("512\n")),
            ("cpu.shares", Some("junk")),
            ("cpu.shares", Some("-1")),
            ("cpu.cfs_quota_us", None),
            ("cpu.cfs_quota_us", Some("50000")),
            ("cpu.cfs_quota_us", Some("999")),
            ("cpu.cfs_quota_us", Some("max")),
            ("cpu.cfs_quota_us", Some("-2")),
            ("cpu.cfs_period_us", Some("999")),
            ("cpu.cfs_period_us", Some("20000")),
            ("cpu.stat", None),
            ("cpu.stat", Some("1")),
            ("cgroup.procs", Some("4194303")),
            ("tasks", Some("junk")),
        ],
    ),
    (
        Controller::Memory,
        &[
            ("memory.limit_in_bytes", None),
            ("memory.limit_in_bytes", Some("100000")),
            ("memory.limit_in_bytes", Some("8k")),
            ("memory.limit_in_bytes", Some("max")),
            ("memory.limit_in_bytes", Some("-1")),
            ("memory.soft_limit_in_bytes", Some("5000")),
            ("memory.soft_limit_in_bytes", Some("junk")),
            ("memory.soft_limit_in_bytes", Some("-1")),
            ("memory.usage_in_bytes", None),
            ("memory.oom_control", None),
            ("memory.stat", None),
        ],
    ),
    (
        Controller::Cpuset,
        &[
            ("cpuset.cpus", None),
            ("cpuset.effective_cpus", None),
            ("cpuset.cpus", Some("0")),
            ("cpuset.effective_cpus", None),
            ("cpuset.cpus", Some("100000")),
            ("cpuset.cpus", Some("junk")),
            ("cpuset.mems", Some("1-0")),
            ("cpuset.mems", Some("0\n")),
            ("cpuset.effective_mems", None),
        ],
    ),
    (Controller::Cpuacct, &[("cpuacct.usage", None), ("cpuacct.stat", None)]),
];

/// What was asked, and what was answered.
type Answers = Vec<(String, Result<String, Errno>)>;

fn errno(error: KernError) -> Errno {
    error.errno
}

/// Puts the questions to the cgroup `name` in `base`, then puts `pid` into it, and ends with its removal.
fn ask(fs: &mut impl KernFs, base: &Path, name: &str, pid: u32, questions: &[Question]) -> Answers {
    let mut answers = Answers::new();
    let above = fs.open_dir(base).unwrap();
    let mut note = |what: String, answer| answers.push((what, answer));
    let done = |()| String::new();
    note("make".into(), fs.make_dir(above, name).map(done).map_err(errno));
    note("make again".into(), fs.make_dir(above, name).map(done).map_err(errno));
    note("make a\\nb".into(), fs.make_dir(above, "a\nb").map(done).map_err(errno));
    let dir = fs.open_dir(&base.join(name)).unwrap();
    let text = |fs: &mut dyn FnMut() -> Result<Vec<u8>, Errno>| {
        fs().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    };
    for &(file, value) in questions {
        let written = match value {
            Some(value) => fs.write(dir, file, value).map_err(errno),
            None => Ok(()),
        };
        let answer = written.and_then(|()| {
            text(&mut || fs.read_once(dir, file).map(<[u8]>::to_vec).map_err(errno))
        });
        note(format!("{file} {value:?}"), answer);
    }
    note("make below".into(), fs.make_dir(dir, "below").map(done).map_err(errno));
    note("remove with child".into(), fs.remove_dir(above, name).map(done).map_err(errno));
    note("remove a file".into(), fs.remove_dir(dir, "cgroup.procs").map(done).map_err(errno));
    note("remove nothing".into(), fs.remove_dir(dir, "nothing").map(done).map_err(errno));
    note("remove below".into(), fs.remove_dir(dir, "below").map(done).map_err(errno));
    note("move".into(), fs.move_process(dir, pid).map(done).map_err(errno));
    note("remove populated".into(), fs.remove_dir(above, name).map(done).map_err(errno));
    note("move back".into(), fs.move_process(above, pid).map(done).map_err(errno));
    let kept = fs.open_file(dir, "cgroup.procs").unwrap();
    note("remove".into(), fs.remove_dir(above, name).map(done).map_err(errno));
    for again in [false, true] {
        if again {
            fs.make_dir(above, name).unwrap();
        }
        note("read gone".into(), text(&mut || fs.read(kept).map(<[u8]>::to_vec).map_err(errno)));
        note(
            "open gone".into(),
            fs.open_file(dir, "cgroup.procs").map(|_| String::new()).map_err(errno),
        );
        note("write gone".into(), fs.write(dir, "cgroup.procs", "0").map(done).map_err(errno));
        note("make in gone".into(), fs.make_dir(dir, "x").map(done).map_err(errno));
        note("remove in gone".into(), fs.remove_dir(dir, "x").map(done).map_err(errno));
        note(
            "list gone".into(),
            fs.list_dirs(dir).map(|dirs| names(dirs).join(" ")).map_err(errno),
        );
    }
    note("remove again".into(), fs.remove_dir(above, name).map(done).map_err(errno));
    answers
}

/// A step of a delegation: a write below the cgroup of the test, `PID` standing for the process.
const DELEGATION: &[Question] = &[
    ("cgroup.procs", Some("PID")),
    ("cgroup.subtree_control", Some("+memory")),
    ("cgroup.subtree_control", Some("+cpu")),
    ("cgroup.type", None),
    ("b/cgroup.type", None),
    ("b/cgroup.procs", Some("PID")),
    ("b/cgroup.subtree_control", Some("+cpu")),
    ("cgroup.subtree_control", Some("+memory")),
    ("b/cpu.weight", Some("50")),
    ("b/memory.low", None),
    ("cgroup.subtree_control", Some("-cpu")),
    ("b/cgroup.procs", Some("PID")),
    ("b/cgroup.type", None),
    ("cgroup.subtree_control", Some("+cpu")),
    ("cgroup.procs", Some("PID")),
    ("cgroup.subtree_control", Some("+memory +cpuset")),
    ("cgroup.procs", Some("PID")),
    ("b/cgroup.subtree_control", Some("+memory")),
    ("b/cgroup.subtree_control", Some("+pids")),
    ("cgroup.events", None),
    ("b/memory.low", Some("1M")),
    ("b/cpuset.cpus", Some("0")),
    ("b/cpuset.cpus", Some("\n")),
    ("b/cgroup.freeze", Some("1")),
    ("b/cgroup.freeze", Some("0")),
    ("cgroup.subtree_control", Some("-cpu")),
    ("b/cpu.weight", Some("50")),
    ("cgroup.subtree_control", Some("+cpu")),
    ("b/cpu.weight", None),
    ("cgroup.max.descendants", Some("1")),
];

/// Walks through [`DELEGATION`], with a kept file of a controller that goes and comes back.
fn delegate(fs: &mut impl KernFs, base: &Path, name: &str, pid: u32) -> Answers {
    let mut answers = Answers::new();
    let above = fs.open_dir(base).unwrap();
    fs.make_dir(above, name).unwrap();
    let dir = fs.open_dir(&base.join(name)).unwrap();
    fs.make_dir(dir, "b").unwrap();
    let mut kept = None;
    for &(file, value) in DELEGATION {
        let value = value.map(|value| value.replace("PID", &pid.to_string()));
        let outcome = match &value {
            Some(value) => fs.write(dir, file, value).map(|()| String::new()),
            None => fs.read_once(dir, file).map(|text| String::from_utf8_lossy(text).into_owned()),
        };
        // The process has another number in each kernel.
        let shown = value.map(|value| value.replace(&pid.to_string(), "PID"));
        answers.push((format!("{file} {shown:?}"), outcome.map_err(errno)));
        kept = kept.or_else(|| fs.open_file(dir, "b/cpu.weight").ok());
        let again = kept.map_or(Err(Errno::EBADF), |kept| {
            fs.read(kept).map(|text| text.len().to_string()).map_err(errno)
        });
        answers.push((format!("kept weight after {file}"), again));
    }
    answers.push(("beyond".into(), fs.make_dir(dir, "c").map(|()| String::new()).map_err(errno)));
    fs.move_process(above, pid).unwrap();
    fs.remove_dir(dir, "b").unwrap();
    fs.remove_dir(above, name).unwrap();
    answers
}

/// A child of ours to move about, killed in the end.
struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Our own cgroup in the mounted hierarchy with the controller, or in the unified one.
fn own_cgroup(controller: Option<Controller>) -> Option<(PathBuf, String)> {
    let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let cgroups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mount = mountinfo.lines().find_map(|line| {
        let (place, source) = line.split_once(" - ")?;
        let mut source = source.split(' ');
        let (fs, options) = (source.next()?, source.nth(1)?);
        let wanted = match controller {
            None => fs == "cgroup2",
            Some(c) => fs == "cgroup" && options.split(',').any(|option| option == c.name()),
        };
        wanted.then(|| place.split(' ').nth(4).map(String::from))?
    })?;
    let path = cgroups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (number, names, path) = (fields.next()?, fields.next()?, fields.next()?);
        let wanted = match controller {
            None => number == "0",
            Some(c) => names.split(',').any(|name| name == c.name()),
        };
        wanted.then(|| path.to_string())
    })?;
    Some((PathBuf::from(format!("{mount}{}", path.trim_end_matches('/'))), mount))
}

/// The simulated twin of the host: as many CPUs, the same layout.
fn twin(layout: Layout) -> SimKernel {
    let cpus = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    let last = cpus.trim_end().rsplit(['-', ',']).next().unwrap().parse::<u32>().unwrap();
    SimKernel::new(SimHost { cpus: last + 1, layout, ..SimHost::default() })
}

/// Asks both kernels and compares. `false` where the real one may not be asked.
fn compare(
    controller: Option<Controller>,
    mut sim: SimKernel,
    sim_base: &str,
    questions: &[Question],
) -> bool {
    let Some((base, _)) = own_cgroup(controller) else { return false };
    let name = format!("tenantd-test-sim-{}", std::process::id());
    let mut real = RealKernFs::new();
    let Ok(probe) = real.open_dir(&base) else { return false };
    if real.make_dir(probe, &name).is_err() || real.remove_dir(probe, &name).is_err() {
        return false;
    }
    let sleeper = Sleeper(Command::new("sleep").arg("600").spawn().unwrap());
    let mut from_real = ask(&mut real, &base, &name, sleeper.0.id(), questions);
    let pid = sim.spawn(sim_base, Load::idle()).unwrap();
    let mount = match (controller, sim.host().layout) {
        (Some(controller), _) => format!("/sys/fs/cgroup/{}", controller.name()),
        (None, Layout::Legacy) => "/sys/fs/cgroup/unified".to_string(),
        (None, Layout::Unified) => "/sys/fs/cgroup".to_string(),
    };
    let path = format!("{mount}{}", sim_base.trim_end_matches('/'));
    let mut from_sim = ask(&mut sim, Path::new(&path), &name, pid, questions);
    let needed = [Controller::Cpuset, Controller::Cpu, Controller::Memory, Controller::Pids];
    if controller.is_none() && needed.iter().all(|needed| unified_controllers().contains(needed)) {
        from_real.extend(delegate(&mut real, &base, &name, sleeper.0.id()));
        from_sim.extend(delegate(&mut sim, Path::new(&path), &name, pid));
    }
    for (real, sim) in from_real.iter().zip(&from_sim) {
        assert_eq!(sim, real, "simulated, then real");
    }
    true
}

/// The controllers whose files a new cgroup below our own would have.
fn unified_controllers() -> Vec<Controller> {
    let Some((base, _)) = own_cgroup(None) else { return Vec::new() };
    let enabled = std::fs::read_to_string(base.join("cgroup.subtree_control")).unwrap_or_default();
    let names: Vec<&str> = enabled.split_whitespace().collect();
    Controller::ALL.into_iter().filter(|c| names.contains(&c.name())).collect()
}

#[test]
fn the_unified_hierarchy_answers_alike() {
    let there = unified_controllers();
    let mut sim = twin(Layout::Unified);
    let words: Vec<String> = there.iter().map(|c| format!("+{}", c.name())).collect();
    sim.write_file("/sys/fs/cgroup/cgroup.subtree_control", &words.join(" ")).unwrap();
    let mut questions = CORE.to_vec();
    for (controller, more) in UNIFIED {
        if there.contains(controller) {
            questions.extend_from_slice(more);
        }
    }
    if !compare(None, sim, "/", &questions) {
        util::skipped("no unified hierarchy that this user may write");
    }
}

#[test]
fn the_legacy_hierarchies_answer_alike() {
    for (controller, questions) in LEGACY {
        // A process may enter a legacy cpuset only once its lists are filled; the questions fill them.
        if !compare(Some(*controller), twin(Layout::Legacy), "/", questions) {
            util::skipped(&format!("no legacy {} that this user may write", controller.name()));
        }
    }
}
