//! The value of a property on the bus.
//!
//! The names of the properties are in [`crate::knobs`]. The values follow from the unit of the knob:
//!
//! | unit | type, unit |
//! |---|---|
//! | weight | `t`, 1 ..= 10,000 |
//! | CPUs | `t`, µs of CPU time a second |
//! | memory | `t`, bytes |
//! | count | `t`, a number |
//! | set of CPUs | `ay`, bit *i* of byte *j* is CPU 8·*j* + *i* |
//! | limits of disks | `a(st)`, a path of each disk and bytes or operations a second |
//!
//! A CPU weight of 0 is `CPUWeight=idle` in files: the unit's `cpu.idle` is 1, and its `cpu.weight` reads 0.
//!
//! The largest number means "not set" or "infinity"; an empty set of CPUs means all of the parent's. The
//! byte order is that of systemd's `cpu_set_from_dbus` (`src/shared/cpu-set-util.c`). A quota is
//! `CPUQuota=` in files and `CPUQuotaPerSecUSec` on the bus (systemd issue 5939).

use serde::{Deserialize, Serialize};

use crate::cgroup::parse::device;
pub use crate::knobs::Property;
use tenantd_control::measure::disk::Device;
use tenantd_control::words::knob::{Knob, Unit, Value};
use tenantd_core::resource::CPU;
use tenantd_core::units::Limit;
use tenantd_dop::CpuSet;

/// The value of a property, as on the bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PropertyValue {
    /// A number; the largest one means none.
    Number(u64),
    /// A set of CPUs; empty for none.
    Mask(Vec<u8>),
    /// Paths of disks, each with a limit.
    Limits(Vec<(String, u64)>),
}

/// A property and a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The property.
    pub property: Property,
    /// The value.
    pub value: PropertyValue,
}

/// `CPUWeight=` of a unit that runs only where a CPU would idle (systemd 252).
const IDLE: &str = "idle";
/// The number for "not set" and "infinity".
const NONE: u64 = u64::MAX;
/// Folder with a link for the number of each disk.
const DISK_PATHS: &str = "/dev/block/";

impl Property {
    /// Drop-in that systemd makes for it, in the directory of the unit's drop-ins.
    pub fn drop_in(self) -> String {
        format!("50-{}.conf", self.key())
    }

    /// Value if it was never set.
    pub fn unset(self) -> PropertyValue {
        match self.knob().unit() {
            Unit::Cpus => PropertyValue::Mask(Vec::new()),
            Unit::PerDisk(_) => PropertyValue::Limits(Vec::new()),
            _ if self.knob().is_protection() => PropertyValue::Number(0),
            _ => PropertyValue::Number(NONE),
        }
    }
}

impl Setting {
    /// Setting for `value` of `knob`. A weight is clamped to systemd's range, never refused.
    pub fn of(knob: Knob, value: &Value) -> Setting {
        let value = match value {
            Value::Weight(weight) => {
                PropertyValue::Number((weight.round() as u64).clamp(1, 10_000))
            }
            Value::Amount(CPU, Limit::Finite(milli)) => {
                PropertyValue::Number(milli.saturating_mul(1000))
            }
            Value::Amount(_, Limit::Finite(amount)) | Value::Count(Limit::Finite(amount)) => {
                PropertyValue::Number(*amount)
            }
            Value::Amount(_, Limit::Max) | Value::Count(Limit::Max) => PropertyValue::Number(NONE),
            Value::CpuList(cpus) => PropertyValue::Mask(mask(cpus)),
            Value::Disks(limits) => {
                let path = |device: &Device| format!("{DISK_PATHS}{device}");
                let each = limits.iter().map(|(device, limit)| (path(device), *limit));
                PropertyValue::Limits(each.collect())
            }
        };
        Setting { property: Property::of(knob), value }
    }

    /// Value in the file of its knob once this setting has arrived; `None` for a value of the wrong kind.
    pub fn expected(&self) -> Option<Value> {
        /// The kernel's default weight.
        const WEIGHT_DEFAULT: f64 = 100.0;
        let number = match &self.value {
            PropertyValue::Number(number) => *number,
            PropertyValue::Mask(mask) => {
                let is_set = self.property.knob().unit() == Unit::Cpus;
                return is_set.then(|| Value::CpuList(cpus(mask)));
            }
            // The number of a disk under any other path is unknown.
            PropertyValue::Limits(limits) => {
                let of = |(path, limit): &(String, u64)| {
                    Some((device(path.strip_prefix(DISK_PATHS)?.as_bytes())?, *limit))
                };
                let mut disks: Vec<(Device, u64)> = limits.iter().map(of).collect::<Option<_>>()?;
                disks.sort_unstable();
                return Some(Value::Disks(disks));
            }
        };
        let limit = |unit| if number == NONE { Limit::Max } else { Limit::Finite(number / unit) };
        Some(match self.property.knob().unit() {
            Unit::Weight | Unit::DiskWeight if number == NONE => Value::Weight(WEIGHT_DEFAULT),
            Unit::Weight | Unit::DiskWeight => Value::Weight(number as f64),
            Unit::Amount(CPU) => Value::Amount(CPU, limit(1000)),
            Unit::Amount(resource) => Value::Amount(resource, limit(1)),
            Unit::Count(_) => Value::Count(limit(1)),
            Unit::Cpus | Unit::PerDisk(_) => return None,
        })
    }
}

impl Setting {
    /// Weight that systemd writes to `io.bfq.weight` for `IOWeight=` (`BFQ_WEIGHT`, `src/basic/cgroup-util.h`): 100 to
    /// 10,000 become 100 to 1,000, and smaller ones stay. `None` for other properties.
    pub fn for_bfq(&self) -> Option<f64> {
        match self.expected()? {
            Value::Weight(weight) if self.property == Property::IoWeight => {
                Some(if weight <= 100.0 {
                    weight
                } else {
                    (100.0 + (weight - 100.0) / 11.0).floor()
                })
            }
            _ => None,
        }
    }

    /// True if the text of a drop-in has exactly this setting, in systemd's spelling (`bus_cgroup_set_property`
    /// in `src/core/dbus-cgroup.c`).
    pub fn is_said_by(&self, text: &str) -> bool {
        let is_empty = |line: &&str| line.is_empty() || line.starts_with(['#', '[']);
        let lines = text.lines().map(str::trim).filter(|line| !is_empty(line));
        let values: Option<Vec<&str>> =
            lines.map(|line| line.strip_prefix(self.property.key())?.strip_prefix('=')).collect();
        let Some(said) = values.as_deref().and_then(<[&str]>::last) else { return false };
        match (&self.value, self.property.knob().unit()) {
            (PropertyValue::Number(NONE), _) => said.is_empty() || *said == "infinity",
            // Systemd rounds a quota down in the file, but not in memory: to whole percent, and to hundredths in newer
            // versions (seen on 257).
            (PropertyValue::Number(quota), Unit::Amount(CPU)) => {
                let percent =
                    said.strip_suffix('%').and_then(|percent| percent.parse::<f64>().ok());
                let hundredths = (quota / 100) as f64 / 100.0;
                percent.is_some_and(|percent| {
                    percent == hundredths.floor() || (percent - hundredths).abs() < 0.005
                })
            }
            // On the bus it is the weight 0.
            (PropertyValue::Number(0), Unit::Weight) => *said == IDLE,
            (PropertyValue::Number(number), _) => said.parse() == Ok(*number),
            // Systemd writes them in another order.
            (PropertyValue::Limits(limits), _) => {
                let mut said: Vec<String> =
                    values.unwrap_or_default().iter().map(|it| it.to_string()).collect();
                said.retain(|line| !line.is_empty());
                let mut wanted: Vec<String> =
                    limits.iter().map(|(path, limit)| format!("{path} {limit}")).collect();
                said.sort_unstable();
                wanted.sort_unstable();
                said == wanted
            }
            (PropertyValue::Mask(mask), _) if said.is_empty() => cpus(mask).is_empty(),
            (PropertyValue::Mask(mask), _) => said
                .split_ascii_whitespace()
                .collect::<Vec<_>>()
                .join(",")
                .parse()
                .is_ok_and(|said: CpuSet| said == cpus(mask)),
        }
    }
}

/// CPU 0 is the lowest bit of the first byte.
fn mask(cpus: &CpuSet) -> Vec<u8> {
    let mut mask = Vec::new();
    for cpu in cpus.iter() {
        let byte = (cpu / 8) as usize;
        if mask.len() <= byte {
            mask.resize(byte + 1, 0);
        }
        mask[byte] |= 1 << (cpu % 8);
    }
    mask
}

fn cpus(mask: &[u8]) -> CpuSet {
    let bits = mask.iter().enumerate().flat_map(|(index, byte)| {
        (0..8).filter(move |bit| byte & (1 << bit) != 0).map(move |bit| index as u32 * 8 + bit)
    });
    bits.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenantd_core::resource::MEMORY;

    #[test]
    fn a_setting_is_what_the_file_will_hold() {
        for (knob, value, spelled) in [
            (Knob::CpuWeight, Value::Weight(171.0), PropertyValue::Number(171)),
            (
                Knob::CpuMax,
                Value::Amount(CPU, Limit::Finite(1500)),
                PropertyValue::Number(1_500_000),
            ),
            (Knob::CpuMax, Value::Amount(CPU, Limit::Max), PropertyValue::Number(u64::MAX)),
            (
                Knob::MemoryLow,
                Value::Amount(MEMORY, Limit::Finite(8 << 20)),
                PropertyValue::Number(8 << 20),
            ),
            (Knob::MemoryMax, Value::Amount(MEMORY, Limit::Max), PropertyValue::Number(u64::MAX)),
            (Knob::PidsMax, Value::Count(Limit::Finite(4096)), PropertyValue::Number(4096)),
            (Knob::PidsMax, Value::Count(Limit::Max), PropertyValue::Number(u64::MAX)),
            (
                Knob::Cpus,
                Value::CpuList([0, 2, 9].into_iter().collect()),
                PropertyValue::Mask(vec![0b101, 0b10]),
            ),
            (Knob::Cpus, Value::CpuList(CpuSet::new()), PropertyValue::Mask(Vec::new())),
            (
                Knob::DiskWriteIopsMax,
                Value::Disks(vec![(Device { major: 8, minor: 16 }, 50)]),
                PropertyValue::Limits(vec![("/dev/block/8:16".into(), 50)]),
            ),
            (Knob::DiskReadMax, Value::Disks(Vec::new()), PropertyValue::Limits(Vec::new())),
        ] {
            let setting = Setting::of(knob, &value);
            assert_eq!(setting.value, spelled);
            assert_eq!(setting.property.knob(), knob);
            assert_eq!(setting.expected(), Some(value));
        }
    }

    #[test]
    fn weights_are_brought_into_range() {
        let spelled = |weight| Setting::of(Knob::CpuWeight, &Value::Weight(weight)).value;
        assert_eq!(spelled(0.2), PropertyValue::Number(1));
        assert_eq!(spelled(1e9), PropertyValue::Number(10_000));
    }

    /// The texts are those of systemd 252 and 257.
    #[test]
    fn a_drop_in_is_recognised_by_its_text() {
        let number = |property, number| Setting { property, value: PropertyValue::Number(number) };
        let cpus = |mask: &[u8]| Setting {
            property: Property::AllowedCpus,
            value: PropertyValue::Mask(mask.to_vec()),
        };
        let limits = |limits: &[(&str, u64)]| Setting {
            property: Property::IoReadBandwidthMax,
            value: PropertyValue::Limits(
                limits.iter().map(|(path, limit)| (path.to_string(), *limit)).collect(),
            ),
        };
        let head = "# This is a drop-in unit file extension, created via \"systemctl set-property\"\n\
                    # or an equivalent operation. Do not edit.\n[Service]\n";
        for (said, text, other) in [
            (
                number(Property::MemoryMax, 629_145_600),
                "MemoryMax=629145600",
                number(Property::MemoryMax, 629_145_601),
            ),
            (
                number(Property::MemoryMax, u64::MAX),
                "MemoryMax=infinity",
                number(Property::MemoryMax, 0),
            ),
            (
                number(Property::CpuQuotaPerSecUsec, 12_345),
                "CPUQuota=1%",
                number(Property::CpuQuotaPerSecUsec, 22_345),
            ),
            (
                number(Property::CpuQuotaPerSecUsec, 305_000),
                "CPUQuota=30.50%",
                number(Property::CpuQuotaPerSecUsec, 306_000),
            ),
            (
                number(Property::CpuQuotaPerSecUsec, u64::MAX),
                "CPUQuota=",
                number(Property::CpuQuotaPerSecUsec, 10_000),
            ),
            (
                number(Property::TasksMax, 4096),
                "TasksMax=4096",
                number(Property::TasksMax, u64::MAX),
            ),
            (number(Property::CpuWeight, 300), "CPUWeight=300", number(Property::CpuWeight, 30)),
            (number(Property::CpuWeight, 0), "CPUWeight=idle", number(Property::CpuWeight, 1)),
            (
                limits(&[("/dev/block/8:0", 100), ("/dev/sdb", 7)]),
                "IOReadBandwidthMax=\nIOReadBandwidthMax=/dev/sdb 7\nIOReadBandwidthMax=/dev/block/8:0 100",
                limits(&[("/dev/block/8:0", 100)]),
            ),
            (limits(&[]), "IOReadBandwidthMax=", limits(&[("/dev/sdb", 7)])),
            (cpus(&[0b1011]), "AllowedCPUs=\nAllowedCPUs=0-1 3", cpus(&[0b11])),
            (cpus(&[]), "AllowedCPUs=\nAllowedCPUs=", cpus(&[1])),
        ] {
            let text = format!("{head}{text}\n");
            assert!(said.is_said_by(&text), "{text}");
            assert!(!other.is_said_by(&text), "{text}");
            assert!(!said.is_said_by(&format!("{text}IOWeight=5\n")), "{text}");
            assert!(!said.is_said_by(head));
        }
    }

    /// A property that is not set has the kernel's default.
    #[test]
    fn what_is_unset_has_a_default() {
        let of = |property: Property| Setting { property, value: property.unset() }.expected();
        assert_eq!(of(Property::CpuWeight), Some(Value::Weight(100.0)));
        assert_eq!(of(Property::MemoryLow), Some(Value::Amount(MEMORY, Limit::Finite(0))));
        assert_eq!(of(Property::MemoryMax), Some(Value::Amount(MEMORY, Limit::Max)));
    }
}
