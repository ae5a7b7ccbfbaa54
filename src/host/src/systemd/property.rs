//! The property of each knob, and its value on the bus.
//!
//! | knob | property | type, unit |
//! |---|---|---|
//! | CPU weight | `CPUWeight` | `t`, 1 ..= 10,000 |
//! | CPU limit | `CPUQuotaPerSecUSec` | `t`, µs of CPU time a second |
//! | guaranteed memory | `MemoryMin` | `t`, bytes |
//! | memory protection | `MemoryLow` | `t`, bytes |
//! | memory bound | `MemoryHigh` | `t`, bytes |
//! | memory limit | `MemoryMax` | `t`, bytes |
//! | limit of processes | `TasksMax` | `t`, a number |
//! | CPUs | `AllowedCPUs` | `ay`, bit *i* of byte *j* is CPU 8·*j* + *i* |
//!
//! A CPU weight of 0 is `CPUWeight=idle` in files: the unit's `cpu.idle` is 1, and its `cpu.weight` reads 0.
//!
//! The largest number means "not set" or "infinity"; an empty set of CPUs means all of the parent's. The
//! byte order is that of systemd's `cpu_set_from_dbus` (`src/shared/cpu-set-util.c`). A quota is
//! `CPUQuota=` in files and `CPUQuotaPerSecUSec` on the bus (systemd issue 5939).

use serde::{Deserialize, Serialize};

use tenantd_control::words::knob::{Knob, Value};
use tenantd_core::resource::CPU;
use tenantd_core::units::Limit;
use tenantd_dop::CpuSet;

/// A property of a unit, under its name on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are systemd's own: systemd.resource-control(5)")]
pub enum Property {
    #[serde(rename = "CPUWeight")]
    CpuWeight,
    #[serde(rename = "CPUQuotaPerSecUSec")]
    CpuQuotaPerSecUsec,
    #[serde(rename = "MemoryMin")]
    MemoryMin,
    #[serde(rename = "MemoryLow")]
    MemoryLow,
    #[serde(rename = "MemoryHigh")]
    MemoryHigh,
    #[serde(rename = "MemoryMax")]
    MemoryMax,
    #[serde(rename = "TasksMax")]
    TasksMax,
    #[serde(rename = "AllowedCPUs")]
    AllowedCpus,
}

/// The value of a property, as on the bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PropertyValue {
    /// A number; the largest one means none.
    Number(u64),
    /// A set of CPUs; empty for none.
    Mask(Vec<u8>),
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

impl Property {
    /// All properties, in the order of [`Knob::ALL`].
    pub const ALL: [Property; 8] = [
        Property::CpuWeight,
        Property::CpuQuotaPerSecUsec,
        Property::MemoryMin,
        Property::MemoryLow,
        Property::MemoryHigh,
        Property::MemoryMax,
        Property::TasksMax,
        Property::AllowedCpus,
    ];

    /// The property that sets `knob`.
    pub fn of(knob: Knob) -> Property {
        match knob {
            Knob::CpuWeight => Property::CpuWeight,
            Knob::CpuMax => Property::CpuQuotaPerSecUsec,
            Knob::MemoryMin => Property::MemoryMin,
            Knob::MemoryLow => Property::MemoryLow,
            Knob::MemoryHigh => Property::MemoryHigh,
            Knob::MemoryMax => Property::MemoryMax,
            Knob::PidsMax => Property::TasksMax,
            Knob::Cpus => Property::AllowedCpus,
        }
    }

    /// The knob that this property sets.
    pub fn knob(self) -> Knob {
        match self {
            Property::CpuWeight => Knob::CpuWeight,
            Property::CpuQuotaPerSecUsec => Knob::CpuMax,
            Property::MemoryMin => Knob::MemoryMin,
            Property::MemoryLow => Knob::MemoryLow,
            Property::MemoryHigh => Knob::MemoryHigh,
            Property::MemoryMax => Knob::MemoryMax,
            Property::TasksMax => Knob::PidsMax,
            Property::AllowedCpus => Knob::Cpus,
        }
    }

    /// Name on the bus.
    pub fn name(self) -> &'static str {
        match self {
            Property::CpuWeight => "CPUWeight",
            Property::CpuQuotaPerSecUsec => "CPUQuotaPerSecUSec",
            Property::MemoryMin => "MemoryMin",
            Property::MemoryLow => "MemoryLow",
            Property::MemoryHigh => "MemoryHigh",
            Property::MemoryMax => "MemoryMax",
            Property::TasksMax => "TasksMax",
            Property::AllowedCpus => "AllowedCPUs",
        }
    }

    /// Drop-in that systemd makes for it, in the directory of the unit's drop-ins.
    pub fn drop_in(self) -> &'static str {
        match self {
            Property::CpuWeight => "50-CPUWeight.conf",
            Property::CpuQuotaPerSecUsec => "50-CPUQuota.conf",
            Property::MemoryMin => "50-MemoryMin.conf",
            Property::MemoryLow => "50-MemoryLow.conf",
            Property::MemoryHigh => "50-MemoryHigh.conf",
            Property::MemoryMax => "50-MemoryMax.conf",
            Property::TasksMax => "50-TasksMax.conf",
            Property::AllowedCpus => "50-AllowedCPUs.conf",
        }
    }

    fn key(self) -> &'static str {
        match self {
            Property::CpuQuotaPerSecUsec => "CPUQuota",
            other => other.name(),
        }
    }

    /// Value if it was never set.
    pub fn unset(self) -> PropertyValue {
        match self {
            Property::AllowedCpus => PropertyValue::Mask(Vec::new()),
            Property::MemoryMin | Property::MemoryLow => PropertyValue::Number(0),
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
        };
        Setting { property: Property::of(knob), value }
    }

    /// Value in the file of its knob once this setting has arrived; `None` for a value of the wrong kind.
    pub fn expected(&self) -> Option<Value> {
        /// The kernel's default weight.
        const WEIGHT_DEFAULT: f64 = 100.0;
        Some(match (self.property, &self.value) {
            (Property::CpuWeight, PropertyValue::Number(NONE)) => Value::Weight(WEIGHT_DEFAULT),
            (Property::CpuWeight, PropertyValue::Number(weight)) => Value::Weight(*weight as f64),
            (Property::AllowedCpus, PropertyValue::Mask(mask)) => Value::CpuList(cpus(mask)),
            (Property::AllowedCpus, _) | (_, PropertyValue::Mask(_)) => return None,
            (property, PropertyValue::Number(number)) => {
                let resource = property.knob().resource();
                let unit = if resource == Some(CPU) { 1000 } else { 1 };
                let limit = match *number {
                    NONE => Limit::Max,
                    number => Limit::Finite(number / unit),
                };
                match resource {
                    Some(resource) => Value::Amount(resource, limit),
                    None => Value::Count(limit),
                }
            }
        })
    }
}

impl Setting {
    /// True if the text of a drop-in has exactly this setting, in systemd's spelling (`bus_cgroup_set_property`
    /// in `src/core/dbus-cgroup.c`).
    pub fn is_said_by(&self, text: &str) -> bool {
        let is_empty = |line: &&str| line.is_empty() || line.starts_with(['#', '[']);
        let lines = text.lines().map(str::trim).filter(|line| !is_empty(line));
        let values: Option<Vec<&str>> =
            lines.map(|line| line.strip_prefix(self.property.key())?.strip_prefix('=')).collect();
        let Some(said) = values.as_deref().and_then(<[&str]>::last) else { return false };
        match (&self.value, self.property) {
            (PropertyValue::Number(NONE), _) => said.is_empty() || *said == "infinity",
            // Systemd rounds a quota down to whole percent in the file, but not in memory.
            (PropertyValue::Number(quota), Property::CpuQuotaPerSecUsec) => {
                said.strip_suffix('%').and_then(|percent| percent.parse().ok())
                    == Some(quota / 10_000)
            }
            // On the bus it is the weight 0.
            (PropertyValue::Number(0), Property::CpuWeight) => *said == IDLE,
            (PropertyValue::Number(number), _) => said.parse() == Ok(*number),
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
