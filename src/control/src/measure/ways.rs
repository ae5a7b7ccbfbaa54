//! Ways in which disks divide their time among cgroups.
//!
//! The kernel has two: the I/O scheduler bfq, which obeys `io.bfq.weight` (`blkio.bfq.weight` in cgroup v1), and `io.cost`,
//! which obeys `io.weight`. Any other scheduler takes weights and ignores them, without a message. A finding names each
//! disk that tenants use and that obeys no weight, or obeys badly, with the remedy.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::disk::{Device, DiskName, PerDisk};
use crate::words::finding::{Code, Finding};

/// The scheduler that obeys weights.
pub const BFQ: &str = "bfq";
/// Time without a request of a tenant after which no finding names a disk.
const USED: Duration = Duration::from_secs(600);

/// Way in which one disk divides its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Way {
    /// Its scheduler; empty if it could not be read.
    pub scheduler: DiskName,
    /// Identity of the settings of its scheduler, which are new after each choice of one; 0 without settings.
    pub settings: u64,
    /// True if bfq can be chosen for it.
    pub offers_bfq: bool,
    /// True if bfq serves one request at a time (`strict_guarantees`).
    pub is_strict: bool,
    /// True if `io.cost` is on.
    pub has_cost: bool,
}

impl Way {
    /// True if it obeys weights of bfq.
    pub fn is_bfq(&self) -> bool {
        self.scheduler == DiskName::of(BFQ.as_bytes())
    }

    /// Names of its ways to obey weights, as in `bfq`; `None` if it obeys none.
    pub fn divider(&self) -> Option<&'static str> {
        match (self.is_bfq(), self.has_cost) {
            (true, true) => Some("bfq and io.cost"),
            (true, false) => Some(BFQ),
            (false, true) => Some("io.cost"),
            (false, false) => None,
        }
    }

    fn is_known(&self) -> bool {
        self.scheduler != DiskName::default()
    }
}

/// Ways of all sampled disks; empty if the policy weighs no disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ways(pub PerDisk<Way>);

impl Ways {
    /// True if some disk obeys weights.
    pub fn obey(&self) -> bool {
        self.by_bfq() || self.by_cost()
    }

    /// True if some disk obeys those of bfq.
    pub fn by_bfq(&self) -> bool {
        self.0.iter().any(|(_, way)| way.is_bfq())
    }

    /// True if some disk obeys those of `io.cost`.
    pub fn by_cost(&self) -> bool {
        self.0.iter().any(|(_, way)| way.has_cost)
    }
}

/// Disks that tenants use, each with the time since their last request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsedDisks(PerDisk<Duration>);

impl UsedDisks {
    /// Takes an interval in which tenants used the disks `used`; only those in `ways` are kept.
    pub fn note(&mut self, ways: &Ways, used: impl Fn(Device) -> bool, elapsed: Duration) {
        let before = self.0;
        self.0 = ways.0.filter_map(|device, _| {
            let rested = || Some(before.get(device)?.saturating_add(elapsed));
            if used(device) { Some(Duration::ZERO) } else { rested().filter(|it| *it < USED) }
        });
    }

    /// Findings on the used disks that divide badly or not at all; `name` is the name of a device.
    pub fn findings(&self, ways: &Ways, name: impl Fn(Device) -> Option<DiskName>) -> Vec<Finding> {
        let of = |(device, _): (Device, Duration)| {
            let (way, name) = (ways.0.get(device)?, name(device)?.to_string());
            let (what, remedy) = trouble(&name, &way)?;
            Some(Finding::of_host(Code::Ineffective, what).with_remedy(remedy))
        };
        self.0.iter().filter_map(of).collect()
    }
}

/// Fact and remedy of a disk that divides badly or not at all.
fn trouble(name: &str, way: &Way) -> Option<(String, String)> {
    let queue = format!("/sys/block/{}/queue", name.replace('/', "!"));
    let choose = format!(
        "write bfq to {queue}/scheduler (to keep it after a boot: a udev rule, or `disks: {{ divide: {{ {name}: bfq }} }}` of the policy)"
    );
    let scheduler = way.scheduler;
    Some(match (way.is_bfq(), way.has_cost) {
        _ if !way.is_known() => return None,
        (true, true) => (
            format!(
                "{name} divides its time twice, by bfq and by io.cost: tenants get other parts than their weights"
            ),
            format!(
                "use one of them: write mq-deadline to {queue}/scheduler, or switch io.cost off in io.cost.qos"
            ),
        ),
        (true, false) if way.is_strict => (
            format!(
                "strict_guarantees of bfq is on for {name}: it serves one request at a time and loses speed"
            ),
            format!("write 0 to {queue}/iosched/strict_guarantees"),
        ),
        (true, false) | (false, true) => return None,
        (false, false) if way.offers_bfq => (
            format!(
                "disk weights are ineffective on {name}: its scheduler is {scheduler}, which ignores them, and io.cost is off"
            ),
            choose,
        ),
        (false, false) => (
            format!(
                "disk weights are ineffective on {name}: its scheduler is {scheduler}, io.cost is off, and bfq is not \
                 loaded"
            ),
            format!(
                "load it (modprobe bfq), then {choose}; without it in the kernel, set host.disks: leave"
            ),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SDA: Device = Device { major: 8, minor: 0 };

    fn found(way: Way) -> Option<String> {
        let ways = Ways(PerDisk::of([(SDA, way)]));
        let mut used = UsedDisks::default();
        used.note(&ways, |_| true, Duration::from_secs(1));
        let mut found = used.findings(&ways, |_| Some(DiskName::of(b"sda")));
        assert!(found.len() < 2);
        found.pop().map(|it| format!("{}; {}", it.message, it.remedy.unwrap()))
    }

    fn under(scheduler: &str) -> Way {
        Way { scheduler: DiskName::of(scheduler.as_bytes()), ..Way::default() }
    }

    #[test]
    fn each_trouble_has_its_remedy() {
        let bfq = under(BFQ);
        let deadline = under("mq-deadline");
        assert_eq!(found(bfq), None);
        assert_eq!(found(Way { has_cost: true, ..deadline }), None);
        assert_eq!(found(Way::default()), None, "unknown");
        for (way, word) in [
            (Way { offers_bfq: true, ..deadline }, "write bfq to /sys/block/sda/queue/scheduler"),
            (under("none"), "modprobe bfq"),
            (Way { has_cost: true, ..bfq }, "twice"),
            (
                Way { is_strict: true, ..bfq },
                "write 0 to /sys/block/sda/queue/iosched/strict_guarantees",
            ),
        ] {
            let text = found(way).unwrap();
            assert!(text.contains(word), "{text}");
        }
    }

    /// A disk that holds only logs of the system is no matter of the tenants.
    #[test]
    fn a_disk_without_requests_of_tenants_has_no_finding() {
        let ways = Ways(PerDisk::of([(SDA, under("none"))]));
        let mut used = UsedDisks::default();
        let findings =
            |used: &UsedDisks| used.findings(&ways, |_| Some(DiskName::of(b"sda"))).len();
        used.note(&ways, |_| false, USED);
        assert_eq!(findings(&used), 0);
        used.note(&ways, |_| true, USED);
        used.note(&ways, |_| false, USED / 2);
        assert_eq!(findings(&used), 1);
        used.note(&ways, |_| false, USED / 2);
        assert_eq!(findings(&used), 0);
    }
}
