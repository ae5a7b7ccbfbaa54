//! Ways in which the sampled disks divide their time: their schedulers, and `io.cost`.
//!
//! | file | contents |
//! |---|---|
//! | `/sys/block/NAME/queue/scheduler` | names of the schedulers that can be chosen, the chosen one in brackets |
//! | `/sys/block/NAME/queue/iosched` | settings of the chosen one, a new directory after each choice |
//! | `io.cost.qos` of the top cgroup, v2 only | a line for each disk that ever had one, with `enable=` |

use std::path::{Path, PathBuf};

use crate::cgroup::Layout;
use crate::cgroup::parse::device;
use crate::kernfs::KernFs;
use tenantd_control::measure::disk::{Device, DiskName, DiskSample, PerDisk};
use tenantd_control::measure::ways::{BFQ, Way, Ways};

/// Reads the ways of the sampled `disks`. A disk without a readable scheduler has an unknown way, which obeys nothing.
pub fn read(kernel: &mut impl KernFs, layout: &Layout, disks: &PerDisk<DiskSample>) -> Ways {
    let costs = costs(kernel, layout);
    let each: Vec<(Device, Way)> = disks
        .iter()
        .map(|(device, disk)| {
            let mut way = way(kernel, &disk.name.to_string());
            way.has_cost = costs.contains(&device);
            (device, way)
        })
        .collect();
    Ways(PerDisk::of(each))
}

/// Directory with the settings of a disk, by its name.
pub(crate) fn queue(name: &str) -> PathBuf {
    Path::new("/sys/block").join(name.replace('/', "!")).join("queue")
}

fn way(kernel: &mut impl KernFs, name: &str) -> Way {
    let queue = queue(name);
    let mut way = Way::default();
    let Ok(dir) = kernel.open_dir(&queue) else { return way };
    if let Ok(text) = kernel.read_once(dir, "scheduler") {
        (way.scheduler, way.offers_bfq) = schedulers(text);
    }
    kernel.close_dir(dir);
    if let Ok(dir) = kernel.open_dir(&queue.join("iosched")) {
        way.settings = kernel.inode(dir).unwrap_or_default();
        let strict = kernel.read_once(dir, "strict_guarantees");
        way.is_strict = strict.is_ok_and(|text| text.trim_ascii() == b"1");
        kernel.close_dir(dir);
    }
    way
}

/// The chosen scheduler, and true if bfq is one of those that can be chosen.
pub(crate) fn schedulers(text: &[u8]) -> (DiskName, bool) {
    let bare = |word: &[u8]| -> Option<Vec<u8>> {
        Some(word.strip_prefix(b"[")?.strip_suffix(b"]")?.to_vec())
    };
    let words = || text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let chosen = words().find_map(bare).unwrap_or_default();
    let is_bfq =
        |word: &[u8]| word == BFQ.as_bytes() || bare(word).as_deref() == Some(BFQ.as_bytes());
    (DiskName::of(&chosen), words().any(is_bfq))
}

/// Disks whose `io.cost` is on.
fn costs(kernel: &mut impl KernFs, layout: &Layout) -> Vec<Device> {
    if !layout.is_unified() {
        return Vec::new();
    }
    let Ok(dir) = kernel.open_dir(&layout.trees[0].mount) else { return Vec::new() };
    let text = kernel.read_once(dir, "io.cost.qos").map(<[u8]>::to_vec).unwrap_or_default();
    kernel.close_dir(dir);
    text.split(|byte| *byte == b'\n').filter_map(enabled).collect()
}

pub(crate) fn enabled(line: &[u8]) -> Option<Device> {
    let mut words = line.split(u8::is_ascii_whitespace);
    let device = device(words.next()?)?;
    words.any(|word| word == b"enable=1").then_some(device)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_scheduler_is_in_brackets() {
        let of = |text: &[u8]| {
            let (name, offers) = schedulers(text);
            (name.to_string(), offers)
        };
        assert_eq!(of(b"none mq-deadline kyber [bfq]\n"), ("bfq".to_string(), true));
        assert_eq!(of(b"[none] mq-deadline bfq \n"), ("none".to_string(), true));
        assert_eq!(of(b"[mq-deadline] none\n"), ("mq-deadline".to_string(), false));
        assert_eq!(of(b"none\n"), (String::new(), false), "a stacked device has no scheduler");
    }

    #[test]
    fn lines_of_disks_with_io_cost_are_found() {
        let device = Device { major: 8, minor: 16 };
        assert_eq!(enabled(b"8:16 enable=1 ctrl=auto rpct=95.00 rlat=1"), Some(device));
        assert_eq!(enabled(b"8:16 enable=0 ctrl=auto"), None);
        assert_eq!((enabled(b""), enabled(b"x enable=1")), (None, None));
    }
}
