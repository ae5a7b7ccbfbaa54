//! Who gets CPU time, and what the counters say of it.

use proptest::prelude::*;

use super::{MIB, MOUNT, SECOND, duty, field, host, rates, read, write};
use tenantd_sim::{Load, SimHost, SimKernel, Trace, Workload};

fn close(actual: &[f64], expected: &[f64]) {
    let near = actual.iter().zip(expected).all(|(a, e)| (a - e).abs() < 2e-6);
    assert!(near && actual.len() == expected.len(), "{actual:?} is not {expected:?}");
}

#[test]
fn weights_1_2_4() {
    let mut kernel = host(7, &["/a", "/b", "/c"]);
    for (path, weight) in [("/a", "100"), ("/b", "200"), ("/c", "400")] {
        write(&mut kernel, &format!("{path}/cpu.weight"), weight).unwrap();
        kernel.spawn(path, Load::busy(8)).unwrap();
    }
    close(&rates(&mut kernel, &["/a", "/b", "/c"], SECOND * 3), &[1.0, 2.0, 4.0]);
}

#[test]
fn tiny_weights_suffer_the_rounding_of_shares() {
    let mut kernel = host(1, &["/a", "/b", "/c"]);
    for (path, weight) in [("/a", "1"), ("/b", "2"), ("/c", "4")] {
        write(&mut kernel, &format!("{path}/cpu.weight"), weight).unwrap();
        kernel.spawn(path, Load::busy(1)).unwrap();
    }
    let expected = [10.0 / 71.0, 20.0 / 71.0, 41.0 / 71.0];
    close(&rates(&mut kernel, &["/a", "/b", "/c"], SECOND), &expected);
}

#[test]
fn unused_shares_are_distributed_by_weight() {
    let mut kernel = host(4, &["/small", "/b", "/c"]);
    write(&mut kernel, "/small/cpu.weight", "10000").unwrap();
    write(&mut kernel, "/c/cpu.weight", "200").unwrap();
    kernel.spawn("/small", duty(0.4)).unwrap();
    kernel.spawn("/b", Load::busy(4)).unwrap();
    kernel.spawn("/c", Load::busy(4)).unwrap();
    close(&rates(&mut kernel, &["/small", "/b", "/c"], SECOND), &[0.4, 1.2, 2.4]);
}

#[test]
fn a_thread_runs_on_one_cpu_at_a_time() {
    let mut kernel = host(4, &["/one", "/many"]);
    write(&mut kernel, "/one/cpu.weight", "10000").unwrap();
    kernel.spawn("/one", Load::busy(1)).unwrap();
    kernel.spawn("/many", Load::busy(16)).unwrap();
    close(&rates(&mut kernel, &["/one", "/many"], SECOND), &[1.0, 3.0]);
}

#[test]
fn nested_groups_divide_what_their_parent_gets() {
    let mut kernel = host(6, &["/a/x", "/a/y", "/b"]);
    write(&mut kernel, "/a/cpu.weight", "200").unwrap();
    write(&mut kernel, "/a/y/cpu.weight", "300").unwrap();
    for path in ["/a/x", "/a/y", "/b"] {
        kernel.spawn(path, Load::busy(6)).unwrap();
    }
    close(&rates(&mut kernel, &["/a", "/a/x", "/a/y", "/b"], SECOND), &[4.0, 1.0, 3.0, 2.0]);
}

#[test]
fn each_thread_in_the_root_competes_like_a_group_of_weight_100() {
    let mut kernel = host(4, &["/a"]);
    kernel.spawn("/", Load::busy(3)).unwrap();
    kernel.spawn("/a", Load::busy(4)).unwrap();
    close(&rates(&mut kernel, &["/", "/a"], SECOND), &[4.0, 1.0]);
}

#[test]
fn without_the_controller_a_group_competes_thread_by_thread() {
    let mut kernel = SimKernel::new(SimHost { cpus: 3, ..SimHost::default() });
    let root = super::open(&mut kernel, "");
    for name in ["a", "b"] {
        tenantd_host::kernfs::KernFs::make_dir(&mut kernel, root, name).unwrap();
    }
    kernel.spawn("/a", Load::busy(4)).unwrap();
    kernel.spawn("/b", Load::busy(8)).unwrap();
    close(&rates(&mut kernel, &["/a", "/b"], SECOND), &[1.0, 2.0]);
}

#[test]
fn a_quota_holds_and_is_counted() {
    let mut kernel = host(4, &["/a", "/b"]);
    write(&mut kernel, "/a/cpu.max", "50000 100000").unwrap();
    kernel.spawn("/a", Load::busy(2)).unwrap();
    kernel.spawn("/b", Load::busy(1)).unwrap();
    close(&rates(&mut kernel, &["/a", "/b"], SECOND * 2), &[0.5, 1.0]);
    assert_eq!(field(&kernel, "/a/cpu.stat", "nr_periods"), 20);
    assert_eq!(field(&kernel, "/a/cpu.stat", "nr_throttled"), 20);
    // Two run queues, stopped three quarters of two seconds each.
    assert_eq!(field(&kernel, "/a/cpu.stat", "throttled_usec"), 3_000_000);
    assert_eq!(field(&kernel, "/b/cpu.stat", "nr_periods"), 0);
    let pressure = read(&kernel, "/a/cpu.pressure");
    assert!(pressure.contains("full avg10=13.60"), "stopped 75 % of 2 s: {pressure}");
}

#[test]
fn a_quota_that_is_not_reached_does_not_throttle() {
    let mut kernel = host(1, &["/a", "/b"]);
    write(&mut kernel, "/a/cpu.max", "60000").unwrap();
    kernel.spawn("/a", Load::busy(1)).unwrap();
    kernel.spawn("/b", Load::busy(1)).unwrap();
    close(&rates(&mut kernel, &["/a", "/b"], SECOND), &[0.5, 0.5]);
    assert_eq!(field(&kernel, "/a/cpu.stat", "nr_throttled"), 0);
}

#[test]
fn a_cpuset_confines_and_the_rest_is_shared_fairly() {
    let mut kernel = host(4, &["/a", "/b"]);
    write(&mut kernel, "/a/cpuset.cpus", "0").unwrap();
    write(&mut kernel, "/a/cpu.weight", "10000").unwrap();
    kernel.spawn("/a", Load::busy(4)).unwrap();
    kernel.spawn("/b", Load::busy(4)).unwrap();
    close(&rates(&mut kernel, &["/a", "/b"], SECOND), &[1.0, 3.0]);
}

#[test]
fn overlapping_cpusets_share_what_overlaps() {
    // a may use 0-1, b 1-2, c 2: with equal weights max-min gives everyone one CPU.
    let mut kernel = host(3, &["/a", "/b", "/c"]);
    for (path, cpus) in [("/a", "0-1"), ("/b", "1-2"), ("/c", "2")] {
        write(&mut kernel, &format!("{path}/cpuset.cpus"), cpus).unwrap();
        kernel.spawn(path, Load::busy(3)).unwrap();
    }
    close(&rates(&mut kernel, &["/a", "/b", "/c"], SECOND), &[1.0, 1.0, 1.0]);
    write(&mut kernel, "/b/cpuset.cpus", "2").unwrap();
    close(&rates(&mut kernel, &["/a", "/b", "/c"], SECOND), &[2.0, 0.5, 0.5]);
}

#[test]
fn a_cpu_that_goes_offline_leaves_the_set() {
    let mut kernel = host(4, &["/a", "/b"]);
    write(&mut kernel, "/a/cpuset.cpus", "2-3").unwrap();
    kernel.spawn("/a", Load::busy(4)).unwrap();
    kernel.spawn("/b", Load::busy(4)).unwrap();
    kernel.set_cpu_online(3, false);
    assert_eq!(read(&kernel, "/a/cpuset.cpus"), "2-3\n");
    assert_eq!(read(&kernel, "/a/cpuset.cpus.effective"), "2\n");
    assert_eq!(kernel.file("/sys/devices/system/cpu/online").unwrap(), "0-2\n");
    close(&rates(&mut kernel, &["/a", "/b"], SECOND), &[1.0, 2.0]);
}

#[test]
fn a_frozen_group_does_not_run_and_does_not_wait() {
    let mut kernel = host(1, &["/a/x", "/b"]);
    kernel.spawn("/a/x", Load::busy(1)).unwrap();
    kernel.spawn("/b", Load::busy(1)).unwrap();
    write(&mut kernel, "/a/cgroup.freeze", "1").unwrap();
    close(&rates(&mut kernel, &["/a", "/b"], SECOND), &[0.0, 1.0]);
    assert_eq!(read(&kernel, "/a/x/cgroup.events"), "populated 1\nfrozen 1\n");
    assert!(read(&kernel, "/a/cpu.pressure").starts_with("some avg10=0.00"));
    write(&mut kernel, "/a/cgroup.freeze", "0").unwrap();
    close(&rates(&mut kernel, &["/a", "/b"], SECOND), &[0.5, 0.5]);
}

#[test]
fn waiting_shows_in_schedstat_and_in_pressure() {
    let mut kernel = host(1, &["/a", "/b"]);
    let pid = kernel.spawn("/a", Load::busy(1)).unwrap();
    kernel.spawn("/b", Load::busy(1)).unwrap();
    kernel.advance(SECOND * 2);
    let schedstat = kernel.file(&format!("/proc/{pid}/schedstat")).unwrap();
    assert_eq!(schedstat, "1000000000 1000000000 334\n");
    let expected = "some avg10=9.06 avg60=1.64 avg300=0.33 total=1000000\n\
                    full avg10=9.06 avg60=1.64 avg300=0.33 total=1000000\n";
    assert_eq!(read(&kernel, "/a/cpu.pressure"), expected);
    let host = kernel.file("/proc/pressure/cpu").unwrap();
    assert!(host.contains("some avg10=18.13 avg60=3.28 avg300=0.66 total=2000000"), "{host}");
    assert!(host.ends_with("full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"), "{host}");
}

#[test]
fn a_satisfied_group_shows_no_pressure() {
    let mut kernel = host(2, &["/a"]);
    kernel.spawn("/a", duty(0.7)).unwrap();
    kernel.advance(SECOND * 10);
    assert!(read(&kernel, "/a/cpu.pressure").contains("total=0\nfull"));
}

#[test]
fn proc_stat_adds_up_to_the_time_of_every_cpu() {
    let mut kernel = host(2, &["/a"]);
    let load = Load { system_ratio: 0.25, ..duty(0.8) };
    kernel.spawn("/a", load).unwrap();
    kernel.advance(SECOND * 100);
    let stat = kernel.file("/proc/stat").unwrap();
    assert!(
        stat.starts_with("cpu  6000 0 2000 12000 0 0 0 0 0 0\ncpu0 3000 0 1000 6000 0"),
        "{stat}"
    );
    assert_eq!(field(&kernel, "/a/cpu.stat", "user_usec"), 60_000_000);
    assert_eq!(field(&kernel, "/a/cpu.stat", "system_usec"), 20_000_000);
}

#[test]
fn a_process_takes_its_future_along_and_leaves_its_past() {
    let mut kernel = host(1, &["/a", "/b"]);
    let pid = kernel.spawn("/a", Load::busy(2)).unwrap();
    kernel.advance(SECOND);
    write(&mut kernel, "/b/cgroup.procs", &pid.to_string()).unwrap();
    kernel.advance(SECOND);
    assert_eq!(kernel.process_cgroup(pid).as_deref(), Some("/b"));
    assert_eq!(kernel.usage_usec("/a"), Some(1_000_000));
    assert_eq!(kernel.usage_usec("/b"), Some(1_000_000));
    assert_eq!(kernel.file(&format!("/proc/{pid}/cgroup")).unwrap(), "0::/b\n");
    assert_eq!(read(&kernel, "/b/cgroup.threads").lines().count(), 2);
    kernel.kill(pid).unwrap();
    assert_eq!(kernel.file(&format!("/proc/{pid}/cgroup")), Err(nix::errno::Errno::ENOENT));
}

/// Groups of one level: weight, threads, duty, quota in percent of a CPU, first CPU, number of CPUs.
type Tenant = (u64, u32, f64, Option<u64>, u32, u32);

fn tenants() -> impl Strategy<Value = Vec<Tenant>> {
    let quota = prop::option::of(1..300_u64);
    let tenant = (1..10_000_u64, 1..6_u32, 0.0..=1.0_f64, quota, 0..6_u32, 1..7_u32);
    prop::collection::vec(tenant, 1..9)
}

const CPUS: u32 = 6;

/// The host with these tenants, and for each what it could use at most.
fn build(tenants: &[Tenant]) -> (SimKernel, Vec<String>, Vec<f64>) {
    let mut kernel = host(CPUS, &[]);
    let (mut paths, mut most) = (Vec::new(), Vec::new());
    for (index, &(weight, threads, duty, quota, first, count)) in tenants.iter().enumerate() {
        let path = format!("/t{index}");
        let cpus: Vec<String> = (first..(first + count).min(CPUS)).map(|c| c.to_string()).collect();
        kernel.make_cgroup(&path).unwrap();
        kernel.write_file(&format!("{MOUNT}{path}/cpu.weight"), &weight.to_string()).unwrap();
        kernel.write_file(&format!("{MOUNT}{path}/cpuset.cpus"), &cpus.join(",")).unwrap();
        if let Some(percent) = quota {
            let value = (percent * 1000).to_string();
            kernel.write_file(&format!("{MOUNT}{path}/cpu.max"), &value).unwrap();
        }
        kernel.spawn(&path, Load { duty, ..Load::busy(threads) }).unwrap();
        let quota = quota.map_or(f64::INFINITY, |percent| percent as f64 / 100.0);
        most.push((f64::from(threads) * duty).min(quota).min(cpus.len() as f64));
        paths.push(path);
    }
    (kernel, paths, most)
}

/// Time in which only counters change passes at once, and all counters are as after single steps.
#[test]
fn quiet_time_in_one_piece_is_the_same() {
    let busy = |tenant: u64| Load {
        threads: 3,
        duty: 0.37,
        ..Load::busy(1).with_working_set(10 * MIB).with_hot_file(tenant * MIB).with_cache(MIB)
    };
    let traces = [
        Trace::Constant(busy(1)),
        Trace::Square {
            awake: busy(2),
            asleep: Load::idle(),
            period: SECOND * 7 / 3,
            awake_ratio: 0.31,
        },
        Trace::Noisy { base: busy(3), amplitude: 0.3, interval: SECOND * 3 / 2, seed: 5 },
        Trace::Ramp { from: busy(4), to: Load::busy(2), over: SECOND * 3 },
    ];
    let build = || {
        let mut kernel = host(2, &["/a", "/b", "/c", "/d"]);
        let start = |(path, trace): (&str, Trace)| {
            let workload = Workload { trace, ..Workload::constant("load", Load::idle()) };
            kernel.spawn(path, workload).unwrap()
        };
        let pids: Vec<u32> = ["/a", "/b", "/c", "/d"].into_iter().zip(traces).map(start).collect();
        (kernel, pids)
    };
    let ((mut whole, pids), (mut steps, _)) = (build(), build());
    whole.advance(SECOND * 20);
    (0..2000).for_each(|_| steps.advance(SECOND / 100));
    for (path, pid) in ["/a", "/b", "/c", "/d"].into_iter().zip(pids) {
        assert_eq!(whole.process_usage(pid), steps.process_usage(pid), "{path}");
        for file in ["cpu.stat", "cpu.pressure", "memory.pressure", "memory.stat"] {
            assert_eq!(
                read(&whole, &format!("{path}/{file}")),
                read(&steps, &format!("{path}/{file}"))
            );
        }
        let io = format!("/proc/{pid}/io");
        assert_eq!(whole.file(&io), steps.file(&io));
    }
    assert_eq!(whole.file("/proc/stat"), steps.file("/proc/stat"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Nobody exceeds what it wants or may have, and nothing exceeds the host.
    #[test]
    fn conservation(tenants in tenants()) {
        let (mut kernel, paths, most) = build(&tenants);
        let names: Vec<&str> = paths.iter().map(String::as_str).collect();
        let used = rates(&mut kernel, &names, SECOND);
        for (used, most) in used.iter().zip(&most) {
            prop_assert!(*used <= most + 2e-6, "{used} of {most}");
        }
        prop_assert!(used.iter().sum::<f64>() <= f64::from(CPUS) + 1e-5);
        let root = kernel.usage_usec("/").unwrap() as f64 * 1e-6;
        prop_assert!((root - used.iter().sum::<f64>()).abs() < 1e-4);
    }

    /// Who did not get all it could use shares no CPU with one that got more for its weight, and none of
    /// its CPUs is idle.
    #[test]
    fn unmet_demand_means_full_cpus_and_no_envy(tenants in tenants()) {
        let (mut kernel, paths, most) = build(&tenants);
        let names: Vec<&str> = paths.iter().map(String::as_str).collect();
        let used = rates(&mut kernel, &names, SECOND);
        let stat = kernel.file("/proc/stat").unwrap();
        let idle: Vec<u64> = stat
            .lines()
            .filter(|line| line.starts_with("cpu") && !line.starts_with("cpu "))
            .map(|line| line.split(' ').nth(4).unwrap().parse().unwrap())
            .collect();
        let cpus = |t: &Tenant| t.4..(t.4 + t.5).min(CPUS);
        let shares = |t: &Tenant| ((t.0 * 1024 + 50) / 100) as f64;
        for (i, a) in tenants.iter().enumerate() {
            if used[i] > most[i] - 1e-4 {
                continue;
            }
            for cpu in cpus(a) {
                prop_assert!(idle[cpu as usize] <= 1, "cpu{cpu} idles while t{i} waits: {stat}");
            }
            for (j, b) in tenants.iter().enumerate() {
                let inside = cpus(b).start >= cpus(a).start && cpus(b).end <= cpus(a).end;
                let richer = used[j] / shares(b) > used[i] / shares(a) * 1.001 + 1e-5;
                prop_assert!(!(inside && richer), "t{i} {used:?} envies t{j}");
            }
        }
    }

    /// The same calls give the same history, and time may be cut anywhere on the grid.
    #[test]
    fn determinism(tenants in tenants(), cuts in prop::collection::vec(1..50_u64, 1..8)) {
        let (mut whole, _, _) = build(&tenants);
        let (mut pieces, paths, _) = build(&tenants);
        let total: u64 = cuts.iter().sum();
        whole.advance(SECOND / 100 * total as u32);
        cuts.iter().for_each(|&cut| pieces.advance(SECOND / 100 * cut as u32));
        prop_assert_eq!(whole.now(), pieces.now());
        for path in paths {
            for file in ["cpu.stat", "cpu.pressure", "memory.stat"] {
                let path = format!("{MOUNT}{path}/{file}");
                prop_assert_eq!(whole.file(&path), pieces.file(&path));
            }
        }
    }
}

/// Two CPUs with run queues, on which `/a` and `/b` of weights 1 and 2 are busy beside one of weight 4 with this duty.
fn on_run_queues(threads: [u32; 2], duty: f64) -> [f64; 3] {
    let host = SimHost { cpus: 2, has_run_queues: true, ..SimHost::default() };
    let mut kernel = SimKernel::new(host);
    for (path, weight) in [("/a", "100"), ("/b", "200"), ("/c", "400")] {
        kernel.make_cgroup(path).unwrap();
        write(&mut kernel, &format!("{path}/cpu.weight"), weight).unwrap();
    }
    kernel.spawn("/a", Load::busy(threads[0])).unwrap();
    kernel.spawn("/b", Load::busy(threads[1])).unwrap();
    kernel.spawn("/c", super::duty(duty)).unwrap();
    kernel.advance(SECOND * 5);
    let rates = rates(&mut kernel, &["/a", "/b", "/c"], SECOND * 10);
    [rates[0], rates[1], rates[2]]
}

#[test]
fn run_queues_divide_by_weight_if_loads_are_even() {
    let [a, b, c] = on_run_queues([8, 8], 0.0);
    assert!((a - 2.0 / 3.0).abs() < 0.02 && (a + b - 2.0).abs() < 1e-6 && c == 0.0, "{a} {b} {c}");
}

#[test]
fn a_heavy_sleeper_misleads_the_balance() {
    let off = |threads| {
        let [a, b, c] = on_run_queues(threads, 0.4);
        assert!((c - 0.4).abs() < 1e-3 && (a + b + c - 2.0).abs() < 1e-6, "{a} {b} {c}");
        (a - 1.6 / 3.0).abs()
    };
    let errors = [[16, 8], [8, 8], [24, 8]].map(off);
    assert!(errors.iter().all(|error| *error > 0.05), "{errors:?}");
}
