//! Two tenants that build beside each other: as jobs, and with `-j$(nproc)` each.
//!
//! `cargo bench --bench builds`, as root; some minutes. Bar: both end no later than with `-j$(nproc)` each, with at most two
//! thirds of the memory at its peak.
//!
//! Each tenant builds a program of generated C sources with gcc and make, from nothing: 16 files of 60 functions. In
//! turns, four times: both as jobs of a daemon with `tenantctl run -- make`, and both with `make -j$(nproc)` in two cgroups
//! below one that stands where the daemon's root stood: other work on the machine has the same weight beside both.
//! Memory is what the processes have that is no file cache, summed over both builds, looked at every 20 ms; judged is the
//! mean of the rounds' peaks, as of their times. A single round has three commands at once where the first job began
//! two before the second was submitted.

#![allow(clippy::unwrap_used, reason = "a benchmark measures; it need not handle")]

mod bar;
mod cpu_tree;
mod daemon;
#[path = "../tests/programs.rs"]
mod programs;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use nix::unistd::Uid;

use bar::Bars;
use cpu_tree::cpu_tree;
use daemon::Daemon;

const NR_FILES: usize = 16;
const NR_FUNCTIONS: usize = 60;
const NR_ROUNDS: usize = 4;
const LOOK: Duration = Duration::from_millis(20);
const TENANTS: [&str; 2] = ["one", "two"];
const POLICY: &str = "version: 1\nmode: enforce\ntenants: { one: {}, two: {} }\n";

/// A program of many functions that call each other and loop over arrays.
fn write_sources(dir: &Path) {
    let mut objects = String::new();
    for file in 0..NR_FILES {
        let mut text =
            String::from("#include <stdio.h>\n#include <string.h>\n#include <stdlib.h>\n");
        for number in 0..NR_FUNCTIONS {
            write!(
                text,
                "double f{file}_{number}(double *a, int n, int k) {{\n\
                 \x20 double s = {number}.5; char text[64];\n\
                 \x20 for (int i = 0; i < n; i++) {{\n\
                 \x20   for (int j = i; j < n; j += k + 1) {{\n\
                 \x20     s += a[i] * a[j] - (double)((i * j) % {m});\n\
                 \x20     if (s > 1e9) s = s / (1.0 + a[(i + j) % n]); else a[j] = s * 0.5 + a[i];\n\
                 \x20   }}\n\
                 \x20   snprintf(text, sizeof text, \"%d:%f\", i, s); s += strlen(text);\n\
                 \x20   switch ((i + k) % 7) {{ case 0: s += 1; break; case 1: s *= 1.5; break; case 2: s -= k; break;\n\
                 \x20     case 3: s /= 3; break; case 4: s += a[0]; break; default: s = -s; }}\n\
                 \x20 }}\n\
                 \x20 return s{call};\n}}\n",
                m = number + 3,
                call = match number {
                    0 => String::new(),
                    _ => format!(" + f{file}_{}(a, n, k + 1)", number - 1),
                },
            )
            .unwrap();
        }
        fs::write(dir.join(format!("f{file}.c")), text).unwrap();
        write!(objects, " f{file}.o").unwrap();
    }
    fs::write(dir.join("main.c"), "int main(void) { return 0; }\n").unwrap();
    let makefile = format!(
        "program: main.o{objects}\n\tgcc -o $@ $^\n%.o: %.c\n\tgcc -O2 -g -c -o $@ $<\n\
         clean:\n\trm -f *.o program\n"
    );
    fs::write(dir.join("Makefile"), makefile).unwrap();
}

/// Anonymous memory of these processes and all below them, in bytes.
fn memory(roots: &[u32]) -> u64 {
    let mut children: std::collections::BTreeMap<u32, Vec<u32>> = Default::default();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(')') else { continue };
        if let Some(parent) = rest.split_whitespace().nth(1).and_then(|it| it.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut sum, mut todo) = (0, roots.to_vec());
    while let Some(pid) = todo.pop() {
        todo.extend(children.get(&pid).into_iter().flatten());
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|it| it.split_whitespace().next()?.parse::<u64>().ok());
        sum += kib.unwrap_or(0) * 1024;
    }
    sum
}

/// The cgroup of the CPU controller in which both build without the daemon, removed with this.
struct Plain(PathBuf);

impl Plain {
    fn make() -> Plain {
        let (layout, root) = cpu_tree(&format!("tenantd-builds-plain-{}", std::process::id()));
        fs::create_dir(&root).unwrap();
        if layout.is_unified() {
            fs::write(root.join("cgroup.subtree_control"), "+cpu").unwrap();
        }
        TENANTS.iter().for_each(|tenant| fs::create_dir(root.join(tenant)).unwrap());
        Plain(root)
    }

    /// `make` in the cgroup of a tenant.
    fn build(&self, tenant: &str, dir: &Path, nr_cpus: usize) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ >\"$0\"; exec make \"$@\""]);
        command.arg(self.0.join(tenant).join("cgroup.procs"));
        command.arg(format!("-j{nr_cpus}")).arg("-C").arg(dir);
        command
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        for dir in TENANTS.map(|tenant| self.0.join(tenant)).iter().chain([&self.0]) {
            let _ = fs::remove_dir(dir);
        }
    }
}

/// How long both take, in seconds, and the most memory that they have together.
fn both(commands: [Command; 2]) -> (f64, u64) {
    let begin = Instant::now();
    let mut children = commands.map(|mut command| {
        command.stdin(Stdio::null()).stdout(Stdio::null()).env_remove("MAKEFLAGS").spawn().unwrap()
    });
    let pids = [children[0].id(), children[1].id()];
    let mut peak = 0;
    let mut left: Vec<usize> = vec![0, 1];
    while !left.is_empty() {
        peak = peak.max(memory(&pids));
        left.retain(|at| match children[*at].try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "{status}");
                false
            }
            None => true,
        });
        sleep(LOOK);
    }
    (begin.elapsed().as_secs_f64(), peak)
}

fn main() -> ExitCode {
    if !Uid::effective().is_root() {
        eprintln!("making cgroups needs root");
        return ExitCode::SUCCESS;
    }
    let root = format!("tenantd-builds-{}", std::process::id());
    let nr_cpus = thread::available_parallelism().unwrap().get();
    let dir = tempfile::tempdir().unwrap();
    let dirs = TENANTS.map(|tenant| dir.path().join(tenant));
    for dir in &dirs {
        fs::create_dir(dir).unwrap();
        write_sources(dir);
    }
    let clean = || {
        for dir in &dirs {
            let cleaned = Command::new("make").arg("-C").arg(dir).arg("clean").output().unwrap();
            assert!(cleaned.status.success());
        }
    };
    println!(
        "two builds of {NR_FILES} files on {nr_cpus} CPUs: seconds until both end, peak in MiB"
    );
    let (mut sums, mut worst) = ([(0.0, 0); 2], 0.0_f64);
    for round in 1..=NR_ROUNDS {
        let daemon = Daemon::start(dir.path(), &root, POLICY);
        let jobs = [0, 1].map(|at| {
            let mut run = Command::new(crate::programs::path("tenantctl"));
            run.arg("--socket").arg(&daemon.socket).args(["run", "--tenant", TENANTS[at], "--"]);
            run.args(["make", "-C"]).arg(&dirs[at]);
            run
        });
        clean();
        let as_jobs = both(jobs);
        // Their cgroups are removed.
        sleep(Duration::from_secs(1));
        drop(daemon);
        let cgroup = Plain::make();
        let plain = [0, 1].map(|at| cgroup.build(TENANTS[at], &dirs[at], nr_cpus));
        clean();
        let plain = both(plain);
        drop(cgroup);
        for (name, (seconds, peak)) in [("as jobs", as_jobs), ("make -j$(nproc)", plain)] {
            println!("round {round}: {name:16} {seconds:8.1} {:8.0}", peak as f64 / 1048576.0);
        }
        worst = worst.max(as_jobs.1 as f64 / plain.1 as f64);
        for (sum, (seconds, peak)) in sums.iter_mut().zip([as_jobs, plain]) {
            *sum = (sum.0 + seconds, sum.1 + peak);
        }
    }
    let [(jobs, jobs_peak), (plain, plain_peak)] = sums;
    let (time, peak) = (jobs / plain, jobs_peak as f64 / plain_peak as f64);
    let mut bars = Bars::default();
    bars.at_most("two builds as jobs, time until both end", time, "x make -j$(nproc) each", 1.0);
    bars.at_most("two builds as jobs, peak of memory", peak, "x make -j$(nproc) each", 0.67);
    bars.note("the same, the worst round", worst, "x make -j$(nproc) each");
    bars.verdict()
}
