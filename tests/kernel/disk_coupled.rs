//! A slow disk that is divided together with CPUs: three tenants of weights 3:2:1, of which one waits for the disk alone.

use serde_json::Value;
use tenantd_fair::{self, Algorithm, Demand, Kind, Node, Problem, WorkConserving};
use tenantd_host::cgroup::Facet;

use super::ask::Asked;
use super::disk_weights::{Readers, SlowDisk, count_requests};
use super::ground::Ground;
use crate::util::{self, wait_until};

const POLICY: &str = "host: { disks: weigh, reserve: { cpu: 0, memory: 0 } }\n\
                      control: { couple: [cpu, memory, disk], interval: 500ms }\n\
                      tenants: { a: { weight: 300 }, b: { weight: 200 }, c: { weight: 100 } }";
const WEIGHTS: [f64; 3] = [3.0, 2.0, 1.0];
/// Ticks of which the mean is judged: seven seconds.
const JUDGED: u64 = 14;

/// Means of ticks: parts of CPU time that each tenant has a right to and uses, its demand, and its part of the disk.
#[derive(Clone, Copy, Debug, Default)]
struct Mean {
    allocated: f64,
    used: f64,
    demand: f64,
    disk: f64,
}

fn means(asked: &Asked) -> ([Mean; 3], f64) {
    let mut sums = [Mean::default(); 3];
    let (mut capacity, mut seen, mut last) = (0.0, 0, asked.status()["tick"].as_u64().unwrap());
    wait_until("ticks to judge", || {
        let status = asked.status();
        let tick = status["tick"].as_u64().unwrap();
        if tick > last {
            (last, seen) = (tick, seen + 1);
            let cores = status["host"]["capacity_cores"].as_f64().unwrap();
            capacity += cores;
            for (sum, of) in sums.iter_mut().zip(status["tenants"].as_array().unwrap()) {
                let number = |value: &Value| value.as_f64().unwrap_or(0.0);
                sum.allocated += number(&of["allocation_cores"]) / cores;
                sum.used += number(&of["usage_cores"]) / cores;
                sum.demand += number(&of["demand_cores"]);
                sum.disk += number(&of["disks"][0]["work_ratio"]);
            }
        }
        seen >= JUDGED
    });
    let n = seen as f64;
    let mean = |sum: Mean| Mean {
        allocated: sum.allocated / n,
        used: sum.used / n,
        demand: sum.demand / n,
        disk: sum.disk / n,
    };
    (sums.map(mean), capacity / n)
}

/// Parts of CPU time and of the disk that the allocation core computes, with the disk or without.
fn solved(means: &[Mean; 3], capacity: f64, has_disk: bool) -> [[f64; 2]; 3] {
    let leaf = |(at, disk): (usize, f64)| {
        let wants = vec![means[at].demand.min(capacity), disk];
        let nr_columns = if has_disk { 2 } else { 1 };
        Node {
            parent: None,
            weight: vec![WEIGHTS[at]; nr_columns],
            kind: Kind::Leaf(Demand::once(wants[..nr_columns].to_vec())),
        }
    };
    let nodes = [(0, 1.0), (1, 0.0), (2, 1.0)].map(leaf).into();
    let capacities = if has_disk { vec![capacity, 1.0] } else { vec![capacity] };
    let problem = Problem::try_new(capacities, nodes).unwrap();
    let solution = tenantd_fair::allocate(&problem, Algorithm::Drf, WorkConserving::Yes);
    [0, 1, 2].map(|leaf| {
        let all = solution.allocation(leaf);
        [all[0] / capacity, all.get(1).copied().unwrap_or(0.0)]
    })
}

fn is_coupled(asked: &Asked) -> bool {
    let status = asked.status();
    let of = |tenant: usize| status["tenants"][tenant]["disk_share"]["is_coupled"] == true;
    of(0) && of(2)
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn three_tenants_share_a_slow_disk_and_the_cpus() {
    let Some(ground) = Ground::take() else { return };
    if ground.layout.tree(Facet::Io).is_none() {
        return util::skipped("no hierarchy has the controller of disks");
    }
    let disk = match SlowDisk::start() {
        Ok(disk) => disk,
        Err(why) => return util::skipped(&why),
    };
    if disk.choose("bfq").is_err() {
        return util::skipped("the kernel has no bfq");
    }
    let mut asked = Asked::on(ground, POLICY);
    wait_until("the tenant", || asked.ground.weight("a").is_some());
    let readers = Readers::start(&mut asked, &disk, &["a", "c"]);
    count_requests(&asked.ground, &disk.device);
    for tenant in ["b", "c"] {
        asked.ground.load(tenant, "threads=4");
    }
    wait_until("the coupling", || is_coupled(&asked));
    // The first means have samples from before it.
    means(&asked);
    let (coupled, capacity) = means(&asked);
    let due = solved(&coupled, capacity, true);
    println!("coupled: {coupled:?}, solved {due:?}");
    let is_still_coupled = is_coupled(&asked);
    disk.choose("mq-deadline").unwrap();
    wait_until("the end of the coupling", || {
        let void = format!("disk weights are ineffective on {}", disk.device);
        !is_coupled(&asked) && asked.status()["findings"].to_string().contains(&void)
    });
    means(&asked);
    let (void, void_capacity) = means(&asked);
    let without = solved(&void, void_capacity, false);
    println!("void: {void:?}, solved {without:?}");
    readers.end(&mut asked);
    asked.daemon.stop();
    assert!(is_still_coupled);
    for (mean, due) in coupled.iter().zip(due) {
        assert!((mean.allocated - due[0]).abs() < 0.02, "{mean:?} {due:?}");
        assert!((mean.used - due[0]).abs() < 0.05, "{mean:?} {due:?}");
        assert!((mean.disk - due[1]).abs() < 0.05, "{mean:?} {due:?}");
    }
    for (mean, due) in void.iter().zip(without) {
        assert!((mean.allocated - due[0]).abs() < 0.02, "{mean:?} {due:?}");
    }
}
