//! Noise: sets and widths that keep still and are still right.

use std::time::Duration;

use tenantd_dop::CpuSet;
use tenantd_sim::{Load, SimHost, Trace};

use super::{HOSTS, Watch, dops};

const SECOND: Duration = Duration::from_secs(1);

/// A generator of its own (xorshift64*), so that a run can be repeated anywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

/// `threads` that want 85 % of a CPU each, give or take 15, anew every second.
fn noisy(threads: u32, seed: u64) -> Trace {
    let base = Load { duty: 0.85, ..Load::busy(threads) };
    Trace::Noisy { base, amplitude: 0.15, interval: SECOND, seed }
}

/// Four tenants of every kind that change their minds at any moment, CPUs that come and go: whatever
/// happens, [`Watch::tick`] holds.
#[test]
fn every_tenant_has_cpus_and_moves_at_most_once_in_ten_seconds() {
    let yaml = "tenants:\n  a: { cpus: dop }\n  b: { cpus: dop, weight: 300 }\n  \
                c: { cpus: exclusive, dop: { max: 3 } }\n  d: { cpus: dop, dop: { max: 4 } }\n  \
                e: { cpus: exclusive }\n  f: {}\n";
    let names = ["a", "b", "c", "d", "e", "f"];
    for (seed, host) in (1..=6_u64).zip(HOSTS.into_iter().cycle()) {
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut watch = Watch::begin(host(), &names, yaml);
        let pids = names.map(|name| watch.world.spawn(&format!("/{name}"), Load::idle()));
        let mut short = 0;
        for tick in 0..400 {
            if random.below(4) == 0 {
                let pid = pids[random.below(6) as usize];
                let load = match random.below(3) {
                    0 => Trace::Constant(Load::idle()),
                    _ => noisy(1 + random.below(10) as u32, tick),
                };
                watch.world.host.with(|kernel| kernel.set_trace(pid, load)).unwrap();
            }
            if random.below(40) == 0 {
                let cpu = 1 + random.below(7) as u32;
                let online = random.below(3) > 0;
                watch.world.host.with(|kernel| kernel.set_cpu_online(cpu, online));
            }
            let status = watch.tick();
            if status.findings.iter().any(|finding| finding.contains("exclusive")) {
                short = tick;
            }
            for own in ["c", "e"] {
                let others = names.iter().filter(|name| **name != own);
                let all =
                    others.map(|name| watch.cpus(name)).fold(CpuSet::new(), |a, b| a.union(&b));
                // For want of CPUs it shares, and goes on for the time that everybody rests.
                assert!(watch.cpus(own).is_disjoint(&all) || tick < short + 15, "{own}: {tick}");
            }
        }
        assert!(watch.nr_changes > 10, "seed {seed}: nothing happened");
        assert_eq!(watch.world.stop().failures, [""; 0], "seed {seed}");
    }
}

/// The load of one tenant for two hours: a number of threads that changes a few times an hour.
fn phases(random: &mut Random, seconds: u64) -> Vec<u32> {
    let mut threads = Vec::new();
    while (threads.len() as u64) < seconds {
        let awake = random.below(5) > 0;
        let wanted = if awake { 2 + random.below(9) as u32 } else { 0 };
        threads.extend(std::iter::repeat_n(wanted, 300 + random.below(1200) as usize));
    }
    threads.truncate(seconds as usize);
    threads
}

/// What the same tenants would get of the slots by weight if nothing were noisy: max-min, rounded.
fn ideal(wanted: &[u32], slots: u32) -> Vec<f64> {
    let mut given = vec![0.0; wanted.len()];
    let mut open: Vec<usize> = (0..wanted.len()).filter(|&i| wanted[i] > 0).collect();
    let mut left = f64::from(slots);
    while !open.is_empty() {
        let level = left / open.len() as f64;
        let (filled, rest): (Vec<usize>, Vec<usize>) =
            open.iter().partition(|&&i| f64::from(wanted[i]) <= level);
        if filled.is_empty() {
            rest.iter().for_each(|&i| given[i] = level);
            break;
        }
        for i in filled {
            given[i] = f64::from(wanted[i]);
            left -= given[i];
        }
        open = rest;
    }
    given
}

#[test]
fn over_two_noisy_hours_widths_change_seldom_and_are_right() {
    const SECONDS: u64 = 7200;
    let mut random = Random(0x5851_F42D_4C95_7F2D);
    let names = ["a", "b", "c"];
    let yaml = "control: { interval: 1s }\ntenants: { a: { cpus: dop }, b: { cpus: dop }, c: { cpus: dop } }";
    let host = SimHost { cpus: 12, numa_nodes: 2, ..SimHost::default() };
    let mut watch = Watch::begin(host, &names, yaml);
    let pids = names.map(|name| watch.world.spawn(&format!("/{name}"), Load::idle()));
    let threads = names.map(|_| phases(&mut random, SECONDS));
    let mut before = [0; 3];
    let (mut changes, mut off, mut sum) = ([0_u32; 3], [0.0; 3], [0.0; 3]);
    for second in 0..SECONDS as usize {
        for (tenant, pid) in pids.iter().enumerate() {
            let now = threads[tenant][second];
            if second == 0 || threads[tenant][second - 1] != now {
                let trace = match now {
                    0 => Trace::Constant(Load::idle()),
                    _ => noisy(now, second as u64),
                };
                watch.world.host.with(|kernel| kernel.set_trace(*pid, trace)).unwrap();
            }
        }
        let dop = dops(&watch.tick());
        let wanted: Vec<u32> = threads.iter().map(|threads| threads[second]).collect();
        for (tenant, ideal) in ideal(&wanted, 12).into_iter().enumerate() {
            changes[tenant] += u32::from(dop[tenant] != before[tenant]);
            before[tenant] = dop[tenant];
            // Of one that sleeps nothing can be said: it is told its share.
            if ideal > 0.0 {
                off[tenant] += (f64::from(dop[tenant]) - ideal).abs();
                sum[tenant] += ideal;
            }
        }
    }
    for tenant in 0..3 {
        let (per_hour, error) = (f64::from(changes[tenant]) / 2.0, off[tenant] / sum[tenant]);
        println!("tenant {tenant}: {per_hour} changes an hour, mean error {error:.3}");
        assert!(per_hour <= 12.0, "tenant {tenant}: {per_hour} changes an hour");
        assert!(error < 0.1, "tenant {tenant}: mean error {error:.3}");
    }
}
