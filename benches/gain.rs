//! What a user gains from `cpus: dop`: the same work, beside a competing tenant, done sooner.
//!
//! `cargo bench --bench gain`, as root; two minutes, in which others get next to no CPU. Bar: a program that
//! starts a thread for each CPU that it sees, and takes locks or waits at barriers, is done at least 1.2 times
//! as fast as under weights alone.
//!
//! Two tenants of equal weight live under a real `tenantd`. One keeps every CPU busy that it may use. In the
//! other one, once all have settled, the programs of `examples/one_per_cpu.rs` run one after the other, as a
//! user starts them: inside of the tenant's cgroup, where they see its CPUs. That is done under either policy in
//! turn, several times over, and the two runs of a round make one ratio, so that whatever else happens on the
//! machine happens to both; the root of the tenants has the greatest weight there is, so that not much does.
//! Printed are medians, and the smallest and the largest.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;
#[path = "../examples/one_per_cpu.rs"]
mod one_per_cpu;
#[path = "../tests/programs.rs"]
mod programs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bar::Bars;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use tempfile::TempDir;
use tenantd_dop::CpuSet;
use tenantd_host::cgroup::{Facet, Layout};
use tenantd_policy::model::{HierarchyChoice, RootChoice};

/// Those whose threads spin for each other.
const WAITING: [&str; 2] = ["barrier", "ticket"];
const BAR: f64 = 1.2;
const NR_ROUNDS: usize = 5;
/// What a policy says of the CPUs of its tenants: weights alone, and what is measured against it.
const POLICIES: [&str; 2] = ["shared", "dop"];
/// How long weights and widths need at most to be those of two tenants that work.
const SETTLE_MAX: Duration = Duration::from_secs(60);
/// How long they have to have been so.
const SETTLED: Duration = Duration::from_secs(3);

/// Items of work that take a second or two on a CPU of its own.
fn amount(kind: &str) -> u64 {
    match kind {
        "ticket" | "mutex" => 1_000_000,
        _ => 25_000,
    }
}

/// The trees in which the tenants live.
struct Place {
    name: String,
    layout: Layout,
    nr_cpus: usize,
}

impl Place {
    /// Where this machine has what it takes; otherwise why not.
    fn find() -> Result<Place, String> {
        if !Uid::effective().is_root() {
            return Err("making cgroups needs root".into());
        }
        let nr_cpus =
            std::thread::available_parallelism().map_err(|error| error.to_string())?.get();
        if nr_cpus < 2 {
            return Err("one CPU is no choice".into());
        }
        let name = format!("tenantd-gain-{}", std::process::id());
        let read = |path: &str| fs::read(path).map_err(|error| format!("{path}: {error}"));
        let (mounts, own) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let root = RootChoice::Path(PathBuf::from(&name));
        let layout = Layout::detect(&mounts, &own, HierarchyChoice::Auto, &root);
        let layout = layout.map_err(|error| error.to_string())?;
        match layout.tree(Facet::Cpuset) {
            Some(_) => Ok(Place { name, layout, nr_cpus }),
            None => Err("there is no cpuset controller here".into()),
        }
    }

    /// The cgroups of a tenant, in every tree that it has one in.
    fn cgroups(&self, tenant: &str) -> Vec<PathBuf> {
        let paths = self.layout.trees.iter().map(|tree| tree.root.join(tenant));
        paths.filter(|path| path.exists()).collect()
    }

    /// The CPUs of a tenant, where it was given any.
    fn cpus(&self, tenant: &str) -> Option<CpuSet> {
        let tree = &self.layout.trees[self.layout.tree(Facet::Cpuset)?];
        let text = fs::read_to_string(tree.root.join(tenant).join("cpuset.cpus")).ok()?;
        text.trim_end().parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
    }

    /// Gives the tenants together as much more weight than the rest of the machine as the kernel allows. Where
    /// it does not, the machine had better be quiet.
    fn outweigh(&self) {
        let is_unified = self.layout.is_unified();
        let (file, most) =
            if is_unified { ("cpu.weight", "10000") } else { ("cpu.shares", "262144") };
        let tree = self.layout.tree(Facet::Cpu).map(|tree| &self.layout.trees[tree]);
        let outcome = tree.map(|tree| fs::write(tree.root.join(file), most));
        if !matches!(outcome, Some(Ok(()))) {
            eprintln!("the rest of the machine competes on equal terms: {outcome:?}");
        }
    }

    /// A command that is in a tenant's cgroups before its first instruction.
    fn command(&self, tenant: &str, program: &Path) -> Command {
        let enter =
            r#"while [ "$1" != -- ]; do echo $$ >"$1" || exit 1; shift; done; shift; exec "$@""#;
        let mut command = Command::new("sh");
        command.args(["-c", enter, "sh"]);
        command.args(self.cgroups(tenant).iter().map(|path| path.join("cgroup.procs")));
        command.arg("--").arg(program);
        command
    }
}

/// A daemon with a policy, and a tenant that competes.
struct Stage<'a> {
    place: &'a Place,
    is_pinned: bool,
    daemon: Child,
    competitor: Option<Child>,
    scratch: TempDir,
}

impl<'a> Stage<'a> {
    /// Both tenants at work for a while, and treated as the policy says.
    fn set(place: &'a Place, cpus: &str) -> Result<Stage<'a>, String> {
        let scratch = tempfile::tempdir().unwrap();
        let policy = scratch.path().join("policy.yaml");
        let text = format!(
            "version: 1\nmode: enforce\nhost: {{ reserve: {{ cpu: 0, memory: 0 }} }}\n\
             tenants: {{ worker: {{ cpus: {cpus} }}, competitor: {{ cpus: {cpus} }} }}\n"
        );
        fs::write(&policy, text).unwrap();
        let log = fs::File::create(scratch.path().join("log")).unwrap();
        let mut daemon = Command::new(crate::programs::path("tenantd"));
        daemon.arg("--policy").arg(&policy).args(["--root", &place.name]);
        daemon.arg("--state-dir").arg(scratch.path().join("state"));
        let daemon = daemon.stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let is_pinned = cpus == "dop";
        let mut stage = Stage { place, is_pinned, daemon, competitor: None, scratch };
        stage.until("cgroups of the tenants", |stage| {
            ["worker", "competitor"].iter().all(|tenant| {
                !place.cgroups(tenant).is_empty()
                    && (!stage.is_pinned || place.cpus(tenant).is_some())
            })
        })?;
        place.outweigh();
        let load = Path::new(crate::programs::path("tenantctl"));
        let mut load = place.command("competitor", load);
        load.args(["load", &format!("threads={}", place.nr_cpus)]);
        stage.competitor = Some(load.stdin(Stdio::piped()).spawn().unwrap());
        let mut since = Instant::now();
        stage.until("settled tenants", |stage| {
            stage.run("independent", amount("independent") / 20);
            if !stage.is_as_wanted() {
                since = Instant::now();
            }
            since.elapsed() > SETTLED
        })?;
        Ok(stage)
    }

    fn until(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&Stage<'_>) -> bool,
    ) -> Result<(), String> {
        let begin = Instant::now();
        while !is_so(self) {
            let ended = self.daemon.try_wait().unwrap().is_some();
            if ended || begin.elapsed() > SETTLE_MAX {
                let log = fs::read_to_string(self.scratch.path().join("log")).unwrap_or_default();
                return Err(format!("waited in vain for {what}; tenantd says: {log}"));
            }
            sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Whether each tenant has a part of the CPUs for itself, where that is the policy.
    fn is_as_wanted(&self) -> bool {
        let sets = ["worker", "competitor"].map(|tenant| self.place.cpus(tenant));
        match (&sets, self.is_pinned) {
            ([Some(a), Some(b)], true) => {
                a.is_disjoint(b) && a.len() + b.len() == self.place.nr_cpus
            }
            (_, is_pinned) => !is_pinned,
        }
    }

    /// Does some work in the worker's cgroup; returns how long that took and how many threads did it.
    fn run(&self, kind: &str, amount: u64) -> (Duration, usize) {
        let mut command = self.place.command("worker", &std::env::current_exe().unwrap());
        command.args(["work", kind, &amount.to_string()]);
        let begin = Instant::now();
        let output = command.stderr(Stdio::inherit()).output().unwrap();
        let elapsed = begin.elapsed();
        assert!(output.status.success(), "{kind}: {}", output.status);
        (elapsed, String::from_utf8(output.stdout).unwrap().trim().parse().unwrap())
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        if let Some(competitor) = &mut self.competitor {
            let _ = competitor.kill();
            let _ = competitor.wait();
        }
        // It puts everything back, and removes what it made. It may have ended already.
        let _ = kill(Pid::from_raw(self.daemon.id() as i32), Signal::SIGTERM);
        let _ = self.daemon.wait();
    }
}

/// How long each kind of work took under each of [`POLICIES`], round by round, and with how many threads.
type Times = BTreeMap<&'static str, [Vec<(f64, usize)>; 2]>;

fn measure(place: &Place) -> Result<Times, String> {
    let mut times = Times::new();
    for round in 0..NR_ROUNDS {
        for (policy, cpus) in POLICIES.iter().enumerate() {
            let stage = Stage::set(place, cpus)?;
            for kind in one_per_cpu::KINDS {
                let (elapsed, nr_threads) = stage.run(kind, amount(kind));
                times.entry(kind).or_default()[policy].push((elapsed.as_secs_f64(), nr_threads));
            }
        }
        eprintln!("round {} of {NR_ROUNDS}", round + 1);
    }
    Ok(times)
}

/// The median, the smallest and the largest.
fn summary(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[values.len() / 2], values[0], values[values.len() - 1]]
}

fn print(times: &Times) -> Bars {
    let mut bars = Bars::default();
    println!("{:12} {:>28} {:>28} {:>22}", "", "weights alone", "cpus: dop", "times as fast");
    for kind in one_per_cpu::KINDS {
        let sides = &times[kind];
        let figures = sides.each_ref().map(|runs| {
            let [median, least, most] = summary(runs.iter().map(|(seconds, _)| *seconds));
            let threads = runs.last().unwrap().1;
            format!("{median:.2} s ({least:.2}-{most:.2}) {threads} thr")
        });
        let ratios = sides[0].iter().zip(&sides[1]).map(|(weights, dop)| weights.0 / dop.0);
        let [median, least, most] = summary(ratios);
        let ratio = format!("{median:.2} ({least:.2}-{most:.2})");
        println!("{kind:12} {:>28} {:>28} {ratio:>22}", figures[0], figures[1]);
        let name = format!("a program of the kind {kind} under cpus: dop");
        if WAITING.contains(&kind) {
            bars.at_least(name, median, "x as fast as under weights", BAR)
        } else {
            bars.note(name, median, "x as fast as under weights")
        }
    }
    bars
}

/// What else the machine does: the load average of the last minute.
fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_string()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, word, kind, amount] = &arguments[..]
        && word == "work"
    {
        println!("{}", one_per_cpu::run(kind, amount.parse().unwrap()).unwrap());
        return ExitCode::SUCCESS;
    }
    let place = match Place::find() {
        Ok(place) => place,
        Err(reason) => {
            println!("gain: skipped: {reason}");
            return ExitCode::SUCCESS;
        }
    };
    let hierarchy = if place.layout.is_unified() { "cgroup v2" } else { "cgroup v1" };
    println!(
        "gain: {} CPUs, {hierarchy}; {NR_ROUNDS} rounds; load before: {}",
        place.nr_cpus,
        load_average()
    );
    match measure(&place) {
        Ok(times) => print(&times).verdict(),
        Err(reason) => {
            println!("gain: skipped: {reason}");
            ExitCode::SUCCESS
        }
    }
}
