//! The seam on the real kernel: handles that die with their cgroup, errors that say what and where.

use std::fs;
use std::process::Command;

use nix::errno::Errno;
use tenantd_host::cgroup::{Cgroup, Facet, Last};
use tenantd_host::kernfs::{ErrorKind, KernFs, Operation, RealKernFs};

use super::ground::Ground;

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_kept_handle_ends_with_its_cgroup_and_never_refers_to_another() {
    let Some(ground) = Ground::take() else { return };
    ground.make("a");
    let mut kernel = RealKernFs::new();
    let path = ground.dir(Facet::Cpu, "a");
    let old = kernel.open_dir(&path).unwrap();
    let (inode, file) =
        (kernel.inode(old).unwrap(), kernel.open_file(old, "cgroup.procs").unwrap());
    assert_eq!(kernel.read(file), Ok(&b""[..]));
    ground.remove("a");
    for again in [false, true] {
        if again {
            ground.make("a");
        }
        let error = kernel.read(file).unwrap_err();
        assert_eq!((error.errno, error.kind()), (Errno::ENODEV, ErrorKind::Gone));
        assert_eq!(error.path, path.join("cgroup.procs"));
        assert!(kernel.read_once(old, "cgroup.procs").unwrap_err().is_gone());
        assert!(kernel.write(old, "cgroup.procs", "0").unwrap_err().is_gone());
        assert!(kernel.make_dir(old, "b").unwrap_err().is_gone());
        assert_eq!(kernel.list_dirs(old).unwrap_or_default(), [""; 0]);
    }
    let new = kernel.open_dir(&path).unwrap();
    assert_ne!(kernel.inode(new).unwrap(), inode);
    assert_eq!(kernel.read_once(new, "cgroup.procs"), Ok(&b""[..]));
}

/// On a legacy host an open list of processes says what it said at first while it is read again and again.
#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_process_that_comes_between_two_samples_is_seen() {
    let Some(ground) = Ground::take() else { return };
    ground.make("a");
    let mut kernel = RealKernFs::new();
    let cgroup = Cgroup::open(&mut kernel, &ground.layout, "a").unwrap();
    let mut is_populated =
        || cgroup.sample(&mut kernel, false, &Last::default(), &mut Vec::new()).unwrap().populated;
    assert_eq!(is_populated(), Some(false));
    let mut sleeper = Command::new("sleep").arg("infinity").spawn().unwrap();
    fs::write(ground.dir(Facet::Cpu, "a").join("cgroup.procs"), sleeper.id().to_string()).unwrap();
    assert_eq!(is_populated(), Some(true));
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    assert_eq!(is_populated(), Some(false));
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_refused_value_is_an_error_with_path_value_and_errno() {
    let Some(ground) = Ground::take() else { return };
    let mut kernel = RealKernFs::new();
    let dir = kernel.open_dir(&ground.dir(Facet::Cpu, "")).unwrap();
    let file = ground.weight_file("");
    let name = file.file_name().unwrap().to_str().unwrap();
    let error = kernel.write(dir, name, "junk").unwrap_err();
    assert_eq!((error.operation, error.errno), (Operation::Write, Errno::EINVAL));
    assert_eq!(
        error.to_string(),
        format!("cannot write {} with `junk`: Invalid argument (EINVAL)", file.display())
    );
    let error = kernel.write(dir, "cpu.nothing", "1").unwrap_err();
    assert_eq!((error.operation, error.errno), (Operation::Write, Errno::ENOENT));
    assert!(!ground.dir(Facet::Cpu, "cpu.nothing").exists(), "a write never makes a file");
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn shares_are_clamped_and_weights_are_not() {
    let Some(ground) = Ground::take() else { return };
    let mut kernel = RealKernFs::new();
    let dir = kernel.open_dir(&ground.dir(Facet::Cpu, "")).unwrap();
    if ground.layout.is_unified() {
        let error = kernel.write(dir, "cpu.weight", "0").unwrap_err();
        assert_eq!(error.errno, Errno::ERANGE);
    } else {
        for (written, held) in [("1", "2\n"), ("300000", "262144\n"), ("1024", "1024\n")] {
            kernel.write(dir, "cpu.shares", written).unwrap();
            assert_eq!(kernel.read_once(dir, "cpu.shares").unwrap(), held.as_bytes());
        }
    }
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_longer_text_is_replaced_whole_by_a_shorter_one() {
    let Some(ground) = Ground::take() else { return };
    let mut kernel = RealKernFs::new();
    let dir = kernel.open_dir(&ground.dir(Facet::Cpu, "")).unwrap();
    let file = ground.weight_file("");
    let name = file.file_name().unwrap().to_str().unwrap();
    let kept = kernel.open_file(dir, name).unwrap();
    for value in ["1000", "12", "999"] {
        kernel.write(dir, name, value).unwrap();
        assert_eq!(kernel.read(kept).unwrap(), format!("{value}\n").as_bytes());
    }
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_cgroup_with_a_process_or_a_child_is_not_removed() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("a");
    let mut kernel = RealKernFs::new();
    let root = kernel.open_dir(&ground.dir(Facet::Cpu, "")).unwrap();
    kernel.make_dir(root, "parent").unwrap();
    assert_eq!(kernel.make_dir(root, "parent").unwrap_err().errno, Errno::EEXIST);
    let parent = kernel.open_dir(&ground.dir(Facet::Cpu, "parent")).unwrap();
    kernel.make_dir(parent, "child").unwrap();
    assert_eq!(kernel.remove_dir(root, "parent").unwrap_err().errno, Errno::EBUSY);
    let pid = ground.load("a", "threads=0");
    assert_eq!(kernel.remove_dir(root, "a").unwrap_err().errno, Errno::EBUSY);
    let mut names = kernel.list_dirs(root).unwrap();
    names.sort();
    assert_eq!(names, ["a", "parent"]);
    ground.end(pid);
    assert_eq!(kernel.remove_dir(root, "a"), Ok(()));
    assert_eq!(kernel.remove_dir(root, "a").unwrap_err().errno, Errno::ENOENT);
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn an_ended_process_is_not_found() {
    let Some(ground) = Ground::take() else { return };
    let mut kernel = RealKernFs::new();
    let root = kernel.open_dir(&ground.dir(Facet::Cpu, "")).unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    let error = kernel.move_process(root, child.id()).unwrap_err();
    assert_eq!((error.errno, error.is_gone()), (Errno::ESRCH, true));
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_directory_is_taken_once() {
    let Some(ground) = Ground::take() else { return };
    let path = ground.dir(Facet::Cpu, "");
    let mut first = RealKernFs::new();
    let mut second = RealKernFs::new();
    let (one, two) = (first.open_dir(&path).unwrap(), second.open_dir(&path).unwrap());
    first.lock_dir(one).unwrap();
    let error = second.lock_dir(two).unwrap_err();
    assert_eq!((error.operation, error.errno), (Operation::Lock, Errno::EAGAIN));
    first.close_dir(one);
    assert_eq!(second.lock_dir(two), Ok(()));
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn a_file_longer_than_the_buffer_is_read_whole() {
    let Some(mut ground) = Ground::take() else { return };
    ground.make("a");
    // Threads enough that their numbers fill several pages.
    let pid = ground.load("a", "threads=3000 duty=0");
    let mut kernel = RealKernFs::new();
    let dir = kernel.open_dir(&ground.dir(Facet::Cpu, "a")).unwrap();
    let name = if ground.layout.is_unified() { "cgroup.threads" } else { "tasks" };
    crate::util::wait_until("3000 threads", || {
        let text = kernel.read_once(dir, name).unwrap();
        text.split(|byte| *byte == b'\n').count() > 3000 && text.ends_with(b"\n")
    });
    ground.end(pid);
}

#[test]
#[ignore = "tier 2: needs root and cgroups of this kernel"]
fn handles_that_were_closed_answer_ebadf() {
    let mut kernel = RealKernFs::new();
    let proc = kernel.open_dir("/proc".as_ref()).unwrap();
    let stat = kernel.open_file(proc, "stat").unwrap();
    assert!(kernel.read(stat).unwrap().starts_with(b"cpu "));
    kernel.close_dir(proc);
    assert_eq!(kernel.read(stat).unwrap_err().errno, Errno::EBADF);
    assert_eq!(kernel.read_once(proc, "stat").unwrap_err().errno, Errno::EBADF);
    let error = kernel.open_dir("/proc/nothing".as_ref()).unwrap_err();
    assert_eq!(error.to_string(), "cannot open /proc/nothing: No such file or directory (ENOENT)");
}
