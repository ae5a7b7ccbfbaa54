//! Faults on demand, and the log of calls.

use std::path::Path;

use nix::errno::Errno::{self, *};

use super::{MOUNT, host, open};
use tenantd_host::kernfs::{KernFs, Operation};
use tenantd_sim::{Fault, Faulty, SimKernel, When};

fn faulty() -> Faulty<SimKernel> {
    Faulty::new(host(2, &["/a", "/b"]))
}

#[test]
fn the_nth_call_fails_and_does_nothing() {
    let mut fs = faulty();
    let a = open(&mut fs, "/a");
    fs.inject(Fault::at_call(2, EIO));
    assert_eq!(fs.write(a, "cpu.weight", "50"), Ok(()));
    let error = fs.write(a, "cpu.weight", "60").unwrap_err();
    assert_eq!((error.errno, error.operation), (EIO, Operation::Write));
    assert_eq!(error.value.as_deref(), Some("60"));
    assert_eq!(error.path, Path::new(MOUNT).join("a/cpu.weight"));
    assert_eq!(fs.read_once(a, "cpu.weight").unwrap(), b"50\n");
    assert_eq!(fs.write(a, "cpu.weight", "60"), Ok(()));
    assert_eq!(fs.nr_calls(), 5);
}

#[test]
fn calls_are_matched_by_operation_and_path() {
    let mut fs = faulty();
    let (a, b) = (open(&mut fs, "/a"), open(&mut fs, "/b"));
    fs.inject(Fault::matching(Operation::Write, "a/memory.low", EBUSY).times(2));
    fs.inject(Fault {
        when: When::Matching { operation: None, path_suffix: "b/cpu.stat".into() },
        errno: ENODEV,
        times: None,
    });
    let outcome = |fs: &mut Faulty<SimKernel>, dir, value: &str| {
        fs.write(dir, "memory.low", value).map_err(|error| error.errno)
    };
    assert_eq!(outcome(&mut fs, b, "0"), Ok(()));
    assert_eq!(outcome(&mut fs, a, "0"), Err(EBUSY));
    assert_eq!(outcome(&mut fs, a, "0"), Err(EBUSY));
    assert_eq!(outcome(&mut fs, a, "0"), Ok(()), "only twice");
    assert_eq!(fs.open_file(b, "cpu.stat").unwrap_err().errno, ENODEV);
    assert_eq!(fs.read_once(b, "cpu.stat").unwrap_err().errno, ENODEV);
    let kept = fs.open_file(a, "cpu.stat").unwrap();
    fs.inject(Fault::matching(Operation::Read, "a/cpu.stat", EINTR));
    assert_eq!(fs.read(kept).unwrap_err().errno, EINTR);
    fs.heal();
    assert!(fs.read(kept).is_ok());
}

#[test]
fn the_log_records_changes_in_order() {
    let mut fs = faulty();
    let root = open(&mut fs, "");
    fs.write(root, "a/cpu.weight", "50").unwrap();
    fs.read_once(root, "a/cpu.weight").unwrap();
    fs.write(root, "a/cpu.weight", "0").unwrap_err();
    fs.make_dir(root, "c").unwrap();
    fs.remove_dir(root, "c").unwrap();
    fs.list_dirs(root).unwrap();
    let changes: Vec<(Operation, Result<(), Errno>)> =
        fs.changes().map(|call| (call.operation, call.outcome)).collect();
    assert_eq!(
        changes,
        [
            (Operation::Write, Ok(())),
            (Operation::Write, Err(ERANGE)),
            (Operation::MakeDir, Ok(())),
            (Operation::RemoveDir, Ok(())),
        ]
    );
    assert_eq!(fs.writes(), [(Path::new("/sys/fs/cgroup/a/cpu.weight"), "50")]);
    assert_eq!(fs.calls().len() as u64, fs.nr_calls());
    fs.clear_calls();
    assert_eq!((fs.calls().len(), fs.nr_calls()), (0, 7));
    assert!(fs.inner().file("/sys/fs/cgroup/a/cpu.weight").unwrap().starts_with("50"));
}
