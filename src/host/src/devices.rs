//! Devices that are closed to a job: the numbers of device nodes, and the rules that close them.
//!
//! **Problem.** A job that got GPU 0 must not open GPU 1, and everything else must stay as it was: `/dev/null`,
//! terminals, FUSE, sound. Both mechanisms of the kernel know device numbers, not names.
//!
//! | host | mechanism | rule |
//! |---|---|---|
//! | cgroup v1 with the devices controller | `devices.deny` in a cgroup of the job | closes a number, all else stays |
//! | systemd with cgroup v2 | `DeviceAllow=` of the scope | opens numbers, all else is closed |
//!
//! **Systemd.** `DevicePolicy=auto` allows everything only without a `DeviceAllow=`; with one it is `closed`, which
//! leaves `/dev/null` and its kind, and no terminal of another kind, FUSE or sound. `strict` leaves not even these. No
//! policy has rules that close. So [`allowed`] opens all that exists but the closed numbers: every driver in
//! `/proc/devices` as a whole, and of a driver with closed devices the first [`MINORS`] numbers one by one, because nodes
//! such as `/dev/nvidiactl` have the driver of the devices and may appear late. A driver that is loaded while a
//! job runs stays closed to that job.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use nix::sys::stat::{major, minor};

use super::kernfs::{DirId, KernFs};
use tenantd_core::kernel_text::mountinfo::cgroup_mounts;
use tenantd_core::kernel_text::path_of;
use tenantd_core::kernel_text::proc_files::{cgroup_lines, number};

/// The kernel's name of the controller.
const CONTROLLER: &str = "devices";
/// Numbers of a driver with closed devices that are opened one by one.
const MINORS: u64 = 256;

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Character,
    Block,
}

impl Kind {
    /// Letter in rules of cgroup v1, and word in those of systemd.
    fn words(self) -> (char, &'static str) {
        match self {
            Kind::Character => ('c', "char"),
            Kind::Block => ('b', "block"),
        }
    }
}

/// Number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    kind: Kind,
    major: u64,
    minor: u64,
}

impl Device {
    /// Looks up the device at a path; symbolic links are followed.
    ///
    /// # Errors
    /// There is none, or something else is there.
    pub fn at(path: &Path) -> io::Result<Device> {
        let found = fs::metadata(path)?;
        let kind = match found.file_type() {
            it if it.is_char_device() => Kind::Character,
            it if it.is_block_device() => Kind::Block,
            _ => return Err(io::Error::other("not a device")),
        };
        Ok(Device { kind, major: major(found.rdev()), minor: minor(found.rdev()) })
    }

    /// Rule for `devices.allow` and `devices.deny` of cgroup v1.
    pub fn rule(&self) -> String {
        let Device { kind, major, minor } = self;
        format!("{} {major}:{minor} rwm", kind.words().0)
    }
}

/// Patterns for `DeviceAllow=` that open all devices but the `closed` ones. `drivers` is the text of `/proc/devices`.
pub fn allowed(closed: &BTreeSet<Device>, drivers: &[u8]) -> Vec<String> {
    let mut kind = None;
    let mut patterns = Vec::new();
    for line in drivers.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii) {
        match line {
            b"Character devices:" => kind = Some(Kind::Character),
            b"Block devices:" => kind = Some(Kind::Block),
            _ => {}
        }
        let first = line.split(|byte| *byte == b' ').next().unwrap_or_default();
        let (Some(kind), Some(major)) = (kind, number(first)) else { continue };
        let major = u64::from(major);
        let word = kind.words().1;
        let of = |minor| Device { kind, major, minor };
        let is_whole = closed.range(of(0)..=of(u64::MAX)).next().is_none();
        if is_whole {
            patterns.push(format!("{word}-{major}"));
        } else {
            let open = (0..MINORS).filter(|minor| !closed.contains(&of(*minor)));
            patterns.extend(open.map(|minor| format!("/dev/{word}/{major}:{minor}")));
        }
    }
    // A driver may have several names.
    patterns.sort_unstable();
    patterns.dedup();
    patterns
}

/// Directory of a process in the devices hierarchy of cgroup v1; `None` if that is not mounted here, or the process is
/// gone or in a part that is not mounted.
pub fn legacy_dir(kernel: &mut impl KernFs, proc: DirId, pid: u32) -> Option<PathBuf> {
    let mounts = cgroup_mounts(kernel.read_once(proc, "self/mountinfo").ok()?);
    let mount = mounts.into_iter().find(|mount| !mount.is_unified && mount.has(CONTROLLER))?;
    let lines = cgroup_lines(kernel.read_once(proc, &format!("{pid}/cgroup")).ok()?)?;
    let line = lines.into_iter().find(|line| line.has(CONTROLLER))?;
    let below = mount.from_mount(&line.path)?;
    Some(mount.mount_point.join(path_of(below.trim_start_matches('/'))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRIVERS: &[u8] = b"Character devices:\n  1 mem\n  4 /dev/vc/0\n  4 tty\n195 nvidia\n\n\
                             Block devices:\n  7 loop\n195 other\n";

    fn device(kind: Kind, major: u64, minor: u64) -> Device {
        Device { kind, major, minor }
    }

    #[test]
    fn all_but_the_closed_devices_are_allowed() {
        assert_eq!(
            allowed(&BTreeSet::new(), DRIVERS),
            ["block-195", "block-7", "char-1", "char-195", "char-4"]
        );
        let closed = [0, 3].map(|minor| device(Kind::Character, 195, minor));
        let patterns = allowed(&closed.into(), DRIVERS);
        let has = |pattern: &str| patterns.iter().any(|it| it == pattern);
        assert!(has("char-1") && has("char-4") && has("block-195") && has("/dev/char/195:255"));
        assert!(has("/dev/char/195:1") && !has("char-195"));
        assert!(!has("/dev/char/195:0") && !has("/dev/char/195:3"), "{patterns:?}");
        assert_eq!(patterns.len(), 4 + MINORS as usize - 2);
    }

    #[test]
    fn a_device_is_known_by_its_number() {
        let null = Device::at(Path::new("/dev/null")).unwrap();
        assert_eq!((null, null.rule().as_str()), (device(Kind::Character, 1, 3), "c 1:3 rwm"));
        let missing = Device::at(Path::new("/dev/no-such")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
        assert!(Device::at(Path::new("/dev")).is_err());
    }
}
