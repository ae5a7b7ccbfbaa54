//! What the files say, what they accept, and with which errno they refuse.

use nix::errno::Errno::{self, *};

use super::{MIB, MOUNT, SECOND, host, open, read, write};
use crate::util::names;
use tenantd_host::kernfs::{ErrorKind, KernFs, Operation};
use tenantd_sim::{Access, Controller, Load, SimHost, SimKernel};

/// Writes each value and compares the answer and, where it was accepted, the text that is read back.
fn accepts(kernel: &mut SimKernel, path: &str, cases: &[(&str, Result<&str, Errno>)]) {
    for (value, expected) in cases {
        let outcome = write(kernel, path, value).map(|()| read(kernel, path));
        let expected = expected.map(String::from);
        assert_eq!(outcome, expected, "{value:?} to {path}");
    }
}

#[test]
fn cpu_weight() {
    let mut kernel = host(1, &["/a"]);
    assert_eq!(read(&kernel, "/a/cpu.weight"), "100\n");
    accepts(
        &mut kernel,
        "/a/cpu.weight",
        &[
            ("1", Ok("1\n")),
            ("10000\n", Ok("10000\n")),
            ("0x10", Ok("16\n")),
            ("0", Err(ERANGE)),
            ("10001", Err(ERANGE)),
            ("99999999999999999999", Err(ERANGE)),
            ("junk", Err(EINVAL)),
            ("-5", Err(EINVAL)),
            ("1.5", Err(EINVAL)),
            ("100 ", Err(EINVAL)),
            ("", Ok("16\n")),
        ],
    );
}

#[test]
fn cpu_max() {
    let mut kernel = host(1, &["/a"]);
    assert_eq!(read(&kernel, "/a/cpu.max"), "max 100000\n");
    accepts(
        &mut kernel,
        "/a/cpu.max",
        &[
            ("50000", Ok("50000 100000\n")),
            ("max 50000", Ok("max 50000\n")),
            ("1000 1000000\n", Ok("1000 1000000\n")),
            ("max", Ok("max 1000000\n")),
            ("999", Err(EINVAL)),
            ("1000 999", Err(EINVAL)),
            ("1000 1000001", Err(EINVAL)),
            ("junk", Err(EINVAL)),
            ("-1", Err(EINVAL)),
        ],
    );
}

#[test]
fn memory_bounds() {
    let mut kernel = host(1, &["/a"]);
    for (knob, default) in [("min", "0\n"), ("low", "0\n"), ("high", "max\n"), ("max", "max\n")] {
        let path = format!("/a/memory.{knob}");
        assert_eq!(read(&kernel, &path), default);
        accepts(
            &mut kernel,
            &path,
            &[
                ("100000", Ok("98304\n")),
                ("8k", Ok("8192\n")),
                ("1G\n", Ok("1073741824\n")),
                ("max", Ok("max\n")),
                ("9223372036854775807", Ok("max\n")),
                ("4095", Ok("0\n")),
                ("-1", Err(EINVAL)),
                ("junk", Err(EINVAL)),
                ("12q", Err(EINVAL)),
            ],
        );
    }
    accepts(&mut kernel, "/a/memory.oom.group", &[("1", Ok("1\n")), ("2", Err(EINVAL))]);
}

#[test]
fn cpuset_cpus() {
    let mut kernel = host(4, &["/a/b"]);
    assert_eq!(read(&kernel, "/a/cpuset.cpus"), "\n");
    assert_eq!(read(&kernel, "/a/cpuset.cpus.effective"), "0-3\n");
    accepts(
        &mut kernel,
        "/a/cpuset.cpus",
        &[
            ("1-3", Ok("1-3\n")),
            ("3,1\n", Ok("1,3\n")),
            ("4", Err(ERANGE)),
            ("0-7", Err(ERANGE)),
            ("3-1", Err(EINVAL)),
            ("junk", Err(EINVAL)),
            ("\n", Ok("\n")),
            ("1-2", Ok("1-2\n")),
        ],
    );
    // A child is clipped to its parent, and falls back to it where nothing is left.
    write(&mut kernel, "/a/b/cpuset.cpus", "2-3").unwrap();
    assert_eq!(read(&kernel, "/a/b/cpuset.cpus.effective"), "2\n");
    write(&mut kernel, "/a/b/cpuset.cpus", "3").unwrap();
    assert_eq!(read(&kernel, "/a/b/cpuset.cpus"), "3\n");
    assert_eq!(read(&kernel, "/a/b/cpuset.cpus.effective"), "1-2\n");
    // Emptying is refused while processes depend on the list.
    kernel.spawn("/a/b", Load::idle()).unwrap();
    assert_eq!(write(&mut kernel, "/a/b/cpuset.cpus", "\n"), Err(ENOSPC));
    assert_eq!(read(&kernel, "/a/b/cpuset.mems.effective"), "0\n");
    assert_eq!(write(&mut kernel, "/a/b/cpuset.mems", "1"), Err(EINVAL));
}

#[test]
fn core_switches() {
    let mut kernel = host(1, &["/a"]);
    accepts(
        &mut kernel,
        "/a/cgroup.max.descendants",
        &[("1", Ok("1\n")), ("-1", Err(ERANGE)), ("junk", Err(EINVAL)), ("max", Ok("max\n"))],
    );
    accepts(
        &mut kernel,
        "/a/cgroup.freeze",
        &[("1", Ok("1\n")), ("2", Err(ERANGE)), ("0", Ok("0\n")), ("junk", Err(EINVAL))],
    );
    accepts(&mut kernel, "/a/cgroup.type", &[("domain", Err(EINVAL)), ("junk", Err(EINVAL))]);
    for file in ["cgroup.events", "cpu.stat", "memory.current", "cgroup.controllers"] {
        assert_eq!(write(&mut kernel, &format!("/a/{file}"), "1"), Err(EINVAL), "{file}");
    }
    assert_eq!(write(&mut kernel, "/a/memory.max", &"1".repeat(5000)), Err(E2BIG));
    write(&mut kernel, "/a/cgroup.pressure", "0").unwrap();
    assert_eq!(write(&mut kernel, "/a/cpu.pressure", "1"), Err(ENOENT));
}

#[test]
fn the_files_of_a_controller_exist_while_it_is_enabled() {
    let mut kernel = SimKernel::new(SimHost::default());
    let root = open(&mut kernel, "");
    kernel.make_dir(root, "a").unwrap();
    assert_eq!(read(&kernel, "/cgroup.controllers"), "cpuset cpu io memory pids\n");
    assert_eq!(read(&kernel, "/a/cgroup.controllers"), "");
    assert_eq!(write(&mut kernel, "/a/cpu.weight", "10"), Err(ENOENT));
    assert!(read(&kernel, "/a/cpu.stat").starts_with("usage_usec 0\nuser_usec 0\nsystem_usec 0\n"));
    write(&mut kernel, "/cgroup.subtree_control", "+memory +cpu").unwrap();
    assert_eq!(read(&kernel, "/cgroup.subtree_control"), "cpu memory\n");
    assert_eq!(read(&kernel, "/a/cgroup.controllers"), "cpu memory\n");
    write(&mut kernel, "/a/cpu.weight", "10").unwrap();
    write(&mut kernel, "/cgroup.subtree_control", "-cpu").unwrap();
    assert_eq!(write(&mut kernel, "/a/cpu.weight", "10"), Err(ENOENT));
    write(&mut kernel, "/cgroup.subtree_control", "+cpu").unwrap();
    assert_eq!(read(&kernel, "/a/cpu.weight"), "100\n", "settings go with the controller");
    for (path, value, errno) in [
        ("/cgroup.subtree_control", "+bogus", EINVAL),
        ("/cgroup.subtree_control", "cpu", EINVAL),
        ("/cgroup.subtree_control", "+", EINVAL),
        ("/a/cgroup.subtree_control", "+pids", ENOENT),
    ] {
        assert_eq!(write(&mut kernel, path, value), Err(errno), "{value}");
    }
    for absent in ["cpu.weight", "cgroup.events", "memory.current", "cgroup.freeze"] {
        assert_eq!(kernel.file(&format!("{MOUNT}/{absent}")), Err(ENOENT), "{absent} in the root");
    }
}

#[test]
fn a_host_may_lack_a_controller() {
    let controllers = vec![Controller::Cpu, Controller::Pids];
    let mut kernel = SimKernel::new(SimHost { controllers, ..SimHost::default() });
    assert_eq!(read(&kernel, "/cgroup.controllers"), "cpu pids\n");
    assert_eq!(write(&mut kernel, "/cgroup.subtree_control", "+memory"), Err(ENOENT));
    kernel.make_cgroup("/a").unwrap();
    kernel.spawn("/a", Load::busy(1).with_working_set(MIB)).unwrap();
    kernel.advance(SECOND);
    assert_eq!(kernel.file(&format!("{MOUNT}/a/memory.current")), Err(ENOENT));
}

#[test]
fn no_internal_processes() {
    let mut kernel = host(1, &["/a"]);
    let pid = kernel.spawn("/a", Load::idle()).unwrap().to_string();
    let root = open(&mut kernel, "");
    kernel.make_dir(root, "a/b").unwrap();
    assert_eq!(write(&mut kernel, "/a/cgroup.subtree_control", "+memory"), Err(EBUSY));
    // Controllers that know threads may share a cgroup with processes, but then its children are for its
    // threads alone.
    write(&mut kernel, "/a/cgroup.subtree_control", "+cpu").unwrap();
    assert_eq!(read(&kernel, "/a/cgroup.type"), "domain threaded\n");
    assert_eq!(read(&kernel, "/a/b/cgroup.type"), "domain invalid\n");
    assert_eq!(write(&mut kernel, "/a/b/cgroup.procs", &pid), Err(EOPNOTSUPP));
    assert_eq!(write(&mut kernel, "/a/b/cgroup.subtree_control", "+cpu"), Err(EOPNOTSUPP));
    assert_eq!(write(&mut kernel, "/a/cgroup.subtree_control", "+memory"), Err(EOPNOTSUPP));
    write(&mut kernel, "/a/cgroup.subtree_control", "-cpu").unwrap();
    write(&mut kernel, "/a/b/cgroup.procs", &pid).unwrap();
    assert_eq!(read(&kernel, "/a/b/cgroup.type"), "domain\n");
    write(&mut kernel, "/a/cgroup.procs", "0").unwrap();
    write(&mut kernel, "/a/cgroup.subtree_control", "+cpu").unwrap_err();
    write(&mut kernel, "/cgroup.procs", "0").unwrap();
    write(&mut kernel, "/a/cgroup.subtree_control", "+cpu").unwrap();
    assert_eq!(write(&mut kernel, "/a/cgroup.procs", &pid), Err(EBUSY));
    write(&mut kernel, "/a/cgroup.subtree_control", "+memory").unwrap();
    write(&mut kernel, "/cgroup.procs", &pid).unwrap();
    assert_eq!(write(&mut kernel, "/a/cgroup.procs", &pid), Err(EBUSY));
    assert_eq!(kernel.spawn("/a", Load::idle()), Err(EBUSY));
    // A parent cannot take away what a child passes on.
    write(&mut kernel, "/a/b/cgroup.subtree_control", "+memory").unwrap();
    assert_eq!(write(&mut kernel, "/a/cgroup.subtree_control", "-memory"), Err(EBUSY));
}

#[test]
fn moving_processes() {
    let mut kernel = host(1, &["/a"]);
    for (value, errno) in [("99999", ESRCH), ("junk", EINVAL), ("-1", EINVAL), ("\n", EINVAL)] {
        assert_eq!(write(&mut kernel, "/a/cgroup.procs", value), Err(errno), "{value:?}");
    }
    write(&mut kernel, "/a/cgroup.procs", "0").unwrap();
    let caller = kernel.caller();
    assert_eq!(read(&kernel, "/a/cgroup.procs"), format!("{caller}\n"));
    assert_eq!(kernel.file("/proc/self/cgroup").unwrap(), "0::/a\n");
    assert_eq!(read(&kernel, "/a/cgroup.events"), "populated 1\nfrozen 0\n");
    let a = open(&mut kernel, "/a");
    let error = kernel.move_process(a, 99_999).unwrap_err();
    assert_eq!(
        (error.operation, error.value.as_deref(), error.kind()),
        (Operation::Write, Some("99999"), ErrorKind::Gone)
    );
}

#[test]
fn making_and_removing() {
    let mut kernel = host(1, &["/a/b"]);
    let root = open(&mut kernel, "");
    let make =
        |kernel: &mut SimKernel, name: &str| kernel.make_dir(root, name).map_err(|e| e.errno);
    let remove =
        |kernel: &mut SimKernel, name: &str| kernel.remove_dir(root, name).map_err(|e| e.errno);
    assert_eq!(make(&mut kernel, "a"), Err(EEXIST));
    assert_eq!(make(&mut kernel, "cgroup.procs"), Err(EEXIST));
    assert_eq!(make(&mut kernel, "a\nb"), Err(EINVAL));
    assert_eq!(make(&mut kernel, "nowhere/a"), Err(ENOENT));
    assert_eq!(make(&mut kernel, "cgroup.procs/a"), Err(ENOTDIR));
    assert_eq!(remove(&mut kernel, "a"), Err(EBUSY), "it has a child");
    assert_eq!(remove(&mut kernel, "nowhere"), Err(ENOENT));
    assert_eq!(remove(&mut kernel, "cgroup.procs"), Err(ENOTDIR));
    let pid = kernel.spawn("/a/b", Load::idle()).unwrap();
    assert_eq!(remove(&mut kernel, "a/b"), Err(EBUSY), "it has a process");
    kernel.kill(pid).unwrap();
    assert_eq!(remove(&mut kernel, "a/b"), Ok(()));
    write(&mut kernel, "/cgroup.max.descendants", "2").unwrap();
    assert_eq!(make(&mut kernel, "c"), Ok(()));
    assert_eq!(make(&mut kernel, "d"), Err(EAGAIN));
    write(&mut kernel, "/cgroup.max.descendants", "max").unwrap();
    write(&mut kernel, "/cgroup.max.depth", "1").unwrap();
    assert_eq!(make(&mut kernel, "d"), Ok(()));
    assert_eq!(make(&mut kernel, "d/e"), Err(EAGAIN));
    write(&mut kernel, "/cgroup.subtree_control", "+pids").unwrap();
    write(&mut kernel, "/d/pids.max", "0").unwrap();
    assert_eq!(kernel.spawn("/d", Load::idle()), Err(EAGAIN));
    assert_eq!(kernel.spawn("/nowhere", Load::idle()), Err(ENOENT));
    let stat = read(&kernel, "/cgroup.stat");
    assert!(stat.starts_with("nr_descendants 3\nnr_subsys_cpuset 4\n"), "{stat}");
}

#[test]
fn kept_handles_end_with_their_cgroup_and_never_refer_to_another() {
    let mut kernel = host(1, &["/p/a"]);
    let p = open(&mut kernel, "/p");
    let old = open(&mut kernel, "/p/a");
    let old_inode = kernel.inode(old).unwrap();
    let stat = kernel.open_file(old, "cpu.stat").unwrap();
    assert!(kernel.read(stat).unwrap().starts_with(b"usage_usec 0\n"));
    kernel.remove_dir(p, "a").unwrap();
    for remade in [false, true] {
        if remade {
            kernel.make_dir(p, "a").unwrap();
        }
        let error = kernel.read(stat).unwrap_err();
        assert_eq!((error.errno, error.is_gone()), (ENODEV, true));
        assert_eq!(error.path.to_str(), Some("/sys/fs/cgroup/p/a/cpu.stat"));
        assert_eq!(kernel.open_file(old, "cpu.stat").unwrap_err().errno, ENOENT);
        assert_eq!(kernel.read_once(old, "cpu.stat").unwrap_err().errno, ENOENT);
        assert_eq!(kernel.write(old, "cpu.weight", "1").unwrap_err().errno, ENOENT);
        assert_eq!(kernel.make_dir(old, "x").unwrap_err().errno, ENOENT);
        assert_eq!(kernel.remove_dir(old, "x").unwrap_err().errno, ENOENT);
        assert_eq!(kernel.list_dirs(old), Ok(vec![]));
        assert_eq!(kernel.inode(old), Ok(old_inode));
    }
    let new = open(&mut kernel, "/p/a");
    assert_ne!(kernel.inode(new), Ok(old_inode));
    assert!(kernel.read_once(new, "cpu.stat").is_ok());
    // A file of a controller that was switched off is gone too, also after the controller is back.
    let weight = kernel.open_file(new, "cpu.weight").unwrap();
    write(&mut kernel, "/p/cgroup.subtree_control", "-cpu").unwrap();
    assert_eq!(kernel.read(weight).unwrap_err().errno, ENODEV);
    write(&mut kernel, "/p/cgroup.subtree_control", "+cpu").unwrap();
    assert_eq!(kernel.read(weight).unwrap_err().errno, ENODEV);
    kernel.close_dir(new);
    assert_eq!(kernel.inode(new).unwrap_err().errno, EBADF);
    assert_eq!(kernel.read(weight).unwrap_err().errno, EBADF);
}

#[test]
fn a_lock_belongs_to_one_opening_until_it_is_closed() {
    let mut kernel = host(1, &["/a", "/b"]);
    let (mine, theirs) = (open(&mut kernel, "/a"), open(&mut kernel, "/a"));
    let elsewhere = open(&mut kernel, "/b");
    assert_eq!(kernel.lock_dir(theirs), Ok(()));
    let refused = kernel.lock_dir(mine).unwrap_err();
    assert_eq!((refused.errno, refused.operation), (EAGAIN, Operation::Lock));
    assert_eq!(kernel.lock_dir(elsewhere), Ok(()));
    assert_eq!(kernel.lock_dir(theirs), Ok(()), "it is theirs already");
    kernel.close_dir(theirs);
    assert_eq!(kernel.lock_dir(mine), Ok(()));
}

#[test]
fn paths_lead_where_they_should() {
    let mut kernel = host(2, &["/a/b"]);
    let root = open(&mut kernel, "");
    assert_eq!(kernel.list_dirs(root), Ok(vec!["a".into()]));
    assert_eq!(kernel.read_once(root, "a/b/cpu.weight").unwrap(), b"100\n");
    assert_eq!(kernel.read_once(root, "a/b").unwrap_err().errno, EISDIR);
    let open_errno = |kernel: &mut SimKernel, path: &str| {
        kernel.open_dir(std::path::Path::new(path)).map(|_| ()).map_err(|error| error.errno)
    };
    assert_eq!(open_errno(&mut kernel, "/sys/fs/cgroup/none"), Err(ENOENT));
    assert_eq!(open_errno(&mut kernel, "/sys/fs/cgroup/cgroup.procs"), Err(ENOTDIR));
    for path in ["/", "/sys", "/sys/fs", "/proc", "/proc/self", "/proc/1/task", "/proc/pressure"] {
        assert_eq!(open_errno(&mut kernel, path), Ok(()), "{path}");
    }
    let top = kernel.open_dir(std::path::Path::new("/")).unwrap();
    assert_eq!(kernel.list_dirs(top), Ok(vec!["proc".into(), "sys".into()]));
    let proc = kernel.open_dir(std::path::Path::new("/proc")).unwrap();
    let pids = names(kernel.list_dirs(proc).unwrap());
    assert_eq!(pids, kernel.pids().iter().map(u32::to_string).collect::<Vec<_>>());
}

#[test]
fn an_unprivileged_caller_reads_only() {
    let mut kernel = host(1, &["/a"]);
    kernel.set_access(Access::Unprivileged);
    let a = open(&mut kernel, "/a");
    assert_eq!(kernel.read_once(a, "cpu.weight").unwrap(), b"100\n");
    let refused = kernel.write(a, "cpu.weight", "50").unwrap_err();
    assert_eq!((refused.errno, refused.kind()), (EACCES, ErrorKind::Denied));
    assert_eq!(kernel.write(a, "cpu.stat", "1").unwrap_err().errno, EACCES);
    assert_eq!(kernel.write(a, "nothing", "1").unwrap_err().errno, ENOENT);
    assert_eq!(kernel.make_dir(a, "x").unwrap_err().errno, EACCES);
    assert_eq!(kernel.remove_dir(a, "x").unwrap_err().errno, EACCES);
    assert_eq!(kernel.move_process(a, 1).unwrap_err().errno, EACCES);
    assert_eq!(kernel.read_once(a, "cgroup.kill").unwrap_err().errno, EACCES);
    assert_eq!(read(&kernel, "/a/cpu.weight"), "100\n");
}

#[test]
fn a_read_only_mount_refuses_every_change() {
    let mut kernel = host(1, &["/a"]);
    kernel.set_access(Access::ReadOnlyMount);
    let root = open(&mut kernel, "");
    assert_eq!(kernel.write(root, "a/cpu.weight", "50").unwrap_err().errno, EROFS);
    assert_eq!(kernel.make_dir(root, "b").unwrap_err().errno, EROFS);
    assert_eq!(kernel.make_dir(root, "a").unwrap_err().errno, EEXIST);
    assert_eq!(kernel.remove_dir(root, "a").unwrap_err().errno, EROFS);
    assert!(kernel.file("/proc/self/mountinfo").unwrap().contains(" /sys/fs/cgroup ro,"));
}

#[test]
fn without_psi_pressure_is_not_supported() {
    let mut kernel = SimKernel::new(SimHost { psi: false, ..SimHost::default() });
    kernel.make_cgroup("/a").unwrap();
    let a = open(&mut kernel, "/a");
    let pressure = kernel.open_file(a, "cpu.pressure").unwrap();
    let error = kernel.read(pressure).unwrap_err();
    assert_eq!((error.errno, error.kind()), (EOPNOTSUPP, ErrorKind::Unsupported));
    assert_eq!(kernel.file("/proc/pressure/cpu"), Err(ENOENT));
}

#[test]
fn processes_show_their_owner_and_cgroup() {
    let mut kernel = host(4, &["/a"]);
    write(&mut kernel, "/a/cpuset.cpus", "1-2").unwrap();
    kernel.advance(SECOND * 3);
    let workload = tenantd_sim::Workload::constant("postgres", Load::busy(2)).owned_by(1001);
    let pid = kernel.spawn("/a", workload).unwrap();
    kernel.advance(SECOND);
    let proc = |file: &str| kernel.file(&format!("/proc/{pid}/{file}"));
    let status = proc("status").unwrap();
    for line in [
        "Name:\tpostgres",
        "Uid:\t1001\t1001\t1001\t1001",
        "Gid:\t1001\t1001\t1001\t1001",
        "Threads:\t2",
        "Cpus_allowed_list:\t1-2",
    ] {
        assert!(status.lines().any(|l| l == line), "{line} in {status}");
    }
    let stat = proc("stat").unwrap();
    let fields: Vec<&str> = stat.trim_end().split(' ').collect();
    assert_eq!(fields.len(), 52);
    assert_eq!((fields[1], fields[2]), ("(postgres)", "R"));
    assert_eq!((fields[13], fields[14]), ("190", "10"), "user and system ticks");
    assert_eq!((fields[19], fields[21]), ("2", "300"), "threads and start time");
    assert_eq!(proc("comm").unwrap(), "postgres\n");
    let tasks = kernel.open_dir(std::path::Path::new(&format!("/proc/{pid}/task"))).unwrap();
    let tids = names(kernel.list_dirs(tasks).unwrap());
    assert_eq!((tids.len(), tids[0].as_str()), (2, pid.to_string().as_str()));
    assert_eq!(
        kernel.read_once(tasks, &format!("{}/schedstat", tids[1])).unwrap(),
        b"1000000000 0 334\n"
    );
    let kept = kernel.open_file(tasks, &format!("{}/schedstat", tids[1])).unwrap();
    kernel.kill(pid).unwrap();
    assert_eq!(kernel.read(kept).unwrap_err().errno, ESRCH);
    assert_eq!(kernel.list_dirs(tasks).unwrap_err().errno, ESRCH);
    let next = kernel.spawn("/a", Load::idle()).unwrap();
    assert!(next > pid, "numbers are not used again");
}

#[test]
fn sysfs_distinguishes_cores_sockets_and_nodes() {
    let kernel = SimKernel::new(SimHost {
        cpus: 8,
        threads_per_core: 2,
        numa_nodes: 2,
        ..SimHost::default()
    });
    let sys = |path: &str| kernel.file(&format!("/sys/devices/system/{path}")).unwrap();
    assert_eq!(sys("cpu/possible"), "0-7\n");
    assert_eq!(sys("cpu/cpu1/topology/thread_siblings_list"), "1,5\n");
    assert_eq!(sys("cpu/cpu6/topology/core_id"), "2\n");
    assert_eq!(sys("cpu/cpu6/topology/physical_package_id"), "1\n");
    assert_eq!(sys("cpu/cpu0/cache/index3/shared_cpu_list"), "0-1,4-5\n");
    assert_eq!(sys("node/node1/cpulist"), "2-3,6-7\n");
}

#[test]
fn meminfo_counts_in_kb() {
    let mut kernel = host(1, &["/a"]);
    kernel.spawn("/a", Load::idle().with_working_set(100 * MIB).with_cache(50 * MIB)).unwrap();
    kernel.advance(SECOND * 2);
    let meminfo = kernel.file("/proc/meminfo").unwrap();
    assert!(meminfo.starts_with("MemTotal:        8388608 kB\nMemFree: "), "{meminfo}");
    assert!(meminfo.contains("\nAnonPages:        102400 kB\n"), "{meminfo}");
    assert!(meminfo.contains("\nCached:            51200 kB\n"), "{meminfo}");
}

#[test]
fn cgroup_kill_ends_the_subtree() {
    let mut kernel = host(1, &["/a/b"]);
    let pid = kernel.spawn("/a/b", Load::busy(1)).unwrap();
    assert_eq!(write(&mut kernel, "/a/cgroup.kill", "0"), Err(ERANGE));
    write(&mut kernel, "/a/cgroup.kill", "1").unwrap();
    assert!(!kernel.pids().contains(&pid));
}
