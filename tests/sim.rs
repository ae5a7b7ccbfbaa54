//! The simulated kernel: its fluid of CPU time, its memory, its manners, and the faults on demand.

#![allow(clippy::unwrap_used, reason = "a test asserts; it need not handle")]

mod cpu;
mod faults;
mod legacy;
mod manners;
mod memory;
mod real;

use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use tenantd_host::kernfs::{DirId, KernFs};
use tenantd_sim::{Load, SimHost, SimKernel};

const MOUNT: &str = "/sys/fs/cgroup";
const SECOND: Duration = Duration::from_secs(1);
const MIB: u64 = 1 << 20;

/// A host with `cpus` CPUs and the cgroups `paths`, all controllers enabled on the way.
fn host(cpus: u32, paths: &[&str]) -> SimKernel {
    let mut kernel = SimKernel::new(SimHost { cpus, ..SimHost::default() });
    paths.iter().for_each(|path| kernel.make_cgroup(path).unwrap());
    kernel
}

/// The kept directory of the cgroup `path`.
fn open(kernel: &mut impl KernFs, path: &str) -> DirId {
    kernel.open_dir(Path::new(&format!("{MOUNT}{path}"))).unwrap()
}

/// What a write to `path` below the mount answers.
fn write(kernel: &mut SimKernel, path: &str, value: &str) -> Result<(), Errno> {
    let root = open(kernel, "");
    let outcome = kernel.write(root, path.trim_start_matches('/'), value);
    kernel.close_dir(root);
    outcome.map_err(|error| error.errno)
}

/// The text of `path` below the mount.
fn read(kernel: &SimKernel, path: &str) -> String {
    kernel.file(&format!("{MOUNT}{path}")).unwrap()
}

/// The number after `key` in a flat-keyed file.
fn field(kernel: &SimKernel, path: &str, key: &str) -> u64 {
    let text = read(kernel, path);
    let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{key} in {text}")).parse().unwrap()
}

/// CPUs that each cgroup of `paths` used on average over `time`.
fn rates(kernel: &mut SimKernel, paths: &[&str], time: Duration) -> Vec<f64> {
    let usage = |kernel: &SimKernel| -> Vec<u64> {
        paths.iter().map(|path| kernel.usage_usec(path).unwrap()).collect()
    };
    let before = usage(kernel);
    kernel.advance(time);
    let gained = usage(kernel).into_iter().zip(before).map(|(after, before)| after - before);
    gained.map(|usec| usec as f64 / time.as_micros() as f64).collect()
}

/// A load of one thread that wants `duty` of a CPU.
fn duty(duty: f64) -> Load {
    Load { duty, ..Load::busy(1) }
}
