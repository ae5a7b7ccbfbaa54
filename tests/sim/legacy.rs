//! The legacy hierarchies: the same fluid behind other files.

use nix::errno::Errno::*;

use super::{MIB, MOUNT, SECOND};
use tenantd_host::kernfs::KernFs;
use tenantd_sim::{Layout, Load, SimHost, SimKernel};

fn legacy(cpus: u32, paths: &[&str]) -> SimKernel {
    let host =
        SimHost { cpus, layout: Layout::Legacy, memory_bytes: 1 << 30, ..SimHost::default() };
    let mut kernel = SimKernel::new(host);
    paths.iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    kernel
}

fn put(kernel: &mut SimKernel, path: &str, value: &str) -> Result<(), nix::errno::Errno> {
    kernel.write_file(&format!("{MOUNT}/{path}"), value)
}

fn get(kernel: &SimKernel, path: &str) -> String {
    kernel.file(&format!("{MOUNT}/{path}")).unwrap()
}

#[test]
fn shares_divide_the_cpus() {
    let mut kernel = legacy(3, &["/a", "/b"]);
    put(&mut kernel, "cpu/a/cpu.shares", "2048").unwrap();
    for path in ["/a", "/b"] {
        kernel.spawn(path, Load::busy(3)).unwrap();
    }
    kernel.advance(SECOND);
    assert_eq!(get(&kernel, "cpuacct/a/cpuacct.usage"), "2000000000\n");
    assert_eq!(get(&kernel, "cpuacct/b/cpuacct.usage"), "1000000000\n");
    assert_eq!(get(&kernel, "cpuacct/b/cpuacct.stat"), "user 95\nsystem 5\n");
    put(&mut kernel, "cpu/a/cpu.cfs_quota_us", "50000").unwrap();
    kernel.advance(SECOND);
    assert_eq!(get(&kernel, "cpuacct/a/cpuacct.usage"), "2500000000\n");
    let stat = get(&kernel, "cpu/a/cpu.stat");
    assert!(
        stat.starts_with("nr_periods 10\nnr_throttled 10\nthrottled_time 2500000000\n"),
        "{stat}"
    );
}

#[test]
fn a_child_may_not_have_more_quota_than_its_parent() {
    let mut kernel = legacy(4, &["/p/a"]);
    put(&mut kernel, "cpu/p/cpu.cfs_quota_us", "100000").unwrap();
    assert_eq!(put(&mut kernel, "cpu/p/a/cpu.cfs_quota_us", "200000"), Err(EINVAL));
    put(&mut kernel, "cpu/p/a/cpu.cfs_quota_us", "80000").unwrap();
    assert_eq!(put(&mut kernel, "cpu/p/cpu.cfs_quota_us", "50000"), Err(EINVAL));
}

#[test]
fn cpusets_start_empty_and_nest() {
    let mut kernel = legacy(4, &[]);
    let root = kernel.open_dir(std::path::Path::new("/sys/fs/cgroup/cpuset")).unwrap();
    kernel.make_dir(root, "p").unwrap();
    kernel.make_dir(root, "p/a").unwrap();
    assert_eq!(kernel.spawn("/p/a", Load::idle()), Err(ENOSPC));
    assert_eq!(
        put(&mut kernel, "cpuset/p/a/cpuset.cpus", "0"),
        Err(EACCES),
        "not within the parent"
    );
    put(&mut kernel, "cpuset/p/cpuset.cpus", "0-2").unwrap();
    put(&mut kernel, "cpuset/p/cpuset.mems", "0").unwrap();
    put(&mut kernel, "cpuset/p/a/cpuset.cpus", "1-2").unwrap();
    put(&mut kernel, "cpuset/p/a/cpuset.mems", "0").unwrap();
    assert_eq!(put(&mut kernel, "cpuset/p/cpuset.cpus", "0"), Err(EBUSY), "the child needs 1-2");
    kernel.spawn("/p/a", Load::busy(4)).unwrap();
    assert_eq!(put(&mut kernel, "cpuset/p/a/cpuset.cpus", "\n"), Err(ENOSPC));
    kernel.advance(SECOND);
    assert_eq!(kernel.usage_usec("/"), Some(2_000_000));
}

#[test]
fn limits_reclaim_refuse_and_kill() {
    let mut kernel = legacy(1, &["/a"]);
    let load = Load::idle().with_working_set(50 * MIB).with_cache(50 * MIB);
    let pid = kernel.spawn("/a", load).unwrap();
    kernel.advance(SECOND);
    put(&mut kernel, "memory/a/memory.limit_in_bytes", "80M").unwrap();
    assert_eq!(get(&kernel, "memory/a/memory.usage_in_bytes"), format!("{}\n", 80 * MIB));
    assert_eq!(put(&mut kernel, "memory/a/memory.limit_in_bytes", "20M"), Err(EBUSY));
    assert_eq!(get(&kernel, "memory/a/memory.limit_in_bytes"), format!("{}\n", 80 * MIB));
    let stat = get(&kernel, "memory/a/memory.stat");
    assert!(stat.contains(&format!("\ntotal_rss {}\n", 50 * MIB)), "{stat}");
    kernel.set_load(pid, load.with_working_set(100 * MIB)).unwrap();
    kernel.advance(SECOND);
    assert!(!kernel.pids().contains(&pid));
    assert!(get(&kernel, "memory/a/memory.oom_control").ends_with("oom_kill 1\n"));
}

#[test]
fn excess_over_the_soft_limit_is_reclaimed_first() {
    let mut kernel = legacy(1, &["/a", "/b", "/c"]);
    put(&mut kernel, "memory/b/memory.soft_limit_in_bytes", "100M").unwrap();
    for path in ["/a", "/b"] {
        let pid = kernel.spawn(path, Load::idle().with_cache(300 * MIB)).unwrap();
        kernel.advance(SECOND * 2);
        kernel.kill(pid).unwrap();
    }
    kernel.spawn("/c", Load::idle().with_working_set(550 * MIB)).unwrap();
    kernel.advance(SECOND * 4);
    assert_eq!(kernel.memory_bytes("/a"), Some(300 * MIB));
    assert!(kernel.memory_bytes("/b").unwrap() < 200 * MIB);
}

#[test]
fn every_process_is_in_one_cgroup_of_each_hierarchy() {
    let mut kernel = legacy(1, &["/a"]);
    put(&mut kernel, "cpu/a/cgroup.procs", "0").unwrap();
    let cgroup = kernel.file("/proc/self/cgroup").unwrap();
    let expected = "6:pids:/\n5:memory:/\n4:blkio:/\n3:cpuacct:/\n2:cpu:/a\n1:cpuset:/\n0::/\n";
    assert_eq!(cgroup, expected);
    let mountinfo = kernel.file("/proc/self/mountinfo").unwrap();
    assert!(
        mountinfo
            .contains(" /sys/fs/cgroup/cpu rw,nosuid,nodev,noexec,relatime shared:31 - cgroup ")
    );
    assert!(mountinfo.contains(" /sys/fs/cgroup/unified rw,"));
    assert_eq!(get(&kernel, "unified/cgroup.controllers"), "");
    assert!(kernel.file("/proc/pressure/cpu").unwrap().starts_with("some avg10=0.00"));
}

/// As the kernel does it: whoever opens the list anew sees what is true.
#[test]
fn an_open_list_of_processes_stays_the_same_while_it_is_read() {
    let mut kernel = legacy(1, &["/a"]);
    let dir = kernel.open_dir(std::path::Path::new("/sys/fs/cgroup/cpu/a")).unwrap();
    let kept = kernel.open_file(dir, "cgroup.procs").unwrap();
    assert_eq!(kernel.read(kept), Ok(&b""[..]));
    let pid = format!("{}\n", kernel.spawn("/a", Load::busy(1)).unwrap());
    for _ in 0..3 {
        kernel.advance(SECOND);
        assert_eq!(kernel.read(kept), Ok(&b""[..]));
        assert_eq!(kernel.read_once(dir, "cgroup.procs"), Ok(pid.as_bytes()));
    }
    kernel.advance(2 * SECOND);
    assert_eq!(kernel.read(kept), Ok(pid.as_bytes()));
}
