//! A tenant that makes thousands of cgroups below itself, forks and renames its processes all the time: the ticks of
//! the agent, and with them all other tenants, do not pay for it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::ask::Asked;
use crate::util::wait_until;

/// Below the hostile tenant, in folders of a hundred.
const NR_CGROUPS: usize = 10_000;
/// Ticks over which is measured: two of the longest periods of what a tick does now and then.
const NR_TICKS: u64 = 40;
/// What a tick may read more: the agent visits the cgroups of a tenant in small parts.
const READS_MORE_MAX: f64 = 300.0;
const POLICY: &str = "
control: { interval: 200ms }
tenants: { victim: {}, hostile: {} }";
/// Names that look like the fields behind a name in /proc/PID/stat.
const FORKS: &str = "while :; do (printf ') R 1 (' >/proc/self/comm; :) & wait; done";

/// What one tick costs.
#[derive(Clone, Copy, Debug)]
struct Cost {
    reads: f64,
    cpu_ms: f64,
}

/// The reads of the process so far, and its CPU time in milliseconds.
fn spent(pid: i32) -> [f64; 2] {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let io = read("io");
    let reads = io.lines().find_map(|line| line.strip_prefix("syscr: ")).unwrap();
    let nanoseconds: f64 = fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|task| fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap())
        .map(|text| text.split_whitespace().next().unwrap().parse::<f64>().unwrap())
        .sum();
    [reads.parse().unwrap(), nanoseconds * 1e-6]
}

fn cost(asked: &Asked) -> Cost {
    let tick = || asked.status()["tick"].as_u64().unwrap();
    let pid = asked.daemon.pid();
    let (first, before) = (tick(), spent(pid));
    wait_until("some ticks", || {
        std::thread::sleep(Duration::from_millis(500));
        tick() >= first + NR_TICKS
    });
    let (after, nr_ticks) = (spent(pid), (tick() - first) as f64);
    Cost { reads: (after[0] - before[0]) / nr_ticks, cpu_ms: (after[1] - before[1]) / nr_ticks }
}

fn populate(top: &Path) {
    for number in 0..NR_CGROUPS {
        let path = top.join(format!("{}/{number}", number / 100));
        fs::create_dir_all(&path).unwrap();
    }
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_tenant_with_ten_thousand_cgroups_costs_no_tick() {
    let Some(mut asked) = Asked::begin(POLICY) else { return };
    wait_until("the weights", || asked.ground.weight("hostile").is_some());
    asked.ground.load("victim", "threads=1");
    asked.ground.load("hostile", "threads=1");
    let before = cost(&asked);
    let trees = asked.ground.layout.trees.iter().filter(|tree| tree.is_for_all());
    let tops: Vec<_> = trees.map(|tree| tree.root.join("hostile")).collect();
    tops.iter().filter(|top| top.exists()).for_each(|top| populate(top));
    for _ in 0..4 {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", FORKS]);
        asked.ground.spawn("hostile", command);
    }
    let after = cost(&asked);
    for (when, cost) in [("before", before), ("since", after)] {
        println!("{when}: {:.0} reads and {:.2} ms a tick", cost.reads, cost.cpu_ms);
    }
    assert!(after.reads < before.reads + READS_MORE_MAX, "{before:?} before, {after:?} since");
    let said = asked.daemon.stop();
    assert!(!said.contains("panicked"), "{said}");
}
