//! Who has memory, who gives it back, and who dies.

use std::time::Duration;

use proptest::prelude::*;

use super::{MIB, MOUNT, SECOND, field, host, read, write};
use tenantd_sim::{Load, SimHost, SimKernel, Swap};

/// A process with `anon` MiB of working set.
fn anon(mib: u64) -> Load {
    Load::idle().with_working_set(mib * MIB)
}

/// `memory.current` in MiB, rounded to the nearest.
fn current_mib(kernel: &SimKernel, path: &str) -> u64 {
    (field_of_one(kernel, &format!("{path}/memory.current")) + MIB / 2) / MIB
}

fn field_of_one(kernel: &SimKernel, path: &str) -> u64 {
    read(kernel, path).trim_end().parse().unwrap()
}

/// A host of 1 GiB with the cgroups `paths`.
fn small_host(paths: &[&str]) -> SimKernel {
    let mut kernel = SimKernel::new(SimHost { memory_bytes: 1 << 30, ..SimHost::default() });
    paths.iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    kernel
}

#[test]
fn a_working_set_grows_at_its_speed_and_shrinks_at_once() {
    let mut kernel = host(1, &["/a"]);
    let load = Load { touch_bytes_per_sec: 100 * MIB, ..anon(250) };
    let pid = kernel.spawn("/a", load).unwrap();
    kernel.advance(SECOND);
    assert_eq!(current_mib(&kernel, "/a"), 100);
    kernel.advance(SECOND * 2);
    assert_eq!(field(&kernel, "/a/memory.stat", "anon"), 250 * MIB);
    kernel.set_load(pid, anon(10)).unwrap();
    kernel.advance(SECOND);
    assert_eq!(field(&kernel, "/a/memory.stat", "anon"), 10 * MIB);
    assert_eq!(field_of_one(&kernel, "/a/memory.peak"), 250 * MIB + 4 * 4096);
    kernel.kill(pid).unwrap();
    assert_eq!(read(&kernel, "/a/memory.current"), "0\n");
}

#[test]
fn hot_and_cold_cache_are_distinguished_by_use() {
    let mut kernel = host(1, &["/a"]);
    kernel.spawn("/a", Load::idle().with_hot_file(50 * MIB).with_cache(80 * MIB)).unwrap();
    kernel.advance(SECOND);
    assert_eq!(field(&kernel, "/a/memory.stat", "active_file"), 50 * MIB);
    assert_eq!(field(&kernel, "/a/memory.stat", "inactive_file"), 80 * MIB);
    assert_eq!(field(&kernel, "/a/memory.stat", "file"), 130 * MIB);
    assert_eq!(field(&kernel, "/a/memory.stat", "workingset_refault_file"), 0);
}

#[test]
fn what_is_read_once_is_not_read_again_when_it_is_gone() {
    let mut kernel = host(1, &["/a"]);
    let pid = kernel.spawn("/a", Load::busy(1).with_cache(80 * MIB)).unwrap();
    kernel.advance(SECOND);
    write(&mut kernel, "/a/memory.reclaim", "60M").unwrap();
    let ran = |kernel: &SimKernel| kernel.process_usage(pid).unwrap().run_nsec;
    let before = ran(&kernel);
    kernel.advance(SECOND);
    assert_eq!(field(&kernel, "/a/memory.stat", "inactive_file"), 20 * MIB);
    assert!((ran(&kernel) - before - 1e9).abs() < 1.0, "nothing of it is missed");
    // More of it is read as before.
    kernel.set_load(pid, Load::busy(1).with_cache(90 * MIB)).unwrap();
    kernel.advance(SECOND);
    assert_eq!(field(&kernel, "/a/memory.stat", "inactive_file"), 30 * MIB);
}

#[test]
fn max_recycles_cache_without_killing() {
    let mut kernel = host(1, &["/a"]);
    write(&mut kernel, "/a/memory.max", &(100 * MIB).to_string()).unwrap();
    let pid = kernel.spawn("/a", anon(60).with_cache(500 * MIB)).unwrap();
    kernel.advance(SECOND * 3);
    assert_eq!(current_mib(&kernel, "/a"), 100);
    assert_eq!(field(&kernel, "/a/memory.stat", "anon"), 60 * MIB);
    assert!(field(&kernel, "/a/memory.events", "max") > 0);
    assert!(field(&kernel, "/a/memory.stat", "pgsteal_direct") > 0);
    assert_eq!(field(&kernel, "/a/memory.events", "oom"), 0);
    assert!(kernel.pids().contains(&pid));
}

/// The stacks of threads are charged like anything else, and clean cache makes room for them.
#[test]
fn threads_below_a_full_max_displace_cache_without_killing() {
    let mut kernel = host(1, &["/a"]);
    write(&mut kernel, "/a/memory.max", "64M").unwrap();
    let reader = kernel.spawn("/a", Load::idle().with_cache(128 * MIB)).unwrap();
    kernel.advance(SECOND);
    assert_eq!(current_mib(&kernel, "/a"), 64);
    let load = Load { threads: 8, ..anon(2) };
    let other = kernel.spawn("/a", load).unwrap();
    assert!(field_of_one(&kernel, "/a/memory.current") <= 64 * MIB);
    kernel.advance(SECOND);
    let pids = kernel.pids();
    assert!(pids.contains(&reader) && pids.contains(&other), "{pids:?}");
    assert_eq!(field(&kernel, "/a/memory.events", "oom_kill"), 0);
    assert_eq!(field(&kernel, "/a/memory.stat", "anon"), 2 * MIB);
}

#[test]
fn memory_max_kills_the_largest_when_nothing_is_reclaimable() {
    let mut kernel = host(1, &["/a/x", "/a/y", "/b"]);
    write(&mut kernel, "/a/memory.max", &(100 * MIB).to_string()).unwrap();
    let small = kernel.spawn("/a/x", anon(30)).unwrap();
    let elsewhere = kernel.spawn("/b", anon(500)).unwrap();
    kernel.advance(SECOND * 3);
    let large = kernel.spawn("/a/y", anon(200)).unwrap();
    kernel.advance(SECOND * 3);
    assert!(!kernel.pids().contains(&large));
    assert!(kernel.pids().contains(&small) && kernel.pids().contains(&elsewhere));
    assert_eq!(
        read(&kernel, "/a/memory.events"),
        format!(
            "low 0\nhigh 0\nmax {}\noom 1\noom_kill 1\noom_group_kill 0\n",
            field(&kernel, "/a/memory.events", "max")
        )
    );
    // The limit that was hit is above; the one that died is below.
    assert_eq!(field(&kernel, "/a/memory.events.local", "oom_kill"), 0);
    assert_eq!(field(&kernel, "/a/y/memory.events.local", "oom_kill"), 1);
    assert_eq!(field(&kernel, "/a/y/memory.events", "oom"), 0);
    assert_eq!(current_mib(&kernel, "/a"), 30);
}

#[test]
fn an_oom_group_dies_together() {
    let mut kernel = host(1, &["/a/x"]);
    write(&mut kernel, "/a/memory.max", &(100 * MIB).to_string()).unwrap();
    write(&mut kernel, "/a/x/memory.oom.group", "1").unwrap();
    let before = kernel.pids();
    kernel.spawn("/a/x", anon(30)).unwrap();
    kernel.spawn("/a/x", anon(90)).unwrap();
    kernel.advance(SECOND);
    assert_eq!(kernel.pids(), before);
    assert_eq!(field(&kernel, "/a/memory.events", "oom_kill"), 2);
    assert_eq!(field(&kernel, "/a/x/memory.events", "oom_group_kill"), 1);
}

#[test]
fn memory_high_reclaims_cache_without_throttling() {
    let mut kernel = host(1, &["/a"]);
    kernel.spawn("/a", anon(50).with_cache(200 * MIB)).unwrap();
    kernel.advance(SECOND * 2);
    write(&mut kernel, "/a/memory.high", &(120 * MIB).to_string()).unwrap();
    assert!(current_mib(&kernel, "/a") <= 120, "a write of memory.high reclaims at once");
    kernel.advance(SECOND);
    assert!(current_mib(&kernel, "/a") <= 120);
    assert_eq!(field(&kernel, "/a/memory.stat", "anon"), 50 * MIB);
}

#[test]
fn memory_high_throttles_growth_beyond_it() {
    let mut kernel = host(1, &["/a", "/b"]);
    write(&mut kernel, "/a/memory.high", &(100 * MIB).to_string()).unwrap();
    let busy = Load::busy(1).with_working_set(400 * MIB);
    kernel.spawn("/a", busy).unwrap();
    kernel.spawn("/b", busy).unwrap();
    kernel.advance(SECOND * 10);
    assert_eq!(current_mib(&kernel, "/b"), 400);
    let beyond = current_mib(&kernel, "/a");
    assert!((101..150).contains(&beyond), "throttled, not stopped: {beyond} MiB");
    assert!(field(&kernel, "/a/memory.events", "high") > 0);
    assert_eq!(field(&kernel, "/a/memory.events", "oom_kill"), 0);
    let pressure = read(&kernel, "/a/memory.pressure");
    let avg10 = pressure["some avg10=".len()..].split(' ').next().unwrap().parse::<f64>().unwrap();
    assert!(avg10 > 50.0, "{pressure}");
    assert!(kernel.usage_usec("/a") < kernel.usage_usec("/b"), "who sleeps does not run");
}

#[test]
fn a_hot_file_that_does_not_fit_refaults_and_stalls() {
    let mut kernel = host(1, &["/a"]);
    write(&mut kernel, "/a/memory.max", &(100 * MIB).to_string()).unwrap();
    kernel.spawn("/a", Load::busy(1).with_hot_file(90 * MIB)).unwrap();
    kernel.advance(SECOND * 5);
    assert_eq!(field(&kernel, "/a/memory.stat", "workingset_refault_file"), 0);
    write(&mut kernel, "/a/memory.max", &(60 * MIB).to_string()).unwrap();
    kernel.advance(SECOND * 5);
    assert!(field(&kernel, "/a/memory.stat", "workingset_refault_file") > 1000);
    assert!(!read(&kernel, "/a/memory.pressure").contains("some avg10=0.00"));
    assert_eq!(field(&kernel, "/a/memory.events", "oom"), 0);
}

/// Processes of one cgroup share its lists: each loses in proportion to what it has, and reads that again.
#[test]
fn a_scan_displaces_the_page_cache_of_the_same_cgroup() {
    let mut kernel = small_host(&[]);
    let slow = Load { touch_bytes_per_sec: 32 * MIB, ..Load::idle().with_hot_file(64 * MIB) };
    let victim = kernel.spawn("/", slow).unwrap();
    let io = |kernel: &SimKernel, key: &str| -> u64 {
        let text = kernel.file(&format!("/proc/{victim}/io")).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        value.unwrap().parse().unwrap()
    };
    kernel.advance(SECOND * 4);
    assert_eq!(io(&kernel, "read_bytes"), 64 * MIB, "once from disk, then from memory");
    assert!(io(&kernel, "rchar") > 120 * MIB);
    kernel.spawn("/", Load::busy(1).with_hot_file(2048 * MIB)).unwrap();
    kernel.advance(SECOND * 10);
    let again = io(&kernel, "read_bytes") - 64 * MIB;
    assert!(again > 32 * MIB, "{again}");
}

#[test]
fn memory_low_protects_from_siblings() {
    let mut kernel = small_host(&["/a", "/b"]);
    kernel.spawn("/a", Load::idle().with_hot_file(400 * MIB)).unwrap();
    kernel.advance(SECOND * 3);
    write(&mut kernel, "/a/memory.low", &(300 * MIB).to_string()).unwrap();
    kernel.spawn("/b", anon(620)).unwrap();
    kernel.advance(SECOND * 5);
    assert_eq!(current_mib(&kernel, "/b"), 620);
    assert!((300..390).contains(&current_mib(&kernel, "/a")), "{}", current_mib(&kernel, "/a"));
    assert_eq!(field(&kernel, "/a/memory.events", "low"), 0);
    // The one without protection would have lost more.
    let mut bare = small_host(&["/a", "/b"]);
    bare.spawn("/a", Load::idle().with_hot_file(400 * MIB)).unwrap();
    bare.spawn("/b", anon(900)).unwrap();
    bare.advance(SECOND * 8);
    assert!(current_mib(&bare, "/a") < 200);
}

#[test]
fn memory_low_yields_before_an_oom_kill_and_memory_min_does_not() {
    for (knob, a_keeps, b_lives) in [("memory.low", 0..150, true), ("memory.min", 300..400, false)]
    {
        let mut kernel = small_host(&["/a", "/b"]);
        kernel.spawn("/a", Load::idle().with_hot_file(400 * MIB)).unwrap();
        kernel.advance(SECOND * 3);
        write(&mut kernel, &format!("/a/{knob}"), &(300 * MIB).to_string()).unwrap();
        let pid = kernel.spawn("/b", anon(900)).unwrap();
        kernel.advance(SECOND * 10);
        assert!(a_keeps.contains(&current_mib(&kernel, "/a")), "{knob}");
        assert_eq!(kernel.pids().contains(&pid), b_lives, "{knob}");
        let broken = field(&kernel, "/a/memory.events", "low") > 0;
        assert_eq!(broken, b_lives, "{knob}");
    }
}

/// Fills `path` with `mib` MiB of cache that nobody reads any more.
fn leave_cache(kernel: &mut SimKernel, path: &str, mib: u64) {
    let pid = kernel.spawn(path, Load::idle().with_cache(mib * MIB)).unwrap();
    kernel.advance(SECOND * 4);
    kernel.kill(pid).unwrap();
}

#[test]
fn low_is_void_where_an_ancestor_has_none() {
    let keeps = |parent_low: &str| {
        let mut kernel = small_host(&["/p/a", "/b", "/c"]);
        write(&mut kernel, "/p/memory.low", parent_low).unwrap();
        write(&mut kernel, "/p/a/memory.low", "300M").unwrap();
        leave_cache(&mut kernel, "/p/a", 300);
        leave_cache(&mut kernel, "/b", 300);
        kernel.spawn("/c", anon(600)).unwrap();
        kernel.advance(SECOND * 5);
        current_mib(&kernel, "/p/a")
    };
    assert_eq!(keeps("300M"), 300);
    assert!((195..205).contains(&keeps("0")), "shared evenly with b: {}", keeps("0"));
}

#[test]
fn overcommitted_low_is_shared_by_what_each_uses_of_it() {
    // The children claim and use 200 and 100 MiB of the 150 that their parent has: 100 and 50 are left,
    // so that the first reclaim scans them 100 to 350, although b has twice the pages of a.
    let mut kernel = small_host(&["/p/a", "/p/b", "/c"]);
    for (path, low) in [("/p", "150M"), ("/p/a", "200M"), ("/p/b", "100M")] {
        write(&mut kernel, &format!("{path}/memory.low"), low).unwrap();
    }
    leave_cache(&mut kernel, "/p/a", 200);
    leave_cache(&mut kernel, "/p/b", 400);
    let pid = kernel.spawn("/c", anon(440)).unwrap();
    kernel.advance(SECOND * 4);
    assert!(kernel.pids().contains(&pid));
    let (lost_a, lost_b) = (200 - current_mib(&kernel, "/p/a"), 400 - current_mib(&kernel, "/p/b"));
    let ratio = lost_b as f64 / lost_a as f64;
    assert!((3.2..3.8).contains(&ratio), "{lost_a} {lost_b}");
}

#[test]
fn unused_protection_is_distributed_to_children_only_with_recursiveprot() {
    let keeps = |recursive| {
        let mut kernel = SimKernel::new(SimHost {
            memory_bytes: 1 << 30,
            memory_recursiveprot: recursive,
            ..SimHost::default()
        });
        ["/p/a", "/b", "/c"].iter().for_each(|path| kernel.make_cgroup(path).unwrap());
        write(&mut kernel, "/p/memory.low", "300M").unwrap();
        kernel.spawn("/p/a", Load::idle().with_hot_file(300 * MIB)).unwrap();
        kernel.spawn("/b", Load::idle().with_hot_file(300 * MIB)).unwrap();
        kernel.advance(SECOND * 3);
        kernel.spawn("/c", anon(600)).unwrap();
        kernel.advance(SECOND * 5);
        current_mib(&kernel, "/p/a")
    };
    assert_eq!(keeps(true), 300);
    assert!(keeps(false) < 250);
}

#[test]
fn a_host_without_memory_kills_the_largest_of_all() {
    let mut kernel = small_host(&["/a", "/b"]);
    let small = kernel.spawn("/a", anon(300)).unwrap();
    let large = kernel.spawn("/b", anon(900)).unwrap();
    kernel.advance(SECOND * 10);
    assert!(kernel.pids().contains(&small) && !kernel.pids().contains(&large));
    assert_eq!(field(&kernel, "/b/memory.events", "oom_kill"), 1);
    assert_eq!(field(&kernel, "/b/memory.events", "oom"), 0, "no limit was hit");
}

#[test]
fn pages_stay_where_they_were_charged_and_end_with_the_parent() {
    let mut kernel = host(1, &["/p/a", "/p/b"]);
    let pid = kernel.spawn("/p/a", anon(40).with_cache(20 * MIB)).unwrap();
    kernel.advance(SECOND);
    write(&mut kernel, "/p/b/cgroup.procs", &pid.to_string()).unwrap();
    kernel.advance(SECOND);
    assert_eq!((current_mib(&kernel, "/p/a"), current_mib(&kernel, "/p/b")), (60, 0));
    kernel.remove_cgroup_at("/p/a").unwrap();
    assert_eq!(current_mib(&kernel, "/p"), 60);
    kernel.kill(pid).unwrap();
    assert_eq!(current_mib(&kernel, "/p"), 20, "cache outlives its reader");
    write(&mut kernel, "/p/memory.reclaim", "5M").unwrap();
    assert_eq!(current_mib(&kernel, "/p"), 15);
    assert_eq!(write(&mut kernel, "/p/memory.reclaim", "1G"), Err(nix::errno::Errno::EAGAIN));
    assert_eq!(current_mib(&kernel, "/p"), 0);
}

#[test]
fn a_lowered_max_kills_at_once() {
    let mut kernel = host(1, &["/a"]);
    let pid = kernel.spawn("/a", anon(100)).unwrap();
    kernel.advance(SECOND);
    write(&mut kernel, "/a/memory.max", "50M").unwrap();
    assert!(!kernel.pids().contains(&pid));
    assert_eq!(read(&kernel, "/a/cgroup.events"), "populated 0\nfrozen 0\n");
}

/// What a process touched in `seconds`, as part of what it would have with all of its memory.
fn throughput(kernel: &mut SimKernel, pid: u32, speed: u64, seconds: u32) -> f64 {
    let touched = |kernel: &SimKernel| kernel.process_usage(pid).unwrap().touched_bytes;
    let before = touched(kernel);
    kernel.advance(SECOND * seconds);
    (touched(kernel) - before) / (speed as f64 * f64::from(seconds))
}

/// A process that touches `v` pages a second, of which a part `m` is missing and costs `c` seconds each, is awake
/// `1 / (1 + v·m·c)` of the time.
#[test]
fn throughput_is_a_function_of_what_is_resident() {
    let speed = 1024 * MIB;
    let mut kernel = host(1, &["/a"]);
    let load = Load { touch_bytes_per_sec: speed, ..Load::busy(1) };
    let pid = kernel.spawn("/a", load.with_hot_file(100 * MIB)).unwrap();
    kernel.advance(SECOND * 3);
    assert!(throughput(&mut kernel, pid, speed, 4) > 0.999);
    write(&mut kernel, "/a/memory.max", &(60 * MIB).to_string()).unwrap();
    kernel.advance(SECOND * 3);
    let resident = field(&kernel, "/a/memory.stat", "active_file") as f64 / (100 * MIB) as f64;
    // Read at 2 GiB/s; and two pages are looked at, at 4 GiB/s, for each that is taken instead.
    let miss_cost = 1.0 / 2048.0 + 2.0 / 4096.0;
    let expected = 1.0 / (1.0 + 1024.0 * (1.0 - resident) * miss_cost);
    let got = throughput(&mut kernel, pid, speed, 4);
    assert!((got - expected).abs() < 0.03, "{got} at {resident}, not {expected}");
}

#[test]
fn swap_takes_anonymous_memory_and_gives_it_back_at_a_cost() {
    for (swap, least, most) in [(Swap::zram(2 << 30), 0.5, 0.95), (Swap::disk(2 << 30), 0.02, 0.5)]
    {
        let host = SimHost { memory_bytes: 1 << 30, swap: Some(swap), ..SimHost::default() };
        let mut kernel = SimKernel::new(host);
        ["/a", "/b"].iter().for_each(|path| kernel.make_cgroup(path).unwrap());
        let speed = 512 * MIB;
        let load = Load { touch_bytes_per_sec: speed, ..Load::busy(1) };
        let a = kernel.spawn("/a", load.with_working_set(600 * MIB)).unwrap();
        kernel.advance(SECOND * 3);
        assert!(throughput(&mut kernel, a, speed, 3) > 0.999);
        write(&mut kernel, "/a/memory.high", &(500 * MIB).to_string()).unwrap();
        kernel.advance(SECOND);
        let at = |file: &str| field_of_one(&kernel, &format!("/a/{file}")) / MIB;
        assert!((95..=101).contains(&at("memory.swap.current")), "{}", at("memory.swap.current"));
        assert!(at("memory.current") <= 501, "{}", at("memory.current"));
        let got = throughput(&mut kernel, a, speed, 5);
        assert!((least..most).contains(&got), "{swap:?}: {got}");
        assert!(field(&kernel, "/a/memory.stat", "workingset_refault_anon") > 1000);
        // What swap cannot take is killed for; here it can.
        let b = kernel.spawn("/b", load.with_working_set(900 * MIB)).unwrap();
        kernel.advance(SECOND * 20);
        assert!([a, b].iter().all(|pid| kernel.pids().contains(pid)), "{swap:?}");
        kernel.kill(a).unwrap();
        assert_eq!(field_of_one(&kernel, "/a/memory.swap.current"), 0);
    }
}

#[test]
fn a_bound_of_swap_keeps_anonymous_memory_where_it_is() {
    let host = SimHost { swap: Some(Swap::disk(8 << 30)), ..SimHost::default() };
    let mut kernel = SimKernel::new(host);
    kernel.make_cgroup("/a").unwrap();
    write(&mut kernel, "/a/memory.swap.max", &(20 * MIB).to_string()).unwrap();
    kernel.spawn("/a", anon(200).with_locked(50 * MIB)).unwrap();
    kernel.advance(SECOND * 2);
    assert_eq!(field(&kernel, "/a/memory.stat", "unevictable"), 50 * MIB);
    write(&mut kernel, "/a/memory.high", &(100 * MIB).to_string()).unwrap();
    kernel.advance(SECOND);
    // Some of it is being read back at any moment.
    let swapped = field_of_one(&kernel, "/a/memory.swap.current");
    assert!((19 * MIB..=20 * MIB).contains(&swapped), "{swapped}");
    assert_eq!(field(&kernel, "/a/memory.stat", "anon") + swapped, 250 * MIB);
}

/// The outage of ninety minutes: a hog above a `memory.high` that cannot be met, without swap.
#[test]
fn a_high_that_cannot_be_met_stalls_without_end() {
    let mut kernel = host(1, &["/a"]);
    kernel.spawn("/a", Load::busy(1).with_working_set(300 * MIB)).unwrap();
    kernel.advance(SECOND * 3);
    write(&mut kernel, "/a/memory.high", &(100 * MIB).to_string()).unwrap();
    let pid = kernel.spawn("/a", Load::busy(1).with_working_set(300 * MIB)).unwrap();
    kernel.advance(SECOND * 60);
    let stat = |key| field(&kernel, "/a/memory.stat", key);
    assert!(stat("pgscan") > 1000 && stat("pgsteal") * 10 < stat("pgscan"));
    assert_eq!(field(&kernel, "/a/memory.events", "oom_kill"), 0);
    assert!(kernel.process_usage(pid).unwrap().run_nsec < 10e9);
}

/// `MemTotal` less what is free, cached or anonymous is the kernel's own, and that never changes.
fn unexplained_kb(kernel: &SimKernel) -> u64 {
    let meminfo = kernel.file("/proc/meminfo").unwrap();
    let of = |key: &str| -> u64 {
        let line = meminfo.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    of("MemTotal:") - of("MemFree:") - of("Cached:") - of("AnonPages:") - of("KernelStack:")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Pages are conserved, limits hold after every step, and parents hold at least their children's.
    #[test]
    fn pages_are_conserved(
        loads in prop::collection::vec((0..600_u64, 0..600_u64, 0..600_u64), 1..6),
        bounds in prop::collection::vec((0..400_u64, 50..600_u64, 50..600_u64), 6),
        kills in prop::collection::vec(0..6_usize, 0..4),
    ) {
        let mut kernel = small_host(&["/p"]);
        let kernel_kb = unexplained_kb(&kernel);
        let mut pids = Vec::new();
        for (index, (&(anon, hot, cache), &(low, high, max))) in loads.iter().zip(&bounds).enumerate() {
            let path = format!("/p/t{index}");
            kernel.make_cgroup(&path).unwrap();
            for (knob, mib) in [("low", low), ("high", high), ("max", max)] {
                let file = format!("{MOUNT}{path}/memory.{knob}");
                kernel.write_file(&file, &format!("{mib}M")).unwrap();
            }
            let load = Load::busy(2).with_working_set(anon * MIB).with_hot_file(hot * MIB);
            pids.push(kernel.spawn(&path, load.with_cache(cache * MIB)).unwrap());
        }
        for round in 0..8 {
            kernel.advance(Duration::from_millis(700));
            if let Some(&index) = kills.get(round) {
                let _ = pids.get(index).map(|&pid| kernel.kill(pid));
            }
            prop_assert_eq!(unexplained_kb(&kernel), kernel_kb);
            let mut sum = 0;
            for (index, &(_, _, max)) in bounds.iter().enumerate().take(loads.len()) {
                let used = kernel.memory_bytes(&format!("/p/t{index}")).unwrap();
                prop_assert!(used <= max * MIB, "t{index} has {used} of {max} MiB");
                sum += used;
            }
            prop_assert_eq!(kernel.memory_bytes("/p"), Some(sum));
            let stat = |key| field(&kernel, "/p/memory.stat", key);
            prop_assert_eq!(stat("anon") + stat("file") + stat("kernel"), sum);
        }
    }
}
